"""A text as numbered lines: page furniture removed, headings, tables of contents and Markdown marked.

`split_lines` repairs known kinds of copy damage. `mark_headings` handles plain text and `mark_markdown`
handles Markdown. `RunningText` joins lines into one text and maps an offset back to its line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Final

from onym.errors import TemplateError
from onym.registry.documents.types import Reference, Section

#: characters of a text, and lines of it; beyond these it is refused
MAX_TEXT: Final = 5_000_000
MAX_LINES: Final = 200_000

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)

_SPACES: Final = dict.fromkeys(map(ord, "\u00a0\u2007\u202f\u2009\v\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_NOTHING: Final = dict.fromkeys(map(ord, "\ufeff\u200b\u2060\u00ad"), "")
_MENDED: Final = {**_SPACES, **_NOTHING, 0x2011: "-"}
_BREAK: Final = re.compile(r"\r\n|\r|\n")
_FOOTER: Final = re.compile(r"[^ :][^:]{0,200}\[Page(?: [0-9ivxlc]{1,6})?\][ |]*\Z")
_HEADER: Final = re.compile(
    rf"(?:Internet-Draft|RFC \d{{1,5}})\b.{{1,200}} (?:{'|'.join(MONTHS)}) \d{{4}}[ |]*\Z"
)
#: lines by which a paragraph ends, so that a page break after one of them ends it too
_STOPS: Final = (".", ":", ";", "!", "?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A section heading. `level` counts from 1."""

    level: int
    number: str | None
    title: str

    @property
    def name(self) -> str:
        """What the section is called by: its number, else its title."""
        return self.title if self.number is None else self.number


@dataclass(slots=True, kw_only=True)
class Line:
    """One line. `code` is the language of verbatim text ("" where none is given), None in prose."""

    number: int
    text: str
    heading: Heading | None = None
    code: str | None = None
    #: part of a table of contents: neither a heading nor a label
    toc: bool = False

    @property
    def blank(self) -> bool:
        """Is there nothing on it?"""
        return not self.text


def count_indent(text: str) -> int:
    """Columns before the first character that is not a space."""
    return len(text) - len(text.lstrip(" "))


def require_at_most(items: Sized, limit: int, what: str) -> None:
    """Refuse more than `limit` of something. Raises TemplateError (registry.too-large)."""
    if len(items) > limit:
        raise TemplateError(
            f"the text has more than {limit} {what}",
            code="registry.too-large",
            hint="give the document that registers the scheme alone",
        )


def clean_rows(text: str) -> list[str]:
    """The rows of a value, its characters as those of a document's lines."""
    rows = _BREAK.split(text.translate(_MENDED).replace("\f", ""))
    return [row.expandtabs(4).rstrip("¶ ") for row in rows]


def _split_rows(text: str) -> list[str]:
    require_at_most(text, MAX_TEXT, "characters")
    rows = _BREAK.split(text)
    require_at_most(rows, MAX_LINES, "lines")
    return rows


def _is_furniture(rows: list[str], at: int, near: bool) -> bool:
    """Is this row a footer, or the header that goes with one?"""
    if _FOOTER.match(rows[at]):
        return True
    if not _HEADER.match(rows[at]):
        return False
    return near or (at + 1 < len(rows) and _FOOTER.match(rows[at + 1]) is not None)


def _iter_rows(rows: list[str]) -> Iterable[tuple[int, str, bool]]:
    """(number, text, is it furniture?) of every row; a pilcrow at its end ends the paragraph."""
    clean = [row.translate(_MENDED).expandtabs(4).rstrip(" ") for row in rows]
    near = False
    for at, row in enumerate(clean):
        number = at + 1
        broken = row.startswith("\f")
        row = row.replace("\f", "").rstrip(" ")
        clean[at] = row
        furniture = _is_furniture(clean, at, near or broken)
        near = furniture or broken or (near and not row)
        ends = row.endswith("¶")
        yield number, row.rstrip("¶ "), furniture
        if ends:
            yield number, "", False


def _is_continued(before: str, after: str) -> bool:
    """Does a paragraph go on over a page break between these two lines?"""
    return not before.endswith(_STOPS) and count_indent(before) == count_indent(after)


def split_lines(text: str) -> list[Line]:
    """The lines of a plain text, without page furniture. Raises TemplateError beyond the caps."""
    out: list[Line] = []
    gap = broken = False
    for number, row, furniture in _iter_rows(_split_rows(text)):
        if furniture:
            broken = True
            # the blank lines above a footer belong to it
            while out and out[-1].blank:
                out.pop()
                gap = True
            continue
        if broken and not row:
            gap = True
            continue
        if broken and gap and out and not _is_continued(out[-1].text, row):
            out.append(Line(number=number, text=""))
        gap = broken = False
        out.append(Line(number=number, text=row))
    return out


def is_flush(lines: list[Line]) -> bool:
    """Has the text lost its indentation? True where nearly nothing is indented."""
    texts = [line.text for line in lines if line.text and line.code is None]
    indented = sum(1 for text in texts if text.startswith("  "))
    return indented * 20 < len(texts)


class RunningText:
    """The lines that `keep` lets pass, joined, each run of spaces one; `line_of` finds an offset's line."""

    def __init__(self, lines: Iterable[Line], keep: Callable[[Line], bool]) -> None:
        self._starts: list[int] = []
        self._numbers: list[int] = []
        parts: list[str] = []
        at = 0
        for line in lines:
            text = " ".join(line.text.split()) if keep(line) else ""
            self._starts.append(at)
            self._numbers.append(line.number)
            parts.append(text)
            at += len(text) + 1
        self.text = "\n".join(parts)

    def line_of(self, offset: int) -> int:
        """The number of the line that holds this offset."""
        return self._numbers[bisect_right(self._starts, offset) - 1]


_NUMBERED: Final = re.compile(
    r"(?:(?:Appendix )?(?P<letter>[A-Z](?:\.\d{1,3}){0,6})\.|(?P<digits>\d{1,3}(?:\.\d{1,3}){0,6})\.?)"
    r" +(?P<title>[^\s.|].{0,150})\Z"
)
_UNNUMBERED: Final = frozenset(
    (
        "abstract",
        "status of this memo",
        "copyright notice",
        "table of contents",
        "introduction",
        "acknowledgements",
        "acknowledgments",
        "acknowledgement",
        "acknowledgment",
        "contributor",
        "contributors",
        "author's address",
        "authors' addresses",
        "authors' address",
        "editor's address",
        "normative references",
        "informative references",
        "index",
    )
)
#: in a template alone, a number, a label and a value are an item of a list
_FIELD: Final = re.compile(r"^[^:]{2,80}: *\S")
#: a heading that ends like a sentence is an item of a list
_SENTENCE: Final = (".", ";", ",")


def normalize_title(title: str) -> str:
    """A title for comparing: case, quotes' shape and spacing aside."""
    return "".join(title.casefold().replace("\u2019", "'").split())


def _match_heading(text: str) -> Heading | None:
    """A numbered heading, if the line has the form of one."""
    found = _NUMBERED.match(text)
    if found is None:
        return None
    number = found["letter"] or found["digits"]
    return Heading(level=number.count(".") + 1, number=number, title=found["title"].strip())


def _parse_leader(text: str) -> str | None:
    """What a row of a table of contents names: its text before the dots and the page number."""
    bare = text.rstrip("0123456789")
    if bare == text:
        return None
    name = bare.rstrip(" .")
    return name.strip() if bare[len(name) :].count(".") > 2 and name.strip() else None


def _mark_contents_rows(lines: list[Line]) -> set[str]:
    """Flag the rows of tables of contents; the keys ("3.1" + title) that they name."""
    named: set[str] = set()
    seen: set[str] | None = None
    names = [None if line.code is not None else _parse_leader(line.text) for line in lines]
    for at, line in enumerate(lines):
        if line.blank or line.code is not None:
            continue
        name = names[at]
        # a row alone is no table
        if name is not None and any(
            each is not None for each in (*names[at - 1 : at], *names[at + 1 : at + 2])
        ):
            line.toc = True
            named.add(normalize_title(name))
            seen = None
        elif normalize_title(line.text) == "tableofcontents":
            seen = set()
        elif seen is not None and not _mark_contents_row(line, seen, named):
            seen = None
    return named


def _mark_contents_row(line: Line, seen: set[str], named: set[str]) -> bool:
    """Is this a row of a table without dots? It ends where a number comes again."""
    found = _match_heading(line.text.strip())
    known = line.text.strip().casefold() in _UNNUMBERED
    if found is None and not known:
        return False
    name = line.text.strip().casefold() if found is None else found.name
    if name in seen:
        return False
    seen.add(name)
    line.toc = True
    named.add(normalize_title(line.text))
    return True


def _can_follow(number: str, last: str | None) -> bool:
    """May a section of this number come next?"""
    if last is None or not number[0].isdigit():
        return True
    if not last[0].isdigit():
        return False
    here, before = ([int(part) for part in each.split(".")] for each in (number, last))
    if here == [*before, 1]:
        return True
    at = len(here) - 1
    return at < len(before) and here[:at] == before[:at] and here[at] == before[at] + 1


def _iter_candidates(lines: list[Line]) -> Iterator[tuple[int, Line]]:
    for at, line in enumerate(lines):
        if line.text and line.heading is None and line.code is None and not line.toc and line.text[0] != " ":
            yield at, line


def mark_headings(lines: list[Line], *, paged: bool) -> None:
    """Find the headings of a plain text. `paged`: of RFC form, where a lone line at the margin is one too."""
    named = _mark_contents_rows(lines)
    flush = is_flush(lines)
    last: str | None = None
    for at, line in _iter_candidates(lines):
        found = _match_heading(line.text)
        if found is None:
            line.heading = _match_unnumbered(lines, at, margin=paged and not flush)
            continue
        if not paged and _FIELD.search(found.title):
            continue
        if _is_heading(found, line.text, named, last, flush=flush):
            line.heading = found
            last = found.number


def _is_heading(found: Heading, text: str, named: set[str], last: str | None, *, flush: bool) -> bool:
    """Is a line of a heading's form one? Where all is flush left, only by the contents or in sequence."""
    if normalize_title(text) in named:
        return True
    if found.title.endswith(_SENTENCE):
        return False
    if not flush:
        return True
    in_order = found.number is not None and _can_follow(found.number, last)
    return not named and in_order and not found.title[0].islower()


def _match_unnumbered(lines: list[Line], at: int, *, margin: bool) -> Heading | None:
    """A heading without number: of a known name, or alone at the margin of an indented text."""
    text = lines[at].text
    if text.casefold().replace("\u2019", "'") in _UNNUMBERED:
        return Heading(level=1, number=None, title=text)
    alone = (at == 0 or lines[at - 1].blank) and (at + 1 == len(lines) or lines[at + 1].blank)
    shaped = len(text) < 80 and text[0].isupper() and text[-1] not in ".,;:>" and "  " not in text
    if not (margin and alone and shaped):
        return None
    below = next((line.text for line in lines[at + 1 : at + 4] if line.text), "")
    return Heading(level=1, number=None, title=text) if below.startswith(" ") else None


def split_sections(lines: list[Line]) -> tuple[Section, ...]:
    """The sections, each with its own text: that of its subsections is theirs."""
    starts = [(at, line.heading) for at, line in enumerate(lines) if line.heading is not None]
    ends = [at for at, _ in starts[1:]] + [len(lines)]
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
    """Flag headings and fenced text; blank comments, fences and attribute lines. Front matter is no text."""
    for step in (_drop_front_matter, _mark_fences, _drop_comments, _mark_markdown_headings):
        step(lines)


def _count_front_matter(lines: list[Line]) -> int:
    """How many lines the front matter takes, its two rules counted; 0 where there is none."""
    if not lines or lines[0].text != "---":
        return 0
    for at, line in enumerate(lines[1:], start=1):
        if line.text.startswith("---"):
            return at + 1
    return 0


def parse_front_matter(lines: list[Line]) -> tuple[Reference, ...]:
    """The references that a kramdown front matter lists under `normative:` and `informative:`."""
    out: list[Reference] = []
    inside = False
    for line in lines[: _count_front_matter(lines)]:
        if line.text and line.text[0] != " ":
            inside = line.text in ("normative:", "informative:")
        elif inside and (key := _KEY.match(line.text)):
            out.append(Reference(key=key[1], text="", line=line.number))
        elif inside and out and (title := _TITLE.match(line.text)):
            out[-1] = Reference(key=out[-1].key, text=title[1], line=out[-1].line)
    return tuple(out)


def find_anchors(text: str) -> frozenset[str]:
    """The names that a text gives its own sections and figures."""
    return frozenset(found["name"] for found in _ANCHOR.finditer(text))


def _drop_front_matter(lines: list[Line]) -> None:
    for line in lines[: _count_front_matter(lines)]:
        line.text = ""


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
    """A line without what `<!-- -->` encloses, and whether a comment is open at its end."""
    out: list[str] = []
    at = 0
    while True:
        mark = "-->" if inside else "<!--"
        found = text.find(mark, at)
        if not inside:
            out.append(text[at:] if found < 0 else text[at:found])
        if found < 0:
            return "".join(out).rstrip(" "), inside
        at = found + len(mark)
        inside = not inside


def _parse_title(level: int, title: str) -> Heading:
    """A heading, its number (if it begins with one) taken off its title."""
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
        found = _ATX.match(line.text) if len(line.text) < _WIDEST else None
        if found is not None:
            line.heading = _parse_title(len(found[1]), found["title"].strip())
        elif before is not None and _is_underline(line.text, before.text):
            before.heading = _parse_title(1 if line.text[0] == "=" else 2, before.text.strip())
            line.text = ""
        # only a line alone can be underlined: a paragraph's last line is none
        before = line if previous_blank and line.text and line.heading is None else None
        previous_blank = line.blank


_RULE: Final[Callable[[str], object]] = re.compile(r"(?:=+|-+)\Z").match


def _is_underline(text: str, above: str) -> bool:
    """A setext underline: as long as the title, within a few characters, so that no rule is taken for one."""
    return bool(_RULE(text)) and len(text) + 3 > len(above) and ":" not in above
