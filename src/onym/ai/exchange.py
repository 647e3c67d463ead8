"""One request to a resource and the verification of its response (AIIP/HTTPS v1, 3.6 to 3.8).

Pure. `RequestAttempt` builds the request with a new nonce and verifies the reply against it. `StreamReader`
does the same for an event stream, which is provisional until its last event, the receipt, is verified.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from onym.ai.problems import decode_problem
from onym.ai.records import ANONYMOUS_AUDIENCE, PROBLEM, Invocation, Resolution, Result
from onym.errors import AIIPError, ProvenanceError, ResponseTooLarge, SignatureError, UsageError
from onym.net.messages import HTTPRequest, Reply, Send, split_url
from onym.net.sse import SSEDecoder, SSEEvent
from onym.sign.keys import AuthorityKeys
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

#: the type of a stream's last event; its data is the receipt in its compact form
RECEIPT_EVENT: Final = "receipt"
#: the type of the last event of a stream that failed; its data is an unsigned problem document
PROBLEM_EVENT: Final = "problem"
#: characters of one event
MAX_EVENT: Final = 1024 * 1024
#: events of one stream; every event costs two hashes, and a few megabytes can contain a million events
MAX_EVENTS: Final = 100_000
_STREAM_CLAUSE: Final = "AIIP/HTTPS v1 3.8, streams"


class StreamReader:
    """Reads bytes and returns provisional events; `verify_end` returns the receipt of the whole stream."""

    def __init__(self, attempt: RequestAttempt, status: int, content_type: str | None) -> None:
        self._attempt = attempt
        self._status = status
        self._content_type = content_type
        self._decoder = SSEDecoder(MAX_EVENT)
        self._chain = StreamChain(attempt.request_hash)
        #: the receipt in its compact form, or None before it has arrived
        self.token: str | None = None
        self._problem: str | None = None
        self._count = 0

    def feed(self, data: bytes) -> list[SSEEvent]:
        """Return the events that these bytes complete.

        Raises ProvenanceError, ProtocolError, ResponseTooLarge.
        """
        return [event for event in self._decoder.events(data) if self._accept_event(event)]

    def _accept_event(self, event: SSEEvent) -> bool:
        target = self._attempt.target
        if self.token is not None:
            raise ProvenanceError(
                "the stream continues after its receipt", target=target, clause=_STREAM_CLAUSE
            )
        if event.event == RECEIPT_EVENT:
            self.token = event.data
            return False
        # only the last event reports a failure; followed by others it is an event like them
        self._problem = event.data if event.event == PROBLEM_EVENT else None
        try:
            self._chain.add(event.id, event.event, event.data)
        except SignatureError as error:
            raise ProvenanceError(error.message, target=target, clause=_STREAM_CLAUSE) from error
        self._count += 1
        if self._count > MAX_EVENTS:
            raise ResponseTooLarge(
                f"the stream has more than {MAX_EVENTS} events",
                code="net.too-large.event",
                endpoint=target,
            )
        return True

    def verify_end(self, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]) -> Receipt:
        """Return the receipt of the stream, after the stream has ended.

        Raises ProvenanceError; InvocationError if the endpoint reports, unsigned, why the receipt is missing;
        SignatureError `sign.unknown-key` if `keys` may be too old.
        """
        target, status, content_type = self._attempt.target, self._status, self._content_type
        if self.token is not None:
            return self._attempt.verify_token(
                self.token, keys, at, seen, status=status, content_type=content_type, stream=self._chain.end
            )
        if self._problem is not None:
            raise decode_problem(None, PROBLEM, self._problem.encode(), target, signed=False)
        raise ProvenanceError(
            "the stream ended without a receipt, so none of its events can be trusted",
            code="aiip.provenance-missing",
            target=target,
            clause=_STREAM_CLAUSE,
        )


#: the checks before a result is released, in the order of 3.8
CHECKS: Final = (
    "form", "header", "key", "signature", "issuer", "resource", "audience", "nonce", "request", "time",
    "replay", "status", "content type", "content",
)  # fmt: skip
#: header fields that Onym sets, and that a caller may not pass
_RESERVED_FIELDS: Final = frozenset(
    {
        "accept-encoding", "accept", "aiip-nonce", "authorization", "connection", "content-digest",
        "content-encoding", "content-length", "content-type", "cookie", "dpop", "expect", "host",
        "idempotency-key", "origin", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_KEY: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")
_SHA256: Final = re.compile(r"sha-256=:[^:]*:")
_CLAUSE: Final = "AIIP/HTTPS v1 3.8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller: an access token with the client ID that it was issued to, or an origin, or neither."""

    token: Secret | None = None
    client_id: str | None = None
    origin: str | None = None

    @property
    def audience(self) -> str:
        """The audience that a receipt must name."""
        return self.client_id or self.origin or ANONYMOUS_AUDIENCE


@dataclass(frozen=True, slots=True)
class RequestAttempt:
    """One attempt of an invocation. `seen` records a receipt's ID and reports whether it was known."""

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
        """`rqh`, the hash of the request that the receipt must contain (3.8)."""
        return request_hash(
            method=self.invocation.method,
            target=str(self.resolution.uri),
            digest=self._digest,
            content_type=self.invocation.content_type,
            idempotency_key=self.invocation.idempotency_key,
        )

    def build_request(self, *, stream: bool = False) -> Send:
        """Return the request for the transport."""
        url = URI.parse(to_https(self.resolution.document.service, self.resolution.uri))
        origin, target = split_url(url)
        request = HTTPRequest(
            method=self.invocation.method,
            origin=origin,
            target=target,
            headers=tuple(self._build_headers()),
            body=self.invocation.body,
            credential=None if self.caller.token is None else self.resolution.authority,
        )
        return Send(request, self.timeout, stream, self.resolution.connect)

    def _build_headers(self) -> list[tuple[str, str | Secret]]:
        invocation = self.invocation
        key, token = invocation.idempotency_key, self.caller.token
        fields: tuple[tuple[str, str | Secret | None], ...] = (
            ("Accept", invocation.accept or "*/*"),
            ("Accept-Encoding", "identity"),
            ("AIIP-Nonce", self.nonce),
            ("Origin", self.caller.origin),
            ("Content-Type", invocation.content_type),
            ("Content-Digest", self._digest),
            ("Idempotency-Key", None if key is None else f'"{key}"'),
            ("Authorization", None if token is None else Secret(f"Bearer {token.reveal()}")),
            *invocation.headers,
        )
        return [(name, value) for name, value in fields if value is not None]

    def verify_reply(
        self, reply: Reply, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]
    ) -> Result:
        """Verify the reply's receipt and return the result.

        Raises ProvenanceError for an invalid receipt, InvocationError for an error response that the endpoint
        could not sign, SignatureError `sign.unknown-key` if `keys` may be too old.
        """
        if 300 <= reply.status < 400 and reply.status != 304:  # "not modified" is not a redirect
            raise self.make_redirect_error()
        content_type = reply.headers.get("content-type")
        tokens = reply.headers.get_all("aiip-receipt")
        if len(tokens) > 1:
            raise ProvenanceError("the response has two receipts", target=self.target, clause=_CLAUSE)
        if not tokens and reply.status >= 400:
            # at best an unsigned problem (3.7)
            raise decode_problem(reply.status, content_type, reply.body, self.target, signed=False)
        if not tokens:
            raise ProvenanceError(
                "the response has no receipt",
                code="aiip.provenance-missing",
                target=self.target,
                clause=_CLAUSE,
                status=reply.status,
                hint="The endpoint must sign its responses.",
            )
        # other software may rely on Content-Digest (3.6)
        digests = _SHA256.findall(", ".join(reply.headers.get_all("content-digest")))
        if any(digest != content_digest(reply.body) for digest in digests):
            raise ProvenanceError(
                "the Content-Digest does not match the body", target=self.target, clause="RFC 9530 2"
            )
        receipt = self.verify_token(
            tokens[0], keys, at, seen, status=reply.status, content_type=content_type, body=reply.body
        )
        return self.build_result(reply, receipt, tokens[0])

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
        """Verify that this token is a receipt for this request and this response, and return it."""
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
        """Return the error of a redirect, signed or not."""
        return AIIPError(
            "the endpoint answered with a redirect, which Onym does not follow",
            code="aiip.upstream-redirect",
            target=self.target,
        )

    def build_result(self, reply: Reply, receipt: Receipt, token: str) -> Result:
        """Return the result of a reply whose receipt was verified.

        Raises ProvenanceError for two content types: the receipt covers one, and other software may use the
        other.
        """
        if len(reply.headers.get_all("content-type")) > 1:
            raise ProvenanceError("the response has two content types", target=self.target, clause=_CLAUSE)
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


def _validate_invocation(invocation: Invocation) -> None:
    key = invocation.idempotency_key
    if key is not None and not _KEY.fullmatch(key):
        raise UsageError(
            'an idempotency key has 1 to 255 visible ASCII characters, without " and \\',
            code="usage.bad-argument",
        )
    reserved = next((name for name, _ in invocation.headers if name.lower() in _RESERVED_FIELDS), None)
    if reserved is not None:
        raise UsageError(
            f"the header field {reserved} cannot be passed: Onym sets it", code="usage.bad-argument"
        )
