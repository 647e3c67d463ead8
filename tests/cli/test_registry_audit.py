"""The acts of an administrator on the command line are in the audit log, which a hash chain protects."""

from __future__ import annotations

import html
import os
import pwd
import sqlite3
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app_support import registry_service
from postgres_support import Postgres

pytestmark = pytest.mark.xdist_group("registry-cli")

PASSWORD = "a passphrase of four words"
SECOND = "another phrase of several words"
WHO = f"command line, {pwd.getpwuid(os.getuid()).pw_name}"
#: commands, and the records that they leave: action and subject
ACTS = {
    ("user", "add", "eve", "--no-password", "--role", "expert", "-r", "uri-schemes"): (
        "account.add",
        "eve: expert in uri-schemes",
    ),
    ("user", "roles", "eve", "--add", "iana", "--add", "expert", "-r", "uri-schemes"): (
        "account.roles",
        "eve: added iana in uri-schemes",
    ),
    ("user", "roles", "eve", "--remove", "expert", "-r", "uri-schemes"): (
        "account.roles",
        "eve: removed expert in uri-schemes",
    ),
    ("user", "email", "eve", "eve@registry.example"): ("account.email", "eve: changed"),
    ("user", "email", "eve", "--none"): ("account.email", "eve: removed"),
    ("user", "password", "eve", "--password-stdin"): ("account.password", "eve"),
    ("user", "disable", "eve"): ("account.disable", "eve"),
    ("user", "enable", "eve"): ("account.enable", "eve"),
}

Registry = Callable[..., Any]


@pytest.fixture(params=["sqlite", "postgresql"])
def own(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Registry:
    """`onym registry ARGS` over a fresh database with the account ann."""
    url = str(tmp_path / "registry.db")
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    monkeypatch.setenv("ONYM_REGISTRY_DB", url)
    monkeypatch.delenv("SUDO_USER", raising=False)

    def call(*words: str, code: int = 0, stdin: str = PASSWORD + "\n") -> Any:
        ran = run("registry", *words, stdin=stdin)
        assert ran.code == code, ran.out + ran.err
        return ran

    call("init", "--login", "ann", "--password-stdin", "--empty")
    return call


def test_each_act_is_recorded_with_the_user_who_did_it(own: Registry) -> None:
    for words in ACTS:
        own(*words, stdin=SECOND + "\n")
    records = own("audit", "--json").json["records"]
    first = ("account.add", "ann: expert, iana, iesg, registrant everywhere")
    assert [(record["action"], record["subject"]) for record in reversed(records)] == [first, *ACTS.values()]
    assert {(record["account"], record["outcome"]) for record in records} == {(WHO, "ok")}
    head = own("audit", "verify", "--json").json
    assert (head["ok"], head["records"]) == (True, len(ACTS) + 1)


def test_tokens_are_recorded_without_their_secret(own: Registry) -> None:
    made = own("user", "token", "ann", "--scope", "read", "--label", "ci", "--json").json
    identifier = made["tokens"][0]["id"]
    own("user", "token", "ann", "--yes", "--revoke", identifier)
    listed = own("audit", "--json")
    records = listed.json["records"]
    assert [record["action"] for record in records[:2]] == ["token.revoke", "token.add"]
    assert all(identifier in record["subject"] for record in records[:2])
    assert made["token"] not in listed.out
    assert PASSWORD not in listed.out


def test_an_act_that_fails_leaves_no_record_and_no_change(own: Registry) -> None:
    before = own("audit", "--json").out
    own("user", "roles", "ann", "--remove", "reader", code=2)
    own("user", "add", "ann", "--no-password", code=11)
    assert own("audit", "--json").out == before


def test_nothing_changes_if_the_audit_record_cannot_be_written(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "registry.db")

    def own(*words: str, code: int = 0) -> Any:
        ran = run("registry", *words, "--db", path, "--json", stdin=PASSWORD + "\n")
        assert ran.code == code, ran.out + ran.err
        return ran.json

    own("init", "--login", "ann", "--password-stdin", "--empty")
    own("user", "add", "eve", "--no-password")
    before = own("user", "list")
    database = sqlite3.connect(path)
    with database:
        database.execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END")
    database.close()
    own("user", "add", "nora", "--no-password", code=11)
    for words in ACTS:
        if words[:2] not in {("user", "add"), ("user", "enable")}:
            own(*words, code=2 if "--remove" in words else 11)
    assert own("user", "list") == before


def test_steps_of_a_procedure_name_the_account_and_the_user(own: Registry, tmp_path: Path) -> None:
    file = tmp_path / "registry.csv"
    headings = "URI Scheme,Template,Description,Status,Well-Known URI Support,Reference,Notes"
    file.write_text(f"{headings}\nzed,,A scheme,Provisional,-,[Z],\n")
    own("import", str(file))
    own("decide", "zed", "override", "--set", "status=historical", "--reason", "a test")
    records = own("audit", "--account", "ann", "--json").json["records"]
    assert [(record["action"], record["subject"], record["login"]) for record in records] == [
        ("registry.override", "zed", "ann"),
        ("registry.import", "uri-schemes: registry.csv", "ann"),
    ]
    assert {record["address"] for record in records} == {WHO}


def test_the_list_continues_where_it_ended_and_a_wrong_cursor_is_refused(own: Registry) -> None:
    own("user", "disable", "ann")
    first = own("audit", "--limit", "1", "--json").json
    second = own("audit", "--limit", "1", "--after", first["next"], "--json").json
    assert [part["records"][0]["action"] for part in (first, second)] == ["account.disable", "account.add"]
    assert own("audit", "--after", "x", "--json", code=11).json["error"]["code"] == "store.bad-cursor"


def test_a_changed_or_removed_record_is_found(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "registry.db")

    def own(*words: str, code: int = 0) -> Any:
        ran = run("registry", *words, "--db", path, "--json", stdin=PASSWORD + "\n")
        assert ran.code == code, ran.out + ran.err
        return ran.json

    def change(statement: str) -> None:
        database = sqlite3.connect(path)
        with database:
            database.execute(statement)
        database.close()

    own("init", "--password-stdin", "--empty")
    for _ in range(3):
        own("user", "disable", "admin")
    head = own("audit", "verify")
    for statement in (
        "UPDATE audit SET subject = 'eve' WHERE id = 2",
        "UPDATE audit SET subject = 'admin' WHERE id = 2; ",
        "DELETE FROM audit WHERE id = 3",
    ):
        change(statement)
        if "'admin'" in statement:
            own("audit", "verify")
            continue
        for command in (("audit", "verify"), ("verify",)):
            error = own(*command, code=11)["error"]
            assert error["code"] == "accounts.broken-audit"
    # what is missing at the end shows only against a saved head
    change("DELETE FROM audit_digests WHERE id >= 3")
    change("DELETE FROM audit WHERE id >= 3")
    assert own("audit", "verify")["records"] == 2
    saved = f"{head['number']}:{head['digest']}"
    assert own("audit", "verify", "--head", saved, code=11)["error"]["code"] == "accounts.broken-audit"


def test_records_of_a_release_without_a_chain_join_it_at_the_next_one(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "registry.db")
    run("registry", "init", "--db", path, "--password-stdin", "--empty", stdin=PASSWORD + "\n")
    database = sqlite3.connect(path)
    with database:
        database.executescript("DROP TABLE audit_digests; UPDATE alembic_version SET version_num = '0001'")
    database.close()
    assert run("registry", "audit", "--db", path).code == 11
    assert run("registry", "init", "--db", path).code == 0
    assert run("registry", "audit", "verify", "--db", path, "--json").json["number"] == 0
    run("registry", "user", "disable", "admin", "--db", path)
    assert run("registry", "audit", "verify", "--db", path, "--json").json["number"] == 2


def test_a_portable_backup_keeps_the_audit_log_and_older_ones_can_be_restored(
    own: Registry, tmp_path: Path
) -> None:
    own("backup", "--portable", str(tmp_path / "new.jsonl"))
    lines = (tmp_path / "new.jsonl").read_text().splitlines(keepends=True)
    old = [line for line in lines if '"table":"audit_digests"' not in line]
    assert len(old) == len(lines) - 1
    old[-1] = old[-1].replace('"audit_digests":1,', "")
    (tmp_path / "old.jsonl").write_text("".join(old))
    for name in ("new", "old"):
        target = str(tmp_path / f"{name}.db")
        own("restore", "--yes", str(tmp_path / f"{name}.jsonl"), "--db", target)
        records = own("audit", "--db", target, "--json").json["records"]
        assert [record["action"] for record in records] == ["registry.restore", "account.add"]
        assert own("audit", "verify", "--db", target, "--json").json["number"] == 2


def test_the_page_of_the_audit_log_shows_the_acts_of_the_command_line(
    run: Any, postgres: Postgres, tmp_path: Path
) -> None:
    with postgres.database() as name:
        url = postgres.url(name)
        run("registry", "init", "--login", "ann", "--password-stdin", "--empty", "--db", url, stdin=PASSWORD)
        run("registry", "user", "add", "eve", "--no-password", "--db", url)
        run("registry", "user", "roles", "eve", "--add", "expert", "--db", url)
        token = run(
            "registry", "user", "token", "ann", "--scope", "read", "--scope", "iana", "--json", "--db", url
        ).json["token"]
        with registry_service(url) as service:
            asked = urllib.request.Request(
                f"{service.url}/audit", headers={"authorization": f"Bearer {token}", "accept": "text/html"}
            )
            with urllib.request.urlopen(asked) as answer:
                shown = html.unescape(answer.read().decode())
    assert WHO in shown
    assert "account.roles" in shown
    assert "eve: added expert in every registry at once" in shown
    assert token not in shown
