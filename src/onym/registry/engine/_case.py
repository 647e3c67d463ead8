"""One event before the table: what it is about, who asks, when; and the shape of a rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from onym.errors import RefusalError
from onym.registry.profiles import Profile
from onym.registry.records import (
    Actor,
    Decision,
    Entry,
    Event,
    EventKind,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from onym.registry.registries import Registry

__all__ = [
    "STATUS_CHANGES",
    "TEXT_LIMIT",
    "Case",
    "Rule",
    "always",
    "clauses",
    "needs_iesg",
    "overtaken",
    "required_text",
    "row_is",
    "text",
]

#: characters in one text that an event brings
TEXT_LIMIT: Final = 1_000_000

#: the changes of status that some clause defines (RFC 4395 5.3, RFC 7595 7.3): from, to
STATUS_CHANGES: Final = frozenset(
    {
        (Status.PROVISIONAL, Status.PERMANENT),
        (Status.PROVISIONAL, Status.HISTORICAL),
        (Status.PERMANENT, Status.HISTORICAL),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An event, its actor and its time, beside the request and the entry that it is about."""

    event: Event
    actor: Actor
    at: datetime
    registry: Registry
    profile: Profile
    name: str
    request: Request | None
    entry: Entry | None

    @property
    def asked(self) -> Request:
        """The request; rules that need one are reached only with one."""
        assert self.request is not None  # noqa: S101
        return self.request

    @property
    def row(self) -> Entry:
        """The entry; rules that need one are reached only with one."""
        assert self.entry is not None  # noqa: S101
        return self.entry

    @property
    def owns_request(self) -> bool:
        """Did the actor open the request?"""
        return self.request is not None and self.request.registrant == self.actor.id

    @property
    def owns_entry(self) -> bool:
        """Is the actor the entry's registrant?"""
        return self.entry is not None and self.entry.registrant == self.actor.id

    @property
    def may_update(self) -> bool:
        """The original registrant, or anyone designated (RFC 4395 5.3, RFC 7595 7.3)?"""
        return self.entry is not None and (self.owns_entry or self.actor.id in self.entry.designees)


_Test: TypeAlias = Callable[[Case], bool]


def always(case: Case) -> bool:
    """No further condition."""
    del case
    return True


def row_is(*statuses: Status) -> _Test:
    """A test: is there a row, with one of these statuses?"""
    return lambda case: case.entry is not None and case.row.status in statuses


def overtaken(case: Case) -> str | None:
    """How the row has changed since the request was opened, so that it can't be granted any more; or None."""
    asked, row = case.asked, case.entry
    if row is None:
        return None if asked.kind is RequestKind.NEW else "the entry that it would change is gone"
    if not _OVERTAKEN[asked.kind](asked, row):
        return None
    return f"the entry has changed since: it is {row.status}, registered to {row.registrant or 'nobody'}"


def _new_overtaken(asked: Request, row: Entry) -> bool:
    """A row that was made provisional meanwhile, for this very request, and is no longer; or another's."""
    own = asked.id in row.pending
    if asked.state is RequestState.IETF_REVIEW:
        return not own or row.status is not Status.PROVISIONAL
    return asked.timed_out and own and row.status is not Status.PROVISIONAL


def _update_overtaken(asked: Request, row: Entry) -> bool:
    of_schemes = {status for pair in STATUS_CHANGES for status in pair}
    moved = asked.status is not row.status and {asked.status, row.status} <= of_schemes
    closed = row.status in (Status.PENDING_REVIEW, Status.REVOKED)
    needed = asked.as_registrant or row.status is Status.PROVISIONAL
    return moved or closed or (needed and not _authorised(asked, row))


def _change_overtaken(asked: Request, row: Entry) -> bool:
    retires = row.status is Status.PROVISIONAL and asked.status is Status.HISTORICAL
    needed = asked.as_registrant or retires
    return (row.status, asked.status) not in STATUS_CHANGES or (needed and not _authorised(asked, row))


def _authorised(asked: Request, row: Entry) -> bool:
    return asked.registrant == row.registrant or asked.registrant in row.designees


_OVERTAKEN: Final[dict[RequestKind, Callable[[Request, Entry], bool]]] = {
    RequestKind.NEW: _new_overtaken,
    RequestKind.UPDATE: _update_overtaken,
    RequestKind.STATUS_CHANGE: _change_overtaken,
    RequestKind.SEPARATE_USE: lambda asked, row: False,
    RequestKind.REASSIGN: lambda asked, row: row.status is not Status.PROVISIONAL,
}


#: a reference to an RFC, or to what the IESG has approved as one
_RFC: Final = re.compile(r"\bRFC[ -]?(?:\d|ietf-)", re.IGNORECASE)
_OF_ROW: Final = frozenset({"name", "status"})


def needs_iesg(case: Case) -> bool:
    """Would the request change what an IESG-approved document defines (RFC 4395 5.3, RFC 7595 7.3)?

    Of a row that is nobody's, it is not known which documents the IESG has approved: any RFC counts as
    one, and who controls the row is the IESG's to say (RFC 8126 2.3, 9.5).
    """
    asked, row = case.asked, case.entry
    if row is None or asked.kind not in (RequestKind.UPDATE, RequestKind.STATUS_CHANGE):
        return False
    changed = {name for name, value in asked.fields.items() if row.fields.get(name) != value} - _OF_ROW
    if asked.kind is RequestKind.STATUS_CHANGE and not changed and asked.draft is None:
        return False
    if row.iesg_approved:
        return True
    defined = any(_RFC.search(row.fields.get(each, "")) for each in ("reference", "references"))
    return row.registrant is None and (defined or "change_controller" in changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the table.

    It holds for `event` where the request is in one of `states` (None: the event is about an entry, or
    opens a request) and `when` says so. `clauses` names the source for each profile that has the rule.
    `roles` may ask, and so may whom `who` lets. A rule without `effect` is a refusal: `said` and `hint`.
    """

    id: str
    event: EventKind
    states: tuple[RequestState | None, ...] = (None,)
    clauses: Mapping[str, str]
    roles: tuple[Role, ...] = ()
    who: _Test | None = None
    when: _Test = always
    effect: Callable[[Case, Rule], Decision] | None = None
    said: str
    hint: str | None = None

    def selects(self, case: Case) -> bool:
        """Is this the row for that case, whoever asks?"""
        state = None if case.request is None else case.request.state
        return case.profile.id in self.clauses and state in self.states and self.when(case)

    def lets(self, case: Case) -> bool:
        """May the actor ask for it?"""
        return case.actor.has(*self.roles) or (self.who is not None and self.who(case))

    def clause(self, case: Case) -> str:
        """The source, under the profile in force."""
        return self.clauses[case.profile.id]


def clauses(rfc4395: str | None, rfc7595: str | None, other: str | None = None) -> Mapping[str, str]:
    """Clauses by profile: sections of the two RFCs, and one text for the other registries' profiles."""
    found = {}
    if rfc4395 is not None:
        found["rfc4395"] = rfc4395 if rfc4395.startswith("docs/") else f"RFC 4395 {rfc4395}"
    if rfc7595 is not None:
        found["rfc7595"] = rfc7595 if rfc7595.startswith("docs/") else f"RFC 7595 {rfc7595}"
    if other is not None:
        found |= dict.fromkeys(("specification-required", "expert-review"), other)
    return found


def text(case: Case, member: str) -> str | None:
    """A text that the event brings, None where it brings none. Anything but text is refused."""
    value: Any = case.event.data.get(member)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > TEXT_LIMIT:
        raise RefusalError(
            f"`{member}` is not a text of at most {TEXT_LIMIT:,} characters",
            code="registry.bad-data",
            field=member,
        )
    return value


def required_text(case: Case, member: str, *, clause: str | None = None) -> str:
    """The same, where the event means nothing without it."""
    value = text(case, member)
    # a mark that nobody sees says nothing
    if value is None or not any(each.isprintable() and not each.isspace() for each in value):
        raise RefusalError(
            f"`{member}` is needed",
            code="registry.missing-data",
            field=member,
            clause=clause,
            hint=f"say it with the event: {member}",
        )
    return value.strip()
