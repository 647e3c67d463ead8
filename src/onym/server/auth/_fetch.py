"""JSON from an OpenID provider, over the guarded transport and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from onym.errors import MalformedResponseError, SignatureError, URIError
from onym.net.limits import NetLimits, TLSConfig
from onym.net.messages import HTTPRequest, Origin, Reply, Send
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport
from onym.sign._strict import read_object
from onym.uri.generic import URI

if TYPE_CHECKING:
    from onym.server.settings import Issuer
    from onym.uri.secret import Secret

__all__ = ["Fetcher"]

_TIMEOUT: Final = 10.0
_LIMITS: Final = NetLimits(body=512 * 1024, error_body=16 * 1024, connect=5.0)
_PORTS: Final = {"https": 443, "http": 80}


class Fetcher:
    """Asks one provider. Policy and authorities come from its settings; no redirect is followed."""

    def __init__(self, issuer: Issuer) -> None:
        tls = TLSConfig(ca_files=() if issuer.ca_file is None else (issuer.ca_file,))
        policy = Policy.preset("local" if issuer.network == "local" else "trusted")
        self._transport = AsyncTransport(policy, limits=_LIMITS, tls=tls)
        self._id = issuer.id

    async def get(self, url: str, *, bearer: Secret | None = None) -> Reply:
        """A GET."""
        return await self._send("GET", url, () if bearer is None else (("Authorization", bearer),), b"")

    async def post(self, url: str, form: bytes, headers: tuple[tuple[str, str | Secret], ...]) -> Reply:
        """A POST of a form."""
        kind = ("Content-Type", "application/x-www-form-urlencoded")
        return await self._send("POST", url, (kind, *headers), form)

    def object_of(self, reply: Reply, what: str) -> dict[str, Any]:
        """The JSON object of a 200 reply. Raises MalformedResponseError."""
        if reply.status != 200:
            raise self._malformed(f"the {what} was refused with status {reply.status}")
        try:
            return read_object(reply.body, what)
        except SignatureError as error:
            raise self._malformed(error.message) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def _send(
        self, method: str, url: str, headers: tuple[tuple[str, str | Secret], ...], body: bytes
    ) -> Reply:
        origin, target = self._target(url)
        request = HTTPRequest(
            method=method,
            origin=origin,
            target=target,
            headers=(("Accept", "application/json"), *headers),
            body=body,
        )
        return await self._transport.send(Send(request, timeout=_TIMEOUT))

    def _target(self, url: str) -> tuple[Origin, str]:
        try:
            uri = URI.parse(url).normalize()
        except URIError:
            raise self._malformed("an endpoint is no URL") from None
        scheme: Literal["https", "http"] = "https" if uri.scheme == "https" else "http"
        host = (uri.host or "").removeprefix("[").removesuffix("]")
        if uri.scheme not in _PORTS or not host or uri.userinfo or uri.fragment is not None:
            raise self._malformed("an endpoint is no http or https URL")
        query = "" if uri.query is None else f"?{uri.query}"
        return Origin(scheme, host, int(uri.port or _PORTS[scheme])), (uri.path or "/") + query

    def _malformed(self, message: str) -> MalformedResponseError:
        return MalformedResponseError(message, endpoint=f"OpenID provider {self._id}")
