"""What a model family can take: `find` gives the profile of a model at a provider row."""

from __future__ import annotations

from functools import lru_cache

from onym.llm.profiles import _anthropic, _bedrock, _deepseek, _gemini, _openai, _xai
from onym.llm.profiles._profile import Profile, Reasoning

__all__ = ["BUILTIN", "DEFAULT", "Profile", "Reasoning", "find"]

#: a model that nothing is known of: everything is sent, and the server decides
DEFAULT = Profile(family="default", source="no profile names this model", checked="2026-11-21")

BUILTIN: tuple[Profile, ...] = (
    *_openai.PROFILES,
    *_deepseek.PROFILES,
    *_xai.PROFILES,
    *_anthropic.PROFILES,
    *_bedrock.PROFILES,
    *_gemini.PROFILES,
)


@lru_cache(maxsize=512)
def find(provider_name: str, model: str, dialect: str | None = None) -> Profile:
    """The first profile that fits this model at the provider row of that name, else `DEFAULT`."""
    return next((profile for profile in BUILTIN if profile.fits(provider_name, model, dialect)), DEFAULT)
