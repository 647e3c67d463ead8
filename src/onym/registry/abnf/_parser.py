"""The parser of single rules (RFC 5234 4, RFC 7405 2.1).

A text is split into chunks, one for each rule. A chunk is split into tokens, and recursive descent makes
them a tree of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from onym.errors import GrammarError
from onym.registry.abnf.grammar import (
    Alternation,
    Concatenation,
    ListOf,
    Literal,
    Node,
    Prose,
    Range,
    Reference,
    Remark,
    RemarkCode,
    Repetition,
    Series,
)

#: digits of a number; what is longer cannot be meant
MAX_NUMBER: Final = 9
_RULE_LINE: Final = re.compile(r"[ \t]*(<)?(?P<name>[A-Za-z][A-Za-z0-9-]*)(?(1)>)[ \t]*(?:=/|=)(?!=)")
#: a name alone on its line, and the line after it that begins with "=" (RFC 5234 4: c-wsp within defined-as)
_NAME_LINE: Final = re.compile(r"[ \t]*(?P<name>[A-Za-z][A-Za-z0-9-]*)[ \t]*(?:;.*)?\Z")
_DEFINES: Final = re.compile(r"[ \t]+(?:=/|=)(?!=)")
#: running heads and feet of RFCs and Internet-Drafts; a comment may name a page, and an alternative be one
_FURNITURE: Final = re.compile(
    r"[ \t]*(?:[^\s/;][^;]*\[Page \d+\]|(?:RFC \d+|Internet-Draft) .*\b(?:19|20)\d\d)[ \t]*\Z"
)
_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<comment>;[^\n]*)
  | (?P<string>(?:%[siSI])?"[^"\n]*")
  | (?P<number>%[bdxBDX][0-9A-Fa-f]+(?:-[0-9A-Fa-f]+|(?:\.[0-9A-Fa-f]+)+)?)
  | (?P<prose><[^>\n]*>)
  | (?P<name>[A-Za-z][A-Za-z0-9-]*)
  | (?P<repeat>[0-9]*(?:\*|\#)[0-9]*|[0-9]+)
  | (?P<mark>=/|[=/()\[\]])
    """,
    re.VERBOSE,
)
#: what people write for ABNF, and what ABNF has for it
_SLIPS: Final = (
    ("|", 'alternatives are divided by "/", not "|"'),
    ("::=", 'a rule is defined by "=", not "::="'),
    ("'", 'strings stand in double quotes, and "\'" itself is %x27'),
    ("{", "repetition is written *( ... ), not { ... }"),
    ("_", 'rule names have letters, digits and "-"; write "-" for "_"'),
    ("\u201c", "the quotes are typographic; write straight ones"),
    ("\u201d", "the quotes are typographic; write straight ones"),
    ('"', "the string is not closed on its line"),
    ("<", "the prose is not closed on its line"),
    ("%", "a number is %x, %d or %b and digits; a string with case is %s and quotes"),
    (":", 'a rule is defined by "="'),
    ("+", "one or more is 1*, zero or one is [ ... ]"),
    ("?", "one or more is 1*, zero or one is [ ... ]"),
    (",", "elements stand beside each other, with no comma between them"),
    (".", "a rule has no full stop at its end"),
)


#: lines that were meant to be rules, and what ABNF has for them
_NO_RULES: Final = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (r"\s*<?[\w-]+>?\s*::=", 'a rule is defined by "=", not "::="'),
        (r"\s*<?[\w-]+>?\s*:=?\s", 'a rule is defined by "="'),
        (r"\s*<?[\w-]+>?\s*(?:->|\u2192|==)", 'a rule is defined by "="'),
        (r"\s*<?[0-9-][\w-]*>?\s*=", "a rule's name begins with a letter"),
        (r"\s*<?[\w-]*_[\w-]*>?\s*=", 'rule names have letters, digits and "-"; write "-" for "_"'),
        (r"\s*(?:<[\w-]+|[\w-]+>)\s*=", "angle brackets stand on both sides of a rule's name, or on none"),
        (r"\s*<?[\w-]+>?\s*=", "rule names have letters of ASCII alone"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of a rule and its place in the text, counted from 1."""

    kind: str
    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The lines of one rule, or (`name` None) lines that belong to none."""

    name: str | None
    text: str
    line: int


def syntax_error(
    message: str,
    token: Token | None,
    *,
    hint: str | None = None,
    rule: str | None = None,
    line: int | None = None,
    column: int | None = None,
) -> GrammarError:
    """A GrammarError at a token, or at a given place."""
    return GrammarError(
        message,
        field=rule,
        clause="RFC 5234 4",
        line=line if token is None else token.line,
        column=column if token is None else token.column,
        hint=hint,
    )


def _clean_line(line: str) -> str:
    """A line without page furniture, form feeds and the paragraph marks of HTML renderings."""
    line = line.replace("\f", "").replace("\u00b6", " ").replace("\u00a0", " ")
    return "" if _FURNITURE.match(line) and not _RULE_LINE.match(line) else line


def _can_continue(line: str, indent: int) -> bool:
    """After an empty line: can this line still be of the rule whose name stood at `indent`?"""
    text = line.lstrip(" \t")
    return len(line) - len(text) > indent or text[:1] in tuple('/;("[<%*0123456789')


def _match_name_line(row: str, after: list[str]) -> re.Match[str] | None:
    """The name, where the "=" of a rule stands on the line below it."""
    return _NAME_LINE.match(row) if after and _DEFINES.match(after[0]) else None


def split_chunks(text: str, *, line: int = 1) -> Iterator[Chunk]:
    """Each rule's text; a line that begins `name =` begins a rule, whatever its indentation.

    ABNF has "=" nowhere but there and in strings, so that lost indentation does no harm.
    """
    name: str | None = None
    indent, first, blank = 0, line, False
    rows: list[str] = []
    lines = text.split("\n")
    for number, raw in enumerate(lines, line):
        row = _clean_line(raw)
        found = _RULE_LINE.match(row) or _match_name_line(row, lines[number - line + 1 : number - line + 2])
        stranger = blank and name is not None and bool(row.strip()) and not _can_continue(row, indent)
        if found or stranger:
            if "".join(rows).strip():
                yield Chunk(name=name, text="\n".join(rows), line=first)
            rows, first = [], number
            name = found["name"] if found else None
            indent = len(row) - len(row.lstrip(" \t"))
        rows.append(row)
        blank = not row.strip() and (blank or row == raw)
    if "".join(rows).strip():
        yield Chunk(name=name, text="\n".join(rows), line=first)


def tokenize_chunk(chunk: Chunk) -> list[Token]:
    """The tokens of a chunk, white space and comments left out (spaces are told by the columns).

    Raises GrammarError at the first character that begins no token.
    """
    out: list[Token] = []
    text, at, line, begin = chunk.text, 0, chunk.line, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _stray_error(text, at, chunk.name, line, at - begin + 1)
        kind, piece = found.lastgroup or "", found[0]
        if kind == "space":
            breaks = piece.count("\n")
            if breaks:
                line += breaks
                begin = at + piece.rindex("\n") + 1
        elif kind != "comment":
            out.append(Token(kind=kind, text=piece, line=line, column=at - begin + 1))
        at = found.end()
    return out


def find_slip_hint(line: str) -> str | None:
    """What to write instead, for a line that was meant to be a rule and is none; None: nobody can tell."""
    return next((hint for found, hint in _NO_RULES if found.match(line)), None)


def _stray_error(text: str, at: int, rule: str | None, line: int, column: int) -> GrammarError:
    hint = next((hint for slip, hint in _SLIPS if text.startswith(slip, at)), None)
    shown = text[at] if text[at].isprintable() else f"U+{ord(text[at]):04X}"
    return syntax_error(f"{shown} has no meaning here", None, hint=hint, rule=rule, line=line, column=column)


#: groups and options within each other
MAX_DEPTH: Final = 64
#: the largest terminal: the last code point of Unicode
MAX_VALUE: Final = 0x10FFFF
_BASES: Final = {"b": (2, "01"), "d": (10, "0123456789"), "x": (16, "0123456789abcdef")}
_CLOSE: Final = {"(": ")", "[": "]"}


def parse_rule(chunk: Chunk) -> tuple[Node, bool, tuple[Remark, ...]]:
    """The rule's elements, whether it is incremental (`=/`), and remarks. Raises GrammarError."""
    return _RuleParser(chunk).parse()


class _RuleParser:
    """One pass over the tokens of one rule."""

    def __init__(self, chunk: Chunk) -> None:
        self.name = chunk.name or ""
        self.tokens = tokenize_chunk(chunk)
        self.at = 0
        self.depth = 0
        self.remarks: list[Remark] = []

    def parse(self) -> tuple[Node, bool, tuple[Remark, ...]]:
        defined = self.tokens[min(1, len(self.tokens) - 1)]
        if defined.text not in ("=", "=/"):
            self.fail("the rule is not defined", defined, hint='a rule is defined by "="')
        self.at = 2
        if self.peek() is None:
            self.fail("the rule has no elements", defined, hint='the empty string is written ""')
        node = self.parse_alternation()
        left = self.peek()
        if left is not None:
            message, hint = _LEFTOVER.get(left.text, ("the rule should have ended", None))
            first = next(token for token in self.tokens if token.line == left.line)
            if left.text[0] == "=" and first.kind == "repeat":
                message, hint = "this is no name of a rule", "a rule's name begins with a letter"
            self.fail(message, left, hint=hint)
        return node, defined.text == "=/", tuple(self.remarks)

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def fail(self, message: str, token: Token, *, hint: str | None = None) -> NoReturn:
        raise syntax_error(message, token, hint=hint, rule=self.name)

    def parse_alternation(self) -> Node:
        first = self.parse_concatenation()
        items = [first]
        while (token := self.peek()) is not None and token.text == "/":
            self.at += 1
            items.append(self.parse_concatenation())
        if len(items) == 1:
            return first
        return Alternation(items=tuple(items), line=first.line, column=first.column)

    def parse_concatenation(self) -> Node:
        items: list[Node] = []
        while (token := self.peek()) is not None and token.text not in ("/", ")", "]", "=", "=/"):
            items.append(self.parse_repetition(token))
        if not items:
            last = token or self.tokens[-1]
            self.fail(
                "an element is missing", last, hint="an alternative that may be empty is written [ ... ]"
            )
        if len(items) == 1:
            return items[0]
        return Concatenation(items=tuple(items), line=items[0].line, column=items[0].column)

    def parse_repetition(self, token: Token) -> Node:
        if token.kind != "repeat":
            return self.parse_element(token)
        text, last = token.text, token
        self.at += 1
        following = self.peek()
        if following is not None and following.kind == "repeat" and text.isdigit():
            if following.text[0] not in "*#":
                self.fail("two numbers stand before an element", following)
            text += following.text
            self.at += 1
            last, following = following, self.peek()
            self.add_remark(
                RemarkCode.SPACED_REPEAT, "there is a space within the repeat", token, "write 1*item"
            )
        if following is None or (following.kind in ("mark", "repeat") and following.text not in _CLOSE):
            self.fail("a repeat stands before no element", following or last)
        if (following.line, following.column) != (last.line, last.column + len(last.text)):
            self.add_remark(
                RemarkCode.SPACED_REPEAT, "there is a space after the repeat", token, "write 1*item"
            )
        item = self.parse_element(following)
        least, most = self.parse_bounds(text, token)
        kind: Callable[..., Node] = Repetition
        if "#" in text:
            kind = ListOf
            self.add_remark(
                RemarkCode.LIST_OPERATOR,
                "the list operator # is of RFC 9110 5.6.1; it is not ABNF",
                token,
                'write the commas out: item *( OWS "," OWS item )',
            )
        return kind(item=item, least=least, most=most, line=token.line, column=token.column)

    def parse_bounds(self, text: str, token: Token) -> tuple[int, int | None]:
        parts = text.replace("#", "*").split("*")
        if any(len(part) > MAX_NUMBER for part in parts):
            self.fail(f"the repeat has more than {MAX_NUMBER} digits", token)
        least = int(parts[0] or 0)
        most = least if len(parts) == 1 else (int(parts[1]) if parts[1] else None)
        if most is not None and most < least:
            self.fail("the repeat's end is below its begin", token, hint="write the smaller number first")
        return least, most

    def add_remark(self, code: RemarkCode, message: str, token: Token, fix: str) -> None:
        self.remarks.append(
            Remark(code=code, message=message, rule=self.name, line=token.line, column=token.column, fix=fix)
        )

    def parse_element(self, token: Token) -> Node:
        self.at += 1
        place = {"line": token.line, "column": token.column}
        if token.kind == "name":
            return Reference(name=token.text, **place)
        if token.kind == "string":
            return self.parse_string(token)
        if token.kind == "number":
            return self.parse_number(token)
        if token.kind == "prose":
            return Prose(text=token.text[1:-1], **place)
        return self.parse_group(token)

    def parse_string(self, token: Token) -> Literal:
        sensitive = token.text[:2].lower() == "%s"
        text = token.text[token.text.index('"') + 1 : -1]
        for at, char in enumerate(text):
            if not " " <= char <= "~":
                raise syntax_error(
                    "a string holds printable ASCII alone",
                    None,
                    hint=f"write the terminal as a number: %x{ord(char):X}",
                    rule=self.name,
                    line=token.line,
                    column=token.column + token.text.index('"') + 1 + at,
                )
        return Literal(text=text, sensitive=sensitive, line=token.line, column=token.column)

    def parse_number(self, token: Token) -> Node:
        base, digits = _BASES[token.text[1].lower()]
        body = token.text[2:].lower()
        values = [self.parse_value(part, base, digits, token) for part in body.replace("-", ".").split(".")]
        if "-" not in body:
            return Series(values=tuple(values), line=token.line, column=token.column)
        first, last = values
        if last < first:
            self.fail("the range's end is below its begin", token, hint="write the smaller value first")
        return Range(first=first, last=last, line=token.line, column=token.column)

    def parse_value(self, part: str, base: int, digits: str, token: Token) -> int:
        if any(char not in digits for char in part):
            self.fail(f"a digit of {token.text[:20]} is not of its base", token)
        value = int(part, base) if len(part) <= 24 else MAX_VALUE + 1
        if value > MAX_VALUE:
            self.fail("a terminal beyond Unicode", token, hint=f"the largest is %x{MAX_VALUE:X}")
        return value

    def parse_group(self, token: Token) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise GrammarError(
                f"more than {MAX_DEPTH} groups within each other",
                code="abnf.too-deep",
                field=self.name,
                line=token.line,
                column=token.column,
                hint="give inner groups rules of their own",
            )
        inner = self.parse_alternation()
        closing = self.peek()
        if closing is None or closing.text != _CLOSE[token.text]:
            self.fail(f"{token.text} is not closed", token, hint=f"write {_CLOSE[token.text]} where it ends")
        self.at += 1
        self.depth -= 1
        if token.text == "[":
            return Repetition(item=inner, least=0, most=1, line=token.line, column=token.column)
        return inner


#: what may be left over after a rule, and what to do
_LEFTOVER: Final = {
    ")": ("this ) closes nothing", "take it out, or open the group"),
    "]": ("this ] closes nothing", "take it out, or open the option"),
    "=": ("a second = in one rule", "begin the next rule on a line of its own"),
    "=/": ("a second =/ in one rule", "begin the next rule on a line of its own"),
}
