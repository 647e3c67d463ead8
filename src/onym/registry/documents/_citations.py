"""Citations in running text, and the entries of reference lists."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from onym.registry.documents._lines import Line, RunningText, count_indent, require_at_most
from onym.registry.documents.types import Citation, Reference, Template

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


def _iter_reference_lines(lines: list[Line]) -> Iterator[Line]:
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
    lines: list[Line], templates: Iterable[Template]
) -> tuple[tuple[Reference, ...], frozenset[int]]:
    """Return the entries of the reference lists in sections and templates, and their lines."""
    entries, taken = _parse_entries(list(_iter_reference_lines(lines)))
    texts = {line.number: line.text for line in lines if line.text}
    for template in templates:
        value = template.values.get("references")
        if value is not None:
            numbers = range(value.line, value.line + value.text.count("\n") + 2)
            rows = [Line(number=number, text=texts.get(number, "")) for number in numbers]
            rows[0].text = _strip_label(rows[0].text, value.text)
            more, lined = _parse_entries(rows)
            entries += more
            taken |= lined
    require_at_most(entries, MAX_CITATIONS, "references")
    return tuple(sorted(entries, key=lambda entry: entry.line)), frozenset(taken)


def _strip_label(row: str, value: str) -> str:
    """Return the entry after a label, at its column; a line without an entry stays unchanged."""
    first = value.partition("\n")[0]
    if not row.endswith(first) or not _FULL.match(first):
        return row
    return " " * (len(row) - len(first)) + first


def _parse_entries(lines: list[Line]) -> tuple[list[Reference], set[int]]:
    entries: list[tuple[str, list[str], int]] = []
    taken: set[int] = set()
    margin: int | None = None
    for line in lines:
        entry = _ENTRY.match(line.text)
        column = count_indent(line.text)
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
    lines: list[Line], *, known: Collection[str], without: Collection[int], anchors: Collection[str] = ()
) -> tuple[tuple[Citation, ...], tuple[Reference, ...]]:
    """Return the citations in order, and the references that `{{!RFC3986}}` of kramdown adds to the list.

    `known` are the keys of the reference lists; ambiguous text is a citation only if its key is there.
    `without` are lines that do not cite: the lists and grammars. `anchors` are the names of sections and
    figures of the document; a reference to one of them is not a citation.
    """

    def is_prose(line: Line) -> bool:
        marked = line.toc or line.heading is not None or line.code is not None
        return not marked and line.number not in without

    running = RunningText(lines, is_prose)
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
        require_at_most(citations, MAX_CITATIONS, "citations")
    for draft in _DRAFT.finditer(running.text):
        line = running.line_of(draft.start())
        citations.append(Citation(key=draft[0], section=None, line=line, bare=True))
        require_at_most(citations, MAX_CITATIONS, "citations")
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
