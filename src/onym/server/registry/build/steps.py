"""A request's way as a line of steps: what is done, where it stands, what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from onym.registry.profiles import PROFILES, Profile
from onym.registry.records import EventKind, LogRecord, Request, RequestKind, RequestState, Status
from onym.server.registry.contexts.parts import Step
from onym.server.registry.words import moment

__all__ = ["steps_of"]

_MARKS: Final[Mapping[str, str]] = MappingProxyType(
    {"done": "done", "current": "now", "left": "to come", "skipped": "not needed", "stopped": "ended here"}
)
#: state -> the step that it belongs to
_STEP: Final[Mapping[RequestState, str]] = MappingProxyType(
    {
        RequestState.DRAFT: "draft",
        RequestState.LIST_REVIEW: "list",
        RequestState.SUBMITTED: "iana",
        RequestState.EXPERT_REVIEW: "expert",
        RequestState.MORE_REVIEW: "expert",
        RequestState.IETF_REVIEW: "iesg",
        RequestState.APPROVED: "end",
        RequestState.TIMED_OUT: "end",
    }
)
#: event -> the step that it leaves behind
_LEFT: Final[Mapping[EventKind, str]] = MappingProxyType(
    {
        EventKind.OPEN: "draft",
        EventKind.ANNOUNCE: "list",
        EventKind.SUBMIT: "iana",
        EventKind.RESUBMIT: "iana",
        EventKind.CHECK_COMPLETE: "iana",
        EventKind.REJECT_INCOMPLETE: "iana",
        EventKind.APPROVE: "expert",
        EventKind.APPROVE_AS_PROVISIONAL: "expert",
        EventKind.ASK_MORE_REVIEW: "expert",
        EventKind.ASK_IETF_REVIEW: "expert",
        EventKind.REJECT: "expert",
        EventKind.REVIEW_TIMEOUT: "expert",
        EventKind.IESG_APPROVE: "iesg",
        EventKind.IESG_DECLINE: "iesg",
    }
)
_LABELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "draft": "Draft",
        "list": "List review",
        "iana": "IANA check",
        "expert": "Expert Review",
        "iesg": "IESG",
        "end": "Registered",
    }
)
_ENDED: Final = (RequestState.REJECTED, RequestState.WITHDRAWN)


def _planned(request: Request, profile: Profile) -> set[str]:
    """The steps that a request of this kind takes where nothing unusual happens."""
    policy = profile.policies.get(request.status)
    found = {"draft", "iana", "end"}
    if request.status in profile.list_review:
        found.add("list")
    if _for_iesg(request):
        found.add("iesg")
    elif policy is None or not policy.at_once:
        found.add("expert")
    return found


def _for_iesg(request: Request) -> bool:
    retiring = request.kind is RequestKind.STATUS_CHANGE and request.status is Status.HISTORICAL
    return request.kind is RequestKind.REASSIGN or retiring


def steps_of(request: Request, records: Iterable[LogRecord]) -> tuple[Step, ...]:
    """The steps in their order; notes say when each began."""
    profile = PROFILES[request.profile]
    began: dict[str, str] = {}
    for record in records:
        step = _LEFT.get(record.event.kind)
        if step is not None:
            began.setdefault(step, moment(record.at))
    planned = _planned(request, profile)
    here = _STEP.get(request.state) or _last(began)
    began.setdefault(here, moment(request.since))
    order = [name for name in _LABELS if name in planned or name in began]
    place = order.index(here)
    return tuple(
        _step(request, name, index - place, name in began, began) for index, name in enumerate(order)
    )


def _last(began: Mapping[str, str]) -> str:
    """Where an ended request stopped."""
    return [name for name in _LABELS if name in began][-1] if began else "draft"


def _step(request: Request, name: str, distance: int, seen: bool, began: Mapping[str, str]) -> Step:
    if distance == 0:
        mark = "stopped" if request.state in _ENDED else "done" if name == "end" else "current"
    elif distance < 0:
        mark = "done" if seen else "skipped"
    else:
        mark = "skipped" if request.state in _ENDED else "left"
    said = "not reached" if distance > 0 and mark == "skipped" else _MARKS[mark]
    return Step(
        id=name, label=_LABELS[name], mark=mark, mark_label=said, note=began.get(name, "") if seen else ""
    )
