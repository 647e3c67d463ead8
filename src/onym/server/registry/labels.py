"""Labels of statuses, states, roles and events, and the actions that a person may take, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.registry.records import EventKind, RequestKind, RequestState, Role, Status

if TYPE_CHECKING:
    pass

#: status -> label, sign
STATUS_LABELS: Final[Mapping[Status, tuple[str, str]]] = MappingProxyType(
    {
        Status.PERMANENT: ("Permanent", "●"),
        Status.PROVISIONAL: ("Provisional", "◐"),
        Status.HISTORICAL: ("Historical", "○"),
        Status.PENDING_REVIEW: ("Pending Review", "◔"),
        Status.REGISTERED: ("Registered", "●"),
        Status.DEPRECATED: ("Deprecated", "○"),
        Status.ACTIVE: ("Active", "●"),
        Status.SAFE_MODE: ("Safe mode", "◐"),
        Status.SUSPENDED: ("Suspended", "‖"),
        Status.REVOKED: ("Revoked", "✗"),
        Status.EXPIRED: ("Expired", "○"),
    }
)

STATUS_HELP: Final[Mapping[Status, str]] = MappingProxyType(
    {
        Status.PERMANENT: "Reviewed by the Designated Expert and meant to last.",
        Status.PROVISIONAL: "Registered so that names do not clash; not reviewed for long-term use.",
        Status.HISTORICAL: "No longer in common use. The name stays taken.",
        Status.PENDING_REVIEW: "Asked for, and not yet decided. The name should not be used by others.",
        Status.REGISTERED: "Reviewed, and in use.",
        Status.DEPRECATED: "Not to be used any more. The name stays taken.",
        Status.ACTIVE: "Allocated, and its anchor answers.",
        Status.SAFE_MODE: "Allocated; what it names may be looked up and must not act.",
        Status.SUSPENDED: "Not to be resolved until it is reinstated.",
        Status.REVOKED: "Taken back. It must not be resolved, and is not given out again.",
        Status.EXPIRED: "Its last day is past and it was not renewed.",
    }
)

REQUEST_KIND_LABELS: Final[Mapping[RequestKind, str]] = MappingProxyType(
    {
        RequestKind.NEW: "New registration",
        RequestKind.UPDATE: "Update",
        RequestKind.STATUS_CHANGE: "Change of status",
        RequestKind.SEPARATE_USE: "Note of a separate use",
        RequestKind.REASSIGN: "Reassignment",
    }
)

STATE_LABELS: Final[Mapping[RequestState, str]] = MappingProxyType(
    {
        RequestState.DRAFT: "Draft",
        RequestState.LIST_REVIEW: "Mailing list review",
        RequestState.SUBMITTED: "Submitted to IANA",
        RequestState.EXPERT_REVIEW: "Expert Review",
        RequestState.MORE_REVIEW: "More review asked for",
        RequestState.IETF_REVIEW: "IETF review and IESG approval",
        RequestState.APPROVED: "Approved",
        RequestState.REJECTED: "Rejected",
        RequestState.WITHDRAWN: "Withdrawn",
        RequestState.TIMED_OUT: "Registered provisionally when the time was over",
    }
)

NEXT_STEPS: Final[Mapping[RequestState, str]] = MappingProxyType(
    {
        RequestState.DRAFT: "The registrant finishes it, and announces or submits it.",
        RequestState.LIST_REVIEW: "The list comments; then the registrant revises the draft or submits it.",
        RequestState.SUBMITTED: "IANA checks that it is complete, then registers it or passes it on.",
        RequestState.EXPERT_REVIEW: "The Designated Expert approves it, rejects it, or asks for more review.",
        RequestState.MORE_REVIEW: "The registrant answers what the expert asked; then the review goes on.",
        RequestState.IETF_REVIEW: "The IESG approves or declines it.",
        RequestState.APPROVED: "It was approved, and the registry says so.",
        RequestState.REJECTED: "It was rejected. What was incomplete may be corrected and handed in again.",
        RequestState.WITHDRAWN: "Its registrant took it back.",
        RequestState.TIMED_OUT: "Nobody rejected it in time, so the name was registered as provisional.",
    }
)

ROLE_LABELS: Final[Mapping[Role, str]] = MappingProxyType(
    {
        Role.REGISTRANT: "the registrant",
        Role.IANA: "IANA",
        Role.EXPERT: "the Designated Expert",
        Role.IESG: "the IESG",
        Role.READER: "a reader",
    }
)

#: roles as they stand behind a name
ROLE_TITLES: Final[Mapping[Role, str]] = MappingProxyType(
    {
        Role.REGISTRANT: "registrant",
        Role.IANA: "IANA",
        Role.EXPERT: "Designated Expert",
        Role.IESG: "IESG",
        Role.READER: "reader",
    }
)

#: what an event is called once it has happened
EVENT_LABELS: Final[Mapping[EventKind, str]] = MappingProxyType(
    {
        EventKind.OPEN: "Draft request opened",
        EventKind.REVISE: "Revised",
        EventKind.ANNOUNCE: "Announced for list review",
        EventKind.SUBMIT: "Submitted to IANA",
        EventKind.RESUBMIT: "Corrected and submitted again",
        EventKind.WITHDRAW: "Withdrawn",
        EventKind.CHECK_COMPLETE: "Checked by IANA",
        EventKind.REJECT_INCOMPLETE: "Rejected as incomplete",
        EventKind.ASK_MORE_REVIEW: "More review asked for",
        EventKind.RESUME_REVIEW: "Review resumed",
        EventKind.APPROVE: "Approved",
        EventKind.APPROVE_AS_PROVISIONAL: "Approved as provisional",
        EventKind.ASK_IETF_REVIEW: "IETF review asked for",
        EventKind.REJECT: "Rejected",
        EventKind.ASK_UPGRADE: "Made permanent",
        EventKind.IESG_APPROVE: "Approved by the IESG",
        EventKind.IESG_DECLINE: "Declined by the IESG",
        EventKind.REASSIGN: "Reassigned",
        EventKind.DEMAND_CHANGES: "Changes demanded",
        EventKind.ATTACH_SECURITY_NOTE: "Security note attached",
        EventKind.DESIGNATE: "Designees changed",
        EventKind.RETIRE: "Retired",
        EventKind.REVIEW_TIMEOUT: "Time for review over",
        EventKind.DRAFT_EXPIRED: "Internet-Draft expired",
        EventKind.DRAFT_PUBLISHED: "Internet-Draft published",
        EventKind.NAMESPACE_EXPIRED: "Namespace expired",
        EventKind.ENTER_SAFE_MODE: "Put into safe mode",
        EventKind.SUSPEND: "Suspended",
        EventKind.REINSTATE: "Reinstated",
        EventKind.REVOKE: "Revoked",
        EventKind.RENEW: "Renewed",
        EventKind.IMPORT: "Imported",
        EventKind.OVERRIDE: "Recorded override",
    }
)

#: what a page says after a form: the `done` of its address -> a sentence
DONE_MESSAGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{str(kind): f"{label}." for kind, label in EVENT_LABELS.items()},
        "open": "Saved as a draft request. Announce it for review, or submit it, below.",
        "signed-in": "You are signed in.",
        "signed-out": "You are signed out.",
    }
)

REGISTRY_SUMMARIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "uri-schemes": "The word before the first colon of a URI: http, mailto, llm.",
        "llm-parameters": "What may stand in the query of an llm: URI, and what it means everywhere.",
        "ai-namespaces": "Names for agents under ai: that are no domain names, with their keys and standing.",
    }
)


def format_roles(roles: Iterable[Role]) -> str:
    """Roles in a few words, what anybody has last."""
    order = (Role.IANA, Role.EXPERT, Role.IESG, Role.REGISTRANT)
    held = set(roles)
    return ", ".join(ROLE_TITLES[role] for role in order if role in held)


def format_time(at: datetime | None) -> str:
    """A time as pages show it: ISO 8601 to the minute, UTC; "" for none."""
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M") + "Z"


def format_date(on: date | None) -> str:
    """A date as pages show it; "" for none."""
    return "" if on is None else on.isoformat()
