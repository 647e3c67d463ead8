"""Services that add two numbers, each a process of its own on one core: an endpoint, and its peers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _registry_service import Service, _end_with_input

__all__ = ["KINDS", "Clients", "question", "service", "valkey"]

KINDS = ("bare", "unsigned", "signed", "keyed", "bearer", "dpop", "dpop-valkey")
AUTHORITY = "factory.example"
BODY = b'{"a":40,"b":2}'
PATH = f"/.well-known/aiip/v1/{AUTHORITY}/tool/add"
ISSUER = "https://login.example"
RESOURCE = f"https://{AUTHORITY}/.well-known/aiip/v1"
#: the public keys of the authorization server, in the folder of all services
JWKS = "issuer.json"


def question(key: str | None = None, fields: str = "") -> bytes:
    """The octets of one invocation, with an idempotency key where there is one, and with these fields."""
    keyed = "" if key is None else f'Idempotency-Key: "{key}"\r\n'
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: {AUTHORITY}\r\n"
        f"AIIP-Nonce: {'A' * 32}\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(BODY)}\r\n{keyed}{fields}\r\n"
    ).encode() + BODY


class Clients:
    """So many clients, each with a key for proofs (ES256) and a token that is bound to it.

    They have an authorization server of their own, whose keys are written into `folder` for the services.
    """

    def __init__(self, folder: Path, count: int) -> None:
        from onym.sign.dpop import generate_dpop_key
        from onym.sign.jws import sign_compact
        from onym.sign.keys import SigningKey
        from onym.sign.receipts import content_digest, request_hash

        issuer = SigningKey.generate("ES256", kid="bench")
        (folder / JWKS).write_text(json.dumps({"keys": [issuer.public()]}), encoding="utf-8")
        now = int(time.time())

        def token(number: int, **bound: Any) -> str:
            claims = {
                "iss": ISSUER, "aud": RESOURCE, "sub": f"person-{number}", "client_id": "bench",
                "iat": now, "exp": now + 12 * 3600, "jti": f"token-{number}", **bound,
            }  # fmt: skip
            return sign_compact(json.dumps(claims).encode(), issuer, header={"typ": "at+jwt"})

        keys = [generate_dpop_key() for _ in range(count)]
        self._bound = [(key, token(at, cnf={"jkt": key.thumbprint})) for at, key in enumerate(keys)]
        self._bearers = [token(number) for number in range(count)]
        self._hash = request_hash(
            method="POST",
            target=f"ai://{AUTHORITY}/tool/add",
            digest=content_digest(BODY),
            content_type="application/json",
            idempotency_key=None,
        )

    def ask(self, kind: str, count: int, nonce: str | None) -> list[bytes]:
        """The octets of so many invocations; each has a proof of its own that was never sent."""
        return [self._ask(kind, number, nonce) for number in range(count)]

    def _ask(self, kind: str, number: int, nonce: str | None) -> bytes:
        from onym.sign.dpop import sign_dpop_proof

        if kind == "bearer":
            return question(fields=f"Authorization: Bearer {self._bearers[number % len(self._bearers)]}\r\n")
        key, token = self._bound[number % len(self._bound)]
        proof = sign_dpop_proof(
            key,
            method="POST",
            url=f"https://{AUTHORITY}{PATH}",
            at=time.time(),
            access_token=token,
            nonce=nonce,
            request_hash=self._hash,
        )
        return question(fields=f"Authorization: DPoP {token}\r\nDPoP: {proof}\r\n")


@contextmanager
def valkey(folder: Path, core: int | None) -> Iterator[str | None]:
    """The URL of a Valkey or Redis server, or None where there is none."""
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        yield None
        return
    where = folder / "valkey.sock"
    command = [program, "--port", "0", "--unixsocket", str(where), "--save", "", "--dir", str(folder)]
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL,
        preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509
    )  # fmt: skip
    try:
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(where)) == 0:
                    break
            time.sleep(0.05)
        yield f"unix://{where}?db=0"
    finally:
        child.terminate()
        child.wait(timeout=60)


@contextmanager
def service(kind: str, folder: Path, core: int | None, store: str | None = None) -> Iterator[Service]:
    """That service; `folder` has room for its keys, `store` is the URL of its store of proofs."""
    command = [sys.executable, str(Path(__file__).resolve()), kind, str(folder / kind)]
    command += ["" if core is None else str(core), store or ""]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield Service(int(child.stdout.readline()), child.pid)
    finally:
        # its standard input ends, and so does it
        child.communicate(timeout=60)


def _endpoint(folder: str, kind: str, proofs: str | None) -> Any:
    from onym.ai.endpoint import Endpoint, Limits
    from onym.sign.keystore import KeyStore

    keys = KeyStore(folder)
    keys.new(at=time.time())
    keyed = kind == "keyed"
    app = Endpoint(
        AUTHORITY,
        keys=keys,
        store=f"{folder}-keys.sqlite" if keyed else None,
        limits=Limits(keys=10_000_000),
        authorization=_guard(folder, proofs) if kind in {"bearer", "dpop", "dpop-valkey"} else None,
    )

    @app.resource("/tool/add", effects="write" if keyed else "read")
    async def add(a: int, b: int) -> int:
        return a + b

    if kind == "unsigned":
        from onym.ai.endpoint.signing import ReceiptSigner

        class Unsigned(ReceiptSigner):
            def sign_answer(self, *_: Any) -> str:
                return "unsigned"

        app._exchanges.sign_with(Unsigned(app.anchor, keys, time.time))
    return app


def _guard(folder: str, proofs: str | None) -> Any:
    """The authorization of the clients. Their server does not run: its keys are as if just fetched."""
    from onym.ai.endpoint.oauth import JWTAuthorization
    from onym.sign.keys import read_keys
    from onym.store import open_shared_store

    guard = JWTAuthorization(ISSUER, RESOURCE, store=open_shared_store(proofs))
    guard._server._keys = (float("inf"), read_keys((Path(folder).parent / JWKS).read_bytes()))
    return guard


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


def main(kind: str, folder: str, core: str, store: str) -> None:
    """The child process: says its port, serves until its standard input ends."""
    from onym.server.http_server import run_app

    if core:
        os.sched_setaffinity(0, {int(core)})
    threading.Thread(target=_end_with_input, daemon=True).start()
    app = _bare(folder) if kind == "bare" else _endpoint(folder, kind, store or None)
    run_app(app, host="127.0.0.1", port=0, ready=lambda port: print(port, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
