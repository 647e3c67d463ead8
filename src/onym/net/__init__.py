"""The guarded transport: the only place of Onym that opens sockets or asks DNS.

`Policy` says where requests may go, `Transport` and `AsyncTransport` send them, `run` and `arun` drive flows.
Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_getattr

if TYPE_CHECKING:
    from onym.net.config import NetConfig
    from onym.net.connections import AddressResolver, DNSResolver, SystemResolver
    from onym.net.limits import NetLimits, RetryPolicy, TLSConfig, compute_delay, parse_retry_after
    from onym.net.messages import (
        Ask,
        AsyncStreamBody,
        ConnectionInfo,
        Flow,
        Headers,
        HTTPRequest,
        Origin,
        Records,
        Reply,
        Send,
        StreamBody,
        Wait,
    )
    from onym.net.policy import Decision, Policy, choose_scheme, evaluate_policy, evaluate_uri
    from onym.net.records import RecordResolver
    from onym.net.sse import SSEDecoder, SSEEvent
    from onym.net.transport import AsyncTransport, ProbeReport, Transport, arun_flow, run_flow

__all__ = [
    "AddressResolver",
    "Ask",
    "AsyncStreamBody",
    "AsyncTransport",
    "ConnectionInfo",
    "DNSResolver",
    "Decision",
    "Flow",
    "HTTPRequest",
    "Headers",
    "NetConfig",
    "NetLimits",
    "Origin",
    "Policy",
    "ProbeReport",
    "RecordResolver",
    "Records",
    "Reply",
    "RetryPolicy",
    "SSEDecoder",
    "SSEEvent",
    "Send",
    "StreamBody",
    "SystemResolver",
    "TLSConfig",
    "Transport",
    "Wait",
    "arun_flow",
    "choose_scheme",
    "compute_delay",
    "evaluate_policy",
    "evaluate_uri",
    "parse_retry_after",
    "run_flow",
]

#: public name -> the module that defines it
_HOME = {
    "AddressResolver": "onym.net.connections",
    "Ask": "onym.net.messages",
    "AsyncStreamBody": "onym.net.messages",
    "AsyncTransport": "onym.net.transport",
    "ConnectionInfo": "onym.net.messages",
    "DNSResolver": "onym.net.connections",
    "Decision": "onym.net.policy",
    "Flow": "onym.net.messages",
    "HTTPRequest": "onym.net.messages",
    "Headers": "onym.net.messages",
    "NetConfig": "onym.net.config",
    "NetLimits": "onym.net.limits",
    "Origin": "onym.net.messages",
    "Policy": "onym.net.policy",
    "ProbeReport": "onym.net.transport",
    "RecordResolver": "onym.net.records",
    "Records": "onym.net.messages",
    "Reply": "onym.net.messages",
    "RetryPolicy": "onym.net.limits",
    "SSEDecoder": "onym.net.sse",
    "SSEEvent": "onym.net.sse",
    "Send": "onym.net.messages",
    "StreamBody": "onym.net.messages",
    "SystemResolver": "onym.net.connections",
    "TLSConfig": "onym.net.limits",
    "Transport": "onym.net.transport",
    "Wait": "onym.net.messages",
    "arun_flow": "onym.net.transport",
    "choose_scheme": "onym.net.policy",
    "compute_delay": "onym.net.limits",
    "evaluate_policy": "onym.net.policy",
    "evaluate_uri": "onym.net.policy",
    "parse_retry_after": "onym.net.limits",
    "run_flow": "onym.net.transport",
}

__getattr__ = make_lazy_getattr(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
