"""The log makes the registry; tests/registry/store/test_verify.py has logs that do not fit."""

from __future__ import annotations

from onym.registry.codec import seal_record
from onym.registry.engine import RegistryState
from onym.registry.records import Actor, Event, EventKind, LogRecord

from .table import ACTORS, AT, COMPLETE, replay


def told() -> list[LogRecord]:
    book, log = RegistryState(), list[LogRecord]()
    story: list[tuple[EventKind, Actor, dict[str, object]]] = [
        (EventKind.OPEN, ACTORS["owner"], {"fields": COMPLETE, "status": "provisional"}),
        (EventKind.SUBMIT, ACTORS["owner"], {}),
        (EventKind.CHECK_COMPLETE, ACTORS["iana"], {}),
    ]
    for kind, actor, data in story:
        event = Event(kind=kind, registry="uri-schemes", request="uri-schemes-1", name="demo", data=data)
        decision = book.apply(event, actor, AT)
        log.append(
            seal_record(
                log[-1] if log else None,
                at=AT,
                actor=actor,
                event=event,
                rule=decision.rule,
                clause=decision.clause,
            )
        )
    return log


def test_a_log_makes_the_registry_that_it_made() -> None:
    book = replay(told())
    assert book.entries["uri-schemes", "demo"].status == "provisional"
    assert book.requests["uri-schemes-1"].state == "approved"
