"""Discovery: query every source about an authority and decide which statements apply (AIIP/HTTPS v1, 3.3).

The discovery document takes precedence. DNS records that DNSSEC validates may confirm or contradict it; a
contradiction ends the discovery. A Link header, an HTML head and unsigned DNS records only point to
resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import SystemRandom
from typing import Any, Final, TypeAlias

from onym.ai import discovery_document
from onym.ai.discovery import pointers, well_known
from onym.ai.discovery.pointers import Pointers, find_head_links, find_pointers, get_charset, is_html
from onym.ai.records import NO_AUTHORITY, AnchorDocument, Namespace, Source, Verdict
from onym.ai.settings import SHORTEST_LIFE, CacheEntry, ResolverSettings
from onym.errors import DiscoveryError, URIError, UsageError
from onym.net.hosts import parse_host
from onym.net.messages import Ask, Flow, Origin, Records
from onym.uri.ai import AIURI
from onym.uri.generic import URI

_LONGEST: Final = 2_048
_HINT: Final = "Pass a host (bank.example), an https URL or an ai URI."


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryTarget:
    """What to discover. `uri` is canonical, or None for a host.

    `page` is the request target of the origin's page; `context` is the namespace of `ai:/path`.
    """

    authority: str
    uri: str | None = None
    page: str = "/"
    context: Namespace | None = None

    @property
    def origin(self) -> str | None:
        """The origin of a DNS authority; None for a registry name and without an authority."""
        return discovery_document.derive_anchor(self.authority)


def parse_discovery_target(question: str | AIURI, settings: ResolverSettings) -> DiscoveryTarget:
    """Parse a host, an https URL or an ai URI.

    Raises UsageError for other text, URIError for an invalid ai URI.
    """
    text = str(question).strip()
    if text[:3].lower() == "ai:":
        canonical = AIURI.parse(text).canonical()
        named = AIURI.parse(canonical)
        context = settings.find_context(named.path) if named.authority is None else None
        return DiscoveryTarget(
            authority=discovery_document.get_authority(canonical), uri=canonical, context=context
        )
    if not text or len(text) > _LONGEST:
        raise _make_target_error(f"the name to discover is empty or longer than {_LONGEST} characters")
    try:
        uri = URI.parse(text if "://" in text else f"https://{text}", "URI").normalize()
        if uri.scheme != "https":
            raise _make_target_error("only https URLs can be discovered")
        if uri.userinfo is not None:
            raise _make_target_error("the URL contains userinfo, which discovery does not send")
        canonical = AIURI.parse(f"ai://{uri.authority}/").canonical()
    except URIError as error:
        raise _make_target_error(f"the text contains no valid host: {error.message}") from None
    query = "" if uri.query is None else f"?{uri.query}"
    return DiscoveryTarget(
        authority=discovery_document.get_authority(canonical), page=(uri.path or "/") + query
    )


def _make_target_error(message: str) -> UsageError:
    return UsageError(message, code="usage.discover", hint=_HINT)


#: the sources that point to ai URIs
POINTERS: Final = ("dns-txt", "link", "html")
#: characters of untrusted text that are shown
MAX_SHOWN: Final = 256
_CLAUSE: Final = "AIIP/HTTPS v1 3.3"
_CONFLICT: Final = "aiip.discovery-conflict"
_GRAVITY: Final = (Verdict.CONTRADICTS, Verdict.CONFIRMS, Verdict.DROPPED)
_PAGE_RANK: Final = 1
_SIGNED_RANK: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A canonical ai URI that was found. An unconfirmed one may be shown, but must not be invoked."""

    uri: str
    confirmed: bool
    by: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The result of a discovery: the authority, the resources found, and every source's statement.

    `document` and `kids` (thumbprints of the keys) are the anchor's. `connect` and `fallbacks` are those of a
    `Resolution`. `refusal` is the error that a resolver would raise, or None.
    """

    authority: str
    anchor: str | None = None
    document: AnchorDocument | None = None
    kids: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    connect: Origin | None = None
    fallbacks: tuple[Origin, ...] = ()
    refusal: DiscoveryError | None = None


def weigh_sources(
    origin: str,
    authority: str,
    document: AnchorDocument | None,
    sources: Sequence[Source],
    named: Mapping[str, AnchorDocument] | None = None,
) -> Discovery:
    """Decide which statements apply.

    `origin` is the https origin of the page and DNS sources, `authority` is its authority and `document` its
    discovery document, or None if it cannot be used. `named` contains the documents of other authorities that
    the sources point to. The targets of pointers are as written.
    """
    canonical = _reject_ambiguous_pages([_canonicalize_source(source) for source in sources])
    weighed: list[Source] = []
    candidates: list[Candidate] = []
    for uri in list_resources(document) if document else ():
        agree = [source for source in canonical if source.verdict is Verdict.CONFIRMS and uri in source.said]
        by = ("anchor", *(source.name for source in agree))
        candidates.append(Candidate(uri=uri, confirmed=True, by=by, why="the discovery document lists it"))
    for source in canonical:
        if source.name not in POINTERS or source.verdict is not Verdict.CONFIRMS:
            weighed.append(source)
            continue
        judged = [
            _judge_pointer(uri, source, origin, authority, document, named or {}) for uri in source.said
        ]
        weighed.append(_combine_verdicts(source, judged))
        candidates += [candidate for _, _, candidate in judged if candidate is not None]
    return Discovery(
        authority=authority,
        sources=tuple(weighed),
        candidates=_merge_candidates(candidates),
        refusal=_make_refusal(weighed, authority),
    )


def list_resources(document: AnchorDocument) -> tuple[str, ...]:
    """Return the URIs of the resources that a document lists."""
    first = () if document.endpoint is None else (document.endpoint,)
    return tuple(dict.fromkeys([*first, *(row.uri for row in document.endpoints)]))


def is_same_site(one: str, other: str) -> bool:
    """Report whether two https origins have the same registrable domain (public suffix list)."""
    hosts = [URI.parse(origin).host or "" for origin in (one, other)]
    if any(parse_host(host).kind != "name" for host in hosts):
        return False  # an address has no registrable domain
    first, second = (_load_public_suffixes().privatesuffix(host) for host in hosts)
    return first is not None and first == second


def _canonicalize_source(source: Source) -> Source:
    """Apply rule 1: make every URI canonical; drop and report malformed ones."""
    if source.name not in POINTERS or source.verdict is not Verdict.CONFIRMS:
        return source
    pairs = [(text, discovery_document.try_canonicalize(text)) for text in source.said]
    good = tuple(dict.fromkeys(uri for _, uri in pairs if uri is not None))
    bad = [text[:MAX_SHOWN] for text, uri in pairs if uri is None]
    why = f"not a valid ai URI: {', '.join(bad)}" if bad else source.why
    if not good:
        verdict = Verdict.DROPPED if bad else Verdict.ABSENT
        return replace(source, said=(), verdict=verdict, why=why)
    return replace(source, said=good, why=why)


def _reject_ambiguous_pages(sources: list[Source]) -> list[Source]:
    """Apply the end of rule 2: two different values of rank 1 contradict each other."""
    pages = [source for source in sources if source.rank == _PAGE_RANK and source.verdict is Verdict.CONFIRMS]
    if len({uri for page in pages for uri in page.said}) < 2:
        return sources
    why = "the origin points to different resources"
    return [
        replace(source, verdict=Verdict.CONTRADICTS, why=why, code=_CONFLICT) if source in pages else source
        for source in sources
    ]


#: the verdict on one pointer, its reason, and the resource that may be shown
_PointerVerdict: TypeAlias = tuple[Verdict, str, Candidate | None]


def _judge_pointer(
    uri: str,
    source: Source,
    origin: str,
    authority: str,
    document: AnchorDocument | None,
    named: Mapping[str, AnchorDocument],
) -> _PointerVerdict:
    whose, signed = discovery_document.get_authority(uri), source.rank >= _SIGNED_RANK
    candidate = Candidate(uri=uri, confirmed=True, by=(source.name,))
    if whose != authority:
        # rule 3: a pointer to another authority's resource needs that authority's confirmation
        why = _find_confirmation(uri, origin, named.get(whose))
        if why is not None:
            return Verdict.CONFIRMS, why, replace(candidate, why=why)
        if document is not None and signed:
            return Verdict.CONTRADICTS, f"it points to {whose}, which does not confirm it", None
        why = f"{whose} does not list {origin} among its origins"
        return Verdict.DROPPED, why, replace(candidate, confirmed=False, why=why)
    if document is None:
        return Verdict.DROPPED, f"{authority} has no usable discovery document", None
    names = list_resources(document)
    if not names or uri.partition("?")[0] in names:
        why = "the discovery document agrees"
        return Verdict.CONFIRMS, why, replace(candidate, why=why)
    verdict = Verdict.CONTRADICTS if signed else Verdict.DROPPED
    return verdict, f"the discovery document does not list {uri}", None


def _find_confirmation(uri: str, origin: str, theirs: AnchorDocument | None) -> str | None:
    """Return why another authority confirms this pointer, or None."""
    if theirs is None:
        return None
    if origin in theirs.origins:
        return f"{theirs.authority} lists {origin} among its origins"
    if uri.partition("?")[0] in list_resources(theirs) and is_same_site(origin, theirs.anchor):
        return f"{theirs.authority} has the same registrable domain and lists the resource"
    return None


def _combine_verdicts(source: Source, judged: Sequence[_PointerVerdict]) -> Source:
    """Return one verdict for a source: contradiction before confirmation before dropped."""
    verdict = min((verdict for verdict, _, _ in judged), key=_GRAVITY.index)
    reasons = [why for result, why, _ in judged if result is verdict]
    reasons += [why for result, why, _ in judged if result is Verdict.DROPPED]
    why = "; ".join(dict.fromkeys([*reasons, *([source.why] if source.why else [])]))
    code = _CONFLICT if verdict is Verdict.CONTRADICTS else source.code
    return replace(source, verdict=verdict, why=why, code=code)


def _merge_candidates(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return every URI once, with all sources that name it."""
    merged: dict[str, Candidate] = {}
    for candidate in candidates:
        before = merged.get(candidate.uri, candidate)
        best = before if before.confirmed or not candidate.confirmed else candidate
        merged[candidate.uri] = replace(best, by=tuple(dict.fromkeys([*before.by, *candidate.by])))
    return tuple(merged.values())


def _make_refusal(sources: Sequence[Source], authority: str) -> DiscoveryError | None:
    """Return the error of the first source that ends the discovery, or None."""
    stop = next((source for source in sources if source.code is not None), None)
    if stop is None:
        return None
    return DiscoveryError(
        f"{authority}: {stop.name} ({stop.location}): {stop.why}",
        code=stop.code,
        clause=_CLAUSE,
        hint="Run: onym ai discover, which shows every source.",
    )


@cache
def _load_public_suffixes() -> Any:
    from publicsuffixlist import PublicSuffixList  # late: optional dependency (extra ai), reads a large file

    return PublicSuffixList()


#: authorities that a page or DNS points to and whose documents are fetched
_MOST_NAMED: Final = 4
#: bytes of a page; only the first part is parsed, because heads are short and pages may be long
_LONGEST_PAGE: Final = 8 * 1024 * 1024
#: seconds for which failed DNS queries are not repeated, so that callers do not wait one after another
_FAILED_DNS_SECONDS: Final = 5.0
_UNKNOWN: Final = "aiip.unknown-authority"
_UNSIGNED: Final = "the record is not signed (no DNSSEC), so connections go to the service's own host"
_RANDOM: Final = SystemRandom()


def discover_authority(question: str | AIURI, settings: ResolverSettings) -> Flow[Discovery]:
    """Query every source about a host, an https URL or an ai URI. A conflict is returned, not raised.

    Raises UsageError and URIError for text that is none of these.
    """
    flow = _query_sources(question, settings)
    if settings.telemetry is None:
        return flow
    return settings.telemetry.observe_discovery(
        flow, lambda discovery: discovery.document, lambda discovery: discovery.refusal
    )


def _query_sources(question: str | AIURI, settings: ResolverSettings) -> Flow[Discovery]:
    target = parse_discovery_target(question, settings)
    statement = yield from _fetch_statement(target, settings)
    sources, failure = list(statement.sources), statement.refusal
    targets: tuple[Origin, ...] = ()
    origin = target.origin or statement.anchor
    if target.origin is not None and settings.dns:
        dns_sources, targets = yield from _fetch_dns_sources(target.authority, settings)
        sources += dns_sources
    if origin is not None:
        sources += yield from _fetch_page_sources(origin, target.page, settings)
    named = yield from _fetch_named_documents(sources, statement.authority, settings)
    weighed = weigh_sources(origin or "", statement.authority, statement.document, sources, named)
    refusal = weighed.refusal or failure
    if failure is not None and refusal is failure and failure.code == _UNKNOWN and weighed.candidates:
        # a pointer helps if another authority confirms it
        refusal = DiscoveryError(
            f"{statement.authority} points to {weighed.candidates[0].uri}, "
            "whose authority does not confirm it",
            code="aiip.unconfirmed-origin",
            clause="AIIP/HTTPS v1 3.3 rule 3",
            hint="The other authority can list this origin in `origins` of its discovery document.",
        )
        if any(candidate.confirmed for candidate in weighed.candidates):
            refusal = None
    targets = select_targets(statement.document, () if refusal else targets)
    return replace(
        statement,
        sources=weighed.sources,
        candidates=weighed.candidates,
        connect=next(iter(targets), None),
        fallbacks=targets[1:],
        refusal=refusal,
    )


def select_targets(document: AnchorDocument | None, targets: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """Return the targets if the service is at the anchor, because DNS records apply only to that host."""
    same = document and well_known.parse_origin(document.service) == well_known.parse_origin(document.anchor)
    return targets if same else ()


def fetch_srv_targets(
    document: AnchorDocument, settings: ResolverSettings
) -> Flow[tuple[tuple[Origin, ...], tuple[Source, ...]]]:
    """Return the targets that DNS names for the authority's service, and the DNS sources.

    The targets are in the order in which to try them; () means the authority's own host. Onym uses only
    records that DNSSEC validates. Raises DiscoveryError (aiip.discovery-conflict) if one contradicts the
    document, or if DNSSEC validation fails.
    """
    authority = document.authority
    if not settings.dns or discovery_document.derive_anchor(authority) is None:
        return (), ()
    key, now = f"dns {authority}", settings.clock()
    kept = settings.cache.get(key)
    if kept is not None and 0 < kept.expires - now <= SHORTEST_LIFE:
        targets, sources = kept.value
    else:
        sources, targets = yield from _fetch_dns_sources(authority, settings)
        failed = [source for source in sources if source.verdict is Verdict.FAILED]
        if not any(source.code for source in failed):  # a failed validation is not cached
            expires = settings.clock() + (_FAILED_DNS_SECONDS if failed else SHORTEST_LIFE)
            settings.cache.put(key, CacheEntry(value=(targets, sources), expires=expires))
    named = yield from _fetch_named_documents(
        [source for source in sources if source.validated], authority, settings
    )
    weighed = weigh_sources(document.anchor, authority, document, sources, named)
    if weighed.refusal is not None:
        raise weighed.refusal
    return targets, weighed.sources


def _fetch_statement(target: DiscoveryTarget, settings: ResolverSettings) -> Flow[Discovery]:
    """Fetch the anchor's document and keys, and check them against its pin, as the start of a discovery."""
    in_context = target.authority == NO_AUTHORITY
    source = Source(
        name="context" if in_context else "registry", rank=3, location=target.authority, verdict=Verdict.WON
    )
    try:
        if not in_context:
            namespace = well_known.find_namespace(target.authority, settings)
        elif target.context is not None:
            namespace = replace(target.context, label=NO_AUTHORITY)
        else:
            raise DiscoveryError(
                "no context is configured for ai:/path", code=_UNKNOWN, clause="AIIP/HTTPS v1 3.1"
            )
    except DiscoveryError as error:
        failed = replace(source, verdict=Verdict.FAILED, why=error.message)
        return Discovery(authority=target.authority, sources=(failed,), refusal=error)
    sources: tuple[Source, ...] = ()
    if target.origin is None:
        why = "it names the anchor" + (" and its keys" if namespace.keys else "")
        sources = (replace(source, said=(namespace.anchor,), why=why),)
    return (yield from _fetch_anchor_statement(target, namespace, sources, settings))


def _fetch_anchor_statement(
    target: DiscoveryTarget, namespace: Namespace, sources: tuple[Source, ...], settings: ResolverSettings
) -> Flow[Discovery]:
    statement = Discovery(authority=target.authority, anchor=namespace.anchor)
    source = Source(
        name="anchor", rank=3, location=namespace.anchor + discovery_document.WELL_KNOWN, verdict=Verdict.WON
    )

    def parse_document(octets: bytes) -> AnchorDocument:
        authority = _choose_authority(octets, target, namespace.anchor, settings)
        return discovery_document.parse_discovery_document(
            octets, anchor=namespace.anchor, authority=authority
        )

    try:
        document = yield from well_known.fetch_document(namespace, settings, parse_document)
        statement = replace(statement, authority=document.authority, document=document)
        source = replace(source, said=list_resources(document))
        keys = yield from well_known.fetch_authority(document, namespace, settings)
    except DiscoveryError as error:
        verdict = Verdict.ABSENT if error.code == _UNKNOWN else Verdict.FAILED
        failed = replace(source, verdict=verdict, why=error.message)
        return replace(statement, document=None, sources=(*sources, failed), refusal=error)
    won = replace(source, why="the authority's own document takes precedence")
    return replace(statement, kids=tuple(sorted(keys.kids)), sources=(*sources, won))


def _choose_authority(octets: bytes, target: DiscoveryTarget, anchor: str, settings: ResolverSettings) -> str:
    """Return the document's authority: a host's document may be for an authority that a registry lists."""
    claimed = discovery_document.find_claimed_authority(octets)
    if target.uri is not None or target.origin is None or claimed is None or claimed == target.authority:
        return target.authority
    for registry in settings.namespaces:
        allocated = registry.find(claimed, settings.clock())
        if allocated is not None and allocated.anchor == anchor:
            return claimed
    return target.authority


def _fetch_dns_sources(
    authority: str, settings: ResolverSettings
) -> Flow[tuple[tuple[Source, ...], tuple[Origin, ...]]]:
    """Return the SRV and TXT sources of an authority, and the SRV targets if DNSSEC validates them."""
    host, _, port = authority.partition(":")
    records = yield from _fetch_records(Ask(f"_aiip._tcp.{host}", "SRV", settings.timeout))
    service, targets = pointers.evaluate_srv(records, host=host, port=int(port or 443), draw=_RANDOM.random)
    if targets and service.validated:
        service, targets = pointers.drop_alias_targets(
            service, (yield from _fetch_aliases(targets, settings))
        )
    elif targets:
        service, targets = replace(service, verdict=Verdict.DROPPED, why=_UNSIGNED), ()
    records = yield from _fetch_records(Ask(f"_aiip.{host}", "TXT", settings.timeout))
    pointer, _ = pointers.evaluate_txt(records, host=host)
    return (service, pointer), targets


def _fetch_aliases(
    targets: tuple[Origin, ...], settings: ResolverSettings
) -> Flow[list[tuple[Origin, Records | None]]]:
    """Query whether the targets are aliases; after a failed query the others are not sent."""
    answers: dict[Origin, Records | None] = dict.fromkeys(targets)
    for target in targets:
        records = yield from _fetch_records(Ask(target.host, "CNAME", settings.timeout))
        answers[target] = records
        if records.status == "failed":
            break
    return list(answers.items())


def _fetch_records(ask: Ask) -> Flow[Records]:
    records = yield ask
    assert isinstance(records, Records)  # noqa: S101 - drivers answer Ask with Records
    return records


def _fetch_page_sources(origin: str, target: str, settings: ResolverSettings) -> Flow[list[Source]]:
    """Return the pointers in the origin's page: those of its Link header and of its HTML head."""
    url = origin + target.partition("?")[0]
    blank = Source(name="link", rank=1, location=url, verdict=Verdict.ABSENT)
    try:
        reply = yield from well_known.fetch_url(
            url, settings, accept="text/html", limit=_LONGEST_PAGE, target=target
        )
    except DiscoveryError as error:
        return [replace(blank, verdict=Verdict.FAILED, why=error.message)]
    if not 200 <= reply.status < 300:
        return [replace(blank, why=f"the page has status {reply.status}, not 2xx")]
    head = replace(blank, name="html", rank=0)
    if is_html(reply.headers):
        head = _add_pointers(head, find_head_links(reply.body, get_charset(reply.headers)))
    return [_add_pointers(blank, find_pointers(reply.headers.get_all("link"), context=url)), head]


def _add_pointers(source: Source, found: Pointers) -> Source:
    why = f"ignored: {', '.join(reason[:MAX_SHOWN] for reason in found.ignored)}" if found.ignored else ""
    verdict = Verdict.CONFIRMS if found.targets else Verdict.ABSENT
    return replace(source, verdict=verdict, said=found.targets, why=why)


def _fetch_named_documents(
    sources: Sequence[Source], own: str, settings: ResolverSettings
) -> Flow[dict[str, AnchorDocument]]:
    """Fetch the documents of other authorities that the sources point to; skip those that fail."""
    uris = (
        discovery_document.try_canonicalize(text)
        for source in sources
        if source.name in POINTERS and source.verdict is Verdict.CONFIRMS
        for text in source.said
    )
    others = dict.fromkeys(discovery_document.get_authority(uri) for uri in uris if uri is not None)
    documents: dict[str, AnchorDocument] = {}
    for authority in [other for other in others if other not in {own, NO_AUTHORITY}][:_MOST_NAMED]:
        try:
            documents[authority] = yield from well_known.fetch_document(
                well_known.find_namespace(authority, settings), settings
            )
        except DiscoveryError:
            continue  # then it confirms nothing
    return documents
