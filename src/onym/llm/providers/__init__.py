"""The provider table: find a provider by host or alias.

The first row that matches a host applies: the built-in rows and those added with `register()`, then rows
from entry points of the group `onym.providers` (loaded at the first unknown name), then the generic row
`openai-compatible`.

The built-in rows are in `builtin.json`, with the fields of `Provider` and an optional `comment`. They are
taken from vendors' SDKs, documentation and source code; a fact that no source states is left out. `params`
only renames parameters: `timeout` and `retries` belong to the client. Local servers are recognised by their
usual port. On another port, or if two servers share one, use an alias or `api=`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onym.errors import ConfigError, UsageError
from onym.llm.providers.schema import CAPABILITIES, Api, Capability, PathValue, Provider, Range
from onym.uri.llm import LLMURI

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
