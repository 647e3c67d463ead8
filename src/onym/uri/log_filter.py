"""A logging filter that removes credentials from log records."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from onym.uri._secret_detection import is_secret_name
from onym.uri.redact import redact
from onym.uri.secret import MARK

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_WITHHELD = "[a log record was withheld: it could not be searched for secrets]"
# nested data deeper than this is dropped, not searched
_DEEPEST = 8


class RedactingFilter(logging.Filter):
    """Removes credentials from each record: message, arguments, traceback, stack and extra fields.

    A traceback with a credential is kept only as text, with its chained exceptions, so that no later
    formatter prints it again. Every record passes, and the filter never raises.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record in place; always True."""
        try:
            _redact_record(record)
        except Exception:  # noqa: BLE001 - an argument's __str__ may raise anything, a log call must not
            record.msg, record.args = _WITHHELD, ()
            record.exc_info = record.exc_text = record.stack_info = None
        return True


def install_logging_filter(logger: logging.Logger | None = None) -> RedactingFilter:
    """Put a `RedactingFilter` on a logger (the root logger if none is given) and on its handlers.

    Call it after you configure logging: the filters of a logger do not see the records of its children, those
    of its handlers do. A second call does not add a second filter.
    """
    target = logging.getLogger() if logger is None else logger
    places: list[logging.Logger | logging.Handler] = [target, *target.handlers]
    if logger is None and logging.lastResort is not None:
        places.append(logging.lastResort)
    present = [old for place in places for old in place.filters if isinstance(old, RedactingFilter)]
    chosen = present[0] if present else RedactingFilter()
    for place in places:
        if not any(isinstance(old, RedactingFilter) for old in place.filters):
            place.addFilter(chosen)
    return chosen


def _redact_record(record: logging.LogRecord) -> None:
    args = record.args
    if args:
        record.args = (
            _redact_data(args, _DEEPEST)
            if isinstance(args, Mapping)
            else tuple(_redact_data(argument, _DEEPEST) for argument in args)
        )
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError):
        # the call was wrong; logging's own handler would print message and arguments unredacted
        message = f"{record.msg} {record.args}"
    record.msg, record.args = redact(message), ()
    _redact_traceback(record)
    if record.stack_info:
        record.stack_info = redact(record.stack_info)
    for name in set(vars(record)) - _STANDARD:
        setattr(record, name, _redact_field(name, getattr(record, name), _DEEPEST))


def _redact_traceback(record: logging.LogRecord) -> None:
    if isinstance(record.exc_info, tuple) and not record.exc_text:
        text = logging.Formatter().formatException(record.exc_info)
        clean = redact(text)
        if clean != text:
            record.exc_text, record.exc_info = clean, None
    elif record.exc_text:
        record.exc_text = redact(record.exc_text)


def _redact_field(name: object, value: Any, depth: int) -> Any:
    secret = isinstance(name, str) and name.lower() != "key" and is_secret_name(name)
    return MARK if secret and isinstance(value, str | bytes) else _redact_data(value, depth)


def _redact_data(value: Any, depth: int) -> Any:
    """Redact the texts inside plain containers; other objects are returned as they are."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redact_field(key, item, depth - 1) for key, item in value.items()} if depth else MARK
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(_redact_data(item, depth - 1) for item in value) if depth else MARK
    return value
