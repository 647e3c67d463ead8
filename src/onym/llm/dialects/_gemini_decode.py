"""Answers of the Gemini dialect: completions, embeddings, model lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._gemini_errors import FAILURES
from onym.llm.dialects._gemini_read import (
    carried,
    finish_reason,
    first_candidate,
    pieces,
    raw_parts,
    read_usage,
    response_id,
    whole,
)
from onym.llm.dialects._read import count, models, one_for_each, text, vector, wrong
from onym.llm.types import Completion, Embeddings, ModelInfo, ModelPage, ToolCall, Usage
from onym.uri._percent import QUERY_VALUE

__all__ = ["decode_chat", "decode_embed", "decode_model", "decode_models", "decode_predict"]

_RESOURCE = re.compile(r"(?:publishers/[^/]+/)?models/")


@FAILURES.located
def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST :generateContent, or in the array that a stream can be.

    Raises MalformedResponseError, or the typed error that the body holds: ContentFilterError for a
    prompt that was blocked.
    """
    data = FAILURES.load(status, headers, body, exchange)
    frames = data if isinstance(data, list) else [data]
    for frame in frames:
        if not isinstance(frame, dict):
            raise wrong("it is not a JSON object")
        if FAILURES.is_failure(frame):
            error = FAILURES.in_body(frame, status, headers, exchange)
            error.usage = read_usage(frame.get("usageMetadata"))
            raise error
    return _answer(whole(frames), headers, exchange)


def _answer(data: Mapping[str, Any], headers: HeaderMap, exchange: Exchange) -> Completion:
    candidate = first_candidate(data)
    if candidate is None:
        raise wrong("it holds no candidate")
    parts = raw_parts(candidate)
    said = list(pieces(parts))
    calls = tuple(
        ToolCall(id=call.id or f"call_{index}", name=call.name, arguments=call.arguments)
        for index, call in enumerate(piece.call for piece in said if piece.call is not None)
    )
    return Completion(
        text="".join(piece.text for piece in said),
        model=text(data, "modelVersion") or exchange.model,
        finish_reason=finish_reason(candidate.get("finishReason"), called=bool(calls)),
        reasoning="".join(piece.reasoning for piece in said) or None,
        tool_calls=calls,
        usage=read_usage(data.get("usageMetadata")),
        request_id=find_request_id(headers, exchange) or response_id(data, exchange),
        carried=carried(parts),
        raw=data,
    )


@FAILURES.located
def decode_embed(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to POST :batchEmbedContents, in the order of the texts."""
    data = FAILURES.load_object(status, headers, body, exchange)
    return Embeddings(
        vectors=tuple(vector(each.get("values")) for each in _records(data, "embeddings", count)),
        model=exchange.model,
        usage=read_usage(data.get("usageMetadata")),
        request_id=find_request_id(headers, exchange),
    )


@FAILURES.located
def decode_predict(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to Vertex AI's POST :predict, in the order of the texts."""
    data = FAILURES.load_object(status, headers, body, exchange)
    found = [_prediction(each) for each in _records(data, "predictions", count)]
    tokens = [tokens for _, tokens in found if tokens is not None]
    return Embeddings(
        vectors=tuple(values for values, _ in found),
        model=exchange.model,
        usage=Usage(input_tokens=sum(tokens) if tokens else None),
        request_id=find_request_id(headers, exchange),
    )


def _prediction(record: Mapping[str, Any]) -> tuple[Sequence[float], int | None]:
    """The vector, and the tokens of its text. Protobuf's Struct writes whole numbers as floats."""
    embeddings = record.get("embeddings")
    if not isinstance(embeddings, dict):
        raise wrong("a prediction holds no embeddings")
    statistics = embeddings.get("statistics")
    tokens = statistics.get("token_count") if isinstance(statistics, dict) else None
    if type(tokens) is float and tokens.is_integer():
        tokens = int(tokens)
    return vector(embeddings.get("values")), count(tokens)


def _records(data: Mapping[str, Any], name: str, number: int) -> list[dict[str, Any]]:
    records = one_for_each(data.get(name), number)
    if not all(isinstance(each, dict) for each in records):
        raise wrong("a vector's record is not an object")
    return records


@FAILURES.located
def decode_models(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelPage:
    """The records in a 2xx answer to GET /models (at Vertex AI, of a publisher's models), page by page."""
    data = FAILURES.load_object(status, headers, body, exchange)
    records = models(data.get("models", data.get("publisherModels", [])))
    token = text(data, "nextPageToken")
    return ModelPage(
        tuple(_model_info(each) for each in records if text(each, "name")),
        None if token is None else f"pageToken={QUERY_VALUE.quote(token)}&pageSize=1000",
    )


@FAILURES.located
def decode_model(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelInfo:
    """The record in a 2xx answer to GET /models/{model}."""
    record = FAILURES.load_object(status, headers, body, exchange)
    if text(record, "name") is None:
        raise wrong("it holds no model")
    return _model_info(record)


def _model_info(record: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        id=_RESOURCE.sub("", record["name"], count=1),
        context_window=count(record.get("inputTokenLimit")) or None,
        max_output_tokens=count(record.get("outputTokenLimit")) or None,
        raw=record,
    )
