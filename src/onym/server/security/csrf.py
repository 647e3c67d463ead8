"""The guard before the handlers: no wrong credentials, and no write that another site has sent.

Two independent tests hold a browser's write: where it comes from (Sec-Fetch-Site, else Origin), and a token
that only this site's pages know. Programs with an API token carry no ambient authority and pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request

from onym.errors import AccessError, RegistryError
from onym.server.security.audit import SAFE_METHODS
from onym.server.security.visitor import current

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from onym.server.settings import Settings

__all__ = ["FIELD", "HEADER", "MOST_FIELDS", "MOST_FILES", "Guard"]

FIELD: Final = "csrf_token"
HEADER: Final = "x-csrf-token"
MOST_FIELDS: Final = 200
MOST_FILES: Final = 4
_URLENCODED: Final = "application/x-www-form-urlencoded"
_FORMS: Final = frozenset({_URLENCODED, "multipart/form-data"})
_LONGEST_TOKEN: Final = 200


class Guard:
    """Raises what was wrong with the visitor's credentials, and refuses forged writes."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._origin = settings.base_url
        self._limit = settings.body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            request = Request(scope, receive)
            visitor = current(request)
            if visitor.failure is not None:
                raise visitor.failure
            if scope["method"] not in SAFE_METHODS and visitor.via != "token":
                self._check_source(request)
                receive = await self._check_token(request, receive)
        await self._app(scope, receive, send)

    def _check_source(self, request: Request) -> None:
        site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        good = origin in {None, self._origin} if site is None else site in {"same-origin", "none"}
        if not good:
            raise _forged(
                "this form was sent from another site", "Origin" if site is None else "Sec-Fetch-Site"
            )

    async def _check_token(self, request: Request, receive: Receive) -> Receive:
        """Test the token; the body of a form is read for it and handed on."""
        visitor = current(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        given = request.headers.get(HEADER)
        if kind in _FORMS and given is None:
            body = await _whole(receive)
            given = await self._form_token(request.scope, body, kind)
            receive = _again(body, receive)
        elif visitor.via is None and kind not in _FORMS:
            return receive  # a program's request: nothing of a browser's speaks for it
        if given is None or not visitor.form_key.fits(given):
            raise _forged("the form's token is missing or was given to somebody else", FIELD)
        return receive

    async def _form_token(self, scope: Scope, body: bytes, kind: str) -> str | None:
        if kind == _URLENCODED:
            return _urlencoded_token(body)
        request = Request(scope, _again(body, _nothing))
        try:
            async with request.form(
                max_files=MOST_FILES, max_fields=MOST_FIELDS, max_part_size=self._limit
            ) as form:
                found = form.getlist(FIELD)
        except (MultiPartException, HTTPException, ValueError) as error:
            raise _unreadable() from error
        return found[0] if len(found) == 1 and isinstance(found[0], str) else None


def _urlencoded_token(body: bytes) -> str | None:
    """The one token of the form. Other fields are not decoded: a body may be large, and is read later."""
    pairs = body.split(b"&", MOST_FIELDS)
    if len(pairs) > MOST_FIELDS:
        raise _unreadable()
    found = [value for name, _, value in (each.partition(b"=") for each in pairs) if name == FIELD.encode()]
    if len(found) != 1 or len(found[0]) > _LONGEST_TOKEN:
        return None
    return unquote_to_bytes(found[0]).decode("utf-8", "replace")


async def _whole(receive: Receive) -> bytes:
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def _again(body: bytes, then: Receive) -> Receive:
    """A `receive` that gives the body once more, then what `then` gives."""
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return await then()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _unreadable() -> RegistryError:
    return RegistryError(
        "the form cannot be read", code="http.bad-form", field="body", hint="send it as a browser does"
    )


def _forged(message: str, field: str) -> AccessError:
    return AccessError(
        message, code="http.forged", field=field, hint="load the page again and send the form from there"
    )
