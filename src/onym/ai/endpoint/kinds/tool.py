"""A resource that is a tool which brings its own JSON Schemas: one object in, one JSON value out.

A Python function needs none of this: `Endpoint.resource` reads its schemas from its type hints. This is for
tools that are described elsewhere, such as those of an MCP server (`onym.bridges.mcp`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from onym.ai.endpoint.context import Answer, Call, StreamEvent
from onym.ai.endpoint.kinds._exchange import arguments, result

__all__ = ["Run", "ToolHandler", "tool"]

#: what does the work: arguments and the call in, an Answer or a value that is JSON out
Run: TypeAlias = Callable[[dict[str, Any], Call], Awaitable[Any]]


class ToolHandler:
    """The handler of `tool`."""

    def __init__(self, run: Run, known: Mapping[str, Any]) -> None:
        self._run = run
        self._known = dict(known)

    def describe(self) -> Mapping[str, Any]:
        """Title and schemas, as they were given."""
        return self._known

    async def invoke(self, call: Call) -> Answer | AsyncIterator[StreamEvent]:
        """What the tool gives, as JSON."""
        found = await self._run(arguments(call), call)
        return found if isinstance(found, Answer) else result(found)


def tool(
    run: Run,
    *,
    input: Mapping[str, Any],  # noqa: A002 - the description's own word
    output: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> ToolHandler:
    """A resource handler for `run`, described by these JSON Schemas.

    `run` tests its arguments itself and raises AIIPError `aiip.invalid-input` for what it does not take.
    """
    given = {"title": title, "input": dict(input), "output": None if output is None else dict(output)}
    return ToolHandler(run, {name: value for name, value in given.items() if value is not None})
