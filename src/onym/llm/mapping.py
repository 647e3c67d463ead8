"""Map the merged parameters of a call for one model at one provider (draft, sections 6 and 9).

`map_parameters` never drops a parameter silently: a parameter that is not supported raises an error or, if
the caller chooses so, becomes a note. `RejectedParameters` remembers what servers rejected with a typed error
code in this process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from onym.errors import ParameterError, UnsupportedError
from onym.llm.parameters import CLIENT_PARAMETERS, DRAFT, PARAMETERS, REQUEST_PARAMETERS, validate_parameter
from onym.uri.parameters import PROVIDER_NAMES

if TYPE_CHECKING:
    from onym.llm.profiles import Profile
    from onym.llm.providers import Provider

#: lessons of one endpoint; what a server says of ever more values is not kept for ever
_MOST_REJECTIONS = 64
_NO_REJECTIONS: Mapping[str, str] = {}


class RejectedParameters:
    """Rejected parameters by endpoint and model, the latest `size` endpoints; threads can share it."""

    __slots__ = ("_known", "_lock", "_size", "version")

    def __init__(self, size: int = 512) -> None:
        self._known: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._lock = Lock()
        self._size = size
        #: grows with every rejection, so that a planner sees that its mapping is out of date
        self.version = 0

    def get_rejections(self, endpoint: str) -> Mapping[str, str]:
        """Return the rejections of an endpoint, key to reason, for `find_rejection`."""
        return self._known.get(endpoint, _NO_REJECTIONS)

    def add_rejection(self, endpoint: str, parameter: str, reason: str) -> None:
        """Add a rejection. If there are too many endpoints, the oldest one is removed."""
        with self._lock:
            known = {**self._known.get(endpoint, {}), parameter: reason}
            self._known[endpoint] = dict(list(known.items())[-_MOST_REJECTIONS:])
            self._known.move_to_end(endpoint)
            if len(self._known) > self._size:
                self._known.popitem(last=False)
            self.version += 1

    def clear(self) -> None:
        """Remove all rejections."""
        with self._lock:
            self._known.clear()
            self.version += 1


REJECTED_PARAMETERS = RejectedParameters()


def find_rejection(learned: Mapping[str, str], wire: str, value: Any) -> str | None:
    """Return why the server rejects this parameter or this value of it, None if it does not."""
    return (learned.get(wire) or learned.get(make_value_key(wire, value))) if learned else None


def make_value_key(wire: str, value: Any) -> str:
    """Return the key of a rejection that is about one value."""
    octets = repr(value).encode("utf-8", "backslashreplace")
    return f"{wire} {blake2b(octets, digest_size=16).hexdigest()}"


Action: TypeAlias = Literal["sent", "renamed", "client", "dropped", "withheld"]
OnUnsupported: TypeAlias = Literal["error", "warn", "drop"]

#: where a rule comes from that no row and no profile holds
_REJECTION_SOURCE = "the server's own answer to an earlier call of this process"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNote:
    """What became of one parameter.

    `origin` is where the value came from ("override", "uri", "profile:NAME", "default"), `wire_name`
    what it is called in the request, None where it is not in it. `reason` says why it was not simply
    sent, `source` where that rule comes from, `clause` the draft's section.
    """

    parameter: str
    value: Any
    origin: str
    action: Action
    wire_name: str | None = None
    reason: str | None = None
    source: str | None = None
    clause: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The note as plain data, without what is None."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in plain.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterLayer:
    """Values of one origin: well-known ones, and pass-through ones nested as dot-notation says."""

    origin: str
    values: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedParameters:
    """Parameters ready for a dialect.

    `params` are well-known names that go into the body, `names` their wire names, `extra` the
    pass-through ones. `system` and `stream`, each with its origin, are for the plan to place;
    `timeout_ms`, `retries` and `cache` for the client to act on. `warnings` are sentences for the caller.
    """

    params: Mapping[str, Any]
    names: Mapping[str, str]
    extra: Mapping[str, Any]
    system: tuple[str, str] | None
    stream: tuple[bool, str] | None
    timeout_ms: int
    retries: int
    cache: bool
    notes: tuple[MappingNote, ...]
    warnings: tuple[str, ...]


def map_parameters(
    layers: Sequence[ParameterLayer],
    *,
    provider: Provider,
    profile: Profile,
    model: str,
    wire: Mapping[str, str | None],
    formats: frozenset[str] | None = None,
    on_unsupported: OnUnsupported = "error",
    learned: Mapping[str, str] = MappingProxyType({}),
) -> MappedParameters:
    """Merge `layers`, the strongest first, and map them for one model at one provider.

    `wire` holds the dialect's own names, `formats` those that row and dialect have (the row's by default),
    `learned` what the server refused before, by wire name. Raises ParameterError for a value outside the
    draft's or the provider's range, UnsupportedError for what the provider or the model does not take.
    """
    formats = provider.formats if formats is None else formats
    mapper = _ParameterMapper(provider, profile, model, wire, formats, on_unsupported, learned)
    given: dict[str, tuple[Any, str]] = {}
    extra: dict[str, tuple[Any, str]] = {}
    for layer in reversed(layers):
        given.update(
            {name: (value, layer.origin) for name, value in layer.values.items() if value is not None}
        )
        extra.update({name: (value, layer.origin) for name, value in layer.extra.items()})
    return mapper.map_all(given, extra, [layer.origin for layer in layers])


class _ParameterMapper:
    """The state of one mapping."""

    def __init__(
        self,
        provider: Provider,
        profile: Profile,
        model: str,
        wire: Mapping[str, str | None],
        formats: frozenset[str],
        on_unsupported: OnUnsupported,
        learned: Mapping[str, str],
    ) -> None:
        self._provider = provider
        self._profile = profile
        self._model = model
        self._wire = wire
        self._formats = formats
        self._on_unsupported = on_unsupported
        self._learned = learned
        self._notes: list[MappingNote] = []
        self._warnings: list[str] = []
        self._params: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        self._held: dict[str, tuple[Any, str]] = {}

    def map_all(
        self,
        given: Mapping[str, tuple[Any, str]],
        extra: Mapping[str, tuple[Any, str]],
        origins: Sequence[str],
    ) -> MappedParameters:
        sent = {name: value for name, (value, _) in extra.items()}
        refusals = self._profile.get_refusals(sent)
        for name in REQUEST_PARAMETERS:
            if name in given:
                self._map_parameter(name, *given[name], refusals)
        self._drop_exclusive({name: origins.index(origin) for name, (_, origin) in given.items()})
        passed = self._map_extra(extra, refusals, given)
        for name in CLIENT_PARAMETERS:
            self._map_client_parameter(name, *given.get(name, (None, "default")), refusals)
        return MappedParameters(
            params=self._params,
            names=self._names,
            extra=passed,
            system=self._held.get("system"),
            stream=self._held.get("stream"),
            timeout_ms=self._held["timeout"][0],
            retries=self._held["retries"][0],
            cache=self._held["cache"][0],
            notes=tuple(self._notes),
            warnings=tuple(self._warnings),
        )

    def _map_parameter(self, name: str, value: Any, origin: str, refusals: Mapping[str, str]) -> None:
        value = validate_parameter(name, value)
        wire = self._find_wire_name(name)
        if name in refusals:
            self._reject_unsupported(name, value, origin, refusals[name], self._profile.source)
        elif wire is None:
            self._reject_unsupported(name, value, origin, "it has no such parameter", self._find_source(name))
        elif (told := find_rejection(self._learned, wire, value)) is not None:
            self._reject_unsupported(name, value, origin, told, _REJECTION_SOURCE)
        elif (limit := self._find_exceeded_limit(name, value)) is not None:
            self._reject_out_of_range(name, value, origin, limit)
        elif name == "format" and value not in ("text", *self._formats):
            self._reject_unsupported(
                name, value, origin, self._describe_formats(), self._provider.source, code="llm.no-format"
            )
        else:
            self._accept_parameter(name, value, origin, wire)

    def _drop_exclusive(self, ranks: Mapping[str, int]) -> None:
        """Leave no two parameters that the model takes only one of: the strongest layer's stays."""
        for group in self._profile.exclusive:
            given = sorted((name for name in group if name in self._params), key=lambda name: ranks[name])
            first, *others = given or [""]
            for name in others:
                del self._params[name], self._names[name]
                note = next(note for note in self._notes if note.parameter == name)
                self._notes.remove(note)
                reason = f"it does not go together with {first}"
                self._reject_unsupported(name, note.value, note.origin, reason, self._profile.source)

    def _accept_parameter(self, name: str, value: Any, origin: str, wire: str) -> None:
        reason = source = None
        if name in ("system", "stream"):
            # the call decides what becomes of them: the plan writes their notes
            self._held[name] = value, origin
            return
        if name == "format" and value == "text":
            self._add_note(name, value, origin, "client", None, "text is what a server answers unasked")
            return
        if name in self._profile.ignores:
            reason, source = f"no effect: {self._profile.ignores[name]}", self._profile.source
        self._params[name], self._names[name] = value, wire
        self._add_note(name, value, origin, "sent" if wire == name else "renamed", wire, reason, source)

    def _map_extra(
        self,
        extra: Mapping[str, tuple[Any, str]],
        refusals: Mapping[str, str],
        given: Mapping[str, tuple[Any, str]],
    ) -> dict[str, Any]:
        passed: dict[str, Any] = {}
        taken = {wire: name for name, wire in self._names.items()}
        for name, (value, origin) in extra.items():
            same = taken.get(name) or PROVIDER_NAMES.get(name)
            if same is not None and same in given and given[same][1] != "default":
                reason = f"{same} is set, and it is the same parameter"
                self._add_note(name, value, origin, "dropped", None, reason)
            elif name in refusals:
                self._reject_unsupported(name, value, origin, refusals[name], self._profile.source)
            elif (told := find_rejection(self._learned, name, value)) is not None:
                self._reject_unsupported(name, value, origin, told, _REJECTION_SOURCE)
            else:
                ignored = self._profile.ignores.get(name)
                reason = "passed through as it is" if ignored is None else f"no effect: {ignored}"
                passed[name] = value
                self._add_note(name, value, origin, "sent", name, reason, clause=f"{DRAFT} 4.4")
        return passed

    def _map_client_parameter(self, name: str, value: Any, origin: str, refusals: Mapping[str, str]) -> None:
        reason = None
        if value is None:
            value = PARAMETERS[name].default
        value = validate_parameter(name, value)
        if name == "cache" and value:
            reason = "answered from the cache when it can"
            self._map_prompt_cache(name, origin, refusals)
        self._held[name] = value, origin
        if origin != "default" or name != "cache":
            self._add_note(name, value, origin, "client", None, reason)

    def _map_prompt_cache(self, name: str, origin: str, refusals: Mapping[str, str]) -> None:
        """The switch of the provider's own cache, where its API has one."""
        wire = self._find_wire_name(name)
        if wire is None:
            return
        if name in refusals:
            self._reject_unsupported(name, True, origin, refusals[name], self._profile.source)
        elif (told := find_rejection(self._learned, wire, True)) is not None:
            self._reject_unsupported(name, True, origin, told, _REJECTION_SOURCE)
        else:
            self._params[name], self._names[name] = True, wire
            self._add_note(name, True, origin, "renamed", wire, "switches the provider's prompt cache on")

    def _find_wire_name(self, name: str) -> str | None:
        for names in (self._profile.params, self._provider.params):
            if name in names:
                return names[name]
        return self._wire.get(name)

    def _find_source(self, name: str) -> str:
        return self._profile.source if name in self._profile.params else self._provider.source

    def _find_exceeded_limit(self, name: str, value: Any) -> str | None:
        if name == "stop":
            most = self._provider.stop_max
            return f"at most {most} of them" if most is not None and len(value) > most else None
        low, high = self._provider.ranges.get(name, (None, None))
        if low is not None and value < low:
            return f"at least {low:g}"
        if high is not None and value > high:
            return f"at most {high:g}"
        return None

    def _describe_formats(self) -> str:
        taken = sorted(self._formats)
        return f"it takes {' and '.join(taken)} alone" if taken else "it takes no format but text"

    def _reject_out_of_range(self, name: str, value: Any, origin: str, limit: str) -> None:
        if self._on_unsupported != "error":
            self._drop_parameter(name, value, origin, f"it takes {limit}", self._provider.source)
            return
        raise ParameterError(
            f"{self._provider.title} takes {limit} for the parameter {name}",
            code="llm.provider-range",
            clause=self._provider.source,
            parameter=name,
            hint='on_unsupported="drop" sends the call without it',
        )

    def _reject_unsupported(
        self, name: str, value: Any, origin: str, reason: str, source: str, *, code: str = "llm.unsupported"
    ) -> None:
        if self._on_unsupported != "error":
            self._drop_parameter(name, value, origin, reason, source)
            return
        hint = None
        if code == "llm.no-format" and "json_schema" in self._formats:
            hint = 'use format=json_schema with schema=, or on_unsupported="drop"'
        _raise_unsupported(self._provider.title, self._model, name, reason, source, code, hint)

    def _drop_parameter(self, name: str, value: Any, origin: str, reason: str, source: str) -> None:
        self._add_note(name, value, origin, "dropped", None, reason, source)
        if self._on_unsupported == "warn":
            self._warnings.append(f"{name} was not sent to {self._provider.title}: {reason}")

    def _add_note(
        self,
        name: str,
        value: Any,
        origin: str,
        action: Action,
        wire: str | None,
        reason: str | None = None,
        source: str | None = None,
        clause: str | None = f"{DRAFT} 6",
    ) -> None:
        self._notes.append(
            MappingNote(
                parameter=name,
                value=value,
                origin=origin,
                action=action,
                wire_name=wire,
                reason=reason,
                source=source,
                clause=clause,
            )
        )


def _raise_unsupported(
    title: str, model: str, name: str, reason: str, source: str, code: str, hint: str | None
) -> NoReturn:
    raise UnsupportedError(
        f"{title} does not take the parameter {name} for this model: {reason}",
        code=code,
        parameter=name,
        model=model,
        source=source,
        hint=hint or 'leave it out, or on_unsupported="drop" sends the call without it',
    )
