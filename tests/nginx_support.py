"""nginx from Debian's packages, run by a test as a front proxy on a free port in a temporary folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from model_support import unavailable
from support import free_port

__all__ = ["GATEWAY_LINES", "forward_client_certificates", "nginx"]

_GUARD = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
_PATIENCE = 300.0

#: the lines of docs/how-to/run-a-gateway.md; proxy_pass has no path, or nginx would rewrite the target
GATEWAY_LINES = """
      proxy_pass http://127.0.0.1:{upstream};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header Connection "";
      proxy_buffer_size 16k;
      proxy_buffers 8 16k;
      proxy_buffering off;
      proxy_request_buffering off;
"""
#: the lines of docs/how-to/protect-a-resource.md that pass a client certificate on (RFC 9440)
_CLIENT_CERT_LINES = (
    '      proxy_set_header Client-Cert $client_cert;\n      proxy_set_header Client-Cert-Chain "";\n'
)
#: lines of a certificate in PEM that nginx joins; longer than the certificates of tests
_PEM_LINES = 30
_CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  merge_slashes off;
{top}
  server {{
    listen 127.0.0.1:{port}{tls};
{server}
    location / {{
{lines}
    }}
  }}
}}
"""


def forward_client_certificates(server: Path, clients: Path) -> dict[str, Any]:
    """Options of `nginx` for one with this certificate (PEM) that verifies clients by these authorities."""
    parts = "".join(
        rf"(?<l{number}>[^\n]*)\n" if number < 1 else rf"((?<l{number}>[^-\n]+)\n)?"
        for number in range(_PEM_LINES)
    )
    joined = "".join(f"$l{number}" for number in range(_PEM_LINES))
    within = f"""
    ssl_certificate {server};
    ssl_certificate_key {server};
    ssl_protocols TLSv1.3;
    ssl_client_certificate {clients};
    ssl_verify_client optional;
    """
    return {
        "lines": GATEWAY_LINES + _CLIENT_CERT_LINES,
        "server": within,
        "top": (
            f"map $ssl_client_raw_cert $client_cert {{\n"
            f'  "~^-+BEGIN CERTIFICATE-+\\n{parts}-" ":{joined}:";\n}}'
        ),
        "tls": True,
    }


@contextmanager
def nginx(
    upstream: int, *, lines: str = GATEWAY_LINES, server: str = "", top: str = "", tls: bool = False
) -> Iterator[int]:
    """The port of an nginx that hands every request on to this port.

    `lines` stand in its location, `server` in its server, `top` outside of it.
    """
    parts = {"lines": lines.replace("{upstream}", str(upstream)), "server": server, "top": top}
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        unavailable("nginx is not installed: apt-get install nginx")
    said = ""
    for _ in range(3):  # between our look and its start, somebody may take the port
        with _attempt(program, free_port(), {**parts, "tls": " ssl" if tls else ""}) as found:
            if isinstance(found, int):
                yield found
                return
            said = found
    raise AssertionError(f"nginx did not start: {said}")


@contextmanager
def _attempt(program: str, port: int, parts: dict[str, str]) -> Iterator[int | str]:
    """The port of one that runs, or what one said that did not start."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "nginx.conf"
        config.write_text(_CONFIG.format(folder=folder, port=port, **parts))
        with (folder / "out.log").open("wb") as output:
            process = subprocess.Popen(
                [*_GUARD, "SIGTERM", "", "", program, "-p", name, "-c", str(config)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield port if _starts(process, folder) else (folder / "out.log").read_text()
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=2 * _PATIENCE)  # the guard takes that once


def _starts(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Whether it comes so far as to say its number, which is when it listens."""
    number, end = folder / "nginx.pid", time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if number.exists() and number.read_text():
            return True
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)
            return False
    return False
