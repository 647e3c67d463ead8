"""The gateway's settings: a TOML file, `ONYM_GATEWAY_*` variables and arguments (the last wins)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from onym.ai.replay import MAX_REPLAY_IDS
from onym.common.settings import load_settings
from onym.errors import ConfigError
from onym.net.hosts import is_loopback
from onym.server.settings_parser import (
    HostField,
    IPAddress,
    Line,
    ListenPort,
    NetworkBlock,
    OriginURL,
    Port,
    RateLimit,
    SecretLine,
    get_host_and_port,
)
from onym.uri.generic import URI

#: prefix of the variables; `ONYM_GATEWAY_CONFIG` names the file
PREFIX: Final = "ONYM_GATEWAY_"
_MOST_FILES: Final = 16
_MEGABYTE: Final = 1024 * 1024
_READS: Final = RateLimit(burst=300, per_minute=600)
_WRITES: Final = RateLimit(burst=60, per_minute=120)
#: wildcard addresses, which no client can open
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104

_BodyLimit: TypeAlias = Annotated[int, Meta(ge=1024, le=256 * _MEGABYTE)]
_Exchanges: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """A signed registry file for names of one label, and the file of the JWK Set that it is signed with.

    `state` is a file with the newest issue time, so that older files are rejected.
    """

    file: Line
    keys: Line
    state: Line | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The anchor of `ai:/path` URIs below a path: an https origin, and the thumbprints of its keys."""

    path: Line
    anchor: OriginURL
    keys: tuple[Line, ...] = ()


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

    base_url: OriginURL = ""
    host: Line = "127.0.0.1"
    port: ListenPort = 8480
    certificate: Line | None = None
    key: Line | None = None
    behind_proxy: bool = False
    allowed_hosts: tuple[HostField, ...] = ()
    trusted_proxies: tuple[NetworkBlock, ...] = ()
    keys: Line | None = None
    audit: Line | None = None
    audit_key: SecretLine | None = None
    pins: Line | None = None
    replays: Line | None = None
    replay_limit: Annotated[int, Meta(ge=1000, le=100_000_000)] = MAX_REPLAY_IDS
    network: Literal["public", "local"] = "public"
    dns: bool = True
    nameservers: tuple[IPAddress, ...] = ()
    nameserver_port: Port = 53
    ports: tuple[Port, ...] = ()
    networks: tuple[NetworkBlock, ...] = ()
    ca_files: tuple[Line, ...] = ()
    body_limit: _BodyLimit = _MEGABYTE
    answer_limit: _BodyLimit = 8 * _MEGABYTE
    timeout: Annotated[int, Meta(ge=1, le=600)] = 30
    concurrency: _Exchanges = 200
    client_concurrency: _Exchanges = 20
    authority_concurrency: _Exchanges = 50
    rates: GatewayRates = GatewayRates()
    namespaces: tuple[Namespaces, ...] = ()
    contexts: tuple[Context, ...] = ()
    prefix: str = field(init=False, default="/gateway")

    def __post_init__(self) -> None:
        if not self.base_url:
            object.__setattr__(self, "base_url", _build_base_url(self))
        if not self.allowed_hosts:
            object.__setattr__(self, "allowed_hosts", (get_host_and_port(self.base_url),))

    @property
    def is_https(self) -> bool:
        """Is `base_url` an https URL?"""
        return self.base_url.startswith("https:")

    @property
    def name(self) -> str:
        """The gateway's name in Via and Proxy-Status: its host with its port."""
        return get_host_and_port(self.base_url)

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
    others = settings.behind_proxy if everywhere else not is_loopback(settings.host)
    if others and settings.certificate is None:
        raise ConfigError(
            "base_url is missing: other computers can reach the gateway, which has no certificate",
            code="config.missing-setting",
            hint="Set base_url to the public https:// URL, or set certificate and key.",
        )
    scheme, usual = ("http", 80) if settings.certificate is None else ("https", 443)
    host = "127.0.0.1" if everywhere else settings.host
    port = "" if settings.port == usual else f":{settings.port}"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{port}"


def load_gateway_settings(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, **given: Any
) -> GatewaySettings:
    """Return the settings from the file at `path` (or `ONYM_GATEWAY_CONFIG`), the variables and `given`.

    `given` are fields of `GatewaySettings`; None sets nothing. Raises ConfigError, which names the file's
    key, the variable or the argument, and never shows a secret.
    """
    environ = os.environ if environ is None else environ
    settings = load_settings(GatewaySettings, path, prefix=PREFIX, environ=environ, arguments=given)
    _require_consistent(settings)
    return settings


def _require_consistent(settings: GatewaySettings) -> None:
    here = all(map(is_loopback, settings.own_hosts))
    if settings.is_https and settings.keys is None and not here:
        raise ConfigError(
            "keys is missing: the gateway signs the results that it forwards",
            code="config.missing-setting",
            hint="Create a key with onym ai keys new DIR, and set keys = DIR.",
        )
    if settings.key is not None and settings.certificate is None:
        raise ConfigError("key is set without certificate", code="config.bad-setting")
    for name in ("namespaces", "contexts"):
        if len(getattr(settings, name)) > _MOST_FILES:
            raise ConfigError(f"[[{name}]] must be at most {_MOST_FILES} tables", code="config.bad-setting")
