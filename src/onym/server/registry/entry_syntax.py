"""The syntax of an entry for its page: ABNF, railroad diagram and an example, read from its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from onym.errors import OnymError
from onym.registry.records import Entry, Request, RequestState
from onym.server.registry import urls
from onym.server.registry.page_parts import Link

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.abnf import Grammar
    from onym.registry.documents.types import Document

#: the registry whose entries have a syntax
_SCHEMES: Final = "uri-schemes"
#: characters of a text that is read for its grammar; drafts that define a scheme are shorter
MAX_TEXT: Final = 300_000
#: characters of ABNF and of a diagram that one page shows
MAX_ABNF: Final = 30_000
MAX_DIAGRAM: Final = 300_000
#: examples of a text that are tried, steps of matching them, and the length of one
_TRIED: Final = 20
_STEPS: Final = 2_000_000
_LONGEST: Final = 300
#: views that are kept, and texts that are read at once
_MOST_KEPT: Final = 200
_AT_ONCE: Final = 2
_REGISTERED: Final = frozenset({RequestState.APPROVED, RequestState.TIMED_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxView:
    """The syntax of a scheme. `abnf` and `diagram` are empty if the text has only an example."""

    #: the rule that defines the scheme
    start: str
    abnf: str
    diagram: Markup
    example: str
    #: the example is made from the grammar, not taken from the text
    generated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedSyntax:
    """A syntax and the request that it is from."""

    view: SyntaxView
    source: Link


async def load_entry_syntax(
    request: HTTPRequest, entry: Entry, about: Iterable[Request]
) -> SourcedSyntax | None:
    """Return the syntax in the newest registered request about the entry that has one, else of a pending one.

    The views are kept by request and version, and read off the event loop.
    """
    if entry.registry != _SCHEMES:
        return None
    candidates = [asked for asked in about if asked.state in _REGISTERED or asked.id in entry.pending]
    for asked in sorted(candidates, key=lambda asked: asked.state not in _REGISTERED):
        view = await _load_view(request, asked)
        if view is not None:
            link = Link(href=urls.request_url(asked.id), text=asked.id)
            return SourcedSyntax(view=view, source=link)
    return None


async def _load_view(request: HTTPRequest, asked: Request) -> SyntaxView | None:
    state = request.app.state
    kept: dict[tuple[str, int], SyntaxView | None] = getattr(state, "registry_syntax", None) or {}
    turns = getattr(state, "registry_syntax_turns", None) or asyncio.Semaphore(_AT_ONCE)
    state.registry_syntax, state.registry_syntax_turns = kept, turns
    key = (asked.id, asked.version)
    if key in kept:
        return kept[key]
    async with turns:
        if key not in kept:
            texts = (asked.fields.get("syntax", ""), asked.template)
            found = await asyncio.to_thread(build_syntax_view, texts, asked.name)
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[key] = found
    return kept.get(key)


def build_syntax_view(texts: Iterable[str], name: str) -> SyntaxView | None:
    """Return the syntax in the first of these texts that has one; the example may be from a later text."""
    from onym.registry.checks import load_document  # late: the checker, for few pages

    documents: list[Document] = []
    for text in texts:
        if text.strip() and len(text) <= MAX_TEXT:
            try:
                documents.append(load_document(text))
            except OnymError:
                continue
    uris = [example.uri for document in documents for example in document.examples]
    uris = [uri for uri in uris if uri.lower().startswith(f"{name}:") and len(uri) <= _LONGEST][:_TRIED]
    for document in documents:
        view = _draw_grammar(document, uris)
        if view is not None:
            return view
    if not uris:
        return None
    return SyntaxView(start="", abnf="", diagram=Markup(), example=uris[0], generated=False)


def _draw_grammar(document: Document, uris: list[str]) -> SyntaxView | None:
    from onym.registry.checks import load_grammar  # late, as above

    try:
        grammar, start = load_grammar(document)
    except OnymError:
        return None
    example = _find_example(grammar, start, uris)
    return SyntaxView(
        start=start,
        abnf=_format_rules(grammar, start),
        diagram=_draw_diagram(grammar, start),
        example=example or _make_example(grammar, start),
        generated=not example,
    )


def _format_rules(grammar: Grammar, start: str) -> str:
    """Return the rule `start` and the rules of the text that it uses, as they are written there."""
    from onym.registry.abnf import find_reached_rules  # late, as above

    reached, first = find_reached_rules(grammar, start), grammar.rule(start)
    rules = [first, *(rule for rule in grammar.own if rule.key in reached and rule != first)]
    text = "\n".join(rule.text.rstrip() for rule in rules)
    return text if len(text) <= MAX_ABNF else ""


def _draw_diagram(grammar: Grammar, start: str) -> Markup:
    from onym.registry.abnf import render_railroad  # late, as above

    try:
        image = render_railroad(grammar, start)
    except OnymError:
        return Markup()
    # the renderer escapes every text
    return Markup(image) if len(image) <= MAX_DIAGRAM else Markup()  # noqa: S704


def _find_example(grammar: Grammar, start: str, uris: list[str]) -> str:
    """Return the first URI that the grammar allows, preferably without user information; "" for none."""
    from onym.registry.abnf import build_matcher  # late, as above

    try:
        matcher = build_matcher(grammar, start, steps=_STEPS)
        return next((uri for uri in sorted(uris, key=lambda uri: "@" in uri) if matcher(uri)), "")
    except OnymError:
        return ""


def _make_example(grammar: Grammar, start: str) -> str:
    from onym.registry.abnf import generate_examples  # late, as above

    try:
        found = generate_examples(grammar, start, 1)
    except OnymError:
        return ""
    return found[0] if found and found[0].isprintable() and len(found[0]) <= _LONGEST else ""
