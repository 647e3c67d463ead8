"""Stored answers: one SQLite file, bounded by size and age, shared by threads and processes.

A broken store never fails a call. An entry that cannot be read is a miss, an entry that cannot be written
is not stored, and `trouble` is called once with the reason.
"""

from __future__ import annotations

import concurrent.futures
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import finalize

import msgspec

from onym.common import platform
from onym.llm.types import NO_HEADERS, OPERATIONS, Answer, Completion
from onym.net.messages import Headers, Wait, Work

if TYPE_CHECKING:
    import sqlite3

    from onym.net.messages import Flow
    from onym.uri.secret import Secret

KEY_LENGTH = 32
_STEM, _SUFFIX = "responses.", ".sqlite3"
#: prefixes of the names of all files here
_OWN_PREFIXES = ("key", "locks", _STEM)
#: suffixes of a data file and of SQLite's files beside it
_FILE_ENDINGS = ("", "-wal", "-shm", "-journal")


def make_folder(folder: Path) -> None:
    """Create the folder for its owner only. Raises OSError, also if it belongs to another user.

    If other users could write to it until now, their files are removed: a key that they know, and answers
    sealed with it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if not platform.is_owned_by_user(state):
        raise PermissionError(errno.EPERM, "the folder belongs to another user")
    if platform.is_open_to_others(state):
        folder.chmod(0o700)
        for path in folder.iterdir():
            with suppress(FileNotFoundError):  # another process does it too
                if path.name.startswith(_OWN_PREFIXES) and not _is_own(path):
                    path.unlink()


def _is_own(path: Path) -> bool:
    """Whether the file belongs to this user and no other user may write to it."""
    state = path.lstat()
    return (
        stat.S_ISREG(state.st_mode)
        and platform.is_owned_by_user(state)
        and not platform.is_writable_by_others(state)
    )


def load_key(folder: Path) -> bytes:
    """Return the random key beside the data, created on first use. Two processes at once agree on one."""
    path = folder / "key"
    with suppress(FileNotFoundError):
        key = path.read_bytes()
        if len(key) == KEY_LENGTH:
            return key
        path.unlink(missing_ok=True)
    fresh = folder / f"key.{os.getpid()}.{token_hex(8)}"
    with os.fdopen(open_private(fresh), "wb") as file:
        file.write(os.urandom(KEY_LENGTH))
    try:
        with suppress(FileExistsError):
            os.link(fresh, path)  # complete, and never in place of another process's key
    finally:
        fresh.unlink()
    return path.read_bytes()


def open_private(path: Path) -> int:
    """Open a file that only its owner may read, and create it if it is missing; follow no link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | platform.NO_FOLLOW, 0o600)


def list_data_files(folder: Path) -> dict[int, Path]:
    """Return the data files by number."""
    paths = {path.name[len(_STEM) : -len(_SUFFIX)]: path for path in folder.glob(f"{_STEM}*{_SUFFIX}")}
    return {int(number): path for number, path in paths.items() if number.isascii() and number.isdigit()}


def create_data_file(folder: Path, number: int) -> Path:
    """Return the data file with this number, created empty and private if it is missing."""
    path = folder / f"{_STEM}{number}{_SUFFIX}"
    os.close(open_private(path))
    return path


def remove_data_file(path: Path) -> None:
    """Remove a data file with SQLite's other files. Its name is never used again: others may have it open."""
    for end in _FILE_ENDINGS:
        with suppress(OSError):
            path.with_name(path.name + end).unlink(missing_ok=True)


class ByteLocks:
    """Locks between processes in one file: every lock is the byte at an offset.

    A lock ends with its process at the latest. It does not exclude threads of the same process.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "locks"
        self._file: tuple[int, int] | None = None

    def acquire(self, offset: int) -> bool:
        """Return whether this process has the lock now. Raises OSError if the file system has no locks."""
        return platform.try_lock_byte(self._open_descriptor(), offset)

    def release(self, offset: int) -> None:
        """Release the lock."""
        with suppress(OSError):
            platform.unlock_byte(self._open_descriptor(), offset)

    def _open_descriptor(self) -> int:
        # never closed: closing any descriptor of the file releases all locks of this process
        if self._file is None or self._file[0] != os.getpid():
            self._file = os.getpid(), open_private(self._path)
        return self._file[1]


A = TypeVar("A", bound=Answer)

#: changes with the meaning of what is stored; it is part of every key
FORMAT: Final = 2
#: the finish reasons of answers that are stored; a filtered or broken answer is requested again
_STORED_REASONS: Final = frozenset({"stop", "length", "tool_calls"})


#: the member of a stored record for an answer of this class
_MEMBERS: Final = {row.result: row.name for row in OPERATIONS.values() if row.cacheable}
#: a record of the store: the format, and one answer as the member of its operation
_StoredAnswer: Any = msgspec.defstruct(
    "_StoredAnswer",
    [("format", int), *((name, kind | None, None) for kind, name in _MEMBERS.items())],
    frozen=True,
    forbid_unknown_fields=True,
)
_DECODER: Final = msgspec.json.Decoder(_StoredAnswer, dec_hook=lambda *_: NO_HEADERS)


def encode_answer(answer: Answer, secrets: Iterable[Secret] = ()) -> bytes | None:
    """Return the bytes to store; None if the answer is not worth storing, or contains one of `secrets`."""
    if isinstance(answer, Completion) and answer.finish_reason not in _STORED_REASONS:
        return None
    record = _StoredAnswer(format=FORMAT, **{_MEMBERS[type(answer)]: answer})
    try:
        content = _ENCODER.encode(record)
    except (TypeError, ValueError, OverflowError):
        return None
    quoted = (msgspec.json.encode(secret.reveal())[1:-1] for secret in secrets)
    return None if any(text in content for text in quoted) else content


def decode_answer(content: bytes, kind: type[A]) -> A | None:
    """Return the answer in these bytes; None if they contain no answer of this class."""
    try:
        record = _DECODER.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    answer = getattr(record, _MEMBERS[kind])
    return answer if record.format == FORMAT and isinstance(answer, kind) else None


def _encode_special(value: Any) -> Any:
    if isinstance(value, Headers):
        return None  # they belong to the response that came, and may contain cookies
    try:
        return list(value)  # vectors may be arrays
    except TypeError:
        raise TypeError(f"a {type(value).__name__} cannot be stored") from None


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_encode_special)


T = TypeVar("T")

#: seconds to wait for another process's write
_PATIENCE: Final = 2.0
#: seconds between two updates of the time when an entry was used
_USE_INTERVAL: Final = 60.0
#: the share of the largest size that stays after an eviction
_KEPT_SHARE: Final = 0.9
#: bytes of a row without its value, approximately
_ROW_OVERHEAD: Final = 120
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    key BLOB PRIMARY KEY, made REAL NOT NULL, used REAL NOT NULL, seal BLOB NOT NULL, value BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_use ON entries (used, key);
CREATE INDEX IF NOT EXISTS by_age ON entries (made);
"""
#: the least recently used entries beyond so many bytes
_SURPLUS: Final = """
DELETE FROM entries WHERE key IN (SELECT key FROM (
    SELECT key, SUM(length(value) + ?) OVER (ORDER BY used DESC, key) AS running FROM entries
) WHERE running > ?)
"""
#: "onym" in ASCII and a number for this kind of file
_APPLICATION_ID: Final = 0x6F6E7963


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The size of the store: bytes in use, and the times of the oldest and the newest entry (seconds)."""

    entries: int = 0
    octets: int = 0
    oldest: float | None = None
    newest: float | None = None


class AnswerStore:
    """The store in `folder`: at most about `size` bytes, no entry older than `age` seconds."""

    def __init__(
        self,
        folder: Path,
        *,
        size: int,
        age: float,
        clock: Callable[[], float] = time.time,
        trouble: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self._size = size
        self._age = age
        self._clock = clock
        self._trouble = trouble
        self._lock = RLock()
        self._key: bytes | None = None
        self._number = 0
        self._open: tuple[int, sqlite3.Connection, finalize[Any, Any]] | None = None

    def load_key(self) -> bytes | None:
        """Return the random key of the store, None if it is not available."""
        if self._key is None:
            with self._lock:
                self._key = self._run_guarded(lambda _: load_key(self.folder), None)
        return self._key

    def get(self, key: bytes) -> bytes | None:
        """Return the value of this key if it is stored, intact and young enough."""
        return self._run_guarded(lambda db: self._select_entry(db, key), None)

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value, and remove the least recently used ones if there is no room."""
        if len(value) + _ROW_OVERHEAD <= self._size * _KEPT_SHARE:
            self._run_guarded(lambda db: self._insert_entry(db, key, value), None)

    def contents(self) -> Contents:
        """Return the size of the store. Creates no file."""
        if not list_data_files(self.folder):
            return Contents()
        return self._run_guarded(_read_contents, Contents())

    def clear(self) -> Contents:
        """Remove every entry and return the size before."""
        contents = self.contents()
        if list_data_files(self.folder):
            self._run_guarded(_delete_entries, None)
        return contents

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            opened, self._open = self._open, None
            if opened is not None:
                opened[2]()

    def _run_guarded(self, work: Callable[[Any], T], otherwise: T) -> T:
        """Run `work` with an open file. A damaged file is replaced once; other failures are reported."""
        try:
            import sqlite3

            from onym.store.sqlite import describe_error, is_busy, is_damaged
        except ImportError:  # pragma: no cover - some builds of Python have none
            self._trouble("this Python has no sqlite3")
            return otherwise
        with self._lock:
            try:
                try:
                    return work(self._get_connection())
                except sqlite3.DatabaseError as error:
                    if not is_damaged(error):
                        raise
                    self._replace_file()
                    return work(self._get_connection())
            except (sqlite3.Error, OSError) as error:
                if not is_busy(error):
                    self._trouble(describe_error(error))
                return otherwise

    def _get_connection(self) -> sqlite3.Connection:
        if self._open is not None:
            if self._open[0] == os.getpid():
                return self._open[1]
            _ABANDONED.append(self._open[1])
            self._open = None
        make_folder(self.folder)
        self._number = max(list_data_files(self.folder), default=1)
        db = _open_database(create_data_file(self.folder, self._number))
        # also if the caller does not close it, and when the program ends
        self._open = os.getpid(), db, finalize(self, _close_connection, os.getpid(), db)
        return db

    def _replace_file(self) -> None:
        """Continue with a new file. Others may have the old one open, so its name is not used again."""
        self.close()
        known = list_data_files(self.folder)
        if max(known, default=0) > self._number:
            return  # another process did it already
        create_data_file(self.folder, self._number + 1)
        for path in known.values():
            remove_data_file(path)

    def _select_entry(self, db: sqlite3.Connection, key: bytes) -> bytes | None:
        row = db.execute("SELECT made, used, seal, value FROM entries WHERE key = ?", (key,)).fetchone()
        now = self._clock()
        if row is None or not self._is_young(row[0], now) or row[2] != self._compute_seal(key, row[3]):
            return None
        if now - row[1] > _USE_INTERVAL:
            db.execute("UPDATE entries SET used = ? WHERE key = ?", (now, key))
        return bytes(row[3])

    def _is_young(self, made: float, now: float) -> bool:
        # a date in the future comes from a clock that was set back, and must not keep an entry for ever
        return abs(now - made) <= self._age

    def _insert_entry(self, db: sqlite3.Connection, key: bytes, value: bytes) -> None:
        from onym.store.sqlite import write_transaction

        now = self._clock()
        with write_transaction(db):
            row = (key, now, now, self._compute_seal(key, value), value)
            db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", row)
            db.execute("DELETE FROM entries WHERE made < ? OR made > ?", (now - self._age, now + self._age))
            if _count_bytes(db) > self._size:
                self._evict_entries(db)

    def _evict_entries(self, db: sqlite3.Connection) -> None:
        """Remove entries until the file is small enough. It has whole pages, so it is measured again."""
        room = self._size * _KEPT_SHARE
        for _ in range(8):
            db.execute(_SURPLUS, (_ROW_OVERHEAD, int(room)))
            if _count_bytes(db) <= self._size:
                return
            room *= _KEPT_SHARE * _KEPT_SHARE

    def _compute_seal(self, key: bytes, value: bytes) -> bytes:
        """Return a keyed hash that shows whether a value was changed."""
        return blake2b(
            key + value, key=self.load_key() or b"", digest_size=16, person=b"onym-cache-seal"
        ).digest()


#: connections inherited by a fork: closing them would disturb the parent process
_ABANDONED: Final[list[sqlite3.Connection]] = []


def _close_connection(pid: int, db: sqlite3.Connection) -> None:
    if pid == os.getpid():
        db.close()
    else:
        _ABANDONED.append(db)


def _open_database(path: Path) -> sqlite3.Connection:
    from onym.store.sqlite import FileFormat, SQLiteOptions, open_sqlite

    options = SQLiteOptions(timeout=_PATIENCE, pragmas={"journal_size_limit": 4_194_304})
    return open_sqlite(path, FileFormat(application_id=_APPLICATION_ID, version=1, schema=_SCHEMA), options)


def _count_bytes(db: sqlite3.Connection) -> int:
    """Return the bytes of the file that are in use, in whole pages."""
    pages, free, length = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * length)


def _read_contents(db: sqlite3.Connection) -> Contents:
    entries, oldest, newest = db.execute("SELECT COUNT(*), MIN(made), MAX(made) FROM entries").fetchone()
    return Contents(entries=entries, octets=_count_bytes(db) if entries else 0, oldest=oldest, newest=newest)


def _delete_entries(db: sqlite3.Connection) -> None:
    import sqlite3

    db.execute("DELETE FROM entries")
    with suppress(sqlite3.OperationalError):  # another process uses the file, which keeps its size then
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class PendingCall:
    """One call in progress in this process. The result of `landed` is the bytes of its answer, or None."""

    __slots__ = ("_calls", "_held", "_lock", "_over", "key", "landed")

    def __init__(self, calls: PendingCalls, key: bytes) -> None:
        self._calls = calls
        self._lock = Lock()
        self._held = False
        self._over = False
        self.key = key
        self.landed: Future[bytes | None] = Future()
        # a coroutine that stops waiting must not cancel it for the others
        self.landed.set_running_or_notify_cancel()

    def try_lock(self) -> bool:
        """Return whether no other process makes this call. True if the locks do not work."""
        with self._lock:
            # a coroutine may be cancelled, and the call finished, before a thread arrives here
            self._held = not self._over and self._calls.acquire_lock(self.key)
            return self._held

    def finish(self, content: bytes | None) -> None:
        """End the call and pass the answer to the callers that wait, None if it brought none."""
        with self._lock:
            self._over = True
            if self._held:
                self._calls.release_lock(self.key)
        self._calls.remove_call(self)
        self.landed.set_result(content)


class PendingCalls:
    """The calls in progress for one folder."""

    def __init__(self, folder: Path) -> None:
        self._locks = ByteLocks(folder)
        self._lock = Lock()
        self._pid = os.getpid()
        self._under_way: dict[bytes, PendingCall] = {}

    def join(self, key: bytes) -> tuple[PendingCall, bool]:
        """Return the call for this key, and whether it is new: then the caller makes and finishes it."""
        with self._lock:
            if self._pid != os.getpid():  # calls inherited by a fork never finish here
                self._pid, self._under_way = os.getpid(), {}
            known = self._under_way.get(key)
            if known is not None:
                return known, False
            pending = self._under_way[key] = PendingCall(self, key)
            return pending, True

    def remove_call(self, pending: PendingCall) -> None:
        """Remove a finished call."""
        with self._lock:
            if self._under_way.get(pending.key) is pending:
                del self._under_way[pending.key]

    def acquire_lock(self, key: bytes) -> bool:
        """Return whether this process may make the call."""
        try:
            return self._locks.acquire(_compute_offset(key))
        except OSError:
            return True  # without locks, two processes may make the same call

    def release_lock(self, key: bytes) -> None:
        """Allow other processes to make the call."""
        with suppress(OSError):
            self._locks.release(_compute_offset(key))


def _compute_offset(key: bytes) -> int:
    # 62 bits fit into a file offset; two keys with the same offset are very unlikely
    return int.from_bytes(key[:8], "big") >> 2


#: by folder: two caches of one folder share their calls, because locks exclude only other processes
_BY_FOLDER: dict[Path, PendingCalls] = {}
_BY_FOLDER_LOCK = Lock()


def get_pending_calls(folder: Path) -> PendingCalls:
    """Return the calls for this folder, one object for the process."""
    with _BY_FOLDER_LOCK:
        return _BY_FOLDER.setdefault(folder.absolute(), PendingCalls(folder))


#: seconds between two checks for another process's answer
_FIRST_LOOK = 0.01
_LAST_LOOK = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLookup:
    """The key of a request, the seconds to wait for another caller, and secrets that are not stored."""

    key: bytes
    patience: float
    secrets: Iterable[Secret] = ()


def lookup_flow(
    lookup: CacheLookup,
    kind: type[A],
    store: AnswerStore,
    calls: PendingCalls,
    call: Callable[[float], Flow[A]],
    clock: Callable[[], float] = time.monotonic,
) -> Flow[A]:
    """Find the answer in the store, wait for an identical call in progress, or make the call.

    `call` gets the seconds that were spent waiting. A failure is not shared: if the other call brings no
    answer, every waiting caller makes its own.
    """
    start = clock()
    pending, is_new = calls.join(lookup.key)
    if not is_new:
        content = yield _wait_for_call(pending, lookup.patience)
        shared: A | None = None if content is None else decode_answer(content, kind)
        if shared is not None:
            return shared
        answer = yield from call(clock() - start)
        yield from _store_answer(lookup, store, answer)
        return answer
    content = None
    try:
        stored = yield from _find_stored(lookup, kind, store, pending, clock)
        if stored is not None:
            content, answer = stored
            return answer
        answer = yield from call(clock() - start)
        content = yield from _store_answer(lookup, store, answer)
        return answer
    finally:
        pending.finish(content)


def _find_stored(
    lookup: CacheLookup, kind: type[A], store: AnswerStore, pending: PendingCall, clock: Callable[[], float]
) -> Flow[tuple[bytes, A] | None]:
    """Read the store, and wait while another process makes the call."""
    start, pause = clock(), _FIRST_LOOK
    stored = yield from _read_stored(lookup, kind, store)
    while stored is None:
        if (yield Work(pending.try_lock)):
            # another process may have ended its call since the store was read
            return (yield from _read_stored(lookup, kind, store))
        if clock() - start >= lookup.patience:
            return None
        yield Wait(pause)
        pause = min(pause * 2, _LAST_LOOK)
        stored = yield from _read_stored(lookup, kind, store)
    return stored


def _read_stored(lookup: CacheLookup, kind: type[A], store: AnswerStore) -> Flow[tuple[bytes, A] | None]:
    content: bytes | None = yield Work(lambda: store.get(lookup.key))
    answer = None if content is None else decode_answer(content, kind)
    return None if content is None or answer is None else (content, answer)


def _store_answer(lookup: CacheLookup, store: AnswerStore, answer: Answer) -> Flow[bytes | None]:
    content = encode_answer(answer, lookup.secrets)
    if content is not None:
        yield Work(lambda: store.put(lookup.key, content))
    return content


def _wait_for_call(pending: PendingCall, seconds: float) -> Work:
    """Wait for the bytes of another caller's answer; None if it brings none, or takes longer."""

    def wait() -> bytes | None:
        done, _ = concurrent.futures.wait([pending.landed], seconds)
        return pending.landed.result() if done else None

    async def await_call() -> bytes | None:
        import asyncio  # 20 ms that a synchronous client does not need

        landed = asyncio.wrap_future(pending.landed)
        try:
            done, _ = await asyncio.wait([landed], timeout=seconds)
            return landed.result() if done else None
        finally:
            landed.cancel()  # only this view of it: the call goes on

    return Work(wait, await_call)
