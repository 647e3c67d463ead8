"""LangChain's chat model on an `llm://` URI."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal

from onym.bridges import _llm_client as llm_client
from onym.bridges._sdk import require_extra
from onym.errors import UsageError
from onym.llm import types

with require_extra("langchain_core", "langchain"):
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
    from langchain_core.output_parsers import BaseOutputParser, JsonOutputParser, PydanticOutputParser
    from langchain_core.output_parsers.openai_tools import JsonOutputKeyToolsParser, PydanticToolsParser
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
    from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
    from langchain_core.utils.pydantic import is_basemodel_subclass
    from pydantic import PrivateAttr

__all__ = ["ChatOnym"]

#: by type of block: the media type of a file that has none
_FILE_TYPES = {"file": "application/pdf", "audio": "audio/wav"}
_ROLES = {"human": "user", "ai": "assistant"}


class ChatOnym(llm_client.EndpointClientMixin, BaseChatModel):
    """A LangChain chat model that calls through Onym: `ChatOnym("llm://openai/gpt-5.4-mini")`.

    The first argument is a URI or the name of an endpoint, as for `onym.connect`. `key`, `policy`,
    `network`, `config`, `providers`, `environ`, `on_unsupported` and `system_filter` are arguments of
    `onym.connect`; other keyword arguments are LangChain's. `uri` and `model` are for display: they contain
    no key, and neither do `repr` and dumps.

    `invoke`, `stream`, `batch` and their async forms, `bind_tools`, `with_structured_output` and
    `usage_metadata` work as LangChain describes. Call `close()` to close the connections, or leave it to the
    garbage collector.
    """

    #: the URI without its key
    uri: str = ""
    #: the model's name at the provider
    model: str = ""
    _link: llm_client.EndpointClient = PrivateAttr()

    # named here too, because type checkers make an __init__ of the fields of a Pydantic class otherwise
    __init__ = llm_client.EndpointClientMixin.__init__

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
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with these tools; `tool_choice` is a tool's name, auto, any, required or none."""
        described = [_describe_tool(tool, strict) for tool in tools]
        # metadata for LangChain's tracers, not an argument of a call
        kwargs.pop("ls_structured_output_format", None)
        return self.bind(tools=described, tool_choice=tool_choice, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: Literal["function_calling", "json_schema", "json_mode"] | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Return the model with answers of this schema, as objects of a Pydantic class or as dicts.

        `method` is `function_calling`, `json_schema` or `json_mode`. By default, the model calls a tool; a
        model that cannot be forced to call one answers by the JSON Schema. With `json_mode`, describe the
        object in the prompt. `strict` makes the tool strict; the JSON Schema always is, if it can be. Raises
        ValueError for other values and arguments.
        """
        if method is None:
            method = "json_schema" if self._link.prefers_schema() else "function_calling"
        if kwargs:
            raise ValueError(f"with_structured_output does not accept {', '.join(kwargs)}")
        model_class: Any = schema if isinstance(schema, type) and is_basemodel_subclass(schema) else None
        parser: BaseOutputParser[Any]
        if method == "function_calling":
            model = self.bind_tools([schema], tool_choice="any", strict=strict)
            name = convert_to_openai_tool(schema)["function"]["name"]
            parser = (
                PydanticToolsParser(tools=[model_class], first_tool_only=True)
                if model_class
                else JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
            )
        else:
            model = self.bind(**_build_form(schema, method, strict))
            parser = PydanticOutputParser(pydantic_object=model_class) if model_class else JsonOutputParser()
        if not include_raw:
            return model | parser
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=model) | parsed.with_fallbacks([failed], exception_key="parsing_error")

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        turns, overrides = _build_call(messages, stop, kwargs)
        return _build_chat_result(self._link.get_sync_client().chat(turns, **overrides))

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        turns, overrides = _build_call(messages, stop, kwargs)
        return _build_chat_result(await self._link.get_async_client().chat(turns, **overrides))

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        turns, overrides = _build_call(messages, stop, kwargs)
        with self._link.get_sync_client().stream(turns, **overrides) as events:
            for event in events:
                chunk = _build_chunk(event)
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        turns, overrides = _build_call(messages, stop, kwargs)
        async with self._link.get_async_client().stream(turns, **overrides) as events:
            async for event in events:
                chunk = _build_chunk(event)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk


def _describe_tool(tool: Any, strict: bool | None) -> dict[str, Any]:
    """Return a function in OpenAI's form, or a tool of the provider unchanged."""
    if isinstance(tool, Mapping):
        named = bool({"type", "name", "title", "function"} & tool.keys())
        if not named or tool.get("type") not in (None, "function", "object"):
            return dict(tool)
    described: dict[str, Any] = convert_to_openai_tool(tool, strict=strict)
    return described


def _build_form(schema: Any, method: str, strict: bool | None) -> dict[str, Any]:
    """Return the arguments of a call for a method of structured output without tools."""
    if method == "json_schema" and strict is not False:
        return {"schema": convert_to_json_schema(schema)}
    if method == "json_mode" and strict is None:
        return {"format": "json"}
    if method in ("json_schema", "json_mode"):
        raise ValueError(f"with_structured_output does not accept strict={strict} for {method}")
    raise ValueError("the method is not function_calling, json_schema or json_mode")


def _build_call(
    messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
) -> tuple[list[types.Message], dict[str, Any]]:
    return [_convert_message(message) for message in messages], llm_client.to_overrides(
        {**kwargs, "stop": stop}
    )


def _convert_message(message: BaseMessage) -> types.Message:
    if isinstance(message, SystemMessage):
        return types.Message(role="system", content=_convert_content(message))
    if isinstance(message, HumanMessage):
        return types.Message(role="user", content=_convert_content(message), name=message.name)
    if isinstance(message, ToolMessage):
        return types.Message(
            role="tool", content=_convert_content(message), tool_call_id=message.tool_call_id
        )
    if isinstance(message, AIMessage):
        calls = [
            types.ToolCall(id=call["id"] or "", name=call["name"], arguments=json.dumps(call["args"]))
            for call in message.tool_calls
        ]
        broken = [
            types.ToolCall(id=call["id"] or "", name=call["name"] or "", arguments=call["args"] or "")
            for call in message.invalid_tool_calls
        ]
        state = llm_client.decode_carried(message.additional_kwargs.get("onym")) or _find_reasoning(message)
        text = str(message.text)
        return types.Message(role="assistant", content=text, tool_calls=(*calls, *broken), carried=state)
    if isinstance(message, ChatMessage):
        role: Any = _ROLES.get(message.role, message.role)
        return types.Message(role=role, content=str(message.text))
    raise UsageError("messages of this type are not supported", code="usage.bad-message")


def _find_reasoning(message: AIMessage) -> types.Carried | None:
    """Return the reasoning of a turn that another chat model of LangChain made, for the same provider."""
    provider = message.response_metadata.get("model_provider")
    text = message.additional_kwargs.get("reasoning_content")
    if not isinstance(provider, str) or not isinstance(text, str):
        return None
    return types.Carried(dialect="openai_chat", parts=({"reasoning_content": text},), provider=provider)


def _convert_content(message: BaseMessage) -> types.Content:
    if isinstance(message.content, str):
        return message.content
    return tuple(_convert_block(block) for block in message.content_blocks)


def _convert_block(block: Mapping[str, Any]) -> types.ContentPart:
    """Convert one of LangChain's standard content blocks; `cache_control` marks a prefix to cache."""
    mark = block.get("cache_control") or (block.get("extras") or {}).get("cache_control")
    if block.get("type") == "non_standard" and isinstance(block.get("value"), Mapping):
        # LangChain does not know OpenAI's form of an image with a mark
        block = block["value"]
        mark = block.get("cache_control")
        if block.get("type") == "image_url" and isinstance(block.get("image_url"), Mapping):
            block = {"type": "image", "url": block["image_url"].get("url")}
    kind, encoded = block.get("type"), block.get("base64")
    data = b64decode(encoded) if isinstance(encoded, str) else None
    url = None if data else block.get("url")
    if kind == "text":
        return types.TextPart(block["text"], cache_control=mark)
    if kind == "image" and (data or url):
        media_type = block.get("mime_type") or "image/png"
        return types.ImagePart(data=data, url=url, media_type=media_type, cache_control=mark)
    if kind in _FILE_TYPES and (data or url):
        name = block.get("filename") or (block.get("extras") or {}).get("filename")
        media_type = block.get("mime_type") or _FILE_TYPES[kind]
        return types.DocumentPart(data=data, url=url, media_type=media_type, name=name, cache_control=mark)
    raise UsageError(
        "a content block must be text, an image, audio or a file, with base64 data or a URL",
        code="usage.bad-message",
    )


def _build_chat_result(completion: types.Completion) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=_build_ai_message(completion))])


def _build_ai_message(completion: types.Completion) -> AIMessage:
    calls, broken = [], []
    for call in completion.tool_calls:
        arguments = llm_client.parse_arguments(call.arguments)
        if arguments is not None:
            calls.append(tool_call(name=call.name, args=arguments, id=call.id))
        else:
            broken.append(
                invalid_tool_call(name=call.name, args=call.arguments, id=call.id, error="not a JSON object")
            )
    return AIMessage(
        content=completion.text,
        tool_calls=calls,
        invalid_tool_calls=broken,
        usage_metadata=_build_usage_metadata(completion.usage),
        response_metadata=_drop_missing(
            model_name=completion.model,
            finish_reason=completion.finish_reason,
            request_id=completion.request_id,
        ),
        additional_kwargs=_drop_missing(
            reasoning_content=completion.reasoning or None,
            refusal=completion.refusal,
            onym=llm_client.encode_carried(completion.carried),
        ),
    )


def _build_chunk(event: types.Event) -> ChatGenerationChunk:
    if isinstance(event, types.TextDelta):
        message = AIMessageChunk(content=event.text)
    elif isinstance(event, types.ReasoningDelta):
        reasoning = _drop_missing(reasoning_content=event.text or None)
        message = AIMessageChunk(content="", additional_kwargs=reasoning)
    elif isinstance(event, types.ToolCallDelta):
        piece = tool_call_chunk(name=event.name, args=event.arguments, id=event.id, index=event.index)
        message = AIMessageChunk(content="", tool_call_chunks=[piece])
    else:
        message = AIMessageChunk(
            content="",
            usage_metadata=_build_usage_metadata(event.usage),
            response_metadata=_drop_missing(
                model_name=event.model, finish_reason=event.reason, request_id=event.request_id
            ),
            additional_kwargs=_drop_missing(
                refusal=event.refusal, onym=llm_client.encode_carried(event.carried)
            ),
            chunk_position="last",
        )
    return ChatGenerationChunk(message=message)


def _drop_missing(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _build_usage_metadata(usage: types.Usage) -> UsageMetadata | None:
    """Return LangChain's token counts, or None if the server did not count."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    counts = UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
    if usage.cached_tokens is not None:
        counts["input_token_details"] = InputTokenDetails(cache_read=usage.cached_tokens)
    if usage.reasoning_tokens is not None:
        counts["output_token_details"] = OutputTokenDetails(reasoning=usage.reasoning_tokens)
    return counts
