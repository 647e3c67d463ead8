"""Streams of the OpenAI chat dialect, as push decoders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from onym.errors import MalformedResponseError, NetError, ProviderError, ResponseTooLarge
from onym.llm.dialects._base import NOWHERE, Decoder, Exchange, HeaderMap
from onym.llm.dialects._openai_decode import decode_chat
from onym.llm.dialects._openai_errors import find_request_id, is_failure, malformed, stream_error
from onym.llm.dialects._openai_read import (
    NO_USAGE,
    arguments_text,
    finish_reason,
    read_reasoning,
    read_text,
    read_usage,
    wrong,
)
from onym.llm.types import (
    Completion,
    Event,
    Finish,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from onym.net.sse import SSEDecoder, SSEEvent

__all__ = ["BodyDecoder", "StreamDecoder", "stream_decoder"]

_LARGEST_BODY = 32 * 1024 * 1024
#: where an event may end, whichever line ends the server writes and wherever a cut falls between them
_AFTER_BLANK_LINE = re.compile(
    rb"(?<=\n\n)|(?<=\n\r\n)|(?<=\r\r)|(?<=\n\r)(?!\n)|(?<=\A\n)|(?<=\A\r\n)|(?<=\A\r)(?!\n)"
)
_NOT_STREAMS = frozenset({"application/json", "text/html", "application/xhtml+xml"})


def stream_decoder(status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> Decoder:
    """The decoder for the body of this answer: some servers answer a request for a stream whole."""
    media = (headers.get("content-type") or "").partition(";")[0].strip().lower()
    if media in _NOT_STREAMS:
        return BodyDecoder(status, headers, exchange)
    return StreamDecoder(find_request_id(headers, exchange), exchange, status=status)


class StreamDecoder:
    """Server-sent chunks to events.

    The same bytes give the same events however they are cut. `Finish` comes at `[DONE]`, or at the
    end of the bytes where the server gave a finish reason and left `[DONE]` out. Choices other than
    the first are not read.
    """

    __slots__ = (
        "_answered",
        "_calls",
        "_exchange",
        "_model",
        "_reason",
        "_request_id",
        "_sse",
        "_status",
        "done",
        "error",
        "usage",
    )

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NOWHERE, *, status: int = 200
    ) -> None:
        self.error: NetError | ProviderError | None = None
        self.done = False
        self.usage: Usage = NO_USAGE
        self._sse = SSEDecoder()
        self._request_id = request_id
        self._exchange = exchange
        self._status = status
        self._model: str | None = None
        self._reason: FinishReason | None = None
        self._answered = False
        #: per index of a tool call: the id and the name that were handed out
        self._calls: dict[int, list[str]] = {}

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete; after an error or the end, none."""
        events: list[Event] = []
        if self.done or self.error is not None:
            return events
        try:
            # one event at a time: where one is bad, those before it in the same bytes are not lost
            for piece in _AFTER_BLANK_LINE.split(data):
                for message in self._sse.feed(piece):
                    if self._take(message, events):
                        return events
        except (NetError, ProviderError) as error:
            self.error = error
        return events

    def close(self) -> list[Event]:
        """The last events. Raises the error, or MalformedResponseError where no end was announced."""
        events: list[Event] = []
        if self.error is None and not self.done:
            if self._reason is None:
                self.error = self._malformed("the stream ended before the answer did")
            else:
                self._finish(events)
        if self.error is not None:
            raise self.error
        return events

    def _take(self, message: SSEEvent, events: list[Event]) -> bool:
        """Read one message; True says that it was the last."""
        data = message.data
        if data.startswith("[DONE]"):
            if not self._answered:
                raise self._malformed("the stream holds no answer")
            self._finish(events)
            return True
        try:
            chunk = msgspec.json.decode(data)
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            raise self._malformed("an event of the stream is not a JSON object")
        if message.event == "error" and "error" not in chunk:
            chunk = {"error": chunk}
        if is_failure(chunk):
            raise stream_error(
                chunk,
                status=self._status,
                request_id=self._request_id,
                usage=self.usage,
                exchange=self._exchange,
            )
        try:
            self._chunk(chunk, events)
        except MalformedResponseError as error:
            text = error.message
        else:
            return False
        raise self._malformed(text)

    def _chunk(self, chunk: Mapping[str, Any], events: list[Event]) -> None:
        usage = chunk.get("usage")
        if usage is None and "x_groq" in chunk:
            groq = chunk["x_groq"]
            usage = groq.get("usage") if isinstance(groq, dict) else None
        if usage is not None:
            self.usage = read_usage(usage)
        if self._model is None:
            model = chunk.get("model")
            self._model = model if isinstance(model, str) and model else None
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
            text = read_text(delta)
            if text:
                events.append(TextDelta(text))
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

    def _finish(self, events: list[Event]) -> None:
        self.done = True
        events.append(
            Finish(
                reason=self._reason or "other",
                usage=self.usage,
                model=self._model or self._exchange.model or None,
                request_id=self._request_id,
            )
        )

    def _malformed(self, text: str) -> MalformedResponseError:
        error = malformed(text, self._status, None, self._exchange, usage=self.usage)
        error.request_id = self._request_id
        return error


class BodyDecoder:
    """A whole body where a stream was asked for: read to its end, then handed out as events."""

    __slots__ = ("_body", "_exchange", "_headers", "_status", "done", "error", "usage")

    def __init__(self, status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> None:
        self.error: NetError | ProviderError | None = None
        self.done = False
        self.usage: Usage = NO_USAGE
        self._status = status
        self._headers = headers
        self._exchange = exchange
        self._body = bytearray()

    def feed(self, data: bytes) -> list[Event]:
        """Nothing: a body says what it is at its end."""
        if self.error is None:
            self._body += data
            if len(self._body) > _LARGEST_BODY:
                self._body.clear()
                self.error = ResponseTooLarge(
                    "the answer is larger than a completion may be", endpoint=self._exchange.endpoint
                )
        return []

    def close(self) -> list[Event]:
        """The answer as events. Raises ProviderError where it is none."""
        if self.done:
            return []
        if self.error is not None:
            raise self.error
        try:
            whole = decode_chat(self._status, self._headers, bytes(self._body), self._exchange)
        except (NetError, ProviderError) as error:
            self.error = error
            raise
        self.done, self.usage = True, whole.usage
        return list(_events(whole))


def _events(whole: Completion) -> Iterator[Event]:
    if whole.reasoning:
        yield ReasoningDelta(whole.reasoning)
    if whole.text:
        yield TextDelta(whole.text)
    for index, call in enumerate(whole.tool_calls):
        yield ToolCallDelta(index=index, id=call.id, name=call.name, arguments=call.arguments)
    yield Finish(
        reason=whole.finish_reason, usage=whole.usage, model=whole.model or None, request_id=whole.request_id
    )
