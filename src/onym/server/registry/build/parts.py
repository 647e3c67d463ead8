"""Rows, cells, history lines and reports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from onym.registry.checks.report import Level, Report
from onym.registry.profiles import PROFILES
from onym.registry.records import EMPTY, Entry, LogRecord, Note, Request, Status
from onym.registry.registries import REGISTRIES, Registry
from onym.server.registry import urls
from onym.server.registry.contexts.parts import (
    Cell,
    Choice,
    EntryRow,
    FindingView,
    HistoryLine,
    Link,
    NoteView,
    ReportView,
    RequestRow,
)
from onym.server.registry.words import EVENTS, KINDS, ROLES, STATES, day, moment, status_view, titles

__all__ = [
    "EVENTS_SHOWN",
    "cells_of",
    "choices",
    "entry_row",
    "fields_of",
    "history_lines",
    "last_of",
    "nobody_of",
    "note_view",
    "parts_of",
    "report_view",
    "request_row",
    "value_of",
]

#: events on one page
EVENTS_SHOWN: Final = 50
#: links shown in one value
_MOST_LINKS: Final = 40
#: an RFC, or a web address without what a sentence or bracket puts behind it
_LINK: Final = re.compile(
    r"\bRFC ?(?P<rfc>[1-9][0-9]{0,4})\b"
    r"|https?://[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]{0,499}[A-Za-z0-9_~/#@$&*+=%-]"
)


def parts_of(text: str) -> tuple[Link, ...]:
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


def value_of(entry: Entry, column: str) -> str:
    """What an entry has in a column."""
    own = {
        "name": entry.spelling or entry.name,
        "status": status_view(entry.status).label,
        "expires": day(entry.expires),
    }
    return own[column] if column in own else entry.fields.get(column, "")


def _cell(identifier: str, heading: str, text: str) -> Cell:
    return Cell(id=identifier, heading=heading, value=text, parts=parts_of(text))


def entry_row(entry: Entry) -> EntryRow:
    """One row of a table, in the registry's columns."""
    row = REGISTRIES[entry.registry]
    return EntryRow(
        registry=entry.registry,
        registry_title=row.title,
        name=entry.name,
        href=urls.entry(entry.registry, entry.name),
        status=status_view(entry.status),
        cells=tuple(_cell(each.id, each.heading, value_of(entry, each.id)) for each in row.columns),
    )


def _labels(row: Registry) -> dict[str, str]:
    """Headings of every field that this registry may hold: its columns, then its templates' fields."""
    found = {each.id: each.heading for each in row.columns}
    for name in row.profiles:
        profile = PROFILES[name]
        for field in (*profile.fields, *profile.elsewhere):
            found.setdefault(field.id, field.label[0].upper() + field.label[1:])
    return found


def fields_of(registry: str, values: Mapping[str, str]) -> tuple[Cell, ...]:
    """The fields that say something, in the registry's order, unknown ones last."""
    labels = _labels(REGISTRIES[registry])
    order = [*labels, *sorted(set(values) - set(labels))]
    return tuple(_cell(key, labels.get(key, key), values[key]) for key in order if values.get(key))


def cells_of(entry: Entry) -> tuple[Cell, ...]:
    """An entry's fields for its page; the name and the status stand above them."""
    return tuple(
        each
        for each in fields_of(entry.registry, entry.fields)
        if each.id not in ("name", "status", "expires")
    )


def nobody_of(entry: Entry) -> str:
    """Of an entry that has no registrant: who can change it all the same; "" of any other."""
    if entry.registrant is not None or entry.status is Status.PENDING_REVIEW:
        return ""
    if entry.registry == "ai-namespaces":
        return "nobody; IANA can record one"
    if entry.status is Status.PROVISIONAL:
        return "nobody; the IESG can reassign it"
    return "nobody. Who controls it is the IESG's to say; changes of what an RFC defines need its approval."


def note_view(note: Note, names: Mapping[str, str]) -> NoteView:
    """A note."""
    return NoteView(kind=note.kind, text=note.text, at=moment(note.at), by=names.get(note.by, note.by))


def request_row(request: Request, at: datetime) -> RequestRow:
    """One request in a list; `at` is now."""
    return RequestRow(
        id=request.id,
        href=urls.request(request.id),
        registry=request.registry,
        registry_title=REGISTRIES[request.registry].title,
        name=request.name,
        kind=KINDS[request.kind],
        status=status_view(request.status),
        state=str(request.state),
        state_label=STATES[request.state],
        holder="" if request.holder is None else ROLES[request.holder],
        since=moment(request.since),
        due=moment(request.due),
        overdue=request.due is not None and request.due < at,
    )


def _reason(record: LogRecord) -> str:
    found = record.event.data.get("reason") or record.event.data.get("text") or ""
    return found if isinstance(found, str) else ""


def last_of(records: Sequence[LogRecord], before: int | None) -> tuple[Sequence[LogRecord], int | None]:
    """The last records before a number, as many as one page shows, and before which the part before is."""
    end = len(records)
    if before is not None:
        end = sum(each.number < before for each in records)
    part = records[max(0, end - EVENTS_SHOWN) : end]
    return part, part[0].number if end > EVENTS_SHOWN else None


def history_lines(
    records: Iterable[LogRecord], names: Mapping[str, str] = EMPTY, *, links: bool = True
) -> tuple[HistoryLine, ...]:
    """Events as lines, in the order given; `names` are accounts' names by id."""
    return tuple(
        HistoryLine(
            number=each.number,
            at=moment(each.at),
            actor=names.get(each.actor.id, each.actor.id),
            roles=titles(each.actor.roles),
            kind=str(each.event.kind),
            label=EVENTS[each.event.kind],
            rule=each.rule,
            clause=each.clause,
            reason=_reason(each),
            request=Link(href=urls.request(each.event.request), text=each.event.request)
            if links and each.event.request
            else None,
        )
        for each in records
    )


def report_view(report: Report | None, *, fault: str = "", profile: str = "") -> ReportView:
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


def choices(pairs: Iterable[tuple[str, str]], chosen: str) -> tuple[Choice, ...]:
    """Choices of (value, label), the chosen one marked."""
    return tuple(Choice(value=value, label=label, chosen=value == chosen) for value, label in pairs)
