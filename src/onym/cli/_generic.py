"""Any RFC 3986 URI as a person may see it: its parts, credentials masked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym.uri.redact import redact
from onym.uri.secret import MARK

if TYPE_CHECKING:
    from onym.uri.generic import URI

__all__ = ["masked_parts", "masked_text"]

_NAMES = ("scheme", "authority", "userinfo", "host", "host_type", "port", "path", "query", "fragment")


def masked_parts(uri: URI) -> dict[str, str | None]:
    """The components as written, but for what follows the userinfo's first colon, and named keys."""
    return {name: _masked(name, getattr(uri, name)) for name in _NAMES}


def masked_text(uri: URI) -> str:
    """The whole text, put together from the masked parts (RFC 3986 5.3)."""
    parts = masked_parts(uri)
    marks = (("scheme", "", ":"), ("authority", "//", ""), ("path", "", ""), ("query", "?", ""))
    return "".join(
        f"{before}{parts[name]}{after}"
        for name, before, after in (*marks, ("fragment", "#", ""))
        if parts[name] is not None
    )


def _masked(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    if name == "authority":
        user, at, host = value.rpartition("@")
        return _user(user) + at + host
    if name == "userinfo":
        return _user(value)
    if name in ("query", "fragment"):
        # a name=value pair is known by what stands before it
        return redact(f"?{value}")[1:]
    return redact(value)


def _user(userinfo: str) -> str:
    user, colon, _ = userinfo.partition(":")
    return f"{user}:{MARK}" if colon else userinfo
