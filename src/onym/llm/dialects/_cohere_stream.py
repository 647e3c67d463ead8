"""Streams of the Cohere dialect, as push decoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onym.llm.dialects._base import NOWHERE, Decoder, Exchange, HeaderMap
from onym.llm.dialects._cohere_decode import decode_chat
from onym.llm.dialects._cohere_errors import FAILURES
from onym.llm.dialects._cohere_read import finish_reason, read_usage, record
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._push import EventDecoder, SSEFrames, WholeBody, is_whole
from onym.llm.dialects._read import arguments_text, json_object, text, wrong
from onym.llm.types import Event, ReasoningDelta, TextDelta, ToolCallDelta
from onym.net.sse import SSEEvent

__all__ = ["BodyDecoder", "StreamDecoder", "stream_decoder"]


def stream_decoder(status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> Decoder:
    """The decoder for the body of this answer: a gateway may answer a request for a stream whole."""
    if is_whole(headers):
        return BodyDecoder(status, headers, exchange)
    return StreamDecoder(find_request_id(headers, exchange), exchange, status=status)


class BodyDecoder(WholeBody):
    """A whole answer where a stream was asked for."""

    __slots__ = ()

    def __init__(self, status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> None:
        super().__init__(decode_chat, status, headers, exchange)


class StreamDecoder(EventDecoder[SSEEvent]):
    """Server-sent events to Onym's. `Finish` comes at `message-end`; citations are not read."""

    __slots__ = ("_calls",)

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NOWHERE, *, status: int = 200
    ) -> None:
        super().__init__(SSEFrames(), FAILURES, request_id, exchange, status=status)
        #: the server's numbers of the tool calls so far, in their order: they need not begin at 0
        self._calls: list[tuple[int, int]] = []

    def _take(self, frame: SSEEvent, events: list[Event]) -> bool:
        data = json_object(frame.data)
        if data is None:
            raise wrong("an event of the stream is not a JSON object")
        kind = data.get("type") or frame.event
        if kind == "error" or FAILURES.is_failure(data):
            raise self._failed(data)
        if kind == "message-end":
            return self._end(record(data, "delta"))
        read = _READERS.get(kind) if isinstance(kind, str) else None
        if read is not None:
            read(self, data, record(record(data, "delta"), "message"), events)
        return False

    def _end(self, delta: Mapping[str, Any]) -> bool:
        self.usage = read_usage(delta.get("usage"))
        if FAILURES.is_failure(delta):
            raise self._failed(delta)
        self._reason = finish_reason(delta.get("finish_reason"))
        return True

    def _content(self, _: Mapping[str, Any], message: Mapping[str, Any], events: list[Event]) -> None:
        content = record(message, "content")
        thought, said = text(content, "thinking"), text(content, "text")
        if thought:
            events.append(ReasoningDelta(thought))
        if said:
            events.append(TextDelta(said))

    def _plan(self, _: Mapping[str, Any], message: Mapping[str, Any], events: list[Event]) -> None:
        plan = text(message, "tool_plan")
        if plan:
            events.append(ReasoningDelta(plan))

    def _call(self, data: Mapping[str, Any], message: Mapping[str, Any], events: list[Event]) -> None:
        calls = message.get("tool_calls")
        # one call is an object; gateways that speak the dialect make a list of it
        for position, call in enumerate(calls if isinstance(calls, list) else [calls]):
            if not isinstance(call, dict):
                raise wrong("a tool call is not an object")
            function = record(call, "function")
            index, fresh = self._index(data.get("index"), position)
            arguments = arguments_text(function.get("arguments"))
            if not fresh:
                if arguments:
                    events.append(ToolCallDelta(index=index, arguments=arguments))
                continue
            name = text(function, "name")
            if name is None:
                raise wrong("a tool call names no function")
            identity = text(call, "id") or f"call_{index}"
            events.append(ToolCallDelta(index=index, id=identity, name=name, arguments=arguments))

    def _index(self, number: Any, position: int) -> tuple[int, bool]:
        """The place of a call among the calls, and whether it is the first time that it is seen."""
        key = (number if type(number) is int else 0, position)
        fresh = key not in self._calls
        if fresh:
            self._calls.append(key)
        return self._calls.index(key), fresh


_READERS: Mapping[str, Callable[[StreamDecoder, Mapping[str, Any], Mapping[str, Any], list[Event]], None]] = {
    "content-start": StreamDecoder._content,
    "content-delta": StreamDecoder._content,
    "tool-plan-delta": StreamDecoder._plan,
    "tool-call-start": StreamDecoder._call,
    "tool-call-delta": StreamDecoder._call,
}
