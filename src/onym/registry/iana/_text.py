r"""A plain table for people, like the text form of IANA's pages, that can be read again.

A line of `=` marks where columns begin and end; no cell is folded. A backslash, a line break, a control
character and a space at either end of a cell are written with a backslash (`\\`, `\n`, `\x20`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

from onym.registry.iana._cells import cell, column_id
from onym.registry.iana._faults import bad
from onym.registry.iana._markup import holds
from onym.registry.iana._rows import Row, Table
from onym.registry.iana._types import MAX_COLUMNS
from onym.registry.records import Entry
from onym.registry.registries import Registry

__all__ = ["looks_like_text", "read_text", "write_text"]

_RULER: Final = re.compile(r"^=+(?: {2}=+)*$", re.MULTILINE)
_UPDATED: Final = re.compile(r"^Last Updated: ([0-9]{4}-[0-9]{2}-[0-9]{2})$", re.MULTILINE)
_ESCAPE: Final = re.compile(r"\\(\\|n|r|t|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_SHORT: Final = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_GAP: Final = "  "


def write_text(entries: Sequence[Entry], registry: Registry, updated: date) -> str:
    """Title, date and one line for each entry."""
    rows = [[_escaped(cell(entry, each.id)) for each in registry.columns] for entry in entries]
    titles = [each.heading for each in registry.columns]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    ruler = _GAP.join("=" * width for width in widths)
    lines = [
        registry.title,
        "",
        f"Last Updated: {updated.isoformat()}",
        f"Reference: [{registry.reference}]",
        "",
        _line(titles, widths),
        ruler,
        *(_line(row, widths) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(each.ljust(width) for each, width in zip(cells, widths, strict=True)).rstrip(" ")


def _escaped(value: str) -> str:
    text = "".join(map(_character, value))
    if text.startswith(" "):
        text = f"\\x20{text[1:]}"
    return f"{text[:-1]}\\x20" if text.endswith(" ") else text


def _character(char: str) -> str:
    if char == "\\":
        return "\\\\"
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    for short, meant in _SHORT.items():
        if char == meant:
            return f"\\{short}"
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _bared(text: str, line: int) -> str:
    def meant(found: re.Match[str]) -> str:
        said = found[1]
        if said in _SHORT:
            return _SHORT[said]
        code = int(said[1:], 16)
        if not holds(code):
            raise bad("no such character", "bad-text", line=line)
        return chr(code)

    return _ESCAPE.sub(meant, text)


def looks_like_text(text: str) -> bool:
    """Is there a ruler?"""
    return _RULER.search(text) is not None


def read_text(text: str, registry: Registry) -> Table:
    """The rows under the ruler. Raises SnapshotError (registry.not-a-registry)."""
    ruler = _RULER.search(text)
    if ruler is None:
        raise bad("no table: no line of = under the headings", "not-a-registry")
    spans = [found.span() for found in re.finditer("=+", ruler[0])]
    head = text[: ruler.start()].splitlines()
    titles = _cells(head[-1] if head else "", spans)
    columns = tuple(column_id(registry, each) for each in titles[: MAX_COLUMNS + 1])
    if (
        not {"name", "status"} <= set(columns)
        or len(set(columns)) < len(columns)
        or len(columns) > MAX_COLUMNS
    ):
        raise bad("no columns of a registry above the line of =", "not-a-registry", line=len(head) or 1)
    updated = _UPDATED.search(text, 0, ruler.start())
    below = text[ruler.end() :].split("\n")[1:]
    return Table(
        rows=_rows(below, spans, columns, len(head) + 2),
        columns=columns,
        vintage=updated[1] if updated else None,
    )


def _rows(
    lines: Sequence[str], spans: Sequence[tuple[int, int]], columns: Sequence[str], first: int
) -> Iterator[Row]:
    for number, line in enumerate(lines, first):
        if line:
            cells = [_bared(each, number) for each in _cells(line, spans)]
            yield Row(line=number, cells=dict(zip(columns, cells, strict=True)))


def _cells(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    return [line[begin:end].strip(" ") for begin, end in spans]
