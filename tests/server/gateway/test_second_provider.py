"""The pages "Sign people in at a gateway" and "Have a call approved by people", followed to the letter.

Canaille is a provider of other people, so this is also a test of interoperation.
"""

from __future__ import annotations

import http.client
import http.cookiejar
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode, urljoin

import pytest
from selectolax.lexbor import LexborHTMLParser

from ai_support import PATIENCE
from model_support import unavailable, uv
from peer_install import environment, install, installed
from support import free_port

pytestmark = pytest.mark.xdist_group("gateway-people")

ROOT = Path(__file__).parents[3]
SIGN_IN, APPROVALS = ROOT / "docs" / "how-to" / "sign-in.md", ROOT / "docs" / "how-to" / "approvals.md"
EXAMPLES = ROOT / "docs_src"
(PACKAGE,) = re.findall(r"'(canaille\[.*)'", SIGN_IN.read_text("utf-8"))


def canaille() -> Path:
    """The folder of an environment of its own: it must not change what Onym is tested with."""

    def make(folder: Path) -> None:
        python = environment(folder)
        install([uv(), "pip", "install", "--python", str(python), PACKAGE], folder)

    return installed("canaille", PACKAGE + sys.version, make)


def blocks(page: Path) -> list[str]:
    """The console blocks of a page that this file runs."""
    mark = rf"<!-- tested: {re.escape(str(Path(__file__).relative_to(ROOT)))} -->"
    return re.findall(rf"^{mark}\n```console\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def make_environment(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder)}


def read_script(block: str) -> list[str]:
    """The commands of a console block."""
    return [command.replace("\n> ", "\n").rstrip() for command in block.split("$ ")[1:]]


@contextmanager
def running(script: list[str], folder: Path, port: int) -> Iterator[None]:
    """A shell whose last command is a server; it listens when the block begins."""
    log = folder / f"{port}.log"
    *first, last = script
    text = "\n".join(["set -e", *first, f"exec {last}"])
    with (
        log.open("wb") as out,
        subprocess.Popen(
            ["bash", "-c", text], cwd=folder, env=make_environment(folder), stdout=out, stderr=out
        ) as process,
    ):
        try:
            until = time.monotonic() + PATIENCE
            while not _listens(port):
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < until, log.read_text()[-3000:]
                time.sleep(0.2)  # until it listens; nothing else depends on it
            yield
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            return True
    except OSError:
        return False


class _LocalConnection(http.client.HTTPSConnection):
    """Connects to this computer for every name, as browsers do for names below `localhost`."""

    def connect(self) -> None:
        line = socket.create_connection(("127.0.0.1", self.port), timeout=self.timeout)
        self.sock = self._context.wrap_socket(line, server_hostname=self.host)  # type: ignore[attr-defined]


class _LocalHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._given = context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_LocalConnection, request, context=self._given)


class Person:
    """A browser without scripts that fills in forms. It trusts `ca_file` as well."""

    def __init__(self, ca_file: str | None = None) -> None:
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        tls = _LocalHandler(ssl.create_default_context(cafile=ca_file))
        self._opener = urllib.request.build_opener(jar, tls, urllib.request.ProxyHandler({}))
        self.url, self.text, self.tree = "", "", LexborHTMLParser("")

    def open(self, url: str, form: dict[str, str] | None = None) -> int:
        body = None if form is None else urlencode(form).encode()
        request = urllib.request.Request(urljoin(self.url, url), body, {"accept": "text/html"})
        if form is not None and self.url:
            request.add_header("referer", self.url)
        try:
            reply = self._opener.open(request, timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            self.url, self.text = reply.url, reply.read().decode()
            self.tree = LexborHTMLParser(self.text)
            return int(reply.status)

    def follow(self, selector: str) -> None:
        """Open a link of the page."""
        assert self.open(str(self.tree.css_first(selector).attributes["href"])) == 200, self.text

    def sign_in(self, login: str, password: str) -> None:
        """Choose the provider, and fill in its forms."""
        self.follow("ul.actions a")
        given = {"login": login, "password": password, "answer": "accept"}
        for _ in range(4):
            name = next((name for name in given if name in self.names()), None)
            if name is not None:
                self.send(**{name: given.pop(name)})

    def names(self) -> set[str]:
        return {str(field.attributes.get("name")) for field in self.tree.css("form input, form button")}

    def send(self, **values: str) -> int:
        """Send the first form that has these fields."""
        form = next(
            form
            for form in self.tree.css("form")
            if values.keys()
            <= {field.attributes.get("name") for field in form.css("input, textarea, button")}
        )
        hidden = {
            str(field.attributes["name"]): field.attributes.get("value") or ""
            for field in form.css("input[type=hidden]")
        }
        return self.open(form.attributes.get("action") or self.url, {**hidden, **values})


class Newcomer:
    """An empty folder in which the pages are followed, with free ports in the place of theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in ("5433", "8480", "8443")}
        self.provider = self.here("http://127.0.0.1:5433")
        (folder / "provider").symlink_to(canaille())
        self.save(SIGN_IN)
        self.sign_in = blocks(SIGN_IN)

    def here(self, text: str) -> str:
        return re.sub(r"\b(5433|8480|8443)\b", lambda match: self.ports[match[0]], text)

    def save(self, page: Path) -> None:
        """Save the files of a page."""
        for name, body in re.findall(
            r"^<!-- file: (\S+) -->\n```\w+.*?\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
        ):
            (self.folder / name).write_text(self.here(body))

    def serve(self, block: str, port: str) -> AbstractContextManager[None]:
        """Run a block whose last command is a server on this port of the pages."""
        return running([self.here(line) for line in read_script(block)], self.folder, int(self.ports[port]))

    def run(self, block: str, *, expected: int = 0, **words: str) -> str:
        """Run a block, with other words in the place of some; what it prints."""
        script = self.here("\n".join(read_script(block)))
        for old, new in words.items():
            script = re.sub(rf"\b{old}\b", new, script)
        done = subprocess.run(
            ["bash", "-c", "set -e\n" + script],
            cwd=self.folder,
            env=make_environment(self.folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == expected, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    for tool in ("curl", "openssl"):
        if shutil.which(tool) is None:
            unavailable(f"{tool} is not installed: apt-get install {tool}")
    return Newcomer(tmp_path)


def test_the_page_leads_from_an_empty_folder_to_a_signed_in_person(newcomer: Newcomer) -> None:
    making, serving = newcomer.sign_in
    gateway = newcomer.here("http://127.0.0.1:8480")
    with (
        newcomer.serve(making, "5433"),
        newcomer.serve(serving, "8480"),
    ):
        person = Person()
        assert person.open(f"{gateway}/account") == 401
        person.follow("main a.button")
        person.sign_in("ann", "correct-horse-battery")
        assert person.url == f"{gateway}/account", person.tree.css_first("main").text()
        text = person.tree.css_first("main").text()
        assert "Ann Example" in text
        assert newcomer.provider in text
        # signing out leads to the provider's own page, which asks, and back
        person.send(csrf_token=read_value(person, "csrf_token"))
        assert person.url.startswith(newcomer.provider), person.url
        person.send(answer="logout")
        assert person.url.startswith(f"{gateway}/auth/signed-out"), person.tree.text()[:500]
        assert person.open(f"{gateway}/account") == 401


def test_the_page_on_approvals_leads_from_there_to_an_approved_payment(newcomer: Newcomer) -> None:
    """docs/how-to/approvals.md, in the folder of the page before it."""
    preparing, endpoint, gateway, asking, sending, verifying = blocks(APPROVALS)
    making, (secrets, _) = newcomer.sign_in[0], read_script(newcomer.sign_in[1])
    newcomer.save(APPROVALS)
    (newcomer.folder / "ai_payment.py").write_text(newcomer.here((EXAMPLES / "ai_payment.py").read_text()))
    with ExitStack() as servers:
        servers.enter_context(newcomer.serve(making, "5433"))
        newcomer.run(f"$ {secrets}")
        newcomer.run(preparing)
        trusted = str(newcomer.folder / "cert.pem")
        base, shop = newcomer.here("https://gw.localhost:8480"), newcomer.here("shop.localhost:8443")
        servers.enter_context(newcomer.serve(endpoint, "8443"))
        servers.enter_context(newcomer.serve(gateway, "8480"))
        ann, bob = Person(trusted), Person(trusted)
        # Ann asks in her browser
        assert ann.open(f"{base}/gateway/{shop}/pay") == 200
        ann.follow("main a.button")
        ann.sign_in("ann", "correct-horse-battery")
        assert ann.send(uri=f"ai://{shop}/pay", in0="10", in1="Acme") == 200
        assert ann.send(review=read_value(ann, "review")) == 200
        page = ann.url
        assert page.startswith(f"{base}/approvals/")
        # Bob decides in his
        assert bob.open(f"{base}/approvals") == 401
        bob.follow("main a.button")
        bob.sign_in("bob", "battery-horse-correct")
        approve(bob)
        # Ann sends
        assert ann.open(page) == 200
        assert ann.send(decision="send") == 200
        assert "paid 10 to Acme" in ann.tree.css_first("main").text()
        assert "Approved by" in ann.tree.css_first("main").text()
        # the same from the command line
        newcomer.run(asking, expected=14)
        request = (newcomer.folder / "out" / "approval-request.json").read_text()
        assert ann.open(f"{base}/approvals") == 200
        assert ann.send(request=request) == 200
        page = ann.url
        assert bob.open(f"{base}/approvals") == 200
        approve(bob)
        (newcomer.folder / "approval.jwt").write_text(read_text(ann, f"{page}/approval.jwt"))
        said = newcomer.run(sending, KEY=json.loads(request)["idempotency_key"])
        assert said.strip() == "paid 20 to Acme"
        newcomer.run(verifying)


def read_value(person: Person, name: str) -> str:
    return str(person.tree.css_first(f"[name={name}]").attributes["value"])


def read_text(person: Person, url: str) -> str:
    assert person.open(url) == 200
    return person.text


def approve(person: Person) -> None:
    """Open the only call that waits, and approve it."""
    assert len(person.tree.css("main table a")) == 1
    person.follow("main table a")
    assert person.send(decision="approve") == 200
