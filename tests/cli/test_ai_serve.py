"""`onym ai serve`: what it serves, with TLS, until it is told to end; and what it refuses to start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ai_support import Line, authority_ca
from onym.sign.keystore import KeyStore
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
    assert asked == {"host": "::1", "port": 8443, "certificate": None, "key": None}


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
        out, err = child.communicate(timeout=60)
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
