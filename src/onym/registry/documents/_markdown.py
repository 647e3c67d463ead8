"""What Markdown adds to plain text: headings by marks, fences, comments, front matter, kramdown's notes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from onym.registry.documents._lines import Heading, Line
from onym.registry.documents.types import Reference

__all__ = ["anchors_of", "front_matter", "mark_markdown"]

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
    for step in (_drop_front_matter, _mark_fences, _drop_comments, _mark_headings):
        step(lines)


def _front_end(lines: list[Line]) -> int:
    """How many lines the front matter takes, its two rules counted; 0 where there is none."""
    if not lines or lines[0].text != "---":
        return 0
    for at, line in enumerate(lines[1:], start=1):
        if line.text.startswith("---"):
            return at + 1
    return 0


def front_matter(lines: list[Line]) -> tuple[Reference, ...]:
    """The references that a kramdown front matter lists under `normative:` and `informative:`."""
    out: list[Reference] = []
    inside = False
    for line in lines[: _front_end(lines)]:
        if line.text and line.text[0] != " ":
            inside = line.text in ("normative:", "informative:")
        elif inside and (key := _KEY.match(line.text)):
            out.append(Reference(key=key[1], text="", line=line.number))
        elif inside and out and (title := _TITLE.match(line.text)):
            out[-1] = Reference(key=out[-1].key, text=title[1], line=out[-1].line)
    return tuple(out)


def anchors_of(text: str) -> frozenset[str]:
    """The names that a text gives its own sections and figures."""
    return frozenset(found["name"] for found in _ANCHOR.finditer(text))


def _drop_front_matter(lines: list[Line]) -> None:
    for line in lines[: _front_end(lines)]:
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
            line.text, inside = _without_comments(line.text, inside=inside)


def _without_comments(text: str, *, inside: bool) -> tuple[str, bool]:
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


def _titled(level: int, title: str) -> Heading:
    """A heading, its number (if it begins with one) taken off its title."""
    number = _NUMBER.match(title)
    if number is None:
        return Heading(level=level, number=None, title=title)
    return Heading(level=level, number=number[1], title=title[number.end() :])


def _mark_headings(lines: list[Line]) -> None:
    before: Line | None = None
    previous_blank = True
    for line in lines:
        if line.code is not None:
            before, previous_blank = None, False
            continue
        found = _ATX.match(line.text) if len(line.text) < _WIDEST else None
        if found is not None:
            line.heading = _titled(len(found[1]), found["title"].strip())
        elif before is not None and _underlines(line.text, before.text):
            before.heading = _titled(1 if line.text[0] == "=" else 2, before.text.strip())
            line.text = ""
        # only a line alone can be underlined: a paragraph's last line is none
        before = line if previous_blank and line.text and line.heading is None else None
        previous_blank = line.blank


_RULE: Final[Callable[[str], object]] = re.compile(r"(?:=+|-+)\Z").match


def _underlines(text: str, above: str) -> bool:
    """A setext underline: as long as the title, within a few characters, so that no rule is taken for one."""
    return bool(_RULE(text)) and len(text) + 3 > len(above) and ":" not in above
