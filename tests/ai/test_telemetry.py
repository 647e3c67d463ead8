"""Spans and metrics of clients of ai:// names, as the real SDK of OpenTelemetry collects them."""

from __future__ import annotations

import asyncio
import builtins
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import SpanKind, StatusCode

from ai_factory import Factory
from onym.ai import AIClient, AsyncAIClient, Invocation, ResolverSettings
from onym.ai.client_flows import run_exchange
from onym.ai.discovery.evaluation import discover_authority
from onym.ai.replay import MemoryReplays
from onym.ai.telemetry import Telemetry, from_environment
from onym.errors import (
    ConnectionFailed,
    DiscoveryError,
    InvocationError,
    MissingExtraError,
    NetError,
    OnymWarning,
    ProvenanceError,
)
from onym.net.messages import HTTPRequest, Reply, Send
from onym.net.transport import run_flow
from onym.uri.ai import AIURI
from telemetry_support import BODY, CALL, CALLER, QUERY, Seen, above, said, served, traces


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    """A factory that reports nothing."""
    with served(tmp_path_factory.mktemp("quiet"), None) as found:
        yield found


# -- clients ---------------------------------------------------------------------------------------


def test_an_invocation_is_one_trace_of_its_stages(quiet: Factory, seen: Seen) -> None:
    with quiet.client(telemetry=seen.telemetry) as client:
        client.invoke(quiet.uri("/tool/echo"), {"text": "x"})
    assert seen.tree() == [("client", "invoke", CALL)]
    assert len(traces(seen)) == 1
    whole = dict(seen.one("invoke").attributes or {})
    hashed = whole.pop("aiip.path_hash")
    assert whole == {"aiip.role": "client", "aiip.method": "POST", "aiip.authority": quiet.authority}
    exchange = seen.one("exchange")
    assert exchange.kind is SpanKind.CLIENT
    assert dict(exchange.attributes or {}) == {
        "aiip.role": "client",
        "aiip.authority": quiet.authority,
        "aiip.path_hash": hashed,
        "aiip.method": "POST",
        "aiip.status": 200,
    }
    assert all(each.status.status_code is StatusCode.UNSET for each in seen.spans)
    assert {each.instrumentation_scope.name for each in seen.spans if each.instrumentation_scope} == {"onym"}


def test_coroutines_report_the_same(quiet: Factory, seen: Seen) -> None:
    async def both() -> None:
        async with quiet.aclient(telemetry=seen.telemetry) as client:
            await asyncio.gather(
                client.invoke(quiet.uri("/tool/echo"), {"text": "x"}),
                client.invoke(quiet.uri("/tool/add"), {"a": 1, "b": 1}),
                client.describe(quiet.uri("/tool/add")),
            )

    asyncio.run(both())
    assert seen.tree() == [("client", "invoke", CALL)] * 3
    assert len(traces(seen)) == 3
    assert {said(each, "method") for each in seen.named("invoke")} == {"GET", "POST"}


def test_a_call_goes_on_in_the_trace_of_the_program(quiet: Factory, seen: Seen) -> None:
    with (
        quiet.client(telemetry=seen.telemetry) as client,
        seen.tracers.get_tracer("mine").start_as_current_span("mine") as mine,
    ):
        client.describe(quiet.uri("/tool/echo"))
        assert trace.get_current_span() is mine
    assert len(traces(seen)) == 1
    assert above(seen.one("invoke")) == mine.get_span_context().span_id


def test_what_is_kept_is_not_asked_for_again_and_the_span_says_so(quiet: Factory, seen: Seen) -> None:
    with quiet.client(telemetry=seen.telemetry) as client:
        client.resolve(quiet.uri("/tool/add"))
        client.resolve(quiet.uri("/tool/echo"))
    assert [said(each, "cached") for each in seen.named("discover")] == [False, True]
    assert {said(each, "authority") for each in seen.spans} == {quiet.authority}


def test_a_name_that_does_not_resolve_is_in_no_attribute(quiet: Factory, seen: Seen) -> None:
    with quiet.client(telemetry=seen.telemetry) as client:
        for uri in ("ai://stranger.test/agent/x", "ai://stranger/agent/x"):
            with pytest.raises(DiscoveryError):
                client.invoke(uri)
    assert "stranger" not in seen.everything()
    assert seen.points("aiip.stage.duration")
    assert all("aiip.authority" not in (each.attributes or {}) for each in seen.spans)
    errors = {said(each, "error.type") for each in seen.named("invoke")}
    assert errors == {"aiip.blocked-address", "aiip.unknown-authority"}
    assert all(each.status.status_code is StatusCode.ERROR for each in seen.named("invoke"))
    assert all(not each.events or "exception" not in {e.name for e in each.events} for each in seen.spans)


def test_a_refusal_is_a_failed_exchange_of_a_verified_answer(quiet: Factory, seen: Seen) -> None:
    with quiet.client(telemetry=seen.telemetry) as client, pytest.raises(InvocationError):
        client.invoke(quiet.uri("/tool/add"), {"a": BODY, "b": 1})
    whole, exchange, verify = seen.one("invoke"), seen.one("exchange"), seen.one("verify")
    assert said(whole, "error.type") == "aiip.invalid-input"
    assert (said(exchange, "status"), said(exchange, "error.type")) == (422, "422")
    assert verify.status.status_code is StatusCode.UNSET
    assert seen.points("aiip.verify.failures") == []
    assert BODY not in seen.everything()


def test_discovery_by_all_sources_is_a_span_and_its_refusal_an_error(quiet: Factory, seen: Seen) -> None:
    settings = ResolverSettings(dns=False, telemetry=seen.telemetry)
    with quiet.client(settings) as client:
        found = run_flow(discover_authority(quiet.uri("/tool/add"), settings), client._transport)
        lost = run_flow(discover_authority("ai://stranger.test/x", settings), client._transport)
    assert found.refusal is None
    assert lost.refusal is not None
    good, bad = seen.named("discover")
    assert said(good, "authority") == quiet.authority
    assert good.status.status_code is StatusCode.UNSET
    assert (bad.status.status_code, said(bad, "error.type")) == (StatusCode.ERROR, lost.refusal.code)
    assert "stranger" not in seen.everything()


def test_a_receipt_that_does_not_hold_is_counted_by_its_code(quiet: Factory, seen: Seen) -> None:
    settings = ResolverSettings(dns=False, clock=lambda: time.time() + 3000)
    with quiet.client(settings, telemetry=seen.telemetry) as client, pytest.raises(ProvenanceError) as caught:
        client.invoke(quiet.uri("/tool/echo"), {"text": BODY})
    code = caught.value.code
    assert said(seen.one("verify"), "error.type") == said(seen.one("invoke"), "error.type") == code
    labels = {"aiip.role": "client", "aiip.authority": quiet.authority, "error.type": code}
    assert seen.counted("aiip.verify.failures") == [(labels, 1)]
    assert BODY not in seen.everything()


class Forgetful(MemoryReplays):
    """Says of every receipt that it was there."""

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        return True


def test_a_replayed_receipt_is_a_hit(quiet: Factory, seen: Seen) -> None:
    terms: dict[str, Any] = {"telemetry": seen.telemetry, "replays": Forgetful()}
    with quiet.client(**terms) as client, pytest.raises(ProvenanceError):
        client.invoke(quiet.uri("/tool/echo"), {"text": "x"})
    labels = {"aiip.authority": quiet.authority, "aiip.replay.kind": "receipt"}
    assert seen.counted("aiip.replay.hits") == [(labels, 1)]


def test_keys_that_are_fetched_before_their_time_are_counted(tmp_path: Path, seen: Seen) -> None:
    with served(tmp_path, None) as factory, factory.client(telemetry=seen.telemetry) as client:
        client.invoke(factory.uri("/tool/echo"), {"text": "x"})
        assert seen.counted("aiip.keys.refetches") == []
        factory.keys.revoke(factory.keys.signer(time.time()).kid, time.time())
        client.invoke(factory.uri("/tool/echo"), {"text": "x"})
    assert seen.counted("aiip.keys.refetches") == [({"aiip.authority": factory.authority}, 1)]
    assert [e.name for each in seen.named("verify") for e in each.events] == ["aiip.keys.refetch"]


def test_every_stage_is_measured_in_seconds_by_its_name(quiet: Factory) -> None:
    ticks = iter(range(100))
    seen = Seen(clock=lambda: float(next(ticks)))
    with quiet.client(telemetry=seen.telemetry) as client:
        client.invoke(quiet.uri("/tool/echo"), {"text": "x"})
    found = {point.attributes["aiip.stage"]: point for point in seen.points("aiip.stage.duration")}
    assert {name: point.sum for name, point in found.items()} == {
        "discover": 1, "resolve": 3, "exchange": 1, "verify": 1, "invoke": 9,
    }  # fmt: skip
    assert dict(found["invoke"].attributes) == {
        "aiip.stage": "invoke",
        "aiip.role": "client",
        "aiip.authority": quiet.authority,
    }


def test_the_number_of_authorities_in_metrics_has_a_bound(seen: Seen) -> None:
    for number in range(600):
        seen.telemetry.count_replay(f"host-{number}.example", "receipt")
    found = [labels.get("aiip.authority") for labels, _ in seen.counted("aiip.replay.hits")]
    assert len(found) == 501
    assert found.count(None) == 1


# -- streams ---------------------------------------------------------------------------------------


def test_a_streams_call_ends_with_the_stream_and_its_proof_is_a_part_of_it(
    quiet: Factory, seen: Seen
) -> None:
    uri = quiet.uri("/agent/count")
    with quiet.client(telemetry=seen.telemetry) as client, client.stream(uri, {"to": 3}) as stream:
        events = iter(stream)
        next(events)
        assert seen.named("invoke") == []
        assert len(list(events)) == 2
    assert seen.tree() == [("client", "invoke", CALL)]
    assert seen.one("invoke").status.status_code is StatusCode.UNSET
    assert said(seen.one("invoke"), "abandoned") is None


def test_coroutines_streams_report_the_same(quiet: Factory, seen: Seen) -> None:
    async def read() -> None:
        async with quiet.aclient(telemetry=seen.telemetry) as client:
            async with await client.stream(quiet.uri("/agent/count"), {"to": 3}) as stream:
                assert len([each async for each in stream]) == 3
            async with await client.stream(quiet.uri("/tool/add"), {"a": 1, "b": 2}) as stream:
                assert [each async for each in stream] == []
                assert stream.result.json() == 3

    asyncio.run(read())
    assert seen.tree() == [("client", "invoke", CALL)] * 2


def test_a_stream_that_is_left_early_is_no_failure(quiet: Factory, seen: Seen) -> None:
    uri = quiet.uri("/agent/count")
    with quiet.client(telemetry=seen.telemetry) as client, client.stream(uri, {"to": 1000}) as stream:
        next(iter(stream))
    whole = seen.one("invoke")
    assert said(whole, "abandoned") is True
    assert whole.status.status_code is StatusCode.UNSET
    assert seen.named("verify") == []


def test_a_stream_whose_proof_does_not_hold_is_a_failure(quiet: Factory, seen: Seen) -> None:
    settings = ResolverSettings(dns=False, clock=lambda: time.time() + 3000)
    with (
        quiet.client(settings, telemetry=seen.telemetry) as client,
        pytest.raises(ProvenanceError) as caught,
        client.stream(quiet.uri("/agent/count"), {"to": 2}) as stream,
    ):
        list(stream)
    assert (
        said(seen.one("invoke"), "error.type") == said(seen.one("verify"), "error.type") == caught.value.code
    )


def test_a_refusal_where_a_stream_was_wanted_ends_the_call(quiet: Factory, seen: Seen) -> None:
    with quiet.client(telemetry=seen.telemetry) as client, pytest.raises(InvocationError):
        client.stream(quiet.uri("/agent/count"), {"to": BODY})
    assert seen.tree() == [("client", "invoke", CALL)]
    assert said(seen.one("invoke"), "error.type") == "aiip.invalid-input"
    assert BODY not in seen.everything()


def test_a_call_that_fails_before_its_stream_is_over(quiet: Factory, seen: Seen) -> None:
    with quiet.client(telemetry=seen.telemetry) as client, pytest.raises(DiscoveryError):
        client.stream("ai://stranger/agent/x")
    assert said(seen.one("invoke"), "error.type") == "aiip.unknown-authority"


# -- the wire --------------------------------------------------------------------------------------


class Wired:
    """A transport that keeps what is sent to resources, and fails at first as often as it is told."""

    def __init__(self, real: Any, failures: int = 0) -> None:
        self._real = real
        self.left = failures
        self.sent: list[HTTPRequest] = []

    def send(self, step: Send) -> Reply:
        if "/.well-known/aiip/v1/" in step.request.target:
            self.sent.append(step.request)
            if self.left:
                self.left -= 1
                raise ConnectionFailed("not today")
        found: Reply = self._real.send(step)
        return found

    def ask(self, step: Any) -> Any:
        return self._real.ask(step)


def fields(request: HTTPRequest, name: str) -> list[Any]:
    return [value for each, value in request.headers if each.lower() == name]


def test_each_request_has_the_traceparent_of_its_exchange_and_nothing_else_of_the_trace(
    quiet: Factory, seen: Seen
) -> None:
    with quiet.client() as plain:
        wire: Any = Wired(plain._transport)
        AIClient(ResolverSettings(dns=False), transport=wire).invoke(quiet.uri("/tool/echo"), {"text": "x"})
        assert [fields(each, "traceparent") for each in wire.sent] == [[]]
        wire.sent.clear()
        client = AIClient(ResolverSettings(dns=False), transport=wire, telemetry=seen.telemetry)
        client.invoke(quiet.uri("/tool/echo"), {"text": "x"})
    (exchange,), (request,) = seen.named("exchange"), wire.sent
    assert exchange.context is not None
    (value,) = fields(request, "traceparent")
    assert value.split("-")[:3] == [
        "00",
        f"{exchange.context.trace_id:032x}",
        f"{exchange.context.span_id:016x}",
    ]
    assert not any(fields(request, name) for name in ("tracestate", "baggage"))


def test_without_an_sdk_the_callers_own_traceparent_goes_on(quiet: Factory) -> None:
    nothing = Telemetry(trace.NoOpTracerProvider(), NoOpMeterProvider())
    with quiet.client() as plain:
        wire: Any = Wired(plain._transport)
        client = AIClient(ResolverSettings(dns=False), transport=wire, telemetry=nothing)
        asked = Invocation(
            uri=AIURI.parse(quiet.uri("/tool/echo")), method="GET", headers=(("traceparent", CALLER),)
        )
        run_flow(run_exchange(client.session, asked, client.resolve(asked.uri)), wire)
    assert [fields(each, "traceparent") for each in wire.sent] == [[CALLER]]


def test_a_request_that_is_sent_again_is_an_event_of_its_exchange(quiet: Factory, seen: Seen) -> None:
    with quiet.client() as plain:
        wire: Any = Wired(plain._transport, failures=1)
        client = AIClient(ResolverSettings(dns=False), transport=wire, telemetry=seen.telemetry)
        client.describe(quiet.uri("/tool/echo"))
    (event,) = seen.one("exchange").events
    assert event.name == "aiip.attempt.failed"
    assert dict(event.attributes or {}) == {"error.type": ConnectionFailed("x").code}
    assert seen.one("exchange").status.status_code is StatusCode.UNSET


def test_a_call_that_is_cancelled_is_no_failure(quiet: Factory, seen: Seen) -> None:
    class Hanging:
        async def send(self, step: Send) -> Reply:
            raise asyncio.CancelledError

    async def cancelled() -> None:
        client = AsyncAIClient(
            ResolverSettings(dns=False), transport=cast("Any", Hanging()), telemetry=seen.telemetry
        )
        await client.invoke(quiet.uri("/tool/echo"), {"text": "x"})

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert seen.tree() == [("client", "invoke", CALL[:1])]
    assert {said(each, "abandoned") for each in seen.spans} == {True}
    assert {each.status.status_code for each in seen.spans} == {StatusCode.UNSET}


def test_a_request_that_never_arrives_is_a_failed_exchange(quiet: Factory, seen: Seen) -> None:
    with quiet.client() as plain:
        wire: Any = Wired(plain._transport, failures=9)
        client = AIClient(ResolverSettings(dns=False), transport=wire, telemetry=seen.telemetry)
        with pytest.raises(NetError) as caught:
            client.describe(quiet.uri("/tool/echo"))
    assert (
        said(seen.one("exchange"), "error.type")
        == said(seen.one("invoke"), "error.type")
        == caught.value.code
    )
    assert seen.named("verify") == []


# -- off, and asked for by the environment -----------------------------------------------------------


def test_off_nothing_of_telemetry_is_loaded(quiet: Factory) -> None:
    code = (
        "import sys\nfrom onym.ai import AIClient, Endpoint\nAIClient().close()\n"
        "Endpoint('factory.example')\n"
        "print(*[each for each in sys.modules if each.startswith(('opentelemetry', 'onym.ai._spans'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_environment_asks_for_it(quiet: Factory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONYM_TELEMETRY", "1")
    seen = Seen()
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: seen.tracers)
    with served(tmp_path, None) as factory, factory.client() as client:
        client.invoke(factory.uri("/tool/echo"), {"text": "x"})
    assert len(traces(seen)) == 1
    assert len(seen.named("invoke", "endpoint")) == 1
    monkeypatch.setenv("ONYM_TELEMETRY", "0")
    assert from_environment() is None
    with quiet.client() as client:
        assert client.session.settings.telemetry is None


def test_one_key_hashes_a_path_alike_and_another_does_not(quiet: Factory) -> None:
    found = []
    for key in (b"one", b"one", b"two", None, None):
        seen = Seen(path_key=key)
        with quiet.client(telemetry=seen.telemetry) as client:
            client.resolve(quiet.uri(f"/tool/echo?text={QUERY}"))
        found.append(said(seen.one("resolve"), "path_hash"))
    assert len(set(found)) == 3
    assert found[0] == found[1]
    assert found[3] == found[4]
    assert all(len(each) == 32 for each in found)


def test_settings_may_bring_their_telemetry(quiet: Factory, seen: Seen) -> None:
    settings = ResolverSettings(dns=False, telemetry=seen.telemetry)
    with quiet.client(settings) as client:
        client.resolve(quiet.uri("/tool/echo"))
        assert client.session.settings is settings
    assert seen.one("resolve").parent is None


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtraError) as caught:
        Telemetry()
    assert caught.value.code == "telemetry.missing-extra"
    with pytest.warns(OnymWarning, match="ONYM_TELEMETRY"):
        assert from_environment({"ONYM_TELEMETRY": "1"}) is None
