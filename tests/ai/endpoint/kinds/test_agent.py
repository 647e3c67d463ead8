"""An agent as a resource: a message in, what it says and the state of its work out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kinds_support import EVENTS, call, events, given
from onym.ai.endpoint import kinds as module
from onym.ai.endpoint.kinds import Outgoing, Update, agent
from onym.errors import AIIPError


class Scripted:
    """An agent that says its lines."""

    def __init__(self, *lines: Update) -> None:
        self.lines = lines
        self.got: list[Outgoing] = []

    async def send(self, message: Outgoing) -> AsyncIterator[Update]:
        self.got.append(message)
        for each in self.lines:
            yield each


LINES = (
    Update(state="working", note="thinking", context="c1", task="t1"),
    Update(text="Hel"),
    Update(text="lo", joined=True),
    Update(text="again", data=({"n": 1},)),
    Update(state="completed"),
)
WHOLE = {"text": "Hello\nagain", "state": "completed", "data": [{"n": 1}], "context": "c1", "task": "t1"}


def test_an_answer_is_put_together_and_notes_are_no_part_of_it() -> None:
    assert given(agent(Scripted(*LINES)), call({"message": "hi"})) == WHOLE


def test_who_takes_events_sees_each_update_and_then_the_whole() -> None:
    assert events(agent(Scripted(*LINES)), call({"message": "hi"}, accept=EVENTS)) == [
        ("update", {"note": "thinking", "state": "working"}),
        ("update", {"text": "Hel"}),
        ("update", {"text": "lo", "joined": True}),
        ("update", {"text": "again", "data": [{"n": 1}]}),
        ("update", {"state": "completed"}),
        ("result", WHOLE),
    ]


def test_an_agent_that_only_speaks_has_completed() -> None:
    assert given(agent(Scripted(Update(text="hi"))), call({"message": "x"})) == {
        "text": "hi",
        "state": "completed",
    }
    assert given(agent(Scripted()), call({"message": "x"})) == {"text": "", "state": "completed"}


@pytest.mark.parametrize("state", ["input-required", "auth-required", "failed", "canceled", "rejected"])
def test_a_state_is_told_as_it_is(state: Any) -> None:
    said = given(agent(Scripted(Update(state=state, text="why"))), call({"message": "x"}))
    assert said == {"text": "why", "state": state}


def test_a_message_goes_on_with_its_conversation_under_the_callers_key() -> None:
    scripted = Scripted()
    body = {"message": "x", "data": {"a": 1}, "context": "c1", "task": "t1"}
    given(agent(scripted), call(body, idempotency_key="key-1"))
    assert scripted.got == [Outgoing(id="key-1", text="x", data={"a": 1}, context="c1", task="t1")]


def test_a_message_without_a_key_has_an_id_of_its_own() -> None:
    scripted = Scripted()
    for _ in range(2):
        given(agent(scripted), call({"data": 0}))
    assert len({each.id for each in scripted.got}) == 2
    assert scripted.got[0].data == 0


@pytest.mark.parametrize(
    "body", [{}, {"message": ""}, {"message": 1}, {"message": "x", "context": ""}, {"text": "x"}]
)
def test_an_input_without_a_message_is_refused(body: Any) -> None:
    scripted = Scripted()
    with pytest.raises(AIIPError) as found:
        given(agent(scripted), call(body))
    assert found.value.code == "aiip.invalid-input"
    assert not scripted.got


@pytest.mark.parametrize(
    "endless", [Update(text="x" * 600), Update(data=("x" * 600,)), Update(note="x" * 600), Update()]
)
def test_an_agent_without_end_is_stopped(endless: Update, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER", 1000)
    monkeypatch.setattr(module, "MAX_UPDATES", 3)
    with pytest.raises(AIIPError) as refusal:
        given(agent(Scripted(*[endless] * 4)), call({"message": "x"}))
    assert refusal.value.code == "aiip.internal"


def test_the_description_has_a_title_where_there_is_one() -> None:
    assert agent(Scripted(), title="Planner").describe()["title"] == "Planner"
    assert agent(Scripted()).describe().keys() == {"input", "output"}
