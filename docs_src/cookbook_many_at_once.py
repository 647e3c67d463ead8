import asyncio
import os

import onym

QUESTIONS = ["red", "green", "blue", "white"]


async def main() -> None:
    slots = asyncio.Semaphore(2)

    async with onym.aconnect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:

        async def ask(question: str) -> str:
            async with slots:
                return (await client.chat(question)).text

        print(await asyncio.gather(*(ask(question) for question in QUESTIONS)))


asyncio.run(main())
