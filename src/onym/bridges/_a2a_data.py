"""JSON in A2A's data parts, whose numbers are doubles: whole ones come as such, some cannot be carried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onym.bridges._ai import levels
from onym.errors import AIIPError

if TYPE_CHECKING:
    from a2a.types import Part

__all__ = ["carries", "data_part", "read_part"]

#: integers up to here are doubles that no other integer is (RFC 8259 6)
_LARGEST: Final = 2**53 - 1
#: levels of a value; the SDK reads 100, two for each of these and some for what is around them
_DEEPEST: Final = 32


def carries(value: Any) -> bool:
    """Whether a data part is this JSON value: no integer beyond 2^53-1, no more than 32 levels."""
    return all(depth < _DEEPEST and all(map(_is_exact, level)) for depth, level in enumerate(levels(value)))


def data_part(value: Any) -> Part:
    """A data part. Raises AIIPError `aiip.invalid-input` for a value that it cannot carry unchanged."""
    from a2a.helpers import new_data_part

    if not carries(value):
        raise AIIPError(
            "A2A cannot carry this data: it has an integer beyond 2^53-1, or more than 32 levels",
            code="aiip.invalid-input",
            hint="write large integers as strings",
        )
    return new_data_part(value)


def read_part(part: Part, code: str = "aiip.invalid-input") -> Any:
    """The JSON value of a data part, its whole numbers as integers; another part as A2A writes it.

    Raises AIIPError of this code for NaN and infinity, which no JSON has.
    """
    from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]

    try:
        found = MessageToDict(part.data if part.WhichOneof("content") == "data" else part)
    except ValueError:
        raise AIIPError("the data has a number that is no JSON", code=code) from None
    return _whole(found)


def _whole(value: Any) -> Any:
    """The value with integers where they are exact. The SDK reads no more than 100 levels."""
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
        return int(value)
    return value


def _is_exact(value: Any) -> bool:
    return not isinstance(value, int) or abs(value) <= _LARGEST
