"""Documents that define a URI scheme: templates, Internet-Drafts and RFCs, as text, XML or Markdown.

    document = read_document(text, source="draft-levy-llm-uri-scheme-00.txt")
    document.templates[0].text("name")  # "llm"

Nothing outside the text is loaded or executed. Reading takes linear time and is limited.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from onym.errors import TemplateError
from onym.registry.documents import _lines
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

#: citations, and entries of reference lists, of one document
MAX_CITATIONS: Final = 20_000

_ENTRY: Final = re.compile(r" *(?:[-*] )?\[\[?(?P<key>[A-Za-z0-9][A-Za-z0-9._+-]{0,63})\]\]?(?P<rest>.*)\Z")
#: an entry: some words follow the key; a citation of keys or a section does not match
_FULL: Final = re.compile(
    r"\[[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\] +(?!(?:Sec|Appendix|§|and\b|or\b))[\w\"'\u201c<](?:[^ ]* ){2}"
)
_LIST_TITLES: Final = frozenset(
    ("references", "normative references", "informative references", "citations", "uris")
)

# between two words of a citation: a space, or the end of a line
_GAP: Final = r"[ \n]?"
_SOME: Final = r"[ \n]"
_PART: Final = r"[0-9A-Z]{1,3}(?:\.[0-9]{1,3}){0,6}"
_RFC: Final = rf"RFC(?:{_SOME}|-)?[0-9]{{1,5}}(?![0-9A-Za-z])"
_KEY: Final = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
_WHERE: Final = (
    rf"(?:Sections?|Sec\.|Appendix|§){_SOME}(?P<%s>{_PART})"
    rf"(?:{_GAP}(?:,|and|,{_SOME}and){_SOME}{_PART}(?![0-9A-Za-z])){{0,9}}"
)
_CITATION: Final = re.compile(
    rf"(?:(?<![A-Za-z]){_WHERE % 'before'}{_SOME}(?:of|in){_SOME})?"
    rf"(?:\[(?P<key>{_KEY})\](?![\[(])|\[(?P<keys>{_KEY}(?:, ?{_KEY}){{1,9}})\](?![\[(])"
    rf"|\{{\{{(?P<kramdown>[^{{}}\n]{{1,120}})\}}\}}|(?<![A-Za-z0-9-])(?P<rfc>{_RFC})"
    rf"|(?<![A-Za-z0-9])RFCs(?P<rfcs>{_SOME}[0-9]{{1,5}}(?:{_GAP}(?:,|and|,{_SOME}and){_SOME}[0-9]{{1,5}}){{0,19}}))"
    rf"(?:,?{_SOME}(?:\(?){_WHERE % 'after'})?"
)
#: an Internet-Draft cited by name, but not in a URL or a file name
_DRAFT: Final = re.compile(r"(?<![A-Za-z0-9./_\[-])draft(?:-[a-z0-9]{1,40}+){2,20}(?![/_-]|\.[a-z])")
_NUMBERS: Final = re.compile(r"[0-9]{1,5}")
_KRAMDOWN_SECTION: Final = re.compile(rf"(?:Section|Appendix) (?P<part>{_PART})")
_KRAMDOWN_KEY: Final = re.compile(r"(?:^|[ !?])-?(?P<key>[A-Z][A-Za-z0-9._+-]{0,63})(?=$|[ ,(])")
_WORDS: Final = frozenset(("Section", "Sections", "Appendix"))
#: a key that is certainly one
_RFC_KEY: Final = re.compile(r"RFC-?[0-9]{1,5}\Z")
#: a section of another text, as RFC 3261 writes [H14.1] for section 14.1 of HTTP, and [HX.Y] for all of them
_OTHER_SECTION: Final = re.compile(r"[A-Z]{1,2}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){1,6}|X\.Y)\Z")
#: a number or a word in brackets after a word of a sentence, or after another such key
_SENTENCE_KEY: Final = re.compile(
    r"(?:(?<![\w-])[A-Za-z][a-z'-]{0,40},?|\],?(?: and| or)?) "
    r"\[(?P<key>[0-9]{1,3}|[A-Z][a-z]{2,40})(?=\](?:[ .,;:)]|\Z))"
)
#: a line with several words and no code is not part of a figure
_WORD: Final = re.compile(r"(?<![\w\[-])[A-Za-z][a-z'-]{0,40}(?![\w-])")
_SENTENCE: Final = 5
_CODE: Final = re.compile(r"[={}<>|\\]|; *\Z")
#: characters of a line that are searched, and of the line above
_WIDEST: Final = 400
_NEAR: Final = 60


def _iter_reference_lines(lines: list[_lines.Line]) -> Iterator[_lines.Line]:
    """Yield the lines of reference sections without their headings."""
    inside = 0
    for line in lines:
        if line.heading is not None:
            title = line.heading.title.casefold().strip(": ")
            deeper = 0 < inside < line.heading.level
            inside = line.heading.level if title in _LIST_TITLES else (inside if deeper else 0)
        elif inside:
            yield line


def find_references(
    lines: list[_lines.Line], templates: Iterable[Template]
) -> tuple[tuple[Reference, ...], frozenset[int]]:
    """Return the entries of the reference lists in sections and templates, and their lines."""
    entries, taken = _parse_entries(list(_iter_reference_lines(lines)))
    texts = {line.number: line.text for line in lines if line.text}
    for template in templates:
        value = template.values.get("references")
        if value is not None:
            numbers = range(value.line, value.line + value.text.count("\n") + 2)
            rows = [_lines.Line(number=number, text=texts.get(number, "")) for number in numbers]
            rows[0].text = _strip_label(rows[0].text, value.text)
            more, lined = _parse_entries(rows)
            entries += more
            taken |= lined
    _lines.require_at_most(entries, MAX_CITATIONS, "references")
    return tuple(sorted(entries, key=lambda entry: entry.line)), frozenset(taken)


def _strip_label(row: str, value: str) -> str:
    """Return the entry after a label, at its column; a line without an entry stays unchanged."""
    first = value.partition("\n")[0]
    if not row.endswith(first) or not _FULL.match(first):
        return row
    return " " * (len(row) - len(first)) + first


def _parse_entries(lines: list[_lines.Line]) -> tuple[list[Reference], set[int]]:
    entries: list[tuple[str, list[str], int]] = []
    taken: set[int] = set()
    margin: int | None = None
    for line in lines:
        entry = _ENTRY.match(line.text)
        column = _lines.count_indent(line.text)
        if entry is not None and (margin is None or column <= margin):
            margin = column
            entries.append((entry["key"], [entry["rest"].strip()], line.number))
        elif entries and line.text:
            entries[-1][1].append(line.text.strip())
        if entries:
            taken.add(line.number)
    references = [
        Reference(key=key, text=" ".join(filter(None, parts)), line=line) for key, parts, line in entries
    ]
    return references, taken


def find_citations(
    lines: list[_lines.Line],
    *,
    known: Collection[str],
    without: Collection[int],
    anchors: Collection[str] = (),
) -> tuple[tuple[Citation, ...], tuple[Reference, ...]]:
    """Return the citations in order, and the references that `{{!RFC3986}}` of kramdown adds to the list.

    `known` are the keys of the reference lists; ambiguous text is a citation only if its key is there.
    `without` are lines that do not cite: the lists and grammars. `anchors` are the names of sections and
    figures of the document; a reference to one of them is not a citation.
    """

    def is_prose(line: _lines.Line) -> bool:
        marked = line.toc or line.heading is not None or line.code is not None
        return not marked and line.number not in without

    running = _lines.RunningText(lines, is_prose)
    known = known or _find_sentence_keys(running.text)
    shapes = {_classify_key(key) for key in known}
    citations: list[Citation] = []
    added: dict[str, Reference] = {}
    for match in _CITATION.finditer(running.text):
        line = running.line_of(match.start())
        section = match["before"] or match["after"]
        if match["kramdown"] is not None:
            _add_kramdown_citation(match["kramdown"], section, line, citations, added)
        else:
            bare = match["key"] is None and match["keys"] is None
            keys = _list_rfc_keys(match) if bare else _list_bracket_keys(match, known, shapes, running.text)
            citations.extend(Citation(key=key, section=section, line=line, bare=bare) for key in keys)
        _lines.require_at_most(citations, MAX_CITATIONS, "citations")
    for draft in _DRAFT.finditer(running.text):
        line = running.line_of(draft.start())
        citations.append(Citation(key=draft[0], section=None, line=line, bare=True))
        _lines.require_at_most(citations, MAX_CITATIONS, "citations")
    cited = (citation for citation in citations if citation.key in known or citation.key not in anchors)
    return tuple(sorted(cited, key=lambda citation: citation.line)), tuple(added.values())


def _find_sentence_keys(text: str) -> frozenset[str]:
    """Return the numbers and words that sentences cite, for a text without a list; one is not enough."""
    keys = frozenset(
        match["key"]
        for line in _iter_bracket_lines(text)
        if len(_WORD.findall(line)) >= _SENTENCE and not _CODE.search(line)
        for match in _SENTENCE_KEY.finditer(line)
    )
    return keys if len(keys) > 1 else frozenset()


def _iter_bracket_lines(text: str) -> Iterator[str]:
    """Yield each line with a bracket after the end of the line before, because a key may come first."""
    before = ""
    for line in text.split("\n"):
        if "[" in line:
            yield f"{before[-_NEAR:]} {line[:_WIDEST]}"
        before = line


def _list_rfc_keys(match: re.Match[str]) -> list[str]:
    if match["rfc"] is not None:
        return ["RFC" + _NUMBERS.findall(match["rfc"])[0]]
    return ["RFC" + number for number in _NUMBERS.findall(match["rfcs"])]


def _list_bracket_keys(
    match: re.Match[str], known: Collection[str], shapes: Collection[str], text: str
) -> tuple[str, ...]:
    """Return the keys in brackets; an index, a word or a number in brackets may be something else."""
    if match["keys"] is not None:
        # `[RFC3986, KITE]`: only listed keys, because figures have such brackets too
        keys = [part.strip() for part in match["keys"].split(",")]
        return tuple(key for key in keys if key in known or _RFC_KEY.match(key))
    key = match["key"]
    if key in known or _RFC_KEY.match(key):
        return (key,)
    before = text[match.start("key") - 2 : match.start("key") - 1]
    if _OTHER_SECTION.match(key):
        return ()
    shape = _classify_key(key)
    likely = shape == "name" or (shape and shape in shapes)
    return (key,) if likely and not (before.isalnum() or before in (")", "_")) else ()


def _classify_key(key: str) -> str:
    """Return the shape of a key: "number", "word", "name", or "" if it is hardly a key."""
    if key.isdigit():
        return "number"
    if not key[0].isupper() or len(key) < 3:
        return ""
    return "word" if key[1:].islower() and key.isalpha() else "name"


def _add_kramdown_citation(
    text: str, section: str | None, line: int, citations: list[Citation], added: dict[str, Reference]
) -> None:
    """Add `{{!RFC3986}}` or `{{Section 2.1 of ?RFC3986}}`; `{{syntax}}` refers to a section."""
    key = next((match["key"] for match in _KRAMDOWN_KEY.finditer(text) if match["key"] not in _WORDS), None)
    if key is None:
        return
    part = _KRAMDOWN_SECTION.search(text)
    citations.append(Citation(key=key, section=section if part is None else part["part"], line=line))
    if "!" in text or "?" in text:
        added.setdefault(key, Reference(key=key, text="", line=line))


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
    chosen = _lines.detect_kind(text) if kind is None else kind
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
    return find_blocks([_lines.Line(number=number, text=row) for number, row in rows])


def _flatten_text(text: str, kind: DocumentKind, source: str) -> FlatDocument:
    """Return the lines of a plain text or Markdown, with its metadata."""
    flat = FlatDocument(lines=_lines.split_lines(text), name=_lines.find_name(text, kind, source))
    if kind is DocumentKind.MARKDOWN:
        flat.anchors = set(_lines.find_anchors(text))
        flat.references = list(_lines.parse_front_matter(flat.lines))
        _lines.mark_markdown(flat.lines)
    if kind in _PASTED:
        for line in flat.lines:
            # a pasted mail may be quoted
            if line.text.startswith(">") and line.code is None:
                line.text = line.text.lstrip("> ")
    if kind is not DocumentKind.MARKDOWN:
        _lines.mark_headings(flat.lines, paged=kind is not DocumentKind.TEMPLATE)
    flat.dated, flat.expires = _lines.find_dates(text, kind)
    return flat


def _render_plain(lines: list[_lines.Line]) -> str:
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
    sections = _lines.split_sections(lines)
    _lines.require_at_most(sections, MAX_SECTIONS, "sections")
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
