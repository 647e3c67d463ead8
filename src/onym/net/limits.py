"""The bounds of a transport, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onym.errors import UsageError

__all__ = ["NetLimits", "TLSConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLimits:
    """How much a transport takes, waits and keeps. Sizes in octets, times in seconds.

    `header_bytes`, `header_count`: a response's head. `body`: a 2xx body, decompressed; beyond it
    ResponseTooLarge is raised. `error_body`: any other body; it is cut there, its status says what matters.
    `connect`: one attempt to connect; `connect_next` instead where more addresses are left to try.
    `answers`: how long checked addresses are good before a name is looked up again. `idle`,
    `idle_connections`: how long and how many connections wait to be used again.
    """

    header_bytes: int = 64 * 1024
    header_count: int = 256
    body: int = 64 * 1024 * 1024
    error_body: int = 1024 * 1024
    connect: float = 15.0
    connect_next: float = 3.0
    answers: float = 10.0
    idle: float = 60.0
    idle_connections: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """Whom TLS trusts, and the lowest version that is spoken.

    Trusted are the system's authorities, and those in `ca_files` (PEM) as well. Raises UsageError for another
    `minimum`.
    """

    ca_files: tuple[str, ...] = ()
    minimum: Literal["1.2", "1.3"] = "1.2"

    def __post_init__(self) -> None:
        if self.minimum not in ("1.2", "1.3"):
            raise UsageError('TLSConfig(minimum=...) is "1.2" or "1.3"', code="usage.tls")
