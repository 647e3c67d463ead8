"""Conditional requests (RFC 9110 13), list cursors and page sizes.

A version's ETag is its number and a variant such as "json". A write may name any variant, because only the
number matters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from onym.errors import RegistryError, StaleError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

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
    given = ",".join(request.headers.getlist(header)).split(",", _MAX_TAGS)[:_MAX_TAGS]
    words = [word.strip(" \t") for word in given]
    return [word for word in words if word == "*" or _TAG.match(word)]


def _parse_tag_version(tag: str) -> int | None:
    # strong comparison: a weak tag never matches
    found = _VERSION.match(tag)
    return int(found[1]) if found else None
