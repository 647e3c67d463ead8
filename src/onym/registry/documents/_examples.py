"""The URIs that a document shows of the schemes it registers, as RFC 3986 Appendix C delimits them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from onym.registry.documents._lines import Line, capped
from onym.registry.documents.types import Example

__all__ = ["MAX_EXAMPLES", "examples_of"]

#: different example URIs of one document; characters of one; lines that one is wrapped over
MAX_EXAMPLES: Final = 5_000
MAX_URI: Final = 8_192
MAX_WRAPS: Final = 8

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,62}\Z")
_STOP: Final = r"\s<>\"`{}|\\^“”„«»"
_STOPS: Final = re.compile(rf"[{_STOP}]")
#: what opens a part to fill in; "</" is the end of an HTML element
_PLACEHOLDER: Final = re.compile(r"[{^]|<(?!/)")
#: `%s` as a whole part, `$name` at the beginning: forms of programs, to fill in
_FORM: Final = re.compile(r"(?:^|[/?#&=;:@,])%[sd](?=[/?#&=;:@,]|\Z)|^(?://)?\$[A-Za-z_]")
_CLOSING: Final = {'"': '"', "<": ">", "'": "'", "“": "”", "`": "`"}
_TRAILING: Final = ".,;:!?'\u2019*_"
_BRACKETS: Final = {")": "(", "]": "[", "}": "{"}
_LITERAL: Final = re.compile(r"\[(?:[0-9A-Fa-f:.]{2,45}|v[0-9A-Fa-f]{1,4}\.[^\]]{1,60})\]")
#: the first character of a line that can only go on with a URI
_ONWARD: Final = ("?", "#", "&", "/", "=")


def examples_of(lines: list[Line], names: Iterable[str], *, without: Collection[int]) -> tuple[Example, ...]:
    """Every different URI of the schemes `names`, where it is shown first.

    Forms with placeholders ("[user@]", "{id}", "...") are no examples, nor is a scheme with nothing after it.
    `without` are lines of grammars and of reference lists.
    """
    schemes = sorted({each.casefold() for each in names if _NAME.match(each)})
    if not schemes:
        return ()
    start = re.compile(
        rf"(?<![A-Za-z0-9+.%-])(?:{'|'.join(re.escape(each) for each in schemes)}):", re.IGNORECASE
    )
    out: dict[str, Example] = {}
    section: str | None = None
    for at, line in enumerate(lines):
        if line.heading is not None:
            section = line.heading.name
        elif not (line.toc or line.code == "abnf" or line.number in without):
            for uri in _of_line(lines, at, start):
                out.setdefault(uri, Example(uri=uri, line=line.number, section=section))
            capped(out, MAX_EXAMPLES, "example URIs")
    return tuple(out.values())


def _of_line(lines: list[Line], at: int, start: re.Pattern[str]) -> Iterator[str]:
    text = lines[at].text
    passed = 0
    while (found := start.search(text, passed)) is not None:
        stop = _STOPS.search(text, found.end())
        passed = len(text) if stop is None else stop.start()
        before = text[found.start() - 1 : found.start()]
        raw = text[found.start() : passed]
        if before == "'" and "'" in raw:
            raw = raw[: raw.index("'")]
        elif _PLACEHOLDER.match(text, passed):
            continue
        else:
            raw += _wrapped(lines, at, passed, _CLOSING.get(before, ""))
        uri = _trimmed(raw)
        if "..." not in raw and _shown(uri, found.end() - found.start()):
            yield uri


def _wrapped(lines: list[Line], at: int, end: int, closing: str) -> str:
    """The rest of a URI that goes on over the ends of lines."""
    text = lines[at].text
    if text[end:] not in ("", "\\"):
        return ""
    folded = text.endswith("\\")
    rest: list[str] = []
    for line in lines[at + 1 : at + 1 + MAX_WRAPS]:
        part = line.text.strip(" ")
        if not part or line.heading is not None:
            break
        if closing and closing in part[:MAX_URI]:
            head = part[: part.index(closing)]
            return "".join((*rest, head)) if not any(each.isspace() for each in head) else "".join(rest)
        alone = _STOPS.search(part.removesuffix("\\")) is None
        if not alone or not (folded or closing or part.startswith(_ONWARD)):
            break
        rest.append(part.removesuffix("\\"))
        folded = part.endswith("\\")
    # an opening mark without its end joins nothing
    return "" if closing and not (rest and rest[0].startswith(_ONWARD)) else "".join(rest)


def _trimmed(raw: str) -> str:
    """Without the punctuation of the sentence around it."""
    uri = raw[:MAX_URI]
    #: closing brackets without their opening ones
    loose = {last: uri.count(last) - uri.count(opening) for last, opening in _BRACKETS.items()}
    end = len(uri)
    while end and (uri[end - 1] in _TRAILING or loose.get(uri[end - 1], 0) > 0):
        end -= 1
        if uri[end] in loose:
            loose[uri[end]] -= 1
    return uri[:end]


def _shown(uri: str, prefix: int) -> bool:
    """Is it a URI to look at, and not the bare scheme or a form to fill in?"""
    rest = uri[prefix:]
    if not rest.strip("/") or "\u2026" in rest or _FORM.search(rest):
        return False
    return not {"[", "]"} & set(_LITERAL.sub("", rest))
