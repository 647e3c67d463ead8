"""Bodies of Mistral's chat dialect, where they are not OpenAI's.

Its API refuses members that it does not know: `stream_options` (usage comes unasked) and the `name` of a
message that is no tool's result. Every tool has parameters. Documents are URLs, and may be data: URLs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onym.llm.dialects import _openai_encode as openai
from onym.llm.dialects._base import WireSpec
from onym.llm.dialects._body import data_url
from onym.llm.types import ContentPart, DocumentPart, Message, Request, Tool

__all__ = ["PARAMETERS", "encode_chat", "encode_embed"]

PARAMETERS: Mapping[str, str] = {**openai.PARAMETERS, "seed": "random_seed"}

_NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST /chat/completions."""
    taken = replace(
        request, messages=tuple(map(_message, request.messages)), tools=tuple(map(_tool, request.tools))
    )
    named = WireSpec(names={**PARAMETERS, **spec.names})
    body = openai.encode_chat(taken, named, part=_part)
    if "stream_options" not in request.extra:
        body.pop("stream_options", None)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /embeddings."""
    renamed = {"output_dimension" if name == "dimensions" else name: value for name, value in extra.items()}
    return openai.encode_embed(model, texts, renamed)


def _message(message: Message) -> Message:
    return message if message.role == "tool" or message.name is None else replace(message, name=None)


def _tool(tool: Tool) -> Tool:
    return tool if tool.parameters else replace(tool, parameters=_NO_ARGUMENTS)


def _part(part: ContentPart) -> dict[str, Any]:
    if not isinstance(part, DocumentPart):
        return openai.write_part(part)
    out: dict[str, Any] = {
        "type": "document_url",
        "document_url": part.url if part.data is None else data_url(part),
    }
    if part.name is not None:
        out["document_name"] = part.name
    return out
