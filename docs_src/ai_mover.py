import asyncio
from dataclasses import dataclass

from onym.ai import Endpoint
from onym.ai.endpoint import Task

app = Endpoint("factory.localhost:8443", keys="keys", store="store.sqlite")


@dataclass
class Zone:
    zone: str


@app.resource("/agent/sort", title="Sort crates", effects="write", task=True)
async def sort(crates: int, task: Task) -> dict[str, int]:
    for crate in range(task.restored or 0, crates):
        task.raise_if_cancelled()
        await asyncio.sleep(0.1)  # the work on one crate
        await task.checkpoint(crate + 1)
        task.progress(crate + 1, crates)
    return {"sorted": crates}


@app.resource("/agent/move", title="Move a crate", task=True)
async def move(task: Task) -> str:
    answer = await task.ask(Zone, "Which zone?")
    return f"moved to {answer.zone}"
