"""A company's own registries on the command line: define, register, change, export."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from company_support import COMPANY
from onym.cli._app import app

PASSWORD = "four unrelated words here\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in an empty folder that has the definition; return its result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONYM_REGISTRY_DB", "names.db")
    Path("company.toml").write_text(COMPANY, encoding="utf-8")
    Path("billing.txt").write_text("Service: billing\nOwning team: Payments\n", encoding="utf-8")

    def call(*args: str, code: int = 0, stdin: str = "") -> Any:
        result = CliRunner().invoke(app, ["registry", *args], input=stdin)
        assert result.exit_code == code, (args, result.output, result.stderr)
        return result

    return call


@pytest.fixture
def made(run: Any) -> Any:
    """The same, with a database."""
    run("init", "--definition", "company.toml", "--login", "ada", "--password-stdin", stdin=PASSWORD)
    return run


def test_init_with_a_definition_has_its_registries_and_no_shipped_data(made: Any) -> None:
    assert made("export", "--format", "csv").stdout == "Service,Owning team,Endpoint,Status\n"
    refused = made("show", "http", "-r", "uri-schemes", code=11)
    assert "registry.unknown-registry" in refused.stderr
    assert "services, topics" in refused.stderr


def test_the_next_command_of_a_template_keeps_the_database(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONYM_REGISTRY_DB")
    shown = made("template", "--db", "names.db").stderr
    command = next(line for line in shown.splitlines() if "onym registry submit" in line)
    words = command.partition("onym registry ")[2].replace("FILE", "billing.txt").split()
    assert "no errors" in made(*words).stdout
    note = made(*words).stderr
    assert "onym registry submit --db names.db billing.txt" in note


def test_a_companys_discussion_begins_with_the_command_that_is_named(run: Any) -> None:
    """No list of the IETF is named, and no field has the description of a field of Onym's own registries."""
    text = COMPANY.replace("discussion_days = 7", "discussion_days = 7\ndiscussion_required = true")
    text += '\n[[registries.fields]]\nid = "type"\nlabel = "Type"\n'
    Path("company.toml").write_text(text, encoding="utf-8")
    run("init", "--definition", "company.toml", "--login", "ada", "--password-stdin", stdin=PASSWORD)
    template = run("template", "-r", "topics")
    assert "float" not in template.stderr
    Path("topic.txt").write_text("Name: orders\nStatus: Permanent\nType: text\n", encoding="utf-8")
    for said in (
        run("submit", "--dry-run", "-r", "topics", "topic.txt"),
        run("submit", "-r", "topics", "topic.txt"),
        run("submit", "topics-1", code=11),
    ):
        assert "discussion" in said.stderr
        assert "ietf.org" not in said.stderr
    refused = " ".join(said.stderr.split())
    (command,) = set(re.findall(r"onym registry (decide topics-1 \w+)", refused))
    assert "list-review" in run(*command.split()).stdout
    assert "topics-1  submitted" in run("submit", "topics-1").stdout


def test_a_template_that_needs_a_database_says_that_none_is_set(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONYM_REGISTRY_DB")
    refused = made("submit", "--dry-run", "billing.txt", code=11).stderr
    assert "registry.no-template" in refused
    assert "--db" in refused


def test_a_name_goes_through_the_procedure_by_its_own_roles(made: Any) -> None:
    made("submit", "billing.txt")
    asked = made("status", "services-1").stdout
    assert "the naming office" in asked
    made("decide", "services-1", "check-complete", "--as", "registrar")
    refused = made("decide", "services-1", "approve", "--as", "board", "--reason", "x", code=11)
    assert "Only reviewer may do this." in refused.stderr
    made("decide", "services-1", "approve", "--as", "reviewer", "--reason", "It is clear.")
    shown = made("show", "billing").stdout
    assert "billing  service, registered" in shown
    assert "Payments" in shown
    assert "IANA" not in shown
    assert made("export", "--format", "csv").stdout.splitlines()[1] == "billing,Payments,,Registered"
    assert json.loads(made("verify", "--json").stdout)["ok"] is True


def test_a_simple_registry_has_no_pending_review_and_no_appeal(made: Any) -> None:
    refused = made("search", "--status", "pending-review", code=2).stderr
    assert "use one of registered, deprecated" in " ".join(refused.split())
    made("submit", "billing.txt")
    made("decide", "services-1", "reject-incomplete", "--as", "registrar", "--reason", "no owner")
    refused = made("decide", "services-1", "appeal", "--reason", "look again", code=11).stderr
    assert "the definition of this registry has no appeals" in " ".join(refused.split())
    assert "appeal" not in made("status", "services-1").stdout


def test_imported_names_without_a_status_are_registered_and_unknown_statuses_are_refused(made: Any) -> None:
    Path("names.csv").write_text("Service,Owning team\nledger,Accounting\n", encoding="utf-8")
    made("import", "names.csv", "-r", "services")
    assert "ledger  service, registered" in made("show", "ledger").stdout
    Path("names.csv").write_text("Service,Owning team,Status\nrating,Risk,Alive\n", encoding="utf-8")
    refused = made("import", "names.csv", "-r", "services", code=11).stderr
    assert "registry.unknown-status" in refused
    made("show", "rating", code=11)


def test_roles_are_given_in_the_registry_s_words(made: Any) -> None:
    made("user", "add", "rita", "--no-password", "--role", "reviewer", "-r", "services")
    added = json.loads(made("user", "list", "--json").stdout)["accounts"]
    assert [account["roles"] for account in added if account["login"] == "rita"] == [{"services": ["expert"]}]
    refused = made("user", "roles", "rita", "--add", "reviewer", "-r", "servces", code=11)
    assert "registry.unknown-registry" in refused.stderr


def test_the_template_has_the_definition_s_fields(made: Any) -> None:
    found = made("template")
    assert found.stdout.split() == ["Service:", "Owning", "team:", "Endpoint:"]
    assert "The URL of the service inside the network." in found.stderr


def test_a_definition_is_checked_without_a_database(run: Any) -> None:
    found = json.loads(run("define", "--dry-run", "company.toml", "--json").stdout)
    assert (found["done"], found["registries"]) == ("valid", ["services", "topics"])
    assert not Path("names.db").exists()
    text = COMPANY.replace("days = 5", "days = 0")
    Path("company.toml").write_text(text, encoding="utf-8")
    refused = run("define", "--dry-run", "company.toml", code=4)
    assert "company.toml:27: registries[0].policy.registered.days" in refused.stderr


def test_a_change_of_the_definition_is_in_force_at_once_and_recorded_once(made: Any) -> None:
    text = COMPANY.replace('label = "Owning team"', 'label = "Owner"')
    Path("company.toml").write_text(text, encoding="utf-8")
    made("define", "company.toml")
    made("define", "company.toml")
    assert made("export", "--format", "csv").stdout == "Service,Owner,Endpoint,Status\n"
    assert json.loads(made("verify", "--json").stdout)["records"] == 2


def test_a_definition_that_leaves_a_registry_out_is_refused(made: Any) -> None:
    text = COMPANY[: COMPANY.index('[[registries]]\nid = "topics"')]
    Path("company.toml").write_text(text, encoding="utf-8")
    assert "registry.bad-definition" in made("define", "company.toml", code=11).stderr


def test_a_correction_keeps_the_name_and_the_next_command_makes_it(made: Any) -> None:
    made("submit", "billing.txt")
    made("decide", "services-1", "reject-incomplete", "--as", "registrar", "--reason", "Which team?")
    assert "onym registry submit FILE --request services-1" in made("status", "services-1").stdout
    Path("other.txt").write_text("Service: payroll\nOwning team: Payments\n", encoding="utf-8")
    refused = made("submit", "other.txt", "--request", "services-1", code=11)
    assert "registry.other-name" in refused.stderr
    Path("billing.txt").write_text("Service: billing\nOwning team: Team Payments\n", encoding="utf-8")
    assert "submitted; " in made("submit", "billing.txt", "--request", "services-1").stderr
    made("decide", "services-1", "check-complete", "--as", "registrar")
    made("decide", "services-1", "ask-more-review", "--as", "reviewer", "--reason", "Which system?")
    assert "revised; " in made("submit", "billing.txt", "--request", "services-1").stderr


def test_a_request_that_was_declined_begins_again_as_a_new_one(made: Any) -> None:
    made("submit", "billing.txt")
    made("decide", "services-1", "check-complete", "--as", "registrar")
    made("decide", "services-1", "reject", "--as", "reviewer", "--reason", "Which system?")
    shown = made("status", "services-1").stdout
    assert "onym registry submit FILE (a new request)" in shown
    refused = made("submit", "billing.txt", "--request", "services-1", code=11).stderr
    assert "registry.not-allowed" in refused
    assert "new request" in refused
    assert "services-2" in made("submit", "billing.txt").stdout


def test_who_asks_for_the_status_deprecated_is_told_how_to_retire_an_entry(made: Any) -> None:
    asked = made("submit", "billing.txt", "--dry-run", "--status", "deprecated", code=1)
    assert "onym registry decide NAME retire" in asked.stdout
