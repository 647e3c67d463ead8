"""Grammars from text, and the rules of other RFCs that they import.

`parse_grammar` reads one text and `parse_blocks` the blocks of a document. The library holds the ABNF of
RFCs that schemes import, one data file for each RFC. `resolve` adds these rules to a grammar.

An imported rule keeps its meaning. If the text redefines a name that the imported rule uses, the import
uses the RFC's definition, stored as `name@RFC nnnn`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.errors import GrammarError
from onym.registry.abnf._parser import Chunk, find_slip_hint, parse_rule, split_chunks
from onym.registry.abnf.grammar import (
    Alternation,
    Concatenation,
    Grammar,
    ListOf,
    Node,
    Prose,
    Reference,
    Remark,
    RemarkCode,
    Repetition,
    Rule,
    list_references,
)

if TYPE_CHECKING:
    from onym.registry.documents.types import Block

#: characters of all blocks of one grammar
MAX_TEXT: Final = 262_144
MAX_RULES: Final = 4_000
_APPENDIX: Final = re.compile(r"(?:Appendix )?[A-Z](?:\.|\Z)")


def parse_grammar(text: str, *, line: int = 1, section: str | None = None) -> Grammar:
    """One text of ABNF (RFC 5234, RFC 7405). `line` is where it begins, `section` is kept with each rule.

    Raises GrammarError at the first fault (line and column count from 1), where no rule is in the text
    ("abnf.none"), and beyond MAX_TEXT characters, MAX_RULES rules or MAX_DEPTH groups.
    """
    reader = _GrammarBuilder()
    reader.add_text(text, line, section)
    grammar = reader.build()
    if grammar.problems:
        raise grammar.problems[0]
    for remark in grammar.remarks:
        if remark.code is RemarkCode.IGNORED_TEXT:
            raise GrammarError(
                "this is no rule",
                clause="RFC 5234 4",
                line=remark.line,
                column=remark.column,
                hint=remark.fix or "a rule is `name = elements`; a comment begins with ;",
            )
    return grammar


def parse_blocks(blocks: Iterable[Block]) -> Grammar:
    """All blocks of a document as one grammar; each rule keeps its section.

    A rule that cannot be read is kept without elements and told in `problems`; lines that are no rule are
    told in `remarks`. Where a rule is defined twice the last definition is in force, one in an appendix
    only where no numbered section has one; the others are kept in `others`.

    Raises GrammarError for a text without rules ("abnf.none") and beyond the caps ("abnf.too-large").
    """
    reader = _GrammarBuilder()
    for block in blocks:
        reader.add_text(block.text, block.line, block.section)
    return reader.build()


class _GrammarBuilder:
    """Collects definitions, then settles which of several is in force."""

    def __init__(self) -> None:
        self.size = 0
        self.count = 0
        self.defined: dict[str, list[Rule]] = {}
        self.problems: list[GrammarError] = []
        self.remarks: list[Remark] = []

    def add_text(self, text: str, line: int, section: str | None) -> None:
        self.size += len(text)
        if self.size > MAX_TEXT:
            raise _too_large_error(f"more than {MAX_TEXT:,} characters of ABNF", line)
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        for chunk in split_chunks(text, line=line):
            if chunk.name is None:
                self.remark_ignored(chunk, section)
            else:
                self.add_rule(chunk, chunk.name, section)

    def remark_ignored(self, chunk: Chunk, section: str | None) -> None:
        rows = chunk.text.split("\n")
        for at, row in enumerate(rows):
            text = row.strip()
            if text and not text.startswith(";"):
                self.remarks.append(
                    Remark(
                        code=RemarkCode.IGNORED_TEXT,
                        message="this is no rule; it was left out",
                        line=chunk.line + at,
                        column=len(row) - len(row.lstrip()) + 1,
                        section=section,
                        fix=find_slip_hint(row),
                    )
                )
                return

    def add_rule(self, chunk: Chunk, name: str, section: str | None) -> None:
        self.count += 1
        if self.count > MAX_RULES:
            raise _too_large_error(f"more than {MAX_RULES:,} rules", chunk.line)
        head = chunk.text.split("\n", 1)[0]
        rule = Rule(
            name=name,
            node=None,
            line=chunk.line,
            column=len(head) - len(head.lstrip(" \t<")) + 1,
            section=section,
            text=chunk.text.rstrip(),
        )
        chunk = (
            Chunk(name=name, text=chunk.text.replace(f"<{name}>", f" {name} ", 1), line=chunk.line)
            if head.lstrip().startswith("<")
            else chunk
        )
        try:
            node, incremental, remarks = parse_rule(chunk)
        except GrammarError as error:
            self.problems.append(error)
            self.defined.setdefault(rule.key, []).append(rule)
            return
        self.remarks.extend(replace(remark, section=section) for remark in remarks)
        rule = replace(rule, node=node)
        if incremental:
            self.extend_rule(rule)
        else:
            self.defined.setdefault(rule.key, []).append(rule)

    def extend_rule(self, more: Rule) -> None:
        """`name =/ more`: the alternatives join the last definition (RFC 5234 3.3)."""
        before = self.defined.get(more.key)
        if not before:
            self.defined[more.key] = [self.extend_library_rule(more)]
            return
        old = before[-1]
        if old.node is None or more.node is None:
            return
        first = old.node.items if isinstance(old.node, Alternation) else (old.node,)
        second = more.node.items if isinstance(more.node, Alternation) else (more.node,)
        node = Alternation(items=(*first, *second), line=old.node.line, column=old.node.column)
        before[-1] = replace(old, node=node, text=f"{old.text}\n{more.text}")

    def extend_library_rule(self, more: Rule) -> Rule:
        """`name =/ more` of a name that the text does not define: it adds to the rule of another RFC.

        RFC 6532 does so to VCHAR. Where no RFC of the library has that name either, a remark says so.
        """
        # merged import  # late: the library is read by this module

        assert more.node is not None  # noqa: S101 - a rule that cannot be read is not extended
        found = find_library_rule(more.name)
        if found is None:
            self.remarks.append(
                Remark(
                    code=RemarkCode.UNDEFINED,
                    message=f"=/ adds to {more.name}, which is not defined before",
                    rule=more.name,
                    line=more.line,
                    column=more.column,
                    section=more.section,
                    fix="define it first, by =",
                )
            )
            return more
        place = {"line": more.line, "column": more.column}
        base = Prose(text=f"{found[1].name}, defined in RFC {found[0]}", **place)
        second = more.node.items if isinstance(more.node, Alternation) else (more.node,)
        return replace(more, node=Alternation(items=(base, *second), **place))

    def build(self) -> Grammar:
        if not self.defined:
            first = next(iter(self.remarks), None)
            raise GrammarError(
                "there is no rule in this text",
                code="abnf.none",
                clause="RFC 5234 4",
                line=None if first is None else first.line,
                column=None if first is None else first.column,
                hint=(None if first is None else first.fix) or "a rule is `name = elements`",
            )
        rules, others = {}, []
        for key, several in self.defined.items():
            body = [each for each in several if not _is_in_appendix(each)] or several
            rules[key] = body[-1]
            losers = [each for each in several if each is not body[-1]]
            others.extend(losers)
            self.remarks.extend(_make_repeated_remark(rules[key], loser) for loser in losers)
        for rule in rules.values():
            if isinstance(rule.node, Prose):
                self.remarks.append(
                    Remark(
                        code=RemarkCode.PROSE,
                        message="the rule is described in words",
                        rule=rule.name,
                        line=rule.line,
                        column=rule.column,
                        section=rule.section,
                    )
                )
        return Grammar(
            rules=MappingProxyType(rules),
            others=tuple(others),
            problems=tuple(self.problems),
            remarks=tuple(self.remarks),
        )


def _is_in_appendix(rule: Rule) -> bool:
    return rule.section is not None and _APPENDIX.match(rule.section) is not None


def _make_repeated_remark(kept: Rule, loser: Rule) -> Remark:
    same = kept.node is not None and kept.node == loser.node
    where = f"section {kept.section}" if kept.section else f"line {kept.line}"
    return Remark(
        code=RemarkCode.REPEATED,
        message=f"the rule is defined again in {where}, "
        + ("with the same elements" if same else "with other elements; that definition is taken"),
        rule=loser.name,
        line=loser.line,
        column=loser.column,
        section=loser.section,
        fix="define each rule once; give the second another name, or say =/ where it adds alternatives",
    )


def _too_large_error(message: str, line: int) -> GrammarError:
    return GrammarError(message, code="abnf.too-large", line=line, hint="give the scheme's own rules alone")


#: the RFCs of the library, in the order in which a name without one is looked up
LIBRARY: Final = ("5234", "3986", "5322", "3987", "9110", "6838", "4648", "8288")
#: earlier and later RFCs with the same rules
_SAME: Final = {
    **dict.fromkeys(("2234", "4234"), "5234"),
    **dict.fromkeys(("2822", "6854"), "5322"),
    **dict.fromkeys(("2616", "7230", "7231"), "9110"),
    **dict.fromkeys(("4288",), "6838"),
    **dict.fromkeys(("3548",), "4648"),
    **dict.fromkeys(("5988",), "8288"),
}


def find_library_rfc(rfc: str) -> str | None:
    """The RFC of the library that has the rules of that RFC ("4234" gives "5234"); None: not shipped."""
    number = _SAME.get(rfc, rfc)
    return number if number in LIBRARY else None


def read_data_file(name: str) -> str:
    """A data file of this package."""
    return (files("onym.registry.abnf") / "data" / name).read_text(encoding="utf-8")


@cache
def load_library(rfc: str) -> Grammar:
    """The rules shipped for one RFC of LIBRARY."""
    return parse_grammar(read_data_file(f"rfc{rfc}.abnf"), section=f"RFC {rfc}")


def find_library_rule(name: str, rfc: str | None = None) -> tuple[str, Rule] | None:
    """A rule of the library and the RFC that it is of; `rfc` names the only one to look at."""
    for number in LIBRARY if rfc is None else (rfc,):
        rule = load_library(number).rules.get(name.lower())
        if rule is not None:
            return number, rule
    return None


_RFC: Final = re.compile(r"\b(?:RFC|STD)[\s-]?(\d{2,5})\b", re.IGNORECASE)
#: what says that the words are another text's rule: an RFC, a key of the references, or as much in words
_CITES: Final = re.compile(
    r"\b(?:RFC|STD)[\s-]?\d|\[[^\[\]\s]{1,200}\]"
    r"|\b(?<!not )(?:defined|specified)\s+(?:in|by)\b|(?:\A|[,;:.(])\s*see\b",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
#: STD numbers that texts cite for RFCs of the library
_STD: Final = {"66": "3986", "68": "5234", "97": "9110"}


def resolve(grammar: Grammar) -> Grammar:
    """The grammar with what it imports: names that it uses and does not define, and rules named in prose.

    `host = <host, defined in [RFC3986], Section 3.2.2>` takes that rule; where the words name no rule,
    the rule of the same name is taken (`unreserved = <as specified in RFC 3986>`). Imported rules say
    their RFC in `source`; each import has a remark. What the library does not hold stays as it is.
    """
    return _Resolver(grammar).run()


def map_node(node: Node, leaf: Callable[[Node], Node]) -> Node:
    """A node with its references and prose replaced."""
    if isinstance(node, (Concatenation, Alternation)):
        return replace(node, items=tuple(map_node(item, leaf) for item in node.items))
    if isinstance(node, (Repetition, ListOf)):
        return replace(node, item=map_node(node.item, leaf))
    return leaf(node)


class _Resolver:
    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.own = dict(grammar.rules)
        self.remarks = list(grammar.remarks)
        # (RFC, key) of each import, and the name under which it is filed
        self.names: dict[tuple[str, str], str] = {}
        self.imported: dict[str, Rule] = {}
        self.waiting: list[tuple[str, Rule]] = []
        #: own rules that are words no more
        self.told: set[str] = set()

    def run(self) -> Grammar:
        itself = {
            key: found for key, rule in self.own.items() if (found := self.find_self_import(rule)) is not None
        }
        self.told.update(itself)
        replaced = {key: self.own.pop(key) for key in itself}
        for key, (rfc, rule) in itself.items():
            self.import_rule(rfc, rule, replaced[key].name, at=replaced[key])
        for key, rule in list(self.own.items()):
            if rule.node is not None and rule.source is None:
                self.own[key] = replace(rule, node=self.resolve_node(rule, rule.node))
        others = tuple(
            rule if rule.node is None else replace(rule, node=self.resolve_node(rule, rule.node))
            for rule in self.grammar.others
        )
        while self.waiting:
            rfc, rule = self.waiting.pop()
            self.add_elements(rfc, rule)
        ordered = {each.key: each for each in sorted(self.imported.values(), key=_by_source)}
        return replace(
            self.grammar,
            rules=MappingProxyType({**self.own, **ordered}),
            others=others,
            remarks=tuple(
                remark
                for remark in self.remarks
                if remark.code is not RemarkCode.PROSE or (remark.rule or "").lower() not in self.told
            ),
        )

    def find_self_import(self, rule: Rule) -> tuple[str, Rule] | None:
        """Is the whole rule prose that imports the rule of the same name?"""
        if rule.source is not None or not isinstance(rule.node, Prose):
            return None
        found = _find_named_rule(rule.node, rule.name)
        return found if found is not None and found[1].key == rule.key else None

    def resolve_node(self, rule: Rule, node: Node) -> Node:
        """An own rule's elements with imports for undefined names and for prose."""
        whole = node

        def leaf(each: Node) -> Node:
            if isinstance(each, Prose):
                return self.resolve_prose(rule, each, is_whole=each is whole)
            if isinstance(each, Reference) and each.key not in self.own:
                found = find_library_rule(each.name)
                if found is not None and each.key not in self.imported:
                    self.import_rule(*found, each.name, at=each, used_by=rule)
            return each

        return map_node(node, leaf)

    def resolve_prose(self, rule: Rule, words: Prose, *, is_whole: bool) -> Node:
        line, column = words.line, words.column
        text = words.text.strip()
        settles = is_whole and self.own.get(rule.key) is rule
        if _NAME.fullmatch(text) and (text.lower() in self.own or text.lower() in self.imported):
            if settles:
                self.told.add(rule.key)
            self.remarks.append(
                Remark(
                    code=RemarkCode.ANGLE_REFERENCE,
                    message=f"<{text}> is read as the rule {text}",
                    rule=rule.name,
                    fix=f"write {text} without the angle brackets",
                    line=line,
                    column=column,
                )
            )
            return Reference(name=text, line=line, column=column)
        found = _find_named_rule(words, rule.name if is_whole else None)
        if found is None:
            return words
        name = self.import_rule(*found, found[1].name, at=words, used_by=rule)
        if settles:
            self.told.add(rule.key)
        return Reference(name=name, line=line, column=column)

    def import_rule(
        self, rfc: str, rule: Rule, name: str, *, at: Rule | Node, used_by: Rule | None = None
    ) -> str:
        """Import one rule, and remark it; the name under which it is filed."""
        filed = self.register_import(rfc, rule)
        self.remarks.append(
            Remark(
                code=RemarkCode.IMPORTED,
                message=f"{rule.name} is taken from RFC {rfc}",
                rule=used_by.name if used_by is not None else name,
                line=at.line,
                column=at.column,
            )
        )
        return filed

    def register_import(self, rfc: str, rule: Rule) -> str:
        """The name for an import; its elements are settled later."""
        known = self.names.get((rfc, rule.key))
        if known is not None:
            return known
        taken = rule.key in self.own or rule.key in self.imported
        name = f"{rule.name}@RFC {rfc}" if taken else rule.name
        self.names[rfc, rule.key] = name
        self.imported[name.lower()] = replace(rule, name=name, node=None, source=f"RFC {rfc}")
        self.waiting.append((rfc, rule))
        return name

    def add_elements(self, rfc: str, rule: Rule) -> None:
        """Give an import its elements, whose names are those of its own RFC."""
        assert rule.node is not None  # noqa: S101 - the library is read whole, by a test too

        def leaf(each: Node) -> Node:
            if isinstance(each, Reference):
                found = find_library_rule(each.name, rfc) or find_library_rule(each.name)
                assert found is not None  # noqa: S101 - the library is closed, by a test
                return replace(each, name=self.register_import(*found))
            return each

        name = self.names[rfc, rule.key]
        key = name.lower()
        self.imported[key] = replace(self.imported[key], node=map_node(rule.node, leaf))


def _by_source(rule: Rule) -> tuple[str, int]:
    return rule.source or "", rule.line


def _find_named_rule(words: Prose, own: str | None) -> tuple[str, Rule] | None:
    """The rule of the library that prose names: its first word, else the rule's own name, else any word."""
    if not _CITES.search(words.text):
        return None
    cited = [_STD.get(cited_rfc, cited_rfc) for cited_rfc in _RFC.findall(words.text)]
    numbers: list[str | None] = [find_library_rfc(citation) for citation in cited] or [None]
    for number, given in zip(numbers, cited or [None], strict=True):
        if given is not None and number is None:
            continue  # an RFC that is not shipped: its rules are not guessed
        for name in _iter_candidates(words.text, own):
            found = find_library_rule(name, number)
            if found is not None:
                return found
    return None


def _iter_candidates(text: str, own: str | None) -> Iterator[str]:
    found = _NAME.findall(text)
    yield from found[:1]
    if own is not None:
        yield own
    yield from (each for each in found[1:] if "-" in each or f'"{each}"' in text or f"'{each}'" in text)


def find_undefined(grammar: Grammar) -> dict[str, Reference]:
    """The first reference to each name that no rule defines."""
    out: dict[str, Reference] = {}
    for rule in grammar.rules.values():
        for reference in list_references(rule.node):
            if reference.key not in grammar.rules:
                out.setdefault(reference.key, reference)
    return out
