"""Cohere's API format, version 2: POST /v2/chat, POST /v2/embed and GET /v1/models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from onym import errors
from onym.llm import dialects, types
from onym.llm.dialects import codec
from onym.llm.dialects.streaming import EventDecoder, make_stream_decoder
from onym.llm.parameters import list_wire_names
from onym.net.messages import SSEEvent
from onym.uri.components import QUERY_VALUE

#: statuses that differ from the usual ones
_ERROR_STATUSES: Mapping[int, type[errors.ProviderError]] = {
    498: errors.ContentFilterError,  # "a request or response contains a deny-listed token"
    499: errors.ServerError,  # the request was cancelled on the way
    501: errors.BadRequestError,  # the feature does not exist
}


def _is_failure(data: Mapping[str, Any]) -> bool:
    # the message of a completion is an object, the message of an error is a string
    return (
        dialects.has_error(data)
        or isinstance(data.get("message"), str)
        or data.get("finish_reason") == "ERROR"
    )


def _decode_error_details(data: Any) -> dialects.ErrorDetails | None:
    """Decode an error body, an event that ends a stream with `error`, or a gateway's error."""
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    record = error if isinstance(error, dict) else data
    candidates = (record.get("message"), error, data.get("detail"))
    text = next((item for item in candidates if isinstance(item, str)), "")
    return dialects.ErrorDetails(
        text, status=dialects.parse_error_status(record.get("status_code") or record.get("code"))
    )


ERRORS = dialects.ErrorDecoder(
    read=_decode_error_details, codes={}, statuses=_ERROR_STATUSES, is_failure=_is_failure
)


_FINISHES: Mapping[str, types.FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
}


def _decode_usage(value: Any) -> types.Usage:
    """Return token counts, None for a count that is absent or invalid.

    `tokens` are the tokens that the model read and wrote. `billed_units`, without what Cohere adds to a
    prompt, are used only if the API sends no other count.
    """
    for name in ("tokens", "billed_units"):
        counts = [_find_number(value, name, member) for member in ("input_tokens", "output_tokens")]
        if counts != [None, None]:
            break
    return types.Usage(
        input_tokens=counts[0], output_tokens=counts[1], cached_tokens=_find_number(value, "cached_tokens")
    )


def _find_number(record: Any, *path: str) -> int | None:
    """Return a nested count, which the API may write as a float."""
    value = codec.get_member(record, *path)
    return codec.parse_count(int(value) if type(value) is float and value.is_integer() else value)


def _get_object(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a member that is an object, empty if it is absent; raises MalformedResponseError."""
    value = holder.get(name)
    if value is None:
        return {}
    return codec.require_object(value, f"the {name} is not an object")


DIALECT = "cohere_v2"

parameters = list_wire_names("cohere_v2")

_API_NAME = "Cohere"
_NO_NAMED_CALL = f"the {_API_NAME} API cannot force the call of one tool"
_POSITIONS: Mapping[str, str] = {
    "system": "a system message",
    "user": "a user's message",
    "assistant": "an assistant's message",
    "tool": "a tool's result",
}
#: `auto` is the API's default and is not sent
_TOOL_CHOICES: Mapping[str, str | None] = {"auto": None, "none": "NONE", "required": "REQUIRED"}


def encode_chat(request: types.Request, spec: dialects.WireSpec) -> dict[str, Any]:
    """Return the body of POST /v2/chat.

    All system messages become one at the start, because the API accepts only one. Pass-through parameters
    come last and never replace existing values. Raises UnsupportedError for anything that the API does not
    support.
    """
    codec.require_no_cache_control(request, _API_NAME)
    codec.require_no_provider_tools(request, _API_NAME)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _encode_messages(request.messages, spec),
        "stream": request.stream,
    }
    codec.encode_params(body, request, spec, parameters, _encode_format)
    if request.tools:
        # the API requires a schema for every tool
        body["tools"] = [
            codec.encode_tool(tool, parameters=tool.parameters or codec.NO_TOOL_PARAMETERS)
            for tool in request.tools
        ]
        if _is_strict(request.tools):
            body["strict_tools"] = True
        choice = _encode_tool_choice(request.tool_choice)
        if choice is not None:
            body["tool_choice"] = choice
    codec.merge_extra(body, request.extra)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /v2/embed.

    The API requires the purpose of the vectors: `input_type` defaults to search_document and
    `embedding_types` to float.
    """
    extra = dict(extra)
    body: dict[str, Any] = {"model": model, "texts": list(texts)}
    if "dimensions" in extra:
        body["output_dimension"] = extra.pop("dimensions")
    codec.merge_extra(body, extra)
    body.setdefault("input_type", "search_document")
    body.setdefault("embedding_types", ["float"])
    return body


def _encode_messages(messages: Sequence[types.Message], spec: dialects.WireSpec) -> list[dict[str, Any]]:
    system = [_encode_system(message.content) for message in messages if message.role == "system"]
    head = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    return [*head, *(_encode_message(message, spec) for message in messages if message.role != "system")]


def _encode_system(content: types.Content) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(_encode_part(part, "system")["text"] for part in content)


def _encode_message(message: types.Message, spec: dialects.WireSpec) -> dict[str, Any]:
    content = message.content
    out: dict[str, Any] = {
        "role": message.role,
        "content": content
        if isinstance(content, str)
        else [_encode_part(part, message.role) for part in content],
    }
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    if message.role == "assistant" and message.carried is not None:
        _add_carried(out, message.carried, spec)
    if message.tool_calls:
        if not out["content"]:
            del out["content"]
        out["tool_calls"] = codec.encode_tool_calls(message.tool_calls)
    return out


def _add_carried(message: dict[str, Any], carried: types.Carried, spec: dialects.WireSpec) -> None:
    """Add a turn's thinking and its plan for the tools, or the reasoning that a program wrote."""
    if spec.may_carry(carried, DIALECT) and carried.parts:
        plan, content = (carried.parts[0].get(name) for name in ("tool_plan", "content"))
        if isinstance(plan, str):
            message["tool_plan"] = plan
        if isinstance(content, list):
            message["content"] = content
    elif (thinking := codec.get_written_text(carried)) is not None:
        content = message["content"]
        texts = [{"type": "text", "text": content}] if content and isinstance(content, str) else content
        message["content"] = [{"type": "thinking", "thinking": thinking}, *(texts or ())]


def _encode_part(part: types.ContentPart, role: str) -> dict[str, Any]:
    """Return a part of a message. The model may cite the text documents in a tool's result."""
    if isinstance(part, types.TextPart):
        return {"type": "text", "text": part.text}
    if role == "user" and isinstance(part, types.ImagePart):
        return codec.encode_image_url(part)
    if role == "tool" and isinstance(part, types.DocumentPart):
        document: dict[str, Any] = {"data": _encode_document(part)}
        if part.name is not None:
            document["id"] = part.name
        return {"type": "document", "document": document}
    kind = "images" if isinstance(part, types.ImagePart) else "audio" if codec.is_audio(part) else "documents"
    hint = "Pass texts to cite as the parameter documents." if role == "user" else None
    raise codec.make_part_error(f"{kind} in {_POSITIONS[role]}", _API_NAME, hint=hint)


def _encode_document(part: types.DocumentPart) -> dict[str, Any]:
    if part.data is None:
        raise codec.make_part_error("documents by URL", _API_NAME, hint="Pass the document's bytes as data.")
    if part.media_type == "application/json":
        try:
            value = msgspec.json.decode(part.data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise errors.UsageError(
                "a JSON document in a tool's result is not an object", code="usage.bad-message"
            )
        return value
    if not part.media_type.startswith("text/"):
        raise codec.make_part_error("documents that are not text", _API_NAME)
    return {"text": codec.decode_document(part, "a text document in a tool's result is not UTF-8")}


def _is_strict(tools: Iterable[types.Tool]) -> bool:
    """Whether all tools must follow their schemas: the API has one switch for all of them."""
    values = {tool.strict for tool in tools} - {None}
    if len(values) > 1:
        raise errors.UnsupportedError(
            f"the {_API_NAME} API cannot enforce the schemas of only some tools",
            code="llm.no-strict-tools",
            parameter="tools",
        )
    return True in values


def _encode_tool_choice(choice: str | None) -> str | None:
    if choice is None or choice in _TOOL_CHOICES:
        return _TOOL_CHOICES[choice or "auto"]
    raise errors.UnsupportedError(
        _NO_NAMED_CALL,
        code="llm.no-tool-choice",
        parameter="tool_choice",
        hint="Pass only that tool, with tool_choice required.",
    )


def _encode_format(value: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    if value != "json_schema":
        return {"type": "json_object"}
    return {"type": "json_object", "json_schema": schema or {}}


#: the largest page of the API
_PAGE_QUERY = "page_size=1000"

#: the kinds of vectors, the default first
_VECTOR_TYPES = ("float", "base64", "int8", "uint8", "binary", "ubinary")


@ERRORS.locate_errors
def decode_chat(
    status: int, headers: dialects.HeaderMap, body: bytes, exchange: dialects.Exchange = dialects.NO_EXCHANGE
) -> types.Completion:
    """Return the completion in a 2xx response to POST /v2/chat.

    `reasoning` is the model's thinking, then its plan for the tools. The API returns no model name, so the
    requested one is used. Raises MalformedResponseError, or the error that the body describes.
    """
    data = ERRORS.decode_json(status, headers, body, exchange)
    if isinstance(data, dict) and ERRORS.is_failure(data):
        failure = ERRORS.decode_body_error(data, status, headers, exchange)
        failure.usage = _decode_usage(data.get("usage"))
        raise failure
    message = _require_message(data)
    text, thinking = _decode_content(message.get("content"))
    return types.Completion(
        text=text,
        model=exchange.model,
        finish_reason=codec.find_finish_reason(_FINISHES, data.get("finish_reason")),
        reasoning=thinking + (codec.get_text(message, "tool_plan") or "") or None,
        tool_calls=tuple(codec.decode_tool_calls(message.get("tool_calls"))),
        usage=_decode_usage(data.get("usage")),
        request_id=dialects.find_request_id(headers, exchange),
        carried=_make_carried(message.get("content"), codec.get_text(message, "tool_plan"), exchange),
        raw=data,
    )


@ERRORS.decode_objects
def decode_embed(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange, *, count: int
) -> types.Embeddings:
    """Return the vectors in a 2xx response to POST /v2/embed.

    If several kinds were requested, floats are preferred; other kinds are decoded as numbers too.
    """
    return types.Embeddings(
        vectors=_decode_vectors(data.get("embeddings"), count),
        model=exchange.model,
        usage=_decode_usage(data.get("meta")),
        request_id=dialects.find_request_id(headers, exchange),
    )


@ERRORS.decode_objects
def decode_models(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelPage:
    """Return the models in a 2xx response to GET /v1/models, and the query of the next page."""
    records = codec.require_model_records(data.get("models"), "name")
    token = codec.get_text(data, "next_page_token")
    following = None if token is None else f"{_PAGE_QUERY}&page_token={QUERY_VALUE.quote(token)}"
    return types.ModelPage(tuple(map(_decode_model_info, records)), following)


@ERRORS.decode_objects
def decode_model(
    data: dict[str, Any], headers: dialects.HeaderMap, exchange: dialects.Exchange
) -> types.ModelInfo:
    """Return the model in a 2xx response to GET /v1/models/{model}."""
    return _decode_model_info(codec.require_model_record(data, "name"))


def _make_carried(content: Any, plan: str | None, exchange: dialects.Exchange) -> types.Carried | None:
    """Return a turn's thinking and its plan for the tools, which the model reads again in a tool loop."""
    members: dict[str, Any] = {} if plan is None else {"tool_plan": plan}
    if isinstance(content, list) and any(part.get("type") == "thinking" for part in content):
        members["content"] = [part for part in content if part.get("type") in ("thinking", "text")]
    return types.Carried(dialect=DIALECT, parts=(members,), provider=exchange.provider) if members else None


def _require_message(data: Any) -> dict[str, Any]:
    data = codec.require_object(data, "it is not a JSON object")
    if "message" not in data:
        raise codec.make_malformed_error("it has no message")
    return _get_object(data, "message")


def _decode_content(content: Any) -> tuple[str, str]:
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise codec.make_malformed_error("the content is neither text nor parts")
    return "".join(_list_texts(content, "text")), "".join(_list_texts(content, "thinking"))


def _list_texts(content: list[Any], kind: str) -> list[str]:
    if not all(isinstance(part, dict) for part in content):
        raise codec.make_malformed_error("a part of the content is not an object")
    return [part[kind] for part in content if part.get("type") == kind and isinstance(part.get(kind), str)]


def _decode_vectors(vectors: Any, count: int) -> tuple[Sequence[float], ...]:
    """Return the vectors of the first kind present; the API's first version returned a plain list."""
    if isinstance(vectors, dict):
        vectors = next((vectors[kind] for kind in _VECTOR_TYPES if vectors.get(kind)), None)
    return tuple(map(codec.decode_vector_or_base64, codec.require_vector_list(vectors, count)))


def _decode_model_info(record: Mapping[str, Any]) -> types.ModelInfo:
    return types.ModelInfo(
        id=record["name"], context_window=_find_number(record, "context_length") or None, raw=record
    )


class StreamDecoder(EventDecoder[SSEEvent]):
    """Converts server-sent events to Onym's. `Finish` comes at `message-end`; citations are not decoded."""

    __slots__ = ("_calls", "_pieces", "_plan")
    errors = ERRORS

    def _begin(self) -> None:
        #: the server's indexes of the tool calls, in order of arrival: they need not begin at 0
        self._calls: list[tuple[int, int]] = []
        #: the kind and the text of the pieces of content, and the pieces of the plan
        self._pieces: list[tuple[str, str]] = []
        self._plan: list[str] = []

    def _decode_frame(self, frame: SSEEvent, events: list[types.Event]) -> bool:
        data = codec.require_json_object(frame.data, "an event")
        kind = data.get("type") or frame.event
        if kind == "error" or ERRORS.is_failure(data):
            raise self._make_stream_error(data)
        if kind == "message-end":
            return self._decode_end(_get_object(data, "delta"))
        read = _EVENT_DECODERS.get(kind) if isinstance(kind, str) else None
        if read is not None:
            read(self, data, _get_object(_get_object(data, "delta"), "message"), events)
        return False

    def _decode_end(self, delta: Mapping[str, Any]) -> bool:
        self.usage = _decode_usage(delta.get("usage"))
        if ERRORS.is_failure(delta):
            raise self._make_stream_error(delta)
        self._reason = codec.find_finish_reason(_FINISHES, delta.get("finish_reason"))
        runs = [(kind, "".join(text for _, text in run)) for kind, run in groupby(self._pieces, _get_kind)]
        content = [{"type": kind, kind: text} for kind, text in runs]
        self._carried = _make_carried(content, "".join(self._plan) or None, self._exchange)
        return True

    def _decode_content(
        self, _: Mapping[str, Any], message: Mapping[str, Any], events: list[types.Event]
    ) -> None:
        content = _get_object(message, "content")
        thinking, text = codec.get_text(content, "thinking"), codec.get_text(content, "text")
        if thinking:
            events.append(types.ReasoningDelta(thinking))
            self._pieces.append(("thinking", thinking))
        if text:
            events.append(types.TextDelta(text))
            self._pieces.append(("text", text))

    def _decode_plan(
        self, _: Mapping[str, Any], message: Mapping[str, Any], events: list[types.Event]
    ) -> None:
        plan = codec.get_text(message, "tool_plan")
        if plan:
            events.append(types.ReasoningDelta(plan))
            self._plan.append(plan)

    def _decode_call(
        self, data: Mapping[str, Any], message: Mapping[str, Any], events: list[types.Event]
    ) -> None:
        calls = message.get("tool_calls")
        # one call is an object; some gateways send a list
        for position, call in enumerate(calls if isinstance(calls, list) else [calls]):
            call = codec.require_object(call, "a tool call is not an object")
            function = _get_object(call, "function")
            index, fresh = self._find_index(data.get("index"), position)
            arguments = codec.encode_arguments(function.get("arguments"))
            if not fresh:
                if arguments:
                    events.append(types.ToolCallDelta(index=index, arguments=arguments))
                continue
            name = codec.get_text(function, "name")
            if name is None:
                raise codec.make_malformed_error("a tool call has no name")
            identity = codec.get_text(call, "id") or f"call_{index}"
            events.append(types.ToolCallDelta(index=index, id=identity, name=name, arguments=arguments))

    def _find_index(self, number: Any, position: int) -> tuple[int, bool]:
        """Return the index of a call, and whether the call is new."""
        key = (number if type(number) is int else 0, position)
        fresh = key not in self._calls
        if fresh:
            self._calls.append(key)
        return self._calls.index(key), fresh


def _get_kind(piece: tuple[str, str]) -> str:
    return piece[0]


_EVENT_DECODERS: Mapping[
    str, Callable[[StreamDecoder, Mapping[str, Any], Mapping[str, Any], list[types.Event]], None]
] = {
    "content-start": StreamDecoder._decode_content,
    "content-delta": StreamDecoder._decode_content,
    "tool-plan-delta": StreamDecoder._decode_plan,
    "tool-call-start": StreamDecoder._decode_call,
    "tool-call-delta": StreamDecoder._decode_call,
}


name = DIALECT
routes = dialects.Routes(
    chat="/v2/chat", embed="/v2/embed", models=f"/v1/models?{_PAGE_QUERY}", model="/v1/models/{model}"
)
headers = ()
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
refuses_choice = {"named": _NO_NAMED_CALL}
stream_decoder = make_stream_decoder(decode_chat, StreamDecoder)
decode_error = ERRORS.decode_error
