"""MCP, both ways: a server's tools as `ai://` resources, and `ai://` resources as a server's tools."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from ai_support import PATIENCE, serve_asgi
from bridge_support import HandClient, peer
from kinds_support import call, given, run
from onym.ai.records import Description, Effects
from onym.bridges._sdk import normalize_input_schema
from onym.bridges.mcp import mcp_server, mcp_tool
from onym.errors import AIIPError, DeniedError, MissingExtraError, UsageError
from support import as_subtests

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
    monkeypatch.setattr("onym.bridges._sdk.MAX_RESPONSE", 2**20 + 10)
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
    with pytest.raises(UsageError) as caught:
        run(mcp_tool(server, name))
    assert (caught.value.code, caught.value.hint is not None) == ("usage.bad-argument", True)
    assert '"read"' in caught.value.message
    assert run(mcp_tool(server, name, effects="write"))


def test_a_tool_that_says_it_only_looks_stays_what_the_operator_called_it(server: MCPServer) -> None:
    assert run(mcp_tool(server, "look", effects=Effects.PHYSICAL))


def test_a_tool_that_is_not_there_is_said_at_once(server: MCPServer) -> None:
    with pytest.raises(UsageError, match=r"\bnope\b") as caught:
        run(mcp_tool(server, "nope"))
    assert caught.value.code == "usage.bad-argument"


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
        (MCPError(-32000, "closed"), "aiip.upstream-unreachable"),
        (MCPError(0, "a handler's own"), "aiip.upstream-failed"),
        (MCPError(-32600, "no elicitation"), "aiip.upstream-failed"),
        (ConnectionError(), "aiip.upstream-unreachable"),
        (ExceptionGroup("tasks", [ExceptionGroup("more", [TimeoutError()])]), "aiip.upstream-timeout"),
    ],
)
def test_the_sdks_errors_are_said_in_words_of_aiip(error: BaseException, code: str) -> None:
    handler = run(mcp_tool(Session(raising(error)), "tool-1"))
    with pytest.raises(AIIPError) as found:
        given(handler, call())
    assert found.value.code == code


def odd_server() -> Server[Any]:
    """Tools whose answers are not what they promise."""
    schema = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}
    told: dict[str, Any] = {
        "wrong": CallToolResult(content=[], structured_content={"x": "no"}),
        "missing": CallToolResult(content=[TextContent(text="hi")]),
        "unreadable": CallToolResult(content=[], structured_content={"x": 1}),
    }

    async def tools(*_: Any) -> ListToolsResult:
        outputs = dict.fromkeys(told, schema) | {"unreadable": {"type": "nonsense"}}
        return ListToolsResult(
            tools=[
                Tool(name=name, input_schema={"type": "object"}, output_schema=output)
                for name, output in outputs.items()
            ]
        )

    async def called(_: Any, params: Any) -> CallToolResult:
        found: CallToolResult = told[params.name]
        return found

    return Server("odd", on_list_tools=tools, on_call_tool=called)


@pytest.mark.parametrize("way", ["own", "shared", "http"])
@pytest.mark.parametrize("name", ["wrong", "missing"])
def test_an_answer_that_breaks_the_tools_schema_is_told_as_one_after_the_tool_ran(
    name: str, way: str
) -> None:
    made = odd_server()

    async def by(server: Any) -> AIIPError:
        handler = await mcp_tool(server, name)
        with pytest.raises(AIIPError) as found:
            await handler.invoke(call())
        return found.value

    async def shared() -> AIIPError:
        async with Client(made) as session:
            return await by(session)

    if way == "http":
        with serve_asgi(made.streamable_http_app(json_response=True, stateless_http=True)) as port:
            error = run(by(f"http://127.0.0.1:{port}/mcp"))
    else:
        error = run(shared() if way == "shared" else by(made))
    assert "schema" in error.message
    assert (error.code, error.retryable) == ("aiip.upstream-failed", False)


def test_a_schema_that_is_none_is_the_servers_fault_too() -> None:
    with pytest.raises(AIIPError, match="schema") as caught:
        given(run(mcp_tool(odd_server(), "unreadable")), call())
    assert (caught.value.code, caught.value.retryable) == ("aiip.upstream-failed", False)


def test_a_server_that_dies_in_a_call_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(
        "import os\nfrom mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('dies', log_level='CRITICAL')\n"
        "@server.tool()\ndef die() -> str:\n    os._exit(3)\nserver.run('stdio')\n"
    )
    parameters = StdioServerParameters(command=sys.executable, args=[str(tmp_path / "dies.py")])
    with pytest.raises(AIIPError) as found:
        given(run(mcp_tool(parameters, "die")), call())
    assert found.value.code == "aiip.upstream-unreachable"


def test_a_tool_that_takes_too_long_is_a_timeout_over_http_too(server: MCPServer) -> None:
    begun, over = threading.Event(), threading.Event()

    @server.tool()
    async def hang() -> str:
        """Does not end before the client has given up; the server waits for it when it closes."""
        begun.set()
        await asyncio.to_thread(over.wait, PATIENCE)
        return ""

    async def use(port: int, seconds: float) -> None:
        handler = await mcp_tool(f"http://127.0.0.1:{port}/mcp", "hang", timeout=seconds)
        await handler.invoke(call())

    with serve_asgi(server.streamable_http_app(json_response=True, stateless_http=True)) as port:
        for seconds in (1.0, 10.0, 100.0):  # a busy machine may not even open the session in the first
            with pytest.raises(AIIPError) as found:
                run(use(port, seconds))
            if begun.is_set():
                break
        over.set()
    assert begun.is_set()
    assert found.value.code == "aiip.upstream-timeout"


def test_a_call_that_is_cancelled_is_cancelled_at_the_server(server: MCPServer) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool()
    async def hang() -> str:
        """Never ends."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async def work() -> None:
        async with Client(server) as session:
            handler = await mcp_tool(session, "hang")
            task = asyncio.ensure_future(handler.invoke(call()))
            await begun.wait()
            task.cancel()
            await asyncio.wait_for(ended.wait(), PATIENCE)
            with pytest.raises(asyncio.CancelledError):
                await task

    run(work())


def test_a_client_that_cancels_ends_the_invocation() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    class Hanging(HandClient):
        async def invoke(self, *_: Any, **__: Any) -> Any:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    async def work() -> None:
        source = Hanging({RATES: Description(uri=RATES)})
        async with Client(await mcp_server(source, [RATES])) as session:
            task = asyncio.ensure_future(session.call_tool("tool_rates", {}))
            await begun.wait()
            task.cancel()
            await asyncio.wait_for(ended.wait(), PATIENCE)

    run(work())


def test_half_a_character_is_refused_before_a_tool_is_called(server: MCPServer) -> None:
    with pytest.raises(AIIPError) as found:
        given(run(mcp_tool(server, "greet")), call(raw=b'{"name":"\\uD83D"}'))
    assert found.value.code == "aiip.invalid-input"
    whole = given(run(mcp_tool(server, "greet")), call(raw=b'{"name":"\\ud83d\\ude00"}'))
    assert whole["content"][0]["text"] == "Hello \U0001f600"


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
    assert (rates.output_schema, rates.meta["aiip-output"]) == (None, {"type": "object"})
    assert "aiip-output" not in pay.meta


def test_a_result_brings_its_receipt() -> None:
    source = client()
    _, result = ask(source, "tool_rates", {"of": "EUR"})
    assert source.asked == [(RATES, {"of": "EUR"}, None)]
    assert result.structured_content == {"text": "yes"}
    assert result.content[0].text == '{"text":"yes"}'
    assert result.meta["aiip-receipt"] == "receipt.of.result"
    assert result.meta["aiip-uri"] == RATES


@as_subtests(
    ("kind", "body", "content", "structured"),
    [
        ("text/plain", b"hi", "hi", None),
        ("application/json", b"5", "5", None),
        ("application/x+json; charset=utf-8", b'{"a":1}', '{"a":1}', {"a": 1}),
        ("text/plain; charset=utf-8", "hé".encode(), "hé", None),
        ("text/plain; charset=iso-8859-1", b"h\xe9", "aOk=", None),
        ("text/plain", b"h\xe9", "aOk=", None),
        ("text/event-stream", b"data: 1\n\n", "data: 1\n\n", None),
        ("application/json", b'{"a":', '{"a":', None),
        ("application/json", b"[1]", "[1]", None),
        ("application/json", b"{}", "{}", {}),
        ("application/json", b"\xff", "/w==", None),
        ("application/json", b'{"a":' * 300 + b"1" + b"}" * 300, '{"a":' * 300 + "1" + "}" * 300, None),
        ("image/png", b"\x89", "iQ==", None),
        ("audio/wav", b"\x89", "iQ==", None),
        ("application/pdf", b"\x89", "iQ==", None),
        (None, b"\x89", "iQ==", None),
    ],
)
def test_every_media_type_has_a_form(kind: str | None, body: bytes, content: Any, structured: Any) -> None:
    source = HandClient({RATES: Description(uri=RATES)}, body=body, content_type=kind)
    _, result = ask(source, "tool_rates")
    (block,) = result.content
    shown = {"text": "text", "image": "data", "audio": "data"}.get(block.type)
    assert (getattr(block, shown) if shown else block.resource.blob) == content
    assert not result.is_error
    assert result.structured_content == structured


def test_an_image_is_one_and_nothing_is_nothing() -> None:
    _, result = ask(HandClient({RATES: Description(uri=RATES)}, b"\x89", "image/png; x=y"), "tool_rates")
    assert (result.content[0].type, result.content[0].mime_type) == ("image", "image/png")
    _, result = ask(HandClient({RATES: Description(uri=RATES)}, b"", None), "tool_rates")
    assert (result.content, result.is_error) == ([], False)
    assert result.meta["aiip-receipt"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@as_subtests(
    "schema",
    [
        {"type": "object", "properties": 5},
        {"type": "object", "properties": {"of": 5}},
        {"type": "object", "required": "of"},
        {"type": "object", "required": [5]},
        {"type": "object", "$schema": 5},
        {"type": "array"},
        {"type": ["string", "null"]},
        {"type": {}},
        {"type": "object", "not": json.loads('{"not":' * 300 + "{}" + "}" * 300)},
        None,
    ],
)
def test_a_schema_that_is_none_costs_no_other_tool_its_place(schema: Any, mode: Any) -> None:
    source = client()
    source.known["ai://evil.example/odd"] = Description(uri="ai://evil.example/odd", input=schema)

    async def work() -> Any:
        async with Client(await mcp_server(source, list(source.known)), mode=mode) as session:
            return (await session.list_tools()).tools

    rates, _, odd = run(work())
    assert rates.input_schema["properties"] == {"of": {"type": "string"}}
    assert odd.input_schema == {"type": "object"}


@as_subtests(
    ("schema", "told"),
    [
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"x": {}}}}},
            {"properties": {"x": {}}},
        ),
        (
            {
                "$ref": "#/definitions/a~1b%20c",
                "definitions": {"a/b c": {"$ref": "#/$defs/n"}},
                "$defs": {"n": {"type": "object", "required": ["x"]}},
            },
            {"required": ["x"]},
        ),
        ({"$ref": "#/$defs/a", "title": "mine", "$defs": {"a": {"title": "its"}}}, {"title": "mine"}),
        ({"properties": {"x": {}}}, {"properties": {"x": {}}}),
        ({"type": ["object", "null"], "required": ["x"]}, {"required": ["x"]}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {"$ref": "#/$defs/a"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "x:y"}}}, {"$ref": "#/$defs/a"}),
        ({"$ref": "#/$defs/a%zz", "$defs": {}}, {"$ref": "#/$defs/a%zz"}),
        ({"$ref": "#/$defs/a/b", "$defs": {"a": []}}, {"$ref": "#/$defs/a/b"}),
        ({"$ref": "https://evil.example/"}, {"$ref": "https://evil.example/"}),
    ],
)  # fmt: skip
def test_a_strangers_schema_is_told_from_its_root(schema: dict[str, Any], told: dict[str, Any]) -> None:
    found = normalize_input_schema(schema)
    assert found["type"] == "object"
    assert {name: found[name] for name in told} == told
    assert ("$ref" in found) == ("$ref" in told)


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
    with pytest.raises(UsageError, match=r"\bx\b") as caught:
        run(mcp_server(source, ["ai://a.example/x", "ai://b.example/x"]))
    assert (caught.value.code, caught.value.hint is not None) == ("usage.bad-argument", True)
    source.known |= {f"ai://{host}.example/x": Description(uri=f"ai://{host}.example/x") for host in "ab"}
    assert run(mcp_server(source, {"a": "ai://a.example/x", "b": "ai://b.example/x"}))
    for name in ("", "a b", "a/b", "ü", "x" * 129):
        with pytest.raises(UsageError) as caught:
            run(mcp_server(source, {name: "ai://a.example/x"}))
        assert caught.value.message.startswith(f"'{name[:9]}")
        assert caught.value.hint is not None
    with pytest.raises(UsageError, match=r"\b128\b") as caught:
        run(mcp_server(source, [f"ai://a.example/{number}" for number in range(200)]))
    assert caught.value.code == "usage.bad-argument"


def test_the_javascript_sdk_calls_a_resource_and_sees_its_receipt() -> None:
    source = client()
    made = run(mcp_server(source, list(source.known)))
    with serve_asgi(made.streamable_http_app(json_response=True, stateless_http=True)) as port:
        said = peer(
            "mcp_client.mjs", url=f"http://127.0.0.1:{port}/mcp", name="tool_rates", arguments={"of": "EUR"}
        )
    assert [tool["name"] for tool in said["tools"]] == ["tool_rates", "tool_pay"]
    assert said["result"]["structuredContent"] == {"text": "yes"}
    assert said["result"]["_meta"]["aiip-receipt"] == "receipt.of.result"


def test_without_the_sdk_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [module for module in sys.modules if module == "mcp" or module.startswith("mcp.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "mcp", None)
    for work in (mcp_tool("http://127.0.0.1:9/mcp", "x"), mcp_server(client(), [])):
        with pytest.raises(MissingExtraError) as caught:
            asyncio.run(work)
        assert caught.value.command == "pip install 'onym[mcp]'"
