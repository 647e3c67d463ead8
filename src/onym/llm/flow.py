"""A call as a generator: send, retry, decode. No I/O and no clock.

Each flow yields `Send` or `Wait` and receives a `Reply` or None; `onym.net` drives it. Retries are decided
here only: for 408, 409, 429, 5xx and lost connections, with full jitter, within the call's timeout.
Retry-After is honoured. A stream that has begun is never retried.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from onym.errors import MalformedResponseError, NetError, NotFoundError, ProviderError
from onym.llm.plan import learn_rejection
from onym.net.limits import compute_delay
from onym.net.messages import Flow, Reply, Send, Wait

if TYPE_CHECKING:
    from onym.llm.dialects import Decoder
    from onym.llm.plan import Plan
    from onym.llm.types import Completion, Embeddings, ModelInfo, ModelPage

T = TypeVar("T")

#: of a list of models; a server that never ends it is not followed for ever
_MOST_PAGES = 100
_MOST_MODELS = 50_000
#: octets of what asks for the next page: it goes into a request of ours
_LONGEST_NEXT = 8192


class Clock(Protocol):
    """What a flow asks of its surroundings."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def time(self) -> float:
        """The date in seconds since the epoch."""

    def random(self) -> float:
        """Chance in [0, 1)."""


class _SystemClock:
    """The machine's own clock."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)
    random = staticmethod(random.random)


SYSTEM_CLOCK: Clock = _SystemClock()


class OpenedStream(NamedTuple):
    """A stream that has begun: the reply with its open body, and the decoder that reads it."""

    reply: Reply
    decoder: Decoder


def chat_flow(plan: Plan, clock: Clock = SYSTEM_CLOCK) -> Flow[Completion]:
    """One completion."""
    return _run_call(plan, clock, _decode_completion)


def stream_flow(plan: Plan, clock: Clock = SYSTEM_CLOCK) -> Flow[OpenedStream]:
    """The beginning of a stream. Reading it is the caller's, who closes `reply.stream` too."""
    return _run_call(plan, clock, _open_decoder)


def embed_flow(plan: Plan, count: int, clock: Clock = SYSTEM_CLOCK) -> Flow[Embeddings]:
    """One vector for each of `count` texts."""

    def vectors(plan: Plan, reply: Reply) -> Embeddings:
        return plan.dialect.decode_embed(reply.status, reply.headers, reply.body, plan.exchange, count=count)

    return _run_call(plan, clock, vectors)


def models_flow(plan: Plan, clock: Clock = SYSTEM_CLOCK) -> Flow[tuple[ModelInfo, ...]]:
    """What the server says of its models, page by page, all of them within the plan's time."""
    found: list[ModelInfo] = []
    end = clock.monotonic() + plan.timeout
    for _ in range(_MOST_PAGES):
        page = yield from _run_call(plan, clock, _decode_models)
        found += page.models
        if page.next is None:
            return tuple(found)
        if len(page.next) > _LONGEST_NEXT or len(found) > _MOST_MODELS:
            break
        plan = plan.with_next_page(page.next, max(0.001, end - clock.monotonic()))
    raise MalformedResponseError(
        "the server's list of models does not end", endpoint=plan.endpoint.text, status=200
    )


def model_flow(plan: Plan, clock: Clock = SYSTEM_CLOCK) -> Flow[ModelInfo]:
    """What the server says of one model: `plan` asks after it, or for the list that it is in."""
    if plan.operation == "model":
        try:
            return (yield from _run_call(plan, clock, _decode_model))
        except NotFoundError:
            # servers that speak this format among others may have the list and no route for one
            listing = plan.with_model_list()
            if listing is None:
                raise
            plan = listing
    model = plan.endpoint.model
    names = {model, model.partition(":")[0]} if model.endswith(":latest") else {model, f"{model}:latest"}
    for each in (yield from models_flow(plan, clock)):
        if each.id in names:
            return each
    raise NotFoundError("the server lists no such model", endpoint=plan.endpoint.text, status=200)


def _decode_completion(plan: Plan, reply: Reply) -> Completion:
    return plan.dialect.decode_chat(reply.status, reply.headers, reply.body, plan.exchange)


def _open_decoder(plan: Plan, reply: Reply) -> OpenedStream:
    return OpenedStream(reply, plan.dialect.stream_decoder(reply.status, reply.headers, plan.exchange))


def _decode_model(plan: Plan, reply: Reply) -> ModelInfo:
    return plan.dialect.decode_model(reply.status, reply.headers, reply.body, plan.exchange)


def _decode_models(plan: Plan, reply: Reply) -> ModelPage:
    return plan.dialect.decode_models(reply.status, reply.headers, reply.body, plan.exchange)


def _run_call(plan: Plan, clock: Clock, read: Callable[[Plan, Reply], T]) -> Flow[T]:
    """Send until an answer of 2xx comes, or a failure that waiting will not mend, or time is up."""
    request, timeout, stream = plan.request, plan.timeout, plan.stream
    start = clock.monotonic()
    left = timeout
    attempt = 0
    while True:
        failure: NetError | ProviderError
        try:
            reply: Reply = yield Send(request, left, stream)
        except NetError as error:
            plan.add_hint(error)
            failure = error
        else:
            if 200 <= reply.status < 300:
                return read(plan, reply)
            failure = plan.decode_error(reply, clock.time())
            without = learn_rejection(plan, failure)
            if without is not None:
                # one parameter fewer each time, so this ends
                plan, request = without, without.request
                left = timeout - (clock.monotonic() - start)
                continue
        left = timeout - (clock.monotonic() - start)
        pause = _compute_pause(failure, attempt, plan.retries, left, clock)
        if pause is None:
            raise failure
        attempt += 1
        yield Wait(pause)
        if plan.endpoint.is_signed:
            request = plan.request  # a signature is good for minutes
        left = timeout - (clock.monotonic() - start)
        if left <= 0:
            raise failure


def _compute_pause(
    failure: NetError | ProviderError, attempt: int, retries: int, left: float, clock: Clock
) -> float | None:
    """Seconds to wait before the next attempt; None where there is none to make."""
    if attempt >= retries or not failure.retryable:
        return None
    asked = failure.retry_after if isinstance(failure, ProviderError) else None
    pause = compute_delay(attempt, asked, clock.random)
    return pause if pause < left else None
