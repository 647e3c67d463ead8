"""Discovery over real DNS: Knot signs, unbound validates, and a forwarder between the two that lies.

Against an anchor's document that is given, whether DNS confirms it, contradicts it, or leads elsewhere; then
the connection, made where DNS says.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from dns_support import LOOPBACK, Forwarder, Lie, give_dns_time, knot, unbound
from dns_support import Server as Zones
from net_support import OK, Authority, FixedResolver, Server, answering, post
from onym.ai import client_flows
from onym.ai.client_flows import Session
from onym.ai.discovery.evaluation import fetch_srv_targets
from onym.ai.exchange import Caller, RequestAttempt
from onym.ai.records import AnchorDocument, Invocation, Resolution, Source, Verdict
from onym.ai.settings import ResolverSettings
from onym.errors import DiscoveryError, PolicyError
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.messages import Flow, Origin, Send
from onym.net.policy import Policy
from onym.net.records import RecordResolver
from onym.net.transport import AsyncTransport, Transport, arun_flow, run_flow
from onym.uri.ai import AIURI

T = TypeVar("T")
Found = tuple[Origin | None, tuple[Source, ...]]

_ZONES = {
    "bank.test": """
_aiip._tcp  IN SRV 0 0 {port} aiip
_aiip       IN TXT "endpoint=ai://bank.test/serv" "ice/payments"
aiip        IN A 127.0.0.1
""",
    "liar.test": '_aiip IN TXT "endpoint=ai://liar.test/other"\n',
    "gone.test": "_aiip._tcp IN SRV 0 0 0 .\n",
    "inside.test": "_aiip._tcp IN SRV 0 0 22 localhost.\n",
    "alias.test": "_aiip._tcp IN SRV 0 0 {port} aiip\naiip IN CNAME aiip.bank.test.\n",
    "silent.test": "",
    "several.test": """
_aiip._tcp  IN SRV 10 0 {port} second
_aiip._tcp  IN SRV 5 0 {port} alias
_aiip._tcp  IN SRV 0 0 {closed} first
first       IN A 127.0.0.1
second      IN A 127.0.0.1
alias       IN CNAME second
""",
}


@dataclass(frozen=True)
class World:
    """The authority's server, the zones that say where it is, and who validates them."""

    server: Server
    closed: int
    tls: TLSConfig
    knot: Zones
    validating: int
    misled: int


@pytest.fixture(autouse=True)
def _time_for_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    give_dns_time(monkeypatch)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    authority = Authority()
    tls = replace(authority.trust(tmp_path_factory.mktemp("authority")), minimum="1.3")
    with ExitStack() as stack:
        server = stack.enter_context(Server(answering(OK), tls=authority.server("bank.test", "several.test")))
        # a port that is taken, and at which nobody listens
        idle = stack.enter_context(socket.socket())
        idle.bind((LOOPBACK, 0))
        closed = idle.getsockname()[1]
        zones = {name: text.format(port=server.port, closed=closed) for name, text in _ZONES.items()}
        source = stack.enter_context(knot(zones))
        validating = stack.enter_context(unbound(source, zones))
        misled = stack.enter_context(unbound(source, zones, corrupt=True))
        yield World(server, closed, tls, source, validating, misled)


@pytest.fixture(params=["sync", "async"])
def drive(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs a flow over a transport with these options."""

    def drive(flow: Flow[T], policy: Policy, **options: Any) -> T:
        if request.param == "sync":
            with Transport(NetConfig(policy=policy, **options)) as transport:
                return run_flow(flow, transport)

        async def scenario() -> T:
            async with AsyncTransport(NetConfig(policy=policy, **options)) as waiting:
                return await arun_flow(flow, waiting)

        return asyncio.run(scenario())

    return drive


def document(host: str) -> AnchorDocument:
    anchor = f"https://{host}"
    return AnchorDocument(
        anchor=anchor,
        authority=host,
        service=f"{anchor}/.well-known/aiip/v1",
        jwks=f"{anchor}/.well-known/aiip.jwks.json",
        endpoint=f"ai://{host}/service/payments",
    )


def resolver(port: int, **options: Any) -> RecordResolver:
    return RecordResolver([LOOPBACK], port, **options)


def fetch_first_target(
    document: AnchorDocument, settings: ResolverSettings
) -> Flow[tuple[Origin | None, tuple[Source, ...]]]:
    """The first target, None for the authority's own host, and the sources."""
    targets, sources = yield from fetch_srv_targets(document, settings)
    return next(iter(targets), None), sources


def connect_of(drive: Callable[..., Any], host: str, records: RecordResolver) -> Found:
    settings = ResolverSettings(timeout=60)
    # pages are not asked here, nor the anchors of others: no name has an address
    found: Found = drive(
        fetch_first_target(document(host), settings),
        Policy.untrusted(),
        records=records,
        resolver=FixedResolver({}),
    )
    return found


@contextmanager
def behind(world: World, lie: Lie) -> Iterator[int]:
    """A validating unbound whose way to the zones goes through a forwarder that lies."""
    with (
        Forwarder(world.knot.port, lie) as forwarder,
        unbound(Zones(forwarder.port, world.knot.keys), _ZONES) as port,
    ):
        yield port


def forge(query: dns.message.Message, real: dns.message.Message | None) -> dns.message.Message:
    """Another place for the service, and the AD bit as well."""
    assert real is not None
    question = query.question[0]
    if question.rdtype == dns.rdatatype.SRV:
        signatures = [rrset for rrset in real.answer if rrset.rdtype == dns.rdatatype.RRSIG]
        false = dns.rrset.from_text(question.name, 60, "IN", "SRV", "0 0 443 evil.test.")
        real.answer[:] = [false, *signatures]
    real.flags |= dns.flags.AD
    return real


def hide(query: dns.message.Message, real: dns.message.Message | None) -> dns.message.Message:
    """No such record, without a proof."""
    assert real is not None
    if query.question[0].rdtype == dns.rdatatype.SRV:
        real.set_rcode(dns.rcode.NXDOMAIN)
        real.answer.clear()
        real.authority.clear()
    return real


@pytest.mark.requirement("ai-discovery-d", "ai-discovery-f")
def test_the_signed_zone_wins_and_the_connection_goes_where_it_says(
    world: World, drive: Callable[..., Any]
) -> None:
    connect, sources = connect_of(drive, "bank.test", resolver(world.validating))
    assert connect == Origin("https", "aiip.bank.test", world.server.port)
    assert [(source.name, source.verdict, source.rank) for source in sources] == [
        ("dns-srv", Verdict.CONFIRMS, 2),
        ("dns-txt", Verdict.CONFIRMS, 2),
    ]

    def flow() -> Flow[Any]:
        return (yield Send(post(Origin("https", "bank.test", 443)), 20.0, connect=connect))

    policy = Policy.untrusted().replace(ports={443, world.server.port}, allow_networks=("127.0.0.0/8",))
    names = FixedResolver({"aiip.bank.test": [["127.0.0.1"]]})
    world.server.requests.clear()
    world.server.names.clear()
    reply = drive(flow(), policy, resolver=names, tls=world.tls)
    assert (reply.status, reply.info.address, reply.info.tls_version) == (200, "127.0.0.1", "1.3")
    assert world.server.names == ["bank.test"]
    assert world.server.requests[0][1]["host"] == "bank.test"
    assert names.asked == ["aiip.bank.test"]


def test_where_the_first_target_takes_no_connection_the_next_one_is_asked(
    world: World, drive: Callable[..., Any]
) -> None:
    asked = document("several.test")
    ports = {443, world.closed, world.server.port}
    policy = Policy.untrusted().replace(ports=ports, allow_networks=("127.0.0.0/8",))
    names = FixedResolver({name: [["127.0.0.1"]] for name in ("first.several.test", "second.several.test")})
    with_dns = {"records": resolver(world.validating), "resolver": names, "tls": world.tls}

    targets, sources = drive(fetch_srv_targets(asked, ResolverSettings(timeout=60)), policy, **with_dns)
    assert targets == (
        Origin("https", "first.several.test", world.closed),
        Origin("https", "second.several.test", world.server.port),
    )
    assert sources[0].said == (
        f"0 0 {world.closed} first.several.test",
        f"5 0 {world.server.port} alias.several.test",
        f"10 0 {world.server.port} second.several.test",
    )
    assert f"removed: alias.several.test:{world.server.port} (the target is an alias" in sources[0].why

    resolution = Resolution(
        uri=AIURI.parse("ai://several.test/service/payments"),
        authority="several.test",
        document=asked,
        keys=cast("Any", None),  # what comes back is not read here
        connect=targets[0],
        fallbacks=targets[1:],
    )
    question = RequestAttempt(Invocation(uri=resolution.uri, method="GET"), resolution, Caller(), 20.0)
    world.server.names.clear()
    reply = drive(client_flows._send_with_retries(Session(), question, stream=False), policy, **with_dns)
    assert (reply.status, reply.info.tls_version) == (200, "1.3")
    assert world.server.names == ["several.test"]
    assert names.asked == ["first.several.test", "second.several.test"]


def test_the_same_zone_is_believed_by_its_pinned_keys_alone(world: World, drive: Callable[..., Any]) -> None:
    records = resolver(world.knot.port, trust="never", anchors=world.knot.anchors)
    connect, _ = connect_of(drive, "bank.test", records)
    assert connect == Origin("https", "aiip.bank.test", world.server.port)


@pytest.mark.parametrize("lie", [forge, hide])
def test_attack_15_a_forged_answer_loses_before_a_resolver_that_validates(
    world: World, drive: Callable[..., Any], lie: Lie
) -> None:
    with behind(world, lie) as port, pytest.raises(DiscoveryError) as caught:
        connect_of(drive, "bank.test", resolver(port))
    assert caught.value.code == "aiip.discovery-conflict"


@pytest.mark.parametrize("lie", [forge, hide])
def test_attack_15_a_forged_answer_loses_before_pinned_keys(
    world: World, drive: Callable[..., Any], lie: Lie
) -> None:
    with Forwarder(world.knot.port, lie) as forwarder, pytest.raises(DiscoveryError) as caught:
        connect_of(drive, "bank.test", resolver(forwarder.port, anchors=world.knot.anchors))
    assert caught.value.code == "aiip.discovery-conflict"


def test_attack_15_servfail_stops(world: World, drive: Callable[..., Any]) -> None:
    with pytest.raises(DiscoveryError) as caught:
        connect_of(drive, "bank.test", resolver(world.misled))
    assert caught.value.code == "aiip.discovery-conflict"
    assert "DNSSEC" in caught.value.message


def test_attack_15_an_ad_bit_that_does_not_count_leads_nowhere(
    world: World, drive: Callable[..., Any]
) -> None:
    with Forwarder(world.knot.port, forge) as forwarder:
        connect, sources = connect_of(drive, "bank.test", resolver(forwarder.port, trust="never"))
    assert connect is None
    assert all(source.rank == 0 and not source.validated for source in sources)


def test_prov_099_an_unsigned_pointer_is_a_hint_that_the_document_overrules(
    world: World, drive: Callable[..., Any]
) -> None:
    connect, sources = connect_of(drive, "liar.test", resolver(world.knot.port))
    assert connect is None
    assert [(source.name, source.verdict, source.code) for source in sources] == [
        ("dns-srv", Verdict.ABSENT, None),
        ("dns-txt", Verdict.DROPPED, None),
    ]


@pytest.mark.parametrize("host", ["liar.test", "gone.test"])
def test_a_signed_zone_that_contradicts_the_document_stops(
    world: World, drive: Callable[..., Any], host: str
) -> None:
    with pytest.raises(DiscoveryError) as caught:
        connect_of(drive, host, resolver(world.validating))
    assert caught.value.code == "aiip.discovery-conflict"


def test_prov_100_a_place_inside_is_refused_and_nothing_is_connected_to(
    world: World, drive: Callable[..., Any]
) -> None:
    connect, _ = connect_of(drive, "inside.test", resolver(world.validating))
    assert connect == Origin("https", "localhost", 22)

    def flow() -> Flow[Any]:
        return (yield Send(post(Origin("https", "inside.test", 443)), 20.0, connect=connect))

    before = world.server.connections
    names = FixedResolver({})
    for policy in (Policy.untrusted(), Policy.local().replace(ports={443})):
        with pytest.raises(PolicyError):
            drive(flow(), policy, resolver=names)
    assert names.asked == []
    assert world.server.connections == before


def test_a_target_that_is_an_alias_is_not_connected_to(world: World, drive: Callable[..., Any]) -> None:
    connect, sources = connect_of(drive, "alias.test", resolver(world.validating))
    assert (connect, sources[0].verdict) == (None, Verdict.DROPPED)


@pytest.mark.parametrize("pinned", [True, False])
def test_an_absence_with_its_proof_is_an_absence(
    world: World, drive: Callable[..., Any], pinned: bool
) -> None:
    records = resolver(world.knot.port, anchors=world.knot.anchors) if pinned else resolver(world.validating)
    connect, sources = connect_of(drive, "silent.test", records)
    assert connect is None
    assert [(source.verdict, source.validated) for source in sources] == [(Verdict.ABSENT, True)] * 2


def test_dns_that_says_nothing_in_time_leads_nowhere_and_stops_nothing(drive: Callable[..., Any]) -> None:
    settings = ResolverSettings(timeout=0.05)
    with Forwarder(None, lambda query, real: None) as forwarder:
        connect, sources = drive(
            fetch_first_target(document("bank.test"), settings),
            Policy.untrusted(),
            records=resolver(forwarder.port),
        )
    assert connect is None
    assert [(source.verdict, source.code) for source in sources] == [(Verdict.FAILED, None)] * 2


def test_dns_that_flips_between_answers_stops_or_leads_where_the_zone_says(
    world: World, drive: Callable[..., Any]
) -> None:
    turns = []

    def flip(query: dns.message.Message, real: dns.message.Message | None) -> dns.message.Message | None:
        if query.question[0].rdtype == dns.rdatatype.SRV:
            turns.append(query)
        return forge(query, real) if len(turns) % 2 else real

    outcomes = set()
    with Forwarder(world.knot.port, flip) as forwarder:
        for _ in range(4):
            try:
                connect, _ = connect_of(
                    drive, "bank.test", resolver(forwarder.port, anchors=world.knot.anchors)
                )
            except DiscoveryError as error:
                outcomes.add(error.code)
            else:
                outcomes.add(connect.host if connect is not None else None)
    assert outcomes == {"aiip.discovery-conflict", "aiip.bank.test"}
