"""The plan of one call: mapped parameters, a note for each of them, and the request.

`map_parameters` merges the layers of a call and maps them for one model at one provider, by draft sections
6 and 9. It never drops a parameter silently: a parameter that is not supported raises an error or, if the
caller chooses so, becomes a note. `explain` prints a `Plan`, and the flow sends it. `RejectedParameters`
holds what servers rejected with a typed error code in this process.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

import msgspec

from onym.errors import (
    AuthenticationError,
    BadRequestError,
    NetError,
    NotFoundError,
    OnymWarning,
    ParameterError,
    ProviderError,
    ResolveError,
    UnsupportedError,
    UsageError,
)
from onym.llm.dialects import Exchange
from onym.llm.parameters import CLIENT_PARAMETERS, DRAFT, PARAMETERS, REQUEST_PARAMETERS, validate_parameter
from onym.llm.providers import ProviderTable, format_suggestion
from onym.net.messages import HTTPRequest, Origin, Reply
from onym.uri.parameters import PROVIDER_NAMES
from onym.uri.redact import redact
from onym.uri.secret import MARK, Secret

if TYPE_CHECKING:
    from onym.llm.dialects import Dialect
    from onym.llm.endpoint import Endpoint
    from onym.llm.profiles import Profile
    from onym.llm.providers import Provider

#: the typed codes by which an API says that a parameter, or this value of it, is not for this model
_PARAMETER_CODE, _VALUE_CODE = "unsupported_parameter", "unsupported_value"
#: lessons of one endpoint; what a server says of ever more values is not kept for ever
_MOST_REJECTIONS = 64
#: what the caller's own rules for the model are, and no parameter of the server's
_NEVER_DROPPED = frozenset({"system", "stream"})
_NO_REJECTIONS: Mapping[str, str] = {}


class RejectedParameters:
    """Refused parameters by endpoint and model, the latest `size` of them; threads may share it."""

    __slots__ = ("_known", "_lock", "_size", "version")

    def __init__(self, size: int = 512) -> None:
        self._known: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._lock = Lock()
        self._size = size
        #: grows with every lesson, so that what was worked out before can be seen to be old
        self.version = 0

    def get_rejections(self, endpoint: str) -> Mapping[str, str]:
        """What was refused to reason, for the endpoint that this text names; `find_rejection` reads it."""
        return self._known.get(endpoint, _NO_REJECTIONS)

    def add_rejection(self, endpoint: str, parameter: str, reason: str) -> None:
        """One more. The endpoint that learned longest ago is forgotten where there are too many."""
        with self._lock:
            known = {**self._known.get(endpoint, {}), parameter: reason}
            self._known[endpoint] = dict(list(known.items())[-_MOST_REJECTIONS:])
            self._known.move_to_end(endpoint)
            if len(self._known) > self._size:
                self._known.popitem(last=False)
            self.version += 1

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self.version += 1


REJECTED_PARAMETERS = RejectedParameters()


def find_rejection(learned: Mapping[str, str], wire: str, value: Any) -> str | None:
    """Why this is refused, None where nothing was learned of it: all values of it, or this one."""
    return (learned.get(wire) or learned.get(_make_value_key(wire, value))) if learned else None


def _make_value_key(wire: str, value: Any) -> str:
    octets = repr(value).encode("utf-8", "backslashreplace")
    return f"{wire} {blake2b(octets, digest_size=16).hexdigest()}"


def learn_rejection(plan: Plan, failure: NetError | ProviderError) -> Plan | None:
    """Remember what this failure teaches: the plan without the parameter, where it may be dropped.

    Only a parameter that stands in the body by that name can be: no server talks a system prompt away.
    """
    if not isinstance(failure, BadRequestError) or failure.provider_code not in (
        _PARAMETER_CODE,
        _VALUE_CODE,
    ):
        return None
    wire = failure.parameter
    note = next(
        (each for each in plan.notes if each.wire_name == wire and each.action in ("sent", "renamed")), None
    )
    if wire is None or note is None or note.parameter in _NEVER_DROPPED or plan.body is None:
        return None
    body = _remove_member(plan.body, wire.split("."))
    if body == plan.body:
        return None
    reason = f"the server refused it before in this process (HTTP {failure.status}, {failure.provider_code})"
    what = wire if failure.provider_code == _PARAMETER_CODE else _make_value_key(wire, note.value)
    plan.frame.lessons.add_rejection(plan.endpoint.rejection_key, what, reason)
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


def _remove_member(body: Mapping[str, Any], path: list[str]) -> Mapping[str, Any]:
    first, *rest = path
    if rest and isinstance(body.get(first), Mapping):
        return {**body, first: _remove_member(body[first], rest)}
    return {name: value for name, value in body.items() if name != first}


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
    `timeout_ms`, `retries` and `cache` for the client to act on. `warnings` are sentences for whoever makes
    the call.
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
                note = next(each for each in self._notes if each.parameter == name)
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


Operation: TypeAlias = Literal["chat", "embed", "models", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFrame:
    """What all plans of one kind of call share, made once: everything but the body."""

    operation: Operation
    endpoint: Endpoint
    #: None for the embedded model before it runs
    origin: Origin | None
    method: str
    target: str
    headers: tuple[tuple[str, str | Secret], ...] = field(repr=False)
    exchange: Exchange = field(repr=False)
    timeout: float
    retries: int
    stream: bool = False
    warnings: tuple[str, ...] = ()
    on_unsupported: OnUnsupported = "error"
    lessons: RejectedParameters = field(default=REJECTED_PARAMETERS, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """One request, before it is sent.

    `body` may hold `Secret` values where the program put some, as `headers` does: `repr`, `str` and
    `as_dict()` show `***` there. `notes` say where each value came from and what became of it.
    """

    frame: PlanFrame
    body: Mapping[str, Any] | None
    notes: tuple[MappingNote, ...] = ()

    def __repr__(self) -> str:
        return f"Plan({self.frame!r})"

    @property
    def operation(self) -> Operation:
        """What is asked for."""
        return self.frame.operation

    @property
    def endpoint(self) -> Endpoint:
        """Who is on the other side."""
        return self.frame.endpoint

    @property
    def method(self) -> str:
        """The request's method."""
        return self.frame.method

    @property
    def target(self) -> str:
        """The request's path."""
        return self.frame.target

    @property
    def headers(self) -> tuple[tuple[str, str | Secret], ...]:
        """The request's headers, the key among them as a `Secret`."""
        return self.frame.headers

    @property
    def exchange(self) -> Exchange:
        """What errors say of it."""
        return self.frame.exchange

    @property
    def timeout(self) -> float:
        """Seconds for the whole call."""
        return self.frame.timeout

    @property
    def retries(self) -> int:
        """Attempts after the first."""
        return self.frame.retries

    @property
    def stream(self) -> bool:
        """Whether the answer is streamed on the wire."""
        return self.frame.stream

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that the client hands to whoever makes the call."""
        return self.frame.warnings

    @property
    def dialect(self) -> Dialect:
        """The wire format."""
        return self.endpoint.dialect

    @property
    def url(self) -> str:
        """Where the request goes."""
        origin = self.frame.origin
        if origin is None:
            return f"http://127.0.0.1:(a port chosen at the start){self.target}"
        usual = {"https": 443, "http": 80}[origin.scheme]
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        return f"{origin.scheme}://{host}" + (f":{origin.port}" if origin.port != usual else "") + self.target

    @property
    def expires(self) -> float | None:
        """When the credential ends, in seconds since the epoch; None for one that does not."""
        credential = self.endpoint.credential
        return None if credential is None else credential.expires

    @property
    def route(self) -> str:
        """The operation's name among the routes: a stream may have one of its own."""
        apart = self.stream and self.dialect.routes.stream is not None
        return "stream" if apart else self.operation

    def with_next_page(self, query: str, left: float) -> Plan:
        """The plan of the next page of a list, for which so many seconds are left."""
        target = f"{self.target.partition('?')[0]}?{query}"
        return Plan(replace(self.frame, target=target, timeout=left), self.body, self.notes)

    def with_model_list(self) -> Plan | None:
        """The plan for the list of models in the place of one for a single model, where there is a list."""
        target = self.endpoint.place.build_target(self.dialect.routes, "models")
        if target is None:
            return None
        origin = self.endpoint.get_origin("models")
        frame = replace(self.frame, operation="models", method="GET", target=target, origin=origin)
        return Plan(frame, None, self.notes)

    @property
    def request(self) -> HTTPRequest:
        """The request itself, with the key in it. Raises CredentialError where the provider wants one."""
        frame = self.frame
        endpoint = frame.endpoint
        if frame.origin is None:
            raise UsageError("the model on this machine does not run yet", code="usage.not-running")
        if endpoint.unkeyed is not None:
            raise copy(endpoint.unkeyed)
        body = b"" if self.body is None else encode_body(self.body)
        headers = frame.headers
        if endpoint.is_signed:
            headers = endpoint.sign_request(frame.method, self.url, headers, body)
        return HTTPRequest(
            method=frame.method,
            origin=frame.origin,
            target=frame.target,
            headers=headers,
            body=body,
            credential=endpoint.credential_name,
        )

    def decode_error(self, reply: Reply, now: float) -> ProviderError:
        """The error that this reply means."""
        known = self.exchange
        dated = Exchange(endpoint=known.endpoint, secrets=known.secrets, model=known.model, now=now)
        error = self.dialect.decode_error(reply.status, reply.headers, reply.body, dated)
        self.add_hint(error)
        return error

    def add_hint(self, error: NetError | ProviderError) -> None:
        """Let the error's hint say what is known here of the model, the key and the host."""
        # merged import  # a failure alone needs it

        set_error_hint(error, self.endpoint, self.operation)

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain data for JSON, secrets masked."""
        endpoint, secrets = self.endpoint, self.endpoint.secrets
        return {
            "operation": self.operation,
            "endpoint": endpoint.text,
            "provider": endpoint.provider.name,
            "dialect": endpoint.dialect.name,
            "profile": endpoint.profile.family,
            "model": endpoint.model,
            "credential": None if endpoint.credential is None else endpoint.credential.source,
            "unkeyed": None if endpoint.unkeyed is None else str(endpoint.unkeyed),
            "method": self.method,
            "url": self.url,
            "headers": {name: MARK if isinstance(value, Secret) else value for name, value in self.headers},
            "body": _mask_secrets(self.body, secrets),
            "timeout": self.timeout,
            "retries": self.retries,
            "stream": self.stream,
            "notes": [_mask_secrets(note.as_dict(), secrets) for note in self.notes],
            "warnings": list(self.warnings),
        }


def encode_body(body: Mapping[str, Any]) -> bytes:
    """The body as JSON, secrets of pass-through parameters included."""
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        pass  # its text would hold the prompt
    raise UsageError("a text holds a lone surrogate, which no request can carry", code="usage.bad-message")


def _encode_special(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot stand in a request's body")


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_special)


def _mask_secrets(value: Any, secrets: Sequence[Secret]) -> Any:
    """`value` as plain data for people: no secret in it, whoever put it there."""
    if isinstance(value, Secret):
        return MARK
    if isinstance(value, str):
        return redact(value, secrets=secrets)
    if isinstance(value, Mapping):
        return {name: _mask_secrets(item, secrets) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mask_secrets(item, secrets) for item in value]
    return value


def set_error_hint(error: NetError | ProviderError, endpoint: Endpoint, operation: Operation) -> None:
    """Put into the error's hint how to go on, where the endpoint knows better than the error did."""
    hint = None
    if isinstance(error, ResolveError):
        hint = _suggest_alias(endpoint)
    elif isinstance(error, NotFoundError):
        if operation in ("chat", "embed") and endpoint.provider.capabilities["models"] != "no":
            hint = f"onym models list {endpoint.text} shows what there is"
    elif isinstance(error, AuthenticationError):
        hint = _describe_key_origin(endpoint)
    error.hint = hint or error.hint


def _suggest_alias(endpoint: Endpoint) -> str | None:
    """Aliases that a host of one word may have been meant for."""
    if endpoint.origin is None or "." in endpoint.origin.host:
        return None
    return format_suggestion(endpoint.origin.host, ProviderTable.builtin().aliases())


def _describe_key_origin(endpoint: Endpoint) -> str:
    if endpoint.credential is not None:
        return f"the key came from {redact(endpoint.credential.source, secrets=endpoint.secrets)}"
    names = endpoint.provider.key_variables
    return f"no key was sent; {f'export {names[0]}=… or ' if names else ''}point at one with ?auth=env:NAME"
