"""The classes of commands and groups, the options that every command has, durations and confirmations.

`--json`, `--quiet`, `--verbose` and `--color` are options of every command and group, so they work before and
after the name of a command. Help is at most 80 columns wide and breaks lines only between words. This module
is imported at every start.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, TypeAlias, TypeVar

import click

from onym.cli._output import COLOURS, Session, is_terminal
from onym.errors import UsageError

_F = TypeVar("_F", bound=Callable[..., Any])
_P = ParamSpec("_P")

if TYPE_CHECKING:
    _FloatType: TypeAlias = click.ParamType[float]
else:
    # generic since click 8.4
    _FloatType = click.ParamType

_WIDTH: Final = 80
#: cells of the first column of a list; a longer term gets a line of its own
_TERM: Final = 26


def _wrap(text: str, width: int, first: str = "", later: str = "") -> str:
    """Wrap the paragraphs of a help text between words only. A paragraph that begins with \\b is kept."""
    from textwrap import fill

    parts = []
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = paragraph.split("\n")
        if lines[0].strip() == "\b":
            parts.append("\n".join(f"{later}{line}" for line in lines[1:]))
        else:
            parts.append(
                fill(
                    " ".join(line.strip() for line in lines),
                    max(width, 20),
                    initial_indent=later if parts else first,
                    subsequent_indent=later,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
    return "\n\n".join(parts)


class _HelpFormatter(click.HelpFormatter):
    """The formatter of click, with lines that break only between words."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line of usage."""
        start = f"{'Usage:' if prefix is None else prefix.strip()} {prog} "
        self.write(_wrap(args, self.width, start, " " * min(len(start), 8)) + "\n" if args else f"{start}\n")

    def write_text(self, text: str) -> None:
        """Write paragraphs at the current indentation."""
        indent = " " * self.current_indent
        self.write(_wrap(text, self.width, indent, indent) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = _TERM, col_spacing: int = 2) -> None:
        """Write a list of terms and their meanings."""
        listed, indent = list(rows), " " * self.current_indent
        longest = max((len(term) for term, _ in listed), default=0)
        column = min(longest, col_max) + col_spacing
        later = indent + " " * column
        for term, meaning in listed:
            start = f"{indent}{term:<{column}}"
            if len(term) > column - col_spacing:
                self.write(f"{indent}{term}\n")
                start = later
            self.write((_wrap(meaning, self.width, start, later) if meaning else start).rstrip() + "\n")


class _Context(click.Context):
    formatter_class = _HelpFormatter


class _SharedOption(click.Option):
    """An option of every command. Only the first one has a line in the help, which lists all of them."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the line of `--json`, or nothing for the options of `onym help options`."""
        if self.name == "json":
            return super().get_help_record(ctx)
        if self.name != "quiet":
            return None
        return "-q, -v, --color WHEN", "Fewer or more notes, colours: onym help options"


def _set_session(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    session = ctx.find_object(Session)
    if session is None or not value:
        return
    if param.name == "json":
        session.as_json = True
    elif param.name == "color":
        session.colour = value
    elif param.name == "quiet":
        session.quiet = True
    else:
        session.verbose = True
        _show_log_records(session)


def _show_log_records(session: Session) -> None:
    """Print the log records of Onym on standard error, masked."""
    import logging

    class SessionLogHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            session.print_detail(record.name, record.getMessage())

    logger = logging.getLogger("onym")
    # of an earlier run of the command line in this process
    for handler in [other for other in logger.handlers if type(other).__name__ == "SessionLogHandler"]:
        logger.removeHandler(handler)
    logger.addHandler(SessionLogHandler())
    logger.setLevel(logging.DEBUG)


_option = partial(_SharedOption, is_eager=True, expose_value=False, callback=_set_session)
#: the options of every command and group
SHARED_OPTIONS: Final[Sequence[click.Option]] = (
    _option(["--json"], is_flag=True, help="Print JSON on standard output, errors included."),
    _option(["-q", "--quiet"], is_flag=True, help="Print no notes and no progress, only results and errors."),
    _option(["-v", "--verbose"], is_flag=True,
            help="Print what is used: files, policy, proxy, log records and the time."),
    _option(["--color"], type=click.Choice(COLOURS), metavar="WHEN",
            help="Colours: auto (on a terminal, unless NO_COLOR is set), always or never."),
)  # fmt: skip


class Command(click.Command):
    """A command with the shared options and the help formatter of Onym."""

    context_class = _Context

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters of the command, the shared options and `--help`."""
        return _insert_shared(super().get_params(ctx))


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they were added."""

    context_class = _Context
    command_class = Command
    group_class = type

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were added."""
        return list(self.commands)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters of the group, the shared options and `--help`."""
        return _insert_shared(super().get_params(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first word. Raises UsageError that suggests a similar command."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            group = ctx.command_path
            raise UsageError(
                f'"{args[0]}" is not a command of {group}',
                code="usage.command-line",
                hint=self.suggest_command(group, args[0], names),
            )
        return super().resolve_command(ctx, args)

    def suggest_command(self, group: str, word: str, names: Iterable[str]) -> str:
        """Return the hint for a word that is not a command of this group."""
        return suggest_command(group, word, names)


def _insert_shared(params: list[click.Parameter]) -> list[click.Parameter]:
    """Return the parameters with the shared options before the last one, which is `--help`."""
    last = len(params) - 1 if params and params[-1].name == "help" else len(params)
    return [*params[:last], *SHARED_OPTIONS, *params[last:]]


def count_shared_options(words: Sequence[str]) -> int:
    """Return how many of the first words are shared options and their values."""
    at = 0
    while at < len(words) and words[at] in _SHARED_NAMES:
        at += 2 if words[at] == "--color" else 1
    return at


_SHARED_NAMES: Final = frozenset(name for option in SHARED_OPTIONS for name in option.opts)


def suggest_command(group: str, word: str, names: Iterable[str]) -> str:
    """Return the hint for a word that is not a command of a group."""
    from difflib import get_close_matches

    close = get_close_matches(word, names, n=1)
    return f"did you mean {group} {close[0]}?" if close else f"run {group} --help for a list of commands"


#: `click.command` for commands with the shared options
make_command = partial(click.command, cls=Command)


def add_options(*options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Return a decorator that adds these options to a command, in this order."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def pass_session(function: Callable[Concatenate[Session, _P], None]) -> Callable[_P, None]:
    """Pass a command the session, with the command's name in it."""

    @click.pass_context
    @wraps(function)
    def run(ctx: click.Context, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        session = ctx.find_object(Session)
        assert session is not None  # noqa: S101 - the group always makes one
        session.command = ctx.command_path.partition(" ")[2]
        session.context = ctx
        function(session, *args, **kwargs)

    return run


def exit_with(code: int) -> NoReturn:
    """End the command with an exit code and without a message."""
    raise click.exceptions.Exit(code)


_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class DurationType(_FloatType):
    """A duration with its unit, such as 500ms, 30s, 2m, 12h or 90d; the value is in seconds."""

    name = "duration"

    def __init__(self, least: float = 0.001, most: float = 10**9) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds. Fails for a number without a unit."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        match = _DURATION.fullmatch(text)
        if match is None and re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
            self.fail(f"{text} has no unit; write {text}s for seconds (units: ms, s, m, h, d)", param, ctx)
        if match is None:
            self.fail(f'"{text}" is not a duration such as 500ms, 30s, 2m, 12h or 90d', param, ctx)
        seconds = float(match[1]) * _UNITS[match[2]]
        if not self.least <= seconds <= self.most:
            least, most = format_duration(self.least), format_duration(self.most)
            self.fail(f"{text} is not between {least} and {most}", param, ctx)
        return seconds


def format_duration(seconds: float) -> str:
    """Return a duration as the options read it, in the largest unit that gives a whole number."""
    for unit in ("d", "h", "m", "s"):
        count = seconds / _UNITS[unit]
        if count >= 1 and count.is_integer():
            return f"{count:.0f}{unit}"
    return f"{seconds:g}s" if seconds >= 1 or not seconds else f"{seconds * 1000:g}ms"


def make_duration_option(
    *names: str, least: float = 0.001, most: float = 10**9, **settings: Any
) -> Callable[[_F], _F]:
    """Return an option that takes a duration."""
    return click.option(*names, type=DurationType(least, most), metavar="DURATION", **settings)


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm_action(session: Session, question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone. Raises UsageError without a terminal and without `--yes`.

    The question is on standard error. Any answer other than y or yes ends the command with exit code 130.
    """
    if yes:
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        from shlex import join

        error = UsageError(
            f"{question} This cannot be undone, and there is no terminal to ask on",
            code="usage.confirmation",
            hint="add --yes to confirm",
        )
        # what to run next: the same command
        vars(error)["command"] = join(["onym", *session.words, "--yes"])
        raise error
    sys.stdout.flush()
    sys.stderr.write(f"{session.mask(question)} This cannot be undone. [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        session.print_note("nothing was changed")
        raise click.exceptions.Exit(130)
