"""A whole house of ai names, all of it real: what holds when parts of it lie, fail, change or are killed.

Knot signs and unbound validates, authorities speak TLS, gateways stand before them, a registry is led by its
commands; clients are native, plain HTTP ones, or raw sockets.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dns.flags
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from jwcrypto import jwk, jws

from ai_support import LOOPBACK, PATIENCE, Line, serve_authority
from browser_support import chromium
from dns_support import Forwarder, Lie, give_dns_time, knot, unbound
from dns_support import Server as Zones
from e2e.ai_house_support import (
    FACTORY,
    MALFORMED,
    Authority,
    Clock,
    ContextAuthority,
    Door,
    House,
    Lot,
    Registry,
    Stranger,
    bad_certificates,
    begun,
    descriptors,
    ended,
    led_to,
    onym,
    process,
    until,
)
from gateway_support import Answer, World, ask
from model_support import pulled_weights
from onym.ai import Endpoint, ResolverSettings
from onym.ai.endpoint import responses
from onym.ai.records import Namespace
from onym.ai.settings import PinFile
from onym.errors import DiscoveryError, InvocationError, NetError, OnymError, ProvenanceError
from onym.net.policy import Policy
from onym.registry.signed_namespaces import SignedNamespaces
from onym.server import http_server
from onym.server.gateway.settings import Context, Namespaces
from onym.sign.keys import SigningKey
from onym.sign.keystore import KeyStore
from onym.sign.receipts import content_digest
from support import ROOT, free_port

SUM = b'{"a": 1, "b": 2}'


@pytest.fixture(autouse=True)
def _time_for_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    give_dns_time(monkeypatch)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def tools(app: Endpoint) -> None:
    """What an authority offers."""

    @app.resource("/tool/add")
    def add(a: int, b: int) -> int:
        return a + b


def said(answer: Answer) -> tuple[int, str]:
    """An answer's status and the code of its problem."""
    return answer.status, answer.json()["code"] if answer.status >= 400 else ""


# 1. DNS ---------------------------------------------------------------------------------------------------


@dataclass
class Town:
    """An authority on port 443, its service elsewhere as its signed zone says, and who validates that."""

    house: House
    factory: Authority
    anchor: int
    service: int
    knot: Zones
    validating: int
    misled: int
    zones: dict[str, str]
    clock: Clock

    def gateway(self, stack: ExitStack, port: int, **changes: Any) -> World:
        """A gateway that asks the name server at this port."""
        with pytest.MonkeyPatch.context() as patch:
            # a test may not listen on port 443
            patch.setattr("onym.ai.client.AsyncAIClient._transport_class", led_to(self.anchor))
            settings = {"dns": True, "nameservers": (LOOPBACK,), "nameserver_port": port, **changes}
            found = stack.enter_context(self.house.gateway(FACTORY, **settings))
        self.factory.front.seen.clear()
        return found

    def behind(self, stack: ExitStack, lie: Lie) -> int:
        """A validating name server whose way to the zone leads by somebody who lies."""
        forwarder = stack.enter_context(Forwarder(self.knot.port, lie))
        return stack.enter_context(unbound(Zones(forwarder.port, self.knot.keys), self.zones))

    @property
    def invoked_at(self) -> set[int]:
        return self.factory.front.ports("/v1/")


_ZONE = """
_aiip._tcp  IN SRV 0 0 {port} aiip
_aiip       IN TXT "endpoint=ai://factory.test/tool/add"
aiip        IN A 127.0.0.1
"""


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    house = House(tmp_path_factory.mktemp("town"))
    with ExitStack() as stack:
        clock = Clock()
        terms = {"text": FACTORY, "anchor": f"https://{FACTORY}", "extra_ports": 1, "clock": clock}
        factory = stack.enter_context(house.authority(tools, **terms))
        anchor, service = factory.ports
        zones = {FACTORY: _ZONE.format(port=service)}
        source = stack.enter_context(knot(zones))
        validating = stack.enter_context(unbound(source, zones))
        misled = stack.enter_context(unbound(source, zones, corrupt=True))
        yield Town(house, factory, anchor, service, source, validating, misled, zones, clock)


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


def honest(query: dns.message.Message, real: dns.message.Message | None) -> dns.message.Message | None:
    """What the zone says."""
    return real


@pytest.mark.requirement("ai-discovery-d", "ai-gateway-b")
@pytest.mark.xdist_group("ai-house-dns")
def test_a_signed_zone_leads_the_gateway_to_the_service(town: Town) -> None:
    with ExitStack() as stack:
        gateway = town.gateway(stack, town.validating)
        answer = gateway.ask("POST", "/tool/add", SUM)
        assert (answer.status, answer.json()) == (200, 3)
        assert town.invoked_at == {town.service}
        # keys and terms come from the anchor itself, wherever DNS leads
        assert town.factory.front.ports(".well-known/aiip.jwks.json") == {town.anchor}
        page = gateway.ask("GET", "/tool/add", accept="text/html").body
        assert b"dns-srv" in page or b"SRV" in page


@pytest.mark.requirement("ai-gateway-l")
@pytest.mark.xdist_group("ai-house-dns")
def test_a_forged_answer_and_a_bogus_one_stop_the_gateway(town: Town) -> None:
    with ExitStack() as stack:
        for port in (town.behind(stack, forge), town.misled):
            gateway = town.gateway(stack, port)
            assert said(gateway.ask("POST", "/tool/add", SUM)) == (502, "discovery-conflict")
            assert town.invoked_at == set()
            assert gateway.at("GET", "/").status == 200


@pytest.mark.xdist_group("ai-house-dns")
def test_dns_that_is_silent_is_waited_for_once(town: Town) -> None:
    over = threading.Event()

    def keep_silent(query: dns.message.Message, real: dns.message.Message | None) -> dns.message.Message:
        over.wait(PATIENCE)
        answer = dns.message.make_response(query)
        answer.set_rcode(dns.rcode.REFUSED)
        return answer

    with ExitStack() as stack:
        silent = stack.enter_context(Forwarder(None, keep_silent))
        stack.callback(over.set)
        gateway = town.gateway(stack, silent.port)
        answers: list[Answer] = []
        threads = begun([lambda: answers.append(gateway.ask("POST", "/tool/add", SUM))] * 8)
        until(lambda: bool(silent.asked), "DNS is asked")
        # who asks for another name meanwhile does not wait for these
        assert said(gateway.at("GET", "/gateway/bank/x")) == (404, "unknown-authority")
        assert not answers
        over.set()
        assert ended(threads) == []
        assert [said(reply) for reply in answers] == [(200, "")] * 8
        assert town.invoked_at == {town.anchor}
        # asked for all of them, and not for each
        assert len(silent.asked) <= 4


@pytest.mark.xdist_group("ai-house-dns")
def test_dns_that_flips_stops_the_gateway_or_leads_where_the_zone_says(town: Town) -> None:
    def bogus(query: dns.message.Message, real: dns.message.Message | None) -> dns.message.Message:
        return dns.query.tcp(query, LOOPBACK, PATIENCE, town.misled)

    mood: list[Lie] = [bogus]
    clock = town.clock
    with ExitStack() as stack:
        stack.callback(setattr, clock, "ahead", 0.0)
        # it stands where the validating name server is, and answers as that one or as one that was misled
        turning = Forwarder(town.validating, lambda query, real: mood[0](query, real))
        gateway = town.gateway(stack, stack.enter_context(turning).port, clock=clock)

        def ask(lie: Lie, later: float = 0) -> tuple[int, set[int]]:
            mood[0] = lie
            clock.ahead += later
            town.factory.front.seen.clear()
            return gateway.ask("POST", "/tool/add", SUM).status, town.invoked_at

        found = [ask(bogus), ask(honest), ask(bogus), ask(bogus, 61), ask(honest), ask(bogus)]
        there = (200, {town.service})
        # what was validated is believed for a minute
        assert found == [(502, set()), there, there, (502, set()), there, there]


# 2. the registry ------------------------------------------------------------------------------------------


@pytest.fixture
def registry(house: House, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("XDG_STATE_HOME", str(house.sub("state")))
    return Registry(house.sub("registry"))


def test_a_name_of_one_label_is_answered_for_by_whom_the_registry_names(
    house: House, registry: Registry
) -> None:
    with ExitStack() as stack:
        bank = stack.enter_context(house.authority(tools, host="bank.localhost", text="bank"))
        anchor = f"https://bank.localhost:{bank.ports[0]}"
        registry.add("bank", anchor, bank.keys.records()[0].kid)
        registry.add("thief", anchor, SigningKey.generate("Ed25519").with_thumbprint().kid)
        registry.add("shop", anchor)
        first = registry.export(datetime.now(UTC) - timedelta(minutes=2))
        rows = Namespaces(file=str(registry.file), keys=str(registry.key), state=str(registry.state))
        gateway = stack.enter_context(house.gateway("bank", namespaces=(rows,)))

        def native(uri: str, *words: str, code: int | None = 0) -> Any:
            with_registry = ("--namespaces", str(registry.file), "--namespaces-key", str(registry.key))
            given = ("-d", SUM.decode(), "--ca", house.ca_file, "--no-dns", *with_registry, *words)
            return onym("ai", "invoke", uri, *given, "--json", code=code)

        assert gateway.ask("POST", "/tool/add", SUM).json() == 3
        assert native("ai://bank/tool/add").code == 0
        assert said(gateway.ask("POST", "/gateway/nobody/tool/add", SUM)) == (404, "unknown-authority")
        assert "unknown-authority" in native("ai://nobody/tool/add", code=None).out
        # the registry's word on keys is the last
        assert said(gateway.ask("POST", "/gateway/thief/tool/add", SUM)) == (502, "discovery-conflict")

        registry.decide("bank", "suspend")
        second = registry.export(datetime.now(UTC) - timedelta(minutes=1))
        assert said(gateway.ask("POST", "/tool/add", SUM)) == (404, "unknown-authority")
        assert "suspended" in native("ai://bank/tool/add", code=None).out

        # an older issue would have it active still
        registry.file.write_bytes(first)
        assert said(gateway.ask("POST", "/tool/add", SUM)) == (503, "unavailable")
        assert "older than the last one" in native("ai://bank/tool/add", code=None).out
        with pytest.raises(OnymError), house.gateway("bank", namespaces=(rows,), name="another"):
            pass
        registry.file.write_bytes(second)
        assert said(gateway.ask("POST", "/tool/add", SUM)) == (404, "unknown-authority")
        registry.decide("bank", "reinstate")
        registry.export()
        assert gateway.ask("POST", "/tool/add", SUM).json() == 3


def test_a_registry_file_that_has_expired_or_has_another_signature_is_refused(
    house: House, registry: Registry
) -> None:
    with house.authority(tools, host="bank.localhost", text="bank") as bank:
        registry.add("bank", bank.app.anchor)
        registry.export()
        rows = Namespaces(file=str(registry.file), keys=str(registry.key))
        with house.gateway("bank", namespaces=(rows,)) as gateway:
            assert gateway.ask("POST", "/tool/add", SUM).json() == 3
            registry.export(datetime.now(UTC) - timedelta(days=400))
            assert said(gateway.ask("POST", "/tool/add", SUM)) == (503, "unavailable")
            stranger = registry.folder / "stranger.jwk"
            stranger.write_text(SigningKey.generate("Ed25519", kid="root").secret().reveal())
            registry.export(key=stranger)
            assert said(gateway.ask("POST", "/tool/add", SUM)) == (503, "unavailable")
            with pytest.raises(OnymError):
                SignedNamespaces.load(registry.file, key=registry.key)
            registry.export()
            assert gateway.ask("POST", "/tool/add", SUM).json() == 3


def test_a_path_without_authority_is_answered_for_by_whom_the_operator_names(house: House) -> None:
    with ExitStack() as stack:
        made = serve_authority(lambda text: ContextAuthority(f"https://{text}"), FACTORY, ca=house.ca)
        app, _ = stack.enter_context(made)
        context = Context(path="/tool/", anchor=app.anchor, keys=(str(app.key.kid),))
        gateway = stack.enter_context(house.gateway("_", contexts=(context,)))
        answer = gateway.ask("POST", "/tool/here", b"{}")
        assert (answer.status, answer.json()) == (200, "here")
        assert said(gateway.ask("POST", "/agent/here", b"{}")) == (404, "unknown-authority")
        stranger = str(SigningKey.generate("Ed25519").with_thumbprint().kid)
        wrong = Context(path="/", anchor=app.anchor, keys=(stranger,))
        other = stack.enter_context(house.gateway("_", contexts=(wrong,), name="other"))
        assert said(other.ask("POST", "/tool/here", b"{}")) == (502, "discovery-conflict")
        named = {"/tool/": Namespace(label="_", anchor=app.anchor)}
        client = stack.enter_context(house.client(ResolverSettings(dns=False, contexts=named)))
        assert client.invoke("ai:/tool/here", {}).json() == "here"


# 3. TLS ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("ai-gateway-j", "ai-security-e")
@pytest.mark.parametrize("fault", ["none", "old protocol", "expired", "self-signed", "another name"])
def test_prov_115_an_authority_with_bad_tls_hears_nothing(house: House, fault: str) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(Stranger(bad_certificates(house.ca, house.folder)[fault]))
        gateway = stack.enter_context(house.gateway(f"{FACTORY}:{server.port}"))
        client = stack.enter_context(house.client())
        answer = said(gateway.ask("POST", "/tool/add", SUM))
        with pytest.raises((DiscoveryError, NetError)) as caught:
            client.invoke(f"ai://{FACTORY}:{server.port}/tool/add", {"a": 1, "b": 2})
        code = str(caught.value.code)
        if fault == "none":
            # the same server with good TLS is heard: it has no document
            assert (answer, code) == ((404, "unknown-authority"), "aiip.unknown-authority")
            assert len(server.heard) == 2
        else:
            assert (answer, code) == ((502, "upstream-unreachable"), "aiip.upstream-unreachable")
            until(lambda: server.failed == 2, "both handshakes fail")
            assert server.heard == []


# 4. keys and pins -----------------------------------------------------------------------------------------


@pytest.mark.requirement("ai-provenance-e", "ai-provenance-b")
def test_keys_change_in_flight_and_no_result_is_lost_or_unverified(house: House) -> None:
    clock, lot = Clock(), Lot()
    with ExitStack() as stack:
        factory = stack.enter_context(house.authority(tools, clock=clock, keys_at=7200))
        gateway = stack.enter_context(house.gateway(factory.text, clock=clock))
        client = stack.enter_context(house.client(ResolverSettings(dns=False, clock=clock)))
        uri, keys = factory.uri("/tool/add"), factory.keys

        def native(number: int) -> tuple[bytes, str]:
            result = client.invoke(uri, {"a": number, "b": 1})
            return result.body, result.token

        def through(number: int) -> tuple[bytes, str]:
            answer = gateway.ask("POST", "/tool/add", b'{"a": %d, "b": 1}' % number)
            assert answer.status == 200, answer.body
            return answer.body, answer.headers["aiip-receipt"]

        def signing() -> str:
            return keys.signer(clock()).kid

        keys.rotate(clock())  # the second key is published, and waits
        used = [signing()]
        looked = [looks(factory)]
        for change, later in (
            (lambda: keys.revoke(signing(), clock()), 61),  # the second signs at once, before its time
            (lambda: keys.rotate(clock()), 3700),  # the third is published, and signs an hour later
            (lambda: keys.revoke(signing(), clock()), 0),  # the fourth signs at once, and is new to everybody
        ):
            with lot.drawing(native, through) as work:
                lot.wait(20, work)
                used.append(signing())
                change()
                used.append(signing())
                lot.wait(20, work)
            looked.append(looks(factory))
            clock.ahead += later
        first, second, third, fourth = dict.fromkeys(used)
        assert used == [first, first, second, second, second, third, fourth]
        # client and gateway look first, for a key that signs early, after the set's life, for a new key
        assert looked == [0, 4, 4, 8]
        assert factory.front.count("/.well-known/aiip.jwks.json") == 8
        assert all(int(body) == number + 1 for number, (body, _) in lot.drawn.items())
        for body, token in lot.drawn.values():
            assert holds(token, body, keys.history(clock()))


def looks(factory: Authority) -> int:
    return factory.front.count("/.well-known/aiip.jwks.json")


def holds(token: str, body: bytes, history: bytes) -> bool:
    """Did one of these keys sign this for that body? By jwcrypto, which does not know who was revoked."""
    keys = jwk.JWKSet.from_json(history.decode())
    found = jws.JWS()
    found.allowed_algs = ["Ed25519", "EdDSA"]
    found.deserialize(token)
    found.verify(keys.get_key(found.jose_header["kid"]))
    return bool(json.loads(found.payload)["res"]["cd"] == content_digest(body))


@pytest.mark.requirement("ai-gateway-l")
def test_pins_outlive_the_gateway_and_its_clients(house: House) -> None:
    pins = {"pins": str(house.folder / "gateway.pins")}
    own = ResolverSettings(dns=False, pins=PinFile(house.folder / "client.pins"))
    port = free_port()
    with ExitStack() as stack:
        first = stack.enter_context(house.authority(tools, port=port, pin_max_age=3600))
        gateway = stack.enter_context(house.gateway(first.text, **pins))
        assert gateway.ask("POST", "/tool/add", SUM).status == 200
        with house.client(own) as client:
            assert client.invoke(first.uri("/tool/add"), {"a": 1, "b": 2}).json() == 3
    # the same name, and keys from nowhere
    stranger = SigningKey.generate("Ed25519").with_thumbprint()
    with house.authority(tools, port=port, keys=stranger) as second:
        with house.gateway(second.text, **pins) as gateway:
            assert said(gateway.ask("POST", "/tool/add", SUM)) == (502, "downgrade-detected")
        with house.client(own) as client, pytest.raises(DiscoveryError) as caught:
            client.invoke(second.uri("/tool/add"), {"a": 1, "b": 2})
        assert caught.value.code == "aiip.downgrade-detected"
        # whoever has no pins cannot know
        with house.gateway(second.text, name="another") as gateway:
            assert gateway.ask("POST", "/tool/add", SUM).status == 200


# 5. clocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [-120, -30, 30, 120])
@pytest.mark.parametrize("whose", ["endpoint", "client"])
def test_a_clock_may_be_wrong_by_less_than_a_minute(house: House, whose: str, ahead: int) -> None:
    wrong = Clock(ahead)
    right = Clock()
    here, there = (right, wrong) if whose == "endpoint" else (wrong, right)
    with ExitStack() as stack:
        factory = stack.enter_context(house.authority(tools, clock=there, keys_at=7200))
        gateway = stack.enter_context(house.gateway(factory.text, clock=here))
        client = stack.enter_context(house.client(ResolverSettings(dns=False, clock=here)))
        if abs(ahead) < 60:
            assert gateway.ask("POST", "/tool/add", SUM).status == 200
            assert client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2}).json() == 3
            return
        # strangers are not told which check it was
        assert said(gateway.ask("POST", "/tool/add", SUM)) == (502, "provenance-invalid")
        with pytest.raises(ProvenanceError) as caught:
            client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})
        assert caught.value.code == "aiip.provenance-stale"


@pytest.mark.parametrize(("ahead", "now"), [(-120, 0), (-30, 0), (30, 0), (120, 12)])
def test_a_filed_receipt_is_judged_by_its_own_time(house: House, ahead: int, now: int) -> None:
    with ExitStack() as stack:
        factory = stack.enter_context(house.authority(tools, clock=Clock(ahead), keys_at=7200))
        line = stack.enter_context(Line(factory.text, house.ca))
        fields = (("Content-Type", "application/json"), ("AIIP-Nonce", "n" * 32))
        heard = line.ask("POST", "/tool/add", SUM, *fields)
        keys = line.ask("GET", "/.well-known/aiip.jwks.json?history", service=False)
    files = {"receipt": heard.receipt, "body": heard.body.decode(), "history": keys.body.decode()}
    for name, text in files.items():
        (house.folder / name).write_text(str(text))
    receipt, body, history = (str(house.folder / name) for name in files)
    words = ("ai", "verify", receipt, "--body", body, "--history", history, "--uri", factory.uri("/tool/add"))
    onym(*words, code=now)
    # judged later, a receipt from the future of that day holds
    onym(*words, "--at", f"{datetime.now(UTC) + timedelta(days=300):%Y-%m-%dT%H:%M:%SZ}")


# 6. bad clients beside good ones --------------------------------------------------------------------------


def shop(app: Endpoint) -> None:
    """A tool, and streams that are long."""
    tools(app)

    @app.resource("/tool/count")
    async def count(to: int = 1_000_000) -> AsyncIterator[dict[str, str]]:
        for number in range(to):
            yield {"number": str(number), "filling": "x" * 4096}


@pytest.mark.xdist_group("ai-house-storm")
def test_good_clients_are_served_beside_bad_ones_and_nothing_of_these_stays(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # however slow the machine is: what slow clients hold ends with them, not with the patience of the servers
    for name in ("head_seconds", "body_seconds", "take_seconds"):
        monkeypatch.setattr(http_server.BoundedProtocol, name, 3600.0)
    monkeypatch.setattr(responses, "_SEND_SECONDS", 3600.0)
    with ExitStack() as stack:
        factory = stack.enter_context(house.authority(shop))
        gateway = stack.enter_context(
            house.gateway(factory.text, client_concurrency=40, body_limit=100_000, timeout=600)
        )
        client = stack.enter_context(house.client())
        trusting = ssl.create_default_context(cafile=house.ca_file)
        doors = (
            Door(gateway.port, f"{LOOPBACK}:{gateway.port}", f"/gateway/{factory.text}"),
            Door(factory.ports[0], factory.text, f"/.well-known/aiip/v1/{factory.text}", trusting),
        )

        def native(number: int) -> tuple[bytes, str]:
            result = client.invoke(factory.uri("/tool/add"), {"a": number, "b": 1})
            return result.body, result.token

        def through(number: int) -> tuple[bytes, str]:
            answer = gateway.ask("POST", "/tool/add", b'{"a": %d, "b": 1}' % number)
            assert answer.status == 200, answer.body
            return answer.body, answer.headers["aiip-receipt"]

        def serve(results: int) -> None:
            """So many more good results come, or none that fails."""
            with lot.drawing(native, through) as work:
                lot.wait(results, work)

        lot = Lot()
        serve(50)
        until(lambda: len(slots(gateway)) == 0, "the places are given back")
        before = descriptors(), gateway.endpoint.tasks, factory.front.tasks

        slow: list[socket.socket] = []
        stack.callback(lambda: [connection.close() for connection in slow])
        for door in doors:
            # with 23 streams and 4 good clients more than one client may have, if a body took a place
            body = ("Content-Type: application/json", "Content-Length: 1000")
            events = ("Content-Type: application/json", "Content-Length: 2", "Accept: text/event-stream")
            slow += [door.keep(door.head("POST", "/tool/add", "X: ")[:-5]) for _ in range(25)]
            slow += [door.keep(door.head("POST", "/tool/add", *body) + b"{") for _ in range(25)]
            slow += [door.keep(door.head("POST", "/tool/count", *events) + b"{}") for _ in range(3)]
        storm = begun([lambda door=door: annoy(door) for door in doors])
        serve(50)
        assert ended(storm) == []
        assert all(int(body) == number + 1 for number, (body, _) in lot.drawn.items())
        # nobody good waited for what is never finished: that is still here
        assert sum(is_open(connection) for connection in slow) == len(slow)
        for connection in slow:
            connection.close()
        # connections between gateway and authority stay to be used again, one for each that asked at once
        until(lambda: len(slots(gateway)) == 0, "the places are given back")
        until(lambda: descriptors() <= before[0] + 4, "descriptors are closed")
        until(lambda: gateway.endpoint.tasks <= before[1] + 4, "the gateway's tasks end")
        until(lambda: factory.front.tasks <= before[2] + 4, "the endpoint's tasks end")
        serve(20)


def slots(gateway: World) -> Any:
    return gateway.gateway.parts.slots


def annoy(door: Door) -> None:
    """Everything bad that is over soon; each must be answered with a refusal, or not at all."""
    json_body = "Content-Type: application/json"
    for octets in MALFORMED:
        assert refused(door.say(octets)), octets[:80]
    told = door.head("POST", "/tool/add", json_body, "Content-Length: 999999999")
    assert refused(door.say(told))
    untold = door.head("POST", "/tool/add", json_body, "Transfer-Encoding: chunked")
    assert refused(door.say(untold, *[b"10000\r\n" + b"x" * 65536 + b"\r\n"] * 40))
    for _ in range(20):
        # they leave in the middle of what they send, and of what they get
        door.keep(door.head("POST", "/tool/add", json_body, "Content-Length: 100") + b"{").close()
        events = (json_body, "Content-Length: 2", "Accept: text/event-stream")
        door.keep(door.head("POST", "/tool/count", *events) + b"{}").close()


def refused(answer: bytes) -> bool:
    return not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))


def is_open(line: socket.socket) -> bool:
    """Has the other side not closed it?"""
    line.settimeout(0)
    try:
        return bool(line.recv(1))
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


# 7. crashes -----------------------------------------------------------------------------------------------

_SERVED = """
import os
import threading
from pathlib import Path

from onym.ai import Endpoint

HERE = Path(__file__).parent
app = Endpoint(os.environ["AUTHORITY"], keys=HERE / "keys", store=HERE / "keys.sqlite")


def act(seat: str) -> str:
    # one line, written at once: it outlives the process
    descriptor = os.open(HERE / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{seat}\\n".encode())
    os.close(descriptor)
    if seat.startswith("slow"):
        threading.Event().wait()
    return seat


@app.resource("/agent/book", effects="write")
def book(seat: str) -> str:
    return act(seat)


@app.resource("/tool/draw", idempotency=True)
def draw(seat: str) -> str:
    return act(seat)
"""


@dataclass
class Crashing:
    """An endpoint and a gateway as processes of their own, in one folder, that can be killed."""

    house: House
    ports: tuple[int, int]

    def __post_init__(self) -> None:
        folder = self.house.folder
        certificate = self.house.ca.issue_cert("factory.localhost").private_key_and_cert_chain_pem
        certificate.write_to_path(str(folder / "tls.pem"))
        (folder / "served.py").write_text(_SERVED)
        for name in ("keys", "gateway-keys"):
            KeyStore(folder / name).new(at=time.time() - 60)
        self.authority = f"factory.localhost:{self.ports[0]}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Both of them, until they are killed at the end of the block."""
        folder, (endpoint, gateway) = self.house.folder, self.ports
        tls = ("--tls-cert", "tls.pem", "--port", str(endpoint))
        files = ("--keys", "gateway-keys", "--audit", "audit.jsonl", "--ca", self.house.ca_file)
        settings = {"PINS": "pins.sqlite", "REPLAYS": "replays.sqlite", "DNS": "false"}
        with (
            process(folder, "ai", "serve", "served:app", *tls, AUTHORITY=self.authority) as first,
            process(
                folder, "ai", "gateway", "--policy", "local", "--port", str(gateway), *files,
                **{f"ONYM_GATEWAY_{name}": value for name, value in settings.items()},
            ) as second,
        ):  # fmt: skip
            for house in (first, second):
                assert house.stdout is not None
                assert house.stdout.readline(), (folder / "log").read_text()
            yield

    @property
    def effects(self) -> Counter[str]:
        """How often each seat was taken."""
        file = self.house.folder / "effects"
        return Counter(file.read_text().split()) if file.exists() else Counter()

    def draw(self, seat: str) -> Answer:
        """Through the gateway, which passes what only reads, and its keys."""
        path = f"/gateway/{self.authority}/tool/draw"
        key = {"Idempotency_Key": f'"key-{seat}"'}
        return ask(self.ports[1], "POST", path, json.dumps({"seat": seat}).encode(), **key)


@pytest.mark.xdist_group("ai-house-crash")
def test_what_is_killed_in_the_middle_did_everything_once_or_says_that_it_cannot_know(house: House) -> None:
    servers = Crashing(house, (free_port(), free_port()))
    uri = f"ai://{servers.authority}/agent/book"
    booked: dict[str, bool] = {}
    drawn: dict[str, str] = {}
    asked: set[str] = set()

    with house.client(policy=Policy.local()) as client:

        def book(seat: str) -> bool:
            asked.add(seat)
            result = client.invoke(uri, {"seat": seat}, idempotency_key=f"key-{seat}")
            assert result.body == seat.encode()
            return result.replayed

        def booking(kind: str) -> None:
            for number in count():
                seat = f"{kind}-{number}"
                booked[seat] = book(seat)

        def drawing(kind: str) -> None:
            for number in count():
                seat = f"{kind}-{number}"
                answer = servers.draw(seat)
                assert answer.status == 200, answer.body
                drawn[seat] = answer.headers["x-request-id"]

        with servers.running():
            slow = begun(
                [lambda n=n: book(f"slow-book-{n}") for n in range(3)]
                + [lambda n=n: servers.draw(f"slow-draw-{n}") for n in range(3)]
            )
            quick = begun([lambda n=n: booking(f"book-{n}") for n in range(2)])
            more = begun([lambda n=n: drawing(f"draw-{n}") for n in range(2)])
            until(
                lambda: (len(booked) > 30 and len(drawn) > 30) or bool(quick[1] + more[1]),
                "some are answered",
            )
            assert quick[1] + more[1] == []
            until(
                lambda: sum(effect.startswith("slow") for effect in servers.effects) == 6,
                "six are in the middle",
            )
        # everybody who waited is told that it failed
        assert (len(ended(quick)), len(ended(more)), len(ended(slow))) == (2, 2, 6)
        at_the_crash = servers.effects
        assert max(at_the_crash.values()) == 1

        log = house.folder / "audit.jsonl"
        assert onym("ai", "audit", "verify", str(log), code=None).code == 0
        told = {json.loads(line).get("id") for line in log.read_bytes().splitlines()}
        assert set(drawn.values()) <= told

        with servers.running():
            unknown: dict[str, str] = {}
            for seat in sorted(asked):
                try:
                    again = book(seat)
                except InvocationError as error:
                    unknown[seat] = str(error.code)
                else:
                    # what had happened is told, and what had not happens now
                    assert again is (seat in at_the_crash), seat
            for seat in drawn:
                answer = servers.draw(seat)
                assert (answer.status, answer.body) == (200, seat.encode())
            assert said(servers.draw("slow-draw-0")) == (409, "idempotency-in-progress")
        # of those in the middle nobody can know; of none that was answered is that said
        assert {f"slow-book-{n}" for n in range(3)} <= unknown.keys()
        assert set(unknown.values()) == {"aiip.idempotency-in-progress"}
        assert booked.keys().isdisjoint(unknown)
        assert max(servers.effects.values()) == 1
        assert booked.keys() | drawn.keys() <= servers.effects.keys()
        assert onym("ai", "audit", "verify", str(log)).code == 0
        assert len(log.read_bytes().splitlines()) > len(told)


# 8. the demonstration -------------------------------------------------------------------------------------


@pytest.mark.embedded
@pytest.mark.xdist_group("embedded")
def test_the_demonstration_runs_to_its_end() -> None:
    pulled_weights()
    with chromium():
        pass  # or it is skipped, with the reason
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PATH", "HOME", "COV", "ONYM_CACHE"))
    }
    # Chromium's sockets have long names, and pytest's folders too
    with TemporaryDirectory(dir="/tmp") as short:
        ran = subprocess.run(
            [sys.executable, str(ROOT / "tools" / "demo_ai.py")],
            env={**kept, "TMPDIR": short},
            capture_output=True,
            text=True,
            timeout=3000,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        folder = Path(ran.stdout.rpartition("All of it is in ")[2].splitlines()[0])
        assert (folder / "2-result-ann.png").stat().st_size > 1000
    assert "FAIL" not in ran.stdout
    for step in (
        "both receipts came through",
        "the page shows the answer",
        "the gateway knows Ann",
        "the result is there, with a receipt for this task",
        "Bob's sign-in with a password only is not enough",
        "the payment was made, once",
        "Bob has typed the beginning of the digest",
        "jwcrypto's digest differs too",
    ):
        assert f"ok   {step}" in ran.stdout, ran.stdout
