"""`onym ai login`, `logout` and `whoami` with a real authorization server, and calls with the sign-in."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import NoKeyringError

from ai_support import authority_ca, key_store, serve_asgi, trust
from cli.conftest import Run
from oauth_support import AuthorizationServer, authorization_server
from onym.ai import AIClient, StoredCredentials
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.context import Call
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.ai.settings import ResolverSettings
from onym.cli import exit_codes
from onym.cli.commands.ai import login as login_module
from onym.net.config import NetConfig
from onym.net.limits import TLSConfig
from onym.net.policy import Policy

pytestmark = pytest.mark.xdist_group("oauth login")

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
CLIENT = {
    "client_id": "onym-cli",
    "token_endpoint_auth_method": "none",
    "application_type": "native",
    "grant_types": ["authorization_code", "refresh_token", DEVICE],
    "redirect_uris": ["http://127.0.0.1/callback"],
    "response_types": ["code"],
}


class Bank:
    """An endpoint with a guarded resource, and its authorization server."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        ca = authority_ca()
        trust(ca, folder)
        self.ca = str(folder / "authority.pem")
        self._app: Any = None
        port = stack.enter_context(serve_asgi(self, "bank.localhost", ca=ca))
        self.authority = f"bank.localhost:{port}"
        resource = f"https://{self.authority}/.well-known/aiip/v1"
        self.server: AuthorizationServer = stack.enter_context(
            authorization_server(
                ca,
                clients=[CLIENT],
                resources={resource: "balance:read pay", f"https://{self.authority}": "use"},
            )
        )
        authorization = JWTAuthorization(
            self.server.issuer,
            resource,
            network=NetConfig(policy=Policy.local(), tls=trust(ca, folder)),
            scopes=["balance:read", "pay"],
        )
        self.gateway = {
            "resource": f"https://{self.authority}",
            "authorization_servers": [self.server.issuer],
            "scopes_supported": ["use"],
        }
        app = Endpoint(self.authority, keys=key_store(folder), authorization=authorization)

        @app.resource("/account/balance", scopes=["balance:read"])
        def balance(call: Call) -> dict[str, Any]:
            """The balance of the account."""
            return {"person": call.caller.subject, "cents": 700}

        @app.resource("/account/pay", scopes=["pay"])
        def pay() -> str:
            """Pays."""
            return "paid"

        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/.well-known/oauth-protected-resource":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(self.gateway).encode()})
        elif scope["type"] == "http":
            await self._app(scope, receive, send)

    def uri(self, path: str) -> str:
        return f"ai://{self.authority}{path}"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with ExitStack() as stack:
        yield Bank(tmp_path_factory.mktemp("bank"), stack)


class Ring(KeyringBackend):
    """A keyring of the test's own."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ring:
    made = Ring()
    for name in ("get_password", "set_password", "delete_password"):
        monkeypatch.setattr(keyring, name, getattr(made, name))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return made


Onym = Callable[..., Any]


@pytest.fixture
def onym(bank: Bank, ring: Ring, run: Run) -> Onym:
    def call(*words: str, **more: Any) -> Any:
        network = () if words[0] == "whoami" else ("--ca", bank.ca, "--no-dns")
        return run("ai", *words, *network, **more)

    return call


@pytest.fixture
def browser(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A browser in which people sign in at once; the login of the next one is the last of the list."""
    logins = ["ada"]
    threads: list[threading.Thread] = []

    def walk(url: str) -> None:
        back = bank.server.sign_in(url, logins[-1])
        # a page that another program opened, and one that asks for something else
        for other in (back.replace("state=", "state=x"), back.replace("/callback", "/favicon.ico")):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(other, timeout=300)
            caught.value.close()  # it is the response too, with its socket
        with urllib.request.urlopen(back, timeout=300) as page:
            assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert b"terminal" in page.read()

    def opened(url: str) -> bool:
        threads.append(threading.Thread(target=walk, args=(url,), daemon=True))
        threads[-1].start()
        return True

    monkeypatch.setattr(login_module.webbrowser, "open", opened)
    yield logins
    for thread in threads:
        thread.join(300)


def login(onym: Onym, bank: Bank, *words: str) -> Any:
    arguments = ["--issuer", bank.server.issuer, "--client-id", "onym-cli", "--json"]
    return onym("login", bank.authority, *arguments, *words)


@pytest.mark.requirement("ai-gateway-i")
def test_a_person_signs_in_with_the_browser_and_calls_with_the_sign_in(
    onym: Onym, bank: Bank, ring: Ring, browser: list[str]
) -> None:
    before = onym("invoke", bank.uri("/account/balance"))
    assert before.code == exit_codes.REFUSED
    assert "onym ai login" in before.err
    done = login(onym, bank)
    assert done.code == 0, done.err
    assert done.json["scopes"] == ["balance:read", "pay"]
    assert done.json["subject"] == bank.server.subject("ada")
    called = onym("invoke", bank.uri("/account/balance"))
    assert json.loads(called.out) == {"person": bank.server.subject("ada"), "cents": 700}
    # from Python, as protect-a-resource.md shows it
    settings = ResolverSettings(dns=False, timeout=300.0)
    network = NetConfig(policy=Policy.local(), tls=TLSConfig(ca_files=(str(bank.ca),)))
    with AIClient(settings, network=network, credentials=StoredCredentials(settings=settings)) as client:
        result = client.invoke(bank.uri("/account/balance"))
    assert json.loads(result.body) == {"person": bank.server.subject("ada"), "cents": 700}
    shown = onym("whoami", bank.authority, "--json")
    assert shown.json == done.json
    assert bank.server.issuer in onym("whoami").out
    kept = json.loads(ring.kept["onym-ai", bank.authority])
    for ran in (done, called, shown, onym("whoami")):
        for name in ("token", "refresh_token", "dpop_key"):
            assert kept[name] is None or kept[name] not in ran.out + ran.err


def test_a_token_that_has_ended_is_refreshed_and_the_new_one_is_kept(
    onym: Onym, bank: Bank, ring: Ring, browser: list[str]
) -> None:
    browser.append("bob")
    assert login(onym, bank).code == 0
    name = ("onym-ai", bank.authority)
    kept = json.loads(ring.kept[name])
    ring.kept[name] = json.dumps(kept | {"expires": time.time() + 5})
    called = onym("invoke", bank.uri("/account/balance"))
    assert json.loads(called.out)["person"] == bank.server.subject("bob")
    renewed = json.loads(ring.kept[name])
    assert renewed["token"] != kept["token"]
    assert renewed["refresh_token"] != kept["refresh_token"]
    # the old refresh token is worth nothing, and the sign-in ends
    ring.kept[name] = json.dumps(kept | {"expires": time.time() + 5})
    ended = onym("invoke", bank.uri("/account/balance"))
    assert ended.code == exit_codes.AIIP
    words = " ".join(ended.err.split())
    assert "Sign in again: onym ai login" in words
    assert bank.authority in words


def test_a_scope_that_the_person_did_not_give_is_told_with_the_command_that_asks_for_it(
    onym: Onym, bank: Bank, browser: list[str]
) -> None:
    assert login(onym, bank, "--scope", "balance:read").json["scopes"] == ["balance:read"]
    refused = onym("invoke", bank.uri("/account/pay"), "--json")
    assert refused.code == exit_codes.AIIP
    assert refused.json["error"]["code"] == "aiip.insufficient-scope"
    assert f"{bank.authority} --scope balance:read --scope pay" in refused.json["error"]["hint"]
    # the server and the client are known from before
    again = onym("login", bank.authority, "--scope", "balance:read", "--scope", "pay", "--json")
    assert again.json["scopes"] == ["balance:read", "pay"]


def test_a_person_signs_in_on_another_device(onym: Onym, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    def show(session: Any, begun: Any) -> None:
        shown.append(begun)
        _show(session, begun)
        bank.server.approve_device(begun.verification_uri_complete, "carol")

    _show = login_module._show_code
    monkeypatch.setattr(login_module, "_show_code", show)
    done = login(onym, bank, "--device")
    assert done.code == 0, done.err
    assert shown[0].user_code in done.err
    assert shown[0].verification_uri in done.err
    assert done.json["subject"] == bank.server.subject("carol")


def test_signing_out_revokes_the_sign_in_and_forgets_it(
    onym: Onym, bank: Bank, ring: Ring, browser: list[str]
) -> None:
    assert login(onym, bank).code == 0
    kept = ring.kept["onym-ai", bank.authority]
    ended = onym("logout", bank.authority, "--json")
    assert ended.json == {"ended": [{"name": bank.authority, "revoked": True}]}
    assert onym("whoami", "--json").json == {"sign_ins": []}
    assert "onym ai login" in onym("whoami").err
    for words in (["logout", bank.authority], ["whoami", bank.authority]):
        assert onym(*words).code == exit_codes.CONFIGURATION
    # a copy of it is worth nothing once its token has ended
    ring.kept["onym-ai", bank.authority] = json.dumps(json.loads(kept) | {"expires": 0})
    assert onym("invoke", bank.uri("/account/balance")).code == exit_codes.AIIP


def test_signing_out_works_without_the_server_and_says_so(
    onym: Onym, bank: Bank, ring: Ring, browser: list[str]
) -> None:
    assert login(onym, bank).code == 0
    name = ("onym-ai", bank.authority)
    ring.kept[name] = json.dumps(json.loads(ring.kept[name]) | {"issuer": "https://localhost:1"})
    ended = onym("logout", "--all", "--json")
    assert ended.json == {"ended": [{"name": bank.authority, "revoked": False}]}
    assert "was not revoked" in ended.err
    assert name not in ring.kept


def test_a_person_signs_in_at_a_gateway(onym: Onym, bank: Bank, browser: list[str]) -> None:
    gateway = f"https://{bank.authority}"
    arguments = ["--issuer", bank.server.issuer, "--client-id", "onym-cli", "--json"]
    done = onym("login", gateway, *arguments)
    assert done.code == 0, done.err
    assert (done.json["name"], done.json["scopes"]) == (gateway, ["use"])
    assert done.json["dpop_thumbprint"] is not None
    assert onym("whoami", f"{gateway}/", "--json").json == done.json
    assert onym("logout", gateway).code == 0


@pytest.mark.parametrize(
    "words", [[], ["--client-id", "onym-cli"], ["--issuer", "https://login.example"]], ids=str
)
def test_the_server_must_be_named_by_the_person_too(
    onym: Onym, bank: Bank, ring: Ring, words: list[str]
) -> None:
    refused = onym("login", bank.authority, *words)
    assert refused.code == exit_codes.USAGE
    assert f"{bank.authority} --issuer" in " ".join(refused.err.split())
    assert not ring.kept


def test_a_server_that_the_authority_does_not_name_is_sent_nothing(
    onym: Onym, bank: Bank, ring: Ring
) -> None:
    refused = onym(
        "login", bank.authority, "--issuer", "https://localhost:1", "--client-id", "onym-cli", "--json"
    )
    assert refused.code == exit_codes.AIIP
    assert refused.json["error"]["code"] == "aiip.authorization-unavailable"
    assert not ring.kept


def test_an_authority_without_a_server_has_no_sign_in(
    onym: Onym, bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bank.gateway, "authorization_servers", [])
    refused = onym("login", f"https://{bank.authority}", "--issuer", bank.server.issuer, "--client-id", "x")
    assert refused.code == exit_codes.AIIP


def test_nobody_waits_for_a_person_for_ever(onym: Onym, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "_SIGN_IN_SECONDS", 0.0)
    waited = login(onym, bank, "--no-browser")
    assert waited.code == exit_codes.TIMEOUT
    assert f"{bank.server.issuer}/auth?" in waited.err


def test_without_a_keyring_a_private_folder_keeps_the_sign_in(
    onym: Onym, bank: Bank, browser: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise NoKeyringError

    for name in ("get_password", "set_password", "delete_password"):
        monkeypatch.setattr(keyring, name, none)
    assert onym("whoami", "--json").json == {"sign_ins": []}
    refused = login(onym, bank)
    assert refused.json["error"]["code"] == "credential.keyring"
    assert "ONYM_SIGN_INS" in refused.json["error"]["hint"]
    folder = tmp_path / "sign-ins"
    monkeypatch.setenv("ONYM_SIGN_INS", str(folder))
    assert login(onym, bank).code == 0
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert [each["name"] for each in onym("whoami", "--json").json["sign_ins"]] == [bank.authority]
    assert json.loads(onym("invoke", bank.uri("/account/balance")).out)["cents"] == 700
    file.write_text("{}")
    assert onym("whoami").code == exit_codes.CONFIGURATION
    file.unlink()
    assert onym("logout", bank.authority).code == exit_codes.CONFIGURATION


def test_a_secret_comes_from_a_variable(onym: Onym, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--client-secret-env", "SHOP_SECRET")
    assert login(onym, bank, *arguments).code == exit_codes.USAGE
    monkeypatch.setenv("SHOP_SECRET", "wrong-secret-4711")
    refused = login(onym, bank, *arguments)
    assert refused.json["error"]["oauth_error"] == "invalid_client"
    assert "wrong-secret-4711" not in refused.out + refused.err


def test_signing_out_needs_a_name_or_all(onym: Onym) -> None:
    assert onym("logout").code == exit_codes.USAGE
    assert onym("logout", "bank.example", "--all").code == exit_codes.USAGE
