"""Applications of ours, served by uvicorn in a thread on a free port."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from loop_support import loop_thread

__all__ = ["Service", "registry_service", "run_app"]

_Result = TypeVar("_Result")


@contextmanager
def run_app(app: Any, **options: Any) -> Iterator[str]:
    """Serve an ASGI application with uvicorn in a thread, on a free port; its base URL, without a slash."""
    import uvicorn

    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", **options)
    server, ready = uvicorn.Server(config), threading.Event()
    begin = server.startup

    async def startup(sockets: list[socket.socket] | None = None) -> None:
        await begin(sockets)
        ready.set()

    server.startup = startup  # type: ignore[method-assign]
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            server.run([listener])
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)
        finally:
            ready.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, name="uvicorn", daemon=True)
        thread.start()
        try:
            assert ready.wait(timeout=600), "uvicorn did not start"
            assert server.started, f"the application did not start: {failures}"
            scheme = "https" if config.is_ssl else "http"
            yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=600)
    assert not failures, failures


@dataclass
class Service:
    """The registry's own service, running. `now` is its clock, to be moved; None is the true time."""

    url: str
    now: datetime | None = None
    _submit: Callable[[Coroutine[Any, Any, Any]], Any] = field(default=lambda work: None, repr=False)
    _store: Any = field(default=None, repr=False)

    def clock(self) -> datetime:
        """The time as the service sees it."""
        return self.now or datetime.now(UTC)

    def ask(self, work: Callable[[Any], Coroutine[Any, Any, _Result]]) -> _Result:
        """`work(store)` in the service's own loop; its result."""
        result: _Result = self._submit(work(self._store))
        return result


@contextmanager
def registry_service(
    database: str, *, seed: Callable[[Any], Coroutine[Any, Any, Any]] | None = None, **settings: Any
) -> Iterator[Service]:
    """`onym registry serve` in a thread, on a free port, over a database that is made if it is not there.

    `seed(store)` fills it before the first request. `settings` are fields of `onym.server.Settings`.
    """
    from onym.registry.store import Store
    from onym.server.app import create_app, serve
    from onym.server.settings import load_settings

    with socket.create_server(("127.0.0.1", 0)) as listener, loop_thread("registry") as submit:
        service = Service(f"http://127.0.0.1:{listener.getsockname()[1]}", _submit=submit)
        ready = threading.Event()
        chosen = load_settings(
            environ={}, database=database, base_url=service.url, **{"profile": "any", **settings}
        )

        async def begin() -> tuple[asyncio.Task[None], asyncio.Event]:
            service._store = await Store.open(database, create=True)
            if seed is not None:
                await seed(service._store)
            stop = asyncio.Event()
            app = create_app(chosen, service._store, clock=service.clock)
            running = serve(chosen, app=app, sockets=[listener], ready=lambda _: ready.set(), stop=stop)
            task = asyncio.create_task(running)
            task.add_done_callback(lambda _: ready.set())
            return task, stop

        async def end(task: asyncio.Task[None], stop: asyncio.Event) -> None:
            stop.set()
            try:
                await task
            finally:
                await service._store.close()

        task, stop = submit(begin())
        try:
            assert ready.wait(timeout=600), "the service did not start"
            yield service
        finally:
            submit(end(task, stop))
