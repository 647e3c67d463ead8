"""`ai://` resources as the tools of an MCP server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from onym.ai.records import Effects
from onym.bridges._ai import RECEIPT, URI, Invoker, input_schema, json_of, levels, named, plain, text_of
from onym.bridges._extra import needs
from onym.errors import OnymError

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.types import CallToolResult, ContentBlock, Tool

    from onym.ai.records import Description, Result
    from onym.uri.ai import AIURI

__all__ = ["mcp_server"]

_CODE: Final = "aiip-code"
_OUTPUT: Final = "aiip-output"
#: levels of JSON that the SDK writes without fail
_DEEPEST: Final = 64


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


def _tool(label: str, found: Description) -> Tool:
    from mcp.types import Tool, ToolAnnotations

    output = {} if found.output is None or not _is_shallow(found.output) else {_OUTPUT: dict(found.output)}
    changes = found.effects is not Effects.READ
    return Tool(
        name=label,
        title=None if found.title is None else plain(found.title, 120),
        description=f"{plain(found.title or label, 300)} ({found.uri}; effects: {found.effects})",
        input_schema=input_schema(found.input),
        # what a write takes away is not known: "destructive" is the careful word
        annotations=ToolAnnotations(read_only_hint=not changes, destructive_hint=changes),
        _meta={URI: found.uri, **output},
    )


async def _called(client: Invoker, uri: AIURI, arguments: Mapping[str, Any]) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    try:
        found = await client.invoke(uri, arguments)
    except OnymError as error:
        said = TextContent(text=plain(error.message))
        return CallToolResult(content=[said], is_error=True, _meta={_CODE: error.code, URI: str(uri)})
    return CallToolResult(
        content=_content(found, uri) if found.body else [],
        structured_content=_structured(found),
        _meta={RECEIPT: found.token, URI: str(uri)},
    )


def _structured(found: Result) -> dict[str, Any] | None:
    """A JSON object; other values are text alone, for they have no place in MCP before 2026-07-28."""
    return next((each for each in json_of(found) if isinstance(each, dict) and _is_shallow(each)), None)


def _is_shallow(value: Any) -> bool:
    return all(depth < _DEEPEST for depth, _ in enumerate(levels(value)))


def _content(found: Result, uri: AIURI) -> list[ContentBlock]:
    """Text as text, what can be seen or heard as that, anything else as a resource with its octets."""
    from mcp.types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, TextContent

    text = text_of(found)
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
