"""Find the credential in URIs, in references without a scheme, and in the parts that a URI was split into.

The text may be cut short or escaped, and the search hides too much rather than too little. In `llm:` text the
key is everything from the first `:` of the authority to its last `@` (draft 4.2.1), even if broken by a raw
`/` or blank. Other schemes always need an `@`. Without a scheme, `//foo:bar@baz` may be a comment, so a
credential after `//` has four characters and no brackets; without `//` it must look random.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from onym.uri._secret_detection import HEAD, Span, is_secret_value, looks_drawn, split_words

#: names of the parts of a URI that contain its credential, in lower case; these have no host behind it
USERINFO_NAMES = ("userinfo", "user_info")
#: these have a host behind it
AUTHORITY_NAMES = ("netloc", "authority", "proxy")

# before a colon: what follows is an address and not a credential
_ADDRESSES = split_words("mailto acct sip sips xmpp im pres tel cid mid")
# and these, if what follows only looks like a credential
_MORE_ADDRESSES = split_words("tag urn npm pkg from to cc bcc id message-id references")
_PATTERNS = {
    "start": r":(?:[/\\]{2,8}|(?<=llm:)[/\\]?)",
    "stop": r"[\s\x00-\x20\x7f\"<>`]",
    "delimiter": r"[/?#\\]",
    "query": r"[?#]",
    "weak": r"['),;\]}|]",
    "port": r"[0-9]{0,5}['.,;:!?)\]}|]*",
    "host": r"(?i)[^@/?#\\]*\.|localhost|\[|[^@:/?#\\]+:[0-9]",
    "domain": r"(?:[\w-]+\.)+[A-Za-z]{2,}(?![\w.-])",
    "at": r"%(?:25){0,3}40|\\{1,8}(?:u0040|x40)|&(?:#0{0,4}64|#[xX]0{0,4}40|commat);",
    "colon": (r"%(?:25){0,3}3[aA]|\\{1,8}(?:u003[aA]|x3[aA])|&(?:#0{0,4}58|#[xX]0{0,4}3[aA]|colon);"),
    "wrapped": (
        r"(?:[ \t]{1,4}|[ \t]{0,4}\r?\n[ \t]{0,16}|[\"<`](?=[A-Za-z0-9]))[^\s\"<>`@:]{0,256}[\"`]?@"
        r"(?=[\w-]+[.:]|localhost|\[)"
    ),
    "random": r"(?=[0-9]*[A-Za-z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{32,}",
    "placeholder": r"(?i)(?:\$?\{?port\}?|\$\{?[A-Z_]+\}?|\{[a-z_]*\})",
    "spaced": (
        r"[ \t]{1,4}(?!mailto:)[^\s\"'<>`@:/?#\\]{0,64}:([^\s\"<>`@]{1,256})@(?=[\w-]+[.:]|localhost|\[)"
    ),
    # not after a scheme, in a path or in a longer run of slashes
    "reference": r"//(?<![\w/\\]//)(?<!\w://)(?![\s/@])",
    "reference key": r"[^\s\[\](){}|]{4,}",
    "reference host": r"[\w\[%${]",
    # a template: `{password}`, `${PASSWORD}`, `%(password)s`, and `key]` of a grammar: `[label[:key]@]host`
    "template": r"\$?\{{1,2}[^{}]{0,64}\}{1,2}|%(?:\([a-z_]{1,32}\))?s|[a-z-]{3,16}\]",
    "bare authority": (
        r":([^\s\"'<>`@/?#:\\,;()\[\]{}|&]{16,256})@(?!sha[0-9]+:)(?=[A-Za-z0-9][A-Za-z0-9-]{0,62}[.:/\"'\s]|\[)"
    ),
    "split port": (
        r"port(?:(?<=nonnumeric port):|(?<=invalid port):| could not be cast to integer value as) "
        r"[\"']([^\"'\s@]{4,})[\"'@]"
    ),
}


@cache
def _get_pattern(name: str) -> re.Pattern[str]:
    """A compiled pattern. It is compiled when it is first used, to keep the import fast."""
    return re.compile(_PATTERNS[name])


def find_uri_credentials(text: str, low: str, written: Callable[[int, int], bool]) -> Iterator[Span]:
    """Spans of keys and passwords in the userinfo of every URI.

    `low` is `text` in lower case. `written` tells whether the delimiters at a span belong to this layer: a
    URI of the layer below has been searched already, with its escapes as data.
    """
    stop = _get_pattern("stop")
    done = 0
    for colon, begin, limit, llm in _find_uri_starts(low):
        if begin < done or begin == limit or not written(colon - 3 if llm else colon, begin):
            continue
        last = stop.search(text, begin, limit)
        end = last.start() if last else limit
        bare = begin == colon + 1
        span = _find_userinfo_secret(text, begin, end, llm and not bare)
        if span is not None and span[0] < span[1]:
            done = span[1]
            yield span


def find_reference_credentials(text: str) -> Iterator[Span]:
    """Spans of keys and passwords in references without a scheme: `//app:...@host/model`."""
    found = list(_get_pattern("reference").finditer(text))
    limits = [*(match.start() for match in found), len(text)]
    for match, limit in zip(found, limits[1:], strict=True):
        stop = _get_pattern("stop").search(text, match.end(), limit)
        span = _find_userinfo_secret(text, match.end(), stop.start() if stop else limit, False)
        if (
            span is not None
            and _get_pattern("reference key").fullmatch(text, *span)
            and is_secret_value(text[slice(*span)], "userinfo", "strong")
            and _get_pattern("reference host").match(text, span[1] + 1)
        ):
            yield span


def find_bare_credentials(text: str, low: str) -> Iterator[Span]:
    """Spans of keys that look random in `app:...@host`, and in errors about the port that they are not."""
    if "@" in text:
        for match in _get_pattern("bare authority").finditer(text):
            near = low[match.start() - 48 if match.start() > 48 else 0 : match.start()]
            label = near[len(near.rstrip(HEAD)) :].lstrip("-._")
            # a number or a date is before an identifier of a message
            is_named = not label or label.strip("0123456789-.")
            if is_named and label not in _ADDRESSES | _MORE_ADDRESSES and looks_drawn(match[1], 16):
                yield match.span(1)
    if "port" in low:
        for match in _get_pattern("split port").finditer(low):
            if not match[1].isdigit():
                yield match.span(1)


def find_part_secret(text: str, start: int, end: int, is_userinfo: bool) -> Span | None:
    """The secret in a userinfo or an authority that was split from its URI, and is at this span."""
    if text.startswith("//", start):
        start += 2
    at = text.rfind("@", start, end)
    if at < 0 and is_userinfo:
        at = end
    elif at >= 0 and not is_userinfo:
        at = text.rfind("@", start, _find_delimiter(text, start, end))
    if at < 0:
        # a line break in the key ended the run
        colon = text.find(":", start, end)
        if colon < 0 or _get_pattern("port").fullmatch(text, colon + 1, end):
            return None
        return _find_wrapped_key(text, colon + 1, end)
    span = _find_secret_before(text, start, at)
    if span is None:
        return (start, at) if looks_drawn(text[start:at], 16) else None
    label, value = text[start : span[0] - 1].lower(), text[slice(*span)]
    if label in _ADDRESSES or value.startswith("//"):
        return None
    return span if is_secret_value(value, "userinfo", "strong") else None


def _find_uri_starts(low: str) -> list[tuple[int, int, int, bool]]:
    """(colon, begin of the authority, limit, is llm); a run ends at the next URI.

    `llm:` without a slash ends only runs of its own kind: it may be a label and a key.
    """
    found = []
    limit = bare_limit = len(low)
    for match in reversed(list(_get_pattern("start").finditer(low))):
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


def _find_userinfo_secret(text: str, begin: int, end: int, llm: bool) -> Span | None:
    """The span to hide in one run; `llm` allows for an encoded or missing `@`."""
    stop = _find_delimiter(text, begin, end)
    at = text.rfind("@", begin, stop)
    if at >= 0:
        return _find_secret_before(text, begin, _find_last_at(text, at, stop, end, llm))
    if text.startswith("[", begin):
        return None
    colon = text.find(":", begin, stop)
    if colon < 0:
        return (
            (_find_encoded_key(text, begin, stop, end) or _find_spaced_key(text, stop, end)) if llm else None
        )
    if _get_pattern("port").fullmatch(text, colon + 1, stop):
        label = llm and not _get_pattern("host").match(text, begin, colon)
        if label and colon + 1 == end:  # a blank before the key
            return _find_wrapped_key(text, end, end)
        return _find_port_like_key(text, colon + 1, stop, end) if label else None
    return (
        _find_malformed_key(text, colon + 1, stop, end)
        if llm
        else _find_foreign_key(text, colon + 1, stop, end)
    )


def _find_delimiter(text: str, begin: int, end: int) -> int:
    match = _get_pattern("delimiter").search(text, begin, end)
    return match.start() if match else end


def _find_last_at(text: str, at: int, stop: int, end: int, llm: bool) -> int:
    """The `@` that ends the userinfo: a key with a raw `@` and `/` continues after the first `@`."""
    if stop == end:
        return at
    if text[stop] in "?#":
        # no path: an llm URI always has one, but a key may contain these characters
        later = text.rfind("@", stop, end) if llm else -1
    elif stop == at + 1 or _get_pattern("host").match(text, at + 1, stop):
        return at
    else:
        match = _get_pattern("query").search(text, stop, end)
        later = text.rfind("@", stop, match.start() if match else end)
    return at if later < 0 else later


def _find_secret_before(text: str, begin: int, at: int) -> Span | None:
    """The secret part of `label:key` up to an `@`; a lone label is secret if it looks like a key.

    A template such as `{password}` or `[label[:key]@]` is not a secret.
    """
    colon = text.find(":", begin, at)
    if colon >= 0:
        return None if _get_pattern("template").fullmatch(text, colon + 1, at) else (colon + 1, at)
    encoded = _get_pattern("colon").search(text, begin, at)
    if encoded:
        return encoded.end(), at
    return (begin, at) if _get_pattern("random").fullmatch(text, begin, at) else None


def _find_encoded_key(text: str, begin: int, stop: int, end: int) -> Span | None:
    colon = _get_pattern("colon").search(text, begin, stop)
    if colon is None or _get_pattern("port").fullmatch(text, colon.end(), stop):
        return None
    return _find_malformed_key(text, colon.end(), stop, end)


def _find_malformed_key(text: str, key: int, border: int, end: int) -> Span | None:
    """A key that RFC 3986 reads as a bad port, up to a later `@`, an encoded `@` or its visible end."""
    at = text.find("@", border, end)
    if at >= 0:
        return key, text.rfind("@", at, _find_delimiter(text, at, end))
    encoded = _get_pattern("at").search(text, key, end)
    if encoded:
        *_, last = _get_pattern("at").finditer(
            text, encoded.start(), _find_delimiter(text, encoded.end(), end)
        )
        return key, last.start()
    if _get_pattern("placeholder").fullmatch(text, key, border):
        return None
    weak = _get_pattern("weak").search(text, key, end)
    if weak:
        return key, weak.start()
    return _find_wrapped_key(text, key, end) or (key, end)


def _find_spaced_key(text: str, stop: int, end: int) -> Span | None:
    """The key in `llm://my app:…@host`: a blank in the label ended the run."""
    found = _get_pattern("spaced").match(text, end) if stop == end else None
    return found.span(1) if found else None


def _find_wrapped_key(text: str, key: int, end: int) -> Span | None:
    """The rest of a key after a blank, line break or quote inside it has ended the run."""
    wrapped = _get_pattern("wrapped").match(text, end)
    if wrapped is None:
        return None
    at = wrapped.end() - 1
    stop = _get_pattern("stop").search(text, at)
    return key, text.rfind("@", at, _find_delimiter(text, at, stop.start() if stop else len(text)))


def _find_port_like_key(text: str, key: int, stop: int, end: int) -> Span | None:
    """A key that begins like a port, `app:/…@host`, `app:12/…@h.example`; a model may have an `@` too."""
    span = _find_foreign_key(text, key, stop, end)
    if span is None or key == stop or text[stop] != "/":
        return span
    return span if _get_pattern("domain").match(text, span[1] + 1, end) else None


def _find_foreign_key(text: str, key: int, stop: int, end: int) -> Span | None:
    """A key in another scheme. A host must follow the `@`, because paths often contain one."""
    at = text.find("@", stop, end)
    if at < 0 or _get_pattern("placeholder").fullmatch(text, key, stop):
        return None
    at = text.rfind("@", at, _find_delimiter(text, at, end))
    return (key, at) if _get_pattern("host").match(text, at + 1, end) else None
