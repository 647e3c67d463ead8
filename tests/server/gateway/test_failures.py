"""A9: stores and servers of others are stopped and come back under load (gateway2 7).

`ONYM_STOP_SECONDS=30` keeps each of them stopped for so long.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ai_support import PATIENCE, Heard, Line, authority_ca, key_store, serve_asgi, trust
from failures_support import load, stopped, wait_until
from gateway_support import AUTHORITY, Late, ask, world
from oauth_support import authorization_server, restarted_server
from onym.ai.endpoint import Endpoint, Limits
from onym.ai.endpoint.context import Call
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.ai.records import Level
from onym.net.config import NetConfig
from onym.net.messages import HTTPRequest, Send
from onym.net.policy import Policy
from onym.server.gateway.settings import AuthorizationServerTable
from onym.server.settings import IssuerTable
from onym.sign.sealing import rotate_secrets
from onym.store.valkey import ValkeyOptions, open_valkey
from onym.uri.secret import Secret
from openid_support import restarted_provider
from people_support import ACR, Browser, people
from postgres_support import Postgres, postgres_server
from support import free_port
from valkey_support import ValkeyServer, valkey_server

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGSTOP")

GRANTS = (
    "urn:ietf:params:oauth:grant-type:token-exchange",
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
)
#: the life of a token of the bank, of which the gateway uses all but the last 30 seconds
TOKEN_SECONDS = 105
#: how far the gateway's clock may be from the others, with room for a busy machine: a minute is too much
APART = timedelta(seconds=40)


def get_pid(server: ValkeyServer) -> int:
    with open_valkey(make_url(server), ValkeyOptions(timeout=60.0)) as admin:
        return int(admin.info("server")["process_id"])


def make_url(server: ValkeyServer) -> Secret:
    return Secret(f"valkey://:{server.password}@127.0.0.1:{server.port}/0")


def test_nobody_is_signed_in_by_mistake_while_valkey_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 where a session must be looked up; open reads go on; an emptied store means a new sign-in."""
    quick = ValkeyOptions(timeout=0.5, connect_timeout=0.5)
    monkeypatch.setattr("onym.store.shared.DEFAULT_VALKEY", quick)
    monkeypatch.setattr("onym.server.gateway.app._CHECK_SECONDS", 0.2)
    with valkey_server() as first, people(tmp_path, store=make_url(first)) as town:
        (port,) = town.ports
        ann, stranger = Browser(), Browser()
        town.sign_in(ann, "ann")

        def look() -> tuple[str, int]:
            answer = town.account(ann)
            if answer.status == 200:
                assert json.loads(answer.body)["subject"] == town.provider.subject("ann")
            return "ann", answer.status

        def look_as_stranger() -> tuple[str, int]:
            return "stranger", town.account(stranger).status

        def read() -> tuple[str, int]:
            return "read", town.towns[0].ask("POST", "/tool/add?a=1&b=2").status

        with load(look, look_as_stranger, read, times=2) as work:
            work.wait_for(("ann", 200), more=5)
            with stopped([get_pid(first)]):
                work.wait_for(("ann", 503), more=3)
                work.wait_for(("read", 200), more=5)
                wait_until(lambda: ask(port, "GET", "/readyz").status == 503)
                assert ask(port, "GET", "/healthz").status == 200
            wait_until(lambda: ask(port, "GET", "/readyz").status == 200)
            work.wait_for(("ann", 200), more=5)
            os.kill(get_pid(first), signal.SIGKILL)
            work.wait_for(("ann", 503), more=3)
            with valkey_server(like=first):
                work.wait_for(("ann", 401), more=3)
                town.sign_in(ann, "ann")
                work.wait_for(("ann", 200), more=3)
        assert {result for result in work.results if result[0] == "read"} == {("read", 200)}
        assert {status for who, status in work.results if who == "stranger"} <= {401, 503}


def test_without_a_provider_nobody_signs_in_and_sessions_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session begins, none ends, a step-up says "later"; sign-outs here need no provider."""
    monkeypatch.setattr("onym.accounts.oidc._TIMEOUT", 60.0)
    monkeypatch.setattr("onym.accounts.oidc._FAILURE_SECONDS", 0.5)
    # what is known about the provider is always old
    monkeypatch.setattr("onym.accounts.oidc._METADATA_SECONDS", 0.0)
    with ExitStack() as stack:
        town = stack.enter_context(people(tmp_path))
        (port,), ann = town.ports, Browser()
        town.sign_in(ann, "ann")

        def look() -> tuple[str, int]:
            return "ann", town.account(ann).status

        def begin() -> tuple[str, int]:
            answer = Browser().open(port, "GET", "/auth/login/real", accept="application/json")
            if answer.status == 503:
                assert (answer.json()["code"], answer.json()["retryable"]) == ("unavailable", True)
            return "begin", answer.status

        def read() -> tuple[str, int]:
            return "read", town.towns[0].ask("POST", "/tool/add?a=1&b=2").status

        def check_outage(leaving: Browser, late: Browser, back: str) -> None:
            """What one person sees, while the load goes on."""
            work.wait_for(("begin", 503), more=3)
            step_up = ann.open(port, "GET", f"/auth/step-up?next=/account&acr_values={ACR[1]}")
            assert step_up.status == 503
            assert "Try again later" in step_up.body.decode()
            # a code that the provider gave before
            assert town.come_back(late, back, accept="application/json").status == 503
            assert town.account(late).status == 401
            form = {"csrf_token": leaving.token(port)}
            left = leaving.open(port, "POST", "/auth/logout", form)
            assert left.status == 303
            assert left.headers["location"].startswith(f"{town.provider.issuer}/session/end?")
            assert town.account(leaving).status == 401
            work.wait_for(("ann", 200), more=5)
            work.wait_for(("read", 200), more=5)

        def prepare() -> tuple[Browser, Browser, str]:
            leaving, late = Browser(), Browser()
            town.sign_in(leaving, "bob")
            url = town.begin(late)
            return leaving, late, town.provider.sign_in(url, "cid", jar=late.at_provider)

        def check_return() -> None:
            work.wait_for(("begin", 303), more=3)
            fresh = Browser()
            town.sign_in(fresh, "dan")
            assert town.account(fresh).status == 200

        with load(look, begin, read) as work:
            work.wait_for(("begin", 303), more=3)
            given = prepare()
            with monkeypatch.context() as short:
                short.setattr("onym.accounts.oidc._TIMEOUT", 1.0)
                # what began with the longer time has ended
                work.wait_for(("begin", 303), more=2)
                with stopped([town.provider.pid]):
                    check_outage(*given)
            check_return()
            given = prepare()
            os.kill(town.provider.pid, signal.SIGKILL)
            check_outage(*given)
            town.provider = stack.enter_context(restarted_provider(town.provider))
            check_return()
    assert {status for who, status in work.results if who in {"ann", "read"}} == {200}
    assert {status for who, status in work.results if who == "begin"} == {303, 503}


class Clock:
    """The gateway's time, which a test moves."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Bank:
    """A gateway whose people sign in at `login`, and an authority that takes tokens of `server`.

    Every route is open: `id-jag` is the first that fits; there are connections and the gateway's own name.
    """

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder, self.stack = folder, stack
        self.clock, self.late = Clock(), Late()
        self.clock.ahead = -APART
        self.callers: list[tuple[str | None, str | None]] = []
        rotate_secrets(folder / "secrets")
        self.world = stack.enter_context(
            world(late=self.late, prepare=self._prepare, clock=self.clock, timeout=60)
        )

    def _prepare(self, base: str) -> dict[str, Any]:
        ca = self.late.ca
        assert ca is not None
        resource = f"https://{AUTHORITY}:{self.late.port}/.well-known/aiip/v1"
        client = {
            "client_id": "gateway",
            "client_secret": "a-secret-of-the-tests",
            "grant_types": ["authorization_code", "refresh_token", "client_credentials", *GRANTS],
            "redirect_uris": [f"{base}/auth/callback/home", f"{base}/connections/callback"],
            "response_types": ["code"],
        }
        given: dict[str, Any] = {
            "clients": [client],
            "resources": {resource: "balance", base: "use"},
            "nonce": False,
        }
        login = authorization_server(ca, **given, audiences={"https://localhost": "gateway"})
        self.login = self.stack.enter_context(login)
        trusting = {"issuer": self.login.issuer, "jwks": self.login.jwks}
        server = authorization_server(ca, **given, seconds=TOKEN_SECONDS, identity_provider=trusting)
        self.server = self.stack.enter_context(server)
        self.late.app = self._make_endpoint(resource)
        trusted = self.folder / "ca.pem"
        ca.cert_pem.write_to_path(str(trusted))
        secret = Secret("a-secret-of-the-tests")
        provider = IssuerTable(
            id="home",
            issuer=self.login.issuer,
            client_id="gateway",
            client_secret=secret,
            scopes=("openid", "use"),
            network="local",
            ca_file=str(trusted),
            resource=base,
        )
        row = AuthorizationServerTable(
            id="bank",
            issuer=self.server.issuer,
            client_id="gateway",
            client_secret=secret,
            assertions_of=("home",),
            service=True,
        )
        return {
            "providers": (provider,),
            "authorization_servers": (row,),
            "store": Secret(str(self.folder / "shared.sqlite")),
            "secrets": str(self.folder / "secrets"),
            "ports": tuple(int(urlsplit(each.issuer).port or 0) for each in (self.login, self.server)),
        }

    def _make_endpoint(self, resource: str) -> Endpoint:
        ca = self.late.ca
        assert ca is not None
        auth = JWTAuthorization(
            self.server.issuer,
            resource,
            scopes=("balance",),
            # the clocks of the test are apart
            dpop=Level.NONE,
            network=NetConfig(policy=Policy.local(), tls=trust(ca, self.late.folder)),
        )
        name = f"{AUTHORITY}:{self.late.port}"
        app = Endpoint(name, keys=key_store(self.late.folder), authorization=auth)

        @app.resource("/balance", scopes=["balance"])
        def balance(call: Call) -> int:
            self.callers.append((call.caller.subject, call.caller.client_id))
            return 7

        return app

    def sign_in(self, who: str) -> Browser:
        browser = Browser()
        first = browser.open(self.world.port, "GET", "/auth/login/home?next=/account")
        back = urlsplit(self.login.sign_in(first.headers["location"], who))
        assert browser.open(self.world.port, "GET", f"{back.path}?{back.query}").status == 303
        return browser

    def make_reader(self, who: str) -> Callable[[], tuple[str, int, str]]:
        """A function that sends this person's call: who, status and code."""
        browser = self.sign_in(who)
        form = {"csrf_token": browser.token(self.world.port), "uri": f"ai://{self.world.authority}/balance"}

        def read() -> tuple[str, int, str]:
            answer = browser.open(self.world.port, "POST", "/invoke", form, accept="application/json")
            problem = answer.json() if answer.status >= 400 else {}
            assert answer.status != 403, problem
            if answer.status == 503:
                assert problem["retryable"] is True
            return who, answer.status, problem.get("code", "")

        return read


def test_without_an_authorization_server_kept_tokens_go_on_and_no_other_route_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 `authorization-unavailable` for who has no token; those that are kept are used until they end."""

    def send_hastily(request: HTTPRequest, timeout: float, **more: Any) -> Send:
        return Send(request, min(timeout, 2.0), **more)

    with ExitStack() as stack:
        bank = Bank(stack, tmp_path)
        ann, bob = bank.make_reader("ann"), bank.make_reader("bob")
        # a call that was made leads to the page of its result
        served, gone = ("ann", 303, ""), (503, "authorization-unavailable")

        def check_outage() -> None:
            # bob has no token, ann has one, which then ends
            assert bob()[1:] == gone
            work.wait_for(served, more=5)
            assert bob()[1:] == gone
            bank.clock.ahead = APART
            work.wait_for(("ann", *gone), more=2)
            bank.clock.ahead = -APART

        with load(ann, times=2) as work:
            work.wait_for(served, more=5)
            with monkeypatch.context() as short, stopped([bank.server.pid]):
                # for tokens only: other calls have the time that a busy machine needs
                short.setattr("onym.ai.oauth.Send", send_hastily)
                check_outage()
            work.wait_for(served, more=5)
            os.kill(bank.server.pid, signal.SIGKILL)
            check_outage()
            bank.server = stack.enter_context(restarted_server(bank.server))
            work.wait_for(served, more=5)
            wait_until(lambda: bob()[1] == 303)
        assert set(work.results) == {served, ("ann", *gone)}
        # nobody was called in the gateway's name, and no call had the token of another person
        subjects = Counter(subject for subject, _ in bank.callers)
        assert set(subjects) == {bank.server.subject("ann"), bank.server.subject("bob")}
        routes = {line["route"] for line in bank.world.lines() if line.get("route")}
        assert routes == {"id-jag"}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server(durable=True) as running:
        yield running


class Shop:
    """Two machines of one authority, and every order that was sent to one of them."""

    def __init__(self, folder: Path, url: Secret) -> None:
        self.ca = authority_ca()
        self.name = f"factory.test:{free_port()}"
        self.ran: Counter[int] = Counter()
        self.numbers = itertools.count()
        self.ports: list[int] = []
        #: the last answer to each order
        self.answers: dict[int, Heard] = {}
        keys = key_store(folder)
        self.apps = [self._make_machine(keys, url) for _ in range(2)]

    def _make_machine(self, keys: Any, url: Secret) -> Endpoint:
        limits = Limits(keys=100_000, tasks_running=10_000, tasks_kept=100_000, tasks_total=100_000)
        policy = "permit(principal, action, resource);"
        app = Endpoint(self.name, keys=keys, store=url, policy=policy, limits=limits)

        @app.resource("/order", effects="financial", task=True)
        def order(number: int) -> int:
            self.ran[number] += 1
            return number

        return app

    def send(self, number: int, machine: int) -> Heard:
        """One order, whose key is its number; every third one is a task."""
        fields = [("Idempotency-Key", f'"order-{number:08}-0123456789"')]
        if number % 3 == 0:
            fields.append(("Prefer", "respond-async"))
        with Line(self.name, self.ca, port=self.ports[machine]) as line:
            self.answers[number] = heard = line.ask("POST", f"/order?number={number}", b"", *fields)
        return heard

    def send_next(self) -> int:
        number = next(self.numbers)
        return self.send(number, number % 2).status

    def find_end(self, number: int) -> tuple[str, int]:
        """How an order ended, for all time, asked with the same key until that is known."""
        for attempt in itertools.count():
            heard = self.answers[number]
            if heard.status == 202:
                return self._wait_for_task(heard.get("location") or "")
            if heard.status == 200:
                assert heard.json() == number
                return "completed", 1
            assert heard.status in {409, 503}, (heard.status, heard.body)
            if not heard.json()["retryable"]:
                return "interrupted", 0
            self.send(number, attempt % 2)
        raise AssertionError

    def _wait_for_task(self, location: str) -> tuple[str, int]:
        until = time.monotonic() + PATIENCE
        while True:
            with Line(self.name, self.ca, port=self.ports[0]) as line:
                target = "/" + location.split("/", 3)[3]
                status = line.ask("GET", target, b"", ("Prefer", "wait=5"), service=False).json()
            if "result" in status:
                return status["state"], int(status["state"] == "completed")
            assert time.monotonic() < until, status


def test_no_order_runs_twice_and_none_is_lost_while_postgresql_is_away(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 before effects; what was answered with 202 ends; a key says the same for ever."""
    monkeypatch.setattr("onym.store.postgres.ANSWER_SECONDS", 1.0)
    monkeypatch.setattr("onym.store.postgres._CONNECT_SECONDS", 2)
    with postgres.database() as database:
        shop = Shop(tmp_path, Secret(postgres.url(database, tcp=True)))
        first, second = (serve_asgi(app, "factory.test", ca=shop.ca) for app in shop.apps)
        with first as one, second as two:
            shop.ports = [one, two]
            with load(shop.send_next, times=4) as work:
                work.wait_for(200, more=20)
                with stopped(postgres.list_processes()):
                    work.wait_for(503, more=4)
                work.wait_for(200, more=20)
                # a killed backend: the server ends all sessions, and recovers from its log
                os.kill(postgres.list_processes()[-1], signal.SIGKILL)
                work.wait_for(503)
                work.wait_for(200, more=20)
            ends = {number: shop.find_end(number) for number in sorted(shop.answers)}
    assert set(work.results) <= {200, 202, 409, 503}
    for number, (state, ran) in ends.items():
        assert state in {"completed", "failed", "interrupted"}
        assert ran <= shop.ran[number] <= 1, (number, state)
    print(Counter(work.results), Counter(state for state, _ in ends.values()))
