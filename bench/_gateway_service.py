"""An authority, a gateway and an nginx before it, each a process of its own on a core that is given."""

from __future__ import annotations

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

import trustme
from _registry_service import Service, _end_with_input

__all__ = ["AUTHORITY", "BODY", "certificates", "fetch", "front", "question", "service"]

AUTHORITY = "factory.test"
BODY = b'{"a":40,"b":2}'
_NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 1000000;
  upstream authority {{ server 127.0.0.1:{upstream}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass https://authority/.well-known/aiip/v1/;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host {authority}:{upstream};
      proxy_ssl_name {authority};
      proxy_ssl_server_name on;
      proxy_ssl_protocols TLSv1.3;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate {folder}/ca.pem;
      proxy_buffer_size 16k;
      proxy_buffers 8 16k;
    }}
  }}
}}
"""


def certificates(folder: Path) -> None:
    """A certificate for the authority, and who signed it."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    ca.issue_cert(AUTHORITY).private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))


def question(path: str) -> bytes:
    """The octets of one invocation."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: gw.test\r\nAIIP-Nonce: {'A' * 32}\r\nAccept-Encoding: identity\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    ).encode() + BODY


def fetch(asked: Service, octets: bytes) -> bytes:
    """The body of one answer."""
    with socket.create_connection(("127.0.0.1", asked.port), timeout=60) as line:
        line.sendall(octets.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        found = b""
        while data := line.recv(65536):
            found += data
    return found.partition(b"\r\n\r\n")[2]


@contextmanager
def service(kind: str, folder: Path, core: int | None, upstream: int = 0) -> Iterator[Service]:
    """The authority ("authority") or the gateway ("gateway") before the one at port `upstream`."""
    command = [sys.executable, str(Path(__file__).resolve()), kind, str(folder), str(upstream)]
    command += [] if core is None else [str(core)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield Service(int(child.stdout.readline()), child.pid)
    finally:
        # its standard input ends, and so does it
        child.communicate(timeout=60)


@contextmanager
def front(folder: Path, core: int | None, upstream: int) -> Iterator[Service]:
    """nginx, as a plain proxy before the authority: it verifies the certificate and nothing else."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, upstream=upstream, authority=AUTHORITY))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    pin = [] if core is None else ["taskset", "-c", str(core)]
    child = subprocess.Popen([*pin, program, "-p", str(folder), "-c", str(config)])
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert child.poll() is None, "nginx did not start"
        yield Service(port, child.pid)
    finally:
        child.terminate()
        child.wait(timeout=60)


class _Names:
    """Looks every name up as this machine."""

    def lookup(self, host: str, deadline: float | None) -> list[str]:
        return ["127.0.0.1"]

    async def alookup(self, host: str, deadline: float | None) -> list[str]:
        return ["127.0.0.1"]


class _Late:
    """The authority's app: its name has the port, which is known once it listens."""

    app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": message["type"] + ".complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        await self.app(scope, receive, send)


def _authority(folder: Path) -> None:
    from onym.ai.endpoint import Endpoint
    from onym.server.http_server import run_app
    from onym.sign.keystore import KeyStore

    late = _Late()

    def ready(port: int) -> None:
        keys = KeyStore(folder / "authority-keys")
        keys.new(at=time.time())
        app = Endpoint(f"{AUTHORITY}:{port}", keys=keys)

        @app.resource("/tool/add")
        async def add(a: int, b: int) -> int:
            return a + b

        late.app = app
        print(port, flush=True)

    run_app(late, host="127.0.0.1", port=0, certificate=str(folder / "server.pem"), ready=ready)


def _gateway(folder: Path, upstream: int) -> None:
    from onym.server.gateway import GatewaySettings, create_gateway
    from onym.server.gateway.settings import GatewayRates
    from onym.server.http_server import run_app
    from onym.server.settings import RateLimit
    from onym.sign.keystore import KeyStore

    keys = KeyStore(folder / "gateway-keys")
    keys.new(at=time.time())
    plenty = RateLimit(burst=1_000_000, per_minute=1_000_000_000.0)
    settings = GatewaySettings(
        base_url="http://127.0.0.1",
        allowed_hosts=("gw.test",),
        keys=str(folder / "gateway-keys"),
        audit=str(folder / "audit.jsonl"),
        network="local",
        ports=(upstream,),
        ca_files=(str(folder / "ca.pem"),),
        dns=False,
        client_concurrency=1000,
        authority_concurrency=1000,
        concurrency=1000,
        rates=GatewayRates(reads=plenty, writes=plenty),
    )
    app = create_gateway(settings, resolver=_Names())
    run_app(app, host="127.0.0.1", port=0, ready=lambda port: print(port, flush=True))


def main(kind: str, folder: str, upstream: str, core: str | None = None) -> None:
    """The child process: says its port, serves until its standard input ends."""
    if core is not None:
        os.sched_setaffinity(0, {int(core)})
    threading.Thread(target=_end_with_input, daemon=True).start()
    if kind == "authority":
        _authority(Path(folder))
    else:
        _gateway(Path(folder), int(upstream))


if __name__ == "__main__":
    main(*sys.argv[1:])
