"""Claude, as far as a gateway of the OpenAI shape serves it."""

from __future__ import annotations

from onym.llm.profiles._profile import Profile

__all__ = ["PROFILES"]

_NEW = ("opus-4.7", "opus-4.8", "opus-5", "sonnet-5", "haiku-5.5", "fable-5", "mythos-5")

PROFILES = (
    Profile(
        family="claude-4.7-at-openrouter",
        providers=("openrouter",),
        matches=tuple(f"anthropic/claude-{name}*" for name in _NEW),
        ignores=dict.fromkeys(
            ("temp", "top_p", "top_k"), "the gateway drops sampling parameters for this model"
        ),
        source="openrouter 1.3.84 SDK; platform.claude.com/docs/en/api/versioning",
        checked="2026-11-21",
    ),
)
