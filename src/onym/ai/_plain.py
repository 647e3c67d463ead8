"""Header fields that every server on the way reads alike, at an endpoint and at a gateway (3.14)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from onym.errors import AIIPError

__all__ = ["CLAUSE", "MAX_FIELDS", "check_fields"]

CLAUSE: Final = "AIIP/HTTPS v1 3.14"
#: header fields of one request
MAX_FIELDS: Final = 100
#: fields with one value: twice the field is two meanings
_SINGLE: Final = frozenset(
    {
        b"authorization", b"content-digest", b"content-encoding", b"content-length", b"content-type", b"dpop",
        b"expect", b"host", b"idempotency-key", b"origin", b"sec-fetch-site", b"traceparent",
        b"transfer-encoding",
    }
)  # fmt: skip
_PREFIX: Final = b"aiip-"
_VISIBLE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


def check_fields(fields: Iterable[tuple[bytes, bytes]]) -> None:
    """Raises AIIPError `aiip.bad-request` for fields that two servers could read in two ways.

    Names are in lower case, as ASGI gives them.
    """
    seen: set[bytes] = set()
    for name, value in fields:
        shown = name[:40].decode("latin-1")
        if b"_" in name:
            # CGI and WSGI cannot tell it from the name with "-"
            raise _refused("a header field's name has an underscore")
        if _VISIBLE.fullmatch(value) is None:
            raise _refused(f"the header field {shown} holds a control character")
        if name in seen and (name in _SINGLE or name.startswith(_PREFIX)):
            raise _refused(f"the header field {shown} is repeated", "send it once")
        seen.add(name)


def _refused(message: str, hint: str | None = None) -> AIIPError:
    return AIIPError(message, code="aiip.bad-request", clause=CLAUSE, hint=hint)
