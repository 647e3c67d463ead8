"""OpenID Connect: with a real provider, and with one that lies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onym.accounts.oidc import OIDCProvider
from onym.accounts.sign_in import SignInFlow
from onym.accounts.store import Accounts
from onym.common.text import encode_base64url
from onym.errors import NetError
from onym.server.settings import Issuer, RateLimit, RateLimits
from onym.sign.keys import SigningKey
from onym.testing import FakeClock
from onym.uri.secret import Secret
from openid_support import Liar, OpenIDProvider, openid_provider
from registry_support import run_app
from server_support import World, settings, world
from support import free_port

CALLBACK = "/login/oidc/{}/callback"


def _now() -> datetime:
    return datetime.now(UTC)


def issuer_of(provider: OpenIDProvider, **changes: Any) -> Issuer:
    given: dict[str, Any] = {
        "id": "real",
        "title": "Real",
        "issuer": provider.issuer,
        "client_id": provider.client_id,
        "client_secret": Secret(provider.client_secret),
        "network": "local",
    }
    return Issuer(**{**given, **changes})


#: the real provider's client may only be sent back to this machine
LOCAL = "http://127.0.0.1:8000"


@contextmanager
def site_with(folder: Path, issuer: Issuer, **changes: Any) -> Iterator[World]:
    changes = {"base_url": LOCAL, **changes} if issuer.id == "real" else changes
    with world(folder, settings(oidc=(issuer,), **changes), clock=_now) as found:
        yield found


def begin(site: World, provider: str, target: str = "/who") -> str:
    answer = site.client.get(f"/login/oidc/{provider}?next={target}", follow_redirects=False)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def come_back(site: World, url: str) -> Any:
    parts = urlsplit(url)
    return site.client.get(f"{parts.path}?{parts.query}", follow_redirects=False)


def who(site: World) -> Any:
    return site.client.get("/who").json()["account"]


# a real provider


@pytest.mark.xdist_group("real-servers")
def test_somebody_signs_in_and_comes_back_to_the_same_account(tmp_path: Path, openid: OpenIDProvider) -> None:
    with site_with(tmp_path, issuer_of(openid)) as site:
        answer = come_back(site, openid.sign_in(begin(site, "real"), "ann"))
        assert (answer.status_code, answer.headers["location"]) == (303, "/who"), answer.text
        first = who(site)
        account = site.do(site.store.accounts.get, first)
        assert account.email == openid.email("ann")
        assert account.password_hash is None
        assert account.roles == {}
        found = site.do(site.store.accounts.find_by_subject, openid.issuer, openid.subject("ann"))
        assert found.id == first
        site.client.cookies.clear()
        come_back(site, openid.sign_in(begin(site, "real"), "ann"))
        assert who(site) == first
        assert [record.action for record in site.audit()] == ["sign-in.oidc"] * 2


@pytest.mark.xdist_group("real-servers")
@pytest.mark.parametrize(
    ("algorithm", "method"), [("ES256", "client_secret_post"), ("RS256", "client_secret_basic")]
)
def test_other_algorithms_and_ways_to_authenticate_work(tmp_path: Path, algorithm: str, method: str) -> None:
    with (
        openid_provider(algorithm=algorithm, auth_method=method) as provider,
        site_with(tmp_path, issuer_of(provider)) as site,
    ):
        answer = come_back(site, provider.sign_in(begin(site, "real"), "ann"))
        assert answer.status_code == 303, answer.text


@pytest.mark.xdist_group("real-servers")
def test_a_refusal_at_the_provider_is_told(tmp_path: Path) -> None:
    with openid_provider(denied=["ann"]) as provider, site_with(tmp_path, issuer_of(provider)) as site:
        answer = come_back(site, provider.sign_in(begin(site, "real"), "ann"))
        assert (answer.status_code, answer.json()["code"]) == (400, "accounts.sign-in-failed")
        assert "cancelled" in answer.json()["detail"]
        assert who(site) is None


@pytest.mark.xdist_group("real-servers")
def test_an_address_that_the_provider_did_not_test_is_not_kept(tmp_path: Path) -> None:
    with openid_provider(unverified=["ann"]) as provider, site_with(tmp_path, issuer_of(provider)) as site:
        come_back(site, provider.sign_in(begin(site, "real"), "ann"))
        assert site.do(site.store.accounts.get, who(site)).email is None


@pytest.mark.xdist_group("real-servers")
def test_nobody_is_linked_by_address(tmp_path: Path, openid: OpenIDProvider) -> None:
    with site_with(tmp_path, issuer_of(openid)) as site:
        site.do(site.store.accounts.set_email, "user-alice", openid.email("ann"))
        come_back(site, openid.sign_in(begin(site, "real"), "ann"))
        assert who(site) not in {None, "user-alice"}


@pytest.mark.xdist_group("real-servers")
def test_a_linked_account_is_signed_in_to(tmp_path: Path, openid: OpenIDProvider) -> None:
    with site_with(tmp_path, issuer_of(openid, create=False)) as site:
        answer = come_back(site, openid.sign_in(begin(site, "real"), "ann"))
        assert answer.status_code == 400
        site.do(site.store.accounts.link, "user-alice", openid.issuer, openid.subject("ann"))
        come_back(site, openid.sign_in(begin(site, "real"), "ann"))
        assert who(site) == "user-alice"
        site.do(site.store.accounts.disable, "user-alice")
        answer = come_back(site, openid.sign_in(begin(site, "real"), "ann"))
        assert answer.status_code == 400


@pytest.mark.xdist_group("real-servers")
def test_an_answer_counts_once_and_in_its_own_browser_alone(tmp_path: Path, openid: OpenIDProvider) -> None:
    with site_with(tmp_path, issuer_of(openid)) as site:
        url = openid.sign_in(begin(site, "real"), "ann")
        (flow,) = [f"{name}={value}" for name, value in site.client.cookies.items() if "flow" in name]
        site.client.cookies.clear()
        assert come_back(site, url).status_code == 400
        assert who(site) is None
        # begun here, but the answer is of another sign-in
        begin(site, "real")
        assert come_back(site, url).status_code == 400
        # back in its own browser it counts, once
        site.client.cookies.clear()
        parts = urlsplit(url)
        own = {"cookie": flow}
        assert (
            site.client.get(f"{parts.path}?{parts.query}", headers=own, follow_redirects=False).status_code
            == 303
        )
        site.client.cookies.clear()
        assert site.client.get(f"{parts.path}?{parts.query}", headers=own).status_code == 400


@pytest.mark.xdist_group("real-servers")
def test_a_wrong_client_secret_is_a_sign_in_that_fails(tmp_path: Path, openid: OpenIDProvider) -> None:
    with site_with(tmp_path, issuer_of(openid, client_secret=Secret("wrong"))) as site:
        # the provider takes the request itself (RFC 9126), and asks who pushes it
        answer = site.client.get("/login/oidc/real", follow_redirects=False)
        assert (answer.status_code, answer.json()["code"]) == (400, "accounts.sign-in-failed")


@pytest.mark.xdist_group("real-servers")
def test_loopback_is_refused_unless_the_settings_allow_it(tmp_path: Path, openid: OpenIDProvider) -> None:
    with site_with(tmp_path, issuer_of(openid, network="trusted")) as site:
        answer = site.client.get("/login/oidc/real", follow_redirects=False)
        assert answer.status_code == 502


def test_a_provider_that_cannot_be_reached_is_one_line_of_the_log(
    tmp_path: Path, openid: OpenIDProvider, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = issuer_of(openid, issuer=f"http://127.0.0.1:{free_port()}")
    with site_with(tmp_path, issuer) as site:
        answer = site.client.get("/login/oidc/real", follow_redirects=False)
        assert answer.status_code == 502
    (logged,) = (record for record in caplog.records if "failed" in record.message)
    assert "net.connection.refused" in logged.message
    assert logged.exc_info is None


# a provider that lies


@pytest.fixture
def liar() -> Iterator[Liar]:
    found = Liar()
    with run_app(found.app()) as url:
        found.issuer = url
        yield found


@pytest.fixture
def site(tmp_path: Path, liar: Liar) -> Iterator[World]:
    with site_with(tmp_path, liar.settings()) as found:
        yield found


def through(site: World, liar: Liar, **back: str) -> Any:
    """A whole sign-in, with `back` in the answer."""
    url = begin(site, "liar")
    query = dict(parse_qsl(urlsplit(url).query))
    liar.nonce = query["nonce"]
    answer = {"state": query["state"], "code": "c", **back}
    text = urlencode({name: value for name, value in answer.items() if value})
    return site.client.get(f"{CALLBACK.format('liar')}?{text}", follow_redirects=False)


def test_an_honest_answer_signs_in(site: World, liar: Liar) -> None:
    assert through(site, liar).status_code == 303
    assert site.do(site.store.accounts.get, who(site)).name == "Sam"
    assert liar.asked == ["discovery", "token", "keys", "userinfo"]


def test_two_answers_for_one_new_person_at_once_make_one_account(
    site: World, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    through(site, liar)
    first, accounts = who(site), site.do(site.store.accounts.list)
    site.client.cookies.clear()

    async def nobody_yet(*args: object) -> None:
        """What the other answer was told, a moment before."""

    monkeypatch.setattr(Accounts, "find_by_subject", nobody_yet)
    assert through(site, liar).status_code == 303
    assert who(site) == first
    assert site.do(site.store.accounts.list) == accounts


def test_the_request_to_the_provider_holds_what_it_must(site: World) -> None:
    query = parse_qs(urlsplit(begin(site, "liar")).query)
    assert query["tenant"] == ["1"]
    assert query["response_type"] == ["code"]
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"] == ["https://registry.example.org/login/oidc/liar/callback"]
    secrets = {query[name][0] for name in ("state", "nonce", "code_challenge")}
    assert len(secrets) == 3
    again = parse_qs(urlsplit(begin(site, "liar")).query)
    assert secrets.isdisjoint({again[name][0] for name in ("state", "nonce", "code_challenge")})


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"iss": "https://other.example"}, "sign.bad-issuer"),
        ({"aud": "another"}, "sign.bad-audience"),
        ({"exp": 1}, "sign.expired"),
        ({"nonce": "another"}, "sign.bad-nonce"),
        ({"at_hash": "wrong"}, "sign.bad-hash"),
        ({"sub": ""}, "sign.bad-claim"),
    ],
)
def test_a_token_that_does_not_hold_signs_nobody_in(
    site: World, liar: Liar, claims: dict[str, Any], code: str
) -> None:
    liar.claims = claims
    answer = through(site, liar)
    assert (answer.status_code, answer.json()["code"]) == (403, code)
    assert who(site) is None
    assert "Max-Age=0" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "back", [{"state": "x"}, {"state": ""}, {"code": ""}, {"iss": "https://other.example"}, {"error": "x"}]
)
def test_a_wrong_answer_reaches_no_token_endpoint(site: World, liar: Liar, back: dict[str, str]) -> None:
    answer = through(site, liar, **back)
    assert (answer.status_code, answer.json()["code"]) == (400, "accounts.sign-in-failed")
    assert "token" not in liar.asked


def test_a_provider_that_promises_its_name_must_give_it(site: World, liar: Liar) -> None:
    liar.document = {"authorization_response_iss_parameter_supported": True}
    assert through(site, liar).status_code == 400
    assert through(site, liar, iss=liar.issuer).status_code == 303


def test_parameters_that_come_twice_are_refused(site: World, liar: Liar) -> None:
    query = dict(parse_qsl(urlsplit(begin(site, "liar")).query))
    text = f"state={query['state']}&code=a&code=b"
    assert site.client.get(f"{CALLBACK.format('liar')}?{text}").status_code == 400


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://other.example"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
        {"token_endpoint": 7},
        {"jwks_uri": "ftp://x.example/"},
        {"jwks_uri": "https://x.example/" + "a" * 3000},
        {"code_challenge_methods_supported": ["plain"]},
    ],
)
def test_a_wrong_discovery_document_is_refused(site: World, liar: Liar, document: dict[str, Any]) -> None:
    liar.document = document
    answer = site.client.get("/login/oidc/liar", follow_redirects=False)
    assert (answer.status_code, answer.json()["detail"]) == (502, "Another server sent an invalid response")


@pytest.mark.parametrize(
    "answer",
    [{"id_token": None}, {"id_token": "x"}, {"access_token": None}, {"id_token": 7}],
)
def test_a_token_answer_without_its_parts_is_refused(site: World, liar: Liar, answer: dict[str, Any]) -> None:
    liar.answer = answer
    assert through(site, liar).status_code in {403, 502}
    assert who(site) is None


def test_userinfo_about_somebody_else_is_refused(site: World, liar: Liar) -> None:
    liar.userinfo = {"sub": "other", "name": "Eve"}
    assert through(site, liar).status_code == 502
    assert who(site) is None


def test_a_hostile_name_is_not_shown(site: World, liar: Liar) -> None:
    liar.userinfo = {
        "sub": "s",
        "name": "\u202eeve",
        "email": "a\r\nBcc: b@example.org",
        "email_verified": True,
    }
    through(site, liar)
    account = site.do(site.store.accounts.get, who(site))
    assert (account.name, account.email) == (account.login, None)


def test_new_keys_are_looked_for_once_a_minute(site: World, liar: Liar) -> None:
    assert through(site, liar).status_code == 303
    liar.key = SigningKey.generate("ES256", kid="two")
    liar.published = [SigningKey.generate("ES256", kid="three")]
    assert through(site, liar).status_code == 403
    assert liar.asked.count("keys") == 1
    site.clock.advance(seconds=61)
    liar.published = None
    assert through(site, liar).status_code == 303
    assert liar.asked.count("keys") == 2


def test_keys_that_are_refused_or_moved_sign_nobody_in(site: World, liar: Liar) -> None:
    liar.status = 500
    assert through(site, liar).status_code == 502
    liar.status = 200
    liar.document = {"jwks_uri": liar.issuer + "/moved"}
    site.clock.advance(hours=2)
    assert through(site, liar).status_code == 502


def test_an_unknown_provider_is_not_found(site: World) -> None:
    assert site.client.get("/login/oidc/none").status_code == 404
    assert site.client.get("/login/oidc/none/callback").status_code == 404


def test_beginning_is_limited(tmp_path: Path, liar: Liar) -> None:
    rates = RateLimits(logins=RateLimit(burst=1, per_minute=1))
    with site_with(tmp_path, liar.settings(), rates=rates) as site:
        begin(site, "liar")
        assert site.client.get("/login/oidc/liar", follow_redirects=False).status_code == 429


def test_a_flow_that_took_too_long_is_over(tmp_path: Path, liar: Liar) -> None:
    with world(tmp_path, settings(oidc=(liar.settings(),))) as site:
        url = begin(site, "liar")
        query = dict(parse_qsl(urlsplit(url).query))
        site.clock.advance(minutes=11)
        text = urlencode({"state": query["state"], "code": "c"})
        assert site.client.get(f"{CALLBACK.format('liar')}?{text}").status_code == 400


def change_flow(site: World, **changes: Any) -> None:
    """Change the cookie of the only sign-in, as its browser can."""
    ((name, value),) = [(name, value) for name, value in site.client.cookies.items() if "flow" in name]
    flow = SignInFlow.from_cookie(value)
    assert flow is not None
    site.client.cookies.clear()
    site.client.cookies.set(name, replace(flow, **changes).to_cookie().reveal())


def through_changed(site: World, liar: Liar, **changes: Any) -> Any:
    """A whole sign-in, whose cookie is changed before the answer."""
    query = dict(parse_qsl(urlsplit(begin(site, "liar")).query))
    liar.nonce = query["nonce"]
    change_flow(site, **changes)
    text = urlencode({"state": query["state"], "code": "c"})
    answer = site.client.get(f"{CALLBACK.format('liar')}?{text}", follow_redirects=False)
    site.client.cookies.clear()
    return answer


def test_a_cookie_adds_to_what_the_settings_want_and_never_replaces_it(tmp_path: Path, liar: Liar) -> None:
    wanted = replace(liar.settings(), acr_values=("gold", "silver"), max_age=600)
    now = int(_now().timestamp())
    with site_with(tmp_path, wanted) as site:
        for changes, claims in [
            ({"acr_values": ("bronze",)}, {"acr": "bronze", "auth_time": now}),
            ({"acr_values": ("bronze", "gold")}, {"acr": "bronze", "auth_time": now}),
            ({"acr_values": ("silver",)}, {"acr": "gold", "auth_time": now}),
            ({"max_age": 10**9}, {"acr": "gold", "auth_time": now - 3600}),
            ({"max_age": 300}, {"acr": "gold", "auth_time": now - 400}),
            ({}, {"acr": "bronze", "auth_time": now}),
        ]:
            liar.claims = claims
            answer = through_changed(site, liar, **changes)
            assert (answer.status_code, answer.json()["code"]) == (403, "accounts.step-up-required"), changes
        liar.claims = {"acr": "silver", "auth_time": now}
        assert through_changed(site, liar, acr_values=("silver", "bronze"), max_age=300).status_code == 303


def test_a_provider_is_asked_for_the_classes_that_both_want(tmp_path: Path, liar: Liar) -> None:
    wanted = replace(liar.settings(), acr_values=("gold", "silver"), max_age=600)
    provider = OIDCProvider(wanted, "https://registry.example.org/back", lambda: 0.0)
    for given_values, given_age, asked in [
        ((), None, (("gold", "silver"), 600)),
        (("silver", "bronze"), 300, (("silver",), 300)),
        (("bronze",), 900, (("bronze",), 600)),
    ]:
        flow = replace(FLOW, acr_values=given_values, max_age=given_age)
        assert provider.merge_requirements(flow) == asked


def test_a_provider_that_does_not_tell_the_time_of_a_sign_in_is_named_as_the_cause(
    tmp_path: Path, liar: Liar
) -> None:
    with site_with(tmp_path, replace(liar.settings(), max_age=600)) as site:
        answer = through(site, liar)
        assert (answer.status_code, answer.json()["code"]) == (403, "accounts.step-up-required")
        assert "max_age" in answer.json()["hint"]


@pytest.mark.parametrize("seconds", [-1.0, 610.0, 86_400.0, 9e11])
def test_a_flow_ends_no_later_than_one_that_begins_now(site: World, liar: Liar, seconds: float) -> None:
    answer = through_changed(site, liar, expires=min(_now().timestamp() + seconds, 10**12 - 1))
    assert (answer.status_code, answer.json()["code"]) == (400, "accounts.sign-in-failed")
    assert "token" not in liar.asked


@pytest.mark.parametrize(
    ("claims", "userinfo", "email"),
    [
        ({"email": "ann@example.org", "email_verified": True}, {"email": "eve@example.org"}, None),
        ({"email_verified": True}, {"email": "eve@example.org"}, None),
        ({"email": "eve@example.org"}, {"email_verified": True}, None),
        ({"email": "ann@example.org", "email_verified": True}, {}, "ann@example.org"),
        (
            {"email": "eve@example.org"},
            {"email": "ann@example.org", "email_verified": True},
            "ann@example.org",
        ),
    ],
)
def test_an_address_and_its_confirmation_come_from_one_source(
    site: World, liar: Liar, claims: dict[str, Any], userinfo: dict[str, Any], email: str | None
) -> None:
    liar.claims, liar.userinfo = claims, {"sub": "s", **userinfo}
    assert through(site, liar).status_code == 303
    assert site.do(site.store.accounts.get, who(site)).email == email


class Away:
    """A provider that takes connections and answers nothing, until `back` is set."""

    def __init__(self, liar: Liar) -> None:
        self.app = liar.app()
        self.requests, self.back = 0, True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not self.back:
            self.requests += 1
            message = await receive()
            while message["type"] != "http.disconnect":
                message = await receive()
            return
        await self.app(scope, receive, send)


def test_nobody_waits_for_a_provider_that_is_away_after_the_first(
    liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request waits for the time limit; those behind it fail with it, and sign-outs go on."""
    monkeypatch.setattr("onym.accounts.oidc._TIMEOUT", 0.5)
    away, clock = Away(liar), FakeClock()
    liar.document = {"end_session_endpoint": "https://login.example/end"}

    async def work(provider: OIDCProvider) -> None:
        assert await provider.build_sign_out_url("https://gw.example/") is not None
        away.back = False
        clock.advance(3601)
        answers = await asyncio.gather(
            *(provider.build_authorization_url(FLOW, _now()) for _ in range(8)),
            *(provider.get_keys() for _ in range(8)),
            return_exceptions=True,
        )
        assert all(isinstance(answer, NetError) for answer in answers)
        assert away.requests == 1
        # what was known is enough for a sign-out
        assert (await provider.build_sign_out_url("https://gw.example/") or "").startswith(
            "https://login.example/end?"
        )
        assert away.requests == 1
        clock.advance(5.1)
        with pytest.raises(NetError):
            await provider.get_metadata()
        assert away.requests == 2
        away.back = True
        with pytest.raises(NetError):
            await provider.get_metadata()
        clock.advance(5.1)
        assert await provider.build_authorization_url(FLOW, _now())

    async def run() -> None:
        provider = OIDCProvider(liar.settings(), "https://gw.example/back", clock.monotonic)
        try:
            await work(provider)
        finally:
            await provider.close()

    with run_app(away) as url:
        liar.issuer = url
        asyncio.run(run())


def test_the_sign_in_page_offers_the_providers(site: World) -> None:
    page = site.client.get("/login", headers={"accept": "text/html"})
    assert "/login/oidc/liar" in page.text


FLOW = SignInFlow(Secret("A" * 43), "p", 1_800_000_000, "/x?y=z", ("gold", "silver"), 300, "a" * 64)


def test_a_browser_keeps_four_flows_at_most(site: World) -> None:
    for _ in range(6):
        begin(site, "liar")
        site.clock.advance(seconds=1)
    found = {name: SignInFlow.from_cookie(value) for name, value in site.client.cookies.items()}
    flows = {name: flow for name, flow in found.items() if flow is not None}
    assert len(flows) == 4
    assert all(name == f"__Host-onym-flow-{flow.id}" for name, flow in flows.items())


def test_two_sign_ins_in_two_tabs_do_not_end_each_other(site: World, liar: Liar) -> None:
    first, second = (dict(parse_qsl(urlsplit(begin(site, "liar")).query)) for _ in range(2))
    for query in (first, second):
        liar.nonce = query["nonce"]
        text = urlencode({"state": query["state"], "code": "c"})
        answer = site.client.get(f"{CALLBACK.format('liar')}?{text}", follow_redirects=False)
        assert answer.status_code == 303, answer.text


def test_a_flow_survives_its_cookie() -> None:
    assert SignInFlow.from_cookie(FLOW.to_cookie().reveal()) == FLOW
    assert len({FLOW.derive_text(purpose) for purpose in ("state", "nonce", "verifier")}) == 3
    assert FLOW.derive_text("state") != replace(FLOW, secret=Secret("B" * 43)).derive_text("state")


@given(st.text(max_size=100) | st.binary(max_size=60).map(lambda b: f"{'A' * 43}.{encode_base64url(b)}"))
def test_no_cookie_breaks_the_reading_of_a_flow(text: str) -> None:
    found = SignInFlow.from_cookie(text)
    assert found is None or found.target.startswith("/")
