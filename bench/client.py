"""Calls per second of clients beside each other, against one loopback server in a process of its own.

    python bench/client.py [--json FILE] [--rounds 7] [--calls 600] [--only sync|async]

Every peer makes the same chat call and reads the same answer down to its text. Rounds are interleaved:
in each, every peer has its turn, so that a busy moment of the machine falls on all; the figures are
medians. Ratios are to bare pyreqwest with JSON in and out, the fastest way to make the call by hand in
this stack. Server and clients have a core each where there are two (see _server.py).
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

AT_ONCE = 64
KEY = "sk-bench-0123456789abcdef"
MODEL = "bench-model"
PROMPT = "What is the capital of France?"
TEXT = "The capital of France is Paris."
BODY = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "temperature": 0.5}
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 14, "completion_tokens": 8, "total_tokens": 22},
    }
).encode()
#: what the server says, in one piece
SAID = (head("application/json", len(ANSWER)) + ANSWER,)

Call = Callable[[], str]
AsyncCall = Callable[[], Awaitable[str]]


def onym_sync(port: int) -> Call:
    import onym

    client = onym.connect(f"llm://bench:{KEY}@127.0.0.1:{port}/{MODEL}?temp=0.5", policy=onym.Policy.local())
    return lambda: client.chat(PROMPT).text


def onym_async(port: int) -> AsyncCall:
    import onym

    client = onym.aconnect(f"llm://bench:{KEY}@127.0.0.1:{port}/{MODEL}?temp=0.5", policy=onym.Policy.local())

    async def call() -> str:
        return (await client.chat(PROMPT)).text

    return call


def pyreqwest_sync(port: int) -> Call:
    from pyreqwest.client import SyncClientBuilder

    client, url = SyncClientBuilder().build(), f"http://127.0.0.1:{port}/v1/chat/completions"

    def call() -> str:
        answer = client.post(url).bearer_auth(KEY).body_json(BODY).build().send().json()
        return str(answer["choices"][0]["message"]["content"])

    return call


def pyreqwest_async(port: int) -> AsyncCall:
    from pyreqwest.client import ClientBuilder

    client, url = ClientBuilder().build(), f"http://127.0.0.1:{port}/v1/chat/completions"

    async def call() -> str:
        reply = await client.post(url).bearer_auth(KEY).body_json(BODY).build().send()
        return str((await reply.json())["choices"][0]["message"]["content"])

    return call


def openai_sync(port: int) -> Call:
    import openai

    client = openai.OpenAI(api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1")
    messages: Any = BODY["messages"]

    def call() -> str:
        found = client.chat.completions.create(model=MODEL, messages=messages, temperature=0.5)
        return found.choices[0].message.content or ""

    return call


def openai_async(port: int) -> AsyncCall:
    import openai

    client = openai.AsyncOpenAI(api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1")
    messages: Any = BODY["messages"]

    async def call() -> str:
        found = await client.chat.completions.create(model=MODEL, messages=messages, temperature=0.5)
        return found.choices[0].message.content or ""

    return call


def litellm_sync(port: int) -> Call:
    import litellm

    fixed = {"api_key": KEY, "api_base": f"http://127.0.0.1:{port}/v1", "temperature": 0.5}

    def call() -> str:
        found = litellm.completion(model=f"openai/{MODEL}", messages=BODY["messages"], **fixed)
        return str(found.choices[0].message.content)

    return call


def litellm_async(port: int) -> AsyncCall:
    import litellm

    fixed = {"api_key": KEY, "api_base": f"http://127.0.0.1:{port}/v1", "temperature": 0.5}

    async def call() -> str:
        found = await litellm.acompletion(model=f"openai/{MODEL}", messages=BODY["messages"], **fixed)
        return str(found.choices[0].message.content)

    return call


def _warp(port: int) -> dict[str, Any]:
    return {"openai": {"api_key": KEY, "base_url": f"http://127.0.0.1:{port}/v1"}}


def warpllm_sync(port: int) -> Call:
    from warpllm import WarpLLM

    client, body = WarpLLM(providers=_warp(port)), {**BODY, "model": "openai/gpt-5-nano"}
    return lambda: str(client.chat_completions(body)["choices"][0]["message"]["content"])


def warpllm_async(port: int) -> AsyncCall:
    from warpllm import AsyncWarpLLM

    client, body = AsyncWarpLLM(providers=_warp(port)), {**BODY, "model": "openai/gpt-5-nano"}

    async def call() -> str:
        return str((await client.chat_completions(body))["choices"][0]["message"]["content"])

    return call


SYNC: dict[str, Callable[[int], Call]] = {
    "pyreqwest, bare": pyreqwest_sync,
    "onym": onym_sync,
    "warpllm": warpllm_sync,
    "openai": openai_sync,
    "litellm": litellm_sync,
}
ASYNC: dict[str, Callable[[int], AsyncCall]] = {
    "pyreqwest, bare": pyreqwest_async,
    "onym": onym_async,
    "warpllm": warpllm_async,
    "openai": openai_async,
    "litellm": litellm_async,
}


def built(makers: dict[str, Callable[[int], Any]], port: int) -> dict[str, Any]:
    """The peers that are installed."""
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make(port)
        except ImportError:
            print(f"{name}: not installed, left out", file=sys.stderr)
    return found


def time_sync(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        assert call() == TEXT
    return time.perf_counter() - start


async def time_async(call: AsyncCall, calls: int) -> float:
    left = calls

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            assert await call() == TEXT

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return time.perf_counter() - start


def run_sync(port: int, rounds: int, calls: int) -> dict[str, list[float]]:
    peers = built(SYNC, port)
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for call in peers.values():
        time_sync(call, 30)
    for _ in range(rounds):
        for name, call in peers.items():
            seconds[name].append(time_sync(call, calls) / calls)
    return seconds


async def run_async(port: int, rounds: int, calls: int) -> dict[str, list[float]]:
    peers = built(ASYNC, port)
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for call in peers.values():
        await time_async(call, 2 * AT_ONCE)
    for _ in range(rounds):
        for name, call in peers.items():
            count = calls * 4 if name in ("onym", "warpllm", "pyreqwest, bare") else calls
            seconds[name].append(await time_async(call, count) / count)
    return seconds


def table(title: str, seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Print one table and give its rows."""
    base = seconds["pyreqwest, bare"]
    slowest = seconds.get("openai")
    print(f"\n{title}\n\n| client | calls/s | µs per call | time, pyreqwest = 1 | calls/s, openai = 1 |")
    print("|---|--:|--:|--:|--:|")
    rows = []
    for name, times in seconds.items():
        middle = statistics.median(times)
        # a ratio of each round, then the median: what the machine did at that time is in both
        ratio = statistics.median(mine / theirs for mine, theirs in zip(times, base, strict=True))
        faster = (
            statistics.median(theirs / mine for mine, theirs in zip(times, slowest, strict=True))
            if slowest
            else None
        )
        shown = "-" if faster is None else f"{faster:.1f}"
        print(f"| {name} | {1 / middle:,.0f} | {middle * 1e6:,.0f} | {ratio:.2f} | {shown} |")
        rows.append(
            {
                "client": name,
                "calls_per_second": 1 / middle,
                "time_ratio_to_pyreqwest": ratio,
                "rate_ratio_to_openai": faster,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=600, help="per peer and round")
    parser.add_argument("--only", choices=("sync", "async"))
    given, _ = parser.parse_known_args()
    result: dict[str, Any] = {}
    with server(SAID) as port:
        if given.only != "async":
            result["sync"] = table("One call after another", run_sync(port, given.rounds, given.calls))
        if given.only != "sync":
            found = asyncio.run(run_async(port, given.rounds, given.calls))
            result["async"] = table(f"{AT_ONCE} calls at once, asyncio", found)
    if given.json:
        given.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
