"""MCP in both directions: an MCP tool as an `ai://` resource, and `ai://` resources as an MCP server.

    app.add("/tool/add", await mcp_tool("https://tools.example/mcp", "add"))
    server = await mcp_server(AsyncAIClient(), ["ai://bank.example/tool/rates"])

The official SDK uses its own connections: the operator chooses the URLs, and Onym's network policy does not
apply to them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from onym import __version__
from onym.ai.endpoint.context import Call
from onym.ai.endpoint.kinds import ToolHandler, tool
from onym.ai.records import Effects
from onym.bridges import _sdk as sdk
from onym.bridges._mcp_calls import ToolCall, ToolTasks, declares_tasks, make_missing_tasks_error, serve_tasks
from onym.bridges.approvals import PermissionPages
from onym.errors import AIIPError, OnymError, UsageError

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolResult, Tool

    from onym.ai.records import Description
    from onym.bridges.approvals import Approvals

__all__ = ["mcp_server", "mcp_tool"]

#: in the metadata of a tool: the schema of its resource's output
_OUTPUT: Final = "aiip-output"
#: milliseconds for which clients may use the list of tools again
_LIST_TTL: Final = 300_000


async def mcp_server(
    client: sdk.Invoker,
    uris: Mapping[str, str] | Iterable[str],
    *,
    name: str = "onym",
    approvals: Approvals | None = None,
    approval_page: Callable[[OnymError], str | None] | None = None,
    state_keys: Sequence[bytes] | None = None,
    task_only: Collection[str] = (),
) -> Server[Any]:
    """Return an MCP server whose tools are these resources. They are described now, and invoked by calls.

    `uris` are ai URIs, or a mapping of tool names to them. A result has its receipt in `_meta` as
    "aiip-receipt", and the URI as "aiip-uri". If a resource rejects a call, the result is a tool error with
    its code. The client verifies every result; its `allow_effects` limits the effects.

    A client that declares elicitation is asked for input: by a form for required members that a call leaves
    out and whose schema has `"x-aiip-ask": true` (never for financial or physical effects), and by a link, if
    the endpoint wants an approval or a sign-in. With `approvals`, a call that people must approve is brought
    to them, and the link is that of their page; when the client sends the call again, the bridge adds their
    evidence. For other errors, and without `approvals`, the link is what `approval_page` returns for the
    error. An approval is never asked for by a form, and what the client returns is never taken as one.

    After the input the client sends the call again, with a sealed state. `state_keys` (32 bytes or more, the
    first one seals) let several processes share it; by default only this process can open it.

    A resource with long tasks runs as a task of MCP for clients that declare its extension for tasks; other
    clients wait for the result. `task_only` are names of tools that take too long for that: without the
    extension, a call is refused before anything is sent to the endpoint.

    The schema of a resource's output is in its tool's `_meta` as "aiip-output", not in `outputSchema`:
    clients would reject a verified result that differs, such as the events of a stream.

    Raises MissingExtraError, UsageError, AIURIError and the errors of `AsyncAIClient.describe`.
    """
    with sdk.require_extra("mcp", "mcp"):
        from mcp.server import Server
        from mcp.server.caching import CacheHint
        from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
        from mcp.shared.exceptions import MCPError
        from mcp.types import INVALID_PARAMS, ListToolsResult
    known = sdk.name_resources(uris)
    described = {label: await client.describe(uri) for label, uri in known.items()}
    tools = [_build_tool(label, description) for label, description in described.items()]
    security = (
        RequestStateSecurity.ephemeral() if state_keys is None else RequestStateSecurity(keys=state_keys)
    )
    effects = {str(uri.without_query): described[label].effects for label, uri in known.items()}
    tasks = ToolTasks(client, effects, security.codec) if isinstance(client, sdk.TaskInvoker) else None
    for label in task_only:
        if tasks is None or label not in described or not described[label].asynchronous:
            raise UsageError(
                f"task_only names {sdk.sanitize_text(label, 60)!r}, which cannot run as a task",
                code="usage.bad-argument",
                hint="name tools of this server whose resources have task=True",
            )

    async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def on_call_tool(context: Any, params: Any) -> Any:
        if params.name not in known:
            raise MCPError(INVALID_PARAMS, f"no tool has the name {sdk.sanitize_text(params.name, 60)}")
        if params.name in task_only and not declares_tasks(context):
            raise make_missing_tasks_error()
        pages = PermissionPages(approvals, approval_page)
        call = ToolCall(client, known[params.name], described[params.name], pages, context, params)
        return await call.run(tasks)

    server = Server(
        name,
        version=__version__,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
        cache_hints={
            "tools/list": CacheHint(ttl_ms=_LIST_TTL),
            "server/discover": CacheHint(ttl_ms=_LIST_TTL),
        },
    )
    server.middleware.append(RequestStateBoundary(security, default_audience=name))
    if tasks is not None:
        serve_tasks(server, tasks)
    return server


def _build_tool(label: str, description: Description) -> Tool:
    from mcp.types import Tool, ToolAnnotations

    title, schema = description.title, description.output
    output = {} if schema is None or not sdk.is_shallow(schema) else {_OUTPUT: dict(schema)}
    shown = sdk.sanitize_text(title or label, 300)
    changes = description.effects is not Effects.READ
    return Tool(
        name=label,
        title=None if title is None else sdk.sanitize_text(title, 120),
        description=f"{shown} ({description.uri}; effects: {description.effects})",
        input_schema=sdk.normalize_input_schema(description.input),
        # a write destroys data unless its author says that it does not
        annotations=ToolAnnotations(
            read_only_hint=not changes, destructive_hint=changes and not description.reversible
        ),
        _meta={sdk.URI_KEY: description.uri, **output},
    )


_TIMEOUT: Final = 60.0
#: seconds that the HTTP client waits longer than the SDK
_MARGIN: Final = 5.0
#: pages of a tool list that are read
_MOST_PAGES: Final = 50


async def mcp_tool(
    server: Any,
    name: str,
    *,
    effects: Effects | str = Effects.READ,
    title: str | None = None,
    timeout: float = _TIMEOUT,  # noqa: ASYNC109 - of each call of the tool, not of this function
) -> ToolHandler:
    """Return a resource handler for the tool `name` of an MCP server. The server's schemas are read now.

    `server` is an open `mcp.Client`, which all calls share, or an argument to connect with (a URL, stdio
    parameters, a server in this process); then each call has its own connection. `effects` is the operator's
    decision, and must also be passed to `Endpoint.add`. Annotations of the server are not trusted if they
    promise safety; if one says that the tool changes data, `effects` must be "write" or stronger.

    Raises MissingExtraError, UsageError for an unknown tool or for `effects` below the server's annotations,
    and AIIPError if the server does not answer.
    """
    with sdk.require_extra("mcp", "mcp"):
        import mcp  # noqa: F401 - a missing package is reported now
    async with _open_session(server, timeout) as session:
        remote_tool = await _find_tool(session, name)
    if remote_tool is None:
        raise UsageError(
            f"the MCP server has no tool {sdk.sanitize_text(name, 60)}", code="usage.bad-argument"
        )
    _require_effects(remote_tool, Effects(effects))

    async def run(arguments: dict[str, Any], call: Call) -> Any:
        async with _open_session(server, timeout) as session:
            result = await _call_tool(session, name, arguments, timeout)
        return _decode_result(result)

    return tool(
        run,
        input=remote_tool.input_schema,
        output=remote_tool.output_schema,
        title=title or sdk.sanitize_text(remote_tool.title or remote_tool.description or name, 120),
    )


@asynccontextmanager
async def _open_session(server: Any, timeout: float) -> AsyncIterator[Any]:  # noqa: ASYNC109
    """Open a session with tools; its errors become AIIP errors."""
    import anyio
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import MCPError

    try:
        if hasattr(server, "call_tool") and hasattr(server, "list_tools") and not _is_server(server):
            yield server
        elif isinstance(server, str):
            import httpx2

            # longer than the timeout of the SDK, which reports it precisely
            async with sdk.make_http_client(httpx2, timeout + _MARGIN) as http:
                stream = streamable_http_client(server, http_client=http)
                async with Client(stream, read_timeout_seconds=timeout) as client:
                    yield client
        else:
            async with Client(server, read_timeout_seconds=timeout) as client:
                yield client
    except (TimeoutError, MCPError, OSError, anyio.ClosedResourceError, ExceptionGroup) as error:
        inner: BaseException = error
        while isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        raise inner if isinstance(inner, AIIPError) else _translate_error(inner) from error


def _is_server(server: Any) -> bool:
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer

    return isinstance(server, Server | MCPServer)


async def _find_tool(session: Any, name: str) -> Tool | None:
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await session.list_tools(cursor=cursor)
        for listed in page.tools:
            if listed.name == name:
                return listed  # type: ignore[no-any-return]
        cursor = page.next_cursor
        if cursor is None:
            break
    return None


async def _call_tool(session: Any, name: str, arguments: dict[str, Any], seconds: float) -> Any:
    """Return the server's answer. If the SDK rejects it, the error says that the tool was called."""
    from pydantic import ValidationError

    try:
        return await session.call_tool(name, arguments, read_timeout_seconds=seconds)
    except (RuntimeError, ValidationError) as error:
        raise AIIPError(
            "the tool was called, but the server's answer does not match its schema or MCP",
            code="aiip.upstream-failed",
        ) from error


def _require_effects(remote_tool: Tool, effects: Effects) -> None:
    hints = remote_tool.annotations
    admits = hints is not None and (hints.read_only_hint is False or hints.destructive_hint is True)
    if admits and effects is Effects.READ:
        raise UsageError(
            'the MCP server says that this tool changes data, so its effects cannot be "read"',
            code="usage.bad-argument",
            hint='pass effects="write", "financial" or "physical"',
        )


def _decode_result(result: CallToolResult) -> Any:
    """Return the tool's structured result, or its content in MCP's form."""
    if result.is_error:
        text = " ".join(block.text for block in result.content if block.type == "text")
        raise AIIPError(f"the tool failed: {sdk.sanitize_text(text)}", code="aiip.upstream-failed")
    if result.structured_content is not None:
        return result.structured_content
    content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    return {"content": content}


def _translate_error(error: BaseException) -> AIIPError:
    from mcp.shared.exceptions import MCPError
    from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT

    code = error.code if isinstance(error, MCPError) else None
    if code == INVALID_PARAMS:
        message = "the tool does not accept this input, or no longer exists"
        return AIIPError(message, code="aiip.invalid-input")
    if isinstance(error, TimeoutError) or code == REQUEST_TIMEOUT:
        return AIIPError("the tool timed out", code="aiip.upstream-timeout", retryable=True)
    # the SDK itself uses INTERNAL_ERROR if HTTP fails
    if code not in {None, CONNECTION_CLOSED, INTERNAL_ERROR}:
        return AIIPError("the tool's server returned an error", code="aiip.upstream-failed")
    return AIIPError("the tool's server cannot be reached", code="aiip.upstream-unreachable", retryable=True)
