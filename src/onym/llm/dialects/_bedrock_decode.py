"""Answers of the Bedrock Converse dialect: completions, embeddings, foundation models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._bedrock_encode import NAME
from onym.llm.dialects._bedrock_errors import FAILURES
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._read import NO_USAGE, arguments_text, count, models, one_for_each, text, vector, wrong
from onym.llm.types import (
    Carried,
    Completion,
    Embeddings,
    FinishReason,
    ModelInfo,
    ModelPage,
    ToolCall,
    Usage,
)

__all__ = [
    "SERVER_TOOL",
    "carry",
    "decode_chat",
    "decode_embed",
    "decode_model",
    "decode_models",
    "finish_reason",
    "read_usage",
]

#: the type of a tool that runs on the server's side: its call is not the caller's to answer
SERVER_TOOL: Final = "server_tool_use"

_FINISHES: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_INPUT_COUNT: Final = "x-amzn-bedrock-input-token-count"


@FAILURES.located
def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST /model/{model}/converse.

    Raises MalformedResponseError, or the typed error that the body holds.
    """
    data = FAILURES.load_object(status, headers, body, exchange)
    blocks = _content(data)
    calls = [block["toolUse"] for block in blocks if _is_call(block)]
    return Completion(
        text="".join(map(_text, blocks)),
        model=exchange.model,
        finish_reason=finish_reason(data.get("stopReason")),
        reasoning="".join(map(_reasoning, blocks)) or None,
        tool_calls=tuple(_tool_call(call, index) for index, call in enumerate(calls)),
        usage=read_usage(data.get("usage")),
        request_id=find_request_id(headers, exchange),
        carried=carry(blocks),
        raw=data,
    )


@FAILURES.located
def decode_embed(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to POST /model/{model}/invoke: one of Titan's, or a list of Cohere's."""
    data = FAILURES.load_object(status, headers, body, exchange)
    return Embeddings(
        vectors=tuple(map(vector, one_for_each(_vectors(data), count))),
        model=exchange.model,
        usage=_embed_usage(data, headers),
        request_id=find_request_id(headers, exchange),
    )


@FAILURES.located
def decode_models(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelPage:
    """The records in a 2xx answer to GET /foundation-models. There is one page."""
    data = FAILURES.load_object(status, headers, body, exchange)
    records = models(data.get("modelSummaries"))
    found = (_model_info(each) for each in records if text(each, "modelId"))
    return ModelPage(tuple(found))


@FAILURES.located
def decode_model(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelInfo:
    """The record in a 2xx answer to GET /foundation-models/{model}."""
    data = FAILURES.load_object(status, headers, body, exchange)
    record = data.get("modelDetails")
    if not isinstance(record, dict) or text(record, "modelId") is None:
        raise wrong("it holds no model")
    return _model_info(record)


def finish_reason(value: Any) -> FinishReason:
    """The server's word in Onym's vocabulary; `other` for a word that is not known, or for none."""
    return _FINISHES.get(value, "other") if isinstance(value, str) else "other"


def read_usage(record: Any) -> Usage:
    """Token counts, None for what is absent or no count. The API counts cached input apart: it is added."""
    if not isinstance(record, dict):
        return NO_USAGE
    fresh, read = count(record.get("inputTokens")), count(record.get("cacheReadInputTokens"))
    written = count(record.get("cacheWriteInputTokens"))
    return Usage(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=count(record.get("outputTokens")),
        cached_tokens=read,
    )


def carry(blocks: Sequence[Mapping[str, Any]]) -> Carried | None:
    """The whole turn where it holds reasoning that is signed or sealed: the API wants that back unchanged."""
    for block in blocks:
        reasoning = block.get("reasoningContent")
        if isinstance(reasoning, dict):
            said = reasoning.get("reasoningText")
            if "redactedContent" in reasoning or (isinstance(said, dict) and said.get("signature")):
                return Carried(dialect=NAME, parts=tuple(blocks))
    return None


def _content(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    output = data.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    blocks = message.get("content") if isinstance(message, dict) else None
    if not isinstance(blocks, list):
        raise wrong("it holds no message")
    if not all(isinstance(block, dict) for block in blocks):
        raise wrong("a block of the content is not an object")
    return blocks


def _text(block: Mapping[str, Any]) -> str:
    """The text of a block, also of one with citations."""
    said = block.get("text", "")
    if not isinstance(said, str):
        raise wrong("a block's text is not text")
    cited = block.get("citationsContent")
    pieces = cited.get("content") if isinstance(cited, dict) else None
    return said + "".join(_texts(pieces if isinstance(pieces, list) else ()))


def _texts(pieces: Iterable[Any]) -> Iterable[str]:
    return (text(piece, "text") or "" for piece in pieces if isinstance(piece, dict))


def _reasoning(block: Mapping[str, Any]) -> str:
    content = block.get("reasoningContent")
    said = content.get("reasoningText") if isinstance(content, dict) else None
    return (text(said, "text") or "") if isinstance(said, dict) else ""


def _is_call(block: Mapping[str, Any]) -> bool:
    call = block.get("toolUse")
    return call is not None and not (isinstance(call, dict) and call.get("type") == SERVER_TOOL)


def _tool_call(call: Any, index: int) -> ToolCall:
    name = text(call, "name") if isinstance(call, dict) else None
    if name is None:
        raise wrong("a tool call names no tool")
    return ToolCall(
        id=text(call, "toolUseId") or f"call_{index}",
        name=name,
        arguments=arguments_text(call.get("input")),
    )


def _vectors(data: Mapping[str, Any]) -> list[Any]:
    """Titan: `embedding`. Cohere: a list of vectors, or lists by type."""
    if "embedding" in data:
        return [data["embedding"]]
    found = data.get("embeddings")
    if isinstance(found, dict):
        found = found.get("float")
    if not isinstance(found, list):
        raise wrong("it holds no vectors of floats")
    return found


def _embed_usage(data: Mapping[str, Any], headers: HeaderMap) -> Usage:
    tokens = count(data.get("inputTextTokenCount"))
    if tokens is None:
        said = headers.get(_INPUT_COUNT) or ""
        tokens = int(said) if said.isascii() and said.isdigit() and len(said) <= 12 else None
    return Usage(input_tokens=tokens)


def _model_info(record: dict[str, Any]) -> ModelInfo:
    """The service tells neither windows nor parameters."""
    return ModelInfo(id=record["modelId"], owner=text(record, "providerName"), raw=record)
