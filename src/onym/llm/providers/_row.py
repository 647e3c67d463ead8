"""One provider, as data: who serves, where, with which key and which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from onym.llm.providers._checks import check_row, matches

__all__ = ["CAPABILITIES", "Api", "Capability", "PathValue", "Provider", "Range"]

#: yes and no are facts with a source; what is unknown is sent, and the server decides
Capability: TypeAlias = Literal["yes", "no", "unknown"]
#: both ends included; None = open
Range: TypeAlias = tuple[float | None, float | None]

CAPABILITIES = (
    "chat",
    "stream",
    "tools",
    "images",
    "documents",
    "embeddings",
    "batch",
    "models",
    "json",
    "json_schema",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Another wire format at the same hosts.

    A URI chooses it by `api=NAME`, by bringing `when`, or by a model that one of the globs `models` fits.

    `base_path` defaults to the row's; `params` and `routes` take the place of the row's; `query` adds to it.
    """

    dialect: str
    base_path: str | None = None
    params: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    routes: Mapping[str, str] = field(default_factory=dict, hash=False)
    query: tuple[str, ...] = ()
    when: str | None = None
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PathValue:
    """Where a `{placeholder}` of a path gets its value. The first that has one is it.

    The URI's parameter of that name; what `*` stood for in the row's host pattern, if `host`; the app
    label, if `label`; one of the `variables` of the environment, where the policy lets them count;
    `default`.
    """

    parameter: str
    host: bool = False
    label: bool = False
    variables: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A row of the provider table. It holds facts alone; behaviour belongs to a dialect.

    `hosts` are exact names, the first the canonical one. `host_suffixes` are patterns:
    `.openai.azure.com` is any name below that one, `*` stands for a label or a part of one
    (`bedrock-runtime.*.amazonaws.com`). `default_port` is the port that a URI without one means.
    A key variable is only ever bound to `hosts` at that port, and to a host that one of
    `endpoint_variables` spells out; `needs_key` says that no call is worth a try without a key.

    `params` maps well-known names to wire names where they differ from the dialect's own; None says
    that the provider has no such parameter. `ranges` and `stop_max` are the provider's own limits.
    `label_headers` are (prefix of the label, header); an empty prefix takes any label.
    Paths may hold `{placeholders}`, which `path_values` fill. `routes` are paths from the root, by operation
    (chat, stream, embed, models, model), where one is not below `base_path` as the dialect has it;
    `first_labels` replace the first label of the host for an operation that another host serves. `query` are
    the URI's parameters that go into the request's query, `apis` other wire formats by name. `key_forms` are
    (start of a key, or `env:NAME` where it came from; header; prefix) for keys that travel otherwise.
    `chain` names where a credential is looked for after the key variables, `signing` how requests are
    signed with it.
    `docs` is the provider's reference, `source` says where the facts come from, `checked` when (ISO).

    Raises UsageError for a row that cannot be right.
    """

    name: str
    title: str
    hosts: tuple[str, ...] = ()
    host_suffixes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    default_port: int = 443
    base_path: str = "/v1"
    dialect: str = "openai_chat"
    key_variables: tuple[str, ...] = ()
    endpoint_variables: tuple[str, ...] = ()
    needs_key: bool = True
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    key_forms: tuple[tuple[str, str, str], ...] = ()
    chain: str | None = None
    signing: str | None = None
    label_headers: tuple[tuple[str, str], ...] = ()
    path_values: Mapping[str, PathValue] = field(default_factory=dict, hash=False)
    routes: Mapping[str, str] = field(default_factory=dict, hash=False)
    first_labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    query: tuple[str, ...] = ()
    apis: Mapping[str, Api] = field(default_factory=dict, hash=False)
    params: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, Range] = field(default_factory=dict, hash=False)
    stop_max: int | None = None
    capabilities: Mapping[str, Capability] = field(default_factory=dict, hash=False)
    docs: str
    source: str
    checked: str

    def __post_init__(self) -> None:
        check_row(self, CAPABILITIES)
        known = {name: self.capabilities.get(name, "unknown") for name in CAPABILITIES}
        object.__setattr__(self, "capabilities", MappingProxyType(known))
        for name in ("params", "ranges", "path_values", "routes", "first_labels", "apis"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def host(self) -> str | None:
        """The canonical host, None for a row that is known by a pattern alone."""
        return self.hosts[0] if self.hosts else None

    @property
    def formats(self) -> frozenset[str]:
        """The values of `format`, beside `text`, that the provider is not known to refuse."""
        return frozenset(name for name in ("json", "json_schema") if self.capabilities[name] != "no")

    def speaking(self, api: Api) -> Provider:
        """This row, when that wire format is asked for."""
        return replace(
            self,
            dialect=api.dialect,
            base_path=self.base_path if api.base_path is None else api.base_path,
            params=api.params,
            routes=api.routes,
            query=(*self.query, *api.query),
        )

    def key_place(self, key: str, source: str) -> tuple[str, str]:
        """The header that carries this key, and what stands before the key in it."""
        for start, header, prefix in self.key_forms:
            if key.startswith(start) or source == start:
                return header, prefix
        return self.key_header, self.key_prefix

    def label_header(self, label: str) -> str | None:
        """The header that carries this app label (draft 4.2.1), None where the provider has none."""
        for prefix, header in self.label_headers:
            if label.startswith(prefix):
                return header
        return None

    def serves_exactly(self, host: str, port: int | None = None) -> bool:
        """Whether `host` is one of `hosts`, at the row's own port: where its key variables may go."""
        return (port is None or port == self.default_port) and host.lower() in self.hosts

    def serves(self, host: str, port: int | None = None) -> bool:
        """Whether this row is about `host`. A port other than the row's own is another service."""
        if port is not None and port != self.default_port:
            return False
        host = host.lower()
        return host in self.hosts or any(matches(host, pattern) for pattern in self.host_suffixes)

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data, every field by its name, mappings as dicts, tuples as lists."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, Api | PathValue):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
