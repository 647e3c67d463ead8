"""Claude: the newer generations take no sampling parameters, those before take one of two."""

from __future__ import annotations

from typing import Any

from onym.llm.profiles._profile import Profile, Reasoning

__all__ = ["PROFILES"]

_CHECKED = "2026-11-21"
_SOURCE = (
    "platform.claude.com/docs/en: api/versioning, build-with-claude/extended-thinking; "
    "anthropic 2.12 SDK; pydantic-ai 2.68 profiles"
)
_ONE_OF_TWO = f"{_SOURCE}; litellm#15097"

#: without a stream a longer answer may take over ten minutes: the SDK's bound is 21,333 tokens
_LONG = {"max_tokens": 16_384}

_SAMPLING = dict.fromkeys(
    ("temp", "temperature", "top_p", "top_k"), "the model takes no sampling parameters on any API version"
)
_WHILE_THINKING = dict.fromkeys(
    ("temp", "temperature", "top_k"), "the model thinks, and takes no such parameter then"
)
_DISABLED = {"type": "disabled"}


def _ids(*names: str) -> tuple[str, ...]:
    """Globs for models, their dated and versioned ids, below a region or a publisher (`us.anthropic.`)."""
    return tuple(glob for name in names for glob in (f"*claude-{name}", f"*claude-{name}[-@:]*"))


def _family(
    family: str,
    names: tuple[str, ...],
    reasoning: Reasoning,
    *,
    off: Any = _DISABLED,
    sampling: bool = True,
    exclusive: bool = False,
    long: bool = True,
) -> Profile:
    """One family where it is served under its own names; what Bedrock takes of it is in `_bedrock`."""
    return Profile(
        family=family,
        providers=("anthropic", "vertex"),
        matches=_ids(*names),
        reasoning=reasoning,
        effort=("thinking",),
        off=off,
        refuses={} if sampling else _SAMPLING,
        refuses_reasoning=_WHILE_THINKING if sampling else {},
        exclusive=(("temp", "top_p"),) if exclusive else (),
        defaults=_LONG if long else {},
        source=_ONE_OF_TWO if exclusive else _SOURCE,
        checked=_CHECKED,
    )


_NEW_AT_GATEWAYS = ("opus-4.7", "opus-4.8", "opus-5", "sonnet-5", "haiku-5.5", "fable-5", "mythos-5")

# order matters: the first that fits wins
PROFILES = (
    _family("claude-5-thinking", ("opus-5-5", "fable-5", "mythos-5"), "always", sampling=False),
    _family("claude-sonnet-5.5", ("sonnet-5-5",), "default", off={"type": "between_tools"}, sampling=False),
    _family("claude-5", ("opus-5", "sonnet-5", "haiku-5-5"), "default", sampling=False),
    _family("claude-4.7", ("opus-4-7", "opus-4-8"), "opt-in", sampling=False),
    _family("claude-4.6", ("opus-4-6", "sonnet-4-6"), "opt-in", exclusive=True),
    _family("claude-4.5", ("opus-4-5", "sonnet-4-5", "haiku-4-5"), "opt-in", exclusive=True),
    # before Sonnet 4.5 a request is refused where prompt and max_tokens together pass the context window
    _family("claude-4.1", ("opus-4-1",), "opt-in", exclusive=True, long=False),
    _family("claude-4", ("opus-4", "sonnet-4", "4-opus", "4-sonnet", "3-7-sonnet"), "opt-in", long=False),
    Profile(
        family="claude-4.7-at-openrouter",
        providers=("openrouter",),
        matches=tuple(f"anthropic/claude-{name}*" for name in _NEW_AT_GATEWAYS),
        ignores=dict.fromkeys(
            ("temp", "top_p", "top_k"), "the gateway drops sampling parameters for this model"
        ),
        source="openrouter 1.3.84 SDK; platform.claude.com/docs/en/api/versioning",
        checked=_CHECKED,
    ),
)
