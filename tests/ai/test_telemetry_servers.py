"""Spans and metrics of endpoints and gateways, in one trace with those of their callers."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.trace import SpanKind, StatusCode

from ai_factory import Factory
from ai_support import LOOPBACK, PATIENCE, key_store
from gateway_support import World, world
from onym.ai import Effects
from onym.ai.credentials import StaticCredentials
from onym.ai.endpoint import Endpoint
from onym.errors import InvocationError
from onym.uri.secret import Secret
from support import holds_a_token
from telemetry_support import (
    BODY,
    CALL,
    CALLER,
    QUERY,
    TOKEN,
    Node,
    Seen,
    Tokens,
    above,
    said,
    served,
    traces,
)


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    """A factory that reports nothing."""
    with served(tmp_path_factory.mktemp("quiet"), None) as found:
        yield found


# -- endpoints -------------------------------------------------------------------------------------


def test_the_trace_goes_from_the_client_into_the_function(tmp_path: Path, seen: Seen) -> None:
    with served(tmp_path, seen.telemetry) as factory, factory.client(telemetry=seen.telemetry) as client:
        client.invoke(factory.uri("/tool/echo"), {"text": BODY})
    assert seen.tree() == [
        (
            "client",
            "invoke",
            [
                CALL[0],
                ("client", "exchange", [("endpoint", "exchange", [("endpoint", "invoke", [])])]),
                CALL[2],
            ],
        )
    ]
    assert len(traces(seen)) == 1
    server = seen.one("exchange", "endpoint")
    assert server.kind is SpanKind.SERVER
    assert dict(server.attributes or {}) == {
        "aiip.role": "endpoint",
        "aiip.authority": factory.authority,
        "aiip.path_hash": said(seen.one("exchange"), "path_hash"),
        "aiip.method": "POST",
        "aiip.status": 200,
    }
    # a plain function runs in a thread, and its own spans and events are in the trace all the same
    assert [each.name for each in seen.one("invoke", "endpoint").events] == ["in the function"]
    assert BODY not in seen.everything()


@pytest.mark.parametrize(
    ("path", "arguments", "code", "status"),
    [
        ("/tool/none", {}, "aiip.endpoint-unknown", 404),
        ("/tool/add", {"a": "x", "b": 1}, "aiip.invalid-input", 422),
        ("/tool/fails", {}, "RuntimeError", 500),
        ("/agent/pay", {"amount": 5}, "aiip.policy-denied", 403),
    ],
)
def test_what_an_endpoint_refuses_has_its_code_and_is_a_failure_only_of_its_own(
    tmp_path: Path, seen: Seen, path: str, arguments: dict[str, Any], code: str, status: int
) -> None:
    with (
        served(tmp_path, seen.telemetry) as factory,
        factory.client(allow_effects=list(Effects)) as client,
        pytest.raises(InvocationError),
    ):
        client.invoke(factory.uri(path), arguments)
    server = seen.named("exchange", "endpoint")[-1]
    assert (said(server, "error.type"), said(server, "status")) == (code, status)
    assert server.status.status_code is (StatusCode.ERROR if status >= 500 else StatusCode.UNSET)
    assert "hunter2" not in seen.everything()


def test_a_keyed_function_that_fails_is_told_of_on_both_spans(tmp_path: Path, seen: Seen) -> None:
    with served(tmp_path, seen.telemetry) as factory, factory.client() as client:
        with pytest.raises(InvocationError):
            client.invoke(factory.uri("/agent/breaks"))
        for _ in range(2):
            client.invoke(factory.uri("/agent/note"), {"text": "once"}, idempotency_key="key-1")
    assert BODY not in seen.everything()
    first = seen.named("invoke", "endpoint")[0]
    assert first.status.status_code is StatusCode.ERROR
    servers = [each for each in seen.named("exchange", "endpoint") if said(each, "method") == "POST"]
    codes = [said(each, "error.type") for each in servers]
    assert codes == ["RuntimeError", None, None]
    labels = {"aiip.authority": factory.authority, "aiip.replay.kind": "idempotency"}
    assert seen.counted("aiip.replay.hits") == [(labels, 1)]


@pytest.mark.requirement("onym-telemetry-c")
def test_a_token_is_verified_in_a_span_that_does_not_show_it(tmp_path: Path, seen: Seen) -> None:
    with served(tmp_path, seen.telemetry, authorization=Tokens()) as factory:
        for token in (TOKEN, "wrong"):
            with (
                factory.client(
                    telemetry=seen.telemetry,
                    credentials=StaticCredentials(Secret(token), "shop", authority=factory.authority),
                ) as client,
                contextlib.suppress(InvocationError),
            ):
                client.invoke(factory.uri(f"/tool/echo?text={QUERY}"))
    posts = [each for each in seen.named("verify", "endpoint") if said(each, "error.type")]
    assert [said(each, "error.type") for each in posts] == ["aiip.authentication-required"]
    assert len(seen.named("verify", "endpoint")) == 2
    labels = {
        "aiip.role": "endpoint",
        "aiip.authority": factory.authority,
        "error.type": "aiip.authentication-required",
    }
    assert (labels, 1) in seen.counted("aiip.verify.failures")
    everything = seen.everything()
    for secret in (TOKEN, QUERY, "Bearer", "/tool/echo"):
        assert secret not in everything
    assert not holds_a_token(everything)


def test_a_servers_own_trace_goes_before_that_of_the_caller(tmp_path: Path, seen: Seen) -> None:
    inner = seen.telemetry.observe_request("endpoint", "GET", None)
    with seen.tracers.get_tracer("mine").start_as_current_span("mine") as mine:
        stage = seen.telemetry.observe_request("endpoint", "BREW", f"00-{'a' * 32}-{'b' * 16}-01")
    stage.end()
    inner.end()
    brewed, alone = seen.named("exchange", "endpoint")
    assert above(brewed) == mine.get_span_context().span_id
    assert said(brewed, "method") == "_OTHER"
    assert alone.parent is None


def test_a_request_that_nobody_waits_for_any_more_is_no_failure(seen: Seen) -> None:
    async def send(message: Any) -> None:
        raise AssertionError(message)

    with seen.telemetry.observe_request("endpoint", "POST", None) as stage:
        stage.observe_send(send)
    span = seen.one("exchange", "endpoint")
    assert said(span, "abandoned") is True
    assert span.status.status_code is StatusCode.UNSET


def test_names_that_a_function_asks_for_are_not_its_endpoints(quiet: Factory, seen: Seen) -> None:
    with (
        quiet.client(telemetry=seen.telemetry) as client,
        seen.telemetry.observe_step("invoke", "own.example"),
    ):
        client.resolve(quiet.uri("/tool/echo"))
        client.describe(quiet.uri("/tool/echo"))
    assert said(seen.one("invoke", "endpoint"), "authority") == "own.example"
    assert said(seen.one("invoke"), "authority") == quiet.authority


def test_a_malformed_traceparent_begins_a_trace_of_our_own(seen: Seen) -> None:
    for value in ("", "00-0-0-00", f"00-{'0' * 32}-{'b' * 16}-01", "x" * 9000):
        seen.telemetry.observe_request("gateway", "GET", value).end()
    assert all(each.parent is None for each in seen.spans)


# -- gateways --------------------------------------------------------------------------------------


@contextlib.contextmanager
def front(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A gateway before an authority, both of which report here."""
    import gateway_support

    real = gateway_support.create_gateway
    monkeypatch.setattr(
        gateway_support, "create_gateway", lambda *given, **how: real(*given, telemetry=seen.telemetry, **how)
    )
    monkeypatch.setattr(
        gateway_support, "Endpoint", lambda *given, **how: Endpoint(*given, telemetry=seen.telemetry, **how)
    )
    with world() as found:
        yield found


INSIDE: Node = ("endpoint", "exchange", [("endpoint", "invoke", [])])


@pytest.mark.requirement("onym-telemetry-c")
def test_one_trace_goes_through_the_gateway_to_the_endpoint(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with front(seen, monkeypatch) as net:
        answer = net.ask(
            "POST", "/tool/add", json.dumps({"a": 1, "b": 2, "note": BODY}).encode(), traceparent=CALLER
        )
        assert answer.status == 200
    assert traces(seen) == {int("a" * 32, 16)}
    described: Node = ("client", "exchange", [("endpoint", "exchange", [])])
    invoked = ("client", "exchange", [INSIDE])
    proof: Node = ("client", "verify", [])
    assert seen.tree() == [("gateway", "exchange", [CALL[0], described, proof, invoked, proof])]
    server = seen.one("exchange", "gateway")
    assert (server.kind, above(server)) == (SpanKind.SERVER, int("b" * 16, 16))
    assert said(server, "authority") == net.authority
    assert said(server, "status") == 200
    assert BODY not in seen.everything()


def test_a_stream_through_the_gateway_is_proved_in_its_trace(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with front(seen, monkeypatch) as net:
        answer = net.ask("POST", "/tool/count", b'{"to": 3}', accept="text/event-stream", traceparent=CALLER)
        assert b"event: receipt" in answer.body
    assert traces(seen) == {int("a" * 32, 16)}
    ((_, _, parts),) = seen.tree()
    assert [each[1] for each in parts] == ["resolve", "exchange", "verify", "exchange", "verify"]


def test_what_the_gateway_refuses_has_its_code_and_no_name_that_did_not_resolve(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with front(seen, monkeypatch) as net:
        assert net.ask("GET", "//not-here").status >= 400
        assert net.ask("GET", f"/gateway/stranger.test/x?q={QUERY}").status >= 500
        assert net.ask("POST", "/agent/forklift", b'{"to": "x"}').status == 403
        assert net.at("GET", "/").status == 200
    servers = seen.named("exchange", "gateway")
    assert [said(each, "error.type") for each in servers] == [
        "aiip.upstream-unreachable",
        "aiip.policy-denied",
    ]
    assert [each.status.status_code for each in servers] == [StatusCode.ERROR, StatusCode.UNSET]
    assert [said(each, "authority") for each in servers] == [None, net.authority]
    for secret in (QUERY, "stranger"):
        assert secret not in seen.everything()


# -- asked for by the environment ----------------------------------------------------------------


_SERVED = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from onym.ai import Endpoint

tracers = TracerProvider()
log = open("spans.txt", "w")
told = ConsoleSpanExporter(out=log, formatter=lambda each: each.name + " ")
tracers.add_span_processor(SimpleSpanProcessor(told))
trace.set_tracer_provider(tracers)
app = Endpoint("factory.test", keys="keys")
"""


def test_the_command_that_serves_reports_where_the_environment_asks(tmp_path: Path) -> None:
    key_store(tmp_path)
    (tmp_path / "served.py").write_text(_SERVED)
    serving = subprocess.Popen(
        [sys.executable, "-m", "onym", "ai", "serve", "served:app", "--port", "0", "--json"],
        cwd=tmp_path,
        env={**os.environ, "ONYM_TELEMETRY": "1"},
        stdout=subprocess.PIPE,
    )
    with serving:
        assert serving.stdout is not None
        port = json.loads(serving.stdout.readline())["address"].rpartition(":")[2]
        line = http.client.HTTPConnection(LOOPBACK, int(port), timeout=PATIENCE)
        line.request("GET", "/.well-known/aiip/v1/factory.test/none", headers={"Host": "factory.test"})
        assert line.getresponse().status == 404
        line.close()
        serving.terminate()
        serving.wait(PATIENCE)
    assert (tmp_path / "spans.txt").read_text().split() == ["aiip.exchange"]


def test_the_gateways_paths_are_hashed_as_in_its_audit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONYM_TELEMETRY", "1")
    seen = Seen()
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: seen.tracers)
    with world(audit_key=Secret("k" * 32)) as net:
        net.ask("POST", "/tool/add", b'{"a": 1, "b": 2}')
        logged = net.lines()[-1]["path"]
    assert said(seen.one("exchange", "gateway"), "path_hash") == logged


def test_tasks_are_counted_by_state_and_requests_to_them_are_a_stage(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with front(seen, monkeypatch) as net:

        @net.endpoint.app.resource("/tool/failing-task", task=True)
        async def fail() -> str:
            raise ValueError(BODY)

        begun = net.ask("POST", "/tool/failing-task", b"", Prefer="respond-async")
        assert begun.status == 202
        place = begun.headers["location"].removeprefix(net.base)
        while "result" not in net.at("GET", place, Prefer="wait=20").json():
            pass
        absent = net.at("GET", place.partition("?")[0])
        assert absent.status == 404
    states = {point.attributes["aiip.task.state"]: point.value for point in seen.points("aiip.tasks")}
    assert states == {"working": 1, "failed": 1}
    stages = seen.named("task", "gateway")
    assert said(stages[-1], "error.type") == "aiip.task-not-found"
    task = place.partition("task=")[2].partition("&")[0]
    assert task not in seen.everything()
    assert BODY not in seen.everything()
