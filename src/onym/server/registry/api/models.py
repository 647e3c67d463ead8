"""Data types of the JSON API: request bodies and responses as msgspec structs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from onym.accounts.records import MAX_LABEL
from onym.registry.records import Entry, EventKind, LogRecord, Request, RequestKind, Scope
from onym.registry.registries import Registry
from onym.server.registry import urls

if TYPE_CHECKING:
    from onym.accounts.records import AuditRecord
    from onym.registry.checks import Report

_DataT = TypeVar("_DataT", bound="_Data")
#: no control characters except tab, line feed, form feed and carriage return
_CLEAN: Final = r"^[^\u0000-\u0008\u000b\u000e-\u001f\u007f-\u009f]*$"

#: one line with at least one visible character
_LINE: Final = r"^[^\u0000-\u001f\u007f-\u009f]*[!-~][^\u0000-\u001f\u007f-\u009f]*$"

#: characters of a name
MAX_NAME: Final = 100

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=_CLEAN)]
Word = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-z0-9-]+$")]
Field = Annotated[str, Meta(max_length=64_000, pattern=_CLEAN)]
Fields = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-z_]+$")], Field], Meta(max_length=64)
]
Template = Annotated[str, Meta(max_length=1_000_000, pattern=_CLEAN)]
#: characters of an archive; a longer one is linked on the command line
MAX_ARCHIVE = 3_000_000
Short = Annotated[str, Meta(max_length=300, pattern=_CLEAN)]
#: an https URL with one `{id}`; `onym.registry.list_archive` checks the rest
_LINK: Final = r"^https://[!-z|~]{1,230}\{id\}[!-z|~]{0,60}$"


class _Data(msgspec.Struct):
    """A part of a response."""


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""


class ColumnData(_Data):
    """One column of a registry."""

    id: str
    heading: str


class RegistryData(_Data):
    """One registry."""

    id: str
    title: str
    noun: str
    reference: str
    profiles: tuple[str, ...]
    statuses: tuple[str, ...]
    columns: tuple[ColumnData, ...]
    entries: str
    page: str
    feed: str


class RegistryList(_Data):
    """All registries."""

    registries: tuple[RegistryData, ...]


class NoteData(_Data):
    """A note on an entry."""

    kind: str
    text: str
    at: datetime
    by: str


class DraftData(_Data):
    """An Internet-Draft and the day it expires."""

    name: str
    expires: date


class EntryData(_Data):
    """One entry. `If-Match` refers to its `version`; `page` is the URL of its page."""

    registry: str
    name: str
    spelling: str | None
    status: str
    fields: dict[str, str]
    notes: tuple[NoteData, ...]
    registrant: str | None
    designees: tuple[str, ...]
    iesg_approved: bool
    draft: DraftData | None
    pending: tuple[str, ...]
    expires: date | None
    registered: datetime | None
    updated: datetime | None
    version: int
    page: str


class EntryList(_Data):
    """A page of entries by name; `next` is the URL of the next page, or None."""

    entries: tuple[EntryData, ...]
    next: str | None


class SearchHits(_Data):
    """Search results, best first."""

    query: str
    entries: tuple[EntryData, ...]


class HistoryRecord(_Data):
    """One log record. `digest` is a hash of `previous` and the other members."""

    number: int
    at: datetime
    actor: str
    roles: tuple[str, ...]
    event: str
    registry: str
    request: str | None
    name: str | None
    data: dict[str, Any]
    rule: str
    clause: str
    previous: str
    digest: str


class History(_Data):
    """A page of events, oldest first; `next` is the URL of the next page, or None."""

    records: tuple[HistoryRecord, ...]
    next: str | None


class VersionData(_Data):
    """One version of an entry, and the number of its log record."""

    version: int
    number: int
    at: datetime
    event: str
    entry: EntryData


class VersionList(_Data):
    """Every version of an entry, oldest first."""

    versions: tuple[VersionData, ...]


class MessageData(_Data):
    """A message about the request in the archive of the mailing list."""

    url: str
    subject: str
    at: datetime


class AppealData(_Data):
    """An appeal against the decision about the request; `level` is iesg or iab."""

    by: str
    grounds: str
    level: str
    against: str
    filed: datetime
    due: datetime
    for_registrant: bool
    state: str
    decided: datetime | None
    reason: str | None


class RequestData(_Data):
    """One registration request. `If-Match` refers to its `version`."""

    id: str
    registry: str
    profile: str
    kind: str
    name: str
    status: str
    state: str
    registrant: str
    on_behalf_of: str | None
    fields: dict[str, str]
    template: str
    opened: datetime
    since: datetime
    holder: str | None
    due: datetime | None
    announced: datetime | None
    archive: str | None
    timed_out: bool
    third_party: bool
    expert: str | None
    temporary_experts: tuple[str, ...]
    recused: tuple[str, ...]
    messages: tuple[MessageData, ...]
    appeals: tuple[AppealData, ...]
    draft: DraftData | None
    outcome: str | None
    reason: str | None
    version: int
    page: str


class RequestList(_Data):
    """A page of requests, newest first."""

    requests: tuple[RequestData, ...]
    next: str | None


class ActionList(_Data):
    """The events that the caller may use now on this version of a request or entry."""

    version: int
    events: tuple[str, ...]


class FindingData(_Data):
    """One finding of the checker."""

    check: str
    code: str
    level: str
    message: str
    clause: str
    field: str | None
    line: int | None
    column: int | None
    witness: str | None
    fix: str | None


class CheckReport(_Data):
    """The checker's report. `ok` is true if there are no errors; there may be warnings and hints."""

    ok: bool
    profile: str
    scheme: str | None
    findings: tuple[FindingData, ...]
    ran: tuple[str, ...]


class Health(_Data):
    """The service and its store are available: number and digest of the last log record."""

    status: str
    number: int
    digest: str


class AccountData(_Data):
    """The caller's account, its roles by registry (limited by the token's scopes) and scopes."""

    id: str
    login: str
    name: str
    roles: dict[str, tuple[str, ...]]
    scopes: tuple[Scope, ...]
    via: Literal["session", "token"]


class TokenData(_Data):
    """One API token, without its secret."""

    id: str
    label: str
    scopes: tuple[Scope, ...]
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    last_used: datetime | None


class TokenList(_Data):
    """All tokens of the account, including revoked ones."""

    tokens: tuple[TokenData, ...]


class TokenMade(TokenData):
    """A new token; `token` is the secret, which is shown only once."""

    token: str


class Problem(_Data):
    """Problem details (RFC 9457). `code` is stable; `hint` is the next step."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str


class CheckBody(_Body):
    """A template or specification to check, or fields. Fields override the template's values.

    The default registry is the first.
    """

    registry: Word | None = None
    profile: Word | None = None
    status: Word | None = None
    template: Template = ""
    fields: Fields = msgspec.field(default_factory=dict)


class OpenBody(_Body):
    """A request to open as a draft. `name` is optional if the template contains it."""

    registry: Word
    kind: RequestKind = RequestKind.NEW
    name: Name | None = None
    profile: Word | None = None
    status: Word | None = None
    template: Template = ""
    fields: Fields = msgspec.field(default_factory=dict)
    on_behalf_of: Short | None = None


class EventBody(_Body):
    """An event. The members of `data` depend on the event."""

    event: EventKind
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class ArchiveBody(_Body):
    """A mailing list's archive: the text of an mbox file or an Atom feed.

    `link` makes the address of messages without Archived-At: an https URL with `{id}`.
    """

    archive: Annotated[str, Meta(min_length=1, max_length=MAX_ARCHIVE)]
    link: Annotated[str, Meta(max_length=300, pattern=_LINK)] | None = None


class LinkedMessages(_Data):
    """The messages that were linked to one request, and its version after that."""

    request: str
    state: str
    version: int
    messages: tuple[MessageData, ...]


class ArchiveReport(_Data):
    """The messages of an archive: how many were read and how many have no ID, date or address."""

    messages: int
    skipped: int
    requests: tuple[LinkedMessages, ...]


class RedactionBody(_Body):
    """A text to remove from a registry's log, and why, without the text. `dry_run` only lists the lines."""

    text: Annotated[str, Meta(min_length=1, max_length=1_000, pattern=_LINE)]
    reason: Annotated[str, Meta(min_length=1, max_length=1_000, pattern=_LINE)]
    dry_run: bool = False


class RedactionReport(_Data):
    """The lines that were removed, or would be, by record; `record` is the log's record of it."""

    record: int | None
    removed: dict[str, tuple[str, ...]]


class AuditData(_Data):
    """A record of the audit log: who did what to what, from where, and the outcome.

    `account` is None for a visitor who was not signed in. `login` is None for an account that does not exist
    any more, and for a user of the command line, whose name is in `account`. `outcome` is "ok" or a code.
    """

    at: datetime
    account: str | None
    login: str | None
    action: str
    subject: str | None
    outcome: str
    address: str | None


class AuditList(_Data):
    """Records of the audit log, the newest first; `next` is the URL of older records."""

    records: tuple[AuditData, ...]
    next: str | None


class TokenBody(_Body):
    """A token to create. `days` is its lifetime; the default is the longest allowed."""

    label: Annotated[str, Meta(min_length=1, max_length=MAX_LABEL, pattern=_LINE)]
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    days: Annotated[int, Meta(ge=1)] | None = None


def _copy_fields(cls: type[_DataT], value: Any, **others: Any) -> _DataT:
    """Return `cls` with the attributes of `value` that have the same names, and the other members."""
    return cls(
        **{name: getattr(value, name) for name in cls.__struct_fields__ if name not in others}, **others
    )


def to_audit_data(record: AuditRecord, logins: Mapping[str, str]) -> AuditData:
    """Return a record of the audit log. `logins` are those of accounts, by ID."""
    return _copy_fields(AuditData, record, login=logins.get(record.account or ""))


def to_registry_data(row: Registry) -> RegistryData:
    """Return a registry as API data."""
    entries = urls.api_url("registries", row.id, "entries")
    return _copy_fields(
        RegistryData, row, entries=entries, page=urls.entries_url(row.id), feed=urls.feed_url(row.id)
    )


def to_entry_data(entry: Entry) -> EntryData:
    """Return an entry as API data."""
    return _copy_fields(
        EntryData,
        entry,
        fields=dict(entry.fields),
        designees=tuple(sorted(entry.designees)),
        page=urls.entry_url(entry.registry, entry.name),
    )


def to_request_data(about: Request) -> RequestData:
    """Return a request as API data."""
    return _copy_fields(
        RequestData,
        about,
        fields=dict(about.fields),
        temporary_experts=tuple(sorted(about.temporary_experts)),
        recused=tuple(sorted(about.recused)),
        messages=tuple(_copy_fields(MessageData, message) for message in about.messages),
        appeals=tuple(_copy_fields(AppealData, appeal) for appeal in about.appeals),
        page=urls.request_url(about.id),
    )


def to_history_record(record: LogRecord) -> HistoryRecord:
    """Return a log record as API data."""
    event = record.event
    return _copy_fields(
        HistoryRecord,
        record,
        actor=record.actor.id,
        roles=tuple(sorted(map(str, record.actor.roles))),
        event=event.kind,
        registry=event.registry,
        request=event.request,
        name=event.name,
        data=_to_jsonable(event.data),
    )


def to_check_report(report: Report) -> CheckReport:
    """Return the checker's report as API data."""
    findings = tuple(_copy_fields(FindingData, finding) for finding in report.findings)
    return _copy_fields(CheckReport, report, findings=findings)


def _to_jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _to_jsonable(item) for key, item in value.items()}
    return [_to_jsonable(item) for item in value] if isinstance(value, list | tuple) else value
