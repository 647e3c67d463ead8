"""Why Onym differs from npm's `llm-strings`, difference by difference: data, and nothing else.

`subjects` are globs over what a difference is about; the first reason that fits is the one.
tests/llm/test_llm_strings.py holds that each difference has one, and that none is left over.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

__all__ = ["REASONS", "Reason", "why"]


class Reason(NamedTuple):
    """Why things of one kind are otherwise."""

    kind: str
    subjects: tuple[str, ...]
    text: str


_PASSES = (
    "No word stands silently for another: a name that is not one of the twelve passes as it is (draft 4.4), "
    "so that a URI says what is sent. `onym convert` writes the name that it means."
)
_NOT_THERE = (
    "The vendor's SDK or documentation has no such parameter: sent, it would be refused or have no effect. "
    "The source is in the provider's row."
)

REASONS: tuple[Reason, ...] = (
    Reason("host", ("vercel",), "The gateway is at `ai-gateway.vercel.sh` (vercel.com/docs/ai-gateway)."),
    Reason(
        "host",
        ("together", "togetherai"),
        "The vendor's SDK and documentation moved; the older name is the row's second host.",
    ),
    Reason(
        "host",
        ("baseten",),
        "`api.baseten.co` manages deployments; models are called at the other host (docs.baseten.co).",
    ),
    Reason("host", ("huggingface",), "The older host answers 410 and names the router."),
    Reason(
        "name",
        ("google.*", "google-vertex.*"),
        "Its names are flat. Onym builds the request, where they are members of an object, and a streamed "
        "call has a path of its own.",
    ),
    Reason(
        "name",
        ("bedrock.top_k",),
        "Converse has no such member. For Claude and Nova it goes into `additionalModelRequestFields`; other "
        "models refuse it.",
    ),
    Reason(
        "name",
        ("bedrock.cache",),
        "The switch is a block `cachePoint`, for Claude and Nova; for another model there is none.",
    ),
    Reason(
        "name",
        ("bedrock.*",),
        "Its names are flat. Onym builds the request of Converse, where they are members of an object, and a "
        "streamed call has a path of its own.",
    ),
    Reason(
        "name",
        (
            "openai.max_tokens",
            "openrouter.max_tokens",
            "xai.max_tokens",
            "groq.max_tokens",
            "cerebras.max_tokens",
        ),
        "The older name is deprecated there, and reasoning models refuse it; the newer one is taken for "
        "every model. llm-strings sends it for OpenAI's reasoning models alone.",
    ),
    Reason("name", ("mistral.top_k",), "The vendor's SDK has it."),
    Reason("name", ("openrouter.cache", "vercel.cache"), "The gateway has a switch for prompt caches."),
    Reason(
        "name",
        (
            "vercel.top_k",
            "xai.top_k",
            "groq.top_k",
            "deepseek.top_k",
            "cerebras.top_k",
            "huggingface.top_k",
            "deepseek.seed",
            "perplexity.seed",
        ),
        _NOT_THERE,
    ),
    Reason("name", ("bytedance.*",), "It knows the host and no parameters; Ark's API has the OpenAI shape."),
    Reason("range", ("anthropic.max_tokens",), "The draft's range begins at 1 (section 6)."),
    Reason("range", ("mistral.temp",), "The API takes up to 1.5, and refuses more."),
    Reason("range", ("cohere.temp",), "The vendor names no upper end, so the draft's remains."),
    Reason("range", ("together.temp", "fireworks.top_k"), "The vendor's SDK has this range."),
    Reason(
        "word",
        ("repetition_penalty",),
        "It is another parameter, of another scale: 1 is neutral there, and 0 for `frequency_penalty`.",
    ),
    Reason(
        "word",
        (
            "max_output_tokens",
            "maxOutputTokens",
            "maxTokens",
            "topP",
            "topK",
            "stop_sequences",
            "stopSequences",
            "random_seed",
            "randomSeed",
            "responseFormat",
        ),
        "Providers' own names pass as they are (draft 4.4); beside the well-known name they are an error, "
        "and alone `onym check` points at it.",
    ),
    Reason("word", ("*",), _PASSES),
    Reason("outcome", ("twice",), "Which of the two was meant is not known (draft 4.4)."),
    Reason(
        "outcome",
        ("reasoning", "two-of-one"),
        "Nothing is dropped in silence, and what the model refuses is not sent; `on_unsupported` chooses "
        "otherwise. There, `validate` is a step of its own.",
    ),
    Reason("outcome", ("range", "yes"), "A URI that cannot be right is refused when it is read (draft 6)."),
    Reason(
        "outcome",
        ("port", "subdomain", "lookalike"),
        "A provider's rules and its key belong to its own hosts at its own port: a name that only looks like "
        "one is somebody else's.",
    ),
    Reason("outcome", ("encoded-model",), "A path is decoded once, and a slash is data then (draft 3.2)."),
    Reason("outcome", ("plus",), "A query is not a form: a plus sign is a plus sign (RFC 3986)."),
    Reason("outcome", ("types", "unknown"), "Values are typed, as an API wants them (draft 6)."),
    Reason("outcome", ("stop",), "`stop` is a list (draft 6)."),
    Reason("outcome", ("format", "timeout"), "It is one of the twelve, and has a meaning (draft 6)."),
    Reason("outcome", ("secret",), "A key does not belong in a query (draft 10.1); Onym never sends it."),
    Reason("outcome", ("base-url",), "A URI must not redirect its own request; such names are never sent."),
    Reason("outcome", ("cache-for",), "`cache` is true or false (draft 6)."),
    Reason(
        "outcome",
        ("cache",),
        "OpenAI's prompt cache has no switch, there and here; Onym keeps the answer itself.",
    ),
    Reason(
        "outcome",
        ("variable",),
        "No variable moves a provider's word to another host, as its key would go there. An endpoint of the "
        "configuration has a name of its own.",
    ),
    Reason("outcome", ("dots",), "Dots nest (draft 4.4)."),
)


def why(kind: str, subject: str) -> Reason | None:
    """The reason of a difference, None where nobody gave one."""
    return next(
        (
            reason
            for reason in REASONS
            if reason.kind == kind and any(fnmatchcase(subject, glob) for glob in reason.subjects)
        ),
        None,
    )
