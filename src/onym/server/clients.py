"""Clients of a service: their addresses, rate limits and form tokens.

The registry service and the gateway share this module, so it imports nothing of the registry.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from onym._lazy import require_extra
from onym.accounts.records import make_session_id
from onym.common.text import encode_base64url
from onym.net.hosts import Network, get_client_network, parse_address, parse_network
from onym.store.shared import hash_part
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.types import Scope

    from onym.server.gateway.settings import GatewayRates
    from onym.server.settings import RateLimit, RateLimits

_LOG: Final = logging.getLogger("onym.server.rates")
_MAX_HOPS: Final = 32
#: addresses whose forms are kept, because a client sends many requests
_MOST_KEPT: Final = 4096
#: two years
HSTS: Final = ("strict-transport-security", "max-age=63072000; includeSubDomains")


def get_client_address(scope: Scope, proxies: tuple[Network, ...]) -> str | None:
    """Return the client's IP address: the peer's, or the one that trusted proxies give in X-Forwarded-For.

    The field is read from its end, because the client may have written its beginning. A value that is not an
    address ends the search.
    """
    peer = scope.get("client")
    if peer and not proxies:
        return _normalize_address(peer[0])
    address = parse_address(str(peer[0])) if peer else None
    if address is None:
        return None
    fields = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    hops = ",".join(fields).split(",")[-_MAX_HOPS:]
    while hops and any(network.contains_address(address) for network in proxies):
        nearer = parse_address(hops.pop().strip())
        if nearer is None:
            break
        address = nearer
    return str(address)


@lru_cache(_MOST_KEPT)
def _normalize_address(peer: str) -> str | None:
    address = parse_address(peer)
    return None if address is None else str(address)


#: buckets in memory; the least recently used one, which is probably full again, is dropped first
MAX_BUCKETS: Final = 50_000


BucketKind: TypeAlias = Literal["reads", "writes", "logins", "uploads"]


class TokenBuckets:
    """Token buckets by kind and key. `clock` returns monotonic seconds.

    `share` is the part of the limits that this process may use: 1/n if n processes serve the clients.
    """

    def __init__(
        self,
        limits: RateLimits | GatewayRates,
        clock: Callable[[], float],
        *,
        most: int = MAX_BUCKETS,
        share: float = 1.0,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._most = most
        self._share = share
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take_token(self, kind: BucketKind, key: str, *, times: float = 1, cost: float = 1) -> float:
        """Take a token, or `cost` tokens. Return 0, or the seconds until the bucket has them.

        `times` multiplies the bucket's size and rate.
        """
        rate: RateLimit = getattr(self._limits, kind)
        burst = max(1.0, rate.burst * times * self._share)
        per_second = rate.per_minute * times * self._share / 60
        now = self._clock()
        left, since = self._buckets.pop((kind, key), (burst, now))
        left = min(burst, left + (now - since) * per_second)
        wait = 0.0 if left >= cost else (cost - left) / per_second
        self._buckets[kind, key] = (left if wait else left - cost, now)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait


#: seconds for a command, and seconds after a failure for which the store is not asked
_STORE_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 1.0


class SharedRates:
    """Rate limits that all processes of a gateway share, in a Valkey server (library `limits`).

    In any minute a client has at most `burst` and `per_minute` requests together, by a sliding window. While
    the server cannot be reached, this process uses its own buckets with its `share` of the limits, and
    `count_fallback` is called. Without a `url`, it always uses them. Close it in its event loop.
    """

    def __init__(
        self,
        limits: GatewayRates,
        clock: Callable[[], float],
        *,
        url: Secret | None,
        share: float,
        count_fallback: Callable[[], object] = lambda: None,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._local = TokenBuckets(limits, clock, share=share)
        self._storage = None if url is None else _open_rate_storage(url)
        self._failed = float("-inf")
        self._count_fallback = count_fallback

    async def take_token(self, kind: BucketKind, key: str, *, times: int = 1) -> float:
        """Count a request. Return 0, or the seconds until there is room for it; see `TokenBuckets`."""
        if self._storage is None:
            return self._local.take_token(kind, key, times=times)
        if self._clock() - self._failed >= _PAUSE_SECONDS:
            from limits import RateLimitItemPerMinute  # late: only gateways of a fleet need it
            from limits.aio.strategies import SlidingWindowCounterRateLimiter
            from limits.errors import StorageError

            rate: RateLimit = getattr(self._limits, kind)
            item = RateLimitItemPerMinute(
                ceil((rate.burst + rate.per_minute) * times), namespace="onym-rates"
            )
            try:
                good = await SlidingWindowCounterRateLimiter(self._storage).hit(item, kind, hash_part(key))
            except StorageError as error:
                self._failed = self._clock()
                _LOG.warning("rate limits are local now: %s", type(error.storage_error).__name__)
            else:
                return 0.0 if good else 60 / rate.per_minute
        self._count_fallback()
        return self._local.take_token(kind, key, times=times)

    async def close(self) -> None:
        """Close the connections."""
        if self._storage is not None:
            await self._storage.bridge.get_connection().aclose()


def _open_rate_storage(url: Secret) -> Any:
    require_extra("limits", "valkey")
    from limits.aio.storage import RedisStorage  # late: only gateways of a fleet need it

    plain = url.reveal()
    scheme = "async+valkey+unix" if plain.startswith("unix:") else f"async+{plain.partition(':')[0]}"
    return RedisStorage(
        f"{scheme}:{plain.partition(':')[2]}",
        implementation="valkey",
        wrap_exceptions=True,
        key_prefix="onym",
        socket_timeout=_STORE_SECONDS,
        socket_connect_timeout=_STORE_SECONDS,
    )


def parse_blocks(blocks: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks of valid CIDR blocks."""
    return tuple(network for network in map(parse_network, blocks) if network is not None)


def format_cookie(name: str, value: Secret, site: str, *, https: bool, life: int | None = None) -> str:
    """Return a Set-Cookie value. `site` is its SameSite; without `life` in seconds the browser ends it."""
    age = "" if life is None else f"; Max-Age={life}"
    secure = "; Secure" if https else ""
    return f"{name}={value.reveal()}; Path=/; HttpOnly; SameSite={site}{secure}{age}"


@lru_cache(_MOST_KEPT)
def make_address_key(address: str | None) -> str:
    """Return the key of a client's bucket: the IPv4 address or the IPv6 /64 network."""
    return f"address:{get_client_network(address or 'unknown')}"


def make_site_key(address: str | None) -> str:
    """Return a key for everyone at one site: the IPv4 address or the IPv6 /48 network (RFC 6177 2)."""
    found = parse_address(address or "")
    if found is None or found.version == 4:
        return make_address_key(address)
    return f"site:{found.value >> 80:x}/48"


_PURPOSE: Final = b"onym form token v1"


class CSRFKey:
    """The secret from which a browser's form tokens are derived: its session ID or a separate cookie.

    `made` is true if this request created the secret, so that the response must set the cookie.
    """

    __slots__ = ("_secret", "made")

    def __init__(self, secret: Secret | None = None) -> None:
        self._secret = secret
        self.made = False

    def get_secret(self) -> Secret:
        """Return the secret, and create it if necessary."""
        if self._secret is None:
            self._secret = make_session_id()
            self.made = True
        return self._secret

    @property
    def token(self) -> str:
        """The token for this browser's forms, derived from the secret with HMAC."""
        mac = hmac.new(self.get_secret().reveal().encode(), _PURPOSE, hashlib.sha256)
        return encode_base64url(mac.digest())

    def matches_token(self, given: str) -> bool:
        """Is it this browser's token? False if the browser has no secret yet."""
        if self._secret is None:
            return False
        return hmac.compare_digest(self.token.encode(), given.encode("utf-8", "replace"))
