"""Forms and responses of the registry: form parsing, pages, files and the Atom feed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from onym.errors import RegistryError, UnknownEntryError, UsageError
from onym.registry.checks.context import to_visible
from onym.registry.records import Role, is_administrator
from onym.registry.registries import PROFILES, REGISTRIES, get_catalog
from onym.registry.service import render_entries, render_feed
from onym.registry.words import apply_words, name_role
from onym.server.registry import labels, urls
from onym.server.registry.dependencies import find_registry, get_current_time, get_store
from onym.server.registry.labels import translate_text
from onym.server.registry.page_parts import Link, PageFrame, split_clauses
from onym.server.responses import make_cached_response
from onym.server.services import get_services, make_template_environment
from onym.server.sessions import get_visitor

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request
    from starlette.types import Scope

    from onym.registry.records import Entry, LogRecord, Status
    from onym.registry.registries import Registry
    from onym.registry.store import EntryChange

#: characters of a pasted template, draft or RFC
MAX_TEMPLATE: Final = 1_000_000
#: characters of one field of a template
MAX_FIELD: Final = 64_000
#: characters of a search text
MAX_QUERY: Final = 200
#: fields of one form
_MOST_FIELDS: Final = 100
#: bytes of a body that is decoded in the event loop
_SHORT_BODY: Final = 64 * 1024
_TYPE: Final = "application/x-www-form-urlencoded"
#: control characters except tab, line feed and carriage return
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class PageForm(dict[str, list[str]]):
    """The values of a form, by name."""

    def get_text(self, name: str, default: str = "") -> str:
        """Return the first value of a field."""
        return self.get(name, [default])[0]


def clean_query(text: str, field: str, limit: int = MAX_QUERY) -> str:
    """Return a query value, stripped. Raises RegistryError (http.bad-form) beyond `limit` characters."""
    if len(text) > limit:
        raise RegistryError(f"{field} is longer than {limit} characters", code="http.bad-form", field=field)
    return clean_text(text, field, limit).strip()


def clean_text(text: str, field: str, limit: int) -> str:
    """Return the text with line feeds. Raises RegistryError if it is too long or has control characters."""
    if len(text) > limit:
        raise RegistryError(
            f"{field} is longer than {limit:,} characters",
            code="http.too-large",
            field=field,
            hint="Shorten it.",
        )
    # drafts contain form feeds between pages
    if _CONTROL.search(text.replace("\f", "")):
        raise RegistryError(
            f"{field} contains control characters",
            code="registry.control-characters",
            field=field,
            hint="Paste it as plain text.",
        )
    return text.replace("\r\n", "\n")


async def read_form(request: Request) -> PageForm:
    """Return the form of the request. Raises HTTPException 415, or RegistryError (http.bad-form)."""
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != _TYPE:
        raise HTTPException(415)
    # a long body is decoded in a thread, so that other requests do not wait
    body = await request.body()
    pairs = _parse_pairs(body) if len(body) < _SHORT_BODY else await asyncio.to_thread(_parse_pairs, body)
    form = PageForm()
    for name, value in pairs:
        limit = MAX_TEMPLATE if name == "template" else MAX_FIELD
        form.setdefault(name[:64], []).append(clean_text(value, name[:64], limit))
    return form


def _parse_pairs(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
        )
    except ValueError:
        raise RegistryError("the body is not a form in UTF-8", code="http.bad-form") from None


def parse_number(text: str | None, field: str) -> int | None:
    """Return a number of at most nine digits, or None for no text. Raises RegistryError."""
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise RegistryError(f"{field} is not a number", code="http.bad-limit", field=field)
    return int(text)


def parse_form_version(form: PageForm) -> int:
    """Return the version that a form shows. Raises UsageError (http.precondition-required)."""
    version = parse_number(form.get_text("version"), "version")
    if version is None:
        raise UsageError(
            "the form has no version", code="http.precondition-required", hint="Reload the page."
        )
    return version


async def get_entry_counts(request: Request, registry: str) -> dict[Status, int]:
    """Return the number of entries by status. Raises UnknownEntryError."""
    state = request.app.state
    kept: dict[str, tuple[int, dict[Status, int]]] = getattr(state, "registry_counts", None) or {}
    state.registry_counts = kept
    head = (await get_store(request).head()).number
    found = kept.get(registry)
    if found is None or found[0] != head:
        found = kept[registry] = (head, await get_store(request).count_by_status(registry))
    return found[1]


#: outcomes from which a page selects its news
_MOST_OUTCOMES: Final = 60


async def get_outcomes(request: Request) -> tuple[tuple[LogRecord, EntryChange | None], ...]:
    """Return the last outcomes of all registries, newest first; read again after a write."""
    state = request.app.state
    head = (await get_store(request).head()).number
    found: tuple[int, Any] | None = getattr(state, "registry_outcomes", None)
    if found is None or found[0] != head:
        found = state.registry_outcomes = (head, await get_store(request).list_outcomes(_MOST_OUTCOMES))
    outcomes: tuple[tuple[LogRecord, EntryChange | None], ...] = found[1]
    return outcomes


class StaticAssets(StaticFiles):
    """Static files. An address that contains the file's hash may be cached for a year."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, with its cache lifetime."""
        response = await super().get_response(path, scope)
        if response.status_code == 200 and scope["query_string"].startswith(b"v="):
            response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


#: queues, by the role that works at them
QUEUES: Final = ((Role.EXPERT, "Review queue"), (Role.IANA, "IANA queue"), (Role.IESG, "IESG queue"))


@cache
def get_template_environment() -> Environment:
    """Return the Jinja environment of these pages."""
    found = make_template_environment("onym.server.registry")
    found.filters["machine"] = _format_machine_time
    found.filters["minute"] = labels.format_time
    found.filters["label"] = labels.get_label
    found.filters["sign"] = labels.STATUS_SIGNS.__getitem__
    found.filters["roles"] = labels.format_roles
    found.filters["reason"] = _get_reason
    found.filters["words"] = _make_words_filter()
    found.filters["of_row"] = labels.translate_row
    found.filters["noun"] = labels.name_entries
    found.filters["inside"] = labels.format_inside
    found.filters["clauses"] = split_clauses
    labels.install_translations(found)
    found.globals |= {
        "urls": urls, "registries": REGISTRIES, "profiles": PROFILES, "state_tones": labels.STATE_TONES,
        "mark_english": labels.mark_english,
    }  # fmt: skip
    found.filters["coded"] = _split_code
    found.filters["visible"] = to_visible
    return found


def _make_words_filter() -> Any:
    """Return the filter that puts the operator's names of roles into a text."""
    from jinja2 import pass_context  # late: see make_template_environment

    # without the context, Jinja would apply it once, when it compiles the template
    @pass_context
    def put_words(_: Any, text: str) -> str:
        return apply_words(text)

    return put_words


def _get_reason(record: LogRecord) -> str:
    reason = record.event.data.get("reason") or record.event.data.get("text") or ""
    return reason if isinstance(reason, str) else ""


def _format_machine_time(text: str) -> str:
    """Return a time of `format_time` for the attribute `datetime`."""
    return text.replace(" ", "T", 1)


def _split_code(text: str) -> list[tuple[bool, str]]:
    """Split a text at its backticks into (is code, piece) pairs."""
    pieces = text.split("`")
    paired = len(pieces) % 2 == 1
    return [(paired and at % 2 == 1, piece) for at, piece in enumerate(pieces) if piece]


def list_all_roles(request: Request) -> frozenset[Role]:
    """Return the visitor's roles in all registries."""
    visitor = get_visitor(request)
    found: frozenset[Role] = frozenset()
    return found.union(*(visitor.list_roles(registry) for registry in REGISTRIES))


def build_page_frame(request: Request, title: str, *crumbs: tuple[str, str]) -> PageFrame:
    """Return the frame of a page in the language in force.

    `crumbs` are (URL, text) pairs from the root down. Texts of the navigation are translated there.
    """
    visitor, here, roles = get_visitor(request), request.url.path, list_all_roles(request)
    own = {(url, text): translate_text(text) for url, text in NAV_LINKS}
    nav = (
        (urls.HOME_URL, translate_text("Home")),
        *((urls.entries_url(row.id), _name_registry(row)) for row in REGISTRIES.values()),
        *((url, text) for (url, _), text in own.items() if url != urls.HOME_URL),
    )
    desk = [
        (urls.queue_url(name_role(role)), apply_words(translate_text(label)))
        for role, label in QUEUES
        if role in roles
    ]
    account = visitor.account
    if visitor.is_administrator:
        desk.append((urls.ACCOUNTS_URL, translate_text("Accounts")))
    if account is not None and is_administrator(account) and Role.IANA in roles:
        desk.append((urls.AUDIT_URL, translate_text("Audit")))
    return PageFrame(
        title=title,
        nav=tuple(Link(href=href, text=text, current=href == here) for href, text in nav),
        desk=tuple(Link(href=href, text=text, current=href == here) for href, text in desk),
        crumbs=tuple(Link(href=href, text=own.get((href, text), text)) for href, text in crumbs),
        who="" if account is None else account.name or account.login,
        csrf=visitor.csrf_token,
        done=labels.describe_done(request.query_params.get("done", "")),
        service=get_catalog().title or "Onym registry",
        language=labels.get_language(),
        languages=tuple(
            Link(
                href=urls.language_url(language, here),
                text=name,
                current=language == labels.choose_language(request),
            )
            for language, name in labels.LANGUAGES.items()
        ),
    )


#: links of the navigation that every registry has; the registries are between the first and the others
NAV_LINKS: Final = (
    (urls.HOME_URL, "Home"),
    (urls.requests_url(), "Requests"),
    (urls.SUBMIT_URL, "Register"),
    (urls.help_url(), "How it works"),
)
NAV_LABELS: Final = {
    "uri-schemes": "URI schemes",
    "llm-parameters": "llm parameters",
    "ai-namespaces": "ai namespaces",
}


def _name_registry(row: Registry) -> str:
    own = NAV_LABELS.get(row.id)
    return translate_text(own) if own else row.short_title or row.title


def render_page(template: str, page: PageFrame, /, **members: Any) -> str:
    """Return the whole HTML document; the template uses the frame, every member and nothing else."""
    return get_template_environment().get_template(template).render(members, page=page)


#: pages of the service itself that are in every language
_TRANSLATED: Final = frozenset({"error.html", "login.html"})


def render_service_page(request: Request, template: str, title: str, /, **members: Any) -> str:
    """Return a page of the service itself: errors, sign-in or the account."""
    with labels.use_language(labels.choose_language(request) if template in _TRANSLATED else labels.DEFAULT):
        title = translate_text(title) if template == "login.html" else title
        return render_page(template, build_page_frame(request, title, (urls.HOME_URL, "Home")), **members)


def negotiate_media_type(request: Request, offered: Iterable[str]) -> str:
    """Return the offered media type that the client prefers, the first of several (RFC 9110 12.5.1).

    Raises HTTPException 406 if the client accepts none.
    """
    qualities = {media: _get_quality(request, media) for media in offered}
    best = max(qualities, key=lambda media: qualities[media])
    if not qualities[best]:
        raise HTTPException(406)
    return best


def _get_quality(request: Request, media: str) -> float:
    """Return the client's weight (0 to 1) for a media type, from the most specific range."""
    header = request.headers.get("accept", "").strip() or "*/*"
    ranges = (_parse_media_range(part) for part in header.split(",")[:_MOST_RANGES])
    weights = ((exact, weight) for pattern, weight in ranges if (exact := _match_media_range(pattern, media)))
    return max(weights, default=(0, 0.0))[1]


_MOST_RANGES: Final = 40


def _parse_media_range(text: str) -> tuple[str, float]:
    media, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next((parameter[2:] for parameter in parameters if parameter.startswith("q=")), "1")
    try:
        return media, min(max(float(quality), 0.0), 1.0)
    except ValueError:
        return media, 0.0


def _match_media_range(pattern: str, media: str) -> int:
    """Return how specific the match is: 3 for the type, 2 for its family, 1 for any type, 0 for no match."""
    if pattern == media:
        return 3
    family, _, kind = pattern.partition("/")
    return (2 if media.startswith(family + "/") else 1 if family == "*" else 0) if kind == "*" else 0


def make_page_response(
    request: Request, template: str, page: PageFrame, /, *, http_status: int = 200, **members: Any
) -> Response:
    """Return the page as HTML. Raises UsageError (http.406) if the client accepts no HTML.

    A page that reports an error is always sent.
    """
    if http_status == 200 and not _get_quality(request, "text/html"):
        raise UsageError(
            "this page is available as HTML only",
            code="http.406",
            hint=f"Programs use the JSON API under {urls.API_PREFIX}; {urls.OPENAPI_URL} describes it.",
        )
    return Response(render_page(template, page, **members), http_status, _HEADERS, media_type="text/html")


_HEADERS: Final = {
    "vary": "Accept, Accept-Language, Cookie, Authorization, HX-Request",
    "cache-control": "private, no-cache",
}


def redirect_to(address: str, done: str = "") -> Response:
    """Redirect to a page after a form."""
    mark = "&" if "?" in address else "?"
    return RedirectResponse(f"{address}{mark}done={done}" if done else address, 303)


#: format -> label of its link
FORMAT_TITLES: Final[Mapping[str, str]] = {
    "xml": "XML (IANA's form)",
    "csv": "CSV",
    "csv-2022": "CSV (columns of 2022)",
    "text": "Plain text",
    "json": "JSON",
}
#: format -> media type, file name extension
MEDIA_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "xml": ("application/xml", "xml"),
    "csv": ("text/csv", "csv"),
    "csv-2022": ("text/csv", "csv"),
    "csv-2015": ("text/csv", "csv"),
    "text": ("text/plain", "txt"),
    "json": ("application/json", "json"),
}

#: the date of a file without dated entries
_NEVER: Final = date(1970, 1, 1)
#: formats for URI schemes only
_SCHEMES: Final = frozenset({"csv-2015", "csv-2022"})


def list_formats(registry: str) -> tuple[tuple[str, str], ...]:
    """Return (format, title) of every file format of this registry, in the language in force."""
    own = {"xml": "XML"} if registry in REGISTRIES and REGISTRIES[registry].is_defined else {}
    return tuple(
        (form, own.get(form) or translate_text(title))
        for form, title in FORMAT_TITLES.items()
        if form not in _SCHEMES or registry == "uri-schemes"
    )


def make_file_response(
    request: Request,
    entries: Iterable[Entry],
    registry: str,
    form: str,
    name: str,
    status: Status | None = None,
    *,
    frame: bytes | None = None,
) -> Response:
    """Return these entries as a download; see `encode_file`. Raises UnknownEntryError."""
    body = encode_file(entries, registry, form, status, frame=frame)
    media, extension = MEDIA_TYPES[form]
    kept = "".join(
        character if character.isascii() and (character.isalnum() or character in "+.-_") else "_"
        for character in name
    )
    headers = {"content-disposition": f'attachment; filename="{kept}.{extension}"'}
    return make_cached_response(request, body, media, headers=headers)


def encode_file(
    entries: Iterable[Entry],
    registry: str,
    form: str,
    status: Status | None = None,
    *,
    frame: bytes | None = None,
) -> bytes:
    """Return the content of a file of these entries; a csv-2015 file contains the entries of one `status`.

    XML is written into `frame`, the imported file, if there is one. Raises UnknownEntryError for an unknown
    format.
    """
    if form not in MEDIA_TYPES or (form in _SCHEMES and registry != "uri-schemes"):
        raise UnknownEntryError(
            f"{registry} has no format {form!r}",
            code="registry.unknown-format",
            field="format",
            hint=f"Use one of {', '.join(MEDIA_TYPES)}.",
        )
    rows = tuple(entries)
    updated = max((entry.updated for entry in rows if entry.updated is not None), default=_NEVER)
    text = render_entries(rows, format=form, registry=registry, updated=updated, status=status, frame=frame)
    return text.encode("utf-8")


#: changes in one feed
_MAX_FEED_CHANGES: Final = 50
_ATOM_MEDIA_TYPE: Final = "application/atom+xml"


async def get_changes_feed(request: Request) -> Response:
    """GET: the last changes of a registry's columns, or of all registries."""
    registry = find_registry(request).id if "registry" in request.path_params else None
    negotiate_media_type(request, (_ATOM_MEDIA_TYPE, "application/xml", "text/xml", "text/html"))
    store = get_store(request)
    last = await store.changes(registry, limit=_MAX_FEED_CHANGES)
    origin = get_services(request).settings.base_url
    body = render_feed(
        last,
        registry=registry,
        updated=last[0].at if last else (await store.head()).at or get_current_time(request),
        authority=f"{urlsplit(origin).hostname or 'localhost'},2026",
        addresses=urls.make_feed_addresses(origin, registry),
    ).encode("utf-8")
    return make_cached_response(request, body, _ATOM_MEDIA_TYPE)
