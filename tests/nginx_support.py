"""nginx from Debian's packages, run by a test as a front proxy on a free port in a temporary folder."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from model_support import unavailable

__all__ = ["GATEWAY_LINES", "nginx"]

_GUARD = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
_PATIENCE = 20.0

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
  server {{
    listen 127.0.0.1:{port};
    location / {{
{lines}
    }}
  }}
}}
"""


@contextmanager
def nginx(upstream: int, *, lines: str = GATEWAY_LINES) -> Iterator[int]:
    """The port of an nginx that hands every request on to this port; `lines` stand in its location."""
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists():
        unavailable("nginx is not installed: apt-get install nginx")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "nginx.conf"
        config.write_text(
            _CONFIG.format(folder=folder, port=port, lines=lines.replace("{upstream}", str(upstream)))
        )
        with (folder / "out.log").open("wb") as output:
            process = subprocess.Popen(
                [*_GUARD, "SIGTERM", "", "", program, "-p", name, "-c", str(config)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait(port, process, folder)
            yield port
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=_PATIENCE)


def _wait(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
    raise AssertionError(f"nginx did not start: {(folder / 'out.log').read_text()}")
