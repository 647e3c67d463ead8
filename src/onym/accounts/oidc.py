"""OpenID Connect: the client of a provider (Core 3.1, code flow with PKCE).

The client checks the issuer, and the signature and claims of the ID token, before it returns a person.
"""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from onym.accounts.records import Issuer
from onym.common.strict_json import encode_base64url, parse_json_object
from onym.errors import AccessError, MalformedResponseError, SignatureError, URIError
from onym.net.config import NetConfig
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import HTTPRequest, Origin, Reply, Send, split_url
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport
from onym.uri.generic import URI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.sign.jws import IDToken
    from onym.sign.keys import KeySet

_TIMEOUT: Final = 10.0
_LIMITS: Final = NetLimits(body=512 * 1024, error_body=16 * 1024, connect=5.0)
_Headers: TypeAlias = tuple[tuple[str, str | Secret], ...]


#: seconds until metadata and keys are fetched again
_METADATA_SECONDS: Final = 3600.0
#: seconds between two requests for new keys, whatever key tokens name
_RELOAD: Final = 60.0
_LONGEST_URL: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderMetadata:
    """The members of the discovery document that are used."""

    authorization: str
    token: str
    keys: str
    userinfo: str | None
    #: RFC 9207: every response names its issuer
    names_issuer: bool
    basic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person who signed in. Only `subject` identifies; name and address are for display and notices."""

    subject: str
    name: str | None
    email: str | None


class OIDCProvider:
    """One provider, reached under its own policy and certificate authorities. Redirects are not followed.

    `monotonic` returns seconds, for the age of cached metadata and keys.
    """

    def __init__(self, issuer: Issuer, redirect: str, monotonic: Callable[[], float]) -> None:
        self.issuer = issuer
        self._redirect = redirect
        self._clock = monotonic
        tls = TLSConfig(ca_files=() if issuer.ca_file is None else (issuer.ca_file,))
        policy = Policy.preset("local" if issuer.network == "local" else "trusted")
        self._transport = AsyncTransport(NetConfig(policy=policy, limits=_LIMITS, tls=tls))
        self._lock = asyncio.Lock()
        self._metadata: tuple[float, ProviderMetadata] | None = None
        self._keys: tuple[float, KeySet] | None = None

    async def get_metadata(self) -> ProviderMetadata:
        """Return the discovery document, fetched at most once an hour. Raises NetError, ProviderError."""
        async with self._lock:
            if self._metadata is None or self._clock() - self._metadata[0] > _METADATA_SECONDS:
                url = self.issuer.issuer.rstrip("/") + "/.well-known/openid-configuration"
                reply = await self._send_request("GET", url)
                document = self._parse_object(reply, "discovery document")
                self._metadata = (self._clock(), self._parse_metadata(document))
            return self._metadata[1]

    async def build_authorization_url(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the URL to redirect the browser to (code flow, PKCE with S256: RFC 7636)."""
        endpoint = (await self.get_metadata()).authorization
        query = {
            "response_type": "code",
            "client_id": self.issuer.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self.issuer.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": encode_base64url(hashlib.sha256(verifier.encode("ascii")).digest()),
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def redeem_code(self, code: str, *, nonce: str, verifier: str, at: datetime) -> Person:
        """Return the person who signed in, for the code of a response.

        Raises AccessError if the provider rejects the code, SignatureError for an invalid ID token, NetError
        and ProviderError.
        """
        response = await self._exchange_code(code, verifier)
        token, access = response.get("id_token"), response.get("access_token")
        if not isinstance(token, str) or not isinstance(access, str):
            raise self._make_error("the token response has no id_token or access_token")
        claims = await self._verify_id_token(token, nonce=nonce, at=at, access=access)
        return _parse_person(claims.subject, {**claims.claims, **await self._fetch_userinfo(access, claims)})

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def _parse_metadata(self, document: Mapping[str, Any]) -> ProviderMetadata:
        # Discovery 4.3: the document must name exactly the issuer that was requested
        if document.get("issuer") != self.issuer.issuer:
            raise self._make_error("the discovery document names another issuer")
        if "S256" not in _get_list(document, "code_challenge_methods_supported", "S256"):
            raise self._make_error("the provider does not support PKCE with S256")
        methods = _get_list(document, "token_endpoint_auth_methods_supported", "client_secret_basic")
        return ProviderMetadata(
            authorization=self._parse_endpoint(document, "authorization_endpoint"),
            token=self._parse_endpoint(document, "token_endpoint"),
            keys=self._parse_endpoint(document, "jwks_uri"),
            userinfo=self._parse_endpoint(document, "userinfo_endpoint")
            if "userinfo_endpoint" in document
            else None,
            names_issuer=document.get("authorization_response_iss_parameter_supported") is True,
            basic="client_secret_basic" in methods,
        )

    def _parse_endpoint(self, document: Mapping[str, Any], name: str) -> str:
        url = document.get(name)
        allowed = ("https://", "http://") if self.issuer.network == "local" else ("https://",)
        good = isinstance(url, str) and url.startswith(allowed) and url.isascii() and url.isprintable()
        if not good or len(str(url)) > _LONGEST_URL or set(str(url)) & set(' "<>\\#'):
            raise self._make_error(f"{name} of the discovery document is not an https URL")
        return str(url)

    async def _exchange_code(self, code: str, verifier: str) -> dict[str, Any]:
        known = await self.get_metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "code_verifier": verifier,
        }
        secret = self.issuer.client_secret
        headers: _Headers = ()
        if secret is not None and known.basic:
            headers = (("Authorization", _encode_basic_auth(self.issuer.client_id, secret)),)
        else:
            form["client_id"] = self.issuer.client_id
            if secret is not None:
                form["client_secret"] = secret.reveal()
        headers += (("Content-Type", "application/x-www-form-urlencoded"),)
        reply = await self._send_request("POST", known.token, headers, urlencode(form).encode("ascii"))
        if reply.status in {400, 401, 403}:
            raise AccessError(
                "the provider rejected this sign-in",
                code="accounts.sign-in-failed",
                hint="Sign in again. If it fails again, ask the operator to check the client ID and secret.",
            )
        return self._parse_object(reply, "token response")

    async def _verify_id_token(self, token: str, *, nonce: str, at: datetime, access: str) -> IDToken:
        from onym.sign.jws import verify_id_token  # late: cryptography is heavy

        issuer = self.issuer
        for reload in (False, True):
            keys = await self._get_key_set(reload=reload)
            try:
                return verify_id_token(
                    token,
                    keys,
                    issuer=issuer.issuer,
                    client_id=issuer.client_id,
                    nonce=nonce,
                    at=at,
                    access_token=access,
                )
            except SignatureError as error:
                # the provider may have changed its keys since
                if reload or error.code != "sign.unknown-key":
                    raise
        raise AssertionError  # pragma: no cover - the second round returns or raises

    async def _get_key_set(self, *, reload: bool) -> KeySet:
        from onym.sign.keys import read_keys  # late: cryptography is heavy

        known = await self.get_metadata()
        async with self._lock:
            age = _METADATA_SECONDS + 1 if self._keys is None else self._clock() - self._keys[0]
            if self._keys is None or age > (_RELOAD if reload else _METADATA_SECONDS):
                reply = await self._send_request("GET", known.keys)
                if reply.status != 200:
                    raise self._make_error(f"the request for the keys failed with status {reply.status}")
                self._keys = (self._clock(), read_keys(reply.body))
            return self._keys[1]

    async def _fetch_userinfo(self, access: str, token: IDToken) -> dict[str, Any]:
        """Return more claims if the ID token has no name and the provider has an endpoint (Core 5.3)."""
        endpoint = (await self.get_metadata()).userinfo
        if endpoint is None or token.text("name"):
            return {}
        reply = await self._send_request("GET", endpoint, (("Authorization", Secret(f"Bearer {access}")),))
        claims = self._parse_object(reply, "userinfo response")
        if claims.get("sub") != token.subject:
            raise self._make_error("the userinfo response is about another person")
        return claims

    async def _send_request(self, method: str, url: str, headers: _Headers = (), body: bytes = b"") -> Reply:
        origin, target = self._parse_url(url)
        headers = (("Accept", "application/json"), *headers)
        request = HTTPRequest(method=method, origin=origin, target=target, headers=headers, body=body)
        return await self._transport.send(Send(request, timeout=_TIMEOUT))

    def _parse_url(self, url: str) -> tuple[Origin, str]:
        try:
            uri = URI.parse(url).normalize()
        except URIError:
            raise self._make_error("an endpoint of the discovery document is not a URL") from None
        if uri.scheme not in ("https", "http") or not uri.host or uri.userinfo or uri.fragment is not None:
            raise self._make_error("an endpoint of the discovery document is not an http or https URL")
        return split_url(uri)

    def _parse_object(self, reply: Reply, name: str) -> dict[str, Any]:
        if reply.status != 200:
            raise self._make_error(f"the request for the {name} failed with status {reply.status}")
        try:
            return parse_json_object(reply.body)
        except ValueError as error:
            raise self._make_error(f"the {name} {error}") from None

    def _make_error(self, message: str) -> MalformedResponseError:
        return MalformedResponseError(message, endpoint=f"OpenID provider {self.issuer.id}")


def _get_list(document: Mapping[str, Any], name: str, default: str) -> list[Any]:
    """Return a member that is a list, or a list of the default if there is none."""
    value = document.get(name, [default])
    return value if isinstance(value, list) else []


def _encode_basic_auth(client_id: str, secret: Secret) -> Secret:
    # RFC 6749 2.3.1: both are form-encoded before they are joined
    pair = f"{_quote_form_value(client_id)}:{_quote_form_value(secret.reveal())}"
    return Secret("Basic " + b64encode(pair.encode("ascii")).decode("ascii"))


def _quote_form_value(text: str) -> str:
    return urlencode({"": text})[1:]


def _parse_person(subject: str, claims: Mapping[str, Any]) -> Person:
    names = (claims.get("name"), claims.get("preferred_username"))
    name = next((name for name in names if isinstance(name, str) and name.strip()), None)
    email = claims.get("email")
    # an unverified address may belong to another person
    verified = isinstance(email, str) and claims.get("email_verified") is True
    return Person(subject=subject, name=name, email=email if verified else None)
