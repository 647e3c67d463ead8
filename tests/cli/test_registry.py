"""`onym registry` without a database: the facts that Onym ships, empty templates, checks, exports."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from onym.cli.commands.registry.lookup import rank_entries
from onym.cli.commands.registry.procedure import _ROUNDS, GUIDANCE, _run_due_timers
from onym.errors import RefusalError
from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import Decision, Event, EventKind, Status
from onym.registry.registries import PROFILES, REGISTRIES
from onym.uri import _registered

GOOD = """\
Scheme name: zed

Status: Provisional

Applications/protocols that use this scheme name: The Zed editor opens files by such URIs.

Contact: Ann Example <ann@example.net>

Change controller: Example Foundation <board@example.net>

References: RFC 3986, section 3.1.
"""


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "zed.txt"
    path.write_text(GOOD, encoding="utf-8")
    return str(path)


# show and search ------------------------------------------------------------------------------------------


def test_a_scheme_is_shown_from_the_shipped_facts_and_their_date_is_told(run):
    ran = run("registry", "show", "http")
    assert ran.code == 0
    assert ran.out.startswith("http  scheme, permanent\n")
    assert "Hypertext Transfer Protocol" in ran.out
    facts = load_builtin_snapshot("uri-schemes")
    assert facts.vintage in ran.err
    assert facts.source[:40] in ran.err


def test_a_name_is_found_in_any_case(run):
    assert run("registry", "show", "HTTP").out == run("registry", "show", "http").out


def test_json_holds_the_entry_and_where_the_facts_are_from(run):
    found = run("registry", "show", "--json", "http").json
    assert found["entry"]["name"] == "http"
    assert found["entry"]["status"] == "permanent"
    assert found["entry"]["fields"]["description"] == "Hypertext Transfer Protocol"
    assert found["facts"] == {
        "source": load_builtin_snapshot("uri-schemes").source,
        "vintage": load_builtin_snapshot("uri-schemes").vintage,
    }


def test_the_parameters_of_llm_uris_are_a_registry_too(run):
    ran = run("registry", "show", "temp", "-r", "llm-parameters")
    assert ran.out.startswith("temp  parameter, registered\n")
    assert run("registry", "show", "TEMP", "-r", "llm-parameters").code == 11


def test_an_unknown_name_gets_near_ones(run):
    ran = run("registry", "show", "htttp")
    assert ran.code == 11
    assert re.search(r"similar names are .*http", ran.err)
    error = run("registry", "show", "--json", "htttp").json["error"]
    assert (error["code"], error["exit_code"], error["field"]) == ("registry.unknown-entry", 11, "name")


def test_a_free_name_is_told_how_to_get_one(run):
    assert "onym registry template" in run("registry", "show", "qqqqzzzzqqqq").err


def test_a_uri_stands_for_its_scheme(run):
    assert run("registry", "show", "HTTPS://example.com/a").out.startswith("https  scheme, permanent")
    assert run("registry", "show", "mailto:").out.startswith("mailto  scheme")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("temp",), "onym registry show temp -r llm-parameters"),
        (("http", "-r", "llm-parameters"), "onym registry show http -r uri-schemes"),
        (("a b",), "the name of a scheme must match this rule"),
        (("x", "-r", "ai-namespaces"), "onym registry template -r ai-namespaces"),
    ],
)
def test_a_name_that_is_not_there_leads_on(run, words, hint):
    ran = run("registry", "show", *words)
    assert ran.code == 11
    assert hint in " ".join(ran.err.split())


def test_a_status_of_another_registry_is_refused_with_those_that_there_are(run):
    ran = run("registry", "search", "--status", "active")
    assert ran.code == 2
    assert "permanent, provisional, historical" in ran.err


@pytest.mark.parametrize(
    ("status", "profile", "said"),
    [
        ("Provisional", "rfc7595", None),
        ("Permanent", "rfc7595", "[RFC 7595 7.2 item 3]"),
    ],
)
def test_what_was_checked_is_told_where_it_goes_now(run, good, status, profile, said):
    text = Path(good).read_text(encoding="utf-8").replace("Provisional", status)
    Path(good).write_text(text.replace("RFC 3986, section 3.1.", "https://example.net/zed"), encoding="utf-8")
    ran = run("registry", "submit", "--dry-run", "--procedure", profile, good)
    assert ran.code == 0, ran.out
    assert "iana@iana.org" in ran.err
    assert ("list review" in ran.err) is (said is not None)
    assert said is None or said in ran.err


def test_a_hostile_name_does_not_reach_the_terminal(run):
    ran = run("registry", "show", "\x1b]0;x\x07")
    assert ran.code == 11
    assert "\x1b" not in ran.err + ran.out


def test_search_ranks_names_before_texts(run):
    found = run("registry", "search", "--json", "http").json["entries"]
    names = [entry["name"] for entry in found]
    assert names[0] == "http"
    assert names[1].startswith("http")


@pytest.mark.parametrize("typed", ["htpp", "htp", "hhttp", "htxp"])
def test_search_finds_a_name_that_is_one_letter_away(run, typed):
    found = run("registry", "search", "--json", typed).json["entries"]
    assert "http" in [entry["name"] for entry in found]
    assert not run("registry", "search", "--json", "--status", "historical", typed).json["entries"]


def test_search_lists_all_of_a_status_up_to_the_limit(run):
    ran = run("registry", "search", "--status", "historical", "--limit", "3")
    assert len(ran.out.splitlines()) == 3
    assert "--limit" in ran.err
    assert set(re.findall(r"  (permanent|provisional|historical)  ", ran.out)) == {"historical"}


def test_search_says_when_nothing_fits(run):
    ran = run("registry", "search", "qqqqzzzzqqqq")
    assert (ran.code, ran.out) == (0, "")
    assert "no entry matches" in ran.err


def test_every_shipped_entry_is_found_by_its_own_name():
    entries = load_builtin_snapshot("uri-schemes").entries
    assert all(rank_entries(entries, entry.name, None)[0] is entry for entry in entries)
    assert {entry.status for entry in rank_entries(entries, "", Status.PERMANENT)} == {Status.PERMANENT}


# template -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_an_empty_template_has_every_label_and_reads_back(run, profile):
    ran = run("registry", "template", "--procedure", profile)
    assert ran.code == 0
    labels = [line.rpartition(":")[0].lower() for line in ran.out.splitlines() if line]
    assert labels == [field.label.lower() for field in PROFILES[profile].fields]
    assert all(field.guideline in ran.err for field in PROFILES[profile].fields)
    assert all(field.id in GUIDANCE for field in PROFILES[profile].fields if field.id != "name")
    # the rule for names is the registry's own
    row = next(registry for registry in REGISTRIES.values() if profile in registry.profiles)
    assert row.name_rule in ran.err


@pytest.mark.parametrize("registry", REGISTRIES)
def test_a_registry_has_its_own_template(run, registry):
    found = run("registry", "template", "-r", registry, "--json").json
    assert found["profile"] == REGISTRIES[registry].default_profile
    assert {field["id"] for field in found["fields"]} >= {"name", "contact", "change_controller"}


# submit --dry-run -----------------------------------------------------------------------------------------


def test_a_good_template_is_checked_without_a_database(run, good):
    ran = run("registry", "submit", "--dry-run", good)
    assert ran.code == 0
    assert "no errors" in ran.out


def test_an_empty_template_says_what_is_missing(run, tmp_path):
    path = tmp_path / "empty.txt"
    path.write_text(run("registry", "template").out)
    ran = run("registry", "submit", "--dry-run", str(path))
    assert ran.code == 1
    assert "change controller" in ran.out.lower()
    found = run("registry", "submit", "--dry-run", "--json", str(path)).json
    assert found["report"]["ok"] is False
    assert found["request"] is None
    assert {finding["clause"] for finding in found["report"]["findings"] if finding["level"] == "error"}


def test_the_template_may_come_through_a_pipe(run):
    assert run("registry", "submit", "--dry-run", "-", stdin=GOOD).code == 0


def test_a_file_that_is_not_there_is_a_usage_error(run):
    ran = run("registry", "submit", "--dry-run", "nowhere.txt")
    assert ran.code == 2
    assert "nowhere.txt" in ran.err


def test_a_file_that_is_no_text_is_refused_with_the_place(run, tmp_path):
    path = tmp_path / "octets"
    path.write_bytes(b"Scheme name: \xff\xfe")
    ran = run("registry", "submit", "--dry-run", str(path))
    assert ran.code == 2
    assert "byte 13" in ran.err


def test_an_enormous_file_is_not_read(run, tmp_path):
    path = tmp_path / "enormous"
    with path.open("wb") as file:
        file.truncate(4 * 1024 * 1024 + 1)
    assert "usage.input-file" in run("registry", "submit", "--dry-run", str(path)).err


def test_of_several_templates_one_must_be_named(run, tmp_path):
    path = tmp_path / "two.txt"
    path.write_text(GOOD + "\n\n\n" + GOOD.replace("zed", "zee"))
    ran = run("registry", "submit", "--dry-run", str(path))
    assert ran.code == 11
    assert "zed, zee" in ran.err
    assert run("registry", "submit", "--dry-run", "--name", "zee", str(path)).code == 0
    assert run("registry", "submit", "--dry-run", "--name", "xyz", str(path)).code == 11


def test_the_template_that_is_named_is_checked_alone(run, tmp_path):
    path = tmp_path / "two.txt"
    bad = "Scheme name: yot\nStatus: eternal\nContact: nobody\n"
    path.write_text(f"{GOOD}\n{'-' * 20}\n\n{bad}", encoding="utf-8")
    assert run("registry", "submit", "--dry-run", "--name", "yot", str(path)).code == 1
    assert run("registry", "submit", "--dry-run", "--name", "zed", str(path)).code == 0
    other = run("registry", "submit", "--dry-run", "--name", "xor", str(path))
    assert other.code == 11
    assert "registry.no-template" in other.err
    assert "yot, zed" in other.err


def test_a_profile_of_another_registry_is_refused(run, good):
    ran = run("registry", "submit", "--dry-run", "--procedure", "expert-review", good)
    assert ran.code == 2
    assert "--procedure rfc7595 or rfc4395" in ran.err


def test_what_needs_a_registry_of_ones_own_says_so_and_how_to_make_one(run, good):
    for words in (("status", "x"), ("review",), ("tick",), ("verify",), ("submit", good), ("user", "list")):
        ran = run("registry", *words)
        assert ran.code == 2, words
        assert "onym registry init --db registry.db" in ran.err


# import and export ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["xml", "csv", "csv-2022", "text", "json"])
def test_an_export_of_the_shipped_facts_imports_as_the_same_registry(run, tmp_path, format_):
    path = tmp_path / f"registry.{format_}"
    ran = run("registry", "export", "--format", format_, "-o", str(path))
    assert ran.code == 0
    assert ran.out == f"wrote {path}\n"
    found = run("registry", "import", "--dry-run", "--json", str(path)).json["files"][0]
    assert (found["added"], found["changed"]) == (0, 0)
    assert found["same"] == len(load_builtin_snapshot("uri-schemes").entries)


def test_an_export_without_a_file_goes_to_standard_output(run):
    assert run("registry", "export", "--format", "json").json
    ran = run("registry", "export", "--json")
    assert ran.code == 2
    assert ran.json["error"]["code"] == "usage.command-line"


def test_an_export_that_fails_leaves_the_old_file(run, tmp_path):
    path = tmp_path / "registry.csv"
    path.write_text("old")
    ran = run("registry", "export", "-r", "llm-parameters", "--format", "csv-2022", "-o", str(path))
    assert ran.code == 2
    assert path.read_text() == "old"


def test_what_was_written_is_told_as_json(run, tmp_path):
    path = tmp_path / "registry.xml"
    found = run("registry", "export", "--json", "-o", str(path)).json
    assert found == {
        "file": str(path),
        "format": "xml",
        "registry": "uri-schemes",
        "characters": len(path.read_text(encoding="utf-8")),
    }


def test_the_table_of_a_lower_floor_is_python(run):
    text = run("registry", "export", "-r", "llm-parameters", "--format", "tables").out
    scope: dict[str, object] = {}
    exec(compile(text, "table", "exec"), scope)
    assert scope["WELL_KNOWN"] == tuple(
        entry.name for entry in load_builtin_snapshot("llm-parameters").entries
    )
    assert text == Path(_registered.__file__).read_text(encoding="utf-8")


def test_the_parameters_that_the_parser_knows_are_those_of_the_registry():
    from onym.uri.parameters import WELL_KNOWN

    assert set(WELL_KNOWN) == {entry.name for entry in load_builtin_snapshot("llm-parameters").entries}


def test_namespaces_are_exported_plain_or_signed(run, tmp_path):
    from onym.sign.jws import verify_compact
    from onym.sign.keys import SigningKey, read_keys

    plain = json.loads(
        run("registry", "export", "-r", "ai-namespaces", "--format", "namespaces", "--at", "2026-11-21").out
    )
    assert plain["issued"] == "2026-11-21T00:00:00Z"
    key = SigningKey.generate("Ed25519", kid="root")
    file = tmp_path / "root.jwk"
    file.write_text(key.secret().reveal())
    ran = run(
        "registry", "export", "-r", "ai-namespaces", "--format", "namespaces", "--at", "2026-11-21",
        "--sign-key", str(file),
    )  # fmt: skip
    keys = read_keys(json.dumps({"keys": [key.public()]}).encode())
    payload = verify_compact(ran.out.strip(), keys, algorithms=["Ed25519", "EdDSA"])
    assert json.loads(payload) == plain


def test_a_key_file_that_is_not_there_is_a_usage_error(run):
    words = ("registry", "export", "-r", "ai-namespaces", "--format", "namespaces", "--sign-key", "nowhere")
    assert run(*words).code == 2


def test_a_key_belongs_to_the_namespaces_file(run):
    assert run("registry", "export", "--sign-key", "x").code == 2
    assert run("registry", "export", "--format", "namespaces").code == 2


def test_an_import_reports_irregular_rows(run, tmp_path):
    path = tmp_path / "uri-schemes-1.csv"
    path.write_text(
        "URI Scheme,Template,Description,Status,Well-Known URI Support,Reference,Notes\n"
        "http,,Hypertext Transfer Protocol,Permanent,,[RFC9110],\n"
        "Zed,,Zed,Permanent,,[RFC1],\n"
        "zed,,Zed again,Permanent,,[RFC1],\n"
    )
    ran = run("registry", "import", "--dry-run", str(path))
    assert ran.code == 0
    assert "irregular" in ran.out
    found = run("registry", "import", "--dry-run", "--json", str(path)).json["files"][0]
    assert found["added"] == 1
    assert any(row["name"].lower() == "zed" for row in found["irregular"])


@pytest.mark.parametrize(
    "hostile", ["", "<a><b></a>", '<!DOCTYPE x [<!ENTITY a "b">]><registry>&a;</registry>', "{"]
)
def test_a_hostile_file_is_refused_whole(run, tmp_path, hostile):
    path = tmp_path / "registry"
    path.write_text(hostile)
    ran = run("registry", "import", "--dry-run", str(path))
    assert ran.code == 11
    assert ran.out == ""


def test_a_missing_file_to_import_is_a_usage_error(run):
    assert run("registry", "import", "--dry-run", "nowhere.csv").code == 2


def test_a_bad_time_is_refused(run):
    ran = run("registry", "export", "--at", "tomorrow")
    assert ran.code == 2
    assert "usage.time" in ran.err
    assert "tomorrow" in ran.err


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "soon", ""])
def test_a_time_outside_the_calendar_is_a_mistake_of_the_line(run, text):
    ran = run("registry", "tick", "--db", "none.db", "--at", text)
    assert ran.code == 2
    assert "usage.time" in ran.err


def test_a_name_that_is_too_long_is_not_said_to_be_free(run):
    ran = run("registry", "show", "a" * 64)
    assert ran.code == 11
    assert "registry.unknown-entry" in ran.err
    assert "63 characters [docs/decisions/0026]" in " ".join(ran.err.split())


class Timers:
    """A store in which some timers start others; `c` is refused each time."""

    def __init__(self, **starts):
        self.starts, self.ready, self.rung = starts, ["a", "c"], []

    async def list_due_events(self, at):
        make = lambda name: Event(kind=EventKind.DRAFT_EXPIRED, registry="uri-schemes", name=name)  # noqa: E731
        return tuple(map(make, self.ready))

    async def apply(self, event, actor, at):
        self.rung.append(event.name)
        if event.name == "c":
            raise RefusalError("not now", code="registry.not-allowed")
        self.ready.remove(event.name)
        self.ready += self.starts.get(event.name, ())
        return SimpleNamespace(decision=Decision(rule="U4", clause="x"))


def test_what_a_timer_starts_is_rung_in_the_same_tick_and_what_is_refused_once():
    store = Timers(a=["b"])
    said = asyncio.run(_run_due_timers(store, datetime(2026, 1, 5, tzinfo=UTC)))
    assert store.rung == ["a", "c", "b"]
    assert [result["said"] for result in said] == ["rule U4 [x]", "no longer due: not now", "rule U4 [x]"]


def test_timers_that_start_each_other_end_the_tick_all_the_same():
    store = Timers(a=["b"], b=["a"])
    asyncio.run(_run_due_timers(store, datetime(2026, 1, 5, tzinfo=UTC)))
    assert len(store.rung) == _ROUNDS + 1
