"""HTTP/1.1 messages: a request as octets, and the head of a response as a value. (RFC 9112)"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from onym.errors import UsageError
from onym.net.messages import HTTPRequest
from onym.uri.secret import Secret

__all__ = ["TELLING", "Head", "encode_request", "tokens"]

_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_is_token = re.compile(_NAME).fullmatch
#: field-content, and obs-text as UTF-8; no control may split the head
_is_value = re.compile(r"[\t\x20-\x7e\x80-\ud7ff\ue000-\U0010ffff]*").fullmatch
_is_target = re.compile(r"/[!-\"$-~]*").fullmatch

#: what the transport itself decides (RFC 9110 7.2, 7.6.1, 8.6, 10.1.1)
_OURS: Final = frozenset(
    {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)

#: what says how a response is to be read
TELLING: Final = frozenset(
    {"connection", "content-encoding", "content-length", "location", "transfer-encoding"}
)


class Head(NamedTuple):
    """A response's head: the minor version of HTTP/1, the status, and the fields in order.

    `told` holds, by lower-case name, the values of the fields that say how to read the message itself.
    """

    minor: int
    status: int
    fields: list[tuple[str, str]]
    told: dict[str, list[str]]

    def values(self, name: str) -> Sequence[str]:
        """Every value of this one of the fields that say how to read the message."""
        return self.told.get(name, ())


def encode_request(request: HTTPRequest, host: str, accept_encoding: str) -> bytes:
    """The request as octets. `host` is the Host field's value.

    Raises UsageError for a method, target or header that HTTP does not allow; values are never shown.
    """
    if _is_token(request.method) is None or _is_target(request.target) is None:
        raise UsageError("the method or the target is not one of HTTP", code="usage.http")
    lines = [f"{request.method} {request.target} HTTP/1.1\r\nHost: {host}\r\n"]
    coded = False
    for name, value in request.headers:
        text = value.reveal() if isinstance(value, Secret) else value
        lower = _settable(name)
        if lower is None:
            raise UsageError("a header with this name cannot be set", code="usage.http")
        if _is_value(text) is None:
            raise UsageError(f"the value of the header {name} holds a control character", code="usage.http")
        coded = coded or lower == "accept-encoding"
        lines.append(f"{name}: {text}\r\n")
    if not coded:
        lines.append(f"Accept-Encoding: {accept_encoding}\r\n")
    if request.body or request.method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(request.body)}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode() + request.body


@lru_cache(256)
def _settable(name: str) -> str | None:
    """The name in lower case, None where it is no name or not for callers to set."""
    lower = name.lower()
    return None if _is_token(name) is None or lower in _OURS else lower


def tokens(values: Sequence[str]) -> list[str]:
    """The members of comma-separated lists, in lower case."""
    return [each.strip("\t ").lower() for value in values for each in value.split(",")]
