"""Percent-encoding (RFC 3986 2.1 to 2.5): one named quoter per component, and strict decoding.

Nothing else in the package encodes or decodes a percent triplet. A quoter takes *raw* text, so a `%`
in it is data and becomes `%25`; there is no way to pass text that is already encoded.
"""

from __future__ import annotations

import re
from typing import Final

from onym.errors import URISyntaxError

__all__ = [
    "FRAGMENT",
    "PATH",
    "PCHAR_SEGMENT",
    "QUERY",
    "QUERY_NAME",
    "QUERY_VALUE",
    "REG_NAME",
    "SEGMENT",
    "SUB_DELIMS",
    "UNRESERVED",
    "USERINFO",
    "USERINFO_PAIR",
    "Quoter",
    "decode",
    "decode_octets",
    "find_bad_triplet",
    "normalize_triplets",
    "upper_triplets",
]

#: RFC 3986 2.3
UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
#: RFC 3986 2.2
SUB_DELIMS: Final = "!$&'()*+,;="

_TRIPLET = re.compile("%([0-9A-Fa-f]{2})")
_BAD_TRIPLET = re.compile("%(?![0-9A-Fa-f]{2})")


class _Triplets(dict[int, str]):
    """For `str.translate`: what each octet, read as a latin-1 character, is written as; filled as used."""

    __slots__ = ("_kept",)

    def __init__(self, kept: str) -> None:
        self._kept = kept

    def __missing__(self, octet: int) -> str:
        written = chr(octet) if chr(octet) in self._kept else f"%{octet:02X}"
        self[octet] = written
        return written


class Quoter:
    """Encodes raw text for one component.

    `name` is the component, `safe` the characters kept beside unreserved. `quote()` writes every other
    character as its UTF-8 octets in upper-case triplets.
    """

    __slots__ = ("_kept", "_table", "name", "safe")

    def __init__(self, name: str, safe: str = "") -> None:
        self.name = name
        self.safe = safe
        self._kept = UNRESERVED + safe
        self._table = _Triplets(self._kept)

    def __repr__(self) -> str:
        return f"<Quoter {self.name}>"

    def quote(self, text: str) -> str:
        """`text` as it may stand in the component.

        Raises URISyntaxError (`uri.bad-utf8`) where `text` holds a lone surrogate: it has no UTF-8 form.
        """
        if not text.strip(self._kept):  # nothing else in it
            return text
        try:
            octets = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise URISyntaxError(
                f"the {self.name} holds a lone surrogate, which has no UTF-8 form",
                code="uri.bad-utf8",
                component=self.name,
                offset=error.start,
                clause="RFC 3986 2.5",
            ) from None
        return octets.decode("latin-1").translate(self._table)


#: one path segment, nothing but unreserved kept (draft-levy-llm-uri-scheme-00 3.2)
SEGMENT: Final = Quoter("path")
#: one path segment, all of `pchar` kept (RFC 3986 3.3)
PCHAR_SEGMENT: Final = Quoter("path", SUB_DELIMS + ":@")
#: a whole path: `/` separates (RFC 3986 3.3)
PATH: Final = Quoter("path", SUB_DELIMS + ":@/")
#: a whole query (RFC 3986 3.4)
QUERY: Final = Quoter("query", SUB_DELIMS + ":@/?")
#: the name of one `name=value` pair; `&`, `=` and `+` are data and get encoded
QUERY_NAME: Final = Quoter("query")
#: the value of one `name=value` pair; `&`, `=` and `+` are data and get encoded
QUERY_VALUE: Final = Quoter("query")
#: one half of the userinfo (label or key); `:` is data and gets encoded
USERINFO: Final = Quoter("userinfo")
#: a whole userinfo, `:` kept (RFC 3986 3.2.1)
USERINFO_PAIR: Final = Quoter("userinfo", SUB_DELIMS + ":")
#: a fragment (RFC 3986 3.5)
FRAGMENT: Final = Quoter("fragment", SUB_DELIMS + ":@/?")
#: a registered name (RFC 3986 3.2.2)
REG_NAME: Final = Quoter("host", SUB_DELIMS)


def find_bad_triplet(text: str, start: int = 0, end: int | None = None) -> int:
    """Index of the first `%` that two hexadecimal digits do not follow before `end`, or -1."""
    found = _BAD_TRIPLET.search(text, start, len(text) if end is None else end)
    return -1 if found is None else found.start()


def decode(text: str, *, component: str, offset: int = 0, clause: str | None = None) -> str:
    """`text` with its triplets decoded once, read as strict UTF-8.

    `offset` is where `text` starts in the whole URI: errors count from there. Raises URISyntaxError,
    `uri.bad-percent-encoding` or `uri.bad-utf8`; `clause` replaces the clause they name.
    """
    if "%" not in text:
        return text
    octets = decode_octets(text, component=component, offset=offset, clause=clause)
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError as error:
        raise URISyntaxError(
            f"percent-encoded octets in the {component} are not UTF-8",
            code="uri.bad-utf8",
            component=component,
            offset=offset + _position_of_octet(text, error.start),
            clause=clause or "RFC 3986 2.5",
        ) from None


def decode_octets(text: str, *, component: str = "text", offset: int = 0, clause: str | None = None) -> bytes:
    """The octets that `text` stands for: triplets decoded once, other characters as UTF-8.

    Raises URISyntaxError as `decode` does.
    """
    bad = find_bad_triplet(text)
    if bad >= 0:
        raise URISyntaxError(
            f"a % in the {component} is not followed by two hexadecimal digits",
            code="uri.bad-percent-encoding",
            component=component,
            offset=offset + bad,
            clause=clause or "RFC 3986 2.1",
            hint="write a literal % as %25",
        )
    try:
        first, *rest = text.encode("utf-8").split(b"%")
    except UnicodeEncodeError as error:
        raise URISyntaxError(
            f"the {component} holds a lone surrogate, which has no UTF-8 form",
            code="uri.bad-utf8",
            component=component,
            offset=offset + error.start,
            clause=clause or "RFC 3986 2.5",
        ) from None
    return first + b"".join([_OCTETS[piece[:2]] + piece[2:] for piece in rest])


def normalize_triplets(text: str) -> str:
    """`text` with upper-case triplets and unreserved characters decoded (RFC 3986 6.2.2.1, 6.2.2.2).

    A `%` that starts no triplet stays as it is.
    """
    return _TRIPLET.sub(_normal_triplet, text) if "%" in text else text


def upper_triplets(text: str) -> str:
    """`text` with upper-case triplets, nothing decoded (RFC 3986 6.2.2.1)."""
    return _TRIPLET.sub(lambda triplet: triplet[0].upper(), text) if "%" in text else text


_HEX = "0123456789ABCDEFabcdef"
_OCTETS: Final = {(a + b).encode(): bytes([int(a + b, 16)]) for a in _HEX for b in _HEX}


def _normal_triplet(triplet: re.Match[str]) -> str:
    character = chr(int(triplet[1], 16))
    return character if character in UNRESERVED else triplet[0].upper()


def _position_of_octet(text: str, octet: int) -> int:
    """Index in `text` of the character or triplet that gives the octet of that number."""
    position = 0
    while octet > 0:
        width = 1 if text[position] == "%" else len(text[position].encode("utf-8"))
        position += 3 if text[position] == "%" else 1
        octet -= width
    return position
