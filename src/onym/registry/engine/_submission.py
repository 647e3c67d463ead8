"""Rules for submission: the registrant's steps (R1 to R4, withdrawal) and IANA's check (I1 to I4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from onym.common.text import parse_timestamp
from onym.errors import RefusalError
from onym.registry.engine._rules import (
    CONTROL_FIELDS,
    OWN_CLAUSES,
    STATUS_CHANGES,
    EventContext,
    Rule,
    add_duration,
    approve_request,
    build_clauses,
    build_entry,
    can_update,
    change_request,
    describe_conflict,
    get_text,
    has_conflict,
    is_for_board,
    is_request_owner,
    make_decision,
    make_notice,
    move_request,
    needs_iesg_approval,
    parse_draft,
    parse_fields,
    reject,
    remove_pending,
    update_entry,
)
from onym.registry.records import (
    Decision,
    Entry,
    EventKind,
    ListMessage,
    Request,
    RequestKind,
    RequestState,
    Role,
    Status,
)
from onym.registry.words import apply_words

_ANYONE: Final = (Role.REGISTRANT, Role.IANA, Role.EXPERT, Role.IESG)
_NAMESPACE_CLAUSES: Final = {"expert-review": "docs/decisions/0027"}
_OPEN_CLAUSES: Final = build_clauses("5.2", "7.2", "RFC 8126 4.5")
#: the highest version that can be revised
_VERSIONS: Final = 500
#: the role that is notified of a withdrawal, by the state of the request
_REVIEWERS: Final = {
    RequestState.SUBMITTED: Role.IANA,
    RequestState.EXPERT_REVIEW: Role.EXPERT,
    RequestState.MORE_REVIEW: Role.EXPERT,
    RequestState.IETF_REVIEW: Role.IESG,
}
_BEFORE_SUBMISSION: Final = (RequestState.DRAFT, RequestState.LIST_REVIEW)
_EXISTING: Final = frozenset(RequestKind) - {RequestKind.NEW}


def _parse_kind(case: EventContext) -> RequestKind:
    given = case.event.data.get("kind", RequestKind.NEW)
    try:
        return RequestKind(given)
    except ValueError:
        raise reject(
            "kind", "there is no such kind of request", hint=f"Choose one of {', '.join(RequestKind)}."
        ) from None


def _parse_status(case: EventContext) -> Status:
    """Return the requested status; only new names and changes of status request one."""
    given = case.event.data.get("status")
    chosen = _parse_kind(case) in (RequestKind.NEW, RequestKind.STATUS_CHANGE)
    askable = tuple(case.profile.policies)
    if not chosen and case.entry is not None:
        return _keep_status(case, given)
    if given is None and len(askable) == 1:
        return askable[0]
    found = next((status for status in askable if str(status) == str(given).strip().lower()), None)
    if found is None:
        raise RefusalError(
            "a request cannot ask for that status" if given is not None else "the request has no status",
            code="registry.bad-status", field="status", clause=case.profile.status_clause,
            hint=f"Choose one of {', '.join(case.profile.status_words)}.",
        )  # fmt: skip
    return found


def _keep_status(case: EventContext, given: object) -> Status:
    other = given is not None and str(given).strip().lower() != case.current_entry.status
    if other and _parse_kind(case) is RequestKind.UPDATE:
        raise RefusalError(
            f"this kind of request cannot change the status, which is {case.current_entry.status}",
            code="registry.bad-status", field="status", clause=case.profile.status_clause,
            hint="Open a request of kind status-change.",
        )  # fmt: skip
    return case.current_entry.status


def _is_name_taken(case: EventContext) -> bool:
    return _parse_kind(case) is RequestKind.NEW and case.entry is not None


def _is_entry_missing(case: EventContext) -> bool:
    kind = _parse_kind(case)
    # the conflict process is for names under review as well (RFC 7595 7.2 step 7)
    shown = case.entry is not None and (
        kind is RequestKind.SEPARATE_USE or case.current_entry.status is not Status.PENDING_REVIEW
    )
    return kind in _EXISTING and not shown


def _is_foreign_provisional_update(case: EventContext) -> bool:
    """Report an update of a provisional entry by another person (U1); anyone may ask for an upgrade (S1)."""
    if _parse_kind(case) not in (RequestKind.UPDATE, RequestKind.STATUS_CHANGE):
        return False
    provisional = case.current_entry.status is Status.PROVISIONAL
    return provisional and not can_update(case) and not _is_upgrade(case)


def _is_upgrade(case: EventContext) -> bool:
    """Report whether a permanent registration is asked for in place of a provisional one."""
    return (
        _parse_kind(case) is RequestKind.STATUS_CHANGE
        and case.current_entry.status is Status.PROVISIONAL
        and _parse_status(case) is Status.PERMANENT
    )


def _is_third_party_upgrade(case: EventContext) -> bool:
    """Report an upgrade by someone who may not update the entry, and is neither expert nor IESG."""
    if not _is_upgrade(case):
        return False
    return not can_update(case) and not case.actor.has_role(Role.EXPERT, Role.IESG)


def _require_same_control(case: EventContext, fields: Mapping[str, str]) -> None:
    """Reject the upgrade of a third party that names another contact or change controller."""
    entry = case.entry
    for name in CONTROL_FIELDS:
        own = "" if entry is None else entry.fields.get(name, "")
        if own and " ".join(fields.get(name, own).split()) != " ".join(own.split()):
            raise reject(
                name,
                apply_words(
                    f"only the registrant of the entry or the IESG can change its {name.replace('_', ' ')}"
                ),
                clause=case.profile.cite(
                    f"{case.profile.document} {'5.3' if case.profile.id == 'rfc4395' else '7.3'}"
                ),
                hint=f"Leave {name} out: the entry keeps its own.",
            )


def _is_revoked(case: EventContext) -> bool:
    return _parse_kind(case) in _EXISTING and case.current_entry.status is Status.REVOKED


def _is_foreign_namespace_update(case: EventContext) -> bool:
    return _parse_kind(case) is RequestKind.UPDATE and not can_update(case)


def _is_undefined_status_change(case: EventContext) -> bool:
    return (
        _parse_kind(case) is RequestKind.STATUS_CHANGE
        and (case.current_entry.status, _parse_status(case)) not in STATUS_CHANGES
    )


def _is_unreassignable(case: EventContext) -> bool:
    return _parse_kind(case) is RequestKind.REASSIGN and case.current_entry.status is not Status.PROVISIONAL


def _open_request(case: EventContext, rule: Rule) -> Decision:
    number = case.event.request
    if number is None:
        raise reject("request", "the request has no ID")
    if len(case.name) > case.registry.name_limit:
        raise RefusalError(
            f"a name has at most {case.registry.name_limit} characters", code="registry.bad-name",
            field="name", clause=case.registry.limit_clause, hint="Choose a shorter name.",
        )  # fmt: skip
    if not case.registry.is_valid_name(case.name):
        raise RefusalError(
            f"this is not a valid name for a {case.registry.noun}",
            code="registry.bad-name",
            field="name",
            clause=case.registry.name_clause,
            hint=case.registry.name_rule,
        )
    kind, fields = _parse_kind(case), parse_fields(case, {})
    third_party = _is_third_party_upgrade(case)
    if third_party:
        _require_same_control(case, fields)
    opened = Request(
        id=number, registry=case.registry.id, profile=case.profile.id, kind=kind, name=case.name,
        status=_parse_status(case), state=RequestState.DRAFT, registrant=case.actor.id,
        fields=fields, template=get_text(case, "template") or "", third_party=third_party,
        on_behalf_of=get_text(case, "on_behalf_of"), draft=parse_draft(case, None),
        as_registrant=kind is not RequestKind.NEW and can_update(case),
        opened=case.at, since=case.at, holder=Role.REGISTRANT, version=1,
    )  # fmt: skip
    return make_decision(case, rule, request=opened)


def _build_revised_request(case: EventContext) -> Request:
    asked = case.current_request
    if asked.version >= _VERSIONS:
        raise RefusalError(
            f"a request can be revised at most {_VERSIONS} times",
            code="registry.too-large",
            field="request",
            hint="Withdraw it and open another.",
        )
    fields = parse_fields(case, asked.fields)
    if asked.third_party:
        _require_same_control(case, fields)
    return replace(
        asked,
        fields=fields,
        template=get_text(case, "template") or asked.template,
        status=_parse_revised_status(case),
        draft=parse_draft(case, asked.draft),
    )


def _parse_revised_status(case: EventContext) -> Status:
    """Return the requested status. A revision may change it only for a new name that is not under review."""
    asked, given = case.current_request, case.event.data.get("status")
    if given is None or str(given).strip().lower() == asked.status:
        return asked.status
    if asked.kind is not RequestKind.NEW or asked.state is RequestState.MORE_REVIEW:
        raise RefusalError(
            "the requested status cannot change any more", code="registry.bad-status", field="status",
            clause=case.profile.status_clause, hint="Withdraw the request and open another.",
        )  # fmt: skip
    return _parse_status(replace(case, event=replace(case.event, data={"status": given})))


def _revise_request(case: EventContext, rule: Rule) -> Decision:
    revised = _build_revised_request(case)
    if case.current_request.state is RequestState.MORE_REVIEW:
        to = case.current_request.expert or Role.EXPERT
        notice = make_notice(to, f"{case.name}: {case.current_request.id} was revised")
        return make_decision(
            case, rule, request=replace(revised, version=revised.version + 1), notices=(notice,)
        )
    return make_decision(case, rule, request=move_request(replace(case, request=revised), RequestState.DRAFT))


def _announce_request(case: EventContext, rule: Rule) -> Decision:
    review = case.profile.list_review.get(case.current_request.status)
    request = move_request(
        case,
        RequestState.LIST_REVIEW,
        announced=case.current_request.announced or case.at,
        archive=get_text(case, "archive") or case.current_request.archive,
        due=add_duration(case.at, review.reasonable if review else None),
    )
    return make_decision(case, rule, request=request)


def _is_list_review_missing(case: EventContext) -> bool:
    review = case.profile.list_review.get(case.current_request.status)
    return review is not None and review.required and case.current_request.announced is None


def _submit_request(case: EventContext, rule: Rule) -> Decision:
    review = case.profile.list_review.get(case.current_request.status)
    notices = [make_notice(Role.IANA, f"{case.name}: {case.current_request.id} was submitted")]
    since = case.current_request.announced
    if review is not None and (since is None or case.at - since < review.reasonable):
        notices.append(
            make_notice(
                Role.EXPERT,
                f"{case.name}: {case.current_request.id} had less than {review.reasonable.days} days "
                "of list review",
            )
        )
    first = case.current_request.submitted or case.at
    request = move_request(case, RequestState.SUBMITTED, submitted=first, outcome=None, reason=None)
    return make_decision(case, rule, request=request, notices=tuple(notices))


def _resubmit_request(case: EventContext, rule: Rule) -> Decision:
    revised = replace(case, request=_build_revised_request(case))
    if _is_list_review_missing(revised):
        raise RefusalError(
            "a permanent registration needs list review first", code="registry.not-allowed", rule="R4",
            clause=case.profile.cite(f"{case.profile.document} 7.2 item 3"),
            hint="Open a new request and announce it.",
        )  # fmt: skip
    request = move_request(revised, RequestState.SUBMITTED, outcome=None, reason=None)
    notice = make_notice(Role.IANA, f"{case.name}: {case.current_request.id} was submitted again, corrected")
    return make_decision(case, rule, request=request, notices=(notice,))


def _withdraw_request(case: EventContext, rule: Rule) -> Decision:
    entry, removed = remove_pending(case)
    request = move_request(case, RequestState.WITHDRAWN, outcome="withdrawn", reason=get_text(case, "reason"))
    to = _REVIEWERS.get(case.current_request.state)
    told = () if to is None else (make_notice(to, f"{case.name}: {case.current_request.id} was withdrawn"),)
    return make_decision(case, rule, request=request, entry=entry, removed=removed, notices=told)


def _make_taken_error(case: EventContext, rule: Rule) -> RefusalError:
    # the entry of a scheme can note another use (RFC 4395 3, RFC 7595 7.2 step 7)
    notes_uses = case.profile.rules in ("rfc4395", "rfc7595")
    other = "an update or a note-separate-use" if notes_uses else "an update"
    return RefusalError(
        rule.said, code="registry.not-allowed", field="name", clause=rule.get_clause(case), rule=rule.id,
        hint=f"Choose another name, or open {other} of that entry.",
    )  # fmt: skip


_OpeningRule: Final = partial(Rule, event=EventKind.OPEN, roles=_ANYONE)

REQUEST_RULES: Final = (
    _OpeningRule(
        id="R1", clauses=_OPEN_CLAUSES, when=_is_name_taken, said="the name is registered or under review",
        refuse=_make_taken_error,
    ),
    _OpeningRule(
        id="R1", clauses=_OPEN_CLAUSES, when=_is_entry_missing,
        said="there is no entry with this name to change", hint="Open a request of kind new.",
    ),
    _OpeningRule(
        id="X", clauses=build_clauses("5.3", "7.3", "docs/decisions/0026"), when=_is_undefined_status_change,
        said="no clause defines that change of status",
        hint="IANA or the IESG can record an override with a reason.",
    ),
    _OpeningRule(
        id="U1", clauses=build_clauses("5.3", "7.3"), when=_is_foreign_provisional_update,
        said="a provisional entry is updated by its registrant, or whom the registrant has designated",
        hint="If the registrant cannot be reached, ask the IESG to reassign it (kind reassign).",
    ),
    _OpeningRule(
        id="N4", clauses=_NAMESPACE_CLAUSES, when=_is_revoked, said="it was revoked for good",
        hint="Choose another name.",
    ),
    _OpeningRule(
        id="U1", clauses={"simple": OWN_CLAUSES["simple"]}, when=_is_foreign_namespace_update,
        said="an entry is updated by its registrant, or whom the registrant has designated",
        hint="If it has no registrant, IANA can record one (override with registrant).",
    ),
    _OpeningRule(
        id="U1", clauses=_NAMESPACE_CLAUSES, when=_is_foreign_namespace_update,
        said="a namespace is updated by its registrant, or whom the registrant has designated",
        hint="If it has no registrant, IANA can record one (override with registrant).",
    ),
    _OpeningRule(
        id="U3", clauses=build_clauses("5.3", "7.3"), when=_is_unreassignable,
        said="only a provisional entry can be reassigned",
    ),
    _OpeningRule(
        id="R1", clauses=_OPEN_CLAUSES, effect=_open_request, said="a draft request",
    ),
    Rule(
        id="R2", event=EventKind.ANNOUNCE, states=(RequestState.DRAFT,),
        clauses=build_clauses("5.2 item 3", "7.2 item 3"), who=is_request_owner, effect=_announce_request,
        said="posted to uri-review for list review",
    ),
    Rule(
        id="R3", event=EventKind.REVISE,
        states=(RequestState.DRAFT, RequestState.LIST_REVIEW, RequestState.MORE_REVIEW),
        clauses=build_clauses("5.2 item 4", "7.2 item 3.3", "RFC 8126 4.5"), who=is_request_owner,
        effect=_revise_request, said="comments answered, text revised",
    ),
    Rule(
        id="R4", event=EventKind.SUBMIT, states=_BEFORE_SUBMISSION,
        clauses=build_clauses(None, "7.2 item 3"), who=is_request_owner, when=_is_list_review_missing,
        said="a permanent registration needs list review first",
        hint="Announce it on uri-review@ietf.org; four weeks are reasonable.",
    ),
    Rule(
        id="R4", event=EventKind.SUBMIT, states=_BEFORE_SUBMISSION,
        clauses=build_clauses("5.2 item 5", "7.2 item 4", "RFC 8126 4.5"), who=is_request_owner,
        effect=_submit_request, said="handed to IANA",
    ),
    Rule(
        id="I1", event=EventKind.RESUBMIT, states=(RequestState.REJECTED,),
        clauses=build_clauses(None, "7.2 step 1", "RFC 8126 4.5"), who=is_request_owner,
        when=lambda case: case.current_request.outcome == "incomplete", effect=_resubmit_request,
        said="corrected and handed in again",
    ),
    Rule(
        id="W1", event=EventKind.WITHDRAW, states=(*_BEFORE_SUBMISSION, *_REVIEWERS),
        clauses=build_clauses("docs/decisions/0026", "docs/decisions/0026", "docs/decisions/0026"),
        who=is_request_owner, effect=_withdraw_request, said="withdrawn by its registrant",
    ),
)  # fmt: skip

# ---------- the mailing list's archive

#: messages of one request, and characters of their URL and subject
_MAX_MESSAGES: Final = 200
_MAX_URL: Final = 500
_MAX_SUBJECT: Final = 300


def _parse_message(data: object) -> ListMessage:
    if not isinstance(data, Mapping) or set(data) != {"url", "subject", "at"}:
        raise reject("messages", "a message has the members url, subject and at")
    url, subject, at = data["url"], data["subject"], data["at"]
    good = isinstance(url, str) and url.startswith("https://") and url.isprintable() and " " not in url
    if not good or len(url) > _MAX_URL:
        raise reject("messages", f"a message needs an https URL of at most {_MAX_URL} characters")
    if not isinstance(subject, str) or len(subject) > _MAX_SUBJECT or not subject.isprintable():
        raise reject("messages", f"a subject is one line of at most {_MAX_SUBJECT} characters")
    try:
        return ListMessage(url=url, subject=subject, at=parse_timestamp(at))
    except (TypeError, ValueError, AttributeError):
        raise reject("messages", "the time of a message is not an ISO 8601 time with an offset") from None


def _parse_messages(case: EventContext) -> tuple[ListMessage, ...]:
    """Return the messages of the event that the request has not yet, oldest first."""
    given = case.event.data.get("messages")
    if not isinstance(given, (list, tuple)) or not 0 < len(given) <= _MAX_MESSAGES:
        raise reject("messages", f"`messages` must be a list of 1 to {_MAX_MESSAGES} messages")
    known = {message.url for message in case.current_request.messages}
    found = {message.url: message for message in map(_parse_message, given) if message.url not in known}
    if not found:
        raise reject("messages", "the request has these messages already")
    if len(found) + len(known) > _MAX_MESSAGES:
        raise RefusalError(
            f"a request has at most {_MAX_MESSAGES} messages", code="registry.too-large", field="messages",
            hint="Link the beginning of the discussion; the archive has the rest.",
        )  # fmt: skip
    return tuple(sorted(found.values(), key=lambda message: (message.at, message.url)))


def _link_messages(case: EventContext, rule: Rule) -> Decision:
    asked, found = case.current_request, _parse_messages(case)
    messages = tuple(sorted((*asked.messages, *found), key=lambda message: (message.at, message.url)))
    changes: dict[str, Any] = {"messages": messages, "archive": asked.archive or messages[0].url}
    noun = "message" if len(found) == 1 else "messages"
    notice = make_notice(
        asked.registrant, f"{case.name}: {len(found)} {noun} of the list review of {asked.id}",
        "\n".join(f"{message.subject}\n{message.url}\n" for message in found),
    )  # fmt: skip
    if asked.state is not RequestState.DRAFT or case.event.data.get("announce") is not True:
        return make_decision(case, rule, request=change_request(case, **changes), notices=(notice,))
    began: datetime = asked.announced or min(max(messages[0].at, asked.opened), case.at)
    review = case.profile.list_review.get(asked.status)
    changes |= {"announced": began, "due": add_duration(began, review.reasonable if review else None)}
    request = move_request(case, RequestState.LIST_REVIEW, **changes)
    return make_decision(case, rule, request=request, notices=(notice,))


ARCHIVE_RULES: Final = (
    Rule(
        id="R2", event=EventKind.LINK_MESSAGES, states=(*_BEFORE_SUBMISSION, *_REVIEWERS),
        clauses=build_clauses("5.2 item 3", "7.2 item 3", "RFC 8126 5.2"), roles=(Role.IANA, Role.EXPERT),
        effect=_link_messages, said="messages of the list review, from the list's archive",
    ),
)  # fmt: skip

_MISSING_LIMIT: Final = 64


def list_missing_fields(case: EventContext) -> tuple[str, ...]:
    """Return the labels of required fields that are missing.

    A new name needs all required fields, an upgrade together with the fields of the entry; an update must
    not empty one.
    """
    asked, row = case.current_request, case.entry
    given = {**asked.fields, "name": asked.name, "status": str(asked.status)}
    if asked.kind is RequestKind.NEW:
        return tuple(field.label for field in case.profile.list_missing_fields(asked.status, given))
    if asked.kind is RequestKind.STATUS_CHANGE and asked.status is Status.PERMANENT:
        whole = {**(row.fields if row else {}), **given}
        whole.setdefault("references", whole.get("reference", ""))
        return tuple(field.label for field in case.profile.list_missing_fields(asked.status, whole))
    return tuple(
        field.label for field in case.profile.list_missing_fields(asked.status, given) if field.id in given
    )


def _is_duplicate_name(case: EventContext) -> bool:
    return case.current_request.kind is RequestKind.NEW and case.entry is not None


def _can_register_at_once(case: EventContext) -> bool:
    policy = case.profile.policies.get(case.current_request.status)
    if case.current_request.kind is RequestKind.NEW:
        return policy is not None and policy.at_once and case.entry is None
    # the registrant's own update; a provisional entry stays provisional
    return (
        case.current_request.kind is RequestKind.UPDATE
        # of a simple registry, every entry in use
        and case.current_entry.status in (Status.PROVISIONAL, Status.REGISTERED)
        and not case.current_entry.iesg_approved
        and policy is not None
        and policy.at_once
    )


def _is_retirement(case: EventContext) -> bool:
    return (
        case.current_request.kind is RequestKind.STATUS_CHANGE
        and case.current_entry.status is Status.PROVISIONAL
        and case.current_request.status is Status.HISTORICAL
        and not needs_iesg_approval(case)
    )


def _needs_iesg_decision(case: EventContext) -> bool:
    """Report whether only the IESG can decide: permanent to historical, reassignment; 2006 separate uses."""
    asked = case.current_request
    historical = (
        asked.kind is RequestKind.STATUS_CHANGE
        and asked.status is Status.HISTORICAL
        and case.current_entry.status is Status.PERMANENT
    )
    separate = asked.kind is RequestKind.SEPARATE_USE and case.profile.id == "rfc4395"
    return historical or separate or asked.kind is RequestKind.REASSIGN


def _make_incomplete_error(case: EventContext, rule: Rule) -> RefusalError:
    missing = ", ".join(list_missing_fields(case))
    return RefusalError(
        f"{case.current_request.id} is not complete: {missing} missing",
        code="registry.incomplete", field="fields", clause=rule.get_clause(case), rule=rule.id,
        hint="Return it to its registrant with reject-incomplete, which names the missing fields.",
    )  # fmt: skip


def _reject_missing_fields(case: EventContext, rule: Rule) -> Decision:
    missing = ", ".join(list_missing_fields(case))
    return _return_request(case, rule, f"missing: {missing}")


def _reject_incomplete(case: EventContext, rule: Rule) -> Decision:
    named, reason = case.event.data.get("missing", ()), (get_text(case, "reason") or "").strip()
    if not named and not reason:
        named = list_missing_fields(case)
    good = isinstance(named, (list, tuple)) and len(named) <= _MISSING_LIMIT
    if not good or not all(isinstance(name, str) for name in named):
        raise reject("missing", "`missing` must be a list of field IDs")
    said = "; ".join(
        part
        for part in (
            f"missing: {', '.join(named)}" if named else "",
            reason,
        )
        if part
    )
    if not said:
        raise RefusalError(
            "the reason must name the missing fields or the wrong citation",
            code="registry.missing-data", field="reason", clause=rule.get_clause(case),
        )  # fmt: skip
    return _return_request(case, rule, said)


def _return_request(case: EventContext, rule: Rule, reason: str) -> Decision:
    request = move_request(case, RequestState.REJECTED, outcome="incomplete", reason=reason)
    return make_decision(
        case, rule, request=request,
        notices=(make_notice(request.registrant, f"{case.name}: {request.id} is not complete", reason),),
    )  # fmt: skip


def _reject_duplicate(case: EventContext, rule: Rule) -> Decision:
    reason = f"there is an entry of that name, {case.current_entry.status}"
    request = move_request(case, RequestState.REJECTED, outcome="duplicate", reason=reason)
    notice = make_notice(request.registrant, f"{case.name}: {request.id} asks for a name in use", reason)
    return make_decision(case, rule, request=request, notices=(notice,))


def _reject_conflicting(case: EventContext, rule: Rule) -> Decision:
    reason = describe_conflict(case)
    request = move_request(case, RequestState.REJECTED, outcome="declined", reason=reason)
    return make_decision(
        case, rule, request=request, notices=(make_notice(request.registrant, f"{case.name}: {reason}"),)
    )


def _register_entry(case: EventContext, rule: Rule) -> Decision:
    status = (
        case.current_request.status
        if case.current_request.kind is RequestKind.NEW
        else case.current_entry.status
    )
    return approve_request(case, rule, build_entry(case, status), outcome="registered")


def _retire_entry(case: EventContext, rule: Rule) -> Decision:
    return approve_request(case, rule, build_entry(case, Status.HISTORICAL), outcome="registered")


def _build_pending_entry(case: EventContext) -> Entry | None:
    """Return the entry that shows the review, new or marked, if the profile has one (RFC 7595 7.2 step 3)."""
    asked = case.current_request
    if case.profile.rules not in ("rfc7595", "staged"):
        return None
    if case.entry is not None:
        return update_entry(case, case.entry, pending=(*case.entry.pending, asked.id))
    fresh = build_entry(case, Status.PENDING_REVIEW, under_review=True)
    return replace(fresh, registered=None)


def _send_to_expert(case: EventContext, rule: Rule) -> Decision:
    policy = case.profile.policies.get(case.current_request.status)
    time = None if policy is None else policy.time
    request = move_request(
        case,
        RequestState.EXPERT_REVIEW,
        expert_asked=case.at,
        due=add_duration(case.at, time or case.profile.expert_time),
    )
    to = request.expert or Role.EXPERT
    notice = make_notice(to, f"{case.name}: {request.id} waits for Expert Review ({request.status})")
    return make_decision(case, rule, request=request, entry=_build_pending_entry(case), notices=(notice,))


def _send_to_iesg(case: EventContext, rule: Rule) -> Decision:
    policy = case.profile.policies.get(case.current_request.status)
    due = None if policy is None else add_duration(case.at, policy.time)
    request = move_request(case, RequestState.IETF_REVIEW, due=due)
    notice = make_notice(Role.IESG, f"{case.name}: {request.id} waits for the IESG ({request.kind})")
    return make_decision(case, rule, request=request, notices=(notice,))


_CHECK = EventKind.CHECK_COMPLETE
_POLICY = "RFC 8126 4.5"

_IntakeRule: Final = partial(Rule, states=(RequestState.SUBMITTED,), roles=(Role.IANA,))

INTAKE_RULES: Final = (
    _IntakeRule(
        id="I2", event=_CHECK, clauses=build_clauses("5.3", "7.3", _POLICY), when=has_conflict,
        effect=_reject_conflicting, said="rejected: the entry has changed since",
    ),
    _IntakeRule(
        id="I1", event=_CHECK, clauses=build_clauses("5.2 step 1", "7.2 step 1", _POLICY),
        when=lambda case: bool(list_missing_fields(case)), effect=_reject_missing_fields,
        said="rejected: a required field is missing", retired=True,
    ),
    _IntakeRule(
        id="I1", event=_CHECK, clauses=build_clauses("5.2 step 1", "7.2 step 1", _POLICY),
        when=lambda case: bool(list_missing_fields(case)), refuse=_make_incomplete_error,
        said="a required field is missing",
    ),
    _IntakeRule(
        id="I1", event=EventKind.REJECT_INCOMPLETE,
        clauses=build_clauses("5.2 step 1", "7.2 step 1", _POLICY), effect=_reject_incomplete,
        said="rejected: incomplete, or a citation is not correct",
    ),
    _IntakeRule(
        id="I2", event=_CHECK, clauses=build_clauses("5.2 step 2", None, _POLICY), when=_is_duplicate_name,
        effect=_reject_duplicate, said="rejected: the name is in use",
    ),
    _IntakeRule(
        id="I3", event=_CHECK, clauses={**build_clauses(None, "7.2 step 2"), **OWN_CLAUSES},
        when=_can_register_at_once, effect=_register_entry,
        said="registered at once, first come first served",
    ),
    _IntakeRule(
        id="S3", event=_CHECK, clauses=build_clauses("5.3", "7.3"), when=_is_retirement, effect=_retire_entry,
        said="provisional to historical, as its registrant asked",
    ),
    _IntakeRule(
        id="S2", event=_CHECK, clauses=build_clauses("5.3", "7.3"), when=_needs_iesg_decision,
        effect=_send_to_iesg, said="handed to the IESG, who alone may approve it",
    ),
    _IntakeRule(
        id="B1", event=_CHECK, clauses=OWN_CLAUSES, when=is_for_board, effect=_send_to_iesg,
        said="handed to the IESG, who decides by the policy",
    ),
    _IntakeRule(
        id="I4", event=_CHECK, clauses=build_clauses("5.2 step 3", "7.2 steps 3 and 4", _POLICY),
        effect=_send_to_expert, said="handed to the Designated Expert",
    ),
)  # fmt: skip
