"""Forms, as a browser without JavaScript sends them, and as htmx does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from server.registry.site import HOSTILE, TEMPLATE, Site


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


def test_nothing_to_check_is_said(fresh: Site) -> None:
    answer = send(fresh, "/submit/check", "/submit", {"hx-request": "true"}, registry="uri-schemes")
    assert "Nothing to check yet" in answer.text


def test_a_form_without_its_token_changes_nothing(fresh: Site) -> None:
    sign_in(fresh, "rita")
    answer = fresh.world.client.post(
        "/submit", data={"registry": "uri-schemes"}, headers={"accept": "text/html"}
    )
    assert answer.status_code == 403


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
        ("uri-schemes", "fieldy", {"field__applications": "Programs"}),
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
    assert "the name is missing" in answer.text
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
    assert without.status_code == 400
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
    }
    assert kinds("ian") == set()
    assert fresh.get(path, fresh.headers("rita")).status_code == 403
    assert fresh.get(path).status_code == 401


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
