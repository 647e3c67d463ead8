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
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from onym._version import __version__
from onym.errors import MissingExtraError, OnymWarning

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from onym.ai._spans import Attributes, Stage
    from onym.ai.client_flows import PendingAnswer
    from onym.ai.discovery.evaluation import Discovery
    from onym.ai.exchange import RequestAttempt
    from onym.ai.records import AnchorDocument, Resolution, Result
    from onym.ai.settings import ResolverSettings
    from onym.net.messages import Flow, Reply
    from onym.uri.ai import AIURI

__all__ = ["VARIABLE", "Telemetry", "from_environment"]

#: stands for a stage where nobody observes
NULL_STAGE: Final = nullcontext()


def resolve_telemetry(telemetry: Telemetry | None, *, path_key: bytes | None = None) -> Telemetry | None:
    """The telemetry that is given, else what `ONYM_TELEMETRY=1` asks for, which hashes with `path_key`."""
    if telemetry is None and os.environ.get("ONYM_TELEMETRY"):
        return from_environment(path_key=path_key)
    return telemetry


def add_telemetry(settings: ResolverSettings, telemetry: Telemetry | None) -> ResolverSettings:
    """The settings with their telemetry, unless they have one and none is given."""
    if telemetry is None and settings.telemetry is not None:
        return settings
    found = resolve_telemetry(telemetry)
    return settings if found is None else replace(settings, telemetry=found)


def observe_call(telemetry: Telemetry | None, method: str) -> AbstractContextManager[object]:
    """What observes a client's call in this block."""
    return NULL_STAGE if telemetry is None else telemetry.observe_call(method)


def observe_stream_call(telemetry: Telemetry | None, method: str) -> AbstractContextManager[Stage | None]:
    """The same for a call that is not over at the end of the block: the rest is its stream's."""
    return NULL_STAGE if telemetry is None else telemetry.observe_call(method).activate()


def attach_call(opened: PendingAnswer, call: Stage | None) -> PendingAnswer:
    """What was opened, as a part of the call; that is over where the answer came whole."""
    if call is None:
        return opened
    if opened.result is not None:
        call.set_status(opened.result.status)  # a refusal: what else came whole is read like a stream
        call.end()
    return replace(opened, call=call)


#: set to 1, every client, endpoint and gateway reports to the global providers
VARIABLE: Final = "ONYM_TELEMETRY"

_ON: Final = frozenset({"1", "true"})
_SCOPE: Final = "onym"
#: hashes paths where no key is given: what one process reports can be compared, and nothing beyond
_PROCESS_KEY: Final = secrets.token_bytes(32)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

T = TypeVar("T")


class Telemetry:
    """Reports what clients, endpoints and gateways do to OpenTelemetry. They may share one.

    The providers default to the global ones. `path_key` is the key of the hash that stands for a path; by
    default it is random, and the same for all of a process. Raises MissingExtraError without
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
            raise MissingExtraError(
                "telemetry needs opentelemetry-api, which is not installed",
                code="telemetry.missing-extra",
                command="pip install 'onym[telemetry]'",
            ) from None
        from onym.ai import _spans  # late: they need opentelemetry-api
        from onym.ai._spans import Instruments

        self._spans = _spans
        self._key = path_key or _PROCESS_KEY
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        self._instruments = Instruments(metrics.get_meter(_SCOPE, __version__, meter_provider), clock)

    # -- clients: each gives the same flow, under observation ----------------------------------------

    def observe_call(self, method: str) -> Stage:
        """A call of a client, from the name to the verified result."""
        return self._begin_stage("invoke", method=method)

    def observe_resolution(self, flow: Flow[Resolution]) -> Flow[Resolution]:
        """The resolution of one name. Whatever it is a part of learns whose name it is."""
        stage = self._begin_stage("resolve")

        def found(resolution: Resolution) -> None:
            stage.set_resource(self._get_attributes(resolution))

        return stage.watch(flow, found)

    def observe_discovery(self, flow: Flow[T], document: Callable[[T], AnchorDocument | None]) -> Flow[T]:
        """What is asked of the anchor and of DNS; `document` is what the anchor's said, of the outcome."""
        stage = self._begin_stage("discover")

        def found(result: T) -> None:
            said = document(result)
            if said is not None:
                stage.set_attributes({"aiip.authority": said.authority})
            stage.set_attributes({"aiip.cached": not stage.asked})

        return stage.watch(flow, found)

    def observe_explanation(self, flow: Flow[Discovery]) -> Flow[Discovery]:
        """A discovery by all sources, which tells its failure and does not raise it."""

        def document(found: Discovery) -> AnchorDocument | None:
            stage = self._spans.current_stage()
            if found.refusal is not None and stage is not None:
                stage.record_refusal(found.refusal, failed=True)
            return found.document

        return self.observe_discovery(flow, document)

    def observe_exchange(self, question: RequestAttempt, flow: Flow[Reply]) -> Flow[Reply]:
        """A request, until its answer is there; of a stream, until it begins."""
        stage = self._begin_stage(
            "exchange",
            kind="client",
            method=question.invocation.method,
            said=self._get_attributes(question.resolution),
        )

        def found(reply: Reply) -> None:
            stage.set_status(reply.status)

        return stage.watch(flow, found, self._spans.inject_traceparent)

    def observe_verification(self, opened: PendingAnswer, flow: Flow[Result]) -> Flow[Result]:
        """The proof of an answer that has come whole."""
        said = self._get_attributes(opened.question.resolution)
        where = None if opened.call is None else opened.call.context
        return self._begin_stage("verify", said=said, where=where).watch(flow)

    def observe_key_renewal(self, resolution: Resolution, flow: Flow[T]) -> Flow[T]:
        """Keys that may be too old: counted, where they are asked for."""
        stage = self._spans.current_stage()
        before = 0 if stage is None else stage.asked
        try:
            return (yield from flow)
        finally:
            if stage is not None and stage.asked > before:
                stage.add_event("aiip.keys.refetch", {})
                self._instruments.count_key_refetch(resolution.authority)

    def count_replay(self, authority: str, kind: Literal["receipt", "idempotency"]) -> None:
        """A receipt that was seen before, or an answer that was given again under its key."""
        self._instruments.count_replay(authority, kind)

    # -- servers -------------------------------------------------------------------------------------

    def observe_request(
        self,
        role: Literal["endpoint", "gateway"],
        method: str,
        traceparent: str | None,
        *,
        authority: str | None = None,
    ) -> Stage:
        """A request to a server, in the trace of whoever sent it."""
        return self._begin_stage(
            "exchange",
            role=role,
            kind="server",
            method=method,
            said=_get_authority_attributes(authority),
            where=self._spans.extract_parent(traceparent),
        )

    def observe_step(self, name: Literal["invoke", "verify"], authority: str) -> Stage:
        """A step of an endpoint: its function runs, or the caller's token is verified."""
        return self._begin_stage(name, role="endpoint", said=_get_authority_attributes(authority))

    def set_resource(self, uri: AIURI) -> None:
        """The request that is being served is for this resource."""
        stage = self._spans.current_stage()
        if stage is not None:
            stage.set_attributes({"aiip.path_hash": self.path_hash(uri)})

    def record_refusal(self, error: BaseException) -> None:
        """The request that is being served is answered with this problem."""
        stage = self._spans.current_stage()
        if stage is not None:
            stage.record_refusal(error)

    # -- what they share -----------------------------------------------------------------------------

    def path_hash(self, uri: AIURI) -> str:
        """What stands for the URI without its query: HMAC-SHA256 in hexadecimal, the first 32 digits.

        It is that of the gateway's audit log, under the same key.
        """
        from onym.ai.gateway.audit import hash_path

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
        said: Mapping[str, str] = MappingProxyType({}),
        where: Context | None = None,
    ) -> Stage:
        attributes: Attributes = {"aiip.role": role, **said}
        if method is not None:
            attributes["aiip.method"] = method if method in _METHODS else "_OTHER"
        return self._spans.begin_stage(self._tracer, self._instruments, name, kind, attributes, where)


def _get_authority_attributes(authority: str | None) -> dict[str, str]:
    return {} if authority is None else {"aiip.authority": authority}


def from_environment(
    environ: Mapping[str, str] | None = None, *, path_key: bytes | None = None
) -> Telemetry | None:
    """The telemetry that `ONYM_TELEMETRY=1` asks for, None where it does not."""
    environ = os.environ if environ is None else environ
    if environ.get(VARIABLE, "").strip().lower() not in _ON:
        return None
    try:
        return Telemetry(path_key=path_key)
    except MissingExtraError as error:
        warnings.warn(f"{VARIABLE} is set, and {error}: {error.command}", OnymWarning, stacklevel=2)
        return None
