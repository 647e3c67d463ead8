"""Statistics of a registry: entries by status, requests by state, the time that each stage takes, and months.

All of it follows from indexed columns of the log and its projections; no record is decoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Final

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from onym.registry.records import EventKind, Head, RequestState, Status
from onym.registry.registries import REGISTRIES
from onym.registry.store._writes import select_head
from onym.registry.store.schema import entries, entry_changes, log, requests

#: months that are shown, the last ones with an event
MAX_MONTHS: Final = 120

#: the stages of a request, in order
STAGES: Final = ("draft", "list", "iana", "expert", "iesg")
#: event -> the stage that it ends; a submission ends the list review if there was one
_ENDED_STAGES: Final[Mapping[EventKind, str]] = {
    EventKind.ANNOUNCE: "draft",
    EventKind.SUBMIT: "draft",
    EventKind.CHECK_COMPLETE: "iana",
    EventKind.REJECT_INCOMPLETE: "iana",
    EventKind.APPROVE: "expert",
    EventKind.APPROVE_AS_PROVISIONAL: "expert",
    EventKind.ASK_IETF_REVIEW: "expert",
    EventKind.REJECT: "expert",
    EventKind.REVIEW_TIMEOUT: "expert",
    EventKind.IESG_APPROVE: "iesg",
    EventKind.IESG_DECLINE: "iesg",
}
#: events with which a stage begins, without ending one that is counted
_BEGINNINGS: Final = frozenset({EventKind.OPEN, EventKind.RESUBMIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """How long requests were in a stage: how often one ended, and the median in seconds."""

    stage: str
    count: int
    median_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthCounts:
    """What happened in a month (UTC, "2026-11"): new entries, other changes of entries, and requests.

    New entries include names that only wait for review. `ended` counts the requests that were decided or
    withdrawn in the month, also those of earlier months.
    """

    month: str
    added: int = 0
    changed: int = 0
    opened: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryStatistics:
    """The statistics of one registry; statuses and states without an entry or request are left out."""

    registry: str
    entries: Mapping[Status, int]
    requests: Mapping[RequestState, int]
    stages: tuple[StageTime, ...]
    months: tuple[MonthCounts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The statistics of all registries, and the last log record that they include."""

    number: int
    at: datetime | None
    registries: tuple[RegistryStatistics, ...]


@dataclass(slots=True)
class _Counts:
    """What is counted of one registry."""

    entries: dict[Status, int] = field(default_factory=dict)
    requests: dict[RequestState, int] = field(default_factory=dict)
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    months: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))


async def compute_statistics(connection: AsyncConnection) -> Statistics:
    """Return the statistics. The connection must be in a transaction, so that the queries see one state."""
    head: Head = await select_head(connection)
    counts: dict[str, _Counts] = defaultdict(_Counts)
    by_status = select(entries.c.registry, entries.c.status, func.count().label("total"))
    for row in await connection.execute(by_status.group_by(entries.c.registry, entries.c.status)):
        counts[row.registry].entries[Status(row.status)] = row.total
    by_state = select(requests.c.registry, requests.c.state, func.count().label("total"))
    for row in await connection.execute(by_state.group_by(requests.c.registry, requests.c.state)):
        counts[row.registry].requests[RequestState(row.state)] = row.total
    await _count_changes(connection, counts)
    await _count_requests(connection, counts)
    return Statistics(
        number=head.number,
        at=head.at,
        registries=tuple(_build_statistics(registry, counts[registry]) for registry in REGISTRIES),
    )


async def _count_changes(connection: AsyncConnection, counts: Mapping[str, _Counts]) -> None:
    """Count the changes that a public column shows, by month."""
    # times are text of a fixed width
    month = func.substr(log.c.at, 1, 7)
    kind = case((entry_changes.c.before.is_(None), "added"), else_="changed")
    shown = (
        select(entry_changes.c.registry, month.label("month"), kind.label("kind"))
        .join(log, log.c.number == entry_changes.c.number)
        .where(entry_changes.c.shown)
        .subquery()
    )
    for row in await connection.execute(select(shown, func.count().label("total")).group_by(*shown.c)):
        counts[row.registry].months[row.month][row.kind] += row.total


async def _count_requests(connection: AsyncConnection, counts: Mapping[str, _Counts]) -> None:
    """Count opened and ended requests by month, and measure the stages of each."""
    final = [str(state) for state in RequestState if state.is_final]
    ended = set(
        (await connection.execute(select(requests.c.id).where(requests.c.state.in_(final)))).scalars()
    )
    steps = select(log.c.request, log.c.registry, log.c.at, log.c.kind).where(log.c.request.is_not(None))
    request, registry, rows = None, "", list[tuple[datetime, EventKind]]()
    async with connection.stream(steps.order_by(log.c.request, log.c.number)) as found:
        async for row in found:
            if row.request != request:
                _count_steps(counts, registry, rows, ended=request in ended)
                request, registry, rows = row.request, row.registry, []
            rows.append((row.at, EventKind(row.kind)))
    _count_steps(counts, registry, rows, ended=request in ended)


def _count_steps(
    counts_by_registry: Mapping[str, _Counts],
    registry: str,
    steps: Sequence[tuple[datetime, EventKind]],
    *,
    ended: bool,
) -> None:
    """Count the steps of one request, oldest first."""
    if not steps:
        return
    counts = counts_by_registry[registry]
    counts.months[_format_month(steps[0][0])]["opened"] += 1
    if ended:
        counts.months[_format_month(steps[-1][0])]["ended"] += 1
    since: datetime | None = None
    last: EventKind | None = None
    for at, kind in steps:
        stage = _ENDED_STAGES.get(kind)
        if stage is not None and since is not None:
            stage = "list" if kind is EventKind.SUBMIT and last is EventKind.ANNOUNCE else stage
            counts.stages[stage].append((at - since).total_seconds())
        if stage is not None or kind in _BEGINNINGS:
            since, last = at, kind


def _format_month(at: datetime) -> str:
    return f"{at.year:04}-{at.month:02}"


def _build_statistics(registry: str, counts: _Counts) -> RegistryStatistics:
    row = REGISTRIES[registry]
    months = sorted(counts.months)[-MAX_MONTHS:]
    return RegistryStatistics(
        registry=registry,
        entries={status: counts.entries[status] for status in row.statuses if status in counts.entries},
        requests={state: counts.requests[state] for state in RequestState if state in counts.requests},
        stages=tuple(
            StageTime(stage=stage, count=len(times), median_seconds=round(median(times)))
            for stage in STAGES
            if (times := counts.stages.get(stage))
        ),
        months=tuple(MonthCounts(month=month, **counts.months[month]) for month in months),
    )
