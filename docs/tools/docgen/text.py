"""Markdown by small pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["GENERATED", "cell", "code", "paragraphs", "prose", "table"]

GENERATED = "<!-- Written by docs/tools/generate.py; change what it reads, not this page. -->\n"


def cell(text: str) -> str:
    """Text as it is, in one line: nothing that Markdown or a table would take."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", re.sub(r"\s+", " ", text))


def code(text: object) -> str:
    """Inline code; a dash for nothing."""
    return f"`{text}`".replace("|", "\\|") if text not in (None, "") else "-"


def prose(text: str) -> str:
    """One line of a docstring or a help text: its inline code stays code, the rest is plain."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(each.replace("|", "\\|") if each.startswith("`") else cell(each) for each in pieces)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def paragraphs(doc: str) -> str:
    """A docstring as Markdown: running text, lists, and what is indented or a session as a block."""
    out = []
    for piece in re.split(r"\n\s*\n", doc.strip("\n")):
        lines = piece.splitlines()
        if all(line.startswith("    ") for line in lines) or lines[0].startswith(">>>"):
            out.append("```text\n" + "\n".join(line.removeprefix("    ") for line in lines) + "\n```")
        elif lines[0].startswith("- "):
            out.append("\n".join(f"- {prose(each)}" for each in _items(lines)))
        else:
            out.append(prose(" ".join(line.strip() for line in lines)))
    return "\n\n".join(out) + "\n"


def _items(lines: Sequence[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        if line.startswith("- "):
            items.append(line[2:])
        else:
            items[-1] += f" {line.strip()}"
    return items
