"""The state machine of a profile as a picture, found by walking the engine itself.

Nothing here knows a rule: every state is visited, every event is asked for by every role, and what the
engine allows becomes an arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from onym.errors import RefusalError
from onym.registry.engine import decide
from onym.registry.profiles import PROFILES, Profile
from onym.registry.records import (
    Actor,
    Entry,
    Event,
    EventKind,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import REGISTRIES, Registry
from onym.server.registry.contexts.browse import Diagram, DiagramArrow, DiagramBox
from onym.server.registry.words import EVENTS, ROLES, STATES

__all__ = ["diagram", "transitions"]

_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
#: longer than every timer
_WAIT: Final = timedelta(days=60)
_NAME: Final = "sample"
_ASKER: Final = Actor(id="asker", roles=frozenset({Role.REGISTRANT}))
_ACTORS: Final = (
    _ASKER,
    *(Actor(id=f"a-{role}", roles=frozenset({role})) for role in (Role.IANA, Role.EXPERT, Role.IESG)),
)
_DATA: Final[Mapping[str, Any]] = MappingProxyType(
    {"reason": "r", "archive": "https://list.example/1", "missing": ["contact"]}
)
#: state -> column, row of its box; arrows between these pass over no other box, with the bends below
_PLACES: Final[Mapping[RequestState, tuple[int, int]]] = MappingProxyType(
    {
        RequestState.DRAFT: (0, 1),
        RequestState.LIST_REVIEW: (1, 0),
        RequestState.SUBMITTED: (2, 1),
        RequestState.EXPERT_REVIEW: (3, 1),
        RequestState.MORE_REVIEW: (3, 0),
        RequestState.IETF_REVIEW: (4, 2),
        RequestState.APPROVED: (5, 1),
        RequestState.TIMED_OUT: (5, 2),
        RequestState.REJECTED: (3, 3),
    }
)
#: how far aside of the straight way an arrow passes, to its left
_BENDS: Final[Mapping[tuple[RequestState, RequestState], int]] = MappingProxyType(
    {
        (RequestState.SUBMITTED, RequestState.APPROVED): 62,
        (RequestState.MORE_REVIEW, RequestState.REJECTED): -92,
        (RequestState.MORE_REVIEW, RequestState.TIMED_OUT): 26,
    }
)
_SHORT: Final[Mapping[RequestState, str]] = MappingProxyType(
    {
        RequestState.LIST_REVIEW: "List review",
        RequestState.SUBMITTED: "Submitted",
        RequestState.MORE_REVIEW: "More review",
        RequestState.IETF_REVIEW: "IETF review",
        RequestState.TIMED_OUT: "Timed out",
    }
)
_BOX: Final = (128, 46)
_STEP: Final = (192, 112)
_EDGE: Final = 24
_FINAL: Final = frozenset(
    {RequestState.APPROVED, RequestState.REJECTED, RequestState.WITHDRAWN, RequestState.TIMED_OUT}
)


@dataclass(frozen=True, slots=True)
class Transition:
    """One step that the engine allows."""

    source: RequestState
    target: RequestState
    event: EventKind
    who: str
    clause: str


def _sample(row: Registry, profile: Profile, status: Status, kind: RequestKind) -> Request:
    fields = {each.id: "x" for each in profile.fields}
    fields |= {"name": _NAME, "status": str(status), "expires": "2099-12-31"}
    return Request(
        id="sample-1", registry=row.id, profile=profile.id, kind=kind, name=_NAME, status=status,
        state=RequestState.DRAFT, registrant=_ASKER.id, fields=fields, opened=_AT, since=_AT,
        holder=Role.REGISTRANT, version=1,
    )  # fmt: skip


def _starts(row: Registry, profile: Profile) -> Iterator[tuple[Request, Entry | None]]:
    for status in profile.policies:
        yield _sample(row, profile, status, RequestKind.NEW), None
    if Status.PERMANENT in profile.policies:
        kept = Entry(registry=row.id, name=_NAME, status=Status.PERMANENT, registrant=_ASKER.id, version=1)
        yield _sample(row, profile, Status.HISTORICAL, RequestKind.STATUS_CHANGE), kept


@cache
def transitions(profile_id: str) -> tuple[Transition, ...]:
    """Every (state, event) that the engine lets somebody take, and where it leads; each once."""
    row = next(each for each in REGISTRIES.values() if profile_id in each.profiles)
    profile = PROFILES[profile_id]
    found: dict[tuple[RequestState, RequestState, EventKind], Transition] = {}
    waiting, seen = list(_starts(row, profile)), set()
    while waiting:
        request, entry = waiting.pop()
        key = (request.state, request.status, request.kind, request.timed_out, request.announced is None,
               request.outcome, None if entry is None else entry.status)  # fmt: skip
        if key in seen:
            continue
        seen.add(key)
        for step, after in _steps(request, entry):
            found.setdefault((step.source, step.target, step.event), step)
            waiting.append(after)
    order = list(RequestState)
    return tuple(
        sorted(found.values(), key=lambda each: (order.index(each.source), order.index(each.target)))
    )


def _steps(
    request: Request, entry: Entry | None
) -> Iterator[tuple[Transition, tuple[Request, Entry | None]]]:
    for kind in EventKind:
        if kind is EventKind.OPEN:
            continue
        event = Event(kind=kind, registry=request.registry, request=request.id, name=_NAME, data=_DATA)
        for actor in _ACTORS:
            try:
                decision = decide(event, actor, request.since + _WAIT, request=request, entry=entry)
            except RefusalError:
                continue
            if decision.request is None:
                continue
            after = None if decision.removed else decision.entry or entry
            role = next(iter(actor.roles))
            who = "time" if kind is EventKind.REVIEW_TIMEOUT else ROLES[role]
            yield (
                Transition(request.state, decision.request.state, kind, who, decision.clause),
                (replace(decision.request, version=1), after),
            )
            break


def _corner(state: RequestState) -> tuple[int, int]:
    column, line = _PLACES[state]
    return _EDGE + column * _STEP[0], _EDGE + line * _STEP[1]


def _label(state: RequestState) -> str:
    return _SHORT.get(state, STATES[state])


@cache
def diagram(profile_id: str) -> Diagram:
    """The picture of a profile's state machine. Arrows between the same two states are drawn as one."""
    steps = transitions(profile_id)
    pairs: dict[tuple[RequestState, RequestState], list[Transition]] = {}
    for step in steps:
        if step.source is not step.target and step.target in _PLACES:
            pairs.setdefault((step.source, step.target), []).append(step)
    states = [each for each in _PLACES if any(each in pair for pair in pairs)]
    boxes = tuple(
        DiagramBox(
            id=str(each), label=_label(each), x=_corner(each)[0], y=_corner(each)[1],
            width=_BOX[0], height=_BOX[1], final=each in _FINAL,
        )
        for each in states
    )  # fmt: skip
    arrows = tuple(
        _arrow(number, source, target, several, (target, source) in pairs)
        for number, ((source, target), several) in enumerate(pairs.items(), 1)
    )
    right = max(box.x + box.width for box in boxes)
    below = max(box.y + box.height for box in boxes)
    return Diagram(width=right + _EDGE, height=below + _EDGE, boxes=boxes, arrows=arrows, aside=_aside(steps))


def _arrow(
    number: int, source: RequestState, target: RequestState, steps: list[Transition], both: bool
) -> DiagramArrow:
    bend = _BENDS.get((source, target), 18 if both else 0)
    path, x, y = _curve(_corner(source), _corner(target), bend)
    return DiagramArrow(
        path=path,
        number=number,
        x=x,
        y=y,
        label="; ".join(dict.fromkeys(EVENTS[step.event].lower() for step in steps)),
        who=", ".join(dict.fromkeys(step.who for step in steps)),
        clause="; ".join(dict.fromkeys(step.clause for step in steps)),
        source=_label(source),
        target=_label(target),
    )


def _aside(steps: tuple[Transition, ...]) -> str:
    """In words, what would be an arrow from nearly everywhere."""
    gone = dict.fromkeys(_label(each.source) for each in steps if each.target is RequestState.WITHDRAWN)
    return f"The registrant may withdraw a request while it stands at: {', '.join(gone)}." if gone else ""


def _curve(start: tuple[int, int], end: tuple[int, int], bend: int) -> tuple[str, int, int]:
    """A path from box to box whose middle lies `bend` to the left, and the place of its number."""
    width, height = _BOX
    sx, sy = start[0] + width / 2, start[1] + height / 2
    ex, ey = end[0] + width / 2, end[1] + height / 2
    dx, dy = ex - sx, ey - sy
    length = (dx * dx + dy * dy) ** 0.5
    mx, my = (sx + ex) / 2 + dy / length * bend, (sy + ey) / 2 - dx / length * bend
    ax, ay = _border(sx, sy, mx, my)
    bx, by = _border(ex, ey, mx, my)
    cx, cy = 2 * mx - (ax + bx) / 2, 2 * my - (ay + by) / 2
    # before the middle, where fewer arrows cross
    t = 0.42
    u = 1 - t
    x, y = u * u * ax + 2 * u * t * cx + t * t * bx, u * u * ay + 2 * u * t * cy + t * t * by
    return f"M{ax:.0f} {ay:.0f} Q{cx:.0f} {cy:.0f} {bx:.0f} {by:.0f}", round(x), round(y)


def _border(x: float, y: float, toward_x: float, toward_y: float) -> tuple[float, float]:
    """Where the line from a box's middle leaves the box."""
    dx, dy = toward_x - x, toward_y - y
    scale = min(
        (_BOX[0] / 2 + 2) / abs(dx) if dx else float("inf"),
        (_BOX[1] / 2 + 2) / abs(dy) if dy else float("inf"),
    )
    return x + dx * scale, y + dy * scale
