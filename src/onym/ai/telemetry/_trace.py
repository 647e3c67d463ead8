"""W3C Trace Context on the wire. Of all that a context may carry, `traceparent` alone goes to strangers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from onym.net.messages import Send

__all__ = ["parent", "traced"]

_HEADER: Final = "traceparent"
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def parent(traceparent: str | None) -> Context:
    """What a server's span is begun in: a span that is there already, else the one that the caller names."""
    here = context.get_current()
    if traceparent is None or trace.get_current_span(here).get_span_context().is_valid:
        return here
    return _PROPAGATOR.extract({_HEADER: traceparent}, here)


def traced(send: Send) -> Send:
    """The request with the current span's `traceparent`; as it is where there is no span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    if _HEADER not in carrier:
        return send
    others = tuple(each for each in send.request.headers if each[0].lower() != _HEADER)
    headers = (*others, (_HEADER, carrier[_HEADER]))
    return replace(send, request=replace(send.request, headers=headers))
