"""ABNF in a text: what stands in marked blocks, and what has the form of rules in prose and figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from onym.registry.documents._lines import Line, capped, indent_of, is_flush
from onym.registry.documents.types import Block

__all__ = ["MAX_BLOCKS", "blocks_of"]

#: blocks of ABNF of one document
MAX_BLOCKS: Final = 2_000

_RULE: Final = re.compile(r" *[A-Za-z][A-Za-z0-9-]{0,63}(?P<space> *)=/?(?!=) *(?P<elements>.*)\Z")
_TOKEN: Final = re.compile(
    r'(?P<space> +)|(?P<comment>;.*)|(?P<string>(?:%[si])?"[^"]*(?:"|\Z))|(?P<number>%[bdxBDX][0-9A-Fa-f.-]+)'
    r"|(?P<prose><[^>]*(?:>|\Z))|(?P<name>[A-Za-z][A-Za-z0-9-]*)|(?P<group>[()\[\]])|(?P<slash>/)"
    r"|(?P<repeat>[0-9*#]+(?=[A-Za-z(\[\"<%]| +[(\[\"<%])|[0-9]*[*#][0-9]*(?= +[A-Za-z])|[0-9]*[*#]\Z"
    r"|[0-9]+(?= +(?:ALPHA|DIGIT|HEXDIG|VCHAR|WSP)(?![\w-])))"
    # apart from its element, or without one: `size = 3`, `size = 3 feet` are rules only beside rules
    r"|(?P<apart>(?<![^ (/])[0-9]+(?= +[A-Za-z;/]| *\Z))"
    r"|(?P<equals>=/?)"
)
#: tokens by which a line is taken for ABNF and not for an assignment
_STRONG: Final = frozenset(("string", "number", "prose", "group", "repeat"))
#: languages of marked text in which ABNF may stand all the same; what is of another is left alone
_UNSAID: Final = frozenset(
    ("", "txt", "text", "plain", "plaintext", "ascii-art", "none", "bnf", "ebnf", "grammar")
)
#: names in a row that make a sentence
_SENTENCE: Final = 4
#: strange characters that a line with rules around it may hold: its fault is for the grammar's reader
_SLOPPY: Final = 3
#: strange characters after which no more of a line is looked at
_HOPELESS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What a line is made of: tokens alone? With a mark of ABNF? How many strange characters?"""

    strange: int
    strong: bool
    prose: bool
    comment: bool
    #: a number that may be a repeat
    apart: bool
    #: at most one element, as an assignment has
    lone: bool

    @property
    def clean(self) -> bool:
        return not (self.strange or self.prose)


def _shape(text: str) -> _Shape:
    at = strange = names = most = elements = 0
    kinds: set[str] = set()
    while at < len(text) and strange <= _HOPELESS:
        token = _TOKEN.match(text, at)
        if token is None:
            strange += 1
            at += 1
            continue
        kind = token.lastgroup or ""
        if kind == "slash" and (at == 0 or text[at - 1] == " "):
            kind = "string"
        kinds.add(kind)
        elements += kind not in ("space", "comment")
        names = names + 1 if kind == "name" else (names if kind == "space" else 0)
        most = max(most, names)
        at = token.end()
    kinds.discard("space")
    return _Shape(
        strange=strange,
        strong=not _STRONG.isdisjoint(kinds),
        prose=most >= _SENTENCE,
        comment=kinds == {"comment"},
        apart="apart" in kinds,
        lone=elements <= 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A line that may begin a rule."""

    #: it shows that the block is ABNF
    proves: bool = False
    #: it shows that too, and cannot be an assignment of a text
    sure: bool = False
    #: it may be an assignment of a number: a rule only in a block that is surely ABNF
    doubtful: bool = False


def _rule(text: str, *, sloppy: bool) -> _Rule | None:
    """What a line tells of the block that it stands in; None where it is no rule."""
    found = _RULE.match(text)
    if found is None:
        return None
    shape = _shape(found["elements"])
    if not found["elements"]:
        return _Rule()
    quoted = '"' in found["elements"] or "%" in found["elements"]
    if shape.clean and (found["space"] or quoted):
        return _Rule(
            proves=shape.strong,
            sure=shape.strong and not shape.lone,
            doubtful=shape.apart and not shape.strong,
        )
    if sloppy and shape.strange <= _SLOPPY and shape.strong and found["space"]:
        return _Rule()
    return None


@dataclass(slots=True, kw_only=True)
class _Open:
    """A block being read: its column, and the texts by line number."""

    column: int
    section: str | None
    rows: dict[int, str] = field(default_factory=dict)
    proved: bool = False
    sure: bool = False
    #: lines of doubtful rules
    doubtful: set[int] = field(default_factory=set)
    last: int = 0

    def add(self, line: Line, text: str, rule: _Rule | None) -> None:
        """Take a line: one that begins a rule, or goes on with the last."""
        if rule is not None:
            self.proved = self.proved or rule.proves
            self.sure = self.sure or rule.sure
        if rule.doubtful if rule is not None else self.last in self.doubtful:
            self.doubtful.add(line.number)
        self.rows[line.number] = text
        self.last = line.number


class _Reader:
    """Finds blocks in lines that are not marked as ABNF."""

    def __init__(self, *, flush: bool) -> None:
        self.flush = flush
        self.open: _Open | None = None
        self.blank = False
        self.section: str | None = None

    def feed(self, line: Line) -> Block | None:
        """Take a line; the block that it ended, if it ended one."""
        if line.heading is not None:
            ended = self.end()
            self.section = line.heading.name
            return ended
        if line.blank:
            self.blank = True
            return None
        ended = None
        if not self._takes(line):
            ended = self.end()
            self._begin(line)
        self.blank = False
        return ended

    def end(self) -> Block | None:
        """Close the block, if one is open; None where nothing proved it to be ABNF."""
        found, self.open = self.open, None
        if found is None or not found.proved:
            return None
        if not found.sure:
            found.rows = {at: row for at, row in found.rows.items() if at not in found.doubtful}
        first, last = min(found.rows), max(found.rows)
        # a line for a line, so that places hold; page furniture leaves a space, which ABNF allows in a rule
        rows = [found.rows.get(number, " ") for number in range(first, last + 1)]
        return Block(text="\n".join(rows), line=first, section=found.section)

    def _begin(self, line: Line) -> None:
        rule = None if line.toc else _rule(line.text, sloppy=False)
        if rule is None:
            return
        self.open = _Open(
            column=indent_of(line.text),
            section=self.section,
        )
        self.open.add(line, line.text, rule)

    def _takes(self, line: Line) -> bool:
        """Does the open block go on with this line?"""
        block = self.open
        if block is None:
            return False
        rule = _rule(line.text, sloppy=True)
        text = line.text
        if rule is None and not self._continues(block, text):
            return False
        if rule is None and self.flush and indent_of(text) <= block.column:
            # where indentation is lost, a line that goes on gets some back
            text = "  " + text
        block.add(line, text, rule)
        return True

    def _continues(self, block: _Open, text: str) -> bool:
        shape = _shape(text.strip(" "))
        if shape.comment:
            return True
        if indent_of(text) > block.column:
            return shape.clean and (shape.strong or not self.blank)
        return self.flush and shape.clean and shape.strong and not self.blank


def _marked(lines: list[Line]) -> Iterator[Block]:
    """What the document itself marks as ABNF, as it stands."""
    section: str | None = None
    rows: list[Line] = []
    for line in [*lines, Line(number=0, text="")]:
        if line.heading is not None:
            section = line.heading.name
        if line.code == "abnf":
            rows.append(line)
        elif rows:
            first = next((at for at, each in enumerate(rows) if each.text.strip()), None)
            if first is not None:
                text = "\n".join(each.text for each in rows[first:]).rstrip()
                yield Block(text=text, line=rows[first].number, section=section, marked=True)
            rows = []


def _found(lines: list[Line]) -> Iterator[Block]:
    reader = _Reader(flush=is_flush(lines))
    for line in lines:
        if line.code is not None and line.code not in _UNSAID:
            line = Line(number=line.number, text=".")
        ended = reader.feed(line)
        if ended is not None:
            yield ended
    last = reader.end()
    if last is not None:
        yield last


def blocks_of(lines: list[Line]) -> tuple[Block, ...]:
    """Every block of ABNF, in order."""
    out = sorted((*_marked(lines), *_found(lines)), key=lambda block: block.line)
    capped(out, MAX_BLOCKS, "blocks of ABNF")
    return tuple(out)
