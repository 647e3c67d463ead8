"""What tests of resource kinds and bridges share: a call as an endpoint makes it, the events of a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from onym.ai.endpoint.context import ANONYMOUS, Answer, Call, ResourceHandler
from onym.net.messages import Headers
from onym.uri.ai import AIURI

__all__ = ["EVENTS", "call", "collected", "events", "given", "run"]

T = TypeVar("T")
EVENTS = "text/event-stream"


def call(
    body: Any = None, *, raw: bytes | None = None, query: tuple[tuple[str, str], ...] = (), **more: Any
) -> Call:
    """A call with a JSON body."""
    octets = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    known = {
        "uri": AIURI.parse("ai://factory.test/x"),
        "caller": ANONYMOUS,
        "headers": Headers([]),
        "request_hash": "hash",
        "body": octets,
        "content_type": "application/json" if octets else None,
        "parameters": query,
    }
    return Call(**{**known, **more})


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def _given(handler: ResourceHandler, asked: Call) -> Any:
    found = await handler.invoke(asked)
    assert isinstance(found, Answer), "it streams"
    assert found.content_type == "application/json"
    return json.loads(found.body)


def given(handler: ResourceHandler, asked: Call) -> Any:
    """The JSON that a handler answers with."""
    return run(_given(handler, asked))


def events(handler: ResourceHandler, asked: Call) -> list[tuple[str, Any]]:
    """The events that it streams: names and data."""

    async def work() -> list[tuple[str, Any]]:
        found = await handler.invoke(asked)
        assert not isinstance(found, Answer), "it does not stream"
        return await collected(found)

    return run(work())


async def collected(found: AsyncIterator[Any]) -> list[tuple[str, Any]]:
    return [(each.event, json.loads(each.data)) async for each in found]
