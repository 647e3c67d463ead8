"""Redaction of text that arrives in pieces, with bounded memory.

What is found never reaches over more than the line after its own, PEM blocks apart; so text is let go
line by line, once nothing that may still come can change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from onym.uri._redact_keys import PEM_BEGIN, PEM_END, PEM_REACH
from onym.uri._redact_scan import cleaned, known_values, spans
from onym.uri._redact_view import Span
from onym.uri.secret import Secret

__all__ = ["WINDOW", "redact_stream"]

#: the pieces give the same as the whole as long as no line is longer than this, in characters
WINDOW = 65_536
# of a line that is longer, this much is kept back for what may follow
_MARGIN = 8_192
# so many lines are kept back, each of which may go on in the next
_OPEN_LINES = 8
# a value stands no farther behind its name
_CONTEXT = 256


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    name = r"(?i:name|key|type|id)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?[\w.-]{2,64}[\"']?[\s,;]*\Z"
    return re.compile(name), re.compile(r"[|>][+-]?|[\[({<]{1,2}")


def _is_open(text: str, start: int, end: int) -> bool:
    """Whether a line may go on in the next: it ends in a name, or in a word with a colon in it."""
    line = text[start:end].rstrip(" \t\r")
    name, sign = _patterns()
    if name.search(line[-_CONTEXT:]):
        return True
    # no expression: one that looks for the last word of a long line costs the square of its length
    words = line.rsplit(None, 2)
    if len(words) > 1 and sign.fullmatch(words[-1]):
        words.pop()
    last = words[-1] + line[-1] if words else ""
    return not last.isascii() or any(mark in last for mark in ":%\\&")


@cache
def _end() -> re.Pattern[str]:
    return re.compile(r"[\s\"'<>@&`]")


def redact_stream(chunks: Iterable[str], *, secrets: Iterable[Secret | str] = ()) -> Iterator[str]:
    """`redact` of text that comes in chunks, cut anywhere; yields what can no longer change.

    The pieces put together equal `redact` of the whole text as long as no line is longer than
    `WINDOW` characters and no known secret holds a newline. Of longer lines more may be hidden, never
    less of a secret. About two windows of text are held at most.
    """
    known = known_values(secrets)
    held, hiding = "", False
    for chunk in _pieces(chunks):
        held += chunk
        if hiding:
            held, hiding = _after_secret(held)
        if "\n" not in chunk and len(held) <= 2 * WINDOW:
            continue
        found = spans(held, known)
        cut = _line_cut(held, found)
        if not cut and len(held) > 2 * WINDOW:
            cut, hiding = _forced_cut(held, found)
        if cut:
            yield cleaned(held[:cut], known, [span for span in found if span[0] < cut])
            held = held[cut:]
    if held:
        yield cleaned(held, known)


def _pieces(chunks: Iterable[str]) -> Iterator[str]:
    for chunk in chunks:
        if not isinstance(chunk, str):
            raise TypeError(f"redact_stream() takes str, not {type(chunk).__name__}")
        for start in range(0, len(chunk), WINDOW):
            yield chunk[start : start + WINDOW]


def _line_cut(text: str, found: list[Span]) -> int:
    """The last line border that nothing reaches over, now or with more text; 0 where there is none."""
    cut = text.rfind("\n") + 1
    for _ in range(_OPEN_LINES):
        before = text.rfind("\n", 0, max(cut - 1, 0)) + 1
        if not cut or not _is_open(text, before, cut - 1):
            break
        cut = before
    begin = text.find(PEM_BEGIN, max(text.rfind(PEM_END), len(text) - PEM_REACH - 128, 0))
    if begin >= 0:
        cut = min(cut, text.rfind("\n", 0, begin) + 1)
    for start, end in reversed(found):
        if start < cut <= end:
            cut = text.rfind("\n", 0, start) + 1
    return cut


def _forced_cut(text: str, found: list[Span]) -> tuple[int, bool]:
    """Where to cut a line that is too long, and whether what follows still belongs to a secret."""
    cut = len(text) - _MARGIN
    before = max((end for _, end in found if end <= cut), default=0)
    following = next(((start, end) for start, end in found if end > cut), None)
    if following is None or following[0] >= cut + _CONTEXT:
        return cut, False
    # a name and its value stay together
    start, end = following
    cut = max(before, start - _CONTEXT)
    return (cut, False) if cut else (end, end == len(text))


def _after_secret(text: str) -> tuple[str, bool]:
    match = _end().search(text)
    return (text[match.start() :], False) if match else ("", True)
