"""LlamaIndex's LLM on an `llm://` URI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from onym.bridges import _llm_client as llm_client
from onym.bridges._sdk import require_extra
from onym.errors import UsageError
from onym.llm import types

with require_extra("llama_index", "llamaindex"):
    from llama_index.core.base.llms import types as llama
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.llms.llm import ToolSelection

__all__ = ["OnymLLM"]

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


class OnymLLM(llm_client.EndpointClientMixin, FunctionCallingLLM):
    """A LlamaIndex LLM that calls through Onym: `OnymLLM("llm://openai/gpt-5.4-mini")`.

    The first argument is a URI or the name of an endpoint, as for `onym.connect`. `key`, `policy`,
    `network`, `config`, `providers`, `environ`, `on_unsupported` and `system_filter` are arguments of
    `onym.connect`;
    `context_window` is in tokens; other keyword arguments are LlamaIndex's. `uri` and `model` are for
    display: they contain no key.
    """

    #: the URI without its key
    uri: str = ""
    #: the model's name at the provider
    model: str = ""
    #: tokens
    context_window: int = 128_000
    _link: llm_client.EndpointClient = PrivateAttr()

    # named here too, because type checkers make an __init__ of the fields of a Pydantic class otherwise
    __init__ = llm_client.EndpointClientMixin.__init__

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores this class."""
        return "OnymLLM"

    @property
    def metadata(self) -> llama.LLMMetadata:
        """Return the properties of the model that LlamaIndex uses."""
        has = self._link.endpoint.provider.capabilities
        return llama.LLMMetadata(
            context_window=self.context_window,
            is_chat_model=True,
            is_function_calling_model=has["tools"] != "no",
            model_name=self.model,
        )

    @llm_chat_callback()
    def chat(self, messages: Sequence[llama.ChatMessage], **kwargs: Any) -> llama.ChatResponse:
        """Send messages and return the answer."""
        return self._send(_convert_messages(messages), kwargs)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[llama.ChatMessage], **kwargs: Any) -> llama.ChatResponse:
        """Send messages and return the answer."""
        return await self._send_async(_convert_messages(messages), kwargs)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[llama.ChatMessage], **kwargs: Any) -> llama.ChatResponseGen:
        """Send messages and yield the answer as it arrives."""
        return self._stream(_convert_messages(messages), kwargs)

    @llm_chat_callback()
    async def astream_chat(
        self, messages: Sequence[llama.ChatMessage], **kwargs: Any
    ) -> llama.ChatResponseAsyncGen:
        """Send messages and yield the answer as it arrives."""
        return self._stream_async(_convert_messages(messages), kwargs)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> llama.CompletionResponse:
        """Send a prompt and return the answer."""
        return _build_completion_response(self._send(prompt, kwargs))

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> llama.CompletionResponse:
        """Send a prompt and return the answer."""
        return _build_completion_response(await self._send_async(prompt, kwargs))

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> llama.CompletionResponseGen:
        """Send a prompt and yield the answer as it arrives."""
        return (_build_completion_response(answer) for answer in self._stream(prompt, kwargs))

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> llama.CompletionResponseAsyncGen:
        """Send a prompt and yield the answer as it arrives."""
        return (_build_completion_response(answer) async for answer in self._stream_async(prompt, kwargs))

    def _send(self, prompt: Any, kwargs: dict[str, Any]) -> llama.ChatResponse:
        return _build_chat_response(
            self._link.get_sync_client().chat(prompt, **llm_client.to_overrides(kwargs))
        )

    async def _send_async(self, prompt: Any, kwargs: dict[str, Any]) -> llama.ChatResponse:
        client = self._link.get_async_client()
        return _build_chat_response(await client.chat(prompt, **llm_client.to_overrides(kwargs)))

    def _stream(self, prompt: Any, kwargs: dict[str, Any]) -> llama.ChatResponseGen:
        accumulator = _StreamAccumulator()
        with self._link.get_sync_client().stream(prompt, **llm_client.to_overrides(kwargs)) as events:
            for event in events:
                yield accumulator.add_event(event)

    async def _stream_async(self, prompt: Any, kwargs: dict[str, Any]) -> llama.ChatResponseAsyncGen:
        accumulator = _StreamAccumulator()
        async with self._link.get_async_client().stream(prompt, **llm_client.to_overrides(kwargs)) as events:
            async for event in events:
                yield accumulator.add_event(event)

    def structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: dict[str, Any] | None = None, **prompt_args: Any
    ) -> Any:
        """Return an object of `output_cls`: by a tool, or by a schema if the model takes no forced call."""
        if not self._prefers_schema(llm_kwargs):
            return super().structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)
        turns, kwargs = self._build_schema_call(output_cls, prompt, llm_kwargs, prompt_args)
        return _parse_object(output_cls, self.chat(turns, **kwargs))

    async def astructured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: dict[str, Any] | None = None, **prompt_args: Any
    ) -> Any:
        """The async version of `structured_predict`."""
        if not self._prefers_schema(llm_kwargs):
            return await super().astructured_predict(output_cls, prompt, llm_kwargs, **prompt_args)
        turns, kwargs = self._build_schema_call(output_cls, prompt, llm_kwargs, prompt_args)
        return _parse_object(output_cls, await self.achat(turns, **kwargs))

    def stream_structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: dict[str, Any] | None = None, **prompt_args: Any
    ) -> Any:
        """Yield objects of `output_cls` as they grow; by a schema, yield only the complete object."""
        if not self._prefers_schema(llm_kwargs):
            return super().stream_structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)
        return iter((self.structured_predict(output_cls, prompt, llm_kwargs, **prompt_args),))

    async def astream_structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: dict[str, Any] | None = None, **prompt_args: Any
    ) -> Any:
        """The async version of `stream_structured_predict`."""
        if not self._prefers_schema(llm_kwargs):
            return await super().astream_structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)

        async def predict() -> Any:
            yield await self.astructured_predict(output_cls, prompt, llm_kwargs, **prompt_args)

        return predict()

    def _prefers_schema(self, llm_kwargs: dict[str, Any] | None) -> bool:
        return self._link.prefers_schema(llm_client.to_overrides(llm_kwargs or {}).get("extra"))

    def _build_schema_call(
        self, output_cls: Any, prompt: Any, llm_kwargs: dict[str, Any] | None, prompt_args: dict[str, Any]
    ) -> tuple[list[llama.ChatMessage], dict[str, Any]]:
        turns = self._extend_messages(prompt.format_messages(llm=self, **prompt_args))
        return turns, {**(llm_kwargs or {}), "schema": output_cls.model_json_schema()}

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | llama.ChatMessage | None = None,
        chat_history: list[llama.ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        messages = list(chat_history or [])
        if isinstance(user_msg, str):
            user_msg = llama.ChatMessage(role=llama.MessageRole.USER, content=user_msg)
        if user_msg is not None:
            messages.append(user_msg)
        described = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
        # its programs pass None for a choice that nobody made
        choice = kwargs.pop("tool_choice", None) or ("required" if tool_required else "auto")
        return {"messages": messages, "tools": described, "tool_choice": choice, **kwargs}

    def get_tool_calls_from_response(
        self, response: llama.ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """Return the tool calls of an answer. Raises ValueError without any, unless that is allowed."""
        calls = [block for block in response.message.blocks if isinstance(block, llama.ToolCallBlock)]
        if not calls and error_on_no_tool_call:
            raise ValueError("the model did not call a tool")
        return [
            ToolSelection(
                tool_id=call.tool_call_id or "",
                tool_name=call.tool_name,
                tool_kwargs=_parse_tool_arguments(call.tool_kwargs),
            )
            for call in calls
        ]


class _StreamAccumulator:
    """A streamed answer in LlamaIndex's form: each piece contains everything before it."""

    def __init__(self) -> None:
        self._text = ""
        self._reasoning = ""
        self._calls: dict[int, types.ToolCall] = {}

    def add_event(self, event: types.Event) -> llama.ChatResponse:
        """Return the answer up to and including this event."""
        delta, finish = "", None
        if isinstance(event, types.TextDelta):
            delta = event.text
            self._text += delta
        elif isinstance(event, types.ReasoningDelta):
            self._reasoning += event.text
        elif isinstance(event, types.ToolCallDelta):
            known = self._calls.get(event.index, types.ToolCall(id="", name="", arguments=""))
            self._calls[event.index] = types.ToolCall(
                id=event.id or known.id,
                name=event.name or known.name,
                arguments=known.arguments + event.arguments,
            )
        else:
            finish = event
        carried = None if finish is None else finish.carried
        message = _build_assistant_message(self._text, self._reasoning, tuple(self._calls.values()), carried)
        return llama.ChatResponse(
            message=message, delta=delta, additional_kwargs=_collect_token_counts(finish)
        )


def _build_chat_response(completion: types.Completion) -> llama.ChatResponse:
    message = _build_assistant_message(
        completion.text, completion.reasoning or "", completion.tool_calls, completion.carried
    )
    counts = _collect_token_counts(completion)
    return llama.ChatResponse(message=message, raw=dict(completion.raw), additional_kwargs=counts)


def _collect_token_counts(end: types.Completion | types.Finish | None) -> dict[str, Any]:
    """Return token counts under the names of LlamaIndex's counters."""
    if end is None:
        return {}
    usage = end.usage
    counts = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}


def _build_assistant_message(
    text: str, reasoning: str, calls: Sequence[types.ToolCall], carried: types.Carried | None
) -> llama.ChatMessage:
    blocks: list[Any] = []
    if reasoning:
        blocks.append(llama.ThinkingBlock(content=reasoning))
    if text or not calls:
        blocks.append(llama.TextBlock(text=text))
    blocks.extend(
        llama.ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=call.arguments)
        for call in calls
    )
    state = {} if carried is None else {"onym": llm_client.encode_carried(carried)}
    return llama.ChatMessage(role=llama.MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=state)


def _build_completion_response(response: llama.ChatResponse) -> llama.CompletionResponse:
    return llama.CompletionResponse(
        text=response.message.content or "",
        delta=response.delta,
        raw=response.raw,
        additional_kwargs=response.additional_kwargs,
    )


def _parse_object(output_cls: Any, response: llama.ChatResponse) -> Any:
    return output_cls.model_validate_json(response.message.content or "")


def _parse_tool_arguments(written: dict[str, Any] | str) -> dict[str, Any]:
    if isinstance(written, dict):
        return written
    arguments = llm_client.parse_arguments(written)
    if arguments is None:
        raise ValueError("the model called a tool with arguments that are not a JSON object")
    return arguments


def _convert_messages(messages: Sequence[llama.ChatMessage]) -> list[types.Message]:
    return [_convert_message(message) for message in messages]


def _convert_message(message: llama.ChatMessage) -> types.Message:
    role: Any = _ROLES.get(message.role.value)
    if role is None:
        raise UsageError("messages with this role are not supported", code="usage.bad-message")
    calls = []
    for block in message.blocks:
        if isinstance(block, llama.ToolCallBlock):
            arguments = block.tool_kwargs
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(types.ToolCall(id=block.tool_call_id or "", name=block.tool_name, arguments=text))
    return types.Message(
        role=role,
        content=_convert_content(message),
        tool_calls=tuple(calls),
        tool_call_id=message.additional_kwargs.get("tool_call_id") if role == "tool" else None,
        carried=llm_client.decode_carried(message.additional_kwargs.get("onym")),
    )


def _convert_content(message: llama.ChatMessage) -> types.Content:
    blocks = [
        block for block in message.blocks if not isinstance(block, llama.ToolCallBlock | llama.ThinkingBlock)
    ]
    parts = tuple(_convert_block(block) for block in blocks)
    texts = [part.text for part in parts if isinstance(part, types.TextPart)]
    return "\n".join(texts) if len(texts) == len(parts) else parts


def _convert_block(block: Any) -> types.ContentPart:
    if isinstance(block, llama.TextBlock):
        return types.TextPart(block.text)
    if isinstance(block, llama.ImageBlock):
        if block.url is not None and block.image is None:
            return types.ImagePart(url=str(block.url), detail=block.detail)
        data, kind = block.resolve_image().read(), block.image_mimetype or "image/png"
        return types.ImagePart(data=data, media_type=kind, detail=block.detail)
    if isinstance(block, llama.DocumentBlock):
        kind = block.document_mimetype or "application/pdf"
        if block.url is not None and block.data is None:
            return types.DocumentPart(url=block.url, media_type=kind, name=block.title)
        return types.DocumentPart(data=block.resolve_document().read(), media_type=kind, name=block.title)
    raise UsageError("a block must be text, an image or a document", code="usage.bad-message")
