"""Receipts of an endpoint: signatures over the request, the caller and the response (AIIP/HTTPS v1, 3.8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from onym.ai.endpoint.context import CONTENT_TYPE, Answer, Caller
from onym.ai.fleet_keys import FleetKeys
from onym.ai.request_validation import RequestHead
from onym.errors import AIIPError, CredentialError, OnymError, SignatureError
from onym.sign.algorithms import USUAL_ALGORITHMS
from onym.sign.keys import Signer
from onym.sign.keystore import KeyStore
from onym.sign.metadata import sign_metadata
from onym.sign.receipts import (
    ApprovalReference,
    StreamEnd,
    content_digest,
    decode_claims,
    encode_claims,
    make_receipt_id,
    request_hash,
    sign_receipt,
)
from onym.sign.receipts import Receipt as _Receipt
from onym.uri.ai import AIURI

#: the algorithms of receipts, unless a published key has another one (3.8)
ALGORITHMS: Final = USUAL_ALGORITHMS
#: seconds for which a receipt is fresh
LIFE: Final = 120
#: seconds for which `signed_metadata` is valid: twice the longest lifetime in a cache
METADATA_LIFE: Final = 48 * 3600
#: bytes of claims that fit into a receipt with any signature
_FITS: Final = 1_536
#: the answer with the largest receipt
_LARGEST: Final = Answer(content_type="x" * 255)
_MOST: Final[Mapping[str, Any]] = {"digest": content_digest(b""), "length": 2**53 - 1}
#: the longest nonce of a request
_NONCE: Final = "A" * 128
_CLAIMED: Final = re.compile(r"sha-256=:[A-Za-z0-9+/]{43}=:")


@dataclass(slots=True)
class ReceiptRequest:
    """A request with its caller, for its receipt. Until the body is read, `digest` is the head's claim.

    A request to a task has the ID of the `task`, the hash of the `original` request, and its own `target`,
    which replaces the URI in the hash of the request.
    """

    head: RequestHead
    uri: AIURI
    caller: Caller
    task: str | None = None
    original: str | None = None
    target: str | None = None
    #: the URI without its query
    subject: str = field(init=False)
    digest: str | None = field(init=False)
    #: the approval that the call has spent
    approval: ApprovalReference | None = field(default=None, init=False)
    _hash: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        claimed = self.head.digest
        self.subject = str(self.uri.without_query)
        self.digest = claimed if claimed is not None and _CLAIMED.fullmatch(claimed) else None

    def set_body(self, body: bytes) -> None:
        """Set the digest of the body."""
        self.digest, self._hash = content_digest(body) if body else None, None

    @property
    def request_hash(self) -> str:
        """`rqh`, the hash of the request (3.8)."""
        if self._hash is None:
            head = self.head
            self._hash = request_hash(
                method=head.method,
                target=self.target or str(self.uri),
                digest=self.digest,
                content_type=head.content_type,
                idempotency_key=head.idempotency_key,
            )
        return self._hash


@dataclass(frozen=True, slots=True)
class ReceiptSigner:
    """Signs for one anchor with its current key. `keys` is a KeyStore, FleetKeys, one Signer, or None."""

    anchor: str
    keys: KeyStore | FleetKeys | Signer | None
    clock: Callable[[], float] = field(repr=False)

    def get_signer(self) -> Signer:
        """Return the current signing key. Raises AIIPError `aiip.receipt-unavailable` without one."""
        if self.keys is None:
            raise _make_unavailable_error()
        try:
            keys: Any = self.keys
            signer: Signer = keys.signer(self.clock()) if hasattr(keys, "signer") else keys
        except (SignatureError, CredentialError) as error:
            raise _make_unavailable_error() from error
        return signer

    def require_signable(self, request: ReceiptRequest) -> None:
        """Raise AIIPError `aiip.receipt-unavailable` if no response to this request could be signed."""
        signer, caller = self.get_signer(), request.caller
        bound = caller.token_hash is not None
        try:
            if (
                request.approval is not None
                or _measure_claims(self.anchor, request.subject, caller.audience, bound) > _FITS
            ):
                # the length of the receipt depends on the signature
                sign_receipt(self._build_receipt(request, _LARGEST, **_MOST), signer)
        except (SignatureError, CredentialError) as error:
            raise _make_unavailable_error() from error

    def sign_answer(self, request: ReceiptRequest, answer: Answer, body: bytes) -> str:
        """Return the receipt of a whole answer; `body` is the part that is sent (nothing for HEAD)."""
        return self._sign_receipt(request, answer, digest=content_digest(body), length=len(body))

    def sign_stream(self, request: ReceiptRequest, answer: Answer, end: StreamEnd) -> str:
        """Return the receipt at the end of a stream."""
        return self._sign_receipt(request, answer, stream=end)

    def _sign_receipt(self, request: ReceiptRequest, answer: Answer, **content: Any) -> str:
        try:
            return sign_receipt(self._build_receipt(request, answer, **content), self.get_signer())
        except (SignatureError, CredentialError) as error:
            raise _make_unavailable_error() from error

    def _build_receipt(self, request: ReceiptRequest, answer: Answer, **content: Any) -> _Receipt:
        now = int(self.clock())
        return _Receipt(
            issuer=self.anchor,
            subject=request.subject,
            audience=request.caller.audience,
            issued=now,
            expires=now + LIFE,
            id=make_receipt_id(),
            nonce=request.head.nonce,
            request=request.request_hash,
            status=answer.status,
            content_type=answer.content_type,
            token_hash=request.caller.token_hash,
            task=request.task,
            original=request.original,
            approval=request.approval,
            **content,
        )

    def sign_document_members(self, members: Mapping[str, Any]) -> str:
        """Sign members of the discovery document (3.2). Raises AIIPError as `get_signer` does."""
        now = self.clock()
        try:
            return sign_metadata(
                members, self.get_signer(), issuer=self.anchor, issued=now, expires=now + METADATA_LIFE
            )
        except (SignatureError, CredentialError) as error:
            raise _make_unavailable_error() from error

    def list_algorithms(self) -> tuple[str, ...]:
        """Return the algorithms that callers must expect: the usual ones and those of the published keys."""
        if self.keys is None:
            return ALGORITHMS
        published = msgspec.json.decode(self.encode_keys("jwks"))["keys"]
        return tuple(dict.fromkeys([*ALGORITHMS, *(key["alg"] for key in published)]))

    def encode_keys(self, name: Literal["jwks", "history"]) -> bytes:
        """Return the key set to publish, or the "history" with all earlier keys, for audits."""
        keys: Any = self.keys
        if keys is None:
            raise _make_unavailable_error()
        try:
            octets: bytes = getattr(keys, name)(self.clock()) if hasattr(keys, name) else b""
        except CredentialError as error:
            raise _make_unavailable_error() from error
        return octets or msgspec.json.encode({"keys": [keys.public()]})


@lru_cache(maxsize=1024)
def _measure_claims(issuer: str, subject: str, audience: str, bound: bool) -> int:
    """Return the size of the claims in the largest receipt for these values; `bound` to a token or not.

    The size of the other claims was limited when the request was parsed. Raises SignatureError for invalid
    claims.
    """
    any_hash = "A" * 43
    trial = _Receipt(
        issuer=issuer,
        subject=subject,
        audience=audience,
        issued=2**31,
        expires=2**31 + LIFE,
        id=make_receipt_id(),
        nonce=_NONCE,
        request=any_hash,
        status=_LARGEST.status,
        content_type=_LARGEST.content_type,
        token_hash=any_hash if bound else None,
        **_MOST,
    )
    claims = encode_claims(trial)
    decode_claims(claims, trial.kind)
    return len(msgspec.json.encode(claims))


def validate_answer(answer: Answer) -> None:
    """Raise OnymError `aiip.internal` for a handler's answer that cannot be signed or sent."""
    texts = all(isinstance(text, str) for field in answer.headers for text in field)
    if not 200 <= answer.status <= 599:
        fault = f"the status {answer.status}"
    elif answer.content_type is not None and not CONTENT_TYPE.fullmatch(answer.content_type):
        fault = "an invalid content type"
    elif not (texts and isinstance(answer.body, bytes)):
        fault = "a body or fields of a wrong type"
    else:
        return
    raise OnymError(f"the handler's answer has {fault}", code="aiip.internal")


def _make_unavailable_error() -> AIIPError:
    # callers must not learn anything about the keys; the log contains the reason
    return AIIPError(
        "the endpoint cannot sign receipts now", code="aiip.receipt-unavailable", clause="AIIP/HTTPS v1 3.6"
    )
