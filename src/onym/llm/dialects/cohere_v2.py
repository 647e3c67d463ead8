"""The Cohere dialect, version 2: POST /v2/chat, /v2/embed and what belongs to them.

Pure: no network, no clock, no provider's name. `encode_*` build bodies, `decode_*` read answers,
`stream_decoder` gives a push decoder for a streamed one.
"""

from __future__ import annotations

from onym.llm.dialects._base import Routes
from onym.llm.dialects._cohere_decode import (
    PAGE_SIZE,
    decode_chat,
    decode_embed,
    decode_model,
    decode_models,
)
from onym.llm.dialects._cohere_encode import PARAMETERS, encode_chat, encode_embed
from onym.llm.dialects._cohere_errors import FAILURES
from onym.llm.dialects._cohere_stream import BodyDecoder, StreamDecoder, stream_decoder

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

name = "cohere_v2"
routes = Routes(
    chat="/v2/chat",
    embed="/v2/embed",
    models=f"/v1/models?{PAGE_SIZE}",
    model="/v1/models/{model}",
)
headers = ()
parameters = PARAMETERS
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
decode_error = FAILURES.of_answer
