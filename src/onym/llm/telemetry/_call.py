"""One call under observation: its span, its retries, its numbers, whole or streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from onym.errors import NetError
from onym.llm._stream import Collector
from onym.llm.telemetry import _attributes as attributes
from onym.llm.types import Completion, Embeddings, Usage
from onym.net.messages import Flow, Send, Wait

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span

    from onym.llm.plan import Plan
    from onym.llm.telemetry._attributes import Attributes
    from onym.llm.types import Event
    from onym.net.messages import Reply

__all__ = ["Instruments", "Observed"]

T = TypeVar("T")

#: each makes metrics of its own, which stay in memory
_MOST_MODELS: Final = 500


class Instruments:
    """What a call is measured with; `cost` is None where nobody asked for it."""

    __slots__ = ("_models", "capture", "clock", "cost", "duration", "environ", "first_chunk", "tokens")

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        capture: bool,
        duration: Histogram,
        tokens: Histogram,
        first_chunk: Histogram,
        cost: Counter | None,
        environ: Mapping[str, str],
    ) -> None:
        self.clock = clock
        self.capture = capture
        self.duration = duration
        self.tokens = tokens
        self.first_chunk = first_chunk
        self.cost = cost
        self.environ = environ
        self._models: set[str] = set()

    def known(self, model: str | None) -> str:
        """The model's name as a label of metrics, "" where a server has named too many already."""
        if model is None:
            return ""
        if len(self._models) < _MOST_MODELS:
            self._models.add(model)
        return model if model in self._models else ""


class Observed:
    """A call that has begun. One of `answered` and `failed` ends it; what comes after that is not heard."""

    __slots__ = (
        "_collector",
        "_done",
        "_first",
        "_instruments",
        "_named",
        "_plan",
        "_span",
        "_start",
        "cached",
    )

    def __init__(self, plan: Plan, span: Span, instruments: Instruments, named: Attributes) -> None:
        #: set where the answer comes from the response cache
        self.cached = False
        self._plan = plan
        self._span = span
        self._instruments = instruments
        self._named = named
        self._start = instruments.clock()
        self._first: float | None = None
        self._done = False
        self._collector = Collector()

    def watch(self, flow: Flow[T]) -> Flow[T]:
        """The same flow; each retry becomes an event of the span."""
        failure: Attributes = {}
        try:
            step = flow.send(None)
            while True:
                if isinstance(step, Wait):
                    self._span.add_event("onym.retry", {**failure, "onym.retry.delay": step.seconds})
                try:
                    reply = yield step
                except NetError as error:
                    failure = {"error.type": attributes.error_type(error)}
                    step = flow.throw(error)
                else:
                    if isinstance(step, Send) and reply is not None:
                        failure = _status(reply)
                    step = flow.send(reply)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            flow.close()

    def answered(self, answer: Completion | Embeddings) -> None:
        """It went well. Tokens of an answer from the cache were counted before, and are not again."""
        if self._done:
            return
        secrets = self._plan.endpoint.secrets
        self._span.set_attributes(attributes.of_answer(answer, secrets))
        model = self._instruments.known(attributes.fit_name(answer.model, secrets))
        if self.cached:
            self._span.set_attribute("onym.cached", True)
        else:
            self._count(answer.usage, model)
        if self._instruments.capture and isinstance(answer, Completion):
            from onym.llm.telemetry._content import of_output

            self._span.set_attributes(of_output(self._plan, answer))
        self._end({"gen_ai.response.model": model} if model else {})

    def failed(self, error: BaseException) -> None:
        """It went wrong. The message stays out: a server's may quote the prompt."""
        from opentelemetry.trace import StatusCode

        if self._done:
            return
        kind = attributes.error_type(error)
        usage = getattr(error, "usage", None)
        if isinstance(usage, Usage):
            self._span.set_attributes(attributes.of_usage(usage))
            self._count(usage, "")
        status = getattr(error, "status", None)
        if isinstance(status, int):
            self._span.set_attribute("http.response.status_code", status)
        self._span.set_status(StatusCode.ERROR, kind)
        self._end({"error.type": kind})

    def heard(self, events: list[Event]) -> None:
        """A piece of a stream came."""
        if self._first is None:
            self._first = self._instruments.clock() - self._start
        for event in events:
            self._collector.add(event)

    def over(self, error: BaseException | None) -> None:
        """A stream was closed. Whoever reads may stop where he likes: that is no failure."""
        if self._first is not None and not self._done:
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", self._first)
            self._instruments.first_chunk.record(self._first, self._named)
        if error is not None:
            self.failed(error)
        elif self._collector.finished:
            self.answered(self._collector.completion(self._plan.endpoint.model))
        elif not self._done:
            self._span.set_attribute("onym.stream.abandoned", True)
            self._end({})

    def _count(self, usage: Usage, model: str) -> None:
        said = {**self._named, "gen_ai.response.model": model} if model else self._named
        counted: Sequence[tuple[str, int | None]] = (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
        )
        for kind, count in counted:
            if count is not None:
                self._instruments.tokens.record(count, {**said, "gen_ai.token.type": kind})
        if self._instruments.cost is not None:
            self._price(usage, self._instruments.cost)

    def _price(self, usage: Usage, counter: Counter) -> None:
        from onym.errors import ConfigError
        from onym.llm.prices import cost

        endpoint, found = self._plan.endpoint, None
        with suppress(ConfigError):  # a list that went bad since the start is no reason to lose an answer
            found = cost(usage, endpoint.provider.name, endpoint.model, environ=self._instruments.environ)
        if found is not None:
            amount = float(found.amount)
            self._span.set_attributes({"onym.cost": amount, "onym.cost.currency": found.currency})
            counter.add(amount, {**self._named, "onym.cost.currency": found.currency})

    def _end(self, more: Attributes) -> None:
        self._done = True
        self._span.set_attributes(more)
        self._instruments.duration.record(self._instruments.clock() - self._start, {**self._named, **more})
        self._span.end()


def _status(reply: Reply) -> Attributes:
    return {"http.response.status_code": reply.status}
