"""Streams of the OpenAI Responses dialect, as push decoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onym.llm.dialects._base import NOWHERE, Decoder, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._push import EventDecoder, SSEFrames, WholeBody, is_whole
from onym.llm.dialects._read import json_object, text, wrong
from onym.llm.dialects._responses_decode import decode_chat, read_items
from onym.llm.dialects._responses_errors import FAILURES
from onym.llm.dialects._responses_read import (
    PARAGRAPH,
    finish_reason,
    read_carried,
    read_said,
    read_tool_call,
    read_usage,
)
from onym.llm.types import Event, ReasoningDelta, TextDelta, ToolCallDelta
from onym.net.sse import SSEEvent

__all__ = ["StreamDecoder", "stream_decoder"]

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})
#: what brings text: the kind of part that it belongs to, and the members with its place and with the text
_TEXTS: Mapping[str, tuple[str, str, str]] = {
    "response.output_text.delta": ("output_text", "content_index", "delta"),
    "response.output_text.done": ("output_text", "content_index", "text"),
    "response.refusal.delta": ("refusal", "content_index", "delta"),
    "response.refusal.done": ("refusal", "content_index", "refusal"),
    "response.reasoning_summary_text.delta": ("summary_text", "summary_index", "delta"),
    "response.reasoning_summary_text.done": ("summary_text", "summary_index", "text"),
    "response.reasoning_text.delta": ("reasoning_text", "content_index", "delta"),
    "response.reasoning_text.done": ("reasoning_text", "content_index", "text"),
    "response.function_call_arguments.delta": ("arguments", "content_index", "delta"),
    "response.function_call_arguments.done": ("arguments", "content_index", "arguments"),
}
_REASONING = frozenset({"summary_text", "reasoning_text"})


def stream_decoder(status: int, headers: HeaderMap, exchange: Exchange = NOWHERE) -> Decoder:
    """The decoder for the body of this answer: some servers answer a request for a stream whole."""
    if is_whole(headers):
        return WholeBody(decode_chat, status, headers, exchange)
    return StreamDecoder(find_request_id(headers, exchange), exchange, status=status)


class _Item:
    """One item of the output as far as it has come."""

    __slots__ = ("call", "said", "whole")

    def __init__(self) -> None:
        #: the parts whose text has been handed out: what repeats them whole is not handed out again
        self.said: set[tuple[str, int]] = set()
        #: its place among the tool calls, where it is one
        self.call: int | None = None
        self.whole: Mapping[str, Any] | None = None


class StreamDecoder(EventDecoder[SSEEvent]):
    """Server-sent events of a response to events.

    Text is told once, by the pieces that it comes in, or by the event that repeats it whole where no piece
    came. `Finish` comes at the response's end; `[DONE]` is taken for one where a server sends no other.
    """

    __slots__ = ("_calls", "_items", "_known", "_thought")

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NOWHERE, *, status: int = 200
    ) -> None:
        super().__init__(SSEFrames(), FAILURES, request_id, exchange, status=status)
        self._items: list[_Item] = []
        #: the items by id (a text) and by place in the output (a number)
        self._known: dict[object, _Item] = {}
        self._calls = 0
        #: the part that the last piece of reasoning belonged to
        self._thought: object = None

    def _take(self, frame: SSEEvent, events: list[Event]) -> bool:
        if frame.data.startswith("[DONE]"):
            if not self._items:
                raise wrong("the stream holds no answer")
            return True
        record = json_object(frame.data)
        if record is None:
            raise wrong("an event of the stream is not a JSON object")
        kind = record.get("type")
        if not isinstance(kind, str) or not kind.startswith("response."):
            if frame.event == "error" or FAILURES.is_failure(record):
                raise self._failed(record)
            return False
        if isinstance(response := record.get("response"), dict):
            self._response(response)
        if kind in _ENDS:
            self._end(response, events)
            return True
        self._event(kind, record, events)
        return False

    def _event(self, kind: str, record: Mapping[str, Any], events: list[Event]) -> None:
        if kind in _TEXTS:
            part, place, member = _TEXTS[kind]
            at, said = record.get(place), record.get(member)
            key = part, at if type(at) is int else 0
            item = self._item(record.get("item_id"), record.get("output_index"))
            if not kind.endswith(".done") or key not in item.said:
                self._text(item, key, said, events)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            whole = record.get("item")
            if not isinstance(whole, dict):
                raise wrong("an item of the output is not an object")
            done = kind.endswith(".done")
            item = self._item(whole.get("id"), record.get("output_index"), fresh=not done)
            self._output(item, whole, events, done=done)

    def _response(self, response: Mapping[str, Any]) -> None:
        """What every event that holds the response says of it."""
        self._model = text(response, "model") or self._model
        if response.get("usage") is not None:
            self.usage = read_usage(response["usage"])

    def _end(self, response: Any, events: list[Event]) -> None:
        if not isinstance(response, dict):
            raise wrong("the end of the stream holds no response")
        if FAILURES.is_failure(response):
            raise self._failed(response)
        if not self._items and "output" in response:
            # a server that streams nothing but the end
            for place, whole in enumerate(read_items(response)):
                self._output(self._item(None, place), whole, events, done=True)
        self._reason = finish_reason(response, calls=self._calls > 0)
        self._carried = read_carried(item.whole for item in self._items if item.whole is not None)

    def _item(self, identity: Any, place: Any, *, fresh: bool = False) -> _Item:
        """The item that an event is about; `fresh` says that it is announced, and places do not count.

        Some servers name items by id alone, some count no places, some change an id from event to event.
        """
        names = [name for name, kind in ((identity, str), (place, int)) if type(name) is kind and name != ""]
        found = self._known.get(identity) if identity in names else None
        if found is None and not fresh:
            found = self._known.get(place) if names else self._items[-1] if self._items else None
        if found is None:
            found = _Item()
            self._items.append(found)
        self._known.update(dict.fromkeys(names, found))
        return found

    def _output(self, item: _Item, whole: Mapping[str, Any], events: list[Event], *, done: bool) -> None:
        """An item as it begins, or as it is when done."""
        if whole.get("type") == "function_call":
            call = read_tool_call(whole, self._calls if item.call is None else item.call)
            if item.call is None:
                item.call, self._calls = self._calls, self._calls + 1
                events.append(ToolCallDelta(index=item.call, id=call.id, name=call.name))
            if done and not item.said:
                self._text(item, ("arguments", 0), call.arguments, events)
        if done:
            item.whole = whole
            for kind, place, said in read_said(whole):
                if (kind, place) not in item.said:
                    self._text(item, (kind, place), said, events)

    def _text(self, item: _Item, part: tuple[str, int], said: Any, events: list[Event]) -> None:
        if not isinstance(said, str):
            raise wrong("a piece of text is not a text")
        if not said:
            return
        item.said.add(part)
        if part[0] == "arguments":
            if item.call is None:
                raise wrong("the arguments of a tool call came before the call")
            events.append(ToolCallDelta(index=item.call, arguments=said))
        elif part[0] in _REASONING:
            thought = id(item), part
            if self._thought not in (None, thought):
                said = PARAGRAPH + said
            self._thought = thought
            events.append(ReasoningDelta(said))
        else:
            events.append(TextDelta(said))
