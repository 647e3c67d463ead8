"""Errors as answers, conditional requests, cursors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from onym import errors
from onym.errors import RegistryError, StaleError
from onym.server import responses
from onym.server.responses import (
    MAX_PAGE,
    is_fresh,
    make_entity_tag,
    make_version_tag,
    parse_cursor,
    parse_page_size,
    require_match,
)
from server_support import World, world

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("problems")) as found:
        yield found


def every_class() -> list[type[errors.OnymError]]:
    public = (kind for name, kind in vars(errors).items() if not name.startswith("_"))
    return [kind for kind in public if isinstance(kind, type) and issubclass(kind, errors.OnymError)]


def test_every_error_class_is_in_the_table() -> None:
    for kind in every_class():
        home = next(base for base in kind.__mro__ if base in responses.PROBLEM_TYPES_BY_CLASS)
        assert responses.PROBLEM_TYPES_BY_CLASS[home].status == kind.http_status, kind


@pytest.mark.parametrize(
    "kind",
    dict.fromkeys([*responses.PROBLEM_TYPES_BY_CLASS.values(), *responses.PROBLEM_TYPES_BY_CODE.values()]),
    ids=lambda kind: kind.slug,
)
def test_every_kind_is_an_error_with_a_page_that_says_so(site: World, kind: responses.ProblemType) -> None:
    assert 400 <= kind.status < 600
    answer = site.client.get(f"/problems/{kind.slug}")
    assert answer.status_code == 200
    assert kind.title in answer.text


def test_an_unknown_problem_is_not_found(site: World) -> None:
    assert site.client.get("/problems/none").status_code == 404


def test_a_subclass_takes_the_row_of_its_parent() -> None:
    class Special(errors.StaleError):
        pass

    assert responses.get_problem_type(Special("x")).status == 412


def test_a_refusal_is_told_with_rule_clause_and_hint(site: World) -> None:
    answer = site.client.get("/fail/refusal")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body.pop("instance") == "urn:uuid:" + answer.headers["x-request-id"]
    assert body == {
        "type": "https://registry.example.org/problems/refused",
        "title": "The procedure does not allow this step",
        "status": 409,
        "detail": "not in this state",
        "code": "registry.not-allowed",
        "hint": "announce it first",
        "clause": "RFC 7595 7.2",
        "rule": "R4",
    }


@pytest.mark.parametrize(("what", "status"), [("store", 503), ("onym", 500), ("bug", 500)])
@pytest.mark.parametrize("headers", [{}, HTML])
def test_a_fault_of_ours_tells_nothing_but_its_number(
    site: World, what: str, status: int, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    answer = site.client.get(f"/fail/{what}", headers=headers)
    assert answer.status_code == status
    assert "sekret" not in answer.text
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["x-request-id"] in caplog.text


def test_a_browser_gets_a_page(site: World) -> None:
    answer = site.client.get("/fail/refusal", headers=HTML)
    assert answer.headers["content-type"].startswith("text/html")
    assert "announce it first" in answer.text
    assert "RFC 7595 7.2" in answer.text


def test_the_api_gets_problem_details_whatever_it_accepts(site: World) -> None:
    answer = site.client.get("/api/v1/none", headers=HTML)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_page_that_needs_an_account_says_where_to_sign_in(site: World) -> None:
    answer = site.client.get("/account", headers=HTML)
    assert answer.status_code == 401
    assert 'href="/login"' in answer.text
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_unknown_addresses_and_methods_are_told(site: World) -> None:
    assert site.client.get("/none").json()["code"] == "http.404"
    answer = site.client.delete("/who")
    assert (answer.status_code, answer.json()["code"]) == (405, "http.405")
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(("status", "code"), [(404, "http.404"), (418, "http.400"), (500, "onym.error")])
def test_starlettes_errors_have_a_row(status: int, code: str) -> None:
    from starlette.exceptions import HTTPException

    assert responses._convert_http_error(HTTPException(status)).code == code


# conditional requests


def asking(**headers: str) -> Request:
    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "headers": pairs})


def test_a_get_of_what_is_known_is_304(site: World) -> None:
    first = site.client.get("/thing")
    again = site.client.get("/thing", headers={"if-none-match": first.headers["etag"]})
    other = site.client.get("/thing", headers={"if-none-match": '"8-json"'})
    assert (first.status_code, again.status_code, other.status_code) == (200, 304, 200)
    assert again.text == ""


@pytest.mark.parametrize("header", ['"7-json"', '"1-json", "7-json"', 'W/"7-json"', "*"])
def test_fresh(header: str) -> None:
    assert is_fresh(asking(if_none_match=header), '"7-json"')


@pytest.mark.parametrize("header", ['"7-html"', "7-json", '"7-json', "", ",,,"])
def test_not_fresh(header: str) -> None:
    assert not is_fresh(asking(if_none_match=header), '"7-json"')


@pytest.mark.parametrize("header", ['"7-json"', '"7-html"', '"7"', "*", '"1-json", "7-json"'])
def test_a_write_that_names_the_version_goes_on(site: World, header: str) -> None:
    answer = site.client.put("/thing", headers={"if-match": header})
    assert answer.json() == {"expected": 7}


@pytest.mark.parametrize("header", ['"6-json"', 'W/"7-json"', '"70-json"', '"x"'])
def test_a_write_that_names_another_version_is_412_and_told_which(site: World, header: str) -> None:
    answer = site.client.put("/thing", headers={"if-match": header})
    assert answer.status_code == 412
    assert answer.json()["version"] == 7


@pytest.mark.parametrize("headers", [{}, {"if-match": ""}, {"if-match": "7"}])
def test_a_write_that_names_no_version_is_428(site: World, headers: dict[str, str]) -> None:
    answer = site.client.put("/thing", headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (428, "If-Match")


def test_tags_tell_versions_variants_and_bodies_apart() -> None:
    tags = {make_version_tag(1, "json"), make_version_tag(2, "json"), make_version_tag(1, "html")}
    assert len(tags) == 3
    assert make_entity_tag(b"a") != make_entity_tag(b"b")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=300))
def test_any_if_match_is_answered(header: str) -> None:
    try:
        found = require_match(asking(if_match=header), 7)
    except (StaleError, RegistryError) as error:
        found = responses.get_problem_type(error).status
    assert found in {7, 412, 428}


# lists


@pytest.mark.parametrize("limit", ["0", "-1", "201", "x", "1e2", "9" * 50, "٣"])
def test_a_limit_that_is_none_is_refused(site: World, limit: str) -> None:
    answer = site.client.get("/list", params={"limit": limit})
    assert (answer.status_code, answer.json()["field"]) == (400, "limit")


def test_limits_and_cursors_have_their_form() -> None:
    assert (parse_page_size(None), parse_page_size("", 7), parse_page_size("200")) == (50, 7, MAX_PAGE)
    assert (parse_cursor(None), parse_cursor(""), parse_cursor("aGk=")) == (None, None, "aGk=")


@pytest.mark.parametrize("after", ["a b", "é", "x" * 513, "'; DROP TABLE", "\0"])
def test_a_cursor_that_is_none_is_refused(site: World, after: str) -> None:
    answer = site.client.get("/list", params={"after": after})
    assert (answer.status_code, answer.json()["field"]) == (400, "after")
