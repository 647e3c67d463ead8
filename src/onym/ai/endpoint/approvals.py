"""Approvals at an endpoint: the challenge of a call that people must approve, and the check of the evidence.

A policy demands the approval (`@approval` on a Cedar permit). Without evidence the endpoint answers 403
`approval-required` with a signed challenge. With evidence (`AIIP-Approval`) it makes the challenge again,
from the request as it is now: another body, query, key, caller, policy or description makes another
challenge. The evidence is spent in the transaction that begins the call (AIIP/HTTPS v1, 3.13).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from onym.ai.endpoint.policy import ApprovalTerms
from onym.ai.endpoint.resources import Resource, Site
from onym.ai.endpoint.signing import ReceiptRequest
from onym.ai.oauth_metadata import parse_url
from onym.ai.records import Approver, Effects, is_json
from onym.common.strict_json import encode_base64url
from onym.errors import AIIPError, DeniedError, NetError, SignatureError, UsageError
from onym.net.config import NetConfig
from onym.net.limits import NetLimits
from onym.net.messages import HTTPRequest, Reply, Send
from onym.net.transport import AsyncTransport
from onym.sign.approval import (
    CHALLENGE_SECONDS,
    MAX_APPROVERS,
    Approval,
    CallDetails,
    Challenge,
    Rule,
    get_approver,
    get_transaction_time,
    hash_approval,
    hash_challenge,
    make_transaction,
    sign_challenge,
    verify_approval,
)
from onym.sign.keys import LEEWAY, MAX_AUTHORITY_KEY_SET, AuthorityKeys, Signer, read_authority_keys
from onym.sign.receipts import ApprovalReference

#: the header field with the evidence, and that of a caller who can pass a challenge on
APPROVAL_FIELD: Final = "AIIP-Approval"
CAPABILITY_FIELD: Final = "Accept-Txn-Challenge"
#: bytes of a body that people can be shown
MAX_SHOWN: Final = 64 * 1024
#: seconds between a sign-in and the approval of a call with these effects (4.5)
FRESH_SECONDS: Final = 300.0
_FRESH: Final = frozenset({Effects.FINANCIAL, Effects.PHYSICAL})
_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
#: a true item of RFC 9651 3.3.6, with or without parameters
_TRUE: Final = re.compile(r"\?1[ \t]*(?:;.*)?")
_AGAIN: Final = "Send the request without AIIP-Approval to get a new challenge."
#: bytes and seconds of a request for keys; seconds for which keys are used, and between two requests
_LIMITS: Final = NetLimits(body=MAX_AUTHORITY_KEY_SET, error_body=16 * 1024, connect=5.0)
_TIMEOUT: Final = 10.0
_KEY_SECONDS: Final = 60.0
_RETRY: Final = 5.0


class ApproverKeys:
    """The keys of one approver, from the URL in the endpoint's configuration.

    Raises AIIPError `aiip.unavailable` if they cannot be fetched. Expired keys are never used.
    """

    def __init__(self, approver: Approver, transport: AsyncTransport, clock: Callable[[], float]) -> None:
        self._approver = approver
        self._transport = transport
        self._clock = clock
        self._lock = asyncio.Lock()
        self._keys: AuthorityKeys | None = None
        self._fetched = self._failed = float("-inf")

    async def get(self) -> AuthorityKeys:
        """Return the keys. They are fetched once a minute, so that a revocation is noticed."""
        async with self._lock:
            now = self._clock()
            if self._keys is not None and now - self._fetched < _KEY_SECONDS:
                return self._keys
            if now - self._failed < _RETRY:
                raise self._make_unavailable_error("they could not be fetched a few seconds ago")
            try:
                self._keys = await self._fetch()
            except (NetError, SignatureError) as error:
                self._failed = self._clock()
                raise self._make_unavailable_error("they cannot be fetched, or are invalid") from error
            self._fetched = now
            return self._keys

    async def _fetch(self) -> AuthorityKeys:
        origin, target = parse_url(self._approver.jwks)
        fields = (("Accept", "application/jwk-set+json, application/json"),)
        request = HTTPRequest(method="GET", origin=origin, target=target, headers=fields)
        reply: Reply = await self._transport.send(Send(request, timeout=_TIMEOUT))
        if reply.status != 200:
            raise SignatureError(f"the key set was answered with status {reply.status}", code="sign.bad-key")
        return read_authority_keys(reply.body)

    def _make_unavailable_error(self, why: str) -> AIIPError:
        return AIIPError(
            f"the keys of the approver {self._approver.issuer} cannot be used: {why}",
            code="aiip.unavailable",
            clause=_CLAUSE,
            retryable=True,
            hint="Nothing was done. Send the request again with the same idempotency key and approval.",
        )


@dataclass(frozen=True, slots=True)
class CheckedApproval:
    """A valid approval: the transaction that the call must spend, and the reference for its receipt."""

    transaction: str
    reference: ApprovalReference


class ApprovalChecker:
    """Challenges calls and checks the evidence of the approvers that the authority lists.

    `network` decides how the key sets of the approvers are reached. Raises UsageError for an approver whose
    URLs are not https, and for more than eight of them.
    """

    def __init__(
        self,
        approvers: Iterable[Approver],
        network: NetConfig | None,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.approvers = tuple(approvers)
        issuers = [approver.issuer for approver in self.approvers]
        if len(issuers) > MAX_APPROVERS or len(set(issuers)) < len(issuers):
            raise UsageError(f"an endpoint has at most {MAX_APPROVERS} approvers with different issuers")
        for url in (url for approver in self.approvers for url in (approver.issuer, approver.jwks)):
            if not url.startswith("https://"):
                raise UsageError(f"{url!r} is not an https URL", hint="Approvers are reached over TLS only.")
        self._clock = clock
        self._transport = AsyncTransport(replace(network or NetConfig(), limits=_LIMITS))
        self._keys: Mapping[str, ApproverKeys] = {
            approver.issuer: ApproverKeys(approver, self._transport, monotonic) for approver in self.approvers
        }

    async def close(self) -> None:
        """Close the connections to the approvers."""
        await self._transport.close()

    async def require_approval(
        self,
        request: ReceiptRequest,
        body: bytes,
        resource: Resource,
        site: Site,
        terms: ApprovalTerms,
        policy: str,
        signer: Signer,
    ) -> CheckedApproval:
        """Return the approval of this request, which is not spent yet.

        `policy` is the digest of the policy that demands it. Raises DeniedError `aiip.approval-required` with
        a challenge if the request has no evidence, `aiip.approval-mismatch` if the evidence is not for this
        request, and AIIPError for a request that cannot be approved.
        """
        _require_approvable(request, body, terms)
        evidence = request.head.headers.get(APPROVAL_FIELD)
        if evidence is None:
            transaction = make_transaction(self._clock())
            challenge = self._make_challenge(request, resource, site, terms, policy, transaction)
            raise _make_challenge_error(request, sign_challenge(challenge, signer))
        try:
            approval, approver = await self._verify(evidence, site)
            challenge = self._make_challenge(request, resource, site, terms, policy, approval.transaction)
        except SignatureError as error:
            raise _make_mismatch(request, f"the approval is not valid: {error.message}") from error
        why = _find_mismatch(approval, approver, challenge)
        if why is not None:
            raise _make_mismatch(request, why)
        reference = ApprovalReference(hash=hash_approval(evidence), issuer=approver.issuer, by=approval.by)
        return CheckedApproval(approval.transaction, reference)

    async def _verify(self, evidence: str, site: Site) -> tuple[Approval, Approver]:
        """Verify the signature, audience and times. Raises SignatureError."""
        issuer = get_approver(evidence)
        approver = next((known for known in self.approvers if known.issuer == issuer), None)
        if approver is None:
            raise SignatureError("the authority does not list its approver", code="sign.bad-issuer")
        keys = await self._keys[issuer].get()
        approval = verify_approval(evidence, keys, issuer=issuer, audience=site.identifier, at=self._clock())
        return approval, approver

    def _make_challenge(
        self,
        request: ReceiptRequest,
        resource: Resource,
        site: Site,
        terms: ApprovalTerms,
        policy: str,
        transaction: str,
    ) -> Challenge:
        """Return the challenge of this request with this `txn`. Raises SignatureError for a foreign `txn`."""
        issued, caller = get_transaction_time(transaction), request.caller
        call = CallDetails(
            uri=str(request.uri),
            method=request.head.method,
            request=request.request_hash,
            effects=resource.effects.value,
            rule=terms.rule,
            description=encode_base64url(sha256(resource.encode_description()).digest()),
            policy=policy,
            digest=request.digest,
            content_type=request.head.content_type,
        )
        return Challenge(
            issuer=site.identifier,
            approvers=tuple(approver.issuer for approver in self.approvers),
            issued=issued,
            expires=issued + CHALLENGE_SECONDS,
            transaction=transaction,
            call=call,
            reason=terms.reason,
            requester=caller.subject or caller.audience,
            client=caller.client_id,
            key=caller.key,
        )


def _require_approvable(request: ReceiptRequest, body: bytes, terms: ApprovalTerms) -> None:
    """Raise AIIPError for a request whose approval would not bind it, or that people cannot be shown."""
    head, target = request.head, request.subject
    if head.idempotency_key is None:
        raise AIIPError(
            "a request that needs an approval needs an idempotency key",
            code="aiip.idempotency-required",
            target=target,
            clause=_CLAUSE,
            hint='Send a new key with every request: Idempotency-Key: "8e03978e-40d5".',
        )
    if len(body) > MAX_SHOWN:
        message = f"a body that people must approve has at most {MAX_SHOWN} bytes"
        raise AIIPError(message, code="aiip.too-large", target=target, clause=_CLAUSE)
    if body and not terms.any_body and not is_json(head.content_type):
        raise AIIPError(
            "the body is not JSON, so that people could not see what they approve",
            code="aiip.unsupported-media-type",
            target=target,
            clause=_CLAUSE,
            hint='Send JSON. The authority can allow other bodies with @approval_body("any").',
        )


def _find_mismatch(approval: Approval, approver: Approver, challenge: Challenge) -> str | None:
    """Return why the approval is not for the challenge, or None if it is for it."""
    if approval.request != challenge.call.request:
        return "the approval is for another request"
    if approval.key != challenge.key:
        return "the approval is for another key"
    if approval.challenge != hash_challenge(challenge):
        return "the caller, the policy or the description has changed since the approval was asked for"
    if approval.issued > challenge.expires:
        return "the challenge had expired when the approval was given"
    if len(approval.by) != challenge.call.rule.persons:
        return f"the rule {challenge.call.rule} needs {challenge.call.rule.persons} person(s)"
    if challenge.call.rule is not Rule.PERSON and challenge.requester in approval.by:
        return "the person who asks cannot approve the request"
    if approver.acr and approval.acr not in approver.acr:
        return "the approver's sign-in is not of an accepted kind"
    fresh = approval.issued - approval.authenticated <= FRESH_SECONDS + LEEWAY
    if Effects(challenge.call.effects) in _FRESH and not fresh:
        return f"the approver's sign-in was more than {FRESH_SECONDS:.0f} seconds before the approval"
    return None


def _make_mismatch(request: ReceiptRequest, message: str) -> DeniedError:
    return DeniedError(
        message, code="aiip.approval-mismatch", target=request.subject, clause=_CLAUSE, hint=_AGAIN
    )


def _make_challenge_error(request: ReceiptRequest, challenge: str) -> DeniedError:
    error = DeniedError(
        "the request needs an approval",
        code="aiip.approval-required",
        target=request.subject,
        clause=_CLAUSE,
        hint=f"Have it approved, then send the same request with the evidence in {APPROVAL_FIELD}.",
    )
    error.transaction_challenge = challenge
    given = request.head.headers.get_all(CAPABILITY_FIELD)
    if len(given) == 1 and _TRUE.fullmatch(given[0].strip()):
        error.challenge = (
            'Bearer error="transaction_authorization_required", '
            f'error_description="the request needs an approval", transaction_challenge="{challenge}"'
        )
    return error
