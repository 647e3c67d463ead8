"""MCP, both ways: a tool of an MCP server as an `ai://` resource, and `ai://` resources as an MCP server.

    app.add("/tool/add", await mcp_tool("https://tools.example/mcp", "add"))
    server = await mcp_server(AsyncAIClient(), ["ai://bank.example/tool/rates"])

The official SDK speaks MCP, over its own connections: URLs are the operator's, and Onym's network policy does
not hold for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from onym.ai.endpoint.context import Call
from onym.ai.endpoint.kinds.tool import ToolHandler, tool
from onym.ai.records import Effects
from onym.bridges._ai import RECEIPT, URI, Invoker, is_json, named, plain
from onym.bridges._bounded import MOST_OCTETS, bounds
from onym.bridges._extra import needs
from onym.errors import AIIPError, OnymError, UsageError

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolResult, Tool

    from onym.ai.records import Description, Result
    from onym.uri.ai import AIURI

__all__ = ["mcp_server", "mcp_tool"]

_TIMEOUT: Final = 60.0
#: pages of a list of tools that are read
_MOST_PAGES: Final = 50
_CODE: Final = "aiip-code"


async def mcp_tool(
    server: Any,
    name: str,
    *,
    effects: Effects | str = Effects.READ,
    title: str | None = None,
    timeout: float = _TIMEOUT,  # noqa: ASYNC109 - for each call of the tool, not for this
) -> ToolHandler:
    """A resource handler for the tool `name` of an MCP server. The server is asked for its schemas now.

    `server` is an open `mcp.Client`, which all calls share, or what one connects to (a URL, stdio
    parameters, a server in this process): then each call has a connection of its own.
    `effects` are the operator's word, to be given to `Endpoint.add` as well. The server's annotations are a
    stranger's hints: one that says the tool changes things is believed, one that says it does not is not.

    Raises MissingExtraError, UsageError for an unknown tool or for `effects` that are less than the server
    admits, AIIPError where the server cannot be asked.
    """
    with needs("mcp", "mcp"):
        import mcp  # noqa: F401 - so that one that is missing is said now
    async with _session(server, timeout) as session:
        found = await _find(session, name)
    if found is None:
        raise UsageError(f"the MCP server has no tool {plain(name, 60)}", code="usage.bad-argument")
    _check_effects(found, Effects(effects))

    async def run(arguments: dict[str, Any], call: Call) -> Any:
        async with _session(server, timeout) as session:
            found = await session.call_tool(name, arguments, read_timeout_seconds=timeout)
        return _given(found)

    return tool(
        run,
        input=found.input_schema,
        output=found.output_schema,
        title=title or plain(found.title or found.description or name, 120),
    )


async def mcp_server(
    client: Invoker, uris: Mapping[str, str] | Iterable[str], *, name: str = "onym"
) -> Server[Any]:
    """An MCP server whose tools are these resources; each is described now, and invoked when it is called.

    `uris` are ai URIs, or a mapping of tool names to them. A result carries its receipt in `_meta` as
    "aiip-receipt", and "aiip-uri"; what a resource refuses is a tool error with its code. The client verifies
    everything, and what effects it may cause is its `allow_effects`.

    Raises MissingExtraError, UsageError, AIURIError, and what `AsyncAIClient.describe` raises.
    """
    with needs("mcp", "mcp"):
        from mcp.server import Server
        from mcp.shared.exceptions import MCPError
        from mcp.types import INVALID_PARAMS, ListToolsResult
    known = named(uris)
    tools = [_tool(label, await client.describe(uri)) for label, uri in known.items()]

    async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def on_call_tool(context: Any, params: Any) -> CallToolResult:
        if params.name not in known:
            raise MCPError(INVALID_PARAMS, "there is no such tool")
        return await _called(client, known[params.name], params.arguments or {})

    return Server(name, on_list_tools=on_list_tools, on_call_tool=on_call_tool)


@asynccontextmanager
async def _session(server: Any, timeout: float) -> AsyncIterator[Any]:  # noqa: ASYNC109
    """Something open that has tools; what goes wrong with it is said in words of AIIP."""
    import anyio
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import MCPError

    try:
        if hasattr(server, "call_tool") and hasattr(server, "list_tools") and not _is_server(server):
            yield server
        elif isinstance(server, str):
            async with (
                _http(timeout) as http,
                Client(
                    streamable_http_client(server, http_client=http), read_timeout_seconds=timeout
                ) as client,
            ):
                yield client
        else:
            async with Client(server, read_timeout_seconds=timeout) as client:
                yield client
    except (TimeoutError, MCPError, OSError, anyio.ClosedResourceError, ExceptionGroup) as error:
        raise _broken(_inner(error)) from error


def _http(timeout: float) -> Any:
    """An HTTP client of the SDK's kind: no redirects, no environment, no answer without end."""
    import httpx2

    return httpx2.AsyncClient(
        timeout=timeout, follow_redirects=False, trust_env=False, **bounds(httpx2, MOST_OCTETS)
    )


def _is_server(server: Any) -> bool:
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer

    return isinstance(server, Server | MCPServer)


async def _find(session: Any, name: str) -> Tool | None:
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await session.list_tools(cursor=cursor)
        for each in page.tools:
            if each.name == name:
                return each  # type: ignore[no-any-return]
        cursor = page.next_cursor
        if cursor is None:
            break
    return None


def _check_effects(found: Tool, effects: Effects) -> None:
    hints = found.annotations
    admits = hints is not None and (hints.read_only_hint is False or hints.destructive_hint is True)
    if admits and effects is Effects.READ:
        raise UsageError(
            "the MCP server says that this tool changes things: it is no resource with the effects read",
            code="usage.bad-argument",
            hint='give effects="write", "financial" or "physical"',
        )


def _given(found: CallToolResult) -> Any:
    """The tool's result: what is structured, else its content as MCP writes it."""
    if found.is_error:
        said = " ".join(each.text for each in found.content if each.type == "text")
        raise AIIPError(f"the tool failed: {plain(said)}", code="aiip.upstream-failed")
    if found.structured_content is not None:
        return found.structured_content
    content = [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in found.content]
    return {"content": content}


def _inner(error: BaseException) -> BaseException:
    """What went wrong, out of the groups in which tasks hand it on."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _broken(error: BaseException) -> AIIPError:
    from mcp.shared.exceptions import MCPError
    from mcp.types import INVALID_PARAMS, REQUEST_TIMEOUT

    code = error.code if isinstance(error, MCPError) else None
    if code == INVALID_PARAMS:
        return AIIPError("the tool does not take this input", code="aiip.invalid-input")
    if isinstance(error, TimeoutError) or code == REQUEST_TIMEOUT:
        return AIIPError("the tool did not answer in time", code="aiip.upstream-timeout", retryable=True)
    return AIIPError("the tool's server does not answer", code="aiip.upstream-unreachable", retryable=True)


def _tool(label: str, found: Description) -> Tool:
    from mcp.types import Tool, ToolAnnotations

    return Tool(
        name=label,
        title=None if found.title is None else plain(found.title, 120),
        description=f"{plain(found.title or label, 300)} ({found.uri}; effects: {found.effects})",
        input_schema=_object(found.input) or {"type": "object"},
        output_schema=_object(found.output),
        annotations=ToolAnnotations(
            read_only_hint=found.effects is Effects.READ,
            destructive_hint=found.effects in {Effects.FINANCIAL, Effects.PHYSICAL},
        ),
    )


def _object(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The schema, if its root is an object: others have no place in MCP before 2026-07-28."""
    return dict(schema) if schema is not None and schema.get("type") == "object" else None


async def _called(client: Invoker, uri: AIURI, arguments: Mapping[str, Any]) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    try:
        found = await client.invoke(uri, arguments)
    except OnymError as error:
        said = TextContent(text=plain(error.message))
        return CallToolResult(content=[said], is_error=True, _meta={_CODE: error.code, URI: str(uri)})
    structured = _structured(found)
    return CallToolResult(
        content=[_content(found, uri)],
        structured_content=structured,
        _meta={RECEIPT: found.token, URI: str(uri)},
    )


def _structured(found: Result) -> dict[str, Any] | None:
    value = found.json() if is_json(found.content_type) and found.body else None
    return value if isinstance(value, dict) else None


def _content(found: Result, uri: AIURI) -> Any:
    from base64 import b64encode

    from mcp.types import BlobResourceContents, EmbeddedResource, TextContent

    kind = found.content_type or "application/octet-stream"
    if is_json(kind) or kind.startswith("text/"):
        return TextContent(text=found.body.decode("utf-8", "replace"))
    blob = BlobResourceContents(uri=str(uri), mime_type=kind, blob=b64encode(found.body).decode("ascii"))
    return EmbeddedResource(resource=blob)
