"""The metrics of ai:// names, and the labels that they may have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from onym.errors import InvocationError, OnymError

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = ["Attributes", "Instruments", "error_type"]

Value: TypeAlias = "str | bool | int | float"
Attributes: TypeAlias = "dict[str, Value]"

#: bounds of the histogram: a proof takes less than a thousandth of a second, an invocation up to minutes
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
#: each makes metrics of its own, which stay in memory, and anybody may have names that resolve
_MOST_AUTHORITIES: Final = 500


class Instruments:
    """What stages are measured with. `clock` gives seconds that only grow."""

    __slots__ = ("_authorities", "_duration", "_failures", "_lock", "_refetches", "_replays", "clock")

    def __init__(self, meter: Meter, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._authorities: set[str] = set()
        self._lock = threading.Lock()
        self._duration = meter.create_histogram(
            "aiip.stage.duration",
            unit="s",
            description="How long a stage of AIIP took.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._failures = meter.create_counter(
            "aiip.verify.failures", unit="{failure}", description="Receipts and tokens that did not hold."
        )
        self._refetches = meter.create_counter(
            "aiip.keys.refetches", unit="{fetch}", description="Key sets asked for before their time."
        )
        self._replays = meter.create_counter(
            "aiip.replay.hits", unit="{hit}", description="Receipts and idempotency keys that came again."
        )

    def took(self, seconds: float, labels: Mapping[str, Value]) -> None:
        """A stage with these labels is over."""
        self._duration.record(seconds, self._bounded(labels))

    def unverified(self, labels: Mapping[str, Value], error: BaseException) -> None:
        """Something did not hold. A refusal that nobody signed is none of that: it claims no proof."""
        if isinstance(error, Exception) and not isinstance(error, InvocationError):
            self._failures.add(1, self._bounded({n: labels[n] for n in labels if n != "aiip.stage"}))

    def refetched(self, authority: str) -> None:
        """An authority's keys were asked for once more."""
        self._refetches.add(1, self._bounded({"aiip.authority": authority}))

    def replayed(self, authority: str, kind: str) -> None:
        """Something of this kind was seen before."""
        self._replays.add(1, self._bounded({"aiip.authority": authority, "aiip.replay.kind": kind}))

    def _bounded(self, labels: Mapping[str, Value]) -> Attributes:
        """The labels, without the authority where there have been too many already."""
        authority = labels.get("aiip.authority")
        with self._lock:
            if isinstance(authority, str) and len(self._authorities) < _MOST_AUTHORITIES:
                self._authorities.add(authority)
            known = authority in self._authorities
        return {name: value for name, value in labels.items() if known or name != "aiip.authority"}


def error_type(error: BaseException) -> str:
    """A name for what went wrong, of few possible ones: our own code, else the class."""
    if isinstance(error, OnymError):
        return error.code
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
