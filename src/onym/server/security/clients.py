"""Clients of a service: their addresses, rate limits and form tokens.

The registry service and the gateway share this module, so it imports nothing of the registry.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from onym.accounts.records import make_session_id
from onym.net.hosts import Network, get_client_network, parse_address, parse_network
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.types import Scope

    from onym.server.gateway.settings import GatewayRates
    from onym.server.settings import RateLimits
    from onym.server.settings_parser import RateLimit

_MAX_HOPS: Final = 32
#: two years
HSTS: Final = ("strict-transport-security", "max-age=63072000; includeSubDomains")


def get_client_address(scope: Scope, proxies: tuple[Network, ...]) -> str | None:
    """Return the client's IP address: the peer's, or the one that trusted proxies give in X-Forwarded-For.

    The field is read from its end, because the client may have written its beginning. A value that is not an
    address ends the search.
    """
    peer = scope.get("client")
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


#: buckets in memory; the least recently used one, which is probably full again, is dropped first
MAX_BUCKETS: Final = 50_000


BucketKind: TypeAlias = Literal["reads", "writes", "logins"]


class TokenBuckets:
    """Token buckets by kind and key. `clock` returns monotonic seconds."""

    def __init__(
        self, limits: RateLimits | GatewayRates, clock: Callable[[], float], *, most: int = MAX_BUCKETS
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take_token(self, kind: BucketKind, key: str, *, times: int = 1) -> float:
        """Take a token. Return 0, or the seconds until the bucket has one.

        `times` multiplies the bucket's size and rate.
        """
        rate: RateLimit = getattr(self._limits, kind)
        burst, per_second = rate.burst * times, rate.per_minute * times / 60
        now = self._clock()
        left, since = self._buckets.pop((kind, key), (float(burst), now))
        left = min(float(burst), left + (now - since) * per_second)
        wait = 0.0 if left >= 1 else (1 - left) / per_second
        self._buckets[kind, key] = (left if wait else left - 1, now)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait


def parse_blocks(blocks: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks of valid CIDR blocks."""
    return tuple(network for network in map(parse_network, blocks) if network is not None)


def format_cookie(name: str, value: Secret, site: str, *, https: bool, life: int | None = None) -> str:
    """Return a Set-Cookie value. `site` is its SameSite; without `life` in seconds the browser ends it."""
    age = "" if life is None else f"; Max-Age={life}"
    secure = "; Secure" if https else ""
    return f"{name}={value.reveal()}; Path=/; HttpOnly; SameSite={site}{secure}{age}"


def make_address_key(address: str | None) -> str:
    """Return the key of a client's bucket: the IPv4 address or the IPv6 /64 network."""
    return f"address:{get_client_network(address or 'unknown')}"


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
        return urlsafe_b64encode(mac.digest()).rstrip(b"=").decode("ascii")

    def matches_token(self, given: str) -> bool:
        """Is it this browser's token? False if the browser has no secret yet."""
        if self._secret is None:
            return False
        return hmac.compare_digest(self.token.encode(), given.encode("utf-8", "replace"))
