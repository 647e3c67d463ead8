"""People sign in at a gateway: a real OpenID provider, real gateways, and browsers that keep cookies."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from click.testing import CliRunner

from onym.ai.gateway.audit import verify_log
from onym.cli._output import Session
from onym.cli.commands.ai.gateway import gateway_command
from onym.errors import OnymError
from people_support import ACR, Browser, People, people
from support import free_port, mentions

pytestmark = pytest.mark.xdist_group("gateway-people")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """Two gateways that share a store, and their provider."""
    with people(tmp_path_factory.mktemp("people"), gateways=2) as found:
        yield found


def code_of(answer: object) -> tuple[int, str]:
    return answer.status, answer.json()["code"]  # type: ignore[attr-defined]


def test_a_person_signs_in_and_is_known_on_every_gateway(town: People) -> None:
    browser = Browser()
    answer = town.sign_in(browser, "zoe", target="/account?x=1")
    assert answer.headers["location"] == "/account?x=1"
    assert answer.headers["cache-control"] == "private, no-store, no-transform"
    for at in (0, 1):
        view = town.account(browser, at=at).json()
        assert (view["issuer"], view["subject"]) == (town.provider.issuer, town.provider.subject("zoe"))
        assert (view["name"], view["email"]) == ("Zoe Example", "zoe@example.net")
        assert view["authenticated"].endswith("UTC")
        assert [session["current"] for session in view["sessions"]] == [True]
    page = browser.open(town.ports[0], "GET", "/account")
    assert page.status == 200
    assert b"Zoe Example" in page.body
    records = [line for line in town.events("sign-in") if line.get("person")]
    assert records[-1]["decision"] == "permit"
    assert not mentions(str(records[-1]), "zoe")


def test_who_is_not_signed_in_gets_401_with_a_link(town: People) -> None:
    browser = Browser()
    assert code_of(town.account(browser)) == (401, "sign-in-required")
    page = browser.open(town.ports[0], "GET", "/account?x=1")
    assert page.status == 401
    assert b'href="/auth/login?next=%2Faccount%3Fx%3D1"' in page.body
    assert "www-authenticate" in page.headers


def test_every_way_to_authenticate_as_a_client_works(tmp_path: Path) -> None:
    """Without a secret the gateway signs an assertion with its own key, which it publishes."""
    table = {"client_secret": None}
    with people(tmp_path, table=table, op={"auth_method": "private_key_jwt"}) as found:
        browser = Browser()
        found.sign_in(browser, "ann")
        assert found.account(browser).status == 200


def test_the_cookie_is_bound_to_the_host_and_hidden_from_scripts(tmp_path: Path) -> None:
    """46: with TLS, cookies have the prefix that no other host can set."""
    base = "https://gw.example"
    with people(tmp_path, base_url=base, allowed_hosts=("gw.example",)) as found:
        browser = Browser()
        start = browser.open(found.ports[0], "GET", "/auth/login/real", host="gw.example")
        (cookie,) = [value for name, value in start.fields if name == "set-cookie"]
        assert re.match(r"__Host-onym-sign-in-[0-9a-f]{16}=", cookie)
        assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
        # a cookie of the plain name, which another host could have planted, is not looked at
        browser.cookies = {"onym-session": "a" * 43}
        answer = browser.open(found.ports[0], "GET", "/account", host="gw.example")
        assert answer.status == 401


# step-up


def step_up(town: People, browser: Browser, **query: str) -> str:
    return town.begin(browser, f"/auth/step-up?{urlencode({'next': '/account', **query})}")


def test_a_step_up_satisfies_both_and_changes_the_session_id(town: People) -> None:
    """51: the old session ID is worth nothing after it."""
    browser = Browser()
    town.sign_in(browser, "kim", acr=ACR[0])
    old = Browser(dict(browser.cookies))
    url = step_up(town, browser, acr_values=ACR[1], max_age="300")
    answer = town.come_back(browser, town.provider.sign_in(url, "kim", acr=ACR[1], jar=browser.at_provider))
    assert (answer.status, answer.headers["location"]) == (303, "/account")
    view = town.account(browser).json()
    assert (view["acr"], view["amr"], len(view["sessions"])) == (ACR[1], ["pwd", "otp"], 1)
    assert code_of(town.account(old)) == (401, "sign-in-required")
    # what is satisfied is not asked for again
    again = browser.open(town.ports[0], "GET", f"/auth/step-up?next=/&acr_values={ACR[1]}&max_age=300")
    assert (again.status, again.headers["location"]) == (303, "/")


@pytest.mark.parametrize("login", ["bea", "eve"])
def test_a_step_up_that_is_not_one_is_told_once(town: People, login: str) -> None:
    """52: a lower class, and another person, are refused; the session stays as it is."""
    browser = Browser()
    town.sign_in(browser, "bea", acr=ACR[0])
    before = dict(browser.cookies)
    url = step_up(town, browser, acr_values=ACR[1])
    acr = ACR[0] if login == "bea" else ACR[1]
    answer = town.come_back(browser, town.provider.sign_in(url, login, acr=acr), accept="application/json")
    assert code_of(answer) == (403, "step-up-required")
    assert browser.cookies == before
    assert town.account(browser).json()["acr"] is None


def test_a_step_up_of_a_session_that_ended_is_none(town: People) -> None:
    browser = Browser()
    town.sign_in(browser, "bea")
    url = step_up(town, browser, acr_values=ACR[1])
    del browser.cookies["onym-session"]
    back = town.provider.sign_in(url, "bea", acr=ACR[1])
    assert code_of(town.come_back(browser, back, accept="application/json")) == (403, "step-up-required")
    assert "onym-session" not in browser.cookies


def test_a_program_is_told_and_a_stranger_must_sign_in(town: People) -> None:
    path = f"/auth/step-up?acr_values={ACR[1]}"
    browser = Browser()
    assert browser.open(town.ports[0], "GET", path).status == 401
    town.sign_in(browser, "bea")
    answer = browser.open(town.ports[0], "GET", path, accept="application/json")
    assert code_of(answer) == (403, "step-up-required")
    for wrong in ("max_age=x", "max_age=123456789", "acr_values=" + "+".join("abcdefghi")):
        answer = browser.open(town.ports[0], "GET", f"/auth/step-up?{wrong}", accept="application/json")
        assert code_of(answer) == (400, "bad-request")


def test_settings_want_a_class_at_every_sign_in(tmp_path: Path) -> None:
    with people(tmp_path, table={"acr_values": (ACR[1],)}) as found:
        browser = Browser()
        url = found.begin(browser)
        answer = found.come_back(browser, found.provider.sign_in(url, "ann", acr=ACR[0]))
        assert answer.status == 403
        assert found.account(browser).status == 401
        found.sign_in(browser, "ann", acr=ACR[1])
        assert found.account(browser).json()["acr"] == ACR[1]


# sign-out


def test_a_sign_out_at_the_provider_ends_the_session_on_every_gateway(town: People) -> None:
    """The next click after the provider's sign-out is 401, on both gateways."""
    browser, other = Browser(), Browser()
    town.sign_in(browser, "cat")
    town.sign_in(other, "cat")
    assert [town.account(browser, at=at).status for at in (0, 1)] == [200, 200]
    began = time.monotonic()
    town.provider.sign_out(browser.at_provider)
    assert [code_of(town.account(browser, at=at)) for at in (0, 1)] == [(401, "sign-in-required")] * 2
    assert time.monotonic() - began < 60  # 15 ms on two idle cores; a busy machine needs longer
    # another session of the same person at the provider goes on
    assert town.account(other, at=1).status == 200
    assert town.events("logout")[-1]["ended"] == 1


def test_a_token_without_a_session_ends_all_of_the_person(tmp_path: Path) -> None:
    with people(tmp_path, op={"logout_session": False}) as found:
        browser, other, stranger = Browser(), Browser(), Browser()
        for each, login in ((browser, "cat"), (other, "cat"), (stranger, "dan")):
            found.sign_in(each, login)
        found.provider.sign_out(browser.at_provider)
        assert [found.account(each).status for each in (browser, other, stranger)] == [401, 401, 200]


def test_signing_out_here_leads_to_the_provider_and_back(town: People) -> None:
    browser = Browser()
    town.sign_in(browser, "dan")
    old = Browser(dict(browser.cookies))
    page = browser.open(town.ports[0], "GET", "/account")
    origin = town.provider.issuer
    assert f"form-action 'self' {origin};" in page.headers["content-security-policy"]
    form = {"csrf_token": browser.token(town.ports[0])}
    answer = browser.open(town.ports[0], "POST", "/auth/logout", form)
    assert answer.status == 303
    url = answer.headers["location"]
    assert url.startswith(f"{origin}/session/end?")
    query = parse_qs(urlsplit(url).query)
    assert set(query) == {"client_id", "post_logout_redirect_uri"}  # no ID token in a URL
    assert "onym-session" not in browser.cookies
    assert town.account(old).status == 401
    back = town.provider.sign_out(browser.at_provider, url)
    assert back == f"{town.towns[0].base}/auth/signed-out"
    assert b"You are signed out" in town.come_back(browser, back).body


def test_a_person_sees_their_sessions_and_ends_them(town: People) -> None:
    first, second, third = Browser(), Browser(), Browser()
    for browser in (first, second, third):
        town.sign_in(browser, "fay")
    port = town.ports[0]
    view = town.account(first).json()
    assert len(view["sessions"]) == 3
    (own,) = [session["id"] for session in view["sessions"] if session["current"]]
    (theirs,) = [session["id"] for session in town.account(second).json()["sessions"] if session["current"]]
    form = {"csrf_token": first.token(port), "session": theirs}
    answer = first.open(port, "POST", "/account/sessions/end", form, accept="application/json")
    assert answer.json() == {"ended": 1, "signed_out": False}
    assert [town.account(browser).status for browser in (first, second, third)] == [200, 401, 200]
    # a session of somebody else, and what is none, do not end
    stranger = Browser()
    town.sign_in(stranger, "gus")
    for session in (own, "x" * 64, "0" * 64, ""):
        form = {"csrf_token": stranger.token(port), "session": session}
        answer = stranger.open(port, "POST", "/account/sessions/end", form, accept="application/json")
        assert answer.json()["ended"] == 0
    form = {"csrf_token": first.token(port), "all": "1"}
    answer = first.open(port, "POST", "/account/sessions/end", form)
    assert (answer.status, answer.headers["location"]) == (303, "/auth/signed-out")
    assert [town.account(browser).status for browser in (first, third, stranger)] == [401, 401, 200]


def test_the_sign_in_page_offers_the_providers_and_is_skipped_when_signed_in(town: People) -> None:
    browser = Browser()
    page = browser.open(town.ports[0], "GET", "/auth/login?next=/account")
    assert b"Sign in with The works" in page.body
    view = browser.open(town.ports[0], "GET", "/auth/login", accept="application/json").json()
    assert view == {
        "providers": [{"id": "real", "title": "The works", "url": "/auth/login/real?next=%2F"}],
        "next": "/",
    }
    town.sign_in(browser, "ann")
    again = browser.open(town.ports[0], "GET", "/auth/login?next=/account")
    assert (again.status, again.headers["location"]) == (303, "/account")


def test_urls_that_are_none_and_providers_that_are_none(town: People) -> None:
    browser = Browser()
    for method, path in (
        ("GET", "/auth/login/none"),
        ("GET", "/auth/callback/none"),
        ("POST", "/auth/logout/none"),
        ("GET", "/auth/other"),
        ("GET", "/account/other"),
        ("POST", "/account"),
    ):
        answer = browser.open(town.ports[0], method, path, accept="application/json")
        assert code_of(answer) == (404, "endpoint-unknown"), path


def test_a_program_signs_out_too(town: People) -> None:
    browser = Browser()
    town.sign_in(browser, "ann")
    form = {"csrf_token": browser.token(town.ports[0])}
    answer = browser.open(town.ports[0], "POST", "/auth/logout", form, accept="application/json")
    assert answer.json()["signed_out"] is True
    assert answer.json()["provider_sign_out"].startswith(town.provider.issuer)
    assert town.account(browser).status == 401


# the operator


def write_settings(found: People, **changes: Any) -> str:
    """The settings of another process of the gateway, as a file."""
    town, table = found.towns[0], found.towns[0].settings.providers[0]
    settings = {
        "base_url": town.base,
        "keys": town.settings.keys,
        "audit": town.settings.audit,
        "audit_key": town.settings.audit_key and town.settings.audit_key.reveal(),
        "pins": str(found.folder / "pins"),
        "replays": str(found.folder / "replays"),
        "pseudonym_key": "a-random-text-of-the-operator-4711",
        "store": str(found.store),
        "secrets": str(found.folder / "secrets"),
        **changes,
    }
    provider = {
        "id": table.id,
        "issuer": table.issuer,
        "client_id": table.client_id,
        "client_secret": found.provider.client_secret,
        "network": "local",
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items() if value is not None]
    lines += ["[[providers]]", *(f"{name} = {json.dumps(value)}" for name, value in provider.items())]
    path = found.folder / "gateway.toml"
    path.write_text("\n".join(lines))
    return str(path)


def operate(config: str, *arguments: str) -> tuple[int, Any]:
    """Run `onym ai gateway` with these settings; the exit code and what it prints."""
    command = ["--config", config, *arguments, "--json"]
    result = CliRunner().invoke(gateway_command, command, obj=Session(as_json=True))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout)


def test_an_operator_signs_a_person_out_everywhere(town: People) -> None:
    browsers = [Browser() for _ in range(3)]
    for browser, login in zip(browsers, ("gil", "gil", "hal"), strict=True):
        town.sign_in(browser, login)
    subject = town.account(browsers[0]).json()["subject"]
    under_way = Browser()
    url = town.begin(under_way)
    config = write_settings(town)
    code, told = operate(config, "sessions", "end", f"real {subject}", "--yes")
    assert (code, told["ended"], told["people"][0]["subject"]) == (0, 2, subject)
    for at in (0, 1):
        assert [town.account(browser, at=at).status for browser in browsers] == [401, 401, 200]
    # a sign-in that began before does not bring a session back
    back = town.provider.sign_in(url, "gil", jar=under_way.at_provider)
    refused = town.come_back(under_way, back, accept="application/json")
    assert code_of(refused) == (403, "sign-in-failed")
    assert operate(config, "sessions", "end", f"real {subject}", "--yes")[0] == 1
    last = [line for line in town.events("logout") if line.get("by") == "operator"]
    assert [line["ended"] for line in last] == [2, 0]
    assert not verify_log(town.towns[0].settings.audit).faults
    # by address
    email = town.account(browsers[2]).json()["email"]
    assert operate(config, "sessions", "end", f"real {email.upper()}", "--yes")[1]["ended"] == 1
    assert town.account(browsers[2]).status == 401


def test_sessions_that_are_not_shared_cannot_be_ended(town: People) -> None:
    for changes, user, code in (
        ({"store": None}, "real x", "config.missing-setting"),
        ({}, "other x", "usage.command-line"),
        ({}, "real", "usage.command-line"),
    ):
        with pytest.raises(OnymError) as caught:
            operate(write_settings(town, **changes), "sessions", "end", user, "--yes")
        assert caught.value.code == code


def test_an_operator_checks_a_gateway(town: People, tmp_path: Path) -> None:
    """The command of run-a-gateway.md."""
    code, told = operate(write_settings(town), "check")
    states = {part["name"]: part["state"] for part in told["parts"]}
    assert (code, told["ready"]) == (0, True)
    assert states == {"keys": "ok", "store": "ok", "provider real": "ok"}
    gaps = operate(write_settings(town, audit=None, pseudonym_key=None), "check")
    warned = {part["name"] for part in gaps[1]["parts"] if part["state"] == "warning"}
    assert (gaps[0], warned) == (0, {"audit", "pseudonym_key"})
    # a server that is away, a store that is no store, keys that are none: each is told with what to do
    closed = f"http://127.0.0.1:{free_port()}"
    config = Path(write_settings(town))
    away = tmp_path / "away.toml"
    away.write_text(config.read_text().replace(town.provider.issuer, closed))
    code, told = operate(str(away), "check")
    assert (code, told["ready"]) == (1, False)
    assert [part["name"] for part in told["parts"] if part["state"] == "failed"] == ["provider real"]
    (tmp_path / "text").write_text("not a database, and longer than the header of one " * 10)
    code, told = operate(write_settings(town, store=str(tmp_path / "text")), "check")
    assert (code, [part["name"] for part in told["parts"] if part["state"] == "failed"]) == (1, ["store"])
    code, told = operate(write_settings(town, keys=str(tmp_path / "none")), "check")
    assert (code, [(part["name"], bool(part["hint"])) for part in told["parts"]]) == (1, [("start", True)])
