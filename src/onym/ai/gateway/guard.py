"""What a gateway refuses at once: a request that two servers could read in two ways (3.14)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from onym.ai._plain import CLAUSE, MAX_FIELDS, check_fields
from onym.errors import AIIPError

__all__ = [
    "LONGEST_HEADERS",
    "LONGEST_TARGET",
    "MOST_HOPS",
    "Fields",
    "Head",
    "check_head",
    "named_by_connection",
    "values",
]

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
class Head:
    """A request as it came: the raw path and query of its target, and its fields with names in lower case.

    `target` is the request target itself, where the server tells it: it shows an absolute form or a fragment,
    which are gone from the path.
    """

    path: bytes
    query: bytes = b""
    fields: Fields = field(default=(), repr=False)
    target: bytes | None = None


def check_head(head: Head, *, hosts: Collection[str], name: str) -> None:
    """Raises AIIPError `aiip.bad-request` or `aiip.too-large` for a head that is not plain.

    `hosts` are the values of Host that are served here, `name` is this gateway's in Via.
    """
    _check_target(head)
    _check_fields(head.fields)
    found = values(head.fields, b"host")
    if len(found) != 1:
        raise _bad("a request has one Host field", "Host")
    if found[0].decode("latin-1").lower() not in hosts:
        raise _bad("this host is not served here", "Host")
    _check_framing(head.fields)
    if not _END_TO_END.isdisjoint(named_by_connection(head.fields)):
        raise _bad("a field that counts is named as one of this connection alone", "Connection")
    check_hops(head.fields, name)


def check_hops(fields: Fields, name: str) -> None:
    """Raises AIIPError for a request that came by this gateway, or by many (RFC 9110 7.6.3)."""
    hops = [
        hop.split() for value in values(fields, b"via") for hop in value.decode("latin-1").lower().split(",")
    ]
    passed = [words[1] for words in hops if len(words) > 1]
    if name.lower() in passed or len(hops) > MOST_HOPS:
        raise AIIPError(
            "the request has come by this gateway before, or by too many",
            code="aiip.policy-denied",
            clause="RFC 9110 7.6.3",
            hint="a gateway is no authority: ask the resource itself",
        )


def _check_framing(fields: Fields) -> None:
    """One way to tell where the body ends, and what it is."""
    length, transfer = values(fields, b"content-length"), values(fields, b"transfer-encoding")
    if length and transfer:
        raise _bad("the length of the body is told twice", "Content-Length")
    if any(each.strip().lower() != b"chunked" for each in transfer):
        raise _bad("no transfer coding but chunked is taken", "Transfer-Encoding")
    if values(fields, b"upgrade") and (transfer or length not in ([], [b"0"])):
        # servers differ in whether the octets behind the head are a body, or of another protocol
        raise _bad("a request with a body goes on as HTTP", "Upgrade")
    if any(each.strip().lower() != b"identity" for each in values(fields, b"content-encoding")):
        raise AIIPError(
            "a body with a content coding is not taken",
            code="aiip.unsupported-media-type",
            clause=CLAUSE,
            hint="send it as it is",
        )


def named_by_connection(fields: Fields) -> frozenset[bytes]:
    """The fields that Connection says are for this hop alone, in lower case (RFC 9110 7.6.1)."""
    named = (each.strip().lower() for value in values(fields, b"connection") for each in value.split(b","))
    return frozenset(named)


def values(fields: Fields, name: bytes) -> list[bytes]:
    """The values of this field, in order; `name` is in lower case."""
    return [value for each, value in fields if each == name]


def _check_target(head: Head) -> None:
    size = len(head.path) + len(head.query)
    if size > LONGEST_TARGET:
        raise AIIPError(
            f"path and query are longer than {LONGEST_TARGET} octets", code="aiip.too-large", clause=CLAUSE
        )
    if head.path[:1] != b"/" or (head.target is not None and head.target[:1] != b"/"):
        raise _bad("the request target is a path", "request target")
    if b"#" in (head.target or head.path + head.query):
        raise _bad("a fragment is not sent", "request target")


def _check_fields(fields: Fields) -> None:
    if len(fields) > MAX_FIELDS or sum(len(name) + len(value) for name, value in fields) > LONGEST_HEADERS:
        raise AIIPError("the header fields are too many or too long", code="aiip.too-large", clause=CLAUSE)
    check_fields(fields)


def _bad(message: str, where: str) -> AIIPError:
    return AIIPError(f"{message} ({where})", code="aiip.bad-request", clause=CLAUSE)
