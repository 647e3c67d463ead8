"""Shared options, and the values that a user gives a command: URIs, keys, parameters and files.

A URI is text on the command line, the name of an endpoint in the configuration, `env:NAME`, or `-` for a line
of standard input. Only typed text is trusted: its Unicode is converted with a note, and it may address this
computer. This module is imported at every start, so it must not import `dataclasses` or the client.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from errno import ENOENT
from typing import TYPE_CHECKING, TypeAlias, cast

import click
from click.shell_completion import CompletionItem

from onym.cli._output import Session, Subject, is_terminal
from onym.common.text import escape_unprintable
from onym.errors import ConfigError, OnymError, SignatureError, URIError, UsageError
from onym.uri.redact import redact
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

    from onym.llm.config import Config
    from onym.llm.providers import Provider, ProviderTable
    from onym.uri.llm import LLMURI
    from onym.uri.llm_syntax import Params

#: folders that a search of a folder does not enter: version control, caches and installed packages
_SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
# a file with a NUL byte here is binary, as git sees it
_BINARY_HEAD = 8_000
#: headers whose values name versions and features of an API, so they contain no credential
_FEATURE_HEADERS = frozenset({"anthropic-beta", "anthropic-version", "openai-beta"})

if TYPE_CHECKING:
    _ParamType: TypeAlias = click.ParamType[str]
else:
    # generic since click 8.4
    _ParamType = click.ParamType


class _URIType(_ParamType):
    """A URI argument, which completes the names of endpoints in the configuration."""

    name = "uri"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the endpoints that begin with `incomplete`, or nothing if the configuration is invalid."""
        from onym.llm.config import Config

        try:
            names = list(Config.load().endpoints)
        except OnymError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


URI_TYPE = _URIType()


uri_argument = click.argument("uri", type=URI_TYPE)


#: the presets of `onym.net.policy.Policy`, which loads only when it is used
POLICY_CHOICE = click.Choice(["trusted", "local", "untrusted"])

policy_option = click.option(
    "--policy",
    type=POLICY_CHOICE,
    help="Hosts that the URI may reach. Default: `local` (loopback allowed) for a URI typed here, "
    "`trusted` (no loopback) for one from a file, variable or pipe.",
)

key_stdin_option = click.option(
    "--key-stdin", is_flag=True, help="Read the API key from standard input, to keep it out of the history."
)

param_option = click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE",
                            help="A parameter of the URI (repeatable), such as temp=0.2.")  # fmt: skip


#: the name of an endpoint; every URI contains a colon
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*").fullmatch
SCHEME_HINT = "write a URI such as llm://openai/gpt-5.5, or add the endpoint with onym config init"


def resolve_subject(session: Session, argument: str, config: Config | None = None) -> Subject:
    """Return the URI that `argument` names, and keep it in the session for error messages.

    Raises UsageError for an unset variable or an empty pipe, ConfigError for an unknown name.
    """
    if argument == "-":
        line = next(read_lines(), None)
        if line is None:
            raise UsageError("standard input contains no URI", code="usage.no-uri")
        subject = Subject(argument, line, typed=False)
    elif argument.startswith("env:"):
        subject = Subject(argument, _read_variable(argument[4:]), typed=False)
    elif _NAME(argument):
        subject = Subject(argument, _get_endpoint_text(argument, config), typed=False)
    else:
        subject = Subject(argument, _convert_iri(session, argument), typed=True)
        if redact(argument) != argument:
            session.print_note(
                "this URI contains a key, which is now in your shell's history; "
                "use --key-stdin, ?auth=env:NAME or a named endpoint (onym config init) to keep it out"
            )
    session.subject = subject
    return subject


def iter_subjects(session: Session, arguments: Sequence[str]) -> Iterator[Subject]:
    """Yield the subject of each argument; `-` gives one for every line of standard input."""
    for argument in arguments:
        if argument != "-":
            yield resolve_subject(session, argument)
            continue
        for line in read_lines():
            subject = Subject("-", line, typed=False)
            session.subject = subject
            yield subject


def load_providers() -> ProviderTable:
    """Return the providers of the configuration, or the built-in ones if it is invalid."""
    from onym.llm.config import Config
    from onym.llm.providers import ProviderTable

    try:
        return Config.load().providers
    except OnymError:
        return ProviderTable.builtin()


def find_provider(uri: LLMURI, providers: ProviderTable) -> Provider:
    """Return the provider entry of a URI."""
    aliased = providers.find_alias(uri.host) if uri.port is None else None
    return aliased or providers.find(uri.host, uri.port)


def read_key(session: Session) -> Secret:
    """Read an API key from standard input, or from the terminal without echo. Raises UsageError."""
    if is_terminal(sys.stdin):
        from getpass import getpass

        text = getpass("key: ")
    else:
        text = read_stdin()
    text = text.strip("\r\n")
    if not text or "\n" in text:
        raise UsageError(
            "--key-stdin needs exactly one line with the key on standard input",
            code="usage.key-stdin",
            hint="pipe the key, as in: pass show openai | onym chat --key-stdin llm://openai/gpt-5.5 Hello",
        )
    secret = Secret(text)
    session.secrets.append(secret)
    return secret


@contextmanager
def translate_key_errors(file: str | Path, *codes: str) -> Iterator[None]:
    """Convert signature errors with these codes to a UsageError that names the unusable key file.

    Other codes pass: an invalid signature means that the signed content may have been changed.
    """
    try:
        yield
    except SignatureError as error:
        if error.code not in codes:
            raise
        raise UsageError(f"{file}: {error.message}", code="usage.input-file", hint=error.hint) from error


def parse_header(line: str) -> tuple[str, str | Secret]:
    """Split `NAME: VALUE`. The value is a `Secret` unless the header only names features.

    Raises UsageError.
    """
    name, colon, value = line.partition(":")
    if not name or not colon:
        raise UsageError(
            "a header is not of the form 'NAME: VALUE'",
            code="usage.header",
            hint="Write -H 'NAME: VALUE', as in -H 'x-team: search'.",
        )
    value = value.strip(" \t")
    return name, value if name.lower() in _FEATURE_HEADERS else Secret(value)


def mask_header(line: str) -> str:
    """Return `NAME: VALUE` with `***` as its value, unless this header only names features."""
    name, colon, _ = line.partition(":")
    if name.lower() in _FEATURE_HEADERS:
        return line
    return f"{name}: {MARK}" if colon else MARK


def parse_params(pairs: Iterable[str]) -> Params:
    """Parse NAME=VALUE pairs with the types of a URI's query. Raises UsageError and ParameterError.

    A comma separates values only in `stop`.
    """
    from onym.uri.components import QUERY_NAME, QUERY_VALUE
    from onym.uri.llm_syntax import parse_query

    written = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(
                f'"{name}" is not a parameter of the form NAME=VALUE',
                code="usage.parameter",
                hint="write -p NAME=VALUE, as in -p temp=0.2",
            )
        quoted = ",".join(map(QUERY_VALUE.quote, value.split(",")))
        written.append(f"{QUERY_NAME.quote(name)}={quoted}")
    try:
        return parse_query("&".join(written))
    except URIError as error:
        # the offset is that of a query that the user has not seen
        error.offset = None
        raise


def read_stdin() -> str:
    """Read standard input; bytes that are not UTF-8 become lone surrogates, which are rejected later.

    As in files, a byte order mark is not part of the text.
    """
    return sys.stdin.buffer.read().decode("utf-8-sig", "surrogateescape")


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
        # Python raises ValueError for a name that contains NUL
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read {_format_file(name)}: {reason}", code=code) from None


def read_file(name: str, limit: int, *, code: str = "usage.input-file") -> bytes:
    """Return a file, or standard input for `-`. Raises UsageError if it is longer than `limit` bytes."""
    content = read_start(name, limit + 1, code=code)
    if len(content) > limit:
        raise UsageError(f"{_format_file(name)} is larger than {limit:,} bytes", code=code)
    return content


def read_body(data: str, limit: int) -> bytes:
    """Return the body that an option `--data` names: @FILE, - for standard input, or the text itself.

    Raises UsageError for a file that cannot be read, and for a body that is longer than `limit` bytes.
    """
    if data == "-" or data.startswith("@"):
        return read_file(data.removeprefix("@"), limit)
    return data.encode("utf-8", "surrogateescape")


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


def iter_files(names: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the files, and whether each comes from a folder. Links in folders are not followed."""
    for name in names:
        if not is_folder(name):
            yield name, False
            continue
        folders = [name]
        while folders:
            with os.scandir(folders.pop()) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            yield from ((entry.path, True) for entry in entries if entry.is_file(follow_symlinks=False))
            inner = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            folders += [entry.path for entry in reversed(inner) if entry.name not in _SKIPPED_FOLDERS]


def is_folder(name: str) -> bool:
    """Return whether an argument names a folder."""
    return os.path.isdir(name)  # noqa: PTH112 - pathlib loads slowly, and "-" is not a path


def is_binary(name: str) -> bool:
    """Return whether the file has a NUL byte near its start, as git decides."""
    with open_input(name) as opened:
        return b"\0" in opened.read(_BINARY_HEAD)


@contextmanager
def open_input(name: str) -> Iterator[BufferedReader]:
    """Open a file, or standard input for `-`. Raises UsageError."""
    try:
        opened = click.open_file(name, "rb")
    except OSError as error:
        message = f"cannot read {_format_file(name)}: {error.strerror}"
        raise UsageError(message, code="usage.input-file") from error
    with opened:
        yield cast("BufferedReader", opened)


def read_lines() -> Iterator[str]:
    """Yield the non-empty lines of standard input, without line ends, as they arrive."""
    encoding = "utf-8-sig"  # only the first line can begin with a byte order mark
    for line in sys.stdin.buffer:
        text = line.decode(encoding, "surrogateescape").rstrip("\r\n")
        encoding = "utf-8"
        if text.strip():
            yield text


def _read_variable(name: str) -> str:
    text = os.environ.get(name, "").strip()
    if not text:
        raise UsageError(f"the variable {name} is not set, or it is empty", code="usage.no-uri")
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
        f'"{name}" is neither an llm:// URI nor an endpoint in {format_config_path(config)}',
        code="config.no-endpoint",
        hint=f"did you mean {close[0]}?" if close else SCHEME_HINT,
    )


def format_config_path(config: Config) -> str:
    """Return the path of the configuration file, with ~ for the user's home folder."""
    from pathlib import Path

    from onym.llm.config import default_path

    path = config.path or default_path()
    try:
        return f"~{os.sep}{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):  # not below the home folder, or no home folder
        return str(path)


def _convert_iri(session: Session, text: str) -> str:
    """Convert a typed IRI to a URI (RFC 3987 3.1), and print a note with the result."""
    if text.isascii():
        return text
    from onym.uri.iri import to_uri as convert

    session.subject = Subject(text, text, typed=True)
    converted = convert(text)
    session.print_note(f"read as {converted}")
    return converted
