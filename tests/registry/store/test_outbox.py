"""The outbox: notices are claimed, sent, tried again or given up."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from onym.errors import UnknownEntryError
from onym.registry.store import LEASE, Store
from registry.store.store_support import AT, in_store, registered, run, under_review

DAY = timedelta(days=1)


def test_a_claimed_notice_is_nobody_elses_until_the_lease_ends(store_url: str) -> None:
    async def work(store: Store) -> None:
        await under_review(store)
        now = AT + DAY
        (notice, *rest) = await store.outbox.claim(now)
        assert await store.outbox.claim(now) == ()
        assert await store.outbox.claim(now + LEASE - timedelta(seconds=1)) == ()
        again = await store.outbox.claim(now + LEASE)
        assert [(item.id, item.attempts) for item in again] == [(item.id, 2) for item in (notice, *rest)]
        for item in again:
            await store.outbox.mark_sent(item.id, now)
        assert await store.outbox.claim(now + 9 * DAY) == ()

    in_store(store_url, work)


def test_a_failed_notice_waits_for_its_time_or_is_given_up(store_url: str) -> None:
    async def work(store: Store) -> None:
        await registered(store)
        now = AT + DAY
        (notice,) = await store.outbox.claim(now, 1)
        await store.outbox.mark_failed(notice.id, now, now + DAY, "451 busy \0")
        assert notice.id not in [item.id for item in await store.outbox.claim(now + LEASE)]
        (again,) = [item for item in await store.outbox.claim(now + DAY) if item.id == notice.id]
        assert again.attempts == 2
        await store.outbox.mark_failed(notice.id, now, None, "550 no such mailbox")
        assert notice.id not in [item.id for item in await store.outbox.claim(now + 9 * DAY)]
        await store.outbox.mark_sent(notice.id, now)
        await store.outbox.mark_failed(notice.id, now, now, "a slow second sender")
        assert notice.id not in [item.id for item in await store.outbox.claim(now + 99 * DAY)]
        with pytest.raises(UnknownEntryError):
            await store.outbox.mark_sent(999, now)

    in_store(store_url, work)


def test_two_senders_never_claim_the_same_notice(store_url: str) -> None:
    async def main() -> None:
        async with await Store.open(store_url, create=True) as first, await Store.open(store_url) as second:
            for number in range(6):
                await registered(first, f"scheme-{number}")
            claims = await asyncio.gather(*(store.outbox.claim(AT + DAY, 2) for store in (first, second) * 4))
            ids = [item.id for claimed in claims for item in claimed]
            assert ids
            assert len(ids) == len(set(ids))

    run(main())
