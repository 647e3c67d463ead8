"""Limits for work that runs at the same time: each group has its own, and a slot is freed once."""

from __future__ import annotations

import pytest

from onym.common.concurrency import TOTAL, ConcurrencyLimiter


class FullError(Exception):
    """The error of these limits."""


def test_a_full_group_is_named_and_takes_no_slot_of_another() -> None:
    limiter = ConcurrencyLimiter({TOTAL: 3, "client": 1}, FullError)
    limiter.acquire(client="a")
    with pytest.raises(FullError) as caught:
        limiter.acquire(client="a")
    assert caught.value.args == ("client",)
    assert len(limiter) == 1
    limiter.acquire(client="b")
    with limiter.reserve(client="c"), pytest.raises(FullError) as caught:
        limiter.acquire(client="d")
    assert caught.value.args == (TOTAL,)
    assert len(limiter) == 2


def test_a_slot_is_freed_once() -> None:
    limiter = ConcurrencyLimiter({TOTAL: 2, "client": 2}, FullError)
    release = limiter.acquire(client="a")
    limiter.acquire(client="a")
    release()
    release()
    assert len(limiter) == 1


def test_a_block_that_fails_frees_its_slot() -> None:
    limiter = ConcurrencyLimiter({TOTAL: 1, "client": 1}, FullError)
    with pytest.raises(KeyError), limiter.reserve(client="a"):
        raise KeyError("x")
    assert len(limiter) == 0
