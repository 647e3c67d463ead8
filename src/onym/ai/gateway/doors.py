"""Which resources can be reached through a gateway: those that only read, and do not ask who calls.

A gateway has no users in this binding's first form: what wants a token, a bound sender or an approval is
refused with its own code, before a request goes to the resource.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from onym.ai.records import Auth, Effects, Level
from onym.errors import AIIPError, DeniedError
from onym.uri.generic import URI

if TYPE_CHECKING:
    from onym.ai.records import Description, Resolution
    from onym.uri.ai import AIURI

__all__ = ["POLICY", "POLICY_HASH", "check_authority", "check_description", "check_loop", "is_open"]

#: what is decided here, as a text; `pol` of a gateway's receipt is its hash
POLICY: Final = (
    "aiip-gateway-policy-v1: effects=read auth=none dpop=none mtls=false approval=false signed=true"
)
POLICY_HASH: Final = urlsafe_b64encode(hashlib.sha256(POLICY.encode()).digest()).rstrip(b"=").decode()

_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
_NATIVE: Final = "ask it natively, with an AIIP client of your own"


def check_loop(uri: AIURI, own: Collection[str]) -> None:
    """Raises DeniedError for an authority that is this gateway. `own` are its hosts, without ports."""
    if (uri.host or "").lower() in own:
        raise _loop(uri)


def check_authority(resolution: Resolution, own: Collection[str]) -> None:
    """Raises DeniedError or AIIPError where the authority, or its row for this resource, asks for more.

    `own` are the gateway's hosts: an authority that is served by them would go round in a circle.
    """
    document = resolution.document
    places = [URI.parse(document.anchor).host, URI.parse(document.service).host]
    targets = () if resolution.connect is None else (resolution.connect, *resolution.fallbacks)
    places += [each.host for each in targets]
    if any((each or "").lower() in own for each in places):
        raise _loop(resolution.uri)
    asks = document.requirements
    if asks.mtls or asks.dpop is Level.REQUIRED:
        raise _closed(resolution.uri, "sender-constraint", "the authority wants tokens bound to their sender")
    if asks.auth is not Auth.NONE:
        raise _closed(resolution.uri, "authentication-required", "the authority wants to know who asks")
    entry = resolution.entry
    if entry is not None:
        _check(resolution.uri, entry.effects, entry.scopes, entry.approval)


def check_description(uri: AIURI, description: Description) -> None:
    """Raises where the resource says of itself that it does more than read."""
    _check(uri, description.effects, description.scopes, description.approval)


def is_open(uri: AIURI, description: Description) -> AIIPError | None:
    """What an invocation would be refused with; None where nothing stands in its way."""
    try:
        check_description(uri, description)
    except AIIPError as error:
        return error
    return None


def _check(uri: AIURI, effects: Effects, scopes: Collection[str], approval: bool) -> None:
    if approval:
        raise _closed(uri, "approval-required", "an invocation needs somebody's approval")
    if effects is not Effects.READ:
        raise _closed(
            uri, "policy-denied", f"its effects are {effects}, and this gateway lets through read alone"
        )
    if scopes:
        raise _closed(uri, "authentication-required", "an invocation needs an access token")


def _closed(uri: AIURI, code: str, why: str) -> DeniedError:
    return DeniedError(
        f"this resource is not reached through the gateway: {why}",
        code=f"aiip.{code}",
        target=str(uri.without_query),
        clause=_CLAUSE,
        hint=_NATIVE,
    )


def _loop(uri: AIURI) -> DeniedError:
    return DeniedError(
        "the authority leads back to this gateway",
        code="aiip.policy-denied",
        target=str(uri.without_query),
        clause=_CLAUSE,
    )
