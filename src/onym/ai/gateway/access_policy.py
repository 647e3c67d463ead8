"""The access policy of a gateway, and the receipt that states it (AIIP/HTTPS v1, 3.8 and 3.13).

A gateway has no users: it forwards only to read-only resources that need no token, no bound sender and no
approval. It rejects all others before it sends a request.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from onym.ai.records import Auth, Effects, Level
from onym.errors import AIIPError, DeniedError
from onym.uri.generic import URI

if TYPE_CHECKING:
    from onym.ai.records import Description, Resolution, Result
    from onym.sign.keys import Signer
    from onym.uri.ai import AIURI

#: what is decided here, as a text; `pol` of a gateway's receipt is its hash
POLICY: Final = (
    "aiip-gateway-policy-v1: effects=read auth=none dpop=none mtls=false approval=false signed=true"
)
POLICY_HASH: Final = urlsafe_b64encode(hashlib.sha256(POLICY.encode()).digest()).rstrip(b"=").decode()

_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
_NATIVE: Final = "ask it natively, with an AIIP client of your own"


def require_no_loop(uri: AIURI, own: Collection[str]) -> None:
    """Raises DeniedError for an authority that is this gateway. `own` are its hosts, without ports."""
    if (uri.host or "").lower() in own:
        raise _make_loop_error(uri)


def require_open_authority(resolution: Resolution, own: Collection[str]) -> None:
    """Raises DeniedError or AIIPError where the authority, or its row for this resource, asks for more.

    `own` are the gateway's hosts: an authority that is served by them would go round in a circle.
    """
    document = resolution.document
    places = [URI.parse(document.anchor).host, URI.parse(document.service).host]
    targets = () if resolution.connect is None else (resolution.connect, *resolution.fallbacks)
    places += [origin.host for origin in targets]
    if any((host or "").lower() in own for host in places):
        raise _make_loop_error(resolution.uri)
    asks = document.requirements
    if asks.mtls or asks.dpop is Level.REQUIRED:
        raise _make_denial(
            resolution.uri, "sender-constraint", "the authority wants tokens bound to their sender"
        )
    if asks.auth is not Auth.NONE:
        raise _make_denial(resolution.uri, "authentication-required", "the authority wants to know who asks")
    entry = resolution.entry
    if entry is not None:
        _require_open(resolution.uri, entry.effects, entry.scopes, entry.approval)


def require_open_resource(uri: AIURI, description: Description) -> None:
    """Raises where the resource says of itself that it does more than read."""
    _require_open(uri, description.effects, description.scopes, description.approval)


def find_denial(uri: AIURI, description: Description) -> AIIPError | None:
    """What an invocation would be refused with; None where nothing stands in its way."""
    try:
        require_open_resource(uri, description)
    except AIIPError as error:
        return error
    return None


def _require_open(uri: AIURI, effects: Effects, scopes: Collection[str], approval: bool) -> None:
    if approval:
        raise _make_denial(uri, "approval-required", "an invocation needs somebody's approval")
    if effects is not Effects.READ:
        raise _make_denial(
            uri, "policy-denied", f"its effects are {effects}, and this gateway lets through read alone"
        )
    if scopes:
        raise _make_denial(uri, "authentication-required", "an invocation needs an access token")


def _make_denial(uri: AIURI, code: str, why: str) -> DeniedError:
    return DeniedError(
        f"this resource is not reached through the gateway: {why}",
        code=f"aiip.{code}",
        target=str(uri.without_query),
        clause=_CLAUSE,
        hint=_NATIVE,
    )


def _make_loop_error(uri: AIURI) -> DeniedError:
    return DeniedError(
        "the authority leads back to this gateway",
        code="aiip.policy-denied",
        target=str(uri.without_query),
        clause=_CLAUSE,
    )


#: the header field
RECEIPT_HEADER: Final = "aiip-gateway-receipt"
#: seconds that a receipt is accepted as a fresh one
LIFETIME: Final = 120
#: `aud` for a caller that gives no origin
ANONYMOUS: Final = "anonymous"
_ORIGIN: Final = re.compile(r"https?://[a-z0-9.:\[\]-]{1,300}")
_NONCE: Final = re.compile("[A-Za-z0-9_-]{22,128}")


def hash_upstream_receipt(token: str) -> str:
    """`up`: base64url of the SHA-256 of the endpoint's receipt in its compact form."""
    return urlsafe_b64encode(hashlib.sha256(token.encode("ascii")).digest()).rstrip(b"=").decode("ascii")


def validate_nonce(nonce: str | None) -> None:
    """Raises AIIPError for an AIIP-Nonce that is none of 128 bits or more in base64url (3.6)."""
    if nonce is not None and not _NONCE.fullmatch(nonce):
        raise AIIPError(
            "AIIP-Nonce is 128 bits or more in base64url", code="aiip.bad-request", clause="AIIP/HTTPS v1 3.6"
        )


def sign_gateway_receipt(
    result: Result, signer: Signer, *, issuer: str, origin: str | None, nonce: str | None, at: float
) -> str:
    """The receipt of a result that was verified at `at`. Its `rqh` and `res` are those of the endpoint's.

    `issuer` is the gateway's origin; `origin` and `nonce` are what the caller sent in Origin and AIIP-Nonce.
    """
    from onym.sign.receipts import (  # late: cryptography is heavy
        GATEWAY,
        Receipt,
        make_receipt_id,
        sign_receipt,
    )

    seen = result.receipt
    receipt = Receipt(
        kind=GATEWAY,
        issuer=issuer,
        subject=seen.subject,
        audience=origin if origin and _ORIGIN.fullmatch(origin) else ANONYMOUS,
        issued=int(at),
        expires=int(at) + LIFETIME,
        id=make_receipt_id(),
        nonce=nonce,
        request=seen.request,
        status=seen.status,
        content_type=seen.content_type,
        digest=seen.digest,
        length=seen.length,
        stream=seen.stream,
        policy=POLICY_HASH,
        upstream=hash_upstream_receipt(result.token),
    )
    return sign_receipt(receipt, signer)
