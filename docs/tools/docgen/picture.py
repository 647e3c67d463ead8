"""docs/assets/llm-uri.svg: one URI part by part, the parts cut out by a real parse."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

from docgen.drawing import BLUE, FAINT, GREEN, GREY, ORANGE, PINK, RED, TEAL, VIOLET, frame
from onym.uri.generic import split_uri
from onym.uri.llm import LLMURI

__all__ = ["EXAMPLE", "Span", "spans", "uri_picture"]

EXAMPLE = "llm://my-app:sk-made-up@api.openai.com:443/gpt-5.5?temp=0.7&max_tokens=1500#code-review"

#: the advance of one character of the URI, on a page and on a phone, and of one of the names below it
_CHAR, _NARROW_CHAR = 8.2, 11.4
_SMALL = 8.2
_LEFT = 16
#: characters of a line of the URI on a phone
_NARROW = 30
_COLOURS = {
    "scheme": GREY,
    "label": TEAL,
    "key": RED,
    "host": BLUE,
    "port": VIOLET,
    "model": ORANGE,
    "parameters": GREEN,
    "fragment": PINK,
}


class Span(NamedTuple):
    """One part: its name, where it stands in the text, and what Onym read there."""

    part: str
    start: int
    end: int
    value: str


def spans(text: str) -> list[Span]:
    """The parts of `text` by RFC 3986, each with the value of `LLMURI`."""
    return list(_spans(text))


def _spans(text: str) -> Iterator[Span]:
    parts, uri = split_uri(text, rule="URI"), LLMURI.parse(text)
    at = 0

    def found(part: str, piece: str | None, value: object) -> Iterator[Span]:
        nonlocal at
        if piece is not None:
            start = text.index(piece, at)
            at = start + len(piece)
            yield Span(part, start, at, str(value))

    label, _, key = (parts.userinfo or "").partition(":")
    yield from found("scheme", parts.scheme, "llm")
    yield from found("label", label or None, uri.label)
    yield from found("key", key or None, uri.key)
    yield from found("host", parts.host, uri.host)
    yield from found("port", parts.port, uri.port)
    yield from found("model", parts.path[1:], uri.model)
    shown = ", ".join(f"{name} = {value!r}" for name, value in uri.params.items())
    yield from found("parameters", parts.query, shown)
    yield from found("fragment", parts.fragment, uri.fragment)


def uri_picture(text: str = EXAMPLE, *, narrow: bool = False) -> str:
    """The picture, as SVG text; `narrow` breaks the URI into lines, for a phone."""
    parts = spans(text)
    described = "; ".join(map(_said, parts))
    if narrow:
        width, below = 2 * _LEFT + int(_NARROW * _NARROW_CHAR), 40 + 26 * (-(-len(text) // _NARROW))
        rows = list(_narrow_rows(parts, width, below))
        height = below + 22 * len(rows)
    else:
        width = int(max(_middle(each) + 5 + _SMALL * len(_said(each)) for each in parts) + _LEFT)
        height = 80 + 22 * len(parts)
        # the last part is named first, so that no line crosses a name
        rows = [line for row, each in enumerate(reversed(parts)) for line in _row(each, row)]
    lines = [*_text_line(text, parts, _NARROW if narrow else len(text), narrow=narrow), *rows]
    return frame(width, height, "An llm URI, part by part", described, lines)


def _text_line(text: str, parts: list[Span], length: int, *, narrow: bool) -> Iterator[str]:
    """The URI itself, each character at its own place so that lines meet it in any font."""
    colour, (char, size) = [FAINT] * len(text), (_NARROW_CHAR, 18) if narrow else (_CHAR, 13.5)
    for each in parts:
        colour[each.start : each.end] = [_COLOURS[each.part]] * (each.end - each.start)
    for at, character in enumerate(text):
        row, column = divmod(at, length)
        yield (
            f'<text x="{_LEFT + column * char:.1f}" y="{40 + 26 * row}" font-size="{size}" '
            f'fill="{colour[at]}">{escape(character)}</text>'
        )


def _narrow_rows(parts: list[Span], width: int, below: int) -> Iterator[str]:
    """The name of each part and what was read there, in lines that fit."""
    at = 0
    for each in parts:
        for line in textwrap.wrap(_said(each), int((width - 2 * _LEFT) / _SMALL), subsequent_indent="  "):
            yield (
                f'<text x="{_LEFT}" y="{below + 22 * at}" font-size="13" fill="{_COLOURS[each.part]}"'
                f' xml:space="preserve">{escape(line)}</text>'
            )
            at += 1


def _row(each: Span, row: int) -> Iterator[str]:
    """A bracket under the part, a line down from its middle, and at its end the name and what was read."""
    left, right = _LEFT + each.start * _CHAR, _LEFT + each.end * _CHAR - 1
    middle, y = _middle(each), 84 + 22 * row
    colour = _COLOURS[each.part]
    yield f'<path d="M{left:.1f} 50H{right:.1f}M{middle:.1f} 50V{y - 5}h4" stroke="{colour}" fill="none"/>'
    yield f'<text x="{middle + 7:.1f}" y="{y}" font-size="13" fill="{colour}">{escape(_said(each))}</text>'


def _middle(each: Span) -> float:
    return _LEFT + (each.start + each.end) / 2 * _CHAR


def _said(each: Span) -> str:
    return f"{each.part}: {each.value}"
