"""Google's Gemini API format on Vertex AI: the same chat, embeddings by POST /models/{model}:predict.

The list of models is not below a project, so this format has no route for it. A provider entry may name one.
Models with embeddings only by :embedContent are not supported.
"""

from __future__ import annotations

from onym.llm.dialects import Routes
from onym.llm.dialects.gemini import (
    ERRORS,
    PARAMETERS,
    BodyDecoder,
    StreamDecoder,
    decode_chat,
    decode_model,
    decode_models,
    encode_chat,
    stream_decoder,
)
from onym.llm.dialects.gemini import decode_predict as decode_embed
from onym.llm.dialects.gemini import encode_predict as encode_embed

__all__ = [
    "BodyDecoder",
    "StreamDecoder",
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

name = "gemini_vertex"
routes = Routes(
    chat="/models/{model}:generateContent",
    stream="/models/{model}:streamGenerateContent?alt=sse",
    embed="/models/{model}:predict",
    model_prefix="models/",
)
headers = ()
parameters = PARAMETERS
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
decode_error = ERRORS.decode_error
