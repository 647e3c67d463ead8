"""`make demo-ai`: an endpoint and a gateway, each with TLS of a test authority, used in every way there is.

The embedded model answers natively, through the gateway and in a browser; the receipt is verified offline by
Onym and by jwcrypto, an independent library; then one octet is changed, and nobody accepts it any more.
Everything is written to a new folder, whose name is printed at the end.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import queue
import shlex
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.client import HTTPMessage, HTTPSConnection
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ROOT = Path(__file__).resolve().parent.parent
ONYM = str(Path(sys.executable).with_name("onym"))
PROMPT = "What is the capital of France?"
FACTORY, GATEWAY = "factory.localhost", "gateway.localhost"
#: seconds for a server to start, the model included
PATIENCE = 120


def main() -> None:
    """Run every step; any that does not do what it should ends the demonstration with an error."""
    folder = Path(tempfile.mkdtemp(prefix="onym-demo-ai-"))
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name in (FACTORY, GATEWAY):
        ca.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
    ports = _free(), _free()
    authority, base = f"{FACTORY}:{ports[0]}", f"https://{GATEWAY}:{ports[1]}"
    _title("Keys for the endpoint and for the gateway")
    _onym(folder, "ai", "keys", "new", "keys")
    _onym(folder, "ai", "keys", "new", "gateway-keys")
    with (
        _server(
            folder, "endpoint", "ai", "serve", "ai_model:app", "--port", str(ports[0]),
            "--tls-cert", f"{FACTORY}.pem",
            AUTHORITY=authority, PYTHONPATH=str(ROOT / "docs_src"),
        ),
        _server(
            folder, "gateway", "gateway", "--local", "--port", str(ports[1]), "--base-url", base,
            "--tls-cert", f"{GATEWAY}.pem", "--keys", "gateway-keys", "--audit", "audit.jsonl",
            "--ca-file", "ca.pem",
        ),
    ):  # fmt: skip
        uri = f"ai://{authority}/model/helper"
        _natively(folder, uri)
        _through_the_gateway(folder, f"{base}/gateway/{authority}/model/helper")
        _in_a_browser(folder, f"{base}/gateway/{authority}/model/helper")
        _fetch_keys(folder, f"https://{authority}/.well-known/aiip.jwks.json?history")
    _offline(folder, uri)
    _tampered(folder)
    _title("The gateway's audit log")
    _onym(folder, "ai", "audit", "verify", "audit.jsonl")
    print(f"\nAll of it is in {folder}")


def _natively(folder: Path, uri: str) -> None:
    _title("Natively: resolved, invoked, verified before it is shown")
    _onym(folder, "ai", "resolve", uri, "--ca", "ca.pem", "--no-dns")
    data = json.dumps({"prompt": PROMPT})
    _onym(folder, "ai", "invoke", uri, "-d", data, "--ca", "ca.pem", "--no-dns", "--save", "native")


def _through_the_gateway(folder: Path, url: str) -> None:
    _title("Through the gateway: plain HTTPS, as any program does it")
    print(f"$ curl --cacert ca.pem -d '{json.dumps({'prompt': PROMPT})}' {url}")
    headers, body = _ask(folder, url, json.dumps({"prompt": PROMPT}).encode())
    receipt, own = headers.get("AIIP-Receipt"), headers.get("AIIP-Gateway-Receipt")
    print(body.decode())
    _check(bool(receipt and own), "both receipts came through")
    target = folder / "gateway"
    target.mkdir()
    (target / "body").write_bytes(body)
    (target / "receipt.jwt").write_text(str(receipt))
    (target / "gateway-receipt.jwt").write_text(str(own))


def _in_a_browser(folder: Path, page_url: str) -> None:
    from playwright.sync_api import sync_playwright

    _title("In a browser: Chromium, without scripts")
    # the key of the gateway's certificate is the one that is expected; no other error is ignored
    pin = _pin(folder / f"{GATEWAY}.pem")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_chromium(),
            args=["--no-sandbox", f"--ignore-certificate-errors-spki-list={pin}", "--no-proxy-server"],
        )
        page = browser.new_context(java_script_enabled=False).new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(page_url)
        page.screenshot(path=str(folder / "1-resource.png"), full_page=True)
        page.get_by_label("prompt", exact=False).first.fill(PROMPT)
        page.get_by_role("button", name="Invoke").click()
        page.wait_for_load_state()
        page.screenshot(path=str(folder / "2-result.png"), full_page=True)
        shown = page.inner_text("body")
        browser.close()
    _check("Paris" in shown, "the page shows the answer")
    print(f"pictures: {folder}/1-resource.png, {folder}/2-result.png")


def _offline(folder: Path, uri: str) -> None:
    _title("Offline, with both servers gone: by Onym")
    for source in ("native", "gateway"):
        _onym(
            folder, "ai", "verify", f"{source}/receipt.jwt", "--body", f"{source}/body",
            "--history", "history.json", "--uri", uri,
        )  # fmt: skip
    _title("Offline: by jwcrypto, which knows nothing of Onym")
    for source in ("native", "gateway"):
        _check(_by_jwcrypto(folder, source), f"jwcrypto accepts the receipt and body of {source}/")


def _tampered(folder: Path) -> None:
    _title("One octet changed")
    path = folder / "native" / "body"
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(bytes(body))
    _onym(
        folder, "ai", "verify", "native/receipt.jwt", "--body", "native/body", "--history", "history.json",
        expected=12,
    )  # fmt: skip
    _check(not _by_jwcrypto(folder, "native"), "jwcrypto's digest differs too")


def _by_jwcrypto(folder: Path, source: str) -> bool:
    """Does the signature hold, and is the body the one that it is about?"""
    from jwcrypto import jwk, jws

    keys = jwk.JWKSet.from_json((folder / "history.json").read_text())
    token = jws.JWS()
    token.allowed_algs = ["Ed25519", "EdDSA", "ES256"]
    token.deserialize((folder / source / "receipt.jwt").read_text().strip())
    token.verify(keys.get_key(token.jose_header["kid"]))
    digest = base64.b64encode(hashlib.sha256((folder / source / "body").read_bytes()).digest()).decode()
    claimed: Any = json.loads(token.payload)["res"]["cd"]
    return bool(claimed == f"sha-256=:{digest}:")


def _fetch_keys(folder: Path, url: str) -> None:
    _, body = _ask(folder, url)
    (folder / "history.json").write_bytes(body)


def _ask(folder: Path, url: str, body: bytes | None = None) -> tuple[HTTPMessage, bytes]:
    """What the server at this address of this machine answers; names below `localhost` are not looked up."""
    at = urlsplit(url)
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    connection = HTTPSConnection(at.netloc, timeout=PATIENCE)
    connection.sock = context.wrap_socket(
        socket.create_connection(("127.0.0.1", at.port or 443), PATIENCE), server_hostname=at.hostname
    )
    try:
        headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
        connection.request("POST" if body else "GET", f"{at.path}?{at.query}".rstrip("?"), body, headers)
        answer = connection.getresponse()
        content = answer.read()
        _check(answer.status == 200, f"status {answer.status}" + f": {content!r}" * (answer.status != 200))
        return answer.headers, content
    finally:
        connection.close()


def _onym(folder: Path, *words: str, expected: int = 0) -> None:
    print(f"$ onym {shlex.join(words)}", flush=True)
    ran = subprocess.run([ONYM, *words], cwd=folder, env=_environment(), check=False)
    _check(ran.returncode == expected, f"exit code {ran.returncode}")


@contextlib.contextmanager
def _server(folder: Path, name: str, *words: str, **variables: str) -> Iterator[None]:
    """A server of ours, once it says that it serves; ended with the block."""
    print(f"$ onym {shlex.join(words)} &", flush=True)
    process = subprocess.Popen(
        [ONYM, *words, "--json"],
        cwd=folder,
        env=_environment() | variables,
        stdout=subprocess.PIPE,
        stderr=(folder / f"{name}.log").open("w"),
        text=True,
    )
    try:
        _check(_says(cast("IO[str]", process.stdout)), f"the {name} serves (its log: {folder}/{name}.log)")
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _says(stream: IO[str]) -> bool:
    """Does a line come in time?"""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        return bool(lines.get(timeout=PATIENCE))
    except queue.Empty:
        return False


def _environment() -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": tempfile.gettempdir() + "/onym-demo-ai-state"}


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _pin(path: Path) -> str:
    """The public key of a certificate as Chromium pins it."""
    key = (
        x509.load_pem_x509_certificates(path.read_bytes())[0]
        .public_key()
        .public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    )
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


def _chromium() -> str | None:
    """Debian's Chromium where it is there, else Playwright's own."""
    path = Path("/usr/bin/chromium")
    return str(path) if path.exists() else None


def _title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _check(holds: bool, what: str) -> None:
    print(f"{'ok  ' if holds else 'FAIL'} {what}", flush=True)
    if not holds:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
