"""JSON forms: what goes in comes out, and nothing else is let in."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import StoreError
from onym.registry.codec import MAX_DEPTH, Codable, decode_time, encode_time, from_data, to_data
from onym.registry.records import (
    IANA_CLOCK,
    Actor,
    DraftReference,
    Entry,
    Event,
    EventKind,
    LogRecord,
    Note,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from support import as_subtests

AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TIMES = st.datetimes(timezones=st.just(UTC))
COUNTS = st.integers(min_value=0, max_value=1 << 53)
TEXTS = st.dictionaries(TEXT, TEXT, max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | COUNTS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


ACTORS = st.builds(Actor, id=TEXT, roles=st.frozensets(st.sampled_from(Role)))
NOTES = st.builds(Note, kind=TEXT, text=TEXT, at=TIMES, by=TEXT)
DRAFTS = st.builds(DraftReference, name=TEXT, expires=st.dates())
EVENTS = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    registry=TEXT,
    request=maybe(TEXT),
    name=maybe(TEXT),
    data=st.dictionaries(TEXT, JSON, max_size=3),
)
VALUES: dict[type[Codable], st.SearchStrategy[Any]] = {
    Actor: ACTORS,
    Note: NOTES,
    DraftReference: DRAFTS,
    Event: EVENTS,
    Entry: st.builds(
        Entry,
        registry=TEXT,
        name=TEXT,
        status=st.sampled_from(Status),
        fields=TEXTS,
        spelling=maybe(TEXT),
        registrant=maybe(TEXT),
        designees=st.frozensets(TEXT, max_size=3),
        iesg_approved=st.booleans(),
        notes=st.lists(NOTES, max_size=2).map(tuple),
        draft=maybe(DRAFTS),
        pending=st.lists(TEXT, max_size=3).map(tuple),
        expires=maybe(st.dates()),
        registered=maybe(TIMES),
        updated=maybe(TIMES),
        version=COUNTS,
    ),
    Request: st.builds(
        Request,
        id=TEXT,
        registry=TEXT,
        profile=TEXT,
        kind=st.sampled_from(RequestKind),
        name=TEXT,
        status=st.sampled_from(Status),
        state=st.sampled_from(RequestState),
        registrant=TEXT,
        fields=TEXTS,
        template=TEXT,
        opened=TIMES,
        since=TIMES,
        holder=maybe(st.sampled_from(Role)),
        due=maybe(TIMES),
        timed_out=st.booleans(),
        version=COUNTS,
    ),
    LogRecord: st.builds(
        LogRecord,
        number=COUNTS,
        at=TIMES,
        actor=ACTORS,
        event=EVENTS,
        rule=TEXT,
        clause=TEXT,
        previous=TEXT,
        digest=TEXT,
    ),
}
ENTRY = Entry(registry="uri-schemes", name="conti", status=Status.PROVISIONAL)


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_what_is_written_is_json_and_reads_back_as_it_was(cls: type[Any], data: st.DataObject) -> None:
    value = data.draw(VALUES[cls])
    text = json.dumps(to_data(value), allow_nan=False)
    assert from_data(cls, json.loads(text)) == value
    assert to_data(from_data(cls, json.loads(text))) == json.loads(text)


def test_an_entry_has_this_form() -> None:
    entry = replace(
        ENTRY,
        fields={"reference": "[RFC 9999]"},
        designees=frozenset({"zoe", "adam"}),
        notes=(Note(kind="security", text="…", at=AT, by="zoe"),),
        draft=DraftReference(name="draft-x-00", expires=date(2026, 7, 6)),
        version=3,
    )
    assert to_data(entry) == {
        "v": 1,
        "registry": "uri-schemes",
        "name": "conti",
        "status": "provisional",
        "fields": {"reference": "[RFC 9999]"},
        "designees": ["adam", "zoe"],
        "notes": [{"kind": "security", "text": "…", "at": "2026-01-02T03:04:05.000006Z", "by": "zoe"}],
        "draft": {"name": "draft-x-00", "expires": "2026-07-06"},
        "version": 3,
    }


def test_what_holds_its_default_is_left_out_so_that_new_fields_change_no_old_record() -> None:
    assert to_data(ENTRY) == {
        "v": 1, "registry": "uri-schemes", "name": "conti", "status": "provisional"
    }  # fmt: skip
    assert from_data(Entry, {**to_data(ENTRY), "draft": None, "notes": []}) == ENTRY


def test_only_what_stands_alone_carries_a_version() -> None:
    assert "v" not in to_data(IANA_CLOCK)
    for data in (
        {**to_data(ENTRY), "v": 2},
        {name: item for name, item in to_data(ENTRY).items() if name != "v"},
    ):
        with pytest.raises(StoreError) as caught:
            from_data(Entry, data)
        assert (caught.value.code, caught.value.field) == ("registry.bad-record", "entry.v")


@as_subtests(
    ("member", "value", "where"),
    [
        ("colour", "red", "entry"),
        ("name", 3, "entry.name"),
        ("name", "\ud800", "entry.name"),
        ("status", "lost", "entry.status"),
        ("fields", ["a"], "entry.fields"),
        ("fields", {"a": 1}, "entry.fields.a"),
        ("designees", "adam", "entry.designees"),
        ("notes", [{"kind": "k"}], "entry.notes[0].text"),
        ("notes", [3], "entry.notes[0]"),
        ("iesg_approved", 1, "entry.iesg_approved"),
        ("version", True, "entry.version"),
        ("version", "1", "entry.version"),
        ("registered", "2026-01-02T03:04:05", "entry.registered"),
        ("registered", "yesterday", "entry.registered"),
        ("expires", "2026-13-01", "entry.expires"),
    ],
)
def test_a_wrong_member_is_refused_by_its_place(member: str, value: object, where: str) -> None:
    with pytest.raises(StoreError) as caught:
        from_data(Entry, {**to_data(ENTRY), member: value})
    assert (caught.value.code, caught.value.field) == ("registry.bad-record", where)


@pytest.mark.parametrize("data", [None, [], "entry", 3])
def test_what_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(StoreError) as caught:
        from_data(Entry, data)
    assert (caught.value.code, caught.value.field) == ("registry.bad-record", "entry")


def deep(depth: int) -> Any:
    return deep(depth - 1) if depth < 0 else [] if depth == 0 else [deep(depth - 1)]


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, {3: "a"}, b"octets", 1 << 63, AT, "\udfff", deep(MAX_DEPTH + 1)],
)
def test_an_event_takes_json_values_alone(value: object) -> None:
    event = Event(kind=EventKind.REVISE, registry="uri-schemes", data={"x": value})
    with pytest.raises(StoreError) as caught:
        to_data(event)
    assert caught.value.code == "registry.bad-record"


def test_an_event_takes_as_deep_a_value_as_it_says() -> None:
    event = Event(kind=EventKind.REVISE, registry="uri-schemes", data={"x": deep(MAX_DEPTH - 1)})
    assert from_data(Event, to_data(event)) == event


@pytest.mark.parametrize(
    "change",
    [
        {"name": None},
        {"fields": None},
        {"notes": ("text",)},
        {"expires": AT},
        {"registered": AT.replace(tzinfo=None)},
        {"version": 1.5},
    ],
)
def test_a_value_that_is_not_of_its_type_is_not_written(change: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        to_data(replace(ENTRY, **change))
    with pytest.raises(StoreError):
        to_data(cast(Codable, replace(IANA_CLOCK, roles=frozenset({"god"}))))


def test_times_are_utc_and_sort_as_text() -> None:
    elsewhere = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert encode_time(elsewhere) == encode_time(AT) == "2026-01-02T03:04:05.000006Z"
    assert decode_time("2026-01-02T08:34:05.000006+05:30") == AT
    assert (
        encode_time(AT) < encode_time(AT + timedelta(microseconds=1)) < encode_time(AT + timedelta(days=300))
    )


def test_the_data_of_an_event_are_an_object() -> None:
    with pytest.raises(StoreError) as caught:
        from_data(Event, {"kind": "open", "registry": "uri-schemes", "data": []})
    assert (caught.value.code, caught.value.field) == ("registry.bad-record", "event.data")
