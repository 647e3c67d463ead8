"""kill -9 at any moment loses no accepted event, and two processes write one chain."""

from __future__ import annotations

import subprocess
import sys

import pytest

from chain_support import verify_chain
from onym.registry.store import Store
from registry.store.crash_support import mortal_postgres
from registry.store.store_support import SCHEMES, in_store

WRITER = """
import asyncio, sys
from datetime import UTC, datetime
from onym.registry.records import Actor, Event, EventKind, Role
from onym.registry.store import Store
from onym.store import sql

sql._PATIENCE = 600  # a busy machine may stop the other writer for longer than fifteen seconds

async def main(url, word, count):
    ada = Actor(id="ada", roles=frozenset({Role.REGISTRANT}))
    async with await Store.open(url) as store:
        print("ready", flush=True)
        for number in range(count):
            event = Event(kind=EventKind.OPEN, registry="uri-schemes", name=f"{word}{number}",
                          data={"kind": "new", "profile": "rfc7595", "status": "provisional"})
            applied = await store.apply(event, ada, datetime(2026, 1, 1, tzinfo=UTC))
            print(applied.record.event.request, applied.record.digest, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def writer(url: str, word: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, word, str(count)], stdout=subprocess.PIPE, text=True
    )


def check(url: str, printed: list[list[str]], *, exactly: bool = False) -> None:
    async def work(store: Store) -> None:
        digests = {}
        after = 0
        records = []
        while some := await store.log(after=after, limit=1000):
            records += some
            after = some[-1].number
        for record in records:
            digests[record.event.request] = record.digest
        for identifier, digest in printed:
            assert digests[identifier] == digest
            assert await store.request(identifier) is not None
        assert verify_chain(records) == len(records)
        assert not exactly or len(records) == len(printed)
        await store.verify()

    in_store(url, work, create=False)


#: forks a writer, reads some of its answers, kills it at once, reads what else it said; twenty times
KILLER = (
    WRITER.replace("asyncio.run(main(", "if False: asyncio.run(main(")
    + """
import os, random, signal

chance = random.Random(20)
for turn in range(20):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        try:
            asyncio.run(main(sys.argv[1], f"s{turn}x", 1000))
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as answers:
        lines = [answers.readline() for _ in range(chance.randint(1, 8))]
        for _ in range(chance.randrange(20_000)):
            pass
        os.kill(child, signal.SIGKILL)
        lines += list(answers)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    # a line that was cut was not said
    print("".join(line for line in lines if line.endswith("\\n") and line != "ready\\n"), end="", flush=True)
"""
)


def test_nothing_that_was_accepted_is_lost_by_kill_nine(store_url: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", KILLER, store_url], capture_output=True, text=True, timeout=1200, check=False
    )
    assert run.returncode == 0, run.stderr
    printed = [line.split() for line in run.stdout.splitlines()]
    assert len(printed) >= 20
    check(store_url, printed)


def test_nothing_that_was_accepted_is_lost_by_kill_nine_of_postgresql_itself() -> None:
    printed: list[list[str]] = []

    async def start(store: Store) -> None:
        assert (await store.head()).number == 0

    with mortal_postgres() as mortal:
        for turn in range(3):
            with mortal.running() as server:
                url = server.url()
                in_store(url, start) if turn == 0 else check(url, printed)
                with writer(url, f"s{turn}x", 100_000) as child:
                    assert child.stdout is not None
                    lines = [child.stdout.readline() for _ in range(10 + turn)]
                    mortal.kill()
                    lines += child.stdout.readlines()
                # it was told that the database is gone, and said nothing that is not so
                assert child.returncode == 1
                printed += [line.split() for line in lines[1:]]
        with mortal.running() as server:
            check(server.url(), printed)
            again = writer(server.url(), "after", 3).communicate(timeout=600)[0]
            check(server.url(), [*printed, *(line.split() for line in again.splitlines()[1:])])
            mortal.kill()


@pytest.mark.parametrize("count", [25])
def test_two_processes_write_one_chain(store_url: str, count: int) -> None:
    children = [writer(store_url, word, count) for word in ("left", "right")]
    printed = []
    for child in children:
        out, _ = child.communicate(timeout=600)
        assert child.returncode == 0
        printed += [line.split() for line in out.splitlines()[1:]]
    assert sorted(int(item[0].removeprefix(f"{SCHEMES}-")) for item in printed) == list(
        range(1, 2 * count + 1)
    )
    check(store_url, printed, exactly=True)
