"""A unit of work as a resource: its progress as events, its result at the end, and nothing behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from kinds_support import EVENTS, call, events, given, run
from onym.ai.endpoint.kinds import Progress, task
from onym.errors import AIIPError


@dataclass(frozen=True)
class Folder:
    path: str
    files: int = 2


@dataclass(frozen=True)
class Count:
    files: int


ended: list[str] = []


async def reindex(folder: Folder) -> AsyncIterator[Progress | Count]:
    try:
        for number in range(folder.files):
            yield Progress(done=number + 1, total=folder.files, note=folder.path)
        yield Count(files=folder.files)
    finally:
        ended.append(folder.path)


HANDLER = task(reindex, input=Folder, output=Count, title="Reindex")


def test_who_takes_json_gets_the_result() -> None:
    assert given(HANDLER, call({"path": "a"})) == {"files": 2}


def test_who_takes_events_gets_progress_and_then_the_result() -> None:
    found = events(HANDLER, call({"path": "a", "files": 1}, accept=EVENTS))
    assert found == [("progress", {"done": 1, "total": 1, "note": "a"}), ("result", {"files": 1})]


def test_numbers_of_the_query_are_texts() -> None:
    assert given(HANDLER, call(query=(("path", "a"), ("files", "0")))) == {"files": 0}


@pytest.mark.parametrize("body", [{}, {"path": 1}, {"path": "a", "files": "2"}])
def test_an_input_that_does_not_fit_is_refused_before_the_work_begins(body: Any) -> None:
    for accept in (None, EVENTS):
        with pytest.raises(AIIPError) as found:
            run(HANDLER.invoke(call(body, accept=accept)))
        assert found.value.code == "aiip.invalid-input"


def test_who_leaves_ends_the_work() -> None:
    async def work() -> None:
        stream: Any = await HANDLER.invoke(call({"path": "left"}, accept=EVENTS))
        await anext(stream)
        await stream.aclose()

    run(work())
    assert "left" in ended


def test_the_description_has_both_schemas() -> None:
    known = HANDLER.describe()
    assert known["title"] == "Reindex"
    assert known["input"]["required"] == ["path"]
    assert known["output"]["properties"] == {"files": {"type": "integer"}}
    assert task(reindex, input=Folder).describe().keys() == {"input"}


@pytest.mark.parametrize("accept", [None, EVENTS])
@pytest.mark.parametrize("steps", [(), (Progress(done=1),), (1, 2), (1, Progress(done=1))])
def test_work_that_has_not_one_result_at_its_end_is_a_failure(
    steps: tuple[Any, ...], accept: str | None
) -> None:
    async def broken(folder: Folder) -> AsyncIterator[Any]:
        for each in steps:
            yield each

    handler = task(broken, input=Folder)
    asked = call({"path": "a"}, accept=accept)
    with pytest.raises(AIIPError) as found:
        (events if accept else given)(handler, asked)
    assert found.value.code == "aiip.internal"
