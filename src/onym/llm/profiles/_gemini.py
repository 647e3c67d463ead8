"""Gemini: who thinks, how thinking is switched off, and since when sampling parameters have no effect."""

from __future__ import annotations

from onym.llm.profiles._profile import Profile, Reasoning

__all__ = ["PROFILES"]

_CHECKED = "2026-11-21"
_SOURCE = "ai.google.dev/gemini-api/docs/thinking; google-genai 3.4 SDK; pydantic-ai 2.68 profiles"
_SAMPLING_SOURCE = (
    "ai.google.dev/gemini-api/docs/generate-content/whats-new-gemini-3.6, .../changelog 2026-10-08; "
    "langchain-google#1897; pydantic-ai 2.68 profiles"
)
_IGNORED = dict.fromkeys(
    ("temp", "top_p", "top_k"), "Gemini 3.5 Flash and later take sampling parameters and do not use them"
)
_BUDGET = "generationConfig.thinkingConfig.thinkingBudget"
_LEVEL = "generationConfig.thinkingConfig.thinkingLevel"


def _family(
    family: str, reasoning: Reasoning, *matches: str, level: bool = True, fixed: bool = False
) -> Profile:
    """`level`: thinking has levels, not a budget. `fixed`: sampling cannot be changed."""
    return Profile(
        family=family,
        providers=("gemini", "vertex"),
        matches=matches,
        reasoning=reasoning,
        effort=(_LEVEL if level else _BUDGET,),
        # a level cannot be "none": the lowest one still thinks
        off=None if level else 0,
        ignores=_IGNORED if fixed else {},
        source=_SAMPLING_SOURCE if fixed else _SOURCE,
        checked=_CHECKED,
    )


# order matters: the first that fits wins
PROFILES = (
    _family("gemini-2.5-image", "never", "gemini-2.5-flash-image*", level=False),
    _family("gemini-2.5-flash-lite", "opt-in", "gemini-2.5-flash-lite*", level=False),
    _family("gemini-2.5-flash", "default", "gemini-2.5-flash*", level=False),
    _family("gemini-2.5-pro", "always", "gemini-2.5-pro*", level=False),
    _family("gemini-3", "always", "gemini-3-*", "gemini-3.[1-4]-*"),
    # requests for gemini-3.5-flash are routed to gemini-3.6-flash since 2026-10-08
    _family(
        "gemini-3.5",
        "always",
        "gemini-3.[5-9]-*",
        "gemini-[4-9]*",
        "gemini-flash-latest",
        "gemini-flash-lite-latest",
        fixed=True,
    ),
)
