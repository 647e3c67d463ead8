"""The log makes the registry; a log that tells another story is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onym.errors import StoreError
from onym.registry.codec import seal_record
from onym.registry.engine import RegistryState, replay_log
from onym.registry.records import Actor, Event, EventKind, LogRecord

from .table import ACTORS, AT, COMPLETE


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
    book = replay_log(told())
    assert book.entries["uri-schemes", "demo"].status == "provisional"
    assert book.requests["uri-schemes-1"].state == "approved"


def test_a_record_that_is_refused_now_is_named() -> None:
    with pytest.raises(StoreError, match="record 2 of the log is rejected now") as caught:
        replay_log(told()[1:])
    assert caught.value.code == "registry.replay-failed"


def test_a_record_decided_by_another_rule_is_named() -> None:
    log = told()
    with pytest.raises(
        StoreError, match="record 3 of the log was decided by rule I4, but rule I3 applies now"
    ):
        replay_log([*log[:2], replace(log[2], rule="I4")])
