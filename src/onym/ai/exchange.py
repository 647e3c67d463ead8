"""One request to a resource and the verification of its answer (AIIP/HTTPS v1, 3.6 to 3.8).

Pure. `RequestAttempt` builds the request with a fresh nonce and verifies the reply against it.
`StreamReader` does the same for a stream of events, which is provisional until its last event, the receipt,
has been verified.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onym.ai.problems import PROBLEM_MEDIA_TYPE, decode_problem
from onym.ai.records import Invocation, Resolution, Result
from onym.errors import AIIPError, ProvenanceError, ResponseTooLarge, SignatureError, UsageError
from onym.net.messages import HTTPRequest, Origin, Reply, Send
from onym.net.sse import SSEDecoder, SSEEvent
from onym.sign.receipts import (
    Expected,
    Receipt,
    StreamChain,
    StreamEnd,
    access_token_hash,
    content_digest,
    request_hash,
    verify_receipt,
)
from onym.uri.ai import to_https
from onym.uri.generic import URI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from onym.sign.keys import AuthorityKeys

__all__ = [
    "ANONYMOUS",
    "DESCRIPTION",
    "EVENTS",
    "MAX_EVENT",
    "MAX_EVENTS",
    "PROBLEM_EVENT",
    "PROBLEM_MEDIA_TYPE",
    "RECEIPT_EVENT",
    "Caller",
    "RequestAttempt",
    "StreamReader",
    "decode_problem",
    "is_event_stream",
]

#: the type of a stream's last event; its data is the receipt in its compact form
RECEIPT_EVENT: Final = "receipt"
#: the type of the last event of a stream that failed; its data is a problem document, which nobody signed
PROBLEM_EVENT: Final = "problem"
#: characters of one event
MAX_EVENT: Final = 1024 * 1024
#: events of one stream; each costs two hashes, and a body of some megabytes can hold a million
MAX_EVENTS: Final = 100_000
_STREAM_CLAUSE: Final = "AIIP/HTTPS v1 3.8, streams"


class StreamReader:
    """Octets in, provisional events out; `end` gives the receipt of the whole, or raises ProvenanceError."""

    def __init__(self, question: RequestAttempt, status: int, content_type: str | None) -> None:
        self._question = question
        self._status = status
        self._content_type = content_type
        self._decoder = SSEDecoder(MAX_EVENT)
        self._chain = StreamChain(question.request_hash)
        self._token: str | None = None
        self._problem: str | None = None
        self._count = 0

    @property
    def token(self) -> str | None:
        """The receipt in its compact form, once it is there."""
        return self._token

    def feed(self, data: bytes) -> list[SSEEvent]:
        """The events that these octets complete. Raises ProvenanceError, ProtocolError, ResponseTooLarge."""
        return [event for event in self._decoder.events(data) if self._accept_event(event)]

    def _accept_event(self, event: SSEEvent) -> bool:
        if self._token is not None:
            raise ProvenanceError(
                "the stream goes on behind its receipt", target=self._question.target, clause=_STREAM_CLAUSE
            )
        if event.event == RECEIPT_EVENT:
            self._token = event.data
            return False
        # the last event of all: one that others follow is an event like them
        self._problem = event.data if event.event == PROBLEM_EVENT else None
        try:
            self._chain.add(event.id, event.event, event.data)
        except SignatureError as error:
            raise ProvenanceError(
                error.message, target=self._question.target, clause=_STREAM_CLAUSE
            ) from error
        self._count += 1
        if self._count > MAX_EVENTS:
            raise ResponseTooLarge(
                f"the stream has more than {MAX_EVENTS} events",
                code="net.too-large.event",
                endpoint=self._question.target,
            )
        return True

    def verify_end(self, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]) -> Receipt:
        """The receipt of the stream, once the stream has ended.

        Raises ProvenanceError; InvocationError where the endpoint says, unsigned, why there is no receipt;
        SignatureError `sign.unknown-key` where `keys` may be too old.
        """
        if self._token is None:
            raise self._make_failure()
        return self._question.verify_token(
            self._token,
            keys,
            at,
            seen,
            status=self._status,
            content_type=self._content_type,
            stream=self._chain.end,
        )

    def _make_failure(self) -> AIIPError:
        """Why a stream without a receipt failed: as its problem says, else because it has none."""
        target = self._question.target
        if self._problem is not None:
            return decode_problem(None, PROBLEM_MEDIA_TYPE, self._problem.encode(), target, signed=False)
        return ProvenanceError(
            "the stream ended without a receipt: nothing of it counts",
            code="aiip.provenance-missing",
            target=target,
            clause=_STREAM_CLAUSE,
        )


#: media types
DESCRIPTION: Final = "application/aiip+json"
EVENTS: Final = "text/event-stream"
#: `aud` of a receipt for a caller who gives neither token nor origin
ANONYMOUS: Final = "anonymous"
#: what is verified before a result is released, in the order of 3.8
CHECKS: Final = (
    "form",
    "header",
    "key",
    "signature",
    "issuer",
    "resource",
    "audience",
    "nonce",
    "request",
    "time",
    "replay",
    "status",
    "content type",
    "content",
)
#: header fields that are made here, and that a caller may not give
_RESERVED_FIELDS: Final = frozenset(
    {
        "accept-encoding", "accept", "aiip-nonce", "authorization", "connection", "content-digest",
        "content-encoding", "content-length", "content-type", "cookie", "dpop", "expect", "host",
        "idempotency-key", "origin", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_LONGEST_KEY: Final = 255
_SHA256: Final = re.compile(r"sha-256=:[^:]*:")
_CLAUSE: Final = "AIIP/HTTPS v1 3.8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: an access token with the client id that it was given to, or an origin, or neither."""

    token: Secret | None = None
    client_id: str | None = None
    origin: str | None = None

    @property
    def audience(self) -> str:
        """Whom a receipt must be made out to."""
        return self.client_id or self.origin or ANONYMOUS


@dataclass(frozen=True, slots=True)
class RequestAttempt:
    """One attempt of an invocation. `seen` records the id of a receipt and says whether it was there."""

    invocation: Invocation
    resolution: Resolution
    caller: Caller
    timeout: float | None
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _digest: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        _validate_invocation(self.invocation)
        if self.invocation.body:
            object.__setattr__(self, "_digest", content_digest(self.invocation.body))

    @property
    def target(self) -> str:
        """The canonical ai URI, without its query."""
        return str(self.resolution.uri.without_query)

    @property
    def request_hash(self) -> str:
        """`rqh`: what the receipt must say was asked (3.8)."""
        asked = self.invocation
        return request_hash(
            method=asked.method,
            target=str(self.resolution.uri),
            digest=self._digest,
            content_type=asked.content_type,
            idempotency_key=asked.idempotency_key,
        )

    def build_request(self, *, stream: bool = False) -> Send:
        """The request, for the transport."""
        url = URI.parse(to_https(self.resolution.document.service, self.resolution.uri))
        request = HTTPRequest(
            method=self.invocation.method,
            origin=Origin("https", url.host or "", int(url.port or 443)),
            target=url.path if url.query is None else f"{url.path}?{url.query}",
            headers=tuple(self._build_headers()),
            body=self.invocation.body,
            credential=None if self.caller.token is None else self.resolution.authority,
        )
        return Send(request, self.timeout, stream, self.resolution.connect)

    def _build_headers(self) -> list[tuple[str, str | Secret]]:
        asked = self.invocation
        headers: list[tuple[str, str | Secret]] = [
            ("Accept", asked.accept or "*/*"),
            ("Accept-Encoding", "identity"),
            ("AIIP-Nonce", self.nonce),
        ]
        optional: tuple[tuple[str, str | Secret | None], ...] = (
            ("Origin", self.caller.origin),
            ("Content-Type", asked.content_type),
            ("Content-Digest", self._digest),
            ("Idempotency-Key", None if asked.idempotency_key is None else f'"{asked.idempotency_key}"'),
        )
        headers += [(name, value) for name, value in optional if value is not None]
        if self.caller.token is not None:
            headers.append(("Authorization", Secret(f"Bearer {self.caller.token.reveal()}")))
        return headers + list(asked.headers)

    def verify_reply(
        self, reply: Reply, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]
    ) -> Result:
        """The result that this reply is, once its receipt holds.

        Raises ProvenanceError where it does not, InvocationError for a refusal that the endpoint could not
        sign, SignatureError `sign.unknown-key` where the key set at hand may be too old.
        """
        if 300 <= reply.status < 400 and reply.status != 304:  # "not modified" leads nowhere
            raise self.make_redirect_error()
        content_type = reply.headers.get("content-type")
        token = self._find_receipt_token(reply)
        if token is None:
            raise self._make_unsigned_error(reply, content_type)
        self._validate_digest(reply)
        receipt = self.verify_token(
            token, keys, at, seen, status=reply.status, content_type=content_type, body=reply.body
        )
        return self.build_result(reply, receipt, token)

    def verify_token(
        self,
        token: str,
        keys: AuthorityKeys,
        at: float,
        seen: Callable[[str, float], bool],
        *,
        status: int,
        content_type: str | None,
        body: bytes | None = None,
        stream: StreamEnd | None = None,
    ) -> Receipt:
        """The receipt that this token is, if it is one for this question and this answer."""
        expected = Expected(
            issuer=self.resolution.anchor,
            subject=self.target,
            audience=self.caller.audience,
            nonce=self.nonce,
            request=self.request_hash,
            status=status,
            content_type=content_type,
            body=body,
            stream=stream,
            token_hash=None if self.caller.token is None else access_token_hash(self.caller.token.reveal()),
        )
        try:
            return verify_receipt(
                token, keys, expected, at=at, seen=seen, algorithms=self.resolution.document.algorithms
            )
        except SignatureError as error:
            if error.code == "sign.unknown-key":
                raise
            raise ProvenanceError(error.message, target=self.target, clause=_CLAUSE) from error
        except ProvenanceError as error:
            error.target = self.target
            raise

    def make_redirect_error(self) -> AIIPError:
        """The error of an answer that sends the request elsewhere, signed or not."""
        return AIIPError(
            "the endpoint answered with a redirect; none is followed",
            code="aiip.upstream-redirect",
            target=self.target,
        )

    def _validate_digest(self, reply: Reply) -> None:
        """Raises ProvenanceError for a Content-Digest of other content: somebody might go by it (3.6)."""
        told = _SHA256.findall(", ".join(reply.headers.get_all("content-digest")))
        if any(each != content_digest(reply.body) for each in told):
            raise ProvenanceError(
                "the answer's Content-Digest is of other content", target=self.target, clause="RFC 9530 2"
            )

    def _find_receipt_token(self, reply: Reply) -> str | None:
        tokens = reply.headers.get_all("aiip-receipt")
        if len(tokens) > 1:
            raise ProvenanceError("the answer has two receipts", target=self.target, clause=_CLAUSE)
        return tokens[0] if tokens else None

    def _make_unsigned_error(self, reply: Reply, content_type: str | None) -> AIIPError:
        """An answer without a receipt: at best a failure, which nobody vouches for (3.7)."""
        if reply.status >= 400:
            return decode_problem(reply.status, content_type, reply.body, self.target, signed=False)
        return ProvenanceError(
            "the answer has no receipt",
            code="aiip.provenance-missing",
            target=self.target,
            clause=_CLAUSE,
            status=reply.status,
            hint="the authority has to sign what it answers",
        )

    def build_result(self, reply: Reply, receipt: Receipt, token: str) -> Result:
        """The result that a reply is, after its receipt was found to hold.

        Raises ProvenanceError for two content types: the receipt is for one, others may go by the other.
        """
        if len(reply.headers.get_all("content-type")) > 1:
            raise ProvenanceError("the answer has two content types", target=self.target, clause=_CLAUSE)
        return Result(
            status=reply.status,
            content_type=reply.headers.get("content-type"),
            body=reply.body,
            headers=reply.headers,
            receipt=receipt,
            token=token,
            resolution=self.resolution,
            checks=CHECKS,
            replayed=reply.headers.get("idempotency-replayed") == "?1",
        )


def is_event_stream(content_type: str | None) -> bool:
    """Is this the media type of a stream of events?"""
    return (content_type or "").partition(";")[0].strip().lower() == EVENTS


def _validate_invocation(asked: Invocation) -> None:
    key = asked.idempotency_key
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and _is_visible_ascii(key)):
        raise UsageError(
            f'an idempotency key has 1 to {_LONGEST_KEY} visible ASCII characters, without " and \\',
            code="usage.bad-argument",
        )
    given = next((name for name, _ in asked.headers if name.lower() in _RESERVED_FIELDS), None)
    if given is not None:
        raise UsageError(f"the header {given} is made by Onym", code="usage.bad-argument")


def _is_visible_ascii(key: str) -> bool:
    return all("\x21" <= each <= "\x7e" and each not in '"\\' for each in key)
