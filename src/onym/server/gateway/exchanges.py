"""Requests about an ai URI: what comes back of them, whole or as events, recorded before it is released."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from onym.ai.gateway.fields import media_type
from onym.errors import AIIPError
from onym.server.gateway.answers import TRANSLATED, Begun, result_answer, stream_answer
from onym.server.gateway.record import read_body, record

if TYPE_CHECKING:
    from onym.ai.records import Result
    from onym.server.gateway.parts import Parts
    from onym.server.gateway.relay import Relay
    from onym.server.gateway.site import Site
    from onym.server.gateway.visit import Visit

__all__ = ["Exchanges"]

_ALLOW: Final = "GET, HEAD, POST, OPTIONS"
_EVENTS: Final = "text/event-stream"


class Exchanges:
    """Answers what is below the gateway's prefix."""

    def __init__(self, parts: Parts, relay: Relay, site: Site) -> None:
        self._parts = parts
        self._relay = relay
        self._site = site

    async def answer(self, visit: Visit) -> Response:
        """The answer to this request. Raises OnymError."""
        uri = self._relay.target(visit)
        if visit.method == "OPTIONS":
            visit.audited = False
            return Response(None, 204, {"allow": _ALLOW, "accept-post": "*/*"})
        if visit.method not in {"GET", "POST"}:
            raise AIIPError("this method is not for ai URIs", code="aiip.method-not-allowed")
        body = await read_body(self._parts, visit) if visit.method == "POST" else b""
        with ExitStack() as stack:
            stack.enter_context(self._parts.slots.take(visit.client, uri.authority_text or ""))
            if visit.method == "GET" and visit.wants_page:
                return await self._site.resource(visit, uri)
            resolution = await self._relay.resolve(uri)
            if visit.method == "GET":
                return self._whole(visit, await self._relay.get(visit, resolution))
            invocation = self._relay.invocation(visit, uri, body)
            await self._relay.admit(visit, resolution)
            if _EVENTS not in (visit.field("accept") or ""):
                return self._whole(visit, await self._relay.invoke(invocation, resolution))
            stream = await self._relay.open(invocation, resolution)
            rest = aiter(stream)
            try:
                first = await anext(rest, None)
                if first is None and media_type(stream.result.content_type) != _EVENTS:
                    return self._whole(visit, stream.result)
                # before its first octet: whoever leaves early has seen events all the same
                visit.notes |= {"decision": "provisional", "status": 200}
                record(self._parts, visit, "begun")
            except BaseException:
                await stream.close()
                raise
            visit.streaming = True
            begun = Begun(stream, first, rest, lambda: record(self._parts, visit))
            return stream_answer(self._parts, visit, begun, self._after(visit, stack.pop_all()))

    def _after(self, visit: Visit, stack: ExitStack) -> Callable[[], None]:
        """What is done when a stream is over."""

        def over() -> None:
            # what cannot be recorded now was refused already, or has only begun by its line
            with stack, suppress(AIIPError):
                record(self._parts, visit)

        return over

    def _whole(self, visit: Visit, result: Result) -> Response:
        """A result that is there; statuses that mean another thing from a gateway become its own problem."""
        strange = result.status in TRANSLATED or (result.status >= 400 and visit.wants_page)
        if strange or (300 <= result.status < 400 and result.status != 304):
            raise self._relay.refused(result)
        return result_answer(self._parts, visit, result)
