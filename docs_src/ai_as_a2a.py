import asyncio

import uvicorn

from onym.ai import AsyncAIClient
from onym.bridges.a2a import a2a_app
from onym.net import NetConfig, Policy, TLSConfig

trial = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",)))


async def main() -> None:
    async with AsyncAIClient(network=trial) as client:
        app = await a2a_app(client, "ai://shop.localhost:8443/agent/clerk", url="http://localhost:9000")
        await uvicorn.Server(uvicorn.Config(app, port=9000, log_level="warning")).serve()


asyncio.run(main())
