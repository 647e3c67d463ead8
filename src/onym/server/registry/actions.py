"""The steps and changes that a person may take on a page: buttons, their fields, and the event data of a sent form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from onym.errors import UsageError
from onym.registry.accounts import Scope, limit_roles
from onym.registry.engine import RULES
from onym.registry.records import Entry, EventKind, Request, Role, Status
from onym.registry.registries import REGISTRIES
from onym.registry.store import EntryChange
from onym.server.registry import urls
from onym.server.registry.labels import STATUS_LABELS, format_date
from onym.server.registry.page_parts import ActionField, ActionView, Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInput:
    """One thing that an action asks for; the member of `Event.data` that it becomes."""

    id: str
    label: str
    kind: str = "text"
    required: bool = False
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One step. `tone` is good, bad or plain."""

    label: str
    help: str
    tone: str = "plain"
    asks: tuple[ActionInput, ...] = ()


def _make_reason_input(
    help_: str = "It is kept in the history, and told to whom it concerns.",
) -> ActionInput:
    return ActionInput(id="reason", label="Reason", kind="long", required=True, help=help_)


_REASON_REQUIRED: Final = (_make_reason_input(),)


#: what a button of each event says; those without a row have none
ACTIONS: Final[Mapping[EventKind, Action]] = MappingProxyType(
    {
        EventKind.ANNOUNCE: Action(
            label="Announce for list review",
            help="Post the template to uri-review@ietf.org, then say here where the message can be read.",
            asks=(ActionInput(id="archive", label="Address of the message in the list's archive"),),
        ),
        EventKind.SUBMIT: Action(label="Submit to IANA", help="Hands it over as it stands.", tone="good"),
        EventKind.WITHDRAW: Action(
            label="Withdraw", help="Ends the request.", tone="bad", asks=_REASON_REQUIRED
        ),
        EventKind.CHECK_COMPLETE: Action(
            label="Complete: go on",
            help="Registers it at once, or passes it on for review, as the procedure says.",
            tone="good",
        ),
        EventKind.REJECT_INCOMPLETE: Action(
            label="Reject as incomplete",
            help="A required field is missing, or a citation is wrong. The registrant may correct it.",
            tone="bad",
            asks=(ActionInput(id="missing", label="What is missing", kind="list"), _make_reason_input()),
        ),
        EventKind.ASK_MORE_REVIEW: Action(
            label="Ask for more review",
            help="The registrant is asked; the request stays open.",
            asks=_REASON_REQUIRED,
        ),
        EventKind.RESUME_REVIEW: Action(label="Resume the review", help="What was asked has been answered."),
        EventKind.APPROVE: Action(
            label="Approve", help="Recommends it; IANA registers it.", tone="good", asks=_REASON_REQUIRED
        ),
        EventKind.APPROVE_AS_PROVISIONAL: Action(
            label="Approve as provisional",
            help="Permanent was asked for; registers it as provisional.",
            asks=_REASON_REQUIRED,
        ),
        EventKind.ASK_IETF_REVIEW: Action(
            label="Ask for IETF review",
            help="The IESG decides; provisional meanwhile.",
            asks=_REASON_REQUIRED,
        ),
        EventKind.REJECT: Action(label="Reject", help="Ends the request.", tone="bad", asks=_REASON_REQUIRED),
        EventKind.ASK_UPGRADE: Action(
            label="Make it permanent",
            help="Provisional to permanent, unprompted.",
            tone="good",
            asks=_REASON_REQUIRED,
        ),
        EventKind.IESG_APPROVE: Action(
            label="Approve for the IESG", help="The IESG has approved it.", tone="good", asks=_REASON_REQUIRED
        ),
        EventKind.IESG_DECLINE: Action(
            label="Decline for the IESG", help="The IESG has declined it.", tone="bad", asks=_REASON_REQUIRED
        ),
        EventKind.REASSIGN: Action(
            label="Reassign",
            help="Gives a provisional entry to another registrant.",
            asks=(
                ActionInput(id="to", label="Account id of the new registrant", required=True),
                ActionInput(id="change_controller", label="New change controller"),
                _make_reason_input(),
            ),
        ),
        EventKind.DEMAND_CHANGES: Action(
            label="Demand changes", help="The IESG asks the registrant for changes.", asks=_REASON_REQUIRED
        ),
        EventKind.ATTACH_SECURITY_NOTE: Action(
            label="Attach a security note",
            help="Security information that became known later.",
            asks=(
                ActionInput(id="text", label="What is to be known", kind="long", required=True),
                ActionInput(id="reference", label="Reference"),
            ),
        ),
        EventKind.DESIGNATE: Action(
            label="Say who else may change it",
            help="Account ids, separated by commas.",
            asks=(ActionInput(id="add", label="Add"), ActionInput(id="remove", label="Remove")),
        ),
        EventKind.RETIRE: Action(
            label="Retire",
            help="The name is no longer used; it stays taken.",
            tone="bad",
            asks=_REASON_REQUIRED,
        ),
        EventKind.DRAFT_PUBLISHED: Action(
            label="The draft is published",
            help="The Internet-Draft has become an RFC.",
            asks=(
                ActionInput(id="reference", label="Reference", required=True, help="For example [RFC7595]."),
            ),
        ),
        EventKind.ENTER_SAFE_MODE: Action(
            label="Put into safe mode", help="Lookup only.", asks=_REASON_REQUIRED
        ),
        EventKind.SUSPEND: Action(
            label="Suspend", help="Not resolved until reinstated.", tone="bad", asks=_REASON_REQUIRED
        ),
        EventKind.REINSTATE: Action(
            label="Reinstate", help="Active again.", tone="good", asks=_REASON_REQUIRED
        ),
        EventKind.REVOKE: Action(
            label="Revoke", help="Takes it back for good.", tone="bad", asks=_REASON_REQUIRED
        ),
        EventKind.RENEW: Action(
            label="Renew",
            help="Says until when it holds.",
            asks=(ActionInput(id="expires", label="Last day", kind="date", required=True),),
        ),
        EventKind.OVERRIDE: Action(
            label="Override",
            help="Outside the procedure: recorded with your name and the reason; another override undoes it.",
            tone="bad",
            asks=(ActionInput(id="status", label="New status", kind="choice"), _make_reason_input()),
        ),
    }
)


#: what an override can set instead of a status
_REMOVE: Final = "remove"


_UNDO: Final = Action(
    label="Undo the last override",
    help="The entry is as it was before it. This too is recorded with your name and the reason.",
    asks=(ActionInput(id="undoes", label="What is undone", kind="choice"), _make_reason_input()),
)


_CONTROL: Final = Action(
    label="Override who controls it",
    help="Fields left empty stay as they are. This too is recorded with your name and the reason.",
    tone="bad",
    asks=(
        ActionInput(id="registrant", label="Login or account id of the new registrant"),
        ActionInput(id="change_controller", label="New change controller"),
        ActionInput(id="iesg_approved", label="Does an IESG-approved document define it?", kind="choice"),
        _make_reason_input(),
    ),
)


#: members of an override that say who controls the entry, and whether the IESG approved what defines it
_SETTINGS: Final = tuple(field.id for field in _CONTROL.asks if field.id != "reason")


_FOR_CONTROLLERS: Final = frozenset({"registrant", "change_controller"})


#: who may say who controls an entry: the IESG; of a namespace the operator of the root too (engine, X)
_CONTROLLERS: Final = MappingProxyType({"ai-namespaces": frozenset({Role.IANA, Role.IESG})})


_IESG: Final = frozenset({Role.IESG})


_YES_OR_NO: Final = (
    Choice(value="", label="As it is"),
    Choice(value="yes", label="Yes"),
    Choice(value="no", label="No"),
)


_REGISTRANT: Final = frozenset(
    {
        EventKind.OPEN,
        EventKind.REVISE,
        EventKind.ANNOUNCE,
        EventKind.SUBMIT,
        EventKind.RESUBMIT,
        EventKind.WITHDRAW,
    }
)


def _list_event_scopes(kind: EventKind) -> frozenset[Scope]:
    """Of the roles that some rule opens the event to; `submit` where one opens it to an owner."""
    if kind in _REGISTRANT:
        return frozenset({Scope.SUBMIT})
    rules = [rule for rule in RULES if rule.event is kind and rule.effect is not None]
    roles = frozenset(role for rule in rules for role in rule.roles)
    owned = {Scope.SUBMIT} if any(rule.who is not None for rule in rules) else set()
    return frozenset(owned | {scope for scope in Scope if limit_roles(roles, (scope,))})


#: the scopes one of which a token needs before it may ask for an event; the roles are the engine's matter
EVENT_SCOPES: Final[Mapping[EventKind, frozenset[Scope]]] = MappingProxyType(
    {kind: _list_event_scopes(kind) for kind in EventKind}
)


#: kinds of request about an entry: label, help, what is asked
_REQUESTS: Final[Mapping[str, Action]] = MappingProxyType(
    {
        "update": Action(
            label="Update its registration",
            help="New contact, controller, references or text. Fields left empty stay as they are.",
        ),
        "status-change": Action(
            label="Change its status",
            help="Provisional to permanent is reviewed by the expert; permanent to historical is the IESG's.",
            asks=(ActionInput(id="status", label="New status", kind="choice"),),
        ),
        "note-separate-use": Action(
            label="Note a separate use",
            help="The name is in use for something else as well, and the entry should say so.",
            asks=(ActionInput(id="use", label="The other use", kind="long", required=True),),
        ),
        "reassign": Action(
            label="Ask for reassignment",
            help="The registrant is gone or does not answer. The IESG decides.",
            asks=(ActionInput(id="grounds", label="Grounds", kind="long", required=True),),
        ),
    }
)


def build_actions(
    kinds: Iterable[EventKind],
    *,
    href: str,
    version: int,
    about: Request | Entry,
    missing: Iterable[tuple[str, str]] = (),
) -> tuple[ActionView, ...]:
    """The buttons for these events. `missing` are (id, label) of fields that may be said to be missing."""
    options = {
        "status": (
            *(
                Choice(value=str(status), label=STATUS_LABELS[status][0])
                for status in REGISTRIES[about.registry].statuses
                if status is not about.status and status != "pending-review"
            ),
            Choice(value=_REMOVE, label="No entry: remove it"),
        ),
        "missing": tuple(Choice(value=key, label=label) for key, label in missing),
    }
    return tuple(
        _build_action_view(str(kind), ACTIONS[kind], href, version, options)
        for kind in kinds
        if kind in ACTIONS
    )


def build_change_requests(entry: Entry) -> tuple[ActionView, ...]:
    """The requests that may be opened about an entry; the engine has the last word on each."""
    schemes = entry.registry == "uri-schemes"
    options = {
        "status": tuple(
            Choice(value=word, label=word.capitalize())
            for word in ("permanent", "historical")
            if word != entry.status
        )
    }
    return tuple(
        _build_action_view(kind, action, urls.change_url(entry.registry, entry.name), entry.version, options)
        for kind, action in _REQUESTS.items()
        if kind == "update" or schemes
    )


def build_undo_actions(last: EntryChange, *, href: str, version: int) -> tuple[ActionView, ...]:
    """The button that undoes the last change of a name, where an override made it."""
    if last.event is not EventKind.OVERRIDE or last.before is None:
        return ()
    label = f"Record {last.number} of {format_date(last.at.date())}"
    options = {"undoes": (Choice(value=str(last.number), label=label),)}
    return (_build_action_view(str(EventKind.OVERRIDE), _UNDO, href, version, options),)


def build_control_actions(entry: Entry, roles: Iterable[Role], *, href: str) -> tuple[ActionView, ...]:
    """The button that says who controls an entry, for somebody who holds these roles and may override.

    A row that only shows a request has none.
    """
    if entry.status is Status.PENDING_REVIEW:
        return ()
    may = not _CONTROLLERS.get(entry.registry, _IESG).isdisjoint(roles)
    asks = tuple(ask for ask in _CONTROL.asks if may or ask.id not in _FOR_CONTROLLERS)
    action = replace(_CONTROL, asks=asks)
    return (
        _build_action_view(
            str(EventKind.OVERRIDE), action, href, entry.version, {"iesg_approved": _YES_OR_NO}
        ),
    )


def _build_action_view(
    kind: str, action: Action, href: str, version: int, options: Mapping[str, tuple[Choice, ...]]
) -> ActionView:
    fields = tuple(
        ActionField(
            id=ask.id,
            label=ask.label,
            kind=ask.kind,
            required=ask.required,
            help=ask.help,
            choices=options.get(ask.id, ()),
        )
        for ask in action.asks
        if ask.kind != "list" or options.get(ask.id)
    )
    return ActionView(
        kind=kind,
        label=action.label,
        help=action.help,
        tone=action.tone,
        href=href,
        version=version,
        fields=fields,
    )


def parse_event_data(kind: EventKind, form: Mapping[str, list[str]]) -> dict[str, Any]:
    """`Event.data` from a form. Raises UsageError for a required text left empty."""
    action = ACTIONS.get(kind)
    if action is None:
        raise UsageError("there is no button for this step", code="registry.bad-data", hint="use the API")
    data: dict[str, Any] = {}
    for ask in action.asks:
        values = [value.strip() for value in form.get(ask.id, []) if value.strip()]
        if ask.required and not values:
            raise UsageError(
                f"{ask.label}: this is needed", code="registry.missing-data", hint="go back and fill it"
            )
        if ask.kind == "list":
            data[ask.id] = values
        elif ask.id in ("add", "remove"):
            data[ask.id] = [part.strip() for text in values for part in text.split(",") if part.strip()]
        elif values:
            data[ask.id] = values[0]
    if kind is EventKind.OVERRIDE:
        undone = next((value.strip() for value in form.get("undoes", []) if value.strip()), None)
        given = {setting: "".join(form.get(setting, [])).strip() for setting in _SETTINGS}
        data |= {name: value for name, value in given.items() if value}
        if undone is not None:
            return {"undoes": undone, "reason": data["reason"]}
        if data.get("status") == _REMOVE:
            return {"remove": True, "reason": data["reason"]}
    return data
