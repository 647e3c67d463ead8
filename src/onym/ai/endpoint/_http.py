"""Answers on the wire, and bodies off it: the ASGI side of an endpoint."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from onym.ai.endpoint.guard import bad_request
from onym.errors import AIIPError

if TYPE_CHECKING:
    from onym.ai.endpoint.context import Answer

__all__ = ["ALLOWED", "Receive", "Send", "body_of", "read_body", "send_answer", "start"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

#: what a resource understands (3.6)
ALLOWED: Final = "GET, HEAD, OPTIONS, POST"
#: on every answer: nothing is to be guessed, kept or run by a browser that comes here by itself
_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"referrer-policy", b"no-referrer"),
)
#: of a handler's header fields, those that go out (3.14)
_PASSED: Final = frozenset(
    {
        "accept-post", "allow", "cache-control", "content-language", "etag", "idempotency-replayed",
        "last-modified", "preference-applied", "retry-after", "vary", "www-authenticate",
    }
)  # fmt: skip
#: statuses whose answers end with their head (RFC 9110 6.4.1): more would be read as the next answer
_BODILESS: Final = frozenset({204, 304})
_VISIBLE: Final = re.compile(r"[\t\x20-\x7e]*")
_KEEP: Final = ("Cache-Control", "private, no-store, no-transform")


async def read_body(receive: Receive, length: int | None, most: int) -> bytes | None:
    """The whole body; None where the caller went away before it was. Raises AIIPError `aiip.too-large`."""
    if length is not None and length > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> AIIPError:
    return bad_request(f"the body is longer than {most} octets", code="too-large")


def body_of(answer: Answer, *, head: bool = False) -> bytes:
    """What of this answer's body is sent: nothing to HEAD, and nothing where its status has none."""
    return b"" if head or answer.status in _BODILESS else answer.body


async def send_answer(
    send: Send, answer: Answer, *, receipt: str | None = None, head: bool = False, close: bool = False
) -> None:
    """A whole answer; to HEAD without its body. With `close`, it is the last one of its connection."""
    length = None if answer.status in _BODILESS else len(answer.body)
    await start(send, answer, receipt=receipt, length=length, close=close)
    await send({"type": "http.response.body", "body": body_of(answer, head=head)})


async def start(
    send: Send,
    answer: Answer,
    *,
    receipt: str | None = None,
    length: int | None = None,
    close: bool = False,
) -> None:
    """The head of an answer. A handler's field that no head can hold is left out."""
    given = [
        (name.lower(), value)
        for name, value in answer.headers
        if name.lower() in _PASSED and _VISIBLE.fullmatch(value)
    ]
    if all(name != "cache-control" for name, _ in given):
        given.append(_KEEP)
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in given]
    if answer.content_type is not None:
        headers.append((b"content-type", answer.content_type.encode("latin-1")))
    if length is not None:
        headers.append((b"content-length", str(length).encode("ascii")))
    if close:
        headers.append((b"connection", b"close"))
    if receipt is not None:
        headers.append((b"aiip-receipt", receipt.encode("ascii")))
    message = {"type": "http.response.start", "status": answer.status, "headers": [*headers, *_ALWAYS]}
    await send(message)
