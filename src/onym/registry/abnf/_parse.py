"""The elements of one rule, by recursive descent over its tokens (RFC 5234 4, RFC 7405 2.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from onym.errors import GrammarError
from onym.registry.abnf._scan import MAX_NUMBER, Chunk, Token, syntax_error, tokens
from onym.registry.abnf.types import (
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

__all__ = ["MAX_DEPTH", "MAX_VALUE", "parse"]

#: groups and options within each other
MAX_DEPTH: Final = 64
#: the largest terminal: the last code point of Unicode
MAX_VALUE: Final = 0x10FFFF
_BASES: Final = {"b": (2, "01"), "d": (10, "0123456789"), "x": (16, "0123456789abcdef")}
_CLOSE: Final = {"(": ")", "[": "]"}


def parse(chunk: Chunk) -> tuple[Node, bool, tuple[Remark, ...]]:
    """The rule's elements, whether it is incremental (`=/`), and remarks. Raises GrammarError."""
    return _Parser(chunk).rule()


class _Parser:
    """One pass over the tokens of one rule."""

    def __init__(self, chunk: Chunk) -> None:
        self.name = chunk.name or ""
        self.tokens = tokens(chunk)
        self.at = 0
        self.depth = 0
        self.remarks: list[Remark] = []

    def rule(self) -> tuple[Node, bool, tuple[Remark, ...]]:
        defined = self.tokens[min(1, len(self.tokens) - 1)]
        if defined.text not in ("=", "=/"):
            self.fail("the rule is not defined", defined, hint='a rule is defined by "="')
        self.at = 2
        if self.peek() is None:
            self.fail("the rule has no elements", defined, hint='the empty string is written ""')
        node = self.alternation()
        left = self.peek()
        if left is not None:
            message, hint = _LEFTOVER.get(left.text, ("the rule should have ended", None))
            first = next(each for each in self.tokens if each.line == left.line)
            if left.text[0] == "=" and first.kind == "repeat":
                message, hint = "this is no name of a rule", "a rule's name begins with a letter"
            self.fail(message, left, hint=hint)
        return node, defined.text == "=/", tuple(self.remarks)

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def fail(self, message: str, token: Token, *, hint: str | None = None) -> NoReturn:
        raise syntax_error(message, token, hint=hint, rule=self.name)

    def alternation(self) -> Node:
        first = self.concatenation()
        items = [first]
        while (token := self.peek()) is not None and token.text == "/":
            self.at += 1
            items.append(self.concatenation())
        if len(items) == 1:
            return first
        return Alternation(items=tuple(items), line=first.line, column=first.column)

    def concatenation(self) -> Node:
        items: list[Node] = []
        while (token := self.peek()) is not None and token.text not in ("/", ")", "]", "=", "=/"):
            items.append(self.repetition(token))
        if not items:
            last = token or self.tokens[-1]
            self.fail(
                "an element is missing", last, hint="an alternative that may be empty is written [ ... ]"
            )
        if len(items) == 1:
            return items[0]
        return Concatenation(items=tuple(items), line=items[0].line, column=items[0].column)

    def repetition(self, token: Token) -> Node:
        if token.kind != "repeat":
            return self.element(token)
        text, last = token.text, token
        self.at += 1
        following = self.peek()
        if following is not None and following.kind == "repeat" and text.isdigit():
            if following.text[0] not in "*#":
                self.fail("two numbers stand before an element", following)
            text += following.text
            self.at += 1
            last, following = following, self.peek()
            self.remark(RemarkCode.SPACED_REPEAT, "there is a space within the repeat", token, "write 1*item")
        if following is None or (following.kind in ("mark", "repeat") and following.text not in _CLOSE):
            self.fail("a repeat stands before no element", following or last)
        if (following.line, following.column) != (last.line, last.column + len(last.text)):
            self.remark(RemarkCode.SPACED_REPEAT, "there is a space after the repeat", token, "write 1*item")
        item = self.element(following)
        least, most = self.bounds(text, token)
        kind: Callable[..., Node] = Repetition
        if "#" in text:
            kind = ListOf
            self.remark(
                RemarkCode.LIST_OPERATOR,
                "the list operator # is of RFC 9110 5.6.1; it is not ABNF",
                token,
                'write the commas out: item *( OWS "," OWS item )',
            )
        return kind(item=item, least=least, most=most, line=token.line, column=token.column)

    def bounds(self, text: str, token: Token) -> tuple[int, int | None]:
        parts = text.replace("#", "*").split("*")
        if any(len(part) > MAX_NUMBER for part in parts):
            self.fail(f"the repeat has more than {MAX_NUMBER} digits", token)
        least = int(parts[0] or 0)
        most = least if len(parts) == 1 else (int(parts[1]) if parts[1] else None)
        if most is not None and most < least:
            self.fail("the repeat's end is below its begin", token, hint="write the smaller number first")
        return least, most

    def remark(self, code: RemarkCode, message: str, token: Token, fix: str) -> None:
        self.remarks.append(
            Remark(code=code, message=message, rule=self.name, line=token.line, column=token.column, fix=fix)
        )

    def element(self, token: Token) -> Node:
        self.at += 1
        place = {"line": token.line, "column": token.column}
        if token.kind == "name":
            return Reference(name=token.text, **place)
        if token.kind == "string":
            return self.string(token)
        if token.kind == "number":
            return self.number(token)
        if token.kind == "prose":
            return Prose(text=token.text[1:-1], **place)
        return self.group(token)

    def string(self, token: Token) -> Literal:
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

    def number(self, token: Token) -> Node:
        base, digits = _BASES[token.text[1].lower()]
        body = token.text[2:].lower()
        values = [self.value(part, base, digits, token) for part in body.replace("-", ".").split(".")]
        if "-" not in body:
            return Series(values=tuple(values), line=token.line, column=token.column)
        first, last = values
        if last < first:
            self.fail("the range's end is below its begin", token, hint="write the smaller value first")
        return Range(first=first, last=last, line=token.line, column=token.column)

    def value(self, part: str, base: int, digits: str, token: Token) -> int:
        if any(char not in digits for char in part):
            self.fail(f"a digit of {token.text[:20]} is not of its base", token)
        value = int(part, base) if len(part) <= 24 else MAX_VALUE + 1
        if value > MAX_VALUE:
            self.fail("a terminal beyond Unicode", token, hint=f"the largest is %x{MAX_VALUE:X}")
        return value

    def group(self, token: Token) -> Node:
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
        inner = self.alternation()
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
