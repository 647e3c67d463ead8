"""`onym ai gateway` and `onym ai audit`, as they are run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway_support import ask
from onym.ai.gateway.audit import AuditLog, rotate_log, verify_log
from onym.cli._output import Session
from onym.cli.commands.ai.gateway import gateway_command as gateway
from onym.cli.commands.ai.serve import audit_command as audit
from onym.errors import ConfigError, CredentialError, OnymError
from onym.sign.keystore import KeyStore
from support import free_port, untraced

AT = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def log(folder: Path, count: int = 3) -> Path:
    path = folder / "audit.jsonl"
    journal = AuditLog(path)
    for number in range(count):
        journal.append({"id": str(number)}, at=AT)
    journal.close()
    return path


def run(*arguments: str, as_json: bool = False) -> Any:
    return CliRunner().invoke(audit, arguments, obj=Session(as_json=as_json))


def test_a_log_that_holds_is_said_to_hold(tmp_path: Path) -> None:
    path = log(tmp_path)
    found = run("verify", str(path))
    assert (found.exit_code, "3 lines" in found.output) == (0, True)
    verdict = json.loads(run("verify", str(path), "--json").output)
    assert (verdict["holds"], verdict["lines"], verdict["faults"]) == (True, 3, [])
    ends = verify_log(path).ends
    assert f"last hash: {ends}" in found.output
    assert run("verify", str(path), "--expect", ends.upper()).exit_code == 0


def test_a_log_that_was_changed_or_cut_exits_with_1(tmp_path: Path) -> None:
    path = log(tmp_path)
    ends = verify_log(path).ends
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert run("verify", str(path)).exit_code == 0
    cut = run("verify", str(path), "--expect", ends)
    assert (cut.exit_code, verify_log(path).ends in cut.output) == (1, True)
    path.write_bytes(path.read_bytes().replace(b'"id":"0"', b'"id":"9"'))
    changed = run("verify", str(path))
    assert (changed.exit_code, "line 2" in changed.output) == (1, True)
    told = json.loads(run("verify", str(path), "--json").output)
    assert (told["holds"], told["faults"][0]["line"]) == (False, 2)


def test_json_tells_whether_the_last_hash_is_the_expected_one(tmp_path: Path) -> None:
    path = log(tmp_path)
    kept = rotate_log(path, at=AT)
    ends = verify_log(path).ends
    for expect, code, expected in (
        ((), 0, None),
        (("--expect", ends), 0, True),
        (("--expect", "0" * 64), 1, False),
    ):
        told = run("verify", str(kept), str(path), *expect, as_json=True)
        first, last = map(json.loads, told.output.splitlines())
        assert (told.exit_code, first["expected"], last["expected"]) == (code, None, expected)
        assert last["holds"] is True


def test_a_torn_log_is_mended_on_request(tmp_path: Path) -> None:
    path = log(tmp_path)
    path.write_bytes(path.read_bytes() + b"{")
    told = run("verify", str(path))
    assert (told.exit_code, "onym ai audit repair" in told.output) == (1, True)
    assert "1 bytes" in run("repair", str(path), "--yes").output
    assert "nothing to repair" in run("repair", str(path), "--yes").output
    assert run("verify", str(path)).exit_code == 0


@pytest.mark.requirement("ai-privacy-b")
def test_a_log_is_rotated_and_its_files_hold_together(tmp_path: Path) -> None:
    path = log(tmp_path)
    kept = json.loads(run("rotate", str(path), "--json").output)["kept"]
    assert run("verify", kept, str(path)).exit_code == 0
    assert run("verify", str(path), kept).exit_code == 1
    second = run("rotate", str(path), "--keep", "0d", "--yes")
    assert "removed" in second.output
    assert run("verify", str(path)).exit_code == 0


def test_a_log_that_is_not_there_is_told(tmp_path: Path) -> None:
    found = run("verify", str(tmp_path / "none"))
    assert isinstance(found.exception, ConfigError)


def test_the_gateway_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    code = (
        "import sys; from onym.cli._output import Session; "
        "from onym.cli.commands.ai.gateway import gateway_command; "
        "gateway_command.main(sys.argv[1:], obj=Session(as_json='--json' in sys.argv), standalone_mode=False)"
    )
    port = free_port()
    command = [
        sys.executable,
        "-c",
        code,
        "--json",
        "--port",
        str(port),
        "--audit",
        str(tmp_path / "a.jsonl"),
    ]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=untraced()
    )
    try:
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
        assert told == {"url": f"http://127.0.0.1:{port}/", "port": port}
        assert ask(port, "GET", "/").status == 200
        assert ask(port, "GET", "/gateway/bank/x").status == 404
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=300)
    assert verify_log(tmp_path / "a.jsonl").lines == 1


def serving(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[Any, dict[str, Any]]:
    """What the command says, and what it would listen with."""
    given: dict[str, Any] = {}

    def listen(app: Any, *, ready: Any, **more: Any) -> None:
        given.update(more, app=app)
        ready(8480)

    monkeypatch.setattr("onym.server.http_server.run_app", listen)
    found = CliRunner().invoke(gateway, arguments, obj=Session(), help_option_names=["-h", "--help"])
    return found, given


def test_what_does_not_last_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found, given = serving(monkeypatch, "--policy", "local")
    assert found.exit_code == 0
    assert "http://127.0.0.1:8480/" in found.output
    assert "--keys" in found.output
    assert "--audit" in found.output
    assert (given["host"], given["port"], given["certificate"]) == ("127.0.0.1", 8480, None)
    found, given = serving(monkeypatch, "--base-url", "http://127.0.0.1:9999", "--port", "8481")
    assert "http://127.0.0.1:9999/" in found.output


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        (("--tls-cert", "c.pem", "--port", "8504"), "https://127.0.0.1:8504/"),
        (("--tls-cert", "c.pem"), "https://127.0.0.1:8480/"),
        (("--tls-cert", "c.pem", "--host", "::1"), "https://[::1]:8480/"),
        (("--tls-cert", "c.pem", "--host", "0.0.0.0"), "https://127.0.0.1:8480/"),
        (("--port", "8504"), "http://127.0.0.1:8504/"),
    ],
)
def test_the_address_that_is_told_has_the_scheme_that_is_spoken(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], url: str
) -> None:
    found, _ = serving(monkeypatch, "--policy", "local", *arguments)
    assert found.exit_code == 0, found.exception
    assert f"serving: {url} " in found.output


def test_an_https_gateway_needs_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = serving(monkeypatch, "--base-url", "https://gw.example")
    assert isinstance(found.exception, OnymError)
    assert "onym ai keys new" in str(found.exception.hint)


def test_the_secrets_of_a_gateway_are_rotated(tmp_path: Path) -> None:
    """The command creates a folder, keeps the old secret for the overlap, and refuses to hurry."""
    folder = tmp_path / "secrets"
    first = CliRunner().invoke(gateway, ["secrets", "rotate", str(folder), "--json"], obj=Session())
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["revoked"] is False
    before = (folder / "current").read_text(encoding="ascii").split()[0]
    second = CliRunner().invoke(gateway, ["secrets", "rotate", str(folder)], obj=Session())
    assert second.exit_code == 0, second.output
    assert "the new secret is used from" in second.stdout
    assert (folder / "previous").read_text(encoding="ascii").split()[0] == before
    third = CliRunner().invoke(gateway, ["secrets", "rotate", str(folder)], obj=Session())
    assert isinstance(third.exception, CredentialError)
    assert third.exception.code == "credential.too-early"
    last = CliRunner().invoke(gateway, ["secrets", "rotate", str(folder), "--revoke", "--yes"], obj=Session())
    assert last.exit_code == 0, last.output
    assert not (folder / "previous").exists()
    assert before not in first.stdout + second.stdout + last.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT")
def test_workers_of_a_gateway_publish_one_set_of_keys(tmp_path: Path) -> None:
    KeyStore(tmp_path / "keys").new(at=time.time())
    port = free_port()
    command = [sys.executable, "-m", "onym", "ai", "gateway", "--json", "--port", str(port), "--workers", "2"]
    given = {
        "ONYM_GATEWAY_REPLAYS": str(tmp_path / "replays.sqlite"),
        "ONYM_GATEWAY_KEYS": str(tmp_path / "keys"),
    }
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=untraced() | given
    )
    try:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"url": f"http://127.0.0.1:{port}/", "port": port}
        assert len({ask(port, "GET", "/.well-known/aiip.jwks.json").body for _ in range(20)}) == 1
    finally:
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=300)
    assert child.returncode == 143
