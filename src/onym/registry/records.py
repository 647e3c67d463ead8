"""The values of a registry: entries, requests, events, actors, roles and scopes. No I/O, no clock.

A person or a timer causes an `Event`; the engine returns a `Decision` or rejects the event. The store keeps
an accepted event as a `LogRecord`. Entries and requests follow from the log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from onym.accounts.records import ALL_REALMS, Account
from onym.errors import RegistryError

__all__ = [
    "EMPTY",
    "IANA_CLOCK",
    "TOKEN_PREFIX",
    "Actor",
    "Appeal",
    "AppealLevel",
    "AppealState",
    "Decision",
    "DraftReference",
    "Entry",
    "Event",
    "EventKind",
    "ListMessage",
    "LogRecord",
    "Note",
    "Notice",
    "Request",
    "RequestKind",
    "RequestState",
    "Role",
    "Scope",
    "Status",
    "get_registry_roles",
    "is_administrator",
    "limit_roles",
    "parse_scopes",
]

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class Status(StrEnum):
    """Every status of an entry; `registries.py` lists those of each registry."""

    # URI schemes: RFC 4395 5.4, RFC 7595 7.4 and 9
    PERMANENT = "permanent"
    PROVISIONAL = "provisional"
    HISTORICAL = "historical"
    PENDING_REVIEW = "pending-review"
    # llm parameters
    REGISTERED = "registered"
    DEPRECATED = "deprecated"
    # ai namespaces
    ACTIVE = "active"
    SAFE_MODE = "safe-mode"
    SUSPENDED = "suspended"
    REVOKED = "revoked"
    EXPIRED = "expired"


class Role(StrEnum):
    """Roles in a registry (RFC 4395 5, RFC 7595 7). A reader has no role."""

    REGISTRANT = "registrant"
    IANA = "iana"
    EXPERT = "expert"
    IESG = "iesg"
    READER = "reader"


#: the beginning of every API token of a registry
TOKEN_PREFIX: Final = "onym_reg_"  # noqa: S105


class Scope(StrEnum):
    """What an API token may do. A scope lets the token use a role that the account has."""

    READ = "read"
    SUBMIT = "submit"
    REVIEW = "review"
    IANA = "iana"
    IESG = "iesg"
    ADMIN = "admin"


#: which role each scope lets a token use
_SCOPE_ROLES: Final[Mapping[Scope, Role]] = {
    Scope.READ: Role.READER,
    Scope.SUBMIT: Role.REGISTRANT,
    Scope.REVIEW: Role.EXPERT,
    Scope.IANA: Role.IANA,
    Scope.IESG: Role.IESG,
}


def get_registry_roles(account: Account, registry: str) -> frozenset[Role]:
    """Return the account's roles in a registry, including those in every registry."""
    names = account.get_roles(registry)
    return frozenset(role for role in Role if role in names)


def is_administrator(account: Account) -> bool:
    """Report whether the account may manage other accounts: it has the role IANA in every registry."""
    return Role.IANA in account.get_roles(ALL_REALMS)


def parse_scopes(words: Iterable[str]) -> frozenset[str]:
    """Return the scopes. Raises RegistryError (field "scopes") for an unknown scope, or none."""
    names = tuple(words)
    unknown = [name for name in names if name not in frozenset(Scope)]
    if unknown or not names:
        raise RegistryError(
            f"there is no scope {unknown[0][:40]!r}" if unknown else "a token needs at least one scope",
            code="registry.bad-scope",
            field="scopes",
            hint=f"Choose from {', '.join(Scope)}.",
        )
    return frozenset(names)


def limit_roles(roles: frozenset[Role], scopes: Iterable[str]) -> frozenset[Role]:
    """Return the roles that a token with these scopes may use."""
    return roles & {_SCOPE_ROLES[Scope(scope)] for scope in scopes if scope in _SCOPE_ROLES}


class RequestKind(StrEnum):
    """What a request asks for."""

    NEW = "new"
    UPDATE = "update"
    STATUS_CHANGE = "status-change"
    SEPARATE_USE = "note-separate-use"
    REASSIGN = "reassign"


class RequestState(StrEnum):
    """The states of a request."""

    DRAFT = "draft"
    LIST_REVIEW = "list-review"
    SUBMITTED = "submitted"
    EXPERT_REVIEW = "expert-review"
    MORE_REVIEW = "more-review"
    IETF_REVIEW = "ietf-review"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    TIMED_OUT = "timed-out-to-provisional"
    #: a decision about it is appealed; the request returns to the decision's state, or is opened again
    APPEAL = "appeal"

    @property
    def is_final(self) -> bool:
        """Report whether the request has ended; an incomplete one can be submitted again."""
        return self in _FINAL_STATES


_FINAL_STATES: Final = frozenset(
    {RequestState.APPROVED, RequestState.REJECTED, RequestState.WITHDRAWN, RequestState.TIMED_OUT}
)


class AppealLevel(StrEnum):
    """The bodies that decide appeals, in order (RFC 8126 10)."""

    IESG = "iesg"
    IAB = "iab"


class AppealState(StrEnum):
    """The states of an appeal."""

    PENDING = "pending"
    UPHELD = "upheld"
    DISMISSED = "dismissed"
    WITHDRAWN = "withdrawn"


class EventKind(StrEnum):
    """Everything that can be asked of the engine. `data` members that an event reads are in brackets."""

    # the registrant's
    OPEN = "open"  # [kind, status, fields, template, profile, on_behalf_of, draft] a draft request
    REVISE = "revise"  # [fields, template, status, draft] answer comments
    ANNOUNCE = "announce"  # [archive] post to uri-review: list review begins
    SUBMIT = "submit"  # hand it to IANA
    RESUBMIT = "resubmit"  # [fields, template] a rejected request, corrected
    WITHDRAW = "withdraw"  # [reason]
    # IANA's
    CHECK_COMPLETE = "check-complete"  # route it: register at once, to the expert, or refuse as duplicate
    REJECT_INCOMPLETE = "reject-incomplete"  # [missing: list of field ids, reason]
    # the Designated Expert's
    ASK_MORE_REVIEW = "ask-more-review"  # [reason]
    RESUME_REVIEW = "resume-review"
    APPROVE = "approve"  # [reason]
    APPROVE_AS_PROVISIONAL = "approve-as-provisional"  # [reason] permanent was asked
    ASK_IETF_REVIEW = "ask-ietf-review"  # [reason] provisional meanwhile
    REJECT = "reject"  # [reason]
    ASK_UPGRADE = "ask-upgrade"  # [reason] provisional -> permanent; the IESG may too
    # the IESG's
    IESG_APPROVE = "iesg-approve"  # [reason]
    IESG_DECLINE = "iesg-decline"  # [reason]
    REASSIGN = "reassign"  # [to, change_controller, reason] a provisional entry
    DEMAND_CHANGES = "demand-changes"  # [reason] of a provisional entry
    # who reviews a request (RFC 8126 5.2)
    ASSIGN_EXPERT = "assign-expert"  # [expert, reason] one of several experts; an expert hands a request on
    RECUSE = "recuse"  # [reason; the service adds `experts_left`] an expert with a conflict of interest
    APPOINT_EXPERT = "appoint-expert"  # [expert, reason] a temporary expert, by the IESG
    # list review, read from the list's archive
    LINK_MESSAGES = "link-messages"  # [messages: list of {url, subject, at}, announce: start list review]
    # appeals (RFC 8126 10)
    APPEAL = "appeal"  # [reason] to the IESG, against a decision
    APPEAL_TO_IAB = "appeal-to-iab"  # [reason] against the IESG's answer
    WITHDRAW_APPEAL = "withdraw-appeal"  # [reason]
    UPHOLD_APPEAL = "uphold-appeal"  # [reason; of a registration: remedy; of the IAB: reference]
    DISMISS_APPEAL = "dismiss-appeal"  # [reason; of the IAB: reference]
    # about an entry, by people who may update it
    ATTACH_SECURITY_NOTE = "attach-security-note"  # [text, reference]
    DESIGNATE = "designate"  # [add, remove: account ids]
    RETIRE = "retire"  # [reason] provisional -> historical, registered -> deprecated
    # timers, as IANA's clock
    REVIEW_TIMEOUT = "review-timeout"
    REMIND = "remind"  # the next step of a request is overdue
    EXPIRY_NEAR = "expiry-near"  # the draft or the registration of an entry ends soon
    DRAFT_EXPIRED = "draft-expired"
    DRAFT_PUBLISHED = "draft-published"  # [reference] the draft has become an RFC; by IANA
    NAMESPACE_EXPIRED = "namespace-expired"
    # ai namespaces, operation
    ENTER_SAFE_MODE = "enter-safe-mode"  # [reason]
    SUSPEND = "suspend"  # [reason]
    REINSTATE = "reinstate"  # [reason]
    REVOKE = "revoke"  # [reason]
    RENEW = "renew"  # [expires]
    # IANA's, outside the procedure
    IMPORT = "import"  # [entry] a row of a published registry
    DEFINE = "define"  # [definition] the registries, policies and words of the service
    OVERRIDE = "override"  # [reason, and one of: status; remove; undoes (a record's number; the store adds
    # `restore`, the entry before it); some of registrant, change_controller, iesg_approved]
    REDACT = (
        "redact"  # [reason, records] personal data was removed from records; only `Store.redact` sends it
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The person who acts: an account ID, and the roles in the registry."""

    id: str
    roles: frozenset[Role] = frozenset()

    def has_role(self, *roles: Role) -> bool:
        """Report whether the actor has one of these roles."""
        return not self.roles.isdisjoint(roles)


#: the actor of timer events (`onym registry tick`)
IANA_CLOCK: Final = Actor(id="iana-clock", roles=frozenset({Role.IANA}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note on an entry; `kind` is for example a separate use, security or override."""

    kind: str
    text: str
    at: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftReference:
    """An Internet-Draft with the registration, and the day it expires (185 days after its date)."""

    name: str
    expires: date


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMessage:
    """A message about a request in a mailing list's archive."""

    url: str
    subject: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Appeal:
    """An appeal against the decision that ended a request (RFC 8126 10).

    `against` is the state that the decision led to, `decision` its time. `for_registrant` is true if the
    registrant appeals; otherwise the appeal is against the registrant's case, or supports it.
    """

    by: str
    grounds: str
    level: AppealLevel
    against: RequestState
    decision: datetime
    filed: datetime
    #: when an answer is expected
    due: datetime
    for_registrant: bool = False
    state: AppealState = AppealState.PENDING
    decided: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of a registry.

    `name` is the key; `spelling` is the source's spelling if it differs. `fields` has the registry's columns
    and the template's fields by ID (`registries.py`). `pending` has the IDs of the requests under review
    about this entry. `version` is the number of its changes, and continues after a removal.
    """

    registry: str
    name: str
    status: Status
    fields: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    spelling: str | None = None
    registrant: str | None = None
    designees: frozenset[str] = frozenset()
    #: defined in an IESG-approved document: an update needs the IESG too (RFC 7595 7.3)
    iesg_approved: bool = False
    notes: tuple[Note, ...] = ()
    draft: DraftReference | None = None
    pending: tuple[str, ...] = ()
    #: the last day of validity (namespaces)
    expires: date | None = None
    #: the last day, of the draft or of validity, of which the registrant was notified
    notified_expiry: date | None = None
    registered: datetime | None = None
    updated: datetime | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One registration request, from draft to its end.

    `holder` is the role that acts next, `due` its deadline (UTC) if there is one. `since` is the start of the
    present state; `version` is the number of events, for conditional writes.
    """

    id: str
    registry: str
    profile: str
    kind: RequestKind
    name: str
    #: the requested status
    status: Status
    state: RequestState
    registrant: str
    fields: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    #: the pasted template
    template: str = ""
    on_behalf_of: str | None = None
    opened: datetime
    since: datetime
    holder: Role | None = None
    due: datetime | None = None
    #: the start of list review, and the URL of its archive
    announced: datetime | None = None
    archive: str | None = None
    #: the first submission, which makes the request public
    submitted: datetime | None = None
    #: the start of Expert Review, and of the 14 days of RFC 4395 5.2 step 6
    expert_asked: datetime | None = None
    #: opened by the entry's registrant or a designee
    as_registrant: bool = False
    #: the review timeout has passed, and the request continues (RFC 4395)
    timed_out: bool = False
    #: an upgrade that was asked for by someone who may not update the entry (RFC 7595 7.3)
    third_party: bool = False
    #: the expert who coordinates the review; the other experts may act too (RFC 8126 5.2)
    expert: str | None = None
    #: experts with a conflict of interest, and experts whom the IESG appointed for this request
    recused: frozenset[str] = frozenset()
    temporary_experts: frozenset[str] = frozenset()
    #: reminders of the present step, and the time of the last one
    reminded: int = 0
    reminded_at: datetime | None = None
    #: the messages of the list review that were found in the list's archive, oldest first
    messages: tuple[ListMessage, ...] = ()
    #: the appeals, oldest first; the last one is pending in the state `appeal`
    appeals: tuple[Appeal, ...] = ()
    #: the draft with the template
    draft: DraftReference | None = None
    #: the last result: registered, incomplete, duplicate, declined, provisional, ...
    outcome: str | None = None
    reason: str | None = None
    version: int = 0

    @property
    def public_since(self) -> datetime | None:
        """The time from which everyone may see the request; None for a draft that is not public."""
        known = filter(None, (self.announced, self.submitted, self.expert_asked))
        quiet = self.state in (RequestState.DRAFT, RequestState.WITHDRAWN)
        return min(known, default=None if quiet else self.opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. `request` and `name` are its subject; `data` has only JSON values."""

    kind: EventKind
    registry: str
    request: str | None = None
    name: str | None = None
    data: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice to a person or role, by e-mail if the account or role has an address."""

    #: an account id, or a role of the registry
    to: str | Role
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The effect of an accepted event: the request and the entry after it.

    `rule` is the ID of the rule (R1 to X), `clause` its source. `request` is None if the event is only about
    an entry; `entry` is None if it does not change; `removed` deletes the entry.
    """

    rule: str
    clause: str
    request: Request | None = None
    entry: Entry | None = None
    removed: bool = False
    notices: tuple[Notice, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The end of the log. An empty log has number 0, the digest of sixty-four zeros, and no time."""

    number: int
    digest: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What one registrant may store: requests that are open, and bytes in the log in one day (UTC)."""

    open_requests: int = 200
    daily_bytes: int = 16 * 1024 * 1024


DEFAULT_QUOTA: Final = Quota()
#: roles of the registry's own people, who have no quota
STAFF: Final = frozenset({Role.IANA, Role.EXPERT, Role.IESG})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One accepted event. `digest` is SHA-256 over `previous` and the canonical JSON of the rest, in hex.

    If there are salts, the digest covers commitments to the lines of the event's texts in place of the texts
    (`onym.registry.codec`), so that it holds without a text that was removed. `salt` gives the salt of every
    line; once a text was removed, `salts` has those of the lines that remain, and `removed` the commitments
    to those that do not. Keys are places such as `/fields/contact#0`. A record of an older release has no
    salt, and what was removed from it has the commitment "".
    """

    number: int
    at: datetime
    actor: Actor
    event: Event
    rule: str
    clause: str
    previous: str
    digest: str
    salt: str = ""
    salts: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    removed: Mapping[str, str] = field(default_factory=lambda: EMPTY)
