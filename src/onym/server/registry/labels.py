"""Labels of statuses, states, roles, events and actions as data, and their translations."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date, datetime
from functools import cache, wraps
from gettext import NullTranslations
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from onym.accounts.sign_in import sanitize_target
from onym.errors import UnknownEntryError
from onym.registry.records import AppealLevel, AppealState, EventKind, RequestKind, RequestState, Role, Status
from onym.registry.registries import PROFILES, get_catalog
from onym.registry.words import apply_words
from onym.server.registry.urls import LANGUAGE_COOKIE, make_route

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request

    from onym.registry.records import Request as RegistrationRequest
    from onym.registry.registries import Registry

_Key = TypeVar("_Key")
_Parameters = ParamSpec("_Parameters")


class TextTable(Mapping[_Key, str], Generic[_Key]):
    """Texts by key, in the language of the page and the words of the registries in force.

    The labels `PREFIX.KEY` of the registries take precedence.
    """

    def __init__(self, prefix: str, texts: Mapping[_Key, str]) -> None:
        self._prefix = prefix
        self._texts = texts

    def __getitem__(self, key: _Key) -> str:
        text = self._texts[key]
        return get_catalog().labels.get(f"{self._prefix}.{key}") or apply_words(translate_text(text))

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


_STATUS_LABELS: Final[Mapping[Status, str]] = {
    Status.PERMANENT: "Permanent",
    Status.PROVISIONAL: "Provisional",
    Status.HISTORICAL: "Historical",
    Status.PENDING_REVIEW: "Pending Review",
    Status.REGISTERED: "Registered",
    Status.DEPRECATED: "Deprecated",
    Status.ACTIVE: "Active",
    Status.SAFE_MODE: "Safe mode",
    Status.SUSPENDED: "Suspended",
    Status.REVOKED: "Revoked",
    Status.EXPIRED: "Expired",
}
#: a sign for each status, so that the status does not depend on colour
STATUS_SIGNS: Final = dict(zip(_STATUS_LABELS, "●◐○◔●○●◐‖✗○", strict=True))

STATUS_LABELS: Final = TextTable("status", _STATUS_LABELS)
#: the colour of a status
STATUS_TONES: Final[Mapping[Status, str]] = {
    Status.PERMANENT: "good",
    Status.PROVISIONAL: "info",
    Status.HISTORICAL: "past",
    Status.PENDING_REVIEW: "warn",
    Status.REGISTERED: "good",
    Status.DEPRECATED: "past",
    Status.ACTIVE: "good",
    Status.SAFE_MODE: "warn",
    Status.SUSPENDED: "bad",
    Status.REVOKED: "bad",
    Status.EXPIRED: "past",
}

_STATUS_HELP: Final[Mapping[Status, str]] = {
    Status.PERMANENT: "Reviewed by the Designated Expert and meant to last.",
    Status.PROVISIONAL: "Registered so that names do not clash. Not reviewed for long-term use.",
    Status.HISTORICAL: "No longer in common use. The name stays registered.",
    Status.PENDING_REVIEW: "Requested and not yet decided. Others should not use the name.",
    Status.REGISTERED: "Reviewed and in use.",
    Status.DEPRECATED: "No longer recommended. The name stays registered.",
    Status.ACTIVE: "Allocated and active.",
    Status.SAFE_MODE: "Allocated. Its resources can be looked up and must not act.",
    Status.SUSPENDED: "Must not be resolved until it is reinstated.",
    Status.REVOKED: "Withdrawn. It must not be resolved and is not allocated again.",
    Status.EXPIRED: "Expired and not renewed.",
}
STATUS_HELP: Final = TextTable("status-help", _STATUS_HELP)

_REQUEST_KIND_LABELS: Final[Mapping[RequestKind, str]] = {
    RequestKind.NEW: "New registration",
    RequestKind.UPDATE: "Update",
    RequestKind.STATUS_CHANGE: "Change of status",
    RequestKind.SEPARATE_USE: "Note of a separate use",
    RequestKind.REASSIGN: "Reassignment",
}
REQUEST_KIND_LABELS: Final = TextTable("kind", _REQUEST_KIND_LABELS)

_STATE_LABELS: Final[Mapping[RequestState, str]] = {
    RequestState.DRAFT: "Draft",
    RequestState.LIST_REVIEW: "Mailing list review",
    RequestState.SUBMITTED: "Submitted to IANA",
    RequestState.EXPERT_REVIEW: "Expert Review",
    RequestState.MORE_REVIEW: "More review requested",
    RequestState.IETF_REVIEW: "IETF review and IESG approval",
    RequestState.APPROVED: "Approved",
    RequestState.REJECTED: "Rejected",
    RequestState.WITHDRAWN: "Withdrawn",
    RequestState.TIMED_OUT: "Registered provisionally after the review timeout",
    RequestState.APPEAL: "Under appeal",
}

#: the colour and the sign of a request's state: how it ended, or that it is open
STATE_TONES: Final[Mapping[RequestState, tuple[str, str]]] = {
    RequestState.DRAFT: ("past", "○"),
    RequestState.LIST_REVIEW: ("warn", "◔"),
    RequestState.SUBMITTED: ("warn", "◔"),
    RequestState.EXPERT_REVIEW: ("warn", "◔"),
    RequestState.MORE_REVIEW: ("warn", "◔"),
    RequestState.IETF_REVIEW: ("warn", "◔"),
    RequestState.APPEAL: ("warn", "◔"),
    RequestState.APPROVED: ("good", "✓"),
    RequestState.REJECTED: ("bad", "✗"),
    RequestState.WITHDRAWN: ("past", "‖"),
    RequestState.TIMED_OUT: ("info", "✓"),
}
STATE_LABELS: Final = TextTable("state", _STATE_LABELS)

_NEXT_STEPS: Final[Mapping[RequestState, str]] = {
    RequestState.DRAFT: "The registrant finishes the draft, then announces or submits it.",
    RequestState.LIST_REVIEW: "The mailing list comments. The registrant then revises or submits it.",
    RequestState.SUBMITTED: "IANA checks that it is complete, then registers it or sends it to review.",
    RequestState.EXPERT_REVIEW: "The expert approves or rejects it, or asks for more review.",
    RequestState.MORE_REVIEW: "The registrant answers the expert's questions. Then the review continues.",
    RequestState.IETF_REVIEW: "The IESG approves or declines it.",
    RequestState.APPROVED: "It is approved and registered.",
    RequestState.REJECTED: "It was rejected. To try again, open a new request.",
    RequestState.WITHDRAWN: "The registrant withdrew it.",
    RequestState.TIMED_OUT: "It was not rejected in time, so the name is registered as provisional.",
    RequestState.APPEAL: "The appeal is upheld or dismissed. The decision applies until then.",
}

NEXT_STEPS: Final = TextTable("next", _NEXT_STEPS)


def describe_next_step(request: RegistrationRequest) -> str:
    """Return the next step of a request under its profile."""
    profile = PROFILES[request.profile]
    policy = profile.policies.get(request.status)
    text = ""
    if request.state is RequestState.DRAFT and request.status not in profile.list_review:
        text = translate_text("The registrant finishes the draft, then submits it.")
    elif request.state is RequestState.SUBMITTED and policy and policy.at_once and request.kind == "new":
        text = translate_text(
            "IANA checks that it is complete, then registers it at once (first come, first served)."
        )
    elif request.state is RequestState.REJECTED and request.outcome == "incomplete":
        text = translate_text("It was returned as incomplete. Revise it and submit it again.")
    if not text or f"next.{request.state}" in get_catalog().labels:
        return NEXT_STEPS[request.state]
    return apply_words(text)


_APPEAL_LEVEL_LABELS: Final[Mapping[AppealLevel, str]] = {
    AppealLevel.IESG: "Appeal to the IESG",
    AppealLevel.IAB: "Appeal to the IAB",
}
APPEAL_LEVEL_LABELS: Final = TextTable("appeal-level", _APPEAL_LEVEL_LABELS)
_APPEAL_STATE_LABELS: Final[Mapping[AppealState, str]] = {
    AppealState.PENDING: "Not decided yet",
    AppealState.UPHELD: "Upheld",
    AppealState.DISMISSED: "Dismissed",
    AppealState.WITHDRAWN: "Withdrawn",
}
APPEAL_STATE_LABELS: Final = TextTable("appeal-state", _APPEAL_STATE_LABELS)

_ROLE_LABELS: Final[Mapping[Role, str]] = {
    Role.REGISTRANT: "the registrant",
    Role.IANA: "IANA",
    Role.EXPERT: "the Designated Expert",
    Role.IESG: "the IESG",
    Role.READER: "a reader",
}
ROLE_LABELS: Final = TextTable("role", _ROLE_LABELS)

#: roles as they appear after a name
_ROLE_TITLES: Final[Mapping[Role, str]] = {
    Role.REGISTRANT: "registrant",
    Role.IANA: "IANA",
    Role.EXPERT: "Designated Expert",
    Role.IESG: "IESG",
    Role.READER: "reader",
}
ROLE_TITLES: Final = TextTable("role-title", _ROLE_TITLES)

#: event -> its name in the history
_EVENT_LABELS: Final[Mapping[EventKind, str]] = {
    EventKind.OPEN: "Draft request opened",
    EventKind.REVISE: "Revised",
    EventKind.ANNOUNCE: "Announced for list review",
    EventKind.SUBMIT: "Submitted to IANA",
    EventKind.RESUBMIT: "Corrected and submitted again",
    EventKind.WITHDRAW: "Withdrawn",
    EventKind.CHECK_COMPLETE: "Checked by IANA",
    EventKind.REJECT_INCOMPLETE: "Rejected as incomplete",
    EventKind.ASK_MORE_REVIEW: "More review requested",
    EventKind.RESUME_REVIEW: "Review resumed",
    EventKind.APPROVE: "Approved",
    EventKind.APPROVE_AS_PROVISIONAL: "Approved as provisional",
    EventKind.ASK_IETF_REVIEW: "IETF review requested",
    EventKind.REJECT: "Rejected",
    EventKind.ASK_UPGRADE: "Made permanent",
    EventKind.ASSIGN_EXPERT: "Expert assigned",
    EventKind.RECUSE: "Expert recused",
    EventKind.APPOINT_EXPERT: "Temporary expert appointed",
    EventKind.LINK_MESSAGES: "Messages of the list linked",
    EventKind.APPEAL: "Appealed to the IESG",
    EventKind.APPEAL_TO_IAB: "Appealed to the IAB",
    EventKind.WITHDRAW_APPEAL: "Appeal withdrawn",
    EventKind.UPHOLD_APPEAL: "Appeal upheld",
    EventKind.DISMISS_APPEAL: "Appeal dismissed",
    EventKind.REMIND: "Reminder sent",
    EventKind.IESG_APPROVE: "Approved by the IESG",
    EventKind.IESG_DECLINE: "Declined by the IESG",
    EventKind.REASSIGN: "Reassigned",
    EventKind.DEMAND_CHANGES: "Changes demanded",
    EventKind.ATTACH_SECURITY_NOTE: "Security note attached",
    EventKind.DESIGNATE: "Designees changed",
    EventKind.RETIRE: "Retired",
    EventKind.REVIEW_TIMEOUT: "Review timed out",
    EventKind.EXPIRY_NEAR: "Told of its expiry",
    EventKind.DRAFT_EXPIRED: "Internet-Draft expired",
    EventKind.DRAFT_PUBLISHED: "Internet-Draft published",
    EventKind.NAMESPACE_EXPIRED: "Namespace expired",
    EventKind.ENTER_SAFE_MODE: "Put into safe mode",
    EventKind.SUSPEND: "Suspended",
    EventKind.REINSTATE: "Reinstated",
    EventKind.REVOKE: "Revoked",
    EventKind.RENEW: "Renewed",
    EventKind.IMPORT: "Imported",
    EventKind.DEFINE: "Registries defined",
    EventKind.OVERRIDE: "Recorded override",
    EventKind.REDACT: "Removed personal data",
}

#: the colour of the events that end a request without an entry
ENDING_TONES: Final[Mapping[EventKind, str]] = {
    EventKind.REJECT: "bad",
    EventKind.REJECT_INCOMPLETE: "bad",
    EventKind.IESG_DECLINE: "bad",
    EventKind.WITHDRAW: "past",
}
EVENT_LABELS: Final = TextTable("event", _EVENT_LABELS)

#: value of `done` in the URL -> message after a form; an event has its label
_DONE_MESSAGES: Final[Mapping[str, str]] = {
    "open": "Saved as a draft request. Its next steps are below.",
    "account-added": "The account is added.",
    "account-saved": "The account is saved.",
    "account-disabled": "The account is disabled. Its sessions have ended.",
    "account-enabled": "The account is enabled.",
    "signed-in": "You are signed in.",
    "signed-out": "You are signed out.",
}
DONE_MESSAGES: Final = TextTable("done", _DONE_MESSAGES)


def describe_done(done: str) -> str:
    """Return the message after a form with this value of `done`, or ""."""
    if done in DONE_MESSAGES:
        return DONE_MESSAGES[done]
    label = next((label for kind, label in _EVENT_LABELS.items() if kind == done), "")
    own = get_catalog().labels.get(f"done.{done}")
    return own or (label and apply_words(f"{translate_text(label)}."))


#: the summaries and short titles of the built-in registries
REGISTRY_SUMMARIES: Final[Mapping[str, str]] = {
    "uri-schemes": "The part before the first colon of a URI, such as http, mailto or llm.",
    "llm-parameters": "Standard query parameters of llm: URIs, with their meaning.",
    "ai-namespaces": "Names under ai: that are not domain names, with their keys and status.",
}


#: a good value of a template's field
FIELD_EXAMPLES: Final[Mapping[str, Mapping[str, str]]] = {
    "uri-schemes": {
        "name": "parcel",
        "syntax": 'parcel-URI = "parcel:" 1*40( ALPHA / DIGIT / "-" )',
        "semantics": "Names a parcel by its tracking number. The default operation is to show where it is.",
        "encoding": "UTF-8, percent-encoded as in RFC 3986 2.5",
        "applications": "Tracking apps of carriers; the Example Parcel Protocol [EPP]",
        "interoperability": "Some carriers use upper-case numbers. Compare them without regard to case.",
        "security": "A tracking number reveals an address, so do not log these URIs; see [EPP] section 6.",
        "contact": "Ann Example <ann@example.net>",
        "change_controller": "Example Foundation <standards@example.net>",
        "references": "[EPP] https://example.net/spec/epp-1",
    },
    "llm-parameters": {
        "name": "min_p",
        "type": "number",
        "description": "The least probability of a token, relative to the likeliest token",
        "contact": "Ann Example <ann@example.net>",
        "change_controller": "Example Foundation <standards@example.net>",
        "reference": "https://example.net/min_p",
    },
    "ai-namespaces": {
        "name": "agents",
        "anchor": "https://agents.example",
        "keys": "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs",
        "description": "Agents of the Example Foundation",
        "contact": "Ann Example <ann@example.net>",
        "change_controller": "Example Foundation <standards@example.net>",
        "expires": "2027-11-21",
    },
}

_LABELS: Final[Mapping[type, Mapping[Any, str]]] = {
    Status: STATUS_LABELS,
    RequestKind: REQUEST_KIND_LABELS,
    RequestState: STATE_LABELS,
    Role: ROLE_LABELS,
    EventKind: EVENT_LABELS,
    AppealLevel: APPEAL_LEVEL_LABELS,
    AppealState: APPEAL_STATE_LABELS,
}


def get_label(
    value: Status | RequestKind | RequestState | Role | EventKind | AppealLevel | AppealState,
) -> str:
    """Return the label of a status, kind of request, state, role, event or appeal."""
    return _LABELS[type(value)][value]


def format_roles(roles: Iterable[Role]) -> str:
    """Return the roles as text, the registrant last."""
    order = (Role.IANA, Role.EXPERT, Role.IESG, Role.REGISTRANT)
    held = set(roles)
    return ", ".join(ROLE_TITLES[role] for role in order if role in held)


def format_time(at: datetime | None) -> str:
    """Return a time as ISO 8601 to the minute, in UTC; "" for None."""
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M") + "Z"


def format_date(on: date | None) -> str:
    """Return a date as ISO 8601; "" for None."""
    return "" if on is None else on.isoformat()


#: language -> its name in itself
LANGUAGES: Final[Mapping[str, str]] = {"en": "English", "de": "Deutsch"}
DEFAULT: Final = "en"
_LANGUAGE: Final[ContextVar[str]] = ContextVar("page_language", default=DEFAULT)
_YEAR: Final = 366 * 24 * 3600
#: ranges of Accept-Language that are read
_MOST_RANGES: Final = 20


class Translations(NullTranslations):
    """The texts of one language: English text -> translation. A text without one stays English."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        if language != DEFAULT:
            data = files("onym.server.registry").joinpath("texts", f"{language}.json").read_bytes()
            self.texts = json.loads(data)

    def gettext(self, message: str) -> str:
        """Return the translation of a text."""
        return self.texts.get(message, message)

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        """Return the translation of the form for this number. Both languages have one form for one."""
        return self.gettext(msgid1 if n == 1 else msgid2)


@cache
def load_translations(language: str) -> Translations:
    """Return the texts of a language, read once."""
    return Translations(language)


def translate_text(message: str) -> str:
    """Return a text of Onym in the language in force; for texts that are not a template's own.

    In a template, `_()` takes its text for HTML and for a format. Names, reasons and an operator's words must
    get to neither function.
    """
    return load_translations(_LANGUAGE.get()).gettext(message)


def translate_plural(one: str, many: str, number: int) -> str:
    """Return the form of a text for a number, in the language in force."""
    return load_translations(_LANGUAGE.get()).ngettext(one, many, number)


def translate_row(text: str, row: Registry) -> str:
    """Return a text of a registry: a built-in one's in the language in force, an operator's as it is."""
    return text if row.is_defined else translate_text(text)


def name_entries(row: Registry, count: int) -> str:
    """Return the word for this number of the registry's entries."""
    return translate_row(row.noun if count == 1 else f"{row.noun}s", row)


def format_inside(label: str) -> str:
    """Return a label as it appears inside a sentence: German nouns keep their first letter."""
    return label.lower() if _LANGUAGE.get() == DEFAULT else label[:1].lower() + label[1:]


def mark_english() -> Markup:
    """Return the attribute `lang` of an element with English text; "" on an English page."""
    return Markup("") if _LANGUAGE.get() == DEFAULT else Markup(' lang="en"')


def install_translations(environment: Environment) -> None:
    """Let the templates translate: `_()`, `gettext()` and `{% trans %}`."""
    environment.add_extension("jinja2.ext.i18n")
    environment.install_gettext_callables(translate_text, translate_plural, newstyle=True)  # type: ignore[attr-defined]


@contextmanager
def use_language(language: str) -> Iterator[None]:
    """Translate the texts inside the block."""
    token = _LANGUAGE.set(language)
    try:
        yield
    finally:
        _LANGUAGE.reset(token)


def get_language() -> str:
    """Return the language in force."""
    return _LANGUAGE.get()


def translate_page(
    handler: Callable[Concatenate[Request, _Parameters], Awaitable[Response]],
) -> Callable[Concatenate[Request, _Parameters], Awaitable[Response]]:
    """Answer with a page in the visitor's language. A page without this mark is English as a whole."""

    @wraps(handler)
    async def answer(request: Request, /, *args: _Parameters.args, **members: _Parameters.kwargs) -> Response:
        with use_language(choose_language(request)):
            return await handler(request, *args, **members)

    return answer


def choose_language(request: Request) -> str:
    """Return the language of the cookie, or the best of Accept-Language (RFC 9110 12.5.4)."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    best, language = 0.0, DEFAULT
    for part in request.headers.get("accept-language", "").split(",")[:_MOST_RANGES]:
        name, _, quality = part.strip().lower().partition(";q=")
        found = name.partition("-")[0]
        try:
            weight = min(float(quality), 1.0) if quality else 1.0
        except ValueError:
            weight = 0.0
        if found in LANGUAGES and weight > best:
            best, language = weight, found
    return language


async def set_language(request: Request) -> Response:
    """GET: remember a language in a cookie, and go back to the page in `next`."""
    language = request.path_params["language"]
    if language not in LANGUAGES:
        raise UnknownEntryError(
            f"there are no pages in the language {language[:20]!r}",
            code="http.unknown-language",
            field="language",
            hint=f"Choose one of {', '.join(LANGUAGES)}.",
        )
    response = RedirectResponse(sanitize_target(request.query_params.get("next")), 303)
    response.set_cookie(
        LANGUAGE_COOKIE, language, max_age=_YEAR, httponly=True, samesite="lax",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    response.headers["cache-control"] = "no-store"
    return response


ROUTES: Final = (make_route("/language/{language}", {"GET": set_language}),)
