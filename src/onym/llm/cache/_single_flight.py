"""One call for all callers that send the same request at the same time.

`lookup_flow` reads the store, waits for the caller that sends the request, or sends it. Locks in one file
do the same between processes.
"""

from __future__ import annotations

import concurrent.futures
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from onym.llm.cache._store import ByteLocks, decode_answer, encode_answer
from onym.net.messages import Wait, Work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onym.llm.cache._store import AnswerStore
    from onym.llm.types import Answer
    from onym.net.messages import Flow
    from onym.uri.secret import Secret


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


A = TypeVar("A", bound="Answer")

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
