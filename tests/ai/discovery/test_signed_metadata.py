"""`signed_metadata` of an anchor document: it wins where it holds, and where it does not nothing counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_factory import NAME, Factory, resources
from ai_support import authority_ca, key_store, serve_authority
from discovery_support import DOCUMENT, KEYS, World, world_of
from onym.ai.discovery.resolution import resolve_uri
from onym.ai.discovery.well_known import fetch_document, find_namespace
from onym.ai.discovery_document import (
    MAX_OCTETS,
    document_to_members,
    find_signed_metadata,
    parse_discovery_document,
)
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.signing import METADATA_LIFE
from onym.ai.records import AnchorDocument, Level, Namespace
from onym.ai.settings import ResolverSettings
from onym.errors import DiscoveryError, UsageError
from onym.sign.keys import SigningKey, read_authority_keys
from onym.sign.receipts import sign_metadata, verify_metadata
from onym.uri.ai import AIURI


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_of(tmp_path_factory.mktemp("ca"), "bank.test", "evil.test") as found:
        yield found


@pytest.fixture
def world(servers: World) -> World:
    return servers.anew()


def signed(world: World, key: SigningKey | None = None, *, life: float | None = None, **members: Any) -> str:
    at, bank = world.clock(), world.bank
    given = {"jwks": bank.origin + KEYS, **members}
    expires = None if life is None else at + life
    return sign_metadata(given, key or bank.key, issuer=bank.origin, issued=at, expires=expires)


def resolved(world: World) -> AnchorDocument:
    document = world.run(resolve_uri(AIURI.parse(world.bank.uri), world.settings)).document
    assert isinstance(document, AnchorDocument)
    return document


def refused(world: World, code: str = "aiip.discovery-conflict") -> str:
    with pytest.raises(DiscoveryError) as caught:
        resolved(world)
    assert caught.value.code == code
    assert world.discover().refusal is not None
    return caught.value.message


def test_what_is_signed_wins_over_what_stands_beside_it(world: World) -> None:
    token = signed(world, scopes=["signed"], policy={"dpop": "required"}, pin_max_age=60)
    world.bank.publish(signed_metadata=token, scopes=["plain"], origins=["https://shop.test"])
    found = resolved(world)
    assert found.scopes == ("signed",)
    assert found.requirements.dpop is Level.REQUIRED
    assert found.pin_max_age == 60
    assert found.origins == ("https://shop.test",)  # what is not signed stays as it is
    shown = world.discover_success().document
    assert shown is not None
    assert shown.scopes == ("signed",)


def test_a_signed_document_is_verified_once_a_minute(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    import onym.sign.receipts as metadata

    def counted(token: str, *args: Any, **given: Any) -> Any:
        seen.append(token)
        return verify_metadata(token, *args, **given)

    monkeypatch.setattr(metadata, "verify_metadata", counted)
    world.bank.publish(signed_metadata=signed(world))
    for _ in range(3):
        resolved(world)
    assert len(seen) == 1
    world.clock.at += 61
    resolved(world)
    assert len(seen) == 2
    assert world.bank.count(DOCUMENT) == 1


def test_a_document_that_another_authority_signed_is_refused(world: World) -> None:
    evil = world.sites["evil.test"]
    world.bank.publish(signed_metadata=sign_metadata({}, world.bank.key, issuer=evil.origin, issued=1.0))
    assert "another anchor" in refused(world)


def test_a_signature_of_a_stranger_is_refused_after_one_more_look_at_the_keys(world: World) -> None:
    world.bank.publish(signed_metadata=signed(world, world.sites["evil.test"].key))
    assert "signed_metadata" in refused(world)
    assert world.bank.count(KEYS) == 2


def test_a_new_key_is_found_by_one_more_look(world: World) -> None:
    resolved(world)
    new = SigningKey.generate("Ed25519").with_thumbprint()
    world.bank.publish_keys(world.bank.key, new)
    world.bank.publish(signed_metadata=signed(world, new, scopes=["new"]))
    world.clock.at += 601  # the document's time is over; both are asked for
    assert resolved(world).scopes == ("new",)


def test_what_has_expired_is_asked_for_again_before_it_is_refused(world: World) -> None:
    world.bank.publish(signed_metadata=signed(world, life=30, scopes=["old"]))
    assert resolved(world).scopes == ("old",)
    world.clock.at += 31
    world.bank.publish(signed_metadata=signed(world, life=30, scopes=["new"]))
    assert resolved(world).scopes == ("new",)
    world.clock.at += 31
    assert "expired" in refused(world)
    world.bank.publish()
    assert resolved(world).scopes == ()  # as soon as its owner has mended it


def test_what_holds_is_not_used_past_its_end(world: World) -> None:
    world.bank.publish(signed_metadata=signed(world, life=10))
    resolved(world)
    world.clock.at += 10
    assert "expired" in refused(world)


@pytest.mark.parametrize("value", [None, 5, "", "a.b.c", "é", [], {"iss": "x"}])
def test_what_is_no_token_spoils_the_document(world: World, value: Any) -> None:
    world.bank.publish(signed_metadata=value)
    assert "signed_metadata" in refused(world)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"jwks": "https://bank.test/other.json"}, "another key set"),
        ({"jwks": "https://evil.test/keys.json"}, "another key set"),
        ({"jwks": None}, "another key set"),
        ({"signed_metadata": "a.b.c"}, "another signed_metadata"),
        ({"endpoint": "ai://evil.test/pay"}, "the document is for"),
        ({"endpoints": [{"uri": "ai://evil.test/pay"}]}, "the document is for"),
        ({"service": "http://bank.test/"}, "https"),
        ({"versions": ["2"]}, "versions"),
        ({"scopes": "all"}, "scopes"),
    ],
)
def test_a_signature_moves_no_trust(world: World, members: dict[str, Any], said: str) -> None:
    world.bank.publish(signed_metadata=signed(world, **members))
    assert said in refused(world)


def test_a_weaker_document_is_a_downgrade_signed_or_not(world: World) -> None:
    world.bank.publish(signed_metadata=signed(world, policy={"mtls": True}, pin_max_age=3600))
    resolved(world)
    world.bank.publish()
    world.clock.at += 601
    refused(world, "aiip.downgrade-detected")


def test_a_registry_says_which_key_may_sign_a_document(world: World) -> None:
    other = SigningKey.generate("ES256").with_thumbprint()
    world.bank.publish_keys(world.bank.key, other)

    class Names:
        def find(self, label: str, at: float) -> Namespace | None:
            return Namespace(label="bank", anchor=world.bank.origin, keys=(str(world.bank.key.kid),))

    settings = ResolverSettings(clock=world.clock, namespaces=(Names(),))
    row = {"endpoint": "ai://bank/pay"}
    world.bank.publish(**row, signed_metadata=signed(world, scopes=["ours"]))
    assert world.run(resolve_uri(AIURI.parse("ai://bank/pay"), settings)).document.scopes == ("ours",)
    assert world.run(fetch_document(find_namespace("bank", settings), settings)).scopes == ("ours",)
    world.clock.at += 601
    world.bank.publish(**row, signed_metadata=signed(world, other, scopes=["theirs"]))
    for flow in (
        resolve_uri(AIURI.parse("ai://bank/pay"), settings),
        fetch_document(find_namespace("bank", settings), settings),
    ):
        with pytest.raises(DiscoveryError) as refusal:
            world.run(flow)
        found = (refusal.value.code, refusal.value.clause)
        assert found == ("aiip.discovery-conflict", "AIIP/HTTPS v1 3.2, signed_metadata")


def test_a_host_that_speaks_for_a_registry_name_has_the_keys_that_the_registry_allows(world: World) -> None:
    other = SigningKey.generate("ES256").with_thumbprint()
    world.bank.publish_keys(world.bank.key, other)
    world.bank.publish(endpoint="ai://bank/pay")
    own = Namespace(label="bank", anchor=world.bank.origin, keys=(str(world.bank.key.kid),))

    class Names:
        def find(self, label: str, at: float) -> Namespace | None:
            return own if label == "bank" else None

    world.settings = ResolverSettings(clock=world.clock, namespaces=(Names(),))
    found = world.discover()
    assert (found.authority, found.kids) == ("bank", (world.bank.key.kid,))


# the other side: an endpoint that signs


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    folder = tmp_path_factory.mktemp("signing")
    keys, ca = key_store(folder), authority_ca()

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=keys, store=folder / "keys.sqlite", signed_metadata=True)
        resources(app, [])
        return app

    with serve_authority(make, NAME, ca=ca) as (app, authority):
        yield Factory(app, authority, keys, folder, ca)


def test_an_endpoint_that_signs_its_document_is_invoked_as_ever(signing: Factory) -> None:
    with signing.client() as client:
        result = client.invoke(signing.uri("/tool/add"), {"a": 1, "b": 2})
    assert result.json() == 3
    with signing.client() as client:
        document = client.resolve(signing.uri("/tool/add")).document
    assert document == result.resolution.document


def test_what_an_endpoint_signs_is_what_it_publishes(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    store = key_store(tmp_path, at=now[0])
    app = Endpoint("bank.test", keys=store, signed_metadata=True, clock=lambda: now[0])

    def published() -> tuple[bytes, AnchorDocument]:
        octets = app._site.encode_published(app._exchanges.signing)
        return octets, parse_discovery_document(octets, anchor="https://bank.test", authority="bank.test")

    app.resource("/a")(published)
    first, document = published()
    keys = read_authority_keys(store.jwks(now[0]))
    said = verify_metadata(str(find_signed_metadata(first)), keys, issuer=app.anchor, at=now[0])
    plain = json.loads(first)
    del plain["signed_metadata"]
    assert said.members == plain == document_to_members(document)
    assert said.expires == now[0] + METADATA_LIFE
    now[0] += METADATA_LIFE / 2 - 1
    assert published()[0] == first
    now[0] += 1
    assert published()[0] != first
    again = published()[0]
    app.resource("/b")(published)
    assert published()[0] != again
    again = published()[0]
    store.revoke(str(said.kid), now[0])
    found = published()
    assert found[0] != again
    verify_metadata(
        str(find_signed_metadata(found[0])),
        read_authority_keys(store.jwks(now[0])),
        issuer=app.anchor,
        at=now[0],
    )


def test_an_endpoint_without_a_key_publishes_no_document_that_should_be_signed() -> None:
    import asyncio

    app = Endpoint("bank.test", signed_metadata=True)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": DOCUMENT.encode(),
        "query_string": b"",
        "headers": [(b"host", b"bank.test")],
    }
    asyncio.run(app(scope, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 501


def test_a_document_has_room_for_its_signature(tmp_path: Path) -> None:
    store = key_store(tmp_path)
    app = Endpoint("bank.test", keys=store, signed_metadata=True)

    def fill() -> None:
        for number in range(600):
            app.resource(f"/{number}", title="x" * 500)(lambda: None)

    with pytest.raises(UsageError) as refusal:
        fill()
    assert isinstance(refusal.value.__cause__, DiscoveryError)
    assert 0 < len(app.resources) < 600
    octets = app._site.encode_published(app._exchanges.signing)
    assert MAX_OCTETS * 3 // 4 < len(octets) <= MAX_OCTETS
