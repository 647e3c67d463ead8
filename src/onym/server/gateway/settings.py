"""The gateway's settings: a TOML file, `ONYM_GATEWAY_*` variables and arguments (the last wins)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from onym.ai.replay import MAX_REPLAY_IDS
from onym.errors import ConfigError
from onym.net.hosts import parse_address
from onym.server import settings_parser as read
from onym.server.settings_parser import (
    RateLimit,
    SettingParser,
    load_settings_file,
    parse_rate_limit,
    parse_settings_table,
    require_settings,
)
from onym.uri.generic import URI
from onym.uri.secret import Secret

_MEGABYTE: Final = 1024 * 1024
#: wildcard addresses, which no client can open
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_READS: Final = RateLimit(burst=300, per_minute=600)
_WRITES: Final = RateLimit(burst=60, per_minute=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """A signed registry file for names of one label, and the file of the JWK Set that it is signed with.

    `state` is a file with the newest issue time, so that older files are rejected.
    """

    file: str
    keys: str
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The anchor of `ai:/path` URIs below a path: an https origin, and the thumbprints of its keys."""

    path: str
    anchor: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRates:
    """The rate limits of one client address (IPv6: the /64 network)."""

    reads: RateLimit = _READS
    writes: RateLimit = _WRITES


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """All settings of one gateway. Its repr shows no secrets.

    `base_url` is the public origin, without a path. The default is the listening address, with https if
    there is a certificate; ConfigError `config.missing-setting` is raised if that is reachable from other
    computers without a certificate. `allowed_hosts` are the accepted Host values (default: the host of
    `base_url`). `keys` is the folder of the key store; without it, a gateway on loopback signs with a
    temporary key. `audit` is the file of the audit log, `audit_key` the key that hashes its paths (default:
    a new key at every start). `pins` and `replays` are files; without them the data is lost at the end.
    `replay_limit` is the number of receipts that are remembered for 180 seconds.

    `trusted_proxies` are CIDR blocks whose `X-Forwarded-For` is used for rate limits only. `network` is
    `public` (authorities on public addresses, port 443) or `local` (loopback too, for tests). `ports` are
    more allowed ports, `networks` CIDR blocks that are allowed although they are not public. `ca_files` are
    trusted besides the system's. `dns` allows SRV and TXT queries to `nameservers` (addresses, with
    `nameserver_port`; default: the system's). Times are in seconds, sizes in bytes.
    """

    base_url: str = ""
    host: str = "127.0.0.1"
    port: int = 8480
    certificate: str | None = None
    key: str | None = None
    behind_proxy: bool = False
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    keys: str | None = None
    audit: str | None = None
    audit_key: Secret | None = None
    pins: str | None = None
    replays: str | None = None
    replay_limit: int = MAX_REPLAY_IDS
    network: Literal["public", "local"] = "public"
    dns: bool = True
    nameservers: tuple[str, ...] = ()
    nameserver_port: int = 53
    ports: tuple[int, ...] = ()
    networks: tuple[str, ...] = ()
    ca_files: tuple[str, ...] = ()
    body_limit: int = _MEGABYTE
    answer_limit: int = 8 * _MEGABYTE
    timeout: int = 30
    concurrency: int = 200
    client_concurrency: int = 20
    authority_concurrency: int = 50
    rates: GatewayRates = GatewayRates()
    namespaces: tuple[Namespaces, ...] = ()
    contexts: tuple[Context, ...] = ()
    prefix: str = field(init=False, default="/gateway")

    def __post_init__(self) -> None:
        if not self.base_url:
            object.__setattr__(self, "base_url", _build_base_url(self))
        if not self.allowed_hosts:
            object.__setattr__(self, "allowed_hosts", (read.get_host_and_port(self.base_url),))

    @property
    def is_https(self) -> bool:
        """Is `base_url` an https URL?"""
        return self.base_url.startswith("https:")

    @property
    def name(self) -> str:
        """The gateway's name in Via and Proxy-Status: its host with its port."""
        return read.get_host_and_port(self.base_url)

    @property
    def own_hosts(self) -> frozenset[str]:
        """Its host names without ports, which it never calls as authorities."""
        urls = (self.base_url, *(f"https://{host}" for host in self.allowed_hosts))
        names = (URI.parse(url).host or "" for url in urls)
        return frozenset(name.lower().removeprefix("[").removesuffix("]") for name in names)

    @property
    def cookie_name(self) -> str:
        """The name of the cookie from which form tokens are derived."""
        return "__Host-onym-gateway" if self.is_https else "onym-gateway"


def _build_base_url(settings: GatewaySettings) -> str:
    """Return the origin of the listening address. Raises ConfigError if it cannot be the public origin."""
    everywhere = settings.host in _EVERYWHERE
    # other computers reach plain HTTP through a proxy, which has another URL
    others = settings.behind_proxy if everywhere else not read.is_loopback(settings.host)
    if others and settings.certificate is None:
        raise ConfigError(
            "base_url is missing: the gateway is reachable from other computers, and there is no certificate",
            code="config.missing-setting",
            hint="Set base_url to the public https:// URL, or set certificate and key.",
        )
    scheme, usual = ("http", 80) if settings.certificate is None else ("https", 443)
    host = "127.0.0.1" if everywhere else settings.host
    port = "" if settings.port == usual else f":{settings.port}"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{port}"


#: prefix of the variables; `ONYM_GATEWAY_CONFIG` names the file
PREFIX: Final = "ONYM_GATEWAY_"
_MOST_FILES: Final = 16


def _parse_ports(name: str, value: object) -> tuple[int, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{name} must be a list of ports", code="config.bad-setting")
    one = read.build_number_parser(1, 65535)
    return tuple(one(name, item.strip() if isinstance(item, str) else item) for item in given)


def _parse_texts(name: str, value: object) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{name} must be a list of texts", code="config.bad-setting")
    return tuple(read.parse_text(name, item.strip() if isinstance(item, str) else item) for item in given)


def _parse_addresses(name: str, value: object) -> tuple[str, ...]:
    found = _parse_texts(name, value)
    if not all(map(parse_address, found)):
        raise ConfigError(
            f"{name} must be a list of IP addresses, such as 127.0.0.1", code="config.bad-setting"
        )
    return found


#: setting -> its parser; its variable is PREFIX and the name in capitals
_TOP: Final[Mapping[str, SettingParser]] = MappingProxyType(
    {
        "base_url": read.parse_origin,
        "host": read.parse_text,
        "port": read.build_number_parser(0, 65535),
        "certificate": read.parse_text,
        "key": read.parse_text,
        "behind_proxy": read.parse_flag,
        "allowed_hosts": read.parse_hosts,
        "trusted_proxies": read.parse_networks,
        "keys": read.parse_text,
        "audit": read.parse_text,
        "audit_key": read.parse_secret,
        "pins": read.parse_text,
        "replays": read.parse_text,
        "replay_limit": read.build_number_parser(1000, 100_000_000),
        "network": read.build_choice_parser("public", "local"),
        "dns": read.parse_flag,
        "nameservers": _parse_addresses,
        "nameserver_port": read.build_number_parser(1, 65535),
        "ports": _parse_ports,
        "networks": read.parse_networks,
        "ca_files": _parse_texts,
        "body_limit": read.build_number_parser(1024, 256 * _MEGABYTE),
        "answer_limit": read.build_number_parser(1024, 256 * _MEGABYTE),
        "timeout": read.build_number_parser(1, 600),
        "concurrency": read.build_number_parser(1, 10_000),
        "client_concurrency": read.build_number_parser(1, 10_000),
        "authority_concurrency": read.build_number_parser(1, 10_000),
    }
)
_NAMESPACES: Final[Mapping[str, SettingParser]] = MappingProxyType(
    {"file": read.parse_text, "keys": read.parse_text, "state": read.parse_text}
)
_CONTEXT: Final[Mapping[str, SettingParser]] = MappingProxyType(
    {"path": read.parse_text, "anchor": read.parse_origin, "keys": _parse_texts}
)


def load_gateway_settings(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, **given: Any
) -> GatewaySettings:
    """Return the settings from the file at `path` (or `ONYM_GATEWAY_CONFIG`), the variables and `given`.

    `given` are fields of `GatewaySettings`; None sets nothing. Raises ConfigError, which names the file's
    key, the variable or the argument, and never shows a secret.
    """
    environ = os.environ if environ is None else environ
    named = path or environ.get(PREFIX + "CONFIG")
    data = {} if not named else load_settings_file(Path(named))
    tables = {name: data.pop(name, None) for name in ("rates", "namespaces", "contexts")}
    values: dict[str, Any] = parse_settings_table("", data, _TOP)
    for name, reader in _TOP.items():
        variable = PREFIX + name.upper()
        if environ.get(variable):
            values[name] = reader(variable, environ[variable])
    values |= {
        "rates": GatewayRates(
            **parse_settings_table(
                "rates.", tables["rates"] or {}, {"reads": parse_rate_limit, "writes": parse_rate_limit}
            )
        ),
        "namespaces": tuple(
            Namespaces(**row)
            for row in _parse_table_list("namespaces", tables["namespaces"], _NAMESPACES, "keys")
        ),
        "contexts": tuple(
            Context(**row) for row in _parse_table_list("contexts", tables["contexts"], _CONTEXT, "anchor")
        ),
    }
    known = {field.name for field in fields(GatewaySettings) if field.init}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{name!r} is not a setting", code="config.unknown-setting")
        if value is not None:
            values[name] = _TOP[name](name, value) if name in _TOP else value
    return _require_consistent(GatewaySettings(**values))


def _parse_table_list(
    name: str, data: object, table: Mapping[str, SettingParser], needed: str
) -> list[dict[str, Any]]:
    """Return the rows of a TOML array of tables; the table's first key and `needed` are required."""
    if data is None:
        return []
    if not isinstance(data, list) or len(data) > _MOST_FILES:
        raise ConfigError(f"[[{name}]] must be at most {_MOST_FILES} tables", code="config.bad-setting")
    found = []
    for index, row in enumerate(data):
        where = f"{name}[{index}]."
        values = parse_settings_table(where, row, table)
        require_settings(where, values, next(iter(table)), needed)
        found.append(values)
    return found


def _require_consistent(settings: GatewaySettings) -> GatewaySettings:
    here = all(map(read.is_loopback, settings.own_hosts))
    if settings.is_https and settings.keys is None and not here:
        raise ConfigError(
            "keys is missing: the gateway signs the results that it forwards",
            code="config.missing-setting",
            hint="Create a key with onym ai keys new DIR, and set keys = DIR.",
        )
    if settings.key is not None and settings.certificate is None:
        raise ConfigError("key is set without certificate", code="config.bad-setting")
    return settings
