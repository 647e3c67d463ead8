"""Processes that run tasks are killed, or paused and taken for dead: nothing runs twice (A7, 95, 96).

`ONYM_TASKS=500 ONYM_KILLS=20` runs the long variant of the first test, as the acceptance test A7 wants it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_factory import NAME, Factory
from ai_support import PATIENCE, Line, authority_ca, key_store
from onym.ai import AIClient
from onym.ai.tasks import TaskHandle
from onym.errors import InvocationError, OnymError
from postgres_support import Postgres, postgres_server
from support import free_port

pytestmark = pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
TASKS, KILLS = int(os.environ.get("ONYM_TASKS", "40")), int(os.environ.get("ONYM_KILLS", "4"))
EFFECTS = ["read", "write", "financial"]

CHILD = """
import asyncio, os, sys, time
from pathlib import Path

from onym.ai.endpoint import Endpoint, Limits, Task, ThreadTask, task_store
from onym.server.http_server import serve_app

folder, authority, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
task_store.BEAT_SECONDS, task_store.OWNER_SECONDS = 0.2, float(sys.argv[4])
app = Endpoint(
    authority,
    keys=folder / "keys",
    store=(folder / "store").read_text(),
    policy="permit(principal, action, resource);",
    limits=Limits(tasks_running=100_000, tasks_kept=100_000, tasks_total=100_000, keys=100_000, share=128),
)
effects = os.open(folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def act(text):
    os.write(effects, f"{text}\\n".encode())


def wait():
    while not (folder / "go").exists():
        time.sleep(0.01)


@app.resource("/pay", effects="financial", task=True)
def pay(number: int) -> int:
    act(f"pay {number}")
    time.sleep(0.02)
    return number


@app.resource("/slow", effects="financial", task=True)
def slow() -> int:
    act("slow")
    wait()
    return os.getpid()


@app.resource("/scan", task=True)
def scan() -> int:
    act("scan")
    if not (folder / "second").exists():
        wait()
    return os.getpid()


@app.resource("/copy", effects="write", task=True)
def copy(task: ThreadTask) -> int:
    done = task.restored or 0
    for item in range(done, 6):
        act(f"copy {item}")
        task.checkpoint(item + 1)
        if item == 2 and not (folder / "second").exists():
            act("half")
            wait()
    return done


asyncio.run(
    serve_app(
        app,
        host="127.0.0.1",
        port=port,
        certificate=str(folder / "server.pem"),
        ready=lambda _: print("ready", flush=True),
    )
)
"""


class Server:
    """An endpoint in a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path, authority: str, port: int, seconds: float = 60.0) -> None:
        self._args = [sys.executable, "-c", CHILD, str(folder), authority, str(port), str(seconds)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._args, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server(durable=True) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Factory]:
    """The folder of an authority, its name, keys and store; the servers come and go."""
    with contextlib.ExitStack() as stack:
        store = str(tmp_path / "store.sqlite")
        if request.param == "postgresql":
            database: Postgres = request.getfixturevalue("postgres")
            store = database.url(stack.enter_context(database.database()))
        (tmp_path / "store").write_text(store)
        yield _make_place(tmp_path)


def _make_place(tmp_path: Path) -> Factory:
    ca = authority_ca()
    ca.issue_cert(NAME).private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    keys = key_store(tmp_path)
    nothing: Any = None
    return Factory(app=nothing, authority=f"{NAME}:{free_port()}", keys=keys, folder=tmp_path, ca=ca)


class Work:
    """Begins every task once, and asks again with the same key as long as nobody answers."""

    def __init__(self, place: Factory) -> None:
        self._place = place
        self._numbers = iter(range(TASKS))
        self._lock = threading.Lock()
        self.begun: dict[int, TaskHandle] = {}

    def run(self, client: AIClient) -> None:
        while (number := self._take()) is not None:
            task = self._begin(client, number)
            with self._lock:
                self.begun[number] = task

    def start(self, client: AIClient, number: int) -> TaskHandle:
        uri = self._place.uri("/pay")
        return client.start(uri, {"number": number}, idempotency_key=f"key-{number}")

    def _take(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _begin(self, client: AIClient, number: int) -> TaskHandle:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.start(client, number)
            except OnymError as error:
                if not getattr(error, "retryable", False) or time.monotonic() > until:
                    raise
            time.sleep(0.05)  # the server is being started again


def effects(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return (folder / "effects").read_text().splitlines()
    return []


def wait_for(folder: Path, *texts: str) -> None:
    until = time.monotonic() + PATIENCE
    while not {*texts} <= {*effects(folder)}:
        assert time.monotonic() < until
        time.sleep(0.01)  # another process writes them


# CPython leaves a socket open if the server dies between `connect` and `wrap_socket`
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
def test_no_body_runs_twice_and_no_task_is_lost_when_the_owner_is_killed(place: Factory) -> None:
    """A7: kill -9 of the owner while tasks are begun and run."""
    port = int(place.authority.partition(":")[2])
    server = Server(place.folder, place.authority, port)
    work = Work(place)
    steps = random.Random(7)
    try:
        with place.client(allow_effects=EFFECTS) as client:
            workers = [threading.Thread(target=work.run, args=(client,)) for _ in range(4)]
            for worker in workers:
                worker.start()
            for kill in range(KILLS):
                while len(work.begun) < TASKS * (kill + 1) // (KILLS + 1):
                    time.sleep(0.005)  # the workers go on
                time.sleep(steps.random() * 0.05)
                server.kill()
                server.start()
            for worker in workers:
                worker.join(PATIENCE)
            assert sorted(work.begun) == list(range(TASKS))
            ends = Counter(str(task.wait(PATIENCE).state) for task in work.begun.values())
            ran = Counter(effects(place.folder))
            for number, task in work.begun.items():
                assert work.start(client, number).id == task.id
                if task.status().state == "completed":
                    assert task.result().json() == number
                    assert ran[f"pay {number}"] == 1
                else:
                    with pytest.raises(InvocationError) as caught:
                        task.result()
                    assert caught.value.code == "aiip.interrupted"
            assert max(ran.values()) == 1
            assert ends["completed"] + ends["failed"] == TASKS
            assert ends["completed"] > TASKS // 2
            print(f"{TASKS} tasks, {KILLS} kills: {dict(ends)}, {ran.total()} bodies")
    finally:
        server.kill()


def test_what_can_go_on_after_a_crash_goes_on(place: Factory) -> None:
    """Reads run again, checkpoints are continued, and other effects are interrupted."""
    port = int(place.authority.partition(":")[2])
    server = Server(place.folder, place.authority, port)
    try:
        with place.client(allow_effects=EFFECTS) as client:
            slow, scan, copy = (client.start(place.uri(path)) for path in ("/slow", "/scan", "/copy"))
            wait_for(place.folder, "slow", "scan", "half")
            server.kill()
            (place.folder / "second").touch()
            server.start()
            assert slow.wait(PATIENCE).state == "failed"
            with pytest.raises(InvocationError) as caught:
                slow.result()
            assert (caught.value.code, caught.value.retryable) == ("aiip.interrupted", False)
            assert scan.result(PATIENCE).json() == server.process.pid
            assert copy.result(PATIENCE).json() == 3
            assert Counter(effects(place.folder)) == Counter(
                ["slow", "scan", "scan", "half", *(f"copy {item}" for item in range(6))]
            )
            states = [event.data["state"] for event in scan.events() if event.type == "state"]
            assert states == ["submitted", "working", "submitted", "working", "completed"]
    finally:
        server.kill()


def test_an_owner_that_was_taken_for_dead_changes_nothing(place: Factory) -> None:
    """Attack 95: SIGSTOP, takeover, SIGCONT."""
    port, other_port = int(place.authority.partition(":")[2]), free_port()
    first = Server(place.folder, place.authority, port, 2.0)
    second: Server | None = None
    try:
        with Line(place.authority, place.ca) as line:
            prefer = ("Prefer", "respond-async")
            tasks = {
                path: line.ask("POST", path, b"", prefer, ("Idempotency-Key", f'"{path}"')).json()["id"]
                for path in ("/slow", "/scan", "/copy")
            }
        wait_for(place.folder, "slow", "scan", "half")
        first.process.send_signal(signal.SIGSTOP)
        (place.folder / "second").touch()
        second = Server(place.folder, place.authority, other_port, 2.0)

        def end_of(line: Line, path: str) -> dict[str, Any]:
            while True:
                target = f"/.well-known/aiip/tasks/{tasks[path]}"
                status: dict[str, Any] = line.ask(
                    "GET", target, b"", ("Prefer", "wait=5"), service=False
                ).json()
                if "result" in status:
                    return status

        with Line(f"{NAME}:{other_port}", place.ca) as line:
            line.authority = place.authority
            before = {path: end_of(line, path) for path in tasks}
            states = {path: status["state"] for path, status in before.items()}
            # its owner may only be paused, so it is not continued beside it
            continued = states.pop("/copy") == "completed"
            assert states == {"/slow": "failed", "/scan": "completed"}
            assert before["/slow"]["error"]["code"] == "interrupted"
            first.process.send_signal(signal.SIGCONT)
            (place.folder / "go").touch()
            # the functions of the first process end now, and it is asked about them until it has noticed
            with Line(place.authority, place.ca) as own:
                assert {path: end_of(own, path) for path in tasks} == before
            wait_for(place.folder, "copy 3")
            result = line.ask("GET", f"/.well-known/aiip/tasks/{tasks['/scan']}/result", service=False)
            assert result.json() == second.process.pid
            assert {path: end_of(line, path) for path in tasks} == before
        ran = Counter(effects(place.folder))
        # a paused process may have one step under way; its next checkpoint is refused
        steps = 6 if continued else 4
        expected = Counter(["slow", "scan", "scan", "half", *(f"copy {item}" for item in range(steps))])
        if continued:
            # PostgreSQL ends the session of a process that was paused in a transaction: nothing tells it from
            # one that has ended. The step that was under way is repeated, and no other one
            assert (place.folder / "store").read_text().startswith("postgresql")
            expected["copy 3"] += 1
        assert ran == expected
    finally:
        first.process.send_signal(signal.SIGCONT)
        first.kill()
        if second is not None:
            second.kill()


def test_a_202_has_its_task_on_disk(place: Factory) -> None:
    """Attack 96: the process is killed as soon as 202 is there."""
    port = int(place.authority.partition(":")[2])
    server = Server(place.folder, place.authority, port)
    try:
        with place.client(allow_effects=EFFECTS) as client:
            for number in range(3):
                task = client.start(place.uri("/pay"), {"number": number})
                server.kill()
                server.start()
                assert task.wait(PATIENCE).is_final
            assert max(Counter(effects(place.folder)).values()) == 1
    finally:
        server.kill()
