"""A text as numbered lines: page furniture removed, headings, tables of contents and Markdown marked.

`split_lines` repairs known kinds of copy damage. `mark_headings` handles plain text and `mark_markdown`
handles Markdown. `RunningText` joins lines into one text and maps an offset back to its line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from datetime import date
from pathlib import PurePath
from typing import Final

from onym.errors import TemplateError
from onym.registry.documents.types import DocumentKind, Reference, Section
from onym.registry.registries import DRAFT_LIFETIME

#: characters and lines of a text
MAX_TEXT: Final = 5_000_000
MAX_LINES: Final = 200_000

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

_SPACES: Final = dict.fromkeys(map(ord, "\u00a0\u2007\u202f\u2009\v\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_NOTHING: Final = dict.fromkeys(map(ord, "\ufeff\u200b\u2060\u00ad"), "")
_REPAIRED: Final = {**_SPACES, **_NOTHING, 0x2011: "-"}
_BREAK: Final = re.compile(r"\r\n|\r|\n")
_FOOTER: Final = re.compile(r"[^ :][^:]{0,200}\[Page(?: [0-9ivxlc]{1,6})?\][ |]*\Z")
_HEADER: Final = re.compile(
    rf"(?:Internet-Draft|RFC \d{{1,5}})\b.{{1,200}} (?:{'|'.join(MONTHS)}) \d{{4}}[ |]*\Z"
)
#: the ends of lines after which a page break ends the paragraph
_STOPS: Final = (".", ":", ";", "!", "?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A section heading. `level` counts from 1."""

    level: int
    number: str | None
    title: str

    @property
    def name(self) -> str:
        """The number of the section, else its title."""
        return self.title if self.number is None else self.number


@dataclass(slots=True, kw_only=True)
class Line:
    """A line. `code` is the language of verbatim text ("" if it is not known), None in prose."""

    number: int
    text: str
    heading: Heading | None = None
    code: str | None = None
    #: whether it is part of a table of contents
    toc: bool = False

    @property
    def blank(self) -> bool:
        """Whether the line is empty."""
        return not self.text


def count_indent(text: str) -> int:
    """Return the number of spaces at the beginning."""
    return len(text) - len(text.lstrip(" "))


def require_at_most(items: Sized, limit: int, noun: str) -> None:
    """Raise a TemplateError (registry.too-large) for more than `limit` items."""
    if len(items) > limit:
        hint = "provide only the document that registers the scheme"
        raise TemplateError(f"the text has more than {limit} {noun}", code="registry.too-large", hint=hint)


def clean_rows(text: str) -> list[str]:
    """Return the rows of a value, with the characters that lines of a document have."""
    rows = _BREAK.split(text.translate(_REPAIRED).replace("\f", ""))
    return [row.expandtabs(4).rstrip("¶ ") for row in rows]


def _is_furniture(rows: list[str], at: int, near: bool) -> bool:
    """Return whether a row is a footer, or a header next to one."""
    if _FOOTER.match(rows[at]):
        return True
    if not _HEADER.match(rows[at]):
        return False
    return near or (at + 1 < len(rows) and _FOOTER.match(rows[at + 1]) is not None)


def _iter_rows(rows: list[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield the number and text of every row, and whether it is furniture; a pilcrow ends a paragraph."""
    clean = [row.translate(_REPAIRED).expandtabs(4).rstrip(" ") for row in rows]
    near = False
    for index, row in enumerate(clean):
        number = index + 1
        broken = row.startswith("\f")
        row = row.replace("\f", "").rstrip(" ")
        clean[index] = row
        furniture = _is_furniture(clean, index, near or broken)
        near = furniture or broken or (near and not row)
        ends = row.endswith("¶")
        yield number, row.rstrip("¶ "), furniture
        if ends:
            yield number, "", False


def _is_continued(before: str, after: str) -> bool:
    """Return whether a paragraph continues after a page break between these two lines."""
    return not before.endswith(_STOPS) and count_indent(before) == count_indent(after)


def split_lines(text: str) -> list[Line]:
    """Return the lines of a plain text without page furniture. Raises TemplateError beyond the limits."""
    require_at_most(text, MAX_TEXT, "characters")
    rows = _BREAK.split(text)
    require_at_most(rows, MAX_LINES, "lines")
    lines: list[Line] = []
    gap = broken = False
    for number, row, furniture in _iter_rows(rows):
        if furniture:
            broken = True
            # blank lines above a footer are part of it
            while lines and lines[-1].blank:
                lines.pop()
                gap = True
            continue
        if broken and not row:
            gap = True
            continue
        if broken and gap and lines and not _is_continued(lines[-1].text, row):
            lines.append(Line(number=number, text=""))
        gap = broken = False
        lines.append(Line(number=number, text=row))
    return lines


def is_flush(lines: list[Line]) -> bool:
    """Return whether the text has lost its indentation: almost no line is indented."""
    texts = [line.text for line in lines if line.text and line.code is None]
    indented = sum(1 for text in texts if text.startswith("  "))
    return indented * 20 < len(texts)


class RunningText:
    """The lines that `keep` accepts, joined, with single spaces; `line_of` returns the line of an offset."""

    def __init__(self, lines: Iterable[Line], keep: Callable[[Line], bool]) -> None:
        self._starts: list[int] = []
        self._numbers: list[int] = []
        parts: list[str] = []
        offset = 0
        for line in lines:
            text = " ".join(line.text.split()) if keep(line) else ""
            self._starts.append(offset)
            self._numbers.append(line.number)
            parts.append(text)
            offset += len(text) + 1
        self.text = "\n".join(parts)

    def line_of(self, offset: int) -> int:
        """Return the line of an offset."""
        return self._numbers[bisect_right(self._starts, offset) - 1]


_NUMBERED: Final = re.compile(
    r"(?:(?:Appendix )?(?P<letter>[A-Z](?:\.\d{1,3}){0,6})\.|(?P<digits>\d{1,3}(?:\.\d{1,3}){0,6})\.?)"
    r" +(?P<title>[^\s.|].{0,150})\Z"
)
_UNNUMBERED: Final = frozenset(
    (
        *("abstract", "status of this memo", "copyright notice", "table of contents", "introduction"),
        *("acknowledgements", "acknowledgments", "acknowledgement", "acknowledgment"),
        *("contributor", "contributors", "index", "normative references", "informative references"),
        *("author's address", "authors' addresses", "authors' address", "editor's address"),
    )
)
#: in a pasted template, a number, a label and a value are a list item
_FIELD: Final = re.compile(r"^[^:]{2,80}: *\S")
#: the ends of list items that look like headings
_SENTENCE: Final = (".", ";", ",")


def normalize_title(title: str) -> str:
    """Return a title for comparison, ignoring case, the form of quotes and spaces."""
    return "".join(title.casefold().replace("\u2019", "'").split())


def _match_heading(text: str) -> Heading | None:
    match = _NUMBERED.match(text)
    if match is None:
        return None
    number = match["letter"] or match["digits"]
    return Heading(level=number.count(".") + 1, number=number, title=match["title"].strip())


def _parse_leader(text: str) -> str | None:
    """Return the title in a row of a table of contents: the text before the dots and the page number."""
    bare = text.rstrip("0123456789")
    if bare == text:
        return None
    name = bare.rstrip(" .")
    return name.strip() if bare[len(name) :].count(".") > 2 and name.strip() else None


def _mark_contents_rows(lines: list[Line]) -> set[str]:
    """Mark the rows of tables of contents; return the titles that they list."""
    named: set[str] = set()
    seen: set[str] | None = None
    names = [None if line.code is not None else _parse_leader(line.text) for line in lines]
    for index, line in enumerate(lines):
        if line.blank or line.code is not None:
            continue
        name = names[index]
        # a table has more than one row
        if name is not None and any((*names[index - 1 : index], *names[index + 1 : index + 2])):
            line.toc = True
            named.add(normalize_title(name))
            seen = None
        elif normalize_title(line.text) == "tableofcontents":
            seen = set()
        elif seen is not None and not _mark_contents_row(line, seen, named):
            seen = None
    return named


def _mark_contents_row(line: Line, seen: set[str], named: set[str]) -> bool:
    """Mark a row of a table without dots; return False for other lines and at a repeated number."""
    text = line.text.strip()
    heading = _match_heading(text)
    if heading is None and text.casefold() not in _UNNUMBERED:
        return False
    name = text.casefold() if heading is None else heading.name
    if name in seen:
        return False
    seen.add(name)
    line.toc = True
    named.add(normalize_title(line.text))
    return True


def _can_follow(number: str, last: str | None) -> bool:
    """Return whether a section of this number may come next."""
    if last is None or not number[0].isdigit():
        return True
    if not last[0].isdigit():
        return False
    here, before = ([int(part) for part in text.split(".")] for text in (number, last))
    if here == [*before, 1]:
        return True
    depth = len(here) - 1
    return depth < len(before) and here[:depth] == before[:depth] and here[depth] == before[depth] + 1


def mark_headings(lines: list[Line], *, paged: bool) -> None:
    """Mark the headings of a plain text. In a `paged` text (RFC form) a single line at the margin is one."""
    named = _mark_contents_rows(lines)
    flush = is_flush(lines)
    last: str | None = None
    for index, line in enumerate(lines):
        marked = line.heading is not None or line.code is not None or line.toc
        if marked or not line.text or line.text[0] == " ":
            continue
        heading = _match_heading(line.text)
        if heading is None:
            line.heading = _match_unnumbered(lines, index, margin=paged and not flush)
        elif (paged or not _FIELD.search(heading.title)) and _is_heading(
            heading, line.text, named, last, flush=flush
        ):
            line.heading = heading
            last = heading.number


def _is_heading(heading: Heading, text: str, named: set[str], last: str | None, *, flush: bool) -> bool:
    """Return whether the line is a heading; in a flush text it must be listed or in sequence."""
    if normalize_title(text) in named:
        return True
    if heading.title.endswith(_SENTENCE):
        return False
    if not flush:
        return True
    in_order = heading.number is not None and _can_follow(heading.number, last)
    return not named and in_order and not heading.title[0].islower()


def _match_unnumbered(lines: list[Line], index: int, *, margin: bool) -> Heading | None:
    """Return a heading without number: a known name, or a single line at the margin of an indented text."""
    text = lines[index].text
    if text.casefold().replace("\u2019", "'") in _UNNUMBERED:
        return Heading(level=1, number=None, title=text)
    around = (*lines[max(index - 1, 0) : index], *lines[index + 1 : index + 2])
    alone = all(line.blank for line in around)
    shaped = len(text) < 80 and text[0].isupper() and text[-1] not in ".,;:>" and "  " not in text
    if not (margin and alone and shaped):
        return None
    below = next((line.text for line in lines[index + 1 : index + 4] if line.text), "")
    return Heading(level=1, number=None, title=text) if below.startswith(" ") else None


def split_sections(lines: list[Line]) -> tuple[Section, ...]:
    """Return the sections; the text of a section does not include its subsections."""
    starts = [(index, line.heading) for index, line in enumerate(lines) if line.heading is not None]
    ends = [index for index, _ in starts[1:]] + [len(lines)]
    return tuple(
        Section(
            number=heading.number,
            title=heading.title,
            text="\n".join(line.text for line in lines[start + 1 : end]).strip("\n"),
            line=lines[start].number,
        )
        for (start, heading), end in zip(starts, ends, strict=False)
    )


_ATX: Final = re.compile(r"(#{1,6})[ \t]+(?P<title>\S.{0,200}?)[ #]*(?:\{[^}]{0,80}\})?\Z")
#: `{#syntax}`, `{: #fig-1 title="x"}`
_ANCHOR: Final = re.compile(r"\{:?[^{}#\n]{0,80}#(?P<name>[A-Za-z][A-Za-z0-9._:-]{0,63})")
_WIDEST: Final = 400
_NUMBER: Final = re.compile(r"(\d{1,3}(?:\.\d{1,3}){0,6})\.? +(?=\S)")
_FENCE: Final = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,}) *(?P<language>[A-Za-z0-9_+-]{0,30})")
_INLINE: Final = re.compile(r"\{:.{0,200}\}\Z|\{::.{0,200}\}\Z")
_KEY: Final = re.compile(r"  ([A-Za-z0-9][A-Za-z0-9._-]{0,63}):(?: |\Z)")
_TITLE: Final = re.compile(r" {4}title: *(\S.*)\Z")


def mark_markdown(lines: list[Line]) -> None:
    """Mark headings and fenced text; clear front matter, comments, fences and attribute lines."""
    for line in lines[: _count_front_matter(lines)]:
        line.text = ""
    for step in (_mark_fences, _drop_comments, _mark_markdown_headings):
        step(lines)


def _count_front_matter(lines: list[Line]) -> int:
    """Return the number of lines of the front matter with its two rules; 0 if there is none."""
    if not lines or lines[0].text != "---":
        return 0
    for count, line in enumerate(lines[1:], start=2):
        if line.text.startswith("---"):
            return count
    return 0


def parse_front_matter(lines: list[Line]) -> tuple[Reference, ...]:
    """Return the references of a kramdown front matter under `normative:` and `informative:`."""
    references: list[Reference] = []
    inside = False
    for line in lines[: _count_front_matter(lines)]:
        if line.text and line.text[0] != " ":
            inside = line.text in ("normative:", "informative:")
        elif inside and (key := _KEY.match(line.text)):
            references.append(Reference(key=key[1], text="", line=line.number))
        elif inside and references and (title := _TITLE.match(line.text)):
            references[-1] = replace(references[-1], text=title[1])
    return tuple(references)


def find_anchors(text: str) -> frozenset[str]:
    """Return the names that a text defines for its sections and figures."""
    return frozenset(match["name"] for match in _ANCHOR.finditer(text))


def _mark_fences(lines: list[Line]) -> None:
    closing = ""
    language = ""
    for line in lines:
        fence = _FENCE.match(line.text)
        if fence is not None and not closing:
            closing, language = fence["mark"], fence["language"].casefold()
            line.text = ""
        elif fence is not None and fence["mark"].startswith(closing) and not fence["language"]:
            closing = ""
            line.text = ""
        elif closing:
            line.code = language
        elif _INLINE.match(line.text):
            line.text = ""


def _drop_comments(lines: list[Line]) -> None:
    inside = False
    for line in lines:
        if line.code is None and (inside or "<!--" in line.text):
            line.text, inside = _strip_comments(line.text, inside=inside)


def _strip_comments(text: str, *, inside: bool) -> tuple[str, bool]:
    """Return a line without comments, and whether a comment is open at its end."""
    parts: list[str] = []
    offset = 0
    while True:
        mark = "-->" if inside else "<!--"
        end = text.find(mark, offset)
        if not inside:
            parts.append(text[offset:] if end < 0 else text[offset:end])
        if end < 0:
            return "".join(parts).rstrip(" "), inside
        offset = end + len(mark)
        inside = not inside


def _parse_title(level: int, title: str) -> Heading:
    number = _NUMBER.match(title)
    if number is None:
        return Heading(level=level, number=None, title=title)
    return Heading(level=level, number=number[1], title=title[number.end() :])


def _mark_markdown_headings(lines: list[Line]) -> None:
    before: Line | None = None
    previous_blank = True
    for line in lines:
        if line.code is not None:
            before, previous_blank = None, False
            continue
        match = _ATX.match(line.text) if len(line.text) < _WIDEST else None
        if match is not None:
            line.heading = _parse_title(len(match[1]), match["title"].strip())
        elif before is not None and _is_underline(line.text, before.text):
            before.heading = _parse_title(1 if line.text[0] == "=" else 2, before.text.strip())
            line.text = ""
        # only a single line can be underlined, not the last line of a paragraph
        before = line if previous_blank and line.text and line.heading is None else None
        previous_blank = line.blank


_RULE: Final[Callable[[str], object]] = re.compile(r"(?:=+|-+)\Z").match


def _is_underline(text: str, above: str) -> bool:
    """Return whether the text underlines the title (setext); a much shorter line is a rule."""
    return bool(_RULE(text)) and len(text) + 3 > len(above) and ":" not in above


#: lines at the beginning of a document with its metadata, and characters of each
_HEAD: Final = 120
_CUT: Final = 400
#: rows with text that may have the mark of a draft; further down it may be from a reference
_TOP: Final = 3
_MONTH: Final = "|".join(MONTHS)
_DATE: Final = (
    rf"(?:(?P<day>[0-9]{{1,2}}) (?P<month>{_MONTH}),? (?P<year>[0-9]{{4}})"
    rf"|(?P<month2>{_MONTH}) (?P<day2>[0-9]{{1,2}}), (?P<year2>[0-9]{{4}})"
    r"|(?P<year3>[0-9]{4})-(?P<month3>[0-9]{2})-(?P<day3>[0-9]{2}))(?![0-9])"
)
_EXPIRES: Final = re.compile(rf"\b[Ee]xpires?(?: on)?:? {{1,40}}{_DATE}")
_ENDS_WITH_DATE: Final = re.compile(rf"(?:^|.*\s){_DATE}[ |]*\Z")
_MONTH_ALONE: Final = re.compile(rf"(?:.*\s)?(?P<month>{_MONTH}) (?P<year>[0-9]{{4}})[ |]*\Z")
_DRAFT: Final = re.compile(
    r"(?<![a-z0-9-])(?P<name>draft-[a-z0-9]{1,60}(?:-[a-z0-9]{1,60}){1,20}-[0-9]{2})(?![a-z0-9])"
)
_DOCNAME: Final = re.compile(r"docname: (?P<name>draft-[a-z0-9-]{1,200})\Z")
_RFC: Final = re.compile(r"Request for Comments: {1,5}(?P<number>[0-9]{1,5})\b")
#: the header of a page, spaced over the line
_RFC_HEADER: Final = re.compile(
    rf"^RFC (?P<number>[0-9]{{1,5}})  [^\n]{{1,200}}  (?:{_MONTH}) [0-9]{{4}}\r?$", re.MULTILINE
)
_RFC_FILE: Final = re.compile(r"rfc(?P<number>[0-9]{1,5})\.(?:txt|xml)\Z")
_XML: Final = ("<?xml", "<rfc", "<!DOCTYPE")
_DRAFT_MARKS: Final = ("Internet-Draft", "INTERNET-DRAFT", "INTERNET DRAFT", "This Internet-Draft")
#: other marks of a draft, which references to drafts do not have
_DRAFT_TOO: Final = re.compile(
    r"Expires?\b|Intended [Ss]tatus|Status of [Tt]his Memo|Abstract\Z|Network Working Group"
    r"|Copyright Notice\Z|Table of Contents\Z|(?:1\.? )?Introduction\Z",
    re.IGNORECASE,
)
_MARKDOWN: Final = re.compile(r"#{1,6} \S|---\Z|\*\*[^*]{2,80}\*\*|__[^_]{2,80}__|[`~]{3}|\{:")


def _list_head_rows(text: str) -> list[str]:
    rows = text[: min(MAX_TEXT, _HEAD * 2_000)].splitlines()[:_HEAD]
    return [" ".join(row[:_CUT].replace("\ufeff", "").split()).strip("¶ ") for row in rows]


def detect_kind(text: str) -> DocumentKind:
    """Return the kind that a text looks like."""
    if _is_xml(text):
        return DocumentKind.XML
    head = _list_head_rows(text)
    if _match_rfc(text, head) is not None:
        return DocumentKind.RFC
    if _is_draft(head):
        return DocumentKind.DRAFT
    if any(_MARKDOWN.match(row) for row in text.splitlines()):
        return DocumentKind.MARKDOWN
    return DocumentKind.TEMPLATE


def _is_draft(head: list[str]) -> bool:
    rows = [row for row in head if row]
    index = next((index for index, row in enumerate(rows) if row.startswith(_DRAFT_MARKS)), None)
    return index is not None and (index < _TOP or any(_DRAFT_TOO.match(row) for row in rows))


def _is_xml(text: str) -> bool:
    """Return whether a declaration or the root comes first, after any comments."""
    at = 0
    while True:
        rest = text[at : at + 1000].lstrip("\ufeff \t\r\n")
        if not rest.startswith("<!--"):
            return rest.startswith(_XML)
        end = text.find("-->", at)
        if end < 0:
            return False
        at = end + 3


def _match_rfc(text: str, head: list[str]) -> re.Match[str] | None:
    """Find the number of an RFC on its first page, or in the header of a later page."""
    first = next((match for row in head if (match := _RFC.match(row))), None)
    return first or _RFC_HEADER.search(text, 0, _HEAD * _CUT)


def find_name(text: str, kind: DocumentKind, source: str) -> str | None:
    """Return the draft's name with its version, or "RFC 7595"; if the text has none, that of the file."""
    head = _list_head_rows(text)
    file = PurePath(source[-_CUT:]).name
    if kind is DocumentKind.RFC:
        match = _match_rfc(text, head)
        return None if match is None else f"RFC {int(match['number'])}"
    if kind is DocumentKind.DRAFT:
        match = next((match for row in [*head, file] if (match := _DRAFT.search(row))), None)
        return None if match is None else match[0]
    match = _RFC_FILE.match(file)
    if match is not None:
        return f"RFC {int(match['number'])}"
    match = next((match for row in head if (match := _DOCNAME.match(row))), None) or _DRAFT.match(file)
    return None if match is None else match["name"]


def _parse_date(match: re.Match[str] | None) -> date | None:
    if match is None:
        return None
    group = match.groupdict()
    year = group["year"] or group["year2"] or group["year3"]
    day = group["day"] or group["day2"] or group["day3"]
    month = group["month"] or group["month2"]
    number = MONTHS.index(month) + 1 if month else int(group["month3"] or 0)
    try:
        return date(int(year or 0), number, int(day or 0))
    except ValueError:
        return None


def compute_expiry(dated: date | None) -> date | None:
    """Return the day on which a draft of this date expires, 185 days later."""
    try:
        return None if dated is None else dated + DRAFT_LIFETIME
    except OverflowError:
        return None


def find_dates(text: str, kind: DocumentKind) -> tuple[date | None, date | None]:
    """Return (dated, expires) of a plain text. If an RFC has only a month, its day is the first."""
    head = _list_head_rows(text)
    if kind is DocumentKind.RFC:
        return _find_rfc_date(head), None
    if kind is not DocumentKind.DRAFT:
        return None, None
    expires = next((day for row in head if (day := _parse_date(_EXPIRES.search(row)))), None)
    rows = [row for row in head if "xpire" not in row and "pdated" not in row]
    # the date may be at the end of the line of the expiry date
    rows += [row[match.end() :] for row in head if (match := _EXPIRES.search(row))]
    dated = next((day for row in rows if (day := _parse_date(_ENDS_WITH_DATE.match(row)))), None)
    if dated is None and expires is not None:
        # the text has only the month, and the expiry date gives the day
        dated = expires - DRAFT_LIFETIME if expires.year > 1 else None
    return dated, expires or compute_expiry(dated)


def _find_rfc_date(head: list[str]) -> date | None:
    for row in head[:30]:
        day = _parse_date(_ENDS_WITH_DATE.match(row))
        if day is not None:
            return day
        month = _MONTH_ALONE.match(row)
        if month is not None:
            return date(max(int(month["year"]), 1), MONTHS.index(month["month"]) + 1, 1)
    return None
