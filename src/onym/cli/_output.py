"""What a command writes, and where: results on standard output, notes and errors on standard error.

With `--json`, standard output holds JSON and nothing else, the error object included, so that one
reader sees one document whatever happened; notes for people still go to standard error. JSON is
ASCII, so any text passes, lone surrogates too. Colour appears on terminals alone and never under
NO_COLOR; rich is imported by the few commands that draw something that moves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from onym.cli._text import columns, printable, wrapped
from onym.uri.redact import redact
from onym.uri.secret import Secret

__all__ = ["STYLES", "Session", "Subject", "colourful", "dumps", "is_terminal", "plain", "width_of"]

#: what a style is for, and the terminal's code for it
STYLES = {
    "error": "1;31",
    "warning": "1;33",
    "note": "1;36",
    "usage": "2",
    "good": "32",
    "bad": "31",
    "name": "1",
    "dim": "2",
    "caret": "1;31",
}


def dumps(value: object, *, indent: int | None = None) -> str:
    """`value` as JSON in ASCII; a lone surrogate becomes its escape (`\\ud800`)."""
    import json

    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent, separators=separators)


def plain(value: Any, *, reveal: bool = False) -> Any:
    """`value` as JSON has it: mappings as dicts, sequences as lists, and `***` for a `Secret`."""
    if isinstance(value, Secret):
        return value.reveal() if reveal else str(value)
    if isinstance(value, Mapping):
        return {name: plain(member, reveal=reveal) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(member, reveal=reveal) for member in value]
    return value


def colourful(stream: IO[str]) -> bool:
    """May colour go to `stream`? Only to a terminal that can, and never under NO_COLOR."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def width_of(stream: IO[Any]) -> int | None:
    """How many cells a line of the terminal behind `stream` has, None where there is no terminal."""
    if not is_terminal(stream):
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def is_terminal(stream: IO[Any]) -> bool:
    """Is a person at the other end? A closed stream is nobody."""
    try:
        return stream.isatty()
    except ValueError:
        return False


class Subject:
    """The URI that a command works on, for the caret under an error and the next command.

    `argument` is what stood on the command line, `text` the URI behind it, and `typed` whether a
    person typed that text there (and not a file, a variable or a pipe).
    """

    __slots__ = ("argument", "text", "typed")

    def __init__(self, argument: str, text: str, *, typed: bool) -> None:
        self.argument = argument
        self.text = text
        self.typed = typed


class Session:
    """One run of the command: how it speaks, what it works on, which secrets it has been told."""

    __slots__ = ("as_json", "command", "secrets", "subject")

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.command = ""
        self.subject: Subject | None = None
        self.secrets: list[Secret] = []

    def say(self, text: str = "") -> None:
        """One line of the result, for people; nothing under `--json`."""
        if not self.as_json:
            sys.stdout.write(text + "\n")

    def record(self, value: object) -> None:
        """One JSON document on a line of its own (indented on a terminal); only under `--json`."""
        if self.as_json:
            sys.stdout.write(dumps(value, indent=2 if is_terminal(sys.stdout) else None) + "\n")

    def line(self, value: object) -> None:
        """One JSON Lines record, flushed at once."""
        sys.stdout.write(dumps(value) + "\n")
        sys.stdout.flush()

    def note(self, text: str, *, kind: str = "note") -> None:
        """One line for the person, on standard error, redacted."""
        self.complain(f"{self.paint(kind, kind, sys.stderr)}: {printable(self.masked(text))}")

    def complain(self, text: str) -> None:
        """Text that is already safe, on standard error, after everything said so far."""
        sys.stdout.flush()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def paint(self, text: str, style: str, stream: IO[str] | None = None) -> str:
        """`text` in the colours of `style`, where `stream` (standard output) shows colour."""
        if not text or not colourful(sys.stdout if stream is None else stream):
            return text
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m"

    def masked(self, text: str) -> str:
        """`text` without any credential, the ones told to this command included."""
        return redact(text, secrets=self.secrets)

    def table(self, rows: Iterable[Sequence[str]], *, indent: str = "", styles: Sequence[str] = ()) -> None:
        """Rows in aligned columns, each cell made printable; the last one is wrapped on a terminal."""
        cells = [[printable(cell) for cell in row] for row in rows]
        if not cells:
            return
        widths = [max(columns(row[at]) for row in cells) for at in range(len(cells[0]) - 1)]
        start, width = len(indent) + sum(widths) + 2 * len(widths), width_of(sys.stdout)
        for row in cells:
            row[-1] = wrapped(row[-1], start, width)
            parts = []
            for at, cell in enumerate(row):
                pad = " " * (widths[at] - columns(cell) + 2) if at < len(widths) else ""
                style = styles[at] if at < len(styles) else ""
                parts.append((self.paint(cell, style) if style else cell) + pad)
            self.say(indent + "".join(parts).rstrip())
