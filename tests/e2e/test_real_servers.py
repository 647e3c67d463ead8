"""One URI shape against real servers: llama.cpp's own, and two gateways of others in front of it.

The OpenAI Python SDK, pointed at the same servers, says what the answer has to be.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest

import onym
from e2e.peers import BAD_KEY_MODEL, Peer
from model_support import MODEL, pulled_weights
from onym.errors import (
    AuthenticationError,
    BadRequestError,
    ContextLengthError,
    DeadlineExceeded,
    PolicyError,
    ProviderError,
)
from onym.llm import embedded
from onym.llm.client import AsyncClient, Client
from onym.llm.types import Finish, TextDelta
from onym.net.policy import Policy

# one worker runs them all: the servers are started once
pytestmark = [pytest.mark.peers, pytest.mark.embedded, pytest.mark.xdist_group("peers")]

SYSTEM = "You are a helpful assistant."
QUESTION = "What is the capital of France? Tell me about it."
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": QUESTION},
]


def connect(peer: Peer, model: str = MODEL, *, key: str | None = None, **params: object) -> Client:
    uri = peer.uri(model, key=key, **({"system": SYSTEM, "temp": 0, "max_tokens": 24} | params))
    return onym.connect(uri, policy=Policy.local(), providers=peer.providers)


def aconnect(peer: Peer, **params: object) -> AsyncClient:
    uri = peer.uri(**({"system": SYSTEM, "temp": 0, "max_tokens": 24} | params))
    return onym.aconnect(uri, policy=Policy.local(), providers=peer.providers)


@contextmanager
def sdk(peer: Peer) -> Iterator[openai.OpenAI]:
    """The OpenAI SDK, pointed at a peer."""
    headers = {} if peer.label is None else {"x-portkey-config": peer.label}
    with openai.OpenAI(
        base_url=f"{peer.address}/v1", api_key=peer.key, default_headers=headers, max_retries=0
    ) as client:
        yield client


def sdk_chat(peer: Peer, **parameters: Any) -> Any:
    with sdk(peer) as client:
        arguments = {"messages": MESSAGES, "temperature": 0, "max_tokens": 24} | parameters
        return client.chat.completions.create(model=MODEL, **arguments)


def test_the_answer_is_what_the_openai_sdk_gets(peer: Peer) -> None:
    theirs = sdk_chat(peer)
    with connect(peer) as client:
        ours = client.chat(QUESTION)
    assert ours.text == theirs.choices[0].message.content
    assert "Paris" in ours.text
    assert ours.finish_reason == theirs.choices[0].finish_reason == "length"
    assert ours.model == theirs.model == MODEL
    assert ours.usage.input_tokens == theirs.usage.prompt_tokens
    assert ours.usage.output_tokens == theirs.usage.completion_tokens == 24


def test_the_streamed_answer_is_the_same_and_comes_in_pieces(peer: Peer) -> None:
    with sdk(peer) as client:
        chunks = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, temperature=0, max_tokens=24, stream=True
        )
        theirs = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    with connect(peer) as ours:
        whole = ours.chat(QUESTION)
        with ours.stream(QUESTION) as stream:
            events = list(stream)
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert pieces == [piece for piece in theirs if piece]
    assert len(pieces) > 10
    assert "".join(pieces) == whole.text
    last = events[-1]
    assert isinstance(last, Finish)
    assert last.reason == "length"
    assert last.usage.output_tokens == 24
    assert last.usage.input_tokens == whole.usage.input_tokens


def test_coroutines_get_the_same_answer_full_and_streamed(peer: Peer) -> None:
    async def both() -> tuple[str, str]:
        async with aconnect(peer) as client:
            whole, streamed = await asyncio.gather(client.chat(QUESTION), gather(client))
            return whole.text, streamed

    async def gather(client: AsyncClient) -> str:
        async with client.stream(QUESTION) as stream:
            return "".join([event.text async for event in stream if isinstance(event, TextDelta)])

    whole, streamed = asyncio.run(both())
    assert whole == streamed == sdk_chat(peer).choices[0].message.content


def test_a_stop_sequence_of_the_uri_ends_the_answer(peer: Peer) -> None:
    with connect(peer, stop="Paris") as client:
        answer = client.chat("What is the capital of France?")
    assert answer.text == "The capital of France is "
    assert answer.finish_reason == "stop"


def test_a_seed_of_the_uri_fixes_a_random_answer(peer: Peer) -> None:
    def say(seed: int) -> str:
        with connect(peer, seed=seed, temp=1.5) as client:
            return client.chat(QUESTION).text

    assert say(7) == say(7) == sdk_chat(peer, seed=7, temperature=1.5).choices[0].message.content
    assert len({say(seed) for seed in (7, 8, 9)}) > 1


def test_a_json_format_of_the_uri_gives_json(peer: Peer) -> None:
    with connect(peer, format="json", max_tokens=100) as client:
        text = client.chat("Write a JSON object with one key, city, for the capital of France.").text
    assert json.loads(text)["city"] == "Paris"


def test_a_schema_is_kept_to(peer: Peer) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "large": {"type": "boolean"}},
        "required": ["city", "large"],
        "additionalProperties": False,
    }
    with connect(peer, max_tokens=100) as client:
        found = json.loads(client.chat(QUESTION, format="json_schema", schema=schema).text)
    assert sorted(found) == ["city", "large"]
    assert isinstance(found["large"], bool)


def test_embeddings_are_those_that_the_openai_sdk_gets(peer: Peer) -> None:
    texts = ["a cat", "an accountant"]
    with sdk(peer) as client:
        theirs = client.embeddings.create(model=MODEL, input=texts, encoding_format="float").data
    with connect(peer) as ours:
        found = ours.embed(texts)
    assert len(found.vectors) == 2
    for mine, other in zip(found.vectors, theirs, strict=True):
        assert list(mine) == pytest.approx(other.embedding, abs=1e-4)
    assert found.vectors[0] != found.vectors[1]


@pytest.mark.parametrize("peer", ["llama", "litellm"], indirect=True)
def test_the_list_of_models_names_the_model(peer: Peer) -> None:
    with connect(peer) as client:
        assert MODEL in [model.id for model in client.models()]


def test_a_conversation_reaches_the_model_as_the_openai_sdk_sends_it(peer: Peer) -> None:
    turns = [
        {"role": "user", "content": "Say hello, Zebedee \N{SNOWMAN}."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Again, please."},
    ]
    theirs = sdk_chat(peer, messages=[MESSAGES[0], *turns])
    with connect(peer) as client:
        ours = client.chat(turns)
    assert ours.text == theirs.choices[0].message.content
    assert ours.usage.input_tokens == theirs.usage.prompt_tokens


def test_a_wrong_key_is_a_typed_error_without_the_key(peer: Peer) -> None:
    # LiteLLM looks for keys that are not its own in a database, which it says it has not
    expected = BadRequestError if peer.name == "litellm" else AuthenticationError
    with connect(peer, key="sk-wrong-key-of-these-tests") as client, pytest.raises(expected) as caught:
        client.chat(QUESTION)
    error = caught.value
    assert error.status == (400 if peer.name == "litellm" else 401)
    assert "sk-wrong-key-of-these-tests" not in f"{error} {error!r} {error.as_dict()}"
    assert f"127.0.0.1:{peer.port}" in (error.endpoint or "")


def test_a_key_that_the_server_behind_a_gateway_refuses_is_an_authentication_error(litellm: Peer) -> None:
    with connect(litellm, BAD_KEY_MODEL) as client, pytest.raises(AuthenticationError):
        client.chat(QUESTION)


def test_a_model_that_the_gateway_lacks_is_a_typed_error(litellm: Peer) -> None:
    with connect(litellm, "no-such-model") as client, pytest.raises(ProviderError) as caught:
        client.chat(QUESTION)
    assert caught.value.status in (400, 404)


def test_a_prompt_that_does_not_fit_is_a_context_length_error(llama: Peer) -> None:
    with connect(llama) as client, pytest.raises(ContextLengthError):
        client.chat("word " * 9000)


def test_the_time_of_the_uri_bounds_the_call(peer: Peer) -> None:
    with connect(peer, timeout=1, retries=0) as client, pytest.raises(DeadlineExceeded):
        client.chat(QUESTION)


def test_without_permission_no_server_of_this_machine_is_reached(peer: Peer) -> None:
    with onym.connect(peer.uri(), providers=peer.providers) as client, pytest.raises(PolicyError):
        client.chat(QUESTION)


# cancelling -------------------------------------------------------------------------------------------


def slots(llama: Peer) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        f"{llama.address}/slots", headers={"Authorization": f"Bearer {llama.key}"}
    )
    with urllib.request.urlopen(request, timeout=300) as reply:
        return list(json.load(reply))


def wait_until_idle(llama: Peer, tokens: int) -> None:
    """Return when no slot works; fail when one goes on for so many tokens (each look takes one or more)."""
    while busy := [slot for slot in slots(llama) if slot["is_processing"]]:
        for slot in busy:
            assert slot["next_token"][0]["n_decoded"] < tokens, "the server went on writing"


def connections_to(port: int) -> int:
    """This process's established TCP connections to a local port."""
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(str(descriptor.readlink()))
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            row = line.split()
            remote, state, inode = row[2], row[3], row[9]
            count += remote.endswith(f":{port:04X}") and state == "01" and f"socket:[{inode}]" in own
    return count


LONG: dict[str, object] = {"max_tokens": 3000, "ignore_eos": True}


@pytest.mark.parametrize("peer", ["llama", "litellm"], indirect=True)
def test_leaving_a_stream_frees_the_server(peer: Peer, llama: Peer) -> None:
    with connect(peer, **LONG) as client:
        with client.stream(QUESTION) as stream:
            assert isinstance(next(iter(stream)), TextDelta)
            assert any(slot["is_processing"] for slot in slots(llama))
        wait_until_idle(llama, 1500)
        assert client.chat(QUESTION, max_tokens=2, extra={"ignore_eos": False}).usage.output_tokens == 2


@pytest.mark.parametrize("peer", ["llama", "litellm"], indirect=True)
def test_cancelling_a_coroutine_frees_the_server(peer: Peer, llama: Peer) -> None:
    async def cancelled() -> None:
        started = asyncio.Event()

        async def read() -> None:
            async with client.stream(QUESTION) as stream:
                async for _ in stream:
                    started.set()

        async with aconnect(peer, **LONG) as client:
            task = asyncio.create_task(read())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    wait_until_idle(llama, 1500)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/net/tcp")
def test_leaving_a_stream_closes_the_connection(peer: Peer, llama: Peer) -> None:
    # Portkey's gateway reads on after its caller left, so there the model writes a short answer
    with connect(peer, max_tokens=300, ignore_eos=True) as client:
        with client.stream(QUESTION) as stream:
            next(iter(stream))
            assert connections_to(peer.port) == 1
        assert connections_to(peer.port) == 0
    wait_until_idle(llama, 301)


# the embedded model ------------------------------------------------------------------------------------


def test_the_embedded_model_says_what_llama_cpps_server_says(llama: Peer) -> None:
    pulled_weights()
    try:
        with onym.connect(f"llm://embedded/{MODEL}?temp=0&max_tokens=24") as client:
            whole = client.chat(QUESTION)
            with client.stream(QUESTION) as stream:
                streamed = "".join(event.text for event in stream if isinstance(event, TextDelta))
            assert MODEL in [model.id for model in client.models()]
    finally:
        embedded.close_servers()
    assert whole.text == streamed == sdk_chat(llama).choices[0].message.content
