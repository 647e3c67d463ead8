"""MCP in both directions: a tool of an MCP server as an `ai://` resource, and `ai://` resources as an MCP server.

    app.add("/tool/add", await mcp_tool("https://tools.example/mcp", "add"))
    server = await mcp_server(AsyncAIClient(), ["ai://bank.example/tool/rates"])

The official SDK speaks MCP over its own connections: the operator chooses the URLs, and Onym's network policy
does not apply to them. The A2A bridge uses the helpers for results, schemas and tool names, too.
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
from onym.bridges._sdk import MOST_OCTETS, build_client_limits, require_extra
from onym.errors import AIIPError, OnymError, UsageError
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolResult, ContentBlock, Tool

    from onym.ai.records import Description, Result

#: members of metadata: the receipt in its compact form, and the ai URI that was asked
RECEIPT_KEY: Final = "aiip-receipt"
URI_KEY: Final = "aiip-uri"
__all__ = ["mcp_server", "mcp_tool"]

_MOST: Final = 128
_LONGEST_NAME: Final = 64
#: names that MCP has for tools (2025-11-25, server/tools)
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
#: levels of a stranger's schema that are told on: writers of JSON have an end
_DEEPEST: Final = 64
#: charsets of a text that UTF-8 reads
_CHARSETS: Final = frozenset({"", "utf-8", "us-ascii"})


class Invoker(Protocol):
    """A client for ai names: `onym.ai.AsyncAIClient`. What it gives was verified."""

    async def describe(self, uri: str | AIURI) -> Description:
        """What a resource is."""
        ...

    async def invoke(
        self,
        uri: str | AIURI,
        arguments: Mapping[str, Any] | None = None,
        *,
        accept: str | None = None,
        idempotency_key: str | None = None,
    ) -> Result:
        """The verified result of an invocation."""
        ...


def name_resources(uris: Mapping[str, str] | Iterable[str]) -> dict[str, AIURI]:
    """Resources by a name for other protocols: the one given, else made of the path.

    Raises AIURIError, and UsageError for two resources of one name or too many of them.
    """
    pairs = uris.items() if isinstance(uris, Mapping) else ((None, uri) for uri in uris)
    found: dict[str, AIURI] = {}
    for name, text in pairs:
        uri = AIURI.parse(text)
        label = _make_tool_name(uri) if name is None else name
        if _NAME.fullmatch(label) is None:
            raise UsageError(
                f"{sanitize_text(label, 60)!r} is no name of a tool",
                code="usage.bad-argument",
                hint="1 to 128 of A-Z a-z 0-9 _ - .",
            )
        if label in found:
            raise UsageError(
                f"two resources are called {label}",
                code="usage.bad-argument",
                hint="give a mapping of names to URIs",
            )
        if len(found) >= _MOST:
            raise UsageError(f"there are more than {_MOST} resources", code="usage.bad-argument")
        found[label] = uri
    return found


def is_json(content_type: str | None) -> bool:
    """Whether a media type is JSON."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def decode_json_result(found: Result) -> tuple[Any, ...]:
    """The JSON value that a result is, alone; () where it is none, whatever it calls itself."""
    if not is_json(found.content_type):
        return ()
    try:
        return (found.json(),)
    except OnymError:
        return ()


def decode_text_result(found: Result) -> str | None:
    """The text that a result is, JSON too; None for anything that is not surely text in UTF-8."""
    kind, _, rest = (found.content_type or "").partition(";")
    text = kind.strip().lower().startswith("text/")
    if not (is_json(kind) or (text and _parse_charset(rest) in _CHARSETS)):
        return None
    try:
        return found.body.decode()
    except UnicodeDecodeError:
        return None


def normalize_input_schema(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """A stranger's schema of an input, as one of an object; {"type": "object"} where it says nothing of it.

    What is told to all of a protocol's clients must not break them: a schema of another form says nothing.
    """
    found = inline_root_reference(schema or {})
    kind = found.get("type", "object")
    if (kind == "object" or (isinstance(kind, list) and "object" in kind)) and _is_valid_schema(found):
        return {**found, "type": "object"}
    return {"type": "object"}


def _is_valid_schema(schema: Mapping[str, Any]) -> bool:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(properties, dict)
        and all(isinstance(schema, dict | bool) for schema in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(schema.get("$schema", ""), str)
        and all(depth < _DEEPEST for depth, _ in enumerate(iter_levels(schema)))
    )


def iter_levels(value: Any) -> Iterator[list[Any]]:
    """What a JSON value holds, level by level, itself first."""
    level = [value]
    while level:
        yield level
        level = [inner for value in level for inner in _list_children(value)]


def _list_children(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def _parse_charset(parameters: str) -> str:
    found = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", parameters, re.IGNORECASE)
    return "" if found is None else found[1].lower()


def sanitize_text(text: str, most: int = 500) -> str:
    """A stranger's text, fit to be shown: one line, without controls, of bounded length."""
    shown = "".join(char if char.isprintable() else " " for char in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _make_tool_name(uri: AIURI) -> str:
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "_" for char in uri.path)
    return kept.strip("_")[:_LONGEST_NAME] or "root"


_CODE: Final = "aiip-code"
_OUTPUT: Final = "aiip-output"
#: levels of JSON that the SDK writes without fail


async def mcp_server(
    client: Invoker, uris: Mapping[str, str] | Iterable[str], *, name: str = "onym"
) -> Server[Any]:
    """An MCP server whose tools are these resources; each is described now, and invoked when it is called.

    `uris` are ai URIs, or a mapping of tool names to them. A result carries its receipt in `_meta` as
    "aiip-receipt", and "aiip-uri"; what a resource refuses is a tool error with its code. The client verifies
    everything, and what effects it may cause is its `allow_effects`.

    The schema of a resource's output is in its tool's `_meta` as "aiip-output", and not its `outputSchema`:
    clients would refuse a verified result that differs, such as the events of a stream.

    Raises MissingExtraError, UsageError, AIURIError, and what `AsyncAIClient.describe` raises.
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
            raise MCPError(INVALID_PARAMS, "there is no such tool")
        return await _call_resource(client, known[params.name], params.arguments or {})

    return Server(name, on_list_tools=on_list_tools, on_call_tool=on_call_tool)


def _build_tool(label: str, found: Description) -> Tool:
    from mcp.types import Tool, ToolAnnotations

    output = {} if found.output is None or not _is_shallow(found.output) else {_OUTPUT: dict(found.output)}
    changes = found.effects is not Effects.READ
    return Tool(
        name=label,
        title=None if found.title is None else sanitize_text(found.title, 120),
        description=f"{sanitize_text(found.title or label, 300)} ({found.uri}; effects: {found.effects})",
        input_schema=normalize_input_schema(found.input),
        # what a write takes away is not known: "destructive" is the careful word
        annotations=ToolAnnotations(read_only_hint=not changes, destructive_hint=changes),
        _meta={URI_KEY: found.uri, **output},
    )


async def _call_resource(client: Invoker, uri: AIURI, arguments: Mapping[str, Any]) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    try:
        found = await client.invoke(uri, arguments)
    except OnymError as error:
        said = TextContent(text=sanitize_text(error.message))
        return CallToolResult(content=[said], is_error=True, _meta={_CODE: error.code, URI_KEY: str(uri)})
    return CallToolResult(
        content=_build_content(found, uri) if found.body else [],
        structured_content=_find_structured_content(found),
        _meta={RECEIPT_KEY: found.token, URI_KEY: str(uri)},
    )


def _find_structured_content(found: Result) -> dict[str, Any] | None:
    """A JSON object; other values are text alone, for they have no place in MCP before 2026-07-28."""
    return next(
        (value for value in decode_json_result(found) if isinstance(value, dict) and _is_shallow(value)), None
    )


def _is_shallow(value: Any) -> bool:
    return all(depth < _DEEPEST for depth, _ in enumerate(iter_levels(value)))


def _build_content(found: Result, uri: AIURI) -> list[ContentBlock]:
    """Text as text, what can be seen or heard as that, anything else as a resource with its octets."""
    from mcp.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, TextContent

    text = decode_text_result(found)
    if text is not None:
        return [TextContent(text=text)]
    kind = found.content_type or "application/octet-stream"
    data = b64encode(found.body).decode("ascii")
    shown = kind.partition(";")[0].strip().lower()
    if shown.startswith("image/"):
        return [ImageContent(data=data, mime_type=shown)]
    if shown.startswith("audio/"):
        return [AudioContent(data=data, mime_type=shown)]
    return [EmbeddedResource(resource=BlobResourceContents(uri=str(uri), mime_type=kind, blob=data))]


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
    with require_extra("mcp", "mcp"):
        import mcp  # noqa: F401 - so that one that is missing is said now
    async with _open_session(server, timeout) as session:
        found = await _find_tool(session, name)
    if found is None:
        raise UsageError(f"the MCP server has no tool {sanitize_text(name, 60)}", code="usage.bad-argument")
    _require_effects(found, Effects(effects))

    async def run(arguments: dict[str, Any], call: Call) -> Any:
        async with _open_session(server, timeout) as session:
            found = await _call_tool(session, name, arguments, timeout)
        return _decode_result(found)

    return tool(
        run,
        input=found.input_schema,
        output=found.output_schema,
        title=title or sanitize_text(found.title or found.description or name, 120),
    )


@asynccontextmanager
async def _open_session(server: Any, timeout: float) -> AsyncIterator[Any]:  # noqa: ASYNC109
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
                _make_http_client(timeout) as http,
                Client(
                    streamable_http_client(server, http_client=http), read_timeout_seconds=timeout
                ) as client,
            ):
                yield client
        else:
            async with Client(server, read_timeout_seconds=timeout) as client:
                yield client
    except (TimeoutError, MCPError, OSError, anyio.ClosedResourceError, ExceptionGroup) as error:
        inner = _unwrap_group(error)
        raise inner if isinstance(inner, AIIPError) else _translate_error(inner) from error


def _make_http_client(timeout: float) -> Any:
    """An HTTP client of the SDK's kind: no redirects, no environment, no answer without end.

    Its patience outlasts the SDK's, which knows that it was a timeout.
    """
    import httpx2

    return httpx2.AsyncClient(
        timeout=timeout + _MARGIN,
        follow_redirects=False,
        trust_env=False,
        **build_client_limits(httpx2, MOST_OCTETS),
    )


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
    """The server's answer. One that the SDK does not take is no silence: the tool was called."""
    from pydantic import ValidationError

    try:
        return await session.call_tool(name, arguments, read_timeout_seconds=seconds)
    except (RuntimeError, ValidationError) as error:
        raise AIIPError(
            "the tool was called, and its server's answer is not what its schema or MCP has",
            code="aiip.upstream-failed",
        ) from error


def _require_effects(found: Tool, effects: Effects) -> None:
    hints = found.annotations
    admits = hints is not None and (hints.read_only_hint is False or hints.destructive_hint is True)
    if admits and effects is Effects.READ:
        raise UsageError(
            "the MCP server says that this tool changes things: it is no resource with the effects read",
            code="usage.bad-argument",
            hint='give effects="write", "financial" or "physical"',
        )


def _decode_result(found: CallToolResult) -> Any:
    """The tool's result: what is structured, else its content as MCP writes it."""
    if found.is_error:
        said = " ".join(block.text for block in found.content if block.type == "text")
        raise AIIPError(f"the tool failed: {sanitize_text(said)}", code="aiip.upstream-failed")
    if found.structured_content is not None:
        return found.structured_content
    content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in found.content]
    return {"content": content}


def _unwrap_group(error: BaseException) -> BaseException:
    """What went wrong, out of the groups in which tasks hand it on."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _translate_error(error: BaseException) -> AIIPError:
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
