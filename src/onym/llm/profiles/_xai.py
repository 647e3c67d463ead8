"""Grok: the reasoning models refuse stop sequences and penalties."""

from __future__ import annotations

from onym.llm.profiles._profile import Profile

__all__ = ["PROFILES"]

_REFUSED = dict.fromkeys(
    ("stop", "presence_penalty", "frequency_penalty"), "reasoning Grok models refuse this parameter"
)
_SOURCE = "xai-sdk 1.21; docs.x.ai; litellm 1.109"

PROFILES = (
    Profile(
        family="xai-plain",
        providers=("xai",),
        matches=("*non-reasoning*",),
        source=_SOURCE,
        checked="2026-11-21",
    ),
    Profile(
        family="xai-reasoning",
        providers=("xai",),
        matches=("*-reasoning*", "grok-3-mini*", "grok-4", "grok-4-0709", "grok-4-latest"),
        reasoning="always",
        refuses_reasoning=_REFUSED,
        source=_SOURCE,
        checked="2026-11-21",
    ),
)
