"""Contexts of the pages for readers: home, lists, search, an entry, two versions of it, help, errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from onym.server.registry.contexts.parts import (
    Cell,
    Choice,
    Context,
    EntryRow,
    HistoryLine,
    Link,
    NoteView,
    RequestRow,
    StatusView,
)

__all__ = [
    "ComparePage",
    "Comparison",
    "Diagram",
    "EntryPage",
    "ErrorPage",
    "HelpPage",
    "HomePage",
    "ListPage",
    "Piece",
    "PolicyRow",
    "ProfileHelp",
    "RegistryCard",
    "RegistryHits",
    "SearchPage",
    "VersionOption",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCard:
    """One registry on the home page."""

    id: str
    title: str
    noun: str
    href: str
    feed: str
    submit: str
    reference: str
    summary: str
    total: int
    counts: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePage(Context):
    """The three registries, what is new, and how to register."""

    template: ClassVar[str] = "home.html"
    registries: Annotated[tuple[RegistryCard, ...], "every registry, with the entries counted by status"]
    news: Annotated[tuple[HistoryLine, ...], "the last events, newest first"]
    news_names: Annotated[tuple[Link, ...], "the entry that each of `news` is about"]
    open_requests: Annotated[tuple[RequestRow, ...], "requests under way, oldest first"]
    submit: Annotated[str, "where a registration begins"]
    requests: Annotated[str, "all requests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(Context):
    """One registry, in IANA's columns."""

    template: ClassVar[str] = "list.html"
    registry: Annotated[str, "the registry's id"]
    title: Annotated[str, "the registry's title"]
    noun: Annotated[str, "what one entry is called"]
    reference: Annotated[str, "the document that defines the registry"]
    headings: Annotated[tuple[Link, ...], "the columns' ids (href) and headings (text)"]
    rows: Annotated[tuple[EntryRow, ...], "the entries of this part"]
    query: Annotated[str, "what was searched for"]
    statuses: Annotated[tuple[Choice, ...], "statuses to filter by"]
    action: Annotated[str, "where the form is sent"]
    next: Annotated[str, "the next part, empty at the end"]
    first: Annotated[str, "the first part, empty on it"]
    feed: Annotated[str, "the Atom feed"]
    submit: Annotated[str, "where a registration in this registry begins"]
    exports: Annotated[tuple[Link, ...], "the registry as a file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryHits:
    """What a search found in one registry; `more` is the list filtered by the same words."""

    registry: str
    title: str
    rows: tuple[EntryRow, ...]
    more: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(Context):
    """Search across all registries."""

    template: ClassVar[str] = "search.html"
    query: Annotated[str, "what was searched for"]
    action: Annotated[str, "where the form is sent"]
    hits: Annotated[tuple[RegistryHits, ...], "the hits, by registry, best first"]
    total: Annotated[int, "hits shown, in all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOption:
    """One version of an entry that may be compared."""

    number: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage(Context):
    """One entry: fields, status, notes, history, files."""

    template: ClassVar[str] = "entry.html"
    registry: Annotated[str, "the registry's id"]
    registry_title: Annotated[str, "the registry's title"]
    noun: Annotated[str, "what an entry is called here"]
    name: Annotated[str, "the entry's name"]
    spelling: Annotated[str, "how the source wrote the name, where that differs"]
    status: Annotated[StatusView, "the status"]
    status_help: Annotated[str, "what the status means, in plain words"]
    cells: Annotated[tuple[Cell, ...], "the fields that hold something, in the registry's order"]
    notes: Annotated[tuple[NoteView, ...], "notes, oldest first"]
    registered: Annotated[str, "when it was registered"]
    updated: Annotated[str, "when it last changed"]
    expires: Annotated[str, "the last day it holds"]
    draft: Annotated[str, "the Internet-Draft that holds it, and the day that expires"]
    version: Annotated[int, "how many events changed it"]
    nobody: Annotated[str, "where it has no registrant: who can change it all the same"]
    pending: Annotated[tuple[Link, ...], "the requests under review about this entry"]
    history: Annotated[tuple[HistoryLine, ...], "its events, newest first, of one part"]
    earlier: Annotated[str, "the part before; empty where there is none"]
    versions: Annotated[tuple[VersionOption, ...], "versions to compare, newest first"]
    downloads: Annotated[tuple[Link, ...], "the entry as a file"]
    compare: Annotated[str, "where two versions are compared"]
    change: Annotated[str, "the forms that change it"]
    requests: Annotated[tuple[RequestRow, ...], "requests about this name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of text: `kind` is same, gone or new."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One field in two versions."""

    id: str
    heading: str
    changed: bool
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparePage(Context):
    """Two versions of an entry, field by field."""

    template: ClassVar[str] = "compare.html"
    registry: Annotated[str, "the registry's id"]
    name: Annotated[str, "the entry's name"]
    entry: Annotated[str, "the entry's page"]
    action: Annotated[str, "where the choice of versions is sent"]
    before: Annotated[int, "the older version's number"]
    after: Annotated[int, "the newer version's number"]
    versions: Annotated[tuple[VersionOption, ...], "the versions there are"]
    fields: Annotated[tuple[Comparison, ...], "every field of either version"]
    changes: Annotated[int, "how many fields differ"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """A state machine as boxes and arrows, drawn by the template. Lengths in user units of the SVG.

    `aside` says in words what is not drawn.
    """

    width: int
    height: int
    boxes: tuple[DiagramBox, ...]
    arrows: tuple[DiagramArrow, ...]
    aside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramBox:
    """A state."""

    id: str
    label: str
    x: int
    y: int
    width: int
    height: int
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramArrow:
    """A transition: an SVG path, and the number that the list below explains."""

    path: str
    number: int
    x: int
    y: int
    label: str
    who: str
    clause: str
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """How requests for one status are decided."""

    status: StatusView
    policy: str
    clause: str
    list_review: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileHelp:
    """One procedure: its policies, fields and picture."""

    id: str
    title: str
    policies: tuple[PolicyRow, ...]
    fields: tuple[Cell, ...]
    timeout: str
    diagram: Diagram


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpPage(Context):
    """The procedure in plain words, and each profile's state machine."""

    template: ClassVar[str] = "help.html"
    profiles: Annotated[tuple[ProfileHelp, ...], "every procedure"]
    contents: Annotated[tuple[Link, ...], "the sections of the page"]
    statuses: Annotated[tuple[Cell, ...], "what each status means"]
    submit: Annotated[str, "where a registration begins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPage(Context):
    """What went wrong, where, by which clause, and how to go on."""

    template: ClassVar[str] = "error.html"
    status: Annotated[int, "the HTTP status"]
    title: Annotated[str, "the status in words"]
    code: Annotated[str, "the stable code of the error"]
    detail: Annotated[str, "what happened"]
    clause: Annotated[str, "the rule behind it"]
    field: Annotated[str, "the field it is about"]
    hint: Annotated[str, "how to go on"]
    back: Annotated[str, "where to go from here"]
    request_id: Annotated[str, "what the operator's log calls this request"]
