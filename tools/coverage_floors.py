"""Hold the coverage floors: every branch of uri, net and sign; 95 % of the whole."""

from __future__ import annotations

import subprocess
import sys

#: what is measured, and the least per cent of lines and branches
FLOORS = (("src/onym/uri/*", 100), ("src/onym/net/*", 100), ("src/onym/*", 95))


def coverage(*arguments: str) -> int:
    """Run the coverage tool; its exit code."""
    return subprocess.run([sys.executable, "-m", "coverage", *arguments], check=False).returncode


def main() -> int:
    """0 when every floor holds."""
    broken = []
    # processes that tests started and that ended late; a second combining would begin anew
    coverage("combine", "--append", "--quiet")
    for pattern, floor in FLOORS:
        print(f"\ncoverage of {pattern}, at least {floor} %")
        if coverage("report", f"--include={pattern}", f"--fail-under={floor}", "--skip-covered"):
            broken.append(pattern)
    if broken:
        print(f"\ncoverage floor broken: {', '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
