"""Lines of a text become rules' texts, and these become tokens with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onym.errors import GrammarError

__all__ = ["MAX_NUMBER", "Chunk", "Token", "chunks", "slip", "syntax_error", "tokens"]

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


def _clean(line: str) -> str:
    """A line without page furniture, form feeds and the paragraph marks of HTML renderings."""
    line = line.replace("\f", "").replace("\u00b6", " ").replace("\u00a0", " ")
    return "" if _FURNITURE.match(line) and not _RULE_LINE.match(line) else line


def _goes_on(line: str, indent: int) -> bool:
    """After an empty line: can this line still be of the rule whose name stood at `indent`?"""
    text = line.lstrip(" \t")
    return len(line) - len(text) > indent or text[:1] in tuple('/;("[<%*0123456789')


def _split(row: str, after: list[str]) -> re.Match[str] | None:
    """The name, where the "=" of a rule stands on the line below it."""
    return _NAME_LINE.match(row) if after and _DEFINES.match(after[0]) else None


def chunks(text: str, *, line: int = 1) -> Iterator[Chunk]:
    """Each rule's text; a line that begins `name =` begins a rule, whatever its indentation.

    ABNF has "=" nowhere but there and in strings, so that lost indentation does no harm.
    """
    name: str | None = None
    indent, first, blank = 0, line, False
    rows: list[str] = []
    lines = text.split("\n")
    for number, raw in enumerate(lines, line):
        row = _clean(raw)
        found = _RULE_LINE.match(row) or _split(row, lines[number - line + 1 : number - line + 2])
        stranger = blank and name is not None and bool(row.strip()) and not _goes_on(row, indent)
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


def tokens(chunk: Chunk) -> list[Token]:
    """The tokens of a chunk, white space and comments left out (spaces are told by the columns).

    Raises GrammarError at the first character that begins no token.
    """
    out: list[Token] = []
    text, at, line, begin = chunk.text, 0, chunk.line, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _stray(text, at, chunk.name, line, at - begin + 1)
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


def slip(line: str) -> str | None:
    """What to write instead, for a line that was meant to be a rule and is none; None: nobody can tell."""
    return next((hint for found, hint in _NO_RULES if found.match(line)), None)


def _stray(text: str, at: int, rule: str | None, line: int, column: int) -> GrammarError:
    hint = next((hint for slip, hint in _SLIPS if text.startswith(slip, at)), None)
    shown = text[at] if text[at].isprintable() else f"U+{ord(text[at]):04X}"
    return syntax_error(f"{shown} has no meaning here", None, hint=hint, rule=rule, line=line, column=column)
