"""What the API says beside its content: CORS for reading, and the deprecation of operations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from onym.registry.registries import REGISTRIES
from onym.server.registry import urls
from onym.server.registry.api.openapi import (
    DEPRECATIONS,
    MIN_NOTICE,
    OPERATIONS,
    Deprecation,
    build_openapi_document,
)
from onym.server.registry.api.policies import find_operation
from server.registry.site import Site
from server_support import BASE

API = urls.API_PREFIX
ELSEWHERE = {"origin": "https://elsewhere.example", "sec-fetch-site": "cross-site"}
SHARED = (
    f"{API}/registries", f"{API}/registries/uri-schemes/entries/http",
    f"{API}/registries/uri-schemes/entries?q=x",
    f"{API}/registries/uri-schemes/export/csv", f"{API}/search?q=http", f"{API}/requests", f"{API}/log",
    f"{API}/statistics", f"{API}/health", "/openapi.json", "/changes.atom",
    *(urls.feed_url(registry) for registry in REGISTRIES), "/r/uri-schemes/http/download/json",
)  # fmt: skip
OWN = (
    "/", "/r/uri-schemes", "/r/uri-schemes/http", "/requests", "/login", "/account", "/help", "/submit",
    "/statistics", f"{API}/account", f"{API}/account/tokens",
)  # fmt: skip


def get(site: Site, path: str, **headers: str) -> Any:
    return site.get(path, {**ELSEWHERE, **headers}, accept="*/*")


@pytest.mark.parametrize("path", SHARED)
def test_pages_of_other_origins_may_read_the_api_and_the_files(shared: Site, path: str) -> None:
    answer = get(shared, path)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    assert "access-control-allow-credentials" not in answer.headers
    assert {"ETag", "Link", "Sunset"} <= set(answer.headers["access-control-expose-headers"].split(", "))
    preflight = shared.world.client.options(
        path, headers={**ELSEWHERE, "access-control-request-method": "GET",
                       "access-control-request-headers": "if-none-match"},
    )  # fmt: skip
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert preflight.headers["access-control-allow-methods"] == "GET, HEAD"
    assert preflight.headers["access-control-allow-headers"] == "If-None-Match"


def test_errors_of_shared_reads_can_be_read_too(shared: Site) -> None:
    answer = get(shared, f"{API}/registries/uri-schemes/entries/no-such-scheme")
    assert answer.status_code == 404
    assert answer.headers["access-control-allow-origin"] == "*"
    tag = get(shared, SHARED[1]).headers["etag"]
    unchanged = get(shared, SHARED[1], **{"if-none-match": tag})
    assert unchanged.status_code == 304
    assert unchanged.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", OWN)
def test_pages_and_accounts_are_not_shared(shared: Site, path: str) -> None:
    answer = get(shared, path)
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_responses_to_visitors_with_an_account_are_not_shared(
    shared: Site, people: dict[str, dict[str, str]]
) -> None:
    for path in SHARED:
        assert "access-control-allow-origin" not in get(shared, path, **people["ian"]).headers


def test_a_browser_session_is_not_shared(fresh: Site) -> None:
    assert fresh.world.sign_in("rita").status_code == 303
    assert "access-control-allow-origin" not in get(fresh, SHARED[1]).headers
    assert "access-control-allow-origin" not in get(fresh, f"{API}/account").headers


def test_writes_are_never_shared(shared: Site, people: dict[str, dict[str, str]]) -> None:
    body = {"template": "Scheme name: kite", "registry": "uri-schemes"}
    for path in (f"{API}/check", f"{API}/requests"):
        for credentials in ({}, people["rita"]):
            headers = {"accept": "*/*", **ELSEWHERE, **credentials}
            answer = shared.world.client.post(path, json={**body, "registry": "none"}, headers=headers)
            assert answer.status_code >= 400
            assert "access-control-allow-origin" not in answer.headers
        preflight = shared.world.client.options(
            path, headers={**ELSEWHERE, "access-control-request-method": "POST"}
        )
        assert "POST" not in preflight.headers.get("access-control-allow-methods", "")


def test_every_operation_is_found_by_its_path() -> None:
    for operation in OPERATIONS:
        path = re.sub(r"\{[a-z]+\}", "x", API + operation.path)
        assert find_operation(operation.method, path) == operation.id
    assert find_operation("GET", "/api/v1/nothing") is None
    assert find_operation("PATCH", "/api/v1/registries") is None


SINCE = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def _deprecated(monkeypatch: pytest.MonkeyPatch) -> Any:
    row = Deprecation(since=SINCE, sunset=SINCE + MIN_NOTICE, successor=f"{BASE}/api/v2/search")
    monkeypatch.setitem(DEPRECATIONS, "searchEntries", row)
    monkeypatch.setitem(DEPRECATIONS, "listEntries", Deprecation(since=SINCE))
    build_openapi_document.cache_clear()
    yield
    build_openapi_document.cache_clear()


@pytest.mark.usefixtures("_deprecated")
def test_a_deprecated_operation_says_so_in_its_responses_and_its_description(shared: Site) -> None:
    answer = get(shared, f"{API}/search?q=http")
    assert answer.status_code == 200
    assert answer.headers["deprecation"] == f"@{int(SINCE.timestamp())}"
    assert parsedate_to_datetime(answer.headers["sunset"]) == SINCE + MIN_NOTICE
    links = dict(re.findall(r'<([^>]*)>; rel="([a-z-]+)"', answer.headers["link"]))
    policy = f"{BASE}/help#api"
    assert links == {policy: "sunset", f"{BASE}/api/v2/search": "successor-version"}
    assert f'<{policy}>; rel="deprecation"' in answer.headers["link"]
    # also an error, and with the link of the next page
    assert "deprecation" in get(shared, f"{API}/search?limit=x").headers
    paged = get(shared, f"{API}/registries/llm-parameters/entries?limit=1")
    assert paged.headers["deprecation"] == f"@{int(SINCE.timestamp())}"
    assert "sunset" not in paged.headers
    assert 'rel="next"' in paged.headers["link"]
    assert 'rel="deprecation"' in paged.headers["link"]
    described = build_openapi_document()["paths"]
    assert described[f"{API}/search"]["get"]["deprecated"] is True
    assert "deprecated" not in described[f"{API}/registries"]["get"]
    # the linked page has the policy and the operations
    page = shared.get("/help").text
    assert 'id="api"' in page
    assert "<code>searchEntries</code>" in page
    assert "2027-12-01" in page


def test_other_operations_are_not_deprecated(shared: Site) -> None:
    for path in SHARED:
        assert not {"deprecation", "sunset"} & set(get(shared, path).headers)


def test_an_operation_works_for_a_year_after_its_deprecation() -> None:
    with pytest.raises(ValueError, match="365 days"):
        Deprecation(since=SINCE, sunset=SINCE + MIN_NOTICE - timedelta(seconds=1))
