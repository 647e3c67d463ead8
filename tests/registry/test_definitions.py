"""Definitions: registries, fields, policies and words from a TOML file, in the log and in the engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from company_support import ADMINISTRATOR, COMPANY, define, load
from onym.errors import ConfigError, RefusalError, UnknownEntryError
from onym.registry.definitions import parse_name_pattern
from onym.registry.engine import decide, find_appeal_deadline, list_allowed_events
from onym.registry.records import (
    IANA_CLOCK,
    Actor,
    Entry,
    Event,
    EventKind,
    Request,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import BUILTIN, PROFILES, REGISTRIES, get_registry, use_catalog
from onym.registry.store import Store, restore
from onym.registry.words import apply_words, name_role, parse_role
from registry_support import arun
from support import as_subtests

AT = datetime(2026, 11, 28, 9, tzinfo=UTC)
TEAM = Actor(id="user-team", roles=frozenset({Role.REGISTRANT}))


def change(old: str, new: str) -> str:
    assert old in COMPANY
    return COMPANY.replace(old, new, 1)


#: name -> (definition, the key that the message names, its line)
FAULTS = {
    "no title": (change('title = "Example AG names"\n', ""), "title", None),
    "an unknown key": (change('noun = "service"', 'nuon = "service"'), "registries[0].nuon", 18),
    "a key of the second registry": (change('noun = "topic"', 'noun = "7"'), "registries[1].noun", 42),
    "a policy without a name": (
        change('name = "First come, first served"\n', ""), "registries[1].policy.provisional.name", None,
    ),
    "a status of the other procedure": (
        change("[registries.policy.registered]", "[registries.policy.permanent]"),
        "registries[0].policy.permanent", 24,
    ),
    "nobody who decides": (
        change('decided_by = "board"', 'decided_by = "king"'),
        "registries[1].policy.permanent.decided_by", 52,
    ),
    "too many days": (change("days = 10", "days = 1000"), "registries[1].policy.permanent.days", 53),
    "a built-in ID": (change('id = "services"', 'id = "uri-schemes"'), "registries[0].id", 15),
    "an ID twice": (change('id = "topics"', 'id = "services"'), "registries[1].id", 40),
    "a reserved field": (change('id = "endpoint"', 'id = "notes"'), "registries[0].fields[1].id", 35),
    "a field twice": (change('id = "endpoint"', 'id = "owner"'), "registries[0].fields[1].id", 35),
    "a label twice": (
        change('label = "Endpoint"', 'label = "owning team"'), "registries[0].fields[1].label", 36,
    ),
    "a long label": (
        change('label = "Endpoint"', f'label = "{"x" * 81}"'), "registries[0].fields[1].label", 36,
    ),
    "an unknown label": (
        change('"status.registered"', '"colour.registered"'), "labels.colour.registered", 10,
    ),
    "a label of nothing": (
        change('"status.registered"', '"status.registred"'), "labels.status.registred", 10,
    ),
    "a bad pattern": (
        change("name_limit = 40", 'name_pattern = "(a+)+"'), "registries[0].name_pattern", 22,
    ),
    "too many registries": (
        COMPANY + "".join(
            f'\n[[registries]]\nid = "r{n}"\ntitle = "T"\nnoun = "name"\nreference = "P"\n'
            '[registries.policy.registered]\nname = "R"\n' for n in range(31)
        ),
        "registries", 14,
    ),
    "too many fields": (
        change('[[registries]]\nid = "topics"', "".join(
            f'[[registries.fields]]\nid = "f{n}"\nlabel = "F{n}"\n' for n in range(41)
        ) + '\n[[registries]]\nid = "topics"'),
        "registries[0].fields", 29,
    ),
}  # fmt: skip


@as_subtests("name", FAULTS)
def test_a_wrong_definition_is_refused_with_its_key_and_line(name: str, tmp_path_factory: Any) -> None:
    text, key, line = FAULTS[name]
    with pytest.raises(ConfigError) as caught:
        load(tmp_path_factory.mktemp("definition"), text)
    assert f"{key}: " in caught.value.message
    if line is not None:
        assert f"company.toml:{line}: " in caught.value.message


#: a line of the whole file, put after this line of a table, and the key and line that the message names
_MISPLACED = {
    "roles": ('board = "the architecture board"', "roles.builtin", 8),
    "labels": ('"action.approve" = "Accept the name"', "labels.builtin", 13),
    "a registry": ("name_limit = 40", "registries[0].builtin", 23),
    "a field": ('label = "Endpoint"', "registries[0].fields[1].builtin", 37),
}


@as_subtests("name", _MISPLACED)
def test_a_key_of_the_file_in_a_table_is_explained(name: str, tmp_path_factory: Any) -> None:
    before, key, line = _MISPLACED[name]
    text = change(before, f'{before}\nbuiltin = ["llm-parameters"]')
    with pytest.raises(ConfigError) as caught:
        load(tmp_path_factory.mktemp("definition"), text)
    assert caught.value.code == "config.unknown-setting"
    assert f"company.toml:{line}: {key}: is a key of the whole file" in caught.value.message
    assert caught.value.hint == "Move the line above [roles], the first table of the file."


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, COMPANY + "#" * 300_000)
    assert caught.value.code == "config.too-long"


@as_subtests(
    "pattern", ["(a+)+", "(?:a+)*", "(?:a|b){3}", "a*a*a*a*", r"(a)\1", "(?=a)b", "[", "a" * 201, "(?i)a"]
)
def test_a_name_pattern_that_may_be_slow_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_name_pattern(pattern)


@as_subtests(
    "pattern", ["[a-z][a-z0-9-]*", "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", r"[A-Z]{2,5}-\d{4}", r"[^/\]]+"]
)
def test_a_plain_name_pattern_is_accepted(pattern: str) -> None:
    assert parse_name_pattern(pattern) == pattern


def test_the_rows_are_in_force_only_inside_the_block(tmp_path: Path) -> None:
    with use_catalog(load(tmp_path).catalog):
        assert list(REGISTRIES) == ["services", "topics"]
        assert set(PROFILES) == {"services", "topics"}
        assert get_registry("services").is_valid_name("billing")
        assert not get_registry("services").is_valid_name("b" * 41)
        with pytest.raises(UnknownEntryError):
            get_registry("uri-schemes")
    assert list(REGISTRIES) == list(BUILTIN.registries)


def test_built_in_registries_are_shown_beside_the_own_ones_if_the_definition_says_so(tmp_path: Path) -> None:
    text = 'builtin = ["llm-parameters"]\n' + COMPANY
    with use_catalog(load(tmp_path, text).catalog):
        assert list(REGISTRIES) == ["services", "topics", "llm-parameters"]
        assert "specification-required" in PROFILES


def test_the_texts_use_the_names_of_the_roles(tmp_path: Path) -> None:
    assert apply_words("Submitted to IANA") == "Submitted to IANA"
    assert (name_role(Role.EXPERT), parse_role("reviewer"), parse_role("king")) == (
        "expert",
        Role.EXPERT,
        None,
    )
    with use_catalog(load(tmp_path).catalog):
        assert apply_words("Submitted to IANA") == "Submitted to the naming office"
        assert (
            apply_words("The IESG decides contested cases.")
            == "The architecture board decides contested cases."
        )
        assert apply_words("Reviewed by the Designated Expert.") == "Reviewed by the architect."
        assert apply_words("IANALYSIS") == "IANALYSIS"
        assert name_role(Role.EXPERT) == "reviewer"


# ---------- procedures


class House:
    """A store with the company's definition, and steps in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.at = AT

    async def step(self, kind: str, actor: Actor = ADMINISTRATOR, **members: Any) -> Any:
        data = members.pop("data", {})
        self.at += timedelta(minutes=1)
        event = Event(kind=EventKind(kind), data=data, **members)
        return (await self.store.apply(event, actor, self.at)).decision

    async def open(self, registry: str, name: str, **data: Any) -> Request:
        data.setdefault("fields", {"owner": "Payments"} if registry == "services" else {})
        decision = await self.step("open", TEAM, registry=registry, name=name, data=data)
        await self.step("submit", TEAM, registry=registry, request=decision.request.id)
        request: Request = decision.request
        return request


def run(url: str, folder: Path, work: Callable[[House], Any], text: str = COMPANY) -> None:
    async def main() -> None:
        async with await Store.open(url, create=True) as store:
            await store.apply(define(load(folder, text)), ADMINISTRATOR, AT)
            await work(House(store))
            await store.verify()
            await store.rebuild()
            await store.verify()

    arun(main())


def test_a_reviewed_name_is_registered_and_the_log_replays(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        asked = await house.open("services", "billing")
        checked = await house.step("check-complete", registry="services", request=asked.id)
        assert checked.request.due == house.at + timedelta(days=5)
        assert checked.clause == "Naming policy 2026-11"
        done = await house.step("approve", registry="services", request=asked.id)
        assert (done.rule, done.entry.status, dict(done.entry.fields)) == (
            "E2", Status.REGISTERED, {"owner": "Payments"},
        )  # fmt: skip

    run(store_url, tmp_path, work)


def test_a_missing_field_makes_a_request_incomplete(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        asked = await house.open("services", "billing", fields={"endpoint": "https://b.example"})
        with pytest.raises(RefusalError) as caught:
            await house.step("check-complete", registry="services", request=asked.id)
        refused = (caught.value.code, caught.value.rule, caught.value.clause)
        assert refused == ("registry.incomplete", "I1", "Naming policy 2026-11")
        returned = await house.step("reject-incomplete", registry="services", request=asked.id)
        assert (returned.rule, returned.request.outcome) == ("I1", "incomplete")
        assert returned.request.reason == "missing: Owning team"

    run(store_url, tmp_path, work)


def test_the_board_decides_what_its_policy_leaves_to_it(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        asked = await house.open("topics", "orders", status="permanent")
        sent = await house.step("check-complete", registry="topics", request=asked.id)
        assert (sent.rule, sent.request.holder, sent.request.due) == (
            "B1", Role.IESG, house.at + timedelta(days=10),
        )  # fmt: skip
        expert = Actor(id="user-expert", roles=frozenset({Role.EXPERT}))
        with pytest.raises(RefusalError) as caught:
            await house.step("iesg-approve", expert, registry="topics", request=asked.id)
        assert caught.value.code == "registry.wrong-role"
        done = await house.step("iesg-approve", registry="topics", request=asked.id)
        assert done.entry.status is Status.PERMANENT

    run(store_url, tmp_path, work)


def test_a_board_of_a_simple_registry_approves_and_declines(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        for name, step, state in (("one", "iesg-approve", "approved"), ("two", "iesg-decline", "rejected")):
            asked = await house.open("services", name)
            await house.step("check-complete", registry="services", request=asked.id)
            done = await house.step(step, registry="services", request=asked.id, data={"reason": "because"})
            assert (done.rule, done.request.state) == ("B1", state)

    run(store_url, tmp_path, work, change('decided_by = "reviewer"', 'decided_by = "board"'))


def test_first_come_first_served_registers_at_the_check_and_lets_its_team_update(
    store_url: str, tmp_path: Path
) -> None:
    async def work(house: House) -> None:
        asked = await house.open("services", "billing")
        done = await house.step("check-complete", registry="services", request=asked.id)
        assert (done.rule, done.entry.status) == ("I3", Status.REGISTERED)
        stranger = Actor(id="user-other", roles=frozenset({Role.REGISTRANT}))
        with pytest.raises(RefusalError) as caught:
            await house.step("open", stranger, registry="services", name="billing", data={"kind": "update"})
        assert caught.value.rule == "U1"
        update = await house.open("services", "billing", kind="update", fields={"owner": "Money"})
        done = await house.step("check-complete", registry="services", request=update.id)
        assert (done.rule, done.entry.fields["owner"]) == ("I3", "Money")

    run(store_url, tmp_path, work, change('decided_by = "reviewer"', 'decided_by = "registrar"'))


def test_an_entry_is_retired_by_its_team_and_stays(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        asked = await house.open("services", "billing")
        await house.step("check-complete", registry="services", request=asked.id)
        await house.step("approve", registry="services", request=asked.id)
        done = await house.step("retire", TEAM, registry="services", name="billing", data={"reason": "over"})
        assert (done.rule, done.entry.status) == ("D1", Status.DEPRECATED)

    run(store_url, tmp_path, work)


def test_discussion_is_required_if_the_policy_says_so(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        decision = await house.step(
            "open", TEAM, registry="topics", name="orders", data={"status": "permanent", "fields": {}}
        )
        with pytest.raises(RefusalError) as caught:
            await house.step("submit", TEAM, registry="topics", request=decision.request.id)
        assert caught.value.rule == "R4"
        told = await house.step("announce", TEAM, registry="topics", request=decision.request.id)
        assert told.request.due == house.at + timedelta(days=7)
        await house.step("submit", TEAM, registry="topics", request=decision.request.id)

    run(
        store_url,
        tmp_path,
        work,
        change("discussion_days = 7", "discussion_days = 7\ndiscussion_required = true"),
    )


@as_subtests("registry", ["services", "topics"])
def test_the_board_answers_appeals_and_is_the_last_instance(registry: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        status = "registered" if registry == "services" else "provisional"
        asked = await house.open(registry, "billing", status=status)
        data = {"reason": "no owner is named"}
        returned = await house.step("reject-incomplete", registry=registry, request=asked.id, data=data)
        assert returned.request.state is RequestState.REJECTED
        members: dict[str, Any] = {"registry": registry, "request": asked.id, "data": {"reason": "look"}}
        filed = await house.step("appeal", TEAM, **members)
        assert (filed.rule, filed.clause) == ("A1", "Naming policy 2026-11")
        assert all("the IESG" not in notice.subject for notice in filed.notices)
        await house.step("dismiss-appeal", **members)
        with pytest.raises(RefusalError) as caught:
            await house.step("appeal-to-iab", TEAM, **members)
        assert caught.value.code == "registry.not-allowed"
        with pytest.raises(RefusalError) as caught:
            await house.step("appeal", TEAM, **members)
        assert (caught.value.rule, caught.value.hint) == ("A1", "The answer is final.")

    text = COMPANY.replace('noun = "service"', 'noun = "service"\nappeals = true')
    run(
        str(tmp_path / f"{registry}.db"), tmp_path, work,
        text.replace('noun = "topic"', 'noun = "topic"\nappeals = true'),
    )  # fmt: skip


def test_decisions_are_appealed_only_if_the_definition_has_appeals(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        asked = await house.open("services", "billing")
        members: dict[str, Any] = {"registry": "services", "request": asked.id, "data": {"reason": "look"}}
        returned = await house.step("reject-incomplete", **members)
        with use_catalog(house.store.catalog):
            assert EventKind.APPEAL not in list_allowed_events(returned.request, None, TEAM, house.at)
            assert find_appeal_deadline(returned.request) is None
        with pytest.raises(RefusalError) as caught:
            await house.step("appeal", TEAM, **members)
        assert (caught.value.code, caught.value.rule) == ("registry.not-allowed", "A1")

    run(str(tmp_path / "names.db"), tmp_path, work)


def test_reviewers_are_assigned_and_recused_and_a_late_request_has_reminders(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        asked = await house.open("services", "billing")
        members = {"registry": "services", "request": asked.id}
        await house.step("check-complete", **members)
        done = await house.step("assign-expert", data={"expert": "user-arno"}, **members)
        assert (done.rule, done.request.expert) == ("E7", "user-arno")
        arno = Actor(id="user-arno", roles=frozenset({Role.EXPERT}))
        await house.step("recuse", arno, data={"reason": "my own team"}, **members)
        with pytest.raises(RefusalError) as caught:
            await house.step("approve", arno, **members)
        assert (caught.value.code, caught.value.clause) == ("registry.recused", "Naming policy 2026-11")
        house.at += timedelta(days=40)
        due = await house.store.list_due_events(house.at)
        assert [event.kind for event in due] == [EventKind.REMIND]
        reminded = (await house.store.apply(due[0], IANA_CLOCK, house.at)).decision
        assert (reminded.rule, reminded.request.reminded) == ("T2", 1)

    run(str(tmp_path / "names.db"), tmp_path, work)


# ---------- the log


def test_personal_data_leaves_the_log_of_a_defined_registry(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        fields = {"owner": "Payments", "endpoint": "ask ann@example.net"}
        asked = await house.open("services", "billing", fields=fields)
        for kind in ("check-complete", "approve"):
            await house.step(kind, registry="services", request=asked.id)
        done = await house.store.redact(
            "services", "ann@example.net", ADMINISTRATOR, house.at, reason="asked for by Ann"
        )
        entry = await house.store.entry("services", "billing")
        assert entry is not None
        assert "ann@example.net" not in str(entry.fields)
        assert (done.number, (await house.store.head()).number) == (6, 6)
        last = (await house.store.log(after=5))[0]
        assert (last.rule, last.clause) == ("REDACT", "Naming policy 2026-11")

    run(store_url, tmp_path, work)


def test_old_requests_replay_by_the_definition_of_their_time(store_url: str, tmp_path: Path) -> None:
    text = change('label = "Endpoint"\n', 'label = "Endpoint"\nrequired = true\n').replace(
        "Naming policy 2026-11", "Naming policy 2027-01"
    )

    async def work(house: House) -> None:
        asked = await house.open("services", "billing")
        await house.step("check-complete", registry="services", request=asked.id)
        await house.step("approve", registry="services", request=asked.id)
        await house.store.apply(define(load(tmp_path, text)), ADMINISTRATOR, house.at)
        later = await house.open("services", "rating")
        with pytest.raises(RefusalError) as caught:
            await house.step("check-complete", registry="services", request=later.id)
        assert (caught.value.code, caught.value.clause) == ("registry.incomplete", "Naming policy 2027-01")

    run(store_url, tmp_path, work)


def test_the_log_has_the_definition_and_its_digest_is_the_file_s(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        (record,) = await house.store.log(limit=1)
        defined = load(tmp_path)
        assert (record.event.kind, record.rule) == (EventKind.DEFINE, "DEF")
        assert record.event.data["definition"] == dict(defined.definition)
        assert house.store.catalog.digest == defined.catalog.digest

    run(store_url, tmp_path, work)


def test_another_process_sees_the_definition(store_url: str, tmp_path: Path) -> None:
    async def work(house: House) -> None:
        async with await Store.open(store_url) as other:
            assert list(other.catalog.registries) == ["services", "topics"]
            text = change('title = "Example AG names"', 'title = "Names"')
            await house.store.apply(define(load(tmp_path, text)), ADMINISTRATOR, AT)
            assert (await other.load_catalog()).title == "Names"

    run(store_url, tmp_path, work)


def test_a_portable_backup_has_the_definition(tmp_path: Path) -> None:
    async def work(house: House) -> None:
        await house.open("services", "billing")
        await house.store.backup(tmp_path / "lines", portable=True)
        await restore(tmp_path / "lines", tmp_path / "again.db")
        async with await Store.open(tmp_path / "again.db") as store:
            assert list(store.catalog.registries) == ["services", "topics"]

    run(str(tmp_path / "names.db"), tmp_path, work)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (COMPANY[: COMPANY.index('[[registries]]\nid = "topics"')], "registries"),
        (
            change('procedure = "staged"\n', "")
            .replace("[registries.policy.provisional]", "[registries.policy.registered]")
            .partition("[registries.policy.permanent]")[0],
            "procedure",
        ),
    ],
    ids=["a registry left out", "another procedure"],
)
def test_a_definition_that_would_lose_entries_is_refused(tmp_path: Path, text: str, field: str) -> None:
    async def work(house: House) -> None:
        with pytest.raises(RefusalError) as caught:
            await house.store.apply(define(load(tmp_path, text)), ADMINISTRATOR, house.at)
        assert (caught.value.code, caught.value.field) == ("registry.bad-definition", field)

    run(str(tmp_path / "names.db"), tmp_path, work)


def test_built_in_entries_are_not_lost_to_a_definition(store_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with await Store.open(store_url, create=True) as store:
            row = Entry(registry="uri-schemes", name="http", status=Status.PERMANENT)
            await store.import_entries("uri-schemes", [row], ADMINISTRATOR, AT, source="test")
            with pytest.raises(RefusalError) as caught:
                await store.apply(define(load(tmp_path)), ADMINISTRATOR, AT)
            assert (caught.value.code, caught.value.field) == ("registry.bad-definition", "registries")
            text = 'builtin = ["uri-schemes"]\n' + COMPANY
            await store.apply(define(load(tmp_path, text)), ADMINISTRATOR, AT)
            assert await store.entry("uri-schemes", "http") is not None
            await store.verify()

    arun(main())


def test_only_an_administrator_defines(tmp_path: Path) -> None:
    with pytest.raises(RefusalError) as caught:
        decide(define(load(tmp_path)), TEAM, AT, request=None, entry=None)
    assert caught.value.code == "registry.wrong-role"


@as_subtests("data", [None, 7, {}, {"title": "x"}, {"title": "x", "registries": [7]}])
def test_an_event_without_a_valid_definition_is_refused(data: object) -> None:
    event = Event(kind=EventKind.DEFINE, registry="*", data={"definition": data})
    with pytest.raises(RefusalError) as caught:
        decide(event, ADMINISTRATOR, AT, request=None, entry=None)
    assert caught.value.code == "registry.bad-definition"


@as_subtests(
    "change",
    [
        ('label = "Endpoint"', 'label = "Service"', "registries[0].fields[1].label"),
        ('label = "Endpoint"', 'label = "Status"', "registries[0].fields[1].label"),
        ('"status.registered"', "status.registered", "labels.status"),
    ],
)
def test_a_file_has_distinct_headings_and_quoted_labels(
    change: tuple[str, str, str], tmp_path_factory: Any
) -> None:
    old, new, key = change
    assert old in COMPANY
    with pytest.raises(ConfigError) as caught:
        load(tmp_path_factory.mktemp("definition"), COMPANY.replace(old, new))
    assert f"{key}: " in caught.value.message
    assert caught.value.hint


def test_the_checks_can_be_loaded_while_an_operator_s_registries_are_in_force(tmp_path: Path) -> None:
    """A new process, because only the first import computes the tables of the checks."""
    path = tmp_path / "company.toml"
    path.write_text(COMPANY, encoding="utf-8")
    program = (
        "import sys, tomllib\n"
        "from onym.registry.definitions import build_next_catalog\n"
        "from onym.registry.registries import enter_catalog\n"
        "enter_catalog(build_next_catalog(tomllib.load(open(sys.argv[1], 'rb'))))\n"
        "import onym.registry.checks\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
