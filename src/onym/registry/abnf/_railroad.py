"""Railroad diagrams of a grammar: SVG without external assets, in the colour of the surrounding text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Final

from onym.common.text import replace_unprintable
from onym.errors import GrammarError
from onym.registry import abnf

#: rules and boxes of one diagram
MAX_DRAWN: Final = 200
MAX_BOXES: Final = 5_000
_CHAR: Final = 8.4
_HALF: Final = 13
_GAP: Final = 12
_TURN: Final = 10
_SPACE: Final = 10
_MARGIN: Final = 20
_TITLE: Final = 26


def render_railroad(grammar: abnf.Grammar, start: str) -> str:
    """Draw the rule `start` and the rules of the text that it needs as one SVG image.

    Strings have round ends, rules square ends, and prose is in italics; imported rules are named, not drawn.
    The image has a title and each rule its ABNF as text for screen readers; all text is escaped. Raises
    GrammarError abnf.too-large beyond MAX_DRAWN rules or MAX_BOXES boxes, abnf.broken-rule if a rule is not
    valid, and UnknownEntryError if the rule `start` does not exist.
    """
    rows: list[str] = []
    width, y = 0.0, float(_MARGIN)
    builder = _BoxBuilder(grammar)
    for rule, node in _collect_rules(grammar, start):
        box = builder.build_node(node)
        y += _TITLE
        parts = [
            f'<g role="group" aria-label="{_escape_text(rule.name)}">',
            f"<title>{_escape_text(' '.join(rule.text.split()) or rule.name)}</title>",
        ]
        parts.append(f'<text x="{_MARGIN}" y="{y - 8:g}" font-weight="bold">{_escape_text(rule.name)}</text>')
        line = y + box.up + 4
        x = float(_MARGIN)
        parts.append(_render_path(f"M{x:g} {line - 7:g}v14M{x:g} {line:g}h{_GAP}"))
        parts.extend(_render_box(box, x + _GAP, line))
        end = x + _GAP + box.width
        parts.append(_render_path(f"M{end:g} {line:g}h{_GAP}m0 -7v14"))
        parts.append("</g>")
        rows.extend(parts)
        width = max(width, end + _GAP + _MARGIN, _MARGIN * 2 + len(rule.name) * _CHAR * 1.1)
        y = line + box.down + _SPACE
    name = _escape_text(grammar.rule(start).name)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Railroad diagram of {name}"'
        f' viewBox="0 0 {width:g} {y + _MARGIN:g}" width="{width:g}" height="{y + _MARGIN:g}"'
        ' font-family="ui-monospace, monospace" font-size="14" fill="currentColor">'
    )
    return "\n".join([head, f"<title>Railroad diagram of {name}</title>", *rows, "</svg>"]) + "\n"


def _collect_rules(grammar: abnf.Grammar, start: str) -> list[tuple[abnf.Rule, abnf.Node]]:
    first = grammar.rule(start)
    rules, seen = [first], {first.key}
    drawn = []
    for rule in rules:
        if rule.node is None:
            message = f"the rule {rule.name} is not valid ABNF"
            raise GrammarError(message, code="abnf.broken-rule", field=rule.name, line=rule.line)
        drawn.append((rule, rule.node))
        for reference in abnf.list_references(rule.node):
            used = grammar.rules.get(reference.key)
            if used is not None and used.source is None and used.key not in seen:
                seen.add(used.key)
                rules.append(used)
        if len(rules) > MAX_DRAWN:
            raise _make_size_error(f"more than {MAX_DRAWN} rules to draw")
    return drawn


def _make_size_error(message: str) -> GrammarError:
    return GrammarError(message, code="abnf.too-large", hint="draw one of the inner rules: --start RULE")


def _escape_text(text: str) -> str:
    return escape(replace_unprintable(text))


@dataclass(slots=True, kw_only=True)
class _Box:
    """A part of the image: its width, and its height above and below the line."""

    kind: str
    width: float
    up: float = _HALF
    down: float = _HALF
    label: str = ""
    hint: str = ""
    inner: list[_Box] = field(default_factory=list)


class _BoxBuilder:
    """Makes boxes of nodes and counts them."""

    def __init__(self, grammar: abnf.Grammar) -> None:
        self.grammar = grammar
        self.count = 0

    def build_node(self, node: abnf.Node) -> _Box:
        self.count += 1
        if self.count > MAX_BOXES:
            raise _make_size_error(f"more than {MAX_BOXES:,} boxes to draw")
        if isinstance(node, abnf.Concatenation):
            return self.build_row([self.build_node(item) for item in node.items])
        if isinstance(node, abnf.Alternation):
            return self.build_choice([self.build_node(item) for item in node.items])
        if isinstance(node, (abnf.Repetition, abnf.ListOf)):
            return self.build_repeat(node)
        return self.build_leaf(node)

    def build_leaf(self, node: abnf.Node) -> _Box:
        kind, hint = "string", ""
        if isinstance(node, abnf.Reference):
            kind, label = "rule", node.name.split("@")[0]
            rule = self.grammar.rules.get(node.key)
            hint = rule.source or "" if rule is not None else "not defined"
        elif isinstance(node, abnf.Prose):
            kind, label = "prose", node.text
        else:
            label = _format_terminal(node)
        return _Box(kind=kind, width=len(label) * _CHAR + 20, label=label, hint=hint)

    def build_row(self, inner: list[_Box]) -> _Box:
        return _Box(
            kind="row",
            width=sum(box.width for box in inner) + _GAP * (len(inner) - 1),
            up=max(box.up for box in inner),
            down=max(box.down for box in inner),
            inner=inner,
        )

    def build_choice(self, inner: list[_Box]) -> _Box:
        below = sum(box.up + box.down + _SPACE for box in inner[1:])
        return _Box(
            kind="choice",
            width=max(box.width for box in inner) + 4 * _TURN,
            up=inner[0].up,
            down=inner[0].down + below,
            inner=inner,
        )

    def build_repeat(self, node: abnf.Repetition | abnf.ListOf) -> _Box:
        skip = _Box(kind="skip", width=0, up=0, down=0)
        if node.most == 0:
            return skip
        inner = self.build_node(node.item)
        if node.most == 1 and isinstance(node, abnf.Repetition):
            return inner if node.least == 1 else self.build_choice([skip, inner])
        label = _format_repeat(node)
        loop = _Box(
            kind="loop",
            width=max(inner.width, len(label) * _CHAR) + 4 * _TURN,
            up=inner.up,
            down=inner.down + 2 * _TURN + (16 if label else 0),
            label=label,
            inner=[inner],
        )
        return loop if node.least else self.build_choice([skip, loop])


def _format_terminal(node: abnf.Node) -> str:
    if isinstance(node, abnf.Literal):
        return f'{"%s" if node.sensitive else ""}"{node.text}"'
    if isinstance(node, abnf.Range):
        return f"%x{node.first:02X}-{node.last:02X}"
    values = node.values if isinstance(node, abnf.Series) else ()
    return "%x" + ".".join(f"{value:02X}" for value in values)


def _format_repeat(node: abnf.Repetition | abnf.ListOf) -> str:
    """Return the label of a loop: the number of times, unless it is one or more."""
    comma = " by commas" if isinstance(node, abnf.ListOf) else ""
    if node.most is None:
        often = "" if node.least <= 1 else f"{node.least} or more"
    elif node.least == node.most:
        often = f"{node.most} times"
    else:
        often = f"{max(node.least, 1)} to {node.most} times"
    return f"{often}{comma}".strip()


def _render_path(data: str) -> str:
    return f'<path d="{data}" fill="none" stroke="currentColor"/>'


def _render_box(box: _Box, x: float, y: float) -> list[str]:
    """Return the SVG elements of a box with its line at (x, y)."""
    if box.kind == "row":
        return _render_row(box, x, y)
    if box.kind == "choice":
        return _render_choice(box, x, y)
    if box.kind == "loop":
        return _render_loop(box, x, y)
    return [] if box.kind == "skip" else _render_leaf(box, x, y)


def _render_leaf(box: _Box, x: float, y: float) -> list[str]:
    style = ' font-style="italic"' if box.kind == "prose" else ""
    out = ["<g>"]
    if box.hint:
        out.append(f"<title>{_escape_text(box.label)}: {_escape_text(box.hint)}</title>")
    if box.kind != "prose":
        round_ = f' rx="{_HALF}"' if box.kind == "string" else ""
        out.append(
            f'<rect x="{x:g}" y="{y - _HALF:g}" width="{box.width:g}" height="{2 * _HALF}"{round_}'
            ' fill="none" stroke="currentColor"/>'
        )
    middle = x + box.width / 2
    out.append(
        f'<text x="{middle:g}" y="{y + 5:g}" text-anchor="middle"{style}>{_escape_text(box.label)}</text>'
    )
    return [*out, "</g>"]


def _render_row(box: _Box, x: float, y: float) -> list[str]:
    out: list[str] = []
    for index, inner in enumerate(box.inner):
        if index:
            out.append(_render_path(f"M{x:g} {y:g}h{_GAP}"))
            x += _GAP
        out.extend(_render_box(inner, x, y))
        x += inner.width
    return out


def _render_choice(box: _Box, x: float, y: float) -> list[str]:
    inner_x, end = x + 2 * _TURN, x + box.width
    out: list[str] = []
    line = y
    for index, inner in enumerate(box.inner):
        right = inner_x + inner.width
        if index == 0:
            out.append(_render_path(f"M{x:g} {y:g}H{inner_x:g}M{right:g} {y:g}H{end:g}"))
        else:
            line += box.inner[index - 1].down + _SPACE + inner.up
            out.append(
                _render_path(
                    f"M{x:g} {y:g}q{_TURN} 0 {_TURN} {_TURN}V{line - _TURN:g}q0 {_TURN} {_TURN} {_TURN}"
                    f"M{right:g} {line:g}H{end - 2 * _TURN:g}q{_TURN} 0 {_TURN} -{_TURN}V{y + _TURN:g}"
                    f"q0 -{_TURN} {_TURN} -{_TURN}"
                )
            )
        out.extend(_render_box(inner, inner_x, line))
    return out


def _render_loop(box: _Box, x: float, y: float) -> list[str]:
    inner = box.inner[0]
    inner_x, end = x + 2 * _TURN, x + box.width
    back = y + inner.down + _TURN
    out = [
        _render_path(f"M{x:g} {y:g}H{inner_x:g}M{inner_x + inner.width:g} {y:g}H{end:g}"),
        _render_path(
            f"M{end - 2 * _TURN:g} {y:g}q{_TURN} 0 {_TURN} {_TURN}V{back - _TURN:g}"
            f"q0 {_TURN} -{_TURN} {_TURN}"
            f"H{inner_x:g}q-{_TURN} 0 -{_TURN} -{_TURN}V{y + _TURN:g}q0 -{_TURN} {_TURN} -{_TURN}"
        ),
    ]
    if box.label:
        middle = x + box.width / 2
        label = f'<text x="{middle:g}" y="{back + 15:g}" text-anchor="middle" font-size="12">'
        out.append(f"{label}{_escape_text(box.label)}</text>")
    return out + _render_box(inner, inner_x, y)
