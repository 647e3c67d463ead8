"""Bodies of the OpenAI Responses dialect: POST /responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onym.errors import UsageError
from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._body import data_url, merge, no_part, put, schema_name
from onym.llm.dialects._responses_read import DIALECT, ENCRYPTED
from onym.llm.types import ContentPart, DocumentPart, Message, Request, TextPart, Tool

__all__ = ["PARAMETERS", "encode_chat"]

PARAMETERS: Mapping[str, str | None] = {
    "temp": "temperature",
    "max_tokens": "max_output_tokens",
    "top_p": "top_p",
    "top_k": None,
    "stop": None,
    "seed": None,
    "stream": "stream",
    "format": "text.format",
    "system": "instructions",
}

_CHOICES = frozenset({"auto", "none", "required"})
#: what says how a response is stored: one that runs on without its caller, or joins a kept conversation, is
_STORED = frozenset({"store", "background", "conversation"})
_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST /responses.

    System messages that come first are `instructions`, later ones keep their place. A message's `name` has
    no place in this API and is left out. `store` is false unless pass-through parameters say how the response
    is stored: the API's own default keeps it for 30 days. Pass-through parameters come last and never
    replace what is already there.
    """
    system, rest = _split(request.messages)
    body: dict[str, Any] = {"model": request.model}
    if system:
        body["instructions"] = "\n\n".join(system)
    body["input"] = [item for message in rest for item in _items(message)]
    for name, value in request.params.items():
        wire = spec.names.get(name) or PARAMETERS.get(name)
        if wire is not None:
            put(body, wire, _value(name, value, request.schema))
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _choice(request.tool_choice)
    if request.stream:
        body["stream"] = True
    if _STORED.isdisjoint(request.extra):
        body["store"] = False
    if _reasons(request) and "include" not in request.extra:
        body["include"] = [ENCRYPTED]
    merge(body, request.extra)
    return body


def _reasons(request: Request) -> bool:
    """Whether the model surely is one that reasons: the API refuses to encrypt the reasoning of any other."""
    return "reasoning" in request.extra or any(
        message.carried is not None and message.carried.dialect == DIALECT for message in request.messages
    )


def _split(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """The texts of the system messages at the beginning, and the messages after them."""
    texts: list[str] = []
    for message in messages:
        content = message.content
        if message.role != "system":
            break
        if isinstance(content, str):
            texts.append(content)
        elif all(isinstance(part, TextPart) for part in content):
            texts.append("".join(part.text for part in content if isinstance(part, TextPart)))
        else:
            break
    if len(texts) == len(messages):
        # without input there is nothing to answer
        return [], messages
    return texts, messages[len(texts) :]


def _items(message: Message) -> Iterator[Mapping[str, Any]]:
    """What one turn is on the wire: an assistant's turn and its tool calls are items of their own."""
    if message.role == "tool":
        yield _tool_result(message)
    elif message.role != "assistant":
        yield {"type": "message", "role": message.role, "content": _content(message)}
    elif message.carried is not None and message.carried.dialect == DIALECT:
        # another server may have written them: what claims to be the developer's or the user's is not said
        yield from (part for part in message.carried.parts if part.get("role", "assistant") == "assistant")
    else:
        if message.content:
            yield {"type": "message", "role": "assistant", "content": _said(message)}
        for call in message.tool_calls:
            yield {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }


def _said(message: Message) -> list[dict[str, Any]]:
    """What the assistant said before. Only this form is taken by all servers, a plain text is not."""
    content = message.content
    texts = [content] if isinstance(content, str) else [_text_of(part) for part in content]
    return [{"type": "output_text", "text": text} for text in texts]


def _text_of(part: ContentPart) -> str:
    if not isinstance(part, TextPart):
        raise no_part("image or document in an assistant's turn", "OpenAI Responses")
    return part.text


def _tool_result(message: Message) -> dict[str, Any]:
    if message.tool_call_id is None:
        raise UsageError("a tool's message has a tool_call_id", code="usage.bad-message")
    return {
        "type": "function_call_output",
        "call_id": message.tool_call_id,
        "output": _content(message),
    }


def _content(message: Message) -> str | list[dict[str, Any]]:
    content = message.content
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, DocumentPart):
        return _file(part)
    return {
        "type": "input_image",
        "image_url": part.url if part.data is None else data_url(part),
        # the API's own default; its types, and servers that check by them, ask for one
        "detail": part.detail or "auto",
    }


def _file(part: DocumentPart) -> dict[str, Any]:
    if part.data is None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": data_url(part)}


def _tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "type": "function",
        "name": tool.name,
        "parameters": tool.parameters or _NO_ARGUMENTS,
        # this API reads a missing strict as true, and then demands more of the schema than it says
        "strict": bool(tool.strict),
    }
    if tool.description is not None:
        out["description"] = tool.description
    return out


def _choice(choice: str) -> str | dict[str, Any]:
    return choice if choice in _CHOICES else {"type": "function", "name": choice}


def _value(name: str, value: Any, schema: Mapping[str, Any] | None) -> Any:
    if name == "stop":
        return list(value)
    if name != "format":
        return value
    if value != "json_schema":
        return {"type": "json_object" if value == "json" else value}
    schema = schema or {}
    return {"type": "json_schema", "name": schema_name(schema), "schema": schema, "strict": True}
