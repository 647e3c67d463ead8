"""Services that add two numbers, each a process of its own on one core: an endpoint, and its peers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _registry_service import Service, _end_with_input

__all__ = ["KINDS", "question", "service"]

KINDS = ("bare", "unsigned", "signed")
AUTHORITY = "factory.example"
BODY = b'{"a":40,"b":2}'


def question() -> bytes:
    """The octets of one invocation."""
    return (
        f"POST /.well-known/aiip/v1/{AUTHORITY}/tool/add HTTP/1.1\r\nHost: {AUTHORITY}\r\n"
        f"AIIP-Nonce: {'A' * 32}\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(BODY)}\r\n\r\n"
    ).encode() + BODY


@contextmanager
def service(kind: str, folder: Path, core: int | None) -> Iterator[Service]:
    """That service; `folder` has room for its keys."""
    command = [sys.executable, str(Path(__file__).resolve()), kind, str(folder / kind)]
    command += [] if core is None else [str(core)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield Service(int(child.stdout.readline()), child.pid)
    finally:
        # its standard input ends, and so does it
        child.communicate(timeout=60)


def _endpoint(folder: str, *, signed: bool) -> Any:
    import time

    from onym.ai.endpoint import Endpoint
    from onym.sign.keystore import KeyStore

    keys = KeyStore(folder)
    keys.new(at=time.time())
    app = Endpoint(AUTHORITY, keys=keys)

    @app.resource("/tool/add")
    async def add(a: int, b: int) -> int:
        return a + b

    if not signed:
        from onym.ai.endpoint.signing import ReceiptSigner

        class Unsigned(ReceiptSigner):
            def sign_answer(self, *_: Any) -> str:
                return "unsigned"

        app._exchanges.sign_with(Unsigned(app.anchor, keys, time.time))
    return app


def _bare(_: str) -> Any:
    import msgspec

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": message["type"] + ".complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        given = msgspec.json.decode(body + message["body"])
        answer = msgspec.json.encode(given["a"] + given["b"])
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(answer)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


def main(kind: str, folder: str, core: str | None = None) -> None:
    """The child process: says its port, serves until its standard input ends."""
    from onym.server.http_server import run_app

    if core is not None:
        os.sched_setaffinity(0, {int(core)})
    threading.Thread(target=_end_with_input, daemon=True).start()
    app = _bare(folder) if kind == "bare" else _endpoint(folder, signed=kind == "signed")
    run_app(app, host="127.0.0.1", port=0, ready=lambda port: print(port, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
