"""A client and its replay store: what cannot be kept is not asked, and a disk holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ai_factory import Factory
from onym.ai import MemoryReplays, ReplayFile, Replays
from onym.errors import ProvenanceError


@pytest.fixture(params=["memory", "file"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Replays:
    """A store without room."""
    make: Callable[[int], Replays] = (
        MemoryReplays
        if request.param == "memory"
        else lambda most: ReplayFile(tmp_path / "replays.sqlite", most)
    )
    store = make(2)
    for name in ("a", "b"):
        store.seen(name, time.time() + 300, now=time.time())
    return store


def test_what_could_not_count_is_not_asked_for(factory: Factory, full: Replays) -> None:
    before = list(factory.calls)
    with factory.client(replays=full) as client:
        with pytest.raises(ProvenanceError) as caught:
            client.invoke(factory.uri("/agent/note"), {"text": "lost"})
        assert (caught.value.code, caught.value.retryable) == ("aiip.unavailable", True)
        with pytest.raises(ProvenanceError):
            client.stream(factory.uri("/agent/count"), {"to": 2})
    assert factory.calls == before


class Watched(ReplayFile):
    """Tells in which threads it was asked."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.threads: set[threading.Thread] = set()
        self.known = False

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        self.threads.add(threading.current_thread())
        return super().seen(identity, until, now=now) or self.known


def test_the_loop_does_not_wait_for_the_disk_of_a_replay_store(factory: Factory, tmp_path: Path) -> None:
    store = Watched(tmp_path / "replays.sqlite")

    async def work() -> list[str]:
        async with factory.aclient(replays=store) as client:
            result = await client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})
            assert result.json() == 3
            stream = await client.stream(factory.uri("/agent/count"), {"to": 3})
            async with stream:
                return [event.data async for event in stream]

    assert len(asyncio.run(work())) == 3
    assert store.threads
    assert threading.current_thread() not in store.threads
    store.threads.clear()
    with factory.client(replays=store) as client:
        client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})
    assert store.threads == {threading.current_thread()}
    store.close()


def test_what_a_thread_finds_to_be_a_replay_is_refused(factory: Factory, tmp_path: Path) -> None:
    store = Watched(tmp_path / "replays.sqlite")
    store.known = True

    async def work() -> None:
        async with factory.aclient(replays=store) as client:
            await client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})

    with pytest.raises(ProvenanceError) as caught:
        asyncio.run(work())
    assert caught.value.code == "aiip.provenance-stale"
    assert caught.value.target is not None
    store.close()


def test_a_key_that_is_new_is_fetched_with_a_store_in_a_file_too(factory: Factory, tmp_path: Path) -> None:
    store = Watched(tmp_path / "replays.sqlite")

    async def work() -> int:
        async with factory.aclient(replays=store) as client:
            await client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})
            factory.keys.revoke(factory.keys.signer(time.time()).kid, time.time())
            result = await client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})
            return int(result.json())

    assert asyncio.run(work()) == 3
    store.close()
