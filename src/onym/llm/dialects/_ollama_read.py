"""The members that full answers and stream lines of Ollama's dialect share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onym.llm.dialects._read import count, tool_calls, wrong
from onym.llm.types import FinishReason, ToolCall, Usage

__all__ = ["finish_reason", "read_message", "read_tool_calls", "read_usage"]

_FINISHES: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}


def finish_reason(data: Mapping[str, Any], *, calls: bool) -> FinishReason:
    """Why the answer ended. The server has no word for tool calls, and early ones had none for a stop."""
    if calls:
        return "tool_calls"
    value = data.get("done_reason")
    if value is None and data.get("done") is True:
        return "stop"
    return _FINISHES.get(value, "other") if isinstance(value, str) else "other"


def read_message(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message, which may be a piece of one."""
    message = data.get("message")
    if not isinstance(message, dict):
        raise wrong("it holds no message")
    if not isinstance(message.get("content"), str | None):
        raise wrong("the content is not text")
    return message


def read_tool_calls(message: Mapping[str, Any], first: int = 0) -> Iterator[ToolCall]:
    """The tool calls of a message, whose places begin at `first`: most servers give them no id."""
    return tool_calls(message.get("tool_calls"), first)


def read_usage(data: Mapping[str, Any]) -> Usage:
    """Token counts, None for what is absent or no count. Thinking is part of the output."""
    return Usage(
        input_tokens=count(data.get("prompt_eval_count")), output_tokens=count(data.get("eval_count"))
    )
