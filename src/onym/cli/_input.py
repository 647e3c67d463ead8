"""Shared options, and the values that a person gives a command: URIs, keys and parameters.

A URI is text on the command line, the name of an endpoint in the configuration, `env:NAME`, or `-` for a line
of standard input. Only typed text is trusted: Unicode in it is converted with a note, and it may lead to this
computer. This module is imported at every start, so it must not import `dataclasses` or the client.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from errno import ENOENT
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from onym.cli._output import Session, Subject, is_terminal
from onym.common.text import escape_unprintable
from onym.errors import ConfigError, SignatureError, URIError, UsageError
from onym.uri.llm import LLMURI
from onym.uri.redact import redact
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path

    from onym.llm.config import Config
    from onym.llm.providers import ProviderTable
    from onym.uri.llm_syntax import Params

_F = TypeVar("_F", bound=Callable[..., Any])
_P = ParamSpec("_P")


if TYPE_CHECKING:
    _ParamType: TypeAlias = click.ParamType[str]
else:
    # generic from click 8.4 on
    _ParamType = click.ParamType


class _URIType(_ParamType):
    """A URI as a person gives it; completes the names of endpoints in the configuration."""

    name = "uri"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The named endpoints that begin so. A broken configuration completes nothing."""
        from onym.errors import OnymError
        from onym.llm.config import Config

        try:
            names = list(Config.load().endpoints)
        except OnymError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


URI_TYPE = _URIType()


def uri_argument(function: _F) -> _F:
    """One URI: text, the name of an endpoint in the configuration, env:NAME, or - for standard input."""
    return click.argument("uri", type=URI_TYPE)(function)


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        session = ctx.find_object(Session)
        if session is not None:
            session.as_json = True


json_option = click.option(
    "--json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_json,
    help="Print JSON on standard output, errors included.",
)


def pass_session(function: Callable[Concatenate[Session, _P], None]) -> Callable[_P, None]:
    """Add `--json` to a command, and pass it the session, which then knows the command's name."""

    @json_option
    @click.pass_context
    @wraps(function)
    def run(ctx: click.Context, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        session = ctx.find_object(Session)
        assert session is not None  # noqa: S101 - the group always makes one
        session.command = ctx.command_path.partition(" ")[2]
        function(session, *args, **kwargs)

    return run


def exit_with(code: int) -> NoReturn:
    """End the command with an exit code and without a message."""
    raise click.exceptions.Exit(code)


#: the presets of `onym.net.policy.Policy`, which loads only when it is used
POLICY_CHOICE = click.Choice(["trusted", "local", "untrusted"])

policy_option = click.option(
    "--policy",
    type=POLICY_CHOICE,
    help="Where the URI may lead. A URI typed here is local (this machine is allowed); one from a file, "
    "a variable or a pipe is trusted (this machine is refused).",
)

key_stdin_option = click.option(
    "--key-stdin", is_flag=True, help="Read the key from standard input, so that no history holds it."
)

param_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter, as if it stood in the URI (repeatable): -p temp=0.2",
)


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, as somebody who begins meets them."""
        return list(self.commands)


#: what names an endpoint of the configuration; every URI has a colon in it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*").fullmatch
SCHEME_HINT = "an llm URI begins with llm://, as in llm://api.openai.com/gpt-5"


def resolve_subject(session: Session, argument: str, config: Config | None = None) -> Subject:
    """What `argument` stands for; also remembered in the session, for errors to point at.

    Raises UsageError for an unset variable or an empty pipe, ConfigError for an unknown name.
    """
    if argument == "-":
        subject = Subject(argument, _read_first_line(), typed=False)
    elif argument.startswith("env:"):
        subject = Subject(argument, _read_variable(argument[4:]), typed=False)
    elif _NAME(argument):
        subject = Subject(argument, _get_endpoint_text(argument, config), typed=False)
    else:
        subject = Subject(argument, _convert_iri(session, argument), typed=True)
        _warn_about_key(session, argument)
    session.subject = subject
    return subject


def iter_subjects(session: Session, arguments: Sequence[str]) -> Iterator[Subject]:
    """Each argument's subject in turn; `-` stands for every line of standard input."""
    for argument in arguments:
        if argument != "-":
            yield resolve_subject(session, argument)
            continue
        for line in read_lines():
            subject = Subject("-", line, typed=False)
            session.subject = subject
            yield subject


def load_providers() -> ProviderTable:
    """The rows that are known here, those of the configuration included where it can be read."""
    from onym.errors import OnymError
    from onym.llm.config import Config
    from onym.llm.providers import ProviderTable

    try:
        return Config.load().providers
    except OnymError:
        return ProviderTable.builtin()


def parse_subject(subject: Subject, *, strict: bool = False) -> LLMURI:
    """The subject's text as an LLMURI."""
    return LLMURI.parse(subject.text, strict=strict)


def read_key(session: Session) -> Secret:
    """The key that stands on standard input, asked for without echo on a terminal. Raises UsageError."""
    if is_terminal(sys.stdin):
        from getpass import getpass

        text = getpass("key: ")
    else:
        text = read_stdin()
    text = text.strip("\r\n")
    if not text or "\n" in text:
        raise UsageError(
            "--key-stdin found no key, or more than one line, on standard input",
            code="usage.key-stdin",
            hint="one line, as in: pass show openai | onym chat --key-stdin llm://openai/gpt-5 Hello",
        )
    secret = Secret(text)
    session.secrets.append(secret)
    return secret


@contextmanager
def translate_key_errors(file: str | Path, *codes: str) -> Iterator[None]:
    """Errors of these codes say that `file`, which the command line names, holds no key: a UsageError.

    A signature that does not hold is something else: it says that somebody changed what was signed.
    """
    try:
        yield
    except SignatureError as error:
        if error.code not in codes:
            raise
        raise UsageError(f"{file}: {error.message}", code="usage.input-file", hint=error.hint) from error


def parse_params(pairs: Iterable[str]) -> Params:
    """NAME=VALUE pairs, typed as the query of a URI types them. Raises UsageError, ParameterError.

    Values are plain text: only in `stop` does a comma separate.
    """
    from onym.uri.components import QUERY_NAME, QUERY_VALUE
    from onym.uri.llm_syntax import parse_query

    written = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError("a parameter is written NAME=VALUE", code="usage.parameter")
        quoted = ",".join(map(QUERY_VALUE.quote, value.split(",")))
        written.append(f"{QUERY_NAME.quote(name)}={quoted}")
    try:
        return parse_query("&".join(written))
    except URIError as error:
        # the places are those of a query that nobody has seen
        error.offset = None
        raise


def read_stdin() -> str:
    """All of standard input; octets that are not UTF-8 become lone surrogates, to be refused later."""
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def read_start(name: str, size: int, *, code: str = "usage.input-file") -> bytes:
    """Return the first `size` bytes of a file, or of standard input for `-`. Raises UsageError."""
    from pathlib import Path

    try:
        if name == "-":
            return sys.stdin.buffer.read(size)
        if not name:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
        with Path(name).open("rb") as stream:
            return stream.read(size)
    except (OSError, ValueError) as error:
        # Python raises ValueError for a name with NUL
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read {_format_file(name)}: {reason}", code=code) from None


def read_file(name: str, limit: int, *, code: str = "usage.input-file") -> bytes:
    """Return a file, or standard input for `-`. Raises UsageError if it is longer than `limit` bytes."""
    content = read_start(name, limit + 1, code=code)
    if len(content) > limit:
        raise UsageError(f"{_format_file(name)} is larger than {limit:,} bytes", code=code)
    return content


def read_text_file(name: str, limit: int, *, code: str = "usage.input-file") -> str:
    """Return a UTF-8 file without a byte order mark, as `read_file` does. Raises UsageError."""
    try:
        return read_file(name, limit, code=code).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"cannot read {_format_file(name)}: it is not UTF-8 text (byte {error.start})", code=code
        ) from None


def _format_file(name: str) -> str:
    return "standard input" if name == "-" else escape_unprintable(name) or "a file without a name"


def read_lines() -> Iterator[str]:
    """The non-empty lines of standard input, without their ends, as they come."""
    for line in sys.stdin.buffer:
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        if text.strip():
            yield text


def _read_first_line() -> str:
    for line in read_lines():
        return line
    raise UsageError("standard input holds no URI", code="usage.no-uri")


def _read_variable(name: str) -> str:
    text = os.environ.get(name, "").strip()
    if not text:
        raise UsageError(f"the variable {name} is not set, or empty", code="usage.no-uri")
    return text


def _get_endpoint_text(name: str, config: Config | None) -> str:
    if config is None:
        from onym.llm.config import Config

        config = Config.load()
    text = config.endpoints.get(name)
    if text is not None:
        return text
    from difflib import get_close_matches

    close = get_close_matches(name, config.endpoints, n=1)
    raise ConfigError(
        "the configuration has no endpoint of that name",
        code="config.no-endpoint",
        hint=f"did you mean {close[0]}?" if close else SCHEME_HINT,
    )


def _convert_iri(session: Session, text: str) -> str:
    """Text that a person typed: an IRI becomes the URI it stands for (RFC 3987 3.1), and we say so."""
    if text.isascii():
        return text
    from onym.uri.iri import to_uri as convert

    session.subject = Subject(text, text, typed=True)
    converted = convert(text)
    session.print_note(f"read as {converted}")
    return converted


def _warn_about_key(session: Session, argument: str) -> None:
    """A key on the command line stays in the shell's history and in the list of processes."""
    if redact(argument) != argument:
        session.print_note(
            "this URI carries a key, which now stands in your shell's history; "
            "--key-stdin, ?auth=env:NAME or a named endpoint (onym config init) keeps it out"
        )
