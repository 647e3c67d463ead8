"""A call as a generator: retries, deadlines and errors, with no network and a clock that is told the time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from client_support import Played, play, reply
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailed,
    CredentialError,
    DeadlineExceeded,
    MalformedResponseError,
    NetError,
    OnymError,
    OverloadedError,
    PolicyError,
    ProtocolError,
    QuotaError,
    RateLimitError,
    RedirectRefused,
    ResolveError,
    ServerError,
    TLSError,
)
from onym.llm.flow import SYSTEM_CLOCK, call_flow, models_flow, stream_flow
from onym.llm.planner import Planner, PlannerSettings
from onym.llm.providers import ProviderTable
from onym.net.messages import Reply
from onym.net.policy import Policy
from onym.testing import FakeClock
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret
from support import as_subtests

URI = "llm://me:sk-test-key-0123456789@llm.example:8443/m"
JSON = [("content-type", "application/json"), ("x-request-id", "r-1")]
HI = {"model": "m", "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
GOOD = reply(200, json.dumps(HI).encode(), JSON)
BUSY = reply(503, b"{}", JSON)


def planner(query: str = "", **settings: Any) -> Planner:
    given = {"policy": Policy.trusted(), "providers": ProviderTable.builtin(), **settings}
    return Planner(LLMURI.parse(URI + query), PlannerSettings(**given))


def chat(
    *answers: Reply | OnymError, query: str = "", clock: FakeClock | None = None, takes: float = 0.0
) -> Played:
    clock = clock or FakeClock()
    plan = planner(query).chat("Hello", {})
    return play(call_flow(plan, clock), answers, clock, takes=takes)


def test_a_good_answer_ends_the_call() -> None:
    played = chat(GOOD)
    assert played.value.text == "Hi"
    assert played.waits == []
    (send,) = played.sends
    assert (send.timeout, send.stream) == (600.0, False)
    assert json.loads(send.request.body) == {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    assert (send.request.method, send.request.target) == ("POST", "/v1/chat/completions")
    assert str(send.request.origin) == "https://llm.example:8443"


@pytest.mark.requirement("llm-5.1-a", "onym-key-d")
def test_the_key_goes_out_as_a_secret_over_https() -> None:
    (send,) = chat(GOOD).sends
    assert send.request.origin.scheme == "https"
    headers = dict(send.request.headers)
    assert headers["Authorization"] == Secret("Bearer sk-test-key-0123456789")
    assert "sk-test" not in repr(send)
    assert send.request.credential is not None
    assert "sk-test" not in send.request.credential


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_tried_again(status: int) -> None:
    played = chat(reply(status, b"{}"), reply(status, b"{}"), GOOD)
    assert played.value.text == "Hi"
    assert played.waits == [0.5, 1.0]


@pytest.mark.parametrize(
    "error", [ConnectionFailed("no connection"), ResolveError("no address")], ids=["connection", "name"]
)
def test_a_lost_connection_is_tried_again(error: NetError) -> None:
    assert chat(error, GOOD).value.text == "Hi"


@as_subtests(
    ("answer", "kind"),
    [
        (reply(400, b"{}"), BadRequestError),
        (reply(401, b"{}"), AuthenticationError),
        (reply(402, b"{}"), QuotaError),
        (reply(429, b'{"error":{"code":"insufficient_quota"}}'), QuotaError),
        (reply(200, b"{}"), MalformedResponseError),
        (PolicyError("no", reason="private"), PolicyError),
        (TLSError("no"), TLSError),
        (DeadlineExceeded("late"), DeadlineExceeded),
        (RedirectRefused("no"), RedirectRefused),
        (ProtocolError("no"), ProtocolError),
    ],
)
def test_what_waiting_will_not_mend_is_raised_at_once(answer: Any, kind: type[OnymError]) -> None:
    played = chat(answer)
    assert type(played.error) is kind
    assert played.waits == []


@pytest.mark.requirement("onym-call-b")
@pytest.mark.parametrize(("query", "attempts"), [("", 3), ("?retries=0", 1), ("?retries=4", 5)])
def test_retries_counts_the_attempts_after_the_first(query: str, attempts: int) -> None:
    played = chat(*[BUSY] * attempts, query=query)
    assert isinstance(played.error, OverloadedError)
    assert len(played.sends) == attempts
    assert played.waits == [0.5, 1.0, 2.0, 4.0][: attempts - 1]


def test_the_last_failure_is_the_one_that_is_raised() -> None:
    played = chat(BUSY, ConnectionFailed("gone"), reply(500, b"{}"))
    assert type(played.error) is ServerError


def test_waits_are_chance_below_a_bound_that_doubles_to_a_cap() -> None:
    assert chat(*[BUSY] * 9, query="?retries=8").waits == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]
    assert chat(BUSY, BUSY, GOOD, clock=FakeClock(chance=0.25)).waits == [0.125, 0.25]
    assert chat(BUSY, GOOD, clock=FakeClock(chance=0.0)).waits == [0.0]


def test_a_server_that_says_when_to_come_back_is_not_asked_sooner() -> None:
    played = chat(reply(429, b"{}", [("retry-after", "20")]), GOOD)
    assert played.waits == [20.0]
    date = [("retry-after", "Tue, 14 Nov 2023 22:13:30 GMT")]
    assert chat(reply(503, b"{}", date), GOOD, clock=FakeClock(now=1_700_000_000)).waits == [10.0]


def test_a_server_that_says_to_come_back_too_late_is_not_waited_for() -> None:
    played = chat(reply(429, b"{}", [("retry-after", "30")]), query="?timeout=10000")
    assert isinstance(played.error, RateLimitError)
    assert played.error.retry_after == 30.0
    assert played.waits == []


@pytest.mark.requirement("onym-call-b")
def test_the_timeout_bounds_all_attempts_together() -> None:
    played = chat(BUSY, BUSY, GOOD, query="?timeout=10000&retries=5", takes=3.0)
    assert [send.timeout for send in played.sends] == [10.0, 6.5, 2.5]
    played = chat(BUSY, BUSY, query="?timeout=7400&retries=5", takes=3.0)
    assert isinstance(played.error, OverloadedError)
    assert [send.timeout for send in played.sends] == pytest.approx([7.4, 3.9])


def test_time_that_runs_out_during_a_wait_ends_the_call() -> None:
    clock = FakeClock()
    flow = call_flow(planner("?timeout=1000").chat("Hello", {}), clock)
    flow.send(None)
    wait = flow.send(BUSY)
    assert wait.seconds == 0.5  # type: ignore[union-attr]
    clock.advance(2.0)
    with pytest.raises(OverloadedError):
        flow.send(None)


@pytest.mark.requirement("onym-call-c")
def test_a_stream_is_handed_over_once_it_has_begun() -> None:
    clock = FakeClock()
    plan = planner().chat("Hello", {}, stream=True)
    begun = reply(200, b"", [("content-type", "text/event-stream"), ("x-request-id", "r-2")])
    played = play(stream_flow(plan, clock), [BUSY, begun], clock)
    assert played.value.reply is begun
    assert all(send.stream for send in played.sends)
    assert len(played.sends) == 2
    assert played.value.decoder.feed(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')


def test_an_error_knows_endpoint_and_request_and_no_key() -> None:
    body = b'{"error":{"message":"bad key sk-test-key-0123456789","code":"invalid_api_key"}}'
    error = chat(reply(401, body, JSON)).error
    assert isinstance(error, AuthenticationError)
    assert (error.endpoint, error.request_id) == ("llm://llm.example:8443/m", "r-1")
    assert "sk-test-key" not in str(error) + repr(error.as_dict())


def test_vectors_are_fetched_by_a_flow_of_their_own() -> None:
    clock = FakeClock()
    plan = planner().plan_inputs("embed", ("a", "b"), {}, expected=2)
    data = b'{"data":[{"embedding":[1.0]},{"embedding":[2.0]}]}'
    played = play(call_flow(plan, clock), [BUSY, reply(200, data)], clock)
    assert played.value.vectors == ((1.0,), (2.0,))
    assert played.sends[0].request.target == "/v1/embeddings"
    assert json.loads(played.sends[0].request.body) == {"model": "m", "input": ["a", "b"]}


@pytest.mark.requirement("llm-5.1-b")
def test_models_are_listed_by_a_get_of_the_providers_route_and_never_of_the_uri() -> None:
    clock = FakeClock()
    played = play(models_flow(planner().models({}), clock), [reply(200, b'[{"id":"a"}]')], clock)
    assert [model.id for model in played.value] == ["a"]
    (send,) = played.sends
    assert (send.request.method, send.request.target, send.request.body) == ("GET", "/v1/models", b"")
    assert "Content-Type" not in dict(send.request.headers)


def test_a_provider_that_wants_a_key_is_not_asked_without_one() -> None:
    settings = PlannerSettings(policy=Policy.trusted(), providers=ProviderTable.builtin())
    plan = Planner(LLMURI.parse("llm://openai/gpt-4.1"), settings).chat("Hello", {})
    played = play(call_flow(plan, FakeClock()), [], FakeClock())
    assert isinstance(played.error, CredentialError)
    assert "OPENAI_API_KEY" in str(played.error)


def test_the_real_clock_is_the_machines() -> None:
    assert SYSTEM_CLOCK.monotonic() <= SYSTEM_CLOCK.monotonic()
    assert SYSTEM_CLOCK.time() > 1_700_000_000
    assert 0.0 <= SYSTEM_CLOCK.random() < 1.0
