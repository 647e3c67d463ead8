"""Streams of the Bedrock Converse dialect, as push decoders."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onym.llm.dialects._base import NOWHERE, Decoder, Exchange, HeaderMap
from onym.llm.dialects._bedrock_decode import SERVER_TOOL, carry, decode_chat, finish_reason, read_usage
from onym.llm.dialects._bedrock_errors import FAILURES
from onym.llm.dialects._errors import find_request_id
from onym.llm.dialects._eventstream import EventFrame, EventStreamFrames
from onym.llm.dialects._push import EventDecoder, WholeBody, is_whole
from onym.llm.dialects._read import json_object, text, wrong
from onym.llm.types import Carried, Event, ReasoningDelta, TextDelta, ToolCallDelta

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


class StreamDecoder(EventDecoder[EventFrame]):
    """Messages of the event stream to events.

    `Finish` comes at `metadata`, which holds the usage and is the last message, or at the end of the bytes
    where the answer had stopped and `metadata` never came.
    """

    __slots__ = ("_blocks", "_called")

    def __init__(
        self, request_id: str | None = None, exchange: Exchange = NOWHERE, *, status: int = 200
    ) -> None:
        super().__init__(EventStreamFrames(), FAILURES, request_id, exchange, status=status)
        self._blocks: dict[int, _Block] = {}
        #: how many tool calls began
        self._called = 0

    def _take(self, frame: EventFrame, events: list[Event]) -> bool:
        kind = frame.text(":message-type")
        if kind == "error":
            raise self._failed({"__type": frame.text(":error-code"), "message": frame.text(":error-message")})
        if kind == "exception":
            raise self._failed(
                {**(json_object(frame.payload) or {}), "__type": frame.text(":exception-type")}
            )
        name = frame.text(":event-type")
        if name not in _TAKEN:
            return False
        data = json_object(frame.payload)
        if data is None:
            raise wrong("a message of the stream is not a JSON object")
        if name == "metadata":
            self.usage = read_usage(data.get("usage"))
            if self._reason is None:
                raise wrong("the stream holds no answer")
            return True
        if name == "messageStop":
            self._reason = finish_reason(data.get("stopReason"))
            self._carried = _carried(self._blocks)
        else:
            self._member(data, "start" if name == "contentBlockStart" else "delta", events)
        return False

    def _member(self, data: Mapping[str, Any], member: str, events: list[Event]) -> None:
        """The start of a block, or a piece of one."""
        index, said = data.get("contentBlockIndex", 0), data.get(member)
        if type(index) is not int or not isinstance(said, dict):
            raise wrong(f"a block's {member} is not an object, or its index not a number")
        call = said.get("toolUse")
        if call is not None and not isinstance(call, dict):
            raise wrong("a tool call is not an object")
        block = self._blocks.setdefault(index, _Block())
        if call is not None and member == "start":
            self._start_call(block, call, events)
        elif call is not None:
            _continue_call(block, call, events)
        elif member == "delta":
            _delta(block, said, events)

    def _start_call(self, block: _Block, call: Mapping[str, Any], events: list[Event]) -> None:
        block.server = call.get("type") == SERVER_TOOL
        if block.server:
            return
        name = text(call, "name")
        if name is None or block.call is not None:
            raise wrong("a tool call names no tool, or begins twice")
        identity = text(call, "toolUseId") or f"call_{self._called}"
        block.call, block.number = {"toolUseId": identity, "name": name}, self._called
        self._called += 1
        events.append(ToolCallDelta(index=block.number, id=identity, name=name))


#: the events that are read; others (`messageStart`, `contentBlockStop`, those still to be invented) are not
_TAKEN = frozenset({"contentBlockStart", "contentBlockDelta", "messageStop", "metadata"})


@dataclass(slots=True)
class _Block:
    """One block of the answer, in pieces: it may have to be carried. `number` counts tool calls."""

    pieces: dict[str, list[str]] = field(default_factory=dict)
    call: dict[str, str] | None = None
    number: int = 0
    server: bool = False

    def add(self, name: str, record: Mapping[str, Any], member: str) -> str | None:
        """The text of a member, kept under that name, None where there is none."""
        said = text(record, member)
        if said is not None:
            self.pieces.setdefault(name, []).append(said)
        return said

    def said(self, name: str) -> str:
        return "".join(self.pieces.get(name, ()))

    def whole(self) -> dict[str, Any] | None:
        """The block as an answer that comes whole has it; raises ValueError where it cannot be one."""
        if self.call is not None:
            return {"toolUse": {**self.call, "input": msgspec.json.decode(self.said("input") or "{}")}}
        if "sealed" in self.pieces:
            octets = b"".join(b64decode(piece, validate=True) for piece in self.pieces["sealed"])
            return {"reasoningContent": {"redactedContent": b64encode(octets).decode("ascii")}}
        if "thought" in self.pieces or "signature" in self.pieces:
            signature = {"signature": self.said("signature")} if "signature" in self.pieces else {}
            return {"reasoningContent": {"reasoningText": {"text": self.said("thought"), **signature}}}
        return {"text": self.said("text")} if "text" in self.pieces else None


def _delta(block: _Block, delta: Mapping[str, Any], events: list[Event]) -> None:
    said = block.add("text", delta, "text")
    if said is not None:
        events.append(TextDelta(said))
    reasoning = delta.get("reasoningContent")
    if isinstance(reasoning, dict):
        thought = block.add("thought", reasoning, "text")
        if thought is not None:
            events.append(ReasoningDelta(thought))
        block.add("signature", reasoning, "signature")
        block.add("sealed", reasoning, "redactedContent")


def _continue_call(block: _Block, call: Mapping[str, Any], events: list[Event]) -> None:
    if block.server:
        return
    if block.call is None:
        raise wrong("a tool call goes on that never began")
    piece = block.add("input", call, "input")
    if piece is not None:
        events.append(ToolCallDelta(index=block.number, arguments=piece))


def _carried(blocks: Mapping[int, _Block]) -> Carried | None:
    """The turn to give back; None too where the model wrote what cannot be, such as half an object."""
    try:
        whole = [block.whole() for _, block in sorted(blocks.items())]
    except (ValueError, RecursionError):
        return None
    return carry([block for block in whole if block is not None])
