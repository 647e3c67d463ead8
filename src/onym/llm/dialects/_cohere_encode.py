"""Bodies of the Cohere dialect: POST /v2/chat and /v2/embed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from onym.errors import UnsupportedError, UsageError
from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._body import data_url, merge, no_part, put_params
from onym.llm.types import Content, ContentPart, DocumentPart, ImagePart, Message, Request, TextPart, Tool

__all__ = ["PARAMETERS", "encode_chat", "encode_embed"]

PARAMETERS: Mapping[str, str] = {
    "temp": "temperature",
    "max_tokens": "max_tokens",
    "top_p": "p",
    "top_k": "k",
    "stop": "stop_sequences",
    "seed": "seed",
    "stream": "stream",
    "format": "response_format",
    "system": "messages[0]",
}

_API = "Cohere"
#: what stands for `auto` is to say nothing
_CHOICES: Mapping[str, str | None] = {"auto": None, "none": "NONE", "required": "REQUIRED"}
#: the API demands a schema of every tool
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST /v2/chat.

    System messages become one, at the head: the API takes no other. Pass-through parameters come last
    and never replace what is already there. Raises UnsupportedError for what the API has no place for.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(request.messages),
        "stream": request.stream,
    }
    put_params(body, request, spec, PARAMETERS, _format)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if _strict(request.tools):
            body["strict_tools"] = True
        choice = _choice(request.tool_choice)
        if choice is not None:
            body["tool_choice"] = choice
    merge(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /v2/embed.

    The API demands to know what the vectors are for: `input_type` is search_document where the
    caller says nothing, and `embedding_types` is float.
    """
    extra = dict(extra)
    body: dict[str, Any] = {"model": model, "texts": list(texts)}
    if "dimensions" in extra:
        body["output_dimension"] = extra.pop("dimensions")
    merge(body, extra)
    body.setdefault("input_type", "search_document")
    body.setdefault("embedding_types", ["float"])
    return body


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    system = [_system(each.content) for each in messages if each.role == "system"]
    head = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    return [*head, *(_message(each) for each in messages if each.role != "system")]


def _system(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(_only_text(part, "a system message")["text"] for part in content)


def _message(message: Message) -> dict[str, Any]:
    content = message.content
    out: dict[str, Any] = {
        "role": message.role,
        "content": content if isinstance(content, str) else [_PARTS[message.role](part) for part in content],
    }
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        if not out["content"]:
            del out["content"]
        out["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return out


def _only_text(part: ContentPart, where: str = "an assistant's message") -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    raise no_part(f"{'image' if isinstance(part, ImagePart) else 'document'} in {where}", _API)


def _part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, DocumentPart):
        raise no_part(
            "document in a user's message", _API, hint="pass texts to cite as the parameter documents"
        )
    image: dict[str, Any] = {"url": part.url if part.data is None else data_url(part)}
    if part.detail is not None:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _result_part(part: ContentPart) -> dict[str, Any]:
    """A part of a tool's result: text, or a document of text that the model may cite."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        raise no_part("image in a tool's result", _API)
    document: dict[str, Any] = {"data": _document(part)}
    if part.name is not None:
        document["id"] = part.name
    return {"type": "document", "document": document}


def _document(part: DocumentPart) -> dict[str, Any]:
    if part.data is None:
        raise no_part("document by URL", _API, hint="pass the document's octets as data")
    if part.media_type == "application/json":
        try:
            found = msgspec.json.decode(part.data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UsageError("a JSON document of a tool's result is an object", code="usage.bad-message")
        return found
    if not part.media_type.startswith("text/"):
        raise no_part("document that is not text", _API)
    try:
        return {"text": part.data.decode("utf-8")}
    except UnicodeDecodeError:
        pass
    raise UsageError("a text document of a tool's result is UTF-8", code="usage.bad-message")


#: how a part is written, by the role of its message
_PARTS: Mapping[str, Callable[[ContentPart], dict[str, Any]]] = {
    "user": _part,
    "assistant": _only_text,
    "tool": _result_part,
}


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.parameters or dict(_NO_PARAMETERS)}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _strict(tools: Iterable[Tool]) -> bool:
    """Whether all tools are held to their schemas: the API has one switch for all of them."""
    said = {tool.strict for tool in tools} - {None}
    if len(said) > 1:
        raise UnsupportedError(
            f"the {_API} API holds all tools to their schemas or none",
            code="llm.no-strict-tools",
            parameter="tools",
        )
    return True in said


def _choice(choice: str | None) -> str | None:
    if choice is None or choice in _CHOICES:
        return _CHOICES[choice or "auto"]
    raise UnsupportedError(
        f"the {_API} API cannot be told which tool to call",
        code="llm.no-tool-choice",
        parameter="tool_choice",
        hint="pass that tool alone, with tool_choice required",
    )


def _format(value: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if value != "json_schema":
        return {"type": "json_object"}
    return {"type": "json_object", "json_schema": schema or {}}
