"""Answers as they are kept under their idempotency keys, and given again (3.11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

import msgspec

from onym.ai.endpoint._deliver import Streaming
from onym.ai.endpoint.context import Answer, StreamEvent
from onym.ai.endpoint.streams import EVENTS

__all__ = ["again", "kept_answer", "kept_events"]

_REPLAYED: Final = (("Idempotency-Replayed", "?1"),)
_PACK: Final = msgspec.msgpack.Encoder()


class _Kept(msgspec.Struct, array_like=True):
    """An answer: whole, or the events of a stream."""

    status: int
    content_type: str | None
    body: bytes
    headers: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, str, str | None], ...] | None = None


_UNPACK: Final = msgspec.msgpack.Decoder(_Kept)


def kept_answer(answer: Answer) -> bytes:
    """A whole answer, to be stored."""
    return _PACK.encode(_Kept(answer.status, answer.content_type, answer.body, answer.headers))


def kept_events(events: Iterable[StreamEvent]) -> bytes:
    """The events of a stream, to be stored."""
    rows = tuple((each.data, each.event, each.id) for each in events)
    return _PACK.encode(_Kept(200, EVENTS, b"", (), rows))


def again(octets: bytes, seconds: float) -> Answer | Streaming:
    """What was stored, to be sent once more; a stream within so many seconds. Needs a running loop."""
    kept = _UNPACK.decode(octets)
    if kept.events is not None:
        deadline = asyncio.get_running_loop().time() + seconds
        return Streaming(events=_replayed(kept.events), headers=_REPLAYED, deadline=deadline)
    return Answer(
        status=kept.status,
        content_type=kept.content_type,
        body=kept.body,
        headers=(*kept.headers, *_REPLAYED),
    )


async def _replayed(kept: tuple[tuple[str, str, str | None], ...]) -> AsyncIterator[StreamEvent]:
    for data, event, name in kept:
        yield StreamEvent(data=data, event=event, id=name)
