"""What may stand around a call: the response cache and telemetry. Neither costs anything where it is off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from onym.llm._messages import Messages, to_messages
from onym.llm.types import Completion, Embeddings

if TYPE_CHECKING:
    from onym.llm.cache import ResponseCache
    from onym.llm.flow import Opened
    from onym.llm.plan import Plan
    from onym.llm.telemetry import Telemetry
    from onym.llm.telemetry._call import Observed
    from onym.net.messages import Flow

__all__ = ["Extras", "listened", "watched"]

A = TypeVar("A", Completion, Embeddings)
T = TypeVar("T")

#: makes a call; with an observer, it lets that watch
Caller: TypeAlias = "Callable[[Plan, Observed | None], T]"


def watched(flow: Flow[T], observed: Observed | None) -> Flow[T]:
    """The flow, watched where somebody watches."""
    return flow if observed is None else observed.watch(flow)


def listened(opened: Opened, observed: Observed | None) -> Opened:
    """The stream, listened to where somebody watches."""
    if observed is None:
        return opened
    from onym.llm._tap import tap

    return tap(opened, observed)


class Extras:
    """The cache and the telemetry of one client."""

    __slots__ = ("_cache", "_environ", "telemetry")

    def __init__(
        self, environ: Mapping[str, str], cache: ResponseCache | None, telemetry: Telemetry | None
    ) -> None:
        self._environ = environ
        self._cache = cache
        self.telemetry = telemetry
        if telemetry is None and environ.get("ONYM_TELEMETRY"):
            from onym.llm.telemetry import from_environment

            self.telemetry = from_environment(environ)

    def readable(self, messages: Messages) -> Messages:
        """The messages in a form that may be read twice, where that is to be done."""
        if self.telemetry is None or not self.telemetry.captures:
            return messages
        return to_messages(messages)

    def answer(self, plan: Plan, kind: type[A], call: Caller[A], messages: Messages | None = None) -> A:
        """The answer to this plan: from the cache if it may, else by `call`."""
        cache, observed = self._around(plan, messages)
        if cache is None and observed is None:
            return call(plan, None)
        try:
            if cache is None:
                answer = call(plan, observed)
            else:
                asked = _Asked(plan, observed)
                answer = cache.answer(plan, kind, lambda waited: call(asked.within(waited), observed))
                asked.tell()
        except BaseException as error:
            if observed is not None:
                observed.failed(error)
            raise
        if observed is not None:
            observed.answered(answer)
        return answer

    async def aanswer(
        self, plan: Plan, kind: type[A], call: Caller[Awaitable[A]], messages: Messages | None = None
    ) -> A:
        """`answer` for coroutines."""
        cache, observed = self._around(plan, messages)
        if cache is None and observed is None:
            return await call(plan, None)
        try:
            if cache is None:
                answer = await call(plan, observed)
            else:
                asked = _Asked(plan, observed)
                answer = await cache.aanswer(plan, kind, lambda waited: call(asked.within(waited), observed))
                asked.tell()
        except BaseException as error:
            if observed is not None:
                observed.failed(error)
            raise
        if observed is not None:
            observed.answered(answer)
        return answer

    def opened(self, plan: Plan, call: Caller[Opened], messages: Messages | None = None) -> Opened:
        """The answer as a stream that has begun: from the cache if it may, else by `call`."""
        cache, observed = self._around(plan, messages)
        if cache is None and observed is None:
            return call(plan, None)
        try:
            kept = None if cache is None else cache.replayed(plan)
            opened = call(plan, observed) if kept is None else kept
        except BaseException as error:
            if observed is not None:
                observed.failed(error)
            raise
        if kept is not None and observed is not None:
            observed.cached = True
        return _tapped(plan, opened, cache if kept is None else None, observed)

    async def aopened(
        self, plan: Plan, call: Caller[Awaitable[Opened]], messages: Messages | None = None
    ) -> Opened:
        """`opened` for coroutines."""
        cache, observed = self._around(plan, messages)
        if cache is None and observed is None:
            return await call(plan, None)
        try:
            kept = None
            if cache is not None:
                import asyncio

                kept = await asyncio.to_thread(cache.replayed, plan)
            opened = await call(plan, observed) if kept is None else kept
        except BaseException as error:
            if observed is not None:
                observed.failed(error)
            raise
        if kept is not None and observed is not None:
            observed.cached = True
        return _tapped(plan, opened, cache if kept is None else None, observed)

    def _around(self, plan: Plan, messages: Messages | None) -> tuple[ResponseCache | None, Observed | None]:
        cache = self._find_cache() if _wants_cache(plan) else None
        return cache, None if self.telemetry is None else self.telemetry.begin(plan, messages)

    def _find_cache(self) -> ResponseCache:
        if self._cache is None:
            from onym.llm.cache import default_cache  # its library is loaded where a cache is wanted

            self._cache = default_cache(self._environ)
        return self._cache


def _wants_cache(plan: Plan) -> bool:
    for note in plan.notes:
        if note.parameter == "cache" and note.action == "client":
            return note.value is True
    return False


class _Asked:
    """Whether the call was made, and in what time."""

    __slots__ = ("_made", "_observed", "_plan")

    def __init__(self, plan: Plan, observed: Observed | None) -> None:
        self._plan = plan
        self._observed = observed
        self._made = False

    def within(self, waited: float) -> Plan:
        """The plan with the time that is left."""
        self._made = True
        if not waited:
            return self._plan
        frame = self._plan.frame
        return replace(self._plan, frame=replace(frame, timeout=max(frame.timeout - waited, 0.001)))

    def tell(self) -> None:
        """Let the observer know of an answer that nobody was asked for."""
        if self._observed is not None and not self._made:
            self._observed.cached = True


def _tapped(plan: Plan, opened: Opened, cache: ResponseCache | None, observed: Observed | None) -> Opened:
    """The stream, listened to by those who want to; `cache` is None for one that came from there."""
    if cache is not None:
        opened = cache.recorded(plan, opened)
    return listened(opened, observed)
