"""Running the service: uvicorn in one process, stopped gracefully, its access log without queries."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from onym.errors import ConfigError
from onym.server._protocol import BoundedProtocol
from onym.uri.redact import install_logging_filter

if TYPE_CHECKING:
    from onym.server.settings import Settings

__all__ = ["QueryFilter", "run", "serve"]

#: seconds for open requests to end, and for an idle connection to be used again
_GRACE: Final = 10
_IDLE: Final = 15
_MOST_CONNECTIONS: Final = 2000


class QueryFilter(logging.Filter):
    """Takes the query out of an access log's line: it may hold a code or what somebody searched for."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten the path in place; always True."""
        if isinstance(record.args, tuple):
            record.args = tuple(
                each.partition("?")[0] if isinstance(each, str) and each.startswith("/") else each
                for each in record.args
            )
        return True


class _Server(uvicorn.Server):
    """A server that tells when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], object] | None) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell the port."""
        await super().startup(sockets=sockets)
        if self._ready is not None and self.started:
            self._ready(int(self.servers[0].sockets[0].getsockname()[1]))


def run(settings: Settings, *, ready: Callable[[int], object] | None = None) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConfigError, StoreError.

    `ready` is called with the port once the service listens; port 0 of the settings takes a free one.
    """
    with asyncio.Runner(loop_factory=_loop()) as runner:
        runner.run(serve(settings, ready=ready))


async def serve(
    settings: Settings,
    *,
    app: Any = None,
    sockets: Sequence[socket.socket] | None = None,
    ready: Callable[[int], object] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve in this loop until a signal comes or `stop` is set.

    `app` is made on the settings' store where left out; `sockets` are listened on instead of the settings'
    address. Raises ConfigError where nothing can be listened on, StoreError.
    """
    if app is not None:
        await _serve(settings, app, sockets, ready, stop)
        return
    from onym.registry.store import Store  # late: the database library is heavy
    from onym.server.app import create_app

    async with await Store.open(settings.database) as store:
        await _serve(settings, create_app(settings, store), sockets, ready, stop)


async def _serve(
    settings: Settings,
    app: Any,
    sockets: Sequence[socket.socket] | None,
    ready: Callable[[int], object] | None,
    stop: asyncio.Event | None,
) -> None:
    server = _Server(_config(settings, app), ready)
    watch = None if stop is None else asyncio.create_task(_stop(server, stop))
    try:
        await server.serve(sockets=None if sockets is None else list(sockets))
    except SystemExit:
        # uvicorn ends the process where it cannot start; its log has the reason
        raise ConfigError(
            f"cannot listen on {settings.host} port {settings.port}",
            code="config.cannot-listen",
            hint="is something else listening there?",
        ) from None
    finally:
        if watch is not None:
            watch.cancel()


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, where there is one."""
    try:
        import uvloop  # Windows has none
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _stop(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _config(settings: Settings, app: Any) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=BoundedProtocol,
        ws="none",
        loop="none",
        lifespan="on",
        workers=1,
        log_config=None,
        # the middlewares read X-Forwarded-For themselves, from trusted proxies alone
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=_GRACE,
    )
    access = logging.getLogger("uvicorn.access")
    if not any(isinstance(each, QueryFilter) for each in access.filters):
        access.addFilter(QueryFilter())
    for name in ("uvicorn.access", "uvicorn.error", "onym.server"):
        install_logging_filter(logging.getLogger(name))
    return config
