"""Where labels stand: at the beginning of a line, several on one line, or cut by its end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from onym.registry.documents._labels import NAME, Label, Labels
from onym.registry.documents._lines import Line, indent_of

__all__ = ["Found", "apart", "find"]

_LEAD: Final = re.compile(r"(?P<indent> *)(?:(?:[-*+•o] {1,4})|(?P<table>\| *))?(?P<bold>\*\*|__|\*|_|`)?")
#: the number of an item: only before a label with its colon, for headings have numbers too
_ITEM: Final = re.compile(r" *(?:\d{1,2}[.)]|\([a-z0-9]{1,2}\)|[a-z][.)]) {1,4}(?=[A-Z*_`])")
_WORDS: Final = re.compile(r"[A-Z][A-Za-z/&'-]*(?: [A-Za-z/&'()-]+){0,7}\Z")
#: characters of a line in which a label is looked for
_WIDEST: Final = 120


@dataclass(slots=True, kw_only=True)
class Found:
    """A label where it stands."""

    label: Label | None
    spelling: str
    rest: str
    indent: int
    bare: bool


def _lead(text: str) -> tuple[int, bool, str, str]:
    """(indentation, is it a table's row?, marks of emphasis, the rest) of a line."""
    # it matches at every beginning, be it nothing
    lead = next(_LEAD.finditer(text))
    return len(lead["indent"]), lead["table"] is not None, lead["bold"] or "", text[lead.end() :]


def find(line: Line, labels: Labels) -> Found | None:
    """The label, or what has the form of one, that a line begins with."""
    item = _ITEM.match(line.text)
    if item is not None:
        return _numbered(line, item, labels)
    indent, table, bold, body = _lead(line.text)
    if table:
        return _cell(body, indent, labels)
    before, colon, rest = body[:_WIDEST].replace("\uff1a", ":").partition(":")
    rest = body[len(before) + 1 :]
    if colon and (not rest or not rest[0].isalnum()) and not rest.startswith("//"):
        label = labels.find(before)
        if bold:
            rest = rest.removeprefix(bold).removeprefix("`")
        if label is not None or _WORDS.match(before.rstrip("*_` ")):
            return Found(
                label=label, spelling=before.strip("*_` "), rest=rest.strip(" "), indent=indent, bare=False
            )
    label = labels.find(body)
    if label is None or not body[:1].isupper():
        return None
    return Found(label=label, spelling=body.strip("*_` .:"), rest="", indent=indent, bare=True)


def _numbered(line: Line, item: re.Match[str], labels: Labels) -> Found | None:
    """A label that is an item of a numbered list."""
    margin = indent_of(line.text)
    found = find(Line(number=line.number, text=" " * margin + line.text[item.end() :]), labels)
    return found if found is not None and found.label is not None and not found.bare else None


def _cell(body: str, indent: int, labels: Labels) -> Found | None:
    """A row of a table whose first cell is a label."""
    cells = [each.strip() for each in body.rstrip("| ").split("|")]
    label = labels.find(cells[0]) if len(cells) > 1 else None
    if label is None:
        return None
    rest = " ".join(each for each in cells[1:] if each)
    return Found(label=label, spelling=cells[0].strip("*_` :"), rest=rest, indent=indent, bare=False)


def apart(lines: list[Line], labels: Labels) -> list[Line]:
    """The same lines, labels that share a line put on lines of their own, wrapped labels made whole."""
    out: list[Line] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if _runs_on(line, labels):
            end = at
            while end < len(lines) and lines[end].text and lines[end].heading is None:
                end += 1
            out.extend(_split(lines[at:end], labels))
            at = end
        elif at + 1 < len(lines) and _wrapped(line, lines[at + 1], labels):
            joined = f"{line.text} {lines[at + 1].text.lstrip(' ')}"
            out.append(Line(number=line.number, text=joined, code=line.code))
            at += 2
        else:
            out.append(line)
            at += 1
    return out


def _runs_on(line: Line, labels: Labels) -> bool:
    """Does it begin with the label of the name, and hold another label after it?"""
    if line.heading is not None or line.toc or not line.text:
        return False
    found = find(line, labels)
    if found is None or found.label is None or found.label.id != NAME or found.bare:
        return False
    return labels.inner.search(found.rest) is not None


def _split(lines: list[Line], labels: Labels) -> list[Line]:
    text = "\n".join(each.text for each in lines)
    starts = [
        0,
        *(
            each.start()
            for each in labels.inner.finditer(text)
            if each.start() > indent_of(lines[0].text) + 4
        ),
    ]
    margin = " " * indent_of(lines[0].text)
    out: list[Line] = []
    row = passed = 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        row += text.count("\n", passed, start)
        passed = start
        rows = text[start:end].strip(" ").rstrip("\n ").split("\n")
        # a label that was wrapped is made whole on its first line
        head = labels.inner.match(text[start:end].lstrip(" "))
        if head is not None and "\n" in head[0]:
            rows = [" ".join(" ".join(rows).split())]
        for offset, each in enumerate(rows):
            out.append(Line(number=lines[row].number + offset, text=margin + each.strip(" ")))
    return out


def _wrapped(line: Line, after: Line, labels: Labels) -> bool:
    """Is a label cut in two by the end of the line?"""
    if line.heading is not None or line.toc or ":" in line.text or not line.text or not after.text:
        return False
    body = _lead(line.text)[3]
    if not labels.cut(body) or not body[:1].isupper():
        return False
    rest = after.text[:_WIDEST].partition(":")
    return bool(rest[1]) and labels.find(f"{body} {rest[0]}") is not None
