"""Conditional requests (RFC 9110 13), list cursors and page sizes.

A version's ETag is its number and a variant ("json", "html"). A write may name any variant, because only the
version counts.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

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
_HINT_STALE: Final = "read it again, look at what changed, then decide anew"


def make_version_tag(version: int, variant: str) -> str:
    """The strong ETag of one version in one representation."""
    return f'"{version}-{variant}"'


def make_entity_tag(body: bytes) -> str:
    """A strong ETag from the octets themselves."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def is_fresh(request: HTTPConnection, tag: str) -> bool:
    """Does `If-None-Match` name this tag, so that 304 answers a GET (RFC 9110 13.1.2, weak comparison)?"""
    given = _parse_tags(request, "if-none-match")
    return any(known == "*" or known.removeprefix("W/") == tag.removeprefix("W/") for known in given)


def require_match(request: HTTPConnection, version: int) -> int:
    """The version that a write may expect: the one in force, which `If-Match` names (RFC 9110 13.1.1).

    Raises RegistryError (code http.precondition-required, 428) without `If-Match`, StaleError (412) where it
    names another version.
    """
    given = _parse_tags(request, "if-match")
    if not given:
        raise RegistryError(
            "a write says which version it is about",
            code="http.precondition-required",
            field="If-Match",
            clause="RFC 6585 3",
            hint="read the resource first and send its ETag in If-Match",
        )
    if any(named == "*" or _parse_tag_version(named) == version for named in given):
        return version
    raise StaleError(
        "this has changed since it was read",
        field="If-Match",
        clause="RFC 9110 13.1.1",
        version=version,
        hint=_HINT_STALE,
    )


def require_absent(request: HTTPConnection) -> int:
    """The version that a write about what is not there may expect: 0 (RFC 9110 13.1.2).

    Raises RegistryError (code http.precondition-required, 428) without `If-None-Match: *`, StaleError (412)
    where the request names a version that it wants to be there.
    """
    if _parse_tags(request, "if-match"):
        raise StaleError(
            "this is not there any more",
            field="If-Match",
            clause="RFC 9110 13.1.1",
            version=0,
            hint=_HINT_STALE,
        )
    if "*" in _parse_tags(request, "if-none-match"):
        return 0
    raise RegistryError(
        "a write about what is not there says that it knows",
        code="http.precondition-required",
        field="If-None-Match",
        clause="RFC 9110 13.1.2",
        hint="send If-None-Match: *",
    )


def parse_cursor(text: str | None) -> str | None:
    """A cursor as a list gave it out; None for none. Raises RegistryError (field "after")."""
    if text is None or text == "":
        return None
    if len(text) > _MAX_CURSOR or not _CURSOR.match(text):
        raise RegistryError(
            "not a cursor of this service",
            code="http.bad-cursor",
            field="after",
            hint="take the whole `next` of the page before, or leave `after` out",
        )
    return text


def parse_page_size(text: str | None, default: int = DEFAULT_PAGE) -> int:
    """How many items a page has, 1 to `MAX_PAGE`. Raises RegistryError (field "limit")."""
    if text is None or text == "":
        return default
    size = int(text) if _NUMBER.match(text) else 0
    if not 1 <= size <= MAX_PAGE:
        raise RegistryError(f"limit is a number from 1 to {MAX_PAGE}", code="http.bad-limit", field="limit")
    return size


def _parse_tags(request: HTTPConnection, header: str) -> list[str]:
    """The tags of a list header; what is no tag is left out. Tags of ours hold no comma."""
    given = ",".join(request.headers.getlist(header)).split(",", _MAX_TAGS)[:_MAX_TAGS]
    words = [word.strip(" \t") for word in given]
    return [word for word in words if word == "*" or _TAG.match(word)]


def _parse_tag_version(tag: str) -> int | None:
    # strong comparison: a weak tag matches nothing
    found = _VERSION.match(tag)
    return int(found[1]) if found else None
