"""What the families of models at Amazon Bedrock take through Converse.

An id may have a geography before it (`us.`, `eu.`, `apac.`, `global.`…) and may stand in an ARN. The ARN of
an application inference profile, or of provisioned throughput, hides the model: it falls to the last.
"""

from __future__ import annotations

from collections.abc import Mapping

from onym.llm.profiles._profile import Profile

__all__ = ["PROFILES"]

_CHECKED = "2026-11-21"
_GUIDE = "docs.aws.amazon.com/bedrock/latest/userguide"
_CACHING = f"{_GUIDE}/prompt-caching.html"
_FEATURES = f"{_GUIDE}/conversation-inference-supported-models-features.html"

_CLAUDE: Mapping[str, str | None] = {
    "top_k": "additionalModelRequestFields.top_k",
    "cache": "cachePoint",
}
_NOVA: Mapping[str, str | None] = {
    "top_k": "additionalModelRequestFields.inferenceConfig.topK",
    "cache": "cachePoint",
}
_NEITHER: Mapping[str, str | None] = {"top_k": None, "cache": None}


def _ids(*starts: str) -> tuple[str, ...]:
    """Globs for ids: as they are, with a geography before them, at the end of an ARN."""
    return tuple(glob for start in starts for glob in (f"{start}*", f"*[./]{start}*"))


def _claude(*names: str) -> tuple[str, ...]:
    return _ids(*(f"anthropic.claude-{name}" for name in names))


# order matters: the first that fits wins
PROFILES = (
    Profile(
        family="bedrock-claude-4.7",
        providers=("bedrock",),
        dialects=("bedrock_converse",),
        # every Claude after Opus 4.6, Sonnet 4.6 and Haiku 4.5
        matches=_claude(
            "opus-4-7", "opus-4-8", "opus-4-9", "opus-5", "sonnet-5", "haiku-5", "fable", "mythos"
        ),
        params=_CLAUDE,
        refuses=dict.fromkeys(
            ("temp", "top_p", "top_k"), "Claude takes no sampling parameters since Opus 4.7"
        ),
        source=f"{_CACHING}; github.com/cline/cline/issues/10572, promptfoo/promptfoo/issues/10307",
        checked=_CHECKED,
    ),
    Profile(
        family="bedrock-claude-4.1",
        providers=("bedrock",),
        dialects=("bedrock_converse",),
        matches=_claude("opus-4-1", "opus-4-5", "opus-4-6", "sonnet-4-5", "sonnet-4-6", "haiku-4-5"),
        params=_CLAUDE,
        exclusive=(("temp", "top_p"),),
        source=f"{_CACHING}; github.com/mem0ai/mem0/pull/4147; github.com/browseros-ai/BrowserOS/issues/208",
        checked=_CHECKED,
    ),
    Profile(
        family="bedrock-claude-3",
        providers=("bedrock",),
        dialects=("bedrock_converse",),
        # those from before prompt caches
        matches=_claude("3-haiku", "3-sonnet", "3-opus", "3-5-sonnet-20240620", "v2", "instant"),
        params={**_CLAUDE, "cache": None},
        source=_CACHING,
        checked=_CHECKED,
    ),
    Profile(
        family="bedrock-claude",
        providers=("bedrock",),
        dialects=("bedrock_converse",),
        matches=_claude(""),
        params=_CLAUDE,
        source=f"{_CACHING}; {_GUIDE}/model-parameters-anthropic-claude-messages.html",
        checked=_CHECKED,
    ),
    Profile(
        family="bedrock-nova",
        providers=("bedrock",),
        dialects=("bedrock_converse",),
        matches=_ids("amazon.nova-"),
        params=_NOVA,
        source=f"{_CACHING}; docs.aws.amazon.com/nova/latest/nova2-userguide/core-inference.html",
        checked=_CHECKED,
    ),
    Profile(
        family="bedrock-without-system",
        providers=("bedrock",),
        dialects=("bedrock_converse",),
        matches=_ids("amazon.titan-text", "mistral.mistral-7b-instruct", "mistral.mixtral-8x7b-instruct"),
        params=_NEITHER,
        refuses={"system": "Converse takes no system prompt for this model"},
        source=f"{_FEATURES}; github.com/567-labs/instructor/issues/1753",
        checked=_CHECKED,
    ),
    Profile(
        family="bedrock-other",
        providers=("bedrock",),
        dialects=("bedrock_converse",),
        # Llama, Mistral, DeepSeek, Qwen, gpt-oss…: Converse itself has neither
        params=_NEITHER,
        source="botocore 1.44's service model: InferenceConfiguration; " + _CACHING,
        checked=_CHECKED,
    ),
)
