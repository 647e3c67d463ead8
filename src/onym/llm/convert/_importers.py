"""Settings of LangChain, the AI SDK, LiteLLM and environment variables to `llm://` URIs.

`load_models` reads a file of models: JSON always, YAML if PyYAML is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from onym.errors import MissingExtraError, OnymError, UsageError
from onym.llm import convert
from onym.llm.providers import ProviderTable
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.providers import Provider

#: LangChain's provider names that differ from Onym's
LANGCHAIN_PROVIDERS: Final[Mapping[str, str]] = {
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
#: the provider that LangChain infers from a model's name
_LANGCHAIN_INFERRED: Final = (
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
#: the AI SDK's provider names that are neither Onym's name nor an alias
AI_SDK_PROVIDERS: Final[Mapping[str, str]] = {
    "amazon-bedrock": "bedrock",
    "amazonbedrock": "bedrock",
    "azure": "azure-openai",
    "gateway": "vercel-ai-gateway",
    "googlevertex": "vertex",
}
AI_GATEWAY: Final = "vercel-ai-gateway"
#: constructor arguments for the base URL and the key
_LANGCHAIN_BASE_URLS: Final = ("base_url", "azure_endpoint", "openai_api_base", "endpoint_url")
_LANGCHAIN_KEYS: Final = ("api_key", "openai_api_key", "anthropic_api_key", "google_api_key")
#: arguments that become part of a path or query
_LANGCHAIN_PATH_NAMES: Final[Mapping[str, str]] = {
    "api_version": "api-version",
    "openai_api_version": "api-version",
    "project": "project",
    "location": "location",
}
_LANGCHAIN_KNOWN: Final = frozenset(
    (
        *_LANGCHAIN_BASE_URLS,
        *_LANGCHAIN_KEYS,
        *_LANGCHAIN_PATH_NAMES,
        "model",
        "model_provider",
        "model_kwargs",
    )
)


def from_langchain(
    text: str, *, with_key: bool = False, providers: ProviderTable | None = None, **settings: Any
) -> convert.Conversion:
    """Return the URI for the arguments of `init_chat_model`: "openai:gpt-5.5", or a well-known model.

    `settings` are its other keyword arguments (`temperature`, `timeout` in seconds, `base_url`, …). Raises
    UsageError for an unknown provider, and for a model that does not imply one.
    """
    context = convert.ImportContext.create(providers, with_key=with_key)
    word, model = _split_langchain_name(text, settings.get("model_provider"), context.table)
    extra = settings.get("model_kwargs")
    arguments = {name: value for name, value in settings.items() if name not in _LANGCHAIN_KNOWN}
    if isinstance(extra, Mapping):
        arguments.update({str(name): value for name, value in extra.items()})
    base = next((name for name in _LANGCHAIN_BASE_URLS if isinstance(settings.get(name), str)), None)
    source = convert.SourceModel(
        model=model,
        row=convert.find_provider(word, LANGCHAIN_PROVIDERS, context.table),
        base=None if base is None else settings[base],
        base_name=base or "",
        rooted=base == "azure_endpoint" or word in ("anthropic", "ollama"),
        key=_find_langchain_key(settings),
        params=convert.import_params(arguments, context.notes),
        spent=_list_path_values(
            {name: value or None for name, value in settings.items()}, _LANGCHAIN_PATH_NAMES
        ),
    )
    if source.row is None and source.base is None:
        raise _make_unknown_provider_error(word)
    return context.make_conversion(convert.Named(None, convert.build_uri(source, context)))


def from_ai_sdk(
    text: str, *, separator: str = ":", providers: ProviderTable | None = None
) -> convert.Conversion:
    """Return the URI for a model ID of the AI SDK.

    `creator/model` is an ID of the Vercel AI Gateway. `provider:model` is an ID of a provider registry, whose
    `separator` may differ, and leads to the provider. Raises UsageError for other text.
    """
    context = convert.ImportContext.create(providers)
    word, mark, model = text.partition(separator)
    slash = word.find("/")
    if not mark or slash >= 0:
        if slash < 1:
            raise UsageError(
                "a model ID of the AI SDK has the form creator/model or provider:model", code="convert.bad-id"
            )
        source = convert.SourceModel(model=text, row=context.table.find_own(AI_GATEWAY))
    else:
        source = convert.SourceModel(
            model=model, row=convert.find_provider(word, AI_SDK_PROVIDERS, context.table)
        )
        if source.row is None:
            raise _make_unknown_provider_error(word)
    return context.make_conversion(convert.Named(None, convert.build_uri(source, context)))


def _split_langchain_name(text: str, provider: Any, table: ProviderTable) -> tuple[str, str]:
    if isinstance(provider, str):
        return provider, text.removeprefix(f"{provider}:")
    word, colon, model = text.partition(":")
    if colon and convert.find_provider(word, LANGCHAIN_PROVIDERS, table) is not None:
        return word, model
    lower = text.lower()
    for prefixes, inferred in _LANGCHAIN_INFERRED:
        if lower.startswith(prefixes):
            return inferred, text
    if colon:
        raise _make_unknown_provider_error(word)
    raise UsageError(
        "the provider is missing, and the model's name does not imply one",
        code="convert.no-provider",
        hint="Write provider:model.",
    )


def _find_langchain_key(settings: Mapping[str, Any]) -> convert.KeySource | None:
    for name in _LANGCHAIN_KEYS:
        value = settings.get(name)
        reveal = getattr(value, "get_secret_value", None)
        value = reveal() if callable(reveal) else value
        if isinstance(value, str) and value:
            return convert.KeySource(name, secret=Secret(value))
    return None


def _make_unknown_provider_error(word: str) -> UsageError:
    from onym.llm.providers import format_suggestion  # late: only an error needs it

    return UsageError(
        "Onym does not know this provider",
        code="convert.no-provider",
        hint=format_suggestion(word, ProviderTable.builtin().names())
        or "Build a URI for any host with: onym build --host HOST",
    )


#: LiteLLM's provider names that differ from Onym's
LITELLM_PROVIDERS: Final[Mapping[str, str]] = {
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
#: names for any server with OpenAI's format: `api_base` tells which
_LITELLM_GENERIC: Final = convert.split_words(
    "custom custom_openai hosted_vllm vllm lm_studio llamafile litellm_proxy openai_like xinference "
    "docker_model_runner aiohttp_openai"
)
#: base URLs of these providers end before the path of the API
_LITELLM_ROOTED: Final = convert.split_words("anthropic azure-openai bedrock cohere gemini ollama vertex")
#: models without a provider name
_LITELLM_INFERRED: Final = (
    (re.compile(r"(gpt-|chatgpt-|o[1-9](-|$)|text-embedding-3|ft:gpt)"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"gemini-"), "gemini"),
    (re.compile(r"command-"), "cohere"),
)
#: routes of one provider, between its name and the model
_LITELLM_ROUTES: Final = {
    "bedrock": ("converse", "invoke", "converse_like"),
    "azure-openai": ("o_series", "gpt5_series"),
}
_LITELLM_ROUTING: Final = convert.split_words(
    "rpm tpm weight order tags max_parallel_requests mock_response drop_params additional_drop_params "
    "input_cost_per_token output_cost_per_token input_cost_per_second output_cost_per_second "
    "stream_timeout allowed_openai_params fallbacks metadata cooldown_time model_info use_in_pass_through "
    "merge_reasoning_content_in_choices max_budget budget_duration"
)
_LITELLM_PLACED: Final = convert.split_words(
    "model api_base base_url api_key organization custom_llm_provider aws_region_name region_name "
    "vertex_location vertex_ai_location extra_body"
)
#: settings of all models, and what to write for each
_LITELLM_SETTINGS: Final[Mapping[str, str]] = {
    "cache": "add ?cache=true to the URIs",
    "drop_params": 'pass on_unsupported="drop" to connect, or --on-unsupported drop',
    "fallbacks": "Onym has no fallbacks; call the endpoints one after another",
    "num_retries": "add ?retries=NUMBER to the URIs",
    "request_timeout": "add ?timeout=MILLISECONDS to the URIs",
    "timeout": "add ?timeout=MILLISECONDS to the URIs",
}
#: settings that become part of a path or query
_LITELLM_PATH_NAMES: Final[Mapping[str, str]] = {
    "api_version": "api-version",
    "vertex_project": "project",
    "vertex_ai_project": "project",
}


def from_litellm(
    source: Any, *, with_key: bool = False, providers: ProviderTable | None = None
) -> convert.Conversion:
    """Return URIs for a LiteLLM configuration, its `model_list`, or the keyword arguments of one call.

    `source` is plain data: a dict with `model_list`, a list of entries, or a dict with `model`. An entry that
    is not valid in a URI is left out with a note. `api_key: os.environ/NAME` becomes `?auth=env:NAME`; a
    literal key is copied only with `with_key`. Raises UsageError for data in another form.
    """
    context, uris = convert.ImportContext.create(providers, with_key=with_key), []
    for name, params, notes in _iter_litellm_entries(source, context.notes):
        try:
            uris.append(convert.Named(name, _build_litellm_uri(params, context._replace(notes=notes))))
        except OnymError as error:
            notes.add("", f"skipped: {error.message}")
    return context.make_conversion(*uris)


def _note_litellm_settings(section: str, settings: Any, notes: convert.NoteCollector) -> None:
    """Add a note for a section of LiteLLM's own settings, and one for each that Onym has elsewhere."""
    known = [name for name in _LITELLM_SETTINGS if isinstance(settings, Mapping) and name in settings]
    for name in known:
        notes.add(f"{section}.{name}", f"not part of a URI: {_LITELLM_SETTINGS[name]}")
    if not known or len(known) < len(settings):
        other = "other settings" if known else "settings"
        notes.add(section, f"{other} of LiteLLM itself were dropped")


def _iter_litellm_entries(
    source: Any, notes: convert.NoteCollector
) -> Iterator[tuple[str | None, Mapping[str, Any], convert.NoteCollector]]:
    if isinstance(source, Mapping) and "model_list" in source:
        for name in source:
            if name != "model_list":
                _note_litellm_settings(str(name), source[name], notes)
        source = source["model_list"]
    elif isinstance(source, Mapping) and "model" in source:
        yield None, source, notes
        return
    if not isinstance(source, Sequence) or isinstance(source, str | bytes):
        raise UsageError(
            "a LiteLLM source must be a dict with model_list, a list of its entries, or a dict with model",
            code="convert.bad-litellm",
        )
    for index, entry in enumerate(source):
        below = notes.child(f"model_list[{index}]")
        params = entry.get("litellm_params") if isinstance(entry, Mapping) else None
        if not isinstance(params, Mapping):
            below.add("", "skipped: an entry must be a dict with litellm_params")
            continue
        if entry.get("model_info"):
            below.add("model_info", "LiteLLM's information about the model was dropped")
        name = entry.get("model_name")
        yield name if isinstance(name, str) else None, params, below


def _build_litellm_uri(settings: Mapping[str, Any], context: convert.ImportContext) -> LLMURI:
    notes = context.notes
    source = _parse_litellm_model(settings, context.table)
    rest: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _LITELLM_ROUTING:
            notes.add(str(name), "LiteLLM's routing and prices were dropped")
        elif name not in _LITELLM_PLACED and name not in _LITELLM_PATH_NAMES:
            rest[str(name)] = value
    body = settings.get("extra_body")
    if isinstance(body, Mapping):
        rest.update({str(name): value for name, value in body.items()})
    source = replace(
        source,
        params={**source.params, **convert.import_params(rest, notes)},
        spent=_list_path_values(settings, _LITELLM_PATH_NAMES),
        key=_read_litellm_key(settings),
        label=_read_litellm_label(settings, notes),
    )
    return convert.build_uri(source, context)


def _list_path_values(
    settings: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[tuple[str, str, object], ...]:
    """Return the settings that become part of a path or query: name, the URI's parameter, value."""
    return tuple((name, to, settings[name]) for name, to in names.items() if settings.get(name) is not None)


def _parse_litellm_model(settings: Mapping[str, Any], table: ProviderTable) -> convert.SourceModel:
    word, model = _split_litellm_name(settings, table)
    base = settings.get("api_base") or settings.get("base_url")
    if base is not None and (not isinstance(base, str) or base.startswith(convert.ENVIRON_PREFIX)):
        raise UsageError("api_base must be a literal URL", code="convert.no-host")
    row = (
        None
        if word is None or word in _LITELLM_GENERIC
        else convert.find_provider(word, LITELLM_PROVIDERS, table)
    )
    if row is None and base is None:
        raise UsageError("the host is missing", code="convert.no-host")
    name = "" if row is None else row.name
    model, params = _strip_litellm_route(name, model)
    if base is None and row is not None:
        base = _find_litellm_region_url(row, settings)
    return convert.SourceModel(
        model=model, row=row, base=base, base_name="api_base", rooted=name in _LITELLM_ROOTED, params=params
    )


def _split_litellm_name(settings: Mapping[str, Any], table: ProviderTable) -> tuple[str | None, str]:
    """Return LiteLLM's provider name, None if there is none, and the rest of the model's name."""
    model = settings.get("model")
    if not isinstance(model, str) or not model:
        raise UsageError("the model is missing", code="convert.no-model")
    provider = settings.get("custom_llm_provider")
    if isinstance(provider, str):
        return provider, model.removeprefix(f"{provider}/")
    word, slash, rest = model.partition("/")
    known = word in _LITELLM_GENERIC or convert.find_provider(word, LITELLM_PROVIDERS, table) is not None
    if slash and rest and known:
        return word, rest
    return next((name for pattern, name in _LITELLM_INFERRED if pattern.match(model)), None), model


def _strip_litellm_route(row: str, model: str) -> tuple[str, dict[str, Any]]:
    """Return the model's own name, and the parameters of the route."""
    first, slash, rest = model.partition("/")
    if slash and first in _LITELLM_ROUTES.get(row, ()):
        return rest, {}
    if slash and first == "responses":
        return rest, {"api": "responses"}
    if row == "huggingface" and model.count("/") == 2:
        # LiteLLM writes the inference provider first, the router writes it last
        return f"{rest}:{first}", {}
    return model, {}


def _find_litellm_region_url(row: Provider, settings: Mapping[str, Any]) -> str | None:
    name = settings.get("aws_region_name") or settings.get("region_name")
    if row.name == "bedrock" and isinstance(name, str) and not name.startswith(convert.ENVIRON_PREFIX):
        return f"https://bedrock-runtime.{convert.require_region(name)}.amazonaws.com"
    location = settings.get("vertex_location") or settings.get("vertex_ai_location")
    if row.name == "vertex" and isinstance(location, str) and location != "global":
        return f"https://{convert.require_region(location)}-aiplatform.googleapis.com"
    return None


def _read_litellm_key(settings: Mapping[str, Any]) -> convert.KeySource | None:
    key = settings.get("api_key")
    if not isinstance(key, str) or not key:
        return None
    if key.startswith(convert.ENVIRON_PREFIX):
        return convert.KeySource("api_key", variable=key.removeprefix(convert.ENVIRON_PREFIX))
    return convert.KeySource("api_key", secret=Secret(key))


def _read_litellm_label(settings: Mapping[str, Any], notes: convert.NoteCollector) -> str | None:
    label = settings.get("organization")
    if not isinstance(label, str):
        return None
    if label.startswith(convert.ENVIRON_PREFIX):
        notes.add("organization", "dropped: it refers to a variable, but a label must be literal in a URI")
        return None
    return label


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSource:
    """The variables of one provider, each tuple in order of precedence."""

    row: str
    keys: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    #: base URLs of these variables end before the path of the API
    rooted: bool = False
    #: variables with a region ("AWS_REGION", ...), and the host with a place for it
    regions: tuple[str, ...] = ()
    region_host: str = ""
    #: (variable, parameter of the URI) of settings in a path or query
    spent: tuple[tuple[str, str], ...] = ()


#: providers whose variables do not follow from the name of their key
ENV_SOURCES: Final = (
    EnvSource(
        row="openai",
        keys=("OPENAI_API_KEY",),
        bases=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        models=("OPENAI_MODEL", "OPENAI_MODEL_NAME", "OPENAI_CHAT_MODEL"),
        labels=("OPENAI_PROJECT_ID", "OPENAI_ORG_ID", "OPENAI_ORGANIZATION"),
    ),
    EnvSource(
        row="azure-openai",
        keys=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
        bases=("AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE"),
        models=(
            "AZURE_OPENAI_DEPLOYMENT",
            "AZURE_OPENAI_DEPLOYMENT_NAME",
            "AZURE_OPENAI_CHAT_DEPLOYMENT_NAME",
            "AZURE_OPENAI_MODEL",
        ),
        rooted=True,
        spent=(("OPENAI_API_VERSION", "api-version"), ("AZURE_API_VERSION", "api-version")),
    ),
    EnvSource(
        row="anthropic",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        bases=("ANTHROPIC_BASE_URL",),
        models=("ANTHROPIC_MODEL",),
        rooted=True,
    ),
    EnvSource(
        row="gemini",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        bases=("GOOGLE_GEMINI_BASE_URL",),
        models=("GEMINI_MODEL", "GOOGLE_MODEL", "GOOGLE_GENAI_MODEL"),
        rooted=True,
    ),
    EnvSource(
        row="vertex",
        models=("VERTEX_MODEL", "VERTEXAI_MODEL"),
        regions=("GOOGLE_CLOUD_LOCATION", "VERTEXAI_LOCATION"),
        region_host="{}-aiplatform.googleapis.com",
        spent=(("GOOGLE_CLOUD_PROJECT", "project"),),
    ),
    EnvSource(
        row="bedrock",
        keys=("AWS_BEARER_TOKEN_BEDROCK",),
        models=("BEDROCK_MODEL_ID", "BEDROCK_MODEL", "AWS_BEDROCK_MODEL_ID"),
        regions=("AWS_REGION", "AWS_DEFAULT_REGION"),
        region_host="bedrock-runtime.{}.amazonaws.com",
    ),
    EnvSource(
        row="ollama",
        keys=("OLLAMA_API_KEY",),
        bases=("OLLAMA_HOST",),
        models=("OLLAMA_MODEL",),
        rooted=True,
    ),
    EnvSource(
        row="huggingface",
        keys=("HF_TOKEN", "HUGGINGFACE_API_KEY", "HUGGINGFACEHUB_API_TOKEN"),
        models=("HF_MODEL", "HUGGINGFACE_MODEL"),
    ),
    EnvSource(
        row="databricks",
        keys=("DATABRICKS_TOKEN",),
        bases=("DATABRICKS_HOST",),
        models=("DATABRICKS_MODEL",),
        rooted=True,
    ),
)

#: addresses to listen on, which clients cannot connect to
_WILDCARD_HOSTS: Final = frozenset({"0.0.0.0", "[::]"})  # noqa: S104 - recognised, never bound


def from_env(
    environ: Mapping[str, str],
    *,
    model: str | None = None,
    with_key: bool = False,
    providers: ProviderTable | None = None,
) -> convert.Conversion:
    """Return a URI for each provider that variables such as OPENAI_API_KEY, _BASE_URL and _MODEL describe.

    A URI names a model: if no variable does, `model` is used, and without it the provider is left out with a
    note. A key becomes `?auth=env:NAME`; with `with_key` it is copied into the URI.
    """
    context, uris = convert.ImportContext.create(providers, with_key=with_key), []
    for source in _iter_env_sources(context.table):
        try:
            model_source = _read_env_source(source, environ, model, context)
            if model_source is not None:
                uris.append(convert.Named(source.row, convert.build_uri(model_source, context)))
        except OnymError as error:
            context.notes.add(source.row, f"skipped: {error.message}")
    return context.make_conversion(*uris)


def find_env_source(row: Provider) -> EnvSource:
    """Return the variables of a provider: those of the table, or those that the name of its key suggests."""
    for source in ENV_SOURCES:
        if source.row == row.name:
            return source
    prefix = row.name.upper().replace("-", "_")
    for name in row.key_variables[:1]:
        prefix = name.removesuffix("_API_KEY").removesuffix("_TOKEN")
    return EnvSource(
        row=row.name,
        keys=row.key_variables,
        bases=(f"{prefix}_BASE_URL", f"{prefix}_API_BASE"),
        models=(f"{prefix}_MODEL",),
    )


def _iter_env_sources(table: ProviderTable) -> Iterator[EnvSource]:
    """Yield the sources of all providers; a key's variable belongs to the first provider that has it."""
    seen: set[str] = set()
    for source in (*ENV_SOURCES, *(find_env_source(row) for row in table if row.key_variables)):
        if not seen.intersection((source.row, *source.keys)):
            seen.update((source.row, *source.keys))
            yield source


def _read_env_source(
    source: EnvSource, environ: Mapping[str, str], model: str | None, context: convert.ImportContext
) -> convert.SourceModel | None:
    key, base, model_variable = (
        _find_variable(environ, names) for names in (source.keys, source.bases, source.models)
    )
    if key is None and base is None and model_variable is None:
        return None
    if model_variable is not None:
        model = environ[model_variable].strip()
    elif model is None:
        text = f"the model is missing: set {source.models[0]}, or pass the model"
        context.notes.add(key or base or source.row, text)
        return None
    return convert.SourceModel(
        model=model,
        row=context.table.find_own(source.row),
        label=_read_env_label(source, environ, context.notes),
        base=_find_env_base_url(source, environ, base, context.notes),
        base_name=base or "the host",
        rooted=source.rooted,
        key=None if key is None else _read_env_key(key, environ, context),
        spent=tuple((name, to, environ[name].strip()) for name, to in source.spent if environ.get(name)),
    )


def _find_variable(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if environ.get(name, "").strip()), None)


def _read_env_key(name: str, environ: Mapping[str, str], context: convert.ImportContext) -> convert.KeySource:
    if context.with_key:
        return convert.KeySource(name, secret=Secret(environ[name].strip()))
    return convert.KeySource(name, variable=name)


def _read_env_label(
    source: EnvSource, environ: Mapping[str, str], notes: convert.NoteCollector
) -> str | None:
    variables = [name for name in source.labels if environ.get(name, "").strip()]
    for name in variables[1:]:
        notes.add(name, f"dropped: a URI has only one label, which is {variables[0]}")
    return environ[variables[0]].strip() if variables else None


def _find_env_base_url(
    source: EnvSource, environ: Mapping[str, str], name: str | None, notes: convert.NoteCollector
) -> str | None:
    if name is None:
        variable = _find_variable(environ, source.regions)
        if variable is None or environ[variable].strip() == "global":
            return None
        return f"https://{source.region_host.format(convert.require_region(environ[variable].strip()))}"
    text = environ[name].strip()
    if source.row != "ollama":
        return text
    return _normalize_ollama_host(text, name, notes)


def _normalize_ollama_host(text: str, name: str, notes: convert.NoteCollector) -> str:
    """Return OLLAMA_HOST as a URL. It may lack scheme, port or host, or be an address to listen on."""
    scheme, mark, rest = text.rpartition("://")
    host, slash, path = rest.partition("/")
    server, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        server, port = host, ""
    if server in _WILDCARD_HOSTS or not server:
        notes.add(name, "an address to listen on: localhost is used instead")
        server = "localhost"
    default = "11434" if not mark else {"http": "80", "https": "443"}.get(scheme, "")
    return f"{scheme or 'http'}://{server}:{port or default}{slash}{path}"


_MAX_TEXT = 4 * 1024 * 1024
#: the largest number of values in a YAML text, with aliases expanded
_MAX_VALUES = 200_000
#: the largest number of characters of a number: parsing a longer one takes more than linear time
_MAX_NUMBER = 1000


def load_models(text: str) -> Any:
    """Return the data in a JSON or YAML text.

    Raises UsageError for other text, and MissingExtraError for YAML if PyYAML is not installed. No message
    quotes the text, which may contain keys.
    """
    if len(text) > _MAX_TEXT:
        raise UsageError("the list of models is longer than 4 MiB", code="convert.too-long")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _parse_yaml(text)


def _parse_yaml(text: str) -> Any:
    try:
        yaml = import_module("yaml")  # late: JSON does not need it
    except ModuleNotFoundError:
        raise MissingExtraError(
            "YAML needs PyYAML, which is not installed (JSON does not need it)",
            code="convert.needs-yaml",
            command="pip install 'onym[yaml]'",
            hint="Run: pip install 'onym[yaml]'",
        ) from None
    try:
        # aliases can make a small text a huge value, so values are counted before they are built
        if _count_values(yaml.parse(text, Loader=yaml.SafeLoader)) > _MAX_VALUES:
            raise UsageError(f"the YAML has more than {_MAX_VALUES:,} values", code="convert.too-long")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        position = "" if mark is None else f" (line {mark.line + 1})"
        raise UsageError(f"the text is neither JSON nor YAML{position}", code="convert.bad-yaml") from None


def _count_values(events: Iterable[Any]) -> int:
    """Return how many values these events produce, with aliases expanded."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = [(None, 0)]
    for event in events:
        anchor, kind = getattr(event, "anchor", None), type(event).__name__
        if kind in ("SequenceStartEvent", "MappingStartEvent"):
            open_.append((anchor, 1))
            continue
        if kind in ("SequenceEndEvent", "MappingEndEvent"):
            anchor, size = open_.pop()
        elif kind == "AliasEvent":
            # an alias inside its own anchor expands without end
            anchor, size = None, sizes.get(str(anchor), _MAX_VALUES + 1)
        else:
            size = _MAX_VALUES + 1 if _is_long_number(event) else 1
        if anchor is not None:
            sizes[anchor] = size
        open_[-1] = (open_[-1][0], open_[-1][1] + size)
    return open_[0][1]


def _is_long_number(event: Any) -> bool:
    text = getattr(event, "value", "")
    if len(text) <= _MAX_NUMBER or text[0] not in "+-.0123456789":
        return False
    # a quoted text is a number if it has such a tag
    return event.style is None or event.tag is not None
