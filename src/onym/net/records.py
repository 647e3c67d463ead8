"""DNS records other than addresses, and their validation by DNSSEC (RFC 2782, 4033 to 4035).

Records are "validated" by a validating resolver on this computer (its AD bit, which others could forge on the
way from another host), or by Onym itself for zones whose keys are pinned.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from onym.errors import UsageError
from onym.net.connections import drive_coroutine
from onym.net.hosts import LOOPBACK, classify_address, parse_address
from onym.net.messages import Ask, Records

if TYPE_CHECKING:
    from dns.message import Message
    from dns.name import Name

    from onym.net._dnssec import PinnedZone

__all__ = ["RecordResolver", "Trust"]

Trust: TypeAlias = Literal["loopback", "never", "always"]

#: seconds for a whole question, and for one query to one server
_QUESTION_TIMEOUT: Final = 5.0
_TRY_TIMEOUT: Final = 2.0
#: queries to every server, because datagrams get lost
_ROUNDS: Final = 2
#: bytes of a datagram that is not fragmented (DNS flag day 2020)
_DATAGRAM: Final = 1232


class _ExchangeFunction(Protocol):
    """Sends a query and returns the answer. Raises the errors of dnspython and sockets."""

    async def __call__(self, query: Message, server: str, port: int, until: float) -> Message: ...


class RecordResolver:
    """Queries name servers for SRV, TXT and CNAME records, for blocking callers and for coroutines.

    `nameservers` are IP addresses (default: the system's), `port` is their port. `trust` says whose AD bit is
    believed: of servers on this computer ("loopback"), of none ("never"), or of all ("always", if the
    operator vouches for the servers and the network). `anchors` pins zones: their names, with their keys as
    lines of a zone file without owner and class ("DS 30909 15 2 E2D3...", "DNSKEY 257 3 15 ..."). These keys
    must sign all records of the zone, and their absence; delegated zones are not followed. Raises UsageError,
    and MissingExtraError for anchors without `dnspython[dnssec]`.
    """

    def __init__(
        self,
        nameservers: Sequence[str] | None = None,
        port: int = 53,
        *,
        trust: Trust = "loopback",
        anchors: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if trust not in ("loopback", "never", "always"):
            raise UsageError('trust must be "loopback", "never" or "always"', code="usage.dns")
        if nameservers is not None and not all(map(parse_address, nameservers)):
            raise UsageError("nameservers must be IP addresses", code="usage.dns")
        self._nameservers = None if nameservers is None else tuple(nameservers)
        self._port = port
        self._trust = trust
        self._zones: tuple[PinnedZone, ...] = ()
        if anchors:
            # late: the library for signatures takes 55 ms to load
            from onym.net._dnssec import parse_anchors

            self._zones = parse_anchors(anchors)

    def ask(self, ask: Ask) -> Records:
        """Query and wait. A failure is a status of the answer."""
        return drive_coroutine(self._answer_question(ask, _exchange_query))

    async def aask(self, ask: Ask) -> Records:
        """Query as a coroutine."""
        return await self._answer_question(ask, _aexchange_query)

    async def _answer_question(self, ask: Ask, exchange: _ExchangeFunction) -> Records:
        from dns.exception import DNSException

        try:
            name = _parse_name(ask.name)
            servers, port = self._list_servers()
        except (DNSException, ValueError, OSError) as error:
            return Records(status="failed", detail=f"DNS cannot be queried: {type(error).__name__}")
        until = time.monotonic() + (_QUESTION_TIMEOUT if ask.timeout is None else ask.timeout)
        records = Records(status="failed", detail="no name server answered in time")
        for server in servers * _ROUNDS:
            now = time.monotonic()
            if now >= until:
                break
            question = _DNSQuestion(name, ask.kind, server, port, min(until, now + _TRY_TIMEOUT), exchange)
            try:
                records = await self._ask_server(question)
            except (DNSException, OSError, EOFError, ValueError) as error:
                records = Records(
                    status="failed", detail=f"the answer cannot be used: {type(error).__name__}"
                )
            if records.status != "failed":
                break
        return records

    async def _ask_server(self, question: _DNSQuestion) -> Records:
        from dns import flags, rcode

        from onym.net._dnssec import parse_answer

        zone = self._find_zone(question.name)
        if zone is not None:
            # with checking disabled (CD), the server returns records that it cannot validate
            answer = await question.send_query(question.kind, checking=False)
            keys = await question.send_query("DNSKEY", checking=False, name=zone.name)
            return zone.validate_answer(answer, keys, question.name, question.kind)
        answer = await question.send_query(question.kind)
        if answer.rcode() == rcode.SERVFAIL:
            if not await _has_unchecked_answer(question):
                return Records(status="failed", detail="the name server has no answer (SERVFAIL)")
            # a second failure is not a busy server, but an invalid signature
            answer = await question.send_query(question.kind)
            if answer.rcode() == rcode.SERVFAIL:
                return Records(status="bogus", detail="DNSSEC shows that the answer is false")
        validated = bool(answer.flags & flags.AD) and self._is_trusted_server(question.server)
        return parse_answer(answer, question.name, question.kind, validated=validated)

    def _is_trusted_server(self, server: str) -> bool:
        """Report whether this server's AD bit is believed."""
        if self._trust != "loopback":
            return self._trust == "always"
        address = parse_address(server)
        return address is not None and classify_address(address) == LOOPBACK

    def _find_zone(self, name: Name) -> PinnedZone | None:
        """Return the pinned zone that the name is in, the closest one."""
        above = [zone for zone in self._zones if name.is_subdomain(zone.name)]
        return max(above, key=lambda zone: len(zone.name), default=None)

    def _list_servers(self) -> tuple[tuple[str, ...], int]:
        if self._nameservers is not None:
            return self._nameservers, self._port
        from dns.resolver import Resolver

        system = Resolver()
        return tuple(str(server) for server in system.nameservers), system.port


class _DNSQuestion(NamedTuple):
    """A question to one server. `until` is its deadline."""

    name: Name
    kind: str
    server: str
    port: int
    until: float
    exchange: _ExchangeFunction

    async def send_query(self, kind: str, *, checking: bool = True, name: Name | None = None) -> Message:
        """Query records of this type. Without `checking`, the server does not validate them (CD)."""
        from dns import flags, message

        query = message.make_query(name or self.name, kind, want_dnssec=True, payload=_DATAGRAM)
        query.flags |= flags.AD if checking else flags.CD
        return await self.exchange(query, self.server, self.port, self.until)


async def _has_unchecked_answer(question: _DNSQuestion) -> bool:
    """Report whether the server has an answer without validation. Otherwise its failure has another cause."""
    from dns import rcode

    answer = await question.send_query(question.kind, checking=False)
    return answer.rcode() in (rcode.NOERROR, rcode.NXDOMAIN)


async def _exchange_query(query: Message, server: str, port: int, until: float) -> Message:
    """Send a query and block. Datagrams that do not answer it are ignored."""
    from dns import query as net
    from dns.message import Truncated

    try:
        return net.udp(query, server, _compute_remaining(until), port, **_UDP)
    except Truncated:
        return net.tcp(query, server, _compute_remaining(until), port)


async def _aexchange_query(query: Message, server: str, port: int, until: float) -> Message:
    from dns import asyncquery as net
    from dns.message import Truncated

    try:
        return await net.udp(query, server, _compute_remaining(until), port, **_UDP)
    except Truncated:
        return await net.tcp(query, server, _compute_remaining(until), port)


_UDP: Final[dict[str, Any]] = {"ignore_unexpected": True, "ignore_errors": True, "raise_on_truncation": True}


def _compute_remaining(until: float) -> float:
    return max(0.0, until - time.monotonic())


def _parse_name(text: str) -> Name:
    from dns.name import from_text

    if not text.isascii():
        raise ValueError
    return from_text(text)
