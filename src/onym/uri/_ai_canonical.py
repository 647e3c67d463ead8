"""The canonical form of an ai URI, as the AIIP/HTTPS v1 binding defines it.

Two canonical forms are equal byte by byte or name different things. So what is merely spelt otherwise
(case, unreserved triplets, `:443`, an empty path) is rewritten, and what could be read two ways is
refused, never repaired.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from onym.errors import AIURIError
from onym.uri._percent import decode, normalize_triplets
from onym.uri._rfc3986 import Offsets, Parts, offsets

__all__ = ["MAX_LENGTH", "canonical"]

#: characters of a text that has a canonical form
MAX_LENGTH: Final = 2_048
CLAUSE: Final = "AIIP/HTTPS v1, canonical form"

_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]*[a-z0-9])?").fullmatch
_NUMERIC_LABEL = re.compile("[0-9]+|0x[0-9a-f]*").fullmatch
_PORT = re.compile("[1-9][0-9]{0,4}").fullmatch
# octets that a server, proxy or form decoder could take for syntax: controls, and / \ ? # encoded
_CONTROL = re.compile("%(?:[01][0-9A-Fa-f]|7[Ff])")
_IN_PATH = re.compile("%(?:2[Ff3]|5[Cc]|3[Ff])")
_IN_NAME = re.compile("%(?:26|3[Dd]|3[Bb]|2[Bb]|23|25|27|2[Ff]|3[Ff]|5[Cc])")
_RAW_IN_QUERY = re.compile(r"[+;']")
# %25 and two characters, raw or encoded, that read as hexadecimal digits once it is decoded
_TWICE = re.compile("%25(?:[0-9A-Fa-f]|%3[0-9]|%[46][1-6]){2}")


def canonical(text: str, parts: Parts) -> str:
    """The canonical form of an ai URI, without its fragment. Raises AIURIError where it has none."""
    at = offsets(parts)
    if len(text) > MAX_LENGTH:
        raise _refused(
            "too-long", f"a canonical ai URI has at most {MAX_LENGTH} characters", "path", MAX_LENGTH
        )
    authority = _authority(parts, at)
    path = _path(parts, at.path)
    target = f"ai:{path}" if authority is None else f"ai://{authority}{path}"
    return target if parts.query is None else f"{target}?{_query(parts.query, at.query)}"


def _refused(code: str, message: str, component: str, offset: int, hint: str | None = None) -> AIURIError:
    return AIURIError(
        message, code=f"ai.{code}", component=component, offset=offset, clause=CLAUSE, hint=hint
    )


def _authority(parts: Parts, at: Offsets) -> str | None:
    if parts.authority is None:
        return None
    if parts.userinfo is not None:
        raise _refused("userinfo", "an ai URI has no userinfo", "userinfo", at.userinfo)
    host = _host(parts, at.host)
    port = parts.port
    if port is None:
        return host
    if not _PORT(port) or int(port) > 65535:
        raise _refused("bad-port", "a port is 1 to 65535, without leading zeros", "port", at.port)
    return host if port == "443" else f"{host}:{port}"


def _host(parts: Parts, offset: int) -> str:
    host = (parts.host or "").lower()
    if not host:
        raise _refused(
            "no-authority", "the authority is empty", "host", offset, "write ai:/path, or name a host"
        )
    if parts.host_type in ("IPv6address", "IPvFuture"):
        raise _refused("address-literal", "an address does not name an authority", "host", offset)
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL(label) and len(label) <= 63 for label in labels):
        raise _refused(
            "bad-host", "the host is not a DNS name of letters, digits and hyphens", "host", offset
        )
    if _NUMERIC_LABEL(labels[-1]):
        raise _refused("address-literal", "the host reads as an address", "host", offset)
    if any(label[2:4] == "--" and not _is_a_label(label) for label in labels):
        raise _refused("bad-host", "a label with -- in third place is not a valid A-label", "host", offset)
    return host


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
        raise _refused(
            "no-path", "an ai URI without authority needs a path that starts with /", "path", offset
        )
    _check_text(path, "path", offset, also=_IN_PATH)
    for segment in path[1:].split("/"):
        offset += 1
        text = decode(segment, component="path", offset=offset)
        if not text:
            raise _refused("empty-segment", "the path has an empty segment", "path", offset)
        if text.partition(";")[0] in (".", ".."):
            raise _refused("dot-segment", "the path has a dot segment", "path", offset)
        _check_plain(text, "path", offset)
        offset += len(segment)
    return normalize_triplets(path)


def _query(query: str, offset: int) -> str:
    raw = _RAW_IN_QUERY.search(query)
    if raw is not None:
        raise _refused(
            "ambiguous-query",
            "a raw +, ; or ' in a query is read in two ways",
            "query",
            offset + raw.start(),
            "write it as %2B, %3B or %27",
        )
    _check_text(query, "query", offset)
    seen: set[str] = set()
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        _check_text(name, "query", offset, also=_IN_NAME)
        text = decode(name, component="query", offset=offset)
        decode(value, component="query", offset=offset + len(pair) - len(value))
        _check_plain(text, "query", offset)
        if not text:
            raise _refused("empty-name", "the query has an empty parameter name", "query", offset)
        if text.casefold() in seen:
            raise _refused("duplicate-name", "the query has a parameter twice", "query", offset)
        seen.add(text.casefold())
        offset += len(pair) + 1
    return normalize_triplets(query)


def _check_text(text: str, component: str, offset: int, *, also: re.Pattern[str] | None = None) -> None:
    for pattern in (_CONTROL, also):
        found = pattern and pattern.search(text)
        if found:
            raise _refused(
                "forbidden-octet",
                f"an encoded control or delimiter stands in the {component}",
                component,
                offset + found.start(),
            )
    found = _TWICE.search(text)
    if found:
        raise _refused("double-encoding", "percent-encoded twice", component, offset + found.start())


def _check_plain(text: str, component: str, offset: int) -> None:
    """Refuse text that looks like another: not NFC, or with characters that have no width of their own."""
    if text.isascii():
        return
    if not unicodedata.is_normalized("NFC", text):
        raise _refused(
            "not-nfc", f"the {component} is not in Unicode normalisation form C", component, offset
        )
    if any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") for character in text):
        raise _refused(
            "invisible", f"an invisible or formatting character stands in the {component}", component, offset
        )
