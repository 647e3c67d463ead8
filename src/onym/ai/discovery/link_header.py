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

#: links and bytes of all Link fields of one response that are parsed
MAX_LINKS: Final = 64
MAX_LINK_BYTES: Final = 16 * 1024
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
    """One link-value: the target as written, and the parameters in order with lower-case names."""

    target: str
    parameters: tuple[tuple[str, str], ...] = ()

    def get_parameter(self, name: str) -> str | None:
        """Return the first parameter with this name; later ones have no effect (RFC 8288 3.2, 3.3)."""
        return next((value for key, value in self.parameters if key == name), None)

    @property
    def relations(self) -> tuple[str, ...]:
        """The relation types of the first `rel`, in lower case."""
        return tuple(
            relation for relation in _BLANKS.split((self.get_parameter("rel") or "").lower()) if relation
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointers:
    """The targets that a source points to, as written, and texts about what was ignored and why."""

    targets: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def parse_links(value: str, *, most: int = MAX_LINKS) -> tuple[Link, ...]:
    """Parse at most `most` links of a field value, up to the first error (RFC 8288 appendix B.2)."""
    links: list[Link] = []
    at = 0
    while len(links) < most:
        target = _TARGET.match(value, _skip_space(value, at))
        if target is None:
            break
        parameters, at = _parse_parameters(value, target.end())
        links.append(Link(target[1], parameters))
        if value[at : at + 1] != ",":
            break
        at += 1
    return tuple(links)


def find_pointers(values: Iterable[str], *, context: str, relation: str = RELATION) -> Pointers:
    """Return the targets of the Link fields with this `relation` in a 2xx response for the URL `context`.

    A link whose `anchor` is another URL is about another page, and is ignored.
    """
    targets: list[str] = []
    ignored: list[str] = []
    room, octets = MAX_LINKS, MAX_LINK_BYTES
    for value in values:
        octets -= len(value)
        if octets < 0 or room <= 0:
            ignored.append(f"links after the first {MAX_LINKS} or {MAX_LINK_BYTES} bytes")
            break
        links = parse_links(value, most=room)
        room -= len(links)
        for link in links:
            if relation in link.relations:
                kept = _is_about_context(link.get_parameter("anchor"), context)
                (targets if kept else ignored).append(link.target if kept else "a link about another page")
    return Pointers(targets=tuple(dict.fromkeys(targets)), ignored=tuple(dict.fromkeys(ignored)))


def _parse_parameters(value: str, at: int) -> tuple[tuple[tuple[str, str], ...], int]:
    """Return the parameters and the position after them (B.3)."""
    found: list[tuple[str, str]] = []
    while True:
        at = _skip_space(value, at)
        if value[at : at + 1] != ";":
            return tuple(found), at
        at = _skip_space(value, at + 1)
        name = _NAME.match(value, at)
        assert name is not None  # noqa: S101 - the pattern also matches an empty string
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
    assert plain is not None  # noqa: S101 - the pattern also matches an empty string
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
