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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from onym.errors import ParameterError, UnsupportedError, UsageError
from onym.llm.parameters import CLIENT_PARAMETERS, DRAFT, PARAMETERS, REQUEST_PARAMETERS, validate_parameter
from onym.uri.parameters import PROVIDER_NAMES, format_name

if TYPE_CHECKING:
    from onym.llm.endpoint import Endpoint
    from onym.llm.models import ChoiceRefusal, Profile
    from onym.llm.providers import Provider

#: for one endpoint, so that a server cannot fill the memory
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
    content = repr(value).encode("utf-8", "backslashreplace")
    return f"{wire} {blake2b(content, digest_size=16).hexdigest()}"


def _add_member(members: dict[str, Any], wire: str, value: Any) -> bool:
    """Add a member by its wire name, in which dots nest; False if it is there, or if there is no object."""
    *path, last = wire.split(".")
    for step in path:
        inner = members.get(step, {})
        if not isinstance(inner, Mapping):
            return False
        members[step] = members = dict(inner)
    return members.setdefault(last, value) is value


Action: TypeAlias = Literal["sent", "renamed", "client", "dropped", "withheld"]
OnUnsupported: TypeAlias = Literal["error", "warn", "drop"]

#: the source of a rule that is neither in a provider entry nor in a profile
_REJECTION_SOURCE = "the server's own answer to an earlier call of this process"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNote:
    """What became of one parameter.

    `origin` is where the value came from: "override", "uri", "profile:NAME" or "default". `wire_name` is its
    name in the request, None if it is not sent. `reason` says why it was not simply sent, `source` where that
    rule comes from, and `clause` is the draft's section.
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
        """Return the note as plain data, without members that are None."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterLayer:
    """Values of one origin: well-known parameters, and pass-through parameters nested by dot notation."""

    origin: str
    values: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedParameters:
    """Parameters ready for a dialect.

    `params` are well-known parameters of the body, `names` their wire names, and `extra` the pass-through
    parameters. The plan places `system` and `stream`, which have their origins. The client acts on
    `timeout_ms`, `retries` and `cache`. `warnings` are sentences for the caller.
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

    `wire` has the API format's names, `formats` the values of `format` that provider and API format support
    (by default the provider's), and `learned` what the server rejected before, by wire name. Raises
    ParameterError for a value outside of the draft's or the provider's range, and UnsupportedError for a
    parameter that the provider or the model does not support.
    """
    formats = provider.formats if formats is None else formats
    given: dict[str, _GivenValue] = {}
    extra: dict[str, _GivenValue] = {}
    for layer in reversed(layers):
        for name, value in layer.values.items():
            if value is not None:
                given[name] = _GivenValue(name, value, layer.origin)
        for name, value in layer.extra.items():
            weaker = extra[name].value if name in extra else None
            extra[name] = _GivenValue(name, _merge_values(weaker, value), layer.origin)
    refusals = profile.get_refusals({name: item.value for name, item in extra.items()})
    mapper = _ParameterMapper(
        provider, profile, model, wire, formats, on_unsupported, learned, given, refusals
    )
    return mapper.map_all(extra, [layer.origin for layer in layers])


def drop_tool_choice(
    choice: str, refusal: ChoiceRefusal, endpoint: Endpoint, on_unsupported: OnUnsupported
) -> MappingNote:
    """Return the note that a refused tool choice was dropped: the model chooses.

    Raises UnsupportedError unless it may be dropped.
    """
    if on_unsupported != "error":
        return MappingNote(
            parameter="tool_choice",
            value=choice,
            origin="override",
            action="dropped",
            reason=refusal.reason,
            source=refusal.source,
        )
    raise UnsupportedError(
        f"{endpoint.model} at {endpoint.provider.title} does not take tool_choice={choice}: {refusal.reason}",
        code="llm.no-tool-choice",
        parameter="tool_choice",
        model=endpoint.model,
        source=refusal.source,
        hint='Use tool_choice="auto", or schema= for an answer in JSON; on_unsupported="drop" sends the call '
        "without it.",
    )


def _merge_values(weaker: Any, value: Any) -> Any:
    """Return a pass-through parameter of two layers: objects are merged, and other values replaced."""
    if not isinstance(weaker, Mapping) or not isinstance(value, Mapping):
        return value
    return {**weaker, **{name: _merge_values(weaker.get(name), item) for name, item in value.items()}}


class _GivenValue(NamedTuple):
    """A parameter with its value, and where that came from."""

    name: str
    value: Any
    origin: str


@dataclass(slots=True)
class _ParameterMapper:
    """The state of one mapping."""

    provider: Provider
    profile: Profile
    model: str
    wire: Mapping[str, str | None]
    formats: frozenset[str]
    on_unsupported: OnUnsupported
    learned: Mapping[str, str]
    given: Mapping[str, _GivenValue]
    refusals: Mapping[str, str]
    notes: list[MappingNote] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    #: values that the plan or the client acts on
    unsent: dict[str, tuple[Any, str]] = field(default_factory=dict)

    def map_all(self, extra: Mapping[str, _GivenValue], origins: Sequence[str]) -> MappedParameters:
        for name in REQUEST_PARAMETERS:
            if name in self.given:
                self._map_parameter(self.given[name])
        self._drop_exclusive(origins)
        passed = self._map_extra(extra)
        for name in CLIENT_PARAMETERS:
            default = PARAMETERS[name].default
            self._map_client_parameter(self.given.get(name) or _GivenValue(name, default, "default"))
        return MappedParameters(
            params=self.params,
            names=self.names,
            extra=passed,
            system=self.unsent.get("system"),
            stream=self.unsent.get("stream"),
            timeout_ms=self.unsent["timeout"][0],
            retries=self.unsent["retries"][0],
            cache=self.unsent["cache"][0],
            notes=tuple(self.notes),
            warnings=tuple(self.warnings),
        )

    def _map_parameter(self, given: _GivenValue) -> None:
        name = given.name
        given = given._replace(value=validate_parameter(name, given.value))
        wire = self._find_wire_name(name)
        if wire is None:
            source = self.profile.source if name in self.profile.params else self.provider.source
            reason = self.refusals.get(name)
            self._reject(
                given, reason or "it has no such parameter", self.profile.source if reason else source
            )
        elif self._is_refused(given, wire):
            pass
        elif (limit := self._find_exceeded_limit(name, given.value)) is not None:
            self._reject(given, f"it takes {limit}", self.provider.source, code="llm.provider-range")
        elif name == "format" and given.value not in ("text", *self.formats):
            self._reject(given, self._describe_formats(), self.provider.source, code="llm.no-format")
        else:
            self._accept_parameter(given, wire)

    def _is_refused(self, given: _GivenValue, wire: str) -> bool:
        """Reject the value if the model is known not to take it, or the server rejected it before."""
        refusal = self.refusals.get(given.name) or self.profile.find_value_refusal(given.name, given.value)
        if refusal is not None:
            self._reject(given, refusal, self.profile.source)
        elif (reason := find_rejection(self.learned, wire, given.value)) is not None:
            self._reject(given, reason, _REJECTION_SOURCE)
        else:
            return False
        return True

    def _drop_exclusive(self, origins: Sequence[str]) -> None:
        """Of parameters that exclude each other, leave the one of the strongest layer."""
        for group in self.profile.exclusive:
            given = [self.given[name] for name in group if name in self.params]
            given.sort(key=lambda item: origins.index(item.origin))
            for other in given[1:]:
                del self.params[other.name], self.names[other.name]
                note = next(note for note in self.notes if note.parameter == other.name)
                self.notes.remove(note)
                reason = f"it does not go together with {given[0].name}"
                self._reject(other._replace(value=note.value), reason, self.profile.source)

    def _accept_parameter(self, given: _GivenValue, wire: str) -> None:
        name, value, origin = given
        reason = source = None
        if name in ("system", "stream"):
            # the plan places them and writes their notes
            self.unsent[name] = value, origin
            return
        if name == "format" and value == "text":
            self._add_note(given, "client", None, "text is what a server answers unasked")
            return
        if name in self.profile.ignores:
            reason, source = f"no effect: {self.profile.ignores[name]}", self.profile.source
        self.params[name], self.names[name] = value, wire
        self._add_note(given, "sent" if wire == name else "renamed", wire, reason, source)

    def _map_extra(self, extra: Mapping[str, _GivenValue]) -> dict[str, Any]:
        passed: dict[str, Any] = {}
        renamed: dict[str, _GivenValue] = {}
        taken = {wire: name for name, wire in self.names.items()}
        for name, given in extra.items():
            same = taken.get(name) or PROVIDER_NAMES.get(name)
            if same is not None and same in self.given and self.given[same].origin != "default":
                self._require_no_conflict(given, self.given[same])
                self._add_note(given, "dropped", None, f"{same} is set, and it is the same parameter")
            elif self._is_refused(given, name):
                pass
            elif name in self.provider.params or (name in self.wire and name not in PARAMETERS):
                self._rename_extra(given, self.provider.params.get(name, self.wire.get(name)), renamed)
            else:
                ignored = self.profile.ignores.get(name)
                reason = "passed through as it is" if ignored is None else f"no effect: {ignored}"
                passed[name] = given.value
                self._add_note(given, "sent", name, reason, clause=f"{DRAFT} 4.4")
        for wire, given in renamed.items():
            if not _add_member(passed, wire, given.value):
                self._add_note(given, "dropped", None, f"{wire} is set, and it is the same parameter")
            else:
                reason = "the name of this API"
                self._add_note(given, "renamed", wire, reason, self.provider.source, f"{DRAFT} 4.4")
        return passed

    def _rename_extra(self, given: _GivenValue, wire: str | None, renamed: dict[str, _GivenValue]) -> None:
        """Take a pass-through parameter that another API of this provider has, under another name or not."""
        if wire is None:
            self._reject(given, "this API has no such parameter", self.provider.source)
        else:
            renamed[wire] = given

    def _require_no_conflict(self, extra: _GivenValue, other: _GivenValue) -> None:
        """Raise UsageError if two arguments of one call set the same parameter, unless one may be dropped."""
        if extra.origin == other.origin == "override" and self.on_unsupported == "error":
            raise UsageError(
                f"extra contains {format_name(extra.name)}, and the argument {other.name} sets it too",
                code="usage.conflict",
                hint="pass only one of them",
            )

    def _map_client_parameter(self, given: _GivenValue) -> None:
        name, value, origin = given
        value = validate_parameter(name, value)
        reason = None
        if name == "cache" and value:
            reason = "answered from the cache when it can"
            self._map_prompt_cache(given)
        self.unsent[name] = value, origin
        if origin != "default" or name != "cache":
            self._add_note(given, "client", None, reason)

    def _map_prompt_cache(self, given: _GivenValue) -> None:
        """Set the switch of the provider's own cache, if its API has one."""
        wire = self._find_wire_name(given.name)
        if wire is not None and not self._is_refused(given, wire):
            self.params[given.name], self.names[given.name] = True, wire
            self._add_note(given, "renamed", wire, "switches the provider's prompt cache on")

    def _find_wire_name(self, name: str) -> str | None:
        for names in (self.profile.params, self.provider.params):
            if name in names:
                return names[name]
        return self.wire.get(name)

    def _find_exceeded_limit(self, name: str, value: Any) -> str | None:
        if name == "stop":
            most = self.provider.stop_max
            return f"at most {most} of them" if most is not None and len(value) > most else None
        low, high = self.provider.ranges.get(name, (None, None))
        if low is not None and value < low:
            return f"at least {low:g}"
        if high is not None and value > high:
            return f"at most {high:g}"
        return None

    def _describe_formats(self) -> str:
        formats = sorted(self.formats)
        return f"it takes only {' and '.join(formats)}" if formats else "it takes no format but text"

    def _reject(self, given: _GivenValue, reason: str, source: str, *, code: str = "llm.unsupported") -> None:
        """Raise the error, or drop the value with a note."""
        title, name = self.provider.title, given.name
        if self.on_unsupported != "error":
            self._add_note(given, "dropped", None, reason, source)
            if self.on_unsupported == "warn":
                self.warnings.append(f"{name} was not sent to {title}: {reason}")
            return
        if code == "llm.provider-range":
            raise ParameterError(
                f"{title} {reason.removeprefix('it ')} for the parameter {name}",
                code="llm.provider-range",
                clause=source,
                parameter=name,
                hint='on_unsupported="drop" sends the call without it',
            )
        hint = 'leave it out, or on_unsupported="drop" sends the call without it'
        if self.provider.dialect == "openai_responses" and self.profile.chat == "no-tools-while-reasoning":
            # the model has both APIs, and only one of them may have the parameter
            hint = f"{hint}, or set api=chat in the URI if the call has no tools"
        if code == "llm.no-format" and "json_schema" in self.formats:
            hint = 'use format=json_schema with schema=, or on_unsupported="drop"'
        raise UnsupportedError(
            f"{title} does not take the parameter {name} for this model: {reason}",
            code=code,
            parameter=name,
            model=self.model,
            source=source,
            hint=hint,
        )

    def _add_note(
        self,
        given: _GivenValue,
        action: Action,
        wire: str | None,
        reason: str | None = None,
        source: str | None = None,
        clause: str = f"{DRAFT} 6",
    ) -> None:
        self.notes.append(
            MappingNote(
                parameter=given.name,
                value=given.value,
                origin=given.origin,
                action=action,
                wire_name=wire,
                reason=reason,
                source=source,
                clause=clause,
            )
        )
