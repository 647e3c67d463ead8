"""A model of pydantic-ai on an `llm://` URI."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from onym.bridges._calls import carried_to
from onym.bridges._extra import needs
from onym.bridges._link import Link
from onym.bridges._pydantic_ai import FINISHES, details_of, response_of, turns_of, usage_of
from onym.errors import NetError, ProviderError, UsageError
from onym.llm._connect import hide
from onym.llm.types import Event, Finish, Message, ReasoningDelta, TextDelta, Tool, ToolCallDelta

with needs("pydantic_ai", "pydantic-ai"):
    from pydantic_ai import exceptions, messages
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, check_allow_model_requests
    from pydantic_ai.profiles import ModelProfile
    from pydantic_ai.settings import ModelSettings

if TYPE_CHECKING:
    from onym.llm._stream import AsyncStream

__all__ = ["OnymModel"]

#: pydantic-ai's settings -> well-known parameters
_SETTINGS: Final = {
    "max_tokens": "max_tokens",
    "temperature": "temp",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "stop_sequences": "stop",
}
#: settings that go to the provider as they are
_PASSED: Final = ("parallel_tool_calls", "presence_penalty", "frequency_penalty", "logit_bias")


class OnymModel(Model[Any]):
    """A model for pydantic-ai's agents that calls through Onym: `Agent(OnymModel("llm://openai/gpt-5-mini"))`.

    The first argument is what `onym.connect` takes, a name of the configuration included, and so are `key`,
    `policy`, `config`, `providers`, `environ`, `on_unsupported` and `system_filter`. `settings` and `profile`
    are pydantic-ai's; a setting goes before the URI's parameter.

    Failures of the provider become pydantic-ai's own errors, the typed one of Onym's being their cause.
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
        config: Any = None,
        providers: Any = None,
        environ: Mapping[str, str] | None = None,
        on_unsupported: Any = None,
        system_filter: Callable[[str], str] | None = None,
    ) -> None:
        # from here on no frame of a traceback holds the text, which holds the key
        uri, key = hide(uri), hide(key)
        self._link = Link(
            uri,
            key=key,
            policy=policy,
            config=config,
            providers=providers,
            environ=environ,
            on_unsupported=on_unsupported,
            system_filter=system_filter,
        )
        endpoint = self._link.endpoint
        self._name = endpoint.model
        self._system = endpoint.provider.name
        self._place = endpoint.text
        formats = endpoint.provider.formats
        super().__init__(
            settings=settings,
            profile=profile
            or ModelProfile(
                supports_tools=endpoint.provider.capabilities["tools"] != "no",
                supports_json_schema_output="json_schema" in formats,
                supports_json_object_output="json" in formats,
            ),
        )

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
        return self._place

    async def aclose(self) -> None:
        """Close the connections."""
        await self._link.aclose()

    async def request(
        self,
        messages: list[messages.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> messages.ModelResponse:
        """One answer, for pydantic-ai to call."""
        check_allow_model_requests()
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        turns = self._turns(messages, parameters)
        with _errors(self._name):
            found = await self._link.waiting().chat(turns, **_overrides(settings, parameters))
        return response_of(found, self._system, self._place)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[messages.ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """One answer while it arrives, for pydantic-ai to call."""
        check_allow_model_requests()
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        turns = self._turns(messages, parameters)
        stream = self._link.waiting().stream(turns, **_overrides(settings, parameters))
        with _errors(self._name):
            # opened here, so that another model may be tried where it fails
            await stream.__aenter__()
        try:
            yield _Streamed(
                model_request_parameters=parameters,
                _name=self._name,
                _system=self._system,
                _place=self._place,
                _stream=stream,
            )
        finally:
            await stream.close()

    def _turns(self, given: list[messages.ModelMessage], parameters: ModelRequestParameters) -> list[Message]:
        turns = [turn for message in given for turn in turns_of(message, self._system)]
        parts = self._get_instruction_parts(given, parameters) or ()
        at = next((i for i, turn in enumerate(turns) if turn.role != "system"), len(turns))
        turns[at:at] = [Message(role="system", content=part.content) for part in parts]
        return turns


@contextmanager
def _errors(model: str) -> Iterator[None]:
    """Onym's failures as pydantic-ai's."""
    try:
        yield
    except ProviderError as error:
        if error.status is None or error.status < 400:
            raise exceptions.ModelAPIError(model, str(error)) from error
        body = {"code": error.code, "message": error.message}
        raise exceptions.ModelHTTPError(error.status, model, body) from error
    except NetError as error:
        raise exceptions.ModelAPIError(model, str(error)) from error


def _overrides(settings: ModelSettings | None, parameters: ModelRequestParameters) -> dict[str, Any]:
    given: Mapping[str, Any] = settings or {}
    found: dict[str, Any] = {known: given[name] for name, known in _SETTINGS.items() if name in given}
    timeout = given.get("timeout")
    if isinstance(timeout, int | float):
        found["timeout"] = max(1, round(timeout * 1000))
    body = given.get("extra_body")
    extra = dict(body) if isinstance(body, Mapping) else {}
    extra.update({name: given[name] for name in _PASSED if name in given})
    tools = [_tool(each) for each in parameters.tool_defs.values()]
    if tools:
        found["tools"] = tools
        found["tool_choice"] = _choice(given.get("tool_choice"), parameters)
    else:
        extra.pop("parallel_tool_calls", None)
    if parameters.output_mode == "native" and parameters.output_object is not None:
        found["schema"] = parameters.output_object.json_schema
    if extra:
        found["extra"] = extra
    return found


def _choice(asked: Any, parameters: ModelRequestParameters) -> str:
    """What a tool is to do: output tools have to be called where text is no output."""
    if asked in ("none", "required", "auto") and not parameters.output_tools:
        return str(asked)
    return "auto" if parameters.allow_text_output else "required"


def _tool(given: Any) -> Tool:
    return Tool(
        name=given.name,
        description=given.description,
        parameters=given.parameters_json_schema,
        strict=given.strict,
    )


@dataclass
class _Streamed(StreamedResponse):
    """One streamed answer, as pydantic-ai reads it."""

    _name: str
    _system: str
    _place: str
    _stream: AsyncStream = field(repr=False)
    _started: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def close_stream(self) -> None:
        """End it here."""
        await self._stream.close()

    def get_stream_cancel_errors(self) -> tuple[type[BaseException], ...]:
        """What a closed stream may raise."""
        return (NetError, UsageError)

    async def _get_event_iterator(self) -> AsyncIterator[messages.ModelResponseStreamEvent]:
        with _errors(self._name):
            async for event in self._stream:
                for each in self._events(event):
                    yield each

    def _events(self, event: Event) -> Iterator[messages.ModelResponseStreamEvent]:
        manager = self._parts_manager
        if isinstance(event, TextDelta):
            yield from manager.handle_text_delta(vendor_part_id="content", content=event.text)
        elif isinstance(event, ReasoningDelta):
            yield from manager.handle_thinking_delta(vendor_part_id="reasoning", content=event.text)
        elif isinstance(event, ToolCallDelta):
            yield from manager.handle_tool_call_delta_events(
                vendor_part_id=event.index,
                tool_name=event.name,
                args=event.arguments,
                tool_call_id=event.id,
            )
        else:
            self._finished_by(event)

    def _finished_by(self, event: Finish) -> None:
        self._usage = usage_of(event.usage)
        self.finish_reason = FINISHES.get(event.reason)
        self.provider_response_id = event.request_id
        self.provider_details = details_of(event.reason, carried_to(event.carried))

    @property
    def model_name(self) -> str:
        """The model's name at the provider."""
        return self._name

    @property
    def provider_name(self) -> str:
        """The provider, by the name of its row."""
        return self._system

    @property
    def provider_url(self) -> str:
        """The endpoint, as a URI without key and parameters."""
        return self._place

    @property
    def timestamp(self) -> datetime:
        """When the answer began."""
        return self._started
