"""pydantic-ai's model profiles as the judge of ours: who can be forced to call a tool, and who thinks.

It measures against the live APIs. What differs on purpose is listed here with the reason.
"""

from __future__ import annotations

from typing import Any

from onym.llm.models import find_profile
from support import ImportedLate, as_subtests

profiles: Any = ImportedLate("pydantic_ai.profiles.anthropic")
deepseek: Any = ImportedLate("pydantic_ai.providers.deepseek")
model: Any = ImportedLate("anthropic.types.model")

CLAUDE = [
    "claude-fable-5",
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-opus-4-1",
    "claude-opus-4-5",
    "claude-opus-4-6",
    "claude-opus-4-7",
    "claude-opus-4-8",
    "claude-opus-5",
    "claude-opus-5-5",
    "claude-sonnet-4-5",
    "claude-sonnet-4-6",
    "claude-sonnet-5",
    "claude-sonnet-5-5",
    "claude-haiku-4-5",
    "claude-haiku-5-5",
]
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def test_the_table_has_every_model_that_anthropics_sdk_names() -> None:
    named = set(model.Model.__args__[0].__args__)
    undated = {name for name in named if not name[-8:].isdigit()}
    assert undated - {"claude-mythos-preview"} <= set(CLAUDE)


@as_subtests("name", CLAUDE)
def test_claude_is_forced_and_thinks_as_pydantic_ai_says(name: str) -> None:
    theirs = profiles.anthropic_model_profile(name)
    ours = find_profile("anthropic", name)
    assert (ours.find_choice_refusal("required", {}) is None) == theirs["supports_forced_tool_choice"]
    assert ours.is_reasoning({}) == theirs["thinking_enabled_by_default"]
    assert (ours.reasoning == "always") == theirs["thinking_always_enabled"]
    refused = ours.find_value_refusal("thinking", BUDGET["thinking"]) is not None
    assert refused == theirs["anthropic_disallows_budget_thinking"]
    if not refused and theirs["supports_forced_tool_choice"]:
        # extended thinking rejects a forced choice on every model
        assert ours.find_choice_refusal("required", BUDGET) is not None
    off = {
        "type": "between_tools" if theirs["anthropic_disables_thinking_with_between_tools"] else "disabled"
    }
    assert (ours.find_value_refusal("thinking", off) is not None) == theirs["thinking_always_enabled"]


@as_subtests("name", CLAUDE)
def test_claude_at_bedrock_is_forced_as_pydantic_ai_says(name: str) -> None:
    # its profile for Bedrock takes this rule from that of the model
    theirs = profiles.anthropic_model_profile(name)
    ours = find_profile("bedrock", f"us.anthropic.{name}-v1:0", "bedrock_converse")
    assert (ours.find_choice_refusal("required", {}) is None) == theirs["supports_forced_tool_choice"]


@as_subtests("name", ["deepseek-chat", "deepseek-reasoner", "deepseek-flash", "deepseek-v4-pro"])
def test_deepseek_is_forced_as_pydantic_ai_says(name: str) -> None:
    theirs = deepseek.DeepSeekProvider.model_profile(name)
    ours = find_profile("deepseek", name)
    always, thinking = theirs["supports_forced_tool_choice"], theirs["thinking_enabled_by_default"]
    forced = always and (theirs["supports_forced_tool_choice_with_thinking"] or not thinking)
    assert (ours.find_choice_refusal("required", {}) is None) == forced
    off = {"thinking": {"type": "disabled"}}
    assert (ours.find_choice_refusal("required", off) is None) == always
