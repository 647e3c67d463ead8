"""OAuth 2 for an endpoint: access tokens that are JWTs (RFC 9068), shown as Bearer (RFC 6750).

    auth = JWTAuthorization("https://login.bank.example", "https://bank.example/.well-known/aiip/v1")
    app = Endpoint("bank.example", keys=keys, authorization=auth)

The resource names its authorization server by its metadata (RFC 9728); the server's own (RFC 8414) names the
keys. A token that is bound to its sender (DPoP, mutual TLS) is refused: nothing here tests its bond.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from onym.ai.endpoint._oauth_server import AuthorizationServer, split_url, well_known
from onym.ai.endpoint.context import Caller
from onym.errors import AIIPError, SignatureError, UsageError
from onym.net.limits import NetLimits, TLSConfig
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport

if TYPE_CHECKING:
    from onym.ai.endpoint._access_token import AccessToken
    from onym.net.messages import Headers
    from onym.net.resolve import Resolver

__all__ = ["JWTAuthorization"]

_LIMITS: Final = NetLimits(body=512 * 1024, error_body=16 * 1024, connect=5.0)
#: RFC 6750 2.1; the scheme in any case (RFC 9110 11.1)
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)\Z", re.IGNORECASE)
_NAMES_BEARER: Final = re.compile(r"bearer(?: |\Z)", re.IGNORECASE)
#: RFC 6749 3.3, and what may stand in a quoted string
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+\Z")
_URL: Final = re.compile(r"https?://[\x21\x23-\x5b\x5d-\x7e]+\Z")
_INVALID: Final = "the access token is not one for this resource now"


class JWTAuthorization:
    """Who may call: the bearer of an access token that `issuer` gave for `resource`.

    `resource` is the identifier of RFC 9728, which a token must have as its only audience: the service's URL
    or what it begins with. `scopes` are those that the metadata names. `algorithms` are signatures that count
    (default: Ed25519, ES256, PS256, RS256). The server is asked through a transport of its own, by `policy`,
    `tls` and `resolver`; `clock` gives seconds since the epoch, `monotonic` seconds that only grow.

    Raises UsageError for an issuer or a resource that is no https URL, and for algorithms that are not among
    those; http is for trials on this machine, and no `Endpoint` takes it.
    """

    def __init__(
        self,
        issuer: str,
        resource: str,
        *,
        scopes: Collection[str] = (),
        algorithms: Collection[str] | None = None,
        policy: Policy | None = None,
        tls: TLSConfig | None = None,
        resolver: Resolver | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuer = _identifier("issuer", issuer)
        self.resource = _identifier("resource", resource)
        self._scopes = _scope_list(scopes)
        self._algorithms = None if algorithms is None else _algorithm_list(algorithms)
        self._clock = clock
        self._transport = AsyncTransport(
            policy or Policy.trusted(), resolver=resolver, limits=_LIMITS, tls=tls or TLSConfig()
        )
        self._server = AuthorizationServer(issuer, self._transport, monotonic)

    @property
    def metadata_url(self) -> str:
        """Where the resource's metadata is (RFC 9728 3.1: inserted before the path, never appended)."""
        return well_known(self.resource, "oauth-protected-resource")

    def metadata(self) -> Mapping[str, Any]:
        """The resource's metadata (RFC 9728 2)."""
        named = {"scopes_supported": list(self._scopes)} if self._scopes else {}
        return {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            **named,
        }

    async def authorize(self, headers: Headers, scopes: frozenset[str]) -> Caller:
        """Who calls, by the one Authorization field, with all of `scopes`.

        Raises AIIPError with `challenge`, the value for WWW-Authenticate: `aiip.authentication-required`,
        `aiip.bad-request`, `aiip.sender-constraint`, `aiip.insufficient-scope`; and `aiip.unavailable` where
        the authorization server cannot be asked. Nothing of it says which test a token failed; its cause
        does, for the log.
        """
        token = self._token(headers, scopes)
        try:
            found = await self._verify(token)
        except SignatureError as error:
            raise self._refused(scopes, "invalid_token", _INVALID) from error
        if found.bound:
            raise self._refused(
                scopes,
                "invalid_token",
                "the access token is bound to its sender, and was shown as Bearer",
                code="aiip.sender-constraint",
            )
        if not scopes <= found.scopes:
            raise self._short(scopes, _caller(found, token))
        return _caller(found, token)

    async def close(self) -> None:
        """Close the connections to the authorization server."""
        await self._transport.close()

    def _token(self, headers: Headers, scopes: frozenset[str]) -> str:
        given = headers.get_all("authorization")
        found = _BEARER.match(given[0]) if len(given) == 1 else None
        if found is None and len(given) < 2 and not any(_NAMES_BEARER.match(each) for each in given):
            # RFC 6750 3.1: who showed nothing that is read here is told of no error
            raise self._refused(scopes, None, "this resource asks for a Bearer access token")
        if found is None:
            raise self._refused(
                scopes, "invalid_request", "one Bearer token is read, and no other", code="aiip.bad-request"
            )
        return found[1]

    async def _verify(self, token: str) -> AccessToken:
        keys = await self._server.keys()
        try:
            return self._check(token, keys)
        except SignatureError as error:
            if not _may_be_newer(error, token):
                raise
            return self._check(token, await self._server.keys(unknown=keys))

    def _check(self, token: str, keys: Any) -> AccessToken:
        # late, for cryptography is heavy
        from onym.ai.endpoint._access_token import TOKEN_ALGORITHMS, verify_access_token

        return verify_access_token(
            token,
            keys,
            issuer=self.issuer,
            resource=self.resource,
            at=self._clock(),
            algorithms=TOKEN_ALGORITHMS if self._algorithms is None else self._algorithms,
        )

    def _refused(
        self, scopes: frozenset[str], error: str | None, why: str, code: str = "aiip.authentication-required"
    ) -> AIIPError:
        refusal = AIIPError(
            why,
            code=code,
            clause="RFC 6750 3",
            status=400 if error == "invalid_request" else 401,
            hint=f"get a token from {self.issuer} with resource={self.resource}",
        )
        refusal.challenge = self._challenge(scopes, error, why)
        return refusal

    def _short(self, scopes: frozenset[str], caller: Caller) -> AIIPError:
        # all of them at once, so that one more round trip is enough
        wanted = " ".join(sorted(scopes))
        refusal = AIIPError(
            "the access token lacks a scope that this resource asks for",
            code="aiip.insufficient-scope",
            clause="RFC 6750 3.1",
            status=403,
            hint=f"get a token with scope: {wanted}",
        )
        refusal.challenge = self._challenge(scopes, "insufficient_scope", "a scope is missing")
        refusal.caller = caller  # who it is is known, so the refusal is signed (3.7)
        return refusal

    def _challenge(self, scopes: frozenset[str], error: str | None, why: str) -> str:
        parts = {
            "error": error,
            "error_description": why if error else None,
            "scope": " ".join(sorted(scopes)) or None,
            "resource_metadata": self.metadata_url,
        }
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)


def _may_be_newer(error: SignatureError, token: str) -> bool:
    """May the token be signed with a key that the server has published since its keys were read?

    Where keys have no names, a new one shows by a signature that does not hold, and by that alone.
    """
    from onym.ai.endpoint._access_token import names_key  # late: cryptography is heavy

    if error.code == "sign.bad-signature":
        return not names_key(token)
    return error.code == "sign.unknown-key"


def _caller(found: AccessToken, token: str) -> Caller:
    from onym.sign.receipt import access_token_hash  # late: cryptography is heavy

    return Caller(
        audience=found.client_id,
        client_id=found.client_id,
        subject=found.subject,
        scopes=found.scopes,
        token_hash=access_token_hash(token),
    )


def _identifier(what: str, url: str) -> str:
    """The URL, if it is one that may name an issuer or a resource (RFC 8414 2, RFC 9728 1.2)."""
    fits = _URL.match(url) is not None and "?" not in url and "#" not in url
    if fits:
        split_url(url)
        return url
    raise UsageError(
        f"{what} is an https URL without query and fragment",
        code="usage.bad-url",
        hint="RFC 8414 2, RFC 9728 1.2",
    )


def _scope_list(scopes: Collection[str]) -> tuple[str, ...]:
    if isinstance(scopes, str) or not all(_SCOPE.match(each) for each in scopes):
        raise UsageError(
            "scopes are texts without spaces and quotes", code="usage.bad-scope", hint="RFC 6749 3.3"
        )
    return tuple(sorted(set(scopes)))


def _algorithm_list(algorithms: Collection[str]) -> tuple[str, ...]:
    from onym.ai.endpoint._access_token import TOKEN_ALGORITHMS  # late: cryptography is heavy

    if isinstance(algorithms, str) or not algorithms or not set(algorithms) <= set(TOKEN_ALGORITHMS):
        raise UsageError(
            f"algorithms are some of {', '.join(TOKEN_ALGORITHMS)}",
            code="usage.bad-argument",
            hint='as in algorithms=["ES256"]; a secret that both sides know (HS256) proves nothing here',
        )
    return tuple(algorithms)
