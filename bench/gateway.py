"""A gateway: verified invocations a second on one core, beside nginx. `python bench/gateway.py`.

Both stand before the same authority, which signs (Ed25519) and is reached over TLS 1.3. nginx verifies its
certificate and hands on; the gateway maps the name, verifies the receipt, signs its own and writes the audit
log. What answers the clients has a core to itself; authority and clients share the other, so look at the work
of the core for one request first. Rounds are interleaved.
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

import _registry_service
from _gateway_service import AUTHORITY, certificates, fetch, front, question, service
from _registry_service import Round
from _server import _cores

CONNECTIONS = 64
NAMES = {"nginx": "nginx, a plain proxy", "gateway": "onym ai gateway"}


class _Connection(_registry_service._Connection):
    """nginx writes the names of fields with capitals."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data.replace(b"Content-Length: ", b"content-length: ", 1))


_registry_service._Connection = _Connection  # type: ignore[misc]


def measure(rounds: int, count: int, folder: Path) -> list[dict[str, Any]]:
    """The rows of the table. `count` invocations through each in each round."""
    certificates(folder)
    pair = _cores()
    with ExitStack() as stack:
        ours, theirs = None, None
        if pair is not None:
            stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
            os.sched_setaffinity(0, {pair[0]})
            ours, theirs = pair
        authority = stack.enter_context(service("authority", folder, ours))
        running = {
            "nginx": stack.enter_context(front(folder, theirs, authority.port)),
            "gateway": stack.enter_context(service("gateway", folder, theirs, authority.port)),
        }
        name = f"{AUTHORITY}:{authority.port}/tool/add"
        asked = {"nginx": question(f"/{name}"), "gateway": question(f"/gateway/{name}")}
        answers = {kind: fetch(each, asked[kind]) for kind, each in running.items()}
        assert set(answers.values()) == {b"42"}, answers
        found: dict[str, list[Round]] = {kind: [] for kind in running}
        for turn in range(rounds + 1):
            for kind, each in running.items():
                done = Round(each, [asked[kind]], reads=count, connections=CONNECTIONS).run()
                # the first round is for warming up
                if turn:
                    found[kind].append(done)
    return [_row(NAMES[kind], found[kind]) for kind in NAMES]


def _row(name: str, mine: list[Round]) -> dict[str, Any]:
    waits = sorted(second for one in mine for second in one.seconds)
    return {
        "name": name,
        "requests_per_second": 1 / statistics.median(one.took / one.reads for one in mine),
        "microseconds_of_work": statistics.median((one.worked or one.took) / one.reads for one in mine) * 1e6,
        "median_ms": waits[len(waits) // 2] * 1e3,
        "p99_ms": waits[int(len(waits) * 0.99)] * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--invocations", type=int, default=3000, help="through each in each round")
    given, _ = parser.parse_known_args()
    with TemporaryDirectory() as folder:
        rows = measure(given.rounds, given.invocations, Path(folder))
    print(f"{CONNECTIONS} connections\n")
    print("| | requests/s | work each, µs | median wait, ms | p99, ms |")
    print("|---|--:|--:|--:|--:|")
    for row in rows:
        name, *figures = row.values()
        print(f"| {name} | " + " | ".join(f"{each:,.1f}" for each in figures) + " |")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
