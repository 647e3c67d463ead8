"""Functions of a real endpoint as tools of MCP and as agents of A2A, each called by the official SDK."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, get_text_parts, new_data_part, new_message, new_text_part
from a2a.types import Part, Role, SendMessageRequest
from mcp import Client

from ai_support import PATIENCE, ai_policy, authority_ca, key_store, names_resolver, serve_authority, trust
from onym.ai import AsyncAIClient, Endpoint
from onym.ai.settings import ResolverSettings
from onym.bridges.a2a import EXTENSION, a2a_app
from onym.bridges.mcp import mcp_server
from onym.net.config import NetConfig
from onym.net.transport import AsyncTransport

NAME = "factory.test"
ORDER = {"color": "red", "nodes": [{"v": 1, "next": {"v": 2, "next": None}}], "tag": 7}
VALUES = {
    "i": 1, "f": 1.5, "b": True, "s": "\u00e9", "n": None, "l": [1], "d": {"a": 1},
    "c": "blue", "o": ORDER, "u": "x", "opt": None, "lit": "b",
}  # fmt: skip
Use = Callable[[AsyncAIClient, str], Coroutine[Any, Any, Any]]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Node:
    v: int
    next: Node | None = None


@dataclass
class Order:
    color: Color
    nodes: list[Node]
    tag: str | int | None = None


def endpoint(authority: str, folder: Path) -> Endpoint:
    app = Endpoint(authority, keys=key_store(folder), store=folder / "keys.sqlite")

    @app.resource("/ask")
    def ask(prompt: str) -> dict[str, str]:
        return {"text": f"You: {prompt}"}

    @app.resource("/values")
    def values(
        i: int, f: float, b: bool, s: str, n: None, l: list[int], d: dict[str, int],  # noqa: E741
        c: Color, o: Order, u: int | str, opt: int | None = None, lit: Literal["a", "b"] = "a",
    ) -> dict[str, Any]:  # fmt: skip
        return dict(locals())

    @app.resource("/order")
    def order(o: Order) -> Order:
        return o

    fill(app)
    return app


def fill(app: Endpoint) -> None:
    """What has no object for a result, and what changes things."""

    @app.resource("/list")
    def several() -> list[int]:
        return [1, 2]

    @app.resource("/number")
    def number() -> int:
        return 2**53 + 1

    @app.resource("/nothing")
    def nothing() -> None: ...

    @app.resource("/picture", media_type="image/png")
    def picture() -> bytes:
        return b"\x89PNG"

    @app.resource("/stream")
    async def stream(n: int) -> AsyncIterator[Node]:
        for number in range(n):
            yield Node(number)

    @app.resource("/pay", effects="write")
    def pay(cents: int) -> dict[str, int]:
        return {"cents": cents}


@pytest.fixture(scope="module")
def use(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Use], Any]]:
    folder, ca = tmp_path_factory.mktemp("factory"), authority_ca()
    with serve_authority(lambda name: endpoint(name, folder), NAME, ca=ca) as (_, authority):
        policy = ai_policy([int(authority.rpartition(":")[2])])

        async def whole(work: Use) -> Any:
            wire = AsyncTransport(
                NetConfig(policy=policy, resolver=names_resolver({NAME: "127.0.0.1"}), tls=trust(ca, folder))
            )
            settings = ResolverSettings(timeout=PATIENCE)
            async with (
                wire,
                AsyncAIClient(settings, transport=wire, allow_effects=["read", "write"]) as client,
            ):
                return await work(client, authority)

        yield lambda work: asyncio.run(whole(work))


def tool(use: Any, path: str, arguments: dict[str, Any], mode: Any = "auto") -> tuple[Any, Any]:
    """The tool that a resource is, and what a call of it gives."""

    async def work(client: AsyncAIClient, authority: str) -> tuple[Any, Any]:
        made = await mcp_server(client, {"it": f"ai://{authority}/{path}"})
        async with Client(made, mode=mode) as session:
            (found,) = (await session.list_tools()).tools
            return found, await session.call_tool("it", arguments)

    found: tuple[Any, Any] = use(work)
    return found


def agent(use: Any, path: str, *parts: Part, message_id: str = "msg 1", times: int = 1) -> Any:
    """The reply of the agent that a resource is."""

    async def work(client: AsyncAIClient, authority: str) -> Any:
        app = await a2a_app(client, f"ai://{authority}/{path}", url="http://a.example/")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as http:
            made = await ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create_from_url(
                "http://a.example"
            )
            for _ in range(times):
                message = new_message(list(parts), role=Role.ROLE_USER)
                message.message_id = message_id
                (found,) = [event async for event in made.send_message(SendMessageRequest(message=message))]
            return found.message if found.HasField("message") else found.task

    return use(work)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_functions_parameters_are_its_tools(use: Any, mode: str) -> None:
    found, result = tool(use, "ask", {"prompt": "hi"}, mode)
    assert found.input_schema["properties"] == {"prompt": {"type": "string"}}
    assert found.input_schema["required"] == ["prompt"]
    assert "$ref" not in found.input_schema
    assert result.structured_content == {"text": "You: hi"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_every_type_goes_through_mcp_and_back(use: Any, mode: str) -> None:
    found, result = tool(use, "values", VALUES, mode)
    assert set(found.input_schema["properties"]) == set(VALUES)
    assert set(found.input_schema["$defs"]) == {"Color", "Node", "Order"}
    assert result.structured_content == VALUES
    found, result = tool(use, "order", {"o": ORDER}, mode)
    assert found.meta["aiip-output"]["properties"].keys() == ORDER.keys()
    assert result.structured_content == ORDER


@pytest.mark.parametrize(
    ("path", "text"), [("list", "[1,2]"), ("number", "9007199254740993"), ("nothing", None)]
)
def test_what_is_no_object_is_text(use: Any, path: str, text: str | None) -> None:
    _, result = tool(use, path, {})
    assert [block.text for block in result.content] == ([] if text is None else [text])
    assert (result.structured_content, result.is_error) == (None, False)


def test_an_image_is_an_image(use: Any) -> None:
    _, result = tool(use, "picture", {})
    assert (result.content[0].type, result.content[0].mime_type) == ("image", "image/png")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_stream_is_the_text_of_its_events(use: Any, mode: str) -> None:
    found, result = tool(use, "stream", {"n": 2}, mode)
    assert found.output_schema is None
    assert 'data: {"v":1,"next":null}' in result.content[0].text


def test_input_that_does_not_fit_is_a_tool_error_that_names_the_member(use: Any) -> None:
    _, result = tool(use, "order", {"o": {"color": "green", "nodes": []}})
    assert result.is_error
    assert "$.o.color" in result.content[0].text
    assert result.meta["aiip-code"] == "aiip.invalid-input"


def test_a_text_is_the_parameter_that_the_resource_has_for_it(use: Any) -> None:
    reply = agent(use, "ask", new_text_part("hello"))
    assert get_text_parts(reply.parts) == ["You: hello"]


def test_every_type_goes_through_a2a_and_back(use: Any) -> None:
    assert get_data_parts(agent(use, "values", new_data_part(VALUES)).parts) == [VALUES]
    assert get_data_parts(agent(use, "order", new_data_part({"o": ORDER})).parts) == [ORDER]


def test_an_integer_beyond_doubles_is_refused_by_one_side_and_whole_from_the_other(use: Any) -> None:
    failed = agent(use, "stream", new_data_part({"n": 2**53}))
    assert failed.metadata[EXTENSION]["aiip-code"] == "aiip.invalid-input"
    assert "$.n" in failed.status.message.parts[0].text
    (part,) = agent(use, "number", new_data_part({})).parts
    assert (part.raw, part.media_type) == (b"9007199254740993", "application/json")


def test_the_same_message_is_one_payment(use: Any) -> None:
    part = new_data_part({"cents": 5})
    reply = agent(use, "pay", part, message_id='pay "1"', times=2)
    assert get_data_parts(reply.parts) == [{"cents": 5}]
    failed = agent(use, "pay", new_data_part({"cents": 6}), message_id='pay "1"')
    assert failed.metadata[EXTENSION]["aiip-code"] == "aiip.idempotency-mismatch"
