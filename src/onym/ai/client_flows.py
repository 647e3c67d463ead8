"""Client calls as generators: resolve, describe, invoke, open a stream.

`Session` holds the caller's identity and policy. The generators do no I/O; `net.run` and `net.arun` drive
them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from onym.ai.discovery.evaluation import fetch_srv_targets
from onym.ai.discovery.well_known import fetch_document, fetch_keys, find_namespace, parse_origin
from onym.ai.exchange import (
    DESCRIPTION,
    Caller,
    RequestAttempt,
    StreamReader,
    decode_problem,
    is_event_stream,
)
from onym.ai.records import (
    AnchorDocument,
    Auth,
    Description,
    Effects,
    EndpointEntry,
    Invocation,
    Level,
    Namespace,
    Resolution,
    Result,
    Source,
)
from onym.ai.replay import MemoryReplays, Replays
from onym.ai.settings import ResolverSettings
from onym.errors import (
    ConnectionFailed,
    DeniedError,
    DiscoveryError,
    NetError,
    OnymError,
    ProvenanceError,
    RedirectRefused,
    ResolveError,
    SignatureError,
)
from onym.net.messages import Reply, Wait, Work

if TYPE_CHECKING:
    from onym.ai._spans import Stage
    from onym.net.messages import Flow, Origin
    from onym.sign.keys import AuthorityKeys
    from onym.uri.ai import AIURI
    from onym.uri.secret import Secret

#: the access token for an authority, with the client id that it was given to; None where there is none
Tokens: TypeAlias = "Callable[[Resolution], tuple[Secret, str] | None]"

#: what may be invoked without being allowed by name
DEFAULT_EFFECTS: Final = frozenset({Effects.READ, Effects.WRITE})
_SESSION_CLAUSE: Final = "AIIP/HTTPS v1 3.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Who calls, and on which terms.

    `origin` is the https origin that stands for a caller without a token (a gateway has one). `tokens` gives
    the access token for an authority: it is asked anew for each, and a token goes to the service of the
    authority that it was given for and nowhere else. `allow_effects` says what an invocation may do:
    `financial` and `physical` must be named. `timeout` is seconds for one request.
    """

    settings: ResolverSettings = field(default_factory=ResolverSettings)
    origin: str | None = None
    tokens: Tokens | None = None
    allow_effects: Collection[Effects | str] = DEFAULT_EFFECTS
    replays: Replays = field(default_factory=MemoryReplays)
    timeout: float = 60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow_effects", frozenset(Effects(each) for each in self.allow_effects))

    def new_attempt(self, invocation: Invocation, resolution: Resolution) -> RequestAttempt:
        """One attempt of this invocation, with a nonce of its own.

        Raises ProvenanceError `aiip.unavailable` where its answer could not count: nothing is sent then.
        """
        self.replays.admit(resolution.anchor, now=self.settings.clock())
        return RequestAttempt(invocation, resolution, self._get_caller(resolution), self.timeout)

    def require_allowed(self, resolution: Resolution, effects: Effects, *, approval: bool = False) -> None:
        """Raises DeniedError where the authority asks for what is not at hand, or the caller allows less.

        `approval` says that somebody would have to agree first, which cannot be asked for yet.
        """
        needs = resolution.document.requirements
        target = str(resolution.uri.without_query)
        if needs.mtls or needs.dpop is Level.REQUIRED:
            raise DeniedError(
                "the authority binds access tokens to their sender (mTLS, DPoP), which is not supported yet",
                code="aiip.sender-constraint",
                target=target,
                clause=_SESSION_CLAUSE,
            )
        if needs.auth is Auth.OAUTH2 and self._get_caller(resolution).token is None:
            raise DeniedError(
                "the authority wants an access token",
                code="aiip.authentication-required",
                target=target,
                clause=_SESSION_CLAUSE,
                hint=f"get one from {', '.join(resolution.document.authorization_servers) or 'its issuer'}",
            )
        if approval:
            raise DeniedError(
                "the resource wants somebody's approval, which is not supported yet",
                code="aiip.approval-required",
                target=target,
                clause="AIIP/HTTPS v1 3.13",
            )
        if effects not in self.allow_effects:
            raise DeniedError(
                f"the resource has {effects} effects, which are not allowed here",
                target=target,
                clause="draft-sogomonian-ai-uri-scheme-01, Security Considerations",
                hint=f"allow_effects names what may be done; --allow {effects} on the command line",
            )

    def add_idempotency_key(
        self, invocation: Invocation, effects: Effects, *, keyed: bool = False
    ) -> Invocation:
        """With an idempotency key, where doing it twice would be more than doing it once (3.11).

        `keyed` says that the resource asks for one in any case.
        """
        needed = keyed or effects is not Effects.READ
        if not needed or invocation.idempotency_key is not None:
            return invocation
        return replace(invocation, idempotency_key=secrets.token_urlsafe(24))

    def make_replay_check(self, resolution: Resolution) -> Callable[[str, float], bool]:
        """Whether a receipt of this authority was there before; it is from then on."""

        def known(identity: str, until: float) -> bool:
            again = self.replays.seen(f"{resolution.anchor}\n{identity}", until, now=self.settings.clock())
            if again and self.settings.telemetry is not None:
                self.settings.telemetry.count_replay(resolution.authority, "receipt")
            return again

        return known

    def _get_caller(self, resolution: Resolution) -> Caller:
        found = self.tokens(resolution) if self.tokens else None
        if found is None:
            return Caller(origin=self.origin)
        token, client_id = found
        return Caller(token=token, client_id=client_id)


_AuthorityData: TypeAlias = (
    "tuple[AnchorDocument, AuthorityKeys, tuple[tuple[Origin, ...], tuple[Source, ...]]]"
)


def resolve_uri(uri: AIURI, settings: ResolverSettings) -> Flow[Resolution]:
    """Where `uri` leads (3.1 to 3.3). Raises AIURIError, DiscoveryError.

    Only the anchor, a registry and DNS are asked: pages and Link headers point at names, and a name is here.
    """
    flow = _resolve_target(uri, settings)
    return flow if settings.telemetry is None else settings.telemetry.observe_resolution(flow)


def _resolve_target(uri: AIURI, settings: ResolverSettings) -> Flow[Resolution]:
    target = uri.target
    speaker = _find_target_namespace(target, settings)
    asking = _discover_authority(speaker, settings)
    if settings.telemetry is not None:
        asking = settings.telemetry.observe_discovery(asking, lambda found: found[0])
    document, keys, (targets, sources) = yield from asking
    targets = _select_targets(document, targets)
    return Resolution(
        uri=target,
        authority=document.authority,
        document=replace(document, requirements=settings.apply_floor(document.requirements)),
        keys=keys,
        entry=_find_entry(document, target),
        connect=next(iter(targets), None),
        sources=sources,
        fallbacks=targets[1:],
    )


def _discover_authority(speaker: Namespace, settings: ResolverSettings) -> Flow[_AuthorityData]:
    """The anchor's document and keys, held against what it said before, and what DNS says."""
    document = yield from fetch_document(speaker.label, settings, anchor=speaker.anchor, only=speaker.keys)
    keys = yield from fetch_keys(document, settings, only=speaker.keys)
    _require_keys(document, keys)
    settings.pins.check(document.speaker, document, keys.kids, settings.clock())
    return document, keys, (yield from fetch_srv_targets(document, settings))


def renew_keys(resolution: Resolution, settings: ResolverSettings) -> Flow[AuthorityKeys]:
    """The authority's keys, asked for once more because one was missing; at most once a minute (3.9)."""
    flow = _refetch_keys(resolution, settings)
    return flow if settings.telemetry is None else settings.telemetry.observe_key_renewal(resolution, flow)


def _refetch_keys(resolution: Resolution, settings: ResolverSettings) -> Flow[AuthorityKeys]:
    speaker = _find_target_namespace(resolution.uri, settings)
    # as published, and by now: that of the resolution demands what the caller does, and may be an old one
    document = yield from fetch_document(speaker.label, settings, anchor=speaker.anchor, only=speaker.keys)
    keys = yield from fetch_keys(document, settings, only=speaker.keys, renew=True)
    settings.pins.check(document.speaker, document, keys.kids, settings.clock())
    return keys


def _find_target_namespace(target: AIURI, settings: ResolverSettings) -> Namespace:
    """Who speaks for a canonical URI. Raises DiscoveryError where nobody is known."""
    if target.authority_text is not None:
        return find_namespace(target.authority_text, settings)
    found = settings.find_context(target.path)
    if found is None:
        raise DiscoveryError(
            "the URI has no authority, and nobody was named who speaks for it here",
            code="aiip.unknown-authority",
            target=str(target.without_query),
            clause="AIIP/HTTPS v1 3.1",
            hint="name the authority (ai://host/path), or configure a context",
        )
    return replace(found, label="_")


def _require_keys(document: AnchorDocument, keys: AuthorityKeys) -> None:
    if not keys.kids:
        raise DiscoveryError(
            f"{document.authority} publishes no key that can verify its results",
            code="aiip.discovery-conflict",
            clause="AIIP/HTTPS v1 3.9",
            hint="; ".join(keys.ignored[:3]) or None,
        )


def _find_entry(document: AnchorDocument, target: AIURI) -> EndpointEntry | None:
    """The resource's row in the anchor document."""
    text = str(target.without_query)
    return next((each for each in document.endpoints if each.uri == text), None)


def _select_targets(document: AnchorDocument, targets: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """DNS speaks for the authority's own host: a service elsewhere is reached where it is."""
    same = parse_origin(document.service) == parse_origin(document.anchor)
    return targets if same else ()


#: how often a request is sent again whose loss does no harm
_RETRIES: Final = 1
_RETRY_SECONDS: Final = 0.2
#: octets of a description: its schemas are drawn as forms, and told to other protocols
_LONGEST_DESCRIPTION: Final = 256 * 1024
_DESCRIPTION_CLAUSE: Final = "AIIP/HTTPS v1 3.6"


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer that has begun. `reader` reads it if it is a stream; `result` is there if it came whole."""

    reply: Reply = field(repr=False)
    question: RequestAttempt
    reader: StreamReader | None
    result: Result | None
    #: the call that this is a part of, where somebody observes it
    call: Stage | None = field(default=None, repr=False)

    def verify(self, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]) -> Result:
        """The result, once all of it is there. Raises as `Question.read`."""
        if self.reader is None:
            return self.question.verify_reply(self.reply, keys, at, seen)
        receipt = self.reader.verify_end(keys, at, seen)
        return self.question.build_result(self.reply, receipt, self.reader.token or "")


def describe_resource(session: Session, resolution: Resolution) -> Flow[tuple[Description, Result]]:
    """What the resource is, as its endpoint says and signs."""
    uri = resolution.uri.without_query
    asked = Invocation(uri=uri, method="GET", accept=DESCRIPTION)
    result = yield from run_exchange(session, asked, replace(resolution, uri=uri))
    if result.status != 200:
        raise decode_problem(result.status, result.content_type, result.body, str(uri), signed=True)
    return parse_description(result, str(uri)), result


def invoke_resource(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[Result]:
    """The verified result of an invocation.

    Raises DeniedError, ProvenanceError, InvocationError, NetError.
    """
    ready = yield from _prepare_invocation(session, invocation, resolution)
    result = yield from run_exchange(session, ready, resolution)
    _raise_for_status(result)
    return result


def _raise_for_status(result: Result) -> None:
    """Raises InvocationError for a refusal that the endpoint signed."""
    if result.status >= 400:
        raise decode_problem(
            result.status, result.content_type, result.body, result.receipt.subject, signed=True
        )


def _prepare_invocation(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[Invocation]:
    """The invocation with all that it needs, if it is allowed. Unknown effects are asked for first."""
    known: EndpointEntry | Description | None = resolution.entry
    if known is None:
        session.require_allowed(resolution, Effects.READ)
        known, _ = yield from describe_resource(session, resolution)
    session.require_allowed(resolution, known.effects, approval=known.approval)
    return session.add_idempotency_key(invocation, known.effects, keyed=known.idempotency)


def open_stream(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[PendingAnswer]:
    """Begin an invocation whose events are wanted as they come: provisional, until the last proves them.

    Raises as `invoke_resource`.
    """
    ready = yield from _prepare_invocation(session, invocation, resolution)
    opened = yield from begin_exchange(session, ready, resolution)
    if opened.result is not None:
        _raise_for_status(opened.result)
    return opened


def run_exchange(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[Result]:
    """Send one request and verify its answer, whatever its status. No policy of the caller is asked.

    A stream of events is read to its end first.
    """
    question = session.new_attempt(invocation, resolution)
    reply = yield from _send_attempt(session, question, stream=False)
    reader = _make_stream_reader(question, reply)
    if reader is not None:
        reader.feed(reply.body)
    return (yield from verify_answer(PendingAnswer(reply, question, reader, None), session))


def begin_exchange(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[PendingAnswer]:
    """`open_stream` without asking the caller's policy. Only a 2xx answer is left open."""
    question = session.new_attempt(invocation, resolution)
    reply = yield from _send_attempt(session, question, stream=True)
    opened = PendingAnswer(reply, question, _make_stream_reader(question, reply), None)
    if reply.stream is None:
        return replace(opened, result=(yield from verify_answer(opened, session)))
    return opened


def verify_answer(opened: PendingAnswer, session: Session) -> Flow[Result]:
    """The result of an answer that has come whole. Keys that may be too old are fetched once more."""
    telemetry = session.settings.telemetry
    flow = _verify_with_renewal(opened, session)
    return flow if telemetry is None else telemetry.observe_verification(opened, flow)


def _verify_with_renewal(opened: PendingAnswer, session: Session) -> Flow[Result]:
    try:
        return (yield from _run_verification(opened, session, opened.question.resolution.keys))
    except SignatureError:
        keys = yield from renew_keys(opened.question.resolution, session.settings)
        try:
            return (yield from _run_verification(opened, session, keys))
        except SignatureError as error:
            raise _make_unknown_key_error(opened.question) from error


def _run_verification(opened: PendingAnswer, session: Session, keys: AuthorityKeys) -> Flow[Result]:
    """What `opened` reads; coroutines do not wait for the disk of a replay store."""
    seen = session.make_replay_check(opened.question.resolution)

    def read() -> Result | OnymError:
        try:
            return opened.verify(keys, session.settings.clock(), seen)
        except OnymError as error:
            return error

    found: Result | OnymError = (yield Work(read)) if session.replays.waits else read()
    if isinstance(found, OnymError):
        raise found
    return found


def _make_stream_reader(question: RequestAttempt, reply: Reply) -> StreamReader | None:
    """What reads this reply, if it is a stream of events."""
    content_type = reply.headers.get("content-type")
    if not (200 <= reply.status < 300 and is_event_stream(content_type)):
        return None
    return StreamReader(question, reply.status, content_type)


def _make_unknown_key_error(question: RequestAttempt) -> ProvenanceError:
    return ProvenanceError(
        "the receipt is signed with a key that the authority does not publish",
        target=question.target,
        clause="AIIP/HTTPS v1 3.8 step 4",
    )


def _send_attempt(session: Session, question: RequestAttempt, *, stream: bool) -> Flow[Reply]:
    """The answer to a question, unproved; of a stream its beginning."""
    telemetry = session.settings.telemetry
    flow = _send_with_retries(session, question, stream=stream)
    return flow if telemetry is None else telemetry.observe_exchange(question, flow)


def _send_with_retries(session: Session, question: RequestAttempt, *, stream: bool) -> Flow[Reply]:
    asked = question.invocation
    left = _RETRIES if asked.method == "GET" or asked.idempotency_key is not None else 0
    send, others = question.build_request(stream=stream), iter(question.resolution.fallbacks)
    begun = False
    while True:
        try:
            reply = yield send
        except RedirectRefused as error:
            raise question.make_redirect_error() from error
        except NetError as error:
            error.endpoint = question.target
            begun = begun or _may_have_arrived(error)
            other = next(others, None) if _can_try_fallback(asked, error, begun=begun) else None
            if other is not None:
                send = replace(send, connect=other)
                continue
            if not error.retryable or not left:
                raise
            left -= 1
            yield Wait(_RETRY_SECONDS)
            continue
        assert isinstance(reply, Reply)  # noqa: S101 - drivers answer Send with Reply
        return reply


def _can_try_fallback(asked: Invocation, error: NetError, *, begun: bool) -> bool:
    """May another target of the service be asked (RFC 2782)? Only where nothing was sent, or only read.

    `begun` says whether anything was sent by now, in whichever try. A key does not help: nobody knows whether
    two machines share what they keep under it.
    """
    return isinstance(error, ConnectionFailed | ResolveError) and (asked.method == "GET" or not begun)


def _may_have_arrived(error: NetError) -> bool:
    """May the target have got the request? Of an error that does not say, the worst is thought."""
    return error.sent and not isinstance(error, ResolveError)


def parse_description(result: Result, uri: str) -> Description:
    """The description that a verified body is. Raises ProvenanceError for another resource's, or for none."""
    if len(result.body) > _LONGEST_DESCRIPTION:
        raise ProvenanceError(
            f"the description is longer than {_LONGEST_DESCRIPTION} octets",
            target=uri,
            clause=_DESCRIPTION_CLAUSE,
        )
    if (result.content_type or "").partition(";")[0].strip().lower() != DESCRIPTION:
        raise ProvenanceError(f"the description is not {DESCRIPTION}", target=uri, clause=_DESCRIPTION_CLAUSE)
    found = _parse_json_object(result, uri)
    if found.get("uri") != uri:
        raise ProvenanceError(
            "the description is of another resource", target=uri, clause=_DESCRIPTION_CLAUSE
        )
    try:
        read = msgspec.convert(found, _DescriptionFormat)
    except msgspec.ValidationError as error:
        raise ProvenanceError(
            f"the description does not follow its form: {str(error)[:200]}",
            target=uri,
            clause=_DESCRIPTION_CLAUSE,
        ) from None
    return Description(
        uri=uri,
        title=read.title,
        methods=read.methods,
        input=read.input,
        output=read.output,
        effects=read.effects,
        scopes=read.scopes,
        idempotency=read.idempotency,
        asynchronous=read.asynchronous,
        approval=read.approval,
    )


class _DescriptionFormat(msgspec.Struct, frozen=True, rename={"asynchronous": "async"}):
    """`application/aiip+json` as it is written."""

    uri: str
    #: a resource that does not say what it does is not believed to do nothing
    effects: Effects
    title: str | None = None
    methods: tuple[str, ...] = ("GET", "POST")
    input: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    scopes: tuple[str, ...] = ()
    idempotency: bool = False
    asynchronous: bool = False
    approval: bool = False


def _parse_json_object(result: Result, uri: str) -> dict[str, Any]:
    found = result.json()
    if not isinstance(found, dict):
        raise ProvenanceError("the description is no JSON object", target=uri, clause=_DESCRIPTION_CLAUSE)
    return found
