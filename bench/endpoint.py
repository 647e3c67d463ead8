"""An endpoint: signed invocations a second on one core. `python bench/endpoint.py`.

Services, each a process of its own on one core, all on uvicorn with uvloop and httptools over plain HTTP on
loopback: an endpoint that signs with Ed25519, the same endpoint with its signatures left out, one whose
resource writes, three that want an access token, and a bare ASGI function that reads the same JSON and writes
the same result. Each call of the one that writes has its own idempotency key, which is on the disk twice
(SQLite, `synchronous=FULL`) before the answer is sent. Tokens are of 64 clients. One service takes them as
Bearer; two want a DPoP proof (ES256, with nonce and `rqh`) that was made before the round, and remember it in
memory or in Valkey, which is on the core of those who ask. Rounds are interleaved: in each, every service has
its turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from _endpoint_service import KINDS, Clients, question, service, valkey
from _registry_service import Round, Service, fetch, fetch_field
from _server import _cores

CONNECTIONS = 64
NAMES = {
    "bare": "a bare ASGI function",
    "unsigned": "onym, signatures left out",
    "signed": "onym, signed (Ed25519)",
    "keyed": "onym, signed, with idempotency keys",
    "bearer": "onym, signed, Bearer token",
    "dpop": "onym, signed, DPoP (ES256), proofs in memory",
    "dpop-valkey": "onym, signed, DPoP (ES256), proofs in Valkey",
}


def measure(rounds: int, count: int, folder: Path, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the table. `count` invocations of each service in each round."""
    pair = _cores()
    with ExitStack() as stack:
        core = None
        if pair is not None:
            # asking on one core, what answers on the other
            stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
            os.sched_setaffinity(0, {pair[0]})
            core = pair[1]
        clients = Clients(folder, CONNECTIONS)
        url = None
        if "dpop-valkey" in kinds:
            url = stack.enter_context(valkey(folder, None if pair is None else pair[0]))
        kinds = [kind for kind in kinds if kind != "dpop-valkey" or url is not None]
        running = {
            kind: stack.enter_context(service(kind, folder, core, url if kind == "dpop-valkey" else None))
            for kind in kinds
        }
        answers = {kind: fetch(each, _ask(kind, each, clients, 1)[0]) for kind, each in running.items()}
        assert set(answers.values()) == {b"42"}, answers
        found: dict[str, list[Round]] = {kind: [] for kind in kinds}
        for turn in range(rounds + 1):
            for kind, each in running.items():
                questions = _ask(kind, each, clients, count)
                done = Round(each, questions, reads=count, connections=CONNECTIONS).run()
                # the first round is for warming up
                if turn:
                    found[kind].append(done)
    return [_row(NAMES[kind], found[kind], found["bare"]) for kind in kinds]


def _ask(kind: str, asked: Service, clients: Clients, count: int) -> list[bytes]:
    """The octets of so many invocations, or of one that can be sent again and again."""
    if kind == "keyed":
        return [question(uuid4().hex) for _ in range(count)]
    if kind == "bearer":
        return clients.ask(kind, CONNECTIONS, None)
    if kind not in {"dpop", "dpop-valkey"}:
        return [question()]
    nonce = fetch_field(asked, clients.ask(kind, 1, None)[0], "dpop-nonce")
    return clients.ask(kind, count, nonce)


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
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="these services")
    given, _ = parser.parse_known_args()
    kinds = [kind for kind in KINDS if kind == "bare" or kind in given.only]
    with TemporaryDirectory() as folder:
        rows = measure(given.rounds, given.invocations, Path(folder), kinds)
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
