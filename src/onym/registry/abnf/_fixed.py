"""The automata that do not depend on any scheme: absolute-URI, URI, and the forms of `probes`."""

from __future__ import annotations

from functools import cache

from onym.registry.abnf._dfa import DFA, deterministic, difference
from onym.registry.abnf._library import library, shipped
from onym.registry.abnf._nfa import automaton
from onym.registry.abnf._read import read
from onym.registry.abnf._resolve import resolve
from onym.registry.abnf.types import Grammar

__all__ = ["absolute_uri", "double_slash", "generic", "probe", "uri"]


@cache
def generic() -> Grammar:
    """RFC 3986 Appendix A with the core rules."""
    return resolve(library("3986"))


@cache
def absolute_uri() -> DFA:
    """absolute-URI of RFC 3986 4.3, minimal; made once for each process."""
    return deterministic(automaton(generic(), "absolute-URI"))


@cache
def uri() -> DFA:
    """URI of RFC 3986 3, minimal; made once for each process."""
    return deterministic(automaton(generic(), "URI"))


@cache
def _probes() -> Grammar:
    return resolve(read(shipped("probes.abnf")))


@cache
def probe(rule: str) -> DFA:
    """The strings of one rule of data/probes.abnf."""
    return deterministic(automaton(_probes(), rule))


@cache
def double_slash() -> DFA:
    """Strings with `//` after the scheme that are no URI: what follows is no authority and path."""
    return difference(probe("double-slash"), uri())
