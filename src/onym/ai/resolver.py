"""An ai URI to all that is needed to invoke it: who speaks for it, with which keys, on which terms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from onym.ai.discovery.fetch import fetch_anchor, fetch_keys, find_namespace, origin_of
from onym.ai.discovery.flow import fetch_targets
from onym.ai.records import AnchorDocument, EndpointEntry, Namespace, Resolution, Source
from onym.errors import DiscoveryError

if TYPE_CHECKING:
    from onym.ai.settings import ResolverSettings
    from onym.net.messages import Flow, Origin
    from onym.sign.authority import AuthorityKeys
    from onym.uri.ai import AIURI

__all__ = ["renew_keys", "resolve"]

_Discovered: TypeAlias = "tuple[AnchorDocument, AuthorityKeys, tuple[tuple[Origin, ...], tuple[Source, ...]]]"


def resolve(uri: AIURI, settings: ResolverSettings) -> Flow[Resolution]:
    """Where `uri` leads (3.1 to 3.3). Raises AIURIError, DiscoveryError.

    Only the anchor, a registry and DNS are asked: pages and Link headers point at names, and a name is here.
    """
    flow = _resolve(uri, settings)
    return flow if settings.telemetry is None else settings.telemetry.resolving(flow)


def _resolve(uri: AIURI, settings: ResolverSettings) -> Flow[Resolution]:
    target = uri.target
    speaker = _speaker(target, settings)
    asking = _discovered(speaker, settings)
    if settings.telemetry is not None:
        asking = settings.telemetry.discovering(asking, lambda found: found[0])
    document, keys, (targets, sources) = yield from asking
    targets = _targets(document, targets)
    return Resolution(
        uri=target,
        authority=document.authority,
        document=replace(document, requirements=settings.required(document.requirements)),
        keys=keys,
        entry=_entry(document, target),
        connect=next(iter(targets), None),
        sources=sources,
        fallbacks=targets[1:],
    )


def _discovered(speaker: Namespace, settings: ResolverSettings) -> Flow[_Discovered]:
    """The anchor's document and keys, held against what it said before, and what DNS says."""
    document = yield from fetch_anchor(speaker.label, settings, anchor=speaker.anchor, only=speaker.keys)
    keys = yield from fetch_keys(document, settings, only=speaker.keys)
    _check_keys(document, keys)
    settings.pins.check(document.speaker, document, keys.kids, settings.clock())
    return document, keys, (yield from fetch_targets(document, settings))


def renew_keys(resolution: Resolution, settings: ResolverSettings) -> Flow[AuthorityKeys]:
    """The authority's keys, asked for once more because one was missing; at most once a minute (3.9)."""
    flow = _renewed(resolution, settings)
    return flow if settings.telemetry is None else settings.telemetry.renewing(resolution, flow)


def _renewed(resolution: Resolution, settings: ResolverSettings) -> Flow[AuthorityKeys]:
    speaker = _speaker(resolution.uri, settings)
    # as published, and by now: that of the resolution demands what the caller does, and may be an old one
    document = yield from fetch_anchor(speaker.label, settings, anchor=speaker.anchor, only=speaker.keys)
    keys = yield from fetch_keys(document, settings, only=speaker.keys, renew=True)
    settings.pins.check(document.speaker, document, keys.kids, settings.clock())
    return keys


def _speaker(target: AIURI, settings: ResolverSettings) -> Namespace:
    """Who speaks for a canonical URI. Raises DiscoveryError where nobody is known."""
    if target.authority_text is not None:
        return find_namespace(target.authority_text, settings)
    found = settings.context(target.path)
    if found is None:
        raise DiscoveryError(
            "the URI has no authority, and nobody was named who speaks for it here",
            code="aiip.unknown-authority",
            target=str(target.without_query),
            clause="AIIP/HTTPS v1 3.1",
            hint="name the authority (ai://host/path), or configure a context",
        )
    return replace(found, label="_")


def _check_keys(document: AnchorDocument, keys: AuthorityKeys) -> None:
    if not keys.kids:
        raise DiscoveryError(
            f"{document.authority} publishes no key that can verify its results",
            code="aiip.discovery-conflict",
            clause="AIIP/HTTPS v1 3.9",
            hint="; ".join(keys.ignored[:3]) or None,
        )


def _entry(document: AnchorDocument, target: AIURI) -> EndpointEntry | None:
    """The resource's row in the anchor document."""
    text = str(target.without_query)
    return next((each for each in document.endpoints if each.uri == text), None)


def _targets(document: AnchorDocument, targets: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """DNS speaks for the authority's own host: a service elsewhere is reached where it is."""
    same = origin_of(document.service) == origin_of(document.anchor)
    return targets if same else ()
