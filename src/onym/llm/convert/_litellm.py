"""LiteLLM's model lists, and the keyword arguments of its `completion`, to URIs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from onym.errors import OnymError, UsageError
from onym.llm.convert._base import Found, Key, build, region, row_named, words
from onym.llm.convert._params import REFERENCE, read_params
from onym.llm.convert._types import Conversion, Named, Notes
from onym.llm.providers import ProviderTable
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.providers import Provider

__all__ = ["WORDS", "from_litellm"]

#: LiteLLM's word for a provider, where it is not the row's name
WORDS: Final[Mapping[str, str]] = {
    "azure": "azure-openai",
    "azure_ai": "azure-inference",
    "azure_text": "azure-openai",
    "chatgpt": "openai",
    "codestral": "mistral",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "github": "github-models",
    "google": "gemini",
    "meta_llama": "meta",
    "nvidia_nim": "nvidia-nim",
    "ollama_chat": "ollama",
    "text-completion-openai": "openai",
    "together_ai": "together",
    "vercel_ai_gateway": "vercel-ai-gateway",
    "vertex_ai": "vertex",
}
#: words for any server of the OpenAI shape: `api_base` says which
_ANY: Final = words(
    "custom custom_openai hosted_vllm vllm lm_studio llamafile litellm_proxy openai_like xinference "
    "docker_model_runner aiohttp_openai"
)
#: base URLs of these stop before the path of the API
_ROOTED: Final = words("anthropic azure-openai bedrock cohere gemini ollama vertex")
#: a model without a provider's word
_INFERRED: Final = (
    (re.compile(r"(gpt-|chatgpt-|o[1-9](-|$)|text-embedding-3|ft:gpt)"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"gemini-"), "gemini"),
    (re.compile(r"command-"), "cohere"),
)
#: ways into one provider that stand between its word and the model
_ROUTES: Final = {
    "bedrock": ("converse", "invoke", "converse_like"),
    "azure-openai": ("o_series", "gpt5_series"),
}
_ROUTING: Final = words(
    "rpm tpm weight order tags max_parallel_requests mock_response drop_params additional_drop_params "
    "input_cost_per_token output_cost_per_token input_cost_per_second output_cost_per_second "
    "stream_timeout allowed_openai_params fallbacks metadata cooldown_time model_info use_in_pass_through "
    "merge_reasoning_content_in_choices max_budget budget_duration"
)
_PLACED: Final = words(
    "model api_base base_url api_key organization custom_llm_provider aws_region_name region_name "
    "vertex_location vertex_ai_location extra_body"
)
#: what becomes part of a path or a query
_SPENT: Final[Mapping[str, str]] = {
    "api_version": "api-version",
    "vertex_project": "project",
    "vertex_ai_project": "project",
}


def from_litellm(
    source: Any, *, with_key: bool = False, providers: ProviderTable | None = None
) -> Conversion:
    """URIs for a LiteLLM configuration, its `model_list`, or the keyword arguments of one call.

    `source` is plain data: a dict with `model_list`, a list of entries, or a dict with `model`. An entry that
    makes no URI is left out with a note. `api_key: os.environ/NAME` becomes `?auth=env:NAME`; a key that
    stands there is copied only with `with_key`. Raises UsageError for data of another shape.
    """
    table = ProviderTable.builtin() if providers is None else providers
    notes, found = Notes(), []
    for name, params, where in _entries(source, notes):
        try:
            uri = _uri(params, table, where, with_key=with_key)
        except OnymError as error:
            where.add("", f"left out: {error.message}")
            continue
        found.append(Named(name, uri))
    return Conversion(found=tuple(found), notes=notes.all())


def _entries(source: Any, notes: Notes) -> Iterator[tuple[str | None, Mapping[str, Any], Notes]]:
    if isinstance(source, Mapping) and "model_list" in source:
        for name in source:
            if name != "model_list":
                notes.add(str(name), "settings of LiteLLM itself are not carried")
        source = source["model_list"]
    elif isinstance(source, Mapping) and "model" in source:
        yield None, source, notes
        return
    if not isinstance(source, Sequence) or isinstance(source, str | bytes):
        raise UsageError(
            "a LiteLLM source is a dict with model_list, a list of its entries, or a dict with model",
            code="convert.bad-litellm",
        )
    for index, entry in enumerate(source):
        below = notes.below(f"model_list[{index}]")
        params = entry.get("litellm_params") if isinstance(entry, Mapping) else None
        if not isinstance(params, Mapping):
            below.add("", "left out: an entry is a dict with litellm_params")
            continue
        if entry.get("model_info"):
            below.add("model_info", "what LiteLLM knows of the model is not carried")
        name = entry.get("model_name")
        yield name if isinstance(name, str) else None, params, below


def _uri(given: Mapping[str, Any], table: ProviderTable, notes: Notes, *, with_key: bool) -> LLMURI:
    found = _found(given, table)
    rest: dict[str, Any] = {}
    for name, value in given.items():
        if name in _ROUTING:
            notes.add(str(name), "LiteLLM's own routing and prices are not carried")
        elif name not in _PLACED and name not in _SPENT:
            rest[str(name)] = value
    body = given.get("extra_body")
    if isinstance(body, Mapping):
        rest.update({str(name): value for name, value in body.items()})
    params = {**found.params, **read_params(rest, notes)}
    spent = tuple((name, to, given[name]) for name, to in _SPENT.items() if given.get(name) is not None)
    return build(
        replace(found, params=params, spent=spent, key=_key(given), label=_label(given, notes)),
        table,
        notes,
        with_key=with_key,
    )


def _found(given: Mapping[str, Any], table: ProviderTable) -> Found:
    word, model = _split(given, table)
    base = given.get("api_base") or given.get("base_url")
    if base is not None and (not isinstance(base, str) or base.startswith(REFERENCE)):
        raise UsageError("api_base is not a URL that stands there", code="convert.no-host")
    row = None if word is None or word in _ANY else row_named(word, WORDS, table)
    if row is None and base is None:
        raise UsageError("it does not say which host is meant", code="convert.no-host")
    name = "" if row is None else row.name
    model, params = _route(name, model)
    if base is None and row is not None:
        base = _region(row, given)
    return Found(model=model, row=row, base=base, base_name="api_base", rooted=name in _ROOTED, params=params)


def _split(given: Mapping[str, Any], table: ProviderTable) -> tuple[str | None, str]:
    """LiteLLM's word for the provider, None where it has none, and the rest of the model's name."""
    model = given.get("model")
    if not isinstance(model, str) or not model:
        raise UsageError("it names no model", code="convert.no-model")
    own = given.get("custom_llm_provider")
    if isinstance(own, str):
        return own, model.removeprefix(f"{own}/")
    word, slash, rest = model.partition("/")
    if slash and rest and (word in _ANY or row_named(word, WORDS, table) is not None):
        return word, rest
    return next((name for pattern, name in _INFERRED if pattern.match(model)), None), model


def _route(row: str, model: str) -> tuple[str, dict[str, Any]]:
    """The model's own name, and what a way into the provider means as a parameter."""
    first, slash, rest = model.partition("/")
    if slash and first in _ROUTES.get(row, ()):
        return rest, {}
    if slash and first == "responses":
        return rest, {"api": "responses"}
    if row == "huggingface" and model.count("/") == 2:
        # LiteLLM writes the inference provider first, the router behind the model
        return f"{rest}:{first}", {}
    return model, {}


def _region(row: Provider, given: Mapping[str, Any]) -> str | None:
    name = given.get("aws_region_name") or given.get("region_name")
    if row.name == "bedrock" and isinstance(name, str) and not name.startswith(REFERENCE):
        return f"https://bedrock-runtime.{region(name)}.amazonaws.com"
    location = given.get("vertex_location") or given.get("vertex_ai_location")
    if row.name == "vertex" and isinstance(location, str) and location != "global":
        return f"https://{region(location)}-aiplatform.googleapis.com"
    return None


def _key(given: Mapping[str, Any]) -> Key | None:
    key = given.get("api_key")
    if not isinstance(key, str) or not key:
        return None
    if key.startswith(REFERENCE):
        return Key("api_key", variable=key.removeprefix(REFERENCE))
    return Key("api_key", secret=Secret(key))


def _label(given: Mapping[str, Any], notes: Notes) -> str | None:
    label = given.get("organization")
    if not isinstance(label, str):
        return None
    if label.startswith(REFERENCE):
        notes.add("organization", "it refers to a variable; a label stands in the URI itself")
        return None
    return label
