"""From a person at the gateway to their token at the authority, by every route, with real servers.

One server signs people in and knows the tokens that it gave (`exchange`); another one trusts its identity
assertions (`id-jag`), or signs the person in itself (`connect`). Behind the gateway is a real endpoint.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from ai_support import key_store, trust
from browser_support import accessibility_findings, chromium
from gateway_support import AUTHORITY, Answer, Late, World, world
from oauth_support import AuthorizationServer, authorization_server
from onym.accounts.oidc import ProviderTokens
from onym.ai.endpoint import Endpoint, Task
from onym.ai.endpoint.context import Call
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.server.gateway.settings import AuthorizationServerTable
from onym.server.settings import IssuerTable
from onym.sign.sealing import rotate_secrets
from onym.uri.secret import Secret
from people_support import Browser
from support import holds_a_token, mentions
from telemetry_support import Seen, said

pytestmark = pytest.mark.xdist_group("gateway-people")

SECRET = "a-secret-of-the-tests-4711"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@dataclass
class Bank:
    """What the towns of this module share."""

    stack: ExitStack
    folder: Path


OTHER = "other.test"


class Hosts:
    """Several authorities at one address, each under its own name."""

    def __init__(self, apps: Mapping[str, Endpoint]) -> None:
        self.apps = apps

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            first = await receive()
            for app in self.apps.values():
                messages = iter((first, {"type": "lifespan.shutdown"}))

                async def hear(messages: Any = messages) -> Any:
                    return next(messages)

                await app(scope, hear, send)
            return
        await self.apps[host_of(scope)](scope, receive, send)


def host_of(scope: Any) -> str:
    return dict(scope["headers"])[b"host"].decode().partition(":")[0]


def make_endpoint(late: Late, issuer: str, calls: list[Call], name: str = AUTHORITY) -> Endpoint:
    port, folder, ca = late.port, late.folder / name, late.ca
    folder.mkdir()
    assert ca is not None
    resource = f"https://{name}:{port}/.well-known/aiip/v1"
    tls = trust(ca, folder)
    auth = JWTAuthorization(
        issuer, resource, scopes=("balance", "pay"), network=NetConfig(policy=Policy.local(), tls=tls)
    )
    app = Endpoint(
        f"{name}:{port}",
        keys=key_store(folder),
        authorization=auth,
        store=folder / "keys.db",
        policy="permit(principal, action, resource);",
    )

    @app.resource("/balance", scopes=["balance"])
    def balance(call: Call) -> dict[str, Any]:
        calls.append(call)
        return {"balance": 7, "of": call.caller.subject, "by": call.caller.client_id}

    @app.resource("/note", effects="write", scopes=["balance"], reversible=True)
    def note(call: Call, text: str) -> str:
        calls.append(call)
        return text

    @app.resource("/close", effects="write", scopes=["pay"])
    def close(call: Call, account: str) -> str:
        calls.append(call)
        return f"closed {account}"

    @app.resource("/order", effects="write", scopes=["balance"], reversible=True, task=True)
    async def order(task: Task, call: Call, item: str) -> str:
        size = make_dataclass("Size", [("size", int)])
        answer = await task.ask(size, "Which size?")
        return f"{item} {answer.size} for {call.caller.subject}"

    @app.resource("/pay", effects="financial", scopes=["pay"])
    def pay(amount: int) -> int:
        return amount

    return app


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with ExitStack() as stack:
        yield Bank(stack, tmp_path_factory.mktemp("bank"))


@dataclass
class Town:
    """A gateway with people, its provider and the authority's server."""

    world: World
    login: AuthorizationServer
    server: AuthorizationServer
    calls: list[Call]

    def sign_in(self, browser: Browser, who: str, *, then: str = "/account") -> None:
        first = browser.open(self.world.port, "GET", f"/auth/login/home?next={then}")
        assert first.status == 303, first.body
        back = urlsplit(self.login.sign_in(first.headers["location"], who))
        answer = browser.open(self.world.port, "GET", f"{back.path}?{back.query}")
        assert answer.status == 303, answer.body
        assert answer.headers["location"] == then

    def page(self, browser: Browser, resource: str) -> str:
        answer = browser.open(self.world.port, "GET", self.world.path(resource))
        assert answer.status == 200, answer.body
        return html.unescape(answer.body.decode())

    def send(self, browser: Browser, resource: str, **typed: str) -> Answer:
        """Fill the resource's form in, and send it."""
        page = self.page(browser, resource)
        form = dict(re.findall(r'name="(csrf_token|uri|key)" value="([^"]+)"', page))
        form |= {f"in{index}": value for index, value in enumerate(typed.values())}
        return browser.open(self.world.port, "POST", "/invoke", form)

    def result(self, browser: Browser, answer: Answer, part: str = "/body") -> str:
        assert answer.status == 303, answer.body.decode()
        return browser.open(self.world.port, "GET", answer.headers["location"] + part).body.decode()


def client(base: str, **more: Any) -> dict[str, Any]:
    return {
        "client_id": "gateway",
        "client_secret": SECRET,
        "grant_types": ["authorization_code", "refresh_token", "client_credentials", EXCHANGE, BEARER],
        "redirect_uris": [f"{base}/auth/callback/home", f"{base}/connections/callback"],
        "response_types": ["code"],
        **more,
    }


@pytest.fixture(scope="module")
def make_town(bank: Bank) -> Any:
    """A gateway whose settings of the authority's server are `row`; `foreign` puts that on another server.

    With `two`, there is a second authority of the same server.
    """
    made: dict[str, Town] = {}

    def make(
        name: str,
        *,
        foreign: bool,
        own_key: bool = False,
        seconds: int = 600,
        two: bool = False,
        **row: Any,
    ) -> Town:
        if name in made:
            return made[name]
        folder = bank.folder / name
        folder.mkdir()
        calls: list[Call] = []
        found: dict[str, AuthorizationServer] = {}
        rotate_secrets(folder / "secrets")

        late = Late()

        def prepare(base: str) -> Mapping[str, Any]:
            ca = late.ca
            assert ca is not None
            authority = f"https://{AUTHORITY}:{late.port}/.well-known/aiip/v1"
            other = f"https://{OTHER}:{late.port}/.well-known/aiip/v1"
            resources = {authority: "balance pay", other: "balance pay", base: "use"}
            gateway = client(base)
            if own_key:
                del gateway["client_secret"]
                gateway["token_endpoint_auth_method"] = "private_key_jwt"
                gateway["jwks_uri"] = f"{base}/.well-known/jwks.json"
            secret = None if own_key else Secret(SECRET)
            login = bank.stack.enter_context(
                authorization_server(
                    ca,
                    clients=[gateway],
                    resources=resources,
                    nonce=False,
                    seconds=seconds,
                    audiences={"https://localhost": "gateway"},
                )
            )
            server = login
            if foreign:
                server = bank.stack.enter_context(
                    authorization_server(
                        ca,
                        clients=[gateway],
                        resources=resources,
                        nonce=False,
                        identity_provider={"issuer": login.issuer, "jwks": login.jwks},
                    )
                )
            found["login"], found["server"] = login, server
            late.app = make_endpoint(late, server.issuer, calls)
            if two:
                late.app = Hosts(
                    {AUTHORITY: late.app, OTHER: make_endpoint(late, server.issuer, calls, OTHER)}
                )
            trusted = folder / "ca.pem"
            ca.cert_pem.write_to_path(str(trusted))
            provider = IssuerTable(
                id="home",
                title="Home",
                issuer=login.issuer,
                client_id="gateway",
                client_secret=secret,
                scopes=("openid", "use"),
                network="local",
                ca_file=str(trusted),
                resource=base,
                max_age=3600,
            )
            table = AuthorizationServerTable(
                id="bank", issuer=server.issuer, client_id="gateway", client_secret=secret, **row
            )
            ports = tuple(int(urlsplit(each.issuer).port or 0) for each in (login, server))
            return {
                "providers": (provider,),
                "authorization_servers": (table,),
                "store": Secret(str(folder / "shared.sqlite")),
                "secrets": str(folder / "secrets"),
                "ports": ports,
            }

        place = bank.stack.enter_context(world(late=late, prepare=prepare))
        made[name] = Town(place, found["login"], found["server"], calls)
        return made[name]

    return make


ROUTES = [
    ("exchange", {"foreign": False}),
    ("id-jag", {"foreign": True, "assertions_of": ("home",), "connect": False}),
    ("connect", {"foreign": True}),
]


@pytest.mark.requirement("ai-gateway-g", "ai-gateway-i")
@pytest.mark.parametrize(("route", "row"), ROUTES)
def test_a_person_gets_a_result_that_names_their_token(
    make_town: Any, route: str, row: dict[str, Any]
) -> None:
    town = make_town(route, **row)
    browser = Browser()
    page = town.page(browser, "/balance")
    assert "sign-in-required" in page
    assert "/auth/login?next=%2Fgateway%2F" in page
    town.sign_in(browser, "ann")
    if route == "connect":
        page = town.page(browser, "/balance")
        assert "connection-required" in page
        (link,) = re.findall(r'href="(/connections/begin[^"]+)"', page)
        first = browser.open(town.world.port, "GET", link)
        assert first.status == 303, first.body
        asked = parse_qs(urlsplit(first.headers["location"]).query)
        assert urlsplit(first.headers["location"]).netloc == urlsplit(town.server.issuer).netloc, asked
        back = urlsplit(town.server.sign_in(first.headers["location"], "ann-at-the-bank"))
        answer = browser.open(town.world.port, "GET", f"{back.path}?{back.query}")
        assert (answer.status, answer.headers["location"]) == (303, town.world.path("/balance"))
    answer = town.send(browser, "/balance")
    who = "ann-at-the-bank" if route == "connect" else "ann"
    assert f'"of":"subject-of-{who}"' in town.result(browser, answer)
    caller = town.calls[-1].caller
    assert (caller.client_id, caller.scopes) == ("gateway", frozenset({"balance"}))
    receipt = town.result(browser, answer, "/receipt")
    assert caller.token_hash in _claims(receipt)
    lines = [line for line in town.world.lines() if line.get("route")]
    assert lines[-1]["route"] == route
    assert not mentions(str(lines), "ann")


@pytest.mark.parametrize(
    ("route", "row"),
    [("exchange", {"foreign": False}), ("id-jag", {"foreign": True, "assertions_of": ("home",)})],
)
def test_a_gateway_without_a_secret_authenticates_with_the_key_that_it_publishes(
    make_town: Any, route: str, row: dict[str, Any]
) -> None:
    town = make_town(f"key-{route}", own_key=True, **row)
    browser = Browser()
    town.sign_in(browser, "nia")
    assert "subject-of-nia" in town.result(browser, town.send(browser, "/balance"))
    assert [line["route"] for line in town.world.lines() if line.get("route")][-1] == route


def test_tokens_of_a_sign_in_are_refreshed_before_they_are_exchanged(
    make_town: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # tokens that are always about to end, with time for a busy machine
    monkeypatch.setattr("onym.server.gateway.delegation._TOKEN_MARGIN", 300.0)
    monkeypatch.setattr("onym.server.gateway.sessions._REFRESH_SECONDS", 300.0)
    town = make_town("refresh", foreign=False, seconds=250, connect=False)
    browser, sessions = Browser(), town.world.gateway.parts.sessions
    town.sign_in(browser, "oda")

    async def read(change: dict[str, Any] | None = None) -> ProviderTokens:
        session = await sessions.find(browser.cookies["onym-session"])
        tokens = sessions.open_tokens(session)
        if change is not None:
            await sessions.store.delete(f"token-refresh/{session.digest}")
            await sessions.replace_tokens(session, replace(tokens, **change))
        return tokens  # type: ignore[no-any-return]

    first = asyncio.run(read())
    with ThreadPoolExecutor(4) as pool:
        # a refresh token is accepted once
        pages = list(pool.map(lambda _: town.page(browser, "/balance"), range(4)))
    assert all("Invoke</button>" in page for page in pages)
    second = asyncio.run(read())
    assert second.access != first.access
    assert second.refresh != first.refresh
    assert "subject-of-oda" in town.result(browser, town.send(browser, "/balance"))
    assert asyncio.run(read()) == second
    # the provider does not renew them any more: the session lives, and acts for nobody
    asyncio.run(read({"refresh": Secret("of-another-client"), "expires": 0.0}))
    page = town.page(browser, "/balance")
    assert "authorization-unavailable" in page
    assert "the person's token has ended" in page
    assert browser.open(town.world.port, "GET", "/account").status == 200


def _claims(receipt: str) -> str:
    from onym.common.text import decode_base64url

    return decode_base64url(receipt.split(".")[1]).decode()


def test_the_token_of_the_sign_in_itself_is_never_sent_to_an_authority(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    browser = Browser()
    town.sign_in(browser, "bea")
    town.result(browser, town.send(browser, "/balance"))
    heads = [dict(scope["headers"]) for scope in town.world.endpoint.seen if scope["type"] == "http"]
    sent = [head[b"authorization"].decode().split()[1] for head in heads if b"authorization" in head]
    assert sent
    for token in sent:
        assert '"aud":"https://factory.test' in _claims(token)


def test_two_people_never_share_a_token(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    browsers = {name: Browser() for name in ("cid", "dan")}
    for name, browser in browsers.items():
        town.sign_in(browser, name)
    with ThreadPoolExecutor(2) as pool:  # at the same moment, with no token in the cache
        sent = {name: pool.submit(town.send, browser, "/balance") for name, browser in browsers.items()}
    answers = {name: answer.result() for name, answer in sent.items()}
    for name, answer in answers.items():
        assert f"subject-of-{name}" in town.result(browsers[name], answer)
    # nor can one of them open the result of the other
    stolen = browsers["dan"].open(town.world.port, "GET", answers["cid"].headers["location"] + "/body")
    assert stolen.status == 404


def test_a_write_that_can_be_undone_needs_a_sign_in_and_nothing_more(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    browser = Browser()
    assert "sign-in-required" in town.page(browser, "/note")
    town.sign_in(browser, "eve")
    assert town.result(browser, town.send(browser, "/note", text="milk")) == "milk"


def test_a_write_that_cannot_be_undone_is_shown_before_it_is_sent(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    browser = Browser()
    town.sign_in(browser, "fay")
    before = len(town.calls)
    review = town.send(browser, "/close", account="4711<b>")
    assert review.status == 200
    page = review.body.decode()
    assert "4711&lt;b&gt;" in page
    assert len(town.calls) == before
    form = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', html.unescape(page)))
    changed = browser.open(town.world.port, "POST", "/invoke", {**form, "in0": "4712"})
    assert changed.status == 200  # another call: it is shown first
    forged = browser.open(town.world.port, "POST", "/invoke", {**form, "review": "0" * 64})
    assert forged.status == 200
    other = Browser()
    town.sign_in(other, "gus")
    theirs = other.open(
        town.world.port, "POST", "/invoke", {**form, "csrf_token": other.token(town.world.port)}
    )
    assert theirs.status == 200
    assert len(town.calls) == before
    sent = browser.open(town.world.port, "POST", "/invoke", form)
    assert town.result(browser, sent) == "closed 4711<b>"
    assert len(town.calls) == before + 1


def test_effects_that_need_an_approval_are_not_sent(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    browser = Browser()
    town.sign_in(browser, "hal")
    page = town.page(browser, "/pay")
    assert "approval-required" in page
    form = {
        "csrf_token": browser.token(town.world.port),
        "uri": f"ai://{town.world.authority}/pay",
        "in0": "5",
    }
    refused = browser.open(town.world.port, "POST", "/invoke", form, accept="application/json")
    assert (refused.status, refused.json()["code"]) == (403, "approval-required")


def test_a_program_without_a_form_acts_for_nobody(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    browser = Browser()
    town.sign_in(browser, "ida")
    before = len(town.calls)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    for resource in ("/balance", "/note", "/close"):
        for headers in ({}, {"cookie": cookies, "sec-fetch-site": "same-origin"}):
            answer = town.world.ask("POST", resource, b"{}", **headers)
            assert (answer.status, answer.json()["code"]) == (401, "sign-in-required")
    for scheme in ("Bearer", "DPoP"):
        answer = town.world.ask("POST", "/balance", b"{}", authorization=f"{scheme} x.y.z")
        assert answer.status in {400, 401}
    assert len(town.calls) == before


def test_a_sign_out_takes_the_tokens_along(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    browser = Browser()
    town.sign_in(browser, "joe")
    town.result(browser, town.send(browser, "/balance"))
    token = browser.token(town.world.port)
    old = dict(browser.cookies)
    browser.open(town.world.port, "POST", "/auth/logout", {"csrf_token": token})
    browser.cookies = old
    form = {"csrf_token": token, "uri": f"ai://{town.world.authority}/balance"}
    refused = browser.open(town.world.port, "POST", "/invoke", form, accept="application/json")
    assert (refused.status, refused.json()["code"]) == (401, "sign-in-required")


def test_a_connection_is_shown_ended_and_revoked(make_town: Any) -> None:
    town = make_town("connect", foreign=True)
    browser = Browser()
    town.sign_in(browser, "kim")
    link = f"/connections/begin?uri=ai://{town.world.authority}/balance"
    first = browser.open(town.world.port, "GET", link)
    back = urlsplit(town.server.sign_in(first.headers["location"], "kim"))
    other = Browser()
    town.sign_in(other, "lea")
    # another browser, a second time and a foreign state lead nowhere
    assert other.open(town.world.port, "GET", f"{back.path}?{back.query}").status == 403
    forged = browser.open(town.world.port, "GET", f"{back.path}?code=x&state=y", sec_fetch_site="cross-site")
    assert forged.status == 403
    assert browser.open(town.world.port, "GET", f"{back.path}?{back.query}").status == 303
    assert browser.open(town.world.port, "GET", f"{back.path}?{back.query}").status == 403
    listed = browser.open(town.world.port, "GET", "/connections", accept="application/json").json()
    (shown,) = listed["connections"]
    assert (shown["issuer"], shown["authority"]) == (town.server.issuer, town.world.authority)
    assert "token" not in str(listed)
    page = browser.open(town.world.port, "GET", "/connections").body.decode()
    assert shown["id"] in page
    assert SECRET not in page
    assert not holds_a_token(page)
    form = {"csrf_token": browser.token(town.world.port), "connection": shown["id"]}
    ended = browser.open(town.world.port, "POST", "/connections/end", form, accept="application/json")
    assert ended.json() == {"ended": True, "revoked": True}
    again = browser.open(town.world.port, "POST", "/connections/end", form, accept="application/json")
    assert again.json() == {"ended": True, "revoked": False}
    bad = browser.open(
        town.world.port, "POST", "/connections/end", {**form, "connection": "x"}, accept="application/json"
    )
    assert bad.status == 400
    assert "connection-required" in town.page(browser, "/balance")


def connect(town: Town, browser: Browser, authority: str, who: str) -> None:
    link = f"/connections/begin?uri=ai://{authority}/balance"
    first = browser.open(town.world.port, "GET", link)
    assert first.status == 303, first.body
    back = urlsplit(town.server.sign_in(first.headers["location"], who))
    answer = browser.open(town.world.port, "GET", f"{back.path}?{back.query}")
    assert answer.status == 303, answer.body


def test_attack_60_a_connection_for_one_authority_is_not_used_at_another_of_the_same_server(
    make_town: Any,
) -> None:
    town = make_town("two", foreign=True, two=True)
    port, browser = town.world.port, Browser()
    bank, evil = town.world.authority, f"{OTHER}:{town.world.endpoint.port}"
    town.sign_in(browser, "ann")
    connect(town, browser, bank, "ann")
    csrf = browser.token(port)

    def read(authority: str) -> Answer:
        form = {"csrf_token": csrf, "uri": f"ai://{authority}/balance"}
        return browser.open(port, "POST", "/invoke", form, accept="application/json")

    def sent_to(host: str) -> set[str]:
        heads = [
            dict(scope["headers"])
            for scope in town.world.endpoint.seen
            if scope["type"] == "http" and host_of(scope) == host
        ]
        return {_claims(head[b"authorization"].decode()) for head in heads if b"authorization" in head}

    def listed() -> list[tuple[str, str]]:
        shown = browser.open(port, "GET", "/connections", accept="application/json").json()
        return [(each["authority"], each["issuer"]) for each in shown["connections"]]

    assert read(bank).status in {200, 303}
    assert len(sent_to(AUTHORITY)) == 1
    page = browser.open(port, "GET", f"/gateway/{evil}/balance").body.decode()
    assert "connection-required" in page
    refused = read(evil)
    assert (refused.status, refused.json()["code"]) == (403, "connection-required")
    assert sent_to(OTHER) == set()
    # the person connects to the other one as well: each has its own token
    connect(town, browser, evil, "ann")
    assert listed() == [(bank, town.server.issuer), (evil, town.server.issuer)]
    assert read(evil).status in {200, 303}
    (token,) = sent_to(OTHER)
    assert f'"aud":"https://{OTHER}' in token
    page = html.unescape(browser.open(port, "GET", "/connections").body.decode())
    assert bank in page
    assert evil in page
    # and each is ended by itself
    shown = browser.open(port, "GET", "/connections", accept="application/json").json()["connections"]
    form = {"csrf_token": csrf, "connection": shown[0]["id"]}
    ended = browser.open(port, "POST", "/connections/end", form, accept="application/json")
    assert ended.json() == {"ended": True, "revoked": True}
    assert listed() == [(evil, town.server.issuer)]
    assert read(bank).json()["code"] == "connection-required"
    assert read(evil).status in {200, 303}


def test_a_connection_begins_only_for_a_resource_and_a_person(make_town: Any) -> None:
    town = make_town("connect", foreign=True)
    link = f"/connections/begin?uri=ai://{town.world.authority}/balance"
    assert Browser().open(town.world.port, "GET", link).status == 401
    browser = Browser()
    town.sign_in(browser, "max")
    for uri, status in (
        ("", 400),
        ("https://evil.example/", 400),
        (f"ai://{town.world.authority}/none", 404),
    ):
        assert browser.open(town.world.port, "GET", f"/connections/begin?uri={uri}").status == status
    program = town.world.at("GET", link, accept="application/json")
    assert program.status == 401
    # a link or an image of another site makes no connection in the person's name
    foreign = browser.open(
        town.world.port, "GET", link, sec_fetch_site="cross-site", accept="application/json"
    )
    assert (foreign.status, foreign.json()["code"]) == (403, "forged")


def test_an_authority_whose_server_the_operator_does_not_know_gets_nothing(make_town: Any) -> None:
    town = make_town("unknown", foreign=False, authorities=("somebody.example",))
    browser = Browser()
    town.sign_in(browser, "ned")
    assert "authorization-unavailable" in town.page(browser, "/balance")
    assert town.calls == []


def test_the_gateway_reads_in_its_own_name_if_the_operator_says_so(make_town: Any) -> None:
    town = make_town("service", foreign=False, service=True, connect=False)
    answer = town.world.ask("POST", "/balance", b"{}")
    assert answer.status == 200, answer.body
    assert answer.json()["by"] == "gateway"
    assert town.world.ask("POST", "/note", b'{"text": "x"}').status == 401
    # people are told before and after
    browser = Browser()
    assert "in the name of this gateway" in town.page(browser, "/balance")
    shown = town.result(browser, town.send(browser, "/balance"), part="")
    assert "in the name of this gateway" in shown


def test_fields_that_prove_a_caller_stay_at_the_gateway(make_town: Any) -> None:
    town = make_town("service", foreign=False, service=True, connect=False)
    before = len(town.world.endpoint.seen)
    answer = town.world.ask(
        "POST",
        "/balance",
        b"{}",
        authorization="Bearer of-the-caller",
        dpop="proof-of-the-caller",
        aiip_approval="approval-of-the-caller",
        client_cert=":Y2VydGlmaWNhdGU=:",
        signature="sig1=:Y2FsbGVy:",
        signature_input='sig1=("@method");created=1',
        cookie="onym-session=of-the-caller",
    )
    assert answer.status in {200, 400, 401}
    for scope in town.world.endpoint.seen[before:]:
        if scope["type"] == "http":
            assert b"caller" not in b"".join(value for _, value in scope["headers"])
            names = {name for name, _ in scope["headers"]}
            # a DPoP field is the proof of the gateway itself
            assert names.isdisjoint({b"aiip-approval", b"client-cert", b"signature", b"cookie"})


def test_a_link_or_a_prefetch_of_any_effect_describes_and_acts_not(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    browser = Browser()
    town.sign_in(browser, "oda")
    before = len(town.calls)
    for resource in ("/balance", "/note?text=x", "/close?account=1", "/pay?amount=5"):
        for method in ("GET", "HEAD"):
            for more in ({}, {"sec_purpose": "prefetch"}, {"sec_fetch_site": "cross-site"}):
                found = browser.open(town.world.port, method, town.world.path(resource), **more)
                assert found.status in {200, 403}
    assert len(town.calls) == before


def begin_order(town: Town, browser: Browser, item: str) -> str:
    """Begin a task from its form; the path and query of its page."""
    answer = town.send(browser, "/order", item=item)
    assert answer.status == 303, answer.body.decode()
    parts = urlsplit(answer.headers["location"])
    assert parts.path.startswith("/tasks/status/")
    return f"{parts.path}?{parts.query}"


def part_of(path: str, name: str) -> str:
    return path.replace("/tasks/status/", f"/tasks/{name}/")


def wait_for(town: Town, browser: Browser, path: str, state: str) -> str:
    """The text of the task's page once it has this state."""
    while True:
        page = html.unescape(browser.open(town.world.port, "GET", path).body.decode())
        if f">{state}</span>" in page:
            return page


def forms_of(page: str, action: str) -> dict[str, str]:
    """The hidden fields of the form with this action."""
    (form,) = re.findall(rf'<form method="post" action="[^"]*{action}[^"]*">(.*?)</form>', page, re.DOTALL)
    return dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))


def test_a_person_answers_the_question_of_their_task_and_opens_its_result(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    port, browser = town.world.port, Browser()
    town.sign_in(browser, "ida")
    path = begin_order(town, browser, "shoes")
    page = wait_for(town, browser, path, "input-required")
    assert "Which size?" in page
    assert "Only you can open this page" in page
    assert "refresh" not in browser.open(port, "GET", path).headers
    form = forms_of(page, "/tasks/input/")
    for wrong in ({"in0": "big"}, {"in0": "9", "question": "0" * 32}):
        again = browser.open(port, "POST", part_of(path, "input"), {**form, **wrong})
        assert again.status == 422
        assert 'role="alert"' in again.body.decode()
    sent = browser.open(port, "POST", part_of(path, "input"), {**form, "in0": "42"})
    assert (sent.status, sent.headers["location"]) == (303, town.world.base + path)
    wait_for(town, browser, path, "completed")
    result = browser.open(port, "GET", part_of(path, "result"))
    result = browser.open(port, "GET", result.headers["location"] + "/body")
    assert result.body == b"shoes 42 for subject-of-ida"
    events = browser.open(port, "GET", part_of(path, "events"), accept="text/event-stream")
    assert b"event: gateway-receipt" in events.body
    # a second click does not hurt
    late = browser.open(port, "POST", part_of(path, "input"), {**form, "in0": "43"})
    assert late.status == 303


def test_attack_90_a_task_of_another_person_is_the_same_404_as_no_task(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    port, owner, other = town.world.port, Browser(), Browser()
    town.sign_in(owner, "jon")
    town.sign_in(other, "kim")
    path = begin_order(town, owner, "hat")
    page = wait_for(town, owner, path, "input-required")
    query = parse_qs(urlsplit(path).query)
    absent = f"{urlsplit(path).path}?{urlencode({'task': 'x' * 32, 'request': query['request'][0]})}"
    question = forms_of(page, "/tasks/input/")["question"]
    forms = {"csrf_token": other.token(port), "in0": "1", "question": question}

    def body(method: str, target: str) -> tuple[int, str]:
        form = {**forms, "question": forms_of(page, "/tasks/input/")["question"]}
        answer = other.open(
            port, method, target, form if method == "POST" else None, accept="application/json"
        )
        text = answer.body.decode().replace(answer.headers["x-request-id"], "")
        return answer.status, text

    for method, name in (
        ("GET", "status"), ("GET", "events"), ("GET", "result"), ("POST", "input"), ("POST", "cancel"),
    ):  # fmt: skip
        found = body(method, part_of(path, name))
        assert found == body(method, part_of(absent, name))
        assert found[0] == 404, (name, found)
        assert '"code":"task-not-found"' in found[1]
    assert ">input-required</span>" in owner.open(port, "GET", path).body.decode()


def test_a_session_opens_a_task_for_pages_and_forms_of_this_gateway_only(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    port, browser = town.world.port, Browser()
    town.sign_in(browser, "leo")
    path = begin_order(town, browser, "coat")
    page = wait_for(town, browser, path, "input-required")
    link = browser.open(port, "GET", path, sec_fetch_site="cross-site")
    assert link.status == 401
    (href,) = re.findall(r'href="(/auth/login[^"]+)"', link.body.decode())
    back = browser.open(port, "GET", html.unescape(href))
    assert (back.status, back.headers["location"]) == (303, path)
    bare = {"accept": "application/json", "content_type": "application/json"}
    assert browser.open(port, "POST", part_of(path, "input"), **bare).status == 401
    assert browser.open(port, "DELETE", path, **bare).status == 401
    assert Browser().open(port, "GET", path).status == 401
    stop = browser.open(port, "POST", part_of(path, "cancel"), forms_of(page, "/tasks/cancel/"))
    assert (stop.status, stop.headers["location"]) == (303, town.world.base + path)
    wait_for(town, browser, path, "canceled")


def test_a_browser_answers_and_cancels_a_persons_tasks(make_town: Any) -> None:
    town = make_town("exchange", foreign=False)
    base, signed = town.world.base, Browser()
    town.sign_in(signed, "mia")
    cookies = [{"name": name, "value": value, "url": base} for name, value in signed.cookies.items()]
    with chromium() as started:
        context = started.new_context(viewport={"width": 360, "height": 780}, color_scheme="dark")
        context.set_default_timeout(300_000)
        context.add_cookies(cookies)
        page = context.new_page()
        for item, way in (("boots", "Send the answer"), ("scarf", "Cancel the task")):
            page.goto(base + town.world.path("/order"))
            page.get_by_label("item").fill(item)
            page.get_by_role("button", name="Invoke").click()
            page.get_by_label("size").wait_for()
            assert accessibility_findings(page) == []
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            if item == "boots":
                page.get_by_label("size").fill("7")
            page.get_by_role("button", name=way).click()
            final = page.get_by_text("completed" if item == "boots" else "canceled", exact=True)
            while not final.is_visible():
                page.goto(page.url)
        context.close()


def test_sign_ins_and_tokens_are_observed_without_a_person(
    make_town: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gateway_support

    seen, real = Seen(), gateway_support.create_gateway
    monkeypatch.setattr(
        gateway_support, "create_gateway", lambda *given, **how: real(*given, telemetry=seen.telemetry, **how)
    )
    town = make_town("observed", foreign=False)
    browser = Browser()
    town.sign_in(browser, "pia-of-the-tests")
    town.result(browser, town.send(browser, "/balance"))
    refused = browser.open(town.world.port, "GET", "/auth/callback/home?state=x&code=a-code-of-pia")
    assert refused.status == 403
    assert [(said(span, "step"), said(span, "error.type")) for span in seen.named("signin", "gateway")] == [
        ("login", None), ("callback", None), ("callback", "aiip.sign-in-failed"),
    ]  # fmt: skip
    tokens = seen.named("token", "gateway")
    assert tokens
    assert {said(span, "route") for span in tokens} == {"exchange"}
    counted = [
        point.attributes
        for point in seen.points("aiip.stage.duration")
        if point.attributes["aiip.stage"] in {"signin", "token"}
    ]
    assert {name for labels in counted for name in labels} <= {
        "aiip.stage", "aiip.role", "aiip.step", "aiip.route", "error.type",
    }  # fmt: skip
    told = seen.everything()
    for private in ("pia-of-the-tests", *browser.cookies.values()):
        assert private not in told
