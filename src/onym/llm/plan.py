"""From a URI, messages and overrides to a `Plan`: what is sent, and where each value came from.

What does not change from call to call - the endpoint, its headers, the mapped parameters of the URI - is
worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from onym.errors import PolicyError, UnsupportedError, UsageError
from onym.llm._endpoint import Endpoint, find_endpoint
from onym.llm._learned import LESSONS, Lessons
from onym.llm._messages import Messages, to_messages, to_texts
from onym.llm._notes import not_for_embeddings, overruled, stream_note, system_note, uri_notes
from onym.llm._overrides import EMBED, Overrides, profile_layer, read_overrides
from onym.llm._plan import Frame, Operation, Plan
from onym.llm.dialects import Exchange, WireSpec
from onym.llm.mapping import Layer, Mapped, MappingNote, OnUnsupported, map_parameters
from onym.llm.types import DocumentPart, ImagePart, Message, Request, TextPart
from onym.uri._names import WELL_KNOWN

if TYPE_CHECKING:
    from onym.llm.embedded import Endpoint as Running
    from onym.llm.providers import ProviderTable
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI
    from onym.uri.secret import Secret

__all__ = ["Operation", "Plan", "Planner", "Settings", "plan"]

_NO_OVERRIDES = Overrides()
_JSON = (("Content-Type", "application/json"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a client was made with, beside the URI.

    `profiles` are the configuration's, by name; `environ` is where conventional key variables are
    looked for; `system_filter` gets a URI's `system` and returns what may be sent.
    """

    policy: Policy
    providers: ProviderTable
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_unsupported: OnUnsupported = "error"
    system_filter: Callable[[str], str] | None = None
    lessons: Lessons = field(default=LESSONS, repr=False)
    #: where the URI's own key is from
    key_given: str = "userinfo"


class _Side(NamedTuple):
    """What every call to one endpoint shares."""

    endpoint: Endpoint
    post: tuple[tuple[str, str | Secret], ...]
    get: tuple[tuple[str, str | Secret], ...]
    exchange: Exchange


def plan(uri: LLMURI, given: Messages, settings: Settings, **overrides: Any) -> Plan:
    """What a chat call would send. Nothing is sent."""
    return Planner(uri, settings).chat(given, overrides)


class Planner:
    """Plans of one URI. Cheap per call; shared between threads."""

    def __init__(self, uri: LLMURI, settings: Settings) -> None:
        self._settings = settings
        endpoint = find_endpoint(
            uri,
            providers=settings.providers,
            policy=settings.policy,
            environ=settings.environ,
            key_given=settings.key_given,
        )
        self._side = _side(endpoint)
        known = endpoint.provider.capabilities
        self._lacking = frozenset(name for name, has in known.items() if has == "no")
        self._schema: Mapping[str, Any] | None = None
        self._layers = (
            self._uri_layer(uri),
            *self._profile_layer(uri.fragment),
            Layer(origin="default", values={**endpoint.dialect.defaults, **endpoint.profile.defaults}),
        )
        notes, warnings = uri_notes(uri, endpoint, settings.profiles)
        self._notes = notes
        self._warnings = warnings
        self._settle()

    def _settle(self) -> None:
        """Work out what calls without overrides share, by what is known now."""
        version = self._settings.lessons.version
        self._mapped = self._map(())
        self._spec = WireSpec(names=self._mapped.names)
        #: by whether they stream
        self._frames: dict[bool, Frame] = {}
        self._version = version

    @property
    def endpoint(self) -> Endpoint:
        """Who is on the other side."""
        return self._side.endpoint

    def stale(self, now: float) -> bool:
        """Whether the credential is about to expire, `now` being seconds since the epoch."""
        credential = self._side.endpoint.credential
        return credential is not None and credential.expires is not None and credential.expires - now < _SOON

    def renewed(self, plan: Plan) -> Plan:
        """The same plan with the credential that comes next. May ask the network, and take a moment."""
        endpoint = self._side.endpoint
        if endpoint.credential is not None and endpoint.credential.renew is not None:
            self._side = _side(endpoint.with_credential(endpoint.credential.renew()))
            self._frames = {}
        return self._again(plan)

    def running(self, plan: Plan, where: Running) -> Plan:
        """The same plan, now that the embedded model runs there."""
        side = self._side
        credential = side.endpoint.credential
        if side.endpoint.origin != where.origin or credential is None or credential.secret != where.key:
            self._side = _side(side.endpoint.running_at(where.origin, where.key))
            self._frames = {}
        return self._again(plan)

    def _again(self, plan: Plan) -> Plan:
        """The same plan, now that the endpoint is another."""
        side = self._side
        headers = side.get if plan.body is None else side.post
        origin = side.endpoint.origin_of(plan.route)
        frame = replace(
            plan.frame, endpoint=side.endpoint, origin=origin, headers=headers, exchange=side.exchange
        )
        return replace(plan, frame=frame)

    def chat(self, given: Messages, overrides: Mapping[str, Any], *, stream: bool | None = None) -> Plan:
        """One inference. `stream` is what the caller's method says, None leaves it to URI and overrides."""
        messages = to_messages(given)
        mapped, call, spec, frames = self._for(overrides)
        schema = call.schema or self._schema
        if mapped.params.get("format") == "json_schema" and schema is None:
            raise UsageError("format=json_schema needs a schema: pass schema=", code="usage.no-schema")
        if stream is None:
            stream = mapped.stream is not None and mapped.stream[0]
        if self._lacking:
            self._require("chat")
            if stream:
                self._require("stream")
            if call.tools:
                self._require("tools")
        messages, notes = self._with_system(messages, mapped)
        if mapped.stream is not None:
            notes = (
                *notes,
                stream_note(mapped.stream[1], stream, self.endpoint.dialect.parameters.get("stream")),
            )
        request = Request(
            model=self._side.endpoint.model,
            messages=messages,
            params=mapped.params,
            extra=mapped.extra,
            tools=call.tools,
            tool_choice=call.tool_choice,
            schema=schema,
            stream=stream,
        )
        dialect = self._side.endpoint.dialect
        body = dialect.encode_chat(request, spec)
        if call.tools:
            mapped = replace(mapped, notes=overruled(mapped, body))
        frame = frames.get(stream)
        if frame is None:
            frame = frames[stream] = self._frame("chat", mapped, stream=stream)
        return Plan(frame, body, mapped.notes + notes if notes else mapped.notes)

    def _for(self, overrides: Mapping[str, Any]) -> tuple[Mapped, Overrides, WireSpec, dict[bool, Frame]]:
        """What a call with these overrides is made from."""
        if self._version != self._settings.lessons.version:
            self._settle()
        if not overrides:
            return self._mapped, _NO_OVERRIDES, self._spec, self._frames
        call = read_overrides(overrides)
        mapped = self._map(call.layers)
        return mapped, call, WireSpec(names=mapped.names), {}

    def embed(self, given: Any, overrides: Mapping[str, Any]) -> tuple[Plan, int]:
        """Vectors for texts, and how many of them."""
        texts = to_texts(given)
        self._require("embeddings")
        call = read_overrides(overrides, EMBED)
        mapped = self._map(call.layers)
        dialect = self._side.endpoint.dialect
        body = dialect.encode_embed(self._side.endpoint.model, texts, mapped.extra)
        frame = self._frame("embed", mapped)
        notes = tuple([not_for_embeddings(note) for note in mapped.notes])
        return Plan(frame, body, notes), len(texts)

    def models(self, overrides: Mapping[str, Any]) -> Plan:
        """The server's list of models."""
        self._require("models")
        mapped = self._map(read_overrides(overrides, ()).layers)
        frame = self._frame("models", mapped)
        return Plan(frame, None, tuple([note for note in mapped.notes if note.action == "client"]))

    def model(self, overrides: Mapping[str, Any]) -> Plan:
        """What the server says of the URI's model: asked by itself where the API can, else in the list."""
        endpoint = self._side.endpoint
        if endpoint.place.target(endpoint.dialect.routes, "model") is None:
            return self.models(overrides)
        mapped = self._map(read_overrides(overrides, ()).layers)
        frame = self._frame("model", mapped)
        body = {"model": endpoint.model} if endpoint.dialect.routes.model_body else None
        return Plan(frame, body, tuple([note for note in mapped.notes if note.action == "client"]))

    def _frame(self, operation: Operation, mapped: Mapped, *, stream: bool = False) -> Frame:
        side = self._side
        endpoint, routes = side.endpoint, side.endpoint.dialect.routes
        route = "stream" if stream and routes.stream is not None else operation
        target = endpoint.place.target(routes, route)
        if target is None:
            raise self._lacks(_CAPABILITY[operation])
        asks = operation == "models" or (operation == "model" and not routes.model_body)
        return Frame(
            operation=operation,
            endpoint=endpoint,
            origin=endpoint.origin_of(route),
            method="GET" if asks else "POST",
            target=target,
            headers=side.get if asks else side.post,
            exchange=side.exchange,
            timeout=mapped.timeout_ms / 1000,
            retries=mapped.retries,
            stream=stream,
            warnings=mapped.warnings,
            on_unsupported=self._settings.on_unsupported,
            lessons=self._settings.lessons,
        )

    def _map(self, call: tuple[Layer, ...]) -> Mapped:
        endpoint = self._side.endpoint
        mapped = map_parameters(
            (*call, *self._layers),
            provider=endpoint.provider,
            profile=endpoint.profile,
            model=endpoint.model,
            wire=endpoint.dialect.parameters,
            formats=endpoint.provider.formats & endpoint.dialect.formats,
            on_unsupported=self._settings.on_unsupported,
            learned=self._settings.lessons.of(endpoint.lessons),
        )
        return replace(mapped, notes=self._notes + mapped.notes, warnings=self._warnings + mapped.warnings)

    def _uri_layer(self, uri: LLMURI) -> Layer:
        params = uri.params
        values = {name: params[name] for name in WELL_KNOWN if name in params}
        if "system" in values:
            values["system"] = self._filtered(values["system"])
        spent = self._side.endpoint.place.names
        extra = {name: value for name, value in uri.extra.items() if name not in spent}
        return Layer(origin="uri", values=values, extra=extra)

    def _filtered(self, system: str) -> str:
        """A system prompt that came with a URI, which anybody may have written (draft 10.4)."""
        settings = self._settings
        if settings.system_filter is not None:
            return settings.system_filter(system)
        if not settings.policy.allow_system:
            raise PolicyError(
                "the policy does not let a URI set the system prompt",
                reason="system",
                endpoint=self._side.endpoint.text,
                hint="pass system_filter= to let a function of yours decide what of it is sent",
            )
        return system

    def _profile_layer(self, fragment: str | None) -> tuple[Layer, ...]:
        if fragment is None or fragment not in self._settings.profiles:
            return ()
        layer, self._schema = profile_layer(fragment, self._settings.profiles[fragment])
        return (layer,)

    def _require(self, capability: str) -> None:
        if capability in self._lacking:
            raise self._lacks(capability)

    def _lacks(self, capability: str) -> UnsupportedError:
        provider = self._side.endpoint.provider
        return UnsupportedError(
            f"{provider.title} has no {_CALLED.get(capability, capability)}",
            code=f"llm.no-{capability}",
            parameter=capability,
            model=self._side.endpoint.model,
            source=provider.source,
        )

    def _with_system(
        self, messages: tuple[Message, ...], mapped: Mapped
    ) -> tuple[tuple[Message, ...], tuple[MappingNote, ...]]:
        """The messages with the system prompt where it belongs, and a note on it."""
        own = False
        for message in messages:
            own = own or message.role == "system"
            if not isinstance(message.content, str):
                for part in message.content:
                    self._require(_NEEDS[type(part)])
        if mapped.system is None:
            if own or not self._side.endpoint.embedded:
                return messages, ()
            from onym.llm.weights import DEFAULT_SYSTEM  # 12 ms that no other provider needs

            system, origin = DEFAULT_SYSTEM, "default"
        else:
            system, origin = mapped.system
        if own and origin == "override":
            raise UsageError("system= and a message of role system: say it once")
        if own:
            return messages, (system_note(system, origin, "dropped"),)
        note = system_note(system, origin, "renamed", self.endpoint.dialect.parameters.get("system"))
        return (Message(role="system", content=system), *messages), (note,)


_CAPABILITY = {"chat": "chat", "embed": "embeddings", "models": "models", "model": "models"}
_NEEDS: Mapping[type, str] = {TextPart: "chat", ImagePart: "images", DocumentPart: "documents"}
#: seconds before its end at which a credential is renewed
_SOON = 60
_CALLED = {"models": "list of models", "stream": "streaming"}


def _side(endpoint: Endpoint) -> _Side:
    headers = endpoint.headers()
    exchange = Exchange(endpoint=endpoint.text, secrets=endpoint.secrets, model=endpoint.model)
    return _Side(endpoint, (*_JSON, *headers), headers, exchange)
