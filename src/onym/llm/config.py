"""The configuration file: named endpoints, profiles, the policy and provider rows."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn

from onym import errors
from onym.llm.providers import Api, PathValue, Provider, ProviderTable
from onym.llm.request_headers import parse_headers
from onym.net.hosts import is_loopback
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.proxies import ProxyConfig
from onym.uri.llm import LLMURI, check
from onym.uri.redact import redact
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.common.settings import SettingsFile

#: "environment" (use `HTTPS_PROXY` and the like), "none", or the URL of a proxy
PROXY = "ONYM_PROXY"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """The table `[network]`: how connections leave this computer.

    `proxy` is "environment" (`HTTPS_PROXY` and the like), "none" or a URL; None if the file has none.
    `no_proxy` are hosts that are reached without it. `tls` has the authorities and the client certificate.
    """

    proxy: Secret | None = None
    no_proxy: tuple[str, ...] = ()
    tls: TLSConfig = field(default_factory=TLSConfig)


def parse_proxy(
    text: str | Secret, environ: Mapping[str, str], source: str = "--proxy"
) -> ProxyConfig | None:
    """Return the proxy that a setting means: "environment", "none" or a URL. None is no proxy.

    "environment" means the variables of `ProxyConfig.from_environment`; a URL applies to all hosts except
    this computer. Raises UsageError `usage.proxy`.
    """
    # from here on no frame of a traceback holds the text, which may hold a password
    text = text if isinstance(text, Secret) else Secret(text)
    if text == Secret("none"):
        return None
    if text == Secret("environment"):
        return ProxyConfig.from_environment(environ)
    return ProxyConfig.parse(text, source=source)


def add_proxy_hint(error: Exception, host: str, variable: str) -> None:
    """Add to an error that no connection could be made: this variable names a proxy that was not used."""
    if (
        not isinstance(error, errors.ConnectionFailed | errors.DeadlineExceeded | errors.ResolveError)
        or error.sent
    ):
        return
    if is_loopback(host):
        return
    hint = f"{variable} is set, but Onym uses a proxy only on request: add --proxy environment, or set"
    error.hint = f"{error.hint or ''} {hint} {PROXY}=environment.".lstrip()


#: the variable that names the configuration file
VARIABLE: Final = "ONYM_CONFIG"

_LONGEST_FILE: Final = 1024 * 1024
_TABLES: Final = ("endpoints", "network", "policy", "profiles", "providers")
_ENDPOINT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ROW_FIELDS: Final = tuple(member.name for member in fields(Provider) if member.name != "name")


def default_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the configuration: `ONYM_CONFIG`, or a file in the user's configuration folder."""
    path = (os.environ if environ is None else environ).get(VARIABLE)
    if path:
        return Path(path).expanduser()
    from platformdirs import user_config_path

    return user_config_path("onym", appauthor=False) / "config.toml"


def _is_named(environ: Mapping[str, str] | None) -> bool:
    """Return whether `ONYM_CONFIG` names the file."""
    return bool((os.environ if environ is None else environ).get(VARIABLE))


@dataclass(frozen=True, slots=True)
class Finding:
    """A result of `Config.check`: `where` is the name of the entry in the file ("endpoints.fast")."""

    severity: Literal["error", "warning", "note"]
    where: str
    message: str


class _EndpointMap(Mapping[str, str]):
    """Names and URIs. The `repr` contains no key."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[str, str]) -> None:
        # tools that report errors walk over the attributes
        self._texts = {name: Secret(text) for name, text in texts.items()}

    def __getitem__(self, name: str) -> str:
        return self._texts[name].reveal()

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return repr({name: redact(text) for name, text in self.items()})

    def __deepcopy__(self, memo: object) -> _EndpointMap:
        return self  # it does not change, and dataclasses.asdict copies

    def __reduce__(self) -> NoReturn:
        raise errors.SecretError("endpoints may contain keys and cannot be pickled", code="secret.pickled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration file. Immutable; the `repr` contains no key.

    `endpoints` maps names to `llm://` URIs, `headers` maps the same names to the headers of their requests,
    and `profiles` maps fragments to parameters. `policy` is None if the file has none. `network` has the
    proxy and the certificates, which arguments, options and `ONYM_PROXY` replace. `providers` are the
    built-in entries and those of the file. `path` is None if there is no file.
    """

    endpoints: Mapping[str, str] = field(default_factory=dict, repr=False)
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    policy: Policy | None = None
    network: NetworkSettings = field(default_factory=NetworkSettings)
    providers: ProviderTable = field(default_factory=ProviderTable.builtin, repr=False)
    path: Path | None = None
    headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "endpoints", _EndpointMap(self.endpoints))

    @classmethod
    def empty(cls) -> Config:
        """Return a configuration without entries."""
        return cls()

    @classmethod
    def load(cls, path: str | Path | None = None, *, environ: Mapping[str, str] | None = None) -> Config:
        """Read the file at `path` or of `ONYM_CONFIG`, or the user's file, which may be absent.

        Raises ConfigError, with the file, the key and if possible the line, for a file that cannot be read,
        is not TOML, or contains unknown keys or invalid values.
        """
        chosen = default_path(environ) if path is None else Path(path)
        try:
            return cls._load_file(chosen, named=path is not None, variable=_is_named(environ))
        except (errors.ConfigError, KeyboardInterrupt) as error:
            # no frame that holds the file's texts, and no cause that quotes them, stays with the error
            raise errors.strip_frames(error) from None

    @classmethod
    def _load_file(cls, path: Path, *, named: bool, variable: bool) -> Config:
        try:
            with path.open("rb") as stream:
                content = stream.read(_LONGEST_FILE + 1)
                modified = os.fstat(stream.fileno()).st_mtime
        except FileNotFoundError:
            if not named and not variable:
                return cls.empty()
            raise errors.ConfigError(
                f"{path}: the file does not exist" + ("" if named else f" ({VARIABLE})"),
                code="config.missing",
                hint=None if named else f"Create it with onym config init, or unset {VARIABLE}.",
            ) from None
        except OSError as error:
            raise errors.ConfigError(
                f"{path}: cannot be read: {error.strerror}", code="config.unreadable"
            ) from None
        if len(content) > _LONGEST_FILE:
            raise errors.ConfigError(f"{path}: is longer than 1 MiB", code="config.too-long")
        from onym.common.settings import SettingsFile  # 2 ms that only a file needs

        try:
            file = SettingsFile(path, content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            message = f"{path}: is not UTF-8 at byte {error.start}"
            raise errors.ConfigError(message, code="config.not-toml") from None
        except errors.ConfigError as error:
            raise errors.ConfigError(error.message, code="config.not-toml", hint=error.hint) from None
        return _ConfigReader(file, datetime.fromtimestamp(modified, UTC)).build_config()

    def check(self) -> tuple[Finding, ...]:
        """Return errors, warnings and notes about the entries. Never raises; the results contain no key."""
        return (
            *self._check_endpoints(),
            *self._check_profiles(),
            *self._check_network(),
            *self._check_file(),
        )

    def _check_endpoints(self) -> Iterator[Finding]:
        for name, text in self.endpoints.items():
            where = f"endpoints.{name}"
            report = check(text)
            for diagnostic in report.diagnostics:
                rule = f" [{diagnostic.clause}]" if diagnostic.clause else ""
                yield Finding(diagnostic.severity, where, f"{diagnostic.message}{rule}")
            uri = report.uri
            if uri is None:
                continue
            if uri.key is not None:
                hint = "the file contains the key; use ?auth=env:NAME or ?auth=keyring:SERVICE/USER instead"
                yield Finding("warning", where, hint)
            if uri.fragment is not None and uri.fragment not in self.profiles:
                yield Finding("note", where, "no profile of this file has the name of its fragment")

    def _check_profiles(self) -> Iterator[Finding]:
        # late: what a profile may hold is the business of a call
        from onym.llm._arguments import build_profile_layer
        from onym.uri.parameters import WELL_KNOWN

        for name, values in self.profiles.items():
            known = {key: value for key, value in values.items() if key in WELL_KNOWN}
            try:
                build_profile_layer(name, values)
                # a profile's values obey the rules of a URI's
                LLMURI.build(host="localhost", model="any", params=known)
            except (errors.ConfigError, errors.UsageError, errors.URIError) as error:
                yield Finding("error", f"profiles.{name}", error.message)

    def _check_network(self) -> Iterator[Finding]:
        tls = self.network.tls
        if tls == TLSConfig():
            return
        from onym.net.connections import make_tls_context  # late: it loads ssl

        try:
            make_tls_context(tls)
        except errors.UsageError as error:
            yield Finding("error", "network", error.message)

    def _check_file(self) -> Iterator[Finding]:
        if self.path is None or os.name == "nt":
            return
        try:
            mode = self.path.stat().st_mode
        except OSError:
            return  # it was removed after it was read
        proxy = self.network.proxy
        keyed = any(redact(text) != text for text in self.endpoints.values())
        keyed = keyed or (proxy is not None and "@" in proxy.reveal())
        if keyed and mode & (stat.S_IRGRP | stat.S_IROTH):
            yield Finding("warning", str(self.path), "contains a key, and other users may read it: chmod 600")


class _Kind(NamedTuple):
    """The type of a value, and its name in messages."""

    type: type
    title: str


_TEXT: Final = _Kind(str, "text in quotes")
_TEXTS: Final = _Kind(list, 'a list of texts, such as ["a", "b"]')
_NETWORK: Final = {
    "proxy": _TEXT,
    "no_proxy": _TEXTS,
    "ca_files": _TEXTS,
    "client_cert": _TEXT,
    "client_key": _TEXT,
    "tls_loopback": _Kind(bool, "true or false"),
}
#: the keys of `[network]` with their types, and the tables in a provider's entry that become records
NETWORK_KEYS: Final = {name: kind.type for name, kind in _NETWORK.items()}
RECORD_KINDS: Final = {"apis": Api, "path_values": PathValue}


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


class _ConfigReader:
    """Reads the tables of one file."""

    def __init__(self, file: SettingsFile, modified: datetime) -> None:
        self._file = file
        self._modified = modified

    def build_config(self) -> Config:
        """Return the configuration. Raises ConfigError."""
        self._require_known(self._file.data, _TABLES, "")
        return Config(
            endpoints=MappingProxyType(dict(self._parse_endpoints())),
            headers=MappingProxyType(dict(self._parse_headers())),
            profiles=MappingProxyType(dict(self._parse_profiles())),
            policy=self._parse_policy(),
            network=self._parse_network(),
            providers=self._parse_providers(),
            path=self._file.path,
        )

    def _parse_endpoints(self) -> Iterator[tuple[str, str]]:
        for name, text in self._get_table("endpoints").items():
            if _ENDPOINT_NAME.fullmatch(name) is None:
                rule = "the name of an endpoint consists of letters, digits, '.', '_' and '-'"
                raise self._make_error(rule, "endpoints", name)
            if isinstance(text, dict):
                self._require_known(text, ("uri", "headers"), f"endpoints.{name}")
                text = text.get("uri")
            if not isinstance(text, str):
                rule = "an endpoint is an llm:// URI in quotes, or a table with uri and headers"
                raise self._make_error(rule, "endpoints", name)
            yield name, text

    def _parse_headers(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        for name, values in self._get_table("endpoints").items():
            if isinstance(values, dict) and "headers" in values:
                try:
                    parse_headers(values["headers"])
                except errors.UsageError as error:
                    raise self._make_error(error.message, f"endpoints.{name}", "headers") from None
                yield name, MappingProxyType(values["headers"])

    def _parse_profiles(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, values in self._get_table("profiles").items():
            if not isinstance(values, dict):
                raise self._make_error("a profile is a table of parameters", "profiles", name)
            yield name, MappingProxyType(values)

    def _parse_policy(self) -> Policy | None:
        values = self._get_table("policy")
        known = [*(member.name for member in fields(Policy) if not member.name.startswith("_")), "preset"]
        known.remove("name")
        self._require_known(values, known, "policy")
        if not values:
            return None
        try:
            return Policy.from_dict(values)
        except errors.UsageError as error:
            raise self._make_error(error.message, "policy", hint=error.hint) from None

    def _parse_network(self) -> NetworkSettings:
        values = self._get_table("network")
        self._require_known(values, tuple(_NETWORK), "network")
        if not values:
            return NetworkSettings()
        for name, value in values.items():
            kind = _NETWORK[name]
            if not isinstance(value, kind.type) or (kind.type is list and not _are_texts(value)):
                raise self._make_error(f"must be {kind.title}", "network", name)
        proxy = Secret(values["proxy"]) if "proxy" in values else None
        no_proxy = tuple(values.get("no_proxy", ()))
        self._check_proxy(proxy, no_proxy)
        cert, key = (self._resolve_file(values.get(name)) for name in ("client_cert", "client_key"))
        if key is not None and cert is None:
            raise self._make_error("needs client_cert", "network", "client_key")
        tls = TLSConfig(
            ca_files=tuple(str(self._resolve_file(name)) for name in values.get("ca_files", ())),
            client_cert=cert,
            client_key=key,
            loopback=values.get("tls_loopback", False),
        )
        return NetworkSettings(proxy=proxy, no_proxy=no_proxy, tls=tls)

    def _check_proxy(self, proxy: Secret | None, no_proxy: tuple[str, ...]) -> None:
        try:
            if proxy is not None:
                parse_proxy(proxy, {}, "the configuration")
        except errors.UsageError as error:
            raise self._make_error(error.message, "network", "proxy", hint=error.hint) from None
        try:
            ProxyConfig(scheme="http", host="localhost", no_proxy=no_proxy)
        except errors.UsageError as error:
            raise self._make_error(error.message, "network", "no_proxy", hint=error.hint) from None

    def _resolve_file(self, name: str | None) -> str | None:
        """Return the path of a file that the table names, relative to the folder of the configuration."""
        return None if name is None else str(self._file.path.parent / Path(name).expanduser())

    def _parse_providers(self) -> ProviderTable:
        table = ProviderTable.builtin()
        for name, values in self._get_table("providers").items():
            if not isinstance(values, dict):
                raise self._make_error("a provider is a table", "providers", name)
            self._require_known(values, _ROW_FIELDS, f"providers.{name}")
            try:
                table = table.register(self._build_row(table.find_own(name), name, values), replace=True)
            except (errors.UsageError, TypeError, ValueError, AttributeError) as error:
                message = (
                    error.message if isinstance(error, errors.UsageError) else "has a value of the wrong type"
                )
                raise self._make_error(message, "providers", name) from None
        return table

    def _build_row(self, known: Provider | None, name: str, values: Mapping[str, Any]) -> Provider:
        """Return a new row, or a built-in row with changes."""
        given = {key: _build_records(key, _convert_value(value)) for key, value in values.items()}
        source = f"the configuration file {self._file.path}"
        if known is not None:
            return replace(known, **{"source": f"{known.source}; {source}", **given})
        given.setdefault("title", name)
        given.setdefault("needs_key", bool(given.get("key_variables")))
        given.setdefault("docs", "")
        given.setdefault("source", source)
        given.setdefault("checked", self._modified.date().isoformat())
        return Provider(name=name, **given)

    def _get_table(self, name: str) -> Mapping[str, Any]:
        table = self._file.data.get(name, {})
        if not isinstance(table, dict):
            raise self._make_error(f"{name} must be a table: write [{name}]", "", name)
        return table

    def _require_known(self, values: Mapping[str, Any], known: Sequence[str], table: str) -> None:
        for name in values:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
                raise self._make_error(f"unknown key {_mask_name(name)}", table, name, hint=hint)

    def _make_error(
        self, message: str, table: str, key: str = "", *, hint: str | None = None
    ) -> errors.ConfigError:
        parts = [part for part in (table, key) if part]
        line = self._file.find_line(*parts)
        place = str(self._file.path) if line is None else f"{self._file.path}:{line}"
        return errors.ConfigError(f"{place}: {'.'.join(map(_mask_name, parts))}: {message}", hint=hint)


def _mask_name(name: str) -> str:
    """Return a name of the file for a message, unless it may be a credential."""
    return redact(name) if len(name) <= 64 and re.fullmatch(r"[\w.-]+", name, re.ASCII) else "(a name)"


def _build_records(key: str, value: Any) -> Any:
    """Return the tables of a provider entry that consist of records as these records."""
    kind = RECORD_KINDS.get(key)
    return value if kind is None else {name: kind(**record) for name, record in value.items()}


def _convert_value(value: Any) -> Any:
    """Return TOML's arrays as tuples, and as None the values that replace TOML's missing null.

    `false` means that a provider has no such name, and `inf` means an open end of a range.
    """
    if isinstance(value, list):
        return tuple(None if item in (inf, -inf) else _convert_value(item) for item in value)
    if isinstance(value, dict):
        return {key: None if item is False else _convert_value(item) for key, item in value.items()}
    return value
