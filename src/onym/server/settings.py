"""The service's settings: a TOML file, `ONYM_REGISTRY_*` variables and arguments (the last wins).

A table names the parser of every setting; its variable is derived from its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from onym.accounts.records import Issuer
from onym.errors import ConfigError
from onym.net.hosts import parse_host
from onym.server import settings_parser as read
from onym.server.settings_parser import (
    RateLimit,
    SettingParser,
    load_settings_file,
    parse_rate_limit,
    parse_settings_table,
    require_settings,
)
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.registry.registries import Registry

__all__ = ["PREFIX", "Issuer", "RateLimit", "RateLimits", "Settings", "Smtp", "load_settings"]

#: prefix of the variables; `ONYM_REGISTRY_CONFIG` names the file
PREFIX: Final = "ONYM_REGISTRY_"
_MOST_ISSUERS: Final = 16

_READS: Final = RateLimit(burst=600, per_minute=1200)
_WRITES: Final = RateLimit(burst=60, per_minute=60)
_LOGINS: Final = RateLimit(burst=10, per_minute=5)

Security: TypeAlias = Literal["starttls", "tls", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Smtp:
    """The mail server. `sender` is the From address of notices; `security` "none" is for loopback."""

    host: str
    sender: str
    port: int = 587
    security: Security = "starttls"
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    list_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """The rate limits of one visitor. `logins` limits attempts by address and by login."""

    reads: RateLimit = _READS
    writes: RateLimit = _WRITES
    logins: RateLimit = _LOGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one service. Its repr shows no secrets.

    `base_url` is the public origin, without a path. `database` is a file or URL. `allowed_hosts` are the
    accepted Host values (default: the host of `base_url`). `trusted_proxies` are CIDR blocks whose
    `X-Forwarded-For` is used. `profile` is the procedure of new requests for schemes; "any" lets
    registrants choose, for tests. Times are in seconds, sizes in bytes.
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
    rates: RateLimits = RateLimits()
    smtp: Smtp | None = None
    issuers: tuple[Issuer, ...] = ()

    def __post_init__(self) -> None:
        if not self.allowed_hosts:
            object.__setattr__(self, "allowed_hosts", (read.get_host_and_port(self.base_url),))

    def list_profiles(self, row: Registry) -> tuple[str, ...]:
        """Return the procedures for new requests in a registry."""
        return (self.profile,) if self.profile in row.profiles else row.profiles

    @property
    def is_https(self) -> bool:
        """Is `base_url` an https URL?"""
        return self.base_url.startswith("https:")

    @property
    def session_cookie(self) -> str:
        """The name of the cookie with the session ID."""
        return f"__Host-{self.cookie_name}" if self.is_https else self.cookie_name

    @property
    def form_cookie(self) -> str:
        """The name of the cookie from which form tokens of anonymous visitors are derived."""
        return self.session_cookie + "-form"

    @property
    def flow_cookie(self) -> str:
        """The name of the cookie that ties an OpenID Connect sign-in to its browser."""
        return self.session_cookie + "-flow"


#: setting -> its parser; its variable is PREFIX and the name in capitals
_TOP: Final[Mapping[str, SettingParser]] = {
    "base_url": read.parse_origin,
    "database": read.parse_secret,
    "host": read.parse_text,
    "port": read.build_number_parser(0, 65535),
    "allowed_hosts": read.parse_hosts,
    "trusted_proxies": read.parse_networks,
    "cookie_name": read.parse_cookie_name,
    "session_seconds": read.build_number_parser(60, 366 * 24 * 3600),
    "idle_seconds": read.build_number_parser(60, 366 * 24 * 3600),
    "token_days": read.build_number_parser(1, 3660),
    "body_limit": read.build_number_parser(64 * 1024, 256 * 1024 * 1024),
    "local_accounts": read.parse_flag,
    "profile": read.build_choice_parser("rfc7595", "rfc4395", "any"),
}


def _parse_mail_host(name: str, value: object) -> str:
    """Parse a host name or address."""
    bare = read.parse_text(name, value).removeprefix("[").removesuffix("]")
    if parse_host(bare).kind == "refused":
        raise ConfigError(f"{name} must be a host such as mail.example.org", code="config.bad-setting")
    return bare


_SMTP: Final[Mapping[str, SettingParser]] = {
    "host": _parse_mail_host,
    "sender": read.parse_email,
    "port": read.build_number_parser(1, 65535),
    "security": read.build_choice_parser("starttls", "tls", "none"),
    "username": read.parse_text,
    "password": read.parse_secret,
    "ca_file": read.parse_text,
    "list_id": read.parse_list_id,
}
_ISSUER: Final[Mapping[str, SettingParser]] = {
    "id": read.parse_slug,
    "issuer": read.parse_issuer,
    "client_id": read.parse_text,
    "client_secret": read.parse_secret,
    "title": read.parse_text,
    "scopes": read.parse_scopes,
    "network": read.build_choice_parser("trusted", "local"),
    "ca_file": read.parse_text,
    "create": read.parse_flag,
}


def load_settings(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, **given: Any
) -> Settings:
    """Return the settings from the file at `path` (or `ONYM_REGISTRY_CONFIG`), the variables and `given`.

    `given` are fields of `Settings`; None sets nothing. Raises ConfigError, which names the file's key, the
    variable or the argument, and never shows a secret.
    """
    environ = os.environ if environ is None else environ
    named = path or environ.get(PREFIX + "CONFIG")
    data = {} if not named else load_settings_file(Path(named))
    tables = {key: data.pop(key, None) for key in ("smtp", "oidc", "rates")}
    values: dict[str, Any] = parse_settings_table("", data, _TOP)
    values |= _parse_variables(environ, "", _TOP)
    values |= {
        "smtp": _parse_smtp(tables["smtp"], environ),
        "issuers": _parse_issuers(tables["oidc"], environ),
        "rates": _parse_rates(tables["rates"]),
    }
    known = {field.name for field in fields(Settings)}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{name!r} is not a setting", code="config.unknown-setting")
        if value is not None:
            values[name] = _TOP[name](name, value) if name in _TOP else value
    return _require_consistent(Settings(**values))


def _require_consistent(settings: Settings) -> Settings:
    idle, life = settings.idle_seconds, settings.session_seconds
    if idle > life:
        raise ConfigError(
            f"idle_seconds ({idle}) is longer than session_seconds ({life})",
            code="config.bad-setting",
            hint="A session always ends after session_seconds.",
        )
    if not settings.local_accounts and not settings.issuers:
        raise ConfigError(
            "no way to sign in: local_accounts is false and there is no [[oidc]]",
            code="config.bad-setting",
            hint="Add an OpenID provider, or set local_accounts = true.",
        )
    if len({issuer.id for issuer in settings.issuers}) < len(settings.issuers):
        raise ConfigError("two [[oidc]] tables have the same id", code="config.bad-setting")
    return settings


def _parse_variables(
    environ: Mapping[str, str], infix: str, table: Mapping[str, SettingParser]
) -> dict[str, Any]:
    found = {}
    for key, reader in table.items():
        name = f"{PREFIX}{infix}{key.upper()}"
        if environ.get(name):
            found[key] = reader(name, environ[name])
    return found


def _parse_smtp(data: object, environ: Mapping[str, str]) -> Smtp | None:
    values = parse_settings_table("smtp.", data or {}, _SMTP) | _parse_variables(environ, "SMTP_", _SMTP)
    if not values:
        return None
    require_settings("smtp.", values, "host", "sender")
    if values.get("security") == "none" and "password" in values and not read.is_loopback(values["host"]):
        raise ConfigError(
            "smtp.password would be sent without encryption",
            code="config.bad-setting",
            hint='Set smtp.security to "starttls" or "tls".',
        )
    return Smtp(**values)


def _parse_issuers(data: object, environ: Mapping[str, str]) -> tuple[Issuer, ...]:
    if data is None:
        return ()
    if not isinstance(data, list) or len(data) > _MOST_ISSUERS:
        raise ConfigError(f"[[oidc]] must be at most {_MOST_ISSUERS} tables", code="config.bad-setting")
    return tuple(_parse_issuer(f"oidc[{index}].", row, environ) for index, row in enumerate(data))


def _parse_issuer(where: str, data: object, environ: Mapping[str, str]) -> Issuer:
    values = parse_settings_table(where, data, _ISSUER)
    require_settings(where, values, "id", "issuer", "client_id")
    infix = f"OIDC_{cast('str', values['id']).upper().replace('-', '_')}_"
    secret = _parse_variables(environ, infix, {"client_secret": read.parse_secret})
    values.setdefault("title", values["id"])
    if values["issuer"].startswith("http:") and values.get("network") != "local":
        raise ConfigError(
            f"{where}issuer must be an https:// URL",
            code="config.bad-setting",
            hint='For tests, network = "local" allows http:// to loopback.',
        )
    return Issuer(**(values | secret))


def _parse_rates(data: object) -> RateLimits:
    tables = parse_settings_table(
        "rates.", data or {}, dict.fromkeys(("reads", "writes", "logins"), parse_rate_limit)
    )
    return RateLimits(**tables)
