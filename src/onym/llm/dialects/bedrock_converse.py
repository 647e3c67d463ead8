"""Amazon Bedrock's Converse API format: POST /model/{model}/converse, /converse-stream and /invoke.

Request signing is elsewhere. The routes of models belong to the control plane, which has its own host.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from onym import errors
from onym.llm import dialects, types
from onym.llm.dialects import codec
from onym.llm.dialects.streaming import EventDecoder, EventFrame, EventStreamFramer, make_stream_decoder
from onym.llm.parameters import list_wire_names

_ERROR_CODES: Mapping[str, type[errors.ProviderError]] = codec.invert_table(
    {
        errors.RateLimitError: (
            "throttlingexception throttledexception toomanyrequestsexception requestlimitexceeded"
        ),
        errors.QuotaError: "servicequotaexceededexception",
        errors.PermissionDeniedError: "accessdeniedexception accessdenied optinrequired",
        errors.AuthenticationError: (
            "unrecognizedclientexception invalidclienttokenid invalidsignatureexception "
            "signaturedoesnotmatch incompletesignature incompletesignatureexception expiredtoken "
            "expiredtokenexception requestexpired missingauthenticationtoken "
            "missingauthenticationtokenexception notauthorized"
        ),
        errors.NotFoundError: "resourcenotfoundexception unknownoperationexception",
        errors.BadRequestError: (
            "validationexception validationerror serializationexception conflictexception"
        ),
        errors.OverloadedError: (
            "modeltimeoutexception modelnotreadyexception serviceunavailableexception serviceunavailable"
        ),
        errors.ServerError: (
            "modelerrorexception modelstreamerrorexception internalserverexception internalfailure"
        ),
    }
)


def _parse_exception_name(value: str) -> str:
    """Return `ThrottlingException` for `com.amazon.coral.service#ThrottlingException:http://…`."""
    return value.partition(":")[0].rpartition("#")[2].strip()


def _is_failure(data: Mapping[str, Any]) -> bool:
    output = data.get("Output")
    return "__type" in data or (isinstance(output, dict) and "__type" in output)


def _decode_error_details(data: Any) -> dialects.ErrorDetails | None:
    if not isinstance(data, dict):
        return None
    output = data.get("Output")
    if isinstance(output, dict):
        # how the service's front end reports an unknown operation
        data = output
    kind = data.get("__type")
    text = data.get("message") or data.get("Message")
    code = _parse_exception_name(kind) if isinstance(kind, str) else ""
    return dialects.ErrorDetails(text if isinstance(text, str) else "", (code,) if code else ())


ERRORS = dialects.ErrorDecoder(
    read=_decode_error_details,
    codes=_ERROR_CODES,
    is_failure=_is_failure,
    hint="Check that this host is an Amazon Bedrock runtime endpoint.",
)


def decode_error(
    status: int, headers: dialects.HeaderMap, body: bytes, exchange: dialects.Exchange = dialects.NO_EXCHANGE
) -> errors.ProviderError:
    """Return the error in a response outside 2xx: its name is in a header, not in the body."""
    kind = headers.get("x-amzn-errortype")
    if kind:
        try:
            data = msgspec.json.decode(body)
        except (ValueError, RecursionError):
            data = {}
        body = msgspec.json.encode({**(data if isinstance(data, dict) else {}), "__type": kind})
    return ERRORS.decode_error(status, headers, body, exchange)


DIALECT: Final = "bedrock_converse"

parameters = list_wire_names("bedrock_converse")

_CACHE_POINT: Final = {"cachePoint": {"type": "default"}}
#: a block that the API may write and rejects in requests
_EMPTY_BLOCK: Final = {"text": ""}
_TOOL_CHOICES: Final[Mapping[str, str]] = {"auto": "auto", "required": "any"}
_IMAGE_FORMATS: Final[Mapping[str, str]] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
_DOCUMENT_FORMATS: Final[Mapping[str, str]] = {
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
#: characters that a document's name may not contain; single spaces are allowed
_INVALID_NAME_TEXT: Final = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_MAX_DOCUMENT_NAME: Final = 190


def encode_chat(request: types.Request, spec: dialects.WireSpec) -> dict[str, Any]:
    """Return the body of POST /model/{model}/converse, streamed or not.

    Pass-through parameters come last and never replace existing values. Raises UnsupportedError for anything
    that the API does not support, and UsageError for tool arguments that are not a JSON object or a result
    without a call. The API has no field for the `name` of a message or the `detail` of an image.
    """
    turns = _encode_messages(request.messages, spec)
    body: dict[str, Any] = {"messages": turns}
    system = [
        block for message in request.messages if message.role == "system" for block in _encode_system(message)
    ]
    if system:
        body["system"] = system
    for name, value in request.params.items():
        if name == "cache":
            _add_cache_point(system, turns)
        else:
            codec.set_member(body, _find_wire_name(name, spec), _encode_value(name, value, request.schema))
    if (request.tools or request.provider_tools) and request.tool_choice == "none":
        _require_no_tool_blocks(turns)
    elif request.tools or request.provider_tools:
        body["toolConfig"] = _encode_tool_config(request)
    codec.merge_extra(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /model/{model}/invoke for an embedding model: every vendor has its own format.

    Raises UnsupportedError for other vendors, and UsageError for several texts if the model accepts one.
    """
    single, fixed, dimensions = _find_embed_model(model)
    if single and len(texts) != 1:
        raise errors.UsageError(
            f"{model} accepts one text per call, but {len(texts)} texts are given",
            hint="Call it once for each text.",
        )
    body: dict[str, Any] = {"inputText": texts[0]} if single else {"texts": list(texts)}
    extra = dict(extra)
    if "dimensions" in extra:
        codec.set_member(body, dimensions, extra.pop("dimensions"))
    codec.merge_extra(body, extra)
    codec.merge_extra(body, fixed)
    return body


class _EmbedModel(NamedTuple):
    """Whether the model accepts only one text, its required members, and its name for `dimensions`."""

    single: bool
    fixed: Mapping[str, Any]
    dimensions: str


#: by the start of the model's ID; the first match is used
_EMBED_MODELS: Final[Mapping[str, _EmbedModel]] = {
    "amazon.titan-embed-image": _EmbedModel(True, {}, "embeddingConfig.outputEmbeddingLength"),
    "amazon.titan-embed": _EmbedModel(True, {}, "dimensions"),
    "cohere.embed": _EmbedModel(
        False, {"input_type": "search_document", "embedding_types": ["float"]}, "output_dimension"
    ),
}


def _find_embed_model(model: str) -> _EmbedModel:
    # an ARN ends with the ID, and a geography may precede the ID
    model_id = model.rpartition("/")[2]
    for prefix, embed_model in _EMBED_MODELS.items():
        if model_id.startswith(prefix) or model_id.partition(".")[2].startswith(prefix):
            return embed_model
    raise errors.UnsupportedError(
        f"Onym does not know the embeddings request of {model} at Bedrock",
        code="llm.no-embeddings",
        parameter="embeddings",
        model=model,
        hint=f"Supported models: {', '.join(f'{prefix}*' for prefix in _EMBED_MODELS)}",
    )


def _find_wire_name(name: str, spec: dialects.WireSpec) -> str:
    wire = spec.names.get(name) or parameters.get(name)
    if wire is None:
        raise errors.UnsupportedError(
            f"the Bedrock Converse API does not support the parameter {name}",
            code="llm.no-parameter",
            parameter=name,
        )
    return wire


def _encode_value(name: str, value: Any, schema: Mapping[str, Any] | None) -> Any:
    if name == "stop":
        return list(value)
    if name != "format":
        return value
    if value != "json_schema":
        raise errors.UnsupportedError(
            "the Bedrock Converse API has no JSON mode without a schema",
            code="llm.no-json",
            parameter="format",
            hint="Use format=json_schema with a schema.",
        )
    schema = schema or {}
    text = msgspec.json.encode(schema).decode()
    return {
        "type": "json_schema",
        "structure": {"jsonSchema": {"schema": text, "name": codec.make_schema_name(schema)}},
    }


def _add_cache_point(system: list[dict[str, Any]], turns: list[dict[str, Any]]) -> None:
    """Add a cache point after the system prompt, or else after the last user message."""
    if system:
        system.append(dict(_CACHE_POINT))
        return
    user_turns = [turn for turn in turns if turn["role"] == "user"]
    if user_turns:
        user_turns[-1]["content"].append(dict(_CACHE_POINT))


def _encode_system(message: types.Message) -> list[dict[str, Any]]:
    codec.require_texts(message.content, "Bedrock Converse", "a system message")
    # the API rejects empty blocks
    return [block for block in _encode_blocks(message.content, set()) if block != _EMPTY_BLOCK]


def _encode_messages(messages: Sequence[types.Message], spec: dialects.WireSpec) -> list[dict[str, Any]]:
    """Return the turns of user and assistant. They must alternate, so adjacent messages are joined."""
    turns: list[dict[str, Any]] = []
    names: set[str] = set()
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1]["role"] != role:
            turns.append({"role": role, "content": []})
        turns[-1]["content"].extend(_encode_content(message, names, spec))
    return turns


def _encode_content(message: types.Message, names: set[str], spec: dialects.WireSpec) -> list[dict[str, Any]]:
    carried = message.carried
    if carried is not None and spec.may_carry(carried, DIALECT):
        return [dict(part) for part in carried.parts if part != _EMPTY_BLOCK]
    if message.role == "tool":
        return [_encode_tool_result(message, names), *_list_cache_points(message.content)]
    blocks = _encode_blocks(message.content, names)
    if message.tool_calls:
        blocks = [block for block in blocks if block != _EMPTY_BLOCK]
        blocks += [_encode_tool_call(call) for call in message.tool_calls]
    return blocks


def _encode_blocks(content: str | tuple[types.ContentPart, ...], names: set[str]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"text": content}]
    return [
        block
        for part in content
        for block in (_encode_part(part, names), *_make_cache_point(part.cache_control))
    ]


def _make_cache_point(cache_control: Mapping[str, Any] | None) -> tuple[dict[str, Any], ...]:
    """Return the block that marks the end of a prefix to cache; none without `cache_control`."""
    if cache_control is None:
        return ()
    ttl = {"ttl": cache_control["ttl"]} if "ttl" in cache_control else {}
    return ({"cachePoint": {**_CACHE_POINT["cachePoint"], **ttl}},)


def _list_cache_points(content: types.Content) -> tuple[dict[str, Any], ...]:
    """Return the last cache point of a tool's result, which comes after the result."""
    marks = [] if isinstance(content, str) else [part.cache_control for part in content if part.cache_control]
    return _make_cache_point(marks[-1] if marks else None)


def _encode_part(part: types.ContentPart, names: set[str]) -> dict[str, Any]:
    if isinstance(part, types.TextPart):
        return {"text": part.text}
    if codec.is_audio(part):
        raise codec.make_part_error("audio", "Bedrock Converse", hint="Pass the text of it.")
    formats, kind = (
        (_IMAGE_FORMATS, "image") if isinstance(part, types.ImagePart) else (_DOCUMENT_FORMATS, "document")
    )
    if part.data is None:
        raise codec.make_part_error(
            f"{kind}s by URL", "Bedrock Converse", hint=f"Pass the {kind}'s bytes as data."
        )
    name = formats.get(part.media_type.partition(";")[0].strip().lower())
    if name is None:
        raise codec.make_part_error(
            f"{kind}s of this media type", "Bedrock Converse", hint=f"Supported types: {', '.join(formats)}."
        )
    block: dict[str, Any] = {"format": name}
    if isinstance(part, types.DocumentPart):
        block["name"] = _make_document_name(part.name, names)
    return {kind: {**block, "source": {"bytes": codec.encode_base64(part)}}}


def _make_document_name(title: str | None, names: set[str]) -> str:
    """Return a unique name with only the characters that the API accepts."""
    base = _INVALID_NAME_TEXT.sub(" ", title or "").strip()[:_MAX_DOCUMENT_NAME].strip() or "document"
    name, number = base, 1
    while name in names:
        number += 1
        name = f"{base} {number}"
    names.add(name)
    return name


def _encode_tool_call(call: types.ToolCall) -> dict[str, Any]:
    arguments = codec.parse_arguments(call)
    return {"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments}}


def _encode_tool_result(message: types.Message, names: set[str]) -> dict[str, Any]:
    if not message.tool_call_id:
        raise codec.make_message_error(
            "a message of role tool has no tool_call_id, which names the call that it answers"
        )
    content = message.content
    # some models accept only an object, and all accept one
    value = codec.parse_json_object(content) if isinstance(content, str) else None
    blocks = _encode_blocks(content, names) if value is None else [{"json": value}]
    blocks = [block for block in blocks if "cachePoint" not in block]
    return {"toolResult": {"toolUseId": message.tool_call_id, "content": blocks}}


def _encode_tool_config(request: types.Request) -> dict[str, Any]:
    choice = request.tool_choice
    tools: list[dict[str, Any]] = []
    for tool in request.tools:
        tools += (_encode_tool(tool), *_make_cache_point(tool.cache_control))
    # tools that the service runs, such as systemTool, and cache points
    tools += codec.list_provider_tools(request, "Bedrock Converse", typed=False)
    config: dict[str, Any] = {"tools": tools}
    if choice is not None:
        known = _TOOL_CHOICES.get(choice)
        config["toolChoice"] = {"tool": {"name": choice}} if known is None else {known: {}}
    return config


def _encode_tool(tool: types.Tool) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    # the API requires an object schema, also for a tool without parameters
    spec["inputSchema"] = {"json": tool.parameters or {"type": "object", "properties": {}}}
    if tool.strict is not None:
        spec["strict"] = tool.strict
    return {"toolSpec": spec}


def _require_no_tool_blocks(turns: Sequence[Mapping[str, Any]]) -> None:
    """Check that no turn contains tool calls. The API has no `none`, so Onym leaves the tools out.

    The API rejects turns with tool calls if the request has no tools.
    """
    if any("toolUse" in block or "toolResult" in block for turn in turns for block in turn["content"]):
        raise errors.UnsupportedError(
            "the Bedrock Converse API does not support tool_choice none after a tool call",
            code="llm.no-tool-choice",
            parameter="tool_choice",
            hint="Use tool_choice auto.",
        )


#: the type of a tool that runs on the server: the caller does not answer its call
_SERVER_TOOL: Final = "server_tool_use"

_FINISHES: Final[Mapping[str, types.FinishReason]] = codec.invert_table(
    {
        "stop": "end_turn stop_sequence",
        "length": "max_tokens model_context_window_exceeded",
        "tool_calls": "tool_use",
        "content_filter": "guardrail_intervened content_filtered",
    }
)
_INPUT_COUNT_HEADER: Final = "x-amzn-bedrock-input-token-count"


@ERRORS.decode_objects
def decode_chat(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.Completion:
    """Return the completion in a 2xx response to POST /model/{model}/converse.

    Raises MalformedResponseError, or the error that the body describes.
    """
    blocks = codec.require_objects(
        codec.get_member(data, "output", "message", "content"),
        "it has no message",
        "a block of the content is not an object",
    )
    calls = [block["toolUse"] for block in blocks if _is_tool_call(block)]
    return types.Completion(
        text="".join(map(_decode_text, blocks)),
        model=exchange.model,
        finish_reason=codec.find_finish_reason(_FINISHES, data.get("stopReason")),
        reasoning="".join(map(_decode_reasoning, blocks)) or None,
        tool_calls=tuple(_decode_tool_call(call, index) for index, call in enumerate(calls)),
        usage=_decode_usage(data.get("usage")),
        request_id=dialects.find_request_id(headers, exchange),
        carried=_decode_carried(blocks, exchange),
        raw=data,
    )


@ERRORS.decode_objects
def decode_embed(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange, *, count: int
) -> types.Embeddings:
    """Return the vectors in a 2xx response to POST /model/{model}/invoke, by Titan or Cohere."""
    return types.Embeddings(
        vectors=tuple(map(codec.decode_vector, codec.require_vector_list(_decode_vectors(data), count))),
        model=exchange.model,
        usage=_decode_embed_usage(data, headers),
        request_id=dialects.find_request_id(headers, exchange),
    )


@ERRORS.decode_objects
def decode_models(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelPage:
    """Return the models in a 2xx response to GET /foundation-models. There is only one page."""
    records = codec.require_model_records(data.get("modelSummaries"), "modelId")
    return types.ModelPage(tuple(map(_decode_model_info, records)))


@ERRORS.decode_objects
def decode_model(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelInfo:
    """Return the model in a 2xx response to GET /foundation-models/{model}."""
    return _decode_model_info(codec.require_model_record(data.get("modelDetails"), "modelId"))


def _decode_usage(record: Any) -> types.Usage:
    """Return token counts, None if absent or invalid. The API counts cached input separately: it is added."""
    fresh, read = codec.find_count(record, "inputTokens"), codec.find_count(record, "cacheReadInputTokens")
    written = codec.find_count(record, "cacheWriteInputTokens")
    return types.Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=codec.find_count(record, "outputTokens"),
        cached_tokens=read,
    )


def _decode_carried(blocks: Sequence[Mapping[str, Any]], exchange: dialects.Exchange) -> types.Carried | None:
    """Return the turn if some of it must go back unchanged: signed reasoning, or tools of the server."""
    if not any(map(_is_carried, blocks)):
        return None
    return types.Carried(dialect=DIALECT, parts=tuple(blocks), provider=exchange.provider)


def _is_carried(block: Mapping[str, Any]) -> bool:
    reasoning = block.get("reasoningContent")
    if isinstance(reasoning, dict):
        text = reasoning.get("reasoningText")
        return "redactedContent" in reasoning or (isinstance(text, dict) and bool(text.get("signature")))
    return "toolResult" in block or ("toolUse" in block and not _is_tool_call(block))


def _decode_text(block: Mapping[str, Any]) -> str:
    """Return the text of a block, also of a block with citations."""
    text = block.get("text", "")
    if not isinstance(text, str):
        raise codec.make_malformed_error("a block's text is not a string")
    pieces = codec.get_member(block, "citationsContent", "content")
    return text + "".join(
        codec.get_text(piece, "text") or ""
        for piece in (pieces if isinstance(pieces, list) else ())
        if isinstance(piece, dict)
    )


def _decode_reasoning(block: Mapping[str, Any]) -> str:
    text = codec.get_member(block, "reasoningContent", "reasoningText", "text")
    return text if isinstance(text, str) else ""


def _is_tool_call(block: Mapping[str, Any]) -> bool:
    call = block.get("toolUse")
    return call is not None and not (isinstance(call, dict) and call.get("type") == _SERVER_TOOL)


def _decode_tool_call(call: Any, index: int) -> types.ToolCall:
    call = codec.require_object(call, "a tool call is not an object")
    return codec.make_tool_call(
        codec.get_text(call, "toolUseId") or f"call_{index}", call.get("name"), call.get("input")
    )


def _decode_vectors(data: Mapping[str, Any]) -> list[Any]:
    """Return the vectors. Titan: `embedding`. Cohere: a list of vectors, or lists by type."""
    if "embedding" in data:
        return [data["embedding"]]
    vectors = data.get("embeddings")
    if isinstance(vectors, dict):
        vectors = vectors.get("float")
    if not isinstance(vectors, list):
        raise codec.make_malformed_error("it has no vectors of floats")
    return vectors


def _decode_embed_usage(data: Mapping[str, Any], headers: dialects.HeaderMap) -> types.Usage:
    tokens = codec.parse_count(data.get("inputTextTokenCount"))
    if tokens is None:
        header = headers.get(_INPUT_COUNT_HEADER) or ""
        tokens = int(header) if header.isascii() and header.isdigit() and len(header) <= 12 else None
    return types.Usage(input_tokens=tokens)


def _decode_model_info(record: dict[str, Any]) -> types.ModelInfo:
    """Return the model. The service reports neither context windows nor parameters."""
    return types.ModelInfo(id=record["modelId"], owner=codec.get_text(record, "providerName"), raw=record)


class StreamDecoder(EventDecoder[EventFrame]):
    """Converts messages of the event stream to events.

    `Finish` comes at `metadata`, the last message, which contains the usage; or at the end of the bytes if
    the response had stopped and `metadata` is missing.
    """

    __slots__ = ("_blocks", "_called")
    framer = EventStreamFramer
    errors = ERRORS

    def _begin(self) -> None:
        self._blocks: dict[int, _BlockBuilder] = {}
        #: the number of tool calls that have begun
        self._called = 0

    def _decode_frame(self, frame: EventFrame, events: list[types.Event]) -> bool:
        kind = frame.get_text(":message-type")
        if kind == "error":
            raise self._make_stream_error(
                {"__type": frame.get_text(":error-code"), "message": frame.get_text(":error-message")}
            )
        if kind == "exception":
            raise self._make_stream_error(
                {
                    **(codec.parse_json_object(frame.payload) or {}),
                    "__type": frame.get_text(":exception-type"),
                }
            )
        name = frame.get_text(":event-type")
        if name not in _EVENT_TYPES:
            return False
        data = codec.require_json_object(frame.payload, "a message")
        if name == "metadata":
            self.usage = _decode_usage(data.get("usage"))
            if self._reason is None:
                raise codec.make_malformed_error("the stream has no answer")
            return True
        if name == "messageStop":
            self._reason = codec.find_finish_reason(_FINISHES, data.get("stopReason"))
            self._carried = _join_carried(self._blocks, self._exchange)
        else:
            self._decode_block(data, "start" if name == "contentBlockStart" else "delta", events)
        return False

    def _decode_block(self, data: Mapping[str, Any], member: str, events: list[types.Event]) -> None:
        """Decode the start of a block, or a piece of it."""
        index, piece = data.get("contentBlockIndex", 0), data.get(member)
        if type(index) is not int or not isinstance(piece, dict):
            raise codec.make_malformed_error(
                f"a block's {member} is not an object, or its index not a number"
            )
        call = piece.get("toolUse")
        if call is not None and not isinstance(call, dict):
            raise codec.make_malformed_error("a tool call is not an object")
        block = self._blocks.setdefault(index, _BlockBuilder())
        block.append_result(member, piece.get("toolResult"))
        if call is not None and member == "start":
            self._start_call(block, call, events)
        elif call is not None:
            _append_call(block, call, events)
        elif member == "delta":
            _append_delta(block, piece, events)

    def _start_call(self, block: _BlockBuilder, call: Mapping[str, Any], events: list[types.Event]) -> None:
        block.server = call.get("type") == _SERVER_TOOL
        if block.server:
            block.call = dict(call)
            return
        name = codec.get_text(call, "name")
        if name is None or block.call is not None:
            raise codec.make_malformed_error("a tool call has no name, or begins twice")
        identity = codec.get_text(call, "toolUseId") or f"call_{self._called}"
        block.call, block.number = {"toolUseId": identity, "name": name}, self._called
        self._called += 1
        events.append(types.ToolCallDelta(index=block.number, id=identity, name=name))


#: the event types that are decoded; others (`messageStart`, `contentBlockStop`, new ones) are skipped
_EVENT_TYPES = frozenset({"contentBlockStart", "contentBlockDelta", "messageStop", "metadata"})


@dataclass(slots=True)
class _BlockBuilder:
    """A block of the response while it arrives; it may have to be sent back. `number` counts tool calls."""

    pieces: dict[str, list[str]] = field(default_factory=dict)
    call: dict[str, Any] | None = None
    number: int = 0
    server: bool = False
    #: the sources of the text, and the result of a tool that the server ran
    citations: list[Any] = field(default_factory=list)
    result: dict[str, Any] | None = None

    def append(self, name: str, record: Mapping[str, Any], member: str) -> str | None:
        """Add the text of a member under `name`, and return it; None if it is absent."""
        text = codec.get_text(record, member)
        if text is not None:
            self.pieces.setdefault(name, []).append(text)
        return text

    def append_result(self, member: str, result: Any) -> None:
        """Add the start of a server's tool result, which is an object, or a piece, which is a list."""
        if member == "start" and isinstance(result, dict):
            self.result = {**result, "content": []}
        elif self.result is not None and isinstance(result, list):
            self.result["content"] += result

    def join_text(self, name: str) -> str:
        return "".join(self.pieces.get(name, ()))

    def to_record(self) -> dict[str, Any] | None:
        """Return the complete block as the API would write it; raises ValueError if it is incomplete."""
        if self.call is not None:
            return {"toolUse": {**self.call, "input": msgspec.json.decode(self.join_text("input") or "{}")}}
        if self.result is not None:
            return {"toolResult": self.result}
        if "sealed" in self.pieces:
            octets = b"".join(b64decode(piece, validate=True) for piece in self.pieces["sealed"])
            return {"reasoningContent": {"redactedContent": b64encode(octets).decode("ascii")}}
        if "thought" in self.pieces or "signature" in self.pieces:
            signature = {"signature": self.join_text("signature")} if "signature" in self.pieces else {}
            return {"reasoningContent": {"reasoningText": {"text": self.join_text("thought"), **signature}}}
        if self.citations:
            content = [{"text": self.join_text("text")}]
            return {"citationsContent": {"content": content, "citations": self.citations}}
        return {"text": self.join_text("text")} if "text" in self.pieces else None


def _append_delta(block: _BlockBuilder, delta: Mapping[str, Any], events: list[types.Event]) -> None:
    text = block.append("text", delta, "text")
    if text is not None:
        events.append(types.TextDelta(text))
    if "citation" in delta:
        block.citations.append(delta["citation"])
    reasoning = delta.get("reasoningContent")
    if isinstance(reasoning, dict):
        thinking = block.append("thought", reasoning, "text")
        if thinking is not None:
            events.append(types.ReasoningDelta(thinking))
        block.append("signature", reasoning, "signature")
        block.append("sealed", reasoning, "redactedContent")


def _append_call(block: _BlockBuilder, call: Mapping[str, Any], events: list[types.Event]) -> None:
    if block.call is None:
        raise codec.make_malformed_error("a piece of a tool call came before its start")
    piece = block.append("input", call, "input")
    if piece is not None and not block.server:
        events.append(types.ToolCallDelta(index=block.number, arguments=piece))


def _join_carried(blocks: Mapping[int, _BlockBuilder], exchange: dialects.Exchange) -> types.Carried | None:
    """Return the turn to send back, None also if a block is incomplete, such as half an object."""
    try:
        whole = [block.to_record() for _, block in sorted(blocks.items())]
    except (ValueError, RecursionError):
        return None
    return _decode_carried([block for block in whole if block is not None], exchange)


name = DIALECT
routes = dialects.Routes(
    chat="/model/{model}/converse",
    stream="/model/{model}/converse-stream",
    embed="/model/{model}/invoke",
    models="/foundation-models",
    model="/foundation-models/{model}",
)
headers = ()
defaults: dict[str, object] = {}
formats = frozenset({"json_schema"})
stream_decoder = make_stream_decoder(decode_chat, StreamDecoder)
