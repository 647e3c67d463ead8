import asyncio
import os

from pydantic import BaseModel
from pydantic_ai import Agent

import onym.bridges


class City(BaseModel):
    """A city."""

    name: str
    country: str


async def main() -> None:
    model = onym.bridges.OnymModel(os.environ["LLM_URI"], policy=onym.Policy.local())
    result = await Agent(model, output_type=City).run("The capital of France?")
    print(result.output)
    await model.aclose()


asyncio.run(main())
