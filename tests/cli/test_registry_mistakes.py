"""What the registry's commands say to somebody who slips: a code that is not 0, and the way on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onym.cli.commands.registry.admin import _resolve_base_url
from onym.errors import UsageError
from onym.server.settings import Settings

pytestmark = pytest.mark.xdist_group("registry-cli")

PASSWORD = "a passphrase of four words"
TEMPLATE = """\
Scheme name: zed

Status: {status}

Applications/protocols that use this scheme name: The zed editor opens files by such URIs.

Contact: Ann Example <ann@example.net>

Change controller: Example Foundation <board@example.net>

References: Example Foundation, "Files that the zed editor opens", https://example.net/zed
"""
HEADINGS = "URI Scheme,Template,Description,Status,Well-Known URI Support,Reference,Notes"
MAIL = "https://mailarchive.ietf.org/arch/msg/uri-review/x"

Registry = Callable[..., Any]


@pytest.fixture
def own(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """`onym registry ARGS` over a fresh database in which ann holds every role, and eve none."""
    monkeypatch.setenv("ONYM_REGISTRY_DB", str(tmp_path / "registry.db"))
    monkeypatch.setenv("ONYM_REGISTRY_ACCOUNT", "ann")

    def call(*words: str, code: int = 0, **options: Any) -> Any:
        ran = run("registry", *words, **options)
        assert ran.code == code, ran.out + ran.err
        return ran

    call("init", "--login", "ann", "--password-stdin", "--empty", stdin=PASSWORD + "\n")
    call("user", "add", "eve", "--no-password")
    return call


@pytest.fixture
def template(tmp_path: Path) -> Callable[[str], str]:
    def make(status: str = "Provisional") -> str:
        path = tmp_path / "zed.txt"
        path.write_text(TEMPLATE.format(status=status))
        return str(path)

    return make


def csv_of(tmp_path: Path, *rows: str) -> str:
    path = tmp_path / "registry.csv"
    path.write_text("\n".join((HEADINGS, *rows)) + "\n")
    return str(path)


def error_of(ran: Any) -> Any:
    return ran.json["error"]


# import and export ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", [("--account", "eve"), ("--as", "expert")])
def test_who_may_not_import_is_told_once_and_nothing_is_taken(own, tmp_path, who):
    file = csv_of(tmp_path, "aaa,,A,Permanent,-,[A],", "bbb,,B,Permanent,-,[B],")
    told = error_of(own("import", *who, "--json", file, code=11))
    assert (told["code"], told["rule"]) == ("registry.wrong-role", "IMPORT")
    assert "iana" in told["hint"]
    own("show", "aaa", code=11)


def test_an_import_with_rows_that_were_refused_takes_the_others_and_says_so_with_its_code(own, tmp_path):
    good = {"v": 1, "registry": "uri-schemes", "name": "aaa", "status": "permanent"}
    bad = {**good, "name": "b\0b"}
    file = tmp_path / "own.json"
    head = {"format": "onym-registry", "version": 1, "registry": "uri-schemes", "updated": "2026-11-01"}
    file.write_text(json.dumps({**head, "entries": [good, bad]}))
    ran = own("import", str(file), code=11)
    assert "1 row " in ran.err
    own("show", "aaa")
    assert own("import", "--json", str(file), code=11).json["files"][0]["refused"] == 1


@pytest.mark.parametrize("format_", ["csv", "csv-2022", "text", "xml", "json"])
def test_an_export_of_ones_own_registry_read_again_changes_nothing(own, template, tmp_path, format_):
    own("import", csv_of(tmp_path, "http,,Hypertext,Permanent,-,[RFC9110],a note of IANA's"))
    own("submit", template())
    own("decide", "uri-schemes-1", "check-complete")
    own("decide", "http", "attach-security-note", "--set", "text=plain text on the wire")
    own("decide", "zed", "attach-security-note", "--set", "text=opens what it is told to open")
    before = own("export", "--format", "json").out
    file = str(tmp_path / f"out.{format_}")
    own("export", "--format", format_, "-o", file)
    (foretold,) = own("import", "--dry-run", "--json", file).json["files"]
    (done,) = own("import", "--json", file).json["files"]
    for found in (foretold, done):
        assert (found["added"], found["changed"], found["same"]) == (0, 0, 2)
    assert own("export", "--format", "json").out == before


@pytest.mark.parametrize("format_", ["csv", "xml", "json", "text"])
def test_a_status_goes_with_the_format_that_has_parts(own, format_):
    ran = own("export", "--format", format_, "--status", "permanent", code=2)
    assert "csv-2015" in ran.err
    own("export", "--format", "csv-2015", "--status", "permanent")


# the service ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "registry.example"])
def test_a_service_that_others_reach_must_be_told_its_address(own, host):
    ran = own("serve", "--host", host, "--port", "8602", code=2)
    assert "usage.base-url" in ran.err
    assert "--base-url" in ran.err
    assert "serving" not in ran.err


def test_the_address_that_is_said_is_kept_and_loopback_has_its_own():
    said = Settings(host="0.0.0.0", port=8602, base_url="https://registry.example")
    assert _resolve_base_url(said) is said
    assert _resolve_base_url(Settings(host="127.0.0.2", port=8602)).base_url == "http://127.0.0.2:8602"
    with pytest.raises(UsageError, match=r"0\.0\.0\.0") as caught:
        _resolve_base_url(Settings(host="0.0.0.0", port=8602))
    assert caught.value.code == "usage.base-url"


def test_a_plain_address_that_others_see_is_refused(own):
    ran = own("serve", "--host", "0.0.0.0", "--base-url", "http://registry.example", code=4)
    assert "config.bad-setting" in ran.err
    assert "base_url: " in ran.err


# submission -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["notaurl", "http://mail.example/x", "https://", "https://a b/", "//x/y"])
def test_an_archive_is_an_https_address(own, template, url):
    ran = own("submit", "--archive", url, template("Permanent"), code=2)
    assert "--archive" in ran.err
    own("status", "uri-schemes-1", code=11)


def test_a_second_archive_is_refused_and_not_dropped(own, template):
    own("submit", "--draft", "--archive", MAIL, template("Permanent"))
    ran = own("submit", "--archive", f"{MAIL}2", "uri-schemes-1", "--json", code=11)
    assert error_of(ran)["code"] == "registry.not-allowed"
    shown = own("status", "uri-schemes-1").out
    assert MAIL in shown
    assert "list-review" in shown
    own("submit", "--archive", MAIL, "uri-schemes-1")


def test_a_draft_that_needs_list_review_is_not_handed_in_and_that_is_told(own, template):
    own("submit", template("Permanent"))
    told = error_of(own("submit", "uri-schemes-1", "--json", code=11))
    assert told["message"].startswith("nothing was submitted")
    assert "onym registry submit uri-schemes-1 --archive URL" in told["hint"]
    told = error_of(own("submit", "uri-schemes-1", "--account", "eve", "--json", code=11))
    assert told["code"] == "registry.wrong-role"
    assert "draft" in own("status", "uri-schemes-1").out


def test_time_does_not_go_back_within_a_request(own, template):
    own("submit", "--draft", template("Permanent"), "--at", "2026-09-29")
    own("submit", "uri-schemes-1", "--draft", "--archive", MAIL, "--at", "2026-10-01")
    told = error_of(own("submit", "uri-schemes-1", "--at", "2026-09-30", "--json", code=11))
    assert (told["code"], told["field"]) == ("registry.time-goes-back", "at")
    assert "2026-10-01" in told["hint"]
    own("submit", "uri-schemes-1", "--at", "2026-10-01")
    own("decide", "uri-schemes-1", "check-complete", "--at", "2020-01-01", code=11)
    own("decide", "uri-schemes-1", "check-complete", "--at", "2026-10-02")


# decisions ------------------------------------------------------------------------------------------------


def test_a_member_that_is_missing_is_told_as_the_option_that_brings_it(own, template, tmp_path):
    own("import", csv_of(tmp_path, "aaa,,A,Provisional,-,[A],"))
    told = error_of(own("decide", "aaa", "override", "--set", "remove=yes", "--json", code=11))
    assert told["hint"] == "add --reason TEXT"
    told = error_of(own("decide", "aaa", "attach-security-note", "--json", code=11))
    assert told["hint"] == "add --set text=TEXT"


def test_notes_are_shown_under_logins(own, tmp_path):
    own("import", csv_of(tmp_path, "aaa,,A,Provisional,-,[A],"))
    done = own("decide", "aaa", "attach-security-note", "--set", "text=beware")
    for out in (done.out, own("show", "aaa").out):
        assert "user-" not in out
        assert "security  ann  beware" in out


# accounts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("--login", "ada"), ("--email", "ada@example.net"), ("--password-stdin",), ("--login", "ann")]
)
def test_init_makes_no_account_where_there_are_some_and_says_so(own, words):
    ran = own("init", *words, stdin=PASSWORD, code=2)
    assert "onym registry user add" in ran.err
    own("init", "--empty")
    assert "ada" not in own("user", "list").out


def test_a_first_account_without_an_address_is_told_that_no_notice_reaches_it(run, tmp_path):
    words = ("registry", "init", "--empty", "--password-stdin", "--db")
    ran = run(*words, str(tmp_path / "a.db"), stdin=PASSWORD)
    assert "onym registry user email admin ADDRESS" in ran.err
    ran = run(*words, str(tmp_path / "b.db"), "--email", "ada@example.net", stdin=PASSWORD)
    assert "user email" not in ran.err


def test_an_address_is_set_and_taken_away(own):
    assert "eve@example.net" in own("user", "email", "eve", "eve@example.net").out
    assert own("user", "email", "eve", "new@example.net", "--json").json["email"] == "new@example.net"
    own("user", "email", "eve", "notmail", code=11)
    own("user", "email", "nobody", "x@example.net", code=11)
    own("user", "email", "eve", code=2)
    own("user", "email", "eve", "x@example.net", "--none", code=2)
    assert own("user", "email", "eve", "--none", "--json").json["email"] is None


def test_a_role_that_is_not_held_there_cannot_be_taken_away(own):
    own("user", "roles", "eve", "--add", "expert", "-r", "uri-schemes")
    ran = own("user", "roles", "eve", "--remove", "expert", code=2)
    assert "onym registry user roles eve --remove expert -r uri-schemes" in ran.err
    ran = own("user", "roles", "eve", "--remove", "iana", "--add", "iesg", code=2)
    assert "onym registry user roles eve shows" in ran.err
    assert "iesg" not in own("user", "roles", "eve").out
    own("user", "roles", "eve", "--remove", "expert", "-r", "uri-schemes")


# databases ------------------------------------------------------------------------------------------------


def test_a_database_that_is_not_there_is_named_with_the_command_that_makes_it(run, tmp_path):
    file = str(tmp_path / "nofile.sqlite")
    ran = run("registry", "show", "http", "--db", file, "--json")
    told = error_of(ran)
    assert (ran.code, told["code"]) == (2, "registry.no-database")
    assert file in told["message"]
    assert told["next"] == f"onym registry init --db {file}"


def test_a_database_of_somebody_else_is_told_as_that(own, tmp_path, monkeypatch):
    file = tmp_path / "registry.db"
    # who runs this may be root, whom no mode stops
    monkeypatch.setattr("onym.store.sql.os.access", lambda *_: False)
    told = error_of(own("show", "zed", "--json", code=11))
    assert told["code"] == "registry.io"
    assert str(file) in told["message"]
    assert "mode of the file" in told["hint"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kty": "oct", "k": "AAAA"}', "[" * 100_000])
def test_a_file_that_holds_no_signing_key_is_a_mistake_of_the_line(run, tmp_path, text):
    file = tmp_path / "root.jwk"
    file.write_text(text)
    ran = run("registry", "export", "-r", "ai-namespaces", "--format", "namespaces", "--sign-key", str(file))
    assert (ran.code, ran.out) == (2, "")
    assert str(file) in ran.err
