"""The grammar of a scheme, as the checks use it: the only module that calls `onym.registry.abnf` for them.

Every question has an answer or a reason why there is none. A grammar that is recursive or exceeds its
caps is an outcome of its own, never a pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from onym.errors import GrammarError, URIError
from onym.registry.abnf import (
    Grammar,
    Matcher,
    Probes,
    Remark,
    ReservedCharacter,
    Verdict,
    build_matcher,
    decide_inclusion,
    find_reserved,
    find_wrong_prefix,
    lint,
    parse_blocks,
    probe_rule,
    resolve,
)
from onym.registry.abnf.grammar import CharacterSet, collect_characters, find_reached_rules, find_unused_rules
from onym.registry.documents.types import Block
from onym.uri.generic import URI


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarProblem:
    """Why a grammar cannot be used; `code` is stable."""

    code: str
    message: str
    line: int | None = None
    column: int | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A string that lies beyond some language (None: there is none), or why that was not decided."""

    witness: str | None = None
    problem: str | None = None


#: states of a grammar's automaton beyond which only inclusion is decided
MAX_STATES: Final = 10_000
#: steps of the matches of all examples together (`abnf.Matcher`)
MAX_STEPS: Final = 20_000_000


class SchemeGrammar:
    """The grammar of one scheme. Without a grammar nothing is decidable, and `problem` may say why."""

    def __init__(
        self,
        name: str = "",
        *,
        written: Grammar | None = None,
        problem: GrammarProblem | None = None,
        alone: bool = True,
    ) -> None:
        self._name = name.lower()
        #: is the grammar the whole text? Among other text, any rule may be about something else
        self.alone = alone
        self._written = written
        self.problem = problem
        self.grammar: Grammar | None = None
        self.start: str | None = None
        #: why `accepts` gave no answer, where it did not
        self.unmatched: str | None = None
        self._matches: dict[str, bool | None] = {}
        if written is not None:
            self._resolve_grammar(written)

    def _resolve_grammar(self, written: Grammar) -> None:
        """Imports resolved, the scheme's rule found; or the problem that keeps from it."""
        try:
            self.grammar = resolve(written)
        except GrammarError as error:
            self.problem = _make_problem(error)
            return
        if written.problems:
            self.problem = _make_problem(written.problems[0])
        self.start = self._choose_start(self.grammar)

    def _choose_start(self, grammar: Grammar) -> str | None:
        """The scheme's rule: by what it begins with, else by its name or as the only one that none uses."""
        if self._name and self.schemes:
            return grammar.start(self._name)
        starts = {rule for each in self.schemes if (rule := grammar.start(each)) is not None}
        if not starts and self.problem is None:
            starts = self._find_start_candidates(grammar)
        called = {start for start in starts if start.lower().endswith(("uri", "url"))}
        (*several, last) = called or starts or ("",)
        return None if several or not last else last

    def _find_start_candidates(self, grammar: Grammar) -> set[str]:
        """What may be the scheme's rule where no rule begins with a name: a header's is not."""
        if not self._name:
            return set(find_unused_rules(grammar)) if self.alone else set()
        plain = re.sub(r"[^a-z0-9]", "", self._name)
        called = {plain, f"{plain}uri", f"{plain}url"}
        return {
            rule_name
            for rule_name in find_unused_rules(grammar)
            if rule_name.lower().replace("-", "") in called
        }

    @property
    def scheme(self) -> str | None:
        """The scheme whose strings the grammar makes, where it is one alone."""
        return self.schemes[0] if len(self.schemes) == 1 else None

    @cached_property
    def schemes(self) -> tuple[str, ...]:
        """The names that rules of the text begin with, in lower case."""
        return () if self.grammar is None else self.grammar.schemes

    @property
    def present(self) -> bool:
        """Does the document hold a grammar, readable or not?"""
        return self._written is not None or self.problem is not None

    @property
    def unclear(self) -> bool:
        """Is there a grammar that can be read, and nothing that says which rule is the scheme's?

        A grammar of other schemes alone is clear: it is not the one that is sought.
        """
        return (
            self.grammar is not None
            and self.start is None
            and self.problem is None
            and not (self._name and self.schemes)
        )

    @property
    def decidable(self) -> bool:
        """Is there a grammar with a rule that is the scheme's?"""
        return self.grammar is not None and self.start is not None

    @cached_property
    def reached(self) -> frozenset[str]:
        """The rules that the scheme's rule is made of, by their names in lower case; it too."""
        if self.grammar is None or self.start is None:
            return frozenset()
        return find_reached_rules(self.grammar, self.start)

    @cached_property
    def own_rules(self) -> tuple[str, ...]:
        """The names of the rules that the text itself has."""
        return () if self._written is None else tuple(rule.name for rule in self._written.own)

    def line_of(self, rule: str) -> int | None:
        """Where the text defines the rule, else where it defines the scheme's."""
        if self._written is None:
            return None
        found = self._written.rules.get(rule.lower()) or self._written.rules.get((self.start or "").lower())
        return None if found is None or not found.line else found.line

    def source_of(self, rule: str) -> str:
        """The rule as the text has it; "" for one of elsewhere."""
        found = None if self._written is None else self._written.rules.get(rule.lower())
        return "" if found is None else found.text

    def is_uri(self, text: str) -> bool:
        """Is it a URI of RFC 3986, fragment or not?"""
        try:
            URI.parse(text, "URI")
        except URIError:
            return False
        return True

    @cached_property
    def _matcher(self) -> Matcher | None:
        if self.grammar is None or self.start is None:
            return None
        try:
            return build_matcher(self.grammar, self.start, steps=MAX_STEPS)
        except GrammarError:
            return None

    def accepts(self, text: str) -> bool | None:
        """Is `text` a string of the scheme? None where that is not decided. Each is tried once."""
        if text not in self._matches:
            self._matches[text] = self._match_text(text)
        return self._matches[text]

    def _match_text(self, text: str) -> bool | None:
        if self._matcher is None:
            return None
        try:
            return self._matcher(text)
        except GrammarError as error:
            self.unmatched = error.message
            return None

    @cached_property
    def inclusion(self) -> Verdict:
        """Is every string of the scheme an absolute-URI? To be asked where it is decidable."""
        assert self.grammar is not None and self.start is not None  # noqa: PT018, S101 - decidable says so
        return decide_inclusion(self.grammar, self.start)

    def begins(self, name: str) -> Answer:
        """A string of the scheme that does not begin with its name and a colon."""
        if self.grammar is None or self.start is None:
            return Answer(problem="there is no grammar")
        try:
            return Answer(witness=find_wrong_prefix(self.grammar, self.start, name))
        except GrammarError as error:
            return Answer(problem=error.message)

    @cached_property
    def _probes(self) -> Probes | None:
        if self.grammar is None or self.start is None or self._is_large:
            return None
        return probe_rule(self.grammar, self.start)

    @property
    def _is_large(self) -> bool:
        """Would some seventy further questions take too long? The first, inclusion, is always asked."""
        return self.decidable and self.inclusion.states > MAX_STATES

    @property
    def unprobed(self) -> str | None:
        """Why `probe` has no answers; None where it has."""
        if self._is_large:
            return f"the automaton has more than {MAX_STATES:,} states"
        if self._probes is None or self._probes.problem is None:
            return None
        return self._probes.problem.message

    def probe(self, identifier: str) -> str | None:
        """The shortest string of this form (`abnf.PROBES`) that the grammar admits, None for none."""
        return None if self._probes is None else self._probes.found.get(identifier)

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """What is odd about its rules, in order of the text; what was imported is told by `imported`."""
        return tuple(remark for remark in self._all_remarks if remark.code != "imported")

    @cached_property
    def imported(self) -> str:
        """The rules that come from elsewhere, by RFC: `host, port (RFC 3986); ALPHA (RFC 5234)`; or ""."""
        by_source: dict[str, list[str]] = {}
        for rule in () if self.grammar is None else self.grammar.rules.values():
            if rule.source is not None:
                by_source.setdefault(rule.source, []).append(rule.name)
        return "; ".join(f"{', '.join(names)} ({source})" for source, names in by_source.items())

    @cached_property
    def _all_remarks(self) -> tuple[Remark, ...]:
        if self.grammar is None:
            return ()
        try:
            found = dict.fromkeys((*self.grammar.remarks, *lint(self.grammar)))
        except GrammarError:
            found = dict.fromkeys(self.grammar.remarks)
        return tuple(sorted(found, key=lambda each: (each.line or 0, each.column or 0)))

    @cached_property
    def _characters(self) -> CharacterSet:
        if self.grammar is None or self.start is None:
            return CharacterSet(found=frozenset(), letters=False)
        return collect_characters(self.grammar, self.start)

    @cached_property
    def _reserved(self) -> tuple[tuple[ReservedCharacter, ...], str | None]:
        if self.grammar is None or self.start is None or self.unprobed is not None:
            return (), self.unprobed
        try:
            return find_reserved(self.grammar, self.start), None
        except GrammarError as error:
            return (), error.message

    @property
    def reserved(self) -> tuple[ReservedCharacter, ...]:
        """Where strings of the scheme may hold a reserved character (RFC 3986 2.2) as data."""
        return self._reserved[0]

    @property
    def unreserved_why(self) -> str | None:
        """Why `reserved` has no answer; None where it has."""
        return self._reserved[1]

    @property
    def holds_text(self) -> bool:
        """May strings of the scheme hold free text: any letter, or percent-encoded octets?"""
        return self._characters.letters or "%" in self._characters.found


def _make_problem(error: GrammarError) -> GrammarProblem:
    code = "abnf-syntax" if error.code == "abnf.syntax" else error.code.replace(".", "-")
    return GrammarProblem(
        code=code, message=error.message, line=error.line, column=error.column, fix=error.hint
    )


def read_syntax(blocks: Sequence[Block], name: str) -> SchemeGrammar:
    """The grammar in the blocks of a document, as that of the scheme `name` ("": whichever it is of)."""
    if not blocks:
        return SchemeGrammar(name)
    # only what is ABNF from its first line on has its one block there
    alone = len(blocks) == 1 and blocks[0].line == 1
    try:
        return SchemeGrammar(name, written=parse_blocks(blocks), alone=alone)
    except GrammarError as error:
        return SchemeGrammar(name, problem=_make_problem(error), alone=alone)
