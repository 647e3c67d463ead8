"""Names to addresses: through the system, and through DNS alone."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from net_support import NameServer
from onym.errors import DeadlineExceeded, OnymError, ResolveError
from onym.net.connections import AddressResolver, DNSResolver, SystemResolver


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def lookup(kind: str, resolver: AddressResolver, host: str, seconds: float | None = 300.0) -> list[str]:
    deadline = None if seconds is None else time.monotonic() + seconds
    if kind == "sync":
        return resolver.lookup(host, deadline)
    return asyncio.run(_alookup(resolver, host, deadline))


async def _alookup(resolver: AddressResolver, host: str, deadline: float | None) -> list[str]:
    return await resolver.alookup(host, deadline)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """`getaddrinfo` as the test says; it waits for `held` to be released, if there is one."""
    set_up: dict[str, Any] = {"rows": [], "asked": []}

    def getaddrinfo(host: bytes, port: None, type: int) -> list[Any]:  # noqa: A002
        set_up["asked"].append((host, port, type))
        if "held" in set_up:
            set_up["held"].wait(300.0)
        if isinstance(set_up["rows"], Exception):
            raise set_up["rows"]
        return list(set_up["rows"])

    monkeypatch.setattr("onym.net.connections.socket.getaddrinfo", getaddrinfo)
    yield set_up
    if "held" in set_up:
        set_up["held"].set()


def test_the_systems_answer_keeps_its_order_and_comes_once(kind: str, system: dict[str, Any]) -> None:
    system["rows"] = [
        (socket.AF_INET6, 1, 6, "", ("2001:db8::1", 0, 0, 0)),
        (socket.AF_INET, 1, 6, "", ("192.0.2.1", 0)),
        (socket.AF_INET, 1, 6, "", ("192.0.2.1", 0)),
    ]
    assert lookup(kind, SystemResolver(), "a.example") == ["2001:db8::1", "192.0.2.1"]
    assert lookup(kind, SystemResolver(), "a.example", None) == ["2001:db8::1", "192.0.2.1"]
    assert system["asked"][0] == (b"a.example", None, socket.SOCK_STREAM)


def test_scn_020_an_answer_of_another_family_is_refused(kind: str, system: dict[str, Any]) -> None:
    system["rows"] = [(socket.AF_UNIX, 1, 0, "", "/run/service.sock")]
    with pytest.raises(ResolveError):
        lookup(kind, SystemResolver(), "a.example")


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "unknown"), UnicodeError(), OSError()])
def test_a_failed_lookup_is_an_error_of_ours(kind: str, system: dict[str, Any], failure: Exception) -> None:
    system["rows"] = failure
    with pytest.raises(ResolveError) as caught:
        lookup(kind, SystemResolver(), "a.example")
    assert caught.value.retryable
    assert "a.example" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0.02, 0.0])
def test_a_lookup_that_takes_too_long_is_left_behind(
    kind: str, system: dict[str, Any], seconds: float
) -> None:
    system["held"] = threading.Event()
    with pytest.raises(DeadlineExceeded):
        lookup(kind, SystemResolver(), "a.example", seconds)


def test_an_answer_that_comes_after_its_loop_has_gone_is_dropped(system: dict[str, Any]) -> None:
    system["held"] = threading.Event()
    # the test before let its own go, which may not have noticed yet
    before = set(threading.enumerate())
    with pytest.raises(DeadlineExceeded):
        lookup("async", SystemResolver(), "a.example", 0.01)
    [thread] = [each for each in set(threading.enumerate()) - before if each.name == "onym-resolver"]
    system["held"].set()
    thread.join(300.0)
    assert not thread.is_alive()


def test_an_answer_that_nobody_waits_for_any_more_is_dropped(system: dict[str, Any]) -> None:
    system["held"] = threading.Event()

    async def scenario() -> list[str]:
        with pytest.raises(DeadlineExceeded):
            await SystemResolver().alookup("a.example", time.monotonic() + 0.01)
        system["held"].set()
        system["rows"] = [(socket.AF_INET, 1, 6, "", ("192.0.2.1", 0))]
        return await SystemResolver().alookup("a.example", None)

    assert asyncio.run(scenario()) == ["192.0.2.1"]


def test_dns_is_asked_for_both_kinds_of_address(kind: str) -> None:
    with NameServer({"a.example": [["192.0.2.1", "192.0.2.2", "2001:db8::1"]]}) as server:
        found = lookup(kind, DNSResolver(["127.0.0.1"], server.port), "a.example")
        assert sorted(found) == ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
        assert server.asked == [("a.example.", "A"), ("a.example.", "AAAA")]


def test_one_kind_of_address_is_enough(kind: str) -> None:
    with NameServer({"a.example": [["2001:db8::1"]]}) as server:
        assert lookup(kind, DNSResolver(["127.0.0.1"], server.port), "a.example") == ["2001:db8::1"]


@pytest.mark.parametrize("answer", [None, []])
def test_a_name_that_dns_does_not_know_is_an_error_of_ours(kind: str, answer: list[str] | None) -> None:
    with NameServer({"a.example": [answer]}) as server, pytest.raises(ResolveError):
        lookup(kind, DNSResolver(["127.0.0.1"], server.port), "a.example")


def test_a_name_server_that_is_silent_uses_up_the_time(kind: str) -> None:
    with NameServer({"a.example": ["silence"]}) as server, pytest.raises(DeadlineExceeded):
        lookup(kind, DNSResolver(["127.0.0.1"], server.port), "a.example", 0.05)


def test_without_name_servers_those_of_this_machine_are_asked(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NameServer({"a.example": [["192.0.2.1"]]}) as server:

        def configure(self: Any, filename: str) -> None:
            self.nameservers = ["127.0.0.1"]
            self.port = server.port

        monkeypatch.setattr("dns.resolver.BaseResolver.read_resolv_conf", configure)
        monkeypatch.setattr("dns.resolver.BaseResolver.read_registry", configure, raising=False)
        assert lookup(kind, DNSResolver(), "a.example") == ["192.0.2.1"]


def test_a_machine_without_name_servers_is_an_error_of_ours(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dns.resolver

    def configure(self: Any, filename: str) -> None:
        raise dns.resolver.NoResolverConfiguration

    monkeypatch.setattr("dns.resolver.BaseResolver.read_resolv_conf", configure)
    with pytest.raises(OnymError):
        lookup(kind, DNSResolver(), "a.example")
