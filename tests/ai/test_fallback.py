"""A service with several targets (RFC 2782): the next one is tried where the first takes no connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from onym.ai import client_flows
from onym.ai.exchange import Caller, RequestAttempt
from onym.ai.records import AnchorDocument, Invocation, Resolution
from onym.errors import (
    ConnectionFailed,
    DeadlineExceeded,
    NetError,
    PolicyError,
    ProtocolError,
    ResolveError,
    TLSError,
)
from onym.net.config import NetConfig
from onym.net.messages import ConnectionInfo, Headers, Origin, Reply, Send, Wait
from onym.uri.ai import AIURI

HOST = "https://bank.test"
ONE, TWO, THREE = (Origin("https", f"{name}.bank.test", 443) for name in ("one", "two", "three"))
DOCUMENT = AnchorDocument(
    anchor=HOST, authority="bank.test", service=f"{HOST}/v1", jwks=f"{HOST}/jwks", endpoint="ai://bank.test/x"
)
RESOLUTION = Resolution(
    uri=AIURI.parse("ai://bank.test/x"),
    authority="bank.test",
    document=DOCUMENT,
    keys=cast("Any", None),
    connect=ONE,
    fallbacks=(TWO, THREE),
)
REPLY = Reply(200, Headers(), b"", None, ConnectionInfo("127.0.0.1"))


def unsent(error: NetError) -> NetError:
    """The error, which says that nothing of the request was sent."""
    error.sent = False
    return error


def tried(
    *errors: NetError, method: str = "GET", key: str | None = None, resolution: Resolution = RESOLUTION
) -> tuple[list[Origin | None], Reply | NetError]:
    """Where the request goes, one after another, while these errors are met; and what comes of it."""
    asked = Invocation(uri=RESOLUTION.uri, method=method, idempotency_key=key)
    steps = client_flows._send_with_retries(
        client_flows.Session(), RequestAttempt(asked, resolution, Caller(), 5.0), stream=False
    )
    places: list[Origin | None] = []
    left, sends = list(errors), set[Send]()
    try:
        step = steps.send(None)
        while True:
            if isinstance(step, Wait):
                step = steps.send(None)
                continue
            assert isinstance(step, Send)
            places.append(step.connect)
            sends.add(replace(step, connect=None))
            step = steps.throw(left.pop(0)) if left else steps.send(REPLY)
    except StopIteration as stop:
        end = stop.value
    except NetError as error:
        end = error
    assert getattr(end, "endpoint", "ai://bank.test/x") == "ai://bank.test/x"
    assert len(sends) == 1  # the same request each time: the same name, the same nonce
    return places, end


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailed("closed", code="net.connection.refused"),
        ConnectionFailed("late", code="net.connection.timeout"),
        ResolveError("no address"),
    ],
)
def test_what_only_reads_goes_to_the_next_target(error: NetError) -> None:
    assert tried(error) == ([ONE, TWO], REPLY)
    assert tried(error, error) == ([ONE, TWO, THREE], REPLY)


def test_the_last_target_is_tried_once_more() -> None:
    errors = [ConnectionFailed(text) for text in "abcd"]
    assert tried(*errors) == ([ONE, TWO, THREE, THREE], errors[-1])
    assert tried(*errors[:3]) == ([ONE, TWO, THREE, THREE], REPLY)


@pytest.mark.parametrize(
    "error",
    [
        TLSError("another name"),
        DeadlineExceeded("late"),
        ProtocolError("no HTTP"),
        PolicyError("inside", reason="private"),
    ],
)
def test_what_is_no_lack_of_a_connection_is_told(error: NetError) -> None:
    assert tried(error) == ([ONE], error)
    assert tried(unsent(error), method="POST") == ([ONE], error)


def test_what_may_have_been_sent_goes_nowhere_else() -> None:
    broken = ConnectionFailed("broken", code="net.connection.broken")
    assert tried(broken, method="POST") == ([ONE], broken)
    # who keeps what was done under a key is the machine that did it
    assert tried(broken, method="POST", key="k") == ([ONE, ONE], REPLY)
    assert tried(broken, broken, method="POST", key="k") == ([ONE, ONE], broken)


@pytest.mark.parametrize("key", [None, "k"])
def test_what_was_not_sent_goes_to_the_next_target(key: str | None) -> None:
    closed = unsent(ConnectionFailed("closed", code="net.connection.refused"))
    assert tried(closed, method="POST", key=key) == ([ONE, TWO], REPLY)
    assert tried(ResolveError("no address"), method="POST", key=key) == ([ONE, TWO], REPLY)


def test_a_key_stays_with_the_target_that_it_was_sent_to() -> None:
    closed = unsent(ConnectionFailed("closed", code="net.connection.refused"))
    broken = ConnectionFailed("broken", code="net.connection.broken")
    assert tried(closed, broken, method="POST", key="k") == ([ONE, TWO, TWO], REPLY)


def test_what_was_begun_at_one_target_never_goes_to_another_because_a_later_try_sent_nothing() -> None:
    broken = ConnectionFailed("broken", code="net.connection.broken")
    closed = unsent(ConnectionFailed("closed", code="net.connection.refused"))
    assert tried(broken, closed, method="POST", key="k") == ([ONE, ONE], closed)
    assert tried(closed, broken, closed, method="POST", key="k") == ([ONE, TWO, TWO], closed)
    assert tried(ResolveError("no address"), closed, method="POST", key="k") == ([ONE, TWO, THREE], REPLY)


def test_without_other_targets_it_is_as_it_was() -> None:
    alone = replace(RESOLUTION, connect=None, fallbacks=())
    closed = unsent(ConnectionFailed("closed", code="net.connection.refused"))
    assert tried(closed, resolution=alone) == ([None, None], REPLY)
    assert tried(closed, method="POST", resolution=alone) == ([None], closed)


def test_all_targets_of_the_anchors_own_host_are_in_the_resolution() -> None:
    import json

    from discovery_support import KEYS, by_hand
    from onym.ai.discovery.resolution import resolve_uri
    from onym.ai.settings import ResolverSettings
    from onym.net.messages import SRV, Records
    from onym.sign.keys import SigningKey

    key = SigningKey.generate("Ed25519").with_thumbprint()
    for service, found in (("https://bank.test/v1", 2), ("https://elsewhere.test/v1", 0)):
        bodies = {
            "/.well-known/aiip": json.dumps(
                {"jwks": f"https://bank.test{KEYS}", "service": service}
            ).encode(),
            KEYS: json.dumps({"keys": [key.public()]}).encode(),
        }
        values = (SRV(0, 0, 443, "one.bank.test"), SRV(5, 0, 443, "two.bank.test"))
        table = {("_aiip._tcp.bank.test", "SRV"): Records(status="found", values=values, validated=True)}
        got = by_hand(resolve_uri(AIURI.parse("ai://bank.test/x"), ResolverSettings()), bodies, table)
        assert [each for each in (got.connect, *got.fallbacks) if each] == [ONE, TWO][:found]


def test_what_the_transport_says_of_a_closed_port_lets_a_post_go_on() -> None:
    import socket

    from net_support import FixedResolver, post
    from onym.net.policy import Policy
    from onym.net.transport import Transport

    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        place = Origin("https", "one.bank.test", idle.getsockname()[1])
        policy = Policy.untrusted().replace(ports={443, place.port}, allow_networks=("127.0.0.0/8",))
        names = FixedResolver({"one.bank.test": [["127.0.0.1"]]})
        with (
            Transport(NetConfig(policy=policy, resolver=names)) as wire,
            pytest.raises(ConnectionFailed) as caught,
        ):
            wire.send(Send(post(Origin("https", "bank.test", 443)), 20.0, connect=place))
    assert not caught.value.sent
