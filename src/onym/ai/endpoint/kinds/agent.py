"""A resource that is an agent: a message in, what it says and the state of its work out.

The agent itself is behind the Protocol `Responder`; `onym.bridges.a2a.a2a_agent` makes one of an A2A agent.
States are those of aiip 3.12, which are A2A's.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias, cast

import msgspec

from onym.ai.endpoint._types import schema
from onym.ai.endpoint.context import Answer, Call, StreamEvent
from onym.ai.endpoint.kinds._exchange import (
    arguments,
    convert,
    event,
    refused,
    result,
    wants_events,
)
from onym.errors import AIIPError

__all__ = ["AgentHandler", "Outgoing", "Responder", "State", "Update", "agent"]

State: TypeAlias = Literal[
    "submitted",
    "working",
    "input-required",
    "auth-required",
    "completed",
    "failed",
    "canceled",
    "rejected",
]

_LONGEST: Final = 256 * 1024
#: characters and updates of one answer: an agent that goes on for ever is stopped
MAX_ANSWER: Final = 4 * 1024 * 1024
MAX_UPDATES: Final = 10_000

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to the agent. `id` is the caller's idempotency key, where it gave one.

    `context` and `task` name a conversation and a task of it to go on with, as the agent called them.
    """

    id: str
    text: str = field(default="", repr=False)
    data: Any = field(default=None, repr=False)
    context: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What an agent says. `joined` text goes on where the last ended; a `note` is no part of the answer.

    `data` are JSON values. A `state` that is None leaves the state as it was.
    """

    text: str = field(default="", repr=False)
    joined: bool = False
    note: str = field(default="", repr=False)
    data: tuple[Any, ...] = field(default=(), repr=False)
    state: State | None = None
    context: str | None = None
    task: str | None = None


class Responder(Protocol):
    """An agent. What it raises for a caller to see is an AIIPError; anything else is told as `internal`."""

    def send(self, message: Outgoing) -> AsyncIterator[Update]:
        """What the agent says to a message; an end without a state means completed."""
        ...


class AgentInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input: `message`, `data` or both; `context` and `task` go on with a conversation."""

    message: Annotated[str, msgspec.Meta(max_length=_LONGEST)] = ""
    data: Any = None
    context: _Name | None = None
    task: _Name | None = None


class AgentOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The output. `state` is completed, or says what the work waits for or came to."""

    text: str
    state: State
    data: tuple[Any, ...] = ()
    context: str | None = None
    task: str | None = None


class AgentHandler:
    """The handler of `agent`."""

    def __init__(self, responder: Responder, title: str | None) -> None:
        self._responder = responder
        self._title = title

    def describe(self) -> Mapping[str, Any]:
        """Title and schemas. What is behind the resource is not told."""
        title = {} if self._title is None else {"title": self._title}
        return {**title, "input": schema(AgentInput), "output": schema(AgentOutput)}

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """The answer as JSON; where Accept prefers events, `update` events and then one `result`."""
        message = _outgoing(call)
        if wants_events(call):
            return self._events(message)
        *_, last = [each async for each in self._updates(message)]
        return result(last)

    async def _events(self, message: Outgoing) -> AsyncIterator[StreamEvent]:
        async with aclosing(self._updates(message)) as updates:
            async for each in updates:
                yield (
                    event("result", each) if isinstance(each, AgentOutput) else event("update", _shown(each))
                )

    async def _updates(self, message: Outgoing) -> AsyncGenerator[Update | AgentOutput, None]:
        """Each update, and then the whole."""
        said = _Said()
        async with aclosing(cast("AsyncGenerator[Update, None]", self._responder.send(message))) as updates:
            async for each in updates:
                said.add(each)
                yield each
        yield said.whole()


class _Said:
    """An answer that is being put together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._data: list[Any] = []
        self._last = Update(state="completed")
        self._size = 0
        self._count = 0

    def add(self, update: Update) -> None:
        """Take one update. Raises AIIPError `aiip.internal` for an answer without end."""
        self._count += 1
        self._size += (
            len(update.text) + len(update.note) + sum(len(msgspec.json.encode(each)) for each in update.data)
        )
        if self._count > MAX_UPDATES or self._size > MAX_ANSWER:
            raise AIIPError("the agent's answer is too large", code="aiip.internal")
        if update.text:
            self._text += ["" if update.joined or not self._text else "\n", update.text]
        self._data += update.data
        self._last = Update(
            state=update.state or self._last.state,
            context=update.context or self._last.context,
            task=update.task or self._last.task,
        )

    def whole(self) -> AgentOutput:
        """The answer."""
        last = self._last
        return AgentOutput(
            text="".join(self._text),
            state=last.state or "completed",
            data=tuple(self._data),
            context=last.context,
            task=last.task,
        )


def agent(responder: Responder, *, title: str | None = None) -> AgentHandler:
    """A resource handler for this agent."""
    return AgentHandler(responder, title)


def _shown(update: Update) -> dict[str, Any]:
    """The members of an update that say something."""
    known = ("text", "joined", "note", "data", "state")
    return {name: getattr(update, name) for name in known if getattr(update, name)}


def _outgoing(call: Call) -> Outgoing:
    given = convert(arguments(call), AgentInput)
    if not given.message and given.data is None:
        raise refused("the input has a message or data")
    return Outgoing(
        # the same key again is the same message to the agent (aiip 3.17)
        id=call.idempotency_key or secrets.token_urlsafe(16),
        text=given.message,
        data=given.data,
        context=given.context,
        task=given.task,
    )
