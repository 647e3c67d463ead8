"""Every command of onym that a message, a hint, an example or a page of the documentation names exists."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import onym
from onym import errors
from onym.cli._app import app
from support import as_subtests

_SOURCE = Path(onym.__file__).parent
_DOCS = Path(__file__).parents[2] / "docs"
#: `onym` with a word behind it, up to where prose goes on
_COMMAND = re.compile(r"(?<![\w./\"-])onym (?:\[?--?[a-z]|[a-z])[^\n`;|<>&]*")
#: where a command in a sentence ends
_END = re.compile(r"[.,:)](?= |$)|\)|\.\.\.| {3,}")
#: a word of a sentence, and not one that would be typed
_PROSE = re.compile(r"[a-z]+(?:'s)?")
#: what follows the name of the program without being a command of it
_OTHERS = {"failed", "form", "import", "itself", "mail", "oidc", "on"}
_REFUSED = (click.UsageError, errors.UsageError)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module, what is filled in later as X."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(value.value) if isinstance(value, ast.Constant) else "\0" for value in node.values
            )
            # what is filled in right behind a word is an option of its own, or nothing
            yield node.lineno, re.sub(r"(?<=\w)\0", "", text).replace("\0", "X")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def named(text: str) -> Iterator[list[str]]:
    """The commands that a text names, each as its words without `onym`."""
    for found in _COMMAND.findall(text.replace("\\\n", " ")):
        sentence = _END.split(found, maxsplit=1)[0].rstrip(".,:")
        try:
            words = shlex.split(sentence)[1:]
        except ValueError:  # a quotation that goes on behind the command
            words = sentence.replace("\\", "").split()[1:]
        if words and words[0] not in _OTHERS:
            yield words


def check(words: list[str]) -> None:
    """Raises a usage error, click's or ours, for a command that does not exist, or has no such option."""
    command, rest = follow(words)
    context = click.Context(command, info_name=command.name, help_option_names=["-h", "--help"])
    parser = command.make_parser(context)
    parser.allow_interspersed_args = True
    given = typed(command, rest)
    parser.parse_args(given)


def follow(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the first words name, and the rest."""
    command: click.Command = app
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        try:
            name, found, _ = command.resolve_command(click.Context(command), rest)
        except _REFUSED:
            if command is not app and (rest[0].isupper() or "://" in rest[0]):
                break  # such as `onym models URI`
            raise
        assert name is not None
        assert found is not None
        command, rest = found, rest[1:]
    return command, rest


def typed(command: click.Command, words: list[str]) -> list[str]:
    """The words up to the first that are those of a sentence."""
    takes = {
        name
        for param in command.params
        if isinstance(param, click.Option) and not param.is_flag
        for name in param.opts
    }
    found: list[str] = []
    for word in words:
        value = bool(found) and found[-1] in takes
        if _PROSE.fullmatch(word) and not value:
            break
        found.append(word.strip("[]"))
    if found and found[-1] in takes:
        found.append("X")  # the option alone is named
    return found


@cache
def list_named_commands() -> list[tuple[str, str]]:
    """Each place in the source with a command that its text names. Cached, because it parses every module."""
    return sorted(
        {
            (f"{path.relative_to(_SOURCE)}:{line}", shlex.join(words))
            for path in _SOURCE.rglob("*.py")
            for line, text in texts(path)
            for words in named(text)
        }
    )


#: the changelog also tells the names of before
PAGES = sorted(page for page in _DOCS.rglob("*.md") if page.name != "changelog.md")


def test_the_commands_are_found() -> None:
    where = {place.partition(":")[0] for place, _ in list_named_commands()}
    assert where >= {
        "sign/keystore.py",
        "server/gateway/settings.py",
        "registry/service.py",
        "cli/_errors.py",
    }
    assert len(list_named_commands()) > 150


def test_a_command_that_a_text_names_exists_with_its_options(subtests: pytest.Subtests) -> None:
    for place, command in list_named_commands():
        with subtests.test(f"{place}: onym {command}"):
            check(shlex.split(command))


@as_subtests("page", PAGES, ids=lambda each: str(each.relative_to(_DOCS)))
def test_a_command_on_a_page_exists_with_its_options(page: Path) -> None:
    for words in named(page.read_text(encoding="utf-8")):
        try:
            check(words)
        except _REFUSED as error:
            pytest.fail(f"onym {shlex.join(words)}: {error.message}")


@pytest.mark.parametrize(
    "wrong",
    [
        "make a key: onym ai keys new --keys DIR, and set keys = DIR",
        "onym ai key new DIR",
        "onym verify",
        "onym ai verify FILE --hist FILE",
        "onym ai keys make DIR",
    ],
)
def test_a_command_that_does_not_exist_is_seen(wrong: str) -> None:
    (words,) = named(wrong)
    with pytest.raises(_REFUSED):
        check(words)
