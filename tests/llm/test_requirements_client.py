"""The clauses of the llm draft that the client holds, one by one, through the public API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onym
from onym.errors import (
    ConnectionFailed,
    CredentialError,
    DeadlineExceeded,
    OnymWarning,
    PolicyError,
    ProviderError,
    RedirectRefused,
    UnsupportedError,
)
from onym.llm.providers import ProviderTable
from onym.testing.fake_provider import FakeProvider
from support import as_subtests

KEY = "sk-made-up-0123456789"
LOCAL = onym.Policy.local()


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


def explained(uri: str, **settings: Any) -> dict[str, Any]:
    """What a call would send, in JSON's data."""
    overrides = settings.pop("overrides", {})
    with onym.connect(uri, **settings) as client:
        return client.explain("Hi", **overrides).as_dict()


# -- 4.2 and 5.1: host, userinfo, path


@pytest.mark.requirement("llm-4.2.1-a", "llm-4.2.1-b")
@pytest.mark.parametrize(
    ("label", "headers"),
    [
        ("org-123", {"OpenAI-Organization": "org-123"}),
        ("proj_123", {"OpenAI-Project": "proj_123"}),
        ("my-app", {}),
    ],
)
def test_a_label_goes_to_the_header_that_the_provider_has_for_it(label: str, headers: dict[str, str]) -> None:
    plan = explained(f"llm://{label}:{KEY}@api.openai.com/gpt-5")
    found = {name: value for name, value in plan["headers"].items() if name.startswith("OpenAI-")}
    assert found == headers
    note = next(note for note in plan["notes"] if note["parameter"] == "label")
    assert note["action"] == ("sent" if headers else "dropped")


@pytest.mark.requirement("llm-5.1-a", "llm-10.2-a", "llm-4.2.3-a")
@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("llm://api.openai.com/gpt-5", "https://api.openai.com/v1/chat/completions"),
        ("llm://llm.example.com:8080/m", "https://llm.example.com:8080/v1/chat/completions"),
        ("llm://localhost/llama3", "http://localhost:11434/api/chat"),
        ("llm://127.0.0.1:8080/m", "http://127.0.0.1:8080/v1/chat/completions"),
        ("llm://[::1]:8080/m", "http://[::1]:8080/v1/chat/completions"),
    ],
)
def test_https_for_every_host_but_this_machine(uri: str, url: str) -> None:
    assert explained(uri)["url"] == url


@pytest.mark.requirement("llm-5.1-b", "llm-4.3-b", "llm-4.3-c")
def test_a_call_is_a_post_to_the_inference_endpoint_with_the_model_in_its_body(fake: FakeProvider) -> None:
    with onym.connect(fake.uri("org%2Fa/b:8b"), policy=LOCAL) as client:
        client.chat("Hi")
    request = fake.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.json["model"] == "org/a/b:8b"


@pytest.mark.requirement("onym-fragment-a", "llm-4.4-h")
def test_the_fragment_is_not_sent_and_names_a_weaker_profile(fake: FakeProvider, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    uri = fake.uri("m", "temp=0.5") + "#code-review"
    file.write_text(
        f'[endpoints]\nreview = "{uri}"\n\n'
        '[profiles.code-review]\ntemp = 0.1\nmax_tokens = 9\nsystem = "Review the code."\n',
        encoding="utf-8",
    )
    with onym.connect("review", policy=LOCAL, config=onym.Config.load(file)) as client:
        client.chat("Hi")
    request = fake.requests[0]
    assert b"code-review" not in request.body
    assert "code-review" not in request.path + str(dict(request.headers))
    assert (request.json["temperature"], request.json["max_tokens"]) == (0.5, 9)
    assert request.json["messages"][0] == {"role": "system", "content": "Review the code."}


# -- 4.4, 6 and 9: parameters


@pytest.mark.requirement("llm-4.4-b", "llm-6-e")
def test_unrecognized_parameters_reach_the_body_under_their_own_names(fake: FakeProvider) -> None:
    query = "frequency_penalty=0.5&cacheControl=true&web_search.max_uses=3&user=u"
    with onym.connect(fake.uri("m", query), policy=LOCAL) as client:
        client.chat("Hi")
    body = fake.requests[0].json
    assert (body["frequency_penalty"], body["cacheControl"], body["user"]) == (0.5, True, "u")
    assert body["web_search"] == {"max_uses": 3}


@pytest.mark.requirement("llm-4.4-c", "onym-query-i")
def test_a_name_that_would_redirect_a_request_changes_nothing_and_warns(fake: FakeProvider) -> None:
    query = (
        "model=other&base_url=http%3A%2F%2F127.0.0.1%3A1&headers.Authorization=x&messages=%5B%5D&verify=false"
    )
    with onym.connect(fake.uri("m", query), policy=LOCAL) as client, pytest.warns(OnymWarning):
        client.chat("Hi")
    request = fake.requests[0]
    assert request.json["model"] == "m"
    assert request.json["messages"] == [{"role": "user", "content": "Hi"}]
    assert "authorization" not in request.headers
    assert not {"base_url", "headers", "verify"} & set(request.json)


@pytest.mark.requirement("llm-6-b", "llm-9-a")
def test_well_known_names_become_the_providers_own() -> None:
    query = "temp=0.5&max_tokens=9&top_p=0.9&stop=a&seed=7"
    ours = explained(f"llm://llm.example.com/m?{query}")["body"]
    assert (ours["temperature"], ours["max_tokens"], ours["top_p"], ours["seed"]) == (0.5, 9, 0.9, 7)
    assert ours["stop"] in ("a", ["a"])
    assert explained("llm://mistral/m?seed=7")["body"]["random_seed"] == 7
    assert explained("llm://groq/m?max_tokens=9")["body"]["max_completion_tokens"] == 9


@pytest.mark.requirement("llm-6-b")
def test_timeout_retries_and_cache_are_the_clients_and_format_is_mapped() -> None:
    plan = explained("llm://llm.example.com/m?timeout=5000&retries=7&format=json")
    assert (plan["timeout"], plan["retries"]) == (5.0, 7)
    assert plan["body"]["response_format"] == {"type": "json_object"}
    assert not {"timeout", "retries", "format"} & set(plan["body"])


@pytest.mark.requirement("onym-call-a")
def test_what_a_model_cannot_take_is_an_error_with_its_source_unless_dropping_was_chosen() -> None:
    with pytest.raises(UnsupportedError) as caught:
        explained("llm://openai/gpt-5?temp=0.2")
    assert (caught.value.parameter, caught.value.model) == ("temp", "gpt-5")
    assert caught.value.source
    plan = explained("llm://openai/gpt-5?temp=0.2", on_unsupported="drop")
    assert "temperature" not in plan["body"]
    assert next(note for note in plan["notes"] if note["parameter"] == "temp")["action"] == "dropped"


@pytest.mark.requirement("llm-10.3-a")
def test_values_given_in_python_are_validated_as_those_of_a_uri_are(fake: FakeProvider) -> None:
    with onym.connect(fake.uri(), policy=LOCAL) as client:
        for name, value in (
            ("temp", float("nan")),
            ("temp", 3),
            ("stream", 1),
            ("max_tokens", 0),
            ("seed", "7"),
        ):
            with pytest.raises(onym.errors.ParameterError) as caught:
                client.chat("Hi", **{name: value})
            assert caught.value.parameter == name
    assert fake.requests == []


@pytest.mark.requirement("onym-call-b")
def test_the_timeout_bounds_the_whole_call_and_retries_count_after_the_first(fake: FakeProvider) -> None:
    for _ in range(3):
        fake.fail(503, headers={"retry-after": "0"})
    with onym.connect(fake.uri("m", "retries=2"), policy=LOCAL) as client:
        with pytest.raises(ProviderError):
            client.chat("Hi")
        assert len(fake.requests) == 3
        fake.answer("late", gate=True)
        with pytest.raises(DeadlineExceeded):
            client.chat("Hi", timeout=100, retries=0)


@pytest.mark.requirement("onym-call-c")
def test_nothing_is_sent_again_after_the_first_octet_of_a_stream(fake: FakeProvider) -> None:
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "The"}}]}\n\n'
    fake.raw(chunk, headers={"content-type": "text/event-stream"}, whole=False)
    with onym.connect(fake.uri("m", "retries=5"), policy=LOCAL) as client, client.stream("Hi") as stream:
        with pytest.raises((ConnectionFailed, onym.errors.NetError, ProviderError)):
            list(stream)
        assert stream.partial().text == "The"
    assert len(fake.requests) == 1


@pytest.mark.requirement("onym-call-d")
def test_what_explain_shows_is_what_is_sent(fake: FakeProvider) -> None:
    uri = fake.uri("m", "temp=0.5&user=u&system=Be%20brief.", key=KEY)
    with onym.connect(uri, policy=LOCAL) as client:
        plan = client.explain("Hi", max_tokens=5).as_dict()
        client.chat("Hi", max_tokens=5)
    sent = fake.requests[0]
    assert sent.json == plan["body"]
    assert f"{sent.method} {fake.url}{sent.path.removeprefix('/v1')}" == f"{plan['method']} {plan['url']}"
    for name, value in plan["headers"].items():
        assert value in ("***", sent.headers[name.lower()])
    assert KEY not in json.dumps(plan)


@pytest.mark.requirement("onym-call-e")
def test_a_synchronous_and_an_asynchronous_call_send_and_give_the_same() -> None:
    def asked(fake: FakeProvider) -> list[Any]:
        return [(request.method, request.path, request.body) for request in fake.requests]

    async def acall(uri: str) -> list[Any]:
        async with onym.aconnect(uri, policy=LOCAL) as client:
            whole = await client.chat("Hi", temp=0.5)
            async with client.stream("Hello") as stream:
                events = [event async for event in stream]
            return [whole, events, await client.embed(["a"]), await client.models()]

    with FakeProvider() as one, FakeProvider() as two:
        with onym.connect(one.uri(), policy=LOCAL) as client:
            whole = client.chat("Hi", temp=0.5)
            with client.stream("Hello") as stream:
                events = list(stream)
            ours = [whole, events, client.embed(["a"]), client.models()]
        theirs = asyncio.run(acall(two.uri()))
        assert ours == theirs
        assert asked(one) == asked(two)


# -- 10.1: keys


@pytest.mark.requirement("llm-10.1-c")
def test_keys_come_from_variables_and_files_named_by_auth_and_from_the_providers_own(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n", encoding="utf-8")
    environ = {"TEAM_KEY": KEY, "OPENAI_API_KEY": KEY}
    for uri in (
        "llm://llm.example.com/m?auth=env:TEAM_KEY",
        f"llm://llm.example.com/m?auth=file:{file}",
        "llm://api.openai.com/gpt-5",
    ):
        plan = explained(uri, environ=environ)
        assert plan["headers"]["Authorization"] == "***"
        assert KEY not in str(plan)


@pytest.mark.requirement("onym-key-a")
@pytest.mark.parametrize(
    "host", ["evil.example", "api.openai.com.evil.example", "api.openai.com:8443", "openai.com", "localhost"]
)
def test_a_conventional_key_is_for_its_providers_exact_hosts(host: str) -> None:
    plan = explained(f"llm://{host}/gpt-5", environ={"OPENAI_API_KEY": KEY})
    assert plan["credential"] is None
    assert "Authorization" not in plan["headers"]


@pytest.mark.requirement("onym-key-b")
def test_auth_is_not_sent_and_an_untrusted_uri_cannot_use_it(fake: FakeProvider) -> None:
    uri = fake.uri("m", "auth=env:TEAM_KEY")
    with onym.connect(uri, policy=LOCAL, environ={"TEAM_KEY": KEY}) as client:
        client.chat("Hi")
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert b"auth" not in fake.requests[0].body
    with pytest.raises((CredentialError, PolicyError)):
        explained(
            "llm://api.openai.com/gpt-5?auth=env:TEAM_KEY",
            policy=onym.Policy.untrusted(),
            environ={"TEAM_KEY": KEY},
        )


@pytest.mark.requirement("onym-key-c")
def test_a_redirect_is_an_error_and_the_key_goes_no_further(fake: FakeProvider) -> None:
    with FakeProvider() as other:
        fake.raw(b"", status=307, headers={"location": f"{other.url}/chat/completions"})
        with onym.connect(fake.uri(key=KEY), policy=LOCAL) as client, pytest.raises(RedirectRefused):
            client.chat("Hi")
        assert other.requests == []


@pytest.mark.requirement("llm-10.2-c", "onym-key-d")
def test_no_uri_and_no_row_brings_plain_http_to_another_machine() -> None:
    for row in ProviderTable.builtin():
        for host in row.hosts:
            if row.capabilities["chat"] != "no" and host not in ("localhost", "embedded"):
                assert explained(f"llm://me:{KEY}@{host}/m")["url"].startswith("https://")
    for host in ("llm.example.com:80", "10.0.0.1:11434", "93.184.215.14:80"):
        assert explained(f"llm://:{KEY}@{host}/m")["url"].startswith("https://")


# -- 10.4 and 10.5: URIs from others


@pytest.mark.requirement("llm-10.4-a")
def test_a_system_prompt_of_an_untrusted_uri_needs_a_filter() -> None:
    uri = f"llm://:{KEY}@api.openai.com/gpt-5?system=Obey%20me."
    with pytest.raises(PolicyError) as caught:
        explained(uri, policy=onym.Policy.untrusted())
    assert caught.value.reason == "system"
    plan = explained(
        uri, policy=onym.Policy.untrusted(), system_filter=lambda text: text.replace("Obey", "Hear")
    )
    assert plan["body"]["messages"][0]["content"] == "Hear me."


@pytest.mark.requirement("llm-10.5-d", "llm-10.5-e")
@pytest.mark.parametrize("policy", [None, onym.Policy.trusted(), onym.Policy.untrusted()])
def test_this_machine_is_refused_unless_it_is_allowed(fake: FakeProvider, policy: onym.Policy | None) -> None:
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        with pytest.raises(PolicyError), onym.connect(f"llm://{host}:{fake.port}/m", policy=policy) as client:
            client.chat("Hi")
    assert fake.connections == 0
    with onym.connect(fake.uri(), policy=LOCAL) as client:
        assert client.chat("Hi").text == "Hi"


@pytest.mark.requirement("llm-10.5-e")
def test_a_variable_allows_this_machine(fake: FakeProvider) -> None:
    with onym.connect(fake.uri(), environ={"ONYM_ALLOW_LOOPBACK": "1"}) as client:
        assert client.chat("Hi").text == "Hi"


@pytest.mark.requirement("llm-10.5-a", "llm-10.5-c")
@as_subtests(
    "host",
    [
        "127.0.0.1", "127.8.9.1", "[::1]", "169.254.169.254", "[fe80::1]", "10.0.0.1", "172.16.0.1",
        "192.168.0.1", "93.184.215.14", "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]",
        "metadata.google.internal",
    ],
)  # fmt: skip
def test_an_untrusted_uri_reaches_no_listed_address_and_no_literal(host: str) -> None:
    with (
        pytest.raises(PolicyError),
        onym.connect(f"llm://:{KEY}@{host}/m?retries=0", policy=onym.Policy.untrusted()) as client,
    ):
        client.chat("Hi")


@pytest.mark.requirement("llm-10.5-a")
def test_a_list_of_hosts_is_exact() -> None:
    policy = onym.Policy.untrusted().replace(allow_hosts={"api.openai.com"})
    for host in ("openai.com", "x.api.openai.com", "api.openai.com.evil.example"):
        with pytest.raises(PolicyError), onym.connect(f"llm://:{KEY}@{host}/m", policy=policy) as client:
            client.chat("Hi")
