"""Convert other tools' model names and settings to `llm://` URIs and back, without importing the tools.

    >>> from_langchain("openai:gpt-5.5").uri
    LLMURI('llm://api.openai.com/gpt-5.5')
    >>> from_ai_sdk("anthropic/claude-sonnet-5.5").uri
    LLMURI('llm://ai-gateway.vercel.sh/anthropic/claude-sonnet-5.5')

A setting that the target cannot express becomes a `Note`. A key in a variable becomes `?auth=env:NAME`; a
literal key is copied only with `with_key=True`. Notes never contain keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onym._lazy import make_lazy_names
from onym.errors import ParameterError, URIError, UsageError
from onym.llm.parameters import list_sdk_names, validate_parameter
from onym.llm.providers import ProviderTable, is_loopback
from onym.uri.generic import URI
from onym.uri.llm import LLMURI
from onym.uri.parameters import PROVIDER_NAMES, WELL_KNOWN, is_redirecting, is_secret_parameter
from onym.uri.redact import redact
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.convert._exporters import to_ai_sdk as to_ai_sdk
    from onym.llm.convert._exporters import to_env as to_env
    from onym.llm.convert._exporters import to_langchain as to_langchain
    from onym.llm.convert._exporters import to_litellm as to_litellm
    from onym.llm.convert._importers import from_ai_sdk as from_ai_sdk
    from onym.llm.convert._importers import from_env as from_env
    from onym.llm.convert._importers import from_langchain as from_langchain
    from onym.llm.convert._importers import from_litellm as from_litellm
    from onym.llm.convert._importers import load_models as load_models
    from onym.llm.convert._llm_strings import from_llm_strings as from_llm_strings
    from onym.llm.providers import Provider


class Note(NamedTuple):
    """A setting that was dropped, or whose meaning differs. `where` is its name in the source, or ""."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


class Named(NamedTuple):
    """One URI, and its name in the source, None if the source has none."""

    name: str | None
    uri: LLMURI


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """URIs from another tool's settings, in the order of the source. Its `repr` shows no key."""

    found: tuple[Named, ...]
    notes: tuple[Note, ...] = ()

    @property
    def uris(self) -> tuple[LLMURI, ...]:
        """The URIs without their names."""
        return tuple(named.uri for named in self.found)

    @property
    def uri(self) -> LLMURI:
        """The only URI. Raises UsageError if there is none, or more than one."""
        if len(self.found) != 1:
            raise UsageError(f"the source has {len(self.found) or 'no'} URIs instead of one")
        return self.found[0].uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A URI as another tool's settings, ready for JSON. `repr` omits `value`: it may contain a key."""

    value: Mapping[str, Any] = field(repr=False)
    notes: tuple[Note, ...] = ()


class NoteCollector:
    """Collects notes; `child` adds to the same list under a longer name."""

    __slots__ = ("_list", "_prefix")

    def __init__(self, prefix: str = "", listed: list[Note] | None = None) -> None:
        self._prefix = prefix
        self._list: list[Note] = [] if listed is None else listed

    def child(self, name: str) -> NoteCollector:
        """Return a collector for the members of `name`."""
        return NoteCollector(self._join_path(name), self._list)

    def add(self, name: str, text: str) -> None:
        """Add a note without any credential; a duplicate is ignored."""
        note = Note(redact(self._join_path(name)), redact(text))
        if note not in self._list:
            self._list.append(note)

    def all(self) -> tuple[Note, ...]:
        """Return the notes."""
        return tuple(self._list)

    def _join_path(self, name: str) -> str:
        return ".".join(part for part in (self._prefix, name) if part)


_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_OLLAMA_PORT: Final = 11434
_REGION_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class KeySource(NamedTuple):
    """Where the key is: the name of a variable, or the key itself, from the source's member `where`."""

    where: str
    variable: str | None = None
    secret: Secret | None = None


class BaseURL(NamedTuple):
    """The parts of a base URL. `port` is always a number, `path` does not end with a slash."""

    scheme: str
    host: str
    port: int
    path: str
    extra: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceModel:
    """What a source tells about one model. `rooted`: its base URLs end before the path of the API."""

    model: str
    row: Provider | None = None
    base: str | None = field(default=None, repr=False)
    base_name: str = "base_url"
    rooted: bool = False
    key: KeySource | None = None
    label: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    fragment: str | None = None
    #: (name in the source, parameter, value) of settings that become part of a path or query, if the provider
    #: allows it
    spent: tuple[tuple[str, str, object], ...] = ()


def require_region(text: str) -> str:
    """Return the name of a region, which becomes part of a host; raises UsageError for invalid text."""
    if _REGION_NAME.fullmatch(text) is None:
        raise UsageError("the region is not a valid name", code="convert.bad-region")
    return text


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def find_provider(word: str, renamed: Mapping[str, str], table: ProviderTable) -> Provider | None:
    """Return the provider entry for a tool's provider name; `renamed` maps names that differ from Onym's."""
    word = word.lower()
    name = renamed.get(word, word.replace("_", "-"))
    return table.find_own(name) or table.find_alias(name)


def find_uri_provider(uri: LLMURI, table: ProviderTable) -> Provider:
    """Return the provider entry of a URI, whether its host is an alias or not."""
    aliased = table.find_alias(uri.host) if uri.port is None else None
    return aliased or table.find(uri.host, uri.port)


class ImportContext(NamedTuple):
    """What every step of an import needs."""

    table: ProviderTable
    notes: NoteCollector
    with_key: bool = False

    @classmethod
    def create(cls, providers: ProviderTable | None, *, with_key: bool = False) -> ImportContext:
        """Return a context without notes; `providers` defaults to the built-in table."""
        table = ProviderTable.builtin() if providers is None else providers
        return cls(table, NoteCollector(), with_key)

    def make_conversion(self, *uris: Named) -> Conversion:
        """Return the result, with the notes of all steps."""
        return Conversion(found=uris, notes=self.notes.all())


def build_uri(source: SourceModel, context: ImportContext) -> LLMURI:
    """Return the URI. Raises UsageError if the host or model is missing, URIError if a part is invalid."""
    host, port = _find_host(source, context)
    return build_uri_at(source, host, port, context)


def build_uri_at(source: SourceModel, host: str, port: int | None, context: ImportContext) -> LLMURI:
    """Return the URI with this host and port; the source's base URL is ignored."""
    if not source.model:
        raise UsageError("the model is missing", code="convert.no-model")
    params = {**_convert_path_parameters(source, host, port, context), **source.params}
    key = None
    if source.key is not None and source.key.variable is not None:
        params["auth"] = f"env:{source.key.variable}"
    elif source.key is not None and context.with_key:
        key = source.key.secret
    elif source.key is not None:
        text = "the key was not copied: use ?auth=env:NAME, or copy the key with --with-key (with_key=True)"
        context.notes.add(source.key.where, text)
    return LLMURI.build(
        host,
        model=source.model,
        label=source.label,
        key=key,
        port=port,
        params=params,
        fragment=source.fragment,
    )


def list_path_parameters(row: Provider) -> frozenset[str]:
    """Return the parameters that this provider's URIs may set in a path or query."""
    names = {value.parameter for value in row.path_values.values()} | set(row.query)
    return frozenset(names.union(*(api.query for api in row.apis.values())))


def _convert_path_parameters(
    source: SourceModel, host: str, port: int | None, context: ImportContext
) -> dict[str, object]:
    names = list_path_parameters(context.table.find(host, port))
    params: dict[str, object] = {}
    for source_name, name, value in source.spent:
        if name in names and isinstance(value, str) and "/" not in value:
            params[name] = value
        else:
            context.notes.add(source_name, "a URI for this host cannot contain it")
    return params


def _find_host(source: SourceModel, context: ImportContext) -> tuple[str, int | None]:
    if source.base is None:
        if source.row is None or source.row.host is None:
            raise UsageError("the host is missing", code="convert.no-host")
        # another tool's provider name means the provider's usual host, whatever the configuration says
        builtin = ProviderTable.builtin().find_own(source.row.name)
        return (builtin and builtin.host) or source.row.host, None
    base = parse_base_url(source.base)
    if base is None:
        raise UsageError(f"{source.base_name} is not an http or https URL", code="convert.bad-url")
    row = context.table.find(base.host, base.port)
    default = _OLLAMA_PORT if is_loopback(base.host) else row.default_port
    _note_base_url(source, base, row, context.notes)
    return base.host, None if base.port == default else base.port


def _note_base_url(source: SourceModel, base: BaseURL, row: Provider, notes: NoteCollector) -> None:
    scheme = "http" if is_loopback(base.host) else "https"
    if base.scheme != scheme:
        only = "only " if base.scheme == "http" else ""
        notes.add(source.base_name, f"the URI means {scheme}: Onym uses plain HTTP {only}for localhost")
    if base.extra:
        notes.add(source.base_name, "its userinfo, query or fragment was dropped")
    if base.path != row.base_path and "{" not in row.base_path and not (source.rooted and not base.path):
        notes.add(
            source.base_name,
            f"the path {base.path or '/'} was dropped, and {row.base_path or '/'} is used for this host:  "
            "to change it, set base_path in [providers.NAME] of the configuration",
        )


def parse_base_url(text: str) -> BaseURL | None:
    """Return the parts of a base URL, None if it is invalid. A text without `://` is a host."""
    text = text.strip()
    try:
        url = URI.parse(text if "://" in text else f"http://{text}", rule="URI").normalize()
        port = int(url.port or _DEFAULT_PORTS.get(url.scheme or "", 0))
    except (URIError, ValueError):
        return None
    if url.scheme not in _DEFAULT_PORTS or not url.host or not 0 < port < 65536:
        return None
    extra = any(part is not None for part in (url.userinfo, url.query, url.fragment))
    return BaseURL(url.scheme, url.host.strip("[]"), port, url.path.rstrip("/"), extra)


#: how LiteLLM's configuration refers to a variable
ENVIRON_PREFIX: Final = "os.environ/"

#: names with a unit: in all other names a timeout is in seconds
_MILLISECOND_NAMES: Final = frozenset({"timeout_ms", "timeoutMs"})


def import_params(settings: Mapping[str, Any], notes: NoteCollector) -> dict[str, Any]:
    """Return URI parameters for keyword arguments of an SDK, with a note for each that is dropped.

    Unknown names pass through, except names that would redirect a request or contain a credential.
    """
    params: dict[str, Any] = {}
    for name, value in settings.items():
        if value is None:
            continue
        known = name if name in WELL_KNOWN else PROVIDER_NAMES.get(name)
        if known is not None:
            _import_known(params, known, name, value, notes)
        elif is_secret_parameter(name):
            notes.add(name, "it contains a credential and was not copied")
        elif is_redirecting(name):
            notes.add(name, "a URI cannot contain parameters that redirect or replace a request")
        elif not _is_json_value(value):
            notes.add(name, "a URI cannot contain this value")
        else:
            params[name] = value
    return params


def _import_known(
    params: dict[str, Any], parameter: str, name: str, value: Any, notes: NoteCollector
) -> None:
    if parameter in params:
        notes.add(name, f"it is the same parameter as {parameter}, which is set already")
        return
    convert = _VALUE_IMPORTERS.get(parameter)
    value = value if convert is None else convert(name, value, notes)
    if value is None:
        return
    try:
        params[parameter] = validate_parameter(parameter, value)
    except ParameterError as error:
        notes.add(name, f"dropped: {error.message}")


def _import_timeout(name: str, value: Any, notes: NoteCollector) -> Any:
    if name in _MILLISECOND_NAMES or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return max(1, round(value * 1000))


def _import_format(name: str, value: Any, notes: NoteCollector) -> Any:
    kind = value.get("type") if isinstance(value, Mapping) else value
    if kind == "json_schema":
        notes.add(name, "the schema was dropped: pass schema= to the call, or put it into a profile")
    if kind in ("json_object", "application/json"):
        return "json"
    return "text" if kind == "text/plain" else kind


def _import_cache(name: str, value: Any, notes: NoteCollector) -> Any:
    if isinstance(value, bool):
        return value
    notes.add(name, "only true and false can be converted")
    return None


_VALUE_IMPORTERS: Final[Mapping[str, Callable[[str, Any, Any], Any]]] = {
    "timeout": _import_timeout,
    "format": _import_format,
    "cache": _import_cache,
}


def _is_json_value(value: Any) -> bool:
    """Whether the value exists in JSON and does not refer to a variable."""
    if isinstance(value, str):
        return not value.startswith(ENVIRON_PREFIX)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json_value(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_json_value(item) for item in value)
    return isinstance(value, bool | int | float)


def _export_seconds(value: Any) -> Any:
    seconds = value / 1000
    return int(seconds) if seconds.is_integer() else seconds


def _export_format(value: Any) -> Any:
    return {"type": "json_object"} if value == "json" else None


#: standard parameter -> (the tool's name, function that converts the value)
_ParamNames = Mapping[str, tuple[str, Callable[[Any], Any]]]


def _export_unchanged(value: Any) -> Any:
    return value


def _list_param_names(tool: str, writers: Mapping[str, Callable[[Any], Any]]) -> _ParamNames:
    """Return a tool's names for standard parameters, with the functions that convert their values."""
    return {
        name: (sdk_name, writers.get(name, _export_unchanged))
        for name, sdk_name in list_sdk_names(tool).items()
    }


#: timeouts of Python libraries are in seconds
_IN_PYTHON: Final[Mapping[str, Callable[[Any], Any]]] = {"stop": list, "timeout": _export_seconds}
LITELLM_PARAMS: Final = _list_param_names("litellm", {**_IN_PYTHON, "format": _export_format})
LANGCHAIN_PARAMS: Final = _list_param_names("langchain", _IN_PYTHON)
AI_SDK_PARAMS: Final = _list_param_names("ai_sdk", {"stop": list})


def export_params(params: Mapping[str, Any], target: _ParamNames, notes: NoteCollector) -> dict[str, Any]:
    """Return standard parameters in the form of `target`, with a note for each that it lacks."""
    settings: dict[str, Any] = {}
    for name in WELL_KNOWN:
        if name not in params:
            continue
        target_name, write = target.get(name, ("", _export_unchanged))
        value = write(params[name])
        if target_name and value is not None:
            settings[target_name] = value
        elif not (name == "format" and params[name] == "text"):
            notes.add(name, "the target has no such setting: pass it to the call")
    return settings


_HOMES = {
    "onym.llm.convert": "Conversion Named Note Written",
    "onym.llm.convert._exporters": "to_ai_sdk to_env to_langchain to_litellm",
    "onym.llm.convert._importers": "from_ai_sdk from_env from_langchain from_litellm load_models",
    "onym.llm.convert._llm_strings": "from_llm_strings",
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)
