"""The store: a registry in a database, as the rest of Onym uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from onym.accounts.store import AccountStore
from onym.errors import StoreError, UnknownEntryError
from onym.registry.codec import GENESIS
from onym.registry.engine import decide as engine_decide
from onym.registry.engine import iter_due_events as engine_due
from onym.registry.records import Actor, Entry, Event, LogRecord, Request, RequestState, Role, Status
from onym.registry.registries import get_registry as registry_of
from onym.registry.store import _maintenance, queries
from onym.registry.store._history import select_changes_of_name, select_shown_changes
from onym.registry.store._maintenance import rebuild_projections, verify_database
from onym.registry.store._writes import (
    Outbox,
    apply_event,
    import_entries,
    require_storable_event,
    reserve_request_id,
    select_head,
)
from onym.registry.store.queries import require_search, search_entries
from onym.registry.store.rows import (
    Applied,
    Decide,
    EntryChange,
    Head,
    ImportReport,
    Verified,
)
from onym.registry.store.schema import migrate_schema, open_database, require_schema
from onym.store.sql import Database, Page, require_limit
from onym.uri.secret import Secret


class Store(AccountStore):
    """A registry: its log, what follows from it, and who may act.

    The log is the source of truth and is append-only. Methods that look for one thing return None if it does
    not exist. Every method raises StoreError if the database cannot be used.

        async with await Store.open("registry.db", create=True) as store:
            await store.apply(event, actor, at)
    """

    def __init__(self, database: Database, *, decide: Decide = engine_decide) -> None:
        super().__init__(database)
        self._decide = decide
        self.outbox = Outbox(database)

    @classmethod
    async def open(
        cls, url: str | Path | Secret, *, create: bool = False, decide: Decide = engine_decide
    ) -> Store:
        """Open the registry in a SQLite file or at a URL `postgresql+psycopg://…`.

        `create` makes it if there is none, and brings an older schema up. Raises StoreError:
        registry.bad-url, registry.no-database, registry.wrong-schema, registry.unreachable,
        registry.no-full-text (a SQLite without FTS5).
        """
        database = open_database(url)
        try:
            require_search(database)
            if create:
                await asyncio.to_thread(database.create_file)
                await migrate_schema(database)
            else:
                database.require_readable()
                await require_schema(database)
        except BaseException:
            await database.close()
            raise
        return cls(database, decide=decide)

    async def close(self) -> None:
        """Close the connections."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Store {self._database!r}>"

    # ---------- writing

    async def apply(
        self, event: Event, actor: Actor, at: datetime, *, expected: int | None = None, exact: bool = False
    ) -> Applied:
        """Let the engine decide, and write what follows: all of it, or nothing.

        An OPEN event without a request gets the next id. An OVERRIDE that `undoes` a record (its number) gets
        the entry as that record found it. `expected` is the version of the request, or of the entry where no
        request is named (0: none is there). Where `at` is before the last record about it, that record's
        time counts; a time that is `exact` is refused then. Raises RefusalError where the procedure does not
        allow it, StaleError with the version in force where another was first, UnknownEntryError for a
        request that is not there.
        """
        require_storable_event(event)
        return await self._database.run_transaction(
            lambda connection: apply_event(connection, self._decide, event, actor, at, expected, exact=exact)
        )

    async def next_request_id(self, registry: str) -> str:
        """Reserve a request ID such as `uri-schemes-17`. An unused ID only leaves a gap."""
        return await self._database.run_transaction(
            lambda connection: reserve_request_id(connection, registry)
        )

    async def import_entries(
        self,
        registry: str,
        entries: Iterable[Entry],
        actor: Actor,
        at: datetime,
        *,
        source: str,
        progress: Callable[[int], object] | None = None,
    ) -> ImportReport:
        """Take the rows of a published registry in, each as an IMPORT event, in one transaction.

        Rows that change nothing leave no record; rows that the engine refuses are reported as irregular;
        names that the source lacks stay. Who has a say in an entry that is there stays too. `source` says
        where the rows come from. `progress` is told how many are done, from time to time. Raises
        RefusalError (registry.wrong-role) for an actor who may not import; nothing is taken in then.
        """
        given = tuple(entries)
        return await self._database.run_transaction(
            lambda connection: import_entries(
                connection, self._decide, registry, given, actor, at, source, progress
            )
        )

    async def rebuild(self) -> Verified:
        """Rebuild entries, requests and search index from the log. Raises StoreError as `verify` does."""
        return await self._database.run_transaction(
            lambda connection: rebuild_projections(connection, self._decide)
        )

    # ---------- reading

    async def check_anchor(self, number: int, digest: str) -> None:
        """Compare the digest of a record with one that was saved earlier.

        A chain says that no record was changed, not that none is missing at its end, nor that it is not
        another chain as a whole: whoever can write the database can do both. Raises StoreError
        (registry.broken-chain).
        """
        async with self._database.open_reader(snapshot=True) as connection:
            found = await queries.select_records(connection, number - 1, 1) if number else ()
        if (not number and digest == GENESIS) or (
            found and (found[0].number, found[0].digest) == (number, digest)
        ):
            return
        raise StoreError(
            f"record {number} is missing or has another digest than the one that was saved",
            code="registry.broken-chain",
            field=str(number),
            hint="The log was cut or replaced. Restore a backup and keep this file as evidence.",
        )

    async def head(self) -> Head:
        """Return the end of the log. Its digest proves later that no earlier record changed."""
        async with self._database.open_reader() as connection:
            return await select_head(connection)

    async def entry(self, registry: str, name: str) -> Entry | None:
        """Return the entry with this name (any case if the registry ignores case), or None."""
        async with self._database.open_reader() as connection:
            return await queries.select_entry(connection, registry, name)

    async def entries(
        self,
        registry: str,
        *,
        query: str = "",
        status: Status | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[Entry]:
        """Entries by name; those that contain `query` in name or text, those of `status`.

        `after` is the `next` of the page before. Raises RegistryError (store.bad-cursor,
        store.bad-limit).
        """
        async with self._database.open_reader(snapshot=True) as connection:
            return await queries.select_entries(connection, registry, query, status, after, limit)

    async def count_by_status(self, registry: str) -> dict[Status, int]:
        """Return the number of entries by status, without the statuses that no entry has."""
        async with self._database.open_reader() as connection:
            return await queries.count_by_status(connection, registry)

    async def names(self, registry: str) -> tuple[str, ...]:
        """Return every name of a registry, in order."""
        async with self._database.open_reader() as connection:
            return await queries.select_names(connection, registry)

    async def search(self, registry: str | None, text: str, limit: int = 20) -> tuple[Entry, ...]:
        """Entries that contain `text`, the best first: exact name, beginning, part of it, then text.

        `registry` None searches all. One or two letters are looked for in names alone.
        """
        if registry is not None:
            registry_of(registry)
        async with self._database.open_reader(snapshot=True) as connection:
            return await search_entries(connection, registry, text, require_limit(limit))

    async def request(self, id: str) -> Request | None:  # noqa: A002 - what the caller has
        """Return the request with this ID, or None."""
        async with self._database.open_reader() as connection:
            return await queries.select_request(connection, id)

    async def requests(
        self,
        *,
        registry: str | None = None,
        state: RequestState | None = None,
        holder: Role | None = None,
        registrant: str | None = None,
        name: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[Request]:
        """Return the requests that match all filters, the newest first."""
        conditions = queries.build_request_conditions(registry, state, holder, registrant, name)
        async with self._database.open_reader(snapshot=True) as connection:
            return await queries.select_requests(connection, conditions, after, limit)

    async def log(self, *, after: int = 0, limit: int = 500) -> tuple[LogRecord, ...]:
        """Log records beyond number `after`, the oldest first.

        Fewer than `limit`, and at least one, where they are long: whoever wants all asks until none come.
        """
        async with self._database.open_reader(snapshot=True) as connection:
            return await queries.select_records(connection, after, limit)

    async def history(
        self, registry: str, name: str, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogRecord, ...]:
        """The records about that name, the oldest first, those of its requests among them."""
        key = registry_of(registry).normalize_name(name)
        async with self._database.open_reader(snapshot=True) as connection:
            return await queries.select_records(connection, after, limit, registry=registry, name=key)

    async def changes(self, registry: str, *, limit: int = 50) -> tuple[EntryChange, ...]:
        """The last changes of a registry's entries that a public column shows, the newest first.

        Fewer than `limit`, and at least one, where they are long.
        """
        async with self._database.open_reader(snapshot=True) as connection:
            return await select_shown_changes(connection, registry, limit)

    async def list_changes_of_name(
        self, registry: str, name: str, *, below: int | None = None, limit: int = 1000
    ) -> tuple[EntryChange, ...]:
        """Every change of the entries of that name, the newest first; those before record `below`.

        Fewer than `limit`, and at least one, where they are long: whoever wants all asks until none come.
        """
        async with self._database.open_reader(snapshot=True) as connection:
            return await select_changes_of_name(connection, registry, name, below, limit)

    async def request_history(
        self,
        id: str,  # noqa: A002
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> tuple[LogRecord, ...]:
        """The records about that request, the oldest first. Raises UnknownEntryError where there is none."""
        async with self._database.open_reader(snapshot=True) as connection:
            found = await queries.select_records(connection, after, limit, request=id)
        if not found and after == 0:
            raise UnknownEntryError(
                "there is no request with this ID", code="registry.unknown-request", field="request"
            )
        return found

    async def list_due_events(self, at: datetime) -> tuple[Event, ...]:
        """Return the events of timers that are due at `at`; apply them one by one as IANA_CLOCK."""
        async with self._database.open_reader(snapshot=True) as connection:
            waiting, ripe = await queries.select_timed(connection, at.date())
        return tuple(engine_due(waiting, ripe, at))

    # ---------- care

    async def verify(self) -> Verified:
        """Check the hash chain, and compare every table with the log.

        Raises StoreError at the first fault: registry.broken-chain with the record's number,
        registry.replay-failed, registry.projection-differs, registry.corrupt.
        """
        async with self._database.open_reader(snapshot=True) as connection:
            return await verify_database(connection, self._decide)

    async def backup(self, path: str | Path, *, portable: bool = False) -> None:
        """Write a consistent copy, while others read and write; `path` is replaced when it is whole.

        SQLite gives a database file, PostgreSQL (and SQLite if `portable`) JSON Lines for `restore`.
        Password hashes are in it: it is for its owner alone to read.
        """
        target = Path(path)
        _maintenance.require_other_target(self._database.path, target)
        if self._database.path is None or portable:
            await _maintenance.dump_portable(self._database, target)
        else:
            await _maintenance.copy_sqlite(self._database.path, target)


async def restore(
    source: str | Path, url: str | Path | Secret, *, decide: Decide = engine_decide
) -> Verified:
    """Read a backup, of either form, into an empty registry at `url`, which is made where there is none.

    Raises StoreError (registry.bad-backup, registry.not-empty, registry.broken-chain); nothing is written
    then but the empty tables.
    """
    path = Path(source)
    if _maintenance.is_sqlite_file(path):
        return await _restore_file(path, url, decide)
    async with await Store.open(url, create=True, decide=decide) as store:
        return await _maintenance.load_portable(store._database, path, decide)


async def _restore_file(source: Path, url: str | Path | Secret, decide: Decide) -> Verified:
    import tempfile  # late: the portable form needs none

    with tempfile.TemporaryDirectory(prefix="onym-restore-") as folder:
        # a copy: the backup may be of an older schema, and is not changed
        copy = Path(folder) / "copy.db"
        await _maintenance.copy_sqlite(source, copy)
        await _maintenance.require_registry(copy)
        async with await Store.open(copy, create=True, decide=decide) as old:
            await old.backup(Path(folder) / "lines", portable=True)
        async with await Store.open(url, create=True, decide=decide) as store:
            return await _maintenance.load_portable(store._database, Path(folder) / "lines", decide)
