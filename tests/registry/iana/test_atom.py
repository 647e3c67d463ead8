"""The feed of changes is valid Atom, escaped, with ids that do not change."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from iana_support import entry, hostile_text
from onym.errors import UsageError
from onym.registry.iana import Change, changes, compare_entries, format_atom_feed
from onym.registry.records import Status

_AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_SPACE = "{http://www.w3.org/2005/Atom}"


def feed(*changes: Change | None, **options: Any) -> str:
    given_ = {
        "registry": "uri-schemes",
        "updated": _AT,
        "tagger": "registry.example,2026",
        "link": lambda entry: f"https://registry.example/uri-schemes/{entry.name}?a&b",
        "home": "https://registry.example/",
        **options,
    }
    return format_atom_feed([change for change in changes if change], **given_)


def parsed(*changes: Change | None, **options: Any) -> list[ET.Element]:
    return ET.fromstring(feed(*changes, **options)).findall(f"{_SPACE}entry")


def text(element: ET.Element, tag: str) -> str:
    return element.findtext(f"{_SPACE}{tag}") or ""


def test_a_feed_has_what_rfc_4287_demands() -> None:
    whole = feed(compare_entries(None, entry("a")), feed="https://registry.example/feed")
    root = ET.fromstring(whole)
    assert root.tag == f"{_SPACE}feed"
    for parent in (root, *root.findall(f"{_SPACE}entry")):
        for tag in ("id", "title", "updated"):
            assert len(parent.findall(f"{_SPACE}{tag}")) == 1
        assert re.fullmatch(r"tag:registry\.example,2026:uri-schemes(:[0-9a-f]{32})?", text(parent, "id"))
        assert text(parent, "updated") == "2026-11-21T12:00:00Z"
    assert root.findtext(f"{_SPACE}author/{_SPACE}name")
    assert [item.get("rel") for item in root.findall(f"{_SPACE}link")] == ["alternate", "self"]
    assert 'rel="self"' not in feed()


def test_each_kind_of_change_says_what_happened() -> None:
    old, new = entry("a", Status.PROVISIONAL, description="x"), entry("a", description="x" * 500)
    added, removed, status, fields = parsed(
        compare_entries(None, old),
        compare_entries(old, None),
        compare_entries(old, new),
        compare_entries(replace(old, fields={}), old),
    )
    assert text(added, "title") == "a: added, provisional"
    assert "Description: x" in text(added, "summary").splitlines()
    assert text(removed, "title") == "a: removed"
    assert "provisional" in text(removed, "summary")
    assert text(status, "title") == "a: provisional to permanent"
    summary = text(status, "summary")
    assert "Status: Provisional, now Permanent" in summary
    assert "…" in summary
    assert len(summary) < 400
    assert text(fields, "title") == "a: updated"
    assert text(fields, "summary") == "Description: (nothing), now x"
    pending = parsed(compare_entries(entry("p", Status.PENDING_REVIEW), None))[0]
    assert text(pending, "summary") == "p: removed"


def test_the_same_change_has_the_same_id_and_another_has_another() -> None:
    first, other = compare_entries(None, entry("a")), compare_entries(None, entry("b"))
    assert first is not None
    ids = [text(item, "id") for item in parsed(first, other, replace(first, at=_AT))]
    assert len(set(ids)) == 3
    assert [text(item, "id") for item in parsed(other, first, updated=_AT + timedelta(1))] == ids[1::-1]


def test_times_are_in_utc_and_the_changes_own_come_first() -> None:
    east = timezone(timedelta(hours=2))
    added = compare_entries(None, replace(entry("a"), updated=_AT - timedelta(days=9)))
    assert added is not None
    own, entrys = parsed(replace(added, at=datetime(2026, 1, 1, 1, tzinfo=east)), added)
    assert text(own, "updated") == "2025-12-31T23:00:00Z"
    assert text(entrys, "updated") == "2026-11-12T12:00:00Z"


@given(hostile_text)
def test_hostile_names_and_fields_stay_text(value: str) -> None:
    bad = entry(value, description=value, spelling=value)
    (only,) = parsed(compare_entries(None, bad), compare_entries(None, None))
    assert len(list(only)) == 6
    assert only.find(f"{_SPACE}summary/*") is None
    links = only.findall(f"{_SPACE}link")
    assert [link.get("rel") for link in links] == ["alternate"]


def test_the_feed_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_CHANGES", 2)
    assert len(parsed(*(compare_entries(None, entry(name)) for name in "abc"))) == 2


@pytest.mark.parametrize("tagger", ["", "registry.example", "a b,2026", 'x"/>,2026', "registry.example,26"])
def test_ids_are_minted_under_a_real_authority(tagger: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(tagger))) as caught:
        feed(tagger=tagger)
    assert caught.value.code == "usage.bad-argument"


def test_a_time_without_an_offset_is_refused() -> None:
    with pytest.raises(UsageError):
        feed(updated=datetime(2026, 1, 1))  # noqa: DTZ001
