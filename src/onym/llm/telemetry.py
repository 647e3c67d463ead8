"""OpenTelemetry spans and metrics of calls, by the GenAI semantic conventions of November 2026.

Telemetry is off by default and needs the extra `telemetry`; `ONYM_TELEMETRY=1` reports to the global
providers. Prompts and answers are recorded only on request, with keys masked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from onym import __version__
from onym._lazy import make_missing_extra_error
from onym.errors import NetError, OnymError
from onym.llm import types
from onym.llm.flow import Collector
from onym.llm.parameters import PARAMETERS
from onym.llm.plan import mask_secrets
from onym.net.messages import Flow, Send, Wait

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from onym.llm._arguments import Messages
    from onym.llm.plan import Plan
    from onym.net.messages import Reply
    from onym.uri.secret import Secret

Value: TypeAlias = str | bool | int | float | tuple[str, ...]
Attributes: TypeAlias = dict[str, Value]

#: the conventions' names of providers that differ from Onym's
_PROVIDER_NAMES: Final[Mapping[str, str]] = {
    "azure-inference": "azure.ai.inference",
    "azure-openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}


def _convert_texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value))


_CONVERTERS: Final[Mapping[str, Callable[[Any], Value]]] = {
    "number": float,
    "integer": int,
    "texts": _convert_texts,
    "top_k": float,  # a whole number, but a float in the conventions
}
#: attribute and type of the parameters in the conventions, including pass-through parameters
_PARAMETER_NAMES: Final[Mapping[str, tuple[str, Callable[[Any], Value]]]] = {
    **{
        row.name: (row.telemetry, _CONVERTERS.get(row.name, _CONVERTERS[row.kind]))
        for row in PARAMETERS.values()
        if row.telemetry is not None
    },
    "frequency_penalty": ("gen_ai.request.frequency_penalty", float),
    "presence_penalty": ("gen_ai.request.presence_penalty", float),
    "dimensions": ("gen_ai.embeddings.dimension.count", int),
}
_OUTPUT_TYPES: Final[Mapping[Any, str]] = {"text": "text", "json": "json", "json_schema": "json"}
#: the members with the ID of an answer
_RESPONSE_IDS: Final = ("id", "responseId")
_LONGEST_NAME: Final = 256


def build_call_attributes(plan: Plan) -> Attributes:
    """Return the attributes of all spans and metrics of a call: operation, provider, model and server."""
    endpoint, origin = plan.endpoint, plan.origin
    provider = endpoint.provider.name
    attributes: Attributes = {
        "gen_ai.operation.name": types.OPERATIONS[plan.operation].telemetry,
        "gen_ai.provider.name": _PROVIDER_NAMES.get(provider, provider),
        "gen_ai.request.model": endpoint.model,
    }
    if origin is not None:
        attributes["server.address"] = origin.host
        attributes["server.port"] = origin.port
    return attributes


def build_plan_attributes(plan: Plan) -> Attributes:
    """Return the attributes of the parameters that are sent."""
    attributes: Attributes = {}
    if plan.stream:
        attributes["gen_ai.request.stream"] = True
    for note in plan.notes:
        if note.parameter == "format" and note.action != "dropped" and note.value in _OUTPUT_TYPES:
            attributes["gen_ai.output.type"] = _OUTPUT_TYPES[note.value]
        if note.action in ("sent", "renamed") and note.parameter in _PARAMETER_NAMES:
            name, kind = _PARAMETER_NAMES[note.parameter]
            value = _convert_value(kind, note.value)
            if value is not None:
                attributes[name] = value
    return attributes


def _convert_value(kind: Callable[[Any], Value], value: Any) -> Value | None:
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        return None  # a pass-through parameter may be anything


def build_answer_attributes(answer: types.Answer, secrets: Iterable[Secret] = ()) -> Attributes:
    """Return the attributes of an answer without its content and without names that contain `secrets`."""
    known = tuple(secrets)
    names: dict[str, object] = {"gen_ai.response.model": answer.model, "onym.request_id": answer.request_id}
    attributes: Attributes = {}
    if isinstance(answer, types.Completion):
        names["gen_ai.response.id"] = next(filter(None, map(answer.raw.get, _RESPONSE_IDS)), None)
        attributes["gen_ai.response.finish_reasons"] = (answer.finish_reason,)
    for name, text in names.items():
        cleaned = clean_name(text, known)
        if cleaned is not None:
            attributes[name] = cleaned
    return attributes | build_usage_attributes(answer.usage)


def clean_name(text: object, secrets: Iterable[Secret]) -> str | None:
    """Return a name that the server sent, None if it is not usable as a label or contains a key."""
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_NAME or not text.isprintable():
        return None
    return None if any(secret.reveal() in text for secret in secrets) else text


def build_usage_attributes(usage: types.Usage) -> Attributes:
    """Return the tokens that the server counted; input includes cached tokens, output includes reasoning."""
    counted = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return {name: count for name, count in counted.items() if count is not None}


def get_error_type(error: BaseException) -> str:
    """Return a name for the error with low cardinality: Onym's error code, else the class."""
    if isinstance(error, OnymError):
        return error.code
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_FINISH_REASONS = {"tool_calls": "tool_call"}


def build_input_content(plan: Plan, messages: Sequence[types.Message]) -> dict[str, str]:
    """Return messages and system prompt. Images and documents appear only by their number of bytes."""
    secrets = plan.endpoint.secrets
    content = {"gen_ai.input.messages": _dump_masked(list(map(_format_message, messages)), secrets)}
    system = [
        {"type": "text", "content": note.value}
        for note in plan.notes
        if note.parameter == "system" and note.action in ("sent", "renamed")
    ]
    if system:
        content["gen_ai.system_instructions"] = _dump_masked(system, secrets)
    return content


def build_output_content(plan: Plan, answer: types.Completion) -> dict[str, str]:
    """Return the answer as one message."""
    parts: list[dict[str, Any]] = []
    if answer.reasoning:
        parts.append({"type": "reasoning", "content": answer.reasoning})
    if answer.text:
        parts.append({"type": "text", "content": answer.text})
    parts.extend(map(_format_tool_call, answer.tool_calls))
    reason = _FINISH_REASONS.get(answer.finish_reason, answer.finish_reason)
    message = {"role": "assistant", "parts": parts, "finish_reason": reason}
    return {"gen_ai.output.messages": _dump_masked([message], plan.endpoint.secrets)}


def _format_message(message: types.Message) -> dict[str, Any]:
    named = {} if message.name is None else {"name": message.name}
    return {"role": message.role, "parts": list(_iter_parts(message)), **named}


def _iter_parts(message: types.Message) -> Iterator[dict[str, Any]]:
    content = (types.TextPart(message.content),) if isinstance(message.content, str) else message.content
    if message.role == "tool":
        text = "".join(part.text for part in content if isinstance(part, types.TextPart))
        yield {"type": "tool_call_response", "id": message.tool_call_id, "response": text}
        return
    for part in content:
        if not isinstance(part, types.TextPart) or part.text:
            yield _format_part(part)
    yield from map(_format_tool_call, message.tool_calls)


def _format_part(part: types.ContentPart) -> dict[str, Any]:
    if isinstance(part, types.TextPart):
        return {"type": "text", "content": part.text}
    modality = "image" if isinstance(part, types.ImagePart) else "document"
    known: dict[str, Any] = {"modality": modality, "mime_type": part.media_type}
    if isinstance(part, types.DocumentPart) and part.name is not None:
        known["name"] = part.name
    if part.url is not None:
        return {"type": "uri", "uri": part.url, **known}
    return {"type": modality, "octets": len(part.data or b""), **known}


def _format_tool_call(call: types.ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _dump_masked(value: Any, secrets: Sequence[Secret]) -> str:
    import json  # unlike msgspec, it can encode lone surrogates of a prompt

    return json.dumps(mask_secrets(value, secrets), separators=(",", ":"))


T = TypeVar("T")

#: the largest number of models with metrics, which stay in memory
_MOST_MODELS: Final = 500


class Instruments:
    """The instruments of a call; `cost` is None unless costs are enabled."""

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

    def limit_model_label(self, model: str | None) -> str:
        """Return the model's name as a label of metrics, "" if there are too many names already."""
        if model is None:
            return ""
        if len(self._models) < _MOST_MODELS:
            self._models.add(model)
        return model if model in self._models else ""


class CallSpan:
    """The span of a call. `record_answer` or `record_error` ends it; later events are ignored."""

    def __init__(self, plan: Plan, span: Span, instruments: Instruments, named: Attributes) -> None:
        #: whether the answer comes from the response cache
        self.cached = False
        self._plan = plan
        self._span = span
        self._instruments = instruments
        self._named = named
        self._start = instruments.clock()
        self._first: float | None = None
        self._done = False
        self._collector = Collector()

    def watch_flow(self, flow: Flow[T]) -> Flow[T]:
        """Return the same flow, with an event of the span for each retry."""
        failure: Attributes = {}
        try:
            step = flow.send(None)
            while True:
                if isinstance(step, Wait):
                    self._span.add_event("onym.retry", {**failure, "onym.retry.delay": step.seconds})
                try:
                    reply = yield step
                except NetError as error:
                    failure = {"error.type": get_error_type(error)}
                    step = flow.throw(error)
                else:
                    if isinstance(step, Send) and reply is not None:
                        failure = _build_status_attributes(reply)
                    step = flow.send(reply)
        except StopIteration as stop:
            outcome: T = stop.value
            return outcome
        finally:
            flow.close()

    def record_answer(self, answer: types.Answer) -> None:
        """End the span with an answer. Tokens of an answer from the cache are not counted again."""
        if self._done:
            return
        secrets = self._plan.endpoint.secrets
        self._span.set_attributes(build_answer_attributes(answer, secrets))
        model = self._instruments.limit_model_label(clean_name(answer.model, secrets))
        if self.cached:
            self._span.set_attribute("onym.cached", True)
        else:
            self._record_usage(answer.usage, model)
        if self._instruments.capture and isinstance(answer, types.Completion):
            self._span.set_attributes(build_output_content(self._plan, answer))
        self._end_span({"gen_ai.response.model": model} if model else {})

    def record_error(self, error: BaseException) -> None:
        """End the span with an error, without its message, which may quote the prompt."""
        from opentelemetry.trace import StatusCode

        if self._done:
            return
        kind = get_error_type(error)
        usage = getattr(error, "usage", None)
        if isinstance(usage, types.Usage):
            self._span.set_attributes(build_usage_attributes(usage))
            self._record_usage(usage, "")
        status = getattr(error, "status", None)
        if isinstance(status, int):
            self._span.set_attribute("http.response.status_code", status)
        self._span.set_status(StatusCode.ERROR, kind)
        self._end_span({"error.type": kind})

    def on_events(self, events: list[types.Event]) -> None:
        """Record events of a stream."""
        if self._first is None:
            self._first = self._instruments.clock() - self._start
        for event in events:
            self._collector.add(event)

    def on_close(self, error: BaseException | None) -> None:
        """Record the end of a stream. A reader may stop early without an error."""
        if self._first is not None and not self._done:
            self._span.set_attribute("gen_ai.response.time_to_first_chunk", self._first)
            self._instruments.first_chunk.record(self._first, self._named)
        if error is not None:
            self.record_error(error)
        elif self._collector.finished:
            self.record_answer(self._collector.completion(self._plan.endpoint.model))
        elif not self._done:
            self._span.set_attribute("onym.stream.abandoned", True)
            self._end_span({})

    def _record_usage(self, usage: types.Usage, model: str) -> None:
        attributes = {**self._named, "gen_ai.response.model": model} if model else self._named
        counted: Sequence[tuple[str, int | None]] = (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
        )
        for kind, count in counted:
            if count is not None:
                self._instruments.tokens.record(count, {**attributes, "gen_ai.token.type": kind})
        if self._instruments.cost is not None:
            self._record_cost(usage, self._instruments.cost)

    def _record_cost(self, usage: types.Usage, counter: Counter) -> None:
        from onym.errors import ConfigError
        from onym.llm.prices import cost

        endpoint, price = self._plan.endpoint, None
        with suppress(ConfigError):  # a price list that became invalid must not lose the answer
            price = cost(usage, endpoint.provider.name, endpoint.model, environ=self._instruments.environ)
        if price is not None:
            amount = float(price.amount)
            self._span.set_attributes({"onym.cost": amount, "onym.cost.currency": price.currency})
            counter.add(amount, {**self._named, "onym.cost.currency": price.currency})

    def _end_span(self, more: Attributes) -> None:
        self._done = True
        self._span.set_attributes(more)
        self._instruments.duration.record(self._instruments.clock() - self._start, {**self._named, **more})
        self._span.end()


def _build_status_attributes(reply: Reply) -> Attributes:
    return {"http.response.status_code": reply.status}


#: OpenTelemetry's variable for the capture of prompts and answers
CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

#: its values for content in spans
_CAPTURE_VALUES: Final = frozenset({"1", "true", "span_only", "span_and_event"})
_SCOPE: Final = "onym"
#: bounds of the histograms in the conventions
_SECONDS_BUCKETS: Final = tuple(0.01 * 2**step for step in range(14))
_TOKEN_BUCKETS: Final = tuple(4**step for step in range(14))


class Telemetry:
    """Reports calls to OpenTelemetry. Clients may share one.

    The providers default to the global ones. `capture_content=True` adds messages and answers to the spans,
    with keys masked; with None, `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` decides. `cost=True`
    adds the cost of a call if `onym.llm.prices` knows the price. Raises MissingExtraError without
    opentelemetry-api, and ConfigError for a price list that cannot be read.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        capture_content: bool | None = None,
        cost: bool = False,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise make_missing_extra_error(
                "opentelemetry-api", "telemetry", code="telemetry.missing-extra"
            ) from None

        environ = os.environ if environ is None else environ
        if capture_content is None:
            capture_content = environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURE_VALUES
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        meter = metrics.get_meter(_SCOPE, __version__, meter_provider)
        self.captures: bool = capture_content
        if cost:
            from onym.llm import prices

            prices.cost(types.Usage(), "", "", environ=environ)  # raises the error of an invalid list now
        self._instruments = Instruments(
            clock=clock,
            capture=capture_content,
            **_make_histograms(meter),
            cost=_make_cost_counter(meter) if cost else None,
            environ=environ,
        )

    def begin_call(self, plan: Plan, messages: Messages | None = None) -> CallSpan:
        """Start a span for this call; `messages` are captured if that is enabled."""
        from opentelemetry.trace import SpanKind

        named = build_call_attributes(plan)
        # samplers decide by the attributes at the start
        span = self._tracer.start_span(
            f"{named['gen_ai.operation.name']} {named['gen_ai.request.model']}",
            kind=SpanKind.CLIENT,
            attributes={**named, **build_plan_attributes(plan)},
        )
        if self.captures and messages is not None and span.is_recording():
            from onym.llm._arguments import to_messages

            span.set_attributes(build_input_content(plan, to_messages(messages)))
        return CallSpan(plan, span, self._instruments, named)


def _make_histograms(meter: Meter) -> dict[str, Any]:
    return {
        "duration": meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS_BUCKETS,
        ),
        "tokens": meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        ),
        "first_chunk": meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="Time to receive the first chunk.",
            explicit_bucket_boundaries_advisory=_SECONDS_BUCKETS,
        ),
    }


def _make_cost_counter(meter: Meter) -> Any:
    return meter.create_counter("onym.client.cost", unit="{currency}", description="What calls cost.")
