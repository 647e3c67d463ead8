"""Parameter values: from decoded text to typed data and back (draft 6 and 10.3).

Readers take decoded text and the limits in force. What they refuse they refuse as `ParameterError`
with a reason that starts like "is not a decimal number"; `_query` puts the name and the offset to it.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

from onym.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onym.uri._limits import Limits

__all__ = [
    "DRAFT",
    "STRUCTURES",
    "bad_value",
    "boolean",
    "float_between",
    "integer_between",
    "octets",
    "text_within",
    "unknown",
    "write_decimal",
    "write_json",
    "write_unknown",
]

DRAFT = "draft-levy-llm-uri-scheme-00"
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?").fullmatch
_INTEGER = re.compile(r"[+-]?[0-9]+").fullmatch
#: the types of structured values
STRUCTURES = (dict, list)
_BOOLEANS = {"true": True, "false": False}
# what a float no longer tells apart from its neighbours: such a decimal stays text, exactly as written
_EXACT = 1e16
# one step of nesting, or a whole JSON string to step over, closed or not
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def bad_value(reason: str, *, code: str = "llm.bad-value", clause: str = "10.3", **more: Any) -> NoReturn:
    """Raise ParameterError for a value; `reason` continues "the parameter NAME ..."."""
    raise ParameterError(reason, code=code, component="query", clause=f"{DRAFT} {clause}", **more)


def octets(text: str) -> int:
    """The length of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def float_between(low: float, high: float) -> Callable[[str, Limits], float]:
    """A reader for decimal numbers from `low` to `high`, both included."""
    usual = _decimals(int(low), int(high)).get

    def read(text: str, limits: Limits) -> float:
        if len(text) > limits.number:
            _too_long(limits.number, "characters")
        value = usual(text)
        if value is not None:
            return value
        if not _NUMBER(text):
            bad_value("is not a decimal number", code="llm.bad-number")
        value = float(text)
        # what rounds to the upper end may be beyond it: 2.00000000000000001
        if low <= value <= high and not (value == high and _beyond(text, high)):
            return value + 0.0  # -0 becomes 0
        bad_value(f"is not from {low:g} to {high:g}", code="llm.out-of-range", clause="6")

    return read


def _beyond(text: str, high: float) -> bool:
    whole, _, fraction = text.partition(".")
    return int(whole) >= high and fraction.strip("0") != ""


def _decimals(low: int, high: int) -> dict[str, float]:
    """Numbers of up to two places by their text: to look one up is faster than to read it."""
    whole = {str(n): float(n) for n in range(low, high + 1)}
    tenths = {f"{n // 10}.{n % 10}": n / 10 for n in range(low * 10, high * 10 + 1)}
    hundredths = {f"{n // 100}.{n % 100:02}": n / 100 for n in range(low * 100, high * 100 + 1)}
    return whole | tenths | hundredths


def integer_between(low: int, high: int) -> Callable[[str, Limits], int]:
    """A reader for whole numbers from `low` to `high`, both included."""

    def read(text: str, limits: Limits) -> int:
        if len(text) > limits.number:
            _too_long(limits.number, "characters")
        # digits alone are the rule, and faster to see than by the expression
        if not (text.isdecimal() and text.isascii()) and not _INTEGER(text):
            bad_value("is not a whole decimal number", code="llm.bad-number")
        value = int(text)
        if low <= value <= high:
            return value
        bad_value(f"is not from {low} to {high}", code="llm.out-of-range", clause="6")

    return read


def boolean(text: str, limits: Limits) -> bool:
    """Read true or false, in any case."""
    value = _BOOLEANS.get(text.lower())
    if value is None:
        bad_value("is neither true nor false", code="llm.bad-boolean")
    return value


def text_within(limit: str) -> Callable[[str, Limits], str]:
    """A reader for text of at most as many octets as the limit of that name."""

    def read(text: str, limits: Limits) -> str:
        bound: int = getattr(limits, limit)
        if octets(text) > bound:
            _too_long(bound, "octets")
        return text

    return read


def _too_long(bound: int, unit: str) -> NoReturn:
    bad_value(f"is longer than {bound} {unit}", code="llm.value-too-long")


def unknown(text: str, limits: Limits) -> Any:
    """The value of a parameter that the draft does not define.

    true or false, a decimal number, a JSON object or array, else text; a JSON string forces text. A
    number beyond the limit, or a fraction too large for a float to show, stays text.
    """
    first = text[:1]
    if first == "{" or first == "[":
        return _structure(text, limits)
    if first == '"':
        text = _forced_text(text, limits.number)
    elif len(text) <= limits.number and _NUMBER(text):
        return _number(text)
    elif (flag := _BOOLEANS.get(text.lower())) is not None:
        return flag
    if octets(text) > limits.value:
        _too_long(limits.value, "octets")
    return text


def _number(text: str) -> int | float | str:
    if "." not in text:
        return int(text)
    value = float(text)
    return value + 0.0 if -_EXACT < value < _EXACT else text


def _forced_text(text: str, number: int) -> str:
    try:
        value: str = _decode_json(text, number)
    except json.JSONDecodeError:
        return text  # it only starts with a quotation mark
    _check_whole(value, text)
    return value


def _structure(text: str, limits: Limits) -> Any:
    if octets(text) > limits.json:
        _too_long(limits.json, "octets of JSON")
    if _deeper(text, limits.depth):
        bad_value(f"nests deeper than {limits.depth} levels", code="llm.too-deep")
    try:
        value = _decode_json(text, limits.number)
    except json.JSONDecodeError:
        bad_value(
            "starts like JSON and is not JSON", code="llm.bad-json", hint="a JSON string forces plain text"
        )
    except RecursionError:  # the caller stands near the end of the stack already
        bad_value("nests too deep to be read here", code="llm.too-deep")
    _check_whole(value, text)
    return value


def _decode_json(text: str, number: int) -> Any:
    """The value of a JSON text that starts at once: no blanks before it."""
    value, end = _decoder(number if len(text) > number else 0).raw_decode(text)
    if end != len(text) and text[end:].strip(" \t\n\r"):
        raise json.JSONDecodeError("extra data", "", 0)
    return value


def _check_whole(value: Any, text: str) -> None:
    """Refuse what can't be written in UTF-8 again: an escape such as \\ud800 alone."""
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            bad_value("holds a lone surrogate", code="llm.bad-json")


def _deeper(text: str, depth: int) -> bool:
    if text.count("[") + text.count("{") <= depth:
        return False
    level = 0
    for mark in _STRUCTURE.findall(text):
        if mark in "[{":
            level += 1
            if level > depth:
                return True
        elif mark in "]}":
            level -= 1
    return False


@lru_cache(maxsize=8)
def _decoder(number: int) -> json.JSONDecoder:
    """A strict JSON decoder for numbers of at most `number` characters, 0 for no limit."""

    def whole(text: str) -> int:
        if len(text) > number:
            bad_value(f"holds a number longer than {number} characters", code="llm.bad-json")
        return int(text)

    def fraction(text: str) -> float:
        value = float(text)
        if not isfinite(value) or 0 < number < len(text):
            bad_value("holds a number that is too long or too large", code="llm.bad-json")
        return value

    return json.JSONDecoder(
        object_pairs_hook=_members,
        parse_int=whole if number else int,
        parse_float=fraction,
        parse_constant=_constant,
    )


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        bad_value("holds a JSON object with one name twice", code="llm.bad-json")
    return value


def _constant(name: str) -> NoReturn:
    bad_value("holds NaN or Infinity, which JSON does not have", code="llm.bad-json")


def write_decimal(value: float) -> str:
    """`value` in decimal notation without exponent, the shortest that reads back (draft 6)."""
    if not isfinite(value):
        bad_value("is not a finite number", code="llm.bad-number", clause="6")
    text = repr(value)
    mantissa, has_exponent, exponent = text.partition("e")
    if not has_exponent:
        return text
    sign = "-" if value < 0 else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits, point = whole + fraction, len(whole) + int(exponent)
    if point > 0:
        return f"{sign}{digits.ljust(point, '0')}.0"
    return f"{sign}0.{'0' * -point}{digits}"


def write_json(value: Mapping[str, Any] | list[Any] | str) -> str:
    """Compact JSON. Raises ParameterError for what JSON can't hold, TypeError for foreign objects."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):  # NaN, Infinity, or an object inside itself
        bad_value("can't be written as JSON", code="llm.bad-json")


def write_unknown(value: Any, limits: Limits) -> str:
    """The text that `unknown` reads as `value`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if _reads_as_itself(value, limits) else write_json(value)
    if isinstance(value, int):
        # bits first: str() of an enormous int is refused by Python itself
        if value.bit_length() > 4 * limits.number or len(str(value)) > limits.number:
            _too_long(limits.number, "characters")
        return str(value)
    if isinstance(value, float):
        text = write_decimal(value)
        if len(text) > limits.number or abs(value) >= _EXACT:
            bad_value("is too large or too small for decimal notation", code="llm.bad-number", clause="6")
        return text
    if isinstance(value, (*STRUCTURES, tuple)):
        return write_json(list(value) if isinstance(value, tuple) else value)
    raise TypeError(f"a parameter can't be a {type(value).__name__}")


def _reads_as_itself(text: str, limits: Limits) -> bool:
    try:
        return isinstance(unknown(text, limits), str) and unknown(text, limits) == text
    except ParameterError:
        return False
