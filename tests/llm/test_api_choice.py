"""Which of OpenAI's two APIs a model is called through: profiles decide, unless the URI does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onym.errors import UnsupportedError
from onym.llm.batch._provider_flow import require_batch_api
from onym.llm.dialects.batch_api import RESPONSES
from onym.llm.mapping import MappingNote
from onym.llm.models import find_profile, load_profiles
from onym.llm.plan import Plan
from onym.llm.planner import Planner, PlannerSettings
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.uri.llm import LLMURI
from support import as_subtests

CHAT, RESPONSES_PATH = "/v1/chat/completions", "/v1/responses"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


def planner(uri: str, **settings: Any) -> Planner:
    given = {"policy": Policy.trusted(), "providers": ProviderTable.builtin(), **settings}
    return Planner(LLMURI.parse(uri), PlannerSettings(**given))


def openai(rest: str, **overrides: Any) -> Plan:
    return planner(f"llm://:sk-test-key-0123456789@openai/{rest}").chat("Hi", overrides)


def body(plan: Plan) -> Any:
    return json.loads(plan.request.body)


def find_note(plan: Plan, parameter: str) -> MappingNote | None:
    return next((note for note in plan.notes if note.parameter == parameter), None)


@as_subtests(
    ("rest", "path"),
    [
        # chat completions take no tools while these reason, and they reason by default
        ("gpt-5.5", RESPONSES_PATH),
        ("gpt-5.6", RESPONSES_PATH),
        ("gpt-5.6-terra", RESPONSES_PATH),
        ("gpt-6", RESPONSES_PATH),
        ("gpt-6-sol", RESPONSES_PATH),
        ("GPT-6-Luna", RESPONSES_PATH),
        ("gpt-6-astra", RESPONSES_PATH),
        ("gpt-6.1-sol", RESPONSES_PATH),
        ("gpt-6.1-terra", RESPONSES_PATH),
        ("ft:gpt-5.6-terra:me::id", RESPONSES_PATH),
        ("gpt-6.1-terra?reasoning_effort=none", CHAT),
        # a model that cannot be stopped from reasoning
        ("gpt-6-astra?reasoning_effort=none", RESPONSES_PATH),
        # reasons only on request
        ("gpt-5.4", CHAT),
        ("gpt-5.4-mini", CHAT),
        ("gpt-5.4?reasoning_effort=low", RESPONSES_PATH),
        ("gpt-5.4?reasoning.effort=low", RESPONSES_PATH),
        ("gpt-5.4?reasoning_effort=none", CHAT),
        # a parameter that only the Responses API has
        ("gpt-5.4?text.verbosity=low", RESPONSES_PATH),
        ("gpt-6-luna?reasoning.effort=none", RESPONSES_PATH),
        # not at chat completions at all
        ("gpt-5-codex", RESPONSES_PATH),
        ("gpt-5.1-codex", RESPONSES_PATH),
        ("gpt-5.1-codex-max", RESPONSES_PATH),
        ("gpt-5.1-codex-mini", RESPONSES_PATH),
        ("gpt-5.2-codex", RESPONSES_PATH),
        ("gpt-5.3-codex", RESPONSES_PATH),
        ("codex-mini-latest", RESPONSES_PATH),
        ("gpt-5.3-codex?reasoning_effort=none", RESPONSES_PATH),
        ("o1-pro", RESPONSES_PATH),
        ("o3-pro-2025-06-10", RESPONSES_PATH),
        ("gpt-5-pro", RESPONSES_PATH),
        ("gpt-5.2-pro-2025-12-11", RESPONSES_PATH),
        ("gpt-5.4-pro", RESPONSES_PATH),
        ("gpt-5.5-pro", RESPONSES_PATH),
        ("o3-deep-research", RESPONSES_PATH),
        ("o4-mini-deep-research-2025-06-26", RESPONSES_PATH),
        ("computer-use-preview", RESPONSES_PATH),
        ("gpt-5.6-cyber", RESPONSES_PATH),
        ("gpt-6-rosalind", RESPONSES_PATH),
        ("gpt-daybreak-blue-latest", RESPONSES_PATH),
        # tools and reasoning go together at chat completions
        ("gpt-5", CHAT),
        ("gpt-5-mini?reasoning_effort=high", CHAT),
        ("gpt-5-chat-latest", CHAT),
        ("gpt-5.1", CHAT),
        ("gpt-5.2?reasoning_effort=high", CHAT),
        ("gpt-5.3-chat-latest", CHAT),
        ("o1", CHAT),
        ("o3", CHAT),
        ("o4-mini", CHAT),
        ("gpt-4.1", CHAT),
        ("gpt-4o-search-preview", CHAT),
        ("gpt-audio", CHAT),
        ("unheard-of", CHAT),
        # the URI decides
        ("gpt-6-luna?api=chat", CHAT),
        ("gpt-4.1?api=responses", RESPONSES_PATH),
    ],
)
def test_the_model_decides_which_api_is_called(rest: str, path: str) -> None:
    assert openai(rest).target == path


@as_subtests(
    "uri",
    [
        "llm://:key@res.openai.azure.com/gpt-6-luna",
        "llm://:key@openrouter/openai/gpt-6-luna",
        "llm://:key@openrouter/openai/gpt-5.3-codex",
        "llm://:key@llm.example/gpt-5.3-codex",
        "llm://localhost:8000/gpt-6-luna",
    ],
)
def test_the_same_names_at_other_hosts_change_nothing(uri: str) -> None:
    plan = planner(uri, policy=Policy.local()).chat("Hi", {"tools": TOOLS})
    assert plan.target.endswith("/chat/completions")
    assert find_note(plan, "api") is None


def test_the_plan_says_which_api_was_chosen_and_why() -> None:
    note = find_note(openai("gpt-6-luna"), "api")
    assert note is not None
    assert (note.value, note.origin, note.wire_name) == ("responses", "default", "openai_responses")
    assert note.reason is not None
    assert note.source == find_profile("openai", "gpt-6-luna").source
    assert find_note(openai("gpt-4.1"), "api") is None
    given = find_note(openai("gpt-6-luna?api=responses"), "api")
    assert given is not None
    assert given.origin == "uri"


def test_tools_go_to_a_model_that_reasons() -> None:
    sent = body(openai("gpt-6-astra", tools=TOOLS, max_tokens=9))
    assert [tool["name"] for tool in sent["tools"]] == ["f"]
    assert sent["max_output_tokens"] == 9
    # reasoning goes back to the model, as nothing is stored
    assert sent["include"] == ["reasoning.encrypted_content"]
    assert "include" not in body(openai("gpt-5.3-codex"))


@as_subtests(
    "rest",
    [
        "gpt-6-astra?api=chat",
        "gpt-6-luna?api=chat",
        "gpt-5.6?api=chat&reasoning_effort=low",
        "gpt-5.4?api=chat&reasoning_effort=low",
    ],
)
def test_tools_are_refused_where_chat_completions_would_refuse_them(rest: str) -> None:
    assert openai(rest).target == CHAT
    with pytest.raises(UnsupportedError) as caught:
        openai(rest, tools=TOOLS)
    assert (caught.value.code, caught.value.parameter) == ("llm.no-tools", "tools")
    assert caught.value.hint is not None
    assert "api=responses" in caught.value.hint
    assert ("reasoning_effort=none" in caught.value.hint) is ("astra" not in rest)


def test_a_call_that_switches_reasoning_on_or_off_is_judged_as_it_is() -> None:
    assert openai("gpt-5.4", tools=TOOLS).target == CHAT
    with pytest.raises(UnsupportedError) as caught:
        openai("gpt-5.4", tools=TOOLS, extra={"reasoning_effort": "low"})
    assert caught.value.code == "llm.no-tools"
    plan = openai("gpt-6-luna?api=chat", tools=TOOLS, extra={"reasoning_effort": "none"})
    assert body(plan)["reasoning_effort"] == "none"


@as_subtests("model", ["gpt-5.3-codex", "gpt-5-pro", "o3-deep-research"])
def test_chat_completions_are_refused_for_a_model_that_they_do_not_serve(model: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        openai(f"{model}?api=chat")
    assert (caught.value.code, caught.value.parameter) == ("llm.no-api", "api")
    assert caught.value.model == model


@as_subtests(
    ("query", "sent"),
    [
        ("reasoning_effort=low", {"reasoning": {"effort": "low"}}),
        (
            "reasoning_effort=low&reasoning.summary=auto",
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        # the API's own name takes precedence
        ("reasoning_effort=low&reasoning.effort=high", {"reasoning": {"effort": "high"}}),
        ("verbosity=low&format=json", {"text": {"verbosity": "low", "format": {"type": "json_object"}}}),
        ("max_completion_tokens=9", {"max_output_tokens": 9}),
        ("verbosity=low&text=short", {"text": "short"}),
        ("service_tier=flex", {"service_tier": "flex"}),
    ],
)
def test_parameters_of_chat_completions_get_the_names_of_the_other_api(query: str, sent: Any) -> None:
    made = body(openai(f"gpt-6-luna?{query}"))
    assert {name: made[name] for name in made.keys() - {"model", "input", "store", "include"}} == sent


def test_a_renamed_parameter_is_in_the_notes() -> None:
    note = find_note(openai("gpt-6-luna?reasoning_effort=low"), "reasoning_effort")
    assert note is not None
    assert (note.action, note.wire_name) == ("renamed", "reasoning.effort")
    plan = openai("gpt-6-luna?reasoning_effort=low&reasoning.effort=high")
    dropped = find_note(plan, "reasoning_effort")
    assert dropped is not None
    assert dropped.action == "dropped"


@as_subtests("parameter", ["stop", "seed", "n", "presence_penalty", "logit_bias", "response_format"])
def test_a_parameter_that_only_chat_completions_have_is_refused_with_the_way_out(parameter: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        openai(f"gpt-6-luna?{parameter}=1")
    assert (caught.value.code, caught.value.parameter) == ("llm.unsupported", parameter)
    assert caught.value.hint is not None
    assert "api=chat" in caught.value.hint
    if parameter not in ("presence_penalty", "logit_bias"):  # no sampling while the model reasons
        assert openai(f"gpt-6-luna?{parameter}=1&api=chat").target == CHAT
    with pytest.raises(UnsupportedError) as caught:
        openai(f"gpt-5.3-codex?{parameter}=1")
    assert caught.value.hint is not None
    assert "api=chat" not in caught.value.hint


def test_a_batch_of_such_a_model_goes_to_the_same_api() -> None:
    assert require_batch_api(planner("llm://:key@openai/gpt-6-luna").endpoint) is RESPONSES


def test_the_models_that_only_the_responses_api_lists_are_not_sent_to_chat_completions() -> None:
    models = pytest.importorskip("openai.types.shared.responses_model").ResponsesModel
    chat_names = pytest.importorskip("openai.types.shared.chat_model").ChatModel.__args__
    (only,) = [
        part.__args__ for part in models.__args__ if getattr(part, "__args__", chat_names) != chat_names
    ]
    assert len(only) > 10
    assert {find_profile("openai", name).chat for name in only} == {"none"}
    chat = {profile.chat for profile in load_profiles() if profile.providers == ("openai",)}
    assert chat == {"all", "none", "no-tools-while-reasoning"}
