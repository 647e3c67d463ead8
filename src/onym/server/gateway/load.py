"""The gateway's settings read: a TOML file, `ONYM_GATEWAY_*` variables over it, arguments over both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from onym.errors import ConfigError
from onym.net.addresses import parse_address
from onym.server import _reading as read
from onym.server._tables import Reader, check_present, read_file, read_rate, read_rows
from onym.server.gateway.settings import Context, GatewayRates, GatewaySettings, Namespaces

__all__ = ["PREFIX", "load_gateway_settings"]

#: what every variable begins with; `ONYM_GATEWAY_CONFIG` names the file
PREFIX: Final = "ONYM_GATEWAY_"
_MOST_FILES: Final = 16
_MEGABYTE: Final = 1024 * 1024


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


def _addresses(name: str, value: object) -> tuple[str, ...]:
    found = _texts(name, value)
    if not all(map(parse_address, found)):
        raise ConfigError(
            f"{name} is not as it should be",
            code="config.bad-setting",
            hint="give a list of IP addresses, such as 127.0.0.1",
        )
    return found


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
        "replay_limit": read.number(1000, 100_000_000),
        "network": read.choice("public", "local"),
        "dns": read.flag,
        "nameservers": _addresses,
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
    here = all(map(read.is_loopback, settings.own_hosts))
    if settings.https and settings.keys is None and not here:
        raise ConfigError(
            "keys is missing: the gateway signs what it hands on",
            code="config.missing-setting",
            hint="make a key: onym ai keys new DIR, and set keys = DIR",
        )
    if settings.key is not None and settings.certificate is None:
        raise ConfigError("key is given without certificate", code="config.bad-setting")
    return settings
