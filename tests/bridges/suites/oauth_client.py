"""An MCP client that the conformance suite tests: Onym's OAuth client, with just enough of MCP around it.

The suite runs `python oauth_client.py URL` for each scenario of `auth/*`. This file plays what Onym leaves to
people: the operator, who registers the client, and the browser, which follows one redirect.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from joserfc.jwk import ECKey

from onym.ai.exchange import Challenge, DPoPNonces, find_challenge
from onym.ai.oauth import Grant, OAuthClient, Target
from onym.ai.oauth_metadata import (
    Registration,
    ResourceMetadata,
    choose_registration,
    fetch_resource_metadata,
    parse_url,
)
from onym.ai.records import Level
from onym.ai.settings import ResolverSettings
from onym.errors import AuthorizationError
from onym.net.messages import HTTPRequest, Reply, Send
from onym.net.policy import Policy
from onym.net.transport import Transport, run_flow
from onym.sign.dpop import generate_dpop_key, sign_dpop_proof
from onym.sign.keys import SigningKey
from onym.uri.secret import Secret

REDIRECT = "http://127.0.0.1/callback"
#: of the suite: the client's ID at servers that read clients' metadata from a URL
METADATA_URL = "https://conformance-test.local/client-metadata.json"
VERSION = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
#: how often a person is sent to sign in again, with more scopes
MOST_SIGN_INS = 3


def send(wire: Transport, method: str, url: str, body: Any = None, *fields: tuple[str, Any]) -> Reply:
    origin, target = parse_url(url)
    content = b"" if body is None else json.dumps(body).encode()
    headers = (("Content-Type", "application/json"), *fields)
    return wire.send(
        Send(HTTPRequest(method=method, origin=origin, target=target, headers=headers, body=content), 10)
    )


class Client:
    """One client of one MCP server."""

    def __init__(self, wire: Transport, url: str, context: dict[str, Any]) -> None:
        self.wire, self.url, self.context = wire, url, context
        self.nonces = DPoPNonces()
        self.grant: Grant | None = None
        self.registrations: list[Registration] = []

    def call(self, method: str, **params: Any) -> Any:
        """Send a request, after a sign-in where the server wants one."""
        for _ in range(MOST_SIGN_INS):
            reply = self.post(method, params)
            if self.nonces.update(parse_url(self.url)[0], reply.headers) and reply.status == 401:
                reply = self.post(method, params)
            if reply.status not in {401, 403}:
                break
            self.authorize(find_challenge(reply.headers) or Challenge("bearer", {}))
        if reply.status != 200:
            raise SystemExit(f"{method} was answered with status {reply.status}")
        return json.loads(reply.body)["result"]

    def post(self, method: str, params: dict[str, Any]) -> Reply:
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "onym", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        fields: list[tuple[str, Any]] = [
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", VERSION),
            ("Mcp-Method", method),
            *([("Mcp-Name", params["name"])] if "name" in params else []),
        ]
        if self.grant is not None:
            token, key = self.grant.token.reveal(), self.grant.dpop_key
            fields.append(("Authorization", Secret(f"{'Bearer' if key is None else 'DPoP'} {token}")))
            if key is not None:
                nonce = self.nonces.get(parse_url(self.url)[0])
                proof = sign_dpop_proof(
                    key, method="POST", url=self.url, at=time.time(), access_token=token, nonce=nonce
                )
                fields.append(("DPoP", Secret(proof)))
        return send(self.wire, "POST", self.url, body, *fields)

    def authorize(self, challenge: Challenge) -> None:
        """Get a token for what a challenge asks for, with the scopes of the last one."""
        settings = ResolverSettings(timeout=300.0)
        found = self.find_metadata(challenge, settings)
        issuer = found.authorization_servers[0]
        if issuer not in [known.issuer for known in self.registrations]:
            self.registrations.append(self.register(issuer, settings))
        registration = choose_registration([issuer], self.registrations, target=self.url)
        wanted = challenge.parameters.get("scope", "").split() or found.scopes
        earlier: Collection[str] = () if self.grant is None else self.grant.scopes
        bound = challenge.scheme == "dpop" or found.dpop_required
        target = Target(
            resource=found.resource,
            scopes=tuple(sorted({*wanted, *earlier})),
            dpop=Level.REQUIRED if bound else Level.NONE,
        )
        key = generate_dpop_key() if bound else None
        client = OAuthClient(registration=registration, settings=settings, dpop_key=key, nonces=self.nonces)
        self.grant = self.sign_in(client, target, settings)

    def find_metadata(self, challenge: Challenge, settings: ResolverSettings) -> ResourceMetadata:
        """Return the metadata that the challenge names, else that of the URL, else that of its origin."""
        named = challenge.parameters.get("resource_metadata")
        try:
            return run_flow(fetch_resource_metadata(self.url, settings, url=named), self.wire)
        except AuthorizationError:
            if named is not None:
                raise
        return run_flow(
            fetch_resource_metadata(self.url.removesuffix(urlsplit(self.url).path), settings), self.wire
        )

    def register(self, issuer: str, settings: ResolverSettings) -> Registration:
        """Register the client, as its operator does: Onym takes no registration from a server by itself."""
        if "client_id" in self.context:
            pem = self.context.get("private_key_pem")
            text = None if pem is None else Secret(json.dumps(ECKey.import_key(pem).as_dict(private=True)))
            secret = self.context.get("client_secret")
            return Registration(
                issuer=issuer,
                client_id=self.context["client_id"],
                secret=None if secret is None else Secret(secret),
                key=None if text is None else SigningKey.from_jwk(text, algorithm="ES256"),
            )
        public = Registration(issuer=issuer, client_id=METADATA_URL)
        server = run_flow(OAuthClient(registration=public, settings=settings).fetch_server(), self.wire)
        if SCENARIO == "auth/basic-cimd":
            return public
        body = {
            "client_name": "onym",
            "redirect_uris": [REDIRECT],
            "application_type": "native",
            "grant_types": ["authorization_code", "refresh_token"],
        }
        # the suite registers clients beside its token endpoint
        url = server.token_endpoint.removesuffix("/token") + "/register"
        made = json.loads(send(self.wire, "POST", url, body).body)
        return Registration(
            issuer=issuer,
            client_id=made["client_id"],
            secret=Secret(made["client_secret"]) if "client_secret" in made else None,
            method=made.get("token_endpoint_auth_method"),
        )

    def sign_in(self, client: OAuthClient, target: Target, settings: ResolverSettings) -> Grant:
        """Return a token by the grant that the scenario is about."""
        if "idp_id_token" in self.context:
            issuer, client_id = self.context["idp_issuer"], self.context["idp_client_id"]
            provider = OAuthClient(
                registration=Registration(issuer=issuer, client_id=client_id), settings=settings
            )
            flow = provider.request_id_jag(
                Secret(self.context["idp_id_token"]),
                target,
                audience=client.registration.issuer,
                client_id=client.registration.client_id,
            )
            return run_flow(client.redeem_id_jag(run_flow(flow, self.wire), target), self.wire)
        if "valid_jwt" in self.context:
            return run_flow(client.redeem_id_jag(Secret(self.context["valid_jwt"]), target), self.wire)
        if SCENARIO.startswith("auth/client-credentials"):
            return run_flow(client.request_client_credentials(target), self.wire)
        begun = run_flow(client.begin_code_flow(target, redirect_uri=REDIRECT), self.wire)
        return run_flow(client.finish_code_flow(begun, open_in_browser(begun.url)), self.wire)


def open_in_browser(url: str) -> Secret:
    """Return the URL to which the server redirects a browser; the suite asks its person nothing."""
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=300)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        return Secret(connection.getresponse().getheader("location") or "")


def main() -> None:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with Transport(Policy.local()) as wire:
        client = Client(wire, sys.argv[1], context)
        client.call("tools/list")
        client.call("tools/call", name="test-tool", arguments={})


if __name__ == "__main__":
    main()
