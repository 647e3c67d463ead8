"""A call as a generator: what is sent, what is tried again, what an answer means. No I/O, no clock.

Each flow yields `Send` or `Wait` and is resumed with a `Reply` or None; `onym.net` drives it. There
is one owner of retries, here: 408, 409, 429, 5xx and lost connections, with full jitter, Retry-After
honoured, all within the call's own deadline, and never once a stream has begun.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from onym.errors import NetError, ProviderError
from onym.net.messages import Flow, Reply, Send, Wait
from onym.net.retry import delay

if TYPE_CHECKING:
    from onym.llm.dialects import Decoder
    from onym.llm.plan import Plan
    from onym.llm.types import Completion, Embeddings, ModelInfo

__all__ = ["Clock", "Opened", "chat_flow", "embed_flow", "models_flow", "stream_flow"]


T = TypeVar("T")


class Clock(Protocol):
    """What a flow asks of its surroundings."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def time(self) -> float:
        """The date in seconds since the epoch."""

    def random(self) -> float:
        """Chance in [0, 1)."""


class _Real:
    """The machine's own clock."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)
    random = staticmethod(random.random)


REAL: Clock = _Real()


class Opened(NamedTuple):
    """A stream that has begun: the reply with its open body, and the decoder that reads it."""

    reply: Reply
    decoder: Decoder


def chat_flow(plan: Plan, clock: Clock = REAL) -> Flow[Completion]:
    """One completion."""
    return _call(plan, clock, _completion)


def stream_flow(plan: Plan, clock: Clock = REAL) -> Flow[Opened]:
    """The beginning of a stream. Reading it is the caller's, who closes `reply.stream` too."""
    return _call(plan, clock, _opened)


def embed_flow(plan: Plan, count: int, clock: Clock = REAL) -> Flow[Embeddings]:
    """One vector for each of `count` texts."""

    def vectors(plan: Plan, reply: Reply) -> Embeddings:
        return plan.dialect.decode_embed(reply.status, reply.headers, reply.body, plan.exchange, count=count)

    return _call(plan, clock, vectors)


def models_flow(plan: Plan, clock: Clock = REAL) -> Flow[tuple[ModelInfo, ...]]:
    """What the server says of its models."""
    return _call(plan, clock, _models)


def _completion(plan: Plan, reply: Reply) -> Completion:
    return plan.dialect.decode_chat(reply.status, reply.headers, reply.body, plan.exchange)


def _opened(plan: Plan, reply: Reply) -> Opened:
    return Opened(reply, plan.dialect.stream_decoder(reply.status, reply.headers, plan.exchange))


def _models(plan: Plan, reply: Reply) -> tuple[ModelInfo, ...]:
    return plan.dialect.decode_models(reply.status, reply.headers, reply.body, plan.exchange)


def _call(plan: Plan, clock: Clock, read: Callable[[Plan, Reply], T]) -> Flow[T]:
    """Send until an answer of 2xx comes, or a failure that waiting will not mend, or time is up."""
    request, timeout, stream = plan.request, plan.timeout, plan.stream
    start = clock.monotonic()
    left = timeout
    attempt = 0
    while True:
        failure: NetError | ProviderError
        try:
            reply: Reply = yield Send(request, left, stream)  # type: ignore[assignment]
        except NetError as error:
            failure = error
        else:
            if 200 <= reply.status < 300:
                return read(plan, reply)
            failure = plan.decode_error(reply, clock.time())
        left = timeout - (clock.monotonic() - start)
        pause = _pause(failure, attempt, plan.retries, left, clock)
        if pause is None:
            raise failure
        attempt += 1
        yield Wait(pause)
        left = timeout - (clock.monotonic() - start)
        if left <= 0:
            raise failure


def _pause(
    failure: NetError | ProviderError, attempt: int, retries: int, left: float, clock: Clock
) -> float | None:
    """Seconds to wait before the next attempt; None where there is none to make."""
    if attempt >= retries or not failure.retryable:
        return None
    asked = failure.retry_after if isinstance(failure, ProviderError) else None
    pause = delay(attempt, asked, clock.random)
    return pause if pause < left else None
