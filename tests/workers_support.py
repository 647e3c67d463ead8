"""What the processes of a test run, and a client that asks which process answers."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ai_support import PATIENCE
from onym.errors import ConfigError, StoreError
from onym.server.http_server import run_app
from onym.server.workers import run_workers

__all__ = ["Processes", "answering_pid", "fail_to_start", "serve_pid", "supervise"]


async def pid_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the number of its process."""
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


def serve_pid(report: Callable[[Any], object], folder: str, **address: Any) -> None:
    """Serve, unless the folder has a file `broken`."""
    if (Path(folder) / "broken").exists():
        raise StoreError("the store is gone", code="store.unreachable")
    run_app(pid_app, ready=lambda port: report((os.getpid(), port)), **address)


def fail_to_start(report: Callable[[Any], object], folder: str, **address: Any) -> None:
    """Serve in the first process only."""
    try:
        (Path(folder) / "first").touch(exist_ok=False)
    except FileExistsError:
        raise ConfigError("no keys", code="config.no-keys") from None
    serve_pid(report, folder, **address)


def answering_pid(port: int) -> int:
    """Which process answers a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/")
        return int(connection.getresponse().read())
    finally:
        connection.close()


class Processes:
    """The processes that a test started, as it finds them by asking."""

    def __init__(self, reports: list[Any], over: threading.Event) -> None:
        #: the parent has ended them all
        self.over = over
        self.pids = [pid for pid, _ in reports]
        self.port = int(reports[0][1])

    def answering(self) -> int | None:
        """Which process answers; None if it was killed before it could."""
        try:
            return answering_pid(self.port)
        except (OSError, http.client.HTTPException):
            return None

    def wait_until(self, good: Callable[[set[int]], bool]) -> set[int]:
        """Ask until what the last 40 connections found is good."""
        last = time.monotonic() + PATIENCE
        while time.monotonic() < last:
            found = {pid for pid in (self.answering() for _ in range(40)) if pid is not None}
            if good(found):
                return found
        raise AssertionError("the processes that answer are not those that should")


def supervise(
    scenario: Callable[[Processes], None], *args: Any, target: Any = serve_pid, **options: Any
) -> None:
    """Run two processes, and the scenario in a thread; then SIGINT. Raises what the scenario raises."""
    over = threading.Event()
    acting: list[Future[None]] = []

    def act(reports: list[Any]) -> None:
        try:
            scenario(Processes(reports, over))
        finally:
            if not over.is_set():
                os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        try:
            run_workers(
                target,
                *args,
                count=2,
                host="127.0.0.1",
                port=0,
                ready=lambda reports: acting.append(pool.submit(act, reports)),
                **options,
            )
        except KeyboardInterrupt:
            acting[0].result()
        finally:
            over.set()
