"""Records of DNS: real servers that sign and validate, and forwarders that lie, on both transports' ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import dns.dnssec
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.resolver
import dns.rrset
import pytest
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from hypothesis import given
from hypothesis import strategies as st

from dns_support import LOOPBACK, ZONES, Forwarder, Lie, NameServers, knot, shared_name_servers
from onym.errors import MissingExtraError, UsageError
from onym.net._dnssec import parse_anchors
from onym.net.messages import SRV, Ask, RecordKind, Records
from onym.net.records import RecordResolver

Message = dns.message.Message

SERVICE = "_aiip._tcp.bank.test"
POINTER = "_aiip.bank.test"
FOUND = (SRV(0, 0, 8443, "aiip.bank.test"),)
TEXT = ("endpoint=ai://bank.test/service/payments",)


@pytest.fixture(scope="session")
def servers() -> NameServers:
    return shared_name_servers()


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def resolver(port: int, **options: Any) -> RecordResolver:
    return RecordResolver([LOOPBACK], port, **options)


def ask(
    how: str, records: RecordResolver, name: str, kind: RecordKind, timeout: float | None = None
) -> Records:
    question = Ask(name, kind, timeout)
    return records.ask(question) if how == "sync" else asyncio.run(records.aask(question))


def lying(lie: Lie, upstream: int | None = None) -> Forwarder:
    return Forwarder(upstream, lie)


def replying(change: Callable[[Message], object], **options: Any) -> Lie:
    """The upstream's answer, changed; or an empty one of our own."""

    def lie(query: Message, real: Message | None) -> Message:
        answer = real or dns.message.make_response(query, recursion_available=True)
        change(answer)
        return answer

    return lie


def put(answer: Message, *texts: str) -> None:
    """Other records in place of those of the answer."""
    answer.answer[:] = [dns.rrset.from_text(*text.split(" ", 4)) for text in texts]


# what a validating resolver on this machine says


@pytest.mark.requirement("ai-discovery-d")
def test_the_signed_zone_is_validated_by_a_resolver_on_this_machine(kind: str, servers: NameServers) -> None:
    records = resolver(servers.validating)
    assert ask(kind, records, SERVICE, "SRV") == Records(status="found", values=FOUND, validated=True)
    assert ask(kind, records, POINTER + ".", "TXT") == Records(status="found", values=TEXT, validated=True)
    alias = ask(kind, records, "alias.bank.test", "CNAME")
    assert alias == Records(status="found", values=("aiip.bank.test",), validated=True)


def test_the_root_as_target_is_the_empty_name(kind: str, servers: NameServers) -> None:
    found = ask(kind, resolver(servers.validating), "_aiip._tcp.no.bank.test", "SRV")
    assert found.values == (SRV(0, 0, 0, ""),)


def test_an_unsigned_zone_is_found_and_not_validated(kind: str, servers: NameServers) -> None:
    found = ask(kind, resolver(servers.validating), "_aiip._tcp.plain.test", "SRV")
    assert (found.status, found.validated) == ("found", False)


def test_an_alias_out_of_a_signed_zone_is_not_validated(kind: str, servers: NameServers) -> None:
    found = ask(kind, resolver(servers.validating), "_aiip.out.bank.test", "TXT")
    assert found == Records(status="found", values=("endpoint=ai://plain.test/service",))


@pytest.mark.parametrize(
    ("name", "detail"),
    [("nope.bank.test", "the name does not exist"), ("aiip.bank.test", "the name has no SRV record")],
)
def test_an_absence_that_is_proven_is_validated(
    kind: str, servers: NameServers, name: str, detail: str
) -> None:
    absent = ask(kind, resolver(servers.validating), name, "SRV")
    assert absent == Records(status="none", validated=True, detail=detail)


def test_what_is_too_long_for_a_datagram_comes_over_tcp(kind: str, servers: NameServers) -> None:
    found = ask(kind, resolver(servers.validating), "big.bank.test", "TXT")
    assert found.values == ("x" * 3000,)


@pytest.mark.parametrize(("name", "what"), [(SERVICE, "SRV"), (POINTER, "TXT"), ("nope.bank.test", "TXT")])
def test_servfail_of_a_validating_resolver_is_bogus_and_no_absence(
    kind: str, servers: NameServers, name: str, what: RecordKind
) -> None:
    found = ask(kind, resolver(servers.misled), name, what)
    assert (found.status, found.values, found.validated) == ("bogus", (), False)


# whose AD bit counts


@pytest.mark.parametrize(
    ("trust", "address", "validated"),
    [
        ("loopback", LOOPBACK, True),
        ("loopback", "::1", True),
        ("loopback", "192.0.2.53", False),
        ("always", "192.0.2.53", True),
        ("never", LOOPBACK, False),
    ],
)
def test_attack_15_an_ad_bit_counts_from_this_machine_alone_or_from_where_the_operator_vouches(
    kind: str, monkeypatch: pytest.MonkeyPatch, trust: Any, address: str, validated: bool
) -> None:
    asked = []

    def answer(query: Message, server: str, *_: Any, **__: Any) -> Message:
        asked.append((server, query))
        reply = dns.message.make_response(query, recursion_available=True)
        reply.flags |= dns.flags.AD
        put(reply, f"{SERVICE}. 60 IN SRV 0 0 443 evil.test.")
        return dns.message.from_wire(reply.to_wire())

    async def aanswer(*args: Any, **options: Any) -> Message:
        return answer(*args, **options)

    monkeypatch.setattr("dns.query.udp", answer)
    monkeypatch.setattr("dns.asyncquery.udp", aanswer)
    found = ask(kind, RecordResolver([address], trust=trust), SERVICE, "SRV")
    assert found == Records(status="found", values=(SRV(0, 0, 443, "evil.test"),), validated=validated)
    [(server, query)] = asked
    assert server == address
    assert query.flags & dns.flags.AD
    assert not query.flags & dns.flags.CD
    assert query.ednsflags & dns.flags.DO
    assert query.payload == 1232


def test_attack_15_a_forged_answer_without_the_ad_bit_is_not_validated(
    kind: str, servers: NameServers
) -> None:
    def forge(answer: Message) -> None:
        put(answer, f"{SERVICE}. 60 IN SRV 0 0 443 evil.test.")
        answer.flags &= ~dns.flags.AD

    with lying(replying(forge), servers.validating) as forwarder:
        found = ask(kind, resolver(forwarder.port), SERVICE, "SRV")
        assert found == Records(status="found", values=(SRV(0, 0, 443, "evil.test"),))


# zones whose keys are pinned


@pytest.fixture
def pinned(servers: NameServers) -> dict[str, Any]:
    return {"anchors": servers.knot.anchors, "trust": "never"}


def test_a_pinned_zone_is_validated_by_its_own_signatures(
    kind: str, servers: NameServers, pinned: dict[str, Any]
) -> None:
    records = resolver(servers.knot.port, **pinned)
    assert ask(kind, records, SERVICE, "SRV") == Records(status="found", values=FOUND, validated=True)
    assert ask(kind, records, "_aiip.alias.bank.test", "TXT").validated
    assert ask(kind, records, "a.wild.bank.test", "TXT").validated
    assert ask(kind, records, "known.wild.bank.test", "TXT") == Records(
        status="none", validated=True, detail="the name has no TXT record"
    )
    for absent in ("nope.bank.test", "empty.bank.test", "b.wild.bank.test"):
        assert (ask(kind, records, absent, "SRV").status, ask(kind, records, absent, "SRV").validated) == (
            "none",
            True,
        )


def test_a_ds_record_pins_as_well(kind: str, servers: NameServers) -> None:
    key = dns.rdata.from_text("IN", "DNSKEY", servers.knot.keys["bank.test"])
    assert isinstance(key, DNSKEY)
    line = f"DS {dns.dnssec.make_ds(dns.name.from_text('bank.test'), key, 'SHA256')}"
    records = resolver(servers.knot.port, anchors={"bank.test": [line]})
    assert ask(kind, records, SERVICE, "SRV").validated


def test_the_nearest_pinned_zone_judges_and_others_do_not(kind: str, servers: NameServers) -> None:
    wrong = "DNSKEY 257 3 15 " + "A" * 43 + "="
    anchors = {"test": [wrong], **servers.knot.anchors}
    records = resolver(servers.knot.port, anchors=anchors)
    assert ask(kind, records, SERVICE, "SRV").validated
    assert ask(kind, records, "_aiip.plain.test", "TXT").status == "failed"


def test_a_pinned_zone_does_not_vouch_for_where_its_aliases_lead(
    kind: str, servers: NameServers, pinned: dict[str, Any]
) -> None:
    found = ask(kind, resolver(servers.validating, **pinned), "_aiip.out.bank.test", "TXT")
    assert found == Records(status="found", values=("endpoint=ai://plain.test/service",))


def test_attack_15_a_way_out_of_a_pinned_zone_and_back_is_not_its_word(
    kind: str, servers: NameServers, pinned: dict[str, Any]
) -> None:
    def back(query: Message, real: Message | None) -> Message:
        """The zone's alias out, a forged one back, and what the zone does say of another name."""
        assert real is not None
        if query.question[0].rdtype == dns.rdatatype.TXT:
            forged = dns.rrset.from_text("_aiip.plain.test.", 60, "IN", "CNAME", f"{POINTER}.")
            other = dns.message.from_wire(_said(servers.knot.port, POINTER, "TXT"))
            own = [rrset for rrset in real.answer if rrset.name != forged.name]
            real.answer[:] = [*own, forged, *other.answer]
        return real

    with lying(back, servers.validating) as forwarder:
        found = ask(kind, resolver(forwarder.port, **pinned), "_aiip.out.bank.test", "TXT")
        assert found == Records(status="found", values=TEXT, validated=False)


def test_zones_with_hashed_names_prove_absences_too(kind: str) -> None:
    with knot({"bank.test": ZONES["bank.test"]}, nsec3=True) as server:
        records = resolver(server.port, anchors=server.anchors)
        for absent in ("nope.bank.test", "aiip.bank.test", "b.wild.bank.test", "empty.bank.test"):
            found = ask(kind, records, absent, "SRV")
            assert (found.status, found.validated) == ("none", True), absent
        assert ask(kind, records, "a.wild.bank.test", "TXT").validated


def forged(answer: Message) -> None:
    for rrset in answer.answer:
        if rrset.rdtype == dns.rdatatype.SRV:
            answer.answer[answer.answer.index(rrset)] = dns.rrset.from_text(
                rrset.name, rrset.ttl, "IN", "SRV", "0 0 443 evil.test."
            )


def unsigned(answer: Message) -> None:
    answer.answer[:] = [rrset for rrset in answer.answer if rrset.rdtype != dns.rdatatype.RRSIG]


def absent(answer: Message) -> None:
    if answer.question[0].rdtype == dns.rdatatype.SRV:
        answer.answer.clear()
        answer.set_rcode(dns.rcode.NXDOMAIN)


def signed_by_another(answer: Message) -> None:
    for rrset in answer.answer:
        if rrset.rdtype == dns.rdatatype.RRSIG:
            for record in list(rrset):
                rrset.remove(record)
                rrset.add(record.replace(signer=dns.name.from_text("evil.test")), rrset.ttl)


def too_many_signatures(answer: Message) -> None:
    for rrset in answer.answer:
        if rrset.rdtype == dns.rdatatype.RRSIG:
            first = rrset[0]
            for number in range(8):
                rrset.add(first.replace(key_tag=number), rrset.ttl)


def without_keys(answer: Message) -> None:
    if answer.question[0].rdtype == dns.rdatatype.DNSKEY:
        answer.answer.clear()


def too_many_keys(answer: Message) -> None:
    for rrset in answer.answer:
        if rrset.rdtype == dns.rdatatype.DNSKEY:
            for number in range(16):
                rrset.add(rrset[0].replace(key=bytes([number]) * 32), rrset.ttl)


def revoked(answer: Message) -> None:
    for rrset in answer.answer:
        if rrset.rdtype == dns.rdatatype.DNSKEY:
            for record in list(rrset):
                rrset.remove(record)
                rrset.add(record.replace(flags=record.flags | 0x80), rrset.ttl)


@pytest.mark.parametrize(
    "lie",
    [forged, unsigned, absent, signed_by_another, too_many_signatures, without_keys, too_many_keys, revoked],
)
def test_attack_15_a_lie_about_a_pinned_zone_is_bogus_whoever_brings_it(
    kind: str, servers: NameServers, pinned: dict[str, Any], lie: Callable[[Message], None]
) -> None:
    def with_ad(answer: Message) -> None:
        lie(answer)
        answer.flags |= dns.flags.AD

    with lying(replying(with_ad), servers.knot.port) as forwarder:
        for trust in ("never", "always"):
            records = resolver(forwarder.port, **{**pinned, "trust": trust})
            found = ask(kind, records, SERVICE, "SRV")
            assert (found.status, found.validated) == ("bogus", False)


def test_a_record_of_a_wildcard_does_not_stand_for_a_name_that_exists(
    kind: str, servers: NameServers, pinned: dict[str, Any]
) -> None:
    def replay(query: Message, real: Message | None) -> Message:
        """What was said of one name, said of another that exists."""
        assert real is not None
        question = query.question[0]
        if question.rdtype != dns.rdatatype.TXT:
            return real
        other = dns.message.make_query("a.wild.bank.test", "TXT", want_dnssec=True)
        said = dns.query.tcp(other, LOOPBACK, 5, servers.knot.port)
        real.answer[:] = [rrset.copy() for rrset in said.answer]
        for rrset in real.answer:
            rrset.name = question.name
        real.authority[:] = said.authority
        return real

    with lying(replay, servers.knot.port) as forwarder:
        records = resolver(forwarder.port, **pinned)
        assert ask(kind, records, "known.wild.bank.test", "TXT").status == "bogus"


@pytest.mark.parametrize("failing", ["SRV", "DNSKEY"])
def test_a_refusal_about_a_pinned_zone_is_a_failure(
    kind: str, servers: NameServers, pinned: dict[str, Any], failing: str
) -> None:
    def refuse(answer: Message) -> None:
        if answer.question[0].rdtype == dns.rdatatype.from_text(failing):
            answer.set_rcode(dns.rcode.REFUSED)

    with lying(replying(refuse), servers.knot.port) as forwarder:
        assert ask(kind, resolver(forwarder.port, **pinned), SERVICE, "SRV").status == "failed"


def test_aliases_in_circles_are_a_failure_in_a_pinned_zone_too(
    kind: str, servers: NameServers, pinned: dict[str, Any]
) -> None:
    def circle(answer: Message) -> None:
        if answer.question[0].rdtype == dns.rdatatype.SRV:
            put(answer, f"{SERVICE}. 60 IN CNAME {SERVICE}.")

    with lying(replying(circle), servers.knot.port) as forwarder:
        assert ask(kind, resolver(forwarder.port, **pinned), SERVICE, "SRV").status == "failed"


@given(data=st.data())
def test_attack_15_no_octets_changed_on_the_way_make_another_answer_of_a_pinned_zone(
    data: st.DataObject,
) -> None:
    servers = shared_name_servers()
    name, kind = data.draw(
        st.sampled_from(
            [
                (SERVICE, "SRV"),
                ("a.wild.bank.test", "TXT"),
                ("nope.bank.test", "SRV"),
                ("_aiip.alias.bank.test", "TXT"),
            ]
        )
    )
    [zone] = parse_anchors(servers.knot.anchors)
    asked = dns.name.from_text(name)
    wires = _said(servers.knot.port, name, kind), _said(servers.knot.port, "bank.test", "DNSKEY")
    truth = zone.validate_answer(*map(dns.message.from_wire, wires), asked, kind)
    assert truth.validated
    changed = [bytearray(wire) for wire in wires]
    for wire in data.draw(st.lists(st.sampled_from(changed), min_size=1, max_size=4)):
        wire[data.draw(st.integers(2, len(wire) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = zone.validate_answer(*(dns.message.from_wire(bytes(wire)) for wire in changed), asked, kind)
    except (dns.exception.DNSException, ValueError):
        # what the resolver takes for a failure
        return
    if found.validated:
        assert (found.status, found.values) == (truth.status, truth.values)


@cache
def _said(port: int, name: str, kind: str) -> bytes:
    query = dns.message.make_query(name, kind, want_dnssec=True)
    return dns.query.tcp(query, LOOPBACK, 60, port).to_wire()


# answers that lie, fail, or are of something else


def test_an_answer_for_another_name_class_or_kind_is_not_taken(kind: str) -> None:
    def other(answer: Message) -> None:
        put(
            answer,
            "_aiip._tcp.evil.test. 60 IN SRV 0 0 443 evil.test.",
            f'{SERVICE}. 60 CH TXT "evil"',
            f'{SERVICE}. 60 IN TXT "evil"',
        )

    with lying(replying(other)) as forwarder:
        found = ask(kind, resolver(forwarder.port), SERVICE, "SRV")
        assert (found.status, found.values) == ("none", ())


@pytest.mark.parametrize("change", [{"id": 1}, {"question": "_aiip._tcp.evil.test"}])
def test_what_answers_another_question_is_waited_past(kind: str, change: dict[str, Any]) -> None:
    def lie(query: Message, real: Message | None) -> Message:
        answer = dns.message.make_response(query, recursion_available=True)
        put(answer, f"{SERVICE}. 60 IN SRV 0 0 443 evil.test.")
        answer.id ^= change.get("id", 0)
        if "question" in change:
            answer.question[0].name = dns.name.from_text(change["question"])
        return answer

    with lying(lie) as forwarder:
        found = ask(kind, resolver(forwarder.port), SERVICE, "SRV", 0.1)
        assert (found.status, found.values) == ("failed", ())


def test_a_server_that_is_silent_is_a_failure_in_time(kind: str) -> None:
    with lying(lambda query, real: None) as forwarder:
        found = ask(kind, resolver(forwarder.port), SERVICE, "SRV", 0.1)
        assert (found.status, found.validated) == ("failed", False)


def test_no_time_at_all_is_a_failure(kind: str) -> None:
    found = ask(kind, resolver(1), SERVICE, "SRV", 0.0)
    assert found == Records(status="failed", detail="no name server answered in time")


def test_the_next_server_is_asked_where_one_fails(kind: str, servers: NameServers) -> None:
    with lying(replying(lambda answer: answer.set_rcode(dns.rcode.REFUSED))) as refusing:
        asked = []

        def half(query: Message, real: Message | None) -> Message | None:
            asked.append(query)
            return real if len(asked) > 1 else dns.message.make_response(query)

        assert ask(kind, resolver(refusing.port), SERVICE, "SRV").detail.endswith("(REFUSED)")
        assert len(refusing.asked) == 2
    with lying(half, servers.validating) as forwarder:
        assert ask(kind, resolver(forwarder.port), SERVICE, "SRV").status == "found"


def test_a_server_that_only_points_at_others_says_nothing_of_absence(kind: str) -> None:
    with lying(lambda query, real: dns.message.make_response(query)) as forwarder:
        found = ask(kind, resolver(forwarder.port), SERVICE, "SRV")
        assert found == Records(status="failed", detail=found.detail)


def test_servfail_that_stays_unchecked_is_broken_and_not_bogus(kind: str) -> None:
    with lying(replying(lambda answer: answer.set_rcode(dns.rcode.SERVFAIL))) as forwarder:
        found = ask(kind, resolver(forwarder.port), SERVICE, "SRV")
        assert found == Records(status="failed", detail="the name server has no answer (SERVFAIL)")


def test_servfail_that_has_passed_when_asked_again_is_no_lie(kind: str, servers: NameServers) -> None:
    asked = []

    def tired(query: Message, real: Message | None) -> Message | None:
        asked.append(bool(query.flags & dns.flags.CD))
        if len(asked) > 1:
            return real
        answer = dns.message.make_response(query)
        answer.set_rcode(dns.rcode.SERVFAIL)
        return answer

    with lying(tired, servers.validating) as forwarder:
        found = ask(kind, resolver(forwarder.port), SERVICE, "SRV")
    assert found == Records(status="found", values=FOUND, validated=True)
    assert asked == [False, True, False]  # what was not checked is never what counts


def test_an_answer_that_says_yes_and_no_is_a_failure(kind: str) -> None:
    def both(answer: Message) -> None:
        put(answer, f"{SERVICE}. 60 IN SRV 0 0 443 evil.test.")
        answer.set_rcode(dns.rcode.NXDOMAIN)

    with lying(replying(both)) as forwarder:
        assert ask(kind, resolver(forwarder.port), SERVICE, "SRV").detail == "the answer contradicts itself"


@pytest.mark.parametrize(
    ("texts", "detail"),
    [
        ([f"{SERVICE}. 60 IN CNAME {SERVICE}."], "the name is an alias of too many others"),
        (
            [
                f"{SERVICE}. 60 IN CNAME a0.test.",
                *(f"a{n}.test. 60 IN CNAME a{n + 1}.test." for n in range(9)),
            ],
            "the name is an alias of too many others",
        ),
    ],
)
def test_aliases_are_followed_only_so_far(kind: str, texts: list[str], detail: str) -> None:
    with lying(replying(lambda answer: put(answer, *texts))) as forwarder:
        assert ask(kind, resolver(forwarder.port), SERVICE, "SRV") == Records(status="failed", detail=detail)


def test_too_many_records_are_a_failure(kind: str) -> None:
    def many(answer: Message) -> None:
        rows = [f"0 0 {port} a.test." for port in range(1, 34)]
        answer.answer.append(dns.rrset.from_text(answer.question[0].name, 60, "IN", "SRV", *rows))

    with lying(replying(many)) as forwarder:
        assert ask(kind, resolver(forwarder.port), SERVICE, "SRV").detail == "the name has too many records"


def test_too_long_a_text_is_a_failure(kind: str) -> None:
    def long(answer: Message) -> None:
        text = " ".join(["y" * 250] * 17)
        answer.answer.append(dns.rrset.from_text(answer.question[0].name, 60, "IN", "TXT", text))

    with lying(replying(long)) as forwarder:
        assert ask(kind, resolver(forwarder.port), POINTER, "TXT").detail == "a TXT record is too long"


def test_answers_that_flip_come_in_an_order_of_their_own(kind: str) -> None:
    flips = []

    def flip(answer: Message) -> None:
        flips.append(answer)
        rows = ['"b"', '"a"'] if len(flips) % 2 else ['"a"', '"b"']
        answer.answer.append(dns.rrset.from_text(answer.question[0].name, 60, "IN", "TXT", *rows))

    with lying(replying(flip)) as forwarder:
        records = resolver(forwarder.port)
        assert [ask(kind, records, POINTER, "TXT").values for _ in range(4)] == [("a", "b")] * 4


def test_octets_that_are_no_text_are_replaced(kind: str) -> None:
    with lying(replying(lambda answer: put(answer, f'{POINTER}. 60 IN TXT "a\\255"'))) as forwarder:
        assert ask(kind, resolver(forwarder.port), POINTER, "TXT").values == ("a\N{REPLACEMENT CHARACTER}",)


def test_octets_that_are_no_answer_are_a_failure(kind: str) -> None:
    with lying(lambda query, real: b"\0" * 12) as forwarder:
        assert ask(kind, resolver(forwarder.port), SERVICE, "SRV", 0.1).status == "failed"


def test_a_stream_that_ends_early_is_a_failure(kind: str) -> None:
    def cut(query: Message, real: Message | None) -> Message | None:
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.TC
        return None if forwarder.asked.count(forwarder.asked[0]) % 2 == 0 else answer

    with lying(cut) as forwarder:
        found = ask(kind, resolver(forwarder.port), SERVICE, "SRV", 1.0)
        assert (found.status, "EOFError" in found.detail) == ("failed", True)


# names and settings


@pytest.mark.parametrize("name", ["..", "a..test", "b\u00e4nk.test", "x" * 64 + ".test"])
def test_a_name_that_dns_cannot_have_is_a_failure(kind: str, name: str) -> None:
    found = ask(kind, resolver(1), name, "TXT")
    assert found.status == "failed"
    assert "queried" in found.detail


def test_without_name_servers_those_of_this_machine_are_asked(
    kind: str, servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def configure(self: Any, filename: str) -> None:
        self.nameservers = [LOOPBACK]
        self.port = servers.validating

    monkeypatch.setattr("dns.resolver.BaseResolver.read_resolv_conf", configure)
    monkeypatch.setattr("dns.resolver.BaseResolver.read_registry", configure, raising=False)
    assert ask(kind, RecordResolver(), SERVICE, "SRV").validated


def test_a_machine_without_name_servers_is_a_failure(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def configure(self: Any, filename: str) -> None:
        raise dns.resolver.NoResolverConfiguration

    monkeypatch.setattr("dns.resolver.BaseResolver.read_resolv_conf", configure)
    assert ask(kind, RecordResolver(), SERVICE, "SRV").status == "failed"


@pytest.mark.parametrize(
    "options",
    [
        {"nameservers": ["ns.example"]},
        {"trust": "sometimes"},
        {"anchors": {"bank.test": []}},
        {"anchors": {"bank.test": "DS 1 15 2 00"}},
        {"anchors": {"bank.test": ["NS evil.test."]}},
        {"anchors": {"bank.test": ["nonsense"]}},
        {"anchors": {"bank.test": ["DS 1 15 1 " + "00" * 20]}},
        {"anchors": {"bank.test": ["DNSKEY 257 3 15"]}},
        {"anchors": {"a..test": ["DNSKEY 257 3 15 AAAA"]}},
    ],
)
def test_settings_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        RecordResolver(**options)
    assert caught.value.code == "usage.dns"


def test_pinned_zones_need_the_library_of_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("dns.dnssec.InvalidSignature")
    with pytest.raises(MissingExtraError) as caught:
        RecordResolver(anchors={"bank.test": ["DNSKEY 257 3 15 AAAA"]})
    assert caught.value.command == "pip install 'onym[ai]'"
