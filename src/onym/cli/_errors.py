"""Report errors: the message, the position, the rule, a hint and the command to run next.

A printed command works as printed: it keeps the user's own options (`--policy`, `--ca`, `--db`, ...), it is
never the command that has just failed, and it asks for a key instead of containing one. Passwords of proxies
and values of headers appear as `***`. A traceback is printed only if ONYM_DEBUG=1 is set, and then it is
redacted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from onym import errors
from onym._lazy import require_extra
from onym.cli import exit_codes
from onym.cli._input import SCHEME_HINT, find_provider, load_providers, mask_header
from onym.cli._output import Session, Subject, get_width, point_at, wrap_text
from onym.common.text import escape_unprintable

if TYPE_CHECKING:
    from onym.uri.llm import LLMURI

#: package -> the extra that installs it, for imports that fail without a check before them
_EXTRAS = dict.fromkeys(
    ("aiosmtplib", "aiosqlite", "alembic", "argon2", "jinja2", "sqlalchemy", "starlette"), "registry"
)
#: fields of as_dict() that get their own line, and their labels
_LINES = {
    "endpoint": "endpoint",
    "parameter": "parameter",
    "model": "model",
    "source": "source",
    "status": "status",
    "provider_code": "says",
    "request_id": "request",
    "retry_after": "retry in",
    "field": "field",
    "line": "line",
    "column": "column",
    "version": "version",
    "clause": "rule",
    "hint": "hint",
}


def report_error(session: Session, error: errors.OnymError) -> int:
    """Print the error, as JSON with `--json`, and return the exit code."""
    if session.as_json:
        session.print_record(build_error_record(session, error))
    else:
        session.print_error(format_error(session, error))
    _print_traceback(session, error)
    return exit_codes.get_exit_code(error)


def report_unexpected(session: Session, error: Exception) -> int:
    """Report a failed stream or a bug. Its text is masked, because it may contain anything."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in _EXTRAS:
        try:
            require_extra(package, _EXTRAS[package])
        except errors.MissingExtraError as missing:
            return report_error(session, missing)
    if session.as_json:
        session.print_record(build_failure_record(session, error))
    else:
        session.print_error(format_error(session, _build_failure(session, error)))
    _print_traceback(session, error)
    return _get_failure_code(error)


def _get_failure_code(error: Exception) -> int:
    if isinstance(error, FileNotFoundError):
        return exit_codes.USAGE
    return exit_codes.INPUT_OUTPUT if isinstance(error, OSError) else exit_codes.INTERNAL


def build_failure_record(session: Session, error: Exception) -> dict[str, object]:
    """Return the JSON for a failed stream or file, or for a bug."""
    failure = _build_failure(session, error)
    return {"error": {**failure.as_dict(), "exit_code": _get_failure_code(error)}}


def _build_failure(session: Session, error: Exception) -> errors.OnymError:
    if not isinstance(error, OSError):
        return errors.OnymError(
            session.mask(f"internal error in onym ({type(error).__name__})"),
            code="internal.error",
            hint="set ONYM_DEBUG=1 to see the traceback, and please report it",
        )
    message = error.strerror or type(error).__name__
    if error.filename is not None:
        message += f": {escape_unprintable(str(error.filename))}"
    code = "usage.input-file" if isinstance(error, FileNotFoundError) else "io.failed"
    return errors.OnymError(session.mask(message), code=code)


def build_error_record(session: Session, error: errors.OnymError) -> dict[str, object]:
    """Return the JSON for an error, `{"error": {code, message, exit_code, …}}`, with every text masked."""
    body = {
        name: session.mask(value) if isinstance(value, str) else value
        for name, value in _collect_fields(session, error).items()
    }
    body["exit_code"] = exit_codes.get_exit_code(error)
    following = find_next_command(session, error)
    if following is not None:
        body["next"] = following
    return {"error": body}


def format_error(session: Session, error: errors.OnymError) -> str:
    """Format the error for a terminal: several lines, redacted, without control characters."""
    head = session.paint("error", "error", sys.stderr)
    message = wrap_text(_sanitize_text(session, error.message), len("error: "), get_width(sys.stderr))
    lines = [f"{head}: {message}", *_format_place(session, error)]
    fields = _collect_fields(session, error)
    rows = [(label, fields[name]) for name, label in _LINES.items() if name in fields]
    rows.append(("code", error.code))
    following = find_next_command(session, error)
    if following is not None:
        rows.append(("next", following))
    for label, value in rows:
        text = f"{value:g} s" if label == "retry in" else _sanitize_text(session, str(value))
        if label != "next":  # a command stays on one line, so that it can be copied
            text = wrap_text(text, 12, get_width(sys.stderr))
        lines.append(f"  {session.paint(f'{label:<9}', 'dim', sys.stderr)} {text}")
    return "\n".join(lines)


def _collect_fields(session: Session, error: errors.OnymError) -> dict[str, object]:
    """Return the fields of the error, with the hint in the terms of the command line."""
    fields, hint = error.as_dict(), find_hint(session, error)
    if hint is not None:
        fields["hint"] = hint
    else:
        fields.pop("hint", None)
    return fields


def _format_place(session: Session, error: errors.OnymError) -> list[str]:
    """Return the URI and a caret under the position, if the error has both."""
    if session.subject is None or not isinstance(error, errors.URIError) or error.offset is None:
        return []
    pointed = point_at(session.subject.text, error.offset)
    lines = [f"  {pointed.text}"]
    if pointed.carets:
        lines.append(f"  {session.paint(pointed.carets, 'caret', sys.stderr)}")
    return lines


def _sanitize_text(session: Session, text: str) -> str:
    return escape_unprintable(session.mask(text))


def _print_traceback(session: Session, error: BaseException) -> None:
    if os.environ.get("ONYM_DEBUG") != "1":
        return
    from traceback import format_exception

    session.print_error(session.mask("".join(format_exception(error))).rstrip("\n"))


#: class of an error -> the command to run next; {uri} is the argument of the command line
_NEXT: dict[type[errors.OnymError], str] = {
    errors.URIError: "onym check {uri}",
    errors.CredentialError: "onym explain {uri}",
    errors.PolicyError: "onym explain {uri}",
    errors.NetError: "onym ping {uri}",
    errors.AuthenticationError: "onym explain {uri}",
    errors.BadRequestError: "onym explain {uri}",
    errors.UsageError: "onym{command} --help",
}
#: the same for commands whose argument is not an llm URI
_NEXT_ELSEWHERE: dict[type[errors.OnymError], str] = {
    errors.URIError: "onym check {uri}",
    errors.DiscoveryError: "onym ai discover {uri}",
    errors.NetError: "onym ai discover {uri}",
    errors.UsageError: "onym{command} --help",
}
_ELSEWHERE = frozenset({"ai", "gateway", "registry"})
#: the same by error code, if the class is not precise enough
_NEXT_BY_CODE = {
    "config.bad-profile": "onym config check",
    "config.exists": "onym config show",
    "config.no-endpoint": "onym config show",
    "embedded.unknown-model": "onym models list --local",
    "ai.wrong-scheme": "onym ai --help",
    "aiip.endpoint-unknown": "onym ai discover {uri}",
    "aiip.invalid-input": "onym ai describe {uri}",
    "aiip.unknown-authority": "onym ai discover {uri}",
    "aiip.upstream-unreachable": "onym ai discover {uri}",
    "registry.no-database": "onym registry init --db registry.db",
    "registry.no-template": "onym registry template",
    "accounts.unknown-account": "onym registry user list",
    "registry.unknown-request": "onym registry review",
    "registry.wrong-schema": "onym registry init",
    "registry.broken-chain": "onym registry verify",
}
#: a provider or model does not support something: `check` shows all such parameters at once
_REFUSED = frozenset(
    {"llm.unsupported", "llm.no-format", "llm.provider-range", "llm.no-api", "llm.no-path-value"}
)
#: hints of the library that address programmers, in the terms of the command line
_HINTS = {
    "uri.no-scheme": SCHEME_HINT,
    "net.refused.loopback": "type the URI here to reach this computer; for a URI from a file, a variable "
    "or a pipe add --policy local, or set ONYM_ALLOW_LOOPBACK=1",
    "net.refused.private": "if that network is yours, list it as allow_networks below [policy] in the "
    "configuration (onym config path); the server needs TLS, or use an SSH tunnel to localhost",
}
#: the same for the endpoints of the configuration
_ENDPOINT_HINTS = {
    "net.refused.loopback": 'add --policy local, or write preset = "local" below [policy] in the '
    "configuration (onym config path)",
}
#: the same for commands with ai URIs
_AI_HINTS = {
    "uri.no-scheme": "an ai URI begins with ai://, as in ai://bank.example/balance",
    "net.refused.loopback": "use --policy local (the default) to reach this computer",
    "net.refused.port": "use --policy trusted to allow every port, or --policy local for this computer too",
}
#: commands that have requested the list of models themselves when a server answers 404
_LISTED = frozenset({"models list", "models show", "ping"})
#: options that say where a command goes and as whom: the next command needs them too
_KEPT = frozenset(
    {
        "account", "ca_files", "cert", "cert_key", "config", "db", "dns", "gateway", "gguf", "headers",
        "key_stdin", "namespaces", "namespaces_key", "on_unsupported", "params", "policy", "proxy",
        "registry", "resolver", "role", "system",
    }
)  # fmt: skip
_KEY_OPTION = "--key-stdin"
#: `onym` with the words behind it that may be names of commands
_COMMAND = re.compile(r"\bonym((?: [a-z][a-z-]*)+)")
_OPTION = re.compile(r"(?<!\S)--?[a-z][a-z-]*")
#: the host and the port of a URL without userinfo
_WEB_URL = re.compile(r"https?://([\w.-]+(?::\d+)?)(?:[/?#]|\Z)", re.IGNORECASE | re.ASCII)
_HOST_AND_MODEL = re.compile(r"[\w.-]+:\d+/.", re.ASCII)


def find_hint(session: Session, error: errors.OnymError) -> str | None:
    """Return the hint for an error, in the terms of the command line."""
    meant = _guess_uri(session, error)
    if meant is not None:
        return f"did you mean {meant}?"
    if error.code == "llm.not-llm" and session.subject and session.subject.text[:3].lower() == "ai:":
        return "an ai:// resource has commands of its own, such as onym ai invoke (onym ai --help)"
    if error.code == "llm.bad-number" and getattr(error, "parameter", None) == "timeout":
        return "timeout is a number of milliseconds: timeout=20000 is 20 seconds"
    if error.hint is None:
        return None
    if error.hint.startswith("Run: onym ") and (
        error.hint.startswith(f"Run: onym {session.command}") or find_next_command(session, error) is not None
    ):
        return None  # it has just failed, or the next command says it, with the user's options
    hint = error.hint.replace('on_unsupported="drop"', "--on-unsupported drop")
    # discovery may have met a policy, whose error explains more
    reason = error.__cause__ if isinstance(error.__cause__, errors.PolicyError) else error
    table = _AI_HINTS if _is_ai_command(session) else _HINTS
    if reason.code == "net.refused.loopback" and _is_endpoint_name(session.subject):
        table = _ENDPOINT_HINTS
    return complete_commands(session, table.get(reason.code, hint))


def _is_endpoint_name(subject: Subject | None) -> bool:
    """Return whether the URI is one of the configuration, and not of a variable, a pipe or the user."""
    return subject is not None and not subject.typed and ":" not in subject.argument != "-"


def _is_ai_command(session: Session) -> bool:
    return session.command.startswith("ai ")


def _guess_uri(session: Session, error: errors.OnymError) -> str | None:
    """Return the URI that the user probably meant: a corrected name, or an added scheme."""
    subject = session.subject
    if subject is None or not subject.typed:
        return None
    if error.code == "ai.wrong-scheme":
        return session.mask("ai://" + (subject.text.partition("://")[2] or subject.text))
    if error.code == "uri.no-scheme":
        return _add_scheme(session, subject.text)
    if error.code == "llm.not-llm":
        return _replace_scheme(session, subject.text)
    if error.code == "llm.no-authority" and (rest := subject.text.partition(":")[2].lstrip("/")):
        return session.mask(f"llm://{rest}")
    if error.code not in ("llm.no-api", "llm.no-path-value"):
        return None
    from onym.cli.commands.check import find_misspellings

    misspellings = find_misspellings(subject.text, load_providers())
    return next((misspelling.fix for misspelling in misspellings if misspelling.fix), None)


def _add_scheme(session: Session, text: str) -> str | None:
    """Return `openai/gpt-5.5` with a scheme if its first word is a provider, and any ai name with one."""
    if _is_ai_command(session):
        return session.mask(f"ai://{text}") if text[:1].isalnum() else None
    word, slash, model = text.partition("/")
    if not slash or not model or load_providers().find_alias(word) is None:
        return None
    return session.mask(f"llm://{text}")


def _replace_scheme(session: Session, text: str) -> str | None:
    """Return an llm URI for `localhost:11434/llama3`, for `openai:gpt-5.5`, or for the URL of a server."""
    url = _WEB_URL.match(text)
    if url is not None:
        return f"llm://{url[1]}/MODEL"
    word, _, model = text.partition(":")
    if model[:1].isalnum() and load_providers().find_alias(word) is not None:
        return session.mask(f"llm://{word}/{model}")  # a name of LangChain or pydantic-ai
    return session.mask(f"llm://{text}") if _HOST_AND_MODEL.match(text) else None


def find_next_command(session: Session, error: errors.OnymError) -> str | None:
    """Return the command to run next, or None if no command would help."""
    command = getattr(error, "command", None)
    if isinstance(command, str):
        return session.mask(command)
    if error.code in _REFUSED:
        return _suggest_check(session)
    if isinstance(error, errors.URIError) and error.offset is None:
        # the error is about a value from another place, not about the text of the URI
        return None
    if error.code == "llm.no-model" and (listing := _suggest_model_list(session)) is not None:
        return listing
    if error.code == "llm.not-llm" and _guess_uri(session, error) is not None:
        return None  # `check` would only repeat this
    other = getattr(error, "other_uri", None)
    if other is not None:
        return _fill_uri(session, "onym ping {uri}", other)
    for template in _list_templates(session, error):
        if f"{template} ".startswith(f"onym {session.command} "):
            continue  # it has just failed
        if "{command}" in template:
            return template.format(command=f" {session.command}" if session.command else "")
        return _fill_uri(session, template)
    return None


def _list_templates(session: Session, error: errors.OnymError) -> Iterator[str]:
    """Yield the commands for an error, the most precise one first."""
    if error.code in _NEXT_BY_CODE:
        yield _NEXT_BY_CODE[error.code]
        return
    elsewhere = (session.command or "").partition(" ")[0] in _ELSEWHERE
    if isinstance(error, errors.NotFoundError) and not elsewhere:
        asked = session.command in _LISTED and error.status == 404
        if not asked and _has_model_list(session):
            yield "onym models list {uri}"
        yield "onym explain {uri}"
        return
    table = _NEXT_ELSEWHERE if elsewhere else _NEXT
    yield from (table[cls] for cls in type(error).__mro__ if cls in table)


def _has_model_list(session: Session) -> bool:
    """Return whether the subject's provider has a list of models, as far as its row says."""
    uri = _parse_subject(session.subject)
    if uri is None:
        return True
    return find_provider(uri, load_providers()).capabilities["models"] != "no"


def _parse_subject(subject: Subject | None) -> LLMURI | None:
    from onym.uri.llm import LLMURI

    try:
        return None if subject is None else LLMURI.parse(subject.text)
    except errors.URIError:
        return None


def _fill_uri(session: Session, template: str, other: str | None = None) -> str | None:
    """Put the URI and the user's options into the command; None without a URI that can be typed again.

    `other` replaces the URI. A key is not repeated: `--key-stdin` asks for it, if the command has it.
    """
    if "{uri}" not in template:
        return complete_command(session, template)
    subject = session.subject
    if subject is None or subject.argument == "-":
        return None
    uri = _parse_subject(subject)
    text, asks = other or subject.argument, ""
    if uri is not None and uri.key is not None and _KEY_OPTION in _list_option_names(session, template):
        if subject.typed and other is None:
            text = uri.without_key().render()
        asks = f" {_KEY_OPTION}" if text != subject.argument else ""
    return complete_command(session, template.format(uri=_quote_text(session, text)) + asks)


def _suggest_check(session: Session) -> str | None:
    """Return `onym check` with the URI if `check` reports a problem of this URI."""
    from onym.cli.commands.check import check_provider

    subject = session.subject
    if subject is None or subject.argument == "-" or session.command == "check":
        return None
    diagnostics = check_provider(subject.text, load_providers())
    return f"onym check {_quote_text(session, subject.argument)}" if diagnostics else None


def _suggest_model_list(session: Session) -> str | None:
    """Return the command that lists the models of a server, for a URI of which only the model is missing."""
    subject = session.subject
    if subject is None or not subject.typed:
        return None
    text = f"{subject.text.rstrip('/')}/any"
    named = _parse_subject(Subject(subject.argument, text, typed=True))
    return None if named is None else _fill_uri(session, "onym models list {uri}", text)


def _quote_text(session: Session, text: str) -> str:
    """Return an argument quoted for the shell, with keys masked."""
    from shlex import quote  # late: only errors need it

    return quote(escape_unprintable(session.mask(text)))


def complete_command(session: Session, command: str) -> str:
    """Add the user's options to a command, as far as it has them and does not set them itself."""
    return " ".join([command, *_list_added_options(session, command)])


def complete_commands(session: Session, text: str) -> str:
    """Do what `complete_command` does for every command that a sentence names."""

    def complete(match: re.Match[str]) -> str:
        words = match[1].split()
        length = _find_command(session, words)[1]
        added = _list_added_options(session, text[match.start() :])
        return " ".join(["onym", *words[:length], *added, *words[length:]])

    return _COMMAND.sub(complete, text)


def _list_added_options(session: Session, command: str) -> list[str]:
    kept = list(_iter_kept_options(session))
    names = _list_option_names(session, command) if kept else set()
    given = set(_OPTION.findall(command))
    return [option for aliases, option in kept if names & aliases and not given & aliases]


def _iter_kept_options(session: Session) -> Iterator[tuple[set[str], str]]:
    """Yield the names of each option to keep, and the option as the user gave it."""
    context = session.context
    if context is None:
        return
    for param in context.command.params:
        name = param.name or ""
        if name not in _KEPT or not isinstance(param, click.Option):
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            yield {*param.opts, *param.secondary_opts}, _format_option(session, param, context.params[name])


def _format_option(session: Session, param: click.Option, value: object) -> str:
    if param.is_flag:
        return (param.opts if value else param.secondary_opts)[0]
    values: Iterable[object] = value if param.multiple and isinstance(value, tuple) else (value,)
    if param.name == "headers":
        values = (mask_header(str(item)) for item in values)
    return " ".join(f"{param.opts[0]} {_quote_text(session, str(item))}" for item in values)


def _find_command(session: Session, words: list[str]) -> tuple[click.Command | None, int]:
    """Return the command that the first words name, and how many of them do; None if no command runs."""
    if session.context is None:
        return None, 0
    command = session.context.find_root().command
    length = 0
    for word in words:
        if not isinstance(command, click.Group):
            break
        # not the context of this run: it would take the name as that of the running command
        found = command.get_command(click.Context(command), word)
        if found is None:
            break
        command, length = found, length + 1
    return command, length


def _list_option_names(session: Session, text: str) -> set[str]:
    """Return the names of the options of the command with which a text begins."""
    match = _COMMAND.match(text)
    command, _ = _find_command(session, [] if match is None else match[1].split())
    params = [] if command is None else command.params
    return {name for param in params if isinstance(param, click.Option) for name in param.opts}
