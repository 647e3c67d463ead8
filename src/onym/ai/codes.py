"""The codes of AIIP problems: what each is, its status at a gateway, whether a later try may do better.

An error of Onym has the code "aiip." and the name; a problem document (RFC 9457) has the name in `code`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["CODES", "Code", "code_of"]

_PREFIX: Final = "aiip."


@dataclass(frozen=True, slots=True)
class Code:
    """One code: its title for people, the HTTP status that it has where we say it."""

    name: str
    status: int
    title: str
    retryable: bool = False


_ROWS: Final = (
    Code("malformed-uri", 400, "This is not an ai URI"),
    Code("non-canonical-uri", 400, "This ai URI has another spelling"),
    Code("bad-request", 400, "The request cannot be used"),
    Code("idempotency-required", 400, "This needs an idempotency key"),
    Code("authentication-required", 401, "This needs an access token"),
    Code("sender-constraint", 401, "The access token is bound to another sender"),
    Code("policy-denied", 403, "Policy does not allow this"),
    Code("approval-required", 403, "This needs somebody's approval"),
    Code("approval-mismatch", 403, "The approval is for something else"),
    Code("insufficient-scope", 403, "The access token does not reach so far"),
    Code("step-up-required", 403, "This needs a fresh sign-in"),
    Code("unconfirmed-origin", 403, "The authority does not confirm this origin"),
    Code("unknown-authority", 404, "Nobody answers for this authority"),
    Code("endpoint-unknown", 404, "The authority has no such resource"),
    Code("task-not-found", 404, "There is no such task"),
    Code("method-not-allowed", 405, "This method is not for this resource"),
    Code("not-acceptable", 406, "The result has no form that was asked for"),
    Code("idempotency-in-progress", 409, "The same request is still running", retryable=True),
    Code("task-not-cancelable", 409, "The task has ended"),
    Code("too-large", 413, "This is too large"),
    Code("unsupported-media-type", 415, "This media type is not read here"),
    Code("invalid-input", 422, "The input does not fit the resource's schema"),
    Code("idempotency-mismatch", 422, "The idempotency key belongs to another request"),
    Code("too-many-requests", 429, "Too many requests", retryable=True),
    Code("internal", 500, "Something went wrong at the endpoint"),
    Code("receipt-unavailable", 501, "No receipt can be given"),
    Code("discovery-conflict", 502, "What the sources say of the authority does not agree"),
    Code("downgrade-detected", 502, "The authority asks for less than it did"),
    Code("provenance-missing", 502, "The answer has no receipt"),
    Code("provenance-invalid", 502, "The answer's receipt does not hold"),
    Code("provenance-stale", 502, "The answer's receipt is not of this moment"),
    Code("blocked-address", 502, "The authority is at an address that is not allowed"),
    Code("upstream-unreachable", 502, "The authority does not answer", retryable=True),
    Code("upstream-failed", 502, "What is behind the resource failed"),
    Code("upstream-redirect", 502, "The authority answered with a redirect"),
    Code("unavailable", 503, "This cannot be done now", retryable=True),
    Code("upstream-timeout", 504, "The authority did not answer in time", retryable=True),
)

#: every code by its name
CODES: Final[Mapping[str, Code]] = MappingProxyType({row.name: row for row in _ROWS})


def code_of(code: str) -> Code | None:
    """The row of an error's code ("aiip.too-large") or a problem's ("too-large"); None for an unknown one."""
    return CODES.get(code.removeprefix(_PREFIX))
