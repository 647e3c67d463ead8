"""OpenTelemetry spans, metrics and trace context of one stage. Needs opentelemetry-api.

A stage is current only while its code runs: a generator restores the context after every step, so that
threads and tasks that drive several generators do not mix up spans. Only `traceparent` is sent to other
servers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Self, TypeAlias, TypeVar

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from onym.errors import InvocationError, NetError, OnymError
from onym.net.messages import Flow, Send

Value: TypeAlias = "str | bool | int | float"
Attributes: TypeAlias = "dict[str, Value]"

#: bounds of the histogram: a verification takes less than a millisecond, an invocation up to minutes
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COUNTERS: Final = (
    ("aiip.verify.failures", "{failure}", "Receipts and tokens whose verification failed."),
    ("aiip.keys.refetches", "{fetch}", "Key sets that were fetched before they expired."),
    ("aiip.replay.hits", "{hit}", "Receipts, idempotency keys and DPoP proofs that were used before."),
    ("aiip.proofs.refused", "{proof}", "Requests whose sender did not prove the key of its token."),
    ("aiip.nonces.asked", "{nonce}", "Requests that must be sent again with a new DPoP nonce."),
    ("aiip.approvals", "{step}", "Steps of approvals at a gateway."),
    ("aiip.tasks", "{task}", "States that long tasks of an endpoint have reached."),
    ("aiip.rates.local", "{request}", "Rate limits that were decided without the shared store."),
)
#: the metrics of an authority stay in memory, and anyone can publish names
_MOST_AUTHORITIES: Final = 500


class Instruments:
    """The metrics of stages. `clock` returns seconds that never decrease."""

    __slots__ = (
        "_approvals", "_authorities", "_duration", "_failures", "_local_rates", "_lock", "_nonces", "_proofs",
        "_refetches", "_replays", "_tasks", "clock",
    )  # fmt: skip

    def __init__(self, meter: Meter, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._authorities: set[str] = set()
        self._lock = threading.Lock()
        self._duration = meter.create_histogram(
            "aiip.stage.duration",
            unit="s",
            description="How long a stage of AIIP took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        (
            self._failures,
            self._refetches,
            self._replays,
            self._proofs,
            self._nonces,
            self._approvals,
            self._tasks,
            self._local_rates,
        ) = (meter.create_counter(name, unit, description) for name, unit, description in _COUNTERS)

    def record_duration(self, seconds: float, labels: Mapping[str, Value]) -> None:
        """Record the duration of a stage with these labels."""
        self._duration.record(seconds, self._limit_labels(labels))

    def count_failure(self, labels: Mapping[str, Value], error: BaseException) -> None:
        """Count a failed verification. An unsigned error response is not one, because it claims no proof."""
        if isinstance(error, Exception) and not isinstance(error, InvocationError):
            self._failures.add(1, self._limit_labels({n: labels[n] for n in labels if n != "aiip.stage"}))

    def count_local_rate(self) -> None:
        """Count a rate limit that was decided without the shared store."""
        self._local_rates.add(1)

    def count_key_refetch(self, authority: str) -> None:
        """Count a renewal of an authority's keys."""
        self._refetches.add(1, self._limit_labels({"aiip.authority": authority}))

    def count_replay(self, authority: str, kind: str) -> None:
        """Count a replay of this kind."""
        self._replays.add(1, self._limit_labels({"aiip.authority": authority, "aiip.replay.kind": kind}))

    def count_refused_proof(self, authority: str, reason: str) -> None:
        """Count a refused proof, or a nonce that is asked for."""
        labels: Attributes = {"aiip.authority": authority}
        if reason == "nonce":
            self._nonces.add(1, self._limit_labels(labels))
            return
        if reason == "replayed":
            self.count_replay(authority, "proof")
        self._proofs.add(1, self._limit_labels({**labels, "aiip.proof.reason": reason}))

    def count_approval(self, step: str) -> None:
        """Count a step of an approval."""
        self._approvals.add(1, {"aiip.approval.step": step})

    def count_task(self, authority: str, state: str, error: str | None) -> None:
        """Count a task that has reached this state, with the code of its error."""
        labels: Attributes = {"aiip.authority": authority, "aiip.task.state": state}
        self._tasks.add(1, self._limit_labels(labels if error is None else {**labels, "error.type": error}))

    def _limit_labels(self, labels: Mapping[str, Value]) -> Attributes:
        """Return the labels, without the authority if there are too many authorities."""
        authority = labels.get("aiip.authority")
        with self._lock:
            if isinstance(authority, str) and len(self._authorities) < _MOST_AUTHORITIES:
                self._authorities.add(authority)
            known = authority in self._authorities
        return {name: value for name, value in labels.items() if known or name != "aiip.authority"}


def get_error_type(error: BaseException) -> str:
    """Return the error's code, or the class of an exception that is not of Onym."""
    if isinstance(error, OnymError):
        return error.code
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_HEADER: Final = "traceparent"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def extract_parent(traceparent: str | None) -> Context:
    """Return the parent of a server's span: the current span, or the one that the caller names."""
    here = context.get_current()
    if traceparent is None or trace.get_current_span(here).get_span_context().is_valid:
        return here
    return _PROPAGATOR.extract({_HEADER: traceparent}, here)


def inject_traceparent(send: Send) -> Send:
    """Return the request with the current span's `traceparent`, if there is a span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    if _HEADER not in carrier:
        return send
    others = tuple(header for header in send.request.headers if header[0].lower() != _HEADER)
    headers = (*others, (_HEADER, carrier[_HEADER]))
    return replace(send, request=replace(send.request, headers=headers))


T = TypeVar("T")

_KEY: Final = context.create_key("onym-aiip-stage")
#: attributes that are also labels of metrics
_LABELS: Final = frozenset({"aiip.authority", "aiip.route", "aiip.step", "error.type"})
#: how an abandoned stage ends, which is not a failure
_LEFT: Final = (GeneratorExit, asyncio.CancelledError)


def current_stage() -> Stage | None:
    """Return the innermost stage that this code runs in."""
    stage = context.get_value(_KEY)
    return stage if isinstance(stage, Stage) else None


def begin_stage(
    tracer: Tracer,
    instruments: Instruments,
    name: str,
    kind: str,
    attributes: Mapping[str, Value],
    parent: Context | None = None,
) -> Stage:
    """Begin a stage in the context `parent`, or in the current one."""
    parent = context.get_current() if parent is None else parent
    # samplers decide by the initial attributes
    span = tracer.start_span(f"aiip.{name}", parent, kind=SpanKind[kind.upper()], attributes=attributes)
    return Stage(name, span, parent, instruments, attributes)


class Stage:
    """A stage that has begun; the first `end` ends it. In a `with` block it is current."""

    __slots__ = (
        "_done", "_instruments", "_labels", "_outer", "_responded", "_span", "_start", "_token", "asked",
        "context",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        span: Span,
        parent: Context,
        instruments: Instruments,
        attributes: Mapping[str, Value],
    ) -> None:
        #: steps of a watched flow that used the network, or waited
        self.asked = 0
        self.context: Context = context.set_value(_KEY, self, set_span_in_context(span, parent))
        self._outer = context.get_value(_KEY, parent)
        self._span = span
        self._instruments = instruments
        self._labels: Attributes = {"aiip.stage": name, "aiip.role": attributes["aiip.role"]}
        self._labels |= {key: value for key, value in attributes.items() if key in _LABELS}
        self._start = instruments.clock()
        self._done = False
        #: whether a server has responded; None for a client
        self._responded: bool | None = None
        self._token: Any = None

    def set_attributes(self, attributes: dict[str, Any]) -> None:
        """Set attributes of the span."""
        if not self._done:
            self._span.set_attributes(attributes)
            self._labels |= {key: value for key, value in attributes.items() if key in _LABELS}

    def add_event(self, name: str, attributes: dict[str, Value]) -> None:
        """Add an event to the span."""
        self._span.add_event(name, attributes)

    def set_resource(self, attributes: dict[str, Any]) -> None:
        """Set the resource's attributes on this stage and on the stage around it.

        An endpoint's stage is not changed, because its functions call other resources than its own.
        """
        self.set_attributes(attributes)
        outer = self._outer
        if isinstance(outer, Stage) and outer._labels["aiip.role"] != "endpoint":
            outer.set_attributes(attributes)

    def set_status(self, status: int) -> None:
        """Set the response's status. An error status makes a client's exchange a failure."""
        self.set_attributes({"aiip.status": status})
        if status >= 400:
            self._mark_failed(str(status))

    def record_refusal(self, error: BaseException, *, failed: bool = False) -> None:
        """Record the error of the response; with `failed` the stage has failed too."""
        kind, outer = get_error_type(error), self._outer
        if isinstance(outer, Stage) and outer._labels["aiip.role"] == self._labels["aiip.role"] == "endpoint":
            outer.record_refusal(error)  # the error of the function is the error of the request
            failed = True
        self.set_attributes({"error.type": kind})
        if failed:
            self._mark_failed(kind)

    def end(self, error: BaseException | None = None) -> None:
        """End the stage.

        The error's message is not recorded, because it may quote the request or response.
        """
        if self._done:
            return
        if isinstance(error, _LEFT) or (error is None and self._responded is False):
            self.abandon()
            return
        if error is not None:
            self._mark_failed(get_error_type(error))
            if self._labels["aiip.stage"] == "verify":
                self._instruments.count_failure(self._labels, error)
        self._end_span()

    def abandon(self) -> None:
        """End the stage because its caller does not wait for it any more."""
        if not self._done:
            self.set_attributes({"aiip.abandoned": True})
            self._end_span()

    def _mark_failed(self, kind: str) -> None:
        if not self._done:
            self.set_attributes({"error.type": kind})
            self._span.set_status(StatusCode.ERROR, kind)

    def _end_span(self) -> None:
        self._done = True
        self._instruments.record_duration(self._instruments.clock() - self._start, self._labels)
        self._span.end()

    def __enter__(self) -> Self:
        self._token = context.attach(self.context)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        context.detach(self._token)
        self.end(error)

    @contextmanager
    def activate(self) -> Iterator[Self]:
        """Make the stage current in the block. It ends only if the block fails, because a stream goes on."""
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
        """Run the flow in this stage and end the stage. `then` gets its result, `change` its requests."""
        try:
            result = yield from self._drive_flow(flow, then, change)
        except BaseException as error:
            self.end(error)
            raise
        self.end()
        return result

    def _drive_flow(
        self, flow: Flow[T], then: Callable[[T], None] | None, change: Callable[[Send], Send] | None
    ) -> Flow[T]:
        act: Callable[[Any], Any] = flow.send
        value: Any = None
        try:
            while True:
                token = context.attach(self.context)
                try:
                    step = act(value)
                    if change is not None and isinstance(step, Send):
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
                    self.add_event("aiip.attempt.failed", {"error.type": get_error_type(error)})
                    act, value = flow.throw, error
                else:
                    act = flow.send
        finally:
            flow.close()

    def observe_send(self, send: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        """Return an ASGI `send` that records the status; without a response the stage is abandoned."""
        self._responded = False

        async def observed_send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                self._responded = True
                self.set_attributes({"aiip.status": status})
                if status >= 500:  # only these are failures of the server
                    self._span.set_status(StatusCode.ERROR, str(self._labels.get("error.type", status)))
            await send(message)

        return observed_send
