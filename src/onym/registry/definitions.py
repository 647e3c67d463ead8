"""Registries that an operator defines: a TOML file, or its values in the log, as rows of the catalog.

    found = load_definition(Path("company.toml"))
    event = Event(kind=EventKind.DEFINE, registry=ALL_REALMS, data={"definition": found.definition})

A DEFINE event carries the whole definition, so the log alone says which rows decided each later event, and a
replay puts the same rows in force. A registry that is once defined stays: a later definition may change its
words, fields and policies, but not its procedure, and leaves out neither it nor a built-in one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from onym.common.settings import Parser, SettingsFile, convert_settings, explain_misplaced_keys
from onym.common.text import is_printable_text
from onym.errors import ConfigError, RefusalError
from onym.registry.codec import canonicalize_json
from onym.registry.records import EventKind, RequestKind, RequestState, Role, Status
from onym.registry.registries import (
    BUILTIN,
    Catalog,
    Column,
    ListReview,
    Policy,
    Profile,
    Registry,
    TemplateField,
    get_catalog,
)
from onym.registry.words import DEFAULT_WORDS, OWN_NAMES

#: bytes of a definition's file
MAX_FILE: Final = 256 * 1024
_MOST_REGISTRIES: Final = 32
_MOST_FIELDS: Final = 40
_MOST_LABELS: Final = 200
_MOST_DAYS: Final = 730
#: quantifiers without an end in one name pattern; more would make matching slow
_MOST_REPEATS: Final = 3
#: IDs of fields that Onym fills or reads itself
_RESERVED_FIELDS: Final = frozenset(
    {"name", "status", "expires", "notes", "template", "cri_number", "service", "published_status"}
)
#: what has labels, by the first part of their key; keys that begin with `done` are of the web pages
_LABELLED: Final[Mapping[str, type[StrEnum]]] = {
    "status": Status,
    "status-help": Status,
    "state": RequestState,
    "next": RequestState,
    "kind": RequestKind,
    "event": EventKind,
    "action": EventKind,
}
_LABEL_KEYS: Final = re.compile(rf"(?:{'|'.join([*_LABELLED, 'done'])})\.[a-z0-9-]{{1,40}}")


def _make_line_parser(most: int) -> Parser:
    def parse(value: object) -> str:
        if not is_printable_text(value, most) or not value.strip():
            raise ValueError(f"must be text of one line, 1 to {most} characters")
        return value

    return Parser(parse)


def _make_pattern_parser(pattern: str, wanted: str) -> Parser:
    match = re.compile(pattern).fullmatch

    def parse(value: object) -> str:
        if not isinstance(value, str) or match(value) is None:
            raise ValueError(f"must be {wanted}")
        return value

    return Parser(parse)


#: a group, a class, an escape, a quantifier or another character of a regular expression
_TOKENS: Final = re.compile(
    r"\((?!\?:|\?)|\(\?:|\)|\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|\{\d*,?\d*\}|[*+?]|.", re.DOTALL
)


def parse_name_pattern(value: object) -> str:
    """Return a regular expression for names that is matched in little time. Raises ValueError."""
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise ValueError("must be a regular expression of at most 200 characters")
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"must be a regular expression: {str(error)[:80]}") from None
    repeats, before = 0, ""
    for part in _TOKENS.findall(value):
        if part == "(" or (part.startswith("\\") and part[1:].isalnum() and part not in _CLASSES):
            raise ValueError("must use (?:...) for groups, and no references or assertions")
        endless = part in ("*", "+") or (part.startswith("{") and part.endswith(",}"))
        if before == ")" and (endless or part.startswith("{")):
            raise ValueError("must not repeat a group: only ? may follow it")
        repeats += endless
        before = part
    if "(?" in value.replace("(?:", "") or repeats > _MOST_REPEATS:
        raise ValueError(
            f"must have plain groups (?:...) only, and at most {_MOST_REPEATS} of *, + and {{n,}}"
        )
    return value


_CLASSES: Final = (r"\d", r"\w", r"\s", r"\D", r"\W", r"\S")
Text: TypeAlias = Annotated[str, _make_line_parser(300)]
ShortText: TypeAlias = Annotated[str, _make_line_parser(80)]
RegistryID: TypeAlias = Annotated[
    str,
    _make_pattern_parser(
        "[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?", "at most 32 lower-case letters, digits and inner '-'"
    ),
]
FieldID: TypeAlias = Annotated[
    str, _make_pattern_parser("[a-z][a-z0-9_]{0,39}", "at most 40 lower-case letters, digits and '_'")
]
Noun: TypeAlias = Annotated[str, _make_pattern_parser("[^\\W\\d_][\\w -]{0,39}", "a word such as service")]
NamePattern: TypeAlias = Annotated[str, Parser(parse_name_pattern)]
Days: TypeAlias = Annotated[int, Meta(ge=1, le=_MOST_DAYS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """How requests for a status are decided: who decides, and the days until the decision is due."""

    name: ShortText
    decided_by: Literal["registrar", "reviewer", "board"] = "reviewer"
    days: Days = 14
    #: days of discussion before it is submitted
    discussion_days: Days | None = None
    discussion_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTables:
    """The policies of a registry, by the status that a request can ask for."""

    registered: PolicyTable | None = None
    permanent: PolicyTable | None = None
    provisional: PolicyTable | None = None
    historical: PolicyTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTable:
    """One field of the template; with `column` the lists and exports have it."""

    id: FieldID
    label: ShortText
    help: Text = ""
    required: bool = False
    column: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryTable:
    """One registry. `reference` names the document with its rules, which the log cites."""

    id: RegistryID
    title: ShortText
    noun: Noun
    reference: Text
    summary: Text = ""
    short_title: ShortText = ""
    procedure: Literal["simple", "staged"] = "simple"
    #: everyone with an account can appeal decisions to the board
    appeals: bool = False
    name_label: ShortText = "Name"
    name_pattern: NamePattern = "[a-z][a-z0-9-]*"
    name_rule: Text = "a lower-case letter, then lower-case letters, digits and '-'"
    name_limit: Annotated[int, Meta(ge=1, le=100)] = 63
    fold_case: bool = True
    policy: PolicyTables
    fields: tuple[FieldTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleWords:
    """The names of the roles in texts, with their articles."""

    requester: ShortText = DEFAULT_WORDS[Role.REGISTRANT]
    registrar: ShortText = DEFAULT_WORDS[Role.IANA]
    reviewer: ShortText = DEFAULT_WORDS[Role.EXPERT]
    board: ShortText = DEFAULT_WORDS[Role.IESG]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionTable:
    """The file. `builtin` are registries of Onym that the service shows too."""

    title: ShortText
    registries: tuple[RegistryTable, ...]
    builtin: tuple[Literal["uri-schemes", "llm-parameters", "ai-namespaces"], ...] = ()
    roles: RoleWords = RoleWords()
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A valid definition: its values as JSON, which the log keeps, and its rows."""

    definition: Mapping[str, Any]
    catalog: Catalog


_MakeError: TypeAlias = Callable[..., ConfigError]
#: procedure -> the statuses that a policy can have, and those of the entries
_STATUSES: Final[Mapping[str, tuple[tuple[Status, ...], tuple[Status, ...]]]] = {
    "simple": ((Status.REGISTERED,), (Status.REGISTERED, Status.DEPRECATED)),
    "staged": (
        (Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL),
        (Status.PERMANENT, Status.PROVISIONAL, Status.HISTORICAL, Status.PENDING_REVIEW),
    ),
}
_DECIDERS: Final = {name: role for role, name in OWN_NAMES.items()}


def load_definition(path: Path) -> Definition:
    """Return the definition in a TOML file. Raises ConfigError, which names the line and the key."""
    file = SettingsFile.load(path, limit=MAX_FILE)
    _require_quoted_labels(file)
    found = parse_definition(file.data, file.make_error)
    _require_known_labels(found.catalog.labels, file.make_error)
    _require_distinct_headings(found.catalog, file.make_error)
    return found


def _require_quoted_labels(file: SettingsFile) -> None:
    """Raise an error for `status.registered = "..."` without quotes, which TOML reads as a table."""
    labels = file.data.get("labels")
    for key, value in labels.items() if isinstance(labels, Mapping) else ():
        if isinstance(value, Mapping):
            example = f"{key}.{next(iter(value), 'registered')}"
            raise file.make_error(
                "a key with a dot must be in quotes", "labels", key, code="config.bad-setting",
                hint=f'Write "{example}" = "...".',
            )  # fmt: skip


def _require_distinct_headings(catalog: Catalog, make_error: _MakeError) -> None:
    """Raise an error if a field has the label of the name or of the status; an older log may have one."""
    own = [row for row in catalog.registries.values() if row.is_defined]
    for at, registry in enumerate(own):
        taken = {registry.columns[0].heading.lower(), "status"}
        rows = (catalog.definition or {})["registries"][at].get("fields", ())
        for place, row in enumerate(rows):
            if row["label"].lower() in taken:
                raise make_error(
                    "is the label of the name or of the status", f"registries[{at}]", f"fields[{place}]",
                    "label", hint="Choose another label.",
                )  # fmt: skip


def parse_definition(data: Mapping[str, Any], make_error: _MakeError) -> Definition:
    """Return the definition of these values. Raises an error of `make_error`."""
    # labels have free names, so that the key of another table would be a label
    labels = data.get("labels")
    misplaced = sorted(labels.keys() & DefinitionTable.__slots__) if isinstance(labels, Mapping) else []
    if misplaced:
        explained = explain_misplaced_keys(DefinitionTable, data, make_error)
        raise explained("is not a label", "labels", misplaced[0], code="config.unknown-setting")
    table = convert_settings(DefinitionTable, data, make_error)
    _require_valid(table, make_error)
    return Definition(definition=data, catalog=_build_catalog(table, data))


def build_next_catalog(data: object) -> Catalog:
    """Return the rows of a definition that follows the rows in force. Raises RefusalError."""

    def make_error(message: str, *keys: str, code: str = "", hint: str | None = None) -> ConfigError:
        return ConfigError(f"{'.'.join(keys)}: {message}" if keys else message, code=code or "config.invalid")

    try:
        if not isinstance(data, Mapping):
            raise make_error("must be an object", "definition")
        following = parse_definition(data, make_error).catalog
    except ConfigError as error:
        raise RefusalError(
            error.message, code="registry.bad-definition", field="definition",
            hint="Check the file: onym registry define FILE --dry-run",
        ) from None  # fmt: skip
    _require_successor(get_catalog(), following)
    return following


def _require_successor(now: Catalog, following: Catalog) -> None:
    """Raise RefusalError if entries or requests could lose their registry, profile or status."""
    kept = now.registries if now.digest else {}
    for identifier, row in kept.items():
        after = following.registries.get(identifier)
        if after is None:
            raise RefusalError(
                f"the definition leaves out the registry {identifier}, which is in force",
                code="registry.bad-definition", field="registries",
                hint="Keep it in the file: its entries and its log stay.",
            )  # fmt: skip
        if after.statuses != row.statuses:
            raise RefusalError(
                f"the definition changes the procedure of {identifier}",
                code="registry.bad-definition", field="procedure",
                hint="Define another registry with the other procedure.",
            )  # fmt: skip


def _require_valid(table: DefinitionTable, make_error: _MakeError) -> None:
    rows = table.registries
    if not 1 <= len(rows) <= _MOST_REGISTRIES:
        raise make_error(f"must have 1 to {_MOST_REGISTRIES} registries", "registries")
    if len(table.labels) > _MOST_LABELS:
        raise make_error(f"must have at most {_MOST_LABELS} labels", "labels")
    for key, text in table.labels.items():
        if not _LABEL_KEYS.fullmatch(key):
            raise make_error("must be named like status.registered or action.approve", "labels", key)
        if not is_printable_text(text, 200) or not text.strip():
            raise make_error("must be text of one line, 1 to 200 characters", "labels", key)
    seen = set(BUILTIN.registries)
    for at, row in enumerate(rows):
        if row.id in seen:
            raise make_error("is the ID of another registry", f"registries[{at}]", "id")
        seen.add(row.id)
        _require_valid_policies(row, f"registries[{at}]", make_error)
        _require_valid_fields(row.fields, f"registries[{at}]", make_error)


def _require_known_labels(labels: Mapping[str, str], make_error: _MakeError) -> None:
    """Raise an error for a label of nothing. One in a log is kept: another release may have had that step."""
    for key in labels:
        prefix, _, identifier = key.partition(".")
        known = [str(member) for member in _LABELLED.get(prefix, ())]
        if known and identifier not in known:
            near = get_close_matches(identifier, known, 1) or known[:1]
            raise make_error(
                f"names nothing that has a label: there is no {identifier!r}", "labels", key,
                hint=f"Write for example {prefix}.{near[0]}.",
            )  # fmt: skip


def _require_valid_policies(row: RegistryTable, place: str, make_error: _MakeError) -> None:
    askable, _ = _STATUSES[row.procedure]
    given = _list_policies(row)
    for status in given:
        if status not in askable:
            raise make_error(
                f"the procedure {row.procedure} has no status {status}", place, "policy", str(status),
                hint=f"Use {', '.join(askable)}.",
            )  # fmt: skip
    if not given:
        raise make_error(f"must have a policy for one of {', '.join(askable)}", place, "policy")


def _require_valid_fields(rows: Sequence[FieldTable], place: str, make_error: _MakeError) -> None:
    if len(rows) > _MOST_FIELDS:
        raise make_error(f"must have at most {_MOST_FIELDS} fields", place, "fields")
    seen: set[str] = set()
    labels: set[str] = set()
    for at, row in enumerate(rows):
        if row.id in _RESERVED_FIELDS:
            raise make_error("is an ID that Onym uses itself", place, f"fields[{at}]", "id")
        if row.id in seen:
            raise make_error("is the ID of another field", place, f"fields[{at}]", "id")
        if row.label.lower() in labels:
            raise make_error("is the label of another field", place, f"fields[{at}]", "label")
        seen.add(row.id)
        labels.add(row.label.lower())


def _list_policies(row: RegistryTable) -> dict[Status, PolicyTable]:
    tables = {
        status: getattr(row.policy, str(status)) for status in (Status.REGISTERED, *_STATUSES["staged"][0])
    }
    return {status: table for status, table in tables.items() if table is not None}


def _build_catalog(table: DefinitionTable, data: Mapping[str, Any]) -> Catalog:
    shown = {name: BUILTIN.registries[name] for name in BUILTIN.registries if name in table.builtin}
    own = {row.id: _build_registry(row) for row in table.registries}
    used = {name for row in shown.values() for name in row.profiles}
    profiles = {name: profile for name, profile in BUILTIN.profiles.items() if name in used}
    words = {role: getattr(table.roles, name) for role, name in OWN_NAMES.items()}
    return Catalog(
        registries=MappingProxyType(own | shown),
        profiles=MappingProxyType({row.id: _build_profile(row) for row in table.registries} | profiles),
        title=table.title,
        words=MappingProxyType(words),
        labels=MappingProxyType(dict(table.labels)),
        digest=hashlib.sha256(canonicalize_json(data).encode()).hexdigest(),
        definition=data,
    )


def _build_registry(row: RegistryTable) -> Registry:
    askable, statuses = _STATUSES[row.procedure]
    given = _list_policies(row)
    return Registry(
        id=row.id,
        title=row.title,
        short_title=row.short_title,
        summary=row.summary,
        noun=row.noun,
        name_pattern=re.compile(row.name_pattern),
        name_clause=row.reference,
        name_rule=row.name_rule,
        name_limit=row.name_limit,
        limit_clause=row.reference,
        fold_case=row.fold_case,
        profiles=(row.id,),
        default_profile=row.id,
        statuses=statuses,
        default_status=next(status for status in askable if status in given),
        columns=(
            Column(id="name", heading=row.name_label),
            *(Column(id=field.id, heading=field.label) for field in row.fields if field.column),
            Column(id="status", heading="Status"),
        ),
        reference=row.reference,
    )


def _build_profile(row: RegistryTable) -> Profile:
    given = _list_policies(row)
    discussed = {status: table for status, table in given.items() if table.discussion_days is not None}
    return Profile(
        id=row.id,
        title=row.title,
        document=row.reference,
        template_clause=row.reference,
        fields=(
            _build_field(row, "name", row.name_label, required=True),
            *([_build_field(row, "status", "Status", required=True)] if len(given) > 1 else []),
            *(
                _build_field(row, item.id, item.label, item.help, required=item.required)
                for item in row.fields
            ),
        ),
        policies=MappingProxyType({status: _build_policy(row, table) for status, table in given.items()}),
        list_review=MappingProxyType(
            {
                status: ListReview(
                    reasonable=timedelta(days=table.discussion_days or 1),
                    required=table.discussion_required,
                    clause=row.reference,
                )
                for status, table in discussed.items()
            }
        ),
        expert_time=timedelta(days=min(table.days for table in given.values())),
        status_words=tuple(str(status).capitalize() for status in given),
        status_clause=row.reference,
        appeals=row.appeals,
        own_rules=row.procedure,
    )


def _build_field(
    row: RegistryTable, identifier: str, label: str, note: str = "", *, required: bool
) -> TemplateField:
    return TemplateField(
        id=identifier,
        labels=(label,),
        clause=row.reference,
        guideline=row.reference,
        required=required,
        help=note,
    )


def _build_policy(row: RegistryTable, table: PolicyTable) -> Policy:
    return Policy(
        name=table.name,
        clause=row.reference,
        at_once=table.decided_by == "registrar",
        decided_by=_DECIDERS[table.decided_by],
        time=timedelta(days=table.days),
    )
