"""The audit log: every sign-in, and everything that somebody who is signed in sends to be changed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from onym.errors import OnymError
from onym.registry.accounts import AuditRecord
from onym.server.services import Services, state

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["SAFE_METHODS", "Audit", "audit_as"]

#: RFC 9110 9.2.1
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_LONGEST: Final = 200
_LOG: Final = logging.getLogger("onym.server")


def audit_as(
    request: Request, action: str, subject: str | None = None, *, account: str | None = None
) -> None:
    """Name what this request does, for its line in the audit log; before it is tried, so that failures count.

    `account` says who, where nobody was signed in when the request came.
    """
    state(request.scope)["audit"] = (action, subject, account)


class Audit:
    """Writes the line just before the answer goes out, when its outcome is known."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                await self._write(scope, message["status"])
            await send(message)

        await self._app(scope, receive, finish)

    async def _write(self, scope: Scope, status: int) -> None:
        record = self._record(scope, status)
        if record is None:
            return
        try:
            await self._services.store.audit.write(record)
        except OnymError as error:
            # what was done is done, and in the registry's own log: the answer must still go out
            _LOG.error("no audit line for request %s: %s", state(scope).get("request_id"), error.code)

    def _record(self, scope: Scope, status: int) -> AuditRecord | None:
        found = state(scope)
        visitor = found.get("visitor")
        account = visitor.account.id if visitor is not None and visitor.account is not None else None
        named = found.get("audit")
        if named is None:
            # without an account nothing is changed, and strangers must not fill the log
            if account is None or scope["method"] in SAFE_METHODS:
                return None
            named = (f"http.{scope['method'].lower()}"[:_LONGEST], scope["path"], None)
        action, subject, other = named
        code = found.get("code") or f"http.{status}"
        return AuditRecord(
            at=self._services.clock(),
            account=other or account,
            action=action,
            subject=None if subject is None else subject[:_LONGEST],
            outcome="ok" if status < 400 else code,
            address=found.get("address"),
        )
