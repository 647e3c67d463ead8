"""An authority with some resources, and clients that trust it, for the tests of ai:// names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from ai_support import ai_policy, names_resolver, trust
from onym.ai import AIClient, AsyncAIClient, ResolverSettings
from onym.ai.endpoint import Call, Endpoint
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport, Transport

__all__ = ["NAME", "Factory", "resources"]

NAME = "factory.test"


@dataclass(frozen=True)
class Factory:
    """A served endpoint, and clients that trust its authority."""

    app: Endpoint
    authority: str
    keys: Any
    folder: Path
    ca: trustme.CA
    calls: list[str] = field(default_factory=list)

    def uri(self, path: str) -> str:
        return f"ai://{self.authority}{path}"

    def _wire(self) -> tuple[Policy, dict[str, Any]]:
        name, _, port = self.authority.partition(":")
        policy = Policy.local() if name.endswith(".localhost") else ai_policy([int(port)])
        return policy, {
            "resolver": names_resolver({name: "127.0.0.1"}),
            "tls": trust(self.ca, self.folder),
        }

    @contextmanager
    def client(self, settings: ResolverSettings | None = None, **terms: Any) -> Iterator[AIClient]:
        policy, wire = self._wire()
        with (
            Transport(NetConfig(policy=policy, **wire)) as transport,
            AIClient(
                settings or ResolverSettings(dns=False, timeout=600.0), transport=transport, **terms
            ) as client,
        ):
            yield client

    @asynccontextmanager
    async def aclient(
        self, settings: ResolverSettings | None = None, **terms: Any
    ) -> AsyncIterator[AsyncAIClient]:
        policy, wire = self._wire()
        chosen = settings or ResolverSettings(dns=False, timeout=600.0)
        async with (
            AsyncTransport(NetConfig(policy=policy, **wire)) as transport,
            AsyncAIClient(chosen, transport=transport, **terms) as client,
        ):
            yield client


def resources(app: Endpoint, calls: list[str]) -> None:
    """What the factory offers."""

    @app.resource("/tool/add")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @app.resource("/agent/count")
    async def count(to: int) -> AsyncIterator[dict[str, int]]:
        for number in range(to):
            yield {"number": number}

    @app.resource("/agent/note", effects="write")
    def note(text: str) -> dict[str, int]:
        calls.append(text)
        return {"notes": len(calls)}

    @app.resource("/agent/pay", effects="financial")
    def pay(amount: int) -> dict[str, int]:
        calls.append(f"paid {amount}")
        return {"paid": amount}

    @app.resource("/tool/whoami")
    def whoami(call: Call) -> str:
        return call.caller.audience

    @app.resource("/tool/fails")
    def fails() -> str:
        raise RuntimeError("the password is hunter2")
