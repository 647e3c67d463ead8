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


def test_changes_become_notices_of_a_webhook_once_and_in_order(store_url: str) -> None:
    async def work(store: Store) -> None:
        async def add(limit: int = 100) -> int:
            return await store.outbox.add_changes(
                "hook", (), AT + DAY, render=lambda change: f"text of {change.name}", limit=limit, start=start
            )

        start: int | None = None
        assert await add() == 0  # the log is empty, so nothing marks its end
        start = 0
        await registered(store, "one")
        await registered(store, "two")
        assert await add(limit=1) == 1
        assert await add() > 0
        assert await add() == 0
        found = await store.outbox.claim(AT + DAY, webhook="hook")
        numbers = [notice.number for notice in found]
        assert numbers == sorted(set(numbers))
        assert {notice.text for notice in found} == {"text of one", "text of two"}
        assert {notice.registry for notice in found} == {"uri-schemes"}
        await store.outbox.mark_sent(found[0].id, AT + DAY)
        await store.outbox.mark_failed(found[1].id, AT + DAY, None, "the receiver answered 410")
        counts = await store.outbox.count_deliveries("hook")
        assert (counts.sent, counts.given_up, counts.waiting) == (1, 1, len(found) - 2)
        assert counts.reason == "the receiver answered 410"
        assert counts.last_sent == AT + DAY
        # a webhook that is added later begins at the end
        start = None
        assert await store.outbox.add_changes("later", (), AT, render=str, limit=9) == 0
        await registered(store, "three")
        assert await store.outbox.add_changes("later", ("llm-parameters",), AT, render=str, limit=9) == 0
        assert await store.outbox.add_changes("later", ("uri-schemes",), AT, render=str, limit=9) > 0

    in_store(store_url, work)
