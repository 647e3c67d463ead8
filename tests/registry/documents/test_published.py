"""Every published template at hand: which schemes, which fields. The table was made by reading them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onym.errors import TemplateError
from onym.registry.documents import Document, DocumentKind, profile_of_template, read_document
from requirement_records import ROOT
from support import as_subtests

SHARED = ROOT.parent / "shared"
TEMPLATES = SHARED / "data" / "iana" / "templates"
SPEC = SHARED / "spec"

pytestmark = pytest.mark.skipif(not TEMPLATES.is_dir(), reason="the folder of source material is not here")

ALL = (
    "name status syntax semantics encoding applications interoperability security contact"
    " change_controller references"
)
SIX = "name status applications contact change_controller references"


def less(*names: str) -> str:
    """The eleven fields without these."""
    return " ".join(name for name in ALL.split() if name not in names)


def rows(fields: str, *names: str) -> list[tuple[str, str]]:
    return [(name, fields) for name in names]


# where a field is missing, the RFC (or the cut of it in the folder) does not have it
RFCS = {
    4151: rows(less("semantics"), "tag"),
    4501: rows(less("status", "semantics", "security", "references"), "dns"),
    4622: rows(ALL, "xmpp"),
    4975: rows(less("status", "references"), "msrp", "msrps"),
    5092: rows(ALL, "imap"),
    5122: rows(ALL, "xmpp"),
    5456: rows(ALL, "iax"),
    5538: rows(ALL, "snews"),
    # cut after "Contact"
    5724: rows(less("change_controller", "references"), "sms"),
    5781: rows(ALL, "rsync"),
    5804: rows(ALL, "sieve"),
    # cut within "URI Scheme Semantics"
    5870: rows("name status syntax semantics", "geo"),
    # 8.2 registers a header field with labels of the same names
    6068: rows(ALL, "mailto"),
    # section 2, "URI Scheme Name", is cut in as well and is no template
    6167: rows(less("change_controller"), "jms"),
    # 11.2 and 11.3 have "Contact" and "References" of other registrations
    6455: rows(ALL, "ws", "wss"),
    6501: rows(ALL, "xcon", "XCON-USERID"),
    6787: rows(ALL, "session"),
    # "Scheme Name:" of section 3 describes the syntax and begins no template
    6920: rows(ALL, "ni", "nih"),
    # a media type follows
    6940: rows(ALL, "reload"),
    7064: rows(ALL, "stun", "stuns"),
    7065: rows(ALL, "turn", "turns"),
    7252: rows(ALL, "coap", "coaps"),
    7425: rows(ALL, "rtmfp"),
    7472: rows(ALL, "ipps"),
    7512: rows(ALL, "pkcs11"),
    7565: rows(ALL, "acct"),
    # the form itself with its guidelines, then the template of `example`
    7595: [("See Section 3.8 for guidelines.", ALL), ("example", SIX)],
    7826: rows(ALL, "rtsp", "rtsps", "rtspu"),
    7869: rows(SIX, "vnc"),
    8089: rows(SIX, "file"),
    8141: rows(ALL, "urn"),
    8323: rows(SIX, "coap+tcp", "coaps+tcp", "coap+ws", "coaps+ws"),
    8589: rows(ALL, "leaptofrogans"),
    8905: rows(SIX + " syntax semantics", "payto"),
    8959: rows(SIX, "secret-token"),
    # pages of another section are cut in before
    9171: rows(SIX, "dtn", "ipn"),
}
REQUESTS = ("cabal", "dat", "doi", "dweb", "ethereum", "hyper", "ipfs", "ipns", "otpauth", "ssb")
MARKDOWN = {
    "castholm-string-uri-scheme.md": rows(SIX, "string"),
    # "References" is a section of the document there, not of the template
    "jonnycrunch-ipfs-application.md": rows(less("change_controller", "references"), "ipfs"),
    "orkestri-SODP__uri-review-email.md": rows(SIX, "sodp", "sodps"),
    "orkestri-SODP__uri-scheme-registration.md": rows(SIX, "sodp", "sodps"),
}


def read(path: Path, **options: bool) -> Document:
    return read_document(path.read_text(encoding="utf-8"), source=path.name, **options)


def found(document: Document) -> list[tuple[str, set[str]]]:
    return [(template.text("name"), set(template.values)) for template in document.templates]


def wanted(table: list[tuple[str, str]]) -> list[tuple[str, set[str]]]:
    return [(name, set(fields.split())) for name, fields in table]


@as_subtests("number", RFCS)
def test_the_templates_of_an_rfc_have_their_names_and_fields(number: int) -> None:
    document = read(TEMPLATES / "rfc" / f"rfc{number}.txt")
    assert found(document) == wanted(RFCS[number])
    assert document.name == f"RFC {number}"
    assert not any(template.repeated for template in document.templates)


def test_the_table_names_every_rfc_of_the_folder() -> None:
    assert {f"rfc{number}.txt" for number in RFCS} == {path.name for path in (TEMPLATES / "rfc").iterdir()}
    assert len(RFCS) == 36


@as_subtests("name", REQUESTS)
def test_a_request_as_it_was_sent_has_the_six_fields(name: str) -> None:
    document = read(TEMPLATES / "fred-wang" / f"{name}.txt")
    assert found(document) == [(name, set(SIX.split()))]
    template = document.templates[0]
    assert template.values["change_controller"].label == "Change controllers"
    assert template.text("change_controller").startswith("- Frédéric Wang (fwang@igalia.com)\n- ")
    assert document.references[0].text.startswith("https://")
    listed = {reference.key for reference in document.references}
    assert {citation.key for citation in document.citations} == listed
    assert profile_of_template(template) == "rfc7595"


@pytest.mark.parametrize("name", MARKDOWN)
def test_markdown_from_repositories_is_read(name: str) -> None:
    document = read(TEMPLATES / "git" / name)
    assert document.kind is DocumentKind.MARKDOWN
    assert found(document) == wanted(MARKDOWN[name])


def test_a_guide_without_a_template_says_which_labels_were_looked_for() -> None:
    with pytest.raises(TemplateError) as caught:
        read(TEMPLATES / "git" / "orkestri-SODP__README.md")
    assert (caught.value.code, caught.value.clause) == ("registry.no-template", "RFC 7595 7.4")
    labels = re.findall(r'"([^"]+:)"', caught.value.hint or "")
    assert (labels[:2], labels[-1]) == (["Scheme name:", "Status:"], "References:")


def test_the_llm_draft_is_read_though_its_indentation_is_lost() -> None:
    document = read(SPEC / "draft-levy-llm-uri-scheme-00.txt")
    assert document.kind is DocumentKind.DRAFT
    assert document.name == "draft-levy-llm-uri-scheme-00"
    assert (str(document.dated), str(document.expires)) == ("2026-02-06", "2026-08-10")
    assert found(document) == [("llm", set(SIX.split()))]
    template = document.templates[0]
    assert template.section == "12.1"
    assert template.text("applications").splitlines()[-1].startswith("systems that connect")
    assert template.text("references") == "This document; RFC 3986; RFC 7595."
    numbers = [section.number for section in document.sections if section.number]
    assert numbers[:6] == ["1", "1.1", "1.2", "2", "3", "3.1"]
    assert numbers[-6:] == ["12.1", "12.2", "13", "13.1", "13.2", "A"]
    assert [(block.section, block.text.count("\n") + 1) for block in document.blocks] == [
        ("3.1", 2),
        ("3.2", 6),
        ("4.2", 1),
        ("4.2.1", 3),
    ]
    listed = {reference.key for reference in document.references}
    assert len(listed) == 10
    cited = {citation.key for citation in document.citations}
    assert listed - cited == {"OPENAI-API", "RFC8446"}
    assert cited - listed == {"draft-sogomonian-ai-uri-scheme"}


def test_every_uri_of_the_llm_draft_is_found_once_and_whole() -> None:
    document = read(SPEC / "draft-levy-llm-uri-scheme-00.txt")
    places = [(example.section or "").split(".")[0] for example in document.examples]
    # nine of them in sections 3 to 7, two in 10.5
    assert [place for place in places if place != "10"] == ["3", "4", "4", "7", "7", "7", "7", "7", "7"]
    assert [example.uri for example in document.examples if example.section == "10.5"] == [
        "llm://localhost:8080/admin",
        "llm://169.254.169.254/latest/meta-data",
    ]
    uris = {example.uri for example in document.examples}
    assert "llm://api.anthropic.com/claude-sonnet-4.5?temp=0.3&max_tokens=4096#code-review" in uris


def test_the_ai_draft_is_read_though_its_template_stands_on_one_line() -> None:
    document = read(SPEC / "draft-sogomonian-ai-uri-scheme-01.txt")
    assert document.name == "draft-sogomonian-ai-uri-scheme-01"
    assert (str(document.dated), str(document.expires)) == ("2025-10-02", "2026-04-05")
    assert found(document) == [("ai", {*SIX.split(), "security"})]
    template = document.templates[0]
    assert template.text("status") == "Provisional"
    assert template.text("contact") == "Aram Sogomonian <waterbottling@icloud.com>"
    assert template.text("security") == 'See "Security Considerations" of this document'
    assert profile_of_template(template) == "rfc7595"
    assert [example.uri for example in document.examples] == [
        "ai:/agent/forklift-42?task=load&zone=A3",
        "ai://factory.example/pay?amount=10¤cy=USD",
        "ai://bank/service/payments",
        "ai://bank/service/payments?amount=10¤cy=USD",
    ]
    assert [block.text.split(" ; ")[0] for block in document.blocks] == [
        'ai-uri = "ai:" hier-part [ "?" query ] [ "#" fragment ]'
    ]
    assert ("RFC7595", "3.4") in {(citation.key, citation.section) for citation in document.citations}


@pytest.mark.parametrize(
    ("number", "dated", "templates"),
    # the blank forms of both procedures are not registrations
    [(3986, "2005-01-01", 0), (4395, "2006-02-01", 0), (7595, "2015-06-01", 1), (8615, "2019-05-01", 0)],
)
def test_whole_rfcs_are_read(number: int, dated: str, templates: int) -> None:
    document = read(SPEC / "rfc" / f"rfc{number}.txt", need_template=False)
    assert document.kind is DocumentKind.RFC
    assert (document.name, str(document.dated), document.expires) == (f"RFC {number}", dated, None)
    assert len(document.templates) == templates
    numbers = [section.number for section in document.sections if section.number]
    assert len(numbers) == len(set(numbers))
    assert not any("[Page" in section.text for section in document.sections)


def test_the_grammar_of_rfc_3986_is_found_with_its_sections() -> None:
    document = read(SPEC / "rfc" / "rfc3986.txt", need_template=False)
    collected = [block for block in document.blocks if block.section == "A"]
    rules = [line for block in collected for line in block.text.splitlines() if " = " in line]
    assert len(rules) == 36
