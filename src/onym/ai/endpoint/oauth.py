"""OAuth 2 for an endpoint: JWT access tokens (RFC 9068) as Bearer tokens (RFC 6750).

    auth = JWTAuthorization("https://login.bank.example", "https://bank.example/.well-known/aiip/v1")
    app = Endpoint("bank.example", keys=keys, authorization=auth)

The resource metadata (RFC 9728) names the authorization server, and the server's metadata (RFC 8414) names
its keys. Both are fetched through the guarded transport and cached. Sender-bound tokens (DPoP, mutual TLS)
are rejected.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from onym.ai.endpoint.context import Caller
from onym.ai.records import SCOPE_CHARACTER
from onym.common.text import is_printable_text
from onym.errors import AIIPError, NetError, SignatureError, URIError, UsageError
from onym.net.config import NetConfig
from onym.net.limits import NetLimits
from onym.net.messages import Headers, HTTPRequest, Origin, Reply, Send, split_url
from onym.net.transport import AsyncTransport
from onym.sign.algorithms import TOKEN_ALGORITHMS
from onym.sign.jws import make_claim_error, require_parties, require_times, require_type, verify
from onym.sign.keys import MAX_KEY_SET, KeySet, decode_base64url, parse_json_object, read_keys
from onym.sign.receipts import access_token_hash
from onym.uri.generic import URI

__all__ = ["JWTAuthorization"]

#: bytes of a token
MAX_ACCESS_TOKEN: Final = 16 * 1024
#: largest difference of two clocks in seconds
LEEWAY: Final = 60.0
#: longest lifetime of a token in seconds, from iat to exp
MAX_TOKEN_SECONDS: Final = 24 * 3600.0
_LONGEST_TEXT: Final = 255
_MOST_SCOPES: Final = 128
_SCOPE_CLAIM: Final = re.compile(SCOPE_CHARACTER + r"{1,255}\Z")
#: RFC 6749 A.1; a receipt contains it as its audience, in ASCII (AIIP/HTTPS v1 3.8)
_CLIENT: Final = re.compile(r"[\x20-\x7e]{1,255}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """The claims of a verified access token. Times are seconds since the epoch.

    `bound` means that the token is valid only with a proof of its key (RFC 7800 `cnf`: DPoP, mutual TLS).
    """

    issuer: str
    subject: str
    client_id: str
    scopes: frozenset[str]
    issued: float
    expires: float
    id: str
    bound: bool


def verify_access_token(
    token: str,
    keys: KeySet,
    *,
    issuer: str,
    resource: str,
    at: float,
    algorithms: Collection[str] = TOKEN_ALGORITHMS,
) -> AccessToken:
    """Verify an access token of this issuer for only this resource, and return its claims.

    Raises SignatureError with a code for the rule that it breaks (RFC 9068 4): those of `jws.verify`, and
    `sign.bad-header` for a token of another type, `sign.bad-issuer`, `sign.bad-audience`, `sign.expired`,
    `sign.not-yet`, `sign.bad-claim`.
    """
    verified = verify(token, keys, algorithms=algorithms, limit=MAX_ACCESS_TOKEN)
    require_type(verified, "at+jwt")  # RFC 9068 4
    claims = parse_json_object(verified.payload, "access token")
    require_parties(claims, issuer, resource)
    expires, issued = require_times(claims, at, LEEWAY)
    if not 0 < expires - issued <= MAX_TOKEN_SECONDS:
        most = f"{MAX_TOKEN_SECONDS:.0f}"
        raise make_claim_error("exp", "bad-claim", f"the lifetime is not 1 to {most} seconds")
    return AccessToken(
        issuer=issuer,
        subject=_get_text_claim(claims, "sub"),
        client_id=_get_client_id(claims),
        scopes=_parse_scopes(claims),
        issued=issued,
        expires=expires,
        id=_get_text_claim(claims, "jti"),
        bound="cnf" in claims,
    )


def has_key_id(token: str) -> bool:
    """Report whether the token names its key. Raises SignatureError for an invalid token."""
    header = decode_base64url(token.partition(".")[0], "header")
    return parse_json_object(header, "header").get("kid") is not None


def _get_text_claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not is_printable_text(value, _LONGEST_TEXT):
        raise make_claim_error(name, "bad-claim", f"it is not a string of 1 to {_LONGEST_TEXT} characters")
    return value


def _get_client_id(claims: Mapping[str, Any]) -> str:
    value = claims.get("client_id")
    if not isinstance(value, str) or not _CLIENT.match(value):
        message = "it is not 1 to 255 visible ASCII characters and spaces"
        raise make_claim_error("client_id", "bad-claim", message)
    return value


def _parse_scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the items of `scope` (RFC 8693 4.2), separated by single spaces; empty without the claim."""
    value = claims.get("scope", "")
    scopes = value.split(" ") if isinstance(value, str) and value else []
    is_valid = isinstance(value, str) and len(scopes) <= _MOST_SCOPES
    if not is_valid or not all(_SCOPE_CLAIM.match(scope) for scope in scopes):
        raise make_claim_error("scope", "bad-claim", f"it is not a list of at most {_MOST_SCOPES} scopes")
    return frozenset(scopes)


#: lifetime of metadata in seconds; that of keys is in their response, within these bounds (least, default,
#: most)
_METADATA_SECONDS: Final = 3600.0
_KEY_SECONDS: Final = (60.0, 600.0, 86400.0)
#: seconds between two fetches for an unknown key, and after a failure
_RELOAD: Final = 60.0
_RETRY: Final = 5.0
_TIMEOUT: Final = 10.0
_LONGEST_URL: Final = 2048
_MAX_METADATA: Final = 64 * 1024
_MAX_AGE: Final = re.compile(r"(?:^|,)\s*max-age\s*=\s*\"?(\d{1,9})\"?\s*(?:,|\Z)", re.IGNORECASE)


class AuthorizationServer:
    """The keys of one issuer. `monotonic` returns seconds that never decrease.

    Raises AIIPError `aiip.unavailable` if the server cannot be reached or its documents are invalid. Expired
    keys are never used.
    """

    def __init__(self, issuer: str, transport: AsyncTransport, monotonic: Callable[[], float]) -> None:
        self.issuer = issuer
        self._transport = transport
        self._clock = monotonic
        self._lock = asyncio.Lock()
        self._jwks: tuple[float, str] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._renewed = float("-inf")
        self._again = float("-inf")

    async def get_keys(self, *, unknown: KeySet | None = None) -> KeySet:
        """Return the server's keys. `unknown` is a set without a token's key, so that a newer set is fetched.

        All unknown keys together cause at most one fetch a minute.
        """
        keys = self._get_cached_keys(unknown)
        if keys is not None:
            return keys
        async with self._lock:
            # another call may have fetched the keys while this one waited
            return self._get_cached_keys(unknown) or await self._load_keys()

    def _get_cached_keys(self, unknown: KeySet | None) -> KeySet | None:
        """Return the keys, unless newer ones must be fetched."""
        now = self._clock()
        if self._keys is None or now >= self._keys[0]:
            return None
        renew = self._keys[1] is unknown and now - self._renewed >= _RELOAD
        return None if renew else self._keys[1]

    async def _load_keys(self) -> KeySet:
        now = self._clock()
        if now < self._again:
            raise self._make_unavailable_error("it failed a few seconds ago")
        if self._keys is not None and now < self._keys[0]:
            self._renewed = now
        try:
            if self._jwks is None or now >= self._jwks[0]:
                self._jwks = (now + _METADATA_SECONDS, await self._fetch_keys_url())
            reply = await self._fetch_reply(self._jwks[1], "key set", MAX_KEY_SET)
            self._keys = (now + _get_key_lifetime(reply), read_keys(reply.body))
        except (AIIPError, SignatureError) as error:
            # retry soon, but not for every caller
            self._again = self._clock() + _RETRY
            if isinstance(error, AIIPError):
                raise
            raise self._make_unavailable_error("its key set is invalid") from error
        return self._keys[1]

    async def _fetch_keys_url(self) -> str:
        url = make_metadata_url(self.issuer, "oauth-authorization-server")
        reply = await self._fetch_reply(url, "metadata", _MAX_METADATA)
        try:
            metadata = parse_json_object(reply.body, "authorization server metadata")
        except SignatureError as error:
            raise self._make_unavailable_error("its metadata is not a JSON object") from error
        # RFC 8414 3.3: the document must contain exactly this issuer
        if metadata.get("issuer") != self.issuer:
            raise self._make_unavailable_error("its metadata names another issuer")
        keys_url = metadata.get("jwks_uri")
        # plain HTTP only for an issuer on plain HTTP, which the policy limits to this computer
        allowed = ("https://",) if self.issuer.startswith("https://") else ("https://", "http://")
        if not isinstance(keys_url, str) or not keys_url.startswith(allowed):
            raise self._make_unavailable_error("its metadata has no jwks_uri")
        return keys_url

    async def _fetch_reply(self, url: str, document: str, limit: int) -> Reply:
        try:
            origin, target = parse_url(url)
            request = HTTPRequest(
                method="GET", origin=origin, target=target, headers=(("Accept", "application/json"),)
            )
            reply = await self._transport.send(Send(request, timeout=_TIMEOUT))
        except (NetError, UsageError) as error:
            raise self._make_unavailable_error(f"its {document} cannot be fetched") from error
        if reply.status != 200 or len(reply.body) > limit:
            raise self._make_unavailable_error(f"its {document} cannot be fetched (status {reply.status})")
        return reply

    def _make_unavailable_error(self, why: str) -> AIIPError:
        return AIIPError(
            f"the authorization server {self.issuer} cannot be used: {why}",
            code="aiip.unavailable",
            clause="RFC 8414 3",
            status=503,
            retryable=True,
            hint="The operator of the endpoint should check the issuer and the network policy.",
        )


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


def make_metadata_url(identifier: str, name: str) -> str:
    """Return the metadata URL of an issuer or resource (RFC 8414 3.1, RFC 9728 3.1)."""
    scheme, _, rest = identifier.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}/.well-known/{name}" + (f"{slash}{path}" if path else "")


def _get_key_lifetime(reply: Reply) -> float:
    """Return the lifetime of keys in seconds: that of Cache-Control, within bounds."""
    least, usual, most = _KEY_SECONDS
    found = _MAX_AGE.search(", ".join(reply.headers.get_all("cache-control")))
    return usual if found is None else min(max(float(found[1]), least), most)


_LIMITS: Final = NetLimits(body=512 * 1024, error_body=16 * 1024, connect=5.0)
#: RFC 6750 2.1; the scheme in any case (RFC 9110 11.1)
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)\Z", re.IGNORECASE)
_NAMES_BEARER: Final = re.compile(r"bearer(?: |\Z)", re.IGNORECASE)
#: the characters of scopes are those that a quoted string need not escape
_SCOPE: Final = re.compile(SCOPE_CHARACTER + r"+\Z")
_URL: Final = re.compile(rf"https?://{SCOPE_CHARACTER}+\Z")
_INVALID: Final = "the access token is not valid for this resource"


class JWTAuthorization:
    """Allows callers with an access token that `issuer` has issued for `resource`.

    `resource` is the identifier of RFC 9728, the only audience that a token may have: the service's URL or a
    prefix of it. `scopes` are listed in the metadata. `algorithms` are the accepted signatures (default:
    Ed25519, ES256, PS256, RS256). `network` decides how the server is reached (default: `Policy.trusted()`);
    its limits are the client's own. `clock` returns seconds since the epoch, `monotonic` seconds that never
    decrease.

    Raises UsageError for an issuer or a resource that is not an https URL, and for other algorithms. http
    URLs are for tests on this computer; an `Endpoint` does not accept them.
    """

    def __init__(
        self,
        issuer: str,
        resource: str,
        *,
        scopes: Collection[str] = (),
        algorithms: Collection[str] | None = None,
        network: NetConfig | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuer = _validate_identifier("issuer", issuer)
        self.resource = _validate_identifier("resource", resource)
        if isinstance(scopes, str) or not all(_SCOPE.match(scope) for scope in scopes):
            message = "scopes must be a collection of strings without spaces and quotes"
            raise UsageError(message, code="usage.bad-scope", hint="See RFC 6749 3.3.")
        self._scopes = sorted(set(scopes))
        self._algorithms = TOKEN_ALGORITHMS if algorithms is None else tuple(algorithms)
        if isinstance(algorithms, str) or not set() < set(self._algorithms) <= set(TOKEN_ALGORITHMS):
            raise UsageError(
                f"algorithms must be a collection of {', '.join(TOKEN_ALGORITHMS)}",
                code="usage.bad-argument",
                hint='Write, for example, algorithms=["ES256"]. Shared secrets (HS256) are not supported.',
            )
        self._clock = clock
        self._transport = AsyncTransport(replace(network or NetConfig(), limits=_LIMITS))
        self._server = AuthorizationServer(issuer, self._transport, monotonic)

    @property
    def metadata_url(self) -> str:
        """The URL of the resource's metadata (RFC 9728 3.1: inserted before the path, never appended)."""
        return make_metadata_url(self.resource, "oauth-protected-resource")

    def metadata(self) -> Mapping[str, Any]:
        """Return the resource's metadata (RFC 9728 2)."""
        named = {"scopes_supported": self._scopes} if self._scopes else {}
        return {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            **named,
        }

    async def authorize(self, headers: Headers, scopes: frozenset[str]) -> Caller:
        """Return the caller, who has all of `scopes`, from the Authorization field.

        Raises AIIPError with `challenge`, the value for WWW-Authenticate: `aiip.authentication-required`,
        `aiip.bad-request`, `aiip.sender-constraint`, `aiip.insufficient-scope`; and `aiip.unavailable` if the
        authorization server cannot be reached. The error does not contain the check that a token failed; its
        cause does, for the log.
        """
        token = self._get_bearer_token(headers, scopes)
        try:
            access = await self._verify_token(token)
        except SignatureError as error:
            raise self._make_refusal(scopes, "invalid_token", _INVALID) from error
        if access.bound:
            message = "the access token is sender-bound and cannot be used as a Bearer token"
            raise self._make_refusal(scopes, "invalid_token", message, code="aiip.sender-constraint")
        caller = Caller(
            audience=access.client_id,
            client_id=access.client_id,
            subject=access.subject,
            scopes=access.scopes,
            token_hash=access_token_hash(token),
        )
        if not scopes <= access.scopes:
            raise self._make_scope_error(scopes, caller)
        return caller

    async def close(self) -> None:
        """Close the connections to the authorization server."""
        await self._transport.close()

    def _get_bearer_token(self, headers: Headers, scopes: frozenset[str]) -> str:
        given = headers.get_all("authorization")
        found = _BEARER.match(given[0]) if len(given) == 1 else None
        if found is None and len(given) < 2 and not any(_NAMES_BEARER.match(value) for value in given):
            # RFC 6750 3.1: a request without a Bearer token gets a challenge without an error
            raise self._make_refusal(scopes, None, "this resource requires a Bearer access token")
        if found is None:
            message = "the request must contain one Bearer token"
            raise self._make_refusal(scopes, "invalid_request", message, code="aiip.bad-request")
        return found[1]

    async def _verify_token(self, token: str) -> AccessToken:
        keys = await self._server.get_keys()
        try:
            return self._verify_with_keys(token, keys)
        except SignatureError as error:
            if not _may_need_newer_keys(error, token):
                raise
            return self._verify_with_keys(token, await self._server.get_keys(unknown=keys))

    def _verify_with_keys(self, token: str, keys: Any) -> AccessToken:
        return verify_access_token(
            token,
            keys,
            issuer=self.issuer,
            resource=self.resource,
            at=self._clock(),
            algorithms=self._algorithms,
        )

    def _make_refusal(
        self, scopes: frozenset[str], error: str | None, why: str, code: str = "aiip.authentication-required"
    ) -> AIIPError:
        refusal = AIIPError(
            why,
            code=code,
            clause="RFC 6750 3",
            status=400 if error == "invalid_request" else 401,
            hint=f"Get a token from {self.issuer} with resource={self.resource}.",
        )
        refusal.challenge = self._format_challenge(scopes, error, why)
        return refusal

    def _make_scope_error(self, scopes: frozenset[str], caller: Caller) -> AIIPError:
        # all scopes at once, so that the caller needs one more request
        wanted = " ".join(sorted(scopes))
        refusal = AIIPError(
            "the access token lacks a scope that this resource requires",
            code="aiip.insufficient-scope",
            clause="RFC 6750 3.1",
            status=403,
            hint=f"Get a token with scope: {wanted}",
        )
        refusal.challenge = self._format_challenge(scopes, "insufficient_scope", "a scope is missing")
        refusal.caller = caller  # the caller is known, so the error response is signed (3.7)
        return refusal

    def _format_challenge(self, scopes: frozenset[str], error: str | None, why: str) -> str:
        parts = {
            "error": error,
            "error_description": why if error else None,
            "scope": " ".join(sorted(scopes)) or None,
            "resource_metadata": self.metadata_url,
        }
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)


def _may_need_newer_keys(error: SignatureError, token: str) -> bool:
    """Report whether the server may have published the token's key after its keys were fetched.

    If keys have no names, an invalid signature is the only sign of a new key.
    """
    if error.code == "sign.bad-signature":
        return not has_key_id(token)
    return error.code == "sign.unknown-key"


def _validate_identifier(argument: str, url: str) -> str:
    """Return the URL if it can identify an issuer or a resource (RFC 8414 2, RFC 9728 1.2)."""
    if _URL.match(url) is None or "?" in url or "#" in url:
        raise UsageError(
            f"the {argument} {url!r} is not an https URL without query and fragment",
            code="usage.bad-url",
            hint="See RFC 8414 2 and RFC 9728 1.2.",
        )
    parse_url(url)
    return url
