"""The canonical form of an ai URI, as the AIIP/HTTPS v1 binding defines it.

Two canonical forms are equal byte by byte or name different things. So what is merely spelt otherwise
(case, unreserved triplets, `:443`, an empty path) is rewritten, and what could be read two ways is
refused, never repaired. `REFUSALS` is the list of what is refused.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.errors import AIURIError
from onym.uri._percent import decode, normalize_triplets
from onym.uri._rfc3986 import Offsets, Parts, offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CLAUSE", "DAMAGED", "DAMAGED_HINT", "INVISIBLE", "MAX_LENGTH", "REFUSALS", "canonical"]

#: characters of a text that has a canonical form, and of that form
MAX_LENGTH: Final = 2_048
CLAUSE: Final = "AIIP/HTTPS v1, canonical form"

#: what has no canonical form: the code after "ai.", what is said, and how to go on
REFUSALS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "too-long": (
            f"a canonical ai URI has at most {MAX_LENGTH} characters",
            "send long parameters in the body of the request",
        ),
        "userinfo": ("an ai URI has no userinfo", "leave out what stands before the @"),
        "no-authority": ("the authority is empty", "write ai:/path, or name a host"),
        "address-literal": ("the host reads as an address", "name the authority by its DNS name"),
        "bad-host": (
            "the host is not a DNS name of letters, digits and hyphens",
            "write a name in Unicode as its A-labels (xn--...), without a dot at the end",
        ),
        "bad-port": ("a port is 1 to 65535, without leading zeros", "leave out the colon for port 443"),
        "no-path": (
            "an ai URI without authority needs a path that starts with / and names something",
            "write ai:/path, or ai://host/path",
        ),
        "empty-segment": ("the path has an empty segment", "write one / between segments, none at the end"),
        "dot-segment": ("the path has a dot segment", "write the path that it leads to"),
        "forbidden-octet": (
            "an encoded control or delimiter stands in the {}",
            "controls are never data; / \\ ? # are none in a path, and delimiters none in a parameter's name",
        ),
        "double-encoding": ("percent-encoded twice in the {}", "encode once"),
        "not-nfc": ("the {} is not in Unicode normalisation form C", "normalise the text, then encode it"),
        "invisible": ("an invisible or formatting character stands in the {}", "leave it out"),
        "ambiguous-query": ("the query can be read in two ways", "write a raw +, ; or ' as %2B, %3B or %27"),
        "empty-name": ("the query has an empty parameter name", "leave out the ? or & before it"),
        "duplicate-name": (
            "the query has a parameter twice",
            "give each name once; names that differ in case alone count as one",
        ),
    }
)

#: `&currency` after HTML entity decoding: raw, encoded as UTF-8 or as Latin-1, or with the semicolon
DAMAGED: Final = re.compile("(?:\N{CURRENCY SIGN}|%[Cc]2%[Aa]4|(?<!%[89A-Fa-f][0-9A-Fa-f])%[Aa]4|&curren;)cy")
DAMAGED_HINT: Final = "it looks like a damaged &currency"

#: characters without a width of their own that are no format controls (category Cf): the rest of Unicode's
#: Default_Ignorable_Code_Point, which fonts draw as nothing
INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)

_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]*[a-z0-9])?").fullmatch
# the last label of what a browser reads as an IPv4 address: 127.1, 2130706433, 0x7f.1
_NUMERIC_LABEL = re.compile("[0-9]+|0x[0-9a-f]*").fullmatch
_PORT = re.compile("[1-9][0-9]{0,4}").fullmatch
# octets that a server, proxy or form decoder could take for syntax: C0, DEL, C1, and / \ ? # encoded
_CONTROL = re.compile("%(?:[01][0-9A-Fa-f]|7[Ff]|[Cc]2%[89][0-9A-Fa-f])")
_IN_PATH = re.compile("%(?:2[Ff3]|5[Cc]|3[Ff])")
_IN_NAME = re.compile("%(?:26|3[Dd]|3[Bb]|2[Bb]|23|25|27|2[Ff]|3[Ff]|5[Cc])")
# browsers rewrite ' as %27; form decoders read + as a blank and ; as a separator
_RAW_IN_QUERY = re.compile(r"[+;']")
# %25 and two characters, raw or encoded, that read as hexadecimal digits once it is decoded
_TWICE = re.compile("%25(?:[0-9A-Fa-f]|%3[0-9]|%[46][1-6]){2}")


def canonical(text: str, parts: Parts) -> str:
    """The canonical form of an ai URI, without its fragment. Raises AIURIError where it has none."""
    at = offsets(parts)
    if len(text) > MAX_LENGTH:
        raise _refused("too-long", "path", MAX_LENGTH)
    authority = _authority(parts, at)
    path = _path(parts, at.path)
    target = f"ai:{path}" if authority is None else f"ai://{authority}{path}"
    if parts.query is not None:
        target = f"{target}?{_query(parts.query, at.query)}"
    if len(target) > MAX_LENGTH:  # the / of an empty path makes it longer
        raise _refused("too-long", "path", len(text))
    return target


def _refused(code: str, component: str, offset: int, hint: str | None = None) -> AIURIError:
    message, remedy = REFUSALS[code]
    return AIURIError(
        message.format(component),
        code=f"ai.{code}",
        component=component,
        offset=offset,
        clause=CLAUSE,
        hint=hint or remedy,
    )


def _authority(parts: Parts, at: Offsets) -> str | None:
    if parts.authority is None:
        return None
    if parts.userinfo is not None:
        raise _refused("userinfo", "userinfo", at.userinfo)
    host = _host(parts, at.host)
    port = parts.port
    if port is None:
        return host
    if not _PORT(port) or int(port) > 65535:
        raise _refused("bad-port", "port", at.port)
    return host if port == "443" else f"{host}:{port}"


def _host(parts: Parts, offset: int) -> str:
    host = (parts.host or "").lower()
    if not host:
        raise _refused("no-authority", "host", offset)
    if parts.host_type in ("IPv6address", "IPvFuture"):
        raise _refused("address-literal", "host", offset)
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL(label) and len(label) <= 63 for label in labels):
        raise _refused("bad-host", "host", offset)
    if _NUMERIC_LABEL(labels[-1]):
        raise _refused("address-literal", "host", offset)
    if any(label[2:4] == "--" and not _is_a_label(label) for label in labels):
        raise _refused(
            "bad-host", "host", offset, "a label with -- in third place is a valid A-label (IDNA 2008)"
        )
    return host


@lru_cache(maxsize=1_024)  # idna takes longer over a label than all else over the URI
def _is_a_label(label: str) -> bool:
    if not label.startswith("xn--"):
        return False
    from onym.uri.iri import is_a_label  # idna is slow to import and seldom needed

    return is_a_label(label)


def _path(parts: Parts, offset: int) -> str:
    path = parts.path
    if parts.authority is not None and path in ("", "/"):
        return "/"
    if path[:1] != "/" or path == "/":
        raise _refused("no-path", "path", offset)
    _check_text(path, "path", offset, also=_IN_PATH)
    for segment in path[1:].split("/"):
        offset += 1
        text = decode(segment, component="path", offset=offset)
        if not text:
            raise _refused("empty-segment", "path", offset)
        if text.partition(";")[0] in (".", ".."):
            raise _refused("dot-segment", "path", offset)
        _check_plain(text, "path", offset)
        offset += len(segment)
    return normalize_triplets(path)


def _query(query: str, offset: int) -> str:
    damaged = DAMAGED.search(query)
    if damaged is not None:
        raise _refused("ambiguous-query", "query", offset + damaged.start(), DAMAGED_HINT)
    raw = _RAW_IN_QUERY.search(query)
    if raw is not None:
        raise _refused("ambiguous-query", "query", offset + raw.start())
    _check_text(query, "query", offset)
    seen: set[str] = set()
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        _check_text(name, "query", offset, also=_IN_NAME)
        text = decode(name, component="query", offset=offset)
        decode(value, component="query", offset=offset + len(pair) - len(value))
        _check_plain(text, "query", offset)
        if not text:
            raise _refused("empty-name", "query", offset)
        folded = _folded(text)
        if folded in seen:
            raise _refused("duplicate-name", "query", offset)
        seen.add(folded)
        offset += len(pair) + 1
    return normalize_triplets(query)


def _folded(text: str) -> str:
    """`text` as caseless matching compares it (Unicode 3.13, D145)."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


def _check_text(text: str, component: str, offset: int, *, also: re.Pattern[str] | None = None) -> None:
    if "%" not in text:
        return
    for pattern in (_CONTROL, also):
        found = pattern and pattern.search(text)
        if found:
            raise _refused("forbidden-octet", component, offset + found.start())
    found = _TWICE.search(text)
    if found:
        raise _refused("double-encoding", component, offset + found.start())


def _check_plain(text: str, component: str, offset: int) -> None:
    """Refuse text that looks like another: not NFC, or with characters that have no width of their own."""
    if text.isascii():
        return
    if not unicodedata.is_normalized("NFC", text):
        raise _refused("not-nfc", component, offset)
    if INVISIBLE.search(text) or any(
        unicodedata.category(character) in ("Cf", "Zl", "Zp") for character in text
    ):
        raise _refused("invisible", component, offset)
