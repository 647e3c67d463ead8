"""Answers of the Cohere dialect: completions, embeddings, model lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._cohere_errors import FAILURES
from onym.llm.dialects._cohere_read import finish_reason, read_usage, record, whole_number
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._read import models, one_for_each, text, tool_calls, vector_or_base64, wrong
from onym.llm.types import Completion, Embeddings, ModelInfo, ModelPage
from onym.uri._percent import QUERY_VALUE

__all__ = ["PAGE_SIZE", "decode_chat", "decode_embed", "decode_model", "decode_models"]

#: the largest page that the API gives
PAGE_SIZE = "page_size=1000"

#: the kinds of vectors, the one that is asked for unasked first
_KINDS = ("float", "base64", "int8", "uint8", "binary", "ubinary")


@FAILURES.located
def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST /v2/chat.

    `reasoning` is what the model thought, then its plan for the tools. The API names no model, so the one
    that was asked for stands in. Raises MalformedResponseError, or the typed error that the body holds.
    """
    data = FAILURES.load(status, headers, body, exchange)
    if isinstance(data, dict) and FAILURES.is_failure(data):
        failure = FAILURES.in_body(data, status, headers, exchange)
        failure.usage = read_usage(data.get("usage"))
        raise failure
    message = _message(data)
    said, thought = _content(message.get("content"))
    return Completion(
        text=said,
        model=exchange.model,
        finish_reason=finish_reason(data.get("finish_reason")),
        reasoning=thought + (text(message, "tool_plan") or "") or None,
        tool_calls=tuple(tool_calls(message.get("tool_calls"))),
        usage=read_usage(data.get("usage")),
        request_id=find_request_id(headers, exchange),
        raw=data,
    )


@FAILURES.located
def decode_embed(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to POST /v2/embed.

    Where the caller asked for several kinds, floats come first; another kind is read as numbers too.
    """
    data = FAILURES.load_object(status, headers, body, exchange)
    return Embeddings(
        vectors=_vectors(data.get("embeddings"), count),
        model=exchange.model,
        usage=read_usage(data.get("meta")),
        request_id=find_request_id(headers, exchange),
    )


@FAILURES.located
def decode_models(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelPage:
    """The records in a 2xx answer to GET /v1/models, and the query of the page after them."""
    data = FAILURES.load_object(status, headers, body, exchange)
    records = models(data.get("models"))
    found = (_model_info(each) for each in records if text(each, "name"))
    token = text(data, "next_page_token")
    following = None if token is None else f"{PAGE_SIZE}&page_token={QUERY_VALUE.quote(token)}"
    return ModelPage(tuple(found), following)


@FAILURES.located
def decode_model(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelInfo:
    """The record in a 2xx answer to GET /v1/models/{model}."""
    data = FAILURES.load_object(status, headers, body, exchange)
    if text(data, "name") is None:
        raise wrong("it holds no model")
    return _model_info(data)


def _message(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise wrong("it is not a JSON object")
    if "message" not in data:
        raise wrong("it holds no message")
    return record(data, "message")


def _content(content: Any) -> tuple[str, str]:
    """What the model said, and what it thought."""
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise wrong("the content is neither text nor parts")
    return "".join(_parts(content, "text")), "".join(_parts(content, "thinking"))


def _parts(content: list[Any], kind: str) -> list[str]:
    if not all(isinstance(part, dict) for part in content):
        raise wrong("a part of the content is not an object")
    return [part[kind] for part in content if part.get("type") == kind and isinstance(part.get(kind), str)]


def _vectors(given: Any, count: int) -> tuple[Sequence[float], ...]:
    """The vectors of the first kind that is there; the API's first version gave a bare list."""
    if isinstance(given, dict):
        given = next((given[kind] for kind in _KINDS if given.get(kind)), None)
    return tuple(map(vector_or_base64, one_for_each(given, count)))


def _model_info(found: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        id=found["name"], context_window=whole_number(found.get("context_length")) or None, raw=found
    )
