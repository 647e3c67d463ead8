"""Answers of Ollama's dialect: completions, embeddings, model lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._ollama_errors import FAILURES
from onym.llm.dialects._ollama_read import finish_reason, read_message, read_tool_calls, read_usage
from onym.llm.dialects._read import count as whole_number
from onym.llm.dialects._read import models, one_for_each, text, vector, wrong
from onym.llm.types import Completion, Embeddings, ModelInfo, ModelPage

__all__ = ["decode_chat", "decode_embed", "decode_model", "decode_models"]

_WINDOW = ".context_length"


@FAILURES.located
def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST /api/chat.

    Raises MalformedResponseError, or the typed error that the body holds.
    """
    data = FAILURES.load_object(status, headers, body, exchange)
    message = read_message(data)
    calls = tuple(read_tool_calls(message))
    return Completion(
        text=text(message, "content") or "",
        model=text(data, "model") or exchange.model,
        finish_reason=finish_reason(data, calls=bool(calls)),
        reasoning=text(message, "thinking"),
        tool_calls=calls,
        usage=read_usage(data),
        request_id=find_request_id(headers, exchange),
        raw=data,
    )


@FAILURES.located
def decode_embed(
    status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE, *, count: int
) -> Embeddings:
    """The vectors in a 2xx answer to POST /api/embed."""
    data = FAILURES.load_object(status, headers, body, exchange)
    return Embeddings(
        vectors=_vectors(data.get("embeddings"), count),
        model=text(data, "model") or exchange.model,
        usage=read_usage(data),
        request_id=find_request_id(headers, exchange),
    )


@FAILURES.located
def decode_models(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelPage:
    """The models on the server's disk, in a 2xx answer to GET /api/tags. There is one page."""
    data = FAILURES.load_object(status, headers, body, exchange)
    records = models(data.get("models"))
    named = ((text(each, "model") or text(each, "name"), each) for each in records)
    return ModelPage(tuple(ModelInfo(id=name, raw=each) for name, each in named if name))


@FAILURES.located
def decode_model(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> ModelInfo:
    """The record in a 2xx answer to POST /api/show, which does not say the model's name again.

    `context_window` is what the model was made for; the server may give it less (`options.num_ctx`).
    """
    data = FAILURES.load_object(status, headers, body, exchange)
    facts = data.get("model_info")
    if not isinstance(facts, dict) and not isinstance(data.get("details"), dict):
        raise wrong("it holds no model")
    return ModelInfo(
        id=exchange.model, context_window=_window(facts) if isinstance(facts, dict) else None, raw=data
    )


def _vectors(given: Any, count: int) -> tuple[Sequence[float], ...]:
    return tuple(map(vector, one_for_each(given, count)))


def _window(facts: Mapping[str, Any]) -> int | None:
    """The context length of the model's architecture; the facts may hold those of other parts too."""
    named = f"{facts.get('general.architecture')}{_WINDOW}"
    names = [named, *(name for name in facts if name.endswith(_WINDOW))]
    return next((size for name in names if (size := whole_number(facts.get(name)))), None)
