"""Forms, as a browser without JavaScript sends them, and as htmx does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pytest

from onym.registry.checks import ReferenceData, check, load_document
from onym.registry.iana import load_builtin_snapshot
from onym.registry.records import IANA_CLOCK, Entry, EventKind, Status
from onym.server.registry.actions import build_change_requests
from onym.server.registry.page_parts import describe_missing_registrant
from server.registry.site import HOSTILE, TEMPLATE, Site
from support import as_subtests


def sign_in(site: Site, login: str) -> None:
    assert site.world.sign_in(login).status_code == 303


def csrf(site: Site, path: str) -> str:
    page = site.get(path)
    assert page.status_code == 200, page.text
    return re.findall(r'name="csrf_token" value="([^"]+)"', page.text)[-1]


def send(site: Site, path: str, source: str, headers: dict[str, str] | None = None, **data: str) -> Any:
    fields = {name.replace("__", "."): value for name, value in data.items()}
    return site.world.client.post(
        path,
        data={"csrf_token": csrf(site, source), **fields},
        headers={"accept": "text/html", **(headers or {})},
        follow_redirects=False,
    )


@dataclass
class OfferedAction:
    """A form of the page: its event, its button, its fields and the values that they offer."""

    kind: str = ""
    label: str = ""
    fields: list[str] = field(default_factory=list)
    choices: dict[str, list[str]] = field(default_factory=dict)


class _ActionReader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.actions: list[OfferedAction] = []
        self._open = self._in_summary = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        members = {name: value or "" for name, value in attrs}
        if tag == "details" and members.get("name") == "actions":
            self.actions.append(OfferedAction())
            self._open = True
        elif not self._open:
            return
        elif members.get("name") == "kind":
            self.actions[-1].kind = members["value"]
        elif tag in ("input", "select", "textarea") and members["name"] not in ("csrf_token", "version"):
            self.actions[-1].fields.append(members["name"])
        elif tag == "option":
            self.actions[-1].choices.setdefault(self.actions[-1].fields[-1], []).append(members["value"])
        self._in_summary = tag == "summary"

    def handle_data(self, data: str) -> None:
        if self._open and self._in_summary:
            self.actions[-1].label += data

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "details"
        self._in_summary = False


def list_actions(text: str) -> list[OfferedAction]:
    """The changes and steps that a page offers."""
    return _ActionReader(text).actions


def test_a_template_is_checked_without_an_account_or_script(fresh: Site) -> None:
    answer = send(
        fresh,
        "/submit/check",
        "/submit",
        registry="uri-schemes",
        template="Scheme name: abc\n\nStatus: Provisional\n",
    )
    assert answer.status_code == 200
    assert 'id="report"' in answer.text
    assert "error" in answer.text
    assert "RFC 7595" in answer.text
    assert answer.text.count("<h1") == 1


def test_htmx_gets_the_report_alone(fresh: Site) -> None:
    answer = send(
        fresh,
        "/submit/check",
        "/submit",
        {"hx-request": "true"},
        registry="uri-schemes",
        template="Scheme name: abc\n\nStatus: x\n",
    )
    assert answer.status_code == 200
    assert "<html" not in answer.text
    assert "Check report" in answer.text


def test_a_grammar_in_the_form_is_read(fresh: Site) -> None:
    given = {"field__name": "kite", "field__syntax": 'kite-URI = "kite:" 1*( ALPHA / "[" )'}
    answer = send(fresh, "/submit/check", "/submit", {"hx-request": "true"}, registry="uri-schemes", **given)
    assert "not-a-uri" in answer.text
    assert "<code>kite:[</code>" in answer.text


def test_findings_link_their_lines_and_are_counted_as_the_command_line_does(fresh: Site) -> None:
    template = TEMPLATE.format(name="Kite", status="Provisional")
    for headers in ({"hx-request": "true"}, {}):
        answer = send(fresh, "/submit/check", "/submit", headers, registry="uri-schemes", template=template)
        report = check(load_document(template), known=ReferenceData(entries={}))
        assert report.counts["error"] == 1
        assert "1 error: it" in answer.text
        hints = answer.text.count('<li class="finding hint">')
        assert (f"{hints} hint" in answer.text) is (hints > 0)
        assert '<a href="#L1">line 1</a>' in answer.text
        assert '<li id="L1" value="1" class="fault"><code>Scheme name: Kite</code></li>' in answer.text
        # the questions are one closed part, not findings
        assert answer.text.count("Questions for the reviewer (6)") == 1
        assert "</span> ask a person" not in answer.text


def test_a_review_page_links_the_findings_to_the_template(fresh: Site) -> None:
    sign_in(fresh, "rita")
    template = TEMPLATE.format(name="kiteline", status="Provisional").replace(" <rita@example.org>", "")
    saved = send(fresh, "/submit", "/submit", registry="uri-schemes", template=template, step="open")
    asked = asked_for(fresh, saved)
    fresh.act("rita", EventKind.SUBMIT, about=asked.id)
    page = fresh.get(f"/requests/{asked.id}/review", fresh.headers("ian")).text
    assert '<a href="#L7">line 7</a>' in page
    assert '<li id="L7" class="fault">' in page


def test_nothing_to_check_is_said(fresh: Site) -> None:
    answer = send(fresh, "/submit/check", "/submit", {"hx-request": "true"}, registry="uri-schemes")
    assert "Nothing to check yet" in answer.text


def test_a_form_without_its_token_changes_nothing(fresh: Site) -> None:
    sign_in(fresh, "rita")
    answer = fresh.world.client.post(
        "/submit", data={"registry": "uri-schemes"}, headers={"accept": "text/html"}
    )
    assert answer.status_code == 403


def _attributes(text: str, identifier: str) -> str:
    found = re.search(rf'<(?:input|textarea|select|div)[^>]* id="{identifier}"[^>]*>', text)
    assert found is not None, text
    return found[0]


def test_an_error_of_saving_is_tied_to_its_field_which_has_the_focus(fresh: Site) -> None:
    sign_in(fresh, "rita")
    fields = {"field__name": "9lives", "field__contact": "Rita <rita@example.org>"}
    answer = send(fresh, "/submit", "/submit", registry="uri-schemes", status="provisional", **fields)
    assert answer.status_code == 409
    assert 'aria-invalid="true" autofocus' in _attributes(answer.text, "f-name")
    assert 'aria-describedby="f-name-problem-1 f-name-help"' in _attributes(answer.text, "f-name")
    assert re.findall(r'id="f-name-problem-1">.*?</p>', answer.text)
    assert 'value="9lives"' in _attributes(answer.text, "f-name")
    assert answer.text.count("autofocus") == 1
    assert 'href="#f-name"' in answer.text
    assert "Rita &lt;rita@example.org&gt;" in answer.text


def test_an_error_without_a_field_has_the_focus_itself(fresh: Site) -> None:
    sign_in(fresh, "rita")
    about = fresh.ids["draft"]
    said = {"registry": "uri-schemes", "request": about, "step": "revise", "version": "0"}
    fields = {"field__name": "drafty", "field__contact": "Rita <rita@example.org>"}
    answer = send(fresh, "/submit", f"/requests/{about}/edit", **said, **fields)
    assert answer.status_code == 412
    assert 'tabindex="-1" autofocus' in _attributes(answer.text, "save-error")
    assert answer.text.count("autofocus") == 1
    assert 'aria-invalid="true"' not in answer.text


def test_every_field_shows_an_example_and_links_its_clause(shared: Site) -> None:
    for registry, clause in (
        ("uri-schemes", "https://www.rfc-editor.org/rfc/rfc7595#section-3.8"),
        ("llm-parameters", "https://datatracker.ietf.org/doc/html/draft-levy-llm-uri-scheme-00#section-6"),
        ("ai-namespaces", "/help#expert-review"),
    ):
        text = shared.get(f"/submit?registry={registry}").text
        helps = re.findall(r'<p class="help" id="f-[a-z_]+-help">.*?</p>', text, re.DOTALL)
        assert len(helps) >= 6
        assert all("Example: <span" in said and "<a href=" in said for said in helps), helps
        assert f'<a href="{clause}"' in helps[0]


def test_saving_needs_an_account(fresh: Site) -> None:
    answer = send(
        fresh, "/submit", "/submit", registry="uri-schemes", template="Scheme name: abc\n\nStatus: x\n"
    )
    assert answer.status_code == 401


def test_a_registration_goes_from_paste_to_registry_by_forms_alone(fresh: Site) -> None:
    sign_in(fresh, "rita")
    text = TEMPLATE.format(name="formy", status="Provisional")
    saved = send(fresh, "/submit", "/submit", registry="uri-schemes", template=text)
    assert saved.status_code == 303, saved.text
    where = saved.headers["location"].split("?")[0]
    assert "Saved as a draft request" in fresh.get(saved.headers["location"]).text
    revised = send(
        fresh, "/submit", f"{where}/edit", registry="uri-schemes", template=text,
        request=where.split("/")[-1], version="1", step="revise", field__contact="Rita <new@example.org>",
    )  # fmt: skip
    assert revised.status_code == 303, revised.text
    assert "new@example.org" in fresh.get(where).text
    other = send(
        fresh, "/submit", f"{where}/edit", registry="uri-schemes",
        template=TEMPLATE.format(name="formier", status="Provisional"),
        request=where.split("/")[-1], version="2", step="revise",
    )  # fmt: skip
    assert other.status_code == 409
    assert 'aria-invalid="true" autofocus' in _attributes(other.text, "f-name")
    again = send(fresh, "/submit", "/submit", registry="uri-schemes", template=TEMPLATE.format(
        name="http", status="Provisional"))  # fmt: skip
    assert 'aria-invalid="true" autofocus' in _attributes(again.text, "f-name")
    stale = send(fresh, f"{where}/events", where, kind="submit", version="1")
    assert stale.status_code == 412
    done = send(fresh, f"{where}/events", where, kind="submit", version="2")
    assert done.status_code == 303, done.text
    fresh.world.client.cookies.clear()
    sign_in(fresh, "ian")
    checked = send(fresh, f"{where}/events", f"{where}/review", kind="check-complete", version="3")
    assert checked.status_code == 303, checked.text
    page = fresh.get("/r/uri-schemes/formy")
    assert "Provisional" in page.text


def test_fields_alone_make_a_request_in_each_registry(fresh: Site) -> None:
    sign_in(fresh, "rita")
    for registry, name, more in (
        ("uri-schemes", "fieldy", {"field__applications": "Programs", "status": "provisional"}),
        (
            "llm-parameters",
            "min_price",
            {"field__type": "number", "field__description": "x", "field__reference": "[RFC3986]"},
        ),
        ("ai-namespaces", "fields", {"field__anchor": "https://a.example", "field__description": "x"}),
    ):
        answer = send(fresh, "/submit", "/submit", registry=registry, field__name=name, **more)
        assert answer.status_code == 303, answer.text
        assert name in fresh.get(answer.headers["location"]).text


def test_a_template_without_a_name_comes_back_with_the_fault(fresh: Site) -> None:
    sign_in(fresh, "rita")
    answer = send(fresh, "/submit", "/submit", registry="uri-schemes", field__contact=HOSTILE)
    assert answer.status_code == 422
    assert "the registration has no name" in answer.text
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;" in answer.text


@pytest.mark.parametrize(("template", "status"), [("x" * 1_000_001, 413), ("a\x00b", 422)])
def test_a_text_too_long_or_with_control_characters_is_refused(
    fresh: Site, template: str, status: int
) -> None:
    sign_in(fresh, "rita")
    answer = send(fresh, "/submit", "/submit", registry="uri-schemes", template=template)
    assert answer.status_code == status


def test_a_decision_needs_its_reason(fresh: Site) -> None:
    sign_in(fresh, "eve")
    where = f"/requests/{fresh.ids['expert']}"
    version = str(fresh.world.do(fresh.world.store.request, fresh.ids["expert"]).version)
    without = send(fresh, f"{where}/events", f"{where}/review", kind="approve", version=version)
    assert without.status_code == 422
    done = send(fresh, f"{where}/events", f"{where}/review", kind="approve", version=version, reason="Clear.")
    assert done.status_code == 303
    assert "Clear." in fresh.get(where).text


def test_the_buttons_are_those_that_the_engine_allows(fresh: Site) -> None:
    path = f"/requests/{fresh.ids['expert']}/review"

    def kinds(login: str) -> set[str]:
        text = fresh.get(path, fresh.headers(login)).text
        return set(re.findall(r'name="kind" value="([^"]+)"', text))

    assert kinds("eve") == {
        "ask-more-review",
        "approve",
        "approve-as-provisional",
        "ask-ietf-review",
        "reject",
        "assign-expert",
        "recuse",
    }
    assert kinds("ian") == {"assign-expert"}
    assert fresh.get(path, fresh.headers("rita")).status_code == 403
    assert fresh.get(path).status_code == 401


def _find_tied_field(page: str, kind: str) -> tuple[str, str]:
    """The name of the field that is marked in the only open form, and the text of the error there."""
    (form,) = re.findall(r'<details class="action [^>]* open>.*?</details>', page, re.DOTALL)
    assert f'name="kind" value="{kind}"' in form
    (name, described) = re.findall(
        r'name="([^"]+)"[^>]* aria-describedby="([^"]+)" aria-invalid="true" autofocus', form
    )[0]
    (said,) = re.findall(rf'id="{described.split()[-1]}" role="alert">(.*?)</div>', form)
    assert page.count(" autofocus") == 1
    return name, said


def test_the_error_of_an_action_is_tied_to_its_field_on_the_page_that_sent_it(fresh: Site) -> None:
    where = f"/requests/{fresh.ids['expert']}"
    version = str(fresh.world.do(fresh.world.store.request, fresh.ids["expert"]).version)
    sign_in(fresh, "eve")
    for page, heading in (("review", "Decide"), ("", "What you can do now")):
        sent = {"kind": "approve", "version": version, "reason": " "} | ({"shown_on": page} if page else {})
        answer = send(fresh, f"{where}/events", where, **sent)
        assert answer.status_code == 422
        name, said = _find_tied_field(answer.text, "approve")
        assert (name, heading in answer.text) == ("reason", True)
        assert "is empty" in said
    assert fresh.world.audit()[-1].outcome == "registry.missing-data"
    sign_in(fresh, "ian")
    form = {"kind": "assign-expert", "version": version, "expert": "nobody", "reason": "Sh<e> knows."}
    answer = send(fresh, f"{where}/events", where, **form)
    assert _find_tied_field(answer.text, "assign-expert")[0] == "expert"
    assert 'value="nobody"' in answer.text
    assert "Sh&lt;e&gt; knows.</textarea>" in answer.text


def test_the_error_of_a_change_is_tied_to_its_field(fresh: Site) -> None:
    sign_in(fresh, "ian")
    change, events = "/r/uri-schemes/proviso/change", "/r/uri-schemes/proviso/events"
    empty = send(fresh, change, change, kind="note-separate-use", use=" ")
    assert empty.status_code == 422
    assert _find_tied_field(empty.text, "note-separate-use")[0] == "use"
    control = {"registrant": "", "change_controller": "", "iesg_approved": "yes", "reason": ""}
    for sent in ({"status": "historical", "reason": ""}, {"iesg_approved": "yes", "reason": ""}, control):
        answer = send(fresh, events, change, kind="override", version="2", **sent)
        assert _find_tied_field(answer.text, "override")[0] == "reason"
    assert re.search(r'<option value="yes" selected>', answer.text)
    assert send(fresh, events, change, kind="override", version="1", status="historical",
                reason="Late.").status_code == 412  # fmt: skip


def test_an_entry_is_overridden_and_a_change_is_asked_for(fresh: Site) -> None:
    sign_in(fresh, "ian")
    change = "/r/uri-schemes/proviso/change"
    done = send(
        fresh,
        "/r/uri-schemes/proviso/events",
        change,
        kind="override",
        version="2",
        status="historical",
        reason="By mistake.",
    )
    assert done.status_code == 303, done.text
    assert "By mistake." in fresh.get("/r/uri-schemes/proviso").text
    asked = send(fresh, change, change, kind="update", field__contact="Somebody <s@example.org>")
    assert asked.status_code == 303, asked.text
    assert "Somebody" in fresh.get(asked.headers["location"]).text


def test_a_step_of_an_unknown_kind_or_without_a_version_is_refused(fresh: Site) -> None:
    sign_in(fresh, "rita")
    where = f"/requests/{fresh.ids['draft']}"
    assert send(fresh, f"{where}/events", where, kind="dance", version="1").status_code == 422
    assert send(fresh, f"{where}/events", where, kind="submit").status_code == 428
    assert send(fresh, f"{where}/events", where, kind="import", version="1").status_code == 400


def test_a_body_that_is_no_form_is_refused(fresh: Site) -> None:
    sign_in(fresh, "rita")
    token = csrf(fresh, "/submit")
    answer = fresh.world.client.post(
        "/submit/check", content=b"{}", headers={"content-type": "application/json", "x-csrf-token": token}
    )
    assert answer.status_code == 415


def test_a_request_is_not_told_that_its_own_pending_row_has_the_name(fresh: Site) -> None:
    eve = fresh.headers("eve")
    own = fresh.get(f"/requests/{fresh.ids['expert']}/review", eve)
    assert "name-taken" not in own.text


@pytest.fixture
def imported(fresh: Site) -> Site:
    """With a row as IANA publishes it: beside its columns it has a template, a CRI number and more."""
    (acd,) = (entry for entry in load_builtin_snapshot("uri-schemes").entries if entry.name == "acd")
    assert {"template", "cri_number"} <= acd.fields.keys()
    store = fresh.world.store
    fresh.world.do(
        store.import_entries, "uri-schemes", [acd], IANA_CLOCK, fresh.world.clock.now(), source="test"
    )
    return fresh


def asked_for(site: Site, answer: Any) -> Any:
    """The request that a form has opened."""
    assert answer.status_code == 303, answer.text
    return site.world.do(site.world.store.request, answer.headers["location"].split("?")[0].split("/")[-1])


@pytest.mark.parametrize(
    ("login", "given"),
    [
        ("eve", {"kind": "status-change", "status": "permanent"}),
        ("rita", {"kind": "note-separate-use", "use": "Something else."}),
        ("rita", {"kind": "reassign", "grounds": "Nobody answers."}),
    ],
)
def test_a_change_of_an_imported_scheme_is_asked_for_and_brings_none_of_its_columns(
    imported: Site, login: str, given: dict[str, str]
) -> None:
    sign_in(imported, login)
    change = "/r/uri-schemes/acd/change"
    asked = asked_for(imported, send(imported, change, change, **given))
    assert asked.kind == given["kind"]
    assert set(asked.fields) <= {"name", "description"}
    imported.world.client.cookies.clear()
    assert imported.get(f"/requests/{asked.id}", imported.headers(login)).status_code == 200


def test_an_update_brings_what_its_author_changed_and_takes_nothing_else_back(fresh: Site) -> None:
    sign_in(fresh, "rita")
    change = "/r/uri-schemes/proviso/change"
    entry = fresh.world.do(fresh.world.store.entry, "uri-schemes", "proviso")
    # as a browser sends it: each field is filled with what the entry has
    filled = {
        f"field__{name}": entry.fields.get(name, "")
        for name in ("description", "applications", "contact", "change_controller", "references", "reference")
    }
    version = str(entry.version)
    first = filled | {"field__contact": "First <first@example.org>"}
    second = filled | {"field__applications": "Other programs"}
    asked = [
        asked_for(fresh, send(fresh, change, change, kind="update", version=version, **answer))
        for answer in (first, second)
    ]
    assert [set(request.fields) - {"name"} for request in asked] == [{"contact"}, {"applications"}]
    for request in asked:
        fresh.act("rita", EventKind.SUBMIT, about=request.id)
        fresh.act("ian", EventKind.CHECK_COMPLETE, about=request.id)
    after = fresh.world.do(fresh.world.store.entry, "uri-schemes", "proviso")
    assert after.fields["contact"] == "First <first@example.org>"
    assert after.fields["applications"] == "Other programs"
    assert after.fields["change_controller"] == entry.fields["change_controller"]


def test_a_form_filled_before_the_entry_changed_opens_no_update(fresh: Site) -> None:
    sign_in(fresh, "rita")
    change = "/r/uri-schemes/proviso/change"
    answer = send(fresh, change, change, kind="update", version="1", field__contact="X <x@example.org>")
    assert answer.status_code == 412


def test_nobody_is_told_that_what_an_update_leaves_alone_is_missing(fresh: Site) -> None:
    sign_in(fresh, "rita")
    change = "/r/uri-schemes/proviso/change"
    asked = asked_for(fresh, send(fresh, change, change, kind="update", field__contact="R <r@example.org>"))
    page = f"/requests/{asked.id}/edit"
    fragment = {"hx-request": "true"}
    given = {
        "registry": "uri-schemes",
        "request": asked.id,
        "field__name": "proviso",
        "status": "provisional",
    }
    checked = send(fresh, "/submit/check", page, fragment, **given)
    assert "is missing" not in checked.text
    assert "cannot be reached" not in checked.text
    # what the text says counts more than what the entry has
    written = send(
        fresh, "/submit/check", page, fragment, **given, template="Scheme name: proviso\nContact:\n"
    )
    assert "is empty" in written.text
    fresh.act("rita", EventKind.SUBMIT, about=asked.id)
    review = fresh.get(f"/requests/{asked.id}/review", fresh.headers("ian")).text
    assert "Every required field is filled." in review
    assert "Check report" in review
    assert "field-missing" not in review


@pytest.mark.requirement("rfc7595-7.3-d", "rfc7595-7.3-e", "rfc7595-7.3-f", "rfc7595-7.3-g")
@as_subtests(
    ("status", "kinds", "statuses"),
    [
        (
            "provisional",
            ["update", "status-change", "note-separate-use", "reassign"],
            ["permanent", "historical"],
        ),
        ("permanent", ["update", "status-change", "note-separate-use"], ["historical"]),
        ("historical", ["update", "note-separate-use"], []),
        ("pending-review", ["note-separate-use"], []),
    ],
)
def test_a_change_is_offered_only_where_a_clause_defines_it(status, kinds, statuses):
    found = build_change_requests(Entry(registry="uri-schemes", name="kite", status=Status(status)))
    assert [action.kind for action in found] == kinds
    fields = (field for action in found for field in action.fields if field.id == "status")
    assert [choice.value for field in fields for choice in field.choices] == statuses


def test_the_form_of_a_request_under_review_does_not_find_its_own_name_taken(fresh: Site) -> None:
    sign_in(fresh, "rita")
    edit = f"/requests/{fresh.ids['more']}/edit"
    form = {
        "registry": "uri-schemes",
        "request": fresh.ids["more"],
        "template": TEMPLATE.format(name="morey", status="Permanent"),
    }
    found = send(fresh, "/submit/check", edit, {"hx-request": "true"}, **form)
    assert "Check report" in found.text
    assert "name-taken" not in found.text
    assert "name-requested" not in found.text


def test_the_entry_notes_the_separate_use_that_was_typed(imported: Site) -> None:
    sign_in(imported, "rita")
    change = "/r/uri-schemes/acd/change"
    use = "Addresses of the Association of Careful Dancers."
    asked = asked_for(imported, send(imported, change, change, kind="note-separate-use", use=use))
    imported.act("rita", EventKind.SUBMIT, about=asked.id)
    imported.act("ian", EventKind.CHECK_COMPLETE, about=asked.id)
    imported.act("eve", EventKind.APPROVE, about=asked.id, reason="Both are in use.")
    entry = imported.world.do(imported.world.store.entry, "uri-schemes", "acd")
    assert entry.notes[-1].kind == "separate-use"
    assert use in entry.notes[-1].text


@pytest.mark.parametrize("status", ["Permanant", "", "?"])
def test_a_status_that_is_misspelt_or_missing_is_refused_and_becomes_no_other(
    fresh: Site, status: str
) -> None:
    sign_in(fresh, "rita")
    text = TEMPLATE.format(name="statusy", status=status)
    answer = send(fresh, "/submit", "/submit", registry="uri-schemes", template=text)
    assert answer.status_code == 409
    assert "Permanent, Provisional, Historical" in answer.text
    assert "Scheme name: statusy" in answer.text, "what was typed is still there"
    chosen = send(fresh, "/submit", "/submit", registry="uri-schemes", template=text, status="historical")
    assert asked_for(fresh, chosen).status == "historical"


@pytest.mark.parametrize("written", ["Permanent", "permanent.", '"Permanent" (see section 3)'])
def test_the_status_of_a_template_is_read_as_the_checker_reads_it(fresh: Site, written: str) -> None:
    sign_in(fresh, "rita")
    text = TEMPLATE.format(name="statusy", status=written)
    assert asked_for(
        fresh, send(fresh, "/submit", "/submit", registry="uri-schemes", template=text)
    ).status == ("permanent")


def test_an_update_of_a_deprecated_parameter_and_of_a_suspended_namespace_can_be_revised(fresh: Site) -> None:
    sign_in(fresh, "rita")
    parameter = next(entry.name for entry in load_builtin_snapshot("llm-parameters").entries)
    fresh.act("eve", EventKind.RETIRE, name=parameter, registry="llm-parameters", reason="Not used.")
    fresh.act("ian", EventKind.SUSPEND, name="robots", registry="ai-namespaces", reason="Abuse.")
    for registry, name in (("llm-parameters", parameter), ("ai-namespaces", "robots")):
        change = f"/r/{registry}/{name}/change"
        asked = asked_for(fresh, send(fresh, change, change, kind="update", field__description="First."))
        edit = f"/requests/{asked.id}/edit"
        page = fresh.get(edit)
        (select,) = re.findall(r'<select id="status".*?</select>', page.text, re.DOTALL)
        (offered,) = re.findall(r'<option value="([^"]*)"', select)
        revised = send(
            fresh, "/submit", edit, registry=registry, request=asked.id, version=str(asked.version),
            step="revise", status=offered, field__description="Second.",
        )  # fmt: skip
        again = asked_for(fresh, revised)
        assert again.fields["description"] == "Second."
        assert again.status == asked.status


def test_a_revised_update_keeps_the_status_whatever_its_template_says(fresh: Site) -> None:
    sign_in(fresh, "rita")
    change = "/r/uri-schemes/proviso/change"
    asked = asked_for(fresh, send(fresh, change, change, kind="update", field__contact="R <r@example.org>"))
    text = TEMPLATE.format(name="proviso", status="Permanent")
    revised = send(
        fresh, "/submit", f"/requests/{asked.id}/edit", registry="uri-schemes", request=asked.id,
        version=str(asked.version), step="revise", template=text,
    )  # fmt: skip
    assert asked_for(fresh, revised).status == "provisional"


def test_a_removal_is_undone_where_its_name_was(fresh: Site) -> None:
    sign_in(fresh, "ian")
    entry, change = "/r/uri-schemes/proviso", "/r/uri-schemes/proviso/change"
    gone = send(
        fresh, f"{entry}/events", change, kind="override", version="2", status="remove", reason="By mistake."
    )
    assert gone.status_code == 303, gone.text
    missing = fresh.get(entry)
    assert missing.status_code == 404
    assert change in missing.text
    (action,) = list_actions(fresh.get(change).text)
    (number,) = action.choices["undoes"]
    refused = send(fresh, f"{entry}/events", change, kind="retire", version="0", reason="x")
    assert refused.status_code == 404
    back = send(
        fresh, f"{entry}/events", change, kind="override", version="0", undoes=number, reason="It is used."
    )
    assert (back.status_code, back.headers["location"].split("?")[0]) == (303, entry)
    assert "It is used." in fresh.get(entry).text
    # what was undone is an override too, and is undone the same way
    found = list_actions(fresh.get(change).text)
    assert [action.label for action in found if action.kind == "override"] == [
        "Override",
        "Override the controllers",
    ]


def test_the_last_override_is_undone_from_the_page_of_changes(fresh: Site) -> None:
    sign_in(fresh, "ian")
    events, change = "/r/uri-schemes/proviso/events", "/r/uri-schemes/proviso/change"
    said = {"kind": "override", "status": "historical", "reason": "By mistake."}
    assert send(fresh, events, change, version="2", **said).status_code == 303
    (undo,) = [
        action for action in list_actions(fresh.get(change).text) if action.label == "Undo the last override"
    ]
    (number,) = undo.choices["undoes"]
    done = send(fresh, events, change, kind="override", version="3", undoes=number, reason="It was one.")
    assert done.status_code == 303, done.text
    assert 'class="status status-provisional"' in fresh.get("/r/uri-schemes/proviso").text


def test_nobody_else_is_offered_what_undoes_a_removal(fresh: Site) -> None:
    fresh.act("ian", EventKind.OVERRIDE, name="proviso", remove=True, reason="By mistake.")
    change = "/r/uri-schemes/proviso/change"
    for login in (None, "rita", "eve"):
        page = fresh.get(change, fresh.headers(login)).text
        assert not list_actions(page)
        assert "Removed on" in page
    assert list_actions(fresh.get(change, fresh.headers("ingo")).text)
    assert fresh.get("/r/uri-schemes/never-was/change").status_code == 404
    # a row that only waited for review, and went with its request, was no entry
    assert fresh.get("/r/uri-schemes/rejecty/change").status_code == 404
    missing = fresh.get("/r/uri-schemes/rejecty", accept="application/json")
    assert missing.status_code == 404
    assert "removed" not in missing.text


def test_who_controls_an_entry_is_the_iesgs_to_override(fresh: Site) -> None:
    change = "/r/uri-schemes/proviso/change"

    def asked(login: str) -> list[str]:
        found = list_actions(fresh.get(change, fresh.headers(login)).text)
        (action,) = [action for action in found if action.label == "Override the controllers"]
        return action.fields

    assert asked("ian") == ["iesg_approved", "reason"]
    assert asked("ingo") == ["registrant", "change_controller", "iesg_approved", "reason"]
    sign_in(fresh, "ingo")
    said = {"kind": "override", "version": "2", "reason": "Its author has left."}
    both = send(fresh, "/r/uri-schemes/proviso/events", change, **said, registrant="eve", status="historical")
    assert both.status_code == 409, both.text
    done = send(
        fresh, "/r/uri-schemes/proviso/events", change, **said, registrant="eve",
        change_controller="Eve Example", iesg_approved="",
    )  # fmt: skip
    assert done.status_code == 303, done.text
    entry = fresh.world.do(fresh.world.store.entry, "uri-schemes", "proviso")
    assert (entry.registrant, entry.fields["change_controller"]) == ("user-eve", "Eve Example")
    assert not entry.iesg_approved


def test_an_entry_that_is_nobodys_says_who_can_change_it(imported: Site) -> None:
    assert "none; the IESG can reassign the entry" in imported.get("/r/uri-schemes/acd").text
    assert "<dt>Registrant</dt>" not in imported.get("/r/uri-schemes/proviso").text


@pytest.mark.parametrize(
    ("registry", "status", "said"),
    [
        ("uri-schemes", Status.PERMANENT, "The IESG decides"),
        ("uri-schemes", Status.PENDING_REVIEW, ""),
        ("ai-namespaces", Status.ACTIVE, "IANA can record one"),
    ],
)
def test_who_can_change_what_is_nobodys_depends_on_its_registry_and_status(
    registry: str, status: Status, said: str
) -> None:
    found = describe_missing_registrant(Entry(registry=registry, name="a", status=status))
    assert said in found
    assert bool(found) is bool(said)
