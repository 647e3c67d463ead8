"""HTTP messages of AIIP: problem codes and documents (RFC 9457), and heads of requests (3.14). Pure."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from onym._lazy import require_extra
from onym.ai.records import PROBLEM, parse_media_type
from onym.errors import (
    AIIPError,
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
from onym.net.messages import Headers
from onym.sign.receipts import content_digest

_CODE_PREFIX: Final = "aiip."


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
    return CODES.get(code.removeprefix(_CODE_PREFIX))


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
    row = find_problem_code(error.code) if error.code.startswith(_CODE_PREFIX) else None
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


CLAUSE: Final = "AIIP/HTTPS v1 3.14"
#: header fields of one request
MAX_FIELDS: Final = 100
#: fields with one value: a repeated field has two meanings
_SINGLE: Final = frozenset(
    {
        b"authorization", b"content-digest", b"content-encoding", b"content-length", b"content-type", b"dpop",
        b"expect", b"host", b"idempotency-key", b"origin", b"sec-fetch-site", b"traceparent",
        b"transfer-encoding",
    }
)  # fmt: skip
_PREFIX: Final = b"aiip-"
_VISIBLE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")

Fields: TypeAlias = Sequence[tuple[bytes, bytes]]


def bad_request(message: str, hint: str | None = None, *, code: str = "bad-request") -> AIIPError:
    """Return the error for a request that is rejected as it is."""
    return AIIPError(message, code=f"aiip.{code}", clause=CLAUSE, hint=hint)


def get_field_values(fields: Fields, name: bytes) -> list[bytes]:
    """Return the values of this field, in order."""
    return [value for key, value in fields if key == name]


def _validate_fields(fields: Fields, hosts: Collection[str]) -> int | None:
    """Check that the head has one meaning, and return the length of the body if the head contains it.

    Raises AIIPError `aiip.bad-request`, `aiip.unsupported-media-type`.
    """
    first = _validate_names_and_values(fields)
    _validate_host(first.get(b"host"), hosts)
    length, transfer, coding = map(first.get, (b"content-length", b"transfer-encoding", b"content-encoding"))
    if length is not None and transfer is not None:
        raise bad_request("the request has both Content-Length and Transfer-Encoding")
    if transfer is not None and transfer.strip().lower() != b"chunked":
        raise bad_request("the only transfer coding that is supported is chunked")
    if b"upgrade" in first and (transfer is not None or length not in {None, b"0"}):
        # servers differ in whether the bytes after the head are a body or another protocol
        raise bad_request("a request with a body cannot have an Upgrade field")
    if coding is not None and coding.strip().lower() != b"identity":
        hint = "Send the body without Content-Encoding."
        raise bad_request("content codings are not supported", hint, code="unsupported-media-type")
    if length is None:
        return None
    if not (length.isdigit() and len(length) <= 18):
        raise bad_request("Content-Length is not a number")
    return int(length)


def _validate_names_and_values(fields: Fields) -> dict[bytes, bytes]:
    """Return the first value of each field.

    Raises AIIPError `aiip.bad-request` for fields that two servers could interpret differently.
    """
    first: dict[bytes, bytes] = {}
    for name, value in fields:
        if b"_" in name:
            # CGI and WSGI cannot tell it from the name with "-"
            raise _make_field_error(name, "contains an underscore in its name")
        if _VISIBLE.fullmatch(value) is None:
            raise _make_field_error(name, "contains a control character")
        if name in first and (name in _SINGLE or name.startswith(_PREFIX)):
            raise _make_field_error(name, "is repeated", "Send it once.")
        first.setdefault(name, value)
    return first


def _make_field_error(name: bytes, fault: str, hint: str | None = None) -> AIIPError:
    return bad_request(f"the header field {name[:40].decode('latin-1')} {fault}", hint)


def _validate_host(host: bytes | None, hosts: Collection[str]) -> None:
    if host is None:
        raise bad_request("the request has no Host field")
    if host.decode("latin-1").lower() not in hosts:
        raise bad_request("the Host field names a host that is not served here")


#: 128 bits of base64url and more (3.6)
NONCE: Final = re.compile(r"[A-Za-z0-9_-]{22,128}")
#: a string of RFC 9651 4.2.5, of 1 to 255 characters
_KEY: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"')
#: a serialised origin (RFC 6454 6.2)
_ORIGIN: Final = re.compile(r"null|[a-z][a-z0-9+.-]{0,30}://[a-z0-9.:\[\]_-]{1,260}")
_TYPE: Final = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,254}")
#: W3C Trace Context 3.2.1
_TRACE: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.{0,64}")
#: a string without an end matches to the end of the body; otherwise the work would be quadratic
_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of a request that Onym knows (RFC 7240): to answer with a task, and when.

    `wait` is in seconds, None without a valid one. Unknown preferences are ignored, as the RFC demands.
    """

    respond_async: bool = False
    wait: float | None = None

    @classmethod
    def parse(cls, headers: Headers) -> Preferences:
        """Parse the Prefer fields; the first value of a preference counts (RFC 7240 2)."""
        found: dict[str, str] = {}
        for preference in ", ".join(headers.get_all("prefer")).split(",")[:MAX_FIELDS]:
            name, _, value = preference.partition(";")[0].partition("=")
            found.setdefault(name.strip().lower(), value.strip().strip('"'))
        seconds = found.get("wait", "")
        wait = float(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) <= 9 else None
        return cls("respond-async" in found, wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request to an endpoint, parsed and validated."""

    method: str
    raw_path: bytes
    query: bytes
    headers: Headers = field(repr=False)
    nonce: str | None = None
    idempotency_key: str | None = None
    origin: str | None = None
    content_type: str | None = None
    digest: str | None = None
    length: int | None = None
    #: the client's certificate in DER, if TLS has verified one
    certificate: bytes | None = field(default=None, repr=False)

    @property
    def trace_id(self) -> str | None:
        """The ID of the caller's trace (W3C Trace Context 3.2.2), or None."""
        match = _TRACE.fullmatch(self.headers.get("traceparent") or "")
        return None if match is None else match[1]


def parse_request_head(scope: Any, hosts: Collection[str]) -> RequestHead:
    """Parse the head in an ASGI scope. `hosts` are the values of Host that the endpoint serves.

    Raises AIIPError `aiip.bad-request`, `aiip.unsupported-media-type`.
    """
    fields = scope["headers"]
    if len(fields) > MAX_FIELDS:
        raise bad_request(f"the request has more than {MAX_FIELDS} header fields")
    length = _validate_fields(fields, hosts)
    headers = Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields])
    return RequestHead(
        method=scope["method"],
        raw_path=scope["raw_path"],
        query=scope["query_string"],
        headers=headers,
        nonce=_match_header(headers, "aiip-nonce", NONCE, "22 to 128 characters of base64url"),
        idempotency_key=_parse_idempotency_key(headers),
        origin=_match_header(headers, "origin", _ORIGIN, "a serialised origin (RFC 6454 6.2)"),
        content_type=_match_header(headers, "content-type", _TYPE, "a media type in ASCII"),
        digest=headers.get("content-digest"),
        length=length,
        certificate=get_client_certificate(scope),
    )


def get_client_certificate(scope: Any) -> bytes | None:
    """Return the client's own certificate from the TLS extension of ASGI, which only the server writes."""
    tls = (scope.get("extensions") or {}).get("tls")
    chain = None if tls is None else tls.get("client_cert_chain")
    return _decode_certificate(chain[0]) if chain else None


@lru_cache(maxsize=256)
def _decode_certificate(pem: str) -> bytes:
    return b64decode(pem.split("-----")[2])  # the text between BEGIN CERTIFICATE and END CERTIFICATE


def _match_header(headers: Headers, name: str, form: re.Pattern[str], expected: str) -> str | None:
    value = headers.get(name)
    if value is not None and form.fullmatch(value) is None:
        raise bad_request(f"the header field {name} is invalid", f"Send {expected}.")
    return value


def _parse_idempotency_key(headers: Headers) -> str | None:
    """Return the idempotency key, a string of RFC 9651, without its quotes."""
    value = headers.get("idempotency-key")
    if value is None:
        return None
    match = _KEY.fullmatch(value.strip())
    if match is None:
        hint = 'Send a string in quotes, such as "8e03978e-40d5".'
        raise bad_request("the header field idempotency-key is invalid", hint)
    return re.sub(r"\\(.)", r"\1", match[1])


def verify_content_digest(value: str, body: bytes) -> None:
    """Raise AIIPError `aiip.bad-request` unless this Content-Digest (RFC 9530) matches the body.

    It must contain sha-256 or sha-512, and if it contains both, both must match.
    """
    if value == content_digest(body):
        return
    import hashlib

    require_extra("http_sf", "ai")
    import http_sf  # late: optional dependency (extra ai), needed only for unusual digests

    try:
        digests: Any = http_sf.parse(value.encode("latin-1"), tltype="dictionary")
    except (http_sf.StructuredFieldError, ValueError):
        hint = "Send sha-256=:...: (RFC 9530)."
        raise bad_request("the header field content-digest is invalid", hint) from None
    known = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}
    given = [(known[name], item[0]) for name, item in digests.items() if name in known]
    if not given:
        raise bad_request("Content-Digest has no supported digest", "Send sha-256 or sha-512 (RFC 9530).")
    if any(digest != make(body).digest() for make, digest in given):
        raise bad_request("Content-Digest does not match the body", "A proxy may have changed the body.")


def validate_json_depth(body: bytes, most: int) -> None:
    """Raise AIIPError `aiip.too-large` for JSON whose arrays and objects are nested deeper than `most`."""
    if body.count(b"[") + body.count(b"{") <= most:
        return
    steps = (1 if byte in b"[{" else -1 if byte in b"]}" else 0 for byte in _STRINGS.sub(b"", body))
    if max(accumulate(steps), default=0) > most:
        raise bad_request(f"the JSON is nested deeper than {most} levels", code="too-large")


#: fields that every server must see: a Connection field must not make them hop-by-hop
_END_TO_END: Final = frozenset(
    {
        b"accept", b"aiip-nonce", b"authorization", b"content-digest", b"content-encoding", b"content-length",
        b"content-type", b"cookie", b"dpop", b"host", b"idempotency-key", b"origin", b"sec-fetch-site",
        b"via",
    }
)  # fmt: skip

#: bytes of path and query: a canonical URI has at most 2,048 characters, and the prefix is added
LONGEST_TARGET: Final = 4 * 1024
#: bytes of all header fields
LONGEST_HEADERS: Final = 32 * 1024
#: gateways that a request may have passed before this one
MOST_HOPS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRequestHead:
    """The head of a request to a gateway: path and query as sent, and the fields.

    `target` is the request target if the server provides it. It shows an absolute form or a fragment, which
    the path does not contain.
    """

    path: bytes
    query: bytes = b""
    fields: Fields = field(default=(), repr=False)
    target: bytes | None = None


def validate_gateway_head(head: GatewayRequestHead, *, hosts: Collection[str], name: str) -> None:
    """Raise AIIPError unless the head has one meaning and has not passed this gateway before.

    `hosts` are the values of Host that the gateway serves, `name` is its name in Via. The codes are
    `aiip.bad-request`, `aiip.too-large`, `aiip.unsupported-media-type` and `aiip.policy-denied` (a loop).
    """
    _validate_target(head)
    fields = head.fields
    if len(fields) > MAX_FIELDS or sum(len(name) + len(value) for name, value in fields) > LONGEST_HEADERS:
        message = f"the request has more than {MAX_FIELDS} header fields or {LONGEST_HEADERS} bytes of them"
        raise bad_request(message, code="too-large")
    _validate_fields(fields, hosts)
    if not _END_TO_END.isdisjoint(get_connection_fields(fields)):
        raise bad_request("the Connection field names a field that must reach the endpoint")
    # a request that came through this gateway, or through many (RFC 9110 7.6.3)
    hops = [
        hop.split()
        for value in get_field_values(fields, b"via")
        for hop in value.decode("latin-1").lower().split(",")
    ]
    passed = [words[1] for words in hops if len(words) > 1]
    if name.lower() in passed or len(hops) > MOST_HOPS:
        raise AIIPError(
            f"the request has passed this gateway before, or more than {MOST_HOPS} gateways",
            code="aiip.policy-denied",
            clause="RFC 9110 7.6.3",
            hint="A gateway is not an authority: send the request to the resource's own authority.",
        )


def get_connection_fields(fields: Fields) -> frozenset[bytes]:
    """Return the hop-by-hop fields that Connection names, in lower case (RFC 9110 7.6.1)."""
    return frozenset(
        option.strip().lower()
        for value in get_field_values(fields, b"connection")
        for option in value.split(b",")
    )


def _validate_target(head: GatewayRequestHead) -> None:
    if len(head.path) + len(head.query) > LONGEST_TARGET:
        raise bad_request(f"path and query are longer than {LONGEST_TARGET} bytes", code="too-large")
    if head.path[:1] != b"/" or (head.target is not None and head.target[:1] != b"/"):
        raise bad_request("the request target is not a path")
    if b"#" in (head.target or head.path + head.query):
        raise bad_request("the request target contains a fragment")
