"""Resource handlers besides Python functions: models, tools, agents and tasks.

    from onym.ai.endpoint.kinds import model
    app.add("/model/helper", model(served_by("llm://openai/gpt-5.4-mini")), title="A helper")

`model`, `tool`, `agent` and `task` each return a handler for `Endpoint.add`. The service behind a resource
is a Protocol, so this module opens no connections. `onym.server.models.served_by` makes a model of an
`llm://` URI, `onym.bridges.a2a.a2a_agent` an agent of an A2A agent, and `onym.bridges.mcp.mcp_tool` a tool
of an MCP server.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec

from onym.ai.endpoint.context import Answer, Call, StreamEvent
from onym.ai.endpoint.schemas import build_schema
from onym.ai.records import EVENTS, JSON, is_json
from onym.common.text import parse_json_object
from onym.errors import AIIPError, UsageError

__all__ = [
    "AgentHandler",
    "Completed",
    "Completer",
    "ModelHandler",
    "Options",
    "Outgoing",
    "Progress",
    "Responder",
    "Role",
    "State",
    "TaskHandler",
    "ToolFunction",
    "ToolHandler",
    "Turn",
    "Update",
    "agent",
    "model",
    "task",
    "tool",
]

T = TypeVar("T")

_WEIGHT: Final = re.compile(r"\s*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\s*\Z", re.IGNORECASE)
#: how JSON escapes a surrogate
_SURROGATE: Final = b"\\ud"
#: media ranges of one Accept field that are parsed
_MOST_RANGES: Final = 32


def parse_arguments(call: Call) -> dict[str, Any]:
    """Return the members of a JSON body and the parameters of the query, which are strings.

    Raises AIIPError `aiip.unsupported-media-type` for another body, `aiip.invalid-input` for a body that is
    not an object and for a repeated name.
    """
    arguments = _parse_body(call) if call.body else {}
    for name, value in call.parameters:
        if name in arguments:
            raise make_input_error(f"{name} is given in the URI and in the body")
        arguments[name] = value
    return arguments


def parse_input(call: Call, kind: type[T]) -> T:
    """Return the input as this type, with defaults. Without a body, numbers may be strings, as in a query.

    Raises AIIPError as `parse_arguments`, and `aiip.invalid-input`, which names the member but not its value.
    """
    try:
        return msgspec.convert(parse_arguments(call), kind, strict=bool(call.body))
    except msgspec.ValidationError as error:
        raise make_input_error(str(error)) from None


def build_description(
    title: str | None, input_schema: Mapping[str, Any], output_schema: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the members of a description that have a value."""
    members = {"title": title, "input": input_schema, "output": output_schema}
    return {name: value for name, value in members.items() if value is not None}


def prefers_events(call: Call) -> bool:
    """Report whether the caller prefers events to JSON (RFC 9110 12.5.1); the first one wins a tie."""
    best, events = 0.0, False
    for choice in (call.accept or "").split(",")[:_MOST_RANGES]:
        name, _, rest = choice.partition(";")
        kind = name.strip().lower()
        if kind in {EVENTS, JSON} and _parse_weight(rest) > best:
            best, events = _parse_weight(rest), kind == EVENTS
    return events


def make_answer(value: Any) -> Answer:
    """Return a whole result as JSON."""
    return Answer(body=msgspec.json.encode(value))


def make_event(name: str, value: Any) -> StreamEvent:
    """Return one event of a streaming result, with JSON on one line as its data."""
    return StreamEvent(event=name, data=msgspec.json.encode(value).decode())


def make_input_error(why: str, code: str = "aiip.invalid-input", hint: str | None = None) -> AIIPError:
    """Return the error of invalid input."""
    hint = hint or "GET the resource for the JSON Schema of its input."
    return AIIPError(why, code=code, clause="AIIP/HTTPS v1 3.6", hint=hint)


def _parse_body(call: Call) -> dict[str, Any]:
    if not is_json(call.content_type):
        hint = f"Send Content-Type: {JSON}."
        raise make_input_error("the body must be JSON", "aiip.unsupported-media-type", hint)
    try:
        arguments = parse_json_object(call.body)
        if _SURROGATE in call.body.lower():
            msgspec.json.encode(arguments)
    except UnicodeEncodeError:
        raise make_input_error("the body contains a lone surrogate") from None
    except ValueError as error:
        raise make_input_error(f"the body {error}") from None
    return arguments


def _parse_weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        found = _WEIGHT.match(parameter)
        if found is not None:
            return float(found[1])
    return 1.0


#: gets the arguments and the call, and returns an Answer or a value with a JSON form
ToolFunction: TypeAlias = Callable[[dict[str, Any], Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class ToolHandler:
    """The handler of `tool`."""

    run: ToolFunction
    description: Mapping[str, Any]

    def describe(self) -> Mapping[str, Any]:
        """Return the title and the schemas."""
        return self.description

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """Return the tool's result as JSON."""
        result = await self.run(parse_arguments(call), call)
        return result if isinstance(result, Answer) else make_answer(result)


def tool(
    run: ToolFunction,
    *,
    input: Mapping[str, Any],  # noqa: A002 - the description's own word
    output: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> ToolHandler:
    """Return a resource handler for `run`, described by these JSON Schemas.

    `run` validates its arguments itself and raises AIIPError `aiip.invalid-input`.
    """
    return ToolHandler(run, build_description(title, input, output))


_NONE: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a task: `done` of `total` steps (None if unknown), and a note for people."""

    done: float
    total: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class TaskHandler:
    """The handler of `task`."""

    work: Callable[[Any], AsyncIterator[Any]]
    kind: type
    output: type | None
    title: str | None

    def describe(self) -> Mapping[str, Any]:
        """Return the title and the schemas."""
        output = None if self.output is None else build_schema(self.output)
        return build_description(self.title, build_schema(self.kind), output)

    def typed(self, call: Call) -> Any:
        """Return the typed input with defaults, for policies. Raises as `invoke` does."""
        return parse_input(call, self.kind)

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """Return the result as JSON, or, if Accept prefers events, `progress` events and one `result`."""
        given: Any = parse_input(call, self.kind)
        if prefers_events(call):
            return self._iter_events(given)
        async with aclosing(self._iter_steps(given)) as steps:
            return make_answer([step async for step in steps][-1])

    async def _iter_events(self, given: Any) -> AsyncIterator[StreamEvent]:
        async with aclosing(self._iter_steps(given)) as steps:
            async for step in steps:
                yield make_event("progress" if isinstance(step, Progress) else "result", step)

    async def _iter_steps(self, given: Any) -> AsyncGenerator[Any, None]:
        """Yield progress, and then one result."""
        result: Any = _NONE
        async with aclosing(cast("AsyncGenerator[Any, None]", self.work(given))) as steps:
            async for step in steps:
                if result is not _NONE:
                    raise AIIPError("the task continued after its result", code="aiip.internal")
                if isinstance(step, Progress):
                    yield step
                else:
                    result = step
        if result is _NONE:
            raise AIIPError("the task ended without a result", code="aiip.internal")
        yield result


def task(
    work: Callable[[T], AsyncIterator[Any]],
    *,
    input: type[T],  # noqa: A002 - the description's own word
    output: type | None = None,
    title: str | None = None,
) -> TaskHandler:
    """Return a resource handler for `work`, an async generator of `Progress` and one result.

    `input` is the type of the arguments, `output` that of the result; both are types that msgspec supports
    (dataclasses, msgspec.Struct, TypedDict), and their schemas are in the description.
    """
    return TaskHandler(work, input, output, title)


State: TypeAlias = Literal[
    "submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"
]

_LONGEST: Final = 256 * 1024
#: the members of an update that callers see
_UPDATE_MEMBERS: Final = ("text", "joined", "note", "data", "state")
#: characters and updates of one answer, so that an endless answer is stopped
MAX_ANSWER: Final = 4 * 1024 * 1024
MAX_UPDATES: Final = 10_000

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to the agent. `id` is the caller's idempotency key, or a random one.

    `context` and `task` are the agent's names of a conversation and a task to continue.
    """

    id: str
    text: str = field(default="", repr=False)
    data: Any = field(default=None, repr=False)
    context: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A part of an agent's answer. `joined` text continues the last text; a `note` is not part of the answer.

    `data` contains JSON values. A `state` of None does not change the state.
    """

    text: str = field(default="", repr=False)
    joined: bool = False
    note: str = field(default="", repr=False)
    data: tuple[Any, ...] = field(default=(), repr=False)
    state: State | None = None
    context: str | None = None
    task: str | None = None


class Responder(Protocol):
    """An agent. Callers see its AIIPErrors; every other exception is reported as `internal`."""

    def send(self, message: Outgoing) -> AsyncIterator[Update]:
        """Yield the agent's answer to a message; without a state it is completed."""
        ...


class AgentInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input: `message`, `data` or both; `context` and `task` continue a conversation."""

    message: Annotated[str, msgspec.Meta(max_length=_LONGEST)] = ""
    data: Any = None
    context: _Name | None = None
    task: _Name | None = None


class AgentOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The output. `state` is completed, or another final or waiting state."""

    text: str
    state: State
    data: tuple[Any, ...] = ()
    context: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AgentHandler:
    """The handler of `agent`."""

    responder: Responder
    title: str | None

    def describe(self) -> Mapping[str, Any]:
        """Return the title and the schemas. The agent itself is not described."""
        return build_description(self.title, build_schema(AgentInput), build_schema(AgentOutput))

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """Return the answer as JSON, or, if Accept prefers events, `update` events and one `result`."""
        given = parse_input(call, AgentInput)
        if not given.message and given.data is None:
            raise make_input_error("the input has neither message nor data")
        message = Outgoing(
            # a repeated key is the same message for the agent (AIIP/HTTPS v1 3.17)
            id=call.idempotency_key or secrets.token_urlsafe(16),
            text=given.message,
            data=given.data,
            context=given.context,
            task=given.task,
        )
        if prefers_events(call):
            return self._iter_events(message)
        *_, last = [update async for update in self._iter_updates(message)]
        return make_answer(last)

    async def _iter_events(self, message: Outgoing) -> AsyncIterator[StreamEvent]:
        async with aclosing(self._iter_updates(message)) as updates:
            async for update in updates:
                if isinstance(update, AgentOutput):
                    yield make_event("result", update)
                    continue
                members = {name: getattr(update, name) for name in _UPDATE_MEMBERS}
                yield make_event("update", {name: value for name, value in members.items() if value})

    async def _iter_updates(self, message: Outgoing) -> AsyncGenerator[Update | AgentOutput, None]:
        """Yield every update, and then the whole answer."""
        parts: list[str] = []
        data: list[Any] = []
        last, size, count = Update(state="completed"), 0, 0
        async with aclosing(cast("AsyncGenerator[Update, None]", self.responder.send(message))) as updates:
            async for update in updates:
                count += 1
                size += len(update.text) + len(update.note)
                size += sum(len(msgspec.json.encode(value)) for value in update.data)
                if count > MAX_UPDATES or size > MAX_ANSWER:
                    raise AIIPError("the agent's answer is too large", code="aiip.internal")
                if update.text:
                    parts += ["" if update.joined or not parts else "\n", update.text]
                data += update.data
                last = Update(
                    state=update.state or last.state,
                    context=update.context or last.context,
                    task=update.task or last.task,
                )
                yield update
        yield AgentOutput(
            text="".join(parts),
            state=last.state or "completed",
            data=tuple(data),
            context=last.context,
            task=last.task,
        )


def agent(responder: Responder, *, title: str | None = None) -> AgentHandler:
    """Return a resource handler for this agent."""
    return AgentHandler(responder, title)


Role: TypeAlias = Literal["system", "user", "assistant"]

_MOST_MESSAGES: Final = 256
_MOST_TOKENS: Final = 1_000_000
_Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a conversation."""

    role: Role
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a completion; None means the model's default. `temperature` is 0 to 2."""

    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A finished completion. Token counts are None if the model does not report them."""

    text: str = field(repr=False)
    model: str
    finish: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None


class Completer(Protocol):
    """A model. Callers see its AIIPErrors; every other exception is reported as `internal`."""

    async def complete(self, turns: Sequence[Turn], options: Options) -> Completed:
        """Return the completion of a conversation."""
        ...

    def stream(self, turns: Sequence[Turn], options: Options) -> AsyncIterator[str | Completed]:
        """Yield the text in parts, and the whole completion at the end."""
        ...


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of the input."""

    role: Role
    content: _Text


class ModelInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The input: either `prompt` or `messages`."""

    prompt: _Text | msgspec.UnsetType = msgspec.UNSET
    messages: (
        Annotated[tuple[ModelMessage, ...], msgspec.Meta(min_length=1, max_length=_MOST_MESSAGES)]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=_MOST_TOKENS)] | msgspec.UnsetType = msgspec.UNSET
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | msgspec.UnsetType = msgspec.UNSET
    stream: bool | msgspec.UnsetType = msgspec.UNSET


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The model's token counts; null if it does not report them."""

    input_tokens: int | None
    output_tokens: int | None


class ModelOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output. `finish` is the reason for the end: stop, length, content_filter, other."""

    text: str
    model: str
    finish: str
    usage: ModelUsage


@dataclass(frozen=True, slots=True, eq=False)
class ModelHandler:
    """The handler of `model`. `name` replaces the model's own name in every answer."""

    completer: Completer
    _: KW_ONLY
    title: str | None
    name: str | None
    system: str | None
    max_tokens: int

    def describe(self) -> Mapping[str, Any]:
        """Return the title and the schemas. The model itself is not described."""
        one_of = [{"required": ["prompt"]}, {"required": ["messages"]}]
        input_schema = {**build_schema(ModelInput), "oneOf": one_of}
        return build_description(self.title, input_schema, build_schema(ModelOutput))

    def typed(self, call: Call) -> ModelInput:
        """Return the typed input with defaults, for policies. Raises as `invoke` does."""
        return parse_input(call, ModelInput)

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """Return the completion as JSON, or as events if the input sets `stream` or Accept prefers events.

        A stream has `message` events with parts of the text, and then one `result` with the whole completion.
        """
        given = parse_input(call, ModelInput)
        turns = self._build_turns(given)
        options = Options(
            max_tokens=min(given.max_tokens or self.max_tokens, self.max_tokens),
            temperature=None if given.temperature is msgspec.UNSET else given.temperature,
        )
        streams = prefers_events(call) if given.stream is msgspec.UNSET else given.stream
        if streams:
            return self._iter_events(turns, options)
        return make_answer(self._build_output(await self.completer.complete(turns, options)))

    async def close(self) -> None:
        """Close the completer, if it has a `close` method."""
        end: Any = getattr(self.completer, "close", None)
        if end is not None:
            await end()

    async def _iter_events(self, turns: Sequence[Turn], options: Options) -> AsyncIterator[StreamEvent]:
        async for piece in self.completer.stream(turns, options):
            if isinstance(piece, Completed):
                yield make_event("result", self._build_output(piece))
            elif piece:
                yield make_event("message", {"text": piece})

    def _build_turns(self, given: ModelInput) -> tuple[Turn, ...]:
        if (given.prompt is msgspec.UNSET) is (given.messages is msgspec.UNSET):
            raise make_input_error("the input needs either prompt or messages")
        messages = given.messages or (ModelMessage(role="user", content=given.prompt or ""),)
        turns = tuple(Turn(role=message.role, text=message.content) for message in messages)
        if self.system is None:
            return turns
        if any(turn.role == "system" for turn in turns):
            raise make_input_error(
                "this resource sets its own system message, so the input cannot contain one"
            )
        return (Turn(role="system", text=self.system), *turns)

    def _build_output(self, completed: Completed) -> ModelOutput:
        return ModelOutput(
            text=completed.text,
            model=self.name or completed.model,
            finish=completed.finish,
            usage=ModelUsage(input_tokens=completed.input_tokens, output_tokens=completed.output_tokens),
        )


def model(
    completer: Completer,
    *,
    title: str | None = None,
    name: str | None = None,
    system: str | None = None,
    max_tokens: int = 4096,
) -> ModelHandler:
    """Return a resource handler for this model.

    `name` replaces the model's own name in answers. `system` is a system message that callers cannot see or
    change; without it they may send their own. `max_tokens` is the limit and the default of one call. Raises
    UsageError for a limit below 1.
    """
    if not 1 <= max_tokens <= _MOST_TOKENS:
        message = f"max_tokens must be 1 to {_MOST_TOKENS}, not {max_tokens}"
        raise UsageError(message, code="usage.bad-argument")
    return ModelHandler(completer, title=title, name=name, system=system, max_tokens=max_tokens)
