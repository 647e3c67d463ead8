"""A Python function as a resource: its type hints are the schema of what it takes and gives."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

import msgspec

from onym.ai.endpoint._fault import plainly
from onym.ai.endpoint._output import Output
from onym.ai.endpoint._pydantic import plain
from onym.ai.endpoint._tasks import TERM
from onym.ai.endpoint._types import fresh, input_schema, read_signature
from onym.ai.endpoint.context import CONTENT_TYPE, JSON, Answer, Call, StreamEvent
from onym.errors import AIIPError, UsageError

__all__ = ["OCTETS", "TEXT", "FunctionHandler"]

#: media types of a result that is bytes, and of one that is a str
OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
_END: Final = object()
_AWAITED: Final = frozenset({AsyncGenerator, AsyncIterator})


class FunctionHandler:
    """Calls a function with the members of a JSON object, the parameters of the query, or both.

    A plain function runs in a thread of `executor`, a coroutine in the loop; a generator's values are the
    events of a stream. Raises UsageError for a function that cannot be called so, for a result of a type
    without a JSON form, and for a media type that is none.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        media_type: str | None = None,
        executor: Callable[[], Executor | None] = lambda: None,
    ) -> None:
        if media_type is not None and not CONTENT_TYPE.fullmatch(media_type):
            raise UsageError("a media type is visible ASCII, at most 255 characters")
        self._function = function
        self._signature = read_signature(function)
        self._decoder = msgspec.json.Decoder(self._signature.input)
        self._output = Output(self._signature.input.__name__, self._signature.output)
        self._media_type = media_type
        self._executor = executor
        # what is made to be awaited is made in the loop
        kind = typing.get_origin(typing.get_type_hints(function).get("return"))
        self._threaded = not self._signature.asynchronous and kind not in _AWAITED

    def describe(self) -> Mapping[str, Any]:
        """Title and description from the docstring, input and output from the type hints."""
        first, _, rest = inspect.cleandoc(self._function.__doc__ or "").partition("\n")
        found = {
            "title": first.strip().rstrip(".") or None,
            "description": rest.strip() or None,
            "input": input_schema(self._signature),
            "output": self._output.schema(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def check(self, call: Call) -> None:
        """Raises AIIPError `aiip.invalid-input`, `aiip.unsupported-media-type` where input does not fit."""
        self._input(call)

    def typed(self, call: Call) -> dict[str, Any]:
        """What the function is given, defaults filled in, for policies. Raises as `check`."""
        given = self._input(call)
        given.pop(self._signature.call or "", None)
        for name in self._signature.models:
            given[name] = plain(given[name])
        return given

    @property
    def lasts(self) -> bool:
        """Does the function go on where a call of it is given up? A thread cannot be ended.

        What it returns to be awaited can: the term of the call is told (`Term.awaited`).
        """
        return self._threaded and not self._signature.streams

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """Call the function."""
        made = await self._called(self._input(call))
        return self._events(made) if self._signature.streams else self._answer(made)

    async def _called(self, given: Mapping[str, Any]) -> Any:
        work = partial(self._function, **given)
        made = await self._in_thread(work) if self._threaded else work()
        if not inspect.isawaitable(made):
            return made
        # of a coroutine function, and of a plain one around it
        term = TERM.get()
        if term is not None:
            term.awaited()
        return await made

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._executor(), plainly, work, *args)

    def _input(self, call: Call) -> dict[str, Any]:
        """The function's arguments."""
        try:
            made = self._merged(call) if call.parameters else self._decoder.decode(_json(call) or b"{}")
            given = {name: self._member(name, getattr(made, name)) for name in self._signature.members}
        except msgspec.ValidationError as error:
            raise _invalid(call, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise _invalid(call, "the body is not JSON") from None
        if self._signature.call is not None:
            given[self._signature.call] = call
        return given

    def _member(self, name: str, value: Any) -> Any:
        model = self._signature.models.get(name)
        if model is None:
            return value
        if value is msgspec.UNSET:
            return fresh(self._signature.defaults[name])
        return model.read(value, name)

    def _merged(self, call: Call) -> msgspec.Struct:
        """The input out of query and body; a member that both have has two values, and none."""
        members = msgspec.json.decode(_json(call) or b"{}")
        if not isinstance(members, dict):
            raise _invalid(call, "Expected `object`")
        values = self._parameters(call)
        twice = next((name for name in values if name in members), None)
        if twice is not None:
            raise _invalid(call, f"query and body both have it - at `$.{twice}`")
        found: msgspec.Struct = msgspec.convert(members | values, self._signature.input)
        return found

    def _parameters(self, call: Call) -> dict[str, Any]:
        values = {}
        for name, text in call.parameters:
            if name not in self._signature.members:
                raise _invalid(call, f"Object contains unknown field `{name}`")
            pydantics = name in self._signature.models  # which reads numbers out of text
            values[name] = text if pydantics else _scalar(name, text, self._signature.members[name])
        return values

    def _answer(self, result: Any) -> Answer:
        if isinstance(result, Answer):
            return result
        if result is None and self._output.empty:
            return Answer(status=204, content_type=None)
        if isinstance(result, bytes) and self._output.octets:
            return Answer(content_type=self._media_type or OCTETS, body=result)
        if isinstance(result, str) and self._output.kind is str:
            return Answer(content_type=self._media_type or TEXT, body=result.encode())
        return Answer(content_type=self._media_type or JSON, body=self._output.encode(result))

    async def _events(self, values: Any) -> AsyncIterator[StreamEvent]:
        source: Any = values if hasattr(values, "__anext__") else self._in_threads(iter(values))
        try:
            async for each in source:
                yield (
                    each
                    if isinstance(each, StreamEvent)
                    else StreamEvent(data=self._output.encode(each).decode())
                )
        finally:
            close = getattr(source, "aclose", None)  # generators have it, iterators need not
            if close is not None:
                await close()

    async def _in_threads(self, values: Iterator[Any]) -> AsyncIterator[Any]:
        """What a plain generator yields, each awaited from a thread."""
        try:
            while (each := await self._in_thread(next, values, _END)) is not _END:
                yield each
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                with contextlib.suppress(ValueError):  # it still runs, in the thread that was given up
                    await self._in_thread(close)


def _json(call: Call) -> bytes:
    """The body, which is JSON or nothing."""
    kind = (call.content_type or "").partition(";")[0].strip().lower()
    if call.body and not (kind == JSON or kind.endswith("+json")):
        raise AIIPError(
            "the body of this resource is JSON",
            code="aiip.unsupported-media-type",
            target=str(call.uri.without_query),
            hint=f"Content-Type: {JSON}",
        )
    return call.body


def _scalar(name: str, text: str, kind: Any) -> Any:
    """A parameter of the query, which is text, as the type that the function wants."""
    try:
        found = msgspec.to_builtins(msgspec.convert(text, kind, strict=False))
        if isinstance(found, float) and not math.isfinite(found):
            raise msgspec.ValidationError("Expected a finite number")
        return found
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{str(error).partition(' - at ')[0]} - at `$.{name}`") from None


def _invalid(call: Call, why: str) -> AIIPError:
    return AIIPError(
        f"the input does not fit: {why}",
        code="aiip.invalid-input",
        target=str(call.uri.without_query),
        hint="GET describes what is expected (input, a JSON Schema)",
    )
