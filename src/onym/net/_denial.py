"""What a zone says that there is not: NSEC (RFC 4035 5.4) and NSEC3 (RFC 5155 8). Pure.

The records come here after their signatures were checked.
"""

from __future__ import annotations

from base64 import b32hexencode
from typing import TYPE_CHECKING, Final, NamedTuple

from dns import dnssec, rdatatype
from dns.name import Name, NameRelation

if TYPE_CHECKING:
    from dns.rdtypes.ANY.NSEC import NSEC
    from dns.rdtypes.ANY.NSEC3 import NSEC3

__all__ = ["Denial"]

#: RFC 9276 3.2: a zone that wants more is not worth the work
_MOST_ITERATIONS: Final = 100
_OPT_OUT: Final = 1
#: the only hash that there is
_SHA1: Final = 1


class Denial(NamedTuple):
    """The signed NSEC and NSEC3 records that came with an answer, each with its owner."""

    zone: Name
    plain: tuple[tuple[Name, NSEC], ...] = ()
    hashed: tuple[tuple[Name, NSEC3], ...] = ()

    def proves_absence(self, name: Name, kind: int) -> bool:
        """Whether the name has no records of that kind, no alias either, and no wildcard stands for it."""
        types = self._types(name)
        if types is not None:
            return _lacks(types, kind)
        encloser = self._encloser(name)
        if encloser is None:
            return False
        if encloser == name:
            return True
        wildcard = Name((b"*", *encloser.labels))
        types = self._types(wildcard)
        return self._covers(wildcard) if types is None else _lacks(types, kind)

    def allows_wildcard(self, name: Name, labels: int) -> bool:
        """Whether the wildcard below the last `labels` labels of the name may stand for it.

        Nothing may be nearer to the name (RFC 4035 5.3.4, RFC 5155 8.8).
        """
        if self._gap(name) is not None:
            encloser = self._encloser(name)
            return encloser != name and encloser == Name(name.labels[-labels - 1 :])
        nearest = Name(name.labels[-labels - 2 :])
        return any(_covers_hash(owner, record, nearest) for owner, record in self.hashed)

    def _types(self, name: Name) -> frozenset[int] | None:
        """The types of records that the name has; None where nothing says so."""
        for owner, record in self.plain:
            if owner == name:
                return _bitmap(record)
        for owner, hashed in self.hashed:
            if _hash_of(owner) == _hash(name, hashed):
                return _bitmap(hashed)
        return None

    def _covers(self, name: Name) -> bool:
        """Whether nothing lies between two names that exist, where this one would be."""
        return self._gap(name) is not None or any(
            _covers_hash(owner, record, name) for owner, record in self.hashed
        )

    def _encloser(self, name: Name) -> Name | None:
        """The longest name above that exists, of a name that is shown not to; None where nothing is shown.

        It is the name itself, if that has no records and there are names below it.
        """
        gap = self._gap(name)
        if gap is None:
            return self._encloser_by_hash(name)
        owner, record = gap
        if record.next.is_subdomain(name):
            return name
        return max(_common(name, owner), _common(name, record.next), key=len)

    def _gap(self, name: Name) -> tuple[Name, NSEC] | None:
        """The NSEC record whose owner and next name have this one between them."""
        for owner, record in self.plain:
            between = owner < name and (name < record.next or record.next == self.zone)
            # what a zone says of a name that it gave away does not go for the names below
            if between and not (name.is_subdomain(owner) and _is_cut(_bitmap(record))):
                return owner, record
        return None

    def _encloser_by_hash(self, name: Name) -> Name | None:
        below = name
        while below != self.zone:
            above = below.parent()
            types = self._types(above)
            if types is not None:
                return above if self._covers(below) and not _is_cut(types) else None
            below = above
        return None


def _covers_hash(owner: Name, record: NSEC3, name: Name) -> bool:
    wanted, start = _hash(name, record), _hash_of(owner)
    # between names of an opt-out span there may be zones that are not signed
    if wanted is None or record.flags & _OPT_OUT:
        return False
    end = b32hexencode(record.next).decode()
    return start < wanted < end or (end <= start and (wanted > start or wanted < end))


def _hash(name: Name, record: NSEC3) -> str | None:
    if record.iterations > _MOST_ITERATIONS or record.algorithm != _SHA1:
        return None
    return dnssec.nsec3_hash(name, record.salt, record.iterations, record.algorithm)


def _lacks(types: frozenset[int], kind: int) -> bool:
    """Whether there is neither such a record nor an alias, told by the zone that the name is in."""
    return kind not in types and rdatatype.CNAME not in types and not _is_cut(types, aliases=False)


def _is_cut(types: frozenset[int], *, aliases: bool = True) -> bool:
    """Whether another zone begins at a name with these types, or (DNAME) all names below are aliases."""
    delegated = rdatatype.NS in types and rdatatype.SOA not in types
    return delegated or (aliases and rdatatype.DNAME in types)


def _bitmap(record: NSEC | NSEC3) -> frozenset[int]:
    """RFC 4034 4.1.2."""
    return frozenset(
        window * 256 + place * 8 + bit
        for window, octets in record.windows
        for place, octet in enumerate(octets)
        for bit in range(8)
        if octet & (0x80 >> bit)
    )


def _common(one: Name, other: Name) -> Name:
    """The longest name that both are below."""
    relation, _, shared = one.fullcompare(other)
    return one if relation == NameRelation.SUPERDOMAIN else Name(one.labels[len(one) - shared :])


def _hash_of(owner: Name) -> str:
    return owner.labels[0].decode("ascii", "replace").upper()
