"""Origins that the policy has judged, with the addresses that may be connected to, for a few seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from onym.net.limits import NetLimits
from onym.net.messages import Origin
from onym.net.policy import Decision, Policy, decide

__all__ = ["Target", "Targets"]

_MOST: Final = 1024
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


class Target(NamedTuple):
    """Where a request really goes: checked addresses, and the names that HTTP and TLS are told.

    `key` tells connections apart that must not be shared, `endpoint` is the origin as errors name it.
    """

    origin: Origin
    host: str
    addresses: tuple[str, ...]
    host_field: str
    endpoint: str
    key: Hashable
    good_until: float | None


class Targets:
    """Decisions by origin. Only what is allowed is kept, and what needed a look-up only for a while."""

    def __init__(self, policy: Policy, limits: NetLimits, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._limits = limits
        self._clock = clock
        self._known: OrderedDict[Origin, Target] = OrderedDict()

    def get(self, origin: Origin) -> Target | None:
        """What is known of this origin and still good."""
        target = self._known.get(origin)
        if target is None or target.good_until is None or self._clock() < target.good_until:
            return target
        self.forget(origin)
        return None

    def judge(self, origin: Origin) -> Target | str:
        """The target, or the name to look up first; raises PolicyError for an origin that is refused."""
        decision = decide(self._policy, origin.host, origin.port, scheme=origin.scheme)
        if decision.reason == "no-address":
            return decision.host
        return self._keep(origin, decision, None)

    def judge_answers(self, origin: Origin, answers: list[str]) -> Target:
        """The target behind what one look-up gave; raises PolicyError."""
        decision = decide(self._policy, origin.host, origin.port, scheme=origin.scheme, answers=answers)
        return self._keep(origin, decision, self._clock() + self._limits.answers)

    def forget(self, origin: Origin) -> None:
        """Judge again at the next request: the addresses known are old, or did not work."""
        self._known.pop(origin, None)

    def _keep(self, origin: Origin, decision: Decision, good_until: float | None) -> Target:
        endpoint = str(Origin(origin.scheme, decision.host, origin.port))
        if not decision.allowed:
            # a host that has no spelling is not printed
            raise decision.error(endpoint if decision.host else None)
        host = f"[{decision.host}]" if ":" in decision.host else decision.host
        target = Target(
            origin=origin,
            host=decision.host,
            addresses=decision.connect_to,
            host_field=host if origin.port == _DEFAULT_PORTS[origin.scheme] else f"{host}:{origin.port}",
            endpoint=endpoint,
            key=(endpoint, decision.connect_to),
            good_until=good_until,
        )
        self._known[origin] = target
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return target
