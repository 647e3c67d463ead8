"""The application as it is served: the registry's own routes and pages on this plumbing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.websockets import WebSocketDisconnect

import onym.server
from onym.accounts.oidc import OIDCProvider
from onym.errors import MalformedResponseError
from onym.server.clients import CSRFKey
from onym.server.sessions import Visitor, get_visitor
from onym.server.settings import Issuer, Smtp
from onym.uri.secret import Secret
from server_support import ALICE, START, World, settings, world
from support import free_port

HTML = {"accept": "text/html"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, routes=None, clock=None) as found:
        yield found


def test_the_registrys_pages_sign_in_and_show_the_account(site: World) -> None:
    assert site.client.get("/", headers=HTML).status_code == 200
    answer = site.sign_in(next="/account")
    assert answer.status_code == 303, answer.text
    page = site.client.get("/account", headers=HTML)
    assert page.status_code == 200
    assert "Alice Example" in page.text


def test_the_registrys_pages_show_a_wrong_password(site: World) -> None:
    answer = site.sign_in(password="wrong password!!")
    assert answer.status_code == 401
    assert "login or password is wrong" in answer.text


def test_the_registrys_pages_show_a_new_token_once(site: World) -> None:
    site.sign_in()
    data = {"csrf_token": site.csrf("/account"), "label": "ci", "scopes": ["read"]}
    page = site.client.post("/account/tokens", data=data, headers=HTML)
    assert page.status_code == 201, page.text
    assert re.search(r"onym_reg_[\w-]{43}", page.text)


@pytest.mark.parametrize(("path", "status"), [("/no/such", 404), ("/account", 401), ("/r/none", 404)])
def test_the_registrys_pages_show_errors(site: World, path: str, status: int) -> None:
    answer = site.client.get(path, headers=HTML)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert f"Error {status}" in answer.text


@pytest.mark.parametrize("path", ["/", "/login", "/no/such", "/help", "/submit"])
def test_no_page_needs_what_the_policy_forbids(site: World, path: str) -> None:
    page = site.client.get(path, headers=HTML).text
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
    assert not re.search(
        r"(?:src|href)=\"(?:https?:)?//(?!www\.rfc-editor|www\.iana|datatracker)[^\"]+\.(?:js|css)", page
    )


def test_the_clock_of_the_service_is_utc(site: World) -> None:
    assert site.app.state.services.clock().tzinfo is UTC


def test_a_websocket_is_turned_away(site: World) -> None:
    with pytest.raises(WebSocketDisconnect), site.client.websocket_connect("/who"):
        pass


def test_the_mail_task_ends_with_the_application(tmp_path: Path) -> None:
    smtp = Smtp(host="127.0.0.1", port=free_port(), sender="registry@example.org", security="none")
    with world(tmp_path, settings(smtp=smtp)) as site:
        assert site.client.get("/who").status_code == 200


def test_names_are_loaded_late() -> None:
    assert set(onym.server.__all__) <= set(dir(onym.server))
    assert all(getattr(onym.server, name) for name in onym.server.__all__)
    with pytest.raises(AttributeError):
        _ = onym.server.nothing


# other small things


def request() -> Request:
    return Request({"type": "http", "headers": [], "path": "/"})


def test_without_the_middlewares_nobody_is_there() -> None:
    assert (
        get_visitor(request()) == Visitor(form_key=get_visitor(request()).form_key)
        or get_visitor(request()).account is None
    )
    assert Visitor().list_roles("uri-schemes") == frozenset()
    assert not Visitor(account=ALICE).is_administrator


def test_a_form_key_is_made_when_it_is_needed() -> None:
    key = CSRFKey()
    assert not key.matches_token("x")
    assert key.matches_token(key.token)
    assert key.made
    assert key.token == CSRFKey(key.get_secret()).token
    assert key.get_secret().reveal() not in key.token
    assert not CSRFKey(Secret("a")).made


@pytest.mark.parametrize(
    "url",
    [
        "https://x.example/#f",
        "https://u@x.example/",
        "ftp://x.example/",
        "https:///x",
        "/x",
        "https://x.example/%",
        "",
    ],
)
def test_an_endpoint_that_is_no_address_is_refused(url: str) -> None:
    provider = OIDCProvider(
        Issuer(id="x", issuer="https://x.example", client_id="c"), "https://r.example/callback", float
    )
    with pytest.raises(MalformedResponseError):
        provider._parse_url(url)


def test_an_endpoint_keeps_its_port_and_query() -> None:
    provider = OIDCProvider(
        Issuer(id="x", issuer="https://x.example", client_id="c"), "https://r.example/callback", float
    )
    origin, target = provider._parse_url("https://x.example:8443?a=b")
    assert (str(origin), target) == ("https://x.example:8443", "/?a=b")
    assert START.tzinfo is UTC
