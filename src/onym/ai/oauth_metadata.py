"""What is known about authorization servers and protected resources: registrations and metadata documents.

`Registration` is what the caller knows about a server: Onym sends a secret, a token or a code only to a
server with one, and only to URLs of that server. The documents are those of RFC 8414 (or OpenID Connect
Discovery 1.0) and RFC 9728, fetched through the guarded transport and cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from onym.ai.discovery.well_known import fetch_url
from onym.ai.settings import LONGEST_LIFE, NEGATIVE_LIFE, CacheEntry, ResolverSettings, get_cache_lifetime
from onym.common.text import parse_json_object
from onym.errors import AuthorizationError, DiscoveryError, URIError, UsageError
from onym.net import oauth
from onym.net.limits import ClientIdentity
from onym.net.messages import Flow, Origin, split_url
from onym.sign.jws import sign_client_assertion
from onym.sign.keys import Signer
from onym.uri.generic import URI
from onym.uri.secret import Secret, SecretBytes

#: bytes of a document and of a response of an authorization server
MAX_DOCUMENT: Final = 64 * 1024
_LONGEST_URL: Final = 2048
_MAX_ITEMS: Final = 256
_CLIENT_ID: Final = re.compile(r"[\x20-\x7e]{1,255}\Z")

AuthMethod: TypeAlias = Literal[
    "none",
    "client_secret_basic",
    "client_secret_post",
    "private_key_jwt",
    "tls_client_auth",
    "self_signed_tls_client_auth",
]


def parse_url(url: str) -> tuple[Origin, str]:
    """Return origin and target of an http or https URL. Raises UsageError for any other URL."""
    with suppress(URIError):
        uri = URI.parse(url).normalize()
        is_plain = uri.userinfo is None and uri.fragment is None and len(url) <= _LONGEST_URL
        if uri.scheme in {"http", "https"} and uri.host and is_plain:
            origin, target = split_url(uri)
            if 0 < origin.port < 65536:
                return origin, target
    raise UsageError(
        "not an http or https URL with a host and without userinfo and fragment", code="usage.bad-url"
    )


def is_web_url(url: object) -> bool:
    """Report whether this is the text of an http or https URL that `parse_url` takes."""
    try:
        parse_url(url if isinstance(url, str) else "")
    except UsageError:
        return False
    return True


def make_metadata_url(identifier: str, name: str) -> str:
    """Return the metadata URL of an issuer or resource (RFC 8414 3.1, RFC 9728 3.1)."""
    scheme, _, rest = identifier.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}/.well-known/{name}" + (f"{slash}{path}" if path else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How a client is registered at one authorization server.

    `issuer` is the server's identifier, compared character by character. `secret` authenticates the client
    with HTTP Basic (`method` "client_secret_basic") or in the form ("client_secret_post"); `key` with a
    signed assertion ("private_key_jwt", RFC 7523), and may be a function that returns the present key;
    `identity` with a TLS certificate ("tls_client_auth", "self_signed_tls_client_auth", RFC 8705). Without
    any of them the client is public ("none"). `method` is chosen by these values unless you set it.

    The server's URLs must be at the issuer's origin or at one of `origins`. `impersonation` accepts exchanged
    tokens that do not name this client as the actor (RFC 8693 1.1). Raises UsageError for a value that does
    not fit the method, and for an issuer that is not a URL without query and fragment.
    """

    issuer: str
    client_id: str
    secret: Secret | None = None
    key: Signer | Callable[[], Signer] | None = None
    identity: ClientIdentity | None = None
    method: AuthMethod | None = None
    origins: tuple[str, ...] = ()
    impersonation: bool = False

    def __post_init__(self) -> None:
        for url in (self.issuer, *self.origins):
            parse_url(url)
            if "?" in url:
                raise UsageError(
                    f"the issuer {url!r} has a query", code="usage.bad-url", hint="See RFC 8414 2."
                )
        if not _CLIENT_ID.match(self.client_id):
            raise UsageError(
                "the client ID is not 1 to 255 visible ASCII characters", code="usage.bad-argument"
            )
        method = self.method or self._choose_method()
        needed = {"client": self.secret, "private": self.key, "tls": self.identity, "self": self.identity}
        if needed.get(method.partition("_")[0], True) is None:
            raise UsageError(
                f"the method {method} needs a secret, key or identity", code="usage.bad-argument"
            )
        object.__setattr__(self, "method", method)

    def _choose_method(self) -> AuthMethod:
        if self.key is not None:
            return "private_key_jwt"
        if self.secret is not None:
            return "client_secret_basic"
        return "none" if self.identity is None else "tls_client_auth"

    def list_origins(self) -> list[Origin]:
        """Return the origins at which the server's URLs may be."""
        return [parse_url(url)[0] for url in (self.issuer, *self.origins)]


def authenticate_client(
    registration: Registration, form: Mapping[str, str | Secret], at: float
) -> tuple[list[tuple[str, str | Secret]], SecretBytes]:
    """Return the headers and the body of a request that authenticates the client. `at` is in seconds."""
    row = registration
    headers: list[tuple[str, str | Secret]] = [
        ("Accept", "application/json"),
        ("Accept-Encoding", "identity"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ]
    if row.method == "client_secret_basic" and row.secret is not None:
        headers.append(("Authorization", oauth.encode_basic_auth(row.client_id, row.secret)))
        return headers, SecretBytes(oauth.encode_form(form))
    form = {**form, "client_id": row.client_id}
    if row.method == "client_secret_post" and row.secret is not None:
        form["client_secret"] = row.secret
    elif row.method == "private_key_jwt" and row.key is not None:
        key = row.key() if callable(row.key) else row.key
        form["client_assertion_type"] = oauth.ASSERTION_TYPE
        form["client_assertion"] = sign_client_assertion(
            key, client_id=row.client_id, audience=row.issuer, at=at
        )
    return headers, SecretBytes(oauth.encode_form(form))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMetadata:
    """The members of an authorization server's metadata that Onym uses (RFC 8414 2).

    Every URL is at an origin that the registration allows. `aliases` are the URLs for clients with a TLS
    certificate (RFC 8705 5), by member.
    """

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    pushed_authorization_request_endpoint: str | None = None
    device_authorization_endpoint: str | None = None
    backchannel_authentication_endpoint: str | None = None
    revocation_endpoint: str | None = None
    jwks_uri: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    names_issuer: bool = False
    requires_pushed_requests: bool = False
    scopes: frozenset[str] = frozenset()
    challenge_methods: frozenset[str] = frozenset()

    def get_url(self, member: str, *, mtls: bool) -> str | None:
        """Return the URL of this member; with `mtls` its alias, if there is one."""
        found: str | None = self.aliases.get(member) if mtls else None
        return found or getattr(self, member)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMetadata:
    """The members of a protected resource's metadata that Onym uses (RFC 9728 2)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    dpop_required: bool = False


_RESOURCE_CLAUSE: Final = "RFC 9728 3.3"
_SERVER_CLAUSE: Final = "RFC 8414 3.3"


def fetch_resource_metadata(
    resource: str, settings: ResolverSettings, *, url: str | None = None
) -> Flow[ResourceMetadata]:
    """Fetch the metadata of a protected resource (RFC 9728), which must name exactly this resource.

    `url` is where a challenge says that the metadata is, if that is not the derived URL; it must be at the
    resource's origin. Raises AuthorizationError `aiip.authorization-unavailable`.
    """
    origin, _ = parse_url(resource)
    location = url or make_metadata_url(resource, "oauth-protected-resource")
    if parse_url(location)[0] != origin:
        raise make_unavailable_error(
            f"{resource} names metadata at another origin", clause=_RESOURCE_CLAUSE, status=403
        )
    members = yield from _fetch_document(location, settings, _RESOURCE_CLAUSE)
    if members is None or members.get("resource") != resource:
        why = "has no metadata" if members is None else "has metadata of another resource"
        raise make_unavailable_error(f"{resource} {why}", clause=_RESOURCE_CLAUSE, status=403)
    return ResourceMetadata(
        resource=resource,
        authorization_servers=tuple(_get_texts(members, "authorization_servers")),
        scopes=tuple(scope for scope in _get_texts(members, "scopes_supported") if oauth.SCOPE.match(scope)),
        dpop_required=members.get("dpop_bound_access_tokens_required") is True,
    )


def fetch_server_metadata(registration: Registration, settings: ResolverSettings) -> Flow[ServerMetadata]:
    """Fetch the metadata of a known authorization server (RFC 8414, else OpenID Connect Discovery 1.0).

    The document must name exactly this issuer, and only URLs at its origin or at `registration.origins`.
    Raises AuthorizationError `aiip.authorization-unavailable`.
    """
    issuer = registration.issuer
    urls = [
        make_metadata_url(issuer, "oauth-authorization-server"),
        issuer.rstrip("/") + "/.well-known/openid-configuration",
    ]
    for url in urls:
        members = yield from _fetch_document(url, settings, _SERVER_CLAUSE)
        if members is not None:
            return _parse_server_metadata(members, registration)
    raise make_unavailable_error(f"the authorization server {issuer} has no metadata", clause=_SERVER_CLAUSE)


def _fetch_document(url: str, settings: ResolverSettings, clause: str) -> Flow[dict[str, Any] | None]:
    """Return a JSON document, from the cache if possible; None if it does not exist."""
    key, now = f"oauth {url}", settings.clock()
    kept = settings.cache.get(key)
    if kept is not None and 0 < kept.expires - now <= LONGEST_LIFE:
        return kept.value  # type: ignore[no-any-return]
    try:
        reply = yield from fetch_url(url, settings, accept="application/json", limit=MAX_DOCUMENT)
    except DiscoveryError as error:
        raise make_unreachable_error(error, clause) from error
    if reply.status in {404, 410}:
        settings.cache.put(key, CacheEntry(value=None, expires=now + NEGATIVE_LIFE))
        return None
    if reply.status != 200:
        again = reply.status == 429 or reply.status >= 500
        raise make_unavailable_error(
            f"{url} answered with status {reply.status}", clause=clause, status=503, retryable=again
        )
    try:
        members = parse_json_object(reply.body)
    except ValueError as error:
        raise make_unavailable_error(f"the document at {url} {error}", clause=clause) from None
    seconds = get_cache_lifetime(reply.headers)
    if seconds is not None:
        settings.cache.put(key, CacheEntry(value=members, expires=now + seconds))
    return members


_URLS: Final = (
    "token_endpoint",
    "authorization_endpoint",
    "pushed_authorization_request_endpoint",
    "device_authorization_endpoint",
    "backchannel_authentication_endpoint",
    "revocation_endpoint",
    "jwks_uri",
)


def _parse_server_metadata(members: Mapping[str, Any], registration: Registration) -> ServerMetadata:
    issuer = registration.issuer
    if members.get("issuer") != issuer:
        raise make_unavailable_error(
            f"the metadata of {issuer} names another issuer",
            clause=_SERVER_CLAUSE,
            status=403,
            hint="Nothing was sent to it. Check the issuer, character by character.",
        )
    allowed = registration.list_origins()
    urls = {
        name: _require_own_url(members[name], name, registration, allowed)
        for name in _URLS
        if name in members
    }
    if "token_endpoint" not in urls:
        raise make_unavailable_error(f"the metadata of {issuer} has no token_endpoint", clause="RFC 8414 2")
    aliases = members.get("mtls_endpoint_aliases")
    hosts = [replace(origin, port=0) for origin in allowed]
    return ServerMetadata(
        issuer=issuer,
        **urls,
        aliases={
            # servers ask for certificates on another port, or at a host that the registration must list
            name: _require_own_url(
                aliases[name], f"mtls_endpoint_aliases.{name}", registration, allowed, hosts
            )
            for name in _URLS
            if isinstance(aliases, dict) and name in aliases
        },
        names_issuer=members.get("authorization_response_iss_parameter_supported") is True,
        requires_pushed_requests=members.get("require_pushed_authorization_requests") is True,
        scopes=frozenset(_get_texts(members, "scopes_supported")),
        challenge_methods=frozenset(_get_texts(members, "code_challenge_methods_supported")),
    )


def _require_own_url(
    url: object,
    member: str,
    registration: Registration,
    allowed: Collection[Origin],
    hosts: Collection[Origin] = (),
) -> str:
    """Return the URL of a member. Raises unless it is at an allowed origin, or at any port of `hosts`."""
    try:
        text = url if isinstance(url, str) else ""
        origin, _ = parse_url(text)
    except UsageError:
        raise make_unavailable_error(
            f"`{member}` in the metadata of {registration.issuer} is not a URL", clause="RFC 8414 2"
        ) from None
    if origin not in allowed and replace(origin, port=0) not in hosts:
        raise make_unavailable_error(
            f"`{member}` in the metadata of {registration.issuer} is at {origin}, another origin",
            clause="RFC 8414 2",
            status=403,
            hint=f"Nothing was sent. If the server really uses it, allow it: origins=({str(origin)!r},).",
        )
    return text


def _get_texts(members: Mapping[str, Any], name: str) -> list[str]:
    values = members.get(name)
    if not isinstance(values, list):
        return []
    return [value for value in values[:_MAX_ITEMS] if isinstance(value, str) and len(value) <= _LONGEST_URL]


def choose_registration(
    issuers: Collection[str], registrations: Collection[Registration], *, target: str
) -> Registration:
    """Return the registration at the first of `issuers` that is known.

    `issuers` are those that a resource names, which is not enough to send anything there. Raises
    AuthorizationError `aiip.authorization-unavailable` (status 403) if none is known.
    """
    known = {registration.issuer: registration for registration in reversed(list(registrations))}
    found = next((known[issuer] for issuer in issuers if issuer in known), None)
    if found is not None:
        return found
    named = ", ".join(list(issuers)[:3]) or "none"
    raise make_unavailable_error(
        f"{target} accepts tokens of the authorization server {named}, where this client is not registered",
        clause="AIIP/HTTPS v1 3.10",
        status=403,
        hint="Nothing was sent. If you trust it, add a Registration with its issuer and your client ID.",
    )


def make_unreachable_error(error: DiscoveryError, clause: str) -> AuthorizationError:
    """Return the error for a document of an authorization server that cannot be fetched now."""
    retryable = error.retryable or error.code == "aiip.upstream-timeout"
    return make_unavailable_error(error.message, clause=clause, status=503, retryable=retryable)


def make_unavailable_error(
    message: str,
    *,
    clause: str,
    status: int | None = None,
    retryable: bool = False,
    hint: str | None = None,
) -> AuthorizationError:
    """Return the error `aiip.authorization-unavailable` for a server or a document that cannot be used."""
    return AuthorizationError(message, clause=clause, status=status, retryable=retryable, hint=hint)
