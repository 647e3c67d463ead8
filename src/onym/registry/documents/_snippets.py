"""ABNF blocks and example URIs in a document.

A block is ABNF if the document marks it as ABNF or if its lines have the form of rules. Example URIs are
delimited as in RFC 3986 Appendix C.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from onym.registry.documents._lines import Line, count_indent, is_flush, require_at_most
from onym.registry.documents.types import Block, Example

#: blocks of ABNF of one document
MAX_BLOCKS: Final = 2_000

_RULE: Final = re.compile(r" *[A-Za-z][A-Za-z0-9-]{0,63}(?P<space> *)=/?(?!=) *(?P<elements>.*)\Z")
#: the elements of a rule whose strings are URIs
_URI_START: Final = re.compile(r'"[A-Za-z][A-Za-z0-9+.-]*(?:"[ ]*")?:')
_NAMELESS: Final = re.compile(r'"([A-Za-z][A-Za-z0-9+.-]{0,62}):(?://)?" +(?=[A-Za-z\[(])')
#: `dataurl := "data:" ...`: a rule in the notation of RFC 822
_COLON_RULE: Final = re.compile(r"( *[A-Za-z][A-Za-z0-9-]{0,63} *):=(?= )")
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
    #: a second "=", as the attributes of a tag have
    equals: bool

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
        # names in capitals, such as COLON, are no words of a sentence
        words = kind == "name" and not token[0].isupper()
        names = names + 1 if words else (names if kind in ("space", "name") else 0)
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
        equals="equals" in kinds,
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
    #: the line has no elements
    bare: bool = False


def _match_rule(text: str, *, sloppy: bool) -> _RuleEvidence | None:
    """Return the evidence of a line for its block; None if the line is not a rule."""
    rule = _RULE.match(text)
    if rule is None and (colon := _COLON_RULE.match(text)) is not None:
        rule = _RULE.match(f"{colon[1]} ={text[colon.end() :]}")
        if rule is not None and not sloppy and not _URI_START.match(rule["elements"]):
            return None
    if rule is None:
        return None
    shape = _measure_line(rule["elements"])
    if not rule["elements"]:
        return _RuleEvidence(bare=True)
    quoted = '"' in rule["elements"] or "%" in rule["elements"]
    if shape.strange <= _SLOPPY and not shape.lone and _URI_START.match(rule["elements"]):
        # a rule of a URI, also with a slip such as "_" in a name or "|" for "/"
        return _RuleEvidence(proves=True, sure=True)
    if not rule["space"] and shape.equals:
        return None
    if not rule["space"] and shape.lone and '"' in rule["elements"]:
        # `href="kite:a"` is an attribute of a tag or a header, unless rules are around it
        return _RuleEvidence(doubtful=True)
    if shape.is_clean and (rule["space"] or quoted):
        return _RuleEvidence(
            proves=shape.strong,
            sure=shape.strong and not shape.lone,
            doubtful=shape.apart and not shape.strong,
        )
    if sloppy and shape.strange <= _SLOPPY and shape.strong and rule["space"]:
        return _RuleEvidence()
    return None


def _name_elements(text: str) -> str:
    """Return elements of a URI without a rule's name, `"aaa://" FQDN [ port ]`, as a rule `aaa-URI`."""
    elements = text.lstrip(" ")
    start = _NAMELESS.match(elements)
    if start is None:
        return text
    shape = _measure_line(elements)
    rest = _measure_line(elements[start.end() :])
    if not shape.is_clean or not rest.strong or shape.equals:
        return text
    return f"{text[: len(text) - len(elements)]}{start[1]}-URI = {elements}"


@dataclass(slots=True, kw_only=True)
class _OpenBlock:
    """A block that is being read: its column, and the text by line number."""

    column: int
    section: str | None
    rows: dict[int, str] = field(default_factory=dict)
    proved: bool = False
    sure: bool = False
    #: lines of doubtful rules, and of names whose elements are on the next line
    doubtful: set[int] = field(default_factory=set)
    bare: set[int] = field(default_factory=set)
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

    def __init__(self, *, flush: bool, columns: Mapping[int, int]) -> None:
        self.flush = flush
        self.columns = columns
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
        if self.open is None or self.blank:
            line = replace(line, text=_name_elements(line.text))
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
        column = self.columns.get(line.number, count_indent(line.text))
        self.open = _OpenBlock(column=column, section=self.section)
        self.open.add_line(line, line.text, rule)
        if rule.bare:
            self.open.bare.add(line.number)

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
        begins = rule is None and block.last in block.bare and _URI_START.match(text.lstrip(" ")) is not None
        if rule is not None and rule.bare:
            block.bare.add(line.number)
        block.add_line(line, text, rule)
        # the elements of a rule may begin on the next line
        block.proved, block.sure = block.proved or begins, block.sure or begins
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


def _iter_found_blocks(lines: list[Line], labels: Mapping[int, str]) -> Iterator[Block]:
    columns = {line.number: count_indent(line.text) for line in lines if line.number in labels}
    reader = _BlockReader(flush=is_flush(lines), columns=columns)
    for line in lines:
        value = labels.get(line.number)
        if value is not None and line.text.endswith(value):
            # a rule on the line of its label keeps its column; the label is left out
            line = replace(line, text=value.rjust(len(line.text)))
        if line.code is not None and line.code not in _NEUTRAL_LANGUAGES:
            line = Line(number=line.number, text=".")
        ended = reader.feed_line(line)
        if ended is not None:
            yield ended
    last = reader.close_block()
    if last is not None:
        yield last


def find_blocks(lines: list[Line], labels: Mapping[int, str] | None = None) -> tuple[Block, ...]:
    """Return every block of ABNF, in order. `labels` maps lines to the value that follows a label there."""
    found = _iter_found_blocks(lines, labels or {})
    out = sorted((*_iter_marked_blocks(lines), *found), key=lambda block: block.line)
    require_at_most(out, MAX_BLOCKS, "blocks of ABNF")
    return tuple(out)


#: a URI with names in angle brackets, as RFC 1738 shows it: `telnet://<user>:<password>@<host>:<port>/`
_FORM_LINE: Final = re.compile(
    r" *(?P<scheme>[a-z][a-z0-9+.-]{1,62}):"
    r"(?P<rest>(?:[A-Za-z0-9:/?#@!$&'()*+,;=._~-]|<[a-z][a-z0-9 -]{0,40}>){1,120})\Z"
)
_FORM_PART: Final = re.compile(r"<([^<>]+)>|[^<>]+")


def find_form(lines: list[Line]) -> tuple[Block, ...]:
    """Return the first such form as a rule, for a text without ABNF; nothing if there is none."""
    section: str | None = None
    for line in lines:
        if line.heading is not None:
            section = line.heading.name
        form = None if line.toc or "<" not in line.text else _FORM_LINE.match(line.text)
        if form is not None and "<" in form["rest"]:
            parts = [
                match[1].replace(" ", "-") if match[1] else f'"{match[0]}"'
                for match in _FORM_PART.finditer(f"{form['scheme']}:{form['rest']}")
            ]
            text = f"{form['scheme']}-URI = {' '.join(parts)}"
            return (Block(text=text, line=line.number, section=section, form=True),)
    return ()


#: example URIs of one document; characters of a URI; lines of a wrapped URI
MAX_EXAMPLES: Final = 5_000
MAX_URI: Final = 8_192
MAX_WRAPS: Final = 8

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,62}\Z")
_STOP: Final = r"\s<>\"`{}|\\^“”„«»"
_STOPS: Final = re.compile(rf"[{_STOP}]")
#: the beginning of a placeholder; "</" is the end of an HTML element
_PLACEHOLDER: Final = re.compile(r"[{^]|<(?!/)|\|(?=[^\s|])")
#: placeholders: `%s` as a whole part, `$name` at the beginning, `%lat%`, `host:port`, `&#x159;`
_FORM: Final = re.compile(
    r"(?:^|[/?#&=;:@,])%[sd](?=[/?#&=;:@,]|\Z)|^(?://)?\$[A-Za-z_]|%(?![0-9A-Fa-f]{2})[A-Za-z_]{2,32}%"
    r"|(?:^|[/@])host:port(?![A-Za-z])|&#x?[0-9A-Fa-f]{1,8};"
)
_CLOSING: Final = {'"': '"', "<": ">", "'": "'", "“": "”", "`": "`"}
_TRAILING: Final = ".,;:!?'\u2019*_"
_BRACKETS: Final = {")": "(", "]": "[", "}": "{"}
_LITERAL: Final = re.compile(r"\[(?:[0-9A-Fa-f:.]{2,45}|v[0-9A-Fa-f]{1,4}\.[^\]]{1,60})\]")
#: the first characters of a line that can only continue a URI
_ONWARD: Final = ("?", "#", "&", "/", "=")


#: names before a colon in the strings of rules
_NAMED: Final = re.compile(r'"([A-Za-z][A-Za-z0-9+.-]{0,62})(?:"[ \t]*")?:(?://)?[^"\n]*"')
#: such names of one document
MAX_NAMES: Final = 20


def find_named_schemes(blocks: Iterable[Block]) -> tuple[str, ...]:
    """Return names that rules may begin with, for the examples of a document without a template."""
    names = dict.fromkeys(name.lower() for block in blocks for name in _NAMED.findall(block.text))
    return tuple(names)[:MAX_NAMES]


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
    whole: set[str] = set()
    section: str | None = None
    for index, line in enumerate(lines):
        if line.heading is not None:
            section = line.heading.name
        elif not (line.toc or line.code == "abnf" or line.number in without):
            for uri, tail in _iter_line_uris(lines, index, start):
                example = Example(uri=uri, line=line.number, section=section, tail=tail)
                if not tail and uri not in whole:
                    # certainly the whole URI, so it replaces one that may be shortened
                    whole.add(uri)
                    examples[uri] = example
                examples.setdefault(uri, example)
            require_at_most(examples, MAX_EXAMPLES, "example URIs")
    return tuple(examples.values())


def _iter_line_uris(lines: list[Line], index: int, start: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield the URIs of a line, each with the punctuation after it that quotes or brackets also enclose."""
    text = lines[index].text
    passed = 0
    while (match := start.search(text, passed)) is not None:
        stop = _STOPS.search(text, match.end())
        passed = len(text) if stop is None else stop.start()
        before = text[match.start() - 1 : match.start()]
        raw = text[match.start() : passed]
        if before == "'" and "'" in raw:
            raw = raw[: raw.index("'")]
        elif _PLACEHOLDER.match(text, passed) and not (text[passed] == "|" and before == "|"):
            continue
        else:
            raw += _join_wrapped(lines, index, passed, _CLOSING.get(before, ""))
        uri = _trim_punctuation(raw)
        if "..." not in raw and _is_example(uri, match.end() - match.start()):
            enclosed = stop is not None and _CLOSING.get(before) == text[passed]
            yield uri, raw[len(uri) :] if enclosed and len(raw) < MAX_URI else ""


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
