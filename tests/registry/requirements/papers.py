"""Specifications of a scheme `kite` that keep every guideline, to break one at a time; and what is said."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

import pytest

from checks_support import GOOD, KNOWN, LABELS, OLD, OLD_LABELS, document, draft, report, template
from onym.registry.checks import Finding, Level
from onym.registry.documents.types import Document

PROFILES = ("rfc4395", "rfc7595")
BOTH = pytest.mark.parametrize("profile", PROFILES)
GRAMMAR = 'kite-URI = "kite:" 1*( ALPHA / "-" )'
SECTIONS = MappingProxyType(
    {
        "Syntax": "The colon is the only delimiter, and is never percent-encoded.",
        "Semantics and Operations": "A kite URI identifies a kite. The default operation is to look it up, "
        "which is safe; no other operation is defined.",
        "Encoding Considerations": "A kite URI is ASCII; characters beyond it are UTF-8, percent-encoded.",
        "Security Considerations": "Section 7 of RFC 3986 applies: all of it.",
        "Privacy Considerations": "A kite URI tells nothing about who made it.",
    }
)
FORMS = {"rfc4395": (OLD, OLD_LABELS), "rfc7595": (GOOD, LABELS)}


def paper(
    profile: str,
    text: str = "",
    *,
    status: str = "provisional",
    sections: Mapping[str, str] = MappingProxyType({}),
    abnf: str = GRAMMAR,
    fields: Mapping[str, str] = MappingProxyType({}),
    **parts: Any,
) -> Document:
    """A specification without a fault; a section or field given replaces its own, "" leaves it out."""
    form, labels = FORMS[profile]
    word = status if profile == "rfc4395" else status.capitalize()
    whole = {**form, "status": word, **fields}
    return draft(
        text,
        sections={title: said for title, said in {**SECTIONS, **sections}.items() if said},
        abnf=abnf,
        fields={name: value for name, value in whole.items() if value},
        labels=labels,
        dated=date(2026, 1, 1),
        **parts,
    )


def slip(profile: str, *, status: str = "provisional", **fields: str) -> Document:
    """A template alone."""
    form, labels = FORMS[profile]
    word = status if profile == "rfc4395" else status.capitalize()
    return document(template({**form, "status": word}, labels=labels, **fields))


def found(of: Document, profile: str, code: str, **more: Any) -> Finding | None:
    """The first finding of that code, None where there is none."""
    said = report(of, profile=profile, **more).findings
    return next((item for item in said if item.code == code), None)


def told(of: Document, profile: str, code: str, check: str, clause: str, **more: Any) -> Finding:
    """The finding of that code; it must be there, of that check, and name that clause."""
    said = found(of, profile, code, **more)
    assert said is not None, [finding.code for finding in report(of, profile=profile, **more).findings]
    assert (said.check, said.clause) == (check, clause)
    return said


def grave(of: Document, profile: str, **more: Any) -> set[str]:
    """The codes of all errors and warnings."""
    said = report(of, profile=profile, **more)
    return {item.code for level in (Level.ERROR, Level.WARNING) for item in said.of(level)}


def asked(of: Document, profile: str) -> dict[str, str]:
    """The questions for the reviewer: code and clause."""
    said = report(of, profile=profile).of(Level.HINT)
    return {item.code: item.clause for item in said if item.message.startswith("ask a person: ")}


__all__ = [
    "BOTH",
    "GRAMMAR",
    "KNOWN",
    "PROFILES",
    "SECTIONS",
    "asked",
    "found",
    "grave",
    "paper",
    "slip",
    "told",
]
