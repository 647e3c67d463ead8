"""What people do with a registry: check and submit a template, take a step, import and export.

The command line and the web service call these functions, so that the same text makes the same request
through both. Nothing here knows about HTTP, terminals or files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeGuard

from onym.errors import RefusalError, StoreError, TemplateError, UnknownEntryError, UsageError
from onym.registry import records
from onym.registry.documents.types import Document, DocumentKind, Template, TemplateValue
from onym.registry.registries import DRAFT_LIFETIME, PROFILES, Profile, Registry, clean_name, get_profile

if TYPE_CHECKING:
    from onym.accounts.store import AccountStore
    from onym.registry.checks import ReferenceData, Report
    from onym.registry.checks.context import NameIndex
    from onym.registry.iana import Snapshot
    from onym.registry.list_archive import ArchiveContent, RequestLinks
    from onym.registry.store import Applied, EntryChange, ImportReport, Store
    from onym.sign.keys import SigningKey

#: the word that the checker reads as the status
_WORD: Final = re.compile(r"[\W_]*([A-Za-z-]+)")
#: kinds of requests that name a status; any other keeps the entry's
_KINDS_WITH_STATUS: Final = frozenset({records.RequestKind.NEW, records.RequestKind.STATUS_CHANGE})
#: entries that are read from the store at once
_PAGE_SIZE: Final = 500
#: validity of a namespaces file
_NAMESPACES_LIFETIME: Final = timedelta(days=30)
#: the status of the rows in a csv-2015 file, which has one for each status
DEFAULT_CSV_STATUS: Final = records.Status.PERMANENT
#: default taggingEntity (RFC 4151) of a feed: a name that cannot be registered
DEFAULT_FEED_AUTHORITY: Final = "registry.invalid,2026"


# -- check and submit -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionInput:
    """What was submitted. `fields` are those of a form, by id; `profile` and `status` are "" if left open."""

    registry: Registry
    text: str = ""
    fields: Mapping[str, str] = field(default_factory=lambda: records.EMPTY)
    profile: str = ""
    status: str = ""
    on_behalf_of: str = ""
    #: which of several templates in the text; the name field of the form chooses if this is ""
    template_name: str = ""
    #: check every template of the text; a request is made of one only
    all_templates: bool = False
    #: the name may be in the registry already
    update: bool = False
    #: the entry's values of template fields, for those that an update leaves out
    row: Mapping[str, str] = field(default_factory=lambda: records.EMPTY)
    #: the ID of the request that this is; an entry pending for the request is not a conflict
    request: str | None = None

    @property
    def is_empty(self) -> bool:
        """Report whether there is neither text nor a field."""
        return not self.text.strip() and not any(value.strip() for value in self.fields.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedSubmission:
    """A submission after parsing: one document, its profile, and the template's fields by id."""

    given: SubmissionInput
    document: Document
    profile: Profile
    fields: Mapping[str, str]

    @property
    def name(self) -> str:
        """The requested name in the registry's spelling, without marks around it; "" for none."""
        return normalize_requested_name(self.given.registry, self.fields.get("name", ""))

    @property
    def draft(self) -> dict[str, str] | None:
        """The Internet-Draft that holds the template, and when it expires (RFC 7595 7.4, References)."""
        document = self.document
        if document.kind is DocumentKind.RFC or not (document.name or "").startswith("draft-"):
            return None
        expires = document.expires or (None if document.dated is None else document.dated + DRAFT_LIFETIME)
        return None if expires is None else {"name": str(document.name), "expires": expires.isoformat()}


def normalize_requested_name(registry: Registry, text: str) -> str:
    """A name as people write it, in the registry's spelling: `"ABCX:"` becomes `abcx`."""
    return registry.normalize_name(clean_name(text))


def parse_submission(given: SubmissionInput, *, source: str = "submission") -> ParsedSubmission:
    """Find the template and put the form's fields over it.

    Raises TemplateError if the text has no template that can be read (registry.no-template), or several of
    which none was chosen (registry.several-templates).
    """
    row = given.registry
    chosen = given.profile if given.profile in row.profiles else ""
    if given.text.strip():
        from onym.registry.checks import choose_profile  # late: readers and checks take 150 ms to load
        from onym.registry.documents import read_document

        document = read_document(given.text, source=source, registry=row.id)
        if not given.all_templates:
            document = replace(document, templates=(choose_template(document, given),))
        profile = get_profile(chosen or choose_profile(document))
    else:
        profile = get_profile(chosen or row.default_profile)
        document = Document(kind=DocumentKind.TEMPLATE, registry=row.id, text="")
    document = _overlay_fields(document, profile, given)
    fields = {key: value.text for key, value in document.templates[0].values.items()}
    return ParsedSubmission(given=given, document=document, profile=profile, fields=fields)


def choose_template(document: Document, given: SubmissionInput) -> Template:
    """The only template of the document, or the one that the submission names. Raises TemplateError."""
    templates = document.templates
    if len(templates) <= 1 and not given.template_name:
        return templates[0] if templates else Template(values=records.EMPTY, line=1)
    wanted = given.template_name or given.fields.get("name", "")
    key = normalize_requested_name(given.registry, wanted)
    names = [normalize_requested_name(given.registry, template.text("name")) for template in templates]
    fitting = [template for template, name in zip(templates, names, strict=True) if name == key or not key]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(sorted({name or "(no name)" for name in names}))
    if not fitting:
        raise TemplateError(
            f"the text has no template for {key[:60]!r}",
            code="registry.no-template",
            hint=f"the text has templates for: {listed}",
        )
    raise TemplateError(
        f"the text has {len(fitting)} templates ({listed}), and a request is made of one",
        code="registry.several-templates",
        line=fitting[1].line,
        hint="choose one by its name (the name field of the form, --name on the command line), "
        "or submit each template in a text of its own",
    )


def _overlay_fields(document: Document, profile: Profile, given: SubmissionInput) -> Document:
    """The document with the form's fields over its first template, and the entry's values beneath."""
    form = {key: value.strip() for key, value in given.fields.items() if value.strip()}
    if given.status:
        # a form's choice, or --status: spelled as in the template
        words = {word.lower(): word for word in profile.status_words}
        form["status"] = words.get(given.status.lower(), given.status)
    base = document.templates[0] if document.templates else Template(values=records.EMPTY, line=1)
    values = dict(base.values)
    row = {key: text for key, text in given.row.items() if key not in values and text.strip()}
    for key, text in {**row, **form}.items():
        known = profile.find_field(key)
        label = known.label if known is not None else key
        values[key] = TemplateValue(id=key, label=label, text=text, line=base.line_of(key))
    if not values and document.templates == ():
        return replace(document, templates=(base,))
    if "syntax" in form:
        document = _overlay_syntax(document, base, values["syntax"])
    return replace(
        document, templates=(replace(base, values=MappingProxyType(values)), *document.templates[1:])
    )


def _overlay_syntax(document: Document, base: Template, value: TemplateValue) -> Document:
    """The document with the ABNF of the form's field, in place of that in the template's field."""
    from onym.registry.documents import find_value_blocks  # late: see parse_submission

    old = base.values.get("syntax")
    lines = range(0) if old is None else range(old.line, old.line + old.text.count("\n") + 1)
    kept = (block for block in document.blocks if block.line not in lines)
    return replace(document, blocks=(*kept, *find_value_blocks(value)))


def get_requested_status(submission: ParsedSubmission) -> str:
    """The requested status: the first word of the field if it is a status, else the field; "" if empty.

    `(provisional)` asks for provisional. The engine rejects a word that is not a status.
    """
    text = submission.fields.get("status", "").strip()
    word = _WORD.match(text)
    first = "" if word is None else word[1].lower()
    return first if first in submission.profile.policies else text


def build_request_data(submission: ParsedSubmission, kind: records.RequestKind) -> dict[str, Any]:
    """The fields and the text of a request. The status is part of it if that kind of request names one."""
    fields = {
        key: text for key, text in submission.fields.items() if key not in ("name", "status") and text.strip()
    }
    data: dict[str, Any] = {"fields": fields, "template": submission.given.text}
    status = get_requested_status(submission)
    if status and kind in _KINDS_WITH_STATUS:
        data["status"] = status
    if submission.draft is not None:
        data["draft"] = submission.draft
    return data


def build_revision_data(submission: ParsedSubmission, request: records.Request) -> dict[str, Any]:
    """The data of a REVISE or RESUBMIT event. Raises RefusalError if the submission names something else."""
    name = submission.name or request.name
    if name != normalize_requested_name(submission.given.registry, request.name):
        raise RefusalError(
            f"{request.id} requests {request.name}, and a revision cannot change the name to {name}",
            code="registry.other-name",
            field="name",
            hint="Withdraw the request if it is still open, and request the other name with a new one.",
        )
    return build_request_data(submission, request.kind)


def build_opening_data(submission: ParsedSubmission, kind: records.RequestKind) -> dict[str, Any]:
    """The data of the OPEN event of a request of that kind."""
    data = build_request_data(submission, kind)
    data |= {"kind": str(kind), "profile": submission.profile.id}
    if submission.given.on_behalf_of:
        data["on_behalf_of"] = submission.given.on_behalf_of
    return data


def build_report(
    submission: ParsedSubmission,
    known: ReferenceData,
    *,
    today: date | None = None,
    source: str = "submission",
) -> Report:
    """The checker's report on a submission. `today` decides whether a day is past; None skips that check."""
    from onym.registry.checks import check  # late: see parse_submission

    return check(
        submission.document,
        profile=submission.profile.id,
        known=known,
        update=submission.given.update,
        today=today,
        source=source,
    )


def list_requested_names(submission: ParsedSubmission) -> tuple[str, ...]:
    """The names that the document's templates request, in the registry's spelling."""
    from onym.registry.checks import MAX_TEMPLATES  # late: see parse_submission

    registry, templates = submission.given.registry, submission.document.templates[:MAX_TEMPLATES]
    return tuple(
        dict.fromkeys(normalize_requested_name(registry, template.text("name")) for template in templates)
    )


def fill_from_entry(given: SubmissionInput, entry: records.Entry | None) -> SubmissionInput:
    """The submission of an update, with the entry's values for what it leaves out."""
    if entry is None or not given.update:
        return given
    known = {field.id for profile in given.registry.profiles for field in PROFILES[profile].all_fields}
    kept = {name: text for name, text in _get_entry_fields(entry).items() if name in known}
    return replace(given, row=kept)


def _get_entry_fields(entry: records.Entry) -> dict[str, str]:
    return {"references": entry.fields.get("reference", ""), **entry.fields}


def list_missing_fields(request: records.Request, entry: records.Entry | None) -> tuple[tuple[str, str], ...]:
    """(id, label) of the fields that the procedure requires and the request leaves out.

    An update changes only the fields that it has,
    and an upgrade takes the rest from the entry (docs/decisions/0026).
    """
    given = {**request.fields, "name": request.name, "status": str(request.status)}
    is_upgrade = (
        request.kind is records.RequestKind.STATUS_CHANGE and request.status is records.Status.PERMANENT
    )
    if is_upgrade and entry is not None:
        given = {**_get_entry_fields(entry), **given}
    missing = PROFILES[request.profile].list_missing_fields(request.status, given)
    is_whole = is_upgrade or request.kind is records.RequestKind.NEW
    return tuple((row.id, row.label) for row in missing if is_whole or row.id in given)


async def load_reference_data(
    store: Store, given: SubmissionInput, requested: Iterable[str], names: NameIndex | None = None
) -> ReferenceData:
    """What the checks know: all names of this registry, and its entries and requests of `requested` names.

    `names` is an index of the registry's names that the caller has already. Requests are those that everyone
    may see, whoever asks: a report must not tell of the drafts of others.
    """
    from onym.registry.checks.context import NameIndex, load_builtin  # late: see parse_submission

    row = given.registry
    if names is None:
        names = await asyncio.to_thread(NameIndex, await store.names(row.id))
    entries: dict[str, records.Entry] = {}
    requests: dict[str, tuple[records.Request, ...]] = {}
    for name in requested:
        key = name.lower() if name.isascii() else name
        # where case counts, another spelling is not the same name, but may be confused with it
        entry = await store.entry(row.id, name) or await store.entry(row.id, names.get_spelling(key))
        # an entry that is pending for this very request is not a conflict
        if entry is not None and given.request not in entry.pending:
            entries[key] = entry
        requests[key] = await _load_other_requests(store, given, name)
    base = await asyncio.to_thread(load_builtin, row.id)
    return base.with_entries(MappingProxyType(entries), names, MappingProxyType(requests))


#: open requests for one name that are read
_MAX_SAME_NAME: Final = 20


async def _load_other_requests(
    store: Store, given: SubmissionInput, name: str
) -> tuple[records.Request, ...]:
    """The public open requests for this new name, other than the submission's own, without their text."""
    found = await store.open_requests(given.registry.id, name, limit=_MAX_SAME_NAME)
    return tuple(
        replace(request, template="", fields=records.EMPTY)
        for request in found
        if request.kind is records.RequestKind.NEW
        and request.public_since is not None
        and request.id != given.request
    )


async def check_submission(
    submission: ParsedSubmission, store: Store | None, *, today: date, source: str
) -> Report:
    """Check against the registry of the store, or against the shipped facts if `store` is None."""
    if store is None:
        from onym.registry.checks.context import load_builtin  # late: see parse_submission

        known = load_builtin(submission.given.registry.id)
    else:
        known = await load_reference_data(store, submission.given, list_requested_names(submission))
    return build_report(submission, known, today=today, source=source)


# -- steps ----------------------------------------------------------------------------------------------


#: members of `Event.data` that name accounts with a new say in an entry
_ACCOUNT_MEMBERS: Final = {
    records.EventKind.REASSIGN: ("to",),
    records.EventKind.OVERRIDE: ("registrant",),
    records.EventKind.DESIGNATE: ("add",),
    records.EventKind.ASSIGN_EXPERT: ("expert",),
    records.EventKind.APPOINT_EXPERT: ("expert",),
}
#: people in one event
_MAX_PEOPLE: Final = 64


async def resolve_accounts(store: AccountStore, event: records.Event) -> records.Event:
    """Return the event with account IDs instead of logins. Events without accounts come back unchanged.

    Accounts that lose their say may be unknown, so that the ID of a former account can be removed. Raises
    UnknownEntryError (accounts.unknown-account) and RefusalError (registry.disabled-account, and
    registry.bad-data for more than 64 people); `field` is the member of `Event.data`.
    """
    members: dict[str, Any] = {}
    for member in _ACCOUNT_MEMBERS.get(event.kind, ()):
        value = event.data.get(member)
        # the engine rejects other types
        if isinstance(value, str) and value.strip():
            members[member] = await _get_account_id(store, value, member)
        elif _is_text_list(value):
            members[member] = [
                await _get_account_id(store, word, member) for word in _limit_people(value, member)
            ]
    removed = event.data.get("remove")
    if event.kind is records.EventKind.DESIGNATE and _is_text_list(removed):
        members["remove"] = await _resolve_removed(store, _limit_people(removed, "remove"))
    return replace(event, data={**event.data, **members}) if members else event


def _is_text_list(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


async def _resolve_removed(store: AccountStore, words: Sequence[str]) -> list[str]:
    """Return the words and the IDs of the logins among them: designated experts may be listed as either."""
    names: dict[str, None] = {}
    for word in words:
        account = await store.accounts.find_by_login(word)
        names |= dict.fromkeys([word] if account is None else [word, account.id])
    return list(names)


def _limit_people(words: Sequence[str], member: str) -> Sequence[str]:
    if len(words) > _MAX_PEOPLE:
        raise RefusalError(
            f"an event names at most {_MAX_PEOPLE} people, not {len(words)}",
            code="registry.bad-data",
            field=member,
        )
    return words


async def _get_account_id(store: AccountStore, word: str, member: str) -> str:
    # IDs take precedence, so that a person cannot take another one's ID as a login
    account = await store.accounts.get(word.strip()) or await store.accounts.find_by_login(word)
    if account is None:
        raise UnknownEntryError(
            "there is no account with this login or ID",
            code="accounts.unknown-account",
            field=member,
            hint="The person signs in once, or you add the account: onym registry user add LOGIN",
        )
    if account.disabled:
        raise RefusalError(
            "the account is disabled",
            code="registry.disabled-account",
            field=member,
            hint="Enable it: onym registry user enable LOGIN",
        )
    return account.id


#: experts of one registry that are counted
_MAX_EXPERTS: Final = 1000


async def _complete_expert_event(store: Store, event: records.Event, actor: records.Actor) -> records.Event:
    """Return an event about experts, checked against the accounts: the engine does not know them.

    An assignment needs an account with the role expert, or a temporary expert of the request. A recusal gets
    `experts_left`, the number of experts who can still decide. Raises RefusalError (registry.wrong-role).
    """
    if event.kind not in (records.EventKind.ASSIGN_EXPERT, records.EventKind.RECUSE):
        return event
    request = await store.request(event.request or "")
    listed = await store.accounts.list(realm=event.registry, role=records.Role.EXPERT, limit=_MAX_EXPERTS)
    able = {account.id for account in listed if not account.disabled}
    if request is not None:
        able = (able | request.temporary_experts) - request.recused
    if event.kind is records.EventKind.RECUSE:
        return replace(event, data={**event.data, "experts_left": len(able - {actor.id})})
    expert = event.data.get("expert")
    if isinstance(expert, str) and expert.strip() and expert not in able:
        raise RefusalError(
            "this account is not a Designated Expert who can decide about the request",
            code="registry.wrong-role",
            field="expert",
            clause="RFC 8126 5.2",
            hint="Run onym registry user roles LOGIN --add expert, or let the IESG appoint the account.",
        )
    return event


async def apply_step(
    store: Store,
    event: records.Event,
    actor: records.Actor,
    at: datetime,
    *,
    expected: int | None = None,
    exact: bool = False,
) -> Applied:
    """Take one step of a procedure: logins in the event become account IDs, then the store applies it.

    `expected` is the version that the caller saw; `exact` rejects a time before the last record. Raises
    RegistryError in all its kinds.
    """
    event = await _complete_expert_event(store, await resolve_accounts(store, event), actor)
    return await store.apply(event, actor, at, expected=expected, exact=exact)


def get_applied_request(applied: Applied) -> records.Request:
    """The request that an event was about, or opened."""
    request = applied.decision.request
    assert request is not None  # noqa: S101 - an event about a request has one
    return request


async def plan_archive_links(
    store: Store, registry: str, data: bytes, *, link: str | None = None
) -> tuple[ArchiveContent, tuple[RequestLinks, ...]]:
    """Read a mailing list's archive, and find the open requests of a registry that its messages are about.

    Raises RegistryError (registry.bad-archive, registry.archive-too-large) and UsageError.
    """
    from onym.registry.list_archive import parse_archive, plan_links  # late: mail and XML for one command

    content = await asyncio.to_thread(parse_archive, data, link=link)
    requests: list[records.Request] = []
    for state in _LISTED_STATES:
        after: str | None = None
        while len(requests) < _MAX_LISTED:
            page = await store.requests(registry=registry, state=state, after=after, limit=_REQUESTS_PAGE)
            requests += page.items
            after = page.next
            if after is None:
                break
    return content, await asyncio.to_thread(plan_links, content.messages, requests)


#: states of requests that the messages of a list can be about; their number
_LISTED_STATES: Final = (
    records.RequestState.DRAFT,
    records.RequestState.LIST_REVIEW,
    records.RequestState.SUBMITTED,
    records.RequestState.EXPERT_REVIEW,
    records.RequestState.MORE_REVIEW,
    records.RequestState.IETF_REVIEW,
)
_MAX_LISTED: Final = 10_000
_REQUESTS_PAGE: Final = 200


async def iter_entries(store: Store, registry: str) -> AsyncIterator[records.Entry]:
    """Every entry of a registry in order of names, read in pages."""
    after: str | None = None
    while True:
        page = await store.entries(registry, after=after, limit=_PAGE_SIZE)
        for entry in page.items:
            yield entry
        after = page.next
        if after is None:
            return


async def list_entries(store: Store, registry: str) -> tuple[records.Entry, ...]:
    """Every entry of a registry in order of names."""
    return tuple([entry async for entry in iter_entries(store, registry)])


# -- import ---------------------------------------------------------------------------------------------

RowFate: TypeAlias = Literal["added", "changed", "same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPreview:
    """What an import would do: names by fate, and (name, reason) of rows that are not imported completely."""

    names: Mapping[RowFate, tuple[str, ...]]
    refused: int
    remarks: tuple[tuple[str, str], ...]


def preview_import(snapshot: Snapshot, present: Sequence[records.Entry], at: datetime) -> ImportPreview:
    """What importing the snapshot over the present entries would change; the engine decides each row."""
    from onym.registry.iana import fill_missing_columns, prepare_import  # late: readers of few commands

    before = {entry.name: entry for entry in present}
    names: dict[RowFate, list[str]] = {"added": [], "changed": [], "same": []}
    remarks: list[tuple[str, str]] = []
    refused = 0
    for row in fill_missing_columns(snapshot, present):
        entry, left_out = prepare_import(row, before.get(row.name))
        if left_out is not None:
            remarks.append((entry.name, left_out))
        try:
            names[_compare_entry(entry, before.get(entry.name), at)].append(entry.name)
        except (RefusalError, StoreError) as error:
            refused += 1
            remarks.append((entry.name, str(error)))
    by_fate = {fate: tuple(listed) for fate, listed in names.items()}
    return ImportPreview(names=by_fate, refused=refused, remarks=tuple(remarks))


def _compare_entry(entry: records.Entry, old: records.Entry | None, at: datetime) -> RowFate:
    """Would the row be added, changed or stay the same? Raises RefusalError and StoreError."""
    from onym.registry.codec import to_data  # late: see preview_import
    from onym.registry.engine import decide

    event = records.Event(
        kind=records.EventKind.IMPORT,
        registry=entry.registry,
        name=entry.name,
        data={"entry": to_data(entry)},
    )
    new = decide(event, records.IANA_CLOCK, at, request=None, entry=old).entry
    if old is None or new is None:
        return "added"
    return "same" if replace(new, version=old.version, updated=old.updated) == old else "changed"


async def import_snapshot(
    store: Store,
    snapshot: Snapshot,
    actor: records.Actor,
    at: datetime,
    *,
    progress: Callable[[int], object] | None = None,
) -> ImportReport:
    """Import the snapshot in one transaction. `progress` is called with the number of rows that are done."""
    from onym.registry.iana import fill_missing_columns  # late: see preview_import

    rows = fill_missing_columns(snapshot, await list_entries(store, snapshot.registry))
    report = await store.import_entries(
        snapshot.registry, rows, actor, at, source=snapshot.source, progress=progress
    )
    if snapshot.frame is not None:
        await store.save_frame(snapshot.registry, snapshot.frame)
    return report


# -- export ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedAddresses:
    """Where a feed's links lead: the registry's page, the feed itself, and the page of an entry."""

    home: str
    entry: Callable[[records.Entry], str]
    feed: str | None = None


def render_entries(
    entries: Iterable[records.Entry],
    *,
    format: str,  # noqa: A002 - what it is called everywhere
    registry: str,
    updated: date,
    status: records.Status | None = None,
    frame: bytes | None = None,
) -> str:
    """The entries in a format of IANA or as JSON. A csv-2015 file has one status: permanent by default.

    XML is written into `frame`, the XML file that was imported last, if there is one.
    """
    from onym.registry.iana import write_entries  # late: writers of few requests

    if format == "csv-2015":
        status = status or DEFAULT_CSV_STATUS
    return write_entries(
        entries, format=format, registry=registry, updated=updated, status=status, frame=frame
    )


def render_feed(
    changes: Iterable[EntryChange],
    *,
    registry: str | None,
    updated: datetime,
    authority: str = DEFAULT_FEED_AUTHORITY,
    addresses: FeedAddresses | None = None,
) -> str:
    """The changes as an Atom feed (RFC 4287). `authority` is a domain and a year, for the IDs (RFC 4151).

    Without a `registry`, it is the feed of all registries.
    """
    from onym.registry.iana import compare_logged_entries, format_atom_feed  # late: see render_entries

    if addresses is None:
        addresses = FeedAddresses(
            home=f"tag:{authority}:{registry or 'all'}",
            entry=lambda entry: f"tag:{authority}:{entry.registry}:{entry.name}",
        )
    compared = (compare_logged_entries(change.before, change.after, at=change.at) for change in changes)
    return format_atom_feed(
        filter(None, compared),
        registry=registry,
        updated=updated,
        tagger=authority,
        link=addresses.entry,
        home=addresses.home,
        feed=addresses.feed,
    )


def render_namespaces(
    entries: Iterable[records.Entry], *, registry: str, issued: datetime, key: SigningKey | None = None
) -> str:
    """The namespaces file for resolvers, valid for 30 days, signed if there is a key. Raises UsageError."""
    from onym.registry.iana import write_namespaces  # late: see render_entries

    if registry != "ai-namespaces":
        raise UsageError(
            f"the format namespaces is for the registry ai-namespaces, not for {registry}",
            code="usage.bad-format",
            hint="add -r ai-namespaces",
        )
    payload = write_namespaces(tuple(entries), issued=issued, expires=issued + _NAMESPACES_LIFETIME)
    if key is None:
        return payload.decode("utf-8") + "\n"
    from onym.sign.jws import sign_compact  # late: the JOSE library

    return sign_compact(payload, key, header={"typ": "onym-ai-namespaces+jws"}) + "\n"
