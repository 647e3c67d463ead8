"""What was seen once and must not count again: ids of receipts and nonces (3.10, replay store).

Nothing is forgotten before its time: a full store refuses, since an id that was pushed out could come back.
"""

from __future__ import annotations

import heapq
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

from onym.errors import ProvenanceError

__all__ = ["MemoryReplays", "ReplayFile", "Replays"]

#: ids kept at one time, and the share of them that one authority may take: it must not lock out the others
MOST: Final = 200_000
_SHARE: Final = 2
_LONGEST: Final = 1_024
_BUSY_SECONDS: Final = 5.0
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS seen_until ON seen (until);"
)


class Replays(Protocol):
    """Remembers ids until they are of no use any more. Threads may share one.

    An id may begin with whose it is and a line end: each of these may take a share of the room, and not all.
    """

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """Was this id there already? If not it is from now on, until `until` (seconds since the epoch).

        One step: of two callers at the same time one gets False. Raises ProvenanceError
        `aiip.unavailable` where no more can be kept.
        """
        ...


class MemoryReplays:
    """Ids of this process."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: set[str] = set()
        self._owners: Counter[str] = Counter()
        self._ends: list[tuple[float, str]] = []
        self._lock = threading.Lock()

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """As `Replays.seen`."""
        _check(identity)
        owner = _owner(identity)
        with self._lock:
            self._forget(now)
            if identity in self._known:
                return True
            if len(self._known) >= self._most or (owner and self._owners[owner] >= _share(self._most)):
                raise _full()
            self._known.add(identity)
            self._owners[owner] += 1
            heapq.heappush(self._ends, (until, identity))
        return False

    def _forget(self, now: float) -> None:
        while self._ends and self._ends[0][0] < now:
            _, identity = heapq.heappop(self._ends)
            self._known.discard(identity)
            owner = _owner(identity)
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]


class ReplayFile:
    """Ids in a SQLite file, which processes may share. A missing one is made, for its owner alone."""

    def __init__(self, path: str | Path, most: int = MOST) -> None:
        self._path = Path(path)
        self._most = most
        self._path.touch(mode=0o600)
        self._path.chmod(0o600)  # whoever takes an id out makes its receipt count again
        with closing(self._open()) as database:
            database.executescript(_TABLE)

    def seen(self, identity: str, until: float, *, now: float) -> bool:
        """As `Replays.seen`; `aiip.unavailable` where the file cannot be used, too."""
        _check(identity)
        try:
            return self._seen(identity, until, now)
        except sqlite3.Error as error:
            raise _unusable(error) from error

    def _seen(self, identity: str, until: float, now: float) -> bool:
        with closing(self._open()) as database:
            database.execute("BEGIN IMMEDIATE")
            with database:
                database.execute("DELETE FROM seen WHERE until < ?", (now,))
                known = database.execute("SELECT 1 FROM seen WHERE id = ?", (identity,)).fetchone()
                if known:
                    return True
                if self._is_full(database, _owner(identity)):
                    raise _full()
                database.execute("INSERT INTO seen VALUES (?, ?)", (identity, until))
        return False

    def _is_full(self, database: sqlite3.Connection, owner: str) -> bool:
        total = int(database.execute("SELECT count(*) FROM seen").fetchone()[0])
        if not owner or total < _share(self._most):
            return total >= self._most
        (own,) = database.execute(
            "SELECT count(*) FROM seen WHERE id BETWEEN ? AND ?", (f"{owner}\n", f"{owner}\n\U0010ffff")
        ).fetchone()
        return total >= self._most or int(own) >= _share(self._most)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)


def _check(identity: str) -> None:
    if len(identity) > _LONGEST:
        raise ProvenanceError("the id of the receipt is too long", clause="AIIP/HTTPS v1 3.8 step 6")


def _owner(identity: str) -> str:
    """The anchor that an id begins with, on a line of its own; "" where there is none."""
    return identity.rpartition("\n")[0]


def _share(most: int) -> int:
    return max(1, most // _SHARE)


def _full() -> ProvenanceError:
    return ProvenanceError(
        "no more receipts can be told apart just now",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="try again in some minutes, or allow more",
    )


def _unusable(error: sqlite3.Error) -> ProvenanceError:
    busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
    why = "another process keeps it busy" if busy else str(error)
    return ProvenanceError(
        f"the file of receipts that were seen cannot be used: {why}",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        retryable=True,
        hint="try again" if busy else "is there room on the disk, and is the file one of Onym's?",
    )
