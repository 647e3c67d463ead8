"""Fenced blocks of a Markdown page, each with the directive that stands before it.

A directive is an HTML comment on the line before the fence. `rewrite` gives the block the title of its file:

    <!-- example: docs_src/first_call.py -->    a ```python block that holds this file
    <!-- output: docs_src/first_call.py -->     a ```text block that holds what the file prints
    <!-- run -->                                a ```console block, its commands run, its output filled in
    <!-- run: answer="Paris." -->               the same, with what the provider of the tests says
    <!-- serve -->                              the same; its last command is a server (on `--port`), which
    <!-- serve: port=9000 -->                   runs until the page ends
    <!-- file: config.toml -->                  a block that is written to a file for the commands after it
    <!-- tested: tests/server/test_x.py -->     a ```console block whose commands this test reads and runs
    <!-- before: litellm -->                    a ```python block for this other library, which is not run
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Fence", "fences", "rewrite"]

_FENCE = re.compile(
    r"(?:^<!-- (?P<verb>example|output|run|serve|file|tested|before)(?:: (?P<argument>.+?))? -->\n\n?)?"
    r"^```(?P<language>[\w.+-]*)(?P<info>[^\n]*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block; `verb` and `argument` are its directive's, `line` counts from 1."""

    language: str
    body: str
    verb: str | None
    argument: str | None
    line: int
    info: str

    @property
    def title(self) -> str | None:
        """What the page shows above the block: its own title, or the name of its file."""
        given = re.search(r'title="([^"]*)"', self.info)
        if given is not None:
            return given[1]
        return Path(self.argument or "").name if self.verb in {"example", "file"} else None


def fences(text: str) -> list[Fence]:
    """Every fenced block of a page, in order."""
    return [_read(text, match) for match in _FENCE.finditer(text)]


def rewrite(text: str, body: Callable[[Fence], str]) -> str:
    """The page with the body of each block replaced by `body(fence)`."""

    def replaced(match: re.Match[str]) -> str:
        fence = _read(text, match)
        info = match["info"]
        if fence.title is not None and "title=" not in info:
            info = f'{info} title="{fence.title}"'
        return text[match.start() : match.start("info")] + f"{info}\n{body(fence)}```"

    return _FENCE.sub(replaced, text)


def _read(text: str, match: re.Match[str]) -> Fence:
    return Fence(
        match["language"],
        match["body"],
        match["verb"],
        match["argument"],
        text.count("\n", 0, match.start("language")) + 1,
        match["info"],
    )
