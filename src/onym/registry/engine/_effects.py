"""What rules do, in a few verbs: move a request, write a row, tell somebody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

from onym.errors import RefusalError
from onym.registry.engine._case import TEXT_LIMIT, Case, Rule
from onym.registry.records import (
    Decision,
    DraftReference,
    Entry,
    Note,
    Notice,
    Request,
    RequestState,
    Role,
    Status,
)

__all__ = [
    "applied",
    "decided",
    "draft_of",
    "entry_of",
    "fields_of",
    "moved",
    "noted",
    "tell",
    "touched",
    "without_pending",
]

_HOLDERS: Mapping[RequestState, Role] = {
    RequestState.DRAFT: Role.REGISTRANT,
    RequestState.LIST_REVIEW: Role.REGISTRANT,
    RequestState.SUBMITTED: Role.IANA,
    RequestState.EXPERT_REVIEW: Role.EXPERT,
    RequestState.MORE_REVIEW: Role.REGISTRANT,
    RequestState.IETF_REVIEW: Role.IESG,
}

#: fields of a template that are the row's own members, not columns
_NOT_COLUMNS = frozenset({"name", "status", "expires"})
_FIELD_COUNT = 64


def moved(case: Case, state: RequestState, **changes: Any) -> Request:
    """The request in `state`: who holds it now, since when, one version on."""
    asked = case.asked
    changes.setdefault("due", None)
    changes.setdefault("since", case.at)
    return replace(asked, state=state, holder=_HOLDERS.get(state), version=asked.version + 1, **changes)


def touched(case: Case, entry: Entry, **changes: Any) -> Entry:
    """The row with these changes, dated, one version on."""
    return replace(entry, updated=case.at, version=entry.version + 1, **changes)


def entry_of(case: Case, status: Status, **changes: Any) -> Entry:
    """The row that the request asks for: a new one, or the one there is with the request's fields over it."""
    asked, old = case.asked, case.entry
    fields = dict(old.fields) if old is not None else {}
    fields |= {name: value for name, value in asked.fields.items() if name not in _NOT_COLUMNS}
    if "references" in fields and not (
        asked.fields.get("reference") or (old and old.fields.get("reference"))
    ):
        fields["reference"] = " ".join(fields["references"].split())
    fields.setdefault("description", asked.name)
    base = old or Entry(
        registry=asked.registry,
        name=asked.name,
        status=status,
        registrant=asked.registrant,
        registered=case.at,
    )
    if base.registered is None or base.status is Status.PENDING_REVIEW:
        base = replace(base, registered=case.at, registrant=asked.registrant)
    changes.setdefault("pending", None)
    expires = _day(asked.fields.get("expires")) or base.expires
    return touched(
        case, base, status=status, fields=fields, draft=asked.draft or base.draft, expires=expires, **changes
    )


def without_pending(case: Case) -> tuple[Entry | None, bool]:
    """The row after its request has gone: (row or None, is it removed?)."""
    row = case.entry
    if row is None or row.pending != case.asked.id:
        return None, False
    if row.status is Status.PENDING_REVIEW:
        return None, True
    return touched(case, row, pending=None), False


def decided(case: Case, rule: Rule, **changes: Any) -> Decision:
    """A decision by that rule."""
    return Decision(rule=rule.id, clause=rule.clause(case), **changes)


def applied(case: Case, rule: Rule, entry: Entry, *, outcome: str, reason: str | None = None) -> Decision:
    """The request has got what `entry` says, and is done."""
    request = moved(case, RequestState.APPROVED, outcome=outcome, reason=reason)
    subject = f"{case.name}: registered as {entry.status}" if outcome != "noted" else f"{case.name}: noted"
    return decided(
        case, rule, request=request, entry=entry, notices=(tell(request.registrant, subject, reason),)
    )


def tell(to: str | Role, subject: str, body: str | None = None) -> Notice:
    """A notice; its text is the reason where one was given."""
    return Notice(to=to, subject=subject, text=body or subject)


def noted(case: Case, kind: str, said: str) -> Note:
    """A note by the actor, now."""
    return Note(kind=kind, text=said, at=case.at, by=case.actor.id)


def fields_of(case: Case, old: Mapping[str, str]) -> dict[str, str]:
    """The fields that the event brings over `old`, each a text under a known id."""
    given = case.event.data.get("fields", {})
    if not isinstance(given, Mapping) or len(given) > _FIELD_COUNT:
        raise RefusalError("`fields` is not an object of texts", code="registry.bad-data", field="fields")
    for name, value in given.items():
        if not isinstance(value, str) or len(value) > TEXT_LIMIT:
            raise RefusalError(
                f"the field is not a text of at most {TEXT_LIMIT:,} characters",
                code="registry.bad-data",
                field=str(name)[:64],
            )
    return {**old, **given}


def draft_of(case: Case, old: DraftReference | None) -> DraftReference | None:
    """The draft that the event names, else `old`."""
    given = case.event.data.get("draft")
    if given is None:
        return old
    expires = _day(given.get("expires")) if isinstance(given, Mapping) else None
    if expires is None or not isinstance(given.get("name"), str):
        raise RefusalError(
            "`draft` needs a name and the day it expires", code="registry.bad-data", field="draft"
        )
    return DraftReference(name=given["name"], expires=expires)


def _day(value: object) -> date | None:
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        return date.fromisoformat(value.strip())
    except ValueError:
        raise RefusalError(
            "that is no date", code="registry.bad-data", field="expires", hint="write it as 2027-01-31"
        ) from None


def later(at: datetime, by: timedelta | None) -> datetime | None:
    """`at` plus a time, where there is one."""
    return None if by is None else at + by
