"""Turns of pydantic-ai's as messages of Onym's, and answers of Onym's as pydantic-ai's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from onym.bridges._calls import carried_from, carried_to
from onym.bridges._extra import needs
from onym.llm.types import (
    Completion,
    Content,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
    Usage,
)

with needs("pydantic_ai", "pydantic-ai"):
    from pydantic_ai import exceptions, messages
    from pydantic_ai.usage import RequestUsage

__all__ = ["FINISHES", "details_of", "response_of", "turns_of", "usage_of"]

#: why an answer ended, in pydantic-ai's words; for other reasons it has none
FINISHES: Final[Mapping[str, messages.FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
    "content_filter": "content_filter",
}


def turns_of(given: messages.ModelMessage, system: str) -> Iterator[Message]:
    """A message as turns: each result of a tool is one. `system` is the provider that is about to be asked.

    Raises pydantic-ai's UserError for what has no place in a call.
    """
    if isinstance(given, messages.ModelResponse):
        yield _assistant(given, system)
        return
    files: list[Any] = []
    for part in given.parts:
        if isinstance(part, messages.SystemPromptPart):
            yield Message(role="system", content=part.content)
        elif isinstance(part, messages.UserPromptPart):
            yield Message(role="user", content=_content(part.content))
        elif isinstance(part, messages.ToolReturnPart):
            text, more = part.model_response_str_and_user_content()
            files.extend(more)
            yield Message(role="tool", content=text, tool_call_id=part.tool_call_id)
        else:
            yield _retry(part)
    if files:
        yield Message(role="user", content=_content(files))


def _retry(part: Any) -> Message:
    """A request to try again: about a tool call, or about the answer."""
    response = getattr(part, "model_response", None)
    if not callable(response):
        raise exceptions.UserError(f"a {type(part).__name__} has no place in a call")
    if getattr(part, "tool_name", None) is not None:
        return Message(role="tool", content=response(), tool_call_id=part.tool_call_id)
    return Message(role="user", content=response())


def _content(given: str | Iterable[Any]) -> Content:
    if isinstance(given, str):
        return given
    return tuple(_part(item) for item in given if not isinstance(item, messages.CachePoint))


def _part(item: Any) -> ContentPart:
    if isinstance(item, str):
        return TextPart(item)
    if isinstance(item, messages.TextContent):
        return TextPart(item.content)
    if isinstance(item, messages.ImageUrl):
        return ImagePart(url=item.url)
    if isinstance(item, messages.DocumentUrl):
        return DocumentPart(url=item.url, media_type=item.media_type)
    if isinstance(item, messages.BinaryContent):
        kind = ImagePart if item.is_image else DocumentPart
        if item.is_image or item.is_document:
            return kind(data=item.data, media_type=item.media_type)
    raise exceptions.UserError(
        f"a {type(item).__name__} has no place in a call: text, images, documents have"
    )


def _assistant(given: messages.ModelResponse, system: str) -> Message:
    texts = [part.content for part in given.parts if isinstance(part, messages.TextPart)]
    calls = [
        ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.args_as_json_str())
        for part in given.parts
        if isinstance(part, messages.ToolCallPart)
    ]
    details = given.provider_details or {}
    return Message(
        role="assistant",
        content="\n\n".join(texts),
        tool_calls=tuple(calls),
        carried=carried_from(details.get("onym")) if given.provider_name == system else None,
    )


def response_of(found: Completion, system: str, place: str) -> messages.ModelResponse:
    """A whole answer; `system` and `place` are the provider's name and endpoint."""
    parts: list[messages.ModelResponsePart] = []
    if found.reasoning:
        parts.append(messages.ThinkingPart(content=found.reasoning))
    if found.text:
        parts.append(messages.TextPart(content=found.text))
    parts.extend(
        messages.ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id)
        for call in found.tool_calls
    )
    return messages.ModelResponse(
        parts=parts,
        usage=usage_of(found.usage),
        model_name=found.model,
        provider_name=system,
        provider_url=place,
        provider_response_id=found.request_id,
        provider_details=details_of(found.finish_reason, carried_to(found.carried)),
        finish_reason=FINISHES.get(found.finish_reason),
    )


def details_of(reason: str, carried: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a message keeps of the provider's own, to be given back with the turn."""
    return {"finish_reason": reason} | ({} if carried is None else {"onym": carried})


def usage_of(usage: Usage) -> RequestUsage:
    """Token counts; what was not counted is 0, for pydantic-ai adds them up."""
    details = {} if usage.reasoning_tokens is None else {"reasoning_tokens": usage.reasoning_tokens}
    return RequestUsage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cache_read_tokens=usage.cached_tokens or 0,
        details=details,
    )
