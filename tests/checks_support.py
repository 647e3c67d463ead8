"""Documents made by hand, and what the checks say of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Any

from onym.registry.checks import Finding, ReferenceData, Report, check
from onym.registry.documents.types import (
    Block,
    Citation,
    Document,
    DocumentKind,
    Example,
    Reference,
    Section,
    Template,
    TemplateValue,
)
from onym.registry.iana import RFC
from onym.registry.records import Entry, Status

LABELS = {
    "name": "Scheme name",
    "status": "Status",
    "applications": "Applications/protocols that use this scheme name",
    "contact": "Contact",
    "change_controller": "Change controller",
    "references": "References",
}
GOOD = {
    "name": "kite",
    "status": "Provisional",
    "applications": "Kite flying (see [KITE])",
    "contact": "Ada Example <ada@example.com>",
    "change_controller": "Ada Example <ada@example.com>",
    "references": "[KITE] Kites, https://kite.example/spec",
}
OLD_LABELS = LABELS | {
    "name": "URI scheme name",
    "applications": "Applications/protocols that use this URI scheme name",
    "change_controller": "Author/Change controller",
    "syntax": "URI scheme syntax",
    "semantics": "URI scheme semantics",
    "encoding": "Encoding considerations",
    "interoperability": "Interoperability considerations",
    "security": "Security considerations",
}
OLD = GOOD | {
    "status": "provisional",
    "syntax": "see Section 2 of [KITE]",
    "semantics": "A kite URI identifies a kite; the one operation is to fly it.",
    "encoding": "UTF-8, percent-encoded",
    "interoperability": "none known",
    "security": "see Section 4 of [KITE]",
}


def entry(name: str, status: Status = Status.PERMANENT, **fields: str) -> Entry:
    return Entry(registry="uri-schemes", name=name, status=status, fields=fields)


KNOWN = ReferenceData(
    entries=MappingProxyType(
        {each: entry(each) for each in ("http", "ftp", "aim", "ar", "modem", "wss", "aaas")}
    ),
    rfcs=MappingProxyType(
        {
            **{
                number: RFC(number=number, basis="text")
                for number in (2119, 3986, 6335, 7595, 8174, 8446, 8615, 9999)
            },
            4395: RFC(number=4395, basis="text", obsoleted_by=(7595,)),
        }
    ),
    all_rfcs=True,
    tlds=frozenset({"com", "org", "ms", "example"}),
    services=frozenset({"ipp", "imap"}),
)


def template(
    fields: Mapping[str, str] = GOOD, *, labels: Mapping[str, str] = LABELS, **more: str
) -> Template:
    """A template whose fields stand on lines 1, 2, ...; a field of `more` replaces, "" in it is left out."""
    given = {name: text for name, text in (dict(fields) | more).items() if text}
    values = {
        name: TemplateValue(id=name, label=labels.get(name, name), text=text, line=at)
        for at, (name, text) in enumerate(given.items(), 1)
    }
    return Template(values=values, line=1)


def document(*templates: Template, text: str = "", **parts: Any) -> Document:
    written = "\n".join(f"{each.label}: {each.text}" for one in templates for each in one.values.values())
    parts.setdefault("kind", DocumentKind.TEMPLATE)
    return Document(text=f"{written}\n{text}", templates=templates, **parts)


def draft(
    text: str = "",
    *,
    sections: Mapping[str, str] = MappingProxyType({}),
    references: Mapping[str, str] = MappingProxyType({}),
    citations: tuple[tuple[str, str | None], ...] = (),
    abnf: str = "",
    examples: tuple[str, ...] = (),
    fields: Mapping[str, str] = GOOD,
    labels: Mapping[str, str] = LABELS,
    **parts: Any,
) -> Document:
    """A specification with a template; citations stand on line 10, the grammar on line 20."""
    whole = "\n".join([text, *(f"{title}\n{said}" for title, said in sections.items())])
    return document(
        template(fields, labels=labels),
        text=whole,
        kind=parts.pop("kind", DocumentKind.DRAFT),
        sections=tuple(
            Section(number=str(at), title=title, text=said, line=at * 10)
            for at, (title, said) in enumerate(sections.items(), 1)
        ),
        references=tuple(Reference(key=key, text=said, line=90) for key, said in references.items()),
        citations=tuple(Citation(key=key, section=section, line=10) for key, section in citations),
        blocks=(Block(text=abnf, line=20),) if abnf else (),
        examples=tuple(Example(uri=uri, line=30) for uri in examples),
        **parts,
    )


def report(of: Document, *, profile: str | None = None, known: ReferenceData = KNOWN, **more: Any) -> Report:
    return check(of, profile=profile, known=known, today=more.pop("today", date(2026, 1, 1)), **more)


def codes(of: Document, check_id: str | None = None, **more: Any) -> set[str]:
    """The codes found, of one check or of all."""
    return {each.code for each in report(of, **more).findings if check_id in (None, each.check)}


def finding(of: Document, code: str, **more: Any) -> Finding:
    """The first finding with that code; there must be one."""
    return next(each for each in report(of, **more).findings if each.code == code)
