"""The actions that a page offers: their buttons and fields, and the event data of a submitted form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from onym.errors import AccessError, RegistryError, StaleError, UnknownEntryError, UsageError
from onym.registry import records
from onym.registry.engine import RULES, STATUS_CHANGES
from onym.registry.registries import REGISTRIES, get_catalog
from onym.registry.store import EntryChange
from onym.registry.words import apply_words
from onym.server.registry import urls
from onym.server.registry.labels import STATUS_LABELS, format_date
from onym.server.registry.page_parts import ActionField, ActionView, Choice
from onym.server.services import get_request_state

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest


@dataclass(frozen=True, slots=True)
class Action:
    """One step. `tone` is good, bad or plain."""

    label: str
    help: str
    tone: str = "plain"
    asks: tuple[ActionField, ...] = ()


_REASON: Final = ActionField(
    id="reason",
    label="Reason",
    kind="long",
    required=True,
    help="It is stored in the history and sent to the people concerned.",
)

#: event -> its button; other events have no button
ACTIONS: Final[Mapping[records.EventKind, Action]] = {
    records.EventKind.ANNOUNCE: Action(
        "Announce for list review",
        "Post the template to uri-review@ietf.org, then enter the URL of the message.",
        asks=(ActionField(id="archive", label="URL of the message in the list's archive"),),
    ),
    records.EventKind.SUBMIT: Action(
        "Submit to IANA", "Submits the current version of the request.", tone="good"
    ),
    records.EventKind.WITHDRAW: Action("Withdraw", "Ends the request.", tone="bad", asks=(_REASON,)),
    records.EventKind.CHECK_COMPLETE: Action(
        "Accept as complete", "Every required field is filled, and the citations are correct.", tone="good"
    ),
    records.EventKind.REJECT_INCOMPLETE: Action(
        "Return as incomplete",
        "A required field is missing or a citation is wrong. The registrant can correct it.",
        tone="bad",
        asks=(ActionField(id="missing", label="What is missing", kind="list"), _REASON),
    ),
    records.EventKind.ASK_MORE_REVIEW: Action(
        "Ask for more review", "Asks the registrant; the request stays open.", asks=(_REASON,)
    ),
    records.EventKind.RESUME_REVIEW: Action("Resume the review", "The questions have been answered."),
    records.EventKind.APPROVE: Action(
        "Approve", "Recommends the registration to IANA.", tone="good", asks=(_REASON,)
    ),
    records.EventKind.APPROVE_AS_PROVISIONAL: Action(
        "Approve as provisional",
        "The request is for permanent; registers it as provisional.",
        asks=(_REASON,),
    ),
    records.EventKind.ASK_IETF_REVIEW: Action(
        "Ask for IETF review", "The IESG decides; the entry is provisional until then.", asks=(_REASON,)
    ),
    records.EventKind.REJECT: Action(
        "Reject the request", "Ends the request. It can be appealed.", tone="bad", asks=(_REASON,)
    ),
    records.EventKind.ASK_UPGRADE: Action(
        "Make it permanent",
        "Changes provisional to permanent without a request.",
        tone="good",
        asks=(_REASON,),
    ),
    records.EventKind.ASSIGN_EXPERT: Action(
        "Assign an expert",
        "The expert gets the mail about the request. Other experts can still decide.",
        asks=(
            ActionField(id="expert", label="Login or account ID of the expert", required=True),
            ActionField(id="reason", label="Reason", kind="long"),
        ),
    ),
    records.EventKind.RECUSE: Action(
        "Recuse yourself",
        "You have a conflict of interest, for example as an author. You cannot decide about it any more.",
        asks=(_REASON,),
    ),
    records.EventKind.APPOINT_EXPERT: Action(
        "Appoint a temporary expert",
        "Every expert has a conflict of interest. The account decides about this request only.",
        asks=(ActionField(id="expert", label="Login or account ID of the expert", required=True), _REASON),
    ),
    records.EventKind.APPEAL: Action(
        "Appeal to the IESG",
        "Against the decision. It applies until the appeal is upheld.",
        asks=(replace(_REASON, label="Grounds"),),
    ),
    records.EventKind.APPEAL_TO_IAB: Action(
        "Appeal to the IAB",
        "Against the IESG's answer. The decision applies until the appeal is upheld.",
        asks=(replace(_REASON, label="Grounds"),),
    ),
    records.EventKind.WITHDRAW_APPEAL: Action(
        "Withdraw the appeal",
        "The decision stays as it is.",
        asks=(ActionField(id="reason", label="Reason", kind="long"),),
    ),
    records.EventKind.UPHOLD_APPEAL: Action(
        "Uphold the appeal",
        "A rejected request is checked again. For a registration, choose the remedy.",
        asks=(
            ActionField(id="remedy", label="Remedy", kind="choice"),
            ActionField(id="reference", label="Address of the IAB's answer"),
            _REASON,
        ),
    ),
    records.EventKind.DISMISS_APPEAL: Action(
        "Dismiss the appeal",
        "The decision stays as it is.",
        tone="bad",
        asks=(ActionField(id="reference", label="Address of the IAB's answer"), _REASON),
    ),
    records.EventKind.IESG_APPROVE: Action(
        "Approve for the IESG", "The IESG has approved it.", tone="good", asks=(_REASON,)
    ),
    records.EventKind.IESG_DECLINE: Action(
        "Decline for the IESG", "The IESG has declined it.", tone="bad", asks=(_REASON,)
    ),
    records.EventKind.REASSIGN: Action(
        "Reassign",
        "Assigns a provisional entry to another registrant.",
        asks=(
            ActionField(id="to", label="Account ID of the new registrant", required=True),
            ActionField(id="change_controller", label="New change controller"),
            _REASON,
        ),
    ),
    records.EventKind.DEMAND_CHANGES: Action(
        "Demand changes", "The IESG asks the registrant for changes.", asks=(_REASON,)
    ),
    records.EventKind.ATTACH_SECURITY_NOTE: Action(
        "Attach a security note",
        "Adds security information that became known after the registration.",
        asks=(
            ActionField(id="text", label="Security information", kind="long", required=True),
            ActionField(id="reference", label="Reference"),
        ),
    ),
    records.EventKind.DESIGNATE: Action(
        "Change the designees",
        "Accounts that may also change the entry: IDs, separated by commas.",
        asks=(ActionField(id="add", label="Add"), ActionField(id="remove", label="Remove")),
    ),
    records.EventKind.RETIRE: Action(
        "Retire", "The name is no longer used; it stays registered.", tone="bad", asks=(_REASON,)
    ),
    records.EventKind.DRAFT_PUBLISHED: Action(
        "The draft is published",
        "The Internet-Draft has become an RFC.",
        asks=(ActionField(id="reference", label="Reference", required=True, help="For example [RFC7595]."),),
    ),
    records.EventKind.ENTER_SAFE_MODE: Action(
        "Put into safe mode", "The name can be looked up and must not act.", asks=(_REASON,)
    ),
    records.EventKind.SUSPEND: Action(
        "Suspend", "The name is not resolved until it is reinstated.", tone="bad", asks=(_REASON,)
    ),
    records.EventKind.REINSTATE: Action(
        "Reinstate", "The name becomes active again.", tone="good", asks=(_REASON,)
    ),
    records.EventKind.REVOKE: Action(
        "Revoke", "Withdraws the name permanently.", tone="bad", asks=(_REASON,)
    ),
    records.EventKind.RENEW: Action(
        "Renew",
        "Sets a new expiry date.",
        asks=(ActionField(id="expires", label="Last day", kind="date", required=True),),
    ),
    records.EventKind.OVERRIDE: Action(
        "Override",
        "Bypasses the procedure. Your name and the reason are recorded; an override can be undone.",
        tone="bad",
        asks=(ActionField(id="status", label="New status", kind="choice"), _REASON),
    ),
}

#: the choice of an override that removes the entry
_REMOVE: Final = "remove"

_UNDO: Final = Action(
    "Undo the last override",
    "Restores the entry. Your name and the reason are recorded.",
    asks=(ActionField(id="undoes", label="Override to undo", kind="choice"), _REASON),
)

_CONTROL: Final = Action(
    "Override the controllers",
    "Empty fields are not changed. Your name and the reason are recorded.",
    tone="bad",
    asks=(
        ActionField(id="registrant", label="Login or account ID of the new registrant"),
        ActionField(id="change_controller", label="New change controller"),
        ActionField(id="iesg_approved", label="Does an IESG-approved document define it?", kind="choice"),
        _REASON,
    ),
)

#: members of an override that change the controllers or the IESG approval
_SETTINGS: Final = tuple(field.id for field in _CONTROL.asks if field.id != "reason")

_FOR_CONTROLLERS: Final = frozenset({"registrant", "change_controller"})

#: roles that may change the controllers: the IESG; for a namespace also the operator of the root
_OPERATORS: Final = frozenset({records.Role.IANA, records.Role.IESG})
_CONTROLLERS: Final = {"ai-namespaces": _OPERATORS}

_IESG: Final = frozenset({records.Role.IESG})

_YES_OR_NO: Final = (
    Choice(value="", label="Unchanged"),
    Choice(value="yes", label="Yes"),
    Choice(value="no", label="No"),
)

_REGISTRANT: Final = frozenset(
    {
        records.EventKind.OPEN,
        records.EventKind.REVISE,
        records.EventKind.ANNOUNCE,
        records.EventKind.SUBMIT,
        records.EventKind.RESUBMIT,
        records.EventKind.WITHDRAW,
    }
)


def _list_event_scopes(kind: records.EventKind) -> frozenset[records.Scope]:
    """Return the scopes of the roles that may use the event; `submit` if an owner may."""
    if kind in _REGISTRANT:
        return frozenset({records.Scope.SUBMIT})
    rules = [rule for rule in RULES if rule.event is kind and rule.effect is not None]
    roles = frozenset(role for rule in rules for role in rule.roles)
    owned = {records.Scope.SUBMIT} if any(rule.who is not None for rule in rules) else set()
    return frozenset(owned | {scope for scope in records.Scope if records.limit_roles(roles, (scope,))})


#: event -> scopes, one of which a token needs; the engine checks the roles
EVENT_SCOPES: Final[Mapping[records.EventKind, frozenset[records.Scope]]] = {
    kind: _list_event_scopes(kind) for kind in records.EventKind
}

#: kinds of request about an entry
_REQUESTS: Final[Mapping[str, Action]] = {
    "update": Action(
        "Update its registration",
        "New contact, controller, references or text. Empty fields are not changed.",
    ),
    "status-change": Action(
        "Change its status",
        "Anyone may ask to make a provisional entry permanent: the expert reviews it. The IESG decides "
        "permanent to historical.",
        asks=(ActionField(id="status", label="New status", kind="choice"),),
    ),
    "note-separate-use": Action(
        "Note a separate use",
        "The name has a second use, which the entry should mention.",
        asks=(ActionField(id="use", label="Second use", kind="long", required=True),),
    ),
    "reassign": Action(
        "Request a reassignment",
        "The registrant cannot be reached. The IESG decides.",
        asks=(ActionField(id="grounds", label="Grounds", kind="long", required=True),),
    ),
}


def describe_outcome(kind: records.EventKind, decision: records.Decision) -> Action:
    """Return the action of an event whose outcome is known, with a label that names the outcome."""
    action, request = ACTIONS[kind], decision.request
    if request is None or kind not in DECISIONS:
        return action
    if request.state is records.RequestState.REJECTED:
        why = "the name is in use" if request.outcome == "duplicate" else "the entry has changed"
        return replace(action, label=f"Reject: {why}", help=request.reason or action.help, tone="bad")
    verb = DECISIONS[kind]
    if request.state in _NEXT:
        return replace(action, label=f"{verb} and send to {_NEXT[request.state]}")
    if request.outcome == "noted":
        return replace(action, label=f"{verb} and note the separate use")
    status = "" if decision.entry is None else f" as {STATUS_LABELS[decision.entry.status].lower()}"
    return replace(action, label=f"{verb} and register{status}")


#: events with several outcomes -> the verb before the outcome
DECISIONS: Final[Mapping[records.EventKind, str]] = {
    records.EventKind.CHECK_COMPLETE: "Accept",
    records.EventKind.APPROVE: "Approve",
    records.EventKind.IESG_APPROVE: "Approve for the IESG",
}
_NEXT: Final = {
    records.RequestState.EXPERT_REVIEW: "the expert",
    records.RequestState.IETF_REVIEW: "the IESG",
}


def build_actions(
    kinds: Iterable[records.EventKind],
    *,
    href: str,
    version: int,
    about: records.Request | records.Entry,
    fields: Iterable[tuple[str, str]] = (),
    missing: Iterable[str] = (),
    outcomes: Mapping[records.EventKind, records.Decision] | None = None,
) -> tuple[ActionView, ...]:
    """Return the actions of these events. `fields` are (id, label) of fields that may be missing.

    Those in `missing` are ticked. `outcomes` are the known decisions of events with several outcomes.
    """
    absent, known = frozenset(missing), outcomes or {}
    options = {
        "status": (
            *(
                Choice(value=str(status), label=STATUS_LABELS[status])
                for status in REGISTRIES[about.registry].statuses
                if status is not about.status and status != "pending-review"
            ),
            Choice(value=_REMOVE, label="No entry: remove it"),
        ),
        "missing": tuple(Choice(value=key, label=label, chosen=key in absent) for key, label in fields),
        "remedy": _list_remedies(about),
    }
    left_out = () if _is_for_iab(about) else ("reference",)
    found = []
    for kind in kinds:
        if kind not in ACTIONS:
            continue
        action = describe_outcome(kind, known[kind]) if kind in known else ACTIONS[kind]
        if kind in (records.EventKind.UPHOLD_APPEAL, records.EventKind.DISMISS_APPEAL):
            action = replace(action, asks=tuple(ask for ask in action.asks if ask.id not in left_out))
        found.append(_build_action_view(str(kind), action, href, version, options))
    return tuple(found)


def _get_pending_appeal(about: records.Request | records.Entry) -> records.Appeal | None:
    if not isinstance(about, records.Request) or about.state is not records.RequestState.APPEAL:
        return None
    return about.appeals[-1] if about.appeals else None


def _is_for_iab(about: records.Request | records.Entry) -> bool:
    appeal = _get_pending_appeal(about)
    return appeal is not None and appeal.level is records.AppealLevel.IAB


def _list_remedies(about: records.Request | records.Entry) -> tuple[Choice, ...]:
    """Return the remedies of an appeal against a registration; a rejected request has none to choose."""
    appeal = _get_pending_appeal(about)
    if appeal is None or appeal.against is records.RequestState.REJECTED:
        return ()
    statuses = (status for status in REGISTRIES[about.registry].statuses if status != "pending-review")
    return (
        Choice(value="note", label="A note on the entry"),
        *(Choice(value=str(status), label=f"Status: {STATUS_LABELS[status]}") for status in statuses),
        Choice(value="remove", label="No entry: remove it"),
    )


def build_change_requests(entry: records.Entry) -> tuple[ActionView, ...]:
    """Return the requests that someone may open about an entry; the engine checks them again."""
    staged = records.Status.PROVISIONAL in REGISTRIES[entry.registry].statuses
    statuses = tuple(
        Choice(value=str(after), label=STATUS_LABELS[after])
        for after in REGISTRIES[entry.registry].statuses
        if (entry.status, after) in STATUS_CHANGES
    )
    possible = {
        "update": entry.status not in (records.Status.PENDING_REVIEW, records.Status.REVOKED),
        "status-change": bool(statuses),
        "note-separate-use": staged,
        "reassign": entry.status is records.Status.PROVISIONAL,
    }
    href = urls.change_url(entry.registry, entry.name)
    return tuple(
        _build_action_view(kind, action, href, entry.version, {"status": statuses})
        for kind, action in _REQUESTS.items()
        if possible[kind]
    )


def build_undo_actions(last: EntryChange, *, href: str, version: int) -> tuple[ActionView, ...]:
    """Return the action that undoes the last change of a name, if it was an override."""
    if last.event is not records.EventKind.OVERRIDE or last.before is None:
        return ()
    label = f"Record {last.number} of {format_date(last.at.date())}"
    options = {"undoes": (Choice(value=str(last.number), label=label),)}
    return (_build_action_view(str(records.EventKind.OVERRIDE), _UNDO, href, version, options),)


def build_control_actions(
    entry: records.Entry, roles: Iterable[records.Role], *, href: str
) -> tuple[ActionView, ...]:
    """Return the action that changes the controllers of an entry, for these roles.

    A row that only shows a request has no such action.
    """
    if entry.status is records.Status.PENDING_REVIEW:
        return ()
    defined = REGISTRIES[entry.registry].is_defined
    deciders = _OPERATORS if defined else _CONTROLLERS.get(entry.registry, _IESG)
    may = not deciders.isdisjoint(roles)
    asks = tuple(
        ask
        for ask in _CONTROL.asks
        if (may or ask.id not in _FOR_CONTROLLERS) and not (defined and ask.id == "iesg_approved")
    )
    action = replace(_CONTROL, asks=asks)
    return (
        _build_action_view(
            str(records.EventKind.OVERRIDE), action, href, entry.version, {"iesg_approved": _YES_OR_NO}
        ),
    )


def _build_action_view(
    kind: str, action: Action, href: str, version: int, options: Mapping[str, tuple[Choice, ...]]
) -> ActionView:
    fields = tuple(
        replace(
            ask, label=apply_words(ask.label), help=apply_words(ask.help), choices=options.get(ask.id, ())
        )
        for ask in action.asks
        if ask.kind not in ("list", "choice") or options.get(ask.id)
    )
    own = get_catalog().labels
    return ActionView(
        kind=kind,
        label=own.get(f"action.{kind}") or apply_words(action.label),
        help=apply_words(action.help),
        tone=action.tone,
        href=href,
        version=version,
        fields=fields,
    )


def parse_event_data(kind: records.EventKind, form: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return `Event.data` from a form.

    Raises RegistryError (registry.missing-data) if a required field is empty, and UsageError for an event
    that has no form.
    """
    action = ACTIONS.get(kind)
    if action is None:
        raise UsageError(
            f"the page has no form for the event {str(kind)!r}", code="registry.bad-data", hint="Use the API."
        )
    data: dict[str, Any] = {}
    for ask in action.asks:
        values = [value.strip() for value in form.get(ask.id, []) if value.strip()]
        if ask.required and not values:
            raise RegistryError(
                f"the field {apply_words(ask.label)!r} is empty",
                code="registry.missing-data",
                field=ask.id,
                hint="Fill it in.",
            )
        if ask.kind == "list":
            data[ask.id] = values
        elif ask.id in ("add", "remove"):
            data[ask.id] = [part.strip() for text in values for part in text.split(",") if part.strip()]
        elif values:
            data[ask.id] = values[0]
    if kind is records.EventKind.OVERRIDE:
        undone = next((value.strip() for value in form.get("undoes", []) if value.strip()), None)
        given = {setting: "".join(form.get(setting, [])).strip() for setting in _SETTINGS}
        data |= {name: value for name, value in given.items() if value}
        if undone is not None:
            return {"undoes": undone, "reason": data["reason"]}
        if data.get("status") == _REMOVE:
            return {"remove": True, "reason": data["reason"]}
    return data


#: errors that the form on the page cannot correct, unless they name one of its fields
_ELSEWHERE: Final = (AccessError, StaleError, UnknownEntryError)


def require_correctable(request: HTTPRequest, form: Mapping[str, list[str]], error: RegistryError) -> None:
    """Raise the error if nothing that is typed in the form can correct it; else name it for the audit log."""
    if isinstance(error, _ELSEWHERE) and error.field not in form:
        raise error
    get_request_state(request.scope)["code"] = error.code


def show_error(
    views: Iterable[ActionView], form: Mapping[str, list[str]], error: RegistryError
) -> tuple[ActionView, ...]:
    """Return the actions, with the error and what was typed in the one that `form` has sent.

    Raises the error if the page does not have the form.
    """
    listed = tuple(views)
    kind, sent = "".join(form.get("kind", [])[:1]), frozenset(form)
    fitting = [view for view in listed if view.kind == kind]
    # several forms cause an override: the one that was sent has these fields
    chosen = next((view for view in fitting if {field.id for field in view.fields} <= sent), None)
    chosen = chosen or (fitting[0] if len(fitting) == 1 else None)
    if chosen is None:
        raise error
    fields = tuple(_fill_field(field, form.get(field.id, [])) for field in chosen.fields)
    named = {error.field, f"field.{error.field}"}
    tied = next((field.id for field in fields if field.id in named and field.kind != "list"), "")
    marked = replace(chosen, fields=fields, error=error, tied=tied)
    return tuple(marked if view is chosen else view for view in listed)


def _fill_field(field: ActionField, values: list[str]) -> ActionField:
    choices = tuple(replace(choice, chosen=choice.value in values) for choice in field.choices)
    return replace(field, value="".join(values[:1]), choices=choices)
