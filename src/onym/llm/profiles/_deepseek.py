"""DeepSeek: thinking is on by default, and sampling parameters have no effect then."""

from __future__ import annotations

from onym.llm.profiles._profile import Profile

__all__ = ["PROFILES"]

_NO_EFFECT = "accepted in thinking mode, without effect"

PROFILES = (
    Profile(
        family="deepseek-thinking",
        providers=("deepseek",),
        matches=("deepseek-reasoner*", "deepseek-v4*"),
        reasoning="default",
        effort=("thinking",),
        off={"type": "disabled"},
        refuses_reasoning=dict.fromkeys(("logprobs", "top_logprobs"), "an error in thinking mode"),
        ignores=dict.fromkeys(("temp", "top_p", "presence_penalty", "frequency_penalty"), _NO_EFFECT),
        source="api-docs.deepseek.com; pydantic-ai 2.68 profiles",
        checked="2026-11-21",
    ),
)
