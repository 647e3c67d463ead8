"""AIIP problem codes, and the decoder for problem documents (RFC 9457). Pure.

An Onym error has the code `aiip.` plus the name; a problem document has the name in its `code` member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from onym.errors import InvocationError

_PREFIX: Final = "aiip."


@dataclass(frozen=True, slots=True)
class ProblemCode:
    """One code: its title for people, the HTTP status that it has where we say it."""

    name: str
    status: int
    title: str
    retryable: bool = False


_ROWS: Final = (
    ProblemCode("malformed-uri", 400, "This is not an ai URI"),
    ProblemCode("non-canonical-uri", 400, "This ai URI has another spelling"),
    ProblemCode("bad-request", 400, "The request cannot be used"),
    ProblemCode("idempotency-required", 400, "This needs an idempotency key"),
    ProblemCode("authentication-required", 401, "This needs an access token"),
    ProblemCode("sender-constraint", 401, "The access token is bound to another sender"),
    ProblemCode("policy-denied", 403, "Policy does not allow this"),
    ProblemCode("approval-required", 403, "This needs somebody's approval"),
    ProblemCode("approval-mismatch", 403, "The approval is for something else"),
    ProblemCode("insufficient-scope", 403, "The access token does not reach so far"),
    ProblemCode("step-up-required", 403, "This needs a fresh sign-in"),
    ProblemCode("unconfirmed-origin", 403, "The authority does not confirm this origin"),
    ProblemCode("unknown-authority", 404, "Nobody answers for this authority"),
    ProblemCode("endpoint-unknown", 404, "The authority has no such resource"),
    ProblemCode("task-not-found", 404, "There is no such task"),
    ProblemCode("method-not-allowed", 405, "This method is not for this resource"),
    ProblemCode("not-acceptable", 406, "The result has no form that was asked for"),
    ProblemCode("idempotency-in-progress", 409, "The same request is still running", retryable=True),
    ProblemCode("task-not-cancelable", 409, "The task has ended"),
    ProblemCode("too-large", 413, "This is too large"),
    ProblemCode("unsupported-media-type", 415, "This media type is not read here"),
    ProblemCode("invalid-input", 422, "The input does not fit the resource's schema"),
    ProblemCode("idempotency-mismatch", 422, "The idempotency key belongs to another request"),
    ProblemCode("too-many-requests", 429, "Too many requests", retryable=True),
    ProblemCode("internal", 500, "Something went wrong at the endpoint"),
    ProblemCode("receipt-unavailable", 501, "No receipt can be given"),
    ProblemCode("discovery-conflict", 502, "What the sources say of the authority does not agree"),
    ProblemCode("downgrade-detected", 502, "The authority asks for less than it did"),
    ProblemCode("provenance-missing", 502, "The answer has no receipt"),
    ProblemCode("provenance-invalid", 502, "The answer's receipt does not hold"),
    ProblemCode("provenance-stale", 502, "The answer's receipt is not of this moment"),
    ProblemCode("blocked-address", 502, "The authority is at an address that is not allowed"),
    ProblemCode("upstream-unreachable", 502, "The authority does not answer", retryable=True),
    ProblemCode("upstream-failed", 502, "What is behind the resource failed"),
    ProblemCode("upstream-redirect", 502, "The authority answered with a redirect"),
    ProblemCode("unavailable", 503, "This cannot be done now", retryable=True),
    ProblemCode("upstream-timeout", 504, "The authority did not answer in time", retryable=True),
)

#: every code by its name
CODES: Final[Mapping[str, ProblemCode]] = MappingProxyType({row.name: row for row in _ROWS})


def find_problem_code(code: str) -> ProblemCode | None:
    """The row of an error's code ("aiip.too-large") or a problem's ("too-large"); None for an unknown one."""
    return CODES.get(code.removeprefix(_PREFIX))


#: its media type
PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
#: octets of a document that is looked at, and characters of its detail that are told
_LONGEST: Final = 64 * 1024
_LONGEST_DETAIL: Final = 500
_UNSIGNED: Final = "the refusal is not signed: anybody on the way could have made it"


def decode_problem(
    status: int | None, content_type: str | None, body: bytes, target: str, *, signed: bool
) -> InvocationError:
    """The error that a problem document stands for; its code is one of ours or the general one.

    Without a status (the document came at the end of a stream that had begun well) its own counts. It may say
    that a later try is of no use, and be believed. That one may help is what the code says: a stranger's word
    alone makes nobody repeat what has effects.
    """
    problem = _decode_document(content_type, body)
    row = find_problem_code(str(problem.get("code", "")))
    silent = "the endpoint failed" if status is None else f"the endpoint answered with status {status}"
    error = InvocationError(
        decode_problem_detail(content_type, body) or silent,
        code=None if row is None else f"aiip.{row.name}",
        target=target,
        status=_decode_status(problem) if status is None else status,
        retryable=row is not None and row.retryable and problem.get("retryable") is not False,
        hint=None if signed else _UNSIGNED,
    )
    error.problem = problem
    return error


def decode_problem_detail(content_type: str | None, body: bytes) -> str | None:
    """What a problem document says to people, None where the body is none or says nothing."""
    problem = _decode_document(content_type, body)
    detail = problem.get("detail") or problem.get("title")
    return None if detail is None else str(detail)[:_LONGEST_DETAIL]


def _decode_status(problem: dict[str, Any]) -> int | None:
    found = problem.get("status")
    return found if type(found) is int and 400 <= found < 600 else None


def _decode_document(content_type: str | None, body: bytes) -> dict[str, Any]:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind != PROBLEM_MEDIA_TYPE or len(body) > _LONGEST:
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
