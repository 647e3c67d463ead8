"""The members that full answers and stream events of the Cohere dialect share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.dialects._read import NO_USAGE, count, wrong
from onym.llm.types import FinishReason, Usage

__all__ = ["finish_reason", "read_usage", "record", "whole_number"]

_FINISHES: Mapping[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
}


def finish_reason(value: Any) -> FinishReason:
    """The server's word in Onym's vocabulary; `other` for a word that is not known, or for none."""
    return _FINISHES.get(value, "other") if isinstance(value, str) else "other"


def read_usage(value: Any) -> Usage:
    """Token counts, None for what is absent or no count.

    `tokens` are what the model read and wrote; `billed_units` leave out what Cohere adds to a prompt, and
    count only where nothing else does.
    """
    if not isinstance(value, dict):
        return NO_USAGE
    for name in ("tokens", "billed_units"):
        counts = value.get(name)
        if isinstance(counts, dict):
            given, made = whole_number(counts.get("input_tokens")), whole_number(counts.get("output_tokens"))
            if given is not None or made is not None:
                break
    else:
        given = made = None
    return Usage(
        input_tokens=given, output_tokens=made, cached_tokens=whole_number(value.get("cached_tokens"))
    )


def whole_number(value: Any) -> int | None:
    """A count, also one that is written as a float: the API calls every number one."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return count(value)


def record(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A member that is an object, empty where it is absent; raises `wrong` for another kind."""
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(f"the {name} is not an object")
    return value
