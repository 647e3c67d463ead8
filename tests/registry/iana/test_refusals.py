"""Files that are hostile, broken or of another kind are refused, with the place and the way out."""

from __future__ import annotations

import json

import pytest

from iana_support import DAY, codes, entry, load, own
from onym.errors import SnapshotError, UnknownEntryError
from onym.registry import iana
from onym.registry.iana import read_snapshot, write_entries
from onym.registry.records import Status
from onym.registry.registries import REGISTRIES
from support import as_subtests, linear_enough

_HEAD = b'<registry xmlns="http://www.iana.org/assignments" id="uri-schemes">'


def refused(data: bytes, **options: object) -> SnapshotError:
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(data, **options)  # type: ignore[arg-type]
    return caught.value


def xml(body: bytes) -> bytes:
    return _HEAD + b'<registry id="uri-schemes-1">' + body + b"</registry></registry>"


# ---------- XML


@pytest.mark.parametrize(
    "declaration",
    [
        b'<!DOCTYPE registry [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>',
        b'<!DOCTYPE registry SYSTEM "file:///etc/passwd">',
        b'<!DOCTYPE registry [<!ENTITY x SYSTEM "http://127.0.0.1/">]>',
        b'<!DOCTYPE registry [<!ENTITY % p SYSTEM "http://127.0.0.1/"> %p;]>',
        b"<!DOCTYPE registry>",
    ],
)
def test_a_document_type_is_refused_before_any_entity(declaration: bytes) -> None:
    error = refused(declaration + _HEAD + b"&b;&x;</registry>")
    assert (error.code, error.line) == ("registry.hostile-xml", 1)


def test_a_document_type_in_utf_16_is_refused_too() -> None:
    bomb = '<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a "b">]><r>&a;</r>'.encode("utf-16")
    assert refused(bomb, format="xml").code == "registry.hostile-xml"


def test_an_entity_that_nobody_declared_is_refused() -> None:
    assert refused(xml(b"<record><value>&lol;</value></record>")).code == "registry.bad-xml"


def test_elements_too_deep_are_refused() -> None:
    error = refused(_HEAD + b"\n<registry>" * 100_000)
    assert (error.code, error.line) == ("registry.hostile-xml", 1 + iana.MAX_DEPTH)


@as_subtests(
    ("data", "code"),
    [
        (b"<registry", "registry.bad-xml"),
        (b"<html/>", "registry.not-a-registry"),
        (b'<registry id="uri-schemes"/>', "registry.not-a-registry"),
        (_HEAD.replace(b"uri-schemes", b"media-types") + b"</registry>", "registry.wrong-registry"),
        (xml(b"<record><record/></record>"), "registry.bad-xml"),
        (xml(b"<record><value>a<?onym-char zz?></value></record>"), "registry.bad-xml"),
        (xml(b"<record><value>a<?onym-char d800?></value></record>"), "registry.bad-xml"),
        (xml(b"<record><value>a<?onym-char 110000?></value></record>"), "registry.bad-xml"),
        (xml("<record><ü>a</ü></record>".encode()), "registry.bad-xml"),
        (
            xml(b"<record>" + b"".join(b"<c%d/>" % item for item in range(101)) + b"</record>"),
            "registry.bad-xml",
        ),
        # one column in a thousand spellings
        (
            xml(b"<record>" + b"".join(b"<c%s/>" % (b"-" * item) for item in range(1001)) + b"</record>"),
            "registry.bad-xml",
        ),
    ],
)
def test_xml_that_is_no_registry_is_refused(data: bytes, code: str) -> None:
    assert refused(data).code == code


def test_ianas_xml_is_read_with_its_notes_and_people_left_out() -> None:
    snapshot = load("uri-schemes.xml")
    coap, jabber, afs, wais = snapshot.entries
    assert coap.fields == {
        "description": "coap & more",
        "well_known": "[RFC7252]",
        "reference": "[RFC7252, Section 6.1][Peter_Saint-Andre][the page]",
        "notes": "First line.\nSecond line.",
        "cri_number": "0",
    }
    assert [f"{item:%F}" for item in (coap.registered, coap.updated) if item] == ["2015-04-05", "2019-10-01"]
    assert jabber.fields == {"template": "perm/jabber", "published_status": "Retired"}
    assert codes(snapshot, "jabber") == ["unknown-status", "bad-date"]
    assert afs.fields == {"colour": "blue"}
    assert codes(snapshot, "afs") == ["no-status", "unsorted"]
    assert wais.status is Status.HISTORICAL
    assert codes(snapshot, "17") == ["other-table"]
    assert codes(snapshot, "") == ["unknown-column"]
    assert snapshot.vintage == "2026-11-20"
    assert snapshot.columns == (*(column.id for column in REGISTRIES["uri-schemes"].columns), "colour")
    bare = read_snapshot(xml(b"<record><value>a</value><status>Permanent</status></record>"))
    assert set(snapshot.columns) - set(bare.columns) == {"cri_number", "colour"}
    assert "@" not in repr(snapshot)
    assert "xmpp.example" not in repr(snapshot)


def test_other_elements_and_instructions_are_passed_over() -> None:
    data = b"<?onym-char 41?>" + xml(
        b"<record><?other 41?><value>a<br/>b<bcp>c</bcp></value><status>Permanent</status>"
        b'<xref type="bcp" data="bcp35"/><xref data="x"/></record>'
    )
    (only,) = read_snapshot(data).entries
    assert (only.name, only.fields) == ("abc", {"reference": "[BCP35][x]"})


# ---------- CSV


@as_subtests(
    ("data", "code"),
    [
        (b"", "registry.not-a-registry"),
        (b"a,b\r\n1,2\r\n", "registry.not-a-registry"),
        (b"URI Scheme,Template,Template,Status\r\n", "registry.bad-csv"),
        (b"URI Scheme,Status,\r\n", "registry.bad-csv"),
        (b"URI Scheme,Status" + b",x" * 100, "registry.bad-csv"),
        (b"URI Scheme,Template\r\n", "registry.part-unknown"),
        (b'URI Scheme,Status\r\n"a"b,Permanent\r\n', "registry.bad-csv"),
        (b'URI Scheme,Status\r\n"a', "registry.bad-csv"),
        (b"URI Scheme,Status\r\n\xff,Permanent\r\n", "registry.not-utf8"),
        (b"URI Scheme,Status,Notes\r\na,Permanent," + b"x" * 200_000, "registry.bad-csv"),
        (b"URI Scheme,Status,Notes\r\na,Permanent," + b"x" * 110_000, "registry.snapshot-too-large"),
    ],
)
def test_csv_that_is_no_registry_is_refused(data: bytes, code: str) -> None:
    assert refused(data).code == code


def test_the_line_of_a_fault_is_named() -> None:
    assert refused(b"URI Scheme,Status\r\na,Permanent\r\n\xff,x\r\n").line == 3
    assert refused(b'URI Scheme,Status\r\n"a\r\nb",x\r\n"c"d,x\r\n').line == 4


def test_a_list_of_cri_numbers_is_no_registry() -> None:
    error = refused(own("cri-numbers.csv"))
    assert error.code == "registry.not-a-registry"
    assert "add_cri_numbers" in (error.hint or "")


def test_rows_that_do_not_fit_are_kept_as_far_as_they_go() -> None:
    data = (
        b"\xef\xbb\xbfURI Scheme,Status,Colour,Notes\r\n"
        b"a,Permanent,blue\r\n"
        b"\r\n"
        b"b,Permanent,,x,y\r\n"
        b",Permanent,,\r\n"
        b"A,Historical,,again\r\n"
        b"<script>,Permanent,,\r\n"
        b"../etc/passwd,,,\r\n"
        b'c,Permanent,," padded"\r\n'
        b"d,Active,,\r\n"
    )
    snapshot = read_snapshot(data)
    assert [row.name for row in snapshot.entries] == ["a", "b", "<script>", "../etc/passwd", "c", "d"]
    found = {(row.name, row.code): row for row in snapshot.irregular}
    assert {name for name, code in found if code == "ragged-row"} == {"a", "b"}
    assert found["b", "ragged-row"].line == 4
    assert found["", "no-name"].line == 5
    again = found["A", "duplicate"].entry
    assert again is not None
    assert (again.status, again.fields) == (Status.HISTORICAL, {"notes": "again"})
    assert ("<script>", "name-not-allowed") in found
    assert ("../etc/passwd", "no-status") in found
    assert ("c", "untrimmed") in found
    # a status, and none of this registry
    assert ("d", "unknown-status") in found
    assert ("", "unknown-column") in found
    assert snapshot.entries[0].fields == {"colour": "blue"}


def test_a_row_too_short_for_its_name_is_reported() -> None:
    snapshot = read_snapshot(b"Status,URI Scheme\r\nPermanent\r\n")
    assert codes(snapshot) == ["ragged-row", "no-name"]


def test_a_template_under_another_name_is_reported() -> None:
    snapshot = read_snapshot(b"URI Scheme,Template,Status\r\na,perm/b,Permanent\r\nb,x,Pending Review\r\n")
    assert codes(snapshot) == ["template-name"]


def test_a_bad_day_is_kept_as_it_is() -> None:
    data = b"Namespace,Status,Expires\r\nbank,Active,never\r\nshop,Active,2027-01-31\r\n"
    snapshot = read_snapshot(data, registry="ai-namespaces")
    bank, shop = snapshot.entries
    assert codes(snapshot) == ["bad-date"]
    assert (bank.expires, bank.fields) == (None, {"expires": "never"})
    assert (str(shop.expires), shop.fields) == ("2027-01-31", {})
    text = write_entries(snapshot.entries, format="csv", registry="ai-namespaces", updated=DAY)
    assert "never" in text
    assert "2027-01-31" in text


# ---------- JSON


@as_subtests(
    ("data", "code"),
    [
        (b"{", "registry.bad-json"),
        (b'{"a": 1, "a": 2}', "registry.bad-json"),
        (b"[NaN]", "registry.bad-json"),
        (b"[" * 100_000, "registry.bad-json"),
        (b"[" + b"1" * 10_000 + b"]", "registry.bad-json"),
        (b"{}", "registry.not-a-registry"),
        (b"[1]", "registry.not-a-registry"),
        (b'[{"scheme": 1}]', "registry.not-a-registry"),
        (b'[{"scheme": "a", "status": 1}]', "registry.bad-json"),
        (b'[{"scheme": "a", "status": "permanent", "wku": 1}]', "registry.bad-json"),
        (b'[{"scheme": "a", "refs": "1"}]', "registry.bad-json"),
        (b'[{"scheme": "a", "refs": [1]}]', "registry.bad-json"),
        (b'{"format": "onym-registry", "version": 2}', "registry.not-a-registry"),
        (b'{"format": "onym-registry", "version": 1, "registry": "x"}', "registry.wrong-registry"),
        (b'{"format": "onym-registry", "version": 1, "registry": "uri-schemes"}', "registry.bad-json"),
    ],
)
def test_json_that_is_no_registry_is_refused(data: bytes, code: str) -> None:
    assert refused(data).code == code


def document(**changes: object) -> bytes:
    text = write_entries((entry("a"), entry("b")), format="json", registry="uri-schemes", updated=DAY)
    data = json.loads(text)
    data["entries"][1].update(changes)
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"status": "active"}, "registry.bad-json"),
        ({"registry": "ai-namespaces"}, "registry.bad-json"),
        ({"surprise": 1}, "registry.bad-json"),
        ({"name": "a"}, "registry.duplicate-name"),
        ({"fields": {"notes": "x" * 200_000}}, "registry.snapshot-too-large"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused(change: dict[str, object], code: str) -> None:
    assert len(read_snapshot(document()).entries) == 2
    assert refused(document(**change)).code == code


def test_a_document_without_a_date_has_no_vintage() -> None:
    data = document().replace(b'"2026-11-21"', b"7")
    assert read_snapshot(data).vintage is None


def test_a_list_is_no_registry_of_parameters() -> None:
    assert refused(b"[]", registry="llm-parameters").code == "registry.not-a-registry"


# ---------- text, and all of them


@pytest.mark.parametrize(
    "data",
    [
        b"nothing\n",
        b"==  ==\n",
        b"a   b\n==  ==\n",
        b"Status  Status\n======  ======\n",
        b"URI Scheme  Status" + b"  a" * 100 + b"\n==========  ======" + b"  =" * 100 + b"\n",
    ],
)
def test_text_without_a_table_is_refused(data: bytes) -> None:
    assert refused(data, format="text").code == "registry.not-a-registry"


def test_an_escape_that_is_no_character_is_refused() -> None:
    rows = (entry("a", description="\U0010ffff"),)
    text = write_entries(rows, format="text", registry="uri-schemes", updated=DAY)
    assert read_snapshot(text.encode()).entries == rows
    error = refused(text.replace("\\U0010ffff", "\\U00ffffff").encode())
    assert (error.code, error.line) == ("registry.bad-text", 8)


def test_a_table_with_empty_lines_is_read() -> None:
    data = b"URI Scheme  Status\n==========  =========\n\nhttp        Permanent\n\n"
    (only,) = read_snapshot(data).entries
    assert (only.name, only.status) == ("http", Status.PERMANENT)


def test_files_beyond_the_caps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from onym.registry import iana

    assert refused(b" " * (iana.MAX_BYTES + 1)).code == "registry.snapshot-too-large"
    monkeypatch.setattr(iana, "MAX_ROWS", 2)
    rows = tuple(entry(name) for name in "abc")
    for format_ in ("csv", "json", "text", "xml"):
        text = write_entries(rows, format=format_, registry="uri-schemes", updated=DAY)
        assert refused(text.encode()).code == "registry.snapshot-too-large"
        text = write_entries(rows[:2], format=format_, registry="uri-schemes", updated=DAY)
        assert len(read_snapshot(text.encode()).entries) == 2


def test_an_unknown_registry_is_refused() -> None:
    with pytest.raises(UnknownEntryError):
        read_snapshot(b"", registry="media-types")


# ---------- time


def _hostile() -> dict[str, bytes]:
    """Files near a megabyte that a careless reader takes a square of that for."""
    many = 1_000_000
    return {
        "references": xml(b"<record>" + b'<xref type="text">a</xref>' * (many // 25) + b"</record>"),
        "brackets": write_entries(
            (entry("a", reference="[" * 99_999), entry("b", reference="[a" * 49_999)),
            format="json",
            registry="uri-schemes",
            updated=DAY,
        ).encode(),
        "spaces": b"URI Scheme,Status\r\n" + (b"a" * 40_000 + b" " * 40_000 + b",x\r\n") * 10,
        "dots": b"URI Scheme,Status\r\n" + b"".join(b"a%d.b,x\r\n" % item for item in range(5000)),
        "rulers": b"URI Scheme  Status\n" + b"=  " * (many // 3),
        "elements": xml(b"<record>" + b"<a/>" * (many // 4) + b"</record>"),
    }


@pytest.mark.parametrize("kind", list(_hostile()))
def test_hostile_files_take_linear_time(kind: str) -> None:
    data = _hostile()[kind]
    with linear_enough():
        try:
            rows = read_snapshot(data).entries
            write_entries(rows, format="xml", registry="uri-schemes", updated=DAY)
        except SnapshotError:
            pass


def test_a_name_with_a_nul_is_set_aside_and_reported() -> None:
    text = "URI Scheme,Description,Status,Reference\r\nki\0te,d,Permanent,r\r\ngood,d,Permanent,r\r\n"
    found = read_snapshot(text.encode(), source="x.csv", registry="uri-schemes")
    assert [row.name for row in found.entries] == ["good"]
    assert [(row.name, row.code, row.line) for row in found.irregular if row.code == "bad-name"] == [
        ("ki?te", "bad-name", 2)
    ]
