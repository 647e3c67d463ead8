"""Access tokens of Google Cloud, from a token endpoint on this machine; nothing is asked of any network."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

import pytest

from onym.errors import CredentialError, PolicyError
from onym.llm import credentials as clouds
from onym.llm.credentials import Credential, resolve_credential
from onym.llm.providers import ProviderTable
from onym.net.policy import Policy
from onym.uri.llm import LLMURI

pytest.importorskip("google.auth")
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

TOKEN = "ya29.test-token-0123456789"
SECRET = "refresh-secret-0123456789"


@dataclass
class TokenServer:
    """Answers every POST with a token and counts them; `status` makes it refuse."""

    status: int = 200
    seen: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    location: str | None = None

    def __post_init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                server.seen.append({name: values[0] for name, values in parse_qs(body).items()})
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(server.status)
                if server.location:
                    self.send_header("Location", server.location)
                said = {"access_token": f"{TOKEN}-{len(server.seen)}", "expires_in": 3600}
                data = json.dumps(said if server.status == 200 else {"error": "invalid_grant"}).encode()
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:  # the metadata server of a machine at Google
                said = {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}
                text = json.dumps(said) if "token" in self.path else "{}"
                if "recursive" in self.path:
                    text = json.dumps({"email": "me@example.iam.gserviceaccount.com", "scopes": []})
                self.send_response(200)
                self.send_header("Metadata-Flavor", "Google")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    with TokenServer() as running:
        # whatever a person's own file says, google-auth asks Google for that person's token
        monkeypatch.setattr("google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", running.url)
        yield running


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def account(key: rsa.RSAPrivateKey, url: str, **changes: Any) -> dict[str, Any]:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": key.private_bytes(*form).decode(),
        "client_email": "me@p.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": url,
        **changes,
    }


def written(path: Path, info: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(info), encoding="utf-8")
    return path


def user(url: str) -> dict[str, Any]:
    return {
        "type": "authorized_user",
        "client_id": "1",
        "client_secret": "x",
        "refresh_token": SECRET,
        "token_uri": url,
    }


def opened(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_service_account_signs_for_a_token_of_the_cloud_platform(
    tmp_path: Path, server: TokenServer, key: rsa.RSAPrivateKey
) -> None:
    path = written(tmp_path / "sa.json", account(key, server.url))
    before = datetime.now(UTC).timestamp()
    found = clouds.find_google({}, str(path))
    assert found is not None
    assert (found.secret.reveal(), found.source) == (f"{TOKEN}-1", f"google:{path}")
    assert found.expires is not None
    assert before + 3500 < found.expires < datetime.now(UTC).timestamp() + 3700
    asked = server.seen[0]
    assert asked["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    head, claims, signature = asked["assertion"].split(".")
    key.public_key().verify(
        opened(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    said = json.loads(opened(claims))
    assert (said["scope"], said["iss"]) == (clouds.SCOPE, "me@p.iam.gserviceaccount.com")


def test_a_token_is_renewed_by_the_same_credential(
    tmp_path: Path, server: TokenServer, key: rsa.RSAPrivateKey
) -> None:
    path = written(tmp_path / "sa.json", account(key, server.url))
    found = clouds.find_google({}, str(path))
    assert found is not None
    path.unlink()
    assert found.renew is not None
    following = found.renew()
    assert (following.secret.reveal(), following.source) == (f"{TOKEN}-2", found.source)
    assert following.renew is not None


def test_the_variable_leads_to_the_file(tmp_path: Path, server: TokenServer, key: rsa.RSAPrivateKey) -> None:
    path = written(tmp_path / "sa.json", account(key, server.url))
    # stronger than what gcloud wrote
    written(tmp_path / "application_default_credentials.json", user("https://oauth2.googleapis.com/token"))
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": f" {path}\n", "CLOUDSDK_CONFIG": str(tmp_path)}
    found = clouds.find_google(environ)
    assert found is not None
    assert (found.secret.reveal(), found.source) == (f"{TOKEN}-1", "env:GOOGLE_APPLICATION_CREDENTIALS")


@pytest.mark.parametrize(("variable", "below"), [("CLOUDSDK_CONFIG", "."), ("HOME", ".config/gcloud")])
def test_what_gcloud_wrote_is_found(tmp_path: Path, server: TokenServer, variable: str, below: str) -> None:
    written(tmp_path / below / "application_default_credentials.json", user(server.url))
    found = clouds.find_google({variable: str(tmp_path)})
    assert found is not None
    assert found.secret.reveal() == f"{TOKEN}-1"
    assert server.seen[0]["refresh_token"] == SECRET


@pytest.mark.parametrize("names", [(), ("HOME",), ("CLOUDSDK_CONFIG", "APPDATA")])
def test_where_nothing_says_so_there_is_no_credential(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert clouds.find_google(dict.fromkeys(names, str(tmp_path))) is None


def test_no_proxy_variable_and_no_redirect_moves_the_question(
    tmp_path: Path, server: TokenServer, key: rsa.RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    path = written(tmp_path / "sa.json", account(key, server.url))
    assert clouds.find_google({}, str(path)) is not None
    server.status, server.location = 307, f"http://{server.address}/elsewhere"
    with pytest.raises(CredentialError) as caught:
        clouds.find_google({}, str(path))
    assert caught.value.code == "credential.google"
    assert len(server.seen) == 2


def test_a_refusal_shows_nothing_of_what_was_said(tmp_path: Path, server: TokenServer) -> None:
    server.status = 400
    path = written(tmp_path / "user.json", user(server.url))
    with pytest.raises(CredentialError) as caught:
        clouds.find_google({}, str(path))
    assert caught.value.code == "credential.google"
    text = "".join(traceback.TracebackException.from_exception(caught.value).format())
    assert SECRET not in text
    assert "invalid_grant" not in text
    assert caught.value.__context__ is None


BAD_FILES: dict[str, Any] = {
    "no JSON": b"{",
    "not UTF-8": b'{"type": "\xff"}',
    "a list": b"[]",
    "too deep": b"[" * 60_000,
    "too long": b" " * 70_000,
    "no type": b"{}",
    "a type that is a number": b'{"type": 5}',
    "a type that nobody knows": b'{"type": "api_key"}',
    "plain HTTP to another machine": user("http://tokens.example.org/token"),
    "no address": user("not a URI"),
    "an address that is a number": {**user(""), "token_uri": 5},
    "another scheme": user("ftp://127.0.0.1/token"),
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_file_that_is_no_credential_is_refused_before_anything_is_sent(
    tmp_path: Path, content: Any
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(CredentialError) as caught:
        clouds.find_google({}, str(path))
    assert caught.value.code == "credential.unreadable"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost:1", "[::1]:1", "127.0.0.2:1"])
def test_a_secret_may_go_to_this_machine_without_tls(host: str) -> None:
    assert clouds._is_safe_url(f"http://{host}/token")


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "nul\0"):
        with pytest.raises(CredentialError) as caught:
            clouds.find_google({}, str(path))
        assert caught.value.code == "credential.unreadable"


def test_a_key_that_cannot_be_read_is_not_shown(tmp_path: Path, key: rsa.RSAPrivateKey) -> None:
    path = written(tmp_path / "sa.json", account(key, "https://x.example/", private_key="SECRET-PEM"))
    with pytest.raises(CredentialError) as caught:
        clouds.find_google({}, str(path))
    assert caught.value.code == "credential.google"
    assert "SECRET-PEM" not in str(caught.value)


def test_without_google_auth_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "user.json", user("https://oauth2.googleapis.com/token"))
    monkeypatch.setitem(sys.modules, "google.oauth2.credentials", None)
    with pytest.raises(CredentialError) as caught:
        clouds.find_google({}, str(path))
    assert caught.value.code == "credential.needs-extra"
    assert "pip install 'onym[vertex]'" in (caught.value.hint or "")


VERTEX = "llm://us-central1-aiplatform.googleapis.com/gemini-2.5-flash"


def resolved(text: str, policy: Policy, **environ: str) -> Credential | None:
    uri = LLMURI.parse(text)
    return resolve_credential(uri, ProviderTable.builtin().find(uri.host), policy, environ)


def test_a_uri_is_resolved_to_a_token_by_its_reference_or_by_the_variables(
    tmp_path: Path, server: TokenServer, key: rsa.RSAPrivateKey
) -> None:
    path = written(tmp_path / "sa.json", account(key, server.url))
    by_reference = resolved(f"{VERTEX}?auth=google:{path}", Policy.trusted())
    assert by_reference is not None
    assert by_reference.secret.reveal() == f"{TOKEN}-1"
    by_variable = resolved(VERTEX, Policy.trusted(), GOOGLE_APPLICATION_CREDENTIALS=str(path))
    assert by_variable is not None
    assert by_variable.source == "env:GOOGLE_APPLICATION_CREDENTIALS"


def test_a_policy_that_takes_nothing_of_this_machine_asks_for_no_token(
    tmp_path: Path, server: TokenServer, key: rsa.RSAPrivateKey
) -> None:
    path = written(tmp_path / "sa.json", account(key, server.url))
    with pytest.raises(PolicyError):
        resolved(f"{VERTEX}?auth=google:{path}", Policy.untrusted())
    with pytest.raises(CredentialError):
        resolved(VERTEX, Policy.untrusted(), GOOGLE_APPLICATION_CREDENTIALS=str(path))
    assert server.seen == []


IN_A_PROCESS = """
import os, sys
from onym.llm import credentials as clouds
found = clouds.find_google(os.environ, sys.argv[1])
print(found.secret.reveal(), found.source, found.expires is not None)
"""


@pytest.mark.parametrize("reference", ["", "default"])
def test_a_machine_of_googles_gives_the_token_of_its_service_account(
    tmp_path: Path, server: TokenServer, reference: str
) -> None:
    # google-auth reads where the metadata server is when it is imported, so in a process of its own
    told = ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "APPDATA", "NO_GCE_CHECK")
    environ = {name: value for name, value in os.environ.items() if name not in told}
    environ |= {"HOME": str(tmp_path), "GCE_METADATA_HOST": server.address, "GCE_METADATA_IP": server.address}
    environ["GCE_METADATA_TIMEOUT"] = "300"  # of seconds, for a look that takes three otherwise
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, reference],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout.split() == [TOKEN, "google:default", "True"], done.stderr


def test_nothing_of_googles_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys; import onym.llm.credentials;"
        " print('google.auth' in sys.modules, 'requests' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
