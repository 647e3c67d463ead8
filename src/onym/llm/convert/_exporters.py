"""`llm://` URIs to environment variables and to the settings of LiteLLM, LangChain and the AI SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onym.errors import UnsupportedError
from onym.llm import convert
from onym.llm.convert._importers import AI_GATEWAY, AI_SDK_PROVIDERS, LANGCHAIN_PROVIDERS, find_env_source
from onym.llm.convert._importers import LITELLM_PROVIDERS as LITELLM_WORDS
from onym.llm.providers import ProviderTable, is_loopback
from onym.uri.llm import LLMURI
from onym.uri.parameters import WELL_KNOWN
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.providers import Provider

#: providers for which a tool uses Onym's name (with _ for -)
_LITELLM_OWN: Final = convert.split_words(
    "openai anthropic gemini bedrock huggingface groq deepseek xai perplexity mistral cohere openrouter "
    "deepinfra sambanova nebius moonshot zai dashscope minimax baseten novita volcengine wandb "
    "cerebras"
)
_LANGCHAIN_OWN: Final = convert.split_words(
    "openai anthropic cohere deepseek fireworks groq huggingface ollama openrouter perplexity together xai"
)
_AI_SDK_OWN: Final = convert.split_words(
    "openai anthropic groq xai mistral cohere deepseek perplexity fireworks cerebras deepinfra baseten "
    "huggingface"
)
#: the preferred name if a tool has several names for one provider
_LITELLM_WORD: Final = {
    "azure-openai": "azure",
    "ollama": "ollama_chat",
    "cohere": "cohere_chat",
    "openai": "openai",
    "mistral": "mistral",
    "gemini": "gemini",
}
_LANGCHAIN_WORD: Final = {"bedrock": "bedrock_converse", "vertex": "google_vertexai"}
_AI_SDK_WORD: Final = {
    "gemini": "google",
    "vertex": "vertex",
    "bedrock": "bedrock",
    "together": "togetherai",
    "moonshot": "moonshotai",
    "dashscope": "alibaba",
}
#: each target's names of settings in a path or query
_SPENT_LITELLM: Final = {
    "api-version": "api_version",
    "project": "vertex_project",
    "location": "vertex_location",
}
_SPENT_LANGCHAIN: Final = {"api-version": "api_version", "project": "project", "location": "location"}
_SPENT_ENV: Final = {
    "api-version": "OPENAI_API_VERSION",
    "project": "GOOGLE_CLOUD_PROJECT",
    "location": "GOOGLE_CLOUD_LOCATION",
}
#: these take a base URL without the path of the API
_ROOTED_PROVIDERS: Final = convert.split_words("anthropic azure-openai cohere gemini ollama vertex bedrock")

_KEY_NOTE: Final = "the key was not copied: set it in the target, or copy it with --with-key (with_key=True)"
#: prefixes of the labels that belong to the first variables of a source
_LABEL_PREFIXES: Final = ("proj_", "org-")


def to_litellm(
    uri: str | LLMURI, *, with_key: bool = False, providers: ProviderTable | None = None
) -> convert.Written:
    """Return LiteLLM's `litellm_params` for this URI: `model`, `api_base`, `api_key` and parameters.

    A key in a variable becomes `os.environ/NAME`; a key in the URI is written only with `with_key`. Raises
    UnsupportedError if LiteLLM does not support the provider.
    """
    out = _ExportContext(uri, providers)
    word = _find_provider_name(out.row, LITELLM_WORDS, _LITELLM_OWN, _LITELLM_WORD, "_")
    route = "responses/" if out.params.pop("api", None) == "responses" else ""
    if word is None:
        if out.row.dialect != "openai_chat":
            raise _make_unsupported_error("LiteLLM", out.row)
        word = "openai"
    value: dict[str, Any] = {"model": f"{word}/{route}{out.uri.model}"}
    if not out.is_default_host or word == "openai" != out.row.name:
        value["api_base"] = out.build_base_url()
    key = out.find_key("api_key", with_key=with_key)
    if isinstance(key, Secret):
        value["api_key"] = key.reveal()
    elif key is not None:
        value["api_key"] = convert.ENVIRON_PREFIX + key
    else:
        out.note_ambient_key("api_key")
    if out.uri.label and out.row.name == "openai" and out.uri.label.startswith("org-"):
        value["organization"] = out.uri.label
    else:
        out.note_label()
    value.update(out.rename_path_parameters(_SPENT_LITELLM))
    value.update(convert.export_params(out.params, convert.LITELLM_PARAMS, out.notes))
    value.update(out.extra)
    return convert.Written(value=value, notes=out.notes.all())


def to_langchain(
    uri: str | LLMURI, *, with_key: bool = False, providers: ProviderTable | None = None
) -> convert.Written:
    """Return the keyword arguments of LangChain's `init_chat_model` for this URI.

    The provider's own parameters go to `model_kwargs`. Raises UnsupportedError if LangChain does not support
    the provider.
    """
    out = _ExportContext(uri, providers)
    word = _find_provider_name(out.row, LANGCHAIN_PROVIDERS, _LANGCHAIN_OWN, _LANGCHAIN_WORD, "_")
    is_default = out.is_default_host
    if word is None:
        if out.row.dialect != "openai_chat":
            raise _make_unsupported_error("LangChain", out.row)
        word, is_default = "openai", False
    value: dict[str, Any] = {"model": f"{word}:{out.uri.model}"}
    if not is_default:
        value["azure_endpoint" if out.row.name == "azure-openai" else "base_url"] = out.build_base_url()
    _add_key(out, value, with_key=with_key)
    out.note_label()
    value.update(out.rename_path_parameters(_SPENT_LANGCHAIN))
    value.update(convert.export_params(out.params, convert.LANGCHAIN_PARAMS, out.notes))
    if out.extra:
        value["model_kwargs"] = out.extra
    return convert.Written(value=value, notes=out.notes.all())


def to_ai_sdk(uri: str | LLMURI, *, providers: ProviderTable | None = None) -> convert.Written:
    """Return the model ID and call settings of the Vercel AI SDK for this URI: `model`, `maxOutputTokens`, ….

    The ID is `creator/model` for the Vercel AI Gateway and `provider:model` for other endpoints. Raises
    UnsupportedError if the AI SDK does not support the provider.
    """
    out = _ExportContext(uri, providers)
    if out.row.name == AI_GATEWAY:
        name = out.uri.model
    else:
        word = _find_provider_name(out.row, AI_SDK_PROVIDERS, _AI_SDK_OWN, _AI_SDK_WORD, "-")
        if word is None:
            raise _make_unsupported_error("the AI SDK", out.row)
        name = f"{word}:{out.uri.model}"
    value: dict[str, Any] = {"model": name}
    if not out.is_default_host:
        out.notes.add("host", "an ID cannot contain the host: create the provider with baseURL")
    _add_key(out, {}, with_key=False)
    out.note_label()
    out.rename_path_parameters({})
    value.update(convert.export_params(out.params, convert.AI_SDK_PARAMS, out.notes))
    for name in out.extra:
        out.notes.add(name, "put parameters of the provider into providerOptions")
    return convert.Written(value=value, notes=out.notes.all())


def to_env(
    uri: str | LLMURI, *, with_key: bool = False, providers: ProviderTable | None = None
) -> convert.Written:
    """Return the variables that vendor SDKs read for this URI: key, base URL, model.

    Without `with_key`, a key in the URI is left out with a note.
    """
    out = _ExportContext(uri, providers)
    row = out.row
    if row.dialect == "openai_chat" and (is_loopback(out.uri.host) or not row.key_variables):
        # OpenAI's variables also reach other servers with OpenAI's format
        row = out.table.get("openai")
    source = find_env_source(row)
    value = {source.models[0]: out.uri.model, **out.rename_path_parameters(_SPENT_ENV)}
    if source.bases and (not out.is_default_host or row is not out.row):
        value[source.bases[0]] = out.build_base_url()
    key = out.find_key("key", with_key=with_key)
    if isinstance(key, Secret) and source.keys:
        value[source.keys[0]] = key.reveal()
    elif isinstance(key, str) and key not in source.keys:
        variable = source.keys[0] if source.keys else "a variable"
        out.notes.add("auth", f"the key is in {key}, but {variable} is read: copy the value")
    elif key is None:
        out.note_ambient_key(source.keys[0] if source.keys else "key")
    label = out.uri.label or ""
    at = next(
        (at for at, start in enumerate(_LABEL_PREFIXES) if source.labels and label.startswith(start)), None
    )
    if at is None:
        out.note_label()
    else:
        value[source.labels[at]] = label
    for name in (*(name for name in WELL_KNOWN if name in out.params), *out.extra):
        out.notes.add(name, "variables cannot contain parameters")
    return convert.Written(value=_drop_unprintable(value, out.notes), notes=out.notes.all())


def _drop_unprintable(value: Mapping[str, Any], notes: convert.NoteCollector) -> dict[str, str]:
    """Return the values with only one line: many readers of such files treat every line as a variable."""
    variables: dict[str, str] = {}
    for name, item in value.items():
        text = str(item)
        if text.isprintable():
            variables[name] = text
        else:
            notes.add(name, "dropped: it contains a line end or another unprintable character")
    return variables


class _ExportContext:
    """The parts of a URI that every target needs."""

    def __init__(self, uri: str | LLMURI, providers: ProviderTable | None) -> None:
        self.table = ProviderTable.builtin() if providers is None else providers
        self.uri = LLMURI.parse(uri).normalize(aliases=self.table.aliases())
        self.row = convert.find_uri_provider(self.uri, self.table)
        #: the provider entry that the tools know, without changes by a configuration
        self._known = ProviderTable.builtin().find_own(self.row.name)
        self.notes = convert.NoteCollector()
        self.params: dict[str, Any] = dict(self.uri.params)
        self.extra: dict[str, Any] = self.uri.extra
        self.extra.pop("api", None)
        names = convert.list_path_parameters(self.row)
        #: settings in a path or query, by the URI's names
        self.spent: dict[str, Any] = {name: self.params[name] for name in names if name in self.params}
        for name in self.spent:
            self.extra.pop(name, None)
        for name in self.uri.withheld:
            if name in self.spent:
                continue
            self.notes.add(name, "dropped: it would redirect the request, or contains a credential")
        if self.uri.fragment is not None:
            self.notes.add("fragment", "the values of this profile were dropped")

    @property
    def is_default_host(self) -> bool:
        """Whether the host and path are the provider's own, which every tool knows."""
        row, known = self.row, self._known
        if known is None or self.uri.port is not None or self.uri.host != known.host:
            return False
        return (row.base_path, row.default_port) == (known.base_path, known.default_port)

    def build_base_url(self) -> str:
        """Return the base URL, with the path of the API if such tools expect it."""
        uri = self.uri
        host = is_loopback(uri.host)
        port = uri.port or self.row.default_port
        path = self.row.base_path
        if self._known is not None and self.row.name in _ROOTED_PROVIDERS:
            path = path.removesuffix(self._known.base_path)
        place = uri.host_text if port == 443 and not host else f"{uri.host_text}:{port}"
        return f"{'http' if host else 'https'}://{place}{path}"

    def find_key(self, name: str, *, with_key: bool) -> Secret | str | None:
        """Return the key, or the name of the variable in `auth=`; a note if neither can be written."""
        if self.uri.key is not None:
            if with_key:
                return self.uri.key
            self.notes.add(name, _KEY_NOTE)
            return None
        auth = self.uri.auth
        if auth is None:
            return None
        kind, _, variable = auth.partition(":")
        if kind == "env":
            return variable
        self.notes.add("auth", f"the target cannot read keys from {kind}:")
        return None

    def note_ambient_key(self, name: str) -> None:
        """Add a note if no key is written for a host that the tool's own variables are not meant for."""
        if is_loopback(self.uri.host) or not (self.row.hosts or self.row.host_suffixes):
            self.notes.add(
                name, "no key was written: the target may send the key from its own variables to this host"
            )

    def rename_path_parameters(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings in a path or query by a target's names, with a note for each that it lacks."""
        for name in self.spent.keys() - names.keys():
            self.notes.add(name, "the target has no such setting")
        return {names[name]: value for name, value in self.spent.items() if name in names}

    def note_label(self) -> None:
        """Add a note about the label, which most tools do not support."""
        if self.uri.label:
            self.notes.add("label", "the target has no such setting")


def _find_provider_name(
    row: Provider, words: Mapping[str, str], same_names: frozenset[str], first: Mapping[str, str], joint: str
) -> str | None:
    """Return a tool's name for a provider, None if it has none."""
    if row.name in first:
        return first[row.name]
    if row.name in same_names:
        return row.name.replace("-", joint)
    return next((word for word, name in words.items() if name == row.name), None)


def _add_key(out: _ExportContext, value: dict[str, Any], *, with_key: bool) -> None:
    key = out.find_key("api_key", with_key=with_key)
    if isinstance(key, Secret):
        value["api_key"] = key.reveal()
    elif key is not None and key not in out.row.key_variables:
        out.notes.add("auth", f"the key is in the variable {key}: pass it as the API key")
    elif key is None:
        out.note_ambient_key("api_key")


def _make_unsupported_error(tool: str, row: Provider) -> UnsupportedError:
    return UnsupportedError(f"{tool} does not support {row.title}", code="convert.no-word")
