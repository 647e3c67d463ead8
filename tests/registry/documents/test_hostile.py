"""Any text is read or refused, in linear time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import TemplateError
from onym.registry.documents import DocumentKind, _lines, read_document
from support import as_subtests, linear_enough

HEAD = "Scheme name: abc\nStatus: x\n"

PIECES = st.sampled_from(
    [
        *(
            "Scheme name:",
            "URI scheme name",
            " abc",
            "Status: x",
            "Contact.",
            "References:",
            "[1] x",
            "[RFC1]",
        ),
        *(
            "3.1.  Status",
            "# Status",
            "##",
            "---",
            "```",
            "~~~",
            "<!--",
            "-->",
            "¶",
            "\f",
            "\t",
            "\r",
            "\r\n",
            "\n",
        ),
        *(
            "   ",
            "abc:x",
            "abc:",
            '"abc:',
            "<abc:",
            "\\",
            "'",
            "a = ",
            '"b"',
            "/ c",
            "; d",
            "Section 1",
            " of ",
            "RFC 1",
        ),
        *(
            "Table of Contents",
            ". . . . 3",
            "Doe  [Page 1]",
            "Internet-Draft",
            "RFC 1 x June 2015",
            "Expires 1 May 2020",
        ),
        *(
            "<rfc>",
            "</rfc>",
            "<t>",
            "</t>",
            "<section>",
            "<dt>",
            "<artwork>",
            "&amp;",
            "<!DOCTYPE rfc [",
            "{{!RFC1}}",
        ),
        *("| a | b |", "**", "o ", "> ", "===", "normative:", "  A:", "\ud800", "\u0000"),
    ]
)


@given(
    st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=60).map("".join),
    st.sampled_from([None, *DocumentKind]),
)
def test_any_text_is_read_or_refused(text: str, kind: DocumentKind | None) -> None:
    try:
        document = read_document(text, kind=kind, need_template=False)
    except TemplateError as error:
        refusal = error.code
    else:
        refusal = None
    if refusal is not None:
        assert refusal in {"registry.bad-xml", "registry.hostile-xml"}
        return
    last = len(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    places = (
        *(template.line for template in document.templates),
        *(section.line for section in document.sections),
        *(citation.line for citation in document.citations),
        *(reference.line for reference in document.references),
        *(block.line for block in document.blocks),
        *(example.line for example in document.examples),
    )
    assert all(1 <= place <= last for place in places)
    assert document.text == text


FORMS: dict[str, Callable[[int], str]] = {
    "labels": lambda n: HEAD + "Contact: " * (n // 9),
    "spaces": lambda n: HEAD + " " * n + "x",
    "dots": lambda n: HEAD + "." * n + " x",
    "leaders": lambda n: HEAD + ". " * (n // 2) + "9",
    "hashes": lambda n: "# a" + "#" * n + "y\n" + HEAD,
    "sections": lambda n: HEAD + ("Section 1" + ", 1" * 9) * (n // 40),
    "brackets": lambda n: HEAD + "[a" * (n // 2),
    "numbers": lambda n: HEAD + "RFCs 1" + ", 2" * (n // 3),
    "closing": lambda n: HEAD + ("abc:" + ")" * 8000 + " ") * (n // 8000),
    "schemes": lambda n: HEAD + "abc:" * (n // 4),
    "drafts": lambda n: HEAD + "draft" + "-a" * (n // 2),
    "rules": lambda n: HEAD + 'a = "b"\n' * (n // 20),
    "names": lambda n: HEAD + "a = " + "b" * n,
    "prose": lambda n: HEAD + "a = " + "<" * n,
    "strange": lambda n: HEAD + "a = " + "{" * n,
    "tabs": lambda n: HEAD + "\t" * n + "x",
    "comments": lambda n: "# a\n" + HEAD + "<!--" * (n // 4),
    "quoted": lambda n: HEAD + '"abc:x\n' * (n // 70),
    "xml": lambda n: "<rfc><t>" + "\n" * n + "</t></rfc>",
}


@as_subtests("form", FORMS)
def test_time_grows_with_length(form: str) -> None:
    make = FORMS[form]
    text = make(400_000)
    with linear_enough():
        read_document(text, need_template=False)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (HEAD + "x" * _lines.MAX_TEXT, "characters"),
        (HEAD + "\n" * _lines.MAX_LINES, "lines"),
        (HEAD * 501, "templates"),
        (HEAD + "Contact: x\n" * 250, "fields"),
        ("# a\n" * 5_001 + HEAD, "sections"),
        (HEAD + "References:\n" + "[1] x\n" * 20_001, "references"),
        (HEAD + "[RFC1] " * 20_001, "citations"),
        (HEAD + "\n---\n" + 'a = "b"\nx x.\n' * 2_001, "blocks"),
        (HEAD + "".join(f"abc:{number} " for number in range(5_001)), "example"),
    ],
)
def test_what_is_too_much_is_refused(text: str, what: str) -> None:
    with pytest.raises(TemplateError, match=f"[0-9]+ {what}") as caught:
        read_document(text)
    assert caught.value.code == "registry.too-large"


def test_a_megabyte_in_a_field_is_kept() -> None:
    value = "x" * 1_000_000
    (template,) = read_document(f"{HEAD}Contact: {value}\n").templates
    assert template.text("contact") == value
