"""From a provider, a base URL, a model and a key to a URI: what every source has in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onym.errors import URIError, UsageError
from onym.llm.providers import ProviderTable, is_loopback
from onym.uri.generic import URI
from onym.uri.llm import LLMURI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.llm.convert._types import Notes
    from onym.llm.providers import Provider

__all__ = [
    "Base",
    "Found",
    "Key",
    "build",
    "make",
    "read_base",
    "region",
    "row_named",
    "row_of",
    "spent_names",
    "words",
]

_PORTS: Final = {"http": 80, "https": 443}
_OLLAMA_PORT: Final = 11434
_REGION: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Key(NamedTuple):
    """Where the key is: a variable's name, or the key itself, from the source's member `where`."""

    where: str
    variable: str | None = None
    secret: Secret | None = None


class Base(NamedTuple):
    """A base URL in its parts; `port` is always a number, `path` has no slash at its end."""

    scheme: str
    host: str
    port: int
    path: str
    extra: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a source says of one model. `rooted`: its base URLs stop before the path of the API."""

    model: str
    row: Provider | None = None
    base: str | None = field(default=None, repr=False)
    base_name: str = "base_url"
    rooted: bool = False
    key: Key | None = None
    label: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    fragment: str | None = None
    #: (name in the source, parameter, value) of what becomes part of a path or a query, where a row says so
    spent: tuple[tuple[str, str, object], ...] = ()


def region(text: str) -> str:
    """The name of a region, which becomes part of a host; raises UsageError for what would be another."""
    if _REGION.fullmatch(text) is None:
        raise UsageError("it names no region", code="convert.bad-region")
    return text


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


def row_named(word: str, renamed: Mapping[str, str], table: ProviderTable) -> Provider | None:
    """The row that a source's word for a provider means; `renamed` are those that differ from ours."""
    word = word.lower()
    name = renamed.get(word, word.replace("_", "-"))
    return table.own(name) or table.alias(name)


def row_of(uri: LLMURI, table: ProviderTable) -> Provider:
    """The row behind a URI, its host being an alias or not."""
    aliased = table.alias(uri.host) if uri.port is None else None
    return aliased or table.find(uri.host, uri.port)


def build(found: Found, table: ProviderTable, notes: Notes, *, with_key: bool) -> LLMURI:
    """The URI. Raises UsageError for a host or model that is missing, URIError for parts that make no URI."""
    host, port = _place(found, table, notes)
    return make(found, host, port, table, notes, with_key=with_key)


def make(
    found: Found, host: str, port: int | None, table: ProviderTable, notes: Notes, *, with_key: bool
) -> LLMURI:
    """The URI at this host and port, whatever base URL was found."""
    if not found.model:
        raise UsageError("it names no model", code="convert.no-model")
    params = {**_spent(found, host, port, table, notes), **found.params}
    key = None
    if found.key is not None and found.key.variable is not None:
        params["auth"] = f"env:{found.key.variable}"
    elif found.key is not None and with_key:
        key = found.key.secret
    elif found.key is not None:
        notes.add(found.key.where, "the key was not copied: point at it with ?auth=env:NAME, or ask for it")
    return LLMURI.build(
        host,
        model=found.model,
        label=found.label,
        key=key,
        port=port,
        params=params,
        fragment=found.fragment,
    )


def spent_names(row: Provider) -> frozenset[str]:
    """The parameters that this provider's URIs may bring for a path or a query."""
    names = {value.parameter for value in row.path_values.values()} | set(row.query)
    return frozenset(names.union(*(api.query for api in row.apis.values())))


def _spent(
    found: Found, host: str, port: int | None, table: ProviderTable, notes: Notes
) -> dict[str, object]:
    names = spent_names(table.find(host, port))
    params: dict[str, object] = {}
    for where, name, value in found.spent:
        if name in names and isinstance(value, str) and "/" not in value:
            params[name] = value
        else:
            notes.add(where, "the URI of this host has no place for it")
    return params


def _place(found: Found, table: ProviderTable, notes: Notes) -> tuple[str, int | None]:
    if found.base is None:
        if found.row is None or found.row.host is None:
            raise UsageError("it does not say which host is meant", code="convert.no-host")
        # a word of another tool's means the host that it means there, whatever a configuration makes of it
        known = ProviderTable.builtin().own(found.row.name)
        return (known and known.host) or found.row.host, None
    base = read_base(found.base)
    if base is None:
        raise UsageError(f"{found.base_name} is no http or https URL", code="convert.bad-url")
    row = table.find(base.host, base.port)
    here = is_loopback(base.host)
    default = _OLLAMA_PORT if here else row.default_port
    _base_notes(found, base, row, notes, here=here)
    return base.host, None if base.port == default else base.port


def _base_notes(found: Found, base: Base, row: Provider, notes: Notes, *, here: bool) -> None:
    meant = "http" if here else "https"
    if base.scheme != meant:
        why = (
            "plain HTTP goes to this machine alone"
            if base.scheme == "http"
            else "this machine is asked by HTTP"
        )
        notes.add(found.base_name, f"the URI means {meant}: {why}")
    if base.extra:
        notes.add(found.base_name, "its userinfo, query or fragment is not carried")
    if base.path != row.base_path and "{" not in row.base_path and not (found.rooted and not base.path):
        notes.add(
            found.base_name,
            f"the path {base.path or '/'} is not carried, {row.base_path or '/'} is used for this host: "
            "a row of your own ([providers.NAME] with base_path) says otherwise",
        )


def read_base(text: str) -> Base | None:
    """A base URL in its parts, None for what is none. A text without `://` is a host."""
    text = text.strip()
    try:
        url = URI.parse(text if "://" in text else f"http://{text}", rule="URI").normalize()
        port = int(url.port or _PORTS.get(url.scheme or "", 0))
    except (URIError, ValueError):
        return None
    if url.scheme not in _PORTS or not url.host or not 0 < port < 65536:
        return None
    extra = any(part is not None for part in (url.userinfo, url.query, url.fragment))
    return Base(url.scheme, url.host.strip("[]"), port, url.path.rstrip("/"), extra)
