"""What Gemini's families can take."""

from __future__ import annotations

from datetime import date

import pytest

from onym.llm.models import DEFAULT_PROFILE, Profile, load_profiles
from support import as_subtests

GEMINI_PROFILES = [profile for profile in load_profiles() if "gemini" in profile.providers]


def find(model: str, provider: str = "gemini") -> Profile:
    return next((item for item in GEMINI_PROFILES if item.applies_to(provider, model)), DEFAULT_PROFILE)


@as_subtests(
    ("model", "reasoning", "fixed"),
    [
        ("gemini-2.0-flash", "never", False),
        ("gemma-4-31b-it", "never", False),
        ("gemini-embedding-001", "never", False),
        ("gemini-2.5-flash-image", "never", False),
        ("gemini-2.5-flash-lite", "opt-in", False),
        ("gemini-2.5-flash", "default", False),
        ("gemini-2.5-flash-preview-09-2025", "default", False),
        ("gemini-2.5-pro", "always", False),
        ("gemini-3-pro-preview", "always", False),
        ("gemini-3.1-pro-preview", "always", False),
        ("gemini-3.1-flash-lite", "always", False),
        ("gemini-3.5-flash", "always", True),
        ("gemini-3.5-flash-lite", "always", True),
        ("gemini-3.6-flash", "always", True),
        ("Gemini-3.8-Flash", "always", True),
        ("gemini-4-argon", "always", True),
        ("gemini-flash-latest", "always", True),
    ],
)
def test_families_think_as_google_says_and_the_new_ones_do_not_sample(
    model: str, reasoning: str, fixed: bool
) -> None:
    profile = find(model)
    assert (profile.reasoning, bool(profile.ignores)) == (reasoning, fixed)
    assert find(model, "vertex") == profile
    # nothing is refused: the API takes what it ignores
    assert not profile.get_refusals({})


def test_a_gateways_gemini_is_not_googles() -> None:
    assert find("google/gemini-4-argon", "openrouter") is DEFAULT_PROFILE
    assert find("gemini-4-argon", "openrouter") is DEFAULT_PROFILE


@pytest.mark.parametrize("profile", GEMINI_PROFILES, ids=lambda profile: profile.family)
def test_each_family_says_where_its_rules_come_from(profile: Profile) -> None:
    assert profile.source
    assert date.fromisoformat(profile.checked) == date(2026, 11, 21)
    assert set(profile.ignores) <= {"temp", "top_p", "top_k"}
