"""How many reads of an entry's JSON one core serves: `python bench/registry.py reads`."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from _registry_service import PATH, Round, fetch, request, service
from _server import _cores

__all__ = ["CONNECTIONS", "reads"]

CONNECTIONS = 64
ONYM = "onym, an entry (/api/v1)"
PEER = "Starlette, a route with the same octets in a dictionary"
FASTAPI = "FastAPI, a route that returns the same data"


async def _fill(database: Path) -> list[str]:
    from onym.registry.iana import load_builtin_snapshot
    from onym.registry.records import Actor, Role
    from onym.registry.store import Store

    facts = load_builtin_snapshot("uri-schemes")
    iana = Actor(id="bench", roles=frozenset({Role.IANA}))
    async with await Store.open(database, create=True) as store:
        at = datetime(2026, 1, 5, tzinfo=UTC)
        await store.import_entries("uri-schemes", facts.entries, iana, at, source=facts.source)
    return [entry.name for entry in facts.entries]


def reads(rounds: int, count: int, folder: Path) -> list[dict[str, Any]]:
    """Measure, print the table, give its rows. `count` reads of each service in each round."""
    database, bodies = folder / "registry.db", folder / "bodies.json"
    names = asyncio.run(_fill(database))
    pair = _cores()
    with ExitStack() as stack:
        core = None
        if pair is not None:
            # asking on one core, all that answers on the other
            whole = os.sched_getaffinity(0)
            stack.callback(os.sched_setaffinity, 0, whole)
            os.sched_setaffinity(0, {pair[0]})
            core = pair[1]
        asked = [request(PATH.format(name=name)) for name in names]
        onym = stack.enter_context(service("onym", database, core))
        answers = [fetch(onym, question) for question in asked]
        bodies.write_text(json.dumps(dict(zip(names, map(bytes.decode, answers), strict=True))))
        peers = {kind: stack.enter_context(service(kind, bodies, core)) for kind in ("starlette", "fastapi")}
        assert fetch(peers["starlette"], asked[0]) == answers[0]
        assert json.loads(fetch(peers["fastapi"], asked[0])) == json.loads(answers[0])
        ways = {
            PEER: (peers["starlette"], asked),
            ONYM: (onym, asked),
            FASTAPI: (peers["fastapi"], asked),
        }
        found: dict[str, list[Round]] = {name: [] for name in ways}
        for turn in range(rounds + 1):
            for name, (asked_one, questions) in ways.items():
                done = Round(asked_one, questions, reads=count, connections=CONNECTIONS).run()
                # the first round is for warming up
                if turn:
                    found[name].append(done)
    return _table(found, sum(map(len, answers)) // len(answers))


def _work(one: Round) -> float:
    """Seconds of the core for a read; those of the clock where the system does not tell."""
    return (one.worked or one.took) / one.reads


def _table(found: dict[str, list[Round]], size: int) -> list[dict[str, Any]]:
    print(f"{CONNECTIONS} connections, {size} octets of JSON\n")
    print("| | reads/s | reads per second of work | median wait, ms | p99, ms | work, Starlette = 1 |")
    print("|---|--:|--:|--:|--:|--:|")
    rows = []
    for name, each in found.items():
        per_read = statistics.median(one.took / one.reads for one in each)
        # what a neighbour takes of the core is in the time, and not in the work
        work = statistics.median(map(_work, each))
        # a ratio of each round, then the median: what the machine did at that time is in both
        ratio = statistics.median(
            _work(mine) / _work(peer) for mine, peer in zip(each, found[PEER], strict=True)
        )
        waits = sorted(second for one in each for second in one.seconds)
        median, slow = (waits[int(len(waits) * part)] * 1e3 for part in (0.5, 0.99))
        print(f"| {name} | {1 / per_read:,.0f} | {1 / work:,.0f} | {median:.1f} | {slow:.1f} | {ratio:.2f} |")
        rows.append(
            {
                "name": name,
                "reads_per_second": 1 / per_read,
                "reads_per_second_of_work": 1 / work,
                "median_ms": median,
                "p99_ms": slow,
                "work_ratio_to_starlette": ratio,
            }
        )
    return rows
