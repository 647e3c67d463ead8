"""Anthropic's Messages API format on Vertex AI: the model is in the path, the version in the body.

Everything except the envelope of the body comes from `anthropic_messages`.
"""

from __future__ import annotations

from typing import Any

from onym.llm.dialects import Routes, WireSpec
from onym.llm.dialects import anthropic_messages as anthropic
from onym.llm.types import Request

name = "anthropic_vertex"
routes = Routes(
    chat="/models/{model}:rawPredict",
    stream="/models/{model}:streamRawPredict",
    model_prefix="anthropic/",
)
headers = ()
decode_chat = anthropic.decode_chat
decode_error = anthropic.decode_error
decode_model = anthropic.decode_model
decode_models = anthropic.decode_models
defaults = anthropic.defaults
formats = anthropic.formats
parameters = anthropic.parameters
stream_decoder = anthropic.stream_decoder


def encode_chat(request: Request, spec: WireSpec) -> dict[str, Any]:
    """Return the body of POST …:rawPredict."""
    body = anthropic.encode_chat(request, spec)
    del body["model"]
    return {"anthropic_version": "vertex-2023-10-16", **body}
