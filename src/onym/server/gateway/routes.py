"""Where a request of a gateway goes, by its raw path: an ai URI, a page, the keys, a file, a kept result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from starlette.responses import PlainTextResponse, Response

from onym.ai.codes import CODES
from onym.errors import AIIPError
from onym.server.gateway.draw import STATIC
from onym.server.gateway.record import read_body
from onym.server.gateway.visit import Visit

if TYPE_CHECKING:
    from onym.server.gateway.exchanges import Exchanges
    from onym.server.gateway.parts import Parts
    from onym.server.gateway.site import Site

__all__ = ["Routes"]

_KEY_SECONDS: Final = 600
#: where the pages' forms go
_FORM: Final = b"/invoke"

_Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]


class Routes:
    """The addresses of one gateway."""

    def __init__(self, parts: Parts, site: Site, exchanges: Exchanges) -> None:
        self._parts = parts
        self._site = site
        self._exchanges = exchanges
        self._prefix = parts.settings.prefix.encode("ascii") + b"/"
        self._table: dict[tuple[str, bytes], _Handler] = {
            ("GET", b"/"): self._home,
            ("POST", _FORM): self._invoke,
            ("GET", b"/.well-known/aiip.jwks.json"): self._keys,
        }

    def asks(self, path: bytes) -> bool:
        """Is an authority asked for this path?"""
        return path.startswith(self._prefix) or path == _FORM

    async def answer(self, visit: Visit) -> Response:
        """The answer to this request. Raises OnymError."""
        if visit.path.startswith(self._prefix):
            visit.audited = True
            return await self._exchanges.answer(visit)
        found = self._table.get((visit.method, visit.path))
        if found is not None:
            return await found(visit)
        return self._small(visit)

    def _small(self, visit: Visit) -> Response:
        """Files, kept results, and what a problem's type means."""
        words = visit.path.decode("latin-1").split("/")[1:]
        if visit.method == "GET" and words[0] == "static" and len(words) == 2 and words[1] in STATIC:
            file, kind = STATIC[words[1]]
            headers = {"cache-control": "public, max-age=31536000, immutable"}
            return Response(file.read_bytes(), 200, headers, media_type=kind)
        if visit.method == "GET" and words[0] == "results" and 2 <= len(words) <= 3:
            return self._site.result(visit, words[1], words[2] if len(words) == 3 else "")
        if visit.method == "GET" and words[0] == "problems" and words[-1] in CODES:
            row = CODES[words[-1]]
            return PlainTextResponse(f"{row.title} (code {row.name})\n")
        raise AIIPError("there is nothing at this address", code="aiip.endpoint-unknown")

    async def _home(self, visit: Visit) -> Response:
        return self._site.home(visit)

    async def _keys(self, visit: Visit) -> Response:
        headers = {"cache-control": f"public, max-age={_KEY_SECONDS}"}
        octets = self._parts.jwks(visit.query == b"history")
        return Response(octets, 200, headers, media_type="application/jwk-set+json")

    async def _invoke(self, visit: Visit) -> Response:
        visit.audited = True
        return await self._site.invoke(visit, await read_body(self._parts, visit))
