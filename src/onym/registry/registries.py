"""The three registries and their procedures, as data: one engine serves them all.

A registry has a rule for names, profiles for requests, and the statuses and columns of its entries. A profile
has the template, the reviews and the duration of each step, each with its clause. The order of the steps is
in the engine's rules.

The rows in force are those below, or those that an operator defined (`definitions.py`): `REGISTRIES` and
`PROFILES` show the rows of the present context, which `use_catalog` sets (docs/decisions/0057).

`rfc4395` and `rfc7595` are for URI schemes; `specification-required` is RFC 8126 4.6 for parameters
(draft-levy-llm-uri-scheme-00 12.2); `expert-review` is RFC 8126 4.5 for namespaces.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from onym.errors import UnknownEntryError
from onym.registry.records import RequestState, Role, Status

#: an Internet-Draft expires this long after its date
DRAFT_LIFETIME: Final = timedelta(days=185)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateField:
    """One field of a registration template.

    `labels` are the accepted spellings, the standard's label first; `required` is for every request,
    `required_for` for requests of these statuses. Other templates use the `weak` labels too; `stand_ins` are
    read as this field only if the text has no other label of it.
    """

    id: str
    labels: tuple[str, ...]
    weak: frozenset[str] = frozenset()
    stand_ins: frozenset[str] = frozenset()
    clause: str
    guideline: str
    required: bool = True
    required_for: frozenset[Status] = frozenset()
    #: the words under the input of a form
    help: str = ""

    @property
    def label(self) -> str:
        """The label in the standard."""
        return self.labels[0]

    @property
    def heading(self) -> str:
        """The label with a capital letter, for pages and tables."""
        return self.label[:1].upper() + self.label[1:]

    def is_required_for(self, status: Status) -> bool:
        """Report whether a request for `status` must fill the field."""
        return self.required or status in self.required_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How requests for one status are decided, in the terms of RFC 8126 4."""

    name: str
    clause: str
    #: IANA registers it at once, first come first served
    at_once: bool = False
    #: the role that decides after IANA's check
    decided_by: Role = Role.EXPERT
    #: the reasonable duration of the decision; None: the profile's `expert_time`
    time: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReminderPlan:
    """When the holder of an overdue request is reminded, and whom reminders go to from number `escalate`.

    The first reminder is after `wait` in the state (or at the due date if `by_due`), the others `every` so
    long, `most` in all.
    """

    wait: timedelta
    every: timedelta
    most: int
    by_due: bool = False
    escalate: int
    escalate_to: tuple[Role, ...]
    clause: str


_PLAN: Final = "docs/decisions/0054"
#: the reminders of each state (docs/decisions/0054)
REMINDER_PLANS: Final[Mapping[RequestState, ReminderPlan]] = {
    RequestState.DRAFT: ReminderPlan(
        wait=timedelta(days=30), every=timedelta(days=30), most=3, escalate=3, escalate_to=(), clause=_PLAN
    ),
    RequestState.LIST_REVIEW: ReminderPlan(
        wait=timedelta(days=28), every=timedelta(days=14), most=3, by_due=True,
        escalate=3, escalate_to=(Role.IANA,), clause=_PLAN,
    ),
    RequestState.SUBMITTED: ReminderPlan(
        wait=timedelta(days=7), every=timedelta(days=7), most=4,
        escalate=3, escalate_to=(Role.IESG,), clause=_PLAN,
    ),
    RequestState.EXPERT_REVIEW: ReminderPlan(
        wait=timedelta(days=21), every=timedelta(days=7), most=6, by_due=True,
        escalate=2, escalate_to=(Role.IANA, Role.IESG), clause="RFC 8126 5.3",
    ),
    RequestState.MORE_REVIEW: ReminderPlan(
        wait=timedelta(days=28), every=timedelta(days=14), most=3,
        escalate=3, escalate_to=(Role.EXPERT, Role.IANA), clause=_PLAN,
    ),
    RequestState.IETF_REVIEW: ReminderPlan(
        wait=timedelta(days=60), every=timedelta(days=30), most=4,
        escalate=2, escalate_to=(Role.IANA,), clause=_PLAN,
    ),
    RequestState.APPEAL: ReminderPlan(
        wait=timedelta(days=60), every=timedelta(days=14), most=6, by_due=True,
        escalate=2, escalate_to=(Role.IANA,), clause="RFC 8126 10",
    ),
}  # fmt: skip

#: two months, never shorter than two calendar months: the time to appeal (RFC 2026 6.5.4)
APPEAL_WINDOW: Final = timedelta(days=62)
#: after another person's appeal was answered
APPEAL_WINDOW_OF_OTHERS: Final = timedelta(days=30)
#: the time in which the answer to an appeal is expected (docs/decisions/0054)
APPEAL_TIME: Final = timedelta(days=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReview:
    """Review on uri-review@ietf.org: the reasonable duration, and whether a submission needs it."""

    reasonable: timedelta
    required: bool
    clause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One registration procedure. `policies` are by the status asked for, as is `list_review`."""

    id: str
    title: str
    document: str
    template_clause: str
    fields: tuple[TemplateField, ...]
    #: optional fields of the other template
    elsewhere: tuple[TemplateField, ...] = ()
    policies: Mapping[Status, Policy]
    list_review: Mapping[Status, ListReview]
    #: without an answer for this time it is registered provisionally (RFC 4395 5.2 step 6); None: never
    expert_timeout: timedelta | None = None
    #: the reasonable duration of a review, for the due date (RFC 8126 5.3)
    expert_time: timedelta
    #: the spellings of the statuses that a request can ask for
    status_words: tuple[str, ...]
    status_clause: str
    #: decisions can be appealed to the IESG's role (RFC 8126 10)
    appeals: bool = True
    #: of a profile that an operator defined, the rules that it uses: "simple" or "staged"
    own_rules: str | None = None

    @property
    def rules(self) -> str:
        """The key of this profile in the clauses of rules and checks."""
        return self.own_rules or self.id

    @property
    def checks(self) -> str:
        """The key of this profile in the clauses of the checks: a defined profile has no scheme's syntax."""
        return self.id if self.own_rules is None else "specification-required"

    def cite(self, clause: str) -> str:
        """Return the clause of a rule as it is recorded; a defined profile has only its document."""
        return clause if self.own_rules is None else self.document

    @property
    def all_fields(self) -> tuple[TemplateField, ...]:
        """The fields of this template and of the other."""
        return (*self.fields, *self.elsewhere)

    def find_field(self, identifier: str) -> TemplateField | None:
        """Return the field with this ID, of this template or of the other."""
        return next((field for field in self.all_fields if field.id == identifier), None)

    def list_missing_fields(self, status: Status, given: Mapping[str, str]) -> tuple[TemplateField, ...]:
        """Return the fields that a request for `status` needs and `given` leaves out or empty."""
        return tuple(
            field
            for field in self.fields
            if field.is_required_for(status) and not given.get(field.id, "").strip()
        )


_Row: TypeAlias = tuple[str, str, str, bool]
#: before a label in the rows below
_WEAK: Final = "?"
_STAND_IN: Final = "~"


def _select_marked(labels: str, mark: str) -> frozenset[str]:
    return frozenset(item.removeprefix(mark) for item in labels.split("|") if item.startswith(mark))


def _build_fields(document: str, clause: str, rows: tuple[_Row, ...]) -> tuple[TemplateField, ...]:
    """Return fields from rows of (ID, guideline sections, labels separated by |, required).

    A label with `?` is weak, one with `~` is a stand-in.
    """
    return tuple(
        TemplateField(
            id=identifier,
            labels=tuple(dict.fromkeys(item.lstrip(_WEAK + _STAND_IN) for item in labels.split("|"))),
            weak=_select_marked(labels, _WEAK),
            stand_ins=_select_marked(labels, _STAND_IN),
            clause=f"{document} {clause}",
            guideline=f"{document} {guideline}",
            required=required,
        )
        for identifier, guideline, labels, required in rows
    )


_NAME: Final = "scheme name|URI scheme name|?URI scheme|?scheme|?name|?URI name"
# %s is what the standard calls a scheme's name
_APPLICATIONS: Final = "|".join(
    (
        "applications/protocols that use this %s",
        "applications and/or protocols that use this %s",
        "applications/protocols that use this scheme",
        "applications/protocols that use this URI scheme",
        "applications that use this URI scheme name",
        "applications/protocols",
        "applications",
        "~intended usage",  # RFC 2717 6.0
    )
)
_CONTROLLER: Final = "|".join(
    (
        "change controller",
        "author/change controller",
        "author/change controllers",
        "change controllers",
        "~author",
        "owner/change controller",
    )
)
_CONTACT: Final = "|".join(
    (
        "contact",
        "contacts",
        "contact information",
        "~registrant",
        "person & email address to contact for further information",
    )
)
# the last is of RFC 2717 6.0
_REFERENCES: Final = "references|reference|citations|~specification|~relevant publications"

_RFC4395_FIELDS: Final = _build_fields(
    "RFC 4395",
    "5.4",
    (
        ("name", "2.8", "URI scheme name|" + _NAME, True),
        ("status", "5.4", "status|requested status|registration status", True),
        ("syntax", "2.2", "URI scheme syntax|scheme syntax|syntax", True),
        ("semantics", "2.3, 2.4", "URI scheme semantics|scheme semantics|semantics", True),
        ("encoding", "2.3, 2.6", "encoding considerations|character encoding considerations|encoding", True),
        ("applications", "2.5", _APPLICATIONS.replace("%s", "URI scheme name"), True),
        ("interoperability", "5.4", "interoperability considerations|interoperability", True),
        ("security", "2.7", "security considerations|security and privacy considerations|security", True),
        ("contact", "5.4", _CONTACT, True),
        ("change_controller", "5.4", "author/change controller|" + _CONTROLLER, True),
        ("references", "5.4", _REFERENCES, True),
    ),
)

_RFC7595_FIELDS: Final = _build_fields(
    "RFC 7595",
    "7.4",
    (
        ("name", "3.8", _NAME, True),
        ("status", "7.4", "status|requested status|registration status", True),
        ("applications", "3.5", _APPLICATIONS.replace("%s", "scheme name"), True),
        ("contact", "7.4", _CONTACT, True),
        ("change_controller", "7.4", _CONTROLLER, True),
        ("references", "7.4", _REFERENCES, True),
    ),
)

_RFC7595_ELSEWHERE: Final = _build_fields(
    "RFC 7595",
    "7.4",
    (
        ("syntax", "3.2", "scheme syntax|URI scheme syntax|syntax", False),
        ("semantics", "3.3, 3.4", "scheme semantics|URI scheme semantics|semantics", False),
        ("encoding", "3.3, 3.6", "encoding considerations|character encoding considerations|encoding", False),
        ("interoperability", "3.9", "interoperability considerations|interoperability", False),
        ("security", "3.7", "security considerations|security and privacy considerations|security", False),
    ),
)

_PARAMETER_FIELDS: Final = _build_fields(
    "draft-levy-llm-uri-scheme-00",
    "12.2",
    (
        ("name", "6", "parameter|parameter name|?name", True),
        ("type", "6", "type|value type", True),
        ("description", "6", "description", True),
        ("contact", "12.2", _CONTACT, True),
        ("change_controller", "12.2", _CONTROLLER, True),
        ("reference", "12.2", "reference|references|~specification", True),
    ),
)

_NAMESPACE_FIELDS: Final = _build_fields(
    "docs/decisions/0027",
    "namespaces",
    (
        ("name", "label", "namespace|?name|?label", True),
        ("anchor", "anchor", "anchor|anchor origin", True),
        ("keys", "keys", "keys|key thumbprints", False),
        ("description", "description", "description|purpose", True),
        ("contact", "contact", _CONTACT, True),
        ("change_controller", "change controller", _CONTROLLER, True),
        ("expires", "expiry", "expires|expiry", False),
    ),
)

_FOUR_WEEKS: Final = timedelta(days=28)
_EXPERT = "Expert Review"


def _build_list_review(required: bool, clause: str) -> Mapping[Status, ListReview]:
    return {Status.PERMANENT: ListReview(reasonable=_FOUR_WEEKS, required=required, clause=clause)}


_PROFILES: Final[Mapping[str, Profile]] = {
    item.id: item
    for item in (
        Profile(
            id="rfc4395",
            title="RFC 4395 (BCP 115, 2006)",
            document="RFC 4395",
            template_clause="RFC 4395 5.4",
            fields=_RFC4395_FIELDS,
            policies={
                Status.PERMANENT: Policy(name=_EXPERT, clause="RFC 4395 5.1"),
                Status.PROVISIONAL: Policy(name=_EXPERT, clause="RFC 4395 5.1"),
                Status.HISTORICAL: Policy(name=_EXPERT, clause="RFC 4395 5.1"),
            },
            list_review=_build_list_review(required=False, clause="RFC 4395 5.2 item 3"),
            expert_timeout=timedelta(days=14),
            expert_time=timedelta(days=14),
            status_words=("permanent", "provisional", "historical"),
            status_clause="RFC 4395 5.4",
        ),
        Profile(
            id="rfc7595",
            title="RFC 7595 (BCP 35, 2015)",
            document="RFC 7595",
            template_clause="RFC 7595 7.4",
            fields=_RFC7595_FIELDS,
            elsewhere=_RFC7595_ELSEWHERE,
            policies={
                Status.PERMANENT: Policy(name=_EXPERT, clause="RFC 7595 7.1"),
                Status.PROVISIONAL: Policy(
                    name="First Come First Served", clause="RFC 7595 7.1", at_once=True
                ),
                Status.HISTORICAL: Policy(name=_EXPERT, clause="RFC 7595 7.1"),
            },
            list_review=_build_list_review(required=True, clause="RFC 7595 7.2 item 3"),
            expert_time=timedelta(days=21),
            status_words=("Permanent", "Provisional", "Historical"),
            status_clause="RFC 7595 7.4",
        ),
        Profile(
            id="specification-required",
            title="Specification Required (RFC 8126 4.6)",
            document="RFC 8126",
            template_clause="draft-levy-llm-uri-scheme-00 12.2",
            fields=_PARAMETER_FIELDS,
            policies={Status.REGISTERED: Policy(name="Specification Required", clause="RFC 8126 4.6")},
            list_review={},
            expert_time=timedelta(days=21),
            status_words=("Registered",),
            status_clause="RFC 8126 4.6",
        ),
        Profile(
            id="expert-review",
            title="Expert Review (RFC 8126 4.5)",
            document="RFC 8126",
            template_clause="docs/decisions/0027",
            fields=_NAMESPACE_FIELDS,
            policies={Status.ACTIVE: Policy(name=_EXPERT, clause="RFC 8126 4.5")},
            list_review={},
            expert_time=timedelta(days=21),
            status_words=("Active",),
            status_clause="RFC 8126 4.5",
        ),
    )
}


def get_profile(identifier: str) -> Profile:
    """Return the profile with this ID. Raises UnknownEntryError."""
    try:
        return PROFILES[identifier]
    except KeyError:
        raise UnknownEntryError(
            "there is no such profile",
            code="registry.unknown-profile",
            field="profile",
            hint=f"Choose one of {', '.join(PROFILES)}.",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a registry: the field's ID and its heading."""

    id: str
    heading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """One registry. `name_pattern` matches a whole name, in lower case if `fold_case`."""

    id: str
    title: str
    #: the word for one entry
    noun: str
    name_pattern: re.Pattern[str]
    name_clause: str
    name_rule: str
    #: the longest name in characters, and the source of the limit
    name_limit: int
    limit_clause: str
    #: names are compared and stored in lower case
    fold_case: bool
    profiles: tuple[str, ...]
    #: the profile of a request that names none
    default_profile: str
    statuses: tuple[Status, ...]
    #: the status that the checker assumes for a text without one; a request must name its status
    default_status: Status
    columns: tuple[Column, ...]
    reference: str
    #: one sentence about it; "" for a built-in registry
    summary: str = ""
    #: the name in the navigation; "" for the title
    short_title: str = ""

    @property
    def is_defined(self) -> bool:
        """Report whether an operator defined this registry."""
        return self.id not in _REGISTRIES

    def normalize_name(self, name: str) -> str:
        """Return the name as the registry stores it."""
        text = name.strip()
        # only ASCII letters: the Kelvin sign is not a k
        return text.lower() if self.fold_case and text.isascii() else text

    def map_headings(self) -> dict[str, str]:
        """Return field IDs with their headings: the columns, then the other fields of the templates."""
        headings = {column.id: column.heading for column in self.columns}
        for name in self.profiles:
            for template_field in PROFILES[name].all_fields:
                headings.setdefault(template_field.id, template_field.heading)
        return headings

    def is_valid_name(self, key: str) -> bool:
        """Report whether a normalized name is valid in this registry."""
        return len(key) <= self.name_limit and self.name_pattern.fullmatch(key) is not None


#: quotes, brackets, emphasis and punctuation that texts put around a name
_MARKS: Final = re.compile(r"^[\s\"'<`\u2018\u2019\u201c\u201d*]+|[\s\"'>`\u2018\u2019\u201c\u201d*.,;]+$")
#: characters of a text that can be a name
_MAX_NAME_TEXT: Final = 4096
#: the end of a scheme's name in a URI
_SCHEME_END: Final = re.compile(r":(?://)?$")


def clean_name(text: str) -> str:
    """Return a name without marks that people write around it: `"abcx:"` and `<abcx://>` become `abcx`."""
    return _SCHEME_END.sub("", _MARKS.sub("", text.strip()[:_MAX_NAME_TEXT]))


def _build_columns(*pairs: tuple[str, str]) -> tuple[Column, ...]:
    return tuple(Column(id=identifier, heading=heading) for identifier, heading in pairs)


_REGISTRIES: Final[Mapping[str, Registry]] = {
    item.id: item
    for item in (
        Registry(
            id="uri-schemes",
            title="Uniform Resource Identifier (URI) Schemes",
            noun="scheme",
            name_pattern=re.compile(r"[a-z][a-z0-9+.-]*"),
            name_clause="RFC 3986 3.1",
            name_rule="a lower-case letter, then lower-case letters, digits, '+', '-' and '.'",
            name_limit=63,
            limit_clause="docs/decisions/0026",
            fold_case=True,
            profiles=("rfc7595", "rfc4395"),
            default_profile="rfc7595",
            statuses=(Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL, Status.PENDING_REVIEW),
            default_status=Status.PROVISIONAL,
            columns=_build_columns(
                ("name", "URI Scheme"),
                ("template", "Template"),
                ("description", "Description"),
                ("status", "Status"),
                ("well_known", "Well-Known URI Support"),
                ("reference", "Reference"),
                ("notes", "Notes"),
                ("cri_number", "CRI Scheme Number"),
            ),
            reference="RFC 7595",
        ),
        Registry(
            id="llm-parameters",
            title="LLM URI Scheme Well-Known Query Parameters",
            noun="parameter",
            name_pattern=re.compile(r"[A-Za-z][A-Za-z0-9_]*"),
            name_clause="draft-levy-llm-uri-scheme-00 4.4",
            name_rule="a letter, then letters, digits and '_'; case counts",
            name_limit=63,
            limit_clause="docs/decisions/0026",
            fold_case=False,
            profiles=("specification-required",),
            default_profile="specification-required",
            statuses=(Status.REGISTERED, Status.DEPRECATED, Status.PENDING_REVIEW),
            default_status=Status.REGISTERED,
            columns=_build_columns(
                ("name", "Parameter"),
                ("type", "Type"),
                ("description", "Description"),
                ("status", "Status"),
                ("change_controller", "Change Controller"),
                ("reference", "Reference"),
            ),
            reference="draft-levy-llm-uri-scheme-00",
        ),
        Registry(
            id="ai-namespaces",
            title="AI Root Registry: Namespaces",
            noun="namespace",
            name_pattern=re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"),
            name_clause="draft-sogomonian-ai-uri-scheme-01",
            name_rule="one label without a dot: letters, digits and inner '-'",
            name_limit=63,
            limit_clause="RFC 1035 2.3.4",
            fold_case=True,
            profiles=("expert-review",),
            default_profile="expert-review",
            statuses=(
                Status.ACTIVE,
                Status.SAFE_MODE,
                Status.SUSPENDED,
                Status.REVOKED,
                Status.EXPIRED,
                Status.PENDING_REVIEW,
            ),
            default_status=Status.ACTIVE,
            columns=_build_columns(
                ("name", "Namespace"),
                ("anchor", "Anchor"),
                ("keys", "Keys"),
                ("status", "Status"),
                ("expires", "Expires"),
                ("description", "Description"),
                ("change_controller", "Change Controller"),
            ),
            reference="draft-sogomonian-ai-uri-scheme-01",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The rows in force: registries and profiles by ID, and the words for roles and labels.

    `title` is the service's name, "" for Onym's own. `words` maps a role to its name with an article;
    `labels` maps "status.registered", "action.approve" and others to a text.
    """

    registries: Mapping[str, Registry]
    profiles: Mapping[str, Profile]
    title: str = ""
    words: Mapping[Role, str] = field(default_factory=lambda: MappingProxyType({}))
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    #: SHA-256 of the definition; "" for the built-in rows
    digest: str = ""
    #: the definition; None for the built-in rows
    definition: Mapping[str, Any] | None = None


#: the rows that Onym ships
BUILTIN: Final = Catalog(registries=_REGISTRIES, profiles=_PROFILES)
_CATALOG: Final[ContextVar[Catalog]] = ContextVar("registry_catalog", default=BUILTIN)
_Row_T = TypeVar("_Row_T")


def get_catalog() -> Catalog:
    """Return the rows in force in this context."""
    return _CATALOG.get()


def enter_catalog(catalog: Catalog) -> None:
    """Put these rows in force for the rest of this context: a task, a thread or a request."""
    _CATALOG.set(catalog)


@contextmanager
def use_catalog(catalog: Catalog) -> Iterator[None]:
    """Put these rows in force inside the block."""
    token = _CATALOG.set(catalog)
    try:
        yield
    finally:
        _CATALOG.reset(token)


class _RowsInForce(Mapping[str, _Row_T], Generic[_Row_T]):
    """One table of the catalog in force."""

    def __init__(self, member: str) -> None:
        self._member = member

    def _get_rows(self) -> Any:
        return getattr(_CATALOG.get(), self._member)

    def __getitem__(self, identifier: str) -> _Row_T:
        row: _Row_T = self._get_rows()[identifier]
        return row

    def __iter__(self) -> Iterator[str]:
        return iter(self._get_rows())

    def __len__(self) -> int:
        return len(self._get_rows())

    def __repr__(self) -> str:
        return f"<{self._member} in force: {', '.join(self)}>"


#: every registry in force, by ID
REGISTRIES: Final[Mapping[str, Registry]] = _RowsInForce("registries")
#: every profile in force, by ID
PROFILES: Final[Mapping[str, Profile]] = _RowsInForce("profiles")


_NAME_LETTERS: Final = string.ascii_lowercase + string.digits + "+-._"
#: a text that may be a misspelt name; its near spellings are about 80 for each letter
_NEAR_TEXT: Final = re.compile(r"[a-z0-9+._-]{3,24}")


def list_near_spellings(text: str) -> frozenset[str]:
    """Return every spelling that has one letter more, less or other than `text`, or two letters swapped.

    Empty unless `text`, in lower case, is 3 to 24 letters of a name.
    """
    if not _NEAR_TEXT.fullmatch(text):
        return frozenset()
    halves = [(text[:at], text[at:]) for at in range(len(text) + 1)]
    found = {head + tail[1:] for head, tail in halves if tail}
    found |= {head + tail[1] + tail[0] + tail[2:] for head, tail in halves if len(tail) > 1}
    found |= {head + letter + tail[1:] for head, tail in halves if tail for letter in _NAME_LETTERS}
    found |= {head + letter + tail for head, tail in halves for letter in _NAME_LETTERS}
    return frozenset(found - {text})


def get_registry(identifier: str) -> Registry:
    """Return the registry with this ID. Raises UnknownEntryError."""
    try:
        return REGISTRIES[identifier]
    except KeyError:
        raise UnknownEntryError(
            "there is no such registry",
            code="registry.unknown-registry",
            field="registry",
            hint=f"Choose one of {', '.join(REGISTRIES)}.",
        ) from None
