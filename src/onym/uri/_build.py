"""A URI out of raw parts: encode each, refuse what no encoding can save."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onym.errors import URISyntaxError
from onym.uri import _percent
from onym.uri._ip import is_ipvfuture, parse_ipv6

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["compose"]

_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*").fullmatch
_DELIMITER = re.compile(r"[:/?#\[\]@\\]")


def compose(
    scheme: str | None,
    userinfo: str | tuple[str, str] | None,
    host: str | None,
    port: int | None,
    path: str | Sequence[str],
    query: str | Iterable[tuple[str, str]] | None,
    fragment: str | None,
) -> str:
    """The text for raw parts. Raises URISyntaxError where they make no URI."""
    authority = _authority(userinfo, host, port)
    text = _path(path, has_authority=authority is not None, has_scheme=scheme is not None)
    if authority is not None:
        text = f"//{authority}{text}"
    if scheme is not None:
        if not _SCHEME(scheme):
            raise _refused(
                "bad-scheme", "a scheme is a letter, then letters, digits, +, - and .", "scheme", "3.1"
            )
        text = f"{scheme}:{text}"
    if query is not None:
        text = f"{text}?{_query(query)}"
    return text if fragment is None else f"{text}#{_percent.FRAGMENT.quote(fragment)}"


def _refused(code: str, message: str, component: str, clause: str, hint: str | None = None) -> URISyntaxError:
    return URISyntaxError(
        message, code=f"uri.{code}", component=component, clause=f"RFC 3986 {clause}", hint=hint
    )


def _authority(userinfo: str | tuple[str, str] | None, host: str | None, port: int | None) -> str | None:
    if host is None:
        if userinfo is None and port is None:
            return None
        raise _refused("no-host", "userinfo and port need a host", "host", "3.2")
    text = _host(host)
    if userinfo is not None:
        text = f"{_userinfo(userinfo)}@{text}"
    if port is None:
        return text
    if not 0 <= port <= 65535:
        raise _refused("bad-port", "a port is a number from 0 to 65535", "port", "3.2.3")
    return f"{text}:{port:d}"


def _userinfo(userinfo: str | tuple[str, str]) -> str:
    if isinstance(userinfo, str):
        return _percent.USERINFO_PAIR.quote(userinfo)
    user, password = userinfo
    return f"{_percent.USERINFO.quote(user)}:{_percent.USERINFO_PAIR.quote(password)}"


def _host(host: str) -> str:
    literal = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else None
    if parse_ipv6(host if literal is None else literal) is not None:
        return f"[{host}]" if literal is None else host
    if literal is not None and is_ipvfuture(literal):
        return host
    if _DELIMITER.search(host):
        raise _refused(
            "bad-host",
            "a delimiter stands in the host",
            "host",
            "3.2.2",
            "a host is a name or an address alone; the port and the userinfo have their own arguments",
        )
    return _percent.REG_NAME.quote(host)


def _path(path: str | Sequence[str], *, has_authority: bool, has_scheme: bool) -> str:
    if isinstance(path, str):
        text = _percent.PATH.quote(path)
    else:
        text = "".join("/" + _percent.PCHAR_SEGMENT.quote(segment) for segment in path)
    if has_authority:
        if text[:1] not in ("", "/"):
            raise _refused("bad-path", "a path after an authority starts with /", "path", "3.3")
        return text
    if text[:2] == "//":
        raise _refused("bad-path", "without an authority a path can't start with //", "path", "3.3")
    if not has_scheme:
        first, slash, rest = text.partition("/")
        # a raw colon would end a scheme
        return first.replace(":", "%3A") + slash + rest
    return text


def _query(query: str | Iterable[tuple[str, str]]) -> str:
    if isinstance(query, str):
        return _percent.QUERY.quote(query)
    return "&".join(
        f"{_percent.QUERY_NAME.quote(name)}={_percent.QUERY_VALUE.quote(value)}" for name, value in query
    )
