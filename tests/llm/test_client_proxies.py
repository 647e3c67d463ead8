"""Clients on company networks: every kind of call through a real proxy, and the hint about an unused one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import onym
from net_support import Authority, FixedResolver, Peer, Server
from onym.errors import NetError, PolicyError, ResolveError, UsageError
from onym.llm.batch import arun
from onym.llm.config import Config
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.proxies import ProxyConfig
from proxy_support import RunningProxy, tinyproxy

KEY = "sk-" + "4711" * 8
CHAT = {"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}
VECTORS = {"data": [{"index": 0, "embedding": [0.5]}]}
MODELS = {"data": [{"id": "m1", "object": "model"}]}
EVENTS = (
    b'data: {"choices":[{"delta":{"content":"o"}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"k"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


def serve(peer: Peer) -> None:
    """An OpenAI-compatible server."""
    while (request := peer.request()) is not None:
        line, _, body = request
        streams = b'"stream":true' in body
        answer: Any = CHAT if "/chat/" in line else VECTORS if "/embeddings" in line else MODELS
        data = EVENTS if streams else json.dumps(answer).encode()
        kind = "text/event-stream" if streams else "application/json"
        peer.send(
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        )


class Company(NamedTuple):
    """A proxy with a login, and a server that only it can look up."""

    proxy: RunningProxy
    server: Server
    tls: TLSConfig

    @property
    def uri(self) -> str:
        return f"llm://:{KEY}@pub.example:{self.server.port}/m1"

    @property
    def url(self) -> str:
        return f"http://app:pw-4711@127.0.0.1:{self.proxy.port}"

    def network(self, **options: Any) -> NetConfig:
        return NetConfig(tls=self.tls, **options)


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    authority = Authority()
    with (
        tinyproxy(login=("app", "pw-4711")) as proxy,
        Server(serve, tls=authority.server("pub.example")) as server,
    ):
        yield Company(proxy, server, authority.trust(tmp_path_factory.mktemp("ca")))


@pytest.fixture
def through(company: Company) -> NetConfig:
    return company.network(proxy=ProxyConfig.parse(company.url))


OPTIONS: dict[str, Any] = {"config": Config.empty(), "environ": {}}


def test_every_call_of_a_client_goes_through_the_proxy(company: Company, through: NetConfig) -> None:
    before = len(company.proxy.requests())
    with onym.connect(company.uri, network=through, **OPTIONS) as client:
        assert client.chat("hi").text == "ok"
        with client.stream("hi") as stream:
            assert "".join(stream.text) == "ok"
        assert client.embed("hi").vectors[0] == (0.5,)
        assert [model.id for model in client.models()] == ["m1"]
    # one connection serves them all
    assert company.proxy.requests()[before:] == [f"pub.example:{company.server.port}"]


def test_every_call_of_an_async_client_goes_through_the_proxy(company: Company, through: NetConfig) -> None:
    async def call() -> None:
        async with onym.aconnect(company.uri, network=through, **OPTIONS) as client:
            assert (await client.chat("hi")).text == "ok"
            async with client.stream("hi") as stream:
                assert "".join([text async for text in stream.text]) == "ok"
            assert (await client.embed("hi")).vectors[0] == (0.5,)
            assert [model.id for model in await client.models()] == ["m1"]

    before = len(company.proxy.requests())
    asyncio.run(call())
    assert company.proxy.requests()[before:] == [f"pub.example:{company.server.port}"]


def test_onym_proxy_names_the_proxy_or_says_that_the_environment_does(company: Company) -> None:
    for environ in (
        {"ONYM_PROXY": company.url},
        {"ONYM_PROXY": "environment", "HTTPS_PROXY": company.url},
        {"ONYM_PROXY": "environment", "all_proxy": company.url, "NO_PROXY": "other.example"},
    ):
        before = len(company.proxy.requests())
        options = {"config": Config.empty(), "environ": environ}
        with onym.connect(company.uri, network=company.network(), **options) as client:
            assert client.chat("hi").text == "ok"
        assert len(company.proxy.requests()) == before + 1


@pytest.mark.parametrize(
    "more", [{}, {"ONYM_PROXY": ""}, {"ONYM_PROXY": "none"}, {"ONYM_PROXY": "environment", "NO_PROXY": "*"}]
)
def test_without_onym_proxy_nothing_of_the_environment_is_used(
    company: Company, more: dict[str, str]
) -> None:
    environ = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy"), company.url) | more
    resolver = FixedResolver({"pub.example": [["127.0.0.1"]]})
    network = company.network(
        resolver=resolver, policy=Policy.trusted().replace(allow_networks=("127.0.0.0/8",))
    )
    before = len(company.proxy.requests())
    with onym.connect(company.uri, network=network, config=Config.empty(), environ=environ) as client:
        assert client.chat("hi").text == "ok"
    assert len(company.proxy.requests()) == before


def test_an_invalid_onym_proxy_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match="ONYM_PROXY") as caught:
        onym.connect("llm://openai/m", config=Config.empty(), environ={"ONYM_PROXY": "http://p:port"})
    assert caught.value.code == "usage.proxy"


def test_an_untrusted_uri_does_not_use_a_proxy_that_looks_up_names(company: Company) -> None:
    policy = Policy.untrusted().replace(ports=None)
    before = len(company.proxy.requests())
    with (
        onym.connect(company.uri, network=company.network(), policy=policy, config=Config.empty(),
                     environ={"ONYM_PROXY": company.url}) as client,
        pytest.raises(PolicyError) as caught,
    ):  # fmt: skip
        client.chat("hi")
    assert caught.value.reason == "proxy-resolution"
    assert len(company.proxy.requests()) == before


def test_a_batch_goes_through_the_proxy(company: Company, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"id": f"r{n}", "prompt": "hi"}) + "\n" for n in range(5)))
    before = len(company.proxy.requests())
    asyncio.run(
        arun(company.uri, source, tmp_path / "out.jsonl", network=company.network(), config=Config.empty(),
             environ={"ONYM_PROXY": company.url}, concurrency=2)
    )  # fmt: skip
    assert (tmp_path / "out.jsonl").read_text().count('"text":"ok"') == 5
    assert len(company.proxy.requests()) > before


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"])
@pytest.mark.parametrize("kind", ["unknown name", "refused"])
def test_a_failed_connection_names_the_variable_of_an_unused_proxy(
    company: Company, variable: str, kind: str
) -> None:
    error = fail(kind, {variable: "http://app:pw-4711@proxy.corp:3128"})
    assert f"{variable} is set" in (error.hint or "")
    assert "ONYM_PROXY=environment" in (error.hint or "")
    assert "--proxy environment" in (error.hint or "")
    assert "proxy.corp" not in str(error)
    assert "pw-4711" not in str(error)


def test_there_is_no_such_hint_without_a_variable_or_to_this_computer() -> None:
    for kind, environ in (
        ("unknown name", {}),
        ("unknown name", {"NO_PROXY": "x"}),
        ("loopback", {"HTTPS_PROXY": "http://proxy.corp:3128"}),
    ):
        assert "ONYM_PROXY" not in (fail(kind, environ).hint or "")


class NoName(FixedResolver):
    """Knows no name."""

    def lookup(self, host: str, deadline: float | None) -> list[str]:
        raise ResolveError("the host name cannot be resolved", hint="Check its spelling.")


def fail(kind: str, environ: dict[str, str]) -> NetError:
    """The error of a connection that fails in this way."""
    names = FixedResolver({"pub.example": [["127.0.0.1"]]})
    resolver = NoName({}) if kind == "unknown name" else names
    policy = Policy.local().replace(allow_networks=("127.0.0.0/8",))
    host = "localhost" if kind == "loopback" else "pub.example"
    with (
        onym.connect(
            f"llm://:{KEY}@{host}:9/m1?retries=0",
            network=NetConfig(policy=policy, resolver=resolver),
            config=Config.empty(),
            environ=environ,
        ) as client,
        pytest.raises(NetError) as caught,
    ):
        client.chat("hi")
    return caught.value


def test_the_real_environment_is_not_changed() -> None:
    assert "ONYM_PROXY" not in os.environ
