"""Registry files for the tests of IANA's formats: ours, the shared ones, and entries made up."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import strategies as st

from onym.registry.iana import Snapshot, read_snapshot
from onym.registry.records import Entry, Status
from onym.registry.registries import REGISTRIES

HERE = Path(__file__).resolve().parent / "registry" / "iana" / "data"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "iana"
DAY = date(2026, 11, 21)


def own(name: str) -> bytes:
    """A file of our own."""
    return (HERE / name).read_bytes()


def shared(name: str) -> bytes:
    """A file of the shared data, or a skip that says why."""
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"the shared data is not beside this checkout: {name}")
    return path.read_bytes()


def load(name: str, **options: Any) -> Snapshot:
    """Our own file, read."""
    return read_snapshot(own(name), source=name, **options)


def codes(snapshot: Snapshot, name: str | None = None) -> list[str]:
    """The irregularities reported, of one row or of all."""
    return [row.code for row in snapshot.irregular if name is None or row.name == name]


def by_status(snapshot: Snapshot) -> dict[str, int]:
    return dict(Counter(str(entry.status) for entry in snapshot.entries))


def entry(name: str = "http", status: Status = Status.PERMANENT, /, **changes: Any) -> Entry:
    """An entry of the URI schemes; what is no member of Entry is a field."""
    # `notes` is a column too
    members = {
        key: changes.pop(key)
        for key in list(changes)
        if key in Entry.__slots__ and not (key == "notes" and isinstance(changes[key], str))
    }
    fields = MappingProxyType(changes)
    return Entry(**{"registry": "uri-schemes", "name": name, "status": status, "fields": fields, **members})


#: what a hostile registrant may put into a field; "" is no field at all
hostile_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40) | st.sampled_from(
    [
        "=1+1",
        "-",
        "'-",
        "''=x",
        "@SUM(A1)",
        "+1",
        "-1",
        "\t=x",
        "\r\n",
        "a\r\nb",
        "'plain",
        "\uff1d1",
        "<script>alert(1)</script>",
        "]]>&amp;\"'",
        "\x00\x01\x1f\x7f\x85\u2028\ufffe\uffff",
        " two  spaces ",
        "back\\slash \\n \\x41 \\",
        "[RFC1][RFC2, Section 3] and [",
        "[RFC-ietf-x-01][draft-a-b-00][IANA registry urn][http://a/?b=c&d][Adam_Barth]",
        "[RFC01][RFC1\n][][[RFC2]]]",
        'a,b;c|d"e"',
        "<?onym-char 41?>",
        "====  ====",
    ]
)
_days = st.dates(date(1990, 1, 1), date(2090, 1, 1))
_midnights = _days.map(lambda day: datetime(day.year, day.month, day.day, tzinfo=UTC))


@st.composite
def entries(draw: st.DrawFn, registry: str = "uri-schemes") -> tuple[Entry, ...]:
    """Entries with hostile fields in every column, whose names are apart."""
    row = REGISTRIES[registry]
    names = draw(
        st.lists(st.from_regex(row.name_pattern, fullmatch=True), unique_by=row.normalize_name, max_size=4)
    )
    statuses = st.sampled_from(row.statuses)
    columns = [column.id for column in row.columns if column.id not in ("name", "status", "expires")]
    fields = st.dictionaries(st.sampled_from([*columns, "contact", "security"]), hostile_text)
    return tuple(
        Entry(
            registry=registry,
            name=row.normalize_name(name),
            spelling=None if name == row.normalize_name(name) else name,
            status=draw(statuses),
            fields=MappingProxyType(draw(fields)),
            expires=draw(st.none() | _days) if registry == "ai-namespaces" else None,
            registered=draw(st.none() | _midnights),
            updated=draw(st.none() | _midnights),
        )
        for name in names
    )
