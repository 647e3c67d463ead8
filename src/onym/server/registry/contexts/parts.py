"""The pieces that pages are made of, ready to be shown: every link made, every date as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "ActionField",
    "ActionView",
    "Cell",
    "Choice",
    "Chrome",
    "Context",
    "EntryRow",
    "FindingView",
    "FormField",
    "HistoryLine",
    "Link",
    "NoteView",
    "ReportView",
    "RequestRow",
    "StatusView",
    "Step",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link: where to, its text, and whether it is the page in hand."""

    href: str
    text: str
    current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chrome:
    """What stands around every page. It is no part of the page's JSON twin."""

    title: str
    nav: tuple[Link, ...]
    desk: tuple[Link, ...]
    crumbs: tuple[Link, ...]
    #: the name of whoever is signed in, "" for nobody
    who: str
    account: str
    login: str
    logout: str
    csrf: str
    css: str
    script: str
    icon: str
    openapi: str
    help: str
    search: str
    #: what the last form did, in a sentence; "" for nothing
    done: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One page. `template` draws it; every field but `page` is in its JSON twin."""

    template: ClassVar[str]
    page: Chrome


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """A status: its id, its words, and a sign so that colour is never the only bearer of it."""

    id: str
    label: str
    sign: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A column's or field's value under its heading; `parts` is the value cut at the links found in it."""

    id: str
    heading: str
    value: str
    parts: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    """One row of a registry's table."""

    registry: str
    registry_title: str
    name: str
    href: str
    status: StatusView
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteView:
    """A note on an entry."""

    kind: str
    text: str
    at: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """One accepted event: what, who, when, by which rule and clause."""

    number: int
    at: str
    actor: str
    roles: str
    kind: str
    label: str
    rule: str
    clause: str
    reason: str
    request: Link | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One request in a list."""

    id: str
    href: str
    registry: str
    registry_title: str
    name: str
    kind: str
    status: StatusView
    state: str
    state_label: str
    holder: str
    since: str
    due: str
    overdue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One finding of the checker; `anchor` is the form field it is about."""

    check: str
    code: str
    level: str
    message: str
    clause: str
    field: str
    line: int | None
    column: int | None
    witness: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportView:
    """The checker's report, counted. `fault` says why there is none ("" where there is)."""

    profile: str
    profile_title: str
    scheme: str
    ok: bool
    errors: int
    warnings: int
    hints: int
    findings: tuple[FindingView, ...]
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a request's way. `mark` is done, current, left, skipped or stopped."""

    id: str
    label: str
    mark: str
    mark_label: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One value that a choice offers."""

    value: str
    label: str
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a template in a form."""

    id: str
    label: str
    value: str
    required: bool
    clause: str
    help: str
    long: bool
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionField:
    """What an action asks for: `kind` is text, long, choice, date or list."""

    id: str
    label: str
    kind: str
    required: bool
    help: str
    value: str = ""
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """One step that the visitor may take now, as the engine allows it."""

    kind: str
    label: str
    help: str
    #: good, bad or plain
    tone: str
    href: str
    version: int
    fields: tuple[ActionField, ...]
