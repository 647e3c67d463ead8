"""Connections that are opened elsewhere than the request's origin: `Send(connect=...)`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from net_support import NAMED, OK, Authority, Face, FixedResolver, Server, answering, asking, free_port, post
from onym.errors import ConnectionFailed, NetError, PolicyError, ResolveError, UsageError
from onym.net.messages import Origin, Send
from onym.net.policy import Policy

MakeFace = Callable[..., Face]
BANK = Origin("https", "bank.test", 443)
ADDRESSES = {"aiip.bank.test": [["127.0.0.1"]], "bank.test": [["127.0.0.1"]]}


def detour(connect: Origin, origin: Origin = BANK) -> Send:
    return Send(post(origin), 20.0, connect=connect)


def test_prov_100_the_connection_goes_to_the_checked_address_and_tls_and_host_keep_the_name(
    make_face: MakeFace, authority: Authority, tmp_path: Path
) -> None:
    names = FixedResolver(ADDRESSES)
    face = make_face(NAMED, resolver=names, tls=authority.trust(tmp_path))
    with Server(answering(OK), tls=authority.server("bank.test")) as server:
        connect = Origin("https", "aiip.bank.test", server.port)
        reply = face.send(detour(connect))
        assert (reply.status, reply.info.address) == (200, "127.0.0.1")
        # the second goes the same way, on the same connection
        assert face.send(detour(connect)).status == 200
        assert server.connections == 1
        assert server.names == ["bank.test"]
        assert [headers["host"] for _, headers, _ in server.requests] == ["bank.test"] * 2
    assert names.asked == ["aiip.bank.test"]


def test_a_certificate_for_the_place_alone_is_refused(
    make_face: MakeFace, authority: Authority, tmp_path: Path
) -> None:
    face = make_face(NAMED, resolver=FixedResolver(ADDRESSES), tls=authority.trust(tmp_path))
    with Server(answering(OK), tls=authority.server("aiip.bank.test")) as server:
        with pytest.raises(NetError) as caught:
            face.send(detour(Origin("https", "aiip.bank.test", server.port)))
        assert caught.value.code == "net.tls.certificate"
        assert caught.value.endpoint == "https://bank.test:443"
        assert not server.requests


def test_connections_of_a_detour_are_not_shared_with_others(
    make_face: MakeFace, authority: Authority, tmp_path: Path
) -> None:
    face = make_face(NAMED, resolver=FixedResolver(ADDRESSES), tls=authority.trust(tmp_path))
    context = authority.server("bank.test")
    with Server(answering(OK), tls=context) as one, Server(answering(OK), tls=context) as two:
        origin = Origin("https", "bank.test", one.port)
        face.send(asking(origin))
        face.send(detour(Origin("https", "bank.test", two.port), origin))
        face.send(asking(origin))
        assert (one.connections, two.connections) == (1, 1)
        assert (len(one.requests), len(two.requests)) == (2, 1)
        assert two.requests[0][1]["host"] == f"bank.test:{one.port}"


@pytest.mark.parametrize(
    ("policy", "connect", "reason"),
    [
        (Policy.untrusted(), Origin("https", "localhost", 22), "loopback"),
        (Policy.local().replace(ports={443}), Origin("https", "localhost", 22), "port"),
        (Policy.untrusted(), Origin("https", "aiip.bank.test", 22), "port"),
        (Policy.untrusted(), Origin("https", "aiip.bank.test", 443), "loopback"),
        (Policy.untrusted(), Origin("https", "inside.bank.test", 443), "metadata"),
        (Policy.untrusted(), Origin("https", "127.0.0.1", 443), "loopback"),
        (Policy.untrusted(), Origin("https", "..", 443), "bad-host"),
        (
            NAMED.replace(allow_hosts={"bank.test"}),
            Origin("https", "aiip.bank.test", 443),
            "host-not-allowed",
        ),
    ],
)
def test_prov_100_a_place_that_the_policy_refuses_is_not_connected_to(
    make_face: MakeFace, policy: Policy, connect: Origin, reason: str
) -> None:
    names = {**ADDRESSES, "inside.bank.test": [["169.254.169.254"]]}
    face = make_face(policy, resolver=FixedResolver(names))
    with pytest.raises(PolicyError) as caught:
        face.send(detour(connect))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("origin", "reason"),
    [
        (Origin("https", "evil.test", 443), "host-denied"),
        (Origin("https", "bank.test", 22), "port"),
        (Origin("https", "10.0.0.1", 443), "private"),
    ],
)
def test_the_origin_is_judged_as_well(make_face: MakeFace, origin: Origin, reason: str) -> None:
    policy = NAMED.replace(deny_hosts={"evil.test"}, ports={443}, ip_literals="allow")
    face = make_face(policy, resolver=FixedResolver(ADDRESSES))
    with pytest.raises(PolicyError) as caught:
        face.send(detour(Origin("https", "aiip.bank.test", 443), origin))
    assert caught.value.reason == reason


def test_an_address_of_the_origin_is_allowed_where_the_policy_allows_it(
    make_face: MakeFace, authority: Authority, tmp_path: Path
) -> None:
    policy = Policy.local()
    face = make_face(policy, tls=authority.trust(tmp_path))
    with Server(answering(OK), tls=authority.server("::1")) as server:
        reply = face.send(detour(Origin("https", "localhost", server.port), Origin("https", "::1", 443)))
        assert reply.status == 200
        assert server.requests[0][1]["host"] == "[::1]"


def test_a_detour_to_another_scheme_cannot_be(make_face: MakeFace) -> None:
    with pytest.raises(UsageError) as caught:
        make_face(Policy.local()).send(detour(Origin("http", "localhost", 80)))
    assert caught.value.code == "usage.http"


def test_a_detour_to_a_name_that_nobody_knows_names_it(make_face: MakeFace) -> None:
    class Nothing:
        def lookup(self, host: str, deadline: float | None) -> list[str]:
            raise ResolveError("unknown")

        async def alookup(self, host: str, deadline: float | None) -> list[str]:
            return self.lookup(host, deadline)

    with pytest.raises(ResolveError) as caught:
        make_face(NAMED, resolver=Nothing()).send(detour(Origin("https", "aiip.bank.test", 8443)))
    assert caught.value.endpoint == "https://aiip.bank.test:8443"


def test_a_place_that_takes_no_connection_is_looked_up_again(make_face: MakeFace) -> None:
    names = FixedResolver(ADDRESSES)
    face = make_face(NAMED, resolver=names)
    with free_port() as port:
        for _ in range(2):
            with pytest.raises(ConnectionFailed):
                face.send(detour(Origin("https", "aiip.bank.test", port)))
    assert names.asked == ["aiip.bank.test"] * 2
