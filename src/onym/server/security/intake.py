"""What is turned away before anything is looked at: other hosts, long addresses, large bodies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from onym.errors import RegistryError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from onym.server.settings import Settings

__all__ = ["LONGEST_ADDRESS", "LONGEST_HEADERS", "Intake"]

#: octets of path and query
LONGEST_ADDRESS: Final = 8 * 1024
#: octets of all header fields
LONGEST_HEADERS: Final = 64 * 1024
_LENGTH: Final = re.compile(rb"[0-9]{1,15}\Z")


class Intake:
    """Checks Host, address, headers and the size of the body, as it arrives."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = frozenset(settings.allowed_hosts)
        self._limit = settings.body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Raises RegistryError with the codes `http.wrong-host`, `http.too-large`, ..."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._check_head(scope)
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limit:
                raise self._too_large()
            return message

        await self._app(scope, counted, send)

    def _check_head(self, scope: Scope) -> None:
        headers = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self._hosts:
            raise RegistryError("this host is not served here", code="http.wrong-host", field="Host")
        path = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
        if len(path) + len(scope["query_string"]) > LONGEST_ADDRESS:
            raise RegistryError(
                f"path and query are longer than {LONGEST_ADDRESS} octets", code="http.address-too-long"
            )
        if sum(len(name) + len(value) for name, value in headers) > LONGEST_HEADERS:
            raise RegistryError("the header fields are too long", code="http.too-large", field="headers")
        lengths = [value for name, value in headers if name == b"content-length"]
        if any(not _LENGTH.match(value) or int(value) > self._limit for value in lengths):
            raise self._too_large()

    def _too_large(self) -> RegistryError:
        return RegistryError(
            f"the body is larger than {self._limit} octets", code="http.too-large", field="body"
        )
