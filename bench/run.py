"""Every benchmark, one after another, as tables with ratios: `make bench`.

Peers run beside Onym in the same process or in alternating processes, so read the ratios; the absolute
figures belong to the machine named in the first lines.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTS = (
    "parse.py",
    "ai_uri.py",
    "client.py",
    "stream.py",
    "batch.py",
    "registry.py",
    "receipts.py",
    "endpoint.py",
    "gateway.py",
    "imports.py",
    "install.py",
)


def machine() -> str:
    """One line about what the figures were measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    system = f"{platform.system()} {platform.release()}"
    return f"{system}, {model}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def main() -> int:
    """0 when every part ran."""
    print(f"machine: {machine()}")
    codes = []
    for part in PARTS:
        print(f"\n## {part.removesuffix('.py')}\n", flush=True)
        command = [sys.executable, str(HERE / part), *sys.argv[1:]]
        codes.append(subprocess.run(command, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
