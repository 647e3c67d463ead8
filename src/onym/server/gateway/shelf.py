"""Results that were asked for with a form, kept a while: to be looked at, and taken home with their receipts.

They lie in memory, each for the browser that asked; the oldest goes when it is old, or when space runs out.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from onym.ai.records import Result

__all__ = ["Kept", "Shelf"]

#: seconds that a result is kept, octets of all bodies, and how many
KEPT_SECONDS: Final = 15 * 60
_MOST_OCTETS: Final = 64 * 1024 * 1024
_MOST: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One result, with the gateway's own receipt, for whom it is, and until when it stays (monotonic)."""

    result: Result
    witness: str = field(repr=False)
    owner: str = field(repr=False)
    at: datetime
    until: float


class Shelf:
    """The results of one gateway. `clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float], *, octets: int = _MOST_OCTETS, most: int = _MOST) -> None:
        self._clock = clock
        self._most_octets = octets
        self._most = most
        self._octets = 0
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, result: Result, witness: str, owner: str, at: datetime) -> str:
        """Keep it, and return the name that nobody can guess."""
        name = secrets.token_urlsafe(16)
        self._kept[name] = Kept(
            result=result, witness=witness, owner=owner, at=at, until=self._clock() + KEPT_SECONDS
        )
        self._octets += len(result.body)
        self._sweep()
        return name

    def find(self, name: str, owner: str) -> Kept | None:
        """What was kept under this name for this owner; None for anything else, whatever the reason."""
        self._sweep()
        kept = self._kept.get(name)
        if kept is None or not hmac.compare_digest(kept.owner.encode(), owner.encode()):
            return None
        return kept

    def _sweep(self) -> None:
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept.values()))
            full = self._octets > self._most_octets or len(self._kept) > self._most
            if oldest.until > now and not (full and len(self._kept) > 1):
                return
            self._octets -= len(oldest.result.body)
            self._kept.popitem(last=False)
