"""Streams of the OpenAI chat dialect, as push decoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onym.llm.dialects._base import NOWHERE, Decoder, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._openai_decode import decode_chat
from onym.llm.dialects._openai_errors import FAILURES
from onym.llm.dialects._openai_read import finish_reason, read_reasoning, read_text, read_usage
from onym.llm.dialects._push import EventDecoder, SSEFrames, WholeBody, is_whole
from onym.llm.dialects._read import arguments_text, json_object, text, wrong
from onym.llm.types import Event, ReasoningDelta, TextDelta, ToolCallDelta
from onym.net.sse import SSEEvent

__all__ = ["BodyDecoder", "StreamDecoder", "stream_decoder"]


def stream_decoder(status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> Decoder:
    """The decoder for the body of this answer: some servers answer a request for a stream whole."""
    if is_whole(headers):
        return BodyDecoder(status, headers, exchange)
    return StreamDecoder(find_request_id(headers, exchange), exchange, status=status)


class BodyDecoder(WholeBody):
    """A whole answer where a stream was asked for."""

    __slots__ = ()

    def __init__(self, status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> None:
        super().__init__(decode_chat, status, headers, exchange)


class StreamDecoder(EventDecoder[SSEEvent]):
    """Server-sent chunks to events.

    `Finish` comes at `[DONE]`, or at the end of the bytes where the server gave a finish reason and left
    `[DONE]` out. Choices other than the first are not read.
    """

    __slots__ = ("_answered", "_calls")

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NOWHERE, *, status: int = 200
    ) -> None:
        super().__init__(SSEFrames(), FAILURES, request_id, exchange, status=status)
        self._answered = False
        #: per index of a tool call: the id and the name that were handed out
        self._calls: dict[int, list[str]] = {}

    def _take(self, frame: SSEEvent, events: list[Event]) -> bool:
        data = frame.data
        if data.startswith("[DONE]"):
            if not self._answered:
                raise wrong("the stream holds no answer")
            return True
        chunk = json_object(data)
        if chunk is None:
            raise wrong("an event of the stream is not a JSON object")
        if frame.event == "error" and "error" not in chunk:
            chunk = {"error": chunk}
        if FAILURES.is_failure(chunk):
            raise self._failed(chunk)
        self._chunk(chunk, events)
        return False

    def _chunk(self, chunk: Mapping[str, Any], events: list[Event]) -> None:
        usage = chunk.get("usage")
        if usage is None and "x_groq" in chunk:
            groq = chunk["x_groq"]
            usage = groq.get("usage") if isinstance(groq, dict) else None
        if usage is not None:
            self.usage = read_usage(usage)
        if self._model is None:
            self._model = text(chunk, "model")
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                raise wrong("a choice is not an object")
            if choice.get("index", 0) == 0:
                self._choice(choice, events)

    def _choice(self, choice: Mapping[str, Any], events: list[Event]) -> None:
        self._answered = True
        delta = choice.get("delta")
        if isinstance(delta, dict):
            reasoning = read_reasoning(delta)
            if reasoning:
                events.append(ReasoningDelta(reasoning))
            said = read_text(delta)
            if said:
                events.append(TextDelta(said))
            calls = delta.get("tool_calls")
            if calls:
                events.extend(self._tool_calls(calls))
        elif delta is not None:
            raise wrong("a delta is not an object")
        reason = choice.get("finish_reason")
        if reason is not None:
            self._reason = finish_reason(reason)

    def _tool_calls(self, calls: Any) -> Iterator[Event]:
        if not isinstance(calls, list):
            raise wrong("the tool calls are not a list")
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                raise wrong("a tool call holds no function")
            identity, name = call.get("id"), function.get("name")
            index = self._index(call.get("index"), identity)
            seen = self._calls.setdefault(index, ["", ""])
            # id and name are handed out once: some servers repeat them in each piece
            fresh_id = identity if isinstance(identity, str) and identity and not seen[0] else None
            fresh_name = name if isinstance(name, str) and name and not seen[1] else None
            seen[0], seen[1] = fresh_id or seen[0], fresh_name or seen[1]
            yield ToolCallDelta(
                index=index, id=fresh_id, name=fresh_name, arguments=arguments_text(function.get("arguments"))
            )

    def _index(self, index: Any, identity: Any) -> int:
        if type(index) is int and index >= 0:
            return index
        # no index: a new id begins a call, and what has none goes on with the last one
        known = [index for index, seen in self._calls.items() if seen[0] == identity]
        last = max(self._calls, default=-1)
        return known[0] if known and identity else last + 1 if identity or last < 0 else last
