"""Databases of any application: its codes, its hints, and times that were changed by another program."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Column, MetaData, Table, insert, select, text
from sqlalchemy.exc import OperationalError

from onym.errors import StoreError
from onym.store.sql import (
    Database,
    DatabaseProfile,
    Failure,
    Time,
    is_storable,
    replace_unstorable,
    translate_errors,
)

GUARD = Failure("guarded", "the guard stopped it", "Ask the guard.")
PROFILE = DatabaseProfile(name="shop", lock_key=7, failures={1811: GUARD, "ON007": GUARD})
AT = datetime(2026, 1, 2, tzinfo=UTC)


class Raised(Exception):
    def __init__(self, **codes: object) -> None:
        self.__dict__.update(codes)


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({"sqlite_errorcode": 5}, "shop.busy"),
        ({"sqlite_errorcode": 1811}, "shop.guarded"),
        ({"sqlstate": "ON007"}, "shop.guarded"),
        ({"sqlstate": "53100"}, "shop.full"),
        ({"sqlstate": "42P01"}, "shop.store"),
    ],
)
def test_codes_begin_with_the_name_of_the_application(codes: dict[str, object], code: str) -> None:
    with pytest.raises(StoreError) as caught, translate_errors(PROFILE):
        raise OperationalError("SELECT 1", {}, Raised(**codes))
    assert caught.value.code == code
    assert caught.value.hint


def test_a_url_and_a_folder_that_cannot_be_used_are_reported_with_the_applications_codes(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreError) as caught:
        Database("mysql://h/db", PROFILE)
    assert caught.value.code == "shop.bad-url"
    with pytest.raises(StoreError) as caught:
        Database(tmp_path / "none" / "shop.db", PROFILE).create_file()
    assert caught.value.code == "shop.io"


def test_a_time_that_another_program_wrote_is_an_error(tmp_path: Path) -> None:
    table = Table("visits", MetaData(), Column("at", Time))

    async def main() -> None:
        database = Database(tmp_path / "shop.db", PROFILE)
        await database.run_transaction(lambda connection: connection.run_sync(table.create))
        await database.run_transaction(lambda connection: connection.execute(insert(table), {"at": AT}))
        async with database.open_reader() as connection:
            assert (await connection.execute(select(table))).scalar() == AT
        statement = text("UPDATE visits SET at = 'noon'")
        await database.run_transaction(lambda connection: connection.execute(statement))
        with pytest.raises(StoreError) as caught:
            async with database.open_reader() as connection:
                (await connection.execute(select(table))).scalar()
        assert caught.value.code == "store.bad-time"
        await database.close()

    asyncio.run(main())


def test_text_that_some_database_cannot_store_is_replaced() -> None:
    assert is_storable("h\u00f6\U0001f600")
    assert not is_storable("a\0b")
    assert replace_unstorable("a\0b\ud800") == "a?b?"
    assert replace_unstorable("plain") == "plain"
