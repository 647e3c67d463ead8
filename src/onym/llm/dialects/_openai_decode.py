"""Answers of the OpenAI chat dialect: completions, embeddings, model lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._openai_errors import FAILURES
from onym.llm.dialects._openai_read import finish_reason, read_reasoning, read_text, read_usage
from onym.llm.dialects._read import models, one_for_each, text, tool_calls, vector_or_base64, wrong
from onym.llm.types import Completion, Embeddings, ModelInfo, ModelPage

__all__ = ["decode_chat", "decode_embed", "decode_model", "decode_models"]

#: the last is what LiteLLM's proxy says
_WINDOWS = ("context_window", "context_length", "max_context_length", "max_model_len", "max_input_tokens")


@FAILURES.located
def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST /chat/completions.

    Where the model refused in a text of its own kind, that is the text. Raises
    MalformedResponseError, or the typed error that the body holds.
    """
    data = FAILURES.load_object(status, headers, body, exchange)
    choice, message = _choice(data)
    content, calls = message.get("content"), message.get("tool_calls")
    return Completion(
        text=content if content and type(content) is str else read_text(message),
        model=_model(data, exchange),
        finish_reason=finish_reason(choice.get("finish_reason")),
        reasoning=read_reasoning(message) or None,
        tool_calls=tuple(tool_calls(calls)) if calls else (),
        usage=read_usage(data.get("usage")),
        request_id=find_request_id(headers, exchange),
        raw=data,
    )


@FAILURES.located
def decode_embed(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to POST /embeddings, in the order of the texts."""
    data = FAILURES.load_object(status, headers, body, exchange)
    return Embeddings(
        vectors=_vectors(data.get("data"), count),
        model=_model(data, exchange),
        usage=read_usage(data.get("usage")),
        request_id=find_request_id(headers, exchange),
    )


@FAILURES.located
def decode_models(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelPage:
    """The records in a 2xx answer to GET /models: `data`, or a bare array. There is one page."""
    data = FAILURES.load(status, headers, body, exchange)
    if isinstance(data, dict) and FAILURES.is_failure(data):
        raise FAILURES.in_body(data, status, headers, exchange)
    records = models(data.get("data") if isinstance(data, dict) else data)
    found = (_model_info(each) for each in records if text(each, "id"))
    return ModelPage(tuple(found))


@FAILURES.located
def decode_model(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelInfo:
    """The record in a 2xx answer to GET /models/{model}."""
    record = FAILURES.load_object(status, headers, body, exchange)
    if text(record, "id") is None:
        raise wrong("it holds no model")
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


def _vectors(records: Any, count: int) -> tuple[Sequence[float], ...]:
    found: dict[int, Sequence[float]] = {}
    for position, record in enumerate(one_for_each(records, count)):
        if not isinstance(record, dict):
            raise wrong("a vector's record is not an object")
        index = record.get("index", position)
        if type(index) is not int or not 0 <= index < count or index in found:
            raise wrong("the vectors' indexes are not those of the texts")
        found[index] = vector_or_base64(record.get("embedding"))
    return tuple(found[index] for index in range(count))


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
