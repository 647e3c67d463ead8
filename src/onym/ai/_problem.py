"""What an endpoint says of its refusal: a problem document (RFC 9457), signed or not. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from onym.ai.codes import code_of
from onym.errors import InvocationError

__all__ = ["PROBLEM", "detail_of", "problem_of"]

#: its media type
PROBLEM: Final = "application/problem+json"
#: octets of a document that is looked at, and characters of its detail that are told
_LONGEST: Final = 64 * 1024
_LONGEST_DETAIL: Final = 500
_UNSIGNED: Final = "the refusal is not signed: anybody on the way could have made it"


def problem_of(
    status: int | None, content_type: str | None, body: bytes, target: str, *, signed: bool
) -> InvocationError:
    """The error that a problem document stands for; its code is one of ours or the general one.

    Without a status (the document came at the end of a stream that had begun well) its own counts. It may say
    that a later try is of no use, and be believed. That one may help is what the code says: a stranger's word
    alone makes nobody repeat what has effects.
    """
    problem = _problem(content_type, body)
    row = code_of(str(problem.get("code", "")))
    silent = "the endpoint failed" if status is None else f"the endpoint answered with status {status}"
    error = InvocationError(
        detail_of(content_type, body) or silent,
        code=None if row is None else f"aiip.{row.name}",
        target=target,
        status=_status(problem) if status is None else status,
        retryable=row is not None and row.retryable and problem.get("retryable") is not False,
        hint=None if signed else _UNSIGNED,
    )
    error.problem = problem
    return error


def detail_of(content_type: str | None, body: bytes) -> str | None:
    """What a problem document says to people, None where the body is none or says nothing."""
    problem = _problem(content_type, body)
    detail = problem.get("detail") or problem.get("title")
    return None if detail is None else str(detail)[:_LONGEST_DETAIL]


def _status(problem: dict[str, Any]) -> int | None:
    found = problem.get("status")
    return found if type(found) is int and 400 <= found < 600 else None


def _problem(content_type: str | None, body: bytes) -> dict[str, Any]:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind != PROBLEM or len(body) > _LONGEST:
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
