"""Bodies of the Gemini dialect: POST :generateContent, :batchEmbedContents, and Vertex AI's :predict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from onym.errors import UsageError
from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._body import arguments_object, data_base64, merge, no_part, put
from onym.llm.dialects._gemini_read import NAME
from onym.llm.dialects._read import json_object
from onym.llm.types import ContentPart, DocumentPart, ImagePart, Message, Request, TextPart, Tool, ToolCall

__all__ = ["PARAMETERS", "encode_chat", "encode_embed", "encode_predict"]

PARAMETERS: Mapping[str, str] = {
    "temp": "generationConfig.temperature",
    "max_tokens": "generationConfig.maxOutputTokens",
    "top_p": "generationConfig.topP",
    "top_k": "generationConfig.topK",
    "stop": "generationConfig.stopSequences",
    "seed": "generationConfig.seed",
    "stream": ":streamGenerateContent",
    "format": "generationConfig.responseMimeType",
    "system": "systemInstruction",
}

_SCHEMA = "generationConfig.responseJsonSchema"
_MODES: Mapping[str, str] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
#: an id that stands in where the API gave none: it is not sent, for the API does not know it
_OWN_ID = re.compile(r"call_\d+", re.ASCII)
#: parameters of embeddings that are called otherwise here
_MEMBERS: Mapping[str, str] = {"dimensions": "outputDimensionality"}
#: members of one text in a :predict request, under both of their names; the others go beside them
_OF_INSTANCE: Mapping[str, str] = {"task_type": "task_type", "taskType": "task_type", "title": "title"}
_DEFAULT_IMAGE = "image/png"
_MEDIA_TYPES: Mapping[str, str] = {
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "webp": "image/webp",
}
_EXTENSION = re.compile(r"\.([A-Za-z]+)(?:[?#].*)?\Z", re.DOTALL)


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST :generateContent, streamed or not.

    Pass-through parameters come last and never replace what is already there. Raises UsageError for
    tool calls or results that cannot be told in this API, UnsupportedError for parts it has no place for.
    """
    body: dict[str, Any] = {"contents": _contents(request.messages)}
    system = [part for each in request.messages if each.role == "system" for part in _system(each)]
    if system:
        body["systemInstruction"] = {"parts": system}
    for name, value in request.params.items():
        wire = spec.names.get(name) or PARAMETERS[name]
        if name == "format":
            if value == "json_schema":
                put(body, _SCHEMA, request.schema or {})
            value = "application/json"
        elif name == "stop":
            value = list(value)
        put(body, wire, value)
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
        calling = _calling(request.tool_choice, request.tools)
        if calling:
            body["toolConfig"] = {"functionCallingConfig": calling}
    merge(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST :batchEmbedContents; parameters belong to each of its requests."""
    requests = []
    name = f"models/{model.removeprefix('models/')}"
    for each in texts:
        one: dict[str, Any] = {"model": name, "content": {"parts": [{"text": each}]}}
        merge(one, {_MEMBERS.get(key, key): value for key, value in extra.items()})
        requests.append(one)
    return {"requests": requests}


def encode_predict(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of Vertex AI's POST :predict for embeddings; the model is in the path alone."""
    beside = {_OF_INSTANCE[name]: value for name, value in extra.items() if name in _OF_INSTANCE}
    body: dict[str, Any] = {"instances": [{"content": each, **beside} for each in texts]}
    if "dimensions" in extra:
        body["parameters"] = {"outputDimensionality": extra["dimensions"]}
    merge(body, {name: value for name, value in extra.items() if name not in {*_OF_INSTANCE, "dimensions"}})
    return body


def _contents(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The turns. The results of one turn's calls are one turn, and each names its function."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    answering = False
    for message in messages:
        if message.role == "system":
            continue
        if message.role == "tool":
            result = _result(message, names)
            if answering:
                contents[-1]["parts"].append(result)
            else:
                contents.append({"role": "user", "parts": [result]})
        elif message.role == "assistant":
            names.update((call.id, call.name) for call in message.tool_calls)
            contents.append({"role": "model", "parts": _model_parts(message)})
        else:
            contents.append({"role": "user", "parts": _parts(message)})
        answering = message.role == "tool"
    return contents


def _model_parts(message: Message) -> list[Any]:
    if message.carried is not None and message.carried.dialect == NAME:
        return list(message.carried.parts)
    calls = [_function_call(call) for call in message.tool_calls]
    return [*(_parts(message) if message.content or not calls else ()), *calls]


def _parts(message: Message) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"text": message.content}]
    return [_part(part) for part in message.content] or [{"text": ""}]


def _system(message: Message) -> list[dict[str, Any]]:
    if not isinstance(message.content, str) and not all(
        isinstance(each, TextPart) for each in message.content
    ):
        raise no_part("image or document in a system message", "Gemini")
    return _parts(message)


def _part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if part.data is None:
        return {"fileData": {"mimeType": _media_type(part), "fileUri": part.url}}
    return {"inlineData": {"mimeType": part.media_type, "data": data_base64(part)}}


def _media_type(part: ImagePart | DocumentPart) -> str:
    """The type of what a URL leads to: the API wants to know it, and people seldom say it of an image."""
    if part.media_type == _DEFAULT_IMAGE and (ending := _EXTENSION.search(part.url or "")):
        return _MEDIA_TYPES.get(ending[1].lower(), part.media_type)
    return part.media_type


def _function_call(call: ToolCall) -> dict[str, Any]:
    arguments = arguments_object(call)
    return {"functionCall": {**_id(call.id), "name": call.name, "args": arguments}}


def _result(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    name = names.get(message.tool_call_id or "") or message.name
    if name is None:
        raise UsageError(
            "a tool's result names no function, which the Gemini API wants",
            code="usage.bad-message",
            hint="pass the assistant's turn with its tool calls too, or name= in the result",
        )
    content = (TextPart(message.content),) if isinstance(message.content, str) else message.content
    said = "\n".join(part.text for part in content if isinstance(part, TextPart))
    response: dict[str, Any] = {**_id(message.tool_call_id), "name": name, "response": _response(said)}
    others = [_part(part) for part in content if not isinstance(part, TextPart)]
    if others:
        response["parts"] = others
    return {"functionResponse": response}


def _response(said: str) -> dict[str, Any]:
    """A JSON object as it is, anything else as a result: the API takes objects alone."""
    value = json_object(said)
    return {"result": said} if value is None else value


def _id(value: str | None) -> dict[str, str]:
    return {} if not value or _OWN_ID.fullmatch(value) else {"id": value}


def _declaration(tool: Tool) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        declaration["description"] = tool.description
    if tool.parameters:
        declaration["parametersJsonSchema"] = tool.parameters
    return declaration


def _calling(choice: str | None, tools: Sequence[Tool]) -> dict[str, Any]:
    """Which calls the model may make. Strictness is a mode of the whole request in this API."""
    if choice in (None, "auto") and all(tool.strict for tool in tools):
        return {"mode": "VALIDATED"}
    if choice is None:
        return {}
    if choice in _MODES:
        return {"mode": _MODES[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}
