"""The database itself: schema and migrations, guards, settings, and errors that tell no secret."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError, OperationalError

from onym.accounts.store import METADATA as ACCOUNT_TABLES
from onym.errors import RefusalError, StoreError
from onym.registry.records import EventKind
from onym.registry.store import REVISION, Store, queries, schema
from onym.registry.store.schema import (
    BASE,
    DATABASE_PROFILE,
    METADATA,
    migrate_schema,
    open_database,
    read_revision,
)
from onym.store import sql as sql
from onym.uri.secret import Secret
from registry.store.store_support import (
    AT,
    REGISTRANT,
    SCHEMES,
    ask,
    in_store,
    open_event,
    opened,
    registered,
    run,
)


def test_the_newest_migration_is_the_one_that_the_code_works_with() -> None:
    folder = Path(schema.__file__).with_name("migrations")
    script = ScriptDirectory(str(folder))
    assert script.get_heads() == [REVISION]
    assert [revision.revision for revision in script.walk_revisions()] == ["0002", "0001"]


def test_the_migrations_make_the_tables_that_the_code_sees(store_url: str) -> None:
    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_name": lambda name, kind, parents: (
                    "fts" not in str(name) and "trigrams" not in str(name)
                )
            },
        )
        return list(compare_metadata(context, [ACCOUNT_TABLES, METADATA]))  # type: ignore[arg-type]

    async def work(store: Store) -> list[object]:
        async with store._database.open_reader() as connection:
            return await connection.run_sync(differences)

    assert in_store(store_url, work) == []


def test_the_schema_goes_down_and_up_again(empty_url: str) -> None:
    async def main() -> None:
        async with await Store.open(empty_url, create=True) as store:
            await registered(store)
        database = open_database(empty_url)
        await migrate_schema(database)
        assert await read_revision(database) == REVISION
        await migrate_schema(database, BASE)
        assert await read_revision(database) is None
        with pytest.raises(StoreError) as caught:
            await Store.open(empty_url)
        assert caught.value.code == "registry.wrong-schema"
        assert "onym registry init" in str(caught.value.hint)
        await database.close()
        async with await Store.open(empty_url, create=True) as store:
            assert (await store.head()).number == 0
            await registered(store)
            assert [entry.name for entry in await store.search(SCHEMES, "clients")] == ["conti"]
            await store.verify()

    run(main())


def test_a_schema_of_a_newer_onym_is_left_alone(store_url: str) -> None:
    async def newer(store: Store) -> None:
        statement = text("UPDATE alembic_version SET version_num = '0999'")
        await store._database.run_transaction(lambda connection: connection.execute(statement))

    in_store(store_url, newer)
    for create in (True, False):
        with pytest.raises(StoreError) as caught:
            in_store(store_url, newer, create=create)
        assert (caught.value.code, caught.value.hint) == ("registry.wrong-schema", "Install a newer Onym.")


def test_two_that_make_the_same_registry_at_once_make_it_once(empty_url: str) -> None:
    async def main() -> None:
        stores = await asyncio.gather(*(Store.open(empty_url, create=True) for _ in range(3)))
        for number, store in enumerate(stores):
            await opened(store, f"scheme-{number}")
            await store.verify()
        for store in stores:
            await store.close()

    run(main())


def test_a_file_that_another_one_is_making_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, paused = tmp_path / "new.db", []
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    def pause(seconds: float) -> None:
        paused.append(seconds)
        other.execute("ROLLBACK")

    monkeypatch.setattr("onym.store.sqlite.time.sleep", pause)
    open_database(path).create_file()
    assert len(paused) == 1
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


def test_a_registry_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    with pytest.raises(StoreError) as caught:
        run(Store.open(path))
    assert caught.value.code == "registry.no-database"
    assert not path.exists()


#: what SQLite, then PostgreSQL, is asked to do
GUARDED = {
    "update": ("UPDATE log SET kind = 'x'",) * 2,
    "delete": ("DELETE FROM log WHERE number = 2",) * 2,
    "all at once": (
        "INSERT OR REPLACE INTO log SELECT * FROM log WHERE number = 1",
        "TRUNCATE log CASCADE",
    ),
}


@pytest.mark.parametrize("change", GUARDED)
def test_the_database_itself_refuses_to_change_the_log(store_url: str, change: str) -> None:
    statement = GUARDED[change][store_url.startswith("postgresql")]

    async def work(store: Store) -> None:
        await opened(store, "one")
        await opened(store, "two")
        with pytest.raises(StoreError) as caught:
            await store._database.run_transaction(lambda connection: connection.execute(text(statement)))
        assert caught.value.code == "registry.append-only"
        assert (await store.verify()).records == 2

    in_store(store_url, work)


def test_sqlite_is_set_to_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.db"

    async def work(store: Store) -> dict[str, object]:
        found = {}
        async with store._database.open_reader() as connection:
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout"):
                found[name] = (await connection.execute(text(f"PRAGMA {name}"))).scalar()
        return found

    assert in_store(str(path), work) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 15000,
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


BAD_URLS = [
    "mysql://u:sekret@h/db",
    "postgresql://u:sekret@h:port/db",
    "postgresql+asyncpg://u:sekret@h/db",
    "://sekret",
    "sqlite://",
    "sqlite:///:memory:",
    "sqlite:///x.db?mode=sekret",
    "http://sekret@h/",
]


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_url_that_cannot_be_used_is_refused_without_being_shown(url: str) -> None:
    for given in (url, Secret(url)):
        with pytest.raises(StoreError) as caught:
            open_database(given)
        assert caught.value.code == "registry.bad-url"
        assert "sekret" not in f"{caught.value}{caught.value.as_dict()}{caught.value.__cause__}"


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+aiosqlite:///{}"])
def test_sqlite_is_named_by_path_or_url(tmp_path: Path, form: str) -> None:
    async def work(store: Store) -> str:
        return await opened(store)

    assert in_store(form.format(tmp_path / "r.db"), work) == f"{SCHEMES}-1"
    assert (tmp_path / "r.db").is_file()


def test_no_password_is_in_what_a_store_or_its_failures_print(tmp_path: Path) -> None:
    url = "postgresql+psycopg://u:sekret@127.0.0.1:9/db"
    store = Store(open_database(Secret(url)))
    assert repr(store) == "<Store <Database postgresql db>>"
    with pytest.raises(StoreError) as caught:
        run(store.head())
    error = caught.value
    assert error.code == "registry.unreachable"
    assert "sekret" not in f"{error}{error!r}{error.__cause__}{error.as_dict()}"
    assert repr(open_database(tmp_path / "x.db")) == f"<Database sqlite {tmp_path / 'x.db'}>"


def test_a_wrong_password_is_told_as_such_and_not_shown(postgres: object) -> None:
    right: str = postgres.url(tcp=True)  # type: ignore[attr-defined]
    password: str = postgres.password  # type: ignore[attr-defined]
    with pytest.raises(StoreError) as caught:
        run(Store.open(right.replace(password, "sekret")))
    assert caught.value.code == "registry.wrong-credentials"
    assert "sekret" not in str(caught.value)
    with pytest.raises(StoreError) as caught:
        run(Store.open(postgres.url("nothing-of-that-name", tcp=True)))  # type: ignore[attr-defined]
    assert caught.value.code == "registry.unknown-database"


def test_a_file_that_is_no_database_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    path.write_bytes(b"not a database at all" * 500)
    for create in (True, False):
        with pytest.raises(StoreError) as caught:
            run(Store.open(path, create=create))
        assert caught.value.code == "registry.corrupt"


@pytest.mark.parametrize("create", [True, False])
def test_a_sqlite_without_a_trigram_index_is_refused_with_a_way_out(
    sqlite_path: Path, monkeypatch: pytest.MonkeyPatch, create: bool
) -> None:
    # what a SQLite without FTS5 answers for fts5, this one answers for a module that nobody has
    monkeypatch.setattr(queries, "PROBE", "CREATE VIRTUAL TABLE probe USING fts0(x)")
    queries.has_trigrams.cache_clear()
    before = sqlite_path.read_bytes()
    try:
        with pytest.raises(StoreError) as caught:
            run(Store.open(sqlite_path, create=create))
    finally:
        queries.has_trigrams.cache_clear()
    assert (caught.value.code, caught.value.field) == ("registry.no-full-text", "url")
    assert sqlite3.sqlite_version in caught.value.message
    assert "postgresql+psycopg://" in (caught.value.hint or "")
    assert sqlite_path.read_bytes() == before


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        run(Store.open(tmp_path / "no" / "r.db", create=True))
    assert caught.value.code == "registry.io"


def test_a_writer_that_hangs_makes_the_others_give_up(
    sqlite_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onym.store import sql

    monkeypatch.setattr(sql, "_PATIENCE", 0)

    async def work(store: Store) -> None:
        holder = sqlite3.connect(sqlite_path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(StoreError) as caught:
                await store.apply(open_event(), REGISTRANT, AT)
            assert caught.value.code == "registry.busy"
            assert (await store.head()).number == 0
        finally:
            holder.execute("ROLLBACK")
            holder.close()
        await opened(store)

    in_store(str(sqlite_path), work)


def test_an_error_inside_a_transaction_undoes_it(store_url: str) -> None:
    async def work(store: Store) -> None:
        identifier = await opened(store)
        with pytest.raises(RefusalError):
            await store.apply(ask(EventKind.APPROVE, identifier), REGISTRANT, AT)
        async with asyncio.timeout(600):
            await opened(store, "next")

    in_store(store_url, work)


class _Raised(Exception):
    def __init__(self, **codes: object) -> None:
        super().__init__("holds sekret")
        self.__dict__.update(codes)


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({"sqlite_errorcode": 5}, "registry.busy"),
        ({"sqlite_errorcode": 517}, "registry.busy"),
        ({"sqlite_errorcode": 13, "sqlite_errorname": "SQLITE_FULL"}, "registry.full"),
        ({"sqlite_errorcode": 1811}, "registry.append-only"),
        ({"sqlite_errorcode": 1}, "registry.store"),
        ({"sqlstate": "53100"}, "registry.full"),
        ({"sqlstate": "53300"}, "registry.too-many-connections"),
        ({"sqlstate": "53200"}, "registry.no-resources"),
        ({"sqlstate": "57014"}, "registry.busy"),
        ({"sqlstate": "42P01"}, "registry.wrong-schema"),
        ({"sqlstate": "99999"}, "registry.store"),
        ({}, "registry.store"),
    ],
)
def test_failures_are_told_apart_by_their_codes(codes: dict[str, object], code: str) -> None:
    with pytest.raises(StoreError) as caught, sql.translate_errors(DATABASE_PROFILE):
        raise OperationalError("SELECT 'sekret'", {"p": "sekret"}, _Raised(**codes))
    assert caught.value.code == code
    assert "sekret" not in str(caught.value)
    assert caught.value.hint


def test_a_fault_of_sqlalchemys_own_is_a_store_error_too() -> None:
    with pytest.raises(StoreError, match="InvalidRequestError"), sql.translate_errors(DATABASE_PROFILE):
        raise InvalidRequestError("sekret")
    assert not sql.is_duplicate(ValueError())
    assert not sql.is_lost_race(ValueError())
    assert sql.is_lost_race(DBAPIError("", {}, _Raised(sqlstate="40001")))
