"""How entries, requests and their histories look to a person, and their JSON forms for a program."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from onym.cli._output import Session, colourful
from onym.cli._text import printable
from onym.registry.profiles import PROFILES
from onym.registry.records import Entry, Event, LogRecord, Request, RequestState, Role
from onym.registry.registries import registry

if TYPE_CHECKING:
    from onym.registry.checks import Report

__all__ = [
    "draw_entry",
    "draw_history",
    "draw_report",
    "draw_request",
    "entry_rows",
    "holder_line",
    "minute",
    "record_of",
    "request_rows",
]

#: whom a role means, in the RFCs' words
_WHO: Final = {
    Role.REGISTRANT: "the registrant",
    Role.IANA: "IANA",
    Role.EXPERT: "the Designated Expert",
    Role.IESG: "the IESG",
}
_ENDED: Final = {
    RequestState.APPROVED: "good",
    RequestState.TIMED_OUT: "good",
    RequestState.REJECTED: "bad",
    RequestState.WITHDRAWN: "bad",
}
#: labels of templates that are too long for a column
_HEADINGS: Final = {"applications": "Applications"}
#: characters of a text in a table
_SHORT: Final = 72


def record_of(value: Entry | Request | LogRecord | Event) -> dict[str, Any]:
    """The JSON form of the project, without the version of the form."""
    from onym.registry.codec import to_data

    return {name: member for name, member in to_data(value).items() if name != "v"}


def minute(at: datetime) -> str:
    """A time in UTC, to the minute."""
    return at.strftime("%Y-%m-%d %H:%MZ")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _short(text: str) -> str:
    flat = _flat(text)
    return flat if len(flat) <= _SHORT else flat[: _SHORT - 1] + "…"


def entry_rows(entries: Iterable[Entry]) -> list[tuple[str, str, str, str]]:
    """Rows for a table: name, status, reference, description."""
    return [
        (
            entry.name,
            str(entry.status),
            _short(entry.fields.get("reference", "")),
            _short(entry.fields.get("description", "")),
        )
        for entry in entries
    ]


def _headings(entry: Entry) -> dict[str, str]:
    """Field ids and what people call them: the registry's columns, then the templates' labels."""
    row = registry(entry.registry)
    found = {column.id: column.heading for column in row.columns} | _HEADINGS
    for identifier in row.profiles:
        for each in (*PROFILES[identifier].fields, *PROFILES[identifier].elsewhere):
            found.setdefault(each.id, each.label[:1].upper() + each.label[1:])
    return found


def draw_entry(session: Session, entry: Entry, names: Mapping[str, str] | None = None) -> None:
    """One entry: what it is, its columns and fields, its notes. `names` are logins by id."""
    row = registry(entry.registry)
    name = session.paint(printable(entry.spelling or entry.name), "name")
    status = session.paint(str(entry.status), "warning" if entry.pending else "good")
    session.say(f"{name}  {row.noun}, {status}")
    headings = _headings(entry)
    said = [
        (headings.get(name) or name.replace("_", " ").capitalize(), _flat(entry.fields[name]))
        for name in (*headings, *sorted(set(entry.fields) - set(headings)))
        if name not in ("name", "status") and entry.fields.get(name, "").strip()
    ]
    if entry.pending:
        said.append(
            ("Under review", f"{', '.join(entry.pending)}  (onym registry status {entry.pending[-1]})")
        )
    if entry.draft is not None:
        said.append(("Draft", f"{entry.draft.name}, expires {entry.draft.expires.isoformat()}"))
    if entry.expires is not None:
        said.append(("Expires", entry.expires.isoformat()))
    if entry.registered is not None:
        said.append(("Registered", minute(entry.registered)))
    if entry.updated is not None:
        said.append(("Updated", minute(entry.updated)))
    session.table(said, indent="  ", styles=("dim",))
    if entry.notes:
        session.say("\nnotes")
        known = names or {}
        rows = [
            (minute(each.at), each.kind, known.get(each.by, each.by), _flat(each.text))
            for each in entry.notes
        ]
        session.table(rows, indent="  ", styles=("dim",))


def draw_history(session: Session, records: Sequence[LogRecord], names: dict[str, str]) -> None:
    """The timeline of an entry or a request: when, what, who, by which rule. `names` are logins by id."""
    if not records:
        return
    session.say("\nhistory")
    rows = []
    for record in records:
        event = record.event
        reason = event.data.get("reason")
        roles = ", ".join(sorted(str(role) for role in record.actor.roles - {Role.READER}))
        who = names.get(record.actor.id, record.actor.id)
        said = f"[{record.clause}]" + (f" {_short(reason)}" if isinstance(reason, str) else "")
        rows.append(
            (minute(record.at), str(event.kind), f"{who} ({roles})" if roles else who, record.rule, said)
        )
    session.table(rows, indent="  ", styles=("dim", "name"))


def holder_line(request: Request, at: datetime) -> str:
    """Whose move it is and until when; "" at the end of the way."""
    if request.holder is None:
        return ""
    who = _WHO.get(request.holder, str(request.holder))
    if request.due is None:
        return who
    days = (request.due - at).days
    count = f"{abs(days)} day{'' if abs(days) == 1 else 's'}"
    left = f"{count} overdue" if days < 0 else "due today" if days == 0 else f"{count} left"
    return f"{who}, until {request.due.date().isoformat()} ({left})"


def draw_request(session: Session, request: Request, at: datetime) -> None:
    """The status of one request: what is asked, where it stands, who holds it, until when."""
    state = session.paint(str(request.state), _ENDED.get(request.state, "warning"))
    session.say(f"{session.paint(request.id, 'name')}  {state}")
    said = [
        ("asks for", f"{request.kind}: {request.name}, {request.status}"),
        ("held by", holder_line(request, at)),
        ("since", minute(request.since)),
        ("procedure", PROFILES[request.profile].title),
        ("on behalf of", request.on_behalf_of or ""),
        ("list review", "" if request.announced is None else f"since {minute(request.announced)}"),
        ("archive", request.archive or ""),
        ("outcome", request.outcome or ""),
        ("reason", _flat(request.reason or "")),
    ]
    session.table([row for row in said if row[1]], indent="  ", styles=("dim",))


def request_rows(requests: Iterable[Request], at: datetime) -> list[tuple[str, ...]]:
    """Rows for a table: id, name, what is asked, state, who holds it and until when."""
    return [
        (
            request.id,
            request.name,
            f"{request.kind} {request.status}",
            str(request.state),
            holder_line(request, at),
        )
        for request in requests
    ]


def draw_report(session: Session, report: Report) -> None:
    """What the checker found, or plainly that there are no errors."""
    from onym.registry.checks import as_text  # late: grammars and documents are not needed elsewhere

    session.say(as_text(report, colour=colourful(sys.stdout)).rstrip())
