"""Which header fields pass a gateway, by allow-lists both ways, and which it puts on every answer (3.14)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from onym.ai.gateway.guard import Fields, named_by_connection, values
from onym.errors import AIIPError

if TYPE_CHECKING:
    from onym.net.messages import Headers

__all__ = ["FIXED", "RESULT_POLICY", "disposition", "media_type", "to_client", "to_upstream", "via"]

#: passed on as they are. Accept, Content-Type, Content-Digest and Idempotency-Key go their own way, since the
#: client that invokes makes or checks them
_UP: Final = (
    b"accept-language",
    b"content-language",
    b"if-match",
    b"if-none-match",
    b"prefer",
    b"traceparent",
)
_DOWN: Final = (
    "content-language",
    "etag",
    "last-modified",
    "retry-after",
    "preference-applied",
)
#: what stands on every answer; a result is for one caller, and proves itself octet by octet
FIXED: Final = (
    ("cache-control", "private, no-store, no-transform"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
#: content of many authorities stands on one origin: it runs nothing and reads nothing here
RESULT_POLICY: Final = (
    "default-src 'none'; sandbox; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)

#: media types that a browser shows without running anything; every other one is kept as a file
_PASSIVE: Final = frozenset(
    {
        "application/aiip+json", "application/json", "application/problem+json", "image/gif", "image/jpeg",
        "image/png", "image/webp", "text/csv", "text/event-stream", "text/plain",
    }
)  # fmt: skip


def to_upstream(fields: Fields) -> tuple[tuple[str, str], ...]:
    """The fields that go on to the endpoint. Raises AIIPError for one that stands twice or is not ASCII.

    What Connection names is for this hop alone (RFC 9110 7.6.1). Long tasks are not asked for: Prefer goes
    without `respond-async`.
    """
    hop = named_by_connection(fields)
    found = []
    for name in _UP:
        given = [] if name in hop else values(fields, name)
        text = ", ".join(value.decode("latin-1") for value in given)
        if name == b"prefer":
            text = _without_async(text)
        if not text.isascii():
            raise AIIPError(
                f"a field is not ASCII ({name.decode()})", code="aiip.bad-request", clause="RFC 9110 5.5"
            )
        if text:
            found.append((name.decode(), text))
    return tuple(found)


def _without_async(text: str) -> str:
    kept = [each.strip() for each in text.split(",")]
    return ", ".join(each for each in kept if each.partition("=")[0].strip().lower() not in _ASYNC)


_ASYNC: Final = frozenset({"", "respond-async", "wait"})


def to_client(headers: Headers) -> list[tuple[str, str]]:
    """The endpoint's fields that go on to the caller; Content-Type and receipt come with the body."""
    return [
        (name, value)
        for name in _DOWN
        for value in headers.get_all(name)[:1]
        if not any(octet in value for octet in "\r\n\x00")
    ]


def media_type(content_type: str | None) -> str:
    """The type and subtype of a Content-Type, in lower case; "" where there is none."""
    return (content_type or "").partition(";")[0].strip().lower()


def disposition(content_type: str | None) -> str | None:
    """Content-Disposition for a result: what could act in a browser is kept as a file, whatever its name."""
    return None if media_type(content_type) in _PASSIVE else 'attachment; filename="result"'


def via(received: Iterable[bytes], name: str) -> str:
    """The field Via of a request that goes on: who passed it, and this gateway (RFC 9110 7.6.3)."""
    before = [value.decode("latin-1") for value in received]
    return ", ".join([*(each for each in before if each.isascii()), f"1.1 {name}"])
