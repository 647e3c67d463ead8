"""Documents that define a URI scheme: templates, Internet-Drafts and RFCs, as text, XML or Markdown.

    document = read_document(text, source="draft-levy-llm-uri-scheme-00.txt")
    document.templates[0].text("name")  # "llm"

Nothing outside the text is loaded or executed. Reading takes linear time and is capped.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from onym.errors import TemplateError
from onym.registry.documents._citations import find_citations, find_references
from onym.registry.documents._lines import (
    Line,
    find_anchors,
    mark_headings,
    mark_markdown,
    parse_front_matter,
    require_at_most,
    split_lines,
    split_sections,
)
from onym.registry.documents._metadata import compute_expiry, detect_kind, find_dates, find_name
from onym.registry.documents._snippets import find_blocks, find_examples
from onym.registry.documents._templates import (
    NAME,
    find_templates,
    get_labels,
    profile_of_template,
    profile_reason,
    to_text,
)
from onym.registry.documents._xml import flatten_xml
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
from onym.registry.registries import PROFILES
from onym.registry.registries import get_registry as registry_row

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
    chosen = detect_kind(text) if kind is None else kind
    document = (
        _parse_xml(text, registry)
        if chosen is DocumentKind.XML
        else _parse_text(text, chosen, registry, source)
    )
    if need_template and not document.templates:
        form = PROFILES[registry_row(registry).default_profile]
        raise TemplateError(
            "no registration template is there",
            field=NAME,
            clause=form.template_clause,
            hint="these labels were looked for, each at the beginning of a line: "
            + get_labels(registry).format_needed(),
        )
    return document


def _parse_text(text: str, chosen: DocumentKind, registry: str, source: str) -> Document:
    lines = split_lines(text)
    listed: tuple[Reference, ...] = ()
    anchors: frozenset[str] = frozenset()
    if chosen is DocumentKind.MARKDOWN:
        anchors = find_anchors(text)
        listed = parse_front_matter(lines)
        mark_markdown(lines)
        lines = [_strip_quote_marks(line) for line in lines]
    else:
        if chosen is DocumentKind.TEMPLATE:
            lines = [_strip_quote_marks(line) for line in lines]
        mark_headings(lines, paged=chosen is not DocumentKind.TEMPLATE)
    dated, expires = find_dates(text, chosen)
    name = find_name(text, chosen, source)
    return _build_document(
        text, chosen, registry, lines, listed, anchors=anchors, name=name, dated=dated, expires=expires
    )


def _strip_quote_marks(line: Line) -> Line:
    """A line of a mail's quotation, without the marks."""
    if line.text.startswith(">") and line.code is None:
        line.text = line.text.lstrip("> ")
    return line


def _parse_xml(text: str, registry: str) -> Document:
    flat = flatten_xml(text)
    return _build_document(
        text,
        DocumentKind.XML,
        registry,
        flat.lines,
        tuple(flat.references),
        anchors=flat.anchors,
        name=flat.name,
        dated=flat.dated,
        expires=None if flat.is_rfc else compute_expiry(flat.dated),
    )


def _render_plain(lines: list[Line]) -> str:
    """The lines under their numbers; those that were not read are blank."""
    rows: dict[int, list[str]] = {}
    for line in lines:
        row = rows.setdefault(line.number, [])
        row.append(line.text.strip() if row else line.text)
    return "\n".join(" ".join(rows.get(number, ())) for number in range(1, max(rows, default=0) + 1))


def _is_own_name(key: str, name: str | None) -> bool:
    """Is the key the document's own name, with its version or without?"""
    if name is None:
        return False
    return key in (name, name.replace(" ", ""), name[:-3], name.removesuffix("-latest"))


def _build_document(
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
    templates = find_templates(
        lines, get_labels(registry), markdown=kind is DocumentKind.MARKDOWN, partial=kind in _PASTED
    )
    sections = split_sections(lines)
    require_at_most(sections, MAX_SECTIONS, "sections")
    blocks = find_blocks(lines)
    # XML marks its lists, and what is ABNF: its lines may be one
    entries, entry_lines = find_references([] if kind is DocumentKind.XML else lines, templates)
    grammar_lines = {
        number
        for block in blocks
        if not block.marked
        for number in range(block.line, block.line + block.text.count("\n") + 1)
    }
    without = entry_lines | grammar_lines
    references = (*listed, *entries)
    citations, added = find_citations(
        lines, known={reference.key for reference in references}, without=without, anchors=anchors
    )
    known = {reference.key for reference in references}
    return Document(
        kind=kind,
        registry=registry,
        name=name,
        dated=dated,
        expires=expires,
        text=text,
        plain=_render_plain(lines),
        sections=sections,
        templates=templates,
        citations=tuple(citation for citation in citations if not _is_own_name(citation.key, name)),
        references=(*references, *(reference for reference in added if reference.key not in known)),
        blocks=blocks,
        examples=find_examples(lines, [template.text(NAME) for template in templates], without=without),
    )
