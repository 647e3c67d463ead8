"""Answer the project's own vectors through `onym conformance`, as any other implementation would.

`vectors/conformance.jsonl` holds the questions, `conformance.expected.jsonl` the answers, line by line; an
answer matches when it holds every member that the expected one names.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "vectors"


def holds(expected: Any, actual: Any) -> bool:
    """Is every member of `expected` in `actual`, with the same value?"""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(name in actual and holds(value, actual[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(holds, expected, actual))
    return bool(expected == actual)


def lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> int:
    """0 when every file reads and every answer is as expected."""
    for path in sorted(FOLDER.glob("*.json")):
        json.loads(path.read_text(encoding="utf-8"))
    questions = (FOLDER / "conformance.jsonl").read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "onym", "conformance"], input=questions, capture_output=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    expected = lines(FOLDER / "conformance.expected.jsonl")
    wrong = [e for e, a in zip(expected, answers, strict=True) if not holds(e, a)]
    for record in wrong:
        print("wrong:", record["id"])
    print(f"{len(expected) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
