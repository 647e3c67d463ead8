"""Anthropic's Messages API format on Vertex AI: the model is in the path, the version in the body.

Everything except the envelope of the body comes from `anthropic_messages`.
"""

from __future__ import annotations

from typing import Any

from onym.llm.dialects import Routes, WireSpec
from onym.llm.dialects import anthropic_messages as plain
from onym.llm.dialects.anthropic_messages import (
    decode_chat,
    decode_embed,
    decode_error,
    decode_model,
    decode_models,
    defaults,
    encode_embed,
    formats,
    parameters,
    stream_decoder,
)
from onym.llm.types import Request

__all__ = [
    "decode_chat",
    "decode_embed",
    "decode_error",
    "decode_model",
    "decode_models",
    "defaults",
    "encode_chat",
    "encode_embed",
    "formats",
    "headers",
    "name",
    "parameters",
    "routes",
    "stream_decoder",
]

name = "anthropic_vertex"
routes = Routes(
    chat="/models/{model}:rawPredict",
    stream="/models/{model}:streamRawPredict",
    model_prefix="anthropic/",
)
headers = ()


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """The body of POST …:rawPredict."""
    body = plain.encode_chat(request, spec)
    del body["model"]
    return {"anthropic_version": "vertex-2023-10-16", **body}
