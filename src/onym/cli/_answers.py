"""An answer on its way out: to the screen, a pipe, a file or as JSON, whole or as it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from onym.cli._output import Session, dumps, is_terminal
from onym.cli._text import harmless
from onym.llm.types import Completion, Event, Finish, ReasoningDelta, TextDelta, ToolCallDelta, Usage

if TYPE_CHECKING:
    from onym.llm._endpoint import Endpoint

__all__ = [
    "Writer",
    "completion_record",
    "cost_record",
    "event_record",
    "stream_json",
    "stream_text",
    "tell",
    "to_screen",
    "usage_line",
    "usage_record",
]

#: where pieces of output go; the argument is text, line ends included
Writer = Callable[[str], object]

_WHY = {
    "length": "the answer was cut at its token limit (max_tokens)",
    "content_filter": "the provider's filter cut the answer",
}


def to_screen(text: str) -> None:
    """Text to standard output at once; on a terminal nothing in it is obeyed."""
    sys.stdout.write(harmless(text) if is_terminal(sys.stdout) else text)
    sys.stdout.flush()


def stream_text(events: Iterable[Event], write: Writer) -> str:
    """Write text deltas as they come, end the line, and return the whole text."""
    pieces: list[str] = []
    for event in events:
        if isinstance(event, TextDelta):
            pieces.append(event.text)
            write(event.text)
    text = "".join(pieces)
    if not text.endswith("\n"):
        write("\n")
    return text


def stream_json(events: Iterable[Event], write: Writer) -> None:
    """Each event as one JSON line."""
    for event in events:
        write(dumps(event_record(event)) + "\n")


def event_record(event: Event) -> dict[str, Any]:
    """One streamed event as plain data; `type` tells them apart."""
    if isinstance(event, TextDelta):
        return {"type": "text", "text": event.text}
    if isinstance(event, ReasoningDelta):
        return {"type": "reasoning", "text": event.text}
    if isinstance(event, ToolCallDelta):
        body = {"index": event.index, "id": event.id, "name": event.name, "arguments": event.arguments}
        return {"type": "tool_call", **body}
    return {
        "type": "finish",
        "finish_reason": event.reason,
        "model": event.model,
        "request_id": event.request_id,
        "usage": usage_record(event.usage),
    }


def completion_record(completion: Completion) -> dict[str, Any]:
    """A whole answer as plain data."""
    return {
        "text": completion.text,
        "model": completion.model,
        "finish_reason": completion.finish_reason,
        "reasoning": completion.reasoning,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in completion.tool_calls
        ],
        "request_id": completion.request_id,
        "usage": usage_record(completion.usage),
    }


def cost_record(usage: Usage, endpoint: Endpoint) -> dict[str, str] | None:
    """What the tokens cost by the list price, null where that is not known."""
    from onym.llm.prices import cost  # reads a file, which no other output needs

    found = cost(usage, endpoint.provider.name, endpoint.model)
    if found is None:
        return None
    return {
        "amount": f"{found.amount:f}",
        "currency": found.currency,
        "source": found.source,
        "checked": found.checked.isoformat(),
    }


def usage_record(usage: Usage) -> dict[str, int | None]:
    """Token counts by name, null where the server does not say."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": usage.total_tokens,
    }


def usage_line(usage: Usage, began: float, request_id: str | None) -> str:
    """Token counts, seconds since `began` and the server's name for the exchange, on one line."""
    words = [
        f"{count} {what}"
        for count, what in (
            (usage.input_tokens, "tokens in"),
            (usage.output_tokens, "tokens out"),
            (usage.cached_tokens, "cached"),
            (usage.reasoning_tokens, "reasoning"),
        )
        if count is not None
    ]
    words.append(f"{monotonic() - began:.2f} s")
    if request_id is not None:
        words.append(f"request {request_id}")
    return ", ".join(words)


def tell(session: Session, end: Completion | Finish, began: float, *, usage: bool) -> None:
    """After an answer: why it stopped early, and with `--usage` what it took, on standard error."""
    reason = end.finish_reason if isinstance(end, Completion) else end.reason
    if reason in _WHY:
        session.note(_WHY[reason], kind="warning")
    if usage:
        session.note(usage_line(end.usage, began, end.request_id), kind="usage")
