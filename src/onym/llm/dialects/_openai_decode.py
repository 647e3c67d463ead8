"""Answers of the OpenAI chat dialect: completions, embeddings, model lists."""

from __future__ import annotations

from array import array
from base64 import b64decode
from collections.abc import Mapping, Sequence
from sys import byteorder
from typing import Any

from onym.errors import MalformedResponseError
from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._openai_errors import FAILURES
from onym.llm.dialects._openai_read import finish_reason, read_reasoning, read_text, read_usage
from onym.llm.dialects._read import arguments_text, text, vector, wrong
from onym.llm.types import Completion, Embeddings, ModelInfo, ModelPage, ToolCall

__all__ = ["decode_chat", "decode_embed", "decode_model", "decode_models"]

_WINDOWS = ("context_window", "context_length", "max_context_length", "max_model_len")


def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST /chat/completions.

    Where the model refused in a text of its own kind, that is the text. Raises
    MalformedResponseError, or the typed error that the body holds.
    """
    data = FAILURES.load_object(status, headers, body, exchange)
    try:
        choice, message = _choice(data)
        content, calls = message.get("content"), message.get("tool_calls")
        return Completion(
            text=content if content and type(content) is str else read_text(message),
            model=_model(data, exchange),
            finish_reason=finish_reason(choice.get("finish_reason")),
            reasoning=read_reasoning(message) or None,
            tool_calls=_tool_calls(calls) if calls else (),
            usage=read_usage(data.get("usage")),
            request_id=find_request_id(headers, exchange),
            raw=data,
        )
    except MalformedResponseError as error:
        reason = error.message
    raise FAILURES.malformed(reason, status, headers, exchange)


def decode_embed(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to POST /embeddings, in the order of the texts."""
    data = FAILURES.load_object(status, headers, body, exchange)
    try:
        return Embeddings(
            vectors=_vectors(data.get("data"), count),
            model=_model(data, exchange),
            usage=read_usage(data.get("usage")),
            request_id=find_request_id(headers, exchange),
        )
    except MalformedResponseError as error:
        reason = error.message
    raise FAILURES.malformed(reason, status, headers, exchange)


def decode_models(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelPage:
    """The records in a 2xx answer to GET /models: `data`, or a bare array. There is one page."""
    data = FAILURES.load(status, headers, body, exchange)
    if isinstance(data, dict) and FAILURES.is_failure(data):
        raise FAILURES.in_body(data, status, headers, exchange)
    records = data.get("data") if isinstance(data, dict) else data
    if not isinstance(records, list):
        raise FAILURES.malformed("it holds no list of models", status, headers, exchange)
    found = (_model_info(each) for each in records if isinstance(each, dict) and text(each, "id"))
    return ModelPage(tuple(found))


def decode_model(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelInfo:
    """The record in a 2xx answer to GET /models/{model}."""
    record = FAILURES.load_object(status, headers, body, exchange)
    if text(record, "id") is None:
        raise FAILURES.malformed("it holds no model", status, headers, exchange)
    return _model_info(record)


def _choice(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first choice and its message."""
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise wrong("it holds no choice")
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise wrong("the choice holds no message")
    return choice, message


def _model(data: Mapping[str, Any], exchange: Exchange) -> str:
    model = data.get("model")
    return model if isinstance(model, str) and model else exchange.model


def _tool_calls(calls: Any) -> tuple[ToolCall, ...]:
    if not isinstance(calls, list):
        raise wrong("the tool calls are not a list")
    return tuple(_tool_call(call, index) for index, call in enumerate(calls))


def _tool_call(call: Any, index: int) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise wrong("a tool call holds no function")
    name = text(function, "name")
    if name is None:
        raise wrong("a tool call names no function")
    return ToolCall(
        id=text(call, "id") or f"call_{index}",
        name=name,
        arguments=arguments_text(function.get("arguments")),
    )


def _vectors(records: Any, count: int) -> tuple[Sequence[float], ...]:
    if not isinstance(records, list) or len(records) != count:
        raise wrong("it does not hold one vector for each text")
    found: dict[int, Sequence[float]] = {}
    for position, record in enumerate(records):
        if not isinstance(record, dict):
            raise wrong("a vector's record is not an object")
        index = record.get("index", position)
        if type(index) is not int or not 0 <= index < count or index in found:
            raise wrong("the vectors' indexes are not those of the texts")
        found[index] = _vector(record.get("embedding"))
    return tuple(found[index] for index in range(count))


def _vector(value: Any) -> Sequence[float]:
    return _from_base64(value) if isinstance(value, str) else vector(value)


def _from_base64(coded: str) -> Sequence[float]:
    """Little-endian 32-bit floats, which is what `encoding_format: base64` gives."""
    try:
        data = b64decode(coded, validate=True)
    except ValueError:
        data = b""
    if not data or len(data) % 4:
        raise wrong("a vector is not base64 of 32-bit floats")
    numbers = array("f", data)
    if byteorder == "big":  # pragma: no cover - the machines of this project are little-endian
        numbers.byteswap()
    return tuple(numbers)


def _model_info(record: Mapping[str, Any]) -> ModelInfo:
    meta = record.get("meta")
    window = next((record[name] for name in _WINDOWS if _is_count(record.get(name))), None)
    if window is None and isinstance(meta, dict):
        # llama.cpp: what a slot was given, else what the model was trained for
        window = next((meta[name] for name in ("n_ctx", "n_ctx_train") if _is_count(meta.get(name))), None)
    created = record.get("created")
    return ModelInfo(
        id=record["id"],
        context_window=window,
        max_output_tokens=_most_output(record),
        owner=text(record, "owned_by"),
        created=created if type(created) is int else None,
        parameters=_names(record.get("supported_parameters")),
        raw=record,
    )


def _most_output(record: Mapping[str, Any]) -> int | None:
    """OpenRouter says it of its best upstream, Groq and others of the model."""
    top = record.get("top_provider")
    for holder in (record, top if isinstance(top, dict) else {}):
        for name in ("max_completion_tokens", "max_output_tokens"):
            if _is_count(holder.get(name)):
                return int(holder[name])
    return None


def _names(value: Any) -> tuple[str, ...] | None:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0
