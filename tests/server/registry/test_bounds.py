"""What strangers can make the service do, and where it ends: checks, comparisons, long histories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

import pytest

from onym.errors import RegistryError, TemplateError
from onym.registry.checks.context import NameIndex, ReferenceData, load_builtin
from onym.registry.records import EventKind
from onym.registry.registries import get_registry
from onym.registry.service import SubmissionInput, build_report, list_requested_names, parse_submission
from onym.registry.store import queries
from onym.server.registry.checking import MAX_CHECKS_PER_VISITOR, CheckTurns, CheckWorkers
from onym.server.registry.page_parts import split_differences
from server.registry.site import TEMPLATE, Site
from support import linear_enough

SCHEMES = get_registry("uri-schemes")
TODAY = date(2026, 11, 21)


def given(text: str = TEMPLATE.format(name="http", status="Provisional"), **more: Any) -> SubmissionInput:
    return SubmissionInput(registry=SCHEMES, text=text, **more)


async def known(asked: tuple[str, ...]) -> ReferenceData:
    shipped = load_builtin()
    entries = {name: shipped.entries[name] for name in asked if name in shipped.entries}
    return shipped.with_entries(entries, NameIndex(shipped.entries))


@asynccontextmanager
async def workers(**options: Any) -> AsyncIterator[CheckWorkers]:
    found = CheckWorkers(**options)
    try:
        yield found
    finally:
        await found.close()


def test_a_long_text_is_checked_in_a_process_with_the_same_report() -> None:
    submitted = given(fields={"contact": "Rita <rita@example.org>"})
    own = parse_submission(submitted)
    plain = build_report(own, asyncio.run(known(list_requested_names(own))), today=TODAY)

    async def main() -> None:
        async with workers(long=0) as away:
            # twice, for a process that knows the names already
            for _ in range(2):
                assert await away.check(submitted, known, key="a", today=TODAY) == plain

    asyncio.run(main())
    assert any(finding.code == "name-taken" for finding in plain.findings)


def test_a_process_that_takes_too_long_is_ended_and_replaced() -> None:
    async def main() -> None:
        async with workers(long=0, seconds=0.01) as away:
            with pytest.raises(RegistryError) as caught:
                await away.check(given(), known, key="a", today=TODAY)
            assert caught.value.code == "registry.check-too-long"
            away._seconds = 60
            assert (await away.check(given(), known, key="a", today=TODAY)).scheme == "http"

    asyncio.run(main())


def test_what_cannot_be_read_is_told_from_the_process_as_from_here() -> None:
    with pytest.raises(TemplateError) as here:
        parse_submission(given("[" * 100))

    async def main() -> RegistryError:
        async with workers(long=0) as away:
            with pytest.raises(TemplateError) as caught:
                await away.check(given("[" * 100), known, key="a", today=TODAY)
            # the process is good for the next text
            assert (await away.check(given(), known, key="a", today=TODAY)).scheme == "http"
            return caught.value

    assert asyncio.run(main()).as_dict() == here.value.as_dict()


def test_a_process_is_ended_when_its_order_fails_on_our_side() -> None:
    async def broken(asked: tuple[str, ...]) -> ReferenceData:
        raise RuntimeError(asked)

    async def main() -> None:
        async with workers(long=0) as away:
            with pytest.raises(RuntimeError):
                await away.check(given(), broken, key="a", today=TODAY)
            assert away._idle == []

    asyncio.run(main())


def test_a_visitor_has_a_few_turns_and_others_still_have_theirs() -> None:
    async def main() -> None:
        turns, go = CheckTurns(1, MAX_CHECKS_PER_VISITOR), asyncio.Event()

        async def take(key: str) -> str:
            async with turns.acquire_turn(key):
                await go.wait()
                return key

        waiting = [asyncio.create_task(take("one")) for _ in range(MAX_CHECKS_PER_VISITOR)]
        await asyncio.sleep(0)
        with pytest.raises(RegistryError) as caught:
            await take("one")
        assert caught.value.code == "http.too-many-requests"
        waiting.append(asyncio.create_task(take("other")))
        go.set()
        assert (await asyncio.gather(*waiting))[-1] == "other"
        assert await take("one") == "one"
        assert not turns._held

    asyncio.run(main())


def test_a_text_is_read_to_be_saved_while_all_turns_of_its_visitor_are_taken_by_checks() -> None:
    # as happens where somebody types faster than the checks come back
    async def main() -> None:
        go = asyncio.Event()

        async def waiting(asked: tuple[str, ...]) -> ReferenceData:
            await go.wait()
            return await known(asked)

        async with workers() as here:
            checks = [
                asyncio.create_task(here.check(given(), waiting, key="one", today=TODAY))
                for _ in range(MAX_CHECKS_PER_VISITOR)
            ]
            await asyncio.sleep(0)
            with pytest.raises(RegistryError):
                await here.check(given(), known, key="one", today=TODAY)
            assert (await here.parse_text(given(), key="one")).name == "http"
            go.set()
            await asyncio.gather(*checks)

    asyncio.run(main())


def test_more_fields_than_any_template_has_are_refused(fresh: Site) -> None:
    letters = "abcdefghij"
    fields = {"".join(letters[int(digit)] for digit in str(number)): "x" for number in range(65)}
    answer = fresh.world.client.post("/api/v1/check", json={"fields": fields})
    assert (answer.status_code, answer.json()["code"]) == (400, "http.bad-form")


@pytest.mark.parametrize(
    ("before", "after"),
    [("." * 2000, ",." * 1000), ("a " * 999, "b a " * 499), ("a,b" * 600, "b,a" * 600)],
)
def test_texts_that_repeat_themselves_are_compared_in_no_time(before: str, after: str) -> None:
    with linear_enough(5):
        one, two = split_differences(before, after)
    assert ("".join(piece.text for piece in one), "".join(piece.text for piece in two)) == (before, after)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_TEXT", 5_000)


@pytest.mark.usefixtures("little")
def test_long_records_are_read_in_small_parts_and_all_of_them(fresh: Site) -> None:
    store = fresh.world.store
    request = fresh.ids["list"]
    for number in range(6):
        fresh.act("rita", EventKind.REVISE, about=request, template=f"{number}" * 3_000)
    part = fresh.world.do(store.request_history, request)
    assert 1 <= len(part) < 8
    numbers: list[int] = []
    while found := fresh.world.do(store.request_history, request, after=numbers[-1] if numbers else 0):
        numbers += [record.number for record in found]
    assert len(numbers) == 8
    # pages show all of them, without the texts
    page = fresh.get(f"/requests/{request}")
    assert page.text.count("revise") or page.text.count("Revised")
    assert "4" * 16 not in page.text


def test_a_request_is_not_revised_without_end(fresh: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from onym.registry.engine import _submission

    monkeypatch.setattr(_submission, "_VERSIONS", 4)
    request = fresh.open("much", "muchly", status="provisional")

    def revise(times: int) -> None:
        for number in range(times):
            fresh.act("rita", EventKind.REVISE, about=request, fields={"contact": f"Rita {number}"})

    revise(3)
    with pytest.raises(RegistryError) as caught:
        revise(1)
    assert (caught.value.code, caught.value.field) == ("registry.too-large", "request")


def test_fields_have_a_size_together(fresh: Site) -> None:
    request = fresh.open("much", "muchly", status="provisional")
    fresh.act("rita", EventKind.REVISE, about=request, fields={"contact": "x" * 900_000})
    with pytest.raises(RegistryError) as caught:
        fresh.act("rita", EventKind.REVISE, about=request, fields={"applications": "x" * 200_000})
    assert (caught.value.code, caught.value.field) == ("registry.too-large", "fields")
