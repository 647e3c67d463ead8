"""The gateway's settings: a TOML file, `ONYM_GATEWAY_*` variables and arguments (the last wins)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from onym.ai.replay import MAX_REPLAY_IDS
from onym.common.settings import load_settings
from onym.errors import ConfigError
from onym.net.hosts import is_loopback
from onym.server import settings as setting_types
from onym.uri.generic import URI

#: prefix of the variables; `ONYM_GATEWAY_CONFIG` names the file
PREFIX: Final = "ONYM_GATEWAY_"
_MOST_FILES: Final = 16
_MEGABYTE: Final = 1024 * 1024
_READS: Final = setting_types.RateLimit(burst=300, per_minute=600)
_WRITES: Final = setting_types.RateLimit(burst=60, per_minute=120)
_LOGINS: Final = setting_types.RateLimit(burst=20, per_minute=20)
_DAY: Final = 24 * 3600
#: wildcard addresses, which no client can open
_EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104

_BodyLimit: TypeAlias = Annotated[int, Meta(ge=1024, le=256 * _MEGABYTE)]
_Exchanges: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """A signed registry file for names of one label, and the file of the JWK Set that it is signed with.

    `state` is a file with the newest issue time, so that older files are rejected.
    """

    file: setting_types.Line
    keys: setting_types.Line
    state: setting_types.Line | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The anchor of `ai:/path` URIs below a path: an https origin, and the thumbprints of its keys."""

    path: setting_types.Line
    anchor: setting_types.OriginURL
    keys: tuple[setting_types.Line, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationServerTable:
    """An authorization server of authorities, at which the gateway is registered.

    No token is sent to a server that is not in such a table, whatever a discovery document says.
    `assertions_of` and `tokens_of` are IDs of `providers`: the server redeems identity assertions of the
    former (ID-JAG), and exchanges access tokens of the latter (RFC 8693). With `connect`, people may sign in
    at the server themselves; with `service`, the gateway reads in its own name. `scopes` and `authorities`
    limit what the gateway asks for, and for whom. `origins` are other origins of the server's URLs.
    `impersonation` accepts exchanged tokens that do not name the gateway as the actor.
    """

    id: setting_types.Slug
    issuer: setting_types.IssuerURL
    client_id: setting_types.Line
    client_secret: setting_types.SecretLine | None = None
    assertions_of: tuple[setting_types.Line, ...] = ()
    tokens_of: tuple[setting_types.Line, ...] = ()
    connect: bool = True
    service: bool = False
    scopes: setting_types.Scopes = ()
    authorities: tuple[setting_types.Line, ...] = ()
    origins: tuple[setting_types.OriginURL, ...] = ()
    impersonation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTable:
    """Access tokens of programs that act for the people of one provider.

    `provider` is the ID of a table of `providers`, which issues the tokens. Their audience is the gateway's
    `base_url`, and each must have all of `scopes`. `dpop` tells whether programs may or must use tokens that
    are bound to a DPoP key. With `mtls`, they must be bound to the client certificate of the connection.
    """

    provider: setting_types.Line
    scopes: setting_types.Scopes = ()
    dpop: Literal["none", "supported", "required"] = "supported"
    mtls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRates:
    """The rate limits of one client address (IPv6: the /64 network). `logins` limits sign-ins."""

    reads: setting_types.RateLimit = _READS
    writes: setting_types.RateLimit = _WRITES
    logins: setting_types.RateLimit = _LOGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """All settings of one gateway. Its repr shows no secrets.

    `base_url` is the public origin, without a path. The default is the listening address, with https if there
    is a certificate; ConfigError `config.missing-setting` is raised if that is reachable from other computers
    without a certificate. `allowed_hosts` are the accepted Host values (default: the host of `base_url`).
    `workers` processes serve the port together. `keys` is the folder of the key store; without it, a gateway
    on loopback signs with a temporary key. `fleet` is the URL of the database in which the machines of a
    fleet announce their keys. `audit` is the file of the audit log, `audit_key` the key that hashes its paths
    (default: a new key at every start). `pins` and `replays` are files; without them the data is lost at the
    end. `replays` may be the URL of a shared store, which the gateways of a fleet use together.
    `replay_limit` is the number of receipts that are remembered for 180 seconds.

    `rate_store` is the URL of the Valkey server in which all processes count requests (`valkeys://...`).
    Without it, or while it is away, each process allows its share of `rates`: 1/(`workers` x `machines`).

    `trusted_proxies` are CIDR blocks whose `X-Forwarded-For` is used for rate limits only. `network` is
    `public` (authorities on public addresses, port 443) or `local` (loopback too, for tests). `ports` are
    more allowed ports, `networks` CIDR blocks that are allowed although they are not public. `ca_files` are
    trusted besides the system's. `dns` allows SRV and TXT queries to `nameservers` (addresses, with
    `nameserver_port`; default: the system's). Times are in seconds, sizes in bytes.

    `providers` are the OpenID providers of people who sign in; without one the gateway has no sign-in. A
    session ends after `session_idle_seconds` without a request, and after `session_seconds`. `store` is a
    file, or the URL of a database, that all processes of the gateway share: it has the sessions. `secrets` is
    the folder of the secrets that seal them. Without `store`, sessions end when the gateway stops.
    `authorization_servers` are those that issue the tokens with which the gateway acts for people.

    `programs` are the access tokens with which programs act for these people; without one the gateway takes
    no tokens. `client_ca` is a file of the authorities that issue the client certificates of programs.
    `certificate_proxies` are CIDR blocks of proxies that verify them and send them in the field Client-Cert.

    `approvers` are the people who may approve the calls of others: a provider's ID, a space, and the person's
    verified e-mail address or subject there. `pseudonym_key` is the secret of the pseudonyms under which
    authorities know them (default: a new one at every start).
    """

    base_url: setting_types.OriginURL = ""
    host: setting_types.Line = "127.0.0.1"
    port: setting_types.ListenPort = 8480
    certificate: setting_types.Line | None = None
    key: setting_types.Line | None = None
    behind_proxy: bool = False
    workers: Annotated[int, Meta(ge=1, le=128)] = 1
    allowed_hosts: tuple[setting_types.HostField, ...] = ()
    trusted_proxies: tuple[setting_types.NetworkBlock, ...] = ()
    keys: setting_types.Line | None = None
    fleet: setting_types.SecretLine | None = None
    audit: setting_types.Line | None = None
    audit_key: setting_types.SecretLine | None = None
    pins: setting_types.Line | None = None
    replays: setting_types.SecretLine | None = None
    replay_limit: Annotated[int, Meta(ge=1000, le=100_000_000)] = MAX_REPLAY_IDS
    network: Literal["public", "local"] = "public"
    dns: bool = True
    nameservers: tuple[setting_types.IPAddress, ...] = ()
    nameserver_port: setting_types.Port = 53
    ports: tuple[setting_types.Port, ...] = ()
    networks: tuple[setting_types.NetworkBlock, ...] = ()
    ca_files: tuple[setting_types.Line, ...] = ()
    body_limit: _BodyLimit = _MEGABYTE
    answer_limit: _BodyLimit = 8 * _MEGABYTE
    timeout: Annotated[int, Meta(ge=1, le=600)] = 30
    concurrency: _Exchanges = 200
    client_concurrency: _Exchanges = 20
    authority_concurrency: _Exchanges = 50
    rates: GatewayRates = GatewayRates()
    rate_store: setting_types.SecretLine | None = None
    machines: Annotated[int, Meta(ge=1, le=1000)] = 1
    namespaces: tuple[Namespaces, ...] = ()
    contexts: tuple[Context, ...] = ()
    providers: tuple[setting_types.IssuerTable, ...] = ()
    authorization_servers: tuple[AuthorizationServerTable, ...] = ()
    programs: tuple[ProgramTable, ...] = ()
    client_ca: setting_types.Line | None = None
    certificate_proxies: tuple[setting_types.NetworkBlock, ...] = ()
    store: setting_types.SecretLine | None = None
    secrets: setting_types.Line | None = None
    session_idle_seconds: Annotated[int, Meta(ge=60, le=_DAY)] = 30 * 60
    session_seconds: Annotated[int, Meta(ge=60, le=7 * _DAY)] = 12 * 3600
    approvers: tuple[setting_types.Line, ...] = ()
    pseudonym_key: setting_types.SecretLine | None = None
    prefix: str = field(init=False, default="/gateway")

    def __post_init__(self) -> None:
        if not self.base_url:
            object.__setattr__(self, "base_url", _build_base_url(self))
        if not self.allowed_hosts:
            object.__setattr__(self, "allowed_hosts", (setting_types.get_host_and_port(self.base_url),))

    @property
    def is_https(self) -> bool:
        """Is `base_url` an https URL?"""
        return self.base_url.startswith("https:")

    @property
    def name(self) -> str:
        """The gateway's name in Via and Proxy-Status: its host with its port."""
        return setting_types.get_host_and_port(self.base_url)

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

    @property
    def session_cookie(self) -> str:
        """The name of the cookie of a signed-in browser."""
        return "__Host-onym-session" if self.is_https else "onym-session"

    @property
    def flow_cookie(self) -> str:
        """The beginning of the names of the cookies that tie sign-ins to their browser."""
        return "__Host-onym-sign-in" if self.is_https else "onym-sign-in"


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
    providers = setting_types.add_client_secrets(settings.providers, f"{PREFIX}PROVIDERS_", environ)
    servers = setting_types.add_client_secrets(
        settings.authorization_servers, f"{PREFIX}AUTHORIZATION_SERVERS_", environ
    )
    settings = replace(settings, providers=providers, authorization_servers=servers)
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
    if settings.fleet is not None and settings.keys is None:
        raise ConfigError(
            "keys is missing: every machine of a fleet has a folder of its own keys",
            code="config.missing-setting",
            hint="Create a key with onym ai keys new DIR, and set keys = DIR.",
        )
    if settings.key is not None and settings.certificate is None:
        raise ConfigError("key is set without certificate", code="config.bad-setting")
    for name in ("namespaces", "contexts"):
        if len(getattr(settings, name)) > _MOST_FILES:
            raise ConfigError(f"[[{name}]] must be at most {_MOST_FILES} tables", code="config.bad-setting")
    setting_types.require_consistent_issuers(settings.providers, "providers")
    if any(not issuer.create for issuer in settings.providers):
        raise ConfigError(
            "providers: a gateway has no accounts, so create has no meaning", code="config.bad-setting"
        )
    _require_consistent_servers(settings)
    _require_consistent_programs(settings)
    if settings.session_idle_seconds > settings.session_seconds:
        raise ConfigError(
            f"session_idle_seconds ({settings.session_idle_seconds}) is longer than session_seconds "
            f"({settings.session_seconds})",
            code="config.bad-setting",
            hint="A session always ends after session_seconds.",
        )
    if settings.workers > 1:
        _require_shared(settings)
    if settings.providers and settings.store is not None and settings.secrets is None:
        raise ConfigError(
            "secrets is missing: sessions in the store are sealed with secrets that outlive the process",
            code="config.missing-setting",
            hint="Create the folder with onym ai gateway secrets rotate DIR, and set secrets = DIR.",
        )


#: what processes must not keep in their own memory, and what to set instead
_SHARED: Final[Mapping[str, str]] = {
    "keys": "Create a key with onym ai keys new DIR, and set keys = DIR.",
    "replays": "Set replays to a file, or to the URL of a shared store.",
    "audit_key": "Set audit_key to a random secret: the paths in the log are hashed with it.",
    "store": "Set store to a file, or to the URL of a database.",
    "pseudonym_key": "Set pseudonym_key to a random secret.",
}


def _require_shared(settings: GatewaySettings) -> None:
    """Raise ConfigError if several processes could not serve these settings together."""
    needed = ["keys", "replays"]
    needed += ["audit_key"] if settings.audit else []
    needed += ["store", "pseudonym_key"] if settings.providers else []
    missing = next((name for name in needed if getattr(settings, name) is None), None)
    if missing is not None:
        raise ConfigError(
            f"{missing} is missing: {settings.workers} workers cannot share what is in the memory of one",
            code="config.not-shared",
            hint=_SHARED[missing],
        )


def _require_consistent_servers(settings: GatewaySettings) -> None:
    """Raise ConfigError for authorization servers without people, twice, or of unknown providers."""
    servers, known = settings.authorization_servers, {provider.id for provider in settings.providers}
    if servers and not known:
        raise ConfigError(
            "authorization_servers: nobody can sign in, because providers is missing",
            code="config.missing-setting",
            hint="Add [[providers]] with the OpenID provider of your people.",
        )
    if len(servers) > _MOST_FILES:
        raise ConfigError(
            f"[[authorization_servers]] must be at most {_MOST_FILES} tables", code="config.bad-setting"
        )
    for name in ("id", "issuer"):
        if len({getattr(server, name) for server in servers}) < len(servers):
            raise ConfigError(
                f"two [[authorization_servers]] tables have the same {name}", code="config.bad-setting"
            )
    for index, server in enumerate(servers):
        unknown = sorted({*server.assertions_of, *server.tokens_of} - known)
        if unknown:
            raise ConfigError(
                f"authorization_servers[{index}] names the provider {unknown[0]!r}, which does not exist",
                code="config.bad-setting",
                hint="Use the id of a table of [[providers]].",
            )
        if server.issuer.startswith("http:") and settings.network != "local":
            raise ConfigError(
                f"authorization_servers[{index}].issuer must be an https:// URL", code="config.bad-setting"
            )


def _require_consistent_programs(settings: GatewaySettings) -> None:
    """Raise ConfigError for tokens of an unknown or repeated provider, and for unusable certificates."""
    known = {provider.id for provider in settings.providers}
    named = [table.provider for table in settings.programs]
    for index, name in enumerate(named):
        if name not in known:
            raise ConfigError(
                f"programs[{index}] names the provider {name!r}, which does not exist",
                code="config.bad-setting",
                hint="Use the id of a table of [[providers]]: programs act for people who can sign in.",
            )
    if len(set(named)) < len(named):
        raise ConfigError("two [[programs]] tables have the same provider", code="config.bad-setting")
    if settings.client_ca is not None and settings.certificate is None:
        raise ConfigError(
            "client_ca is set without certificate: client certificates need TLS",
            code="config.bad-setting",
            hint="Behind a TLS proxy, set certificate_proxies.",
        )
    for index, table in enumerate(settings.programs):
        if table.mtls and settings.client_ca is None and not settings.certificate_proxies:
            raise ConfigError(
                f"programs[{index}].mtls is set, and the gateway takes no client certificates",
                code="config.missing-setting",
                hint="Set client_ca, or certificate_proxies behind a TLS proxy.",
            )
