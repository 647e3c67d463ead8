"""Calls as generators, driven by `net.run` and `net.arun`: describe, invoke, open a stream."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onym.ai.exchange import DESCRIPTION, Question, is_events, problem_of
from onym.ai.records import Description, Effects, EndpointEntry, Invocation, Resolution, Result
from onym.ai.resolver import renew_keys
from onym.ai.streams import StreamReader
from onym.errors import (
    ConnectionFailed,
    NetError,
    OnymError,
    ProvenanceError,
    RedirectRefused,
    ResolveError,
    SignatureError,
)
from onym.net.messages import Reply, Wait, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from onym.ai.session import Session
    from onym.ai.telemetry._stage import Stage
    from onym.net.messages import Flow
    from onym.sign.keys import AuthorityKeys

__all__ = ["Opened", "begin", "describe", "exchange", "invoke", "open_stream", "read_description", "settle"]

#: how often a request is sent again whose loss does no harm
_RETRIES: Final = 1
_RETRY_SECONDS: Final = 0.2
#: octets of a description: its schemas are drawn as forms, and told to other protocols
_LONGEST_DESCRIPTION: Final = 256 * 1024
_CLAUSE: Final = "AIIP/HTTPS v1 3.6"


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer that has begun. `reader` reads it if it is a stream; `result` is there if it came whole."""

    reply: Reply = field(repr=False)
    question: Question
    reader: StreamReader | None
    result: Result | None
    #: the call that this is a part of, where somebody observes it
    call: Stage | None = field(default=None, repr=False)

    def read(self, keys: AuthorityKeys, at: float, seen: Callable[[str, float], bool]) -> Result:
        """The result, once all of it is there. Raises as `Question.read`."""
        if self.reader is None:
            return self.question.read(self.reply, keys, at, seen)
        receipt = self.reader.end(keys, at, seen)
        return self.question.result(self.reply, receipt, self.reader.token or "")


def describe(session: Session, resolution: Resolution) -> Flow[tuple[Description, Result]]:
    """What the resource is, as its endpoint says and signs."""
    uri = resolution.uri.without_query
    asked = Invocation(uri=uri, method="GET", accept=DESCRIPTION)
    result = yield from exchange(session, asked, replace(resolution, uri=uri))
    if result.status != 200:
        raise problem_of(result.status, result.content_type, result.body, str(uri), signed=True)
    return read_description(result, str(uri)), result


def invoke(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[Result]:
    """The verified result of an invocation.

    Raises DeniedError, ProvenanceError, InvocationError, NetError.
    """
    ready = yield from _ready(session, invocation, resolution)
    result = yield from exchange(session, ready, resolution)
    _check_status(result)
    return result


def _check_status(result: Result) -> None:
    """Raises InvocationError for a refusal that the endpoint signed."""
    if result.status >= 400:
        raise problem_of(result.status, result.content_type, result.body, result.receipt.subject, signed=True)


def _ready(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[Invocation]:
    """The invocation with all that it needs, if it is allowed. Unknown effects are asked for first."""
    known: EndpointEntry | Description | None = resolution.entry
    if known is None:
        session.admit(resolution, Effects.READ)
        known, _ = yield from describe(session, resolution)
    session.admit(resolution, known.effects, approval=known.approval)
    return session.prepare(invocation, known.effects, keyed=known.idempotency)


def open_stream(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[Opened]:
    """Begin an invocation whose events are wanted as they come: provisional, until the last proves them.

    Raises as `invoke`.
    """
    ready = yield from _ready(session, invocation, resolution)
    opened = yield from begin(session, ready, resolution)
    if opened.result is not None:
        _check_status(opened.result)
    return opened


def exchange(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[Result]:
    """Send one request and verify its answer, whatever its status. No policy of the caller is asked.

    A stream of events is read to its end first.
    """
    question = session.question(invocation, resolution)
    reply = yield from _asked(session, question, stream=False)
    reader = _reader(question, reply)
    if reader is not None:
        reader.feed(reply.body)
    return (yield from settle(Opened(reply, question, reader, None), session))


def begin(session: Session, invocation: Invocation, resolution: Resolution) -> Flow[Opened]:
    """`open_stream` without asking the caller's policy. Only a 2xx answer is left open."""
    question = session.question(invocation, resolution)
    reply = yield from _asked(session, question, stream=True)
    opened = Opened(reply, question, _reader(question, reply), None)
    if reply.stream is None:
        return replace(opened, result=(yield from settle(opened, session)))
    return opened


def settle(opened: Opened, session: Session) -> Flow[Result]:
    """The result of an answer that has come whole. Keys that may be too old are fetched once more."""
    telemetry = session.settings.telemetry
    flow = _settled(opened, session)
    return flow if telemetry is None else telemetry.verifying(opened, flow)


def _settled(opened: Opened, session: Session) -> Flow[Result]:
    try:
        return (yield from _read(opened, session, opened.question.resolution.keys))
    except SignatureError:
        keys = yield from renew_keys(opened.question.resolution, session.settings)
        try:
            return (yield from _read(opened, session, keys))
        except SignatureError as error:
            raise _unknown_key(opened.question) from error


def _read(opened: Opened, session: Session, keys: AuthorityKeys) -> Flow[Result]:
    """What `opened` reads; coroutines do not wait for the disk of a replay store."""
    seen = session.seen(opened.question.resolution)

    def read() -> Result | OnymError:
        try:
            return opened.read(keys, session.settings.clock(), seen)
        except OnymError as error:
            return error

    found: Result | OnymError = (yield Work(read)) if session.replays.waits else read()
    if isinstance(found, OnymError):
        raise found
    return found


def _reader(question: Question, reply: Reply) -> StreamReader | None:
    """What reads this reply, if it is a stream of events."""
    content_type = reply.headers.get("content-type")
    if not (200 <= reply.status < 300 and is_events(content_type)):
        return None
    return StreamReader(question, reply.status, content_type)


def _unknown_key(question: Question) -> ProvenanceError:
    return ProvenanceError(
        "the receipt is signed with a key that the authority does not publish",
        target=question.target,
        clause="AIIP/HTTPS v1 3.8 step 4",
    )


def _asked(session: Session, question: Question, *, stream: bool) -> Flow[Reply]:
    """The answer to a question, unproved; of a stream its beginning."""
    telemetry = session.settings.telemetry
    flow = _sent(session, question, stream=stream)
    return flow if telemetry is None else telemetry.exchanging(question, flow)


def _sent(session: Session, question: Question, *, stream: bool) -> Flow[Reply]:
    asked = question.invocation
    left = _RETRIES if asked.method == "GET" or asked.idempotency_key is not None else 0
    send, others = question.send(stream=stream), iter(question.resolution.fallbacks)
    begun = False
    while True:
        try:
            reply = yield send
        except RedirectRefused as error:
            raise question.redirected() from error
        except NetError as error:
            error.endpoint = question.target
            begun = begun or _may_have_come(error)
            other = next(others, None) if _may_go_elsewhere(asked, error, begun=begun) else None
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


def _may_go_elsewhere(asked: Invocation, error: NetError, *, begun: bool) -> bool:
    """May another target of the service be asked (RFC 2782)? Only where nothing was sent, or only read.

    `begun` says whether anything was sent by now, in whichever try. A key does not help: nobody knows whether
    two machines share what they keep under it.
    """
    return isinstance(error, ConnectionFailed | ResolveError) and (asked.method == "GET" or not begun)


def _may_have_come(error: NetError) -> bool:
    """May the target have got the request? Of an error that does not say, the worst is thought."""
    return error.sent and not isinstance(error, ResolveError)


def read_description(result: Result, uri: str) -> Description:
    """The description that a verified body is. Raises ProvenanceError for another resource's, or for none."""
    if len(result.body) > _LONGEST_DESCRIPTION:
        raise ProvenanceError(
            f"the description is longer than {_LONGEST_DESCRIPTION} octets", target=uri, clause=_CLAUSE
        )
    if (result.content_type or "").partition(";")[0].strip().lower() != DESCRIPTION:
        raise ProvenanceError(f"the description is not {DESCRIPTION}", target=uri, clause=_CLAUSE)
    found = _members(result, uri)
    if found.get("uri") != uri:
        raise ProvenanceError("the description is of another resource", target=uri, clause=_CLAUSE)
    try:
        read = msgspec.convert(found, _Wire)
    except msgspec.ValidationError as error:
        raise ProvenanceError(
            f"the description does not follow its form: {str(error)[:200]}",
            target=uri,
            clause=_CLAUSE,
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


class _Wire(msgspec.Struct, frozen=True, rename={"asynchronous": "async"}):
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


def _members(result: Result, uri: str) -> dict[str, Any]:
    found = result.json()
    if not isinstance(found, dict):
        raise ProvenanceError("the description is no JSON object", target=uri, clause=_CLAUSE)
    return found
