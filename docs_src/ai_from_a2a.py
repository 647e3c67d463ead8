import asyncio

from onym.ai import Endpoint
from onym.bridges.a2a import a2a_agent

app = Endpoint("depot.localhost:8444", keys="keys")
app.add("/agent/clerk", asyncio.run(a2a_agent("http://localhost:9000")))
