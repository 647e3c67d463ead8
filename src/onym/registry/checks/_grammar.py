"""The grammar of a scheme for the checks; other checks do not call `onym.registry.abnf`.

Every question has an answer, or a reason why it has none. A grammar that is recursive or exceeds a limit
never passes: its outcome is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from onym.errors import GrammarError, URIError
from onym.registry import abnf
from onym.registry.documents.types import Block
from onym.uri.generic import URI


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarProblem:
    """The reason why a grammar cannot be used; `code` is stable."""

    code: str
    message: str
    line: int | None = None
    column: int | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A string that is in one language only (None: there is none), or why that was not decided."""

    witness: str | None = None
    problem: str | None = None


#: states of a grammar's automaton beyond which only inclusion is decided
MAX_STATES: Final = 10_000
#: steps of the matches of all examples together (`abnf.Matcher`)
MAX_STEPS: Final = 20_000_000


class SchemeGrammar:
    """The grammar of one scheme. Without a grammar nothing is decidable; `problem` may give the reason."""

    def __init__(
        self,
        name: str = "",
        *,
        written: abnf.Grammar | None = None,
        problem: GrammarProblem | None = None,
        alone: bool = True,
    ) -> None:
        self._name = name.lower()
        #: whether the grammar is the whole text; rules within other text may be about something else
        self.alone = alone
        self._written = written
        self.problem = problem
        self.grammar: abnf.Grammar | None = None
        self.start: str | None = None
        #: whether the only rule was made from a URI with names in angle brackets
        self.is_form = False
        #: the other scheme whose syntax the template refers to
        self.alias: str | None = None
        #: why `accepts` returned None
        self.unmatched: str | None = None
        self._matches: dict[str, bool | None] = {}
        if written is None:
            return
        try:
            self.grammar = abnf.resolve(written)
        except GrammarError as error:
            self.problem = _make_problem(error)
            return
        if written.problems:
            self.problem = _make_problem(written.problems[0])
        self.start = self._choose_start(self.grammar)

    def infer_schemes(self) -> tuple[str, ...]:
        """Return the schemes that the grammar defines, for a text that does not name its scheme.

        Rules of a header or a message may begin with a name and a colon too, so rules count that are named
        after the scheme (`http-URI`), else those that no other rule uses and whose names end with URI or URL.
        """
        if self.grammar is None:
            return ()
        rules = self.grammar.find_starts(self.schemes)
        keys = {scheme: re.sub(r"[^a-z0-9]", "", rule.lower()) for scheme, rule in rules.items()}
        after = [scheme for scheme, key in keys.items() if key in _list_rule_keys(scheme)[1:]]
        if after:
            return tuple(after)
        unused = set(abnf.find_unused_rules(self.grammar))
        ending = [scheme for scheme, key in keys.items() if key.endswith(("uri", "url"))]
        return tuple(scheme for scheme in ending if rules[scheme] in unused)

    def _choose_start(self, grammar: abnf.Grammar) -> str | None:
        """Return the scheme's rule, chosen by its prefix, by its name, or as the only unused rule."""
        if self._name and self.schemes:
            return grammar.start(self._name)
        starts = set(grammar.find_starts(self.schemes).values())
        if not starts and self.problem is None:
            starts = self._find_start_candidates(grammar)
        named = {start for start in starts if start.lower().endswith(("uri", "url"))}
        (*several, last) = named or starts or ("",)
        return None if several or not last else last

    def _find_start_candidates(self, grammar: abnf.Grammar) -> set[str]:
        unused = set(abnf.find_unused_rules(grammar))
        if not self._name:
            return unused if self.alone else set()
        wanted = _list_rule_keys(self._name)
        return {rule for rule in unused if rule.lower().replace("-", "") in wanted}

    @property
    def scheme(self) -> str | None:
        """The scheme that the grammar defines; None if it defines several, or none."""
        return self.schemes[0] if len(self.schemes) == 1 else None

    @cached_property
    def schemes(self) -> tuple[str, ...]:
        """The scheme names that rules of the text begin with, in lower case."""
        return () if self.grammar is None else self.grammar.schemes

    @property
    def present(self) -> bool:
        """Whether the document has a grammar, valid or not."""
        return self._written is not None or self.problem is not None

    @property
    def unclear(self) -> bool:
        """Whether the grammar is valid, but it is not clear which rule defines the scheme.

        A grammar that defines only other schemes is clear.
        """
        return (
            self.grammar is not None
            and self.start is None
            and self.problem is None
            and not (self._name and self.schemes)
        )

    @property
    def defines_other_scheme(self) -> bool:
        """Whether rules begin with names of schemes, but none with the name of this one."""
        return bool(self._name) and self._name not in self.schemes and bool(self.infer_schemes())

    @property
    def decidable(self) -> bool:
        """Whether there is a grammar with a rule for the scheme."""
        return self.grammar is not None and self.start is not None

    @cached_property
    def reached(self) -> frozenset[str]:
        """The names of the scheme's rule and of the rules that it uses, in lower case."""
        if self.grammar is None or self.start is None:
            return frozenset()
        return abnf.find_reached_rules(self.grammar, self.start)

    @cached_property
    def own_rules(self) -> tuple[str, ...]:
        """The names of the rules that the text itself defines."""
        return () if self._written is None else tuple(rule.name for rule in self._written.own)

    def line_of(self, rule: str) -> int | None:
        """Return the line that defines the rule, else the line that defines the scheme's rule."""
        if self._written is None:
            return None
        rules = self._written.rules
        defined = rules.get(rule.lower()) or rules.get((self.start or "").lower())
        return None if defined is None or not defined.line else defined.line

    def source_of(self, rule: str) -> str:
        """Return the text of the rule; "" if the text does not define it."""
        defined = None if self._written is None else self._written.rules.get(rule.lower())
        return "" if defined is None else defined.text

    def is_uri(self, text: str) -> bool:
        """Return whether the text is a URI of RFC 3986, with or without a fragment."""
        try:
            URI.parse(text, "URI")
        except URIError:
            return False
        return True

    @cached_property
    def _matcher(self) -> abnf.Matcher | None:
        if self.grammar is None or self.start is None:
            return None
        try:
            return abnf.build_matcher(self.grammar, self.start, steps=MAX_STEPS)
        except GrammarError:
            return None

    def accepts(self, text: str) -> bool | None:
        """Return whether `text` matches the scheme's rule; None if that is not decided."""
        if self.is_form:
            self.unmatched = "the syntax is not ABNF, and prose may make its parts optional"
            return None
        if text not in self._matches:
            try:
                self._matches[text] = None if self._matcher is None else self._matcher(text)
            except GrammarError as error:
                self.unmatched = error.message
                self._matches[text] = None
        return self._matches[text]

    @cached_property
    def _appendix(self) -> SchemeGrammar | None:
        """The grammar with the definitions that an appendix has for its rules; None if it has none."""
        others = () if self._written is None else self._written.others
        supplements = {rule.key: rule for rule in others if abnf.is_in_appendix(rule.section)}
        if self._written is None or not supplements:
            return None
        rules = MappingProxyType({**self._written.rules, **supplements})
        return SchemeGrammar(self._name, written=replace(self._written, rules=rules, others=()))

    def accepts_in_appendix(self, text: str) -> bool:
        """Return whether `text` matches the syntax that an appendix defines, such as a nonstandard one."""
        return self._appendix is not None and self._appendix.accepts(text) is True

    @cached_property
    def inclusion(self) -> abnf.Verdict:
        """Whether every string of the scheme is an absolute-URI; only if `decidable`."""
        assert self.grammar is not None and self.start is not None  # noqa: PT018, S101 - see decidable
        return abnf.decide_known_part(self.grammar, self.start)

    def begins(self, *names: str) -> Answer:
        """Find a string of the scheme that does not begin with one of the names and a colon."""
        if self.grammar is None or self.start is None:
            return Answer(problem="the text has no grammar")
        try:
            return Answer(witness=abnf.find_wrong_prefix(self.grammar, self.start, *names))
        except GrammarError as error:
            return Answer(problem=error.message)

    @cached_property
    def _probes(self) -> abnf.Probes | None:
        if self.grammar is None or self.start is None or self._is_large:
            return None
        return abnf.probe_rule(self.grammar, self.start)

    @property
    def _is_large(self) -> bool:
        """Whether about seventy further questions would take too long; inclusion is always decided."""
        return self.decidable and self.inclusion.states > MAX_STATES

    @property
    def unprobed(self) -> str | None:
        """Why `probe` has no answers; None if it has."""
        if self._is_large:
            return f"the automaton has more than {MAX_STATES:,} states"
        if self._probes is None or self._probes.problem is None:
            return None
        return self._probes.problem.message

    def probe(self, identifier: str) -> str | None:
        """Return the shortest string of this form (`abnf.PROBES`) that the grammar allows; None if none."""
        return None if self._probes is None else self._probes.found.get(identifier)

    @cached_property
    def remarks(self) -> tuple[abnf.Remark, ...]:
        """The remarks on the rules in order of the text, without those of imports (`imported`)."""
        if self.grammar is None:
            return ()
        remarks = dict.fromkeys(self.grammar.remarks)
        with suppress(GrammarError):
            remarks |= dict.fromkeys(abnf.lint(self.grammar))
        rows = (remark for remark in remarks if remark.code != "imported")
        return tuple(sorted(rows, key=lambda remark: (remark.line or 0, remark.column or 0)))

    @cached_property
    def imported(self) -> str:
        """The imported rules by RFC: `host, port (RFC 3986); ALPHA (RFC 5234)`; "" if there are none."""
        by_source: dict[str, list[str]] = {}
        for rule in () if self.grammar is None else self.grammar.rules.values():
            if rule.source is not None:
                by_source.setdefault(rule.source, []).append(rule.name)
        return "; ".join(f"{', '.join(names)} ({source})" for source, names in by_source.items())

    @cached_property
    def _reserved(self) -> tuple[tuple[abnf.ReservedCharacter, ...], str | None]:
        if self.grammar is None or self.start is None or self.unprobed is not None:
            return (), self.unprobed
        try:
            return abnf.find_reserved(self.grammar, self.start), None
        except GrammarError as error:
            return (), error.message

    @property
    def reserved(self) -> tuple[abnf.ReservedCharacter, ...]:
        """The components in which strings may have a reserved character (RFC 3986 2.2) as data."""
        return self._reserved[0]

    @property
    def unreserved_why(self) -> str | None:
        """Why `reserved` has no answer; None if it has."""
        return self._reserved[1]

    @cached_property
    def holds_text(self) -> bool:
        """Whether strings of the scheme may have free text: any letter, or percent-encoded bytes."""
        return (
            self.grammar is not None and self.start is not None and abnf.allows_text(self.grammar, self.start)
        )


def _list_rule_keys(scheme: str) -> tuple[str, ...]:
    """Return the names of rules, without hyphens, that are named after a scheme."""
    bare = re.sub(r"[^a-z0-9]", "", scheme.lower())
    return bare, f"{bare}uri", f"{bare}url"


def _make_problem(error: GrammarError) -> GrammarProblem:
    code = "abnf-syntax" if error.code == "abnf.syntax" else error.code.replace(".", "-")
    return GrammarProblem(
        code=code, message=error.message, line=error.line, column=error.column, fix=error.hint
    )


def read_syntax(blocks: Sequence[Block], name: str) -> SchemeGrammar:
    """Return the grammar of a document's blocks, for the scheme `name` ("": for any scheme)."""
    if not blocks:
        return SchemeGrammar(name)
    # only a text that begins with ABNF has its one block there
    alone = len(blocks) == 1 and blocks[0].line == 1
    try:
        syntax = SchemeGrammar(name, written=abnf.parse_blocks(blocks), alone=alone)
        syntax.is_form = all(block.form for block in blocks)
        return syntax
    except GrammarError as error:
        return SchemeGrammar(name, problem=_make_problem(error), alone=alone)
