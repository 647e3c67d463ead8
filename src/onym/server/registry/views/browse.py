"""Pages for readers: home, lists, search, an entry, two versions of it, files, help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from onym.errors import UnknownEntryError
from onym.registry.profiles import PROFILES, Profile
from onym.registry.records import Entry, Event, Request, Role, Status
from onym.registry.registries import REGISTRIES, Registry
from onym.server.registry import urls
from onym.server.registry.build.diagram import diagram
from onym.server.registry.build.parts import (
    cells_of,
    choices,
    entry_row,
    history_lines,
    last_of,
    nobody_of,
    note_view,
    request_row,
)
from onym.server.registry.build.versions import compare, options, versions_of
from onym.server.registry.contexts import ComparePage, EntryPage, HelpPage, HomePage, ListPage, SearchPage
from onym.server.registry.contexts.browse import PolicyRow, ProfileHelp, RegistryCard, RegistryHits
from onym.server.registry.contexts.parts import Cell, Choice, Link
from onym.server.registry.counts import counts_of
from onym.server.registry.desk import (
    find_entry,
    find_registry,
    names_of,
    now,
    people,
    store,
    whole_changes,
    whole_history,
)
from onym.server.registry.fast import Kept, cache_of
from onym.server.registry.files import entry_file, formats_of
from onym.server.registry.form import check_query, number
from onym.server.registry.privacy import hidden_ids, seen
from onym.server.registry.render import chrome, encode, respond, respond_twin, twin, wants_twin
from onym.server.registry.words import (
    STATUS_HELP,
    STATUS_LABELS,
    SUMMARIES,
    day,
    moment,
    status_view,
)
from onym.server.security import check_cursor, current, page_size
from onym.server.services import services

if TYPE_CHECKING:
    from starlette.requests import Request as HTTPRequest

__all__ = ["compare_page", "download", "entry_page", "help_page", "home_page", "list_page", "search_page"]

_NEWS: Final = 8
_WINDOW: Final = 200
_HITS: Final = 10
_ABOUT: Final = 20


async def home_page(request: HTTPRequest) -> Response:
    """The three registries, what is new, how to register."""
    head = await store(request).head()
    recent = await store(request).log(after=max(0, head.number - _WINDOW), limit=_WINDOW)
    hidden = await hidden_ids(request, recent)
    told = (each for each in reversed(recent) if each.event.request not in hidden)
    news = [each for each in told if each.event.kind != "import"][:_NEWS]
    named = [await _about(request, each.event) for each in news]
    open_ones: list[Request] = []
    for role in (Role.IANA, Role.EXPERT, Role.IESG):
        open_ones += (await store(request).requests(holder=role, limit=_NEWS)).items
    cards = [_card(row, await counts_of(request, row.id)) for row in REGISTRIES.values()]
    context = HomePage(
        page=chrome(request, "Home"),
        registries=tuple(cards),
        news=history_lines(news),
        news_names=tuple(named),
        open_requests=tuple(
            request_row(each, now(request)) for each in sorted(open_ones, key=lambda r: r.since)
        ),
        submit=urls.submit,
        requests=urls.requests(),
    )
    return respond(request, context)


async def _about(request: HTTPRequest, event: Event) -> Link:
    """What an event is about: its request's page, else the entry's, as long as there is one."""
    if event.request is not None:
        found = await store(request).request(event.request)
        name = event.name or ("" if found is None else found.name)
        return Link(href=urls.request(event.request), text=name)
    entry = await store(request).entry(event.registry, event.name or "")
    href = urls.entries(event.registry) if entry is None else urls.entry(entry.registry, entry.name)
    return Link(href=href, text=event.name or "")


def _card(row: Registry, counts: dict[Status, int]) -> RegistryCard:
    return RegistryCard(
        id=row.id,
        title=row.title,
        noun=row.noun,
        href=urls.entries(row.id),
        feed=urls.feed(row.id),
        submit=urls.path("submit", registry=row.id),
        reference=row.reference,
        summary=SUMMARIES.get(row.id, ""),
        total=sum(counts.values()),
        counts=tuple(
            Choice(value=str(counts[each]), label=STATUS_LABELS[each][0].lower())
            for each in row.statuses
            if counts.get(each)
        ),
    )


def _query(request: HTTPRequest) -> str:
    return check_query(request.query_params.get("q", ""), "q")


def status_filter(request: HTTPRequest, row: Registry) -> Status | None:
    """The status to filter by. Raises UnknownEntryError for none of this registry."""
    said = request.query_params.get("status", "")
    found = next((each for each in row.statuses if each == said), None)
    if said and found is None:
        raise UnknownEntryError(
            "no such status in this registry",
            code="registry.bad-status",
            field="status",
            hint=f"one of {', '.join(row.statuses)}",
        )
    return found


async def list_page(request: HTTPRequest) -> Response:
    """One registry, filtered."""
    row, query = find_registry(request), _query(request)
    status = status_filter(request, row)
    after = check_cursor(request.query_params.get("after"))
    size = page_size(request.query_params.get("limit"), 100)
    page = await store(request).entries(row.id, query=query, status=status, after=after, limit=size)
    chosen = "" if status is None else str(status)
    context = ListPage(
        page=chrome(request, row.title, (urls.home, "Home")),
        registry=row.id,
        title=row.title,
        noun=row.noun,
        reference=row.reference,
        headings=tuple(Link(href=each.id, text=each.heading) for each in row.columns),
        rows=tuple(entry_row(each) for each in page.items),
        query=query,
        statuses=choices(
            [("", "Any status"), *((str(each), STATUS_LABELS[each][0]) for each in row.statuses)], chosen
        ),
        action=urls.entries(row.id),
        next="" if page.next is None else urls.entries(row.id, q=query, status=chosen, after=page.next),
        first=urls.entries(row.id, q=query, status=chosen) if after else "",
        feed=urls.feed(row.id),
        submit=urls.path("submit", registry=row.id),
        exports=tuple(Link(href=urls.export(row.id, form), text=title) for form, title in formats_of(row.id)),
    )
    return respond(request, context)


async def search_page(request: HTTPRequest) -> Response:
    """Search across the registries."""
    query, groups = _query(request), []
    for row in REGISTRIES.values() if query else ():
        found = await store(request).search(row.id, query, _HITS)
        if found:
            groups.append(
                RegistryHits(
                    registry=row.id,
                    title=row.title,
                    rows=tuple(entry_row(each) for each in found),
                    more=urls.entries(row.id, q=query),
                )
            )
    context = SearchPage(
        page=chrome(request, "Search", (urls.home, "Home")),
        query=query,
        action=urls.search(),
        hits=tuple(groups),
        total=sum(len(each.rows) for each in groups),
    )
    return respond(request, context)


def crumbs_of(row: Registry, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """From the root down to a registry."""
    return ((urls.home, "Home"), (urls.entries(row.id), row.title), *more)


async def entry_page(request: HTTPRequest) -> Response:
    """One entry. What a program without an account reads is kept, like the API's representation."""
    if current(request).account is not None or request.url.query or not wants_twin(request):
        return respond(request, await _entry(request))
    # it says how long ago things were, so that it may be a minute old
    minute = int(services(request).monotonic() // 60)

    async def make() -> Kept:
        return Kept(encode(twin(await _entry(request))), "")

    params = request.path_params
    kept = await cache_of(request).get((params["registry"], f"page {minute} {params['name']}"), make)
    return respond_twin(request, kept.body)


async def _entry(request: HTTPRequest) -> EntryPage:
    entry = await find_entry(request)
    row = REGISTRIES[entry.registry]
    records = await whole_history(request, entry.registry, entry.name)
    part, earlier = last_of(records, number(request.query_params.get("before"), "before"))
    names = await people(request, part)
    names |= await names_of(request, (note.by for note in entry.notes))
    about = await store(request).requests(registry=row.id, name=entry.name, limit=_ABOUT)
    return EntryPage(
        page=chrome(request, f"{entry.name} ({row.noun})", *crumbs_of(row)),
        registry=row.id,
        registry_title=row.title,
        noun=row.noun,
        name=entry.name,
        spelling=entry.spelling or "",
        status=status_view(entry.status),
        status_help=STATUS_HELP[entry.status],
        cells=cells_of(entry),
        notes=tuple(note_view(each, names) for each in entry.notes),
        registered=moment(entry.registered),
        updated=moment(entry.updated),
        expires=day(entry.expires),
        draft=_draft(entry),
        version=entry.version,
        nobody=nobody_of(entry),
        pending=tuple(Link(href=urls.request(each), text=each) for each in entry.pending),
        history=history_lines(reversed(part), names),
        earlier="" if earlier is None else urls.history(row.id, entry.name, earlier),
        versions=options(versions_of(await whole_changes(request, row.id, entry.name))),
        downloads=tuple(
            Link(href=urls.download(row.id, entry.name, form), text=title)
            for form, title in formats_of(row.id)
        ),
        compare=urls.compare(row.id, entry.name),
        change=urls.change(row.id, entry.name),
        requests=tuple(request_row(each, now(request)) for each in seen(request, about.items)),
    )


def _draft(entry: Entry) -> str:
    return "" if entry.draft is None else f"{entry.draft.name}, expires {day(entry.draft.expires)}"


async def compare_page(request: HTTPRequest) -> Response:
    """Two versions of an entry; the last two where none are named."""
    entry = await find_entry(request)
    row = REGISTRIES[entry.registry]
    versions = versions_of(await whole_changes(request, entry.registry, entry.name))
    numbers = sorted(versions) or [entry.version]
    before = number(request.query_params.get("before"), "before")
    after = number(request.query_params.get("after"), "after")
    before = (numbers[-2] if len(numbers) > 1 else numbers[-1]) if before is None else before
    after = numbers[-1] if after is None else after
    if not versions or before not in versions or after not in versions:
        raise UnknownEntryError(
            "this entry has no such version",
            code="registry.unknown-version",
            field="before",
            hint=f"one of {', '.join(map(str, numbers))}",
        )
    fields = compare(versions[before][0], versions[after][0])
    here = (urls.entry(row.id, entry.name), entry.name)
    context = ComparePage(
        page=chrome(request, f"{entry.name}: versions {before} and {after}", *crumbs_of(row, here)),
        registry=row.id,
        name=entry.name,
        entry=here[0],
        action=urls.compare(row.id, entry.name),
        before=before,
        after=after,
        versions=options(versions),
        fields=fields,
        changes=sum(each.changed for each in fields),
    )
    return respond(request, context)


async def download(request: HTTPRequest) -> Response:
    """One entry as a file."""
    entry = await find_entry(request)
    return entry_file(request, (entry,), entry.registry, request.path_params["form"], entry.name)


async def help_page(request: HTTPRequest) -> Response:
    """The procedure."""
    profiles = tuple(_help(each) for each in PROFILES.values())
    context = HelpPage(
        page=chrome(request, "How it works", (urls.home, "Home")),
        profiles=profiles,
        contents=(
            Link(href=urls.help_page("short"), text="In short"),
            Link(href=urls.help_page("statuses"), text="Statuses"),
            *(Link(href=urls.help_page(each.id), text=each.title) for each in profiles),
        ),
        statuses=tuple(
            Cell(id=str(each), heading=STATUS_LABELS[each][0], value=text)
            for each, text in STATUS_HELP.items()
        ),
        submit=urls.submit,
    )
    return respond(request, context)


def _help(profile: Profile) -> ProfileHelp:
    rows = []
    for status, policy in profile.policies.items():
        review = profile.list_review.get(status)
        said = "optional"
        if review is not None:
            weeks = f"{review.reasonable.days // 7} weeks, {review.clause}"
            said = f"{'required' if review.required else 'optional'}: {weeks}"
        rows.append(
            PolicyRow(status=status_view(status), policy=policy.name, clause=policy.clause, list_review=said)
        )
    timeout = (
        f"An answer of the expert is expected within {profile.expert_time.days} days."
        if profile.expert_timeout is None
        else f"After {profile.expert_timeout.days} days of silence it is registered provisionally."
    )
    fields = tuple(
        Cell(
            id=each.id,
            heading=each.label[0].upper() + each.label[1:],
            value=f"{'required' if each.required else 'optional'}; see {each.guideline}",
        )
        for each in profile.fields
    )
    return ProfileHelp(
        id=profile.id,
        title=profile.title,
        policies=tuple(rows),
        fields=fields,
        timeout=timeout,
        diagram=diagram(profile.id),
    )
