"""Contexts of the pages where something is done: submit, status, review, queues, changes, account, audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from onym.server.registry.contexts.parts import (
    ActionView,
    Cell,
    Choice,
    Context,
    FormField,
    HistoryLine,
    Link,
    ReportView,
    RequestRow,
    StatusView,
    Step,
)

__all__ = [
    "AccountPage",
    "AuditLine",
    "AuditPage",
    "ChangePage",
    "CheckResult",
    "LoginPage",
    "QueuePage",
    "RequestPage",
    "RequestsPage",
    "ReviewPage",
    "SubmitPage",
    "TokenRow",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitPage(Context):
    """The form of a registration: paste a template or a draft, or fill the fields; checked as you type."""

    template: ClassVar[str] = "submit.html"
    registries: Annotated[tuple[Choice, ...], "the registries"]
    registry: Annotated[str, "the registry chosen"]
    noun: Annotated[str, "what an entry is called there"]
    profiles: Annotated[tuple[Choice, ...], "the procedures that fit; the first lets the template say"]
    statuses: Annotated[tuple[Choice, ...], "the statuses that may be asked for"]
    text: Annotated[str, "the pasted template or draft"]
    fields: Annotated[tuple[FormField, ...], "the fields of the template"]
    on_behalf_of: Annotated[str, "who invented it, where that is not the registrant"]
    report: Annotated[ReportView | None, "what the checker says, once something was checked"]
    action: Annotated[str, "where the form is sent to be saved"]
    check: Annotated[str, "where it is sent to be checked"]
    reload: Annotated[str, "where another registry is chosen"]
    request: Annotated[str, "the id of the request that is revised; empty for a new one"]
    version: Annotated[int, "the version of that request"]
    step: Annotated[str, "the step that saving takes: open, revise or resubmit"]
    signed_in: Annotated[bool, "may it be saved?"]
    limit: Annotated[int, "characters that the text may have"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(Context):
    """The checker's report alone: what htmx puts beside the text."""

    template: ClassVar[str] = "check.html"
    report: Annotated[ReportView, "the report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPage(Context):
    """The public status of one request."""

    template: ClassVar[str] = "request.html"
    id: Annotated[str, "the request's id"]
    registry: Annotated[str, "the registry's id"]
    registry_title: Annotated[str, "the registry's title"]
    name: Annotated[str, "the name asked for"]
    entry: Annotated[str, "the entry's page, empty while there is none"]
    kind: Annotated[str, "what is asked for"]
    profile: Annotated[str, "the procedure it follows"]
    status: Annotated[StatusView, "the status asked for"]
    state: Annotated[str, "where it stands"]
    state_label: Annotated[str, "the same, in words"]
    final: Annotated[bool, "has it ended?"]
    holder: Annotated[str, "whose move it is, in words; empty at the end"]
    since: Annotated[str, "since when"]
    due: Annotated[str, "until when; empty where no clause gives a time"]
    overdue: Annotated[bool, "is that time over?"]
    next: Annotated[str, "what happens next, in a sentence"]
    reason: Annotated[str, "the reason that was given last"]
    registrant: Annotated[str, "who asks"]
    on_behalf_of: Annotated[str, "for whom"]
    opened: Annotated[str, "when it was opened"]
    archive: Annotated[str, "where the list review can be read"]
    steps: Annotated[tuple[Step, ...], "the way, done and left"]
    fields: Annotated[tuple[Cell, ...], "what was asked to be registered"]
    text: Annotated[str, "the template as it was pasted"]
    history: Annotated[tuple[HistoryLine, ...], "its events, oldest first, of one part"]
    earlier: Annotated[str, "the part before; empty where there is none"]
    actions: Annotated[tuple[ActionView, ...], "what the visitor may do now"]
    edit: Annotated[str, "the form that revises it; empty where it may not be"]
    review: Annotated[str, "the review page; empty for who does not review"]
    version: Annotated[int, "how many events it has"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsPage(Context):
    """All requests, filtered."""

    template: ClassVar[str] = "requests.html"
    rows: Annotated[tuple[RequestRow, ...], "the requests of this part"]
    registries: Annotated[tuple[Choice, ...], "registries to filter by"]
    states: Annotated[tuple[Choice, ...], "states to filter by"]
    mine: Annotated[str, "the visitor's own requests; empty for nobody"]
    action: Annotated[str, "where the form is sent"]
    next: Annotated[str, "the next part, empty at the end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPage(Context):
    """Template and report side by side, and the decisions that the engine allows."""

    template: ClassVar[str] = "review.html"
    id: Annotated[str, "the request's id"]
    request: Annotated[str, "its status page"]
    registry: Annotated[str, "the registry's id"]
    name: Annotated[str, "the name asked for"]
    kind: Annotated[str, "what is asked for"]
    profile: Annotated[str, "the procedure"]
    status: Annotated[StatusView, "the status asked for"]
    state_label: Annotated[str, "where it stands"]
    registrant: Annotated[str, "who asks"]
    due: Annotated[str, "until when an answer is due"]
    overdue: Annotated[bool, "is that time over?"]
    lines: Annotated[tuple[str, ...], "the template's lines"]
    faults: Annotated[tuple[int, ...], "lines that a finding points at"]
    fields: Annotated[tuple[Cell, ...], "the fields as they were read"]
    missing: Annotated[tuple[str, ...], "fields that the procedure requires and the request leaves out"]
    report: Annotated[ReportView, "the checker's report"]
    existing: Annotated[Link | None, "the entry of that name, if there is one"]
    actions: Annotated[tuple[ActionView, ...], "the decisions that are open to the visitor"]
    archive: Annotated[str, "where the list review can be read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage(Context):
    """What waits for one role, the most urgent first."""

    template: ClassVar[str] = "queue.html"
    role: Annotated[str, "expert, iana or iesg"]
    title: Annotated[str, "the queue's name"]
    intro: Annotated[str, "what is done here"]
    rows: Annotated[tuple[RequestRow, ...], "the requests, by the time they are due"]
    overdue: Annotated[int, "how many are overdue"]
    queues: Annotated[tuple[Link, ...], "the queues that the visitor may see"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePage(Context):
    """All changes of an entry that the visitor may ask for, one form each."""

    template: ClassVar[str] = "change.html"
    registry: Annotated[str, "the registry's id"]
    name: Annotated[str, "the entry's name"]
    entry: Annotated[str, "its page"]
    status: Annotated[StatusView, "its status"]
    version: Annotated[int, "its version"]
    direct: Annotated[tuple[ActionView, ...], "changes that take effect at once"]
    requested: Annotated[tuple[ActionView, ...], "changes that open a request"]
    signed_in: Annotated[bool, "is anybody signed in?"]
    removed: Annotated[str, "when it was removed, and by which record; empty where it is there"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One API token; the token itself is shown once, when it is made."""

    id: str
    label: str
    scopes: str
    created: str
    expires: str
    last_used: str
    state: str
    revoke: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPage(Context):
    """The visitor's own account: roles, API tokens, sessions."""

    template: ClassVar[str] = "account.html"
    login_name: Annotated[str, "the login"]
    name: Annotated[str, "the name"]
    email: Annotated[str, "the address that notices go to"]
    roles: Annotated[tuple[Cell, ...], "roles, by registry"]
    tokens: Annotated[tuple[TokenRow, ...], "the API tokens"]
    scopes: Annotated[tuple[Choice, ...], "what a new token may be allowed"]
    create: Annotated[str, "where a new token is asked for"]
    new_token: Annotated[str, "the token just made, shown this once"]
    sign_out: Annotated[str, "where every session is ended"]
    password: Annotated[str, "where the password is changed; empty where there is none"]
    fault: Annotated[str, "what the last form met"]
    requests: Annotated[str, "the visitor's requests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPage(Context):
    """Signing in: with a local account, or with an OpenID provider."""

    template: ClassVar[str] = "login.html"
    action: Annotated[str, "where the form is sent"]
    local: Annotated[bool, "are there local accounts?"]
    providers: Annotated[tuple[Link, ...], "OpenID providers"]
    login_name: Annotated[str, "the login that was tried"]
    fault: Annotated[str, "why the last try failed"]
    target: Annotated[str, "the page to go on to"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One line of the audit log."""

    at: str
    account: str
    action: str
    subject: str
    outcome: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(Context):
    """Who did what, for the IANA role."""

    template: ClassVar[str] = "audit.html"
    lines: Annotated[tuple[AuditLine, ...], "the lines of this part, newest first"]
    next: Annotated[str, "the next part, empty at the end"]
