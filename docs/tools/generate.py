"""Write everything in the documentation that is generated; with --check, only say what is stale.

    .venv/bin/python docs/tools/generate.py [--check]

Reference pages come from the code, the conformance page from spec/requirements.toml and the tests, the
picture of the URI from a real parse, and the examples and console sessions on every page from running them.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from docgen.outputs import stale, write_all


def main(arguments: list[str]) -> int:
    """0 when all is fresh, or was written."""
    if arguments == ["--check"]:
        names = list(stale())
        for name in names:
            print(f"stale: {name}")
        if names:
            print("run: .venv/bin/python docs/tools/generate.py")
        return 1 if names else 0
    if arguments:
        print(__doc__)
        return 2
    for name in write_all():
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
