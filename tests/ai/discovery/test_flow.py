"""Discovery against real servers with TLS: every attack on it loses, and says why."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest

from discovery_support import DOCUMENT, KEYS, World, by_hand, srv, txt, world_of
from onym.ai.discovery.evaluation import Discovery, discover_authority, fetch_srv_targets
from onym.ai.discovery.resolution import renew_keys, resolve_uri
from onym.ai.discovery.well_known import fetch_document, fetch_key_history, fetch_keys, find_namespace
from onym.ai.records import AnchorDocument, Namespace, Requirements, Source, Verdict
from onym.ai.settings import MemoryPins, ResolverSettings
from onym.errors import DiscoveryError, PolicyError
from onym.net.messages import Flow, HTTPRequest, Origin, Records, Send
from onym.sign.keys import SigningKey
from onym.uri.ai import AIURI

EVIL = '<link rel="aiip" href="ai://evil.test/x">'


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_of(tmp_path_factory.mktemp("ca"), "bank.test", "evil.test") as found:
        yield found


@pytest.fixture
def world(servers: World) -> World:
    return servers.anew()


def fetch_first_target(
    document: AnchorDocument, settings: ResolverSettings
) -> Flow[tuple[Origin | None, tuple[Source, ...]]]:
    """The first target, None for the authority's own host, and the sources."""
    targets, sources = yield from fetch_srv_targets(document, settings)
    return next(iter(targets), None), sources


def of(found: Discovery, name: str) -> Source:
    return next(each for each in found.sources if each.name == name)


def anchor(world: World) -> AnchorDocument:
    document = world.run(fetch_document(find_namespace(world.bank.authority, world.settings), world.settings))
    assert isinstance(document, AnchorDocument)
    return document


def refused(world: World, code: str, question: str | None = None) -> DiscoveryError:
    found = world.discover(question)
    assert found.refusal is not None
    assert found.refusal.code == code
    return found.refusal


@pytest.mark.requirement("ai-discovery-c", "ai-discovery-e")
def test_an_anchor_alone_is_enough(world: World) -> None:
    found = world.discover_success()
    assert found.authority == world.bank.authority
    assert found.document is not None
    assert found.kids == (world.bank.key.kid,)
    assert of(found, "anchor").verdict is Verdict.WON
    assert of(found, "anchor").said == (world.bank.uri,)
    assert [each.uri for each in found.candidates if each.confirmed] == [world.bank.uri]
    for silent in ("link", "dns-srv", "dns-txt"):
        assert of(found, silent).verdict is Verdict.ABSENT


@pytest.mark.requirement("ai-discovery-a", "ai-discovery-b")
def test_header_and_head_are_read_and_confirm(world: World) -> None:
    page = f'<head><link rel=aiip href="{world.bank.uri}"></head>'
    world.bank.put("/shop", page, link=f'<{world.bank.uri}>; rel="aiip"')
    found = world.discover_success(f"{world.bank.origin}/shop?session=1")
    assert of(found, "link").verdict is Verdict.CONFIRMS
    assert of(found, "html").verdict is Verdict.CONFIRMS
    assert of(found, "link").location == f"{world.bank.origin}/shop"
    assert found.candidates[0].by == ("anchor", "link", "html")


def test_an_ai_uri_may_be_asked_about(world: World) -> None:
    found = world.discover_success(world.bank.uri)
    assert found.anchor == world.bank.origin


def test_a_page_needs_no_html(world: World) -> None:
    world.bank.put("/", f"<head>{EVIL}", "text/plain", link=f"<{world.bank.uri}>; rel=aiip")
    found = world.discover()
    assert of(found, "html").verdict is Verdict.ABSENT
    assert of(found, "link").verdict is Verdict.CONFIRMS


# attack 13, prov-095 to prov-097


@pytest.mark.parametrize("status", [404, 500, 403])
def test_an_answer_that_is_no_success_points_nowhere(world: World, status: int) -> None:
    world.bank.put("/", EVIL, status=status, link="<ai://evil.test/x>; rel=aiip")
    found = world.discover_success()
    assert [each.uri for each in found.candidates] == [world.bank.uri]
    assert of(found, "link").verdict is Verdict.ABSENT
    assert str(status) in of(found, "link").why


def test_a_page_that_redirects_points_nowhere(world: World) -> None:
    evil = world.sites["evil.test"]
    world.bank.put("/", EVIL, status=302, location=evil.origin, link="<ai://evil.test/x>; rel=aiip")
    found = world.discover_success()
    assert of(found, "link").verdict is Verdict.FAILED
    assert evil.asked == []


def test_a_link_about_another_page_is_left_out(world: World) -> None:
    world.bank.put("/", "", link=f'<{world.bank.uri}>; rel=aiip; anchor="https://other.test/"')
    found = world.discover()
    assert of(found, "link").verdict is Verdict.ABSENT
    assert "another page" in of(found, "link").why


def test_a_link_in_a_users_comment_points_nowhere(world: World) -> None:
    world.bank.put("/", f"<title>x</title><body><p>{EVIL}</p>")
    found = world.discover_success()
    assert of(found, "html").verdict is Verdict.ABSENT


def test_a_page_cannot_claim_what_another_authority_does_not_confirm(world: World) -> None:
    evil = world.sites["evil.test"]
    evil.put("/", "", link=f"<{world.bank.uri}>; rel=aiip")
    found = world.discover_success(evil.authority)
    assert of(found, "link").verdict is Verdict.DROPPED
    assert [(each.uri, each.confirmed) for each in found.candidates] == [
        (evil.uri, True),
        (world.bank.uri, False),
    ]


def test_an_origin_with_nothing_but_an_unconfirmed_pointer_is_unconfirmed(world: World) -> None:
    evil = world.sites["evil.test"]
    evil.pages.clear()
    evil.put("/", "", link=f"<{world.bank.uri}>; rel=aiip")
    refused(world, "aiip.unconfirmed-origin", evil.authority)


def test_an_origin_that_the_authority_lists_may_point_at_it(world: World) -> None:
    shop = world.sites["evil.test"]
    shop.pages.clear()
    shop.put("/", "", link=f"<{world.bank.uri}>; rel=aiip")
    world.bank.publish(origins=[shop.origin])
    found = world.discover_success(shop.authority)
    assert [(each.uri, each.confirmed) for each in found.candidates] == [(world.bank.uri, True)]
    assert found.document is None


def test_two_values_of_a_page_stop(world: World) -> None:
    world.bank.put("/", "", link=f"<{world.bank.uri}>; rel=aiip, <{world.bank.uri}/more>; rel=aiip")
    refused(world, "aiip.discovery-conflict")


def test_a_page_pointing_everywhere_makes_few_requests(world: World) -> None:
    links = "".join(f"<link rel=aiip href=ai://a{n}.test/x>" for n in range(50))
    world.bank.put("/", f"<head>{links}")
    assert len(world.discover_success().candidates) == 51


# attack 14, prov-093, prov-094


def test_a_redirect_of_the_anchor_is_not_followed(world: World) -> None:
    evil = world.sites["evil.test"]
    for location in (evil.origin + DOCUMENT, "http://bank.test" + DOCUMENT, "/elsewhere"):
        world.bank.put(DOCUMENT, "", status=307, location=location)
        refused(world, "aiip.upstream-redirect")
    assert evil.asked == []


def test_a_redirect_without_location_is_none_either(world: World) -> None:
    world.bank.put(DOCUMENT, "", status=300)
    refused(world, "aiip.upstream-redirect")


def test_keys_of_another_origin_are_refused(world: World) -> None:
    evil = world.sites["evil.test"]
    world.bank.publish(jwks=evil.origin + KEYS)
    refused(world, "aiip.discovery-conflict")
    assert evil.asked == []


def test_a_document_that_claims_another_authority_is_refused(world: World) -> None:
    evil = world.sites["evil.test"]
    evil.publish(endpoint="ai://bank/service/payments")
    refused(world, "aiip.discovery-conflict", evil.authority)
    evil.publish(endpoint=world.bank.uri)
    refused(world, "aiip.discovery-conflict", evil.authority)


# prov-103


@pytest.mark.parametrize(
    "body",
    [
        b'{"endpoint": "ai://a/x", "endpoint": "ai://b/x"}',
        b"[" * 60_000,
        b" " * 2_000_000 + b"{}",
        b"not json",
    ],
)
def test_documents_that_are_no_plain_json_are_refused(world: World, body: bytes) -> None:
    world.bank.put(DOCUMENT, body, "application/json")
    refused(world, "aiip.discovery-conflict")


@pytest.mark.parametrize("kind", ["text/html", "application/json-seq", "", "text/json"])
def test_documents_of_another_type_are_refused(world: World, kind: str) -> None:
    body = world.bank.pages[DOCUMENT].body
    world.bank.put(DOCUMENT, body, kind)
    refused(world, "aiip.discovery-conflict")


@pytest.mark.parametrize(("status", "again"), [(500, True), (429, True), (403, False), (204, False)])
def test_an_anchor_that_fails_is_no_anchor(world: World, status: int, again: bool) -> None:
    world.bank.put(DOCUMENT, b"" if status == 204 else b"{}", "application/json", status=status)
    error = refused(world, "aiip.upstream-unreachable")
    assert error.retryable is again


def test_what_a_server_says_of_its_refusal_is_told_as_unsigned(world: World) -> None:
    said = b'{"title": "Bad request", "detail": "the field Host names another server, or none"}'
    world.bank.put(DOCUMENT, said, "application/problem+json", status=400)
    error = refused(world, "aiip.upstream-unreachable")
    assert error.hint == "The server's reason (unsigned): the field Host names another server, or none"
    world.bank.put(DOCUMENT, b'{"detail": "' + b"x" * 2000 + b'"}', "application/problem+json", status=400)
    assert len(refused(world, "aiip.upstream-unreachable").hint or "") < 600


def test_a_host_without_a_document_is_unknown(world: World) -> None:
    world.bank.pages.clear()
    found = world.discover()
    assert of(found, "anchor").verdict is Verdict.ABSENT
    refused(world, "aiip.unknown-authority")


@pytest.mark.parametrize("body", [b"{}", b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', b'{"keys": []}'])
def test_a_key_set_that_cannot_verify_is_refused(world: World, body: bytes) -> None:
    world.bank.put(KEYS, body, "application/json")
    refused(world, "aiip.discovery-conflict")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', 200, "aiip.discovery-conflict"),
        (b"no keys", 200, "aiip.discovery-conflict"),
        (b" " * (256 * 1024 + 1), 200, "aiip.discovery-conflict"),
        (b"{}", 503, "aiip.upstream-unreachable"),
    ],
)
def test_a_history_without_valid_keys_is_refused(world: World, body: bytes, status: int, code: str) -> None:
    document = anchor(world)
    world.bank.put(KEYS, body, "application/json", status=status)
    with pytest.raises(DiscoveryError) as caught:
        world.run(fetch_key_history(document, world.settings))
    assert caught.value.code == code


def test_a_missing_key_set_is_refused(world: World) -> None:
    del world.bank.pages[KEYS]
    refused(world, "aiip.discovery-conflict")


# attack 12


@pytest.mark.requirement("ai-gateway-l")
def test_a_weaker_document_is_a_downgrade(world: World) -> None:
    world.bank.publish(pin_max_age=3600, policy={"mtls": True})
    world.discover_success()
    world.clock.at += 700
    world.bank.publish(policy={"mtls": False})
    refused(world, "aiip.downgrade-detected")


def test_a_new_key_set_from_nowhere_is_a_downgrade(world: World) -> None:
    world.bank.publish(pin_max_age=3600)
    world.discover_success()
    world.clock.at += 700
    world.bank.publish_keys(SigningKey.generate("Ed25519").with_thumbprint())
    refused(world, "aiip.downgrade-detected")


# DNS: attack 15, prov-098 to prov-100. The names have ports, so SRV is spoken to through `fetch_connect`


def test_signed_dns_that_agrees_confirms(world: World) -> None:
    world.records.table["_aiip.bank.test", "TXT"] = txt(f"endpoint={world.bank.uri}")
    found = world.discover_success()
    assert of(found, "dns-txt").verdict is Verdict.CONFIRMS
    assert of(found, "dns-txt").rank == 2


def test_signed_dns_that_disagrees_stops_and_unsigned_dns_loses(world: World) -> None:
    world.records.table["_aiip.bank.test", "TXT"] = txt("endpoint=ai://evil.test/x", validated=False)
    assert of(world.discover_success(), "dns-txt").verdict is Verdict.DROPPED
    world.records.table["_aiip.bank.test", "TXT"] = txt("endpoint=ai://evil.test/x")
    refused(world, "aiip.discovery-conflict")


@pytest.mark.parametrize("kind", ["TXT", "SRV"])
def test_a_bogus_answer_stops(world: World, kind: str) -> None:
    name = "_aiip.bank.test" if kind == "TXT" else "_aiip._tcp.bank.test"
    world.records.table[name, kind] = Records(status="bogus", detail="signatures do not hold")
    refused(world, "aiip.discovery-conflict")
    assert [source.name for source in world.discover().sources if source.code] == [f"dns-{kind.lower()}"]


def test_dns_can_be_left_out(world: World) -> None:
    world.settings = replace(world.settings, dns=False)
    world.records.table["_aiip.bank.test", "TXT"] = Records(status="bogus")
    names = {each.name for each in world.discover_success().sources}
    assert names == {"anchor", "link"}
    assert world.run(fetch_first_target(anchor(world), world.settings)) == (None, ())


def known(world: World) -> AnchorDocument:
    """The bank's document, as if its port were 443: SRV records are for such names alone."""
    return replace(anchor(world), authority="bank.test", endpoint="ai://bank.test/pay")


def test_a_signed_srv_record_says_where_to_connect(world: World) -> None:
    world.records.table["_aiip._tcp.bank.test", "SRV"] = srv(8443, "aiip.bank.test")
    connect, sources = world.run(fetch_first_target(known(world), world.settings))
    assert connect == Origin("https", "aiip.bank.test", 8443)
    assert sources[0].verdict is Verdict.CONFIRMS
    # and is kept for a minute
    world.records.table.clear()
    assert world.run(fetch_first_target(known(world), world.settings))[0] == connect
    world.clock.at += 61
    assert world.run(fetch_first_target(known(world), world.settings))[0] is None


def test_an_unsigned_srv_record_leads_nowhere(world: World) -> None:
    world.records.table["_aiip._tcp.bank.test", "SRV"] = srv(22, "localhost", validated=False)
    connect, sources = world.run(fetch_first_target(known(world), world.settings))
    assert connect is None
    assert sources[0].verdict is Verdict.DROPPED
    assert "DNSSEC" in sources[0].why


def test_an_alias_as_target_leads_nowhere(world: World) -> None:
    world.records.table["_aiip._tcp.bank.test", "SRV"] = srv(8443, "aiip.bank.test")
    world.records.table["aiip.bank.test", "CNAME"] = txt("evil.test")
    assert world.run(fetch_first_target(known(world), world.settings))[0] is None


def test_a_signed_target_within_is_stopped_by_the_policy(world: World) -> None:
    # prov-100: what DNS says is judged where the connection is made
    world.records.table["_aiip._tcp.bank.test", "SRV"] = srv(22, "localhost")
    connect, _ = world.run(fetch_first_target(known(world), world.settings))
    assert connect == Origin("https", "localhost", 22)
    request = HTTPRequest(method="GET", origin=Origin("https", "bank.test", 443), target="/")
    with world.transport() as wire, pytest.raises(PolicyError):
        wire.send(Send(request, 5.0, connect=connect))


def test_a_service_that_is_signed_away_stops(world: World) -> None:
    world.records.table["_aiip._tcp.bank.test", "SRV"] = srv(0, "")
    with pytest.raises(DiscoveryError) as caught:
        world.run(fetch_first_target(known(world), world.settings))
    assert caught.value.code == "aiip.discovery-conflict"


def test_silence_is_kept_so_long_that_callers_do_not_wait_for_it_one_after_another(world: World) -> None:
    world.records.table["_aiip._tcp.bank.test", "SRV"] = Records(status="failed", detail="timed out")
    assert world.run(fetch_first_target(known(world), world.settings))[0] is None
    world.records.table["_aiip._tcp.bank.test", "SRV"] = srv(8443, "aiip.bank.test")
    world.clock.at += 4
    assert world.run(fetch_first_target(known(world), world.settings))[0] is None
    world.clock.at += 1
    assert world.run(fetch_first_target(known(world), world.settings))[0] is not None


def test_a_bogus_answer_is_not_kept(world: World) -> None:
    world.records.table["_aiip._tcp.bank.test", "SRV"] = Records(status="bogus", validated=False)
    with pytest.raises(DiscoveryError):
        world.run(fetch_first_target(known(world), world.settings))
    world.records.table["_aiip._tcp.bank.test", "SRV"] = srv(8443, "aiip.bank.test")
    assert world.run(fetch_first_target(known(world), world.settings))[0] is not None


# the cache: prov-104, attack 30, prov-ok-05


def test_a_document_without_max_age_is_asked_for_again(world: World) -> None:
    anchor(world)
    world.clock.at += 599
    anchor(world)
    assert world.bank.count(DOCUMENT) == 1
    world.clock.at += 2
    anchor(world)
    assert world.bank.count(DOCUMENT) == 2


def test_a_document_that_has_not_changed_is_not_sent_again(world: World) -> None:
    world.bank.publish(etag='"v1"', cache_control="max-age=120")
    first = anchor(world)
    world.clock.at += 121
    assert anchor(world) is first
    world.clock.at += 119
    anchor(world)
    assert world.bank.asked == [(DOCUMENT, None), (DOCUMENT, '"v1"')]


def test_nothing_old_is_used_where_the_anchor_fails(world: World) -> None:
    world.bank.publish(etag='"v1"')
    anchor(world)
    world.clock.at += 601
    world.bank.put(DOCUMENT, b"", "application/json", status=503)
    with pytest.raises(DiscoveryError):
        anchor(world)
    world.bank.publish(etag='"v1"')
    anchor(world)


def test_no_store_is_not_kept(world: World) -> None:
    world.bank.publish(cache_control="no-store")
    anchor(world)
    anchor(world)
    assert world.bank.count(DOCUMENT) == 2


def test_a_clock_that_is_put_back_makes_nothing_eternal(world: World) -> None:
    anchor(world)
    world.clock.at -= 10**7
    anchor(world)
    assert world.bank.count(DOCUMENT) == 2


def test_no_document_is_remembered_for_a_minute(world: World) -> None:
    world.bank.pages.clear()
    for _ in range(3):
        with pytest.raises(DiscoveryError):
            anchor(world)
    assert world.bank.count(DOCUMENT) == 1
    world.bank.publish()
    world.clock.at += 61
    anchor(world)


def test_a_new_key_is_found_by_one_more_look(world: World) -> None:
    document = anchor(world)
    old = world.run(fetch_keys(document, world.settings))
    new = SigningKey.generate("ES256").with_thumbprint()
    world.bank.publish_keys(world.bank.key, new)
    assert world.run(fetch_keys(document, world.settings)) is old
    found = world.run(fetch_keys(document, world.settings, renew=True))
    assert found.kids == {world.bank.key.kid, new.kid}
    # whoever invents kids makes us look no more than once a minute
    for _ in range(20):
        world.run(fetch_keys(document, world.settings, renew=True))
    assert world.bank.count(KEYS) == 2
    world.clock.at += 61
    world.run(fetch_keys(document, world.settings, renew=True))
    assert world.bank.count(KEYS) == 3


def test_the_first_look_may_be_the_one_more(world: World) -> None:
    document = anchor(world)
    assert world.run(fetch_keys(document, world.settings, renew=True)).kids == {world.bank.key.kid}


def test_a_look_that_fails_counts_too(world: World) -> None:
    document = anchor(world)
    world.run(fetch_keys(document, world.settings))
    world.bank.put(KEYS, b"", status=500)
    with pytest.raises(DiscoveryError):
        world.run(fetch_keys(document, world.settings, renew=True))
    world.run(fetch_keys(document, world.settings, renew=True))
    assert world.bank.count(KEYS) == 2


# the way there


def test_names_that_lead_nowhere_or_inside_are_told_apart(world: World) -> None:
    settings = replace(world.settings, timeout=60.0)
    port = world.bank.authority.partition(":")[2]
    for question, code in (
        (f"nowhere.test:{port}", "aiip.upstream-unreachable"),
        ("bank.test:1", "aiip.blocked-address"),
    ):
        found = world.run(discover_authority(question, settings))
        assert found.refusal.code == code


def test_a_certificate_of_another_name_is_none(world: World) -> None:
    bank, evil = world.bank, world.sites["evil.test"]
    port = bank.authority.partition(":")[2]
    assert evil.asked == []
    refused(world, "aiip.upstream-unreachable", f"evil.test:{port}")


class Registry:
    """Namespaces of one label."""

    def __init__(self, *rows: Namespace) -> None:
        self.rows = {row.label: row for row in rows}

    def find(self, label: str, at: float) -> Namespace | None:
        return self.rows.get(label)


@pytest.mark.requirement("ai-namespaces-a")
def test_a_registry_name_is_answered_for_by_its_anchor(world: World) -> None:
    kid = world.bank.key.kid or ""
    row = Namespace(label="bank", anchor=world.bank.origin, keys=(kid,))
    world.settings = replace(world.settings, namespaces=(Registry(), Registry(row)))
    world.bank.publish(endpoint="ai://bank/service/payments")
    found = world.discover_success("ai://bank/service/payments")
    assert (found.authority, found.anchor) == ("bank", world.bank.origin)
    assert of(found, "registry").verdict is Verdict.WON
    # asked for by its host, the same document speaks for the same name
    assert world.discover_success().authority == "bank"
    # and keys that the registry does not name do not count
    other = Namespace(label="bank", anchor=world.bank.origin, keys=("A" * 43,))
    world.settings = replace(world.settings, namespaces=(Registry(other),))
    refused(world, "aiip.discovery-conflict", "bank")


def test_what_one_question_made_of_a_document_is_not_the_answer_to_another(world: World) -> None:
    row = Namespace(label="bank", anchor=world.bank.origin)
    world.settings = replace(world.settings, namespaces=(Registry(row),))
    world.bank.publish(endpoint="ai://bank/service/payments")
    by_uri = f"ai://{world.bank.authority}/service/payments"
    alone = refused(world, "aiip.discovery-conflict", by_uri)
    assert world.discover_success().authority == "bank"
    assert refused(world, "aiip.discovery-conflict", by_uri).message == alone.message
    assert world.discover_success().authority == "bank"
    # nor does a registry's word last longer than it says
    world.settings = replace(world.settings, namespaces=())
    refused(world, "aiip.discovery-conflict")


@pytest.mark.requirement("ai-namespaces-a")
def test_an_unknown_label_is_refused(world: World) -> None:
    found = world.discover("ai://bank/service/payments")
    assert of(found, "registry").verdict is Verdict.FAILED
    refused(world, "aiip.unknown-authority", "bank")


def test_a_registry_that_names_another_anchor_gives_this_one_nothing(world: World) -> None:
    row = Namespace(label="bank", anchor=world.sites["evil.test"].origin)
    world.settings = replace(world.settings, namespaces=(Registry(row),))
    world.bank.publish(endpoint="ai://bank/service/payments")
    refused(world, "aiip.discovery-conflict")


def test_a_path_without_authority_needs_a_context(world: World) -> None:
    refused(world, "aiip.unknown-authority", "ai:/agent/forklift-42")
    row = Namespace(label="_", anchor=world.bank.origin)
    world.settings = replace(world.settings, contexts={"/agent/": row})
    world.bank.publish(endpoint="ai:/agent/forklift-42")
    found = world.discover_success("ai:/agent/forklift-42?task=load")
    assert found.authority == "_"
    assert of(found, "context").verdict is Verdict.WON


def test_an_authority_without_keys_is_refused_whatever_it_says_of_signatures(world: World) -> None:
    world.bank.publish(policy={"requireSignedResults": False})
    world.bank.put(KEYS, json.dumps({"keys": []}), "application/json")
    refused(world, "aiip.discovery-conflict")


@pytest.mark.parametrize(
    ("service", "connect"),
    [
        ("https://bank.test/v1", Origin("https", "aiip.bank.test", 8443)),
        # DNS speaks for the authority's own host
        ("https://elsewhere.test", None),
    ],
)
def test_a_discovery_tells_where_to_connect(service: str, connect: Origin | None) -> None:
    """By hand: the servers of these tests have ports, and SRV records are for names without."""
    key = SigningKey.generate("Ed25519").with_thumbprint().public()
    jwks = "https://bank.test" + KEYS
    bodies = {
        DOCUMENT: json.dumps({"jwks": jwks, "service": service}).encode(),
        KEYS: json.dumps({"keys": [key]}).encode(),
    }
    table = {("_aiip._tcp.bank.test", "SRV"): srv(8443, "aiip.bank.test")}
    found = by_hand(discover_authority("bank.test", ResolverSettings()), bodies, table)
    assert found.refusal is None
    assert found.connect == connect


class CountedPins(MemoryPins):
    """Counts the documents that were checked."""

    checks = 0

    def check(self, authority: str, document: AnchorDocument, kids: Collection[str], at: float) -> None:
        self.checks += 1
        super().check(authority, document, kids, at)


def test_an_authority_is_put_together_once_a_second(world: World) -> None:
    pins = CountedPins()
    settings = replace(world.settings, dns=False, pins=pins)
    uri = AIURI.parse(world.bank.uri)
    first = world.run(resolve_uri(uri, settings))
    assert world.run(resolve_uri(uri, settings)) == first
    other = world.run(resolve_uri(AIURI.parse(f"ai://{world.bank.authority}/other?a=1"), settings))
    assert (other.document, other.entry, str(other.uri.query)) == (first.document, first.entry, "a=1")
    assert pins.checks == 1
    # another caller's requirements and pins are not those of the first
    strict = replace(settings, floor=Requirements(mtls=True))
    assert world.run(resolve_uri(uri, strict)).document.requirements.mtls
    assert not world.run(resolve_uri(uri, settings)).document.requirements.mtls
    assert pins.checks == 3
    world.clock.at += 1.5
    world.run(resolve_uri(uri, settings))
    assert pins.checks == 4
    world.clock.at -= 100
    world.run(resolve_uri(uri, settings))
    assert pins.checks == 5


def test_keys_that_were_renewed_are_used_at_once(world: World) -> None:
    settings, uri = replace(world.settings, dns=False), AIURI.parse(world.bank.uri)
    found = world.run(resolve_uri(uri, settings))
    new = SigningKey.generate("Ed25519").with_thumbprint()
    world.bank.publish_keys(world.bank.key, new)
    world.run(renew_keys(found, settings))
    assert world.run(resolve_uri(uri, settings)).keys.kids == found.keys.kids | {new.kid}


@pytest.mark.parametrize("field", ["no-cache", "no-store"])
def test_a_document_that_must_be_revalidated_is_not_kept(world: World, field: str) -> None:
    settings, uri = replace(world.settings, dns=False), AIURI.parse(world.bank.uri)
    world.bank.publish(cache_control=field)
    for times in (1, 2, 3):
        world.run(resolve_uri(uri, settings))
        assert world.bank.count(DOCUMENT) == times
