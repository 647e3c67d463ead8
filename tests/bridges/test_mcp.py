"""MCP, both ways: a server's tools as `ai://` resources, and `ai://` resources as a server's tools."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import ToolAnnotations

from ai_support import serve_asgi
from bridge_support import HandClient, peer
from kinds_support import call, given, run
from onym.ai.records import Description, Effects
from onym.bridges.mcp import mcp_server, mcp_tool
from onym.errors import AIIPError, DeniedError, MissingExtraError, UsageError

RATES = "ai://bank.example/tool/rates"


@pytest.fixture
def server() -> MCPServer:
    found = MCPServer("tools", log_level="CRITICAL")

    @found.tool(title="Sum")
    def add(a: int, b: int) -> dict[str, int]:
        """Adds two numbers."""
        return {"sum": a + b}

    @found.tool(structured_output=False)
    def greet(name: str) -> str:
        """Greets."""
        return f"Hello {name}"

    @found.tool()
    def fail() -> str:
        """Fails."""
        raise ValueError("sk-secret")

    @found.tool(annotations=ToolAnnotations(read_only_hint=False))
    def erase() -> str:
        """Erases."""
        return "gone"

    @found.tool(annotations=ToolAnnotations(destructive_hint=True))
    def burn() -> str:
        """Burns."""
        return "gone"

    @found.tool(annotations=ToolAnnotations(read_only_hint=True))
    def look() -> str:
        """Says that it only looks."""
        return "seen"

    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    return found


def test_a_tool_is_described_as_its_server_describes_it(server: MCPServer) -> None:
    known = run(mcp_tool(server, "add")).describe()
    assert known["title"] == "Sum"
    assert known["input"]["required"] == ["a", "b"]
    assert run(mcp_tool(server, "add", title="Mine")).describe()["title"] == "Mine"


def test_a_structured_result_is_the_answer_and_other_content_is_as_mcp_writes_it(server: MCPServer) -> None:
    async def make(name: str) -> Any:
        return await mcp_tool(server, name)

    assert given(run(make("add")), call({"a": 1, "b": 2})) == {"sum": 3}
    assert given(run(make("greet")), call({"name": "you"})) == {
        "content": [{"type": "text", "text": "Hello you"}]
    }


def test_an_open_session_is_shared_by_all_calls(server: MCPServer) -> None:
    async def work() -> None:
        async with Client(server) as client:
            handler = await mcp_tool(client, "add")
            for _ in range(2):
                found: Any = await handler.invoke(call({"a": 1, "b": 2}))
                assert found.body == b'{"sum":3}'

    run(work())


def test_the_same_over_http(server: MCPServer) -> None:
    with serve_asgi(server.streamable_http_app(json_response=True, stateless_http=True)) as port:
        handler = run(mcp_tool(f"http://127.0.0.1:{port}/mcp", "add"))
        assert given(handler, call({"a": 2, "b": 2})) == {"sum": 4}


@pytest.mark.parametrize("coded", [True, False])
def test_a_server_whose_answer_has_no_end_is_not_listened_to(
    server: MCPServer, coded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 600 KiB of gzip were 1.9 GB of memory
    monkeypatch.setattr("onym.bridges.mcp.MOST_OCTETS", 2**20 + 10)
    inner = server.streamable_http_app(json_response=True, stateless_http=True)

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        first = [await receive()] if scope["type"] == "http" else []
        if not (first and b"tools/call" in first[0].get("body", b"")):
            await inner(scope, _behind(first, receive), send)
            return
        headers = [(b"content-type", b"application/json"), *([(b"content-encoding", b"gzip")] * coded)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        part = gzip.compress(b" " * 2**20) if coded else b" " * 2**20
        for _ in range(20):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with serve_asgi(endless) as port:
        handler = run(mcp_tool(f"http://127.0.0.1:{port}/mcp", "add"))
        with pytest.raises(AIIPError) as caught:
            run(handler.invoke(call({"a": 1, "b": 2})))  # type: ignore[arg-type]
    assert caught.value.code == "aiip.upstream-unreachable"


def _behind(first: list[Any], receive: Any) -> Any:
    async def again() -> Any:
        return first.pop() if first else await receive()

    return again


@pytest.mark.parametrize("name", ["erase", "burn"])
def test_a_tool_that_says_it_changes_things_is_no_reading_resource(server: MCPServer, name: str) -> None:
    with pytest.raises(UsageError, match="changes things"):
        run(mcp_tool(server, name))
    assert run(mcp_tool(server, name, effects="write"))


def test_a_tool_that_says_it_only_looks_stays_what_the_operator_called_it(server: MCPServer) -> None:
    assert run(mcp_tool(server, "look", effects=Effects.PHYSICAL))


def test_a_tool_that_is_not_there_is_said_at_once(server: MCPServer) -> None:
    with pytest.raises(UsageError, match="has no tool nope"):
        run(mcp_tool(server, "nope"))


def test_what_goes_wrong_in_a_tool_is_told_without_its_exception(server: MCPServer) -> None:
    with pytest.raises(AIIPError) as found:
        given(run(mcp_tool(server, "fail")), call())
    assert found.value.code == "aiip.upstream-failed"
    assert "sk-secret" not in str(found.value)


class Session:
    """An open session that answers as a test wants."""

    def __init__(self, answer: Callable[[], Any], pages: int = 1) -> None:
        self._answer = answer
        self.pages = pages

    async def list_tools(self, cursor: str | None = None) -> Any:
        from mcp.types import ListToolsResult, Tool

        page = int(cursor or 0) + 1
        more = str(page) if page < self.pages else None
        tools = [Tool(name=f"tool-{page}", input_schema={"type": "object"})]
        return ListToolsResult(tools=tools, next_cursor=more)

    async def call_tool(self, *_: Any, **__: Any) -> Any:
        return self._answer()


def raising(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MCPError(-32602, "bad"), "aiip.invalid-input"),
        (MCPError(-32603, "bad"), "aiip.upstream-unreachable"),
        (MCPError(-32001, "late"), "aiip.upstream-timeout"),
        (TimeoutError(), "aiip.upstream-timeout"),
        (ConnectionError(), "aiip.upstream-unreachable"),
        (ExceptionGroup("tasks", [ExceptionGroup("more", [TimeoutError()])]), "aiip.upstream-timeout"),
    ],
)
def test_the_sdks_errors_are_said_in_words_of_aiip(error: BaseException, code: str) -> None:
    handler = run(mcp_tool(Session(raising(error)), "tool-1"))
    with pytest.raises(AIIPError) as found:
        given(handler, call())
    assert found.value.code == code


def test_a_tool_is_looked_for_on_all_pages_and_not_for_ever() -> None:
    assert run(mcp_tool(Session(dict, pages=3), "tool-3")).describe()["title"] == "tool-3"
    with pytest.raises(UsageError):
        run(mcp_tool(Session(dict, pages=10**6), "tool-51"))


def test_a_server_that_does_not_answer_is_said_at_once() -> None:
    with pytest.raises(AIIPError) as found:
        run(mcp_tool("http://127.0.0.1:9/mcp", "add"))
    assert found.value.code == "aiip.upstream-unreachable"


# ai:// resources as tools


def client() -> HandClient:
    return HandClient(
        {
            RATES: Description(
                uri=RATES,
                title="Rates\x1b[31m of exchange",
                input={"type": "object", "properties": {"of": {"type": "string"}}},
                output={"type": "object"},
            ),
            "ai://bank.example/tool/pay": Description(
                uri="ai://bank.example/tool/pay", effects=Effects.FINANCIAL, input={"type": "string"}
            ),
        }
    )


def ask(source: HandClient, name: str, arguments: dict[str, Any] | None = None) -> tuple[list[Any], Any]:
    async def work() -> tuple[list[Any], Any]:
        made = await mcp_server(source, list(source.known))
        async with Client(made) as session:
            tools = (await session.list_tools()).tools
            return tools, await session.call_tool(name, arguments)

    return run(work())


def test_resources_are_tools_by_their_paths() -> None:
    tools, _ = ask(client(), "tool_rates")
    rates, pay = tools
    assert (rates.name, pay.name) == ("tool_rates", "tool_pay")
    assert "\x1b" not in rates.title + rates.description
    assert RATES in rates.description
    assert rates.input_schema["properties"] == {"of": {"type": "string"}}
    assert pay.input_schema == {"type": "object"}
    assert (rates.annotations.read_only_hint, rates.annotations.destructive_hint) == (True, False)
    assert (pay.annotations.read_only_hint, pay.annotations.destructive_hint) == (False, True)


def test_a_result_brings_its_receipt() -> None:
    source = client()
    _, result = ask(source, "tool_rates", {"of": "EUR"})
    assert source.asked == [(RATES, {"of": "EUR"}, None)]
    assert result.structured_content == {"text": "yes"}
    assert result.content[0].text == '{"text":"yes"}'
    assert result.meta["aiip-receipt"] == "receipt.of.result"
    assert result.meta["aiip-uri"] == RATES


@pytest.mark.parametrize(
    ("kind", "body", "content", "structured"),
    [
        ("text/plain", b"hi", "hi", None),
        ("application/json", b"5", "5", None),
        ("application/x+json; charset=utf-8", b'{"a":1}', '{"a":1}', {"a": 1}),
        (None, b"", None, None),
        ("image/png", b"\x89", "iQ==", None),
    ],
)
def test_every_media_type_has_a_form(kind: str | None, body: bytes, content: Any, structured: Any) -> None:
    source = HandClient({RATES: Description(uri=RATES)}, body=body, content_type=kind)
    _, result = ask(source, "tool_rates")
    block = result.content[0]
    assert (block.text if block.type == "text" else block.resource.blob or None) == content
    assert result.structured_content == structured


def test_what_a_resource_refuses_is_a_tool_error_with_its_code() -> None:
    source = client()
    source.error = DeniedError("the policy says no", target=RATES)
    _, result = ask(source, "tool_rates")
    assert result.is_error
    assert result.content[0].text == "the policy says no"
    assert result.meta["aiip-code"] == "aiip.policy-denied"
    assert "aiip-receipt" not in result.meta


def test_an_unknown_tool_is_an_error_of_the_protocol() -> None:
    with pytest.raises((MCPError, ExceptionGroup)):
        ask(client(), "nope")


def test_two_resources_of_one_name_need_names() -> None:
    source = client()
    with pytest.raises(UsageError, match="mapping of names"):
        run(mcp_server(source, ["ai://a.example/x", "ai://b.example/x"]))
    source.known |= {f"ai://{host}.example/x": Description(uri=f"ai://{host}.example/x") for host in "ab"}
    assert run(mcp_server(source, {"a": "ai://a.example/x", "b": "ai://b.example/x"}))
    with pytest.raises(UsageError, match="more than"):
        run(mcp_server(source, [f"ai://a.example/{number}" for number in range(200)]))


def test_the_javascript_sdk_calls_a_resource_and_sees_its_receipt() -> None:
    source = client()
    made = run(mcp_server(source, list(source.known)))
    with serve_asgi(made.streamable_http_app(json_response=True, stateless_http=True)) as port:
        said = peer(
            "mcp_client.mjs", url=f"http://127.0.0.1:{port}/mcp", name="tool_rates", arguments={"of": "EUR"}
        )
    assert [each["name"] for each in said["tools"]] == ["tool_rates", "tool_pay"]
    assert said["result"]["structuredContent"] == {"text": "yes"}
    assert said["result"]["_meta"]["aiip-receipt"] == "receipt.of.result"


def test_without_the_sdk_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [each for each in sys.modules if each == "mcp" or each.startswith("mcp.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "mcp", None)
    for work in (mcp_tool("http://127.0.0.1:9/mcp", "x"), mcp_server(client(), [])):
        with pytest.raises(MissingExtraError, match=r"onym\[mcp\]"):
            asyncio.run(work)
