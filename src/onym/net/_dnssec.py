"""Zones whose keys are pinned: what they say is judged by their own signatures (RFC 4035 5).

Keys are followed from the anchor to the zone's keys and no further: no parent, no zone below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dns import dnssec, name, rcode, rdata, rdataclass, rdatatype
from dns.exception import DNSException
from dns.rdataset import from_rdata_list
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.ANY.DS import DS
from dns.rdtypes.ANY.NSEC import NSEC
from dns.rdtypes.ANY.NSEC3 import NSEC3

from onym.errors import MissingExtraError, UsageError
from onym.net._answers import follow, read_answer
from onym.net._denial import Denial
from onym.net.messages import Records

if TYPE_CHECKING:
    from dns.message import Message
    from dns.name import Name
    from dns.rdataset import Rdataset
    from dns.rrset import RRset

__all__ = ["Zone", "read_anchors"]

#: each signature is tried with each key of its number: somebody could send very many (CVE-2023-50387)
_MOST_KEYS: Final = 16
_MOST_SIGNATURES: Final = 8
_MOST_DENIALS: Final = 8
#: SHA-256 and SHA-384
_DIGESTS: Final = frozenset({2, 4})
_ZONE_KEY: Final = 0x0100
_REVOKED: Final = 0x0080


@dataclass(frozen=True, slots=True)
class Zone:
    """A pinned zone: its name, and the DS or DNSKEY records that its keys are known by."""

    name: Name
    anchors: tuple[DS | DNSKEY, ...]

    def judge(self, answer: Message, keys: Message, asked: Name, kind: str) -> Records:
        """What the answer says, if this zone's keys vouch for all of it; else "bogus"."""
        if keys.rcode() != rcode.NOERROR or answer.rcode() not in (rcode.NOERROR, rcode.NXDOMAIN):
            return Records(status="failed", detail="the name server refuses")
        known = self._keys(keys)
        if known is None:
            return _bogus("the zone's keys are not those that are pinned")
        chain = follow(answer, asked, kind)
        if chain is None:
            return read_answer(answer, asked, kind, validated=False)
        steps = chain.aliases if chain.found is None else (*chain.aliases, chain.found)
        inside = [rrset for rrset in steps if rrset.name.is_subdomain(self.name)]
        if not all(self._holds(answer, answer.answer, rrset, known) for rrset in inside):
            return _bogus("a record of the pinned zone is not signed by its keys")
        denial = self._denial(answer, known)
        made = [(rrset.name, labels) for rrset in inside if (labels := _wildcard(answer, rrset)) is not None]
        if not all(denial.allows_wildcard(*each) for each in made):
            return _bogus("a record of the pinned zone stands for a name that it may not stand for")
        if len(inside) < len(steps) or not chain.name.is_subdomain(self.name):
            # an alias leads out of the zone: what is there is not the zone's word, even if it leads back
            return read_answer(answer, asked, kind, validated=False)
        if chain.found is None and not denial.proves_absence(chain.name, rdatatype.from_text(kind)):
            return _bogus("the pinned zone does not prove that there is no such record")
        return read_answer(answer, asked, kind, validated=True)

    def _keys(self, answer: Message) -> Rdataset | None:
        """The zone's keys, where a pinned one of them has signed them."""
        found = answer.get_rrset(answer.answer, self.name, rdataclass.IN, rdatatype.DNSKEY)
        if found is None or len(found) > _MOST_KEYS:
            return None
        pinned = [key for key in found if self._is_pinned(key)]
        if not pinned or not self._holds(answer, answer.answer, found, from_rdata_list(found.ttl, pinned)):
            return None
        return found

    def _is_pinned(self, key: DNSKEY) -> bool:
        if key.flags & _REVOKED or not key.flags & _ZONE_KEY:
            return False
        return any(
            anchor == (dnssec.make_ds(self.name, key, anchor.digest_type) if isinstance(anchor, DS) else key)
            for anchor in self.anchors
        )

    def _holds(self, answer: Message, section: list[RRset], rrset: RRset, keys: Rdataset) -> bool:
        """Whether one of these keys of the zone has signed the records."""
        signatures = _signatures(answer, section, rrset)
        if signatures is None or len(signatures) > _MOST_SIGNATURES:
            return False
        try:
            dnssec.validate(rrset, signatures, {self.name: keys})
        except (DNSException, ValueError):
            return False
        return True

    def _denial(self, answer: Message, keys: Rdataset) -> Denial:
        """The signed records of the answer that say what there is not."""
        found = [rrset for rrset in answer.authority if rrset.rdtype in (rdatatype.NSEC, rdatatype.NSEC3)]
        signed = [
            (rrset.name, record)
            for rrset in found[:_MOST_DENIALS]
            if rrset.name.is_subdomain(self.name) and self._holds(answer, answer.authority, rrset, keys)
            for record in rrset
        ]
        return Denial(
            self.name,
            tuple((owner, record) for owner, record in signed if isinstance(record, NSEC)),
            tuple((owner, record) for owner, record in signed if isinstance(record, NSEC3)),
        )


def read_anchors(anchors: Mapping[str, Sequence[str]]) -> tuple[Zone, ...]:
    """The pinned zones; raises UsageError, or MissingExtraError where signatures cannot be checked."""
    if not hasattr(dnssec, "InvalidSignature"):
        raise MissingExtraError(
            "checking signatures of DNS needs dnspython[dnssec]", command="pip install 'dnspython[dnssec]'"
        )
    return tuple(_zone(zone, lines) for zone, lines in anchors.items())


def _zone(zone: str, lines: Sequence[str]) -> Zone:
    try:
        if isinstance(lines, str) or not lines:
            raise ValueError
        return Zone(name.from_text(zone), tuple(map(_anchor, lines)))
    except (DNSException, ValueError):
        raise UsageError(
            "anchors holds what is no DS or DNSKEY record",
            code="usage.dns",
            hint='write {"bank.example": ["DS 30909 15 2 E2D3..."]}, with digests of SHA-256 or SHA-384',
        ) from None


def _anchor(line: str) -> DS | DNSKEY:
    kind, _, rest = line.strip().partition(" ")
    record = rdata.from_text(rdataclass.IN, rdatatype.from_text(kind), rest)
    if isinstance(record, DNSKEY) or (isinstance(record, DS) and record.digest_type in _DIGESTS):
        return record
    raise ValueError


def _signatures(answer: Message, section: list[RRset], rrset: RRset) -> RRset | None:
    return answer.get_rrset(section, rrset.name, rdataclass.IN, rdatatype.RRSIG, rrset.rdtype)


def _wildcard(answer: Message, rrset: RRset) -> int | None:
    """Of how many labels the wildcard's parent has that the name was made of; None for a name of its own."""
    signed = min(each.labels for each in _signatures(answer, answer.answer, rrset) or ())
    return signed if signed < len(rrset.name) - 1 - rrset.name.is_wild() else None


def _bogus(detail: str) -> Records:
    return Records(status="bogus", detail=detail)
