"""Every provider row before anything is sent: which key, which limits, and that no parameter is lost."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onym
from onym.errors import (
    AuthenticationError,
    CredentialError,
    NotFoundError,
    OnymWarning,
    ParameterError,
    ResolveError,
    UnsupportedError,
)
from onym.llm.config import Config
from onym.llm.dialects import DIALECTS
from onym.llm.plan import Plan
from onym.llm.providers import Provider, ProviderTable
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider
from support import as_subtests

ROWS = {row.name: row for row in ProviderTable.builtin()}
HOSTED = {name: row for name, row in ROWS.items() if row.key_variables and row.dialect in DIALECTS}


class Spoken(NamedTuple):
    """One wire format of one row, and a URI that asks for it."""

    row: Provider
    api: str | None

    @property
    def dialect(self) -> str:
        return self.row.dialect if self.api is None else self.row.apis[self.api].dialect

    @property
    def uri(self) -> str:
        query = {name: "x" for name, value in self.row.path_values.items() if value.default is None}
        if self.api is not None:
            query[self.row.apis[self.api].when or "api"] = self.api
        return f"llm://{host_of(self.row)}/m" + "".join(
            f"{'&' if index else '?'}{name}={value}" for index, (name, value) in enumerate(query.items())
        )


def host_of(row: Provider) -> str:
    """An alias, or a host that the row's pattern is about."""
    if row.hosts:
        return row.name
    if not row.host_suffixes:
        return "llm.example.com" if row.name == "openai-compatible" else "localhost:9999"
    pattern = row.host_suffixes[0].replace("*", "eu-1")
    return f"mine{pattern}" if pattern.startswith(".") else pattern


SPOKEN = [
    item
    for row in ROWS.values()
    for item in (Spoken(row, None), *(Spoken(row, api) for api in row.apis))
    if item.dialect in DIALECTS and row.capabilities["chat"] != "no"
]


def client(uri: str, *, environ: Mapping[str, str] | None = None, **how: Any) -> onym.Client:
    """A client that may go anywhere and sends nothing."""
    settings_: dict[str, Any] = {"policy": Policy.local(), "config": Config(), **how}
    return onym.connect(uri, environ={"AWS_EC2_METADATA_DISABLED": "true", **(environ or {})}, **settings_)


def explained(uri: str, overrides: Mapping[str, Any] | None = None, **how: Any) -> Plan:
    with client(uri, **how) as made:
        return made.explain("Hi", **(overrides or {}))


# -- keys


@pytest.mark.requirement("onym-key-e")
@pytest.mark.parametrize(
    ("uri", "environ", "names"),
    [
        ("llm://openai/m", {}, "OPENAI_API_KEY"),
        ("llm://api.openai.com/m?api=responses", {}, "OPENAI_API_KEY"),
        ("llm://api.anthropic.com/m", {}, "ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN"),
        ("llm://gemini/m", {}, "GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("llm://api.mistral.ai/m", {}, "MISTRAL_API_KEY"),
        ("llm://cohere/m", {}, "CO_API_KEY or COHERE_API_KEY"),
        (
            "llm://r.openai.azure.com/m",
            {"AZURE_OPENAI_ENDPOINT": "https://r.openai.azure.com/"},
            "AZURE_OPENAI_API_KEY",
        ),
        ("llm://ollama.com/m", {}, "OLLAMA_API_KEY"),
    ],
)
def test_a_missing_key_names_the_variable_and_the_host(
    uri: str, environ: Mapping[str, str], names: str
) -> None:
    with pytest.raises(CredentialError) as caught, client(uri, environ=environ) as made:
        made.chat("Hi")
    error = caught.value
    host = uri.removeprefix("llm://").partition("/")[0]
    assert error.code == "credential.missing"
    assert host in error.message
    assert names in error.message
    assert f"export {names.partition(' or ')[0]}=…" in (error.hint or "")


@pytest.mark.requirement("onym-key-a", "onym-key-e")
@as_subtests("name", sorted(HOSTED))
def test_a_key_of_another_provider_is_never_used(name: str) -> None:
    row = HOSTED[name]
    others = {
        variable: f"key-of-{other.name}"
        for other in ROWS.values()
        for variable in other.key_variables
        if variable not in row.key_variables
    }
    plan = explained(Spoken(row, None).uri, environ=others)
    assert plan.endpoint.credential is None
    assert "key-of-" not in json.dumps(plan.as_dict())
    if row.needs_key:
        assert plan.as_dict()["unkeyed"] is not None
        with pytest.raises(CredentialError):
            _ = plan.request


@pytest.mark.requirement("onym-key-a", "onym-key-e")
@as_subtests("name", sorted(HOSTED))
def test_a_key_goes_to_its_own_hosts_and_no_others(name: str) -> None:
    row = HOSTED[name]
    environ = {row.key_variables[0]: "key-of-it"}
    for host in row.hosts:
        port = "" if row.default_port in (443, 11434) else f":{row.default_port}"
        if ProviderTable.builtin().find(host, row.default_port if port else None).name != name:
            continue  # two servers of this machine share the port
        plan = explained(Spoken(row, None).uri.replace(f"//{name}/", f"//{host}{port}/"), environ=environ)
        assert plan.endpoint.credential is not None, host
        assert plan.endpoint.credential.source == f"env:{row.key_variables[0]}"
    strangers = ("llm.example.com", "10.0.0.1", f"{row.hosts[0]}.example.com" if row.hosts else "a.b")
    for host in strangers:
        assert explained(f"llm://{host}/m", environ=environ).endpoint.credential is None
    for pattern in row.host_suffixes:
        host = f"evil{pattern}" if pattern.startswith(".") else pattern.replace("*", "evil-1")
        uri = Spoken(row, None).uri
        plan = explained(f"llm://{host}/{uri.rpartition('/')[2]}", environ=environ)
        # anybody may have a name below a pattern: only one that the person wrote down gets the key
        assert plan.endpoint.credential is None, host


@pytest.mark.requirement("onym-key-e")
def test_a_key_for_another_host_says_how_to_mean_it() -> None:
    uri = "llm://r.openai.azure.com/m"
    environ = {
        "AZURE_OPENAI_API_KEY": "k-of-mine",
        "AZURE_OPENAI_ENDPOINT": "https://other.openai.azure.com/",
    }
    with pytest.raises(CredentialError) as caught:
        client(uri, environ=environ).chat("Hi")
    assert caught.value.code == "credential.not-bound"
    assert "?auth=env:NAME" in (caught.value.hint or "")
    assert "k-of-mine" not in str(caught.value)


# -- who is on the other side


@pytest.mark.requirement("onym-answer-d")
@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("opnai", "openai"),
        ("antropic", "anthropic"),
        ("mistrl", "mistral"),
        ("ollama:1234", "localhost:1234"),
    ],
)
def test_a_name_that_is_nearly_an_alias_is_told_so(
    word: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with (
        client(f"llm://{word}/m?retries=0") as made,
        pytest.raises(ResolveError) as caught,
    ):
        made.chat("Hi")
    assert meant in (caught.value.hint or "")


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider() as server:
        yield server


@pytest.mark.requirement("onym-answer-d")
def test_an_unknown_model_leads_to_the_list_of_models(fake: FakeProvider) -> None:
    uri = fake.uri("no-such-model")
    with client(uri) as made:
        fake.fail(404, code="model_not_found")
        with pytest.raises(NotFoundError) as caught:
            made.chat("Hi")
    assert f"onym models list {uri}" in (caught.value.hint or "")


@pytest.mark.requirement("onym-key-e")
def test_a_wrong_key_says_where_it_came_from(fake: FakeProvider) -> None:
    uri = fake.uri("m", "auth=env:MY_KEY")
    with client(uri, environ={"MY_KEY": "k-of-mine"}) as made:
        fake.fail(401, "bad k-of-mine", code="invalid_api_key")
        with pytest.raises(AuthenticationError) as caught:
            made.chat("Hi")
    assert "env:MY_KEY" in (caught.value.hint or "")
    assert f"127.0.0.1:{fake.port}" in (caught.value.endpoint or "")
    assert "k-of-mine" not in str(caught.value)


@pytest.mark.requirement("onym-key-e")
@pytest.mark.parametrize(
    ("uri", "names"),
    [
        ("llm://bedrock/m", "AWS_BEARER_TOKEN_BEDROCK"),
        ("llm://bedrock/m", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("llm://vertex/m?project=p", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_a_missing_credential_of_a_cloud_names_what_its_own_tools_read(uri: str, names: str) -> None:
    with pytest.raises(CredentialError) as caught, client(uri) as made:
        made.chat("Hi")
    host = uri.removeprefix("llm://").partition("/")[0]
    assert caught.value.code == "credential.missing"
    assert host in caught.value.message
    assert names in (caught.value.hint or "")


# -- ranges and formats


@pytest.mark.requirement("onym-call-a", "onym-map-a")
@pytest.mark.parametrize(
    ("uri", "parameter", "value", "limit"),
    [
        ("llm://anthropic/m", "temp", 1.5, "at most 1"),
        ("llm://bedrock/m", "temp", 1.5, "at most 1"),
        ("llm://cohere/m", "top_p", 1, "at most 0.99"),
        ("llm://cohere/m", "top_k", 501, "at most 500"),
        ("llm://openai/m", "stop", ["1", "2", "3", "4", "5"], "at most 4 of them"),
        ("llm://fireworks/m", "top_k", 101, "at most 100"),
    ],
)
def test_a_value_out_of_the_providers_range_is_refused_warned_of_or_dropped(
    uri: str, parameter: str, value: Any, limit: str
) -> None:
    title = ROWS[uri.removeprefix("llm://").partition("/")[0]].title
    with pytest.raises(ParameterError) as caught:
        explained(uri, {parameter: value})
    assert caught.value.code == "llm.provider-range"
    assert caught.value.parameter == parameter
    assert title in caught.value.message
    assert limit in caught.value.message
    for how in ("warn", "drop"):
        plan = explained(uri, {parameter: value}, on_unsupported=how)
        assert plan.body == explained(uri).body
        note = next(item for item in plan.notes if item.parameter == parameter)
        assert (note.action, note.reason) == ("dropped", f"it takes {limit}")
        assert any(parameter in warning and title in warning for warning in plan.warnings) is (how == "warn")


@pytest.mark.requirement("onym-call-a", "onym-map-a")
def test_a_dropped_parameter_warns_once_at_the_call() -> None:
    with FakeProvider() as fake:
        row = ROWS["anthropic"]
        table = ProviderTable.builtin().register(
            replace(row, name="near", aliases=(), hosts=("127.0.0.1",), default_port=fake.port)
        )
        answer = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
        fake.raw(json.dumps(answer).encode(), status=200)
        uri = f"llm://:k@127.0.0.1:{fake.port}/m?temp=1.5"
        with (
            client(uri, providers=table, on_unsupported="warn") as made,
            pytest.warns(OnymWarning, match=r"\btemp\b.*\bAnthropic\b.*\b1\b"),
        ):
            assert made.chat("Hi").text == "Hi"
        assert "temperature" not in fake.requests[0].json


@pytest.mark.requirement("onym-call-a", "onym-map-a")
@pytest.mark.parametrize("name", ["anthropic", "bedrock", "perplexity"])
def test_json_where_only_schemas_exist_is_refused_with_what_it_takes(name: str) -> None:
    uri = f"llm://{name}/m"
    with pytest.raises(UnsupportedError) as caught:
        explained(uri, {"format": "json"})
    assert "json_schema" in (caught.value.hint or "")
    assert (caught.value.code, caught.value.parameter) == ("llm.no-format", "format")
    assert ROWS[name].title in str(caught.value)
    assert caught.value.message.endswith(" json_schema")
    for how in ("warn", "drop"):
        plan = explained(uri, {"format": "json"}, on_unsupported=how)
        assert plan.body == explained(uri).body
        assert bool(plan.warnings) is (how == "warn")
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert explained(uri, {"format": "json_schema", "schema": schema}).body != explained(uri).body


# -- no parameter is lost

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "temp": st.floats(0, 2).map(lambda value: round(value, 3)) | st.integers(0, 2),
    "max_tokens": st.integers(1, 100_000),
    "top_p": st.floats(0, 1).map(lambda value: round(value, 3)),
    "top_k": st.integers(0, 1000),
    "stop": st.lists(st.text("abc ⏎", min_size=1, max_size=4), min_size=1, max_size=20, unique=True),
    "seed": st.integers(-(2**31), 2**31),
    "format": st.sampled_from(["text", "json", "json_schema"]),
    "system": st.text("xyz é", min_size=1, max_size=20),
    "cache": st.booleans(),
    "stream": st.booleans(),
    "timeout": st.integers(1, 10_000),
    "retries": st.integers(0, 9),
}
SCHEMA = {"type": "object", "title": "T", "properties": {"a": {"type": "string"}}}


def at(body: Any, wire: str) -> Any:
    """What stands at a dotted wire name; `...` where nothing does."""
    for step in wire.split("."):
        if not isinstance(body, Mapping) or step not in body:
            return ...
        body = body[step]
    return body


def leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, Mapping):
        for value in data.values():
            yield from leaves(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from leaves(value)
    else:
        yield data


def check_kept(name: str, value: Any, plan: Plan, bare: Plan) -> None:
    """The value is in the request where its note says, or a note says why it is not."""
    notes = [item for item in plan.notes if item.parameter == name]
    assert notes, f"{name} was lost without a word"
    actions = {item.action for item in notes}
    if "dropped" in actions:
        assert all(item.reason for item in notes if item.action == "dropped")
        assert actions == {"dropped"}
        wire = plan.endpoint.dialect.parameters.get(name)
        if wire is not None and name not in ("system", "stream", "format", "stop"):
            assert at(plan.body, wire) == at(bare.body, wire)
        return
    for note in notes:
        if note.action == "client":
            assert name in ("timeout", "retries", "cache", "stream") or (name, value) == ("format", "text")
        else:
            check_sent(name, value, note.wire_name or "", plan, bare)
    if name in ("timeout", "retries"):
        assert (plan.timeout if name == "timeout" else plan.retries) == (
            value / 1000 if name == "timeout" else value
        )


def check_sent(name: str, value: Any, wire: str, plan: Plan, bare: Plan) -> None:
    """The value is in the request under that name, in the shape that the API has for it."""
    assert wire
    if name == "system":
        assert value in list(leaves(plan.body))
    elif name == "stream":
        assert plan.stream is value
    elif name == "format":
        assert plan.body != bare.body
    elif name == "cache":
        assert at(plan.body, wire) is not ...
    else:
        found = at(plan.body, wire)
        assert (list(found) if name == "stop" else found) == value


@pytest.mark.requirement("onym-map-a")
@pytest.mark.parametrize("uri", ["llm://vllm/m?api=messages", "llm://deepseek/m?api=messages"])
def test_json_is_dropped_where_the_dialect_of_another_api_has_only_schemas(uri: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        explained(uri, {"format": "json"})
    assert caught.value.source is not None
    plan = explained(uri, {"format": "json"}, on_unsupported="warn")
    assert plan.body == explained(uri).body
    assert plan.warnings


@pytest.mark.requirement("onym-map-b", "llm-9-a", "llm-6-b", "onym-call-a")
@pytest.mark.parametrize("name", sorted(VALUES))
@settings(max_examples=50)
@given(data=st.data())
def test_a_parameter_is_in_the_body_or_a_note_says_why_not(name: str, data: st.DataObject) -> None:
    spoken = data.draw(st.sampled_from(SPOKEN))
    value = data.draw(VALUES[name])
    schema = {"schema": SCHEMA} if value == "json_schema" else {}
    bare = explained(spoken.uri)
    kept = None
    try:
        kept = explained(spoken.uri, {name: value, **schema})
    except (ParameterError, UnsupportedError) as error:
        refused: ParameterError | UnsupportedError | None = error
    else:
        refused = None
        check_kept(name, value, kept, bare)
        assert "dropped" not in {note.action for note in kept.notes if note.parameter == name}
    for how in ("warn", "drop"):
        plan = explained(spoken.uri, {name: value, **schema}, on_unsupported=how)
        check_kept(name, value, plan, bare)
        dropped = any(note.action == "dropped" for note in plan.notes if note.parameter == name)
        assert dropped is (refused is not None)
        assert bool(plan.warnings) is (dropped and how == "warn")
    if refused is not None:
        assert refused.parameter == name
        assert spoken.row.title in str(refused)
        assert (refused.source if isinstance(refused, UnsupportedError) else refused.clause) is not None


@pytest.mark.requirement("onym-map-b", "llm-9-a", "llm-6-b")
@settings(max_examples=100)
@given(spoken=st.sampled_from(SPOKEN), values=st.fixed_dictionaries({}, optional=VALUES))
def test_no_parameter_is_lost_beside_others(spoken: Spoken, values: dict[str, Any]) -> None:
    schema = {"schema": SCHEMA} if values.get("format") == "json_schema" else {}
    bare = explained(spoken.uri)
    plan = explained(spoken.uri, {**values, **schema}, on_unsupported="drop")
    for name, value in values.items():
        check_kept(name, value, plan, bare)
