"""How many invocations run at one time: in all, and for one caller. Nobody waits in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onym.errors import AIIPError
from onym.net.addresses import client_network

if TYPE_CHECKING:
    from onym.ai.endpoint.context import Caller
    from onym.ai.endpoint.limits import Limits

__all__ = ["Places", "caller_key"]


class Places:
    """Counts what runs, by `Limits.concurrent` and `Limits.share`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taken: Counter[str] = Counter()
        self._running = 0

    def __len__(self) -> int:
        return self._running

    def take(self, who: str) -> Callable[[], None]:
        """A place for this caller, given back by the first call of what is returned.

        Raises AIIPError `aiip.unavailable` where all are taken, `aiip.too-many-requests` where the caller has
        its share.
        """
        if self._running >= self._limits.concurrent:
            raise AIIPError(
                "too many invocations run at this moment", code="aiip.unavailable", retryable=True
            )
        if self._taken[who] >= self._limits.of_one_caller:
            raise AIIPError(
                "too many invocations of this caller run at this moment",
                code="aiip.too-many-requests",
                retryable=True,
                hint="wait for one to end; a stream counts until it has been read",
            )
        self._taken[who] += 1
        self._running += 1
        held = True

        def give() -> None:
            nonlocal held
            if held:
                held = False
                self._give(who)

        return give

    def _give(self, who: str) -> None:
        self._running -= 1
        self._taken[who] -= 1
        if not self._taken[who]:
            del self._taken[who]


def caller_key(caller: Caller, peer: Any) -> str:
    """Whose share it is: the client's that a token names, else that of a network address.

    `peer` is `client` of the ASGI scope: all who come by a socket without addresses are one.
    """
    if caller.client_id is not None:
        return f"client {caller.client_id}"
    return f"address {client_network(str(peer[0]) if peer else '')}"
