"""Google's Gemini API format on Vertex AI: the same chat, embeddings by POST /models/{model}:predict.

The list of models is not below a project, so this format has no route for it. A provider entry may name one.
Models with embeddings only by :embedContent are not supported.
"""

from __future__ import annotations

from onym.llm.dialects import Routes, gemini

name = "gemini_vertex"
routes = Routes(
    chat="/models/{model}:generateContent",
    stream="/models/{model}:streamGenerateContent?alt=sse",
    embed="/models/{model}:predict",
    model_prefix="models/",
)
decode_embed = gemini.decode_predict
encode_embed = gemini.encode_predict
decode_chat = gemini.decode_chat
decode_error = gemini.decode_error
decode_model = gemini.decode_model
decode_models = gemini.decode_models
defaults = gemini.defaults
encode_chat = gemini.encode_chat
formats = gemini.formats
headers = gemini.headers
parameters = gemini.parameters
stream_decoder = gemini.stream_decoder
