"""What model families can take: rules with a source, for the models they are about and no others."""

from __future__ import annotations

import json
from datetime import date

import pytest

from onym.llm.models import DEFAULT_PROFILE, Profile, find_profile, load_profiles
from support import as_subtests

SAMPLING = {
    "temp",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
}


@as_subtests("profile", [*load_profiles(), DEFAULT_PROFILE], ids=lambda profile: profile.family)
def test_every_profile_says_where_its_rules_come_from(profile: Profile) -> None:
    assert profile.source
    assert date.fromisoformat(profile.checked) >= date(2026, 11, 21)
    assert json.loads(json.dumps(profile.as_dict()))["family"] == profile.family


def test_families_have_names_of_their_own() -> None:
    families = [profile.family for profile in load_profiles()]
    assert len(set(families)) == len(families)


@as_subtests(
    ("model", "refused"),
    [
        ("gpt-5", SAMPLING | {"stop"}),
        ("GPT-5", SAMPLING | {"stop"}),
        ("gpt-5-mini-2025-08-07", SAMPLING | {"stop"}),
        ("gpt-5-pro", SAMPLING | {"stop"}),
        ("gpt-5-chat-latest", set()),
        ("gpt-5.1", set()),
        ("gpt-5.4-mini", set()),
        ("gpt-5.1-chat-latest", SAMPLING),
        ("gpt-5.2-pro", SAMPLING),
        ("gpt-5.5", SAMPLING),
        ("gpt-6", SAMPLING),
        ("gpt-6-astra", SAMPLING),
        ("gpt-6.1-sol", SAMPLING),
        ("o1", SAMPLING),
        ("o1-pro", SAMPLING),
        ("o3", SAMPLING | {"stop"}),
        ("o3-pro", SAMPLING | {"stop"}),
        ("o3-mini", SAMPLING),
        ("o4-mini", SAMPLING | {"stop"}),
        ("ft:o4-mini-2025-04-16:me::id", SAMPLING | {"stop"}),
        ("gpt-4.1", set()),
        ("gpt-4o", set()),
        ("gpt-50", set()),
        ("unheard-of", set()),
    ],
)
def test_openai_models_refuse_what_the_rules_say_and_nothing_else(model: str, refused: set[str]) -> None:
    assert set(find_profile("openai", model).get_refusals({})) == refused


def test_switching_reasoning_off_or_on_changes_what_is_refused() -> None:
    assert set(find_profile("openai", "gpt-5.5").get_refusals({"reasoning_effort": "none"})) == set()
    assert set(find_profile("openai", "gpt-5").get_refusals({"reasoning_effort": "none"})) == {"stop"}
    assert set(find_profile("openai", "gpt-5.1").get_refusals({"reasoning_effort": "high"})) == SAMPLING
    assert set(find_profile("openai", "gpt-5.1").get_refusals({"reasoning_effort": "none"})) == set()
    assert set(find_profile("openai", "gpt-6-astra").get_refusals({"reasoning_effort": "none"})) == SAMPLING
    assert find_profile("openai", "gpt-4o").is_reasoning({"reasoning_effort": "high"}) is False


def test_the_rules_of_a_model_do_not_follow_its_name_to_another_provider() -> None:
    for provider in ("azure-openai", "openrouter", "openai-compatible"):
        assert find_profile(provider, "gpt-5") is DEFAULT_PROFILE


def test_thinking_deepseek_takes_sampling_parameters_without_effect() -> None:
    profile = find_profile("deepseek", "deepseek-v4-chat")
    assert set(profile.ignores) == {"temp", "top_p", "presence_penalty", "frequency_penalty"}
    assert set(profile.get_refusals({})) == {"logprobs", "top_logprobs"}
    assert set(profile.get_refusals({"thinking": {"type": "disabled"}})) == set()
    assert find_profile("deepseek", "deepseek-chat") is DEFAULT_PROFILE


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("grok-4", {"stop", "presence_penalty", "frequency_penalty"}),
        ("grok-4-1-fast-reasoning", {"stop", "presence_penalty", "frequency_penalty"}),
        ("grok-4-1-fast-non-reasoning", set()),
        ("grok-3", set()),
    ],
)
def test_reasoning_grok_refuses_stop_and_penalties(model: str, refused: set[str]) -> None:
    assert set(find_profile("xai", model).get_refusals({})) == refused


def test_a_gateway_that_drops_parameters_is_told_apart_from_one_that_refuses() -> None:
    profile = find_profile("openrouter", "anthropic/claude-opus-4.7")
    assert set(profile.ignores) == {"temp", "top_p", "top_k"}
    assert not profile.get_refusals({})
    assert find_profile("openrouter", "anthropic/claude-sonnet-4.5") is DEFAULT_PROFILE


def test_what_is_unknown_is_left_to_the_server() -> None:
    assert DEFAULT_PROFILE.get_refusals({"reasoning_effort": "high"}) == {}
    assert DEFAULT_PROFILE.applies_to("anything", "at all")
