"""The procedure through pages and API: completeness, upgrades by anyone, experts, appeals, list archives."""

from __future__ import annotations

import re
from typing import Any

import pytest

from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import IANA_CLOCK, EventKind, RequestState, Role, Status
from server.registry.site import Site
from server.registry.test_forms import list_actions, send, sign_in

K = EventKind
MBOX = """\
From rita at example.org Mon Nov 30 09:00:00 2026
From: Rita <rita@example.org>
Subject: Review of {id}, please
Date: Mon, 30 Nov 2026 09:00:00 +0000
Message-ID: <one@example.org>
Archived-At: <https://list.example/one>

The template is there.

From bo at example.org Tue Dec  1 09:00:00 2026
From: Bo <bo@example.org>
Subject: Re: <script>alert(1)</script>
Date: Tue, 01 Dec 2026 09:00:00 +0000
Message-ID: <two@example.org>
In-Reply-To: <one@example.org>
Archived-At: <https://list.example/two>

Why?
"""


def labels(site: Site, path: str) -> dict[str, str]:
    return {action.kind: action.label for action in list_actions(site.get(path).text)}


def step(site: Site, login: str, identifier: str, event: str, **data: Any) -> Any:
    """One event through the API, on the version that is there."""
    version = site.world.do(site.world.store.request, identifier).version
    return site.world.client.post(
        f"/api/v1/requests/{identifier}/events",
        json={"event": event, "data": data},
        headers={**site.headers(login), "if-match": f'"{version}-json"'},
    )


def read(site: Site, identifier: str) -> dict[str, Any]:
    found: dict[str, Any] = site.get(f"/api/v1/requests/{identifier}", accept="application/json").json()
    return found


# -- completeness


@pytest.fixture
def incomplete(fresh: Site) -> str:
    identifier = fresh.open("lacking", "lacky", fields={"contact": "", "references": " "})
    fresh.act("rita", K.SUBMIT, about=identifier)
    return identifier


def test_an_incomplete_request_is_not_accepted_and_both_doors_say_what_is_missing(
    fresh: Site, incomplete: str
) -> None:
    answer = step(fresh, "ian", incomplete, "check-complete")
    assert (answer.status_code, answer.json()["code"]) == (409, "registry.incomplete")
    assert "contact, references" in answer.json()["detail"]
    sign_in(fresh, "ian")
    path = f"/requests/{incomplete}"
    page = fresh.get(path).text
    assert re.findall(r"<li>([^<]+) \(RFC 7595 7.4\)</li>", page) == ["contact", "references"]
    offered = labels(fresh, path)
    assert "check-complete" not in offered
    assert offered["reject-incomplete"] == "Return as incomplete"
    assert re.findall(r'value="([a-z_]+)" checked', page) == ["contact", "references"]
    # a form that was opened earlier
    version = str(fresh.world.do(fresh.world.store.request, incomplete).version)
    posted = send(fresh, f"{path}/events", path, kind="check-complete", version=version)
    assert posted.status_code == 409
    assert "contact, references missing" in posted.text
    assert read(fresh, incomplete)["state"] == "submitted"
    assert step(fresh, "ian", incomplete, "reject-incomplete").status_code == 200
    assert read(fresh, incomplete)["reason"] == "missing: contact, references"


def test_buttons_are_named_after_their_outcome(fresh: Site) -> None:
    sign_in(fresh, "ian")
    assert labels(fresh, f"/requests/{fresh.ids['submitted']}")["check-complete"] == (
        "Accept and register as provisional"
    )
    fresh.act("rita", K.SUBMIT, about=fresh.ids["list"])
    assert labels(fresh, f"/requests/{fresh.ids['list']}")["check-complete"] == (
        "Accept and send to the expert"
    )
    old = fresh.open(
        "taken", "takeny", profile="rfc4395",
        fields=dict.fromkeys(("syntax", "semantics", "encoding", "interoperability", "security"), "x"),
    )  # fmt: skip
    fresh.act("rita", K.SUBMIT, about=old)
    rival = fresh.open("rival", "takeny")
    fresh.act("rita", K.SUBMIT, about=rival)
    fresh.act("ian", K.CHECK_COMPLETE, about=rival)
    assert labels(fresh, f"/requests/{old}")["check-complete"] == "Reject: the name is in use"
    sign_in(fresh, "eve")
    approve = labels(fresh, f"/requests/{fresh.ids['expert']}/review")
    assert (approve["approve"], approve["reject"]) == (
        "Approve and register as permanent", "Reject the request",
    )  # fmt: skip
    sign_in(fresh, "ingo")
    assert labels(fresh, f"/requests/{fresh.ids['ietf']}")["iesg-approve"] == (
        "Approve for the IESG and register as permanent"
    )


# -- upgrades


@pytest.mark.parametrize("name", ["dtn", "ipn"])
def test_anyone_asks_for_the_upgrade_of_an_imported_row(fresh: Site, name: str) -> None:
    from dataclasses import replace

    world = fresh.world
    row = next(row for row in load_builtin_snapshot("uri-schemes").entries if row.name == name)
    imported = [replace(row, status=Status.PROVISIONAL)]
    world.do(
        world.store.import_entries, "uri-schemes", imported, IANA_CLOCK, world.clock.now(), source="seed"
    )
    fields = {
        "applications": "Space probes", "contact": "Rita <rita@example.org>", "references": "[RFC9171]",
        "change_controller": "IETF <iesg@ietf.org>",
    }  # fmt: skip
    opened = world.client.post(
        "/api/v1/requests",
        json={
            "registry": "uri-schemes", "kind": "status-change", "name": name, "status": "permanent",
            "fields": fields,
        },
        headers=fresh.headers("rita"),
    )  # fmt: skip
    assert opened.status_code == 201, opened.text
    identifier = opened.json()["id"]
    assert opened.json()["third_party"] is True
    for login, event in (
        ("rita", "announce"), ("rita", "submit"), ("ian", "check-complete"), ("eve", "approve"),
        ("ingo", "iesg-approve"),
    ):  # fmt: skip
        answer = step(fresh, login, identifier, event, reason="a standard")
        assert answer.status_code == 200, answer.text
    entry = fresh.get(f"/api/v1/registries/uri-schemes/entries/{name}", accept="application/json").json()
    assert entry["status"] == "permanent"


# -- experts


def test_experts_are_assigned_recused_and_appointed_on_the_page(fresh: Site) -> None:
    identifier = fresh.ids["expert"]
    path = f"/requests/{identifier}"

    def post(kind: str, **data: str) -> Any:
        version = str(fresh.world.do(fresh.world.store.request, identifier).version)
        return send(fresh, f"{path}/events", path, kind=kind, version=version, **data)

    sign_in(fresh, "ian")
    assert post("assign-expert", expert="rita").status_code == 409
    assert post("assign-expert", expert="nobody-here").status_code == 404
    assert post("assign-expert", expert="eve").status_code == 303
    assert "Eve Example" in fresh.get(path).text
    sign_in(fresh, "eve")
    assert post("recuse", reason="I wrote it").status_code == 303
    assert "approve" not in labels(fresh, path)
    assert step(fresh, "eve", identifier, "approve").json()["code"] == "registry.recused"
    # the other expert of this registry
    version = fresh.world.do(fresh.world.store.request, identifier).version
    alice = fresh.world.token("read", "review", account="user-alice")
    gone = fresh.world.client.post(
        f"/api/v1/requests/{identifier}/events",
        json={"event": "recuse", "data": {"reason": "I did too", "experts_left": 9}},
        headers={**alice, "if-match": f'"{version}-json"'},
    )
    assert gone.status_code == 200, gone.text
    notices = fresh.world.do(fresh.world.store.outbox.claim, fresh.world.clock.now(), 200)
    assert [notice.to for notice in notices if "appoint a temporary one" in notice.subject] == ["iesg"]
    sign_in(fresh, "ingo")
    assert post("appoint-expert", expert="rita", reason="nobody else is left").status_code == 303
    data = read(fresh, identifier)
    assert (data["expert"], data["recused"]) == ("user-rita", ["user-alice", "user-eve"])
    sign_in(fresh, "rita")
    assert "approve" in labels(fresh, f"{path}/review")
    assert post("approve", reason="clear").status_code == 303
    assert read(fresh, identifier)["state"] == "approved"


# -- appeals


def test_an_appeal_goes_through_pages_and_api(fresh: Site) -> None:
    identifier = fresh.ids["rejected"]
    path = f"/requests/{identifier}"
    assert "can be appealed until" in fresh.get(path).text
    sign_in(fresh, "rita")
    assert labels(fresh, path)["appeal"] == "Appeal to the IESG"
    version = str(read(fresh, identifier)["version"])
    empty = send(fresh, f"{path}/events", path, kind="appeal", version=version, reason=" ")
    assert empty.status_code in (400, 422)
    grounds = "It is not a trademark <b>here</b>."
    sent = send(fresh, f"{path}/events", path, kind="appeal", version=version, reason=grounds)
    assert sent.status_code == 303
    page = fresh.get(path).text
    assert "It is not a trademark &lt;b&gt;here&lt;/b&gt;." in page
    assert "Under appeal" in page
    found = read(fresh, identifier)
    assert (found["state"], found["holder"]) == ("appeal", "iesg")
    assert found["appeals"][0]["for_registrant"] is True
    sign_in(fresh, "ingo")
    assert identifier in fresh.get("/queue/iesg").text
    offered = {action.kind: action for action in list_actions(fresh.get(path).text)}
    assert offered["uphold-appeal"].fields == ["reason"]
    assert step(fresh, "eve", identifier, "uphold-appeal", reason="x").status_code == 409
    assert step(fresh, "ingo", identifier, "uphold-appeal", reason="it has lapsed").status_code == 200
    assert read(fresh, identifier)["state"] == "submitted"


def test_an_appeal_against_a_registration_offers_its_remedies(fresh: Site) -> None:
    identifier = fresh.ids["approved"]
    assert step(fresh, "eve", identifier, "appeal", reason="I was wrong").status_code == 200
    sign_in(fresh, "ingo")
    path = f"/requests/{identifier}"
    (action,) = [one for one in list_actions(fresh.get(path).text) if one.kind == "uphold-appeal"]
    assert action.choices["remedy"] == ["note", "permanent", "provisional", "historical", "remove"]
    version = str(read(fresh, identifier)["version"])
    done = send(
        fresh, f"{path}/events", path, kind="uphold-appeal", version=version, remedy="provisional",
        reason="not a standard yet",
    )  # fmt: skip
    assert done.status_code == 303
    entry = fresh.get("/api/v1/registries/uri-schemes/entries/approvy", accept="application/json").json()
    assert entry["status"] == "provisional"
    # the registrant can go to the IAB, whose answer IANA records with its address
    assert step(fresh, "rita", identifier, "appeal-to-iab", reason="it is one").status_code == 200
    lacks = step(fresh, "ian", identifier, "dismiss-appeal", reason="no")
    assert lacks.json()["code"] == "registry.missing-data"
    told = step(fresh, "ian", identifier, "dismiss-appeal", reason="no", reference="https://iab.example/1")
    assert told.status_code == 200
    assert "https://iab.example/1" in fresh.get(path).text


# -- the list's archive


def link(site: Site, login: str | None, archive: str, **more: str) -> Any:
    return site.world.client.post(
        "/api/v1/registries/uri-schemes/messages",
        json={"archive": archive, **more},
        headers=site.headers(login),
    )


def test_an_archive_starts_and_shows_a_list_review(fresh: Site) -> None:
    identifier = fresh.open("mailed", "maily", status="permanent")
    archive = MBOX.format(id=identifier)
    for login, status in ((None, 401), ("rita", 403)):
        assert link(fresh, login, archive).status_code == status
    answer = link(fresh, "ian", archive)
    assert answer.status_code == 200, answer.text
    (linked,) = answer.json()["requests"]
    assert (linked["request"], linked["state"], len(linked["messages"])) == (identifier, "list-review", 2)
    found = read(fresh, identifier)
    assert (found["archive"], len(found["messages"])) == ("https://list.example/one", 2)
    page = fresh.get(f"/requests/{identifier}").text
    assert 'href="https://list.example/two"' in page
    assert "<script>alert(1)" not in page
    assert link(fresh, "ian", archive).json()["requests"] == []
    assert link(fresh, "ian", "Dear IANA").json()["code"] == "registry.bad-archive"
    assert link(fresh, "ian", archive, link="http://x/{id}").status_code in (400, 422)
    assert link(fresh, "ian", "<!DOCTYPE x><feed/>").json()["code"] == "registry.bad-archive"
    state = fresh.world.do(fresh.world.store.request, identifier).state
    assert state is RequestState.LIST_REVIEW


# -- personal data


def redact(site: Site, login: str | None, **body: Any) -> Any:
    return site.world.client.post(
        "/api/v1/registries/uri-schemes/redactions", json=body, headers=site.headers(login)
    )


def test_personal_data_leaves_the_log_through_the_api(fresh: Site) -> None:
    person = "gone.person@example.net"
    fields = {"applications": "flying", "contact": f"Gone Person <{person}>"}
    identifier = fresh.open("gonekite", "kitty", status="provisional", fields=fields)

    def see(path: str) -> str:
        return str(fresh.get(f"/api/v1/{path}", fresh.headers("ian"), "application/json").text)

    reason = "asked by the person"
    for login, status in ((None, 401), ("rita", 403), ("eve", 403)):
        assert redact(fresh, login, text=person, reason=reason).status_code == status
    listed = redact(fresh, "ian", text=person, reason=reason, dry_run=True).json()
    assert listed["record"] is None
    assert listed["removed"]
    assert person in see(f"requests/{identifier}")
    leaky = redact(fresh, "ian", text=person, reason=f"delete {person.upper()}").json()
    assert (leaky["code"], leaky["field"]) == ("registry.bad-data", "reason")
    done = redact(fresh, "ian", text=person, reason=reason)
    assert done.status_code == 200, done.text
    assert done.json()["removed"] == listed["removed"]
    assert person not in see(f"requests/{identifier}")
    assert person not in see("log?limit=200")
    again = redact(fresh, "ian", text=person, reason=reason).json()
    assert again["code"] == "registry.nothing-to-remove"
    assert fresh.world.do(fresh.world.store.verify).records
    audited = fresh.world.do(fresh.world.store.audit.page).items
    assert person not in str(audited)
    assert any(record.action == "registry.redact" and record.outcome == "ok" for record in audited)


FORM = "/r/uri-schemes/-/redact"


def fill_form(site: Site, login: str, **data: str) -> Any:
    """Send the form that removes personal data, as a person who has just opened it."""
    site.world.client.cookies.clear()
    assert site.world.sign_in(login).status_code == 303
    form = {"csrf_token": site.world.csrf(FORM), **data}
    return site.world.client.post(FORM, data=form, headers={"accept": "text/html"})


def test_personal_data_leaves_the_log_by_a_form(fresh: Site) -> None:
    person = "gone.person@example.net"
    fields = {"applications": "flying", "contact": f"Gone Person <{person}>"}
    identifier = fresh.open("formkite", "formy", status="provisional", fields=fields)
    said = {"text": person, "reason": "ticket 7"}
    listed = fill_form(fresh, "ian", **said)
    assert listed.status_code == 200
    assert listed.headers["cache-control"] == "no-store"
    lines = re.findall(r'name="lines" value="(\d+)"', listed.text)
    assert lines
    for wrong in ({"confirm": "uri"}, {"confirm": "uri-schemes", "lines": "99"}):
        answer = fill_form(fresh, "ian", **{**said, "lines": lines[0], **wrong})
        assert answer.status_code in range(400, 500), wrong
        assert person in fresh.world.do(fresh.world.store.request, identifier).fields["contact"]
    done = fill_form(fresh, "ian", **said, lines=lines[0], confirm="uri-schemes")
    assert done.status_code == 200, done.text
    assert person not in done.text
    assert person not in str(fresh.world.do(fresh.world.store.request, identifier))
    last = fresh.world.do(fresh.world.store.log)[-1]
    assert (last.event.kind, last.event.data["reason"]) == ("redact", "ticket 7")
    assert fresh.world.do(fresh.world.store.verify).records
    audited = fresh.world.do(fresh.world.store.audit.page).items
    assert person not in str(audited)
    acts = [(record.subject, record.outcome) for record in audited if record.action == "registry.redact"]
    assert acts[0] == ("uri-schemes: ticket 7", "ok")


def test_a_form_without_the_reason_or_with_the_data_in_it_removes_nothing(fresh: Site) -> None:
    before = fresh.world.do(fresh.world.store.head)
    for data in (
        {"text": "rita@example.org", "reason": " "},
        {"text": "rita@example.org", "reason": "RITA@example.org"},
        {"text": "abc", "reason": "ticket 7"},
        {"text": "nobody@example.net", "reason": "x" * 1001},
    ):
        assert fill_form(fresh, "ian", **data).status_code in range(400, 500), data
    assert "No line" in fill_form(fresh, "ian", text="nobody@example.net", reason="x").text
    assert fresh.world.do(fresh.world.store.head) == before


def test_only_the_registrar_of_a_registry_has_the_form(fresh: Site) -> None:
    assert fresh.get(FORM).status_code == 401
    for login in ("rita", "eve", "ingo"):
        assert fresh.get(FORM, fresh.headers(login)).status_code == 403
    assert FORM in fresh.get("/audit", fresh.headers("ian")).text
    fresh.world.do(fresh.world.store.accounts.set_roles, "user-eve", "uri-schemes", frozenset({Role.IANA}))
    assert fresh.get(FORM, fresh.headers("eve")).status_code == 200
    assert fresh.get("/r/llm-parameters/-/redact", fresh.headers("eve")).status_code == 403
    assert FORM in fresh.get("/queue/iana", fresh.headers("eve")).text
    reviewer = fresh.world.token("read", "review", account="user-eve")
    assert fresh.get(FORM, reviewer).status_code == 403
