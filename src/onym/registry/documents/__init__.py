"""Documents about a scheme, read: templates, Internet-Drafts, RFCs, their XML and Markdown.

    document = read_document(text, source="draft-levy-llm-uri-scheme-00.txt")
    document.templates[0].text("name")  # "llm"

Nothing is loaded, run or guessed from outside the text; reading takes linear time and is capped.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from onym.errors import TemplateError
from onym.registry.documents._blocks import blocks_of
from onym.registry.documents._citations import citations_of, references_of
from onym.registry.documents._examples import examples_of
from onym.registry.documents._headings import mark_headings, sections_of
from onym.registry.documents._labels import NAME, labels_of
from onym.registry.documents._lines import Line, capped, lines_of
from onym.registry.documents._markdown import anchors_of, front_matter, mark_markdown
from onym.registry.documents._meta import dates_of, expiry_of, kind_of, name_of
from onym.registry.documents._profile import profile_of_template, profile_reason, to_text
from onym.registry.documents._templates import read_templates
from onym.registry.documents._xml import flatten
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
from onym.registry.profiles import PROFILES
from onym.registry.registries import registry as registry_row

__all__ = [
    "Block",
    "Citation",
    "Document",
    "DocumentKind",
    "Example",
    "Reference",
    "Section",
    "Template",
    "TemplateValue",
    "profile_of_template",
    "profile_reason",
    "read_document",
    "to_text",
]

#: sections of one document
MAX_SECTIONS = 5_000
#: kinds in which a template without its name, or a name alone, is still what was meant
_PASTED = frozenset((DocumentKind.TEMPLATE, DocumentKind.MARKDOWN))


def read_document(
    text: str,
    *,
    registry: str = "uri-schemes",
    kind: DocumentKind | None = None,
    source: str = "-",
    need_template: bool = True,
) -> Document:
    """Read a document; `kind` is found out where it is None, `source` is a file's name or "-".

    Templates are those of `registry`: its profiles say which labels there are. Raises UnknownEntryError
    for a registry that there is not; TemplateError: registry.no-template where no template is found (not
    so with `need_template=False`, for texts that are wanted for their grammar), registry.too-large beyond a
    cap, registry.bad-xml, and registry.hostile-xml for entities that are more than characters.
    """
    chosen = kind_of(text) if kind is None else kind
    document = (
        _from_xml(text, registry)
        if chosen is DocumentKind.XML
        else _from_text(text, chosen, registry, source)
    )
    if need_template and not document.templates:
        form = PROFILES[registry_row(registry).default_profile]
        raise TemplateError(
            "no registration template is there",
            field=NAME,
            clause=form.template_clause,
            hint="these labels were looked for, each at the beginning of a line: "
            + labels_of(registry).looked_for(),
        )
    return document


def _from_text(text: str, chosen: DocumentKind, registry: str, source: str) -> Document:
    lines = lines_of(text)
    listed: tuple[Reference, ...] = ()
    anchors: frozenset[str] = frozenset()
    if chosen is DocumentKind.MARKDOWN:
        anchors = anchors_of(text)
        listed = front_matter(lines)
        mark_markdown(lines)
        lines = [_unquoted(line) for line in lines]
    else:
        if chosen is DocumentKind.TEMPLATE:
            lines = [_unquoted(line) for line in lines]
        mark_headings(lines, paged=chosen is not DocumentKind.TEMPLATE)
    dated, expires = dates_of(text, chosen)
    name = name_of(text, chosen, source)
    return _document(
        text, chosen, registry, lines, listed, anchors=anchors, name=name, dated=dated, expires=expires
    )


def _unquoted(line: Line) -> Line:
    """A line of a mail's quotation, without the marks."""
    if line.text.startswith(">") and line.code is None:
        line.text = line.text.lstrip("> ")
    return line


def _from_xml(text: str, registry: str) -> Document:
    flat = flatten(text)
    return _document(
        text,
        DocumentKind.XML,
        registry,
        flat.lines,
        tuple(flat.references),
        anchors=flat.anchors,
        name=flat.name,
        dated=flat.dated,
        expires=None if flat.is_rfc else expiry_of(flat.dated),
    )


def _plain(lines: list[Line]) -> str:
    """The lines under their numbers; those that were not read are blank."""
    rows: dict[int, list[str]] = {}
    for line in lines:
        row = rows.setdefault(line.number, [])
        row.append(line.text.strip() if row else line.text)
    return "\n".join(" ".join(rows.get(number, ())) for number in range(1, max(rows, default=0) + 1))


def _itself(key: str, name: str | None) -> bool:
    """Is the key the document's own name, with its version or without?"""
    if name is None:
        return False
    return key in (name, name.replace(" ", ""), name[:-3], name.removesuffix("-latest"))


def _document(
    text: str,
    kind: DocumentKind,
    registry: str,
    lines: list[Line],
    listed: tuple[Reference, ...],
    *,
    anchors: Collection[str],
    name: str | None,
    dated: date | None,
    expires: date | None,
) -> Document:
    templates = read_templates(
        lines, labels_of(registry), markdown=kind is DocumentKind.MARKDOWN, partial=kind in _PASTED
    )
    sections = sections_of(lines)
    capped(sections, MAX_SECTIONS, "sections")
    blocks = blocks_of(lines)
    # XML marks its lists, and what is ABNF: its lines may be one
    entries, entry_lines = references_of([] if kind is DocumentKind.XML else lines, templates)
    grammar_lines = {
        number
        for block in blocks
        if not block.marked
        for number in range(block.line, block.line + block.text.count("\n") + 1)
    }
    without = entry_lines | grammar_lines
    references = (*listed, *entries)
    citations, added = citations_of(
        lines, known={each.key for each in references}, without=without, anchors=anchors
    )
    known = {each.key for each in references}
    return Document(
        kind=kind,
        registry=registry,
        name=name,
        dated=dated,
        expires=expires,
        text=text,
        plain=_plain(lines),
        sections=sections,
        templates=templates,
        citations=tuple(each for each in citations if not _itself(each.key, name)),
        references=(*references, *(each for each in added if each.key not in known)),
        blocks=blocks,
        examples=examples_of(lines, [each.text(NAME) for each in templates], without=without),
    )
