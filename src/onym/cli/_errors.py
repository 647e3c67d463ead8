"""One clear block for each error: what, where, which rule, how to go on. Never a traceback.

`ONYM_DEBUG=1` adds the traceback, redacted.
"""

from __future__ import annotations

import os
import sys

from onym import errors
from onym._lazy import require
from onym.cli import exit_codes
from onym.cli._input import SCHEME_HINT
from onym.cli._output import Session, Subject, width_of
from onym.cli._text import point, printable, wrapped

__all__ = ["error_block", "error_record", "next_command", "report", "unexpected"]

#: the command that brings one further, by the class of the error; {uri} is what stood on the command line
_NEXT: dict[type[errors.OnymError], str] = {
    errors.URIError: "onym check {uri}",
    errors.ConfigError: "onym config check",
    errors.CredentialError: "onym explain {uri}",
    errors.PolicyError: "onym explain {uri}",
    errors.NetError: "onym ping {uri}",
    errors.AuthenticationError: "onym explain {uri}",
    errors.BadRequestError: "onym explain {uri}",
    errors.NotFoundError: "onym models list {uri}",
    errors.UsageError: "onym{command} --help",
}
#: the same for what is not about an llm URI, or the file that `onym config` reads
_NEXT_ELSEWHERE: dict[type[errors.OnymError], str] = {
    errors.URIError: "onym check {uri}",
    errors.DiscoveryError: "onym ai discover {uri}",
    errors.NetError: "onym ai discover {uri}",
    errors.UsageError: "onym{command} --help",
}
_ELSEWHERE = frozenset({"ai", "gateway", "registry"})
#: the same by code, where the class says too little
_NEXT_BY_CODE = {
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
    "registry.unknown-account": "onym registry user list",
    "registry.unknown-request": "onym registry review",
    "registry.wrong-schema": "onym registry init",
    "registry.broken-chain": "onym registry verify",
}
#: the extra that brings a package, where an import meets its lack first
_EXTRAS = dict.fromkeys(
    ("aiosmtplib", "aiosqlite", "alembic", "argon2", "jinja2", "sqlalchemy", "starlette"), "registry"
)
#: what the provider or the model does not take: `check` shows all of it at once
_REFUSED = frozenset(
    {"llm.unsupported", "llm.no-format", "llm.provider-range", "llm.no-api", "llm.no-path-value"}
)
#: what the library says to programmers, said to whoever sits at the command line
_HINTS = {
    "uri.no-scheme": SCHEME_HINT,
    "net.refused.loopback": "a URI typed here may lead to this machine; for one from a file, a variable or a "
    "pipe add --policy local, or set ONYM_ALLOW_LOOPBACK=1",
}
#: as_dict() fields that the block shows on lines of their own, and their labels
_LINES = (
    ("endpoint", "endpoint"),
    ("parameter", "parameter"),
    ("model", "model"),
    ("source", "source"),
    ("status", "status"),
    ("provider_code", "says"),
    ("request_id", "request"),
    ("retry_after", "retry in"),
    ("field", "field"),
    ("line", "line"),
    ("column", "column"),
    ("version", "version"),
    ("clause", "rule"),
    ("hint", "hint"),
)


def report(session: Session, error: errors.OnymError) -> int:
    """Tell the person, or with `--json` the program, and return the exit code."""
    if session.as_json:
        session.record(error_record(session, error))
    else:
        session.complain(error_block(session, error))
    _debug(session, error)
    return exit_codes.exit_code(error)


def unexpected(session: Session, error: Exception) -> int:
    """Report a stream that failed, or a bug. Its own text may hold anything, so it is masked."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in _EXTRAS:
        try:
            require(package, _EXTRAS[package])
        except errors.MissingExtraError as missing:
            return report(session, missing)
    if isinstance(error, OSError):
        code, number = "io.failed", exit_codes.INPUT_OUTPUT
        message = error.strerror or type(error).__name__
        if error.filename is not None:
            message += f": {printable(str(error.filename))}"
        hint = None
    else:
        code, number = "internal.error", exit_codes.INTERNAL
        message = f"onym failed in a way that it should not ({type(error).__name__})"
        hint = "ONYM_DEBUG=1 shows where; please report it"
    shown = errors.OnymError(session.masked(message), code=code, hint=hint)
    if session.as_json:
        session.record({"error": {**shown.as_dict(), "exit_code": number}})
    else:
        session.complain(error_block(session, shown))
    _debug(session, error)
    return number


def error_record(session: Session, error: errors.OnymError) -> dict[str, object]:
    """What `--json` prints for an error: `{"error": {code, message, exit_code, …}}`, every text masked."""
    body = {
        name: session.masked(value) if isinstance(value, str) else value
        for name, value in _fields(session, error).items()
    }
    body["exit_code"] = exit_codes.exit_code(error)
    following = next_command(session, error)
    if following is not None:
        body["next"] = following
    return {"error": body}


def error_block(session: Session, error: errors.OnymError) -> str:
    """The error as lines for a person, redacted and harmless to a terminal."""
    head = session.paint("error", "error", sys.stderr)
    lines = [f"{head}: {_clean(session, error.message)}", *_where(session, error)]
    fields = _fields(session, error)
    rows = [(label, fields[name]) for name, label in _LINES if name in fields]
    rows.append(("code", error.code))
    following = next_command(session, error)
    if following is not None:
        rows.append(("next", following))
    for label, value in rows:
        text = f"{value:g} s" if label == "retry in" else _clean(session, str(value))
        if label != "next":  # to be copied as it is
            text = wrapped(text, 12, width_of(sys.stderr))
        lines.append(f"  {session.paint(f'{label:<9}', 'dim', sys.stderr)} {text}")
    return "\n".join(lines)


def _fields(session: Session, error: errors.OnymError) -> dict[str, object]:
    """The error as data, its hint in the words of the command line."""
    fields = error.as_dict()
    if error.hint is not None:
        hint = error.hint.replace('on_unsupported="drop"', "--on-unsupported drop")
        fields["hint"] = _HINTS.get(error.code, hint)
    meant = _meant(session, error)
    if meant is not None:
        fields["hint"] = f"did you mean {meant}?"
    return fields


def _meant(session: Session, error: errors.OnymError) -> str | None:
    """The URI that was probably meant: a slip in a word of the provider's, or no scheme before one."""
    subject = session.subject
    if subject is None or not subject.typed:
        return None
    if error.code == "ai.wrong-scheme":
        return session.masked("ai://" + (subject.text.partition("://")[2] or subject.text))
    if error.code == "uri.no-scheme":
        return _with_scheme(session, subject.text)
    if error.code not in ("llm.no-api", "llm.no-path-value"):
        return None
    from onym.cli._input import user_providers
    from onym.cli._provider_check import slips

    return next((each.fix for each in slips(subject.text, user_providers()) if each.fix), None)


def _with_scheme(session: Session, text: str) -> str | None:
    """`openai/gpt-5` as the URI it would be, where its first word is a provider's."""
    from onym.cli._input import user_providers

    word, slash, model = text.partition("/")
    if not slash or not model or user_providers().alias(word) is None:
        return None
    return session.masked(f"llm://{text}")


def next_command(session: Session, error: errors.OnymError) -> str | None:
    """What to run next, or None where nothing in particular helps."""
    command = getattr(error, "command", None)
    if isinstance(command, str):
        return session.masked(command)
    if error.code in _REFUSED:
        return _check_command(session)
    if isinstance(error, errors.URIError) and error.offset is None:
        # not about the text of the URI, but about a value from elsewhere
        return None
    if error.code in _NEXT_BY_CODE:
        return _with_uri(session, _NEXT_BY_CODE[error.code])
    table = _NEXT_ELSEWHERE if (session.command or "").partition(" ")[0] in _ELSEWHERE else _NEXT
    for cls in type(error).__mro__:
        template = table.get(cls)
        if template is None or template.startswith(f"onym {session.command} "):
            continue
        if "{uri}" not in template:
            return template.format(command=f" {session.command}" if session.command else "")
        return _with_uri(session, template)
    return None


def _with_uri(session: Session, template: str) -> str | None:
    """The command with the URI in its place; None where there is none, or it is what just ran."""
    if "{uri}" not in template:
        return template
    if session.subject is None or template.startswith(f"onym {session.command} "):
        return None
    return template.format(uri=_argument(session, session.subject))


def _check_command(session: Session) -> str | None:
    """`onym check`, where it says more of this URI; a value from elsewhere it does not see."""
    from onym.cli._input import user_providers
    from onym.cli._provider_check import provider_findings

    subject = session.subject
    if subject is None or subject.argument == "-" or session.command == "check":
        return None
    found = provider_findings(subject.text, user_providers())
    return f"onym check {_argument(session, subject)}" if found else None


def _argument(session: Session, subject: Subject) -> str:
    """The URI argument as a person would type it again; a key in it is masked."""
    from shlex import quote

    return quote(printable(session.masked(subject.argument)))


def _where(session: Session, error: errors.OnymError) -> list[str]:
    """The URI, and a caret under the place, where an error has both."""
    if session.subject is None or not isinstance(error, errors.URIError) or error.offset is None:
        return []
    pointed = point(session.subject.text, error.offset)
    lines = [f"  {pointed.text}"]
    if pointed.carets:
        lines.append(f"  {session.paint(pointed.carets, 'caret', sys.stderr)}")
    return lines


def _clean(session: Session, text: str) -> str:
    return printable(session.masked(text))


def _debug(session: Session, error: BaseException) -> None:
    if os.environ.get("ONYM_DEBUG") != "1":
        return
    from traceback import format_exception

    sys.stderr.write(session.masked("".join(format_exception(error))))
