"""OpenAI's chat API format: POST /chat/completions, POST /embeddings and GET /models. Most servers use it.

Error bodies: OpenAI, Azure (`innererror`), llama.cpp, vLLM (`type`), LiteLLM's proxy (numbers as text in
`code`), OpenRouter (a status in `code`, also in a stream), FastAPI (`detail`), Google (a list), TGI, Ollama.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from onym import errors
from onym.llm import dialects, types
from onym.llm.dialects import codec, strict_schema
from onym.llm.dialects.streaming import EventDecoder, make_stream_decoder
from onym.llm.parameters import list_wire_names
from onym.net.messages import SSEEvent

#: decisive wherever they are: in `code`, in `innererror.code` or in `type`
ERROR_CODES: Mapping[str, type[errors.ProviderError]] = codec.invert_table(
    {
        errors.AuthenticationError: "invalid_api_key authentication_error auth_error",
        errors.PermissionDeniedError: (
            "account_deactivated permission_error permission_denied insufficient_permissions "
            "unsupported_country_region_territory"
        ),
        errors.NotFoundError: "model_not_found not_found_error notfounderror deploymentnotfound",
        errors.QuotaError: (
            "insufficient_quota exceeded_current_quota_error billing_hard_limit_reached "
            "billing_not_active budget_exceeded"
        ),
        errors.RateLimitError: "rate_limit_exceeded rate_limit_error",
        errors.ContextLengthError: "context_length_exceeded exceed_context_size_error",
        errors.ContentFilterError: "content_filter content_policy_violation responsibleaipolicyviolation",
        errors.BadRequestError: "not_supported_error",
        errors.OverloadedError: "overloaded_error engine_overloaded_error unavailable_error",
    }
)

#: codes of many failures: they decide only if no status says more (inside a stream, in a 200 response)
WIDE_CODES: Mapping[str, type[errors.ProviderError]] = codec.invert_table(
    {
        errors.BadRequestError: "invalid_request_error badrequesterror",
        errors.ServerError: "server_error internal_server_error internalservererror api_error",
    }
)

#: a `param` that identifies the error by itself: vLLM's name for a prompt beyond the context
_ERROR_PARAMETERS: Mapping[str, type[errors.ProviderError]] = {"input_tokens": errors.ContextLengthError}


def _is_failure(data: Mapping[str, Any]) -> bool:
    return dialects.has_error(data) or data.get("object") == "error"


def _decode_error_details(data: Any) -> dialects.ErrorDetails | None:
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict):
        return _decode_error_record(error)
    if isinstance(error, str):
        return _decode_error_record(
            {"message": error, "type": data.get("error_type"), "code": data.get("code")}
        )
    if "detail" in data:
        return _decode_detail(data["detail"])
    return _decode_error_record(data)


def _decode_error_record(error: Mapping[str, Any]) -> dialects.ErrorDetails:
    text = error.get("message")
    parameter = error.get("param")
    return dialects.ErrorDetails(
        text if isinstance(text, str) else "",
        tuple(_iter_error_codes(error)),
        parameter if isinstance(parameter, str) else None,
        dialects.parse_error_status(error.get("code")),
    )


def _iter_error_codes(error: Mapping[str, Any]) -> Iterator[str]:
    for value in (error.get("code"), codec.get_member(error, "innererror", "code"), error.get("type")):
        if isinstance(value, str) and value and dialects.parse_error_status(value) is None:
            yield value


def _decode_detail(detail: Any) -> dialects.ErrorDetails:
    """Decode FastAPI's `detail`: a text, a record, or a list of {loc, msg, type}."""
    if isinstance(detail, list):
        detail = detail[0] if detail else None
    if isinstance(detail, str):
        return dialects.ErrorDetails(detail)
    if not isinstance(detail, dict):
        return dialects.ErrorDetails()
    place, text = detail.get("loc"), detail.get("msg")
    if isinstance(place, list) and place and isinstance(text, str):
        return dialects.ErrorDetails(text, parameter=str(place[-1]))
    return _decode_error_record(detail)


ERRORS = dialects.ErrorDecoder(
    read=_decode_error_details,
    codes=ERROR_CODES,
    wide=WIDE_CODES,
    parameters=_ERROR_PARAMETERS,
    is_failure=_is_failure,
    hint="Check that this host is an OpenAI-compatible server.",
)


_FINISHES: Mapping[str, types.FinishReason] = codec.invert_table(
    {
        "stop": "stop eos eos_token end_turn stop_sequence",
        "length": "length max_tokens model_length",
        "tool_calls": "tool_calls tool_use function_call",
        "content_filter": "content_filter",
    }
)


def _decode_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message or delta, or the refusal's text."""
    content = message.get("content")
    if isinstance(content, str) and content:
        return content
    if isinstance(content, list):
        return "".join(_get_part_text(part, "text") for part in content)
    if content is not None and not isinstance(content, str):
        raise codec.make_malformed_error("the content is neither text nor parts")
    refusal = message.get("refusal")
    return refusal if isinstance(refusal, str) else ""


def _decode_reasoning(message: Mapping[str, Any]) -> str:
    """Return the reasoning text of a message or delta. Servers use different names for it."""
    value = message.get("reasoning_content") or message.get("reasoning")
    if type(value) is str:
        return value
    content = message.get("content")
    if type(content) is list:
        return "".join(_get_part_text(part, "thinking") for part in content)
    return ""


def _get_part_text(part: Any, kind: str) -> str:
    """Return the text of a content part of this kind: a string, or a list of parts (Mistral's thinking)."""
    part = codec.require_object(part, "a part of the content is not an object")
    value = part.get(kind) if part.get("type") == kind else None
    if isinstance(value, list) and kind != "text":
        # only one level: unlimited nesting would exhaust the stack
        return "".join(_get_part_text(item, "text") for item in value)
    return value if isinstance(value, str) else ""


def _decode_usage(record: Any) -> types.Usage:
    cached = codec.find_count(record, "prompt_tokens_details", "cached_tokens")
    return types.Usage(
        input_tokens=codec.find_count(record, "prompt_tokens"),
        output_tokens=codec.find_count(record, "completion_tokens"),
        cached_tokens=codec.find_count(record, "prompt_cache_hit_tokens") if cached is None else cached,
        reasoning_tokens=codec.find_count(record, "completion_tokens_details", "reasoning_tokens"),
    )


parameters = list_wire_names("openai_chat")

_TOOL_CHOICES = frozenset({"auto", "none", "required"})


def encode_chat(
    request: types.Request,
    spec: dialects.WireSpec,
    *,
    part: Callable[[types.ContentPart], dict[str, Any]] | None = None,
    reasoning: Callable[[dict[str, Any], Mapping[str, Any]], None] = codec.add_members,
    convert: Callable[[Mapping[str, Any]], strict_schema.StrictSchema] = strict_schema.make_openai_schema,
) -> dict[str, Any]:
    """Return the body of POST /chat/completions.

    `part` encodes the parts of messages, `reasoning` adds a turn's reasoning and `convert` makes schemas
    strict, for formats that differ there. Pass-through parameters come last and never replace existing
    values.
    """
    messages = []
    answered = False
    for message in request.messages:
        encoded = _encode_message(message, part or encode_part)
        messages.append(encoded)
        if message.role == "assistant":
            answered = True
            if members := codec.get_members(message.carried, spec):
                reasoning(encoded, members)
    if answered and reasoning is codec.add_members:
        codec.fill_tool_calls(messages, request, spec.provider)
    body: dict[str, Any] = {"model": request.model, "messages": messages}
    codec.encode_params(body, request, spec, parameters, partial(_encode_format, convert))
    if request.tools or request.provider_tools:
        body["tools"] = codec.encode_tools(request, "OpenAI chat", partial(_encode_tool, convert))
        if request.tool_choice is not None:
            body["tool_choice"] = _encode_tool_choice(request)
    if request.stream:
        body["stream"] = True
        if "stream_options" not in request.extra:
            body["stream_options"] = {"include_usage": True}
    codec.merge_extra(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /embeddings."""
    body: dict[str, Any] = {"model": model, "input": list(texts)}
    codec.merge_extra(body, extra)
    return body


def _encode_message(
    message: types.Message, write: Callable[[types.ContentPart], dict[str, Any]]
) -> dict[str, Any]:
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
        out["tool_calls"] = codec.encode_tool_calls(message.tool_calls)
    return out


def encode_part(part: types.ContentPart) -> dict[str, Any]:
    """Return one part of a message. OpenRouter and other gateways take `cache_control`."""
    if isinstance(part, types.TextPart):
        out: dict[str, Any] = {"type": "text", "text": part.text}
    elif isinstance(part, types.ImagePart):
        out = codec.encode_image_url(part)
    elif codec.is_audio(part):
        out = codec.encode_input_audio(part, "OpenAI chat")
    else:
        out = _encode_file(part)
    if part.cache_control is not None:
        out["cache_control"] = part.cache_control
    return out


def _encode_file(part: types.DocumentPart) -> dict[str, Any]:
    if part.data is None:
        raise codec.make_part_error(
            "documents by URL", "OpenAI chat", hint="Pass the document's bytes as data."
        )
    return {
        "type": "file",
        "file": {"filename": part.name or "document.pdf", "file_data": codec.encode_data_url(part)},
    }


def _encode_tool(
    convert: Callable[[Mapping[str, Any]], strict_schema.StrictSchema], tool: types.Tool
) -> dict[str, Any]:
    tool = strict_schema.convert_tool(tool, convert)
    out = codec.encode_tool(tool) if tool.strict is None else codec.encode_tool(tool, strict=tool.strict)
    if tool.cache_control is not None:
        out["cache_control"] = tool.cache_control
    return out


def _encode_tool_choice(request: types.Request) -> str | dict[str, Any]:
    choice = request.tool_choice or "auto"
    if choice in _TOOL_CHOICES:
        return choice
    for tool in request.provider_tools:
        if codec.get_tool_name(tool) == choice:
            # OpenAI's custom tools have a name, tools of other servers only a type
            kind = tool["type"]
            return {"type": kind, **({kind: {"name": choice}} if kind in tool else {})}
    return {"type": "function", "function": {"name": choice}}


def _encode_format(
    convert: Callable[[Mapping[str, Any]], strict_schema.StrictSchema],
    value: str,
    schema: Mapping[str, Any] | None,
) -> dict[str, Any]:
    if value != "json_schema":
        return {"type": "json_object" if value == "json" else value}
    schema = schema or {}
    # strict: without it some servers treat the schema as a hint, and json_schema would promise too much
    converted, obstacle = convert(schema)
    described = {"name": codec.make_schema_name(schema), "schema": converted, "strict": obstacle is None}
    return {"type": "json_schema", "json_schema": described}


#: the last is the name in LiteLLM's proxy
_WINDOW_NAMES = (
    "context_window",
    "context_length",
    "max_context_length",
    "max_model_len",
    "max_input_tokens",
)


#: members of a message that neither is reasoning nor has any
_PLAIN_MEMBERS = frozenset({"role", "content", "refusal", "annotations"})
#: members of a delta that is only text
_TEXT_MEMBERS = frozenset({"role", "content"})


@ERRORS.decode_objects
def decode_chat(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.Completion:
    """Return the completion in a 2xx response to POST /chat/completions.

    If the model refused in a separate field, that text is the completion's text. Raises
    MalformedResponseError, or the error that the body describes.
    """
    choice, message = _require_choice(data)
    content, calls = message.get("content"), message.get("tool_calls")
    refusal = message.get("refusal") and codec.get_text(message, "refusal")
    plain = type(content) is str and _PLAIN_MEMBERS.issuperset(message)
    reason = codec.find_finish_reason(_FINISHES, choice.get("finish_reason"))
    return types.Completion(
        text=content if content and type(content) is str else _decode_text(message),
        model=codec.get_text(data, "model") or exchange.model,
        finish_reason="content_filter" if refusal else reason,
        reasoning=None if plain else _decode_reasoning(message) or None,
        refusal=refusal,
        tool_calls=tuple(codec.decode_tool_calls(calls)) if calls else (),
        usage=_decode_usage(data.get("usage")),
        request_id=dialects.find_request_id(headers, exchange),
        carried=None if plain else codec.decode_carried(message, exchange.provider),
        raw=data,
    )


@ERRORS.decode_objects
def decode_embed(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange, *, count: int
) -> types.Embeddings:
    """Return the vectors in a 2xx response to POST /embeddings, in the order of the texts."""
    return types.Embeddings(
        vectors=_decode_vectors(data.get("data"), count),
        model=codec.get_text(data, "model") or exchange.model,
        usage=_decode_usage(data.get("usage")),
        request_id=dialects.find_request_id(headers, exchange),
    )


@ERRORS.locate_errors
def decode_models(
    status: int, headers: dialects.HeaderMap, body: bytes, exchange: dialects.Exchange = dialects.NO_EXCHANGE
) -> types.ModelPage:
    """Return the models in a 2xx response to GET /models: `data`, or an array. There is only one page."""
    data = ERRORS.decode_json(status, headers, body, exchange)
    if isinstance(data, dict) and ERRORS.is_failure(data):
        raise ERRORS.decode_body_error(data, status, headers, exchange)
    records = codec.require_model_records(data.get("data") if isinstance(data, dict) else data, "id")
    return types.ModelPage(tuple(map(_decode_model_info, records)))


@ERRORS.decode_objects
def decode_model(
    record: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelInfo:
    """Return the model in a 2xx response to GET /models/{model}."""
    return _decode_model_info(codec.require_model_record(record, "id"))


def _require_choice(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise codec.make_malformed_error("it has no choice")
    choice = choices[0]
    message = codec.require_object(codec.get_member(choice, "message"), "the choice has no message")
    return choice, message


def _decode_vectors(records: Any, count: int) -> tuple[Sequence[float], ...]:
    vectors: dict[int, Sequence[float]] = {}
    for position, record in enumerate(codec.require_vector_list(records, count)):
        record = codec.require_object(record, "a vector's record is not an object")
        index = record.get("index", position)
        if type(index) is not int or not 0 <= index < count or index in vectors:
            raise codec.make_malformed_error("the vectors' indexes are not those of the texts")
        vectors[index] = codec.decode_vector_or_base64(record.get("embedding"))
    return tuple(vectors[index] for index in range(count))


def _decode_model_info(record: Mapping[str, Any]) -> types.ModelInfo:
    # llama.cpp: the context of a slot, else the context that the model was trained with
    window_paths = (*((name,) for name in _WINDOW_NAMES), ("meta", "n_ctx"), ("meta", "n_ctx_train"))
    outputs = ("max_completion_tokens", "max_output_tokens")
    # OpenRouter reports the largest output of its best upstream server
    output_paths = (*((name,) for name in outputs), *(("top_provider", name) for name in outputs))
    created = record.get("created")
    return types.ModelInfo(
        id=record["id"],
        context_window=_find_positive(record, window_paths),
        max_output_tokens=_find_positive(record, output_paths),
        owner=codec.get_text(record, "owned_by"),
        created=created if type(created) is int else None,
        parameters=_list_names(record.get("supported_parameters")),
        raw=record,
    )


def _list_names(value: Any) -> tuple[str, ...] | None:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else None


def _find_positive(record: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> int | None:
    """Return the first of the nested members that is a positive number."""
    values = (codec.get_member(record, *path) for path in paths)
    return next((value for value in values if type(value) is int and value > 0), None)


class StreamDecoder(EventDecoder[SSEEvent]):
    """Converts server-sent chunks to events.

    `Finish` comes at `[DONE]`, or at the end of the bytes if the server sent a finish reason but no `[DONE]`.
    Only the first choice is decoded.
    """

    __slots__ = ("_answered", "_calls", "_spoken", "_thoughts")
    errors = ERRORS

    def _begin(self) -> None:
        self._answered = False
        #: whether text came, and from its first piece on the reasoning
        self._spoken = False
        self._thoughts: codec.ReasoningBuilder | None = None
        #: by index of a tool call: the ID and the name that were returned
        self._calls: dict[int, list[str]] = {}

    def _decode_frame(self, frame: SSEEvent, events: list[types.Event]) -> bool:
        data = frame.data
        if data.startswith("[DONE]"):
            if not self._answered:
                raise codec.make_malformed_error("the stream has no answer")
            return True
        chunk = codec.require_json_object(data, "an event")
        if frame.event == "error" and "error" not in chunk:
            chunk = {"error": chunk}
        if ERRORS.is_failure(chunk):
            raise self._make_stream_error(chunk)
        self._decode_chunk(chunk, events)
        return False

    def _decode_chunk(self, chunk: Mapping[str, Any], events: list[types.Event]) -> None:
        usage = chunk.get("usage")
        if usage is None and "x_groq" in chunk:
            usage = codec.get_member(chunk["x_groq"], "usage")
        if usage is not None:
            self.usage = _decode_usage(usage)
        if self._model is None:
            self._model = codec.get_text(chunk, "model")
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                raise codec.make_malformed_error("a choice is not an object")
            if choice.get("index", 0) == 0:
                self._decode_choice(choice, events)

    def _decode_choice(self, choice: Mapping[str, Any], events: list[types.Event]) -> None:
        self._answered = True
        delta = choice.get("delta")
        if isinstance(delta, dict):
            text = delta.get("content")
            if self._thoughts is None and type(text) is str and _TEXT_MEMBERS.issuperset(delta):
                # most deltas of a stream: text and nothing else
                if text:
                    events.append(types.TextDelta(text))
                    self._spoken = True
            else:
                self._decode_delta(delta, events)
        elif delta is not None:
            raise codec.make_malformed_error("a delta is not an object")
        reason = choice.get("finish_reason")
        if reason is not None:
            self._reason = codec.find_finish_reason(_FINISHES, reason)

    def _decode_delta(self, delta: dict[str, Any], events: list[types.Event]) -> None:
        reasoning = _decode_reasoning(delta)
        if reasoning:
            events.append(types.ReasoningDelta(reasoning))
        text = _decode_text(delta)
        if text:
            events.append(types.TextDelta(text))
        if delta.get("refusal"):
            self._refusals.append(codec.get_text(delta, "refusal") or "")
        calls = delta.get("tool_calls")
        # an empty reasoning is needed back too if tool calls follow
        if self._thoughts is None and (
            reasoning or calls or "reasoning_details" in delta or delta.get("reasoning_content") == ""
        ):
            self._thoughts = codec.ReasoningBuilder(spoken=self._spoken)
        if self._thoughts is not None:
            self._thoughts.add(delta)
        self._spoken = self._spoken or bool(text)
        if calls:
            events.extend(self._decode_tool_calls(calls))

    def _decode_tool_calls(self, calls: Any) -> Iterator[types.Event]:
        if not isinstance(calls, list):
            raise codec.make_malformed_error("the tool calls are not a list")
        for call in calls:
            custom = isinstance(codec.get_member(call, "custom"), dict)
            kind, member = ("custom", "input") if custom else ("function", "arguments")
            function = codec.require_object(codec.get_member(call, kind), "a tool call has no function")
            identity, name = call.get("id"), function.get("name")
            index = self._find_index(call.get("index"), identity)
            seen = self._calls.setdefault(index, ["", ""])
            # the ID and the name are returned once: some servers repeat them in every piece
            fresh_id = identity if isinstance(identity, str) and identity and not seen[0] else None
            fresh_name = name if isinstance(name, str) and name and not seen[1] else None
            seen[0], seen[1] = fresh_id or seen[0], fresh_name or seen[1]
            yield types.ToolCallDelta(
                index=index,
                id=fresh_id,
                name=fresh_name,
                arguments=codec.encode_arguments(function.get(member)),
                custom=custom,
            )

    def _find_index(self, index: Any, identity: Any) -> int:
        if type(index) is int and index >= 0:
            return index
        # without an index, a new ID starts a call, and a piece without an ID continues the last call
        matches = [index for index, seen in self._calls.items() if seen[0] == identity]
        last = max(self._calls, default=-1)
        return matches[0] if matches and identity else last + 1 if identity or last < 0 else last

    def _append_finish(self, events: list[types.Event]) -> None:
        if self._thoughts is not None:
            self._carried = self._thoughts.build(self._exchange.provider)
        if any(self._refusals):
            self._reason = "content_filter"
        super()._append_finish(events)


name = "openai_chat"
routes = dialects.Routes(chat="/chat/completions", embed="/embeddings", models="/models")
headers = ()
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
#: how a schema is made strict
convert_schema = strict_schema.make_openai_schema
stream_decoder = make_stream_decoder(decode_chat, StreamDecoder)
decode_error = ERRORS.decode_error


_MISTRAL_NAMES = list_wire_names("mistral_chat")


def _encode_mistral_chat(request: types.Request, spec: dialects.WireSpec) -> dict[str, Any]:
    """Return the body of POST /chat/completions."""
    codec.require_no_cache_control(request, "Mistral")
    codec.list_provider_tools(request, "Mistral", typed=True)
    adapted = replace(
        request,
        messages=tuple(map(_strip_name, request.messages)),
        tools=tuple(map(_fill_parameters, request.tools)),
    )
    renamed = replace(spec, names={**_MISTRAL_NAMES, **spec.names})
    body = encode_chat(
        adapted,
        renamed,
        part=_encode_mistral_part,
        reasoning=codec.add_thinking_part,
        convert=strict_schema.make_mistral_schema,
    )
    if "stream_options" not in request.extra:
        body.pop("stream_options", None)
    return body


def _encode_mistral_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /embeddings."""
    renamed = {"output_dimension" if name == "dimensions" else name: value for name, value in extra.items()}
    return encode_embed(model, texts, renamed)


def _strip_name(message: types.Message) -> types.Message:
    return message if message.role == "tool" or message.name is None else replace(message, name=None)


def _fill_parameters(tool: types.Tool) -> types.Tool:
    return tool if tool.parameters else replace(tool, parameters=codec.NO_TOOL_PARAMETERS)


def _encode_mistral_part(part: types.ContentPart) -> dict[str, Any]:
    if not isinstance(part, types.DocumentPart):
        return encode_part(part)
    if codec.is_audio(part):
        # base64 or a URL
        audio = part.url if part.data is None else codec.encode_base64(part)
        return {"type": "input_audio", "input_audio": audio}
    out: dict[str, Any] = {
        "type": "document_url",
        "document_url": part.url if part.data is None else codec.encode_data_url(part),
    }
    if part.name is not None:
        out["document_name"] = part.name
    return out


#: Mistral's format: the same, except for documents and rejected members. The API rejects unknown members:
#: `stream_options` (it always reports usage) and the `name` of a message that is not a tool result. Every
#: tool needs parameters. Documents are URLs and may be data: URLs
MISTRAL = dialects.make_variant(
    __name__,
    name="mistral_chat",
    routes=dialects.Routes(
        chat="/chat/completions", embed="/embeddings", models="/models", model="/models/{model}"
    ),
    parameters=_MISTRAL_NAMES,
    encode_chat=_encode_mistral_chat,
    encode_embed=_encode_mistral_embed,
    convert_schema=strict_schema.make_mistral_schema,
)
