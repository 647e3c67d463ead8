import asyncio
import os

import onym


async def main() -> None:
    async with onym.aconnect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client:
        questions = ("one", "two", "three")
        answers = await asyncio.gather(*(client.chat(question) for question in questions))
        print([answer.text for answer in answers])


asyncio.run(main())
