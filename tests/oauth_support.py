"""An authorization server that a test holds in its hand: what it says, and how often it is asked."""

from __future__ import annotations

import asyncio
import http.cookiejar
import json
import re
import ssl
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trustme

from ai_support import ai_policy, names_resolver, serve_asgi, trust
from onym.ai.endpoint.context import AccessRequest
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.ai.records import AnchorDocument, Auth, Effects, Level, Requirements, Resolution
from onym.errors import AuthorizationError
from onym.net.config import NetConfig
from onym.net.messages import Headers
from onym.net.policy import Policy
from onym.net.transport import Transport, run_flow
from onym.sign.dpop import generate_dpop_key
from onym.sign.jws import sign_compact
from onym.sign.keys import AuthorityKeys, SigningKey
from onym.uri.ai import AIURI
from openid_support import running_script

__all__ = [
    "BANK",
    "KEY",
    "METADATA",
    "REFRESH",
    "RESOURCE",
    "SECRET",
    "SUBJECT",
    "AuthorizationServer",
    "HandIssuer",
    "Liar",
    "access",
    "authorization_server",
    "bearer",
    "hand_issuer",
    "issuer_network",
    "obtain",
    "refused",
    "resolution",
    "restarted_server",
    "run",
    "secure_issuer",
]

T = TypeVar("T")

RESOURCE = "https://bank.example/.well-known/aiip/v1"
LOGIN = "login.test"
METADATA = "/.well-known/oauth-authorization-server"


class HandIssuer:
    """The server. `answers` replaces what a path says: a status, octets, or both with headers."""

    def __init__(self, port: int = 0, origin: str = "http://127.0.0.1") -> None:
        self.origin = origin
        self.key = SigningKey.generate("ES256", kid="first")
        self.published: list[dict[str, Any]] = [self.key.public()]
        self.asked: Counter[str] = Counter()
        self.answers: dict[str, tuple[int, bytes, list[tuple[bytes, bytes]]]] = {}
        self.gate: asyncio.Event | None = None
        self.port = port

    @property
    def issuer(self) -> str:
        return f"{self.origin}:{self.port}"

    def metadata(self, **changes: Any) -> bytes:
        known = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"}
        return json.dumps(
            {name: value for name, value in (known | changes).items() if value is not None}
        ).encode()

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        known = {
            "iss": self.issuer,
            "sub": "user-7",
            "aud": RESOURCE,
            "client_id": "client-1",
            "iat": now,
            "exp": now + 300,
            "jti": "token-1",
            "scope": "agents:invoke agents:read",
        }
        return {name: value for name, value in (known | changes).items() if value is not None}

    def token(self, typ: str | None = "at+jwt", key: SigningKey | None = None, **changes: Any) -> str:
        header = {} if typ is None else {"typ": typ}
        return sign_compact(json.dumps(self.claims(**changes)).encode(), key or self.key, header=header)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        self.asked[path] += 1
        usual = {METADATA: self.metadata(), "/jwks": json.dumps({"keys": self.published}).encode()}
        status, body, headers = self.answers.get(
            path, (200 if path in usual else 404, usual.get(path, b""), [])
        )
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def hand_issuer(kind: type[HandIssuer] = HandIssuer) -> Iterator[HandIssuer]:
    """A running one, on plain HTTP and loopback."""
    server = kind()
    with serve_asgi(server) as port:
        server.port = port
        yield server


@contextmanager
def secure_issuer(ca: trustme.CA) -> Iterator[HandIssuer]:
    """A running one with TLS, as an endpoint wants it."""
    server = HandIssuer(origin=f"https://{LOGIN}")
    with serve_asgi(server, LOGIN, ca=ca) as port:
        server.port = port
        yield server


def issuer_network(server: HandIssuer, ca: trustme.CA, folder: Path) -> NetConfig:
    """The way to that one."""
    resolver = names_resolver({LOGIN: "127.0.0.1"})
    return NetConfig(policy=ai_policy([server.port]), tls=trust(ca, folder), resolver=resolver)


def authorization(server: HandIssuer, **settings: Any) -> JWTAuthorization:
    policy = settings.pop("policy", Policy.local())
    return JWTAuthorization(server.issuer, RESOURCE, network=NetConfig(policy=policy), **settings)


def bearer(*tokens: str) -> Headers:
    return Headers([("Authorization", f"Bearer {token}") for token in tokens])


def access(
    headers: Headers, scopes: frozenset[str] = frozenset(), *, path: str = "/bank.example/pay", **more: Any
) -> AccessRequest:
    """A request to a resource of the bank, with these fields."""
    given = {"method": "POST", "url": RESOURCE + path, **more}
    return AccessRequest(headers=headers, scopes=scopes, **given)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@dataclass(frozen=True)
class AuthorizationServer:
    """A running authorization server: npm's `oidc-provider` with `tests/oidc/authorization_server.mjs`.

    It is at https://localhost, and any login signs in but "refuses". `context` trusts its certificate.
    """

    issuer: str
    jwks: dict[str, Any]
    context: ssl.SSLContext
    #: its process, and the settings of one that takes its place
    pid: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def subject(self, login: str) -> str:
        """The `sub` of that user."""
        return f"subject-of-{login}"

    def sign_in(self, url: str, login: str) -> str:
        """Walk from an authorization request to the redirect back, as a browser does; that URL."""
        return self._walk(url, login)

    def approve_device(self, url: str, login: str) -> None:
        """Enter the code of a device sign-in, confirm it and sign in."""
        assert self._walk(url, login) == ""

    def _walk(self, url: str, login: str) -> str:
        opener = urllib.request.build_opener(
            _Stay(),
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
            urllib.request.HTTPSHandler(context=self.context),
            urllib.request.ProxyHandler({}),
        )
        body: bytes | None = None
        for _ in range(20):
            location, page = _open_page(opener, url, body)
            if location is not None:
                url, body = urllib.parse.urljoin(url, location), None
                if not url.startswith(f"{self.issuer}/"):
                    return url
                continue
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page))
            if 'name="login"' in page:
                fields = {"login": login}
            elif "xsrf" not in fields:
                return ""
            elif 'name="confirm"' in page or "op.deviceConfirmForm" in page:
                fields["confirm"] = "yes"
            action = re.search(r'action="([^"]*)"', page)
            url = urllib.parse.urljoin(url, action[1]) if action else url
            body = urllib.parse.urlencode(fields).encode()
        pytest.fail("the authorization server never came to an end")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _open_page(opener: Any, url: str, body: bytes | None) -> tuple[str | None, str]:
    """Where a page redirects to, or its text."""
    try:
        with opener.open(urllib.request.Request(url, data=body), timeout=300) as page:
            return None, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(4000).decode(errors="replace")
            location = error.headers.get("Location")
    if location is None:
        pytest.fail(f"{url}: {text}")
    return location, ""


@contextmanager
def authorization_server(
    ca: trustme.CA,
    *,
    clients: Sequence[Mapping[str, Any]],
    resources: Mapping[str, str],
    nonce: bool = True,
    seconds: int = 600,
    require_par: bool = False,
    impersonate: bool = False,
    audiences: Mapping[str, str] | None = None,
    id_jag: Mapping[str, Mapping[str, Any]] | None = None,
    identity_provider: Mapping[str, Any] | None = None,
    client_ca: str | None = None,
) -> Iterator[AuthorizationServer]:
    """A running authorization server, with a certificate of this authority."""
    pem = ca.issue_cert("localhost").private_key_and_cert_chain_pem.bytes().decode()
    settings = {
        "clients": [dict(client) for client in clients],
        "resources": dict(resources),
        "nonce": nonce,
        "seconds": seconds,
        "require_par": require_par,
        "impersonate": impersonate,
        "audiences": dict(audiences or {}),
        "id_jag": dict(id_jag or {}),
        "identity_provider": identity_provider,
        "client_ca": client_ca,
        "tls": {"host": "localhost", "pem": pem},
    }
    context = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    with _running_server(settings, context) as running:
        yield running


@contextmanager
def restarted_server(killed: AuthorizationServer) -> Iterator[AuthorizationServer]:
    """A server in the place of one that was killed: with its port, key and clients, without tokens."""
    with _running_server(killed.settings, killed.context) as running:
        yield running


@contextmanager
def _running_server(settings: Mapping[str, Any], context: ssl.SSLContext) -> Iterator[AuthorizationServer]:
    with running_script("authorization_server.mjs", settings) as told:
        again = {**settings, "port": told["port"], "key": told["key"]}
        yield AuthorizationServer(told["issuer"], told["jwks"], context, told["pid"], again)


BANK = "https://bank.example"
#: what nobody may show
SECRET = "the-secret-of-the-client-4711"
SUBJECT = "the-token-of-the-person-0815"
REFRESH = "the-refresh-token-of-the-person-1234"
KEY = generate_dpop_key()


class Liar(HandIssuer):
    """The server of a test: `says` is its token response, `metadata` what changes in its document."""

    def publish(self, **changes: Any) -> None:
        """Answer with this metadata."""
        known = {
            "issuer": self.issuer,
            "token_endpoint": f"{self.issuer}/token",
            "authorization_endpoint": f"{self.issuer}/auth",
            "device_authorization_endpoint": f"{self.issuer}/device",
            "backchannel_authentication_endpoint": f"{self.issuer}/backchannel",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "jwks_uri": f"{self.issuer}/jwks",
            **changes,
        }
        members = {name: value for name, value in known.items() if value is not None}
        self.answer(METADATA, members)

    def answer(self, path: str, members: Any, status: int = 200, **headers: str) -> None:
        """Answer a path with this JSON, or these octets."""
        body = members if isinstance(members, bytes) else json.dumps(members).encode()
        fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.answers[path] = (status, body, [(b"content-type", b"application/json"), *fields])

    def access_token(self, **changes: Any) -> str:
        known = {"aud": BANK, "client_id": "shop", "scope": "read", "cnf": {"jkt": KEY.thumbprint}}
        return self.token(**{**known, **changes})

    def grant(self, token: str | None = None, **changes: Any) -> None:
        known = {"access_token": token or self.access_token(), "token_type": "DPoP", "expires_in": 300}
        members = {name: value for name, value in {**known, **changes}.items() if value is not None}
        self.answer("/token", members)


def refused(flow: Any, wire: Transport, code: str = "aiip.authorization-invalid") -> AuthorizationError:
    """The error that the flow ends with; no secret is in it, in its causes or in our frames."""
    with pytest.raises(AuthorizationError) as caught:
        run_flow(flow, wire)
    error = caught.value
    assert error.code == code, error
    shown = "".join(traceback.format_exception(error)) + repr(error.as_dict())
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if "/onym/ai/" in frame.f_code.co_filename or "/onym/sign/" in frame.f_code.co_filename:
            shown += repr(frame.f_locals)
    for secret in (SECRET, SUBJECT, REFRESH):
        assert secret not in shown
    return error


def resolution(
    *issuers: str, auth: Auth = Auth.OAUTH2, dpop: Level = Level.REQUIRED, **more: Any
) -> Resolution:
    document = AnchorDocument(
        anchor=BANK,
        authority="bank.example",
        service=BANK,
        jwks=f"{BANK}/jwks",
        authorization_servers=issuers,
        requirements=Requirements(auth=auth, dpop=dpop),
        **more,
    )
    uri = AIURI.parse("ai://bank.example/account").target
    return Resolution(uri=uri, authority="bank.example", document=document, keys=AuthorityKeys())


def obtain(credentials: Any, found: Resolution, **more: Any) -> Any:
    return credentials.obtain(found, **{"scopes": ["read"], "effects": Effects.READ, **more})
