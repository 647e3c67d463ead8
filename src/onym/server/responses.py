"""Error responses (RFC 9457, or a page for people), conditional requests (RFC 9110 13) and pages of lists.

One table maps error classes to statuses and problem types, a second one some codes. An internal error shows
only its request ID; the log has the details. A version's ETag is its number and a variant such as "json".
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from onym import errors
from onym.errors import RegistryError, StaleError
from onym.server.services import HTTPMiddleware, get_request_state, get_services

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.types import Message, Receive, Scope, Send

__all__ = [
    "PROBLEM_MEDIA_TYPE",
    "PROBLEM_TYPES_BY_CLASS",
    "PROBLEM_TYPES_BY_CODE",
    "ErrorMiddleware",
    "ProblemType",
    "get_problem_type",
    "make_problem_response",
    "respond_to_error",
    "wants_page",
]

#: RFC 9457 3
PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
_LOG: Final = logging.getLogger("onym.server")


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A problem type: its HTTP status, the last segment of its URI and its title."""

    status: int
    slug: str
    title: str


_BAD: Final = ProblemType(400, "bad-request", "The request is invalid")

#: slug and title by class; a class without a row has those of its base class. The status is `http_status`
_PROBLEM_TEXTS: Final[Mapping[type[errors.OnymError], tuple[str, str]]] = MappingProxyType(
    {
        errors.OnymError: ("internal", "Internal error"),
        errors.UsageError: ("bad-request", "The request is invalid"),
        errors.ConformanceError: ("bad-request", "The request is invalid"),
        errors.URIError: ("invalid", "The content is invalid"),
        errors.NetError: ("upstream", "Another server sent an invalid response"),
        errors.DeadlineExceeded: ("upstream-timeout", "Another server timed out"),
        errors.UnsupportedError: ("unsupported", "This is not supported"),
        errors.ProviderError: ("upstream", "Another server sent an invalid response"),
        errors.MissingExtraError: ("not-installed", "A component is not installed"),
        errors.SignatureError: ("bad-signature", "The signature is invalid"),
        errors.AIIPError: ("upstream", "Another server sent an invalid response"),
        errors.AuthorizationError: ("no-authorization", "No access token can be obtained"),
        errors.TaskCancelled: ("task-cancelled", "The task was cancelled"),
        errors.DeniedError: ("policy-denied", "A policy denies this"),
        errors.RegistryError: ("invalid", "The content is invalid"),
        errors.RefusalError: ("refused", "The procedure does not allow this step"),
        errors.TemplateError: ("no-template", "The text has no registration template"),
        errors.GrammarError: ("bad-grammar", "The grammar cannot be read"),
        errors.SnapshotError: ("bad-snapshot", "The file cannot be imported"),
        errors.StaleError: ("stale", "This has changed since you read it"),
        errors.UnknownEntryError: ("unknown", "Not found"),
        errors.AccessError: ("no-access", "You are not allowed to do this"),
        errors.StoreError: ("store", "The database is unavailable"),
    }
)
PROBLEM_TYPES_BY_CLASS: Final[Mapping[type[errors.OnymError], ProblemType]] = MappingProxyType(
    {kind: ProblemType(kind.http_status, *texts) for kind, texts in _PROBLEM_TEXTS.items()}
)

_UNAUTHENTICATED: Final = ProblemType(401, "not-signed-in", "Sign in first")
_GONE_WRONG: Final = ProblemType(400, "sign-in-failed", "Sign-in failed")

#: code -> problem type, for codes whose status differs from that of their class
PROBLEM_TYPES_BY_CODE: Final[Mapping[str, ProblemType]] = MappingProxyType(
    {
        "accounts.not-signed-in": _UNAUTHENTICATED,
        "accounts.bad-token": _UNAUTHENTICATED,
        "accounts.wrong-password": _UNAUTHENTICATED,
        "accounts.sign-in-failed": _GONE_WRONG,
        "http.too-many-requests": ProblemType(429, "too-many-requests", "Too many requests"),
        "http.precondition-required": ProblemType(428, "precondition-required", "The version is missing"),
        "http.too-large": ProblemType(413, "too-large", "The request is too large"),
        "http.address-too-long": ProblemType(414, "address-too-long", "The address is too long"),
        "http.wrong-host": ProblemType(421, "wrong-host", "This host is not served"),
        "http.bad-cursor": _BAD,
        "http.bad-limit": _BAD,
        "http.bad-form": _BAD,
        "http.400": _BAD,
        "http.404": ProblemType(404, "not-found", "Page not found"),
        "http.405": ProblemType(405, "method-not-allowed", "The method is not allowed"),
        "http.406": ProblemType(406, "not-acceptable", "No acceptable media type"),
        "http.413": ProblemType(413, "too-large", "The request is too large"),
        "http.415": ProblemType(415, "unsupported-type", "The media type is not supported"),
    }
)


def get_problem_type(error: errors.OnymError) -> ProblemType:
    """Return the problem type of an error: by its code, else by its class."""
    found = PROBLEM_TYPES_BY_CODE.get(error.code)
    if found is not None:
        return found
    return next(
        PROBLEM_TYPES_BY_CLASS[kind] for kind in type(error).__mro__ if kind in PROBLEM_TYPES_BY_CLASS
    )


def wants_page(scope: Scope) -> bool:
    """Is this a browser that should see a page? The API always gets problem details."""
    if scope.get("path", "").startswith("/api/"):
        return False
    accept = Request(scope).headers.get("accept", "")
    return "text/html" in accept and "application/problem+json" not in accept


def make_problem_response(
    request: Request, error: errors.OnymError, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response for an error: a page or problem details."""
    kind = get_problem_type(error)
    found = get_request_state(request.scope)
    found["code"] = error.code
    data = {"code": "onym.error", "message": kind.title} if kind.status >= 500 else error.as_dict()
    extra_headers = {**_make_challenge_headers(kind), **(headers or {}), "cache-control": "no-store"}
    request_id = str(found.get("request_id", ""))
    body: dict[str, Any] = {
        "type": get_services(request).settings.base_url + "/problems/" + kind.slug,
        "title": kind.title,
        "status": kind.status,
        "detail": data["message"],
        "instance": f"urn:uuid:{request_id}",
        **{key: value for key, value in data.items() if key != "message"},
    }
    if wants_page(request.scope):
        html = get_services(request).render_page(
            request,
            "error.html",
            kind.title,
            problem={"hint": "", "clause": "", "field": "", **body},
            request_id=request_id,
            sign_in="/login" if kind.status == 401 else "",
        )
        return Response(html, kind.status, extra_headers, media_type="text/html")
    return Response(msgspec.json.encode(body), kind.status, extra_headers, media_type=PROBLEM_MEDIA_TYPE)


class ErrorMiddleware(HTTPMiddleware):
    """Turns every exception of a handler or middleware into a response."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except ClientDisconnect:
            return
        except Exception as error:
            if started:
                raise  # part of the response is sent: the server closes the connection
            request = Request(scope, receive)
            await (await respond_to_error(request, error))(scope, receive, send)


async def respond_to_error(request: Request, error: Exception) -> Response:
    """Return the response for an exception. Internal errors are logged, network errors in one line."""
    if isinstance(error, HTTPException):
        return make_problem_response(request, _convert_http_error(error), headers=error.headers)
    known = error if isinstance(error, errors.OnymError) else errors.OnymError("internal")
    if get_problem_type(known).status >= 500:
        is_elsewhere = isinstance(known, errors.NetError)
        _LOG.error(
            "request %s failed: %s",
            get_request_state(request.scope).get("request_id"),
            f"{known.code} ({known.message})" if is_elsewhere else type(error).__name__,
            exc_info=None if is_elsewhere else error,
        )
    return make_problem_response(request, known)


def _convert_http_error(error: HTTPException) -> errors.OnymError:
    code = f"http.{error.status_code}"
    if code not in PROBLEM_TYPES_BY_CODE:
        code = "http.400" if error.status_code < 500 else "onym.error"
    title = PROBLEM_TYPES_BY_CODE[code].title if code in PROBLEM_TYPES_BY_CODE else "internal"
    return errors.OnymError(title, code=code)


def _make_challenge_headers(kind: ProblemType) -> dict[str, str]:
    # RFC 9110 15.5.2: a 401 response names a scheme
    return {"www-authenticate": 'Bearer realm="onym registry"'} if kind.status == 401 else {}


DEFAULT_PAGE: Final = 50
MAX_PAGE: Final = 200
_MAX_CURSOR: Final = 512
_MAX_TAGS: Final = 32
#: RFC 9110 8.8.3
_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"\Z')
_VERSION: Final = re.compile(r'"([0-9]{1,15})(?:-[a-z0-9]+)?"\Z')
_CURSOR: Final = re.compile(r"[A-Za-z0-9_.~=:+-]+\Z")
_NUMBER: Final = re.compile(r"[0-9]{1,6}\Z")


def make_version_tag(version: int, variant: str) -> str:
    """Return the strong ETag of a version in one representation."""
    return f'"{version}-{variant}"'


def make_entity_tag(body: bytes) -> str:
    """Return a strong ETag made from the bytes."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def is_fresh(request: HTTPConnection, tag: str) -> bool:
    """Does `If-None-Match` name this tag, so that the response is 304 (RFC 9110 13.1.2, weak comparison)?"""
    given = _parse_tags(request, "if-none-match")
    return any(known == "*" or known.removeprefix("W/") == tag.removeprefix("W/") for known in given)


def make_cached_response(
    request: HTTPConnection,
    body: bytes,
    media_type: str,
    *,
    tag: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the body with its ETag (default: a hash of the body), or 304 if the client has it."""
    tag = tag or make_entity_tag(body)
    given = {"etag": tag, "cache-control": "no-cache", **(headers or {})}
    if is_fresh(request, tag):
        return Response(status_code=304, headers=given)
    return Response(body, 200, given, media_type=media_type)


def require_match(request: HTTPConnection, version: int) -> int:
    """Return the version that a write may expect: the current one, if `If-Match` names it (RFC 9110 13.1.1).

    Raises RegistryError (code http.precondition-required, 428) without `If-Match`, StaleError (412) for
    another version.
    """
    given = _parse_tags(request, "if-match")
    if not given:
        raise RegistryError(
            "the request does not name the version that it changes",
            code="http.precondition-required",
            field="If-Match",
            clause="RFC 6585 3",
            hint="Read the resource first and send its ETag in If-Match.",
        )
    if any(named == "*" or _parse_tag_version(named) == version for named in given):
        return version
    raise _make_stale_error(f"this has changed since you read it; it is now at version {version}", version)


def require_absent(request: HTTPConnection) -> int:
    """Return version 0, which a write about a missing resource may expect (RFC 9110 13.1.2).

    Raises RegistryError (code http.precondition-required, 428) without `If-None-Match: *`, StaleError
    (412) if the request names a version.
    """
    if _parse_tags(request, "if-match"):
        raise _make_stale_error("this does not exist any more", 0)
    if "*" in _parse_tags(request, "if-none-match"):
        return 0
    raise RegistryError(
        "the resource does not exist, and the request does not expect that",
        code="http.precondition-required",
        field="If-None-Match",
        clause="RFC 9110 13.1.2",
        hint="Send If-None-Match: * to confirm it.",
    )


def _make_stale_error(message: str, version: int) -> StaleError:
    return StaleError(
        message,
        field="If-Match",
        clause="RFC 9110 13.1.1",
        version=version,
        hint="Read it again, look at the changes, and repeat your request if it still applies.",
    )


def parse_cursor(text: str | None) -> str | None:
    """Return a cursor that a list returned, or None. Raises RegistryError (field "after")."""
    if text is None or text == "":
        return None
    if len(text) > _MAX_CURSOR or not _CURSOR.match(text):
        raise RegistryError(
            "this is not a cursor of this service",
            code="http.bad-cursor",
            field="after",
            hint="Request the `next` URL of the previous page, or leave `after` out.",
        )
    return text


def parse_page_size(text: str | None, default: int = DEFAULT_PAGE) -> int:
    """Return the size of a page, 1 to `MAX_PAGE`. Raises RegistryError (field "limit")."""
    if text is None or text == "":
        return default
    size = int(text) if _NUMBER.match(text) else 0
    if not 1 <= size <= MAX_PAGE:
        raise RegistryError(
            f"limit must be a number from 1 to {MAX_PAGE}", code="http.bad-limit", field="limit"
        )
    return size


def _parse_tags(request: HTTPConnection, header: str) -> list[str]:
    """Return the valid tags of a list header. Tags of this service contain no comma."""
    given = request.headers.getlist(header)
    if not given:  # most requests
        return []
    words = [word.strip(" \t") for word in ",".join(given).split(",", _MAX_TAGS)[:_MAX_TAGS]]
    return [word for word in words if word == "*" or _TAG.match(word)]


def _parse_tag_version(tag: str) -> int | None:
    # strong comparison: a weak tag never matches
    found = _VERSION.match(tag)
    return int(found[1]) if found else None
