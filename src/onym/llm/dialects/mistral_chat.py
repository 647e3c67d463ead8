"""Mistral's chat dialect: OpenAI's, but for what it refuses and for documents.

Pure: no network, no clock, no provider's name. Answers and errors are read as OpenAI's.
"""

from __future__ import annotations

from onym.llm.dialects._base import Routes
from onym.llm.dialects._mistral_encode import PARAMETERS, encode_chat, encode_embed
from onym.llm.dialects._openai_decode import decode_chat, decode_embed, decode_model, decode_models
from onym.llm.dialects._openai_errors import FAILURES
from onym.llm.dialects._openai_stream import stream_decoder

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

name = "mistral_chat"
routes = Routes(chat="/chat/completions", embed="/embeddings", models="/models", model="/models/{model}")
headers = ()
parameters = PARAMETERS
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
decode_error = FAILURES.of_answer
