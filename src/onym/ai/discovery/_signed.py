"""`signed_metadata` of an anchor document: by the authority's keys it holds, or the document is refused."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onym.ai.anchor import read_anchor
from onym.ai.discovery.cache import SHORTEST_LIFE, Cached
from onym.errors import DiscoveryError, SignatureError

if TYPE_CHECKING:
    from onym.ai.records import AnchorDocument
    from onym.ai.settings import ResolverSettings
    from onym.net.messages import Flow
    from onym.sign.authority import AuthorityKeys
    from onym.sign.metadata import Metadata

__all__ = ["Published", "attested"]

_CLAUSE: Final = "AIIP/HTTPS v1 3.2, signed_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An anchor document as it came: its octets, what they say, and the `signed_metadata` beside it."""

    octets: bytes = field(repr=False)
    document: AnchorDocument
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A token that was verified lately, with which keys, and the document that it makes."""

    octets: bytes = field(repr=False)
    kids: frozenset[str]
    document: AnchorDocument


def attested(
    found: Published, settings: ResolverSettings, *, only: Collection[str] = ()
) -> Flow[AnchorDocument]:
    """The document with what is signed in it, which wins. One without `signed_metadata` is as it is.

    `only` are the thumbprints that a registry allows. Verified once a minute. Raises DiscoveryError
    (aiip.discovery-conflict) for what does not hold, and as `fetch_keys`.
    """
    from onym.ai.discovery.fetch import fetch_keys  # late: it asks for documents, which ask for this

    document, token = found.document, found.token
    if token is None:
        return document
    keys = yield from fetch_keys(document, settings, only=only)
    name = f"signed {document.authority} {document.anchor}"
    kept, now = settings.cache.get(name), settings.clock()
    if kept is not None and 0 < kept.expires - now <= SHORTEST_LIFE:
        held: _Held = kept.value
        if held.octets == found.octets and held.kids == keys.kids:
            return held.document
    try:
        said = _verified(token, document, keys, now)
    except SignatureError as error:
        if error.code != "sign.unknown-key":
            raise _refused(document, error) from error
        keys = yield from fetch_keys(document, settings, only=only, renew=True)
        now = settings.clock()
        said = _again(token, document, keys, now)
    merged = read_anchor(
        found.octets, anchor=document.anchor, authority=document.authority, attested=said.members
    )
    expires = now + SHORTEST_LIFE if said.expires is None else min(now + SHORTEST_LIFE, said.expires)
    held = _Held(octets=found.octets, kids=keys.kids, document=merged)
    settings.cache.put(name, Cached(value=held, expires=expires))
    return merged


def _verified(token: str, document: AnchorDocument, keys: AuthorityKeys, at: float) -> Metadata:
    from onym.sign.metadata import verify_metadata  # late: cryptography is heavy

    return verify_metadata(token, keys, issuer=document.anchor, at=at, algorithms=document.algorithms)


def _again(token: str, document: AnchorDocument, keys: AuthorityKeys, at: float) -> Metadata:
    """With keys that were asked for just now: what does not hold by them does not hold."""
    try:
        return _verified(token, document, keys, at)
    except SignatureError as error:
        raise _refused(document, error) from error


def _refused(document: AnchorDocument, error: SignatureError) -> DiscoveryError:
    return DiscoveryError(
        f"the anchor document of {document.authority} cannot be used: `signed_metadata`: {error.message}",
        code="aiip.discovery-conflict",
        clause=_CLAUSE,
        hint="its owner signs it anew, or leaves it out",
    )
