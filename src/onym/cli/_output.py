"""Write results, notes, errors and progress bars to the terminal.

Results go to standard output, notes and errors to standard error. With `--json`, standard output holds only
JSON, including the error object, so that a program reads one document in every case. JSON is ASCII, so any
text passes, including lone surrogates. Text for people is redacted, and control characters are escaped.
Colour is used on a terminal unless NO_COLOR is set; `--color` changes that. `rich` is imported only by bars.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from onym.common.text import escape_unprintable
from onym.errors import UsageError
from onym.uri.redact import redact
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from onym.llm.batch import Progress

#: C0 except tab and newline, DEL and C1: they move the cursor and write to the clipboard
_CONTROLS: Final = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)
}
#: characters of a long text that are shown before and after the position of a caret
_BEFORE: Final = 60
#: cells; a narrower column is not wrapped
_NARROW: Final = 24
_AFTER: Final = 60


class PointedText(NamedTuple):
    """A line of text, and the line of carets to print below it ("" without a position)."""

    text: str
    carets: str


def escape_controls(text: str) -> str:
    """Escape the control characters of a model's answer, except line ends and tabs."""
    return text.translate(_CONTROLS)


def count_columns(text: str) -> int:
    """Return the number of terminal cells of a printable text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(ch) else 2 if east_asian_width(ch) in "WF" else 1 for ch in text)


def wrap_text(text: str, start: int, width: int | None) -> str:
    """Wrap a text that starts in column `start` at `width` cells.

    Later lines are indented to the same column. Words stay whole, so that paths and URIs can be copied.
    Without a width, or in a narrow column, the text is returned unchanged.
    """
    if width is None or width - start < _NARROW or count_columns(text) <= width - start:
        return text
    from textwrap import wrap

    lines = wrap(text, width - start, break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * start).join(lines)


def point_at(text: str, start: int | None, end: int | None = None) -> PointedText:
    """Redact `text`, make it printable, and put carets below the characters from `start` to `end`.

    Offsets count characters of the original text; a position inside a secret points at its mark. Long texts
    are cut to the neighbourhood of the position.
    """
    pieces = _split_pieces(text)
    if pieces is None:
        return PointedText(_clip_text(escape_unprintable(redact(text)), 0)[0], "")
    shown = "".join(piece.shown for piece in pieces)
    if start is None:
        return PointedText(_clip_text(shown, 0)[0], "")
    first = _find_place(pieces, start, after=False)
    last = _find_place(pieces, max(start + 1, start if end is None else end), after=True)
    clipped, cut = _clip_text(shown, first)
    lead = clipped[: first + cut]
    under = clipped[first + cut : last + cut]
    return PointedText(clipped, " " * count_columns(lead) + "^" * max(1, count_columns(under)))


class _Piece(NamedTuple):
    start: int
    length: int
    shown: str


def _split_pieces(text: str) -> list[_Piece] | None:
    """Split the redacted, printable text into the runs and marks that it consists of, in order."""
    runs = redact(text).split(MARK)
    pieces: list[_Piece] = []
    at = 0
    for number, run in enumerate(runs):
        if number == len(runs) - 1:
            start = len(text) - len(run) if text.endswith(run) else -1
        else:
            start = text.find(run, at) if run or number else 0
        if start < at or (number == 0 and start != 0):
            return None
        if number:
            pieces.append(_Piece(at, start - at, MARK))
        pieces.extend(_split_run(run, start))
        at = start + len(run)
    return pieces


def _split_run(run: str, start: int) -> list[_Piece]:
    if run.isprintable():
        return [_Piece(start, len(run), run)] if run else []
    return [_Piece(start + number, 1, escape_unprintable(ch)) for number, ch in enumerate(run)]


def _find_place(pieces: list[_Piece], offset: int, *, after: bool) -> int:
    """Return where the character at `offset` (with `after`, the end of the one before it) is shown."""
    at = 0
    for piece in pieces:
        stop = piece.start + piece.length
        if offset < stop or (after and offset == stop):
            if len(piece.shown) == piece.length:
                return at + max(0, offset - piece.start)
            return at + (len(piece.shown) if after and offset > piece.start else 0)
        at += len(piece.shown)
    return at


def _clip_text(shown: str, place: int) -> tuple[str, int]:
    """Return the neighbourhood of `place`, and how far `place` moved."""
    start = place - _BEFORE if place > _BEFORE + 1 else 0
    stop = max(start + _BEFORE + _AFTER, place + _AFTER)
    head = "…" if start else ""
    tail = "…" if stop < len(shown) else ""
    return head + shown[start:stop] + tail, len(head) - start


#: the values of `--color`
COLOURS: Final = ("auto", "always", "never")

#: the use of each style, and its terminal code
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


def encode_json(value: object, *, indent: int | None = None) -> str:
    """Return `value` as JSON in ASCII; a lone surrogate becomes an escape (`\\ud800`)."""
    import json

    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent, separators=separators)


def to_plain_data(value: Any, *, reveal: bool = False) -> Any:
    """Convert `value` to the types of JSON; a `Secret` becomes `***`."""
    if isinstance(value, Secret):
        return value.reveal() if reveal else str(value)
    if isinstance(value, Mapping):
        return {name: to_plain_data(member, reveal=reveal) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain_data(member, reveal=reveal) for member in value]
    return value


def select_fields(value: object, *names: str) -> dict[str, Any]:
    """Return attributes of an object as a record, in this order."""
    return {name: getattr(value, name) for name in names}


def has_colour(stream: IO[str]) -> bool:
    """Return whether `stream` is a terminal that shows colour. NO_COLOR turns colour off."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def get_width(stream: IO[Any]) -> int | None:
    """Return the width of the terminal in cells, or None if `stream` is not a terminal."""
    if not is_terminal(stream):
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def discard_stream(stream: IO[Any]) -> None:
    """Point a broken stream at the null device, so that the interpreter's last flush cannot fail."""
    with suppress(OSError, ValueError):  # a replaced stream has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_terminal(stream: IO[Any]) -> bool:
    """Return whether `stream` is a terminal; False if it is closed."""
    try:
        return stream.isatty()
    except ValueError:
        return False


class Subject(NamedTuple):
    """The URI that a command works on, for the caret below an error and for the next command.

    `argument` is the command-line argument, `text` the URI, and `typed` whether the URI itself was typed
    (and did not come from a file, a variable or a pipe).
    """

    argument: str
    text: str
    typed: bool


class Session:
    """The state of one run: output format, command with its options, subject and secrets to mask."""

    __slots__ = ("as_json", "colour", "command", "context", "quiet", "secrets", "subject", "verbose", "words")

    def __init__(self, *, as_json: bool = False, words: Sequence[str] = ()) -> None:
        self.as_json = as_json
        #: the words of the command line behind `onym`
        self.words = list(words)
        self.quiet = False
        self.verbose = False
        self.colour = "auto"
        self.command = ""
        self.context: click.Context | None = None
        self.subject: Subject | None = None
        self.secrets: list[Secret] = []

    def print_line(self, text: str = "") -> None:
        """Print one line of the result; nothing with `--json`."""
        if not self.as_json:
            sys.stdout.write(text + "\n")

    def print_record(self, value: object) -> None:
        """Print one JSON document with `--json`, indented on a terminal; otherwise nothing."""
        if self.as_json:
            sys.stdout.write(encode_json(value, indent=2 if is_terminal(sys.stdout) else None) + "\n")

    def print_json_line(self, value: object) -> None:
        """Print one JSON Lines record and flush it."""
        sys.stdout.write(encode_json(value) + "\n")
        sys.stdout.flush()

    def print_note(self, text: str, *, kind: str = "note") -> None:
        """Print one redacted line on standard error; nothing with `--quiet`."""
        if not self.quiet:
            self.print_error(f"{self.paint(kind, kind, sys.stderr)}: {escape_unprintable(self.mask(text))}")

    def print_detail(self, name: str, value: object) -> None:
        """Print what is used, such as a file or a policy, on standard error; only with `--verbose`."""
        if self.verbose:
            text = escape_unprintable(self.mask(f"{name}: {value}"))
            self.print_error(self.paint(f"  {text}", "dim", sys.stderr))

    def print_error(self, text: str) -> None:
        """Print text that is already redacted on standard error, after flushing standard output.

        A full disk under standard error changes neither the result nor the exit code.
        """
        sys.stdout.flush()
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except BrokenPipeError:
            raise
        except OSError:
            discard_stream(sys.stderr)

    def has_colour(self, stream: IO[str]) -> bool:
        """Return whether `stream` gets colour: as `--color` says, or if it is a terminal that shows it."""
        return has_colour(stream) if self.colour == "auto" else self.colour == "always"

    def paint(self, text: str, style: str, stream: IO[str] | None = None) -> str:
        """Add the colour of `style` if `stream` (default: standard output) shows colour."""
        if not text or not self.has_colour(sys.stdout if stream is None else stream):
            return text
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m"

    def mask(self, text: str) -> str:
        """Return `text` without credentials, including those that this command has read."""
        return redact(text, secrets=self.secrets)

    def print_table(
        self, rows: Iterable[Sequence[str]], *, indent: str = "", styles: Sequence[str] = ()
    ) -> None:
        """Print rows in aligned columns with printable cells; the last column is wrapped on a terminal."""
        cells = [[escape_unprintable(cell) for cell in row] for row in rows]
        if not cells:
            return
        widths = [max(count_columns(row[at]) for row in cells) for at in range(len(cells[0]) - 1)]
        start, width = len(indent) + sum(widths) + 2 * len(widths), get_width(sys.stdout)
        for row in cells:
            row[-1] = wrap_text(row[-1], start, width)
            parts = []
            for at, cell in enumerate(row):
                pad = " " * (widths[at] - count_columns(cell) + 2) if at < len(widths) else ""
                style = styles[at] if at < len(styles) else ""
                parts.append((self.paint(cell, style) if style else cell) + pad)
            self.print_line(indent + "".join(parts).rstrip())


@contextmanager
def replace_text_file(path: Path) -> Iterator[Callable[[str], object]]:
    """Yield a function that writes text; the file is replaced when the block ends without an exception.

    The file keeps its permissions. A symbolic link stays, and its target is replaced. A terminal or a pipe is
    written to directly. Raises UsageError if the file cannot be created.
    """
    from onym.common.files import replace_file

    target = path.resolve() if path.is_symlink() else path
    is_direct = path.exists() and not path.is_file()
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(target.open("wb") if is_direct else replace_file(target))
        except OSError as error:
            raise UsageError(f"cannot write {target}: {error.strerror}", code="usage.output-file") from error
        yield lambda text: stream.write(text.encode("utf-8", "backslashreplace"))


def format_progress(now: Progress) -> str:
    """Return the figures beside the progress bar, on one line."""
    left = now.seconds_left
    words = [
        f"{now.done}/{now.total}",
        f"{now.rate:.1f}/s",
        f"{_format_count(now.input_tokens)}+{_format_count(now.output_tokens)} tokens",
        f"{now.failed} failed",
        f"{now.load.active}/{now.load.limit} at once",
        "" if left is None else f"{timedelta(seconds=round(left))} left",
        f"server asks for {now.load.pause:.0f} s" if now.load.pause >= 1 else "",
    ]
    return "  ".join(word for word in words if word)


def _format_count(count: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


@contextmanager
def _show_bar(columns: Sequence[Any], text: str = "", **task: Any) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error; yield the function that updates it."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    with Bars(TextColumn("{task.description}"), BarColumn(), *columns, console=Console(stderr=True)) as bars:
        yield partial(bars.update, bars.add_task(text, **task))


@contextmanager
def show_progress() -> Iterator[Callable[[Progress], None]]:
    """Show a bar with the figures of a batch."""
    from rich.progress import TextColumn

    columns = (TextColumn("{task.fields[figures]}"),)
    with _show_bar(columns, total=None, figures="reading the input") as update:
        yield lambda now: update(total=now.total, completed=now.done, figures=format_progress(now))


@contextmanager
def show_count(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar that counts up to `total`; call the yielded function with the number that is done."""
    from rich.markup import escape
    from rich.progress import MofNCompleteColumn

    with _show_bar((MofNCompleteColumn(),), escape(text), total=total) as update:
        yield lambda done: update(completed=done)


@contextmanager
def show_download(title: str) -> Iterator[Callable[[int | None, int, str], None]]:
    """Show a bar for a download; call the yielded function with bytes done, bytes in total and the step."""
    from rich.progress import DownloadColumn, TimeRemainingColumn

    with _show_bar((DownloadColumn(), TimeRemainingColumn()), title, total=None) as update:
        yield lambda done, total, step: update(description=step, completed=done or 0, total=total)
