"""Administration of accounts on the web: who may, what changes, what is confirmed, and what is audited."""

from __future__ import annotations

import html
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onym.accounts.records import Account
from onym.registry.records import Role, is_administrator
from onym.registry.store import Store
from server.registry.site import Site
from server_support import PASSWORD
from support import as_subtests, mentions

LIST = "/accounts"
EVE = "/accounts/user-eve"
ACTS = ("details", "roles", "disable", "enable", "password")


@pytest.fixture
def admin(fresh: Site) -> Site:
    """The site, with Ian signed in: he has the role IANA in every registry."""
    assert fresh.world.sign_in("ian").status_code == 303
    return fresh


def _get_state(site: Site, path: str) -> str:
    found = re.search(r'name="state" value="([0-9a-f]{16})"', site.get(path).text)
    assert found is not None
    return found[1]


def _post(site: Site, path: str, *, page: str | None = None, **data: Any) -> Any:
    page = page or path
    form = {"csrf_token": site.world.csrf(page), **data}
    if page != LIST and "state" not in form:
        form["state"] = _get_state(site, page)
    return site.world.client.post(path, data=form, headers={"accept": "text/html"}, follow_redirects=False)


def _account(site: Site, login: str = "eve") -> Account:
    found = site.world.do(site.world.store.accounts.find_by_login, login)
    assert isinstance(found, Account)
    return found


def _code(answer: Any) -> str:
    return str(re.search(r"(?:accounts|registry|http)\.[a-z-]+", answer.text)[0])  # type: ignore[index]


def _audited(site: Site) -> tuple[str, str | None, str]:
    record = site.world.audit()[-1]
    return record.action, record.subject, record.outcome


def test_an_account_is_added_with_a_password_that_is_shown_once(admin: Site) -> None:
    answer = _post(admin, LIST, login="Nora", name="Nora Example", email="nora@example.org", role="*/expert")
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    (password,) = re.findall(r'<code class="token">([^<]+)</code>', answer.text)
    nora = _account(admin, "nora")
    assert (nora.name, nora.email, nora.roles) == (
        "Nora Example", "nora@example.org", {"*": frozenset({Role.EXPERT})},
    )  # fmt: skip
    assert password not in admin.get(f"/accounts/{nora.id}").text
    assert _audited(admin) == ("account.add", "nora: expert in every registry", "ok")
    assert password not in repr(admin.world.audit())
    admin.world.client.cookies.clear()
    assert admin.world.sign_in("nora", html.unescape(password)).status_code == 303


def test_an_account_without_a_password_is_for_a_provider(admin: Site) -> None:
    answer = _post(admin, LIST, login="nora", sign_in="provider")
    assert answer.status_code == 303
    assert _account(admin, "nora").password_hash is None


@pytest.mark.parametrize(
    ("data", "field"),
    [({"login": "eve"}, "login"), ({"login": "no spaces"}, "login"), ({"login": "x", "email": "x"}, "email")],
)
def test_a_form_with_a_fault_is_shown_again_with_its_values(
    admin: Site, data: dict[str, str], field: str
) -> None:
    answer = _post(admin, LIST, **data, name="Somebody")
    assert 400 <= answer.status_code < 500
    assert 'value="Somebody"' in answer.text
    marked = re.findall(r'name="([a-z]+)"[^>]* aria-invalid="true" aria-describedby="add-error"', answer.text)
    assert marked == [field]
    assert 'id="add-error"' in answer.text


def test_roles_are_given_and_taken_by_registry(admin: Site) -> None:
    answer = _post(admin, f"{EVE}/roles", page=EVE, role=["uri-schemes/iana", "llm-parameters/expert"])
    assert answer.status_code == 303, answer.text
    assert {realm: roles for realm, roles in _account(admin).roles.items() if roles} == {
        "uri-schemes": {"iana"}, "llm-parameters": {"expert"},
    }  # fmt: skip
    recorded = [(record.action, record.subject, record.outcome) for record in admin.world.audit()[-3:]]
    assert recorded == [
        ("account.roles", "eve: removed expert in every registry at once", "ok"),
        ("account.roles", "eve: added iana in uri-schemes", "ok"),
        ("account.roles", "eve: added expert in llm-parameters", "ok"),
    ]
    page = admin.get(EVE).text
    assert re.search(r'value="uri-schemes/iana" checked', page)
    assert not re.search(r'value="\*/expert" checked', page)


def test_roles_of_a_group_are_shown_and_stay(admin: Site) -> None:
    store = admin.world.store
    given = {"uri-schemes@company": frozenset({"iana"})}
    admin.world.do(store.accounts.replace_group_roles, "user-eve", "company", given)
    assert "by a group of company" in admin.get(EVE).text
    assert _post(admin, f"{EVE}/roles", page=EVE).status_code == 303
    assert {realm: roles for realm, roles in _account(admin).roles.items() if roles} == given


def test_name_and_address_are_changed(admin: Site) -> None:
    assert _post(admin, f"{EVE}/details", page=EVE, name="Eva", email="").status_code == 303
    assert (_account(admin).name, _account(admin).email) == ("Eva", None)
    recorded = [(record.action, record.subject, record.outcome) for record in admin.world.audit()[-2:]]
    assert recorded == [("account.name", "eve", "ok"), ("account.email", "eve: removed", "ok")]
    answer = _post(admin, f"{EVE}/details", page=EVE, name="Eva", email="nowhere")
    assert 400 <= answer.status_code < 500
    assert 'aria-describedby="save-error"' in answer.text


def test_a_disabled_account_is_out_at_once_and_can_come_back(admin: Site) -> None:
    token = admin.headers("eve")
    answer = _post(admin, f"{EVE}/disable", page=EVE, confirm="eve")
    assert answer.status_code == 303, answer.text
    assert _account(admin).disabled
    assert _audited(admin) == ("account.disable", "eve", "ok")
    assert admin.world.client.get("/api/v1/account", headers=token).status_code == 401
    assert _post(admin, f"{EVE}/enable", page=EVE).status_code == 303
    assert not _account(admin).disabled


def test_a_new_password_ends_every_session(admin: Site) -> None:
    admin.world.client.cookies.clear()
    assert admin.world.sign_in("eve").status_code == 303
    hers = dict(admin.world.client.cookies)
    admin.world.client.cookies.clear()
    admin.world.sign_in("ian")
    answer = _post(admin, f"{EVE}/password", page=EVE, confirm="eve")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    (password,) = re.findall(r'<code class="token">([^<]+)</code>', answer.text)
    assert _audited(admin) == ("account.password", "eve", "ok")
    admin.world.client.cookies.clear()
    admin.world.client.cookies.update(hers)
    assert admin.get("/account").status_code in (401, 303)
    admin.world.client.cookies.clear()
    assert admin.world.sign_in("eve", PASSWORD).status_code != 303
    assert admin.world.sign_in("eve", password).status_code == 303


_CHANGES: dict[str, dict[str, Any]] = {
    "details": {"name": "Eva", "email": "eva@example.org"},
    "roles": {"role": "uri-schemes/iana"},
    "disable": {"confirm": "eve"},
    "password": {"confirm": "eve"},
}


@pytest.mark.parametrize("act", ["add", *_CHANGES])
def test_nothing_changes_if_the_audit_record_cannot_be_written(admin: Site, tmp_path: Path, act: str) -> None:
    path, form = (LIST, {"login": "nora"}) if act == "add" else (f"{EVE}/{act}", _CHANGES[act])
    before, state = _account(admin), "" if act == "add" else _get_state(admin, EVE)
    count = len(admin.world.audit())
    with closing(sqlite3.connect(tmp_path / "registry.db")) as database, database:
        database.execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END")
    answer = _post(admin, path, page=LIST if act == "add" else EVE, state=state, **form)
    assert answer.status_code >= 500
    assert _account(admin) == before
    assert admin.world.do(admin.world.store.accounts.find_by_login, "nora") is None
    assert len(admin.world.audit()) == count


@pytest.mark.parametrize("act", ["disable", "password"])
@pytest.mark.parametrize("confirm", ["", "ian", "ev"])
def test_an_act_without_the_login_as_confirmation_is_refused(admin: Site, act: str, confirm: str) -> None:
    before = _account(admin)
    answer = _post(admin, f"{EVE}/{act}", page=EVE, confirm=confirm)
    assert _code(answer) == "accounts.not-confirmed"
    assert _account(admin) == before
    assert _audited(admin)[2] == "accounts.not-confirmed"


@pytest.mark.parametrize("act", ["disable", "password", "roles"])
def test_an_administrator_does_not_lock_out_the_own_account(admin: Site, act: str) -> None:
    answer = _post(admin, f"/accounts/user-ian/{act}", page="/accounts/user-ian", confirm="ian")
    assert _code(answer) == "accounts.own-account"
    ian = _account(admin, "ian")
    assert is_administrator(ian)
    assert not ian.disabled


def test_a_form_over_an_account_that_has_changed_is_refused(admin: Site) -> None:
    state = _get_state(admin, EVE)
    admin.world.do(admin.world.store.accounts.set_roles, "user-eve", "*", {Role.IESG})
    answer = _post(admin, f"{EVE}/roles", page=EVE, state=state, role="*/iana")
    assert answer.status_code == 412
    assert _account(admin).roles == {"*": {"iesg"}}


def test_a_role_that_does_not_exist_is_refused(admin: Site) -> None:
    for role in ("*/king", "*/reader", "nowhere/iana", "uri-schemes@x/iana", "iana"):
        assert _code(_post(admin, f"{EVE}/roles", page=EVE, role=role)) == "registry.bad-data"
    assert _account(admin).roles == {"*": {"expert"}}


def test_a_form_without_a_csrf_token_changes_nothing(admin: Site) -> None:
    state = _get_state(admin, EVE)
    for act in ACTS:
        data = {"state": state, "confirm": "eve", "name": "X", "csrf_token": "wrong"}
        answer = admin.world.client.post(f"{EVE}/{act}", data=data, follow_redirects=False)
        assert answer.status_code == 403
    assert admin.world.client.post(LIST, data={"login": "nora"}).status_code == 403
    assert not _account(admin).disabled


@as_subtests("login", ["rita", "eve", "ingo"])
def test_only_administrators_see_and_change_accounts(login: str, shared: Site) -> None:
    headers = shared.headers(login)
    for path in (LIST, EVE):
        assert shared.get(path, headers).status_code == 403
    for act in ACTS:
        answer = shared.world.client.post(f"{EVE}/{act}", data={"confirm": "eve"}, headers=headers)
        assert answer.status_code == 403
    assert LIST not in shared.get("/", headers).text


def test_nobody_sees_accounts_without_signing_in(shared: Site) -> None:
    shared.world.client.cookies.clear()
    for path in (LIST, EVE):
        assert shared.get(path).status_code in (401, 303)


def test_a_token_needs_the_scope_admin(shared: Site) -> None:
    narrow = shared.world.token("read", "iana", account="user-ian")
    wide = shared.world.token("read", "admin", account="user-ian")
    assert shared.get(LIST, narrow).status_code == 403
    assert shared.get(LIST, wide).status_code == 200


def test_long_lists_are_in_pages(admin: Site) -> None:
    async def fill(store: Store) -> None:
        eve = await store.accounts.get("user-eve")
        assert eve is not None
        for number in range(120):
            login = f"z{number:03}"
            await store.accounts.add(
                Account(id=f"user-{login}", login=login, name=login, email=None, created=eve.created)
            )

    admin.world.do(fill, admin.world.store)
    first = admin.get(LIST).text
    following = html.unescape(re.search(r'rel="next" href="([^"]+)"', first)[1])  # type: ignore[index]
    second = admin.get(following).text
    assert "z000" in first
    assert not mentions(first, "z119")
    assert "z119" in second
