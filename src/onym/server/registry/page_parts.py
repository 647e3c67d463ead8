"""Builders for the parts of pages: rows, cells, history lines, reports, request steps, versions and diagrams.

Pure functions from records of the store to parts of a page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import SequenceMatcher
from functools import cache
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.errors import RefusalError
from onym.registry.checks.context import Level, Report
from onym.registry.engine import decide
from onym.registry.records import (
    EMPTY,
    Actor,
    Entry,
    Event,
    EventKind,
    LogRecord,
    Note,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import PROFILES, REGISTRIES, Profile, Registry
from onym.server.registry import urls
from onym.server.registry.labels import (
    EVENT_LABELS,
    REQUEST_KIND_LABELS,
    ROLE_LABELS,
    STATE_LABELS,
    build_status_view,
    format_date,
    format_roles,
    format_time,
)
from onym.server.registry.page_contexts import (
    Cell,
    Choice,
    Comparison,
    Diagram,
    DiagramArrow,
    DiagramBox,
    EntryRow,
    FindingView,
    HistoryLine,
    Link,
    NoteView,
    Piece,
    ReportView,
    RequestRow,
    Step,
    VersionOption,
)

if TYPE_CHECKING:
    from onym.registry.store import EntryChange

#: events on one page
EVENTS_SHOWN: Final = 50
#: links shown in one value
_MOST_LINKS: Final = 40
#: an RFC, or a web address without what a sentence or bracket puts behind it
_LINK: Final = re.compile(
    r"\bRFC ?(?P<rfc>[1-9][0-9]{0,4})\b"
    r"|https?://[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]{0,499}[A-Za-z0-9_~/#@$&*+=%-]"
)


def split_links(text: str) -> tuple[Link, ...]:
    """A text cut at the RFCs and web addresses that it names; a part without `href` is plain text."""
    found, at = [], 0
    for match, _ in zip(_LINK.finditer(text), range(_MOST_LINKS), strict=False):
        if match.start() > at:
            found.append(Link(href="", text=text[at : match.start()]))
        number = match["rfc"]
        href = f"https://www.rfc-editor.org/rfc/rfc{number}" if number else match[0]
        found.append(Link(href=href, text=match[0]))
        at = match.end()
    if at < len(text):
        found.append(Link(href="", text=text[at:]))
    return tuple(found)


def get_column_value(entry: Entry, column: str) -> str:
    """What an entry has in a column."""
    own = {
        "name": entry.spelling or entry.name,
        "status": build_status_view(entry.status).label,
        "expires": format_date(entry.expires),
    }
    return own[column] if column in own else entry.fields.get(column, "")


def _build_cell(identifier: str, heading: str, text: str) -> Cell:
    return Cell(id=identifier, heading=heading, value=text, parts=split_links(text))


def build_entry_row(entry: Entry) -> EntryRow:
    """One row of a table, in the registry's columns."""
    row = REGISTRIES[entry.registry]
    return EntryRow(
        registry=entry.registry,
        registry_title=row.title,
        name=entry.name,
        href=urls.entry_url(entry.registry, entry.name),
        status=build_status_view(entry.status),
        cells=tuple(
            _build_cell(each.id, each.heading, get_column_value(entry, each.id)) for each in row.columns
        ),
    )


def _list_field_labels(row: Registry) -> dict[str, str]:
    """Headings of every field that this registry may hold: its columns, then its templates' fields."""
    found = {each.id: each.heading for each in row.columns}
    for name in row.profiles:
        profile = PROFILES[name]
        for field in (*profile.fields, *profile.elsewhere):
            found.setdefault(field.id, field.label[0].upper() + field.label[1:])
    return found


def build_field_cells(registry: str, values: Mapping[str, str]) -> tuple[Cell, ...]:
    """The fields that say something, in the registry's order, unknown ones last."""
    labels = _list_field_labels(REGISTRIES[registry])
    order = [*labels, *sorted(set(values) - set(labels))]
    return tuple(_build_cell(key, labels.get(key, key), values[key]) for key in order if values.get(key))


def build_entry_cells(entry: Entry) -> tuple[Cell, ...]:
    """An entry's fields for its page; the name and the status stand above them."""
    return tuple(
        each
        for each in build_field_cells(entry.registry, entry.fields)
        if each.id not in ("name", "status", "expires")
    )


def describe_missing_registrant(entry: Entry) -> str:
    """Of an entry that has no registrant: who can change it all the same; "" of any other."""
    if entry.registrant is not None or entry.status is Status.PENDING_REVIEW:
        return ""
    if entry.registry == "ai-namespaces":
        return "nobody; IANA can record one"
    if entry.status is Status.PROVISIONAL:
        return "nobody; the IESG can reassign it"
    return "nobody. Who controls it is the IESG's to say; changes of what an RFC defines need its approval."


def build_note_view(note: Note, names: Mapping[str, str]) -> NoteView:
    """A note."""
    return NoteView(kind=note.kind, text=note.text, at=format_time(note.at), by=names.get(note.by, note.by))


def build_request_row(request: Request, at: datetime) -> RequestRow:
    """One request in a list; `at` is now."""
    return RequestRow(
        id=request.id,
        href=urls.request_url(request.id),
        registry=request.registry,
        registry_title=REGISTRIES[request.registry].title,
        name=request.name,
        kind=REQUEST_KIND_LABELS[request.kind],
        status=build_status_view(request.status),
        state=str(request.state),
        state_label=STATE_LABELS[request.state],
        holder="" if request.holder is None else ROLE_LABELS[request.holder],
        since=format_time(request.since),
        due=format_time(request.due),
        overdue=request.due is not None and request.due < at,
    )


def _get_reason(record: LogRecord) -> str:
    found = record.event.data.get("reason") or record.event.data.get("text") or ""
    return found if isinstance(found, str) else ""


def paginate_records(
    records: Sequence[LogRecord], before: int | None
) -> tuple[Sequence[LogRecord], int | None]:
    """The last records before a number, as many as one page shows, and before which the part before is."""
    end = len(records)
    if before is not None:
        end = sum(each.number < before for each in records)
    part = records[max(0, end - EVENTS_SHOWN) : end]
    return part, part[0].number if end > EVENTS_SHOWN else None


def build_history_lines(
    records: Iterable[LogRecord], names: Mapping[str, str] = EMPTY, *, links: bool = True
) -> tuple[HistoryLine, ...]:
    """Events as lines, in the order given; `names` are accounts' names by id."""
    return tuple(
        HistoryLine(
            number=each.number,
            at=format_time(each.at),
            actor=names.get(each.actor.id, each.actor.id),
            roles=format_roles(each.actor.roles),
            kind=str(each.event.kind),
            label=EVENT_LABELS[each.event.kind],
            rule=each.rule,
            clause=each.clause,
            reason=_get_reason(each),
            request=Link(href=urls.request_url(each.event.request), text=each.event.request)
            if links and each.event.request
            else None,
        )
        for each in records
    )


def build_report_view(report: Report | None, *, fault: str = "", profile: str = "") -> ReportView:
    """The checker's report; `fault` says why there is none."""
    findings = () if report is None else report.findings
    used = profile if report is None else report.profile
    counts = {level: sum(each.level is level for each in findings) for level in Level}
    return ReportView(
        profile=used,
        profile_title=PROFILES[used].title if used in PROFILES else used,
        scheme="" if report is None else report.scheme or "",
        ok=report is not None and report.ok,
        errors=counts[Level.ERROR],
        warnings=counts[Level.WARNING],
        hints=counts[Level.HINT],
        findings=tuple(
            FindingView(
                check=each.check,
                code=each.code,
                level=str(each.level),
                message=each.message,
                clause=each.clause,
                field=each.field or "",
                line=each.line,
                column=each.column,
                witness=each.witness or "",
                fix=each.fix or "",
            )
            for each in findings
        ),
        fault=fault,
    )


def build_choices(pairs: Iterable[tuple[str, str]], chosen: str) -> tuple[Choice, ...]:
    """Choices of (value, label), the chosen one marked."""
    return tuple(Choice(value=value, label=label, chosen=value == chosen) for value, label in pairs)


_MARKS: Final[Mapping[str, str]] = MappingProxyType(
    {"done": "done", "current": "now", "left": "to come", "skipped": "not needed", "stopped": "ended here"}
)
#: state -> the step that it belongs to
_STEP_OF_STATE: Final[Mapping[RequestState, str]] = MappingProxyType(
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
_STEP_OF_EVENT: Final[Mapping[EventKind, str]] = MappingProxyType(
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
_STEP_LABELS: Final[Mapping[str, str]] = MappingProxyType(
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


def _plan_steps(request: Request, profile: Profile) -> set[str]:
    """The steps that a request of this kind takes where nothing unusual happens."""
    policy = profile.policies.get(request.status)
    found = {"draft", "iana", "end"}
    if request.status in profile.list_review:
        found.add("list")
    if _is_for_iesg(request):
        found.add("iesg")
    elif policy is None or not policy.at_once:
        found.add("expert")
    return found


def _is_for_iesg(request: Request) -> bool:
    retiring = request.kind is RequestKind.STATUS_CHANGE and request.status is Status.HISTORICAL
    return request.kind is RequestKind.REASSIGN or retiring


def build_steps(request: Request, records: Iterable[LogRecord]) -> tuple[Step, ...]:
    """The steps in their order; notes say when each began."""
    profile = PROFILES[request.profile]
    began: dict[str, str] = {}
    for record in records:
        step = _STEP_OF_EVENT.get(record.event.kind)
        if step is not None:
            began.setdefault(step, format_time(record.at))
    planned = _plan_steps(request, profile)
    here = _STEP_OF_STATE.get(request.state) or _find_last_step(began)
    began.setdefault(here, format_time(request.since))
    order = [name for name in _STEP_LABELS if name in planned or name in began]
    place = order.index(here)
    return tuple(
        _build_step(request, name, index - place, name in began, began) for index, name in enumerate(order)
    )


def _find_last_step(began: Mapping[str, str]) -> str:
    """Where an ended request stopped."""
    return [name for name in _STEP_LABELS if name in began][-1] if began else "draft"


def _build_step(request: Request, name: str, distance: int, seen: bool, began: Mapping[str, str]) -> Step:
    if distance == 0:
        mark = "stopped" if request.state in _ENDED else "done" if name == "end" else "current"
    elif distance < 0:
        mark = "done" if seen else "skipped"
    else:
        mark = "skipped" if request.state in _ENDED else "left"
    said = "not reached" if distance > 0 and mark == "skipped" else _MARKS[mark]
    return Step(
        id=name,
        label=_STEP_LABELS[name],
        mark=mark,
        mark_label=said,
        note=began.get(name, "") if seen else "",
    )


#: words of one field that are aligned; a longer field is shown whole, before and after
_MOST_WORDS: Final = 2_000
#: pairs of equal words that are looked at for one page: aligning takes time with their number, and more than
#: that where words come again and again; beyond it a field is shown whole too
_MOST_PAIRS: Final = 60_000
_WORD: Final = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")

#: versions offered in a choice; older ones are compared by their address
_MOST_OPTIONS: Final = 200

Version: TypeAlias = "tuple[Entry, EntryChange]"


def index_versions(changes: Iterable[EntryChange]) -> dict[int, Version]:
    """Every version of a name's entries with the change that made it, by number, in the order given."""
    return {each.after.version: (each.after, each) for each in changes if each.after is not None}


def build_version_options(versions: Mapping[int, Version]) -> tuple[VersionOption, ...]:
    """The versions as a choice, newest first."""
    return tuple(
        VersionOption(
            number=number, label=f"{number}: {format_date(change.at.date())}, {EVENT_LABELS[change.event]}"
        )
        for number, (_, change) in sorted(versions.items(), reverse=True)[:_MOST_OPTIONS]
    )


def _list_values(entry: Entry) -> dict[str, tuple[str, str]]:
    """Field id -> (heading, text) of all that a version says."""
    found = {"status": ("Status", build_status_view(entry.status).label)}
    for cell in build_field_cells(entry.registry, entry.fields):
        found[cell.id] = (cell.heading, cell.value)
    found["registrant"] = ("Registrant", entry.registrant or "")
    found["expires"] = ("Holds until", format_date(entry.expires))
    found["notes_attached"] = (
        "Notes attached",
        "\n".join(f"{each.kind}: {each.text}" for each in entry.notes),
    )
    return found


def compare_versions(before: Entry, after: Entry) -> tuple[Comparison, ...]:
    """Both versions, field by field, in the registry's order; fields that both leave out are left out."""
    old, new = _list_values(before), _list_values(after)
    order = [each.id for each in REGISTRIES[after.registry].columns]
    names = sorted({*old, *new}, key=lambda name: (order.index(name) if name in order else len(order), name))
    found = []
    left = _MOST_PAIRS
    for name in names:
        heading = (new.get(name) or old[name])[0]
        one, two = old.get(name, ("", ""))[1], new.get(name, ("", ""))[1]
        if one or two:
            gone, came, looked_at = _align_words(one, two, left)
            left -= looked_at
            found.append(Comparison(id=name, heading=heading, changed=one != two, before=gone, after=came))
    return tuple(found)


def split_differences(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both texts, cut where they differ, word by word."""
    return _align_words(before, after, _MOST_PAIRS)[:2]


def _align_words(before: str, after: str, most: int) -> tuple[tuple[Piece, ...], tuple[Piece, ...], int]:
    """The same where no more than `most` pairs of equal words must be looked at; and how many there were."""
    if before == after:
        same = _join_pieces([("same", before)])
        return same, same, 0
    old, new = _WORD.findall(before), _WORD.findall(after)
    counts = Counter(old)
    pairs = sum(counts[word] for word in new)
    if pairs > most or len(old) > _MOST_WORDS or len(new) > _MOST_WORDS:
        return _join_pieces([("gone", before)]), _join_pieces([("new", after)]), 0
    one, two = [], []
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        one.append(("same" if tag == "equal" else "gone", "".join(old[a:b])))
        two.append(("same" if tag == "equal" else "new", "".join(new[c:d])))
    return _join_pieces(one), _join_pieces(two), pairs


def _join_pieces(parts: list[tuple[str, str]]) -> tuple[Piece, ...]:
    kept = [part for part in parts if part[1]]
    return tuple(
        Piece(kind=kind, text="".join(text for _, text in group))
        for kind, group in groupby(kept, lambda p: p[0])
    )


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
_SHORT_STATE_LABELS: Final[Mapping[RequestState, str]] = MappingProxyType(
    {
        RequestState.LIST_REVIEW: "List review",
        RequestState.SUBMITTED: "Submitted",
        RequestState.MORE_REVIEW: "More review",
        RequestState.IETF_REVIEW: "IETF review",
        RequestState.TIMED_OUT: "Timed out",
    }
)
_BOX: Final = (128, 46)
_GRID_STEP: Final = (192, 112)
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


def _make_sample_request(row: Registry, profile: Profile, status: Status, kind: RequestKind) -> Request:
    fields = {each.id: "x" for each in profile.fields}
    fields |= {"name": _NAME, "status": str(status), "expires": "2099-12-31"}
    return Request(
        id="sample-1", registry=row.id, profile=profile.id, kind=kind, name=_NAME, status=status,
        state=RequestState.DRAFT, registrant=_ASKER.id, fields=fields, opened=_AT, since=_AT,
        holder=Role.REGISTRANT, version=1,
    )  # fmt: skip


def _iter_starts(row: Registry, profile: Profile) -> Iterator[tuple[Request, Entry | None]]:
    for status in profile.policies:
        yield _make_sample_request(row, profile, status, RequestKind.NEW), None
    if Status.PERMANENT in profile.policies:
        kept = Entry(registry=row.id, name=_NAME, status=Status.PERMANENT, registrant=_ASKER.id, version=1)
        yield _make_sample_request(row, profile, Status.HISTORICAL, RequestKind.STATUS_CHANGE), kept


@cache
def find_transitions(profile_id: str) -> tuple[Transition, ...]:
    """Every (state, event) that the engine lets somebody take, and where it leads; each once."""
    row = next(each for each in REGISTRIES.values() if profile_id in each.profiles)
    profile = PROFILES[profile_id]
    found: dict[tuple[RequestState, RequestState, EventKind], Transition] = {}
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
    order = list(RequestState)
    return tuple(
        sorted(found.values(), key=lambda each: (order.index(each.source), order.index(each.target)))
    )


def _iter_transitions(
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
            who = "time" if kind is EventKind.REVIEW_TIMEOUT else ROLE_LABELS[role]
            yield (
                Transition(request.state, decision.request.state, kind, who, decision.clause),
                (replace(decision.request, version=1), after),
            )
            break


def _get_corner(state: RequestState) -> tuple[int, int]:
    column, line = _PLACES[state]
    return _EDGE + column * _GRID_STEP[0], _EDGE + line * _GRID_STEP[1]


def _get_state_label(state: RequestState) -> str:
    return _SHORT_STATE_LABELS.get(state, STATE_LABELS[state])


@cache
def build_diagram(profile_id: str) -> Diagram:
    """The picture of a profile's state machine. Arrows between the same two states are drawn as one."""
    steps = find_transitions(profile_id)
    pairs: dict[tuple[RequestState, RequestState], list[Transition]] = {}
    for step in steps:
        if step.source is not step.target and step.target in _PLACES:
            pairs.setdefault((step.source, step.target), []).append(step)
    states = [each for each in _PLACES if any(each in pair for pair in pairs)]
    boxes = tuple(
        DiagramBox(
            id=str(each), label=_get_state_label(each), x=_get_corner(each)[0], y=_get_corner(each)[1],
            width=_BOX[0], height=_BOX[1], final=each in _FINAL,
        )
        for each in states
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
        aside=_describe_withdrawals(steps),
    )


def _build_arrow(
    number: int, source: RequestState, target: RequestState, steps: list[Transition], both: bool
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
    """In words, what would be an arrow from nearly everywhere."""
    gone = dict.fromkeys(
        _get_state_label(each.source) for each in steps if each.target is RequestState.WITHDRAWN
    )
    return f"The registrant may withdraw a request while it stands at: {', '.join(gone)}." if gone else ""


def _draw_curve(start: tuple[int, int], end: tuple[int, int], bend: int) -> tuple[str, int, int]:
    """A path from box to box whose middle lies `bend` to the left, and the place of its number."""
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
    """Where the line from a box's middle leaves the box."""
    dx, dy = toward_x - x, toward_y - y
    scale = min(
        (_BOX[0] / 2 + 2) / abs(dx) if dx else float("inf"),
        (_BOX[1] / 2 + 2) / abs(dy) if dy else float("inf"),
    )
    return x + dx * scale, y + dy * scale
