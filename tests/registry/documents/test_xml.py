"""RFC XML: what is read of it, and what is refused."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from onym.errors import TemplateError
from onym.registry.documents import Document, DocumentKind, _lines, _xml, read_document
from support import as_subtests

DATA = Path(__file__).parent / "data"


def read(name: str) -> Document:
    return read_document((DATA / name).read_text(encoding="utf-8"))


def refused(text: str) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        read_document(text, kind=DocumentKind.XML, need_template=False)
    return caught.value


def body(text: str) -> Document:
    return read_document(f"<rfc><middle>{text}</middle></rfc>", need_template=False)


def test_version_3_is_read() -> None:
    document = read("v3.xml")
    assert document.kind is DocumentKind.XML
    assert document.name == "draft-example-sample-03"
    assert (document.dated, document.expires) == (date(2026, 2, 1), date(2026, 8, 5))
    (template,) = document.templates
    assert {key: value.text for key, value in template.values.items()} == {
        "name": "sample",
        "status": "Provisional",
        "contact": "J. Doe\nExample Networks",
        "change_controller": "J. Doe\n\nor another",
    }
    assert (template.section, template.line) == ("2", 30)
    assert [(each.number, each.title) for each in document.sections] == [
        ("1", "Introduction"),
        ("1.1", "Syntax"),
        ("2", "IANA Considerations"),
        ("3", "Normative References"),
        ("A", "Changes"),
    ]
    assert [(each.key, each.section, each.line) for each in document.citations] == [
        ("RFC3986", "3.2", 17),
        ("RFC7595", "7.4", 18),
    ]
    assert [(each.key, each.text) for each in document.references] == [
        ("RFC2119", ""),
        ("RFC3986", "Generic Syntax RFC 3986"),
        ("RFC7595", ""),
        ("I-D.example-other", ""),
    ]
    (block,) = document.blocks
    assert (block.line, block.section) == (22, "1.1")
    assert block.text == 'sample-URI = "sample:" hier-part\n             [ "?" query ]'
    assert [each.uri for each in document.examples] == [
        "sample://example.org/a",
        "sample://example.org/shown",
    ]


def test_version_2_is_read() -> None:
    document = read("v2.xml")
    assert (document.name, document.dated, document.expires) == ("RFC 99999", date(2015, 6, 1), None)
    assert [(each.text("name"), each.section, len(each.values)) for each in document.templates] == [
        ("sample", "1", 3),
        ("sample2", "2", 3),
        ("sample3", "3", 3),
    ]
    assert [(each.text, each.line) for each in document.blocks] == [('   other-URI = "sample2:" *ALPHA', 17)]


def test_sections_may_be_fields() -> None:
    document = body(
        "<section title='R'><section title='Scheme name'><t>a</t></section>"
        "<section><name>Status</name><t>permanent</t></section></section>"
    )
    assert {key: value.text for key, value in document.templates[0].values.items()} == {
        "name": "a",
        "status": "permanent",
    }


def test_rows_items_and_breaks_are_fields() -> None:
    rows = body("<table><tr><td>Scheme name</td><td>a</td></tr><tr><th>Status</th><td>x</td></tr></table>")
    assert rows.templates[0].text("status") == "x"
    items = body("<ul><li>Scheme name: a</li><li>Status: x</li></ul>")
    assert items.templates[0].text("status") == "x"
    breaks = body("<t>Scheme name: a<br/>Status: x<vspace/>Contact: c</t>")
    assert breaks.templates[0].text("contact") == "c"


def test_odd_markup_is_passed_over() -> None:
    document = body(
        "<name>lost</name><t hangText=''>a</t><dl><dt/><dd/></dl><artwork/><xref target='RFC1' section='2'"
        " sectionFormat='bare'/><cref>[RFC2]</cref><seriesInfo name='x' value='y'/><date year='1'/>"
        "<section><figure><name>caption</name></figure></section><?rfc toc='yes'?><?xml-x y?>"
    )
    assert [(each.key, each.section) for each in document.citations] == [("RFC1", "2")]
    assert document.dated is None
    assert (
        read_document("<rfc><front><date month='x' year='y'/></front></rfc>", need_template=False).dated
        is None
    )


def test_a_reference_is_one_line_of_text() -> None:
    document = body("<references><reference anchor='A'>\n\n\n x\ny</reference></references>")
    assert [(each.key, each.text) for each in document.references] == [("A", "x y")]


def test_character_entities_of_xml2rfc_and_of_html_are_read() -> None:
    text = (
        '<!DOCTYPE rfc SYSTEM "x.ent" [<!ENTITY nbsp "&#160;"><!ENTITY wj "&#8288;">]>'
        "<rfc><middle><section title='A'><t>a&nbsp;b&wj;&eacute;&nbhy;c</t></section></middle></rfc>"
    )
    (section,) = read_document(text, need_template=False).sections
    assert section.text.strip() == "a b\u2060é-c"


BOMB = "<!DOCTYPE rfc [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]><rfc>&b;</rfc>"


@as_subtests(
    "text",
    [
        BOMB,
        "<!DOCTYPE rfc [<!ENTITY b '&a;'>]><rfc/>",
        "<!DOCTYPE rfc [<!ENTITY b '&#38;a;'>]><rfc/>",
        "<!DOCTYPE rfc [<!ENTITY b '<'>]><rfc/>",
        "<!DOCTYPE rfc [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><rfc>&b;</rfc>",
        "<!DOCTYPE rfc [<!ENTITY b PUBLIC 'x' 'http://example.org/'>]><rfc>&b;</rfc>",
        "<!DOCTYPE rfc [<!NOTATION n SYSTEM 'n'><!ENTITY b SYSTEM 'x' NDATA n>]><rfc/>",
        "<!DOCTYPE rfc [<!ENTITY % p 'x'>]><rfc/>",
        "<!DOCTYPE rfc [<!ENTITY % p SYSTEM 'http://example.org/'> %p;]><rfc/>",
        "<rfc>" + "<t>" * (_xml.MAX_DEPTH + 1),
        "<rfc>" + "<br/>" * (_xml.MAX_ELEMENTS + 1) + "</rfc>",
    ],
)
def test_hostile_xml_is_refused(text: str) -> None:
    error = refused(text)
    assert error.code == "registry.hostile-xml"
    assert error.line is not None
    assert "passwd" not in str(error)


@pytest.mark.parametrize("text", ["<rfc>", "", "<rfc>&none;</rfc>", "<rfc a='\ud800'/>", "x"])
def test_xml_that_is_none_is_refused_with_its_place(text: str) -> None:
    error = refused(text)
    assert error.code == "registry.bad-xml"
    assert (error.line, error.column) >= (1, 1)


def test_an_entity_that_only_the_external_subset_declares_is_refused_when_unknown() -> None:
    error = refused("<!DOCTYPE rfc SYSTEM 'x'><rfc>&none;</rfc>")
    assert (error.code, error.line) == ("registry.bad-xml", 1)


def test_lines_and_characters_of_xml_are_capped() -> None:
    error = refused("<rfc><artwork>a" + "\n" * _lines.MAX_LINES + "b</artwork></rfc>")
    assert error.code == "registry.too-large"
    assert refused("<rfc>" + " " * _lines.MAX_TEXT).code == "registry.too-large"
