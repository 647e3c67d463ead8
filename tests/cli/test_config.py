from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from onym.cli.commands.config import TEMPLATE
from onym.llm.config import Config

KEY = "sk-proj-0123456789abcdefghijABCDEFGHIJ"

FULL = f"""
[endpoints]
fast = "llm://team:{KEY}@api.openai.com/gpt-5.5#review"
lost = "llm://h/llama3:8b"

[profiles.review]
temp = 0.2

[policy]
preset = "trusted"
allow_hosts = ["api.openai.com"]

[providers.mycorp]
hosts = ["llm.mycorp.example"]
key_variables = ["MYCORP_KEY"]
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A configuration file with this text."""

    def write(text):
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        monkeypatch.setenv("ONYM_CONFIG", str(path))
        return path

    return write


def test_path_says_where_whether_or_not_it_is_there(run, tmp_path):
    env = {"ONYM_CONFIG": str(tmp_path / "mine.toml")}
    assert run("config", "path", env=env).out == f"{tmp_path / 'mine.toml'}\n"
    assert run("config", "path", "--json", env=env).json["exists"] is False


def test_show_masks_keys(run, written):
    written(FULL)
    for flags in ((), ("--json",)):
        ran = run("config", "show", *flags)
        assert ran.code == 0
        assert "0123456789" not in ran.out + ran.err
        assert "llm://team:***@api.openai.com/gpt-5.5#review" in ran.out
        assert "llm.mycorp.example" in ran.out
        assert "api.openai.com" in ran.out
        assert "0.2" in ran.out


def test_show_as_json_holds_every_table(run, written):
    path = written(FULL)
    shown = run("config", "show", "--json").json
    assert shown["path"] == str(path)
    assert shown["profiles"] == {"review": {"temp": 0.2}}
    assert shown["policy"]["allow_hosts"] == ["api.openai.com"]
    assert [row["name"] for row in shown["providers"]] == ["mycorp"]


def test_show_of_nothing_says_how_to_begin(run):
    ran = run("config", "show")
    assert ran.code == 0
    assert "onym config init" in ran.out


def test_check_finds_what_is_wrong_and_shows_no_key(run, written):
    written(FULL)
    ran = run("config", "check")
    assert ran.code == 1
    assert "error: endpoints.lost: " in ran.out
    assert "warning: endpoints.fast: " in ran.out
    assert "0123456789" not in ran.out
    assert run("config", "check", "--json").json["ok"] is False


def test_check_of_a_good_file_says_ok(run, written):
    path = written('[endpoints]\nfast = "llm://api.openai.com/gpt-5.5"\n')
    ran = run("config", "check")
    assert (ran.code, ran.out) == (0, f"ok  {path}\n")
    assert run("config", "check", "--json").json == {"path": str(path), "ok": True, "findings": []}


def test_check_of_no_file_is_fine(run):
    assert run("config", "check").out == "ok  no configuration file\n"


def test_a_file_that_cannot_be_read_is_exit_code_4_with_its_line(run, written):
    path = written("[endpoints]\nfast = \n")
    ran = run("config", "check")
    assert ran.code == 4
    assert str(path) in ran.err
    assert "line 2" in ran.err


def test_init_writes_a_file_that_is_valid_and_private(run, tmp_path, monkeypatch):
    path = tmp_path / "new" / "config.toml"
    monkeypatch.setenv("ONYM_CONFIG", str(path))
    assert run("config", "init").out == f"wrote {path}\n"
    assert "no endpoints" in run("config", "show").err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Config.load().check() == ()
    again = run("config", "init", "--json")
    assert again.code == 4
    assert path.read_text(encoding="utf-8").partition("\n")[2] == TEMPLATE


@pytest.mark.parametrize("command", ["init", "path"])
def test_a_folder_that_is_a_file_ends_init_and_not_path(run, tmp_path, monkeypatch, command):
    (tmp_path / "file").write_text("", encoding="utf-8")
    path = tmp_path / "file" / "config.toml"
    monkeypatch.setenv("ONYM_CONFIG", str(path))
    ran = run("config", command)
    if command == "init":
        assert ran.code == 2
        assert "usage.output-file" in ran.err
    else:
        assert (ran.code, ran.out) == (0, f"{path}\n")


def test_a_byte_order_mark_is_not_part_of_the_file(run, tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    path.write_bytes(b'\xef\xbb\xbf[endpoints]\r\nfast = "llm://openai/gpt-5.5"\r\n')
    monkeypatch.setenv("ONYM_CONFIG", str(path))
    assert run("config", "check").code == 0
    assert run("parse", "--json", "fast").json["host"] == "openai"


def test_what_the_template_suggests_is_right_too(run, written):
    suggestions = [
        line.removeprefix("# ")
        for line in TEMPLATE.splitlines()
        if not line.startswith("#") or "=" in line.partition("#")[2].split()[1:2] or line.startswith("# [")
    ]
    tables = {"endpoints", "network", "profiles", "policy", "providers"}
    assert set(tomllib.loads("\n".join(suggestions))) == tables
    # the files of certificates are not on this computer, and `config check` would say so
    written("\n".join(line for line in suggestions if ".pem" not in line))
    ran = run("config", "check")
    assert (ran.code, ran.err) == (0, "")


def test_init_names_the_schema_that_editors_use_and_schema_prints_it(run, tmp_path, monkeypatch):
    path = tmp_path / "config.toml"
    monkeypatch.setenv("ONYM_CONFIG", str(path))
    assert run("config", "init").code == 0
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("#:schema file://")
    schema = json.loads(Path(url2pathname(urlsplit(first.split()[1]).path)).read_text(encoding="utf-8"))
    assert json.loads(run("config", "schema").out) == schema
    assert run("config", "schema", "--json").json["schema"] == schema
    assert run("config", "schema", "gateway").out.startswith("{")
    assert run("config", "check").code == 0
