"""Discovery: ask every source about an authority, and decide which statements apply (AIIP/HTTPS v1, 3.3).

The discovery document takes precedence. DNS records that DNSSEC validates may confirm or contradict it; a
contradiction ends the discovery. A Link header, an HTML head and unsigned DNS records only point to
resources.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from onym.ai.discovery import dns
from onym.ai.discovery.html import find_head_links, get_charset, is_html
from onym.ai.discovery.link_header import Pointers, find_pointers
from onym.ai.discovery.well_known import (
    fetch_document,
    fetch_keys,
    fetch_url,
    find_namespace,
    list_allowed_keys,
    parse_origin,
)
from onym.ai.discovery_document import (
    WELL_KNOWN,
    derive_anchor,
    find_claimed_authority,
    get_authority,
    parse_discovery_document,
)
from onym.ai.records import AnchorDocument, Namespace, Source, Verdict
from onym.ai.settings import SHORTEST_LIFE, CacheEntry
from onym.errors import DiscoveryError, URIError, UsageError
from onym.net.hosts import parse_host
from onym.net.messages import Ask, Origin, Records
from onym.uri.ai import AIURI
from onym.uri.generic import URI

if TYPE_CHECKING:
    from onym.ai.settings import ResolverSettings
    from onym.net.messages import Flow

__all__ = [
    "MAX_SHOWN",
    "POINTERS",
    "Candidate",
    "Discovery",
    "DiscoveryTarget",
    "WeighedSources",
    "discover_authority",
    "fetch_document",
    "fetch_first_target",
    "fetch_keys",
    "fetch_srv_targets",
    "find_namespace",
    "is_same_site",
    "list_resources",
    "parse_discovery_target",
    "try_canonicalize",
    "weigh_sources",
]

_LONGEST: Final = 2_048
_HINT: Final = "bank.example, https://bank.example/page, or an ai URI"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryTarget:
    """A question. `uri` is canonical, None where a host was asked about.

    `page` is the target of the request for the origin's page; `context` who speaks for `ai:/path`.
    """

    authority: str
    uri: str | None = None
    page: str = "/"
    context: Namespace | None = None

    @property
    def origin(self) -> str | None:
        """The origin of a DNS authority; None for a registry name and for none at all."""
        return derive_anchor(self.authority)


def parse_discovery_target(question: str | AIURI, settings: ResolverSettings) -> DiscoveryTarget:
    """The question, read. Raises UsageError for text that is none, URIError for a malformed ai URI."""
    text = str(question).strip()
    if text[:3].lower() == "ai:":
        return _parse_uri_target(text, settings)
    if not text or len(text) > _LONGEST:
        raise _make_target_error("nothing to discover is named")
    try:
        uri = URI.parse(text if "://" in text else f"https://{text}", "URI").normalize()
        if uri.scheme != "https":
            raise _make_target_error("the scheme is not https: nothing is fetched over plain HTTP")
        if uri.userinfo is not None:
            raise _make_target_error("it has userinfo, which discovery does not send")
        canonical = AIURI.parse(f"ai://{uri.authority}/").canonical()
    except URIError as error:
        raise _make_target_error(f"no host can be read there: {error.message}") from None
    query = "" if uri.query is None else f"?{uri.query}"
    return DiscoveryTarget(authority=get_authority(canonical), page=(uri.path or "/") + query)


def _parse_uri_target(text: str, settings: ResolverSettings) -> DiscoveryTarget:
    uri = AIURI.parse(text)
    canonical = uri.canonical()
    authority = get_authority(canonical)
    context = settings.find_context(AIURI.parse(canonical).path) if uri.authority is None else None
    return DiscoveryTarget(authority=authority, uri=canonical, context=context)


def _make_target_error(message: str) -> UsageError:
    return UsageError(message, code="usage.discover", hint=_HINT)


#: the sources that point at ai URIs
POINTERS: Final = ("dns-txt", "link", "html")
#: characters of a stranger's text that are shown
MAX_SHOWN: Final = 256
_CLAUSE: Final = "AIIP/HTTPS v1 3.3"
_CONFLICT: Final = "aiip.discovery-conflict"
_GRAVITY: Final = (Verdict.CONTRADICTS, Verdict.CONFIRMS, Verdict.DROPPED)
_PAGE_RANK: Final = 1
_SIGNED_RANK: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An ai URI that was found, canonical. Unconfirmed, it may be shown, and nothing may be spent on it."""

    uri: str
    confirmed: bool
    by: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedSources:
    """The sources with their verdicts, what they lead to, and the error that ends the discovery, if any."""

    sources: tuple[Source, ...]
    candidates: tuple[Candidate, ...] = ()
    refusal: DiscoveryError | None = None


def weigh_sources(
    origin: str,
    authority: str,
    document: AnchorDocument | None,
    sources: Sequence[Source],
    named: Mapping[str, AnchorDocument] | None = None,
) -> WeighedSources:
    """What becomes of each source's word.

    `origin` is the https origin that the page and DNS sources are of, `authority` its own and `document` what
    its anchor says, None where that could not be used. `named` holds the documents of other authorities that
    were pointed at. Sources of pointers come with their targets as written.
    """
    spelt = [_canonicalize_source(each) for each in sources]
    spelt = _reject_ambiguous_pages(spelt)
    weighed, found = (
        [],
        [_make_own_candidate(uri, spelt) for uri in (list_resources(document) if document else ())],
    )
    for source in spelt:
        if source.name not in POINTERS or source.verdict is not Verdict.CONFIRMS:
            weighed.append(source)
            continue
        judged = [
            _judge_pointer(uri, source, origin, authority, document, named or {}) for uri in source.said
        ]
        weighed.append(_combine_verdicts(source, judged))
        found += [each.candidate for each in judged if each.candidate is not None]
    return WeighedSources(
        sources=tuple(weighed), candidates=_merge_candidates(found), refusal=_make_refusal(weighed, authority)
    )


def list_resources(document: AnchorDocument) -> tuple[str, ...]:
    """The resources that a document names."""
    first = () if document.endpoint is None else (document.endpoint,)
    return tuple(dict.fromkeys([*first, *(row.uri for row in document.endpoints)]))


def try_canonicalize(text: str) -> str | None:
    """The canonical form of a pointer; None for one that is malformed."""
    try:
        return AIURI.parse(text).canonical()
    except URIError:
        return None


def is_same_site(one: str, other: str) -> bool:
    """Do two https origins lie under one registrable domain (public suffix list)?"""
    first, second = (_find_registrable_domain(URI.parse(each).host or "") for each in (one, other))
    return first is not None and first == second


@dataclass(frozen=True, slots=True)
class _PointerVerdict:
    verdict: Verdict
    why: str
    candidate: Candidate | None = None


def _canonicalize_source(source: Source) -> Source:
    """Rule 1: every URI canonical; malformed ones are dropped, and reported."""
    if source.name not in POINTERS or source.verdict is not Verdict.CONFIRMS:
        return source
    pairs = [(text, try_canonicalize(text)) for text in source.said]
    good = tuple(dict.fromkeys(uri for _, uri in pairs if uri is not None))
    bad = [text[:MAX_SHOWN] for text, uri in pairs if uri is None]
    why = f"no ai URI that can be used: {', '.join(bad)}" if bad else source.why
    if not good:
        verdict = Verdict.DROPPED if bad else Verdict.ABSENT
        return replace(source, said=(), verdict=verdict, why=why)
    return replace(source, said=good, why=why)


def _reject_ambiguous_pages(sources: list[Source]) -> list[Source]:
    """Rule 2, its end: two different values of rank 1 cannot both be meant."""
    pages = [each for each in sources if each.rank == _PAGE_RANK and each.verdict is Verdict.CONFIRMS]
    if len({uri for each in pages for uri in each.said}) < 2:
        return sources
    why = "the origin points at different resources, and nothing says which is meant"
    return [
        replace(each, verdict=Verdict.CONTRADICTS, why=why, code=_CONFLICT) if each in pages else each
        for each in sources
    ]


def _make_own_candidate(uri: str, sources: Sequence[Source]) -> Candidate:
    agree = [each.name for each in sources if each.verdict is Verdict.CONFIRMS and uri in each.said]
    return Candidate(uri=uri, confirmed=True, by=("anchor", *agree), why="the anchor's document lists it")


def _judge_pointer(
    uri: str,
    source: Source,
    origin: str,
    authority: str,
    document: AnchorDocument | None,
    named: Mapping[str, AnchorDocument],
) -> _PointerVerdict:
    whose = get_authority(uri)
    if whose != authority:
        return _judge_foreign_pointer(uri, source, origin, document, named.get(whose))
    if document is None:
        return _PointerVerdict(Verdict.DROPPED, f"no anchor document speaks for {authority}")
    names = list_resources(document)
    if not names or uri.partition("?")[0] in names:
        why = "the anchor's document agrees"
        return _PointerVerdict(
            Verdict.CONFIRMS, why, Candidate(uri=uri, confirmed=True, by=(source.name,), why=why)
        )
    return _make_disagreement(source, f"the anchor's document does not list {uri}")


def _judge_foreign_pointer(
    uri: str, source: Source, origin: str, document: AnchorDocument | None, theirs: AnchorDocument | None
) -> _PointerVerdict:
    """Rule 3: an origin that names another authority's resource needs that authority's word."""
    why = _find_confirmation(uri, origin, theirs)
    if why is not None:
        return _PointerVerdict(
            Verdict.CONFIRMS, why, Candidate(uri=uri, confirmed=True, by=(source.name,), why=why)
        )
    whose = get_authority(uri)
    if document is not None and source.rank >= _SIGNED_RANK:
        return _make_disagreement(source, f"it points at {whose}, which does not confirm it")
    why = f"{whose} does not confirm that {origin} may speak of it"
    found = Candidate(uri=uri, confirmed=False, by=(source.name,), why=why)
    return _PointerVerdict(Verdict.DROPPED, why, found)


def _find_confirmation(uri: str, origin: str, theirs: AnchorDocument | None) -> str | None:
    """Why another authority's word covers this pointer; None where it does not."""
    if theirs is None:
        return None
    if origin in theirs.origins:
        return f"{theirs.authority} lists {origin} among its origins"
    if uri.partition("?")[0] in list_resources(theirs) and is_same_site(origin, theirs.anchor):
        return f"{theirs.authority} is of the same registrable domain, and lists it"
    return None


def _make_disagreement(source: Source, why: str) -> _PointerVerdict:
    verdict = Verdict.CONTRADICTS if source.rank >= _SIGNED_RANK else Verdict.DROPPED
    return _PointerVerdict(verdict, why)


def _combine_verdicts(source: Source, judged: Sequence[_PointerVerdict]) -> Source:
    """One verdict for all that a source said: a contradiction, else what holds of it, else dropped."""
    verdict = min((each.verdict for each in judged), key=_GRAVITY.index)
    told = [each.why for each in judged if each.verdict is verdict]
    told += [each.why for each in judged if each.verdict is Verdict.DROPPED]
    why = "; ".join(dict.fromkeys([*told, *([source.why] if source.why else [])]))
    code = _CONFLICT if verdict is Verdict.CONTRADICTS else source.code
    return replace(source, verdict=verdict, why=why, code=code)


def _merge_candidates(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Each URI once, with all who named it."""
    kept: dict[str, Candidate] = {}
    for each in found:
        before = kept.get(each.uri)
        if before is None:
            kept[each.uri] = each
            continue
        best = before if before.confirmed or not each.confirmed else each
        kept[each.uri] = replace(best, by=tuple(dict.fromkeys([*before.by, *each.by])))
    return tuple(kept.values())


def _make_refusal(sources: Sequence[Source], authority: str) -> DiscoveryError | None:
    """The first source that ends the discovery, as an error."""
    stop = next((each for each in sources if each.code is not None), None)
    if stop is None:
        return None
    return DiscoveryError(
        f"{authority}: {stop.name} ({stop.location}): {stop.why}",
        code=stop.code,
        clause=_CLAUSE,
        hint="onym ai discover shows every source",
    )


def _find_registrable_domain(host: str) -> str | None:
    """The registrable domain; None for an address and for a public suffix."""
    return _load_public_suffixes().privatesuffix(host) if parse_host(host).kind == "name" else None


@cache
def _load_public_suffixes() -> Any:
    from publicsuffixlist import PublicSuffixList  # its list is read from a file

    return PublicSuffixList()


#: authorities that a page or DNS points at and that are asked whether they know of it
_MOST_NAMED: Final = 4
#: octets of a page, of which the first part is read: many are long, and their head is not
_LONGEST_PAGE: Final = 8 * 1024 * 1024
#: seconds for which DNS that did not answer is not asked again: callers would wait for it one after another
_FAILED_DNS_SECONDS: Final = 5.0
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

    def require_success(self) -> Discovery:
        """This discovery, where it came to a good end. Raises its refusal else."""
        if self.refusal is not None:
            raise self.refusal
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class _AnchorStatement:
    """What the anchor says, as far as it could be had."""

    authority: str
    anchor: str | None = None
    document: AnchorDocument | None = None
    kids: Collection[str] = ()
    sources: tuple[Source, ...] = ()
    failure: DiscoveryError | None = None


def discover_authority(question: str | AIURI, settings: ResolverSettings) -> Flow[Discovery]:
    """Ask every source about a host, an https address or an ai URI. A conflict is told, not raised.

    Raises UsageError and URIError for a question that cannot be read.
    """
    flow = _ask_sources(question, settings)
    return flow if settings.telemetry is None else settings.telemetry.observe_explanation(flow)


def _ask_sources(question: str | AIURI, settings: ResolverSettings) -> Flow[Discovery]:
    asked = parse_discovery_target(question, settings)
    spoken = yield from _fetch_statement(asked, settings)
    sources = list(spoken.sources)
    targets: tuple[Origin, ...] = ()
    origin = asked.origin or spoken.anchor
    if asked.origin is not None and settings.dns:
        found, targets = yield from _fetch_dns_sources(asked.authority, settings)
        sources += found
    if origin is not None:
        sources += yield from _fetch_page_sources(origin, asked.page, settings)
    named = yield from _fetch_named_documents(sources, spoken.authority, settings)
    weighed = weigh_sources(origin or "", spoken.authority, spoken.document, sources, named)
    refusal = weighed.refusal or _make_failure(spoken, weighed.candidates)
    if refusal is not None or not _is_service_at_anchor(spoken.document):
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


def _is_service_at_anchor(document: AnchorDocument | None) -> bool:
    """Is the service at the anchor itself? DNS speaks for that host alone."""
    return document is not None and parse_origin(document.service) == parse_origin(document.anchor)


def fetch_first_target(
    document: AnchorDocument, settings: ResolverSettings
) -> Flow[tuple[Origin | None, tuple[Source, ...]]]:
    """The first of `fetch_srv_targets`, None for the authority's own host; and what the DNS sources said."""
    targets, sources = yield from fetch_srv_targets(document, settings)
    return next(iter(targets), None), sources


def fetch_srv_targets(
    document: AnchorDocument, settings: ResolverSettings
) -> Flow[tuple[tuple[Origin, ...], tuple[Source, ...]]]:
    """Where DNS says that the authority's service is, () for its own host; and what the DNS sources said.

    The targets are in the order in which to try them. Only an answer that DNSSEC vouches for leads anywhere.
    Raises DiscoveryError (aiip.discovery-conflict) where one contradicts the document, or where DNSSEC shows
    an answer to be false.
    """
    authority = document.authority
    if not settings.dns or derive_anchor(authority) is None:
        return (), ()
    key, now = f"dns {authority}", settings.clock()
    kept = settings.cache.get(key)
    if kept is not None and 0 < kept.expires - now <= SHORTEST_LIFE:
        targets, sources = kept.value
    else:
        sources, targets = yield from _fetch_dns_sources(authority, settings)
        life = _get_dns_cache_seconds(sources)
        if life:
            settings.cache.put(key, CacheEntry(value=(targets, sources), expires=settings.clock() + life))
    named = yield from _fetch_named_documents(
        [each for each in sources if each.validated], authority, settings
    )
    weighed = weigh_sources(document.anchor, authority, document, sources, named)
    if weighed.refusal is not None:
        raise weighed.refusal
    return targets, weighed.sources


def _get_dns_cache_seconds(sources: Sequence[Source]) -> float:
    """Seconds for which this answer is kept: shortly where none came, not at all where one was bogus."""
    failed = [each for each in sources if each.verdict is Verdict.FAILED]
    if any(each.code for each in failed):
        return 0.0
    return _FAILED_DNS_SECONDS if failed else SHORTEST_LIFE


def _fetch_statement(asked: DiscoveryTarget, settings: ResolverSettings) -> Flow[_AnchorStatement]:
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
        return _AnchorStatement(authority=asked.authority, sources=(failed,), failure=error)
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
    return (yield from _fetch_anchor_statement(asked, found, sources, settings))


def _fetch_anchor_statement(
    asked: DiscoveryTarget, found: Namespace, sources: tuple[Source, ...], settings: ResolverSettings
) -> Flow[_AnchorStatement]:
    spoken = _AnchorStatement(authority=asked.authority, anchor=found.anchor)
    source = Source(name="anchor", rank=3, location=found.anchor + WELL_KNOWN, verdict=Verdict.WON)

    def read(octets: bytes) -> AnchorDocument:
        whose = _choose_authority(octets, asked, found.anchor, settings)
        return parse_discovery_document(octets, anchor=found.anchor, authority=whose)

    try:
        only = found.keys if asked.authority == "_" else None
        document = yield from fetch_document(
            asked.authority, settings, anchor=found.anchor, read=read, only=only
        )
        spoken = replace(spoken, authority=document.authority, document=document)
        source = replace(source, said=list_resources(document))
        keys = yield from fetch_keys(
            document, settings, only=list_allowed_keys(document, settings) if only is None else only
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


def _choose_authority(octets: bytes, asked: DiscoveryTarget, anchor: str, settings: ResolverSettings) -> str:
    """Whom the anchor speaks for: where a host was asked about, a registry may name another authority."""
    claimed = find_claimed_authority(octets)
    if asked.uri is not None or asked.origin is None or claimed is None or claimed == asked.authority:
        return asked.authority
    for each in settings.namespaces:
        found = each.find(claimed, settings.clock())
        if found is not None and found.anchor == anchor:
            return claimed
    return asked.authority


def _fetch_dns_sources(
    authority: str, settings: ResolverSettings
) -> Flow[tuple[tuple[Source, ...], tuple[Origin, ...]]]:
    """SRV and TXT of an authority, and where the first leads if DNSSEC vouches for it."""
    host, _, port = authority.partition(":")
    records = yield from _fetch_records(dns.make_srv_query(host, settings.timeout))
    where, targets = dns.evaluate_srv(records, host=host, port=int(port or 443), draw=_RANDOM.random)
    if targets and where.validated:
        where, targets = dns.drop_alias_targets(where, (yield from _fetch_aliases(targets, settings)))
    elif targets:
        where, targets = replace(where, verdict=Verdict.DROPPED, why=_UNSIGNED), ()
    records = yield from _fetch_records(dns.make_txt_query(host, settings.timeout))
    pointer, _ = dns.evaluate_txt(records, host=host)
    return (where, pointer), targets


def _fetch_aliases(
    targets: tuple[Origin, ...], settings: ResolverSettings
) -> Flow[list[tuple[Origin, Records | None]]]:
    """What DNS says of each target's name. Where it says nothing once, it is not waited for again."""
    answers: list[tuple[Origin, Records | None]] = []
    silent = False
    for target in targets:
        records = (
            None if silent else (yield from _fetch_records(dns.make_alias_query(target, settings.timeout)))
        )
        silent = silent or (records is not None and records.status == "failed")
        answers.append((target, records))
    return answers


def _fetch_records(ask: Ask) -> Flow[Records]:
    records = yield ask
    assert isinstance(records, Records)  # noqa: S101 - drivers answer Ask with Records
    return records


def _fetch_page_sources(origin: str, target: str, settings: ResolverSettings) -> Flow[list[Source]]:
    """What the origin's page points at, by header and by head. It matters only where it is a 2xx answer."""
    url = origin + target.partition("?")[0]
    blank = Source(name="link", rank=1, location=url, verdict=Verdict.ABSENT)
    try:
        reply = yield from fetch_url(url, settings, accept="text/html", limit=_LONGEST_PAGE, target=target)
    except DiscoveryError as error:
        return [replace(blank, verdict=Verdict.FAILED, why=error.message)]
    if not 200 <= reply.status < 300:
        return [replace(blank, why=f"an answer of status {reply.status} does not count")]
    head = replace(blank, name="html", rank=0)
    if is_html(reply.headers):
        head = _add_pointers(head, find_head_links(reply.body, get_charset(reply.headers)))
    return [_add_pointers(blank, find_pointers(reply.headers.get_all("link"), context=url)), head]


def _add_pointers(source: Source, found: Pointers) -> Source:
    why = f"left out: {', '.join(each[:MAX_SHOWN] for each in found.ignored)}" if found.ignored else ""
    verdict = Verdict.CONFIRMS if found.targets else Verdict.ABSENT
    return replace(source, verdict=verdict, said=found.targets, why=why)


def _fetch_named_documents(
    sources: Sequence[Source], own: str, settings: ResolverSettings
) -> Flow[dict[str, AnchorDocument]]:
    """The documents of other authorities that were pointed at, as far as they can be had."""
    uris = (
        try_canonicalize(text)
        for each in sources
        if each.name in POINTERS and each.verdict is Verdict.CONFIRMS
        for text in each.said
    )
    others = dict.fromkeys(get_authority(uri) for uri in uris if uri is not None)
    found: dict[str, AnchorDocument] = {}
    for authority in [each for each in others if each not in {own, "_"}][:_MOST_NAMED]:
        try:
            found[authority] = yield from fetch_document(authority, settings)
        except DiscoveryError:
            continue  # it does not confirm
    return found


def _make_failure(spoken: _AnchorStatement, candidates: Sequence[Candidate]) -> DiscoveryError | None:
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
