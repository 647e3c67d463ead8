"""What telemetry of ai:// names reported in a test, and a factory that reports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ai_factory import NAME, Factory, resources
from ai_support import authority_ca, key_store, serve_authority
from onym.ai.endpoint import Caller, Endpoint
from onym.ai.endpoint.context import AccessRequest
from onym.ai.telemetry import Telemetry
from onym.errors import AIIPError
from onym.sign.receipts import access_token_hash

__all__ = [
    "BODY",
    "CALL",
    "CALLER",
    "QUERY",
    "TOKEN",
    "Node",
    "Seen",
    "Tokens",
    "above",
    "identity",
    "said",
    "served",
    "traces",
]

QUERY = "a-very-private-query"
CALLER = f"00-{'a' * 32}-{'b' * 16}-01"
TOKEN = "a-very-private-token-0123456789"
BODY = "a-very-private-body"


class Seen:
    """What was reported."""

    def __init__(self, **how: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(self.tracers, MeterProvider([self.reader]), **how)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str, role: str = "client") -> list[ReadableSpan]:
        return [each for each in self.spans if each.name == f"aiip.{name}" and said(each, "role") == role]

    def one(self, name: str, role: str = "client") -> ReadableSpan:
        (found,) = self.named(name, role)
        return found

    def tree(self) -> list[Any]:
        """The spans that have no parent here, each as (role, name, its children in their order)."""
        spans = sorted(self.spans, key=lambda each: each.start_time or 0)
        known = {identity(each) for each in spans}

        def under(parent: int | None) -> list[Any]:
            return [
                (said(each, "role"), each.name.removeprefix("aiip."), under(identity(each)))
                for each in spans
                if (above(each) if above(each) in known else None) == parent
            ]

        return under(None)

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def counted(self, name: str) -> list[tuple[dict[str, Any], int]]:
        return [(dict(point.attributes), point.value) for point in self.points(name)]

    def everything(self) -> str:
        data = self.reader.get_metrics_data()
        return "".join(each.to_json() for each in self.spans) + (data.to_json() if data else "")


def said(span: ReadableSpan, name: str) -> Any:
    attributes = span.attributes or {}
    return attributes.get(f"aiip.{name}", attributes.get(name))


def identity(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def above(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def traces(seen: Seen) -> set[int]:
    return {each.context.trace_id for each in seen.spans if each.context is not None}


class Tokens:
    """Knows one token; who has none is nobody in particular."""

    async def authorize(self, request: AccessRequest) -> Caller:
        given = request.headers.get("authorization")
        if given is None and not request.scopes:
            return Caller(audience="anonymous")
        if given != f"Bearer {TOKEN}":
            raise AIIPError("who are you?", code="aiip.authentication-required")
        return Caller(audience="shop", client_id="shop", token_hash=access_token_hash(TOKEN))

    def metadata(self) -> dict[str, Any]:
        return {}


@contextlib.contextmanager
def served(folder: Path, telemetry: Telemetry | None, **how: Any) -> Iterator[Factory]:
    """A factory that reports to this telemetry."""
    keys, ca, calls = key_store(folder), authority_ca(), list[str]()

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=keys, store=folder / "seen.sqlite", telemetry=telemetry, **how)
        resources(app, calls)

        @app.resource("/tool/echo")
        def echo(text: str) -> str:
            trace.get_current_span().add_event("in the function")
            return text

        @app.resource("/agent/breaks", effects="write")
        def breaks() -> str:
            raise RuntimeError(BODY)

        return app

    with serve_authority(make, NAME, ca=ca) as (app, authority):
        yield Factory(app, authority, keys, folder, ca, calls)


#: role, name, children in their order
Node: TypeAlias = tuple[str, str, list[Any]]

CALL: list[Node] = [
    ("client", "resolve", [("client", "discover", [])]),
    ("client", "exchange", []),
    ("client", "verify", []),
]
