"""The guard before the handlers: no wrong credentials, and no write that another site has sent.

Two independent tests hold a browser's write: where it comes from (Sec-Fetch-Site, else Origin), and a token
that only this site's pages know. Programs with an API token carry no ambient authority and pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
_FORMS: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


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
            given = await self._form_token(request.scope, body)
            receive = _again(body, receive)
        elif visitor.via is None and kind not in _FORMS:
            return receive  # a program's request: nothing of a browser's speaks for it
        if given is None or not visitor.form_key.fits(given):
            raise _forged("the form's token is missing or was given to somebody else", FIELD)
        return receive

    async def _form_token(self, scope: Scope, body: bytes) -> str | None:
        request = Request(scope, _again(body, _nothing))
        try:
            async with request.form(
                max_files=MOST_FILES, max_fields=MOST_FIELDS, max_part_size=self._limit
            ) as form:
                found = form.getlist(FIELD)
        except (MultiPartException, HTTPException, ValueError) as error:
            raise RegistryError(
                "the form cannot be read",
                code="http.bad-form",
                field="body",
                hint="send it as a browser does",
            ) from error
        return found[0] if len(found) == 1 and isinstance(found[0], str) else None


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


def _forged(message: str, field: str) -> AccessError:
    return AccessError(
        message, code="http.forged", field=field, hint="load the page again and send the form from there"
    )
