"""Anthropic's Messages API format: POST /v1/messages and GET /v1/models. It has no embeddings.

Error bodies: Anthropic (`{"type": "error", "error": {…}, "request_id"}`), llama.cpp and LiteLLM's proxy
(`error` with `code`), Vertex AI (with a status in `code`), Bedrock (only `message`), FastAPI (`detail`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onym import errors
from onym.llm import dialects, types
from onym.llm.dialects import codec
from onym.llm.dialects.streaming import EventDecoder, make_stream_decoder
from onym.llm.dialects.strict_schema import convert_tool, make_anthropic_schema
from onym.llm.parameters import list_wire_names
from onym.net.messages import SSEEvent
from onym.uri.components import QUERY_VALUE

#: decisive wherever they are: in `details.error_code`, which names the cause, in `type` or in `code`
_ERROR_CODES: Mapping[str, type[errors.ProviderError]] = codec.invert_table(
    {
        errors.AuthenticationError: "authentication_error",
        errors.QuotaError: (
            "billing_error contract_spend_limit_reached enforced_spend_limit_reached "
            "linked_organization_billing_unavailable linked_organization_spend_limit_reached"
        ),
        errors.PermissionDeniedError: "permission_error organization_on_hold",
        errors.NotFoundError: "not_found_error",
        errors.RateLimitError: "rate_limit_error",
        errors.OverloadedError: "overloaded_error",
        # llama.cpp, on all of its routes
        errors.ContextLengthError: "exceed_context_size_error",
    }
)

#: codes of many failures: they decide only if no status says more (inside a stream, in a 200 response)
_WIDE_CODES: Mapping[str, type[errors.ProviderError]] = {
    "invalid_request_error": errors.BadRequestError,
    "request_too_large": errors.BadRequestError,
    "timeout_error": errors.ServerError,
    "api_error": errors.ServerError,
}


def _is_failure(data: Mapping[str, Any]) -> bool:
    return dialects.has_error(data) or data.get("type") == "error"


def _decode_error_details(data: Any) -> dialects.ErrorDetails | None:
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict):
        return _decode_error_record(error)
    if isinstance(error, str):
        return dialects.ErrorDetails(error)
    detail = data.get("detail")
    if isinstance(detail, dict):
        return _decode_error_record(detail)
    return dialects.ErrorDetails(detail) if isinstance(detail, str) else _decode_error_record(data)


def _decode_error_record(error: Mapping[str, Any]) -> dialects.ErrorDetails:
    text = error.get("message")
    return dialects.ErrorDetails(
        text if isinstance(text, str) else "",
        tuple(_iter_error_codes(error)),
        status=dialects.parse_error_status(error.get("code")),
    )


def _iter_error_codes(error: Mapping[str, Any]) -> Iterator[str]:
    for value in (codec.get_member(error, "details", "error_code"), error.get("type"), error.get("code")):
        if (
            isinstance(value, str)
            and value not in ("", "error")
            and dialects.parse_error_status(value) is None
        ):
            yield value


ERRORS = dialects.ErrorDecoder(
    read=_decode_error_details,
    codes=_ERROR_CODES,
    wide=_WIDE_CODES,
    is_failure=_is_failure,
    hint="Check that this host supports Anthropic's Messages API.",
)


DIALECT = "anthropic_messages"

_FINISHES: Mapping[str, types.FinishReason] = codec.invert_table(
    {
        "stop": "end_turn stop_sequence",
        "length": "max_tokens model_context_window_exceeded",
        "tool_calls": "tool_use",
        "content_filter": "refusal",
    }
)

#: kinds of block that a `Message` represents completely
_PLAIN_BLOCKS = frozenset({"text", "tool_use"})


def _decode_usage(record: Any) -> types.Usage:
    """Return token counts, None for a count that is absent or invalid.

    The API counts tokens read from and written to the prompt cache separately; `input_tokens` is the sum, as
    in other formats.
    """
    cached = codec.find_count(record, "cache_read_input_tokens")
    written = codec.find_count(record, "cache_creation_input_tokens")
    fresh = codec.find_count(record, "input_tokens")
    return types.Usage(
        input_tokens=None if fresh is None else fresh + (cached or 0) + (written or 0),
        output_tokens=codec.find_count(record, "output_tokens"),
        cached_tokens=cached,
        reasoning_tokens=codec.find_count(record, "output_tokens_details", "thinking_tokens"),
    )


#: providers that sign all thinking, and reject the unsigned thinking of a turn that was cut off
_SIGNING_PROVIDERS = frozenset({"anthropic", "vertex"})


def _decode_carried(blocks: Iterable[Mapping[str, Any]], provider: str) -> types.Carried | None:
    """Return the turn's content if some of it must be sent back unchanged: thinking, server tools."""
    parts = tuple(blocks)
    # other servers (DeepSeek, Kimi, MiniMax) do not sign, and need their thinking back with tool calls
    signed = provider in _SIGNING_PROVIDERS or all(part.get("type") == "thinking" for part in parts)
    if not any(_is_carried(part, signed=signed) for part in parts):
        return None
    return types.Carried(dialect=DIALECT, parts=parts, provider=provider)


def _is_carried(block: Mapping[str, Any], *, signed: bool) -> bool:
    kind = block.get("type")
    if kind == "thinking" and signed:
        return codec.get_text(block, "signature") is not None
    return isinstance(kind, str) and kind not in _PLAIN_BLOCKS


parameters = list_wire_names("anthropic_messages")

_API_NAME = "Anthropic Messages"
_TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}


def encode_chat(request: types.Request, spec: dialects.WireSpec) -> dict[str, Any]:
    """Return the body of POST /v1/messages.

    System messages go to the top, and results of parallel tool calls go back in one turn. The API has no
    field for the `name` of a message or the `detail` of an image. Pass-through parameters come last and never
    replace existing values.
    """
    body: dict[str, Any] = {"model": request.model, "messages": list(_encode_messages(request, spec))}
    system = [message.content for message in request.messages if message.role == "system"]
    if system:
        body["system"] = _encode_system(system)
    codec.encode_params(body, request, spec, parameters, _encode_format)
    if request.tools or request.provider_tools:
        body["tools"] = codec.encode_tools(request, _API_NAME, _encode_tool)
        if request.tool_choice is not None:
            body["tool_choice"] = _encode_tool_choice(request.tool_choice)
    if request.stream:
        body["stream"] = True
    codec.merge_extra(body, request.extra)
    return body


def _encode_messages(request: types.Request, spec: dialects.WireSpec) -> Iterator[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for message in request.messages:
        if message.role == "tool":
            if not results:
                yield {"role": "user", "content": results}
            results.append(_encode_tool_result(message))
            continue
        if message.role != "system":
            # a system message goes to the top and does not separate results
            results = []
            yield {"role": message.role, "content": _encode_content(message, spec)}


def _encode_content(message: types.Message, spec: dialects.WireSpec) -> str | list[dict[str, Any]]:
    if message.role != "assistant":
        return _encode_parts(message.content)
    if message.carried is not None and spec.may_carry(message.carried, DIALECT):
        return [dict(part) for part in message.carried.parts]
    blocks = _encode_text_parts(message.content, "assistant")
    if not message.tool_calls:
        return blocks
    return _to_blocks(blocks) + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": codec.parse_arguments(call)}
        for call in message.tool_calls
    ]


def _encode_system(contents: Sequence[types.Content]) -> str | list[dict[str, Any]]:
    """Return the system messages as one text, or as blocks if one of them has parts."""
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(str(content) for content in contents)
    return [block for content in contents for block in _to_blocks(_encode_text_parts(content, "system"))]


def _to_blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return blocks for a text; empty, because the API rejects empty blocks, for an empty text."""
    if isinstance(content, str):
        return [_encode_text(content)] if content else []
    return content


def _encode_parts(content: types.Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_encode_part(part) for part in content]


def _encode_text_parts(content: types.Content, role: str) -> str | list[dict[str, Any]]:
    """Return the content of an assistant's or a system message, which may contain only text."""
    codec.require_texts(content, _API_NAME, f"a message of role {role}")
    return _encode_parts(content)


def _encode_tool_result(message: types.Message) -> dict[str, Any]:
    if not message.tool_call_id:
        raise codec.make_message_error(
            "a message of role tool has no tool_call_id, which names the call that it answers"
        )
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": _encode_parts(message.content),
    }


def _encode_part(part: types.ContentPart) -> dict[str, Any]:
    if isinstance(part, types.TextPart):
        block = _encode_text(part.text)
    elif isinstance(part, types.ImagePart):
        block = {"type": "image", "source": _encode_source(part)}
    else:
        block = {"type": "document", "source": _encode_document(part)}
        if part.name is not None:
            block["title"] = part.name
    if part.cache_control is not None:
        block["cache_control"] = part.cache_control
    return block


def _encode_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _encode_source(part: types.ImagePart | types.DocumentPart) -> dict[str, Any]:
    if part.data is None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type, "data": codec.encode_base64(part)}


def _encode_document(part: types.DocumentPart) -> dict[str, Any]:
    if part.data is None or part.media_type == "application/pdf":
        return _encode_source(part)
    if not part.media_type.startswith("text/"):
        raise codec.make_part_error(
            "audio" if codec.is_audio(part) else "documents that are neither PDF nor text",
            _API_NAME,
            hint="Convert the document, or pass its text.",
        )
    text = codec.decode_document(part, "the text document is not UTF-8")
    return {"type": "text", "media_type": "text/plain", "data": text}


def _encode_tool(tool: types.Tool) -> dict[str, Any]:
    tool = convert_tool(tool, make_anthropic_schema)
    out: dict[str, Any] = {"name": tool.name, "input_schema": tool.parameters or {"type": "object"}}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.strict is not None:
        out["strict"] = tool.strict
    if tool.cache_control is not None:
        out["cache_control"] = tool.cache_control
    return out


def _encode_tool_choice(choice: str) -> dict[str, Any]:
    if choice in _TOOL_CHOICES:
        return {"type": _TOOL_CHOICES[choice]}
    return {"type": "tool", "name": choice}


def _encode_format(value: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if value != "json_schema":
        raise errors.UnsupportedError(
            f"the {_API_NAME} API has no JSON mode without a schema",
            code="llm.no-format",
            parameter="format",
            hint="Use format=json_schema with a schema.",
        )
    return {"type": "json_schema", "schema": dict(make_anthropic_schema(schema or {}).schema)}


@ERRORS.decode_objects
def decode_chat(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.Completion:
    """Return the completion in a 2xx response to POST /v1/messages.

    Unknown kinds of block are only in `raw` and `carried`. Raises MalformedResponseError, or the error that
    the body describes.
    """
    blocks = codec.require_objects(
        data.get("content"), "it has no content", "a block of the content is not an object"
    )
    return types.Completion(
        text="".join(_list_texts(blocks, "text")),
        model=codec.get_text(data, "model") or exchange.model,
        finish_reason=codec.find_finish_reason(_FINISHES, data.get("stop_reason")),
        reasoning="".join(_list_texts(blocks, "thinking")) or None,
        tool_calls=_decode_tool_calls(blocks),
        usage=_decode_usage(data.get("usage")),
        request_id=dialects.find_request_id(headers, exchange),
        carried=_decode_carried(blocks, exchange.provider),
        raw=data,
    )


@ERRORS.decode_objects
def decode_models(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelPage:
    """Return the models in a 2xx response to GET /v1/models, and the query of the next page."""
    models = tuple(map(_decode_model_info, codec.require_model_records(data.get("data"), "id")))
    last = codec.get_text(data, "last_id") if data.get("has_more") is True else None
    query = None if last is None else f"after_id={QUERY_VALUE.quote(last)}&limit=1000"
    return types.ModelPage(models, query)


@ERRORS.decode_objects
def decode_model(
    record: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelInfo:
    """Return the model in a 2xx response to GET /v1/models/{model}."""
    return _decode_model_info(codec.require_model_record(record, "id"))


def _list_texts(blocks: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """Return the texts of the blocks of this kind. The kind is also the name of the member."""
    values = [block.get(kind) for block in blocks if block.get("type") == kind]
    texts = [item for item in values if isinstance(item, str)]
    if len(texts) != len(values):
        raise codec.make_malformed_error(f"a block of {kind} has no text")
    return texts


def _decode_tool_calls(blocks: Sequence[Mapping[str, Any]]) -> tuple[types.ToolCall, ...]:
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    return tuple(
        codec.make_tool_call(
            codec.get_text(call, "id") or f"call_{index}",
            call.get("name"),
            codec.encode_arguments(call.get("input")) or "{}",
        )
        for index, call in enumerate(calls)
    )


def _decode_model_info(record: Mapping[str, Any]) -> types.ModelInfo:
    return types.ModelInfo(
        id=record["id"],
        context_window=codec.parse_count(record.get("max_input_tokens")) or None,
        max_output_tokens=codec.parse_count(record.get("max_tokens")) or None,
        # the API returns the epoch for a model whose date it does not know
        created=int(codec.parse_timestamp(record.get("created_at")) or 0) or None,
        raw=record,
    )


#: by kind of delta: its member with the piece, and the member of the block that the piece extends
_DELTA_MEMBERS: Mapping[str, tuple[str, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}

#: by kind of block, which is also the name of its member: the event for a piece
_TEXT_EVENTS: Mapping[str, Callable[[str], types.Event]] = {
    "text": types.TextDelta,
    "thinking": types.ReasoningDelta,
}


class _BlockBuilder:
    """A block of content while it arrives. `call` is its index among the tool calls, if it is one."""

    __slots__ = ("_pieces", "_record", "call", "kind")

    def __init__(self, record: dict[str, Any], call: int | None) -> None:
        kind = record.get("type")
        self.kind = kind if isinstance(kind, str) else ""
        self.call = call
        self._record = record
        self._pieces: dict[str, list[str]] = {}

    def append(self, member: str, piece: str) -> None:
        """Add a piece of a text member, or of `input`, which arrives as JSON text."""
        self._pieces.setdefault(member, []).append(piece)

    def replace_members(self, delta: Mapping[str, Any]) -> None:
        """Set members that arrive whole: a signature, or the summary that replaces earlier turns."""
        self._record.update({name: value for name, value in delta.items() if name != "type"})

    def add_citation(self, citation: Any) -> None:
        """Add a source of the text."""
        if not isinstance(self._record.get("citations"), list):
            self._record["citations"] = []
        self._record["citations"].append(citation)

    def fill_input(self) -> str:
        """Return arguments that did not arrive in pieces: those at the start of the tool call, or `{}`."""
        if self.call is None or "input" in self._pieces:
            return ""
        arguments = codec.encode_arguments(self._record.get("input")) or "{}"
        self.append("input", arguments)
        return arguments

    def to_record(self) -> dict[str, Any] | None:
        """Return the complete block as the API would write it, None if its input is not valid JSON."""
        record = dict(self._record)
        for member, pieces in self._pieces.items():
            joined = "".join(pieces)
            if member != "input":
                before = record.get(member)
                record[member] = (before if isinstance(before, str) else "") + joined
                continue
            try:
                record[member] = msgspec.json.decode(joined)
            except (ValueError, RecursionError):
                return None
        return record


class StreamDecoder(EventDecoder[SSEEvent]):
    """Converts named events to Onym's.

    `Finish` comes at `message_stop`, or at the end of the bytes if a stop reason came but no `message_stop`.
    Unknown kinds of event, block and delta are skipped.
    """

    __slots__ = ("_begun", "_blocks", "_calls", "_counts")
    errors = ERRORS

    def _begin(self) -> None:
        self._begun = False
        self._blocks: dict[int, _BlockBuilder] = {}
        self._calls = 0
        #: usage in the server's format: a later count is a total and replaces an earlier one
        self._counts: dict[str, Any] = {}

    def _decode_frame(self, frame: SSEEvent, events: list[types.Event]) -> bool:
        record = codec.require_json_object(frame.data, "an event")
        kind = record.get("type")
        if kind == "message_stop":
            if not self._begun:
                raise codec.make_malformed_error("the stream has no answer")
            return True
        if kind == "error" or frame.event == "error":
            raise self._make_stream_error(record)
        read = _EVENT_DECODERS.get(kind) if isinstance(kind, str) else None
        if read is not None:
            read(self, record, events)
        elif ERRORS.is_failure(record):
            raise self._make_stream_error(record)
        return False

    def _start_message(self, record: Mapping[str, Any], _: list[types.Event]) -> None:
        message = codec.require_object(record.get("message"), "the stream's first event has no message")
        self._begun = True
        self._model = codec.get_text(message, "model")
        self._update_usage(message.get("usage"))

    def _start_block(self, record: Mapping[str, Any], events: list[types.Event]) -> None:
        block, index = record.get("content_block"), record.get("index")
        if not isinstance(block, dict) or type(index) is not int or index in self._blocks:
            raise codec.make_malformed_error("a block of the content has an invalid start")
        if block.get("type") != "tool_use":
            self._blocks[index] = _BlockBuilder(block, None)
            # usually empty: the text arrives in pieces
            kind = self._blocks[index].kind
            if kind == "fallback":
                # another model answers from here on
                served = codec.get_member(block, "to", "model")
                self._model = served if isinstance(served, str) else self._model
            if kind in _TEXT_EVENTS and (first := codec.get_text(block, kind)) is not None:
                events.append(_TEXT_EVENTS[kind](first))
            return
        name = codec.get_text(block, "name")
        if name is None:
            raise codec.make_malformed_error("a tool call has no name")
        self._blocks[index] = _BlockBuilder(block, self._calls)
        events.append(types.ToolCallDelta(index=self._calls, id=codec.get_text(block, "id"), name=name))
        self._calls += 1

    def _append_delta(self, record: Mapping[str, Any], events: list[types.Event]) -> None:
        index, delta = record.get("index"), record.get("delta")
        block = self._blocks.get(index) if type(index) is int else None
        if block is None or not isinstance(delta, dict):
            raise codec.make_malformed_error("a piece of the content does not belong to a block")
        if delta.get("type") == "citations_delta":
            block.add_citation(delta.get("citation"))
            return
        if delta.get("type") == "compaction_delta":
            block.replace_members(delta)
            return
        member, piece = _decode_delta(delta)
        if not piece:
            return
        if member in _TEXT_EVENTS:
            # LiteLLM's proxy sends thinking inside a text block: the kind of the piece decides
            if block.kind in _TEXT_EVENTS:
                events.append(_TEXT_EVENTS[member](piece))
        elif member == "input" and block.call is not None:
            events.append(types.ToolCallDelta(index=block.call, arguments=piece))
        if member == "signature":
            block.replace_members({member: piece})
        elif member not in _TEXT_EVENTS or member == block.kind:
            block.append(member, piece)

    def _stop_block(self, record: Mapping[str, Any], events: list[types.Event]) -> None:
        index = record.get("index")
        block = self._blocks.get(index) if type(index) is int else None
        if block is not None:
            _close_block(block, events)

    def _update_message(self, record: Mapping[str, Any], _: list[types.Event]) -> None:
        reason = codec.get_member(record, "delta", "stop_reason")
        if reason is not None:
            self._reason = codec.find_finish_reason(_FINISHES, reason)
        self._update_usage(record.get("usage"))

    def _update_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._counts.update({name: value for name, value in usage.items() if value is not None})
            self.usage = _decode_usage(self._counts)

    def _append_finish(self, events: list[types.Event]) -> None:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        for block in blocks:
            _close_block(block, events)
        whole = [record for block in blocks if (record := block.to_record()) is not None]
        # a call that was cut off cannot be sent back, and a turn with a gap would not be the same turn
        complete = len(whole) == len(blocks)
        self._carried = _decode_carried(whole, self._exchange.provider) if complete else None
        super()._append_finish(events)


_EVENT_DECODERS: Mapping[str, Callable[[StreamDecoder, Mapping[str, Any], list[types.Event]], None]] = {
    "message_start": StreamDecoder._start_message,
    "content_block_start": StreamDecoder._start_block,
    "content_block_delta": StreamDecoder._append_delta,
    "content_block_stop": StreamDecoder._stop_block,
    "message_delta": StreamDecoder._update_message,
}


def _decode_delta(delta: Mapping[str, Any]) -> tuple[str, str]:
    """Return the member of the block that grows, and the piece; two empty strings for an unknown kind."""
    kind = delta.get("type")
    if not isinstance(kind, str) or kind not in _DELTA_MEMBERS:
        return "", ""
    source, member = _DELTA_MEMBERS[kind]
    piece = delta.get(source)
    if not isinstance(piece, str):
        raise codec.make_malformed_error("a piece of the content is not a string")
    return member, piece


def _close_block(block: _BlockBuilder, events: list[types.Event]) -> None:
    arguments = block.fill_input()
    if arguments and block.call is not None:
        events.append(types.ToolCallDelta(index=block.call, arguments=arguments))


name = "anthropic_messages"
routes = dialects.Routes(chat="/v1/messages", models="/v1/models?limit=1000", model="/v1/models/{model}")
#: the next version, 2026-10-21, accepts no sampling parameter for any model
headers = (("anthropic-version", "2023-06-01"),)
#: the API requires a limit; every Claude model supports this one
defaults: dict[str, object] = {"max_tokens": 4096}
formats = frozenset({"json_schema"})
convert_schema = make_anthropic_schema
stream_decoder = make_stream_decoder(decode_chat, StreamDecoder)
decode_error = ERRORS.decode_error


def _encode_vertex_chat(request: types.Request, spec: dialects.WireSpec) -> dict[str, Any]:
    """Return the body of POST …:rawPredict: the model is in the path, the version in the body."""
    body = encode_chat(request, spec)
    del body["model"]
    return {"anthropic_version": "vertex-2023-10-16", **body}


#: the format on Vertex AI, which has no route for models
VERTEX = dialects.make_variant(
    __name__,
    name="anthropic_vertex",
    routes=dialects.Routes(
        chat="/models/{model}:rawPredict",
        stream="/models/{model}:streamRawPredict",
        model_prefix="anthropic/",
    ),
    headers=(),
    encode_chat=_encode_vertex_chat,
)
