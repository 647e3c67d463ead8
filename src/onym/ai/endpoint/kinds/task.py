"""A resource whose invocation is one unit of work: it says how far it is, and ends with its result.

    async def reindex(folder: Folder) -> AsyncIterator[Progress | Count]:
        yield Progress(done=1, total=2, note="read")
        yield Count(files=7)

    app.add("/task/reindex", task(reindex, input=Folder, output=Count), effects="write")

The work lasts as long as the request: who takes events sees its progress, and who leaves ends it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from onym.ai.endpoint._types import schema
from onym.ai.endpoint.context import Answer, Call, StreamEvent
from onym.ai.endpoint.kinds._exchange import event, result, typed, wants_events
from onym.errors import AIIPError

__all__ = ["Progress", "TaskHandler", "task"]

T = TypeVar("T")
_NONE: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the work is: `done` of `total` steps, where the total is known, and a note for people."""

    done: float
    total: float | None = None
    note: str = ""


class TaskHandler:
    """The handler of `task`."""

    def __init__(
        self, work: Callable[[Any], AsyncIterator[Any]], kind: type, output: type | None, title: str | None
    ) -> None:
        self._work = work
        self._kind = kind
        self._output = output
        self._title = title

    def describe(self) -> Mapping[str, Any]:
        """Title and schemas."""
        title = {} if self._title is None else {"title": self._title}
        output = {} if self._output is None else {"output": schema(self._output)}
        return {**title, "input": schema(self._kind), **output}

    def typed(self, call: Call) -> Any:
        """The input as it is read, defaults filled in, for policies. Raises as `invoke`."""
        return typed(call, self._kind)

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """The result as JSON; where Accept prefers events, `progress` events and then one `result`."""
        given: Any = typed(call, self._kind)
        if wants_events(call):
            return self._events(given)
        async with aclosing(self._steps(given)) as steps:
            return result([each async for each in steps][-1])

    async def _events(self, given: Any) -> AsyncIterator[StreamEvent]:
        async with aclosing(self._steps(given)) as steps:
            async for each in steps:
                yield event("progress" if isinstance(each, Progress) else "result", each)

    async def _steps(self, given: Any) -> AsyncGenerator[Any, None]:
        """Progress, and then one result."""
        found: Any = _NONE
        async with aclosing(cast("AsyncGenerator[Any, None]", self._work(given))) as steps:
            async for each in steps:
                if found is not _NONE:
                    raise _broken("goes on behind its result")
                if isinstance(each, Progress):
                    yield each
                else:
                    found = each
        if found is _NONE:
            raise _broken("ended without a result")
        yield found


def task(
    work: Callable[[T], AsyncIterator[Any]],
    *,
    input: type[T],  # noqa: A002 - the description's own word
    output: type | None = None,
    title: str | None = None,
) -> TaskHandler:
    """A resource handler for `work`: an async generator function that yields `Progress`, and last its result.

    `input` is the type that arguments are read as, `output` that of the result; both are types that msgspec
    knows (dataclasses, msgspec.Struct, TypedDict) and give the description its schemas.
    """
    return TaskHandler(work, input, output, title)


def _broken(how: str) -> AIIPError:
    return AIIPError(f"the task {how}", code="aiip.internal")
