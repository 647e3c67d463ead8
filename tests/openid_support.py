"""A real OpenID provider and authorization server (npm's `oidc-provider`), run by a test on a free port.

`independent_client` is a second implementation on the other side: npm's `oauth4webapi`.
"""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import secrets
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from onym.server.settings import Issuer
from onym.sign.jws import sign_compact
from onym.sign.keys import SigningKey
from peer_install import node, npm_package

__all__ = [
    "Liar",
    "OpenIDProvider",
    "independent_client",
    "openid_provider",
    "restarted_provider",
    "running_script",
]

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class OpenIDProvider:
    """A running provider: any login signs in, and `subject` and `email` say what it tells about one."""

    issuer: str
    client_id: str
    client_secret: str
    #: its process, and the settings of one that takes its place
    pid: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def subject(self, login: str) -> str:
        """The `sub` claim of that user."""
        return f"subject-of-{login}"

    def email(self, login: str) -> str:
        """The `email` claim of that user."""
        return f"{login}@example.net"

    def sign_in(
        self,
        authorization_url: str,
        login: str,
        *,
        acr: str = "",
        jar: http.cookiejar.CookieJar | None = None,
    ) -> str:
        """Walk from the authorization request to the redirect back, as a browser does; that URL.

        With a `jar`, the person stays signed in at the provider. `acr` is how they sign in.
        """
        url, forms = authorization_url, {"login": login, "acr": acr}
        body: dict[str, str] | None = None
        jar = http.cookiejar.CookieJar() if jar is None else jar
        for _ in range(12):
            page, location = _open(jar, url, body)
            if not location:
                if "<form" not in page:
                    pytest.fail(page)
                body = forms
                continue
            url, body = urllib.parse.urljoin(url, location), None
            if not url.startswith(f"{self.issuer}/"):
                return url
        pytest.fail("the provider never came back")

    def sign_out(self, jar: http.cookiejar.CookieJar, url: str | None = None) -> str:
        """Sign the person of this jar out at the provider, on its own page; where that leads."""
        page, _ = _open(jar, url or f"{self.issuer}/session/end")
        (token,) = re.findall(r'name="xsrf" value="([^"]+)"', page)
        _, location = _open(jar, f"{self.issuer}/session/end/confirm", {"xsrf": token, "logout": "yes"})
        return location


def _open(jar: http.cookiejar.CookieJar, url: str, form: dict[str, str] | None = None) -> tuple[str, str]:
    """The body of an answer and its Location, as a browser with these cookies gets them."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    handlers = (Stay, urllib.request.HTTPCookieProcessor(jar), urllib.request.ProxyHandler({}))
    data = None if form is None else urllib.parse.urlencode(form).encode()
    try:
        with urllib.request.build_opener(*handlers).open(
            urllib.request.Request(url, data=data), timeout=300
        ) as found:
            return found.read().decode(), ""
    except urllib.error.HTTPError as error:
        with error:
            body = error.read(4000).decode(errors="replace")
            return f"{error.code}: {body}", error.headers.get("Location") or ""


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
    acr_values: Sequence[str] = (),
    logout_uri: str = "",
    logout_session: bool = True,
    jwks_uri: str = "",
    groups_file: Path | None = None,
) -> Iterator[OpenIDProvider]:
    """A provider with one client. The logins in `denied` get access_denied; PKCE is required of all.

    `acr_values` are the classes of authentication that it knows. It sends logout tokens to `logout_uri`, with
    the session's ID if `logout_session`; with `auth_method` private_key_jwt, the client's keys are at
    `jwks_uri`. `resources` are URIs for which it gives access tokens (RFC 8707, RFC 9068), each with its
    scopes. With `tls`, a host name and the PEM of its key and chain, it is on https. `groups_file` has the
    groups of each login as JSON, and is read at each sign-in.
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
        "acr_values": list(acr_values),
        "logout_uri": logout_uri,
        "logout_session": logout_session,
        "jwks_uri": jwks_uri,
        "groups_file": "" if groups_file is None else str(groups_file),
        "tls": None if tls is None else {"host": tls[0], "pem": tls[1]},
    }
    with _running_provider(settings) as running:
        yield running


@contextmanager
def restarted_provider(killed: OpenIDProvider) -> Iterator[OpenIDProvider]:
    """A provider in the place of one that was killed: with its port, keys and client, no sessions."""
    with _running_provider(killed.settings) as running:
        yield running


@contextmanager
def _running_provider(settings: Mapping[str, Any]) -> Iterator[OpenIDProvider]:
    with running_script("provider.mjs", settings) as told:
        again = {**settings, "port": told["port"], "keys": told["keys"]}
        client = settings["client_id"], settings["client_secret"]
        yield OpenIDProvider(told["issuer"], *client, pid=told["pid"], settings=again)


@contextmanager
def running_script(script: str, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Run a server of `tests/oidc` with these settings; what its first line tells, and its `pid`."""
    source = _HERE / "oidc"
    modules, runtime = npm_package(source), node()
    process = subprocess.Popen(
        # it ends with its standard input, so with this process whatever becomes of it
        [runtime.program, str(source / script), str(modules)],
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
            pytest.fail(f"{script} did not start: {process.communicate(timeout=300)[1][-2000:]}")
        yield {**json.loads(line), "pid": process.pid}
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


@dataclass
class Liar:
    """A provider that lies: `document`, `claims`, `answer` and the rest are changed by the tests."""

    key: SigningKey = field(default_factory=lambda: SigningKey.generate("ES256", kid="one"))
    issuer: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=lambda: {"sub": "s", "name": "Sam"})
    published: list[SigningKey] | None = None
    status: int = 200
    asked: list[str] = field(default_factory=list)
    nonce: str = ""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discovery),
                Route("/keys", self._keys),
                Route("/token", self._token, methods=["POST"]),
                Route("/userinfo", self._userinfo),
                Route("/moved", lambda request: RedirectResponse("/keys")),
            ]
        )

    def settings(self) -> Issuer:
        return Issuer(id="liar", issuer=self.issuer, client_id="client", network="local")

    async def _discovery(self, request: Request) -> Response:
        self.asked.append("discovery")
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": self.issuer + "/authorize?tenant=1",
            "token_endpoint": self.issuer + "/token",
            "jwks_uri": self.issuer + "/keys",
            "userinfo_endpoint": self.issuer + "/userinfo",
        }
        merged = {**found, **self.document}
        return JSONResponse({name: value for name, value in merged.items() if value is not None})

    async def _keys(self, request: Request) -> Response:
        self.asked.append("keys")
        keys = [self.key] if self.published is None else self.published
        return JSONResponse({"keys": [key.public() for key in keys]}, self.status)

    async def _token(self, request: Request) -> Response:
        self.asked.append("token")
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": "s",
            "aud": "client",
            "exp": now + 60,
            "iat": now,
            "nonce": self.nonce,
            **self.claims,
        }
        token = sign_compact(msgspec.json.encode(claims), self.key)
        return JSONResponse({"id_token": token, "access_token": "at", "token_type": "Bearer", **self.answer})

    async def _userinfo(self, request: Request) -> Response:
        self.asked.append("userinfo")
        return JSONResponse(self.userinfo)
