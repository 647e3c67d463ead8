"""`onym.bridges.openai`: the SDK's own client, at the URI's endpoint, and nowhere else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import openai as sdk
import pytest

import onym.bridges
from onym.errors import CredentialError, OnymWarning, PolicyError, UnsupportedError
from onym.llm.config import Config
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider

MESSAGES = [{"role": "user", "content": "Hi"}]


def test_a_call_goes_to_the_endpoint_with_its_key_and_the_uris_parameters(fake, policy, key):
    fake.answer("Hello")
    with onym.bridges.openai(fake.uri("m", "temp=0&max_tokens=5&x.y=1"), policy=policy) as client:
        assert isinstance(client, sdk.OpenAI)
        answer = client.chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.content == "Hello"
    request = fake.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {key}"
    assert request.json == {
        "model": "m", "messages": MESSAGES, "temperature": 0, "max_tokens": 5, "x": {"y": 1},
    }  # fmt: skip


def test_what_the_call_says_goes_before_the_uri_under_any_of_its_names(fake, policy):
    with onym.bridges.openai(fake.uri("m", "temp=0&max_tokens=5"), policy=policy) as client:
        client.chat.completions.create(model="m", messages=MESSAGES, temperature=1, max_completion_tokens=7)
    body = fake.requests[0].json
    assert (body["temperature"], body["max_completion_tokens"]) == (1, 7)
    assert "max_tokens" not in body


def test_the_uris_system_prompt_stands_first_unless_the_call_brings_one(fake, policy):
    with onym.bridges.openai(fake.uri("m", "system=Be%20brief"), policy=policy) as client:
        client.chat.completions.create(model="m", messages=MESSAGES)
        own = [{"role": "system", "content": "Mine"}, *MESSAGES]
        client.chat.completions.create(model="m", messages=own)
        client.with_options(timeout=300).chat.completions.create(model="m", messages=MESSAGES)
    assert fake.requests[0].json["messages"] == [{"role": "system", "content": "Be brief"}, *MESSAGES]
    assert fake.requests[1].json["messages"] == own
    assert fake.requests[2].json["messages"][0]["content"] == "Be brief"


def test_other_calls_of_the_sdk_are_left_alone(fake, policy):
    with onym.bridges.openai(fake.uri("m", "temp=0"), policy=policy) as client:
        assert client.embeddings.create(model="m", input="x", encoding_format="float").data
        assert [model.id for model in client.models.list()] == ["fake-model"]
    assert "temperature" not in fake.requests[0].json


def test_timeout_and_retries_are_the_clients(fake, policy):
    with onym.bridges.openai(fake.uri("m", "timeout=1500&retries=7"), policy=policy) as client:
        assert (client.timeout, client.max_retries) == (1.5, 7)
    with onym.bridges.openai(fake.uri("m", "timeout=1500"), policy=policy, timeout=3) as client:
        assert client.timeout == 3


def test_a_stream_and_tools_work_as_in_the_sdk(fake, policy):
    fake.answer("Hello there").answer("", tool_calls=[("c1", "f", "{}")])
    with onym.bridges.openai(fake.uri("m", "stream=true"), policy=policy) as client:
        chunks = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello there"
        answer = client.chat.completions.create(model="m", messages=MESSAGES)
    assert answer.choices[0].message.tool_calls[0].function.name == "f"


def test_coroutines_have_a_client_of_their_own(fake, policy):
    async def main() -> str | None:
        async with onym.bridges.async_openai(fake.uri("m", "temp=0"), policy=policy) as client:
            assert isinstance(client, sdk.AsyncOpenAI)
            answer = await client.chat.completions.create(model="m", messages=MESSAGES)
            return answer.choices[0].message.content

    fake.answer("Hello")
    assert asyncio.run(main()) == "Hello"
    assert fake.requests[0].json["temperature"] == 0


def test_variables_that_are_meant_for_openai_alone_go_nowhere_else(fake, policy, monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj_secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-0123456789")
    with onym.bridges.openai(fake.uri("m"), policy=policy) as client:
        client.chat.completions.create(model="m", messages=MESSAGES)
        client.with_options(max_retries=0).chat.completions.create(model="m", messages=MESSAGES)
    for request in fake.requests:
        assert "secret" not in str(dict(request.headers))
        assert "sk-of-openai" not in str(dict(request.headers))


def test_a_server_that_wants_no_key_is_sent_none(policy, monkeypatch):
    from onym.testing.fake_provider import FakeProvider

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai-0123456789")
    with FakeProvider() as fake, onym.bridges.openai(fake.uri("m"), policy=policy) as client:
        client.chat.completions.create(model="m", messages=MESSAGES)
        assert "authorization" not in fake.requests[0].headers


def test_a_key_that_travels_in_another_header_stays_out_of_authorization(policy, key):
    from onym.testing.fake_provider import FakeProvider

    with FakeProvider() as fake:
        row = replace(
            ProviderTable.builtin().get("azure-openai"),
            name="capture", hosts=("127.0.0.1",), host_suffixes=(), default_port=fake.port,
        )  # fmt: skip
        table = ProviderTable.builtin().register(row)
        uri = f"llm://:{key}@127.0.0.1:{fake.port}/dep?api-version=2024-10-21"
        with onym.bridges.openai(uri, policy=policy, providers=table, config=Config()) as client:
            client.chat.completions.create(model="dep", messages=MESSAGES)
    request = fake.requests[0]
    assert request.path == "/openai/deployments/dep/chat/completions?api-version=2024-10-21"
    assert request.headers["api-key"] == key
    assert "authorization" not in request.headers


def test_a_redirect_is_not_followed_and_the_key_goes_nowhere(fake, policy):
    fake.raw(b"", status=307, headers={"location": f"http://127.0.0.1:{fake.port}/elsewhere"})
    with (
        onym.bridges.openai(fake.uri("m", "retries=0"), policy=policy) as client,
        pytest.raises(sdk.APIStatusError),
    ):
        client.chat.completions.create(model="m", messages=MESSAGES)
    assert len(fake.requests) == 1


def test_proxies_of_the_environment_are_not_asked_and_read_no_key(fake, policy, monkeypatch):
    with FakeProvider() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        with onym.bridges.openai(fake.uri("m"), policy=policy) as client:
            client.chat.completions.create(model="m", messages=MESSAGES)

        async def waiting():
            async with onym.bridges.async_openai(fake.uri("m"), policy=policy) as client:
                await client.chat.completions.create(model="m", messages=MESSAGES)

        asyncio.run(waiting())
        assert proxy.requests == []
    assert len(fake.requests) == 2


@pytest.mark.parametrize(
    ("uri", "policy"),
    [
        ("llm://localhost:8000/m", None),
        ("llm://10.0.0.1/m", Policy.local()),
        ("llm://169.254.169.254/m", Policy.local()),
        ("llm://metadata.google.internal/m", Policy.local()),
        ("llm://api.openai.com:8443/m", Policy.untrusted()),
        ("llm://evil.example/m", Policy.trusted().replace(allow_hosts={"api.openai.com"})),
    ],
)
def test_the_policy_refuses_before_there_is_a_client(uri, policy):
    for make in (onym.bridges.openai, onym.bridges.async_openai):
        with pytest.raises(PolicyError):
            make(uri, key="k", policy=policy)


def test_another_wire_format_is_refused_with_a_way_on():
    with pytest.raises(UnsupportedError) as caught:
        onym.bridges.openai("llm://anthropic/claude-sonnet-5", key="k")
    assert caught.value.code == "bridge.not-openai"
    assert caught.value.hint is not None


def test_a_provider_with_a_second_api_in_the_format_of_the_sdk_names_it():
    with pytest.raises(UnsupportedError) as caught:
        onym.bridges.openai("llm://ollama/llama3", policy=Policy.local())
    assert "api=chat" in (caught.value.hint or "")
    with onym.bridges.openai("llm://ollama/llama3?api=chat", policy=Policy.local()) as client:
        assert str(client.base_url) == "http://localhost:11434/v1/"


def test_a_missing_key_is_said_now_and_by_name():
    with pytest.raises(CredentialError, match="OPENAI_API_KEY"):
        onym.bridges.openai("llm://openai/gpt-5.4", environ={})


def test_what_is_dropped_by_choice_earns_a_warning():
    with pytest.warns(OnymWarning, match="top_k"):
        client = onym.bridges.openai("llm://openai/gpt-5.4?top_k=5", key="k", on_unsupported="warn")
    client.close()


@pytest.mark.requirement("onym-bridge-a")
def test_the_client_shows_no_key(fake, policy, keeps_its_secret):
    with onym.bridges.openai(fake.uri("m"), policy=policy) as client:
        keeps_its_secret(client)


def test_a_model_with_both_apis_is_used_by_chat_completions():
    known = {"key": "sk-test-key-0123456789", "config": Config.empty(), "environ": {}}
    with onym.bridges.openai("llm://openai/gpt-6-luna?reasoning_effort=low", **known) as client:
        assert str(client.base_url) == "https://api.openai.com/v1/"
    with pytest.raises(UnsupportedError) as caught:
        onym.bridges.openai("llm://openai/gpt-5.3-codex", **known)
    assert caught.value.code == "llm.no-api"
