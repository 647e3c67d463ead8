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
#: an entry, and not keys or a section that are cited there: after the key comes a text of some words
_FULL: Final = re.compile(
    r"\[[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\] +(?!(?:Sec|Appendix|§|and\b|or\b))[\w\"'\u201c<](?:[^ ]* ){2}"
)
_LIST_TITLES: Final = frozenset(("references", "normative references", "informative references", "citations"))

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
#: an Internet-Draft cited by its name alone; in a URL or a file name it is no citation
_DRAFT: Final = re.compile(r"(?<![A-Za-z0-9./_\[-])draft(?:-[a-z0-9]{1,40}+){2,20}+(?![/_-]|\.[a-z])")
_NUMBERS: Final = re.compile(r"[0-9]{1,5}")
_KRAMDOWN_SECTION: Final = re.compile(rf"(?:Section|Appendix) (?P<part>{_PART})")
_KRAMDOWN_KEY: Final = re.compile(r"(?:^|[ !?])-?(?P<key>[A-Z][A-Za-z0-9._+-]{0,63})(?=$|[ ,(])")
_WORDS: Final = frozenset(("Section", "Sections", "Appendix"))
#: a key that can be nothing else
_RFC_KEY: Final = re.compile(r"RFC-?[0-9]{1,5}\Z")
#: a number or a word in brackets after a word of a sentence, or after another such key
_SAID: Final = re.compile(
    r"(?:(?<![\w-])[A-Za-z][a-z'-]{0,40},?|\],?(?: and| or)?) "
    r"\[(?P<key>[0-9]{1,3}|[A-Z][a-z]{2,40})(?=\](?:[ .,;:)]|\Z))"
)
#: what has some words, and nothing of code, is no figure
_WORD: Final = re.compile(r"(?<![\w\[-])[A-Za-z][a-z'-]{0,40}(?![\w-])")
_SENTENCE: Final = 5
_CODE: Final = re.compile(r"[={}<>|\\]|; *\Z")
#: characters of a line that are looked at, and of the line above
_WIDEST: Final = 400
_NEAR: Final = 60


def _iter_reference_lines(lines: list[Line]) -> Iterator[Line]:
    """The lines of reference sections, their headings left out."""
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
    """The entries of the reference lists, sections' and templates'; and the lines that they stand on."""
    out, taken = _parse_entries(list(_iter_reference_lines(lines)))
    texts = {line.number: line.text for line in lines if line.text}
    for template in templates:
        value = template.values.get("references")
        if value is not None:
            numbers = range(value.line, value.line + value.text.count("\n") + 2)
            rows = [Line(number=each, text=texts.get(each, "")) for each in numbers]
            rows[0].text = _strip_label(rows[0].text, value.text)
            more, lined = _parse_entries(rows)
            out += more
            taken |= lined
    require_at_most(out, MAX_CITATIONS, "references")
    return tuple(sorted(out, key=lambda each: each.line)), frozenset(taken)


def _strip_label(row: str, value: str) -> str:
    """The entry that stands on the label's own line: a key and its citation, where it was; else the line."""
    first = value.partition("\n")[0]
    if not row.endswith(first) or not _FULL.match(first):
        return row
    return " " * (len(row) - len(first)) + first


def _parse_entries(lines: list[Line]) -> tuple[list[Reference], set[int]]:
    found: list[tuple[str, list[str], int]] = []
    taken: set[int] = set()
    margin: int | None = None
    for line in lines:
        entry = _ENTRY.match(line.text)
        column = count_indent(line.text)
        if entry is not None and (margin is None or column <= margin):
            margin = column
            found.append((entry["key"], [entry["rest"].strip()], line.number))
        elif found and line.text:
            found[-1][1].append(line.text.strip())
        if found:
            taken.add(line.number)
    out = [
        Reference(key=key, text=" ".join(part for part in parts if part), line=at) for key, parts, at in found
    ]
    return out, taken


def find_citations(
    lines: list[Line], *, known: Collection[str], without: Collection[int], anchors: Collection[str] = ()
) -> tuple[tuple[Citation, ...], tuple[Reference, ...]]:
    """What the prose cites, in order; and the references that kramdown's `{{!RFC3986}}` adds to the list.

    `known` are the keys of the reference lists: what may be anything else counts only when it is there.
    `without` are lines that do not cite: the lists themselves, grammars. `anchors` are the document's own
    places: a reference to one of them is no citation.
    """
    running = RunningText(
        lines,
        lambda line: (
            not (line.toc or line.heading is not None or line.code is not None or line.number in without)
        ),
    )
    known = known or _find_sentence_keys(running.text)
    shapes = {_classify_key(key) for key in known}
    out: list[Citation] = []
    added: dict[str, Reference] = {}
    for found in _CITATION.finditer(running.text):
        line = running.line_of(found.start())
        section = found["before"] or found["after"]
        if found["kramdown"] is not None:
            _add_kramdown_citation(found["kramdown"], section, line, out, added)
        else:
            bare = found["key"] is None and found["keys"] is None
            keys = _list_rfc_keys(found) if bare else _list_bracket_keys(found, known, shapes, running.text)
            out.extend(Citation(key=key, section=section, line=line, bare=bare) for key in keys)
        require_at_most(out, MAX_CITATIONS, "citations")
    for draft in _DRAFT.finditer(running.text):
        out.append(Citation(key=draft[0], section=None, line=running.line_of(draft.start()), bare=True))
        require_at_most(out, MAX_CITATIONS, "citations")
    cited = (each for each in out if each.key in known or each.key not in anchors)
    return tuple(sorted(cited, key=lambda each: each.line)), tuple(added.values())


def _find_sentence_keys(text: str) -> frozenset[str]:
    """Numbers and words that sentences cite where no list tells what keys are; one may be anything."""
    found = frozenset(
        match["key"]
        for line in _iter_bracket_lines(text)
        if len(_WORD.findall(line)) >= _SENTENCE and not _CODE.search(line)
        for match in _SAID.finditer(line)
    )
    return found if len(found) > 1 else frozenset()


def _iter_bracket_lines(text: str) -> Iterator[str]:
    """Each line that holds a bracket, after the end of the one before: a key may stand first."""
    before = ""
    for line in text.split("\n"):
        if "[" in line:
            yield f"{before[-_NEAR:]} {line[:_WIDEST]}"
        before = line


def _list_rfc_keys(found: re.Match[str]) -> list[str]:
    """RFCs that are called by their numbers."""
    if found["rfc"] is not None:
        return ["RFC" + _NUMBERS.findall(found["rfc"])[0]]
    return ["RFC" + number for number in _NUMBERS.findall(found["rfcs"])]


def _list_bracket_keys(
    found: re.Match[str], known: Collection[str], shapes: Collection[str], text: str
) -> tuple[str, ...]:
    """The key in brackets, where it is one: an index, a word or a number in brackets may be anything."""
    if found["keys"] is not None:
        # `[RFC3986, KITE]`: of keys that are listed; a figure has such brackets too
        keys = [part.strip() for part in found["keys"].split(",")]
        return tuple(each for each in keys if each in known or _RFC_KEY.match(each))
    key = found["key"]
    if key in known or _RFC_KEY.match(key):
        return (key,)
    before = text[found.start("key") - 2 : found.start("key") - 1]
    shape = _classify_key(key)
    likely = (
        bool(shape)
        and (shape == "name" or shape in shapes)
        and not (before.isalnum() or before in tuple(")_"))
    )
    return (key,) if likely else ()


def _classify_key(key: str) -> str:
    """What a key looks like: a number, a word, a name that is no word; "" for what is hardly a key."""
    if key.isdigit():
        return "number"
    if not key[0].isupper() or len(key) < 3:
        return ""
    return "word" if key[1:].islower() and key.isalpha() else "name"


def _add_kramdown_citation(
    text: str, section: str | None, line: int, out: list[Citation], added: dict[str, Reference]
) -> None:
    """`{{!RFC3986}}`, `{{Section 2.1 of ?RFC3986}}`; `{{syntax}}` names a section and is no citation."""
    key = next((match["key"] for match in _KRAMDOWN_KEY.finditer(text) if match["key"] not in _WORDS), None)
    if key is None:
        return
    part = _KRAMDOWN_SECTION.search(text)
    out.append(Citation(key=key, section=section if part is None else part["part"], line=line))
    if "!" in text or "?" in text:
        added.setdefault(key, Reference(key=key, text="", line=line))
