"""An OpenID provider: what it says of itself, its keys, and what a code is worth (OpenID Connect Core 3.1).

Everything is tested before it is believed: the issuer by name, the ID token by its signature and claims.
"""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from onym.errors import AccessError, MalformedResponseError, SignatureError
from onym.server.auth._fetch import Fetcher
from onym.sign._strict import encode
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from onym.server.settings import Issuer
    from onym.sign.jwt import IDToken
    from onym.sign.keys import KeySet

__all__ = ["Metadata", "Person", "Provider"]

#: seconds that metadata and keys are good
_GOOD: Final = 3600.0
#: seconds between two looks for new keys, whatever tokens name
_RELOAD: Final = 60.0
_LONGEST_URL: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The discovery document, as far as it is used."""

    authorization: str
    token: str
    keys: str
    userinfo: str | None
    #: RFC 9207: every answer names its issuer
    names_issuer: bool
    basic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who signed in. Only `subject` identifies; name and address are for show and for notices."""

    subject: str
    name: str | None
    email: str | None


class Provider:
    """One provider. `monotonic` gives seconds that only grow, for what is kept."""

    def __init__(self, issuer: Issuer, redirect: str, monotonic: Callable[[], float]) -> None:
        self.issuer = issuer
        self._redirect = redirect
        self._clock = monotonic
        self._fetch = Fetcher(issuer)
        self._lock = asyncio.Lock()
        self._metadata: tuple[float, Metadata] | None = None
        self._keys: tuple[float, KeySet] | None = None

    async def metadata(self) -> Metadata:
        """The discovery document; asked for again after an hour. Raises NetError, ProviderError."""
        async with self._lock:
            if self._metadata is None or self._clock() - self._metadata[0] > _GOOD:
                url = self.issuer.issuer.rstrip("/") + "/.well-known/openid-configuration"
                found = self._fetch.object_of(await self._fetch.get(url), "discovery document")
                self._metadata = (self._clock(), self._read(found))
            return self._metadata[1]

    async def authorization(self, *, state: str, nonce: str, verifier: str) -> str:
        """The address to send the browser to (code flow, PKCE with S256: RFC 7636)."""
        endpoint = (await self.metadata()).authorization
        query = {
            "response_type": "code",
            "client_id": self.issuer.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self.issuer.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": encode(hashlib.sha256(verifier.encode("ascii")).digest()),
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def redeem(self, code: str, *, nonce: str, verifier: str, at: datetime) -> Person:
        """Who signed in, for the code of an answer.

        Raises AccessError where the provider refuses the code, SignatureError for an ID token that does not
        hold, NetError and ProviderError.
        """
        answer = await self._exchange(code, verifier)
        token, access = answer.get("id_token"), answer.get("access_token")
        if not isinstance(token, str) or not isinstance(access, str):
            raise self._malformed("the token answer has no id_token or access_token")
        claims = await self._verify(token, nonce=nonce, at=at, access=access)
        return _person(claims.subject, {**claims.claims, **await self._userinfo(access, claims)})

    async def close(self) -> None:
        """Close the connections."""
        await self._fetch.close()

    def _read(self, found: Mapping[str, Any]) -> Metadata:
        # Discovery 4.3: the document must name the issuer that was asked, octet by octet
        if found.get("issuer") != self.issuer.issuer:
            raise self._malformed("the discovery document names another issuer")
        if "S256" not in _listed(found, "code_challenge_methods_supported", "S256"):
            raise self._malformed("the provider does not know PKCE with S256")
        methods = _listed(found, "token_endpoint_auth_methods_supported", "client_secret_basic")
        return Metadata(
            authorization=self._endpoint(found, "authorization_endpoint"),
            token=self._endpoint(found, "token_endpoint"),
            keys=self._endpoint(found, "jwks_uri"),
            userinfo=self._endpoint(found, "userinfo_endpoint") if "userinfo_endpoint" in found else None,
            names_issuer=found.get("authorization_response_iss_parameter_supported") is True,
            basic="client_secret_basic" in methods,
        )

    def _endpoint(self, found: Mapping[str, Any], name: str) -> str:
        url = found.get(name)
        allowed = ("https://", "http://") if self.issuer.network == "local" else ("https://",)
        good = isinstance(url, str) and url.startswith(allowed) and url.isascii() and url.isprintable()
        if not good or len(str(url)) > _LONGEST_URL or set(str(url)) & set(' "<>\\#'):
            raise self._malformed(f"{name} of the discovery document is no https address")
        return str(url)

    async def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        known = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "code_verifier": verifier,
        }
        secret = self.issuer.client_secret
        headers: tuple[tuple[str, str | Secret], ...] = ()
        if secret is not None and known.basic:
            headers = (("Authorization", _basic(self.issuer.client_id, secret)),)
        else:
            form["client_id"] = self.issuer.client_id
            if secret is not None:
                form["client_secret"] = secret.reveal()
        reply = await self._fetch.post(known.token, urlencode(form).encode("ascii"), headers)
        if reply.status in {400, 401, 403}:
            raise AccessError(
                "the provider did not accept this sign-in",
                code="registry.sign-in-failed",
                hint="sign in once more; if it goes on, the operator should look at client id and secret",
            )
        return self._fetch.object_of(reply, "token answer")

    async def _verify(self, token: str, *, nonce: str, at: datetime, access: str) -> IDToken:
        from onym.sign.jwt import verify_id_token  # late: cryptography is heavy

        issuer = self.issuer
        for reload in (False, True):
            keys = await self._key_set(reload=reload)
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
                # the provider may have new keys since they were read
                if reload or error.code != "sign.unknown-key":
                    raise
        raise AssertionError  # pragma: no cover - the second round returns or raises

    async def _key_set(self, *, reload: bool) -> KeySet:
        from onym.sign.keys import read_keys  # late: cryptography is heavy

        known = await self.metadata()
        async with self._lock:
            age = _GOOD + 1 if self._keys is None else self._clock() - self._keys[0]
            if self._keys is None or age > (_RELOAD if reload else _GOOD):
                reply = await self._fetch.get(known.keys)
                if reply.status != 200:
                    raise self._malformed(f"the keys were refused with status {reply.status}")
                self._keys = (self._clock(), read_keys(reply.body))
            return self._keys[1]

    async def _userinfo(self, access: str, token: IDToken) -> dict[str, Any]:
        """More claims, where the ID token has no name and there is an endpoint to ask (Core 5.3)."""
        endpoint = (await self.metadata()).userinfo
        if endpoint is None or token.text("name"):
            return {}
        found = await self._fetch.get(endpoint, bearer=Secret(f"Bearer {access}"))
        claims = self._fetch.object_of(found, "userinfo answer")
        if claims.get("sub") != token.subject:
            raise self._malformed("the userinfo answer is about somebody else")
        return claims

    def _malformed(self, message: str) -> MalformedResponseError:
        return MalformedResponseError(message, endpoint=f"OpenID provider {self.issuer.id}")


def _listed(found: Mapping[str, Any], name: str, default: str) -> list[Any]:
    """A member that is a list; the default alone where it is not there."""
    value = found.get(name, [default])
    return value if isinstance(value, list) else []


def _basic(client_id: str, secret: Secret) -> Secret:
    # RFC 6749 2.3.1: both are form-encoded before they are joined
    pair = f"{_quoted(client_id)}:{_quoted(secret.reveal())}"
    return Secret("Basic " + b64encode(pair.encode("ascii")).decode("ascii"))


def _quoted(text: str) -> str:
    return urlencode({"": text})[1:]


def _person(subject: str, claims: Mapping[str, Any]) -> Person:
    names = (claims.get("name"), claims.get("preferred_username"))
    name = next((each for each in names if isinstance(each, str) and each.strip()), None)
    email = claims.get("email")
    # an address that the provider has not tested may be anybody's
    tested = isinstance(email, str) and claims.get("email_verified") is True
    return Person(subject=subject, name=name, email=email if tested else None)
