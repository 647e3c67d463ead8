import os

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import onym
from onym.llm.telemetry import Telemetry

spans = InMemorySpanExporter()  # an exporter of yours: OTLP, the console, ...
tracers = TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))

uri = os.environ["LLM_URI"] + "?temp=0.2"
with onym.connect(uri, policy=onym.Policy.local(), telemetry=Telemetry(tracers)) as client:
    client.chat("Hello")

(span,) = spans.get_finished_spans()
print(span.name)
for name, value in sorted((span.attributes or {}).items()):
    if name.startswith(("gen_ai.request", "gen_ai.usage", "gen_ai.response.finish")):
        print(" ", name, value)
