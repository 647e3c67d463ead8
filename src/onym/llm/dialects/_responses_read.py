"""The members that full answers and streams of the OpenAI Responses dialect share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from onym.llm.dialects._read import NO_USAGE, arguments_text, count, text, wrong
from onym.llm.types import Carried, FinishReason, ToolCall, Usage

__all__ = [
    "DIALECT",
    "ENCRYPTED",
    "PARAGRAPH",
    "Said",
    "finish_reason",
    "read_carried",
    "read_said",
    "read_tool_call",
    "read_usage",
]

DIALECT = "openai_responses"
#: what asks for the reasoning in a form that can be sent back
ENCRYPTED = "reasoning.encrypted_content"
#: between the parts of a reasoning: each is a paragraph, or several, of its own
PARAGRAPH = "\n\n"

_FINISHES: Mapping[str, FinishReason] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class Said(NamedTuple):
    """One part of what an item says; `kind` and `place` tell the parts of one item apart."""

    kind: str
    place: int
    text: str


def finish_reason(response: Mapping[str, Any], *, calls: bool) -> FinishReason:
    """Why the answer ended, in Onym's vocabulary; `calls` says whether it holds tool calls."""
    if response.get("status") == "completed":
        return "tool_calls" if calls else "stop"
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return _FINISHES.get(reason, "other") if isinstance(reason, str) else "other"


def read_said(item: Mapping[str, Any]) -> Iterator[Said]:
    """The texts of a message (what it refuses with included) or of a reasoning item, in order."""
    if item.get("type") == "message":
        yield from _parts(item.get("content"), {"output_text": "text", "refusal": "refusal"})
    elif item.get("type") == "reasoning":
        yield from _parts(item.get("summary"), {"summary_text": "text"})
        yield from _parts(item.get("content"), {"reasoning_text": "text"})


def _parts(parts: Any, kinds: Mapping[str, str]) -> Iterator[Said]:
    if parts is None:
        return
    if not isinstance(parts, list):
        raise wrong("the content of an item is not a list")
    for place, part in enumerate(parts):
        if not isinstance(part, dict):
            raise wrong("a part of the content is not an object")
        kind = part.get("type")
        if isinstance(kind, str) and kind in kinds and (found := text(part, kinds[kind])):
            yield Said(kind, place, found)


def read_tool_call(item: Mapping[str, Any], index: int) -> ToolCall:
    """The tool call in a `function_call` item."""
    name = text(item, "name")
    if name is None:
        raise wrong("a tool call names no function")
    return ToolCall(
        id=text(item, "call_id") or text(item, "id") or f"call_{index}",
        name=name,
        arguments=arguments_text(item.get("arguments")),
    )


def read_carried(items: Iterable[Mapping[str, Any]]) -> Carried | None:
    """The turn as the API wrote it, where it holds something encrypted.

    Reasoning without it is left out: it is known by its id alone, to a server that keeps nothing.
    """
    items = tuple(items)
    if not any(text(item, "encrypted_content") for item in items):
        return None
    kept = tuple(item for item in items if item.get("type") != "reasoning" or text(item, "encrypted_content"))
    return Carried(dialect=DIALECT, parts=kept)


def read_usage(record: Any) -> Usage:
    """Token counts, None for what is absent or no count."""
    if not isinstance(record, dict):
        return NO_USAGE
    taken, given = record.get("input_tokens_details"), record.get("output_tokens_details")
    return Usage(
        input_tokens=count(record.get("input_tokens")),
        output_tokens=count(record.get("output_tokens")),
        cached_tokens=count(taken.get("cached_tokens")) if isinstance(taken, dict) else None,
        reasoning_tokens=count(given.get("reasoning_tokens")) if isinstance(given, dict) else None,
    )
