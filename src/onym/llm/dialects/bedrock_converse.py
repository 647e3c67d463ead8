"""The Bedrock Converse dialect: POST /model/{model}/converse and what belongs to it.

Pure: no network, no clock, no provider's name. `encode_*` build bodies, `decode_*` read answers,
`stream_decoder` gives a push decoder for a streamed one. Signatures are not its business. The routes of
models are those of the control plane, which has a host of its own.
"""

from __future__ import annotations

from onym.llm.dialects._base import Routes
from onym.llm.dialects._bedrock_decode import decode_chat, decode_embed, decode_model, decode_models
from onym.llm.dialects._bedrock_encode import NAME, PARAMETERS, encode_chat, encode_embed
from onym.llm.dialects._bedrock_errors import decode_error
from onym.llm.dialects._bedrock_stream import BodyDecoder, StreamDecoder, stream_decoder

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

name = NAME
routes = Routes(
    chat="/model/{model}/converse",
    stream="/model/{model}/converse-stream",
    embed="/model/{model}/invoke",
    models="/foundation-models",
    model="/foundation-models/{model}",
)
headers = ()
parameters = PARAMETERS
defaults: dict[str, object] = {}
formats = frozenset({"json_schema"})
