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
from onym.registry.records import DEFAULT_QUOTA, Quota
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
    Slug,
    WebURL,
    add_client_secrets,
    get_host_and_port,
    require_consistent_issuers,
)
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.registry.registries import Registry

__all__ = [
    "PREFIX",
    "Issuer",
    "Quotas",
    "RateLimit",
    "RateLimits",
    "Settings",
    "Smtp",
    "Webhook",
    "load_settings",
]

#: prefix of the variables; `ONYM_REGISTRY_CONFIG` names the file
PREFIX: Final = "ONYM_REGISTRY_"
#: what a provider's groups may give, in both vocabularies
_ROLES: Final = tuple(name for role in OWN_NAMES for name in (str(role), OWN_NAMES[role]))
_MOST_WEBHOOKS: Final = 16
_YEAR: Final = 366 * 24 * 3600
_READS: Final = RateLimit(burst=600, per_minute=1200)
_WRITES: Final = RateLimit(burst=60, per_minute=60)
_LOGINS: Final = RateLimit(burst=10, per_minute=5)
_UPLOADS: Final = RateLimit(burst=32 * 1024, per_minute=256)


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
class Webhook:
    """A receiver of changes: an HTTPS URL, and the file of the secret that signs the deliveries.

    `registries` limits it to some registries. Only public addresses are reached: `allow_networks` adds CIDR
    blocks, and `network` "local" this computer, by plain HTTP too. `ca_file` is trusted beside the system's
    authorities. The URL is not in the repr, because its path may be a secret.
    """

    name: Slug
    url: WebURL = field(repr=False)
    secret_file: Line
    registries: tuple[Slug, ...] = ()
    network: Literal["trusted", "local"] = "trusted"
    allow_networks: tuple[NetworkBlock, ...] = ()
    ca_file: Line | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """The rate limits of one visitor.

    `logins` limits attempts by address and by login, `uploads` the KiB that one address sends in requests.
    """

    reads: RateLimit = _READS
    writes: RateLimit = _WRITES
    logins: RateLimit = _LOGINS
    uploads: RateLimit = _UPLOADS


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas(Quota):
    """What one registrant may store: requests that are open, and bytes in the log in one day (UTC)."""

    open_requests: Annotated[int, Meta(ge=1, le=1_000_000)] = DEFAULT_QUOTA.open_requests
    daily_bytes: Annotated[int, Meta(ge=1024, le=1 << 40)] = DEFAULT_QUOTA.daily_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one service. Its repr shows no secrets.

    `base_url` is the public origin, without a path. `database` is a file or URL. `allowed_hosts` are the
    accepted Host values (default: the host of `base_url`). `trusted_proxies` are CIDR blocks whose
    `X-Forwarded-For` is used. `profile` is the procedure of new requests for schemes; "any" lets
    registrants choose, for tests. `connections_per_address` limits the connections of one client, except
    trusted proxies. Times are in seconds, sizes in bytes.
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
    connections_per_address: Annotated[int, Meta(ge=1, le=100_000)] = 256
    rates: RateLimits = RateLimits()
    quotas: Quotas = Quotas()
    smtp: Smtp | None = None
    oidc: tuple[IssuerTable, ...] = ()
    webhooks: tuple[Webhook, ...] = ()

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
    _require_consistent_webhooks(settings.webhooks)
    unsafe = smtp is not None and smtp.security == "none" and smtp.password is not None
    if smtp is not None and unsafe and not is_loopback(smtp.host):
        raise ConfigError(
            "smtp.password would be sent without encryption",
            code="config.bad-setting",
            hint='Set smtp.security to "starttls" or "tls".',
        )


def require_registries_of_webhooks(webhooks: tuple[Webhook, ...]) -> None:
    """Raise ConfigError if a webhook names a registry that is not in force."""
    from onym.registry.registries import REGISTRIES  # late: other services have settings without registries

    for index, webhook in enumerate(webhooks):
        unknown = [name for name in webhook.registries if name not in REGISTRIES]
        if unknown:
            raise ConfigError(
                f"webhooks[{index}].registries: there is no registry {unknown[0][:64]!r}",
                code="config.bad-setting",
                hint=f"Use {', '.join(REGISTRIES)}.",
            )


def _require_consistent_webhooks(webhooks: tuple[Webhook, ...]) -> None:
    if len(webhooks) > _MOST_WEBHOOKS:
        raise ConfigError(f"[[webhooks]] must be at most {_MOST_WEBHOOKS} tables", code="config.bad-setting")
    if len({webhook.name for webhook in webhooks}) < len(webhooks):
        raise ConfigError("two [[webhooks]] tables have the same name", code="config.bad-setting")
    for index, webhook in enumerate(webhooks):
        if webhook.url.startswith("http:") and webhook.network != "local":
            raise ConfigError(
                f"webhooks[{index}].url must be an https:// URL",
                code="config.bad-setting",
                hint='For tests, network = "local" allows http:// to loopback.',
            )
