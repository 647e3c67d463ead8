"""The standard `llm://` parameters: names, types and ranges (draft, section 6).

The draft and Onym's Python API use the same values. How a wire format calls a parameter is in its dialect,
in a provider's row and in a model's profile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from onym.errors import ParameterError

DRAFT = "draft-levy-llm-uri-scheme-00"

#: part of the request, under a name of the dialect's
REQUEST_PARAMETERS = ("temp", "max_tokens", "top_p", "top_k", "stop", "seed", "stream", "format", "system")
#: consumed by the client, never sent
CLIENT_PARAMETERS = ("timeout", "retries", "cache")
FORMATS = ("text", "json", "json_schema")
#: milliseconds; the timers of most runtimes end here, after 24.8 days
_LONGEST_TIMEOUT = 2**31 - 1


def validate_parameter(name: str, value: Any) -> Any:
    """`value` as the well-known parameter `name` takes it, `stop` as a tuple.

    Raises ParameterError, which never shows the value.
    """
    return _CHECKS[name](name, value)


def _raise_parameter_error(name: str, must: str, *, code: str = "llm.bad-value") -> NoReturn:
    raise ParameterError(f"the parameter {name} {must}", code=code, clause=f"{DRAFT} 6", parameter=name)


def _make_number_check(low: float, high: float) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            _raise_parameter_error(name, "is a number", code="llm.bad-number")
        if not low <= value <= high:  # nan is in no range
            _raise_parameter_error(name, f"is from {low:g} to {high:g}", code="llm.out-of-range")
        return value

    return check


def _make_integer_check(low: int | None, high: int | None = None) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            _raise_parameter_error(name, "is a whole number", code="llm.bad-number")
        if low is not None and value < low:
            _raise_parameter_error(name, f"is at least {low}", code="llm.out-of-range")
        if high is not None and value > high:
            _raise_parameter_error(name, f"is at most {high}", code="llm.out-of-range")
        return value

    return check


def _validate_boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _raise_parameter_error(name, "is true or false", code="llm.bad-boolean")
    return value


def _validate_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        _raise_parameter_error(name, "is text")
    return value


def _validate_stop(name: str, value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, Sequence) or not all(isinstance(each, str) and each for each in found):
        _raise_parameter_error(name, "is a text or a sequence of texts, none of them empty")
    return tuple(found)


def _validate_format(name: str, value: Any) -> str:
    if value not in FORMATS:
        _raise_parameter_error(name, f"is one of {', '.join(FORMATS)}")
    return str(value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "temp": _make_number_check(0, 2),
    "max_tokens": _make_integer_check(1),
    "top_p": _make_number_check(0, 1),
    "top_k": _make_integer_check(0),
    "stop": _validate_stop,
    "seed": _make_integer_check(None),
    "stream": _validate_boolean,
    "timeout": _make_integer_check(1, _LONGEST_TIMEOUT),
    "retries": _make_integer_check(0, 100),
    "cache": _validate_boolean,
    "format": _validate_format,
    "system": _validate_text,
}
