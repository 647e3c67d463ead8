"""`<link rel="aiip">` in the head of an HTML page as a discovery source (AIIP/HTTPS v1, 3.3 rule 5).

Only direct children of the head are read. An HTML5 parser decides what the head is, so untrusted text in the
page's body, a comment, a template or an SVG drawing has no effect.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final

from onym._lazy import require_extra
from onym.ai.discovery.link_header import MAX_LINKS, RELATION, Pointers
from onym.net.messages import Headers

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


def find_head_links(octets: bytes, charset: str | None = None, *, relation: str = RELATION) -> Pointers:
    """Return the targets of the head's links with this `relation`. `charset` is that of the Content-Type."""
    text = _decode_page(octets[:MAX_PAGE_BYTES], charset)
    if text is None:
        return Pointers(ignored=("the page, because its encoding is not supported",))
    targets = list(
        dict.fromkeys(_find_hrefs("<".join(text.split("<", MAX_TAGS + 1)[: MAX_TAGS + 1]), relation))
    )
    ignored = () if len(targets) <= MAX_LINKS else (f"links after the first {MAX_LINKS}",)
    return Pointers(targets=tuple(targets[:MAX_LINKS]), ignored=ignored)


def _find_hrefs(text: str, relation: str) -> list[str]:
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
            if relation in relations and href:
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
