"""The shapes that the fake provider writes: chunks, deltas, vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["call", "chunk", "deltas", "last_text", "sse", "vector", "words"]


def call(identity: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def words(text: str) -> list[str]:
    return [word + " " for word in text.split(" ")[:-1]] + [text.split(" ")[-1]] if text else []


def deltas(
    parts: Sequence[str], reasoning: str | None, calls: Sequence[tuple[str, str, str]]
) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None}
    if reasoning:
        yield {"reasoning_content": reasoning}
    for part in parts:
        yield {"content": part}
    for index, (identity, name, arguments) in enumerate(calls):
        half = len(arguments) // 2
        yield {"tool_calls": [{"index": index, **call(identity, name, arguments[:half])}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]}


def chunk(delta: Mapping[str, Any], *, model: str = "", finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [choice],
    }


def sse(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def last_text(body: Mapping[str, Any]) -> str:
    content = body["messages"][-1].get("content")
    return content if isinstance(content, str) else json.dumps(content)


def vector(text: str) -> list[float]:
    """Three numbers that depend on the text alone."""
    octets = text.encode()
    return [len(octets) / 100, sum(octets) / 10_000, (octets[0] if octets else 0) / 255]
