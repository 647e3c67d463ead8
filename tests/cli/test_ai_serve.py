"""`onym ai serve`: what it serves, with TLS, until it is told to end; and what it refuses to start."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from ai_support import Line, authority_ca
from failures_support import load
from onym.sign.keys import read_authority_keys
from onym.sign.keystore import KeyStore
from onym.sign.receipts import verify_filed
from support import free_port, untraced

MODULE = '''
from onym.ai import Endpoint

app = Endpoint("factory.test", anchor="https://factory.test:{port}", keys=None)
other = 5

@app.resource("/tool/add", scopes=["sums"])
def add(a: int, b: int) -> int:
    """Adds"""
    return a + b
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "served.py").write_text(MODULE.replace("{port}", "8443"))
    (tmp_path / "torn.py").write_text("def (:\n")
    (tmp_path / "falls.py").write_text("from pathlib import Path\nraise RuntimeError\n")
    start = "from onym.ai import Endpoint\napp = Endpoint"
    (tmp_path / "onward.py").write_text(f"{start}('factory.test')\napp.resource('x/y')(lambda: None)\n")
    (tmp_path / "address.py").write_text(f"{start}('https://factory.test')\n")
    (tmp_path / "needs.py").write_text("import module_that_nobody_has\n")
    yield tmp_path
    sys.modules.pop("served", None)


def process(folder: Path, environment: dict[str, str], *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "onym", "ai", "serve", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=untraced(environment),
        cwd=folder,
    )


@contextmanager
def serving(folder: Path, environment: dict[str, str], *args: str) -> Iterator[subprocess.Popen[str]]:
    child = process(folder, environment, *args)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def test_functions_are_served_with_tls_until_interrupted(folder: Path, environment: dict[str, str]) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    ca = authority_ca()
    ca.issue_cert("factory.test").private_key_and_cert_chain_pem.write_to_path(str(folder / "tls.pem"))
    port = free_port()
    (folder / "served.py").write_text(MODULE.replace("{port}", str(port)))
    args = ("served:app", "--keys", "keys", "--tls-cert", "tls.pem", "--port", str(port), "--json")
    with serving(folder, environment, *args) as child:
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
        with Line(f"factory.test:{port}", ca) as line:
            target = "/.well-known/aiip/v1/factory.test/tool/add?a=1&b=2"
            heard = line.ask("POST", target, service=False)
        child.send_signal(signal.SIGINT)
        child.wait(600)
    assert told == {
        "address": f"https://127.0.0.1:{port}",
        "authority": "factory.test",
        "anchor": f"https://factory.test:{port}",
        "resources": [
            {"uri": "ai://factory.test/tool/add", "effects": "read", "scopes": ["sums"], "title": "Adds"}
        ],
    }
    assert (heard.status, heard.body) == (200, b"3")
    assert heard.receipt


TOGETHER = """
import os
from pathlib import Path
from onym.ai import Endpoint

app = Endpoint("factory.test", anchor="https://factory.test:{port}", store="keys.sqlite")

@app.resource("/pid")
def pid() -> int:
    return os.getpid()

@app.resource("/order", effects="write")
def order(part: int) -> int:
    with Path("effects").open("a") as effects:
        effects.write(f"{part}\\n")
    return os.getpid()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT")
def test_workers_serve_together_and_run_a_keyed_call_once(folder: Path, environment: dict[str, str]) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    ca = authority_ca()
    ca.issue_cert("factory.test").private_key_and_cert_chain_pem.write_to_path(str(folder / "tls.pem"))
    port = free_port()
    name = f"factory.test:{port}"
    (folder / "served.py").write_text(TOGETHER.replace("{port}", str(port)))

    def call(path: str, *fields: tuple[str, str]) -> tuple[int, int]:
        with Line(name, ca) as line:
            heard = line.ask("POST", f"/.well-known/aiip/v1/factory.test{path}", b"", *fields, service=False)
        assert heard.receipt
        return heard.status, int(heard.body) if heard.status == 200 else 0

    def order(number: int) -> tuple[int, int]:
        key = ("Idempotency-Key", f'"order-{number % 5}-0123456789abcdef"')
        return call(f"/order?part={number % 5}", key)

    args = ("served:app", "--keys", "keys", "--tls-cert", "tls.pem", "--port", str(port), "--json")
    with serving(folder, environment, *args, "--workers", "2") as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["authority"] == "factory.test"
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(order, range(40)))
        answers += [order(number) for number in range(5)]
        pids = {call("/pid")[1] for _ in range(40)}
        child.send_signal(signal.SIGTERM)
        assert child.wait(600) == 143
    # a call that runs elsewhere is a conflict, which says: try again
    assert {status for status, _ in answers} <= {200, 409}
    assert {status for status, _ in answers[-5:]} == {200}
    assert sorted((folder / "effects").read_text().split()) == ["0", "1", "2", "3", "4"]
    assert len(pids) == 2
    assert child.pid not in pids


@pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT")
def test_a_rolling_change_of_version_and_keys_loses_no_call(
    folder: Path, environment: dict[str, str]
) -> None:
    """Acceptance A10: under load, the processes are replaced with other code, and the signing key changes."""
    keys = KeyStore(folder / "keys", max_age=1.0)
    keys.new(at=time.time())
    ca = authority_ca()
    ca.issue_cert("factory.test").private_key_and_cert_chain_pem.write_to_path(str(folder / "tls.pem"))
    port = free_port()
    name = f"factory.test:{port}"
    code = TOGETHER.replace("{port}", str(port))
    (folder / "served.py").write_text(code)
    numbers, kids = itertools.count(), set[str]()

    def order() -> str:
        """One order, sent again with its key if the answer says so or the connection was closed."""
        number = next(numbers)
        path = f"/.well-known/aiip/v1/factory.test/order?part={number}"
        while True:
            try:
                with Line(name, ca) as line:
                    key = ("Idempotency-Key", f'"order-{number}"')
                    heard = line.ask("POST", path, b"", key, service=False)
                    published = line.ask("GET", "/.well-known/aiip.jwks.json", service=False)
            except (OSError, HTTPException):
                continue
            if heard.status == 200:
                assert heard.receipt
                verify_filed(heard.receipt, read_authority_keys(published.body), body=heard.body)
                kids.add(json.loads(urlsafe_b64decode(heard.receipt.split(".")[0] + "=="))["kid"])
                return heard.body.decode()
            assert heard.json()["retryable"], heard.body

    args = ("served:app", "--keys", "keys", "--tls-cert", "tls.pem", "--port", str(port), "--json")
    with serving(folder, environment, *args, "--workers", "2") as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["authority"] == "factory.test"
        with load(order, times=4) as work:
            work.wait_until(lambda: len(work.results) >= 40)
            (folder / "served.py").write_text(code.replace("return os.getpid()", "return -os.getpid()"))
            child.send_signal(signal.SIGHUP)
            keys.rotate(at=time.time())
            work.wait_until(lambda: {int(body) < 0 for body in work.results[-20:]} == {True})
            work.wait_until(lambda: len(kids) == 2)
        child.send_signal(signal.SIGTERM)
        assert child.wait(600) == 143
    done = (folder / "effects").read_text().split()
    assert len(done) == len(set(done)) == len(work.results)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ("keys=SigningKey.generate('Ed25519').with_thumbprint()", "signing key"),
        ("keys='keys', store=SQLiteIdempotencyStore(None, most=5)", "store"),
        ("keys='keys', authorization=JWTAuthorization(AS, AS)", "DPoP"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT")
def test_workers_do_not_start_with_what_is_in_the_memory_of_one(
    folder: Path, environment: dict[str, str], change: str, missing: str
) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    (folder / "served.py").write_text(
        "from onym.ai import Endpoint\nfrom onym.ai.endpoint.oauth import JWTAuthorization\n"
        "from onym.ai.endpoint.idempotency import SQLiteIdempotencyStore\n"
        "from onym.sign.keys import SigningKey\nAS = 'https://as.test'\n"
        f"app = Endpoint('factory.test', {change})\n"
    )
    child = process(folder, environment, "served:app", "--port", str(free_port()), "--workers", "2", "--json")
    out, err = child.communicate(timeout=600)
    assert child.returncode == 4, err
    error = json.loads(out)["error"]
    assert missing in error["message"]
    assert error["code"] in {"config.not-shared", "config.other-store"}


def test_people_are_told_what_is_served(
    folder: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from onym.server import http_server

    KeyStore(folder / "keys").new(at=time.time())
    asked: dict[str, Any] = {}

    def stand_in(app: Any, *, ready: Callable[[int], object], **options: Any) -> None:
        asked.update(options)
        ready(8443)

    monkeypatch.setattr(http_server, "run_app", stand_in)
    done = run("ai", "serve", "served:app", "--keys", "keys", "--host", "::1")
    assert done.code == 0, done.err
    assert "http://[::1]:8443" in done.err
    assert "ai://factory.test/tool/add  read, scopes sums" in done.err
    plain = {"host": "::1", "port": 8443, "certificate": None, "key": None}
    assert asked == {**plain, "client_ca": None, "certificate_proxies": ()}
    done = run("ai", "serve", "served:app", "--keys", "keys", "--client-cert-proxy", "127.0.0.1")
    assert done.code == 0, done.err
    assert asked["certificate_proxies"] == ("127.0.0.1",)
    done = run("ai", "serve", "served:app", "--keys", "keys", "--tls-cert", "c.pem", "--client-ca", "ca.pem")
    assert (done.code, asked["client_ca"]) == (0, Path("ca.pem"))
    assert run("ai", "serve", "served:app", "--keys", "keys", "--client-ca", "ca.pem").code == 2


def test_people_are_told_that_no_client_certificate_can_arrive(
    folder: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from onym.server import http_server

    KeyStore(folder / "keys").new(at=time.time())
    guard = "JWTAuthorization('https://as.test', 'https://factory.test/.well-known/aiip/v1', mtls=True)"
    (folder / "served.py").write_text(
        "from onym.ai import Endpoint\nfrom onym.ai.endpoint.oauth import JWTAuthorization\n"
        f"app = Endpoint('factory.test', authorization={guard})\n"
    )
    monkeypatch.setattr(http_server, "run_app", lambda app, *, ready, **options: ready(443))
    for more, told in (((), True), (("--client-cert-proxy", "127.0.0.1"), False)):
        done = run("ai", "serve", "served:app", "--keys", "keys", *more)
        assert done.code == 0, done.err
        assert ("client certificates" in done.err) is told


GUARDED = """
from onym.ai import Endpoint
from onym.ai.endpoint.oauth import JWTAuthorization

guard = JWTAuthorization("https://as.test", "https://factory.test/.well-known/aiip/v1")
app = Endpoint("factory.test", authorization=guard)
bare = Endpoint("factory.test")
"""


def test_processes_share_a_store_of_proofs_and_secrets_or_do_not_start(
    folder: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the commands of docs/how-to/protect-a-resource.md."""
    from onym.server import http_server

    KeyStore(folder / "keys").new(at=time.time())
    (folder / "served.py").write_text(GUARDED)
    assert run("ai", "gateway", "secrets", "rotate", "secrets").code == 0
    started: list[Any] = []
    monkeypatch.setattr(http_server, "run_app", lambda app, **options: started.append(app))

    def serve(*args: str, app: str = "served:app") -> Any:
        return run("ai", "serve", app, "--keys", "keys", *args)

    store = ("--proof-store", "proofs.sqlite")
    done = serve(*store, "--secrets", "secrets")
    assert (done.code, len(started)) == (0, 1), done.err
    assert (folder / "proofs.sqlite").exists()
    asyncio.run(started[0].aclose())
    for args, code in (
        (store, "usage"),
        (("--secrets", "secrets"), "usage"),
        (("--proof-store", "valkey://app:hunter2@cache.test/0", "--secrets", "secrets"), "usage"),
        (("--proof-store", "http://cache.test", "--secrets", "secrets"), "store.bad-url"),
        (("--proof-store", "valkey://127.0.0.1:1/0", "--secrets", "secrets"), "valkey.unreachable"),
        (("--proof-store", "missing/proofs.sqlite", "--secrets", "secrets"), "store.unreachable"),
        ((*store, "--secrets", "nowhere"), "credential.missing"),
    ):
        done = serve(*args, "--json")
        assert done.code != 0
        assert json.loads(done.out or done.err)["error"]["code"].startswith(code), done.err
        assert "hunter2" not in done.out + done.err
    done = serve(*store, "--secrets", "secrets", "--json", app="served:bare")
    assert json.loads(done.out or done.err)["error"]["code"] == "config.no-authorization"
    # a password is not shown to other users of the computer
    monkeypatch.setenv("ONYM_AI_PROOF_STORE", "valkey://app:hunter2@127.0.0.1:1/0")
    done = serve("--secrets", "secrets", "--json")
    assert json.loads(done.out or done.err)["error"]["code"] == "valkey.unreachable"
    assert "hunter2" not in done.out + done.err
    assert len(started) == 1


def test_workers_share_proofs_and_secrets(
    folder: Path, environment: dict[str, str], run: Callable[..., Any]
) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    (folder / "served.py").write_text(GUARDED)
    assert run("ai", "gateway", "secrets", "rotate", "secrets").code == 0
    shared = ("--proof-store", "proofs.sqlite", "--secrets", "secrets")
    args = ("served:app", "--keys", "keys", "--port", "0", "--workers", "2", "--json")
    with serving(folder, environment, *args, *shared) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["authority"] == "factory.test"
        child.send_signal(signal.SIGTERM)
        child.wait(600)
    with serving(folder, environment, *args) as child:
        out, err = child.communicate(timeout=600)
    assert json.loads(out or err)["error"]["code"] == "config.not-shared"


def notes(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, *args: str, port: int) -> str:
    """What is said of an app that listens on this port."""
    from onym.server import http_server

    monkeypatch.setattr(http_server, "run_app", lambda app, *, ready, **options: ready(port))
    done = run("ai", "serve", *args)
    assert done.code == 0
    return str(done.err)


def test_a_port_that_is_not_the_authoritys_is_told(
    folder: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    words = ("served:app", "--keys", "keys", "--tls-cert", "tls.pem")
    said = notes(run, monkeypatch, *words, port=8460)
    assert (
        "note: clients connect to port 8443 (the anchor is https://factory.test:8443), but this is port 8460"
        in said
    )
    assert "note" not in notes(run, monkeypatch, *words, port=8443)


def test_an_app_without_resources_is_told(
    folder: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    (folder / "bare.py").write_text(
        "from onym.ai import Endpoint\napp = Endpoint('factory.test:8443', keys='keys')"
    )
    said = notes(run, monkeypatch, "bare:app", "--tls-cert", "tls.pem", port=8443)
    assert "note: the app has no resources" in said
    sys.modules.pop("bare")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_port_that_is_taken_is_told_once(
    folder: Path, environment: dict[str, str], form: tuple[str, ...]
) -> None:
    import socket

    KeyStore(folder / "keys").new(at=time.time())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ("served:app", "--keys", "keys", "--port", str(taken.getsockname()[1]), *form)
        child = process(folder, environment, *words)
        out, err = child.communicate(timeout=600)
    assert child.returncode == 4
    assert "Errno" not in out + err
    if form:
        assert json.loads(out)["error"]["code"] == "config.cannot-listen"
        assert err == ""
    else:
        assert err.startswith("error: cannot listen on 127.0.0.1 port")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["served"], "is not the name of an app"),
        (["../served:app"], "is not the name of an app"),
        (["served:"], "is not the name of an app"),
        (["nothing_there:app"], "module nothing_there "),
        (["served:other"], "is not an Endpoint"),
        (["served:none"], "is not an Endpoint"),
        (["served:app"], "config.no-keys"),
        (["served:app", "--keys", "empty"], "config.no-keys"),
        (["served:app", "--tls-key", "k.pem"], "--tls-cert"),
        (["served"], "did you mean served:app?"),
        (["served.py:app"], "did you mean served:app?"),
        (["served:other"], "did you mean served:app?"),
        (["torn:app"], "SyntaxError at line 1 of"),
        (["falls:app"], "RuntimeError at line 2 of"),
        (["onward:app"], "'x/y'"),
        (["address:app"], "'https://factory.test'"),
    ],
)
def test_what_cannot_be_served_is_told(
    folder: Path, run: Callable[..., Any], args: list[str], says: str
) -> None:
    done = run("ai", "serve", *args)
    assert done.code != 0
    assert says in done.err


def test_plain_http_is_not_served_to_others(folder: Path, run: Callable[..., Any]) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    done = run("ai", "serve", "served:app", "--keys", "keys", "--host", "0.0.0.0")
    assert done.code != 0
    assert "config.plain-http" in done.err
    assert "--tls-cert" in done.err


def test_a_module_that_the_app_needs_is_not_taken_for_the_app(folder: Path, run: Callable[..., Any]) -> None:
    done = run("ai", "serve", "needs:app")
    assert (done.code, "module_that_nobody_has" in done.err) == (2, True)


def test_keys_that_others_may_read_are_told_with_the_command_that_mends_it(
    folder: Path, run: Callable[..., Any]
) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    (folder / "keys").chmod(0o755)
    done = run("ai", "serve", "served:app", "--keys", "keys")
    assert done.code == 4
    assert "hint      chmod 700 keys" in done.err
    assert "ai keys new" not in done.err


def test_a_certificate_that_is_not_there_is_named(folder: Path, run: Callable[..., Any]) -> None:
    KeyStore(folder / "keys").new(at=time.time())
    done = run("ai", "serve", "served:app", "--keys", "keys", "--tls-cert", "nope.pem")
    assert done.code == 4
    assert "config.bad-certificate" in done.err
    assert "nope.pem" in done.err
    assert "config check" not in done.err
