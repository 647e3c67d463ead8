"""One frozen context for each page: templates render it, and its JSON representation is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link: where to, its text, and whether it is the page in hand."""

    href: str
    text: str
    current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """What stands around every page. It is no part of the page's JSON twin."""

    title: str
    nav: tuple[Link, ...]
    desk: tuple[Link, ...]
    crumbs: tuple[Link, ...]
    #: the name of whoever is signed in, "" for nobody
    who: str
    account: str
    login: str
    logout: str
    csrf: str
    css: str
    script: str
    icon: str
    openapi: str
    help: str
    search: str
    #: what the last form did, in a sentence; "" for nothing
    done: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """One page. `template` draws it; every field but `page` is in its JSON twin."""

    template: ClassVar[str]
    page: PageFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """A status: its id, its words, and a sign so that colour is never the only bearer of it."""

    id: str
    label: str
    sign: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A column's or field's value under its heading; `parts` is the value cut at the links found in it."""

    id: str
    heading: str
    value: str
    parts: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    """One row of a registry's table."""

    registry: str
    registry_title: str
    name: str
    href: str
    status: StatusView
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteView:
    """A note on an entry."""

    kind: str
    text: str
    at: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """One accepted event: what, who, when, by which rule and clause."""

    number: int
    at: str
    actor: str
    roles: str
    kind: str
    label: str
    rule: str
    clause: str
    reason: str
    request: Link | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One request in a list."""

    id: str
    href: str
    registry: str
    registry_title: str
    name: str
    kind: str
    status: StatusView
    state: str
    state_label: str
    holder: str
    since: str
    due: str
    overdue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One finding of the checker; `anchor` is the form field it is about."""

    check: str
    code: str
    level: str
    message: str
    clause: str
    field: str
    line: int | None
    column: int | None
    witness: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """The checker's report, counted. `fault` says why there is none ("" where there is)."""

    profile: str
    profile_title: str
    scheme: str
    ok: bool
    errors: int
    warnings: int
    hints: int
    findings: tuple[FindingView, ...]
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a request's way. `mark` is done, current, left, skipped or stopped."""

    id: str
    label: str
    mark: str
    mark_label: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One value that a choice offers."""

    value: str
    label: str
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a template in a form."""

    id: str
    label: str
    value: str
    required: bool
    clause: str
    help: str
    long: bool
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionField:
    """What an action asks for: `kind` is text, long, choice, date or list."""

    id: str
    label: str
    kind: str
    required: bool
    help: str
    value: str = ""
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """One step that the visitor may take now, as the engine allows it."""

    kind: str
    label: str
    help: str
    #: good, bad or plain
    tone: str
    href: str
    version: int
    fields: tuple[ActionField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCard:
    """One registry on the home page."""

    id: str
    title: str
    noun: str
    href: str
    feed: str
    submit: str
    reference: str
    summary: str
    total: int
    counts: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePage(PageContext):
    """The three registries, what is new, and how to register."""

    template: ClassVar[str] = "home.html"
    registries: Annotated[tuple[RegistryCard, ...], "every registry, with the entries counted by status"]
    news: Annotated[tuple[HistoryLine, ...], "the last events, newest first"]
    news_names: Annotated[tuple[Link, ...], "the entry that each of `news` is about"]
    open_requests: Annotated[tuple[RequestRow, ...], "requests under way, oldest first"]
    submit: Annotated[str, "where a registration begins"]
    requests: Annotated[str, "all requests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(PageContext):
    """One registry, in IANA's columns."""

    template: ClassVar[str] = "list.html"
    registry: Annotated[str, "the registry's id"]
    title: Annotated[str, "the registry's title"]
    noun: Annotated[str, "what one entry is called"]
    reference: Annotated[str, "the document that defines the registry"]
    headings: Annotated[tuple[Link, ...], "the columns' ids (href) and headings (text)"]
    rows: Annotated[tuple[EntryRow, ...], "the entries of this part"]
    query: Annotated[str, "what was searched for"]
    statuses: Annotated[tuple[Choice, ...], "statuses to filter by"]
    action: Annotated[str, "where the form is sent"]
    next: Annotated[str, "the next part, empty at the end"]
    first: Annotated[str, "the first part, empty on it"]
    feed: Annotated[str, "the Atom feed"]
    submit: Annotated[str, "where a registration in this registry begins"]
    exports: Annotated[tuple[Link, ...], "the registry as a file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryHits:
    """What a search found in one registry; `more` is the list filtered by the same words."""

    registry: str
    title: str
    rows: tuple[EntryRow, ...]
    more: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(PageContext):
    """Search across all registries."""

    template: ClassVar[str] = "search.html"
    query: Annotated[str, "what was searched for"]
    action: Annotated[str, "where the form is sent"]
    hits: Annotated[tuple[RegistryHits, ...], "the hits, by registry, best first"]
    total: Annotated[int, "hits shown, in all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOption:
    """One version of an entry that may be compared."""

    number: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage(PageContext):
    """One entry: fields, status, notes, history, files."""

    template: ClassVar[str] = "entry.html"
    registry: Annotated[str, "the registry's id"]
    registry_title: Annotated[str, "the registry's title"]
    noun: Annotated[str, "what an entry is called here"]
    name: Annotated[str, "the entry's name"]
    spelling: Annotated[str, "how the source wrote the name, where that differs"]
    status: Annotated[StatusView, "the status"]
    status_help: Annotated[str, "what the status means, in plain words"]
    cells: Annotated[tuple[Cell, ...], "the fields that hold something, in the registry's order"]
    notes: Annotated[tuple[NoteView, ...], "notes, oldest first"]
    registered: Annotated[str, "when it was registered"]
    updated: Annotated[str, "when it last changed"]
    expires: Annotated[str, "the last day it holds"]
    draft: Annotated[str, "the Internet-Draft that holds it, and the day that expires"]
    version: Annotated[int, "how many events changed it"]
    nobody: Annotated[str, "where it has no registrant: who can change it all the same"]
    pending: Annotated[tuple[Link, ...], "the requests under review about this entry"]
    history: Annotated[tuple[HistoryLine, ...], "its events, newest first, of one part"]
    earlier: Annotated[str, "the part before; empty where there is none"]
    versions: Annotated[tuple[VersionOption, ...], "versions to compare, newest first"]
    downloads: Annotated[tuple[Link, ...], "the entry as a file"]
    compare: Annotated[str, "where two versions are compared"]
    change: Annotated[str, "the forms that change it"]
    requests: Annotated[tuple[RequestRow, ...], "requests about this name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of text: `kind` is same, gone or new."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One field in two versions."""

    id: str
    heading: str
    changed: bool
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparePage(PageContext):
    """Two versions of an entry, field by field."""

    template: ClassVar[str] = "compare.html"
    registry: Annotated[str, "the registry's id"]
    name: Annotated[str, "the entry's name"]
    entry: Annotated[str, "the entry's page"]
    action: Annotated[str, "where the choice of versions is sent"]
    before: Annotated[int, "the older version's number"]
    after: Annotated[int, "the newer version's number"]
    versions: Annotated[tuple[VersionOption, ...], "the versions there are"]
    fields: Annotated[tuple[Comparison, ...], "every field of either version"]
    changes: Annotated[int, "how many fields differ"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """A state machine as boxes and arrows, drawn by the template. Lengths in user units of the SVG.

    `aside` says in words what is not drawn.
    """

    width: int
    height: int
    boxes: tuple[DiagramBox, ...]
    arrows: tuple[DiagramArrow, ...]
    aside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramBox:
    """A state."""

    id: str
    label: str
    x: int
    y: int
    width: int
    height: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramArrow:
    """A transition: an SVG path, and the number that the list below explains."""

    path: str
    number: int
    x: int
    y: int
    label: str
    who: str
    clause: str
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """How requests for one status are decided."""

    status: StatusView
    policy: str
    clause: str
    list_review: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileHelp:
    """One procedure: its policies, fields and picture."""

    id: str
    title: str
    policies: tuple[PolicyRow, ...]
    fields: tuple[Cell, ...]
    timeout: str
    diagram: Diagram


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpPage(PageContext):
    """The procedure in plain words, and each profile's state machine."""

    template: ClassVar[str] = "help.html"
    profiles: Annotated[tuple[ProfileHelp, ...], "every procedure"]
    contents: Annotated[tuple[Link, ...], "the sections of the page"]
    statuses: Annotated[tuple[Cell, ...], "what each status means"]
    submit: Annotated[str, "where a registration begins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPage(PageContext):
    """What went wrong, where, by which clause, and how to go on."""

    template: ClassVar[str] = "error.html"
    status: Annotated[int, "the HTTP status"]
    title: Annotated[str, "the status in words"]
    code: Annotated[str, "the stable code of the error"]
    detail: Annotated[str, "what happened"]
    clause: Annotated[str, "the rule behind it"]
    field: Annotated[str, "the field it is about"]
    hint: Annotated[str, "how to go on"]
    back: Annotated[str, "where to go from here"]
    request_id: Annotated[str, "what the operator's log calls this request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitPage(PageContext):
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
class RequestPage(PageContext):
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
class RequestsPage(PageContext):
    """All requests, filtered."""

    template: ClassVar[str] = "requests.html"
    rows: Annotated[tuple[RequestRow, ...], "the requests of this part"]
    registries: Annotated[tuple[Choice, ...], "registries to filter by"]
    states: Annotated[tuple[Choice, ...], "states to filter by"]
    mine: Annotated[str, "the visitor's own requests; empty for nobody"]
    action: Annotated[str, "where the form is sent"]
    next: Annotated[str, "the next part, empty at the end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPage(PageContext):
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
class QueuePage(PageContext):
    """What waits for one role, the most urgent first."""

    template: ClassVar[str] = "queue.html"
    role: Annotated[str, "expert, iana or iesg"]
    title: Annotated[str, "the queue's name"]
    intro: Annotated[str, "what is done here"]
    rows: Annotated[tuple[RequestRow, ...], "the requests, by the time they are due"]
    overdue: Annotated[int, "how many are overdue"]
    queues: Annotated[tuple[Link, ...], "the queues that the visitor may see"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePage(PageContext):
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
class AccountPage(PageContext):
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
class LoginPage(PageContext):
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
class AuditPage(PageContext):
    """Who did what, for the IANA role."""

    template: ClassVar[str] = "audit.html"
    lines: Annotated[tuple[AuditLine, ...], "the lines of this part, newest first"]
    next: Annotated[str, "the next part, empty at the end"]


#: every page there is
PAGES: Final[tuple[type[PageContext], ...]] = (
    AccountPage,
    AuditPage,
    ChangePage,
    ComparePage,
    EntryPage,
    ErrorPage,
    HelpPage,
    HomePage,
    ListPage,
    LoginPage,
    QueuePage,
    RequestPage,
    RequestsPage,
    ReviewPage,
    SearchPage,
    SubmitPage,
)
