"""Which profile a template follows, and templates written in a profile's form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import UnknownEntryError
from onym.registry.documents import DocumentKind, profile_of_template, profile_reason, read_document, to_text
from onym.registry.documents._templates import clean_value
from onym.registry.registries import PROFILES


def test_fields_that_only_rfc_4395_has_decide() -> None:
    (old,) = read_document("Scheme name: a\nScheme syntax: b\nSecurity considerations: c\n").templates
    assert profile_of_template(old) == "rfc4395"
    assert '"Scheme syntax" (line 2)' in profile_reason(old)


def test_security_considerations_alone_decide_nothing() -> None:
    (new,) = read_document("Scheme name: a\nSecurity considerations: c\n").templates
    assert profile_of_template(new) == "rfc7595"
    assert "none of the syntax" in profile_reason(new)


def test_a_template_is_written_in_the_order_and_with_the_labels_of_the_standard() -> None:
    values = {"references": "r", "name": "a", "contact": "J. Doe\nin two lines", "syntax": "s", "status": " "}
    assert to_text(values, "rfc7595") == (
        "Scheme name: a\n\nContact:\n    J. Doe\n    in two lines\n\nReferences: r\n\nScheme syntax: s\n"
    )
    assert to_text(values, "rfc4395").startswith("URI scheme name: a\n\nURI scheme syntax: s\n\n")
    assert to_text({}, "rfc7595") == ""


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(UnknownEntryError):
        to_text({}, "rfc2717")


FIELDS = [each.id for each in PROFILES["rfc4395"].fields if each.id not in ("name", "status")]
PIECES = st.sampled_from(
    [
        *(
            "Status: x",
            "Scheme name: y",
            "Contact:",
            "URI scheme name",
            "3.1.  Status",
            "# Status",
            "**Status:**",
        ),
        *(
            "-----",
            "---",
            "```",
            "~~~ abnf",
            "<!-- x",
            "[Page 3]",
            "1. a . . . . . 3",
            "> q",
            ": d",
            "| a | b |",
        ),
        *(
            "o  item",
            "-  item",
            "RFC 1 x June 2015",
            "Internet-Draft",
            "Table of Contents",
            "a = <b>",
            "=====",
            "Note: n",
        ),
        *(
            "References",
            "Acknowledgements",
            "Status: a Contact: b References: c",
            "¶ x",
            "Person x:",
            "<rfc>",
        ),
    ]
)
TEXT = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=30)
VALUES = st.lists(st.one_of(PIECES, TEXT, PIECES.map("  ".__add__), st.just("")), min_size=1, max_size=6)


@given(
    profile=st.sampled_from(["rfc4395", "rfc7595"]),
    status=st.sampled_from(["permanent", "Provisional"]),
    values=st.dictionaries(st.sampled_from(FIELDS), VALUES.map("\n".join)),
)
def test_what_is_written_is_read_again(profile: str, status: str, values: dict[str, str]) -> None:
    given_values = {"name": "sample", "status": status, **values}
    text = to_text(given_values, profile)
    (template,) = read_document(text, kind=DocumentKind.TEMPLATE).templates
    wanted = {key: clean_value(value) for key, value in given_values.items() if clean_value(value)}
    assert {key: value.text for key, value in template.values.items()} == wanted
    assert not [*template.repeated, *template.unknown]
    # and once more, the same text
    assert to_text(wanted, profile) == text
