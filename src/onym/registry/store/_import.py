"""Many entries at once, from a published registry: each an IMPORT event, all in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.errors import RefusalError, StoreError
from onym.registry.chain import seal
from onym.registry.codec import to_data
from onym.registry.records import Actor, Decision, Entry, Event, EventKind
from onym.registry.registries import registry as registry_of
from onym.registry.store._changes import last_versions, numbered
from onym.registry.store._rows import log_row, notice_row, read_value, storable
from onym.registry.store._tables import entries, log, outbox
from onym.registry.store._types import Applied, Decide, Head, ImportReport, Irregularity
from onym.registry.store._write import Changes, checked_event, head_of

__all__ = ["BATCH", "import_all"]

#: rows that go to the database together
BATCH: Final = 1000


async def import_all(
    connection: AsyncConnection,
    decide: Decide,
    registry: str,
    given: Iterable[Entry],
    actor: Actor,
    at: datetime,
    source: str,
    progress: Callable[[int], object] | None = None,
) -> ImportReport:
    """Every entry through the engine as an IMPORT event; all of it, or nothing.

    `progress` is told after each batch how many entries are done.
    """
    run = _Import(decide, registry_of(registry).id, actor, at, source, await head_of(connection))
    statement = select(entries.c.name, entries.c.record).where(entries.c.registry == registry)
    for name, record in (await connection.execute(statement)).all():
        run.present[name] = read_value(Entry, record)
    run.last = await last_versions(connection, registry)
    done = 0
    for batch in _batches(given):
        rows, notices, changes = run.decide_all(batch)
        if rows:
            await connection.execute(insert(log), rows)
        await changes.write(connection)
        if notices:
            await connection.execute(insert(outbox), notices)
        done += len(batch)
        if progress is not None:
            progress(done)
    return run.report()


class _Import:
    """An import under way: what was there, what the source brought, how it went."""

    def __init__(
        self, decide: Decide, registry: str, actor: Actor, at: datetime, source: str, head: Head
    ) -> None:
        self._decide, self._registry, self._actor = decide, registry, actor
        self._at, self._source, self._head = at, source, head
        self.present: dict[str, Entry] = {}
        #: the last versions of names that were registered once
        self.last: dict[str, int] = {}
        self._seen: set[str] = set()
        self._counts = {"added": 0, "changed": 0, "same": 0}
        self._irregular: list[Irregularity] = []

    def decide_all(
        self, batch: Sequence[Entry]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Changes]:
        """Rows of the log and of the outbox, and the changes, that these entries make."""
        rows: list[dict[str, Any]] = []
        notices: list[dict[str, Any]] = []
        changes = Changes()
        for entry in batch:
            try:
                found = self._one(entry, changes)
            except RefusalError as error:
                if error.code == "registry.wrong-role":
                    # of the actor, and so of every row
                    raise
                self._report(entry, str(error), taken=False)
                continue
            if found is not None:
                rows.append(log_row(found.record, found.record.event.name))
                notices += [notice_row(each, found.record) for each in found.decision.notices]
        return rows, notices, changes

    def _one(self, entry: Entry, changes: Changes) -> Applied | None:
        from onym.registry.iana import as_imported  # late: an import alone needs it

        key = registry_of(self._registry).key(entry.name)
        if not storable(key):
            raise RefusalError("no database holds that name", code="registry.bad-data", field="name")
        if entry.registry != self._registry:
            raise RefusalError("the row is of another registry", code="registry.bad-data", field="registry")
        if key in self._seen:
            raise RefusalError("the source has the name twice", code="registry.duplicate", field="name")
        self._seen.add(key)
        before = self.present.get(key)
        entry, left_out = as_imported(entry, before)
        if left_out is not None:
            self._report(entry, left_out, taken=True)
        event = self._event(key, entry)
        decision = self._decide(event, self._actor, self._at, request=None, entry=before)
        decision = numbered(decision, before, self.last.get(key, 0))
        if _same(before, decision):
            self._counts["same"] += 1
            return None
        record = seal(
            self._head,
            at=self._at,
            actor=self._actor,
            event=event,
            rule=decision.rule,
            clause=decision.clause,
        )
        changes.take(decision, before, record)
        self._head = Head(number=record.number, digest=record.digest, at=record.at)
        self._counts["added" if before is None else "changed"] += 1
        return Applied(record=record, decision=decision)

    def _report(self, entry: Entry, reason: str, *, taken: bool) -> None:
        name = entry.name.encode("utf-8", "replace").decode().replace("\0", "?")
        self._irregular.append(Irregularity(name=name, reason=reason, taken=taken))

    def _event(self, key: str, entry: Entry) -> Event:
        try:
            data = {"entry": to_data(entry), "source": self._source}
        except StoreError as error:
            raise RefusalError(error.message, code="registry.bad-data", field=error.field) from None
        return checked_event(Event(kind=EventKind.IMPORT, registry=self._registry, name=key, data=data))

    def report(self) -> ImportReport:
        """How it went."""
        absent = tuple(sorted(self.present.keys() - self._seen))
        return ImportReport(**self._counts, absent=absent, irregular=tuple(self._irregular))


def _same(before: Entry | None, decision: Decision) -> bool:
    """Would nothing change but the count of changes?"""
    after = decision.entry
    if before is None or after is None:
        return False
    return replace(after, version=before.version, updated=before.updated) == before


def _batches(given: Iterable[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    for entry in given:
        batch.append(entry)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
