"""What a chain does not show by itself: that its end is missing, or that all of it is another one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onym.errors import StoreError
from onym.registry.codec import GENESIS
from onym.registry.records import IANA_CLOCK, Entry, Status
from onym.registry.store import Store
from registry.store.store_support import AT, SCHEMES, in_store


def _rows(*names: str) -> list[Entry]:
    return [Entry(registry=SCHEMES, name=name, status=Status.PROVISIONAL) for name in names]


async def _fill(store: Store) -> None:
    await store.import_entries(SCHEMES, _rows("one", "two", "three"), IANA_CLOCK, AT, source="x")


def test_a_log_that_lost_its_end_is_whole_by_itself_and_not_by_its_anchor(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"

    async def before(store: Store) -> tuple[int, str]:
        await _fill(store)
        head = await store.head()
        await store.check_anchor(head.number, head.digest)
        return head.number, head.digest

    number, digest = in_store(str(path), before)
    with closing(sqlite3.connect(path)) as connection, connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM log WHERE number = 3")
        connection.execute("DELETE FROM entry_text WHERE name = 'three'")
        connection.execute("DELETE FROM entries WHERE name = 'three'")
        connection.execute("DELETE FROM entry_changes WHERE name = 'three'")

    async def after(store: Store) -> None:
        assert (await store.verify()).records == 2
        with pytest.raises(StoreError) as caught:
            await store.check_anchor(number, digest)
        assert (caught.value.code, caught.value.field) == ("registry.broken-chain", "3")

    in_store(str(path), after, create=False)


def test_another_chain_is_not_the_one_that_was_written_down(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await store.check_anchor(0, GENESIS)
        await _fill(store)
        head = await store.head()
        for number, digest in ((head.number, "0" * 64), (1, head.digest), (0, head.digest), (9, head.digest)):
            with pytest.raises(StoreError):
                await store.check_anchor(number, digest)

    in_store(str(tmp_path / "registry.db"), work)


def test_a_name_that_is_not_folded_is_imported_under_its_key(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await store.import_entries(SCHEMES, _rows("Mixed"), IANA_CLOCK, AT, source="x")
        found = await store.entry(SCHEMES, "mixed")
        assert found is not None
        assert (found.name, found.spelling) == ("mixed", "Mixed")
        assert (await store.verify()).entries == 1

    in_store(str(tmp_path / "registry.db"), work)
