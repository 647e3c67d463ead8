"""An authority with resources of each kind, on real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from ai_support import PATIENCE, Heard, Line, authority_ca, key_store, serve_authority
from onym.ai.endpoint import Endpoint

NAME = "factory.test"
Post = Callable[..., Awaitable[Heard]]


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return authority_ca()


@pytest.fixture
def serving(tmp_path: Path, ca: trustme.CA) -> Callable[..., Any]:
    """Serves an endpoint whose resources `fill` adds; gives it and a connection to it."""

    @contextlib.contextmanager
    def serve(fill: Callable[[Endpoint], object], **options: Any) -> Iterator[tuple[Endpoint, Line]]:
        given = {"store": tmp_path / "keys.sqlite", **options}
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        keys = given.pop("keys", None) or key_store(folder)

        def make(authority: str) -> Endpoint:
            app = Endpoint(authority, keys=keys, **given)
            fill(app)
            return app

        with serve_authority(make, NAME, ca=ca) as (app, authority), Line(authority, ca) as line:
            yield app, line

    return serve


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., None]:
    """Runs a scenario with an endpoint of these options, and with what posts to it without a server."""

    def play(scenario: Callable[[Endpoint, Post], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            given = {"keys": key_store(tmp_path), "store": tmp_path / "keys.sqlite", **options}
            app = Endpoint(NAME, **given)
            try:
                async with asyncio.timeout(PATIENCE):
                    await scenario(app, _posts(app))
            finally:
                await app.aclose()

        asyncio.run(main())

    return play


def _posts(app: Endpoint) -> Post:
    async def post(
        path: str,
        key: str | None = None,
        *fields: tuple[str, str],
        address: str = "192.0.2.1",
        **given: Any,
    ) -> Heard:
        body = json.dumps(given).encode() if given else b""
        asked = [("host", NAME), *fields]
        if body:
            asked += [("content-type", "application/json"), ("content-length", str(len(body)))]
        if key is not None:
            asked.append(("idempotency-key", f'"{key}"'))
        scope = {
            "type": "http",
            "method": "POST",
            "raw_path": f"/.well-known/aiip/v1/{NAME}{path.partition('?')[0]}".encode(),
            "query_string": path.partition("?")[2].encode(),
            "headers": [(name.encode(), value.encode()) for name, value in asked],
            "client": (address, 40_000),
        }
        sent: list[dict[str, Any]] = []
        coming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return coming.pop() if coming else await asyncio.Future()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await app(scope, receive, send)
        head = tuple((name.decode(), value.decode()) for name, value in sent[0]["headers"])
        return Heard(sent[0]["status"], head, b"".join(each.get("body", b"") for each in sent[1:]))

    return post
