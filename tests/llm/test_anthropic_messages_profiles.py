"""What the generations of Claude can take, at the rows that serve them under their own names."""

from __future__ import annotations

import pytest

from onym.errors import UnsupportedError
from onym.llm.client import connect
from onym.llm.config import Config
from onym.llm.models import DEFAULT_PROFILE, find_profile
from support import as_subtests

SAMPLING = {"temp", "temperature", "top_p", "top_k"}
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
OFF = {"thinking": {"type": "disabled"}}
BETWEEN = {"thinking": {"type": "between_tools"}}


@as_subtests(
    "model",
    [
        "claude-opus-4-7",
        "claude-opus-4-8",
        "claude-opus-5",
        "claude-opus-5-5",
        "claude-sonnet-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "claude-fable-5",
        "claude-fable-5-2",
        "claude-mythos-5-1",
        "Claude-Opus-5-20260724",
    ],
)
def test_the_newer_generations_take_no_sampling_parameters(model: str) -> None:
    for provider in ("anthropic", "vertex"):
        profile = find_profile(provider, model)
        assert set(profile.get_refusals({})) == set(profile.get_refusals(THINKING)) == SAMPLING
        assert profile.exclusive == ()


@pytest.mark.parametrize(
    ("provider", "model", "family"),
    [
        ("vertex", "claude-opus-4-1@20250805", "claude-4.1"),
        ("vertex", "publishers/anthropic/models/claude-sonnet-4-6", "claude-4.6"),
        ("anthropic", "claude-haiku-4-5-20251001", "claude-4.5"),
        ("anthropic", "claude-4-opus-20250514", "claude-4"),
        ("anthropic", "claude-3-7-sonnet-latest", "claude-4"),
        ("anthropic", "claude-opus-5", "claude-5"),
        ("anthropic", "claude-opus-5-5", "claude-5.5-thinking"),
        ("anthropic", "claude-sonnet-5-5", "claude-sonnet-5.5"),
        ("anthropic", "claude-haiku-5-5", "claude-5"),
    ],
)
def test_a_model_is_known_by_the_ids_that_each_row_gives_it(provider: str, model: str, family: str) -> None:
    assert find_profile(provider, model).family == family


@pytest.mark.parametrize(
    "model", ["claude-3-haiku-20240307", "claude-3-5-sonnet-20241022", "claude-opus-50", "gpt-5"]
)
def test_what_no_rule_is_about_is_left_to_the_server(model: str) -> None:
    assert find_profile("anthropic", model) is DEFAULT_PROFILE


def test_the_rules_do_not_follow_a_name_to_a_row_of_another_kind() -> None:
    assert find_profile("openai-compatible", "claude-opus-5") is DEFAULT_PROFILE


@pytest.mark.parametrize(
    "model",
    ["claude-opus-4-1", "claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-sonnet-4-6"],
)
def test_these_take_temp_or_top_p_and_not_both(model: str) -> None:
    profile = find_profile("anthropic", model)
    assert profile.exclusive == (("temp", "top_p"),)
    assert profile.get_refusals({}) == {}


@pytest.mark.parametrize("model", ["claude-sonnet-4-20250514", "claude-opus-4-6", "claude-haiku-4-5"])
def test_while_it_thinks_a_model_takes_neither_temp_nor_top_k(model: str) -> None:
    profile = find_profile("anthropic", model)
    for thinking in (THINKING, ADAPTIVE):
        assert set(profile.get_refusals(thinking)) == {"temp", "temperature", "top_k"}
    assert profile.get_refusals(OFF) == {}


def test_some_think_unasked_and_some_cannot_stop() -> None:
    assert [
        find_profile("anthropic", "claude-opus-4-8").is_reasoning(item) for item in ({}, ADAPTIVE, OFF)
    ] == [
        False,
        True,
        False,
    ]
    assert [find_profile("anthropic", "claude-opus-5").is_reasoning(item) for item in ({}, OFF)] == [
        True,
        False,
    ]
    assert [
        find_profile("anthropic", "claude-sonnet-5-5").is_reasoning(item) for item in ({}, OFF, BETWEEN)
    ] == [
        True,
        True,
        False,
    ]
    assert find_profile("anthropic", "claude-fable-5").is_reasoning(OFF)


@pytest.mark.parametrize(
    ("provider", "model", "tokens"),
    [
        ("anthropic", "claude-opus-5-5", 16_384),
        ("vertex", "claude-haiku-4-5@20251001", 16_384),
        ("anthropic", "claude-opus-4-1", None),
        ("anthropic", "claude-sonnet-4-20250514", None),
    ],
)
def test_the_limit_that_nobody_gave_is_longer_where_it_cannot_hurt(
    provider: str, model: str, tokens: int | None
) -> None:
    assert find_profile(provider, model).defaults.get("max_tokens") == tokens


def body(model: str, query: str = "", **how: str) -> dict[str, object]:
    uri = f"llm://anthropic/{model}?{query}"
    client = connect(uri, key="sk-ant-test", config=Config.empty(), environ={}, **how)  # type: ignore[arg-type]
    found: dict[str, object] = client.explain("Hi").as_dict()["body"]
    return found


def test_a_call_carries_the_limit_that_nobody_gave() -> None:
    assert body("claude-opus-5")["max_tokens"] == 16_384
    assert body("claude-3-haiku-20240307")["max_tokens"] == 4096
    assert body("claude-opus-5", "max_tokens=7")["max_tokens"] == 7


@pytest.mark.requirement("llm-9-a")
@pytest.mark.parametrize(
    ("model", "query", "parameter"),
    [
        ("claude-opus-5", "temp=1", "temp"),
        ("claude-fable-5", "top_k=3", "top_k"),
        ("claude-opus-4-5", "temp=1&top_p=0.9", "top_p"),
        ("claude-opus-4-6", "temp=0.5&thinking.type=adaptive", "temp"),
        ("claude-opus-4-6", "seed=1", "seed"),
    ],
)
def test_what_a_model_does_not_take_is_refused_by_name_and_dropped_by_choice(
    model: str, query: str, parameter: str
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        body(model, query)
    assert (caught.value.parameter, caught.value.model) == (parameter, model)
    assert parameter not in body(model, query, on_unsupported="drop")


def test_one_of_two_that_exclude_each_other_is_sent() -> None:
    sent = body("claude-opus-4-5", "temp=1&top_p=0.9", on_unsupported="drop")
    assert sent["temperature"] == 1
    assert body("claude-opus-4-5", "top_p=0.9")["top_p"] == 0.9
