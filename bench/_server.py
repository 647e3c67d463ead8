"""The loopback server of the benchmarks: a process of its own that gives every request one fixed answer.

Where the system allows it, the server has one core to itself and the clients have another: left to the
scheduler, both may land on one, and then the figures are of the server as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["head", "server"]


def head(media: str, length: int) -> bytes:
    """The head of an answer whose body is so long."""
    text = f"HTTP/1.1 200 OK\r\ncontent-type: {media}\r\nx-request-id: req-1\r\ncontent-length: {length}"
    return f"{text}\r\n\r\n".encode()


@contextmanager
def server(pieces: Sequence[bytes]) -> Iterator[int]:
    """The port of a server that answers with these pieces, head first, each written by itself."""
    command = [sys.executable, str(Path(__file__).resolve())]
    pair = _cores()
    if pair is not None:
        os.sched_setaffinity(0, {pair[0]})
        command.append(str(pair[1]))
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        print(json.dumps([piece.hex() for piece in pieces]), file=child.stdin, flush=True)
        yield int(child.stdout.readline())
    finally:
        child.communicate()


def _cores() -> tuple[int, int] | None:
    """One core for what is measured and one for the server, where there are two to choose from."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    mine = sorted(os.sched_getaffinity(0))
    return (mine[0], mine[-1]) if len(mine) > 1 else None


class _Connection(asyncio.Protocol):
    """As little HTTP as keeps a client happy: keep-alive, an answer to each whole request."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            asked = self.buffer[:end].lower()
            at = asked.find(b"content-length:")
            length = int(asked[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            self.buffer = self.buffer[end + 4 + length :]
            for piece in self.pieces:
                self.transport.write(piece)


async def _serve() -> None:
    """The child process: is told its answer, says its port, serves until its standard input ends."""
    pieces = [bytes.fromhex(piece) for piece in json.loads(sys.stdin.readline())]
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(lambda: _Connection(pieces), "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if sys.argv[1:]:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    asyncio.run(_serve())
