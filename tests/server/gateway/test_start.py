"""What is wrong with a gateway's files is said to its operator at the start, and to no caller."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ai_support import authority_ca
from gateway_support import world
from onym.ai.settings import PinFile
from onym.cli._app import app
from onym.errors import ConfigError
from onym.server.gateway import GatewaySettings, create_gateway, load_gateway_settings


def text(path: Path) -> None:
    path.write_text("this is a log of openssl, and nothing else", encoding="utf-8")


def nothing(path: Path) -> None:
    """There is no such file."""


def folder(path: Path) -> None:
    path.mkdir()


def open_to_others(path: Path) -> None:
    PinFile(path).require_usable()
    path.chmod(0o644)


def orphan(path: Path) -> None:
    """There is no such folder, and its parent is a file."""
    path.parent.write_text("x", encoding="utf-8")


#: setting, what is made of the file, where it is
FILES: list[tuple[str, Callable[[Path], None], str]] = [
    ("ca_files", text, "file"),
    ("ca_files", nothing, "file"),
    ("ca_files", folder, "file"),
    ("pins", text, "file"),
    ("pins", Path.touch, "file"),
    ("pins", folder, "file"),
    ("pins", open_to_others, "file"),
    ("pins", orphan, "a/file"),
    ("replays", text, "file"),
    ("replays", folder, "file"),
    ("replays", nothing, "none/file"),
    ("audit", text, "file"),
    ("audit", nothing, "none/file"),
    ("keys", nothing, "file"),
    ("keys", text, "file"),
]


@pytest.mark.skipif(os.name != "posix", reason="modes and locks are of POSIX")
@pytest.mark.parametrize(("setting", "make", "name"), FILES)
def test_a_file_that_cannot_be_used_ends_the_gateway_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, make: Callable[[Path], None], name: str
) -> None:
    path = tmp_path / name
    make(path)
    config = tmp_path / "gateway.toml"
    value = f'["{path}"]' if setting == "ca_files" else f'"{path}"'
    config.write_text(f"{setting} = {value}\n", encoding="utf-8")
    found = started(monkeypatch, "--config", str(config))
    code = 2 if make is nothing else 4
    assert (found.exit_code, "  code " in found.output) == (code, True), found.output
    assert str(path) in found.output.replace("\n            ", "")


def started(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    def listen(*_: object, **__: object) -> None:
        raise AssertionError("it listens")

    monkeypatch.setattr("onym.server.http_server.run_app", listen)
    monkeypatch.setenv("COLUMNS", "500")
    return CliRunner().invoke(app, ["ai", "gateway", *arguments], prog_name="onym")


@pytest.mark.parametrize(
    "namespaces",
    [
        'file = "{0}/none.jws"\nkeys = "{0}/text"',
        'file = "{0}/text"\nkeys = "{0}/text"',
        'file = "{0}/text"\nkeys = "{0}/key.json"',
    ],
)
def test_a_registry_file_or_key_that_is_none_ends_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespaces: str
) -> None:
    text(tmp_path / "text")
    public = '{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","alg":"EdDSA"}'
    (tmp_path / "key.json").write_text(public, encoding="utf-8")
    config = tmp_path / "gateway.toml"
    config.write_text(f"[[namespaces]]\n{namespaces.format(tmp_path)}\n", encoding="utf-8")
    found = started(monkeypatch, "--config", str(config))
    assert found.exit_code == 4, found.output


def test_a_file_of_authorities_of_the_command_line_is_read_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text(tmp_path / "openssl.log")
    found = started(monkeypatch, "--ca", str(tmp_path / "openssl.log"))
    assert (found.exit_code, "openssl.log" in found.output) == (4, True)
    assert "--ca" in found.output


@pytest.mark.parametrize(
    "given", ['["dns.example"]', '["127.0.0.1:53"]', '"127.0.0.1,x"', '[""]', "[1]", "1"]
)
def test_nameservers_that_are_no_addresses_are_a_mistake_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f"nameservers = {given}\n", encoding="utf-8")
    found = started(monkeypatch, "--config", str(config))
    assert (found.exit_code, "nameservers" in found.output) == (4, True), found.output


def test_files_that_are_not_there_yet_are_made(tmp_path: Path) -> None:
    pins, replays = tmp_path / "state" / "pins.db", tmp_path / "replays.db"
    authority_ca().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    create_gateway(
        GatewaySettings(pins=str(pins), replays=str(replays), ca_files=(str(tmp_path / "ca.pem"),), dns=False)
    )
    with closing(sqlite3.connect(replays)) as database:
        assert database.execute("SELECT COUNT(*) FROM seen").fetchone() == (0,)
    assert pins.exists()


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
@pytest.mark.parametrize("setting", ["pins", "replays"])
def test_a_file_that_goes_bad_while_it_is_served_is_for_the_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str, accept: str
) -> None:
    path = tmp_path / "kept-secret.db"
    with caplog.at_level(logging.WARNING, "onym.server.gateway"), world(**{setting: str(path)}) as site:
        for file in tmp_path.glob("kept-secret.db*"):
            file.unlink()
        text(path)
        path.chmod(0o600)
        found = site.ask("POST", "/tool/add", b'{"a": 1, "b": 2}', Accept=accept)
    assert (found.status, found.headers["retry-after"]) == (503, "1")
    assert b"unavailable" in found.body
    for word in (b"kept-secret", str(tmp_path).encode(), b"pins", b"removed", b"receipts", b"database"):
        assert word not in found.body
    expected = {"pins": f"the pin file {path} cannot be used", "replays": "not a database"}[setting]
    assert expected in caplog.text


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "http://127.0.0.1:8480"),
        ({"port": 80}, "http://127.0.0.1"),
        ({"certificate": "c.pem"}, "https://127.0.0.1:8480"),
        ({"certificate": "c.pem", "port": 443}, "https://127.0.0.1"),
        ({"certificate": "c.pem", "host": "::1", "port": 8504}, "https://[::1]:8504"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:8480"),
        ({"certificate": "c.pem", "base_url": "https://localhost:8480"}, "https://localhost:8480"),
    ],
)
def test_without_a_base_url_it_is_the_address_that_is_listened_on(given: dict[str, Any], url: str) -> None:
    settings = load_gateway_settings(environ={}, **given)
    assert settings.base_url == url
    assert settings.allowed_hosts == (url.partition("://")[2],)
    assert settings.is_https is url.startswith("https:")


@pytest.mark.parametrize(
    "given",
    [
        {"host": "192.168.1.5", "behind_proxy": True},
        {"host": "fd00::5", "behind_proxy": True},
        {"host": "gw.example"},
        {"host": "0.0.0.0", "behind_proxy": True},
        {"host": "::", "behind_proxy": True},
    ],
)
def test_a_gateway_for_others_without_a_certificate_is_told_to_say_what_they_see(
    given: dict[str, Any],
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_gateway_settings(environ={}, **given)
    assert (caught.value.code, "base_url" in caught.value.message) == ("config.missing-setting", True)
    found = load_gateway_settings(environ={}, base_url="https://gw.example", keys="keys", **given)
    assert found.is_https


def test_only_a_gateway_on_this_machine_signs_with_a_key_that_ends_with_it() -> None:
    for given in (
        {"base_url": "https://gw.example"},
        {"certificate": "c.pem", "host": "192.0.2.1"},
        {"certificate": "c.pem", "allowed_hosts": ["gw.example"]},
    ):
        with pytest.raises(ConfigError) as caught:
            load_gateway_settings(environ={}, **given)
        assert caught.value.code == "config.missing-setting"


PROVIDER = {"id": "works", "title": "The works", "issuer": "https://login.example", "client_id": "gateway"}


def test_workers_need_what_they_can_share() -> None:
    given: dict[str, Any] = {"workers": 2, "providers": [PROVIDER], "audit": "audit.jsonl"}
    needed = {
        "keys": "keys",
        "replays": "replays.sqlite",
        "audit_key": "planted",
        "store": "store.sqlite",
        "pseudonym_key": "planted",
        "secrets": "secrets",
    }
    for name, value in needed.items():
        with pytest.raises(ConfigError) as caught:
            load_gateway_settings(environ={}, **given)
        assert caught.value.message.startswith(f"{name} is missing")
        given[name] = value
    assert load_gateway_settings(environ={}, **given).workers == 2


def test_scopes_of_tokens_need_no_openid_and_those_of_a_sign_in_do(tmp_path: Path) -> None:
    settings = tmp_path / "gateway.toml"
    text = """
[[providers]]
id = "home"
issuer = "https://login.example"
client_id = "gateway"
scopes = ["openid", "email"]
[[programs]]
provider = "home"
scopes = ["call"]
[[authorization_servers]]
id = "bank"
issuer = "https://login.bank.example"
client_id = "gateway"
scopes = ["balance:read"]
"""
    settings.write_text(text, encoding="utf-8")
    found = load_gateway_settings(settings, environ={})
    assert (found.programs[0].scopes, found.authorization_servers[0].scopes) == (("call",), ("balance:read",))
    settings.write_text(text.replace('"openid", ', ""), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_gateway_settings(settings, environ={})
    assert caught.value.code == "config.bad-setting"
