"""Reading unique URIs, Onym beside its peers: `python bench/parse.py [--json FILE] [--rounds N]`.

The texts are the examples of section 7 of the llm draft, each made unique, so that no cache of whole texts
helps anybody. Onym reads, validates and types everything; its peers split, and hand out parts and query
pairs as text. Rounds are interleaved: in each, every peer has its turn, so that a busy moment of the machine
falls on all. Figures are medians; ratios are to yarl. `llm-strings` is the npm package of the draft's author,
run by node in a process of its own beside the rounds: its `validate` parses, normalizes and validates.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from operator import truediv
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from onym.uri.llm import LLMURI

HERE = Path(__file__).resolve().parent
NODE_FOLDER = HERE / "node_modules"
EXAMPLES = (
    "llm://api.openai.com/gpt-5{}?temp=0.7&max_tokens=1500",
    "llm://my-app:sk-proj-abc123@api.openai.com/gpt-5{}?temp=0.7",
    "llm://localhost:11434/llama3{}",
    "llm://bedrock.us-west-2.amazonaws.com/anthropic/claude-sonnet-4.5{}?temp=0.8&cache=true",
    "llm://sdk.vercel.ai/anthropic/claude-sonnet-4.5{}?temp=0.8&web_search=%7B%22maxUses%22%3A3%7D",
    "llm://localhost:11434/mistral{}?format=json&temp=0",
    "llm://api.anthropic.com/claude-sonnet-4.5{}?temp=0.3&max_tokens=4096#code-review",
)
BASELINE = "yarl"
RATIO = f"times_as_fast_as_{BASELINE}"
Read = Callable[[str], object]


def onym_attributes(text: str) -> object:
    uri = LLMURI.parse(text)
    return uri.host, uri.port, uri.model, uri.temp, uri.max_tokens, uri.fragment


def onym_params(text: str) -> object:
    uri = LLMURI.parse(text)
    return uri.host, uri.port, uri.model, list(uri.params.items()), uri.fragment


def standard_library(text: str) -> object:
    parts = urlsplit(text)
    return parts.scheme, parts.hostname, parts.port, parts.path, parse_qsl(parts.query), parts.fragment


def with_yarl(yarl: Any) -> Read:
    def read(text: str) -> object:
        url = yarl.URL(text)
        return url.scheme, url.host, url.port, url.path, list(url.query.items()), url.fragment

    return read


def with_rfc3986(rfc3986: Any) -> Read:
    def read(text: str) -> object:
        uri = rfc3986.urlparse(text)
        return uri.scheme, uri.host, uri.port, uri.path, parse_qsl(uri.query or ""), uri.fragment

    return read


def with_hyperlink(hyperlink: Any) -> Read:
    def read(text: str) -> object:
        url = hyperlink.parse(text)
        return url.scheme, url.host, url.port, url.path, url.query, url.fragment

    return read


def with_uritools(uritools: Any) -> Read:
    def read(text: str) -> object:
        parts = uritools.urisplit(text)
        return parts.scheme, parts.host, parts.port, parts.path, parts.getquerylist(), parts.fragment

    return read


def with_httpx2(httpx2: Any) -> Read:
    def read(text: str) -> object:
        url = httpx2.URL(text)
        return url.scheme, url.host, url.port, url.path, list(url.params.multi_items()), url.fragment

    return read


PEERS: dict[str, Callable[[Any], Read]] = {
    "yarl": with_yarl,
    "rfc3986": with_rfc3986,
    "hyperlink": with_hyperlink,
    "uritools": with_uritools,
    "httpx2": with_httpx2,
}

NODE_PROGRAM = """
import { createInterface } from "node:readline";
import { validate } from "llm-strings/validate";
for await (const line of createInterface({ input: process.stdin })) {
  const texts = JSON.parse(line);
  const start = process.hrtime.bigint();
  let n = 0;
  for (const text of texts) n += validate(text).length;
  console.log(JSON.stringify({ seconds: Number(process.hrtime.bigint() - start) / 1e9, n }));
}
"""


def readers() -> dict[str, Read]:
    """The ways to read that this machine has."""
    found: dict[str, Read] = {
        "onym, attributes": onym_attributes,
        "onym, all parameters": onym_params,
        "urlsplit + parse_qsl": standard_library,
    }
    for name, make in PEERS.items():
        try:
            found[name] = make(importlib.import_module(name))
        except ImportError:
            print(f"note: {name} is not installed and left out", file=sys.stderr)
    return found


class Node:
    """`llm-strings` in a node process, fed line by line."""

    def __init__(self, node: str, folder: Path) -> None:
        command = [node, "--input-type=module", "-e", NODE_PROGRAM]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, texts: list[str]) -> float:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(texts), file=self.process.stdin, flush=True)
        return float(json.loads(self.process.stdout.readline())["seconds"])

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)


def start_node(folder: Path | None) -> Node | None:
    """The npm peer, or None with a note that says why not."""
    node = shutil.which("node")
    place = folder or HERE
    if node is None:
        print("note: node is not installed, so llm-strings is left out", file=sys.stderr)
        return None
    if not (place / "node_modules" / "llm-strings").is_dir():
        print(
            f"note: llm-strings is left out; npm install --prefix {place} llm-strings brings it",
            file=sys.stderr,
        )
        return None
    return Node(node, place)


def unique(count: int, mark: str) -> list[str]:
    """`count` texts of each example, none of which was there before."""
    return [example.format(f"-{mark}x{number}") for number in range(count) for example in EXAMPLES]


def measure(rounds: int, count: int, node: Node | None) -> dict[str, list[float]]:
    """Seconds for each text, by peer and round; a first round warms up and does not count."""
    ways = readers()
    times: dict[str, list[float]] = {name: [] for name in ways}
    if node is not None:
        times["llm-strings (node)"] = []
    for turn in range(rounds + 1):
        # each peer has texts of its own: a cache must not profit from another's turn
        for index, (name, read) in enumerate(ways.items()):
            texts = unique(count, f"{turn}p{index}")
            start = time.perf_counter()
            for text in texts:
                read(text)
            took = time.perf_counter() - start
            if turn:
                times[name].append(took / len(texts))
        if node is not None:
            texts = unique(count, f"{turn}n")
            took = node.seconds(texts)
            if turn:
                times["llm-strings (node)"].append(took / len(texts))
    return times


def table(times: dict[str, list[float]]) -> list[dict[str, Any]]:
    """A row for each reader: median, spread, and the median of its ratios to the baseline, round by round."""
    base = times.get(BASELINE)
    return [
        {
            "reader": name,
            "microseconds": round(statistics.median(own) * 1e6, 2),
            "fastest": round(min(own) * 1e6, 2),
            "slowest": round(max(own) * 1e6, 2),
            RATIO: None if base is None else round(statistics.median(map(truediv, base, own)), 2),
        }
        for name, own in sorted(times.items(), key=lambda row: statistics.median(row[1]))
    ]


def main() -> None:
    """Print the table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser(description="Reading unique llm URIs, beside other libraries.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=500, help="texts of each example in a round")
    parser.add_argument("--node", type=Path, help="folder whose node_modules holds llm-strings")
    parser.add_argument("--json")
    options, _ = parser.parse_known_args()
    node = start_node(options.node)
    try:
        rows = table(measure(options.rounds, options.count, node))
    finally:
        if node is not None:
            node.close()
    print("| reader | µs a URI | fastest to slowest | times as fast as yarl |\n|---|--:|--:|--:|")
    for row in rows:
        spread = f"{row['fastest']:.2f} to {row['slowest']:.2f}"
        ratio = row[RATIO]
        ratio_text = "" if ratio is None else f"{ratio:.2f}"
        print(f"| {row['reader']} | {row['microseconds']:.2f} | {spread} | {ratio_text} |")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
