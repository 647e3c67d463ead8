"""The flows of a batch API, driven by hand: what is sent, how long is waited, when it ends."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import (
    BadRequestError,
    ConnectionFailed,
    DeadlineExceeded,
    MalformedResponseError,
    PolicyError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    ResolveError,
    ServerError,
    TLSError,
)
from onym.llm.batch._provider_flow import (
    BatchClient,
    BatchSearch,
    call_api,
    create_batch,
    is_rejected,
    search_batches,
    watch_batches,
)
from onym.llm.client import build_setup, wrap_secret
from onym.llm.config import Config
from onym.llm.dialects import Exchange
from onym.llm.dialects.anthropic_messages import decode_chat as decode_message
from onym.llm.dialects.batch_api import CHAT, MESSAGES
from onym.llm.dialects.openai_chat import decode_chat
from onym.net.messages import ConnectionInfo, Headers, Reply, Send, Wait
from onym.net.policy import Policy
from onym.testing import FakeClock
from onym.uri.secret import Secret
from support import as_subtests

APIS = {"openai": CHAT, "anthropic": MESSAGES}


def desk(name="openai", *, retries=2, stopped=lambda: False, query=""):
    model = {"openai": "gpt-4o", "anthropic": "claude-haiku-4-5"}[name]
    settled = build_setup(
        wrap_secret(f"llm://:some-key@{name}/{model}{query}"), policy=Policy.trusted(), config=Config(),
        key=None, providers=None, environ={}, on_unsupported="error", system_filter=None,
    )  # fmt: skip
    endpoint = settled.planner.endpoint
    return BatchClient(
        api=APIS[name], endpoint=endpoint, exchange=Exchange(endpoint="e"), clock=FakeClock(),
        retries=retries, stopped=stopped,
    )  # fmt: skip


def reply(body, status=200, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Reply(status, Headers(pairs), data, None, ConnectionInfo("127.0.0.1"))


def drive(flow, answers):
    """Drive a flow with these answers; returns its result, the requests and the waits."""
    answers, requests, waits = iter(answers), [], []
    step = None
    while True:
        try:
            if step is None:
                step = flow.send(None)
            elif isinstance(step, Wait):
                waits.append(step.seconds)
                step = flow.send(None)
            else:
                assert isinstance(step, Send)
                requests.append(step.request)
                answer = next(answers)
                step = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
        except StopIteration as stop:
            return stop.value, requests, waits


def going(name="b", status="in_progress", **more):
    return reply({"id": name, "status": status}, **more)


def test_the_waits_between_looks_grow_up_to_a_minute():
    seen = []
    answers = [going()] * 9 + [going(status="completed")]
    batch, requests, waits = drive(watch_batches(desk(), ["b"], seen.append, 5.0), answers)
    assert batch.ending == "completed"
    assert len(seen) == 10
    assert waits[:3] == [5.0, 7.5, 11.25]
    assert waits == sorted(waits)
    assert waits[-1] == 60.0
    assert {request.target for request in requests} == {"/v1/batches/b"}
    assert {request.method for request in requests} == {"GET"}


def test_a_look_is_not_sooner_than_the_server_asks_for():
    answers = [
        going(retry_after="90"),
        reply({"error": {}}, 429, retry_after="70"),
        going(status="completed"),
    ]
    _, _, waits = drive(watch_batches(desk(), ["b"], print, 5.0), answers)
    assert waits == [90.0, 70.0]


def test_no_server_sends_a_run_to_sleep_for_ever():
    at = desk(retries=1)
    ended = going(status="completed")
    _, _, waits = drive(watch_batches(at, ["b"], lambda _: None, 5.0), [going(retry_after="9" * 12), ended])
    assert waits == [3600.0]
    _, _, waits = drive(
        call_api(at, CHAT.retrieve("b"), at.api.decode_batch), [reply({}, 429, retry_after="9" * 12), ended]
    )
    assert waits == [3600.0]


def test_all_batches_are_looked_at_before_a_wait_and_the_first_that_ended_is_told():
    answers = [going("a"), going("b"), going("a"), going("b", "failed")]
    batch, requests, waits = drive(watch_batches(desk(), ["a", "b"], lambda _: None, 5.0), answers)
    assert (batch.id, batch.ending, waits) == ("b", "failed", [5.0])
    assert [request.target[-1] for request in requests] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("failure", [
    ConnectionFailed("x"), DeadlineExceeded("x"), reply(b"<html>"), going("other"), reply({}, 500),
    reply({"error": {"message": "x"}}),
])  # fmt: skip
def test_looks_that_bring_no_news_are_repeated_eleven_times_and_then_it_fails(failure):
    good = [failure] * 10 + [going()] + [failure] * 10 + [going(status="completed")]
    batch, _, _ = drive(watch_batches(desk(), ["b"], lambda _: None, 5.0), good)
    assert batch.ending == "completed"
    with pytest.raises((ConnectionFailed, DeadlineExceeded, MalformedResponseError, ServerError)):
        drive(watch_batches(desk(), ["b"], lambda _: None, 5.0), [failure] * 12)


def test_nobody_looks_any_more_once_the_run_is_stopped():
    flow = watch_batches(desk(stopped=lambda: True), ["b"], print, 5.0)
    assert drive(flow, []) == (None, [], [])


def test_a_question_is_repeated_with_waits_that_the_server_may_lengthen():
    answers = [reply({}, 500), reply({}, 429, retry_after="40"), going()]
    found, requests, waits = drive(call_api(desk(), CHAT.retrieve("b"), desk().api.decode_batch), answers)
    assert found.id == "b"
    assert len(requests) == 3
    assert waits == [0.5, 40.0]


def test_a_question_is_given_up_after_its_retries_or_when_waiting_does_not_help():
    with pytest.raises(ServerError):
        drive(call_api(desk(), CHAT.retrieve("b"), desk().api.decode_batch), [reply({}, 500)] * 3)
    for status in (400, 409):
        with pytest.raises(ProviderError) as caught:
            drive(call_api(desk(), CHAT.cancel("b"), desk().api.decode_batch), [reply({}, status)])
        assert caught.value.status == status


def test_a_question_is_dropped_where_the_run_was_stopped_meanwhile():
    found, requests, _ = drive(
        call_api(desk(stopped=lambda: True), CHAT.retrieve("b"), desk().api.decode_batch), [reply({}, 500)]
    )
    assert (found, len(requests)) == (None, 1)


def looking(*found):
    """A search that finds these, one after the other."""
    left = list(found)

    def look():
        yield Wait(1000)
        return left.pop(0)

    return look


CREATE = CHAT.create("t", [], "f")


@pytest.mark.parametrize("dark", [
    ConnectionFailed("x"), DeadlineExceeded("x"), ProtocolError("x"), reply({}, 500), reply({}, 409),
    reply(b"<html>"), reply({"id": "../x"}),
])  # fmt: skip
def test_after_a_creation_in_the_dark_the_list_is_asked_before_another(dark):
    found, requests, waits = drive(create_batch(desk(), CREATE, looking(BatchSearch("b"))), [dark])
    assert (found, len(requests)) == (BatchSearch("b"), 1)
    assert 1000 in waits
    found, requests, waits = drive(create_batch(desk(), CREATE, looking(BatchSearch())), [dark, going("b2")])
    assert (found, len(requests)) == (BatchSearch("b2"), 2)
    found, requests, _ = drive(create_batch(desk(), CREATE, looking(BatchSearch(None, ("m",)))), [dark])
    assert (found, len(requests)) == (BatchSearch(None, ("m",)), 1)


@pytest.mark.parametrize("clear", [reply({}, 429), ResolveError("x")])
def test_after_a_refusal_that_passes_it_is_created_without_a_search(clear):
    found, requests, waits = drive(create_batch(desk(), CREATE, looking()), [clear, going("b")])
    assert (found, len(requests), waits) == (BatchSearch("b"), 2, [0.5])


def test_a_creation_ends_with_its_retries_or_a_refusal():
    with pytest.raises(RateLimitError):
        drive(create_batch(desk(), CREATE, looking()), [reply({}, 429)] * 3)
    with pytest.raises(BadRequestError):
        drive(create_batch(desk(), CREATE, looking()), [reply({}, 400)])
    with pytest.raises(ServerError):
        drive(create_batch(desk(), CREATE, looking(BatchSearch(), BatchSearch())), [reply({}, 500)] * 3)


def test_a_creation_in_the_dark_is_left_so_where_the_run_is_stopped():
    found, requests, _ = drive(create_batch(desk(stopped=lambda: True), CREATE, looking()), [reply({}, 500)])
    assert (found, len(requests)) == (None, 1)


def unsent(failure):
    """As the transport tells of what went wrong before there was a connection."""
    failure.sent = False
    return failure


@as_subtests(("failure", "surely"), [
    (PolicyError("x", reason="x"), True), (TLSError("x"), False), (ResolveError("x"), True),
    (unsent(TLSError("x")), True), (unsent(ConnectionFailed("x")), True), (ConnectionFailed("x"), False),
    (DeadlineExceeded("x"), False), (ProtocolError("x"), False),
    (BadRequestError("x", status=422), True), (RateLimitError("x", status=429), True),
    (ServerError("x", status=500), False), (ServerError("x", status=408), False),
    (MalformedResponseError("x", status=200), False), (ValueError(), False),
])  # fmt: skip
def test_only_what_says_no_or_was_not_sent_is_a_refusal(failure, surely):
    assert is_rejected(failure) is surely


def test_a_marker_is_found_on_any_page():
    def page(*names, more):
        records = [{"id": name, "metadata": {"onym": f"m-{name}"}} for name in names]
        return reply({"data": [*records, {"id": "z", "metadata": None}], "has_more": more})

    answers = [page("a", "b", more=True), page("c", more=False)]
    found, requests, _ = drive(search_batches(desk(), "m-c", 5, 0.0, ()), answers)
    assert found == BatchSearch("c")
    assert [request.target for request in requests] == [
        "/v1/batches?limit=100", "/v1/batches?limit=100&after=z",
    ]  # fmt: skip
    found, _, _ = drive(search_batches(desk(), "m-x", 5, 0.0, ()), [page("a", more=False)])
    assert found == BatchSearch()


def test_without_markers_batches_of_the_same_size_and_time_may_be_it():
    def record(name, count, created):
        counts = {"processing": count, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        return {"id": name, "request_counts": counts, "created_at": created}

    since = 1_796_000_000.0
    records = [
        record("right", 5, "2026-12-01T00:00:00Z"),
        record("known", 5, "2026-12-01T00:00:00Z"),
        record("dateless", 5, None),
        record("size", 6, "2026-12-01T00:00:00Z"),
        {"id": "countless"},
        record("old", 5, "2026-11-01T00:00:00Z"),
    ]
    answer = reply({"data": records, "has_more": True, "last_id": "old"})
    found, requests, _ = drive(search_batches(desk("anthropic"), "m", 5, since, ["known"]), [answer])
    assert found == BatchSearch(None, ("right", "dateless"))
    # the list is ordered: what comes after an old one is older
    assert [request.target for request in requests] == ["/v1/messages/batches?limit=1000"]


def test_a_search_is_dropped_where_the_run_was_stopped_meanwhile():
    found, _, _ = drive(search_batches(desk(stopped=lambda: True), "m", 5, 0.0, ()), [reply({}, 500)])
    assert found is None


def test_requests_bear_the_rows_headers_and_path():
    _, (request,), _ = drive(call_api(desk(), CHAT.create("t", [], "f"), desk().api.decode_batch), [going()])
    headers = {name.lower(): value for name, value in request.headers}
    assert headers["authorization"].reveal() == "Bearer some-key"
    assert (headers["content-type"], headers["accept"]) == ("application/json", "application/json")
    assert request.credential is not None
    claude = desk("anthropic")
    _, (request,), _ = drive(call_api(claude, MESSAGES.retrieve("b"), claude.api.decode_batch), [going()])
    headers = {name.lower(): value for name, value in request.headers}
    assert headers["anthropic-version"] == "2023-06-01"
    assert "content-type" not in headers


@pytest.mark.parametrize("date", [
    None, 7, "x", "2026-11-21T20:00:00", "9999-99-99T00:00:00Z", "0001-01-01T00:00:00+23:59",
])  # fmt: skip
def test_dates_that_are_none_are_left_out(date):
    body = json.dumps({"id": "b", "created_at": date}).encode()
    created = MESSAGES.decode_batch(200, Headers(), body, Exchange()).created
    assert created is None or isinstance(created, float)
    assert CHAT.decode_batch(200, Headers(), body, Exchange()).created in {None, 7.0}


def test_an_answer_that_bears_the_key_in_its_code_or_text_does_not_show_it():
    exchange = Exchange(endpoint="e", secrets=(Secret("hidden-key-0123456789"),))
    error = {"code": "hidden-key-0123456789", "message": "with hidden-key-0123456789\x1b[31m"}
    line = json.dumps({"custom_id": "a", "response": None, "error": error}).encode()
    found = CHAT.decode_line(line, decode_chat, exchange).outcome
    assert "hidden" not in repr(found.as_dict()) + str(found)
    assert "\x1b" not in str(found)


def test_an_answer_in_a_batch_that_is_none_is_the_error_of_its_row():
    line = json.dumps({"custom_id": "a", "result": {"type": "succeeded", "message": {"content": 7}}}).encode()
    assert isinstance(MESSAGES.decode_line(line, decode_message, Exchange()).outcome, MalformedResponseError)
    line = json.dumps({"custom_id": "a", "result": {"type": "succeeded"}}).encode()
    assert isinstance(MESSAGES.decode_line(line, decode_message, Exchange()).outcome, MalformedResponseError)
    with pytest.raises(MalformedResponseError):
        MESSAGES.decode_upload(200, Headers(), b"{}", Exchange())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["id", "data", "status", "request_counts", "metadata", "errors", "onym", "created_at",
                         "processing_status", "has_more", "last_id", "total", "line", "code", "message"]),
        inner, max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip
BODIES = JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=64)


@given(
    body=JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=64),
    name=st.sampled_from(list(APIS)),
)
def test_any_answer_is_a_batch_a_list_or_a_typed_error(body, name):
    exchange = Exchange(endpoint="e")
    for decode in (APIS[name].decode_batch, APIS[name].decode_list, APIS[name].decode_upload):
        with suppress(ProviderError):
            assert decode(200, Headers(), body, exchange) is not None


@given(line=BODIES, name=st.sampled_from(list(APIS)))
def test_any_line_of_results_is_an_answer_or_none(line, name):
    def decode(status, headers, body, exchange):
        return (status, body)

    wrapped = b'{"custom_id": "a", "response": %s, "result": %s}' % (line, line)
    for item in (line, wrapped):
        found = APIS[name].decode_line(item, decode, Exchange(endpoint="e"))
        assert found is None or isinstance(found.name, str)
