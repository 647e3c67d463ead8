"""AIIP problem codes and problem documents (RFC 9457). Pure.

An Onym error has the code `aiip.` plus the name; a problem document has the name in its `code` member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from onym.ai.records import PROBLEM, parse_media_type
from onym.errors import (
    AIURIError,
    DeadlineExceeded,
    DeniedError,
    DiscoveryError,
    InvocationError,
    NetError,
    OnymError,
    PolicyError,
    ProvenanceError,
    ProviderError,
    RateLimitError,
    RedirectRefused,
    SignatureError,
    StoreError,
    URIError,
)

_PREFIX: Final = "aiip."


@dataclass(frozen=True, slots=True)
class ProblemCode:
    """One code: its title for people and its HTTP status at endpoints and gateways."""

    name: str
    status: int
    title: str
    retryable: bool = False


_ROWS: Final = (
    ProblemCode("malformed-uri", 400, "This is not a valid ai URI"),
    ProblemCode("non-canonical-uri", 400, "This ai URI is not in canonical form"),
    ProblemCode("bad-request", 400, "The request is invalid"),
    ProblemCode("idempotency-required", 400, "This request needs an idempotency key"),
    ProblemCode("authentication-required", 401, "This request needs an access token"),
    ProblemCode("sign-in-required", 401, "Sign in first"),
    ProblemCode("sender-constraint", 401, "The access token is bound to another sender"),
    ProblemCode("step-up-required", 401, "This request needs a fresh sign-in"),
    ProblemCode("policy-denied", 403, "Policy does not allow this"),
    ProblemCode("approval-required", 403, "This request needs an approval"),
    ProblemCode("approval-mismatch", 403, "The approval is for something else"),
    ProblemCode("insufficient-scope", 403, "The access token lacks a scope"),
    ProblemCode("sign-in-failed", 403, "Sign-in failed"),
    ProblemCode("forged", 403, "The request came from another site"),
    ProblemCode("connection-required", 403, "You must connect to the authority first"),
    ProblemCode("consent-required", 403, "This program needs a person's consent"),
    ProblemCode("authorization-unavailable", 403, "No access token can be obtained for the authority"),
    ProblemCode("unconfirmed-origin", 403, "The authority does not confirm this origin"),
    ProblemCode("unknown-authority", 404, "This authority is unknown"),
    ProblemCode("endpoint-unknown", 404, "The authority has no such resource"),
    ProblemCode("task-not-found", 404, "The task does not exist"),
    ProblemCode("method-not-allowed", 405, "This resource does not support the method"),
    ProblemCode("not-acceptable", 406, "The result is not available in an accepted format"),
    ProblemCode("idempotency-in-progress", 409, "The same request is still running", retryable=True),
    ProblemCode("task-not-cancelable", 409, "The task has ended already"),
    ProblemCode("task-not-waiting", 409, "The task does not wait for input"),
    ProblemCode("task-canceled", 410, "The task was cancelled"),
    ProblemCode("too-large", 413, "The request is too large"),
    ProblemCode("unsupported-media-type", 415, "This media type is not supported"),
    ProblemCode("invalid-input", 422, "The input does not match the resource's schema"),
    ProblemCode("idempotency-mismatch", 422, "The idempotency key belongs to another request"),
    ProblemCode("too-many-requests", 429, "Too many requests", retryable=True),
    ProblemCode("internal", 500, "The endpoint failed"),
    ProblemCode("interrupted", 500, "The task was interrupted, and it is unknown how far it came"),
    ProblemCode("receipt-unavailable", 501, "No receipt can be signed"),
    ProblemCode("authorization-invalid", 502, "The authorization server granted something else"),
    ProblemCode("discovery-conflict", 502, "The discovery of the authority failed"),
    ProblemCode("downgrade-detected", 502, "The authority's requirements became weaker"),
    ProblemCode("provenance-missing", 502, "The response has no receipt"),
    ProblemCode("provenance-invalid", 502, "Receipt verification failed"),
    ProblemCode("provenance-stale", 502, "The receipt is too old or was used before"),
    ProblemCode("blocked-address", 502, "The authority's address is not allowed"),
    ProblemCode("upstream-unreachable", 502, "The authority cannot be reached", retryable=True),
    ProblemCode("upstream-failed", 502, "A service behind the resource failed"),
    ProblemCode("upstream-redirect", 502, "The authority answered with a redirect"),
    ProblemCode("unavailable", 503, "The service is temporarily unavailable", retryable=True),
    ProblemCode("upstream-timeout", 504, "The authority timed out", retryable=True),
)

#: every code by its name
CODES: Final[Mapping[str, ProblemCode]] = MappingProxyType({row.name: row for row in _ROWS})
#: the code of an error whose own code is not one of AIIP; the first class that matches applies
_CLASS_CODES: Final[tuple[tuple[type[OnymError], str], ...]] = (
    (DeadlineExceeded, "upstream-timeout"),
    (PolicyError, "blocked-address"),
    (RedirectRefused, "upstream-redirect"),
    (NetError, "upstream-unreachable"),
    (RateLimitError, "unavailable"),
    (ProviderError, "upstream-unreachable"),
    (SignatureError, "provenance-invalid"),
    (ProvenanceError, "provenance-invalid"),
    (DiscoveryError, "unknown-authority"),
    (DeniedError, "policy-denied"),
    (AIURIError, "malformed-uri"),
    (URIError, "malformed-uri"),
    (StoreError, "unavailable"),
)
#: error codes outside of AIIP that have a problem code
_OTHER_CODES: Final = MappingProxyType({"ai.non-canonical": "non-canonical-uri"})


def find_problem_code(code: str) -> ProblemCode | None:
    """Return the row for an error's code ("aiip.too-large") or a problem's ("too-large"), or None."""
    return CODES.get(code.removeprefix(_PREFIX))


def get_problem_code(
    error: BaseException, exceptions: tuple[tuple[type[OnymError], str], ...] = ()
) -> ProblemCode:
    """Return the row for an error: by its code, else by its class; `internal` for any other exception.

    `exceptions` take precedence over the common table of classes.
    """
    if not isinstance(error, OnymError):
        return CODES["internal"]
    if error.code in _OTHER_CODES:
        return CODES[_OTHER_CODES[error.code]]
    row = find_problem_code(error.code) if error.code.startswith(_PREFIX) else None
    if row is not None:
        return row
    classes = (*exceptions, *_CLASS_CODES)
    return CODES[next((name for kind, name in classes if isinstance(error, kind)), "internal")]


def get_network_code(error: NetError) -> str:
    """Return the problem code of a network failure."""
    return next(name for kind, name in _CLASS_CODES if isinstance(error, kind))


def build_problem_document(
    row: ProblemCode, *, type_uri: str, detail: str, request_id: str, **members: Any
) -> dict[str, Any]:
    """Build a problem document.

    `members` replace or extend its members; those without a value are left out.
    """
    document: dict[str, Any] = {
        "type": type_uri,
        "title": row.title,
        "status": row.status,
        "detail": detail,
        "instance": f"urn:uuid:{request_id}",
        "code": row.name,
        "retryable": row.retryable,
    }
    return document | {name: value for name, value in members.items() if value is not None}


#: bytes of a document that is parsed, and characters of its detail that are shown
_LONGEST: Final = 64 * 1024
LONGEST_DETAIL: Final = 500
_UNSIGNED: Final = "The error response is not signed, so it may not come from the endpoint."


def decode_problem(
    status: int | None, content_type: str | None, body: bytes, target: str, *, signed: bool
) -> InvocationError:
    """Return the error that a problem document describes.

    `status` is None for a document at the end of a stream; then its own status applies. Whether a retry may
    help depends on the code. The document can only deny it: otherwise an untrusted server could make clients
    repeat a request that has effects.
    """
    problem = _decode_document(content_type, body)
    row = find_problem_code(str(problem.get("code", "")))
    fallback = "the endpoint failed" if status is None else f"the endpoint answered with status {status}"
    if status is None and type(problem.get("status")) is int and 400 <= problem["status"] < 600:
        status = problem["status"]
    error = InvocationError(
        _get_detail(problem) or fallback,
        code=None if row is None else f"aiip.{row.name}",
        target=target,
        status=status,
        retryable=row is not None and row.retryable and problem.get("retryable") is not False,
        hint=None if signed else _UNSIGNED,
    )
    error.problem = problem
    return error


def decode_problem_detail(content_type: str | None, body: bytes) -> str | None:
    """Return the text for people in a problem document, or None."""
    return _get_detail(_decode_document(content_type, body))


def _get_detail(problem: dict[str, Any]) -> str | None:
    detail = problem.get("detail") or problem.get("title")
    return None if detail is None else str(detail)[:LONGEST_DETAIL]


def _decode_document(content_type: str | None, body: bytes) -> dict[str, Any]:
    if parse_media_type(content_type) != PROBLEM or len(body) > _LONGEST:
        return {}
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
