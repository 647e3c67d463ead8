"""Grammars from text, and the rules of other RFCs that they import, one data file for each RFC.

An imported rule keeps its meaning: if the text redefines a name that it uses, the import uses the RFC's
definition, stored as `name@RFC nnnn`.
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
from onym.registry import abnf
from onym.registry.abnf import _parser as parser

if TYPE_CHECKING:
    from onym.registry.documents.types import Block

#: characters of all blocks of one grammar
MAX_TEXT: Final = 262_144
MAX_RULES: Final = 4_000


def parse_grammar(text: str, *, line: int = 1, section: str | None = None) -> abnf.Grammar:
    """Parse ABNF (RFC 5234, RFC 7405). `line` is the first line of the text, `section` that of its rules.

    Raises GrammarError at the first error (line and column count from 1), if the text has no rule
    ("abnf.none"), and beyond MAX_TEXT characters, MAX_RULES rules or MAX_DEPTH groups.
    """
    builder = _GrammarBuilder()
    builder.add_text(text, line, section)
    grammar = builder.build()
    if grammar.problems:
        raise grammar.problems[0]
    for remark in grammar.remarks:
        if remark.code is abnf.RemarkCode.IGNORED_TEXT:
            raise GrammarError(
                "this line is not a rule",
                clause="RFC 5234 4",
                line=remark.line,
                column=remark.column,
                hint=remark.fix or "a rule is `name = elements`; a comment begins with ;",
            )
    return grammar


def parse_blocks(blocks: Iterable[Block]) -> abnf.Grammar:
    """Parse all blocks of a document as one grammar; each rule keeps its section.

    The error of a rule that is not valid is in `problems`. The rule has the elements that its author may have
    meant (`repair_chunk`), or none. `remarks` report lines that are not rules. Of several definitions of a
    rule the last applies, but one in an appendix only if no numbered section has one; the others are in
    `others`.

    Raises GrammarError for a text without rules ("abnf.none") and beyond the limits ("abnf.too-large").
    """
    builder = _GrammarBuilder()
    for block in blocks:
        builder.add_text(block.text, block.line, block.section)
    return builder.build()


class _GrammarBuilder:
    """Collects definitions and decides which of several applies."""

    def __init__(self) -> None:
        self.size = 0
        self.count = 0
        self.defined: dict[str, list[abnf.Rule]] = {}
        self.problems: list[GrammarError] = []
        self.remarks: list[abnf.Remark] = []

    def add_text(self, text: str, line: int, section: str | None) -> None:
        self.size += len(text)
        if self.size > MAX_TEXT:
            raise _make_size_error(f"more than {MAX_TEXT:,} characters of ABNF", line)
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        replaced = parser.replace_colons(text)
        if replaced is not None:
            text, row = replaced
            self.problems.append(
                GrammarError(
                    'a rule is defined by ":="',
                    clause="RFC 5234 4",
                    line=line + row,
                    hint='a rule is defined by "=", not ":="',
                )
            )
        for chunk in parser.split_chunks(text, line=line):
            if chunk.name is None:
                self.remark_ignored(chunk, section)
            else:
                self.add_rule(chunk, chunk.name, section)

    def remark_ignored(self, chunk: parser.Chunk, section: str | None) -> None:
        """Add a remark on the first line of the chunk that is not a comment."""
        for line, row in enumerate(chunk.text.split("\n"), chunk.line):
            text = row.lstrip()
            if text and not text.startswith(";"):
                self.remarks.append(
                    abnf.Remark(
                        code=abnf.RemarkCode.IGNORED_TEXT,
                        message="this line is not a rule and was ignored",
                        line=line,
                        column=len(row) - len(text) + 1,
                        section=section,
                        fix=parser.find_slip_hint(row),
                    )
                )
                return

    def add_rule(self, chunk: parser.Chunk, name: str, section: str | None) -> None:
        self.count += 1
        if self.count > MAX_RULES:
            raise _make_size_error(f"more than {MAX_RULES:,} rules", chunk.line)
        head = chunk.text.split("\n", 1)[0]
        rule = abnf.Rule(
            name=name,
            node=None,
            line=chunk.line,
            column=len(head) - len(head.lstrip(" \t<")) + 1,
            section=section,
            text=chunk.text.rstrip(),
        )
        if head.lstrip().startswith("<"):
            chunk = replace(chunk, text=chunk.text.replace(f"<{name}>", f" {name} ", 1))
        definitions = self.defined.setdefault(rule.key, [])
        try:
            node, incremental, remarks = parser.parse_rule(chunk)
        except GrammarError as error:
            self.problems.append(error)
            repaired = _parse_repaired(chunk)
            if repaired is None:
                definitions.append(rule)
                return
            node, incremental, remarks = repaired
        self.remarks.extend(replace(remark, section=section) for remark in remarks)
        rule = replace(rule, node=node)
        if not incremental:
            definitions.append(rule)
        elif not definitions:
            definitions.append(self.extend_library_rule(rule, node))
        elif definitions[-1].node is not None:
            # `name =/ more`: the alternatives join the last definition (RFC 5234 3.3)
            old = definitions[-1]
            definitions[-1] = replace(
                old, node=_join_alternatives(definitions[-1].node, node), text=f"{old.text}\n{rule.text}"
            )

    def extend_library_rule(self, rule: abnf.Rule, node: abnf.Node) -> abnf.Rule:
        """Return the rule of `name =/ more` for a name of another RFC, as RFC 6532 does with VCHAR.

        If no RFC of the library defines that name, add a remark.
        """
        imported = find_library_rule(rule.name)
        if imported is None:
            message = f"=/ adds to {rule.name}, which is not defined before"
            self.remarks.append(
                abnf.make_remark(abnf.RemarkCode.UNDEFINED, message, rule, fix="define it first, with =")
            )
            return rule
        words = f"{imported[1].name}, defined in RFC {imported[0]}"
        base = abnf.Prose(text=words, line=rule.line, column=rule.column)
        return replace(rule, node=_join_alternatives(base, node))

    def build(self) -> abnf.Grammar:
        if not self.defined:
            first = next(iter(self.remarks), None)
            raise GrammarError(
                "the text has no rule",
                code="abnf.none",
                clause="RFC 5234 4",
                line=None if first is None else first.line,
                column=None if first is None else first.column,
                hint=(None if first is None else first.fix) or "a rule is `name = elements`",
            )
        rules, others = {}, []
        for key, definitions in self.defined.items():
            current = [rule for rule in definitions if not abnf.is_in_appendix(rule.section)] or definitions
            rules[key] = current[-1]
            replaced = [rule for rule in definitions if rule is not current[-1]]
            others.extend(replaced)
            self.remarks.extend(_make_repeated_remark(rules[key], rule) for rule in replaced)
        for rule in rules.values():
            if isinstance(rule.node, abnf.Prose):
                self.remarks.append(
                    abnf.make_remark(abnf.RemarkCode.PROSE, "the rule is described in words", rule)
                )
        return abnf.Grammar(
            rules=MappingProxyType(rules),
            others=tuple(others),
            problems=tuple(self.problems),
            remarks=tuple(self.remarks),
        )


def _parse_repaired(chunk: parser.Chunk) -> tuple[abnf.Node, bool, tuple[abnf.Remark, ...]] | None:
    """Return the result of `parse_rule` for the chunk with common slips repaired; None if that fails too."""
    repaired = parser.repair_chunk(chunk)
    if repaired is None:
        return None
    try:
        return parser.parse_rule(repaired)
    except GrammarError:
        return None


def _join_alternatives(first: abnf.Node, second: abnf.Node) -> abnf.Alternation:
    left = first.items if isinstance(first, abnf.Alternation) else (first,)
    right = second.items if isinstance(second, abnf.Alternation) else (second,)
    return abnf.Alternation(items=(*left, *right), line=first.line, column=first.column)


def _make_repeated_remark(current: abnf.Rule, replaced: abnf.Rule) -> abnf.Remark:
    same = current.node is not None and current.node == replaced.node
    place = f"section {current.section}" if current.section else f"line {current.line}"
    elements = "the same elements" if same else "other elements; that definition applies"
    return abnf.make_remark(
        abnf.RemarkCode.REPEATED,
        f"the rule is defined again in {place}, with {elements}",
        replaced,
        fix="define each rule once; give the second another name, or write =/ to add alternatives",
    )


def _make_size_error(message: str, line: int) -> GrammarError:
    return GrammarError(
        message, code="abnf.too-large", line=line, hint="provide only the rules of the scheme"
    )


#: the RFCs of the library, in the order in which names without an RFC are looked up
LIBRARY: Final = (
    *("5234", "3986", "5322", "3987", "9110", "6838", "4648", "8288"),
    *("3966", "3339", "3501", "5536", "2396", "2732", "1738"),
)
#: RFCs of the library that are not generic: a name that only they define is assumed to be theirs, with a
#: remark that the text does not define it
_SPECIAL: Final = frozenset(LIBRARY[8:])
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
    """Return the RFC of the library with the rules of that RFC ("4234" gives "5234"); None if not shipped."""
    number = _SAME.get(rfc, rfc)
    return number if number in LIBRARY else None


def read_data_file(name: str) -> str:
    """Return the text of a data file of this package."""
    return (files("onym.registry.abnf") / "data" / name).read_text(encoding="utf-8")


@cache
def load_library(rfc: str) -> abnf.Grammar:
    """Return the shipped rules of one RFC of LIBRARY."""
    return parse_grammar(read_data_file(f"rfc{rfc}.abnf"), section=f"RFC {rfc}")


def find_library_rule(name: str, rfc: str | None = None) -> tuple[str, abnf.Rule] | None:
    """Return a rule of the library and its RFC; `rfc` is the only RFC to search."""
    for number in LIBRARY if rfc is None else (rfc,):
        rule = load_library(number).rules.get(name.lower())
        if rule is not None:
            return number, rule
    return None


_RFC: Final = re.compile(r"\b(?:RFC|STD)[\s-]?(\d{2,5})\b", re.IGNORECASE)
#: words that refer to a rule of another text: an RFC, a key of the references, or "defined in"
_CITES: Final = re.compile(
    r"\b(?:RFC|STD)[\s-]?\d|\[[^\[\]\s]{1,200}\]"
    r"|\b(?<!not )(?:defined|specified)\s+(?:in|by)\b|(?:\A|[,;:.(])\s*see\b",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
#: STD numbers of RFCs of the library
_STD: Final = {"66": "3986", "68": "5234", "97": "9110"}


def resolve(grammar: abnf.Grammar) -> abnf.Grammar:
    """Return the grammar with the rules that it imports: undefined names, and rules that prose refers to.

    `host = <host, defined in [RFC3986], Section 3.2.2>` imports that rule. If the words name no rule, the
    rule of the same name is imported (`unreserved = <as specified in RFC 3986>`). `source` of an imported
    rule is its RFC, and each import has a remark. Names that the library does not have stay unresolved.
    """
    return _Resolver(grammar).run()


def map_node(node: abnf.Node, leaf: Callable[[abnf.Node], abnf.Node]) -> abnf.Node:
    """Return a node with `leaf` applied to its references and prose."""
    if isinstance(node, (abnf.Concatenation, abnf.Alternation)):
        return replace(node, items=tuple(map_node(item, leaf) for item in node.items))
    if isinstance(node, (abnf.Repetition, abnf.ListOf)):
        return replace(node, item=map_node(node.item, leaf))
    return leaf(node)


class _Resolver:
    def __init__(self, grammar: abnf.Grammar) -> None:
        self.grammar = grammar
        self.own = dict(grammar.rules)
        self.remarks = list(grammar.remarks)
        # (RFC, key) of each import -> the name in the grammar
        self.names: dict[tuple[str, str], str] = {}
        self.imported: dict[str, abnf.Rule] = {}
        self.waiting: list[tuple[str, abnf.Rule]] = []
        #: own rules that were prose and are now resolved
        self.settled: set[str] = set()

    def run(self) -> abnf.Grammar:
        self_imports = {
            key: library_rule
            for key, rule in self.own.items()
            if (library_rule := self.find_self_import(rule)) is not None
        }
        self.settled.update(self_imports)
        replaced = {key: self.own.pop(key) for key in self_imports}
        for key, library_rule in self_imports.items():
            self.import_rule(*library_rule, at=replaced[key], used_by=replaced[key])
        for key, rule in list(self.own.items()):
            if rule.node is not None and rule.source is None:
                self.own[key] = replace(rule, node=self.resolve_node(rule, rule.node))
        others = tuple(
            rule if rule.node is None else replace(rule, node=self.resolve_node(rule, rule.node))
            for rule in self.grammar.others
        )
        while self.waiting:
            self.add_elements(*self.waiting.pop())
        imported = sorted(self.imported.values(), key=lambda rule: (rule.source or "", rule.line))
        return replace(
            self.grammar,
            rules=MappingProxyType({**self.own, **{rule.key: rule for rule in imported}}),
            others=others,
            remarks=tuple(
                remark
                for remark in self.remarks
                if remark.code is not abnf.RemarkCode.PROSE or (remark.rule or "").lower() not in self.settled
            ),
        )

    def find_self_import(self, rule: abnf.Rule) -> tuple[str, abnf.Rule] | None:
        """Return the library's rule if the whole rule is prose that imports the rule of the same name."""
        if rule.source is not None or not isinstance(rule.node, abnf.Prose):
            return None
        library_rule = _find_named_rule(rule.node, rule.name)
        return library_rule if library_rule is not None and library_rule[1].key == rule.key else None

    def resolve_node(self, rule: abnf.Rule, whole: abnf.Node) -> abnf.Node:
        """Return an own rule's elements with imports for undefined names and for prose."""

        def leaf(node: abnf.Node) -> abnf.Node:
            if isinstance(node, abnf.Prose):
                return self.resolve_prose(rule, node, is_whole=node is whole)
            if isinstance(node, abnf.Reference) and node.key not in self.own:
                library_rule = find_library_rule(node.name)
                if library_rule is not None and node.key not in self.imported:
                    if library_rule[0] in _SPECIAL:
                        self.remarks.append(_make_assumed_remark(node, library_rule[0]))
                    self.import_rule(*library_rule, at=node, used_by=rule)
            return node

        return map_node(whole, leaf)

    def resolve_prose(self, rule: abnf.Rule, words: abnf.Prose, *, is_whole: bool) -> abnf.Node:
        text = words.text.strip()
        if _NAME.fullmatch(text) and (text.lower() in self.own or text.lower() in self.imported):
            name = text
            self.remarks.append(
                abnf.make_remark(
                    abnf.RemarkCode.ANGLE_REFERENCE,
                    f"<{text}> is read as the rule {text}",
                    words,
                    name=rule.name,
                    fix=f"write {text} without the angle brackets",
                )
            )
        else:
            library_rule = _find_named_rule(words, rule.name if is_whole else None)
            if library_rule is None:
                return words
            name = self.import_rule(*library_rule, at=words, used_by=rule)
        if is_whole and self.own.get(rule.key) is rule:
            self.settled.add(rule.key)
        return abnf.Reference(name=name, line=words.line, column=words.column)

    def import_rule(self, rfc: str, rule: abnf.Rule, *, at: abnf.Rule | abnf.Node, used_by: abnf.Rule) -> str:
        """Import one rule with a remark; return its name in the grammar."""
        name = self.register_import(rfc, rule)
        self.remarks.append(
            abnf.Remark(
                code=abnf.RemarkCode.IMPORTED,
                message=f"{rule.name} is taken from RFC {rfc}",
                rule=used_by.name,
                line=at.line,
                column=at.column,
            )
        )
        return name

    def register_import(self, rfc: str, rule: abnf.Rule) -> str:
        """Return the name of an import; `add_elements` adds its elements later."""
        known = self.names.get((rfc, rule.key))
        if known is not None:
            return known
        taken = rule.key in self.own or rule.key in self.imported
        name = f"{rule.name}@RFC {rfc}" if taken else rule.name
        self.names[rfc, rule.key] = name
        self.imported[name.lower()] = replace(rule, name=name, node=None, source=f"RFC {rfc}")
        self.waiting.append((rfc, rule))
        return name

    def add_elements(self, rfc: str, rule: abnf.Rule) -> None:
        """Add the elements of an import; their names are those of its own RFC."""
        assert rule.node is not None  # noqa: S101 - a test parses the whole library

        def leaf(node: abnf.Node) -> abnf.Node:
            if isinstance(node, abnf.Reference):
                library_rule = find_library_rule(node.name, rfc) or find_library_rule(node.name)
                assert library_rule is not None  # noqa: S101 - a test checks that the library is closed
                return replace(node, name=self.register_import(*library_rule))
            return node

        key = self.names[rfc, rule.key].lower()
        self.imported[key] = replace(self.imported[key], node=map_node(rule.node, leaf))


def _make_assumed_remark(reference: abnf.Reference, rfc: str) -> abnf.Remark:
    name = reference.name
    return abnf.make_remark(
        abnf.RemarkCode.UNDEFINED,
        f"the rule is used but not defined; the rule of RFC {rfc} is assumed",
        reference,
        name=name,
        fix=f"define it, or name the RFC that defines it: {name} = <{name}, see RFC {rfc}>",
    )


def _find_named_rule(words: abnf.Prose, own: str | None) -> tuple[str, abnf.Rule] | None:
    """Return the library's rule that prose names: by its first word, the rule's own name, or any word."""
    if not _CITES.search(words.text):
        return None
    cited = [_STD.get(number, number) for number in _RFC.findall(words.text)]
    for rfc in cited or [None]:
        number = None if rfc is None else find_library_rfc(rfc)
        if rfc is not None and number is None:
            continue  # the rules of an RFC that is not shipped are not guessed
        for name in _iter_candidates(words.text, own):
            library_rule = find_library_rule(name, number) or _find_used_rule(name, number)
            if library_rule is not None:
                return library_rule
    return None


def _find_used_rule(name: str, rfc: str | None) -> tuple[str, abnf.Rule] | None:
    """Return the rule that the rules of an RFC take from another one, as RFC 3987 does with pct-encoded."""
    if rfc is None or name.lower() not in _list_used_names(rfc):
        return None
    return find_library_rule(name)


@cache
def _list_used_names(rfc: str) -> frozenset[str]:
    rules = load_library(rfc).rules.values()
    return frozenset(reference.key for rule in rules for reference in abnf.list_references(rule.node))


def _iter_candidates(text: str, own: str | None) -> Iterator[str]:
    names = _NAME.findall(text)
    yield from names[:1]
    if own is not None:
        yield own
    yield from (name for name in names[1:] if "-" in name or f'"{name}"' in text or f"'{name}'" in text)
