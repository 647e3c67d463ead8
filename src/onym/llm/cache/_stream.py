"""Streams and the cache: one that is kept is replayed, one that ends well is kept.

A stream neither waits for another nor lets others wait: whoever reads it may read slowly, or stop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from onym.llm._stream import Collector
from onym.llm._tap import tap
from onym.llm.dialects import NOWHERE
from onym.llm.dialects._push import WholeBody
from onym.llm.flow import Opened
from onym.net.messages import ConnectionInfo, Headers, Reply

if TYPE_CHECKING:
    from onym.llm.types import Completion, Event

__all__ = ["record", "replay"]

_FROM_HERE = ConnectionInfo(address="")


def replay(answer: Completion) -> Opened:
    """A kept answer as a stream: its reasoning, its text, its tool calls, its end."""
    reply = Reply(200, Headers(), b"", cast("Any", _Nothing()), _FROM_HERE)
    return Opened(reply, WholeBody(lambda *_: answer, 200, reply.headers, NOWHERE))


def record(opened: Opened, model: str, keep: Callable[[Completion], object]) -> Opened:
    """The same stream; `keep` gets the whole answer once it ended well and was closed."""
    return tap(opened, _Recorder(model, keep))


class _Recorder:
    """Puts together what it hears."""

    __slots__ = ("_collector", "_keep", "_model")

    def __init__(self, model: str, keep: Callable[[Completion], object]) -> None:
        self._model = model
        self._keep = keep
        self._collector = Collector()

    def heard(self, events: list[Event]) -> None:
        for event in events:
            self._collector.add(event)

    def over(self, error: BaseException | None) -> Callable[[], object] | None:
        if error is not None or not self._collector.finished:
            return None
        return partial(self._keep, self._collector.completion(self._model))


class _Nothing:
    """A body without octets, for either kind of reader."""

    __slots__ = ()

    def read(self) -> bytes:
        return b""

    async def aread(self) -> bytes:
        return b""

    def close(self, patience: float = 0) -> None:
        """Nothing is open."""

    async def aclose(self, patience: float = 0) -> None:
        """Nothing is open."""
