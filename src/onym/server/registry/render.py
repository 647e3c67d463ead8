"""Drawing: a context becomes a page, or its JSON twin, by what the visitor accepts."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from onym.registry.records import Role
from onym.registry.registries import REGISTRIES
from onym.server._templates import templates_of
from onym.server.registry import urls
from onym.server.registry.contexts import Chrome, Context
from onym.server.registry.contexts.parts import Link
from onym.server.registry.words import DONE
from onym.server.security import current, entity_tag, is_fresh

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jinja2 import Environment
    from starlette.requests import Request

__all__ = [
    "STATIC",
    "accepts",
    "chrome",
    "draw",
    "encode",
    "environment",
    "respond",
    "respond_twin",
    "see_other",
    "twin",
    "wants_twin",
]

_HERE: Final = Path(__file__).parent
#: the folder of style, script and icon
STATIC: Final = _HERE.parent / "static"
#: queues, by the role that works at them
_QUEUES: Final = ((Role.EXPERT, "Review queue"), (Role.IANA, "IANA queue"), (Role.IESG, "IESG queue"))


@cache
def environment() -> Environment:
    """The one Jinja environment of these pages."""
    found = templates_of("onym.server.registry")
    found.filters["machine"] = _machine
    found.filters["sentence"] = _sentence
    found.filters["coded"] = _coded
    return found


def _machine(text: str) -> str:
    """A time as `words.moment` wrote it, for the attribute `datetime`."""
    return text.replace(" ", "T", 1)


def _sentence(text: str) -> str:
    """A message, as errors word it, with a capital letter and a full stop."""
    end = "" if text.endswith((".", "!", "?")) else "."
    return text[:1].upper() + text[1:] + end if text else ""


def _coded(text: str) -> list[tuple[bool, str]]:
    """A text cut at its backticks: (is it code?, the piece)."""
    pieces = text.split("`")
    paired = len(pieces) % 2 == 1
    return [(paired and at % 2 == 1, piece) for at, piece in enumerate(pieces) if piece]


@cache
def _version(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def _asset(name: str) -> str:
    return urls.asset(name, _version(name))


def roles_anywhere(request: Request) -> frozenset[Role]:
    """Every role that the visitor holds in some registry."""
    visitor = current(request)
    found: frozenset[Role] = frozenset()
    return found.union(*(visitor.roles(each) for each in REGISTRIES))


def chrome(request: Request, title: str, *crumbs: tuple[str, str]) -> Chrome:
    """What stands around the page; `crumbs` are (address, text) from the root down."""
    visitor, here, roles = current(request), request.url.path, roles_anywhere(request)
    nav = (
        (urls.home, "Home"),
        *((urls.entries(each), _SHORT.get(each, each)) for each in REGISTRIES),
        (urls.requests(), "Requests"),
        (urls.submit, "Register"),
        (urls.help_page(), "How it works"),
    )
    desk = [(urls.queue(str(role)), label) for role, label in _QUEUES if role in roles]
    account = visitor.account
    if account is not None and account.administrator and Role.IANA in roles:
        desk.append((urls.audit, "Audit"))
    return Chrome(
        title=title,
        nav=tuple(Link(href=href, text=text, current=href == here) for href, text in nav),
        desk=tuple(Link(href=href, text=text, current=href == here) for href, text in desk),
        crumbs=tuple(Link(href=href, text=text) for href, text in crumbs),
        who="" if account is None else account.name or account.login,
        account=urls.account,
        login=urls.login,
        logout=urls.logout,
        csrf=visitor.csrf_token,
        css=_asset("onym.css"),
        script=_asset("vendor/htmx.min.js"),
        icon=_asset("icon.svg"),
        openapi=urls.openapi,
        help=urls.help_page(),
        search=urls.search(),
        done=DONE.get(request.query_params.get("done", ""), ""),
    )


_SHORT: Final = {
    "uri-schemes": "URI schemes",
    "llm-parameters": "llm parameters",
    "ai-namespaces": "ai namespaces",
}


def _members(context: Context) -> dict[str, Any]:
    return {each.name: getattr(context, each.name) for each in fields(context)}


def draw(context: Context) -> str:
    """The whole HTML document."""
    return environment().get_template(context.template).render(_members(context))


def twin(context: Context) -> dict[str, Any]:
    """The page's data: every field of its context but `page`."""
    return {name: value for name, value in _members(context).items() if name != "page"}


def encode(value: Any) -> bytes:
    """JSON in UTF-8."""
    return msgspec.json.encode(value)


def accepts(request: Request, offered: Iterable[str]) -> str:
    """The media type of `offered` that the client likes best, the first among equals (RFC 9110 12.5.1).

    Raises HTTPException 406 where none will do.
    """
    header = request.headers.get("accept", "").strip() or "*/*"
    ranges = [_range(part) for part in header.split(",")[:_MOST_RANGES]]
    best, liked = "", 0.0
    for media in offered:
        quality = max(
            ((exact, q) for pattern, q in ranges if (exact := _fits(pattern, media))), default=(0, 0.0)
        )[1]
        if quality > liked:
            best, liked = media, quality
    if not best:
        raise HTTPException(406)
    return best


_MOST_RANGES: Final = 40


def _range(text: str) -> tuple[str, float]:
    media, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return media, min(max(float(quality), 0.0), 1.0)
    except ValueError:
        return media, 0.0


def _fits(pattern: str, media: str) -> int:
    """How exactly: 3 the type itself, 2 its family, 1 anything, 0 not."""
    if pattern == media:
        return 3
    family, _, kind = pattern.partition("/")
    return (2 if media.startswith(family + "/") else 1 if family == "*" else 0) if kind == "*" else 0


def wants_twin(request: Request) -> bool:
    """Does the client like a page's JSON better than the page?"""
    return accepts(request, ("text/html", "application/json")) == "application/json"


def respond(
    request: Request, context: Context, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """The page or its twin, as the client asks; 304 where it has the twin already."""
    if wants_twin(request):
        return respond_twin(request, encode(twin(context)), status=status, headers=headers)
    return Response(draw(context), status, {**_HEADERS, **(headers or {})}, media_type="text/html")


def respond_twin(
    request: Request, body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """The twin, encoded already; 304 where the client has it."""
    given = {**_HEADERS, **(headers or {}), "etag": (tag := entity_tag(body))}
    if status == 200 and request.method in ("GET", "HEAD") and is_fresh(request, tag):
        return Response(status_code=304, headers=given)
    return Response(body, status, given, media_type="application/json")


_HEADERS: Final = {
    "vary": "Accept, Cookie, Authorization, HX-Request",
    "cache-control": "private, no-cache",
}


def see_other(address: str, done: str = "") -> Response:
    """Go on with a GET after a form."""
    mark = "&" if "?" in address else "?"
    return RedirectResponse(f"{address}{mark}done={done}" if done else address, 303)
