"""The binding read line by line against what is served: numbers, order, and what the rooms do together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_factory import NAME, Factory, resources
from ai_support import (
    PATIENCE,
    Line,
    ai_policy,
    authority_ca,
    key_store,
    names_resolver,
    serve_authority,
    trust,
)
from discovery_support import KEYS, Clock, World, by_hand, srv, world_of
from gateway_support import world
from net_support import Authority, Server, answering
from oauth_support import RESOURCE, authorization, hand_issuer
from onym.ai import AIClient, ResolverSettings, client_flows, settings
from onym.ai.client import TLS
from onym.ai.discovery import pointers
from onym.ai.discovery.resolution import renew_keys, resolve_uri
from onym.ai.discovery.well_known import fetch_keys
from onym.ai.discovery_document import MAX_OCTETS, parse_discovery_document
from onym.ai.endpoint import Answer, Call, Endpoint, StreamEvent
from onym.ai.endpoint.context import AccessRequest
from onym.ai.endpoint.idempotency import RETENTION_SECONDS
from onym.ai.endpoint.kinds import Completed, model
from onym.ai.endpoint.signing import LIFE
from onym.ai.messages import CODES
from onym.ai.records import Auth, Invocation, Namespace, Requirements
from onym.ai.settings import MemoryPins
from onym.errors import AIIPError, DiscoveryError, ProvenanceError
from onym.net.config import NetConfig
from onym.net.messages import Wait
from onym.net.policy import Policy
from onym.net.transport import Transport, run_flow
from onym.sign import keys as key_sets
from onym.sign import receipts
from onym.sign.keys import RECEIPT_ALGORITHMS, SigningKey, decode_base64url
from onym.uri.ai import AIURI, MAX_CANONICAL_LENGTH
from support import as_subtests

Fill = Callable[[Endpoint], object]


@contextmanager
def factory_of(folder: Path, fill: Fill, *, keys: Any = None, **options: Any) -> Iterator[Factory]:
    """An authority of its own for one test."""
    ca, store = authority_ca(), keys or key_store(folder)

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=store, store=folder / "keys.sqlite", **options)
        fill(app)
        return app

    with serve_authority(make, NAME, ca=ca) as (app, authority):
        yield Factory(app, authority, store, folder, ca)


def plain(app: Endpoint) -> None:
    resources(app, [])


def old_keys(folder: Path) -> Any:
    """Keys that were there before any of these clocks."""
    return key_store(folder, at=time.time() - 7200)


def line(factory: Factory) -> Line:
    return Line(factory.authority, factory.ca)


# the numbers


NUMBERS: dict[str, tuple[Any, Any]] = {
    "3.2 anchor document": (MAX_OCTETS, 64 * 1024),
    "3.2, 3.9 lifetimes": ((settings.SHORTEST_LIFE, settings.LONGEST_LIFE), (60, 24 * 3600)),
    "3.2 negative answers": (settings.NEGATIVE_LIFE, 60),
    "3.3 rule 4": ((pointers.MAX_LINKS, pointers.MAX_LINK_BYTES), (64, 16 * 1024)),
    "3.3 rule 5": (pointers.MAX_PAGE_BYTES, 512 * 1024),
    "3.4 length": (MAX_CANONICAL_LENGTH, 2048),
    "3.5 no authority": ("_", "_"),
    "3.8 step 1": (receipts.MAX_RECEIPT, 4 * 1024),
    "3.8 step 3": (receipts.DEFAULT_ALGORITHMS, ("Ed25519", "ES256")),
    "3.8 exp - iat": (receipts.MAX_LIFE, 300),
    "3.8 iat": (key_sets.LEEWAY, 60),
    "3.8 types": ((receipts.RECEIPT, receipts.GATEWAY), ("aiip-receipt+jwt", "aiip-gateway+jwt")),
    "3.9 set": ((key_sets.MAX_AUTHORITY_KEY_SET, key_sets.MAX_AUTHORITY_KEYS), (64 * 1024, 20)),
    "3.9 default lifetime": (settings.DEFAULT_LIFE, 600),
    "3.9 algorithms": (set(RECEIPT_ALGORITHMS), {"Ed25519", "ES256", "PS256", "ES384"}),
    "3.11 kept": (RETENTION_SECONDS, 24 * 3600),
}


@as_subtests("clause", NUMBERS)
def test_a_number_is_that_of_the_binding(clause: str) -> None:
    ours, said = NUMBERS[clause]
    assert ours == said


def test_a_receipt_is_signed_for_less_than_the_longest_life_and_a_pin_ends() -> None:
    assert 0 < LIFE < receipts.MAX_LIFE
    assert settings.MAX_PIN_SECONDS > 0


#: 3.7: the codes of the binding, with the status that it names for some
STATUSES = {
    "malformed-uri": 400, "non-canonical-uri": 400, "unknown-authority": 404, "discovery-conflict": None,
    "downgrade-detected": None, "unconfirmed-origin": None, "endpoint-unknown": 404,
    "provenance-missing": 502, "provenance-invalid": 502, "provenance-stale": 502,
    "receipt-unavailable": 501, "policy-denied": 403, "approval-required": 403, "approval-mismatch": 403,
    "insufficient-scope": 403, "step-up-required": 401, "sender-constraint": None,
    "idempotency-required": 400, "idempotency-in-progress": 409, "idempotency-mismatch": 422,
    "task-not-found": 404, "task-not-cancelable": None, "upstream-timeout": 504,
    "upstream-unreachable": 502, "blocked-address": 502, "too-large": 413,
}  # fmt: skip


@as_subtests("name", STATUSES)
def test_every_code_of_the_binding_is_there(name: str) -> None:
    assert STATUSES[name] in {None, CODES[name].status}


# one body, one reading


TWICE = [
    b'{"amount": 1, "amount": 1000}',
    b'{"amount": 1000, "amount": 1}',
    b'{"amount": 1, "\\u0061mount": 1000}',
    b'{"amount": 1, "more": {"a": 1, "a": 2}}',
    b'{"amount": NaN}',
]


@pytest.mark.parametrize("body", TWICE)
def test_a_body_with_a_member_twice_reaches_neither_policy_nor_function(tmp_path: Path, body: bytes) -> None:
    done: list[int] = []

    def fill(app: Endpoint) -> None:
        @app.resource("/pay", effects="financial")
        def pay(amount: int) -> int:
            done.append(amount)
            return amount

    few = 'permit(principal, action == Action::"financial", resource) when { context.input.amount <= 100 };'
    with factory_of(tmp_path, fill, policy=few) as factory, line(factory) as wire:
        fields = (("Content-Type", "application/json"), ("Idempotency-Key", '"k-1"'))
        heard = wire.ask("POST", "/pay", body, *fields)
        assert (heard.status, heard.json()["code"]) == (422, "invalid-input")
        assert heard.receipt is not None
        assert not done
        # and the key is free
        assert wire.ask("POST", "/pay", b'{"amount": 1}', *fields).body == b"1"
    assert done == [1]


def test_a_signed_result_with_a_member_twice_is_not_read(tmp_path: Path) -> None:
    def fill(app: Endpoint) -> None:
        @app.resource("/twice")
        def twice() -> Answer:
            return Answer(body=b'{"to":"alice","to":"mallory"}')

    with factory_of(tmp_path, fill) as factory, factory.client() as client:
        result = client.invoke(factory.uri("/twice"))
        assert result.body == b'{"to":"alice","to":"mallory"}'
        with pytest.raises(ProvenanceError):
            result.json()


# requests


def test_a_digest_must_hold_where_there_is_no_body_too(tmp_path: Path) -> None:
    empty, other = receipts.content_digest(b""), receipts.content_digest(b"x")
    with factory_of(tmp_path, plain) as factory, line(factory) as wire:
        for method in ("GET", "HEAD", "OPTIONS"):
            assert wire.ask(method, "/tool/add", b"", ("Content-Digest", other)).status == 400
            heard = wire.ask(method, "/tool/add", b"", ("Content-Digest", empty))
            assert heard.status in {200, 204}
            assert heard.receipt is not None


def test_a_refusal_names_the_trace_of_the_caller(tmp_path: Path) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with factory_of(tmp_path, plain) as factory, line(factory) as wire:

        def told(value: str, path: str = "/none") -> Any:
            return wire.ask("POST", path, b"", ("traceparent", value)).json().get("trace")

        assert told(f"00-{trace}-00f067aa0ba902b7-01") == trace
        assert told(f"00-{trace}-00f067aa0ba902b7-01", "/tool/%61dd") == trace
        for odd in ("", "x", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{trace}<script>"):
            assert told(odd) is None


def test_a_resource_that_only_reads_may_ask_for_a_key_and_gets_one(tmp_path: Path) -> None:
    calls: list[int] = []

    def fill(app: Endpoint) -> None:
        @app.resource("/keyed", idempotency=True)
        def keyed(a: int) -> int:
            calls.append(a)
            return a

    with factory_of(tmp_path, fill) as factory, factory.client() as client:
        assert client.invoke(factory.uri("/keyed?a=1")).json() == 1
        again = [client.invoke(factory.uri("/keyed?a=2"), idempotency_key="k-1") for _ in range(2)]
        assert [each.replayed for each in again] == [False, True]
    assert calls == [1, 2]


class Edited:
    """An endpoint whose anchor document has other members instead."""

    def __init__(self, app: Endpoint, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.app = app
        self.edit = edit
        self.keys: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.keys += [value for name, value in scope.get("headers", ()) if name == b"idempotency-key"]
        if scope.get("raw_path") != b"/.well-known/aiip":
            await self.app(scope, receive, send)
            return
        document = self.edit(json.loads(self.app._site.encode_document()))
        fields = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})


def test_a_call_that_wants_an_approval_has_a_key(tmp_path: Path) -> None:
    """3.13: the member is read, because an approval is for one call, which its key names."""
    keys, ca = key_store(tmp_path), authority_ca()

    def approve(document: dict[str, Any]) -> dict[str, Any]:
        return document | {"endpoints": [each | {"approval": True} for each in document["endpoints"]]}

    def make(authority: str) -> Edited:
        app = Endpoint(authority, keys=keys)
        app.resource("/who")(one)
        return Edited(app, approve)

    with serve_authority(make, NAME, ca=ca) as (edited, authority):
        factory = Factory(edited.app, authority, keys, tmp_path, ca)
        with factory.client() as client:
            client.invoke(factory.uri("/who"))
    assert len(edited.keys) == 1


def test_a_description_of_another_media_type_is_none(tmp_path: Path) -> None:
    """3.8 step 8: what is signed as something else is not read as a description."""

    class Odd(Held):
        async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
            return Answer(body=b"{}")

    with factory_of(tmp_path, lambda app: app.add("/odd", Odd())) as factory, factory.client() as client:
        found = client.resolve(factory.uri("/odd"))
        uri = factory.uri("/odd")
        invocation = Invocation(uri=AIURI.parse(uri), method="GET", accept="application/aiip+json")
        result = run_flow(client_flows.run_exchange(client.session, invocation, found), client._transport)
        assert client_flows.parse_description(result, uri).uri == uri
        with pytest.raises(ProvenanceError):
            client_flows.parse_description(replace(result, content_type="application/json"), uri)


def test_a_key_set_is_where_its_url_says_to_the_last_slash() -> None:
    octets = json.dumps({"jwks": "https://bank.test/keys/"}).encode()
    assert parse_discovery_document(octets, anchor="https://bank.test", authority="bank.test").jwks.endswith(
        "/keys/"
    )


@pytest.mark.parametrize(("status", "code"), [(304, None), (302, "aiip.upstream-redirect")])
def test_what_has_not_changed_is_a_signed_answer_and_no_redirect(
    tmp_path: Path, status: int, code: str | None
) -> None:
    """3.14 lets If-None-Match through, so its answer has to come back."""

    def fill(app: Endpoint) -> None:
        @app.resource("/kept")
        def kept() -> Answer:
            return Answer(status=status, content_type=None, headers=(("ETag", '"v1"'),))

    with factory_of(tmp_path, fill) as factory, factory.client() as client:
        if code is None:
            result = client.invoke(factory.uri("/kept"))
            assert (result.status, result.body, result.receipt.status) == (304, b"", 304)
        else:
            with pytest.raises(AIIPError) as caught:
                client.invoke(factory.uri("/kept"))
            assert caught.value.code == code


# receipts


@pytest.mark.parametrize("algorithm", ["ES384", "PS256"])
def test_an_authority_may_sign_with_the_optional_algorithms_if_it_says_so(
    tmp_path: Path, algorithm: str
) -> None:
    keys = key_store(tmp_path, algorithm=algorithm)
    with factory_of(tmp_path, plain, keys=keys) as factory, factory.client() as client:
        assert client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2}).json() == 3
        with line(factory) as wire:
            said = wire.ask("GET", "/.well-known/aiip", service=False).json()
    assert said["receipt_alg_values_supported"] == ["Ed25519", "ES256", algorithm]


def test_what_an_endpoint_says_of_algorithms_follows_its_keys(tmp_path: Path) -> None:
    with factory_of(tmp_path, plain) as factory, line(factory) as wire:

        def said() -> Any:
            document = wire.ask("GET", "/.well-known/aiip", service=False).json()
            return document["receipt_alg_values_supported"]

        assert said() == ["Ed25519", "ES256"]
        factory.keys.rotate(time.time(), algorithm="ES384")
        assert said() == ["Ed25519", "ES256", "ES384"]
        factory.app.sign_with(SigningKey.generate("PS256").with_thumbprint())
        assert said() == ["Ed25519", "ES256", "PS256"]


def test_a_receipt_of_an_algorithm_that_the_document_does_not_name_is_refused(tmp_path: Path) -> None:
    """12: who had a key of another kind in the set could else go on with it."""
    keys, ca = key_store(tmp_path), authority_ca()

    def make(authority: str) -> Edited:
        app = Endpoint(authority, keys=keys, store=tmp_path / "keys.sqlite")
        resources(app, [])
        return Edited(app, lambda document: document | {"receipt_alg_values_supported": ["ES256"]})

    with serve_authority(make, NAME, ca=ca) as (edited, authority):
        factory = Factory(edited.app, authority, keys, tmp_path, ca)
        with factory.client() as client, pytest.raises(ProvenanceError):
            client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("ahead", "holds"), [(-180, False), (-62, False), (-58, True), (58, True), (62, False), (3600, False)]
)
def test_a_clock_of_the_endpoint_may_be_off_by_a_minute(tmp_path: Path, ahead: int, holds: bool) -> None:
    """40: by more than that nothing it signs counts, in either direction."""
    at = time.time()
    with (
        factory_of(tmp_path, plain, keys=old_keys(tmp_path), clock=lambda: at + ahead) as factory,
        factory.client(ResolverSettings(dns=False, clock=Clock(at))) as client,
    ):
        if holds:
            assert client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2}).json() == 3
        else:
            with pytest.raises(ProvenanceError) as caught:
                client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})
            assert caught.value.code == "aiip.provenance-stale"


@pytest.mark.parametrize(("behind", "holds"), [(58, True), (62, False), (-58, True), (-62, False)])
def test_a_clock_of_the_client_may_be_off_by_a_minute(tmp_path: Path, behind: int, holds: bool) -> None:
    at = time.time()
    with factory_of(tmp_path, plain, keys=old_keys(tmp_path), clock=lambda: at) as factory:
        skewed = ResolverSettings(dns=False, clock=Clock(at - behind))
        with factory.client(skewed) as client:
            if holds:
                assert client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2}).json() == 3
            else:
                with pytest.raises(ProvenanceError):
                    client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})


def test_a_clock_that_jumps_back_brings_no_receipt_back(tmp_path: Path) -> None:
    """prov-067: an id that was seen is known, whatever the clock says since."""
    clock = Clock(time.time())
    with (
        factory_of(tmp_path, plain, keys=old_keys(tmp_path), clock=clock) as factory,
        factory.client(ResolverSettings(dns=False, clock=clock)) as client,
    ):
        result = client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2})
        seen = client.session.make_replay_check(result.resolution)
        identity = f"{receipts.get_kid(result.token)}.{result.receipt.id}"
        clock.at -= 30
        assert seen(identity, result.receipt.expires + 60)


# keys


@pytest.mark.requirement("ai-provenance-e")
def test_of_many_who_meet_a_new_key_one_asks_and_all_go_on(tmp_path: Path) -> None:
    """The old key is revoked while 16 requests are under way: none of them fails, and one look is enough."""
    ca, keys = authority_ca(), key_store(tmp_path)
    looks: list[str] = []
    posts: list[str] = []
    answered = asyncio.Semaphore(0)

    def make(authority: str) -> Any:
        app = Endpoint(authority, keys=keys, store=tmp_path / "keys.sqlite")
        resources(app, [])

        async def counted(scope: Any, receive: Any, send: Any) -> None:
            path = scope.get("path")
            looks.extend([path] if path == KEYS else [])
            if path == KEYS and len(looks) == 2:
                # this look is answered once everybody has met the new key
                await asyncio.wait_for(answered.acquire(), PATIENCE)
            await app(scope, receive, send)
            posts.extend([path] if scope.get("method") == "POST" else [])
            if len(posts) == 17:
                answered.release()

        return counted

    async def many(factory: Factory) -> list[Any]:
        async with factory.aclient() as client:
            await client.invoke(factory.uri("/tool/add"), {"a": 0, "b": 0})
            keys.revoke(str(keys.signer(time.time()).kid), time.time())
            return await asyncio.gather(
                *(client.invoke(factory.uri("/tool/add"), {"a": n, "b": n}) for n in range(16))
            )

    with serve_authority(make, NAME, ca=ca) as (_, authority):
        found = asyncio.run(many(Factory(None, authority, keys, tmp_path, ca)))  # type: ignore[arg-type]
    assert [each.json() for each in found] == [2 * n for n in range(16)]
    assert len(looks) == 2


def test_who_waits_for_anothers_look_does_not_wait_for_ever(tmp_path: Path) -> None:
    """A look that never ends leaves the others with the set that they have."""
    with sites(tmp_path) as world:
        settings = replace(world.settings, timeout=1.0)
        found = world.run(resolve_uri(AIURI.parse(world.bank.uri), settings))
        (key,) = (each for each in settings.cache._entries if each.startswith("keys "))  # type: ignore[attr-defined]
        kept = settings.cache.get(key)
        assert kept is not None
        settings.cache.put(key, replace(kept, refetched=world.clock.at, fetching=True))
        ended: list[Any] = []

        def whole() -> Iterator[Any]:
            ended.append((yield from fetch_keys(found.document, settings, renew=True)))

        steps = list(whole())
        assert {type(each) for each in steps} == {Wait}
        assert 1.0 <= sum(each.seconds for each in steps) < 1.2
        assert ended == [found.keys]


@contextmanager
def sites(folder: Path) -> Iterator[World]:
    with world_of(folder, "bank.test", "evil.test") as world:
        world.settings = ResolverSettings(clock=world.clock, dns=False)
        yield world


def test_what_a_caller_demands_is_not_held_against_the_authority_once_its_keys_are_renewed(
    tmp_path: Path,
) -> None:
    """The floor is the caller's own: the pin is of what was published."""
    with sites(tmp_path) as world:
        world.bank.publish(policy={"requireSignedResults": True}, pin_max_age=86_400)
        settings = replace(world.settings, floor=Requirements(mtls=True, auth=Auth.OAUTH2))
        found = world.run(resolve_uri(AIURI.parse(world.bank.uri), settings))
        assert found.document.requirements.mtls
        world.run(renew_keys(found, settings))
        again = world.run(resolve_uri(AIURI.parse(world.bank.uri), settings))
        assert again.document.requirements == found.document.requirements


def test_keys_are_renewed_for_a_resolution_that_is_older_than_what_its_authority_asks_for_now(
    tmp_path: Path,
) -> None:
    with sites(tmp_path) as world:
        world.bank.publish(pin_max_age=86_400)
        old = world.run(resolve_uri(AIURI.parse(world.bank.uri), world.settings))
        world.bank.publish(policy={"mtls": True}, pin_max_age=86_400)
        world.clock.at += 3600
        world.run(resolve_uri(AIURI.parse(world.bank.uri), world.settings))
        assert world.run(renew_keys(old, world.settings)).kids == old.keys.kids


def test_a_redirect_of_a_key_set_is_not_followed(tmp_path: Path) -> None:
    """prov-070."""
    with sites(tmp_path) as world:
        evil = world.sites["evil.test"]
        for place in (evil.origin + KEYS, f"http://{world.bank.authority}{KEYS}", "/elsewhere"):
            world.bank.put(KEYS, "", status=302, location=place)
            with pytest.raises(DiscoveryError) as caught:
                world.run(resolve_uri(AIURI.parse(world.bank.uri), world.settings))
            assert caught.value.code == "aiip.upstream-redirect"
        assert evil.asked == []
        assert not any(path == "/elsewhere" for path, _ in world.bank.asked)


def test_old_keys_are_not_used_where_new_ones_cannot_be_had(tmp_path: Path) -> None:
    """prov-075: a key that was revoked while the set cannot be read does not live on."""
    with sites(tmp_path) as world:
        asked = AIURI.parse(world.bank.uri)
        world.bank.publish(cache_control="max-age=86400")
        world.bank.publish_keys(world.bank.key, cache_control="max-age=999999999")
        world.run(resolve_uri(asked, world.settings))
        for status in (500, 503, 404):
            world.bank.put(KEYS, "", status=status)
            world.clock.at += 24 * 3600 - 1
            if status == 500:
                world.run(resolve_uri(asked, world.settings))
            world.clock.at += 2
            with pytest.raises(DiscoveryError):
                world.run(resolve_uri(asked, world.settings))


def test_two_ports_of_one_host_are_two_authorities(tmp_path: Path) -> None:
    """prov-076: what one of them says of itself is never taken for the other's word."""
    with contextlib.ExitStack() as stack:
        ca, made = authority_ca(), []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            keys = key_store(tmp_path / name)

            def make(authority: str, keys: Any = keys, name: str = name) -> Endpoint:
                app = Endpoint(authority, keys=keys)
                app.resource("/who")(FUNCTIONS[name])
                return app

            made.append((*stack.enter_context(serve_authority(make, NAME, ca=ca)), keys))
        policy = ai_policy(int(authority.partition(":")[2]) for _, authority, _ in made)
        wire = stack.enter_context(
            Transport(
                NetConfig(
                    policy=policy, resolver=names_resolver({NAME: "127.0.0.1"}), tls=trust(ca, tmp_path)
                )
            )
        )
        client = stack.enter_context(AIClient(ResolverSettings(dns=False), transport=wire))
        found = [client.invoke(f"ai://{authority}/who") for _, authority, _ in made]
        assert [each.body for each in found] == [b"one", b"two"]
        kids = [receipts.get_kid(each.token) for each in found]
        assert kids == [keys.signer(time.time()).kid for _, _, keys in made]
        # and where one signs with the other's key, under the cache that knows both, nothing comes out
        made[0][0].sign_with(Mixed(*(keys for _, _, keys in made)))
        with pytest.raises(ProvenanceError):
            client.invoke(f"ai://{made[0][1]}/who")


class Mixed:
    """Publishes its own keys, and signs with another's."""

    def __init__(self, own: Any, other: Any) -> None:
        self.jwks = own.jwks
        self.signer = other.signer


def one() -> str:
    return "one"


def two() -> str:
    return "two"


FUNCTIONS = {"one": one, "two": two}


def test_a_service_elsewhere_answers_with_the_anchors_keys_or_not_at_all(tmp_path: Path) -> None:
    """14: an authority may name another host, and stays who vouches for what comes from there."""
    with contextlib.ExitStack() as stack:
        ca, elsewhere = authority_ca(), list[str]()
        for name in ("bank", "evil"):
            (tmp_path / name).mkdir()

        def bank(authority: str) -> Edited:
            app = Endpoint(authority, keys=key_store(tmp_path / "bank"))
            app.resource("/who")(one)
            return Edited(app, lambda document: document | {"service": elsewhere[0]})

        _, authority = stack.enter_context(serve_authority(bank, NAME, ca=ca))

        def evil(other: str) -> Endpoint:
            app = Endpoint(authority, keys=key_store(tmp_path / "evil"), anchor=f"https://{other}")
            app.resource("/who")(one)
            return app

        _, other = stack.enter_context(serve_authority(evil, "evil.test", ca=ca))
        elsewhere.append(f"https://{other}/.well-known/aiip/v1")
        policy = ai_policy(int(each.partition(":")[2]) for each in (authority, other))
        names = names_resolver({NAME: "127.0.0.1", "evil.test": "127.0.0.1"})
        wire = stack.enter_context(
            Transport(NetConfig(policy=policy, resolver=names, tls=trust(ca, tmp_path)))
        )
        client = stack.enter_context(AIClient(ResolverSettings(dns=False), transport=wire))
        with pytest.raises(ProvenanceError):
            client.invoke(f"ai://{authority}/who")


INSIDE = [
    "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "224.0.0.1", "255.255.255.255", "192.0.0.8", "::1", "::", "fe80::1", "fd00:ec2::254", "ff02::1",
    "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "3fff::1", "5f00::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_a_name_that_leads_inside_is_not_connected_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """16: whatever DNS says of the authority, the policy for strangers' names looks at the address."""

    def connect(*_: object) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect)
    with (
        Transport(
            NetConfig(policy=Policy.untrusted(), resolver=names_resolver({"bank.example": address}))
        ) as wire,
        AIClient(ResolverSettings(dns=False), transport=wire) as client,
        pytest.raises(DiscoveryError) as caught,
    ):
        client.invoke("ai://bank.example/x")
    assert caught.value.code == "aiip.blocked-address"


def test_variables_of_a_proxy_lead_no_request_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """42."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with factory_of(tmp_path, plain) as factory, factory.client() as client:
        assert client.invoke(factory.uri("/tool/add"), {"a": 1, "b": 2}).json() == 3


def test_two_contexts_are_not_held_to_each_others_keys() -> None:
    """`ai:/path` has no authority, so what is pinned is what the anchor promised."""
    ones = {name: SigningKey.generate("Ed25519").with_thumbprint() for name in ("one", "two")}
    contexts = {f"/{name}": Namespace(label=name, anchor=f"https://{name}.test") for name in ones}
    settings = ResolverSettings(contexts=contexts, pins=MemoryPins(), dns=False)
    for name, key in ones.items():
        document = {"jwks": f"https://{name}.test{KEYS}", "pin_max_age": 3600}
        bodies = {
            "/.well-known/aiip": json.dumps(document).encode(),
            KEYS: json.dumps({"keys": [key.public()]}).encode(),
        }
        found = by_hand(resolve_uri(AIURI.parse(f"ai:/{name}/x"), settings), bodies, {})
        assert found.keys.kids == {key.kid}


@pytest.mark.parametrize(
    ("service", "leads"), [("https://bank.test/v1", True), ("https://elsewhere.test/v1", False)]
)
def test_dns_leads_to_the_service_of_the_anchors_own_host_alone(service: str, leads: bool) -> None:
    key = SigningKey.generate("Ed25519").with_thumbprint()
    bodies = {
        "/.well-known/aiip": json.dumps({"jwks": f"https://bank.test{KEYS}", "service": service}).encode(),
        KEYS: json.dumps({"keys": [key.public()]}).encode(),
    }
    table = {("_aiip._tcp.bank.test", "SRV"): srv(8443, "aiip.bank.test")}
    found = by_hand(resolve_uri(AIURI.parse("ai://bank.test/x"), ResolverSettings()), bodies, table)
    assert (found.connect is not None) is leads


def test_results_are_signed_whatever_an_authority_says() -> None:
    said = Requirements(signed_results=False)
    assert ResolverSettings(floor=said).apply_floor(said).signed_results


# what ends with an endpoint


class Held:
    """A handler, an authorization and a model that want to be closed."""

    def __init__(self, fails: bool = False) -> None:
        self.closed = 0
        self.fails = fails

    def metadata(self) -> dict[str, Any]:
        return {"resource": RESOURCE}

    async def authorize(self, request: AccessRequest) -> Any:
        raise AIIPError("no", code="aiip.authentication-required")

    def describe(self) -> dict[str, Any]:
        return {}

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        return Answer(body=b"1")

    async def complete(self, turns: Any, options: Any) -> Completed:
        return Completed(text="", model="m")

    def stream(self, turns: Any, options: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise RuntimeError("it would not")


def test_what_an_endpoint_holds_is_closed_with_it(tmp_path: Path, ca: trustme.CA) -> None:
    broken, shared, completer, door = Held(fails=True), Held(), Held(), Held()

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=key_store(tmp_path), authorization=door, anchor="https://bank.example")
        app.add("/broken", broken)
        app.add("/one", shared)
        app.add("/two", shared)
        app.add("/model", model(completer))
        app.add("/plain", model(Plain()))
        return app

    with serve_authority(make, NAME, ca=ca):
        assert not any(each.closed for each in (broken, shared, completer, door))
    assert [each.closed for each in (broken, shared, completer, door)] == [1, 1, 1, 1]


class Plain:
    """A completer that has nothing to close."""

    async def complete(self, turns: Any, options: Any) -> Completed:
        return Completed(text="", model="m")

    def stream(self, turns: Any, options: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def ca() -> trustme.CA:
    return authority_ca()


# tokens


class Door:
    """An authorization whose server is on plain HTTP here, and is not told of in the anchor document."""

    def __init__(self, inner: Any) -> None:
        self.authorize, self.close = inner.authorize, inner.close

    def metadata(self) -> dict[str, Any]:
        return {}


@pytest.mark.requirement("ai-provenance-a")
def test_a_token_with_too_few_scopes_is_refused_in_a_signed_answer(tmp_path: Path) -> None:
    """3.7: behind authentication everything is signed; the caller is known, and its receipt is made out."""

    def fill(app: Endpoint) -> None:
        @app.resource("/own", scopes=["agents:admin"])
        def own() -> str:
            return "mine"

    with hand_issuer() as issuer:
        door = Door(authorization(issuer))
        with factory_of(tmp_path, fill, authorization=door) as factory, line(factory) as wire:
            token = ("Authorization", f"Bearer {issuer.token()}")
            heard = wire.ask("POST", "/own", b"", token)
            assert (heard.status, heard.json()["code"]) == (403, "insufficient-scope")
            assert heard.receipt is not None
            assert 'scope="agents:admin"' in str(heard.get("www-authenticate"))
            # who is not known gets no signature
            assert wire.ask("POST", "/own").receipt is None


@pytest.mark.requirement("ai-privacy-d", "ai-privacy-e")
def test_a_receipt_names_no_person_and_not_what_was_asked(tmp_path: Path) -> None:
    """And the resource is content with its own scope, which is all that its challenge asks for."""

    def fill(app: Endpoint) -> None:
        app.resource("/other", scopes=["agents:admin"])(one)

        @app.resource("/own", scopes=["agents:read"])
        def own(word: str, more: str) -> str:
            return "mine"

    with hand_issuer() as issuer:
        token = issuer.token(scope="agents:read")
        door = Door(authorization(issuer))
        with factory_of(tmp_path, fill, authorization=door) as factory, line(factory) as wire:
            given = (("Authorization", f"Bearer {token}"), ("Content-Type", "application/json"))
            heard = wire.ask("POST", "/own?word=in-the-query", b'{"more":"in-the-body"}', *given)
            assert heard.status == 200
            claims = decode_base64url(str(heard.receipt).split(".")[1], "claims").decode()
            for secret in ("user-7", "in-the-query", "in-the-body", token, token.split(".")[1]):
                assert secret not in claims
            assert json.loads(claims)["ath"] == receipts.access_token_hash(token)
            assert 'scope="agents:read"' in str(wire.ask("POST", "/own").get("www-authenticate"))


# TLS


NONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.requirement("ai-gateway-j", "ai-security-e")
@pytest.mark.parametrize(("newest", "reached"), [("TLSv1_3", True), ("TLSv1_2", False)])
def test_an_authority_that_speaks_older_tls_is_not_asked(tmp_path: Path, newest: str, reached: bool) -> None:
    """12, 115: by the client as it is made, and by the gateway; nothing of a request leaves."""
    issuer = Authority()
    context = issuer.server("other.test")
    context.maximum_version = ssl.TLSVersion[newest]
    ours = issuer.trust(tmp_path)
    with Server(answering(NONE), tls=context) as server:
        name, names = f"other.test:{server.port}", names_resolver({"other.test": "127.0.0.1"})
        tls = replace(TLS, ca_files=ours.ca_files)
        with (
            Transport(NetConfig(policy=ai_policy([server.port]), resolver=names, tls=tls)) as wire,
            AIClient(ResolverSettings(dns=False), transport=wire) as client,
            pytest.raises(DiscoveryError) as caught,
        ):
            client.invoke(f"ai://{name}/x")
        assert caught.value.code == ("aiip.unknown-authority" if reached else "aiip.upstream-unreachable")
        with world(ca_files=ours.ca_files, ports=(server.port,)) as found:
            answer = found.at("GET", f"/gateway/{name}/x")
            assert answer.status == (404 if reached else 502)
        assert bool(server.requests) is reached
