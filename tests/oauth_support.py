"""An authorization server that a test holds in its hand: what it says, and how often it is asked."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ai_support import serve_asgi
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.net.config import NetConfig
from onym.net.messages import Headers
from onym.net.policy import Policy
from onym.sign.jws import sign_compact
from onym.sign.keys import SigningKey

__all__ = ["RESOURCE", "HandIssuer", "bearer", "hand_issuer", "run"]

T = TypeVar("T")

RESOURCE = "https://bank.example/.well-known/aiip/v1"
METADATA = "/.well-known/oauth-authorization-server"


class HandIssuer:
    """The server. `answers` replaces what a path says: a status, octets, or both with headers."""

    def __init__(self, port: int = 0) -> None:
        self.key = SigningKey.generate("ES256", kid="first")
        self.published: list[dict[str, Any]] = [self.key.public()]
        self.asked: Counter[str] = Counter()
        self.answers: dict[str, tuple[int, bytes, list[tuple[bytes, bytes]]]] = {}
        self.gate: asyncio.Event | None = None
        self.port = port

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def metadata(self, **changes: Any) -> bytes:
        known = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"}
        return json.dumps(
            {name: value for name, value in (known | changes).items() if value is not None}
        ).encode()

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        known = {
            "iss": self.issuer,
            "sub": "user-7",
            "aud": RESOURCE,
            "client_id": "client-1",
            "iat": now,
            "exp": now + 300,
            "jti": "token-1",
            "scope": "agents:invoke agents:read",
        }
        return {name: value for name, value in (known | changes).items() if value is not None}

    def token(self, typ: str | None = "at+jwt", key: SigningKey | None = None, **changes: Any) -> str:
        header = {} if typ is None else {"typ": typ}
        return sign_compact(json.dumps(self.claims(**changes)).encode(), key or self.key, header=header)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        self.asked[path] += 1
        usual = {METADATA: self.metadata(), "/jwks": json.dumps({"keys": self.published}).encode()}
        status, body, headers = self.answers.get(
            path, (200 if path in usual else 404, usual.get(path, b""), [])
        )
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def hand_issuer() -> Iterator[HandIssuer]:
    """A running one, on plain HTTP and loopback."""
    server = HandIssuer()
    with serve_asgi(server) as port:
        server.port = port
        yield server


def authorization(server: HandIssuer, **settings: Any) -> JWTAuthorization:
    policy = settings.pop("policy", Policy.local())
    return JWTAuthorization(server.issuer, RESOURCE, network=NetConfig(policy=policy), **settings)


def bearer(*tokens: str) -> Headers:
    return Headers([("Authorization", f"Bearer {token}") for token in tokens])


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
