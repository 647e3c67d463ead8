"""`NetConfig`: everything that decides how a transport connects, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onym.net.limits import NetLimits, TLSConfig
from onym.net.policy import Policy

if TYPE_CHECKING:
    from onym.net.connections import AddressResolver
    from onym.net.records import RecordResolver

__all__ = ["NetConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetConfig:
    """How a transport connects. Every transport of Onym is built from one.

    `policy` decides which hosts may be reached, `tls` which authorities are trusted, `limits` how much is
    read and how long a step may take. `resolver` looks up host names (default: the system's resolver).
    `records` resolves the DNS queries of flows; without it, every `Ask` fails. `clock` returns monotonic
    seconds (default: `time.monotonic`).
    """

    policy: Policy = field(default_factory=Policy.trusted)
    tls: TLSConfig = field(default_factory=TLSConfig)
    limits: NetLimits = field(default_factory=NetLimits)
    resolver: AddressResolver | None = None
    records: RecordResolver | None = None
    clock: Callable[[], float] | None = None
    # A proxy belongs here, for `ExchangeCore.dial` in `_exchange.py`. A client certificate belongs in
    # `TLSConfig`, for `make_tls_context` in `connections.py`. No caller has to change for either.
