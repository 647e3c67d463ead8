"""DNSSEC for zones with pinned keys: signatures (RFC 4035 5), NSEC (RFC 4035 5.4) and NSEC3 (RFC 5155 8).

Onym follows keys from the trust anchor to the zone's own keys and no further: no parent zone, no child zone.
The records of a `DenialProof` come from answers whose signatures were checked.
"""

from __future__ import annotations

from base64 import b32hexencode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dns import dnssec, flags, name, rcode, rdata, rdataclass, rdatatype
from dns.exception import DNSException
from dns.name import Name, NameRelation, root
from dns.rdataset import from_rdata_list
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.ANY.DS import DS
from dns.rdtypes.ANY.NSEC import NSEC
from dns.rdtypes.ANY.NSEC3 import NSEC3
from dns.rdtypes.ANY.TXT import TXT

from onym.errors import MissingExtraError, UsageError
from onym.net.messages import SRV, Records

if TYPE_CHECKING:
    from dns.message import Message
    from dns.rdata import Rdata
    from dns.rdataset import Rdataset
    from dns.rrset import RRset

#: aliases that are followed in one answer, records of a type, and bytes of one TXT record
_MOST_ALIASES: Final = 8
_MOST_RECORDS: Final = 32
_MOST_TEXT: Final = 4096


class AliasChain(NamedTuple):
    """The aliases of the queried name, the name at their end, and its records."""

    aliases: tuple[RRset, ...]
    name: Name
    records: RRset | None


def parse_answer(answer: Message, name: Name, kind: str, *, validated: bool) -> Records:
    """Return the records in the answer. The caller has checked that it answers the query."""
    code = answer.rcode()
    if code not in (rcode.NOERROR, rcode.NXDOMAIN):
        return Records(status="failed", detail=f"the name server refused the query ({rcode.to_text(code)})")
    chain = follow_aliases(answer, name, kind)
    if chain is None:
        return Records(status="failed", detail="the name is an alias of too many others")
    if chain.records is not None:
        if code == rcode.NXDOMAIN:
            return Records(status="failed", detail="the answer contradicts itself")
        return convert_records(chain.records, validated=validated)
    complete = answer.flags & flags.RA or (answer.flags & flags.AA and not chain.aliases)
    if not (complete or validated):
        return Records(status="failed", detail="the name server only refers to others")
    detail = "the name does not exist" if code == rcode.NXDOMAIN else f"the name has no {kind} record"
    return Records(status="none", validated=validated, detail=detail)


def follow_aliases(answer: Message, name: Name, kind: str) -> AliasChain | None:
    """Follow the aliases in the answer; None if there are too many, or if they form a circle.

    Records of other names, classes and types are ignored.
    """
    rtype = rdatatype.from_text(kind)
    aliases: list[RRset] = []
    while len(aliases) <= _MOST_ALIASES:
        records = answer.get_rrset(answer.answer, name, rdataclass.IN, rtype)
        alias = answer.get_rrset(answer.answer, name, rdataclass.IN, rdatatype.CNAME)
        if records is not None or alias is None:
            return AliasChain(tuple(aliases), name, records)
        aliases.append(alias)
        name = alias[0].target
    return None


def convert_records(rrset: RRset, *, validated: bool) -> Records:
    """Convert the records, in an order that does not depend on the server."""
    if len(rrset) > _MOST_RECORDS:
        return Records(status="failed", detail="the name has too many records")
    if any(_count_text_octets(record) > _MOST_TEXT for record in rrset):
        return Records(status="failed", detail="a TXT record is too long")
    values = [_convert_record(record) for record in rrset]
    return Records(status="found", values=tuple(sorted(values, key=str)), validated=validated)


def _count_text_octets(record: Rdata) -> int:
    return len(b"".join(record.strings)) if isinstance(record, TXT) else 0


def _convert_record(record: Any) -> SRV | str:
    if isinstance(record, TXT):
        # RFC 7208 3.3: the strings of one record are one text
        return b"".join(record.strings).decode("utf-8", "replace")
    if isinstance(record, CNAME):
        return _format_name(record.target)
    return SRV(record.priority, record.weight, record.port, _format_name(record.target))


def _format_name(name: Name) -> str:
    return "" if name == root else name.to_text(omit_final_dot=True).lower()


#: RFC 9276 3.2: more iterations cost too much work
_MOST_ITERATIONS: Final = 100
_OPT_OUT: Final = 1
#: the only hash algorithm that is defined
_SHA1: Final = 1


class DenialProof(NamedTuple):
    """The signed NSEC and NSEC3 records of an answer, with their owners."""

    zone: Name
    plain: tuple[tuple[Name, NSEC], ...] = ()
    hashed: tuple[tuple[Name, NSEC3], ...] = ()

    def proves_absence(self, name: Name, kind: int) -> bool:
        """Report whether the name has no records of that type, no alias and no wildcard that replaces it."""
        types = self._find_types(name)
        if types is not None:
            return _is_absent(types, kind)
        encloser = self._find_encloser(name)
        if encloser is None:
            return False
        if encloser == name:
            return True
        wildcard = Name((b"*", *encloser.labels))
        types = self._find_types(wildcard)
        return self._is_covered(wildcard) if types is None else _is_absent(types, kind)

    def allows_wildcard(self, name: Name, labels: int) -> bool:
        """Report whether the wildcard below the last `labels` labels of the name may replace it.

        No existing name may be closer to the name (RFC 4035 5.3.4, RFC 5155 8.8).
        """
        if self._find_gap(name) is not None:
            encloser = self._find_encloser(name)
            return encloser != name and encloser == Name(name.labels[-labels - 1 :])
        nearest = Name(name.labels[-labels - 2 :])
        return any(_is_hash_covered(owner, record, nearest) for owner, record in self.hashed)

    def _find_types(self, name: Name) -> frozenset[int] | None:
        """Return the types of records that the name has, or None if no record shows them."""
        for owner, record in self.plain:
            if owner == name:
                return _parse_type_bitmap(record)
        for owner, hashed in self.hashed:
            if _get_owner_hash(owner) == _hash_name(name, hashed):
                return _parse_type_bitmap(hashed)
        return None

    def _is_covered(self, name: Name) -> bool:
        """Report whether two adjacent names show that this name between them does not exist."""
        return self._find_gap(name) is not None or any(
            _is_hash_covered(owner, record, name) for owner, record in self.hashed
        )

    def _find_encloser(self, name: Name) -> Name | None:
        """Return the longest existing ancestor of a name that does not exist, or None without proof.

        It is the name itself if that has no records, but has names below it.
        """
        gap = self._find_gap(name)
        if gap is None:
            return self._find_encloser_by_hash(name)
        owner, record = gap
        if record.next.is_subdomain(name):
            return name
        return max(_find_common_ancestor(name, owner), _find_common_ancestor(name, record.next), key=len)

    def _find_gap(self, name: Name) -> tuple[Name, NSEC] | None:
        """Return the NSEC record whose owner and next name enclose this name."""
        for owner, record in self.plain:
            between = owner < name and (name < record.next or record.next == self.zone)
            # the record of a delegated name does not apply to the names below it
            if between and not (name.is_subdomain(owner) and _is_cut(_parse_type_bitmap(record))):
                return owner, record
        return None

    def _find_encloser_by_hash(self, name: Name) -> Name | None:
        below = name
        while below != self.zone:
            above = below.parent()
            types = self._find_types(above)
            if types is not None:
                return above if self._is_covered(below) and not _is_cut(types) else None
            below = above
        return None


def _is_hash_covered(owner: Name, record: NSEC3, name: Name) -> bool:
    digest, start = _hash_name(name, record), _get_owner_hash(owner)
    # an opt-out span may contain unsigned zones
    if digest is None or record.flags & _OPT_OUT:
        return False
    end = b32hexencode(record.next).decode()
    return start < digest < end or (end <= start and (digest > start or digest < end))


def _hash_name(name: Name, record: NSEC3) -> str | None:
    if record.iterations > _MOST_ITERATIONS or record.algorithm != _SHA1:
        return None
    return dnssec.nsec3_hash(name, record.salt, record.iterations, record.algorithm)


def _is_absent(types: frozenset[int], kind: int) -> bool:
    """Report whether there is neither such a record nor an alias, by the zone that the name is in."""
    return kind not in types and rdatatype.CNAME not in types and not _is_cut(types, aliases=False)


def _is_cut(types: frozenset[int], *, aliases: bool = True) -> bool:
    """Report whether another zone begins at a name with these types, or DNAME aliases all names below."""
    delegated = rdatatype.NS in types and rdatatype.SOA not in types
    return delegated or (aliases and rdatatype.DNAME in types)


def _parse_type_bitmap(record: NSEC | NSEC3) -> frozenset[int]:
    """RFC 4034 4.1.2."""
    return frozenset(
        window * 256 + place * 8 + bit
        for window, bitmap in record.windows
        for place, byte in enumerate(bitmap)
        for bit in range(8)
        if byte & (0x80 >> bit)
    )


def _find_common_ancestor(one: Name, other: Name) -> Name:
    """Return the longest name that is an ancestor of both."""
    relation, _, shared = one.fullcompare(other)
    return one if relation == NameRelation.SUPERDOMAIN else Name(one.labels[len(one) - shared :])


def _get_owner_hash(owner: Name) -> str:
    return owner.labels[0].decode("ascii", "replace").upper()


#: every signature is tried with every key of its number, so both are limited (CVE-2023-50387)
_MOST_KEYS: Final = 16
_MOST_SIGNATURES: Final = 8
_MOST_DENIALS: Final = 8
#: SHA-256 and SHA-384
_DIGESTS: Final = frozenset({2, 4})
_ZONE_KEY: Final = 0x0100
_REVOKED: Final = 0x0080


@dataclass(frozen=True, slots=True)
class PinnedZone:
    """A pinned zone: its name, and the DS or DNSKEY records that identify its keys."""

    name: Name
    anchors: tuple[DS | DNSKEY, ...]

    def validate_answer(self, answer: Message, keys: Message, queried: Name, kind: str) -> Records:
        """Return the records of the answer, "bogus" unless this zone's keys have signed all of it."""
        if keys.rcode() != rcode.NOERROR or answer.rcode() not in (rcode.NOERROR, rcode.NXDOMAIN):
            return Records(status="failed", detail="the name server refused the query")
        known = self._find_trusted_keys(keys)
        if known is None:
            return _make_bogus("the zone's keys are not the pinned ones")
        chain = follow_aliases(answer, queried, kind)
        if chain is None:
            return parse_answer(answer, queried, kind, validated=False)
        steps = chain.aliases if chain.records is None else (*chain.aliases, chain.records)
        inside = [rrset for rrset in steps if rrset.name.is_subdomain(self.name)]
        if not all(self._is_signed(answer, answer.answer, rrset, known) for rrset in inside):
            return _make_bogus("a record of the pinned zone is not signed by its keys")
        denial = self._collect_denial(answer, known)
        for rrset in inside:
            labels = _find_wildcard_labels(answer, rrset)
            if labels is not None and not denial.allows_wildcard(rrset.name, labels):
                return _make_bogus("a wildcard of the pinned zone is used for a name that it does not cover")
        if len(inside) < len(steps) or not chain.name.is_subdomain(self.name):
            # an alias leads out of the zone, whose keys do not sign what is there
            return parse_answer(answer, queried, kind, validated=False)
        if chain.records is None and not denial.proves_absence(chain.name, rdatatype.from_text(kind)):
            return _make_bogus("the pinned zone does not prove that the record does not exist")
        return parse_answer(answer, queried, kind, validated=True)

    def _find_trusted_keys(self, answer: Message) -> Rdataset | None:
        """Return the zone's keys if a pinned one has signed them."""
        keys = answer.get_rrset(answer.answer, self.name, rdataclass.IN, rdatatype.DNSKEY)
        if keys is None or len(keys) > _MOST_KEYS:
            return None
        pinned = [key for key in keys if self._is_pinned(key)]
        if not pinned or not self._is_signed(answer, answer.answer, keys, from_rdata_list(keys.ttl, pinned)):
            return None
        return keys

    def _is_pinned(self, key: DNSKEY) -> bool:
        if key.flags & _REVOKED or not key.flags & _ZONE_KEY:
            return False
        return any(
            anchor == (dnssec.make_ds(self.name, key, anchor.digest_type) if isinstance(anchor, DS) else key)
            for anchor in self.anchors
        )

    def _is_signed(self, answer: Message, section: list[RRset], rrset: RRset, keys: Rdataset) -> bool:
        """Report whether one of these keys of the zone has signed the records."""
        signatures = _find_signatures(answer, section, rrset)
        if signatures is None or len(signatures) > _MOST_SIGNATURES:
            return False
        try:
            dnssec.validate(rrset, signatures, {self.name: keys})
        except (DNSException, ValueError):
            return False
        return True

    def _collect_denial(self, answer: Message, keys: Rdataset) -> DenialProof:
        """Return the signed NSEC and NSEC3 records of the answer."""
        denials = [rrset for rrset in answer.authority if rrset.rdtype in (rdatatype.NSEC, rdatatype.NSEC3)]
        signed = [
            (rrset.name, record)
            for rrset in denials[:_MOST_DENIALS]
            if rrset.name.is_subdomain(self.name) and self._is_signed(answer, answer.authority, rrset, keys)
            for record in rrset
        ]
        return DenialProof(
            self.name,
            tuple((owner, record) for owner, record in signed if isinstance(record, NSEC)),
            tuple((owner, record) for owner, record in signed if isinstance(record, NSEC3)),
        )


def parse_anchors(anchors: Mapping[str, Sequence[str]]) -> tuple[PinnedZone, ...]:
    """Return the pinned zones. Raises UsageError, and MissingExtraError without `dnspython[dnssec]`."""
    if not hasattr(dnssec, "InvalidSignature"):
        raise MissingExtraError(
            "checking DNSSEC signatures needs dnspython[dnssec], which is not installed",
            command="pip install 'onym[ai]'",
        )
    return tuple(_parse_zone(zone, lines) for zone, lines in anchors.items())


def _parse_zone(zone: str, lines: Sequence[str]) -> PinnedZone:
    try:
        if isinstance(lines, str) or not lines:
            raise ValueError
        return PinnedZone(name.from_text(zone), tuple(map(_parse_anchor, lines)))
    except (DNSException, ValueError):
        raise UsageError(
            f"anchors of {zone}: not DS or DNSKEY records",
            code="usage.dns",
            hint='Write {"bank.example": ["DS 30909 15 2 E2D3..."]}, with SHA-256 or SHA-384 digests.',
        ) from None


def _parse_anchor(line: str) -> DS | DNSKEY:
    kind, _, rest = line.strip().partition(" ")
    record = rdata.from_text(rdataclass.IN, rdatatype.from_text(kind), rest)
    if isinstance(record, DNSKEY) or (isinstance(record, DS) and record.digest_type in _DIGESTS):
        return record
    raise ValueError


def _find_signatures(answer: Message, section: list[RRset], rrset: RRset) -> RRset | None:
    return answer.get_rrset(section, rrset.name, rdataclass.IN, rdatatype.RRSIG, rrset.rdtype)


def _find_wildcard_labels(answer: Message, rrset: RRset) -> int | None:
    """Return how many labels the wildcard's parent has, or None if no wildcard made the name."""
    signed = min(signature.labels for signature in _find_signatures(answer, answer.answer, rrset) or ())
    return signed if signed < len(rrset.name) - 1 - rrset.name.is_wild() else None


def _make_bogus(detail: str) -> Records:
    return Records(status="bogus", detail=detail)
