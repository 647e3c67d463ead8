"""A resource that is a model: a prompt or messages in, a completion out, whole or as it is made.

    app.add("/model/helper", model(served_by("llm://openai/gpt-5-mini")), title="A helper")

The model is behind the Protocol `Completer`; `onym.server.models.served_by` makes one of an `llm://` URI.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias

import msgspec

from onym.ai.endpoint._types import schema
from onym.ai.endpoint.context import Answer, Call, StreamEvent
from onym.ai.endpoint.kinds._exchange import (
    event,
    refused,
    result,
    typed,
    wants_events,
)
from onym.errors import UsageError

__all__ = ["Completed", "Completer", "ModelHandler", "Options", "Role", "Turn", "model"]

Role: TypeAlias = Literal["system", "user", "assistant"]

_MOST_MESSAGES: Final = 256
_LONGEST: Final = 256 * 1024
_MOST_TOKENS: Final = 1_000_000

_Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a conversation."""

    role: Role
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to complete; None leaves it to the model. `max_tokens` counts tokens, `temperature` is 0 to 2."""

    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A completion that has ended. Token counts are None where the model does not say."""

    text: str = field(repr=False)
    model: str
    finish: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None


class Completer(Protocol):
    """A model. What it raises for a caller to see is an AIIPError; anything else is told as `internal`."""

    async def complete(self, turns: Sequence[Turn], options: Options) -> Completed:
        """The completion of a conversation."""
        ...

    def stream(self, turns: Sequence[Turn], options: Options) -> AsyncIterator[str | Completed]:
        """Its text piece by piece, and at the end the whole."""
        ...


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of the input."""

    role: Role
    content: _Text


class ModelInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input: `prompt` or `messages`, one of them."""

    prompt: _Text | msgspec.UnsetType = msgspec.UNSET
    messages: (
        Annotated[tuple[ModelMessage, ...], msgspec.Meta(min_length=1, max_length=_MOST_MESSAGES)]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=_MOST_TOKENS)] | msgspec.UnsetType = msgspec.UNSET
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | msgspec.UnsetType = msgspec.UNSET
    stream: bool | msgspec.UnsetType = msgspec.UNSET


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as the model counted them; null where it does not say."""

    input_tokens: int | None
    output_tokens: int | None


class ModelOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output. `finish` says why the text ends: stop, length, content_filter, other."""

    text: str
    model: str
    finish: str
    usage: ModelUsage


class ModelHandler:
    """The handler of `model`. `name` stands for the model in every answer, where it is given."""

    def __init__(
        self,
        completer: Completer,
        *,
        title: str | None,
        name: str | None,
        system: str | None,
        max_tokens: int,
    ) -> None:
        self._completer = completer
        self._title = title
        self._name = name
        self._system = system
        self._max_tokens = max_tokens

    def describe(self) -> Mapping[str, Any]:
        """Title and schemas. What is behind the resource is not told."""
        one_of = [{"required": ["prompt"]}, {"required": ["messages"]}]
        title = {} if self._title is None else {"title": self._title}
        return {**title, "input": {**schema(ModelInput), "oneOf": one_of}, "output": schema(ModelOutput)}

    def typed(self, call: Call) -> ModelInput:
        """The input as it is read, defaults filled in, for policies. Raises as `invoke`."""
        return typed(call, ModelInput)

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """The completion as JSON; as events where the input says `stream`, or Accept prefers them.

        A stream has `message` events, each with a piece of the text, and then one `result` with the whole.
        """
        given = typed(call, ModelInput)
        turns, options = self._turns(given), self._options(given)
        streams = wants_events(call) if given.stream is msgspec.UNSET else given.stream
        if streams:
            return self._events(turns, options)
        return result(self._output(await self._completer.complete(turns, options)))

    async def close(self) -> None:
        """Close the completer, where it can be closed."""
        end: Any = getattr(self._completer, "close", None)
        if end is not None:
            await end()

    async def _events(self, turns: Sequence[Turn], options: Options) -> AsyncIterator[StreamEvent]:
        async for each in self._completer.stream(turns, options):
            if isinstance(each, Completed):
                yield event("result", self._output(each))
            elif each:
                yield event("message", {"text": each})

    def _turns(self, given: ModelInput) -> tuple[Turn, ...]:
        if (given.prompt is msgspec.UNSET) is (given.messages is msgspec.UNSET):
            raise refused("the input has prompt or messages, one of them")
        messages = given.messages or (ModelMessage(role="user", content=given.prompt or ""),)
        if self._system is not None and any(each.role == "system" for each in messages):
            raise refused("this model has a system message of its own")
        own = () if self._system is None else (Turn(role="system", text=self._system),)
        return (*own, *(Turn(role=each.role, text=each.content) for each in messages))

    def _options(self, given: ModelInput) -> Options:
        wanted = given.max_tokens or self._max_tokens
        return Options(
            max_tokens=min(wanted, self._max_tokens),
            temperature=None if given.temperature is msgspec.UNSET else given.temperature,
        )

    def _output(self, found: Completed) -> ModelOutput:
        return ModelOutput(
            text=found.text,
            model=self._name or found.model,
            finish=found.finish,
            usage=ModelUsage(input_tokens=found.input_tokens, output_tokens=found.output_tokens),
        )


def model(
    completer: Completer,
    *,
    title: str | None = None,
    name: str | None = None,
    system: str | None = None,
    max_tokens: int = 4096,
) -> ModelHandler:
    """A resource handler for this model.

    `name` is what answers call the model, instead of what it calls itself. `system` is a system message that
    callers cannot see or change; without one they may send their own. `max_tokens` is the most that one call
    may ask for, and what a call gets that does not say. Raises UsageError for a limit below 1.
    """
    if not 1 <= max_tokens <= _MOST_TOKENS:
        raise UsageError(f"max_tokens is 1 to {_MOST_TOKENS}", code="usage.bad-argument")
    return ModelHandler(completer, title=title, name=name, system=system, max_tokens=max_tokens)
