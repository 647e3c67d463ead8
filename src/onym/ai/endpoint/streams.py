"""Streaming results: server-sent events whose hash chain the last one, the receipt, ends (3.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onym.errors import AIIPError, SignatureError
from onym.sign.chain import StreamChain, StreamEnd

if TYPE_CHECKING:
    from onym.ai.endpoint.context import StreamEvent
    from onym.ai.endpoint.limits import Limits

__all__ = ["EVENTS", "Wire", "encode_event"]

EVENTS: Final = "text/event-stream"
_RESERVED: Final = frozenset({"receipt", "problem"})


class Wire:
    """Events in, octets out, within the limits; keeps the chain."""

    def __init__(self, request_hash: str, limits: Limits) -> None:
        self._chain = StreamChain(request_hash)
        self._limits = limits
        self._count = 0
        self._octets = 0

    def add(self, event: StreamEvent) -> bytes:
        """The octets of one event.

        Raises AIIPError `aiip.too-large`, and SignatureError for an event that a stream cannot carry.
        """
        if event.event in _RESERVED:
            raise SignatureError(
                f"an event of the type {event.event} is the endpoint's", code="sign.bad-event"
            )
        self._count += 1
        name = event.id or str(self._count)
        octets = encode_event(event.event, event.data, name)
        self._octets += len(octets)
        too_much = self._count > self._limits.stream_events or self._octets > self._limits.stream_bytes
        if too_much or len(octets) > self._limits.event_bytes:
            raise AIIPError("the stream is longer than the endpoint sends", code="aiip.too-large")
        self._chain.add(name, event.event, event.data)
        return octets

    @property
    def end(self) -> StreamEnd:
        """The chain's end."""
        return self._chain.end


def encode_event(event: str, data: str, name: str | None = None) -> bytes:
    """One event as octets (WHATWG HTML 9.2.5)."""
    lines = [] if name is None else [f"id: {name}"]
    if event not in {"", "message"}:
        lines.append(f"event: {event}")
    lines += [f"data: {line}" for line in data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "surrogatepass")
