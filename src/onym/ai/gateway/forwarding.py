"""What a gateway forwards: resources, header fields, its receipt, and errors (3.7, 3.8, 3.13, 3.14).

A gateway has no users: it forwards only to read-only resources that need no token, no sender constraint and
no approval, and rejects all others before it sends a request. Allow lists select the header fields. A caller
does not learn which check of a receipt failed, which keys are known, which address a name has or which file
of the gateway is unusable; the operator's log contains it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from onym import errors
from onym.ai import messages, records
from onym.ai.messages import NONCE, Fields, get_connection_fields, get_field_values
from onym.common.text import encode_base64url
from onym.errors import AIIPError, DeniedError
from onym.net.messages import Headers
from onym.sign.keys import Signer
from onym.sign.receipts import GATEWAY, Receipt, make_receipt_id, sign_receipt
from onym.uri.ai import AIURI
from onym.uri.generic import URI

#: the policy of a gateway where nobody can sign in, and of one with people, as text
POLICY: Final = (
    "aiip-gateway-policy-v1: effects=read auth=none dpop=none mtls=false approval=false signed=true"
)
PEOPLE_POLICY: Final = (
    "aiip-gateway-policy-v1: effects=read,write,financial,physical auth=oauth2 dpop=supported mtls=false "
    "approval=review,evidence signed=true"
)
#: `pol` of a gateway's receipt is the hash of its policy
POLICY_HASH: Final = encode_base64url(hashlib.sha256(POLICY.encode()).digest())
PEOPLE_POLICY_HASH: Final = encode_base64url(hashlib.sha256(PEOPLE_POLICY.encode()).digest())

_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
_NATIVE: Final = "Use an AIIP client to send the request to the authority itself."


def require_no_loop(uri: AIURI, own: Set[str]) -> None:
    """Raise DeniedError if the authority is this gateway. `own` are its hosts, without ports."""
    if (uri.host or "").lower() in own:
        raise _make_loop_error(uri)


def require_reachable_authority(resolution: records.Resolution, own: Set[str]) -> None:
    """Raise DeniedError if no call of this gateway can reach the authority.

    `own` are the gateway's hosts: an authority that they serve would cause a loop. A gateway has no client
    certificate.
    """
    document = resolution.document
    hosts = [_get_host(document.anchor), _get_host(document.service)]
    targets = () if resolution.connect is None else (resolution.connect, *resolution.fallbacks)
    hosts += [origin.host.lower() for origin in targets]
    if not own.isdisjoint(hosts):
        raise _make_loop_error(resolution.uri)
    if document.requirements.mtls:
        raise _make_denial(resolution.uri, "sender-constraint", "the authority requires client certificates")


@lru_cache(256)
def _get_host(url: str) -> str:
    return (URI.parse(url).host or "").lower()


def require_open_authority(resolution: records.Resolution, own: Set[str]) -> None:
    """Raise DeniedError if the authority, or its entry for this resource, requires more than a read.

    `own` are the gateway's hosts. This is the policy of a gateway where nobody can sign in.
    """
    require_reachable_authority(resolution, own)
    required = resolution.document.requirements
    if required.dpop is records.Level.REQUIRED:
        raise _make_denial(resolution.uri, "sender-constraint", "the authority requires sender-bound tokens")
    if required.auth is not records.Auth.NONE:
        why = "the authority requires an access token"
        raise _make_denial(resolution.uri, "authentication-required", why)
    if resolution.entry is not None:
        require_open_resource(resolution.uri, resolution.entry)


def require_open_resource(uri: AIURI, resource: records.Description | records.EndpointEntry) -> None:
    """Raise DeniedError if the resource's description shows that it does more than read."""
    if resource.approval:
        raise _make_denial(uri, "approval-required", "an invocation requires an approval")
    if resource.effects is not records.Effects.READ:
        why = f"it has {resource.effects} effects, and the gateway allows only read"
        raise _make_denial(uri, "policy-denied", why)
    if resource.scopes:
        raise _make_denial(uri, "authentication-required", "an invocation requires an access token")


def find_denial(uri: AIURI, description: records.Description) -> AIIPError | None:
    """Return the error that an invocation would cause, or None."""
    try:
        require_open_resource(uri, description)
    except AIIPError as error:
        return error
    return None


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


def find_approval_challenge(result: records.Result) -> str | None:
    """Return the challenge of a verified response that asks for an approval, or None."""
    if result.status != 403:
        return None
    error = messages.decode_problem(
        result.status, result.content_type, result.body, result.receipt.subject, signed=True
    )
    challenge = (error.problem or {}).get("transaction_challenge")
    return challenge if error.code == "aiip.approval-required" and isinstance(challenge, str) else None


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
    result: records.Result,
    signer: Signer,
    *,
    issuer: str,
    origin: str | None,
    nonce: str | None,
    at: float,
    policy: str = POLICY_HASH,
    client: str | None = None,
    token_hash: str | None = None,
) -> str:
    """Sign the gateway's receipt of a result that was verified at `at`.

    `issuer` is the gateway's origin; `origin` and `nonce` are the caller's Origin and AIIP-Nonce. `policy` is
    the hash of the gateway's policy. `client` is the client ID of a program with an access token, and
    `token_hash` the token's hash.
    """
    upstream = result.receipt
    receipt = Receipt(
        kind=GATEWAY,
        issuer=issuer,
        subject=upstream.subject,
        audience=client or (origin if origin and _ORIGIN.fullmatch(origin) else records.ANONYMOUS_AUDIENCE),
        token_hash=token_hash,
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
        policy=policy,
        upstream=hash_upstream_receipt(result.token),
    )
    return sign_receipt(receipt, signer)


#: forwarded unchanged; the gateway's client sets or checks Accept, Content-Type, Content-Digest and
#: Idempotency-Key itself
_UPSTREAM_FIELDS: Final = (
    b"accept-language", b"content-language", b"if-match", b"if-none-match", b"prefer", b"traceparent",
)  # fmt: skip
_CLIENT_FIELDS: Final = ("content-language", "etag", "last-modified", "retry-after", "preference-applied")
#: on every response; a result is for one caller, and its receipt covers every byte
FIXED_FIELDS: Final = (
    ("cache-control", "private, no-store, no-transform"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
#: content of many authorities shares one origin, so it must not run scripts or read anything
RESULT_POLICY: Final = (
    "default-src 'none'; sandbox; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

#: media types that a browser shows without running anything; all others are downloaded
_PASSIVE: Final = frozenset(
    {
        "application/aiip+json", "application/json", "application/problem+json", "image/gif", "image/jpeg",
        "image/png", "image/webp", "text/csv", "text/event-stream", "text/plain",
    }
)  # fmt: skip


def select_upstream_fields(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Return the fields for the endpoint. Raises AIIPError for one that is not ASCII.

    Fields that Connection names are hop-by-hop (RFC 9110 7.6.1).
    """
    hop_by_hop = get_connection_fields(fields)
    selected = []
    for name in _UPSTREAM_FIELDS:
        values = [] if name in hop_by_hop else get_field_values(fields, name)
        text = ", ".join(value.decode("latin-1") for value in values)
        if not text.isascii():
            raise AIIPError(
                f"the header field {name.decode()} is not ASCII",
                code="aiip.bad-request",
                clause="RFC 9110 5.5",
            )
        if text:
            selected.append((name.decode(), text))
    return tuple(selected)


def select_client_fields(headers: Headers) -> list[tuple[str, str]]:
    """Return the endpoint's fields for the caller; Content-Type and the receipt are added with the body."""
    return [
        (name, value)
        for name in _CLIENT_FIELDS
        for value in headers.get_all(name)[:1]
        if not any(octet in value for octet in "\r\n\x00")
    ]


def get_content_disposition(content_type: str | None) -> str | None:
    """Return the Content-Disposition that makes a browser download active content, or None."""
    return None if records.parse_media_type(content_type) in _PASSIVE else 'attachment; filename="result"'


def format_via(received: Iterable[bytes], name: str) -> str:
    """Return the Via field of the forwarded request: earlier hops and this gateway (RFC 9110 7.6.3)."""
    before = [value.decode("latin-1") for value in received]
    return ", ".join([*(value for value in before if value.isascii()), f"1.1 {name}"])


#: classes whose messages are about the request or the authority; other messages may name files of the gateway
_PUBLIC: Final = (errors.AIIPError, errors.URIError)
#: secrets or keys of the gateway cannot be read now
_UNUSABLE: Final = ((errors.CredentialError, "unavailable"),)
#: one code for every check of a receipt
_UNIFORM: Final = MappingProxyType(
    {"provenance-missing": "provenance-invalid", "provenance-stale": "provenance-invalid"}
)
_PUBLIC_DETAILS: Final = MappingProxyType(
    {
        "provenance-invalid": "the receipt of the response could not be verified, so nothing was released",
        "blocked-address": "the gateway's policy does not allow the authority's address",
        "upstream-unreachable": "the authority sent no usable response",
        "internal": "the gateway failed",
        # a file of the gateway cannot be used (pins, receipts, names or the audit log), or a store is full
        "unavailable": "the gateway is temporarily unavailable",
    }
)
#: 401 would promise that a sign-in at the gateway helps, which it does not (RFC 9110 15.5.2)
_STATUS: Final = MappingProxyType(
    {"authentication-required": 403, "sender-constraint": 403, "step-up-required": 403}
)
#: statuses of an endpoint's own problems that mean the same to a gateway's caller
_PASSED_STATUSES: Final = frozenset(
    {400, 404, 405, 406, 409, 410, 411, 412, 413, 415, 422, 429, 501, 503, 504}
)
#: code -> error type of RFC 9209 2.3
_PROXY: Final = MappingProxyType(
    {
        "upstream-timeout": "connection_timeout",
        "upstream-unreachable": "destination_unavailable",
        "blocked-address": "destination_ip_prohibited",
        "unknown-authority": "destination_not_found",
        "endpoint-unknown": "destination_not_found",
        "discovery-conflict": "destination_not_found",
        "too-large": "http_request_error",
        "upstream-redirect": "http_protocol_error",
        "provenance-invalid": "http_protocol_error",
        "downgrade-detected": "http_protocol_error",
        "unavailable": "destination_unavailable",
        "internal": "proxy_internal_error",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error as the caller sees it.

    `cause` is the code for the operator, `upstream` the endpoint's status. `challenges` are values of
    WWW-Authenticate, and `page_url` is a page of the gateway for a person. `retry_after` is in seconds.
    """

    code: str
    status: int
    title: str
    detail: str
    cause: str
    target: str | None = None
    hint: str | None = None
    clause: str | None = None
    retryable: bool = False
    canonical: str | None = None
    upstream: int | None = None
    challenges: tuple[str, ...] = ()
    page_url: str | None = None
    retry_after: int = 1


def make_refusal(error: errors.OnymError) -> Refusal:
    """Return an error's public form; its message is public if it is about the request or the authority."""
    if isinstance(error, errors.InvocationError):
        return _make_endpoint_refusal(error)
    name = messages.get_problem_code(error, _UNUSABLE).name
    row = messages.CODES[_UNIFORM.get(name, name)]
    challenges = _list_challenges(error)
    status = row.status if challenges else _STATUS.get(row.name, row.status)
    retryable = row.retryable and not isinstance(error, errors.URIError)
    if isinstance(error, errors.ResponseTooLarge):
        row, status = messages.CODES["too-large"], 502  # not the request but the response is too large
    if isinstance(error, errors.AuthorizationError) and error.status == 503:
        # the authorization server failed; it has not refused
        status, retryable = 503, error.retryable
    if row.name == "unavailable" and type(error) is errors.AIIPError and error.retryable:
        public_detail = None  # the gateway is overloaded; an unusable file has another class
    else:
        public_detail = _PUBLIC_DETAILS.get(row.name) or (None if isinstance(error, _PUBLIC) else row.title)
    canonical = error.hint if row.name == "non-canonical-uri" else None
    return Refusal(
        code=row.name,
        status=status,
        title="The gateway failed" if row.name == "internal" else row.title,
        detail=public_detail or error.message,
        cause=error.code,
        target=getattr(error, "target", None),
        hint=None if public_detail or canonical else error.hint,
        clause=None if public_detail else getattr(error, "clause", None),
        retryable=retryable,
        canonical=canonical,
        challenges=challenges,
        page_url=getattr(error, "page_url", None),
        retry_after=getattr(error, "retry_after", None) or 1,
    )


def _list_challenges(error: errors.OnymError) -> tuple[str, ...]:
    """Return the challenges with which the gateway itself refused a program's token, if it did.

    Other classes of errors have the challenge of an endpoint, which is not for the gateway's caller.
    """
    if type(error) is not errors.AIIPError or not error.challenge:
        return ()
    return (error.challenge,) if isinstance(error.challenge, str) else error.challenge


def _make_endpoint_refusal(error: errors.InvocationError) -> Refusal:
    """Return the endpoint's own problem: its code and text, with the status that a gateway uses (3.7)."""
    problem: Mapping[str, Any] = error.problem or {}
    status = error.status or 502
    shown = 403 if status in {401, 403} else status if status in _PASSED_STATUSES else 502
    row = messages.CODES.get(
        str(problem.get("code", "")), messages.CODES["policy-denied"] if shown == 403 else None
    )
    detail = problem.get("detail")
    return Refusal(
        code=row.name if row is not None else "invocation-failed",
        status=shown,
        title=row.title if row is not None else "The endpoint rejected the request",
        detail=detail[: messages.LONGEST_DETAIL] if isinstance(detail, str) else error.message,
        cause=error.code,
        target=error.target,
        retryable=error.retryable,
        upstream=status,
    )


def build_refusal_document(
    refusal: Refusal, *, base_url: str, request_id: str, trace: str | None = None
) -> dict[str, Any]:
    """Return the problem document of a refusal (RFC 9457)."""
    return messages.build_problem_document(
        messages.ProblemCode(refusal.code, refusal.status, refusal.title, refusal.retryable),
        type_uri=f"{base_url}/problems/{refusal.code}",
        detail=refusal.detail,
        request_id=request_id,
        target=refusal.target or None,
        hint=refusal.hint or None,
        clause=refusal.clause or None,
        canonical=refusal.canonical or None,
        page_url=refusal.page_url,
        trace=trace or None,
    )


def format_proxy_status(refusal: Refusal, name: str) -> str:
    """Return the Proxy-Status field (RFC 9209) of a response that the gateway `name` made."""
    if refusal.upstream is not None:
        return f'"{name}"; received-status={refusal.upstream}'
    kind = _PROXY.get(refusal.code, "http_request_error" if refusal.status < 403 else "http_request_denied")
    return f'"{name}"; error={kind}; details="{refusal.code}"'
