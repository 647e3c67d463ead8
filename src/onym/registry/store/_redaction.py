"""Remove personal data from the log, with a record of what was removed.

The lines that contain a text lose their text and their salt, and keep the commitment that their record's
digest covers. The digests and the chain therefore stay as they were, and anyone can verify that nothing else
was changed. A REDACT record lists the lines. For a record of an older release, which has no salts, the REDACT
record contains a digest of what remains (docs/decisions/0056).

Entries, requests and the search index are rebuilt from the log without the text, and notices lose it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import RefusalError, StoreError
from onym.registry.codec import REMOVED_TEXT, compute_digest, is_unsalted_remainder, iter_lines, remove_lines
from onym.registry.engine import Decide
from onym.registry.records import Actor, Event, EventKind, LogRecord
from onym.registry.store import _writes
from onym.registry.store.schema import frames, log, outbox

#: characters of a text to remove; a shorter one would be a part of many words
MIN_REMOVED: Final = 4
MAX_REMOVED: Final = 1000
#: log records that are read at once
_BATCH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What a redaction removed, or would remove: the places of lines by record, and the new record's number.

    `number` is None if nothing was changed.
    """

    places: Mapping[int, tuple[str, ...]]
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLines:
    """A record with a text, the places of the lines that contain it, and the name of the record's row."""

    record: LogRecord
    places: frozenset[str]
    name: str | None


@dataclass(slots=True)
class RedactionCheck:
    """Compares what is missing in the records of a log with what its REDACT records list."""

    #: record -> the lines that it lost
    _lost: dict[int, frozenset[str]] = field(default_factory=dict)
    #: record without salts -> the digest of what remains
    _remainders: dict[int, str] = field(default_factory=dict)
    _listed: dict[int, set[str]] = field(default_factory=dict)
    _forms: dict[int, str] = field(default_factory=dict)

    def add_record(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        if record.removed:
            self._lost[record.number] = frozenset(record.removed)
        if is_unsalted_remainder(record):
            self._remainders[record.number] = compute_digest(record)
        if record.event.kind is not EventKind.REDACT:
            return
        listed = record.event.data.get("records")
        for number, item in (listed if isinstance(listed, Mapping) else {}).items():
            key = int(number) if str(number).isdecimal() else 0
            self._listed.setdefault(key, set()).update(map(str, item.get("places", ())))
            if "remainder" in item:
                self._forms[key] = str(item["remainder"])

    def require_complete(self) -> None:
        """Raise StoreError (registry.broken-chain) if something else was removed than the log says."""
        for number in sorted(self._lost.keys() | self._listed.keys()):
            if self._lost.get(number, frozenset()) != self._listed.get(number, set()):
                raise _make_broken_error(number, "lost other texts than the records of redactions list")
            if self._remainders.get(number) != self._forms.get(number):
                raise _make_broken_error(number, "differs from what its redaction left")


def _make_broken_error(number: int, reason: str) -> StoreError:
    return StoreError(
        f"record {number} {reason}",
        code="registry.broken-chain",
        field=str(number),
        hint="Another program changed the log. Restore a backup and keep this file as evidence.",
    )


def require_removable(wanted: str) -> str:
    """Return the text to remove, without white space around it. Raises RefusalError (registry.bad-data)."""
    stripped = wanted.strip()
    if not MIN_REMOVED <= len(stripped) <= MAX_REMOVED or "\n" in stripped:
        raise RefusalError(
            f"the text to remove is not one line of {MIN_REMOVED} to {MAX_REMOVED:,} characters",
            code="registry.bad-data",
            field="text",
            hint="Give the complete address or name.",
        )
    return stripped


async def find_lines(connection: AsyncConnection, registry: str, wanted: str) -> list[FoundLines]:
    """Return the records of the registry that contain the text, in any case, with the places of its lines."""
    found: list[FoundLines] = []
    folded, after = wanted.casefold(), 0
    while True:
        statement = select(log.c.number, log.c.name, log.c.registry, log.c.record)
        rows = (
            await connection.execute(
                statement.where(log.c.number > after).order_by(log.c.number).limit(_BATCH)
            )
        ).all()
        for row in rows:
            after = row.number
            if row.registry != registry:
                continue
            record = _writes.decode_record(LogRecord, row.record)
            places = frozenset(
                place for place, line in iter_lines(record.event.data) if folded in line.casefold()
            )
            if places:
                found.append(FoundLines(record=record, places=places, name=row.name))
        if len(rows) < _BATCH:
            return found


async def redact_log(
    connection: AsyncConnection,
    decide: Decide,
    registry: str,
    wanted: str,
    actor: Actor,
    at: datetime,
    reason: str,
) -> Redaction:
    """Remove the text from the log and the notices, and append the REDACT record.

    The caller rebuilds what follows from the log. Raises RefusalError.
    """
    found = await find_lines(connection, registry, wanted)
    rows: list[dict[str, Any]] = []
    listed: dict[str, dict[str, Any]] = {}
    for lines in found:
        remainder = remove_lines(lines.record, lines.places)
        rows.append(_writes.make_log_row(remainder, lines.name))
        listed[str(remainder.number)] = {"places": sorted(lines.places)}
        if is_unsalted_remainder(remainder):
            listed[str(remainder.number)]["remainder"] = compute_digest(remainder)
    if not listed:
        raise RefusalError(
            f"no record of {registry} contains this text",
            code="registry.nothing-to-remove",
            field="text",
            hint="Check the spelling, and the registry (-r).",
        )
    event = _writes.require_storable_event(
        Event(kind=EventKind.REDACT, registry=registry, data={"reason": reason, "records": listed})
    )
    decision = decide(event, actor, at, request=None, entry=None)
    await _replace_records(connection, rows)
    record = _writes.seal_decision(
        await _writes.select_head(connection), decision, at=at, actor=actor, event=event
    )
    await connection.execute(insert(log), _writes.make_log_row(record, None))
    await _redact_notices(connection, registry, wanted)
    await _forget_frame(connection, registry, wanted)
    return Redaction(places=list_places(found), number=record.number)


def list_places(found: Iterable[FoundLines]) -> dict[int, tuple[str, ...]]:
    """Return the places of lines by the number of their record."""
    return {lines.record.number: tuple(sorted(lines.places)) for lines in found}


async def rebuild_search_index(connection: AsyncConnection) -> None:
    """Rebuild SQLite's search index, whose older parts keep deleted texts."""
    if connection.dialect.name == "sqlite":
        await connection.execute(text("INSERT INTO entry_fts(entry_fts) VALUES ('rebuild')"))


#: PostgreSQL's guard of the log
_GUARD: Final = "log_no_change"
_SQLITE_GUARD: Final = "log_no_update"


async def _replace_records(connection: AsyncConnection, rows: Iterable[dict[str, Any]]) -> None:
    """Replace rows of the log in this transaction, in which its guard rests."""
    is_sqlite = connection.dialect.name == "sqlite"
    guard = ""
    if is_sqlite:
        query = text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name")
        guard = str((await connection.execute(query, {"name": _SQLITE_GUARD})).scalar_one())
        # the pages that are free afterwards do not keep the text
        await connection.execute(text("PRAGMA secure_delete = ON"))
        await connection.execute(text(f"DROP TRIGGER {_SQLITE_GUARD}"))
    else:
        await connection.execute(text(f"ALTER TABLE log DISABLE TRIGGER {_GUARD}"))
    for row in rows:
        await connection.execute(
            update(log).where(log.c.number == row["number"]).values(record=row["record"])
        )
    if is_sqlite:
        await connection.execute(text(guard))
    else:
        await connection.execute(text(f"ALTER TABLE log ENABLE TRIGGER {_GUARD}"))


async def _forget_frame(connection: AsyncConnection, registry: str, wanted: str) -> None:
    """Delete the imported file of the registry if it contains the text."""
    own = frames.c.registry == registry
    document = (await connection.execute(select(frames.c.document).where(own))).scalar()
    if document is not None and wanted.casefold() in str(document).casefold():
        await connection.execute(delete(frames).where(own))


async def _redact_notices(connection: AsyncConnection, registry: str, wanted: str) -> None:
    own = outbox.c.registry == registry
    # `lower` of SQLite folds only ASCII, so every notice is looked at
    rows = (await connection.execute(select(outbox.c.id, outbox.c.subject, outbox.c.text).where(own))).all()
    for row in rows:
        subject, body = _remove_text(row.subject, wanted), _remove_text(row.text, wanted)
        if (subject, body) != (row.subject, row.text):
            await connection.execute(
                update(outbox).where(outbox.c.id == row.id).values(subject=subject, text=body)
            )


def _remove_text(given: str, wanted: str) -> str:
    folded = wanted.casefold()
    return "\n".join(REMOVED_TEXT if folded in line.casefold() else line for line in given.split("\n"))
