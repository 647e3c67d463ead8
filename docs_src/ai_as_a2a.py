import asyncio

import uvicorn

from onym.ai import AsyncAIClient
from onym.bridges.a2a import a2a_app
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport

trial = AsyncTransport(NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=("cert.pem",), minimum="1.3")))


async def main() -> None:
    async with trial, AsyncAIClient(transport=trial) as client:
        app = await a2a_app(client, "ai://shop.localhost:8443/agent/clerk", url="http://localhost:9000")
        await uvicorn.Server(uvicorn.Config(app, port=9000, log_level="warning")).serve()


asyncio.run(main())
