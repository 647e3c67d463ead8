"""The Anthropic Messages dialect: POST /v1/messages and what belongs to it.

Pure: no network, no clock, no provider's name. `encode_*` build bodies, `decode_*` read answers,
`stream_decoder` gives a push decoder for a streamed one. The API has no embeddings.
"""

from __future__ import annotations

from onym.llm.dialects._anthropic_decode import decode_chat, decode_embed, decode_model, decode_models
from onym.llm.dialects._anthropic_encode import PARAMETERS, encode_chat, encode_embed
from onym.llm.dialects._anthropic_errors import FAILURES
from onym.llm.dialects._anthropic_stream import BodyDecoder, StreamDecoder, stream_decoder
from onym.llm.dialects._base import Routes

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

name = "anthropic_messages"
routes = Routes(chat="/v1/messages", models="/v1/models?limit=1000", model="/v1/models/{model}")
#: the next version, 2026-10-21, takes no sampling parameter from any model
headers = (("anthropic-version", "2023-06-01"),)
parameters = PARAMETERS
#: the API demands a limit; every Claude can write as much
defaults: dict[str, object] = {"max_tokens": 4096}
formats = frozenset({"json_schema"})
decode_error = FAILURES.of_answer
