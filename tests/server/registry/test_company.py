"""A company's own registries on the web and in the API, in its own words."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from company_support import ADMINISTRATOR, COMPANY, define, load
from onym.accounts.records import Account
from onym.registry.records import Role
from onym.registry.registries import use_catalog
from onym.server import registry as room
from onym.server.registry.responses import get_template_environment
from server_support import PASSWORD_HASH, START, World, world

#: words of standards bodies
_FOREIGN = re.compile(r"\b(?:IANA|IESG|IETF|RFC|Internet-Draft|uri-review|Designated Expert|scheme)s?\b")
_PEOPLE = {"rita": frozenset[Role](), "olga": frozenset({Role.IANA}), "arno": frozenset({Role.EXPERT})}


@pytest.fixture
def company(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, routes=room.list_routes()) as found:
        for login, roles in _PEOPLE.items():
            found.do(
                found.store.accounts.add,
                Account(
                    id=f"user-{login}", login=login, name=login.capitalize(), email=None,
                    password_hash=PASSWORD_HASH, roles={"services": roles} if roles else {}, created=START,
                ),
            )  # fmt: skip
        found.do(found.store.apply, define(load(tmp_path)), ADMINISTRATOR, found.clock.now())
        yield found


def _post(company: World, login: str, path: str, page: str, **data: str) -> str:
    company.client.cookies.clear()
    assert company.sign_in(login).status_code == 303
    form = {"csrf_token": company.csrf(page), **data}
    answer = company.client.post(path, data=form, headers={"accept": "text/html"}, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"]).partition("?")[0]


def _register(company: World, name: str) -> str:
    """Take a name through the procedure, by forms; return the request's page."""
    request = _post(
        company, "rita", "/submit", "/submit?registry=services",
        registry="services", **{"field.name": name, "field.owner": "Payments"},
    )  # fmt: skip
    events = f"{request}/events"
    _post(company, "rita", events, request, kind="submit", version="1")
    _post(company, "olga", events, request, kind="check-complete", version="2")
    _post(company, "arno", events, f"{request}/review", kind="approve", version="3", reason="Clear.")
    return request


def _read(company: World, path: str) -> str:
    answer = company.client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 200, (path, answer.text)
    return answer.text


def _find_text(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def _list_foreign_words(company: World, *paths: str) -> dict[str, list[str]]:
    found = {path: _FOREIGN.findall(_find_text(_read(company, path))) for path in paths}
    return {path: words for path, words in found.items() if words}


def test_the_home_page_has_the_company_s_registries_and_name(company: World) -> None:
    page = _find_text(_read(company, "/"))
    assert "Example AG names" in page
    assert "Internal services" in page
    assert "Message topics" in page
    assert "One name for each internal service." in page
    assert "Uniform Resource Identifier" not in page


def test_a_name_goes_through_the_company_s_procedure_by_forms(company: World) -> None:
    _register(company, "billing")
    entry = company.do(company.store.entry, "services", "billing")
    assert (str(entry.status), dict(entry.fields)) == ("registered", {"owner": "Payments"})
    assert "In use" in _find_text(_read(company, "/r/services/billing"))
    assert company.do(company.store.verify).entries == 1


def test_no_page_speaks_of_iana(company: World) -> None:
    request = _register(company, "billing")
    waiting = _post(
        company, "rita", "/submit", "/submit",
        registry="services", **{"field.name": "rating", "field.owner": "Risk"},
    )  # fmt: skip
    _post(company, "rita", f"{waiting}/events", waiting, kind="submit", version="1")
    topic = _post(
        company,
        "rita",
        "/submit",
        "/submit",
        registry="topics",
        status="permanent",
        **{"field.name": "orders"},
    )
    roles = {"*": frozenset({Role.IANA, Role.EXPERT, Role.IESG})}
    boss = Account(
        id="user-boss", login="boss", name="Boss", email=None, password_hash=PASSWORD_HASH, roles=roles,
        created=START,
    )  # fmt: skip
    company.do(company.store.accounts.add, boss)
    paths = [
        "/", "/r/services", "/r/topics", "/r/services/billing", "/r/services/billing/change",
        "/search?q=billing",
        "/requests", request, waiting, f"{waiting}/review", topic, "/submit?registry=services",
        "/submit?registry=topics", "/help", "/queue/registrar", "/queue/reviewer", "/queue/board", "/account",
        "/audit", "/statistics",
    ]  # fmt: skip
    company.client.cookies.clear()
    company.sign_in("boss")
    assert _list_foreign_words(company, *paths) == {}
    company.client.cookies.clear()
    company.sign_in("rita")
    assert _list_foreign_words(company, topic, waiting, f"{topic}/edit") == {}


#: what a registry without these statuses, discussion and appeals does not have
_ABSENT = ("Pending Review", "appeal", "Discussion", "discussed", "announce", "List review", "optional:")


def test_a_simple_registry_shows_the_statuses_and_steps_that_it_has(company: World, tmp_path: Path) -> None:
    simple = COMPANY.partition('[[registries]]\nid = "topics"')[0]
    # the company's other registry has more statuses and steps: a service of its own
    company.do(company.store.apply, define(load(tmp_path, COMPANY)), ADMINISTRATOR, company.clock.now())
    request = _register(company, "billing")
    company.client.cookies.clear()
    company.sign_in("root")
    for path in (request, "/r/services", "/requests?registry=services", "/r/services/billing"):
        text = _find_text(_read(company, path))
        assert [word for word in _ABSENT if word in text] == [], path
    assert 'value="pending-review"' not in _read(company, "/r/services")
    (tmp_path / "alone").mkdir()
    with world(tmp_path / "alone", routes=room.list_routes()) as alone:
        alone.do(alone.store.apply, define(load(tmp_path, simple)), ADMINISTRATOR, alone.clock.now())
        for path in ("/", "/requests", "/help", "/statistics", "/r/services", "/search?q=x"):
            text = _find_text(_read(alone, path))
            assert [word for word in _ABSENT if word in text] == [], path
        document = alone.client.get("/openapi.json").json()
        found = {
            row["name"]: row["schema"].get("enum")
            for path in ("/api/v1/registries/{registry}/entries", "/api/v1/requests")
            for row in document["paths"][path]["get"]["parameters"]
        }
        assert found["status"] == ["registered", "deprecated"]
        assert not {"list-review", "ietf-review", "timed-out-to-provisional", "appeal"} & set(found["state"])
        assert "uri-schemes" not in alone.client.get("/openapi.json").text
        row = alone.client.get("/api/v1/registries/services").json()
        assert row["statuses"] == ["registered", "deprecated"]


def test_the_help_page_names_who_decides_and_the_days_of_a_discussion(company: World) -> None:
    page = re.sub(r"\s+", " ", _find_text(_read(company, "/help")))
    assert "The architect should decide within 5 days." in page
    assert "optional: 1 week, Naming policy 2026-11" in page


def test_the_body_of_the_api_s_example_opens_a_request(company: World) -> None:
    operation = company.client.get("/openapi.json").json()["paths"]["/api/v1/requests"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["example"]
    rita = company.token("read", "submit", account="user-rita")
    answer = company.client.post("/api/v1/requests", json=body, headers=rita)
    assert (answer.status_code, answer.json().get("registry")) == (201, "services"), answer.text
    check = company.client.get("/openapi.json").json()["paths"]["/api/v1/check"]["post"]
    body = check["requestBody"]["content"]["application/json"]["example"]
    assert company.client.post("/api/v1/check", json=body).status_code == 200


def test_the_pages_use_the_definition_s_words_and_labels(company: World) -> None:
    waiting = _post(
        company, "rita", "/submit", "/submit",
        registry="services", **{"field.name": "rating", "field.owner": "Risk"},
    )  # fmt: skip
    _post(company, "rita", f"{waiting}/events", waiting, kind="submit", version="1")
    assert "the naming office" in _find_text(_read(company, waiting))
    _post(company, "olga", f"{waiting}/events", waiting, kind="check-complete", version="2")
    company.client.cookies.clear()
    company.sign_in("arno")
    page = _find_text(_read(company, f"{waiting}/review"))
    assert "Accept the name" in page
    assert "the architect" in _find_text(_read(company, waiting))


def test_the_words_are_put_in_when_a_page_is_drawn(tmp_path: Path) -> None:
    template = get_template_environment().from_string('{{ "IANA checks it."|words }}')
    assert template.render() == "IANA checks it."
    with use_catalog(load(tmp_path).catalog):
        assert template.render() == "The naming office checks it."
    assert template.render() == "IANA checks it."


def test_the_form_has_the_company_s_fields_and_their_help(company: World) -> None:
    page = _read(company, "/submit?registry=services")
    assert "Owning team" in page
    assert "The URL of the service inside the network." in page
    assert 'name="field.endpoint"' in page


def test_the_api_has_the_company_s_registries_only(company: World) -> None:
    found = company.client.get("/api/v1/registries").json()["registries"]
    assert [row["id"] for row in found] == ["services", "topics"]
    assert found[0]["columns"][1] == {"id": "owner", "heading": "Owning team"}
    answer = company.client.get("/api/v1/registries/uri-schemes")
    assert (answer.status_code, answer.json()["code"]) == (404, "registry.unknown-registry")
    enums = re.findall(r'"enum":\["services","topics"\]', company.client.get("/openapi.json").text)
    assert enums


def test_a_request_goes_through_the_api(company: World) -> None:
    body = {"registry": "services", "name": "ledger", "fields": {"owner": "Accounting"}}
    rita = company.token("read", "submit", account="user-rita")
    answer = company.client.post("/api/v1/requests", json=body, headers=rita)
    assert answer.status_code == 201, answer.text
    assert answer.json()["profile"] == "services"


def test_a_field_that_the_definition_does_not_have_is_refused(company: World) -> None:
    body = {"registry": "services", "name": "ledger", "fields": {"applications": "x"}}
    rita = company.token("read", "submit", account="user-rita")
    answer = company.client.post("/api/v1/requests", json=body, headers=rita)
    assert (answer.status_code, answer.json()["code"]) == (409, "registry.bad-data")


def test_nobody_defines_registries_through_the_web(company: World) -> None:
    _register(company, "billing")
    root = company.token("read", "iana", account="user-root")
    path = "/api/v1/registries/services/entries/billing"
    tag = company.client.get(path, headers=root).headers["etag"]
    answer = company.client.post(
        f"{path}/events", json={"event": "define", "data": {}}, headers={**root, "if-match": tag}
    )
    assert (answer.json()["code"]) == "registry.not-allowed"


def test_a_new_definition_is_shown_to_the_next_visitor(company: World, tmp_path: Path) -> None:
    text = COMPANY.replace('title = "Internal services"', 'title = "Services of the house"')
    company.do(company.store.apply, define(load(tmp_path, text)), ADMINISTRATOR, company.clock.now())
    assert "Services of the house" in _read(company, "/")


def test_a_long_text_is_checked_in_the_child_with_the_same_registries(company: World) -> None:
    company.sign_in("rita")
    text = "Service: ledger\nOwning team: Accounting\n\n" + "Endpoint: x\n" + "word " * 8_000
    data = {"csrf_token": company.csrf("/submit"), "registry": "services", "template": text}
    answer = company.client.post(
        "/submit/check", data=data, headers={"accept": "text/html", "hx-request": "true"}
    )
    assert answer.status_code == 200
    assert "no errors" in _find_text(answer.text).lower()
