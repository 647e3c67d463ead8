"""What tests of the MCP and A2A bridges share: a client in a test's hand, and peers in JavaScript."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from onym.ai.records import Description, Result
from onym.errors import OnymError
from onym.net.messages import Headers
from peer_install import node, npm_package

__all__ = ["HandClient", "peer"]

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
