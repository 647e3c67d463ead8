import os
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

import onym

app = FastAPI()


async def stream_text(prompt: str) -> AsyncIterator[str]:
    """Yield the answer in pieces. If the browser goes away, the request to the provider ends too."""
    async with (
        onym.aconnect(os.environ["LLM_URI"], policy=onym.Policy.local()) as client,
        client.stream(prompt) as stream,
    ):
        async for piece in stream.text:
            yield piece


@app.get("/chat")
async def chat(prompt: str) -> StreamingResponse:
    return StreamingResponse(stream_text(prompt), media_type="text/plain")


print(TestClient(app).get("/chat", params={"prompt": "Write one sentence."}).text)
