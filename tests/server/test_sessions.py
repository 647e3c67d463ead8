"""Signing in with a password, staying signed in, signing out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onym.accounts.records import hash_secret
from onym.accounts.sign_in import PasswordCheck, Passwords, hash_password
from onym.uri.secret import Secret
from server_support import BASE, PASSWORD, World, settings, world

HTML = {"accept": "text/html"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as found:
        yield found


def test_nobody_is_signed_in_at_first(site: World) -> None:
    found = site.client.get("/who").json()
    assert (found["account"], found["via"], found["scopes"]) == (None, None, [])


def test_the_right_password_signs_in_and_leads_on(site: World) -> None:
    answer = site.sign_in(next="/requests?x=1")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/requests?x=1"
    found = site.client.get("/who").json()
    assert (found["account"], found["via"]) == ("user-alice", "session")
    assert "admin" in found["scopes"]


def test_the_cookie_is_bound_to_the_host_and_hidden_from_scripts(site: World) -> None:
    cookie = site.sign_in().headers["set-cookie"]
    assert cookie.startswith("__Host-onym=")
    for part in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=1209600"):
        assert part in cookie
    assert "Domain" not in cookie


def test_the_store_holds_no_session_id(site: World) -> None:
    site.sign_in()
    secret = Secret(site.client.cookies["__Host-onym"])
    assert site.do(site.store.sessions.find, secret.reveal(), site.clock.now()) is None
    assert site.do(site.store.sessions.find, hash_secret(secret), site.clock.now()) is not None


@pytest.mark.parametrize(
    ("login", "password"),
    [
        ("alice", "wrong password!!"),
        ("nobody", PASSWORD),
        ("", PASSWORD),
        ("x" * 500, PASSWORD),
        ("alice", ""),
    ],
)
def test_wrong_credentials_are_told_alike(site: World, login: str, password: str) -> None:
    answer = site.sign_in(login, password)
    assert answer.status_code == 401
    assert "login or password is wrong" in answer.text
    assert site.client.get("/who").json()["account"] is None
    assert site.audit()[-1].outcome == "accounts.wrong-password"


def test_a_program_that_signs_in_wrongly_gets_problem_details(site: World) -> None:
    data = {"csrf_token": site.csrf(), "login": "alice", "password": "wrong password!!"}
    answer = site.client.post("/login", data=data, headers={"accept": "application/json"})
    assert answer.status_code == 401
    assert answer.json()["code"] == "accounts.wrong-password"


def test_a_closed_account_does_not_sign_in_and_loses_its_sessions(site: World) -> None:
    site.sign_in()
    site.do(site.store.accounts.disable, "user-alice")
    assert site.client.get("/who").json()["account"] is None
    assert site.sign_in().status_code == 401


def test_signing_in_makes_a_new_session_and_ends_the_old_one(site: World) -> None:
    site.sign_in()
    first = site.client.cookies["__Host-onym"]
    token = site.client.get("/who").json()["csrf"]
    data = {"csrf_token": token, "login": "alice", "password": PASSWORD}
    site.client.post("/login", data=data)
    assert site.client.cookies["__Host-onym"] != first
    site.client.cookies.clear()
    answer = site.client.get("/who", headers={"cookie": f"__Host-onym={first}"})
    assert answer.json()["account"] is None


def test_a_planted_session_id_is_never_taken_over(site: World) -> None:
    planted = "A" * 43
    site.client.cookies.set("__Host-onym", planted)
    site.sign_in()
    assert site.client.cookies.get("__Host-onym", domain="registry.example.org") != planted


def test_a_session_ends_after_its_life_however_much_it_is_used(site: World) -> None:
    site.sign_in()
    for _ in range(14):
        assert site.client.get("/who").json()["account"] == "user-alice"
        site.clock.advance(hours=23.9)
    site.clock.advance(hours=2)
    assert site.client.get("/who").json()["account"] is None


def test_a_session_ends_when_it_is_not_used(site: World) -> None:
    site.sign_in()
    site.clock.advance(hours=23)
    assert site.client.get("/who").json()["account"] == "user-alice"
    site.clock.advance(hours=24)
    assert site.client.get("/who").json()["account"] is None
    # it was dropped, not only passed over
    digest = hash_secret(Secret(site.client.cookies["__Host-onym"]))
    assert site.do(site.store.sessions.find, digest, site.clock.now()) is None


def test_signing_out_ends_the_session_at_the_server(site: World) -> None:
    site.sign_in()
    kept = site.client.cookies["__Host-onym"]
    token = site.client.get("/who").json()["csrf"]
    answer = site.client.post("/logout", data={"csrf_token": token}, follow_redirects=False)
    assert answer.status_code == 303
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert site.client.get("/who", headers={"cookie": f"__Host-onym={kept}"}).json()["account"] is None


def test_signing_out_everywhere_ends_the_sessions_of_other_browsers(site: World) -> None:
    site.sign_in()
    other = site.client.cookies["__Host-onym"]
    site.client.cookies.clear()
    site.sign_in()
    token = site.client.get("/who").json()["csrf"]
    site.client.post("/account/sign-out-everywhere", data={"csrf_token": token}, headers=HTML)
    site.client.cookies.clear()
    assert site.client.get("/who", headers={"cookie": f"__Host-onym={other}"}).json()["account"] is None
    assert [record.action for record in site.audit()][-1] == "sign-out.everywhere"


def test_signing_out_everywhere_needs_somebody(site: World) -> None:
    data = {"csrf_token": site.csrf()}
    assert site.client.post("/account/sign-out-everywhere", data=data).status_code == 401


def test_who_is_signed_in_is_not_asked_again(site: World) -> None:
    site.sign_in()
    answer = site.client.get("/login?next=/who", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/who")


def test_a_new_password_needs_the_old_one_and_ends_other_sessions(site: World) -> None:
    site.sign_in()
    other = site.client.cookies["__Host-onym"]
    site.client.cookies.clear()
    site.sign_in()
    token = site.client.get("/who").json()["csrf"]
    new = "another set of words"
    wrong = {"csrf_token": token, "password": "not the old one", "new_password": new}
    assert site.client.post("/account/password", data=wrong).status_code == 401
    weak = {"csrf_token": token, "password": PASSWORD, "new_password": "password1234"}
    assert site.client.post("/account/password", data=weak).json()["code"] == "accounts.weak-password"
    good = {"csrf_token": token, "password": PASSWORD, "new_password": new}
    answer = site.client.post("/account/password", data=good, follow_redirects=False)
    assert answer.status_code == 303
    assert site.client.get("/who").json()["account"] == "user-alice"
    site.client.cookies.clear()
    assert site.client.get("/who", headers={"cookie": f"__Host-onym={other}"}).json()["account"] is None
    assert site.sign_in().status_code == 401
    assert site.sign_in(password=new).status_code == 303


def test_a_token_does_not_change_the_password(site: World) -> None:
    data = {"password": PASSWORD, "new_password": "another set of words"}
    answer = site.client.post("/account/password", data=data, headers=site.token("admin"))
    assert answer.status_code == 403


def test_local_accounts_can_be_switched_off(tmp_path: Path) -> None:
    with world(tmp_path, settings(local_accounts=False)) as site:
        data = {"csrf_token": site.client.get("/who").json()["csrf"], "login": "alice", "password": PASSWORD}
        assert site.client.post("/login", data=data).status_code == 401


def test_an_outdated_hash_is_replaced_at_sign_in(site: World) -> None:
    from argon2 import PasswordHasher

    weak = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    site.do(site.store.accounts.set_password, "user-alice", Secret(weak))
    assert site.sign_in().status_code == 303
    stored = site.do(site.store.accounts.get, "user-alice").password_hash
    assert "m=65536,t=3,p=4" in stored.reveal()


def test_a_password_changed_while_the_old_one_is_tested_stays_and_signs_nobody_in(
    site: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from argon2 import PasswordHasher

    weak = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    site.do(site.store.accounts.set_password, "user-alice", Secret(weak))
    inner, new = Passwords.verify, hash_password(Secret("another set of words"))

    async def meanwhile(self: Passwords, stored: Secret | None, password: Secret) -> PasswordCheck:
        verdict = await inner(self, stored, password)
        await site.store.accounts.set_password("user-alice", new)
        await site.store.sessions.drop_all("user-alice")
        return verdict

    with monkeypatch.context() as patch:
        patch.setattr(Passwords, "verify", meanwhile)
        answer = site.sign_in()
    assert site.do(site.store.accounts.get, "user-alice").password_hash == new
    assert answer.status_code == 401
    assert site.client.get("/who").json()["account"] is None
    assert site.audit()[-1].outcome == "accounts.wrong-password"
    assert site.sign_in(password="another set of words").status_code == 303


def test_a_change_of_password_does_not_undo_one_that_came_between(
    site: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.sign_in()
    token = site.client.get("/who").json()["csrf"]
    inner, reset = Passwords.hash, hash_password(Secret("set by the operator"))

    async def meanwhile(self: Passwords, password: Secret) -> Secret:
        await site.store.accounts.set_password("user-alice", reset)
        return await inner(self, password)

    monkeypatch.setattr(Passwords, "hash", meanwhile)
    data = {"csrf_token": token, "password": PASSWORD, "new_password": "another set of words"}
    assert site.client.post("/account/password", data=data).status_code == 401
    assert site.do(site.store.accounts.get, "user-alice").password_hash == reset


def test_plain_http_on_this_machine_works_without_the_host_prefix(tmp_path: Path) -> None:
    with world(tmp_path, settings(base_url="http://127.0.0.1:8000")) as site:
        answer = site.sign_in()
        assert answer.headers["set-cookie"].startswith("onym=")
        assert "Secure" not in answer.headers["set-cookie"]
        assert "strict-transport-security" not in answer.headers


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example/",
        "/\t/evil.example",
        "/a/..//evil.example",
        "/./x",
        "javascript:alert(1)",
        "/login",
        "/logout",
        "/x\r\nSet-Cookie: a=b",
        "/" + "x" * 3000,
        "",
        BASE + "/x",
    ],
)
def test_signing_in_leads_nowhere_but_into_this_service(site: World, target: str) -> None:
    assert site.sign_in(next=target).headers["location"] == "/"


def test_the_login_page_shows_no_hostile_target(site: World) -> None:
    page = site.client.get('/login?next=/"><script>', headers=HTML)
    assert 'name="next" value="/&#34;&gt;&lt;script&gt;"' in page.text
    assert "><script>" not in page.text
