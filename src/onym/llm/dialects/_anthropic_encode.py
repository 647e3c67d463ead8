"""Bodies of the Anthropic Messages dialect: POST /v1/messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from onym.errors import UnsupportedError, UsageError
from onym.llm.dialects._anthropic_decode import no_embeddings
from onym.llm.dialects._anthropic_read import NAME
from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._body import arguments_object, data_base64, merge, no_part, put_params
from onym.llm.types import Content, ContentPart, DocumentPart, ImagePart, Message, Request, TextPart, Tool

__all__ = ["PARAMETERS", "encode_chat", "encode_embed"]

PARAMETERS: Mapping[str, str | None] = {
    "temp": "temperature",
    "max_tokens": "max_tokens",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop_sequences",
    "seed": None,
    "stream": "stream",
    "format": "output_config.format",
    "system": "system",
    "cache": "cache_control",
}

_CALLED = "Anthropic Messages"
_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST /v1/messages.

    System messages go to the top; results of tools that were called together go back in one turn. The
    `name` of a message and the `detail` of an image have no place in this API and are left out.
    Pass-through parameters come last and never replace what is already there.
    """
    body: dict[str, Any] = {"model": request.model, "messages": list(_turns(request.messages))}
    system = [message.content for message in request.messages if message.role == "system"]
    if system:
        body["system"] = _system(system)
    put_params(body, request, spec, PARAMETERS, _format)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _choice(request.tool_choice)
    if request.stream:
        body["stream"] = True
    merge(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> NoReturn:
    """Raises UnsupportedError: the API has no embeddings."""
    raise no_embeddings()


def _turns(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            if not results:
                yield {"role": "user", "content": results}
            results.append(_result(message))
            continue
        if message.role != "system":
            # a system message goes elsewhere, and parts nothing here
            results = []
            yield {"role": message.role, "content": _content(message)}


def _content(message: Message) -> str | list[dict[str, Any]]:
    if message.role != "assistant":
        return _told(message.content)
    if message.carried is not None and message.carried.dialect == NAME:
        return [dict(part) for part in message.carried.parts]
    said = _spoken(message.content, "assistant")
    if not message.tool_calls:
        return said
    return _blocks(said) + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_object(call)}
        for call in message.tool_calls
    ]


def _system(contents: Sequence[Content]) -> str | list[dict[str, Any]]:
    """One text of all system messages, blocks where one of them is in parts."""
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(str(content) for content in contents)
    return [block for content in contents for block in _blocks(_spoken(content, "system"))]


def _blocks(said: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same as blocks; the API takes no empty ones."""
    if isinstance(said, str):
        return [_text(said)] if said else []
    return said


def _told(content: Content) -> str | list[dict[str, Any]]:
    """What a user or a tool says: anything that the API takes."""
    return content if isinstance(content, str) else [_part(part) for part in content]


def _spoken(content: Content, role: str) -> str | list[dict[str, Any]]:
    """What the model or the application says: text alone."""
    if not isinstance(content, str) and not all(isinstance(part, TextPart) for part in content):
        raise no_part(f"image or document in a message of role {role}", _CALLED)
    return _told(content)


def _result(message: Message) -> dict[str, Any]:
    if not message.tool_call_id:
        _refuse("a message of role tool needs tool_call_id here: it says which call is answered")
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": _told(message.content),
    }


def _part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return _text(part.text)
    if isinstance(part, ImagePart):
        return {"type": "image", "source": _source(part)}
    block: dict[str, Any] = {"type": "document", "source": _document(part)}
    if part.name is not None:
        block["title"] = part.name
    return block


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _source(part: ImagePart | DocumentPart) -> dict[str, Any]:
    if part.data is None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type, "data": data_base64(part)}


def _document(part: DocumentPart) -> dict[str, Any]:
    if part.data is None or part.media_type == "application/pdf":
        return _source(part)
    if not part.media_type.startswith("text/"):
        raise no_part("document that is neither PDF nor text", _CALLED, hint="convert it, or pass its text")
    try:
        text = part.data.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is None:
        _refuse("a text document is not UTF-8")
    return {"type": "text", "media_type": "text/plain", "data": text}


def _tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name, "input_schema": tool.parameters or {"type": "object"}}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.strict is not None:
        out["strict"] = tool.strict
    return out


def _choice(choice: str) -> dict[str, Any]:
    if choice in _CHOICES:
        return {"type": _CHOICES[choice]}
    return {"type": "tool", "name": choice}


def _format(value: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if value != "json_schema":
        raise UnsupportedError(
            f"the {_CALLED} API has no JSON mode without a schema",
            code="llm.no-format",
            parameter="format",
            hint="use format=json_schema with a schema",
        )
    return {"type": "json_schema", "schema": dict(schema or {})}


def _refuse(text: str) -> NoReturn:
    raise UsageError(text, code="usage.bad-message")
