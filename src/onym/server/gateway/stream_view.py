"""A stream of events as people read it: the text that its pieces make, its result, and each event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from onym.errors import NetError
from onym.net.sse import SSEDecoder, SSEEvent

__all__ = ["StreamView", "stream_view"]

#: events and characters that a page shows; the whole is there to be downloaded
_MOST_EVENTS: Final = 200
_LONGEST: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """`text` is what the pieces make together, "" where they are no pieces of text.

    `result` is the event of that name; `events` are (type, data) without the receipt, which a page shows
    elsewhere, and `count` is how many there are.
    """

    text: str
    result: str
    events: tuple[tuple[str, str], ...]
    count: int
    cut: bool


def stream_view(body: bytes) -> StreamView | None:
    """What a verified body of the type text/event-stream says. None for what is none."""
    try:
        events = SSEDecoder().feed(body)
    except NetError:
        return None
    if events and events[-1].event == "receipt":
        events.pop()
    text = _joined(events)
    shown = _within(events[:_MOST_EVENTS])
    return StreamView(
        text=text[:_LONGEST],
        result=next((pretty(each.data)[:_LONGEST] for each in events if each.event == "result"), ""),
        events=shown,
        count=len(events),
        cut=len(shown) < len(events) or len(text) > _LONGEST,
    )


def pretty(text: str) -> str:
    """JSON on lines; anything else as it is."""
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        return text


def _joined(events: Sequence[SSEEvent]) -> str:
    pieces = [_piece(each.data) for each in events if each.event == "message"]
    return "" if None in pieces else "".join(filter(None, pieces))


def _piece(data: str) -> str | None:
    """The text that one message brings: a JSON text, or the member `text` of an object. None for others."""
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(found, dict):
        found = found.get("text")
    return found if isinstance(found, str) else None


def _within(events: Sequence[SSEEvent]) -> tuple[tuple[str, str], ...]:
    """The first events, as long as all of them together are not too long for a page."""
    shown, left = [], _LONGEST
    for each in events:
        left -= len(each.data)
        if left < 0:
            break
        shown.append((each.event, each.data))
    return tuple(shown)
