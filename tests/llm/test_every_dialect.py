"""Every dialect's answers and failures: the same situation, the same typed error, whoever serves.

The table is `dialect_support`. Each answer comes from a real server to both clients, which must agree.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_support import play
from client_support import reply as answered
from dialect_server import Served, check_sound, headers, paths, with_value
from dialect_support import AT, CASES, JSON, KEY, ONE, REQUEST_ID, Case, dumps
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContentFilterError,
    MalformedResponseError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RateLimitError,
    RedirectRefused,
    ResponseTooLarge,
    ServerError,
    UsageError,
)
from onym.llm.dialects import Dialect, WireSpec, get_dialect
from onym.llm.flow import call_flow
from onym.llm.types import Completion, Embeddings, Message, ModelInfo, ModelPage, Request, ToolCall
from onym.testing import FakeClock
from support import as_subtests

EACH = pytest.mark.parametrize("name", sorted(CASES))
PAGE = b"<!doctype html><html><body><h1>Sign in</h1></body></html>"
#: by status: what it means where no typed code says more, and whether the call is worth another try
STATUSES: dict[int, tuple[type[ProviderError], bool]] = {
    400: (BadRequestError, False),
    401: (AuthenticationError, False),
    402: (QuotaError, False),
    403: (PermissionDeniedError, False),
    404: (NotFoundError, False),
    408: (OverloadedError, True),
    409: (OverloadedError, True),
    413: (BadRequestError, False),
    415: (BadRequestError, False),
    422: (BadRequestError, False),
    429: (RateLimitError, True),
    500: (ServerError, True),
    502: (ServerError, True),
    503: (OverloadedError, True),
    504: (ServerError, True),
    529: (OverloadedError, True),
}


@pytest.fixture(scope="module", params=sorted(CASES))
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with Served(request.param) as server:
        yield server


def of(name: str) -> tuple[Case, Dialect]:
    return CASES[name], get_dialect(name)


def read(dialect: Dialect, body: bytes) -> Completion | ProviderError:
    """The completion, or the typed error: nothing else may come of any body."""
    try:
        return dialect.decode_chat(200, headers(JSON), body, AT)
    except ProviderError as error:
        found = error
    assert (found.endpoint, found.request_id) == (AT.endpoint, REQUEST_ID)
    return found


# -- statuses


@pytest.mark.requirement("onym-answer-b", "onym-call-e")
@as_subtests("status", STATUSES)
def test_a_status_means_the_same_in_every_dialect(served: Served, status: int) -> None:
    kind, retryable = STATUSES[status]
    body = dumps(served.case.refusal("no", status))
    for call in (served.chat, served.stream):
        error = call(body, media=JSON, status=status, more={"retry-after": "7"}).failure
        assert type(error) is kind
        assert error.retryable is retryable
        assert error.retry_after == 7.0
        assert (error.endpoint, error.status) == (served.endpoint, status)
        assert error.request_id == REQUEST_ID
        assert f"(HTTP {status}): no" in str(error)


@EACH
@pytest.mark.requirement("onym-answer-b", "onym-call-b")
@as_subtests("status", STATUSES)
def test_what_waiting_may_mend_is_tried_again_and_nothing_else_is(name: str, status: int) -> None:
    with Served(name, retries=1) as served:
        plan = served.client.explain("Hi")
    case, clock = CASES[name], FakeClock()
    refusal = answered(status, dumps(case.refusal("no", status)), [("Retry-After", "3")])
    again = STATUSES[status][1]
    replies = [refusal, answered(200, case.body)] if again else [refusal]
    played = play(call_flow(plan, clock), replies, clock)
    assert len(played.sends) == len(replies)
    assert (played.error is None) is again
    if again:
        assert played.value.usage == case.usage
        assert played.waits[0] >= 3
    else:
        assert played.waits == []


@pytest.mark.requirement("onym-answer-b", "onym-call-e")
def test_a_typed_code_says_more_than_the_status(served: Served) -> None:
    status, body, kind = served.case.typed
    error = served.chat(dumps(body), status=status).failure
    assert type(error) is kind
    assert (error.endpoint, error.status) == (served.endpoint, status)
    assert error.request_id == REQUEST_ID


@pytest.mark.requirement("onym-answer-b", "onym-call-e")
@as_subtests(
    "body",
    [
        b"",
        PAGE,
        b"oops",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"{}",
        b"[" * 100_000,
        b'{"error":' * 100_000,
    ],
    ids=[
        "nothing",
        "a page",
        "text",
        "no text",
        "a list",
        "null",
        "a number",
        "a text",
        "no member",
        "deep",
        "deeper",
    ],
)
def test_an_error_body_of_any_kind_leaves_the_status_its_meaning(served: Served, body: bytes) -> None:
    media = "text/html" if body == PAGE else JSON
    for status in (401, 429, 502, 503):
        error = served.chat(body, status=status, media=media).failure
        assert type(error) is STATUSES[status][0]
        assert error.endpoint == served.endpoint
        assert error.request_id == REQUEST_ID
        assert "Sign in" not in str(error)
        assert ("HTML" in str(error)) is (body == PAGE)


@pytest.mark.requirement("onym-key-c", "onym-call-e")
@as_subtests("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_in_every_dialect(served: Served, status: int) -> None:
    before = len(served.fake.requests)
    error = served.chat(b"", status=status, more={"location": "http://127.0.0.1:1/"}).failure
    assert type(error) is RedirectRefused
    assert error.endpoint is not None
    assert len(served.fake.requests) == before + 2


@EACH
@pytest.mark.requirement("onym-answer-b", "onym-read-f")
def test_an_error_body_with_a_member_of_the_wrong_kind_is_still_that_error(name: str) -> None:
    case, dialect = of(name)
    for status, body, _ in ((500, case.refusal("no", 500), None), case.typed):
        for path in [(), *paths(body)]:
            for odd in ODD:
                error = dialect.decode_error(status, headers(JSON), dumps(with_value(body, path, odd)), AT)
                assert isinstance(error, ProviderError)
                assert (error.endpoint, error.request_id) == (AT.endpoint, REQUEST_ID)
                assert error.retry_after is None or error.retry_after >= 0
                for told in (error.provider_code, error.parameter):
                    assert told is None or (type(told) is str and told.isprintable())


@pytest.mark.requirement("onym-secret-a", "llm-10.1-b", "onym-call-e")
def test_a_key_that_the_server_says_again_is_not_shown(served: Served) -> None:
    case = served.case
    refusal = case.refusal(f"the key {KEY} is no good, \x1b[31mreally\nnot", 401)
    bodies: list[Any] = [refusal]
    for path in paths(refusal):
        bodies += [with_value(refusal, path, value) for value in (KEY, [KEY], {KEY: KEY}, f"x{KEY}x")]
    for body in bodies:
        for status in (200, 400, 401, 503):
            out = served.chat(dumps(body), status=status, more={"x-request-id": f"r-{KEY}"})
            if out.error is None:
                continue  # a body whose mark of failure was written over
            error = out.error
            shown = str(error) + repr(error) + repr(error.args) + json.dumps(error.as_dict())
            assert KEY not in shown
            assert "\x1b" not in str(error)
            assert "\n" not in str(error)


@pytest.mark.requirement("onym-answer-b")
def test_what_the_server_says_of_a_failure_is_told_and_cut_short(served: Served) -> None:
    error = served.chat(dumps(served.case.refusal("because " * 1000, 400)), status=400).failure
    assert "because because" in str(error)
    assert len(str(error)) < 1000


# -- answers that are none


@pytest.mark.requirement("onym-answer-a", "onym-call-e")
@as_subtests(
    ("body", "media"),
    [
        (b"", JSON),
        (PAGE, "text/html"),
        (PAGE, JSON),
        (b"oops", "text/plain"),
        (b"[]", JSON),
        (b"[7]", JSON),
        (b"{}", JSON),
        (b"null", JSON),
        (b'"text"', JSON),
        (b"7", JSON),
        (b"[" * 100_000, JSON),
        (b'{"a":' * 100_000, JSON),
        (b"[" * 100_000 + b"]" * 100_000, JSON),
        (b"\xff\xfe\x00", JSON),
    ],
    ids=[
        "nothing",
        "a page",
        "a page as JSON",
        "text",
        "no list",
        "a list",
        "no member",
        "null",
        "a text",
        "a number",
        "deep",
        "deeper",
        "deep and closed",
        "no text",
    ],
)
def test_a_200_without_an_answer_is_malformed(served: Served, body: bytes, media: str) -> None:
    error = served.chat(body, media=media).failure
    assert type(error) is MalformedResponseError
    assert (error.endpoint, error.request_id, error.status) == (served.endpoint, REQUEST_ID, 200)
    assert not error.retryable
    assert "Sign in" not in str(error)
    assert ("HTML" in str(error)) is (media == "text/html")


@pytest.mark.requirement("onym-answer-a", "onym-call-e")
def test_an_answer_without_a_choice_is_malformed(served: Served) -> None:
    error = served.chat(dumps(served.case.nothing)).failure
    assert type(error) is MalformedResponseError
    assert (error.endpoint, error.request_id) == (served.endpoint, REQUEST_ID)


@pytest.mark.requirement("onym-answer-a", "onym-call-e")
def test_an_error_body_with_200_is_the_error_that_it_is(served: Served) -> None:
    body, kind = served.case.in_answer
    error = served.chat(dumps(body)).failure
    assert type(error) is kind
    assert (error.endpoint, error.request_id, error.status) == (served.endpoint, REQUEST_ID, 200)


@pytest.mark.requirement("onym-net-e", "onym-call-e")
def test_an_answer_beyond_its_cap_is_refused(served: Served) -> None:
    octets = gzip.compress(served.case.body[:-1] + b" " * (65 * 1024 * 1024), 5)
    if served.case.row == "openai":
        tracemalloc.start()
    error = served.chat(octets, more={"content-encoding": "gzip"}).failure
    if tracemalloc.is_tracing():
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * 64 * 1024 * 1024
    assert type(error) is ResponseTooLarge
    assert error.endpoint is not None


@pytest.mark.requirement("onym-net-e", "onym-answer-b", "onym-call-e")
def test_an_error_body_beyond_its_cap_leaves_the_status_its_meaning(served: Served) -> None:
    octets = gzip.compress(dumps(served.case.refusal("no", 503))[:-1] + b" " * (8 * 1024 * 1024))
    error = served.chat(octets, status=503, more={"content-encoding": "gzip"}).failure
    assert type(error) is OverloadedError
    assert error.request_id == REQUEST_ID


# -- vectors and models

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "data",
                    "embedding",
                    "embeddings",
                    "index",
                    "float",
                    "values",
                    "predictions",
                    "statistics",
                    "token_count",
                    "models",
                    "model",
                    "name",
                    "id",
                    "modelSummaries",
                    "modelDetails",
                    "modelId",
                    "modelInfo",
                    "model_info",
                    "details",
                    "nextPageToken",
                    "next_page_token",
                    "has_more",
                    "last_id",
                    "usage",
                    "meta",
                    "error",
                    "message",
                    "context_length",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def operations(dialect: Dialect, body: bytes) -> Iterator[Any]:
    """What the other operations make of a body: a value, or a typed error that says where."""
    decoders: list[Callable[[], Any]] = [
        lambda: dialect.decode_models(200, headers(JSON), body, AT),
        lambda: dialect.decode_model(200, headers(JSON), body, AT),
    ]
    if dialect.routes.find("embed") is not None:
        decoders.append(lambda: dialect.decode_embed(200, headers(JSON), body, AT, count=1))
    for decode in decoders:
        try:
            yield decode()
        except ProviderError as error:
            yield error


@EACH
@pytest.mark.requirement("onym-answer-a", "onym-operation-a")
@as_subtests(
    "body",
    [b"", PAGE, b"[", b"null", b"7", b"\xff", b"[" * 100_000, b'{"data":' * 100_000],
    ids=["nothing", "a page", "half", "null", "a number", "no text", "deep", "deeper"],
)
def test_vectors_and_models_that_are_none_are_malformed(name: str, body: bytes) -> None:
    for found in operations(get_dialect(name), body):
        assert type(found) is MalformedResponseError
        assert (found.endpoint, found.request_id, found.status) == (AT.endpoint, REQUEST_ID, 200)


@EACH
@pytest.mark.requirement("onym-answer-a", "onym-read-f", "onym-operation-a")
@given(data=ANYTHING)
def test_vectors_and_models_of_any_shape_are_read_or_a_typed_error(name: str, data: Any) -> None:
    for found in operations(get_dialect(name), dumps(data)):
        if isinstance(found, Embeddings):
            assert len(found.vectors) == 1
            assert all(type(number) is float for number in found.vectors[0])
        elif isinstance(found, ModelPage):
            assert all(type(model.id) is str and model.id for model in found.models)
            assert found.next is None or found.next.isascii()
        elif isinstance(found, ModelInfo):
            assert found.id
            assert found.context_window is None or found.context_window >= 0
        else:
            assert (found.endpoint, found.request_id) == (AT.endpoint, REQUEST_ID)


# -- something else in one place

ODD: tuple[Any, ...] = (
    None,
    7,
    -1,
    1.5,
    True,
    "",
    "x",
    [],
    {},
    [None],
    ["x"],
    [7],
    [[]],
    [{}],
    {"a": 1},
    2**70,
)


@EACH
@pytest.mark.requirement("onym-answer-a", "onym-read-f")
def test_a_member_of_the_wrong_kind_is_passed_over_or_malformed(name: str) -> None:
    case, dialect = of(name)
    tried = refused = 0
    for path in paths(case.answer):
        for odd in ODD:
            found = read(dialect, dumps(with_value(case.answer, path, odd)))
            tried += 1
            if isinstance(found, Completion):
                check_sound(found)
            else:
                refused += 1
    assert tried > refused > 10


@EACH
@pytest.mark.requirement("onym-answer-a", "onym-read-f")
def test_a_member_that_is_missing_is_passed_over_or_malformed(name: str) -> None:
    case, dialect = of(name)
    for path in paths(case.answer):
        *before, last = path
        holder: Any = case.answer
        for step in before:
            holder = holder[step]
        if not isinstance(holder, dict):
            continue
        left = {key: value for key, value in holder.items() if key != last}
        found = read(dialect, dumps(with_value(case.answer, tuple(before), left)))
        if isinstance(found, Completion):
            check_sound(found)


@EACH
@pytest.mark.requirement("onym-answer-a", "onym-read-f")
@pytest.mark.parametrize(
    "deep", [b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000], ids=["open", "closed"]
)
def test_a_member_that_nests_without_end_is_malformed(name: str, deep: bytes) -> None:
    case, dialect = of(name)
    for path in paths(case.answer):
        if len(path) > 3:
            continue
        body = dumps(with_value(case.answer, path, "@")).replace(b'"@"', deep)
        assert type(read(dialect, body)) is MalformedResponseError


@EACH
@pytest.mark.requirement("onym-answer-a")
@as_subtests("octets", [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf0\x9f", b"\\ud83d"])
def test_octets_that_are_no_text_are_malformed(name: str, octets: bytes) -> None:
    case, dialect = of(name)
    found = read(dialect, case.replaced("🌍", octets)[0])
    assert type(found) is MalformedResponseError


@EACH
@pytest.mark.requirement("onym-answer-a")
def test_a_member_that_nobody_knows_is_passed_over(name: str) -> None:
    case, dialect = of(name)
    plain = read(dialect, case.body)
    assert isinstance(plain, Completion)
    for path in [(), *paths(case.answer)]:
        holder: Any = case.answer
        for step in path:
            holder = holder[step]
        if not isinstance(holder, dict) or path[-1:] in (("input",), ("args",), ("arguments",)):
            continue  # a tool's arguments are the model's own
        found = read(dialect, dumps(with_value(case.answer, path, {**holder, "novelty": {"a": [1]}})))
        assert isinstance(found, Completion)
        for member in ("text", "reasoning", "tool_calls", "finish_reason", "usage", "model"):
            assert getattr(found, member) == getattr(plain, member), path


@EACH
@pytest.mark.requirement("onym-answer-c")
@as_subtests(
    "text",
    ["{", "[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "7", '"x"', "\udc80"],
    ids=["open", "deep", "deeper", "a number", "a text", "half a character"],
)
def test_arguments_of_an_earlier_call_that_are_no_object_are_refused_or_sent_as_they_are(
    name: str, text: str
) -> None:
    """They are the model's own text: where the API wants an object, only one can go back."""
    call = ToolCall(id="c1", name="look", arguments=text)
    messages = (
        Message(role="user", content="Hi"),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="4", tool_call_id="c1"),
    )
    dialect = get_dialect(name)
    try:
        body = dialect.encode_chat(Request(model="m-1", messages=messages), WireSpec())
    except UsageError as error:
        refused = error
    else:
        assert text in _texts(body)
        return
    assert refused.code == "usage.bad-message"
    assert len(str(refused)) < 200


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _texts(value)


def test_the_table_holds_what_it_says() -> None:
    """No row is empty of what its tests are about."""
    for name, case in CASES.items():
        assert ONE.encode() in b"".join(case.frames[: case.before]) or ONE.strip() in "".join(
            map(str, case.records)
        )
        assert case.late_class is not MalformedResponseError, name
        assert case.in_answer[1] in (
            AuthenticationError,
            ContentFilterError,
            OverloadedError,
            RateLimitError,
            ServerError,
        )
