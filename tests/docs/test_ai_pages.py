"""The pages on ai:// names promise what works: from elsewhere, with real tokens, by other libraries too."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from docgen.ai_picture import ai_picture, columns
from docgen.consoles import commands, stage
from docgen.examples import clean_environment
from docgen.fences import Fence, fences
from docgen.paths import DOCS, EXAMPLES
from docgen.reference_aiip import KEY
from jwcrypto import jwk, jws

from ai_support import authority_ca, key_store, names_resolver, serve_asgi, serve_authority, trust
from model_support import unavailable
from oauth_support import HandIssuer
from onym.ai import AIClient, ResolverSettings
from onym.ai.credentials import StaticCredentials
from onym.ai.discovery_document import encode_discovery_document
from onym.ai.endpoint import Endpoint
from onym.ai.endpoint.oauth import JWTAuthorization
from onym.ai.records import AnchorDocument, EndpointEntry, Level, Requirements
from onym.errors import DeniedError, InvocationError
from onym.net.config import NetConfig
from onym.net.policy import Policy
from onym.net.transport import Transport
from onym.sign.keys import read_authority_keys
from onym.sign.receipts import _CLAIMS, _RESULT, verify_filed
from onym.uri.secret import Secret

PUBLISH = DOCS / "how-to" / "publish-a-function.md"
REFERENCE = (DOCS / "reference" / "aiip.md").read_text(encoding="utf-8")


def blocks(page: Path, *verbs: str) -> list[Fence]:
    return [fence for fence in fences(page.read_text(encoding="utf-8")) if fence.verb in verbs]


# -- ten lines -------------------------------------------------------------------------------------


def test_five_lines_of_python_and_four_commands_publish_and_verify() -> None:
    code = [line for line in (EXAMPLES / "ai_tool.py").read_text(encoding="utf-8").splitlines() if line]
    serving, elsewhere, *_ = blocks(PUBLISH, "serve", "run")
    asked = [command for fence in (serving, elsewhere) for command in commands(fence.body)]
    # a certificate for trials, and the way into another folder, are no part of it
    counted = [command for command in asked if not command.startswith(("openssl", "mkdir", "cd "))]
    assert len(code) == 5
    assert [command.split(" -", 1)[0] for command in counted] == [
        "onym ai keys new keys",
        "onym ai serve ai_tool:app",
        "onym ai invoke ai://factory.localhost:8443/tool/add",
        "onym ai verify result",
    ]


def test_a_result_verifies_on_another_machine_when_its_publisher_is_gone(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        unavailable("openssl is not installed: apt-get install openssl")
    serving, elsewhere, *_ = blocks(PUBLISH, "serve", "run")
    with stage(["8443"]) as scene:
        scene.write("ai_tool.py", (EXAMPLES / "ai_tool.py").read_text(encoding="utf-8"))
        scene.serve(serving.body, "8443")
        shutil.copy(scene.home / "cert.pem", tmp_path / "ca.pem")
        _, invoke, verify, _ = (
            re.sub(r"\b8443\b", scene.ports["8443"], command) for command in commands(elsewhere.body)
        )
        said = shell(tmp_path, invoke)
        assert said.stdout.strip() == "5"
        shutil.rmtree(scene.home / "keys")
    # the server has ended, and its keys are no more
    found = json.loads(shell(tmp_path, f"{verify} --json").stdout)
    assert found["valid"]
    (tmp_path / "result" / "body").write_text("6")
    assert shell(tmp_path, verify, expected=12).stdout == ""


def shell(home: Path, command: str, *, expected: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=home,
        env=clean_environment(str(home)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == expected, done.stderr
    return done


# -- protect a resource ----------------------------------------------------------------------------


class Login(HandIssuer):
    """An authorization server with TLS."""

    @property
    def issuer(self) -> str:
        return f"https://login.localhost:{self.port}"


@contextmanager
def bank(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Login, str, Any]]:
    """docs_src/ai_bank.py with an authorization server of the test, and what invokes its balance."""
    ca, login = authority_ca(), Login()
    names = names_resolver({"bank.localhost": "127.0.0.1", "login.localhost": "127.0.0.1"})
    source = (EXAMPLES / "ai_bank.py").read_text(encoding="utf-8")
    keys = key_store(folder)

    def made(authority: str) -> Endpoint:
        found: dict[str, Any] = {}
        exec(compile(source.replace("bank.localhost:8443", authority), "ai_bank.py", "exec"), found)
        app: Endpoint = found["app"]
        app.sign_with(keys)
        return app

    def invoke(authority: str, token: str | None) -> Any:
        wire = Transport(NetConfig(policy=Policy.local(), resolver=names, tls=trust(ca, folder)))
        shop = None if token is None else StaticCredentials(Secret(token), "shop", authority=authority)
        with (
            wire,
            AIClient(ResolverSettings(dns=False, timeout=300.0), transport=wire, credentials=shop) as client,
        ):
            return client.invoke(f"ai://{authority}/account/balance")

    with serve_asgi(login, "login.localhost", ca=ca) as port:
        login.port = port
        network = NetConfig(policy=Policy.local(), tls=trust(ca, folder), resolver=names)
        own = partial(JWTAuthorization, network=network)
        monkeypatch.setattr("onym.ai.endpoint.oauth.JWTAuthorization", own)
        monkeypatch.setenv("ISSUER", login.issuer)
        with serve_authority(made, "bank.localhost", ca=ca) as (_, authority):
            yield login, f"https://{authority}/.well-known/aiip/v1", partial(invoke, authority)


def test_the_bank_of_the_page_answers_those_whose_token_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bank(tmp_path, monkeypatch) as (issuer, resource, invoke):
        known = {"aud": resource, "client_id": "shop", "scope": "balance:read"}
        result = invoke(issuer.token(**known))
        assert result.json() == {"owner": "user-7", "cents": 1250}
        assert result.receipt.audience == "shop"
        for changed, code in (
            ({"scope": "other"}, "aiip.insufficient-scope"),
            ({"aud": "https://elsewhere.example"}, "aiip.authentication-required"),
            ({"exp": 1}, "aiip.authentication-required"),
        ):
            with pytest.raises(InvocationError) as caught:
                invoke(issuer.token(**known | changed))
            assert caught.value.code == code
        with pytest.raises(DeniedError) as denied:
            invoke(None)
        assert denied.value.code == "aiip.authentication-required"


# -- the reference, by other means -----------------------------------------------------------------


def part(title: str) -> str:
    """The text of one section of the reference."""
    return re.split(r"^#{2,3} ", REFERENCE.split(f"## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def b64(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def test_the_request_hashes_of_the_page_are_sha_256_of_its_lines() -> None:
    shown = [fence for fence in fences(part("Request hash")) if fence.language == "text"]
    for fence in shown:
        text, _, said = fence.body.partition("\n\nrqh = ")
        lines = [line.split("  ")[0] for line in text.splitlines()]
        assert len(lines) == 6
        assert b64(hashlib.sha256("\n".join(lines).encode()).digest()) == said.strip()
    assert len(shown) == 2


def test_the_receipt_of_the_page_holds_by_onym_and_by_jwcrypto() -> None:
    public, head, claims, receipt = (fence.body for fence in fences(part("A whole example")))
    token = receipt.replace("\n", "")
    found = verify_filed(
        token,
        read_authority_keys(f'{{"keys": [{public}]}}'.encode()),
        body=b"5",
        issuer="https://factory.example",
    )
    assert found.subject == "ai://factory.example/tool/add"
    assert found.request in part("Request hash")
    other = jws.JWS()
    other.allowed_algs = ["Ed25519"] if "Ed25519" in jws.default_allowed_algs else ["EdDSA", "Ed25519"]
    other.deserialize(token)
    other.verify(jwk.JWK(**{name: KEY[name] for name in ("kty", "crv", "x")}))
    assert json.loads(other.payload) == json.loads(claims)
    assert json.loads(other.objects["protected"]) == json.loads(head)


def test_the_chain_of_the_page_is_as_its_formula_says() -> None:
    rows = re.findall(
        r"^\| c\d \| (.*) \| (.*) \| (.*) \| `sha-256=:(.*):` \|$", part("Streams"), re.MULTILINE
    )
    rqh = re.findall(r"rqh = (\S+)", part("Request hash"))[1]
    value = hashlib.sha256(f"aiip-stream-v1\n{rqh}\n-".encode()).digest()
    assert b64encode(value).decode() == rows[0][3]
    for name, event, data, said in rows[1:]:
        inner = "\n".join(cell.strip("`") for cell in (name, event, data)).encode()
        value = hashlib.sha256(value + hashlib.sha256(inner).digest()).digest()
        assert b64encode(value).decode() == said
    assert len(rows) == 4


def test_the_reference_names_every_claim_and_every_member_that_is_written() -> None:
    claims = part("Claims")
    assert [row[0] for row in _CLAIMS if f"`{row[0]}`" not in claims] == []
    assert all(re.search(rf"\b{row[0]}\b", claims) for row in _RESULT)
    written = json.loads(
        encode_discovery_document(
            AnchorDocument(
                anchor="https://a.example",
                authority="a.example",
                service="https://a.example/s",
                jwks="https://a.example/k",
                endpoint="ai://a.example/x",
                endpoints=(EndpointEntry(uri="ai://a.example/x", title="x"),),
                scopes=("x",),
                requirements=Requirements(dpop=Level.REQUIRED),
                authorization_servers=("https://l.example",),
                resource="https://a.example/s",
                origins=("https://o.example",),
            )
        )
    )
    members = part("Anchor document")
    names = [*written, *written["endpoints"][0], *written["policy"]]
    assert [name for name in names if not re.search(rf"\b{name}\b", members)] == []


def test_the_picture_of_an_ai_name_says_in_words_what_it_shows() -> None:
    picture = ai_picture()
    described = picture.partition("<desc")[2].partition("</desc>")[0]
    assert len(columns()) == 4
    assert all(title in described for title in columns())
    assert KEY["d"] not in picture
