"""A real OpenID provider (npm's `oidc-provider`), run by a test on a free port."""

from __future__ import annotations

import http.cookiejar
import json
import os
import secrets
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from peer_install import node, npm_package

__all__ = ["OpenIDProvider", "openid_provider"]

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
                with opener.open(urllib.request.Request(url, data=body), timeout=20):  # the form
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
) -> Iterator[OpenIDProvider]:
    """A provider with one client. The logins in `denied` get access_denied; PKCE is required of all."""
    client = {"client_id": "onym-registry", "client_secret": secrets.token_urlsafe(24)}
    settings = {
        **client,
        "algorithm": algorithm,
        "auth_method": auth_method,
        "id_token_seconds": id_token_seconds,
        "denied": list(denied),
        "unverified": list(unverified),
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
            pytest.fail(f"the OpenID provider did not start: {process.communicate(timeout=20)[1][-2000:]}")
        yield OpenIDProvider(json.loads(line)["issuer"], **client)
    finally:
        process.communicate(timeout=30)
