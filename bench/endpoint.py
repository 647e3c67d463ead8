"""An endpoint: signed invocations a second on one core. `python bench/endpoint.py`.

Three services, each a process of its own on one core, all on uvicorn with uvloop and httptools over plain
HTTP on loopback: an endpoint that signs with Ed25519, the same endpoint with its signatures left out, and a
bare ASGI function that reads the same JSON and writes the same result. Rounds are interleaved: in each, every
service has its turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _endpoint_service import KINDS, question, service
from _registry_service import Round, fetch
from _server import _cores

CONNECTIONS = 64
NAMES = {
    "bare": "a bare ASGI function",
    "unsigned": "onym, signatures left out",
    "signed": "onym, signed (Ed25519)",
}


def measure(rounds: int, count: int, folder: Path) -> list[dict[str, Any]]:
    """The rows of the table. `count` invocations of each service in each round."""
    pair = _cores()
    with ExitStack() as stack:
        core = None
        if pair is not None:
            # asking on one core, what answers on the other
            stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
            os.sched_setaffinity(0, {pair[0]})
            core = pair[1]
        running = {kind: stack.enter_context(service(kind, folder, core)) for kind in KINDS}
        answers = {kind: fetch(each, question()) for kind, each in running.items()}
        assert set(answers.values()) == {b"42"}, answers
        found: dict[str, list[Round]] = {kind: [] for kind in KINDS}
        for turn in range(rounds + 1):
            for kind, each in running.items():
                done = Round(each, [question()], reads=count, connections=CONNECTIONS).run()
                # the first round is for warming up
                if turn:
                    found[kind].append(done)
    return [_row(NAMES[kind], found[kind], found["bare"]) for kind in KINDS]


def _work(one: Round) -> float:
    """Seconds of the core for an invocation; those of the clock where the system does not tell."""
    return (one.worked or one.took) / one.reads


def _row(name: str, mine: list[Round], peer: list[Round]) -> dict[str, Any]:
    waits = sorted(second for one in mine for second in one.seconds)
    return {
        "name": name,
        "invocations_per_second": 1 / statistics.median(one.took / one.reads for one in mine),
        "microseconds_of_work": statistics.median(map(_work, mine)) * 1e6,
        "median_ms": waits[len(waits) // 2] * 1e3,
        "p99_ms": waits[int(len(waits) * 0.99)] * 1e3,
        # a ratio of each round, then the median: what the machine did at that time is in both
        "work_ratio_to_bare": statistics.median(
            _work(one) / _work(other) for one, other in zip(mine, peer, strict=True)
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--invocations", type=int, default=4000, help="of each service in each round")
    given, _ = parser.parse_known_args()
    with TemporaryDirectory() as folder:
        rows = measure(given.rounds, given.invocations, Path(folder))
    print(f"{CONNECTIONS} connections\n")
    print("| | invocations/s | work each, µs | median wait, ms | p99, ms | work, bare = 1 |")
    print("|---|--:|--:|--:|--:|--:|")
    for row in rows:
        name, *figures = row.values()
        print(f"| {name} | " + " | ".join(f"{each:,.1f}" for each in figures) + " |")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
