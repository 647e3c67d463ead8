"""The service on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onym.errors import ConfigError, StoreError
from onym.registry.store import Store
from onym.server import http_server
from onym.server.app import create_app, run_registry, serve
from onym.server.settings import Settings
from onym.uri.secret import Secret
from server_support import routes

GET = b"GET /who?code=sekret HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\n\r\n"


def with_server(folder: Path, work: Callable[[int], Awaitable[Any]], **changes: Any) -> Any:
    """What `work` gives for the port of a server that is stopped afterwards."""

    async def main() -> Any:
        stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        given = Settings(port=0, allowed_hosts=("127.0.0.1:8000",), **changes)
        async with await Store.open(str(folder / "registry.db"), create=True) as store:
            app = create_app(given, store, routes=routes())
            task = asyncio.create_task(serve(given, app=app, ready=ready.set_result, stop=stop))
            try:
                return await work(await ready)
            finally:
                stop.set()
                await asyncio.wait_for(task, 300)

    return asyncio.run(main())


async def exchange(port: int, octets: bytes) -> bytes:
    """All that is said to these octets; nothing, if the server closed before it had them all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    with contextlib.suppress(ConnectionError):
        writer.write(octets)
        said = await asyncio.wait_for(reader.read(), 300)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return said


def test_it_serves_and_its_access_log_holds_no_query(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = with_server(tmp_path, lambda port: exchange(port, GET))
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"\r\nserver:" not in answer.lower()
    assert "/who" in caplog.text
    assert "sekret" not in caplog.text


def test_a_head_that_never_ends_is_cut_off_by_size(tmp_path: Path) -> None:
    head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nX-Much: "
    # one octet too many: a server that has more to read resets the connection
    head += b"x" * (http_server.MAX_HEAD_BYTES + 1 - len(head))
    answer = with_server(tmp_path, lambda port: exchange(port, head))
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b"The head of the request is too long.")


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: x"])
def test_a_head_that_never_ends_is_cut_off_by_time(
    tmp_path: Path, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server.BoundedProtocol, "head_seconds", 0.05)
    assert with_server(tmp_path, lambda port: exchange(port, begun)) == b""


def test_what_is_not_http_is_refused(tmp_path: Path) -> None:
    assert with_server(tmp_path, lambda port: exchange(port, b"\x16\x03\x01 hello\r\n\r\n")).startswith(
        b"HTTP/1.1 400"
    )


def test_two_requests_on_one_connection_are_answered(tmp_path: Path) -> None:
    keep = GET.replace(b"Connection: close\r\n", b"")
    answer = with_server(tmp_path, lambda port: exchange(port, keep + GET))
    assert answer.count(b"HTTP/1.1 200") == 2


def test_a_websocket_is_turned_away(tmp_path: Path) -> None:
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )

    async def work(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(upgrade)
        try:
            return await asyncio.wait_for(reader.readline(), 300)
        finally:
            writer.close()
            await writer.wait_closed()

    assert b"101" not in with_server(tmp_path, work)


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = Settings(port=taken.getsockname()[1])

        async def main() -> None:
            async with await Store.open(str(tmp_path / "r.db"), create=True) as store:
                await serve(given, app=create_app(given, store, routes=routes()))

        with pytest.raises(ConfigError) as caught:
            asyncio.run(main())
    assert caught.value.code == "config.cannot-listen"


def test_a_missing_database_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        run_registry(Settings(database=Secret(str(tmp_path / "none.db")), port=0))


def test_sockets_can_be_handed_over(tmp_path: Path) -> None:
    async def main() -> bytes:
        stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        given = Settings()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            async with await Store.open(str(tmp_path / "r.db"), create=True) as store:
                app = create_app(given, store, routes=routes())
                task = asyncio.create_task(
                    serve(given, app=app, sockets=[listener], ready=ready.set_result, stop=stop)
                )
                answer = await exchange(await ready, GET)
                stop.set()
                await asyncio.wait_for(task, 300)
                return answer

    assert asyncio.run(main()).startswith(b"HTTP/1.1 200")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_closes_the_store_without_a_complaint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = str(tmp_path / "registry.db")
    asyncio.run(made(place))
    given = Settings(database=Secret(place), port=0)
    with pytest.raises(KeyboardInterrupt):
        run_registry(given, ready=lambda _port: os.kill(os.getpid(), signal.SIGINT))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def made(place: str) -> None:
    async with await Store.open(place, create=True):
        pass
