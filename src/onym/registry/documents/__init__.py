"""Documents that define a URI scheme: templates, Internet-Drafts and RFCs, as text, XML or Markdown.

    document = read_document(text, source="draft-levy-llm-uri-scheme-00.txt")
    document.templates[0].text("name")  # "llm"

Nothing outside the text is loaded or executed. Reading takes linear time and is limited.
"""

from __future__ import annotations

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
from onym.registry.documents._metadata import detect_kind, find_dates, find_name
from onym.registry.documents._snippets import find_blocks, find_examples, find_form, find_named_schemes
from onym.registry.documents._templates import (
    NAME,
    SYNTAX,
    clean_value,
    find_templates,
    get_labels,
    profile_of_template,
    profile_reason,
    to_text,
)
from onym.registry.documents._xml import FlatDocument, flatten_xml
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
from onym.registry.registries import PROFILES, get_registry

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
    "find_value_blocks",
    "profile_of_template",
    "profile_reason",
    "read_document",
    "to_text",
]

#: sections of one document
MAX_SECTIONS = 5_000
#: kinds in which a template may lack its name, or consist only of it
_PASTED = frozenset((DocumentKind.TEMPLATE, DocumentKind.MARKDOWN))


def read_document(
    text: str,
    *,
    registry: str = "uri-schemes",
    kind: DocumentKind | None = None,
    source: str = "-",
    need_template: bool = True,
) -> Document:
    """Read a document. If `kind` is None, it is detected; `source` is the name of the file, or "-".

    The profiles of `registry` define the labels of templates. With `need_template=False` a text without a
    template is accepted, for example one with only a grammar. Raises UnknownEntryError if the registry does
    not exist, and TemplateError: registry.no-template if no template is found, registry.too-large beyond a
    limit, registry.bad-xml, and registry.hostile-xml for entities that are more than characters.
    """
    chosen = detect_kind(text) if kind is None else kind
    flat = flatten_xml(text) if chosen is DocumentKind.XML else _flatten_text(text, chosen, source)
    document = _build_document(text, chosen, registry, flat)
    if need_template and not document.templates:
        profile = PROFILES[get_registry(registry).default_profile]
        raise TemplateError(
            "the text has no registration template",
            field=NAME,
            clause=profile.template_clause,
            hint="none of these labels begins a line: " + get_labels(registry).format_needed(),
        )
    return document


def find_value_blocks(value: TemplateValue) -> tuple[Block, ...]:
    """Return the ABNF in a field of a form; its lines count from the line of the value."""
    rows = enumerate(clean_value(value.text).split("\n"), value.line)
    return find_blocks([Line(number=number, text=row) for number, row in rows])


def _flatten_text(text: str, kind: DocumentKind, source: str) -> FlatDocument:
    """Return the lines of a plain text or Markdown, with its metadata."""
    flat = FlatDocument(lines=split_lines(text), name=find_name(text, kind, source))
    if kind is DocumentKind.MARKDOWN:
        flat.anchors = set(find_anchors(text))
        flat.references = list(parse_front_matter(flat.lines))
        mark_markdown(flat.lines)
    if kind in _PASTED:
        for line in flat.lines:
            # a pasted mail may be quoted
            if line.text.startswith(">") and line.code is None:
                line.text = line.text.lstrip("> ")
    if kind is not DocumentKind.MARKDOWN:
        mark_headings(flat.lines, paged=kind is not DocumentKind.TEMPLATE)
    flat.dated, flat.expires = find_dates(text, kind)
    return flat


def _render_plain(lines: list[Line]) -> str:
    """Return the text of the lines at their line numbers; skipped lines are blank."""
    rows: dict[int, list[str]] = {}
    for line in lines:
        row = rows.setdefault(line.number, [])
        row.append(line.text.strip() if row else line.text)
    return "\n".join(" ".join(rows.get(number, ())) for number in range(1, max(rows, default=0) + 1))


def _is_own_name(key: str, name: str | None) -> bool:
    """Return whether the key is the document's name, with or without its version."""
    if name is None:
        return False
    return key in (name, name.replace(" ", ""), name[:-3], name.removesuffix("-latest"))


def _build_document(text: str, kind: DocumentKind, registry: str, flat: FlatDocument) -> Document:
    lines, name = flat.lines, flat.name
    is_markdown = kind is DocumentKind.MARKDOWN
    templates = find_templates(lines, get_labels(registry), markdown=is_markdown, partial=kind in _PASTED)
    sections = split_sections(lines)
    require_at_most(sections, MAX_SECTIONS, "sections")
    values = (template.values.get(SYNTAX) for template in templates)
    labels = {value.line: value.text.partition("\n")[0] for value in values if value is not None}
    blocks = find_blocks(lines, labels)
    if not blocks and kind in (DocumentKind.RFC, DocumentKind.DRAFT):
        blocks = find_form(lines)
    # XML marks its reference lists
    entries, entry_lines = find_references([] if kind is DocumentKind.XML else lines, templates)
    grammar_lines = {
        number
        for block in blocks
        if not block.marked
        for number in range(block.line, block.line + block.text.count("\n") + 1)
    }
    without = entry_lines | grammar_lines
    references = (*flat.references, *entries)
    known = {reference.key for reference in references}
    names = [template.text(NAME) for template in templates]
    citations, added = find_citations(lines, known=known, without=without, anchors=flat.anchors)
    return Document(
        kind=kind,
        registry=registry,
        name=name,
        dated=flat.dated,
        expires=flat.expires,
        text=text,
        plain=_render_plain(lines),
        sections=sections,
        templates=templates,
        citations=tuple(citation for citation in citations if not _is_own_name(citation.key, name)),
        references=(*references, *(reference for reference in added if reference.key not in known)),
        blocks=blocks,
        examples=find_examples(lines, names or find_named_schemes(blocks), without=without),
    )
