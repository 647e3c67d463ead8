"""The access policy of a gateway, and the receipt that states it (AIIP/HTTPS v1, 3.8 and 3.13).

A gateway has no users: it forwards only to read-only resources that need no token, no sender constraint and
no approval. It rejects all others before it sends a request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import Final

from onym.ai.records import ANONYMOUS_AUDIENCE, Auth, Description, Effects, Level, Resolution, Result
from onym.ai.request_validation import NONCE
from onym.common.strict_json import encode_base64url
from onym.errors import AIIPError, DeniedError
from onym.sign.keys import Signer
from onym.sign.receipts import GATEWAY, Receipt, make_receipt_id, sign_receipt
from onym.uri.ai import AIURI
from onym.uri.generic import URI

#: the policy as text; `pol` of a gateway's receipt is its hash
POLICY: Final = (
    "aiip-gateway-policy-v1: effects=read auth=none dpop=none mtls=false approval=false signed=true"
)
POLICY_HASH: Final = encode_base64url(hashlib.sha256(POLICY.encode()).digest())

_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
_NATIVE: Final = "Use an AIIP client to send the request to the authority itself."


def require_no_loop(uri: AIURI, own: Collection[str]) -> None:
    """Raise DeniedError if the authority is this gateway. `own` are its hosts, without ports."""
    if (uri.host or "").lower() in own:
        raise _make_loop_error(uri)


def require_open_authority(resolution: Resolution, own: Collection[str]) -> None:
    """Raise DeniedError if the authority, or its entry for this resource, has more requirements.

    `own` are the gateway's hosts: an authority that they serve would cause a loop.
    """
    document = resolution.document
    hosts = [URI.parse(document.anchor).host, URI.parse(document.service).host]
    targets = () if resolution.connect is None else (resolution.connect, *resolution.fallbacks)
    hosts += [origin.host for origin in targets]
    if any((host or "").lower() in own for host in hosts):
        raise _make_loop_error(resolution.uri)
    required = document.requirements
    if required.mtls or required.dpop is Level.REQUIRED:
        raise _make_denial(resolution.uri, "sender-constraint", "the authority requires sender-bound tokens")
    if required.auth is not Auth.NONE:
        raise _make_denial(
            resolution.uri, "authentication-required", "the authority requires an access token"
        )
    entry = resolution.entry
    if entry is not None:
        _require_open(resolution.uri, entry.effects, entry.scopes, entry.approval)


def require_open_resource(uri: AIURI, description: Description) -> None:
    """Raise DeniedError if the resource's description shows that it does more than read."""
    _require_open(uri, description.effects, description.scopes, description.approval)


def find_denial(uri: AIURI, description: Description) -> AIIPError | None:
    """Return the error that an invocation would cause, or None."""
    try:
        require_open_resource(uri, description)
    except AIIPError as error:
        return error
    return None


def _require_open(uri: AIURI, effects: Effects, scopes: Collection[str], approval: bool) -> None:
    if approval:
        raise _make_denial(uri, "approval-required", "an invocation requires an approval")
    if effects is not Effects.READ:
        raise _make_denial(
            uri, "policy-denied", f"it has {effects} effects, and the gateway allows only read"
        )
    if scopes:
        raise _make_denial(uri, "authentication-required", "an invocation requires an access token")


def _make_denial(uri: AIURI, code: str, why: str) -> DeniedError:
    return DeniedError(
        f"the gateway does not forward to this resource: {why}",
        code=f"aiip.{code}",
        target=str(uri.without_query),
        clause=_CLAUSE,
        hint=_NATIVE,
    )


def _make_loop_error(uri: AIURI) -> DeniedError:
    return DeniedError(
        "the authority is served by this gateway, so the request would loop",
        code="aiip.policy-denied",
        target=str(uri.without_query),
        clause=_CLAUSE,
    )


#: the header field
RECEIPT_HEADER: Final = "aiip-gateway-receipt"
#: seconds for which a receipt is fresh
LIFETIME: Final = 120
_ORIGIN: Final = re.compile(r"https?://[a-z0-9.:\[\]-]{1,300}")


def hash_upstream_receipt(token: str) -> str:
    """Return `up`: base64url of the SHA-256 of the endpoint's receipt in its compact form."""
    return encode_base64url(hashlib.sha256(token.encode("ascii")).digest())


def validate_nonce(nonce: str | None) -> None:
    """Raise AIIPError unless the nonce is 22 to 128 characters of base64url (3.6)."""
    if nonce is not None and not NONCE.fullmatch(nonce):
        raise AIIPError(
            "AIIP-Nonce is not 22 to 128 characters of base64url",
            code="aiip.bad-request",
            clause="AIIP/HTTPS v1 3.6",
        )


def sign_gateway_receipt(
    result: Result, signer: Signer, *, issuer: str, origin: str | None, nonce: str | None, at: float
) -> str:
    """Sign the gateway's receipt of a result that was verified at `at`.

    `issuer` is the gateway's origin; `origin` and `nonce` are the caller's Origin and AIIP-Nonce.
    """
    upstream = result.receipt
    receipt = Receipt(
        kind=GATEWAY,
        issuer=issuer,
        subject=upstream.subject,
        audience=origin if origin and _ORIGIN.fullmatch(origin) else ANONYMOUS_AUDIENCE,
        issued=int(at),
        expires=int(at) + LIFETIME,
        id=make_receipt_id(),
        nonce=nonce,
        request=upstream.request,
        status=upstream.status,
        content_type=upstream.content_type,
        digest=upstream.digest,
        length=upstream.length,
        stream=upstream.stream,
        policy=POLICY_HASH,
        upstream=hash_upstream_receipt(result.token),
    )
    return sign_receipt(receipt, signer)
