"""What tests of the MCP and A2A bridges share: a client in a test's hand, and peers in JavaScript."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from starlette.authentication import SimpleUser

from ai_support import LOOPBACK, names_resolver
from onym.ai import AsyncAIClient, ResolverSettings
from onym.ai.records import Description, Result
from onym.bridges.a2a import a2a_app
from onym.errors import OnymError
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.messages import Headers
from onym.net.policy import Policy
from onym.net.transport import AsyncTransport
from onym.store import open_shared_store
from peer_install import node, npm_package

__all__ = ["HandClient", "peer", "serve_agent_process"]

_PEERS = Path(__file__).parent / "bridges" / "peers"


class HandClient:
    """Stands for `AsyncAIClient`: knows these resources, and answers each invocation alike."""

    def __init__(
        self,
        known: Mapping[str, Description],
        body: bytes = b'{"text":"yes"}',
        content_type: str | None = "application/json",
    ) -> None:
        self.known = dict(known)
        self.body = body
        self.content_type = content_type
        self.error: OnymError | None = None
        self.asked: list[tuple[str, Any, str | None]] = []

    async def describe(self, uri: Any) -> Description:
        return self.known[str(uri)]

    async def invoke(
        self,
        uri: Any,
        arguments: Mapping[str, Any] | None = None,
        *,
        accept: str | None = None,
        idempotency_key: str | None = None,
    ) -> Result:
        self.asked.append((str(uri), dict(arguments or {}), idempotency_key))
        if self.error is not None:
            raise self.error
        nothing: Any = SimpleNamespace(subject=str(uri))
        return Result(
            status=200,
            content_type=self.content_type,
            body=self.body,
            headers=Headers([]),
            receipt=nothing,
            token="receipt.of.result",
            resolution=nothing,
        )


def peer(script: str, **settings: Any) -> Any:
    """What a script of `tests/bridges/peers` prints as JSON."""
    modules, runtime = npm_package(_PEERS, "bridge-peers"), node()
    done = subprocess.run(
        [runtime.program, str(_PEERS / script), str(modules)],
        input=json.dumps(settings),
        env={"PATH": os.environ.get("PATH", "")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def serve_agent_process(authority: str, folder: str, path: str, store: str, told: Connection) -> None:
    """Serve a resource as an agent, in a process of its own."""

    async def serve() -> None:
        name = authority.partition(":")[0]
        network = NetConfig(
            policy=Policy.local(),
            resolver=names_resolver({name: LOOPBACK}),
            tls=TLSConfig(ca_files=(f"{folder}/authority.pem",)),
        )
        async with (
            AsyncTransport(network) as wire,
            AsyncAIClient(ResolverSettings(dns=False, timeout=600.0), transport=wire) as client,
        ):
            bridge = await a2a_app(
                client, f"ai://{authority}{path}", url="http://agents.example", store=open_shared_store(store)
            )

            async def app(scope: Any, receive: Any, send: Any) -> None:
                await bridge({**scope, "user": SimpleUser("eve")}, receive, send)

            listener = socket.create_server((LOOPBACK, 0))
            told.send(listener.getsockname()[1])
            await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve([listener])

    asyncio.run(serve())
