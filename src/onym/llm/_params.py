"""The twelve well-known parameters as values of our own API: types and ranges (draft 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from onym.errors import ParameterError

__all__ = ["CLIENT", "DRAFT", "FORMATS", "SENT", "check_value"]

DRAFT = "draft-levy-llm-uri-scheme-00"

#: part of the request, under a name of the dialect's
SENT = ("temp", "max_tokens", "top_p", "top_k", "stop", "seed", "stream", "format", "system")
#: consumed by the client, never sent
CLIENT = ("timeout", "retries", "cache")
FORMATS = ("text", "json", "json_schema")
#: milliseconds; the timers of most runtimes end here, after 24.8 days
_LONGEST_TIMEOUT = 2**31 - 1


def check_value(name: str, value: Any) -> Any:
    """`value` as the well-known parameter `name` takes it, `stop` as a tuple.

    Raises ParameterError, which never shows the value.
    """
    return _CHECKS[name](name, value)


def _refuse(name: str, must: str, *, code: str = "llm.bad-value") -> NoReturn:
    raise ParameterError(f"the parameter {name} {must}", code=code, clause=f"{DRAFT} 6", parameter=name)


def _number(low: float, high: float) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(name, "is a number", code="llm.bad-number")
        if not low <= value <= high:  # nan is in no range
            _refuse(name, f"is from {low:g} to {high:g}", code="llm.out-of-range")
        return value

    return check


def _whole(low: int | None, high: int | None = None) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            _refuse(name, "is a whole number", code="llm.bad-number")
        if low is not None and value < low:
            _refuse(name, f"is at least {low}", code="llm.out-of-range")
        if high is not None and value > high:
            _refuse(name, f"is at most {high}", code="llm.out-of-range")
        return value

    return check


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse(name, "is true or false", code="llm.bad-boolean")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        _refuse(name, "is text")
    return value


def _stops(name: str, value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, Sequence) or not all(isinstance(each, str) and each for each in found):
        _refuse(name, "is a text or a sequence of texts, none of them empty")
    return tuple(found)


def _format(name: str, value: Any) -> str:
    if value not in FORMATS:
        _refuse(name, f"is one of {', '.join(FORMATS)}")
    return str(value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "temp": _number(0, 2),
    "max_tokens": _whole(1),
    "top_p": _number(0, 1),
    "top_k": _whole(0),
    "stop": _stops,
    "seed": _whole(None),
    "stream": _boolean,
    "timeout": _whole(1, _LONGEST_TIMEOUT),
    "retries": _whole(0, 100),
    "cache": _boolean,
    "format": _format,
    "system": _text,
}
