"""The outermost look at a request: what two servers could read in two ways goes no further (3.14). Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from onym._lazy import require
from onym.ai._plain import CLAUSE, MAX_FIELDS, check_fields
from onym.errors import AIIPError
from onym.net.messages import Headers
from onym.sign.receipt import content_digest

__all__ = ["MAX_FIELDS", "Head", "bad_request", "check_depth", "check_digest", "read_head"]

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
class Head:
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
    def trace(self) -> str | None:
        """The id of the caller's trace (W3C Trace Context 3.2.2), where it gives one."""
        found = _TRACE.fullmatch(self.headers.get("traceparent") or "")
        return None if found is None else found[1]


def read_head(scope: Any, hosts: Collection[bytes]) -> Head:
    """The head of an ASGI scope, if there is one way to read it. Raises AIIPError `aiip.bad-request`,
    `aiip.unsupported-media-type`.
    """
    pairs = scope["headers"]
    if len(pairs) > MAX_FIELDS:
        raise bad_request(f"more than {MAX_FIELDS} header fields")
    check_fields(pairs)
    headers = Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs])
    _check_host(headers, hosts)
    length = _check_framing(headers)
    return Head(
        method=scope["method"],
        raw_path=scope["raw_path"],
        query=scope["query_string"],
        headers=headers,
        nonce=_matched(headers, "aiip-nonce", _NONCE, "22 to 128 characters of base64url"),
        idempotency_key=_key(headers),
        origin=_matched(headers, "origin", _ORIGIN, "a serialised origin (RFC 6454 6.2)"),
        content_type=_matched(headers, "content-type", _TYPE, "a media type in ASCII"),
        digest=headers.get("content-digest"),
        length=length,
    )


def bad_request(message: str, hint: str | None = None, *, code: str = "bad-request") -> AIIPError:
    """The error for a request that is not taken as it is."""
    return AIIPError(message, code=f"aiip.{code}", clause=CLAUSE, hint=hint)


def _check_host(headers: Headers, hosts: Collection[bytes]) -> None:
    host = headers.get("host")
    if host is None or host.lower().encode("latin-1") not in hosts:
        raise bad_request("the field Host names another server, or none")


def _check_framing(headers: Headers) -> int | None:
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


def _matched(headers: Headers, name: str, form: re.Pattern[str], what: str) -> str | None:
    value = headers.get(name)
    if value is not None and form.fullmatch(value) is None:
        raise bad_request(f"the header field {name} is malformed", f"it is {what}")
    return value


def _key(headers: Headers) -> str | None:
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


def check_digest(value: str, body: bytes) -> None:
    """Raises AIIPError `aiip.bad-request` unless this Content-Digest (RFC 9530) is of this body.

    sha-256 and sha-512 count; at least one of them must be there, and all that are must hold.
    """
    if value == content_digest(body):
        return
    import hashlib

    require("http_sf", "ai")
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


def check_depth(body: bytes, most: int) -> None:
    """Raises AIIPError `aiip.too-large` for JSON whose arrays and objects nest deeper than `most`."""
    if body.count(b"[") + body.count(b"{") <= most:
        return
    if _deepest(_STRINGS.sub(b"", body)) > most:
        raise bad_request(f"the JSON is deeper than {most} levels", code="too-large")


def _deepest(octets: Iterable[int]) -> int:
    depth = deepest = 0
    for octet in octets:
        if octet in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif octet in b"]}":
            depth -= 1
    return deepest
