import asyncio

from mcp.server.stdio import stdio_server

from onym.ai import AsyncAIClient
from onym.bridges.mcp import mcp_server
from onym.net import NetConfig, Policy, TLSConfig

trial = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",)))


async def main() -> None:
    async with AsyncAIClient(network=trial) as client:
        server = await mcp_server(client, {"price": "ai://shop.localhost:8443/tool/price"})
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())


asyncio.run(main())
