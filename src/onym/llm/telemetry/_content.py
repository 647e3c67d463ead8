"""Messages as the conventions write them down, keys masked. Only where asked for: it is what people say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onym.llm.types import ContentPart, DocumentPart, ImagePart, Message, TextPart, ToolCall
from onym.uri.redact import redact

if TYPE_CHECKING:
    from onym.llm.plan import Plan
    from onym.llm.types import Completion
    from onym.uri.secret import Secret

__all__ = ["of_input", "of_output"]

_REASONS = {"tool_calls": "tool_call"}


def of_input(plan: Plan, messages: Sequence[Message]) -> dict[str, str]:
    """Messages and system prompt. The octets of images and documents stay out: their number is noted."""
    secrets = plan.endpoint.secrets
    found = {"gen_ai.input.messages": _json([_message(each) for each in messages], secrets)}
    system = [
        note.value for note in plan.notes if note.parameter == "system" and note.action in ("sent", "renamed")
    ]
    if system:
        parts = [{"type": "text", "content": text} for text in system]
        found["gen_ai.system_instructions"] = _json(parts, secrets)
    return found


def of_output(plan: Plan, answer: Completion) -> dict[str, str]:
    """The answer as one message."""
    parts: list[dict[str, Any]] = []
    if answer.reasoning:
        parts.append({"type": "reasoning", "content": answer.reasoning})
    if answer.text:
        parts.append({"type": "text", "content": answer.text})
    parts.extend(map(_call, answer.tool_calls))
    reason = _REASONS.get(answer.finish_reason, answer.finish_reason)
    message = {"role": "assistant", "parts": parts, "finish_reason": reason}
    return {"gen_ai.output.messages": _json([message], plan.endpoint.secrets)}


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "parts": list(_parts(message))}
    if message.name is not None:
        found["name"] = message.name
    return found


def _parts(message: Message) -> Iterator[dict[str, Any]]:
    content = (TextPart(message.content),) if isinstance(message.content, str) else message.content
    if message.role == "tool":
        text = "".join(part.text for part in content if isinstance(part, TextPart))
        yield {"type": "tool_call_response", "id": message.tool_call_id, "response": text}
        return
    for part in content:
        if not isinstance(part, TextPart) or part.text:
            yield _part(part)
    yield from map(_call, message.tool_calls)


def _part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "content": part.text}
    modality = "image" if isinstance(part, ImagePart) else "document"
    known: dict[str, Any] = {"modality": modality, "mime_type": part.media_type}
    if isinstance(part, DocumentPart) and part.name is not None:
        known["name"] = part.name
    if part.url is not None:
        return {"type": "uri", "uri": part.url, **known}
    return {"type": modality, "octets": len(part.data or b""), **known}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _json(value: Any, secrets: Sequence[Secret]) -> str:
    import json  # writes lone surrogates too, which a prompt may hold

    return json.dumps(_masked(value, secrets), separators=(",", ":"))


def _masked(value: Any, secrets: Sequence[Secret]) -> Any:
    if isinstance(value, str):
        return redact(value, secrets=secrets)
    if isinstance(value, dict):
        return {name: _masked(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, secrets) for item in value]
    return value
