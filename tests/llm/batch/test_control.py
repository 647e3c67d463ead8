"""As many at once as the server bears: the limit by itself, and who waits for a slot."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from onym.llm.batch._engine import AdaptiveLimiter


def control(most=32):
    now = [100.0]
    return AdaptiveLimiter(most, lambda: now[0]), now


def rounds(found, count):
    limits = []
    for _ in range(count):
        for _ in range(found.limit):
            found.record_success()
        limits.append(found.limit)
    return limits


def test_the_limit_doubles_until_the_first_refusal_and_then_grows_by_one_a_round():
    found, _ = control(64)
    assert found.limit == 8
    assert rounds(found, 2) == [16, 32]
    found.record_rejection(0, None)
    assert found.limit == 16
    grown = rounds(found, 4)
    assert grown == sorted(grown)
    assert grown[-1] - 16 in {3, 4}


def test_it_stays_between_one_and_the_most():
    found, _ = control(4)
    assert found.limit == 4
    assert rounds(found, 3) == [4, 4, 4]
    for sent_in in range(10):
        found.record_rejection(sent_in, None)
    assert found.limit == 1


def test_refusals_of_one_round_halve_it_once():
    found, _ = control()
    for _ in range(8):
        found.record_rejection(0, None)
    assert found.limit == 4
    found.record_rejection(1, None)
    assert found.limit == 2


def test_what_the_server_asks_for_holds_for_everybody_and_the_longest_counts():
    found, now = control()
    found.record_rejection(0, 5.0)
    found.record_rejection(0, 2.0)
    assert found.pause == 5.0
    now[0] += 3
    assert found.pause == 2.0
    now[0] += 3
    assert found.pause == 0.0
    found.record_rejection(0, 10.0**12)
    assert found.pause == 86_400.0


@given(st.integers(1, 6), st.integers(1, 40))
def test_never_more_are_inside_than_the_limit_and_everybody_gets_in(most, count):
    async def play():
        found, _ = control(most)
        inside, highest, served = 0, 0, 0

        async def one(at):
            nonlocal inside, highest, served
            sent_in = await found.acquire()
            inside += 1
            highest = max(highest, inside - found.limit)
            await asyncio.sleep(0)
            inside -= 1
            served += 1
            if at % 5 == 0:
                found.record_rejection(sent_in, None)
            else:
                found.record_success()
            found.release()

        await asyncio.gather(*(one(at) for at in range(count)))
        return served, highest, found.active

    served, over, flying = asyncio.run(play())
    # those that were inside when the limit was halved may stay
    assert (served, flying) == (count, 0)
    assert over <= most


def test_one_that_goes_while_it_waits_leaves_its_turn_to_the_next():
    async def play():
        found, _ = control(1)
        await found.acquire()
        first, second = asyncio.ensure_future(found.acquire()), asyncio.ensure_future(found.acquire())
        await asyncio.sleep(0)
        found.release()
        first.cancel()
        assert await asyncio.wait_for(second, 600) == 0
        assert first.cancelled()
        assert found.active == 1

    asyncio.run(play())


def test_one_that_goes_before_its_turn_takes_no_slot():
    async def play():
        found, _ = control(1)
        await found.acquire()
        waiting = asyncio.ensure_future(found.acquire())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        found.release()
        assert await found.acquire() == 0

    asyncio.run(play())
