"""Long tasks through the client: begun, resumed, and never believed without their receipt (3.12)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from ai_factory import NAME, Factory
from ai_support import LOOPBACK, PATIENCE, authority_ca, key_store, serve_asgi
from onym.ai.client_flows import Session
from onym.ai.endpoint import Endpoint, StreamEvent, Task, ThreadTask, task_runner
from onym.ai.endpoint.signing import ReceiptRequest
from onym.ai.records import Resolution, TaskState, TaskStatus
from onym.ai.settings import ResolverSettings
from onym.ai.tasks import TaskFlows, TaskReference
from onym.errors import InvocationError, ProvenanceError, TaskRunning, UsageError
from onym.net.messages import Flow


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return authority_ca()


@dataclass
class Zone:
    zone: str


class Cutter:
    """A relay before a server, whose connections can be cut at any moment."""

    def __init__(self) -> None:
        self.listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self.listener.getsockname()[1]
        self.upstream = 0
        self.cuts = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End it, with all its threads."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._threads[0].join(PATIENCE)
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE)

    def cut(self) -> None:
        """End every connection without a goodbye."""
        with self._lock:
            found, self._open = self._open, set()
        for each in found:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.cuts += 1

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection((LOOPBACK, self.upstream))
                except OSError:
                    near.close()
                    raise
                with self._lock:
                    self._open |= {near, far}
                relay = threading.Thread(target=self._relay, args=(near, far), daemon=True)
                self._threads.append(relay)
                relay.start()

    def _relay(self, near: socket.socket, far: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        with self._lock:
            self._open -= {near, far}
        near.close()
        far.close()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while octets := one.recv(65536):
                other.sendall(octets)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Works:
    def __init__(self) -> None:
        self.go = threading.Event()
        self.ran: list[int] = []
        self.steps = 60

    def fill(self, app: Endpoint) -> None:
        @app.resource("/pay", effects="financial", task=True)
        def pay(amount: int, task: ThreadTask) -> dict[str, int]:
            self.ran.append(amount)
            task.progress(1, 2)
            self.go.wait(PATIENCE)
            task.raise_if_cancelled()
            return {"paid": amount}

        @app.resource("/count", task=True)
        async def count(task: Task) -> int:
            step = 0
            while step < self.steps:
                task.progress(step, self.steps)
                await asyncio.sleep(0.03)
                step += 1
            return self.steps

        @app.resource("/move", task=True)
        async def move(task: Task) -> str:
            return (await task.ask(Zone, "Which zone?")).zone

        @app.resource("/add")
        def add(a: int, b: int) -> int:
            return a + b


Wrap = Callable[[Endpoint], Any]


@contextlib.contextmanager
def served(
    folder: Path, ca: trustme.CA, works: Works, wrap: Wrap = lambda app: app, **options: Any
) -> Iterator[tuple[Factory, Cutter]]:
    cutter = Cutter()
    authority = f"{NAME}:{cutter.port}"
    keys = key_store(folder)
    app = Endpoint(
        authority,
        keys=keys,
        store=folder / "keys.sqlite",
        policy="permit(principal, action, resource);",
        **options,
    )
    works.fill(app)
    try:
        with serve_asgi(wrap(app), NAME, ca=ca) as cutter.upstream:
            yield Factory(app=app, authority=authority, keys=keys, folder=folder, ca=ca), cutter
    finally:
        works.go.set()
        cutter.close()


def test_a_task_is_begun_waited_for_and_its_result_verified(tmp_path: Path, ca: trustme.CA) -> None:
    works = Works()
    with served(tmp_path, ca, works) as (factory, _), factory.client(allow_effects=["financial"]) as client:
        task = client.start(factory.uri("/pay"), {"amount": 7})
        assert task.first is not None
        assert task.first.state in {"submitted", "working"}
        with pytest.raises(TaskRunning) as caught:
            task.result(timeout=0.01)
        assert (caught.value.task, caught.value.code) == (task.id, "aiip.task-running")
        assert task.reference is not None
        stored = task.reference.as_dict()
        works.go.set()
        status = task.wait()
        assert (status.state, status.is_final) == ("completed", True)
        result = task.result()
        assert result.json() == {"paid": 7}
        assert (result.receipt.task, result.receipt.original) == (task.id, task.first.request)
        with factory.client() as other:
            again = other.task(TaskReference(**stored))
            assert again.result().json() == {"paid": 7}
            assert [event.type for event in again.events()][-1] == "state"
            with pytest.raises(InvocationError) as late:
                again.cancel()
            assert late.value.code == "aiip.task-not-cancelable"
    assert works.ran == [7]


def test_a_task_through_coroutines(tmp_path: Path, ca: trustme.CA) -> None:
    works = Works()
    works.steps = 3

    async def main(factory: Factory) -> None:
        async with factory.aclient() as client:
            task = await client.start(factory.uri("/count"))
            states = [event async for event in task.events()]
            assert [event.seq for event in states] == list(range(1, len(states) + 1))
            assert (await task.wait(PATIENCE)).state == "completed"
            assert (await task.result()).json() == 3
            assert task.reference is not None
            asked = await client.start(factory.uri("/move"))
            waiting = await asked.wait(PATIENCE)
            assert (waiting.state, waiting.inputs is not None) == ("input-required", True)
            with pytest.raises(TaskRunning):
                await asked.result()
            with pytest.raises(InvocationError) as caught:
                await asked.send_input({"zone": 3})
            assert caught.value.code == "aiip.invalid-input"
            await asked.send_input({"zone": "A3"})
            assert (await asked.result()).body == b"A3"
            assert (await (await client.task(task.reference)).status()).state == "completed"
            other = await client.start(factory.uri("/move"))
            assert (await other.cancel()).canceling
            with pytest.raises(InvocationError) as canceled:
                await other.result()
            assert canceled.value.code == "aiip.task-canceled"

    with served(tmp_path, ca, works) as (factory, _):
        asyncio.run(main(factory))


def test_a_resource_without_tasks_gives_its_result_at_once(tmp_path: Path, ca: trustme.CA) -> None:
    with served(tmp_path, ca, Works()) as (factory, _), factory.client() as client:
        task = client.start(factory.uri("/add"), {"a": 1, "b": 2})
        assert (task.id, task.result().json()) == (None, 3)
        with pytest.raises(UsageError):
            task.status()


def test_who_did_not_ask_for_a_task_is_told_of_it(tmp_path: Path, ca: trustme.CA) -> None:
    """An endpoint that answers 202 to a plain invocation does not look like a result."""

    def wrap(app: Endpoint) -> Any:
        async def push(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["method"] == "POST":
                scope = scope | {"headers": [*scope["headers"], (b"prefer", b"respond-async")]}
            await app(scope, receive, send)

        return push

    with served(tmp_path, ca, Works(), wrap) as (factory, _), factory.client() as client:
        with pytest.raises(TaskRunning) as caught:
            client.invoke(factory.uri("/count"))
        assert caught.value.exit_code == 15


def test_events_survive_fifty_cuts(tmp_path: Path, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """A8: whoever resumes has every event once, and a receipt over all of them."""
    monkeypatch.setattr(task_runner, "_PROGRESS_SECONDS", 0.0)
    works = Works()
    works.steps = 1_000_000
    with served(tmp_path, ca, works) as (factory, cutter), factory.client() as client:
        task = client.start(factory.uri("/count"))
        found = []
        for event in task.events():
            found.append(event)
            if cutter.cuts < 50:
                cutter.cut()
            else:  # one event can tell of several steps: the work ends after the last cut, not after so many
                works.steps = 0
        assert cutter.cuts == 50
        assert [event.seq for event in found] == list(range(1, len(found) + 1))
        assert found[-1].data == {"state": "completed", "status": 200}
        whole = list(task.events())
        assert whole == found


def test_a_wait_and_a_result_survive_cuts(tmp_path: Path, ca: trustme.CA) -> None:
    works = Works()
    with (
        served(tmp_path, ca, works) as (factory, cutter),
        factory.client(allow_effects=["financial"]) as client,
    ):
        task = client.start(factory.uri("/pay"), {"amount": 7})
        done: list[Any] = []
        waiter = threading.Thread(target=lambda: done.append(task.result().json()))
        waiter.start()
        for _ in range(3):
            time.sleep(0.1)  # a cut matters while the request waits; without a request it does nothing
            cutter.cut()
        works.go.set()
        waiter.join(PATIENCE)
        assert done == [{"paid": 7}]


class Lying:
    """Passes requests for the task `a` on as requests for the task `b`, or changes what is sent."""

    def __init__(self, app: Endpoint) -> None:
        self.app = app
        self.swap: tuple[str, str] | None = None
        self.header: tuple[bytes, bytes] | None = None
        self.change: Callable[[bytes], bytes] = lambda octets: octets

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            path = scope["raw_path"]
            if self.swap is not None:
                path = path.replace(self.swap[0].encode(), self.swap[1].encode())
            headers = scope["headers"]
            if self.header is not None:
                headers = [each for each in headers if each[0] != self.header[0]] + [self.header]
            scope = scope | {"raw_path": path, "headers": headers}

        async def changed(message: Any) -> None:
            if message["type"] == "http.response.body":
                message = message | {"body": self.change(message.get("body", b""))}
            await send(message)

        await self.app(scope, receive, changed)


@pytest.fixture
def lie(tmp_path: Path, ca: trustme.CA) -> Iterator[tuple[Lying, Factory]]:
    liars: list[Lying] = []
    works = Works()
    works.steps = 5

    def wrap(app: Endpoint) -> Lying:
        liars.append(Lying(app))
        return liars[0]

    with served(tmp_path, ca, works, wrap) as (factory, _):
        yield liars[0], factory


def test_the_result_of_another_task_is_refused(lie: tuple[Lying, Factory]) -> None:
    liar, factory = lie
    with factory.client() as client:
        one, two = (client.start(factory.uri("/count")) for _ in range(2))
        assert one.wait(PATIENCE).is_final
        assert two.wait(PATIENCE).is_final
        liar.swap = (one.id or "", two.id or "")
        for use in (one.result, one.status, lambda: list(one.events())):
            with pytest.raises(ProvenanceError) as caught:
                use()
            assert caught.value.code == "aiip.provenance-invalid"
        liar.swap = None
        assert one.result().json() == 5


@pytest.mark.parametrize("claim", ["task", "original", "target"])
def test_a_result_whose_receipt_names_no_task_is_refused(lie: tuple[Lying, Factory], claim: str) -> None:
    liar, factory = lie
    with factory.client() as client:
        task = client.start(factory.uri("/count"))
        task.wait(PATIENCE)
        service: Any = liar.app._exchanges.tasks
        honest = service.send_signed

        async def forget(request: ReceiptRequest, answer: Any, send: Any) -> None:
            await honest(replace(request, **{claim: None}), answer, send)

        service.send_signed = forget
        with pytest.raises(ProvenanceError) as caught:
            task.result()
        assert caught.value.code == "aiip.provenance-invalid"
        service.send_signed = honest
        assert task.result().json() == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda octets: octets.replace(b'"done":0.0', b'"done":9.0'),
        lambda octets: octets.replace(b"id: 2\n", b"id: 3\n"),
        lambda octets: octets.replace(b"event: progress", b"event: state"),
        lambda octets: octets.replace(b"event: receipt", b"event: recite"),
    ],
    ids=["data", "number", "type", "no receipt"],
)
def test_events_that_were_changed_are_refused(
    lie: tuple[Lying, Factory], change: Callable[[bytes], bytes]
) -> None:
    liar, factory = lie
    with factory.client() as client:
        task = client.start(factory.uri("/count"))
        task.wait(PATIENCE)
        liar.change = change
        with pytest.raises(ProvenanceError):
            list(task.events())


@pytest.mark.parametrize("renumbered", [False, True])
def test_events_in_another_order_are_refused(lie: tuple[Lying, Factory], renumbered: bool) -> None:
    """Attack 93: two events change places, with their numbers or without."""
    liar, factory = lie
    held: list[bytes] = []

    def swap(octets: bytes) -> bytes:
        if octets.startswith(b"id: 2\n"):
            held.append(octets)
            return b""
        if octets.startswith(b"id: 3\n") and held:
            first, second = octets, held.pop()
            if renumbered:
                first, second = first.replace(b"id: 3", b"id: 2"), second.replace(b"id: 2", b"id: 3")
            return first + second
        return octets

    with factory.client() as client:
        task = client.start(factory.uri("/count"))
        task.wait(PATIENCE)
        whole = list(task.events())
        liar.change = swap
        with pytest.raises(ProvenanceError):
            list(task.events())
        assert not held
        liar.change = lambda octets: octets
        assert list(task.events()) == whole


def test_events_resumed_at_another_number_are_refused(lie: tuple[Lying, Factory]) -> None:
    liar, factory = lie
    with factory.client() as client:
        task = client.start(factory.uri("/count"))
        task.wait(PATIENCE)
        liar.header = (b"last-event-id", b"2")
        with pytest.raises(ProvenanceError):
            list(task.events())
        liar.header = None
        assert list(task.events())


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (0.0, 1.0), (3600.0, 30.0)])
def test_an_endpoint_that_does_not_hold_requests_is_asked_as_often_as_it_wants(
    asked: float, waited: float
) -> None:
    """AIIP/HTTPS v1 3.12: `pollAfter`."""
    now, reference = [1_000.0], TaskReference(uri="ai://a.example/x", id="t" * 22, request="r" * 43)
    known = {"id": reference.id, "target": reference.uri, "request": reference.request}
    status = TaskStatus(state=TaskState.WORKING, created=1.0, updated=1.0, poll_after=asked, **known)

    class Impatient(TaskFlows):
        def fetch_status(self, wait: float = 0.0) -> Flow[TaskStatus]:
            yield from ()
            return status

    session = Session(settings=ResolverSettings(clock=lambda: now[0]))
    waits: list[float] = []

    def wait() -> None:
        for step in Impatient(session, cast("Resolution", None), reference).wait_for_end(100.0):
            waits.append(step.seconds)
            now[0] += step.seconds

    with pytest.raises(TaskRunning):
        wait()
    assert waits[0] == waited
    assert set(waits[:-1]) <= {waited}
    assert sum(waits) == pytest.approx(100.0, abs=0.3)


def test_a_reference_is_checked() -> None:
    with pytest.raises(UsageError):
        TaskReference(uri="ai://a.example/x", id="../x", request="y")


def test_a_stream_is_no_task(tmp_path: Path, ca: trustme.CA) -> None:
    """A handler that streams although it was asked for a result ends its task as failed."""

    class Streams:
        def describe(self) -> dict[str, Any]:
            return {}

        async def invoke(self, call: Any) -> Any:
            async def events() -> Any:
                yield StreamEvent(data="x")

            return events()

    works = Works()
    with served(tmp_path, ca, works) as (factory, _), factory.client() as client:
        factory.app.add("/streams", Streams(), task=True)
        task = client.start(factory.uri("/streams"))
        assert task.wait(PATIENCE).state == "failed"


def test_a_reading_function_in_a_thread_is_cancelled_when_it_has_ended(
    tmp_path: Path, ca: trustme.CA
) -> None:
    go, began = threading.Event(), threading.Event()

    def scan(task: ThreadTask) -> int:
        began.set()
        go.wait(PATIENCE)
        task.raise_if_cancelled()
        return 1

    with served(tmp_path, ca, Works()) as (factory, _), factory.client() as client:
        factory.app.resource("/scan", task=True)(scan)
        task = client.start(factory.uri("/scan"))
        assert began.wait(PATIENCE)
        assert task.cancel().canceling
        with pytest.raises(TaskRunning):
            task.wait(1.5)
        assert task.status().state == "working"
        go.set()
        assert task.wait(PATIENCE).state == "canceled"
