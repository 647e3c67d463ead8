"""The gateway's own receipt: that it verified the endpoint's, when, under which policy (3.8)."""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final

from onym.ai.gateway.doors import POLICY_HASH
from onym.errors import AIIPError

if TYPE_CHECKING:
    from onym.ai.records import Result
    from onym.sign.keys import Signer

__all__ = ["HEADER", "LIFETIME", "check_nonce", "upstream_hash", "witness"]

#: the header field
HEADER: Final = "aiip-gateway-receipt"
#: seconds that a receipt is accepted as a fresh one
LIFETIME: Final = 120
#: `aud` for a caller that gives no origin
ANONYMOUS: Final = "anonymous"
_ORIGIN: Final = re.compile(r"https?://[a-z0-9.:\[\]-]{1,300}")
_NONCE: Final = re.compile("[A-Za-z0-9_-]{22,128}")


def upstream_hash(token: str) -> str:
    """`up`: base64url of the SHA-256 of the endpoint's receipt in its compact form."""
    return urlsafe_b64encode(hashlib.sha256(token.encode("ascii")).digest()).rstrip(b"=").decode("ascii")


def check_nonce(nonce: str | None) -> None:
    """Raises AIIPError for an AIIP-Nonce that is none of 128 bits or more in base64url (3.6)."""
    if nonce is not None and not _NONCE.fullmatch(nonce):
        raise AIIPError(
            "AIIP-Nonce is 128 bits or more in base64url", code="aiip.bad-request", clause="AIIP/HTTPS v1 3.6"
        )


def witness(
    result: Result, signer: Signer, *, issuer: str, origin: str | None, nonce: str | None, at: float
) -> str:
    """The receipt of a result that was verified at `at`. Its `rqh` and `res` are those of the endpoint's.

    `issuer` is the gateway's origin; `origin` and `nonce` are what the caller sent in Origin and AIIP-Nonce.
    """
    from onym.sign.receipt import GATEWAY, Receipt, new_id, sign_receipt  # late: cryptography is heavy

    seen = result.receipt
    receipt = Receipt(
        kind=GATEWAY,
        issuer=issuer,
        subject=seen.subject,
        audience=origin if origin and _ORIGIN.fullmatch(origin) else ANONYMOUS,
        issued=int(at),
        expires=int(at) + LIFETIME,
        id=new_id(),
        nonce=nonce,
        request=seen.request,
        status=seen.status,
        content_type=seen.content_type,
        digest=seen.digest,
        length=seen.length,
        stream=seen.stream,
        policy=POLICY_HASH,
        upstream=upstream_hash(result.token),
    )
    return sign_receipt(receipt, signer)
