"""MCP, both ways: a tool of an MCP server as an `ai://` resource, and `ai://` resources as an MCP server.

    app.add("/tool/add", await mcp_tool("https://tools.example/mcp", "add"))
    server = await mcp_server(AsyncAIClient(), ["ai://bank.example/tool/rates"])

The official SDK speaks MCP, over its own connections: URLs are the operator's, and Onym's network policy does
not hold for them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from onym.ai.endpoint.context import Call
from onym.ai.endpoint.kinds.tool import ToolHandler, tool
from onym.ai.records import Effects
from onym.bridges._ai import plain
from onym.bridges._bounded import MOST_OCTETS, bounds
from onym.bridges._extra import needs
from onym.bridges._mcp_server import mcp_server
from onym.errors import AIIPError, UsageError

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool

__all__ = ["mcp_server", "mcp_tool"]

_TIMEOUT: Final = 60.0
#: seconds
_MARGIN: Final = 5.0
#: pages of a list of tools that are read
_MOST_PAGES: Final = 50


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
            found = await _asked(session, name, arguments, timeout)
        return _given(found)

    return tool(
        run,
        input=found.input_schema,
        output=found.output_schema,
        title=title or plain(found.title or found.description or name, 120),
    )


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
        inner = _inner(error)
        raise inner if isinstance(inner, AIIPError) else _broken(inner) from error


def _http(timeout: float) -> Any:
    """An HTTP client of the SDK's kind: no redirects, no environment, no answer without end.

    Its patience outlasts the SDK's, which knows that it was a timeout.
    """
    import httpx2

    return httpx2.AsyncClient(
        timeout=timeout + _MARGIN, follow_redirects=False, trust_env=False, **bounds(httpx2, MOST_OCTETS)
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


async def _asked(session: Any, name: str, arguments: dict[str, Any], seconds: float) -> Any:
    """The server's answer. One that the SDK does not take is no silence: the tool was called."""
    from pydantic import ValidationError

    try:
        return await session.call_tool(name, arguments, read_timeout_seconds=seconds)
    except (RuntimeError, ValidationError) as error:
        raise AIIPError(
            "the tool was called, and its server's answer is not what its schema or MCP has",
            code="aiip.upstream-failed",
        ) from error


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
    from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT

    code = error.code if isinstance(error, MCPError) else None
    if code == INVALID_PARAMS:
        return AIIPError("the tool does not take this input, or is no more", code="aiip.invalid-input")
    if isinstance(error, TimeoutError) or code == REQUEST_TIMEOUT:
        return AIIPError("the tool did not answer in time", code="aiip.upstream-timeout", retryable=True)
    # the SDK writes INTERNAL_ERROR itself where HTTP fails
    if code not in {None, CONNECTION_CLOSED, INTERNAL_ERROR}:
        return AIIPError("the tool's server answers with an error", code="aiip.upstream-failed")
    return AIIPError("the tool's server does not answer", code="aiip.upstream-unreachable", retryable=True)
