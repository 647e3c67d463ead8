import asyncio

from mcp.server.mcpserver import MCPServer

from onym.ai import Endpoint
from onym.bridges.mcp import mcp_tool

# one in this process; it may as well be its URL, or stdio parameters
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
