"""Answers of the OpenAI Responses dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.dialects._base import NOWHERE, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._read import text, wrong
from onym.llm.dialects._responses_errors import FAILURES
from onym.llm.dialects._responses_read import (
    PARAGRAPH,
    finish_reason,
    read_carried,
    read_said,
    read_tool_call,
    read_usage,
)
from onym.llm.types import Completion

__all__ = ["decode_chat", "read_items"]


@FAILURES.located
def decode_chat(status: int, headers: HeaderMap, body: bytes, exchange: Exchange = NOWHERE) -> Completion:
    """The completion in a 2xx answer to POST /responses.

    What the model refuses with is text as well. Raises MalformedResponseError, or the typed error that
    the body holds.
    """
    data = FAILURES.load_object(status, headers, body, exchange)
    return _completion(data, headers, exchange)


def read_items(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items of a response's output."""
    items = response.get("output")
    if not isinstance(items, list):
        raise wrong("it holds no output")
    if not all(isinstance(item, dict) for item in items):
        raise wrong("an item of the output is not an object")
    return items


def _completion(data: Mapping[str, Any], headers: HeaderMap, exchange: Exchange) -> Completion:
    items = read_items(data)
    said: dict[bool, list[str]] = {False: [], True: []}
    for item in items:
        said[item.get("type") == "reasoning"].extend(each.text for each in read_said(item))
    calls = [item for item in items if item.get("type") == "function_call"]
    return Completion(
        text="".join(said[False]),
        model=text(data, "model") or exchange.model,
        finish_reason=finish_reason(data, calls=bool(calls)),
        reasoning=PARAGRAPH.join(said[True]) or None,
        tool_calls=tuple(read_tool_call(call, index) for index, call in enumerate(calls)),
        usage=read_usage(data.get("usage")),
        request_id=find_request_id(headers, exchange),
        carried=read_carried(items),
        raw=data,
    )
