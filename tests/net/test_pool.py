"""Idle connections: who gets which, and who has to go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from net_support import OK, PATIENCE, Authority, Server, answering
from onym.net._async_connections import AsyncConnection
from onym.net._dialling import InnerTLSConnection
from onym.net._exchange import ConnectionPool
from onym.net.limits import NetLimits
from support import untraced


class Fake:
    address = "127.0.0.1"
    tls_version = None

    def __init__(self) -> None:
        self.usable = True
        self.closed = self.abandoned = False

    def is_usable(self) -> bool:
        return self.usable

    def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        self.abandoned = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> ConnectionPool[Fake]:
    return ConnectionPool(NetLimits(idle=10.0, idle_connections=3), clock)


def test_a_key_gets_back_what_was_given_for_it_the_youngest_first(pool: ConnectionPool[Fake]) -> None:
    first, second = Fake(), Fake()
    pool.release("a", first)
    pool.release("a", second)
    assert pool.acquire("b") is None
    assert [pool.acquire("a"), pool.acquire("a"), pool.acquire("a")] == [second, first, None]


def test_what_is_no_longer_good_is_closed_and_passed_over(pool: ConnectionPool[Fake], clock: Clock) -> None:
    old, broken = Fake(), Fake()
    pool.release("a", old)
    clock.now = 5.0
    pool.release("a", broken)
    broken.usable = False
    clock.now = 10.0
    assert pool.acquire("a") is None
    assert (old.closed, broken.closed) == (True, True)


def test_too_many_close_those_whose_key_was_not_used_for_longest(pool: ConnectionPool[Fake]) -> None:
    fakes = [Fake() for _ in range(5)]
    for key, fake in zip("aabbc", fakes, strict=True):
        pool.release(key, fake)
    assert [fake.closed for fake in fakes] == [True, True, False, False, False]


def test_those_that_have_waited_too_long_are_closed_when_another_comes(
    pool: ConnectionPool[Fake],
    clock: Clock,
) -> None:
    old, young = Fake(), Fake()
    pool.release("a", old)
    clock.now = 11.0
    pool.release("b", young)
    assert (old.closed, young.closed) == (True, False)


def test_a_pool_for_none_keeps_none(clock: Clock) -> None:
    pool = ConnectionPool[Fake](NetLimits(idle_connections=0), clock)
    fake = Fake()
    pool.release("a", fake)
    assert fake.closed
    assert pool.acquire("a") is None


def test_clearing_closes_all(pool: ConnectionPool[Fake]) -> None:
    fakes = [Fake(), Fake()]
    pool.release("a", fakes[0])
    pool.release("b", fakes[1])
    pool.clear()
    assert all(fake.closed for fake in fakes)
    assert pool.acquire("a") is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_forked_process_leaves_its_parents_connections_alone(pool: ConnectionPool[Fake]) -> None:
    inherited = Fake()
    pool.release("a", inherited)
    child = os.fork()
    if child == 0:
        good = pool.acquire("a") is None and inherited.abandoned and not inherited.closed
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.acquire("a") is inherited
    assert not inherited.abandoned


#: sends, forks, sends in the child, and then again in the parent, with the same transport
FORKING = """
import asyncio, os, sys
from onym.net import *

kind, scheme, port, ca = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
config = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=(ca,)))
request = HTTPRequest(method="POST", origin=Origin(scheme, "localhost", port), target="/v1", body=b"{}")
if kind == "sync":
    transport = Transport(config)
    send, close = lambda: transport.send(Send(request)), transport.close
else:
    transport, runner = AsyncTransport(config), asyncio.Runner()
    send = lambda: runner.run(transport.send(Send(request)))
    close = lambda: (runner.run(transport.close()), runner.close())
assert send().status == 200
child = os.fork()
if child == 0:
    if kind == "async":
        inherited, runner = runner, asyncio.Runner()
    assert send().status == 200
    close()
    if kind == "async":
        os._exit(0)  # the parent's loop cannot be closed here
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert send().status == 200
close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_parent_and_child_go_on_after_a_fork_without_a_warning(
    authority: Authority, tmp_path: Path, kind: str, scheme: str
) -> None:
    [ca] = authority.trust(tmp_path).ca_files
    tls = authority.server("localhost") if scheme == "https" else None
    with Server(answering(OK), tls=tls) as server:
        command = [sys.executable, "-W", "error", "-c", FORKING]
        arguments = [kind, scheme, str(server.port), ca]
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=untraced(),
            timeout=PATIENCE,
        )
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
        assert len(server.requests) == 3
        # one of the parent, which it uses twice, and one of the child
        assert server.connections == 2


def test_after_a_fork_every_idle_connection_is_abandoned(pool: ConnectionPool[Fake]) -> None:
    first, second = Fake(), Fake()
    pool.release("a", first)
    pool.release("b", second)
    pool._process -= 1
    assert pool.acquire("a") is None
    assert [(fake.abandoned, fake.closed) for fake in (first, second)] == [(True, False), (True, False)]


def test_an_inner_session_abandons_its_outer_connection_and_a_loop_nothing() -> None:
    outer = Fake()
    inner = InnerTLSConnection.__new__(InnerTLSConnection)
    inner._outer = outer  # type: ignore[assignment]
    inner.abandon()
    assert (outer.abandoned, outer.closed) == (True, False)
    # it has no transport that it could touch
    AsyncConnection.__new__(AsyncConnection).abandon()
