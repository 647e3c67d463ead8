"""One request to a resource, and what its answer must prove before it counts (3.6 to 3.8). Pure.

A `Question` is made for each attempt, with a nonce of its own: it knows the request that goes out, and reads
the reply against it. Nothing of a reply is given out before its receipt holds.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from onym.ai._problem import PROBLEM, problem_of
from onym.ai.records import Invocation, Resolution, Result
from onym.errors import AIIPError, ProvenanceError, SignatureError, UsageError
from onym.net.messages import HTTPRequest, Origin, Reply, Send
from onym.sign.receipt import (
    Expected,
    Receipt,
    StreamEnd,
    access_token_hash,
    content_digest,
    request_hash,
    verify_receipt,
)
from onym.uri.ai_map import to_https
from onym.uri.generic import URI
from onym.uri.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

    from onym.sign.keys import AuthorityKeys

__all__ = ["ANONYMOUS", "DESCRIPTION", "EVENTS", "PROBLEM", "Caller", "Question", "is_events", "problem_of"]

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
_OURS: Final = frozenset(
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
class Question:
    """One attempt of an invocation. `seen` records the id of a receipt and says whether it was there."""

    invocation: Invocation
    resolution: Resolution
    caller: Caller
    timeout: float | None
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _digest: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        _check(self.invocation)
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

    def send(self, *, stream: bool = False) -> Send:
        """The request, for the transport."""
        url = URI.parse(to_https(self.resolution.document.service, self.resolution.uri))
        request = HTTPRequest(
            method=self.invocation.method,
            origin=Origin("https", url.host or "", int(url.port or 443)),
            target=url.path if url.query is None else f"{url.path}?{url.query}",
            headers=tuple(self._headers()),
            body=self.invocation.body,
            credential=None if self.caller.token is None else self.resolution.authority,
        )
        return Send(request, self.timeout, stream, self.resolution.connect)

    def _headers(self) -> list[tuple[str, str | Secret]]:
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

    def read(
        self, reply: Reply, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]
    ) -> Result:
        """The result that this reply is, once its receipt holds.

        Raises ProvenanceError where it does not, InvocationError for a refusal that the endpoint could not
        sign, SignatureError `sign.unknown-key` where the key set at hand may be too old.
        """
        if 300 <= reply.status < 400 and reply.status != 304:  # "not modified" leads nowhere
            raise self.redirected()
        content_type = reply.headers.get("content-type")
        token = self._token(reply)
        if token is None:
            raise self._unsigned(reply, content_type)
        self._check_digest(reply)
        receipt = self.verify(
            token, keys, at, seen, status=reply.status, content_type=content_type, body=reply.body
        )
        return self.result(reply, receipt, token)

    def verify(
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

    def redirected(self) -> AIIPError:
        """The error of an answer that sends the request elsewhere, signed or not."""
        return AIIPError(
            "the endpoint answered with a redirect; none is followed",
            code="aiip.upstream-redirect",
            target=self.target,
        )

    def _check_digest(self, reply: Reply) -> None:
        """Raises ProvenanceError for a Content-Digest of other content: somebody might go by it (3.6)."""
        told = _SHA256.findall(", ".join(reply.headers.get_all("content-digest")))
        if any(each != content_digest(reply.body) for each in told):
            raise ProvenanceError(
                "the answer's Content-Digest is of other content", target=self.target, clause="RFC 9530 2"
            )

    def _token(self, reply: Reply) -> str | None:
        tokens = reply.headers.get_all("aiip-receipt")
        if len(tokens) > 1:
            raise ProvenanceError("the answer has two receipts", target=self.target, clause=_CLAUSE)
        return tokens[0] if tokens else None

    def _unsigned(self, reply: Reply, content_type: str | None) -> AIIPError:
        """An answer without a receipt: at best a failure, which nobody vouches for (3.7)."""
        if reply.status >= 400:
            return problem_of(reply.status, content_type, reply.body, self.target, signed=False)
        return ProvenanceError(
            "the answer has no receipt",
            code="aiip.provenance-missing",
            target=self.target,
            clause=_CLAUSE,
            status=reply.status,
            hint="the authority has to sign what it answers",
        )

    def result(self, reply: Reply, receipt: Receipt, token: str) -> Result:
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


def is_events(content_type: str | None) -> bool:
    """Is this the media type of a stream of events?"""
    return (content_type or "").partition(";")[0].strip().lower() == EVENTS


def _check(asked: Invocation) -> None:
    key = asked.idempotency_key
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and _is_word(key)):
        raise UsageError(
            f'an idempotency key has 1 to {_LONGEST_KEY} visible ASCII characters, without " and \\',
            code="usage.bad-argument",
        )
    given = next((name for name, _ in asked.headers if name.lower() in _OURS), None)
    if given is not None:
        raise UsageError(f"the header {given} is made by Onym", code="usage.bad-argument")


def _is_word(key: str) -> bool:
    return all("\x21" <= each <= "\x7e" and each not in '"\\' for each in key)
