"""One request and what is known of it: who came, what is noted for the audit log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onym.ai.gateway.guard import values

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

    from onym.ai.gateway.guard import Fields
    from onym.server.security.visitor import FormKey

__all__ = ["Visit"]


@dataclass(slots=True, kw_only=True)
class Visit:
    """A request on its way. `client` is what its address has in common with others of the same client.

    `cookie` is the secret that the browser has already. `notes` become the line of the audit
    log; it is written where `audited`, by the stream itself where `streaming`, and once: then it is
    `recorded`.
    """

    scope: Scope
    receive: Receive = field(repr=False)
    id: str
    client: str
    cookie: str | None = field(repr=False)
    form_key: FormKey = field(repr=False)
    notes: dict[str, Any] = field(default_factory=dict)
    audited: bool = False
    streaming: bool = False
    recorded: bool = False

    @property
    def method(self) -> str:
        """The method; HEAD is a GET whose body is not sent."""
        return "GET" if self.scope["method"] == "HEAD" else str(self.scope["method"])

    @property
    def path(self) -> bytes:
        """The path as it was sent, octet by octet."""
        return bytes(self.scope["raw_path"])

    @property
    def query(self) -> bytes:
        """The query as it was sent."""
        return bytes(self.scope["query_string"])

    @property
    def fields(self) -> Fields:
        """The header fields, names in lower case."""
        return self.scope["headers"]  # type: ignore[no-any-return]

    def field(self, name: str) -> str | None:
        """The first value of a header field."""
        found = values(self.fields, name.encode("ascii"))
        return found[0].decode("latin-1") if found else None

    @property
    def wants_page(self) -> bool:
        """Is this a browser that should see a page?"""
        accept = self.field("accept") or ""
        return "text/html" in accept

    @property
    def trace(self) -> str | None:
        """The trace id of W3C Trace Context, where one came."""
        parts = (self.field("traceparent") or "").split("-")
        good = len(parts) == 4 and len(parts[1]) == 32 and parts[1].isalnum() and parts[1].isascii()
        return parts[1] if good else None
