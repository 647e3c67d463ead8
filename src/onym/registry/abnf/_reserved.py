"""Where a scheme's strings may have the reserved characters of RFC 3986 2.2 (check S5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from onym.registry.abnf._dfa import DFA, deterministic
from onym.registry.abnf._expression import expression
from onym.registry.abnf._nfa import automaton, build, too_large
from onym.registry.abnf._product import search
from onym.registry.abnf._read import read
from onym.registry.abnf._text import shown
from onym.registry.abnf.types import Grammar

__all__ = ["RESERVED", "Position", "reserved"]

#: states of an automaton that is asked; there are 64 questions
MAX_ASKED: Final = 4_000
#: RFC 3986 2.2: gen-delims, then sub-delims
RESERVED: Final = ":/?#[]@!$&'()*+,;="
#: each component as RFC 3986 Appendix B takes a string apart; {c} is the character
_COMPONENTS: Final = {
    "authority": 'at = before "//" *a {c} *o',
    "path": 'at = before "//" *a "/" *p {c} *o / before {c} / before n *p {c} *o'
    ' / before "/" / before "/" {d} *o / before "/" n *p {c} *o',
    "query": 'at = before *p "?" *q {c} *o',
    "fragment": 'at = before *p [ "?" *q ] "#" *o {c} *o',
}
_PARTS: Final = """
before = 1*( %x00-22 / %x24-2E / %x30-39 / %x3B-3E / %x40-FF ) ":"
a = %x00-22 / %x24-2E / %x30-3E / %x40-FF
n = %x00-22 / %x24-2E / %x30-3E / %x40-FF
p = %x00-22 / %x24-3E / %x40-FF
q = %x00-22 / %x24-FF
o = %x00-FF
"""
#: characters that end a component, and so are never within it
_NEVER: Final = {"authority": "/?#", "path": "?#", "query": "#", "fragment": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A reserved character that the rule admits within a component, and the shortest string that shows it."""

    character: str
    component: str
    witness: str


def reserved(grammar: Grammar, start: str) -> tuple[Position, ...]:
    """Where the strings of a rule may have each reserved character, component by component.

    A delimiter counts where it is data, not where it divides: the "?" before the query does not. Raises
    GrammarError where that cannot be decided, UnknownEntryError where there is no such rule.
    """
    nfa = build(expression(grammar, start))
    if len(nfa.moves) > MAX_ASKED:
        raise too_large(f"the automaton has more than {MAX_ASKED:,} states")
    out = []
    for character in RESERVED:
        for component, never in _NEVER.items():
            if character not in never:
                found = search(nfa, _form(component, character), accepted=True)
                if found is not None:
                    out.append(Position(character=character, component=component, witness=shown(found)))
    return tuple(out)


@cache
def _form(component: str, character: str) -> DFA:
    value = f"%x{ord(character):02X}"
    text = _COMPONENTS[component]
    if character == "/":
        # a slash after the first would make the two an authority's
        text = text.replace(' / before "/" {d} *o', "")
    else:
        text = text.replace(' / before "/" /', " /").replace("before {c} /", "before {c} *o /")
    grammar = read(text.format(c=value, d=value) + _PARTS)
    return deterministic(automaton(grammar, "at"))
