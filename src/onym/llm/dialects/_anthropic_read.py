"""The members that full answers and streams of the Anthropic Messages dialect share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onym.llm.dialects._read import NO_USAGE, count, text
from onym.llm.types import Carried, FinishReason, Usage

__all__ = ["NAME", "finish_reason", "read_carried", "read_usage"]

NAME = "anthropic_messages"

_FINISHES: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}

#: kinds of block that a `Message` holds as they are
_PLAIN = frozenset({"text", "tool_use"})


def finish_reason(value: Any) -> FinishReason:
    """The server's word in Onym's vocabulary; `other` for a word that is not known, or for none."""
    return _FINISHES.get(value, "other") if isinstance(value, str) else "other"


def read_usage(record: Any) -> Usage:
    """Token counts, None for what is absent or no count.

    The API counts apart what it read from the prompt cache and what it wrote there: `input_tokens` is
    the sum, as it is elsewhere.
    """
    if not isinstance(record, dict):
        return NO_USAGE
    cached, fresh = count(record.get("cache_read_input_tokens")), count(record.get("input_tokens"))
    written = count(record.get("cache_creation_input_tokens"))
    details = record.get("output_tokens_details")
    return Usage(
        input_tokens=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output_tokens=count(record.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=count(details.get("thinking_tokens")) if isinstance(details, dict) else None,
    )


def read_carried(blocks: Iterable[Mapping[str, Any]]) -> Carried | None:
    """The turn's content where some of it must come back as it was: signed thinking, server tools."""
    parts = tuple(blocks)
    return Carried(dialect=NAME, parts=parts) if any(map(_must_return, parts)) else None


def _must_return(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    if kind == "thinking":
        # some servers think without signing, and nobody wants that back
        return text(block, "signature") is not None
    return isinstance(kind, str) and kind not in _PLAIN
