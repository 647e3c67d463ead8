"""Parse the answers of name servers. Only records that were requested are used. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dns import flags, rcode, rdataclass, rdatatype
from dns.name import root
from dns.rdtypes.ANY.CNAME import CNAME
from dns.rdtypes.ANY.TXT import TXT

from onym.net.messages import SRV, Records

if TYPE_CHECKING:
    from dns.message import Message
    from dns.name import Name
    from dns.rdata import Rdata
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
