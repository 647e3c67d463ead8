"""The registry as its log says: entries and requests, folded from the first record on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from onym.errors import RefusalError, StoreError
from onym.registry.engine._decide import decide
from onym.registry.records import Actor, Decision, Entry, Event, LogRecord, Request
from onym.registry.registries import registry

__all__ = ["Book", "rebuild"]


@dataclass(slots=True)
class Book:
    """Entries by (registry, name) and requests by id. `apply` is the one way to change it."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)

    def about(self, event: Event) -> tuple[Request | None, Entry | None]:
        """The request and the entry that `event` is about."""
        request = self.requests.get(event.request or "")
        name = request.name if request is not None else registry(event.registry).key(event.name or "")
        return request, self.entries.get((event.registry, name))

    def apply(self, event: Event, actor: Actor, at: datetime) -> Decision:
        """Decide, and take the decision in. Raises `RefusalError`; the book is then as it was."""
        request, entry = self.about(event)
        decision = decide(event, actor, at, request=request, entry=entry)
        if decision.request is not None:
            self.requests[decision.request.id] = decision.request
        if decision.removed:
            assert entry is not None  # noqa: S101
            del self.entries[entry.registry, entry.name]
        elif decision.entry is not None:
            self.entries[decision.entry.registry, decision.entry.name] = decision.entry
        return decision


def rebuild(records: Iterable[LogRecord]) -> Book:
    """The book that these records make, in their order.

    Raises `StoreError` (registry.replay-failed) where a record was accepted once and is refused, or
    decided by another rule, now.
    """
    book = Book()
    for record in records:
        try:
            decision = book.apply(record.event, record.actor, record.at)
        except RefusalError as error:
            raise _unlike(record, f"is refused now: {error.message}") from error
        if decision.rule != record.rule:
            raise _unlike(record, f"was decided by {record.rule}, and is by {decision.rule} now")
    return book


def _unlike(record: LogRecord, said: str) -> StoreError:
    return StoreError(
        f"record {record.number} of the log {said}",
        code="registry.replay-failed",
        hint="the log is of another release, or was changed by hand: onym registry verify",
    )
