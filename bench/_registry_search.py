"""Searching many generated entries: `python bench/registry.py search`.

The peer is what one writes first: one table, `LIKE '%text%'` on name and text, ordered as Onym orders, by
the standard library's sqlite3 in the same process. All three give the names of the best 20.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onym.registry.records import Actor, Entry, Role, Status
from onym.registry.store import Store

__all__ = ["search"]

SCHEMES = "uri-schemes"
AT = datetime(2026, 1, 5, tzinfo=UTC)
LIMIT = 20
QUERIES = 120
SQLITE, POSTGRESQL, SCAN = "onym on SQLite", "onym on PostgreSQL", "sqlite3, a scan by LIKE"
Search = Callable[[str], Awaitable[list[str]]]

_SCAN = """
SELECT name FROM plain WHERE name LIKE :part ESCAPE '!' OR text LIKE :part ESCAPE '!'
ORDER BY name = :text DESC, name LIKE :begin ESCAPE '!' DESC, name LIKE :part ESCAPE '!' DESC,
         length(name), name
LIMIT 20
"""


def generated(count: int) -> list[Entry]:
    """Entries of made-up words, always the same ones."""
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(3, 10))) for _ in range(4000)]
    statuses = (Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL)
    return [
        Entry(
            registry=SCHEMES,
            name=f"{chance.choice(words)}{number}",
            status=chance.choice(statuses),
            fields={
                "description": " ".join(chance.choices(words, k=12)),
                "reference": f"[RFC{chance.randint(1, 9999)}]",
            },
        )
        for number in range(count)
    ]


def questions(entries: list[Entry]) -> list[str]:
    """What people type: names, beginnings, parts, words of the text, a reference; and what is not there."""
    chance = random.Random(2)
    found = []
    for each in chance.sample(entries, QUERIES // 8):
        description = each.fields["description"]
        found += [
            each.name,
            each.name[:2],
            each.name[:4],
            each.name[2:6],
            chance.choice(description.split()),
            description[3:20],
            each.fields["reference"].strip("[]").lower(),
            f"{each.name}zzz",
        ]
    chance.shuffle(found)
    return found


def search(rounds: int, count: int, folder: Path) -> list[dict[str, Any]]:
    """Measure, print the table, give its rows."""
    entries = generated(count)
    with _postgresql() as server:
        times, seconds = asyncio.run(_measure(rounds, entries, folder, server))
    return _table(times, seconds, count)


async def _measure(
    rounds: int, entries: list[Entry], folder: Path, server: Any
) -> tuple[dict[str, list[float]], dict[str, float]]:
    stores = {SQLITE: await Store.open(folder / "search.db", create=True)}
    if server is not None:
        stores[POSTGRESQL] = await Store.open(server.url(), create=True)
    seconds = {name: await _import(store, entries) for name, store in stores.items()}
    if server is not None:
        # as its own housekeeping does after a while
        server.execute("VACUUM ANALYZE")
    scan = _scan(folder / "plain.db", entries)
    ways: dict[str, Search] = {SCAN: scan, **{name: _search(store) for name, store in stores.items()}}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for text in questions(entries):
            for name, way in ways.items():
                start = time.perf_counter()
                found = await way(text)
                took = time.perf_counter() - start
                if turn:
                    times[name].append(took)
                else:
                    # the first round is for warming up, and for comparing
                    assert len(found) == len(await scan(text)) or len(text) < 3, text
    for store in stores.values():
        await store.close()
    return times, seconds


async def _import(store: Store, entries: list[Entry]) -> float:
    iana = Actor(id="bench", roles=frozenset({Role.IANA}))
    start = time.perf_counter()
    report = await store.import_entries(SCHEMES, entries, iana, AT, source="bench")
    assert report.added == len(entries)
    return time.perf_counter() - start


def _search(store: Store) -> Search:
    async def way(text: str) -> list[str]:
        return [each.name for each in await store.search(SCHEMES, text, LIMIT)]

    return way


def _scan(path: Path, entries: list[Entry]) -> Search:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE plain (name TEXT PRIMARY KEY, text TEXT)")
    rows = ((each.name, "\n".join(each.fields.values())) for each in entries)
    connection.executemany("INSERT INTO plain VALUES (?, ?)", rows)
    connection.commit()

    async def way(text: str) -> list[str]:
        plain = text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        values = {"text": text, "begin": f"{plain}%", "part": f"%{plain}%"}
        return [name for (name,) in connection.execute(_SCAN, values)]

    return way


@contextmanager
def _postgresql() -> Iterator[Any]:
    """A server, as tests start it; None where it is not installed."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import pytest

    start = importlib.import_module("postgres_support").postgres_server
    with ExitStack() as stack:
        server = None
        try:
            server = stack.enter_context(start())
        except (pytest.skip.Exception, pytest.fail.Exception) as reason:
            print(f"note: PostgreSQL is left out: {reason}", file=sys.stderr)
        yield server


def _table(times: dict[str, list[float]], seconds: dict[str, float], count: int) -> list[dict[str, Any]]:
    print(f"{count:,} entries, the best {LIMIT}\n")
    print("| | median, ms | p99, ms | slowest, ms | time, scan = 1 | import, s |\n|---|--:|--:|--:|--:|--:|")
    rows = []
    for name, own in times.items():
        ratio = statistics.median(mine / base for mine, base in zip(own, times[SCAN], strict=True))
        ordered = sorted(own)
        median, slow, last = (ordered[int((len(own) - 1) * part)] * 1e3 for part in (0.5, 0.99, 1))
        took = f"{seconds[name]:.0f}" if name in seconds else ""
        print(f"| {name} | {median:.1f} | {slow:.1f} | {last:.1f} | {ratio:.2f} | {took} |")
        rows.append(
            {
                "name": name,
                "median_ms": median,
                "p99_ms": slow,
                "time_ratio_to_scan": ratio,
                "import_seconds": seconds.get(name),
            }
        )
    return rows
