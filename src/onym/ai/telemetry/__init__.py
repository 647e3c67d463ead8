"""OpenTelemetry spans and metrics of ai:// names (AIIP/HTTPS v1 3.16). Off unless asked for.

    AIClient(telemetry=Telemetry())    Endpoint("factory.example", telemetry=Telemetry())

or `ONYM_TELEMETRY=1`, for the global providers. Needs the extra `telemetry`. Queries, bodies, tokens and
receipts are in none of it, and of a path no more than a keyed hash.
"""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from onym._version import __version__
from onym.errors import MissingExtraError, OnymWarning

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from onym.ai.discovery.flow import Discovery
    from onym.ai.exchange import Question
    from onym.ai.flow import Opened
    from onym.ai.records import AnchorDocument, Resolution, Result
    from onym.ai.telemetry._instruments import Attributes
    from onym.ai.telemetry._stage import Stage
    from onym.net.messages import Flow, Reply
    from onym.uri.ai import AIURI

__all__ = ["VARIABLE", "Telemetry", "from_environment"]

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
        from onym.ai.telemetry import _stage, _trace  # late: they need opentelemetry-api
        from onym.ai.telemetry._instruments import Instruments

        self._stages, self._wire = _stage, _trace
        self._key = path_key or _PROCESS_KEY
        self._tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
        self._instruments = Instruments(metrics.get_meter(_SCOPE, __version__, meter_provider), clock)

    # -- clients: each gives the same flow, under observation ----------------------------------------

    def invoking(self, method: str) -> Stage:
        """A call of a client, from the name to the verified result."""
        return self._stage("invoke", method=method)

    def resolving(self, flow: Flow[Resolution]) -> Flow[Resolution]:
        """The resolution of one name. Whatever it is a part of learns whose name it is."""
        stage = self._stage("resolve")

        def found(resolution: Resolution) -> None:
            stage.found(self._of(resolution))

        return stage.watch(flow, found)

    def discovering(self, flow: Flow[T], document: Callable[[T], AnchorDocument | None]) -> Flow[T]:
        """What is asked of the anchor and of DNS; `document` is what the anchor's said, of the outcome."""
        stage = self._stage("discover")

        def found(result: T) -> None:
            said = document(result)
            if said is not None:
                stage.tell({"aiip.authority": said.authority})
            stage.tell({"aiip.cached": not stage.asked})

        return stage.watch(flow, found)

    def explaining(self, flow: Flow[Discovery]) -> Flow[Discovery]:
        """A discovery by all sources, which tells its failure and does not raise it."""

        def document(found: Discovery) -> AnchorDocument | None:
            stage = self._stages.current()
            if found.refusal is not None and stage is not None:
                stage.refused(found.refusal, failed=True)
            return found.document

        return self.discovering(flow, document)

    def exchanging(self, question: Question, flow: Flow[Reply]) -> Flow[Reply]:
        """A request, until its answer is there; of a stream, until it begins."""
        stage = self._stage(
            "exchange",
            kind="client",
            method=question.invocation.method,
            said=self._of(question.resolution),
        )

        def found(reply: Reply) -> None:
            stage.answered(reply.status)

        return stage.watch(flow, found, self._wire.traced)

    def verifying(self, opened: Opened, flow: Flow[Result]) -> Flow[Result]:
        """The proof of an answer that has come whole."""
        said = self._of(opened.question.resolution)
        where = None if opened.call is None else opened.call.context
        return self._stage("verify", said=said, where=where).watch(flow)

    def renewing(self, resolution: Resolution, flow: Flow[T]) -> Flow[T]:
        """Keys that may be too old: counted, where they are asked for."""
        stage = self._stages.current()
        before = 0 if stage is None else stage.asked
        try:
            return (yield from flow)
        finally:
            if stage is not None and stage.asked > before:
                stage.event("aiip.keys.refetch", {})
                self._instruments.refetched(resolution.authority)

    def replayed(self, authority: str, kind: Literal["receipt", "idempotency"]) -> None:
        """A receipt that was seen before, or an answer that was given again under its key."""
        self._instruments.replayed(authority, kind)

    # -- servers -------------------------------------------------------------------------------------

    def serving(
        self,
        role: Literal["endpoint", "gateway"],
        method: str,
        traceparent: str | None,
        *,
        authority: str | None = None,
    ) -> Stage:
        """A request to a server, in the trace of whoever sent it."""
        return self._stage(
            "exchange",
            role=role,
            kind="server",
            method=method,
            said=_authority(authority),
            where=self._wire.parent(traceparent),
        )

    def inside(self, name: Literal["invoke", "verify"], authority: str) -> Stage:
        """A step of an endpoint: its function runs, or the caller's token is verified."""
        return self._stage(name, role="endpoint", said=_authority(authority))

    def at(self, uri: AIURI) -> None:
        """The request that is being served is for this resource."""
        stage = self._stages.current()
        if stage is not None:
            stage.tell({"aiip.path_hash": self.path_hash(uri)})

    def refused(self, error: BaseException) -> None:
        """The request that is being served is answered with this problem."""
        stage = self._stages.current()
        if stage is not None:
            stage.refused(error)

    # -- what they share -----------------------------------------------------------------------------

    def path_hash(self, uri: AIURI) -> str:
        """What stands for the URI without its query: HMAC-SHA256 in hexadecimal, the first 32 digits.

        It is that of the gateway's audit log, under the same key.
        """
        from onym.ai.gateway.audit import path_hash

        return path_hash(self._key, str(uri.without_query))

    def _of(self, resolution: Resolution) -> dict[str, str]:
        return {"aiip.authority": resolution.authority, "aiip.path_hash": self.path_hash(resolution.uri)}

    def _stage(
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
        return self._stages.begin(self._tracer, self._instruments, name, kind, attributes, where)


def _authority(authority: str | None) -> dict[str, str]:
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
