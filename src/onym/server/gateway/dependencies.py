"""Dependencies of the gateway's handlers: request context, concurrency limiter and audit record.

Results of forms: stored in memory for a while, so that a browser can show and download them.

A result belongs to the browser that requested it. If the store is full, it drops the oldest result of the
client that uses the most space.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from starlette.requests import ClientDisconnect

from onym.ai.request_validation import get_field_values
from onym.common.concurrency import TOTAL, ConcurrencyLimiter
from onym.errors import AIIPError, ConfigError

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.types import Receive, Scope

    from onym.ai.client import AsyncAIClient
    from onym.ai.gateway.audit import AuditLog
    from onym.ai.records import Result
    from onym.ai.request_validation import Fields
    from onym.server.gateway.settings import GatewaySettings
    from onym.server.security.clients import CSRFKey, TokenBuckets
    from onym.sign.keys import Signer


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """A request in progress. `client` is the key of the client's address, `cookie` the browser's secret.

    `notes` become the audit record. It is written once (then `recorded` is true), if `audited`, and by the
    stream itself if `streaming`.
    """

    scope: Scope
    receive: Receive = field(repr=False)
    id: str
    client: str
    cookie: str | None = field(repr=False)
    form_key: CSRFKey = field(repr=False)
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
        """The path as it was sent, byte for byte."""
        return bytes(self.scope["raw_path"])

    @property
    def query(self) -> bytes:
        """The query as it was sent."""
        return bytes(self.scope["query_string"])

    @property
    def fields(self) -> Fields:
        """The header fields, names in lower case."""
        return self.scope["headers"]  # type: ignore[no-any-return]

    def get_field(self, name: str) -> str | None:
        """Return the first value of a header field."""
        values = get_field_values(self.fields, name.encode("ascii"))
        return values[0].decode("latin-1") if values else None

    @property
    def wants_page(self) -> bool:
        """Is this a browser that should see a page?"""
        accept = self.get_field("accept") or ""
        return "text/html" in accept

    @property
    def trace_id(self) -> str | None:
        """The trace ID of the W3C Trace Context, or None."""
        parts = (self.get_field("traceparent") or "").split("-")
        good = len(parts) == 4 and len(parts[1]) == 32 and parts[1].isalnum() and parts[1].isascii()
        return parts[1] if good else None


def make_limiter(*, total: int, client: int, authority: int) -> ConcurrencyLimiter:
    """Return the limiter for exchanges: all of them, those of one client and those with one authority."""
    return ConcurrencyLimiter({TOTAL: total, "client": client, "authority": authority}, _make_limit_error)


def _make_limit_error(group: str) -> AIIPError:
    return AIIPError(
        "the gateway runs as many exchanges as it allows" + ("" if group == TOTAL else f" for one {group}"),
        code="aiip.unavailable",
        retryable=True,
        hint="Try again in a second.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The services of one gateway. `clock` returns the time in UTC, `jwks` a key set."""

    settings: GatewaySettings
    upstream: AsyncAIClient
    signer: Callable[[], Signer]
    jwks: Callable[[bool], bytes]
    journal: AuditLog | None
    audit_key: bytes
    rates: TokenBuckets
    slots: ConcurrencyLimiter
    results: ResultStore
    clock: Callable[[], datetime]


_LOG: Final = logging.getLogger("onym.server.gateway")


async def read_body(parts: Dependencies, visit: RequestContext) -> bytes:
    """Read the body up to its limit. Raises AIIPError `aiip.too-large`."""
    limit = parts.settings.body_limit
    lengths = get_field_values(visit.fields, b"content-length")
    if lengths and (len(lengths[0]) > 15 or int(lengths[0]) > limit):
        raise _make_too_large_error(limit)
    chunks, size = [], 0
    while True:
        message = await visit.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        size += len(message.get("body", b""))
        if size > limit:
            raise _make_too_large_error(limit)
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def record_exchange(
    parts: Dependencies, visit: RequestContext, event: Literal["begun", "exchange"] = "exchange"
) -> None:
    """Write the audit record of a request about an ai URI. A stream has another record when it begins.

    Raises AIIPError `aiip.unavailable` if the log cannot be written: the request then fails.
    """
    if parts.journal is None or not visit.audited or visit.recorded:
        return
    line = {"event": event, "id": visit.id, "method": visit.scope["method"], **visit.notes}
    try:
        parts.journal.append(line, at=parts.clock())
    except (OSError, ConfigError) as error:
        _LOG.error("request %s: the audit log cannot be written (%s)", visit.id, error)
        raise AIIPError(
            "the audit log cannot be written, so the request was rejected", code="aiip.unavailable"
        ) from error
    visit.recorded = event == "exchange"


def _make_too_large_error(limit: int) -> AIIPError:
    return AIIPError(f"the body is larger than {limit} bytes", code="aiip.too-large")


#: seconds that a result is stored, bytes of all bodies, and the number of results
RESULT_SECONDS: Final = 15 * 60
_MOST_OCTETS: Final = 64 * 1024 * 1024
_MOST: Final = 1_000
#: bytes of a result without its body
_EACH: Final = 8 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """A result with the gateway's receipt, its owner and its expiry (monotonic seconds)."""

    result: Result
    witness: str = field(repr=False)
    owner: str = field(repr=False)
    client: str = field(repr=False)
    at: datetime
    until: float

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return _EACH + len(self.result.body)


class ResultStore:
    """The results of one gateway. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], *, octets: int = _MOST_OCTETS, most: int = _MOST) -> None:
        self._clock = clock
        self._most_octets = octets
        self._most = most
        self._octets = 0
        self._sizes: Counter[str] = Counter()
        self._results: OrderedDict[str, StoredResult] = OrderedDict()

    def __len__(self) -> int:
        return len(self._results)

    def put(self, result: Result, witness: str, owner: str, at: datetime, *, client: str = "") -> str:
        """Store a result and return its random name. `client` is the key of the client's address."""
        name = secrets.token_urlsafe(16)
        until = self._clock() + RESULT_SECONDS
        stored = StoredResult(result=result, witness=witness, owner=owner, client=client, at=at, until=until)
        self._results[name] = stored
        self._octets += len(result.body)
        self._sizes[client] += stored.size
        self._evict_results()
        return name

    def find(self, name: str, owner: str) -> StoredResult | None:
        """Return the result of this name and owner, or None."""
        self._evict_results()
        stored = self._results.get(name)
        if stored is None or not hmac.compare_digest(stored.owner.encode(), owner.encode()):
            return None
        return stored

    def _evict_results(self) -> None:
        now = self._clock()
        while self._results and next(iter(self._results.values())).until <= now:
            self._drop_result(next(iter(self._results)))
        while len(self._results) > 1 and (
            self._octets > self._most_octets or len(self._results) > self._most
        ):
            greedy = max(self._sizes, key=self._sizes.__getitem__)
            self._drop_result(next(name for name, result in self._results.items() if result.client == greedy))

    def _drop_result(self, name: str) -> None:
        dropped = self._results.pop(name)
        self._octets -= len(dropped.result.body)
        self._sizes[dropped.client] -= dropped.size
        if not self._sizes[dropped.client]:
            del self._sizes[dropped.client]
