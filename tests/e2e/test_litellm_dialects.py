"""LiteLLM's proxy in the four wire formats that it speaks: with mocked replies, and before a real model.

It turns what it is asked into OpenAI's chat format for llama.cpp and the answer back, so text, counts, tools
and schemas go through its reading of each format. The vendors' SDKs, pointed at it, say what comes out.

Known of this release: mocked replies are not streamed on its Responses route; streams of its Gemini route
count no tokens, and its failures are a 500 whatever the server behind said; a prompt that is too long is told
in prose.
"""

from __future__ import annotations

import json

import pytest

from e2e.asking import (
    QUESTION,
    calls_the_tool,
    connect,
    holds_to_the_schema,
    reads_the_result,
    said_as_its_sdk_reads_it,
    same_for_coroutines,
    streamed_as_its_sdk_reads_it,
)
from e2e.peers import (
    BAD_KEY_MODEL,
    MOCKED,
    MOCKED_CALL,
    MOCKED_FAILURE,
    MOCKED_RATE_LIMIT,
    MOCKED_TEXT,
    MOCKED_TOOLS,
    TRANSLATED,
    Peer,
)
from model_support import MODEL
from onym.errors import AuthenticationError, BadRequestError, NotFoundError, RateLimitError, ServerError
from onym.llm.types import Finish, TextDelta

# one worker runs them all: the servers are started once
pytestmark = [pytest.mark.peers, pytest.mark.embedded, pytest.mark.xdist_group("peers")]

EVERY = pytest.mark.parametrize("api", ["chat", "responses", "messages", "gemini"])


# mocked replies ---------------------------------------------------------------------------------------


@EVERY
def test_a_mocked_reply_is_read(litellm: Peer, api: str) -> None:
    with connect(litellm, api, MOCKED) as client:
        answer = client.chat(QUESTION)
    assert answer.text == MOCKED_TEXT
    assert answer.finish_reason == "stop"
    assert answer.request_id
    assert answer.usage.input_tokens
    assert answer.usage.output_tokens


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_a_mocked_reply_is_read_where_a_stream_was_asked_for(litellm: Peer, api: str) -> None:
    with connect(litellm, api, MOCKED) as client, client.stream(QUESTION) as stream:
        events = list(stream)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == MOCKED_TEXT
    last = events[-1]
    assert isinstance(last, Finish)
    assert last.reason == "stop"
    assert len(events) > 2 or api == "messages"  # there it comes whole


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_mocked_tool_call_is_read_full_and_streamed(litellm: Peer, api: str) -> None:
    with connect(litellm, api, MOCKED_TOOLS) as client:
        whole = client.chat(QUESTION)
        with client.stream(QUESTION) as stream:
            streamed = stream.completion()
    (call,) = whole.tool_calls
    assert (call.id, call.name) == (MOCKED_CALL["id"], "weather")
    assert json.loads(call.arguments) == {"city": "Paris"}
    assert whole.text
    # the mock leaves the calls out where it streams
    assert streamed.text == whole.text


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize(
    ("model", "kind", "status"),
    [(MOCKED_RATE_LIMIT, RateLimitError, 429), (MOCKED_FAILURE, ServerError, 500)],
)
def test_a_mocked_failure_is_its_typed_error(
    litellm: Peer, api: str, model: str, kind: type[RateLimitError | ServerError], status: int
) -> None:
    with connect(litellm, api, model) as client:
        for ask in (client.chat, lambda text: list(client.stream(text))):
            with pytest.raises(kind) as caught:
                ask(QUESTION)
            assert caught.value.status == status


def test_a_mocked_failure_of_a_gemini_stream_is_its_typed_error(litellm: Peer) -> None:
    with connect(litellm, "gemini", MOCKED_RATE_LIMIT) as client, pytest.raises(RateLimitError) as caught:
        list(client.stream(QUESTION))
    assert caught.value.status == 429


def test_what_the_proxy_knows_of_a_model_is_read(litellm: Peer) -> None:
    with connect(litellm, "chat", MOCKED) as client:
        model = client.model()
    assert (model.id, model.context_window, model.max_output_tokens) == (MOCKED, 128_000, 16_384)
    with connect(litellm, "messages", MOCKED) as client:
        listed = {model.id: model for model in client.models()}
        assert client.model().context_window == 128_000
    assert listed[MOCKED].context_window == 128_000


# before a real model ----------------------------------------------------------------------------------


@EVERY
def test_a_translated_answer_is_what_the_vendors_sdk_gets(litellm: Peer, api: str) -> None:
    answer = said_as_its_sdk_reads_it(litellm, api, TRANSLATED)
    assert answer.finish_reason == "length"
    assert answer.usage.output_tokens == 24


@EVERY
def test_a_translated_stream_is_what_the_vendors_sdk_gets(litellm: Peer, api: str) -> None:
    last = streamed_as_its_sdk_reads_it(litellm, api, TRANSLATED)
    assert last.reason == "length"
    assert last.usage.output_tokens == (0 if api == "gemini" else 24)


@EVERY
def test_coroutines_get_the_same_answer_full_and_streamed(litellm: Peer, api: str) -> None:
    same_for_coroutines(litellm, api, TRANSLATED)


@EVERY
def test_one_question_is_the_same_prompt_in_every_format(litellm: Peer, llama: Peer, api: str) -> None:
    with connect(litellm, api, TRANSLATED) as client, connect(llama, "chat") as direct:
        ours, other = client.chat(QUESTION), direct.chat(QUESTION)
    assert ours.text == other.text
    assert ours.usage.input_tokens == other.usage.input_tokens


@EVERY
def test_a_tool_is_called(litellm: Peer, api: str) -> None:
    calls_the_tool(litellm, api, TRANSLATED)


@EVERY
def test_the_result_of_a_tool_is_read(litellm: Peer, api: str) -> None:
    reads_the_result(litellm, api, TRANSLATED)


@EVERY
def test_a_schema_is_kept_to(litellm: Peer, api: str) -> None:
    holds_to_the_schema(litellm, api, TRANSLATED)


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_a_stop_sequence_ends_the_answer(litellm: Peer, api: str) -> None:
    with connect(litellm, api, TRANSLATED, stop="Paris") as client:
        answer = client.chat("What is the capital of France?")
    assert answer.text.strip() == "The capital of France is"
    assert answer.finish_reason == "stop"


def test_vectors_come_beside_the_responses_route(litellm: Peer, llama: Peer) -> None:
    texts = ["a cat", "an accountant"]
    with connect(litellm, "responses") as client, connect(llama, "chat") as direct:
        ours, other = client.embed(texts), direct.embed(texts)
    assert len(ours.vectors) == 2
    for vector, same in zip(ours.vectors, other.vectors, strict=True):
        assert list(vector) == pytest.approx(list(same), abs=1e-4)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_the_list_of_models_names_them_all(litellm: Peer, api: str) -> None:
    with connect(litellm, api, TRANSLATED) as client:
        listed = [model.id for model in client.models()]
        assert client.model().id == TRANSLATED
    assert {MODEL, TRANSLATED, MOCKED} <= set(listed)


def test_a_list_that_the_proxy_lacks_is_a_missing_route(litellm: Peer) -> None:
    with connect(litellm, "gemini", TRANSLATED) as client, pytest.raises(NotFoundError):
        client.models()


# refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_key_that_the_server_behind_refuses_is_an_authentication_error(litellm: Peer, api: str) -> None:
    with connect(litellm, api, BAD_KEY_MODEL) as client, pytest.raises(AuthenticationError):
        client.chat(QUESTION)


@EVERY
def test_a_model_that_the_proxy_lacks_is_refused(litellm: Peer, api: str) -> None:
    with connect(litellm, api, "no-such-model") as client:
        for ask in (client.chat, lambda text: list(client.stream(text))):
            with pytest.raises((BadRequestError, NotFoundError)) as caught:
                ask(QUESTION)
            assert caught.value.status in (400, 404)


@EVERY
def test_a_wrong_key_is_a_typed_error_without_the_key(litellm: Peer, api: str) -> None:
    # it looks for keys that are not its own in a database, which it says it has not
    key = "sk-wrong-key-of-these-tests"
    with connect(litellm, api, TRANSLATED, key=key) as client, pytest.raises(BadRequestError) as caught:
        client.chat(QUESTION)
    assert key not in f"{caught.value} {caught.value!r} {caught.value.as_dict()}"


@EVERY
def test_a_prompt_that_does_not_fit_is_refused(litellm: Peer, api: str) -> None:
    with connect(litellm, api, TRANSLATED) as client, pytest.raises(BadRequestError):
        client.chat("word " * 9000)
