"""Headers of a call, of an endpoint in the configuration and of a provider row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onym.errors import ConfigError, PolicyError, UsageError
from onym.llm import batch
from onym.llm.cache import CacheSettings, ResponseCache
from onym.llm.client import connect
from onym.llm.config import Config
from onym.llm.planner import PlannerSettings, build_plan
from onym.llm.providers import ProviderTable
from onym.llm.request_headers import merge_headers, parse_headers
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret
from support import as_subtests

OPENAI = ProviderTable.builtin().get("openai")
OPTIONS: dict[str, Any] = {"policy": Policy.local(), "environ": {}}
HIDDEN = "hidden-0123456789abcdef"


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


def load_config(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return Config.load(path)


def test_a_call_replaces_the_endpoint_which_replaces_the_row(fake: FakeProvider, tmp_path: Path) -> None:
    config = load_config(
        tmp_path,
        f"""
        [endpoints.main]
        uri = "{fake.uri()}"
        headers = {{ "x-b" = "endpoint", X-C = "endpoint", user-agent = "mine" }}
        [endpoints]
        plain = "{fake.uri("m")}"
        """,
    )
    row = replace(
        ProviderTable.builtin().find("127.0.0.1", fake.port),
        name="mine",
        hosts=("127.0.0.1",),
        default_port=fake.port,
        aliases=(),
        headers={"X-A": "row", "X-B": "row", "X-C": "row"},
    )
    providers = ProviderTable.builtin().register(row)
    with connect("main", config=config, providers=providers, **OPTIONS) as client:
        client.chat("Hi", headers={"x-c": "call", "X-D": Secret("call")})
        plan = client.explain("Hi", headers={"x-c": "call", "X-D": Secret("call")})
        client.embed("Hi", headers={"x-c": "call"})
        client.models(headers={"x-c": "call"})
        client.model(headers={"x-c": "call"})
        with client.stream("Hi", headers={"x-c": "call"}) as stream:
            stream.completion()
        client.chat("Hi")
    chat, *others, last = fake.requests
    expected = {"x-a": "row", "x-b": "endpoint", "x-c": "call", "x-d": "call", "user-agent": "mine"}
    assert {name: chat.headers.get(name) for name in expected} == expected
    for request in others:
        assert (request.headers["x-b"], request.headers["x-c"]) == ("endpoint", "call")
    assert (last.headers["x-c"], last.headers.get("x-d")) == ("endpoint", None)
    shown = plan.as_dict()
    assert shown["headers"]["X-D"] == "***"
    notes = {note["parameter"]: note["origin"] for note in shown["notes"]}
    assert {name: origin for name, origin in notes.items() if name.startswith("header")} == {
        "header x-a": "provider",
        "header x-b": "endpoint",
        "header user-agent": "endpoint",
        "header x-c": "override",
        "header x-d": "override",
    }


@as_subtests(
    "name",
    [
        "Host", "content-length", "Content-Type", "transfer-encoding", "Connection", "TE", "trailer",
        "upgrade", "expect", "accept-encoding", "Authorization", "x-api-key", "API-Key", "x-goog-api-key",
        "Cookie", "Proxy-Authorization", "proxy-connection", "x-forwarded-host", "X-Original-URL",
        "x-http-method-override", "X-Amz-Security-Token", "x-amz-date", "x y", "", ":path", "x\n", 7,
    ],
)  # fmt: skip
def test_a_name_that_frames_authenticates_or_redirects_is_refused(name: Any) -> None:
    with pytest.raises(UsageError) as caught:
        parse_headers({name: "v"})
    assert caught.value.code == "usage.header"


@as_subtests("value", ["a\r\nb: c", "a\0", " a", "a\t", "x" * 8193, "\ud800", 7, None, Secret("a\nb")])
def test_a_value_that_is_not_a_line_is_refused(value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        parse_headers({"x-a": value})
    assert caught.value.code == "usage.header"


def test_other_shapes_are_refused() -> None:
    many = {f"x-{number}": "v" for number in range(65)}
    for given in ([("x-a", "v")], "x-a: v", many, {"x-a": "1", "X-A": "2"}):
        with pytest.raises(UsageError) as caught:
            parse_headers(given)
        assert caught.value.code == "usage.header"
    assert parse_headers(None) == ()
    assert merge_headers((("A", "1"), ("B", "2")), (("a", "3"),)) == (("a", "3"), ("B", "2"))


def test_the_key_header_of_the_row_is_refused(fake: FakeProvider) -> None:
    row = replace(OPENAI, key_header="X-Their-Key")
    with pytest.raises(UsageError) as caught:
        parse_headers({"x-their-key": "v"}, row.key_headers)
    assert caught.value.code == "usage.header"
    with pytest.raises(UsageError) as caught:
        replace(OPENAI, headers={"authorization": "v"})
    assert caught.value.code == "provider.bad-row"
    with pytest.raises(UsageError) as caught:
        replace(OPENAI, headers={"x-a": Secret("v")})
    assert caught.value.code == "provider.bad-row"


@as_subtests(
    "text",
    [
        '[endpoints.a]\nuri = "llm://openai/m"\nheaders = { host = "x" }',
        '[endpoints.a]\nuri = "llm://openai/m"\nheaders = { x = 1 }',
        '[endpoints.a]\nuri = "llm://openai/m"\nheaders = "x: y"',
        '[endpoints.a]\nuri = "llm://openai/m"\nheader = { x = "y" }',
        '[endpoints.a]\nheaders = { x = "y" }',
        '[providers.openai]\nheaders = { cookie = "y" }',
    ],
)
def test_a_configuration_with_such_a_header_is_refused(tmp_path_factory: Any, text: str) -> None:
    with pytest.raises(ConfigError):
        load_config(tmp_path_factory.mktemp("config"), text)


def test_an_untrusted_uri_gets_only_headers_of_the_list() -> None:
    uri = LLMURI.parse("llm://app:k@openai/m")
    untrusted = Policy.untrusted()
    listed = untrusted.replace(allow_headers=["X-Team"])

    def plan(policy: Policy, name: str) -> Any:
        settings = PlannerSettings(policy=policy, providers=ProviderTable.builtin())
        return build_plan(uri, "Hi", settings, headers={name: "v"})

    for policy, name in ((untrusted, "x-team"), (listed, "x-other")):
        with pytest.raises(PolicyError) as caught:
            plan(policy, name)
        assert caught.value.code == "net.refused.header"
    assert dict(plan(listed, "x-team").headers)["x-team"] == "v"
    assert Policy.from_dict({"allow_headers": ["X-Team"]}).allow_headers == {"x-team"}
    with pytest.raises(UsageError):
        untrusted.replace(allow_headers=[7])
    settings = PlannerSettings(
        policy=untrusted, providers=ProviderTable.builtin(), headers=(("x-team", "v"),)
    )
    with pytest.raises(PolicyError):
        build_plan(uri, "Hi", settings)


def test_a_signed_request_signs_headers_of_amazon_and_leaves_others_out() -> None:
    pytest.importorskip("botocore.auth")
    uri = LLMURI.parse(f"llm://AKIAEXAMPLE0000000:{HIDDEN}@bedrock-runtime.us-east-1.amazonaws.com/m")
    settings = PlannerSettings(policy=Policy.trusted(), providers=ProviderTable.builtin())
    plan = build_plan(uri, "Hi", settings, headers={"x-amz-thing": "v", "x-team": "search"})
    headers: dict[str, Any] = dict(plan.request.headers)
    assert (headers["x-amz-thing"], headers["x-team"]) == ("v", "search")
    signed = headers["Authorization"].reveal()
    assert "x-amz-thing" in signed
    assert "x-team" not in signed


def test_headers_are_part_of_the_cache_key_and_secret_ones_only_as_a_hash(
    fake: FakeProvider, tmp_path: Path
) -> None:
    cache = ResponseCache(CacheSettings(folder=tmp_path))
    with connect(fake.uri("m", "cache=true"), cache=cache, config=Config.empty(), **OPTIONS) as client:
        for headers in (None, {"x-a": "1"}, {"x-a": "2"}, {"x-a": Secret(HIDDEN)}, {"x-a": Secret("other")}):
            client.chat("Hi", headers=headers)
            client.chat("Hi", headers=headers)
    assert len(fake.requests) == 5
    assert not any(HIDDEN.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_batch_sends_the_headers_of_its_endpoint_and_of_its_calls(
    fake: FakeProvider, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "a", "messages": [{"role": "user", "content": "Hi"}]}\n')
    config = load_config(
        tmp_path, f'[endpoints.main]\nuri = "{fake.uri("m")}"\nheaders = {{ x-a = "1", x-b = "1" }}'
    )
    overrides = {"headers": {"X-B": Secret(HIDDEN)}}
    report = batch.run("main", rows, tmp_path / "out.jsonl", config=config, overrides=overrides, **OPTIONS)
    assert report.answered == 1
    [request] = fake.requests
    assert (request.headers["x-a"], request.headers["x-b"]) == ("1", HIDDEN)
    assert not any(HIDDEN.encode() in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    with pytest.raises(UsageError) as caught:
        batch.run("main", rows, tmp_path / "p.jsonl", config=config, engine="provider", **OPTIONS)
    assert caught.value.code == "usage.header"
