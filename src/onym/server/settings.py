"""The service's settings: a TOML file, `ONYM_REGISTRY_*` variables and arguments (the last wins)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from onym.accounts.records import Issuer
from onym.common import settings as common
from onym.errors import ConfigError
from onym.net.hosts import is_loopback
from onym.registry.words import OWN_NAMES, parse_role
from onym.server.settings_parser import (
    CookieName,
    Email,
    HostField,
    HostName,
    IssuerTable,
    Line,
    ListenPort,
    ListID,
    NetworkBlock,
    OriginURL,
    Port,
    RateLimit,
    SecretLine,
    add_client_secrets,
    get_host_and_port,
    require_consistent_issuers,
)
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.registry.registries import Registry

__all__ = ["PREFIX", "Issuer", "RateLimit", "RateLimits", "Settings", "Smtp", "load_settings"]

#: prefix of the variables; `ONYM_REGISTRY_CONFIG` names the file
PREFIX: Final = "ONYM_REGISTRY_"
#: what a provider's groups may give, in both vocabularies
_ROLES: Final = tuple(name for role in OWN_NAMES for name in (str(role), OWN_NAMES[role]))
_YEAR: Final = 366 * 24 * 3600
_READS: Final = RateLimit(burst=600, per_minute=1200)
_WRITES: Final = RateLimit(burst=60, per_minute=60)
_LOGINS: Final = RateLimit(burst=10, per_minute=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Smtp:
    """The mail server. `sender` is the From address of notices; `security` "none" is for loopback."""

    host: HostName
    sender: Email
    port: Port = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: Line | None = None
    password: SecretLine | None = None
    ca_file: Line | None = None
    list_id: ListID | None = None


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

    base_url: OriginURL = "http://127.0.0.1:8000"
    database: SecretLine = field(default_factory=lambda: Secret("onym-registry.sqlite"))
    host: Line = "127.0.0.1"
    port: ListenPort = 8000
    allowed_hosts: tuple[HostField, ...] = ()
    trusted_proxies: tuple[NetworkBlock, ...] = ()
    cookie_name: CookieName = "onym"
    session_seconds: Annotated[int, Meta(ge=60, le=_YEAR)] = 14 * 24 * 3600
    idle_seconds: Annotated[int, Meta(ge=60, le=_YEAR)] = 24 * 3600
    token_days: Annotated[int, Meta(ge=1, le=3660)] = 365
    body_limit: Annotated[int, Meta(ge=64 * 1024, le=256 * 1024 * 1024)] = 4 * 1024 * 1024
    local_accounts: bool = True
    profile: Literal["rfc7595", "rfc4395", "any"] = "rfc7595"
    rates: RateLimits = RateLimits()
    smtp: Smtp | None = None
    oidc: tuple[IssuerTable, ...] = ()

    def __post_init__(self) -> None:
        if not self.allowed_hosts:
            object.__setattr__(self, "allowed_hosts", (get_host_and_port(self.base_url),))

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
        """The beginning of the names of the cookies that tie OpenID Connect sign-ins to their browser."""
        return self.session_cookie + "-flow"


def load_settings(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, **given: Any
) -> Settings:
    """Return the settings from the file at `path` (or `ONYM_REGISTRY_CONFIG`), the variables and `given`.

    `given` are fields of `Settings`; None sets nothing. Raises ConfigError, which names the file's key, the
    variable or the argument, and never shows a secret.
    """
    environ = os.environ if environ is None else environ
    settings = common.load_settings(Settings, path, prefix=PREFIX, environ=environ, arguments=given)
    settings = replace(settings, oidc=add_client_secrets(settings.oidc, f"{PREFIX}OIDC_", environ))
    _require_consistent(settings)
    return replace(settings, oidc=tuple(map(_normalize_roles, settings.oidc)))


def _normalize_roles(issuer: IssuerTable) -> IssuerTable:
    """Return the provider with roles as the log has them; a defined registry's names of them are accepted."""
    rows = (
        replace(row, roles=tuple(str(role) for text in row.roles if (role := parse_role(text)) is not None))
        for row in issuer.groups
    )
    return replace(issuer, groups=tuple(rows))


def _require_consistent(settings: Settings) -> None:
    smtp, idle, life = settings.smtp, settings.idle_seconds, settings.session_seconds
    if idle > life:
        raise ConfigError(
            f"idle_seconds ({idle}) is longer than session_seconds ({life})",
            code="config.bad-setting",
            hint="A session always ends after session_seconds.",
        )
    if not settings.local_accounts and not settings.oidc:
        raise ConfigError(
            "no way to sign in: local_accounts is false and there is no [[oidc]]",
            code="config.bad-setting",
            hint="Add an OpenID provider, or set local_accounts = true.",
        )
    require_consistent_issuers(settings.oidc, "oidc", _ROLES)
    unsafe = smtp is not None and smtp.security == "none" and smtp.password is not None
    if smtp is not None and unsafe and not is_loopback(smtp.host):
        raise ConfigError(
            "smtp.password would be sent without encryption",
            code="config.bad-setting",
            hint='Set smtp.security to "starttls" or "tls".',
        )
