"""Ollama's API, spoken by ollama-proxy-plus before llama.cpp's server.

It is not Ollama, whose server no package registry has: an independent implementation of its protocol, which
the official `ollama` package takes for Ollama. It estimates token counts, says "stop" of answers that were
cut, leaves seeds and tool calls out, and knows no model's context window; nothing here asks for these.
"""

from __future__ import annotations

import json

import ollama as sdk
import pytest

from e2e.asking import (
    QUESTION,
    connect,
    holds_to_the_schema,
    said_as_its_sdk_reads_it,
    same_for_coroutines,
    streamed_as_its_sdk_reads_it,
)
from e2e.peers import HERE_PREFIX, REFUSED_PREFIX, Peer
from model_support import MODEL
from onym.errors import BadRequestError, NotFoundError, ProviderError, UnsupportedError

# one worker runs them all: the servers are started once
pytestmark = [pytest.mark.peers, pytest.mark.embedded, pytest.mark.xdist_group("peers")]

API = "ollama"
HERE = f"{HERE_PREFIX}/{MODEL}"


def test_an_answer_is_what_the_ollama_sdk_gets(ollama: Peer) -> None:
    answer = said_as_its_sdk_reads_it(ollama, API, HERE)
    assert answer.model == HERE
    assert answer.request_id


def test_a_streamed_answer_is_what_the_ollama_sdk_gets(ollama: Peer) -> None:
    last = streamed_as_its_sdk_reads_it(ollama, API, HERE)
    assert last.model == HERE
    assert last.usage.output_tokens


def test_coroutines_get_the_same_answer_full_and_streamed(ollama: Peer) -> None:
    same_for_coroutines(ollama, API, HERE)


def test_the_answer_is_that_of_the_model_behind(ollama: Peer, llama: Peer) -> None:
    with connect(ollama, API, HERE) as client, connect(llama, "chat") as direct:
        assert client.chat(QUESTION).text == direct.chat(QUESTION).text


def test_a_stop_sequence_ends_the_answer(ollama: Peer) -> None:
    with connect(ollama, API, HERE, stop="Paris") as client:
        assert client.chat("What is the capital of France?").text == "The capital of France is "


def test_the_length_of_an_answer_is_bounded(ollama: Peer, llama: Peer) -> None:
    with connect(ollama, API, HERE, max_tokens=3) as client, connect(llama, "chat", max_tokens=3) as direct:
        assert client.chat(QUESTION).text == direct.chat(QUESTION).text


def test_a_json_format_gives_json(ollama: Peer) -> None:
    with connect(ollama, API, HERE, format="json", max_tokens=100) as client:
        text = client.chat("Write a JSON object with one key, city, for the capital of France.").text
    assert json.loads(text)["city"] == "Paris"


def test_a_schema_is_kept_to(ollama: Peer) -> None:
    holds_to_the_schema(ollama, API, HERE)


def test_vectors_are_those_that_the_ollama_sdk_gets(ollama: Peer) -> None:
    texts = ["a cat", "an accountant"]
    with sdk.Client(host=ollama.address) as theirs, connect(ollama, API, HERE) as client:
        expected = theirs.embed(model=HERE, input=texts).embeddings
        found = client.embed(texts)
    assert found.model == HERE
    assert len(found.vectors) == 2
    for mine, other in zip(found.vectors, expected, strict=True):
        assert list(mine) == pytest.approx(list(other), abs=1e-4)


def test_the_list_of_models_is_what_the_ollama_sdk_gets(ollama: Peer) -> None:
    with sdk.Client(host=ollama.address) as theirs, connect(ollama, API, HERE) as client:
        expected = [model.model for model in theirs.list().models]
        assert [model.id for model in client.models()] == expected
    assert HERE in expected


def test_a_model_is_shown(ollama: Peer) -> None:
    with connect(ollama, API, HERE) as client:
        model = client.model()
    assert model.id == HERE
    assert model.raw["details"]["family"] == HERE_PREFIX


def test_a_model_that_nobody_has_is_not_found(ollama: Peer) -> None:
    with connect(ollama, API, "nowhere/a-model") as client:
        with pytest.raises(NotFoundError):
            client.model()
        with pytest.raises(BadRequestError):
            client.chat(QUESTION)


def test_a_refusal_of_the_server_behind_is_an_error_without_its_key(ollama: Peer) -> None:
    with connect(ollama, API, f"{REFUSED_PREFIX}/{MODEL}") as client:
        # full it is a 502, streamed it is a line of a 200
        for ask in (client.chat, lambda text: list(client.stream(text))):
            with pytest.raises(ProviderError, match="Invalid API Key") as caught:
                ask(QUESTION)
            assert "sk-wrong" not in f"{caught.value} {caught.value!r}"


def test_a_choice_of_tool_is_refused_before_anything_is_sent(ollama: Peer) -> None:
    tool = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
    with connect(ollama, API, HERE) as client, pytest.raises(UnsupportedError):
        client.chat(QUESTION, tools=[tool], tool_choice="required")
