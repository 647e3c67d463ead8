"""Where the credential stands in URIs found in text, well-formed or not.

Not a parser: it reads what somebody pasted, cut short or escaped, and prefers to hide too much. In
`llm:` text everything from the first `:` of the authority to its last `@` is the key (draft 4.2.1),
also where a raw `/`, `?`, `#` or blank has broken it, or where the `@` is encoded or missing.
Other schemes are read by the same rules, but never without an `@`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from onym.uri._redact_view import Span

__all__ = ["credentials"]


class _Patterns(NamedTuple):
    start: re.Pattern[str]
    stop: re.Pattern[str]
    delimiter: re.Pattern[str]
    query: re.Pattern[str]
    weak: re.Pattern[str]
    port: re.Pattern[str]
    host: re.Pattern[str]
    domain: re.Pattern[str]
    at: re.Pattern[str]
    colon: re.Pattern[str]
    wrapped: re.Pattern[str]
    random: re.Pattern[str]
    placeholder: re.Pattern[str]
    spaced: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    return _Patterns(
        start=re.compile(r":(?:[/\\]{2,8}|(?<=llm:)[/\\]?)"),
        stop=re.compile(r"[\s\x00-\x20\x7f\"<>`]"),
        delimiter=re.compile(r"[/?#\\]"),
        query=re.compile(r"[?#]"),
        weak=re.compile(r"['),;\]}|]"),
        port=re.compile(r"[0-9]{0,5}['.,;:!?)\]}|]*"),
        host=re.compile(r"[^@/?#\\]*\.|localhost|\[|[^@:/?#\\]+:[0-9]", re.IGNORECASE),
        domain=re.compile(r"(?:[\w-]+\.)+[A-Za-z]{2,}(?![\w.-])"),
        at=re.compile(r"%(?:25){0,3}40|\\{1,8}(?:u0040|x40)|&(?:#0{0,4}64|#[xX]0{0,4}40|commat);"),
        colon=re.compile(
            r"%(?:25){0,3}3[aA]|\\{1,8}(?:u003[aA]|x3[aA])|&(?:#0{0,4}58|#[xX]0{0,4}3[aA]|colon);"
        ),
        wrapped=re.compile(
            r"(?:[ \t]{1,4}|[ \t]{0,4}\r?\n[ \t]{0,16}|[\"<`](?=[A-Za-z0-9]))[^\s\"<>`@:]{0,256}@"
            r"(?=[\w-]+[.:]|localhost|\[)"
        ),
        random=re.compile(r"(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{32,}"),
        placeholder=re.compile(r"(?:\$?\{?port\}?|\$\{?[A-Z_]+\}?|\{[a-z_]*\})", re.IGNORECASE),
        spaced=re.compile(
            r"[ \t]{1,4}(?!mailto:)[^\s\"'<>`@:/?#\\]{0,64}:([^\s\"<>`@]{1,256})@(?=[\w-]+[.:]|localhost|\[)"
        ),
    )


def credentials(text: str, low: str, written: Callable[[int, int], bool]) -> Iterator[Span]:
    """Spans of keys and passwords in the userinfo of every URI.

    `low` is `text` in lower case. `written` says whether the delimiters at a span belong to this
    layer: a URI of the layer below has been read there already, with its escapes as data.
    """
    stop = _patterns().stop
    done = 0
    for colon, begin, limit, llm in _starts(low):
        if begin < done or begin == limit or not written(colon - 3 if llm else colon, begin):
            continue
        last = stop.search(text, begin, limit)
        end = last.start() if last else limit
        bare = begin == colon + 1
        span = _userinfo(text, begin, end, llm and not bare)
        if span is not None and span[0] < span[1]:
            done = span[1]
            yield span


def _starts(low: str) -> list[tuple[int, int, int, bool]]:
    """(colon, begin of the authority, limit, is llm): a run ends where the next URI begins.

    `llm:` without a slash ends no run but its own kind's: it may be a label and a key.
    """
    found = []
    limit = bare_limit = len(low)
    for match in reversed(list(_patterns().start.finditer(low))):
        colon, begin = match.span()
        llm = low.startswith("llm", colon - 3) if colon >= 3 else False
        if not llm and not ("/" in low[colon:begin] and low[colon - 1 : colon].isalnum()):
            continue
        if begin > colon + 1:
            found.append((colon, begin, limit, llm))
            limit = bare_limit = colon - 3 if llm else colon
        else:
            found.append((colon, begin, bare_limit, llm))
            bare_limit = colon - 3
    found.reverse()
    return found


def _userinfo(text: str, begin: int, end: int, llm: bool) -> Span | None:
    """The span to hide in one run; `llm` allows for an encoded or missing `@`."""
    stop = _delimiter(text, begin, end)
    at = text.rfind("@", begin, stop)
    if at >= 0:
        return _before(text, begin, _farther(text, at, stop, end, llm))
    if text.startswith("[", begin):
        return None
    colon = text.find(":", begin, stop)
    if colon < 0:
        return (_encoded(text, begin, stop, end) or _spaced(text, stop, end)) if llm else None
    if _patterns().port.fullmatch(text, colon + 1, stop):
        label = llm and not _patterns().host.match(text, begin, colon)
        if label and colon + 1 == end:  # a blank before the key
            return _wrapped(text, end, end)
        return _like_port(text, colon + 1, stop, end) if label else None
    return _malformed(text, colon + 1, stop, end) if llm else _foreign(text, colon + 1, stop, end)


def _delimiter(text: str, begin: int, end: int) -> int:
    match = _patterns().delimiter.search(text, begin, end)
    return match.start() if match else end


def _farther(text: str, at: int, stop: int, end: int, llm: bool) -> int:
    """The `@` that really ends the userinfo: a key with both `@` and `/` raw goes on behind the first."""
    if stop == end:
        return at
    if text[stop] in "?#":
        # no path: no llm URI ends its authority so, but a key may hold one of these
        later = text.rfind("@", stop, end) if llm else -1
    elif stop == at + 1 or _patterns().host.match(text, at + 1, stop):
        return at
    else:
        match = _patterns().query.search(text, stop, end)
        later = text.rfind("@", stop, match.start() if match else end)
    return at if later < 0 else later


def _before(text: str, begin: int, at: int) -> Span | None:
    """What is secret in `label:key` up to an `@`; a label alone is, if it looks like nothing but a key."""
    colon = text.find(":", begin, at)
    if colon >= 0:
        return colon + 1, at
    encoded = _patterns().colon.search(text, begin, at)
    if encoded:
        return encoded.end(), at
    return (begin, at) if _patterns().random.fullmatch(text, begin, at) else None


def _encoded(text: str, begin: int, stop: int, end: int) -> Span | None:
    colon = _patterns().colon.search(text, begin, stop)
    if colon is None or _patterns().port.fullmatch(text, colon.end(), stop):
        return None
    return _malformed(text, colon.end(), stop, end)


def _malformed(text: str, key: int, border: int, end: int) -> Span | None:
    """A key that RFC 3986 takes for a bad port: up to a later `@`, an encoded one, or its visible end."""
    at = text.find("@", border, end)
    if at >= 0:
        return key, text.rfind("@", at, _delimiter(text, at, end))
    encoded = _patterns().at.search(text, key, end)
    if encoded:
        *_, last = _patterns().at.finditer(text, encoded.start(), _delimiter(text, encoded.end(), end))
        return key, last.start()
    if _patterns().placeholder.fullmatch(text, key, border):
        return None
    weak = _patterns().weak.search(text, key, end)
    if weak:
        return key, weak.start()
    return _wrapped(text, key, end) or (key, end)


def _spaced(text: str, stop: int, end: int) -> Span | None:
    """`llm://my app:…@host`: a blank in the label cut the run."""
    found = _patterns().spaced.match(text, end) if stop == end else None
    return found.span(1) if found else None


def _wrapped(text: str, key: int, end: int) -> Span | None:
    """The same where one blank, line border or quote within the key has cut the run."""
    wrapped = _patterns().wrapped.match(text, end)
    if wrapped is None:
        return None
    at = wrapped.end() - 1
    stop = _patterns().stop.search(text, at)
    return key, text.rfind("@", at, _delimiter(text, at, stop.start() if stop else len(text)))


def _like_port(text: str, key: int, stop: int, end: int) -> Span | None:
    """A key that begins as a port does, `app:/…@host`, `app:12/…@h.example`; a model may hold an `@` too."""
    span = _foreign(text, key, stop, end)
    if span is None or key == stop or text[stop] != "/":
        return span
    return span if _patterns().domain.match(text, span[1] + 1, end) else None


def _foreign(text: str, key: int, stop: int, end: int) -> Span | None:
    """The same in another scheme, where a host must follow the `@`: paths there often hold one."""
    at = text.find("@", stop, end)
    if at < 0 or _patterns().placeholder.fullmatch(text, key, stop):
        return None
    at = text.rfind("@", at, _delimiter(text, at, end))
    return (key, at) if _patterns().host.match(text, at + 1, end) else None
