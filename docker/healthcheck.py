"""Exit with 0 if the service on this port answers: `healthcheck.py PORT PATH [tls]`.

The registry answers under the host of its public URL only, so that URL's host is sent. With `tls`, a finished
handshake is enough: a certificate is for the public name, not for loopback.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import sys
from urllib.parse import urlsplit

TIMEOUT = 4


def answers_http(port: int, path: str) -> bool:
    """Whether GET of the path has status 200."""
    public = os.environ.get("ONYM_REGISTRY_BASE_URL", "")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        host = urlsplit(public).netloc or f"127.0.0.1:{port}"
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()


def answers_tls(port: int) -> bool:
    """Whether a TLS handshake succeeds."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as sock, context.wrap_socket(sock) as secured:
        return secured.version() is not None


def main(arguments: list[str]) -> int:
    """0 if the service answers."""
    port, path, *rest = arguments
    try:
        healthy = answers_tls(int(port)) if rest == ["tls"] else answers_http(int(port), path)
    except (OSError, http.client.HTTPException) as error:
        print(f"unhealthy: {type(error).__name__}", file=sys.stderr)
        return 1
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
