"""The help page: the procedures in plain words, and each profile's state machine as a diagram."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response

from onym.errors import RefusalError
from onym.registry import records
from onym.registry.engine import TIMER_EVENTS, decide, list_allowed_events
from onym.registry.registries import PROFILES, REGISTRIES, Profile, Registry, get_catalog
from onym.registry.words import apply_words
from onym.server.registry import urls
from onym.server.registry.api.openapi import DEPRECATIONS, MIN_NOTICE
from onym.server.registry.labels import EVENT_LABELS, ROLE_LABELS, STATE_LABELS, STATUS_HELP
from onym.server.registry.responses import build_page_frame, make_page_response
from onym.server.registry.urls import make_route


async def help_page(request: HTTPRequest) -> Response:
    """GET: the procedures."""
    return make_page_response(
        request,
        "help.html",
        build_page_frame(request, "How it works", (urls.HOME_URL, "Home")),
        procedures=[
            (profile, _describe_time(profile), build_diagram(profile.id, get_catalog().digest))
            for profile in PROFILES.values()
        ],
        describe_review=_describe_review,
        in_short=_describe_procedures(),
        statuses={status: STATUS_HELP[status] for status in _list_statuses()},
        deprecations=DEPRECATIONS,
        notice_days=MIN_NOTICE.days,
    )


def _list_statuses() -> tuple[records.Status, ...]:
    """Return the statuses of the registries in force, in the order of the engine."""
    used = {status for row in REGISTRIES.values() for status in row.statuses}
    return tuple(status for status in STATUS_HELP if status in used)


def _describe_review(profile: Profile, status: records.Status) -> str:
    review = profile.list_review.get(status)
    if review is None:
        return "none" if profile.own_rules else "optional"
    word = "required" if review.required else "optional"
    return f"{word}: {_format_days(review.reasonable.days)}, {review.clause}"


def _format_days(days: int, *, weeks: bool = True) -> str:
    count, unit = (days // 7, "week") if weeks and days % 7 == 0 else (days, "day")
    return f"{count} {unit}{'s' if count != 1 else ''}"


def _describe_time(profile: Profile) -> str:
    """Return how long decisions take."""
    if profile.expert_timeout is not None:
        return f"After {profile.expert_timeout.days} days without an answer it is registered provisionally."
    if profile.own_rules is None:
        return f"The expert should answer within {profile.expert_time.days} days."
    deciders = {
        policy.decided_by: _format_days((policy.time or profile.expert_time).days, weeks=False)
        for policy in profile.policies.values()
        if not policy.at_once
    }
    return " ".join(
        f"{_capitalize(ROLE_LABELS[role])} should decide within {time}." for role, time in deciders.items()
    )


_IN_SHORT: Final = (
    "A registration starts as a request. The registrant writes it, has it discussed and submits it. IANA "
    "checks that it is complete. Depending on the requested status, it is then registered at once or "
    "reviewed by a Designated Expert, who gives a reason. The IESG decides contested cases."
)


def _describe_procedures() -> str:
    """Return what the procedures in force have in common: for defined registries, what they define."""
    if get_catalog().definition is None:
        return _IN_SHORT
    profiles = PROFILES.values()
    policies = [policy for profile in profiles for policy in profile.policies.values()]
    discussed = ", has it discussed" if any(profile.list_review for profile in profiles) else ""
    deciders = dict.fromkeys(policy.decided_by for policy in policies if not policy.at_once)
    who = " or ".join(ROLE_LABELS[role] for role in deciders)
    at_once = any(policy.at_once for policy in policies)
    if not deciders:
        decided = "It is then registered at once."
    elif at_once:
        decided = f"Depending on the requested status, it is then registered at once, or {who} decides."
    else:
        decided = f"Then {who} decides."
    appeals = any(profile.appeals for profile in profiles)
    last = f" {_capitalize(ROLE_LABELS[records.Role.IESG])} answers appeals." if appeals else ""
    first = f"The registrant writes it{discussed} and submits it. IANA checks that it is complete."
    return f"A registration starts as a request. {apply_words(first)} {decided}{last}"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


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
    """A transition: an SVG path, and its number in the list below the diagram."""

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
class Diagram:
    """A state machine as boxes and arrows. Lengths are SVG user units.

    `aside` describes the transitions that are not drawn.
    """

    width: int
    height: int
    boxes: tuple[DiagramBox, ...]
    arrows: tuple[DiagramArrow, ...]
    aside: str


_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)

#: longer than every timer
_WAIT: Final = timedelta(days=60)

_NAME: Final = "sample"

_ASKER: Final = records.Actor(id="asker", roles=frozenset({records.Role.REGISTRANT}))

_ACTORS: Final = (
    _ASKER,
    *(
        records.Actor(id=f"a-{role}", roles=frozenset({role}))
        for role in (records.Role.IANA, records.Role.EXPERT, records.Role.IESG)
    ),
)

_DATA: Final[Mapping[str, Any]] = {
    "reason": "r", "archive": "https://list.example/1", "missing": ["contact"], "remedy": "note",
}  # fmt: skip

#: state -> column, row of its box; arrows between these pass over no other box, with the bends below
_PLACES: Final[Mapping[records.RequestState, tuple[int, int]]] = {
    records.RequestState.DRAFT: (0, 1),
    records.RequestState.LIST_REVIEW: (1, 0),
    records.RequestState.SUBMITTED: (2, 1),
    records.RequestState.EXPERT_REVIEW: (3, 1),
    records.RequestState.MORE_REVIEW: (3, 0),
    records.RequestState.IETF_REVIEW: (4, 2),
    records.RequestState.APPROVED: (5, 1),
    records.RequestState.TIMED_OUT: (5, 2),
    records.RequestState.REJECTED: (3, 3),
}

#: distance of an arrow from the straight line, to its left
_BENDS: Final[Mapping[tuple[records.RequestState, records.RequestState], int]] = {
    (records.RequestState.SUBMITTED, records.RequestState.APPROVED): 62,
    (records.RequestState.MORE_REVIEW, records.RequestState.REJECTED): -92,
    (records.RequestState.MORE_REVIEW, records.RequestState.TIMED_OUT): 26,
}

_SHORT_STATE_LABELS: Final[Mapping[records.RequestState, str]] = {
    records.RequestState.LIST_REVIEW: "List review",
    records.RequestState.SUBMITTED: "Submitted",
    records.RequestState.MORE_REVIEW: "More review",
    records.RequestState.IETF_REVIEW: "IETF review",
    records.RequestState.TIMED_OUT: "Timed out",
}

_BOX: Final = (128, 46)

_GRID_STEP: Final = (192, 112)

_EDGE: Final = 24


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition that the engine allows."""

    source: records.RequestState
    target: records.RequestState
    event: records.EventKind
    who: str
    clause: str


def _make_sample_request(
    row: Registry, profile: Profile, status: records.Status, kind: records.RequestKind
) -> records.Request:
    fields = {field.id: "x" for field in profile.fields}
    fields |= {"name": _NAME, "status": str(status), "expires": "2099-12-31"}
    return records.Request(
        id="sample-1", registry=row.id, profile=profile.id, kind=kind, name=_NAME, status=status,
        state=records.RequestState.DRAFT, registrant=_ASKER.id, fields=fields, opened=_AT, since=_AT,
        holder=records.Role.REGISTRANT, version=1,
    )  # fmt: skip


def _iter_starts(row: Registry, profile: Profile) -> Iterator[tuple[records.Request, records.Entry | None]]:
    for status in profile.policies:
        yield _make_sample_request(row, profile, status, records.RequestKind.NEW), None
    if records.Status.PERMANENT in profile.policies:
        kept = records.Entry(
            registry=row.id, name=_NAME, status=records.Status.PERMANENT, registrant=_ASKER.id, version=1
        )
        yield (
            _make_sample_request(row, profile, records.Status.HISTORICAL, records.RequestKind.STATUS_CHANGE),
            kept,
        )


@cache
def find_transitions(profile_id: str, digest: str = "") -> tuple[Transition, ...]:
    """Return every transition that the engine allows, once for each source, target and event."""
    row = next(registry for registry in REGISTRIES.values() if profile_id in registry.profiles)
    profile = PROFILES[profile_id]
    found: dict[tuple[records.RequestState, records.RequestState, records.EventKind], Transition] = {}
    waiting, seen = list(_iter_starts(row, profile)), set()
    while waiting:
        request, entry = waiting.pop()
        key = (request.state, request.status, request.kind, request.timed_out, request.announced is None,
               request.outcome, None if entry is None else entry.status)  # fmt: skip
        if key in seen:
            continue
        seen.add(key)
        for step, after in _iter_transitions(request, entry):
            found.setdefault((step.source, step.target, step.event), step)
            waiting.append(after)
    order = list(records.RequestState)
    return tuple(
        sorted(found.values(), key=lambda step: (order.index(step.source), order.index(step.target)))
    )


def _iter_transitions(
    request: records.Request, entry: records.Entry | None
) -> Iterator[tuple[Transition, tuple[records.Request, records.Entry | None]]]:
    at = request.since + _WAIT
    offered = [(actor, {*list_allowed_events(request, entry, actor, at), *TIMER_EVENTS}) for actor in _ACTORS]
    for kind in records.EventKind:
        event = records.Event(
            kind=kind, registry=request.registry, request=request.id, name=_NAME, data=_DATA
        )
        for actor in (actor for actor, kinds in offered if kind in kinds):
            try:
                decision = decide(event, actor, at, request=request, entry=entry)
            except RefusalError:
                continue
            if decision.request is None:
                continue
            after = None if decision.removed else decision.entry or entry
            role = next(iter(actor.roles))
            who = "time" if kind in TIMER_EVENTS else ROLE_LABELS[role]
            yield (
                Transition(request.state, decision.request.state, kind, who, decision.clause),
                (replace(decision.request, version=1), after),
            )
            break


def _get_corner(state: records.RequestState) -> tuple[int, int]:
    column, line = _PLACES[state]
    return _EDGE + column * _GRID_STEP[0], _EDGE + line * _GRID_STEP[1]


def _get_state_label(state: records.RequestState) -> str:
    short = _SHORT_STATE_LABELS.get(state)
    return STATE_LABELS[state] if short is None else apply_words(short)


@cache
def build_diagram(profile_id: str, digest: str = "") -> Diagram:
    """Return the diagram of a profile. Transitions between the same two states share an arrow.

    `digest` is of the definition in force, if there is one.
    """
    steps = find_transitions(profile_id, digest)
    pairs: dict[tuple[records.RequestState, records.RequestState], list[Transition]] = {}
    for step in steps:
        if step.source is not step.target and {step.source, step.target} <= _PLACES.keys():
            pairs.setdefault((step.source, step.target), []).append(step)
    states = [state for state in _PLACES if any(state in pair for pair in pairs)]
    boxes = tuple(
        DiagramBox(
            id=str(state), label=_get_state_label(state), x=_get_corner(state)[0], y=_get_corner(state)[1],
            width=_BOX[0], height=_BOX[1], final=state.is_final,
        )
        for state in states
    )  # fmt: skip
    arrows = tuple(
        _build_arrow(number, source, target, several, (target, source) in pairs)
        for number, ((source, target), several) in enumerate(pairs.items(), 1)
    )
    right = max(box.x + box.width for box in boxes)
    below = max(box.y + box.height for box in boxes)
    return Diagram(
        width=right + _EDGE,
        height=below + _EDGE,
        boxes=boxes,
        arrows=arrows,
        aside=f"{_describe_withdrawals(steps)} {_describe_appeals(steps)}".strip(),
    )


def _build_arrow(
    number: int,
    source: records.RequestState,
    target: records.RequestState,
    steps: list[Transition],
    both: bool,
) -> DiagramArrow:
    bend = _BENDS.get((source, target), 18 if both else 0)
    path, x, y = _draw_curve(_get_corner(source), _get_corner(target), bend)
    return DiagramArrow(
        path=path,
        number=number,
        x=x,
        y=y,
        label="; ".join(dict.fromkeys(EVENT_LABELS[step.event].lower() for step in steps)),
        who=", ".join(dict.fromkeys(step.who for step in steps)),
        clause="; ".join(dict.fromkeys(step.clause for step in steps)),
        source=_get_state_label(source),
        target=_get_state_label(target),
    )


def _describe_withdrawals(steps: tuple[Transition, ...]) -> str:
    """Return a sentence about withdrawals, which would need arrows from most states."""
    gone = dict.fromkeys(
        _get_state_label(step.source) for step in steps if step.target is records.RequestState.WITHDRAWN
    )
    said = f"The registrant can withdraw a request in these states: {', '.join(gone)}."
    return apply_words(said) if gone else ""


def _describe_appeals(steps: tuple[Transition, ...]) -> str:
    """Return a sentence about appeals, which would need arrows from every decision and back."""
    states = dict.fromkeys(
        _get_state_label(step.source)
        for step in steps
        if step.target is records.RequestState.APPEAL and step.source is not step.target
    )
    if not states:
        return ""
    return apply_words(
        f"Anyone can appeal a decision ({', '.join(states)}) to the IESG within two months, and then to the "
        "IAB. A rejected request whose appeal is upheld is submitted again."
    )


def _draw_curve(start: tuple[int, int], end: tuple[int, int], bend: int) -> tuple[str, int, int]:
    """Return a path between two boxes, bent to the left by `bend`, and the position of its number."""
    width, height = _BOX
    sx, sy = start[0] + width / 2, start[1] + height / 2
    ex, ey = end[0] + width / 2, end[1] + height / 2
    dx, dy = ex - sx, ey - sy
    length = (dx * dx + dy * dy) ** 0.5
    mx, my = (sx + ex) / 2 + dy / length * bend, (sy + ey) / 2 - dx / length * bend
    ax, ay = _find_border_point(sx, sy, mx, my)
    bx, by = _find_border_point(ex, ey, mx, my)
    cx, cy = 2 * mx - (ax + bx) / 2, 2 * my - (ay + by) / 2
    # before the middle, where fewer arrows cross
    t = 0.42
    u = 1 - t
    x, y = u * u * ax + 2 * u * t * cx + t * t * bx, u * u * ay + 2 * u * t * cy + t * t * by
    return f"M{ax:.0f} {ay:.0f} Q{cx:.0f} {cy:.0f} {bx:.0f} {by:.0f}", round(x), round(y)


def _find_border_point(x: float, y: float, toward_x: float, toward_y: float) -> tuple[float, float]:
    """Return the point where a line from a box's centre leaves the box."""
    dx, dy = toward_x - x, toward_y - y
    scale = min(
        (_BOX[0] / 2 + 2) / abs(dx) if dx else float("inf"),
        (_BOX[1] / 2 + 2) / abs(dy) if dy else float("inf"),
    )
    return x + dx * scale, y + dy * scale


ROUTES: Final = (make_route("/help", {"GET": help_page}),)
