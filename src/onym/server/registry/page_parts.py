"""The parts of pages and their builders: rows, cells, history lines, reports, request steps and versions.

The builders are pure functions of the store's records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onym.errors import RegistryError
from onym.registry.records import (
    Entry,
    EventKind,
    LogRecord,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import PROFILES, REGISTRIES, Profile, Registry
from onym.registry.words import apply_words
from onym.server.registry import urls
from onym.server.registry.labels import (
    ENDING_TONES,
    EVENT_LABELS,
    STATUS_LABELS,
    STATUS_TONES,
    format_date,
    format_inside,
    format_time,
    translate_row,
    translate_text,
)

if TYPE_CHECKING:
    from onym.registry.store import EntryChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link. `current` is true for the current page."""

    href: str
    text: str
    current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """The frame of every page: navigation and the visitor."""

    title: str
    nav: tuple[Link, ...]
    desk: tuple[Link, ...]
    crumbs: tuple[Link, ...]
    #: the name of the signed-in visitor, or ""
    who: str
    csrf: str
    #: the result of the last form as a sentence, or ""
    done: str
    #: the name of the service
    service: str = "Onym registry"
    #: the visitor's language, and the links that choose another
    language: str = "en"
    languages: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The value of a column or field. `parts` is the value split at its links."""

    id: str
    heading: str
    value: str
    parts: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a request. `mark` is done, current, left, skipped or stopped."""

    id: str
    label: str
    mark: str
    mark_label: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One option of a choice."""

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
    #: a good value, or ""
    example: str = ""
    problems: tuple[str, ...] = ()
    #: the field has the focus when the page opens
    focus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionField:
    """A field of an action and the member of `Event.data`; `kind` is text, long, choice, date or list."""

    id: str
    label: str
    kind: str = "text"
    required: bool = False
    help: str = ""
    value: str = ""
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """One action that the engine allows the visitor now."""

    kind: str
    label: str
    help: str
    #: good, bad or plain
    tone: str
    href: str
    version: int
    fields: tuple[ActionField, ...]
    #: why the form was not accepted, and the ID of the field that has to change ("" for none)
    error: RegistryError | None = None
    tied: str = ""
    #: the page that shows the form again: "review" or ""
    shown_on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of text; `kind` is same, gone or new."""

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


#: events on one page
EVENTS_SHOWN: Final = 50
#: links shown in one value
_MOST_LINKS: Final = 40
#: an RFC with its section, an Internet-Draft, or a URL without the punctuation after it
_LINK: Final = re.compile(
    r"\bRFC ?(?P<rfc>[1-9][0-9]{0,4})\b"
    r"(?:,? [Ss]ection (?P<section>[0-9A-Z]{1,3}(?:\.[0-9]{1,3})*))?"
    r"|\b(?P<draft>draft-[a-z0-9]{1,40}(?:-[a-z0-9]{1,40}){1,12})\b"
    r"|https?://[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]{0,499}[A-Za-z0-9_~/#@$&*+=%-]"
)
#: a clause as errors and rules name it: a document and a section
_CLAUSE: Final = re.compile(
    r"\b(?:(?P<own>docs/decisions/0027)|RFC (?P<rfc>[1-9][0-9]{0,4})"
    r"|(?P<draft>draft-[a-z0-9]{1,40}(?:-[a-z0-9]{1,40}){1,12}))"
    r"(?: (?P<section>[0-9]{1,3}(?:\.[0-9]{1,3})*)\b)?"
)
_RFC_URL: Final = "https://www.rfc-editor.org/rfc/rfc"
_DRAFT_URL: Final = "https://datatracker.ietf.org/doc/html/"
#: the path of a template in IANA's registry
_TEMPLATE: Final = re.compile(r"(?:perm|prov|historic)/[a-z][a-z0-9+.-]{0,62}")
_TEMPLATE_URL: Final = "https://www.iana.org/assignments/uri-schemes/"


def split_links(text: str) -> tuple[Link, ...]:
    """Split a text at its RFC numbers, Internet-Drafts and URLs; a part without `href` is plain text."""
    return _split_at(_LINK, text)


def split_clauses(text: str) -> tuple[Link, ...]:
    """Split a clause, such as "RFC 7595 7.4", at the documents and sections that it names."""
    return _split_at(_CLAUSE, text)


def _split_at(pattern: re.Pattern[str], text: str) -> tuple[Link, ...]:
    found, at = [], 0
    for match, _ in zip(pattern.finditer(text), range(_MOST_LINKS), strict=False):
        if match.start() > at:
            found.append(Link(href="", text=text[at : match.start()]))
        found.append(Link(href=_find_target(match), text=match[0]))
        at = match.end()
    if at < len(text):
        found.append(Link(href="", text=text[at:]))
    return tuple(found)


def _find_target(match: re.Match[str]) -> str:
    groups = match.groupdict()
    section = f"#section-{groups['section']}" if groups["section"] else ""
    if groups.get("own"):
        return urls.help_url("expert-review")  # the decision about namespaces, as a procedure
    if groups["rfc"]:
        return f"{_RFC_URL}{groups['rfc']}{section}"
    return f"{_DRAFT_URL}{groups['draft']}{section}" if groups["draft"] else match[0]


def get_column_value(entry: Entry, column: str) -> str:
    """Return an entry's value in a column."""
    own = {
        "name": entry.spelling or entry.name,
        "status": STATUS_LABELS[entry.status],
        "expires": format_date(entry.expires),
    }
    return own[column] if column in own else entry.fields.get(column, "")


def _build_cell(identifier: str, heading: str, text: str) -> Cell:
    parts = split_links(text)
    if identifier == "template" and _TEMPLATE.fullmatch(text):
        parts = (Link(href=_TEMPLATE_URL + text, text=text),)
    return Cell(id=identifier, heading=heading, value=text, parts=parts)


def build_entry_row(entry: Entry) -> tuple[Entry, tuple[Cell, ...]]:
    """Return an entry with the cells of its registry's columns."""
    row = REGISTRIES[entry.registry]
    return entry, tuple(
        _build_cell(column.id, translate_row(column.heading, row), get_column_value(entry, column.id))
        for column in row.columns
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A part of a registry's list. `first` is the letter of each name that is the first of its letter."""

    registry: Registry
    rows: tuple[tuple[Entry, tuple[Cell, ...]], ...]
    #: entries of the registry with the chosen status
    total: int
    query: str
    #: (letter, number of names), "0" for names that begin with no letter
    letters: tuple[tuple[str, int], ...]
    first: Mapping[str, str]
    #: URLs of the first and the next part, or ""
    start: str
    next: str


#: order -> label, and the key by which entries are sorted; equal entries stay in order of their names
SORTINGS: Final[Mapping[str, tuple[str, Callable[[Entry], Any]]]] = {
    "name": ("Name", lambda entry: ""),
    "status": (
        "Status",
        lambda entry: list(REGISTRIES[entry.registry].statuses).index(entry.status),
    ),
    "changed": (
        "Last changed",
        lambda entry: 0.0 if entry.updated is None else -entry.updated.timestamp(),
    ),
}


def build_listing(
    row: Registry,
    entries: Sequence[Entry],
    sort: str,
    *,
    total: int,
    query: str = "",
    start: str = "",
    next: str = "",  # noqa: A002 - the rel of its link
) -> Listing:
    """Return the list of these entries, which are in order of their names; letters only in that order."""
    ordered = sorted(entries, key=SORTINGS[sort][1])
    letters: dict[str, int] = {}
    first: dict[str, str] = {}
    for entry in ordered if sort == "name" else ():
        initial = entry.name[:1].lower()
        letter = initial if initial.isascii() and initial.isalpha() else "0"
        if letter not in letters:
            first[entry.name] = letter
        letters[letter] = letters.get(letter, 0) + 1
    return Listing(
        registry=row,
        rows=tuple(build_entry_row(entry) for entry in ordered),
        total=total,
        query=query,
        letters=tuple(letters.items()),
        first=first,
        start=start,
        next=next,
    )


def build_field_cells(registry: str, values: Mapping[str, str]) -> tuple[Cell, ...]:
    """Return the fields that have a value, in the registry's order, unknown fields last."""
    row = REGISTRIES[registry]
    labels = {key: translate_row(heading, row) for key, heading in row.map_headings().items()}
    order = [*labels, *sorted(set(values) - set(labels))]
    return tuple(_build_cell(key, labels.get(key, key), values[key]) for key in order if values.get(key))


def build_entry_cells(entry: Entry) -> tuple[Cell, ...]:
    """Return an entry's fields without name, status and expiry, which the page shows elsewhere."""
    return tuple(
        cell
        for cell in build_field_cells(entry.registry, entry.fields)
        if cell.id not in ("name", "status", "expires")
        # a registered template's references are also the column
        and not (cell.id == "references" and cell.value == entry.fields.get("reference"))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A change of an entry, or the end of a request: what happened, and the colour of it."""

    label: str
    tone: str


#: events of a review that change an entry
_DECISIONS: Final = frozenset(
    {EventKind.CHECK_COMPLETE, EventKind.APPROVE, EventKind.IESG_APPROVE, EventKind.REVIEW_TIMEOUT}
)


def describe_outcome(record: LogRecord, change: EntryChange | None) -> Outcome:
    """Return what a record brought about, in the language in force.

    `change` is the record's change of an entry, if any.
    """
    kind = record.event.kind
    if kind in ENDING_TONES or change is None:
        return Outcome(label=EVENT_LABELS[kind], tone=ENDING_TONES.get(kind, "plain"))
    before, after = change.before, change.after
    if after is None:
        return Outcome(label=translate_text("Removed"), tone="bad")
    label, tone = STATUS_LABELS[after.status], STATUS_TONES[after.status]
    pending = Status.PENDING_REVIEW
    if after.status is pending or (before is not None and set(after.pending) > set(before.pending)):
        return Outcome(label=translate_text("Under review"), tone="warn")
    if before is None or before.status is pending:
        is_plain = after.status is Status.REGISTERED
        return Outcome(
            label=label if is_plain else f"{translate_text('Registered')}: {format_inside(label)}", tone=tone
        )
    if before.status is not after.status:
        return Outcome(label=f"{translate_text('Now')} {format_inside(label)}", tone=tone)
    label = translate_text("Updated") if kind in _DECISIONS else EVENT_LABELS[kind]
    return Outcome(label=label, tone="plain")


def select_news(
    outcomes: Iterable[tuple[LogRecord, EntryChange | None]], hidden: Collection[str], most: int
) -> list[tuple[LogRecord, EntryChange | None]]:
    """Return the newest outcomes, one for each request, without hidden requests."""
    seen: set[str] = set(hidden)
    found = []
    for record, change in outcomes:
        about = record.event.request
        if about in seen:
            continue
        if about is not None:
            seen.add(about)
        found.append((record, change))
        if len(found) == most:
            break
    return found


def describe_missing_registrant(entry: Entry) -> str:
    """Return who can change an entry without a registrant; "" if it has one."""
    if entry.registrant is not None or entry.status is Status.PENDING_REVIEW:
        return ""
    if entry.registry == "ai-namespaces" or REGISTRIES[entry.registry].is_defined:
        return apply_words(translate_text("none; IANA can record one"))
    if entry.status is Status.PROVISIONAL:
        return translate_text(
            "none; the IESG can reassign the entry, and anyone can ask to make it permanent"
        )
    return translate_text(
        "none. The IESG decides who controls the entry; changes of an RFC's definition need its approval."
    )


def paginate_records(
    records: Sequence[LogRecord], before: int | None
) -> tuple[Sequence[LogRecord], int | None]:
    """Return the last page of records before a number, and the number before which the previous page is."""
    end = len(records)
    if before is not None:
        end = sum(record.number < before for record in records)
    part = records[max(0, end - EVENTS_SHOWN) : end]
    return part, part[0].number if end > EVENTS_SHOWN else None


def build_choices(pairs: Iterable[tuple[str, str]], chosen: str) -> tuple[Choice, ...]:
    """Return choices from (value, label) pairs, with the chosen one marked."""
    return tuple(Choice(value=value, label=label, chosen=value == chosen) for value, label in pairs)


STEP_MARKS: Final[Mapping[str, str]] = {
    "done": "done",
    "current": "now",
    "left": "to come",
    "skipped": "not needed",
    "stopped": "ended here",
}
#: state -> the step that it belongs to
_STEP_OF_STATE: Final[Mapping[RequestState, str]] = {
    RequestState.DRAFT: "draft",
    RequestState.LIST_REVIEW: "list",
    RequestState.SUBMITTED: "iana",
    RequestState.EXPERT_REVIEW: "expert",
    RequestState.MORE_REVIEW: "expert",
    RequestState.IETF_REVIEW: "iesg",
    RequestState.APPROVED: "end",
    RequestState.TIMED_OUT: "end",
    RequestState.APPEAL: "appeal",
}
#: event -> the step that it leaves behind
_STEP_OF_EVENT: Final[Mapping[EventKind, str]] = {
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
    EventKind.APPEAL: "appeal",
    EventKind.APPEAL_TO_IAB: "appeal",
}
STEP_LABELS: Final[Mapping[str, str]] = {
    "draft": "Draft",
    "list": "List review",
    "iana": "IANA check",
    "expert": "Expert Review",
    "iesg": "IESG",
    "end": "Registered",
    "appeal": "Appeal",
}
_ENDED: Final = (RequestState.REJECTED, RequestState.WITHDRAWN)


def _plan_steps(request: Request, profile: Profile) -> set[str]:
    """Return the usual steps of a request of this kind."""
    policy = profile.policies.get(request.status)
    found = {"draft", "iana", "end"}
    if request.status in profile.list_review:
        found.add("list")
    if _is_for_iesg(request) or (policy is not None and policy.decided_by is Role.IESG):
        found.add("iesg")
    elif policy is None or not policy.at_once:
        found.add("expert")
    return found


def _is_for_iesg(request: Request) -> bool:
    retiring = request.kind is RequestKind.STATUS_CHANGE and request.status is Status.HISTORICAL
    return request.kind is RequestKind.REASSIGN or retiring


def build_steps(request: Request, records: Iterable[LogRecord]) -> tuple[Step, ...]:
    """Return the steps in order; their notes are the start times."""
    profile = PROFILES[request.profile]
    began: dict[str, str] = {}
    for record in records:
        step = _STEP_OF_EVENT.get(record.event.kind)
        if step is not None:
            began.setdefault(step, format_time(record.at))
    planned = _plan_steps(request, profile)
    here = _STEP_OF_STATE.get(request.state) or _find_last_step(began)
    began.setdefault(here, format_time(request.since))
    order = [name for name in STEP_LABELS if name in planned or name in began]
    place = order.index(here)
    return tuple(
        _build_step(request, name, index - place, name in began, began) for index, name in enumerate(order)
    )


def _find_last_step(began: Mapping[str, str]) -> str:
    """Return the last step of an ended request."""
    return [name for name in STEP_LABELS if name in began][-1] if began else "draft"


def _build_step(request: Request, name: str, distance: int, seen: bool, began: Mapping[str, str]) -> Step:
    if distance == 0:
        mark = "stopped" if request.state in _ENDED else "done" if name == "end" else "current"
    elif distance < 0:
        mark = "done" if seen else "skipped"
    else:
        mark = "skipped" if request.state in _ENDED else "left"
    is_beyond = distance > 0 and mark == "skipped"
    said = translate_text("not reached") if is_beyond else translate_text(STEP_MARKS[mark])
    return Step(
        id=name,
        label=apply_words(translate_text(STEP_LABELS[name])),
        mark=mark,
        mark_label=said,
        note=began.get(name, "") if seen else "",
    )


#: words of a field that are compared; longer fields are shown completely, before and after
_MOST_WORDS: Final = 2_000
#: pairs of equal words that are looked at for one page: aligning takes time with their number, and more than
#: that where words come again and again; beyond it a field is shown whole too
_MOST_PAIRS: Final = 60_000
_WORD: Final = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")

#: versions in the choice; older ones can be compared by URL
_MOST_OPTIONS: Final = 200

Version: TypeAlias = "tuple[Entry, EntryChange]"


def index_versions(changes: Iterable[EntryChange]) -> dict[int, Version]:
    """Return the versions of a name's entries by number, with their changes, in the same order."""
    return {change.after.version: (change.after, change) for change in changes if change.after is not None}


def build_version_options(versions: Mapping[int, Version]) -> list[tuple[int, str]]:
    """Return (number, label) of the versions, newest first."""
    newest = sorted(versions.items(), reverse=True)[:_MOST_OPTIONS]
    return [
        (number, f"{number}: {format_date(change.at.date())}, {EVENT_LABELS[change.event]}")
        for number, (_, change) in newest
    ]


def _list_values(entry: Entry) -> dict[str, tuple[str, str]]:
    """Return the fields of a version: ID -> (heading, text)."""
    found = {"status": (translate_text("Status"), STATUS_LABELS[entry.status])}
    for cell in build_field_cells(entry.registry, entry.fields):
        found[cell.id] = (cell.heading, cell.value)
    found["registrant"] = (translate_text("Registrant"), entry.registrant or "")
    found["expires"] = (translate_text("Valid until"), format_date(entry.expires))
    found["notes_attached"] = (
        translate_text("Notes attached"),
        "\n".join(f"{note.kind}: {note.text}" for note in entry.notes),
    )
    return found


def compare_versions(before: Entry, after: Entry) -> tuple[Comparison, ...]:
    """Compare two versions field by field, in the registry's order, without fields that both leave out."""
    old, new = _list_values(before), _list_values(after)
    order = [column.id for column in REGISTRIES[after.registry].columns]
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
    """Split two texts at their differences, word by word."""
    return _align_words(before, after, _MOST_PAIRS)[:2]


def _align_words(before: str, after: str, most: int) -> tuple[tuple[Piece, ...], tuple[Piece, ...], int]:
    """Split two texts, if they have at most `most` pairs of equal words; return the number of pairs too."""
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
