"""The members that full answers and stream lines of Ollama's dialect share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onym.llm.dialects._read import arguments_text, count, text, wrong
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
    calls = message.get("tool_calls")
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


def read_usage(data: Mapping[str, Any]) -> Usage:
    """Token counts, None for what is absent or no count. Thinking is part of the output."""
    return Usage(
        input_tokens=count(data.get("prompt_eval_count")), output_tokens=count(data.get("eval_count"))
    )
