"""Who may know of a draft: its registrant, IANA and the experts; everybody once it is handed over."""

from __future__ import annotations

from typing import Any

import pytest

from onym.registry.records import IANA_CLOCK, Entry, EventKind, Role, Status
from server.registry.site import TEMPLATE, Site
from server.registry.test_forms import send

API = "/api/v1"
TOLD = "Only for those who are asked"


@pytest.fixture
def draft(fresh: Site) -> str:
    return fresh.open("quiet", "quietly", status="provisional", fields={"applications": TOLD})


def answers(site: Site, identifier: str, headers: dict[str, str]) -> dict[str, Any]:
    """Status by address, of all that would tell of a request; and the texts of what is open to all."""
    request = f"{API}/requests/{identifier}"
    alone = [
        f"/requests/{identifier}",
        request,
        f"{request}/history",
        f"{API}/registries/uri-schemes/entries/quietly/history",
    ]
    lists = [
        "/",
        "/requests",
        f"{API}/requests",
        f"{API}/requests?name=quietly",
        f"{API}/log?limit=200",
        "/r/uri-schemes/changes.atom",
        f"{API}/search?q=quietly",
    ]
    accept = "text/html, application/json;q=0.9, application/atom+xml;q=0.8"
    texts = "".join(site.get(path, headers, accept).text for path in lists)
    return {"alone": [site.get(path, headers, accept).status_code for path in alone], "texts": texts}


@pytest.mark.parametrize("login", [None, "ingo"])
def test_a_draft_is_nobody_elses_business(fresh: Site, draft: str, login: str | None) -> None:
    found = answers(fresh, draft, fresh.headers(login))
    assert found["alone"] == [404] * 4
    assert TOLD not in found["texts"]
    # the search page says what it looked for
    assert "quietly" not in found["texts"].replace('"query":"quietly"', "")


@pytest.mark.parametrize("login", ["rita", "ian", "eve"])
def test_its_registrant_iana_and_the_experts_see_a_draft(fresh: Site, draft: str, login: str) -> None:
    found = answers(fresh, draft, fresh.headers(login))
    assert found["alone"] == [200] * 4
    assert TOLD in found["texts"]


def test_a_token_without_the_experts_scope_sees_no_draft_of_others(fresh: Site, draft: str) -> None:
    headers = fresh.world.token("read", "submit", account="user-eve")
    assert answers(fresh, draft, headers)["alone"] == [404] * 4


@pytest.mark.parametrize("kind", [EventKind.ANNOUNCE, EventKind.SUBMIT])
def test_what_is_announced_or_submitted_is_public_whole(fresh: Site, draft: str, kind: EventKind) -> None:
    fresh.act("rita", kind, about=draft)
    found = answers(fresh, draft, {})
    assert found["alone"] == [200] * 4
    assert TOLD in found["texts"]


def test_a_draft_that_is_withdrawn_stays_unknown(fresh: Site, draft: str) -> None:
    fresh.act("rita", EventKind.WITHDRAW, about=draft, reason=TOLD)
    found = answers(fresh, draft, {})
    assert found["alone"] == [404] * 4
    assert TOLD not in found["texts"]


def test_what_was_submitted_stays_public_when_it_is_withdrawn(fresh: Site, draft: str) -> None:
    fresh.act("rita", EventKind.SUBMIT, about=draft)
    fresh.act("rita", EventKind.WITHDRAW, about=draft, reason="Changed our mind.")
    found = answers(fresh, draft, {})
    assert found["alone"] == [200] * 4
    assert TOLD in found["texts"]


def test_the_public_log_has_every_number_and_digest_and_no_word_of_a_draft(fresh: Site, draft: str) -> None:
    def log(headers: dict[str, str]) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = fresh.get(f"{API}/log?limit=200", headers, "application/json").json()[
            "records"
        ]
        return records

    public, whole = log({}), log(fresh.headers("rita"))
    digests = [(record["number"], record["previous"], record["digest"]) for record in whole]
    assert [(record["number"], record["previous"], record["digest"]) for record in public] == digests
    (mine,) = [record for record in public if record["request"] == draft]
    assert (mine["actor"], mine["name"], mine["data"], mine["event"]) == ("", None, {}, "open")


def test_nobody_else_acts_on_a_draft_or_learns_its_version(fresh: Site, draft: str) -> None:
    headers = {**fresh.headers("ingo"), "if-match": "*"}
    body = {"event": "withdraw", "data": {"reason": "x"}}
    path = f"{API}/requests/{draft}"
    assert fresh.world.client.post(f"{path}/events", json=body, headers=headers).status_code == 404
    form = {"registry": "uri-schemes", "request": draft, "field.name": "quietly"}
    page = fresh.world.client.post("/submit/check", data=form, headers={**headers, "accept": "text/html"})
    assert draft not in page.text


def test_the_entry_of_a_name_says_nothing_of_drafts_about_it(fresh: Site) -> None:
    body = {"registry": "uri-schemes", "kind": "update", "name": "proviso", "fields": {"applications": TOLD}}
    answer = fresh.world.client.post(f"{API}/requests", json=body, headers=fresh.headers("rita"))
    quiet = answer.json()["id"]
    for path in ("/r/uri-schemes/proviso", f"{API}/registries/uri-schemes/entries/proviso/history"):
        text = fresh.get(path, {}, "text/html, application/json").text
        assert quiet not in text
        assert TOLD not in text
    assert Role.IANA in fresh.actor("ian").roles
    assert quiet in fresh.get("/r/uri-schemes/proviso", fresh.headers("ian")).text


def test_a_scope_of_review_does_not_speak_for_an_owner(fresh: Site) -> None:
    review = fresh.world.token("review", account="user-rita")
    submit = fresh.world.token("submit", account="user-rita")
    path = f"{API}/registries/uri-schemes/entries/proviso"

    def designate(headers: dict[str, str]) -> Any:
        body = {"event": "designate", "data": {"add": ["user-eve"]}}
        given = {**headers, "if-match": "*"}
        return fresh.world.client.post(f"{path}/events", json=body, headers=given)

    refused = designate(review)
    assert (refused.status_code, refused.json()["code"]) == (403, "accounts.missing-scope")
    assert "designate" not in fresh.get(f"{path}/actions", review, "application/json").json()["events"]
    assert "designate" in fresh.get(f"{path}/actions", submit, "application/json").json()["events"]
    assert designate(submit).status_code == 200


def test_an_experts_scope_is_enough_for_what_the_role_opens(fresh: Site) -> None:
    body = {"event": "attach-security-note", "data": {"text": "Known now."}}
    headers = {**fresh.world.token("review", account="user-eve"), "if-match": "*"}
    path = f"{API}/registries/uri-schemes/entries/proviso/events"
    assert fresh.world.client.post(path, json=body, headers=headers).status_code == 200


def test_a_row_is_not_imported_past_the_procedure_by_the_api(fresh: Site) -> None:
    entry = {"v": 1, "registry": "uri-schemes", "name": "proviso", "status": "historical"}
    body = {"event": "import", "data": {"entry": entry, "source": "x"}}
    headers = {**fresh.headers("ian"), "if-match": "*"}
    path = f"{API}/registries/uri-schemes/entries/proviso"
    answer = fresh.world.client.post(f"{path}/events", json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "registry.not-allowed")
    assert fresh.get(path, {}, "application/json").json()["status"] == "provisional"


@pytest.mark.parametrize("reason", ["", " \t", "\u200b", "\u2060\u00a0"])
def test_an_override_needs_a_reason_that_somebody_can_read(fresh: Site, reason: str) -> None:
    body = {"event": "override", "data": {"status": "permanent", "reason": reason}}
    headers = {**fresh.headers("ian"), "if-match": "*"}
    path = f"{API}/registries/uri-schemes/entries/proviso/events"
    answer = fresh.world.client.post(path, json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "registry.missing-data")


@pytest.mark.parametrize("number", [10**400, -(10**20), 1 << 63])
def test_a_number_beyond_measure_is_the_callers_fault(fresh: Site, number: int) -> None:
    body = {"event": "attach-security-note", "data": {"text": "x", "more": number}}
    headers = {**fresh.headers("eve"), "if-match": "*"}
    path = f"{API}/registries/uri-schemes/entries/proviso/events"
    answer = fresh.world.client.post(path, json=body, headers=headers)
    assert 400 <= answer.status_code < 500


def test_the_audit_log_is_for_iana_of_every_registry(fresh: Site) -> None:
    world = fresh.world
    assert fresh.get("/audit", fresh.headers("ian")).status_code == 200
    world.do(world.store.accounts.set_roles, "user-eve", "llm-parameters", frozenset({Role.IANA}))
    refused = fresh.get("/audit", fresh.headers("eve"))
    assert refused.status_code == 403
    assert "/audit" not in fresh.get("/", fresh.headers("eve")).text


AUDIT = f"{API}/audit"


def test_the_audit_log_is_json_in_pages_with_the_rights_of_its_page(fresh: Site) -> None:
    world = fresh.world
    for login in ("ian", "rita", "ian", "nobody"):
        world.client.cookies.clear()
        world.sign_in(login, "a wrong password of several words")
    json = "application/json"
    assert fresh.get(AUDIT, {}, json).status_code == 401
    assert fresh.get(AUDIT, fresh.headers("rita"), json).status_code == 403
    assert fresh.get(AUDIT, world.token("read", account="user-ian"), json).status_code == 403
    world.do(world.store.accounts.set_roles, "user-eve", "llm-parameters", frozenset({Role.IANA}))
    assert fresh.get(AUDIT, fresh.headers("eve"), json).status_code == 403
    found: list[dict[str, Any]] = []
    path: str | None = f"{AUDIT}?limit=2"
    while path is not None:
        answer = fresh.get(path, fresh.headers("ian"), json)
        assert answer.headers["cache-control"] == "no-store"
        found += answer.json()["records"]
        path = answer.json()["next"]
        assert ("link" in answer.headers) is (path is not None)
    stored = world.do(world.store.audit.page, limit=200).items
    # the requests above are not recorded, or are newer than the first page
    kept = {(record.action, record.subject, record.outcome) for record in stored}
    assert {(row["action"], row["subject"], row["outcome"]) for row in found} <= kept
    assert len(found) >= 4
    assert set(found[0]) == {"at", "account", "login", "action", "subject", "outcome", "address"}


def test_the_audit_log_is_filtered_by_login_and_action(fresh: Site) -> None:
    world = fresh.world
    assert world.sign_in("rita").status_code == 303
    world.client.cookies.clear()
    token = world.token("iana", account="user-ian")

    def read(query: str) -> Any:
        return fresh.get(f"{AUDIT}?{query}", token, "application/json")

    assert {row["login"] for row in read("account=rita").json()["records"]} == {"rita"}
    actions = {row["action"] for row in read("account=rita").json()["records"]}
    action = min(actions)
    assert {row["action"] for row in read(f"action={action}").json()["records"]} == {action}
    assert read("action=none").json() == {"records": [], "next": None}
    assert (read("account=nobody").status_code, read("account=nobody").json()["code"]) == (
        404, "accounts.unknown-account",
    )  # fmt: skip
    assert read("account=command line, root").json()["records"] == []
    assert read("after=x").status_code in (400, 422)
    assert read("colour=red").status_code == 400


def list_name_findings(site: Site, text: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    """What a check in the API says about the name."""
    answer = site.world.client.post(f"{API}/check", json={"template": text}, headers=headers)
    assert answer.status_code == 200
    return [finding for finding in answer.json()["findings"] if finding["check"] == "N2"]


@pytest.mark.requirement("rfc7595-7.2-a")
@pytest.mark.parametrize("padding", ["", "x" * 40_000], ids=["in the service", "in a process"])
def test_a_check_tells_of_an_open_request_for_the_name_when_everyone_may_know_of_it(
    fresh: Site, draft: str, padding: str
) -> None:
    text = TEMPLATE.format(name="Quietly", status="Provisional") + padding
    for login in (None, "ingo", "rita", "ian"):
        # the same for all: a report is shown to others
        assert list_name_findings(fresh, text, fresh.headers(login)) == []
    fresh.act("rita", EventKind.SUBMIT, about=draft)
    hidden = fresh.open("hidden", "quietly", status="provisional")
    (finding,) = list_name_findings(fresh, text, {})
    assert (finding["code"], finding["level"], finding["field"]) == ("name-requested", "warning", "name")
    assert draft in finding["message"]
    assert "provisional" in finding["message"]
    assert hidden not in finding["message"]
    assert "rita" not in str(finding).lower()
    fresh.act("rita", EventKind.WITHDRAW, about=draft, reason="Changed our mind.")
    assert list_name_findings(fresh, text, {}) == []


def test_the_form_tells_of_another_request_and_a_request_is_no_rival_of_itself(
    fresh: Site, draft: str
) -> None:
    fresh.act("rita", EventKind.SUBMIT, about=draft)
    text = TEMPLATE.format(name="quietly", status="Provisional")
    found = send(
        fresh, "/submit/check", "/submit", {"hx-request": "true"}, registry="uri-schemes", template=text
    )
    assert "name-requested" in found.text
    assert draft in found.text
    review = fresh.get(f"/requests/{draft}/review", fresh.headers("ian")).text
    assert "name-requested" not in review
    other = fresh.open("other", "quietly", status="provisional", template=text)
    fresh.act("rita", EventKind.SUBMIT, about=other)
    review = fresh.get(f"/requests/{draft}/review", fresh.headers("ian")).text
    assert "name-requested" in review
    assert other in review


def test_a_name_under_review_is_told_with_its_request(fresh: Site) -> None:
    text = TEMPLATE.format(name="experty", status="Provisional")
    (finding,) = list_name_findings(fresh, text, {})
    assert (finding["code"], finding["level"]) == ("name-taken", "error")
    assert fresh.ids["expert"] in finding["message"]


def test_a_parameter_that_differs_in_case_is_another_name_that_may_be_confused(fresh: Site) -> None:
    def check(name: str) -> list[tuple[str, str]]:
        body = {"registry": "llm-parameters", "fields": {"name": name}}
        answer = fresh.world.client.post(f"{API}/check", json=body)
        return [(row["code"], row["level"]) for row in answer.json()["findings"] if row["check"] == "N2"]

    entry = Entry(registry="llm-parameters", name="topK", status=Status.REGISTERED)
    world = fresh.world
    world.do(world.store.import_entries, "llm-parameters", [entry], IANA_CLOCK, world.clock.now(), source="x")
    assert check("topK") == [("name-taken", "error")]
    assert check("TOPK") == [("name-differs-in-case", "warning")]
    assert check("topJ") == []
