"""What a grammar is made of: nodes of RFC 5234 section 4, rules with their place, grammars with remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from onym.errors import GrammarError, UnknownEntryError

__all__ = [
    "Alternation",
    "Concatenation",
    "Grammar",
    "ListOf",
    "Literal",
    "Node",
    "Prose",
    "Range",
    "Reference",
    "Remark",
    "RemarkCode",
    "Repetition",
    "Rule",
    "Series",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Where a node stands, counted from 1; two nodes that differ in place alone are equal."""

    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(_Placed):
    """A string: without case (`"a"`, `%i"a"`), or with case (`%s"a"`, RFC 7405)."""

    text: str
    sensitive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(_Placed):
    """`%x41-5A`: one terminal between two values, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(_Placed):
    """`%x41` or `%x41.42`: the terminals in this order."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(_Placed):
    """A rule by its name, as it is written; names are compared without case."""

    name: str

    @property
    def key(self) -> str:
        """The name as `Grammar.rules` files it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose(_Placed):
    """`<words>`: a description for people (RFC 5234 4, prose-val)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Concatenation(_Placed):
    """One after the other; with no items, the empty string."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternation(_Placed):
    """One of them."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition(_Placed):
    """`least*most item`; `most` None means without end. `[ item ]` is `*1 item`."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf(_Placed):
    """`least#most item`: items between commas (RFC 9110 5.6.1). It is not ABNF."""

    item: Node
    least: int
    most: int | None


Node: TypeAlias = (
    Literal | Range | Series | Reference | Prose | Concatenation | Alternation | Repetition | ListOf
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. `source` says which RFC it was imported from, None for the text's own.

    `node` is None where the rule's text is not ABNF: `Grammar.problems` says why. `text` is the rule as it
    was written.
    """

    name: str
    node: Node | None
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)
    section: str | None = None
    source: str | None = None
    text: str = field(default="", compare=False, repr=False)

    @property
    def key(self) -> str:
        """The name as `Grammar.rules` files it."""
        return self.name.lower()


class RemarkCode(StrEnum):
    """What a remark is about; the value is stable."""

    LIST_OPERATOR = "list-operator"
    SPACED_REPEAT = "spaced-repeat"
    ANGLE_REFERENCE = "angle-reference"
    IGNORED_TEXT = "ignored-text"
    IMPORTED = "imported"
    REPEATED = "repeated-rule"
    REDEFINED = "redefined-rule"
    UNDEFINED = "undefined-rule"
    UNUSED = "unused-rule"
    UNREACHABLE = "unreachable-rule"
    RECURSIVE = "recursive-rule"
    REDUNDANT = "redundant-alternative"
    PROSE = "prose-rule"
    BROKEN = "broken-rule"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing to know about a grammar.

    `rule` is the rule's name, `line` and `column` its place in the text, `section` where it is defined,
    `witness` a string that shows it, `fix` what to write instead.
    """

    code: RemarkCode
    message: str
    rule: str | None = None
    line: int | None = None
    column: int | None = None
    section: str | None = None
    witness: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Rules by name in lower case, in the order of the text; imported ones come last.

    `others` holds definitions that lost against another of the same name; `problems` the rules that could
    not be read (`read_document` goes on after them); `remarks` what the reader and `resolve` had to say.
    """

    rules: Mapping[str, Rule]
    others: tuple[Rule, ...] = ()
    problems: tuple[GrammarError, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def rule(self, name: str) -> Rule:
        """The rule of that name, whatever its case. Raises UnknownEntryError where there is none."""
        found = self.rules.get(name.lower())
        if found is None:
            raise UnknownEntryError(
                f"the grammar has no rule {name[:80]!r}",
                code="abnf.no-rule",
                field="rule",
                clause="RFC 5234 2.1",
                hint=f"it has {', '.join(each.name for each in list(self.rules.values())[:8]) or 'none'}",
            )
        return found

    @property
    def own(self) -> tuple[Rule, ...]:
        """The rules of the text itself, without the imported ones."""
        return tuple(rule for rule in self.rules.values() if rule.source is None)

    @property
    def sections(self) -> Mapping[str, tuple[str | None, ...]]:
        """For each name that is defined more than once: the sections, the one in force first."""
        twice = {rule.key for rule in self.others}
        return {
            key: (self.rules[key].section, *(rule.section for rule in self.others if rule.key == key))
            for key in self.rules
            if key in twice
        }

    def using(self, section: str | None) -> Grammar:
        """The same grammar with the definitions of that section in force where a rule has several."""
        rules, others = dict(self.rules), list(self.others)
        for at, other in enumerate(others):
            if other.section == section:
                rules[other.key], others[at] = other, rules[other.key]
        return replace(self, rules=rules, others=tuple(others))

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes whose names and colons the text's own rules begin with, in lower case, in its order.

        As with `leading`, only literals are followed.
        """
        from onym.registry.abnf._start import schemes

        return schemes(self)

    def start(self, scheme: str) -> str | None:
        """The rule whose strings begin with `scheme:`, None where no rule does.

        Of several, one that no other rule uses is preferred, then one that is called after the scheme or a
        URI; then the first.
        """
        from onym.registry.abnf._start import start_rule

        return start_rule(self, scheme)
