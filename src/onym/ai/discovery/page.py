"""The page of an origin as a discovery source: its Link header (RFC 8288) and links in its HTML head.

Common HTTP clients parse the header incorrectly: they split inside quotes, use a later `rel` and ignore
`anchor`. In HTML, only direct children of the head are read. An HTML5 parser decides what the head is, so
untrusted text in the page's body, a comment, a template or an SVG drawing has no effect (AIIP/HTTPS v1, 3.3
rules 4 and 5).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from onym._lazy import require_extra
from onym.errors import URIError
from onym.net.messages import Headers
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


def find_pointers(values: Iterable[str], *, context: str) -> Pointers:
    """Return the targets of the Link fields with the draft's relation in a 2xx response for `context`, a URL.

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
            if RELATION in link.relations:
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
        name, at = _match(_NAME, value, at)
        at, text = _skip_space(value, at), ""
        if value[at : at + 1] == "=":
            text, at = _parse_value(value, _skip_space(value, at + 1))
        found.append((name.lower(), text))


def _parse_value(value: str, at: int) -> tuple[str, int]:
    """Return a quoted-string (B.4) or the text before the next delimiter, and the position after it."""
    if value[at : at + 1] == '"':
        text, at = _match(_QUOTED, value, at + 1)
        return _ESCAPE.sub(r"\1", text), at
    text, at = _match(_PLAIN, value, at)
    return text.rstrip(" \t"), at


def _skip_space(value: str, at: int) -> int:
    return _match(_SPACE, value, at)[1]


def _match(pattern: re.Pattern[str], value: str, at: int) -> tuple[str, int]:
    """Return the last group of a pattern that matches every text, and the position after the match."""
    match = pattern.match(value, at)
    assert match is not None  # noqa: S101 - the patterns also match an empty string
    return match[match.lastindex or 0], match.end()


def _is_about_context(anchor: str | None, context: str) -> bool:
    if anchor is None:
        return True
    try:
        base = URI.parse(context, "URI")
        return base.resolve(anchor).normalize() == base.normalize()
    except URIError:
        return False


#: bytes of a page that are parsed
MAX_PAGE_BYTES: Final = 512 * 1024
#: tags of a page that are parsed. The time and memory of an HTML5 parser grow with the square of their
#: number, because it opens formatting elements again in every paragraph
MAX_TAGS: Final = 1024

_HTML_SPACE: Final = " \t\n\f\r"
_TYPE: Final = re.compile(r"\s*text/html\s*(?:;|\Z)", re.IGNORECASE)
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9:_.+-]{1,40})\"?\s*(?:;|\Z)", re.IGNORECASE)
_META: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([A-Za-z0-9:_.+-]{1,40})", re.IGNORECASE
)
#: bytes in which a page may declare its encoding (HTML 13.2.3.2)
_PRESCAN: Final = 1024
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: accepted encodings, by Python's names. Encodings in which ASCII bytes may mean other characters are
#: rejected (UTF-7, UTF-16 without a mark, ISO-2022-*, EBCDIC), because filters may have read other characters
#: there
_ENCODINGS: Final = frozenset(
    {"utf-8", "ascii", "cp866", "koi8-r", "koi8-u", "gbk", "gb18030", "big5", "euc_jp", "euc_kr", "shift_jis"}
    | {f"iso8859-{number}" for number in (*range(1, 12), 13, 14, 15, 16)}
    | {f"cp125{number}" for number in range(9)}
)
#: the default of browsers (Encoding Standard 4.2); bytes without a character become replacement characters
_FALLBACK: Final = "cp1252"


def is_html(headers: Headers) -> bool:
    """Report whether the response has exactly one Content-Type and it is text/html."""
    values = headers.get_all("content-type")
    return len(values) == 1 and _TYPE.match(values[0]) is not None


def get_charset(headers: Headers) -> str | None:
    """Return the charset of the Content-Type, or None."""
    match = _CHARSET.search(headers.get("content-type") or "")
    return match[1] if match else None


def find_head_links(octets: bytes, charset: str | None = None) -> Pointers:
    """Return the targets of the head's links of the draft. `charset` is that of the Content-Type."""
    text = _decode_page(octets[:MAX_PAGE_BYTES], charset)
    if text is None:
        return Pointers(ignored=("the page, because its encoding is not supported",))
    targets = list(dict.fromkeys(_find_hrefs("<".join(text.split("<", MAX_TAGS + 1)[: MAX_TAGS + 1]))))
    ignored = () if len(targets) <= MAX_LINKS else (f"links after the first {MAX_LINKS}",)
    return Pointers(targets=tuple(targets[:MAX_LINKS]), ignored=ignored)


def _find_hrefs(text: str) -> list[str]:
    require_extra("selectolax", "ai")
    from selectolax.lexbor import LexborHTMLParser  # late: optional dependency (extra ai)

    head = LexborHTMLParser(text).head
    hrefs: list[str] = []
    node: Any = None if head is None else head.child
    while node is not None:
        if node.tag == "link":
            attributes = node.attributes
            relations = (attributes.get("rel") or "").translate(_LOWER).replace("\f", " ").split()
            href = (attributes.get("href") or "").strip(_HTML_SPACE)
            if RELATION in relations and href:
                hrefs.append(href)
        node = node.next
    return hrefs


#: only ASCII letters: str.lower would map other letters to ASCII too
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _decode_page(octets: bytes, charset: str | None) -> str | None:
    """Decode the page in the order of HTML 13.2.3: byte order mark, Content-Type, meta element, default."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if octets.startswith(mark):
            return octets[len(mark) :].decode(encoding, "replace")
    if charset is None:
        declared = _META.search(octets, 0, _PRESCAN)
        charset = declared[1].decode("ascii") if declared else _FALLBACK
    try:
        encoding = codecs.lookup(charset).name
    except LookupError:
        return None
    return octets.decode(encoding, "replace") if encoding in _ENCODINGS else None
