"""Programs at a gateway: access tokens of people for a program, and requests with them.

One server (npm's oidc-provider) signs people in at the gateway, issues the tokens of the programs, and
exchanges them for tokens of the authority behind the gateway, which is a real endpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ai_support import key_store, trust
from gateway_support import AUTHORITY, Answer, Late, World, world
from oauth_support import AuthorizationServer, authorization_server
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.context import Call, Task
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.ai.oauth import Grant, OAuthClient, Target
from onym.ai.oauth_metadata import Registration
from onym.ai.records import Level
from onym.ai.settings import ResolverSettings
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.net.transport import Transport, run_flow
from onym.server.gateway.settings import AuthorizationServerTable, ProgramTable
from onym.server.settings import IssuerTable
from onym.sign.dpop import generate_dpop_key, sign_dpop_proof
from onym.sign.sealing import rotate_secrets
from onym.uri.secret import Secret
from people_support import Browser

__all__ = ["SECRET", "ProgramTown", "program_town"]

SECRET = "a-secret-of-the-tests-4711"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_CALLBACK = "http://127.0.0.1:4711/callback"


@dataclass
class ProgramTown:
    """A gateway that takes the tokens of two programs, "agent" and "robot", and the authority behind it.

    `calls` are those that ran at the authority.
    """

    world: World
    login: AuthorizationServer
    calls: list[Call]
    wire: Transport
    ca_file: Path
    nonces: dict[str, str] = field(default_factory=dict)

    @property
    def authority(self) -> str:
        """The resource identifier of the authority."""
        return f"https://{self.world.authority}/.well-known/aiip/v1"

    def grant(
        self,
        login: str = "ann",
        client: str = "agent",
        *,
        bound: bool = True,
        resource: str | None = None,
        scopes: tuple[str, ...] = ("use",),
    ) -> Grant:
        """A token of this person for a program, by the code flow; `bound` to a new DPoP key."""
        key = generate_dpop_key() if bound else None
        oauth = self._client(client, key)
        target = Target(
            resource=resource or self.world.base,
            scopes=scopes,
            dpop=Level.REQUIRED if bound else Level.NONE,
        )
        begun = run_flow(oauth.begin_code_flow(target, redirect_uri=_CALLBACK), self.wire)
        back = Secret(self.login.sign_in(begun.url, login))
        return run_flow(oauth.finish_code_flow(begun, back), self.wire)

    def own_grant(self, client: str = "robot") -> Grant:
        """A token of the program itself."""
        oauth = self._client(client, generate_dpop_key())
        target = Target(resource=self.world.base, scopes=("use",), dpop=Level.REQUIRED)
        return run_flow(oauth.request_client_credentials(target), self.wire)

    def _client(self, client: str, key: Any) -> OAuthClient:
        row = Registration(issuer=self.login.issuer, client_id=client, secret=Secret(SECRET))
        return OAuthClient(registration=row, settings=ResolverSettings(timeout=120), dpop_key=key)

    def fields(self, grant: Grant, method: str, path: str, **more: Any) -> dict[str, str]:
        """The fields that prove a program: its token, and for a bound one a new proof."""
        token = grant.token.reveal()
        if grant.dpop_key is None:
            return {"authorization": f"Bearer {token}"}
        proof = sign_dpop_proof(
            grant.dpop_key,
            method=method,
            url=self.world.base + path,
            at=time.time(),
            access_token=token,
            nonce=self.nonces.get("gateway"),
            **more,
        )
        return {"authorization": f"DPoP {token}", "dpop": proof}

    def send(
        self,
        grant: Grant,
        resource: str,
        body: bytes | None = b"{}",
        *,
        method: str = "POST",
        proof: Mapping[str, Any] | None = None,
        **headers: str,
    ) -> Answer:
        """A request of a program, once more if the gateway gives it a nonce."""
        path = resource if resource.startswith(("/gateway/", "/tasks/")) else self.world.path(resource)
        given = body if method == "POST" else None
        for _ in range(2):
            fields = self.fields(grant, method, path.partition("?")[0], **(proof or {}))
            answer = self.world.at(method, path, given, **fields, **headers)
            nonce = answer.headers.get("dpop-nonce")
            if nonce is not None:
                self.nonces["gateway"] = nonce
            if nonce is None or answer.status != 401 or b"nonce" not in answer.body:
                break
        return answer

    def sign_in(self, browser: Browser, who: str, *, then: str = "/account") -> None:
        """Sign a person in at the gateway."""
        first = browser.open(self.world.port, "GET", f"/auth/login/home?next={then}")
        assert first.status == 303, first.body
        back = urlsplit(self.login.sign_in(first.headers["location"], who))
        answer = browser.open(self.world.port, "GET", f"{back.path}?{back.query}")
        assert (answer.status, answer.headers["location"]) == (303, then), answer.body


def _program(name: str) -> dict[str, Any]:
    return {
        "client_id": name,
        "client_secret": SECRET,
        "client_name": "The bank itself",
        "logo_uri": "https://evil.example/logo.png",
        "grant_types": ["authorization_code", "client_credentials"],
        "redirect_uris": ["http://127.0.0.1/callback"],
        "application_type": "native",
        "response_types": ["code"],
    }


def _make_endpoint(late: Late, issuer: str, calls: list[Call]) -> Endpoint:
    assert late.ca is not None
    resource = f"https://{AUTHORITY}:{late.port}/.well-known/aiip/v1"
    network = NetConfig(policy=Policy.local(), tls=trust(late.ca, late.folder))
    app = Endpoint(
        f"{AUTHORITY}:{late.port}",
        keys=key_store(late.folder),
        authorization=JWTAuthorization(issuer, resource, scopes=("balance", "pay"), network=network),
        store=late.folder / "keys.db",
        policy="permit(principal, action, resource);",
    )

    @app.resource("/balance", scopes=["balance"])
    def balance(call: Call) -> dict[str, Any]:
        calls.append(call)
        return {"of": call.caller.subject, "by": call.caller.client_id}

    @app.resource("/note", effects="write", scopes=["balance"], reversible=True)
    def note(call: Call, text: str) -> str:
        calls.append(call)
        return text

    @app.resource("/slow", scopes=["balance"], task=True)
    async def slow(task: Task, call: Call) -> str:
        task.progress(1, 2)
        return f"for {call.caller.subject}"

    @app.resource("/close", effects="write", scopes=["pay"])
    def close(account: str) -> str:
        return account

    @app.resource("/pay", effects="financial", scopes=["pay"])
    def pay(amount: int) -> int:
        return amount

    return app


@contextmanager
def program_town(
    folder: Path, *, program: Mapping[str, Any] | None = None, **changes: Any
) -> Iterator[ProgramTown]:
    """A running town. `program` changes the gateway's table of programs, `changes` are more settings."""
    rotate_secrets(folder / "secrets")
    calls: list[Call] = []
    late, servers = Late(), []
    with ExitStack() as stack:

        def prepare(base: str) -> Mapping[str, Any]:
            assert late.ca is not None
            late.ca.cert_pem.write_to_path(str(folder / "ca.pem"))
            authority = f"https://{AUTHORITY}:{late.port}/.well-known/aiip/v1"
            gateway = {
                "client_id": "gateway",
                "client_secret": SECRET,
                "grant_types": ["authorization_code", EXCHANGE],
                "redirect_uris": [f"{base}/auth/callback/home"],
                "response_types": ["code"],
            }
            login = stack.enter_context(
                authorization_server(
                    late.ca,
                    clients=[gateway, _program("agent"), _program("robot")],
                    resources={authority: "balance pay", base: "use other"},
                    nonce=False,
                )
            )
            servers.append(login)
            late.app = _make_endpoint(late, login.issuer, calls)
            provider = IssuerTable(
                id="home",
                title="Home",
                issuer=login.issuer,
                client_id="gateway",
                client_secret=Secret(SECRET),
                scopes=("openid", "use"),
                network="local",
                ca_file=str(folder / "ca.pem"),
                resource=base,
                max_age=3600,
            )
            server = AuthorizationServerTable(
                id="home",
                issuer=login.issuer,
                client_id="gateway",
                client_secret=Secret(SECRET),
                connect=False,
            )
            return {
                "providers": (provider,),
                "authorization_servers": (server,),
                "programs": (ProgramTable(**{"provider": "home", "scopes": ("use",), **(program or {})}),),
                "store": Secret(str(folder / "shared.sqlite")),
                "secrets": str(folder / "secrets"),
                "ports": (int(urlsplit(login.issuer).port or 0),),
                **changes,
            }

        place = stack.enter_context(world(late=late, prepare=prepare))
        wire = stack.enter_context(
            Transport(NetConfig(policy=Policy.local(), tls=trust(place.endpoint.ca, folder)))
        )
        yield ProgramTown(place, servers[0], calls, wire, folder / "ca.pem")
