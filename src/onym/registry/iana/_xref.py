"""IANA's references: `[RFC6733][Adam_Barth]` in a cell is a run of `<xref>` elements in XML, and back.

rfc         [RFC6733]           draft       [RFC-ietf-appsawg-acct-uri-06]
person      [Adam_Barth]        registry    [IANA registry urn-namespaces]
uri         [https://n2t.net/]  text        anything else, as it stands
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["shown", "xrefs"]

_PIECE: Final = re.compile(r"\[[^\[\]]*\]|(?:[^\[]|\[(?![^\[\]]*\]))+")

#: type, what stands in the brackets, what stands in `data`
_TYPES: Final = (
    ("rfc", re.compile(r"RFC(?=[1-9][0-9]{0,5}\Z)")),
    ("registry", re.compile(r"IANA registry (?=[a-z0-9-]+\Z)")),
    ("draft", re.compile(r"(?=(?:RFC-|draft-)[A-Za-z0-9.-]+\Z)")),
    ("uri", re.compile(r"(?=https?://[!#$%&()*+,./0-9:;=?@A-Z_a-z~-]+\Z)")),
    ("person", re.compile(r"(?=(?!RFC|BCP|STD)[^\W\d][\w.,'-]*\Z)")),
)
_RFC_WITH_MORE: Final = re.compile(r"RFC([1-9][0-9]{0,5})\W.*", re.DOTALL)


def xrefs(reference: str) -> Iterator[tuple[str, str, str]]:
    """The (type, data, text) of each element; `shown` of them, joined, is the reference again."""
    for piece in _PIECE.findall(reference):
        yield _xref(piece)


def _xref(piece: str) -> tuple[str, str, str]:
    inner = piece[1:-1]
    if piece == f"[{inner}]":
        for kind, pattern in _TYPES:
            found = pattern.match(inner)
            if found:
                data = inner[found.end() :]
                return kind, f"rfc{data}" if kind == "rfc" else data, ""
        more = _RFC_WITH_MORE.fullmatch(inner)
        if more:
            return "rfc", f"rfc{more[1]}", inner
    return "text", "", piece


def shown(kind: str, data: str, text: str, section: str = "") -> str:
    """What IANA's pages show for one element."""
    if kind == "text":
        return text
    if text:
        return f"[{text}]"
    if kind in ("rfc", "bcp", "std"):
        data = data.upper()
    elif kind == "registry":
        data = f"IANA registry {data}"
    return f"[{data}, Section {section}]" if section else f"[{data}]"
