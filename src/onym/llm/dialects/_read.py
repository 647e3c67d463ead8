"""What the answers of several dialects share: members that may be missing or of the wrong kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from onym.errors import MalformedResponseError
from onym.llm.types import Usage

__all__ = ["NO_USAGE", "arguments_text", "count", "text", "vector", "wrong"]

NO_USAGE = Usage()


def wrong(text: str) -> MalformedResponseError:
    """A member that is not what the dialect promises; whoever knows the exchange says where."""
    return MalformedResponseError(text)


def arguments_text(value: Any) -> str:
    """A tool call's arguments as JSON text: some servers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def count(value: Any) -> int | None:
    """A count of tokens, None for what is absent or no count."""
    return value if type(value) is int and value >= 0 else None


def text(record: Mapping[str, Any], name: str) -> str | None:
    """A member that is text and not empty, else None."""
    value = record.get(name)
    return value if isinstance(value, str) and value else None


def vector(value: Any) -> Sequence[float]:
    """A list of numbers as floats; MalformedResponseError where it is none."""
    if not isinstance(value, list) or not value or not all(type(each) in (float, int) for each in value):
        raise wrong("a vector is not a list of numbers")
    return tuple(map(float, value))
