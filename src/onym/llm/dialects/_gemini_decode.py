"""Answers of the Gemini dialect: completions, embeddings, model lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from onym.errors import MalformedResponseError
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
from onym.llm.dialects._read import count, text, vector, wrong
from onym.llm.types import Completion, Embeddings, ModelInfo, ModelPage, ToolCall, Usage
from onym.uri._percent import QUERY_VALUE

__all__ = ["decode_chat", "decode_embed", "decode_model", "decode_models", "decode_predict"]

_RESOURCE = re.compile(r"(?:publishers/[^/]+/)?models/")


def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST :generateContent, or in the array that a stream can be.

    Raises MalformedResponseError, or the typed error that the body holds: ContentFilterError for a
    prompt that was blocked.
    """
    data = FAILURES.load(status, headers, body, exchange)
    frames = data if isinstance(data, list) else [data]
    for frame in frames:
        if not isinstance(frame, dict):
            raise FAILURES.malformed("it is not a JSON object", status, headers, exchange)
        if FAILURES.is_failure(frame):
            error = FAILURES.in_body(frame, status, headers, exchange)
            error.usage = read_usage(frame.get("usageMetadata"))
            raise error
    try:
        return _answer(whole(frames), headers, exchange)
    except MalformedResponseError as error:
        reason = error.message
    raise FAILURES.malformed(reason, status, headers, exchange)


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


def decode_embed(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to POST :batchEmbedContents, in the order of the texts."""
    data = FAILURES.load_object(status, headers, body, exchange)
    try:
        return Embeddings(
            vectors=tuple(vector(each.get("values")) for each in _records(data, "embeddings", count)),
            model=exchange.model,
            usage=read_usage(data.get("usageMetadata")),
            request_id=find_request_id(headers, exchange),
        )
    except MalformedResponseError as error:
        reason = error.message
    raise FAILURES.malformed(reason, status, headers, exchange)


def decode_predict(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to Vertex AI's POST :predict, in the order of the texts."""
    data = FAILURES.load_object(status, headers, body, exchange)
    try:
        found = [_prediction(each) for each in _records(data, "predictions", count)]
        tokens = [tokens for _, tokens in found if tokens is not None]
        return Embeddings(
            vectors=tuple(values for values, _ in found),
            model=exchange.model,
            usage=Usage(input_tokens=sum(tokens) if tokens else None),
            request_id=find_request_id(headers, exchange),
        )
    except MalformedResponseError as error:
        reason = error.message
    raise FAILURES.malformed(reason, status, headers, exchange)


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
    records = data.get(name)
    if not isinstance(records, list) or len(records) != number:
        raise wrong("it does not hold one vector for each text")
    if not all(isinstance(each, dict) for each in records):
        raise wrong("a vector's record is not an object")
    return records


def decode_models(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelPage:
    """The records in a 2xx answer to GET /models (at Vertex AI, of a publisher's models), page by page."""
    data = FAILURES.load_object(status, headers, body, exchange)
    records = data.get("models", data.get("publisherModels", []))
    if not isinstance(records, list):
        raise FAILURES.malformed("it holds no list of models", status, headers, exchange)
    token = text(data, "nextPageToken")
    return ModelPage(
        tuple(_model_info(each) for each in records if isinstance(each, dict) and text(each, "name")),
        None if token is None else f"pageToken={QUERY_VALUE.quote(token)}&pageSize=1000",
    )


def decode_model(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelInfo:
    """The record in a 2xx answer to GET /models/{model}."""
    record = FAILURES.load_object(status, headers, body, exchange)
    if text(record, "name") is None:
        raise FAILURES.malformed("it holds no model", status, headers, exchange)
    return _model_info(record)


def _model_info(record: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        id=_RESOURCE.sub("", record["name"], count=1),
        context_window=count(record.get("inputTokenLimit")) or None,
        max_output_tokens=count(record.get("outputTokenLimit")) or None,
        raw=record,
    )
