"""Sender-constrained access tokens at an endpoint: DPoP (RFC 9449) and mutual TLS (RFC 8705).

A token whose claim `cnf` names a key is valid only with a proof of that key: one `DPoP` field for this very
request, or the client certificate of the connection. A stolen token is useless without the key, and a copied
proof is useless because its ID is accepted once and its nonce is the server's own, of the last minutes.

The claim `rqh` in a proof binds the query, the body and the idempotency key of the request as well. Financial
and physical effects need it, unless the token is bound to a client certificate.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from onym.ai.endpoint.context import AccessRequest, Actor, Caller
from onym.ai.records import Effects
from onym.common.text import encode_base64url, is_printable_text
from onym.errors import AIIPError, CredentialError, SignatureError, StoreError
from onym.sign.dpop import PROOF_SECONDS, DPoPProof, verify_dpop_proof
from onym.sign.jws import make_claim_error
from onym.sign.sealing import SealingSecrets, TemporarySecrets
from onym.store.shared import MemoryStore, SharedStore, mark_seen
from onym.uri.secret import Secret

_CLAUSE: Final = "RFC 9449 7"
#: seconds for which a nonce is new, and the number of nonces that are accepted: this and the last two
_NONCE_SECONDS: Final = 60
_NONCES: Final = 3
_NONCE_LABEL: Final = b"onym-dpop-nonce-v1"
_NONCE_BYTES: Final = 16
#: parties that act for one subject, and characters of their names
MAX_ACTORS: Final = 4
_LONGEST: Final = 255
#: effects that a copied or changed request must not have (AIIP/HTTPS v1 3.10)
BOUND_EFFECTS: Final = frozenset({Effects.FINANCIAL, Effects.PHYSICAL})


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The keys that a token is bound to (`cnf`, RFC 7800): thumbprints of a DPoP key and of a certificate."""

    key: str | None = None
    certificate: str | None = None


_MEMBERS: Final[Mapping[str, str]] = {"jkt": "key", "x5t#S256": "certificate"}


def parse_confirmation(claims: Mapping[str, Any]) -> Confirmation:
    """Return the confirmation of a token; empty without `cnf`.

    Raises SignatureError `sign.bad-binding` for members that are unknown: they are constraints that nothing
    would check.
    """
    if "cnf" not in claims:
        return Confirmation()
    members = claims["cnf"]
    if not isinstance(members, dict) or not members or not members.keys() <= _MEMBERS.keys():
        raise make_claim_error(
            "cnf", "bad-binding", "it is not an object with jkt or x5t#S256 and nothing else"
        )
    if not all(isinstance(value, str) and len(value) == 43 for value in members.values()):
        raise make_claim_error("cnf", "bad-binding", "a thumbprint is not a SHA-256 in base64url")
    return Confirmation(**{_MEMBERS[name]: value for name, value in members.items()})


def parse_actors(claims: Mapping[str, Any]) -> tuple[Actor, ...]:
    """Return the parties that act for the subject (`act`, RFC 8693 4.1), the current actor first.

    Raises SignatureError `sign.bad-claim` for more than four, for one without `sub`, and if one appears
    twice: such a chain does not tell who acts for whom.
    """
    actors: list[Actor] = []
    members = claims
    while "act" in members:
        members = members["act"]
        if not isinstance(members, dict) or len(actors) == MAX_ACTORS:
            message = f"it is not a chain of at most {MAX_ACTORS} objects"
            raise make_claim_error("act", "bad-claim", message)
        subject, issuer = members.get("sub"), members.get("iss")
        named = issuer is None or is_printable_text(issuer, _LONGEST)
        if not is_printable_text(subject, _LONGEST) or not named:
            raise make_claim_error("act", "bad-claim", "an actor has no valid sub, or an invalid iss")
        actors.append(Actor(subject=str(subject), issuer=issuer))
    home = claims.get("iss")
    parties = [(claims.get("sub"), home), *((actor.subject, actor.issuer or home) for actor in actors)]
    if len(set(parties)) < len(parties):
        raise make_claim_error("act", "bad-claim", "a party acts for itself, directly or through others")
    return tuple(actors)


def get_certificate_thumbprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate in DER, as in `x5t#S256` (RFC 8705 3.1)."""
    return encode_base64url(sha256(certificate).digest())


class ServerNonces:
    """The nonces that proofs must have (RFC 9449 8): an HMAC of the minute, which needs no storage.

    `secrets` are those of all processes that serve `resource`. `epoch` is that of the replay store: if the
    store has lost its content, all earlier proofs become stale.
    """

    def __init__(self, secrets: SealingSecrets, resource: str, clock: Callable[[], float]) -> None:
        self._secrets = secrets
        self._label = b"\n".join((_NONCE_LABEL, resource.encode()))
        self._clock = clock
        self._known: tuple[tuple[int, str, tuple[Secret, ...]], tuple[str, ...]] | None = None

    def list_nonces(self, epoch: str) -> tuple[str, ...]:
        """Return the nonces that are accepted now; the first one is for new proofs."""
        minute = int(self._clock() // _NONCE_SECONDS)
        # all of them: a secret may have changed a moment ago, and its last nonces are still under way
        key = minute, epoch, tuple(self._secrets.list_secrets())
        if self._known is None or self._known[0] != key:
            minutes = range(minute, minute - _NONCES, -1)
            self._known = key, tuple(self._derive(secret, epoch, at) for secret in key[2] for at in minutes)
        return self._known[1]

    def _derive(self, secret: Secret, epoch: str, minute: int) -> str:
        content = b"\n".join((self._label, epoch.encode(), str(minute).encode()))
        digest = hmac.digest(secret.reveal().encode(), content, "sha256")
        return encode_base64url(digest[:_NONCE_BYTES])


class ProofVerifier:
    """Verifies the DPoP proofs of the requests to one resource.

    `store` remembers the proofs that were used; processes that share it and `secrets` refuse each other's
    proofs. The default is for one process.
    """

    def __init__(
        self,
        resource: str,
        *,
        clock: Callable[[], float],
        store: SharedStore | None = None,
        secrets: SealingSecrets | None = None,
    ) -> None:
        self._clock = clock
        self._store = MemoryStore(clock=clock) if store is None else store
        self._nonces = ServerNonces(secrets or TemporarySecrets(), resource, clock)
        self._epoch: str | None = None
        #: whether other processes see which proofs were used here, and accept the same nonces
        self.is_shared = not (isinstance(self._store, MemoryStore) or secrets is None)

    async def verify(
        self, request: AccessRequest, token: str, key: str
    ) -> tuple[DPoPProof | None, str | None]:
        """Return the proof of this request and token, or None if it has no current nonce, and the next nonce.

        `key` is the thumbprint that the token is bound to. The next nonce is None if the proof has the newest
        one. Raises SignatureError for an invalid proof (`sign.unknown-key` if it is of another key), and
        AIIPError `aiip.unavailable` if the store cannot tell whether the proof was used before.
        """
        fields = request.headers.get_all("dpop")
        if len(fields) != 1:
            raise SignatureError("the request must have one DPoP field", code="sign.malformed")
        proof = verify_dpop_proof(
            fields[0], method=request.method, url=request.url, at=self._clock(), access_token=token
        )
        if not hmac.compare_digest(proof.thumbprint, key):
            message = "the access token is bound to another DPoP key"
            raise SignatureError(message, code="sign.unknown-key")
        try:
            epoch = self._epoch or await self._renew_epoch()
            nonces = self._nonces.list_nonces(epoch)
            if not _is_among(proof.nonce, nonces):
                return None, nonces[0]
            identity = f"{proof.thumbprint}\n{proof.id}"
            until = proof.issued + 2 * PROOF_SECONDS
            # the epoch of these nonces: another request may have learned a new one meanwhile
            unused = await mark_seen(self._store, "proof", identity, until, epoch=epoch)
        except (CredentialError, StoreError) as error:  # the secrets of the nonces, or the store
            if error.code != "store.epoch":
                raise _make_unavailable_error() from error
            # proofs of the time before may have been used: the store has forgotten them
            return None, await self._renew_nonce()
        if not unused:
            raise make_claim_error("jti", "replayed", "the proof was used before")
        return proof, None if proof.nonce == nonces[0] else nonces[0]

    async def _renew_nonce(self) -> str:
        try:
            return self._nonces.list_nonces(await self._renew_epoch())[0]
        except (CredentialError, StoreError) as error:
            raise _make_unavailable_error() from error

    async def _renew_epoch(self) -> str:
        self._epoch = epoch = await self._store.epoch()
        return epoch


def _is_among(nonce: str | None, nonces: tuple[str, ...]) -> bool:
    return nonce is not None and any(hmac.compare_digest(nonce, known) for known in nonces)


def _make_unavailable_error() -> AIIPError:
    return AIIPError(
        "the endpoint cannot tell whether the DPoP proof was used before",
        code="aiip.unavailable",
        clause="AIIP/HTTPS v1 3.10",
        status=503,
        retryable=True,
        hint="Try again in a few seconds.",
    )


def require_bound_request(caller: Caller, effects: Effects, *, always: bool) -> None:
    """Raise AIIPError `aiip.sender-constraint` if the caller's token is not bound closely enough.

    The token of a request with financial or physical effects, and of every request with `always`, must be
    bound to a client certificate, or the request to a DPoP proof with `rqh`. Callers without a token are not
    affected.
    """
    if caller.token_hash is None or not (always or effects in BOUND_EFFECTS):
        return
    if caller.certificate is None and caller.proof_request_hash is None:
        raise _make_binding_error(
            caller,
            "this request needs a proof that covers its body",
            "Send a DPoP proof with the claim rqh, or use a token that is bound to a client certificate.",
        )


def verify_request_binding(caller: Caller, request_hash: Callable[[], str]) -> None:
    """Raise AIIPError `aiip.sender-constraint` if the caller's proof is for another query, body or key.

    `request_hash` returns the hash of the request after its body was read.
    """
    claimed = caller.proof_request_hash
    if claimed is not None and not hmac.compare_digest(claimed, request_hash()):
        raise _make_binding_error(
            caller,
            "the DPoP proof is for another query, body, content type or idempotency key",
            "Make a new proof whose rqh is the hash of this request.",
        )


def _make_binding_error(caller: Caller, message: str, hint: str) -> AIIPError:
    error = AIIPError(message, code="aiip.sender-constraint", clause="AIIP/HTTPS v1 3.10", hint=hint)
    error.challenge = format_challenge("DPoP", error="invalid_dpop_proof", error_description=message)
    error.dpop_nonce = caller.next_nonce
    error.refused_proof = "request-hash"
    return error


def format_challenge(scheme: str, **parameters: str | None) -> str:
    """Return a value of WWW-Authenticate; parameters without a value are left out."""
    given = [f'{name}="{value}"' for name, value in parameters.items() if value]
    return f"{scheme} {', '.join(given)}".rstrip()
