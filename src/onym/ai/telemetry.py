"""OpenTelemetry spans and metrics for ai:// calls (AIIP/HTTPS v1 3.16). Off by default.

    AIClient(telemetry=Telemetry())    Endpoint("factory.example", telemetry=Telemetry())

`ONYM_TELEMETRY=1` turns telemetry on for the global providers. It needs the extra `telemetry`. Spans and
metrics contain no queries, bodies, tokens or receipts, and paths only as a keyed hash. This module imports
without OpenTelemetry.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from onym import __version__
from onym._lazy import make_missing_extra_error, make_telemetry
from onym.ai.records import AnchorDocument, Resolution, Result, hash_path
from onym.errors import OnymError
from onym.net.messages import Flow, Reply
from onym.uri.ai import AIURI

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from onym.ai._spans import Stage

__all__ = ["Telemetry", "from_environment"]

#: the stage of a call that is not observed
NULL_STAGE: Final = nullcontext()


def resolve_telemetry(telemetry: Telemetry | None, *, path_key: bytes | None = None) -> Telemetry | None:
    """Return `telemetry`, or without it what `from_environment` returns for this `path_key`."""
    return from_environment(path_key=path_key) if telemetry is None else telemetry


def observe_call(telemetry: Telemetry | None, method: str) -> AbstractContextManager[object]:
    """Observe a client's call while the block runs."""
    return NULL_STAGE if telemetry is None else telemetry.observe_call(method)


def observe_stream_call(telemetry: Telemetry | None, method: str) -> AbstractContextManager[Stage | None]:
    """Observe a call that goes on after the block: its stream ends the stage."""
    return NULL_STAGE if telemetry is None else telemetry.observe_call(method).activate()


_SCOPE: Final = "onym"
#: the default key for path hashes: hashes from one process can be compared, those of two cannot
_PROCESS_KEY: Final = secrets.token_bytes(32)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

T = TypeVar("T")


class Telemetry:
    """Reports calls of clients, endpoints and gateways to OpenTelemetry. They may share one object.

    The providers default to the global ones. Paths are reported as a hash with the key `path_key`; the
    default key is random and the same for the whole process. Raises MissingExtraError without
    opentelemetry-api.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        path_key: bytes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise make_missing_extra_error(
                "opentelemetry-api", "telemetry", code="telemetry.missing-extra"
            ) from None
        from onym.ai import _spans  # late: it needs opentelemetry-api

        self._spans = _spans
        self._key = path_key or _PROCESS_KEY
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        self._instruments = _spans.Instruments(metrics.get_meter(_SCOPE, __version__, meter_provider), clock)

    # -- clients: every method returns the flow that it was given, under observation -------------------

    def observe_call(self, method: str) -> Stage:
        """Begin the stage of a client's call, from the name to the verified result."""
        return self._begin_stage("invoke", method=method)

    def observe_resolution(self, flow: Flow[Resolution]) -> Flow[Resolution]:
        """Observe the resolution of a name. The call that needs it gets the resource's attributes too."""
        stage = self._begin_stage("resolve")
        return stage.watch(flow, lambda resolution: stage.set_resource(self._get_attributes(resolution)))

    def observe_discovery(
        self,
        flow: Flow[T],
        get_document: Callable[[T], AnchorDocument | None],
        get_refusal: Callable[[T], OnymError | None] = lambda _: None,
    ) -> Flow[T]:
        """Observe the requests to the anchor and to DNS. The callables read the flow's result.

        `get_refusal` is for a discovery that returns its failure instead of raising it.
        """
        stage = self._begin_stage("discover")

        def report(result: T) -> None:
            document, refusal = get_document(result), get_refusal(result)
            if refusal is not None:
                stage.record_refusal(refusal, failed=True)
            if document is not None:
                stage.set_attributes({"aiip.authority": document.authority})
            stage.set_attributes({"aiip.cached": not stage.asked})

        return stage.watch(flow, report)

    def observe_exchange(self, method: str, resolution: Resolution, flow: Flow[Reply]) -> Flow[Reply]:
        """Observe a request until its response has arrived, or until a stream begins."""
        attributes = self._get_attributes(resolution)
        stage = self._begin_stage("exchange", kind="client", method=method, attributes=attributes)
        return stage.watch(flow, lambda reply: stage.set_status(reply.status), self._spans.inject_traceparent)

    def observe_verification(
        self, resolution: Resolution, call: Stage | None, flow: Flow[Result]
    ) -> Flow[Result]:
        """Observe the verification of a complete response. `call` is the stage that the stream belongs to."""
        parent, attributes = None if call is None else call.context, self._get_attributes(resolution)
        return self._begin_stage("verify", attributes=attributes, parent=parent).watch(flow)

    def observe_key_renewal(self, resolution: Resolution, flow: Flow[T]) -> Flow[T]:
        """Count the renewal of a key set if the flow sends a request."""
        stage = self._spans.current_stage()
        before = 0 if stage is None else stage.asked
        try:
            return (yield from flow)
        finally:
            if stage is not None and stage.asked > before:
                stage.add_event("aiip.keys.refetch", {})
                self._instruments.count_key_refetch(resolution.authority)

    def count_replay(self, authority: str, kind: Literal["receipt", "idempotency"]) -> None:
        """Count a receipt that was seen before, or a stored answer that was sent again for its key."""
        self._instruments.count_replay(authority, kind)

    def count_refused_proof(self, authority: str, reason: str) -> None:
        """Count a request whose sender did not prove the key of its token.

        `reason` is one of few words. "nonce" means that the caller is only asked for a proof with a new
        nonce, and "replayed" that the proof was used before.
        """
        self._instruments.count_refused_proof(authority, reason)

    def count_local_rate(self) -> None:
        """Count a rate limit of a gateway that was decided without the store that all machines share."""
        self._instruments.count_local_rate()

    # -- servers -------------------------------------------------------------------------------------

    def observe_request(
        self,
        role: Literal["endpoint", "gateway"],
        method: str,
        traceparent: str | None,
        *,
        authority: str | None = None,
        stage: Literal["exchange", "signin", "approve", "task"] = "exchange",
        step: str | None = None,
    ) -> Stage:
        """Begin the stage of a request to a server, in the trace that the caller names.

        `step` is one of few words that tell what the request is for.
        """
        attributes, parent = _get_authority_attributes(authority), self._spans.extract_parent(traceparent)
        if step is not None:
            attributes["aiip.step"] = step
        return self._begin_stage(
            stage, role=role, kind="server", method=method, attributes=attributes, parent=parent
        )

    def observe_grant(self, route: str, flow: Flow[T]) -> Flow[T]:
        """Observe how a gateway gets the token of a call, by one of its routes."""
        stage = self._begin_stage("token", role="gateway", attributes={"aiip.route": route})
        return stage.watch(flow, lambda _: stage.set_attributes({"aiip.cached": not stage.asked}))

    def count_approval(self, step: str) -> None:
        """Count a step of an approval: "asked", "shown", "spent", or the decision."""
        self._instruments.count_approval(step)

    def count_task(self, authority: str, state: str, error: str | None = None) -> None:
        """Count a task that has reached this state; `error` is the code of one that could not go on."""
        self._instruments.count_task(authority, state, error)

    def observe_step(self, name: Literal["invoke", "verify"], authority: str) -> Stage:
        """Begin the stage of an endpoint's step: its function runs, or the caller's token is verified."""
        return self._begin_stage(name, role="endpoint", attributes=_get_authority_attributes(authority))

    def set_resource(self, uri: AIURI) -> None:
        """Report the resource of the request that is being served."""
        stage = self._spans.current_stage()
        if stage is not None:
            stage.set_attributes({"aiip.path_hash": self.path_hash(uri)})

    def record_refusal(self, error: BaseException) -> None:
        """Report the error that the request being served is answered with."""
        stage = self._spans.current_stage()
        if stage is not None:
            stage.record_refusal(error)

    # -- both ----------------------------------------------------------------------------------------

    def path_hash(self, uri: AIURI) -> str:
        """Return the keyed hash of the URI without its query: 32 hexadecimal digits of HMAC-SHA256.

        The gateway's audit log contains the same hash if it has the same key.
        """
        return hash_path(self._key, str(uri.without_query))

    def _get_attributes(self, resolution: Resolution) -> dict[str, str]:
        return {"aiip.authority": resolution.authority, "aiip.path_hash": self.path_hash(resolution.uri)}

    def _begin_stage(
        self,
        name: str,
        *,
        role: str = "client",
        kind: Literal["internal", "client", "server"] = "internal",
        method: str | None = None,
        attributes: Mapping[str, str] = MappingProxyType({}),
        parent: Context | None = None,
    ) -> Stage:
        attributes = {"aiip.role": role, **attributes}
        if method is not None:
            attributes["aiip.method"] = method if method in _METHODS else "_OTHER"
        return self._spans.begin_stage(self._tracer, self._instruments, name, kind, attributes, parent)


def _get_authority_attributes(authority: str | None) -> dict[str, str]:
    return {} if authority is None else {"aiip.authority": authority}


def from_environment(
    environ: Mapping[str, str] | None = None, *, path_key: bytes | None = None
) -> Telemetry | None:
    """Return telemetry for the global providers if `ONYM_TELEMETRY` is 1 or true, else None."""
    return make_telemetry(partial(Telemetry, path_key=path_key), os.environ if environ is None else environ)
