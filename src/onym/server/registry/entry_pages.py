"""Pages about entries: home, lists, search, one entry with its syntax, comparison and changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup
from starlette.responses import Response

from onym.errors import OnymError, RegistryError, UnknownEntryError
from onym.registry.records import Entry, Event, EventKind, Request, RequestState, Role, Status
from onym.registry.registries import PROFILES, REGISTRIES, Policy, Registry, get_catalog
from onym.registry.service import get_applied_request
from onym.server.registry import actions, dependencies, labels, page_parts, responses, urls
from onym.server.registry.request_pages import parse_event_kind
from onym.server.registry.urls import make_route
from onym.server.responses import get_problem_type, parse_cursor, parse_page_size
from onym.server.services import get_services
from onym.server.sessions import get_visitor, require_access

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

    from onym.registry.abnf import Grammar
    from onym.registry.documents.types import Document
    from onym.registry.store import EntryChange
    from onym.server.registry.page_parts import ActionView, Cell

#: the registry whose entries have a syntax
_SCHEMES: Final = "uri-schemes"
#: characters of a text that is read for its grammar; drafts that define a scheme are shorter
MAX_TEXT: Final = 300_000
#: characters of ABNF and of a diagram that one page shows
MAX_ABNF: Final = 30_000
MAX_DIAGRAM: Final = 300_000
#: examples of a text that are tried, steps of matching them, and the length of one
_TRIED: Final = 20
_STEPS: Final = 2_000_000
_LONGEST: Final = 300
#: views that are kept, and texts that are read at once
_MOST_KEPT: Final = 200
_AT_ONCE: Final = 2
_REGISTERED: Final = frozenset({RequestState.APPROVED, RequestState.TIMED_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxView:
    """The syntax of a scheme. `abnf` and `diagram` are empty if the text has only an example."""

    #: the rule that defines the scheme
    start: str
    abnf: str
    diagram: Markup
    example: str
    #: the example is made from the grammar, not taken from the text
    generated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedSyntax:
    """A syntax and the request that it is from."""

    view: SyntaxView
    source: page_parts.Link


async def load_entry_syntax(
    request: HTTPRequest, entry: Entry, about: Iterable[Request]
) -> SourcedSyntax | None:
    """Return the syntax in the newest registered request about the entry that has one, else of a pending one.

    The views are kept by request and version, and read off the event loop.
    """
    if entry.registry != _SCHEMES:
        return None
    candidates = [asked for asked in about if asked.state in _REGISTERED or asked.id in entry.pending]
    for asked in sorted(candidates, key=lambda asked: asked.state not in _REGISTERED):
        view = await _load_view(request, asked)
        if view is not None:
            link = page_parts.Link(href=urls.request_url(asked.id), text=asked.id)
            return SourcedSyntax(view=view, source=link)
    return None


async def _load_view(request: HTTPRequest, asked: Request) -> SyntaxView | None:
    state = request.app.state
    kept: dict[tuple[str, int], SyntaxView | None] = getattr(state, "registry_syntax", None) or {}
    turns = getattr(state, "registry_syntax_turns", None) or asyncio.Semaphore(_AT_ONCE)
    state.registry_syntax, state.registry_syntax_turns = kept, turns
    key = (asked.id, asked.version)
    if key in kept:
        return kept[key]
    async with turns:
        if key not in kept:
            texts = (asked.fields.get("syntax", ""), asked.template)
            found = await asyncio.to_thread(build_syntax_view, texts, asked.name)
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[key] = found
    return kept.get(key)


def build_syntax_view(texts: Iterable[str], name: str) -> SyntaxView | None:
    """Return the syntax in the first of these texts that has one; the example may be from a later text."""
    from onym.registry.checks import load_document  # late: the checker, for few pages

    documents: list[Document] = []
    for text in texts:
        if text.strip() and len(text) <= MAX_TEXT:
            try:
                documents.append(load_document(text))
            except OnymError:
                continue
    uris = [example.uri for document in documents for example in document.examples]
    uris = [uri for uri in uris if uri.lower().startswith(f"{name}:") and len(uri) <= _LONGEST][:_TRIED]
    for document in documents:
        view = _draw_grammar(document, uris)
        if view is not None:
            return view
    if not uris:
        return None
    return SyntaxView(start="", abnf="", diagram=Markup(), example=uris[0], generated=False)


def _draw_grammar(document: Document, uris: list[str]) -> SyntaxView | None:
    from onym.registry.checks import load_grammar  # late, as above

    try:
        grammar, start = load_grammar(document)
    except OnymError:
        return None
    example = _find_example(grammar, start, uris)
    return SyntaxView(
        start=start,
        abnf=_format_rules(grammar, start),
        diagram=_draw_diagram(grammar, start),
        example=example or _make_example(grammar, start),
        generated=not example,
    )


def _format_rules(grammar: Grammar, start: str) -> str:
    """Return the rule `start` and the rules of the text that it uses, as they are written there."""
    from onym.registry.abnf import find_reached_rules  # late, as above

    reached, first = find_reached_rules(grammar, start), grammar.rule(start)
    rules = [first, *(rule for rule in grammar.own if rule.key in reached and rule != first)]
    text = "\n".join(rule.text.rstrip() for rule in rules)
    return text if len(text) <= MAX_ABNF else ""


def _draw_diagram(grammar: Grammar, start: str) -> Markup:
    from onym.registry.abnf import render_railroad  # late, as above

    try:
        image = render_railroad(grammar, start)
    except OnymError:
        return Markup()
    # the renderer escapes every text
    return Markup(image) if len(image) <= MAX_DIAGRAM else Markup()  # noqa: S704


def _find_example(grammar: Grammar, start: str, uris: list[str]) -> str:
    """Return the first URI that the grammar allows, preferably without user information; "" for none."""
    from onym.registry.abnf import build_matcher  # late, as above

    try:
        matcher = build_matcher(grammar, start, steps=_STEPS)
        return next((uri for uri in sorted(uris, key=lambda uri: "@" in uri) if matcher(uri)), "")
    except OnymError:
        return ""


def _make_example(grammar: Grammar, start: str) -> str:
    from onym.registry.abnf import generate_examples  # late, as above

    try:
        found = generate_examples(grammar, start, 1)
    except OnymError:
        return ""
    return found[0] if found and found[0].isprintable() and len(found[0]) <= _LONGEST else ""


_MAX_NEWS: Final = 8
_MAX_HITS: Final = 10
_MAX_REQUESTS: Final = 20
#: entries on one page of a list: more than IANA's registry of URI schemes has
_LIST_SIZE: Final = 500


@labels.translate_page
async def home_page(request: HTTPRequest) -> Response:
    """The search, the three registries, what is new, how to register."""
    outcomes = await responses.get_outcomes(request)
    hidden = await dependencies.find_hidden_ids(request, (record for record, _ in outcomes))
    news = [
        (
            record,
            page_parts.describe_outcome(record, change),
            await _find_event_link(request, record.event, change),
        )
        for record, change in page_parts.select_news(outcomes, hidden, _MAX_NEWS)
    ]
    open_ones: list[Request] = []
    for role in (Role.IANA, Role.EXPERT, Role.IESG):
        open_ones += (await dependencies.get_store(request).requests(holder=role, limit=_MAX_NEWS)).items
    return responses.make_page_response(
        request,
        "home.html",
        responses.build_page_frame(request, labels.translate_text("Home")),
        cards=[(row, await responses.get_entry_counts(request, row.id)) for row in REGISTRIES.values()],
        summaries={row.id: _summarize_registry(row) for row in REGISTRIES.values()},
        defined=get_catalog().digest != "",
        news=news,
        open_requests=sorted(open_ones, key=lambda about: about.since),
        now=dependencies.get_current_time(request),
    )


def _summarize_registry(row: Registry) -> str:
    own = labels.REGISTRY_SUMMARIES.get(row.id)
    return row.summary if own is None else labels.translate_text(own)


async def _find_event_link(request: HTTPRequest, event: Event, change: EntryChange | None) -> page_parts.Link:
    """Return the link of an event: its request, else its entry, else the registry."""
    name = event.name or ("" if change is None else change.name)
    if event.request is not None:
        found = None if name else await dependencies.get_store(request).request(event.request)
        return page_parts.Link(
            href=urls.request_url(event.request), text=name if found is None else found.name
        )
    if event.registry not in REGISTRIES:
        return page_parts.Link(href=urls.HOME_URL, text="")
    entry = await dependencies.get_store(request).entry(event.registry, name)
    href = urls.entries_url(event.registry) if entry is None else urls.entry_url(entry.registry, entry.name)
    return page_parts.Link(href=href, text=name)


def _parse_query(request: HTTPRequest) -> str:
    return responses.clean_query(request.query_params.get("q", ""), "q")


def parse_status_filter(request: HTTPRequest, row: Registry) -> Status | None:
    """Return the status filter. Raises UnknownEntryError for a status of another registry."""
    said = request.query_params.get("status", "")
    found = next((status for status in row.statuses if status == said), None)
    if said and found is None:
        raise UnknownEntryError(
            f"{said!r} is not a status of {row.id}",
            code="registry.bad-status",
            field="status",
            hint=f"one of {', '.join(row.statuses)}",
        )
    return found


def _parse_sorting(request: HTTPRequest) -> str:
    said = request.query_params.get("sort") or "name"
    if said not in page_parts.SORTINGS:
        raise UnknownEntryError(
            f"a list cannot be sorted by {said!r}",
            code="registry.bad-sort",
            field="sort",
            hint=f"one of {', '.join(page_parts.SORTINGS)}",
        )
    return said


@labels.translate_page
async def list_page(request: HTTPRequest) -> Response:
    """One registry, filtered and sorted."""
    row, query = dependencies.find_registry(request), _parse_query(request)
    status = parse_status_filter(request, row)
    sort = _parse_sorting(request)
    chosen = "" if status is None else str(status)
    counts = await responses.get_entry_counts(request, row.id)
    return responses.make_page_response(
        request,
        "list.html",
        responses.build_page_frame(request, row.title, (urls.HOME_URL, "Home")),
        registry=row,
        results=await _render_listing(request, row, query, status, sort),
        counts=counts,
        total=sum(counts.values()),
        procedures=_list_procedures(request, row),
        query=query,
        statuses=page_parts.build_choices(
            [
                ("", labels.translate_text("Any status")),
                *((str(choice), labels.STATUS_LABELS[choice]) for choice in row.statuses),
            ],
            chosen,
        ),
        sortings=page_parts.build_choices(
            [(key, labels.translate_text(label)) for key, (label, _) in page_parts.SORTINGS.items()], sort
        ),
        formats=responses.list_formats(row.id),
    )


async def _render_listing(
    request: HTTPRequest, row: Registry, query: str, status: Status | None, sort: str
) -> Markup:
    """Return the list as HTML. Lists without a query are kept until the next write: visitors share them."""
    after = parse_cursor(request.query_params.get("after"))
    size = parse_page_size(request.query_params.get("limit"), _LIST_SIZE)
    chosen = "" if status is None else str(status)

    async def make() -> dependencies.CachedResponse:
        page = await dependencies.get_store(request).entries(
            row.id, query=query, status=status, after=after, limit=size
        )
        counts = await responses.get_entry_counts(request, row.id)
        total = sum(counts.values()) if status is None else counts.get(status, 0)
        link = partial(urls.entries_url, row.id, q=query, status=chosen)
        view = page_parts.build_listing(
            row,
            page.items,
            sort,
            total=len(page.items) if query else total,
            query=query,
            start=link() if after else "",
            next="" if page.next is None else link(after=page.next),
        )
        macros: Any = responses.get_template_environment().get_template("parts/macros.html").module
        return dependencies.CachedResponse(str(macros.listing(view)).encode(), "")

    is_shared = not query and after is None and size == _LIST_SIZE
    key = (f"list {row.id}", f"{chosen} {sort} {labels.get_language()}")
    found = await dependencies.get_response_cache(request).get(key, make) if is_shared else await make()
    return Markup(found.body.decode())  # noqa: S704 - a template wrote it


def _list_procedures(request: HTTPRequest, row: Registry) -> tuple[tuple[Status, Policy], ...]:
    """Return the policy for each status under the registry's procedure in force (RFC 8126 4)."""
    offered = get_services(request).settings.list_profiles(row)
    return tuple(PROFILES[offered[0]].policies.items())


@labels.translate_page
async def search_page(request: HTTPRequest) -> Response:
    """Search across the registries."""
    query = _parse_query(request)
    groups = await _search_registries(request, query, near=False) if query else []
    # similar names only if no registry has the text
    is_near = bool(query) and not groups
    if is_near:
        groups = await _search_registries(request, query, near=True)
    return responses.make_page_response(
        request,
        "search.html",
        responses.build_page_frame(request, labels.translate_text("Search"), (urls.HOME_URL, "Home")),
        query=query,
        hits=groups,
        total=sum(len(rows) for _, rows in groups),
        is_near=is_near,
    )


async def _search_registries(
    request: HTTPRequest, query: str, *, near: bool
) -> list[tuple[Registry, list[tuple[Entry, tuple[Cell, ...]]]]]:
    groups = []
    for row in REGISTRIES.values():
        found = await dependencies.get_store(request).search(row.id, query, _MAX_HITS, near=near)
        if found:
            groups.append((row, [page_parts.build_entry_row(entry) for entry in found]))
    return groups


def build_crumbs(row: Registry, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the breadcrumbs of a registry."""
    return ((urls.HOME_URL, "Home"), (urls.entries_url(row.id), row.title), *more)


@labels.translate_page
async def entry_page(request: HTTPRequest) -> Response:
    """GET: one entry."""
    entry = await dependencies.find_entry(request)
    row = REGISTRIES[entry.registry]
    records = await dependencies.load_entry_history(request, entry.registry, entry.name)
    part, earlier = page_parts.paginate_records(
        records, responses.parse_number(request.query_params.get("before"), "before")
    )
    names = await dependencies.load_actor_names(request, part)
    names |= await dependencies.load_account_names(request, (note.by for note in entry.notes))
    about = await dependencies.get_store(request).requests(
        registry=row.id, name=entry.name, limit=_MAX_REQUESTS
    )
    visible = dependencies.filter_visible_requests(request, about.items)
    return responses.make_page_response(
        request,
        "entry.html",
        responses.build_page_frame(
            request, f"{entry.name} ({labels.name_entries(row, 1)})", *build_crumbs(row)
        ),
        registry=row,
        entry=entry,
        status_help=labels.STATUS_HELP[entry.status],
        cells=page_parts.build_entry_cells(entry),
        names=names,
        expires=labels.format_date(entry.expires),
        draft=_format_draft(entry),
        nobody=page_parts.describe_missing_registrant(entry),
        history=part[::-1],
        earlier=earlier,
        versions=page_parts.build_version_options(
            page_parts.index_versions(await dependencies.load_entry_changes(request, row.id, entry.name))
        ),
        formats=responses.list_formats(row.id),
        procedures=_list_procedures(request, row),
        syntax=await load_entry_syntax(request, entry, visible),
        is_scheme=row.id == "uri-schemes",
        specification=page_parts.split_links(
            entry.fields.get("reference") or entry.fields.get("references", "")
        ),
        requests=visible,
        now=dependencies.get_current_time(request),
    )


def _format_draft(entry: Entry) -> str:
    if entry.draft is None:
        return ""
    said = labels.translate_text("%(name)s, expires %(date)s")
    return said % {"name": entry.draft.name, "date": labels.format_date(entry.draft.expires)}


@labels.translate_page
async def compare_page(request: HTTPRequest) -> Response:
    """GET: two versions of an entry, by default the last two."""
    entry = await dependencies.find_entry(request)
    row = REGISTRIES[entry.registry]
    versions = page_parts.index_versions(
        await dependencies.load_entry_changes(request, entry.registry, entry.name)
    )
    numbers = sorted(versions) or [entry.version]
    before = responses.parse_number(request.query_params.get("before"), "before")
    after = responses.parse_number(request.query_params.get("after"), "after")
    before = (numbers[-2] if len(numbers) > 1 else numbers[-1]) if before is None else before
    after = numbers[-1] if after is None else after
    for field, version in (("before", before), ("after", after)):
        if version not in versions:
            raise UnknownEntryError(
                f"{entry.name} has no version {version}",
                code="registry.unknown-version",
                field=field,
                hint=f"one of {', '.join(map(str, numbers))}",
            )
    fields = page_parts.compare_versions(versions[before][0], versions[after][0])
    here = (urls.entry_url(row.id, entry.name), entry.name)
    title = labels.translate_text("%(name)s: versions %(before)s and %(after)s")
    return responses.make_page_response(
        request,
        "compare.html",
        responses.build_page_frame(
            request,
            title % {"name": entry.name, "before": before, "after": after},
            *build_crumbs(row, here),
        ),
        registry=row.id,
        name=entry.name,
        entry=here[0],
        action=urls.compare_url(row.id, entry.name),
        before=before,
        after=after,
        versions=page_parts.build_version_options(versions),
        fields=fields,
        changes=sum(field.changed for field in fields),
    )


async def download_entry(request: HTTPRequest) -> Response:
    """One entry as a file."""
    entry = await dependencies.find_entry(request)
    return responses.make_file_response(
        request, (entry,), entry.registry, request.path_params["form"], entry.name
    )


#: registry -> the columns that an update may change; in a registry that an operator defined, every field
_UPDATES: Final = {
    "uri-schemes": ("description", "applications", "contact", "change_controller", "references", "reference"),
    "llm-parameters": ("type", "description", "contact", "change_controller", "reference"),
    "ai-namespaces": ("anchor", "keys", "description", "contact", "change_controller"),
}
_PREFIX: Final = "field."
#: roles that may undo the removal of an entry
_OVERRIDES: Final = frozenset({Role.IANA, Role.IESG})


async def change_page(request: HTTPRequest) -> Response:
    """GET: the changes that the visitor may request."""
    return await _make_changes_response(request)


async def _make_changes_response(
    request: HTTPRequest, *, form: responses.PageForm | None = None, error: RegistryError | None = None
) -> Response:
    """Return the page of changes. `error` is why `form` was not accepted."""
    row, name, entry = await dependencies.find_entry_or_none(request)
    last = await dependencies.get_store(request).list_changes_of_name(row.id, name, limit=1)
    if entry is None:
        if error is not None:
            raise error
        return _show_removed_entry(request, row, last)
    requested: tuple[ActionView, ...] = ()
    if get_visitor(request).account is not None:
        requested = tuple(
            _add_update_fields(action, entry) for action in actions.build_change_requests(entry)
        )
    direct, asked = _list_direct_actions(request, entry, last), len(requested)
    if form is not None and error is not None:
        shown = actions.show_error((*requested, *direct), form, error)
        requested, direct = shown[:asked], shown[asked:]
    return _make_change_response(
        request,
        row,
        (urls.entry_url(row.id, entry.name), entry.name),
        http_status=200 if error is None else get_problem_type(error).status,
        status=entry.status,
        version=entry.version,
        direct=direct,
        requested=requested,
    )


def _make_change_response(
    request: HTTPRequest,
    row: Registry,
    here: tuple[str, str],
    *,
    removed: str = "",
    http_status: int = 200,
    **members: Any,
) -> Response:
    return responses.make_page_response(
        request,
        "change.html",
        responses.build_page_frame(request, f"Change {here[1]}", *build_crumbs(row, here)),
        http_status=http_status,
        registry=row.id,
        name=here[1],
        entry=here[0],
        signed_in=get_visitor(request).account is not None,
        removed=removed,
        **members,
    )


def _list_direct_actions(
    request: HTTPRequest, entry: Entry, last: tuple[EntryChange, ...]
) -> tuple[ActionView, ...]:
    """Return the changes that take effect at once."""
    kinds = dependencies.list_visitor_events(request, None, entry)
    href = urls.entry_events_url(entry.registry, entry.name)
    found = actions.build_actions(kinds, href=href, version=entry.version, about=entry)
    if EventKind.OVERRIDE in kinds:
        found += actions.build_control_actions(
            entry, get_visitor(request).list_roles(entry.registry), href=href
        )
    if EventKind.OVERRIDE in kinds and last:
        found += actions.build_undo_actions(last[0], href=href, version=entry.version)
    return found


def _show_removed_entry(request: HTTPRequest, row: Registry, last: tuple[EntryChange, ...]) -> Response:
    """Return the page of a removed name: the removal, and the form that undoes it."""
    change, visitor = last[0] if last else None, get_visitor(request)
    if change is None or change.before is None or not dependencies.is_removal(change):
        raise dependencies.make_unknown_entry_error(row)
    may = not actions.EVENT_SCOPES[EventKind.OVERRIDE].isdisjoint(
        visitor.scopes
    ) and not _OVERRIDES.isdisjoint(visitor.list_roles(row.id))
    href = urls.entry_events_url(row.id, change.name)
    return _make_change_response(
        request,
        row,
        (urls.entries_url(row.id, q=change.name), change.name),
        status=change.before.status,
        version=change.version,
        direct=actions.build_undo_actions(change, href=href, version=0) if may else (),
        requested=(),
        removed=f"Removed on {labels.format_date(change.at.date())} by record {change.number}.",
    )


def _add_update_fields(view: ActionView, entry: Entry) -> ActionView:
    """Add the entry's fields to the form of an update."""
    if view.kind != "update":
        return view
    row = REGISTRIES[entry.registry]
    own = (
        {field.id: field.heading for field in PROFILES[row.default_profile].fields} if row.is_defined else {}
    )
    fields = tuple(
        page_parts.ActionField(
            id=_PREFIX + column,
            label=own.get(column) or column.replace("_", " ").capitalize(),
            kind="long",
            required=False,
            help="",
            value=page_parts.get_column_value(entry, column),
        )
        for column in _UPDATES.get(entry.registry, own)
        if column not in ("name", "status")
    )
    return replace(view, fields=fields)


async def post_entry_event(request: HTTPRequest) -> Response:
    """POST: a change that takes effect at once."""
    row, name, entry = await dependencies.find_entry_or_none(request)
    form = await responses.read_form(request)
    kind = parse_event_kind(form.get_text("kind"))
    if entry is None and kind is not EventKind.OVERRIDE:
        raise dependencies.make_unknown_entry_error(row)
    expected = responses.parse_form_version(form)
    try:
        applied = await dependencies.apply_event(
            request, kind, row.id, name=name, data=actions.parse_event_data(kind, form), expected=expected
        )
    except RegistryError as error:
        actions.require_correctable(request, form, error)
        return await _make_changes_response(request, form=form, error=error)
    if applied.decision.entry is None:  # the entry and its page are gone
        return responses.redirect_to(urls.entries_url(row.id, q=name), str(kind))
    return responses.redirect_to(urls.entry_url(row.id, name), str(kind))


async def open_change(request: HTTPRequest) -> Response:
    """POST: open a draft request for a change."""
    entry = await dependencies.find_entry(request)
    form = await responses.read_form(request)
    require_access(get_visitor(request))
    # the version of the entry from which the form was filled
    expected = responses.parse_number(form.get_text("version"), "version")
    try:
        data = _build_change_data(entry, form)
        applied = await dependencies.apply_event(
            request, EventKind.OPEN, entry.registry, name=entry.name, data=data, expected=expected
        )
    except RegistryError as error:
        actions.require_correctable(request, form, error)
        return await _make_changes_response(request, form=form, error=error)
    return responses.redirect_to(urls.request_url(get_applied_request(applied).id), "open")


def _build_change_data(entry: Entry, form: responses.PageForm) -> dict[str, Any]:
    """Return the request's data, with only the fields that differ from the entry's."""
    kind = form.get_text("kind")
    given = {
        name.removeprefix(_PREFIX): values[0].strip()
        for name, values in form.items()
        if name.startswith(_PREFIX) and values[0].strip()
    }
    said = {
        key: text for key, text in given.items() if text != page_parts.get_column_value(entry, key).strip()
    }
    grounds = form.get_text("use").strip() or form.get_text("grounds").strip()
    data: dict[str, Any] = {"kind": kind, "fields": {**said, "name": entry.name}}
    if kind == "status-change":
        data["status"] = form.get_text("status")
    if kind in ("note-separate-use", "reassign"):
        if not grounds:
            field = "use" if kind == "note-separate-use" else "grounds"
            raise RegistryError("the reason is missing", code="registry.missing-data", field=field)
        data["template"] = grounds
    if kind == "note-separate-use":
        data["fields"]["description"] = grounds  # the text of the entry's note
    return data


#: addresses below a registry come before the one that takes any name
ROUTES: Final = (
    make_route(urls.HOME_URL, {"GET": home_page}),
    make_route("/search", {"GET": search_page}),
    make_route(urls.feed_url(None), {"GET": responses.get_changes_feed}),
    make_route("/r/{registry}", {"GET": list_page}),
    make_route("/r/{registry}/changes.atom", {"GET": responses.get_changes_feed}),
    make_route("/r/{registry}/-/entry/{name}", {"GET": entry_page}),
    make_route("/r/{registry}/{name}", {"GET": entry_page}),
    make_route("/r/{registry}/{name}/compare", {"GET": compare_page}),
    make_route("/r/{registry}/{name}/change", {"GET": change_page, "POST": open_change}),
    make_route("/r/{registry}/{name}/events", {"POST": post_entry_event}),
    make_route("/r/{registry}/{name}/download/{form}", {"GET": download_entry}),
)
