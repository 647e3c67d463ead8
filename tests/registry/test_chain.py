"""The chain: every change to the log is seen, and the number says where."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chain_support import verify_chain
from onym.errors import StoreError
from onym.registry.codec import GENESIS, canonicalize_json, compute_digest, seal_record, to_data, verify_link
from onym.registry.records import IANA_CLOCK, Actor, Event, EventKind, LogRecord, Role

AT = datetime(2026, 1, 1, tzinfo=UTC)


def chain(length: int) -> list[LogRecord]:
    records: list[LogRecord] = []
    for number in range(length):
        event = Event(kind=EventKind.REVISE, registry="uri-schemes", request=f"uri-schemes-{number}")
        records.append(
            seal_record(
                records[-1] if records else None,
                at=AT + timedelta(hours=number),
                actor=IANA_CLOCK,
                event=event,
                rule="R3",
                clause="RFC 7595 7.2",
            )
        )
    return records


def test_the_first_record_follows_sixty_four_zeros() -> None:
    (first,) = chain(1)
    assert (first.number, first.previous) == (1, "0" * 64)
    assert GENESIS == "0" * 64


def test_the_digest_is_sha256_over_the_sorted_json_of_the_rest() -> None:
    record = chain(2)[1]
    data = to_data(record)
    assert data.pop("digest") == record.digest
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert record.digest == hashlib.sha256(text.encode()).hexdigest() == compute_digest(record)
    assert record.previous == chain(1)[0].digest


def test_a_whole_chain_holds_and_is_counted() -> None:
    assert verify_chain(chain(7)) == 7


CHANGES = {
    "at": lambda record: replace(record, at=record.at + timedelta(microseconds=1)),
    "actor": lambda record: replace(record, actor=Actor(id="mallory", roles=frozenset({Role.IANA}))),
    "event": lambda record: replace(record, event=replace(record.event, name="x")),
    "rule": lambda record: replace(record, rule="X"),
    "clause": lambda record: replace(record, clause=""),
    "number": lambda record: replace(record, number=record.number + 1),
    "previous": lambda record: replace(record, previous="f" * 64),
    "digest": lambda record: replace(record, digest="f" * 64),
}


@pytest.mark.parametrize("member", CHANGES)
@given(at=st.integers(min_value=0, max_value=4))
def test_a_changed_record_breaks_the_chain_at_its_number(member: str, at: int) -> None:
    records = chain(5)
    records[at] = CHANGES[member](records[at])
    with pytest.raises(StoreError) as caught:
        verify_chain(records)
    assert (caught.value.code, caught.value.field) == ("registry.broken-chain", str(at + 1))


def test_a_record_sealed_anew_after_a_change_breaks_the_next_one() -> None:
    records = chain(3)
    changed = replace(records[1], rule="X")
    records[1] = replace(changed, digest=compute_digest(changed))
    with pytest.raises(StoreError) as caught:
        verify_chain(records)
    assert (caught.value.code, caught.value.field) == ("registry.broken-chain", "3")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_record_breaks_the_chain_there(missing: int) -> None:
    records = chain(4)
    del records[missing]
    with pytest.raises(StoreError) as caught:
        verify_chain(records)
    assert caught.value.field == str(missing + 1)


def test_records_in_another_order_break_the_chain() -> None:
    records = chain(3)
    with pytest.raises(StoreError, match=r"\b0\b.*\b2\b") as caught:
        verify_chain([records[1], records[0], records[2]])
    assert (caught.value.code, caught.value.field) == ("registry.broken-chain", "1")


def test_one_link_is_checked_against_the_one_before() -> None:
    first, second = chain(2)
    verify_link(first, second)
    with pytest.raises(StoreError):
        verify_link(None, second)


def test_canonical_text_is_sorted_and_holds_no_escapes_but_those_of_json() -> None:
    assert canonicalize_json({"b": [1, None, True], "a": "ü\n\0"}) == '{"a":"ü\\n\\u0000","b":[1,null,true]}'


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), b"x", {1}, "\ud800", {(1, 2): 3}])
def test_what_has_no_canonical_text_is_refused(value: object) -> None:
    with pytest.raises(StoreError) as caught:
        canonicalize_json({"x": value})
    assert caught.value.code == "registry.bad-record"


def test_a_value_without_end_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(StoreError):
        canonicalize_json(endless)
