"""The OpenAI chat dialect: POST /chat/completions and what belongs to it, spoken by most servers.

Pure: no network, no clock, no provider's name. `encode_*` build bodies, `decode_*` read answers,
`stream_decoder` gives a push decoder for a streamed one.
"""

from __future__ import annotations

from onym.llm.dialects._openai_decode import decode_chat, decode_embed, decode_models
from onym.llm.dialects._openai_encode import PARAMETERS, encode_chat, encode_embed
from onym.llm.dialects._openai_errors import decode_error
from onym.llm.dialects._openai_stream import BodyDecoder, StreamDecoder, stream_decoder

__all__ = [
    "BodyDecoder",
    "StreamDecoder",
    "chat_path",
    "decode_chat",
    "decode_embed",
    "decode_error",
    "decode_models",
    "embed_path",
    "encode_chat",
    "encode_embed",
    "models_path",
    "name",
    "parameters",
    "stream_decoder",
]

name = "openai_chat"
chat_path = "/chat/completions"
embed_path = "/embeddings"
models_path = "/models"
parameters = PARAMETERS
