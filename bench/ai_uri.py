"""Unique ai URIs, canonical form and mapping: `python bench/ai_uri.py [--json FILE] [--rounds N]`.

Onym reads, judges and rewrites an ai URI, and maps it to HTTPS and back; the peers only parse the HTTPS URL
that comes out of the mapping. Each text is made unique, so that no cache of whole texts helps anybody. Rounds
are interleaved: in each, every row has its turn. Figures are medians; ratios are to yarl.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from operator import truediv
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from onym.uri.ai import AIURI, from_target, to_https

EXAMPLES = (
    "ai://factory.example/pay{}?amount=10&currency=USD",
    "ai:/agent/forklift-42{}?task=load&zone=A3",
    "ai://bank/service/payments{}",
    "AI://Bank.example:443/%7Euser{}?q=%c3%bc",
    "ai://xn--bcher-kva.example/stra%C3%9Fe{}",
)
BASE = "https://ai.example/gateway"
BASELINE = "yarl.URL"
RATIO = f"times_as_fast_as_{BASELINE}"
Run = Callable[[Any], object]
Prepare = Callable[[str], Any]


def mapped(text: str) -> str:
    return to_https(BASE, AIURI.parse(text))


def target(text: str) -> tuple[bytes, bytes]:
    """Raw path and query of the mapped URL, as a server has them."""
    path, _, query = mapped(text).removeprefix("https://ai.example").partition("?")
    return path.encode(), query.encode()


def as_it_is(text: str) -> str:
    return text


def canonical(text: str) -> object:
    return AIURI.parse(text).canonical()


def to_https_and_parse(text: str) -> object:
    return to_https(BASE, AIURI.parse(text))


def back(parts: tuple[bytes, bytes]) -> object:
    return from_target("/gateway", *parts)


def rows() -> dict[str, tuple[Prepare, Run]]:
    """What is timed, and what each is given."""
    found: dict[str, tuple[Prepare, Run]] = {
        "onym AIURI.parse": (as_it_is, AIURI.parse),
        "onym parse + canonical": (as_it_is, canonical),
        "onym parse + to_https": (as_it_is, to_https_and_parse),
        "onym from_target": (target, back),
        "urllib.parse.urlsplit": (mapped, urlsplit),
    }
    for name, attribute in (("yarl", "URL"), ("ada_url", "URL"), ("httpx2", "URL")):
        try:
            found[f"{name}.{attribute}"] = (mapped, getattr(importlib.import_module(name), attribute))
        except ImportError:
            print(f"note: {name} is not installed and left out", file=sys.stderr)
    return found


def measure(rounds: int, count: int) -> dict[str, list[float]]:
    """Seconds for each text, by row and round; a first round warms up and does not count."""
    timed = rows()
    times: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(rounds + 1):
        # each row has texts of its own: a cache must not profit from another's turn
        for index, (name, (prepare, run)) in enumerate(timed.items()):
            given = [
                prepare(example.format(f"-{turn}p{index}x{number}"))
                for number in range(count)
                for example in EXAMPLES
            ]
            start = time.perf_counter()
            for each in given:
                run(each)
            took = time.perf_counter() - start
            if turn:
                times[name].append(took / len(given))
    return times


def table(times: dict[str, list[float]]) -> list[dict[str, Any]]:
    """A record for each row: median, its inverse, and the median of its ratios to the baseline."""
    base = times.get(BASELINE)
    return [
        {
            "row": name,
            "microseconds": round(statistics.median(own) * 1e6, 2),
            "per_second": round(1 / statistics.median(own)),
            RATIO: None if base is None else round(statistics.median(map(truediv, base, own)), 2),
        }
        for name, own in sorted(times.items(), key=lambda row: statistics.median(row[1]))
    ]


def main() -> None:
    """Print the table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser(description="Canonical forms and the mapping of unique ai URIs.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--count", type=int, default=500, help="texts of each example in a round")
    parser.add_argument("--json")
    options, _ = parser.parse_known_args()
    records = table(measure(options.rounds, options.count))
    print("| step | µs a URI | a second | times as fast as yarl |\n|---|--:|--:|--:|")
    for record in records:
        ratio = "" if record[RATIO] is None else f"{record[RATIO]:.2f}"
        print(f"| {record['row']} | {record['microseconds']:.2f} | {record['per_second']:,} | {ratio} |")
    if options.json:
        Path(options.json).write_text(json.dumps(records, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
