"""One stage under observation: its span, its time, how it ended.

A stage is current while its code runs, and only then: a flow gives the context back with each of its steps,
so that threads and tasks which drive several flows mix up no spans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from opentelemetry import context
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from onym.ai.telemetry._instruments import Attributes, error_type
from onym.errors import NetError
from onym.net.messages import Send

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

    from onym.ai.telemetry._instruments import Instruments, Value
    from onym.net.messages import Flow

__all__ = ["Stage", "begin", "current", "error_type"]

T = TypeVar("T")

_KEY: Final = context.create_key("onym-aiip-stage")
#: what every metric says of a stage
_LABELS: Final = frozenset({"aiip.authority", "error.type"})
#: how a stage ends that nobody waits for any more: that is no failure
_LEFT: Final = (GeneratorExit, asyncio.CancelledError)


def current() -> Stage | None:
    """The innermost stage that this code runs in."""
    found = context.get_value(_KEY)
    return found if isinstance(found, Stage) else None


def begin(
    tracer: Tracer,
    instruments: Instruments,
    name: str,
    kind: str,
    said: Attributes,
    where: Context | None = None,
) -> Stage:
    """A stage that has begun, in the context `where`; else in whatever is current."""
    where = context.get_current() if where is None else where
    # what samplers decide by has to be there from the start
    span = tracer.start_span(f"aiip.{name}", where, kind=SpanKind[kind.upper()], attributes=said)
    return Stage(name, span, where, instruments, said)


class Stage:
    """A stage that has begun; the first `end` ends it. Used in a `with` block, it is current there."""

    __slots__ = (
        "_done",
        "_heard",
        "_instruments",
        "_labels",
        "_outer",
        "_span",
        "_start",
        "_token",
        "asked",
        "context",
    )

    def __init__(
        self, name: str, span: Span, where: Context, instruments: Instruments, said: Attributes
    ) -> None:
        #: steps of a watched flow that went to the network, or waited
        self.asked = 0
        self.context: Context = context.set_value(_KEY, self, set_span_in_context(span, where))
        self._outer = context.get_value(_KEY, where)
        self._span = span
        self._instruments = instruments
        self._labels: Attributes = {"aiip.stage": name, "aiip.role": said["aiip.role"]}
        self._labels |= {key: value for key, value in said.items() if key in _LABELS}
        self._start = instruments.clock()
        self._done = False
        #: has a server answered? None for what is no server
        self._heard: bool | None = None
        self._token: Any = None

    def tell(self, said: dict[str, Any]) -> None:
        """What has become known."""
        if not self._done:
            self._span.set_attributes(said)
            self._labels |= {key: value for key, value in said.items() if key in _LABELS}

    def event(self, name: str, said: dict[str, Value]) -> None:
        """Something happened meanwhile."""
        self._span.add_event(name, said)

    def found(self, said: dict[str, Any]) -> None:
        """Whose name it is: for this stage, and for what it is a part of.

        An endpoint's is not told: the names that its functions ask for are others than its own.
        """
        self.tell(said)
        outer = self._outer
        if isinstance(outer, Stage) and outer._labels["aiip.role"] != "endpoint":
            outer.tell(said)

    def answered(self, status: int) -> None:
        """The status that came. One that refuses makes a client's exchange a failure."""
        self.tell({"aiip.status": status})
        if status >= 400:
            self._failed(str(status))

    def refused(self, error: BaseException, *, failed: bool = False) -> None:
        """It is answered with this error; `failed` says that this is a failure of the stage, too."""
        kind, outer = error_type(error), self._outer
        if isinstance(outer, Stage) and outer._labels["aiip.role"] == self._labels["aiip.role"] == "endpoint":
            outer.refused(error)  # the function failed, and the request is answered with it
            failed = True
        if failed:
            self._failed(kind)
        else:
            self.tell({"error.type": kind})

    def end(self, error: BaseException | None = None) -> None:
        """It is over. The error's message stays out: it may quote what was asked, or answered."""
        if self._done:
            return
        if isinstance(error, _LEFT) or (error is None and self._heard is False):
            self.left()
            return
        if error is not None:
            self._failed(error_type(error))
            if self._labels["aiip.stage"] == "verify":
                self._instruments.unverified(self._labels, error)
        self._over()

    def left(self) -> None:
        """Nobody waits for the rest."""
        if not self._done:
            self.tell({"aiip.abandoned": True})
            self._over()

    def _failed(self, kind: str) -> None:
        if not self._done:
            self.tell({"error.type": kind})
            self._span.set_status(StatusCode.ERROR, kind)

    def _over(self) -> None:
        self._done = True
        self._instruments.took(self._instruments.clock() - self._start, self._labels)
        self._span.end()

    def __enter__(self) -> Self:
        self._token = context.attach(self.context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        context.detach(self._token)
        self.end(error)

    @contextmanager
    def held(self) -> Iterator[Self]:
        """Current in the block, and not over at its end unless it failed: the rest is a stream's."""
        token = context.attach(self.context)
        try:
            yield self
        except BaseException as error:
            self.end(error)
            raise
        finally:
            context.detach(token)

    def watch(
        self,
        flow: Flow[T],
        then: Callable[[T], None] | None = None,
        change: Callable[[Send], Send] | None = None,
    ) -> Flow[T]:
        """The same flow in this stage, which ends with it. `then` sees its outcome, `change` its requests."""
        try:
            result = yield from self._inside(flow, then, change or _same)
        except BaseException as error:
            self.end(error)
            raise
        self.end()
        return result

    def _inside(
        self, flow: Flow[T], then: Callable[[T], None] | None, change: Callable[[Send], Send]
    ) -> Flow[T]:
        act: Callable[[Any], Any] = flow.send
        value: Any = None
        try:
            while True:
                token = context.attach(self.context)
                try:
                    step = act(value)
                    if isinstance(step, Send):
                        step = change(step)
                except StopIteration as stop:
                    if then is not None:
                        then(stop.value)
                    return stop.value  # type: ignore[no-any-return]
                finally:
                    context.detach(token)
                self.asked += 1
                try:
                    value = yield step
                except NetError as error:
                    self.event("aiip.attempt.failed", {"error.type": error_type(error)})
                    act, value = flow.throw, error
                else:
                    act = flow.send
        finally:
            flow.close()

    def hearing(self, send: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        """An ASGI `send` whose answer this stage is told of; without one, it was abandoned."""
        self._heard = False

        async def heard(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._sent(message["status"])
            await send(message)

        return heard

    def _sent(self, status: int) -> None:
        """What a server answers. Only what is its own fault is a failure of its."""
        self._heard = True
        self.tell({"aiip.status": status})
        if status >= 500:
            self._span.set_status(StatusCode.ERROR, str(self._labels.get("error.type", status)))


def _same(send: Send) -> Send:
    return send
