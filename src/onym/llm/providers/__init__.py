"""The provider table, and the rules for its rows: find a provider by host or alias.

The first row that matches a host applies: built-in and registered rows, then those of entry points of the
group `onym.providers`, then the generic row `openai-compatible`. The built-in rows (`builtin.json`) are from
vendors' SDKs, documentation and source code. Local servers are recognised by their usual port.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cache, lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from onym.errors import ConfigError, UsageError
from onym.llm.request_headers import parse_headers
from onym.llm.types import OPERATIONS, ROUTE_NAMES
from onym.uri.llm import LLMURI

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from onym.uri.secret import Secret

__all__ = [
    "CAPABILITIES",
    "ENTRY_POINT_GROUP",
    "Api",
    "Capability",
    "PathValue",
    "Provider",
    "ProviderTable",
    "Range",
    "is_loopback",
    "list_entry_points",
    "load_rows",
    "normalize",
]

#: "yes" and "no" are facts with a source; for "unknown", Onym sends the request and the server decides
Capability: TypeAlias = Literal["yes", "no", "unknown"]
#: both ends are included; None is an open end
Range: TypeAlias = tuple[int | float | None, int | float | None]

_DOCUMENTED_ORDER = (
    "chat", "stream", "tools", "images", "documents", "embeddings", "batch", "models", "json", "json_schema",
)  # fmt: skip
#: in the order of the documentation, then those of other operations
CAPABILITIES = tuple(
    dict.fromkeys((*_DOCUMENTED_ORDER, *(operation.capability for operation in OPERATIONS.values())))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Another API format at the same hosts.

    A URI selects it by `api=NAME`, by the parameter `when`, or by a model that matches a glob of `models`.

    `base_path` defaults to the row's; `params` and `routes` replace the row's; `query` adds to it.
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
    """The sources of the value of a `{placeholder}` in a path, in order of precedence.

    The URI's parameter with the name `parameter`; with `host`, the text that `*` matches in the row's host
    pattern; with `label`, the app label; one of the `variables` of the environment, if the policy allows
    them; `default`.
    """

    parameter: str
    host: bool = False
    label: bool = False
    variables: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A row of the provider table. It contains only facts; behaviour belongs to an API format.

    `hosts` are exact names, the first one is canonical. `host_suffixes` are patterns: `.openai.azure.com`
    matches all names below it, and `*` matches a label or a part of one (`bedrock-runtime.*.amazonaws.com`).
    `default_port` is the port of a URI without one. Onym sends a key variable only to `hosts` at that port,
    and to a host that a variable of `endpoint_variables` contains. With `needs_key`, calls without a key are
    errors.

    `params` maps well-known names to wire names that differ from the API format's; None means that the
    provider has no such parameter. Pass-through names may be there too, for parameters of another API of the
    provider. `ranges` and `stop_max` are the provider's limits. `label_headers` are
    (prefix of the label, header); an empty prefix matches every label. Paths may contain `{placeholders}`,
    which `path_values` fill. `routes` are paths from the root, by operation (chat, stream, embed, models,
    model), if one differs from `base_path` with the API format's path. `first_labels` replace the first label
    of the host for an operation of another host. `query` are the URI's parameters that become part of the
    request's query, `headers` are sent with every request, and `apis` are other API formats by name.
    `key_forms` are (start of a key, or `env:NAME` for its variable; header; prefix) for keys with another
    header. `chain` names the source of credentials
    after the key variables, and `signing` the scheme of request signatures. `start_command` starts a local
    server, and `fetch_command` fetches the `{model}` that it does not have: errors suggest them. `docs` is
    the provider's reference, `source` the origin of these facts, and `checked` the date when they were
    checked (ISO).

    Raises UsageError for an invalid row.
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
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    params: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, Range] = field(default_factory=dict, hash=False)
    stop_max: int | None = None
    capabilities: Mapping[str, Capability] = field(default_factory=dict, hash=False)
    start_command: str | None = None
    fetch_command: str | None = None
    docs: str
    source: str
    checked: str

    def __post_init__(self) -> None:
        validate_row(self, CAPABILITIES)
        known = {name: self.capabilities.get(name, "unknown") for name in CAPABILITIES}
        object.__setattr__(self, "capabilities", MappingProxyType(known))
        for name in ("headers", "params", "ranges", "path_values", "routes", "first_labels", "apis"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def host(self) -> str | None:
        """The canonical host, None for a row that has only patterns."""
        return self.hosts[0] if self.hosts else None

    @property
    def key_headers(self) -> frozenset[str]:
        """The headers with which the provider takes a key, in lower case."""
        return frozenset({self.key_header.lower(), *(header.lower() for _, header, _ in self.key_forms)})

    @property
    def formats(self) -> frozenset[str]:
        """The values of `format` besides `text`, without those that the provider is known to reject."""
        return frozenset(name for name in ("json", "json_schema") if self.capabilities[name] != "no")

    def with_api(self, api: Api) -> Provider:
        """Return this row for another API format."""
        return replace(
            self,
            dialect=api.dialect,
            base_path=self.base_path if api.base_path is None else api.base_path,
            params=api.params,
            routes=api.routes,
            query=(*self.query, *api.query),
        )

    def get_key_header(self, key: Secret, source: str) -> tuple[str, str]:
        """Return the header for this key, and the text before the key."""
        for start, header, prefix in self.key_forms:
            if key.reveal().startswith(start) or source == start:
                return header, prefix
        return self.key_header, self.key_prefix

    def find_label_header(self, label: str) -> str | None:
        """Return the header for this app label (draft 4.2.1), None if the provider has none."""
        for prefix, header in self.label_headers:
            if label.startswith(prefix):
                return header
        return None

    def serves_exactly(self, host: str, port: int | None = None) -> bool:
        """Whether `host` is one of `hosts`, at the row's port: its key variables may be sent there."""
        return (port is None or port == self.default_port) and host.lower() in self.hosts

    def serves(self, host: str, port: int | None = None) -> bool:
        """Whether this row applies to `host`. Another port than the row's is another service."""
        if port is not None and port != self.default_port:
            return False
        host = host.lower()
        return host in self.hosts or any(matches_pattern(host, pattern) for pattern in self.host_suffixes)

    def as_dict(self) -> dict[str, Any]:
        """Return the row as plain data: mappings as dicts, tuples as lists."""
        return {member.name: _to_plain(getattr(self, member.name)) for member in fields(self)}


def _to_plain(value: Any) -> Any:
    if isinstance(value, Api | PathValue):
        return {member.name: _to_plain(getattr(value, member.name)) for member in fields(value)}
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    return [_to_plain(item) for item in value] if isinstance(value, tuple) else value


_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_STEP = r"(?:[A-Za-z0-9_~-][A-Za-z0-9._~-]*|\{[a-z]+\})"
_PATH = re.compile(rf"(?:/{_STEP})*")
_ROUTE = re.compile(rf"(?:/{_STEP})+(?::[A-Za-z]+)?(?:\?[A-Za-z0-9=&_.-]+)?")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TOKEN = re.compile(r"[A-Za-z0-9-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PREFIX = re.compile(r"(?:[!-~]+ ?)?")
_DIALECT = re.compile(r"[a-z][a-z0-9_]*")
#: headers that frame the message, which a key or a label must not change
_FRAMING = {"host", "content-length", "content-type", "transfer-encoding", "connection", "te", "upgrade"}


def is_host(text: str) -> bool:
    """Whether this is a lower-case host name of letters, digits and hyphens (RFC 1123 2.1)."""
    return len(text) <= 253 and _HOST.fullmatch(text) is not None


def matches_pattern(host: str, pattern: str) -> bool:
    """Whether the pattern matches a lower-case host."""
    return len(host) <= 253 and _compile_pattern(pattern).fullmatch(host) is not None


def match_wildcard(host: str, patterns: Iterable[str]) -> str | None:
    """Return the text that `*` matches in the first pattern that matches this host."""
    for pattern in patterns:
        head, star, tail = pattern.partition("*")
        if star and "*" not in tail and matches_pattern(host, pattern):
            return host[len(head) : len(host) - len(tail)]
    return None


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    if pattern.startswith("."):
        return re.compile(rf"(?:{_LABEL}\.)+{re.escape(pattern[1:])}")
    star = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
    return re.compile(star.join(re.escape(part) for part in pattern.split("*")))


def validate_row(row: Provider, capabilities: Iterable[str]) -> None:
    """Raise UsageError, which names the row and the field, for an invalid row."""
    for name, good in _check_fields(row, frozenset(capabilities)):
        if not good:
            raise UsageError(
                f"provider row {_format_name(row.name)}: the value of {name} is invalid",
                code="provider.bad-row",
            )


def _check_fields(row: Provider, capabilities: frozenset[str]) -> Iterable[tuple[str, bool]]:
    yield "name", _all_match(_NAME, [row.name])
    yield "title", bool(row.title)
    yield "hosts", all(is_host(host) for host in row.hosts)
    yield "host_suffixes", all(_is_valid_pattern(pattern) for pattern in row.host_suffixes)
    yield "aliases", _all_match(_NAME, row.aliases) and (bool(row.hosts) or not row.aliases)
    yield "default_port", 1 <= row.default_port <= 65535
    yield "base_path", _all_match(_PATH, [row.base_path])
    yield "dialect", _all_match(_DIALECT, [row.dialect])
    yield "key_variables", _all_match(_VARIABLE, row.key_variables)
    yield "endpoint_variables", _all_match(_VARIABLE, row.endpoint_variables)
    yield "key_header", _is_valid_header(row.key_header)
    yield "key_prefix", _all_match(_PREFIX, [row.key_prefix])
    yield "label_headers", all(_is_valid_header(header) for _, header in row.label_headers)
    yield "ranges", all(_is_valid_range(*limits) for limits in row.ranges.values())
    yield "stop_max", row.stop_max is None or row.stop_max >= 0
    yield "key_forms", all(_is_valid_header(header) for _, header, _ in row.key_forms)
    yield "key_forms", _all_match(_PREFIX, [prefix for _, _, prefix in row.key_forms])
    yield "routes", ROUTE_NAMES.issuperset(row.routes) and _all_match(_ROUTE, row.routes.values())
    yield "first_labels", ROUTE_NAMES.issuperset(row.first_labels)
    yield "first_labels", all(is_host(label) for label in row.first_labels.values())
    yield "query", _all_match(_PARAMETER, row.query)
    yield "path_values", _all_match(_PARAMETER, [value.parameter for value in row.path_values.values()])
    yield "path_values", row.path_values.keys() >= _find_placeholders(row)
    yield "headers", _are_valid_headers(row)
    yield "apis", _all_match(_NAME, row.apis) and all(_is_valid_api(api) for api in row.apis.values())
    yield "capabilities", capabilities.issuperset(row.capabilities)
    yield "capabilities", {"yes", "no", "unknown"}.issuperset(row.capabilities.values())
    yield "checked", _is_valid_date(row.checked)


def _find_placeholders(row: Provider) -> set[str]:
    paths = [row.base_path, *row.routes.values()]
    for api in row.apis.values():
        paths += [api.base_path or "", *api.routes.values()]
    return {name for path in paths for name in re.findall(r"\{([a-z]+)\}", path)} - {"model"}


def _are_valid_headers(row: Provider) -> bool:
    try:
        parse_headers(row.headers, row.key_headers)
    except UsageError:
        return False
    return all(isinstance(value, str) for value in row.headers.values())


def _is_valid_api(api: Api) -> bool:
    return (
        _all_match(_DIALECT, [api.dialect])
        and _all_match(_PATH, [api.base_path or ""])
        and ROUTE_NAMES.issuperset(api.routes)
        and _all_match(_ROUTE, api.routes.values())
        and _all_match(_PARAMETER, [*api.query, *((api.when,) if api.when else ())])
    )


def _all_match(pattern: re.Pattern[str], texts: Iterable[str]) -> bool:
    return all(pattern.fullmatch(text) is not None for text in texts)


def _is_valid_pattern(pattern: str) -> bool:
    # the last two labels are fixed: a pattern belongs to a registered domain
    head, _, domain = pattern.rpartition(".")
    head, _, second = head.rpartition(".")
    if "*" in domain + second or not is_host(f"{second}.{domain}"):
        return False
    if pattern.startswith("."):
        return "*" not in pattern and is_host(pattern[1:])
    return "*" in head and is_host(pattern.replace("*", "x"))


def _is_valid_header(name: str) -> bool:
    return _all_match(_TOKEN, [name]) and name.lower() not in _FRAMING


def _is_valid_range(low: float | None, high: float | None) -> bool:
    return low is None or high is None or low <= high


def _is_valid_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return True


def _format_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else "without a usable name"


ENTRY_POINT_GROUP = "onym.providers"


def _make_immutable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _make_immutable(member) for name, member in value.items()}
    return tuple(map(_make_immutable, value)) if isinstance(value, list) else value


def _load_builtin_rows() -> tuple[Provider, ...]:
    # json, because `onym check` needs the rows and does not load msgspec
    rows = json.loads(Path(__file__).with_name("builtin.json").read_bytes())
    return tuple(_build_row(_make_immutable(row)) for row in rows)


def _build_row(row: dict[str, Any]) -> Provider:
    row.pop("comment", None)
    for name, kind in (("apis", Api), ("path_values", PathValue)):
        if name in row:
            row[name] = {key: kind(**member) for key, member in row[name].items()}
    return Provider(**row)


BUILTIN_ROWS: Final = _load_builtin_rows()


def list_entry_points() -> tuple[EntryPoint, ...]:
    """Return the entry points of this environment, sorted by name."""
    # 28 ms that only the first unknown name needs
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name))


def load_rows(points: Iterable[EntryPoint]) -> list[tuple[str, Provider]]:
    """Return (origin, row) for every row of the entry points, which name a Provider or several.

    Raises ConfigError that names the entry point and its distribution.
    """
    return [(_describe_entry_point(point), row) for point in points for row in _load_entry_point(point)]


def _describe_entry_point(point: EntryPoint) -> str:
    owner = "" if point.dist is None else f" of {point.dist.name}"
    return f"entry point {point.name!r}{owner}"


def _load_entry_point(point: EntryPoint) -> tuple[Provider, ...]:
    try:
        found = point.load()
    except Exception as error:
        raise _make_plugin_error(point, f"fails to load ({type(error).__name__})") from error
    if isinstance(found, Provider):
        return (found,)
    if isinstance(found, Iterable) and not isinstance(found, str | bytes):
        listed = tuple(found)
        if all(isinstance(row, Provider) for row in listed):
            return listed
    raise _make_plugin_error(point, "is neither a Provider nor a list of them")


def _make_plugin_error(point: EntryPoint, why: str) -> ConfigError:
    return ConfigError(
        f"{_describe_entry_point(point)} in the group {ENTRY_POINT_GROUP} {why}",
        code="provider.bad-plugin",
        hint="uninstall or upgrade that distribution",
    )


def normalize(uri: str | LLMURI, *, providers: ProviderTable | None = None) -> LLMURI:
    """Return the URI in canonical form, with aliases replaced by the host.

    Idempotent. `providers` defaults to the built-in table. Raises URIError if the text is not an llm:// URI.
    (RFC 3986 6.2.2, 6.2.3; docs/explanation/decisions.md)
    """
    table = ProviderTable.builtin() if providers is None else providers
    return LLMURI.parse(uri).normalize(aliases=table.aliases())


_OLLAMA_PORT = 11434
#: the rows that `find` returns for unknown hosts, in every table
_GENERIC_ROWS = {
    row.name: row for row in BUILTIN_ROWS if row.name in ("ollama", "openai-compatible") or not row.host
}


class ProviderTable:
    """An immutable table of rows. `register()` returns a new one; no table is global.

    `plugins` returns the entry points, by default those of this environment.
    """

    __slots__ = ("_aliases", "_hosts", "_load", "_patterned", "_plugged", "_rows")

    def __init__(
        self,
        rows: Iterable[Provider] = (),
        *,
        plugins: Callable[[], Iterable[EntryPoint]] = list_entry_points,
    ) -> None:
        self._rows: dict[str, Provider] = {}
        self._aliases: dict[str, Provider] = {}
        self._hosts: dict[str, tuple[Provider, ...]] = {}
        self._patterned: list[Provider] = []
        self._load = plugins
        self._plugged: ProviderTable | None = None
        for row in rows:
            self._add_row(row)

    @staticmethod
    def builtin() -> ProviderTable:
        """Return the built-in rows and the installed entry points. One shared value."""
        return _load_builtin_table()

    def find(self, host: str, port: int | None = None) -> Provider:
        """Return the row for a host, a generic row for an unknown host.

        `port` is the port in the URI. A known host with another port than its row's is another service, and
        gets a generic row: it does not get the provider's key, and the provider's rules do not apply.
        """
        host = host.lower()
        row = self._find_known(host, port)
        if row is not None:
            return row
        if is_loopback(host):
            # servers of this computer are known by their ports, for every loopback name
            row = None if port is None else self._find_known("localhost", port)
            if row is not None:
                return row
            return _GENERIC_ROWS["ollama" if port in (None, _OLLAMA_PORT) else "openai-compatible-local"]
        return self._with_plugins()._find_known(host, port) or _GENERIC_ROWS["openai-compatible"]

    def find_alias(self, word: str) -> Provider | None:
        """Return the row of an alias such as `openai`, None if the word is not an alias."""
        word = word.lower()
        row = self._aliases.get(word)
        # a name with a dot, or the host of a row, is never an alias, so plug-ins are not loaded
        if row is not None or "." in word or word in self._hosts:
            return row
        return self._with_plugins()._aliases.get(word)

    def aliases(self) -> Mapping[str, str]:
        """Return the host of every alias, with its port if that is not the usual one."""
        return _AliasMap(self)

    def get(self, name: str) -> Provider:
        """Return the row with this name. Raises UsageError, with suggestions, if there is none."""
        row = self._rows.get(name) or self._with_plugins()._rows.get(name)
        if row is None:
            hint = format_suggestion(name, self.names())
            raise UsageError("no provider row has that name", code="provider.unknown", hint=hint)
        return row

    def find_own(self, name: str) -> Provider | None:
        """Return the row with this name, None if there is none. Does not load entry points."""
        return self._rows.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all rows, including those of entry points."""
        return tuple(row.name for row in self)

    def register(self, row: Provider, *, replace: bool = False) -> ProviderTable:
        """Return a new table with this row.

        Raises UsageError if its name, an alias or a host belongs to another row. With `replace`, it may
        replace the row with the same name.
        """
        rows = [other for other in self._rows.values() if not (replace and other.name == row.name)]
        return ProviderTable([*rows, row], plugins=self._load)

    def __iter__(self) -> Iterator[Provider]:
        return iter(tuple(self._with_plugins()._rows.values()))

    def __len__(self) -> int:
        return len(self._with_plugins()._rows)

    def _find_known(self, host: str, port: int | None) -> Provider | None:
        named = self._hosts.get(host)
        rows = self._patterned if named is None else named
        found = [row for row in rows if row.serves(host, port)]
        if port is None and len(found) > 1:
            # the port that a URI without one means (draft 4.2.3)
            found.sort(key=lambda row: row.default_port != _OLLAMA_PORT)
        return found[0] if found else None

    def _add_row(self, row: Provider) -> None:
        if row.name in self._rows:
            raise _make_taken_error(row, row.name, self._rows[row.name])
        for host in row.hosts:
            for other in self._hosts.get(host, ()):
                if other.default_port == row.default_port and not is_loopback(host):
                    raise _make_taken_error(row, host, other)
        for word in self._list_words(row):
            if word in self._aliases:
                raise _make_taken_error(row, word, self._aliases[word])
            self._aliases[word] = row
        self._rows[row.name] = row
        for host in row.hosts:
            # two local servers may have the same port: the last row applies
            others = self._hosts.get(host, ())
            self._hosts[host] = (row, *others) if is_loopback(host) else (*others, row)
        if row.host_suffixes:
            self._patterned.append(row)

    def _list_words(self, row: Provider) -> tuple[str, ...]:
        return (row.name, *row.aliases) if row.hosts else ()

    def _with_plugins(self) -> ProviderTable:
        if self._plugged is None:
            points = tuple(self._load())
            self._plugged = self if not points else self._add_plugins(points)
        return self._plugged

    def _add_plugins(self, points: tuple[EntryPoint, ...]) -> ProviderTable:
        table = ProviderTable(self._rows.values(), plugins=tuple)
        for origin, row in load_rows(points):
            try:
                table._add_row(row)
            except UsageError as error:
                raise ConfigError(f"{origin}: {error.message}", code="provider.bad-plugin") from error
        return table


class _AliasMap(Mapping[str, str]):
    """Aliases and their hosts. Only a look-up of an unknown word loads entry points."""

    def __init__(self, table: ProviderTable) -> None:
        self._table = table

    def __getitem__(self, word: str) -> str:
        row = self._table.find_alias(word)
        if row is None:
            raise KeyError(word)
        usual = _OLLAMA_PORT if is_loopback(row.hosts[0]) else 443
        return row.hosts[0] if row.default_port == usual else f"{row.hosts[0]}:{row.default_port}"

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._table._with_plugins()._aliases))

    def __len__(self) -> int:
        return len(self._table._with_plugins()._aliases)


@cache
def _load_builtin_table() -> ProviderTable:
    return ProviderTable(BUILTIN_ROWS)


def is_loopback(host: str) -> bool:
    """Whether the host is this computer: `localhost`, `*.localhost`, 127.0.0.0/8 or ::1."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return IPv4Address(host).packed[0] == 127
    except AddressValueError:
        pass
    try:
        return int(IPv6Address(host)) == 1
    except AddressValueError:
        return False


def format_suggestion(word: str, known: Iterable[str]) -> str | None:
    """Return "did you mean …?" with the closest known words, None if no word is close."""
    from difflib import get_close_matches  # only an error needs it

    close = get_close_matches(word, list(known), n=2)
    return f"did you mean {' or '.join(close)}?" if close else None


def _make_taken_error(row: Provider, name: str, owner: Provider) -> UsageError:
    message = f"provider row {row.name}: {name} already belongs to {owner.name}"
    return UsageError(message, code="provider.taken")
