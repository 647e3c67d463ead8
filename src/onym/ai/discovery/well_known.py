"""The anchor as a discovery source: fetch its discovery document and key set over HTTPS.

Generators for `run_flow` and `arun_flow`, without redirects, through the cache. `signed_metadata` is verified
with the authority's keys. If a fetch fails, they raise DiscoveryError and use no expired copy (AIIP/HTTPS
v1, 3.2 and 3.9).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from onym import __version__
from onym.ai import discovery_document
from onym.ai import settings as resolver_settings
from onym.ai.messages import decode_problem_detail, get_network_code
from onym.ai.records import JSON, AnchorDocument, Namespace, parse_media_type
from onym.errors import DiscoveryError, NetError, RedirectRefused, ResponseTooLarge, SignatureError
from onym.net.messages import Flow, HTTPRequest, Origin, Reply, Send, Wait, split_url
from onym.sign import receipts as signing
from onym.sign.keys import MAX_AUTHORITY_KEY_SET, AuthorityKeys, read_authority_keys
from onym.uri.generic import URI

_METADATA_CLAUSE: Final = "AIIP/HTTPS v1 3.2, signed_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDocument:
    """A fetched discovery document: its bytes, its parsed form and its `signed_metadata`."""

    octets: bytes = field(repr=False)
    document: AnchorDocument
    token: str | None = field(repr=False)


def apply_signed_metadata(
    published: PublishedDocument, settings: resolver_settings.ResolverSettings, *, only: Collection[str] = ()
) -> Flow[AnchorDocument]:
    """Return the document with its signed members, which take precedence over the unsigned ones.

    `only` are the thumbprints that a registry allows. A token is verified at most once a minute. Raises
    DiscoveryError (aiip.discovery-conflict) for an invalid token, and what `fetch_keys` raises.
    """
    document, token = published.document, published.token
    if token is None:
        return document
    name, renew = f"signed {document.authority} {document.anchor}", False
    while True:
        keys = yield from fetch_keys(document, settings, only=only, renew=renew)
        entry, now = settings.cache.get(name), settings.clock()
        # the entry contains the bytes, the keys and the document of a verification
        if entry is not None and 0 < entry.expires - now <= resolver_settings.SHORTEST_LIFE:
            octets, kids, verified = entry.value
            if octets == published.octets and kids == keys.kids:
                return verified  # type: ignore[no-any-return]
        try:
            metadata = signing.verify_metadata(
                token, keys, issuer=document.anchor, at=now, algorithms=document.algorithms
            )
            break
        except SignatureError as error:
            if renew or error.code != "sign.unknown-key":
                raise DiscoveryError(
                    f"the discovery document of {document.authority} cannot be used: `signed_metadata`: "
                    f"{error.message}",
                    code="aiip.discovery-conflict",
                    clause=_METADATA_CLAUSE,
                    hint="Its owner must sign it again, or remove the member.",
                ) from error
            renew = True
    merged = discovery_document.parse_discovery_document(
        published.octets, anchor=document.anchor, authority=document.authority, attested=metadata.members
    )
    expires = (
        now + resolver_settings.SHORTEST_LIFE
        if metadata.expires is None
        else min(now + resolver_settings.SHORTEST_LIFE, metadata.expires)
    )
    settings.cache.put(
        name, resolver_settings.CacheEntry(value=(published.octets, keys.kids, merged), expires=expires)
    )
    return merged


_JSON: Final = frozenset({JSON})
_KEYS: Final = frozenset({"application/jwk-set+json", JSON})
_CLAUSE: Final = "AIIP/HTTPS v1 3.2"
#: guards the check whether a key set is being fetched
_RENEWAL_LOCK: Final = threading.Lock()
#: seconds between two looks of a caller that waits for another one's fetch
_POLL_SECONDS: Final = 0.05
_KEYS_CLAUSE: Final = "AIIP/HTTPS v1 3.9"


def find_namespace(authority: str, settings: resolver_settings.ResolverSettings) -> Namespace:
    """Return the namespace of an authority: a DNS name is its own, one label is looked up in the registries.

    Raises DiscoveryError: aiip.unknown-authority, or the registry's error for a label that is not active.
    """
    anchor = discovery_document.derive_anchor(authority)
    if anchor is not None:
        return Namespace(label=authority, anchor=anchor)
    for registry in settings.namespaces:
        allocated = registry.find(authority, settings.clock())
        if allocated is not None:
            return Namespace(label=authority, anchor=allocated.anchor, keys=tuple(allocated.keys))
    raise DiscoveryError(
        f"no configured registry lists {authority}",
        code="aiip.unknown-authority",
        clause="AIIP/HTTPS v1 3.1",
        hint="A name of one label needs a signed registry file that lists it.",
    )


def fetch_document(
    namespace: Namespace,
    settings: resolver_settings.ResolverSettings,
    read: Callable[[bytes], AnchorDocument] | None = None,
) -> Flow[AnchorDocument]:
    """Fetch the discovery document of a namespace from its anchor. `read` replaces the parser.

    `signed_metadata` is verified with the keys that the document names, if a registry allows them. Raises
    DiscoveryError: aiip.unknown-authority if the document is missing, aiip.discovery-conflict if it cannot be
    used, and the code of a network failure. The caller checks the pins, after it has fetched the keys.
    """
    authority, anchor = namespace.label, namespace.anchor
    parse = read or partial(discovery_document.parse_discovery_document, anchor=anchor, authority=authority)

    def parse_published(octets: bytes) -> PublishedDocument:
        return PublishedDocument(
            octets=octets, document=parse(octets), token=discovery_document.find_signed_metadata(octets)
        )

    key = f"anchor {authority} {anchor}" if read is None else f"anchor {authority} {anchor} read"
    before = settings.cache.get(key)
    while True:
        published = yield from _fetch_cached(
            key, anchor + discovery_document.WELL_KNOWN, _JSON, parse_published, settings
        )
        if published is None:
            raise DiscoveryError(
                f"{authority} has no discovery document",
                code="aiip.unknown-authority",
                clause=_CLAUSE,
                hint=f"Its owner publishes the document at {anchor}{discovery_document.WELL_KNOWN}.",
            )
        try:
            # `read` depends on the question, so a cached document is parsed again
            current = published if read is None else replace(published, document=read(published.octets))
            allowed = (
                () if current.token is None else list_allowed_keys(current.document, namespace, settings)
            )
            return (yield from apply_signed_metadata(current, settings, only=allowed))
        except DiscoveryError as error:
            if error.code != "aiip.discovery-conflict":
                raise
            settings.cache.drop(key)  # its owner may have fixed it before the next request
            if before is None or before.value is not published:
                raise
            before = None


def list_allowed_keys(
    document: AnchorDocument, namespace: Namespace, settings: resolver_settings.ResolverSettings
) -> Collection[str]:
    """Return the key thumbprints that a registry allows for the document's authority; empty for any key."""
    if document.authority == namespace.label:
        return namespace.keys
    return find_namespace(document.authority, settings).keys


def fetch_authority(
    document: AnchorDocument, namespace: Namespace, settings: resolver_settings.ResolverSettings
) -> Flow[AuthorityKeys]:
    """Fetch the keys of a document's authority and check the document against its pin.

    Raises DiscoveryError as `fetch_keys` and `Pins.check` do, and if no key can verify a receipt.
    """
    keys = yield from fetch_keys(document, settings, only=list_allowed_keys(document, namespace, settings))
    if not keys.kids:
        raise DiscoveryError(
            f"{document.authority} publishes no key that can verify its results",
            code="aiip.discovery-conflict",
            clause=_KEYS_CLAUSE,
            hint="; ".join(keys.ignored[:3]) or None,
        )
    settings.pins.check(document.speaker, document, keys.kids, settings.clock())
    return keys


def fetch_keys(
    document: AnchorDocument,
    settings: resolver_settings.ResolverSettings,
    *,
    only: Collection[str] = (),
    renew: bool = False,
) -> Flow[AuthorityKeys]:
    """Fetch the authority's key set. `only` are the thumbprints that a registry allows; empty for any key.

    With `renew` (a signature names a key that is not in the set) it is fetched again, at most once in 60
    seconds; otherwise the cached set is returned. Raises DiscoveryError as `fetch_document` does.
    """
    allowed = ",".join(sorted(only))
    key = f"keys {document.authority} {document.jwks} {allowed}"
    if renew and not _begin_renewal(key, settings):
        # another caller fetches the set, or did so a moment ago
        for _ in range(int(settings.timeout / _POLL_SECONDS) + 1):
            entry = settings.cache.get(key)
            if entry is None or not entry.fetching:
                break
            yield Wait(_POLL_SECONDS)
        renew = False

    def parse(octets: bytes) -> AuthorityKeys:
        return _read_keys(octets, document, only=only)

    try:
        keys = yield from _fetch_cached(key, document.jwks, _KEYS, parse, settings, renew=renew)
    finally:
        if renew:
            with _RENEWAL_LOCK:
                entry = settings.cache.get(key)
                if entry is not None and entry.fetching:
                    settings.cache.put(key, replace(entry, fetching=False))
    if keys is None:
        raise DiscoveryError(
            f"{document.authority} has no key set at {document.jwks}",
            code="aiip.discovery-conflict",
            clause=_KEYS_CLAUSE,
        )
    return keys  # type: ignore[no-any-return]


def _read_keys(
    content: bytes, document: AnchorDocument, *, only: Collection[str] = (), history: bool = False
) -> AuthorityKeys:
    try:
        return read_authority_keys(content, only=tuple(only) or None, history=history)
    except SignatureError as error:
        raise DiscoveryError(
            f"the key set of {document.authority} cannot be used: {error.message}",
            code="aiip.discovery-conflict",
            clause=_KEYS_CLAUSE,
            hint=error.hint,
        ) from error


def fetch_key_history(document: AnchorDocument, settings: resolver_settings.ResolverSettings) -> Flow[bytes]:
    """Fetch every key that ever signed for the authority, as the JWK Set that it publishes.

    An authority without a history answers with its current key set. Raises DiscoveryError.
    """
    url = f"{document.jwks}{'&' if '?' in document.jwks else '?'}history"
    accept = ", ".join(sorted(_KEYS))
    reply = yield from fetch_url(url, settings, accept=accept, limit=4 * MAX_AUTHORITY_KEY_SET)
    _validate_reply(reply, url, _KEYS)
    _read_keys(reply.body, document, history=True)
    return reply.body


def _begin_renewal(key: str, settings: resolver_settings.ResolverSettings) -> bool:
    """Report whether this caller may fetch the set early; only one of several may."""
    with _RENEWAL_LOCK:
        now, kept = settings.clock(), settings.cache.get(key)
        if kept is None:
            return True
        if 0 <= now - kept.refetched < resolver_settings.SHORTEST_LIFE:
            return False
        settings.cache.put(key, replace(kept, refetched=now, fetching=True))
    return True


def _fetch_cached(
    key: str,
    url: str,
    types: Collection[str],
    read: Callable[[bytes], Any],
    settings: resolver_settings.ResolverSettings,
    *,
    renew: bool = False,
) -> Flow[Any]:
    """Return the parsed document at this URL, from the cache if possible; None if it does not exist."""
    kept = settings.cache.get(key)
    now = settings.clock()
    # if the clock was set back, an entry must not last longer than the longest life
    if kept is not None and not renew and 0 < kept.expires - now <= resolver_settings.LONGEST_LIFE:
        return kept.value
    etag = kept.etag if kept is not None and kept.value is not None else None
    accept = ", ".join(sorted(types))
    reply = yield from fetch_url(url, settings, accept=accept, limit=discovery_document.MAX_OCTETS, etag=etag)
    now = settings.clock()
    refetched = kept.refetched if kept is not None else float("-inf")
    if reply.status == 304 and kept is not None and etag is not None:
        return _store_entry(key, replace(kept, expires=now), reply, settings)
    if reply.status in {404, 410}:
        settings.cache.put(
            key,
            resolver_settings.CacheEntry(
                value=None, expires=now + resolver_settings.NEGATIVE_LIFE, refetched=refetched
            ),
        )
        return None
    _validate_reply(reply, url, types)
    entry = resolver_settings.CacheEntry(
        value=read(reply.body), expires=now, etag=reply.headers.get("etag"), refetched=refetched
    )
    return _store_entry(key, entry, reply, settings)


def _store_entry(
    key: str, entry: resolver_settings.CacheEntry, reply: Reply, settings: resolver_settings.ResolverSettings
) -> Any:
    """Cache the entry as long as the reply's headers allow, and return its value."""
    seconds = resolver_settings.get_cache_lifetime(reply.headers)
    if seconds is None:
        settings.cache.drop(key)
    else:
        settings.cache.put(key, replace(entry, expires=entry.expires + seconds))
    return entry.value


def fetch_url(
    url: str,
    settings: resolver_settings.ResolverSettings,
    *,
    accept: str,
    limit: int,
    etag: str | None = None,
    target: str | None = None,
) -> Flow[Reply]:
    """Send GET and return the reply, of at most `limit` bytes, without following redirects.

    Raises DiscoveryError with the code of a network failure.
    """
    origin, path = split_url(URI.parse(url))
    headers = [
        ("Accept", accept),
        ("Accept-Encoding", "identity"),
        ("User-Agent", f"onym/{__version__}"),
        *([("If-None-Match", etag)] if etag else []),
    ]
    request = HTTPRequest(method="GET", origin=origin, target=target or path, headers=tuple(headers))
    try:
        reply = yield Send(request, settings.timeout, limit=limit)
    except NetError as error:
        raise make_fetch_error(error, url) from error
    assert isinstance(reply, Reply)  # noqa: S101 - drivers answer Send with Reply
    if 300 <= reply.status < 400 and reply.status != 304:
        raise make_fetch_error(RedirectRefused("the server answered with a redirect"), url)
    return reply


def parse_origin(url: str) -> Origin:
    """Return the origin of a validated https URL."""
    return split_url(URI.parse(url))[0]


def make_fetch_error(error: NetError, url: str) -> DiscoveryError:
    """Return the error of a discovery request that failed in the network."""
    code = "discovery-conflict" if isinstance(error, ResponseTooLarge) else get_network_code(error)
    return DiscoveryError(
        f"{url} cannot be fetched: {error.message}",
        code=f"aiip.{code}",
        clause=_CLAUSE,
        retryable=error.retryable,
        hint=error.hint,
    )


def _validate_reply(reply: Reply, url: str, types: Collection[str]) -> None:
    """Raise DiscoveryError unless this is a 200 with one of these media types."""
    if reply.status != 200:
        detail = decode_problem_detail(reply.headers.get("content-type"), reply.body)
        raise DiscoveryError(
            f"{url} answered with status {reply.status}",
            code="aiip.upstream-unreachable",
            clause=_CLAUSE,
            status=reply.status,
            retryable=reply.status == 429 or reply.status >= 500,
            hint=None if detail is None else f"The server's reason (unsigned): {detail}",
        )
    content_types = reply.headers.get_all("content-type")
    if len(content_types) != 1 or parse_media_type(content_types[0]) not in types:
        raise DiscoveryError(
            f"{url} does not have the media type {' or '.join(sorted(types))}",
            code="aiip.discovery-conflict",
            clause=_CLAUSE,
        )
