"""Resolving a URI: from documents, a registry and DNS to the endpoint and keys of its authority (3.1 to 3.3).

An authority that was put together from cached documents is kept for a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from onym.ai import records
from onym.ai.discovery.evaluation import fetch_srv_targets, select_targets
from onym.ai.discovery.well_known import fetch_authority, fetch_document, fetch_keys, find_namespace
from onym.ai.settings import Cache, CacheEntry, ResolverSettings
from onym.errors import DiscoveryError
from onym.net.messages import Flow, Origin
from onym.sign.keys import AuthorityKeys
from onym.uri.ai import AIURI

#: seconds for which an authority is not put together again from the documents in the cache
_KNOWN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownAuthority:
    """An authority as the cached documents describe it. It is kept as long as each of them is.

    `targets` are those of DNS. `settings` are those with which it was found: they decide about pins and DNS.
    """

    document: records.AnchorDocument
    keys: AuthorityKeys
    targets: tuple[Origin, ...]
    sources: tuple[records.Source, ...]
    settings: ResolverSettings = field(repr=False)
    used: Mapping[str, CacheEntry | None] = field(repr=False)

    def is_current(self, settings: ResolverSettings) -> bool:
        """Report whether these settings would use the same entries of the cache."""
        return settings is self.settings and all(
            settings.cache.get(key) is entry for key, entry in self.used.items()
        )


class _NotingCache:
    """The cache of a discovery: it notes which entries are used."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.used: dict[str, CacheEntry | None] = {}

    def get(self, key: str) -> CacheEntry | None:
        self.used[key] = entry = self._cache.get(key)
        return entry

    def put(self, key: str, entry: CacheEntry) -> None:
        self.used[key] = entry
        self._cache.put(key, entry)

    def drop(self, key: str) -> None:
        self.used[key] = None
        self._cache.drop(key)


def resolve_uri(uri: AIURI, settings: ResolverSettings) -> Flow[records.Resolution]:
    """Resolve `uri` (3.1 to 3.3). Raises AIURIError, DiscoveryError.

    The sources are the anchor, a registry and DNS. Pages and Link headers only help to find a URI.
    """
    flow = _resolve_target(uri, settings)
    return flow if settings.telemetry is None else settings.telemetry.observe_resolution(flow)


def _resolve_target(uri: AIURI, settings: ResolverSettings) -> Flow[records.Resolution]:
    target = uri.target
    flow = _discover_authority(_find_target_namespace(target, settings), settings)
    if settings.telemetry is not None:
        flow = settings.telemetry.observe_discovery(flow, lambda known: known.document)
    known = yield from flow
    document, text = known.document, str(target.without_query)
    return records.Resolution(
        uri=target,
        authority=document.authority,
        document=document,
        keys=known.keys,
        entry=next((entry for entry in document.endpoints if entry.uri == text), None),
        connect=next(iter(known.targets), None),
        sources=known.sources,
        fallbacks=known.targets[1:],
    )


def _discover_authority(namespace: records.Namespace, settings: ResolverSettings) -> Flow[_KnownAuthority]:
    """Fetch the anchor's document and keys, and the targets that DNS names.

    `namespace` is looked up for each call, so that a change of a registry counts at once.
    """
    key = f"authority {namespace.label} {namespace.anchor} {','.join(namespace.keys)}"
    kept, now = settings.cache.get(key), settings.clock()
    if kept is not None and 0 < kept.expires - now <= _KNOWN_SECONDS and kept.value.is_current(settings):
        return kept.value  # type: ignore[no-any-return]
    cache = _NotingCache(settings.cache)
    noting = replace(settings, cache=cache)
    document = yield from fetch_document(namespace, noting)
    keys = yield from fetch_authority(document, namespace, noting)
    targets, sources = yield from fetch_srv_targets(document, noting)
    known = _KnownAuthority(
        document=replace(document, requirements=settings.apply_floor(document.requirements)),
        keys=keys,
        targets=select_targets(document, targets),
        sources=sources,
        settings=settings,
        used=cache.used,
    )
    ends = [float("-inf") if entry is None else entry.expires for entry in cache.used.values()]
    # the keys of another authority's document are those that its own registry allows
    if document.authority == namespace.label and min(ends) > now:
        expires = min(now + _KNOWN_SECONDS, *ends)
        settings.cache.put(key, CacheEntry(value=known, expires=expires))
    return known


def renew_keys(resolution: records.Resolution, settings: ResolverSettings) -> Flow[AuthorityKeys]:
    """Fetch the authority's keys again because one was missing, at most once a minute (3.9)."""
    flow = _refetch_keys(resolution, settings)
    return flow if settings.telemetry is None else settings.telemetry.observe_key_renewal(resolution, flow)


def _refetch_keys(resolution: records.Resolution, settings: ResolverSettings) -> Flow[AuthorityKeys]:
    namespace = _find_target_namespace(resolution.uri, settings)
    # the document as it is published now: the resolution's may be older, and has the caller's requirements
    document = yield from fetch_document(namespace, settings)
    keys = yield from fetch_keys(document, settings, only=namespace.keys, renew=True)
    settings.pins.check(document.speaker, document, keys.kids, settings.clock())
    return keys


def _find_target_namespace(target: AIURI, settings: ResolverSettings) -> records.Namespace:
    """Return the namespace of a canonical URI. Raises DiscoveryError if it has none."""
    if target.authority_text is not None:
        return find_namespace(target.authority_text, settings)
    context = settings.find_context(target.path)
    if context is None:
        raise DiscoveryError(
            "the URI has no authority, and no context is configured for its path",
            code="aiip.unknown-authority",
            target=str(target.without_query),
            clause="AIIP/HTTPS v1 3.1",
            hint="Write the authority (ai://host/path), or configure a context.",
        )
    return replace(context, label=records.NO_AUTHORITY)
