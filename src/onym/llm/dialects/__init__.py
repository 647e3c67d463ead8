"""Wire formats by name. Each is one module of pure functions, imported when it is first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import cast

from onym.errors import UnsupportedError
from onym.llm.dialects._base import NOWHERE, Decoder, Dialect, Exchange, HeaderMap, Routes, WireSpec

__all__ = ["DIALECTS", "NOWHERE", "Decoder", "Dialect", "Exchange", "HeaderMap", "Routes", "WireSpec", "get"]

#: the dialects that this version speaks, and the modules that speak them
DIALECTS = {
    name: f"onym.llm.dialects.{name}"
    for name in (
        "anthropic_messages",
        "bedrock_converse",
        "cohere_v2",
        "gemini",
        "gemini_vertex",
        "mistral_chat",
        "ollama",
        "openai_chat",
        "openai_responses",
    )
}


@cache
def get(name: str) -> Dialect:
    """The dialect of this name.

    Raises UnsupportedError where this version does not speak it.
    """
    if name not in DIALECTS:
        raise UnsupportedError(
            f"this version of Onym does not speak the dialect {name} yet",
            code="llm.no-dialect",
            hint=f"it speaks {', '.join(sorted(DIALECTS))}",
        )
    return cast("Dialect", import_module(DIALECTS[name]))
