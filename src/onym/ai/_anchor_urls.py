"""https addresses of an anchor document, in one spelling, so that origins compare by text. Pure."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from onym.errors import DiscoveryError, URIError
from onym.net.hosts import read_host
from onym.uri.generic import URI

__all__ = ["CLAUSE", "https_base", "https_origin", "refuse", "within"]

CLAUSE: Final = "AIIP/HTTPS v1 3.2"
_LONGEST: Final = 2_048
_ORIGIN: Final = re.compile("https://[^/]+")
#: a path that every reader takes for the same: plain segments, nothing encoded that could be syntax
_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:[/;]|\Z))[A-Za-z0-9._~!$&'()*+,;=:@-]+)*/?\Z")


def refuse(member: str | None, why: str, hint: str | None = None) -> NoReturn:
    """Raise the error for a member of the document, None for all of it."""
    where = "the anchor document cannot be used" if member is None else f"anchor document, `{member}`"
    raise DiscoveryError(f"{where}: {why}", code="aiip.discovery-conflict", clause=CLAUSE, hint=hint)


def https_base(value: Any, member: str | None) -> str:
    """An https URL without user, query, fragment and final slash; scheme and host lower case, no `:443`."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        refuse(member, f"not a text of at most {_LONGEST} characters")
    try:
        uri = URI.parse(value, "URI")
    except URIError as error:
        refuse(member, f"no https URL: {error.message}")
    if (uri.scheme or "").lower() != "https":
        refuse(member, "the scheme is not https", "nothing is fetched over plain HTTP")
    if uri.userinfo is not None or uri.query is not None or uri.fragment is not None:
        refuse(member, "a URL here has no user, query or fragment")
    if not _PATH.match(uri.path):
        refuse(member, "its path is read in two ways", "no empty or dot segments, nothing percent-encoded")
    return _origin(uri, member) + uri.path.removesuffix("/")


def https_origin(base: str) -> str:
    """The origin of what `https_base` gave."""
    found = _ORIGIN.match(base)
    return base if found is None else found[0]


def within(base: str, prefix: str) -> bool:
    """Is `base` the same as `prefix` or below it, whole segments counted?"""
    plain = https_base(prefix, None)
    return base == plain or base.startswith(f"{plain}/")


def _origin(uri: URI, member: str | None) -> str:
    host = read_host(uri.host or "")
    if not host.text or host.reason is not None:
        refuse(member, "its host is no DNS name or address")
    name = f"[{host.text}]" if ":" in host.text else host.text
    port = uri.port or "443"
    if port.startswith("0") or int(port) > 65_535:
        refuse(member, "a port is 1 to 65535, without leading zeros")
    return f"https://{name}" if port == "443" else f"https://{name}:{port}"
