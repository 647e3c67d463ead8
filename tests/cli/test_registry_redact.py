"""Personal data is removed on the command line and gone on the web; quotas on the command line."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app_support import registry_service

pytestmark = pytest.mark.xdist_group("registry-cli")

ADDRESS = "ann@example.net"
TEMPLATE = f"""\
Scheme name: {{name}}

Status: Provisional

Applications/protocols that use this scheme name: The zed editor opens files by such URIs.

Contact: Ann Example <{ADDRESS}>

Change controller: Example Foundation <board@example.net>

References: Example Foundation, "Files that the zed editor opens", https://example.net/zed
"""

Registry = Callable[..., Any]


@pytest.fixture
def own(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """`onym registry ARGS` over a fresh database with the administrator ann and the registrant eve."""
    monkeypatch.setenv("ONYM_REGISTRY_DB", str(tmp_path / "registry.db"))

    def call(*words: str, code: int = 0, stdin: str = "a passphrase of four words\n") -> Any:
        ran = run("registry", *words, stdin=stdin)
        assert ran.code == code, ran.out + ran.err
        return ran

    call("init", "--login", "ann", "--password-stdin", "--empty")
    call("user", "add", "eve", "--no-password")
    return call


def submit(own: Registry, folder: Path, name: str, *, code: int = 0, size: int = 0) -> Any:
    """Submit a template as eve, with a last field that has `size` more characters."""
    path = folder / f"{name}.txt"
    path.write_text(TEMPLATE.format(name=name) + "x" * size)
    return own("submit", "--account", "eve", "--anyway", "--json", str(path), code=code)


def test_personal_data_is_removed_with_a_proof_and_pages_show_it(own: Registry, tmp_path: Path) -> None:
    submit(own, tmp_path, "zed")
    own("decide", "--account", "ann", "uri-schemes-1", "check-complete")
    head = own("verify", "--json").json["head"]
    found = own("redact", "--dry-run", "--text", ADDRESS, "--reason", "ticket 7", "--json").json
    assert found == {"record": None, "removed": {"1": ["/fields/contact#0", "/template#6"]}}
    words = ("redact", "--yes", "--account", "ann", "--reason", "ticket 7", "--json")
    done = own(*words, stdin=ADDRESS + "\n").json
    assert (done["record"], done["removed"]) == (4, found["removed"])
    # a head that was saved before still holds
    own("verify", "--head", f"{head['number']}:{head['digest']}")
    assert ADDRESS not in own("show", "zed", "--json").out
    audited = own("audit", "--action", "registry.redact", "--json")
    assert audited.json["records"][0]["subject"] == "uri-schemes: ticket 7"
    assert ADDRESS not in audited.out
    with registry_service(str(tmp_path / "registry.db")) as service:
        for path in ("/r/uri-schemes/zed", "/api/v1/registries/uri-schemes/entries/zed"):
            with urllib.request.urlopen(service.url + path) as answer:
                shown = answer.read().decode()
            assert ADDRESS not in shown
            assert "[removed]" in shown


def test_who_may_not_redact_and_what_cannot_go_is_told(own: Registry, tmp_path: Path) -> None:
    submit(own, tmp_path, "zed")
    reason = ("--reason", "ticket 7", "--json")

    def code_of(*words: str, code: int = 11) -> str:
        found: str = own("redact", "--yes", *words, code=code).json["error"]["code"]
        return found

    assert code_of("--account", "eve", "--text", ADDRESS, *reason) == "registry.wrong-role"
    assert (
        code_of("--account", "ann", "--text", "nobody@example.net", *reason) == "registry.nothing-to-remove"
    )
    assert code_of("--account", "ann", "--text", "provisional", *reason) == "registry.not-removable"
    named = ("--reason", f"asked by {ADDRESS}", "--json")
    assert code_of("--account", "ann", "--text", ADDRESS, *named, code=2) == "usage.reason"


def test_the_quota_of_the_settings_holds_on_the_command_line(
    own: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "registry.toml"
    config.write_text("[quotas]\nopen_requests = 2\ndaily_bytes = 40000\n")
    monkeypatch.setenv("ONYM_REGISTRY_CONFIG", str(config))
    submit(own, tmp_path, "one")
    error = submit(own, tmp_path, "two", size=20_000, code=11).json["error"]
    assert (error["code"], error["field"]) == ("registry.quota", "data")
    submit(own, tmp_path, "three")
    error = submit(own, tmp_path, "four", code=11).json["error"]
    assert (error["code"], error["field"]) == ("registry.quota", "request")
    # the registry's own people have none
    path = tmp_path / "five.txt"
    path.write_text(TEMPLATE.format(name="five") + "x" * 30_000)
    own("submit", "--account", "ann", "--anyway", str(path))
