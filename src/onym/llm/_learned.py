"""What a server of this process's said that it does not take: a 400 with a typed code that names a parameter.

Nothing is read from prose, nothing outlives the process, and each lesson shows: in `explain`, in the error of
the next call, or, where parameters may be dropped, in a warning.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any

from onym.errors import BadRequestError, NetError, OnymWarning, ProviderError

if TYPE_CHECKING:
    from onym.llm._plan import Plan

__all__ = ["LESSONS", "Lessons", "learn", "reason_for"]

#: the typed codes by which an API says that a parameter, or this value of it, is not for this model
_PARAMETER, _VALUE = "unsupported_parameter", "unsupported_value"
#: lessons of one endpoint; what a server says of ever more values is not kept for ever
_MOST = 64
#: what the caller's own rules for the model are, and no parameter of the server's
_KEPT = frozenset({"system", "stream"})
_NONE: Mapping[str, str] = {}


class Lessons:
    """Refused parameters by endpoint and model, the latest `size` of them; threads may share it."""

    __slots__ = ("_known", "_lock", "_size", "version")

    def __init__(self, size: int = 512) -> None:
        self._known: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._lock = Lock()
        self._size = size
        #: grows with every lesson, so that what was worked out before can be seen to be old
        self.version = 0

    def of(self, endpoint: str) -> Mapping[str, str]:
        """What was refused to reason, for the endpoint that this text names; `reason_for` reads it."""
        return self._known.get(endpoint, _NONE)

    def add(self, endpoint: str, parameter: str, reason: str) -> None:
        """One more. The endpoint that learned longest ago is forgotten where there are too many."""
        with self._lock:
            known = {**self._known.get(endpoint, {}), parameter: reason}
            self._known[endpoint] = dict(list(known.items())[-_MOST:])
            self._known.move_to_end(endpoint)
            if len(self._known) > self._size:
                self._known.popitem(last=False)
            self.version += 1

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self.version += 1


LESSONS = Lessons()


def reason_for(learned: Mapping[str, str], wire: str, value: Any) -> str | None:
    """Why this is refused, None where nothing was learned of it: all values of it, or this one."""
    return (learned.get(wire) or learned.get(_of_value(wire, value))) if learned else None


def _of_value(wire: str, value: Any) -> str:
    octets = repr(value).encode("utf-8", "backslashreplace")
    return f"{wire} {blake2b(octets, digest_size=16).hexdigest()}"


def learn(plan: Plan, failure: NetError | ProviderError) -> Plan | None:
    """Remember what this failure teaches: the plan without the parameter, where it may be dropped.

    Only a parameter that stands in the body by that name can be: no server talks a system prompt away.
    """
    if not isinstance(failure, BadRequestError) or failure.provider_code not in (_PARAMETER, _VALUE):
        return None
    wire = failure.parameter
    note = next(
        (each for each in plan.notes if each.wire_name == wire and each.action in ("sent", "renamed")), None
    )
    if wire is None or note is None or note.parameter in _KEPT or plan.body is None:
        return None
    body = _without(plan.body, wire.split("."))
    if body == plan.body:
        return None
    reason = f"the server refused it before in this process (HTTP {failure.status}, {failure.provider_code})"
    what = wire if failure.provider_code == _PARAMETER else _of_value(wire, note.value)
    plan.frame.lessons.add(plan.endpoint.lessons, what, reason)
    if plan.frame.on_unsupported == "error":
        return None
    # where parameters are dropped without a word too: this one was a surprise
    warnings.warn(
        f"{note.parameter} was left out and the call sent again: the server does not take it",
        OnymWarning,
        stacklevel=2,
    )
    dropped = replace(note, action="dropped", wire_name=None, reason=reason)
    notes = tuple(dropped if each is note else each for each in plan.notes)
    return replace(plan, body=body, notes=notes)


def _without(body: Mapping[str, Any], path: list[str]) -> Mapping[str, Any]:
    first, *rest = path
    if rest and isinstance(body.get(first), Mapping):
        return {**body, first: _without(body[first], rest)}
    return {name: value for name, value in body.items() if name != first}
