"""Section headings of plain text, the table of contents, and the sections between headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from onym.registry.documents._lines import Heading, Line, is_flush
from onym.registry.documents.types import Section

__all__ = ["mark_headings", "sections_of", "title_key"]

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


def title_key(title: str) -> str:
    """A title for comparing: case, quotes' shape and spacing aside."""
    return "".join(title.casefold().replace("\u2019", "'").split())


def _heading(text: str) -> Heading | None:
    """A numbered heading, if the line has the form of one."""
    found = _NUMBERED.match(text)
    if found is None:
        return None
    number = found["letter"] or found["digits"]
    return Heading(level=number.count(".") + 1, number=number, title=found["title"].strip())


def _leader(text: str) -> str | None:
    """What a row of a table of contents names: its text before the dots and the page number."""
    bare = text.rstrip("0123456789")
    if bare == text:
        return None
    name = bare.rstrip(" .")
    return name.strip() if bare[len(name) :].count(".") > 2 and name.strip() else None


def _mark_contents(lines: list[Line]) -> set[str]:
    """Flag the rows of tables of contents; the keys ("3.1" + title) that they name."""
    named: set[str] = set()
    seen: set[str] | None = None
    names = [None if line.code is not None else _leader(line.text) for line in lines]
    for at, line in enumerate(lines):
        if line.blank or line.code is not None:
            continue
        name = names[at]
        # a row alone is no table
        if name is not None and any(
            each is not None for each in (*names[at - 1 : at], *names[at + 1 : at + 2])
        ):
            line.toc = True
            named.add(title_key(name))
            seen = None
        elif title_key(line.text) == "tableofcontents":
            seen = set()
        elif seen is not None and not _contents_row(line, seen, named):
            seen = None
    return named


def _contents_row(line: Line, seen: set[str], named: set[str]) -> bool:
    """Is this a row of a table without dots? It ends where a number comes again."""
    found = _heading(line.text.strip())
    known = line.text.strip().casefold() in _UNNUMBERED
    if found is None and not known:
        return False
    name = line.text.strip().casefold() if found is None else found.name
    if name in seen:
        return False
    seen.add(name)
    line.toc = True
    named.add(title_key(line.text))
    return True


def _follows(number: str, last: str | None) -> bool:
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


def _candidates(lines: list[Line]) -> Iterator[tuple[int, Line]]:
    for at, line in enumerate(lines):
        if line.text and line.heading is None and line.code is None and not line.toc and line.text[0] != " ":
            yield at, line


def mark_headings(lines: list[Line], *, paged: bool) -> None:
    """Find the headings of a plain text. `paged`: of RFC form, where a lone line at the margin is one too."""
    named = _mark_contents(lines)
    flush = is_flush(lines)
    last: str | None = None
    for at, line in _candidates(lines):
        found = _heading(line.text)
        if found is None:
            line.heading = _unnumbered(lines, at, margin=paged and not flush)
            continue
        if not paged and _FIELD.search(found.title):
            continue
        if _stands(found, line.text, named, last, flush=flush):
            line.heading = found
            last = found.number


def _stands(found: Heading, text: str, named: set[str], last: str | None, *, flush: bool) -> bool:
    """Is a line of a heading's form one? Where all is flush left, only by the contents or in sequence."""
    if title_key(text) in named:
        return True
    if found.title.endswith(_SENTENCE):
        return False
    if not flush:
        return True
    in_order = found.number is not None and _follows(found.number, last)
    return not named and in_order and not found.title[0].islower()


def _unnumbered(lines: list[Line], at: int, *, margin: bool) -> Heading | None:
    """A heading without number: of a known name, or alone at the margin of an indented text."""
    text = lines[at].text
    if text.casefold().replace("\u2019", "'") in _UNNUMBERED:
        return Heading(level=1, number=None, title=text)
    alone = (at == 0 or lines[at - 1].blank) and (at + 1 == len(lines) or lines[at + 1].blank)
    shaped = len(text) < 80 and text[0].isupper() and text[-1] not in ".,;:>" and "  " not in text
    if not (margin and alone and shaped):
        return None
    below = next((each.text for each in lines[at + 1 : at + 4] if each.text), "")
    return Heading(level=1, number=None, title=text) if below.startswith(" ") else None


def sections_of(lines: list[Line]) -> tuple[Section, ...]:
    """The sections, each with its own text: that of its subsections is theirs."""
    starts = [(at, line.heading) for at, line in enumerate(lines) if line.heading is not None]
    ends = [at for at, _ in starts[1:]] + [len(lines)]
    return tuple(
        Section(
            number=heading.number,
            title=heading.title,
            text="\n".join(each.text for each in lines[start + 1 : end]).strip("\n"),
            line=lines[start].number,
        )
        for (start, heading), end in zip(starts, ends, strict=False)
    )
