"""docs/assets/charts/: the bars beside the tables of docs/benchmarks.md.

A comment before a table names its picture and the column that it draws: `<!-- chart: calls, column 3 -->`.
"""

from __future__ import annotations

import re
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
#: one width for a page and a phone
_WIDTH, _ROW, _BAR, _TOP = 440, 44, 16, 40


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
    lines = [f'<text x="0" y="18" font-size="14" font-weight="bold" fill="{INK}">{escape(heading)}</text>']
    longest = max(chart.rows.values())
    for number, (label, value) in enumerate(chart.rows.items()):
        lines += _bar(_TOP + _ROW * number, label, value, longest)
    return frame(_WIDTH, _TOP + _ROW * len(chart.rows), heading, described, lines)


def _bar(y: int, label: str, value: float, longest: float) -> Iterator[str]:
    colour = BLUE if re.search(r"\bonym\b", label) else FAINT
    length = max(2.0, (_WIDTH - 80) * value / longest)
    yield f'<text x="0" y="{y + 10}" font-size="13" fill="{INK}">{escape(label)}</text>'
    yield f'<rect x="0" y="{y + 16}" width="{length:.1f}" height="{_BAR}" rx="2" fill="{colour}"/>'
    yield f'<text x="{length + 8:.1f}" y="{y + 29}" font-size="13" fill="{INK}">{value:,g}</text>'
