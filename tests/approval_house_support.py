"""A house for approvals: a gateway and a bank on TLS, and the server that signs people in and issues tokens.

The server is npm's oidc-provider. People sign in at the gateway with a browser, or give a program a token for
the gateway or for the bank. Bob and Cat are approvers.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import trustme

from ai_support import authority_ca, key_store, serve_asgi, trust
from gateway_support import Late
from oauth_support import AuthorizationServer, authorization_server
from onym.ai.approvals import ApprovalClient
from onym.ai.client import AIClient
from onym.ai.credentials import StaticCredentials, StoredCredentials
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.ai.oauth import Grant, OAuthClient, Target
from onym.ai.oauth_metadata import Registration
from onym.ai.records import Approver, Level
from onym.ai.settings import ResolverSettings
from onym.ai.sign_ins import FolderSignIns, SignIn
from onym.errors import ApprovalRequired
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.net.transport import Transport, run_flow
from onym.server.gateway import GatewaySettings, create_gateway
from onym.server.gateway.settings import AuthorizationServerTable, GatewayRates, ProgramTable
from onym.server.settings import IssuerTable, RateLimit
from onym.sign.dpop import generate_dpop_key
from onym.sign.keystore import KeyStore
from onym.sign.sealing import rotate_secrets
from onym.uri.secret import Secret

__all__ = ["POLICY", "ApprovalHouse", "approval_house"]

POLICY: Final = """
@approval("other") @reason("Payments need a second person.")
permit(principal, action == Action::"financial", resource);
@approval("person") permit(principal, action == Action::"physical", resource);
@approval("two") permit(principal, action == Action::"write", resource);
"""
_SECRET: Final = "a-secret-of-the-tests-4711"
_CALLBACK: Final = "http://127.0.0.1:4711/callback"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_CIBA: Final = "urn:openid:params:grant-type:ciba"
_PLENTY: Final = RateLimit(burst=100_000, per_minute=1e7)
_PROGRAM: Final[dict[str, Any]] = {
    "token_endpoint_auth_method": "none",
    "application_type": "native",
    "grant_types": ["authorization_code", "refresh_token", _CIBA],
    "backchannel_token_delivery_mode": "poll",
    "redirect_uris": ["http://127.0.0.1/callback"],
    "response_types": ["code"],
}


@dataclass
class ApprovalHouse:
    """The running house. `paid` are the payments and `read` the files that the bank has given out."""

    gateway: str
    bank: str
    folder: Path
    ca: trustme.CA
    login: AuthorizationServer
    wire: Transport
    paid: list[int]
    read: list[str]
    keys: KeyStore
    gateway_keys: KeyStore
    settings: ResolverSettings = field(default_factory=lambda: ResolverSettings(timeout=120, dns=False))

    @property
    def ca_file(self) -> str:
        return str(self.folder / "authority.pem")

    def uri(self, path: str) -> str:
        return f"ai://{self.bank}{path}"

    def network(self) -> NetConfig:
        return NetConfig(policy=Policy.local(), tls=trust(self.ca, self.folder))

    def grant(
        self, who: str, *scopes: str, client: str = "agent", resource: str | None = None, bound: bool = True
    ) -> Grant:
        """A token that this person gives a program, for the gateway unless `resource` names another."""
        row = Registration(issuer=self.login.issuer, client_id=client, method="none")
        key = generate_dpop_key() if bound else None
        oauth = OAuthClient(registration=row, settings=self.settings, dpop_key=key)
        level = Level.REQUIRED if bound else Level.NONE
        target = Target(resource=resource or self.gateway, scopes=scopes or ("use",), dpop=level)
        begun = run_flow(oauth.begin_code_flow(target, redirect_uri=_CALLBACK), self.wire)
        return run_flow(oauth.finish_code_flow(begun, Secret(self.login.sign_in(begun.url, who))), self.wire)

    def keep_sign_in(self, who: str, *scopes: str, client: str = "agent", bound: bool = True) -> Path:
        """A folder of sign-ins (`ONYM_SIGN_INS`) with that of this person at the gateway."""
        grant = self.grant(who, *("use", *scopes), client=client, bound=bound)
        row = Registration(issuer=self.login.issuer, client_id=client, method="none")
        folder = self.folder / f"sign-ins-{who}-{client}-{uuid.uuid4()}"
        target = Target(resource=self.gateway, scopes=("use",), dpop=Level.SUPPORTED)
        sign_in = SignIn.from_grant(self.gateway, grant, registration=row, target=target, at=time.time())
        FolderSignIns(folder).save(sign_in)
        return folder

    def approvals(self, who: str, *scopes: str, client: str = "agent", bound: bool = True) -> ApprovalClient:
        """A program of this person at the gateway; `approve` lets it decide."""
        store = FolderSignIns(self.keep_sign_in(who, *scopes, client=client, bound=bound))
        return ApprovalClient(self.gateway, StoredCredentials(store, settings=self.settings), self.settings)

    def run(self, flow: Any) -> Any:
        return run_flow(flow, self.wire)

    def bank_grant(self, who: str) -> Grant:
        """The token for the bank that this person gives the program "agent", bound to a new DPoP key."""
        return self.grant(who, "pay", resource=f"https://{self.bank}/.well-known/aiip/v1")

    def client(self, grant: Grant) -> AIClient:
        """A client of the bank with this token."""
        return AIClient(
            self.settings,
            network=self.network(),
            credentials=StaticCredentials(grant.token, "agent", authority=self.bank, dpop_key=grant.dpop_key),
            allow_effects=["read", "write", "financial", "physical"],
            timeout=120,
        )

    def request(self, client: AIClient, path: str, given: Any, key: str, **changes: Any) -> bytes:
        """Send a call that needs an approval; what `onym ai invoke --save` writes then."""
        try:
            client.invoke(self.uri(path), given, idempotency_key=key)
        except ApprovalRequired as error:
            known = {
                "transaction_challenge": error.transaction_challenge,
                "uri": self.uri(path),
                "idempotency_key": key,
                "body_base64": base64.b64encode(json.dumps(given, separators=(",", ":")).encode()).decode(),
                "content_type": "application/json",
            }
            return json.dumps(known | changes).encode()
        raise AssertionError("the call needed no approval")

    def audit(self) -> list[dict[str, Any]]:
        lines = (self.folder / "audit.jsonl").read_bytes().splitlines()
        return [line for line in map(json.loads, lines) if line["event"] == "approval"]


def _make_bank(
    house: dict[str, Any], folder: Path, network: NetConfig, paid: list[int], read: list[str]
) -> Endpoint:
    authority, gateway = house["bank"], house["gateway"]
    resource = f"https://{authority}/.well-known/aiip/v1"
    app = Endpoint(
        authority,
        keys=house["keys"],
        store=folder / "keys.sqlite",
        policy=house["policy"],
        approvers=[Approver(issuer=gateway, jwks=f"{gateway}/.well-known/jwks.json")],
        authorization=JWTAuthorization(house["issuer"], resource, scopes=["pay"], network=network),
        network=network,
    )

    @app.resource("/pay", effects="financial", scopes=["pay"], title="Pay an invoice")
    def pay(amount: int, to: str = "") -> int:
        paid.append(amount)
        return amount

    @app.resource("/door", effects="physical", scopes=["pay"])
    def door(name: str) -> str:
        return name

    @app.resource("/file", scopes=["pay"])
    def file(name: str) -> str:
        read.append(name)
        return f"the file {name}"

    @app.resource("/close", effects="write", scopes=["pay"])
    def close(account: str) -> str:
        return account

    return app


@contextmanager
def approval_house(
    folder: Path,
    *,
    add_resources: Callable[[Endpoint], None] | None = None,
    policy: str = POLICY,
    **changes: Any,
) -> Iterator[ApprovalHouse]:
    """A running house; `add_resources` adds some to the bank, `changes` are settings of the gateway."""
    rotate_secrets(folder / "secrets")
    (folder / "gateway").mkdir()
    ca, paid, read = authority_ca(), list[int](), list[str]()
    keys, gateway_keys = key_store(folder), key_store(folder / "gateway")
    tls = trust(ca, folder)
    network = NetConfig(policy=Policy.local(), tls=tls)
    front, back = Late(), Late()
    with ExitStack() as stack:
        gateway = (
            f"https://gateway.localhost:{stack.enter_context(serve_asgi(front, 'gateway.localhost', ca=ca))}"
        )
        bank = f"bank.localhost:{stack.enter_context(serve_asgi(back, 'bank.localhost', ca=ca))}"
        client = {
            "client_id": "gateway",
            "client_secret": _SECRET,
            "grant_types": ["authorization_code", _EXCHANGE],
            "redirect_uris": [f"{gateway}/auth/callback/home"],
            "response_types": ["code"],
        }
        programs = [{"client_id": name, **_PROGRAM} for name in ("agent", "onym-cli")]
        resources = {f"https://{bank}/.well-known/aiip/v1": "pay", gateway: "use approve"}
        login = stack.enter_context(
            authorization_server(ca, clients=[client, *programs], resources=resources, nonce=False)
        )
        house = {"policy": policy, "bank": bank, "gateway": gateway, "keys": keys, "issuer": login.issuer}
        back.app = _make_bank(house, folder, network, paid, read)
        if add_resources is not None:
            add_resources(back.app)
        given: dict[str, Any] = {
            "base_url": gateway,
            "behind_proxy": True,
            "keys": str(folder / "gateway" / "keys"),
            "audit": str(folder / "audit.jsonl"),
            "network": "local",
            "dns": False,
            "ca_files": tls.ca_files,
            "timeout": 120,
            "providers": (
                IssuerTable(
                    id="home",
                    title="Home",
                    issuer=login.issuer,
                    client_id="gateway",
                    client_secret=Secret(_SECRET),
                    scopes=("openid", "use"),
                    network="local",
                    ca_file=tls.ca_files[0],
                    resource=gateway,
                    max_age=3600,
                ),
            ),
            "authorization_servers": (
                AuthorizationServerTable(
                    id="home",
                    issuer=login.issuer,
                    client_id="gateway",
                    client_secret=Secret(_SECRET),
                    connect=False,
                ),
            ),
            "programs": (ProgramTable(provider="home", scopes=("use",)),),
            "store": Secret(str(folder / "shared.sqlite")),
            "secrets": str(folder / "secrets"),
            "ports": (int(urlsplit(login.issuer).port or 0), int(bank.rpartition(":")[2])),
            "approvers": tuple(f"home subject-of-{who}" for who in ("bob", "cat", "tired", "silent")),
            "pseudonym_key": Secret("pseudonyms"),
            "rates": GatewayRates(reads=_PLENTY, writes=_PLENTY, logins=_PLENTY),
        }
        front.app = create_gateway(GatewaySettings(**given | changes))
        wire = stack.enter_context(Transport(network))
        yield ApprovalHouse(gateway, bank, folder, ca, login, wire, paid, read, keys, gateway_keys)
