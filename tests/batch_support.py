"""A model server for tests of batches, in a process of its own: fast, and wrong as often as it is told to be.

It speaks as much of the OpenAI chat API as a batch needs, answers with the prompt, and keeps count of every
prompt. `GET /wait/N` is answered once N requests have come, `GET /counts` with the counts. After
`GET /hold/N` no more than N are answered until `GET /release`. Nothing sleeps.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

MODEL = "m"
TOKENS = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


class Counts:
    def __init__(self, rate: float, seed: int) -> None:
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.total = self.refused = 0
        self.flying = self.most = 0
        self.rate = rate
        self.chance = random.Random(seed)
        self.waiting: list[tuple[int, Any]] = []
        self.limit: int | None = None
        self.held: list[tuple[str, Any]] = []


class Protocol(asyncio.Protocol):
    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + length], self.buffer[end + 4 + length :]
            self.respond(head.split(b" ", 2)[1].decode(), body)

    def respond(self, path: str, body: bytes) -> None:
        if path.startswith("/wait/"):
            self.counts.waiting.append((int(path.rpartition("/")[2]), self))
            self.wake()
        elif path.startswith("/hold/"):
            self.counts.limit = int(path.rpartition("/")[2])
            self.reply(200, {})
        elif path == "/release":
            self.release()
        elif path == "/counts":
            counts = self.counts
            found = {"total": counts.total, "refused": counts.refused, "answered": counts.answered}
            self.reply(200, {**found, "asked": counts.asked})
        else:
            self.chat(json.loads(body)["messages"][-1]["content"])

    def release(self) -> None:
        counts = self.counts
        held, counts.held, counts.limit = counts.held, [], None
        for prompt, protocol in held:
            if not protocol.transport.is_closing():
                protocol.chat(prompt)
        self.reply(200, {})

    def chat(self, prompt: str) -> None:
        counts = self.counts
        if counts.limit is not None and counts.total >= counts.limit:
            counts.held.append((prompt, self))
            return
        counts.total += 1
        counts.asked[prompt] += 1
        if counts.chance.random() < counts.rate:
            counts.refused += 1
            self.reply(counts.chance.choice((429, 500)), {"error": {"message": "no", "type": "x"}})
        else:
            counts.answered[prompt] += 1
            choice = {"index": 0, "message": {"content": prompt.upper()}, "finish_reason": "stop"}
            self.reply(200, {"model": MODEL, "choices": [choice], "usage": TOKENS})
        self.wake()

    def wake(self) -> None:
        counts = self.counts
        for entry in [each for each in counts.waiting if each[0] <= counts.total]:
            counts.waiting.remove(entry)
            entry[1].reply(200, {})

    def reply(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def serve(rate: float, seed: int) -> None:
    loop = asyncio.get_running_loop()
    counts = Counts(rate, seed)
    server = await loop.create_server(lambda: Protocol(counts), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


class Server:
    """The process, from outside."""

    def __init__(self, rate: float = 0.0, seed: int = 1) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), str(rate), str(seed)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def uri(self) -> str:
        return f"llm://127.0.0.1:{self.port}/{MODEL}"

    def wait(self, total: int) -> None:
        """Return once so many requests have come."""
        self._get(f"/wait/{total}")

    def hold(self, total: int) -> None:
        """Answer so many requests in all, and no more until `release`: nobody gets to an end meanwhile."""
        self._get(f"/hold/{total}")

    def release(self) -> None:
        """Answer all that come, and those that were held of callers who are still there."""
        self._get("/release")

    def counts(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get("/counts")
        return found

    def _get(self, path: str) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=600)


def write_rows(path: Path, count: int) -> Path:
    """So many rows, each asking something of its own."""
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps({"id": f"row-{at}", "prompt": f"ask {at}"}) + "\n" for at in range(count))
    return path


def read_results(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), int(sys.argv[2])))
