"""From a request to a verified result: map, resolve, judge, invoke. Nothing is told that was not verified."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onym.ai.flow import read_description
from onym.ai.gateway import doors, fields
from onym.ai.gateway.audit import path_hash
from onym.ai.gateway.guard import values
from onym.ai.records import Description, Invocation
from onym.errors import AIIPError
from onym.uri.ai_map import from_target

if TYPE_CHECKING:
    from onym.ai.records import Resolution, Result
    from onym.server.gateway.parts import Events, Parts
    from onym.server.gateway.visit import Visit
    from onym.uri.ai import AIURI

__all__ = ["Relay"]

#: seconds that a description is believed, and how many are kept
_BELIEVED: Final = 60.0
_MOST: Final = 1_000
_KEY: Final = re.compile(r'"([!#-\[\]-~]{1,255})"\Z')
_DESCRIPTION: Final = "application/aiip+json"


class Relay:
    """What is asked of the authorities for a gateway's callers. `monotonic` gives seconds that only grow."""

    def __init__(self, parts: Parts, monotonic: Callable[[], float]) -> None:
        self._parts = parts
        self._own = parts.settings.own_hosts
        self._monotonic = monotonic
        self._described: OrderedDict[str, tuple[float, Description]] = OrderedDict()

    def target(self, visit: Visit) -> AIURI:
        """The ai URI that this request's address stands for. Raises AIURIError, DeniedError."""
        uri = from_target(self._parts.settings.prefix, visit.path, visit.query)
        self.note(visit, uri)
        doors.check_loop(uri, self._own)
        return uri

    def note(self, visit: Visit, uri: AIURI) -> None:
        """What of the URI goes into the audit log."""
        key = self._parts.audit_key
        visit.notes |= {
            "authority": uri.authority_text or "_",
            "path": path_hash(key, str(uri.without_query)),
        }

    async def resolve(self, uri: AIURI) -> Resolution:
        """Where the URI leads. Raises what resolution raises."""
        return await self._parts.upstream.resolve(uri)

    async def describe(self, visit: Visit, resolution: Resolution) -> tuple[Description, Result]:
        """What the resource is, as its endpoint signed it."""
        asked = Invocation(
            uri=resolution.uri, method="GET", accept=_DESCRIPTION, headers=self.onward(visit, plain=True)
        )
        result = await self._parts.upstream.exchange(asked, resolution)
        if result.status != 200:
            raise self.refused(result)
        description = read_description(result, str(resolution.uri.without_query))
        self._believe(resolution.uri, description)
        return description, result

    async def get(self, visit: Visit, resolution: Resolution) -> Result:
        """The answer to a caller's own GET."""
        doors.check_authority(resolution, self._own)
        asked = Invocation(
            uri=resolution.uri, method="GET", accept=visit.field("accept"), headers=self.onward(visit)
        )
        return await self._parts.upstream.exchange(asked, resolution)

    async def admit(self, visit: Visit, resolution: Resolution) -> None:
        """Raises DeniedError where this resource may not be invoked through the gateway."""
        doors.check_authority(resolution, self._own)
        known = self._described.get(str(resolution.uri.without_query))
        if known is None or known[0] <= self._monotonic():
            description, _ = await self.describe(visit, resolution)
        else:
            description = known[1]
        doors.check_description(resolution.uri, description)

    def invocation(self, visit: Visit, uri: AIURI, body: bytes) -> Invocation:
        """A caller's own POST. Raises AIIPError for a body without a type and a digest that does not fit."""
        content_type = visit.field("content-type")
        if body and content_type is None:
            raise _bad("a body needs its Content-Type", "RFC 9110 8.3")
        self._check_digest(visit, body)
        return Invocation(
            uri=uri,
            method="POST",
            body=body,
            content_type=content_type if body else None,
            accept=visit.field("accept"),
            headers=self.onward(visit),
            idempotency_key=_key(visit.field("idempotency-key")),
        )

    async def invoke(self, invocation: Invocation, resolution: Resolution) -> Result:
        """The verified answer, whatever its status. It is asked for once."""
        return await self._parts.upstream.exchange(invocation, resolution)

    async def open(self, invocation: Invocation, resolution: Resolution) -> Events:
        """The same, with events as they come."""
        return await self._parts.upstream.exchange_stream(invocation, resolution)

    def refused(self, result: Result) -> AIIPError:
        """The error that a signed answer with a failure's status stands for."""
        from onym.ai.exchange import problem_of

        return problem_of(
            result.status, result.content_type, result.body, result.receipt.subject, signed=True
        )

    def onward(self, visit: Visit, *, plain: bool = False) -> tuple[tuple[str, str], ...]:
        """The fields that go on to the endpoint; `plain` leaves out those of the caller."""
        passed = () if plain else fields.to_upstream(visit.fields)
        return (*passed, ("Via", fields.via(values(visit.fields, b"via"), self._parts.settings.name)))

    def _believe(self, uri: AIURI, description: Description) -> None:
        # its schemas are a stranger's and may be large; what is asked of it later needs none
        small = replace(description, input=None, output=None)
        self._described[str(uri.without_query)] = (self._monotonic() + _BELIEVED, small)
        self._described.move_to_end(str(uri.without_query))
        while len(self._described) > _MOST:
            self._described.popitem(last=False)

    def _check_digest(self, visit: Visit, body: bytes) -> None:
        """A Content-Digest must fit, as at an endpoint (RFC 9530 2); the client makes it anew."""
        from onym.ai.endpoint.guard import check_digest  # late: cryptography is heavy

        given = visit.field("content-digest")
        if given is not None:
            check_digest(given, body)


def _key(text: str | None) -> str | None:
    if text is None:
        return None
    found = _KEY.match(text)
    if found is None:
        raise _bad("Idempotency-Key is a quoted text", "draft-ietf-httpapi-idempotency-key-header-07")
    return found[1]


def _bad(message: str, clause: str) -> AIIPError:
    return AIIPError(message, code="aiip.bad-request", clause=clause)
