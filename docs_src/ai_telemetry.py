from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from onym.ai import AIClient
from onym.ai.telemetry import Telemetry
from onym.net import NetConfig, Policy, TLSConfig

spans = InMemorySpanExporter()  # an exporter of yours: OTLP, the console, ...
tracers = TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))

trial = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",)))
with AIClient(network=trial, telemetry=Telemetry(tracers)) as client:
    client.invoke("ai://factory.localhost:8443/tool/add", {"a": 2, "b": 3})


def depth(span: ReadableSpan) -> int:
    return 0 if span.parent is None else 1 + depth(known[span.parent.span_id])


known = {span.context.span_id: span for span in spans.get_finished_spans() if span.context}
for span in sorted(known.values(), key=lambda each: each.start_time or 0):
    said = {name: value for name, value in (span.attributes or {}).items() if "hash" not in name}
    print("  " * depth(span) + span.name, *(f"{name}={value}" for name, value in sorted(said.items())))
