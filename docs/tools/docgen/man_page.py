"""The manual page onym(1) and the completion scripts, from the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from docgen.reference_cli import VARIABLES, walk
from onym import __version__
from onym.cli import exit_codes
from onym.cli._app import app

__all__ = ["COMPLETIONS", "completion_script", "man_page"]

#: shell -> the file name under which it finds the script
COMPLETIONS = {"bash": "onym.bash", "zsh": "_onym", "fish": "onym.fish"}
#: when the form of the page last changed
_DATE = "2026-11-28"


def man_page() -> str:
    """The page, in man(7)."""
    paragraphs = _split_paragraphs(app.help or "")
    lines = [
        '.\\" Written by docs/tools/generate.py from the commands.',
        f'.TH ONYM 1 "{_DATE}" "Onym {__version__}" "User Commands"',
        ".SH NAME",
        "onym \\- call AI models and agents by URI",
        ".SH SYNOPSIS",
        ".B onym",
        "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        *_format_paragraphs(paragraphs),
        ".SH COMMANDS",
    ]
    for path, command in walk(app, ("onym",)):
        if len(path) > 1:
            lines += _format_command(path, command)
    lines += [".SH EXIT STATUS"]
    for code, text in exit_codes.MEANINGS.items():
        lines += [".TP", f".B {code}", _escape(text)]
    lines += [".SH ENVIRONMENT"]
    for name, text in VARIABLES.items():
        lines += [".TP", f".B {_escape(name)}", _escape(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))]
    lines += [
        ".SH FILES", ".TP", ".I ~/.config/onym/config.toml", "The configuration; see onym config path.",
        ".SH SEE ALSO", "The documentation: how-to pages and a reference of URIs, parameters and errors.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _format_command(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path[-1], help_option_names=["-h", "--help"])
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {_escape(' '.join(path))} {_escape(usage)}"
    yield from _format_paragraphs(_split_paragraphs(command.help or ""))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            yield from (".TP", f".B {_escape(record[0])}", _escape(" ".join(record[1].split())))


def _split_paragraphs(text: str) -> list[str]:
    return [part for part in re.split(r"\n\s*\n", click.unstyle(text).strip("\n")) if part.strip()]


def _format_paragraphs(paragraphs: list[str]) -> Iterator[str]:
    """Yield the lines of paragraphs; one that begins with \\b keeps its lines."""
    first = True
    for paragraph in paragraphs:
        if not first:
            yield ".PP"
        first = False
        kept = paragraph.lstrip().startswith("\b")
        lines = [line.strip() for line in paragraph.replace("\b", "").splitlines() if line.strip()]
        if kept:
            yield from (".nf", *map(_escape, lines), ".fi")
        else:
            yield _escape(" ".join(lines))


def _escape(text: str) -> str:
    """Text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def completion_script(shell: str) -> str:
    """The script that `onym completions SHELL` prints."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(app, {}, "onym", "_ONYM_COMPLETE")
    return (script.source_template % script.source_vars()).rstrip("\n") + "\n"
