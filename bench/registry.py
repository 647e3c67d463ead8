"""The registry: reads a second, searching, deciding inclusion. `python bench/registry.py [PART...]`.

    reads      an entry's JSON over HTTP from one core, beside Starlette and FastAPI
    search     100,000 entries in SQLite and in PostgreSQL, beside a scan by LIKE
    inclusion  a scheme's grammar in absolute-URI, beside automata-lib; grammars made to cost

Rounds are interleaved: in each, every peer has its turn. PostgreSQL is started here, from Debian's packages;
where it is not installed it is left out, with a note.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _registry_grammars import hostile, inclusion
from _registry_reads import reads
from _registry_search import search

PARTS = ("reads", "search", "inclusion")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--reads", type=int, default=4000, help="of each service in each round")
    parser.add_argument("--entries", type=int, default=100_000, help="to search in")
    given, _ = parser.parse_known_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    parts = given.parts or PARTS
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        if "reads" in parts:
            print("\n### reads\n")
            found["reads"] = reads(given.rounds, given.reads, Path(folder))
        if "search" in parts:
            print("\n### search\n", flush=True)
            found["search"] = search(given.rounds, given.entries, Path(folder))
    if "inclusion" in parts:
        print("\n### inclusion\n", flush=True)
        found["inclusion"] = inclusion(given.rounds)
        found["hostile"] = hostile()
    if given.json:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
