"""Bodies of Ollama's dialect: POST /api/chat and /api/embed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onym.errors import UnsupportedError
from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._body import arguments_object, data_base64, merge, no_part, put_params
from onym.llm.types import DocumentPart, ImagePart, Message, Request, TextPart, Tool, ToolCall

__all__ = ["PARAMETERS", "encode_chat", "encode_embed"]

PARAMETERS: Mapping[str, str] = {
    "temp": "options.temperature",
    "max_tokens": "options.num_predict",
    "top_p": "options.top_p",
    "top_k": "options.top_k",
    "stop": "options.stop",
    "seed": "options.seed",
    "stream": "stream",
    "format": "format",
    "system": "messages[0]",
}

_API = "Ollama"


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST /api/chat.

    Whether to stream is always said: the server streams unasked. Pass-through parameters come last and
    never replace what is already there, those in `options` included. Raises UnsupportedError for what the
    API has no place for, UsageError for tool arguments that are no JSON object.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": list(_messages(request.messages)),
        "stream": request.stream,
    }
    put_params(body, request, spec, PARAMETERS, _format)
    tools = _tools(request)
    if tools:
        body["tools"] = tools
    merge(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /api/embed."""
    body: dict[str, Any] = {"model": model, "input": list(texts)}
    merge(body, extra)
    return body


def _messages(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """The messages. A result is told by its tool's name, so the names of the calls go along."""
    names: dict[str, str] = {}
    for message in messages:
        out = _message(message)
        if message.role == "tool":
            name = message.name or names.get(message.tool_call_id or "")
            if name:
                out["tool_name"] = name
        # ids come again in later turns: the last call of an id is the one that is answered
        names.update((call.id, call.name) for call in message.tool_calls)
        yield out


def _message(message: Message) -> dict[str, Any]:
    content = message.content
    out: dict[str, Any] = {"role": message.role}
    if isinstance(content, str):
        out["content"] = content
    else:
        out["content"] = "\n\n".join(part.text for part in content if isinstance(part, TextPart))
        images = [_image(part) for part in content if not isinstance(part, TextPart)]
        if images:
            out["images"] = images
    if message.tool_calls:
        out["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    return out


def _image(part: ImagePart | DocumentPart) -> str:
    if isinstance(part, DocumentPart):
        raise no_part("document", _API, hint="pass its text")
    if part.data is None:
        raise no_part("image by URL", _API, hint="pass the image's octets as data")
    return data_base64(part)


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": arguments_object(call)}}


def _tools(request: Request) -> list[dict[str, Any]]:
    """The tools to offer: none where none may be called, since the API has no tool_choice."""
    choice = request.tool_choice
    if request.tools and choice not in (None, "auto", "none"):
        raise UnsupportedError(
            f"the {_API} API cannot be told to call a tool",
            code="llm.no-tool-choice",
            parameter="tool_choice",
            hint="use auto",
        )
    return [] if choice == "none" else [_tool(tool) for tool in request.tools]


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.strict:
        raise UnsupportedError(
            f"the {_API} API does not hold tools to their schemas",
            code="llm.no-strict-tools",
            parameter="tools",
            hint="leave the tools' strict out",
        )
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters:
        function["parameters"] = tool.parameters
    return {"type": "function", "function": function}


def _format(value: str, schema: Mapping[str, Any] | None) -> Any:
    return (schema or {}) if value == "json_schema" else value
