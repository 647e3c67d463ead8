"""ABNF (RFC 5234, RFC 7405): read it, decide what its strings are, compare, show.

`read` and `read_document` make a `Grammar`, `resolve` adds the rules of other RFCs that it names. Then
`included` decides whether a scheme's strings are absolute-URIs (RFC 4395 2.2, RFC 7595 3.2), `probes` which
doubtful forms it admits, `compare` how two languages lie, `match` and `examples` take and give strings,
`lint` remarks on the rules, `railroad` draws them. Everything is bounded: what cannot be decided, or only
beyond a cap, is an outcome of its own and never a pass.
"""

from __future__ import annotations

from onym.registry.abnf._compare import Comparison, Relation, compare
from onym.registry.abnf._lint import lint
from onym.registry.abnf._match import Matcher, examples, match, matcher
from onym.registry.abnf._railroad import railroad
from onym.registry.abnf._read import read, read_document
from onym.registry.abnf._reserved import Position, reserved
from onym.registry.abnf._resolve import resolve
from onym.registry.abnf._start import leading
from onym.registry.abnf._verdict import (
    PROBES,
    Outcome,
    Probe,
    Probes,
    Verdict,
    begins,
    included,
    probes,
)
from onym.registry.abnf.types import Grammar, Remark, RemarkCode, Rule

__all__ = [
    "PROBES",
    "Comparison",
    "Grammar",
    "Matcher",
    "Outcome",
    "Position",
    "Probe",
    "Probes",
    "Relation",
    "Remark",
    "RemarkCode",
    "Rule",
    "Verdict",
    "begins",
    "compare",
    "examples",
    "included",
    "leading",
    "lint",
    "match",
    "matcher",
    "probes",
    "railroad",
    "read",
    "read_document",
    "reserved",
    "resolve",
]
