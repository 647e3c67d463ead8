"""A receiver of webhooks: a real HTTP server that checks signatures as Standard Webhooks says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

__all__ = ["Delivery", "Receiver", "receive_webhooks", "write_secret"]

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@dataclass(frozen=True)
class Delivery:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def is_signed(self, key: bytes = KEY) -> bool:
        head = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}."
        digest = hmac.new(key, head.encode() + self.body, hashlib.sha256).digest()
        return f"v1,{base64.b64encode(digest).decode()}" in self.headers["webhook-signature"].split()


@dataclass
class Receiver:
    """What arrived, and the statuses of the next answers (200 after those)."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    arrived: Queue[Delivery] = field(default_factory=Queue)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/registry"

    def take(self) -> list[Delivery]:
        """Everything that has arrived until now."""
        return [self.arrived.get_nowait() for _ in range(self.arrived.qsize())]


@contextmanager
def receive_webhooks() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            fields = {name.lower(): value for name, value in self.headers.items()}
            receiver.arrived.put(Delivery(self.path, fields, body))
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def write_secret(folder: Path, *lines: str) -> str:
    """Write a file that only its owner may read, and return its path."""
    path = folder / "hook.secret"
    path.touch(mode=0o600)
    path.write_text("\n".join(lines or (SECRET,)) + "\n")
    return str(path)
