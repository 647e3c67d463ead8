"""One question in every wire format, and what its answer has to be, whichever server gives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import onym
from e2e import judges
from e2e.judges import Call
from e2e.peers import Peer
from model_support import MODEL
from onym.llm.client import AsyncClient, Client
from onym.llm.types import Completion, Event, Finish, TextDelta, Tool
from onym.net.policy import Policy

__all__ = [
    "CITY",
    "QUESTION",
    "SYSTEM",
    "WEATHER",
    "aconnect",
    "calls_the_tool",
    "connect",
    "holds_to_the_schema",
    "reads_the_result",
    "said_as_its_sdk_reads_it",
    "same_for_coroutines",
    "streamed_as_its_sdk_reads_it",
]

SYSTEM = "You are a helpful assistant."
QUESTION = "What is the capital of France? Tell me about it."
WEATHER = Tool(
    name="weather",
    description="The weather in a city",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    strict=True,  # else vLLM lets a model write what it likes
)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "large": {"type": "boolean"}},
    "required": ["city", "large"],
    "additionalProperties": False,
}


def connect(peer: Peer, api: str, model: str = MODEL, *, key: str | None = None, **params: object) -> Client:
    """A client that asks in this wire format. "chat" is what the row of an unnamed host speaks unasked."""
    return onym.connect(
        peer.uri(model, key=key, **_parameters(api, params)), policy=Policy.local(), providers=peer.providers
    )


def aconnect(peer: Peer, api: str, model: str = MODEL, **params: object) -> AsyncClient:
    """The same for coroutines."""
    return onym.aconnect(
        peer.uri(model, **_parameters(api, params)), policy=Policy.local(), providers=peer.providers
    )


def _parameters(api: str, params: dict[str, object]) -> dict[str, object]:
    asked = {} if api == "chat" else {"api": api}
    return {**asked, "system": SYSTEM, "temp": 0, "max_tokens": 24, "retries": 0, **params}


def said_as_its_sdk_reads_it(peer: Peer, api: str, model: str = MODEL) -> Completion:
    """A full answer: text, reason and counts are those that the vendor's SDK gets."""
    theirs = judges.said(api, peer, Call(model, SYSTEM, QUESTION, 24))
    with connect(peer, api, model) as client:
        ours = client.chat(QUESTION)
    assert ours.text == theirs.text
    assert "Paris" in ours.text
    assert ours.finish_reason == theirs.reason
    assert ours.usage.input_tokens == theirs.input_tokens
    assert ours.usage.output_tokens == theirs.output_tokens
    return ours


def streamed_as_its_sdk_reads_it(peer: Peer, api: str, model: str = MODEL) -> Finish:
    """A streamed answer: its pieces are those that the vendor's SDK gets, together the full one."""
    theirs = judges.streamed(api, peer, Call(model, SYSTEM, QUESTION, 24))
    with connect(peer, api, model) as client:
        whole = client.chat(QUESTION)
        with client.stream(QUESTION) as stream:
            events = list(stream)
    pieces = _texts(events)
    assert pieces == theirs
    assert len(pieces) > 5
    assert "".join(pieces) == whole.text
    last = events[-1]
    assert isinstance(last, Finish)
    assert last.reason == whole.finish_reason
    return last


def same_for_coroutines(peer: Peer, api: str, model: str = MODEL) -> None:
    """Coroutines get the same text, full and streamed at once."""

    async def both() -> tuple[str, str]:
        async with aconnect(peer, api, model) as client:
            whole, streamed = await asyncio.gather(client.chat(QUESTION), gather(client))
            return whole.text, streamed

    async def gather(client: AsyncClient) -> str:
        async with client.stream(QUESTION) as stream:
            return "".join(_texts([event async for event in stream]))

    whole, streamed = asyncio.run(both())
    assert whole == streamed == judges.said(api, peer, Call(model, SYSTEM, QUESTION, 24)).text


def calls_the_tool(peer: Peer, api: str, model: str = MODEL) -> None:
    """A model that has to call a tool calls it, full and streamed, with arguments that are JSON."""
    told = [*_turns("Rome", "Sun", 1), *_turns("Paris", "Rain", 2), _question("Paris")]
    with connect(peer, api, model, max_tokens=120) as client:
        whole = client.chat(told, tools=[WEATHER], tool_choice="required")
        with client.stream(told, tools=[WEATHER], tool_choice="required") as stream:
            streamed = stream.completion()
    for answer in (whole, streamed):
        (call,) = answer.tool_calls
        assert call.name == "weather"
        assert call.id
        assert json.loads(call.arguments)["city"] in ("Paris", "Rome")
        assert answer.finish_reason == "tool_calls"


def reads_the_result(peer: Peer, api: str, model: str = MODEL) -> None:
    """The result of a call gets to the model, which was never told it elsewhere."""
    told = [*_turns("Rome", "Sun", 1), *_turns("Paris", "Rain", 2), *_turns("Rome", "Snow", 3)[:3]]
    with connect(peer, api, model) as client:
        assert "Snow" in client.chat(told, tools=[WEATHER]).text


def holds_to_the_schema(peer: Peer, api: str, model: str = MODEL) -> None:
    """A schema shapes the answer, full and streamed."""
    with connect(peer, api, model, max_tokens=100) as client:
        whole = client.chat(QUESTION, format="json_schema", schema=CITY).text
        with client.stream(QUESTION, format="json_schema", schema=CITY) as stream:
            streamed = stream.completion().text
    for text in (whole, streamed):
        found = json.loads(text)
        assert sorted(found) == ["city", "large"]
        assert isinstance(found["large"], bool)


def _texts(events: Iterable[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


def _question(city: str) -> dict[str, Any]:
    return {"role": "user", "content": f"What is the weather in {city}?"}


def _turns(city: str, weather: str, number: int) -> list[dict[str, Any]]:
    """A question, the call that it led to, its result and the answer: small models call after examples."""
    call = {"name": "weather", "arguments": json.dumps({"city": city})}
    known = f"call_of_turn_{number}"
    return [
        _question(city),
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": known, "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": known, "content": weather},
        {"role": "assistant", "content": f"{weather} in {city}."},
    ]
