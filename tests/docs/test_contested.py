"""docs/decisions/0017: each line of its tables is what Onym does."""

from __future__ import annotations

import re

import pytest
from docgen.paths import DOCS

from onym.errors import URIError
from onym.uri.llm import LLMURI
from support import as_subtests

_ROW = re.compile(
    r"^\| `(?P<input>[^`]+)` \| (?P<verb>refused|read|withheld)(?: `(?P<says>[^`]+)`)? \| ", re.MULTILINE
)
_TEXT = (DOCS / "decisions" / "0017-contested-inputs.md").read_text(encoding="utf-8")
ROWS = [match.group("input", "verb", "says") for match in _ROW.finditer(_TEXT)]


def test_every_line_of_the_tables_is_seen() -> None:
    lines = [line for line in _TEXT.splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS) > 40


@as_subtests(("given", "verb", "says"), ROWS, ids=[row[0] for row in ROWS])
def test_the_outcome_is_as_written(given: str, verb: str, says: str | None) -> None:
    query = not given.startswith("llm:")
    text = f"llm://h/m?{given}" if query else given
    if verb == "refused":
        with pytest.raises(URIError) as caught:
            LLMURI.parse(text)
        assert caught.value.code == says
        return
    uri = LLMURI.parse(text)
    if verb == "withheld":
        assert uri.withheld
        assert not uri.extra
    elif query:
        assert repr(next(iter(uri.params.values()))) == says
    else:
        assert str(uri) == says
