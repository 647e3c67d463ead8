"""ABNF from text: one grammar from one text, or from the blocks of a document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.errors import GrammarError
from onym.registry.abnf._parse import parse
from onym.registry.abnf._scan import Chunk, chunks, slip
from onym.registry.abnf.types import Alternation, Grammar, Prose, Remark, RemarkCode, Rule

if TYPE_CHECKING:
    from onym.registry.documents.types import Block

__all__ = ["MAX_RULES", "MAX_TEXT", "read", "read_document"]

#: characters of all blocks of one grammar
MAX_TEXT: Final = 262_144
MAX_RULES: Final = 4_000
_APPENDIX: Final = re.compile(r"(?:Appendix )?[A-Z](?:\.|\Z)")


def read(text: str, *, line: int = 1, section: str | None = None) -> Grammar:
    """One text of ABNF (RFC 5234, RFC 7405). `line` is where it begins, `section` is kept with each rule.

    Raises GrammarError at the first fault (line and column count from 1), where no rule is in the text
    ("abnf.none"), and beyond MAX_TEXT characters, MAX_RULES rules or MAX_DEPTH groups.
    """
    reader = _Reader()
    reader.add(text, line, section)
    grammar = reader.grammar()
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


def read_document(blocks: Iterable[Block]) -> Grammar:
    """All blocks of a document as one grammar; each rule keeps its section.

    A rule that cannot be read is kept without elements and told in `problems`; lines that are no rule are
    told in `remarks`. Where a rule is defined twice the last definition is in force, one in an appendix
    only where no numbered section has one; the others are kept in `others`.

    Raises GrammarError for a text without rules ("abnf.none") and beyond the caps ("abnf.too-large").
    """
    reader = _Reader()
    for block in blocks:
        reader.add(block.text, block.line, block.section)
    return reader.grammar()


class _Reader:
    """Collects definitions, then settles which of several is in force."""

    def __init__(self) -> None:
        self.size = 0
        self.count = 0
        self.defined: dict[str, list[Rule]] = {}
        self.problems: list[GrammarError] = []
        self.remarks: list[Remark] = []

    def add(self, text: str, line: int, section: str | None) -> None:
        self.size += len(text)
        if self.size > MAX_TEXT:
            raise _too_large(f"more than {MAX_TEXT:,} characters of ABNF", line)
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        for chunk in chunks(text, line=line):
            if chunk.name is None:
                self.stranger(chunk, section)
            else:
                self.rule(chunk, chunk.name, section)

    def stranger(self, chunk: Chunk, section: str | None) -> None:
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
                        fix=slip(row),
                    )
                )
                return

    def rule(self, chunk: Chunk, name: str, section: str | None) -> None:
        self.count += 1
        if self.count > MAX_RULES:
            raise _too_large(f"more than {MAX_RULES:,} rules", chunk.line)
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
            node, incremental, remarks = parse(chunk)
        except GrammarError as error:
            self.problems.append(error)
            self.defined.setdefault(rule.key, []).append(rule)
            return
        self.remarks.extend(replace(each, section=section) for each in remarks)
        rule = replace(rule, node=node)
        if incremental:
            self.extend(rule)
        else:
            self.defined.setdefault(rule.key, []).append(rule)

    def extend(self, more: Rule) -> None:
        """`name =/ more`: the alternatives join the last definition (RFC 5234 3.3)."""
        before = self.defined.get(more.key)
        if not before:
            self.defined[more.key] = [self.based(more)]
            return
        old = before[-1]
        if old.node is None or more.node is None:
            return
        first = old.node.items if isinstance(old.node, Alternation) else (old.node,)
        second = more.node.items if isinstance(more.node, Alternation) else (more.node,)
        node = Alternation(items=(*first, *second), line=old.node.line, column=old.node.column)
        before[-1] = replace(old, node=node, text=f"{old.text}\n{more.text}")

    def based(self, more: Rule) -> Rule:
        """`name =/ more` of a name that the text does not define: it adds to the rule of another RFC.

        RFC 6532 does so to VCHAR. Where no RFC of the library has that name either, a remark says so.
        """
        from onym.registry.abnf._library import find  # late: the library is read by this module

        assert more.node is not None  # noqa: S101 - a rule that cannot be read is not extended
        found = find(more.name)
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

    def grammar(self) -> Grammar:
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
            body = [each for each in several if not _in_appendix(each)] or several
            rules[key] = body[-1]
            losers = [each for each in several if each is not body[-1]]
            others.extend(losers)
            self.remarks.extend(_twice(rules[key], loser) for loser in losers)
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


def _in_appendix(rule: Rule) -> bool:
    return rule.section is not None and _APPENDIX.match(rule.section) is not None


def _twice(kept: Rule, loser: Rule) -> Remark:
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


def _too_large(message: str, line: int) -> GrammarError:
    return GrammarError(message, code="abnf.too-large", line=line, hint="give the scheme's own rules alone")
