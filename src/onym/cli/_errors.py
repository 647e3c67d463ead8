"""One clear block for each error: what, where, which rule, how to go on. Never a traceback.

`ONYM_DEBUG=1` adds the traceback, redacted.
"""

from __future__ import annotations

import os
import sys

from onym import errors
from onym._lazy import require
from onym.cli import exit_codes
from onym.cli._guide import hint_of, next_command
from onym.cli._output import Session, width_of
from onym.cli._text import point, printable, wrapped

__all__ = ["error_block", "error_record", "failure_record", "report", "unexpected"]

#: the extra that brings a package, where an import meets its lack first
_EXTRAS = dict.fromkeys(
    ("aiosmtplib", "aiosqlite", "alembic", "argon2", "jinja2", "sqlalchemy", "starlette"), "registry"
)
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
    number = exit_codes.INPUT_OUTPUT if isinstance(error, OSError) else exit_codes.INTERNAL
    if session.as_json:
        session.record(failure_record(session, error))
    else:
        session.complain(error_block(session, _failure(session, error)))
    _debug(session, error)
    return number


def failure_record(session: Session, error: Exception) -> dict[str, object]:
    """What `--json` prints for a stream or file that failed, or for a bug."""
    number = exit_codes.INPUT_OUTPUT if isinstance(error, OSError) else exit_codes.INTERNAL
    return {"error": {**_failure(session, error).as_dict(), "exit_code": number}}


def _failure(session: Session, error: Exception) -> errors.OnymError:
    if not isinstance(error, OSError):
        return errors.OnymError(
            session.masked(f"onym failed in a way that it should not ({type(error).__name__})"),
            code="internal.error",
            hint="ONYM_DEBUG=1 shows where; please report it",
        )
    message = error.strerror or type(error).__name__
    if error.filename is not None:
        message += f": {printable(str(error.filename))}"
    return errors.OnymError(session.masked(message), code="io.failed")


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
    hint = hint_of(session, error)
    if hint is not None:
        fields["hint"] = hint
    return fields


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
