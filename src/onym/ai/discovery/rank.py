"""Whom to believe: the rules of AIIP/HTTPS v1, 3.3, over what the sources said. Pure.

The anchor's document decides. DNS that DNSSEC vouches for may confirm or contradict it, and a contradiction
ends the discovery; a Link header, a page's head and unsigned DNS may point, and are dropped where they point
elsewhere. None of them brings keys, policy or a service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from onym.ai.anchor import authority_of
from onym.ai.records import AnchorDocument, Source, Verdict
from onym.errors import DiscoveryError, URIError
from onym.net.hosts import read_host
from onym.uri.ai import AIURI
from onym.uri.generic import URI

__all__ = ["MAX_SHOWN", "POINTERS", "Candidate", "Weighed", "canonical", "listed", "same_site", "weigh"]

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
class Weighed:
    """The sources with their verdicts, what they lead to, and the error that ends the discovery, if any."""

    sources: tuple[Source, ...]
    candidates: tuple[Candidate, ...] = ()
    refusal: DiscoveryError | None = None


def weigh(
    origin: str,
    authority: str,
    document: AnchorDocument | None,
    sources: Sequence[Source],
    named: Mapping[str, AnchorDocument] | None = None,
) -> Weighed:
    """What becomes of each source's word.

    `origin` is the https origin that the page and DNS sources are of, `authority` its own and `document` what
    its anchor says, None where that could not be used. `named` holds the documents of other authorities that
    were pointed at. Sources of pointers come with their targets as written.
    """
    spelt = [_spelt(each) for each in sources]
    spelt = _ambiguous(spelt)
    weighed, found = [], [_own(uri, spelt) for uri in (listed(document) if document else ())]
    for source in spelt:
        if source.name not in POINTERS or source.verdict is not Verdict.CONFIRMS:
            weighed.append(source)
            continue
        judged = [_judge(uri, source, origin, authority, document, named or {}) for uri in source.said]
        weighed.append(_verdict(source, judged))
        found += [each.candidate for each in judged if each.candidate is not None]
    return Weighed(sources=tuple(weighed), candidates=_merged(found), refusal=_refusal(weighed, authority))


def listed(document: AnchorDocument) -> tuple[str, ...]:
    """The resources that a document names."""
    first = () if document.endpoint is None else (document.endpoint,)
    return tuple(dict.fromkeys([*first, *(row.uri for row in document.endpoints)]))


def canonical(text: str) -> str | None:
    """The canonical form of a pointer; None for one that is malformed."""
    try:
        return AIURI.parse(text).canonical()
    except URIError:
        return None


def same_site(one: str, other: str) -> bool:
    """Do two https origins lie under one registrable domain (public suffix list)?"""
    first, second = (_registrable(URI.parse(each).host or "") for each in (one, other))
    return first is not None and first == second


@dataclass(frozen=True, slots=True)
class _Judged:
    verdict: Verdict
    why: str
    candidate: Candidate | None = None


def _spelt(source: Source) -> Source:
    """Rule 1: every URI canonical; malformed ones are dropped, and reported."""
    if source.name not in POINTERS or source.verdict is not Verdict.CONFIRMS:
        return source
    pairs = [(text, canonical(text)) for text in source.said]
    good = tuple(dict.fromkeys(uri for _, uri in pairs if uri is not None))
    bad = [text[:MAX_SHOWN] for text, uri in pairs if uri is None]
    why = f"no ai URI that can be used: {', '.join(bad)}" if bad else source.why
    if not good:
        verdict = Verdict.DROPPED if bad else Verdict.ABSENT
        return replace(source, said=(), verdict=verdict, why=why)
    return replace(source, said=good, why=why)


def _ambiguous(sources: list[Source]) -> list[Source]:
    """Rule 2, its end: two different values of rank 1 cannot both be meant."""
    pages = [each for each in sources if each.rank == _PAGE_RANK and each.verdict is Verdict.CONFIRMS]
    if len({uri for each in pages for uri in each.said}) < 2:
        return sources
    why = "the origin points at different resources, and nothing says which is meant"
    return [
        replace(each, verdict=Verdict.CONTRADICTS, why=why, code=_CONFLICT) if each in pages else each
        for each in sources
    ]


def _own(uri: str, sources: Sequence[Source]) -> Candidate:
    agree = [each.name for each in sources if each.verdict is Verdict.CONFIRMS and uri in each.said]
    return Candidate(uri=uri, confirmed=True, by=("anchor", *agree), why="the anchor's document lists it")


def _judge(
    uri: str,
    source: Source,
    origin: str,
    authority: str,
    document: AnchorDocument | None,
    named: Mapping[str, AnchorDocument],
) -> _Judged:
    whose = authority_of(uri)
    if whose != authority:
        return _foreign(uri, source, origin, document, named.get(whose))
    if document is None:
        return _Judged(Verdict.DROPPED, f"no anchor document speaks for {authority}")
    names = listed(document)
    if not names or uri.partition("?")[0] in names:
        why = "the anchor's document agrees"
        return _Judged(Verdict.CONFIRMS, why, Candidate(uri=uri, confirmed=True, by=(source.name,), why=why))
    return _disagrees(source, f"the anchor's document does not list {uri}")


def _foreign(
    uri: str, source: Source, origin: str, document: AnchorDocument | None, theirs: AnchorDocument | None
) -> _Judged:
    """Rule 3: an origin that names another authority's resource needs that authority's word."""
    why = _confirmed(uri, origin, theirs)
    if why is not None:
        return _Judged(Verdict.CONFIRMS, why, Candidate(uri=uri, confirmed=True, by=(source.name,), why=why))
    whose = authority_of(uri)
    if document is not None and source.rank >= _SIGNED_RANK:
        return _disagrees(source, f"it points at {whose}, which does not confirm it")
    why = f"{whose} does not confirm that {origin} may speak of it"
    found = Candidate(uri=uri, confirmed=False, by=(source.name,), why=why)
    return _Judged(Verdict.DROPPED, why, found)


def _confirmed(uri: str, origin: str, theirs: AnchorDocument | None) -> str | None:
    """Why another authority's word covers this pointer; None where it does not."""
    if theirs is None:
        return None
    if origin in theirs.origins:
        return f"{theirs.authority} lists {origin} among its origins"
    if uri.partition("?")[0] in listed(theirs) and same_site(origin, theirs.anchor):
        return f"{theirs.authority} is of the same registrable domain, and lists it"
    return None


def _disagrees(source: Source, why: str) -> _Judged:
    verdict = Verdict.CONTRADICTS if source.rank >= _SIGNED_RANK else Verdict.DROPPED
    return _Judged(verdict, why)


def _verdict(source: Source, judged: Sequence[_Judged]) -> Source:
    """One verdict for all that a source said: a contradiction, else what holds of it, else dropped."""
    verdict = min((each.verdict for each in judged), key=_GRAVITY.index)
    told = [each.why for each in judged if each.verdict is verdict]
    told += [each.why for each in judged if each.verdict is Verdict.DROPPED]
    why = "; ".join(dict.fromkeys([*told, *([source.why] if source.why else [])]))
    code = _CONFLICT if verdict is Verdict.CONTRADICTS else source.code
    return replace(source, verdict=verdict, why=why, code=code)


def _merged(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
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


def _refusal(sources: Sequence[Source], authority: str) -> DiscoveryError | None:
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


def _registrable(host: str) -> str | None:
    """The registrable domain; None for an address and for a public suffix."""
    return _suffixes().privatesuffix(host) if read_host(host).kind == "name" else None


@cache
def _suffixes() -> Any:
    from publicsuffixlist import PublicSuffixList  # its list is read from a file

    return PublicSuffixList()
