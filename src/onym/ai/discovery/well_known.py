"""The anchor as a discovery source: fetch its discovery document and key set over HTTPS.

Generators for `net.run` and `net.arun`, without redirects, through the cache. `signed_metadata` is verified
with the authority's keys. If a fetch fails, they raise DiscoveryError and use no expired copy (AIIP/HTTPS
v1, 3.2 and 3.9).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from onym._version import __version__
from onym.ai.discovery_document import (
    MAX_OCTETS,
    WELL_KNOWN,
    derive_anchor,
    find_signed_metadata,
    parse_discovery_document,
)
from onym.ai.problems import decode_problem_detail
from onym.ai.records import AnchorDocument, Namespace
from onym.ai.settings import LONGEST_LIFE, NEGATIVE_LIFE, SHORTEST_LIFE, CacheEntry, get_cache_lifetime
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
    from onym.sign.metadata import Metadata

_METADATA_CLAUSE: Final = "AIIP/HTTPS v1 3.2, signed_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDocument:
    """An anchor document as it came: its octets, what they say, and the `signed_metadata` beside it."""

    octets: bytes = field(repr=False)
    document: AnchorDocument
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _VerifiedMetadata:
    """A token that was verified lately, with which keys, and the document that it makes."""

    octets: bytes = field(repr=False)
    kids: frozenset[str]
    document: AnchorDocument


def apply_signed_metadata(
    found: PublishedDocument, settings: ResolverSettings, *, only: Collection[str] = ()
) -> Flow[AnchorDocument]:
    """The document with what is signed in it, which wins. One without `signed_metadata` is as it is.

    `only` are the thumbprints that a registry allows. Verified once a minute. Raises DiscoveryError
    (aiip.discovery-conflict) for what does not hold, and as `fetch_keys`.
    """
    # merged import  # late: it asks for documents, which ask for this

    document, token = found.document, found.token
    if token is None:
        return document
    keys = yield from fetch_keys(document, settings, only=only)
    name = f"signed {document.authority} {document.anchor}"
    kept, now = settings.cache.get(name), settings.clock()
    if kept is not None and 0 < kept.expires - now <= SHORTEST_LIFE:
        held: _VerifiedMetadata = kept.value
        if held.octets == found.octets and held.kids == keys.kids:
            return held.document
    try:
        said = _verify_signed_metadata(token, document, keys, now)
    except SignatureError as error:
        if error.code != "sign.unknown-key":
            raise _make_metadata_error(document, error) from error
        keys = yield from fetch_keys(document, settings, only=only, renew=True)
        now = settings.clock()
        said = _verify_with_new_keys(token, document, keys, now)
    merged = parse_discovery_document(
        found.octets, anchor=document.anchor, authority=document.authority, attested=said.members
    )
    expires = now + SHORTEST_LIFE if said.expires is None else min(now + SHORTEST_LIFE, said.expires)
    held = _VerifiedMetadata(octets=found.octets, kids=keys.kids, document=merged)
    settings.cache.put(name, CacheEntry(value=held, expires=expires))
    return merged


def _verify_signed_metadata(token: str, document: AnchorDocument, keys: AuthorityKeys, at: float) -> Metadata:
    from onym.sign.metadata import verify_metadata  # late: cryptography is heavy

    return verify_metadata(token, keys, issuer=document.anchor, at=at, algorithms=document.algorithms)


def _verify_with_new_keys(token: str, document: AnchorDocument, keys: AuthorityKeys, at: float) -> Metadata:
    """With keys that were asked for just now: what does not hold by them does not hold."""
    try:
        return _verify_signed_metadata(token, document, keys, at)
    except SignatureError as error:
        raise _make_metadata_error(document, error) from error


def _make_metadata_error(document: AnchorDocument, error: SignatureError) -> DiscoveryError:
    return DiscoveryError(
        f"the anchor document of {document.authority} cannot be used: `signed_metadata`: {error.message}",
        code="aiip.discovery-conflict",
        clause=_METADATA_CLAUSE,
        hint="its owner signs it anew, or leaves it out",
    )


_JSON: Final = frozenset({"application/json"})
_KEYS: Final = frozenset({"application/jwk-set+json", "application/json"})
_CLAUSE: Final = "AIIP/HTTPS v1 3.2"
#: one look at a time at whether a set is being asked for, and seconds between two of those who wait for it
_RENEWAL_LOCK: Final = threading.Lock()
_POLL_SECONDS: Final = 0.05
_KEYS_CLAUSE: Final = "AIIP/HTTPS v1 3.9"
#: what went wrong on the way -> the code, the first class that fits
_NETWORK_CODES: Final = (
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
    anchor = derive_anchor(authority)
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


def fetch_document(
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
        return parse_discovery_document(octets, anchor=origin, authority=authority)

    def published(octets: bytes) -> PublishedDocument:
        return PublishedDocument(
            octets=octets, document=(read or checked)(octets), token=find_signed_metadata(octets)
        )

    def attest(found: PublishedDocument) -> Flow[AnchorDocument]:
        # kept octets are read anew: what another question made of them is not what this one would
        again = found if read is None else replace(found, document=read(found.octets))
        return (yield from _apply_allowed_metadata(again, only, settings))

    key = f"anchor {authority} {origin}" if read is None else f"anchor {authority} {origin} read"
    before = settings.cache.get(key)
    found = yield from _fetch_published(key, origin, published, authority, settings)
    try:
        return (yield from attest(found))
    except DiscoveryError as error:
        if error.code != "aiip.discovery-conflict":
            raise
        settings.cache.drop(key)  # so that the next one to ask gets what its owner has mended meanwhile
        if before is None or before.value is not found:
            raise
    found = yield from _fetch_published(key, origin, published, authority, settings)
    return (yield from attest(found))


def _fetch_published(
    key: str,
    origin: str,
    read: Callable[[bytes], PublishedDocument],
    authority: str,
    settings: ResolverSettings,
) -> Flow[PublishedDocument]:
    found = yield from _fetch_cached(key, origin + WELL_KNOWN, _JSON, read, settings)
    if found is None:
        raise DiscoveryError(
            f"{authority} has no anchor document",
            code="aiip.unknown-authority",
            clause=_CLAUSE,
            hint=f"its owner publishes one at {origin}{WELL_KNOWN}",
        )
    return found  # type: ignore[no-any-return]


def _apply_allowed_metadata(
    found: PublishedDocument, only: Collection[str] | None, settings: ResolverSettings
) -> Flow[AnchorDocument]:
    if found.token is None:
        return found.document
    allowed = list_allowed_keys(found.document, settings) if only is None else only
    return (yield from apply_signed_metadata(found, settings, only=allowed))


def list_allowed_keys(document: AnchorDocument, settings: ResolverSettings) -> Collection[str]:
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
    60 seconds: sooner, the set comes as it is kept. Raises DiscoveryError as `fetch_document`.
    """
    allowed = ",".join(sorted(only))
    key = f"keys {document.authority} {document.jwks} {allowed}"
    if renew and not _begin_renewal(key, settings):
        yield from _wait_for_renewal(key, settings)
        renew = False

    def checked(octets: bytes) -> AuthorityKeys:
        from onym.sign.keys import read_authority_keys

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
        found = yield from _fetch_cached(key, document.jwks, _KEYS, checked, settings, renew=renew)
    finally:
        if renew:
            _end_renewal(key, settings)
    if found is None:
        raise DiscoveryError(
            f"{document.authority} publishes no key set at the address that it names",
            code="aiip.discovery-conflict",
            clause=_KEYS_CLAUSE,
        )
    return found  # type: ignore[no-any-return]


def _begin_renewal(key: str, settings: ResolverSettings) -> bool:
    """May the set be asked for before its time? Notes that it is: of many at once, one asks."""
    with _RENEWAL_LOCK:
        now, kept = settings.clock(), settings.cache.get(key)
        if kept is None:
            return True
        if 0 <= now - kept.refetched < SHORTEST_LIFE:
            return False
        settings.cache.put(key, replace(kept, refetched=now, asking=True))
    return True


def _wait_for_renewal(key: str, settings: ResolverSettings) -> Flow[None]:
    """Wait for the answer that somebody else asks for at this moment, where somebody does."""
    for _ in range(int(settings.timeout / _POLL_SECONDS) + 1):
        kept = settings.cache.get(key)
        if kept is None or not kept.asking:
            return
        yield Wait(_POLL_SECONDS)


def _end_renewal(key: str, settings: ResolverSettings) -> None:
    """What was asked for before its time has come, or will not."""
    with _RENEWAL_LOCK:
        kept = settings.cache.get(key)
        if kept is not None and kept.asking:
            settings.cache.put(key, replace(kept, asking=False))


def _fetch_cached(
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
    reply = yield from fetch_url(url, settings, accept=accept, limit=MAX_OCTETS, etag=etag)
    now = settings.clock()
    refetched = kept.refetched if kept is not None else float("-inf")
    if reply.status == 304 and kept is not None and etag is not None:
        return _store_entry(key, replace(kept, expires=now), reply, settings)
    if reply.status in {404, 410}:
        settings.cache.put(key, CacheEntry(value=None, expires=now + NEGATIVE_LIFE, refetched=refetched))
        return None
    _validate_reply(reply, url, types)
    entry = CacheEntry(
        value=read(reply.body), expires=now, etag=reply.headers.get("etag"), refetched=refetched
    )
    return _store_entry(key, entry, reply, settings)


def _store_entry(key: str, entry: CacheEntry, reply: Reply, settings: ResolverSettings) -> Any:
    """The entry's value, kept from now on as long as the answer's headers say."""
    seconds = get_cache_lifetime(reply.headers)
    if seconds is None:
        settings.cache.drop(key)
    else:
        settings.cache.put(key, replace(entry, expires=entry.expires + seconds))
    return entry.value


def fetch_url(
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
    origin = parse_origin(url)
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
        raise make_fetch_error(error, url) from error
    assert isinstance(reply, Reply)  # noqa: S101 - drivers answer Send with Reply
    if 300 <= reply.status < 400 and reply.status != 304:
        raise make_fetch_error(RedirectRefused("the server sends the request elsewhere"), url)
    return reply


def parse_origin(url: str) -> Origin:
    """The origin of an https URL that was checked before."""
    uri = URI.parse(url)
    return Origin("https", uri.host or "", int(uri.port or 443))


def make_fetch_error(error: NetError, url: str) -> DiscoveryError:
    """The error that a request of discovery ends with, where the network had no answer."""
    code = next(code for kind, code in _NETWORK_CODES if isinstance(error, kind))
    return DiscoveryError(
        f"{url} cannot be fetched: {error.message}",
        code=code,
        clause=_CLAUSE,
        retryable=error.retryable,
        hint=error.hint,
    )


def _validate_reply(reply: Reply, url: str, types: Collection[str]) -> None:
    """Raises unless this is a 200 of such a type."""
    if reply.status != 200:
        raise DiscoveryError(
            f"{url} answers with status {reply.status}",
            code="aiip.upstream-unreachable",
            clause=_CLAUSE,
            status=reply.status,
            retryable=reply.status == 429 or reply.status >= 500,
            hint=_get_error_detail(reply),
        )
    said = reply.headers.get_all("content-type")
    if len(said) != 1 or said[0].partition(";")[0].strip().lower() not in types:
        raise DiscoveryError(
            f"{url} is not of the type {' or '.join(sorted(types))}",
            code="aiip.discovery-conflict",
            clause=_CLAUSE,
        )


def _get_error_detail(reply: Reply) -> str | None:
    """Why, in the server's own words, which prove nothing."""
    detail = decode_problem_detail(reply.headers.get("content-type"), reply.body)
    return None if detail is None else f"the server says, unsigned: {detail}"
