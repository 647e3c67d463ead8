"""Time per streamed chunk: Onym beside the openai SDK and a loop by hand, against one loopback server.

    python bench/stream.py [--json FILE] [--rounds 7] [--chunks 2000]

Each call asks for a stream of so many chunks of text and reads it to its end; the time of the call divided
by its chunks is the figure. The server writes the chunks in bursts of 16, as a busy network delivers them.
Rounds are interleaved and figures are medians; ratios are to the openai SDK.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _server import head, server
from client import KEY, MODEL, PROMPT

WORD = " Paris"
BURST = 16

Call = Callable[[], int]
AsyncCall = Callable[[], Awaitable[int]]


def frame(delta: dict[str, str], reason: str | None = None) -> bytes:
    record = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }
    return b"data: " + json.dumps(record).encode() + b"\n\n"


def said(chunks: int) -> list[bytes]:
    """What the server says: the head, then the chunks in bursts."""
    word = frame({"content": WORD})
    bursts = [word * min(BURST, chunks - at) for at in range(0, chunks, BURST)]
    bursts.append(frame({}, "stop") + b"data: [DONE]\n\n")
    return [head("text/event-stream", sum(map(len, bursts))), *bursts]


def onym_sync(port: int) -> Call:
    import onym

    client = onym.connect(f"llm://bench:{KEY}@127.0.0.1:{port}/{MODEL}", policy=onym.Policy.local())

    def call() -> int:
        with client.stream(PROMPT) as stream:
            return sum(1 for _ in stream.text)

    return call


def onym_async(port: int) -> AsyncCall:
    import onym

    client = onym.aconnect(f"llm://bench:{KEY}@127.0.0.1:{port}/{MODEL}", policy=onym.Policy.local())

    async def call() -> int:
        count = 0
        async with client.stream(PROMPT) as stream:
            async for _ in stream.text:
                count += 1
        return count

    return call


def openai_sync(port: int) -> Call:
    import openai

    client = openai.OpenAI(api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1")
    messages: Any = [{"role": "user", "content": PROMPT}]

    def call() -> int:
        stream = client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        return sum(1 for chunk in stream if chunk.choices and chunk.choices[0].delta.content)

    return call


def openai_async(port: int) -> AsyncCall:
    import openai

    client = openai.AsyncOpenAI(api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1")
    messages: Any = [{"role": "user", "content": PROMPT}]

    async def call() -> int:
        count = 0
        async for chunk in await client.chat.completions.create(model=MODEL, messages=messages, stream=True):
            count += bool(chunk.choices and chunk.choices[0].delta.content)
        return count

    return call


def by_hand(port: int) -> Call:
    import http.client

    import msgspec

    body = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": PROMPT}]})
    link = http.client.HTTPConnection("127.0.0.1", port)

    def call() -> int:
        count = 0
        link.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {KEY}"})
        reply = link.getresponse()
        for line in reply:
            if line.startswith(b"data: {"):
                count += bool(msgspec.json.decode(line[6:])["choices"][0]["delta"].get("content"))
        reply.read()  # http.client wants to be told that this was all
        return count

    return call


SYNC: dict[str, Callable[[int], Call]] = {
    "openai": openai_sync,
    "onym": onym_sync,
    "http.client and msgspec, by hand": by_hand,
}
ASYNC: dict[str, Callable[[int], AsyncCall]] = {"openai": openai_async, "onym": onym_async}


def run_sync(port: int, rounds: int, chunks: int) -> dict[str, list[float]]:
    calls = {name: make(port) for name, make in SYNC.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            assert call() == chunks
            if number:  # the first is to warm up
                seconds[name].append((time.perf_counter() - start) / chunks)
    return seconds


async def run_async(port: int, rounds: int, chunks: int) -> dict[str, list[float]]:
    calls = {name: make(port) for name, make in ASYNC.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            assert await call() == chunks
            if number:
                seconds[name].append((time.perf_counter() - start) / chunks)
    return seconds


def table(title: str, seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Print one table and give its rows."""
    print(f"\n{title}\n\n| client | µs per chunk | time, openai = 1 |\n|---|--:|--:|")
    rows = []
    for name, times in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(times, seconds["openai"], strict=True))
        print(f"| {name} | {statistics.median(times) * 1e6:.1f} | {ratio:.3f} |")
        rows.append({"client": name, "us_per_chunk": statistics.median(times) * 1e6, "time_ratio": ratio})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=2000)
    given, _ = parser.parse_known_args()
    result: dict[str, Any] = {}
    with server(said(given.chunks)) as port:
        result["sync"] = table("A stream read by a thread", run_sync(port, given.rounds, given.chunks))
        found = asyncio.run(run_async(port, given.rounds, given.chunks))
        result["async"] = table("A stream read by a coroutine", found)
    if given.json:
        given.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
