"""OAuth 2 for an endpoint: JWT access tokens (RFC 9068) as Bearer (RFC 6750) or DPoP tokens (RFC 9449).

    auth = JWTAuthorization("https://login.bank.example", "https://bank.example/.well-known/aiip/v1")
    app = Endpoint("bank.example", keys=keys, authorization=auth)

The resource metadata (RFC 9728) names the authorization server, and the server's metadata (RFC 8414) names
its keys. Both are fetched through the guarded transport and cached. A token that is bound to a DPoP key or a
client certificate is accepted only from the sender who proves that key (`onym.ai.endpoint.sender`).
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from onym.ai.endpoint import sender
from onym.ai.endpoint.context import AccessRequest, Actor, Caller
from onym.ai.oauth_metadata import make_metadata_url, parse_url
from onym.ai.records import Auth, Level, Requirements
from onym.common.text import is_printable_text
from onym.errors import AIIPError, ConfigError, NetError, SignatureError, UsageError
from onym.net.config import NetConfig
from onym.net.limits import NetLimits
from onym.net.messages import HTTPRequest, Reply, Send
from onym.net.oauth import MAX_SCOPES, SCOPE_CHARACTER, parse_scope
from onym.net.transport import AsyncTransport
from onym.sign import jws
from onym.sign import keys as signing_keys
from onym.sign.dpop import DPOP_ALGORITHMS, DPoPProof
from onym.sign.receipts import access_token_hash
from onym.sign.sealing import SealingSecrets
from onym.store.shared import SharedStore

__all__ = ["JWTAuthorization"]

#: bytes of a token
MAX_ACCESS_TOKEN: Final = 16 * 1024
#: largest difference of two clocks in seconds
LEEWAY: Final = 60.0
#: longest lifetime of a token in seconds, from iat to exp
MAX_TOKEN_SECONDS: Final = 24 * 3600.0
_LONGEST_TEXT: Final = 255
#: RFC 6749 A.1; a receipt contains it as its audience, in ASCII (AIIP/HTTPS v1 3.8)
_CLIENT: Final = re.compile(r"[\x20-\x7e]{1,255}\Z")


_UNBOUND: Final = sender.Confirmation()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """The claims of a verified access token. Times are seconds since the epoch.

    `confirmation` names the keys without whose proof the token is not valid (RFC 7800 `cnf`).
    """

    issuer: str
    subject: str
    client_id: str
    scopes: frozenset[str]
    issued: float
    expires: float
    id: str
    confirmation: sender.Confirmation = _UNBOUND
    actors: tuple[Actor, ...] = ()
    acr: str | None = None
    auth_time: float | None = None


def verify_access_token(
    token: str,
    keys: signing_keys.KeySet,
    *,
    issuer: str,
    resource: str,
    at: float,
    algorithms: Collection[str] = signing_keys.TOKEN_ALGORITHMS,
) -> AccessToken:
    """Verify an access token of this issuer for only this resource, and return its claims.

    Raises SignatureError with a code for the rule that it breaks (RFC 9068 4): those of `jws.verify`, and
    `sign.bad-header` for a token of another type, `sign.bad-issuer`, `sign.bad-audience`, `sign.expired`,
    `sign.not-yet`, `sign.bad-claim`, and `sign.bad-binding` for a token whose key cannot be checked.
    """
    verified = jws.verify(token, keys, algorithms=algorithms, limit=MAX_ACCESS_TOKEN)
    jws.require_type(verified.header, "at+jwt")  # RFC 9068 4
    claims = signing_keys.parse_json_object(verified.payload, "access token")
    jws.require_parties(claims, issuer, resource)
    expires, issued = jws.require_times(claims, at, LEEWAY)
    if not 0 < expires - issued <= MAX_TOKEN_SECONDS:
        most = f"{MAX_TOKEN_SECONDS:.0f}"
        raise jws.make_claim_error("exp", "bad-claim", f"the lifetime is not 1 to {most} seconds")
    return AccessToken(
        issuer=issuer,
        subject=_get_text_claim(claims, "sub"),
        client_id=_get_client_id(claims),
        scopes=_parse_scopes(claims),
        issued=issued,
        expires=expires,
        id=_get_text_claim(claims, "jti"),
        confirmation=sender.parse_confirmation(claims),
        actors=sender.parse_actors(claims),
        acr=_get_text_claim(claims, "acr") if "acr" in claims else None,
        auth_time=jws.parse_time_claim(claims, "auth_time") if "auth_time" in claims else None,
    )


def has_key_id(token: str) -> bool:
    """Report whether the token names its key. Raises SignatureError for an invalid token."""
    header = signing_keys.decode_base64url(token.partition(".")[0], "header")
    return signing_keys.parse_json_object(header, "header").get("kid") is not None


def _get_text_claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not is_printable_text(value, _LONGEST_TEXT):
        raise jws.make_claim_error(
            name, "bad-claim", f"it is not a string of 1 to {_LONGEST_TEXT} characters"
        )
    return value


def _get_client_id(claims: Mapping[str, Any]) -> str:
    value = claims.get("client_id")
    if not isinstance(value, str) or not _CLIENT.match(value):
        message = "it is not 1 to 255 visible ASCII characters and spaces"
        raise jws.make_claim_error("client_id", "bad-claim", message)
    return value


def _parse_scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the items of `scope` (RFC 8693 4.2); empty without the claim."""
    scopes = parse_scope(claims.get("scope", ""))
    if scopes is None:
        raise jws.make_claim_error("scope", "bad-claim", f"it is not a list of at most {MAX_SCOPES} scopes")
    return scopes


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
        self._keys: tuple[float, signing_keys.KeySet] | None = None
        self._renewed = float("-inf")
        self._again = float("-inf")

    async def get_keys(self, *, unknown: signing_keys.KeySet | None = None) -> signing_keys.KeySet:
        """Return the server's keys. `unknown` is a set without a token's key, so that a newer set is fetched.

        All unknown keys together cause at most one fetch a minute.
        """
        keys = self._get_cached_keys(unknown)
        if keys is not None:
            return keys
        async with self._lock:
            # another call may have fetched the keys while this one waited
            return self._get_cached_keys(unknown) or await self._load_keys()

    def _get_cached_keys(self, unknown: signing_keys.KeySet | None) -> signing_keys.KeySet | None:
        """Return the keys, unless newer ones must be fetched."""
        now = self._clock()
        if self._keys is None or now >= self._keys[0]:
            return None
        renew = self._keys[1] is unknown and now - self._renewed >= _RELOAD
        return None if renew else self._keys[1]

    async def _load_keys(self) -> signing_keys.KeySet:
        now = self._clock()
        if now < self._again:
            raise self._make_unavailable_error("it failed a few seconds ago")
        if self._keys is not None and now < self._keys[0]:
            self._renewed = now
        try:
            if self._jwks is None or now >= self._jwks[0]:
                self._jwks = (now + _METADATA_SECONDS, await self._fetch_keys_url())
            reply = await self._fetch_reply(self._jwks[1], "key set", signing_keys.MAX_KEY_SET)
            self._keys = (now + _get_key_lifetime(reply), signing_keys.read_keys(reply.body))
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
            metadata = signing_keys.parse_json_object(reply.body, "authorization server metadata")
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


def _get_key_lifetime(reply: Reply) -> float:
    """Return the lifetime of keys in seconds: that of Cache-Control, within bounds."""
    least, usual, most = _KEY_SECONDS
    found = _MAX_AGE.search(", ".join(reply.headers.get_all("cache-control")))
    return usual if found is None else min(max(float(found[1]), least), most)


_LIMITS: Final = NetLimits(body=512 * 1024, error_body=16 * 1024, connect=5.0)
#: RFC 6750 2.1, RFC 9449 7.1
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_BEARER: Final = "Bearer"
_DPOP: Final = "DPoP"
#: in lower case: schemes compare without case (RFC 9110 11.1)
_SCHEMES: Final = {"bearer": _BEARER, "dpop": _DPOP}
#: the characters of scopes are those that a quoted string need not escape
_SCOPE: Final = re.compile(SCOPE_CHARACTER + r"+\Z")
_URL: Final = re.compile(rf"https?://{SCOPE_CHARACTER}+\Z")
_INVALID: Final = "the access token is not valid for this resource"
#: seconds for which a verified token is known by its hash, and the number of such tokens
_KNOWN_SECONDS: Final = 60.0
_MOST_KNOWN: Final = 4096


@dataclass(frozen=True, slots=True)
class _Credential:
    """The access token of a request, and its scheme."""

    scheme: str
    token: str = field(repr=False)
    hash: str


class JWTAuthorization:
    """Allows callers with an access token that `issuer` has issued for `resource`.

    `resource` is the identifier of RFC 9728, the only audience that a token may have: the service's URL or a
    prefix of it. `scopes` are listed in the metadata. `algorithms` are the accepted signatures (default:
    Ed25519, ES256, PS256, RS256). `network` decides how the server is reached (default: `Policy.trusted()`);
    its limits are the client's own. `clock` returns seconds since the epoch, `monotonic` seconds that never
    decrease.

    `dpop` is "none", "supported" or "required": whether callers may or must use tokens that are bound to a
    DPoP key. With `mtls`, they must be bound to the client certificate of the connection. With
    `request_binding`, every DPoP proof must cover the body of its request (`rqh`); requests with financial
    and physical effects need that in any case. Processes that serve one resource share a `store`, which
    remembers the proofs that were used, and `secrets` for the server's nonces; the defaults are for one
    process.

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
        dpop: str | Level = Level.SUPPORTED,
        mtls: bool = False,
        request_binding: bool = False,
        store: SharedStore | None = None,
        secrets: SealingSecrets | None = None,
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
        self._algorithms = signing_keys.TOKEN_ALGORITHMS if algorithms is None else tuple(algorithms)
        if isinstance(algorithms, str) or not set() < set(self._algorithms) <= set(
            signing_keys.TOKEN_ALGORITHMS
        ):
            raise UsageError(
                f"algorithms must be a collection of {', '.join(signing_keys.TOKEN_ALGORITHMS)}",
                code="usage.bad-argument",
                hint='Write, for example, algorithms=["ES256"]. Shared secrets (HS256) are not supported.',
            )
        #: what callers must do, for the discovery document
        self.requirements = Requirements(
            auth=Auth.OAUTH2, dpop=_validate_level(dpop), mtls=mtls, request_binding=request_binding
        )
        self._clock = clock
        self._monotonic = monotonic
        self._transport = AsyncTransport(replace(network or NetConfig(), limits=_LIMITS))
        self._server = AuthorizationServer(issuer, self._transport, monotonic)
        self._proofs = sender.ProofVerifier(resource, clock=clock, store=store, secrets=secrets)
        #: hash of a token -> its claims, the keys that verified it, and until when it is known
        self._known: dict[str, tuple[AccessToken, signing_keys.KeySet, float]] = {}

    def require_shared(self) -> None:
        """Raise ConfigError `config.not-shared` if other processes would accept a used proof again."""
        if self.requirements.dpop is not Level.NONE and not self._proofs.is_shared:
            raise ConfigError(
                "several processes cannot share the DPoP proofs that were used: they are in memory",
                code="config.not-shared",
                hint="Use --proof-store FILE and --secrets DIR, or pass store= and secrets=.",
            )

    @property
    def metadata_url(self) -> str:
        """The URL of the resource's metadata (RFC 9728 3.1: inserted before the path, never appended)."""
        return make_metadata_url(self.resource, "oauth-protected-resource")

    def metadata(self) -> Mapping[str, Any]:
        """Return the resource's metadata (RFC 9728 2)."""
        required = self.requirements
        members = {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": self._scopes,
            "dpop_signing_alg_values_supported": list(DPOP_ALGORITHMS) if self._offers_dpop else [],
            "dpop_bound_access_tokens_required": required.dpop is Level.REQUIRED,
            "tls_client_certificate_bound_access_tokens": required.mtls,
        }
        return {name: value for name, value in members.items() if value}

    def list_challenges(self, scopes: Collection[str] = ()) -> tuple[str, ...]:
        """Return the values of WWW-Authenticate for a request that has no token and needs these scopes."""
        return self._list_challenges(scopes, None, "", _BEARER)

    @property
    def _offers_dpop(self) -> bool:
        return self.requirements.dpop is not Level.NONE

    async def authorize(self, request: AccessRequest) -> Caller:
        """Return the caller, who has everything that the request demands, from its header fields.

        Raises AIIPError with `challenge`, the values for WWW-Authenticate: `aiip.authentication-required`,
        `aiip.bad-request`, `aiip.sender-constraint`, `aiip.insufficient-scope`, `aiip.step-up-required`; and
        `aiip.unavailable` if the authorization server or the store of proofs cannot be reached. The error
        does not contain the check that a token failed; its cause does, for the log.
        """
        credential = self._get_credential(request)
        try:
            access = await self._verify_token(credential)
        except SignatureError as error:
            if error.code == "sign.bad-binding":
                refusal = self._make_proof_refusal(request, "bad-binding", _INVALID, credential.scheme)
                raise refusal from error
            raise self._make_refusal(request, "invalid_token", _INVALID, credential.scheme) from error
        certificate = self._require_certificate(request, credential, access)
        proof, next_nonce = await self._require_proof(request, credential, access)
        caller = Caller(
            audience=access.client_id,
            client_id=access.client_id,
            subject=access.subject,
            scopes=access.scopes,
            token_hash=credential.hash,
            actors=access.actors,
            acr=access.acr,
            auth_time=access.auth_time,
            key=None if proof is None else proof.thumbprint,
            certificate=certificate,
            proof_request_hash=None if proof is None else proof.request_hash,
            next_nonce=next_nonce,
        )
        if not request.scopes <= access.scopes:
            raise self._make_scope_error(request, credential.scheme, caller)
        self._require_sign_in(request, credential.scheme, caller)
        return caller

    def share_proofs(self, store: SharedStore, secrets: SealingSecrets) -> None:
        """Remember proofs in this store and make nonces with these secrets from now on.

        They replace those of the constructor. The caller closes the store.
        """
        self._proofs = sender.ProofVerifier(self.resource, clock=self._clock, store=store, secrets=secrets)

    async def close(self) -> None:
        """Close the connections to the authorization server."""
        await self._transport.close()

    def _get_credential(self, request: AccessRequest) -> _Credential:
        given = request.headers.get_all("authorization")
        name, _, rest = given[0].partition(" ") if given else ("", "", "")
        scheme, token = _SCHEMES.get(name.lower()), rest.lstrip(" ")
        if scheme is None and len(given) < 2:
            # RFC 6750 3.1: a request without a token gets a challenge without an error
            raise self._make_refusal(request, None, "this resource requires an access token")
        if scheme is None or len(given) > 1 or _TOKEN.fullmatch(token) is None:
            message = "the request must contain one Bearer or DPoP token"
            raise self._make_refusal(request, "invalid_request", message, code="aiip.bad-request")
        if scheme == _DPOP and not self._offers_dpop:
            message = "this resource does not support DPoP"
            raise self._make_refusal(request, "invalid_request", message, code="aiip.bad-request")
        return _Credential(scheme, token, access_token_hash(token))

    async def _verify_token(self, credential: _Credential) -> AccessToken:
        keys = await self._server.get_keys()
        known = self._known.get(credential.hash)
        if known is not None and known[1] is keys and self._is_current(known[0], known[2]):
            return known[0]
        token = credential.token
        try:
            access = self._verify_with_keys(token, keys)
        except SignatureError as error:
            if not _may_need_newer_keys(error, token):
                raise
            keys = await self._server.get_keys(unknown=keys)
            access = self._verify_with_keys(token, keys)
        self._known.pop(credential.hash, None)
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]  # the one that was verified first
        self._known[credential.hash] = access, keys, self._monotonic() + _KNOWN_SECONDS
        return access

    def _is_current(self, access: AccessToken, until: float) -> bool:
        return self._monotonic() < until and self._clock() < access.expires + LEEWAY

    def _verify_with_keys(self, token: str, keys: signing_keys.KeySet) -> AccessToken:
        return verify_access_token(
            token,
            keys,
            issuer=self.issuer,
            resource=self.resource,
            at=self._clock(),
            algorithms=self._algorithms,
        )

    def _require_certificate(
        self, request: AccessRequest, credential: _Credential, access: AccessToken
    ) -> str | None:
        """Return the thumbprint of the client certificate that the token is bound to (RFC 8705 3)."""
        bound = access.confirmation.certificate
        if bound is None:
            if self.requirements.mtls:
                message = "the access token must be bound to a client certificate"
                raise self._make_proof_refusal(request, "unbound", message, credential.scheme)
            return None
        own = None if request.certificate is None else sender.get_certificate_thumbprint(request.certificate)
        if own is None or not hmac.compare_digest(own, bound):
            message = "the access token is bound to another client certificate"
            raise self._make_proof_refusal(request, "certificate", message, credential.scheme)
        return own

    async def _require_proof(
        self, request: AccessRequest, credential: _Credential, access: AccessToken
    ) -> tuple[DPoPProof | None, str | None]:
        """Return the proof of the key that the token is bound to, and the next nonce (RFC 9449 7)."""
        bound = access.confirmation.key
        if credential.scheme == _BEARER:
            if bound is not None:
                message = "the access token is bound to a DPoP key and cannot be used as a Bearer token"
                raise self._make_proof_refusal(request, "bearer", message)
            if self.requirements.dpop is Level.REQUIRED:
                message = "this resource requires an access token that is bound to a DPoP key"
                raise self._make_proof_refusal(request, "unbound", message)
            return None, None
        if bound is None:
            message = "the access token is not bound to a DPoP key"
            raise self._make_proof_refusal(request, "unbound", message)
        try:
            proof, nonce = await self._proofs.verify(request, credential.token, bound)
        except SignatureError as error:
            # the reason is about the caller's own proof, and tells nothing about the token
            kind = "invalid_token" if error.code == "sign.unknown-key" else "invalid_dpop_proof"
            reason = error.code.removeprefix("sign.")
            raise self._make_proof_refusal(request, reason, error.message, error=kind) from error
        if proof is None:
            message = "the proof must have the nonce of this response"
            refusal = self._make_proof_refusal(request, "nonce", message, error="use_dpop_nonce")
            refusal.dpop_nonce = nonce
            raise refusal
        return proof, nonce

    def _require_sign_in(self, request: AccessRequest, scheme: str, caller: Caller) -> None:
        """Raise AIIPError `aiip.step-up-required` if the subject must sign in again (RFC 9470 3)."""
        values, most = request.acr_values, request.max_age
        is_strong = not values or caller.acr in values
        # a sign-in from the future is not recent either: one of the clocks is wrong
        is_recent = most is None or (
            caller.auth_time is not None and -LEEWAY <= self._clock() - caller.auth_time <= most + LEEWAY
        )
        if is_strong and is_recent:
            return
        why = "a stronger sign-in is required" if not is_strong else "a more recent sign-in is required"
        refusal = AIIPError(
            f"{why} for this resource",
            code="aiip.step-up-required",
            clause="RFC 9470 3",
            status=401,
            hint="Sign in again with the acr_values and max_age of WWW-Authenticate, and get a new token.",
        )
        refusal.challenge = sender.format_challenge(
            scheme,
            error="insufficient_user_authentication",
            error_description=why,
            acr_values=" ".join(values),
            max_age=None if most is None else str(most),
            scope=" ".join(sorted(request.scopes)),
            resource_metadata=self.metadata_url,
        )
        refusal.caller = caller
        raise refusal

    def _make_refusal(
        self,
        request: AccessRequest,
        error: str | None,
        why: str,
        scheme: str = _BEARER,
        code: str = "aiip.authentication-required",
    ) -> AIIPError:
        refusal = AIIPError(
            why,
            code=code,
            clause="RFC 9449 7.1" if scheme == _DPOP else "RFC 6750 3",
            status=400 if error == "invalid_request" else 401,
            hint=f"Send one DPoP proof for {request.method} {request.url}."
            if error == "invalid_dpop_proof"
            else f"Get a token from {self.issuer} with resource={self.resource}.",
        )
        refusal.challenge = self._list_challenges(request.scopes, error, why, scheme)
        return refusal

    def _make_proof_refusal(
        self,
        request: AccessRequest,
        reason: str,
        why: str,
        scheme: str = _DPOP,
        *,
        error: str = "invalid_token",
    ) -> AIIPError:
        """Return the error for a caller who has not proved the key of its token, for `reason`."""
        refusal = self._make_refusal(request, error, why, scheme, "aiip.sender-constraint")
        refusal.refused_proof = reason
        return refusal

    def _make_scope_error(self, request: AccessRequest, scheme: str, caller: Caller) -> AIIPError:
        # all scopes at once, so that the caller needs one more request
        wanted = " ".join(sorted(request.scopes))
        refusal = AIIPError(
            "the access token lacks a scope that this resource requires",
            code="aiip.insufficient-scope",
            clause="RFC 6750 3.1",
            status=403,
            hint=f"Get a token with scope: {wanted}",
        )
        missing = "a scope is missing"
        refusal.challenge = self._list_challenges(request.scopes, "insufficient_scope", missing, scheme)
        refusal.caller = caller  # the caller is known, so the error response is signed (3.7)
        return refusal

    def _list_challenges(
        self, scopes: Collection[str], error: str | None, why: str, scheme: str
    ) -> tuple[str, ...]:
        """Return one challenge for each scheme that the caller may use; only `scheme` has the error."""
        required = self.requirements.dpop is Level.REQUIRED
        schemes = [scheme] if error == "insufficient_scope" or scheme == _DPOP else [_BEARER, _DPOP]
        return tuple(
            sender.format_challenge(
                name,
                error=error if name == scheme else None,
                error_description=why.replace('"', "'") if error and name == scheme else None,
                algs=" ".join(DPOP_ALGORITHMS) if name == _DPOP else None,
                scope=" ".join(sorted(scopes)),
                resource_metadata=self.metadata_url,
            )
            for name in schemes
            if (name == _DPOP and self._offers_dpop) or (name == _BEARER and (error or not required))
        )


def _validate_level(level: str | Level) -> Level:
    if level not in set(Level):
        raise UsageError(
            f"{level!r} is not one of {', '.join(Level)}",
            code="usage.bad-argument",
            hint='Write dpop="supported" or dpop="required".',
        )
    return Level(level)


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
