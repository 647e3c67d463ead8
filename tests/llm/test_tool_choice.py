"""Which models can be forced to call a tool, and what becomes of a call to one that cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onym.errors import OnymWarning, UnsupportedError
from onym.llm.client import Client, connect
from onym.llm.config import Config
from onym.llm.models import find_profile
from onym.llm.plan import Plan
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.testing.fake_provider import FakeProvider
from support import as_subtests

TOOL = {"name": "weather", "parameters": {"type": "object"}}
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
OFF = {"thinking": {"type": "disabled"}}
AT_BEDROCK = {"additionalModelRequestFields": BUDGET}

#: provider, model, pass-through parameters, and the choices that are refused
CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("anthropic", "claude-opus-5-5", {}, "required named"),
    ("anthropic", "claude-sonnet-5-5", {}, "required named"),
    ("anthropic", "claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}, "required named"),
    ("anthropic", "claude-fable-5-1", {}, "required named"),
    ("anthropic", "claude-fable-5", {}, ""),
    ("anthropic", "claude-opus-5", {}, ""),
    ("anthropic", "claude-sonnet-5", ADAPTIVE, ""),
    ("anthropic", "claude-haiku-5-5", {}, ""),
    ("anthropic", "claude-sonnet-4-6", ADAPTIVE, ""),
    ("anthropic", "claude-sonnet-4-6", BUDGET, "required named"),
    ("anthropic", "claude-haiku-4-5", BUDGET, "required named"),
    ("anthropic", "claude-haiku-4-5", OFF, ""),
    ("anthropic", "claude-haiku-4-5", {}, ""),
    ("vertex", "claude-opus-5-5@20260922", {}, "required named"),
    ("openrouter", "anthropic/claude-sonnet-5.5", {}, "required named"),
    ("openrouter", "anthropic/claude-opus-5", {}, ""),
    ("bedrock", "us.anthropic.claude-opus-5-5-v1:0", {}, "required named"),
    ("bedrock", "anthropic.claude-haiku-4-5-20251001-v1:0", AT_BEDROCK, "required named"),
    ("bedrock", "anthropic.claude-haiku-4-5-20251001-v1:0", {}, ""),
    ("bedrock", "us.anthropic.claude-sonnet-4-6", {"additionalModelRequestFields": ADAPTIVE}, ""),
    ("bedrock", "us.meta.llama4-maverick-17b-instruct-v1:0", {}, "required named"),
    ("bedrock", "mistral.mistral-large-2407-v1:0", {}, "named"),
    ("bedrock", "amazon.nova-pro-v1:0", {}, ""),
    ("deepseek", "deepseek-reasoner", OFF, "required named"),
    ("deepseek", "deepseek-v4-pro", {}, "required named"),
    ("deepseek", "deepseek-v4-pro", OFF, ""),
    ("deepseek", "deepseek-chat", {}, ""),
    ("together", "deepseek-ai/DeepSeek-V4-Pro", {}, "required named"),
    ("moonshot", "kimi-k2.7-code", {}, "required named"),
    ("moonshot", "kimi-k2.6", {}, "required named"),
    ("moonshot", "kimi-k2.6", OFF, ""),
    ("moonshot", "kimi-k3", {}, ""),
    ("moonshot", "moonshot-v1-8k", {}, "required"),
    ("dashscope", "qwen3.8-max", {"enable_thinking": True}, "required named"),
    ("dashscope", "qwen3.8-max", {"enable_thinking": False}, ""),
    ("dashscope", "qwen3.8-max", {}, ""),
    ("meta", "muse-spark-1.1", {}, "none required named"),
    ("openai", "gpt-5.5", {}, ""),
    ("gemini", "gemini-3.8-flash", {}, ""),
]


def list_refused(provider: str, model: str, extra: dict[str, Any]) -> set[str]:
    profile = find_profile(provider, model)
    kinds = {"auto": "auto", "none": "none", "required": "required", "named": "weather"}
    return {kind for kind, choice in kinds.items() if profile.find_choice_refusal(choice, extra)}


@as_subtests(("provider", "model", "extra", "refused"), CASES)
def test_a_model_refuses_the_choices_that_its_rules_say_and_no_other(
    provider: str, model: str, extra: dict[str, Any], refused: str
) -> None:
    assert list_refused(provider, model, extra) == set(refused.split())


def make_client(uri: str, **how: Any) -> Client:
    return connect(uri, key="k", config=Config.empty(), environ={}, **how)


def explain(uri: str, choice: str, **how: Any) -> Plan:
    client = make_client(uri, **how)
    return client.explain("Hi", tools=[TOOL], tool_choice=choice)


@as_subtests("choice", ["required", "weather"])
def test_a_forced_choice_is_an_error_that_names_the_model_and_the_source_of_the_rule(choice: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        explain("llm://anthropic/claude-opus-5-5", choice)
    error = caught.value
    assert error.code == "llm.no-tool-choice"
    assert (error.parameter, error.model) == ("tool_choice", "claude-opus-5-5")
    assert error.source == find_profile("anthropic", "claude-opus-5-5").source
    assert "claude-opus-5-5" in error.message
    assert "whats-new-opus-5-5" in str(error.source)


@as_subtests("kind", ["any", "tool"])
def test_a_forced_choice_in_the_apis_own_form_is_refused_too(kind: str) -> None:
    client = make_client("llm://anthropic/claude-opus-5-5")
    with pytest.raises(UnsupportedError) as caught:
        client.explain("Hi", tools=[TOOL], extra={"tool_choice": {"type": kind, "name": "weather"}})
    assert (caught.value.parameter, caught.value.model) == ("tool_choice", "claude-opus-5-5")
    sent = client.explain("Hi", tools=[TOOL], extra={"tool_choice": {"type": "none"}})
    assert (sent.body or {})["tool_choice"] == {"type": "none"}


def test_the_choices_that_remain_are_sent() -> None:
    for choice in ("auto", "none"):
        body = explain("llm://anthropic/claude-opus-5-5", choice).body or {}
        assert body["tool_choice"] == {"type": choice}
    assert (explain("llm://anthropic/claude-opus-5", "required").body or {})["tool_choice"] == {"type": "any"}


def test_thinking_in_the_uri_or_in_the_call_decides() -> None:
    uri = "llm://anthropic/claude-haiku-4-5?thinking.type=enabled&thinking.budget_tokens=1024"
    with pytest.raises(UnsupportedError) as caught:
        explain(uri, "required")
    assert caught.value.code == "llm.no-tool-choice"
    sent = make_client(uri).explain("Hi", tools=[TOOL], tool_choice="required", extra=OFF)
    assert (sent.body or {})["tool_choice"] == {"type": "any"}


@as_subtests("how", ["drop", "warn"])
def test_by_choice_a_refused_choice_is_dropped_and_noted(how: str) -> None:
    plan = explain("llm://anthropic/claude-opus-5-5", "required", on_unsupported=how)
    body = plan.body or {}
    assert "tool_choice" not in body
    assert body["tools"]
    (note,) = [note for note in plan.notes if note.parameter == "tool_choice"]
    assert (note.action, note.value, note.origin) == ("dropped", "required", "override")
    assert note.source == find_profile("anthropic", "claude-opus-5-5").source
    assert len([text for text in plan.warnings if "tool_choice" in text]) == (how == "warn")


@as_subtests(("uri", "choice"), [("llm://ollama/llama3", "required"), ("llm://cohere/command-a", "weather")])
def test_a_choice_that_an_api_format_does_not_have_is_refused_and_dropped_alike(
    uri: str, choice: str
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        explain(uri, choice, policy=Policy.local())
    assert (caught.value.code, caught.value.parameter) == ("llm.no-tool-choice", "tool_choice")
    assert caught.value.source
    plan = explain(uri, choice, policy=Policy.local(), on_unsupported="drop")
    assert "tool_choice" not in (plan.body or {})
    assert [note.action for note in plan.notes if note.parameter == "tool_choice"] == ["dropped"]


def test_nothing_is_sent_where_the_choice_is_refused_and_a_warning_comes_where_it_is_dropped() -> None:
    with FakeProvider(key="k") as fake:
        row = ProviderTable.builtin().get("openrouter")
        table = ProviderTable([replace(row, hosts=("127.0.0.1",), default_port=fake.port, base_path="/v1")])
        uri = f"llm://127.0.0.1:{fake.port}/anthropic/claude-opus-5.5"
        how: dict[str, Any] = {"policy": Policy.local(), "providers": table}
        with make_client(uri, **how) as client, pytest.raises(UnsupportedError):
            client.chat("Hi", tools=[TOOL], tool_choice="required")
        assert fake.requests == []
        fake.answer("Hello")
        with make_client(uri, on_unsupported="warn", **how) as client, pytest.warns(OnymWarning):
            assert client.chat("Hi", tools=[TOOL], tool_choice="required").text == "Hello"
        assert "tool_choice" not in fake.requests[0].json


@as_subtests(
    ("model", "thinking", "taken"),
    [
        ("claude-opus-5-5", "adaptive", True),
        ("claude-opus-5-5", "enabled", False),
        ("claude-opus-5-5", "disabled", False),
        ("claude-sonnet-5-5", "between_tools", True),
        ("claude-sonnet-5-5", "disabled", False),
        ("claude-opus-5", "disabled", True),
        ("claude-opus-5", "enabled", False),
        ("claude-opus-4-7", "enabled", False),
        ("claude-sonnet-4-6", "enabled", True),
        ("claude-haiku-4-5", "enabled", True),
    ],
)
def test_a_kind_of_thinking_that_a_model_does_not_have_is_refused(
    model: str, thinking: str, taken: bool
) -> None:
    client = make_client(f"llm://anthropic/{model}?thinking.type={thinking}", on_unsupported="drop")
    assert ((client.explain("Hi").body or {}).get("thinking") == {"type": thinking}) is taken
    if not taken:
        with pytest.raises(UnsupportedError) as caught:
            make_client(f"llm://anthropic/{model}?thinking.type={thinking}")
        assert (caught.value.parameter, caught.value.model) == ("thinking", model)
