import asyncio

from mcp import Client, StdioServerParameters


async def main() -> None:
    async with Client(StdioServerParameters(command="python", args=["ai_as_mcp.py"])) as client:
        print([tool.name for tool in (await client.list_tools()).tools])
        found = await client.call_tool("price", {"article": "lamp"})
        print(found.structured_content, sorted(name for name in found.meta or {} if name.startswith("aiip")))


asyncio.run(main())
