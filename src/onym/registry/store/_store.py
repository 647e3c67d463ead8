"""The store: a registry in a database, and its outbox.

A sender claims notices for a limited time; if it dies, they are available again when the lease ends. A notice
is therefore sent at least once, and by one sender at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from sqlalchemy import Row, and_, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.accounts.records import AuditRecord
from onym.accounts.store import AccountStore
from onym.errors import RefusalError, StoreError, UnknownEntryError
from onym.registry.codec import GENESIS
from onym.registry.engine import Decide
from onym.registry.engine import decide as engine_decide
from onym.registry.engine import iter_due_events as engine_due
from onym.registry.records import (
    Actor,
    Entry,
    Event,
    EventKind,
    Head,
    LogRecord,
    Quota,
    Request,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import BUILTIN, Catalog, Registry, use_catalog
from onym.registry.registries import get_registry as registry_of
from onym.registry.store import _maintenance, _redaction, _writes, queries, schema
from onym.registry.store.queries import Statistics, compute_statistics
from onym.store.sql import Database, Failure, Page, replace_unstorable, require_limit
from onym.uri.secret import Secret

_P = ParamSpec("_P")
_Result = TypeVar("_Result")


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
        #: the rows in force, and the number of the record that defined them
        self._catalog: tuple[int, Catalog] = (0, BUILTIN)
        #: what registrants may store; None for no limit
        self.quota: Quota | None = None
        #: why PostgreSQL searches without an index, if `open` could not create it
        self.missing_index: Failure | None = None

    @classmethod
    async def open(
        cls, url: str | Path | Secret, *, create: bool = False, decide: Decide = engine_decide
    ) -> Store:
        """Open the registry in a SQLite file or at a URL `postgresql+psycopg://…`.

        With `create`, a missing database is created and an older schema is upgraded. Raises StoreError:
        registry.bad-url, registry.no-database, registry.wrong-schema, registry.no-full-text (a SQLite
        without FTS5), and those of `Database.check_connection`.
        """
        database = schema.open_database(url)
        missing_index = None
        try:
            queries.require_search(database)
            await database.check_connection()
            if create:
                await asyncio.to_thread(database.create_file)
                await schema.migrate_schema(database)
                missing_index = await schema.create_search_index(database)
            else:
                database.require_readable()
                await schema.require_schema(database)
            store = cls(database, decide=decide)
            await store.load_catalog()
        except BaseException:
            await database.close()
            raise
        store.missing_index = missing_index
        return store

    async def close(self) -> None:
        """Close the connections."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Store {self._database!r}>"

    # ---------- the rows in force

    @property
    def catalog(self) -> Catalog:
        """The registries, profiles and words in force when they were last read."""
        return self._catalog[1]

    async def load_catalog(self) -> Catalog:
        """Return the registries, profiles and words in force now, which another process may have defined."""
        async with self._database.open_reader() as connection:
            return await self._refresh_catalog(connection)

    def _get_registry(self, identifier: str) -> Registry:
        with use_catalog(self.catalog):
            return registry_of(identifier)

    async def _refresh_catalog(self, connection: AsyncConnection) -> Catalog:
        number = await queries.select_definition_number(connection)
        if number != self._catalog[0]:
            self._catalog = number, await queries.select_catalog(connection, number)
        return self._catalog[1]

    # ---------- writing

    async def apply(
        self, event: Event, actor: Actor, at: datetime, *, expected: int | None = None, exact: bool = False
    ) -> _writes.Applied:
        """Let the engine decide the event, and write the result in one transaction.

        An OPEN event without a request gets the next ID. An OVERRIDE that `undoes` a record (its number) gets
        the entry as it was before that record. `expected` is the version of the request, or of the entry if
        the event names no request (0: there is no entry). If `at` is before the last record about the
        subject, that record's time is used; with `exact`, the event is rejected. Raises RefusalError if the
        procedure or the `quota` does not allow the event, StaleError with the current version if another
        event was first, and UnknownEntryError for an unknown request.
        """
        _writes.require_storable_event(event)
        if event.kind is EventKind.REDACT:
            raise RefusalError(
                "a redaction changes the log and cannot be sent as an event",
                code="registry.not-allowed",
                field="event",
                hint="Run: onym registry redact",
            )
        from onym.registry.definitions import build_next_catalog  # late: few logs have a definition

        async def work(connection: AsyncConnection) -> _writes.Applied:
            with use_catalog(await self._refresh_catalog(connection)):
                if event.kind is EventKind.DEFINE:
                    following = build_next_catalog(event.data.get("definition"))
                    await queries.require_rows_of_entries(connection, following)
                return await _writes.apply_event(
                    connection, self._decide, event, actor, at, expected, exact=exact, quota=self.quota
                )

        applied = await self._database.run_transaction(work)
        if event.kind is EventKind.DEFINE:
            await self.load_catalog()
        return applied

    async def next_request_id(self, registry: str) -> str:
        """Reserve a request ID such as `uri-schemes-17`. An unused ID only leaves a gap."""
        with use_catalog(self.catalog):
            return await self._database.run_transaction(
                lambda connection: _writes.reserve_request_id(connection, registry)
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
    ) -> _writes.ImportReport:
        """Import the rows of a published registry, each as an IMPORT event, in one transaction.

        Rows that change nothing leave no record; rows that the engine rejects are reported as irregular;
        names that the source lacks stay. An import does not change who controls an existing entry. `source`
        names the origin of the rows. `progress` is called with the number of rows that are done. Raises
        RefusalError (registry.wrong-role) if the actor may not import; nothing is imported then.
        """
        rows = tuple(entries)

        async def work(connection: AsyncConnection) -> _writes.ImportReport:
            with use_catalog(await self._refresh_catalog(connection)):
                return await _maintenance.import_entries(
                    connection, self._decide, registry, rows, actor, at, source, progress
                )

        return await self._database.run_transaction(work)

    async def rebuild(self) -> _writes.Verified:
        """Rebuild entries, requests and search index from the log. Raises StoreError as `verify` does."""
        return await self._database.run_transaction(
            lambda connection: _maintenance.rebuild_projections(connection, self._decide)
        )

    async def redact(
        self,
        registry: str,
        wanted: str,
        actor: Actor,
        at: datetime,
        *,
        reason: str,
        audit: AuditRecord | None = None,
    ) -> _redaction.Redaction:
        """Remove every line that contains a text from the registry's log, and all that follows from it.

        Digests and chain stay valid, and a REDACT record lists the lines. Raises RefusalError
        (registry.nothing-to-remove, registry.not-removable if the log cannot be decided again without the
        text, registry.wrong-role); nothing is changed then. Backups keep the text.
        """
        wanted = _redaction.require_removable(wanted)

        async def work(connection: AsyncConnection) -> _redaction.Redaction:
            with use_catalog(await self._refresh_catalog(connection)):
                done = await _redaction.redact_log(
                    connection, self._decide, registry, wanted, actor, at, reason
                )
            try:
                await _maintenance.rebuild_projections(connection, self._decide)
            except StoreError as error:
                if error.code != "registry.replay-failed":
                    raise
                raise RefusalError(
                    f"the procedure needs this text: {error.message}",
                    code="registry.not-removable",
                    field="text",
                    hint="Choose a text that is no name, status or link of the procedure.",
                ) from None
            await _redaction.rebuild_search_index(connection)
            return done

        done = await self._run_audited(work, audit)
        await self._database.forget_deleted()
        return done

    async def find_redaction(self, registry: str, wanted: str) -> _redaction.Redaction:
        """Return what `redact` would remove."""
        found = await self._query_snapshot(
            _redaction.find_lines, registry, _redaction.require_removable(wanted)
        )
        return _redaction.Redaction(places=_redaction.list_places(found))

    async def save_frame(self, registry: str, frame: bytes) -> None:
        """Keep the XML file of an import, if it is UTF-8; an export as XML is written into it."""
        try:
            document = frame.decode("utf-8-sig")
        except UnicodeDecodeError:
            return

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(delete(schema.frames).where(schema.frames.c.registry == registry))
            await connection.execute(insert(schema.frames).values(registry=registry, document=document))

        await self._database.run_transaction(work)

    # ---------- reading

    async def get_frame(self, registry: str) -> bytes | None:
        """Return the XML file that was imported last, or None."""
        async with self._database.open_reader() as connection:
            statement = select(schema.frames.c.document).where(schema.frames.c.registry == registry)
            document = (await connection.execute(statement)).scalar()
        return None if document is None else str(document).encode()

    async def _query(
        self,
        query: Callable[Concatenate[AsyncConnection, _P], Awaitable[_Result]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _Result:
        async with self._database.open_reader() as connection:
            with use_catalog(self.catalog):
                return await query(connection, *args, **kwargs)

    async def _query_snapshot(
        self,
        query: Callable[Concatenate[AsyncConnection, _P], Awaitable[_Result]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _Result:
        """Run the query in a transaction, so that its statements see the same state and may stream."""
        async with self._database.open_reader(snapshot=True) as connection:
            with use_catalog(self.catalog):
                return await query(connection, *args, **kwargs)

    async def check_anchor(self, number: int, digest: str) -> None:
        """Compare the digest of a record with one that was saved earlier.

        The hash chain shows changed records. It does not show missing records at its end, or that another
        chain replaced it: a program that can write the database can do both. Raises StoreError
        (registry.broken-chain).
        """
        records = await self.log(after=number - 1, limit=1) if number else ()
        if (number, digest) == (0, GENESIS) or (number, digest) in {
            (record.number, record.digest) for record in records
        }:
            return
        raise StoreError(
            f"record {number} is missing or has another digest than the one that was saved",
            code="registry.broken-chain",
            field=str(number),
            hint="The log was cut or replaced. Restore a backup and keep this file as evidence.",
        )

    async def head(self) -> Head:
        """Return the end of the log. Its digest proves later that no earlier record changed."""
        return await self._query(_writes.select_head)

    async def entry(self, registry: str, name: str) -> Entry | None:
        """Return the entry with this name (any case if the registry ignores case), or None."""
        return await self._query(_writes.select_entry, registry, name)

    async def entries(
        self,
        registry: str,
        *,
        query: str = "",
        status: Status | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[Entry]:
        """Return entries by name: those that contain `query` in name or text, and have `status`.

        `after` is the `next` of the previous page. Raises RegistryError (store.bad-cursor,
        store.bad-limit).
        """
        return await self._query_snapshot(queries.select_entries, registry, query, status, after, limit)

    async def count_by_status(self, registry: str) -> dict[Status, int]:
        """Return the number of entries by status, without the statuses that no entry has."""
        return await self._query(queries.count_by_status, registry)

    async def compute_statistics(self) -> Statistics:
        """Return the statistics of all registries. The time that this takes grows with the requests."""
        return await self._query_snapshot(compute_statistics)

    async def names(self, registry: str) -> tuple[str, ...]:
        """Return every name of a registry, in order."""
        return await self._query(queries.select_names, registry)

    async def search(
        self, registry: str | None, text: str, limit: int = 20, *, near: bool = True
    ) -> tuple[Entry, ...]:
        """Return entries that contain `text`: first the exact name, then its beginning, a part, other fields.

        If there are none, the result is the entries whose name is one letter away, unless `near` is false.
        `registry` None searches all registries. One or two letters are searched for in names only.
        """
        if registry is not None:
            self._get_registry(registry)
        return await self._query_snapshot(
            queries.search_entries, registry, text, require_limit(limit), near=near
        )

    async def request(self, id: str) -> Request | None:  # noqa: A002 - what the caller has
        """Return the request with this ID, or None."""
        return await self._query(_writes.select_request, id)

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
        if registry is not None and name is not None:
            name = self._get_registry(registry).normalize_name(name)
        columns: dict[str, str | None] = {
            "registry": registry, "state": state, "holder": holder, "registrant": registrant, "name": name
        }  # fmt: skip
        return await self._query_snapshot(queries.select_requests, columns, after, limit)

    async def open_requests(self, registry: str, name: str, *, limit: int = 50) -> tuple[Request, ...]:
        """Return the requests about a name that have not ended, the oldest first."""
        key = self._get_registry(registry).normalize_name(name)
        return await self._query_snapshot(queries.select_open_requests, registry, key, limit)

    async def log(self, *, after: int = 0, limit: int = 500) -> tuple[LogRecord, ...]:
        """Return log records after number `after`, oldest first.

        Long records make shorter pages than `limit`, with at least one record: only an empty page is the end.
        """
        return await self._query_snapshot(queries.select_records, after, limit)

    async def history(
        self, registry: str, name: str, *, after: int = 0, limit: int = 1000
    ) -> tuple[LogRecord, ...]:
        """Return the records about a name and its requests, oldest first; pages are as for `log`."""
        key = self._get_registry(registry).normalize_name(name)
        return await self._query_snapshot(queries.select_records, after, limit, registry=registry, name=key)

    async def changes(self, registry: str | None, *, limit: int = 50) -> tuple[_writes.EntryChange, ...]:
        """Return the last changes that a public column of the registry shows, newest first.

        Without a registry, the changes of all registries.

        Long changes make shorter pages than `limit`, with at least one change.
        """
        return await self._query_snapshot(queries.select_shown_changes, registry, limit)

    async def list_outcomes(
        self, limit: int = 50
    ) -> tuple[tuple[LogRecord, _writes.EntryChange | None], ...]:
        """Return the last records that changed an entry or ended a request, newest first, without imports.

        Long records make shorter pages than `limit`, with at least one record.
        """
        return await self._query_snapshot(queries.select_outcomes, limit)

    async def list_changes_of_name(
        self, registry: str, name: str, *, below: int | None = None, limit: int = 1000
    ) -> tuple[_writes.EntryChange, ...]:
        """Return the changes of a name's entries before record `below`, newest first; pages as for `log`."""
        return await self._query_snapshot(queries.select_changes_of_name, registry, name, below, limit)

    async def request_history(
        self,
        id: str,  # noqa: A002
        *,
        after: int = 0,
        limit: int = 1000,
    ) -> tuple[LogRecord, ...]:
        """Return the records about a request, oldest first. Raises UnknownEntryError if it does not exist."""
        records = await self._query_snapshot(queries.select_records, after, limit, request=id)
        if not records and after == 0:
            raise UnknownEntryError(
                "there is no request with this ID", code="registry.unknown-request", field="request"
            )
        return records

    async def list_due_events(self, at: datetime) -> tuple[Event, ...]:
        """Return the events of timers that are due at `at`; apply them one by one as IANA_CLOCK."""
        found = await self._query_snapshot(queries.select_timed, at.date())
        with use_catalog(self.catalog):
            return tuple(engine_due(*found, at))

    # ---------- care

    async def verify(self) -> _writes.Verified:
        """Check the hash chain, and compare every table with the log.

        Raises StoreError at the first fault: registry.broken-chain with the record's number,
        registry.replay-failed, registry.projection-differs, registry.corrupt.
        """
        return await self._query_snapshot(_maintenance.verify_database, self._decide)

    async def backup(self, path: str | Path, *, portable: bool = False) -> None:
        """Write a consistent copy, while others read and write; `path` is replaced when it is complete.

        SQLite gives a database file, PostgreSQL (and SQLite if `portable`) JSON Lines for `restore`.
        The copy contains password hashes; only its owner may read it.
        """
        target = Path(path)
        _maintenance.require_other_target(self._database.path, target)
        if self._database.path is None or portable:
            await _maintenance.dump_portable(self._database, target)
        else:
            await _maintenance.copy_sqlite(self._database.path, target)


async def restore(
    source: str | Path, url: str | Path | Secret, *, decide: Decide = engine_decide
) -> _writes.Verified:
    """Restore a backup of either form into an empty registry at `url`, which is created if necessary.

    Raises StoreError (registry.bad-backup, registry.not-empty, registry.broken-chain); then only the empty
    tables are written.
    """
    path = Path(source)
    if _maintenance.is_sqlite_file(path):
        return await _restore_file(path, url, decide)
    async with await Store.open(url, create=True, decide=decide) as store:
        return await _maintenance.load_portable(store._database, path, decide)


async def _restore_file(source: Path, url: str | Path | Secret, decide: Decide) -> _writes.Verified:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """The deliveries to one webhook. `reason` is why the last one failed that was not sent since."""

    waiting: int
    sent: int
    given_up: int
    last_sent: datetime | None
    reason: str | None


#: begins the recipient of a delivery to a webhook; IDs of accounts and roles have no colon
_WEBHOOK: Final = "webhook:"


def _build_recipient(webhook: str | None) -> str | None:
    return None if webhook is None else _WEBHOOK + webhook


#: time for which a claimed notice belongs to one sender
LEASE: Final = timedelta(minutes=5)
#: characters of a stored reason
_MAX_REASON: Final = 500


class Outbox:
    """`store.outbox`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, at: datetime, limit: int = 50, *, lease: timedelta = LEASE, webhook: str | None = None
    ) -> tuple[_writes.OutboxNotice, ...]:
        """Claim notices that are ready at `at`, the oldest first, for one sender until `at + lease`.

        They are the notices for people, or those for a webhook.
        """
        require_limit(limit)
        to = _build_recipient(webhook)

        async def work(connection: AsyncConnection) -> tuple[_writes.OutboxNotice, ...]:
            mine = (
                schema.outbox.c.recipient.not_like(f"{_WEBHOOK}%")
                if to is None
                else schema.outbox.c.recipient == to
            )
            ready = (
                select(schema.outbox)
                .where(schema.outbox.c.ready <= at, mine)
                .order_by(schema.outbox.c.id)
                .limit(limit)
            )
            rows = (await connection.execute(ready)).all()
            claimed = update(schema.outbox).where(schema.outbox.c.id.in_([row.id for row in rows]))
            await connection.execute(claimed.values(ready=at + lease, attempts=schema.outbox.c.attempts + 1))
            return tuple(_decode_notice(row) for row in rows)

        return await self._database.run_transaction(work)

    async def add_changes(
        self,
        webhook: str,
        registries: Sequence[str],
        at: datetime,
        *,
        render: Callable[[_writes.EntryChange], str],
        limit: int,
        start: int | None = None,
    ) -> int:
        """Add a notice for each change since the last one of this webhook; return how many were added.

        Changes are those that a public column of one of the `registries` (none: of any) shows. A new webhook
        begins at the end of the log, or after record `start`. `render` returns the text of a notice.
        """
        to = _build_recipient(webhook)

        async def work(connection: AsyncConnection) -> int:
            mine = schema.outbox.c.recipient == to
            last = (await connection.execute(select(func.max(schema.outbox.c.number)).where(mine))).scalar()
            row: dict[str, object] = {
                "recipient": to,
                "is_role": False,
                "subject": "",
                "request": None,
                "attempts": 0,
            }
            if last is None and start is None:
                head = await _writes.select_head(connection)
                if head.number:  # a row that was sent marks where the webhook begins
                    row |= {"number": head.number, "registry": "", "text": "", "ready": None, "sent": at}
                    await connection.execute(insert(schema.outbox), [row])
                return 0
            begin = last if last is not None else start or 0
            found = await queries.select_changes_after(connection, registries, begin, limit)
            rows = [
                row
                | {
                    "number": change.number,
                    "registry": _get_registry(change),
                    "text": render(change),
                    "ready": at,
                    "sent": None,
                }
                for change in found
            ]
            if rows:
                await connection.execute(insert(schema.outbox), rows)
            return len(rows)

        return await self._database.run_transaction(work)

    async def count_deliveries(self, webhook: str) -> Deliveries:
        """Return how many deliveries to a webhook wait, were sent and were given up, and the last failure."""
        mine = schema.outbox.c.recipient == _build_recipient(webhook)
        # the row that marks where the webhook begins has no text
        tried = and_(mine, schema.outbox.c.text != "")
        counted = select(
            func.count().filter(schema.outbox.c.ready.is_not(None)).label("waiting"),
            func.count().filter(schema.outbox.c.sent.is_not(None)).label("sent"),
            func.count()
            .filter(schema.outbox.c.sent.is_(None), schema.outbox.c.ready.is_(None))
            .label("given_up"),
            func.max(schema.outbox.c.sent).label("last_sent"),
        ).where(tried)
        failed = select(schema.outbox.c.reason).where(
            tried, schema.outbox.c.reason.is_not(None), schema.outbox.c.sent.is_(None)
        )
        async with self._database.open_reader(snapshot=True) as connection:
            row = (await connection.execute(counted)).one()
            reason = (await connection.execute(failed.order_by(schema.outbox.c.id.desc()).limit(1))).scalar()
        return Deliveries(
            waiting=row.waiting, sent=row.sent, given_up=row.given_up, last_sent=row.last_sent, reason=reason
        )

    async def mark_sent(self, id: int, at: datetime) -> None:  # noqa: A002 - what the caller has
        """Record that the notice was sent. Raises UnknownEntryError."""
        await self._update_notice(id, ready=None, sent=at, reason=None)

    async def mark_failed(self, id: int, at: datetime, retry_at: datetime | None, reason: str) -> None:  # noqa: A002
        """Record a failure; the next attempt is at `retry_at` (None: never). Raises UnknownEntryError."""
        await self._update_notice(id, ready=retry_at, reason=replace_unstorable(reason[:_MAX_REASON]))

    async def _update_notice(self, identifier: int, **values: object) -> None:
        async def work(connection: AsyncConnection) -> None:
            # a sent notice stays sent, also if a slow second sender reports a failure
            statement = update(schema.outbox).where(
                schema.outbox.c.id == identifier, schema.outbox.c.sent.is_(None)
            )
            done = await connection.execute(statement.values(**values))
            if done.rowcount:
                return
            known = await connection.execute(
                select(schema.outbox.c.id).where(schema.outbox.c.id == identifier)
            )
            if known.scalar() is None:
                raise UnknownEntryError(
                    "there is no notice with this ID", code="registry.unknown-notice", field="id"
                )

        await self._database.run_transaction(work)


def _get_registry(change: _writes.EntryChange) -> str:
    about = change.after or change.before
    assert about is not None  # noqa: S101 - a change has one
    return about.registry


def _decode_notice(row: Row[Any]) -> _writes.OutboxNotice:
    return _writes.OutboxNotice(
        id=row.id,
        registry=row.registry,
        request=row.request,
        to=Role(row.recipient) if row.is_role else row.recipient,
        subject=row.subject,
        text=row.text,
        attempts=row.attempts + 1,
        number=row.number,
    )
