"""Google's Gemini API format: POST /models/{model}:generateContent; for Vertex AI also POST :predict.

Error bodies: google.rpc.Status (also in a list), OAuth (`error` is a code) and gateways that use OpenAI's
format. A blocked prompt is an error in a response with status 200.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from onym import errors
from onym.llm import dialects, types
from onym.llm.dialects import codec
from onym.llm.dialects.openai_chat import ERROR_CODES as GATEWAY_CODES
from onym.llm.dialects.streaming import EventDecoder, LineFramer, SSEFramer, make_stream_decoder
from onym.llm.parameters import list_wire_names
from onym.uri.components import QUERY_VALUE

#: Onym's code for a blocked prompt, in addition to the API's reason
_PROMPT_BLOCKED = "prompt_blocked"

#: google.rpc.Code, and google.api.ErrorReason, which is more precise than the status beside it
_ERROR_CODES: Mapping[str, type[errors.ProviderError]] = {
    **GATEWAY_CODES,
    **codec.invert_table(
        {
            errors.ContentFilterError: _PROMPT_BLOCKED,
            errors.AuthenticationError: (
                "api_key_invalid access_token_expired access_token_type_unsupported account_state_invalid "
                "credentials_missing unauthenticated"
            ),
            errors.PermissionDeniedError: (
                "api_key_service_blocked api_key_http_referrer_blocked api_key_ip_address_blocked "
                "consumer_invalid consumer_suspended service_disabled user_project_denied "
                "iam_permission_denied permission_denied"
            ),
            errors.QuotaError: "billing_disabled",
            errors.NotFoundError: "not_found",
            # a quota per minute or day: waiting helps
            errors.RateLimitError: "resource_exhausted",
            errors.OverloadedError: "unavailable",
            errors.BadRequestError: "unimplemented",
            errors.ServerError: "cancelled",
        }
    ),
}
_WIDE_CODES: Mapping[str, type[errors.ProviderError]] = codec.invert_table(
    {
        errors.BadRequestError: "invalid_argument failed_precondition out_of_range",
        errors.OverloadedError: "aborted",
        errors.ServerError: "deadline_exceeded internal unknown data_loss",
    }
)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s", re.ASCII)


def _is_failure(data: Mapping[str, Any]) -> bool:
    return dialects.has_error(data) or (not data.get("candidates") and _find_block(data) is not None)


def _find_block(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the feedback about a blocked prompt."""
    feedback = data.get("promptFeedback")
    return feedback if isinstance(feedback, dict) and feedback.get("blockReason") else None


def _decode_error_details(data: Any) -> dialects.ErrorDetails | None:
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict):
        return _decode_status(error)
    if isinstance(error, str):
        return dialects.ErrorDetails(_to_text(data.get("error_description")) or error, (error,))
    block = _find_block(data)
    if block is not None:
        reason = _to_text(block.get("blockReason"))
        return dialects.ErrorDetails(
            _to_text(block.get("blockReasonMessage")), (*([reason] if reason else ()), _PROMPT_BLOCKED)
        )
    return _decode_status(data)


def _decode_status(error: Mapping[str, Any]) -> dialects.ErrorDetails:
    details = error.get("details")
    details = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    code = error.get("code")
    names = (
        error.get("status"),
        code if dialects.parse_error_status(code) is None else None,
        error.get("type"),
    )
    return dialects.ErrorDetails(
        _to_text(error.get("message")),
        (*_iter_reasons(details), *(name for name in names if isinstance(name, str) and name)),
        _find_field(details),
        dialects.parse_error_status(code),
        _find_retry_delay(details),
    )


def _iter_details(details: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    for detail in details:
        if _to_text(detail.get("@type")).endswith(f"google.rpc.{kind}"):
            yield detail


def _iter_reasons(details: list[dict[str, Any]]) -> Iterator[str]:
    for detail in _iter_details(details, "ErrorInfo"):
        if reason := _to_text(detail.get("reason")):
            yield reason


def _find_field(details: list[dict[str, Any]]) -> str | None:
    """Return the first field that the server rejects."""
    for detail in _iter_details(details, "BadRequest"):
        violations = detail.get("fieldViolations")
        for violation in violations if isinstance(violations, list) else ():
            field = _to_text(violation.get("field")) if isinstance(violation, dict) else ""
            if field:
                return field
    return None


def _find_retry_delay(details: list[dict[str, Any]]) -> float | None:
    """Return the seconds to wait, from a duration such as "7s" or "0.5s"."""
    for detail in _iter_details(details, "RetryInfo"):
        match = _DURATION.fullmatch(_to_text(detail.get("retryDelay")))
        if match is not None:
            return float(match[1])
    return None


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


ERRORS = dialects.ErrorDecoder(
    read=_decode_error_details,
    codes=_ERROR_CODES,
    wide=_WIDE_CODES,
    is_failure=_is_failure,
    hint="Check that this host supports Google's generateContent.",
)


#: the name of the format, also in the content that is carried from turn to turn
DIALECT = "gemini"

_FINISHES: Mapping[str, types.FinishReason] = codec.invert_table(
    {
        "stop": "STOP",
        # CONTINUATION: the limit of one request; a request with its continuationToken continues the response
        "length": "MAX_TOKENS CONTINUATION",
        "content_filter": (
            "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY "
            "IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION ESCALATION MODEL_ARMOR"
        ),
    }
)
#: members of a part that is only a piece of text
_PLAIN_MEMBERS = frozenset({"text", "thought"})


_Parts: TypeAlias = Sequence[Mapping[str, Any]]


def _find_candidate(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first candidate of a response or frame, None if there is none."""
    candidates = data.get("candidates")
    if candidates is None:
        return None
    if not isinstance(candidates, list):
        raise codec.make_malformed_error("the candidates are not a list")
    for candidate in candidates:
        candidate = codec.require_object(candidate, "a candidate is not an object")
        if candidate.get("index", 0) == 0:
            return candidate
    return None


def _require_parts(candidate: Mapping[str, Any]) -> _Parts:
    """Return the parts of a candidate unchanged; none if it was stopped before its first word."""
    content = candidate.get("content")
    if content is None:
        return ()
    content = codec.require_object(content, "the content is not an object")
    parts = content.get("parts")
    if parts is None:
        return ()
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise codec.make_malformed_error("the parts are not a list of objects")
    return parts


def _iter_events(parts: _Parts, calls: int = 0) -> Iterator[types.Event]:
    """Yield the content of every part; other kinds (code, images …) are skipped. `calls` came before."""
    for part in parts:
        text, call = part.get("text"), part.get("functionCall")
        if call is not None:
            yield _decode_call(call, calls)
            calls += 1
        elif text is not None and not isinstance(text, str):
            raise codec.make_malformed_error("the text of a part is not a string")
        elif text:
            yield types.ReasoningDelta(text) if part.get("thought") is True else types.TextDelta(text)


def _decode_call(call: Any, index: int) -> types.ToolCallDelta:
    call = codec.require_object(call, "a function call is not an object")
    if call.get("partialArgs") or call.get("willContinue"):
        raise codec.make_malformed_error(
            "the arguments of a function call come in pieces, which Onym did not request"
        )
    name, arguments = codec.get_text(call, "name"), call.get("args")
    if name is None:
        raise codec.make_malformed_error("a function call has no name")
    if arguments is not None and not isinstance(arguments, dict):
        raise codec.make_malformed_error("the arguments of a function call are not an object")
    identity = codec.get_text(call, "id") or f"call_{index}"
    return types.ToolCallDelta(
        index=index, id=identity, name=name, arguments=codec.encode_arguments(arguments or {})
    )


def _decode_finish_reason(value: Any, *, called: bool) -> types.FinishReason:
    """Return the finish reason; `called` tells whether the model requests function calls."""
    reason = codec.find_finish_reason(_FINISHES, value)
    return "tool_calls" if called and reason == "stop" else reason


def _decode_usage(record: Any) -> types.Usage:
    """Return token counts, None if absent or invalid. Thoughts are output, tool prompts are input."""
    thoughts = codec.find_count(record, "thoughtsTokenCount")
    return types.Usage(
        input_tokens=_add_counts(
            codec.find_count(record, "promptTokenCount"), codec.find_count(record, "toolUsePromptTokenCount")
        ),
        output_tokens=_add_counts(codec.find_count(record, "candidatesTokenCount"), thoughts),
        cached_tokens=codec.find_count(record, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )


def _add_counts(one: int | None, two: int | None) -> int | None:
    return two if one is None else one if two is None else one + two


def _find_response_id(data: Mapping[str, Any], exchange: dialects.Exchange) -> str | None:
    """Return the server's identifier of the response: Google sends it in the body, not in a header."""
    return dialects.clean_identifier(codec.get_text(data, "responseId"), exchange)


def _decode_carried(parts: _Parts, exchange: dialects.Exchange) -> types.Carried | None:
    """Return the turn that must be sent back, if some of it is signed.

    Pieces of one text that the stream split are joined; parts with a signature stay separate.
    """
    if not any(part.get("thoughtSignature") for part in parts):
        return None
    return types.Carried(dialect=DIALECT, parts=tuple(_join_parts(parts)), provider=exchange.provider)


def _join_parts(parts: _Parts) -> Iterator[Mapping[str, Any]]:
    for (plain, thinking), group in groupby(parts, _classify_part):
        if not plain:
            yield from group
            continue
        text = "".join(part["text"] for part in group)
        yield {"text": text, "thought": True} if thinking else {"text": text}


def _classify_part(part: Mapping[str, Any]) -> tuple[bool, bool]:
    return isinstance(part.get("text"), str) and part.keys() <= _PLAIN_MEMBERS, part.get("thought") is True


def _merge_frames(frames: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(frames) == 1:
        return frames[0]
    answer: dict[str, Any] = {}
    parts: list[Mapping[str, Any]] = []
    merged: dict[str, Any] = {}
    for frame in frames:
        answer.update(frame)
        candidate = _find_candidate(frame)
        if candidate is not None:
            parts.extend(_require_parts(candidate))
            merged.update(candidate)
    if merged:
        answer["candidates"] = [{**merged, "content": {"role": "model", "parts": parts}}]
    return answer


parameters = list_wire_names("gemini")

_SCHEMA_NAME = "generationConfig.responseJsonSchema"
_CALLING_MODES: Mapping[str, str] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
#: an ID that Onym made because the API sent none; it is not sent back
_OWN_ID = re.compile(r"call_\d+", re.ASCII)
#: parameters of embeddings with another name in this API
_EMBED_NAMES: Mapping[str, str] = {"dimensions": "outputDimensionality"}
#: members of one text in a :predict request, in both spellings; all others go beside them
_INSTANCE_NAMES: Mapping[str, str] = {"task_type": "task_type", "taskType": "task_type", "title": "title"}
#: models that reject a function call of an earlier turn without a signature: Gemini 3 and later
_SIGNING_MODELS = re.compile(r"gemini-(?:[3-9]|[1-9][0-9]|(?:pro|flash|flash-lite)-latest)", re.ASCII)
#: the signature of a call that the model did not make, "skip_thought_signature_validator" as base64:
#: https://ai.google.dev/gemini-api/docs/thought-signatures, checked 2026-11-23
_UNSIGNED = b64encode(b"skip_thought_signature_validator").decode("ascii")
_DEFAULT_IMAGE_TYPE = "image/png"
_MEDIA_TYPES: Mapping[str, str] = {
    "jpg": "image/jpeg",
    **{name: f"image/{name}" for name in ("gif", "heic", "heif", "jpeg", "webp")},
}
_EXTENSION = re.compile(r"\.([A-Za-z]+)(?:[?#].*)?\Z", re.DOTALL)


def encode_chat(request: types.Request, spec: dialects.WireSpec) -> dict[str, Any]:
    """Return the body of POST :generateContent, streamed or not.

    Pass-through parameters come last and never replace existing values. Raises UsageError for tool calls or
    results that this API cannot express, and UnsupportedError for parts that it does not support.
    """
    codec.require_no_cache_control(request, "Gemini")
    body: dict[str, Any] = {"contents": _encode_messages(request, spec)}
    system = [
        part for message in request.messages if message.role == "system" for part in _encode_system(message)
    ]
    if system:
        body["systemInstruction"] = {"parts": system}
    for name, value in request.params.items():
        wire = spec.names.get(name) or parameters[name]
        if name == "format":
            if value == "json_schema":
                codec.set_member(body, _SCHEMA_NAME, request.schema or {})
            value = "application/json"
        elif name == "stop":
            value = list(value)
        codec.set_member(body, wire, value)
    if request.tools or request.provider_tools:
        declared = [_encode_tool(tool) for tool in request.tools]
        body["tools"] = [
            *codec.list_provider_tools(request, "Gemini", typed=False),
            *([{"functionDeclarations": declared}] if declared else ()),
        ]
        calling = _encode_calling_config(request.tool_choice, request.tools)
        if calling:
            body["toolConfig"] = {"functionCallingConfig": calling}
    codec.merge_extra(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST :batchEmbedContents; parameters are repeated in each of its requests."""
    requests = []
    name = f"models/{model.removeprefix('models/')}"
    for text in texts:
        request: dict[str, Any] = {"model": name, "content": {"parts": [{"text": text}]}}
        codec.merge_extra(request, {_EMBED_NAMES.get(key, key): value for key, value in extra.items()})
        requests.append(request)
    return {"requests": requests}


def encode_predict(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of Vertex AI's POST :predict for embeddings; the model is only in the path."""
    members = {_INSTANCE_NAMES[name]: value for name, value in extra.items() if name in _INSTANCE_NAMES}
    body: dict[str, Any] = {"instances": [{"content": text, **members} for text in texts]}
    if "dimensions" in extra:
        body["parameters"] = {"outputDimensionality": extra["dimensions"]}
    codec.merge_extra(
        body, {name: value for name, value in extra.items() if name not in {*_INSTANCE_NAMES, "dimensions"}}
    )
    return body


def _encode_messages(request: types.Request, spec: dialects.WireSpec) -> list[dict[str, Any]]:
    """Return the turns. Results of one turn's calls form one turn, and every result names its function."""
    contents: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    answering = False
    signing = _SIGNING_MODELS.search(request.model) is not None
    for message in request.messages:
        if message.role == "system":
            continue
        if message.role == "tool":
            result = _encode_tool_result(message, names)
            if answering:
                contents[-1]["parts"].append(result)
            else:
                contents.append({"role": "user", "parts": [result]})
        elif message.role == "assistant":
            names.update((call.id, call.name) for call in message.tool_calls)
            parts = _encode_model_parts(message, spec)
            contents.append({"role": "model", "parts": _sign_calls(parts) if signing else parts})
        else:
            contents.append({"role": "user", "parts": _encode_parts(message)})
        answering = message.role == "tool"
    return contents


def _encode_model_parts(message: types.Message, spec: dialects.WireSpec) -> list[Any]:
    if message.carried is not None and spec.may_carry(message.carried, DIALECT):
        return list(message.carried.parts)
    calls = [_encode_function_call(call) for call in message.tool_calls]
    return [*(_encode_parts(message) if message.content or not calls else ()), *calls]


def _sign_calls(parts: list[Any]) -> list[Any]:
    """Return a turn with the sentinel at its first call, if that is not signed: the model did not make it."""
    first = next((place for place, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or parts[first].get("thoughtSignature"):
        return parts
    return [*parts[:first], {**parts[first], "thoughtSignature": _UNSIGNED}, *parts[first + 1 :]]


def _encode_parts(message: types.Message) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"text": message.content}]
    return [_encode_part(part) for part in message.content] or [{"text": ""}]


def _encode_system(message: types.Message) -> list[dict[str, Any]]:
    texts = codec.require_texts(message.content, "Gemini", "a system message")
    return [{"text": text} for text in texts or [""]]


def _encode_part(part: types.ContentPart) -> dict[str, Any]:
    if isinstance(part, types.TextPart):
        return {"text": part.text}
    if part.data is None:
        return {"fileData": {"mimeType": _find_media_type(part), "fileUri": part.url}}
    return {"inlineData": {"mimeType": part.media_type, "data": codec.encode_base64(part)}}


def _find_media_type(part: types.ImagePart | types.DocumentPart) -> str:
    """Return the media type of a URL: the API requires one, and callers rarely set it for an image."""
    if part.media_type == _DEFAULT_IMAGE_TYPE and (ending := _EXTENSION.search(part.url or "")):
        return _MEDIA_TYPES.get(ending[1].lower(), part.media_type)
    return part.media_type


def _encode_function_call(call: types.ToolCall) -> dict[str, Any]:
    arguments = codec.parse_arguments(call)
    return {"functionCall": {**_encode_id(call.id), "name": call.name, "args": arguments}}


def _encode_tool_result(message: types.Message, names: Mapping[str, str]) -> dict[str, Any]:
    name = names.get(message.tool_call_id or "") or message.name
    if name is None:
        raise codec.make_message_error(
            "a tool's result has no function name, which the Gemini API requires",
            hint="Pass the assistant's message with its tool calls too, or name= in the result.",
        )
    content = (types.TextPart(message.content),) if isinstance(message.content, str) else message.content
    text = "\n".join(part.text for part in content if isinstance(part, types.TextPart))
    response: dict[str, Any] = {
        **_encode_id(message.tool_call_id),
        "name": name,
        "response": _encode_response(text),
    }
    others = [_encode_part(part) for part in content if not isinstance(part, types.TextPart)]
    if others:
        response["parts"] = others
    return {"functionResponse": response}


def _encode_response(text: str) -> dict[str, Any]:
    """Return a JSON object unchanged, and any other text as `result`: the API accepts only objects."""
    value = codec.parse_json_object(text)
    return {"result": text} if value is None else value


def _encode_id(value: str | None) -> dict[str, str]:
    return {} if not value or _OWN_ID.fullmatch(value) else {"id": value}


def _encode_tool(tool: types.Tool) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        declaration["description"] = tool.description
    if tool.parameters:
        declaration["parametersJsonSchema"] = tool.parameters
    return declaration


def _encode_calling_config(choice: str | None, tools: Sequence[types.Tool]) -> dict[str, Any]:
    """Return which calls the model may make. In this API strictness is a mode of the whole request."""
    if choice in (None, "auto") and tools and all(tool.strict for tool in tools):
        return {"mode": "VALIDATED"}
    if choice is None:
        return {}
    if choice in _CALLING_MODES:
        return {"mode": _CALLING_MODES[choice]}
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


_RESOURCE_PREFIX = re.compile(r"(?:publishers/[^/]+/)?models/")


@ERRORS.locate_errors
def decode_chat(
    status: int, headers: dialects.HeaderMap, body: bytes, exchange: dialects.Exchange = dialects.NO_EXCHANGE
) -> types.Completion:
    """Return the completion in a 2xx response to POST :generateContent, or in an array of stream frames.

    Raises MalformedResponseError, or the error that the body describes: ContentFilterError for a blocked
    prompt.
    """
    data = ERRORS.decode_json(status, headers, body, exchange)
    frames = data if isinstance(data, list) else [data]
    for frame in frames:
        frame = codec.require_object(frame, "it is not a JSON object")
        if ERRORS.is_failure(frame):
            error = ERRORS.decode_body_error(frame, status, headers, exchange)
            error.usage = _decode_usage(frame.get("usageMetadata"))
            raise error
    return _decode_answer(_merge_frames(frames), headers, exchange)


def _decode_answer(
    data: Mapping[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.Completion:
    candidate = _find_candidate(data)
    if candidate is None:
        raise codec.make_malformed_error("it has no candidate")
    parts = _require_parts(candidate)
    events = list(_iter_events(parts))
    calls = tuple(
        codec.make_tool_call(event.id or "", event.name, event.arguments)
        for event in events
        if isinstance(event, types.ToolCallDelta)
    )
    return types.Completion(
        text="".join(event.text for event in events if isinstance(event, types.TextDelta)),
        model=codec.get_text(data, "modelVersion") or exchange.model,
        finish_reason=_decode_finish_reason(candidate.get("finishReason"), called=bool(calls)),
        reasoning="".join(event.text for event in events if isinstance(event, types.ReasoningDelta)) or None,
        tool_calls=calls,
        usage=_decode_usage(data.get("usageMetadata")),
        request_id=dialects.find_request_id(headers, exchange) or _find_response_id(data, exchange),
        carried=_decode_carried(parts, exchange),
        raw=data,
    )


@ERRORS.decode_objects
def decode_embed(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange, *, count: int
) -> types.Embeddings:
    """Return the vectors in a 2xx response to POST :batchEmbedContents, in the order of the texts."""
    return types.Embeddings(
        vectors=tuple(
            codec.decode_vector(record.get("values"))
            for record in _require_records(data, "embeddings", count)
        ),
        model=exchange.model,
        usage=_decode_usage(data.get("usageMetadata")),
        request_id=dialects.find_request_id(headers, exchange),
    )


@ERRORS.decode_objects
def decode_predict(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange, *, count: int
) -> types.Embeddings:
    """Return the vectors in a 2xx response to Vertex AI's POST :predict, in the order of the texts."""
    predictions = [_decode_prediction(record) for record in _require_records(data, "predictions", count)]
    tokens = [tokens for _, tokens in predictions if tokens is not None]
    return types.Embeddings(
        vectors=tuple(values for values, _ in predictions),
        model=exchange.model,
        usage=types.Usage(input_tokens=sum(tokens) if tokens else None),
        request_id=dialects.find_request_id(headers, exchange),
    )


def _decode_prediction(record: Mapping[str, Any]) -> tuple[Sequence[float], int | None]:
    """Return the vector and the tokens of its text. Protobuf's Struct writes whole numbers as floats."""
    embeddings = codec.require_object(record.get("embeddings"), "a prediction has no embeddings")
    tokens = codec.get_member(embeddings, "statistics", "token_count")
    if type(tokens) is float and tokens.is_integer():
        tokens = int(tokens)
    return codec.decode_vector(embeddings.get("values")), codec.parse_count(tokens)


def _require_records(data: Mapping[str, Any], name: str, number: int) -> list[dict[str, Any]]:
    records = codec.require_vector_list(data.get(name), number)
    if not all(isinstance(record, dict) for record in records):
        raise codec.make_malformed_error("a vector's record is not an object")
    return records


@ERRORS.decode_objects
def decode_models(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelPage:
    """Return one page of the models in a 2xx response to GET /models."""
    records = codec.require_model_records(data.get("models", data.get("publisherModels", [])), "name")
    token = codec.get_text(data, "nextPageToken")
    return types.ModelPage(
        tuple(map(_decode_model_info, records)),
        None if token is None else f"pageToken={QUERY_VALUE.quote(token)}&pageSize=1000",
    )


@ERRORS.decode_objects
def decode_model(
    record: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelInfo:
    """Return the model in a 2xx response to GET /models/{model}."""
    return _decode_model_info(codec.require_model_record(record, "name"))


def _decode_model_info(record: Mapping[str, Any]) -> types.ModelInfo:
    return types.ModelInfo(
        id=_RESOURCE_PREFIX.sub("", record["name"], count=1),
        context_window=codec.parse_count(record.get("inputTokenLimit")) or None,
        max_output_tokens=codec.parse_count(record.get("outputTokenLimit")) or None,
        raw=record,
    )


_MAX_BARE = 1024 * 1024


class _GeminiFramer:
    """Data of server-sent events, and plain JSON between them, in which Google writes a late error."""

    __slots__ = ("_bare", "_events", "_lines", "_size")

    def __init__(self) -> None:
        self._events = SSEFramer()
        self._lines = LineFramer()
        self._bare: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[str | bytes]:
        for event in self._events.feed(data):
            yield event.data
        for line in self._lines.feed(data):
            self._keep_bare_line(line)

    def close(self) -> Iterator[str | bytes]:
        for line in self._lines.close():
            self._keep_bare_line(line)
        if self._bare:
            yield b"\n".join(self._bare)

    def _keep_bare_line(self, line: bytes) -> None:
        if not line.startswith(b"data:") and (self._bare or line.startswith((b"{", b"["))):
            self._size += len(line)
            if self._size <= _MAX_BARE:
                self._bare.append(line)


class StreamDecoder(EventDecoder[str | bytes]):
    """Converts server-sent frames to events; every frame is a piece of one response.

    The API does not mark the end of a stream: `Finish` comes at the end of the bytes, if a frame had a finish
    reason. Only the first candidate is decoded.
    """

    __slots__ = ("_calls", "_finish", "_parts")
    framer = _GeminiFramer
    errors = ERRORS

    def _begin(self) -> None:
        self._calls = 0
        self._parts: list[Mapping[str, Any]] = []
        #: the server's finish reason
        self._finish: Any = None

    def _decode_frame(self, frame: str | bytes, events: list[types.Event]) -> bool:
        if frame == "[DONE]":
            # not from Google: the end marker of some gateways
            return self._reason is not None
        try:
            data = msgspec.json.decode(frame)
        except (ValueError, RecursionError):
            data = None
        if isinstance(frame, bytes) and not isinstance(data, dict | list):
            return False  # not JSON: a line of server-sent events without meaning
        for answer in data if isinstance(data, list) else (data,):
            answer = codec.require_object(answer, "an event of the stream is not a JSON object")
            self._decode_answer(answer, events)
        return False

    def _decode_answer(self, data: Mapping[str, Any], events: list[types.Event]) -> None:
        usage = _decode_usage(data.get("usageMetadata"))
        if usage != codec.NO_USAGE:
            self.usage = usage
        if self._request_id is None:
            self._request_id = _find_response_id(data, self._exchange)
        if ERRORS.is_failure(data):
            raise self._make_stream_error(data)
        if self._model is None:
            self._model = codec.get_text(data, "modelVersion")
        candidate = _find_candidate(data)
        if candidate is not None:
            self._decode_candidate(candidate, events)

    def _decode_candidate(self, candidate: Mapping[str, Any], events: list[types.Event]) -> None:
        parts = _require_parts(candidate)
        for event in _iter_events(parts, self._calls):
            events.append(event)
            self._calls += isinstance(event, types.ToolCallDelta)
        self._parts.extend(parts)
        reason = candidate.get("finishReason")
        if reason is not None:
            self._finish = reason
            self._reason = _decode_finish_reason(reason, called=False)

    def _append_finish(self, events: list[types.Event]) -> None:
        self._reason = _decode_finish_reason(self._finish, called=self._calls > 0)
        self._carried = _decode_carried(self._parts, self._exchange)
        super()._append_finish(events)


name = DIALECT
routes = dialects.Routes(
    chat="/models/{model}:generateContent",
    stream="/models/{model}:streamGenerateContent?alt=sse",
    embed="/models/{model}:batchEmbedContents",
    models="/models?pageSize=1000",
    model="/models/{model}",
    model_prefix="models/",
)
headers = ()
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
stream_decoder = make_stream_decoder(decode_chat, StreamDecoder)
decode_error = ERRORS.decode_error

#: the format on Vertex AI. The list of models is not below a project, so a provider entry has to name its
#: path. Models with embeddings only by :embedContent are not supported
VERTEX = dialects.make_variant(
    __name__,
    name="gemini_vertex",
    routes=dialects.Routes(
        chat="/models/{model}:generateContent",
        stream="/models/{model}:streamGenerateContent?alt=sse",
        embed="/models/{model}:predict",
        model_prefix="models/",
    ),
    encode_embed=encode_predict,
    decode_embed=decode_predict,
)
