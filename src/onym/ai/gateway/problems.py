"""Every error as what a gateway answers: its status, its public code, its words, and Proxy-Status (3.7).

A caller is told no more than it needs: which check of a receipt failed, which key is known, which address
a name has and which file of the gateway cannot be used are for the operator's log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from onym import errors
from onym.ai.codes import CODES, Code, code_of

__all__ = ["Refusal", "document", "proxy_status", "refusal_of"]

_INTERNAL: Final = CODES["internal"]
_OURS: Final = "Something went wrong at the gateway"
#: classes without a code of the binding, most specific first
_CLASSES: Final[tuple[tuple[type[errors.OnymError], str], ...]] = (
    (errors.DeadlineExceeded, "upstream-timeout"),
    (errors.PolicyError, "blocked-address"),
    (errors.RedirectRefused, "upstream-redirect"),
    (errors.NetError, "upstream-unreachable"),
    (errors.SignatureError, "provenance-invalid"),
    (errors.ProvenanceError, "provenance-invalid"),
    (errors.DiscoveryError, "unknown-authority"),
    (errors.DeniedError, "policy-denied"),
    (errors.URIError, "malformed-uri"),
)
#: families whose words are about the request or the authority; those of others may name files of ours
_TELLING: Final = (errors.AIIPError, errors.URIError)
_URI_CODES: Final = MappingProxyType({"ai.non-canonical": "non-canonical-uri"})
#: what is said whichever check it was
_UNIFORM: Final = MappingProxyType(
    {
        "provenance-missing": "provenance-invalid",
        "provenance-stale": "provenance-invalid",
        "provenance-invalid": "provenance-invalid",
    }
)
_WORDS: Final = MappingProxyType(
    {
        "provenance-invalid": "the answer does not prove where it comes from; nothing of it was released",
        "blocked-address": "the authority is not at an address that this gateway may go to",
        "upstream-unreachable": "no usable answer came from the authority",
        "internal": "something went wrong on this side",
        # a file of pins, receipts, names or the audit log is what cannot be used, or there is no room
        "unavailable": "the gateway cannot do this now",
    }
)
#: 401 would promise a way to sign in, and there is none here (RFC 9110 15.5.2)
_STATUS: Final = MappingProxyType({"authentication-required": 403, "sender-constraint": 403, "internal": 500})
#: statuses of an endpoint's own problems that mean the same to a gateway's caller
_PASSED: Final = frozenset({400, 404, 405, 406, 409, 410, 411, 412, 413, 415, 422, 429, 501, 503, 504})
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
_LONGEST_DETAIL: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What the caller is told. `cause` is the code for the operator, `upstream` the endpoint's own status."""

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


def refusal_of(error: errors.OnymError) -> Refusal:
    """The public side of any error; its own words only where they are about the request or the authority."""
    if isinstance(error, errors.InvocationError):
        return _of_endpoint(error)
    row = _row(error)
    words = _words(error, row)
    uri = isinstance(error, errors.URIError)
    canonical = error.hint if row.name == "non-canonical-uri" else None
    return Refusal(
        code=row.name,
        status=_status(error, row),
        title=_OURS if row is _INTERNAL else row.title,
        detail=words or error.message,
        cause=error.code,
        target=getattr(error, "target", None),
        hint=None if words or canonical else error.hint,
        clause=None if words else getattr(error, "clause", None),
        retryable=row.retryable and not uri,
        canonical=canonical,
    )


def _words(error: errors.OnymError, row: Code) -> str | None:
    """What is said instead of the error's own words; None where those are for the caller."""
    if row.name == "unavailable" and type(error) is errors.AIIPError and error.retryable:
        return None  # too much at this moment; what is wrong with a file has a class of its own
    return _WORDS.get(row.name) or (None if isinstance(error, _TELLING) else row.title)


def _row(error: errors.OnymError) -> Code:
    name = _URI_CODES.get(error.code)
    if name is None and isinstance(error, errors.ResponseTooLarge):
        name = "too-large"
    found = code_of(name or error.code) if name or error.code.startswith("aiip.") else None
    if found is None:
        name = next((name for kind, name in _CLASSES if isinstance(error, kind)), "internal")
        found = CODES[name]
    return CODES[_UNIFORM.get(found.name, found.name)]


def _status(error: errors.OnymError, row: Code) -> int:
    if isinstance(error, errors.ResponseTooLarge):
        return 502  # the answer was, not the request
    return _STATUS.get(row.name, row.status)


def _of_endpoint(error: errors.InvocationError) -> Refusal:
    """The endpoint's own problem: its code and words, under a status that is right for a gateway (3.7)."""
    problem: Mapping[str, Any] = error.problem or {}
    status = error.status or 502
    said = str(problem.get("code", ""))
    row = CODES.get(said)
    if status in {401, 403}:
        shown = 403
        row = row or CODES["policy-denied"]
    else:
        shown = status if status in _PASSED else 502
    detail = problem.get("detail")
    return Refusal(
        code=row.name if row is not None else "invocation-failed",
        status=shown,
        title=row.title if row is not None else "The endpoint refused",
        detail=str(detail)[:_LONGEST_DETAIL] if isinstance(detail, str) else error.message,
        cause=error.code,
        target=error.target,
        retryable=error.retryable,
        upstream=status,
    )


def document(refusal: Refusal, *, base_url: str, request_id: str, trace: str | None = None) -> dict[str, Any]:
    """The problem document (RFC 9457) with the binding's members."""
    found: dict[str, Any] = {
        "type": f"{base_url}/problems/{refusal.code}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
        "instance": f"urn:uuid:{request_id}",
        "code": refusal.code,
        "retryable": refusal.retryable,
    }
    more = {
        "target": refusal.target,
        "hint": refusal.hint,
        "clause": refusal.clause,
        "canonical": refusal.canonical,
        "trace": trace,
    }
    return found | {name: value for name, value in more.items() if value}


def proxy_status(refusal: Refusal, name: str) -> str:
    """The field Proxy-Status (RFC 9209) of an answer that this gateway made. `name` is its host name."""
    if refusal.upstream is not None:
        return f'"{name}"; received-status={refusal.upstream}'
    kind = _PROXY.get(refusal.code, "http_request_error" if refusal.status < 403 else "http_request_denied")
    return f'"{name}"; error={kind}; details="{refusal.code}"'
