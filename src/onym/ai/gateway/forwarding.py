"""Forwarding through a gateway: header fields both ways, errors as problem documents (3.7, 3.14).

Header fields pass by allow lists. A caller is not told which check of a receipt failed, which key is known,
which address a name has or which file of the gateway is unusable; these facts are in the operator's log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onym import errors
from onym.ai.problems import CODES, ProblemCode, find_problem_code
from onym.ai.request_validation import Fields, get_connection_fields, get_field_values
from onym.errors import AIIPError

if TYPE_CHECKING:
    from onym.net.messages import Headers

#: passed on as they are. Accept, Content-Type, Content-Digest and Idempotency-Key go their own way, since the
#: client that invokes makes or checks them
_UPSTREAM_FIELDS: Final = (
    b"accept-language",
    b"content-language",
    b"if-match",
    b"if-none-match",
    b"prefer",
    b"traceparent",
)
_CLIENT_FIELDS: Final = (
    "content-language",
    "etag",
    "last-modified",
    "retry-after",
    "preference-applied",
)
#: what stands on every answer; a result is for one caller, and proves itself octet by octet
FIXED_FIELDS: Final = (
    ("cache-control", "private, no-store, no-transform"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
#: content of many authorities stands on one origin: it runs nothing and reads nothing here
RESULT_POLICY: Final = (
    "default-src 'none'; sandbox; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

#: media types that a browser shows without running anything; every other one is kept as a file
_PASSIVE: Final = frozenset(
    {
        "application/aiip+json", "application/json", "application/problem+json", "image/gif", "image/jpeg",
        "image/png", "image/webp", "text/csv", "text/event-stream", "text/plain",
    }
)  # fmt: skip


def select_upstream_fields(fields: Fields) -> tuple[tuple[str, str], ...]:
    """The fields that go on to the endpoint. Raises AIIPError for one that stands twice or is not ASCII.

    What Connection names is for this hop alone (RFC 9110 7.6.1). Long tasks are not asked for: Prefer goes
    without `respond-async`.
    """
    hop = get_connection_fields(fields)
    found = []
    for name in _UPSTREAM_FIELDS:
        given = [] if name in hop else get_field_values(fields, name)
        text = ", ".join(value.decode("latin-1") for value in given)
        if name == b"prefer":
            text = _remove_async_preferences(text)
        if not text.isascii():
            raise AIIPError(
                f"a field is not ASCII ({name.decode()})", code="aiip.bad-request", clause="RFC 9110 5.5"
            )
        if text:
            found.append((name.decode(), text))
    return tuple(found)


def _remove_async_preferences(text: str) -> str:
    kept = [each.strip() for each in text.split(",")]
    return ", ".join(each for each in kept if each.partition("=")[0].strip().lower() not in _ASYNC)


_ASYNC: Final = frozenset({"", "respond-async", "wait"})


def select_client_fields(headers: Headers) -> list[tuple[str, str]]:
    """The endpoint's fields that go on to the caller; Content-Type and receipt come with the body."""
    return [
        (name, value)
        for name in _CLIENT_FIELDS
        for value in headers.get_all(name)[:1]
        if not any(octet in value for octet in "\r\n\x00")
    ]


def parse_media_type(content_type: str | None) -> str:
    """The type and subtype of a Content-Type, in lower case; "" where there is none."""
    return (content_type or "").partition(";")[0].strip().lower()


def get_content_disposition(content_type: str | None) -> str | None:
    """Content-Disposition for a result: what could act in a browser is kept as a file, whatever its name."""
    return None if parse_media_type(content_type) in _PASSIVE else 'attachment; filename="result"'


def format_via(received: Iterable[bytes], name: str) -> str:
    """The field Via of a request that goes on: who passed it, and this gateway (RFC 9110 7.6.3)."""
    before = [value.decode("latin-1") for value in received]
    return ", ".join([*(each for each in before if each.isascii()), f"1.1 {name}"])


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


def make_refusal(error: errors.OnymError) -> Refusal:
    """The public side of any error; its own words only where they are about the request or the authority."""
    if isinstance(error, errors.InvocationError):
        return _make_endpoint_refusal(error)
    row = _get_problem_code(error)
    words = _get_public_words(error, row)
    uri = isinstance(error, errors.URIError)
    canonical = error.hint if row.name == "non-canonical-uri" else None
    return Refusal(
        code=row.name,
        status=_get_status(error, row),
        title=_OURS if row is _INTERNAL else row.title,
        detail=words or error.message,
        cause=error.code,
        target=getattr(error, "target", None),
        hint=None if words or canonical else error.hint,
        clause=None if words else getattr(error, "clause", None),
        retryable=row.retryable and not uri,
        canonical=canonical,
    )


def _get_public_words(error: errors.OnymError, row: ProblemCode) -> str | None:
    """What is said instead of the error's own words; None where those are for the caller."""
    if row.name == "unavailable" and type(error) is errors.AIIPError and error.retryable:
        return None  # too much at this moment; what is wrong with a file has a class of its own
    return _WORDS.get(row.name) or (None if isinstance(error, _TELLING) else row.title)


def _get_problem_code(error: errors.OnymError) -> ProblemCode:
    name = _URI_CODES.get(error.code)
    if name is None and isinstance(error, errors.ResponseTooLarge):
        name = "too-large"
    found = find_problem_code(name or error.code) if name or error.code.startswith("aiip.") else None
    if found is None:
        name = next((name for kind, name in _CLASSES if isinstance(error, kind)), "internal")
        found = CODES[name]
    return CODES[_UNIFORM.get(found.name, found.name)]


def _get_status(error: errors.OnymError, row: ProblemCode) -> int:
    if isinstance(error, errors.ResponseTooLarge):
        return 502  # the answer was, not the request
    return _STATUS.get(row.name, row.status)


def _make_endpoint_refusal(error: errors.InvocationError) -> Refusal:
    """The endpoint's own problem: its code and words, under a status that is right for a gateway (3.7)."""
    problem: Mapping[str, Any] = error.problem or {}
    status = error.status or 502
    said = str(problem.get("code", ""))
    row = CODES.get(said)
    if status in {401, 403}:
        shown = 403
        row = row or CODES["policy-denied"]
    else:
        shown = status if status in _PASSED_STATUSES else 502
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


def build_problem_document(
    refusal: Refusal, *, base_url: str, request_id: str, trace: str | None = None
) -> dict[str, Any]:
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


def format_proxy_status(refusal: Refusal, name: str) -> str:
    """The field Proxy-Status (RFC 9209) of an answer that this gateway made. `name` is its host name."""
    if refusal.upstream is not None:
        return f'"{name}"; received-status={refusal.upstream}'
    kind = _PROXY.get(refusal.code, "http_request_error" if refusal.status < 403 else "http_request_denied")
    return f'"{name}"; error={kind}; details="{refusal.code}"'
