"""docs/assets/charts/: the bars beside the tables of docs/benchmarks.md.

A comment before a table names its picture and the column that it draws: `<!-- chart: calls, column 3 -->`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape

from docgen.drawing import BLUE, FAINT, INK, frame
from docgen.paths import DOCS

__all__ = ["Chart", "chart_picture", "charts"]

_PAGE = DOCS / "benchmarks.md"
_TABLE = re.compile(
    r"^<!-- chart: (?P<name>[\w-]+), column (?P<column>\d+) -->\n\n?(?P<table>(?:\|.*\n)+)", re.MULTILINE
)
#: one width for a page and a phone: no phone makes the letters smaller than 12 pixels
_WIDTH, _SIZE, _LINE, _BAR = 340, 13, 17, 16
_LETTERS = int(_WIDTH / (0.61 * _SIZE))


class Chart(NamedTuple):
    """One column of a table: its heading, and the number of each row."""

    heading: str
    rows: Mapping[str, float]


def charts() -> dict[str, Chart]:
    """Name of a picture -> what it draws."""
    return {found["name"]: _read(found) for found in _TABLE.finditer(_PAGE.read_text(encoding="utf-8"))}


def _read(found: re.Match[str]) -> Chart:
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in found["table"].splitlines()
    )
    column = int(found["column"])
    return Chart(
        head[column].strip(" |"),
        {row[0].replace("`", ""): float(row[column].strip(" |").replace(",", "")) for row in rows},
    )


def chart_picture(name: str) -> str:
    """The bars of one chart, as SVG text; those of Onym stand out."""
    chart = charts()[name]
    heading = f"{chart.heading} (shorter is better)"
    described = "; ".join(f"{label}: {value:,g}" for label, value in chart.rows.items())
    title = textwrap.wrap(heading, _LETTERS)
    lines = list(_text(0, title, ' font-weight="bold"'))
    y = _LINE * len(title) + 10
    longest = max(chart.rows.values())
    for label, value in chart.rows.items():
        wrapped = textwrap.wrap(label, _LETTERS)
        lines += _text(y, wrapped)
        y += _LINE * len(wrapped)
        lines += _bar(y, label, value, longest)
        y += _BAR + 14
    return frame(_WIDTH, y, heading, described, lines)


def _text(y: int, lines: list[str], style: str = "") -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        place = f'x="0" y="{y + _LINE * number - 4}" font-size="{_SIZE}"{style}'
        yield f'<text {place} fill="{INK}">{escape(line)}</text>'


def _bar(y: int, label: str, value: float, longest: float) -> Iterator[str]:
    colour = BLUE if re.search(r"\bonym\b", label) else FAINT
    length = max(2.0, (_WIDTH - 64) * value / longest)
    yield f'<rect x="0" y="{y + 2}" width="{length:.1f}" height="{_BAR}" rx="2" fill="{colour}"/>'
    yield f'<text x="{length + 8:.1f}" y="{y + 15}" font-size="{_SIZE}" fill="{INK}">{value:,g}</text>'
