"""Files that are joined onto a snapshot: parts, CRI numbers and contacts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from iana_support import codes, entry, load, own
from onym.errors import SnapshotError, UsageError
from onym.registry.iana import Snapshot, add_cri_numbers, combine_snapshots, load_builtin_snapshot


def test_numbers_join_by_name_and_the_rest_is_reported() -> None:
    before = load("2015-04-uri-schemes-1.csv")
    after = add_cri_numbers(before, own("cri-numbers.csv"))
    numbers = {row.name: row.fields.get("cri_number") for row in after.entries}
    assert (numbers["about"], numbers["shttp"], numbers["jabber"]) == ("3786", "7874", None)
    reasons = [(row.name, row.reason, row.line) for row in after.irregular if row.code == "cri-number"]
    assert reasons == [
        ("coap", "0 is for a scheme that is not registered", 2),
        ("nowhere", "20000 is for a scheme that is not registered", 5),
        ("nowhere", "20001 is for a scheme that is not registered", 6),
        ("jabber", "3786 is the number of about already", 7),
    ]
    assert "cri_number" in after.columns
    assert before.columns[-1] == "reference"


def test_the_entrys_own_number_stands() -> None:
    snapshot = Snapshot(registry="uri-schemes", entries=(entry("a", cri_number="7"), entry("b")))
    after = add_cri_numbers(snapshot, b"8,a\n9,b\n")
    assert [row.fields["cri_number"] for row in after.entries] == ["7", "9"]
    assert [(row.name, row.code, row.line) for row in after.irregular] == [("a", "cri-number", 1)]
    assert add_cri_numbers(after, b"7,a\n").entries == after.entries


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"x,a\n", "registry.not-numbers"),
        (b"01,a\n", "registry.not-numbers"),
        (b"1,a,b\n", "registry.not-numbers"),
        (b'1,"a"b\n', "registry.bad-csv"),
        (b"\xff", "registry.not-utf8"),
    ],
)
def test_a_file_without_numbers_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        add_cri_numbers(load_builtin_snapshot("uri-schemes"), data)
    assert caught.value.code == code


def test_a_name_in_two_parts_stays_where_it_came_first() -> None:
    first = load("2015-04-uri-schemes-2.csv")
    again = combine_snapshots(first, replace(first, entries=first.entries[:1], irregular=(), covers=None))
    assert again.entries == first.entries
    assert codes(again) == ["duplicate"]
    assert again.irregular[0].entry == first.entries[0]
    assert again.covers is None


def test_parts_are_of_one_registry() -> None:
    for parts in ((), (load_builtin_snapshot("uri-schemes"), load_builtin_snapshot("llm-parameters"))):
        with pytest.raises(UsageError):
            combine_snapshots(*parts)


def test_contacts_come_only_from_the_file_that_is_given() -> None:
    snapshot = load("uri-schemes-2022-11-18.csv", contacts=own("contacts.json"))
    contacts = {row.name: row.fields.get("contact") for row in snapshot.entries}
    assert contacts["jabber"] == "Peter Saint-Andre <peter@xmpp.example>"
    assert contacts["payment"] == "World Wide Web Consortium <https://www.w3.example>"
    assert contacts["aim"] == "Dave Thaler"
    assert contacts["about"] is None
    assert [row.name for row in snapshot.irregular if row.code == "contact-unknown"] == ["wpid"]


@pytest.mark.parametrize(
    "data",
    [{}, [1], [["a"]], [["a", "b", "c", "d", 5]], [["a", "b", "c", "d" * 2000, "e"]]],
)
def test_contacts_of_another_form_are_refused(data: object) -> None:
    with pytest.raises(SnapshotError) as caught:
        load("uri-schemes-2022-11-18.csv", contacts=json.dumps(data).encode())
    assert caught.value.code == "registry.bad-contacts"
