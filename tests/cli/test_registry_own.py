"""`onym registry` with a registry of one's own: from `init` through requests and decisions to `verify`."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from onym.cli.commands.registry.admin import _resolve_base_url
from onym.registry.iana import load_builtin_snapshot
from onym.registry.iana import write_entries as write_registry
from onym.server.settings import Settings
from support import free_port, untraced

pytestmark = pytest.mark.xdist_group("registry-cli")

PASSWORD = "a passphrase of four words"
TEMPLATE = """\
Scheme name: {name}

Status: {status}

Applications/protocols that use this scheme name: The {name} editor opens files by such URIs.

Contact: Ann Example <ann@example.net>

Change controller: Example Foundation <board@example.net>

References: Example Foundation, "Files that the {name} editor opens", https://example.net/{name}
"""
OLD_FIELDS = """\
URI scheme syntax: see RFC 3986

URI scheme semantics: it names a file; to dereference it is to open that file

Encoding considerations: UTF-8, percent-encoded

Interoperability considerations: none known

Security considerations: whoever opens a file that a stranger names may run what it holds

"""
PARAMETER = """\
Parameter: min_p

Type: float

Description: the least probability of a token, relative to the likeliest

Contact: Ann Example <ann@example.net>

Change controller: Example Foundation <board@example.net>

Reference: https://example.net/min_p
"""
NAMESPACE = """\
Namespace: agents

Anchor: https://agents.example

Description: agents of the Example Foundation

Contact: Ann Example <ann@example.net>

Change controller: Example Foundation <board@example.net>

Expires: 2027-11-21
"""
MAIL = "https://mailarchive.ietf.org/arch/msg/uri-review/x"

Registry = Callable[..., Any]


@pytest.fixture
def own(run, tmp_path, monkeypatch) -> Registry:
    """`onym registry ARGS` over a fresh database with one account that holds every role."""
    monkeypatch.setenv("ONYM_REGISTRY_DB", str(tmp_path / "registry.db"))
    made = run("registry", "init", "--login", "ann", "--password-stdin", "--empty", stdin=PASSWORD + "\n")
    assert made.code == 0, made.err

    def call(*words: str, ok: bool = True, **options: Any) -> Any:
        ran = run("registry", *words, **options)
        assert (ran.code == 0) is ok, ran.out + ran.err
        return ran

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def make(text: str = TEMPLATE, *, name: str = "zed", status: str = "Provisional") -> str:
        path = tmp_path / f"{name}.txt"
        path.write_text(text.format(name=name, status=status), encoding="utf-8")
        return str(path)

    return make


# init -----------------------------------------------------------------------------------------------------


def test_init_seeds_the_three_registries_and_makes_an_account(run, tmp_path):
    db = str(tmp_path / "r.db")
    words = ("registry", "init", "--db", db, "--login", "ann", "--password-stdin", "--json")
    found = run(*words, stdin=PASSWORD + "\n").json
    assert found["account"] == "ann"
    for name, counts in found["registries"].items():
        assert counts == {"added": len(load_builtin_snapshot(name).entries), "same": 0}
    words = ("registry", "init", "--db", db, "--json")
    again = run(*words).json
    assert again["account"] is None
    assert {counts["added"] for counts in again["registries"].values()} == {0}
    # what was taken out stays out
    run("registry", "decide", "http", "override", "--set", "remove=yes", "--reason", "a trial", "--db", db)
    run(*words)
    assert run("registry", "show", "http", "--db", db).code == 11
    assert run("registry", "verify", "--db", db).code == 0


def test_a_weak_password_makes_no_account(run, tmp_path):
    words = ("registry", "init", "--db", str(tmp_path / "r.db"), "--password-stdin")
    ran = run(*words, stdin="short\n")
    assert ran.code == 11
    assert "12" in ran.err
    assert run(*words, "--json", stdin=PASSWORD).json["account"] == "admin"


def test_a_password_that_is_refused_leaves_no_half_of_a_registry(run, tmp_path):
    place = tmp_path / "registry.db"
    assert run("registry", "init", "--db", str(place), "--password-stdin", stdin="short").code == 11
    assert not place.exists()


def test_init_says_what_to_do_next(run, tmp_path):
    place = tmp_path / "registry.db"
    ran = run("registry", "init", "--empty", "--db", str(place), "--password-stdin", stdin=PASSWORD)
    assert f"onym registry serve --db {place}" in ran.err


def test_without_accounts_the_list_says_how_to_make_one(run, tmp_path):
    import asyncio

    from onym.registry.store import Store

    async def make() -> None:
        await (await Store.open(tmp_path / "bare.db", create=True)).close()

    asyncio.run(make())
    assert "onym registry user add" in run("registry", "user", "list", "--db", str(tmp_path / "bare.db")).err


def test_a_name_that_somebody_asked_for_leads_to_the_request(own, write):
    assert "onym registry status uri-schemes-1" in own("submit", write()).err
    assert "onym registry status uri-schemes-1" in own("show", "zed", ok=False).err


def test_a_request_may_be_looked_at_as_of_another_time(own, write):
    own("submit", write(status="Permanent"), "--archive", MAIL, "--at", "2026-10-01")
    own("decide", "uri-schemes-1", "check-complete", "--at", "2026-11-01")
    assert "until 2026-11-22 (21 days left)" in own("status", "uri-schemes-1", "--at", "2026-11-01").out
    assert "(1 day left)" in own("review", "--at", "2026-11-21").out


def test_without_a_terminal_a_password_must_be_piped(run, tmp_path):
    ran = run("registry", "init", "--db", str(tmp_path / "r.db"))
    assert ran.code == 2
    assert "--password-stdin" in ran.err


def test_at_a_terminal_the_password_is_asked_for_twice_and_never_shown(terminal, tmp_path):
    screen = terminal("registry", "init", "--empty", "--db", str(tmp_path / "r.db"), "--login", "ann")
    screen.read_until("password for ann: ")
    screen.type(PASSWORD + "\n")
    screen.read_until("again: ")
    screen.type(PASSWORD + "\n")
    assert screen.end() == 0
    assert PASSWORD not in screen.shown
    assert "ann" in screen.shown


def test_two_passwords_that_differ_are_refused(terminal, tmp_path):
    screen = terminal("registry", "init", "--empty", "--db", str(tmp_path / "r.db"), "--login", "ann")
    screen.read_until("password for ann: ")
    screen.type(PASSWORD + "\n")
    screen.read_until("again: ")
    screen.type("another one entirely\n")
    assert screen.end() == 2


def test_a_database_that_is_not_there_is_an_error_and_not_made(run, tmp_path):
    path = tmp_path / "none.db"
    ran = run("registry", "review", "--db", str(path))
    assert ran.code == 2
    assert not path.exists()


def test_the_password_of_a_database_url_is_never_shown(run):
    url = "postgresql+psycopg://onym:s3cret-of-the-url@127.0.0.1:9/none"
    for words in (("review",), ("show", "http"), ("review", "--json")):
        ran = run("registry", *words, "--db", url)
        assert ran.code == 11
        assert "s3cret-of-the-url" not in ran.out + ran.err


# a request, from template to entry ------------------------------------------------------------------------


def test_a_provisional_scheme_is_registered_at_once_under_rfc_7595(own, write):
    ran = own("submit", write())
    assert "uri-schemes-1  submitted" in ran.out
    assert "held by    IANA" in ran.out
    ran = own("decide", "uri-schemes-1", "check-complete", "--as", "iana")
    assert "rule I3 [RFC 7595 7.2 step 2]" in ran.out
    shown = own("show", "zed").out
    assert shown.startswith("zed  scheme, provisional\n")
    assert re.search(r"check-complete +ann \(iana\) +I3 +\[RFC 7595 7.2 step 2\]", shown)


def test_a_permanent_scheme_goes_through_list_review_and_the_expert(own, write):
    ran = own("submit", write(status="Permanent"), "--at", "2026-10-01")
    assert "uri-schemes-1  draft" in ran.out
    assert "uri-review@ietf.org" in ran.err
    assert "onym registry submit uri-schemes-1 --archive URL" in ran.err
    own("submit", "uri-schemes-1", "--draft", "--archive", MAIL, "--at", "2026-10-01")
    ran = own("submit", "uri-schemes-1", "--at", "2026-10-08")
    assert "7 of 28 days" in ran.err
    own("decide", "uri-schemes-1", "check-complete", "--as", "iana", "--at", "2026-10-09")
    assert "pending-review" in own("show", "zed").out
    waiting = own("review", "--for", "expert", "--json").json["requests"]
    assert [request["id"] for request in waiting] == ["uri-schemes-1"]
    refused = own("decide", "uri-schemes-1", "approve", "--as", "iana", ok=False)
    assert refused.code == 11
    assert "RFC 7595 7.2" in refused.err
    own("decide", "uri-schemes-1", "approve", "--as", "expert", "--reason", "well made", "--at", "2026-10-20")
    assert own("show", "zed").out.startswith("zed  scheme, permanent\n")
    status = own("status", "uri-schemes-1").out
    assert "outcome" in status
    assert "well made" in status
    assert MAIL in status
    assert own("review").out == ""


def test_silence_of_the_expert_registers_provisionally_under_rfc_4395(own, write):
    old = TEMPLATE.replace("Applications", OLD_FIELDS + "Applications")
    words = ("--procedure", "rfc4395", "--anyway", write(old), "--at", "2026-11-01", "--json")
    found = own("submit", *words).json
    assert found["request"]["profile"] == "rfc4395"
    ran = own("decide", "uri-schemes-1", "check-complete", "--as", "iana", "--at", "2026-11-02T09:00")
    assert "the Designated Expert, until 2026-11-16" in ran.out
    assert own("tick", "--at", "2026-11-16T08:59").out == ""
    assert "rule T1 [RFC 4395 5.2 step 6]" in own("tick", "--at", "2026-11-16T09:00").out
    assert own("show", "zed").out.startswith("zed  scheme, provisional\n")


def test_errors_of_the_checker_stop_a_submission_unless_told_otherwise(own, write):
    path = write(TEMPLATE.replace("Contact: Ann Example <ann@example.net>\n\n", ""))
    ran = own("submit", path, ok=False)
    assert ran.code == 1
    assert "nothing was submitted" in ran.err
    assert own("review", "--json").json["requests"] == []
    assert own("submit", "--anyway", path).code == 0
    own("decide", "uri-schemes-1", "check-complete", "--as", "iana", ok=False)
    own("decide", "uri-schemes-1", "reject-incomplete", "--as", "iana")
    assert "incomplete" in own("status", "uri-schemes-1").out
    found = own("submit", "--request", "uri-schemes-1", write(), "--json").json
    assert found["request"]["state"] == "submitted"


def test_a_draft_is_kept_revised_and_handed_in(own, write):
    own("submit", "--draft", write())
    assert own("status", "--json", "zed").json["requests"][0]["state"] == "draft"
    found = own(
        "submit", "--request", "uri-schemes-1", write(TEMPLATE.replace("files", "folders")), "--json"
    ).json
    assert found["request"]["state"] == "submitted"
    assert "folders" in found["request"]["fields"]["applications"]


def test_a_name_in_use_is_told_before_anything_is_asked(own, write):
    own("submit", write())
    own("decide", "uri-schemes-1", "check-complete")
    ran = own("submit", write(), ok=False)
    assert ran.code == 1
    assert "zed" in ran.out


def test_a_parameter_and_a_namespace_are_registered_the_same_way(own, write):
    for registry, text, name in (
        ("llm-parameters", PARAMETER, "min_p"),
        ("ai-namespaces", NAMESPACE, "agents"),
    ):
        own("submit", "-r", registry, write(text, name=name))
        own("decide", f"{registry}-1", "check-complete", "--as", "iana")
        own("decide", f"{registry}-1", "approve", "--as", "expert")
        assert own("show", name, "-r", registry).out.startswith(f"{name}  ")
    assert "2027-11-21" in own("show", "agents", "-r", "ai-namespaces").out
    assert (
        "agents"
        in json.loads(own("export", "-r", "ai-namespaces", "--format", "namespaces").out)["namespaces"]
    )


def test_time_brings_the_end_of_a_namespace(own, write):
    own("submit", "-r", "ai-namespaces", write(NAMESPACE, name="agents"))
    own("decide", "ai-namespaces-1", "check-complete")
    own("decide", "ai-namespaces-1", "approve")
    assert "nothing is due" in own("tick").err
    before = ("--at", "2027-11-01T00:00:00Z")
    assert "expiry-near  agents  due" in own("tick", "--dry-run", *before).out
    assert "rule T4" in own("tick", *before).out
    assert own("tick", *before, "--json").json["events"] == []
    later = ("--at", "2028-01-01T00:00:00Z")
    assert "namespace-expired  agents  due" in own("tick", "--dry-run", *later).out
    assert "rule N6" in own("tick", *later).out
    assert own("tick", *later, "--json").json["events"] == []
    ran = own(
        "decide",
        "agents",
        "renew",
        "-r",
        "ai-namespaces",
        "--set",
        "expires=2029-01-31",
        "--as",
        "iana",
        *later,
    )
    assert "active" in ran.out


def test_an_override_removes_an_entry_and_keeps_its_history(own, write):
    own("submit", write(name="conti"))
    own("decide", "uri-schemes-1", "check-complete")
    own("decide", "conti", "override", "--set", "remove=yes", ok=False)
    ran = own("decide", "conti", "override", "--set", "remove=yes", "--reason", "asked for by its author")
    assert "conti was removed" in ran.out
    assert own("show", "conti", ok=False).code == 11
    number = own("verify", "--json").json["records"]
    own("decide", "conti", "override", "--set", f"undoes={number}", "--reason", "it is used")
    assert own("show", "--json", "conti").json["entry"]["version"] == 2
    assert own("verify").code == 0


def test_members_of_an_event_may_be_json(own, write):
    own("submit", write())
    own("decide", "uri-schemes-1", "check-complete")
    own("decide", "zed", "designate", "--data", '{"add": ["ann"]}')
    (named,) = own("show", "--json", "zed").json["entry"]["designees"]
    assert named.startswith("user-")
    nobody = own("decide", "zed", "designate", "--data", '{"add": ["nobody"]}', ok=False)
    assert "accounts.unknown-account" in nobody.err
    own("decide", "zed", "designate", "--data", '{"remove": ["ann", "nobody"]}')
    assert "designees" not in own("show", "--json", "zed").json["entry"]
    for bad in ("[]", "{", "1", "[" * 10_000):
        assert own("decide", "zed", "designate", "--data", bad, ok=False).code == 2
    assert own("decide", "zed", "designate", "--set", "add", ok=False).code == 2


def test_a_stale_decision_is_refused(own, write):
    own("submit", write())
    ran = own("decide", "uri-schemes-1", "check-complete", "--if-version", "1", ok=False)
    assert ran.code == 11
    assert "registry.stale" in ran.err
    own("decide", "uri-schemes-1", "check-complete", "--if-version", "2")


def test_an_unknown_request_or_decision_names_the_way_on(own):
    assert "onym registry review" in own("status", "uri-schemes-9", ok=False).err
    assert "onym registry review" in own("decide", "uri-schemes-9", "approve", ok=False).err
    assert own("decide", "uri-schemes-9", "bless", ok=False).code == 2


# who acts -------------------------------------------------------------------------------------------------


def test_who_acts_must_be_said_where_there_are_several(own, write):
    own("user", "add", "ben", "--no-password")
    ran = own("submit", write(), ok=False)
    assert ran.code == 2
    assert "--account" in ran.err
    own("submit", "--account", "ben", write())
    ran = own("decide", "uri-schemes-1", "check-complete", "--account", "ben", ok=False)
    assert ran.code == 11
    assert own("decide", "uri-schemes-1", "withdraw", "--account", "ann", ok=False).code == 11
    own("decide", "uri-schemes-1", "withdraw", env={"ONYM_REGISTRY_ACCOUNT": "ben"})


def test_a_role_that_is_not_held_cannot_be_used(own, write):
    own("user", "add", "ben", "--no-password")
    own("submit", "--account", "ben", write())
    ran = own("decide", "uri-schemes-1", "check-complete", "--account", "ben", "--as", "iana", ok=False)
    assert "onym registry user roles ben --add iana -r uri-schemes" in ran.err
    own("user", "roles", "ben", "--add", "iana", "-r", "uri-schemes")
    own("decide", "uri-schemes-1", "check-complete", "--account", "ben", "--as", "iana")


def test_a_disabled_account_cannot_act(own, write):
    own("user", "add", "ben", "--no-password")
    assert "disabled" in own("user", "disable", "ben").out
    assert own("submit", "--account", "ben", write(), ok=False).code == 11
    own("user", "enable", "ben")
    own("submit", "--account", "ben", write())


def test_an_unknown_account_gets_near_ones(own, write):
    ran = own("submit", "--account", "anne", write(), ok=False)
    assert "ann?" in ran.err
    assert "user list" in own("user", "roles", "xyz", ok=False).err


def test_accounts_are_added_listed_and_given_roles(own):
    words = ("user", "add", "ben", "--name", "Ben Example", "--email", "ben@example.net", "--role", "expert")
    found = own(*words, "-r", "uri-schemes", "--password-stdin", "--json", stdin=PASSWORD).json
    assert found["roles"] == {"uri-schemes": ["expert"]}
    assert PASSWORD not in json.dumps(found)
    assert own("user", "add", "ben", "--no-password", ok=False).code == 11
    assert own(
        "user", "roles", "ben", "--add", "iana", "--remove", "expert", "-r", "uri-schemes", "--json"
    ).json["roles"] == {"uri-schemes": ["iana"]}
    listed = own("user", "list").out
    assert "Ben Example" in listed
    assert "everywhere" in listed


def test_a_new_password_ends_the_old_one(own, tmp_path):
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database, database:
        (before,) = database.execute("SELECT password_hash FROM accounts").fetchone()
    own("user", "password", "ann", "--password-stdin", stdin="another passphrase of words")
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database, database:
        (after,) = database.execute("SELECT password_hash FROM accounts").fetchone()
    assert before != after
    assert own("user", "password", "ann", "--password-stdin", ok=False, stdin="ann").code == 11


def test_a_token_is_shown_once_and_kept_as_a_digest(own, tmp_path):
    ran = own("user", "token", "ann", "--label", "ci", "--scope", "read", "--scope", "submit")
    token = ran.out.strip()
    assert token.startswith("onym_reg_")
    assert "only now" in ran.err
    assert token.encode() not in (tmp_path / "registry.db").read_bytes()
    (found,) = own("user", "token", "ann", "--json").json["tokens"]
    assert (found["label"], found["scopes"], found["revoked"]) == ("ci", ["read", "submit"], None)
    own("user", "token", "ann", "--yes", "--revoke", found["id"])
    assert "revoked" in own("user", "token", "ann").out
    assert own("user", "token", "ann", "--yes", "--revoke", "x", "--scope", "read", ok=False).code == 2
    assert "no tokens" in own("user", "add", "ben", "--no-password").err + own("user", "token", "ben").err


def test_a_token_is_ended_under_the_name_of_its_owner_alone(own):
    own("user", "add", "ben", "--no-password")
    own("user", "token", "ben", "--label", "his", "--scope", "read")
    (found,) = own("user", "token", "ben", "--json").json["tokens"]
    ran = own("user", "token", "ann", "--yes", "--revoke", found["id"], ok=False)
    assert "accounts.unknown-token" in ran.err
    assert own("user", "token", "ben", "--json").json["tokens"] == [found]


def test_every_account_is_listed_however_many_there_are(own, monkeypatch):
    from onym.accounts.store import Accounts

    for login in ("ben", "cat", "dan", "eva"):
        own("user", "add", login, "--no-password")
    whole = Accounts.list
    # a page of two, as if it were the thousand
    monkeypatch.setattr(Accounts, "list", lambda self, **given: whole(self, **{"limit": 2, **given}))
    found = own("user", "list", "--json").json["accounts"]
    assert [account["login"] for account in found] == ["ann", "ben", "cat", "dan", "eva"]


# files ----------------------------------------------------------------------------------------------------


def test_an_import_is_reported_and_repeated_without_effect(own, tmp_path):
    shipped = len(load_builtin_snapshot("uri-schemes").entries)
    with_facts = tmp_path / "facts.json"
    with_facts.write_text(
        write_registry(
            load_builtin_snapshot("uri-schemes").entries,
            format="json",
            registry="uri-schemes",
            updated=date(2026, 11, 21),
        ),
        encoding="utf-8",
    )
    found = own("import", str(with_facts), "--json").json["files"][0]
    assert (found["added"], found["same"]) == (shipped, 0)
    assert (
        f"0 would be added, 0 would be changed, {shipped} unchanged"
        in own("import", "--dry-run", str(with_facts)).out
    )
    assert own("import", str(with_facts), "--json").json["files"][0]["same"] == shipped
    assert own("search", "mail", "--json").json["entries"]


def test_what_the_file_lacks_stays_and_is_told(own, write, tmp_path):
    path = tmp_path / "registry.json"
    own("export", "--format", "json", "-o", str(path))
    own("submit", write())
    own("decide", "uri-schemes-1", "check-complete")
    ran = own("import", str(path))
    assert "stay as they are" in ran.err
    assert own("show", "zed").code == 0


def test_a_feed_tells_the_changes(own, write):
    own("submit", write())
    own("decide", "uri-schemes-1", "check-complete")
    feed = own("export", "--format", "atom").out
    assert feed.count("<entry>") == 1
    assert "zed: added, provisional" in feed
    assert own("export", "--format", "atom", "-r", "llm-parameters").out.count("<entry>") == 0


def test_the_ids_of_a_feed_are_the_operators_own(own, write, tmp_path, monkeypatch):
    own("submit", write())
    own("decide", "uri-schemes-1", "check-complete")
    nobody = own("export", "--format", "atom")
    assert "<id>tag:registry.invalid,2026:uri-schemes</id>" in nobody.out
    assert "--authority YOUR-DOMAIN,YEAR" in nobody.err
    named = own("export", "--format", "atom", "--authority", "example.org,2025")
    assert "<id>tag:example.org,2025:uri-schemes</id>" in named.out
    assert named.err == ""
    assert own("export", "--format", "atom", "--authority", "not one", ok=False).code == 2
    assert own("export", "--format", "xml", "--authority", "example.org,2025", ok=False).code == 2


def test_with_the_services_settings_a_feed_is_the_services(own, write, tmp_path):
    own("submit", write())
    own("decide", "uri-schemes-1", "check-complete")
    config = tmp_path / "registry.toml"
    config.write_text('base_url = "https://registry.example"\n', encoding="utf-8")
    feed = own("export", "--format", "atom", "--config", str(config))
    assert "<id>tag:registry.example,2026:uri-schemes</id>" in feed.out
    assert 'rel="self" href="https://registry.example/' in feed.out
    assert 'rel="alternate" href="https://registry.example/' in feed.out
    assert feed.err == ""
    other = own("export", "--format", "atom", "--config", str(config), "--authority", "example.org,2025").out
    assert "<id>tag:example.org,2025:uri-schemes</id>" in other
    assert "https://registry.example/" in other


def test_a_log_that_was_changed_is_found_out(own, write, tmp_path):
    own("submit", write())
    assert own("verify", "--json").json["ok"] is True
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE log SET record = replace(record, 'zed', 'zee')")
    ran = own("verify", ok=False)
    assert ran.code == 11
    assert "registry.broken-chain" in ran.err


def test_what_differs_from_the_log_is_made_anew_where_that_is_asked(own, write, tmp_path):
    own("submit", write())
    own("decide", "uri-schemes-1", "check-complete")
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database, database:
        database.execute("DELETE FROM entries")
    ran = own("verify", ok=False)
    assert "registry.projection-differs" in ran.err
    assert "onym registry verify --rebuild" in ran.err
    assert own("verify", "--rebuild").out.startswith("rebuilt  no errors")
    assert own("verify", "--json").json["done"] == "ok"
    assert own("show", "zed").out.startswith("zed  scheme, provisional")


def test_a_broken_log_is_not_rebuilt(own, write, tmp_path):
    own("submit", write())
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE log SET record = replace(record, 'zed', 'zee')")
    assert "registry.broken-chain" in own("verify", "--rebuild", ok=False).err
    assert own("status", "uri-schemes-1").out.startswith("uri-schemes-1  submitted")


@pytest.mark.parametrize("form", [(), ("--portable",)])
def test_a_backup_is_restored_into_an_empty_database(own, write, tmp_path, form):
    own("submit", write())
    backup, fresh = tmp_path / "backup", str(tmp_path / "fresh.db")
    own("backup", str(backup), *form)
    ran = own("restore", "--yes", str(backup), "--db", fresh)
    assert ran.out.startswith("restored  no errors")
    assert own("status", "uri-schemes-1", "--db", fresh).out == own("status", "uri-schemes-1").out
    assert "registry.not-empty" in own("restore", "--yes", str(backup), "--db", fresh, ok=False).err


def test_a_restore_says_where_to(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backup").write_text("", encoding="utf-8")
    ran = run("registry", "restore", "--yes", "backup")
    assert ran.code == 2
    assert "onym registry init --db registry.db" in ran.err


def test_a_backup_is_a_registry_of_its_own(own, write, tmp_path):
    own("submit", write())
    copy = tmp_path / "copy.db"
    assert own("backup", str(copy)).out == f"wrote {copy}\n"
    assert own("status", "uri-schemes-1", "--db", str(copy)).code == 0
    assert own("verify", "--db", str(copy), "--json").json["requests"] == 1
    assert own("backup", str(tmp_path / "other.db"), "--json").json["octets"] > 0


# other databases, the service -----------------------------------------------------------------------------


def test_postgresql_serves_as_well(run, write, postgres_url, monkeypatch):
    monkeypatch.setenv("ONYM_REGISTRY_DB", postgres_url)
    assert run("registry", "init", "--login", "ann", "--password-stdin", stdin=PASSWORD).code == 0
    assert run("registry", "submit", write()).code == 0
    assert run("registry", "decide", "uri-schemes-1", "check-complete").code == 0
    assert "provisional" in run("registry", "show", "zed").out
    assert run("registry", "verify").code == 0


@pytest.mark.parametrize("as_json", [True, False])
def test_the_service_tells_its_address_and_ends_at_ctrl_c(own, environment, tmp_path, as_json):
    port = free_port()
    words = ["registry", "serve", "--port", str(port), "--db", str(tmp_path / "registry.db")]
    process = subprocess.Popen(
        [sys.executable, "-m", "onym", *words, *(["--json"] if as_json else [])],
        env=untraced(environment),
        stdout=subprocess.PIPE if as_json else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if as_json else subprocess.PIPE,
        text=True,
    )
    said = process.stdout if as_json else process.stderr
    assert said is not None
    try:
        line = said.readline()
        url = f"http://127.0.0.1:{port}/"
        assert json.loads(line) == {"url": url} if as_json else f"serving: {url} " in line
        with urllib.request.urlopen(url, timeout=300) as reply:
            assert reply.status == 200
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=600)
    assert process.returncode in (0, 130), rest


def test_the_address_that_people_see_is_the_one_that_is_listened_on_unless_it_is_said():
    plain = Settings(host="::1", port=81)
    assert _resolve_base_url(plain).base_url == "http://[::1]:81"
    assert _resolve_base_url(plain).allowed_hosts == ("[::1]:81",)
    said = Settings(base_url="https://registry.example", port=81)
    assert _resolve_base_url(said) is said


def test_settings_that_cannot_be_used_are_told(own, tmp_path):
    file = tmp_path / "registry.toml"
    file.write_text("prot = 1\n")
    ran = own("serve", "--config", str(file), ok=False)
    assert ran.code == 4
    assert "config.unknown-setting" in ran.err
    assert "port" in ran.err


# small things ---------------------------------------------------------------------------------------------


def test_names_of_schemes_are_completed(run):
    ran = run(
        env={"_ONYM_COMPLETE": "bash_complete", "COMP_WORDS": "onym registry show mailt", "COMP_CWORD": "3"}
    )
    assert "mailto" in ran.out


def test_two_requests_about_one_name_are_both_shown(own, write):
    own("submit", "--draft", write())
    own("submit", "--draft", write())
    shown = own("status", "zed").out
    assert "uri-schemes-1" in shown
    assert "uri-schemes-2" in shown
    own("submit", "--request", "uri-schemes-1", "--draft", write())
    assert "onym registry submit uri-schemes-1" in own("submit", "--draft", "uri-schemes-1").err


def test_notes_and_drafts_of_an_entry_are_shown(own, write):
    own("submit", write())
    own("decide", "uri-schemes-1", "check-complete")
    own(
        "decide",
        "zed",
        "attach-security-note",
        "--set",
        "text=It opens files.",
        "--set",
        "reference=RFC 3986",
    )
    shown = own("show", "zed").out
    assert re.search(r"\nnotes\n.*security.*It opens files\. \[RFC 3986\]", shown)


def test_review_is_of_one_registry_where_that_is_asked(own, write):
    own("submit", write())
    assert "uri-schemes-1" in own("review", "-r", "uri-schemes").out
    assert own("review", "-r", "llm-parameters").out == ""
    assert own("review", "-r", "nowhere", ok=False).code == 11


def test_without_a_name_the_database_lies_here(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run("registry", "init", "--empty", "--password-stdin", stdin=PASSWORD)
    assert "onym-registry.sqlite" in ran.err
    assert (tmp_path / "onym-registry.sqlite").is_file()
    # and every command finds it there
    assert run("registry", "verify").code == 0
    assert "admin" in run("registry", "user", "list").out


def test_the_settings_of_the_service_name_the_database(run, tmp_path, monkeypatch):
    config = tmp_path / "registry.toml"
    config.write_text(f'database = "{tmp_path / "own.db"}"\n', encoding="utf-8")
    monkeypatch.setenv("ONYM_REGISTRY_CONFIG", str(config))
    assert run("registry", "init", "--empty", "--password-stdin", stdin=PASSWORD).code == 0
    assert (tmp_path / "own.db").is_file()
    assert run("registry", "verify").code == 0
    config.write_text("port = 8001\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert "registry.no-database" in run("registry", "verify").err


def test_tick_sends_the_mail_that_waits_where_that_is_asked(own, write, tmp_path, smtp):
    own("user", "add", "ida", "--role", "iana", "--email", "ida@example.net", "--no-password")
    own("submit", "--account", "ann", write())
    config = tmp_path / "registry.toml"
    config.write_text(
        f'[smtp]\nhost = "{smtp.host}"\nport = {smtp.port}\nsecurity = "none"\n'
        'sender = "registry@example.net"\n',
        encoding="utf-8",
    )
    ran = own("tick", "--send", "--config", str(config))
    assert "notices were processed" in ran.out
    (mail, *_) = smtp.wait_for(1, to="ida@example.net")
    assert "zed" in str(mail.message["Subject"])
    assert own("tick", "--send", "--config", str(config), "--json").json["sent"] == 0


def test_tick_without_a_mail_server_says_what_is_missing(own, tmp_path, monkeypatch):
    monkeypatch.delenv("ONYM_REGISTRY_CONFIG", raising=False)
    assert "[smtp]" in own("tick", "--send", ok=False).err
    assert own("tick", "--send", "--dry-run", ok=False).code == 2
    assert own("tick", "--json").json["sent"] is None


def test_an_import_counts_on_a_terminal(terminal, tmp_path, own):
    facts = tmp_path / "facts.csv"
    own("export", "--format", "csv", "-r", "llm-parameters", "-o", str(facts), env={"ONYM_REGISTRY_DB": ""})
    screen = terminal(
        "registry", "import", "-r", "llm-parameters", str(facts), "--db", str(tmp_path / "registry.db")
    )
    assert screen.end() == 0
    assert "12/12" in screen.shown


def test_a_long_piece_of_work_moves_on_a_terminal(terminal, tmp_path, own, write):
    own("submit", write())
    screen = terminal("registry", "verify", "--db", str(tmp_path / "registry.db"))
    assert screen.end() == 0
    assert "no errors" in screen.shown


def test_a_status_that_nobody_can_ask_for_is_refused(own, write):
    assert own("submit", "--status", "eternal", write(), ok=False).code == 1
    ran = own("submit", "--status", "eternal", "--anyway", write(), ok=False)
    assert ran.code == 11
    assert "registry.bad-status" in ran.err
    assert "Permanent, Provisional, Historical" in ran.err


def test_an_export_does_not_command_the_terminal_and_a_file_holds_all(own, terminal, tmp_path):
    own("submit", str(_hostile(tmp_path)), "--anyway")
    own("decide", "uri-schemes-1", "check-complete")
    own("export", "--format", "csv", "-o", str(tmp_path / "all.csv"))
    assert "\x1b]0;x" in (tmp_path / "all.csv").read_text(encoding="utf-8")
    screen = terminal("registry", "export", "--format", "csv", "--db", str(tmp_path / "registry.db"))
    assert screen.end() == 0
    assert "zed" in screen.shown
    assert "\x1b]0;x" not in screen.shown


def _hostile(folder: Path) -> Path:
    path = folder / "hostile.txt"
    text = TEMPLATE.format(name="zed", status="Provisional")
    path.write_text(text.replace("References: ", "References: \x1b]0;x\x07 "), encoding="utf-8")
    return path
