"""Administration of accounts: list, add, roles, name and address, disable, enable, and new passwords.

The pages are for administrators (the role IANA in every registry). Every act is in the audit log. An act that
locks a person out is confirmed by typing the login. A form carries the state of the account that it shows, so
that two administrators do not undo each other's work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from onym.accounts import records
from onym.errors import OnymError, RefusalError, RegistryError, StaleError, UnknownEntryError
from onym.registry.records import Role
from onym.registry.registries import REGISTRIES
from onym.registry.words import apply_words, name_role
from onym.server.middleware import make_audit_record, set_audit_action
from onym.server.registry import responses, urls
from onym.server.registry.dependencies import get_current_time, get_store
from onym.server.registry.labels import ROLE_TITLES
from onym.server.registry.urls import make_route
from onym.server.responses import get_problem_type
from onym.server.services import get_services
from onym.server.sessions import get_visitor, require_access
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from starlette.requests import Request

#: accounts on one page
_PAGE_SIZE: Final = 100
#: the roles that an administrator gives; everybody is a registrant
_GIVEN: Final = (Role.IANA, Role.EXPERT, Role.IESG)
#: random bytes of a password that an administrator hands over
_PASSWORD_BYTES: Final = 15


async def accounts_page(request: Request) -> Response:
    """GET: the accounts by login, and the form that adds one."""
    _require_administrator(request)
    return await _make_list_response(request)


async def add_account(request: Request) -> Response:
    """POST: fields `login`, `name`, `email`, `sign_in` ("password" or "provider") and `role`."""
    _require_administrator(request)
    form = await responses.read_form(request)
    set_audit_action(request, "account.add", form.get_text("login")[: records.MAX_LOGIN])
    try:
        account, secret = await _build_account(request, form)
        act = make_audit_record(request, "account.add", f"{account.login}: {_describe_roles(account)}")
        await get_store(request).accounts.add(account, audit=act)
    except RegistryError as error:
        return await _make_list_response(request, form=form, error=error)
    if secret is None:
        return responses.redirect_to(urls.account_url(account.id), "account-added")
    return _make_account_response(request, account, secret=secret, http_status=201)


async def _build_account(request: Request, form: responses.PageForm) -> tuple[records.Account, Secret | None]:
    """Return the account of a form, and its first password. Raises RegistryError."""
    login = records.validate_login(form.get_text("login"))
    email = form.get_text("email").strip()
    secret = None if form.get_text("sign_in") == "provider" else Secret(token_urlsafe(_PASSWORD_BYTES))
    roles = _parse_roles(form).get(records.ALL_REALMS, frozenset())
    account = records.Account(
        id=records.make_id("user"),
        login=login,
        name=records.validate_name(form.get_text("name") or login),
        email=records.validate_email(email) if email else None,
        password_hash=None if secret is None else await get_services(request).passwords.hash(secret),
        roles={records.ALL_REALMS: roles} if roles else {},
        created=get_current_time(request),
    )
    return account, secret


async def account_page(request: Request) -> Response:
    """GET: one account, with the forms that change it."""
    _require_administrator(request)
    return _make_account_response(request, await _find_account(request))


async def save_details(request: Request) -> Response:
    """POST: fields `name` and `email`."""
    account, form = await _read_change(request, "account.email")
    try:
        name, email = records.validate_name(form.get_text("name")), form.get_text("email").strip()
        address = records.validate_email(email) if email else None
    except RegistryError as error:
        return _make_account_response(request, account, error=error)
    accounts = get_store(request).accounts
    if name != account.name:
        act = make_audit_record(request, "account.name", account.login)
        await accounts.set_name(account.id, name, audit=act)
    if address != account.email:
        # not the address: the audit log cannot forget it
        subject = f"{account.login}: {'removed' if address is None else 'changed'}"
        act = make_audit_record(request, "account.email", subject)
        await accounts.set_email(account.id, address, audit=act)
    return responses.redirect_to(urls.account_url(account.id), "account-saved")


async def save_roles(request: Request) -> Response:
    """POST: fields `role`, each `REGISTRY/ROLE`; the account has these roles afterwards."""
    account, form = await _read_change(request, "account.roles")
    wanted = _parse_roles(form)
    every = account.roles.get(records.ALL_REALMS, frozenset())
    if Role.IANA in every and Role.IANA not in wanted.get(records.ALL_REALMS, frozenset()):
        _forbid_on_own_account(request, account, "take your own administrator's role")
    for realm in (records.ALL_REALMS, *REGISTRIES):
        held, now = account.roles.get(realm, frozenset()), wanted.get(realm, frozenset())
        # the role registrant is everybody's, and stays as it is
        kept = held - frozenset(map(str, _GIVEN)) | now
        if kept != held:
            subject = records.describe_role_changes(account.login, realm, held, kept)
            act = make_audit_record(request, "account.roles", subject)
            await get_store(request).accounts.set_roles(account.id, realm, kept, audit=act)
    return responses.redirect_to(urls.account_url(account.id), "account-saved")


async def disable_account(request: Request) -> Response:
    """POST: end the account's sessions and tokens; `confirm` is its login."""
    account, form = await _read_change(request, "account.disable")
    _require_confirmation(account, form)
    _forbid_on_own_account(request, account, "disable your own account")
    act = make_audit_record(request, "account.disable", account.login)
    await get_store(request).accounts.disable(account.id, audit=act)
    return responses.redirect_to(urls.account_url(account.id), "account-disabled")


async def enable_account(request: Request) -> Response:
    """POST: let the person sign in again."""
    account, _ = await _read_change(request, "account.enable")
    act = make_audit_record(request, "account.enable", account.login)
    await get_store(request).accounts.enable(account.id, audit=act)
    return responses.redirect_to(urls.account_url(account.id), "account-enabled")


async def reset_password(request: Request) -> Response:
    """POST: a new random password, shown once; every session ends. `confirm` is the login."""
    account, form = await _read_change(request, "account.password")
    _require_confirmation(account, form)
    _forbid_on_own_account(request, account, "reset your own password")
    secret = Secret(token_urlsafe(_PASSWORD_BYTES))
    parts = get_services(request)
    hashed = await parts.passwords.hash(secret)
    act = make_audit_record(request, "account.password", account.login)
    await parts.store.accounts.set_password(account.id, hashed, audit=act)
    await parts.store.sessions.drop_all(account.id)
    return _make_account_response(request, await _find_account(request), secret=secret)


def _require_administrator(request: Request) -> records.Account:
    visitor = get_visitor(request)
    require_access(visitor)
    return require_access(visitor, administrator=True)


async def _find_account(request: Request) -> records.Account:
    found = await get_store(request).accounts.get(request.path_params["id"])
    if found is None:
        raise UnknownEntryError("no account has this ID", code="accounts.unknown-account", field="account")
    return found


async def _read_change(request: Request, action: str) -> tuple[records.Account, responses.PageForm]:
    """Return the account of the URL and the form. Raises StaleError if the account is not as it was shown."""
    _require_administrator(request)
    set_audit_action(request, action, request.path_params["id"][:100])
    account = await _find_account(request)
    set_audit_action(request, action, account.login)
    form = await responses.read_form(request)
    if form.get_text("state") != compute_state(account):
        raise StaleError(
            "the account has changed since the page was shown",
            field="account",
            hint="Reload the page, and decide again.",
        )
    return account, form


def compute_state(account: records.Account) -> str:
    """Return a digest of what the forms change, to see whether somebody else has changed it."""
    roles = sorted((realm, sorted(map(str, held))) for realm, held in account.roles.items() if held)
    has_password = account.password_hash is not None
    values = (account.id, account.name, account.email, account.disabled, has_password, roles)
    return hashlib.sha256(repr(values).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _require_confirmation(account: records.Account, form: responses.PageForm) -> None:
    if form.get_text("confirm").strip().lower() != account.login:
        raise RegistryError(
            "the login was not typed as a confirmation",
            code="accounts.not-confirmed",
            field="confirm",
            hint=f"Go back and type {account.login}.",
        )


def _forbid_on_own_account(request: Request, account: records.Account, act: str) -> None:
    """Raise RefusalError for an act on the administrator's account, so that one administrator remains."""
    visitor = get_visitor(request).account
    if visitor is not None and visitor.id == account.id:
        raise RefusalError(
            f"you cannot {act}",
            code="accounts.own-account",
            field="account",
            hint="Another administrator can do it. You change your own password on the page Your account.",
        )


def _parse_roles(form: responses.PageForm) -> Mapping[str, frozenset[Role]]:
    """Return the roles that are ticked, by registry. Raises RegistryError for one that does not exist."""
    found: dict[str, frozenset[Role]] = {}
    for value in form.get("role", []):
        realm, _, name = value.partition("/")
        role = next((role for role in _GIVEN if role == name), None)
        if role is None or (realm != records.ALL_REALMS and realm not in REGISTRIES):
            raise RegistryError(
                "there is no such role", code="registry.bad-data", field="role", hint="Reload the page."
            )
        found[realm] = found.get(realm, frozenset()) | {role}
    return found


async def _make_list_response(
    request: Request, *, form: responses.PageForm | None = None, error: OnymError | None = None
) -> Response:
    after = responses.clean_query(request.query_params.get("after", ""), "after", records.MAX_LOGIN)
    found = await get_store(request).accounts.list(after=after, limit=_PAGE_SIZE + 1)
    shown = found[:_PAGE_SIZE]
    fields = ("login", "name", "email", "sign_in")
    given = {} if form is None else {name: form.get_text(name) for name in fields}
    return responses.make_page_response(
        request,
        "accounts.html",
        responses.build_page_frame(request, "Accounts", (urls.HOME_URL, "Home")),
        http_status=200 if error is None else get_problem_type(error).status,
        accounts=[(account, _describe_roles(account)) for account in shown],
        roles=_list_role_choices(),
        ticked=frozenset(() if form is None else form.get("role", [])),
        given=given,
        error=error,
        providers=bool(get_services(request).settings.oidc),
        next=urls.accounts_url(after=shown[-1].login) if len(found) > _PAGE_SIZE else "",
    )


def _make_account_response(
    request: Request,
    account: records.Account,
    *,
    secret: Secret | None = None,
    error: OnymError | None = None,
    http_status: int = 200,
) -> Response:
    visitor = get_visitor(request).account
    by_group = [
        (f"{ROLE_TITLES[Role(role)]} {_describe_realm(records.get_realm(name))}", name.partition("@")[2])
        for name, held in sorted(account.roles.items())
        if "@" in name
        for role in sorted(held)
    ]
    response = responses.make_page_response(
        request,
        "account_admin.html",
        responses.build_page_frame(
            request, f"Account {account.login}", (urls.HOME_URL, "Home"), (urls.accounts_url(), "Accounts")
        ),
        http_status=http_status if error is None else get_problem_type(error).status,
        account=account,
        state=compute_state(account),
        realms=[
            (realm, title, account.roles.get(realm, frozenset()))
            for realm, title in (
                (records.ALL_REALMS, "Every registry"), *((row.id, row.title) for row in REGISTRIES.values())
            )
        ],
        roles=_list_role_choices(),
        by_group=by_group,
        own=visitor is not None and visitor.id == account.id,
        password="" if secret is None else secret.reveal(),
        error=error,
    )  # fmt: skip
    if secret is not None:
        response.headers["cache-control"] = "no-store"
    return response


def _list_role_choices() -> tuple[tuple[str, str, str], ...]:
    """Return (role, title, help) of the roles that an administrator gives."""
    helps: dict[Role, str] = {
        Role.IANA: "checks requests; in every registry: administers accounts",
        Role.EXPERT: "reviews and decides requests",
        Role.IESG: "decides what needs its approval",
    }
    return tuple((str(role), ROLE_TITLES[role], helps[role]) for role in _GIVEN)


def _describe_realm(realm: str) -> str:
    return "in every registry" if realm == records.ALL_REALMS else f"in {realm}"


def _describe_roles(account: records.Account) -> str:
    """Return the account's roles as a text."""
    held: list[Any] = [
        f"{name_role(Role(role))} {_describe_realm(records.get_realm(name))}"
        for name, roles in sorted(account.roles.items())
        for role in sorted(roles)
        if role in _GIVEN
    ]
    return ", ".join(held) or apply_words("registrant")


ROUTES: Final = (
    make_route(urls.ACCOUNTS_URL, {"GET": accounts_page, "POST": add_account}),
    make_route("/accounts/{id}", {"GET": account_page}),
    make_route("/accounts/{id}/details", {"POST": save_details}),
    make_route("/accounts/{id}/roles", {"POST": save_roles}),
    make_route("/accounts/{id}/disable", {"POST": disable_account}),
    make_route("/accounts/{id}/enable", {"POST": enable_account}),
    make_route("/accounts/{id}/password", {"POST": reset_password}),
)
