"""What the answers of several dialects share: members that may be missing or of the wrong kind."""

from __future__ import annotations

from array import array
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from sys import byteorder
from typing import Any

import msgspec

from onym.errors import MalformedResponseError
from onym.llm.types import ToolCall, Usage

__all__ = [
    "NO_USAGE",
    "arguments_text",
    "count",
    "json_object",
    "models",
    "one_for_each",
    "text",
    "tool_calls",
    "vector",
    "vector_or_base64",
    "wrong",
]

NO_USAGE = Usage()

#: no answer has so many tokens; what is beyond it fits no column, no metric and no float
_MOST_COUNTED = 2**53


def wrong(text: str) -> MalformedResponseError:
    """A member that is not what the dialect promises; whoever knows the exchange says where."""
    return MalformedResponseError(text)


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The object that this JSON is, None where it is none."""
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def arguments_text(value: Any) -> str:
    """A tool call's arguments as JSON text: some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def count(value: Any) -> int | None:
    """A count of tokens, None for what is absent or no count."""
    return value if type(value) is int and 0 <= value < _MOST_COUNTED else None


def text(record: Mapping[str, Any], name: str) -> str | None:
    """A member that is text and not empty, else None."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def tool_calls(calls: Any, first: int = 0) -> Iterator[ToolCall]:
    """Calls of functions as OpenAI writes them, whose places begin at `first`; some servers give no ids."""
    if calls is None:
        return
    if not isinstance(calls, list):
        raise wrong("the tool calls are not a list")
    for index, call in enumerate(calls, first):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise wrong("a tool call holds no function")
        name = text(function, "name")
        if name is None:
            raise wrong("a tool call names no function")
        yield ToolCall(
            id=text(call, "id") or f"call_{index}",
            name=name,
            arguments=arguments_text(function.get("arguments")),
        )


def models(records: Any) -> list[dict[str, Any]]:
    """The records of a list of models, without what is no record."""
    if not isinstance(records, list):
        raise wrong("it holds no list of models")
    return [each for each in records if isinstance(each, dict)]


def one_for_each(found: Any, count: int) -> list[Any]:
    """A list of as many vectors, or their records, as there were texts."""
    if not isinstance(found, list) or len(found) != count:
        raise wrong("it does not hold one vector for each text")
    return found


def vector(value: Any) -> Sequence[float]:
    """A list of numbers as floats; MalformedResponseError where it is none."""
    if not isinstance(value, list) or not value or not all(type(each) in (float, int) for each in value):
        raise wrong("a vector is not a list of numbers")
    try:
        return tuple(map(float, value))
    except OverflowError:
        raise wrong("a vector holds a number that is too large") from None


def vector_or_base64(value: Any) -> Sequence[float]:
    """A list of numbers, or base64 of little-endian 32-bit floats; MalformedResponseError for neither."""
    return _from_base64(value) if isinstance(value, str) else vector(value)


def _from_base64(coded: str) -> Sequence[float]:
    try:
        data = b64decode(coded, validate=True)
    except ValueError:
        data = b""
    if not data or len(data) % 4:
        raise wrong("a vector is not base64 of 32-bit floats")
    numbers = array("f", data)
    if byteorder == "big":  # pragma: no cover - the machines of this project are little-endian
        numbers.byteswap()
    return tuple(numbers)
