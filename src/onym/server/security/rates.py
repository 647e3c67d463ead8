"""Rate limits: a token bucket for each account, token or address, in bounded memory."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from starlette.requests import Request

from onym.errors import RegistryError
from onym.net.addresses import client_network
from onym.server.problems import problem
from onym.server.security.audit import SAFE_METHODS
from onym.server.security.visitor import Visitor, current
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from onym.server.settings import Rate
    from onym.server.settings import Rates as Limits

__all__ = ["MOST_BUCKETS", "Limiter", "Rates", "address_key"]

#: buckets kept; the one longest unused goes first, and has mostly filled up again by then
MOST_BUCKETS: Final = 50_000
Sort: TypeAlias = Literal["reads", "writes", "logins"]


class Rates:
    """Token buckets by sort and key. `clock` gives seconds that only grow."""

    def __init__(self, limits: Limits, clock: Callable[[], float], *, most: int = MOST_BUCKETS) -> None:
        self._limits = limits
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, sort: Sort, key: str, *, times: int = 1) -> float:
        """Take one from the bucket: 0 where there was one, else the seconds until there is.

        `times` makes the bucket so much larger and faster.
        """
        rate: Rate = getattr(self._limits, sort)
        burst, per_second = rate.burst * times, rate.per_minute * times / 60
        now = self._clock()
        left, since = self._buckets.pop((sort, key), (float(burst), now))
        left = min(float(burst), left + (now - since) * per_second)
        wait = 0.0 if left >= 1 else (1 - left) / per_second
        self._buckets[sort, key] = (left if wait else left - 1, now)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait


class Limiter:
    """Answers 429 with Retry-After (RFC 6585 4) where a visitor asks for more than its share."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        sort: Sort = "reads" if scope["method"] in SAFE_METHODS else "writes"
        wait = services(request).rates.take(sort, _key(current(request)))
        if wait:
            await too_many(request, wait)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def too_many(request: Request, wait: float) -> ASGIApp:
    """The answer 429. `wait` is in seconds."""
    seconds = max(1, math.ceil(wait))
    error = RegistryError(
        "too many requests in a short time", code="http.too-many-requests", hint=f"wait {seconds} seconds"
    )
    return problem(request, error, headers={"retry-after": str(seconds)})


def address_key(address: str | None) -> str:
    """What one client's addresses have in common: an IPv6 network has 2^64 of them for free."""
    return f"address:{client_network(address or 'unknown')}"


def _key(visitor: Visitor) -> str:
    if visitor.token is not None:
        return f"token:{visitor.token.id}"
    if visitor.account is not None:
        return f"account:{visitor.account.id}"
    return address_key(visitor.address)
