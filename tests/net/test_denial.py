"""What NSEC and NSEC3 records prove, and what they do not (RFC 4035 5.4, RFC 5155 8)."""

from __future__ import annotations

from base64 import b32hexdecode, b32hexencode

import pytest
from dns.dnssec import nsec3_hash
from dns.name import Name, from_text
from dns.rdata import from_text as record
from dns.rdataclass import IN
from dns.rdatatype import NSEC3 as TYPE
from dns.rdatatype import TXT
from dns.rdtypes.ANY.NSEC import NSEC
from dns.rdtypes.ANY.NSEC3 import NSEC3

from onym.net._dnssec import DenialProof
from support import as_subtests

ZONE = from_text("bank.test")


def name(text: str) -> Name:
    return ZONE if text == "@" else from_text(text, ZONE)


def plain(*rows: str) -> DenialProof:
    """A denial of rows "owner next TYPES"; names are below bank.test."""
    found = []
    for row in rows:
        owner, following, types = row.split(" ", 2)
        read = record("IN", "NSEC", f"{name(following)} {types}")
        assert isinstance(read, NSEC)
        found.append((name(owner), read))
    return DenialProof(ZONE, tuple(found))


def hashed(*rows: str, iterations: int = 0, algorithm: int = 1) -> DenialProof:
    """A denial of rows "owner TYPES"; of "~name", the gap around its hash; of "!~name", one that opts out."""
    found = []
    for row in rows:
        owner, _, types = row.partition(" ")
        at = place(name(owner.lstrip("!~")), iterations)
        start = at - 1 if "~" in owner else at
        opted = int(owner.startswith("!"))
        bitmap = record("IN", "NSEC", f". {types or 'A'}")
        assert isinstance(bitmap, NSEC)
        read = NSEC3(IN, TYPE, algorithm, opted, iterations, b"", octets(at + 1), bitmap.windows)
        found.append((from_text(b32hexencode(octets(start)).decode().lower(), ZONE), read))
    return DenialProof(ZONE, hashed=tuple(found))


def place(asked: Name, iterations: int = 0) -> int:
    """The hash of a name, as a number."""
    return int.from_bytes(b32hexdecode(nsec3_hash(asked, None, iterations, 1)), "big")


def octets(number: int) -> bytes:
    return (number % 2**160).to_bytes(20, "big")


@as_subtests(
    ("denial", "asked", "proven"),
    [
        # the name is there, and has no such record
        (plain("x z A NSEC"), "x", True),
        (plain("x z A TXT NSEC"), "x", False),
        (plain("x z CNAME NSEC"), "x", False),
        # the parent's word for a name that it gave away; that of the zone's own top
        (plain("x z NS NSEC"), "x", False),
        (plain("x z NS SOA NSEC"), "x", True),
        # neither the name nor a wildcard is there
        (plain("m z A NSEC", "@ b SOA NS NSEC"), "x", True),
        (plain("m z A NSEC"), "x", False),
        (plain("m @ A NSEC", "@ b SOA NS NSEC"), "x", True),
        # another gap
        (plain("y z A NSEC", "@ b SOA NS NSEC"), "x", False),
        (plain("m n A NSEC", "@ b SOA NS NSEC"), "x", False),
        # a wildcard is there, with such a record or without
        (plain("m z A NSEC", "* b A NSEC"), "x", True),
        (plain("m z A NSEC", "* b TXT NSEC"), "x", False),
        # names are there below it
        (plain("m deep.x A NSEC"), "x", True),
        # what is said of names above another zone, or of aliases of whole trees, does not go for those below
        (plain("m z NS NSEC", "@ b SOA NS NSEC"), "x.m", False),
        (plain("m z DNAME NSEC", "@ b SOA NS NSEC"), "x.m", False),
        (plain("m z A NSEC", "m n A NSEC"), "x.m", True),
        (plain(), "x", False),
        # the same by hashes
        (hashed("x A"), "x", True),
        (hashed("x TXT"), "x", False),
        (hashed("@ SOA NS", "~x", "~*"), "x", True),
        (hashed("@ SOA NS", "~x", "* A"), "x", True),
        (hashed("@ SOA NS", "~x", "* TXT"), "x", False),
        (hashed("@ SOA NS", "~x"), "x", False),
        (hashed("@ SOA NS", "~*"), "x", False),
        (hashed("~x", "~*"), "x", False),
        (hashed("@ SOA NS", "~m", "~*"), "x.m", True),
        (hashed("m A", "~x.m", "~*.m"), "x.m", True),
        (hashed("m NS", "~x.m", "~*.m"), "x.m", False),
        (hashed("@ SOA NS", "!~x", "~*"), "x", False),
        (hashed("@ SOA NS", "~x", "~*", iterations=101), "x", False),
        (hashed("@ SOA NS", "~x", "~*", algorithm=2), "x", False),
    ],
)
def test_an_absence_is_proven_or_not(denial: DenialProof, asked: str, proven: bool) -> None:
    assert denial.proves_absence(name(asked), TXT) is proven


@pytest.mark.parametrize(
    ("denial", "labels", "allowed"),
    [
        # *.bank.test for x.bank.test, which is not there
        (plain("m z A NSEC"), 2, True),
        (plain("m deep.x A NSEC"), 2, False),
        (plain(), 2, False),
        (hashed("~x"), 2, True),
        (hashed("~y"), 2, False),
        (hashed("!~x"), 2, False),
        # *.test is not near enough
        (plain("m z A NSEC"), 1, False),
        (hashed("~x"), 1, False),
    ],
)
def test_a_wildcard_stands_only_for_names_that_are_not_there(
    denial: DenialProof, labels: int, allowed: bool
) -> None:
    assert denial.allows_wildcard(name("x"), labels) is allowed


@pytest.mark.parametrize(
    ("start", "end", "covered"),
    # after the last hash and before the first, which lies below or above the one asked for
    [(-2, -3, True), (3, 2, True), (1, 2, False), (-2, -1, False), (1, -1, False)],
)
def test_the_last_gap_of_hashes_goes_round(start: int, end: int, covered: bool) -> None:
    at = place(name("x"))
    read = NSEC3(IN, TYPE, 1, 0, 0, b"", octets(at + end), ())
    owner = from_text(b32hexencode(octets(at + start)).decode(), ZONE)
    assert DenialProof(ZONE, hashed=((owner, read),)).allows_wildcard(name("x"), 2) is covered
