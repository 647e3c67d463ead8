import asyncio

from mcp.server.mcpserver import MCPServer

from onym.ai import Endpoint
from onym.bridges.mcp import mcp_tool

# this server runs in the process; instead, you can pass the URL of a server, or stdio parameters
tools = MCPServer("shop", log_level="WARNING")


@tools.tool()
def price(article: str) -> dict[str, int]:
    """The price of an article, in cents."""
    return {"cents": 100 * len(article)}


app = Endpoint("shop.localhost:8443", keys="keys")
app.add("/tool/price", asyncio.run(mcp_tool(tools, "price")))


@app.resource("/agent/clerk", title="A clerk")
def clerk(message: str) -> dict[str, str]:
    return {"text": f"You asked: {message}"}
