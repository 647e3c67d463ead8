"""The parser of single rules (RFC 5234 4, RFC 7405 2.1).

A text is split into chunks, one for each rule. A chunk is split into tokens, and recursive descent makes
them a tree of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from onym.errors import GrammarError
from onym.registry import abnf

#: digits of a repeat number
MAX_NUMBER: Final = 9
_RULE_LINE: Final = re.compile(r"[ \t]*(<)?(?P<name>[A-Za-z][A-Za-z0-9-]*)(?(1)>)[ \t]*(?:=/|=)(?!=)")
#: a line with only a name, and a next line that begins with "=" (RFC 5234 4: c-wsp within defined-as)
_NAME_LINE: Final = re.compile(r"[ \t]*(?P<name>[A-Za-z][A-Za-z0-9-]*)[ \t]*(?:;.*)?\Z")
_DEFINES: Final = re.compile(r"[ \t]+(?:=/|=)(?!=)")
#: page headers and footers of RFCs and Internet-Drafts, but not comments or alternatives like them
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
#: common mistakes at the beginning of a token -> the correction
_SLIPS: Final = (
    ("|", 'alternatives are separated by "/", not "|"'),
    ("::=", 'a rule is defined by "=", not "::="'),
    ("'", 'strings have double quotes, and "\'" itself is %x27'),
    ("{", "repetition is written *( ... ), not { ... }"),
    ("_", 'rule names have letters, digits and "-"; write "-" for "_"'),
    ("\u201c", "the quotes are typographic; write straight quotes"),
    ("\u201d", "the quotes are typographic; write straight quotes"),
    ('"', "the string is not closed on its line"),
    ("<", "the prose is not closed on its line"),
    ("%", "a number is %x, %d or %b and digits; a case-sensitive string is %s and quotes"),
    (":", 'a rule is defined by "="'),
    ("+", "one or more is 1*, zero or one is [ ... ]"),
    ("?", "one or more is 1*, zero or one is [ ... ]"),
    (",", "write elements next to each other, without a comma"),
    (".", "write the rule without a full stop at its end"),
)


#: patterns of lines that look like rules -> the correction
_BROKEN_RULES: Final = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (r"\s*<?[\w-]+>?\s*::=", 'a rule is defined by "=", not "::="'),
        (r"\s*<?[\w-]+>?\s*:=?\s", 'a rule is defined by "="'),
        (r"\s*<?[\w-]+>?\s*(?:->|\u2192|==)", 'a rule is defined by "="'),
        (r"\s*<?[0-9-][\w-]*>?\s*=", "a rule's name begins with a letter"),
        (r"\s*<?[\w-]*_[\w-]*>?\s*=", 'rule names have letters, digits and "-"; write "-" for "_"'),
        (r"\s*(?:<[\w-]+|[\w-]+>)\s*=", "write angle brackets on both sides of a rule's name, or on none"),
        (r"\s*<?[\w-]+>?\s*=", 'rule names have only ASCII letters, digits and "-"'),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of a rule and its position in the text, counted from 1."""

    kind: str
    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The lines of one rule, or lines outside rules (`name` is None)."""

    name: str | None
    text: str
    line: int


def _make_syntax_error(
    message: str, at: Token, rule: str | None, *, hint: str | None = None, offset: int = 0
) -> GrammarError:
    """Return the error `offset` characters after the beginning of a token."""
    return GrammarError(
        message, field=rule, clause="RFC 5234 4", line=at.line, column=at.column + offset, hint=hint
    )


def _clean_line(line: str) -> str:
    """Return a line without page furniture, form feeds and the paragraph marks of HTML pages."""
    line = line.replace("\f", "").replace("\u00b6", " ").replace("\u00a0", " ")
    return "" if _FURNITURE.match(line) and not _RULE_LINE.match(line) else line


def _can_continue(line: str, indent: int) -> bool:
    """Return whether a line after an empty line can belong to the rule whose name is at `indent`."""
    text = line.lstrip(" \t")
    return len(line) - len(text) > indent or text[:1] in tuple('/;("[<%*0123456789')


def split_chunks(text: str, *, line: int = 1) -> Iterator[Chunk]:
    """Yield the text of each rule; a line that begins with `name =` begins a rule, at any indentation.

    Elsewhere ABNF has "=" only in strings, so lost indentation does no harm.
    """
    name: str | None = None
    indent, first, blank = 0, line, False
    rows: list[str] = []
    lines = text.split("\n")
    for number, raw in enumerate(lines, line):
        row = _clean_line(raw)
        match = _RULE_LINE.match(row)
        if match is None and any(map(_DEFINES.match, lines[number - line + 1 : number - line + 2])):
            match = _NAME_LINE.match(row)
        ends = blank and name is not None and bool(row.strip()) and not _can_continue(row, indent)
        if match or ends:
            if "".join(rows).strip():
                yield Chunk(name=name, text="\n".join(rows), line=first)
            rows, first = [], number
            name = match["name"] if match else None
            indent = len(row) - len(row.lstrip(" \t"))
        rows.append(row)
        blank = not row.strip() and (blank or row == raw)
    if "".join(rows).strip():
        yield Chunk(name=name, text="\n".join(rows), line=first)


_COLON_RULE: Final = re.compile(r"^([ \t]*[A-Za-z][A-Za-z0-9-]*[ \t]*):=(?=[ \t])", re.MULTILINE)


def replace_colons(text: str) -> tuple[str, int] | None:
    """Return a text whose rules all have ":=" (RFC 822) with "=", and its first such row; None for others."""
    first = _COLON_RULE.search(text)
    if first is None or any(map(_RULE_LINE.match, text.split("\n"))):
        return None
    return _COLON_RULE.sub(r"\1=", text), text.count("\n", 0, first.start())


def tokenize_chunk(chunk: Chunk) -> list[Token]:
    """Return the tokens of a chunk without white space and comments.

    Raises GrammarError at the first character that begins no token.
    """
    tokens: list[Token] = []
    text, offset, line, begin = chunk.text, 0, chunk.line, 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            hint = next((hint for mistake, hint in _SLIPS if text.startswith(mistake, offset)), None)
            character = text[offset] if text[offset].isprintable() else f"U+{ord(text[offset]):04X}"
            at = Token(kind="", text="", line=line, column=offset - begin + 1)
            raise _make_syntax_error(f"{character} has no meaning here", at, chunk.name, hint=hint)
        kind, piece = match.lastgroup or "", match[0]
        if kind == "space":
            breaks = piece.count("\n")
            if breaks:
                line += breaks
                begin = offset + piece.rindex("\n") + 1
        elif kind != "comment":
            tokens.append(Token(kind=kind, text=piece, line=line, column=offset - begin + 1))
        offset = match.end()
    return tokens


#: a string, a comment or a prose value, and what other notations write outside of these
_QUOTED: Final = r'"[^"\n]*"|;[^\n]*|<[^>\n]*>'
_BAR: Final = re.compile(rf"{_QUOTED}|(?P<slip>\|)")
_UNDERSCORE: Final = re.compile(rf"{_QUOTED}|(?<=[A-Za-z0-9])(?P<slip>_)(?=[A-Za-z0-9])")
_SLASHES: Final = re.compile(rf"{_QUOTED}|(?P<slip>//[^\n]*)")
_OPEN_PROSE: Final = re.compile(r"<[^<>\n\"]{0,400}(?:\n[^<>\n]{0,400}){1,8}>")


def repair_chunk(chunk: Chunk) -> Chunk | None:
    """Return the chunk as its author may have meant it; None if there is nothing to repair.

    RFC 2616 and RFC 2396 write "|" for "/". Some texts write prose over several lines, or "// as in RFC 1".
    """
    text = _OPEN_PROSE.sub(lambda match: " ".join(match[0].split()) + "\n" * match[0].count("\n"), chunk.text)
    text = _BAR.sub(lambda match: "/" if match["slip"] else match[0], text)
    text = _UNDERSCORE.sub(lambda match: "-" if match["slip"] else match[0], text)
    text = _SLASHES.sub(
        lambda match: f"<{match['slip'][2:].strip(' <>')}>" if match["slip"] else match[0], text
    )
    return None if text == chunk.text else replace(chunk, text=text)


def find_slip_hint(line: str) -> str | None:
    """Return the correction of a line that looks like a rule; None if there is none."""
    return next((hint for pattern, hint in _BROKEN_RULES if pattern.match(line)), None)


#: nested groups and options
MAX_DEPTH: Final = 64
#: the largest terminal: the last code point of Unicode
MAX_VALUE: Final = 0x10FFFF
_BASES: Final = {"b": (2, "01"), "d": (10, "0123456789"), "x": (16, "0123456789abcdef")}
_CLOSE: Final = {"(": ")", "[": "]"}


def parse_rule(chunk: Chunk) -> tuple[abnf.Node, bool, tuple[abnf.Remark, ...]]:
    """Return the rule's elements, whether it is incremental (`=/`), and remarks. Raises GrammarError."""
    return _RuleParser(chunk).parse()


class _RuleParser:
    """Parses the tokens of one rule by recursive descent."""

    def __init__(self, chunk: Chunk) -> None:
        self.name = chunk.name or ""
        self.tokens = tokenize_chunk(chunk)
        self.at = 0
        self.depth = 0
        self.remarks: list[abnf.Remark] = []

    def parse(self) -> tuple[abnf.Node, bool, tuple[abnf.Remark, ...]]:
        defined = self.tokens[min(1, len(self.tokens) - 1)]
        if defined.text not in ("=", "=/"):
            self.fail("the rule is not defined", defined, hint='a rule is defined by "="')
        self.at = 2
        if self.peek() is None:
            self.fail("the rule has no elements", defined, hint='the empty string is written ""')
        node = self.parse_alternation()
        left = self.peek()
        if left is not None:
            message, hint = _LEFTOVER.get(left.text, ("the rule should end here", None))
            first = next(token for token in self.tokens if token.line == left.line)
            if left.text[0] == "=" and first.kind == "repeat":
                message, hint = "this is not a rule name", "a rule's name begins with a letter"
            self.fail(message, left, hint=hint)
        return node, defined.text == "=/", tuple(self.remarks)

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def fail(self, message: str, token: Token, *, hint: str | None = None) -> NoReturn:
        raise _make_syntax_error(message, token, self.name, hint=hint)

    def parse_alternation(self) -> abnf.Node:
        first = self.parse_concatenation()
        items = [first]
        while (token := self.peek()) is not None and token.text == "/":
            self.at += 1
            items.append(self.parse_concatenation())
        if len(items) == 1:
            return first
        return abnf.Alternation(items=tuple(items), line=first.line, column=first.column)

    def parse_concatenation(self) -> abnf.Node:
        items: list[abnf.Node] = []
        while (token := self.peek()) is not None and token.text not in ("/", ")", "]", "=", "=/"):
            items.append(self.parse_repetition(token))
        if not items:
            hint = "an alternative that may be empty is written [ ... ]"
            self.fail("an element is missing", token or self.tokens[-1], hint=hint)
        if len(items) == 1:
            return items[0]
        return abnf.Concatenation(items=tuple(items), line=items[0].line, column=items[0].column)

    def parse_repetition(self, token: Token) -> abnf.Node:
        if token.kind != "repeat":
            return self.parse_element(token)
        text, last = token.text, token
        self.at += 1
        following = self.peek()
        if following is not None and following.kind == "repeat" and text.isdigit():
            if following.text[0] not in "*#":
                self.fail("an element has two repeat numbers", following)
            text += following.text
            self.at += 1
            last, following = following, self.peek()
            message = "there is a space within the repeat"
            self.add_remark(abnf.RemarkCode.SPACED_REPEAT, message, token, "write 1*item")
        if following is None or (following.kind in ("mark", "repeat") and following.text not in _CLOSE):
            self.fail("no element follows the repeat", following or last)
        if (following.line, following.column) != (last.line, last.column + len(last.text)):
            message = "there is a space after the repeat"
            self.add_remark(abnf.RemarkCode.SPACED_REPEAT, message, token, "write 1*item")
        item = self.parse_element(following)
        least, most = self.parse_bounds(text, token)
        kind: Callable[..., abnf.Node] = abnf.Repetition
        if "#" in text:
            kind = abnf.ListOf
            self.add_remark(
                abnf.RemarkCode.LIST_OPERATOR,
                "the list operator # comes from RFC 9110 5.6.1; it is not ABNF",
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
            self.fail("the repeat ends below its beginning", token, hint="write the smaller number first")
        return least, most

    def add_remark(self, code: abnf.RemarkCode, message: str, token: Token, fix: str) -> None:
        self.remarks.append(
            abnf.Remark(
                code=code, message=message, rule=self.name, line=token.line, column=token.column, fix=fix
            )
        )

    def parse_element(self, token: Token) -> abnf.Node:
        self.at += 1
        place = {"line": token.line, "column": token.column}
        if token.kind == "name":
            return abnf.Reference(name=token.text, **place)
        if token.kind == "string":
            return self.parse_string(token)
        if token.kind == "number":
            return self.parse_number(token)
        if token.kind == "prose":
            return abnf.Prose(text=token.text[1:-1], **place)
        return self.parse_group(token)

    def parse_string(self, token: Token) -> abnf.Literal:
        sensitive = token.text[:2].lower() == "%s"
        text = token.text[token.text.index('"') + 1 : -1]
        for offset, char in enumerate(text, token.text.index('"') + 1):
            if not " " <= char <= "~":
                hint = f"write the terminal as a number: %x{ord(char):X}"
                message = "a string has only printable ASCII characters"
                raise _make_syntax_error(message, token, self.name, hint=hint, offset=offset)
        return abnf.Literal(text=text, sensitive=sensitive, line=token.line, column=token.column)

    def parse_number(self, token: Token) -> abnf.Node:
        base, digits = _BASES[token.text[1].lower()]
        body = token.text[2:].lower()
        values = [self.parse_value(part, base, digits, token) for part in body.replace("-", ".").split(".")]
        if "-" not in body:
            return abnf.Series(values=tuple(values), line=token.line, column=token.column)
        first, last = values
        if last < first:
            self.fail("the range ends below its beginning", token, hint="write the smaller value first")
        return abnf.Range(first=first, last=last, line=token.line, column=token.column)

    def parse_value(self, part: str, base: int, digits: str, token: Token) -> int:
        if any(char not in digits for char in part):
            self.fail(f"{token.text[:20]} has a digit that its base does not have", token)
        value = int(part, base) if len(part) <= 24 else MAX_VALUE + 1
        if value > MAX_VALUE:
            self.fail("the terminal is beyond Unicode", token, hint=f"the largest is %x{MAX_VALUE:X}")
        return value

    def parse_group(self, token: Token) -> abnf.Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise GrammarError(
                f"groups nest deeper than {MAX_DEPTH} levels",
                code="abnf.too-deep",
                field=self.name,
                line=token.line,
                column=token.column,
                hint="define rules for the inner groups",
            )
        inner = self.parse_alternation()
        closing = self.peek()
        if closing is None or closing.text != _CLOSE[token.text]:
            self.fail(f"{token.text} is not closed", token, hint=f"write {_CLOSE[token.text]} at its end")
        self.at += 1
        self.depth -= 1
        if token.text == "[":
            return abnf.Repetition(item=inner, least=0, most=1, line=token.line, column=token.column)
        return inner


#: tokens that are left over after a rule -> message and hint
_LEFTOVER: Final = {
    ")": ("this ) closes nothing", "remove it, or open the group"),
    "]": ("this ] closes nothing", "remove it, or open the option"),
    "=": ("a second = in one rule", "begin the next rule on a new line"),
    "=/": ("a second =/ in one rule", "begin the next rule on a new line"),
}
