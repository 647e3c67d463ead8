"""ai namespaces in operation: safe mode, suspension, revocation, renewal and expiry (docs/decisions/0027)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from onym.errors import RefusalError
from onym.registry.engine._case import Case, Rule, required_text, row_is
from onym.registry.engine._effects import day_of, decided, noted, touched, with_status
from onym.registry.records import Decision, EventKind, Role, Status

__all__ = ["RULES"]

_IANA: Final = (Role.IANA,)
_CLAUSES: Final = {"expert-review": "docs/decisions/0027"}
_RUNNING: Final = (Status.ACTIVE, Status.SAFE_MODE, Status.SUSPENDED)
#: what only a reinstatement ends, and the notes that tell of a namespace's state
_HELD: Final = (Status.SAFE_MODE, Status.SUSPENDED)
_EXPIRED: Final = "expired"
_OF_STATE: Final = frozenset({*map(str, _HELD), "reinstated", "override", _EXPIRED})


def _may_update(case: Case) -> bool:
    return case.may_update


def _to(status: Status, *, note: str) -> Any:
    def effect(case: Case, rule: Rule) -> Decision:
        required_text(case, "reason", clause=rule.clause(case))
        return with_status(case, rule, status, note=note)

    return effect


def _over(case: Case) -> bool:
    """Past the last day it holds?"""
    ends = case.row.expires if row_is(*_RUNNING)(case) else None
    return ends is not None and ends < case.at.date()


def _expire(case: Case, rule: Rule) -> Decision:
    before = case.row.status
    held = before in _HELD
    # the note tells a renewal what the namespace was, whoever made it so
    said = f"expired; {before} until reinstated" if held else _EXPIRED
    note = noted(case, str(before) if held else _EXPIRED, said)
    row = replace(case.row, notes=(*case.row.notes, note))
    return with_status(replace(case, entry=row), rule, Status.EXPIRED)


def _before_expiry(case: Case) -> Status:
    last = next((note.kind for note in reversed(case.row.notes) if note.kind in _OF_STATE), "")
    return next((status for status in _HELD if status == last), Status.ACTIVE)


def _renew(case: Case, rule: Rule) -> Decision:
    expires, row = day_of(required_text(case, "expires", clause=rule.clause(case))), case.row
    if expires is None or expires <= case.at.date():
        raise RefusalError("that day is not to come", code="registry.bad-data", field="expires")
    expired = row.status is Status.EXPIRED
    if not expired and (row.expires is None or expires <= row.expires):
        until = "without an end" if row.expires is None else f"until {row.expires.isoformat()}"
        raise RefusalError(
            f"it holds {until} already", code="registry.bad-data", field="expires",
            clause=rule.clause(case),
            hint="a renewal names a later day; for another, its registrant opens an update",
        )  # fmt: skip
    status = _before_expiry(case) if expired else row.status
    return decided(case, rule, entry=touched(case, row, expires=expires, status=status))


RULES: Final = (
    Rule(
        id="N1", event=EventKind.ENTER_SAFE_MODE, clauses=_CLAUSES, roles=_IANA, who=_may_update,
        when=row_is(Status.ACTIVE), effect=_to(Status.SAFE_MODE, note="safe-mode"),
        said="safe mode until reinstated",
    ),
    Rule(
        id="N2", event=EventKind.SUSPEND, clauses=_CLAUSES, roles=_IANA,
        when=row_is(Status.ACTIVE, Status.SAFE_MODE), effect=_to(Status.SUSPENDED, note="suspended"),
        said="suspended until reinstated",
    ),
    Rule(
        id="N3", event=EventKind.REINSTATE, clauses=_CLAUSES, roles=_IANA, when=row_is(*_HELD),
        effect=_to(Status.ACTIVE, note="reinstated"), said="active again",
    ),
    Rule(
        id="N4", event=EventKind.REVOKE, clauses=_CLAUSES, roles=_IANA,
        when=row_is(*_RUNNING, Status.EXPIRED), effect=_to(Status.REVOKED, note="revoked"),
        said="revoked; the name stays taken",
    ),
    Rule(
        id="N5", event=EventKind.RENEW, clauses=_CLAUSES, roles=_IANA,
        when=row_is(*_RUNNING, Status.EXPIRED), effect=_renew, said="holds longer",
    ),
    Rule(
        id="N6", event=EventKind.NAMESPACE_EXPIRED, clauses=_CLAUSES, roles=_IANA, when=_over,
        effect=_expire, said="its last day is past",
    ),
)  # fmt: skip
