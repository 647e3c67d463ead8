"""Text as a reader would see it: escapes undone, with the way back to where they stood.

A secret may be written percent-encoded, JSON-escaped, as HTML entities, with letters of another
width or cut by invisible characters. Each layer of that is undone once; spans found in the result
are mapped back, so that replacement always happens in the original text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache
from itertools import accumulate
from typing import TypeAlias

__all__ = ["LAYERS", "Span", "View", "level", "lowered"]

#: (start, end) in characters, end excluded
Span: TypeAlias = tuple[int, int]

#: how many layers of escapes are undone: `%252540` has three
LAYERS = 4

_ENTITIES = {
    "amp": "&", "apos": "'", "bsol": "\\", "colon": ":", "commat": "@", "equals": "=", "gt": ">",
    "hyphen": "-", "lowbar": "_", "lt": "<", "num": "#", "period": ".", "quest": "?", "quot": '"', "sol": "/",
}  # fmt: skip
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}
# soft hyphen, zero width, marks of direction, word joiner, byte order mark
_INVISIBLE = "\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
# backslash runs are bounded, else a megabyte of them costs a square of that
_ESCAPES = {
    "%": r"%[0-9A-Fa-f]{2}",
    "\\": r"\\{1,8}(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\"'/nrt])",
    "&": rf"&(?:#[0-9]{{1,7}}|#[xX][0-9A-Fa-f]{{1,6}}|{'|'.join(_ENTITIES)});",
}
# compatibility forms (NFKC) of the characters that the scheme and its delimiters are made of
_L = (
    "2e1 1d38 2097 2112 2113 216c 217c 24c1 24db 1d40b 1d425 1d43f 1d459 1d473 1d48d 1d4c1 1d4db 1d4f5"
    " 1d50f 1d529 1d543 1d55d 1d577 1d591 1d5ab 1d5c5 1d5df 1d5f9 1d613 1d62d 1d647 1d661 1d67b 1d695 1f13b"
)
_M = (
    "1d39 1d50 2098 2133 216f 217f 24c2 24dc 1d40c 1d426 1d440 1d45a 1d474 1d48e 1d4c2 1d4dc 1d4f6 1d510"
    " 1d52a 1d544 1d55e 1d578 1d592 1d5ac 1d5c6 1d5e0 1d5fa 1d614 1d62e 1d648 1d662 1d67c 1d696 1f13c"
)


@cache
def _lookalikes() -> tuple[re.Pattern[str], dict[int, int]]:
    table = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
    for letter, codes in (("l", _L), ("m", _M), (":", "fe13 fe55"), ("@", "fe6b")):
        table |= {int(code, 16): ord(letter) for code in codes.split()}
    return re.compile(f"[{''.join(map(chr, table))}]"), table


def level(text: str) -> str:
    """The text with lookalikes of ASCII replaced by ASCII, each by one: positions stay."""
    if text.isascii():
        return text
    pattern, table = _lookalikes()
    return text.translate(table) if pattern.search(text) else text


def lowered(text: str) -> str:
    """The text in lower case, positions unchanged (one capital letter has two in lower case)."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "I").lower()


@cache
def _escapes(kinds: str) -> re.Pattern[str]:
    return re.compile(f"({'|'.join(_ESCAPES[kind] for kind in kinds)})")


@cache
def _gaps() -> re.Pattern[str]:
    return re.compile(rf"([{_INVISIBLE}]|\x1b\[[0-9;]{{0,16}}m)")


@cache
def _decoded(escape: str) -> str:
    body = escape.lstrip("\\")
    if escape[0] == "%":
        return chr(int(escape[1:], 16))
    if escape[0] == "\\":
        return _SHORT.get(body, body) if len(body) == 1 else chr(int(body[1:], 16))
    name = escape[1:-1]
    if name[0] != "#":
        return _ENTITIES[name]
    code = int(f"0{name[1:]}", 0) if name[1] in "xX" else int(name[1:])
    return chr(code) if code <= 0x10FFFF else escape


class View:
    """A text without some of its characters, or with escapes undone, and the way back."""

    __slots__ = ("_back", "_here", "text")

    def __init__(self, parts: list[str], plain: list[str]) -> None:
        # parts alternate: ordinary text, escape, ordinary text, ...
        self.text = level("".join(plain))
        self._back = list(accumulate(map(len, parts), initial=0))
        self._here = list(accumulate(map(len, plain), initial=0))

    @staticmethod
    def joined(text: str) -> View | None:
        """The text without invisible characters and colours of a terminal, None where it has none."""
        if text.isascii() and "\x1b" not in text:
            return None
        parts = _gaps().split(text)
        return (
            View(parts, [part if index % 2 == 0 else "" for index, part in enumerate(parts)])
            if parts[1:]
            else None
        )

    @staticmethod
    def unescaped(text: str) -> View | None:
        """The text with one layer of escapes undone, None where it has none."""
        kinds = "".join(kind for kind in _ESCAPES if kind in text)
        parts = _escapes(kinds).split(text) if kinds else []
        if not parts[1:]:
            return None
        plain = parts.copy()
        plain[1::2] = map(_decoded, parts[1::2])
        return View(parts, plain)

    def back(self, span: Span) -> Span:
        """Where a span of this view stands in the text below, whole escapes included."""
        first = bisect_right(self._here, span[0]) - 1
        last = bisect_right(self._here, span[1] - 1) - 1
        start, end = self._back[first], self._back[last]
        if first % 2 == 0:
            start += span[0] - self._here[first]
        end = self._back[last + 1] if last % 2 else end + span[1] - self._here[last]
        return start, end

    def escaped(self, start: int, end: int) -> bool:
        """Whether any of these characters was written as an escape in the text below."""
        first, last = bisect_right(self._here, start) - 1, bisect_right(self._here, end - 1) - 1
        return last > first or first % 2 == 1
