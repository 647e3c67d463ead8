"""Rows per second of a batch beside a bare loop of the same calls, against one loopback server.

    python bench/batch.py [--json FILE] [--rounds 7] [--rows 6000]

The bare loop is pyreqwest with JSON in and out, as many calls at once, which reads no rows and keeps no
answers; beside it stands one that does both and promises nothing. The batch reads each row, writes each
result and has it on the disk before it counts. Rounds are interleaved, figures are medians; the server has a
core to itself where there are two (see _server.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _server import server
from client import AT_ONCE, KEY, MODEL, PROMPT, SAID, TEXT, pyreqwest_async, time_async

BARE = "pyreqwest, bare loop"
FILED = "pyreqwest, a loop that reads rows and writes answers"


def write_rows(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps({"id": f"row-{at}", "prompt": PROMPT}) + "\n" for at in range(rows))


def time_batch(port: int, source: Path, output: Path, order: Any) -> float:
    from onym import Policy
    from onym.llm.batch import run

    start = time.perf_counter()
    report = run(
        f"llm://bench:{KEY}@127.0.0.1:{port}/{MODEL}?temp=0.5",
        source,
        output,
        policy=Policy.local(),
        concurrency=AT_ONCE,
        order=order,
        restart=True,
    )
    seconds = time.perf_counter() - start
    assert report.answered == report.rows
    with output.open(encoding="utf-8") as lines:
        assert json.loads(next(lines))["text"] == TEXT
    return seconds


async def bare(port: int, rows: int) -> float:
    # a client belongs to the loop that it was used in
    return await time_async(pyreqwest_async(port), rows)


async def filed(port: int, source: Path, output: Path) -> float:
    """What a script of twenty lines would do: no order, no retries, nothing sure to be on the disk."""
    from pyreqwest.client import ClientBuilder

    client, url = ClientBuilder().build(), f"http://127.0.0.1:{port}/v1/chat/completions"
    start = time.perf_counter()
    with source.open("rb") as rows, output.open("w", encoding="utf-8") as out:

        async def worker() -> None:
            for line in rows:
                row = json.loads(line)
                body = {"model": MODEL, "messages": [{"role": "user", "content": row["prompt"]}]}
                call = client.post(url).bearer_auth(KEY).body_json({**body, "temperature": 0.5}).build()
                answer = await (await call.send()).json()
                text = answer["choices"][0]["message"]["content"]
                out.write(json.dumps({"id": row["id"], "text": text, "usage": answer["usage"]}) + "\n")

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return time.perf_counter() - start


def measure(port: int, rounds: int, rows: int, folder: Path) -> dict[str, list[float]]:
    source, output = folder / "in.jsonl", folder / "out.jsonl"
    write_rows(source, rows)
    orders = {"onym batch, as completed": "completion", "onym batch, in order": "input"}
    seconds: dict[str, list[float]] = {BARE: [], FILED: [], **{name: [] for name in orders}}
    for _ in range(rounds + 1):
        seconds[BARE].append(asyncio.run(bare(port, rows)) / rows)
        seconds[FILED].append(asyncio.run(filed(port, source, output)) / rows)
        for name, order in orders.items():
            seconds[name].append(time_batch(port, source, output, order) / rows)
    # the first round is for warming up
    return {name: times[1:] for name, times in seconds.items()}


def table(seconds: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Print the table and give its rows."""
    print(f"\n{AT_ONCE} calls at once\n\n| | rows/s | µs per row | time, bare = 1 | time, with files = 1 |")
    print("|---|--:|--:|--:|--:|")
    rows = []
    for name, times in seconds.items():
        middle = statistics.median(times)
        # a ratio of each round, then the median: what the machine did at that time is in both
        ratio, filed = (
            statistics.median(mine / other for mine, other in zip(times, seconds[peer], strict=True))
            for peer in (BARE, FILED)
        )
        print(f"| {name} | {1 / middle:,.0f} | {middle * 1e6:,.0f} | {ratio:.2f} | {filed:.2f} |")
        rows.append(
            {
                "name": name,
                "rows_per_second": 1 / middle,
                "time_ratio_to_pyreqwest": ratio,
                "time_ratio_to_pyreqwest_with_files": filed,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=6000, help="per peer and round")
    parser.add_argument(
        "--folder", type=Path, help="where the files are written; its disk is part of the test"
    )
    given, _ = parser.parse_known_args()
    with TemporaryDirectory(dir=given.folder) as folder, server(SAID) as port:
        found = table(measure(port, given.rounds, given.rows, Path(folder)))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
