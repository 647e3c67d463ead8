"""The Link header (RFC 8288) as a discovery source (AIIP/HTTPS v1, 3.3 rule 4). Pure.

Common HTTP clients parse the header incorrectly: they split inside quotes, use a later `rel` and ignore
`anchor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from onym.errors import URIError
from onym.uri.generic import URI

#: links and octets of all Link fields of one answer that are read
MAX_LINKS: Final = 64
MAX_OCTETS: Final = 16 * 1024
#: the relation type of the draft
RELATION: Final = "aiip"

_BLANKS: Final = re.compile(r"[ \t]+")
_SPACE: Final = re.compile(r"[ \t]*")
_TARGET: Final = re.compile(r"<([^>]*)>")
_NAME: Final = re.compile(r"[^ \t=;,]*")
_PLAIN: Final = re.compile(r"[^;,]*")
# what follows the opening quote; an end of input closes it, as B.4 has it
_QUOTED: Final = re.compile(r'((?:[^"\\]|\\.)*)(?:"|\\?\Z)', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Link:
    """One link-value: its target as written, and its parameters in order, names in lower case."""

    target: str
    parameters: tuple[tuple[str, str], ...] = ()

    def get_parameter(self, name: str) -> str | None:
        """The value of the first parameter of this name; later ones do not count (RFC 8288 3.2, 3.3)."""
        return next((value for each, value in self.parameters if each == name), None)

    @property
    def relations(self) -> tuple[str, ...]:
        """The relation types of its first `rel`, in lower case."""
        return tuple(each for each in _BLANKS.split((self.get_parameter("rel") or "").lower()) if each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointers:
    """What a source points at: targets as written, and for people what of it was left out and why."""

    targets: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def parse_links(value: str, *, most: int = MAX_LINKS) -> tuple[Link, ...]:
    """The links of one field value, `most` at most, by RFC 8288 appendix B.2; what is no link ends it."""
    found: list[Link] = []
    at = 0
    while len(found) < most:
        target = _TARGET.match(value, _skip_space(value, at))
        if target is None:
            break
        parameters, at = _parse_parameters(value, target.end())
        found.append(Link(target[1], parameters))
        if value[at : at + 1] != ",":
            break
        at += 1
    return tuple(found)


def find_pointers(values: Iterable[str], *, context: str, relation: str = RELATION) -> Pointers:
    """What the Link fields of a 2xx answer for `context` (its URL) point at by `relation`.

    A link whose `anchor` is another URL than the context speaks for somebody else, and is left out.
    """
    targets: list[str] = []
    ignored: list[str] = []
    room, octets = MAX_LINKS, MAX_OCTETS
    for value in values:
        octets -= len(value)
        if octets < 0 or room <= 0:
            ignored.append(f"what is beyond {MAX_LINKS} links or {MAX_OCTETS} octets")
            break
        found = parse_links(value, most=room)
        room -= len(found)
        for each in found:
            if relation in each.relations:
                kept = _is_about_context(each.get_parameter("anchor"), context)
                (targets if kept else ignored).append(each.target if kept else "a link about another page")
    return Pointers(targets=tuple(dict.fromkeys(targets)), ignored=tuple(dict.fromkeys(ignored)))


def _parse_parameters(value: str, at: int) -> tuple[tuple[tuple[str, str], ...], int]:
    """B.3: parameters, and where they end."""
    found: list[tuple[str, str]] = []
    while True:
        at = _skip_space(value, at)
        if value[at : at + 1] != ";":
            return tuple(found), at
        at = _skip_space(value, at + 1)
        name = _NAME.match(value, at)
        assert name is not None  # noqa: S101 - it matches nothing, too
        at = _skip_space(value, name.end())
        text = ""
        if value[at : at + 1] == "=":
            text, at = _parse_value(value, _skip_space(value, at + 1))
        found.append((name[0].lower(), text))


def _parse_value(value: str, at: int) -> tuple[str, int]:
    """A quoted-string (B.4), or what stands before the next delimiter."""
    if value[at : at + 1] == '"':
        quoted = _QUOTED.match(value, at + 1)
        assert quoted is not None  # noqa: S101 - the end of input closes it
        return _ESCAPE.sub(r"\1", quoted[1]), quoted.end()
    plain = _PLAIN.match(value, at)
    assert plain is not None  # noqa: S101 - it matches nothing, too
    return plain[0].rstrip(" \t"), plain.end()


def _skip_space(value: str, at: int) -> int:
    found = _SPACE.match(value, at)
    return at if found is None else found.end()


def _is_about_context(anchor: str | None, context: str) -> bool:
    if anchor is None:
        return True
    try:
        base = URI.parse(context, "URI")
        return base.resolve(anchor).normalize() == base.normalize()
    except URIError:
        return False
