"""One request to a resource and the verification of its response (AIIP/HTTPS v1, 3.6 to 3.8).

Pure. `RequestAttempt` builds the request with a new nonce and verifies the reply against it. `StreamReader`
does the same for an event stream, which is provisional until its last event, the receipt, is verified.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onym.ai import records
from onym.ai.messages import decode_problem
from onym.common.text import escape_unprintable
from onym.errors import AIIPError, ProvenanceError, ResponseTooLarge, SignatureError, UsageError
from onym.net.limits import ClientIdentity
from onym.net.messages import Headers, HTTPRequest, Origin, Reply, Send, SSEDecoder, SSEEvent, split_url
from onym.sign import receipts
from onym.sign.dpop import DPoPKey, is_nonce, sign_dpop_proof
from onym.sign.keys import AuthorityKeys
from onym.sign.receipts import request_hash
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
        self._chain = receipts.StreamChain(
            attempt.request_hash, "-" if attempt.task is None else attempt.task.id
        )
        #: the receipt in its compact form, or None before it has arrived
        self.token: str | None = None
        self._problem: str | None = None
        self._count = 0

    def resume(self, earlier: StreamReader) -> None:
        """Go on where an earlier reader of the same stream has stopped."""
        self._chain, self._count = earlier._chain, earlier._count

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

    def verify_end(
        self, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]
    ) -> receipts.Receipt:
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
            raise decode_problem(None, records.PROBLEM, self._problem.encode(), target, signed=False)
        raise ProvenanceError(
            "the stream ended without a receipt, so none of its events can be trusted",
            code="aiip.provenance-missing",
            target=target,
            clause=_STREAM_CLAUSE,
        )


class DPoPNonces:
    """The last `DPoP-Nonce` of each origin (RFC 9449 8.2), at most `limit` of them. Threads share it."""

    def __init__(self, limit: int = 1024) -> None:
        self._limit = max(1, limit)
        self._nonces: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, origin: Origin) -> str | None:
        """Return the nonce for the next proof, or None."""
        return self._nonces.get(str(origin))

    def update(self, origin: Origin, headers: Headers) -> bool:
        """Keep the response's nonce. Report whether it has one, which another request may have got first."""
        values = headers.get_all("dpop-nonce")
        nonce = values[0] if len(values) == 1 else ""
        if not is_nonce(nonce):
            return False
        with self._lock:
            self._nonces.pop(str(origin), None)
            self._nonces[str(origin)] = nonce
            if len(self._nonces) > self._limit:
                self._nonces.popitem(last=False)
        return True


_MAX_CHALLENGE: Final = 8 * 1024
_WORD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?![^\s,]))")
_ESCAPE: Final = re.compile(r"\\(.)")
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*[ \t]*(?=,|\Z)")


class Challenge(NamedTuple):
    """One challenge of WWW-Authenticate: its scheme in lower case, and its parameters."""

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(headers: Headers) -> tuple[Challenge, ...]:
    """Return the challenges of a response, with the first value of a repeated parameter.

    Text that is not a challenge ends the list. Of more than 8 KiB, nothing is read.
    """
    text = ", ".join(headers.get_all("www-authenticate"))
    text = "" if len(text) > _MAX_CHALLENGE else text
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while True:
        while at < len(text) and text[at] in " \t,":
            at += 1
        word = _WORD.match(text, at)
        if word is None:
            break
        value = _VALUE.match(text, word.end()) if found else None
        if value is not None:
            plain = value[2] if value[1] is None else _ESCAPE.sub(r"\1", value[1])
            found[-1][1].setdefault(word[0].lower(), plain)
            at = value.end()
            continue
        found.append((word[0].lower(), {}))
        at = word.end()
        while at < len(text) and text[at] in " \t":
            at += 1
        token = _TOKEN68.match(text, at)
        if token is not None and _VALUE.match(text, at + len(token[0].split("=")[0])) is None:
            at = token.end()
    return tuple(Challenge(scheme, parameters) for scheme, parameters in found)


def find_challenge(headers: Headers) -> Challenge | None:
    """Return the challenge that tells most: of DPoP, else of Bearer (RFC 9449 7.1, RFC 6750 3)."""
    challenges = {challenge.scheme: challenge for challenge in reversed(parse_challenges(headers))}
    named = [challenges[scheme] for scheme in ("dpop", "bearer") if scheme in challenges]
    return next((challenge for challenge in named if "error" in challenge.parameters), None) or next(
        iter(named), None
    )


def wants_dpop_nonce(reply: Reply) -> bool:
    """Report whether the request was refused only because of its proof's nonce (RFC 9449 9)."""
    challenge = find_challenge(reply.headers) if reply.status == 401 else None
    return challenge is not None and challenge.parameters.get("error") == "use_dpop_nonce"


#: error of a challenge -> our code, for a response whose problem document has none
_CHALLENGE_CODES: Final[Mapping[str, str]] = {
    "invalid_token": "aiip.authentication-required",
    "invalid_dpop_proof": "aiip.sender-constraint",
    "use_dpop_nonce": "aiip.sender-constraint",
    "insufficient_scope": "aiip.insufficient-scope",
    "insufficient_user_authentication": "aiip.step-up-required",
}
_LONGEST_HINT: Final = 300


def explain_challenge(error: AIIPError, headers: Headers) -> None:
    """Add to the error of a 401 or 403 what its challenge asks for: the scopes, or a fresh sign-in."""
    challenge = find_challenge(headers)
    if challenge is None:
        return
    found = challenge.parameters
    error.challenge = ", ".join(headers.get_all("www-authenticate"))[:_MAX_CHALLENGE]
    if error.code == error.default_code:
        error.code = _CHALLENGE_CODES.get(found.get("error", ""), error.code)
    scopes = found.get("scope")
    if error.code == "aiip.insufficient-scope" and scopes:
        hint = f"Get a token with these scopes: {scopes}."
    elif error.code == "aiip.step-up-required":
        wanted = {"acr_values": "authentication level", "max_age": "sign-in at most this many seconds old"}
        parts = [f"{text} {found[name]}" for name, text in wanted.items() if name in found]
        hint = f"Sign in again ({'; '.join(parts) or 'the resource requires a fresh sign-in'})."
    elif error.code == "aiip.authentication-required":
        hint = "The token is missing, or it is no longer valid: sign in with onym ai login."
    else:
        return
    error.hint = escape_unprintable(hint)[:_LONGEST_HINT]


#: the checks before a result is released, in the order of 3.8
CHECKS: Final = (
    "form", "header", "key", "signature", "issuer", "resource", "audience", "nonce", "request", "time",
    "replay", "status", "content type", "content",
)  # fmt: skip
#: header fields that Onym sets, and that a caller may not pass
_RESERVED_FIELDS: Final = frozenset(
    {
        "accept-encoding", "accept", "aiip-approval", "aiip-nonce", "authorization", "connection",
        "content-digest", "content-encoding", "content-length", "content-type", "cookie", "dpop", "expect",
        "host", "idempotency-key", "origin", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
#: an idempotency key (3.11): 1 to 255 visible ASCII characters except " and \
IDEMPOTENCY_KEY: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_SHA256: Final = re.compile(r"sha-256=:[^:]*:")
_CLAUSE: Final = "AIIP/HTTPS v1 3.8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A caller: an access token with the client ID that it was issued to, or an origin, or neither.

    `dpop_key` is the key that the token is bound to; without one it is a Bearer token. `identity` is the TLS
    certificate that the caller shows.
    """

    token: Secret | None = None
    client_id: str | None = None
    origin: str | None = None
    dpop_key: DPoPKey | None = None
    identity: ClientIdentity | None = None

    @property
    def audience(self) -> str:
        """The audience that a receipt must name."""
        return self.client_id or self.origin or records.ANONYMOUS_AUDIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTarget:
    """A part of a task, and the hash of the request that began the task (`orq`)."""

    id: str
    original: str
    part: records.TaskPart = ""


@dataclass(frozen=True, slots=True)
class RequestAttempt:
    """One attempt of an invocation, or of a request to a `task` that an invocation began.

    `seen` records a receipt's ID and reports whether it was known.
    """

    invocation: records.Invocation
    resolution: records.Resolution
    caller: Caller
    timeout: float | None
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    task: TaskTarget | None = None
    _digest: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        _validate_invocation(self.invocation)
        if self.invocation.body:
            object.__setattr__(self, "_digest", receipts.content_digest(self.invocation.body))

    @property
    def target(self) -> str:
        """The canonical ai URI, without its query."""
        return str(self.resolution.uri.without_query)

    @property
    def request_hash(self) -> str:
        """`rqh`, the hash of the request that the receipt must contain (3.8)."""
        return request_hash(
            method=self.invocation.method,
            target=(
                str(self.resolution.uri)
                if self.task is None
                else records.format_task_target(self.task.id, self.task.part)
            ),
            digest=self._digest,
            content_type=self.invocation.content_type,
            idempotency_key=self.invocation.idempotency_key,
        )

    def build_request(
        self, *, stream: bool = False, at: float = 0.0, nonces: DPoPNonces | None = None
    ) -> Send:
        """Return the request for the transport.

        For a token that is bound to a DPoP key it has a new proof, made `at` this time (seconds since the
        epoch) with the nonce that the service asked for last. A proof is for one request: build another one
        for each attempt.
        """
        text = self._build_url()
        origin, target = split_url(URI.parse(text))
        headers = self._build_headers()
        if self.caller.dpop_key is not None and self.caller.token is not None:
            proof = sign_dpop_proof(
                self.caller.dpop_key,
                method=self.invocation.method,
                url=text,
                at=at,
                access_token=self.caller.token.reveal(),
                nonce=None if nonces is None else nonces.get(origin),
                request_hash=self.request_hash,
            )
            headers.append(("DPoP", Secret(proof)))
        request = HTTPRequest(
            method=self.invocation.method,
            origin=origin,
            target=target,
            headers=tuple(headers),
            body=self.invocation.body,
            credential=None if self.caller.token is None else self.resolution.authority,
        )
        identity = self.caller.identity
        return Send(request, self.timeout, stream, self.resolution.connect, identity=identity)

    def _build_url(self) -> str:
        service = self.resolution.document.service
        if self.task is None:
            return to_https(service, self.resolution.uri)
        # never the Location of a response: it is not signed, and a token would go there
        base = URI.parse(service)
        part = f"/{self.task.part}" if self.task.part else ""
        return f"{base.scheme}://{base.authority}{records.TASKS}{self.task.id}{part}"

    def _build_headers(self) -> list[tuple[str, str | Secret]]:
        invocation = self.invocation
        key, token = invocation.idempotency_key, self.caller.token
        scheme = "Bearer" if self.caller.dpop_key is None else "DPoP"
        fields: tuple[tuple[str, str | Secret | None], ...] = (
            ("Accept", invocation.accept or "*/*"),
            ("Accept-Encoding", "identity"),
            ("AIIP-Nonce", self.nonce),
            ("Origin", self.caller.origin),
            ("Content-Type", invocation.content_type),
            ("Content-Digest", self._digest),
            ("Idempotency-Key", None if key is None else f'"{key}"'),
            ("AIIP-Approval", invocation.approval),
            ("Authorization", None if token is None else Secret(f"{scheme} {token.reveal()}")),
            *invocation.headers,
        )
        return [(name, value) for name, value in fields if value is not None]

    def verify_reply(
        self, reply: Reply, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]
    ) -> records.Result:
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
            error = decode_problem(reply.status, content_type, reply.body, self.target, signed=False)
            explain_challenge(error, reply.headers)
            raise error
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
        if any(digest != receipts.content_digest(reply.body) for digest in digests):
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
        stream: receipts.StreamEnd | None = None,
    ) -> receipts.Receipt:
        """Verify that this token is a receipt for this request and this response, and return it."""
        expected = receipts.Expected(
            issuer=self.resolution.anchor,
            subject=self.target,
            audience=self.caller.audience,
            nonce=self.nonce,
            request=self.request_hash,
            status=status,
            content_type=content_type,
            body=body,
            stream=stream,
            token_hash=None
            if self.caller.token is None
            else receipts.access_token_hash(self.caller.token.reveal()),
            task=None if self.task is None else self.task.id,
            original=None if self.task is None else self.task.original,
        )
        try:
            return receipts.verify_receipt(
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

    def build_result(self, reply: Reply, receipt: receipts.Receipt, token: str) -> records.Result:
        """Return the result of a reply whose receipt was verified.

        Raises ProvenanceError for two content types: the receipt covers one, and other software may use the
        other.
        """
        if len(reply.headers.get_all("content-type")) > 1:
            raise ProvenanceError("the response has two content types", target=self.target, clause=_CLAUSE)
        return records.Result(
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


def _validate_invocation(invocation: records.Invocation) -> None:
    key = invocation.idempotency_key
    if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
        raise UsageError(
            'an idempotency key has 1 to 255 visible ASCII characters, without " and \\',
            code="usage.bad-argument",
        )
    if invocation.approval is not None and not _TOKEN.fullmatch(invocation.approval):
        raise UsageError(
            "the approval is not a token of three parts",
            code="usage.bad-argument",
            hint="Pass the evidence as the approver gave it, without the name of the header field.",
        )
    reserved = next((name for name, _ in invocation.headers if name.lower() in _RESERVED_FIELDS), None)
    if reserved is not None:
        raise UsageError(
            f"the header field {reserved} cannot be passed: Onym sets it", code="usage.bad-argument"
        )
