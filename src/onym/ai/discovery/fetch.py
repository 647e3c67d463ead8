"""What an anchor publishes: its document and its keys, over HTTPS, without redirects, through the cache.

Steps for `net.run` and `net.arun`. What does not come, or not as it must, raises DiscoveryError; nothing old
is used instead (AIIP/HTTPS v1, 3.2, 3.9).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from onym._version import __version__
from onym.ai._problem import detail_of
from onym.ai.anchor import MAX_OCTETS, WELL_KNOWN, anchor_of, read_anchor, signed_in
from onym.ai.discovery._signed import Published, attested
from onym.ai.discovery.cache import LONGEST_LIFE, NEGATIVE_LIFE, SHORTEST_LIFE, Cached, lifetime
from onym.ai.records import AnchorDocument, Namespace
from onym.errors import (
    DeadlineExceeded,
    DiscoveryError,
    NetError,
    PolicyError,
    RedirectRefused,
    ResponseTooLarge,
    SignatureError,
)
from onym.net.messages import HTTPRequest, Origin, Reply, Send, Wait
from onym.uri.generic import URI

if TYPE_CHECKING:
    from onym.ai.settings import ResolverSettings
    from onym.net.messages import Flow
    from onym.sign.keys import AuthorityKeys

__all__ = ["allowed_keys", "fetch_anchor", "fetch_keys", "find_namespace", "get", "origin_of", "unreachable"]

_JSON: Final = frozenset({"application/json"})
_KEYS: Final = frozenset({"application/jwk-set+json", "application/json"})
_CLAUSE: Final = "AIIP/HTTPS v1 3.2"
#: one look at a time at whether a set is being asked for, and seconds between two of those who wait for it
_RENEWING: Final = threading.Lock()
_LOOK: Final = 0.05
_KEYS_CLAUSE: Final = "AIIP/HTTPS v1 3.9"
#: what went wrong on the way -> the code, the first class that fits
_CODES: Final = (
    (PolicyError, "aiip.blocked-address"),
    (DeadlineExceeded, "aiip.upstream-timeout"),
    (RedirectRefused, "aiip.upstream-redirect"),
    (ResponseTooLarge, "aiip.discovery-conflict"),
    (NetError, "aiip.upstream-unreachable"),
)


def find_namespace(authority: str, settings: ResolverSettings) -> Namespace:
    """Who speaks for an authority: for a DNS name itself, for one label whom a registry names.

    Raises DiscoveryError (aiip.unknown-authority), and what a registry says of a label that is not active.
    """
    anchor = anchor_of(authority)
    if anchor is not None:
        return Namespace(label=authority, anchor=anchor)
    for each in settings.namespaces:
        found = each.find(authority, settings.clock())
        if found is not None:
            return Namespace(label=authority, anchor=found.anchor, keys=tuple(found.keys))
    raise DiscoveryError(
        f"nobody is known who speaks for {authority}",
        code="aiip.unknown-authority",
        clause="AIIP/HTTPS v1 3.1",
        hint="a name of one label needs a signed registry file that lists it",
    )


def fetch_anchor(
    authority: str,
    settings: ResolverSettings,
    *,
    anchor: str | None = None,
    read: Callable[[bytes], AnchorDocument] | None = None,
    only: Collection[str] | None = None,
) -> Flow[AnchorDocument]:
    """The document that speaks for `authority`, from its anchor (`find_namespace`, unless given) alone.

    Where it has `signed_metadata`, that holds, by the keys that it names and of these by `only` (the
    thumbprints that a registry allows; looked up unless given). Raises DiscoveryError:
    aiip.unknown-authority where there is none, aiip.discovery-conflict for one that cannot be used, and codes
    of what went wrong on the way. Pins are the caller's to check, with the keys.
    """
    origin = find_namespace(authority, settings).anchor if anchor is None else anchor

    def checked(octets: bytes) -> AnchorDocument:
        return read_anchor(octets, anchor=origin, authority=authority)

    def published(octets: bytes) -> Published:
        return Published(octets=octets, document=(read or checked)(octets), token=signed_in(octets))

    def attest(found: Published) -> Flow[AnchorDocument]:
        # kept octets are read anew: what another question made of them is not what this one would
        again = found if read is None else replace(found, document=read(found.octets))
        return (yield from _attested(again, only, settings))

    key = f"anchor {authority} {origin}" if read is None else f"anchor {authority} {origin} read"
    before = settings.cache.get(key)
    found = yield from _published(key, origin, published, authority, settings)
    try:
        return (yield from attest(found))
    except DiscoveryError as error:
        if error.code != "aiip.discovery-conflict":
            raise
        settings.cache.drop(key)  # so that the next one to ask gets what its owner has mended meanwhile
        if before is None or before.value is not found:
            raise
    found = yield from _published(key, origin, published, authority, settings)
    return (yield from attest(found))


def _published(
    key: str, origin: str, read: Callable[[bytes], Published], authority: str, settings: ResolverSettings
) -> Flow[Published]:
    found = yield from _cached(key, origin + WELL_KNOWN, _JSON, read, settings)
    if found is None:
        raise DiscoveryError(
            f"{authority} has no anchor document",
            code="aiip.unknown-authority",
            clause=_CLAUSE,
            hint=f"its owner publishes one at {origin}{WELL_KNOWN}",
        )
    return found  # type: ignore[no-any-return]


def _attested(
    found: Published, only: Collection[str] | None, settings: ResolverSettings
) -> Flow[AnchorDocument]:
    if found.token is None:
        return found.document
    allowed = allowed_keys(found.document, settings) if only is None else only
    return (yield from attested(found, settings, only=allowed))


def allowed_keys(document: AnchorDocument, settings: ResolverSettings) -> Collection[str]:
    """The thumbprints that a registry allows for this document's authority; none where it names none."""
    return () if document.authority == "_" else find_namespace(document.authority, settings).keys


def fetch_keys(
    document: AnchorDocument,
    settings: ResolverSettings,
    *,
    only: Collection[str] = (),
    renew: bool = False,
) -> Flow[AuthorityKeys]:
    """The authority's key set. `only` are the thumbprints that a registry allows, all where it names none.

    With `renew` (a signature names a key that is not in the set) it is asked for once more, at most once in
    60 seconds: sooner, the set comes as it is kept. Raises DiscoveryError as `fetch_anchor`.
    """
    allowed = ",".join(sorted(only))
    key = f"keys {document.authority} {document.jwks} {allowed}"
    if renew and not _renewable(key, settings):
        yield from _asked(key, settings)
        renew = False

    def checked(octets: bytes) -> AuthorityKeys:
        from onym.sign.authority import read_authority_keys

        try:
            return read_authority_keys(octets, only=tuple(only) or None)
        except SignatureError as error:
            raise DiscoveryError(
                f"the key set of {document.authority} cannot be used: {error.message}",
                code="aiip.discovery-conflict",
                clause=_KEYS_CLAUSE,
                hint=error.hint,
            ) from error

    try:
        found = yield from _cached(key, document.jwks, _KEYS, checked, settings, renew=renew)
    finally:
        if renew:
            _answered(key, settings)
    if found is None:
        raise DiscoveryError(
            f"{document.authority} publishes no key set at the address that it names",
            code="aiip.discovery-conflict",
            clause=_KEYS_CLAUSE,
        )
    return found  # type: ignore[no-any-return]


def _renewable(key: str, settings: ResolverSettings) -> bool:
    """May the set be asked for before its time? Notes that it is: of many at once, one asks."""
    with _RENEWING:
        now, kept = settings.clock(), settings.cache.get(key)
        if kept is None:
            return True
        if 0 <= now - kept.refetched < SHORTEST_LIFE:
            return False
        settings.cache.put(key, replace(kept, refetched=now, asking=True))
    return True


def _asked(key: str, settings: ResolverSettings) -> Flow[None]:
    """Wait for the answer that somebody else asks for at this moment, where somebody does."""
    for _ in range(int(settings.timeout / _LOOK) + 1):
        kept = settings.cache.get(key)
        if kept is None or not kept.asking:
            return
        yield Wait(_LOOK)


def _answered(key: str, settings: ResolverSettings) -> None:
    """What was asked for before its time has come, or will not."""
    with _RENEWING:
        kept = settings.cache.get(key)
        if kept is not None and kept.asking:
            settings.cache.put(key, replace(kept, asking=False))


def _cached(
    key: str,
    url: str,
    types: Collection[str],
    read: Callable[[bytes], Any],
    settings: ResolverSettings,
    *,
    renew: bool = False,
) -> Flow[Any]:
    """What this address gives, read; None where it gives nothing. Kept as long as its answer allows."""
    kept = settings.cache.get(key)
    now = settings.clock()
    # a clock that was put back must not make an answer eternal
    if kept is not None and not renew and 0 < kept.expires - now <= LONGEST_LIFE:
        return kept.value
    etag = kept.etag if kept is not None and kept.value is not None else None
    accept = ", ".join(sorted(types))
    reply = yield from get(url, settings, accept=accept, limit=MAX_OCTETS, etag=etag)
    now = settings.clock()
    refetched = kept.refetched if kept is not None else float("-inf")
    if reply.status == 304 and kept is not None and etag is not None:
        return _kept(key, replace(kept, expires=now), reply, settings)
    if reply.status in {404, 410}:
        settings.cache.put(key, Cached(value=None, expires=now + NEGATIVE_LIFE, refetched=refetched))
        return None
    _check(reply, url, types)
    entry = Cached(value=read(reply.body), expires=now, etag=reply.headers.get("etag"), refetched=refetched)
    return _kept(key, entry, reply, settings)


def _kept(key: str, entry: Cached, reply: Reply, settings: ResolverSettings) -> Any:
    """The entry's value, kept from now on as long as the answer's headers say."""
    seconds = lifetime(reply.headers)
    if seconds is None:
        settings.cache.drop(key)
    else:
        settings.cache.put(key, replace(entry, expires=entry.expires + seconds))
    return entry.value


def get(
    url: str,
    settings: ResolverSettings,
    *,
    accept: str,
    limit: int,
    etag: str | None = None,
    target: str | None = None,
) -> Flow[Reply]:
    """The answer to GET, of at most `limit` octets; a redirect is not followed.

    Raises DiscoveryError for what went wrong on the way.
    """
    origin = origin_of(url)
    headers = [
        ("Accept", accept),
        ("Accept-Encoding", "identity"),
        ("User-Agent", f"onym/{__version__}"),
        *([("If-None-Match", etag)] if etag else []),
    ]
    request = HTTPRequest(
        method="GET", origin=origin, target=target or URI.parse(url).path or "/", headers=tuple(headers)
    )
    try:
        reply = yield Send(request, settings.timeout, limit=limit)
    except NetError as error:
        raise unreachable(error, url) from error
    assert isinstance(reply, Reply)  # noqa: S101 - drivers answer Send with Reply
    if 300 <= reply.status < 400 and reply.status != 304:
        raise unreachable(RedirectRefused("the server sends the request elsewhere"), url)
    return reply


def origin_of(url: str) -> Origin:
    """The origin of an https URL that was checked before."""
    uri = URI.parse(url)
    return Origin("https", uri.host or "", int(uri.port or 443))


def unreachable(error: NetError, url: str) -> DiscoveryError:
    """The error that a request of discovery ends with, where the network had no answer."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    return DiscoveryError(
        f"{url} cannot be fetched: {error.message}",
        code=code,
        clause=_CLAUSE,
        retryable=error.retryable,
        hint=error.hint,
    )


def _check(reply: Reply, url: str, types: Collection[str]) -> None:
    """Raises unless this is a 200 of such a type."""
    if reply.status != 200:
        raise DiscoveryError(
            f"{url} answers with status {reply.status}",
            code="aiip.upstream-unreachable",
            clause=_CLAUSE,
            status=reply.status,
            retryable=reply.status == 429 or reply.status >= 500,
            hint=_said(reply),
        )
    said = reply.headers.get_all("content-type")
    if len(said) != 1 or said[0].partition(";")[0].strip().lower() not in types:
        raise DiscoveryError(
            f"{url} is not of the type {' or '.join(sorted(types))}",
            code="aiip.discovery-conflict",
            clause=_CLAUSE,
        )


def _said(reply: Reply) -> str | None:
    """Why, in the server's own words, which prove nothing."""
    detail = detail_of(reply.headers.get("content-type"), reply.body)
    return None if detail is None else f"the server says, unsigned: {detail}"
