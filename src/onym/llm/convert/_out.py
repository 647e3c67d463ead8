"""URIs to what other tools take: variables, LiteLLM, LangChain, the AI SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from onym.errors import UnsupportedError
from onym.llm.convert._base import row_of, spent_names, words
from onym.llm.convert._env import source_of
from onym.llm.convert._ids import AI_SDK_WORDS, GATEWAY, LANGCHAIN_WORDS
from onym.llm.convert._litellm import WORDS as LITELLM_WORDS
from onym.llm.convert._params import AI_SDK, LANGCHAIN, LITELLM, REFERENCE, write_params
from onym.llm.convert._types import Notes, Written
from onym.llm.providers import ProviderTable, is_loopback
from onym.uri._names import WELL_KNOWN
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.providers import Provider

__all__ = ["to_ai_sdk", "to_env", "to_langchain", "to_litellm"]

#: rows that a tool knows under the row's own name (with _ for -)
_LITELLM_OWN: Final = words(
    "openai anthropic gemini bedrock huggingface groq deepseek xai perplexity mistral cohere openrouter "
    "deepinfra sambanova nebius moonshot zai dashscope minimax baseten novita volcengine wandb "
    "cerebras"
)
_LANGCHAIN_OWN: Final = words(
    "openai anthropic cohere deepseek fireworks groq huggingface ollama openrouter perplexity together xai"
)
_AI_SDK_OWN: Final = words(
    "openai anthropic groq xai mistral cohere deepseek perplexity fireworks cerebras deepinfra baseten "
    "huggingface"
)
#: where several of a tool's words mean one row, the one to write
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
#: what each target calls a part of a path or a query
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
_ROOTED: Final = words("anthropic azure-openai cohere gemini ollama vertex bedrock")

#: how the labels begin that the first variables of a source are for
_LABELS: Final = ("proj_", "org-")


def to_litellm(
    uri: str | LLMURI, *, with_key: bool = False, providers: ProviderTable | None = None
) -> Written:
    """The `litellm_params` of a model list for this URI: `model`, `api_base`, `api_key`, parameters.

    A key that the URI points at becomes `os.environ/NAME`; one that it holds is written only with `with_key`.
    Raises UnsupportedError where LiteLLM has no word for the provider.
    """
    out = _Out(uri, providers)
    word = _word(out.row, LITELLM_WORDS, _LITELLM_OWN, _LITELLM_WORD, "_")
    route = "responses/" if out.params.pop("api", None) == "responses" else ""
    if word is None:
        if out.row.dialect != "openai_chat":
            raise _unsupported("LiteLLM", out.row)
        word = "openai"
    value: dict[str, Any] = {"model": f"{word}/{route}{out.uri.model}"}
    if not out.usual or word == "openai" != out.row.name:
        value["api_base"] = out.base_url()
    key = out.key("api_key", with_key=with_key)
    if isinstance(key, Secret):
        value["api_key"] = key.reveal()
    elif key is not None:
        value["api_key"] = REFERENCE + key
    else:
        out.ambient_note("api_key")
    if out.uri.label and out.row.name == "openai" and out.uri.label.startswith("org-"):
        value["organization"] = out.uri.label
    else:
        out.label_note()
    value.update(out.spent_as(_SPENT_LITELLM))
    value.update(write_params(out.params, LITELLM, out.notes))
    value.update(out.extra)
    return Written(value=value, notes=out.notes.all())


def to_langchain(
    uri: str | LLMURI, *, with_key: bool = False, providers: ProviderTable | None = None
) -> Written:
    """The keyword arguments of LangChain's `init_chat_model` for this URI.

    Parameters of the provider go to `model_kwargs`. Raises UnsupportedError where LangChain has no word for
    the provider.
    """
    out = _Out(uri, providers)
    word = _word(out.row, LANGCHAIN_WORDS, _LANGCHAIN_OWN, _LANGCHAIN_WORD, "_")
    usual = out.usual
    if word is None:
        if out.row.dialect != "openai_chat":
            raise _unsupported("LangChain", out.row)
        word, usual = "openai", False
    value: dict[str, Any] = {"model": f"{word}:{out.uri.model}"}
    if not usual:
        value["azure_endpoint" if out.row.name == "azure-openai" else "base_url"] = out.base_url()
    _pointed(out, value, with_key=with_key)
    out.label_note()
    value.update(out.spent_as(_SPENT_LANGCHAIN))
    value.update(write_params(out.params, LANGCHAIN, out.notes))
    if out.extra:
        value["model_kwargs"] = out.extra
    return Written(value=value, notes=out.notes.all())


def to_ai_sdk(uri: str | LLMURI, *, providers: ProviderTable | None = None) -> Written:
    """The id and call settings of the Vercel AI SDK for this URI: `model`, `maxOutputTokens`, ….

    An endpoint at the Vercel AI Gateway gives `creator/model`, any other `provider:model`. Raises
    UnsupportedError where the AI SDK has no word for the provider.
    """
    out = _Out(uri, providers)
    if out.row.name == GATEWAY:
        name = out.uri.model
    else:
        word = _word(out.row, AI_SDK_WORDS, _AI_SDK_OWN, _AI_SDK_WORD, "-")
        if word is None:
            raise _unsupported("the AI SDK", out.row)
        name = f"{word}:{out.uri.model}"
    value: dict[str, Any] = {"model": name}
    if not out.usual:
        out.notes.add("host", "an id has no place for it: create the provider with baseURL")
    _pointed(out, {}, with_key=False)
    out.label_note()
    out.spent_as({})
    value.update(write_params(out.params, AI_SDK, out.notes))
    for each in out.extra:
        out.notes.add(each, "parameters of the provider go to providerOptions")
    return Written(value=value, notes=out.notes.all())


def to_env(uri: str | LLMURI, *, with_key: bool = False, providers: ProviderTable | None = None) -> Written:
    """The variables that vendor SDKs read for this URI: key, base URL, model.

    Without `with_key`, a key that the URI holds is left out with a note.
    """
    out = _Out(uri, providers)
    row = out.row
    if row.dialect == "openai_chat" and (is_loopback(out.uri.host) or not row.key_variables):
        # what speaks OpenAI's format is reached by the variables of OpenAI's SDK
        row = out.table.get("openai")
    source = source_of(row)
    value = {source.models[0]: out.uri.model, **out.spent_as(_SPENT_ENV)}
    if source.bases and (not out.usual or row is not out.row):
        value[source.bases[0]] = out.base_url()
    key = out.key("key", with_key=with_key)
    if isinstance(key, Secret) and source.keys:
        value[source.keys[0]] = key.reveal()
    elif isinstance(key, str) and key not in source.keys:
        wanted = source.keys[0] if source.keys else "a variable"
        out.notes.add("auth", f"the key is in {key}, and {wanted} is looked for: set it from there")
    elif key is None:
        out.ambient_note(source.keys[0] if source.keys else "key")
    label = out.uri.label or ""
    at = next((at for at, start in enumerate(_LABELS) if source.labels and label.startswith(start)), None)
    if at is None:
        out.label_note()
    else:
        value[source.labels[at]] = label
    for name in (*(name for name in WELL_KNOWN if name in out.params), *out.extra):
        out.notes.add(name, "no variable carries a parameter")
    return Written(value=_lines(value, out.notes), notes=out.notes.all())


def _lines(value: Mapping[str, Any], notes: Notes) -> dict[str, str]:
    """The values that are one line: many readers of such files take each line for a variable."""
    found: dict[str, str] = {}
    for name, given in value.items():
        text = str(given)
        if text.isprintable():
            found[name] = text
        else:
            notes.add(name, "left out: it holds a line end, or another character that does not print")
    return found


class _Out:
    """What every target asks of a URI."""

    def __init__(self, uri: str | LLMURI, providers: ProviderTable | None) -> None:
        self.table = ProviderTable.builtin() if providers is None else providers
        self.uri = LLMURI.parse(uri).normalize(aliases=self.table.aliases())
        self.row = row_of(self.uri, self.table)
        #: the row as the tools know it, whatever a configuration has put in its place
        self._known = ProviderTable.builtin().own(self.row.name)
        self.notes = Notes()
        self.params: dict[str, Any] = dict(self.uri.params)
        self.extra: dict[str, Any] = self.uri.extra
        self.extra.pop("api", None)
        names = spent_names(self.row)
        #: what stands in a path or a query, by the URI's names
        self.spent: dict[str, Any] = {name: self.params[name] for name in names if name in self.params}
        for name in self.spent:
            self.extra.pop(name, None)
        for name in self.uri.withheld:
            if name in self.spent:
                continue
            self.notes.add(name, "it would redirect the request, or holds a credential: never carried")
        if self.uri.fragment is not None:
            self.notes.add("fragment", "a profile of the configuration file: its values are not carried")

    @property
    def usual(self) -> bool:
        """Whether the place is the provider's own first one, which every tool knows."""
        row, known = self.row, self._known
        if known is None or self.uri.port is not None or self.uri.host != known.host:
            return False
        return (row.base_path, row.default_port) == (known.base_path, known.default_port)

    def base_url(self) -> str:
        """The base URL, with the path of the API where such tools want it."""
        uri = self.uri
        host = is_loopback(uri.host)
        port = uri.port or self.row.default_port
        path = self.row.base_path
        if self._known is not None and self.row.name in _ROOTED:
            path = path.removesuffix(self._known.base_path)
        place = uri.host_text if port == 443 and not host else f"{uri.host_text}:{port}"
        return f"{'http' if host else 'https'}://{place}{path}"

    def key(self, name: str, *, with_key: bool) -> Secret | str | None:
        """The key, or the name of the variable that `auth=` points at; a note where neither can be said."""
        if self.uri.key is not None:
            if with_key:
                return self.uri.key
            self.notes.add(name, "the key was not copied: set it there, or ask for it")
            return None
        auth = self.uri.auth
        if auth is None:
            return None
        kind, _, rest = auth.partition(":")
        if kind == "env":
            return rest
        self.notes.add("auth", f"{kind}: is a store that the other side cannot read")
        return None

    def ambient_note(self, name: str) -> None:
        """No key is written, at a host that is not the one of the tool's own variables."""
        if is_loopback(self.uri.host) or not (self.row.hosts or self.row.host_suffixes):
            self.notes.add(name, "none is written: the other side may send a key of its own variables there")

    def spent_as(self, names: Mapping[str, str]) -> dict[str, Any]:
        """What stands in a path or a query, by a target's names; a note for what it lacks."""
        for name in self.spent.keys() - names.keys():
            self.notes.add(name, "it has no place there")
        return {names[name]: value for name, value in self.spent.items() if name in names}

    def label_note(self) -> None:
        """A label has no place in most tools."""
        if self.uri.label:
            self.notes.add("label", "it has no place there")


def _word(
    row: Provider, words: Mapping[str, str], own: frozenset[str], first: Mapping[str, str], joint: str
) -> str | None:
    """A tool's word for a row, None where it has none."""
    if row.name in first:
        return first[row.name]
    if row.name in own:
        return row.name.replace("-", joint)
    return next((word for word, name in words.items() if name == row.name), None)


def _pointed(out: _Out, value: dict[str, Any], *, with_key: bool) -> None:
    key = out.key("api_key", with_key=with_key)
    if isinstance(key, Secret):
        value["api_key"] = key.reveal()
    elif key is not None and key not in out.row.key_variables:
        out.notes.add("auth", f"the key is in the variable {key}: pass it as the api key")
    elif key is None:
        out.ambient_note("api_key")


def _unsupported(tool: str, row: Provider) -> UnsupportedError:
    return UnsupportedError(f"{tool} has no word for {row.title}", code="convert.no-word")
