"""A plug-in for Simon Willison's `llm`: endpoints of Onym's configuration and `llm://` URIs as models.

    llm -m fast 'Hello'                               (an endpoint of Onym's configuration)
    llm -m 'llm://openai/gpt-5.4-mini?max_tokens=50' 'Hello'

Pass a URI on the command line, in the variable LLM_URL, as `llm`'s default model or as one of its aliases
(`llm aliases set …`). `llm` logs the names of models, so a URI with a key is not accepted: use a variable for
the key, or name the endpoint in Onym's configuration.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar

from onym.bridges import _llm_client as llm_client
from onym.bridges._sdk import require_extra
from onym.errors import OnymError, URIError, UsageError
from onym.llm import types
from onym.llm.config import Config
from onym.net.policy import Policy
from onym.uri.llm import LLMURI

with require_extra("llm", "llm"):
    from llm.parts import StreamEvent
    from pydantic import Field

    import llm
    from llm import parts

#: the same module; its settings have no types
_settings: Any = import_module("llm")

__all__ = ["AsyncOnymModel", "OnymModel", "register_models"]

_SCHEME = "llm://"
_VARIABLE = "LLM_URL"
_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_DOCUMENTS = frozenset({"application/pdf"})


@llm.hookimpl
def register_models(register: Callable[..., None], model_aliases: Any) -> None:
    """Register every endpoint that is named or written in one of these places. Invalid ones are left out."""
    seen: set[str] = set()
    for name, typed in _iter_model_names():
        if name in seen:
            continue
        seen.add(name)
        register(OnymModel(name, typed=typed), AsyncOnymModel(name, typed=typed))


def _iter_model_names() -> Iterator[tuple[str, bool]]:
    """Yield the names of models, and whether the URI was typed on this command line."""
    # `onym config check` reports errors of the configuration; `llm` has other models to offer
    with suppress(OnymError):
        yield from [(name, False) for name in Config.load().endpoints]
    yield from ((text, True) for text in sys.argv[1:] if _is_keyless_uri(text))
    texts = (os.environ.get(_VARIABLE, ""), _settings.get_default_model(), *_list_aliases())
    yield from ((text, False) for text in texts if _is_keyless_uri(text))


def _list_aliases() -> tuple[str, ...]:
    try:
        data = json.loads((_settings.user_dir() / "aliases.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return tuple(text for text in data.values() if isinstance(text, str)) if isinstance(data, dict) else ()


def _is_keyless_uri(text: str) -> bool:
    """Return whether the text is a URI without a key."""
    if not text.lower().startswith(_SCHEME):
        return False
    try:
        uri = LLMURI.parse(text)
    except URIError:
        return False
    return uri.render() == uri.render(reveal=True)


class _Options(llm.Options):
    """The standard parameters of `llm://`, under the names that `llm`'s models use."""

    temperature: float | None = Field(default=None, description="0 to 2")
    max_tokens: int | None = Field(default=None, description="Maximum number of tokens in the answer")
    top_p: float | None = Field(default=None, description="0 to 1")
    top_k: int | None = Field(default=None, description="Number of candidates that are considered")
    seed: int | None = Field(default=None, description="Seed for repeatable answers")
    stop: str | None = Field(default=None, description="Text at which the answer ends")
    timeout: float | None = Field(default=None, description="Timeout of the call in seconds")


class _BaseOnymModel:
    """The common part of the model and the async model."""

    can_stream: ClassVar[bool] = True
    supports_schema: ClassVar[bool] = True
    supports_tools: ClassVar[bool] = True
    attachment_types: set[str] | frozenset[str] = _IMAGES | _DOCUMENTS
    Options: Any = _Options

    def __init__(self, name: str, *, typed: bool = False) -> None:
        self.model_id = name
        self._typed = typed
        self._made: llm_client.EndpointClient | None = None

    @property
    def _link(self) -> llm_client.EndpointClient:
        # connected only when it is called, because `llm models` also lists models without a key
        if self._made is None:
            policy = Policy.local() if self._typed else None
            self._made = llm_client.EndpointClient(self.model_id, policy=policy)
        return self._made

    def __str__(self) -> str:
        return f"Onym: {self.model_id}"

    def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()

    async def aclose(self) -> None:
        """Close the connections of the async client too."""
        if self._made is not None:
            await self._made.aclose()

    def _build_call(self, prompt: Any) -> tuple[list[types.Message], dict[str, Any]]:
        options = {name: value for name, value in prompt.options if value is not None}
        tools = [
            types.Tool(name=tool.name, description=tool.description, parameters=tool.input_schema)
            for tool in prompt.tools
        ]
        messages = [turn for message in prompt.messages for turn in _convert_message(message)]
        return messages, llm_client.to_overrides({**options, "tools": tools, "schema": prompt.schema or None})


class OnymModel(_BaseOnymModel, llm.Model):
    """An endpoint of Onym as a model of `llm`."""

    def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any
    ) -> Iterator[str | StreamEvent]:
        """Send one prompt, for `llm`."""
        messages, overrides = self._build_call(prompt)
        client = self._link.get_sync_client()
        if not stream:
            completion = client.chat(messages, **overrides)
            yield from _iter_completion_events(completion)
            _record_outcome(response, completion)
            return
        with client.stream(messages, **overrides) as events:
            for event in events:
                yield from _convert_event(event)
            _record_outcome(response, events.completion())


class AsyncOnymModel(_BaseOnymModel, llm.AsyncModel):
    """An endpoint of Onym as an async model of `llm`."""

    async def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any
    ) -> AsyncGenerator[str | StreamEvent, None]:
        """Send one prompt, for `llm`."""
        messages, overrides = self._build_call(prompt)
        client = self._link.get_async_client()
        if not stream:
            completion = await client.chat(messages, **overrides)
            for piece in _iter_completion_events(completion):
                yield piece
            _record_outcome(response, completion)
            return
        async with client.stream(messages, **overrides) as events:
            async for event in events:
                for piece in _convert_event(event):
                    yield piece
            _record_outcome(response, await events.completion())


def _iter_completion_events(completion: types.Completion) -> Iterator[StreamEvent]:
    if completion.reasoning:
        yield StreamEvent(type="reasoning", chunk=completion.reasoning)
    yield StreamEvent(type="text", chunk=completion.text)
    yield from _emit_carried(completion.carried)


def _convert_event(event: types.Event) -> Iterator[StreamEvent]:
    if isinstance(event, types.TextDelta):
        yield StreamEvent(type="text", chunk=event.text)
    elif isinstance(event, types.ReasoningDelta):
        yield StreamEvent(type="reasoning", chunk=event.text)
    elif isinstance(event, types.Finish):
        yield from _emit_carried(event.carried)


def _emit_carried(carried: types.Carried | None) -> Iterator[StreamEvent]:
    """Store the provider's state of the turn in a reasoning part without text."""
    if carried is not None:
        yield StreamEvent(
            type="reasoning", chunk="", provider_metadata={"onym": llm_client.encode_carried(carried)}
        )


def _record_outcome(response: Any, completion: types.Completion) -> None:
    """Store tool calls and token counts in the response."""
    for call in completion.tool_calls:
        arguments = llm_client.parse_arguments(call.arguments)
        if arguments is None:
            raise UsageError("the model called a tool with arguments that are not a JSON object")
        response.add_tool_call(llm.ToolCall(name=call.name, arguments=arguments, tool_call_id=call.id))
    usage = completion.usage
    details = {"cached_tokens": usage.cached_tokens, "reasoning_tokens": usage.reasoning_tokens}
    details = {name: count for name, count in details.items() if count}
    response.set_usage(input=usage.input_tokens, output=usage.output_tokens, details=details or None)
    response.set_resolved_model(completion.model)


def _convert_message(message: Any) -> Iterator[types.Message]:
    """Convert one message of `llm` to turns; each result of a tool is its own turn."""
    if message.role == "tool":
        for part in message.parts:
            if isinstance(part, parts.ToolResultPart):
                yield types.Message(role="tool", content=part.output, tool_call_id=part.tool_call_id)
        return
    calls = [
        types.ToolCall(id=part.tool_call_id or "", name=part.name, arguments=json.dumps(part.arguments))
        for part in message.parts
        if isinstance(part, parts.ToolCallPart)
    ]
    states = [
        (part.provider_metadata or {}).get("onym")
        for part in message.parts
        if isinstance(part, parts.ReasoningPart)
    ]
    yield types.Message(
        role=message.role,
        content=_convert_content(message),
        tool_calls=tuple(calls),
        carried=llm_client.decode_carried(next((state for state in states if state), None)),
    )


def _convert_content(message: Any) -> types.Content:
    content: list[types.ContentPart] = []
    for part in message.parts:
        if isinstance(part, parts.TextPart):
            content.append(types.TextPart(part.text))
        elif isinstance(part, parts.AttachmentPart) and part.attachment is not None:
            content.append(_convert_attachment(part.attachment))
    texts = [part.text for part in content if isinstance(part, types.TextPart)]
    return "".join(texts) if len(texts) == len(content) else tuple(content)


def _convert_attachment(attachment: Any) -> types.ContentPart:
    # only a declared type, because detecting it would fetch the URL
    kind = attachment.type or ("image/png" if attachment.url else attachment.resolve_type())
    source = {"url": attachment.url} if attachment.url else {"data": attachment.content_bytes()}
    return (types.DocumentPart if kind in _DOCUMENTS else types.ImagePart)(media_type=kind, **source)
