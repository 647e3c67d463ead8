"""What a gateway takes of a request, and what it writes down of it: the body, the line of the audit log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Literal

from starlette.requests import ClientDisconnect

from onym.ai.gateway.guard import values
from onym.errors import AIIPError, ConfigError

if TYPE_CHECKING:
    from onym.server.gateway.parts import Parts
    from onym.server.gateway.visit import Visit

__all__ = ["read_body", "record"]

_LOG: Final = logging.getLogger("onym.server.gateway")


async def read_body(parts: Parts, visit: Visit) -> bytes:
    """The body, as far as it may go. Raises AIIPError `aiip.too-large`."""
    limit = parts.settings.body_limit
    told = values(visit.fields, b"content-length")
    if told and (len(told[0]) > 15 or int(told[0]) > limit):
        raise _too_large(limit)
    chunks, taken = [], 0
    while True:
        message = await visit.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        taken += len(message.get("body", b""))
        if taken > limit:
            raise _too_large(limit)
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def record(parts: Parts, visit: Visit, event: Literal["begun", "exchange"] = "exchange") -> None:
    """One line of the audit log, for a request about an ai URI; a stream has one when it begins, too.

    Raises AIIPError `aiip.unavailable`: a log that cannot be written stops what it should record.
    """
    if parts.journal is None or not visit.audited or visit.recorded:
        return
    line = {"event": event, "id": visit.id, "method": visit.scope["method"], **visit.notes}
    try:
        parts.journal.append(line, at=parts.clock())
    except (OSError, ConfigError) as error:
        _LOG.error("request %s: the audit log cannot be written (%s)", visit.id, error)
        raise AIIPError("this cannot be recorded now", code="aiip.unavailable") from error
    visit.recorded = event == "exchange"


def _too_large(limit: int) -> AIIPError:
    return AIIPError(f"the body is larger than {limit} octets", code="aiip.too-large")
