"""Build plans: from a URI, messages and overrides to a `Plan`.

A `Planner` resolves the endpoint, its headers and the URI's own parameters once and reuses them for each
call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from onym.errors import PolicyError, UnsupportedError, UsageError
from onym.llm import mapping, types
from onym.llm._arguments import Messages, Overrides, build_profile_layer, parse_overrides, to_messages
from onym.llm.dialects import Exchange, WireSpec
from onym.llm.dialects.codec import find_unsent, is_audio
from onym.llm.endpoint import Endpoint, resolve_endpoint
from onym.llm.parameters import DRAFT
from onym.llm.plan import Plan
from onym.llm.request_headers import HeaderPairs, merge_headers, parse_headers, require_allowed
from onym.uri.parameters import WELL_KNOWN, format_name

if TYPE_CHECKING:
    from onym.llm.embedded import EmbeddedEndpoint
    from onym.llm.providers import ProviderTable
    from onym.net.policy import Policy
    from onym.uri.llm import LLMURI
    from onym.uri.secret import Secret


def build_uri_notes(
    uri: LLMURI, endpoint: Endpoint, profiles: Mapping[str, Any]
) -> tuple[tuple[mapping.MappingNote, ...], tuple[str, ...]]:
    """Return notes and warnings for the parts of the URI that are not sent as parameters."""
    notes: list[mapping.MappingNote] = []
    warnings: list[str] = []
    spent = endpoint.place.parameter_names
    for used in endpoint.place.used:
        note = _make_note(used.parameter, used.value, used.origin, "renamed", used.wire, used.reason, "4.4")
        notes.append(replace(note, source=used.source or endpoint.provider.source))
    if uri.label and endpoint.label is not None:
        header = endpoint.label_header
        reason = None if header else f"{endpoint.provider.title} has no header for this label"
        notes.append(
            _make_note("label", uri.label, "uri", "sent" if header else "dropped", header, reason, "4.2.1")
        )
    if "auth" in uri.params:
        notes.append(
            _make_note("auth", uri.params["auth"], "uri", "client", None, "names the key; never sent", "10.1")
        )
    if uri.fragment is not None:
        chosen = "chooses this profile" if uri.fragment in profiles else "no profile has this name"
        notes.append(
            _make_note("fragment", uri.fragment, "uri", "client", None, f"{chosen}; never sent", "4.5")
        )
    for name in uri.withheld:
        if name in spent:
            continue
        reason = "it would redirect or replace the request, or it carries a credential"
        notes.append(_make_note(name, uri.params[name], "uri", "withheld", None, reason, "4.4"))
        warnings.append(f"the URI's parameter {format_name(name)} was not sent: {reason}")
    return tuple(notes), tuple(warnings)


def _make_note(
    parameter: str,
    value: Any,
    origin: str,
    action: mapping.Action,
    wire: str | None,
    reason: str | None,
    section: str,
) -> mapping.MappingNote:
    return mapping.MappingNote(
        parameter=parameter,
        value=value,
        origin=origin,
        action=action,
        wire_name=wire,
        reason=reason,
        clause=f"{DRAFT} {section}",
    )


def build_system_note(
    system: str, origin: str, action: mapping.Action, name: str | None = None
) -> mapping.MappingNote:
    """Return the note for the system prompt."""
    wire = reason = None
    if action == "dropped":
        reason = "the messages contain a system message"
    else:
        wire = name or "messages[0]"
        if origin == "uri":
            reason = "it came with the URI: trust it as you trust the author of the URI"
    return _make_note("system", system, origin, action, wire, reason, "10.4")


def build_stream_note(origin: str, stream: bool, name: str | None) -> mapping.MappingNote:
    """Return the note for the parameter `stream`."""
    action: mapping.Action = "client" if not stream else "sent" if name == "stream" else "renamed"
    return _make_note("stream", stream, origin, action, name if stream else None, None, "6")


def mark_unsent(
    mapped: mapping.MappedParameters, body: Mapping[str, Any], on_unsupported: mapping.OnUnsupported
) -> mapping.MappedParameters:
    """Note the pass-through parameters for which the body has another value, set by another parameter.

    An argument of the call replaces a value of the URI or of a profile, and a note says so. Raises UsageError
    if both are arguments of the call, unless `on_unsupported` allows to drop one.
    """
    notes, warnings = list(mapped.notes), list(mapped.warnings)
    for place, note in enumerate(mapped.notes):
        name = note.parameter
        if note.action != "sent" or name not in mapped.extra:
            continue
        unsent = list(find_unsent(body, {name: mapped.extra[name]}))
        if not unsent:
            continue
        titles = " and ".join(map(format_name, unsent))
        reason = f"another argument or parameter sets {titles}"
        if note.origin == "override" and on_unsupported == "error":
            raise UsageError(
                f"extra contains {titles}, which another argument of this call sets too",
                code="usage.conflict",
                hint="pass only one of them",
            )
        if note.origin == "override" and on_unsupported == "warn":
            warnings.append(f"{titles} in extra was not sent: another argument sets it")
        if unsent == [name]:
            notes[place] = replace(note, action="dropped", wire_name=None, reason=reason)
        else:
            notes[place] = replace(note, reason=f"passed through, except that {reason}")
    return replace(mapped, notes=tuple(notes), warnings=tuple(warnings))


def drop_replaced_tools(mapped: mapping.MappedParameters) -> mapping.MappedParameters:
    """Drop tools of the URI or a profile: those of the call replace them, and its own `extra` adds to them.

    A URI could otherwise give a program's conversation to a tool that the program did not choose.
    """
    notes = [
        replace(note, action="dropped", wire_name=None, reason="an argument of the call sets it")
        if note.parameter == "tools" and note.origin != "override"
        else note
        for note in mapped.notes
    ]
    if notes == list(mapped.notes):
        return mapped
    extra = {name: value for name, value in mapped.extra.items() if name != "tools"}
    return replace(mapped, extra=extra, notes=tuple(notes))


def _build_notes_of_headers(
    headers: Iterable[tuple[str, str | Secret]], origin: str
) -> tuple[mapping.MappingNote, ...]:
    return tuple(
        mapping.MappingNote(
            parameter=f"header {name.lower()}",
            value=value,
            origin=origin,
            action="sent",
            wire_name=f"header {name}",
        )
        for name, value in headers
    )


def _add_header_notes(
    notes: tuple[mapping.MappingNote, ...], headers: HeaderPairs
) -> tuple[mapping.MappingNote, ...]:
    """Return the notes with those about a call's headers, which replace weaker ones."""
    if not headers:
        return notes
    added = _build_notes_of_headers(headers, "override")
    replaced = {note.parameter for note in added}
    return (*(note for note in notes if note.parameter not in replaced), *added)


def _select_client_notes(mapped: mapping.MappedParameters) -> tuple[mapping.MappingNote, ...]:
    """Return the notes about what a list of models has, too: headers, and what the client itself uses."""
    return tuple(
        [note for note in mapped.notes if note.action == "client" or note.parameter.startswith("header ")]
    )


def _drop_well_known(note: mapping.MappingNote, title: str) -> mapping.MappingNote:
    if note.parameter not in WELL_KNOWN or note.action not in ("sent", "renamed"):
        return note
    return replace(note, action="dropped", wire_name=None, reason=f"a call for {title} has no such parameter")


_NO_OVERRIDES = Overrides()
_JSON_HEADERS = (("Content-Type", "application/json"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """The settings of a client besides the URI.

    `profiles` are the configuration's, by name. `environ` has the conventional key variables. `system_filter`
    gets a URI's `system` and returns the text to send. `key` takes precedence over every other credential.
    With `tls_loopback`, servers on this computer have TLS.
    `headers` are those of the endpoint in the configuration.
    """

    policy: Policy
    providers: ProviderTable
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_unsupported: mapping.OnUnsupported = "error"
    system_filter: Callable[[str], str] | None = None
    headers: HeaderPairs = ()
    lessons: mapping.RejectedParameters = field(default=mapping.REJECTED_PARAMETERS, repr=False)
    key: Secret | None = field(default=None, repr=False)
    #: returns the variable of a proxy that Onym was not told to use, if one is set
    find_unused_proxy: Callable[[], str | None] | None = None
    tls_loopback: bool = False


class _EndpointState(NamedTuple):
    """An endpoint with the values that all calls to it share."""

    endpoint: Endpoint
    post: tuple[tuple[str, str | Secret], ...]
    get: tuple[tuple[str, str | Secret], ...]
    exchange: Exchange


def build_plan(uri: LLMURI, given: Messages, settings: PlannerSettings, **overrides: Any) -> Plan:
    """Return the plan of a chat call."""
    return Planner(uri, settings).chat(given, overrides)


class Planner:
    """Plans of one URI. Cheap per call; shared between threads."""

    def __init__(self, uri: LLMURI, settings: PlannerSettings) -> None:
        self._settings = settings
        endpoint = resolve_endpoint(
            uri,
            providers=settings.providers,
            policy=settings.policy,
            environ=settings.environ,
            key=settings.key,
            tls_loopback=settings.tls_loopback,
        )
        # those of the row are the provider's own, so the policy does not concern them
        self._headers: HeaderPairs = ()
        if settings.headers:
            self._headers = parse_headers(dict(settings.headers), endpoint.provider.key_headers)
            require_allowed(self._headers, settings.policy, endpoint.text)
        self._side = self._build_endpoint_state(endpoint)
        known = endpoint.provider.capabilities
        self._lacking = frozenset(name for name, has in known.items() if has == "no")
        self._schema: Mapping[str, Any] | None = None
        self._layers = (
            self._build_uri_layer(uri),
            *self._build_profile_layers(uri.fragment),
            mapping.ParameterLayer(
                origin="default", values={**endpoint.dialect.defaults, **endpoint.profile.defaults}
            ),
        )
        notes, warnings = build_uri_notes(uri, endpoint, settings.profiles)
        self._notes = notes + self._build_header_notes()
        self._warnings = warnings
        self._refresh_shared()

    def _refresh_shared(self) -> None:
        """Map the parameters of calls without overrides again, with the rejections that are known now."""
        version = self._settings.lessons.version
        self._mapped = self._map_layers(())
        self._spec = self._make_spec(self._mapped)
        #: by whether they stream
        self._frames: dict[bool, Plan] = {}
        self._version = version

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of all plans."""
        return self._side.endpoint

    def is_credential_stale(self, now: float) -> bool:
        """Whether the credential is about to expire; `now` is seconds since 1970."""
        credential = self._side.endpoint.credential
        return (
            credential is not None
            and credential.expires is not None
            and credential.expires - now < _RENEW_BEFORE
        )

    def with_renewed_credential(self, plan: Plan) -> Plan:
        """Return the plan with a renewed credential. May send requests."""
        endpoint = self._side.endpoint
        if endpoint.credential is not None and endpoint.credential.renew is not None:
            self._side = self._build_endpoint_state(endpoint.with_credential(endpoint.credential.renew()))
            self._frames = {}
        return self._rebind_plan(plan)

    def with_running_server(self, plan: Plan, server: EmbeddedEndpoint) -> Plan:
        """Return the plan with the origin and key of the running embedded model."""
        side = self._side
        credential = side.endpoint.credential
        if side.endpoint.origin != server.origin or credential is None or credential.secret != server.key:
            self._side = self._build_endpoint_state(
                side.endpoint.with_running_server(server.origin, server.key)
            )
            self._frames = {}
        return self._rebind_plan(plan)

    def _rebind_plan(self, plan: Plan) -> Plan:
        """Return the plan for the changed endpoint."""
        side = self._side
        headers = merge_headers(side.get if plan.body is None else side.post, plan.call_headers)
        origin = side.endpoint.get_origin(plan.route)
        return structs.replace(
            plan, endpoint=side.endpoint, origin=origin, headers=headers, exchange=side.exchange
        )

    def _build_endpoint_state(self, endpoint: Endpoint) -> _EndpointState:
        headers = endpoint.build_headers()
        if self._headers:
            headers = merge_headers(headers, self._headers)
        return _EndpointState(endpoint, (*_JSON_HEADERS, *headers), headers, endpoint.make_exchange())

    def _build_header_notes(self) -> tuple[mapping.MappingNote, ...]:
        """Return notes about the headers of every call."""
        stronger = {name.lower() for name, _ in self._headers}
        row = [
            (name, value)
            for name, value in self.endpoint.provider.headers.items()
            if name.lower() not in stronger
        ]
        return (
            *_build_notes_of_headers(row, "provider"),
            *_build_notes_of_headers(self._headers, "endpoint"),
        )

    def chat(self, given: Messages, overrides: Mapping[str, Any], *, stream: bool | None = None) -> Plan:
        """Plan one inference. With `stream` None, the URI and the overrides decide."""
        messages = to_messages(given)
        mapped, call, spec, frames = self._prepare_call(overrides)
        schema = call.schema or self._schema
        if mapped.params.get("format") == "json_schema" and schema is None:
            raise UsageError("format=json_schema needs a schema: pass schema=", code="usage.no-schema")
        if stream is None:
            stream = mapped.stream is not None and mapped.stream[0]
        has_tools = bool(call.tools or call.provider_tools)
        if self._lacking or has_tools:
            self._require_features(mapped, stream=stream, tools=has_tools)
        choice = call.tool_choice
        if choice is not None:
            choice, mapped = self._map_tool_choice(choice, mapped)
        messages, notes = self._insert_system(messages, mapped)
        if mapped.stream is not None:
            wire = self.endpoint.dialect.parameters.get("stream")
            notes = (*notes, build_stream_note(mapped.stream[1], stream, wire))
        request = types.Request(
            model=self._side.endpoint.model,
            messages=messages,
            params=mapped.params,
            extra=mapped.extra,
            tools=call.tools,
            provider_tools=call.provider_tools,
            tool_choice=choice,
            schema=schema,
            stream=stream,
        )
        dialect = self._side.endpoint.dialect
        body = dialect.encode_chat(request, spec)
        if schema is not None or call.tools:
            mapped = self._report_schemas(request, mapped)
        if mapped.extra:
            mapped = mark_unsent(mapped, body, self._settings.on_unsupported)
        frame = frames.get(stream)
        if frame is None:
            frame = self._build_frame("chat", mapped, call.headers, stream=stream)
            if call.idle_timeout is not None:
                frame = structs.replace(frame, idle_timeout=call.idle_timeout)
            frames[stream] = frame
        return structs.replace(frame, body=body, notes=_add_header_notes(mapped.notes + notes, call.headers))

    def _require_features(self, mapped: mapping.MappedParameters, *, stream: bool, tools: bool) -> None:
        """Raise UnsupportedError if the endpoint lacks what a chat call needs."""
        self._require_capability("chat")
        if stream:
            self._require_capability("stream")
        if tools:
            self._require_capability("tools")
            self._require_tools(mapped)

    def _report_schemas(
        self, request: types.Request, mapped: mapping.MappedParameters
    ) -> mapping.MappedParameters:
        """Return the parameters with a note and a warning for each schema that cannot be strict."""
        convert = getattr(self._side.endpoint.dialect, "convert_schema", None)
        if convert is None:
            return mapped
        schemas = {f"the tool {tool.name}": tool.parameters for tool in request.tools if tool.strict}
        if request.params.get("format") == "json_schema" and request.schema is not None:
            schemas["schema"] = request.schema
        for title, schema in schemas.items():
            obstacle = convert(schema).obstacle if schema else None
            if obstacle is not None:
                reason = f"the provider may not enforce it completely: {obstacle}"
                note = _make_note(title, "a JSON Schema", "override", "sent", None, reason, "6")
                warning = f"{title} was sent, but {reason}"
                mapped = replace(mapped, notes=(*mapped.notes, note), warnings=(*mapped.warnings, warning))
        return mapped

    def _map_tool_choice(
        self, choice: str, mapped: mapping.MappedParameters
    ) -> tuple[str | None, mapping.MappedParameters]:
        """Return the tool choice to send, and the parameters with a note if it was dropped."""
        endpoint = self._side.endpoint
        refusal = endpoint.find_choice_refusal(choice, mapped.extra)
        if refusal is None:
            return choice, mapped
        note = mapping.drop_tool_choice(choice, refusal, endpoint, self._settings.on_unsupported)
        warnings = mapped.warnings
        if self._settings.on_unsupported == "warn":
            warnings += (f"tool_choice was not sent to {endpoint.provider.title}: {refusal.reason}",)
        return None, replace(mapped, notes=(*mapped.notes, note), warnings=warnings)

    def _prepare_call(
        self, overrides: Mapping[str, Any]
    ) -> tuple[mapping.MappedParameters, Overrides, WireSpec, dict[bool, Plan]]:
        """Return the mapped parameters, overrides, wire names and frames of a call."""
        if self._version != self._settings.lessons.version:
            self._refresh_shared()
        if not overrides:
            return self._mapped, _NO_OVERRIDES, self._spec, self._frames
        call = parse_overrides(overrides)
        mapped = self._map_layers(call.layers)
        if "tools" in mapped.extra and (call.tools or call.provider_tools):
            mapped = drop_replaced_tools(mapped)
        return mapped, call, self._make_spec(mapped), {}

    def _make_spec(self, mapped: mapping.MappedParameters) -> WireSpec:
        endpoint = self._side.endpoint
        reasons = endpoint.profile.is_reasoning(mapped.extra)
        return WireSpec(names=mapped.names, provider=endpoint.provider.name, reasons=reasons)

    def plan_inputs(
        self, name: types.OperationName, inputs: Any, overrides: Mapping[str, Any], *, expected: int
    ) -> Plan:
        """Plan an operation on inputs that are not messages, which has `expected` results.

        It takes no sampling parameters: a note says that they were dropped.
        """
        operation = types.OPERATIONS[name]
        self._require_capability(operation.capability)
        call = parse_overrides(overrides, operation.arguments)
        mapped = self._map_layers(call.layers)
        endpoint = self._side.endpoint
        encode = getattr(endpoint.dialect, operation.encoder, None)
        if encode is None:
            raise self._make_capability_error(operation.capability)
        body = encode(endpoint.model, inputs, mapped.extra)
        notes = tuple([_drop_well_known(note, operation.title) for note in mapped.notes])
        frame = self._build_frame(name, mapped, call.headers)
        notes = _add_header_notes(notes, call.headers)
        return structs.replace(frame, body=body, notes=notes, expected=expected)

    def models(self, overrides: Mapping[str, Any]) -> Plan:
        """Plan a request for the server's list of models."""
        self._require_capability("models")
        call = parse_overrides(overrides, ())
        mapped = self._map_layers(call.layers)
        notes = _add_header_notes(_select_client_notes(mapped), call.headers)
        return structs.replace(self._build_frame("models", mapped, call.headers), notes=notes)

    def model(self, overrides: Mapping[str, Any]) -> Plan:
        """Plan a request for the URI's model, or for the list of models if the API has no other way."""
        endpoint = self._side.endpoint
        if endpoint.place.build_target(endpoint.dialect.routes, "model") is None:
            return self.models(overrides)
        call = parse_overrides(overrides, ())
        mapped = self._map_layers(call.layers)
        body = {"model": endpoint.model} if endpoint.dialect.routes.model_body else None
        notes = _add_header_notes(_select_client_notes(mapped), call.headers)
        return structs.replace(self._build_frame("model", mapped, call.headers), body=body, notes=notes)

    def _build_frame(
        self,
        operation: types.OperationName,
        mapped: mapping.MappedParameters,
        headers: HeaderPairs = (),
        *,
        stream: bool = False,
    ) -> Plan:
        side = self._side
        endpoint, routes = side.endpoint, side.endpoint.dialect.routes
        route = "stream" if stream and routes.find("stream") is not None else operation
        target = endpoint.place.build_target(routes, route)
        if target is None:
            raise self._make_capability_error(types.OPERATIONS[operation].capability)
        asks = operation == "models" or (operation == "model" and not routes.model_body)
        shared = side.get if asks else side.post
        if headers:
            parse_headers(dict(headers), endpoint.provider.key_headers)
            require_allowed(headers, self._settings.policy, endpoint.text)
        return Plan(
            operation=operation,
            endpoint=endpoint,
            origin=endpoint.get_origin(route),
            method="GET" if asks else "POST",
            target=target,
            headers=merge_headers(shared, headers) if headers else shared,
            call_headers=headers,
            exchange=side.exchange,
            timeout=mapped.timeout_ms / 1000,
            retries=mapped.retries,
            stream=stream,
            warnings=mapped.warnings,
            on_unsupported=self._settings.on_unsupported,
            lessons=self._settings.lessons,
            find_unused_proxy=self._settings.find_unused_proxy,
        )

    def _map_layers(self, call: tuple[mapping.ParameterLayer, ...]) -> mapping.MappedParameters:
        endpoint = self._side.endpoint
        mapped = mapping.map_parameters(
            (*call, *self._layers),
            provider=endpoint.provider,
            profile=endpoint.profile,
            model=endpoint.model,
            wire=endpoint.dialect.parameters,
            formats=endpoint.provider.formats & endpoint.dialect.formats,
            on_unsupported=self._settings.on_unsupported,
            learned=self._settings.lessons.get_rejections(endpoint.rejection_key),
        )
        return replace(mapped, notes=self._notes + mapped.notes, warnings=self._warnings + mapped.warnings)

    def _build_uri_layer(self, uri: LLMURI) -> mapping.ParameterLayer:
        params = uri.params
        values = {name: params[name] for name in WELL_KNOWN if name in params}
        if "system" in values:
            values["system"] = self._filter_system(values["system"])
        spent = self._side.endpoint.place.parameter_names
        extra = {name: value for name, value in uri.extra.items() if name not in spent}
        return mapping.ParameterLayer(origin="uri", values=values, extra=extra)

    def _filter_system(self, system: str) -> str:
        """Return the part of a URI's system prompt that may be sent (draft 10.4)."""
        settings = self._settings
        if settings.system_filter is not None:
            return settings.system_filter(system)
        if not settings.policy.allow_system:
            raise PolicyError(
                "the policy does not let a URI set the system prompt",
                reason="system",
                endpoint=self._side.endpoint.text,
                hint="Pass system_filter=, a function that returns the text to send.",
            )
        return system

    def _build_profile_layers(self, fragment: str | None) -> tuple[mapping.ParameterLayer, ...]:
        if fragment is None or fragment not in self._settings.profiles:
            return ()
        layer, self._schema = build_profile_layer(fragment, self._settings.profiles[fragment])
        return (layer,)

    def _require_capability(self, capability: str) -> None:
        if capability in self._lacking:
            raise self._make_capability_error(capability)

    def _require_tools(self, mapped: mapping.MappedParameters) -> None:
        """Raise UnsupportedError if the API of this endpoint takes no tools for the model."""
        endpoint = self._side.endpoint
        if endpoint.dialect.name != "openai_chat":
            return
        profile = endpoint.profile
        reason = profile.find_chat_gap(mapped.extra, tools=True)
        if reason is not None:
            effort = "" if profile.reasoning == "always" else ", or set reasoning_effort=none"
            raise UnsupportedError(
                f"{endpoint.provider.title} does not take tools for this model: {reason}",
                code="llm.no-tools",
                parameter="tools",
                model=endpoint.model,
                source=profile.source,
                hint=f"Set api=responses in the URI{effort}.",
            )

    def _make_capability_error(self, capability: str) -> UnsupportedError:
        provider = self._side.endpoint.provider
        return UnsupportedError(
            f"{provider.title} has no {_CAPABILITY_TITLES.get(capability, capability)}",
            code=f"llm.no-{capability}",
            parameter=capability,
            model=self._side.endpoint.model,
            source=provider.source,
        )

    def _insert_system(
        self, messages: tuple[types.Message, ...], mapped: mapping.MappedParameters
    ) -> tuple[tuple[types.Message, ...], tuple[mapping.MappingNote, ...]]:
        """Return the messages with the system prompt, and a note about it."""
        own = False
        for message in messages:
            own = own or message.role == "system"
            if not isinstance(message.content, str):
                for part in message.content:
                    if not is_audio(part):
                        self._require_capability(_PART_CAPABILITIES[type(part)])
        if mapped.system is None:
            if own or not self._side.endpoint.is_embedded:
                return messages, ()
            from onym.llm.embedded import DEFAULT_SYSTEM  # 12 ms that no other provider needs

            system, origin = DEFAULT_SYSTEM, "default"
        else:
            system, origin = mapped.system
        if own and origin == "override":
            raise UsageError("pass either system= or a message with the role system, not both")
        if own:
            return messages, (build_system_note(system, origin, "dropped"),)
        note = build_system_note(system, origin, "renamed", self.endpoint.dialect.parameters.get("system"))
        return (types.Message(role="system", content=system), *messages), (note,)


_PART_CAPABILITIES: Mapping[type, str] = {
    types.TextPart: "chat",
    types.ImagePart: "images",
    types.DocumentPart: "documents",
}
#: seconds before its end at which a credential is renewed
_RENEW_BEFORE = 60
_CAPABILITY_TITLES = {
    **{row.capability: row.title for row in types.OPERATIONS.values()},
    "stream": "streaming",
}
