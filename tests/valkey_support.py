"""Valkey, or Redis, from Debian's packages, run by a test on free ports in a temporary folder."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from model_support import unavailable
from postgres_support import guarded
from support import free_port

__all__ = ["ValkeyServer", "valkey_server"]


@dataclass(frozen=True)
class ValkeyServer:
    """A running server. `authority` is the PEM file of the authority that signed its certificate."""

    socket: Path
    port: int
    tls_port: int
    password: str
    authority: Path


@contextmanager
def valkey_server(like: ValkeyServer | None = None) -> Iterator[ValkeyServer]:
    """A server with a password, on a socket, on TCP and on TLS. It writes nothing to disk.

    It is empty; `like` is a server that was killed, whose ports and password it gets.
    """
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        unavailable("Valkey is not installed: apt-get install valkey-server, or redis-server")
    folder = Path(tempfile.mkdtemp(prefix="onym-valkey-", dir="/tmp"))
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    own = (free_port(), free_port(), secrets.token_hex(12))
    place = own if like is None else (like.port, like.tls_port, like.password)
    server = ValkeyServer(folder / "socket", *place, folder / "authority.pem")
    settings = {
        "bind": "127.0.0.1",
        "port": server.port,
        "tls-port": server.tls_port,
        "tls-cert-file": folder / "certificate.pem",
        "tls-key-file": folder / "key.pem",
        "tls-ca-cert-file": server.authority,
        "tls-auth-clients": "no",
        "unixsocket": server.socket,
        "requirepass": server.password,
        "dir": folder,
        "save": "",
    }
    command = [program, *(part for name, value in settings.items() for part in (f"--{name}", str(value)))]
    with guarded(command, stop="SIGTERM", folder=str(folder), log=folder / "log") as process:
        _wait_until_ready(process, server)
        yield server


def _wait_until_ready(process: subprocess.Popen[bytes], server: ValkeyServer) -> None:
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            if client.connect_ex(str(server.socket)) == 0:
                return
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError("the server did not start")
