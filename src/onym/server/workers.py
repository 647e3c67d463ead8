"""Several processes that serve one port: a parent starts them, replaces those that die, and ends them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final

from onym.errors import ConfigError, OnymError
from onym.server.http_server import GRACE_SECONDS, bind_sockets

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

_LOG: Final = logging.getLogger("onym.server.workers")
#: processes that are started in place of others in one minute: a fault that kills every one must end
MAX_RESTARTS: Final = 5
_RESTART_SECONDS: Final = 60.0
#: seconds for a process to end after SIGTERM: its open requests, then its stores
_END_SECONDS: Final = GRACE_SECONDS + 10.0

#: what a process runs: it serves at an address and calls its first argument when it listens
Target = Callable[..., None]


@dataclass(slots=True)
class _Worker:
    """A process, and the end of its pipe until the process closes it."""

    process: SpawnProcess
    channel: Connection
    serves: bool = False
    #: what it reported when it began to listen
    value: Any = None
    error: OnymError | None = None


def run_workers(
    target: Target,
    *args: Any,
    count: int,
    host: str,
    port: int,
    ready: Callable[[list[Any]], object],
    most_restarts: int = MAX_RESTARTS,
) -> None:
    """Run `target` in `count` processes until SIGTERM or SIGINT, which is raised again when they have ended.

    Each process calls `target(report, *args, host=…, port=…, reuse_port=True)`, whose values must be able to
    be pickled: the last three are arguments of `onym.server.http_server.serve_app`. It calls `report` with a
    value when it listens. `ready` gets these values as soon as all processes listen; the error that it raises
    ends them.

    Raises ConfigError `config.no-workers` on systems that do not spread connections over processes,
    `config.cannot-listen`, `config.workers-died` if no process is left and `most_restarts` in a minute did
    not help, and the error of a process that cannot start.

    Every process has its own socket with SO_REUSEPORT, and the kernel spreads the connections over the
    sockets. A process is a new interpreter, so that it shares no connection, thread or lock with another, and
    listens only when its app has started. The parent holds the port but never listens.

    SIGTERM and SIGINT end all processes after their open requests. SIGHUP replaces them one after the other,
    for new code, certificates or settings; the old process ends when the new one serves.
    """
    require_workers()
    for probe in bind_sockets(host, port) if port else ():
        probe.close()  # another server of this user could share the port as well
    with ExitStack() as stack:
        held = bind_sockets(host, port, reuse_port=True)
        for bound in held:
            stack.callback(bound.close)
        address = {"host": host, "port": held[0].getsockname()[1], "reuse_port": True}
        signals = stack.enter_context(_catch_signals())
        supervisor = _Supervisor(target, args, address, signals, most_restarts)
        stack.callback(supervisor.stop)
        values = supervisor.start(count)
        if not supervisor.stopping:
            ready(values)
            supervisor.watch()
    signals.raise_again()


def require_workers() -> None:
    """Raise ConfigError `config.no-workers` unless this system spreads connections over processes."""
    # macOS and the BSDs have SO_REUSEPORT, but give all connections to one of the sockets
    if sys.platform != "linux":
        raise ConfigError(
            f"this system ({sys.platform}) does not spread connections over several processes",
            code="config.no-workers",
            hint="Start several servers on ports of their own behind a proxy, without --workers.",
        )


class _Signals:
    """The signals that arrived. `reader` is readable when there may be new ones."""

    def __init__(self, reader: int) -> None:
        self.reader = reader
        self.renew = False
        self.endings: list[int] = []

    def note(self, number: int, _frame: Any) -> None:
        if number in _ENDINGS:
            self.endings.append(number)
        else:
            self.renew = True

    def clear_reader(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.reader, 4096)

    def raise_again(self) -> None:
        """Do to this process what the signal that ended the others does by default."""
        if self.endings:
            signal.raise_signal(self.endings[0])


_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def _catch_signals() -> Iterator[_Signals]:
    """Collect signals in the time of the block."""
    reader, writer = os.pipe()
    try:
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signals = _Signals(reader)
        # a terminal that is closed sends SIGHUP too
        renewing = () if sys.stdin is not None and sys.stdin.isatty() else (signal.SIGHUP,)
        before = {number: signal.signal(number, signals.note) for number in (*_ENDINGS, *renewing)}
        woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield signals
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
    finally:
        os.close(reader)
        os.close(writer)


class _Supervisor:
    """The processes of one parent, in the order in which they were started."""

    def __init__(
        self,
        target: Target,
        args: tuple[Any, ...],
        address: Mapping[str, Any],
        signals: _Signals,
        most_restarts: int,
    ) -> None:
        self._target = target
        self._args = args
        self._address = dict(address)
        self._signals = signals
        self._most_restarts = most_restarts
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        #: processes that SIGHUP will replace, and those that were told to end
        self._old: list[_Worker] = []
        self._leaving: list[_Worker] = []
        self._count = 0
        self._restarts: deque[float] = deque(maxlen=most_restarts)

    @property
    def stopping(self) -> bool:
        """True if a signal to end has arrived."""
        return bool(self._signals.endings)

    def start(self, count: int) -> list[Any]:
        """Start the processes, and return what they report when all listen. Raises their errors."""
        self._count = count
        # the first alone: it finds what is wrong with the settings, and makes files that others open
        for goal in dict.fromkeys((1, count)):
            while len(self._workers) < goal:
                self._start_worker()
            while not self.stopping and not all(worker.serves for worker in self._workers):
                for worker in self._wait(None):
                    if not worker.process.is_alive() and not self.stopping:
                        raise worker.error or _make_died_error(worker)
            if self.stopping:
                break
        return [worker.value for worker in self._workers]

    def watch(self) -> None:
        """Replace processes that die, or all of them for SIGHUP, until a signal to end."""
        while not self.stopping:
            pause = self._replace_dead()
            self._renew()
            for worker in self._wait(pause):
                if worker.process.is_alive() or self.stopping:
                    continue
                if worker in self._leaving:
                    self._leaving.remove(worker)
                    _close_worker(worker)
                elif worker in self._workers:
                    self._drop_dead(worker)

    def stop(self) -> None:
        """End all processes: with SIGTERM, then with SIGKILL after 20 seconds or at the next signal."""
        signals = len(self._signals.endings)
        workers = [*self._workers, *self._leaving]
        for worker in workers:
            worker.process.terminate()
        last = time.monotonic() + _END_SECONDS
        while any(worker.process.is_alive() for worker in workers):
            left = last - time.monotonic()
            if left <= 0 or len(self._signals.endings) > signals:
                for worker in workers:
                    worker.process.kill()
            alive = [worker.process.sentinel for worker in workers if worker.process.is_alive()]
            wait([self._signals.reader, *alive], max(left, 0.1))
            self._signals.clear_reader()
        for worker in workers:
            _close_worker(worker)

    def _start_worker(self) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_run_worker, args=(sender, self._target, self._args, self._address)
        )
        process.start()
        sender.close()  # the process has its own
        self._workers.append(_Worker(process, receiver))

    def _wait(self, seconds: float | None) -> list[_Worker]:
        """Wait for a signal, a report or an end. Return the processes that ended."""
        workers = [*self._workers, *self._leaving]
        channels: dict[object, _Worker] = {
            worker.channel: worker for worker in workers if not worker.channel.closed
        }
        ends: dict[Any, _Worker] = {worker.process.sentinel: worker for worker in workers}
        ended = []
        events: list[Any] = [self._signals.reader, *channels, *ends]
        for event in wait(events, seconds):
            if event is self._signals.reader:
                self._signals.clear_reader()
            elif event in channels:
                _receive_report(channels[event])
            else:
                ends[event].process.join()
                ended.append(ends[event])
        return ended

    def _drop_dead(self, worker: _Worker) -> None:
        reason = worker.error or _make_died_error(worker)
        _LOG.warning("%s; %d of %d processes are left", reason, len(self._workers) - 1, self._count)
        self._workers.remove(worker)
        if worker in self._old:
            self._old.remove(worker)
        if not worker.serves:
            self._old.clear()  # its successors would not start either
        _close_worker(worker)

    def _replace_dead(self) -> float | None:
        """Start processes in place of those that died. Return the seconds until more may be started."""
        while len(self._workers) < self._count:
            now = time.monotonic()
            if len(self._restarts) == self._most_restarts:
                pause = self._restarts[0] + _RESTART_SECONDS - now if self._restarts else _RESTART_SECONDS
                if pause > 0 and not self._workers:
                    raise ConfigError(
                        f"the processes die: {self._most_restarts} were started in place of others, and none "
                        "is left",
                        code="config.workers-died",
                        hint="The log has the reasons. Serve without --workers to see the first failure.",
                    )
                if pause > 0:
                    return pause
            self._restarts.append(now)
            self._start_worker()
        return None

    def _renew(self) -> None:
        """Take the next step of SIGHUP: start a process, or end the one that it replaces."""
        if self._signals.renew:
            self._signals.renew = False
            self._old = list(self._workers)
        if not self._old or self._leaving or not all(worker.serves for worker in self._workers):
            return
        if len(self._workers) == self._count:
            self._start_worker()
            return
        worker = self._old.pop(0)
        self._workers.remove(worker)
        self._leaving.append(worker)
        worker.process.terminate()


def _receive_report(worker: _Worker) -> None:
    """Read what the process says: a value when it listens, or the error that ends it."""
    try:
        worker.serves, worker.value = worker.channel.recv()
    except (EOFError, OSError):
        worker.channel.close()
        return
    if not worker.serves:
        worker.error = worker.value


def _make_died_error(worker: _Worker) -> ConfigError:
    code = worker.process.exitcode
    how = f"with signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    return ConfigError(f"process {worker.process.pid} ended {how}", code="config.workers-died")


def _close_worker(worker: _Worker) -> None:
    worker.channel.close()
    worker.process.join()
    worker.process.close()


def _run_worker(channel: Connection, target: Target, args: tuple[Any, ...], address: dict[str, Any]) -> None:
    """Run the target in this process, and tell the parent when it listens or why it does not."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        target(lambda value: channel.send((True, value)), *args, **address)
    except OnymError as error:
        with suppress(OSError):  # the parent is gone
            channel.send((False, error))
        sys.exit(1)
    except KeyboardInterrupt:
        pass  # Ctrl-C reaches all processes of the terminal; the server has ended


def _end_with_parent() -> None:
    """End this process if its parent was killed: nobody else would."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
