"""API tokens: made by their owner, shown once, revoked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onym.accounts.records import is_token
from onym.registry.records import TOKEN_PREFIX
from onym.server.sign_in import MAX_TOKENS
from server_support import World, world

HTML = {"accept": "text/html"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


def test_a_token_is_shown_once_and_works(site: World) -> None:
    site.sign_in()
    data = {
        "csrf_token": site.csrf("/account"),
        "label": " ci \n server",
        "scopes": ["read", "submit"],
        "days": "30",
    }
    page = site.client.post("/account/tokens", data=data, headers=HTML)
    assert page.status_code == 201
    assert page.headers["cache-control"] == "no-store"
    secret = re.search(r"onym_reg_[\w-]+", page.text)
    assert secret is not None
    assert is_token(secret[0], TOKEN_PREFIX)
    again = site.client.get("/account", headers=HTML)
    assert secret[0] not in again.text
    assert "ci server" in again.text
    site.client.cookies.clear()
    found = site.client.get("/who", headers={"authorization": f"Bearer {secret[0]}"}).json()
    assert found["scopes"] == ["read", "submit"]
    (kept,) = site.do(site.store.tokens.list, "user-alice")
    assert secret[0] not in repr(kept)
    assert kept.expires == site.clock.now() + timedelta(days=30)


def test_a_token_is_revoked_by_its_owner_alone(site: World) -> None:
    header = site.token("read")
    site.sign_in("root")
    data = {"csrf_token": site.csrf("/account")}
    assert site.client.post("/account/tokens/token-0/revoke", data=data).status_code == 404
    site.client.cookies.clear()
    site.sign_in()
    data = {"csrf_token": site.csrf("/account")}
    answer = site.client.post("/account/tokens/token-0/revoke", data=data, follow_redirects=False)
    assert answer.status_code == 303
    site.client.cookies.clear()
    assert site.client.get("/who", headers=header).status_code == 401
    assert [record.action for record in site.audit()][-1] == "token.revoke"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scopes": ["root"]}, "scopes"),
        ({"scopes": []}, "scopes"),
        ({"label": ""}, "label"),
        ({"label": "x" * 101}, "label"),
        ({"label": "a\u202eb"}, "label"),
        ({"days": "0"}, "days"),
        ({"days": "366"}, "days"),
        ({"days": "x"}, "days"),
        ({"label": ["a", "b"]}, "label"),
        ({"label": "x" * 20_000}, "label"),
    ],
)
def test_a_token_that_cannot_be_is_refused_with_its_field(
    site: World, change: dict[str, Any], field: str
) -> None:
    site.sign_in()
    data = {"csrf_token": site.csrf("/account"), "label": "x", "scopes": ["read"], "days": "", **change}
    answer = site.client.post("/account/tokens", data=data)
    assert answer.status_code in {400, 422}
    assert answer.json()["field"] == field
    assert site.do(site.store.tokens.list, "user-alice") == ()


def test_the_api_makes_lists_and_revokes(site: World) -> None:
    header = site.token("read", "submit")
    made = site.client.post(
        "/api/v1/account/tokens", json={"label": "a", "scopes": ["read"], "days": 1}, headers=header
    )
    assert made.status_code == 201
    body = made.json()
    assert is_token(body["token"], TOKEN_PREFIX)
    listed = site.client.get("/api/v1/account/tokens", headers=header)
    assert [token["label"] for token in listed.json()["tokens"]] == ["test", "a"]
    assert "onym_reg_" not in listed.text
    gone = site.client.delete(f"/api/v1/account/tokens/{body['id']}", headers=header)
    assert gone.status_code == 204
    assert site.client.get("/who", headers={"authorization": f"Bearer {body['token']}"}).status_code == 401
    assert site.client.delete("/api/v1/account/tokens/none", headers=header).status_code == 404


def test_a_token_makes_none_that_may_do_more_or_lives_longer(site: World) -> None:
    end = site.clock.now() + timedelta(days=2)
    header = site.token("read", expires=end)
    more = site.client.post(
        "/api/v1/account/tokens", json={"label": "a", "scopes": ["admin"]}, headers=header
    )
    assert (more.status_code, more.json()["code"]) == (403, "accounts.missing-scope")
    same = site.client.post("/api/v1/account/tokens", json={"label": "a", "scopes": ["read"]}, headers=header)
    assert datetime.fromisoformat(same.json()["expires"]) == end


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"label": 1}', b'{"label":"a","scopes":["read"],"x":1}', b"\xff", b"x" * 20_000]
)
def test_a_body_that_is_no_order_is_refused(site: World, body: bytes) -> None:
    answer = site.client.post("/api/v1/account/tokens", content=body, headers=site.token("read"))
    assert (answer.status_code, answer.json()["code"]) == (400, "http.bad-form")


def test_an_account_has_only_so_many_tokens(site: World) -> None:
    header = site.token("read")
    for _ in range(MAX_TOKENS - 1):
        site.token("read")
    site.token("read", expires=site.clock.now() + timedelta(seconds=1))
    site.clock.advance(seconds=1)
    answer = site.client.post(
        "/api/v1/account/tokens", json={"label": "a", "scopes": ["read"]}, headers=header
    )
    assert answer.json()["code"] == "accounts.too-many-tokens"


def test_the_api_says_who_is_calling(site: World) -> None:
    found = site.client.get("/api/v1/account", headers=site.token("read", "review")).json()
    assert (found["login"], found["scopes"], found["via"]) == ("alice", ["read", "review"], "token")
    assert found["roles"]["uri-schemes"] == ["expert"]
    assert site.client.get("/api/v1/account").status_code == 401


def test_the_account_page_escapes_what_people_wrote(site: World) -> None:
    site.do(site.store.accounts.set_name, "user-alice", "<script>alert(1)</script>")
    site.sign_in()
    page = site.client.get("/account", headers=HTML)
    assert "<script>alert" not in page.text
