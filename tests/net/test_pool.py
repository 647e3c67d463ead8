"""Idle connections: who gets which, and who has to go."""

from __future__ import annotations

import os

import pytest

from onym.net._exchange import ConnectionPool
from onym.net.limits import NetLimits


class Fake:
    address = "127.0.0.1"
    tls_version = None

    def __init__(self) -> None:
        self.usable = True
        self.closed = False

    def is_usable(self) -> bool:
        return self.usable

    def close(self) -> None:
        self.closed = True


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
        os._exit(0 if pool.acquire("a") is None and not inherited.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.acquire("a") is inherited
