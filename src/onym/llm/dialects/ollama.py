"""Ollama's own dialect: POST /api/chat, /api/embed and what belongs to them.

Pure: no network, no clock, no provider's name. `encode_*` build bodies, `decode_*` read answers,
`stream_decoder` gives a push decoder for a streamed one.
"""

from __future__ import annotations

from onym.llm.dialects._base import Routes
from onym.llm.dialects._ollama_decode import decode_chat, decode_embed, decode_model, decode_models
from onym.llm.dialects._ollama_encode import PARAMETERS, encode_chat, encode_embed
from onym.llm.dialects._ollama_errors import FAILURES
from onym.llm.dialects._ollama_stream import BodyDecoder, StreamDecoder, stream_decoder

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

name = "ollama"
routes = Routes(chat="/api/chat", embed="/api/embed", models="/api/tags", model="/api/show", model_body=True)
headers = ()
parameters = PARAMETERS
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
decode_error = FAILURES.of_answer
