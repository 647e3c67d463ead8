"""An approver for tests: it serves its key set over TLS, reads challenges and signs evidence."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import trustme

from ai_support import ai_policy, names_resolver, serve_asgi, trust
from onym.ai.records import Approver
from onym.net.config import NetConfig
from onym.sign.approval import Approval, Challenge, sign_approval, verify_challenge
from onym.sign.keys import AuthorityKeys, SigningKey

__all__ = ["HOST", "HandApprover", "hand_approver"]

HOST = "gateway.test"


class HandApprover:
    """The approver. `published` are the keys that it serves; `asked` counts the requests for them."""

    def __init__(self) -> None:
        self.key = SigningKey.generate("Ed25519").with_thumbprint()
        self.published: list[dict[str, Any]] = [self.key.public()]
        self.status = 200
        self.asked = 0
        self.port = 0
        self.network = NetConfig()

    @property
    def issuer(self) -> str:
        return f"https://{HOST}:{self.port}"

    def entry(self, **changes: Any) -> Approver:
        """How an authority lists it."""
        return replace(Approver(issuer=self.issuer, jwks=f"{self.issuer}/jwks.json"), **changes)

    def key_set(self) -> bytes:
        return json.dumps({"keys": self.published}).encode()

    def understand(self, challenge: str, keys: AuthorityKeys, resource: str) -> Challenge:
        """The verified challenge, for this approver."""
        return verify_challenge(challenge, keys, issuer=resource, at=time.time(), approver=self.issuer)

    def approve(self, asked: Challenge, /, *, by: tuple[str, ...] | None = None, **changes: Any) -> str:
        """Evidence for this challenge; `changes` replace what an honest approver would write."""
        key = changes.pop("signer", self.key)
        now = int(changes.pop("at", time.time()))
        names = by or tuple(f"person-{number}" for number in range(asked.call.rule.persons))
        approval = Approval(
            issuer=self.issuer,
            audience=asked.issuer,
            issued=now,
            expires=now + 300,
            id=secrets.token_urlsafe(16),
            request=asked.call.request,
            transaction=asked.transaction,
            challenge=asked.digest,
            shown="S" * 43,
            by=names,
            authenticated=now - 30,
            acr="urn:example:mfa",
            key=asked.key,
        )
        return sign_approval(replace(approval, **changes), key)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.asked += 1
        headers = [(b"content-type", b"application/jwk-set+json")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.key_set()})


@contextlib.contextmanager
def hand_approver(ca: trustme.CA, folder: Path) -> Iterator[HandApprover]:
    """A running one. Its `network` is the configuration with which an endpoint reaches it."""
    approver = HandApprover()
    with serve_asgi(approver, HOST, ca=ca) as port:
        approver.port = port
        approver.network = NetConfig(
            policy=ai_policy([port]), resolver=names_resolver({HOST: "127.0.0.1"}), tls=trust(ca, folder)
        )
        yield approver
