"""`make demo-ai`: two endpoints, a gateway and an OpenID provider, each with TLS of a test authority.

First a program and a browser call an open resource, and the receipt is verified offline by Onym and by
jwcrypto, an independent library. Then people come. Ann signs in, starts a long task and asks for a payment.
Bob, in a browser of his own, signs in again with a second factor and approves it. Ann sends the payment, and
its receipt names the approval.

Chromium shows the pages and takes pictures. Without it, an HTTP client fills in the same forms. Everything is
written to a new folder, whose name is printed at the end. With `--stay` the servers run on, for commands and
browsers of your own.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import http.cookiejar
import json
import os
import queue
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage, HTTPSConnection
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast
from urllib.parse import urlencode, urljoin, urlsplit

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from selectolax.lexbor import LexborHTMLParser

ROOT = Path(__file__).resolve().parent.parent
ONYM = str(Path(sys.executable).with_name("onym"))
PROMPT = "What is the capital of France?"
FACTORY, SHOP, GATEWAY, LOGIN = "factory.localhost", "shop.localhost", "gateway.localhost", "login.localhost"
#: the classes of authentication that the provider knows: approvers need the second one
PASSWORD, TWO_FACTORS = "urn:demo:password", "urn:demo:two-factors"
CLIENT: Final = {"client_id": "gateway", "client_secret": "a-secret-of-this-demonstration"}
#: seconds for a server to start, the model included
PATIENCE = 120
#: crates that the task in the browser sorts, ten in a second, so that there is progress to be seen
CRATES = 100


class Town:
    """The folder with everything, both authorities, and the URLs of the gateway and the provider."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="onym-demo-ai-"))
        self.ports = {name: _free() for name in (FACTORY, SHOP, GATEWAY)}
        ca = trustme.CA()
        ca.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        for name in (FACTORY, SHOP, GATEWAY, LOGIN):
            certificate = ca.issue_cert(name).private_key_and_cert_chain_pem
            certificate.write_to_path(str(self.folder / f"{name}.pem"))
        self.factory, self.shop = (f"{name}:{self.ports[name]}" for name in (FACTORY, SHOP))
        self.base = f"https://{GATEWAY}:{self.ports[GATEWAY]}"
        self.issuer = ""

    def page(self, authority: str, path: str) -> str:
        """The gateway's page of a resource."""
        return f"{self.base}/gateway/{authority}{path}"


def main() -> None:
    """Run every step. A step that does not do what it should ends the demonstration with an error."""
    stay = sys.argv[1:] == ["--stay"]
    if sys.argv[1:] and not stay:
        raise SystemExit("usage: demo_ai.py [--stay]")
    town = Town()
    with contextlib.ExitStack() as servers:
        _serve(town, servers)
        with _visitors(town) as visitors:
            uri = f"ai://{town.factory}/model/helper"
            _natively(town.folder, uri)
            _through_the_gateway(town.folder, town.page(town.factory, "/model/helper"))
            ann, bob = visitors("ann"), visitors("bob")
            _in_a_browser(ann, town.page(town.factory, "/model/helper"))
            _sign_in(town, ann)
            _long_task(town, ann)
            _payment(town, ann, bob)
            _fetch_keys(town)
            _from_the_command_line(town, ann, bob)
        if stay:
            _stay(town)
    _offline(town.folder, uri)
    _tampered(town.folder)
    _title("The gateway's audit log")
    _onym(town.folder, "ai", "audit", "verify", "audit.jsonl")
    print(f"\nAll of it is in {town.folder}")
    if not stay:
        print("To try it by hand, run: make demo-ai ARGS=--stay")


# -- servers ---------------------------------------------------------------------------------------


def _serve(town: Town, servers: contextlib.ExitStack) -> None:
    """Start the provider, both endpoints and the gateway."""
    folder = town.folder
    _title("Keys for the endpoints and for the gateway")
    for keys in ("keys", "shop-keys", "gateway-keys"):
        _onym(folder, "ai", "keys", "new", keys)
    _onym(folder, "ai", "gateway", "secrets", "rotate", "secrets")
    _title("A provider for sign-ins, two endpoints and a gateway")
    town.issuer = servers.enter_context(_provider(town))
    _check(True, f"the provider {town.issuer} serves (npm's oidc-provider)")
    (folder / "gateway.toml").write_text(_write_settings(town))
    python = os.pathsep.join([str(ROOT / "docs_src"), str(ROOT / "tools")])
    for name, app, authority in (
        ("endpoint", "ai_model:app", town.factory),
        ("shop", "demo_shop:app", town.shop),
    ):
        host, _, port = authority.partition(":")
        words = ("ai", "serve", app, "--port", port, "--tls-cert", f"{host}.pem")
        variables = {"AUTHORITY": authority, "GATEWAY": town.base, "ACR": TWO_FACTORS, "PYTHONPATH": python}
        servers.enter_context(_server(folder, name, *words, **variables))
    servers.enter_context(_server(folder, "gateway", "ai", "gateway", "--config", "gateway.toml"))


@contextlib.contextmanager
def _provider(town: Town) -> Iterator[str]:
    """The OpenID provider of the tests; its issuer. The first run installs it from npm's registry."""
    sys.path.insert(0, str(ROOT / "tests"))
    import pytest

    from openid_support import running_script

    settings = {
        **CLIENT,
        "title": "The provider of the demonstration",
        "algorithm": "ES256",
        "auth_method": "client_secret_basic",
        "acr_values": [PASSWORD, TWO_FACTORS],
        "id_token_seconds": 600,
        "access_token_algorithm": "ES256",
        "access_token_seconds": 600,
        "resources": {town.base: "call approve"},
        "denied": [],
        "unverified": [],
        "tls": {"host": LOGIN, "pem": (town.folder / f"{LOGIN}.pem").read_text()},
        "programs": [
            {
                "client_id": "onym-cli",
                "token_endpoint_auth_method": "none",
                "application_type": "native",
                "redirect_uris": ["http://127.0.0.1/callback"],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "id_token_signed_response_alg": "ES256",
            }
        ],
    }
    try:
        with running_script("provider.mjs", settings) as told:
            yield told["issuer"]
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        raise SystemExit(f"FAIL the provider does not start: {error}") from None


def _write_settings(town: Town) -> str:
    return f"""\
base_url = "{town.base}"
port = {town.ports[GATEWAY]}
certificate = "{GATEWAY}.pem"
ca_files = ["ca.pem"]
network = "local"
keys = "gateway-keys"
audit = "audit.jsonl"
store = "gateway.sqlite"
secrets = "secrets"
pseudonym_key = "a-key-of-this-demonstration"
approvers = ["home subject-of-bob"]

[[providers]]
id = "home"
title = "the demonstration"
issuer = "{town.issuer}"
client_id = "{CLIENT["client_id"]}"
client_secret = "{CLIENT["client_secret"]}"
ca_file = "ca.pem"
network = "local"
max_age = 3600

[[programs]]
provider = "home"
scopes = ["call"]
"""


# -- what is shown ---------------------------------------------------------------------------------


def _natively(folder: Path, uri: str) -> None:
    _title("Natively: resolved, invoked, verified before it is shown")
    _onym(folder, "ai", "resolve", uri, "--ca", "ca.pem", "--no-dns")
    data = json.dumps({"prompt": PROMPT})
    _onym(folder, "ai", "invoke", uri, "-d", data, "--ca", "ca.pem", "--no-dns", "--save", "native")


def _through_the_gateway(folder: Path, url: str) -> None:
    _title("Through the gateway: plain HTTPS, as any program does it")
    _command(f"curl --cacert ca.pem -d '{json.dumps({'prompt': PROMPT})}' {url}")
    headers, body = _ask(folder, url, json.dumps({"prompt": PROMPT}).encode())
    receipt, own = headers.get("AIIP-Receipt"), headers.get("AIIP-Gateway-Receipt")
    print(body.decode())
    _check(bool(receipt and own), "both receipts came through")
    target = folder / "gateway"
    target.mkdir()
    (target / "body").write_bytes(body)
    (target / "receipt.jwt").write_text(str(receipt))
    (target / "gateway-receipt.jwt").write_text(str(own))


def _in_a_browser(ann: Visitor, page_url: str) -> None:
    _title("In a browser: an open resource, which needs no sign-in")
    ann.open(page_url)
    ann.picture("1-resource")
    ann.send("Invoke", prompt=PROMPT)
    ann.picture("2-result")
    _check("Paris" in ann.text(), "the page shows the answer")


def _sign_in(town: Town, ann: Visitor) -> None:
    _title("Ann signs in")
    print(f"She opens {town.base}/account, chooses the provider and enters her name there.")
    ann.open(f"{town.base}/account")
    ann.follow("Sign in")
    _enter(ann, "ann")
    ann.picture("3-account")
    _check("Ann Example" in ann.text(), "the gateway knows Ann, and lists her sessions")


def _enter(visitor: Visitor, login: str) -> None:
    """Choose the provider on the sign-in page, and sign in there with a password only."""
    visitor.follow("Sign in with the demonstration")
    visitor.send("Sign in", login=login, acr=PASSWORD)


def _long_task(town: Town, ann: Visitor) -> None:
    _title("Ann starts a long task")
    ann.open(town.page(town.shop, "/sort"))
    ann.send("Invoke", crates=str(CRATES))
    ann.wait_for(f"of {CRATES}")
    ann.picture("4-task")
    progress = re.search(rf"(\d+) of {CRATES}", ann.text())
    _check(progress is not None, f"the page shows the progress: {progress and progress[0]} crates")
    ann.wait_for("Open the result")
    ann.follow("Open the result")
    _check('"sorted"' in ann.text(), "the result is there, with a receipt for this task")


def _payment(town: Town, ann: Visitor, bob: Visitor) -> None:
    folder = town.folder
    _title("Ann asks for a payment, which needs the approval of another person")
    _ask_for_payment(town, ann, 10)
    _title("Bob, in a second browser, signs in and opens the call")
    bob.open(f"{town.base}/approvals")
    bob.follow("Sign in")
    _enter(bob, "bob")
    bob.follow(f"ai://{town.shop}/pay")
    bob.picture("7-decide")
    digest = _read_digest(bob)
    _check(digest == _read_digest(ann), f"both pages show the same digest: {digest}")
    _title("The step-up: who approves a payment needs a second factor")
    bob.send("Approve")
    _check("a sign-in of another kind" in bob.text(), "Bob's sign-in with a password only is not enough")
    bob.follow("Sign in again")
    bob.send("Sign in", login="bob", acr=TWO_FACTORS)
    _check("Approve this call?" in bob.text(), "he comes back to the same call, with the stronger sign-in")
    bob.send("Approve")
    bob.picture("8-approved")
    _check("was approved" in bob.text(), "Bob has approved this call, once; nothing has been sent")
    _title("Ann sends the payment")
    ann.wait_for("Send the call")
    ann.picture("9-send")
    evidence = ann.download("download approval.jwt")
    ann.send("Send the call")
    ann.picture("10-paid")
    _check("paid 10 euros to Acme" in ann.text(), "the payment was made, once")
    target = folder / "payment"
    target.mkdir()
    (target / "approval.jwt").write_bytes(evidence)
    (target / "body").write_bytes(ann.download("The content, byte for byte"))
    (target / "receipt.jwt").write_bytes(ann.download("The authority's receipt"))


def _ask_for_payment(town: Town, ann: Visitor, amount: int) -> None:
    ann.open(town.page(town.shop, "/pay"))
    ann.send("Invoke", amount=str(amount), to="Acme")
    ann.picture(f"5-review-{amount}")
    _check("Nothing has been sent" in ann.text(), "the gateway shows exactly what will be sent")
    ann.send("Send this call")
    ann.picture(f"6-waiting-{amount}")
    _check("waits for an approval" in ann.text(), "the endpoint wants an approval: Ann's page waits")


def _read_digest(visitor: Visitor) -> str:
    """Return the digest of the call on the page of an approval."""
    return str(re.findall(r"(?:[0-9a-f]{8} ){3}[0-9a-f]{8}", visitor.text())[0])


def _from_the_command_line(town: Town, ann: Visitor, bob: Visitor) -> None:
    folder = town.folder
    _title("The command line: a sign-in, and a long task")
    _login(town, ann, "ann", "--issuer", town.issuer, "--client-id", "onym-cli")
    _onym(folder, "ai", "whoami")
    words = ["ai", "invoke", f"ai://{town.shop}/sort", "--async", "-d", '{"crates": 5}', "--ca", "ca.pem"]
    _command(f"task=$(onym {shlex.join(words)})")
    begun = subprocess.run(
        [ONYM, *words], cwd=folder, env=_environment(folder), stdout=subprocess.PIPE, text=True, check=False
    )
    _check(begun.returncode == 15, f"exit code {begun.returncode}: there is a task, and no result yet")
    _onym(folder, "ai", "tasks", "list")
    _onym(folder, "ai", "tasks", "result", begun.stdout.strip(), "--wait", "60s", "--ca", "ca.pem")
    _title("Ann asks for another payment, and Bob approves it at a terminal")
    _ask_for_payment(town, ann, 20)
    approve = ["--issuer", town.issuer, "--client-id", "onym-cli", "--approve", "--acr", TWO_FACTORS]
    _login(town, bob, "bob", *approve)
    _onym(folder, "ai", "approve", "list", "--ca", "ca.pem", who="bob")
    name = ann.url().rpartition("/")[2].partition("?")[0]
    _approve_at_terminal(folder, name, _read_digest(ann))
    ann.wait_for("Send the call")
    ann.send("Send the call")
    _check("paid 20 euros to Acme" in ann.text(), "the second payment was made, once")


def _login(town: Town, visitor: Visitor, who: str, *words: str) -> None:
    """Sign a command line in with this person's browser, where the person is signed in already."""
    command = ["ai", "login", town.base, *words, "--ca", "ca.pem"]
    _command(f"onym {shlex.join(command)}")
    login = subprocess.Popen(
        [ONYM, *command, "--no-browser"],
        cwd=town.folder,
        env=_environment(town.folder, who),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        error = cast("IO[str]", login.stderr)
        visitor.open(next((line.strip() for line in error if line.startswith("https://")), ""))
        if "Class" in visitor.text():  # the provider wants to be sure who it is
            visitor.send("Sign in", login=who, acr=TWO_FACTORS)
        sys.stdout.write(error.read())
        _check(login.wait(PATIENCE) == 0, f"{who}'s browser has signed the command line in")
    finally:
        login.kill()
        login.communicate()


def _approve_at_terminal(folder: Path, name: str, digest: str) -> None:
    """Approve a call as a person does: read what it is, and type the beginning of its digest."""
    words = ["ai", "approve", "yes", name, "--ca", "ca.pem"]
    _command(f"onym {shlex.join(words)}")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [ONYM, *words],
        cwd=folder,
        env=_environment(folder, "bob"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        with contextlib.suppress(OSError):  # a terminal whose program has ended
            while chunk := os.read(ours, 4096):
                if not shown.endswith(b"call: ") and (shown + chunk).endswith(b"call: "):
                    os.write(ours, f"{digest[:8]}\n".encode())
                shown += chunk
    finally:
        os.close(ours)
        code = process.wait(PATIENCE)
    print(shown.decode().replace("\r", "").strip())
    _check(code == 0, "Bob has typed the beginning of the digest, and approved the call")


def _stay(town: Town) -> None:
    """Tell what to try by hand, and wait until the person has enough of it."""
    _title("To try by hand, in another terminal")
    sort, pay = f"ai://{town.shop}/sort", f"ai://{town.shop}/pay"
    print(f"""\
cd {shlex.quote(str(town.folder))}
export PATH={shlex.quote(str(Path(ONYM).parent))}:$PATH
export ONYM_SIGN_INS=sign-ins-ann XDG_STATE_HOME=state     # sign-ins-bob: as Bob
onym ai whoami
onym ai login {town.base} --issuer {town.issuer} --client-id onym-cli --ca ca.pem
onym ai invoke {sort} --async -d '{{"crates": 100}}' --ca ca.pem
onym ai tasks list
onym ai tasks wait ID --ca ca.pem
onym ai invoke {pay} -d '{{"amount": 30, "to": "Acme"}}' --allow financial --save out --ca ca.pem
onym ai approve ask out/approval-request.json --ca ca.pem
ONYM_SIGN_INS=sign-ins-bob onym ai login {town.base} --approve --acr {TWO_FACTORS} --ca ca.pem
ONYM_SIGN_INS=sign-ins-bob onym ai approve list --ca ca.pem

In a browser, which warns you that the certificate is unknown:
  {town.page(town.shop, "/pay")}   asks for a payment: sign in as ann
  {town.base}/approvals   approves it: sign in as bob, in a private window
Any login signs in, without a password. Bob is the approver, and needs the class {TWO_FACTORS}.

Press Ctrl-C to end the servers.""", flush=True)  # fmt: skip
    done = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: done.set())
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    done.wait()


def _offline(folder: Path, uri: str) -> None:
    _title("Offline, with all servers gone: by Onym")
    for source in ("native", "gateway"):
        _onym(
            folder, "ai", "verify", f"{source}/receipt.jwt", "--body", f"{source}/body",
            "--history", "history.json", "--uri", uri,
        )  # fmt: skip
    print("The payment's receipt, together with the approval that it names:")
    _onym(
        folder, "ai", "verify", "payment/receipt.jwt", "--body", "payment/body",
        "--history", "shop-history.json", "--approval", "payment/approval.jwt", "--approver-keys",
        "gateway-history.json",
    )  # fmt: skip
    _title("Offline: by jwcrypto, which knows nothing of Onym")
    for source in ("native", "gateway"):
        _check(_by_jwcrypto(folder, source), f"jwcrypto accepts the receipt and body of {source}/")


def _tampered(folder: Path) -> None:
    _title("One byte changed")
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
    """Is the signature valid, and the body the one that it is about?"""
    from jwcrypto import jwk, jws

    keys = jwk.JWKSet.from_json((folder / "history.json").read_text())
    token = jws.JWS()
    token.allowed_algs = ["Ed25519", "EdDSA", "ES256"]
    token.deserialize((folder / source / "receipt.jwt").read_text().strip())
    token.verify(keys.get_key(token.jose_header["kid"]))
    digest = base64.b64encode(hashlib.sha256((folder / source / "body").read_bytes()).digest()).decode()
    claimed: Any = json.loads(token.payload)["res"]["cd"]
    return bool(claimed == f"sha-256=:{digest}:")


def _fetch_keys(town: Town) -> None:
    for name, url in (
        ("history", f"https://{town.factory}/.well-known/aiip.jwks.json?history"),
        ("shop-history", f"https://{town.shop}/.well-known/aiip.jwks.json?history"),
        ("gateway-history", f"{town.base}/.well-known/jwks.json?history"),
    ):
        (town.folder / f"{name}.json").write_bytes(_ask(town.folder, url)[1])


# -- browsers --------------------------------------------------------------------------------------


class Visitor(Protocol):
    """A person's browser. Fields are named by their labels or names, links and buttons by their text."""

    def open(self, url: str) -> None:
        """Open a page."""

    def follow(self, text: str) -> None:
        """Follow a link."""

    def send(self, button: str, **fields: str) -> None:
        """Fill in fields, and press the button."""

    def wait_for(self, text: str) -> None:
        """Wait until the page, which loads itself again, contains a text."""

    def download(self, text: str) -> bytes:
        """Return the file behind a link."""

    def text(self) -> str:
        """Return what the page says."""

    def url(self) -> str:
        """Return the URL of the page."""

    def picture(self, name: str) -> None:
        """Take a picture of the page."""


class Visitors(Protocol):
    """Gives each person a browser of their own."""

    def __call__(self, name: str) -> Visitor:
        """Return the browser of this person."""


@contextlib.contextmanager
def _visitors(town: Town) -> Iterator[Visitors]:
    """Browsers of Chromium, if it is installed; else HTTP clients, which fill in the same forms."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        print(
            "Chromium is not installed: an HTTP client fills in the forms instead, and there are no pictures."
        )
        yield lambda name: FormVisitor(town.folder / "ca.pem")
        return
    from playwright.sync_api import sync_playwright

    print("The browsers are Chromium, without scripts, one profile for each person.")
    # the keys of these certificates are the ones that are expected; no other error is ignored
    pins = ",".join(_pin(town.folder / f"{name}.pem") for name in (GATEWAY, LOGIN))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", f"--ignore-certificate-errors-spki-list={pins}", "--no-proxy-server"],
        )

        def begin(name: str) -> Visitor:
            page = browser.new_context(
                java_script_enabled=False, viewport={"width": 1280, "height": 900}
            ).new_page()
            page.set_default_timeout(PATIENCE * 1000)
            return ChromiumVisitor(page, town.folder, name)

        try:
            yield begin
        finally:
            browser.close()


class ChromiumVisitor:
    """A profile of Chromium."""

    def __init__(self, page: Any, folder: Path, name: str) -> None:
        self._page, self._folder, self._name = page, folder, name

    def open(self, url: str) -> None:
        """Open a page."""
        self._page.goto(url)

    def follow(self, text: str) -> None:
        """Follow a link."""
        self._page.get_by_role("link", name=text, exact=True).first.click()
        self._page.wait_for_load_state()

    def send(self, button: str, **fields: str) -> None:
        """Fill in fields, and press the button."""
        for name, value in fields.items():
            field = self._page.get_by_label(re.compile(f"^{name}( required)?$", re.IGNORECASE)).or_(
                self._page.locator(f"[name={name}]")
            )
            if field.first.evaluate("element => element.localName") == "select":
                field.first.select_option(value)
            else:
                field.first.fill(value)
        with self._page.expect_navigation():
            self._page.get_by_role("button", name=button, exact=True).click()

    def wait_for(self, text: str) -> None:
        """Wait until the page contains a text."""
        # the page loads itself again
        self._page.get_by_text(text).first.wait_for()

    def download(self, text: str) -> bytes:
        """Return the file behind a link."""
        with self._page.expect_download() as waiting:
            self._page.get_by_role("link", name=text, exact=True).click()
        return Path(waiting.value.path()).read_bytes()

    def text(self) -> str:
        """Return what the page says."""
        return str(self._page.inner_text("body"))

    def url(self) -> str:
        """Return the URL of the page."""
        return str(self._page.url)

    def picture(self, name: str) -> None:
        """Take a picture of the page."""
        path = self._folder / f"{name}-{self._name}.png"
        self._page.screenshot(path=str(path), full_page=True)
        print(f"picture: {path}", flush=True)


class FormVisitor:
    """An HTTP client with cookies that follows redirects and fills in forms."""

    def __init__(self, ca_file: Path) -> None:
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
            _LocalHandler(ssl.create_default_context(cafile=str(ca_file))),
            urllib.request.ProxyHandler({}),
        )
        self._url, self._tree = "", LexborHTMLParser("")

    def open(self, url: str) -> None:
        """Open a page."""
        self._load(url)

    def follow(self, text: str) -> None:
        """Follow a link."""
        self._load(self._find_link(text))

    def send(self, button: str, **fields: str) -> None:
        """Fill in fields, and press the button."""
        form = next(
            form for form in self._tree.css("form")
            if button in [_read(found) for found in form.css("button")]
        )  # fmt: skip
        given = {
            str(field.attributes["name"]): field.attributes.get("value") or ""
            for field in form.css("input[type=hidden]")
        }
        labels = {
            _read(label).removesuffix("required").strip(): str(label.attributes.get("for"))
            for label in form.css("label")
        }
        given |= {labels.get(name, name): value for name, value in fields.items()}
        self._load(form.attributes.get("action") or self._url, urlencode(given).encode())

    def wait_for(self, text: str) -> None:
        """Wait until the page contains a text."""
        deadline = threading.Event()
        timer = threading.Timer(PATIENCE, deadline.set)
        timer.start()
        try:
            while text not in self.text():
                _check(not deadline.wait(0.5), f"the page shows {text!r} in time")
                self._load(self._url)
        finally:
            timer.cancel()

    def download(self, text: str) -> bytes:
        """Return the file behind a link."""
        with self._opener.open(urljoin(self._url, self._find_link(text)), timeout=PATIENCE) as reply:
            return bytes(reply.read())

    def text(self) -> str:
        """Return what the page says."""
        return "" if self._tree.body is None else re.sub(r"\s+", " ", self._tree.body.text(separator=" "))

    def url(self) -> str:
        """Return the URL of the page."""
        return self._url

    def picture(self, name: str) -> None:
        """Take none: there is no screen."""

    def _find_link(self, text: str) -> str:
        return next(str(link.attributes["href"]) for link in self._tree.css("a") if _read(link) == text)

    def _load(self, url: str, body: bytes | None = None) -> None:
        headers = {"accept": "text/html"} | ({"referer": self._url} if body is not None else {})
        request = urllib.request.Request(urljoin(self._url, url), body, headers)  # noqa: S310 - a page's link
        try:
            reply = self._opener.open(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            self._url, self._tree = reply.url, LexborHTMLParser(reply.read().decode())


def _read(node: Any) -> str:
    return " ".join(node.text().split())


class _LocalConnection(http.client.HTTPSConnection):
    """Connects to this computer for every name, as browsers do for names below `localhost`."""

    def connect(self) -> None:
        line = socket.create_connection(("127.0.0.1", self.port), self.timeout)
        self.sock = self._context.wrap_socket(line, server_hostname=self.host)  # type: ignore[attr-defined]


class _LocalHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._given = context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_LocalConnection, request, context=self._given)


# -- requests, commands and words ------------------------------------------------------------------


def _ask(folder: Path, url: str, body: bytes | None = None) -> tuple[HTTPMessage, bytes]:
    """Return the headers and the body of a response; names below `localhost` are not looked up."""
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


def _onym(folder: Path, *words: str, expected: int = 0, who: str = "ann") -> None:
    _command(f"onym {shlex.join(words)}")
    environment = _environment(folder, who)
    if _has_colour():
        del environment["NO_COLOR"]
    ran = subprocess.run([ONYM, *words], cwd=folder, env=environment, check=False)
    _check(ran.returncode == expected, f"exit code {ran.returncode}")


@contextlib.contextmanager
def _server(folder: Path, name: str, *words: str, **variables: str) -> Iterator[None]:
    """A server of ours, once it says that it serves; ended with the block."""
    _command(f"onym {shlex.join(words)} &")
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [ONYM, *words, "--json"],
            cwd=folder,
            env=_environment(folder) | variables,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        _check(_says(cast("IO[str]", process.stdout)), f"the {name} serves (its log: {folder}/{name}.log)")
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _says(stream: IO[str]) -> bool:
    """Does the server say in time that it serves?"""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    try:
        return "error" not in json.loads(lines.get(timeout=PATIENCE) or '{"error": "it ended"}')
    except queue.Empty:
        return False


def _environment(folder: Path, who: str = "ann") -> dict[str, str]:
    """The variables of a person's commands: nothing of the state or keyring of this computer is touched."""
    own = {"XDG_STATE_HOME": str(folder / "state"), "ONYM_SIGN_INS": str(folder / f"sign-ins-{who}")}
    return {**os.environ, **own, "NO_COLOR": "1"}


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


def _title(text: str) -> None:
    print(f"\n{_paint(f'== {text}', '1;34')}", flush=True)


def _command(text: str) -> None:
    print(_paint(f"$ {text}", "1"), flush=True)


def _check(holds: bool, what: str) -> None:
    print(f"{_paint('ok  ', '32') if holds else _paint('FAIL', '1;31')} {what}", flush=True)
    if not holds:
        raise SystemExit(1)


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if _has_colour() else text


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


if __name__ == "__main__":
    main()
