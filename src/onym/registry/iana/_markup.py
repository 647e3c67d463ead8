"""Text in XML 1.0. What XML cannot hold is not lost: it travels in a processing instruction.

XML 1.0 has no form for most control characters, not even a reference. Such a character is written as
`<?onym-char 1b?>`, which every schema allows and readers of IANA's files skip.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from onym.registry.iana._faults import bad

__all__ = ["CHAR", "attribute", "character", "collapsed", "content", "holds", "plain"]

#: the processing instruction's target
CHAR: Final = "onym-char"

# XML 1.0 2.2 production [2], the complement
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord("\r"): "&#13;"}
_IN_ATTRIBUTE: Final = {**_SPECIAL, ord('"'): "&quot;", ord("\n"): "&#10;", ord("\t"): "&#9;"}
_CODE: Final = re.compile("[0-9a-f]{1,6}")
_SPACE: Final = re.compile("[ \t\r\n]+")


def _escaped(text: str, table: Mapping[int, str]) -> str:
    return text.translate(table)


def content(text: str) -> str:
    """The text as element content; reading it gives back every character."""
    return _FORBIDDEN.sub(lambda found: f"<?{CHAR} {ord(found[0]):x}?>", _escaped(text, _SPECIAL))


def plain(text: str) -> str:
    """The text as element content, for readers who know no such instruction: U+FFFD stands instead."""
    return _escaped(_FORBIDDEN.sub("\ufffd", text), _SPECIAL)


def attribute(text: str) -> str:
    """The text as an attribute's value in double quotes; U+FFFD for what XML cannot hold."""
    return _escaped(_FORBIDDEN.sub("\ufffd", text), _IN_ATTRIBUTE)


def holds(code: int) -> bool:
    """May a text hold the character of that number? Half a surrogate pair is none."""
    return code < 0xD800 or 0xDFFF < code <= 0x10FFFF


def character(data: str, line: int | None) -> str:
    """The character that a processing instruction names."""
    if not _CODE.fullmatch(data) or not holds(int(data, 16)):
        raise bad(f"no character: {data[:16]!r}", "bad-xml", line=line)
    return chr(int(data, 16))


def collapsed(text: str) -> str:
    """White space as a reader of prose takes it: one space between words, none around."""
    return _SPACE.sub(" ", text).strip(" \t\r\n")
