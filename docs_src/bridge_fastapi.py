import asyncio
import os
from typing import Annotated

from fastapi import Depends, FastAPI

import onym
from onym.bridges.settings import FastAPIOnym

llm = FastAPIOnym(os.environ["LLM_URI"], policy=onym.Policy.local())
app = FastAPI(lifespan=llm.lifespan)


@app.get("/greeting")
async def greeting(client: Annotated[onym.AsyncClient, Depends(llm)]) -> str:
    """Ask the model."""
    return (await client.chat("Say hello.")).text


async def main() -> None:
    # a server does this; here, to see that it works
    async with app.router.lifespan_context(app):
        print(await greeting(await llm()))


asyncio.run(main())
