"""Attack 101: rate limits that the gateways of a fleet share, and their shares without the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from gateway_support import world
from onym.server.clients import SharedRates, make_address_key
from onym.server.gateway.settings import GatewayRates
from onym.server.settings import RateLimit
from onym.uri.secret import Secret
from support import free_port
from valkey_support import ValkeyServer, valkey_server

RATE = RateLimit(burst=10, per_minute=20)
LIMITS = GatewayRates(reads=RATE, writes=RATE, logins=RATE)


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    with valkey_server() as running:
        yield running


def run(
    work: Callable[[list[SharedRates]], Awaitable[None]], url: Secret | None, *, machines: int = 2
) -> int:
    """Play with the rates of several machines; how often they were decided without the store."""
    fallbacks: list[int] = []

    async def main() -> None:
        fleet = [
            SharedRates(
                LIMITS, lambda: 100.0, url=url, share=1 / machines, count_fallback=lambda: fallbacks.append(1)
            )
            for _ in range(machines)
        ]
        try:
            await work(fleet)
        finally:
            for rates in fleet:
                await rates.close()

    asyncio.run(main())
    return len(fallbacks)


def test_a_thousand_addresses_of_one_network_share_one_bucket_of_the_fleet(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one command of a thousand may wait for a busy machine
    monkeypatch.setattr("onym.server.clients._STORE_SECONDS", 60.0)
    url = Secret(f"valkey://:{valkey.password}@127.0.0.1:{valkey.port}/1")

    async def work(fleet: list[SharedRates]) -> None:
        keys = [make_address_key(f"2001:db8:1:2::{number:x}") for number in range(1000)]
        waits = [await fleet[number % 2].take_token("reads", key) for number, key in enumerate(keys)]
        # a window may end while the test runs
        assert 30 <= waits.count(0) <= 60
        assert waits[-1] == 3
        assert await fleet[0].take_token("reads", make_address_key("2001:db8:1:3::1")) == 0
        assert await fleet[1].take_token("writes", keys[0]) == 0

    assert run(work, url) == 0


def test_without_the_store_every_machine_allows_its_share(caplog: pytest.LogCaptureFixture) -> None:
    url = Secret(f"valkey://:hunter2@127.0.0.1:{free_port()}/1")

    async def work(fleet: list[SharedRates]) -> None:
        waits = [await fleet[number % 2].take_token("reads", "address:192.0.2.1") for number in range(40)]
        assert waits.count(0) == RATE.burst

    with caplog.at_level(logging.WARNING):
        assert run(work, url) == 40
    assert "local" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_header_of_a_stranger_is_no_address() -> None:
    rates: Any = GatewayRates(reads=RateLimit(burst=5, per_minute=1), writes=RATE, logins=RATE)
    with world(rates=rates, rate_store=None) as town:
        found = [
            town.ask(
                "GET", "/tool/add", x_forwarded_for=f"192.0.2.{number}", forwarded="for=192.0.2.9"
            ).status
            for number in range(8)
        ]
    assert found == [200] * 5 + [429] * 3
