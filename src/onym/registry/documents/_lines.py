"""A text as lines: numbered as given, page furniture out, copy damage of known kinds mended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from typing import Final

from onym.errors import TemplateError

__all__ = [
    "MAX_LINES",
    "MAX_TEXT",
    "MONTHS",
    "Heading",
    "Line",
    "capped",
    "indent_of",
    "is_flush",
    "lines_of",
    "mended",
]

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


def indent_of(text: str) -> int:
    """Columns before the first character that is not a space."""
    return len(text) - len(text.lstrip(" "))


def capped(items: Sized, limit: int, what: str) -> None:
    """Refuse more than `limit` of something. Raises TemplateError (registry.too-large)."""
    if len(items) > limit:
        raise TemplateError(
            f"the text has more than {limit} {what}",
            code="registry.too-large",
            hint="give the document that registers the scheme alone",
        )


def mended(text: str) -> list[str]:
    """The rows of a value, its characters as those of a document's lines."""
    rows = _BREAK.split(text.translate(_MENDED).replace("\f", ""))
    return [row.expandtabs(4).rstrip("¶ ") for row in rows]


def _raw(text: str) -> list[str]:
    capped(text, MAX_TEXT, "characters")
    rows = _BREAK.split(text)
    capped(rows, MAX_LINES, "lines")
    return rows


def _is_furniture(rows: list[str], at: int, near: bool) -> bool:
    """Is this row a footer, or the header that goes with one?"""
    if _FOOTER.match(rows[at]):
        return True
    if not _HEADER.match(rows[at]):
        return False
    return near or (at + 1 < len(rows) and _FOOTER.match(rows[at + 1]) is not None)


def _numbered(rows: list[str]) -> Iterable[tuple[int, str, bool]]:
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


def _joins(before: str, after: str) -> bool:
    """Does a paragraph go on over a page break between these two lines?"""
    return not before.endswith(_STOPS) and indent_of(before) == indent_of(after)


def lines_of(text: str) -> list[Line]:
    """The lines of a plain text, without page furniture. Raises TemplateError beyond the caps."""
    out: list[Line] = []
    gap = broken = False
    for number, row, furniture in _numbered(_raw(text)):
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
        if broken and gap and out and not _joins(out[-1].text, row):
            out.append(Line(number=number, text=""))
        gap = broken = False
        out.append(Line(number=number, text=row))
    return out


def is_flush(lines: list[Line]) -> bool:
    """Has the text lost its indentation? True where nearly nothing is indented."""
    texts = [each.text for each in lines if each.text and each.code is None]
    indented = sum(1 for each in texts if each.startswith("  "))
    return indented * 20 < len(texts)
