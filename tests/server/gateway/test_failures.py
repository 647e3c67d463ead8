"""A9: stores and servers of others are stopped and come back under load (gateway2 7).

`ONYM_STOP_SECONDS=30` keeps each of them stopped for so long.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_support import Heard, Line, authority_ca, key_store, serve_asgi
from failures_support import load, stopped, wait_until
from gateway_support import ask
from onym.ai.endpoint import Endpoint, Limits
from onym.store.valkey import ValkeyOptions, open_valkey
from onym.uri.secret import Secret
from people_support import Browser, people
from postgres_support import Postgres, postgres_server
from support import free_port
from valkey_support import ValkeyServer, valkey_server

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGSTOP")


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
        for _ in range(4):
            with Line(self.name, self.ca, port=self.ports[0]) as line:
                target = "/" + location.split("/", 3)[3]
                status = line.ask("GET", target, b"", ("Prefer", "wait=5"), service=False).json()
            if "result" in status:
                return status["state"], int(status["state"] == "completed")
        raise AssertionError(status)


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
