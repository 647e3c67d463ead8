"""An authorization server, as far as a protected resource must know it: its metadata and its keys (RFC 8414).

All of it is asked for through the guarded transport, one question at a time, and kept for a bounded time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from onym.errors import AIIPError, NetError, SignatureError, URIError, UsageError
from onym.net.messages import HTTPRequest, Origin, Reply, Send
from onym.sign._strict import read_object
from onym.uri.generic import URI

if TYPE_CHECKING:
    from onym.net.transport import AsyncTransport
    from onym.sign.keys import KeySet

__all__ = ["AuthorizationServer", "split_url", "well_known"]

#: seconds that metadata is good; keys say it themselves, within these bounds (aiip 3.9)
_METADATA_GOOD: Final = 3600.0
_KEYS_GOOD: Final = (60.0, 600.0, 86400.0)
#: seconds between two looks for a key that a token names, and after a failure
_RELOAD: Final = 60.0
_RETRY: Final = 5.0
_TIMEOUT: Final = 10.0
_LONGEST_URL: Final = 2048
_MAX_METADATA: Final = 64 * 1024
_PORTS: Final = {"https": 443, "http": 80}
_MAX_AGE: Final = re.compile(r"(?:^|,)\s*max-age\s*=\s*\"?(\d{1,9})\"?\s*(?:,|\Z)", re.IGNORECASE)


class AuthorizationServer:
    """One issuer. `monotonic` gives seconds that only grow. Raises AIIPError `aiip.unavailable` where the
    server cannot be asked or says what cannot be believed; keys are never used beyond their time.
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

    async def keys(self, *, unknown: KeySet | None = None) -> KeySet:
        """The server's keys. `unknown` is the set in which a token's key was not found: ask for a newer one.

        Tokens that name keys at random cause one question a minute, all of them together.
        """
        found = self._kept(unknown)
        if found is not None:
            return found
        async with self._lock:
            # whoever waited may find what the one before fetched
            return self._kept(unknown) or await self._load()

    def _kept(self, unknown: KeySet | None) -> KeySet | None:
        """The keys, unless it is time to ask for newer ones."""
        now = self._clock()
        if self._keys is None or now >= self._keys[0]:
            return None
        renew = self._keys[1] is unknown and now - self._renewed >= _RELOAD
        return None if renew else self._keys[1]

    async def _load(self) -> KeySet:
        now = self._clock()
        if now < self._again:
            raise self._unusable("it could not be asked a moment ago")
        if self._keys is not None and now < self._keys[0]:
            self._renewed = now
        try:
            self._keys = await self._fetch(now)
        except AIIPError:
            # a server that is down is asked again soon, and not by every caller
            self._again = self._clock() + _RETRY
            raise
        return self._keys[1]

    async def _fetch(self, now: float) -> tuple[float, KeySet]:
        from onym.sign.keys import MAX_KEY_SET, read_keys  # late: cryptography is heavy

        reply = await self._get(await self._keys_url(now), "key set", MAX_KEY_SET)
        try:
            return now + _good(reply), read_keys(reply.body)
        except SignatureError as error:
            raise self._unusable("its key set cannot be used") from error

    async def _keys_url(self, now: float) -> str:
        if self._jwks is None or now >= self._jwks[0]:
            url = well_known(self.issuer, "oauth-authorization-server")
            reply = await self._get(url, "metadata", _MAX_METADATA)
            try:
                found = read_object(reply.body, "authorization server metadata")
            except SignatureError as error:
                raise self._unusable("its metadata is no JSON object") from error
            self._jwks = (now + _METADATA_GOOD, self._read(found))
        return self._jwks[1]

    def _read(self, found: dict[str, Any]) -> str:
        # RFC 8414 3.3: the document must name the issuer that was asked, character by character
        if found.get("issuer") != self.issuer:
            raise self._unusable("its metadata names another issuer")
        url = found.get("jwks_uri")
        # plain HTTP only from an issuer that is on plain HTTP, which the policy keeps to this machine
        allowed = ("https://",) if self.issuer.startswith("https://") else ("https://", "http://")
        if not isinstance(url, str) or not url.startswith(allowed):
            raise self._unusable("its metadata has no jwks_uri")
        return url

    async def _get(self, url: str, what: str, limit: int) -> Reply:
        try:
            origin, target = split_url(url)
            request = HTTPRequest(
                method="GET", origin=origin, target=target, headers=(("Accept", "application/json"),)
            )
            reply = await self._transport.send(Send(request, timeout=_TIMEOUT))
        except (NetError, UsageError) as error:
            raise self._unusable(f"its {what} cannot be had") from error
        if reply.status != 200 or len(reply.body) > limit:
            raise self._unusable(f"its {what} cannot be had (status {reply.status})")
        return reply

    def _unusable(self, why: str) -> AIIPError:
        return AIIPError(
            f"the authorization server cannot be used: {why}",
            code="aiip.unavailable",
            clause="RFC 8414 3",
            status=503,
            retryable=True,
            hint="the operator should look at the issuer and at the network policy",
        )


def split_url(url: str) -> tuple[Origin, str]:
    """Origin and target of an http or https URL. Raises UsageError for userinfo, a fragment or no host."""
    try:
        if len(url) > _LONGEST_URL:
            raise _no_url()
        uri = URI.parse(url).normalize()
    except URIError:
        raise _no_url() from None
    host = (uri.host or "").removeprefix("[").removesuffix("]")
    if uri.scheme not in _PORTS or not host or uri.userinfo is not None or uri.fragment is not None:
        raise _no_url()
    query = "" if uri.query is None else f"?{uri.query}"
    scheme = "https" if uri.scheme == "https" else "http"
    port = int(uri.port or _PORTS[scheme])
    if not 0 < port < 65536:
        raise _no_url()
    return Origin("https" if scheme == "https" else "http", host, port), (uri.path or "/") + query


def well_known(identifier: str, name: str) -> str:
    """The metadata URL of an issuer or resource: inserted before its path (RFC 8414 3.1, RFC 9728 3.1)."""
    scheme, _, rest = identifier.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}/.well-known/{name}" + (f"{slash}{path}" if path else "")


def _good(reply: Reply) -> float:
    """Seconds that keys are good: what Cache-Control says, within bounds."""
    least, usual, most = _KEYS_GOOD
    found = _MAX_AGE.search(", ".join(reply.headers.get_all("cache-control")))
    return usual if found is None else min(max(float(found[1]), least), most)


def _no_url() -> UsageError:
    return UsageError(
        "this is no http or https URL with a host, and without userinfo or fragment", code="usage.bad-url"
    )
