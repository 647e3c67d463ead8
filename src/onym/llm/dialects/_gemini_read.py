"""The members that full answers and stream frames of the Gemini dialect share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import msgspec

from onym.llm.dialects._base import Exchange
from onym.llm.dialects._read import NO_USAGE, count, text, wrong
from onym.llm.types import Carried, FinishReason, Usage

__all__ = [
    "NAME",
    "Call",
    "Piece",
    "carried",
    "finish_reason",
    "first_candidate",
    "pieces",
    "raw_parts",
    "read_usage",
    "response_id",
    "whole",
]

#: the dialect's name, also for what it carries from turn to turn
NAME = "gemini"

_LONGEST_ID = 200

_FINISHES: Mapping[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    # the limit of one request; the answer goes on where its continuationToken is sent
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "ESCALATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
}
#: members of a part that is nothing but a piece of text
_PLAIN = frozenset({"text", "thought"})


class Call(NamedTuple):
    """A function call: `id` is None where the API gives none, `arguments` is JSON text."""

    id: str | None
    name: str
    arguments: str


class Piece(NamedTuple):
    """What one part says: a piece of the text, or of the reasoning, or a call."""

    text: str = ""
    reasoning: str = ""
    call: Call | None = None


Parts: TypeAlias = Sequence[Mapping[str, Any]]


def first_candidate(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first candidate of an answer or a frame, None where it holds none."""
    candidates = data.get("candidates")
    if candidates is None:
        return None
    if not isinstance(candidates, list):
        raise wrong("the candidates are not a list")
    for candidate in candidates:
        if not isinstance(candidate, dict):
            raise wrong("a candidate is not an object")
        if candidate.get("index", 0) == 0:
            return candidate
    return None


def raw_parts(candidate: Mapping[str, Any]) -> Parts:
    """The parts of a candidate as they were written; none where it was stopped before it said a word."""
    content = candidate.get("content")
    if content is None:
        return ()
    if not isinstance(content, dict):
        raise wrong("the content is not an object")
    parts = content.get("parts")
    if parts is None:
        return ()
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise wrong("the parts are not a list of objects")
    return parts


def pieces(parts: Parts) -> Iterator[Piece]:
    """What each part says; parts of other kinds (code, images…) are passed over."""
    for part in parts:
        said, call = part.get("text"), part.get("functionCall")
        if call is not None:
            yield Piece(call=_call(call))
        elif isinstance(said, str):
            yield Piece(reasoning=said) if part.get("thought") is True else Piece(said)
        elif said is not None:
            raise wrong("the text of a part is not text")


def _call(call: Any) -> Call:
    if not isinstance(call, dict):
        raise wrong("a function call is not an object")
    if call.get("partialArgs") or call.get("willContinue"):
        raise wrong("the arguments of a function call come in pieces, as nobody asked for")
    name, arguments = text(call, "name"), call.get("args")
    if name is None:
        raise wrong("a function call names no function")
    if arguments is not None and not isinstance(arguments, dict):
        raise wrong("the arguments of a function call are not an object")
    return Call(text(call, "id"), name, msgspec.json.encode(arguments or {}).decode())


def finish_reason(value: Any, *, called: bool) -> FinishReason:
    """The server's word in Onym's vocabulary; `called` says that the model asks for function calls."""
    reason = _FINISHES.get(value, "other") if isinstance(value, str) else "other"
    return "tool_calls" if called and reason == "stop" else reason


def read_usage(record: Any) -> Usage:
    """Token counts, None for what is absent or no count: thoughts are output, tool prompts input."""
    if not isinstance(record, dict):
        return NO_USAGE
    thoughts = count(record.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=_sum(
            count(record.get("promptTokenCount")), count(record.get("toolUsePromptTokenCount"))
        ),
        output_tokens=_sum(count(record.get("candidatesTokenCount")), thoughts),
        cached_tokens=count(record.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )


def _sum(one: int | None, two: int | None) -> int | None:
    return two if one is None else one if two is None else one + two


def response_id(data: Mapping[str, Any], exchange: Exchange) -> str | None:
    """The server's own name for the answer: Google sends it in the body, not in a header."""
    value = text(data, "responseId")
    if value is None or len(value) > _LONGEST_ID or not value.isprintable():
        return None
    return None if any(secret.reveal() in value for secret in exchange.secrets) else value


def carried(parts: Parts) -> Carried | None:
    """The turn as it has to come back, where something in it is signed.

    Pieces of one text that a stream cut are put together; what bears a signature stays by itself.
    """
    if not any(part.get("thoughtSignature") for part in parts):
        return None
    return Carried(dialect=NAME, parts=tuple(_joined(parts)))


def _joined(parts: Parts) -> Iterator[Mapping[str, Any]]:
    for (plain, thought), group in groupby(parts, _kind):
        if not plain:
            yield from group
            continue
        said = "".join(part["text"] for part in group)
        yield {"text": said, "thought": True} if thought else {"text": said}


def _kind(part: Mapping[str, Any]) -> tuple[bool, bool]:
    return isinstance(part.get("text"), str) and part.keys() <= _PLAIN, part.get("thought") is True


def whole(frames: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The frames of a stream as the one answer that they are; a single one as it is."""
    if len(frames) == 1:
        return frames[0]
    answer: dict[str, Any] = {}
    parts: list[Mapping[str, Any]] = []
    merged: dict[str, Any] = {}
    for frame in frames:
        answer.update(frame)
        candidate = first_candidate(frame)
        if candidate is not None:
            parts.extend(raw_parts(candidate))
            merged.update(candidate)
    if merged:
        answer["candidates"] = [{**merged, "content": {"role": "model", "parts": parts}}]
    return answer
