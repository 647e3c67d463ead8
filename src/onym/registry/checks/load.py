"""A text of any kind as a document: what `read_document` reads, and ABNF that stands alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from onym.errors import GrammarError
from onym.registry.checks._context import clean_name, lowered
from onym.registry.checks._grammar import Syntax
from onym.registry.checks._terminals import unused_rules
from onym.registry.documents.types import Block, Document, DocumentKind

if TYPE_CHECKING:
    from onym.registry.abnf.types import Grammar

__all__ = ["grammar_alone", "load", "load_grammar", "start_rule"]

_COMMENT: Final = re.compile(r"(?:[ \t]*(?:;[^\n]*)?\r?\n)*")
_RULE: Final = re.compile(r"[ \t]*[A-Za-z][A-Za-z0-9-]*[ \t]*(?:\r?\n[ \t]+)?=/?[ \t]*(?:\r?\n[ \t]+)?[^\s=]")
_NOT_ABNF: Final = re.compile(
    r"^(?:[ \t]*(?:Abstract|Introduction|IANA Considerations)\b|#|[A-Z][\w /-]{2,60}:[ \t])",
    re.IGNORECASE | re.MULTILINE,
)


def load(text: str, *, source: str = "-") -> Document:
    """The document that `text` is. Bare ABNF gives one with a block and nothing else.

    Raises RegistryError as `read_document` does: not text that it can read, or beyond its caps.
    """
    from onym.registry.documents import read_document  # late: `onym --help` needs no reader

    if _is_grammar(text):
        return Document(kind=DocumentKind.TEMPLATE, text=text, blocks=(Block(text=text, line=1),))
    return read_document(text, source=source, need_template=False)


def grammar_alone(document: Document) -> bool:
    """Is it a grammar and nothing else? Prose with ABNF in it is not."""
    some = document.sections or document.templates or document.name
    return bool(document.blocks) and not some and _is_grammar(document.text)


def _is_grammar(text: str) -> bool:
    comments = _COMMENT.match(text)
    begins = _RULE.match(text, comments.end() if comments else 0)
    return begins is not None and _NOT_ABNF.search(text) is None


def load_grammar(document: Document, start: str | None = None) -> tuple[Grammar, str]:
    """The document's grammar with its imports resolved, and the rule to begin with.

    Raises GrammarError: no ABNF, ABNF that cannot be read, no rule `start`, or none that is the scheme's.
    """
    from onym.registry.abnf import read_document, resolve

    if not document.blocks:
        raise GrammarError(
            "the text holds no ABNF",
            code="abnf.none",
            hint="give the grammar as ABNF (RFC 5234), each rule as `name = elements`",
        )
    name = lowered(clean_name(document.templates[0].text("name"))) if document.templates else ""
    grammar = resolve(read_document(document.blocks))
    return grammar, start_rule(grammar, start, name)


def start_rule(grammar: Grammar, start: str | None, name: str = "") -> str:
    """The rule called `start`, else the scheme's, else the only one that no other rule uses.

    Raises UnknownEntryError where there is no rule `start`, GrammarError where nothing says which is meant.
    """
    if start is not None:
        return grammar.rule(start).name
    syntax = Syntax(name, written=grammar)
    if syntax.start is not None:
        return grammar.rule(syntax.start).name
    tops = unused_rules(grammar)
    if len(tops) == 1:
        return tops[0]
    if grammar.problems and not tops:
        raise grammar.problems[0]
    raise GrammarError(
        "which rule to begin with is not clear",
        code="abnf.no-start",
        hint=f"name it with start (--start): {', '.join(tops[:8]) or 'the rules use each other in a circle'}",
    )
