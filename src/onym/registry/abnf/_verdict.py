"""Is every string of a rule an absolute-URI? And the forms that it admits without meaning to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from onym.errors import GrammarError
from onym.registry.abnf._dfa import DFA, deterministic
from onym.registry.abnf._expression import Pool, expression
from onym.registry.abnf._fixed import absolute_uri, double_slash, probe, uri
from onym.registry.abnf._nfa import NFA, build, too_large
from onym.registry.abnf._product import search
from onym.registry.abnf._text import shown
from onym.registry.abnf.types import Grammar

__all__ = ["PROBES", "Outcome", "Probe", "Probes", "Verdict", "begins", "included", "probes"]

#: states of an automaton that `probes` asks
MAX_ASKED: Final = 15_000
_HASH: Final = 1 << ord("#")


class Outcome(StrEnum):
    """How a question about a grammar ended. Only INCLUDED is a pass."""

    INCLUDED = "included"
    #: every fault is a fragment: the strings are URIs, those without "#" are absolute-URIs
    FRAGMENT_ONLY = "fragment-only"
    NOT_INCLUDED = "not-included"
    #: the rule has no string at all
    EMPTY = "empty"
    #: not decided: a rule uses itself
    RECURSIVE = "recursive"
    #: not decided: a rule is used and not defined
    UNDEFINED = "undefined"
    #: not decided: a rule is described in words
    PROSE = "prose"
    #: not decided: a rule is not ABNF
    BROKEN = "broken"
    #: not decided: the automaton or the search grew beyond its cap
    TOO_LARGE = "too-large"


_OUTCOMES: Final[Mapping[str, Outcome]] = MappingProxyType(
    {
        "abnf.recursive": Outcome.RECURSIVE,
        "abnf.undefined-rule": Outcome.UNDEFINED,
        "abnf.prose": Outcome.PROSE,
        "abnf.broken-rule": Outcome.BROKEN,
        "abnf.too-large": Outcome.TOO_LARGE,
    }
)
_DECIDED: Final = (Outcome.INCLUDED, Outcome.FRAGMENT_ONLY, Outcome.NOT_INCLUDED, Outcome.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the strings of a rule are absolute-URIs (RFC 3986 4.3; RFC 4395 2.2, RFC 7595 3.2).

    `witness` is the shortest string that is none; `second` the shortest one without "#", where the witness
    has one and there is such a string. Both are safe to print: octets that are no printable text are
    written as escapes. `problem` says why nothing was decided. `states` counts those of the automaton.
    """

    outcome: Outcome
    start: str
    witness: str | None = None
    second: str | None = None
    problem: GrammarError | None = None
    states: int = 0

    @property
    def ok(self) -> bool:
        """Is every string an absolute-URI, proved?"""
        return self.outcome is Outcome.INCLUDED

    @property
    def decided(self) -> bool:
        """Was the question answered, either way?"""
        return self.outcome in _DECIDED


def included(grammar: Grammar, start: str) -> Verdict:
    """Decide whether every string of the rule `start` is an absolute-URI.

    By breadth-first search over pairs of states of the rule's automaton and the fixed one of absolute-URI.
    Call `resolve` first: names that are not defined are an outcome of their own. Raises UnknownEntryError
    where the grammar has no such rule.
    """
    try:
        whole = expression(grammar, start)
        nfa = build(whole)
        if whole.shortest is None:
            return Verdict(outcome=Outcome.EMPTY, start=start, states=len(nfa.moves))
        return _verdict(nfa, start)
    except GrammarError as error:
        return Verdict(outcome=_OUTCOMES[error.code], start=start, problem=error)


def _verdict(nfa: NFA, start: str) -> Verdict:
    states = len(nfa.moves)
    witness = search(nfa, absolute_uri(), accepted=False)
    if witness is None:
        return Verdict(outcome=Outcome.INCLUDED, start=start, states=states)
    second = None
    outcome = Outcome.NOT_INCLUDED
    if b"#" in witness:
        second = search(nfa, absolute_uri(), accepted=False, without=_HASH)
        if second is None and search(nfa, uri(), accepted=False) is None:
            outcome = Outcome.FRAGMENT_ONLY
    return Verdict(
        outcome=outcome,
        start=start,
        witness=shown(witness),
        second=None if second is None else shown(second),
        states=states,
    )


def begins(grammar: Grammar, start: str, scheme: str) -> str | None:
    """The shortest string of the rule that does not begin with `scheme:`, whatever its case; None: no such.

    Raises GrammarError where that cannot be decided.
    """
    return _shortest(build(expression(grammar, start)), _prefix(scheme), accepted=False)


def _prefix(scheme: str) -> DFA:
    pool = Pool()
    octets = pool.repetition(pool.octets((1 << 256) - 1), 0, None)
    return deterministic(build(pool.concatenation([pool.text(f"{scheme}:", sensitive=False), octets])))


def _shortest(nfa: NFA, dfa: DFA, *, accepted: bool) -> str | None:
    found = search(nfa, dfa, accepted=accepted)
    return None if found is None else shown(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One form of a URI: its id, what it is, the clause that speaks of it, the rule of data/probes.abnf."""

    id: str
    title: str
    clause: str
    rule: str


#: the forms that `probes` looks for
PROBES: Final = (
    Probe(id="bare-scheme", title="the scheme and a colon alone", clause="RFC 3986 3", rule="bare-scheme"),
    Probe(id="empty-host", title="an empty host", clause="RFC 3986 3.2.2", rule="empty-host"),
    Probe(id="password", title="user:password", clause="RFC 3986 3.2.1", rule="password"),
    Probe(id="dot-segments", title="dot segments", clause="RFC 3986 3.3", rule="dot-segments"),
    Probe(id="empty-port", title="an empty port", clause="RFC 3986 3.2.3", rule="empty-port"),
    Probe(id="encoded-slash", title="an encoded slash, %2F", clause="RFC 3986 2.2", rule="encoded-slash"),
    Probe(id="encoded-octet", title="an octet of no UTF-8, %FF", clause="RFC 3986 2.5", rule="encoded-octet"),
    Probe(id="fragment", title="a fragment", clause="RFC 3986 3.5", rule="fragment-part"),
    Probe(id="improper-slashes", title="// before no authority", clause="RFC 3986 3.2", rule=""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """What a rule admits: for each id of PROBES the shortest such string, None where it admits none.

    `problem` says why nothing could be asked; `found` is empty then.
    """

    found: Mapping[str, str | None]
    problem: GrammarError | None = None

    @property
    def decided(self) -> bool:
        """Were the questions answered?"""
        return self.problem is None

    def admits(self, identifier: str) -> bool:
        """Does the rule admit this form? KeyError where nothing was decided."""
        return self.found[identifier] is not None


def probes(grammar: Grammar, start: str) -> Probes:
    """Ask a rule for each form of PROBES. Raises UnknownEntryError where there is no such rule."""
    try:
        nfa = build(expression(grammar, start))
        if len(nfa.moves) > MAX_ASKED:
            raise too_large(f"the automaton has more than {MAX_ASKED:,} states")
        found = {
            each.id: _shortest(nfa, probe(each.rule) if each.rule else double_slash(), accepted=True)
            for each in PROBES
        }
    except GrammarError as error:
        return Probes(found=MappingProxyType({}), problem=error)
    return Probes(found=MappingProxyType(found))
