"""`onym registry mirror`, `statistics`, `webhook` and `tick --send`: publish a registry of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from webhook_support import receive_webhooks, write_secret

pytestmark = pytest.mark.xdist_group("registry-cli")

HEADINGS = "URI Scheme,Template,Description,Status,Well-Known URI Support,Reference,Notes"


@pytest.fixture
def own(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`onym registry ARGS` over a fresh database with two schemes."""
    monkeypatch.setenv("ONYM_REGISTRY_DB", str(tmp_path / "registry.db"))

    def call(*words: str, code: int = 0, **options: object) -> Any:
        ran = run("registry", *words, **options)
        assert ran.code == code, ran.out + ran.err
        return ran

    call("init", "--login", "ann", "--password-stdin", "--empty", stdin="a passphrase of four words\n")
    table = tmp_path / "two.csv"
    table.write_text(
        f"{HEADINGS}\nkite,,Kites,Permanent,-,[RFC3986],\nowl+x,,Owls,Provisional,-,[RFC3987],\n"
    )
    call("import", str(table))
    return call


def test_a_mirror_is_written_to_a_folder_and_replaced(own, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    done = own("mirror", str(folder), "--json").json
    manifest = json.loads((folder / "mirror.json").read_bytes())
    assert manifest["number"] == done["head"]["number"] == 2
    assert done["files"] == len([path for path in folder.rglob("*") if path.is_file()]) - 1
    assert done["live"] is None
    assert (folder / "r/uri-schemes/owl+x/index.html").is_file()
    assert "Owls" in (folder / "data/uri-schemes.csv").read_text()
    # no search without a service
    assert "<form" not in (folder / "index.html").read_text()
    (folder / "stale.html").write_text("old")
    own("mirror", str(folder), "--live", "https://registry.example")
    assert not (folder / "stale.html").exists()
    assert 'action="https://registry.example/search"' in (folder / "index.html").read_text()


def test_the_settings_name_the_service_and_a_base_url_makes_links_absolute(own, tmp_path: Path) -> None:
    config = tmp_path / "registry.toml"
    config.write_text('base_url = "https://registry.example"\n')
    folder = tmp_path / "public"
    base = "https://cdn.example/names/"
    done = own("mirror", str(folder), "--config", str(config), "--base-url", base, "--json").json
    assert (done["live"], done["base_url"]) == ("https://registry.example", "https://cdn.example/names")
    home = (folder / "index.html").read_text()
    assert 'href="https://cdn.example/names/r/uri-schemes/index.html"' in home
    assert 'href="https://registry.example/submit"' in home
    feed = (folder / "changes.atom").read_text()
    assert "<id>tag:registry.example,2026:all</id>" in feed
    assert 'href="https://cdn.example/names/r/uri-schemes/owl%2Bx/index.html"' in feed


@pytest.mark.parametrize(
    "words", [("--base-url", "http://cdn.example/"), ("--live", "https://a.example/path")]
)
def test_a_wrong_address_is_a_mistake_of_the_command_line(
    own, tmp_path: Path, words: tuple[str, ...]
) -> None:
    ran = own("mirror", str(tmp_path / "public"), *words, "--json", code=2)
    assert ran.json["error"]["code"] == "usage.base-url"
    assert not (tmp_path / "public").exists()


def test_a_folder_with_other_files_is_not_replaced(own, tmp_path: Path) -> None:
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "thesis.txt").write_text("mine")
    ran = own("mirror", str(tmp_path / "public"), "--json", code=2)
    assert ran.json["error"]["code"] == "registry.not-a-mirror"
    assert (tmp_path / "public" / "thesis.txt").read_text() == "mine"


def test_statistics_are_those_of_the_api(own, tmp_path: Path) -> None:
    found = own("statistics", "--json").json
    assert found["number"] == 2
    assert found["registries"][0]["entries"] == {"permanent": 1, "provisional": 1}
    (month,) = found["registries"][0]["months"]
    assert (month["added"], month["opened"]) == (2, 0)
    own("mirror", str(tmp_path / "public"))
    published = json.loads((tmp_path / "public/data/statistics.json").read_bytes())
    assert published["registries"] == found["registries"]
    assert "provisional" in own("statistics").out


def test_a_webhook_is_tested_fed_by_tick_and_listed(own, tmp_path: Path) -> None:
    with receive_webhooks() as receiver:
        config = tmp_path / "registry.toml"
        config.write_text(
            f'[[webhooks]]\nname = "catalogue"\nurl = "{receiver.url}"\nnetwork = "local"\n'
            f'secret_file = "{write_secret(tmp_path)}"\n'
        )
        given = ("--config", str(config))
        assert own("webhook", "test", "catalogue", *given, "--json").json["ok"] is True
        (ping,) = receiver.take()
        assert ping.is_signed()
        assert ping.json["type"] == "registry.test"
        own("tick", "--send", *given)  # the webhook begins here
        own("decide", "kite", "override", "--account", "ann", "--as", "iana",
            "--set", "remove=yes", "--reason", "never used")  # fmt: skip
        assert own("tick", "--send", *given, "--json").json["sent"] == 1
        (change,) = receiver.take()
        assert change.is_signed()
        assert (change.json["data"]["name"], change.json["data"]["change"]) == ("kite", "removed")
        receiver.statuses += [500]
        failed = own("webhook", "test", "catalogue", *given, "--json", code=11).json
        assert failed["reason"] == "the receiver answered 500"
    listed = own("webhook", "list", *given)
    assert "1 sent, 0 waiting, 0 given up" in listed.out
    # the path may be a secret
    assert "/hooks" not in listed.out
    (row,) = own("webhook", "list", *given, "--json").json["webhooks"]
    assert (row["name"], row["sent"], row["origin"]) == ("catalogue", 1, receiver.url.rpartition("/hooks")[0])
    unknown = own("webhook", "test", "nobody", *given, "--json", code=2)
    assert unknown.json["error"]["code"] == "registry.unknown-webhook"
