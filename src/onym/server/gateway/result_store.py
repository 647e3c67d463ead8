"""Results of forms: stored in memory for a while, so that a browser can show and download them.

A result belongs to the browser that requested it. If the store is full, it drops the oldest result of the
client that uses the most space.
"""

from __future__ import annotations

import hmac
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from onym.ai.records import Result

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
        self._taken: Counter[str] = Counter()
        self._kept: OrderedDict[str, StoredResult] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, result: Result, witness: str, owner: str, at: datetime, *, client: str = "") -> str:
        """Store a result and return its random name. `client` is the key of the client's address."""
        name = secrets.token_urlsafe(16)
        until = self._clock() + RESULT_SECONDS
        kept = StoredResult(result=result, witness=witness, owner=owner, client=client, at=at, until=until)
        self._kept[name] = kept
        self._octets += len(result.body)
        self._taken[client] += kept.size
        self._evict_results()
        return name

    def find(self, name: str, owner: str) -> StoredResult | None:
        """Return the result of this name and owner, or None."""
        self._evict_results()
        kept = self._kept.get(name)
        if kept is None or not hmac.compare_digest(kept.owner.encode(), owner.encode()):
            return None
        return kept

    def _evict_results(self) -> None:
        now = self._clock()
        while self._kept and next(iter(self._kept.values())).until <= now:
            self._drop_result(next(iter(self._kept)))
        while len(self._kept) > 1 and (self._octets > self._most_octets or len(self._kept) > self._most):
            greedy = max(self._taken, key=self._taken.__getitem__)
            self._drop_result(next(name for name, result in self._kept.items() if result.client == greedy))

    def _drop_result(self, name: str) -> None:
        gone = self._kept.pop(name)
        self._octets -= len(gone.result.body)
        self._taken[gone.client] -= gone.size
        if not self._taken[gone.client]:
            del self._taken[gone.client]
