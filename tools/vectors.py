"""Check that the project's own vectors are sound and answer them all through `onym conformance`.

Each record of vectors/conformance.jsonl is `{"question": {…}, "answer": {…}}`; an answer matches when
it holds every member that the record names.
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
    return bool(expected == actual)


def main() -> int:
    """0 when every file reads and every answer is as recorded."""
    for path in sorted(FOLDER.glob("*.json")):
        json.loads(path.read_text(encoding="utf-8"))
    lines = (FOLDER / "conformance.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines if line.strip()]
    questions = "".join(json.dumps(record["question"]) + "\n" for record in records)
    command = [sys.executable, "-m", "onym", "conformance"]
    done = subprocess.run(command, input=questions, capture_output=True, text=True, check=True, encoding="utf-8")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [r for r, a in zip(records, answers, strict=True) if not holds(r["answer"], a)]
    for record in wrong:
        print("wrong:", json.dumps(record["question"]))
    print(f"{len(records) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
