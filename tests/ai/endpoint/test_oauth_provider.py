"""An endpoint behind a real authorization server (npm `oidc-provider`), called by an independent client (npm
`oauth4webapi`) that knows a URL and finds the rest by metadata."""

from __future__ import annotations

import json
import secrets
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ai_support import ai_policy, authority_ca, key_store, names_resolver, serve_asgi, trust
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.net.config import NetConfig
from onym.sign.keys import read_authority_keys
from onym.sign.receipts import access_token_hash, verify_filed
from openid_support import OpenIDProvider, independent_client, openid_provider

OTHER = "https://other.example"


class Bank:
    """A running endpoint with one open and one guarded resource, its provider, and how to call it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        ca = authority_ca()
        self.ca_file = folder / "ca.pem"
        ca.cert_pem.write_to_path(str(self.ca_file))
        pem = ca.issue_cert("login.test").private_key_and_cert_chain_pem.bytes()
        self._app: Any = None
        port = stack.enter_context(serve_asgi(self, "bank.test", ca=ca))
        self.authority = f"bank.test:{port}"
        self.resource = f"https://{self.authority}/.well-known/aiip/v1"
        self.provider: OpenIDProvider = stack.enter_context(
            openid_provider(
                resources={self.resource: "agents:read agents:invoke", OTHER: "agents:invoke"},
                tls=("login.test", pem.decode()),
            )
        )
        login = int(self.provider.issuer.rpartition(":")[2])
        self.authorization = JWTAuthorization(
            self.provider.issuer,
            self.resource,
            network=NetConfig(
                policy=ai_policy([login]),
                tls=trust(ca, folder),
                resolver=names_resolver({"login.test": "127.0.0.1"}),
            ),
            scopes=["agents:read", "agents:invoke"],
        )
        self.keys = key_store(folder)
        app = Endpoint(self.authority, keys=self.keys, authorization=self.authorization)

        @app.resource("/tool/add", scopes=["agents:invoke"])
        def add(a: int, b: int) -> int:
            """Adds two numbers."""
            return a + b

        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._app(scope, receive, send)

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "url": f"{self.resource}/{self.authority}/tool/add",
            "resource": self.resource,
            "client_id": self.provider.client_id,
            "client_secret": self.provider.client_secret,
            "scope": "agents:invoke",
            "body": '{"a":2,"b":3}',
            "nonce": secrets.token_urlsafe(16),
            **changes,
        }

    def call(self, **changes: Any) -> Any:
        return independent_client("client.mjs", self.settings(**changes), self.ca_file)


@contextmanager
def _bank(folder: Path) -> Iterator[Bank]:
    with ExitStack() as stack:
        yield Bank(folder, stack)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with _bank(tmp_path_factory.mktemp("bank")) as found:
        yield found


def test_an_independent_client_finds_its_way_from_a_challenge_to_a_signed_result(bank: Bank) -> None:
    nonce = secrets.token_urlsafe(16)
    said = bank.call(nonce=nonce)
    assert said["bare"] == 401
    assert said["location"] == bank.authorization.metadata_url
    assert said["metadata"]["resource"] == bank.resource
    assert said["metadata"]["authorization_servers"] == [bank.provider.issuer]
    assert (said["status"], json.loads(said["body"])) == (200, 5)
    receipt = said["headers"]["aiip-receipt"]
    found = verify_filed(receipt, _keys(bank), body=said["body"].encode())
    assert found.audience == bank.provider.client_id
    assert found.nonce == nonce
    assert found.token_hash == access_token_hash(said["token"])


def test_the_server_gives_the_token_that_rfc_9068_describes(bank: Bank) -> None:
    said = bank.call()
    head = _decoded(said["token"], 0)
    claims = _decoded(said["token"], 1)
    assert (head["typ"], head["alg"]) == ("at+jwt", "ES256")
    assert claims["aud"] == bank.resource
    assert {"iss", "exp", "iat", "jti", "sub", "client_id", "scope"} <= claims.keys()


def test_a_token_with_too_few_scopes_is_told_which_ones_are_missing(bank: Bank) -> None:
    said = bank.call(scope="agents:read")
    assert said["status"] == 403
    assert json.loads(said["body"])["code"] == "insufficient-scope"
    assert 'error="insufficient_scope"' in said["headers"]["www-authenticate"]
    assert 'scope="agents:invoke"' in said["headers"]["www-authenticate"]


def test_a_token_for_another_resource_of_the_same_server_is_refused(bank: Bank) -> None:
    said = bank.call(ask_for=OTHER)
    assert _decoded(said["token"], 1)["aud"] == OTHER
    assert said["status"] == 401
    assert json.loads(said["body"])["code"] == "authentication-required"
    assert 'error="invalid_token"' in said["headers"]["www-authenticate"]


def test_an_opaque_token_of_the_same_server_is_refused(bank: Bank) -> None:
    said = bank.call(ask_for=None, scope="")
    assert "." not in said["token"]
    assert said["status"] == 401


def _keys(bank: Bank) -> Any:
    return read_authority_keys(bank.keys.jwks(time.time()))


def _decoded(token: str, part: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(urlsafe_b64decode(token.split(".")[part] + "=="))
    return found
