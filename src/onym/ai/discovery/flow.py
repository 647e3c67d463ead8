"""Discovery as steps for `net.run` and `net.arun`: every source asked, weighed and explained (3.3).

A resolver needs less: `fetch_anchor`, `fetch_keys` and `fetch_targets`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from onym.ai.anchor import WELL_KNOWN, anchor_of, authority_of, claimed_authority, read_anchor
from onym.ai.discovery import dns
from onym.ai.discovery.cache import SHORTEST_LIFE, Cached
from onym.ai.discovery.fetch import allowed_keys, fetch_anchor, fetch_keys, find_namespace, get, origin_of
from onym.ai.discovery.html import charset_of, head_links, is_html
from onym.ai.discovery.link import Pointers, links
from onym.ai.discovery.question import Asked, read_question
from onym.ai.discovery.rank import MAX_SHOWN, POINTERS, Candidate, canonical, listed, weigh
from onym.ai.records import AnchorDocument, Namespace, Source, Verdict
from onym.errors import DiscoveryError
from onym.net.messages import Ask, Origin, Records

if TYPE_CHECKING:
    from onym.ai.settings import ResolverSettings
    from onym.net.messages import Flow
    from onym.uri.ai import AIURI

__all__ = [
    "Discovery",
    "discover",
    "fetch_anchor",
    "fetch_connect",
    "fetch_keys",
    "fetch_targets",
    "find_namespace",
]

#: authorities that a page or DNS points at and that are asked whether they know of it
_MOST_NAMED: Final = 4
#: octets of a page, of which the first part is read: many are long, and their head is not
_LONGEST_PAGE: Final = 8 * 1024 * 1024
#: seconds for which DNS that did not answer is not asked again: callers would wait for it one after another
_SILENCE_LIFE: Final = 5.0
_UNKNOWN: Final = "aiip.unknown-authority"
_UNSIGNED: Final = "nobody vouches for it (no DNSSEC), so connections go to the service's own host"
_RANDOM: Final = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What became of a question: who answers for it, what was found, and what each source said.

    `document` and `kids` (thumbprints of the keys) are the anchor's. `connect` and `fallbacks` are those of a
    `Resolution`. `refusal` is the error that a resolver ends with, None where all is well.
    """

    authority: str
    anchor: str | None
    document: AnchorDocument | None
    kids: tuple[str, ...]
    sources: tuple[Source, ...]
    candidates: tuple[Candidate, ...]
    connect: Origin | None = None
    fallbacks: tuple[Origin, ...] = ()
    refusal: DiscoveryError | None = None

    def require(self) -> Discovery:
        """This discovery, where it came to a good end. Raises its refusal else."""
        if self.refusal is not None:
            raise self.refusal
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spoken:
    """What the anchor says, as far as it could be had."""

    authority: str
    anchor: str | None = None
    document: AnchorDocument | None = None
    kids: Collection[str] = ()
    sources: tuple[Source, ...] = ()
    failure: DiscoveryError | None = None


def discover(question: str | AIURI, settings: ResolverSettings) -> Flow[Discovery]:
    """Ask every source about a host, an https address or an ai URI. A conflict is told, not raised.

    Raises UsageError and URIError for a question that cannot be read.
    """
    flow = _discover(question, settings)
    return flow if settings.telemetry is None else settings.telemetry.explaining(flow)


def _discover(question: str | AIURI, settings: ResolverSettings) -> Flow[Discovery]:
    asked = read_question(question, settings)
    spoken = yield from _speaking(asked, settings)
    sources = list(spoken.sources)
    targets: tuple[Origin, ...] = ()
    origin = asked.origin or spoken.anchor
    if asked.origin is not None and settings.dns:
        found, targets = yield from _dns_sources(asked.authority, settings)
        sources += found
    if origin is not None:
        sources += yield from _page_sources(origin, asked.page, settings)
    named = yield from _named(sources, spoken.authority, settings)
    weighed = weigh(origin or "", spoken.authority, spoken.document, sources, named)
    refusal = weighed.refusal or _end(spoken, weighed.candidates)
    if refusal is not None or not _at_home(spoken.document):
        targets = ()
    return Discovery(
        authority=spoken.authority,
        anchor=spoken.anchor,
        document=spoken.document,
        kids=tuple(sorted(spoken.kids)),
        sources=weighed.sources,
        candidates=weighed.candidates,
        connect=next(iter(targets), None),
        fallbacks=targets[1:],
        refusal=refusal,
    )


def _at_home(document: AnchorDocument | None) -> bool:
    """Is the service at the anchor itself? DNS speaks for that host alone."""
    return document is not None and origin_of(document.service) == origin_of(document.anchor)


def fetch_connect(
    document: AnchorDocument, settings: ResolverSettings
) -> Flow[tuple[Origin | None, tuple[Source, ...]]]:
    """The first of `fetch_targets`, None for the authority's own host; and what the DNS sources said."""
    targets, sources = yield from fetch_targets(document, settings)
    return next(iter(targets), None), sources


def fetch_targets(
    document: AnchorDocument, settings: ResolverSettings
) -> Flow[tuple[tuple[Origin, ...], tuple[Source, ...]]]:
    """Where DNS says that the authority's service is, () for its own host; and what the DNS sources said.

    The targets are in the order in which to try them. Only an answer that DNSSEC vouches for leads anywhere.
    Raises DiscoveryError (aiip.discovery-conflict) where one contradicts the document, or where DNSSEC shows
    an answer to be false.
    """
    authority = document.authority
    if not settings.dns or anchor_of(authority) is None:
        return (), ()
    key, now = f"dns {authority}", settings.clock()
    kept = settings.cache.get(key)
    if kept is not None and 0 < kept.expires - now <= SHORTEST_LIFE:
        targets, sources = kept.value
    else:
        sources, targets = yield from _dns_sources(authority, settings)
        life = _dns_life(sources)
        if life:
            settings.cache.put(key, Cached(value=(targets, sources), expires=settings.clock() + life))
    named = yield from _named([each for each in sources if each.validated], authority, settings)
    weighed = weigh(document.anchor, authority, document, sources, named)
    if weighed.refusal is not None:
        raise weighed.refusal
    return targets, weighed.sources


def _dns_life(sources: Sequence[Source]) -> float:
    """Seconds for which this answer is kept: shortly where none came, not at all where one was bogus."""
    failed = [each for each in sources if each.verdict is Verdict.FAILED]
    if any(each.code for each in failed):
        return 0.0
    return _SILENCE_LIFE if failed else SHORTEST_LIFE


def _speaking(asked: Asked, settings: ResolverSettings) -> Flow[_Spoken]:
    """The anchor's document and keys, held against what it said before."""
    name = "context" if asked.authority == "_" else "registry"
    sources: tuple[Source, ...] = ()
    try:
        found = asked.context if asked.authority == "_" else find_namespace(asked.authority, settings)
        if found is None:
            raise DiscoveryError(
                "no context says who speaks for ai:/path here", code=_UNKNOWN, clause="AIIP/HTTPS v1 3.1"
            )
    except DiscoveryError as error:
        failed = Source(
            name=name, rank=3, location=asked.authority, verdict=Verdict.FAILED, why=error.message
        )
        return _Spoken(authority=asked.authority, sources=(failed,), failure=error)
    if asked.origin is None:
        why = "it says who speaks for this name" + (", and with which keys" if found.keys else "")
        sources = (
            Source(
                name=name,
                rank=3,
                location=asked.authority,
                verdict=Verdict.WON,
                said=(found.anchor,),
                why=why,
            ),
        )
    return (yield from _anchored(asked, found, sources, settings))


def _anchored(
    asked: Asked, found: Namespace, sources: tuple[Source, ...], settings: ResolverSettings
) -> Flow[_Spoken]:
    spoken = _Spoken(authority=asked.authority, anchor=found.anchor)
    source = Source(name="anchor", rank=3, location=found.anchor + WELL_KNOWN, verdict=Verdict.WON)

    def read(octets: bytes) -> AnchorDocument:
        whose = _whose(octets, asked, found.anchor, settings)
        return read_anchor(octets, anchor=found.anchor, authority=whose)

    try:
        only = found.keys if asked.authority == "_" else None
        document = yield from fetch_anchor(
            asked.authority, settings, anchor=found.anchor, read=read, only=only
        )
        spoken = replace(spoken, authority=document.authority, document=document)
        source = replace(source, said=listed(document))
        keys = yield from fetch_keys(
            document, settings, only=allowed_keys(document, settings) if only is None else only
        )
        if not keys.kids:
            raise DiscoveryError(
                f"{document.authority} publishes no key that can verify its results",
                code="aiip.discovery-conflict",
                clause="AIIP/HTTPS v1 3.9",
            )
        settings.pins.check(document.speaker, document, keys.kids, settings.clock())
    except DiscoveryError as error:
        verdict = Verdict.ABSENT if error.code == _UNKNOWN else Verdict.FAILED
        failed = replace(source, verdict=verdict, why=error.message)
        return replace(spoken, document=None, sources=(*sources, failed), failure=error)
    won = replace(source, why="the authority's own document, over TLS, decides")
    return replace(spoken, kids=keys.kids, sources=(*sources, won))


def _whose(octets: bytes, asked: Asked, anchor: str, settings: ResolverSettings) -> str:
    """Whom the anchor speaks for: where a host was asked about, a registry may name another authority."""
    claimed = claimed_authority(octets)
    if asked.uri is not None or asked.origin is None or claimed is None or claimed == asked.authority:
        return asked.authority
    for each in settings.namespaces:
        found = each.find(claimed, settings.clock())
        if found is not None and found.anchor == anchor:
            return claimed
    return asked.authority


def _dns_sources(
    authority: str, settings: ResolverSettings
) -> Flow[tuple[tuple[Source, ...], tuple[Origin, ...]]]:
    """SRV and TXT of an authority, and where the first leads if DNSSEC vouches for it."""
    host, _, port = authority.partition(":")
    records = yield from _ask(dns.srv_question(host, settings.timeout))
    where, targets = dns.evaluate_srv(records, host=host, port=int(port or 443), draw=_RANDOM.random)
    if targets and where.validated:
        where, targets = dns.refuse_aliases(where, (yield from _aliases(targets, settings)))
    elif targets:
        where, targets = replace(where, verdict=Verdict.DROPPED, why=_UNSIGNED), ()
    records = yield from _ask(dns.txt_question(host, settings.timeout))
    pointer, _ = dns.evaluate_txt(records, host=host)
    return (where, pointer), targets


def _aliases(
    targets: tuple[Origin, ...], settings: ResolverSettings
) -> Flow[list[tuple[Origin, Records | None]]]:
    """What DNS says of each target's name. Where it says nothing once, it is not waited for again."""
    answers: list[tuple[Origin, Records | None]] = []
    silent = False
    for target in targets:
        records = None if silent else (yield from _ask(dns.alias_question(target, settings.timeout)))
        silent = silent or (records is not None and records.status == "failed")
        answers.append((target, records))
    return answers


def _ask(ask: Ask) -> Flow[Records]:
    records = yield ask
    assert isinstance(records, Records)  # noqa: S101 - drivers answer Ask with Records
    return records


def _page_sources(origin: str, target: str, settings: ResolverSettings) -> Flow[list[Source]]:
    """What the origin's page points at, by header and by head. It matters only where it is a 2xx answer."""
    url = origin + target.partition("?")[0]
    blank = Source(name="link", rank=1, location=url, verdict=Verdict.ABSENT)
    try:
        reply = yield from get(url, settings, accept="text/html", limit=_LONGEST_PAGE, target=target)
    except DiscoveryError as error:
        return [replace(blank, verdict=Verdict.FAILED, why=error.message)]
    if not 200 <= reply.status < 300:
        return [replace(blank, why=f"an answer of status {reply.status} does not count")]
    head = replace(blank, name="html", rank=0)
    if is_html(reply.headers):
        head = _pointing(head, head_links(reply.body, charset_of(reply.headers)))
    return [_pointing(blank, links(reply.headers.get_all("link"), context=url)), head]


def _pointing(source: Source, found: Pointers) -> Source:
    why = f"left out: {', '.join(each[:MAX_SHOWN] for each in found.ignored)}" if found.ignored else ""
    verdict = Verdict.CONFIRMS if found.targets else Verdict.ABSENT
    return replace(source, verdict=verdict, said=found.targets, why=why)


def _named(
    sources: Sequence[Source], own: str, settings: ResolverSettings
) -> Flow[dict[str, AnchorDocument]]:
    """The documents of other authorities that were pointed at, as far as they can be had."""
    uris = (
        canonical(text)
        for each in sources
        if each.name in POINTERS and each.verdict is Verdict.CONFIRMS
        for text in each.said
    )
    others = dict.fromkeys(authority_of(uri) for uri in uris if uri is not None)
    found: dict[str, AnchorDocument] = {}
    for authority in [each for each in others if each not in {own, "_"}][:_MOST_NAMED]:
        try:
            found[authority] = yield from fetch_anchor(authority, settings)
        except DiscoveryError:
            continue  # it does not confirm
    return found


def _end(spoken: _Spoken, candidates: Sequence[Candidate]) -> DiscoveryError | None:
    """Why there is no way to the authority, where no source contradicts another."""
    failure = spoken.failure
    if failure is None or failure.code != _UNKNOWN or not candidates:
        return failure
    if any(each.confirmed for each in candidates):
        return None
    return DiscoveryError(
        f"{spoken.authority} points at {candidates[0].uri}, whose authority does not confirm it",
        code="aiip.unconfirmed-origin",
        clause="AIIP/HTTPS v1 3.3 rule 3",
        hint="that authority may list this origin in `origins` of its anchor document",
    )
