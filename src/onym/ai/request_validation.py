"""Validation of request heads at an endpoint and at a gateway (AIIP/HTTPS v1, 3.14). Pure.

A request that two servers could interpret differently is rejected: ambiguous framing, repeated fields,
unknown hosts, wrong digests, JSON that is nested too deeply.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from onym._lazy import require_extra
from onym.errors import AIIPError
from onym.net.messages import Headers
from onym.sign.receipts import content_digest

CLAUSE: Final = "AIIP/HTTPS v1 3.14"
#: header fields of one request
MAX_FIELDS: Final = 100
#: fields with one value: twice the field is two meanings
_SINGLE: Final = frozenset(
    {
        b"authorization", b"content-digest", b"content-encoding", b"content-length", b"content-type", b"dpop",
        b"expect", b"host", b"idempotency-key", b"origin", b"sec-fetch-site", b"traceparent",
        b"transfer-encoding",
    }
)  # fmt: skip
_PREFIX: Final = b"aiip-"
_VISIBLE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


def validate_header_fields(fields: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises AIIPError `aiip.bad-request` for fields that two servers could read in two ways.

    Names are in lower case, as ASGI gives them.
    """
    seen: set[bytes] = set()
    for name, value in fields:
        shown = name[:40].decode("latin-1")
        if b"_" in name:
            # CGI and WSGI cannot tell it from the name with "-"
            raise _make_field_error("a header field's name has an underscore")
        if _VISIBLE.fullmatch(value) is None:
            raise _make_field_error(f"the header field {shown} holds a control character")
        if name in seen and (name in _SINGLE or name.startswith(_PREFIX)):
            raise _make_field_error(f"the header field {shown} is repeated", "send it once")
        seen.add(name)


def _make_field_error(message: str, hint: str | None = None) -> AIIPError:
    return AIIPError(message, code="aiip.bad-request", clause=CLAUSE, hint=hint)


#: 128 bits of base64url and more (3.6)
_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{22,128}")
#: a string of RFC 9651 4.2.5, of 1 to 255 characters
_KEY: Final = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,255})"')
#: a serialised origin (RFC 6454 6.2)
_ORIGIN: Final = re.compile(r"null|[a-z][a-z0-9+.-]{0,30}://[a-z0-9.:\[\]_-]{1,260}")
_TYPE: Final = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,254}")
#: W3C Trace Context 3.2.1
_TRACE: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.{0,64}")
#: a string without an end goes to the end of the body: begun again at each of its quotes, the work would be
#: quadratic
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request, by what it says to an endpoint."""

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

    @property
    def trace_id(self) -> str | None:
        """The id of the caller's trace (W3C Trace Context 3.2.2), where it gives one."""
        found = _TRACE.fullmatch(self.headers.get("traceparent") or "")
        return None if found is None else found[1]


def parse_request_head(scope: Any, hosts: Collection[bytes]) -> RequestHead:
    """The head of an ASGI scope, if there is one way to read it. Raises AIIPError `aiip.bad-request`,
    `aiip.unsupported-media-type`.
    """
    pairs = scope["headers"]
    if len(pairs) > MAX_FIELDS:
        raise bad_request(f"more than {MAX_FIELDS} header fields")
    validate_header_fields(pairs)
    headers = Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs])
    _validate_host(headers, hosts)
    length = _parse_body_length(headers)
    return RequestHead(
        method=scope["method"],
        raw_path=scope["raw_path"],
        query=scope["query_string"],
        headers=headers,
        nonce=_match_header(headers, "aiip-nonce", _NONCE, "22 to 128 characters of base64url"),
        idempotency_key=_parse_idempotency_key(headers),
        origin=_match_header(headers, "origin", _ORIGIN, "a serialised origin (RFC 6454 6.2)"),
        content_type=_match_header(headers, "content-type", _TYPE, "a media type in ASCII"),
        digest=headers.get("content-digest"),
        length=length,
    )


def bad_request(message: str, hint: str | None = None, *, code: str = "bad-request") -> AIIPError:
    """The error for a request that is not taken as it is."""
    return AIIPError(message, code=f"aiip.{code}", clause=CLAUSE, hint=hint)


def _validate_host(headers: Headers, hosts: Collection[bytes]) -> None:
    host = headers.get("host")
    if host is None or host.lower().encode("latin-1") not in hosts:
        raise bad_request("the field Host names another server, or none")


def _parse_body_length(headers: Headers) -> int | None:
    """The length of the body, where the head says it."""
    length, transfer = headers.get("content-length"), headers.get("transfer-encoding")
    if length is not None and transfer is not None:
        raise bad_request("Content-Length and Transfer-Encoding stand in one request")
    if transfer is not None and transfer.strip().lower() != "chunked":
        raise bad_request("no transfer coding but chunked is taken")
    if "upgrade" in headers and (transfer is not None or length not in {None, "0"}):
        # servers differ in whether the octets behind the head are a body, or of another protocol
        raise bad_request("a request with a body goes on as HTTP, without Upgrade")
    coding = headers.get("content-encoding", "identity")
    if coding is not None and coding.strip().lower() != "identity":
        raise bad_request(
            "a body with a content coding is not taken", "send it as it is", code="unsupported-media-type"
        )
    if length is None:
        return None
    if not (length.isascii() and length.isdigit() and len(length) <= 18):
        raise bad_request("Content-Length is no number")
    return int(length)


def _match_header(headers: Headers, name: str, form: re.Pattern[str], what: str) -> str | None:
    value = headers.get(name)
    if value is not None and form.fullmatch(value) is None:
        raise bad_request(f"the header field {name} is malformed", f"it is {what}")
    return value


def _parse_idempotency_key(headers: Headers) -> str | None:
    """The idempotency key: a string by RFC 9651, here without its quotes."""
    value = headers.get("idempotency-key")
    if value is None:
        return None
    found = _KEY.fullmatch(value.strip())
    if found is None:
        raise bad_request(
            "the header field idempotency-key is malformed", 'it is a string in quotes: "8e03978e-40d5"'
        )
    return re.sub(r"\\(.)", r"\1", found[1])


def verify_content_digest(value: str, body: bytes) -> None:
    """Raises AIIPError `aiip.bad-request` unless this Content-Digest (RFC 9530) is of this body.

    sha-256 and sha-512 count; at least one of them must be there, and all that are must hold.
    """
    if value == content_digest(body):
        return
    import hashlib

    require_extra("http_sf", "ai")
    import http_sf  # late: hardly any digest is written in another way

    try:
        digests: Any = http_sf.parse(value.encode("latin-1"), tltype="dictionary")
    except (http_sf.StructuredFieldError, ValueError):
        raise bad_request(
            "the header field content-digest is malformed", "sha-256=:...: (RFC 9530)"
        ) from None
    known = {"sha-256": hashlib.sha256, "sha-512": hashlib.sha512}
    given = [(known[name], item[0]) for name, item in digests.items() if name in known]
    if not given:
        raise bad_request("Content-Digest has no digest that is known here", "sha-256 or sha-512 (RFC 9530)")
    if any(digest != make(body).digest() for make, digest in given):
        raise bad_request("Content-Digest is not that of the body", "something changed the body on its way")


def validate_json_depth(body: bytes, most: int) -> None:
    """Raises AIIPError `aiip.too-large` for JSON whose arrays and objects nest deeper than `most`."""
    if body.count(b"[") + body.count(b"{") <= most:
        return
    if _measure_depth(_STRINGS.sub(b"", body)) > most:
        raise bad_request(f"the JSON is deeper than {most} levels", code="too-large")


def _measure_depth(octets: Iterable[int]) -> int:
    depth = deepest = 0
    for octet in octets:
        if octet in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif octet in b"]}":
            depth -= 1
    return deepest


Fields: TypeAlias = Sequence[tuple[bytes, bytes]]

#: fields that count here: Connection cannot make them the next hop's alone, or a proxy in front drops them
_END_TO_END: Final = frozenset(
    {
        b"accept", b"aiip-nonce", b"authorization", b"content-digest", b"content-encoding", b"content-length",
        b"content-type", b"cookie", b"dpop", b"host", b"idempotency-key", b"origin", b"sec-fetch-site",
        b"via",
    }
)  # fmt: skip

#: octets of path and query: a canonical URI has 2,048 characters, and the prefix comes on top
LONGEST_TARGET: Final = 4 * 1024
#: octets of all header fields
LONGEST_HEADERS: Final = 32 * 1024
#: gateways that a request may have passed before this one
MOST_HOPS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRequestHead:
    """A request as it came: the raw path and query of its target, and its fields with names in lower case.

    `target` is the request target itself, where the server tells it: it shows an absolute form or a fragment,
    which are gone from the path.
    """

    path: bytes
    query: bytes = b""
    fields: Fields = field(default=(), repr=False)
    target: bytes | None = None


def validate_gateway_head(head: GatewayRequestHead, *, hosts: Collection[str], name: str) -> None:
    """Raises AIIPError `aiip.bad-request` or `aiip.too-large` for a head that is not plain.

    `hosts` are the values of Host that are served here, `name` is this gateway's in Via.
    """
    _validate_target(head)
    _validate_field_sizes(head.fields)
    found = get_field_values(head.fields, b"host")
    if len(found) != 1:
        raise _make_bad_request("a request has one Host field", "Host")
    if found[0].decode("latin-1").lower() not in hosts:
        raise _make_bad_request("this host is not served here", "Host")
    _validate_framing(head.fields)
    if not _END_TO_END.isdisjoint(get_connection_fields(head.fields)):
        raise _make_bad_request("a field that counts is named as one of this connection alone", "Connection")
    validate_hops(head.fields, name)


def validate_hops(fields: Fields, name: str) -> None:
    """Raises AIIPError for a request that came by this gateway, or by many (RFC 9110 7.6.3)."""
    hops = [
        hop.split()
        for value in get_field_values(fields, b"via")
        for hop in value.decode("latin-1").lower().split(",")
    ]
    passed = [words[1] for words in hops if len(words) > 1]
    if name.lower() in passed or len(hops) > MOST_HOPS:
        raise AIIPError(
            "the request has come by this gateway before, or by too many",
            code="aiip.policy-denied",
            clause="RFC 9110 7.6.3",
            hint="a gateway is no authority: ask the resource itself",
        )


def _validate_framing(fields: Fields) -> None:
    """One way to tell where the body ends, and what it is."""
    length, transfer = (
        get_field_values(fields, b"content-length"),
        get_field_values(fields, b"transfer-encoding"),
    )
    if length and transfer:
        raise _make_bad_request("the length of the body is told twice", "Content-Length")
    if any(each.strip().lower() != b"chunked" for each in transfer):
        raise _make_bad_request("no transfer coding but chunked is taken", "Transfer-Encoding")
    if get_field_values(fields, b"upgrade") and (transfer or length not in ([], [b"0"])):
        # servers differ in whether the octets behind the head are a body, or of another protocol
        raise _make_bad_request("a request with a body goes on as HTTP", "Upgrade")
    if any(each.strip().lower() != b"identity" for each in get_field_values(fields, b"content-encoding")):
        raise AIIPError(
            "a body with a content coding is not taken",
            code="aiip.unsupported-media-type",
            clause=CLAUSE,
            hint="send it as it is",
        )


def get_connection_fields(fields: Fields) -> frozenset[bytes]:
    """The fields that Connection says are for this hop alone, in lower case (RFC 9110 7.6.1)."""
    named = (
        each.strip().lower()
        for value in get_field_values(fields, b"connection")
        for each in value.split(b",")
    )
    return frozenset(named)


def get_field_values(fields: Fields, name: bytes) -> list[bytes]:
    """The values of this field, in order; `name` is in lower case."""
    return [value for each, value in fields if each == name]


def _validate_target(head: GatewayRequestHead) -> None:
    size = len(head.path) + len(head.query)
    if size > LONGEST_TARGET:
        raise AIIPError(
            f"path and query are longer than {LONGEST_TARGET} octets", code="aiip.too-large", clause=CLAUSE
        )
    if head.path[:1] != b"/" or (head.target is not None and head.target[:1] != b"/"):
        raise _make_bad_request("the request target is a path", "request target")
    if b"#" in (head.target or head.path + head.query):
        raise _make_bad_request("a fragment is not sent", "request target")


def _validate_field_sizes(fields: Fields) -> None:
    if len(fields) > MAX_FIELDS or sum(len(name) + len(value) for name, value in fields) > LONGEST_HEADERS:
        raise AIIPError("the header fields are too many or too long", code="aiip.too-large", clause=CLAUSE)
    validate_header_fields(fields)


def _make_bad_request(message: str, where: str) -> AIIPError:
    return AIIPError(f"{message} ({where})", code="aiip.bad-request", clause=CLAUSE)
