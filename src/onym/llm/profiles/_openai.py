"""OpenAI's families: the reasoning models take no sampling parameters while they reason."""

from __future__ import annotations

from onym.llm.profiles._profile import Profile, Reasoning

__all__ = ["PROFILES"]

_CHECKED = "2026-11-21"
_SOURCE = "openai 3.52 SDK; pydantic-ai 2.68 profiles; litellm#13781"
_SAMPLING = "the model reasons, and refuses sampling parameters then"
_NO_STOP = "the model takes no stop sequences"
_REFUSED = dict.fromkeys(
    ("temp", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
    _SAMPLING,
)


def _ids(*names: str) -> tuple[str, ...]:
    """Globs for a model, its dated and sized variants (`-mini`, `-2025-08-07`) and its fine-tunes."""
    return tuple(glob for name in names for glob in (name, f"{name}-*", f"ft:{name}:*", f"ft:{name}-*"))


def _family(family: str, matches: tuple[str, ...], reasoning: Reasoning, *, stop: bool = True) -> Profile:
    return Profile(
        family=family,
        # a deployment's name hides the model at Azure, and gateways drop what an upstream refuses
        providers=("openai",),
        matches=matches,
        reasoning=reasoning,
        refuses={} if stop else {"stop": _NO_STOP},
        refuses_reasoning={} if reasoning == "never" else _REFUSED,
        source=_SOURCE,
        checked=_CHECKED,
    )


# order matters: the first that fits wins
PROFILES = (
    _family("openai-gpt-5-chat", _ids("gpt-5-chat"), "never"),
    _family("openai-pro", ("gpt-5-pro*", "o3-pro*"), "always", stop=False),
    _family("openai-always-reasoning", ("gpt-6-astra*", "gpt-6.1-sol*", "gpt-*-pro*", "o1-pro*"), "always"),
    _family("openai-chat-reasoning", ("gpt-5.?-chat*", "gpt-6*-chat*"), "always"),
    _family("openai-gpt-5.1", _ids("gpt-5.1", "gpt-5.2", "gpt-5.3", "gpt-5.4"), "opt-in"),
    _family("openai-gpt-5.5", (*_ids("gpt-5.5", "gpt-5.6"), "gpt-6*"), "default"),
    _family("openai-gpt-5", _ids("gpt-5"), "default", stop=False),
    _family("openai-o1", _ids("o1", "o3-mini"), "default"),
    _family("openai-o3", _ids("o3", "o4-mini"), "default", stop=False),
)
