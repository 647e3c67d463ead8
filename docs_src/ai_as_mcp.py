import asyncio

from mcp.server.stdio import stdio_server

from onym.ai import AsyncAIClient
from onym.bridges.mcp import mcp_server
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport

trial = AsyncTransport(NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",), minimum="1.3")))


async def main() -> None:
    async with trial, AsyncAIClient(transport=trial) as client:
        server = await mcp_server(client, {"price": "ai://shop.localhost:8443/tool/price"})
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())


asyncio.run(main())
