"""Streams of Ollama's dialect, as push decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.dialects._base import NOWHERE, Decoder, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._ollama_decode import decode_chat
from onym.llm.dialects._ollama_errors import FAILURES
from onym.llm.dialects._ollama_read import finish_reason, read_message, read_tool_calls, read_usage
from onym.llm.dialects._push import EventDecoder, LineFrames, WholeBody, is_whole
from onym.llm.dialects._read import json_object, text, wrong
from onym.llm.types import Event, ReasoningDelta, TextDelta, ToolCallDelta

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


class StreamDecoder(EventDecoder[bytes]):
    """Lines of JSON to events. `Finish` comes at the line that is `done`; tool calls come whole."""

    __slots__ = ("_calls",)

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NOWHERE, *, status: int = 200
    ) -> None:
        super().__init__(LineFrames(), FAILURES, request_id, exchange, status=status)
        #: tool calls so far
        self._calls = 0

    def _take(self, frame: bytes, events: list[Event]) -> bool:
        data = json_object(frame)
        if data is None:
            raise wrong("a line of the stream is not a JSON object")
        if FAILURES.is_failure(data):
            raise self._failed(data)
        self._model = self._model or text(data, "model")
        done = data.get("done") is True
        if not done or "message" in data:
            self._message(read_message(data), events)
        if not done:
            return False
        self.usage = read_usage(data)
        self._reason = finish_reason(data, calls=self._calls > 0)
        return True

    def _message(self, message: Mapping[str, Any], events: list[Event]) -> None:
        thought, said = text(message, "thinking"), text(message, "content")
        if thought:
            events.append(ReasoningDelta(thought))
        if said:
            events.append(TextDelta(said))
        for call in read_tool_calls(message, self._calls):
            events.append(
                ToolCallDelta(index=self._calls, id=call.id, name=call.name, arguments=call.arguments)
            )
            self._calls += 1
