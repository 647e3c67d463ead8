"""A tool that brings its own schemas."""

from __future__ import annotations

from typing import Any

from kinds_support import call, given, run
from onym.ai.endpoint.context import Answer, Call
from onym.ai.endpoint.kinds import tool

INPUT = {"type": "object", "properties": {"a": {"type": "integer"}}}


async def echo(arguments: dict[str, Any], asked: Call) -> Any:
    return {"got": arguments, "key": asked.idempotency_key}


def test_a_tool_is_given_its_arguments_and_the_call() -> None:
    assert given(tool(echo, input=INPUT), call({"a": 1}, idempotency_key="k")) == {
        "got": {"a": 1},
        "key": "k",
    }


def test_query_and_body_are_one_input() -> None:
    assert given(tool(echo, input=INPUT), call({"a": 1}, query=(("b", "2"),)))["got"] == {"a": 1, "b": "2"}


def test_an_answer_is_passed_on_as_it_is() -> None:
    whole = Answer(status=201, body=b"x", content_type="text/plain")

    async def made(arguments: dict[str, Any], asked: Call) -> Answer:
        return whole

    assert run(tool(made, input=INPUT).invoke(call())) is whole


def test_the_description_is_what_was_given() -> None:
    assert tool(echo, input=INPUT).describe() == {"input": INPUT}
    known = tool(echo, input=INPUT, output={"type": "object"}, title="Echo").describe()
    assert known == {"title": "Echo", "input": INPUT, "output": {"type": "object"}}
