"""Bodies of the Bedrock Converse dialect, and of the embedding models that Bedrock invokes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from onym.errors import UnsupportedError, UsageError
from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._body import (
    arguments_object,
    data_base64,
    merge,
    no_part,
    put,
    schema_name,
)
from onym.llm.dialects._read import json_object
from onym.llm.types import ContentPart, DocumentPart, ImagePart, Message, Request, TextPart, Tool, ToolCall

__all__ = ["NAME", "PARAMETERS", "encode_chat", "encode_embed"]

NAME: Final = "bedrock_converse"

PARAMETERS: Mapping[str, str | None] = {
    "temp": "inferenceConfig.temperature",
    "max_tokens": "inferenceConfig.maxTokens",
    "top_p": "inferenceConfig.topP",
    "top_k": None,
    "stop": "inferenceConfig.stopSequences",
    "seed": None,
    "stream": "converse-stream (path)",
    "format": "outputConfig.textFormat",
    "system": "system",
    "cache": "cachePoint",
}

_CACHE_POINT: Final = {"cachePoint": {"type": "default"}}
#: a block that the API may write, and refuses to read
_BLANK: Final = {"text": ""}
_CHOICES: Final[Mapping[str, str]] = {"auto": "auto", "required": "any"}
_IMAGES: Final[Mapping[str, str]] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
_DOCUMENTS: Final[Mapping[str, str]] = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
#: what a document's name may hold, beside single blanks
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_LONGEST_NAME: Final = 190


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST /model/{model}/converse, streamed or not.

    Pass-through parameters come last and never replace what is already there. Raises UnsupportedError for
    what the API has no place for, UsageError for tool arguments that are no JSON object, or a result of no
    call. The `name` of a message and the `detail` of an image have no place and are left out.
    """
    turns = _turns(request.messages)
    body: dict[str, Any] = {"messages": turns}
    system = [block for message in request.messages if message.role == "system" for block in _system(message)]
    if system:
        body["system"] = system
    for name, value in request.params.items():
        if name == "cache":
            _mark(system, turns)
        else:
            put(body, _wire(name, spec), _value(name, value, request.schema))
    if request.tools and request.tool_choice == "none":
        _check_without_tools(turns)
    elif request.tools:
        body["toolConfig"] = _tool_config(request.tools, request.tool_choice)
    merge(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /model/{model}/invoke for an embedding model: each vendor has one of its own.

    Raises UnsupportedError for a model of another vendor, UsageError for several texts where one is taken.
    """
    single, fixed, dimensions = _embedder(model)
    if single and len(texts) != 1:
        raise UsageError(
            f"{model} takes one text a call, and {len(texts)} are given", hint="call once for each text"
        )
    body: dict[str, Any] = {"inputText": texts[0]} if single else {"texts": list(texts)}
    extra = dict(extra)
    if "dimensions" in extra:
        put(body, dimensions, extra.pop("dimensions"))
    merge(body, extra)
    merge(body, fixed)
    return body


class _Embedder(NamedTuple):
    """Whether it takes one text alone, what it demands where nobody says, its name for `dimensions`."""

    single: bool
    fixed: Mapping[str, Any]
    dimensions: str


#: by the start of the model's id; the first that fits
_EMBEDDERS: Final[Mapping[str, _Embedder]] = {
    "amazon.titan-embed-image": _Embedder(True, {}, "embeddingConfig.outputEmbeddingLength"),
    "amazon.titan-embed": _Embedder(True, {}, "dimensions"),
    "cohere.embed": _Embedder(
        False, {"input_type": "search_document", "embedding_types": ["float"]}, "output_dimension"
    ),
}


def _embedder(model: str) -> _Embedder:
    # an ARN ends with the id, and a geography may stand before it
    own = model.rpartition("/")[2]
    for prefix, found in _EMBEDDERS.items():
        if own.startswith(prefix) or own.partition(".")[2].startswith(prefix):
            return found
    raise UnsupportedError(
        f"no shape of embeddings request is known for {model} at Bedrock",
        code="llm.no-embeddings",
        parameter="embeddings",
        model=model,
        hint=f"known are {', '.join(f'{prefix}*' for prefix in _EMBEDDERS)}",
    )


def _wire(name: str, spec: WireSpec) -> str:
    wire = spec.names.get(name) or PARAMETERS[name]
    if wire is None:
        raise UnsupportedError(
            f"the Bedrock Converse API has no parameter for {name}", code="llm.no-parameter", parameter=name
        )
    return wire


def _value(name: str, value: Any, schema: Mapping[str, Any] | None) -> Any:
    if name == "stop":
        return list(value)
    if name != "format":
        return value
    if value != "json_schema":
        raise UnsupportedError(
            "the Bedrock Converse API has no JSON mode without a schema",
            code="llm.no-json",
            parameter="format",
            hint="use format=json_schema",
        )
    schema = schema or {}
    text = msgspec.json.encode(schema).decode()
    return {
        "type": "json_schema",
        "structure": {"jsonSchema": {"schema": text, "name": schema_name(schema)}},
    }


def _mark(system: list[dict[str, Any]], turns: list[dict[str, Any]]) -> None:
    """The end of what is worth caching: the system prompt, or all that the user said where there is none."""
    if system:
        system.append(dict(_CACHE_POINT))
        return
    asked = [turn for turn in turns if turn["role"] == "user"]
    if asked:
        asked[-1]["content"].append(dict(_CACHE_POINT))


def _system(message: Message) -> list[dict[str, Any]]:
    content = message.content
    parts = (TextPart(content),) if isinstance(content, str) else content
    if not all(isinstance(part, TextPart) for part in parts):
        raise no_part("image or document in a system message", "Bedrock Converse")
    # an empty block is refused, and says nothing
    return [{"text": part.text} for part in parts if isinstance(part, TextPart) and part.text]


def _turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Turns of user and assistant, which must alternate: neighbours of one role are one turn."""
    turns: list[dict[str, Any]] = []
    names: set[str] = set()
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"].extend(_content(message, names))
    return turns


def _content(message: Message, names: set[str]) -> list[dict[str, Any]]:
    carried = message.carried
    if carried is not None and carried.dialect == NAME:
        return [dict(part) for part in carried.parts if part != _BLANK]
    if message.role == "tool":
        return [_tool_result(message, names)]
    blocks = _blocks(message.content, names)
    if message.tool_calls:
        blocks = [block for block in blocks if block != _BLANK]
        blocks += [_tool_use(call) for call in message.tool_calls]
    return blocks


def _blocks(content: str | tuple[ContentPart, ...], names: set[str]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}]
    return [_part(part, names) for part in content]


def _part(part: ContentPart, names: set[str]) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    known, what = (_IMAGES, "image") if isinstance(part, ImagePart) else (_DOCUMENTS, "document")
    if part.data is None:
        raise no_part(f"{what} by URL", "Bedrock Converse", hint=f"pass the {what}'s octets as data")
    form = known.get(part.media_type.partition(";")[0].strip().lower())
    if form is None:
        raise no_part(f"{what} of this media type", "Bedrock Converse", hint=f"it takes {', '.join(known)}")
    block: dict[str, Any] = {"format": form}
    if isinstance(part, DocumentPart):
        block["name"] = _document_name(part.name, names)
    return {what: {**block, "source": {"bytes": data_base64(part)}}}


def _document_name(given: str | None, names: set[str]) -> str:
    """A name that the API takes: of few kinds of characters, and no other document's."""
    base = _NOT_IN_NAMES.sub(" ", given or "").strip()[:_LONGEST_NAME].strip() or "document"
    name, number = base, 1
    while name in names:
        number += 1
        name = f"{base} {number}"
    names.add(name)
    return name


def _tool_use(call: ToolCall) -> dict[str, Any]:
    arguments = arguments_object(call)
    return {"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments}}


def _tool_result(message: Message, names: set[str]) -> dict[str, Any]:
    if not message.tool_call_id:
        raise UsageError(
            "a message of role tool needs tool_call_id here: it says which call is answered",
            code="usage.bad-message",
        )
    content = message.content
    # some models take an object alone, and all take one
    found = json_object(content) if isinstance(content, str) else None
    blocks = _blocks(content, names) if found is None else [{"json": found}]
    return {"toolResult": {"toolUseId": message.tool_call_id, "content": blocks}}


def _tool_config(tools: Sequence[Tool], choice: str | None) -> dict[str, Any]:
    config: dict[str, Any] = {"tools": [_tool(tool) for tool in tools]}
    if choice is not None:
        known = _CHOICES.get(choice)
        config["toolChoice"] = {"tool": {"name": choice}} if known is None else {known: {}}
    return config


def _tool(tool: Tool) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    # the API demands a schema of an object, also of a tool that takes nothing
    spec["inputSchema"] = {"json": tool.parameters or {"type": "object", "properties": {}}}
    if tool.strict is not None:
        spec["strict"] = tool.strict
    return {"toolSpec": spec}


def _check_without_tools(turns: Sequence[Mapping[str, Any]]) -> None:
    """`none` has no word in this API: tools that are left out cannot be called.

    But with calls in the turns it demands to see the tools.
    """
    if any("toolUse" in block or "toolResult" in block for turn in turns for block in turn["content"]):
        raise UnsupportedError(
            "the Bedrock Converse API has no tool_choice none once a tool was called",
            code="llm.no-tool-choice",
            parameter="tool_choice",
            hint="use auto",
        )
