"""What IANA and the IESG record outside the procedure: a row of a published registry, and overrides (X)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from onym.errors import RefusalError, StoreError
from onym.registry import codec
from onym.registry.engine._case import Case, Rule, clauses, required_text
from onym.registry.engine._effects import blank, decided, is_word, noted, tell, touched
from onym.registry.records import Decision, Entry, EventKind, Note, Role, Status

__all__ = ["RULES"]

_DECISION: Final = "docs/decisions/0026"
_OURS: Final = clauses(_DECISION, _DECISION, _DECISION)
#: how yes and no are said
_YES: Final = (True, "yes", "true")
_NO: Final = (None, False, "", "no", "false")
#: a word in a file's column of statuses that is no status: as much the file's as the column
_PUBLISHED_STATUS: Final = "published_status"
#: who controls the row, and what else an override sets beside the status
_CONTROL: Final = ("registrant", "change_controller")
_SETTINGS: Final = (*_CONTROL, "iesg_approved")


def _entry_given(case: Case, member: str) -> Entry:
    given = case.event.data.get(member)
    if not isinstance(given, Mapping):
        raise RefusalError(f"`{member}` is not an entry", code="registry.bad-data", field=member)
    try:
        entry = codec.from_data(Entry, given)
    except StoreError as error:
        raise RefusalError(error.message, code="registry.bad-data", field=member, hint=error.hint) from error
    if (entry.registry, case.registry.key(entry.name)) != (case.registry.id, case.name):
        raise RefusalError("the entry has another name", code="registry.bad-data", field=member)
    if entry.status not in case.registry.statuses:
        raise RefusalError(
            "no entry of this registry has that status", code="registry.bad-status", field="status",
            hint=f"one of {', '.join(case.registry.statuses)}",
        )  # fmt: skip
    if entry.name != case.name:
        return replace(entry, name=case.name, spelling=entry.spelling or entry.name)
    return entry


def _import(case: Case, rule: Rule) -> Decision:
    given, old = _entry_given(case, "entry"), case.entry
    if old is None:
        return decided(case, rule, entry=replace(given, version=1, pending=()))
    if old.status is Status.PENDING_REVIEW and given.status is not Status.PENDING_REVIEW:
        # what the row showed was a request's, and gives nobody a say in what the file registers
        old = blank(old)
    # the registry's own memory is not the file's to change, nor what registrants said outside its columns
    shown = {each.id for each in case.registry.columns} | {_PUBLISHED_STATUS}
    own = {name: value for name, value in old.fields.items() if name not in shown}
    kept = replace(
        given, fields={**own, **given.fields},
        registrant=given.registrant or old.registrant, designees=given.designees or old.designees,
        notes=given.notes or old.notes, pending=old.pending, registered=given.registered or old.registered,
        iesg_approved=given.iesg_approved or old.iesg_approved, draft=given.draft or old.draft,
    )  # fmt: skip
    return decided(case, rule, entry=touched(case, replace(kept, version=old.version)))


# ---------- overrides


def _given(case: Case, member: str) -> bool:
    return case.event.data.get(member) not in (None, "")


def _is_yes(case: Case, member: str) -> bool:
    value = case.event.data.get(member)
    if value in _YES:
        return True
    if value in _NO:
        return False
    raise RefusalError(
        f"`{member}` is yes or no", code="registry.bad-data", field=member, hint=f"{member}=yes"
    )


def _override(case: Case, rule: Rule) -> Decision:
    note = noted(case, "override", required_text(case, "reason", clause=rule.clause(case)))
    said = [member for member in ("status", "undoes") if _given(case, member)]
    said += ["remove"] if _is_yes(case, "remove") else []
    said += ["set"] if any(_given(case, member) for member in _SETTINGS) else []
    if len(said) != 1:
        raise RefusalError(
            "an override does one thing", code="registry.bad-data", field="status",
            hint=f"say one of status, remove and undoes, or some of {', '.join(_SETTINGS)}",
        )  # fmt: skip
    return _DEEDS[said[0]](case, rule, note)


def _told(case: Case, subject: str, note: Note, *others: str | None) -> tuple[Any, ...]:
    """The subject to the row's registrant and to those others."""
    known = case.entry.registrant if case.entry is not None else None
    people = dict.fromkeys(each for each in (*others, known) if each)
    return tuple(tell(each, f"{case.name}: {subject}", note.text) for each in people)


def _set_status(case: Case, rule: Rule, note: Note) -> Decision:
    status = next((each for each in case.registry.statuses if each == case.event.data["status"]), None)
    if status is None or status is Status.PENDING_REVIEW:
        raise RefusalError(
            "no entry can be set to that status", code="registry.bad-status", field="status",
            hint=f"one of {', '.join(case.registry.statuses)}",
        )  # fmt: skip
    row = touched(case, case.row, status=status, notes=(*case.row.notes, note))
    return decided(case, rule, entry=row, notices=_told(case, f"{status} by override", note))


def _remove(case: Case, rule: Rule, note: Note) -> Decision:
    return decided(case, rule, removed=True, notices=_told(case, "removed by override", note))


def _set(case: Case, rule: Rule, note: Note) -> Decision:
    """Who controls the row, and whether an IESG-approved document defines it."""
    row = case.row
    if row.status is Status.PENDING_REVIEW:
        raise RefusalError(
            "the entry only shows a request", code="registry.not-allowed", rule=rule.id,
            clause=rule.clause(case), hint="decide the request first",
        )  # fmt: skip
    changes: dict[str, Any] = {}
    told = _told(case, "changed by override", note)
    if _given(case, "registrant"):
        heir = case.event.data["registrant"]
        if not is_word(heir):
            raise RefusalError("that is no account id", code="registry.bad-data", field="registrant")
        changes |= {"registrant": heir, "designees": frozenset()}
        if heir != row.registrant:
            told = (tell(heir, f"{case.name}: the entry is yours now", note.text), *told)
    if _given(case, "change_controller"):
        controller = required_text(case, "change_controller")
        changes["fields"] = {**row.fields, "change_controller": controller}
    if _given(case, "iesg_approved"):
        changes["iesg_approved"] = _is_yes(case, "iesg_approved")
    after = touched(case, row, notes=(*row.notes, note), **changes)
    return decided(case, rule, entry=after, notices=told)


def _undo(case: Case, rule: Rule, note: Note) -> Decision:
    """The entry as it was before record `undoes`: the store puts it beside that number, from its log."""
    number = case.event.data["undoes"]
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise RefusalError("`undoes` is not the number of a record", code="registry.bad-data", field="undoes")
    if not _given(case, "restore"):
        raise RefusalError(
            "the entry as it was is missing", code="registry.missing-data", field="restore",
            hint="the store reads it from its log",
        )  # fmt: skip
    base, row = _entry_given(case, "restore"), case.entry
    if Status.PENDING_REVIEW in (base.status, row.status if row else None):
        raise RefusalError(
            "an entry that only shows a request is not restored", code="registry.bad-data", field="undoes",
            hint="open the request again",
        )  # fmt: skip
    if row is None:
        # whether the requests about it still go on, this entry doesn't know
        after = replace(base, pending=(), notes=(*base.notes, note))
    else:
        after = replace(base, pending=row.pending, notes=(*row.notes, note), version=row.version)
    told = _told(case, f"{base.status} again, record {number} undone", note, base.registrant)
    return decided(case, rule, entry=touched(case, after), notices=told)


_Deed = Callable[[Case, Rule, Note], Decision]
_DEEDS: Final[Mapping[str, _Deed]] = MappingProxyType(
    {"status": _set_status, "remove": _remove, "undoes": _undo, "set": _set}
)


def _nothing_to_override(case: Case) -> bool:
    return case.entry is None and not _given(case, "undoes")


def _of_control(case: Case) -> bool:
    """Does the override say who controls a row that there is?"""
    if any(_given(case, member) for member in _CONTROL):
        return True
    before = case.event.data.get("restore")
    if case.entry is None or not _given(case, "undoes") or not isinstance(before, Mapping):
        return False
    fields = before.get("fields", {})
    controller = fields.get("change_controller") if isinstance(fields, Mapping) else None
    now = (case.row.registrant, case.row.fields.get("change_controller"))
    return (before.get("registrant"), controller) != now


#: change control of what was registered lies with the IESG, where nobody else has it (RFC 8126 2.3, 9.5)
_BY_IESG: Final = {
    "rfc4395": "RFC 8126 9.5",
    "rfc7595": "RFC 7595 7.1",
    "specification-required": "RFC 8126 9.5",
}
#: of a namespace with the operator of the root, for whom IANA stands
_BY_OPERATOR: Final = {"expert-review": "docs/decisions/0027"}
_CONTROL_SAID: Final = "who controls the entry, set by an override with a name and a reason"

RULES: Final = (
    Rule(
        id="IMPORT", event=EventKind.IMPORT, clauses=_OURS, roles=(Role.IANA,), effect=_import,
        said="a row of a published registry",
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_OURS, roles=(Role.IANA, Role.IESG),
        when=_nothing_to_override, said="there is no entry of that name",
        hint="to restore one, undo the record that removed it",
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_BY_IESG, roles=(Role.IESG,), when=_of_control,
        effect=_override, said=_CONTROL_SAID,
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_BY_OPERATOR, roles=(Role.IANA, Role.IESG),
        when=_of_control, effect=_override, said=_CONTROL_SAID,
    ),
    Rule(
        id="X", event=EventKind.OVERRIDE, clauses=_OURS, roles=(Role.IANA, Role.IESG), effect=_override,
        said="an override, with a name and a reason",
    ),
)  # fmt: skip
