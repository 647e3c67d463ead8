"""A real OpenID provider and authorization server (npm's `oidc-provider`), run by a test on a free port.

`independent_client` is a second implementation on the other side: npm's `oauth4webapi`.
"""

from __future__ import annotations

import http.cookiejar
import json
import os
import secrets
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peer_install import node, npm_package

__all__ = ["OpenIDProvider", "independent_client", "openid_provider"]

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class OpenIDProvider:
    """A running provider: any login signs in, and `subject` and `email` say what it tells about one."""

    issuer: str
    client_id: str
    client_secret: str

    def subject(self, login: str) -> str:
        """The `sub` claim of that user."""
        return f"subject-of-{login}"

    def email(self, login: str) -> str:
        """The `email` claim of that user."""
        return f"{login}@example.net"

    def sign_in(self, authorization_url: str, login: str) -> str:
        """Walk from the authorization request to the redirect back, as a browser does; that URL."""

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        opener = urllib.request.build_opener(Stay, jar, urllib.request.ProxyHandler({}))
        url, body = authorization_url, None
        for _ in range(10):
            try:
                with opener.open(urllib.request.Request(url, data=body), timeout=300):  # the form
                    body = urllib.parse.urlencode({"login": login}).encode()
                    continue
            except urllib.error.HTTPError as error:
                with error:
                    said = f"{error.code}: {error.read(2000).decode(errors='replace')}"
                    location = error.headers.get("Location")
            if not location:
                pytest.fail(said)
            url, body = urllib.parse.urljoin(url, location), None
            if not url.startswith(f"{self.issuer}/"):
                return url
        pytest.fail("the provider never came back")


@contextmanager
def openid_provider(
    *,
    algorithm: str = "RS256",
    auth_method: str = "client_secret_basic",
    id_token_seconds: int = 600,
    denied: Sequence[str] = (),
    unverified: Sequence[str] = (),
    resources: Mapping[str, str] | None = None,
    access_token_algorithm: str = "ES256",
    access_token_seconds: int = 600,
    tls: tuple[str, str] | None = None,
) -> Iterator[OpenIDProvider]:
    """A provider with one client. The logins in `denied` get access_denied; PKCE is required of all.

    `resources` are URIs for which it gives access tokens (RFC 8707, RFC 9068), each with its scopes. With
    `tls`, a host name and the PEM of its key and chain, it is on https.
    """
    client = {"client_id": "onym-registry", "client_secret": secrets.token_urlsafe(24)}
    settings = {
        **client,
        "algorithm": algorithm,
        "auth_method": auth_method,
        "id_token_seconds": id_token_seconds,
        "denied": list(denied),
        "unverified": list(unverified),
        "resources": dict(resources or {}),
        "access_token_algorithm": access_token_algorithm,
        "access_token_seconds": access_token_seconds,
        "tls": None if tls is None else {"host": tls[0], "pem": tls[1]},
    }
    source = _HERE / "oidc"
    modules, runtime = npm_package(source), node()
    process = subprocess.Popen(
        # it ends with its standard input, so with this process whatever becomes of it
        [runtime.program, str(source / "provider.mjs"), str(modules)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", ""), "ONYM_TEST_OIDC": json.dumps(settings)},
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"the OpenID provider did not start: {process.communicate(timeout=300)[1][-2000:]}")
        yield OpenIDProvider(json.loads(line)["issuer"], **client)
    finally:
        process.communicate(timeout=300)


def independent_client(script: str, settings: Mapping[str, Any], ca_file: Path | None = None) -> Any:
    """What a script of `tests/oidc` prints as JSON, run with these settings; it trusts `ca_file` as well."""
    source = _HERE / "oidc"
    modules, runtime = npm_package(source), node()
    trusted = {} if ca_file is None else {"NODE_EXTRA_CA_CERTS": str(ca_file)}
    done = subprocess.run(
        [runtime.program, str(source / script), str(modules)],
        input=json.dumps(settings),
        env={"PATH": os.environ.get("PATH", ""), **trusted},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
