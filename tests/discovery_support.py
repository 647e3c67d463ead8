"""Origins for the tests of discovery: pages and documents by path, on TLS; DNS answers from a table."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from ai_support import LOOPBACK, ai_policy, names_resolver, serve_asgi, trust
from onym.ai.discovery.evaluation import Discovery, discover_authority
from onym.ai.settings import ResolverSettings
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.messages import SRV, Ask, ConnectionInfo, Flow, Headers, Records, Reply, Send
from onym.net.policy import Policy
from onym.net.transport import Transport, run_flow
from onym.sign.keys import SigningKey

__all__ = ["DOCUMENT", "KEYS", "Clock", "FakeRecords", "Site", "World", "by_hand", "srv", "txt", "world_of"]

DOCUMENT = "/.well-known/aiip"
KEYS = "/.well-known/aiip.jwks.json"


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


@dataclass
class Answer:
    """What a path gives."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Site:
    """One origin. `asked` keeps the path and If-None-Match of every request."""

    def __init__(self, authority: str) -> None:
        self.authority = authority
        self.origin = f"https://{authority}"
        self.key = SigningKey.generate("Ed25519").with_thumbprint()
        self.pages: dict[str, Answer] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.reset()

    def reset(self) -> None:
        """As it was at first."""
        self.pages.clear()
        self.asked.clear()
        self.publish()
        self.publish_keys(self.key)

    @property
    def uri(self) -> str:
        """The resource that the document names."""
        return f"ai://{self.authority}/pay"

    def put(
        self, path: str, body: bytes | str, kind: str = "text/html", status: int = 200, **more: str
    ) -> None:
        """Let a path give this; `more` are header fields, `_` for `-`."""
        octets = body if isinstance(body, bytes) else body.encode()
        fields = {"content-type": kind, **{name.replace("_", "-"): value for name, value in more.items()}}
        headers = [(name.encode(), value.encode()) for name, value in fields.items() if value]
        self.pages[path] = Answer(status, headers, octets)

    def publish(self, *, etag: str = "", cache_control: str = "", **members: Any) -> None:
        """The anchor document, with these members instead."""
        document = {"endpoint": self.uri, "jwks": self.origin + KEYS, **members}
        self.put(DOCUMENT, json.dumps(document), "application/json", etag=etag, cache_control=cache_control)

    def publish_keys(self, *keys: SigningKey, cache_control: str = "") -> None:
        """The key set."""
        body = json.dumps({"keys": [each.public() for each in keys]})
        self.put(KEYS, body, "application/jwk-set+json", cache_control=cache_control)

    def count(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(each == path for each, _ in self.asked)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        match = headers.get(b"if-none-match")
        path = scope["raw_path"].decode()
        self.asked.append((path, match.decode() if match else None))
        answer = self.pages.get(path, Answer(404, [(b"content-type", b"text/plain")], b"none"))
        if match is not None and (b"etag", match) in answer.headers:
            answer = Answer(304, answer.headers, b"")
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})


class FakeRecords:
    """DNS answers from a table; what is not in it does not exist."""

    def __init__(self, table: Mapping[tuple[str, str], Records] | None = None) -> None:
        self.table = dict(table or {})

    def ask(self, ask: Ask) -> Records:
        return self.table.get((ask.name, ask.kind), Records(status="none", detail="no such name"))


def srv(port: int, target: str, *, validated: bool = True) -> Records:
    """One SRV record."""
    return Records(status="found", values=(SRV(0, 0, port, target),), validated=validated)


def txt(*texts: str, validated: bool = True) -> Records:
    """TXT records."""
    return Records(status="found", values=texts, validated=validated)


@dataclass
class World:
    """Origins by name, on ports of loopback, and how to reach them."""

    sites: dict[str, Site]
    tls: TLSConfig
    policy: Policy
    records: FakeRecords = field(default_factory=FakeRecords)
    clock: Clock = field(default_factory=Clock)
    settings: ResolverSettings = field(default_factory=ResolverSettings)

    def __post_init__(self) -> None:
        self.settings = ResolverSettings(clock=self.clock)

    def anew(self) -> World:
        """The same servers, as if nothing had happened."""
        for site in self.sites.values():
            site.reset()
        return World(self.sites, self.tls, self.policy)

    @property
    def bank(self) -> Site:
        return self.sites["bank.test"]

    @contextlib.contextmanager
    def transport(self) -> Iterator[Transport]:
        names = names_resolver(dict.fromkeys(self.sites, LOOPBACK))
        with Transport(
            NetConfig(policy=self.policy, resolver=names, tls=self.tls, records=self.records)
        ) as wire:  # type: ignore[arg-type]
            yield wire

    def run(self, flow: Flow[Any]) -> Any:
        """Drive a flow to its end."""
        with self.transport() as wire:
            return run_flow(flow, wire)

    def discover(self, question: str | None = None) -> Discovery:
        """Discover the bank, or what is asked."""
        found = self.run(discover_authority(question or self.bank.authority, self.settings))
        assert isinstance(found, Discovery)
        return found

    def discover_success(self, question: str | None = None) -> Discovery:
        """Discover the bank, or what is asked. Raises the refusal of a discovery that has one."""
        found = self.discover(question)
        if found.refusal is not None:
            raise found.refusal
        return found


@contextlib.contextmanager
def world_of(folder: Path, *names: str) -> Iterator[World]:
    """Origins of these names, each with a port of its own."""
    ca = trustme.CA()
    sites: dict[str, Site] = {}
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        for name in names:
            listener = stack.enter_context(socket.create_server((LOOPBACK, 0)))
            ports.append(listener.getsockname()[1])
            sites[name] = Site(f"{name}:{ports[-1]}")
            stack.enter_context(serve_asgi(sites[name], name, ca=ca, sockets=[listener]))
        yield World(sites, trust(ca, folder), ai_policy(ports))


def by_hand(flow: Flow[Any], bodies: Mapping[str, bytes], table: Mapping[tuple[str, str], Records]) -> Any:
    """What a flow returns where JSON of these paths and these records are all that there is."""
    records = FakeRecords(table)
    try:
        step = flow.send(None)
        while True:
            if isinstance(step, Ask):
                step = flow.send(records.ask(step))
                continue
            assert isinstance(step, Send)
            body = bodies.get(step.request.target)
            headers = Headers([("Content-Type", "application/json")])
            reply = Reply(404 if body is None else 200, headers, body or b"", None, ConnectionInfo(LOOPBACK))
            step = flow.send(reply)
    except StopIteration as stop:
        return stop.value
