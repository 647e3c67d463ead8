"""Validation of request heads at an endpoint and at a gateway (AIIP/HTTPS v1, 3.14). Pure.

A request that two servers could interpret differently is rejected: ambiguous framing, repeated fields,
unknown hosts, wrong digests, JSON that is nested too deeply. Names of header fields are in lower case, as
ASGI gives them.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, TypeAlias

from onym._lazy import require_extra
from onym.errors import AIIPError
from onym.net.messages import Headers
from onym.sign.receipts import content_digest

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
