"""MCP in both directions: an MCP tool as an `ai://` resource, and `ai://` resources as an MCP server.

    app.add("/tool/add", await mcp_tool("https://tools.example/mcp", "add"))
    server = await mcp_server(AsyncAIClient(), ["ai://bank.example/tool/rates"])

The official SDK uses its own connections: the operator chooses the URLs, and Onym's network policy does not
apply to them. The A2A bridge also uses the functions for results, schemas and tool names.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from onym.ai.endpoint.context import Call
from onym.ai.endpoint.kinds import ToolHandler, tool
from onym.ai.endpoint.schemas import inline_root_reference
from onym.ai.records import Effects
from onym.bridges._sdk import make_http_client, require_extra
from onym.errors import AIIPError, OnymError, UsageError
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolResult, ContentBlock, Tool

    from onym.ai.records import Description, Result

#: members of metadata: the compact receipt, and the ai URI of the request
RECEIPT_KEY: Final = "aiip-receipt"
URI_KEY: Final = "aiip-uri"
__all__ = ["mcp_server", "mcp_tool"]

_MAX_RESOURCES: Final = 128
_LONGEST_NAME: Final = 64
#: valid names of tools (MCP 2025-11-25, server/tools)
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
#: levels of a remote schema that are passed on; JSON writers have a limit
_DEEPEST: Final = 64
#: charsets that are a subset of UTF-8
_CHARSETS: Final = frozenset({"", "utf-8", "us-ascii"})


class Invoker(Protocol):
    """A client for ai URIs, such as `onym.ai.AsyncAIClient`. Its results are verified."""

    async def describe(self, uri: str | AIURI) -> Description:
        """Return the description of a resource."""
        ...

    async def invoke(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        accept: str | None = None,
        idempotency_key: str | None = None,
    ) -> Result:
        """Return the verified result of an invocation."""
        ...


def name_resources(uris: Mapping[str, str] | Iterable[str]) -> dict[str, AIURI]:
    """Map tool names to resources; a name is given, or made from the path.

    Raises AIURIError, and UsageError for a duplicate name or too many resources.
    """
    pairs = uris.items() if isinstance(uris, Mapping) else ((None, uri) for uri in uris)
    resources: dict[str, AIURI] = {}
    for name, text in pairs:
        uri = AIURI.parse(text)
        label = _make_tool_name(uri) if name is None else name
        if _NAME.fullmatch(label) is None:
            raise UsageError(
                f"{sanitize_text(label, 60)!r} is not a valid tool name",
                code="usage.bad-argument",
                hint="use 1 to 128 of the characters A-Z a-z 0-9 _ - .",
            )
        if label in resources:
            raise UsageError(
                f"two resources have the name {label}",
                code="usage.bad-argument",
                hint="pass a mapping of names to URIs",
            )
        if len(resources) >= _MAX_RESOURCES:
            raise UsageError(f"more than {_MAX_RESOURCES} resources were passed", code="usage.bad-argument")
        resources[label] = uri
    return resources


def is_json(content_type: str | None) -> bool:
    """Whether a media type is JSON."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def decode_json_result(result: Result) -> tuple[Any, ...]:
    """Return the JSON value of a result as a tuple of one; () if the result is not JSON."""
    if not is_json(result.content_type):
        return ()
    try:
        return (result.json(),)
    except OnymError:
        return ()


def decode_text_result(result: Result) -> str | None:
    """Return the text of a result, including JSON; None unless it is certainly UTF-8 text."""
    kind, _, rest = (result.content_type or "").partition(";")
    text = kind.strip().lower().startswith("text/")
    if not (is_json(kind) or (text and _parse_charset(rest) in _CHARSETS)):
        return None
    try:
        return result.body.decode()
    except UnicodeDecodeError:
        return None


def normalize_input_schema(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a remote input schema as the schema of an object; {"type": "object"} if it is not one.

    A schema is sent to all clients of the protocol, so one that could break them is replaced.
    """
    inlined = inline_root_reference(schema or {})
    kind = inlined.get("type", "object")
    if (kind == "object" or (isinstance(kind, list) and "object" in kind)) and _is_valid_schema(inlined):
        return {**inlined, "type": "object"}
    return {"type": "object"}


def _is_valid_schema(schema: Mapping[str, Any]) -> bool:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(properties, dict)
        and all(isinstance(schema, dict | bool) for schema in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(schema.get("$schema", ""), str)
        and _is_shallow(schema)
    )


def iter_levels(value: Any) -> Iterator[list[Any]]:
    """Yield the parts of a JSON value, level by level, starting with the value itself."""
    level = [value]
    while level:
        yield level
        level = [inner for value in level for inner in _list_children(value)]


def _list_children(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def _parse_charset(parameters: str) -> str:
    match = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    return "" if match is None else match[1].lower()


def sanitize_text(text: str, most: int = 500) -> str:
    """Make remote text safe to show: one line, without control characters, of limited length."""
    shown = "".join(char if char.isprintable() else " " for char in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _make_tool_name(uri: AIURI) -> str:
    name = "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "_" for char in uri.path)
    return name.strip("_")[:_LONGEST_NAME] or "root"


_CODE: Final = "aiip-code"
_OUTPUT: Final = "aiip-output"


async def mcp_server(
    client: Invoker, uris: Mapping[str, str] | Iterable[str], *, name: str = "onym"
) -> Server[Any]:
    """Return an MCP server whose tools are these resources. They are described now, and invoked by calls.

    `uris` are ai URIs, or a mapping of tool names to them. A result has its receipt in `_meta` as
    "aiip-receipt", and the URI as "aiip-uri". If a resource rejects a call, the result is a tool error with
    its code. The client verifies every result; its `allow_effects` limits the effects.

    The schema of a resource's output is in its tool's `_meta` as "aiip-output", not in `outputSchema`:
    clients would reject a verified result that differs, such as the events of a stream.

    Raises MissingExtraError, UsageError, AIURIError and the errors of `AsyncAIClient.describe`.
    """
    with require_extra("mcp", "mcp"):
        from mcp.server import Server
        from mcp.shared.exceptions import MCPError
        from mcp.types import INVALID_PARAMS, ListToolsResult
    known = name_resources(uris)
    tools = [_build_tool(label, await client.describe(uri)) for label, uri in known.items()]

    async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def on_call_tool(context: Any, params: Any) -> CallToolResult:
        if params.name not in known:
            raise MCPError(INVALID_PARAMS, f"no tool has the name {sanitize_text(params.name, 60)}")
        return await _call_resource(client, known[params.name], params.arguments or {})

    return Server(name, on_list_tools=on_list_tools, on_call_tool=on_call_tool)


def _build_tool(label: str, description: Description) -> Tool:
    from mcp.types import Tool, ToolAnnotations

    title, schema = description.title, description.output
    output = {} if schema is None or not _is_shallow(schema) else {_OUTPUT: dict(schema)}
    shown = sanitize_text(title or label, 300)
    changes = description.effects is not Effects.READ
    return Tool(
        name=label,
        title=None if title is None else sanitize_text(title, 120),
        description=f"{shown} ({description.uri}; effects: {description.effects})",
        input_schema=normalize_input_schema(description.input),
        # whether a write destroys data is not known, so the cautious value is used
        annotations=ToolAnnotations(read_only_hint=not changes, destructive_hint=changes),
        _meta={URI_KEY: description.uri, **output},
    )


async def _call_resource(client: Invoker, uri: AIURI, arguments: Mapping[str, Any]) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    try:
        result = await client.invoke(uri, arguments)
    except OnymError as error:
        text = TextContent(text=sanitize_text(error.message))
        return CallToolResult(content=[text], is_error=True, _meta={_CODE: error.code, URI_KEY: str(uri)})
    return CallToolResult(
        content=_build_content(result, uri) if result.body else [],
        # MCP before 2026-07-28 can send values other than objects only as text
        structured_content=next(
            (value for value in decode_json_result(result) if isinstance(value, dict) and _is_shallow(value)),
            None,
        ),
        _meta={RECEIPT_KEY: result.token, URI_KEY: str(uri)},
    )


def _is_shallow(value: Any) -> bool:
    return all(depth < _DEEPEST for depth, _ in enumerate(iter_levels(value)))


def _build_content(result: Result, uri: AIURI) -> list[ContentBlock]:
    """Return text, images and audio as such, and any other content as a resource with its bytes."""
    from mcp.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, TextContent

    text = decode_text_result(result)
    if text is not None:
        return [TextContent(text=text)]
    kind = result.content_type or "application/octet-stream"
    data = b64encode(result.body).decode("ascii")
    shown = kind.partition(";")[0].strip().lower()
    if shown.startswith("image/"):
        return [ImageContent(data=data, mime_type=shown)]
    if shown.startswith("audio/"):
        return [AudioContent(data=data, mime_type=shown)]
    return [EmbeddedResource(resource=BlobResourceContents(uri=str(uri), mime_type=kind, blob=data))]


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
    with require_extra("mcp", "mcp"):
        import mcp  # noqa: F401 - a missing package is reported now
    async with _open_session(server, timeout) as session:
        remote_tool = await _find_tool(session, name)
    if remote_tool is None:
        raise UsageError(f"the MCP server has no tool {sanitize_text(name, 60)}", code="usage.bad-argument")
    _require_effects(remote_tool, Effects(effects))

    async def run(arguments: dict[str, Any], call: Call) -> Any:
        async with _open_session(server, timeout) as session:
            result = await _call_tool(session, name, arguments, timeout)
        return _decode_result(result)

    return tool(
        run,
        input=remote_tool.input_schema,
        output=remote_tool.output_schema,
        title=title or sanitize_text(remote_tool.title or remote_tool.description or name, 120),
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
            async with make_http_client(httpx2, timeout + _MARGIN) as http:
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
        raise AIIPError(f"the tool failed: {sanitize_text(text)}", code="aiip.upstream-failed")
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
