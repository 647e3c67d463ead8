"""What `import` costs: milliseconds over a bare interpreter and modules loaded, as medians.

Each round starts every candidate once, so that a slow moment of the machine meets all of them alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

BARE = "pass"
CANDIDATES = {
    "onym.uri": "import onym.uri; from onym.uri import LLMURI",
    "onym (connect)": "from onym import connect",
    "onym --version": "import sys; sys.argv=['onym','--version']\nfrom onym.cli import main\nmain()",
    "yarl": "import yarl",
    "rfc3986": "import rfc3986",
    "hyperlink": "import hyperlink",
    "pyreqwest": "import pyreqwest.client",
    "httpx2": "import httpx2",
    "openai": "import openai",
}


def seconds(code: str) -> float | None:
    """Wall time of one fresh interpreter; None when the package is not there."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    took = time.perf_counter() - start
    return took if done.returncode == 0 else None


def modules(code: str) -> int:
    """How many modules the code adds to a bare interpreter."""
    counted = (
        "import sys; b=len(sys.modules)\ntry:\n    exec(" + repr(code) + ")\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(str(len(sys.modules)-b))"
    )
    done = subprocess.run([sys.executable, "-c", counted], capture_output=True, check=False, text=True)
    return int(done.stderr or 0)


def main() -> None:
    """Print the table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json")
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in ("bare", *CANDIDATES)}
    for _ in range(options.rounds):
        for name, code in {"bare": BARE, **CANDIDATES}.items():
            took = seconds(code)
            if took is not None:
                times[name].append(took)
    bare = statistics.median(times["bare"])
    rows = []
    print("| import | ms over bare | modules |\n|---|--:|--:|")
    for name, code in CANDIDATES.items():
        if not times[name]:
            continue
        over = (statistics.median(times[name]) - bare) * 1000
        rows.append({"import": name, "ms_over_bare": round(over, 1), "modules": modules(code)})
        print(f"| {name} | {over:.1f} | {rows[-1]['modules']} |")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
