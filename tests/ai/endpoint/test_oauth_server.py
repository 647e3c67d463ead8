"""What an endpoint believes of its authorization server, and how often it asks (RFC 8414, RFC 9728)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from oauth_support import METADATA, RESOURCE, HandIssuer, access, authorization, bearer, hand_issuer, run
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.ai.oauth_metadata import make_metadata_url, parse_url
from onym.errors import AIIPError, UsageError
from onym.net.policy import Policy
from onym.sign.keys import SigningKey
from onym.testing import FakeClock
from support import as_subtests


def is_invalid_token(error: AIIPError) -> bool:
    challenge = 'error="invalid_token"' in str(error.challenge)
    return (error.code, challenge) == ("aiip.authentication-required", True)


NONE: frozenset[str] = frozenset()


@pytest.fixture
def server() -> Iterator[HandIssuer]:
    with hand_issuer() as found:
        yield found


def unavailable(server: HandIssuer, **settings: Any) -> AIIPError:
    async def work() -> None:
        guard = authorization(server, **settings)
        try:
            await guard.authorize(access(bearer(server.token()), NONE))
        finally:
            await guard.close()

    with pytest.raises(AIIPError) as found:
        run(work())
    assert (found.value.code, found.value.status, found.value.retryable) == ("aiip.unavailable", 503, True)
    return found.value


@pytest.mark.parametrize(
    ("identifier", "name", "url"),
    [
        (
            "https://a.example",
            "oauth-authorization-server",
            "https://a.example/.well-known/oauth-authorization-server",
        ),
        ("https://a.example/", "x", "https://a.example/.well-known/x"),
        ("https://a.example/tenant/1", "x", "https://a.example/.well-known/x/tenant/1"),
        ("https://a.example:8443/t", "x", "https://a.example:8443/.well-known/x/t"),
    ],
)
def test_the_well_known_part_is_inserted_before_the_path(identifier: str, name: str, url: str) -> None:
    assert make_metadata_url(identifier, name) == url


def test_the_metadata_of_the_resource_names_it_and_its_server_and_no_more() -> None:
    guard = JWTAuthorization("https://login.example", RESOURCE, scopes=["b", "a", "b"])
    assert guard.metadata() == {
        "resource": RESOURCE,
        "authorization_servers": ["https://login.example"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["a", "b"],
        "dpop_signing_alg_values_supported": ["ES256", "Ed25519"],
    }
    assert guard.metadata_url == (
        "https://bank.example/.well-known/oauth-protected-resource/.well-known/aiip/v1"
    )
    assert "scopes_supported" not in JWTAuthorization("https://login.example", RESOURCE).metadata()


@as_subtests(
    "url",
    [
        "login.example",
        "ftp://a.example",
        "https://",
        "https://a.example?x",
        "https://a.example#f",
        'https://a.example/"',
        "https://u@a.example",
        "https://a.example:0",
        "https://a.example:99999",
        "https://a.example/" + "a" * 2100,
    ],
)
def test_an_issuer_is_an_https_url_without_query_and_fragment(url: str) -> None:
    for issuer, resource in ((url, RESOURCE), ("https://login.example", url)):
        with pytest.raises(UsageError):
            JWTAuthorization(issuer, resource)


@pytest.mark.parametrize("scopes", ["agents:invoke", ["a b"], ['a"'], [""]])
def test_a_scope_is_a_text_without_spaces_and_quotes(scopes: Any) -> None:
    with pytest.raises(UsageError):
        JWTAuthorization("https://login.example", RESOURCE, scopes=scopes)


def test_a_url_is_split_into_origin_and_target() -> None:
    origin, target = parse_url("http://[::1]:8080/a?b")
    assert (str(origin), target) == ("http://[::1]:8080", "/a?b")
    with pytest.raises(UsageError):
        parse_url("https://a.example/%")


METADATA_THAT_LIES = {
    "another issuer": {"issuer": "https://evil.example"},
    "an issuer with a slash more": {"issuer": "slash"},
    "no issuer": {"issuer": None},
    "no keys": {"jwks_uri": None},
    "keys in a file": {"jwks_uri": "file:///etc/passwd"},
    "keys with a password": {"jwks_uri": "https://u:p@127.0.0.1/jwks"},
    "keys in a list": {"jwks_uri": ["https://a.example/jwks"]},
}


@pytest.mark.parametrize("case", METADATA_THAT_LIES)
def test_metadata_with(server: HandIssuer, case: str) -> None:
    changes = METADATA_THAT_LIES[case]
    if changes.get("issuer") == "slash":
        changes = {"issuer": server.issuer + "/"}
    server.answers[METADATA] = (200, server.metadata(**changes), [])
    assert unavailable(server).clause == "RFC 8414 3"
    assert server.asked["/jwks"] == 0


BROKEN: dict[str, tuple[str, tuple[int, bytes, list[tuple[bytes, bytes]]]]] = {
    "metadata that is not there": (METADATA, (404, b"", [])),
    "metadata that is a redirect": (METADATA, (302, b"", [(b"location", b"/jwks")])),
    "metadata that is no JSON": (METADATA, (200, b"<html>", [])),
    "metadata that names its issuer twice": (METADATA, (200, b'{"issuer":"a","issuer":"b"}', [])),
    "metadata without end": (METADATA, (200, b" " * 70_000, [])),
    "keys that are not there": ("/jwks", (500, b"", [])),
    "keys that are a redirect": ("/jwks", (307, b"", [(b"location", b"http://169.254.169.254/")])),
    "keys that are no set": ("/jwks", (200, b"[]", [])),
    "keys that are private": ("/jwks", (200, b'{"keys":[{"kty":"EC","d":"AA"}]}', [])),
    "keys that are shared": ("/jwks", (200, b'{"keys":[{"kty":"oct","k":"AA"}]}', [])),
    "keys without end": ("/jwks", (200, b" " * 300_000, [])),
    "keys beyond all bounds": ("/jwks", (200, b" " * 600_000, [])),
}


@pytest.mark.parametrize("case", BROKEN)
def test_nobody_gets_in_by(server: HandIssuer, case: str) -> None:
    path, answer = BROKEN[case]
    server.answers[path] = answer
    unavailable(server)


def test_the_policy_of_the_network_holds_for_the_server(server: HandIssuer) -> None:
    unavailable(server, policy=Policy.trusted())
    assert not server.asked


def test_keys_that_the_policy_does_not_let_through_are_not_asked_for(server: HandIssuer) -> None:
    server.answers[METADATA] = (200, server.metadata(jwks_uri="http://169.254.169.254/latest/meta-data"), [])
    unavailable(server)


def guard_with_clock(server: HandIssuer) -> tuple[JWTAuthorization, FakeClock]:
    clock = FakeClock()
    return authorization(server, monotonic=clock.monotonic), clock


def test_keys_are_asked_for_once_by_many_callers_at_the_same_time(server: HandIssuer) -> None:
    async def work() -> None:
        guard, _ = guard_with_clock(server)
        await asyncio.gather(*(guard.authorize(access(bearer(server.token()), NONE)) for _ in range(16)))
        await guard.close()

    run(work())
    assert server.asked == {METADATA: 1, "/jwks": 1}


@pytest.mark.parametrize(
    ("control", "seconds"),
    [
        (None, 600),
        (b"max-age=0", 60),
        (b"public, max-age=120", 120),
        (b"max-age=99999999", 86400),
        (b"no-store", 600),
    ],
)
def test_keys_are_good_for_as_long_as_the_server_says_within_bounds(
    server: HandIssuer, control: bytes | None, seconds: int
) -> None:
    headers = [] if control is None else [(b"cache-control", control)]
    server.answers["/jwks"] = (200, json.dumps({"keys": server.published}).encode(), headers)

    async def work() -> None:
        guard, clock = guard_with_clock(server)
        for after, asked in ((0, 1), (seconds - 1, 1), (1, 2)):
            clock.advance(after)
            await guard.authorize(access(bearer(server.token()), NONE))
            assert server.asked["/jwks"] == asked
        await guard.close()

    run(work())


def test_a_new_key_is_found_at_once_and_random_ones_cost_one_question_a_minute(server: HandIssuer) -> None:
    async def work() -> None:
        guard, clock = guard_with_clock(server)
        await guard.authorize(access(bearer(server.token()), NONE))
        new = SigningKey.generate("ES256", kid="second")
        server.published.append(new.public())
        await guard.authorize(access(bearer(server.token(key=new)), NONE))
        assert server.asked["/jwks"] == 2
        for number in range(20):
            stranger = SigningKey.generate("ES256", kid=f"random-{number}")
            with pytest.raises(AIIPError, check=is_invalid_token):
                await guard.authorize(access(bearer(server.token(key=stranger)), NONE))
        assert server.asked["/jwks"] == 2
        clock.advance(60)
        with pytest.raises(AIIPError):
            await guard.authorize(access(bearer(server.token(key=stranger)), NONE))
        assert server.asked["/jwks"] == 3
        await guard.close()

    run(work())


def test_a_new_key_without_a_name_is_found_and_forgeries_cost_one_question_a_minute(
    server: HandIssuer,
) -> None:
    def nameless() -> SigningKey:
        key = SigningKey.generate("ES256")
        server.published[:] = [key.public()]
        return key

    async def work() -> None:
        guard, clock = guard_with_clock(server)
        server.key = nameless()
        await guard.authorize(access(bearer(server.token()), NONE))
        server.key = nameless()
        await guard.authorize(access(bearer(server.token()), NONE))
        assert server.asked["/jwks"] == 2
        forged = SigningKey.generate("ES256")
        for _ in range(20):
            with pytest.raises(AIIPError, check=is_invalid_token):
                await guard.authorize(access(bearer(server.token(key=forged)), NONE))
        assert server.asked["/jwks"] == 2
        clock.advance(60)
        # a name that is known and a signature that is not: nothing newer would help
        named = SigningKey.generate("ES256", kid="first")
        server.published[:] = [server.key.public(), SigningKey.generate("ES256", kid="first").public()]
        with pytest.raises(AIIPError):
            await guard.authorize(access(bearer(server.token(key=forged)), NONE))
        assert server.asked["/jwks"] == 3
        clock.advance(60)
        with pytest.raises(AIIPError, check=is_invalid_token):
            await guard.authorize(access(bearer(server.token(key=named)), NONE))
        assert server.asked["/jwks"] == 3
        await guard.close()

    run(work())


@pytest.mark.parametrize("algorithms", [("ES384",), ("HS256",), ["ES256", "none"], "RS256", ()])
def test_algorithms_that_would_refuse_every_token_are_refused_themselves(algorithms: Any) -> None:
    with pytest.raises(UsageError) as refusal:
        JWTAuthorization("https://login.example", RESOURCE, algorithms=algorithms)
    assert refusal.value.code == "usage.bad-argument"


def test_a_key_that_was_withdrawn_is_forgotten_when_its_time_is_over(server: HandIssuer) -> None:
    async def work() -> None:
        guard, clock = guard_with_clock(server)
        old = bearer(server.token())
        await guard.authorize(access(old, NONE))
        server.published[:] = [SigningKey.generate("ES256", kid="second").public()]
        clock.advance(600)
        with pytest.raises(AIIPError, check=is_invalid_token):
            await guard.authorize(access(old, NONE))
        await guard.close()

    run(work())


def test_keys_are_not_used_beyond_their_time_when_the_server_is_down(server: HandIssuer) -> None:
    async def work() -> None:
        guard, clock = guard_with_clock(server)
        await guard.authorize(access(bearer(server.token()), NONE))
        server.answers["/jwks"] = (503, b"", [])
        clock.advance(600)
        for _ in range(5):
            with pytest.raises(AIIPError) as found:
                await guard.authorize(access(bearer(server.token()), NONE))
            assert found.value.code == "aiip.unavailable"
        # those who came after the first were not sent to a server that is down
        assert server.asked["/jwks"] == 2
        del server.answers["/jwks"]
        clock.advance(5)
        await guard.authorize(access(bearer(server.token()), NONE))
        await guard.close()

    run(work())


def test_who_has_a_known_key_is_served_while_a_new_one_is_looked_for_in_vain(server: HandIssuer) -> None:
    async def work() -> None:
        guard, _ = guard_with_clock(server)
        await guard.authorize(access(bearer(server.token()), NONE))
        server.answers["/jwks"] = (503, b"", [])
        stranger = SigningKey.generate("ES256", kid="random")
        with pytest.raises(AIIPError) as found:
            await guard.authorize(access(bearer(server.token(key=stranger)), NONE))
        assert found.value.code == "aiip.unavailable"
        await guard.authorize(access(bearer(server.token()), NONE))
        await guard.close()

    run(work())


def test_metadata_is_asked_for_again_after_an_hour(server: HandIssuer) -> None:
    async def work() -> None:
        guard, clock = guard_with_clock(server)
        for after, asked in ((0, 1), (3599, 1), (601, 2)):
            clock.advance(after)
            await guard.authorize(access(bearer(server.token()), NONE))
            assert server.asked[METADATA] == asked
        await guard.close()

    run(work())
