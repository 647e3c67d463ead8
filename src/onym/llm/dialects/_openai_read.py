"""The members that full answers and stream chunks of the OpenAI chat dialect share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.dialects._read import NO_USAGE, count, wrong
from onym.llm.types import FinishReason, Usage

__all__ = [
    "finish_reason",
    "read_reasoning",
    "read_text",
    "read_usage",
]

_FINISHES: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def finish_reason(value: Any) -> FinishReason:
    """The server's word in Onym's vocabulary; `other` for a word that is not known, or for none."""
    return _FINISHES.get(value, "other") if isinstance(value, str) else "other"


def read_text(message: Mapping[str, Any]) -> str:
    """The text of a message or delta; a refusal's text where there is no other."""
    content = message.get("content")
    if isinstance(content, str) and content:
        return content
    if isinstance(content, list):
        return "".join(_part(part, "text") for part in content)
    if content is not None and not isinstance(content, str):
        raise wrong("the content is neither text nor parts")
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def read_reasoning(message: Mapping[str, Any]) -> str:
    """The reasoning text of a message or delta, under any of the names that servers give it."""
    value = message.get("reasoning_content") or message.get("reasoning")
    if type(value) is str:
        return value
    content = message.get("content")
    if type(content) is list:
        return "".join(_part(part, "thinking") for part in content)
    return ""


def _part(part: Any, kind: str) -> str:
    """What a content part says, if it is of this kind: text, or a list of parts (Mistral's thinking)."""
    if not isinstance(part, dict):
        raise wrong("a part of the content is not an object")
    value = part.get(kind) if part.get("type") == kind else None
    if isinstance(value, list) and kind != "text":
        # one step down and no further: what nests without end would end the stack
        return "".join(_part(each, "text") for each in value)
    return value if isinstance(value, str) else ""


def read_usage(record: Any) -> Usage:
    """Token counts, None for what is absent or no count."""
    if not isinstance(record, dict):
        return NO_USAGE
    prompt, completion = record.get("prompt_tokens_details"), record.get("completion_tokens_details")
    cached = count(prompt.get("cached_tokens")) if isinstance(prompt, dict) else None
    if cached is None:
        cached = count(record.get("prompt_cache_hit_tokens"))
    return Usage(
        input_tokens=count(record.get("prompt_tokens")),
        output_tokens=count(record.get("completion_tokens")),
        cached_tokens=cached,
        reasoning_tokens=count(completion.get("reasoning_tokens")) if isinstance(completion, dict) else None,
    )
