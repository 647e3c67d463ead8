"""Text on its way to a person: nothing that a terminal would obey, and a URI with a caret under it."""

from __future__ import annotations

from typing import Final, NamedTuple

from onym.uri.redact import redact
from onym.uri.secret import MARK

__all__ = ["Pointed", "columns", "harmless", "point", "printable", "wrapped"]

#: C0 but for tab and newline, DEL, C1: what moves cursors and writes clipboards
_CONTROLS: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)
}
#: how much of a long text stands before and after the place that a caret points at
_BEFORE: Final = 60
#: fewer cells than this are no column to wrap a text in
_NARROW: Final = 24
_AFTER: Final = 60


class Pointed(NamedTuple):
    """A line of text and the line of carets that belongs under it ("" where there is no place)."""

    text: str
    carets: str


def printable(text: str) -> str:
    """`text` with every character that does not print written as an escape (`\\x1b`, `\\u202e`)."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() else _escape(ch) for ch in text)


def harmless(text: str) -> str:
    """A model's answer as it may reach a terminal: lines and tabs stay, other controls are escaped."""
    return text.translate(_CONTROLS)


def columns(text: str) -> int:
    """How many terminal cells `text`, already printable, takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(ch) else 2 if east_asian_width(ch) in "WF" else 1 for ch in text)


def wrapped(text: str, start: int, width: int | None) -> str:
    """`text`, whose first character stands in column `start`, in lines of at most `width` cells.

    Later lines begin below the first. Words stay whole, so that a path or a URI can be copied; without a
    width, or where too little of it is left, the text stays as it is.
    """
    if width is None or width - start < _NARROW or columns(text) <= width - start:
        return text
    from textwrap import wrap

    lines = wrap(text, width - start, break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * start).join(lines)


def point(text: str, start: int | None, end: int | None = None) -> Pointed:
    """`text` redacted and made printable, with carets under what stood at `start` to `end`.

    Offsets count characters of `text` as it was given; a place inside a secret points at its mark.
    Long texts are cut to the neighbourhood of the place.
    """
    pieces = _pieces(text)
    if pieces is None:
        return Pointed(_clip(printable(redact(text)), 0)[0], "")
    shown = "".join(piece.shown for piece in pieces)
    if start is None:
        return Pointed(_clip(shown, 0)[0], "")
    first = _place(pieces, start, after=False)
    last = _place(pieces, max(start + 1, start if end is None else end), after=True)
    clipped, cut = _clip(shown, first)
    lead = clipped[: first + cut]
    under = clipped[first + cut : last + cut]
    return Pointed(clipped, " " * columns(lead) + "^" * max(1, columns(under)))


class _Piece(NamedTuple):
    start: int
    length: int
    shown: str


def _pieces(text: str) -> list[_Piece] | None:
    """How the redacted, printable text follows from `text`: kept runs and marks, in order."""
    kept = redact(text).split(MARK)
    pieces: list[_Piece] = []
    at = 0
    for number, run in enumerate(kept):
        if number == len(kept) - 1:
            found = len(text) - len(run) if text.endswith(run) else -1
        else:
            found = text.find(run, at) if run or number else 0
        if found < at or (number == 0 and found != 0):
            return None
        if number:
            pieces.append(_Piece(at, found - at, MARK))
        pieces.extend(_run(run, found))
        at = found + len(run)
    return pieces


def _run(run: str, start: int) -> list[_Piece]:
    if run.isprintable():
        return [_Piece(start, len(run), run)] if run else []
    return [_Piece(start + number, 1, printable(ch)) for number, ch in enumerate(run)]


def _place(pieces: list[_Piece], offset: int, *, after: bool) -> int:
    """Where the character at `offset` (or, `after`, the end of the one before it) is shown."""
    at = 0
    for piece in pieces:
        stop = piece.start + piece.length
        if offset < stop or (after and offset == stop):
            if len(piece.shown) == piece.length:
                return at + max(0, offset - piece.start)
            return at + (len(piece.shown) if after and offset > piece.start else 0)
        at += len(piece.shown)
    return at


def _clip(shown: str, place: int) -> tuple[str, int]:
    """The neighbourhood of `place`, and how far `place` moved."""
    start = place - _BEFORE if place > _BEFORE + 1 else 0
    stop = max(start + _BEFORE + _AFTER, place + _AFTER)
    head = "…" if start else ""
    tail = "…" if stop < len(shown) else ""
    return head + shown[start:stop] + tail, len(head) - start


def _escape(ch: str) -> str:
    code = ord(ch)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
