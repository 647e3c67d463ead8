"""LangChain's `provider:model` and the AI SDK's two kinds of id to URIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onym.errors import UsageError
from onym.llm.convert._base import Found, Key, build, row_named
from onym.llm.convert._params import read_params
from onym.llm.convert._types import Conversion, Named, Notes
from onym.llm.providers import ProviderTable
from onym.uri.secret import Secret

__all__ = ["AI_SDK_WORDS", "GATEWAY", "LANGCHAIN_WORDS", "from_ai_sdk", "from_langchain"]

#: LangChain's word for a provider, where it is not the row's name
LANGCHAIN_WORDS: Final[Mapping[str, str]] = {
    "anthropic_bedrock": "bedrock",
    "azure_ai": "azure-inference",
    "azure_openai": "azure-openai",
    "bedrock_converse": "bedrock",
    "google_anthropic_vertex": "vertex",
    "google_genai": "gemini",
    "google_vertexai": "vertex",
    "mistralai": "mistral",
    "nvidia": "nvidia-nim",
}
#: what LangChain infers from a model's name alone
_INFERRED: Final = (
    (("gpt-", "o1", "o3", "o4", "chatgpt"), "openai"),
    (("claude",), "anthropic"),
    (("amazon.", "anthropic.", "meta."), "bedrock"),
    (("gemini",), "google_vertexai"),
    (("command",), "cohere"),
    (("accounts/fireworks",), "fireworks"),
    (("mistral", "mixtral"), "mistralai"),
    (("deepseek",), "deepseek"),
    (("grok",), "xai"),
    (("sonar",), "perplexity"),
)
#: the AI SDK's word for a provider, where it is not the row's name or alias
AI_SDK_WORDS: Final[Mapping[str, str]] = {
    "amazon-bedrock": "bedrock",
    "amazonbedrock": "bedrock",
    "azure": "azure-openai",
    "gateway": "vercel-ai-gateway",
    "googlevertex": "vertex",
}
GATEWAY: Final = "vercel-ai-gateway"
#: constructor arguments that hold a base URL, or a key
_BASES: Final = ("base_url", "azure_endpoint", "openai_api_base", "endpoint_url")
_KEYS: Final = ("api_key", "openai_api_key", "anthropic_api_key", "google_api_key")
#: what becomes part of a path or a query
_SPENT: Final[Mapping[str, str]] = {
    "api_version": "api-version",
    "openai_api_version": "api-version",
    "project": "project",
    "location": "location",
}
_OURS: Final = frozenset((*_BASES, *_KEYS, *_SPENT, "model", "model_provider", "model_kwargs"))


def from_langchain(
    text: str,
    *,
    with_key: bool = False,
    providers: ProviderTable | None = None,
    **settings: Any,
) -> Conversion:
    """The URI for the arguments of `init_chat_model`: "openai:gpt-5", or a model that tells its provider.

    `settings` are its further keyword arguments (`temperature`, `timeout` in seconds, `base_url`, …). Raises
    UsageError for a provider that no row names, and for a model that does not tell its own.
    """
    table = ProviderTable.builtin() if providers is None else providers
    notes = Notes()
    word, model = _langchain_split(text, settings.get("model_provider"), table)
    extra = settings.get("model_kwargs")
    given = {name: value for name, value in settings.items() if name not in _OURS}
    if isinstance(extra, Mapping):
        given.update({str(name): value for name, value in extra.items()})
    base = next((name for name in _BASES if isinstance(settings.get(name), str)), None)
    found = Found(
        model=model,
        row=row_named(word, LANGCHAIN_WORDS, table),
        base=None if base is None else settings[base],
        base_name=base or "",
        rooted=base == "azure_endpoint" or word in ("anthropic", "ollama"),
        key=_key(settings),
        params=read_params(given, notes),
        spent=tuple((name, to, settings[name]) for name, to in _SPENT.items() if settings.get(name)),
    )
    if found.row is None and found.base is None:
        raise _unknown(word)
    return _one(found, table, notes, with_key=with_key)


def from_ai_sdk(text: str, *, separator: str = ":", providers: ProviderTable | None = None) -> Conversion:
    """The URI for a model's id in the AI SDK.

    `creator/model` is an id of the Vercel AI Gateway, and goes there; `provider:model` is one of a provider
    registry, whose `separator` may differ, and goes to the provider. Raises UsageError for neither.
    """
    table = ProviderTable.builtin() if providers is None else providers
    word, mark, model = text.partition(separator)
    slash = word.find("/")
    if not mark or slash >= 0:
        if slash < 1:
            raise UsageError("an id of the AI SDK is creator/model or provider:model", code="convert.bad-id")
        return _one(Found(model=text, row=table.own(GATEWAY)), table, Notes(), with_key=False)
    row = row_named(word, AI_SDK_WORDS, table)
    if row is None:
        raise _unknown(word)
    return _one(Found(model=model, row=row), table, Notes(), with_key=False)


def _one(found: Found, table: ProviderTable, notes: Notes, *, with_key: bool) -> Conversion:
    uri = build(found, table, notes, with_key=with_key)
    return Conversion(found=(Named(None, uri),), notes=notes.all())


def _langchain_split(text: str, provider: Any, table: ProviderTable) -> tuple[str, str]:
    if isinstance(provider, str):
        return provider, text.removeprefix(f"{provider}:")
    word, colon, model = text.partition(":")
    if colon and row_named(word, LANGCHAIN_WORDS, table) is not None:
        return word, model
    lower = text.lower()
    for prefixes, inferred in _INFERRED:
        if lower.startswith(prefixes):
            return inferred, text
    if colon:
        raise _unknown(word)
    raise UsageError(
        "the model does not tell its provider", code="convert.no-provider", hint="write provider:model"
    )


def _key(settings: Mapping[str, Any]) -> Key | None:
    for name in _KEYS:
        value = settings.get(name)
        reveal = getattr(value, "get_secret_value", None)
        value = reveal() if callable(reveal) else value
        if isinstance(value, str) and value:
            return Key(name, secret=Secret(value))
    return None


def _unknown(word: str) -> UsageError:
    from onym.llm.providers import near  # an error alone needs it

    return UsageError(
        "no provider row has that name",
        code="convert.no-provider",
        hint=near(word, ProviderTable.builtin().names())
        or "onym build --host HOST writes a URI for any host",
    )
