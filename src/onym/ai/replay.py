"""What was seen once and must not count again: ids of receipts and nonces (3.10, replay store).

Nothing is forgotten before its time: a full store refuses, since an id that was pushed out could come back.
Kept is a hash of each id, of 16 octets.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import Counter, defaultdict
from typing import Final, Protocol

from onym.ai._replay_file import ReplayFile
from onym.ai._replay_room import MOST, before, full, is_full, key_of

__all__ = ["MOST", "MemoryReplays", "ReplayFile", "Replays"]


class Replays(Protocol):
    """Remembers ids until they are of no use any more. Threads may share one.

    An id may begin with whose it is and a line end: each of these may take a share of the room, and not all.
    """

    @property
    def waits(self) -> bool:
        """Does `seen` wait for a disk, or for others? Coroutines ask in a thread then."""
        ...

    def admit(self, owner: str, *, now: float) -> None:
        """Raises ProvenanceError `aiip.unavailable` where an id of this owner would find no room.

        It is asked before a request goes out, whose answer would not count; it does not wait.
        """
        ...

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """Was this id there already? If not it is from now on, until `until` (seconds since the epoch).

        One step: of two callers at the same time one gets False. Raises ProvenanceError
        `aiip.unavailable` where no more can be kept.
        """
        ...


class MemoryReplays:
    """Ids of this process, about 150 octets for each."""

    #: nothing is waited for
    waits: Final = False

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: set[bytes] = set()
        self._owners: Counter[str] = Counter()
        # second -> owner -> ids that are of no use behind it
        self._ends: dict[int, dict[str, list[bytes]]] = {}
        self._seconds: list[int] = []
        self._lock = threading.Lock()

    def admit(self, owner: str, *, now: float) -> None:
        """As `Replays.admit`."""
        with self._lock:
            self._forget(now)
            self._check(owner, before(self._most))

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """As `Replays.seen`."""
        owner, key = key_of(identity)
        with self._lock:
            self._forget(now)
            if key in self._known:
                return True
            self._check(owner, self._most)
            self._known.add(key)
            self._owners[owner] += 1
            second = math.ceil(until)
            if second not in self._ends:
                self._ends[second] = defaultdict(list)
                heapq.heappush(self._seconds, second)
            self._ends[second][owner].append(key)
        return False

    def _check(self, owner: str, most: int) -> None:
        if is_full(len(self._known), self._owners[owner] if owner else 0, most):
            raise full()

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0] < now:
            for owner, keys in self._ends.pop(heapq.heappop(self._seconds)).items():
                self._known.difference_update(keys)
                self._owners[owner] -= len(keys)
                if not self._owners[owner]:
                    del self._owners[owner]
