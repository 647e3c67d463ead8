"""ABNF blocks and example URIs in a document.

A block is ABNF if the document marks it as ABNF or if its lines have the form of rules. Example URIs are
delimited as in RFC 3986 Appendix C.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from onym.registry.documents._lines import Line, count_indent, is_flush, require_at_most
from onym.registry.documents.types import Block, Example

#: blocks of ABNF of one document
MAX_BLOCKS: Final = 2_000

_RULE: Final = re.compile(r" *[A-Za-z][A-Za-z0-9-]{0,63}(?P<space> *)=/?(?!=) *(?P<elements>.*)\Z")
_TOKEN: Final = re.compile(
    r'(?P<space> +)|(?P<comment>;.*)|(?P<string>(?:%[si])?"[^"]*(?:"|\Z))|(?P<number>%[bdxBDX][0-9A-Fa-f.-]+)'
    r"|(?P<prose><[^>]*(?:>|\Z))|(?P<name>[A-Za-z][A-Za-z0-9-]*)|(?P<group>[()\[\]])|(?P<slash>/)"
    r"|(?P<repeat>[0-9*#]+(?=[A-Za-z(\[\"<%]| +[(\[\"<%])|[0-9]*[*#][0-9]*(?= +[A-Za-z])|[0-9]*[*#]\Z"
    r"|[0-9]+(?= +(?:ALPHA|DIGIT|HEXDIG|VCHAR|WSP)(?![\w-])))"
    # numbers apart from an element: `size = 3`, `size = 3 feet` are rules only next to rules
    r"|(?P<apart>(?<![^ (/])[0-9]+(?= +[A-Za-z;/]| *\Z))"
    r"|(?P<equals>=/?)"
)
#: tokens that distinguish ABNF from an assignment
_STRONG: Final = frozenset(("string", "number", "prose", "group", "repeat"))
#: languages of marked text that may still be ABNF
_NEUTRAL_LANGUAGES: Final = frozenset(
    ("", "txt", "text", "plain", "plaintext", "ascii-art", "none", "bnf", "ebnf", "grammar")
)
#: names in a row that make a sentence
_SENTENCE: Final = 4
#: strange characters in a line between rules, which the parser of the grammar reports
_SLOPPY: Final = 3
#: strange characters after which the rest of a line is skipped
_HOPELESS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineShape:
    """The tokens and strange characters of a line."""

    strange: int
    strong: bool
    prose: bool
    comment: bool
    #: a number that may be a repeat
    apart: bool
    #: at most one element, as an assignment has
    lone: bool

    @property
    def is_clean(self) -> bool:
        return not (self.strange or self.prose)


def _measure_line(text: str) -> _LineShape:
    offset = strange = names = most = elements = 0
    kinds: set[str] = set()
    while offset < len(text) and strange <= _HOPELESS:
        token = _TOKEN.match(text, offset)
        if token is None:
            strange += 1
            offset += 1
            continue
        kind = token.lastgroup or ""
        if kind == "slash" and (offset == 0 or text[offset - 1] == " "):
            kind = "string"
        kinds.add(kind)
        elements += kind not in ("space", "comment")
        names = names + 1 if kind == "name" else (names if kind == "space" else 0)
        most = max(most, names)
        offset = token.end()
    kinds.discard("space")
    return _LineShape(
        strange=strange,
        strong=not _STRONG.isdisjoint(kinds),
        prose=most >= _SENTENCE,
        comment=kinds == {"comment"},
        apart="apart" in kinds,
        lone=elements <= 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RuleEvidence:
    """A line that may begin a rule."""

    #: the block is ABNF
    proves: bool = False
    #: the block is ABNF, and the line cannot be an assignment of a text
    sure: bool = False
    #: the line may be an assignment of a number: a rule only in a block that is certainly ABNF
    doubtful: bool = False


def _match_rule(text: str, *, sloppy: bool) -> _RuleEvidence | None:
    """Return the evidence of a line for its block; None if the line is not a rule."""
    rule = _RULE.match(text)
    if rule is None:
        return None
    shape = _measure_line(rule["elements"])
    if not rule["elements"]:
        return _RuleEvidence()
    quoted = '"' in rule["elements"] or "%" in rule["elements"]
    if shape.is_clean and (rule["space"] or quoted):
        return _RuleEvidence(
            proves=shape.strong,
            sure=shape.strong and not shape.lone,
            doubtful=shape.apart and not shape.strong,
        )
    if sloppy and shape.strange <= _SLOPPY and shape.strong and rule["space"]:
        return _RuleEvidence()
    return None


@dataclass(slots=True, kw_only=True)
class _OpenBlock:
    """A block that is being read: its column, and the text by line number."""

    column: int
    section: str | None
    rows: dict[int, str] = field(default_factory=dict)
    proved: bool = False
    sure: bool = False
    #: lines of doubtful rules
    doubtful: set[int] = field(default_factory=set)
    last: int = 0

    def add_line(self, line: Line, text: str, rule: _RuleEvidence | None) -> None:
        """Add a line that begins a rule or continues the last one."""
        if rule is not None:
            self.proved = self.proved or rule.proves
            self.sure = self.sure or rule.sure
        if rule.doubtful if rule is not None else self.last in self.doubtful:
            self.doubtful.add(line.number)
        self.rows[line.number] = text
        self.last = line.number


class _BlockReader:
    """Finds blocks in lines that are not marked as ABNF."""

    def __init__(self, *, flush: bool) -> None:
        self.flush = flush
        self.open: _OpenBlock | None = None
        self.blank = False
        self.section: str | None = None

    def feed_line(self, line: Line) -> Block | None:
        """Read a line; return the block that it ended, if any."""
        if line.heading is not None:
            ended = self.close_block()
            self.section = line.heading.name
            return ended
        if line.blank:
            self.blank = True
            return None
        ended = None
        if not self._extend_block(line):
            ended = self.close_block()
            self._open_block(line)
        self.blank = False
        return ended

    def close_block(self) -> Block | None:
        """Close the open block; return None if nothing proves that it is ABNF."""
        block, self.open = self.open, None
        if block is None or not block.proved:
            return None
        if not block.sure:
            block.rows = {line: row for line, row in block.rows.items() if line not in block.doubtful}
        first, last = min(block.rows), max(block.rows)
        # line numbers stay the same; page furniture becomes a space, which ABNF allows in a rule
        rows = [block.rows.get(number, " ") for number in range(first, last + 1)]
        return Block(text="\n".join(rows), line=first, section=block.section)

    def _open_block(self, line: Line) -> None:
        rule = None if line.toc else _match_rule(line.text, sloppy=False)
        if rule is None:
            return
        self.open = _OpenBlock(column=count_indent(line.text), section=self.section)
        self.open.add_line(line, line.text, rule)

    def _extend_block(self, line: Line) -> bool:
        block = self.open
        if block is None:
            return False
        rule = _match_rule(line.text, sloppy=True)
        text = line.text
        if rule is None and not self._can_continue(block, text):
            return False
        if rule is None and self.flush and count_indent(text) <= block.column:
            # if indentation is lost, a continuation line gets some back
            text = "  " + text
        block.add_line(line, text, rule)
        return True

    def _can_continue(self, block: _OpenBlock, text: str) -> bool:
        shape = _measure_line(text.strip(" "))
        if shape.comment:
            return True
        if count_indent(text) > block.column:
            return shape.is_clean and (shape.strong or not self.blank)
        return self.flush and shape.is_clean and shape.strong and not self.blank


def _iter_marked_blocks(lines: list[Line]) -> Iterator[Block]:
    """Yield the blocks that the document marks as ABNF."""
    section: str | None = None
    rows: list[Line] = []
    for line in [*lines, Line(number=0, text="")]:
        if line.heading is not None:
            section = line.heading.name
        if line.code == "abnf":
            rows.append(line)
        elif rows:
            first = next((index for index, row in enumerate(rows) if row.text.strip()), None)
            if first is not None:
                text = "\n".join(row.text for row in rows[first:]).rstrip()
                yield Block(text=text, line=rows[first].number, section=section, marked=True)
            rows = []


def _iter_found_blocks(lines: list[Line]) -> Iterator[Block]:
    reader = _BlockReader(flush=is_flush(lines))
    for line in lines:
        if line.code is not None and line.code not in _NEUTRAL_LANGUAGES:
            line = Line(number=line.number, text=".")
        ended = reader.feed_line(line)
        if ended is not None:
            yield ended
    last = reader.close_block()
    if last is not None:
        yield last


def find_blocks(lines: list[Line]) -> tuple[Block, ...]:
    """Return every block of ABNF, in order."""
    out = sorted((*_iter_marked_blocks(lines), *_iter_found_blocks(lines)), key=lambda block: block.line)
    require_at_most(out, MAX_BLOCKS, "blocks of ABNF")
    return tuple(out)


#: example URIs of one document; characters of a URI; lines of a wrapped URI
MAX_EXAMPLES: Final = 5_000
MAX_URI: Final = 8_192
MAX_WRAPS: Final = 8

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,62}\Z")
_STOP: Final = r"\s<>\"`{}|\\^“”„«»"
_STOPS: Final = re.compile(rf"[{_STOP}]")
#: the beginning of a placeholder; "</" is the end of an HTML element
_PLACEHOLDER: Final = re.compile(r"[{^]|<(?!/)")
#: placeholders of programs: `%s` as a whole part, `$name` at the beginning
_FORM: Final = re.compile(r"(?:^|[/?#&=;:@,])%[sd](?=[/?#&=;:@,]|\Z)|^(?://)?\$[A-Za-z_]")
_CLOSING: Final = {'"': '"', "<": ">", "'": "'", "“": "”", "`": "`"}
_TRAILING: Final = ".,;:!?'\u2019*_"
_BRACKETS: Final = {")": "(", "]": "[", "}": "{"}
_LITERAL: Final = re.compile(r"\[(?:[0-9A-Fa-f:.]{2,45}|v[0-9A-Fa-f]{1,4}\.[^\]]{1,60})\]")
#: the first characters of a line that can only continue a URI
_ONWARD: Final = ("?", "#", "&", "/", "=")


def find_examples(
    lines: list[Line], names: Iterable[str], *, without: Collection[int]
) -> tuple[Example, ...]:
    """Return every different URI of the schemes `names`, with the first line that shows it.

    URIs with placeholders ("[user@]", "{id}", "...") are left out, as are schemes with nothing after them.
    `without` are lines of grammars and reference lists.
    """
    schemes = sorted({name.casefold() for name in names if _NAME.match(name)})
    if not schemes:
        return ()
    start = re.compile(
        rf"(?<![A-Za-z0-9+.%-])(?:{'|'.join(re.escape(scheme) for scheme in schemes)}):", re.IGNORECASE
    )
    examples: dict[str, Example] = {}
    section: str | None = None
    for index, line in enumerate(lines):
        if line.heading is not None:
            section = line.heading.name
        elif not (line.toc or line.code == "abnf" or line.number in without):
            for uri in _iter_line_uris(lines, index, start):
                examples.setdefault(uri, Example(uri=uri, line=line.number, section=section))
            require_at_most(examples, MAX_EXAMPLES, "example URIs")
    return tuple(examples.values())


def _iter_line_uris(lines: list[Line], index: int, start: re.Pattern[str]) -> Iterator[str]:
    text = lines[index].text
    passed = 0
    while (match := start.search(text, passed)) is not None:
        stop = _STOPS.search(text, match.end())
        passed = len(text) if stop is None else stop.start()
        before = text[match.start() - 1 : match.start()]
        raw = text[match.start() : passed]
        if before == "'" and "'" in raw:
            raw = raw[: raw.index("'")]
        elif _PLACEHOLDER.match(text, passed):
            continue
        else:
            raw += _join_wrapped(lines, index, passed, _CLOSING.get(before, ""))
        uri = _trim_punctuation(raw)
        if "..." not in raw and _is_example(uri, match.end() - match.start()):
            yield uri


def _join_wrapped(lines: list[Line], index: int, end: int, closing: str) -> str:
    """Return the rest of a URI that continues on the next lines."""
    text = lines[index].text
    if text[end:] not in ("", "\\"):
        return ""
    folded = text.endswith("\\")
    rest: list[str] = []
    for line in lines[index + 1 : index + 1 + MAX_WRAPS]:
        part = line.text.strip(" ")
        if not part or line.heading is not None:
            break
        if closing and closing in part[:MAX_URI]:
            head = part[: part.index(closing)]
            return "".join(rest) + ("" if any(map(str.isspace, head)) else head)
        alone = _STOPS.search(part.removesuffix("\\")) is None
        if not alone or not (folded or closing or part.startswith(_ONWARD)):
            break
        rest.append(part.removesuffix("\\"))
        folded = part.endswith("\\")
    # without its closing mark nothing is joined
    return "" if closing and not (rest and rest[0].startswith(_ONWARD)) else "".join(rest)


def _trim_punctuation(raw: str) -> str:
    """Return the URI without the punctuation of the sentence around it."""
    uri = raw[:MAX_URI]
    # closing brackets without their opening bracket
    loose = {last: uri.count(last) - uri.count(opening) for last, opening in _BRACKETS.items()}
    end = len(uri)
    while end and (uri[end - 1] in _TRAILING or loose.get(uri[end - 1], 0) > 0):
        end -= 1
        if uri[end] in loose:
            loose[uri[end]] -= 1
    return uri[:end]


def _is_example(uri: str, prefix: int) -> bool:
    rest = uri[prefix:]
    if not rest.strip("/") or "\u2026" in rest or _FORM.search(rest):
        return False
    return not {"[", "]"} & set(_LITERAL.sub("", rest))
