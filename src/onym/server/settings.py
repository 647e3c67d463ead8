"""The service's settings: a TOML file, `ONYM_REGISTRY_*` variables over it, arguments over both.

One table names every setting once: where it stands in the file, which variable it has, how it is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from onym.errors import ConfigError
from onym.net.hosts import read_host
from onym.server import _reading as read
from onym.server._tables import Rate, Reader, check_present, read_file, read_rate, read_rows
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.registry.registries import Registry

__all__ = ["PREFIX", "Issuer", "Rate", "Rates", "Settings", "Smtp", "load_settings"]

#: what every variable begins with; `ONYM_REGISTRY_CONFIG` names the file
PREFIX: Final = "ONYM_REGISTRY_"
_MOST_ISSUERS: Final = 16

_READS: Final = Rate(burst=600, per_minute=1200)
_WRITES: Final = Rate(burst=60, per_minute=60)
_LOGINS: Final = Rate(burst=10, per_minute=5)

Security: TypeAlias = Literal["starttls", "tls", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Smtp:
    """The mail server. `sender` is the address that notices come from; `security` none is for loopback."""

    host: str
    sender: str
    port: int = 587
    security: Security = "starttls"
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    list_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An OpenID provider. `id` is its name in our addresses; `network` says whether it may be this machine.

    `create` lets whoever it vouches for get an account, without any role.
    """

    id: str
    issuer: str
    client_id: str
    client_secret: Secret | None = None
    title: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    network: Literal["trusted", "local"] = "trusted"
    ca_file: str | None = None
    create: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How much one visitor may ask for. `logins` counts tries by address and by login."""

    reads: Rate = _READS
    writes: Rate = _WRITES
    logins: Rate = _LOGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one service. Immutable; printed, it shows no secret.

    `base_url` is the origin that people see, without a path. `database` is a file or URL. `allowed_hosts` are
    the names served, that of `base_url` where none is given. `trusted_proxies` are CIDR blocks whose
    `X-Forwarded-For` counts. `profile` is the procedure that new requests for schemes follow; "any" lets each
    registrant choose, for rehearsals. Times are in seconds, sizes in octets.
    """

    base_url: str = "http://127.0.0.1:8000"
    database: Secret = field(default_factory=lambda: Secret("onym-registry.sqlite"))
    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    cookie_name: str = "onym"
    session_seconds: int = 14 * 24 * 3600
    idle_seconds: int = 24 * 3600
    token_days: int = 365
    body_limit: int = 4 * 1024 * 1024
    local_accounts: bool = True
    profile: Literal["rfc7595", "rfc4395", "any"] = "rfc7595"
    rates: Rates = Rates()
    smtp: Smtp | None = None
    issuers: tuple[Issuer, ...] = ()

    def __post_init__(self) -> None:
        if not self.allowed_hosts:
            object.__setattr__(self, "allowed_hosts", (read.authority(self.base_url),))

    def profiles_in(self, row: Registry) -> tuple[str, ...]:
        """The procedures that a new request in that registry may follow."""
        return (self.profile,) if self.profile in row.profiles else row.profiles

    @property
    def https(self) -> bool:
        """Is the service reached over TLS?"""
        return self.base_url.startswith("https:")

    @property
    def session_cookie(self) -> str:
        """The name of the cookie with the session id."""
        return f"__Host-{self.cookie_name}" if self.https else self.cookie_name

    @property
    def form_cookie(self) -> str:
        """The name of the cookie that form tokens follow from where nobody is signed in."""
        return self.session_cookie + "-form"

    @property
    def flow_cookie(self) -> str:
        """The name of the cookie that ties an OpenID Connect sign-in to its browser."""
        return self.session_cookie + "-flow"


#: setting -> how it is read; its variable is PREFIX and the name in capitals
_TOP: Final[Mapping[str, Reader]] = {
    "base_url": read.origin,
    "database": read.secret,
    "host": read.text,
    "port": read.number(0, 65535),
    "allowed_hosts": read.hosts,
    "trusted_proxies": read.networks,
    "cookie_name": read.cookie_name,
    "session_seconds": read.number(60, 366 * 24 * 3600),
    "idle_seconds": read.number(60, 366 * 24 * 3600),
    "token_days": read.number(1, 3660),
    "body_limit": read.number(64 * 1024, 256 * 1024 * 1024),
    "local_accounts": read.flag,
    "profile": read.choice("rfc7595", "rfc4395", "any"),
}


def _mail_host(name: str, value: object) -> str:
    """A name or address, which the resolver can take."""
    bare = read.text(name, value).removeprefix("[").removesuffix("]")
    if read_host(bare).kind == "refused":
        raise ConfigError(
            f"{name} is not as it should be",
            code="config.bad-setting",
            hint="give a host such as mail.example.org",
        )
    return bare


_SMTP: Final[Mapping[str, Reader]] = {
    "host": _mail_host,
    "sender": read.email,
    "port": read.number(1, 65535),
    "security": read.choice("starttls", "tls", "none"),
    "username": read.text,
    "password": read.secret,
    "ca_file": read.text,
    "list_id": read.list_id,
}
_ISSUER: Final[Mapping[str, Reader]] = {
    "id": read.word,
    "issuer": read.issuer,
    "client_id": read.text,
    "client_secret": read.secret,
    "title": read.text,
    "scopes": read.words,
    "network": read.choice("trusted", "local"),
    "ca_file": read.text,
    "create": read.flag,
}


def load_settings(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, **given: Any
) -> Settings:
    """Settings from the file at `path` (or `ONYM_REGISTRY_CONFIG`), the variables and `given`.

    `given` are fields of `Settings`; None leaves one as it is. Raises ConfigError that names the file's key,
    the variable or the argument, and never what a secret holds.
    """
    environ = os.environ if environ is None else environ
    named = path or environ.get(PREFIX + "CONFIG")
    data = {} if not named else read_file(Path(named))
    tables = {key: data.pop(key, None) for key in ("smtp", "oidc", "rates")}
    values: dict[str, Any] = read_rows("", data, _TOP)
    values |= _variables(environ, "", _TOP)
    values |= {
        "smtp": _smtp(tables["smtp"], environ),
        "issuers": _issuers(tables["oidc"], environ),
        "rates": _rates(tables["rates"]),
    }
    known = {each.name for each in fields(Settings)}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"there is no setting {name!r}", code="config.unknown-setting")
        if value is not None:
            values[name] = _TOP[name](name, value) if name in _TOP else value
    return _consistent(Settings(**values))


def _consistent(settings: Settings) -> Settings:
    if settings.idle_seconds > settings.session_seconds:
        raise ConfigError(
            "idle_seconds is longer than session_seconds",
            code="config.bad-setting",
            hint="a session ends after session_seconds, used or not",
        )
    if not settings.local_accounts and not settings.issuers:
        raise ConfigError(
            "nobody could sign in: local_accounts is false and there is no [[oidc]]",
            code="config.bad-setting",
            hint="add an OpenID provider, or leave local accounts on",
        )
    if len({each.id for each in settings.issuers}) < len(settings.issuers):
        raise ConfigError("two [[oidc]] have the same id", code="config.bad-setting")
    return settings


def _variables(environ: Mapping[str, str], infix: str, table: Mapping[str, Reader]) -> dict[str, Any]:
    found = {}
    for key, reader in table.items():
        name = f"{PREFIX}{infix}{key.upper()}"
        if environ.get(name):
            found[key] = reader(name, environ[name])
    return found


def _smtp(data: object, environ: Mapping[str, str]) -> Smtp | None:
    values = read_rows("smtp.", data or {}, _SMTP) | _variables(environ, "SMTP_", _SMTP)
    if not values:
        return None
    check_present("smtp.", values, "host", "sender")
    if values.get("security") == "none" and "password" in values and not read.is_loopback(values["host"]):
        raise ConfigError(
            "smtp.password would cross the network in the clear",
            code="config.bad-setting",
            hint='set smtp.security to "starttls" or "tls"',
        )
    return Smtp(**values)


def _issuers(data: object, environ: Mapping[str, str]) -> tuple[Issuer, ...]:
    if data is None:
        return ()
    if not isinstance(data, list) or len(data) > _MOST_ISSUERS:
        raise ConfigError(f"[[oidc]] stands at most {_MOST_ISSUERS} times", code="config.bad-setting")
    return tuple(_issuer(f"oidc[{index}].", each, environ) for index, each in enumerate(data))


def _issuer(where: str, data: object, environ: Mapping[str, str]) -> Issuer:
    values = read_rows(where, data, _ISSUER)
    check_present(where, values, "id", "issuer", "client_id")
    infix = f"OIDC_{cast('str', values['id']).upper().replace('-', '_')}_"
    secret = _variables(environ, infix, {"client_secret": read.secret})
    values.setdefault("title", values["id"])
    if values["issuer"].startswith("http:") and values.get("network") != "local":
        raise ConfigError(
            f"{where}issuer is not https",
            code="config.bad-setting",
            hint='network = "local" allows http to this machine, for trials',
        )
    return Issuer(**(values | secret))


def _rates(data: object) -> Rates:
    tables = read_rows("rates.", data or {}, dict.fromkeys(("reads", "writes", "logins"), read_rate))
    return Rates(**tables)
