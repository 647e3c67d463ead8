"""OpenTelemetry spans and metrics of calls, by the conventions for generative AI. Off unless asked for.

    onym.connect(uri, telemetry=Telemetry())

or `ONYM_TELEMETRY=1`, for the global providers. Needs the extra `telemetry`. What people and models say is
left out unless asked for as well, and keys are in none of it.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from onym._version import __version__
from onym.errors import MissingExtraError, OnymWarning
from onym.llm.types import Usage

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import TracerProvider

    from onym.llm._messages import Messages
    from onym.llm.plan import Plan
    from onym.llm.telemetry._call import Observed

__all__ = ["CAPTURE_VARIABLE", "VARIABLE", "Telemetry", "from_environment"]

#: set to 1, every client reports to the global providers
VARIABLE: Final = "ONYM_TELEMETRY"
#: OpenTelemetry's own switch for prompts and answers
CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_ON: Final = frozenset({"1", "true"})
#: the values of that switch that mean spans, which is where content goes here
_CAPTURES: Final = _ON | {"span_only", "span_and_event"}
_SCOPE: Final = "onym"
#: bounds of the histograms, as the conventions give them
_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)


class Telemetry:
    """Reports calls to OpenTelemetry. Clients may share one.

    The providers default to the global ones. `capture_content=True` puts messages and answers into the
    spans, keys masked; None leaves that to `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.
    `cost=True` adds what a call costs, where `onym.llm.prices` knows. Raises MissingExtraError without
    opentelemetry-api, ConfigError for a list of prices that cannot be read.
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
            raise MissingExtraError(
                "telemetry needs opentelemetry-api, which is not installed",
                code="telemetry.missing-extra",
                command="pip install 'onym[telemetry]'",
            ) from None
        from onym.llm.telemetry._call import Instruments

        environ = os.environ if environ is None else environ
        if capture_content is None:
            capture_content = environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURES
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        meter = metrics.get_meter(_SCOPE, __version__, meter_provider)
        self.captures: bool = capture_content
        if cost:
            from onym.llm import prices

            prices.cost(Usage(), "", "", environ=environ)  # a list that cannot be read is said now
        self._instruments = Instruments(
            clock=clock,
            capture=capture_content,
            **_histograms(meter),
            cost=_cost(meter) if cost else None,
            environ=environ,
        )

    def begin(self, plan: Plan, messages: Messages | None = None) -> Observed:
        """A span for this call, which has begun. `messages` are for its content, where that is wanted."""
        from opentelemetry.trace import SpanKind

        from onym.llm.telemetry import _attributes as attributes
        from onym.llm.telemetry._call import Observed

        named = attributes.named(plan)
        # what samplers decide by has to be there from the start
        span = self._tracer.start_span(
            f"{named['gen_ai.operation.name']} {named['gen_ai.request.model']}",
            kind=SpanKind.CLIENT,
            attributes={**named, **attributes.of_plan(plan)},
        )
        if self.captures and messages is not None and span.is_recording():
            from onym.llm._messages import to_messages
            from onym.llm.telemetry._content import of_input

            span.set_attributes(of_input(plan, to_messages(messages)))
        return Observed(plan, span, self._instruments, named)


def _histograms(meter: Meter) -> dict[str, Any]:
    return {
        "duration": meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        ),
        "tokens": meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        ),
        "first_chunk": meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            unit="s",
            description="Time to receive the first chunk.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        ),
    }


def _cost(meter: Meter) -> Any:
    return meter.create_counter("onym.client.cost", unit="{currency}", description="What calls cost.")


def from_environment(environ: Mapping[str, str]) -> Telemetry | None:
    """The telemetry that `ONYM_TELEMETRY=1` asks for, None where it does not."""
    if environ.get(VARIABLE, "").strip().lower() not in _ON:
        return None
    try:
        return Telemetry(environ=environ)
    except MissingExtraError as error:
        warnings.warn(f"{VARIABLE} is set, and {error}: {error.command}", OnymWarning, stacklevel=2)
        return None
