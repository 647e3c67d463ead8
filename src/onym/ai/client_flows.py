"""Client calls as generators: resolve, describe, invoke, open a stream.

`Session` contains the caller's identity and policy. The generators do no I/O; `run_flow` and `arun_flow` of
`onym.net.transport` drive them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onym.ai import exchange, records
from onym.ai.credentials import Credentials
from onym.ai.discovery.resolution import renew_keys
from onym.ai.messages import decode_problem
from onym.ai.replay import MemoryReplays, Replays
from onym.ai.settings import ResolverSettings
from onym.ai.telemetry import Telemetry, resolve_telemetry
from onym.errors import (
    AIIPError,
    ApprovalRequired,
    ConnectionFailed,
    DeniedError,
    NetError,
    ProvenanceError,
    RedirectRefused,
    ResolveError,
    SignatureError,
    TaskRunning,
)
from onym.net.limits import ClientIdentity
from onym.net.messages import Flow, Reply, Wait, Work
from onym.sign.approval import verify_challenge
from onym.sign.keys import AuthorityKeys

if TYPE_CHECKING:
    from onym.ai._spans import Stage

#: effects that are allowed by default
DEFAULT_EFFECTS: Final = frozenset({records.Effects.READ, records.Effects.WRITE})
_APPROVAL_REQUIRED: Final = "aiip.approval-required"
_APPROVAL_CLAUSE: Final = "AIIP/HTTPS v1 3.13"
_SESSION_CLAUSE: Final = "AIIP/HTTPS v1 3.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The caller's identity and policy.

    `origin` is the https origin that identifies a caller without a token, such as a gateway. `credentials`
    obtain the access token for an authority; Onym asks for every request, and sends the token only to that
    authority's service. `identities` are the TLS client certificates by authority, `identity` is the one for
    all other authorities. `nonces` are the DPoP nonces that services asked for. `allow_effects` are the
    effects that an invocation may have; `financial` and `physical` must be listed. `timeout` is in seconds
    and applies to one request.
    """

    settings: ResolverSettings = field(default_factory=ResolverSettings)
    origin: str | None = None
    credentials: Credentials | None = None
    identity: ClientIdentity | None = None
    identities: Mapping[str, ClientIdentity] = field(default_factory=dict)
    nonces: exchange.DPoPNonces = field(default_factory=exchange.DPoPNonces)
    allow_effects: Collection[records.Effects | str] = DEFAULT_EFFECTS
    replays: Replays = field(default_factory=MemoryReplays)
    timeout: float = 60.0

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "allow_effects", frozenset(records.Effects(effect) for effect in self.allow_effects)
        )

    def new_attempt(
        self,
        invocation: records.Invocation,
        resolution: records.Resolution,
        caller: exchange.Caller,
        task: exchange.TaskTarget | None = None,
    ) -> exchange.RequestAttempt:
        """Begin an attempt of this invocation, or of a request to a task, with a new nonce.

        Raises ProvenanceError `aiip.unavailable` if the replay store is full: the response could not be
        accepted, so nothing is sent.
        """
        self.replays.admit(resolution.anchor, now=self.settings.clock())
        return exchange.RequestAttempt(invocation, resolution, caller, self.timeout, task=task)

    def get_identity(self, resolution: records.Resolution) -> ClientIdentity | None:
        """Return the TLS client certificate for this authority, or None."""
        return self.identities.get(resolution.authority, self.identity)

    def obtain_caller(
        self,
        resolution: records.Resolution,
        known: records.EndpointEntry | records.Description | None,
        *,
        effects: records.Effects,
    ) -> Flow[exchange.Caller]:
        """Obtain the token for a request to this resource.

        It has the resource's scopes, if the authority lists them. `effects` are those of the request, which
        may be weaker than those of the resource. Raises what `Credentials.obtain` raises.
        """
        identity = self.get_identity(resolution)
        if self.credentials is None:
            return exchange.Caller(origin=self.origin, identity=identity)
        listed = resolution.document.scopes
        scopes = [] if known is None else [scope for scope in known.scopes if not listed or scope in listed]
        credential = yield from self.credentials.obtain(resolution, scopes=scopes, effects=effects)
        if credential is None:
            return exchange.Caller(origin=self.origin, identity=identity)
        return exchange.Caller(
            token=credential.token,
            client_id=credential.client_id,
            dpop_key=credential.dpop_key,
            identity=identity,
        )

    def require_allowed(self, resolution: records.Resolution, effects: records.Effects) -> None:
        """Raise DeniedError if the authority requires a certificate, or the effects are not allowed."""
        code, clause, hint = None, _SESSION_CLAUSE, None
        if resolution.document.requirements.mtls and self.get_identity(resolution) is None:
            code = "aiip.sender-constraint"
            message = f"{resolution.authority} requires a TLS client certificate, and none is configured"
            hint = "Add one: identities={authority: ClientIdentity(cert=...)} (command line: --cert FILE)."
        elif effects not in self.allow_effects:
            message = f"the resource has {effects} effects, which are not allowed by default"
            clause = "draft-sogomonian-ai-uri-scheme-01, Security Considerations"
            hint = f'Allow them with allow_effects=["{effects}"] (command line: --allow {effects}).'
        else:
            return
        target = str(resolution.uri.without_query)
        raise DeniedError(message, code=code, target=target, clause=clause, hint=hint)

    def require_authorized(self, resolution: records.Resolution, caller: exchange.Caller) -> None:
        """Raise DeniedError if the caller has no token, or no DPoP key, where the authority requires one."""
        needs = resolution.document.requirements
        if needs.auth is records.Auth.OAUTH2 and caller.token is None:
            servers = ", ".join(resolution.document.authorization_servers)
            code, message = "aiip.authentication-required", f"{resolution.authority} requires an access token"
            hint = f"Get a token from {servers or 'its authorization server'} (command line: onym ai login)."
        elif needs.dpop is records.Level.REQUIRED and caller.dpop_key is None:
            code = "aiip.sender-constraint"
            message = f"{resolution.authority} requires a token that is bound to a DPoP key"
            hint = "Sign in again with a DPoP key (command line: onym ai login)."
        else:
            return
        target = str(resolution.uri.without_query)
        raise DeniedError(message, code=code, target=target, clause=_SESSION_CLAUSE, hint=hint)

    def add_idempotency_key(
        self, invocation: records.Invocation, effects: records.Effects, *, keyed: bool = False
    ) -> records.Invocation:
        """Add an idempotency key if the effects or the resource require one (`keyed`, 3.11).

        An invocation that has a key keeps it.
        """
        needed = keyed or effects is not records.Effects.READ
        if not needed or invocation.idempotency_key is not None:
            return invocation
        return replace(invocation, idempotency_key=secrets.token_urlsafe(24))

    def make_replay_check(self, resolution: records.Resolution) -> Callable[[str, float], bool]:
        """Return a function that records a receipt's ID and reports whether it was recorded before."""

        def check_replay(identity: str, until: float) -> bool:
            seen = self.replays.seen(f"{resolution.anchor}\n{identity}", until, now=self.settings.clock())
            if seen and self.settings.telemetry is not None:
                self.settings.telemetry.count_replay(resolution.authority, "receipt")
            return seen

        return check_replay


def add_telemetry(settings: ResolverSettings, telemetry: Telemetry | None) -> ResolverSettings:
    """Return the settings with `telemetry`, or with that of `ONYM_TELEMETRY` if neither has any."""
    if telemetry is None and settings.telemetry is not None:
        return settings
    resolved = resolve_telemetry(telemetry)
    return settings if resolved is None else replace(settings, telemetry=resolved)


#: how often a request is repeated if that is safe
_RETRIES: Final = 1
_RETRY_SECONDS: Final = 0.2
#: bytes of a description, whose schemas become forms and descriptions in other protocols
_LONGEST_DESCRIPTION: Final = 256 * 1024
_DESCRIPTION_CLAUSE: Final = "AIIP/HTTPS v1 3.6"


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """A response that has begun. `reader` is set for a stream, `result` once the response is complete."""

    reply: Reply = field(repr=False)
    attempt: exchange.RequestAttempt
    reader: exchange.StreamReader | None
    result: records.Result | None
    #: the observed call that this response belongs to
    call: Stage | None = field(default=None, repr=False)

    def verify(self, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]) -> records.Result:
        """Return the result of the complete response. Raises what `RequestAttempt.verify_reply` raises."""
        if self.reader is None:
            return self.attempt.verify_reply(self.reply, keys, at, seen)
        receipt = self.reader.verify_end(keys, at, seen)
        return self.attempt.build_result(self.reply, receipt, self.reader.token or "")


def attach_call(opened: PendingAnswer, call: Stage | None) -> PendingAnswer:
    """Make the response a part of the observed call, which ends here if the response is complete."""
    if call is None:
        return opened
    if opened.result is not None:
        call.set_status(opened.result.status)  # an error response: every other response is read as a stream
        call.end()
    return replace(opened, call=call)


def describe_resource(session: Session, resolution: records.Resolution) -> Flow[records.Description]:
    """Fetch the resource's description, which its endpoint has signed."""
    uri = resolution.uri.without_query
    invocation = records.Invocation(uri=uri, method="GET", accept=records.DESCRIPTION)
    caller = yield from session.obtain_caller(resolution, resolution.entry, effects=records.Effects.READ)
    result = yield from _exchange_as(session, invocation, replace(resolution, uri=uri), caller)
    if result.status != 200:
        raise decode_problem(result.status, result.content_type, result.body, str(uri), signed=True)
    return parse_description(result, str(uri))


def invoke_resource(
    session: Session, invocation: records.Invocation, resolution: records.Resolution
) -> Flow[records.Result]:
    """Invoke the resource and return the verified result.

    Raises DeniedError, ProvenanceError, InvocationError, NetError.
    """
    ready, caller = yield from _prepare_invocation(session, invocation, resolution)
    result = yield from _exchange_as(session, ready, resolution, caller)
    _raise_for_status(result, ready, session)
    if result.status == 202 and records.parse_media_type(result.content_type) == records.TASK:
        raise TaskRunning(
            "the endpoint has begun a long task instead of returning the result",
            target=result.receipt.subject,
            clause="AIIP/HTTPS v1 3.12",
            status=202,
            hint="Begin it with AIClient.start, and wait for its result (onym ai invoke --async).",
        )
    return result


def start_task(
    session: Session, invocation: records.Invocation, resolution: records.Resolution
) -> Flow[records.Result]:
    """Invoke the resource as a long task; return 202 with the status of the task, or the result.

    The invocation gets an idempotency key, so that a lost response does not begin a second task. Raises what
    `invoke_resource` raises.
    """
    ready, caller = yield from _prepare_invocation(session, invocation, resolution)
    ready = session.add_idempotency_key(ready, records.Effects.READ, keyed=True)
    result = yield from _exchange_as(session, ready, resolution, caller)
    _raise_for_status(result, ready, session)
    return result


def exchange_task(
    session: Session,
    invocation: records.Invocation,
    resolution: records.Resolution,
    task: exchange.TaskTarget,
) -> Flow[records.Result]:
    """Send one request to a part of a task, and verify its response, whatever its status."""
    caller = yield from _obtain_for(session, invocation, resolution)
    return (yield from _exchange_as(session, invocation, resolution, caller, task))


def open_task_events(
    session: Session,
    invocation: records.Invocation,
    resolution: records.Resolution,
    task: exchange.TaskTarget,
    earlier: exchange.StreamReader | None,
) -> Flow[PendingAnswer]:
    """Open the events of a task. `earlier` has read those before, over a connection that broke."""
    caller = yield from _obtain_for(session, invocation, resolution)
    opened = yield from _begin_as(session, invocation, resolution, caller, task)
    if opened.reader is not None and earlier is not None:
        opened.reader.resume(earlier)
    return opened


def _raise_for_status(result: records.Result, invocation: records.Invocation, session: Session) -> None:
    """Raise InvocationError for an error response that the endpoint signed.

    Raises ApprovalRequired with the challenge for a request that people must approve.
    """
    if result.status < 400:
        return
    target = result.receipt.subject
    error = decode_problem(result.status, result.content_type, result.body, target, signed=True)
    challenge = (error.problem or {}).get("transaction_challenge")
    if error.code == _APPROVAL_REQUIRED and isinstance(challenge, str):
        raise _make_approval_error(result, challenge, invocation, session.settings.clock()) from error
    exchange.explain_challenge(error, result.headers)
    raise error


def _make_approval_error(
    result: records.Result, token: str, invocation: records.Invocation, at: float
) -> AIIPError:
    """Return the error of a request that needs an approval. Raises ProvenanceError for a wrong challenge."""
    target, document, keys = result.receipt.subject, result.resolution.document, result.resolution.keys
    try:
        challenge = verify_challenge(
            token, keys, issuer=document.identifier, at=at, algorithms=document.algorithms
        )
    except SignatureError as error:
        raise ProvenanceError(
            f"the challenge of the endpoint is not valid: {error.message}",
            target=target,
            clause=_APPROVAL_CLAUSE,
        ) from error
    if challenge.call.request != result.receipt.request:
        raise ProvenanceError(
            "the challenge of the endpoint is for another request", target=target, clause=_APPROVAL_CLAUSE
        )
    denied = ApprovalRequired(
        "the request needs the approval of people",
        target=target,
        clause=_APPROVAL_CLAUSE,
        hint=f"Have it approved at {' or '.join(challenge.approvers)}, then send the same request with the "
        f"idempotency key {invocation.idempotency_key} and the approval.",
    )
    denied.transaction_challenge = token
    denied.idempotency_key = invocation.idempotency_key
    return denied


def _prepare_invocation(
    session: Session, invocation: records.Invocation, resolution: records.Resolution
) -> Flow[tuple[records.Invocation, exchange.Caller]]:
    """Add the idempotency key and obtain the token, if the invocation is allowed.

    The description is fetched for unknown effects.
    """
    known: records.EndpointEntry | records.Description | None = resolution.entry
    if known is None:
        session.require_allowed(resolution, records.Effects.READ)
        known = yield from describe_resource(session, resolution)
    session.require_allowed(resolution, known.effects)
    caller = yield from session.obtain_caller(resolution, known, effects=known.effects)
    session.require_authorized(resolution, caller)
    # an approval is for one request, so a request that may need one has a key
    keyed = known.idempotency or known.approval
    return session.add_idempotency_key(invocation, known.effects, keyed=keyed), caller


def open_stream(
    session: Session, invocation: records.Invocation, resolution: records.Resolution
) -> Flow[PendingAnswer]:
    """Begin an invocation and stream its events, which are provisional until the receipt is verified.

    Raises what `invoke_resource` raises.
    """
    ready, caller = yield from _prepare_invocation(session, invocation, resolution)
    opened = yield from _begin_as(session, ready, resolution, caller)
    if opened.result is not None:
        _raise_for_status(opened.result, ready, session)
    return opened


def run_exchange(
    session: Session, invocation: records.Invocation, resolution: records.Resolution
) -> Flow[records.Result]:
    """Send one request and verify its response, whatever its status, without checking the caller's policy.

    An event stream is read to its end first.
    """
    caller = yield from _obtain_for(session, invocation, resolution)
    return (yield from _exchange_as(session, invocation, resolution, caller))


def _obtain_for(
    session: Session, invocation: records.Invocation, resolution: records.Resolution
) -> Flow[exchange.Caller]:
    """Obtain the token for a request whose policy the caller has checked."""
    entry = resolution.entry
    known = records.Effects.PHYSICAL if entry is None else entry.effects
    effects = records.Effects.READ if invocation.method == "GET" else known
    return (yield from session.obtain_caller(resolution, entry, effects=effects))


def _exchange_as(
    session: Session,
    invocation: records.Invocation,
    resolution: records.Resolution,
    caller: exchange.Caller,
    task: exchange.TaskTarget | None = None,
) -> Flow[records.Result]:
    attempt = session.new_attempt(invocation, resolution, caller, task)
    reply = yield from _send_attempt(session, attempt, stream=False)
    reader = _make_stream_reader(attempt, reply)
    if reader is not None:
        reader.feed(reply.body)
    return (yield from verify_answer(PendingAnswer(reply, attempt, reader, None), session))


def begin_exchange(
    session: Session, invocation: records.Invocation, resolution: records.Resolution
) -> Flow[PendingAnswer]:
    """Begin a request as `open_stream` does, without checking the caller's policy.

    Only 2xx streams stay open.
    """
    caller = yield from _obtain_for(session, invocation, resolution)
    return (yield from _begin_as(session, invocation, resolution, caller))


def _begin_as(
    session: Session,
    invocation: records.Invocation,
    resolution: records.Resolution,
    caller: exchange.Caller,
    task: exchange.TaskTarget | None = None,
) -> Flow[PendingAnswer]:
    attempt = session.new_attempt(invocation, resolution, caller, task)
    reply = yield from _send_attempt(session, attempt, stream=True)
    opened = PendingAnswer(reply, attempt, _make_stream_reader(attempt, reply), None)
    if reply.stream is None:
        return replace(opened, result=(yield from verify_answer(opened, session)))
    return opened


def verify_answer(opened: PendingAnswer, session: Session) -> Flow[records.Result]:
    """Verify a complete response and return its result. Keys that may be too old are fetched again."""
    flow, telemetry = _verify_with_renewal(opened, session), session.settings.telemetry
    if telemetry is not None:
        flow = telemetry.observe_verification(opened.attempt.resolution, opened.call, flow)
    return flow


def _verify_with_renewal(opened: PendingAnswer, session: Session) -> Flow[records.Result]:
    try:
        return (yield from _run_verification(opened, session, opened.attempt.resolution.keys))
    except SignatureError:
        keys = yield from renew_keys(opened.attempt.resolution, session.settings)
        try:
            return (yield from _run_verification(opened, session, keys))
        except SignatureError as error:
            raise ProvenanceError(
                "the receipt is signed with a key that the authority does not publish",
                target=opened.attempt.target,
                clause="AIIP/HTTPS v1 3.8 step 4",
            ) from error


def _run_verification(opened: PendingAnswer, session: Session, keys: AuthorityKeys) -> Flow[records.Result]:
    """Verify with these keys; a replay store on disk is used in a thread, so that coroutines do not wait."""
    seen = session.make_replay_check(opened.attempt.resolution)

    def verify() -> records.Result:
        return opened.verify(keys, session.settings.clock(), seen)

    result: records.Result = (yield Work(verify)) if session.replays.waits else verify()
    return result


def _make_stream_reader(attempt: exchange.RequestAttempt, reply: Reply) -> exchange.StreamReader | None:
    """Return a reader if the reply is an event stream."""
    content_type = reply.headers.get("content-type")
    if not (200 <= reply.status < 300 and records.parse_media_type(content_type) == records.EVENTS):
        return None
    return exchange.StreamReader(attempt, reply.status, content_type)


def _send_attempt(session: Session, attempt: exchange.RequestAttempt, *, stream: bool) -> Flow[Reply]:
    """Send the request and return the unverified reply, or the beginning of a stream."""
    flow, telemetry = _send_with_retries(session, attempt, stream=stream), session.settings.telemetry
    if telemetry is not None:
        flow = telemetry.observe_exchange(attempt.invocation.method, attempt.resolution, flow)
    return flow


def _send_with_retries(session: Session, attempt: exchange.RequestAttempt, *, stream: bool) -> Flow[Reply]:
    invocation = attempt.invocation
    left = _RETRIES if invocation.method == "GET" or invocation.idempotency_key is not None else 0
    connect, fallbacks = attempt.resolution.connect, iter(attempt.resolution.fallbacks)
    begun = renewed = False
    while True:
        # a DPoP proof is for one request, so each attempt has its own
        send = attempt.build_request(stream=stream, at=session.settings.clock(), nonces=session.nonces)
        if send.connect is not connect:
            send = replace(send, connect=connect)
        try:
            reply = yield send
        except RedirectRefused as error:
            raise attempt.make_redirect_error() from error
        except NetError as error:
            error.endpoint = attempt.target
            begun = begun or (error.sent and not isinstance(error, ResolveError))
            # RFC 2782: after a request was sent, only GET may be repeated elsewhere. An idempotency key
            # does not help, because two servers may not share their stored answers
            is_unreachable = isinstance(error, ConnectionFailed | ResolveError)
            may_move = is_unreachable and (invocation.method == "GET" or not begun)
            fallback = next(fallbacks, None) if may_move else None
            if fallback is not None:
                connect = fallback
                continue
            if not error.retryable or not left:
                raise
            left -= 1
            yield Wait(_RETRY_SECONDS)
            continue
        assert isinstance(reply, Reply)  # noqa: S101 - drivers answer Send with Reply
        has_key = attempt.caller.dpop_key is not None
        has_nonce = has_key and session.nonces.update(send.request.origin, reply.headers)
        if has_nonce and not renewed and exchange.wants_dpop_nonce(reply):
            renewed = True  # RFC 9449 9: refused before it ran, so once more is safe
            continue
        _forget_refused(session, attempt.caller, reply)
        return reply


def _forget_refused(session: Session, caller: exchange.Caller, reply: Reply) -> None:
    """Tell the credentials that a token was refused, so that the next request has another one."""
    challenge = exchange.find_challenge(reply.headers) if reply.status == 401 else None
    refused = challenge is not None and challenge.parameters.get("error") == "invalid_token"
    if refused and caller.token is not None and session.credentials is not None:
        session.credentials.forget(caller.token)


def parse_description(result: records.Result, uri: str) -> records.Description:
    """Parse the description in a verified body. Raises ProvenanceError if it is not one of this resource."""
    if len(result.body) > _LONGEST_DESCRIPTION:
        raise _make_description_error(f"is longer than {_LONGEST_DESCRIPTION} bytes", uri)
    if records.parse_media_type(result.content_type) != records.DESCRIPTION:
        raise _make_description_error(f"does not have the media type {records.DESCRIPTION}", uri)
    members = result.json()
    if not isinstance(members, dict):
        raise _make_description_error("is not a JSON object", uri)
    if members.get("uri") != uri:
        raise _make_description_error("is of another resource", uri)
    try:
        parsed = msgspec.convert(members, _DescriptionFormat)
    except msgspec.ValidationError as error:
        raise _make_description_error(f"is invalid: {str(error)[:200]}", uri) from None
    return records.Description(**msgspec.structs.asdict(parsed))


def _make_description_error(fault: str, uri: str) -> ProvenanceError:
    return ProvenanceError(f"the description {fault}", target=uri, clause=_DESCRIPTION_CLAUSE)


class _DescriptionFormat(msgspec.Struct, frozen=True, rename={"asynchronous": "async"}):
    """The members of `application/aiip+json`."""

    uri: str
    #: required: a resource without it may have any effect
    effects: records.Effects
    title: str | None = None
    methods: tuple[str, ...] = ("GET", "POST")
    input: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    scopes: tuple[str, ...] = ()
    idempotency: bool = False
    asynchronous: bool = False
    approval: bool = False
    reversible: bool = False
