"""The registry file of ai namespaces: canonical, and checked whole before a resolver trusts it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iana_support import entry
from onym.errors import SnapshotError
from onym.registry.iana import Namespace, namespaces, read_namespaces, write_namespaces
from onym.registry.records import Entry, Status
from onym.registry.registries import REGISTRIES
from support import as_subtests

_ISSUED = datetime(2026, 11, 21, tzinfo=UTC)
_EXPIRES = _ISSUED + timedelta(days=30)
_KEY = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
_OTHER = "A" * 43


def bank(**changes: Any) -> Entry:
    status = changes.pop("status", Status.ACTIVE)
    fields = {"anchor": "https://bank.example", "keys": _KEY, **changes}
    return entry("bank", status, registry="ai-namespaces", **fields)


def written(*entries: Entry) -> bytes:
    return write_namespaces(entries, issued=_ISSUED, expires=_EXPIRES)


def test_the_file_is_canonical_whatever_the_order() -> None:
    shop = entry(
        "shop",
        Status.SAFE_MODE,
        registry="ai-namespaces",
        anchor="https://shop.example:8443",
        expires=date(2027, 6, 30),
    )
    data = written(shop, bank(keys=f" {_OTHER},\n{_KEY} {_OTHER}"))
    assert data == written(bank(keys=f"{_KEY} {_OTHER}"), shop)
    assert data.decode() == (
        '{"expires":"2026-12-21T00:00:00Z","format":"onym-ai-namespaces","issued":"2026-11-21T00:00:00Z",'
        '"namespaces":{"bank":{"anchor":"https://bank.example","keys":["' + _OTHER + '","' + _KEY + '"],'
        '"state":"active"},"shop":{"anchor":"https://shop.example:8443","expires":"2027-06-30","keys":[],'
        '"state":"safe-mode"}},"version":1}'
    )


def test_what_is_written_is_read() -> None:
    revoked = bank(status=Status.REVOKED)
    found = read_namespaces(written(revoked), at=_ISSUED)
    assert (found.issued, found.expires) == (_ISSUED, _EXPIRES)
    assert found.namespaces == {
        "bank": Namespace(
            name="bank", anchor="https://bank.example", keys=(_KEY,), state=Status.REVOKED, expires=None
        )
    }


@given(st.sampled_from(REGISTRIES["ai-namespaces"].statuses), st.none() | st.dates())
def test_every_state_but_a_pending_one_is_published(status: Status, expires: date | None) -> None:
    found = read_namespaces(written(bank(status=status, expires=expires))).namespaces
    if status is Status.PENDING_REVIEW:
        assert found == {}
    else:
        assert (found["bank"].state, found["bank"].expires) == (status, expires)


def test_times_are_written_in_utc() -> None:
    east = _ISSUED.astimezone(timezone(timedelta(hours=5)))
    assert write_namespaces((), issued=east, expires=_EXPIRES) == written()
    with pytest.raises(SnapshotError) as caught:
        write_namespaces((), issued=datetime(2026, 1, 1), expires=_EXPIRES)  # noqa: DTZ001
    assert (caught.value.code, caught.value.field) == ("registry.bad-namespaces", "issued")


@pytest.mark.parametrize(
    ("seconds", "good"), [(-61, False), (-60, True), (0, True), (30 * 86400 - 1, True), (30 * 86400, False)]
)
def test_a_file_holds_from_its_issue_until_its_expiry(seconds: int, good: bool) -> None:
    at = _ISSUED + timedelta(seconds=seconds)
    if good:
        read_namespaces(written(), at=at)
        return
    with pytest.raises(SnapshotError) as caught:
        read_namespaces(written(), at=at)
    assert caught.value.code == "registry.expired-file"


@as_subtests(
    "anchor",
    [
        "",
        "http://bank.example",
        "https://",
        "https://user@bank.example",
        "https://bank.example/",
        "https://bank.example/x",
        "https://bank.example?",
        "https://bank.example#",
        "https://BANK.example",
        "https://bank.example:443",
        "https://bank.example:",
        "HTTPS://bank.example",
        "https://bank.example:99999",
        "https://bank.example:0443",
        "https://bank.example:0",
        "https://-bank.example",
        "https://bank..example",
        "https://[::g]",
        "https://[:::1]",
        "https://[0::1]",
        "https://ba nk.example",
        "https://%62ank.example",
        "javascript:alert(1)",
        "//bank.example",
        "https://" + "a." * 200 + "example",
    ],
)
def test_an_anchor_is_an_https_origin_in_its_normal_form(anchor: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        written(bank(anchor=anchor))
    assert caught.value.field == "bank.anchor"
    assert caught.value.code == "registry.bad-namespaces"


@pytest.mark.parametrize(
    "anchor", ["https://bank", "https://xn--bcher-kva.example:65535", "https://[::1]:8443"]
)
def test_other_origins_are_anchors_too(anchor: str) -> None:
    assert read_namespaces(written(bank(anchor=anchor))).namespaces["bank"].anchor == anchor


def test_an_entry_that_no_resolver_could_use_is_not_written() -> None:
    for broken in (bank(keys="short"), bank(keys=_KEY[:-1] + "t"), bank(keys=" ".join(_all_keys(17)))):
        with pytest.raises(SnapshotError) as caught:
            written(broken)
        assert (caught.value.code, caught.value.field) == ("registry.bad-namespaces", "bank.keys")
    assert len(read_namespaces(written(bank(keys=" ".join(_all_keys(16))))).namespaces["bank"].keys) == 16
    with pytest.raises(SnapshotError) as caught:
        written(bank(), bank())
    assert (caught.value.code, caught.value.field) == ("registry.bad-namespaces", "bank")


def _all_keys(count: int) -> list[str]:
    return [f"{item:042d}A" for item in range(count)]


def changed(**changes: Any) -> bytes:
    data = json.loads(written(bank()))
    for name, value in changes.items():
        if value is None:
            del data[name]
        else:
            data[name] = value
    return json.dumps(data).encode()


def row(**changes: Any) -> bytes:
    data = json.loads(written(bank()))["namespaces"]["bank"] | changes
    return changed(namespaces={"bank": {name: value for name, value in data.items() if value is not None}})


@as_subtests(
    ("data", "field"),
    [
        (b"[]", "file"),
        (changed(version=True), "format"),
        (changed(version=2), "format"),
        (changed(format="x"), "format"),
        (changed(issued=None), "file"),
        (changed(surprise=1), "file"),
        (changed(issued="2026-11-21"), "issued"),
        (changed(issued="2026-13-21T00:00:00Z"), "issued"),
        (changed(expires=7), "expires"),
        (changed(expires="2026-11-21T00:00:00Z"), "expires"),
        (changed(namespaces=[]), "namespaces"),
        (changed(namespaces={"bank.example": {}}), "namespaces"),
        (changed(namespaces={"Bank": {}}), "namespaces"),
        (changed(namespaces={"bank": []}), "bank"),
        (row(anchor=None), "bank"),
        (row(surprise="x"), "bank"),
        (row(anchor=7), "bank.anchor"),
        (row(state="pending-review"), "bank.state"),
        (row(state=["active"]), "bank.state"),
        (row(keys=_KEY), "bank.keys"),
        (row(keys=[7]), "bank.keys"),
        (row(expires="2027-02-30"), "bank.expires"),
        (row(expires=20270101), "bank.expires"),
        (b'{"a":1,"a":2}', None),
        (b"\xff", None),
    ],
)
def test_a_file_of_another_form_is_refused(data: bytes, field: str | None) -> None:
    with pytest.raises(SnapshotError) as caught:
        read_namespaces(data)
    assert caught.value.field == field


def test_a_file_beyond_its_caps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SnapshotError) as caught:
        read_namespaces(b" " * (8 * 1024 * 1024 + 1))
    assert caught.value.code == "registry.snapshot-too-large"
    monkeypatch.setattr(namespaces, "MAX_NAMESPACES", 0)
    with pytest.raises(SnapshotError, match=r"\b0\b") as caught:
        written(bank())
    assert (caught.value.code, caught.value.field) == ("registry.bad-namespaces", "namespaces")
