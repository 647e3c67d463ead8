"""The diagrams are drawn from the sources that are beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docgen.diagrams import DIAGRAMS, THEMES, source_hash
from docgen.paths import pages

SOURCES = sorted(DIAGRAMS.glob("*.mmd"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_diagram_is_drawn_from_its_source_in_both_themes(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    for theme in THEMES:
        picture = source.with_suffix(f".{theme}.svg").read_text(encoding="utf-8")
        assert source_hash(text) in picture, "run docs/tools/draw_diagrams.py"
        assert "<script" not in picture


def test_every_diagram_is_on_a_page_in_both_themes() -> None:
    shown = {
        match
        for page in pages()
        for match in re.findall(
            r"diagrams/([\w.-]+)\.svg#only-(light|dark)", page.read_text(encoding="utf-8")
        )
    }
    assert shown == {(f"{source.stem}.{theme}", theme) for source in SOURCES for theme in THEMES}
