"""The guarded transport: the only place of Onym that opens sockets or asks DNS.

`Policy` says where requests may go, `Transport` and `AsyncTransport` send them, `run` and `arun` drive flows.
Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onym.net.limits import NetLimits, TLSConfig
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
    from onym.net.policy import Decision, Policy, decide
    from onym.net.probe import ProbeReport
    from onym.net.question import decide_question, scheme_for
    from onym.net.records import RecordResolver
    from onym.net.resolve import DNSResolver, Resolver, SystemResolver
    from onym.net.retry import RetryPolicy, delay, parse_retry_after
    from onym.net.sse import SSEDecoder, SSEEvent
    from onym.net.transport import AsyncTransport, Transport, arun, run

__all__ = [
    "Ask",
    "AsyncStreamBody",
    "AsyncTransport",
    "ConnectionInfo",
    "DNSResolver",
    "Decision",
    "Flow",
    "HTTPRequest",
    "Headers",
    "NetLimits",
    "Origin",
    "Policy",
    "ProbeReport",
    "RecordResolver",
    "Records",
    "Reply",
    "Resolver",
    "RetryPolicy",
    "SSEDecoder",
    "SSEEvent",
    "Send",
    "StreamBody",
    "SystemResolver",
    "TLSConfig",
    "Transport",
    "Wait",
    "arun",
    "decide",
    "decide_question",
    "delay",
    "parse_retry_after",
    "run",
    "scheme_for",
]

_HOMES = {
    "limits": ("NetLimits", "TLSConfig"),
    "messages": (
        "Ask",
        "AsyncStreamBody",
        "ConnectionInfo",
        "Flow",
        "HTTPRequest",
        "Headers",
        "Origin",
        "Records",
        "Reply",
        "Send",
        "StreamBody",
        "Wait",
    ),
    "policy": ("Decision", "Policy", "decide"),
    "probe": ("ProbeReport",),
    "question": ("decide_question", "scheme_for"),
    "records": ("RecordResolver",),
    "resolve": ("DNSResolver", "Resolver", "SystemResolver"),
    "retry": ("RetryPolicy", "delay", "parse_retry_after"),
    "sse": ("SSEDecoder", "SSEEvent"),
    "transport": ("AsyncTransport", "Transport", "arun", "run"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"onym.net.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
