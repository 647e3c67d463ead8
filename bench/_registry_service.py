"""Services that answer an entry's JSON, each a process of its own on one core; and who asks them.

Onym's is the one that `onym registry serve` runs, on a SQLite file: sessions, rate limits, security headers,
request ids, ETags. Beside it stand two on uvicorn alone: a Starlette route that hands out the same octets
from a dictionary, and a FastAPI route that returns the same data, which it writes as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["HOST", "PATH", "Round", "Service", "fetch", "fetch_field", "request", "service"]

HOST = "registry.example"
PATH = "/api/v1/registries/uri-schemes/entries/{name}"


def request(path: str) -> bytes:
    """The octets of one request."""
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept: application/json\r\n\r\n".encode()


class Service(NamedTuple):
    """A running service: where it listens, and its process."""

    port: int
    process: int

    def worked(self) -> float:
        """Seconds that its core has worked for it; 0 where the system does not tell."""
        stat = Path(f"/proc/{self.process}/stat")
        if not stat.exists():
            return 0.0
        fields = stat.read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def service(kind: str, source: Path, core: int | None) -> Iterator[Service]:
    """That service. `source` is a registry's database for Onym, JSON by name for the others."""
    command = [sys.executable, str(Path(__file__).resolve()), kind, str(source)]
    command += [] if core is None else [str(core)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield Service(int(child.stdout.readline()), child.pid)
    finally:
        # its standard input ends, and so does it
        child.communicate(timeout=60)


# who asks -------------------------------------------------------------------------------------------


class _Connection(asyncio.Protocol):
    """Asks, waits for the whole answer, asks again; as little HTTP as that needs."""

    def __init__(self, questions: Iterator[bytes], seconds: list[float]) -> None:
        self.questions = questions
        self.seconds = seconds
        self.buffer = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self) -> None:
        question = next(self.questions, None)
        if question is None:
            self.transport.close()
            self.over.set_result(None)
            return
        self.asked = time.perf_counter()
        self.transport.write(question)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self.buffer.find(b"content-length: ") + 16
        length = int(self.buffer[at : self.buffer.find(b"\r", at)])
        if len(self.buffer) < end + 4 + length:
            return
        if not self.buffer.startswith(b"HTTP/1.1 200 "):
            self.over.set_exception(AssertionError(self.buffer[:2000]))
            self.transport.abort()
            return
        self.seconds.append(time.perf_counter() - self.asked)
        self.buffer = b""
        self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(error or ConnectionError("closed before the end"))


class Round:
    """So many questions over so many connections that are kept: seconds of all, of each, of work."""

    def __init__(self, asked: Service, questions: Sequence[bytes], *, reads: int, connections: int) -> None:
        self.service = asked
        self.questions = questions
        self.reads = reads
        self.connections = connections
        self.seconds: list[float] = []
        self.took = 0.0
        self.worked = 0.0

    def run(self) -> Round:
        with asyncio.Runner(loop_factory=_loop()) as runner:
            runner.run(self._run())
        return self

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        questions = (self.questions[at % len(self.questions)] for at in range(self.reads))
        opened = [
            await loop.create_connection(
                lambda: _Connection(questions, self.seconds), "127.0.0.1", self.service.port
            )
            for _ in range(self.connections)
        ]
        worked, start = self.service.worked(), time.perf_counter()
        for _, connection in opened:
            connection.ask()
        await asyncio.gather(*(connection.over for _, connection in opened))
        self.took = time.perf_counter() - start
        self.worked = self.service.worked() - worked


def fetch(asked: Service, question: bytes) -> bytes:
    """The body of one answer."""
    return _fetch(asked, question)[1]


def fetch_field(asked: Service, question: bytes, name: str) -> str:
    """The value of a header field of one answer."""
    return _fetch(asked, question)[0].split(f"\r\n{name}: ".encode())[1].split(b"\r")[0].decode()


def _fetch(asked: Service, question: bytes) -> tuple[bytes, bytes]:
    async def work() -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", asked.port)
        writer.write(question)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r")[0]))
        writer.close()
        await writer.wait_closed()
        return head, body

    return asyncio.run(work())


def _loop() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


# the services ---------------------------------------------------------------------------------------


def _onym(source: str) -> None:
    from onym.server.app import run_registry
    from onym.server.settings import RateLimit, RateLimits, Settings
    from onym.uri.secret import Secret

    # one address asks for all: the limits are counted as ever, and too high to be met
    much = RateLimit(burst=10**9, per_minute=6e10)
    settings = Settings(
        base_url=f"http://{HOST}", database=Secret(source), port=0, rates=RateLimits(reads=much, writes=much)
    )
    run_registry(settings, ready=lambda port: print(port, flush=True))


def _starlette(source: str) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    bodies = {name: text.encode() for name, text in json.loads(Path(source).read_bytes()).items()}

    async def entry(request: Request) -> Response:
        return Response(bodies[request.path_params["name"]], media_type="application/json")

    return Starlette(routes=[Route(PATH, entry)])


def _fastapi(source: str) -> Any:
    from fastapi import FastAPI

    entries = {name: json.loads(text) for name, text in json.loads(Path(source).read_bytes()).items()}
    app = FastAPI()

    async def entry(name: str) -> Any:
        return entries[name]

    app.get(PATH)(entry)
    return app


def _uvicorn(app: Any) -> None:
    import socket

    import uvicorn

    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="off")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(config).run([listener])


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(kind: str, source: str, core: str | None = None) -> None:
    """The child process: says its port, serves until its standard input ends."""
    if core is not None:
        os.sched_setaffinity(0, {int(core)})
    threading.Thread(target=_end_with_input, daemon=True).start()
    if kind == "onym":
        _onym(source)
    else:
        _uvicorn({"starlette": _starlette, "fastapi": _fastapi}[kind](source))


if __name__ == "__main__":
    main(*sys.argv[1:])
