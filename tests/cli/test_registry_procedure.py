"""The procedure on the command line: completeness, upgrades, experts, appeals, reminders, list archives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .test_registry_own import PASSWORD, TEMPLATE

pytestmark = pytest.mark.xdist_group("registry-cli")

Registry = Callable[..., Any]
ONE = "uri-schemes-1"
MBOX = """\
From ann at example.net Mon Oct  5 09:00:00 2026
From: Ann <ann@example.net>
Subject: Review of uri-schemes-1
Date: Mon, 05 Oct 2026 09:00:00 +0000
Message-ID: <one@example.net>

Text.
"""


@pytest.fixture
def own(run, tmp_path, monkeypatch) -> Registry:
    """`onym registry ARGS` over a fresh database: ann has every role, eve and emil are experts."""
    monkeypatch.setenv("ONYM_REGISTRY_DB", str(tmp_path / "registry.db"))
    monkeypatch.setenv("ONYM_REGISTRY_ACCOUNT", "ann")

    def call(*words: str, ok: bool = True, **options: Any) -> Any:
        ran = run("registry", *words, **options)
        assert (ran.code == 0) is ok, ran.out + ran.err
        return ran

    call("init", "--login", "ann", "--password-stdin", "--empty", stdin=PASSWORD + "\n")
    for login in ("eve", "emil", "bo"):
        call("user", "add", login, "--no-password")
    for login in ("eve", "emil"):
        call("user", "roles", login, "--add", "expert", "-r", "uri-schemes")
    return call


@pytest.fixture
def submit(own: Registry, tmp_path: Path) -> Callable[..., None]:
    def make(*words: str, name: str = "zed", status: str = "Historical", text: str = TEMPLATE) -> None:
        path = tmp_path / f"{name}.txt"
        path.write_text(text.format(name=name, status=status), encoding="utf-8")
        own("submit", "--at", "2026-10-01", "--anyway", *words, str(path))

    return make


def decide(own: Registry, event: str, role: str, *words: str, at: str = "2026-10-02", **options: Any) -> Any:
    return own("decide", ONE, event, "--as", role, "--at", at, *words, **options)


def refused(own: Registry, event: str, role: str, *words: str, **options: Any) -> dict[str, Any]:
    ran = decide(own, event, role, "--json", *words, ok=False, **options)
    error: dict[str, Any] = ran.json["error"]
    return error


def show(own: Registry) -> dict[str, Any]:
    request: dict[str, Any] = own("status", ONE, "--json").json["requests"][0]
    return request


def test_an_incomplete_request_is_refused_with_what_is_missing_and_returned(own, submit):
    submit(text="Scheme name: {name}\n\nStatus: {status}\n\nContact: Ann <ann@example.net>\n")
    error = refused(own, "check-complete", "iana")
    assert error["code"] == "registry.incomplete"
    assert "change controller, references" in error["message"]
    assert f"decide {ONE} reject-incomplete" in error["hint"]
    assert show(own)["state"] == "submitted"
    decide(own, "reject-incomplete", "iana")
    assert "change controller" in show(own)["reason"]
    assert own("verify").code == 0


@pytest.mark.requirement("rfc7595-7.2-a")
def test_a_second_request_for_a_name_is_told_of_the_first_before_it_is_filed(own, submit, tmp_path):
    submit(status="Provisional")
    words = ("submit", "--json", "--at", "2026-10-02", str(tmp_path / "zed.txt"))

    def check(*more: str) -> list[str]:
        findings = own(*words, "--dry-run", *more).json["report"]["findings"]
        return [finding["message"] for finding in findings if finding["code"] == "name-requested"]

    assert [ONE in message for message in check()] == [True]
    assert check("--request", ONE) == []
    own(*words, "--account", "bo", "--as", "registrant")
    assert own("status", "uri-schemes-2", "--json").json["requests"][0]["state"] == "submitted"
    # the first one that is entered has the name
    decide(own, "check-complete", "iana")
    findings = own(*words, "--dry-run", ok=False).json["report"]["findings"]
    assert {finding["code"] for finding in findings if finding["check"] == "N2"} == {"name-taken"}


def test_anyone_asks_for_an_upgrade(own, submit, tmp_path):
    submit(status="Provisional")
    decide(own, "check-complete", "iana")
    path = tmp_path / "zed.txt"
    path.write_text(TEMPLATE.format(name="zed", status="Permanent"), encoding="utf-8")
    asked = (
        "submit", "--kind", "status-change", "--account", "bo", "--at", "2026-10-03", "--anyway",
        "--archive", "https://list.example/1", str(path),
    )  # fmt: skip
    own(*asked)
    for event, role in (("check-complete", "iana"), ("approve", "expert")):
        own("decide", "uri-schemes-2", event, "--as", role, "--at", "2026-11-12")
    assert own("show", "zed", "--json").json["entry"]["status"] == "permanent"


def test_an_upgrade_by_another_does_not_take_the_entry_over(own, submit, tmp_path):
    submit(status="Provisional")
    decide(own, "check-complete", "iana")
    path = tmp_path / "zed.txt"
    stolen = TEMPLATE.format(name="zed", status="Permanent").replace("board@example.net", "bo@example.org")
    path.write_text(stolen, encoding="utf-8")
    ran = own(
        "submit", "--json", "--kind", "status-change", "--account", "bo", "--at", "2026-10-03", "--anyway",
        str(path), ok=False,
    )  # fmt: skip
    assert (ran.json["error"]["code"], ran.json["error"]["field"]) == (
        "registry.bad-data",
        "change_controller",
    )


def test_experts_are_assigned_recused_and_appointed(own, submit):
    submit()
    decide(own, "check-complete", "iana")
    assert refused(own, "assign-expert", "iana", "--set", "expert=bo")["code"] == "registry.wrong-role"
    decide(own, "assign-expert", "iana", "--set", "expert=eve")
    assert "expert     eve" in own("status", ONE, "--at", "2026-10-02").out
    for login in ("eve", "emil", "ann"):
        decide(own, "recuse", "expert", "--account", login, "--reason", "an author")
    assert refused(own, "approve", "expert", "--account", "eve")["code"] == "registry.recused"
    decide(own, "appoint-expert", "iesg", "--set", "expert=bo", "--reason", "the others are authors")
    assert "bo (temporary)" in own("status", ONE, "--at", "2026-10-02").out
    decide(own, "approve", "registrant", "--account", "bo")
    assert show(own)["state"] == "approved"


def test_an_appeal_goes_to_the_iesg_and_the_iab(own, submit):
    submit()
    decide(own, "check-complete", "iana")
    decide(own, "reject", "expert", "--account", "eve", "--reason", "too general")
    assert refused(own, "appeal", "registrant")["code"] == "registry.missing-data"
    assert refused(own, "appeal", "registrant", "--reason", "x", at="2027-01-01")["code"] == (
        "registry.not-allowed"
    )
    decide(own, "appeal", "registrant", "--reason", "it is not")
    assert "iesg, pending: by ann, against rejected" in own("status", ONE, "--at", "2026-10-02").out
    decide(own, "dismiss-appeal", "iesg", "--reason", "it is")
    decide(own, "appeal-to-iab", "registrant", "--reason", "it is not, really")
    assert refused(own, "uphold-appeal", "iana", "--reason", "so it is not")["field"] == "reference"
    decide(own, "uphold-appeal", "iana", "--reason", "x", "--set", "reference=https://iab.example/1")
    assert show(own)["state"] == "submitted"
    assert own("verify").code == 0


def test_tick_reminds_and_then_escalates(own, submit):
    submit()
    decide(own, "check-complete", "iana")

    def tick(at: str) -> list[str]:
        ran = own("tick", "--json", "--at", at)
        return [f"{row['event']['kind']} {row['said']}" for row in ran.json["events"]]

    assert tick("2026-10-10") == []
    assert tick("2026-10-24") == ["remind done [docs/decisions/0054]"]
    assert tick("2026-10-24") == []
    assert tick("2026-11-01") == ["remind done [RFC 8126 5.3]"]
    assert own("verify").code == 0


def test_an_archive_is_linked_and_starts_the_list_review(own, submit, tmp_path):
    submit("--draft", status="Permanent")
    archive = tmp_path / "list.mbox"
    archive.write_text(MBOX, encoding="utf-8")
    bare = own("link-messages", "--json", "--at", "2026-10-10", str(archive)).json
    assert (bare["messages"], bare["skipped"], bare["requests"]) == (0, 1, [])
    words = ("link-messages", "--at", "2026-10-10", "--link", "https://list.example/{id}")
    dry = own(*words, "--json", "--dry-run", str(archive)).json
    assert [found["request"] for found in dry["requests"]] == [ONE]
    assert show(own)["state"] == "draft"
    assert own(*words, "--as", "registrant", str(archive), ok=False).code == 11
    done = own(*words, "--as", "iana", str(archive))
    assert "Review of uri-schemes-1" in done.out
    found = show(own)
    assert (found["state"], found["announced"][:10]) == ("list-review", "2026-10-05")
    assert found["archive"] == "https://list.example/one%40example.net"
    assert own(*words, "--json", str(archive)).json["requests"] == []
    own("submit", "--at", "2026-11-12", ONE)
    assert show(own)["state"] == "submitted"


@pytest.mark.parametrize(
    ("text", "code"),
    [("Dear IANA", "registry.bad-archive"), ("<!DOCTYPE a><feed/>", "registry.bad-archive")],
)
def test_what_is_no_archive_is_refused(own, tmp_path, text, code):
    archive = tmp_path / "list.txt"
    archive.write_text(text, encoding="utf-8")
    ran = own("link-messages", "--json", str(archive), ok=False)
    assert json.loads(ran.out)["error"]["code"] == code
