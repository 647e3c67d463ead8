"""Tasks of A2A in a store that the processes of an agent share, also after one of them was killed."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import get_data_parts, new_data_part, new_message, new_text_part
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError
from starlette.authentication import SimpleUser

from ai_factory import Factory
from ai_support import LOOPBACK, PATIENCE, authority_ca, key_store, serve_authority, trust
from bridge_support import HandClient, serve_agent_process
from onym.ai.endpoint import Endpoint
from onym.ai.records import Description, Effects
from onym.bridges.a2a import EXTENSION, a2a_app
from onym.store import open_shared_store
from onym.store.shared import SharedStore
from onym.uri.secret import Secret
from postgres_support import postgres_server

AGENT = "ai://factory.example/agent/planner"
HOME = "http://agents.example"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Where the store is."""
    if request.param == "sqlite":
        yield tmp_path_factory.mktemp("tasks") / "tasks.sqlite"
        return
    with postgres_server() as server:
        yield Secret(server.url())


def answer(state: str) -> bytes:
    return json.dumps({"text": "yes", "state": state}).encode()


def source(state: str = "completed", **more: Any) -> HandClient:
    described = Description(
        uri=AGENT, input={"type": "object", "properties": {"message": {"type": "string"}}}, **more
    )
    return HandClient({AGENT: described}, body=answer(state))


@asynccontextmanager
async def open_process(place: Any, client: Any, uri: str = AGENT) -> AsyncIterator[Any]:
    """What one process of the agent is: a connection to the store, and the app. Yields clients by user."""
    shared = open_shared_store(place)
    bridge = await a2a_app(client, uri, url=HOME, store=shared)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(shared.close)

        async def connect(user: str, *, on_event: Callable[[], None] | None = None) -> Any:
            async def app(scope: Any, receive: Any, send: Any) -> None:
                async def watch(message: Any) -> None:
                    await send(message)
                    if on_event is not None and scope["method"] == "POST" and message.get("body"):
                        on_event()

                await bridge({**scope, "user": SimpleUser(user)}, receive, watch)

            http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), timeout=PATIENCE)
            await stack.enter_async_context(http)
            return await ClientFactory(
                ClientConfig(httpx_client=http, streaming=on_event is not None)
            ).create_from_url(HOME)

        yield connect


async def send(client: Any, content: Any, *, task: Any = None, now: bool = False) -> Any:
    part = new_text_part(content) if isinstance(content, str) else new_data_part(content)
    message = new_message([part], role=Role.ROLE_USER)
    if task is not None:
        message.task_id = task.id
    configuration = SendMessageConfiguration(return_immediately=now)
    request = SendMessageRequest(message=message, configuration=configuration)
    ((event),) = [event async for event in client.send_message(request)]
    return event.task


async def get(client: Any, task: Any) -> Any:
    return await client.get_task(GetTaskRequest(id=task.id))


async def list_ids(client: Any) -> list[str]:
    return [task.id for task in (await client.list_tasks(ListTasksRequest())).tasks]


async def wait_until(check: Callable[[], Awaitable[Any]]) -> Any:
    """Return the first value of the check that is true."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if found := await check():
                return found
            await asyncio.sleep(0.05)


def get_state(task: Any) -> str:
    return str(TaskState.Name(task.status.state)).removeprefix("TASK_STATE_")


def test_processes_see_the_tasks_of_their_user_and_of_nobody_else(place: Any) -> None:
    async def work() -> None:
        waiting = source("input-required")
        async with open_process(place, waiting) as first, open_process(place, source()) as second:
            here, there, other = await first("ann"), await second("ann"), await second("bob")
            task = await send(here, "plan")
            assert get_state(task) == "INPUT_REQUIRED"
            assert await get(there, task) == task
            assert await list_ids(there) == [task.id]
            assert await list_ids(other) == []
            for refused in (get(other, task), other.cancel_task(CancelTaskRequest(id=task.id))):
                with pytest.raises(TaskNotFoundError):
                    await refused
            # the conversation goes on at the other process
            ended = await send(there, "tomorrow", task=task)
            assert (ended.id, get_state(ended)) == (task.id, "COMPLETED")
            assert get_state(await get(here, task)) == "COMPLETED"
            with pytest.raises(TaskNotCancelableError):
                await here.cancel_task(CancelTaskRequest(id=task.id))

    asyncio.run(work())


def test_a_task_that_waits_is_cancelled_by_another_process(place: Any) -> None:
    async def work() -> None:
        async with (
            open_process(place, source("input-required")) as first,
            open_process(place, source()) as second,
        ):
            here, there = await first("cat"), await second("cat")
            task = await send(here, "plan")
            cancelled = await there.cancel_task(CancelTaskRequest(id=task.id))
            assert get_state(cancelled) == get_state(await get(here, task)) == "CANCELED"

    asyncio.run(work())


class Slow(HandClient):
    """Answers when it is told to."""

    def __init__(self, **more: Any) -> None:
        super().__init__(source(**more).known, body=answer("completed"))
        self.go = asyncio.Event()

    async def invoke(self, *given: Any, **named: Any) -> Any:
        await self.go.wait()
        return await super().invoke(*given, **named)


def test_another_process_shows_a_task_that_runs_and_its_end(place: Any) -> None:
    async def work() -> None:
        slow = Slow(effects=Effects.WRITE)
        async with open_process(place, slow) as first, open_process(place, slow) as second:
            here, there = await first("dan"), await second("dan")
            task = await send(here, "plan", now=True)
            assert get_state(await get(there, task)) in {"SUBMITTED", "WORKING"}
            with pytest.raises(TaskNotCancelableError):  # it may have had its effect
                await there.cancel_task(CancelTaskRequest(id=task.id))
            watching = await second("dan", on_event=slow.go.set)  # ends when the first event was sent
            events = watching.subscribe(SubscribeToTaskRequest(id=task.id))
            seen = [get_state(event.task) async for event in events]
            assert seen[0] in {"SUBMITTED", "WORKING"}
            assert seen[-1] == "COMPLETED"

    asyncio.run(work())


# --- a process that is killed ---


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Factory, threading.Event]]:
    """An endpoint whose resources wait until they are told to end."""
    folder, go = tmp_path_factory.mktemp("factory"), threading.Event()
    keys, ca = key_store(folder), authority_ca()

    def make(authority: str) -> Endpoint:
        app = Endpoint(authority, keys=keys, store=folder / "keys.sqlite")

        @app.resource("/long", task=True)
        def run_long(number: int) -> dict[str, int]:
            go.wait(PATIENCE)
            return {"number": number}

        @app.resource("/short")
        def run_short(number: int) -> dict[str, int]:
            go.wait(PATIENCE)
            return {"number": number}

        return app

    trust(ca, folder)
    with serve_authority(make, "factory.localhost", ca=ca) as (app, authority):
        yield Factory(app, authority, keys, folder, ca), go
        go.set()


async def forget_signs_of_life(shared: SharedStore) -> None:
    """What half a minute does."""
    rows = await shared.find("a2a-life/", limit=10)
    assert rows
    for key, _ in rows:
        await shared.delete(key)


#: states of a task without an end: a busy endpoint may not have begun with it
RUNNING = {"SUBMITTED", "WORKING"}


@pytest.mark.parametrize(("path", "end"), [("/long", "COMPLETED"), ("/short", "FAILED")])
def test_tasks_of_a_process_that_was_killed_are_there_and_end(
    factory: tuple[Factory, threading.Event], tmp_path: Path, path: str, end: str
) -> None:
    known, go = factory
    go.clear()
    store = tmp_path / "tasks.sqlite"
    mine, childs = multiprocessing.Pipe()
    arguments = (known.authority, str(known.folder), path, str(store), childs)
    process = multiprocessing.get_context("spawn").Process(
        target=serve_agent_process, args=arguments, daemon=True
    )
    process.start()

    async def begin(url: str) -> Any:
        async with httpx.AsyncClient(timeout=PATIENCE) as http:
            config = ClientConfig(httpx_client=http, streaming=False)
            client = await ClientFactory(config).create_from_url(url)
            for interface in client._card.supported_interfaces:
                interface.url = url
            client = ClientFactory(config).create(client._card)
            task = await send(client, {"number": 5}, now=True)
            if path == "/long":
                await wait_until(is_begun)
            return task

    async def is_begun() -> bool:
        shared = open_shared_store(store)
        try:
            return await shared.count("a2a-reference/") > 0
        finally:
            await shared.close()

    async def go_on(task: Any) -> tuple[Any, Any]:
        shared = open_shared_store(store)
        async with (
            known.aclient() as client,
            open_process(store, client, known.uri(path)) as other,
        ):
            eve = await other("eve")
            running = await get(eve, task)
            assert await list_ids(eve) == [task.id]
            await forget_signs_of_life(shared)
            await shared.close()
            if path == "/long":
                assert get_state(await get(eve, task)) in RUNNING  # at the endpoint
                go.set()

            async def is_over() -> Any:
                found = await get(eve, task)
                return None if get_state(found) in RUNNING else found

            ended = await wait_until(is_over)
            return running, ended

    try:
        assert mine.poll(PATIENCE)
        task = asyncio.run(begin(f"http://{LOOPBACK}:{mine.recv()}"))
        process.kill()
        process.join(PATIENCE)
        running, ended = asyncio.run(go_on(task))
    finally:
        go.set()
        process.kill()
        process.join(PATIENCE)
        process.close()
        mine.close()
        childs.close()
    assert get_state(running) in RUNNING
    assert get_state(ended) == end
    notes = dict(ended.metadata[EXTENSION])
    if end == "COMPLETED":
        assert get_data_parts(ended.artifacts[0].parts) == [{"number": 5}]
        assert notes["aiip-receipt"].count(".") == 2
    else:
        assert notes["aiip-code"] == "aiip.interrupted"
