"""A pydantic-ai model on an `llm://` URI, and the conversion of messages and responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from onym.bridges._llm_client import EndpointClient, decode_carried, encode_carried
from onym.bridges._sdk import require_extra
from onym.errors import NetError, ProviderError, UsageError
from onym.llm import types
from onym.llm.client import wrap_secret
from onym.llm.parameters import list_sdk_names

if TYPE_CHECKING:
    from onym.llm.flow import AsyncStream

with require_extra("pydantic_ai", "pydantic-ai"):
    from pydantic_ai import exceptions, messages
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, check_allow_model_requests
    from pydantic_ai.profiles import ModelProfile
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RequestUsage


#: finish reason -> pydantic-ai's name; it has no names for other reasons
_FINISH_REASONS: Final[Mapping[str, messages.FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
    "content_filter": "content_filter",
}


#: API formats with cache points, as in pydantic-ai's own models
_MARKING_FORMATS: Final = frozenset({"anthropic_messages", "anthropic_vertex", "bedrock_converse"})


def from_model_message(
    message: messages.ModelMessage, system: str, *, marks: bool = False
) -> Iterator[types.Message]:
    """Convert a message to turns; each result of a tool is its own turn. `system` is the provider.

    `marks` tells whether the provider takes cache points; pydantic-ai leaves them out for others.

    Raises pydantic-ai's UserError for an unsupported part.
    """
    if isinstance(message, messages.ModelResponse):
        yield _convert_response(message, system)
        return
    files: list[Any] = []
    for part in message.parts:
        if isinstance(part, messages.SystemPromptPart):
            yield types.Message(role="system", content=part.content)
        elif isinstance(part, messages.UserPromptPart):
            yield types.Message(role="user", content=_convert_content(part.content, marks=marks))
        elif isinstance(part, messages.ToolReturnPart):
            text, more = part.model_response_str_and_user_content()
            files.extend(more)
            yield types.Message(role="tool", content=text, tool_call_id=part.tool_call_id)
        else:
            yield _convert_retry(part)
    if files:
        yield types.Message(role="user", content=_convert_content(files, marks=marks))


def _convert_retry(part: Any) -> types.Message:
    """Convert a request to try again, which is about a tool call or about the answer."""
    response = getattr(part, "model_response", None)
    if not callable(response):
        raise exceptions.UserError(f"a {type(part).__name__} is not supported")
    if getattr(part, "tool_name", None) is not None:
        return types.Message(role="tool", content=response(), tool_call_id=part.tool_call_id)
    return types.Message(role="user", content=response())


def _convert_content(content: str | Iterable[Any], *, marks: bool) -> types.Content:
    if isinstance(content, str):
        return content
    parts: list[types.ContentPart] = []
    for item in content:
        if not isinstance(item, messages.CachePoint):
            parts.append(_convert_part(item))
        elif marks and parts:
            parts[-1] = replace(parts[-1], cache_control={"type": "ephemeral", "ttl": item.ttl})
    return tuple(parts)


def _convert_part(item: Any) -> types.ContentPart:
    if isinstance(item, str):
        return types.TextPart(item)
    if isinstance(item, messages.TextContent):
        return types.TextPart(item.content)
    if isinstance(item, messages.ImageUrl):
        return types.ImagePart(url=item.url)
    if isinstance(item, messages.DocumentUrl):
        return types.DocumentPart(url=item.url, media_type=item.media_type)
    if isinstance(item, messages.AudioUrl):
        return types.DocumentPart(url=item.url, media_type=item.media_type)
    if isinstance(item, messages.BinaryContent):
        kind = types.ImagePart if item.is_image else types.DocumentPart
        if item.is_image or item.is_document or item.is_audio:
            return kind(data=item.data, media_type=item.media_type)
    raise exceptions.UserError(
        f"a {type(item).__name__} is not supported; use text, images, audio or documents"
    )


def _convert_response(response: messages.ModelResponse, system: str) -> types.Message:
    texts = [part.content for part in response.parts if isinstance(part, messages.TextPart)]
    calls = [
        types.ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.args_as_json_str())
        for part in response.parts
        if isinstance(part, messages.ToolCallPart)
    ]
    details = response.provider_details or {}
    return types.Message(
        role="assistant",
        content="\n\n".join(texts),
        tool_calls=tuple(calls),
        carried=decode_carried(details.get("onym")) or _find_reasoning(response, system)
        if response.provider_name == system
        else None,
    )


def _find_reasoning(response: messages.ModelResponse, system: str) -> types.Carried | None:
    """Return the reasoning of a turn that pydantic-ai's own model for this provider made.

    It notes the member of the message in the part's ID.
    """
    members: dict[str, Any] = {}
    for part in response.parts:
        if isinstance(part, messages.ThinkingPart) and part.id in ("reasoning_content", "reasoning"):
            members[part.id] = members.get(part.id, "") + part.content
    return types.Carried(dialect="openai_chat", parts=(members,), provider=system) if members else None


def to_model_response(completion: types.Completion, system: str, url: str) -> messages.ModelResponse:
    """Convert a complete answer; `system` and `url` are the provider's name and endpoint."""
    parts: list[messages.ModelResponsePart] = []
    if completion.reasoning:
        parts.append(messages.ThinkingPart(content=completion.reasoning))
    if completion.text:
        parts.append(messages.TextPart(content=completion.text))
    parts.extend(
        messages.ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id)
        for call in completion.tool_calls
    )
    return messages.ModelResponse(
        parts=parts,
        usage=to_request_usage(completion.usage),
        model_name=completion.model,
        provider_name=system,
        provider_url=url,
        provider_response_id=completion.request_id,
        provider_details=_build_provider_details(completion.finish_reason, completion.carried),
        finish_reason=_FINISH_REASONS.get(completion.finish_reason),
    )


def _build_provider_details(reason: str, carried: types.Carried | None) -> dict[str, Any]:
    """Return the provider's state of a turn, which is sent back with it."""
    return {"finish_reason": reason} | ({} if carried is None else {"onym": encode_carried(carried)})


def to_request_usage(usage: types.Usage) -> RequestUsage:
    """Return token counts; missing ones are 0, because pydantic-ai adds them up."""
    details = {} if usage.reasoning_tokens is None else {"reasoning_tokens": usage.reasoning_tokens}
    return RequestUsage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=usage.cached_tokens or 0,
        details=details,
    )


#: pydantic-ai's settings -> well-known parameters
_SETTINGS: Final = {named: name for name, named in list_sdk_names("pydantic_ai").items()}
#: settings that are sent to the provider unchanged
_PASSED: Final = ("parallel_tool_calls", "presence_penalty", "frequency_penalty", "logit_bias")


class OnymModel(Model[Any]):
    """A model for pydantic-ai's agents that calls through Onym: `Agent(OnymModel("llm://openai/gpt-5.4-mini"))`.

    The first argument is a URI or the name of an endpoint, as for `onym.connect`. `key`, `policy`, `network`,
    `config`, `providers`, `environ`, `on_unsupported` and `system_filter` are arguments of `onym.connect`.
    `settings` and `profile` are pydantic-ai's; a setting overrides the URI's parameter.

    Errors of the provider become pydantic-ai's errors, with Onym's error as the cause.
    """

    unsupported_settings = frozenset({"extra_headers", "service_tier"})

    def __init__(
        self,
        uri: Any,
        *,
        settings: ModelSettings | None = None,
        profile: ModelProfile | None = None,
        key: Any = None,
        policy: Any = None,
        network: Any = None,
        config: Any = None,
        providers: Any = None,
        environ: Mapping[str, str] | None = None,
        on_unsupported: Any = None,
        system_filter: Callable[[str], str] | None = None,
    ) -> None:
        # from here on no frame of a traceback contains the text with the key
        uri, key = wrap_secret(uri), wrap_secret(key)
        self._link = EndpointClient(
            uri, key=key, policy=policy, network=network, config=config, providers=providers,
            environ=environ, on_unsupported=on_unsupported, system_filter=system_filter,
        )  # fmt: skip
        endpoint = self._link.endpoint
        self._name = endpoint.model
        self._system = endpoint.provider.name
        self._base_url = endpoint.text
        super().__init__(settings=settings, profile=profile or _build_model_profile(self._link))

    @property
    def model_name(self) -> str:
        """The model's name at the provider."""
        return self._name

    @property
    def system(self) -> str:
        """The provider, by the name of its row."""
        return self._system

    @property
    def base_url(self) -> str:
        """The endpoint, as a URI without key and parameters."""
        return self._base_url

    async def aclose(self) -> None:
        """Close the connections."""
        await self._link.aclose()

    async def request(
        self,
        messages: list[messages.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> messages.ModelResponse:
        """Send one request, for pydantic-ai."""
        check_allow_model_requests()
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        turns = self._convert_messages(messages, parameters)
        with _translate_errors(self._name):
            completion = await self._link.get_async_client().chat(
                turns, **self._build_overrides(settings, parameters)
            )
        return to_model_response(completion, self._system, self._base_url)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[messages.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Stream one answer, for pydantic-ai."""
        check_allow_model_requests()
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        turns = self._convert_messages(messages, parameters)
        stream = self._link.get_async_client().stream(turns, **self._build_overrides(settings, parameters))
        with _translate_errors(self._name):
            # opened here, so that pydantic-ai can try another model if it fails
            await stream.__aenter__()
        try:
            yield _OnymStreamedResponse(model_request_parameters=parameters, _model=self, _stream=stream)
        finally:
            await stream.close()

    def _build_overrides(
        self, settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> dict[str, Any]:
        overrides = _build_overrides(settings, parameters)
        asked = settings is not None and settings.get("tool_choice") == "required"
        if overrides.get("tool_choice") == "required" and not asked:
            # pydantic-ai asks again in words if the model calls no output tool
            forced = self._link.can_force_tools(overrides.get("extra"))
            overrides["tool_choice"] = "required" if forced else "auto"
        return overrides

    def _convert_messages(
        self, history: list[messages.ModelMessage], parameters: ModelRequestParameters
    ) -> list[types.Message]:
        marks = self._link.endpoint.dialect.name in _MARKING_FORMATS or self._system == "openrouter"
        turns = [
            turn for message in history for turn in from_model_message(message, self._system, marks=marks)
        ]
        parts = self._get_instruction_parts(history, parameters) or ()
        at = next((i for i, turn in enumerate(turns) if turn.role != "system"), len(turns))
        turns[at:at] = [types.Message(role="system", content=part.content) for part in parts]
        return turns


def _build_model_profile(link: EndpointClient) -> ModelProfile:
    """Return what pydantic-ai must know about the model, such as how it answers with typed output."""
    plan = link.get_sync_client().explain("…")
    endpoint, forced, formats = plan.endpoint, link.can_force_tools(), link.formats
    return ModelProfile(
        supports_tools=endpoint.provider.capabilities["tools"] != "no",
        supports_json_schema_output="json_schema" in formats,
        supports_json_object_output="json" in formats,
        supports_forced_tool_choice=forced,
        forced_tool_choice_disables_thinking=endpoint.profile.choice_stops_reasoning,
        thinking_enabled_by_default=endpoint.profile.is_reasoning(plan.body or {}),
        default_structured_output_mode="native" if link.prefers_schema() else "tool",
    )


@contextmanager
def _translate_errors(model: str) -> Iterator[None]:
    """Convert errors of Onym to pydantic-ai's."""
    try:
        yield
    except ProviderError as error:
        if error.status is None or error.status < 400:
            raise exceptions.ModelAPIError(model, str(error)) from error
        body = {"code": error.code, "message": error.message}
        raise exceptions.ModelHTTPError(error.status, model, body) from error
    except NetError as error:
        raise exceptions.ModelAPIError(model, str(error)) from error


def _build_overrides(settings: ModelSettings | None, parameters: ModelRequestParameters) -> dict[str, Any]:
    named: Mapping[str, Any] = settings or {}
    overrides: dict[str, Any] = {known: named[name] for name, known in _SETTINGS.items() if name in named}
    timeout = named.get("timeout")
    if isinstance(timeout, int | float):
        overrides["timeout"] = max(1, round(timeout * 1000))
    body = named.get("extra_body")
    extra = dict(body) if isinstance(body, Mapping) else {}
    extra.update({name: named[name] for name in _PASSED if name in named})
    overrides["tools"] = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters_json_schema,
            strict=tool.strict,
        )
        for tool in parameters.tool_defs.values()
    ]
    choice = named.get("tool_choice")
    if not overrides["tools"]:
        del overrides["tools"]
        extra.pop("parallel_tool_calls", None)
    elif choice in ("none", "required", "auto") and not parameters.output_tools:
        overrides["tool_choice"] = choice
    else:
        # output tools must be called if text is not allowed as output
        overrides["tool_choice"] = "auto" if parameters.allow_text_output else "required"
    if parameters.output_mode == "native" and parameters.output_object is not None:
        overrides["schema"] = parameters.output_object.json_schema
    if extra:
        overrides["extra"] = extra
    return overrides


@dataclass
class _OnymStreamedResponse(StreamedResponse):
    """One streamed answer, in pydantic-ai's form."""

    _model: OnymModel = field(repr=False)
    _stream: AsyncStream = field(repr=False)
    _started: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def close_stream(self) -> None:
        """Close the stream."""
        await self._stream.close()

    def get_stream_cancel_errors(self) -> tuple[type[BaseException], ...]:
        """Return the errors that a closed stream may raise."""
        return (NetError, UsageError)

    async def _get_event_iterator(self) -> AsyncIterator[messages.ModelResponseStreamEvent]:
        with _translate_errors(self.model_name):
            async for event in self._stream:
                for part in self._convert_event(event):
                    yield part

    def _convert_event(self, event: types.Event) -> Iterator[messages.ModelResponseStreamEvent]:
        manager = self._parts_manager
        if isinstance(event, types.TextDelta):
            yield from manager.handle_text_delta(vendor_part_id="content", content=event.text)
        elif isinstance(event, types.ReasoningDelta):
            yield from manager.handle_thinking_delta(vendor_part_id="reasoning", content=event.text)
        elif isinstance(event, types.ToolCallDelta):
            yield from manager.handle_tool_call_delta_events(
                vendor_part_id=event.index, tool_name=event.name, args=event.arguments, tool_call_id=event.id
            )
        else:
            self._record_finish(event)

    def _record_finish(self, event: types.Finish) -> None:
        self._usage = to_request_usage(event.usage)
        self.finish_reason = _FINISH_REASONS.get(event.reason)
        self.provider_response_id = event.request_id
        self.provider_details = _build_provider_details(event.reason, event.carried)

    @property
    def model_name(self) -> str:
        """The model's name at the provider."""
        return self._model.model_name

    @property
    def provider_name(self) -> str:
        """The provider, by the name of its row."""
        return self._model.system

    @property
    def provider_url(self) -> str:
        """The endpoint, as a URI without key and parameters."""
        return self._model.base_url

    @property
    def timestamp(self) -> datetime:
        """The time at which the answer began."""
        return self._started
