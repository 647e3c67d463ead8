"""Every layer of a text searched by every rule: what to hide, and the replacement by position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from onym.uri._redact_keys import keys
from onym.uri._redact_uris import credentials
from onym.uri._redact_values import named_values
from onym.uri._redact_view import LAYERS, Span, View, level, lowered
from onym.uri.secret import MARK, Secret

__all__ = ["cleaned", "known_values", "spans"]

#: known secrets shorter than this are left alone: they would tear ordinary text apart
_LEAST = 4
#: two settle all but texts made to need more
_ROUNDS = 6


def known_values(secrets: Iterable[Secret | str]) -> tuple[str, ...]:
    """The texts of secrets to remove wherever they occur; too short ones are left out."""
    if isinstance(secrets, str | Secret):
        raise TypeError("secrets is a collection of secrets, not one")
    values = {each.reveal() if isinstance(each, Secret) else each for each in secrets}
    return tuple(sorted(value for value in values if len(value) >= _LEAST and value != MARK))


def spans(text: str, known: tuple[str, ...]) -> list[Span]:
    """Every span to hide, in order, none touching another."""
    found = list(_occurrences(text, known))
    views: list[View] = []
    below = level(text)
    found += _layer(below, known, _everywhere)
    joined = View.joined(below)
    if joined is not None:
        found += map(joined.back, _layer(joined.text, known, _everywhere))
        views.append(joined)
        below = joined.text
    for _ in range(LAYERS):
        view = View.unescaped(below)
        if view is None:
            break
        views.append(view)
        below = view.text
        found += (_below(views, span) for span in _layer(below, known, view.escaped))
    return _merged(found)


def _below(views: list[View], span: Span) -> Span:
    for view in reversed(views):
        span = view.back(span)
    return span


def _layer(text: str, known: tuple[str, ...], written: Callable[[int, int], bool]) -> Iterator[Span]:
    low = lowered(text)
    yield from keys(text)
    yield from named_values(text, low)
    yield from credentials(text, low, written)
    yield from _occurrences(text, known)


def _everywhere(start: int, end: int) -> bool:
    return True


def _occurrences(text: str, known: tuple[str, ...]) -> Iterator[Span]:
    for value in known:
        start = text.find(value)
        while start >= 0:
            yield start, start + len(value)
            start = text.find(value, start + 1)


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def cleaned(text: str, known: tuple[str, ...], hidden: list[Span] | None = None) -> str:
    """The text with the mark in place of each span (`hidden`: those found already).

    What stands beside a mark may read differently than beside the secret, so the result is searched
    again until it stays the same: that makes redaction idempotent.
    """
    for _ in range(_ROUNDS):
        after = _replaced(text, spans(text, known) if hidden is None else hidden)
        if after == text:
            break
        text, hidden = after, None
    return text


def _replaced(text: str, hidden: list[Span]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in hidden:
        parts += (text[done:start], MARK)
        done = end
    parts.append(text[done:])
    return "".join(parts)
