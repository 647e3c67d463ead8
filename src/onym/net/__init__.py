"""The guarded transport: the only place of Onym that opens sockets or asks DNS.

`Policy` decides where requests may go, `Transport` and `AsyncTransport` send them, `run_flow` and
`arun_flow` drive flows. Names are loaded when they are first used, so that importing the package is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onym._lazy import make_lazy_names

if TYPE_CHECKING:
    from onym.net.config import NetConfig as NetConfig
    from onym.net.config import RouteReport as RouteReport
    from onym.net.connections import AddressResolver as AddressResolver
    from onym.net.connections import DNSResolver as DNSResolver
    from onym.net.connections import SystemResolver as SystemResolver
    from onym.net.limits import ClientIdentity as ClientIdentity
    from onym.net.limits import NetLimits as NetLimits
    from onym.net.limits import RetryPolicy as RetryPolicy
    from onym.net.limits import TLSConfig as TLSConfig
    from onym.net.limits import parse_retry_after as parse_retry_after
    from onym.net.messages import Ask as Ask
    from onym.net.messages import AsyncStreamBody as AsyncStreamBody
    from onym.net.messages import ConnectionInfo as ConnectionInfo
    from onym.net.messages import Flow as Flow
    from onym.net.messages import Headers as Headers
    from onym.net.messages import HTTPRequest as HTTPRequest
    from onym.net.messages import Origin as Origin
    from onym.net.messages import Records as Records
    from onym.net.messages import Reply as Reply
    from onym.net.messages import Send as Send
    from onym.net.messages import SSEDecoder as SSEDecoder
    from onym.net.messages import SSEEvent as SSEEvent
    from onym.net.messages import StreamBody as StreamBody
    from onym.net.messages import Wait as Wait
    from onym.net.policy import Decision as Decision
    from onym.net.policy import Policy as Policy
    from onym.net.policy import choose_scheme as choose_scheme
    from onym.net.policy import evaluate_policy as evaluate_policy
    from onym.net.policy import evaluate_uri as evaluate_uri
    from onym.net.proxies import ProxyConfig as ProxyConfig
    from onym.net.records import RecordResolver as RecordResolver
    from onym.net.transport import AsyncTransport as AsyncTransport
    from onym.net.transport import ProbeReport as ProbeReport
    from onym.net.transport import Transport as Transport
    from onym.net.transport import arun_flow as arun_flow
    from onym.net.transport import run_flow as run_flow

_HOMES = {
    "onym.net.config": "NetConfig RouteReport",
    "onym.net.connections": "AddressResolver DNSResolver SystemResolver",
    "onym.net.limits": "ClientIdentity NetLimits RetryPolicy TLSConfig parse_retry_after",
    "onym.net.messages": (
        "Ask AsyncStreamBody ConnectionInfo Flow Headers HTTPRequest Origin Records Reply Send "
        "SSEDecoder SSEEvent StreamBody Wait"
    ),
    "onym.net.policy": "Decision Policy choose_scheme evaluate_policy evaluate_uri",
    "onym.net.proxies": "ProxyConfig",
    "onym.net.records": "RecordResolver",
    "onym.net.transport": "AsyncTransport ProbeReport Transport arun_flow run_flow",
}

__getattr__, __dir__, __all__ = make_lazy_names(__name__, _HOMES)
