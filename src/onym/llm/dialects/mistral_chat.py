"""Mistral's chat API format: OpenAI's, except for documents and rejected members.

The API rejects unknown members: `stream_options` (it always reports usage) and the `name` of a message that
is not a tool result. Every tool needs parameters. Documents are URLs and may be data: URLs. Responses and
errors are decoded as OpenAI's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onym.llm.dialects import Routes, WireSpec
from onym.llm.dialects import openai_chat as openai
from onym.llm.dialects.codec import NO_TOOL_PARAMETERS, encode_data_url
from onym.llm.parameters import list_wire_names
from onym.llm.types import ContentPart, DocumentPart, Message, Request, Tool

parameters = list_wire_names("mistral_chat")


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """Return the body of POST /chat/completions."""
    adapted = replace(
        request,
        messages=tuple(map(_strip_name, request.messages)),
        tools=tuple(map(_fill_parameters, request.tools)),
    )
    renamed = WireSpec(names={**parameters, **spec.names})
    body = openai.encode_chat(adapted, renamed, part=_encode_part)
    if "stream_options" not in request.extra:
        body.pop("stream_options", None)
    return body


def encode_embed(model: str, texts: Sequence[str], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of POST /embeddings."""
    renamed = {"output_dimension" if name == "dimensions" else name: value for name, value in extra.items()}
    return openai.encode_embed(model, texts, renamed)


def _strip_name(message: Message) -> Message:
    return message if message.role == "tool" or message.name is None else replace(message, name=None)


def _fill_parameters(tool: Tool) -> Tool:
    return tool if tool.parameters else replace(tool, parameters=NO_TOOL_PARAMETERS)


def _encode_part(part: ContentPart) -> dict[str, Any]:
    if not isinstance(part, DocumentPart):
        return openai.encode_part(part)
    out: dict[str, Any] = {
        "type": "document_url",
        "document_url": part.url if part.data is None else encode_data_url(part),
    }
    if part.name is not None:
        out["document_name"] = part.name
    return out


name = "mistral_chat"
routes = Routes(chat="/chat/completions", embed="/embeddings", models="/models", model="/models/{model}")
decode_chat = openai.decode_chat
decode_embed = openai.decode_embed
decode_error = openai.decode_error
decode_model = openai.decode_model
decode_models = openai.decode_models
defaults = openai.defaults
formats = openai.formats
headers = openai.headers
stream_decoder = openai.stream_decoder
