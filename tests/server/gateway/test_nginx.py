"""nginx in front of a gateway: targets arrive octet by octet, its word on addresses counts if trusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway_support import World, ask, raw, world
from nginx_support import nginx
from onym.server.gateway.settings import GatewayRates
from onym.server.settings import RateLimit

_FEW = GatewayRates(reads=RateLimit(burst=2, per_minute=0.1), writes=RateLimit(burst=2, per_minute=0.1))
pytestmark = pytest.mark.xdist_group("gateway-nginx")


@pytest.fixture(scope="module")
def fronted() -> Iterator[tuple[World, int]]:
    with world(allowed_hosts=("gw.test",)) as found, nginx(found.port) as port:
        yield found, port


def request(port: int, target: str, *lines: str) -> bytes:
    head = [f"GET {target} HTTP/1.1", "Host: gw.test", *lines, "Connection: close", "", ""]
    return raw(port, "\r\n".join(head).encode("latin-1"))


def test_a_result_comes_through_with_both_receipts(fronted: tuple[World, int]) -> None:
    found, port = fronted
    answer = ask(port, "POST", found.path("/tool/add"), b'{"a":1,"b":2}', Host="gw.test")
    assert answer.json()["sum"] == 3
    assert answer.headers["aiip-receipt"]
    assert answer.headers["aiip-gateway-receipt"]
    stream = ask(
        port, "POST", found.path("/tool/count"), b'{"to":2}', Host="gw.test", Accept="text/event-stream"
    )
    assert b"event: gateway-receipt" in stream.body


@pytest.mark.requirement("ai-gateway-f")
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/gateway/{a}/tool/add?a=1&b=%2F%26&c=%C3%A9", 200),
        ("/gateway/{a}/%2e%2e/tool/add", 400),
        ("/gateway/{a}/x/../tool/add", 400),
        ("/gateway/{a}//tool/add", 400),
        ("/gateway/{a}/tool%2Fadd", 400),
        ("/gateway/{a}/tool/%61dd", 400),
        ("/gateway/{a}/..%252fadmin", 400),
        ("/%67ateway/{a}/tool/add", 404),
        ("//gateway/{a}/tool/add", 404),
    ],
)
def test_the_target_is_not_touched_on_the_way(fronted: tuple[World, int], target: str, status: int) -> None:
    found, port = fronted
    answer = request(port, target.replace("{a}", found.authority))
    assert int(answer.split(b" ")[1]) == status


def test_smuggled_requests_do_not_come_through(fronted: tuple[World, int]) -> None:
    found, port = fronted
    before = len(found.endpoint.seen)
    for lines in (
        ["Host: evil.test"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["X-A: b", " folded"],
        ["AIIP-Nonce: a", "AIIP-Nonce: b"],
    ):
        answer = request(port, found.path("/tool/add"), *lines)
        assert int(answer.split(b" ")[1]) >= 400, lines
        assert answer.count(b"HTTP/1.1 ") == 1
    assert len(found.endpoint.seen) == before


def client(port: int, address: str | None) -> list[int]:
    """The statuses of three requests that say they come from this address."""
    more: dict[str, Any] = {} if address is None else {"X_Forwarded_For": address}
    return [ask(port, "GET", "/", Host="gw.test", **more).status for _ in range(3)]


def test_only_a_trusted_proxy_is_believed() -> None:
    """111: the limit is that of the address that nginx saw, whatever a client writes before it."""
    with world(allowed_hosts=("gw.test",), rates=_FEW) as found:
        # nobody is trusted: what clients write does not make them others
        assert client(found.port, "192.0.2.1") == [200, 200, 429]
        assert client(found.port, "192.0.2.2") == [429, 429, 429]
    proxies = {"trusted_proxies": ("127.0.0.1/32",)}
    with world(allowed_hosts=("gw.test",), rates=_FEW, **proxies) as found:
        assert client(found.port, "192.0.2.1") == [200, 200, 429]
        assert client(found.port, "192.0.2.2") == [200, 200, 429]
        # the last address is the proxy's word; those before it are the client's
        assert client(found.port, "198.51.100.7, 192.0.2.2") == [429, 429, 429]
        with nginx(found.port) as port:
            assert client(port, "203.0.113.9")[-1] == 429
