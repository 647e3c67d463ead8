"""An ai URI to all that is needed to invoke it: who speaks for it, with which keys, on which terms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onym.ai.discovery.fetch import fetch_anchor, fetch_keys, find_namespace, origin_of
from onym.ai.discovery.flow import fetch_connect
from onym.ai.records import AnchorDocument, EndpointEntry, Namespace, Resolution
from onym.errors import DiscoveryError

if TYPE_CHECKING:
    from onym.ai.settings import ResolverSettings
    from onym.net.messages import Flow, Origin
    from onym.sign.authority import AuthorityKeys
    from onym.uri.ai import AIURI

__all__ = ["renew_keys", "resolve"]


def resolve(uri: AIURI, settings: ResolverSettings) -> Flow[Resolution]:
    """Where `uri` leads (3.1 to 3.3). Raises AIURIError, DiscoveryError.

    Only the anchor, a registry and DNS are asked: pages and Link headers point at names, and a name is here.
    """
    target = uri.target
    speaker = _speaker(target, settings)
    document = yield from fetch_anchor(speaker.label, settings, anchor=speaker.anchor)
    keys = yield from fetch_keys(document, settings, only=speaker.keys)
    _check_keys(document, keys)
    settings.pins.check(document.speaker, document, keys.kids, settings.clock())
    connect, sources = yield from fetch_connect(document, settings)
    return Resolution(
        uri=target,
        authority=document.authority,
        document=replace(document, requirements=settings.required(document.requirements)),
        keys=keys,
        entry=_entry(document, target),
        connect=_connect(document, connect),
        sources=sources,
    )


def renew_keys(resolution: Resolution, settings: ResolverSettings) -> Flow[AuthorityKeys]:
    """The authority's keys, asked for once more because one was missing; at most once a minute (3.9)."""
    document = resolution.document
    only = _speaker(resolution.uri, settings).keys
    keys = yield from fetch_keys(document, settings, only=only, renew=True)
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


def _connect(document: AnchorDocument, connect: Origin | None) -> Origin | None:
    """DNS speaks for the authority's own host: a service elsewhere is reached where it is."""
    same = origin_of(document.service) == origin_of(document.anchor)
    return connect if same else None
