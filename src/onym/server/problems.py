"""Every error as an answer: RFC 9457 problem details for programs, a page for people.

One table maps a class to its status and type; a few codes have a row of their own. What went wrong on our
side says no more than its request id: the log has the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from onym import errors
from onym.server.pages import ProblemView
from onym.server.services import services, state

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "CLASSES",
    "CODES",
    "PROBLEM_TYPE",
    "Failures",
    "Kind",
    "answer",
    "kind_of",
    "problem",
    "wants_page",
]

#: RFC 9457 3
PROBLEM_TYPE: Final = "application/problem+json"
_LOG: Final = logging.getLogger("onym.server")


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of problem: its HTTP status, the last segment of its type URI and its title."""

    status: int
    slug: str
    title: str


_BAD: Final = Kind(400, "bad-request", "The request cannot be used")
_INVALID: Final = Kind(422, "invalid", "The content does not follow its rules")
_OURS: Final = Kind(500, "internal", "Something went wrong on our side")
_UPSTREAM: Final = Kind(502, "upstream", "Another server gave no usable answer")
_SLOW: Final = Kind(504, "upstream-timeout", "Another server did not answer in time")

#: every class of `onym.errors`; a client's fault is 4xx, ours or another server's 5xx
CLASSES: Final[Mapping[type[errors.OnymError], Kind]] = MappingProxyType(
    {
        errors.OnymError: _OURS,
        errors.UsageError: _BAD,
        errors.SecretError: _OURS,
        errors.ConformanceError: _BAD,
        errors.ConfigError: _OURS,
        errors.CredentialError: _OURS,
        errors.URIError: _INVALID,
        errors.URISyntaxError: _INVALID,
        errors.URILimitError: _INVALID,
        errors.LLMURIError: _INVALID,
        errors.ParameterError: _INVALID,
        errors.AIURIError: _INVALID,
        errors.NetError: _UPSTREAM,
        errors.PolicyError: _UPSTREAM,
        errors.ResolveError: _UPSTREAM,
        errors.ConnectionFailed: _UPSTREAM,
        errors.TLSError: _UPSTREAM,
        errors.DeadlineExceeded: _SLOW,
        errors.RedirectRefused: _UPSTREAM,
        errors.ResponseTooLarge: _UPSTREAM,
        errors.ProtocolError: _UPSTREAM,
        errors.UnsupportedError: Kind(501, "unsupported", "This cannot be done here"),
        errors.ProviderError: _UPSTREAM,
        errors.AuthenticationError: _UPSTREAM,
        errors.PermissionDeniedError: _UPSTREAM,
        errors.NotFoundError: _UPSTREAM,
        errors.RateLimitError: _UPSTREAM,
        errors.QuotaError: _UPSTREAM,
        errors.ContextLengthError: _UPSTREAM,
        errors.BadRequestError: _UPSTREAM,
        errors.ContentFilterError: _UPSTREAM,
        errors.OverloadedError: _UPSTREAM,
        errors.ServerError: _UPSTREAM,
        errors.MalformedResponseError: _UPSTREAM,
        errors.MissingExtraError: Kind(501, "not-installed", "This part is not installed here"),
        errors.SignatureError: Kind(403, "bad-signature", "The signature does not hold"),
        errors.AIIPError: _UPSTREAM,
        errors.DiscoveryError: _UPSTREAM,
        errors.ProvenanceError: _UPSTREAM,
        errors.DeniedError: Kind(403, "policy-denied", "Policy does not allow this"),
        errors.InvocationError: _UPSTREAM,
        errors.RegistryError: _INVALID,
        errors.RefusalError: Kind(409, "refused", "The procedure does not allow this step"),
        errors.TemplateError: Kind(422, "no-template", "No registration template can be read there"),
        errors.GrammarError: Kind(422, "bad-grammar", "The grammar cannot be read"),
        errors.SnapshotError: Kind(422, "bad-snapshot", "The file cannot be imported"),
        errors.StaleError: Kind(412, "stale", "This has changed since it was read"),
        errors.UnknownEntryError: Kind(404, "unknown", "There is nothing of that name"),
        errors.AccessError: Kind(403, "no-access", "This is not allowed to you"),
        errors.StoreError: Kind(503, "store", "The database cannot be used now"),
        errors.EmbeddedError: _OURS,
        errors.MissingWeightsError: _OURS,
        errors.WeightsError: _OURS,
    }
)

_UNAUTHENTICATED: Final = Kind(401, "not-signed-in", "This needs an account")
_GONE_WRONG: Final = Kind(400, "sign-in-failed", "Signing in did not work")

#: codes whose status is another than their class's
CODES: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "registry.not-signed-in": _UNAUTHENTICATED,
        "registry.bad-token": _UNAUTHENTICATED,
        "registry.wrong-password": _UNAUTHENTICATED,
        "registry.sign-in-failed": _GONE_WRONG,
        "http.too-many-requests": Kind(429, "too-many-requests", "Too many requests"),
        "http.precondition-required": Kind(428, "precondition-required", "Say which version this is about"),
        "http.too-large": Kind(413, "too-large", "The request is too large"),
        "http.address-too-long": Kind(414, "address-too-long", "The address is too long"),
        "http.wrong-host": Kind(421, "wrong-host", "This host is not served here"),
        "http.bad-cursor": _BAD,
        "http.bad-limit": _BAD,
        "http.bad-form": _BAD,
        "http.400": _BAD,
        "http.404": Kind(404, "not-found", "There is nothing at this address"),
        "http.405": Kind(405, "method-not-allowed", "This method is not for this address"),
        "http.406": Kind(406, "not-acceptable", "None of these forms is served here"),
        "http.413": Kind(413, "too-large", "The request is too large"),
        "http.415": Kind(415, "unsupported-type", "This media type is not read here"),
    }
)


def kind_of(error: errors.OnymError) -> Kind:
    """The row of the table for this error: that of its code, else of its class."""
    found = CODES.get(error.code)
    if found is not None:
        return found
    return next(CLASSES[each] for each in type(error).__mro__ if each in CLASSES)


def wants_page(scope: Scope) -> bool:
    """Is this a browser that should see a page? The API always gets problem details."""
    if scope.get("path", "").startswith("/api/"):
        return False
    accept = Request(scope).headers.get("accept", "")
    return "text/html" in accept and "application/problem+json" not in accept


def problem(
    request: Request, error: errors.OnymError, *, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer that tells of this error, as a page or as problem details."""
    kind = kind_of(error)
    found = state(request.scope)
    found["code"] = error.code
    data = {"code": "onym.error", "message": kind.title} if kind.status >= 500 else error.as_dict()
    extra_headers = {**_challenge(kind), **(headers or {}), "cache-control": "no-store"}
    request_id = str(found.get("request_id", ""))
    if wants_page(request.scope):
        view = ProblemView(
            status=kind.status,
            title=kind.title,
            detail=str(data["message"]),
            code=str(data["code"]),
            request_id=request_id,
            hint=str(data.get("hint", "")),
            clause=str(data.get("clause", "")),
            field=str(data.get("field", "")),
            sign_in="/login" if kind.status == 401 else "",
        )
        html = services(request).pages.problem(request, view)
        return Response(html, kind.status, extra_headers, media_type="text/html")
    body: dict[str, Any] = {
        "type": services(request).settings.base_url + "/problems/" + kind.slug,
        "title": kind.title,
        "status": kind.status,
        "detail": data["message"],
        "instance": f"urn:uuid:{request_id}",
        **{key: value for key, value in data.items() if key != "message"},
    }
    return Response(msgspec.json.encode(body), kind.status, extra_headers, media_type=PROBLEM_TYPE)


class Failures:
    """Turns what a handler or a middleware raises into an answer; nothing reaches the server above."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
                raise  # half an answer is out: the server closes the connection
            request = Request(scope, receive)
            await (await answer(request, error))(scope, receive, send)


async def answer(request: Request, error: Exception) -> Response:
    """The answer to an exception; what is our fault goes to the log."""
    if isinstance(error, HTTPException):
        return problem(request, _http_error(error), headers=error.headers)
    known = error if isinstance(error, errors.OnymError) else errors.OnymError("internal")
    if kind_of(known).status >= 500:
        _LOG.error(
            "request %s failed: %s",
            state(request.scope).get("request_id"),
            type(error).__name__,
            exc_info=error,
        )
    return problem(request, known)


def _http_error(error: HTTPException) -> errors.OnymError:
    code = f"http.{error.status_code}"
    if code not in CODES:
        code = "http.400" if error.status_code < 500 else "onym.error"
    title = CODES[code].title if code in CODES else "internal"
    return errors.OnymError(title, code=code)


def _challenge(kind: Kind) -> dict[str, str]:
    # RFC 9110 15.5.2: a 401 names a scheme
    return {"www-authenticate": 'Bearer realm="onym registry"'} if kind.status == 401 else {}
