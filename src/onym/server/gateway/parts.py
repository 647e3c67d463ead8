"""What the handlers of one gateway share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from onym.ai.gateway.journal import Journal
    from onym.ai.records import Invocation, Resolution, Result
    from onym.net.sse import SSEEvent
    from onym.server.gateway.settings import GatewaySettings
    from onym.server.gateway.shelf import Shelf
    from onym.server.gateway.slots import Slots
    from onym.server.security.rates import Rates
    from onym.sign.keys import Signer
    from onym.uri.ai import AIURI

__all__ = ["Events", "Parts", "Upstream"]


class Events(Protocol):
    """The events of an answer, provisional until `result` is there; `onym.ai` has one."""

    @property
    def result(self) -> Result:
        """The verified result, at its end. Raises ProvenanceError before."""
        ...

    def __aiter__(self) -> AsyncIterator[SSEEvent]: ...

    async def __aenter__(self) -> Self: ...

    async def close(self) -> None:
        """Read no more of it."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Upstream(Protocol):
    """Who asks the authorities and verifies what they answer: an `onym.ai.AsyncAIClient`."""

    async def resolve(self, uri: AIURI) -> Resolution:
        """Where the URI leads."""
        ...

    async def exchange(self, invocation: Invocation, resolution: Resolution) -> Result:
        """The verified answer, whatever its status."""
        ...

    async def exchange_stream(self, invocation: Invocation, resolution: Resolution) -> Events:
        """The same, with the events of a stream as they come."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One gateway's parts. `clock` gives the time in UTC, `jwks` its key sets, `audit_key` hashes paths."""

    settings: GatewaySettings
    upstream: Upstream
    signer: Callable[[], Signer]
    jwks: Callable[[bool], bytes]
    journal: Journal | None
    audit_key: bytes
    rates: Rates
    slots: Slots
    shelf: Shelf
    clock: Callable[[], datetime]
