"""The pages about what is recorded: the audit log, the removal of personal data, and the statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from onym.errors import AccessError, RefusalError, RegistryError, StaleError, UnknownEntryError
from onym.registry.records import Role, Scope, is_administrator
from onym.registry.registries import REGISTRIES
from onym.registry.store import MAX_REMOVED, MIN_REMOVED
from onym.registry.words import apply_words
from onym.server.middleware import make_audit_record, set_audit_action
from onym.server.registry import urls
from onym.server.registry.dependencies import (
    find_registry,
    get_current_time,
    get_response_cache,
    get_store,
    load_accounts,
    make_missing_scope_error,
)
from onym.server.registry.labels import (
    STATE_LABELS,
    format_time,
    translate_page,
    translate_plural,
    translate_text,
)
from onym.server.registry.responses import (
    PageForm,
    build_page_frame,
    clean_query,
    make_page_response,
    parse_number,
    read_form,
)
from onym.server.registry.urls import make_route
from onym.server.responses import get_problem_type, parse_cursor, parse_page_size
from onym.server.sessions import Visitor, get_visitor, make_actor, require_access

if TYPE_CHECKING:
    from starlette.requests import Request

    from onym.accounts.records import Account, AuditRecord
    from onym.registry.registries import Registry
    from onym.registry.store import Page, Redaction, Statistics

#: characters of a reason
_MAX_REASON: Final = 1_000


async def load_audit_page(request: Request) -> tuple[Page[AuditRecord], dict[str, Account]]:
    """Return a page of the audit log for the request's query, and the accounts in it by ID.

    The query may have `account` (a login), `action`, `after` and `limit`. Raises AccessError for visitors
    without the role IANA in every registry.
    """
    visitor, query = get_visitor(request), request.query_params
    require_access(visitor)
    held = [registry for registry in REGISTRIES if Role.IANA in visitor.list_roles(registry)]
    account = require_access(
        visitor, registry=held[0] if held else next(iter(REGISTRIES)), roles=(Role.IANA,)
    )
    if not is_administrator(account):
        # the log contains events of all registries, and sign-ins with addresses
        raise AccessError(
            "this needs the role iana in every registry", code="registry.wrong-role", field="role"
        )
    login = clean_query(query.get("account", ""), "account")
    page = await get_store(request).audit.page(
        account=await _find_account(request, login) if login else None,
        action=clean_query(query.get("action", ""), "action") or None,
        after=parse_cursor(query.get("after")),
        limit=parse_page_size(query.get("limit")),
    )
    ids = (record.account for record in page.items if record.account)
    return page, await load_accounts(request, ids)


async def _find_account(request: Request, login: str) -> str:
    """Return the ID of a login. Users of the command line have none."""
    if login.startswith("command line, "):
        return login
    found = await get_store(request).accounts.find_by_login(login.lower())
    if found is None:
        raise UnknownEntryError("no account has this login", code="accounts.unknown-account", field="account")
    return found.id


async def audit_page(request: Request) -> Response:
    """GET: the audit log, for IANA."""
    page, accounts = await load_audit_page(request)
    query = request.query_params
    following = {"account": query.get("account"), "action": query.get("action"), "after": page.next}
    return make_page_response(
        request,
        "audit.html",
        build_page_frame(request, "Audit log", (urls.HOME_URL, "Home")),
        records=page.items,
        names={identifier: known.name or known.login for identifier, known in accounts.items()},
        redactable=list(REGISTRIES.values()),
        data=urls.api_url("audit"),
        next="" if page.next is None else urls.build_path("audit", **following),
    )


async def redact(request: Request, row: Registry, text: str, reason: str, *, dry_run: bool) -> Redaction:
    """Remove every line with a text from the registry's log, or list these lines.

    Raises AccessError for visitors without the role IANA in the registry, and RefusalError.
    """
    visitor = require_redactor(request, row)
    # before anything can fail: the audit log must not get the text
    set_audit_action(request, "registry.redact", row.id)
    if text.strip().casefold() in reason.casefold():
        raise RefusalError(
            "the reason contains the text that is removed", code="registry.bad-data", field="reason",
            hint="Give a reason without the data, such as a number of your ticket.",
        )  # fmt: skip
    store = get_store(request)
    if dry_run:
        return await store.find_redaction(row.id, text)
    actor, now = make_actor(visitor, row.id), get_current_time(request)
    audit = make_audit_record(request, "registry.redact", f"{row.id}: {reason}")
    found = await store.redact(row.id, text, actor, now, reason=reason, audit=audit)
    get_response_cache(request).clear_after_write()
    return found


def require_redactor(request: Request, row: Registry) -> Visitor:
    """Return the visitor. Raises AccessError without the role and the scope to remove personal data."""
    visitor = get_visitor(request)
    require_access(visitor, registry=row.id, roles=(Role.IANA,))
    if Scope.IANA not in visitor.scopes:
        raise make_missing_scope_error((Scope.IANA,))
    return visitor


async def redact_page(request: Request) -> Response:
    """GET: the form that removes personal data from the log of a registry."""
    row = find_registry(request)
    require_redactor(request, row)
    return _make_redact_response(request, row, PageForm())


async def redact_form(request: Request) -> Response:
    """POST: fields `text`, `reason`; list the lines, or remove them.

    They are removed if `confirm` is the registry's ID and `lines` is the number of lines that were listed.
    """
    row = find_registry(request)
    require_redactor(request, row)
    form = await read_form(request)
    text, reason = form.get_text("text"), form.get_text("reason").strip()
    listed = parse_number(form.get_text("lines"), "lines")
    found = None
    try:
        if not reason:
            raise RegistryError(
                "the reason is empty", code="registry.missing-data", field="reason", hint="Fill it in."
            )
        reason = clean_query(reason, "reason", _MAX_REASON)
        found = await redact(request, row, text, reason, dry_run=True)
        if listed is None:
            return _make_redact_response(request, row, form, found=found)
        _require_confirmation(row, form, listed, found)
        found = await redact(request, row, text, reason, dry_run=False)
    except RegistryError as error:
        return _make_redact_response(request, row, form, found=found, error=error)
    return _make_redact_response(request, row, PageForm(), found=found)


def _require_confirmation(row: Registry, form: PageForm, listed: int, found: Redaction) -> None:
    if listed != _count_lines(found):
        raise StaleError(
            "the log has changed since the lines were listed",
            field="lines",
            hint="Read the new list, and confirm again.",
        )
    if form.get_text("confirm").strip() != row.id:
        raise RegistryError(
            "the ID of the registry was not typed as a confirmation",
            code="accounts.not-confirmed",
            field="confirm",
            hint=f"Type {row.id}.",
        )


def _count_lines(found: Redaction) -> int:
    return sum(map(len, found.places.values()))


def _make_redact_response(
    request: Request,
    row: Registry,
    form: PageForm,
    *,
    found: Redaction | None = None,
    error: RegistryError | None = None,
) -> Response:
    """Return the page. It contains the text to remove, so that no cache may keep it."""
    response = make_page_response(
        request,
        "redact.html",
        build_page_frame(
            request, "Remove personal data", (urls.HOME_URL, "Home"), (urls.entries_url(row.id), row.title)
        ),
        http_status=200 if error is None else get_problem_type(error).status,
        registry=row,
        action=urls.redact_url(row.id),
        text=form.get_text("text"),
        reason=form.get_text("reason"),
        found=found,
        lines=0 if found is None else _count_lines(found),
        error=error,
        min_length=MIN_REMOVED,
        max_length=MAX_REMOVED,
        max_reason=_MAX_REASON,
    )
    response.headers["cache-control"] = "no-store"
    return response


STAGE_LABELS: Final[Mapping[str, str]] = {
    "draft": "Draft",
    "list": "Mailing list review",
    "iana": "IANA check",
    "expert": "Expert Review",
    "iesg": "IESG approval",
}
#: months on the page; the API has more
_MONTHS_SHOWN: Final = 24
#: seconds of a unit, and its forms for one and for several
UNITS: Final = (
    (86_400, "%(count)s day", "%(count)s days"),
    (3_600, "%(count)s hour", "%(count)s hours"),
    (60, "%(count)s minute", "%(count)s minutes"),
)


async def load_statistics(request: Request) -> Statistics:
    """Return the statistics, which are computed again only after a new log record."""
    state = request.app.state
    kept: Statistics | None = getattr(state, "registry_statistics", None)
    if kept is None or kept.number != (await get_store(request).head()).number:
        kept = state.registry_statistics = await get_store(request).compute_statistics()
    return kept


@translate_page
async def statistics_page(request: Request) -> Response:
    """GET: the statistics of all registries."""
    found = await load_statistics(request)
    return make_page_response(
        request,
        "statistics.html",
        build_page_frame(request, translate_text("Statistics"), (urls.HOME_URL, "Home")),
        number=found.number,
        at=format_time(found.at),
        groups=[
            (REGISTRIES[numbers.registry], numbers, numbers.months[-_MONTHS_SHOWN:][::-1])
            for numbers in found.registries
        ],
        state_labels=STATE_LABELS,
        stage_labels={stage: apply_words(translate_text(label)) for stage, label in STAGE_LABELS.items()},
        describe_time=describe_time,
        data=urls.api_url("statistics"),
    )


def describe_time(seconds: int) -> str:
    """Return a length of time in its largest unit: "12 days"."""
    for size, one, many in UNITS:
        if seconds >= size:
            count = round(seconds / size)
            return translate_plural(one, many, count) % {"count": count}
    return translate_text("less than a minute")


ROUTES: Final = (
    make_route(urls.STATISTICS_URL, {"GET": statistics_page}),
    make_route(urls.AUDIT_URL, {"GET": audit_page}),
    make_route("/r/{registry}/-/redact", {"GET": redact_page, "POST": redact_form}),
)
