"""Pointers to an authority as discovery sources: DNS records, and links of a page (AIIP/HTTPS v1, 3.3). Pure.

SRV records say where to connect, TXT records, Link fields (RFC 8288) and links in an HTML head point to
resources; none brings keys. An HTML5 parser decides what the head is, so untrusted text in the page has no
effect.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, islice
from typing import Any, Final

from onym._lazy import require_extra
from onym.ai.discovery_document import try_canonicalize
from onym.ai.records import Source, Verdict
from onym.common.text import replace_unprintable, shorten_text
from onym.errors import URIError
from onym.net.hosts import parse_host
from onym.net.messages import SRV, Headers, Origin, Records
from onym.uri.generic import URI

_SRV: Final = "dns-srv"
_TXT: Final = "dns-txt"
_CONFLICT: Final = "aiip.discovery-conflict"
_DEFAULT_PORT: Final = 443
_KEY: Final = "endpoint="
#: characters of untrusted text that are shown
_SHOWN: Final = 256
#: targets that are used
_MOST_TARGETS: Final = 8
_VERDICTS: Final = {
    "found": Verdict.CONFIRMS,
    "none": Verdict.ABSENT,
    "failed": Verdict.FAILED,
    "bogus": Verdict.FAILED,
}
_BOGUS: Final = "DNSSEC validation failed"


def evaluate_srv(
    records: Records, *, host: str, port: int, draw: Callable[[], float]
) -> tuple[Source, tuple[Origin, ...]]:
    """Return the source and the targets for the service of `host`, in order; () means the host itself.

    `draw` returns random numbers from 0 to below 1, which choose by weight among targets of one priority
    (RFC 2782). At most 8 targets are returned. SRV records do not apply to an authority with a `port` (as in
    RFC 3263 4.2). The caller checks the targets with `drop_alias_targets`; the policy checks their ports and
    addresses before a connection.
    """
    source = _make_source(_SRV, f"_aiip._tcp.{host}", records)
    if records.status != "found":
        return source, ()
    if port != _DEFAULT_PORT:
        return _mark_dropped(source, "the authority has a port, so the records do not apply"), ()
    services = [value for value in records.values if isinstance(value, SRV)]
    # the policy decides about loopback addresses
    usable = [
        value
        for value in services
        if value.port > 0 and parse_host(value.target).kind in ("name", "loopback")
    ]
    targets = list(islice(_order_targets(usable, draw), _MOST_TARGETS))
    values = (
        f"{value.priority} {value.weight} {value.port} {value.target or '.'}"
        for value in [*targets, *services]
    )
    source = replace(source, said=tuple(dict.fromkeys(map(_make_printable, values))))
    if services and not any(value.target for value in services):
        # the target `.` (RFC 2782)
        why = "the record states that the domain does not offer the service"
        if source.validated:
            return replace(source, verdict=Verdict.CONTRADICTS, why=why, code=_CONFLICT), ()
        return _mark_dropped(source, f"{why}, but it is not signed (no DNSSEC)"), ()
    if not targets:
        return _mark_dropped(source, "no target has a host name and a port (RFC 2782)"), ()
    destination = "to this target" if len(targets) == 1 else "to the first target that accepts one"
    why = f"connections for the service go {destination}; TLS and Host keep the authority's name"
    return replace(source, why=why), tuple(Origin("https", value.target, value.port) for value in targets)


def drop_alias_targets(
    source: Source, answers: Sequence[tuple[Origin, Records | None]]
) -> tuple[Source, tuple[Origin, ...]]:
    """Remove the targets that are aliases, by the answers to the queries for CNAME records.

    A target whose answer is None was not queried, and is removed too.
    """
    left: list[Origin] = []
    removed: list[str] = []
    for connect, records in answers:
        if records is not None and records.status == "bogus":
            return _mark_failed(source, records.detail or _BOGUS), ()
        if records is not None and records.status == "none":
            left.append(connect)
            continue
        detail = "it was not queried" if records is None else records.detail
        why = f"it is unknown whether the target is an alias: {detail}"
        if records is not None and records.status == "found":
            why = "the target is an alias, which RFC 2782 forbids"
        removed.append(f"{connect.host}:{connect.port} ({why})" if len(answers) > 1 else why)
    if not left:
        return _mark_dropped(source, "; ".join(removed)), ()
    if removed:
        source = replace(source, why=f"{source.why}; removed: {'; '.join(removed)}")
    return source, tuple(left)


def evaluate_txt(records: Records, *, host: str) -> tuple[Source, tuple[str, ...]]:
    """Return the source and the canonical ai URI that `host` points to; no URI if there is not exactly one.

    A record is `endpoint=` and an ai URI. Records of other forms are ignored; invalid URIs are reported in
    the source.
    """
    source = _make_source(_TXT, f"_aiip.{host}", records)
    if records.status != "found":
        return source, ()
    values = _list_endpoints(records.values)
    canonical = {value: try_canonicalize(value) for value in values}
    good = tuple(dict.fromkeys(uri for uri in canonical.values() if uri is not None))
    source = replace(
        source, said=tuple(dict.fromkeys(uri or _make_printable(text) for text, uri in canonical.items()))
    )
    if not values:
        return replace(source, verdict=Verdict.ABSENT, why="no record contains endpoint="), ()
    if len(good) > 1:
        why = "several records point to different resources"
        return (_mark_failed(source, why) if source.validated else _mark_dropped(source, why)), ()
    bad = sum(uri is None for uri in canonical.values())
    malformed = f"{bad} of {len(canonical)} values not valid ai URIs" if bad else ""
    if not good:
        return _mark_dropped(source, malformed), ()
    return replace(
        source, why=malformed or "a pointer; the discovery document decides whether it applies"
    ), good


def _make_source(name: str, location: str, records: Records) -> Source:
    """Return the source by the status of the answer, without the content of the records."""
    rank, verdict = 2 if records.validated else 0, _VERDICTS[records.status]
    source = Source(name=name, rank=rank, location=location, verdict=verdict, validated=records.validated)
    if records.status == "bogus":
        # a forged answer must not count as an absent record
        return _mark_failed(source, records.detail or _BOGUS)
    return source if records.status == "found" else replace(source, why=records.detail)


def _mark_failed(source: Source, why: str) -> Source:
    return replace(source, verdict=Verdict.FAILED, why=why, code=_CONFLICT)


def _mark_dropped(source: Source, why: str) -> Source:
    return replace(source, verdict=Verdict.DROPPED, why=why)


def _order_targets(values: list[SRV], draw: Callable[[], float]) -> Iterator[SRV]:
    """Yield the targets by priority, and within a priority at random by weight (RFC 2782).

    The first of several records with the same target applies. The order of the answer has no effect.
    """
    places: dict[tuple[str, int], SRV] = {}
    for value in sorted(values, key=lambda value: (value.priority, -value.weight)):
        places.setdefault((value.target, value.port), value)
    for _, equals in groupby(places.values(), key=lambda value: value.priority):
        # weights of 0 first
        left = sorted(equals, key=lambda value: (value.weight > 0, value.target, value.port))
        while left:
            running = list(accumulate(value.weight for value in left))
            yield left.pop(bisect_left(running, int(draw() * (running[-1] + 1))))


def _list_endpoints(values: Iterable[SRV | str]) -> list[str]:
    """Return the values of the key without duplicates; the key is case-insensitive (as in RFC 6763 6.4)."""
    texts = (value for value in values if isinstance(value, str))
    return list(dict.fromkeys(text[len(_KEY) :] for text in texts if text[: len(_KEY)].lower() == _KEY))


def _make_printable(text: str) -> str:
    """Return untrusted text that is safe to print."""
    return replace_unprintable(shorten_text(text, _SHOWN + 1), "\N{REPLACEMENT CHARACTER}")


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
