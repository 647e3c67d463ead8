"""What a person gives a command: a URI in one of four ways, a key, parameters.

A URI is text on the command line, the name of an endpoint in the configuration, `env:NAME`, or `-`
for a line of standard input. Text typed here is the person's own: Unicode in it is converted, visibly,
and it may lead to this machine. The other three were written by someone else, and get neither.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onym.cli._output import Session, Subject, is_terminal
from onym.errors import ConfigError, SignatureError, URIError, UsageError
from onym.uri.llm import LLMURI
from onym.uri.redact import redact
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path

    from onym.llm.config import Config
    from onym.llm.providers import ProviderTable
    from onym.uri._query import Params

__all__ = [
    "SCHEME_HINT",
    "find_subject",
    "key_file",
    "read_key",
    "read_lines",
    "read_params",
    "stdin_text",
    "subjects",
    "to_uri",
    "user_providers",
]

#: what names an endpoint of the configuration; every URI has a colon in it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*").fullmatch
SCHEME_HINT = "an llm URI begins with llm://, as in llm://api.openai.com/gpt-5"


def find_subject(session: Session, argument: str, config: Config | None = None) -> Subject:
    """What `argument` stands for; also remembered in the session, for errors to point at.

    Raises UsageError for an unset variable or an empty pipe, ConfigError for an unknown name.
    """
    if argument == "-":
        subject = Subject(argument, _first_line(), typed=False)
    elif argument.startswith("env:"):
        subject = Subject(argument, _variable(argument[4:]), typed=False)
    elif _NAME(argument):
        subject = Subject(argument, _endpoint(argument, config), typed=False)
    else:
        subject = Subject(argument, _converted(session, argument), typed=True)
        _advise(session, argument)
    session.subject = subject
    return subject


def subjects(session: Session, arguments: Sequence[str]) -> Iterator[Subject]:
    """Each argument's subject in turn; `-` stands for every line of standard input."""
    for argument in arguments:
        if argument != "-":
            yield find_subject(session, argument)
            continue
        for line in read_lines():
            subject = Subject("-", line, typed=False)
            session.subject = subject
            yield subject


def user_providers() -> ProviderTable:
    """The rows that are known here, those of the configuration included where it can be read."""
    from onym.errors import OnymError
    from onym.llm.config import Config
    from onym.llm.providers import ProviderTable

    try:
        return Config.load().providers
    except OnymError:
        return ProviderTable.builtin()


def to_uri(subject: Subject, *, strict: bool = False) -> LLMURI:
    """The subject's text as an LLMURI."""
    return LLMURI.parse(subject.text, strict=strict)


def read_key(session: Session) -> Secret:
    """The key that stands on standard input, asked for without echo on a terminal. Raises UsageError."""
    if is_terminal(sys.stdin):
        from getpass import getpass

        text = getpass("key: ")
    else:
        text = stdin_text()
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
def key_file(file: str | Path, *codes: str) -> Iterator[None]:
    """Errors of these codes say that `file`, which the command line names, holds no key: a UsageError.

    A signature that does not hold is something else: it says that somebody changed what was signed.
    """
    try:
        yield
    except SignatureError as error:
        if error.code not in codes:
            raise
        raise UsageError(f"{file}: {error.message}", code="usage.input-file", hint=error.hint) from error


def read_params(pairs: Iterable[str]) -> Params:
    """NAME=VALUE pairs, typed as the query of a URI types them. Raises UsageError, ParameterError.

    Values are plain text: only in `stop` does a comma separate.
    """
    from onym.uri._percent import QUERY_NAME, QUERY_VALUE
    from onym.uri._query import read

    written = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError("a parameter is written NAME=VALUE", code="usage.parameter")
        quoted = ",".join(map(QUERY_VALUE.quote, value.split(",")))
        written.append(f"{QUERY_NAME.quote(name)}={quoted}")
    try:
        return read("&".join(written))
    except URIError as error:
        # the places are those of a query that nobody has seen
        error.offset = None
        raise


def stdin_text() -> str:
    """All of standard input; octets that are not UTF-8 become lone surrogates, to be refused later."""
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def read_lines() -> Iterator[str]:
    """The non-empty lines of standard input, without their ends, as they come."""
    for line in sys.stdin.buffer:
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        if text.strip():
            yield text


def _first_line() -> str:
    for line in read_lines():
        return line
    raise UsageError("standard input holds no URI", code="usage.no-uri")


def _variable(name: str) -> str:
    text = os.environ.get(name, "").strip()
    if not text:
        raise UsageError(f"the variable {name} is not set, or empty", code="usage.no-uri")
    return text


def _endpoint(name: str, config: Config | None) -> str:
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


def _converted(session: Session, text: str) -> str:
    """Text that a person typed: an IRI becomes the URI it stands for (RFC 3987 3.1), and we say so."""
    if text.isascii():
        return text
    from onym.uri.iri import to_uri as convert

    session.subject = Subject(text, text, typed=True)
    converted = convert(text)
    session.note(f"read as {converted}")
    return converted


def _advise(session: Session, argument: str) -> None:
    """A key on the command line stays in the shell's history and in the list of processes."""
    if redact(argument) != argument:
        session.note(
            "this URI carries a key, which now stands in your shell's history; "
            "--key-stdin, ?auth=env:NAME or a named endpoint (onym config init) keeps it out"
        )
