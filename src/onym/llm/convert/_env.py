"""Environment variables of vendor SDKs and tools to URIs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onym.errors import OnymError
from onym.llm.convert._base import Found, Key, build, region
from onym.llm.convert._types import Conversion, Named, Notes
from onym.llm.providers import ProviderTable
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.providers import Provider

__all__ = ["SOURCES", "Source", "from_env", "source_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The variables of one provider, each tuple in the order in which they are looked for."""

    row: str
    keys: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    #: base URLs of these variables stop before the path of the API
    rooted: bool = False
    #: variables that fill a host's place: ("AWS_REGION", ...), with the host's form
    regions: tuple[str, ...] = ()
    region_host: str = ""
    #: (variable, parameter of the URI) of what becomes part of a path or a query
    spent: tuple[tuple[str, str], ...] = ()


#: the providers whose variables do not simply follow from their key's name
SOURCES: Final = (
    Source(
        row="openai",
        keys=("OPENAI_API_KEY",),
        bases=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        models=("OPENAI_MODEL", "OPENAI_MODEL_NAME", "OPENAI_CHAT_MODEL"),
        labels=("OPENAI_PROJECT_ID", "OPENAI_ORG_ID", "OPENAI_ORGANIZATION"),
    ),
    Source(
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
    Source(
        row="anthropic",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        bases=("ANTHROPIC_BASE_URL",),
        models=("ANTHROPIC_MODEL",),
        rooted=True,
    ),
    Source(
        row="gemini",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        bases=("GOOGLE_GEMINI_BASE_URL",),
        models=("GEMINI_MODEL", "GOOGLE_MODEL", "GOOGLE_GENAI_MODEL"),
        rooted=True,
    ),
    Source(
        row="vertex",
        models=("VERTEX_MODEL", "VERTEXAI_MODEL"),
        regions=("GOOGLE_CLOUD_LOCATION", "VERTEXAI_LOCATION"),
        region_host="{}-aiplatform.googleapis.com",
        spent=(("GOOGLE_CLOUD_PROJECT", "project"),),
    ),
    Source(
        row="bedrock",
        keys=("AWS_BEARER_TOKEN_BEDROCK",),
        models=("BEDROCK_MODEL_ID", "BEDROCK_MODEL", "AWS_BEDROCK_MODEL_ID"),
        regions=("AWS_REGION", "AWS_DEFAULT_REGION"),
        region_host="bedrock-runtime.{}.amazonaws.com",
    ),
    Source(
        row="ollama",
        keys=("OLLAMA_API_KEY",),
        bases=("OLLAMA_HOST",),
        models=("OLLAMA_MODEL",),
        rooted=True,
    ),
    Source(
        row="huggingface",
        keys=("HF_TOKEN", "HUGGINGFACE_API_KEY", "HUGGINGFACEHUB_API_TOKEN"),
        models=("HF_MODEL", "HUGGINGFACE_MODEL"),
    ),
    Source(
        row="databricks",
        keys=("DATABRICKS_TOKEN",),
        bases=("DATABRICKS_HOST",),
        models=("DATABRICKS_MODEL",),
        rooted=True,
    ),
)

#: hosts that a server listens at, and nobody can be reached by
_EVERYWHERE: Final = frozenset({"0.0.0.0", "[::]"})  # noqa: S104 - recognised, never bound


def from_env(
    environ: Mapping[str, str],
    *,
    model: str | None = None,
    with_key: bool = False,
    providers: ProviderTable | None = None,
) -> Conversion:
    """A URI for each provider that variables such as OPENAI_API_KEY, _BASE_URL and _MODEL describe.

    A URI names a model: where no variable does, `model` is taken, and without that the provider is left out
    with a note. A key becomes `?auth=env:NAME`; `with_key` copies it into the URI instead.
    """
    table = ProviderTable.builtin() if providers is None else providers
    notes, found = Notes(), []
    for source in _sources(table):
        try:
            read = _read(source, environ, model, table, notes, with_key=with_key)
            if read is None:
                continue
            uri = build(read, table, notes, with_key=with_key)
        except OnymError as error:
            notes.add(source.row, f"left out: {error.message}")
            continue
        found.append(Named(source.row, uri))
    return Conversion(found=tuple(found), notes=notes.all())


def source_of(row: Provider) -> Source:
    """The variables of a provider: those of the table, else those that its key's name suggests."""
    for source in SOURCES:
        if source.row == row.name:
            return source
    prefix = row.name.upper().replace("-", "_")
    for name in row.key_variables[:1]:
        prefix = name.removesuffix("_API_KEY").removesuffix("_TOKEN")
    return Source(
        row=row.name,
        keys=row.key_variables,
        bases=(f"{prefix}_BASE_URL", f"{prefix}_API_BASE"),
        models=(f"{prefix}_MODEL",),
    )


def _sources(table: ProviderTable) -> Iterator[Source]:
    """The sources of every row; a key's variable describes the first row that has it."""
    taken: set[str] = set()
    for source in (*SOURCES, *(source_of(row) for row in table if row.key_variables)):
        if not taken.intersection((source.row, *source.keys)):
            taken.update((source.row, *source.keys))
            yield source


def _read(
    source: Source,
    environ: Mapping[str, str],
    model: str | None,
    table: ProviderTable,
    notes: Notes,
    *,
    with_key: bool,
) -> Found | None:
    key, base, named = (_first(environ, names) for names in (source.keys, source.bases, source.models))
    if key is None and base is None and named is None:
        return None
    chosen = model if named is None else environ[named].strip()
    if chosen is None:
        notes.add(
            key or base or source.row, f"no model is named: set {source.models[0]}, or say which is meant"
        )
        return None
    label = _label(source, environ, notes)
    return Found(
        model=chosen,
        row=table.own(source.row),
        base=_base(source, environ, base, notes),
        base_name=base or "the host",
        rooted=source.rooted,
        key=None if key is None else _key(key, environ, with_key=with_key),
        label=label,
        spent=tuple((name, to, environ[name].strip()) for name, to in source.spent if environ.get(name)),
    )


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if environ.get(name, "").strip()), None)


def _key(name: str, environ: Mapping[str, str], *, with_key: bool) -> Key:
    if with_key:
        return Key(name, secret=Secret(environ[name].strip()))
    return Key(name, variable=name)


def _label(source: Source, environ: Mapping[str, str], notes: Notes) -> str | None:
    given = [name for name in source.labels if environ.get(name, "").strip()]
    for name in given[1:]:
        notes.add(name, f"a URI has one label, and {given[0]} is it")
    return environ[given[0]].strip() if given else None


def _base(source: Source, environ: Mapping[str, str], name: str | None, notes: Notes) -> str | None:
    if name is None:
        where = _first(environ, source.regions)
        if where is None or environ[where].strip() == "global":
            return None
        return f"https://{source.region_host.format(region(environ[where].strip()))}"
    text = environ[name].strip()
    if source.row != "ollama":
        return text
    return _ollama(text, name, notes)


def _ollama(text: str, name: str, notes: Notes) -> str:
    """OLLAMA_HOST, which may lack scheme, port or host, or hold the address that a server listens at."""
    scheme, mark, rest = text.rpartition("://")
    host, slash, path = rest.partition("/")
    server, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        server, port = host, ""
    if server in _EVERYWHERE or not server:
        notes.add(name, "an address to listen at: localhost is asked instead")
        server = "localhost"
    default = "11434" if not mark else {"http": "80", "https": "443"}.get(scheme, "")
    return f"{scheme or 'http'}://{server}:{port or default}{slash}{path}"
