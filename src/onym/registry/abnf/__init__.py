"""ABNF grammars (RFC 5234, RFC 7405): parse, compare, lint and draw them.

`parse_grammar` and `parse_blocks` return a `Grammar`. `resolve` adds the rules of other RFCs that the
grammar names. You can then ask questions about a rule: `decide_inclusion` decides whether all of its
strings are absolute-URIs (RFC 4395 2.2, RFC 7595 3.2), `probe_rule` lists the doubtful forms that it
allows, and `compare` relates two rules. `match` tests a string, `generate_examples` returns strings,
`lint` returns remarks on the rules, and `render_railroad` draws them.

All work is bounded. If a question cannot be decided, or only beyond a limit, the result is an undecided
outcome and never a pass.
"""

from __future__ import annotations

from onym.registry.abnf._inclusion import (
    PROBES,
    Outcome,
    Probe,
    Probes,
    ReservedCharacter,
    Verdict,
    decide_inclusion,
    decide_known_part,
    find_reserved,
    find_wrong_prefix,
    probe_rule,
)
from onym.registry.abnf._language import (
    Comparison,
    Matcher,
    Relation,
    build_matcher,
    compare,
    generate_examples,
    match,
)
from onym.registry.abnf._lint import lint
from onym.registry.abnf._loader import parse_blocks, parse_grammar, resolve
from onym.registry.abnf._railroad import render_railroad
from onym.registry.abnf.grammar import Grammar, Remark, RemarkCode, Rule, list_prefixes

__all__ = [
    "PROBES",
    "Comparison",
    "Grammar",
    "Matcher",
    "Outcome",
    "Probe",
    "Probes",
    "Relation",
    "Remark",
    "RemarkCode",
    "ReservedCharacter",
    "Rule",
    "Verdict",
    "build_matcher",
    "compare",
    "decide_inclusion",
    "decide_known_part",
    "find_reserved",
    "find_wrong_prefix",
    "generate_examples",
    "lint",
    "list_prefixes",
    "match",
    "parse_blocks",
    "parse_grammar",
    "probe_rule",
    "render_railroad",
    "resolve",
]
