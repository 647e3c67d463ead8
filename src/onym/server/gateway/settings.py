"""The gateway's settings: a TOML file, `ONYM_GATEWAY_*` variables over it, arguments over both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from onym.errors import ConfigError
from onym.server import _reading as read
from onym.server._tables import Rate, Reader, check_present, read_file, read_rate, read_rows
from onym.uri.generic import URI
from onym.uri.secret import Secret

__all__ = ["PREFIX", "Context", "GatewayRates", "GatewaySettings", "Namespaces", "load_gateway_settings"]

#: what every variable begins with; `ONYM_GATEWAY_CONFIG` names the file
PREFIX: Final = "ONYM_GATEWAY_"
_MOST_FILES: Final = 16
_MEGABYTE: Final = 1024 * 1024
_READS: Final = Rate(burst=300, per_minute=600)
_WRITES: Final = Rate(burst=60, per_minute=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """A signed registry file for names of one label, and the file of the JWK Set that it is signed with.

    `state` is a file that remembers the newest issue seen, so that no older one is taken.
    """

    file: str
    keys: str
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who speaks for `ai:/path` below this path: an https origin, and the thumbprints of its keys."""

    path: str
    anchor: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRates:
    """How much one client address may ask for; an IPv6 network counts as one."""

    reads: Rate = _READS
    writes: Rate = _WRITES


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """All settings of one gateway. Immutable; printed, it shows no secret.

    `base_url` is the origin that people see, without a path; `allowed_hosts` the values of Host that are
    served, that of `base_url` where none is given. `keys` is the folder of the key store; without one, a
    gateway on this machine signs with a key that ends with the process. `audit` is the file of the audit log,
    `audit_key` what hashes paths in it (a new one for each start where none is given). `pins` and `replays`
    are files; what they hold is forgotten at the end without them.

    `trusted_proxies` are CIDR blocks whose `X-Forwarded-For` counts, for rate limits alone. `network` says
    where authorities may be: `public` addresses on port 443, or `local` ones too, for trials. `ports` are
    further ports, `networks` CIDR blocks that may be reached although they are not public. `ca_files` are
    trusted besides the system's. `dns` says whether SRV and TXT records are asked for, of `nameservers`
    (addresses, at `nameserver_port`; the system's by default). Times are in seconds, sizes in octets.
    """

    base_url: str = "http://127.0.0.1:8480"
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
        if not self.allowed_hosts:
            object.__setattr__(self, "allowed_hosts", (read.authority(self.base_url),))

    @property
    def https(self) -> bool:
        """Is the gateway reached over TLS?"""
        return self.base_url.startswith("https:")

    @property
    def name(self) -> str:
        """The gateway's name in Via and Proxy-Status: its host with its port."""
        return read.authority(self.base_url)

    @property
    def own_hosts(self) -> frozenset[str]:
        """Its host names, without ports: no authority that it goes to."""
        urls = (self.base_url, *(f"https://{each}" for each in self.allowed_hosts))
        names = (URI.parse(each).host or "" for each in urls)
        return frozenset(each.lower().removeprefix("[").removesuffix("]") for each in names)

    @property
    def cookie(self) -> str:
        """The name of the cookie that the page's forms follow from."""
        return "__Host-onym-gateway" if self.https else "onym-gateway"


def _ports(name: str, value: object) -> tuple[int, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise ConfigError(
            f"{name} is not as it should be", code="config.bad-setting", hint="give a list of ports"
        )
    one = read.number(1, 65535)
    return tuple(one(name, each.strip() if isinstance(each, str) else each) for each in given)


def _texts(name: str, value: object) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        raise ConfigError(
            f"{name} is not as it should be", code="config.bad-setting", hint="give a list of texts"
        )
    return tuple(read.text(name, each.strip() if isinstance(each, str) else each) for each in given)


#: setting -> how it is read; its variable is PREFIX and the name in capitals
_TOP: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "base_url": read.origin,
        "host": read.text,
        "port": read.number(0, 65535),
        "certificate": read.text,
        "key": read.text,
        "behind_proxy": read.flag,
        "allowed_hosts": read.hosts,
        "trusted_proxies": read.networks,
        "keys": read.text,
        "audit": read.text,
        "audit_key": read.secret,
        "pins": read.text,
        "replays": read.text,
        "network": read.choice("public", "local"),
        "dns": read.flag,
        "nameservers": _texts,
        "nameserver_port": read.number(1, 65535),
        "ports": _ports,
        "networks": read.networks,
        "ca_files": _texts,
        "body_limit": read.number(1024, 256 * _MEGABYTE),
        "answer_limit": read.number(1024, 256 * _MEGABYTE),
        "timeout": read.number(1, 600),
        "concurrency": read.number(1, 10_000),
        "client_concurrency": read.number(1, 10_000),
        "authority_concurrency": read.number(1, 10_000),
    }
)
_NAMESPACES: Final[Mapping[str, Reader]] = MappingProxyType(
    {"file": read.text, "keys": read.text, "state": read.text}
)
_CONTEXT: Final[Mapping[str, Reader]] = MappingProxyType(
    {"path": read.text, "anchor": read.origin, "keys": _texts}
)


def load_gateway_settings(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, **given: Any
) -> GatewaySettings:
    """Settings from the file at `path` (or `ONYM_GATEWAY_CONFIG`), the variables and `given`.

    `given` are fields of `GatewaySettings`; None leaves one as it is. Raises ConfigError that names the
    file's key, the variable or the argument, and never what a secret holds.
    """
    environ = os.environ if environ is None else environ
    named = path or environ.get(PREFIX + "CONFIG")
    data = {} if not named else read_file(Path(named))
    tables = {name: data.pop(name, None) for name in ("rates", "namespaces", "contexts")}
    values: dict[str, Any] = read_rows("", data, _TOP)
    for name, reader in _TOP.items():
        variable = PREFIX + name.upper()
        if environ.get(variable):
            values[name] = reader(variable, environ[variable])
    values |= {
        "rates": GatewayRates(
            **read_rows("rates.", tables["rates"] or {}, {"reads": read_rate, "writes": read_rate})
        ),
        "namespaces": tuple(
            Namespaces(**each) for each in _list("namespaces", tables["namespaces"], _NAMESPACES, "keys")
        ),
        "contexts": tuple(
            Context(**each) for each in _list("contexts", tables["contexts"], _CONTEXT, "anchor")
        ),
    }
    known = {each.name for each in fields(GatewaySettings) if each.init}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"there is no setting {name!r}", code="config.unknown-setting")
        if value is not None:
            values[name] = _TOP[name](name, value) if name in _TOP else value
    return _consistent(GatewaySettings(**values))


def _list(name: str, data: object, table: Mapping[str, Reader], needed: str) -> list[dict[str, Any]]:
    """The rows of a TOML array of tables; the first column of the table and `needed` must be there."""
    if data is None:
        return []
    if not isinstance(data, list) or len(data) > _MOST_FILES:
        raise ConfigError(f"[[{name}]] stands at most {_MOST_FILES} times", code="config.bad-setting")
    found = []
    for index, each in enumerate(data):
        where = f"{name}[{index}]."
        values = read_rows(where, each, table)
        check_present(where, values, next(iter(table)), needed)
        found.append(values)
    return found


def _consistent(settings: GatewaySettings) -> GatewaySettings:
    if settings.https and settings.keys is None:
        raise ConfigError(
            "keys is missing: the gateway signs what it hands on",
            code="config.missing-setting",
            hint="make a key: onym ai keys new --keys DIR, and set keys = DIR",
        )
    if settings.key is not None and settings.certificate is None:
        raise ConfigError("key is given without certificate", code="config.bad-setting")
    return settings
