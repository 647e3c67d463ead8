"""The provider table: facts with a source, found by exact host, and three steps to add to it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.errors import ConfigError, UsageError
from onym.llm import providers as plugin_loader
from onym.llm.providers import (
    CAPABILITIES,
    Api,
    PathValue,
    Provider,
    ProviderTable,
    is_host,
    is_loopback,
    matches_pattern,
)
from onym.uri.llm import LLMURI
from support import as_subtests

ROWS = list(ProviderTable.builtin())
#: the one-word hosts that npm llm-strings 1.8.0 knows
ELSEWHERE = """
    openai azure anthropic google google-vertex aistudio vertex mistral cohere bedrock openrouter
    vercel xai grok meta groq fal deepinfra black-forest-labs bfl together togetherai fireworks
    fireworksai deepseek moonshotai moonshot perplexity alibaba alibabacloud dashscope cerebras
    replicate prodia luma bytedance kling elevenlabs assemblyai deepgram gladia lmnt hume revai
    baseten huggingface wandb weightsandbiases baidu qianfan xiaomi minimax atlascloud novita
    novitaai parasail venice
"""


def row(name: str = "mine", **facts: Any) -> Provider:
    given: dict[str, Any] = {
        "title": "Mine",
        "hosts": ("llm.example",),
        "docs": "",
        "source": "",
        "checked": "2026-01-01",
    }
    return Provider(name=name, **(given | facts))


def table(*rows: Provider, plugins: Callable[[], Iterable[EntryPoint]] = tuple) -> ProviderTable:
    return ProviderTable(rows, plugins=plugins)


# --- every row


@pytest.mark.requirement("onym-provider-a")
@as_subtests("provider", ROWS, ids=[provider.name for provider in ROWS])
def test_every_row_says_where_its_facts_come_from_and_when_they_were_checked(provider: Provider) -> None:
    assert provider.docs.startswith("https://")
    assert provider.source
    assert date(2026, 11, 1) <= date.fromisoformat(provider.checked) <= date(2026, 11, 30)


@as_subtests("provider", ROWS, ids=[provider.name for provider in ROWS])
def test_a_row_is_data_that_json_can_carry_and_no_fact_of_it_is_code(provider: Provider) -> None:
    assert not any(callable(getattr(provider, field.name)) for field in dataclasses.fields(provider))
    plain = json.loads(json.dumps(provider.as_dict()))
    assert plain["name"] == provider.name
    assert set(plain["capabilities"]) == set(CAPABILITIES)
    assert hash(provider) == hash(dataclasses.replace(provider))
    assert provider == dataclasses.replace(provider)


@as_subtests("provider", ROWS, ids=[provider.name for provider in ROWS])
def test_each_host_of_a_row_finds_it_at_its_own_port_alone(provider: Provider) -> None:
    builtin = ProviderTable.builtin()
    for host in provider.hosts:
        if not is_loopback(host):
            assert builtin.find(host) is provider
        if provider.name != "localai":  # it shares its port with llama.cpp
            assert builtin.find(host.upper(), provider.default_port) is provider
        assert builtin.find(host, 8443) is not provider
        assert builtin.find(f"{host}.") is not provider
        assert builtin.find(f"{host}.evil.example") is not provider
        # a pattern of the row's may mean it, below a domain that nobody else can have
        assert builtin.find(f"evil{host}") is not provider or host.endswith(".googleapis.com")


@pytest.mark.requirement("onym-provider-b")
@as_subtests("word", ELSEWHERE.split())
def test_every_alias_of_llm_strings_is_one_here(word: str) -> None:
    found = ProviderTable.builtin().find_alias(word)
    assert found is not None
    assert ProviderTable.builtin().aliases()[word] == found.hosts[0]


def test_every_row_with_a_host_is_named_by_its_own_name_too() -> None:
    aliases = ProviderTable.builtin().aliases()
    for provider in ROWS:
        if provider.hosts != ("localhost",):
            assert aliases.get(provider.name) == provider.host
        assert provider.host == (provider.hosts[0] if provider.hosts else None)
    assert len(aliases) == len(set(aliases))
    assert aliases["ollama"] == "localhost"
    assert aliases["vllm"] == "localhost:8000"
    assert aliases["embedded"] == "embedded"
    assert aliases["OpenAI"] == "api.openai.com"


@pytest.mark.requirement("llm-4.2.3-a")
def test_the_default_ports_are_those_of_the_draft() -> None:
    builtin = ProviderTable.builtin()
    assert builtin.find("api.openai.com").default_port == 443
    assert builtin.find("localhost").default_port == 11434


def test_an_alias_in_a_uri_becomes_the_real_host() -> None:
    aliases = ProviderTable.builtin().aliases()
    assert LLMURI.parse("llm://openai/gpt-5").normalize(aliases).host == "api.openai.com"
    assert LLMURI.parse("llm://openai:8443/gpt-5").normalize(aliases).host == "openai"
    assert LLMURI.parse("llm://embedded/m").normalize(aliases).host == "embedded"


# --- finding


@as_subtests(
    ("host", "port", "name"),
    [
        ("api.openai.com", None, "openai"),
        ("my-res.openai.azure.com", None, "azure-openai"),
        ("my-res.openai.azure.com", 443, "azure-openai"),
        ("my-res.openai.azure.com", 444, "openai-compatible"),
        ("a.b.services.ai.azure.com", None, "azure-openai"),
        ("openai.azure.com", None, "openai-compatible"),
        (".openai.azure.com", None, "openai-compatible"),
        ("x..openai.azure.com", None, "openai-compatible"),
        ("evilopenai.azure.com", None, "openai-compatible"),
        ("x.openai.azure.com.evil.example", None, "openai-compatible"),
        ("x_y.openai.azure.com", None, "openai-compatible"),
        ("bedrock-runtime.eu-west-1.amazonaws.com", None, "bedrock"),
        ("bedrock.us-west-2.amazonaws.com", None, "bedrock"),
        ("bedrock-runtime.a.b.amazonaws.com", None, "openai-compatible"),
        ("europe-west4-aiplatform.googleapis.com", None, "vertex"),
        ("-aiplatform.googleapis.com", None, "openai-compatible"),
        ("localhost", None, "ollama"),
        ("localhost", 11434, "ollama"),
        ("127.0.0.1", None, "ollama"),
        ("127.9.9.9", 11434, "ollama"),
        ("::1", None, "ollama"),
        ("0:0:0:0:0:0:0:1", None, "ollama"),
        ("box.localhost", None, "ollama"),
        ("localhost", 8000, "vllm"),
        ("::1", 8080, "llama-cpp"),
        ("127.0.0.1", 8001, "openai-compatible-local"),
        ("embedded", None, "embedded"),
        ("embedded", 1234, "openai-compatible"),
        ("openai", 8443, "openai-compatible"),
        ("10.0.0.5", 8000, "openai-compatible"),
        ("models.example", None, "openai-compatible"),
    ],
)
def test_a_host_finds_its_row_and_a_lookalike_the_generic_one(host: str, port: int | None, name: str) -> None:
    assert ProviderTable.builtin().find(host, port).name == name


@given(st.text())
def test_any_text_as_a_host_finds_some_row(host: str) -> None:
    assert ProviderTable.builtin().find(host).name
    assert (
        ProviderTable.builtin().find_alias(host) is None or host.lower() in ProviderTable.builtin().aliases()
    )


@pytest.mark.parametrize(
    "host",
    ["128.0.0.1", "::2", "localhost.example", "notlocalhost", "127.1", "::ffff:127.0.0.1", ""],
)
def test_what_is_not_plainly_this_machine_is_not_taken_for_it(host: str) -> None:
    assert not is_loopback(host)


def test_only_an_exact_host_at_its_own_port_is_served_exactly() -> None:
    openai = ProviderTable.builtin().get("openai")
    assert openai.serves_exactly("API.openai.com")
    assert openai.serves_exactly("api.openai.com", 443)
    assert not openai.serves_exactly("api.openai.com", 8443)
    assert not openai.serves_exactly("openai")
    azure = ProviderTable.builtin().get("azure-openai")
    assert azure.serves("x.openai.azure.com")
    assert not azure.serves_exactly("x.openai.azure.com")
    assert azure.host is None


def test_the_label_goes_to_the_header_of_its_prefix_or_to_nothing() -> None:
    builtin = ProviderTable.builtin()
    openai = builtin.get("openai")
    assert openai.find_label_header("org-1") == "OpenAI-Organization"
    assert openai.find_label_header("proj_1") == "OpenAI-Project"
    assert openai.find_label_header("my-app") is None
    assert builtin.get("openrouter").find_label_header("my-app") == "X-OpenRouter-Title"


def test_a_format_is_offered_unless_the_provider_is_known_to_refuse_it() -> None:
    builtin = ProviderTable.builtin()
    assert builtin.get("openai").formats == {"json", "json_schema"}
    assert builtin.get("deepseek").formats == {"json"}
    assert builtin.get("perplexity").formats == {"json_schema"}
    assert builtin.get("openai-compatible").formats == {"json", "json_schema"}


def test_the_model_on_this_machine_promises_what_it_can_do() -> None:
    able = ProviderTable.builtin().get("embedded").capabilities
    assert {name for name, value in able.items() if value == "no"} == {
        "tools",
        "images",
        "documents",
        "embeddings",
    }
    assert able["json_schema"] == "yes"


def test_rows_of_other_dialects_are_here_to_be_named() -> None:
    builtin = ProviderTable.builtin()
    named = {
        name: builtin.get(name).dialect for name in ("anthropic", "gemini", "vertex", "cohere", "bedrock")
    }
    assert named == {
        "anthropic": "anthropic_messages",
        "gemini": "gemini",
        "vertex": "gemini_vertex",
        "cohere": "cohere_v2",
        "bedrock": "bedrock_converse",
    }


# --- adding rows


def test_registering_gives_a_new_table_and_leaves_the_old_one() -> None:
    builtin = ProviderTable.builtin()
    added = builtin.register(row(aliases=("my",)))
    assert added.find("llm.example").name == "mine"
    assert added.aliases()["my"] == added.aliases()["mine"] == "llm.example"
    assert builtin.find("llm.example").name == "openai-compatible"
    assert len(added) == len(builtin) + 1
    assert added.find_own("mine") is not None
    assert builtin.find_own("mine") is None


@pytest.mark.parametrize(
    "taken",
    [
        row("openai"),
        row(hosts=("api.openai.com",)),
        row(hosts=("new.example", "api.openai.com")),
        row(aliases=("openai",)),
        row(aliases=("grok",)),
        row("grok"),
        row("mine", hosts=("mine.example",), aliases=("vllm",)),
    ],
)
def test_a_name_an_alias_or_a_host_belongs_to_one_row(taken: Provider) -> None:
    with pytest.raises(UsageError) as caught:
        ProviderTable.builtin().register(taken)
    assert caught.value.code == "provider.taken"


def test_a_row_can_take_the_place_of_the_one_of_its_name_and_of_no_other() -> None:
    builtin = ProviderTable.builtin()
    moved = builtin.register(row("openai", hosts=("gateway.example",)), replace=True)
    assert moved.find("gateway.example").name == "openai"
    assert moved.find("api.openai.com").name == "openai-compatible"
    assert moved.aliases()["openai"] == "gateway.example"
    with pytest.raises(UsageError):
        builtin.register(row("mine", hosts=("api.openai.com",)), replace=True)


def test_another_port_of_a_known_host_can_be_a_row_of_its_own() -> None:
    mine = row("my-server", hosts=("localhost",), default_port=8000)
    added = ProviderTable.builtin().register(mine)
    assert added.find("localhost", 8000) is mine
    assert added.find("localhost").name == "ollama"
    assert added.find("127.0.0.1", 8000) is mine
    assert added.find("localhost", 8001).name == "openai-compatible-local"
    assert added.aliases()["my-server"] == "localhost:8000"


def test_an_empty_table_still_knows_the_generic_rows() -> None:
    assert table().find("localhost").name == "ollama"
    assert table().find("localhost", 1).name == "openai-compatible-local"
    assert table().find("h.example").name == "openai-compatible"
    assert len(table()) == 0


def test_an_unknown_name_is_an_error_with_near_misses() -> None:
    with pytest.raises(UsageError) as caught:
        ProviderTable.builtin().get("opnai")
    assert caught.value.code == "provider.unknown"
    assert "openai" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        ProviderTable.builtin().get("zzzz")
    assert caught.value.hint is None


@as_subtests(
    "facts",
    [
        {"name": "Mine"},
        {"name": ""},
        {"name": "a b"},
        {"title": ""},
        {"hosts": ("LLM.example",)},
        {"hosts": ("llm.example.",)},
        {"hosts": ("a..b",)},
        {"hosts": ("-a.example",)},
        {"hosts": ("a" * 64 + ".example",)},
        {"hosts": ("https://llm.example",)},
        {"host_suffixes": (".com",)},
        {"host_suffixes": ("example.com",)},
        {"host_suffixes": ("*.com",)},
        {"host_suffixes": ("api.*",)},
        {"host_suffixes": ("a.*.com",)},
        {"host_suffixes": (".x*.example.com",)},
        {"host_suffixes": ("*_.example.com",)},
        {"aliases": ("a.b",)},
        {"aliases": ("a",), "hosts": ()},
        {"default_port": 0},
        {"default_port": 65536},
        {"base_path": "v1"},
        {"base_path": "/v1/"},
        {"base_path": "/../x"},
        {"base_path": "/v1?x=1"},
        {"dialect": "Open AI"},
        {"key_variables": ("A-B",)},
        {"endpoint_variables": ("",)},
        {"key_header": "x key"},
        {"key_header": "Host"},
        {"key_prefix": "Bearer\n"},
        {"label_headers": (("", "Content-Length"),)},
        {"ranges": {"temp": (2, 1)}},
        {"stop_max": -1},
        {"capabilities": {"singing": "yes"}},
        {"capabilities": {"chat": "maybe"}},
        {"checked": "yesterday"},
    ],
)
def test_a_row_that_cannot_be_right_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(facts))) as caught:
        row(**facts)
    assert caught.value.code == "provider.bad-row"


def test_good_patterns_are_taken_and_match_label_by_label() -> None:
    assert row(host_suffixes=(".example.com", "*-api.example.com", "a.*.example.com")).serves("x.example.com")
    assert matches_pattern("a.b.example.com", ".example.com")
    assert not matches_pattern("a" * 300 + ".example.com", ".example.com")
    assert is_host("a.example")
    assert not is_host("a" * 254)


# --- entry points


def points(**values: str) -> Callable[[], Iterable[EntryPoint]]:
    found = [
        EntryPoint(name=name, value=value, group=plugin_loader.ENTRY_POINT_GROUP)
        for name, value in values.items()
    ]
    return lambda: found


ONE = row("plugged", hosts=("plugged.example",), aliases=("plug",))
SEVERAL = [row("a1", hosts=("a1.example",)), row("a2", hosts=("a2.example",))]
CLASH = row("openai")
WRONG = 5
TEXTS = ["a", "b"]


def test_rows_of_other_distributions_are_found_when_a_name_is_unknown() -> None:
    plugged = table(*ROWS, plugins=points(one=f"{__name__}:ONE", more=f"{__name__}:SEVERAL"))
    assert plugged.find("plugged.example").name == "plugged"
    assert plugged.find("a2.example").name == "a2"
    assert plugged.aliases()["plug"] == "plugged.example"
    assert plugged.get("a1").name == "a1"
    assert "a1" in plugged.names()
    assert "plug" in set(plugged.aliases())
    assert plugged.find_own("a1") is None
    assert plugged.register(row()).find("plugged.example").name == "plugged"


def test_entry_points_are_not_looked_at_while_the_table_knows_the_answer() -> None:
    def never() -> Iterable[EntryPoint]:
        raise AssertionError("looked")

    known = table(*ROWS, plugins=never)
    assert known.find("api.openai.com").name == "openai"
    assert known.find("localhost", 8001).name == "openai-compatible-local"
    assert known.find_alias("openai") is not None
    assert known.find_alias("api.mycorp.example") is None
    assert known.find_alias("localhost") is None
    assert known.get("openai").name == "openai"


def test_entry_points_are_looked_at_once() -> None:
    looks = []

    def look() -> Iterable[EntryPoint]:
        looks.append(1)
        return ()

    plugged = table(plugins=look)
    assert plugged.find("a.example") == plugged.find("b.example")
    assert looks == [1]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("WRONG", "Provider"),
        ("TEXTS", "Provider"),
        ("ELSEWHERE", "Provider"),
        ("MISSING", "AttributeError"),
        ("CLASH", "row openai"),
    ],
)
def test_a_bad_entry_point_is_named_in_the_error(value: str, why: str) -> None:
    plugged = table(*ROWS, plugins=points(bad=f"{__name__}:{value}"))
    with pytest.raises(ConfigError, match=why) as caught:
        plugged.find("unknown.example")
    assert caught.value.code == "provider.bad-plugin"
    assert "'bad'" in str(caught.value)


def test_the_installed_entry_points_are_listed_by_name() -> None:
    names = [point.name for point in plugin_loader.list_entry_points()]
    assert names == sorted(names)


def test_the_distribution_of_a_bad_entry_point_is_named() -> None:
    class Owned:
        name = "bad"
        value = "x"
        dist = type("Distribution", (), {"name": "their-package"})

        def load(self) -> object:
            raise ImportError("nothing")

    with pytest.raises(ConfigError, match="their-package"):
        table(plugins=lambda: [Owned()]).find("h.example")  # type: ignore[list-item]


def test_importing_the_table_reads_no_metadata() -> None:
    code = "import sys; import onym.llm.providers; assert 'importlib.metadata' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_built_in_rows_have_known_fields_in_one_form() -> None:
    path = Path(plugin_loader.__file__).with_name("builtin.json")
    known = {member.name for member in dataclasses.fields(Provider)} | {"comment"}
    rows = json.loads(path.read_text(encoding="utf-8"))
    assert {name for row in rows for name in row} <= known
    nested = {"apis": Api, "path_values": PathValue}
    for row in rows:
        for name, kind in nested.items():
            for record in row.get(name, {}).values():
                assert set(record) <= {member.name for member in dataclasses.fields(kind)}, row["name"]
