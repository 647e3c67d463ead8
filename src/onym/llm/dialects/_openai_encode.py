"""Bodies of the OpenAI chat dialect: POST /chat/completions and /embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._body import data_url, merge, no_part, put_params, schema_name
from onym.llm.types import ContentPart, DocumentPart, Message, Request, TextPart, Tool

__all__ = ["PARAMETERS", "encode_chat", "encode_embed", "write_part"]

PARAMETERS: Mapping[str, str] = {
    "temp": "temperature",
    "max_tokens": "max_tokens",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop",
    "seed": "seed",
    "stream": "stream",
    "format": "response_format",
    "system": "messages[0]",
}

_CHOICES = frozenset({"auto", "none", "required"})


def encode_chat(
    request: Request, spec: WireSpec, *, part: Callable[[ContentPart], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The body of POST /chat/completions.

    `part` writes the parts of messages, where a dialect like this one has others. Pass-through parameters
    come last and never replace what is already there.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(each, part or write_part) for each in request.messages],
    }
    put_params(body, request, spec, PARAMETERS, _format)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _choice(request.tool_choice)
    if request.stream:
        body["stream"] = True
        if "stream_options" not in request.extra:
            body["stream_options"] = {"include_usage": True}
    merge(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /embeddings."""
    body: dict[str, Any] = {"model": model, "input": list(texts)}
    merge(body, extra)
    return body


def _message(message: Message, write: Callable[[ContentPart], dict[str, Any]]) -> dict[str, Any]:
    content = message.content
    out: dict[str, Any] = {
        "role": message.role,
        "content": content if isinstance(content, str) else [write(part) for part in content],
    }
    if message.name is not None:
        out["name"] = message.name
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        out["content"] = out["content"] or None
        out["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return out


def write_part(part: ContentPart) -> dict[str, Any]:
    """One part of a message."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, DocumentPart):
        return _file(part)
    image: dict[str, Any] = {"url": part.url if part.data is None else data_url(part)}
    if part.detail is not None:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _file(part: DocumentPart) -> dict[str, Any]:
    if part.data is None:
        raise no_part(
            "document by URL",
            "OpenAI chat",
            hint="pass the document's octets as data",
        )
    return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": data_url(part)}}


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters:
        function["parameters"] = tool.parameters
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: str) -> str | dict[str, Any]:
    if choice in _CHOICES:
        return choice
    return {"type": "function", "function": {"name": choice}}


def _format(value: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if value != "json_schema":
        return {"type": "json_object" if value == "json" else value}
    schema = schema or {}
    # strict: without it the schema is a hint to some servers, and json_schema would promise too much
    return {
        "type": "json_schema",
        "json_schema": {"name": schema_name(schema), "schema": schema, "strict": True},
    }
