"""Attacks on sign-in, sessions and sign-out (gateway, rows 43 to 53 and 104), against a running gateway.

The provider here is one that lies; what it signs is signed with the key that it publishes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import hmac
import html
import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import pytest

from ai_support import PATIENCE, key_store, serve_asgi, trust
from gateway_support import AUTHORITY, Answer, Late, World, world
from oauth_support import METADATA, HandIssuer
from onym.accounts.oidc import ProviderTokens
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.common.text import decode_base64url, encode_base64url
from onym.errors import AIIPError, SignatureError
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.server.gateway.sessions import MAX_SESSIONS
from onym.server.gateway.settings import AuthorizationServerTable, GatewayRates
from onym.server.settings import IssuerTable, RateLimit
from onym.sign.jws import sign_compact
from onym.sign.keys import SigningKey
from onym.sign.sealing import FleetSecrets, TemporarySecrets, open_sealed, rotate_secrets
from onym.uri.secret import Secret
from openid_support import Liar
from people_support import Browser
from registry_support import run_app

pytestmark = pytest.mark.xdist_group("gateway-people")

EVENT = "http://schemas.openid.net/event/backchannel-logout"
#: what no store, log or answer may show
CLIENT_SECRET = "the-secret-of-the-client-4711-0815-4711"
ACCESS, REFRESH, SUBJECT = "planted-access-token", "planted-refresh-token", "planted-subject"
JSON = b"application/json"
#: with a name, so that the gateway does not ask for more about the person
PERSON = {"sub": SUBJECT, "name": "Planted Name"}


class Clock:
    """The gateway's time, which a test moves."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Town:
    """A gateway whose providers, `one` and `two`, lie."""

    def __init__(self, site: World, folder: Path, liars: dict[str, Liar], clock: Clock) -> None:
        self.site = site
        self.folder = folder
        self.liars = liars
        self.liar = liars["one"]
        self.clock = clock

    @property
    def store(self) -> Path:
        return self.folder / "shared.sqlite"

    def begin(self, browser: Browser, provider: str = "one", target: str = "/account") -> dict[str, str]:
        """Begin a sign-in; the parameters at the provider."""
        path = f"/auth/login/{provider}?{urlencode({'next': target})}"
        answer = browser.open(self.site.port, "GET", path)
        assert answer.status == 303, answer.body
        query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
        self.liars[provider].nonce = query["nonce"]
        return query

    def back(self, browser: Browser, query: dict[str, str], provider: str = "one", **given: str) -> Answer:
        """The provider's answer in a browser."""
        answer = {"state": query["state"], "code": "c", "iss": self.liars[provider].issuer, **given}
        text = urlencode({name: value for name, value in answer.items() if value})
        path = f"/auth/callback/{provider}?{text}"
        return browser.open(self.site.port, "GET", path, accept="application/json")

    def sign_in(self, browser: Browser, *, target: str = "/account", **claims: Any) -> Answer:
        self.liar.claims = {**PERSON, "sid": "sid-1", **claims}
        answer = self.back(browser, self.begin(browser, target=target))
        assert answer.status == 303, answer.body
        return answer

    def account(self, browser: Browser) -> Answer:
        return browser.open(self.site.port, "GET", "/account", accept="application/json")

    def log_out(self, token: str, provider: str = "one", **more: str) -> Answer:
        return Browser().open(
            self.site.port, "POST", f"/auth/logout/{provider}", {"logout_token": token, **more}, accept=""
        )

    def logout_token(self, *, key: SigningKey | None = None, typ: str = "logout+jwt", **changes: Any) -> str:
        claims: dict[str, Any] = {
            "iss": self.liar.issuer,
            "aud": "client",
            "iat": int(self.clock().timestamp()),
            "jti": encode_base64url(time.monotonic_ns().to_bytes(8, "big")),
            "events": {EVENT: {}},
            "sid": "sid-1",
            **changes,
        }
        kept = {name: value for name, value in claims.items() if value is not None}
        header = {"typ": typ} if typ else {}
        return sign_compact(msgspec.json.encode(kept), key or self.liar.key, header=header)


@contextlib.contextmanager
def run_town(folder: Path, **changes: Any) -> Iterator[Town]:
    liars = {"one": Liar(), "two": Liar(key=SigningKey.generate("ES256", kid="two"))}
    clock = Clock()
    rotate_secrets(folder / "secrets")
    with contextlib.ExitStack() as stack:
        for liar in liars.values():
            liar.issuer = stack.enter_context(run_app(liar.app()))
            liar.document = {"authorization_response_iss_parameter_supported": True}
            liar.answer = {"access_token": ACCESS, "refresh_token": REFRESH}
            liar.userinfo = dict(PERSON)
        tables = tuple(
            IssuerTable(
                id=name,
                issuer=liar.issuer,
                client_id="client",
                client_secret=Secret(CLIENT_SECRET),
                network="local",
            )
            for name, liar in liars.items()
        )
        given: dict[str, Any] = {
            "providers": tables,
            "store": Secret(str(folder / "shared.sqlite")),
            "secrets": str(folder / "secrets"),
            "clock": clock,
            **changes,
        }
        yield Town(stack.enter_context(world(**given)), folder, liars, clock)


@pytest.fixture(scope="module")
def shared_town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with run_town(tmp_path_factory.mktemp("liars")) as found:
        yield found


@pytest.fixture
def town(shared_town: Town) -> Iterator[Town]:
    kept = [(liar, liar.key, dict(liar.document), dict(liar.answer)) for liar in shared_town.liars.values()]
    yield shared_town
    for liar, key, document, answer in kept:
        liar.key, liar.document, liar.answer, liar.claims, liar.published = key, document, answer, {}, None
    shared_town.clock.ahead = timedelta()


def code_of(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


FAILED = (403, "sign-in-failed")


def is_signed_in(town: Town, browser: Browser) -> bool:
    answer = town.account(browser)
    assert answer.status in {200, 401}
    return answer.status == 200


# 43, 44, 48: the response of the provider


def test_a_response_counts_in_its_own_browser_and_flow_and_once(town: Town) -> None:
    """43."""
    browser, other = Browser(), Browser()
    first, second = town.begin(browser), town.begin(browser)
    # in another browser
    assert code_of(town.back(other, first)) == FAILED
    # with the state of another flow, whose nonce it does not have
    assert code_of(town.back(browser, {**first, "state": first["state"][::-1]})) == FAILED
    assert not is_signed_in(town, browser)
    town.liar.nonce = second["nonce"]
    kept = dict(browser.cookies)
    town.liar.claims = {"sub": SUBJECT}
    assert town.back(browser, second).status == 303
    # a second time, with the cookies of before
    replay = Browser(kept)
    asked = town.liar.asked.count("token")
    assert code_of(town.back(replay, second)) == FAILED
    assert town.liar.asked.count("token") == asked
    assert not is_signed_in(town, replay)
    # a flow that began at one provider does not end at another
    third = town.begin(browser, "two")
    assert code_of(town.back(browser, third, "one")) == FAILED


@pytest.mark.parametrize("issuer", ["https://evil.example", ""])
def test_a_response_of_another_issuer_is_refused(town: Town, issuer: str) -> None:
    """44: also if it leaves the issuer out, where the provider announces it (RFC 9207)."""
    browser = Browser()
    assert code_of(town.back(browser, town.begin(browser), iss=issuer)) == FAILED
    assert not is_signed_in(town, browser)


def test_a_form_or_an_image_of_another_site_signs_nobody_in(town: Town) -> None:
    """48: the attacker's own response, in a browser that never began a sign-in."""
    attacker, victim = Browser(), Browser()
    query = town.begin(attacker)
    asked = town.liar.asked.count("token")
    answer = town.back(victim, query)
    assert code_of(answer) == FAILED
    assert not any(name == "set-cookie" and "onym-session" in value for name, value in answer.fields)
    assert town.liar.asked.count("token") == asked
    state = dict(query)
    for method, path in (("POST", "/auth/callback/one"), ("POST", "/auth/login/one")):
        given = {"state": state["state"], "code": "c"}
        answer = victim.open(town.site.port, method, path, given, sec_fetch_site="cross-site", accept="")
        assert code_of(answer) == (403, "forged")


def test_parameters_that_come_twice_and_errors_are_refused(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    browser = Browser()
    query = town.begin(browser)
    text = f"state={query['state']}&code=a&code=b"
    answer = browser.open(town.site.port, "GET", f"/auth/callback/one?{text}", accept="application/json")
    assert code_of(answer) == FAILED
    answer = town.back(browser, town.begin(browser), code="", error="access_denied")
    assert code_of(answer) == FAILED
    assert "cancelled" in answer.json()["detail"]
    assert any("a sign-in at" in record.message for record in caplog.records)
    answer = town.back(browser, town.begin(browser), code="", error="unmet_authentication_requirements")
    assert code_of(answer) == (403, "step-up-required")
    page = browser.open(town.site.port, "GET", "/auth/callback/one?state=x&code=y")
    assert page.status == 403
    assert b"Sign-in failed" in page.body
    assert b'href="/auth/login">Sign in again' in page.body
    assert browser.open(town.site.port, "GET", "/auth/login").status == 200


# 45: ID tokens


def _unsigned(claims: dict[str, Any], algorithm: str, secret: bytes | None = None) -> str:
    head = encode_base64url(json.dumps({"alg": algorithm, "typ": "JWT"}).encode())
    text = f"{head}.{encode_base64url(json.dumps(claims).encode())}"
    mac = b"" if secret is None else hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{encode_base64url(mac)}"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": ["client", "another"]},
        {"azp": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"iat": 4_000_000_000},
        {"sub": None},
        {"sub": ""},
        {"sub": "s" * 256},
        {"acr": 7},
        {"amr": "pwd"},
        {"auth_time": "now"},
        {"sid": "s" * 256},
    ],
)
def test_an_id_token_with_a_wrong_claim_signs_nobody_in(town: Town, changes: dict[str, Any]) -> None:
    """45."""
    browser = Browser()
    query = town.begin(browser)
    town.liar.claims = {"sub": SUBJECT, **changes}
    assert code_of(town.back(browser, query)) == FAILED
    assert not is_signed_in(town, browser)


def test_an_id_token_that_the_provider_did_not_sign_signs_nobody_in(town: Town) -> None:
    """45: without a signature, with a public key or the client's secret as the key, by another provider."""
    now = int(time.time())
    for kind in ("none", "HS256 id", "HS256 key", "HS256 secret", "other"):
        browser = Browser()
        query = town.begin(browser)
        claims = {
            "iss": town.liar.issuer,
            "sub": SUBJECT,
            "aud": "client",
            "iat": now,
            "exp": now + 60,
            "nonce": query["nonce"],
        }
        public = json.dumps(town.liar.key.public()).encode()
        tokens = {
            "none": _unsigned(claims, "none"),
            "HS256 id": _unsigned(claims, "HS256", b"client"),
            "HS256 key": _unsigned(claims, "HS256", public),
            "HS256 secret": _unsigned(claims, "HS256", CLIENT_SECRET.encode()),
            # the kid of another provider of this gateway
            "other": sign_compact(json.dumps(claims).encode(), town.liars["two"].key),
        }
        town.liar.answer = {"access_token": ACCESS, "id_token": tokens[kind]}
        assert code_of(town.back(browser, query)) == FAILED, kind
        assert not is_signed_in(town, browser)


# 46, 47, 51: cookies, sessions and where they lead


def test_a_planted_session_cookie_is_not_kept(town: Town) -> None:
    """46."""
    planted = encode_base64url(bytes(32))
    browser = Browser({"onym-session": planted, "onym-gateway": planted})
    assert not is_signed_in(town, browser)
    town.sign_in(browser)
    assert browser.cookies["onym-session"] != planted
    assert is_signed_in(town, browser)
    first = dict(browser.cookies)
    town.sign_in(browser)
    assert browser.cookies["onym-session"] != first["onym-session"]
    assert not is_signed_in(town, Browser(first))


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "\\\\evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "https://evil.example/",
        "/a/../../evil",
        "/x//evil.example",
        "/\t/evil.example",
        "/auth/logout",
        "/" + "a" * 3000,
    ],
)
def test_a_sign_in_leads_to_a_path_of_this_gateway(town: Town, target: str) -> None:
    """47."""
    assert town.sign_in(Browser(), target=target).headers["location"] == "/"


def test_a_session_ends_by_idleness_and_by_age(town: Town) -> None:
    """51."""
    browser = Browser()
    town.sign_in(browser)
    town.clock.ahead = timedelta(minutes=29)
    assert is_signed_in(town, browser)
    town.clock.ahead = timedelta(minutes=57)
    assert is_signed_in(town, browser)
    for minutes in range(80, 720, 25):
        town.clock.ahead = timedelta(minutes=minutes)
        assert is_signed_in(town, browser)
    town.clock.ahead = timedelta(hours=12, seconds=1)
    assert not is_signed_in(town, browser)
    town.clock.ahead = timedelta()
    town.sign_in(browser)
    town.clock.ahead = timedelta(minutes=30, seconds=1)
    assert not is_signed_in(town, browser)


def test_a_form_of_another_site_or_session_changes_nothing(town: Town) -> None:
    """73: by the browser's own word, by the origin, and by the form's token."""
    browser, other = Browser(), Browser()
    town.sign_in(browser)
    town.sign_in(other, sub="planted-other")
    port, token = town.site.port, browser.token(town.site.port)
    for path in ("/auth/logout", "/account/sessions/end"):
        for form, headers in (
            ({"csrf_token": token, "all": "1"}, {"sec_fetch_site": "cross-site"}),
            ({"csrf_token": token, "all": "1"}, {"sec_fetch_site": "", "origin": "https://evil.example"}),
            ({"csrf_token": other.token(port), "all": "1"}, {}),
            ({"all": "1"}, {}),
        ):
            answer = browser.open(port, "POST", path, form, accept="application/json", **headers)
            assert code_of(answer) == (403, "forged")
    assert is_signed_in(town, browser)
    # a token from before the sign-in is none after it
    visitor = Browser()
    visitor.open(port, "GET", "/")
    town.sign_in(visitor)
    assert visitor.token(port) != token


def test_pages_of_people_cannot_be_framed_or_scripted(town: Town) -> None:
    """74."""
    browser = Browser()
    town.sign_in(browser)
    for path in ("/account", "/auth/login?next=/", "/auth/signed-out", "/auth/callback/one?state=x"):
        page = browser.open(town.site.port, "GET", path)
        policy = page.headers.get("content-security-policy", "")
        assert "frame-ancestors 'none'" in policy
        assert "script-src" not in policy
        assert page.headers["cross-origin-opener-policy"] == "same-origin"


# 49, 50: sign-out by the provider


def test_a_sign_out_ends_the_session_it_names(town: Town) -> None:
    browser, other = Browser(), Browser()
    town.sign_in(browser)
    town.sign_in(other, sid="sid-2")
    answer = town.log_out(town.logout_token())
    assert (answer.status, answer.body) == (200, b"")
    assert "no-store" in answer.headers["cache-control"]
    assert [is_signed_in(town, each) for each in (browser, other)] == [False, True]
    # a token without a type, and one that names the person only (Keycloak leaves typ and exp out)
    assert town.log_out(town.logout_token(typ="", sid=None, sub=SUBJECT)).status == 200
    assert not is_signed_in(town, other)


def test_what_is_no_logout_token_ends_nothing(town: Town) -> None:
    """49."""
    browser = Browser()
    town.sign_in(browser, sid="sid-49")
    now = int(time.time())
    given = {"sid": "sid-49"}
    id_token = {"events": None, "sub": SUBJECT, "nonce": "n", "exp": now + 60}
    refused = [
        town.logout_token(**given, **id_token, typ="JWT"),
        town.logout_token(**given, **id_token, typ=""),
        town.logout_token(**given, nonce="n"),
        town.logout_token(**given, events=None),
        town.logout_token(**given, events={EVENT: None}),
        town.logout_token(**given, events=[EVENT]),
        town.logout_token(**given, aud="another"),
        town.logout_token(**given, aud=["client", "another"]),
        town.logout_token(**given, iss="https://evil.example"),
        town.logout_token(**given, iss=town.liars["two"].issuer),
        town.logout_token(**given, iat=now - 700),
        town.logout_token(**given, iat=now + 300),
        town.logout_token(**given, exp=now - 100),
        town.logout_token(**given, iat=None),
        town.logout_token(**given, jti=None),
        town.logout_token(sid=None),
        town.logout_token(sid=7),
        town.logout_token(**given, typ="at+jwt"),
        town.logout_token(**given, key=town.liars["two"].key),
        _unsigned({"iss": town.liar.issuer, "aud": "client", "sid": "sid-49"}, "none"),
        "x",
        "",
    ]
    for token in refused:
        answer = town.log_out(token)
        assert (answer.status, answer.json()["error"]) == (400, "invalid_request"), token
    # the same person at another provider is another person
    two = town.logout_token(iss=town.liars["two"].issuer, key=town.liars["two"].key, sid=None, sub=SUBJECT)
    assert town.log_out(two, "two").status == 200
    # twice in one form, or in another form
    double = f"logout_token={town.logout_token(**given)}&logout_token=x".encode()
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    assert town.site.at("POST", "/auth/logout/one", double, **kind).status == 400
    assert town.site.at("POST", "/auth/logout/one", b"{}").status == 400
    assert is_signed_in(town, browser)


def test_a_logout_token_counts_once(town: Town) -> None:
    """49: replayed."""
    token = town.logout_token(sid="sid-replay")
    assert town.log_out(token).status == 200
    browser = Browser()
    # somebody who signs in again after the sign-out stays signed in
    town.clock.ahead = timedelta(seconds=2)
    town.sign_in(browser, sid="sid-replay")
    assert town.log_out(token).status == 400
    assert is_signed_in(town, browser)


@pytest.mark.parametrize("by", ["sid", "sub"])
def test_a_sign_in_under_way_does_not_outlive_a_sign_out(town: Town, by: str) -> None:
    """50: the code was given before, the callback comes after."""
    browser = Browser()
    subject = f"planted-{by}-50"
    query = town.begin(browser)
    town.liar.claims = {**PERSON, "sub": subject, "sid": f"sid-50-{by}"}
    names = {"sid": f"sid-50-{by}"} if by == "sid" else {"sid": None, "sub": subject}
    assert town.log_out(town.logout_token(**names)).status == 200
    assert code_of(town.back(browser, query)) == FAILED
    assert not is_signed_in(town, browser)
    # one that begins later does
    town.clock.ahead = timedelta(seconds=1)
    query = town.begin(browser)
    town.liar.claims = {**PERSON, "sub": subject, "sid": f"sid-50-{by}"}
    assert town.back(browser, query).status == 303
    # unless the provider says that the person authenticated before
    query = town.begin(browser)
    old = int(time.time()) - 60
    town.liar.claims = {**PERSON, "sub": subject, "sid": f"sid-50-{by}", "auth_time": old}
    assert (town.back(browser, query).status == 403) == (by == "sid")


# 53, 104, 109: what the store has


def _rows(file: Path) -> list[tuple[str, bytes]]:
    with contextlib.closing(sqlite3.connect(file)) as database:
        return database.execute("SELECT key, value FROM entries").fetchall()


def _record(rows: list[tuple[str, bytes]], browser: Browser) -> tuple[str, list[Any]]:
    digest = hashlib.sha256(browser.cookies["onym-session"].encode()).hexdigest()
    (value,) = [value for key, value in rows if key == f"session/{digest}/record"]
    return digest, msgspec.msgpack.decode(value)


def test_a_dump_of_the_store_opens_no_token(town: Town) -> None:
    """53: neither the store with the service's secrets, nor the store with the cookie."""
    browser = Browser()
    town.sign_in(browser)
    cookie = browser.cookies["onym-session"]
    digest, (_, _, tokens) = _record(_rows(town.store), browser)
    secrets = FleetSecrets(town.folder / "secrets")
    purpose = "onym-gateway-tokens"
    assert ACCESS.encode() in open_sealed(secrets, purpose, tokens, context=digest, own=Secret(cookie))
    for others, own in (
        (secrets, None),
        (secrets, Secret(digest)),
        (secrets, Secret(encode_base64url(bytes(32)))),
        (TemporarySecrets(), Secret(cookie)),
    ):
        with pytest.raises(SignatureError):
            open_sealed(others, purpose, tokens, context=digest, own=own)


def test_no_secret_and_no_name_is_in_the_store_the_logs_or_the_answers(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    """109."""
    browser = Browser()
    caplog.set_level("DEBUG")
    town.sign_in(browser)
    cookie = browser.cookies["onym-session"]
    answer = town.account(browser)
    page = browser.open(town.site.port, "GET", "/account")
    token = town.logout_token(sid="sid-109", aud="another")
    assert town.log_out(token).status == 400
    planted = [ACCESS, REFRESH, cookie, token, *browser.cookies.values()]
    planted += [base64.b64encode(text.encode()).decode().rstrip("=") for text in (ACCESS, REFRESH)]
    stored = b"".join(file.read_bytes() for file in town.folder.glob("shared.sqlite*"))
    audit = (town.site.folder / "audit.jsonl").read_bytes()
    own = hashlib.sha256(cookie.encode()).hexdigest()
    for text in planted:
        assert text.encode() not in stored + audit + answer.body + page.body
        assert text not in caplog.text
    for text in (SUBJECT, "Planted Name"):
        assert text.encode() not in stored + audit
        assert text not in caplog.text
    assert own.encode() in answer.body  # the name of the session, from which no cookie can be made
    session = repr(town.site.gateway.parts.sessions) + repr(town.site.gateway.parts)
    assert ACCESS not in session


def test_a_record_that_was_changed_does_not_open(town: Town) -> None:
    """104: moved to another session, cut, or of a secret that was rotated out."""
    mine, theirs = Browser(), Browser()
    town.sign_in(mine, sid="sid-mine")
    town.sign_in(theirs, sub="planted-theirs", sid="sid-theirs")
    rows = _rows(town.store)
    (my_digest, my_record), (_, their_record) = _record(rows, mine), _record(rows, theirs)
    whole = msgspec.msgpack.encode(my_record)

    def put(value: bytes) -> None:
        with contextlib.closing(sqlite3.connect(town.store)) as database, database:
            database.execute(
                "UPDATE entries SET value = ? WHERE key = ?", (value, f"session/{my_digest}/record")
            )

    for value in (
        msgspec.msgpack.encode(their_record),
        msgspec.msgpack.encode([my_record[0], their_record[1], my_record[2]]),
        msgspec.msgpack.encode([my_record[0], my_record[1][:-1], my_record[2]]),
        whole[: len(whole) // 2],
        b"",
    ):
        put(value)
        assert not is_signed_in(town, mine)
    put(whole)
    assert is_signed_in(town, mine)


def test_a_secret_that_was_rotated_out_ends_sessions(tmp_path: Path) -> None:
    """104."""
    with run_town(tmp_path) as town:
        browser = Browser()
        town.sign_in(browser)
        rotate_secrets(tmp_path / "secrets", revoke=True)
        town.site.gateway.parts.sessions._secrets = FleetSecrets(tmp_path / "secrets")
        assert not is_signed_in(town, browser)


def test_a_store_that_cannot_be_used_signs_nobody_in_or_out(tmp_path: Path) -> None:
    """503, and open pages go on; afterwards people are signed in as before."""
    with run_town(tmp_path) as town:
        browser = Browser()
        town.sign_in(browser)
        away = tmp_path / "away"
        away.mkdir()
        for file in tmp_path.glob("shared.sqlite*"):
            file.rename(away / file.name)
        town.store.mkdir()
        for path in ("/account", "/auth/step-up?max_age=60"):
            answer = browser.open(town.site.port, "GET", path, accept="application/json")
            assert code_of(answer) == (503, "unavailable")
        assert browser.open(town.site.port, "GET", "/").status == 200
        assert code_of(town.log_out(town.logout_token())) == (503, "unavailable")
        query = town.begin(Browser())
        assert query["state"]
        town.store.rmdir()
        for file in away.iterdir():
            file.rename(tmp_path / file.name)
        assert is_signed_in(town, browser)


def test_a_provider_that_is_away_is_told_and_sessions_go_on(town: Town) -> None:
    browser = Browser()
    town.sign_in(browser)
    town.clock.ahead = timedelta(minutes=5)
    town.liars["two"].document = {"issuer": "https://evil.example"}
    answer = Browser().open(town.site.port, "GET", "/auth/login/two", accept="application/json")
    assert answer.status in {303, 503}
    assert is_signed_in(town, browser)


def test_sign_ins_of_one_address_have_a_rate(tmp_path: Path) -> None:
    rates = GatewayRates(logins=RateLimit(burst=2, per_minute=1))
    with run_town(tmp_path, rates=rates) as town:
        browser = Browser()
        for _ in range(2):
            town.begin(browser)
        answer = browser.open(town.site.port, "GET", "/auth/login/one", accept="application/json")
        assert code_of(answer) == (429, "too-many-requests")
        # the provider's sign-outs have a rate of their own
        assert town.log_out(town.logout_token()).status == 200


def test_a_refresh_or_an_exchange_does_not_bring_a_session_back(town: Town) -> None:
    """50: what was under way when the sign-out came keeps nothing."""
    browser = Browser()
    town.sign_in(browser, sid="sid-refresh")
    sessions = town.site.gateway.parts.sessions
    session = asyncio.run(sessions.find(browser.cookies["onym-session"]))
    tokens = sessions.open_tokens(session)
    assert (tokens.access.reveal(), tokens.refresh.reveal()) == (ACCESS, REFRESH)
    fresh = dataclasses.replace(tokens, access=Secret("fresh-access-token"))
    asyncio.run(sessions.replace_tokens(session, fresh))
    asyncio.run(sessions.put_data(session, "a connection", b"exchanged"))
    renewed = asyncio.run(sessions.find(browser.cookies["onym-session"]))
    assert sessions.open_tokens(renewed).access.reveal() == "fresh-access-token"
    assert asyncio.run(sessions.get_data(renewed, "a connection")) == b"exchanged"
    assert town.log_out(town.logout_token(sid="sid-refresh")).status == 200
    for work in (
        lambda: sessions.replace_tokens(session, fresh),
        lambda: sessions.replace_tokens(renewed, fresh),
        lambda: sessions.put_data(session, "a connection", b"exchanged"),
    ):
        with pytest.raises(AIIPError) as caught:
            asyncio.run(work())
        assert caught.value.code == "aiip.sign-in-required"
    assert asyncio.run(sessions.get_data(session, "a connection")) is None
    assert not [key for key, _ in _rows(town.store) if session.digest in key]
    assert not is_signed_in(town, browser)


def test_a_step_up_in_the_oldest_of_all_sessions_keeps_its_data(town: Town) -> None:
    """RFC 9470: signing in again for one call takes nothing from the person."""
    browser = Browser()
    town.sign_in(browser, sid="sid-oldest")
    sessions = town.site.gateway.parts.sessions
    oldest = asyncio.run(sessions.find(browser.cookies["onym-session"]))
    tokens, began = sessions.open_tokens(oldest), oldest.created + 1
    asyncio.run(sessions.put_data(oldest, "a connection", b"exchanged"))
    given = {"provider": oldest.provider, "client_id": oldest.client_id, "began": began}
    while len(asyncio.run(sessions.list_sessions(oldest.person))) < MAX_SESSIONS:
        asyncio.run(sessions.create(oldest.person, tokens, **given))
    fresh = asyncio.run(sessions.renew(oldest, oldest.person, tokens, began=began))
    assert asyncio.run(sessions.get_data(fresh, "a connection")) == b"exchanged"
    assert len(asyncio.run(sessions.list_sessions(oldest.person))) == MAX_SESSIONS
    assert not asyncio.run(sessions.is_live(oldest))
    asyncio.run(sessions.end_all(oldest.person.issuer, oldest.person.subject))


@pytest.mark.parametrize(
    "change",
    [
        {"auth_time": -3600.0},
        {"auth_time": None},
        {"acr": "urn:test:pwd"},
        {"acr": None},
        {"sub": "another-person"},
    ],
)
def test_attack_52_a_step_up_that_proves_too_little_is_refused_once(
    town: Town, change: dict[str, float | str | None]
) -> None:
    """A3: an old authentication, a weaker one and another person do not count, whatever was asked for."""
    browser, now = Browser(), town.clock().timestamp()
    # a session of its own at the provider: other tests end theirs, and what was proved before that is void
    town.sign_in(browser, sid="sid-52", acr="urn:test:pwd", auth_time=int(now) - 3600)
    before = dict(browser.cookies)
    path = "/auth/step-up?next=/account&max_age=300&acr_values=urn:test:mfa"
    asked = browser.open(town.site.port, "GET", path)
    assert asked.status == 303
    query = dict(parse_qsl(urlsplit(asked.headers["location"]).query))
    assert (query["max_age"], query["acr_values"]) == ("300", "urn:test:mfa")
    claims = {**PERSON, "sid": "sid-52", "acr": "urn:test:mfa", "auth_time": int(now), **change}
    if isinstance(change.get("auth_time"), float):
        claims["auth_time"] = int(now) - 3600
    town.liar.nonce = query["nonce"]
    town.liar.claims = {name: value for name, value in claims.items() if value is not None}
    answer = town.back(browser, query)
    assert code_of(answer) == (403, "step-up-required")
    assert browser.cookies == before
    assert town.account(browser).json()["acr"] == "urn:test:pwd"
    # what satisfies both is accepted
    asked = browser.open(town.site.port, "GET", path)
    query = dict(parse_qsl(urlsplit(asked.headers["location"]).query))
    town.liar.nonce = query["nonce"]
    town.liar.claims = {**PERSON, "sid": "sid-52", "acr": "urn:test:mfa", "auth_time": int(now)}
    assert town.back(browser, query).status == 303
    assert town.account(browser).json()["acr"] == "urn:test:mfa"


def test_a_sign_in_of_an_unknown_time_is_not_a_fresh_one(town: Town) -> None:
    """A3: a provider that signs people in again without asking them makes a new session, and no fresh one."""
    browser, now = Browser(), int(town.clock().timestamp())

    def see() -> str:
        page = browser.open(town.site.port, "GET", town.site.path("/agent/forklift"))
        return html.unescape(page.body.decode())

    def step_up(**claims: Any) -> Answer:
        (path,) = re.findall(r'href="(/auth/step-up[^"]+)"', see())
        asked = browser.open(town.site.port, "GET", path)
        query = dict(parse_qsl(urlsplit(asked.headers["location"]).query))
        assert query["max_age"] == "300"
        town.liar.nonce = query["nonce"]
        town.liar.claims = {**PERSON, "sid": "sid-unknown-time", **claims}
        return town.back(browser, query)

    town.sign_in(browser, sid="sid-unknown-time")
    assert "step-up-required" in see()
    # the provider does not tell it now either: the page names the setting, and the session stays
    refused = step_up()
    assert code_of(refused) == (403, "step-up-required")
    assert "max_age" in refused.json()["hint"]
    assert is_signed_in(town, browser)
    assert step_up(auth_time=now).status == 303
    page = see()
    assert "step-up-required" not in page
    assert "approval-required" in page


def change_flow(town: Town, browser: Browser, change: Callable[[list[Any]], None]) -> None:
    """Change the cookie of the browser's only sign-in."""
    prefix = town.site.settings.flow_cookie
    ((name, value),) = [pair for pair in browser.cookies.items() if pair[0].startswith(prefix)]
    secret, packed, *proof = value.split(".")
    members = json.loads(decode_base64url(packed))
    change(members)
    browser.cookies[name] = ".".join([secret, encode_base64url(json.dumps(members).encode()), *proof])


def test_a_browser_cannot_move_the_beginning_of_its_sign_in_past_a_sign_out(town: Town) -> None:
    """50: the tombstone counts for sign-ins that began before it."""
    browser = Browser()
    query = town.begin(browser)
    subject = "planted-mover"
    assert town.log_out(town.logout_token(sid=None, sub=subject)).status == 200
    town.clock.ahead = timedelta(seconds=20)
    town.liar.claims = {**PERSON, "sub": subject}

    def move(members: list[Any]) -> None:
        members[1] = town.clock().timestamp() + 600

    change_flow(town, browser, move)
    assert code_of(town.back(browser, query)) == FAILED
    assert not is_signed_in(town, browser)
    # one that really begins after it
    query = town.begin(browser)
    town.liar.claims = {**PERSON, "sub": subject}
    assert town.back(browser, query).status == 303


@pytest.mark.parametrize("seconds", [700, 10**9, 9 * 10**11])
def test_a_cookie_that_ends_later_than_it_may_signs_nobody_in_and_leaves_no_mark(
    town: Town, seconds: int
) -> None:
    town.sign_in(Browser())  # the store has tables
    browser = Browser()
    query = town.begin(browser)

    def prolong(members: list[Any]) -> None:
        members[1] += seconds

    change_flow(town, browser, prolong)
    town.liar.claims = dict(PERSON)
    assert code_of(town.back(browser, query)) == FAILED
    with contextlib.closing(sqlite3.connect(town.store)) as database:
        late = "SELECT count(*) FROM marks WHERE until > ?"
        # other tests move the clock by hours
        assert database.execute(late, (time.time() + 2 * 86_400,)).fetchone() == (0,)


def test_attack_50_a_refresh_under_way_does_not_outlive_a_sign_out(town: Town) -> None:
    """The new tokens of the provider are not kept, and open nothing."""
    browser = Browser()
    town.sign_in(browser, sid="sid-under-way")
    sessions = town.site.gateway.parts.sessions
    session = asyncio.run(sessions.find(browser.cookies["onym-session"]))

    async def refresh(tokens: ProviderTokens) -> ProviderTokens:
        # in a thread: the gateway answers while this request waits for the provider
        answer = await asyncio.to_thread(town.log_out, town.logout_token(sid="sid-under-way"))
        assert answer.status == 200
        return dataclasses.replace(tokens, access=Secret("fresh-access-token"))

    with pytest.raises(AIIPError) as caught:
        asyncio.run(sessions.refresh_tokens(session, refresh))
    assert caught.value.code == "aiip.sign-in-required"
    assert not is_signed_in(town, browser)
    assert not [key for key, _ in _rows(town.store) if key.endswith(session.digest) and "refresh" not in key]


class SlowServer(HandIssuer):
    """An authorization server that exchanges tokens once the test lets it."""

    def __init__(self) -> None:
        super().__init__(origin="https://localhost")
        self.begun, self.goes_on = threading.Event(), threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/token":
            self.begun.set()
            await asyncio.to_thread(self.goes_on.wait, PATIENCE)
        await super().__call__(scope, receive, send)


@contextlib.contextmanager
def run_second_gateway(town: Town, server: SlowServer) -> Iterator[World]:
    """A gateway with the store of the town's, before an authority of this server."""
    late = Late()
    with contextlib.ExitStack() as stack:

        def prepare(base: str) -> dict[str, Any]:
            ca = late.ca
            assert ca is not None
            server.port = stack.enter_context(serve_asgi(server, "localhost", ca=ca))
            resource = f"https://{AUTHORITY}:{late.port}/.well-known/aiip/v1"
            members = {"token_endpoint": f"{server.issuer}/token"}
            server.answers[METADATA] = (200, server.metadata(**members), [(b"content-type", JSON)])
            answer = {
                "access_token": "exchanged-for-the-person",
                "token_type": "Bearer",
                "expires_in": 300,
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
                "scope": "read",
            }
            server.answers["/token"] = (200, json.dumps(answer).encode(), [(b"content-type", JSON)])
            auth = JWTAuthorization(
                server.issuer,
                resource,
                scopes=("read",),
                network=NetConfig(policy=Policy.local(), tls=trust(ca, late.folder)),
            )
            app = Endpoint(f"{AUTHORITY}:{late.port}", keys=key_store(late.folder), authorization=auth)
            app.resource("/balance", scopes=["read"])(lambda: 7)
            late.app = app
            row = AuthorizationServerTable(
                id="bank", issuer=server.issuer, client_id="gateway", tokens_of=("one",), impersonation=True
            )
            return {"authorization_servers": (row,), "ports": (late.port, server.port)}

        settings = town.site.settings
        shared = {name: getattr(settings, name) for name in ("providers", "store", "secrets")}
        yield stack.enter_context(world(late=late, prepare=prepare, **shared))


def test_attack_50_a_sign_out_at_another_gateway_reaches_an_exchange_under_way(tmp_path: Path) -> None:
    """A2: the fresh token is not used."""
    server = SlowServer()
    with run_town(tmp_path) as first, run_second_gateway(first, server) as second:

        def call(browser: Browser) -> Answer:
            form = {
                "csrf_token": browser.token(second.port),
                "uri": f"ai://{second.authority}/balance",
            }
            return browser.open(second.port, "POST", "/invoke", form, accept="application/json")

        def count_calls() -> int:
            heads = [dict(scope["headers"]) for scope in second.endpoint.seen if scope["type"] == "http"]
            return sum(b"exchanged" in head.get(b"authorization", b"") for head in heads)

        staying, leaving = Browser(), Browser()
        first.sign_in(staying, sid="sid-stays", sub="stays")
        first.liar.answer = {"access_token": "another-access-token"}
        first.sign_in(leaving, sid="sid-leaves")
        with ThreadPoolExecutor(1) as pool:
            try:
                pending = pool.submit(call, leaving)
                assert server.begun.wait(PATIENCE)
                assert first.log_out(first.logout_token(sid="sid-leaves")).status == 200
            finally:
                server.goes_on.set()
            refused = pending.result(PATIENCE)
        assert code_of(refused) == (401, "sign-in-required")
        assert count_calls() == 0
        # a session that goes on gets its token, which this authority does not know
        call(staying)
        assert count_calls() == 1


def test_tokens_are_refreshed_by_one_request_and_the_others_wait(town: Town) -> None:
    browser = Browser()
    town.sign_in(browser)
    sessions = town.site.gateway.parts.sessions
    session = asyncio.run(sessions.find(browser.cookies["onym-session"]))
    times: list[str] = []

    async def refresh(tokens: ProviderTokens) -> ProviderTokens:
        times.append(tokens.access.reveal())
        await asyncio.sleep(0)
        return dataclasses.replace(tokens, access=Secret("fresh-access-token"))

    async def ask_together() -> list[ProviderTokens]:
        return await asyncio.gather(*(sessions.refresh_tokens(session, refresh) for _ in range(5)))

    found = asyncio.run(ask_together())
    assert {tokens.access.reveal() for tokens in found} == {"fresh-access-token"}
    assert times == [ACCESS]
