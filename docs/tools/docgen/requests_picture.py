"""docs/assets/one-string.svg: one string, and the requests that it becomes at three providers."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from docgen.drawing import BLUE, FAINT, GREEN, INK, ORANGE, PINK, TEAL, VIOLET, frame
from onym.llm.plan import Plan
from onym.llm.planner import PlannerSettings, build_plan
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

__all__ = ["MODELS", "PARAMETERS", "Line", "body_lines", "plans", "requests_picture"]

#: who is asked, and with what; the same for all
MODELS = ("openai/gpt-5.4", "anthropic/claude-sonnet-5-5", "gemini/gemini-3.8-flash")
PARAMETERS = "system=Be%20brief&temp=0.2&max_tokens=300&top_k=40&stop=END"

_KEYS = {"OPENAI_API_KEY": "made-up-1", "ANTHROPIC_API_KEY": "made-up-2", "GEMINI_API_KEY": "made-up-3"}
#: what stays on one line if nothing in it is a parameter's
_COMPACT = 44
_COLUMN, _LEFT, _TOP = 376, 16, 26
#: characters of a line of a column
_WIDE = 45
_LINE, _CHAR = 19, 7.85
_COLOURS = {
    "system": PINK,
    "temp": BLUE,
    "max_tokens": GREEN,
    "top_k": VIOLET,
    "stop": ORANGE,
    "model": TEAL,
}


class Line(NamedTuple):
    """One line of a body: how deep, its text, and where in the body it is, as `wire_name` says it."""

    depth: int
    text: str
    path: str


def plans() -> list[Plan]:
    """What would be sent to each, with made-up keys."""
    settings = PlannerSettings(
        policy=Policy.trusted(), providers=ProviderTable.builtin(), environ=_KEYS, on_unsupported="drop"
    )
    return [build_plan(LLMURI.parse(f"llm://{each}?{PARAMETERS}"), "Hello", settings) for each in MODELS]


def body_lines(body: Mapping[str, Any], named: set[str]) -> list[Line]:
    """The body as lines of JSON; what holds a place in `named` is opened up, the rest kept short."""
    return [Line(0, "{", ""), *_members(body, "", 1, named), Line(0, "}", "")]


def _members(value: Any, path: str, depth: int, named: set[str]) -> Iterator[Line]:
    if isinstance(value, Mapping):
        parts = [(f'"{key}": ', f"{path}.{key}".lstrip("."), each) for key, each in value.items()]
    else:
        parts = [("", f"{path}[{at}]", each) for at, each in enumerate(value)]
    for number, (head, where, each) in enumerate(parts):
        comma = "," if number < len(parts) - 1 else ""
        short = json.dumps(each, ensure_ascii=True)
        inside = any(name.startswith((f"{where}.", f"{where}[")) for name in named)
        if not isinstance(each, (Mapping, list, tuple)) or (len(head + short) <= _COMPACT and not inside):
            yield Line(depth, f"{head}{short}{comma}", where)
            continue
        left, right = "{}" if isinstance(each, Mapping) else "[]"
        yield Line(depth, f"{head}{left}", where)
        yield from _members(each, where, depth + 1, named)
        yield Line(depth, f"{right}{comma}", where)


def requests_picture(*, narrow: bool = False) -> str:
    """The picture, as SVG text; `narrow` puts the requests below each other, for a phone.

    Otherwise the last request is below the string, and the others are beside both.
    """
    columns = [_column(each) for each in plans()]
    width = 2 * _LEFT + _COLUMN * (1 if narrow else 2) - 20
    described = ". ".join(_described(each) for each in plans())
    lines = list(_string())
    below, height = _TOP + 24 * len(lines) + 24, 0
    stacks = (
        [(_LEFT, below, columns)]
        if narrow
        else [(_LEFT, below, columns[-1:]), (_LEFT + _COLUMN, _TOP, columns[:-1])]
    )
    for x, y, stack in stacks:
        for column in stack:
            lines += [
                f'<text x="{x + indent * _CHAR:.1f}" y="{y + row * _LINE}" font-size="13" fill="{colour}"'
                f"{' font-weight=' + chr(34) + 'bold' + chr(34) if row == 0 else ''}"
                f' xml:space="preserve">{escape(text)}</text>'
                for row, (indent, text, colour) in enumerate(column)
            ]
            y += _LINE * (len(column) + 1)
        height = max(height, y - _LINE)
    return frame(width, height, "One string, three requests", described, lines)


def _string() -> Iterator[str]:
    """The string itself, a parameter a line, in its colour."""
    rows = [[("llm://", FAINT), ("PROVIDER/MODEL", _COLOURS["model"])]]
    for number, pair in enumerate(PARAMETERS.split("&")):
        pieces = [("&" if number else "?", FAINT), (pair, _COLOURS[pair.partition("=")[0]])]
        rows.append(pieces)
    for number, row in enumerate(rows):
        spans = "".join(f'<tspan fill="{colour}">{escape(text)}</tspan>' for text, colour in row)
        x, y = _LEFT + 24 * (number > 0), _TOP + 24 * number
        yield f'<text x="{x}" y="{y}" font-size="18">{spans}</text>'


def _column(each: Plan) -> list[tuple[int, str, str]]:
    """Indent, text and colour of each line of one request."""
    address = urlsplit(each.url)
    wires = _wires(each)
    key = next(name for name, value in each.headers if isinstance(value, Secret))
    rows = [
        (0, f"{each.endpoint.text}", _COLOURS["model"]),
        (0, f"{each.method} {address.hostname}", INK),
        (0, address.path, _COLOURS["model"] if each.endpoint.model in address.path else INK),
        (0, f"{key}: ***", INK),
    ]
    for line in body_lines(each.body or {}, set(wires)):
        name = "model" if line.path == "model" else _parameter(line.path, wires)
        rows.append((2 * line.depth, line.text, _COLOURS.get(name or "", INK)))
    for name, reason in _refused(each):
        rows += [(0, line, _COLOURS[name]) for line in textwrap.wrap(f"{name} refused: {reason}", _WIDE)]
    return rows


def _parameter(path: str, wires: Mapping[str, str]) -> str | None:
    """The parameter that this place of the body belongs to."""
    inside = (wire for wire in wires if path == wire or path.startswith((f"{wire}.", f"{wire}[")))
    return next((wires[wire] for wire in inside), None)


def _wires(each: Plan) -> dict[str, str]:
    """Place in the body -> the parameter that is there."""
    return {
        note.wire_name: note.parameter
        for note in each.notes
        if note.wire_name is not None and note.parameter in _COLOURS
    }


def _refused(each: Plan) -> list[tuple[str, str]]:
    return [(note.parameter, str(note.reason)) for note in each.notes if note.action == "dropped"]


def _described(each: Plan) -> str:
    """One request in words."""
    sent = [f"{name} is {wire}" for wire, name in _wires(each).items()]
    refused = [f"{name} is refused: {reason}" for name, reason in _refused(each)]
    return f"{each.endpoint.provider.title}, POST {each.url}: {', '.join([*sent, *refused])}"
