"""Drafts as plain text: pages, contents, dates, citations, references, grammars and examples."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from onym.registry.documents import Document, DocumentKind, read_document
from support import as_subtests

DATA = Path(__file__).parent / "data"
DRAFT = "draft-example-sample-uri-00.txt"
TEMPLATE = "Scheme name: sample\nStatus: permanent\n"


def draft() -> Document:
    return read_document((DATA / DRAFT).read_text(encoding="utf-8"))


def uris(text: str) -> list[str]:
    return [each.uri for each in read_document(f"{TEMPLATE}\n-----\n\n{text}\n").examples]


def grammar(text: str) -> list[str]:
    return [each.text for each in read_document(text, need_template=False).blocks]


def cited(text: str) -> list[tuple[str, str | None]]:
    return [(each.key, each.section) for each in read_document(text, need_template=False).citations]


def test_name_date_and_expiry_stand_at_the_head() -> None:
    document = draft()
    assert document.kind is DocumentKind.DRAFT
    assert document.name == "draft-example-sample-uri-00"
    assert (document.dated, document.expires) == (date(2026, 2, 1), date(2026, 8, 5))


def test_contents_and_pages_are_no_text() -> None:
    document = draft()
    assert [(each.number, each.title) for each in document.sections] == [
        (None, "Abstract"),
        (None, "Table of Contents"),
        ("1", "Introduction"),
        ("2", "Syntax"),
        ("3", "IANA Considerations"),
        (None, "Acknowledgements"),
        ("4", "References"),
        ("4.1", "Normative References"),
        ("4.2", "Informative References"),
    ]
    assert not any("[Page" in each.text for each in document.sections)
    (template,) = document.templates
    assert (template.section, template.line) == ("3", 60)
    assert template.text("applications") == "Tests, which go\non over a line.\n\nAnd over a paragraph."
    assert template.text("references") == "This document."


def test_a_grammar_goes_on_over_a_page_with_a_line_for_a_line() -> None:
    (block,) = draft().blocks
    assert (block.section, block.line) == ("2", 44)
    rows = block.text.split("\n")
    assert rows[0].strip() == 'sample-URI = "sample:" hier-part'
    assert rows[9].strip() == '[ "?" query ]  ; goes on after the page'
    assert rows[10].strip() == "hier-part  = <defined in [RFC3986]>"
    assert set(rows[1:9]) == {" "}


def test_citations_have_their_sections_and_lists_have_their_entries() -> None:
    document = draft()
    assert [(each.key, each.section, each.line) for each in document.citations] == [
        ("RFC3986", "3.2.2", 28),
        ("RFC7595", "3.4", 28),
        ("RFC8615", None, 29),
        ("RFC5234", None, 29),
        ("RFC7405", None, 29),
        ("RFC8126", None, 29),
        ("small", None, 30),
        ("draft-other-thing-uri", None, 31),
    ]
    assert [(each.key, each.text.split(",")[0], each.line) for each in document.references] == [
        ("RFC3986", "Berners-Lee", 85),
        ("small", "Doe", 88),
        ("RFC7595", "Thaler", 92),
    ]


def test_examples_are_trimmed_joined_and_real() -> None:
    assert [(each.uri, each.line, each.section) for each in draft().examples] == [
        ("sample://example.org/a", 36, "1"),
        ("sample:b", 36, "1"),
        ("sample:c?d=e", 36, "1"),
        ("sample:f", 37, "1"),
        ("sample://example.org/long/path?query=1", 37, "1"),
        ("sample://[2001:db8::1]/g", 40, "1"),
    ]


@as_subtests(
    ("text", "found"),
    [
        ("sample://a/b\n?c=d#e\n&f", ["sample://a/b?c=d#e&f"]),
        ("sample://a/b\n?c=d and more", ["sample://a/b"]),
        ("sample://a/b\\\nc/d\\\ne", ["sample://a/bc/de"]),
        ('"sample:\n  a.example?b" is', ["sample:a.example?b"]),
        ('"sample:a\n  and more words" is', ["sample:a"]),
        ('"sample:a\nnothing closes', ["sample:a"]),
        ("sample:a)] sample:(b) sample:[c", ["sample:a", "sample:(b)"]),
        ("*sample:a* _sample:b_ sample:c.", ["sample:a", "sample:b", "sample:c"]),
        ("<a href=sample:a</a>", ["sample:a"]),
        ("sample:a sample:a SAMPLE:a", ["sample:a", "SAMPLE:a"]),
        ("resample:a x-sample:b sample: sample:// sample:...", []),
        ("sample:x{id} sample:<id> sample:[v]/x sample:x\u2026 sample:x^2", []),
        ("sample://[v1.x]/y", ["sample://[v1.x]/y"]),
        ("sample:a\n\n?b", ["sample:a"]),
        ("sample:a\n1.  Heading", ["sample:a"]),
        ("sample:a/\n" + "/b\n" * 12, ["sample:a/" + "/b" * 8]),
    ],
)
def test_forms_of_examples(text: str, found: list[str]) -> None:
    assert uris(text) == found


def test_a_name_that_is_no_name_has_no_examples() -> None:
    text = "Scheme name: no name\nStatus: permanent\n\nno name:a\n"
    assert read_document(text).examples == ()


@as_subtests(
    ("text", "found"),
    [
        ('a = "b"', ['a = "b"']),
        ("a=%x41", ["a=%x41"]),
        ('a = "b"\n   / "c"\nProse follows.', ['a = "b"\n   / "c"']),
        ('   a = b c\n   b = *c\n\n   c = "d"', ['   a = b c\n   b = *c\n \n   c = "d"']),
        ('   a = "b"\n\n   ; a remark\n\n   Prose.', ['   a = "b"\n \n   ; a remark']),
        ('   a = "b" /\n       "c",\n', ['   a = "b" /']),
        ("   a = b\n\n   Prose.", []),
        ("temp = the value that was given", []),
        ('json = {"a": 1}', []),
        ("==", []),
        ("a ==", []),
        ('   a = "b"\n   b =\n       "c"', ['   a = "b"\n   b =\n       "c"']),
        ('   a = "b"\n   b = "c", "d"', ['   a = "b"\n   b = "c", "d"']),
        ('   a = "b"\n   b = {{{{{{"c"', ['   a = "b"']),
        ('a = "b"\n[ "c" ] d\nand these are only words "e"', ['a = "b"\n  [ "c" ] d']),
        ("   a = b /\n       c\n   d = <e>", ["   a = b /\n       c\n   d = <e>"]),
        ("a = x/y", []),
        ("a = x / y", ["a = x / y"]),
        ("a = " + "{" * 100, []),
    ],
)
def test_forms_of_grammars(text: str, found: list[str]) -> None:
    assert grammar(text) == found


def test_an_empty_fence_is_no_grammar() -> None:
    assert grammar("# A\n```abnf\n\n```\n") == []


@as_subtests(
    ("text", "found"),
    [
        ("[RFC7595]", [("RFC7595", None)]),
        ("[1] and [a] and [A] and [Abc] and [AB-C]", [("AB-C", None)]),
        ("Section 3.4 of [RFC7595]", [("RFC7595", "3.4")]),
        ("Sections 3.4 and 5 of RFC 7595", [("RFC7595", "3.4")]),
        ("Section\n3.4 of RFC\n7595", [("RFC7595", "3.4")]),
        ("[RFC7595] Section 3.4", [("RFC7595", "3.4")]),
        ("[RFC7595], Section 3.4", [("RFC7595", "3.4")]),
        ("RFC 7595 (Section 3.4)", [("RFC7595", "3.4")]),
        ("RFC 7595, Appendix B", [("RFC7595", "B")]),
        ("Appendix A of RFC7595", [("RFC7595", "A")]),
        ("[RFC7595]\n\nSection 3.4", [("RFC7595", None)]),
        ("Section 3.4 of this document", []),
        ("RFC 7595x, XRFC 1, RFC", []),
        ("RFCs 1, 2, and 3", [("RFC1", None), ("RFC2", None), ("RFC3", None)]),
        ("[a](b) [RFC1](c) [RFC 2](d)", [("RFC1", None), ("RFC2", None)]),
        ("draft-a-b, draft-a-b.txt, draft-a-b/, x/draft-a-b and draft-a", [("draft-a-b", None)]),
        ("{{RFC1}} {{x}} {{!I-D.a-b}}", [("RFC1", None), ("I-D.a-b", None)]),
    ],
)
def test_forms_of_citations(text: str, found: list[tuple[str, str | None]]) -> None:
    assert cited(text) == found


@as_subtests(
    ("head", "dated", "expires"),
    [
        ("Expires: 10 August 2026", "2026-02-06", "2026-08-10"),
        ("Expires August 10, 2026", "2026-02-06", "2026-08-10"),
        ("This document will expire on nothing", None, None),
        ("Expires: 2026-08-10", "2026-02-06", "2026-08-10"),
        ("X    6 February 2026", "2026-02-06", "2026-08-10"),
        ("X    2026-02-06", "2026-02-06", "2026-08-10"),
        ("X    6 February 2026\nExpires: 9 August 2026", "2026-02-06", "2026-08-09"),
        ("X    31 February 2026", None, None),
        ("Expires: 1 January 0001", None, "0001-01-01"),
        ("X    31 December 9999", "9999-12-31", None),
    ],
)
def test_forms_of_dates(head: str, dated: str | None, expires: str | None) -> None:
    document = read_document(f"Internet-Draft\n{head}\n", need_template=False)
    found = [None if each is None else str(each) for each in (document.dated, document.expires)]
    assert found == [dated, expires]


def test_names_come_from_the_file_where_the_text_has_none() -> None:
    named = read_document("Internet-Draft", source="/x/draft-a-b-01.txt", need_template=False)
    assert named.name == "draft-a-b-01"
    assert read_document("Internet-Draft", need_template=False).name is None
    assert read_document(TEMPLATE, source="rfc0042.txt").name == "RFC 42"
    assert read_document(TEMPLATE, source="draft-a-b-01.txt").name == "draft-a-b-01"
    assert read_document(TEMPLATE).name is None
    paged = read_document("x\n\nRFC 42       A Title       May 2001\r\n", need_template=False)
    assert (paged.kind, paged.name) == (DocumentKind.RFC, "RFC 42")
    prose = read_document("RFC 42 of May 2001", need_template=False)
    assert (prose.kind, prose.name) == (DocumentKind.TEMPLATE, None)
    rfc = read_document("Request for Comments: 42\n  May 2001\n", need_template=False)
    assert (rfc.kind, rfc.name, rfc.dated) == (DocumentKind.RFC, "RFC 42", date(2001, 5, 1))
    day = read_document("Request for Comments: 42\n  3 May 2001\n", need_template=False)
    assert day.dated == date(2001, 5, 3)
    assert read_document("x", kind=DocumentKind.RFC, need_template=False).name is None
    assert read_document("x", kind=DocumentKind.RFC, need_template=False).dated is None


def numbers(text: str) -> list[str | None]:
    return [
        each.number for each in read_document(text, kind=DocumentKind.DRAFT, need_template=False).sections
    ]


def test_headings_without_indentation_come_in_sequence_or_from_the_contents() -> None:
    assert numbers("1. A\n1.1. B\n5. No\n1. Item\n1.2. C\n2. D\na\nA. E\nB.1. F\n3. No\n") == [
        *("1", "1.1", "1.2", "2", "A", "B.1")
    ]
    assert numbers("Table of Contents\n1. A\n\n2. B\nAcknowledgements\n1. A\n3. C\n2. B\n") == [
        None,
        "1",
        "2",
    ]
    assert numbers("1. A\n2. lower case\n2. An item.\n") == ["1"]


def test_a_line_alone_at_the_margin_is_a_heading_of_a_paged_text() -> None:
    text = "Some Title\n\n   Text that is indented.\n\nNo title\n   as it goes on\n\nLast Line\n"
    document = read_document(text, kind=DocumentKind.DRAFT, need_template=False)
    assert [each.title for each in document.sections] == ["Some Title"]
    assert document.sections[0].text.startswith("   Text")


def test_page_breaks_end_a_paragraph_only_after_its_end() -> None:
    page = "\n\n\nDoe    Expires 5 August 2026    [Page 1]\n\f\nInternet-Draft   X   August 2026\n\n\n"
    joined = read_document(f"{TEMPLATE}Contact:\n   one\n{page}   two\n").templates[0]
    assert joined.text("contact") == "one\ntwo"
    apart = read_document(f"{TEMPLATE}Contact:\n   one.\n{page}   two\n").templates[0]
    assert apart.text("contact") == "one.\n\ntwo"
    # lines of these forms in the middle of a page stay
    kept = read_document(f"{TEMPLATE}\n-----\nRFC 7595 of June 2015\n   [Page 1]\n", need_template=False)
    assert [each.key for each in kept.citations] == ["RFC7595"]
