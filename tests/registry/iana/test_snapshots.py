"""Every vintage of IANA's registry imports, with the counts that its README states."""

from __future__ import annotations

from datetime import date

import pytest

from iana_support import by_status, codes, load, shared
from onym.registry.iana import add_cri_numbers, combine_snapshots, read_snapshot, write_entries
from onym.registry.records import Status
from support import as_subtests

_PARTS = ("iana-2015-04-uri-schemes-1.csv", "iana-2015-04-uri-schemes-2.csv")
_COUNTS = {
    _PARTS[0]: {"permanent": 88},
    _PARTS[1]: {"provisional": 95},
    "iana-uri-schemes-2022-11-18.csv": {"permanent": 97, "provisional": 251, "historical": 16},
    "iana-uri-schemes-2024-04.json": {"permanent": 98, "provisional": 264, "historical": 17},
    "merged-uri-schemes-mid-2026.csv": {"permanent": 99, "provisional": 293, "historical": 18},
}
_DATES = ("2015-04", "2015-04", "2022-11-18", "2024-04", "mid-2026")


@pytest.mark.parametrize(("name", "vintage"), list(zip(_COUNTS, _DATES, strict=True)))
def test_a_published_snapshot_has_the_counts_that_are_known(name: str, vintage: str) -> None:
    snapshot = read_snapshot(shared(name), source=name)
    assert by_status(snapshot) == _COUNTS[name]
    assert (snapshot.vintage, snapshot.source) == (vintage, name)


@pytest.mark.parametrize(
    ("name", "format_"),
    [(_PARTS[0], "csv-2015"), (_PARTS[1], "csv-2015"), ("iana-uri-schemes-2022-11-18.csv", "csv-2022")],
)
def test_a_published_file_is_written_back_octet_by_octet(name: str, format_: str) -> None:
    data = shared(name)
    entries = read_snapshot(data, source=name).entries
    text = write_entries(entries, format=format_, registry="uri-schemes", updated=date(2022, 11, 18))
    assert text.encode() == data


def test_the_merged_file_is_written_back_octet_by_octet() -> None:
    data = shared("merged-uri-schemes-mid-2026.csv")
    text = write_entries(
        read_snapshot(data).entries, format="csv", registry="uri-schemes", updated=date(2026, 7, 1)
    )
    assert text.encode() == data


@as_subtests("name", list(_COUNTS))
@pytest.mark.parametrize("format_", ["csv", "json", "text", "xml"])
def test_every_snapshot_comes_back_from_every_format(name: str, format_: str) -> None:
    entries = read_snapshot(shared(name), source=name).entries
    text = write_entries(entries, format=format_, registry="uri-schemes", updated=date(2026, 7, 1))
    back = read_snapshot(text.encode()).entries
    carried = [{**entry.fields} for entry in entries]
    if format_ in ("text", "xml"):
        for fields in carried:
            # no column of the registry
            fields.pop("first_seen", None)
    assert [(e.name, e.spelling, e.status) for e in back] == [(e.name, e.spelling, e.status) for e in entries]
    assert [{**item.fields} for item in back] == carried


def test_the_cri_numbers_join_onto_the_snapshot_of_2022() -> None:
    before = read_snapshot(shared("iana-uri-schemes-2022-11-18.csv"))
    after = add_cri_numbers(before, shared("core-href-cri-scheme-numbers-2025-10-20.csv"))
    numbers = {entry.name: entry.fields["cri_number"] for entry in after.entries}
    assert len(numbers) == 364
    assert (numbers["coap"], numbers["http"], numbers["shttp"]) == ("0", "2", "7874")
    assert codes(after).count("cri-number") == 398 - 364


def test_contacts_of_the_shared_file_resolve() -> None:
    snapshot = read_snapshot(
        shared("iana-uri-schemes-2022-11-18.csv"),
        contacts=shared("iana-uri-schemes-contacts-2022-11-18.json"),
    )
    assert "contact-unknown" not in codes(snapshot)
    android = snapshot.find("android")
    assert android is not None
    assert android.fields["contact"].startswith("Adam Barth <")


def test_the_parts_of_2015_tell_their_status_by_their_name() -> None:
    first, second = load("2015-04-uri-schemes-1.csv"), load("2015-04-uri-schemes-2.csv")
    assert by_status(first) == {"permanent": 8}
    assert by_status(second) == {"provisional": 3}
    whole = combine_snapshots(first, second)
    assert by_status(whole) == {"permanent": 8, "provisional": 3}
    assert whole.covers == {Status.PERMANENT, Status.PROVISIONAL}
    assert [entry.name for entry in whole.entries] == sorted(entry.name for entry in whole.entries)
    assert whole.source == "2015-04-uri-schemes-1.csv, 2015-04-uri-schemes-2.csv"


def test_irregular_rows_are_kept_and_reported() -> None:
    snapshot = load("uri-schemes-2022-11-18.csv")
    assert codes(snapshot, "shttp (OBSOLETE)") == ["obsolete-in-name"]
    assert codes(snapshot, "wpid") == ["template-path"]
    assert codes(snapshot, "iris.lwz") == ["not-a-reversed-domain"]
    assert codes(snapshot, "example") == ["template-path"]
    shttp = snapshot.find("shttp")
    assert shttp is not None
    assert shttp.spelling == "shttp (OBSOLETE)"
    assert codes(load("2015-04-uri-schemes-1.csv"), "iris.lwz") == ["not-a-reversed-domain", "unsorted"]


def test_the_merged_file_reports_its_oddities() -> None:
    snapshot = load("merged-uri-schemes-mid-2026.csv")
    assert codes(snapshot) == [
        "template-path",
        "ends-in-punctuation",
        "upper-case",
        "not-a-reversed-domain",
    ]
    upper = snapshot.find("machineprovisioningprogressreporter")
    assert upper is not None
    assert upper.spelling == "machineProvisioningProgressReporter"
    assert upper.fields["first_seen"] == "<=2024-04-24"
    # a reversed domain: .microsoft is a top-level domain
    assert codes(snapshot, "microsoft.windows.camera") == []


def test_the_list_of_2024_is_read_as_the_csv_would_say_it() -> None:
    snapshot = load("uri-schemes-2024-04.json")
    coap, payment, shttp = (snapshot.find(name) for name in ("coap", "payment", "shttp"))
    assert coap is not None
    assert coap.fields == {"description": "coap", "well_known": "[RFC7252]", "reference": "[RFC7252]"}
    assert payment is not None
    assert payment.fields["reference"] == "[RFC2119][errata]"
    assert payment.fields["well_known"] == "-"
    assert shttp is not None
    assert shttp.spelling == "shttp (OBSOLETE)"
    assert "reference" not in snapshot.columns
    assert snapshot.find("nowhere") is None
