"""Ollama's API format: POST /api/chat, POST /api/embed, GET /api/tags and POST /api/show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onym import errors
from onym.llm import dialects, types
from onym.llm.dialects import codec
from onym.llm.dialects.streaming import EventDecoder, LineFramer, make_stream_decoder
from onym.llm.parameters import list_wire_names


def _decode_error_details(data: Any) -> dialects.ErrorDetails | None:
    """Decode the server's own error, or the error of a gateway in front of it."""
    error = codec.get_member(data, "error")
    if isinstance(error, str):
        return dialects.ErrorDetails(error)
    if not isinstance(error, dict):
        return None
    text = error.get("message")
    return dialects.ErrorDetails(
        text if isinstance(text, str) else "", status=dialects.parse_error_status(error.get("code"))
    )


ERRORS = dialects.ErrorDecoder(
    read=_decode_error_details, codes={}, hint="Check that this host is an Ollama server."
)


_FINISHES: Mapping[str, types.FinishReason] = {"stop": "stop", "length": "length"}


def _decode_finish_reason(data: Mapping[str, Any], *, calls: bool) -> types.FinishReason:
    """Return why the response ended. The server marks no tool calls; early versions marked no stop."""
    if calls:
        return "tool_calls"
    value = data.get("done_reason")
    if value is None and data.get("done") is True:
        return "stop"
    return codec.find_finish_reason(_FINISHES, value)


def _require_message(data: Mapping[str, Any]) -> Mapping[str, Any]:
    message = codec.require_object(data.get("message"), "it has no message")
    if not isinstance(message.get("content"), str | None):
        raise codec.make_malformed_error("the content is not a string")
    return message


def _decode_usage(data: Mapping[str, Any]) -> types.Usage:
    """Return token counts, None for a count that is absent or invalid. Thinking is part of the output."""
    return types.Usage(
        input_tokens=codec.parse_count(data.get("prompt_eval_count")),
        output_tokens=codec.parse_count(data.get("eval_count")),
    )


DIALECT = "ollama"

#: `Options` of the ollama 0.6.3 SDK, and min_p of the API's reference. Outside of `options`, the server
#: ignores them without an error
_OPTIONS = (
    "f16_kv frequency_penalty low_vram main_gpu min_p mirostat mirostat_eta mirostat_tau num_batch num_ctx "
    "num_gpu num_keep num_predict num_thread numa penalize_newline presence_penalty repeat_last_n "
    "repeat_penalty temperature tfs_z typical_p use_mlock use_mmap"
)

parameters = {**{name: f"options.{name}" for name in _OPTIONS.split()}, **list_wire_names("ollama")}

_API_NAME = "Ollama"
_NO_FORCED_CALL = f"the {_API_NAME} API cannot force a tool call"


def encode_chat(request: types.Request, spec: dialects.WireSpec) -> dict[str, Any]:
    """Return the body of POST /api/chat.

    `stream` is always sent, because the server streams by default. Pass-through parameters, those in
    `options` included, come last and never replace existing values. Raises UnsupportedError for anything that
    the API does not support, and UsageError for tool arguments that are not a JSON object.
    """
    codec.require_no_cache_control(request, _API_NAME)
    codec.require_no_provider_tools(request, _API_NAME)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": list(_encode_messages(request.messages, spec)),
        "stream": request.stream,
    }
    codec.encode_params(body, request, spec, parameters, _encode_format)
    tools = _encode_tools(request)
    if tools:
        body["tools"] = tools
    codec.merge_extra(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /api/embed."""
    body: dict[str, Any] = {"model": model, "input": list(texts)}
    codec.merge_extra(body, extra)
    return body


def _encode_messages(messages: Sequence[types.Message], spec: dialects.WireSpec) -> Iterator[dict[str, Any]]:
    """Yield the messages. A tool's result carries the tool's name, which is taken from the call."""
    names: dict[str, str] = {}
    for message in messages:
        out = _encode_message(message)
        if message.role == "assistant" and (thinking := _find_thinking(message.carried, spec)):
            out["thinking"] = thinking
        if message.role == "tool":
            name = message.name or names.get(message.tool_call_id or "")
            if name:
                out["tool_name"] = name
        # IDs may repeat in later turns: a result belongs to the last call with its ID
        names.update((call.id, call.name) for call in message.tool_calls)
        yield out


def _encode_message(message: types.Message) -> dict[str, Any]:
    content = message.content
    out: dict[str, Any] = {"role": message.role}
    if isinstance(content, str):
        out["content"] = content
    else:
        out["content"] = "\n\n".join(part.text for part in content if isinstance(part, types.TextPart))
        images = [_encode_image(part) for part in content if not isinstance(part, types.TextPart)]
        if images:
            out["images"] = images
    if message.tool_calls:
        out["tool_calls"] = [_encode_tool_call(call) for call in message.tool_calls]
    return out


def _find_thinking(carried: types.Carried | None, spec: dialects.WireSpec) -> str | None:
    """Return the thinking of a turn that belongs to this server, or that a program wrote."""
    if carried is not None and carried.parts and spec.may_carry(carried, DIALECT):
        return codec.get_text(carried.parts[0], "thinking")
    return codec.get_written_text(carried)


def _encode_image(part: types.ImagePart | types.DocumentPart) -> str:
    if isinstance(part, types.DocumentPart):
        kind = "audio" if codec.is_audio(part) else "documents"
        raise codec.make_part_error(kind, _API_NAME, hint="Pass the text of it.")
    if part.data is None:
        raise codec.make_part_error("images by URL", _API_NAME, hint="Pass the image's bytes as data.")
    return codec.encode_base64(part)


def _encode_tool_call(call: types.ToolCall) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": codec.parse_arguments(call)}}


def _encode_tools(request: types.Request) -> list[dict[str, Any]]:
    """Return the tools; none for tool_choice=none, because the API has no tool_choice."""
    choice = request.tool_choice
    if request.tools and choice not in (None, "auto", "none"):
        raise errors.UnsupportedError(
            _NO_FORCED_CALL,
            code="llm.no-tool-choice",
            parameter="tool_choice",
            hint="Use tool_choice auto.",
        )
    return [] if choice == "none" else [_encode_tool(tool) for tool in request.tools]


def _encode_tool(tool: types.Tool) -> dict[str, Any]:
    if tool.strict:
        raise errors.UnsupportedError(
            f"the {_API_NAME} API cannot enforce the schemas of tools",
            code="llm.no-strict-tools",
            parameter="tools",
            hint="Remove strict from the tools.",
        )
    return codec.encode_tool(tool)


def _encode_format(value: str, schema: Mapping[str, Any] | None) -> Any:
    return (schema or {}) if value == "json_schema" else value


_WINDOW_SUFFIX = ".context_length"


@ERRORS.decode_objects
def decode_chat(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.Completion:
    """Return the completion in a 2xx response to POST /api/chat.

    Raises MalformedResponseError, or the error that the body describes.
    """
    message = _require_message(data)
    calls = tuple(codec.decode_tool_calls(message.get("tool_calls")))
    return types.Completion(
        text=codec.get_text(message, "content") or "",
        model=codec.get_text(data, "model") or exchange.model,
        finish_reason=_decode_finish_reason(data, calls=bool(calls)),
        reasoning=codec.get_text(message, "thinking"),
        tool_calls=calls,
        usage=_decode_usage(data),
        request_id=dialects.find_request_id(headers, exchange),
        carried=_make_carried(codec.get_text(message, "thinking"), exchange),
        raw=data,
    )


def _make_carried(thinking: str | None, exchange: dialects.Exchange) -> types.Carried | None:
    """Return the thinking as the server needs it back: its models read it in the turns of a tool loop."""
    if not thinking:
        return None
    return types.Carried(dialect=DIALECT, parts=({"thinking": thinking},), provider=exchange.provider)


@ERRORS.decode_objects
def decode_embed(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange, *, count: int
) -> types.Embeddings:
    """Return the vectors in a 2xx response to POST /api/embed."""
    return types.Embeddings(
        vectors=tuple(map(codec.decode_vector, codec.require_vector_list(data.get("embeddings"), count))),
        model=codec.get_text(data, "model") or exchange.model,
        usage=_decode_usage(data),
        request_id=dialects.find_request_id(headers, exchange),
    )


@ERRORS.decode_objects
def decode_models(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelPage:
    """Return the models on the server's disk from a 2xx response to GET /api/tags. There is only one page."""
    records = codec.require_model_records(data.get("models"), "model", "name")
    names = (codec.get_text(record, "model") or record["name"] for record in records)
    return types.ModelPage(
        tuple(types.ModelInfo(id=name, raw=record) for name, record in zip(names, records, strict=True))
    )


@ERRORS.decode_objects
def decode_model(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelInfo:
    """Return the model in a 2xx response to POST /api/show, which does not repeat the model's name.

    `context_window` is the model's own limit; the server may use less (`options.num_ctx`).
    """
    facts = data.get("model_info")
    if not isinstance(facts, dict) and not isinstance(data.get("details"), dict):
        raise codec.make_malformed_error("it has no model")
    return types.ModelInfo(
        id=exchange.model,
        context_window=_find_context_window(facts) if isinstance(facts, dict) else None,
        raw=data,
    )


def _find_context_window(facts: Mapping[str, Any]) -> int | None:
    """Return the context length of the model's architecture; other components may have one too."""
    own_name = f"{facts.get('general.architecture')}{_WINDOW_SUFFIX}"
    names = [own_name, *(name for name in facts if name.endswith(_WINDOW_SUFFIX))]
    return next((size for name in names if (size := codec.parse_count(facts.get(name)))), None)


class StreamDecoder(EventDecoder[bytes]):
    """Converts lines of JSON to events. `Finish` comes at `done`; tool calls arrive complete."""

    __slots__ = ("_calls", "_thoughts")
    framer = LineFramer
    errors = ERRORS

    def _begin(self) -> None:
        #: the number of tool calls so far
        self._calls = 0
        self._thoughts: list[str] = []

    def _decode_frame(self, frame: bytes, events: list[types.Event]) -> bool:
        data = codec.require_json_object(frame, "a line")
        if ERRORS.is_failure(data):
            raise self._make_stream_error(data)
        self._model = self._model or codec.get_text(data, "model")
        done = data.get("done") is True
        if not done or "message" in data:
            self._decode_message(_require_message(data), events)
        if not done:
            return False
        self.usage = _decode_usage(data)
        self._reason = _decode_finish_reason(data, calls=self._calls > 0)
        self._carried = _make_carried("".join(self._thoughts), self._exchange)
        return True

    def _decode_message(self, message: Mapping[str, Any], events: list[types.Event]) -> None:
        thinking, text = codec.get_text(message, "thinking"), codec.get_text(message, "content")
        if thinking:
            events.append(types.ReasoningDelta(thinking))
            self._thoughts.append(thinking)
        if text:
            events.append(types.TextDelta(text))
        for call in codec.decode_tool_calls(message.get("tool_calls"), self._calls):
            events.append(
                types.ToolCallDelta(index=self._calls, id=call.id, name=call.name, arguments=call.arguments)
            )
            self._calls += 1


name = DIALECT
routes = dialects.Routes(
    chat="/api/chat", embed="/api/embed", models="/api/tags", model="/api/show", model_body=True
)
headers = ()
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
refuses_choice = dict.fromkeys(("required", "named"), _NO_FORCED_CALL)
stream_decoder = make_stream_decoder(decode_chat, StreamDecoder)
decode_error = ERRORS.decode_error
