"""Places that the policy has judged, with the addresses that may be connected to, for a few seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeAlias

from onym.errors import PolicyError, UsageError
from onym.net.hosts import read_host
from onym.net.limits import NetLimits
from onym.net.messages import Origin
from onym.net.policy import Decision, Policy, decide

__all__ = ["Place", "Target", "Targets"]

#: an origin, with where connections for it are opened if that is elsewhere
Place: TypeAlias = Origin | tuple[Origin, Origin]

_MOST: Final = 1024
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


class Target(NamedTuple):
    """Where a request really goes: checked addresses, and the names that HTTP and TLS are told.

    `key` tells connections apart that must not be shared, `endpoint` is the origin as errors name it, `port`
    is the one to connect to.
    """

    place: Place
    origin: Origin
    host: str
    addresses: tuple[str, ...]
    port: int
    host_field: str
    endpoint: str
    key: Hashable
    good_until: float | None


class Targets:
    """Decisions by place. Only what is allowed is kept, and what needed a look-up only for a while."""

    def __init__(self, policy: Policy, limits: NetLimits, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._limits = limits
        self._clock = clock
        self._known: OrderedDict[Place, Target] = OrderedDict()

    def get(self, place: Place) -> Target | None:
        """What is known of this place and still good."""
        target = self._known.get(place)
        if target is None or target.good_until is None or self._clock() < target.good_until:
            return target
        self.forget(place)
        return None

    def judge(self, place: Place) -> Target | str:
        """The target, or the name to look up first; raises PolicyError for a place that is refused."""
        origin, connect = _both(place)
        if connect is not origin:
            self._judge_name(origin, connect)
        decision = decide(self._policy, connect.host, connect.port, scheme=connect.scheme)
        if decision.reason == "no-address":
            return decision.host
        return self._keep(place, decision, None)

    def judge_answers(self, place: Place, answers: list[str]) -> Target:
        """The target behind what one look-up gave; raises PolicyError."""
        _, connect = _both(place)
        decision = decide(self._policy, connect.host, connect.port, scheme=connect.scheme, answers=answers)
        return self._keep(place, decision, self._clock() + self._limits.answers)

    def forget(self, place: Place) -> None:
        """Judge again at the next request: the addresses known are old, or did not work."""
        self._known.pop(place, None)

    def _judge_name(self, origin: Origin, connect: Origin) -> None:
        """Judge the origin of a request that goes elsewhere, whose own addresses nobody connects to."""
        if origin.scheme != connect.scheme:
            raise UsageError("Send(connect=...) has another scheme than its request", code="usage.http")
        decision = decide(self._policy, origin.host, origin.port, scheme=origin.scheme)
        if not decision.allowed and decision.reason != "no-address":
            raise _refusal(origin, decision)

    def _keep(self, place: Place, decision: Decision, good_until: float | None) -> Target:
        origin, connect = _both(place)
        if not decision.allowed:
            raise _refusal(connect, decision)
        name = decision.host if connect is origin else read_host(origin.host).text
        host = f"[{name}]" if ":" in name else name
        endpoint = str(Origin(origin.scheme, name, origin.port))
        target = Target(
            place=place,
            origin=origin,
            host=name,
            addresses=decision.connect_to,
            port=connect.port,
            host_field=host if origin.port == _DEFAULT_PORTS[origin.scheme] else f"{host}:{origin.port}",
            endpoint=endpoint,
            key=(endpoint, decision.connect_to, connect.port),
            good_until=good_until,
        )
        self._known[place] = target
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return target


def _both(place: Place) -> tuple[Origin, Origin]:
    """The origin, and where connections for it are opened."""
    return place if isinstance(place, tuple) else (place, place)


def _refusal(origin: Origin, decision: Decision) -> PolicyError:
    # a host that has no spelling is not printed
    return decision.error(str(Origin(origin.scheme, decision.host, origin.port)) if decision.host else None)
