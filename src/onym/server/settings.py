"""Settings of the registry service (a TOML file, `ONYM_REGISTRY_*` variables and arguments, the last wins).

The types of settings that it shares with the gateway come first. Their rules raise ValueError with what is
wanted; `onym.common.settings` names the setting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Meta

from onym.accounts.records import ALL_REALMS, GroupRoles, Issuer, validate_email
from onym.common import settings as common
from onym.common.settings import Parser, convert_value
from onym.common.text import is_printable_text
from onym.errors import ConfigError, RegistryError, URIError
from onym.net.hosts import is_loopback, parse_address, parse_host, parse_network
from onym.registry.records import DEFAULT_QUOTA, Quota
from onym.registry.words import OWN_NAMES, parse_role
from onym.uri.generic import URI
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

_MAX_TEXT_LENGTH: Final = 4096
_MOST_ISSUERS: Final = 16
_MOST_GROUPS: Final = 200
_MOST_ACR_VALUES: Final = 8
_ACR_VALUE: Final = re.compile(r"[!-~]{1,200}\Z")
_YEAR: Final = 366 * 24 * 3600
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}\Z")


def parse_line(value: object) -> str:
    """Parse a text of one line."""
    if not is_printable_text(value, _MAX_TEXT_LENGTH):
        raise ValueError("must be text of one line")
    return value


def parse_secret(value: object) -> Secret:
    """Parse a secret text."""
    return value if isinstance(value, Secret) else Secret(parse_line(value))


def parse_origin(value: object) -> str:
    """Parse an http or https URL without path, query, fragment and user."""
    uri = _parse_url(parse_line(value).rstrip("/"))
    if uri.path or uri.query is not None:
        raise ValueError("must be a URL without a path, such as https://registry.example.org")
    if uri.scheme == "http" and not is_loopback(_get_bare_host(uri)):
        raise ValueError("must be an https:// URL (http:// is allowed for loopback only)")
    return str(uri.normalize()).rstrip("/")


def parse_web_url(value: object) -> str:
    """Parse an https URL without query, fragment and user; http is allowed for loopback only."""
    uri = _parse_url(parse_line(value))
    if uri.query is not None:
        raise ValueError("must be a URL without a query")
    if uri.scheme == "http" and not is_loopback(_get_bare_host(uri)):
        raise ValueError("must be an https:// URL (http:// is allowed for loopback only)")
    return str(uri.normalize())


def _parse_issuer(value: object) -> str:
    """Parse an issuer (OpenID Connect Discovery 3). It is compared byte for byte, so it is not normalised."""
    plain = parse_line(value)
    if _parse_url(plain).query is not None:
        raise ValueError("must be a URL without query and fragment")
    return plain


def get_host_and_port(url: str) -> str:
    """Return host and port of an origin, as in a Host field."""
    return url.partition("://")[2]


def _parse_host_field(value: object) -> str:
    """Parse a Host field: a name or an address, with a port if it is not the default port."""
    field = parse_line(value).lower()
    host, _, port = field.rpartition(":") if not field.endswith("]") else (field, "", "")
    if parse_host(_strip_brackets(host if port.isdigit() and host else field)).kind == "refused":
        raise ValueError("must be a list of hosts, such as registry.example.org")
    return field


def _parse_host_name(value: object) -> str:
    bare = _strip_brackets(parse_line(value))
    if parse_host(bare).kind == "refused":
        raise ValueError("must be a host such as mail.example.org")
    return bare


def _parse_network(value: object) -> str:
    block = parse_line(value)
    if parse_network(block) is None:
        raise ValueError("must be a list of CIDR blocks, such as 10.0.0.0/8")
    return block


def _parse_address(value: object) -> str:
    address = parse_line(value)
    if parse_address(address) is None:
        raise ValueError("must be a list of IP addresses, such as 127.0.0.1")
    return address


def _parse_scopes(value: object) -> tuple[str, ...]:
    """Parse OAuth scopes (RFC 6749 3.3)."""
    scopes: tuple[str, ...] = convert_value(value, tuple[Line, ...])
    if not all(_SCOPE.match(scope) for scope in scopes):
        raise ValueError("must be a list of scopes, such as profile")
    return scopes


def _parse_sign_in_scopes(value: object) -> tuple[str, ...]:
    """Parse the scopes of a sign-in (OpenID Connect Core 3.1.2.1)."""
    scopes = _parse_scopes(value)
    if "openid" not in scopes:
        raise ValueError("must be a list of scopes that contains openid")
    return scopes


def _parse_acr_values(value: object) -> tuple[str, ...]:
    """Parse authentication context classes (OpenID Connect Core 3.1.2.1)."""
    values: tuple[str, ...] = convert_value(value, tuple[Line, ...])
    if len(values) > _MOST_ACR_VALUES or not all(_ACR_VALUE.match(text) for text in values):
        raise ValueError(f"must be a list of at most {_MOST_ACR_VALUES} names without blanks")
    return values


def _parse_email(value: object) -> str:
    try:
        return validate_email(parse_line(value))
    except RegistryError:
        raise ValueError("must be an e-mail address such as registry@example.org") from None


def _build_pattern_parser(pattern: str, wanted: str) -> Callable[[Any], str]:
    match = re.compile(pattern).fullmatch

    def parse(value: object) -> str:
        if not isinstance(value, str) or not match(value):
            raise ValueError(f"must be {wanted}")
        return value

    return parse


def _parse_url(plain: str) -> URI:
    try:
        uri = URI.parse(plain)
    except URIError:
        raise ValueError("must be an http:// or https:// URL") from None
    bad = uri.scheme not in {"http", "https"} or not uri.host or uri.userinfo or uri.fragment is not None
    if bad or parse_host(_get_bare_host(uri)).kind == "refused":
        raise ValueError("must be an http:// or https:// URL without user and fragment")
    return uri


def _get_bare_host(uri: URI) -> str:
    return _strip_brackets(uri.host or "")


def _strip_brackets(host: str) -> str:
    return host.removeprefix("[").removesuffix("]")


Line: TypeAlias = Annotated[str, Parser(parse_line)]
SecretLine: TypeAlias = Annotated[Secret, Parser(parse_secret)]
OriginURL: TypeAlias = Annotated[str, Parser(parse_origin)]
WebURL: TypeAlias = Annotated[str, Parser(parse_web_url)]
IssuerURL: TypeAlias = Annotated[str, Parser(_parse_issuer)]
HostField: TypeAlias = Annotated[str, Parser(_parse_host_field)]
HostName: TypeAlias = Annotated[str, Parser(_parse_host_name)]
NetworkBlock: TypeAlias = Annotated[str, Parser(_parse_network)]
IPAddress: TypeAlias = Annotated[str, Parser(_parse_address)]
Scopes: TypeAlias = Annotated[tuple[str, ...], Parser(_parse_scopes)]
SignInScopes: TypeAlias = Annotated[tuple[str, ...], Parser(_parse_sign_in_scopes)]
AcrValues: TypeAlias = Annotated[tuple[str, ...], Parser(_parse_acr_values)]
Email: TypeAlias = Annotated[str, Parser(_parse_email)]
#: a short name for URLs
Slug: TypeAlias = Annotated[
    str,
    Parser(
        _build_pattern_parser(
            "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", "at most 32 lower-case letters, digits and inner '-'"
        )
    ),
]
GroupName: TypeAlias = Annotated[
    str, Parser(_build_pattern_parser(r"[^\x00-\x1f\x7f]{1,256}", "text of at most 256 characters"))
]
#: a part of the application, or * for all of it
RealmName: TypeAlias = Annotated[
    str, Parser(_build_pattern_parser(r"\*|[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?", "the ID of a registry, or *"))
]
#: a cookie's name without prefix
CookieName: TypeAlias = Annotated[
    str, Parser(_build_pattern_parser("[A-Za-z0-9_-]{1,40}", "at most 40 letters, digits, '_' and '-'"))
]
#: a List-Id (RFC 2919) without angle brackets
ListID: TypeAlias = Annotated[
    str,
    Parser(
        _build_pattern_parser(
            "[A-Za-z0-9](?:[A-Za-z0-9.-]{0,200}[A-Za-z0-9])?", "a name such as registry.example.org"
        )
    ),
]
#: a port to connect to, and one to listen on (0 selects a free one)
Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
ListenPort: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A token bucket: `burst` requests at once, `per_minute` on average."""

    burst: Annotated[int, Meta(ge=1, le=1_000_000)]
    per_minute: Annotated[float, Meta(gt=0, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable(GroupRoles):
    """A table of a provider's group, with the rules for its values."""

    group: GroupName
    roles: tuple[Line, ...]
    realm: RealmName = ALL_REALMS


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerTable(Issuer):
    """A table of an OpenID provider, with the rules for its values."""

    id: Slug
    issuer: IssuerURL
    client_id: Line
    client_secret: SecretLine | None = None
    title: Line = ""
    scopes: SignInScopes = ("openid", "profile", "email")
    ca_file: Line | None = None
    acr_values: AcrValues = ()
    max_age: Annotated[int, Meta(ge=0, le=_YEAR)] | None = None
    prompt: Literal["login", "consent", "select_account"] | None = None
    resource: IssuerURL | None = None
    groups_claim: Annotated[str, Parser(_build_pattern_parser("[!-~]{1,200}", "the name of a claim"))] = (
        "groups"
    )
    groups: tuple[GroupTable, ...] = ()


#: a table with `id` and `client_secret`
_Table = TypeVar("_Table", bound=Any)


def add_client_secrets(
    tables: Sequence[_Table], prefix: str, environ: Mapping[str, str]
) -> tuple[_Table, ...]:
    """Return the tables, with the secrets of the variables `{prefix}{ID}_CLIENT_SECRET`."""
    return tuple(_add_client_secret(table, prefix, environ) for table in tables)


def _add_client_secret(table: _Table, prefix: str, environ: Mapping[str, str]) -> _Table:
    variable = f"{prefix}{table.id.upper().replace('-', '_')}_CLIENT_SECRET"
    if not environ.get(variable):
        return table
    try:
        return replace(table, client_secret=parse_secret(environ[variable]))
    except ValueError as error:
        raise ConfigError(f"the variable {variable}: {error}", code="config.bad-setting") from None


def require_consistent_issuers(
    issuers: Sequence[IssuerTable], name: str, roles: Collection[str] = ()
) -> None:
    """Raise ConfigError for too many providers, two of one ID, or one without TLS. `name` is the setting.

    `roles` are those that a group of a provider may give.
    """
    if len(issuers) > _MOST_ISSUERS:
        raise ConfigError(f"[[{name}]] must be at most {_MOST_ISSUERS} tables", code="config.bad-setting")
    if len({issuer.id for issuer in issuers}) < len(issuers):
        raise ConfigError(f"two [[{name}]] tables have the same id", code="config.bad-setting")
    for index, issuer in enumerate(issuers):
        if len(issuer.groups) > _MOST_GROUPS:
            raise ConfigError(
                f"{name}[{index}].groups must be at most {_MOST_GROUPS} tables", code="config.bad-setting"
            )
        for at, row in enumerate(issuer.groups):
            unknown = [role for role in row.roles if role not in roles]
            if unknown or not row.roles:
                raise ConfigError(
                    f"{name}[{index}].groups[{at}].roles must name roles of this service",
                    code="config.bad-setting",
                    hint=f"Choose from {', '.join(roles)}." if roles else "This service has no roles.",
                )
        if issuer.issuer.startswith("http:") and issuer.network != "local":
            raise ConfigError(
                f"{name}[{index}].issuer must be an https:// URL",
                code="config.bad-setting",
                hint='For tests, network = "local" allows http:// to loopback.',
            )


#: prefix of the variables; `ONYM_REGISTRY_CONFIG` names the file
PREFIX: Final = "ONYM_REGISTRY_"
#: what a provider's groups may give, in both vocabularies
_ROLES: Final = tuple(name for role in OWN_NAMES for name in (str(role), OWN_NAMES[role]))
_MOST_WEBHOOKS: Final = 16
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
