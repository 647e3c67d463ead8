"""The Gemini dialect as Vertex AI speaks it: the same chat, embeddings by POST /models/{model}:predict.

The list of models is not below a project, so there is no route to it here; a row may name one. Models whose
embeddings are asked for by :embedContent alone are not reached.
"""

from __future__ import annotations

from onym.llm.dialects._base import Routes
from onym.llm.dialects._gemini_decode import decode_chat, decode_model, decode_models
from onym.llm.dialects._gemini_decode import decode_predict as decode_embed
from onym.llm.dialects._gemini_encode import PARAMETERS, encode_chat
from onym.llm.dialects._gemini_encode import encode_predict as encode_embed
from onym.llm.dialects._gemini_errors import FAILURES
from onym.llm.dialects._gemini_stream import BodyDecoder, StreamDecoder, stream_decoder

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
decode_error = FAILURES.of_answer
