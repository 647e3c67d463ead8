"""What load balancers ask a gateway: whether it runs, and whether it can serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onym.server.gateway import GatewaySettings, create_gateway
from onym.server.settings import IssuerTable
from onym.sign.sealing import rotate_secrets
from onym.store.valkey import ValkeyOptions, open_valkey
from onym.uri.secret import Secret
from support import free_port
from valkey_support import ValkeyServer, valkey_server

ISSUER = IssuerTable(id="works", title="The works", issuer="https://login.example", client_id="gateway")


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with valkey_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _time_for_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    patient = ValkeyOptions(timeout=60.0, connect_timeout=60.0)
    monkeypatch.setattr("onym.store.shared.DEFAULT_VALKEY", patient)


def make_url(server: ValkeyServer) -> Secret:
    return Secret(f"unix://:{server.password}@{server.socket}")


async def ask(app: Any, path: str, host: str = "10.0.0.7") -> tuple[int, str]:
    """The answer to a request that comes by the address of the machine."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", host.encode())],
        "client": ("192.0.2.1", 40_000),
    }
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"].decode()


async def start(app: Any) -> dict[str, Any]:
    """What the server hears when it starts the app."""
    heard: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup" if not heard else "lifespan.shutdown"}

    async def send(message: Any) -> None:
        heard.append(message)

    await app({"type": "lifespan"}, receive, send)
    first: dict[str, Any] = heard[0]
    return first


def build(folder: Path, store: Secret) -> Any:
    rotate_secrets(folder / "secrets")
    return create_gateway(GatewaySettings(providers=(ISSUER,), store=store, secrets=str(folder / "secrets")))


def run(app: Any, work: Callable[[], Any]) -> None:
    async def main() -> None:
        try:
            await work()
        finally:
            await app.close()

    asyncio.run(main())


def test_a_gateway_without_people_is_ready() -> None:
    app = create_gateway(GatewaySettings())

    async def work() -> None:
        assert await ask(app, "/healthz") == (200, "ok\n")
        assert await ask(app, "/readyz") == (200, "ok\n")

    run(app, work)


def test_a_gateway_is_ready_while_its_store_is(
    valkey: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure matrix: a store that drops values, and one that is back."""
    app = build(tmp_path, make_url(valkey))
    monkeypatch.setattr("onym.server.gateway.app._CHECK_SECONDS", 0.0)

    async def work() -> None:
        assert await ask(app, "/readyz") == (200, "ok\n")
        admin.config_set("maxmemory-policy", "allkeys-lru")
        assert await ask(app, "/readyz") == (503, "store.eviction\n")
        assert await ask(app, "/healthz") == (200, "ok\n")
        admin.config_set("maxmemory-policy", "noeviction")
        assert await ask(app, "/readyz") == (200, "ok\n")

    with open_valkey(make_url(valkey), ValkeyOptions(timeout=60.0)) as admin:
        try:
            run(app, work)
        finally:
            admin.config_set("maxmemory-policy", "noeviction")


def test_strangers_cause_one_check_in_five_seconds(valkey: ValkeyServer, tmp_path: Path) -> None:
    app = build(tmp_path, make_url(valkey))

    async def work() -> None:
        began = time.monotonic()
        before = admin.info("commandstats").get("cmdstat_time", {}).get("calls", 0)
        assert {await ask(app, "/readyz") for _ in range(200)} == {(200, "ok\n")}
        calls = admin.info("commandstats")["cmdstat_time"]["calls"] - before
        assert calls <= 1 + (time.monotonic() - began) // 5

    with open_valkey(make_url(valkey), ValkeyOptions(timeout=60.0)) as admin:
        run(app, work)


def test_a_gateway_without_its_store_does_not_start(valkey: ValkeyServer, tmp_path: Path) -> None:
    app = build(tmp_path, Secret(f"valkey://:hunter2@127.0.0.1:{free_port()}"))
    heard = asyncio.run(start(app))
    assert heard["type"] == "lifespan.startup.failed"
    assert "hunter2" not in heard["message"]
    assert "cannot be reached" in heard["message"]
    assert asyncio.run(start(build(tmp_path, make_url(valkey))))["type"] == "lifespan.startup.complete"
