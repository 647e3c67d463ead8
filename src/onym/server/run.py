"""Running the registry's service: its application on its store, listened for by `onym.server.listen`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onym.server import listen
from onym.server._protocol import BoundedProtocol

if TYPE_CHECKING:
    import socket

    from onym.registry.store import Store
    from onym.server.settings import Settings

__all__ = ["run", "serve"]


def run(settings: Settings, *, ready: Callable[[int], object] | None = None) -> None:
    """Serve until SIGINT or SIGTERM. Raises ConfigError, StoreError.

    `ready` is called with the port once the service listens; port 0 of the settings takes a free one.
    """
    with asyncio.Runner(loop_factory=listen.loop_factory()) as runner:
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

    store = await Store.open(settings.database)
    try:
        await _serve(settings, create_app(settings, store), sockets, ready, stop)
    finally:
        await _close(store)


async def _close(store: Store) -> None:
    """Close it whole: after Ctrl-C this task is cancelled, which would end the closing before its time."""
    closing = asyncio.ensure_future(store.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


async def _serve(
    settings: Settings,
    app: Any,
    sockets: Sequence[socket.socket] | None,
    ready: Callable[[int], object] | None,
    stop: asyncio.Event | None,
) -> None:
    await listen.serve(
        app,
        host=settings.host,
        port=settings.port,
        # TLS is the business of a proxy in front, and the middlewares read what it forwards themselves
        plain=True,
        sockets=sockets,
        ready=ready,
        stop=stop,
        protocol=BoundedProtocol,
    )
