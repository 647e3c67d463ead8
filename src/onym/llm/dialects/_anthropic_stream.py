"""Streams of the Anthropic Messages dialect, as push decoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onym.llm.dialects._anthropic_decode import decode_chat
from onym.llm.dialects._anthropic_errors import FAILURES
from onym.llm.dialects._anthropic_read import finish_reason, read_carried, read_usage
from onym.llm.dialects._base import NOWHERE, Decoder, Exchange, HeaderMap
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._push import EventDecoder, SSEFrames, WholeBody, is_whole
from onym.llm.dialects._read import arguments_text, json_object, text, wrong
from onym.llm.types import Event, ReasoningDelta, TextDelta, ToolCallDelta
from onym.net.sse import SSEEvent

__all__ = ["BodyDecoder", "StreamDecoder", "stream_decoder"]

#: by kind of delta: the member of it that holds the piece, and the member of the block that it goes to
_PIECES: Mapping[str, tuple[str, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}

#: by kind of block, which is also the member that holds it: what a reader is told
_SAID: Mapping[str, Callable[[str], Event]] = {"text": TextDelta, "thinking": ReasoningDelta}


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


class _Block:
    """A block of content that is still growing. `call` is its index among the tool calls, if it is one."""

    __slots__ = ("_pieces", "_record", "call", "kind")

    def __init__(self, record: dict[str, Any], call: int | None) -> None:
        kind = record.get("type")
        self.kind = kind if isinstance(kind, str) else ""
        self.call = call
        self._record = record
        self._pieces: dict[str, list[str]] = {}

    def add(self, member: str, piece: str) -> None:
        """One more piece of a member that is text, or of `input`, which is JSON text on the way."""
        self._pieces.setdefault(member, []).append(piece)

    def cite(self, citation: Any) -> None:
        """One more source of the text."""
        self._record["citations"] = [*(self._record.get("citations") or ()), citation]

    def rest(self) -> str:
        """What no piece said of a tool call's arguments: they came at its start, or there are none."""
        if self.call is None or "input" in self._pieces:
            return ""
        rest = arguments_text(self._record.get("input")) or "{}"
        self.add("input", rest)
        return rest

    def whole(self) -> dict[str, Any] | None:
        """The block as the API would have written it whole, None where its input is no JSON."""
        record = dict(self._record)
        for member, pieces in self._pieces.items():
            joined = "".join(pieces)
            if member != "input":
                before = record.get(member)
                record[member] = (before if isinstance(before, str) else "") + joined
                continue
            try:
                record[member] = msgspec.json.decode(joined)
            except (ValueError, RecursionError):
                return None
        return record


class StreamDecoder(EventDecoder[SSEEvent]):
    """Named events to Onym's.

    `Finish` comes at `message_stop`, or at the end of the bytes where a stop reason came and `message_stop`
    did not. Kinds of event, block and delta that are not known are skipped.
    """

    __slots__ = ("_begun", "_blocks", "_calls", "_counts")

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NOWHERE, *, status: int = 200
    ) -> None:
        super().__init__(SSEFrames(), FAILURES, request_id, exchange, status=status)
        self._begun = False
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        #: usage as the server wrote it: a later count stands for the whole, and replaces an earlier one
        self._counts: dict[str, Any] = {}

    def _take(self, frame: SSEEvent, events: list[Event]) -> bool:
        record = json_object(frame.data)
        if record is None:
            raise wrong("an event of the stream is not a JSON object")
        kind = record.get("type")
        if kind == "message_stop":
            if not self._begun:
                raise wrong("the stream holds no answer")
            return True
        if kind == "error" or frame.event == "error":
            raise self._failed(record)
        read = _READERS.get(kind) if isinstance(kind, str) else None
        if read is not None:
            read(self, record, events)
        elif FAILURES.is_failure(record):
            raise self._failed(record)
        return False

    def _message_start(self, record: Mapping[str, Any], _: list[Event]) -> None:
        message = record.get("message")
        if not isinstance(message, dict):
            raise wrong("the stream's first event holds no message")
        self._begun = True
        self._model = text(message, "model")
        self._count(message.get("usage"))

    def _block_start(self, record: Mapping[str, Any], events: list[Event]) -> None:
        block, index = record.get("content_block"), record.get("index")
        if not isinstance(block, dict) or type(index) is not int or index in self._blocks:
            raise wrong("a block of the content does not begin as one")
        if block.get("type") != "tool_use":
            self._blocks[index] = _Block(block, None)
            # usually empty: what is said comes in pieces
            kind = self._blocks[index].kind
            if kind in _SAID and (first := text(block, kind)) is not None:
                events.append(_SAID[kind](first))
            return
        name = text(block, "name")
        if name is None:
            raise wrong("a tool call names no tool")
        self._blocks[index] = _Block(block, self._calls)
        events.append(ToolCallDelta(index=self._calls, id=text(block, "id"), name=name))
        self._calls += 1

    def _delta(self, record: Mapping[str, Any], events: list[Event]) -> None:
        index, delta = record.get("index"), record.get("delta")
        block = self._blocks.get(index) if type(index) is int else None
        if block is None or not isinstance(delta, dict):
            raise wrong("a piece of the content belongs to no block")
        if delta.get("type") == "citations_delta":
            block.cite(delta.get("citation"))
            return
        member, piece = _read_piece(delta)
        if not piece:
            return
        if member in _SAID:
            # LiteLLM's proxy thinks inside a block of text: the piece says what it is
            if block.kind in _SAID:
                events.append(_SAID[member](piece))
        elif member == "input" and block.call is not None:
            events.append(ToolCallDelta(index=block.call, arguments=piece))
        if member not in _SAID or member == block.kind:
            block.add(member, piece)

    def _block_stop(self, record: Mapping[str, Any], events: list[Event]) -> None:
        index = record.get("index")
        block = self._blocks.get(index) if type(index) is int else None
        if block is not None:
            _close(block, events)

    def _message_delta(self, record: Mapping[str, Any], _: list[Event]) -> None:
        delta = record.get("delta")
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        if reason is not None:
            self._reason = finish_reason(reason)
        self._count(record.get("usage"))

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._counts.update({name: value for name, value in usage.items() if value is not None})
            self.usage = read_usage(self._counts)

    def _finish(self, events: list[Event]) -> None:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        for block in blocks:
            _close(block, events)
        whole = [record for block in blocks if (record := block.whole()) is not None]
        # a call that was cut off cannot be said again, and a turn with a gap would be another one
        self._carried = read_carried(whole) if len(whole) == len(blocks) else None
        super()._finish(events)


_READERS: Mapping[str, Callable[[StreamDecoder, Mapping[str, Any], list[Event]], None]] = {
    "message_start": StreamDecoder._message_start,
    "content_block_start": StreamDecoder._block_start,
    "content_block_delta": StreamDecoder._delta,
    "content_block_stop": StreamDecoder._block_stop,
    "message_delta": StreamDecoder._message_delta,
}


def _read_piece(delta: Mapping[str, Any]) -> tuple[str, str]:
    """The member of the block that grows, and by what; two empty texts for a kind that is not known."""
    kind = delta.get("type")
    if not isinstance(kind, str) or kind not in _PIECES:
        return "", ""
    source, member = _PIECES[kind]
    piece = delta.get(source)
    if not isinstance(piece, str):
        raise wrong("a piece of the content is not text")
    return member, piece


def _close(block: _Block, events: list[Event]) -> None:
    """What a block still had to say at its end."""
    rest = block.rest()
    if rest and block.call is not None:
        events.append(ToolCallDelta(index=block.call, arguments=rest))
