"""The OpenAI Responses dialect: POST /responses, and the other operations as the chat dialect has them.

Pure: no network, no clock, no provider's name. `encode_*` build bodies, `decode_*` read answers,
`stream_decoder` gives a push decoder for a streamed one. Nothing is kept on the server unless the caller
asks for it: every request bears the whole conversation and `store: false`.
"""

from __future__ import annotations

from onym.llm.dialects._base import Routes
from onym.llm.dialects._openai_decode import decode_embed, decode_model, decode_models
from onym.llm.dialects._openai_encode import encode_embed
from onym.llm.dialects._responses_decode import decode_chat
from onym.llm.dialects._responses_encode import PARAMETERS, encode_chat
from onym.llm.dialects._responses_errors import FAILURES
from onym.llm.dialects._responses_read import DIALECT
from onym.llm.dialects._responses_stream import StreamDecoder, stream_decoder

__all__ = [
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

name = DIALECT
routes = Routes(chat="/responses", embed="/embeddings", models="/models")
headers = ()
parameters = PARAMETERS
defaults: dict[str, object] = {}
formats = frozenset({"json", "json_schema"})
decode_error = FAILURES.of_answer
