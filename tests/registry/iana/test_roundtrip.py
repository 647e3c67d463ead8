"""Import of an export is identity, whatever stands in the fields."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, example, given, settings

from iana_support import DAY, entries, entry, hostile_text
from onym.errors import SnapshotError, StoreError, UsageError
from onym.registry.iana import READ_FORMATS, WRITE_FORMATS, read_snapshot, write_entries
from onym.registry.records import DraftReference, Entry, Note, Status
from onym.registry.registries import REGISTRIES

_NOON = datetime(2026, 11, 21, 12, 30, 15, 250000, tzinfo=UTC)
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_2015 = ("template", "description", "reference")
_2022 = ("template", "description", "well_known", "reference", "notes")


def carried(row: Entry, columns: tuple[str, ...] | None, *, dates: bool) -> Entry:
    """The entry as far as a format carries it."""
    fields = {name: value for name, value in row.fields.items() if columns is None or name in columns}
    return Entry(
        registry=row.registry,
        name=row.name,
        spelling=row.spelling,
        status=row.status,
        fields=fields,
        expires=row.expires,
        registered=row.registered if dates else None,
        updated=row.updated if dates else None,
    )


def columns_of(registry: str) -> tuple[str, ...]:
    return tuple(column.id for column in REGISTRIES[registry].columns)


def there_and_back(rows: tuple[Entry, ...], format_: str, registry: str) -> tuple[Entry, ...]:
    text = write_entries(rows, format=format_, registry=registry, updated=DAY)
    return read_snapshot(text.encode(), registry=registry).entries


def examined(registry: str, rows: tuple[Entry, ...]) -> None:
    columns = columns_of(registry)
    assert there_and_back(rows, "json", registry) == rows
    whole = [carried(row, None, dates=False) for row in rows]
    assert list(there_and_back(rows, "csv", registry)) == whole
    shown = [carried(row, columns, dates=False) for row in rows]
    assert list(there_and_back(rows, "text", registry)) == shown
    dated = [carried(row, columns, dates=True) for row in rows]
    assert list(there_and_back(rows, "xml", registry)) == dated


@given(entries())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_schemes_come_back_from_every_format(rows: tuple[Entry, ...]) -> None:
    examined("uri-schemes", rows)
    back = there_and_back(rows, "csv-2022", "uri-schemes")
    assert list(back) == [carried(row, _2022, dates=False) for row in rows]
    for status in REGISTRIES["uri-schemes"].statuses:
        text = write_entries(rows, format="csv-2015", registry="uri-schemes", updated=DAY, status=status)
        part = read_snapshot(text.encode(), status=status).entries
        assert list(part) == [carried(e, _2015, dates=False) for e in rows if e.status is status]


@given(entries("llm-parameters"))
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
def test_parameters_come_back_from_every_format(rows: tuple[Entry, ...]) -> None:
    examined("llm-parameters", rows)


@given(entries("ai-namespaces"))
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
def test_namespaces_come_back_from_every_format(rows: tuple[Entry, ...]) -> None:
    examined("ai-namespaces", rows)


def test_json_carries_what_no_column_shows() -> None:
    whole = entry(
        spelling="http (OBSOLETE)",
        registrant="ada",
        designees=frozenset({"bob", "eve"}),
        iesg_approved=True,
        notes=(Note(kind="security", text="<b>", at=_NOON, by="iana"),),
        draft=DraftReference(name="draft-a-b-00", expires=DAY),
        pending=("uri-schemes-7",),
        registered=_NOON,
        updated=_NOON,
        version=7,
        syntax="http-URI = ...",
        status="permanent",
    )
    assert there_and_back((whole,), "json", "uri-schemes") == (whole,)


@pytest.mark.parametrize("format_", ["csv", "csv-2022", "text", "xml"])
def test_a_status_that_is_none_comes_back_as_it_was_written(format_: str) -> None:
    data = b"URI Scheme,Status,Description\r\nhttp,Retired,x\r\n"
    first = read_snapshot(data)
    assert [row.code for row in first.irregular] == ["unknown-status"]
    assert first.entries[0].status is Status.PENDING_REVIEW
    assert there_and_back(first.entries, format_, "uri-schemes") == first.entries
    assert "Retired" in write_entries(first.entries, format=format_, registry="uri-schemes", updated=DAY)


def test_a_published_status_never_belies_the_entry() -> None:
    liar = entry("a", Status.PENDING_REVIEW, published_status="Permanent")
    other = entry("b", Status.HISTORICAL, published_status="Retired")
    text = write_entries((liar, other), format="csv-2022", registry="uri-schemes", updated=DAY)
    assert text.splitlines()[1:] == ["a,,,Pending Review,,,", "b,,,Historical,,,"]
    planted = read_snapshot(b"URI Scheme,Status,published_status\r\na,Permanent,Historical\r\n")
    assert planted.entries[0].fields == {}


@given(hostile_text)
@example("=cmd|' /C calc'!A0")
@example("\n=1")
def test_no_cell_of_a_csv_export_is_a_formula(value: str) -> None:
    rows = (entry("x", description=value, reference=value, notes=value, contact=value),)
    for format_ in ("csv", "csv-2015", "csv-2022"):
        text = write_entries(rows, format=format_, registry="uri-schemes", updated=DAY)
        for cells in csv.reader(io.StringIO(text, newline="")):
            assert not [
                cell
                for cell in cells
                if cell != "-" and re.match("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]", cell)
            ]


@pytest.mark.requirement("rfc7595-9-a")
def test_one_registry_holds_every_status_and_its_notes() -> None:
    rows = tuple(entry(str(status), status, notes="n") for status in REGISTRIES["uri-schemes"].statuses)
    assert write_entries(rows, format="csv-2022", registry="uri-schemes", updated=DAY).splitlines() == [
        "URI Scheme,Template,Description,Status,Well-Known URI Support,Reference,Notes",
        "permanent,,,Permanent,,,n",
        "provisional,,,Provisional,,,n",
        "historical,,,Historical,,,n",
        "pending-review,,,Pending Review,,,n",
    ]


def test_a_lone_hyphen_stays_plain() -> None:
    text = write_entries(
        (entry(well_known="-", notes="-1"),), format="csv-2022", registry="uri-schemes", updated=DAY
    )
    assert text.splitlines()[1] == "http,,,Permanent,-,,'-1"


@given(entries())
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
def test_an_xml_export_is_well_formed_to_another_reader(rows: tuple[Entry, ...]) -> None:
    text = write_entries(rows, format="xml", registry="uri-schemes", updated=DAY)
    root = ET.fromstring(text)
    space = "{http://www.iana.org/assignments}"
    records = root.findall(f"{space}registry/{space}record")
    assert [record.findtext(f"{space}value") for record in records] == [e.spelling or e.name for e in rows]


def test_references_become_the_elements_of_ianas_schema() -> None:
    reference = (
        "[RFC9110, Section 4.2][RFC6733][RFC-ietf-x-06][Bíró_Tamás][IANA registry urn-namespaces]"
        "[https://n2t.net/ark:/21206/10015] or [STD 66]"
    )
    text = write_entries((entry(reference=reference),), format="xml", registry="uri-schemes", updated=DAY)
    elements = re.findall(r"<xref.*", text[text.index("<record>") :])
    assert elements == [
        '<xref type="rfc" data="rfc9110">RFC9110, Section 4.2</xref>',
        '<xref type="rfc" data="rfc6733"/>',
        '<xref type="draft" data="RFC-ietf-x-06"/>',
        '<xref type="person" data="Bíró_Tamás"/>',
        '<xref type="registry" data="urn-namespaces"/>',
        '<xref type="uri" data="https://n2t.net/ark:/21206/10015"/>',
        '<xref type="text" xml:space="preserve"> or </xref>',
        '<xref type="text">[STD 66]</xref>',
    ]


def test_the_text_form_is_a_table_for_people() -> None:
    rows = (entry("http", description="Hypertext\nTransfer"), entry("z39.50", Status.HISTORICAL))
    lines = write_entries(rows, format="text", registry="uri-schemes", updated=DAY).splitlines()
    assert lines[0] == "Uniform Resource Identifier (URI) Schemes"
    assert "Last Updated: 2026-11-21" in lines
    assert lines[5].startswith("URI Scheme  Template  Description          Status      Well-Known")
    assert lines[7].rstrip() == "http                  Hypertext\\nTransfer  Permanent"
    assert read_snapshot("\n".join(lines).encode()).vintage == "2026-11-21"


def test_the_notes_of_the_procedure_stand_in_their_column_once() -> None:
    notes = tuple(
        Note(kind=kind, text=text, at=_NOON, by="iana")
        for kind, text in (
            ("separate-use", "Used by X too."),
            ("override", "internal"),
            ("security", "Beware."),
        )
    )
    first = Entry(
        registry="uri-schemes",
        name="a",
        status=Status.PROVISIONAL,
        notes=notes,
        fields={"notes": "Old.\nBeware."},
    )
    (again,) = there_and_back((first,), "xml", "uri-schemes")
    assert again.fields == {"notes": "Old.\nBeware.\nUsed by X too."}
    kept = Entry(registry="uri-schemes", name="a", status=first.status, notes=notes, fields=again.fields)
    assert there_and_back((kept,), "csv", "uri-schemes") == (again,)


def test_formats_that_there_are_not_are_refused() -> None:
    with pytest.raises(UsageError, match="yaml") as caught:
        write_entries((), format="yaml", registry="uri-schemes", updated=DAY)
    assert caught.value.code == "usage.bad-format"
    assert "csv-2015" in (caught.value.hint or "")
    with pytest.raises(UsageError):
        write_entries((), format="csv-2022", registry="llm-parameters", updated=DAY)
    with pytest.raises(UsageError) as caught:
        read_snapshot(b"", format="atom")
    assert caught.value.code == "usage.bad-format"
    assert set(WRITE_FORMATS) == set(READ_FORMATS)


def test_one_part_of_2015_is_of_one_status() -> None:
    rows = (entry("a"), entry("b", Status.HISTORICAL))
    with pytest.raises(UsageError) as caught:
        write_entries(rows, format="csv-2015", registry="uri-schemes", updated=DAY)
    assert caught.value.code == "usage.status-needed"
    assert "historical, permanent" in (caught.value.hint or "")
    text = write_entries(rows[:1], format="csv-2015", registry="uri-schemes", updated=DAY)
    assert text == "URI Scheme,Template,Description,Reference\r\na,,,\r\n"


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(StoreError):
        write_entries((entry(description="\ud800"),), format="json", registry="uri-schemes", updated=DAY)
    data = write_entries((entry(description="x"),), format="json", registry="uri-schemes", updated=DAY)
    with pytest.raises(SnapshotError):
        read_snapshot(data.replace('"x"', '"\\ud800"').encode())
