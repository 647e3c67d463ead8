"""LangChain's chat model on an `llm://` URI."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from onym.bridges._llm_client import (
    EndpointClient,
    EndpointClientMixin,
    decode_carried,
    encode_carried,
    parse_arguments,
    to_overrides,
)
from onym.bridges._sdk import require_extra
from onym.errors import UsageError
from onym.llm.client import wrap_secret
from onym.llm.types import (
    Completion,
    Content,
    ContentPart,
    DocumentPart,
    Event,
    Finish,
    ImagePart,
    Message,
    ReasoningDelta,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    Usage,
)

with require_extra("langchain_core", "langchain"):
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import BaseChatModel, LanguageModelInput
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        BaseMessage,
        ChatMessage,
        HumanMessage,
        SystemMessage,
        ToolMessage,
    )
    from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
    from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.runnables import Runnable
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from pydantic import PrivateAttr

__all__ = ["ChatOnym"]

_ROLES = {"human": "user", "ai": "assistant"}


class ChatOnym(EndpointClientMixin, BaseChatModel):
    """A LangChain chat model that calls through Onym: `ChatOnym("llm://openai/gpt-5-mini")`.

    The first argument is a URI or the name of an endpoint, as for `onym.connect`. `key`, `policy`, `config`,
    `providers`, `environ`, `on_unsupported` and `system_filter` are arguments of `onym.connect`; other
    keyword arguments are LangChain's. `uri` and `model` are for display: they contain no key, and neither do
    `repr` and dumps.

    `invoke`, `stream`, `batch` and their async forms, `bind_tools`, `with_structured_output` and
    `usage_metadata` work as LangChain describes. Call `close()` to close the connections, or leave it to the
    garbage collector.
    """

    #: the URI without its key
    uri: str = ""
    #: the model's name at the provider
    model: str = ""
    _link: EndpointClient = PrivateAttr()

    def __init__(
        self,
        uri: Any = None,
        *,
        key: Any = None,
        policy: Any = None,
        config: Any = None,
        providers: Any = None,
        environ: Mapping[str, str] | None = None,
        on_unsupported: Any = None,
        system_filter: Callable[[str], str] | None = None,
        **options: Any,
    ) -> None:
        if not uri:
            raise UsageError("ChatOnym needs an llm:// URI or the name of an endpoint")
        # from here on no frame of a traceback contains the text with the key
        uri, key = wrap_secret(uri), wrap_secret(key)
        link = EndpointClient(
            uri,
            key=key,
            policy=policy,
            config=config,
            providers=providers,
            environ=environ,
            on_unsupported=on_unsupported,
            system_filter=system_filter,
        )
        shown: dict[str, Any] = {"uri": link.uri_text, "model": link.endpoint.model}
        super().__init__(**{**options, **shown})
        self._link = link

    @property
    def _llm_type(self) -> str:
        return "onym"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"uri": self.uri}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = self._link.endpoint.provider.name
        return params

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | Any],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with these tools; `tool_choice` is a tool's name, auto, any, required or none."""
        described = [convert_to_openai_tool(tool) for tool in tools]
        # metadata for LangChain's tracers, not an argument of a call
        kwargs.pop("ls_structured_output_format", None)
        return self.bind(tools=described, tool_choice=tool_choice, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        found = self._link.get_sync_client().chat(
            _convert_messages(messages), **to_overrides({**kwargs, "stop": stop})
        )
        return ChatResult(generations=[ChatGeneration(message=_build_ai_message(found))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        found = await self._link.get_async_client().chat(
            _convert_messages(messages), **to_overrides({**kwargs, "stop": stop})
        )
        return ChatResult(generations=[ChatGeneration(message=_build_ai_message(found))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with self._link.get_sync_client().stream(
            _convert_messages(messages), **to_overrides({**kwargs, "stop": stop})
        ) as events:
            for event in events:
                chunk = _build_chunk(event)
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async with self._link.get_async_client().stream(
            _convert_messages(messages), **to_overrides({**kwargs, "stop": stop})
        ) as events:
            async for event in events:
                chunk = _build_chunk(event)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk


def _convert_messages(given: list[BaseMessage]) -> list[Message]:
    return [_convert_message(message) for message in given]


def _convert_message(given: BaseMessage) -> Message:
    if isinstance(given, SystemMessage):
        return Message(role="system", content=str(given.text))
    if isinstance(given, HumanMessage):
        return Message(role="user", content=_convert_content(given), name=given.name)
    if isinstance(given, ToolMessage):
        return Message(role="tool", content=_convert_content(given), tool_call_id=given.tool_call_id)
    if isinstance(given, AIMessage):
        calls = [
            ToolCall(id=call["id"] or "", name=call["name"], arguments=json.dumps(call["args"]))
            for call in given.tool_calls
        ]
        broken = [
            ToolCall(id=call["id"] or "", name=call["name"] or "", arguments=call["args"] or "")
            for call in given.invalid_tool_calls
        ]
        carried = decode_carried(given.additional_kwargs.get("onym"))
        return Message(
            role="assistant", content=str(given.text), tool_calls=(*calls, *broken), carried=carried
        )
    if isinstance(given, ChatMessage):
        role: Any = _ROLES.get(given.role, given.role)
        return Message(role=role, content=str(given.text))
    raise UsageError("messages of this type are not supported", code="usage.bad-message")


def _convert_content(given: BaseMessage) -> Content:
    if isinstance(given.content, str):
        return given.content
    return tuple(_convert_block(block) for block in given.content_blocks)


def _convert_block(block: Mapping[str, Any]) -> ContentPart:
    """Convert one of LangChain's standard content blocks."""
    kind, data = block.get("type"), block.get("base64")
    octets = b64decode(data) if isinstance(data, str) else None
    if kind == "text":
        return TextPart(block["text"])
    if kind == "image" and (octets or block.get("url")):
        return ImagePart(
            data=octets,
            url=None if octets else block["url"],
            media_type=block.get("mime_type") or "image/png",
        )
    if kind == "file" and (octets or block.get("url")):
        extras = block.get("extras") or {}
        return DocumentPart(
            data=octets,
            url=None if octets else block["url"],
            media_type=block.get("mime_type") or "application/pdf",
            name=block.get("filename") or extras.get("filename"),
        )
    raise UsageError(
        "a content block must be text, an image or a file, with base64 data or a URL",
        code="usage.bad-message",
    )


def _build_ai_message(found: Completion) -> AIMessage:
    calls, broken = [], []
    for call in found.tool_calls:
        arguments = parse_arguments(call.arguments)
        if arguments is not None:
            calls.append(tool_call(name=call.name, args=arguments, id=call.id))
        else:
            broken.append(
                invalid_tool_call(name=call.name, args=call.arguments, id=call.id, error="not a JSON object")
            )
    return AIMessage(
        content=found.text,
        tool_calls=calls,
        invalid_tool_calls=broken,
        usage_metadata=_build_usage_metadata(found.usage),
        response_metadata=_build_response_metadata(found.model, found.finish_reason, found.request_id),
        additional_kwargs=_build_additional_kwargs(found.reasoning, encode_carried(found.carried)),
    )


def _build_chunk(event: Event) -> ChatGenerationChunk:
    if isinstance(event, TextDelta):
        message = AIMessageChunk(content=event.text)
    elif isinstance(event, ReasoningDelta):
        message = AIMessageChunk(content="", additional_kwargs=_build_additional_kwargs(event.text, None))
    elif isinstance(event, ToolCallDelta):
        piece = tool_call_chunk(name=event.name, args=event.arguments, id=event.id, index=event.index)
        message = AIMessageChunk(content="", tool_call_chunks=[piece])
    else:
        message = _build_last_chunk(event)
    return ChatGenerationChunk(message=message)


def _build_last_chunk(event: Finish) -> AIMessageChunk:
    return AIMessageChunk(
        content="",
        usage_metadata=_build_usage_metadata(event.usage),
        response_metadata=_build_response_metadata(event.model, event.reason, event.request_id),
        additional_kwargs=_build_additional_kwargs(None, encode_carried(event.carried)),
        chunk_position="last",
    )


def _build_additional_kwargs(reasoning: str | None, carried: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {"reasoning_content": reasoning, "onym": carried}
    return {name: value for name, value in found.items() if value}


def _build_response_metadata(model: str | None, reason: str, request: str | None) -> dict[str, Any]:
    found = {"model_name": model, "finish_reason": reason, "request_id": request}
    return {name: value for name, value in found.items() if value is not None}


def _build_usage_metadata(usage: Usage) -> UsageMetadata | None:
    """Return LangChain's token counts, or None if the server did not count."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    found = UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
    if usage.cached_tokens is not None:
        found["input_token_details"] = InputTokenDetails(cache_read=usage.cached_tokens)
    if usage.reasoning_tokens is not None:
        found["output_token_details"] = OutputTokenDetails(reasoning=usage.reasoning_tokens)
    return found
