"""A real gateway before a real authority, each a server of its own on loopback, and raw sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import trustme

from ai_support import PATIENCE, authority_ca, key_store, names_resolver, serve_asgi
from onym.ai.endpoint import Endpoint, StreamEvent
from onym.server.gateway import GatewaySettings, create_gateway
from onym.server.gateway.settings import GatewayRates
from onym.server.settings import RateLimit
from onym.sign.keystore import KeyStore

__all__ = ["AUTHORITY", "Answer", "World", "ask", "authority", "raw", "world"]

AUTHORITY = "factory.test"
_PLENTY = GatewayRates(
    reads=RateLimit(burst=10_000, per_minute=1e6),
    writes=RateLimit(burst=10_000, per_minute=1e6),
    logins=RateLimit(burst=10_000, per_minute=1e6),
)


class Late:
    """An ASGI app that is there once its port is known."""

    def __init__(self) -> None:
        self.app: Any = None
        #: where the authority listens, once it does
        self.port = 0
        #: who signed its certificate
        self.ca: trustme.CA | None = None
        #: room for its keys
        self.folder = Path()
        self.seen: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        self.seen.append(scope)
        await self.app(scope, receive, send)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        messages = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))

        async def told() -> Any:
            return next(messages)

        async def heard(_: Any) -> None:
            return

        if self.app is not None:
            await self.app({"type": "lifespan"}, told, heard)
        await send({"type": "lifespan.shutdown.complete"})


@dataclass(frozen=True)
class Answer:
    """What came back: status, fields by lower-case name, body; `fields` are all of them."""

    status: int
    headers: dict[str, str]
    body: bytes
    fields: list[tuple[str, str]] = field(default_factory=list)

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class World:
    """A gateway that listens at `port`, before an authority."""

    port: int
    authority: str
    settings: GatewaySettings
    endpoint: Late
    folder: Path
    keys: KeyStore
    gateway: Any = None

    @property
    def base(self) -> str:
        return self.settings.base_url

    def path(self, resource: str) -> str:
        return f"/gateway/{self.authority}{resource}"

    def ask(self, method: str, resource: str, body: bytes | None = None, **headers: str) -> Answer:
        path = resource if resource.startswith(("/gateway/", "//")) else self.path(resource)
        return ask(self.port, method, path, body, **headers)

    def at(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        return ask(self.port, method, path, body, **headers)

    def lines(self) -> list[dict[str, Any]]:
        """The audit log."""
        return [json.loads(line) for line in (self.folder / "audit.jsonl").read_bytes().splitlines()]


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            given.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, given)
        reply = connection.getresponse()
        fields = [(name.lower(), value) for name, value in reply.getheaders()]
        return Answer(reply.status, dict(fields), reply.read(), fields)
    finally:
        connection.close()


def raw(port: int, octets: bytes) -> bytes:
    """All that a server says to these octets, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
        with contextlib.suppress(ConnectionError):
            line.sendall(octets)
        found = b""
        while True:
            try:
                data = line.recv(65536)
            except ConnectionError:
                return found
            if not data:
                return found
            found += data


def authority(name: str, port: int, folder: Path) -> Endpoint:
    """The resources that the tests ask for."""
    app = Endpoint(
        f"{name}:{port}",
        keys=key_store(folder),
        title="The factory",
        store=folder / "idempotency.db",
        policy="permit(principal, action, resource);",
    )
    add_resources(app)
    return app


def add_story(app: Endpoint) -> None:
    @app.resource("/tool/tell", title="Tell a story")
    async def tell() -> AsyncIterator[StreamEvent]:
        for word in ("Once ", "upon ", "a time."):
            yield StreamEvent(data=json.dumps({"text": word}))
        yield StreamEvent(data=json.dumps({"text": "Once upon a time.", "finish": "stop"}), event="result")


def add_resources(app: Endpoint) -> None:
    add_story(app)

    @app.resource("/tool/add", title="Add two numbers")
    def add(a: int, b: int, note: str = "") -> dict[str, Any]:
        return {"sum": a + b, "note": note}

    @app.resource("/tool/greet", title="Say hello")
    async def greet(name: str, language: Literal["en", "de"] = "en", loud: bool = False) -> str:
        words = {"en": "Hello", "de": "Guten Tag"}[language] + f", {name}!"
        return words.upper() if loud else words

    @app.resource("/tool/count", title="Count")
    async def count(to: int = 3) -> AsyncIterator[dict[str, int]]:
        for number in range(to):
            yield {"number": number}

    @app.resource("/tool/page", title="A page with a script", media_type="text/html")
    def html() -> str:
        return "<script>document.cookie='a=b'</script>"

    @app.resource("/agent/forklift", effects="physical", title="Move the forklift")
    def move(to: str) -> str:
        return to

    @app.resource("/tool/write", effects="write", title="Write something")
    def write(text: str) -> str:
        return text

    @app.resource("/tool/secret", scopes=("read",), title="For some")
    def secret() -> str:
        return "secret"

    @app.resource("/tool/fail", title="It fails")
    def fail() -> str:
        raise RuntimeError("a secret detail")


@contextlib.contextmanager
def world(
    *,
    late: Late | None = None,
    prepare: Callable[[str], Mapping[str, Any]] | None = None,
    server: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Iterator[World]:
    """A gateway and an authority behind it; `late` may hold another app for the authority.

    `prepare` gets the gateway's URL before there is a gateway, and returns more settings. `server` are
    options of the gateway's listener.
    """
    ca = authority_ca()
    with TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "authority").mkdir()
        (folder / "gateway").mkdir()
        ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        endpoint = late or Late()
        endpoint.folder = folder / "authority"
        port = stack.enter_context(serve_asgi(endpoint, AUTHORITY, "other.test", ca=ca))
        endpoint.port, endpoint.ca = port, ca
        if late is None:
            endpoint.app = authority(AUTHORITY, port, folder / "authority")
        front = Late()
        outside = stack.enter_context(serve_asgi(front, **(server or {})))
        keys = KeyStore(folder / "gateway" / "keys")
        keys.new("Ed25519", at=time.time() - 60)
        given: dict[str, Any] = {
            "base_url": f"http://127.0.0.1:{outside}",
            "keys": str(folder / "gateway" / "keys"),
            "audit": str(folder / "audit.jsonl"),
            "network": "local",
            "ports": (port,),
            "ca_files": (str(folder / "ca.pem"),),
            "timeout": 600,
            "rates": _PLENTY,
            "dns": False,
            **(prepare(f"http://127.0.0.1:{outside}") if prepare is not None else {}),
            **changes,
        }
        clock = given.pop("clock", None)
        settings = GatewaySettings(**given)
        resolver = names_resolver({AUTHORITY: "127.0.0.1", "other.test": "127.0.0.1"})
        front.app = create_gateway(settings, resolver=resolver, clock=clock)
        yield World(
            port=outside,
            authority=f"{AUTHORITY}:{port}",
            settings=settings,
            endpoint=endpoint,
            folder=folder,
            keys=keys,
            gateway=front.app,
        )
