"""Answers of the Anthropic Messages dialect: messages and model lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from onym.errors import UnsupportedError
from onym.llm.dialects._anthropic_errors import FAILURES
from onym.llm.dialects._anthropic_read import finish_reason, read_carried, read_usage
from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._read import arguments_text, models, text, wrong
from onym.llm.types import Completion, ModelInfo, ModelPage, ToolCall
from onym.uri._percent import QUERY_VALUE

__all__ = ["decode_chat", "decode_embed", "decode_model", "decode_models", "no_embeddings"]

_PAGE = 1000


@FAILURES.located
def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST /v1/messages.

    Blocks of a kind that is not known are left to `raw` and `carried`. Raises MalformedResponseError, or
    the typed error that the body holds.
    """
    data = FAILURES.load_object(status, headers, body, exchange)
    blocks = _blocks(data.get("content"))
    return Completion(
        text="".join(_said(blocks, "text")),
        model=text(data, "model") or exchange.model,
        finish_reason=finish_reason(data.get("stop_reason")),
        reasoning="".join(_said(blocks, "thinking")) or None,
        tool_calls=_tool_calls(blocks),
        usage=read_usage(data.get("usage")),
        request_id=find_request_id(headers, exchange),
        carried=read_carried(blocks),
        raw=data,
    )


def decode_embed(
    status: int,
    headers: HeaderMap,
    body: bytes,
    exchange: Exchange = NOWHERE,
    *,
    count: int,
) -> NoReturn:
    """Raises UnsupportedError: the API has no embeddings."""
    raise no_embeddings()


@FAILURES.located
def decode_models(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelPage:
    """The records in a 2xx answer to GET /v1/models, and what asks for the page after it."""
    data = FAILURES.load_object(status, headers, body, exchange)
    records = models(data.get("data"))
    found = (_model_info(each) for each in records if text(each, "id"))
    last = text(data, "last_id") if data.get("has_more") is True else None
    if last is None:
        return ModelPage(tuple(found))
    return ModelPage(tuple(found), f"after_id={QUERY_VALUE.quote(last)}&limit={_PAGE}")


@FAILURES.located
def decode_model(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelInfo:
    """The record in a 2xx answer to GET /v1/models/{model}."""
    record = FAILURES.load_object(status, headers, body, exchange)
    if text(record, "id") is None:
        raise wrong("it holds no model")
    return _model_info(record)


def no_embeddings() -> UnsupportedError:
    """The refusal of what this API does not have."""
    return UnsupportedError(
        "the Anthropic Messages API has no embeddings",
        code="llm.no-embeddings",
        parameter="embeddings",
        hint="use an endpoint of another provider for vectors",
    )


def _blocks(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        raise wrong("it holds no content")
    if not all(isinstance(block, dict) for block in content):
        raise wrong("a block of the content is not an object")
    return content


def _said(blocks: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """What the blocks of this kind say: they name the member that holds it."""
    found = [block.get(kind) for block in blocks if block.get("type") == kind]
    said = [each for each in found if isinstance(each, str)]
    if len(said) != len(found):
        raise wrong(f"a block of {kind} holds no text")
    return said


def _tool_calls(blocks: Sequence[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    return tuple(_tool_call(call, index) for index, call in enumerate(calls))


def _tool_call(block: Mapping[str, Any], index: int) -> ToolCall:
    name = text(block, "name")
    if name is None:
        raise wrong("a tool call names no tool")
    return ToolCall(
        id=text(block, "id") or f"call_{index}",
        name=name,
        arguments=arguments_text(block.get("input")) or "{}",
    )


def _model_info(record: Mapping[str, Any]) -> ModelInfo:
    return ModelInfo(
        id=record["id"],
        context_window=_positive(record.get("max_input_tokens")),
        max_output_tokens=_positive(record.get("max_tokens")),
        created=_seconds(record.get("created_at")),
        raw=record,
    )


def _positive(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _seconds(value: Any) -> int | None:
    """An RFC 3339 time as seconds since 1970; the API gives the epoch where it does not know."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if moment is None or moment.tzinfo is None:
        return None
    return int(moment.timestamp()) or None
