"""`<link rel="aiip">` in the head of an HTML page as a discovery source (AIIP/HTTPS v1, 3.3 rule 5).

Only direct children of the head are read. An HTML5 parser decides what the head is, so text that somebody
else wrote into the page's body, a comment, a template or an SVG drawing has no effect.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any, Final

from onym._lazy import require_extra
from onym.ai.discovery.link_header import MAX_LINKS, RELATION, Pointers

if TYPE_CHECKING:
    from onym.net.messages import Headers

#: octets of a page that are read
MAX_OCTETS: Final = 512 * 1024
#: tags of a page that are read. The work and memory of an HTML5 parser grow with the square of their number:
#: elements that format text are opened again in each paragraph
MAX_TAGS: Final = 1024

_SPACE: Final = " \t\n\f\r"
_TYPE: Final = re.compile(r"\s*text/html\s*(?:;|\Z)", re.IGNORECASE)
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9:_.+-]{1,40})\"?\s*(?:;|\Z)", re.IGNORECASE)
_META: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([A-Za-z0-9:_.+-]{1,40})", re.IGNORECASE
)
#: octets in which a page may say its encoding (HTML 13.2.3.2)
_PRESCAN: Final = 1024
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: encodings of pages, by Python's name. Those where ASCII text may mean something else are not among them
#: (UTF-7, UTF-16 without a mark, ISO-2022-*, EBCDIC): a filter before us has read other characters there.
_ENCODINGS: Final = frozenset(
    {"utf-8", "ascii", "cp866", "koi8-r", "koi8-u", "gbk", "gb18030", "big5", "euc_jp", "euc_kr", "shift_jis"}
    | {f"iso8859-{number}" for number in (*range(1, 12), 13, 14, 15, 16)}
    | {f"cp125{number}" for number in range(9)}
)
#: what browsers take for it (Encoding Standard 4.2): what cannot be decoded shows as replacement characters
_FALLBACK: Final = "cp1252"


def is_html(headers: Headers) -> bool:
    """Does the answer say once that it is text/html?"""
    values = headers.get_all("content-type")
    return len(values) == 1 and _TYPE.match(values[0]) is not None


def get_charset(headers: Headers) -> str | None:
    """The charset of the Content-Type, None where it says none."""
    found = _CHARSET.search(headers.get("content-type") or "")
    return found[1] if found else None


def find_head_links(octets: bytes, charset: str | None = None, *, relation: str = RELATION) -> Pointers:
    """What the links of the page's head point at by `relation`. `charset` is the Content-Type's."""
    text = _decode_page(octets[:MAX_OCTETS], charset)
    if text is None:
        return Pointers(ignored=("a page in an encoding that is not read here",))
    targets = list(
        dict.fromkeys(_find_hrefs("<".join(text.split("<", MAX_TAGS + 1)[: MAX_TAGS + 1]), relation))
    )
    ignored = () if len(targets) <= MAX_LINKS else (f"what is beyond {MAX_LINKS} links",)
    return Pointers(targets=tuple(targets[:MAX_LINKS]), ignored=ignored)


def _find_hrefs(text: str, relation: str) -> list[str]:
    require_extra("selectolax", "ai")
    from selectolax.lexbor import LexborHTMLParser

    head = LexborHTMLParser(text).head
    found: list[str] = []
    node: Any = None if head is None else head.child
    while node is not None:
        if node.tag == "link":
            attributes = node.attributes
            relations = (attributes.get("rel") or "").translate(_LOWER).replace("\f", " ").split()
            href = (attributes.get("href") or "").strip(_SPACE)
            if relation in relations and href:
                found.append(href)
        node = node.next
    return found


#: ASCII alone, so that no other letter becomes one of ours
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _decode_page(octets: bytes, charset: str | None) -> str | None:
    """The page's text by the order of HTML 13.2.3: mark, Content-Type, the page's own word, a guess."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if octets.startswith(mark):
            return octets[len(mark) :].decode(encoding, "replace")
    if charset is None:
        said = _META.search(octets, 0, _PRESCAN)
        charset = said[1].decode("ascii") if said else _FALLBACK
    try:
        encoding = codecs.lookup(charset).name
    except LookupError:
        return None
    return octets.decode(encoding, "replace") if encoding in _ENCODINGS else None
