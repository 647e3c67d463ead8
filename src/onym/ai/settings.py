"""What a resolver works with: registries, pins, a cache, the least that is accepted. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from onym.ai.discovery.cache import Cache, MemoryCache
from onym.ai.discovery.pins import MemoryPins, Pins
from onym.ai.records import Auth, Level, Namespace, Namespaces, Requirements

if TYPE_CHECKING:
    from onym.ai.telemetry import Telemetry

__all__ = ["CONTEXT", "ResolverSettings"]

#: stands for the authority of an ai URI that has none (`ai:/path`); it can never be a host
CONTEXT: Final = "_"

#: nothing is asked for but what the draft says: results are signed
_FLOOR: Final = Requirements()
_LEVELS: Final = (Level.NONE, Level.SUPPORTED, Level.REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolverSettings:
    """How names are resolved.

    `namespaces` speak for one-label authorities; the first that knows a label decides. `contexts` says who
    speaks for `ai:/path`, by path prefix ("/agent/"; "/" for all), the longest that fits first. `pins`
    remembers what authorities asked for, `cache` their documents. `floor` is the least that is asked of
    callers (mtls, dpop, auth), whatever an authority says; results are always signed. `dns` false leaves the
    DNS sources out. `timeout` is seconds for one request of discovery, `clock` the time in seconds since the
    epoch. `telemetry` is told of what is done with these settings.
    """

    namespaces: tuple[Namespaces, ...] = ()
    contexts: Mapping[str, Namespace] = field(default_factory=lambda: MappingProxyType({}))
    pins: Pins = field(default_factory=MemoryPins)
    cache: Cache = field(default_factory=MemoryCache)
    floor: Requirements = _FLOOR
    dns: bool = True
    timeout: float = 10.0
    clock: Callable[[], float] = time.time
    telemetry: Telemetry | None = field(default=None, repr=False)

    def context(self, path: str) -> Namespace | None:
        """Who speaks for `ai:` and this path; None where nobody was named."""
        fitting = [prefix for prefix in self.contexts if _covers(prefix, path)]
        return self.contexts[max(fitting, key=len)] if fitting else None

    def required(self, said: Requirements) -> Requirements:
        """What holds where an authority asks for `said`: never less than the floor (3.3 rule 7, 3.2).

        Signed results among it: the draft's MUST is not the authority's to waive.
        """
        floor = self.floor
        return Requirements(
            signed_results=True,
            mtls=said.mtls or floor.mtls,
            dpop=max(said.dpop, floor.dpop, key=_LEVELS.index),
            auth=Auth.OAUTH2 if Auth.OAUTH2 in {said.auth, floor.auth} else Auth.NONE,
        )


def _covers(prefix: str, path: str) -> bool:
    """Is the path at or below the prefix, whole segments counted?"""
    return path == prefix or path.startswith(prefix.rstrip("/") + "/")
