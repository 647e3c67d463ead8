"""Is a grammar's language within absolute-URI? `python bench/registry.py inclusion`.

Both read the same ABNF by Onym's reader and begin from the same automaton. Onym searches the product of the
grammar's automaton and a fixed one; automata-lib makes minimal deterministic automata of both and asks
`issubset`, which is its shortest way. The fixed automaton is made once in a process, for each of the two.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onym.registry.abnf import decide_inclusion, parse_grammar, resolve
from onym.registry.abnf._inclusion import load_rfc3986
from onym.registry.abnf._nfa import NFA, build_rule_nfa, classify_octets

__all__ = ["hostile", "inclusion"]

GRAMMARS = Path(__file__).resolve().parent.parent / "tests" / "registry" / "abnf" / "grammars"
#: grammar file, rule
ASKED = (("llm", "llm-URI"), ("ai", "ai-uri"), ("coap", "coap-URI"), ("tel", "telephone-uri"))
ONYM, PEER = "onym", "automata-lib"
#: grammars made to cost, by what they are made of
HOSTILE = {
    'subsets that explode: "ab:" *pchar "x" 14pchar': 's = "ab:" *pchar "x" 14(pchar)',
    'a long repeat: "a:" 1*4096pchar': 's = "a:" 1*4096(pchar)',
    "127 labels of 63 letters": (
        's = "dns:" label *126("." label)\nlabel = alnum *61(alnum / "-") alnum\nalnum = ALPHA / DIGIT'
    ),
    'near the cap of states: "a:" 1*12000pchar': 's = "a:" 1*12000(pchar)',
    "2^60 letters by doubling": (
        's = "a:" r0\n' + "\n".join(f"r{at} = r{at + 1} r{at + 1}" for at in range(60)) + '\nr60 = "a"'
    ),
}
PROGRAM = """
import json, pathlib, re, sys, time
from onym.registry.abnf import decide_inclusion, parse_grammar, resolve
start = time.perf_counter()
found = decide_inclusion(resolve(parse_grammar(sys.stdin.read())), "s")
took = time.perf_counter() - start
status = pathlib.Path("/proc/self/status")
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1] if status.exists() else 0
print(json.dumps([found.outcome, took, int(peak) / 1024]))
"""


def _timed(work: Callable[[], bool]) -> tuple[float, bool]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def inclusion(rounds: int) -> list[dict[str, Any]]:
    """Measure, print the table, give its rows."""
    try:
        from automata.fa import dfa, nfa
    except ImportError:
        print("note: automata-lib is not installed and left out", file=sys.stderr)
        return []

    absolute = build_rule_nfa(load_rfc3986(), "absolute-URI")
    rows = []
    print("| in absolute-URI? | | ms | time, onym = 1 |\n|---|---|--:|--:|")
    for name, start in ASKED:
        text = (GRAMMARS / f"{name}.abnf").read_text(encoding="utf-8")
        table = classify_octets(
            build_rule_nfa(resolve(parse_grammar(text)), start).collect_masks() | absolute.collect_masks()
        )
        standard = dfa.DFA.from_nfa(_theirs(nfa.NFA, absolute, *table), minify=True)

        def ours(text: str = text, start: str = start) -> bool:
            return decide_inclusion(resolve(parse_grammar(text)), start).ok

        def theirs(
            text: str = text, start: str = start, table: Any = table, standard: Any = standard
        ) -> bool:
            mine = _theirs(nfa.NFA, build_rule_nfa(resolve(parse_grammar(text)), start), *table)
            return bool(dfa.DFA.from_nfa(mine, minify=True).issubset(standard))

        times: dict[str, list[float]] = {ONYM: [], PEER: []}
        for turn in range(rounds + 1):
            (mine, said), (other, agreed) = _timed(ours), _timed(theirs)
            assert said == agreed
            if turn:
                times[ONYM].append(mine)
                times[PEER].append(other)
        for peer, own in times.items():
            ratio = statistics.median(mine / base for mine, base in zip(own, times[ONYM], strict=True))
            middle = statistics.median(own) * 1e3
            print(f"| {name}: {'yes' if said else 'no'} | {peer} | {middle:.1f} | {ratio:.1f} |")
            rows.append({"grammar": name, "by": peer, "milliseconds": middle, "time_ratio_to_onym": ratio})
    return rows


def _theirs(make: Any, mine: NFA, table: bytes, shown: list[int]) -> Any:
    """Our automaton in automata-lib's words; a character of the alphabet is a class of octets."""
    symbols = [chr(0x100 + at) for at in range(len(shown))]
    transitions: dict[int, dict[str, set[int]]] = {}
    for state, (moves, jumps) in enumerate(zip(mine.moves, mine.jumps, strict=True)):
        out: dict[str, set[int]] = {"": set(jumps)} if jumps else {}
        for mask, to in moves:
            for at, octet in enumerate(shown):
                if mask >> octet & 1:
                    out.setdefault(symbols[at], set()).add(to)
        transitions[state] = out
    return make(
        states=set(range(len(mine.moves))),
        input_symbols=set(symbols),
        transitions=transitions,
        initial_state=0,
        final_states={1},
    )


def hostile() -> list[dict[str, Any]]:
    """Grammars made to cost, each in a process of its own, the fixed automaton made anew; the table."""
    print("\n| made to cost | outcome | seconds | peak, MB |\n|---|---|--:|--:|")
    rows = []
    for name, text in HOSTILE.items():
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        outcome, seconds, megabytes = json.loads(done.stdout)
        print(f"| {name} | {outcome} | {seconds:.2f} | {megabytes:.0f} |")
        rows.append({"name": name, "outcome": outcome, "seconds": seconds, "peak_megabytes": megabytes})
    return rows
